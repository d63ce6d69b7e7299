"""Raw files to arrays, by hand; and the addresses and digests of every set."""

import json

import numpy as np
import pytest

from skroute.datasets import _frugal, _frugal_sets, _llm
from skroute.datasets._base import load_npz


def test_frugalml():
    entry = _frugal_sets.LogSet(
        "words", _frugal_sets.Apis((7, 9), ("A", "B"), (2.0, 1.0)), ("x",), ""
    )
    raw = {
        "TrueLabel": b"0\n1\n2\n",
        "PredictedLabel 7": b"0\n0\n2\n",
        "PredictedLabel 9": b"1.000000e+00\n1.000000e+00\n0.000000e+00\n",
        "Confidence 7": b"5.0e-01\n1.0e+00\n0.0e+00\n",
        "Confidence 9": b"0.25\n0.5\n0.75\n",
        "ImageName": b"a.wav,\nb.wav,\nc.wav",
    }
    arrays = load_npz(_frugal.convert_frugalml(raw, entry))
    assert arrays["predicted_label"].tolist() == [[0, 1], [0, 1], [2, 0]]
    assert arrays["reward"].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert arrays["confidence"].tolist() == [[0.5, 0.25], [1.0, 0.5], [0.0, 0.75]]
    assert arrays["sample_id"].tolist() == ["a.wav", "b.wav", "c.wav"]
    assert arrays["price_per_10k"].tolist() == [2.0, 1.0]

    without = {key: raw[key] for key in raw if key[:4] in ("True", "Pred")}
    assert "confidence" not in load_npz(_frugal.convert_frugalml(without, entry))


def test_frugalmct_labels():
    entry = _frugal_sets.LogSet(
        "tags", _frugal_sets.Apis((4, 5), ("A", "B"), (2.0, 1.0)), ("cat", "dog"), ""
    )
    named = [
        {"transcription": "cat", "confidence": 0.5},
        {"transcription": "cat", "confidence": 0.75},
        {"transcription": "unicorn", "confidence": 0.9},
    ]
    raw = {
        "ImageName": b"one.jpg,\ntwo.jpg",
        "Reward 4": b"1.0e+00\n3.333333333333333148e-01\n",
        "Reward 5": b"0\n0\n",
        "TrueLabel": json.dumps(
            {"two": [{"transcription": "cat"}, {"transcription": "dog"}], "one": []}
        ).encode(),
        "PredictedLabel 5": json.dumps({"one": [], "two": named}).encode(),
    }
    arrays = load_npz(_frugal.convert_frugalmct(raw, entry, (5,)))
    assert arrays["y_true"].tolist() == [[False, False], [True, True]]
    assert arrays["scores"].tolist() == [[[0.0, 0.0]], [[0.75, 0.0]]]
    np.testing.assert_allclose(arrays["reward"], [[1, 0], [1 / 3, 0]], rtol=1e-6)


def test_llmrouter_prompt_of_two_tasks_carries_the_first():
    names = list(_llm._LLMROUTER_MODELS)
    scores = dict(zip(reversed(names), range(9)))
    raw = {
        "train": json.dumps([{"question": "p", "scores": scores, "cluster_id": 2}]).encode(),
        "test": json.dumps(
            [{"question": "q", "scores": scores}, {"question": "p", "scores": scores}]
        ).encode(),
        "queries train": b'{"query": "p", "task_name": "a", "metric": "m", "choices": []}\n'
        b'{"query": "p", "task_name": "b", "metric": "n"}\n',
        "queries test": b'{"query": "q", "task_name": "c", "metric": "o"}\n'
        b'{"query": "p", "task_name": "d", "metric": "o"}\n',
    }
    arrays = _llm.load_llmrouter(_llm.convert_llmrouter(raw))
    assert arrays["task"] == ["a", "c", "a"]
    assert arrays["metric"] == ["m", "o", "m"]
    assert arrays["cluster_id"].tolist() == [2, -1, -1]
    assert arrays["is_test"].tolist() == [False, True, True]
    assert arrays["in_train"].tolist() == [False, False, True]
    assert arrays["quality"][0].tolist() == list(range(8, -1, -1))


def test_mmlu():
    header = "prompt,mixtral-8x7b-instruct-v0.1,gpt-4-1106-preview\n"
    raw = {subject: header.encode() for subject in _llm._SUBJECTS}
    raw["anatomy"] += b'"said ""a,\nb""",True,False\n'
    raw["virology"] += b'"q",False,True\n"r",True,True\n'
    raw["contaminated"] = b'{"train_prompt": "x", "eval_prompt": "r"}\n'
    arrays = _llm.load_mmlu(_llm.convert_mmlu(raw))
    assert arrays["subject"] == ["anatomy", "virology", "virology"]
    assert arrays["prompt"] == ['said "a,\nb"', "q", "r"]
    assert arrays["quality"].tolist() == [[1, 0], [0, 1], [1, 1]]
    assert arrays["contaminated"].tolist() == [False, False, True]


ORIGINS = {
    **{name: _frugal.frugalml_origin(name) for name in _frugal.FRUGALML},
    **{name: _frugal.frugalmct_origin(name) for name in _frugal.FRUGALMCT},
    "mmlu": _llm.MMLU,
    "llmrouter": _llm.LLMROUTER,
}


@pytest.mark.parametrize("name", ORIGINS)
def test_every_address_is_pinned(name):
    for urls in ORIGINS[name].urls.values():
        for url in urls:
            # A commit cannot change.
            assert url.startswith("https://raw.githubusercontent.com/")
            assert len(url.split("/")[5]) == 40
