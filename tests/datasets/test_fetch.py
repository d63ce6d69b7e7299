"""What the fetchers return."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest

from skroute.datasets import (
    _frugal,
    fetch_frugalmct,
    fetch_frugalml,
    fetch_llmrouter,
    fetch_routellm_mmlu,
    frugal_split,
    make_routing_problem,
)


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


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: fetch_frugalml("RAFDB"), "The 'name' parameter of fetch_frugalml must be a str"),
        (lambda: frugal_split(9, 0, 1.0), "The 'train_share' parameter of frugal_split must be"),
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
        assert problem.success.shape == problem.quality.shape == problem.predictions.shape
        assert_array_equal(problem.quality, problem.predictions == problem.target[:, None])
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
                    int(problem.quality[rows, j].sum()), rows.sum(), problem.success[rows, j][0]
                )
                assert test.pvalue > 1e-4

    def test_wrong_answers_are_spread_over_the_other_classes(self):
        problem = make_routing_problem(30_000, 1, n_classes=4, random_state=0)
        wrong = problem.quality[:, 0] == 0
        shift = (problem.predictions[wrong, 0] - problem.target[wrong]) % 4
        share = np.bincount(shift, minlength=4) / wrong.sum()
        assert share[0] == 0
        assert_allclose(share[1:], 1 / 3, atol=0.02)
