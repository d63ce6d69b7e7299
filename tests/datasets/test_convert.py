"""Raw files to arrays: small files by hand, and every real set written back to raw."""

import json
from pathlib import PurePosixPath

import numpy as np
import pytest

from skroute.datasets import _frugal, _frugal_sets, _llm
from skroute.datasets._base import content_digest, load_npz


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


# The same sets as raw files, in the layout of their origins.


def _lines(values, fmt):
    return "".join(fmt % value + "\n" for value in values).encode()


def raw_frugalml(arrays):
    raw = {"TrueLabel": _lines(arrays["y_true"], "%d")}
    for j, api in enumerate(arrays["api_ids"]):
        raw[f"PredictedLabel {api}"] = _lines(arrays["predicted_label"][:, j], "%d")
        if "confidence" in arrays:
            raw[f"Confidence {api}"] = _lines(arrays["confidence"][:, j], "%.18e")
    if "sample_id" in arrays:
        raw["ImageName"] = ",\n".join(arrays["sample_id"]).encode()
    return raw


def raw_frugalmct(arrays):
    raw = {"ImageName": ",\n".join(arrays["sample_id"]).encode()}
    for j, api in enumerate(arrays["api_ids"]):
        raw[f"Reward {api}"] = _lines(arrays["reward"][:, j], "%.18e")
    if "scores" in arrays:
        stems = [PurePosixPath(name).stem for name in arrays["sample_id"]]
        names = arrays["label_names"].tolist()
        raw["TrueLabel"] = json.dumps(
            {
                stem: [{"transcription": names[j]} for j in np.flatnonzero(row)]
                for stem, row in zip(stems, arrays["y_true"])
            }
        ).encode()
        for k, api in enumerate(arrays["scores_api_ids"]):
            raw[f"PredictedLabel {api}"] = json.dumps(
                {
                    stem: [
                        {"transcription": names[j], "confidence": float(row[j])}
                        for j in np.flatnonzero(row)
                    ]
                    for stem, row in zip(stems, arrays["scores"][:, k])
                }
            ).encode()
    return raw


def raw_mmlu(arrays):
    subjects = np.array(arrays["subject"])
    raw = {}
    for subject in dict.fromkeys(arrays["subject"]):
        rows = np.flatnonzero(subjects == subject)
        quoted = [arrays["prompt"][i].replace('"', '""') for i in rows]
        answers = np.where(arrays["quality"][rows] == 1, "True", "False").tolist()
        raw[subject] = (
            "prompt,mixtral-8x7b-instruct-v0.1,gpt-4-1106-preview\n"
            + "".join(f'"{text}",{a},{b}\n' for text, (a, b) in zip(quoted, answers))
        ).encode()
    raw["contaminated"] = "\n".join(
        json.dumps({"train_prompt": "x", "eval_prompt": arrays["prompt"][i]})
        for i in np.flatnonzero(arrays["contaminated"])
    ).encode()
    return raw


def raw_llmrouter(arrays):
    names = list(_llm._LLMROUTER_MODELS)
    records = [
        {"question": prompt, "scores": dict(zip(names, scores)), "cluster_id": cluster}
        for prompt, scores, cluster in zip(
            arrays["prompt"], arrays["quality"].tolist(), arrays["cluster_id"].tolist()
        )
    ]
    queries = [
        json.dumps({"task_name": task, "query": prompt, "metric": metric})
        for task, prompt, metric in zip(arrays["task"], arrays["prompt"], arrays["metric"])
    ]
    n = int((~arrays["is_test"]).sum())
    return {
        "train": json.dumps(records[:n]).encode(),
        "test": json.dumps(records[n:]).encode(),
        "queries train": "\n".join(queries[:n]).encode(),
        "queries test": "\n".join(queries[n:]).encode(),
    }


ORIGINS = {
    **{name: (_frugal.frugalml_origin(name), raw_frugalml) for name in _frugal.FRUGALML},
    **{name: (_frugal.frugalmct_origin(name), raw_frugalmct) for name in _frugal.FRUGALMCT},
    "mmlu": (_llm.MMLU, raw_mmlu),
    "llmrouter": (_llm.LLMROUTER, raw_llmrouter),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_every_set_from_its_raw_files(data_home, name):
    origin, raw = ORIGINS[name]
    arrays = origin.load((data_home / origin.path).read_bytes())
    assert content_digest(arrays) == origin.digest
    if max(map(len, arrays.values())) > 50_000:
        return  # Text of this size takes seconds and adds nothing.
    files = raw(arrays)
    assert set(files) == set(origin.urls)
    assert content_digest(origin.load(origin.convert(files))) == origin.digest


@pytest.mark.parametrize("name", ORIGINS)
def test_every_address_is_pinned(name):
    origin, _ = ORIGINS[name]
    assert len(origin.digest) == 64
    for urls in origin.urls.values():
        for url in urls:
            # A commit cannot change.
            assert url.startswith("https://raw.githubusercontent.com/")
            assert len(url.split("/")[5]) == 40
