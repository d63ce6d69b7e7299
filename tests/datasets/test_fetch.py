"""Results of the fetchers, conversion of raw files, and the addresses of every set."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest

from skroute.datasets import (
    _frugal,
    _frugal_sets,
    _llm,
    fetch_frugalmct,
    fetch_frugalml,
    fetch_llmrouter,
    fetch_routellm_mmlu,
    frugal_split,
    make_routing_problem,
)
from skroute.datasets._base import load_npz


@pytest.mark.parametrize("name", _frugal.FRUGALML)
def test_frugalml(data_home, name):
    data = fetch_frugalml(name, data_home=data_home)
    n = len(data.target)
    assert data.predictions.shape == data.quality.shape == (n, 4)
    assert_array_equal(data.quality, data.predictions == data.target[:, None])
    assert data.predictions.max() < len(data.target_names)
    assert len(data.model_names) == len(data.costs) == 4
    assert data.costs.argmin() == 3
    assert name in data.DESCR
    if name == "AFFECTNET":
        assert data.scores is data.sample_id is None
        return
    assert data.scores.shape == (n, 4) and data.sample_id.shape == (n,)
    assert 0 <= data.scores.min() <= data.scores.max() <= 1


@pytest.mark.parametrize("name", _frugal.FRUGALMCT)
def test_frugalmct(data_home, name):
    data = fetch_frugalmct(name, data_home=data_home)
    n = len(data.sample_id)
    assert data.quality.shape == (n, 4)
    assert 0 <= data.quality.min() <= data.quality.max() <= 1
    assert len(np.unique(data.sample_id)) == n
    assert data.costs.argmin() == 3
    if name not in ("PASCAL", "MIR"):
        assert data.target is data.scores is data.scores_columns is None
        assert data.target_names == []
        return
    assert data.target.shape == (n, len(data.target_names))
    assert data.scores.shape == (n, len(data.scores_columns), len(data.target_names))
    if name == "PASCAL":
        assert data.scores_columns.tolist() == [0, 1, 2]
        # The quality is the Jaccard index of the labels that are named.
        named = data.scores > 0
        both = (named & data.target[:, None]).sum(axis=2)
        either = (named | data.target[:, None]).sum(axis=2)
        assert_allclose(data.quality[:, data.scores_columns], both / either, atol=1e-6)


def test_routellm_mmlu(data_home):
    data = fetch_routellm_mmlu(data_home=data_home)
    assert data.data.shape == data.subject.shape == (14_042,)
    assert data.quality.mean(axis=0).round(4).tolist() == [0.6808, 0.8058]
    assert data.costs.tolist() == [0.24, 24.7]
    assert data.contaminated.sum() == 5
    assert len(set(data.subject)) == 57
    assert data.data[0].endswith("Answer:")


def test_llmrouter(data_home):
    data = fetch_llmrouter(data_home=data_home)
    assert data.data.shape == data.task.shape == data.metric.shape == (6_108,)
    assert data.is_test.sum() == 500
    assert data.in_train.sum() == 119
    assert not data.in_train[~data.is_test].any()
    train = data.quality[~data.is_test]
    assert train.mean(axis=0).round(4).max() == 0.6213
    assert train.max(axis=1).mean().round(4) == 0.8017
    assert (np.diff(data.costs) >= 0).all()
    assert set(data.cluster_id[data.is_test]) == {-1}


def test_raw_files_of_frugalml():
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


def test_raw_files_of_frugalmct():
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
    assert_allclose(arrays["reward"], [[1, 0], [1 / 3, 0]], rtol=1e-6)


def test_raw_prompt_of_two_tasks_carries_the_first():
    names = list(_llm._LLMROUTER_MODELS)
    scores = dict(zip(reversed(names), range(9)))
    raw = {
        "train": json.dumps(
            [{"question": "p", "scores": scores, "cluster_id": 2}]
        ).encode(),
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


def test_raw_files_of_mmlu():
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


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: fetch_frugalml("RAFDB"),
            "The 'name' parameter of fetch_frugalml must be a str",
        ),
        (
            lambda: frugal_split(9, 0, 1.0),
            "The 'train_share' parameter of frugal_split must be",
        ),
        (
            lambda: frugal_split(9, 0, 0.1),
            "train_share=0.1 of n_samples=9 leaves no row to train on; it must be at least 0.111",
        ),
        (
            lambda: make_routing_problem(accuracy=(0.5, 1.0)),
            r"accuracy must be a pair of numbers between 0 and 1 exclusive.* got \(0.5, 1.0\)",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("seed", [1, 100])
@pytest.mark.parametrize("n, share", [(7, 0.5), (1000, 0.01)])
def test_frugal_split_is_that_of_the_authors(seed, n, share):
    np.random.seed(seed)  # noqa: NPY002
    permutation = np.random.permutation(n)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    train, test = frugal_split(n, seed, share)
    assert_array_equal(train, permutation[: int(n * share)])
    assert_array_equal(test, permutation[int(n * share) :])
    assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


class TestMakeRoutingProblem:
    def test_shapes_and_agreement(self):
        problem = make_routing_problem(
            50, 3, n_features=2, n_classes=4, n_regions=5, random_state=0
        )
        assert problem.data.shape == (50, 2)
        assert (
            problem.success.shape == problem.quality.shape == problem.predictions.shape
        )
        assert_array_equal(
            problem.quality, problem.predictions == problem.target[:, None]
        )
        assert set(problem.predictions.ravel()) <= set(range(4))
        assert problem.region.max() < 5
        assert problem.model_names == ["model_0", "model_1", "model_2"]
        assert_allclose(problem.costs, [0.1, 10**-0.5, 1.0])
        equal = make_routing_problem(10, 3, specialization=0.0, accuracy=(0.5, 0.7))
        assert_allclose(equal.success, [[0.5, 0.6, 0.7]] * 10)

    def test_region_is_the_nearest_centre(self):
        problem = make_routing_problem(200, n_features=3, n_regions=6, random_state=1)
        state = np.random.RandomState(1)
        data, centers = state.uniform(size=(200, 3)), state.uniform(size=(6, 3))
        distance = np.linalg.norm(data[:, None] - centers, axis=2)
        assert_array_equal(problem.region, distance.argmin(axis=1))

    def test_success_is_the_rate_of_right_answers(self):
        problem = make_routing_problem(40_000, 3, n_regions=4, random_state=0)
        for region in range(4):
            rows = problem.region == region
            for j in range(3):
                test = binomtest(
                    int(problem.quality[rows, j].sum()),
                    rows.sum(),
                    problem.success[rows, j][0],
                )
                assert test.pvalue > 1e-4

    def test_wrong_answers_are_spread_over_the_other_classes(self):
        problem = make_routing_problem(30_000, 1, n_classes=4, random_state=0)
        wrong = problem.quality[:, 0] == 0
        shift = (problem.predictions[wrong, 0] - problem.target[wrong]) % 4
        share = np.bincount(shift, minlength=4) / wrong.sum()
        assert share[0] == 0
        assert_allclose(share[1:], 1 / 3, atol=0.02)
