"""BaggedNeighborsRegressor: the exact limit, standard errors, the contract."""

import re
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.quality import BaggedNeighborsRegressor
from skroute.quality._bagged_neighbors import nearest_weights

METRICS = ["chebyshev", "manhattan", "euclidean"]


def distances_to(X, query, metric):
    """Return distances of rows to one query, squared for the euclidean metric."""
    difference = np.abs(np.asarray(X, dtype=np.float64) - query)
    if metric == "chebyshev":
        return difference.max(axis=1)
    if metric == "manhattan":
        return difference.sum(axis=1)
    return (difference**2).sum(axis=1)


def mean_over_all_subsets(X, y, subset_size, query, metric):
    """Return the exact limit by enumeration, with means over equally near rows."""
    distances = distances_to(X, query, metric)
    answers = []
    for subset in combinations(range(len(X)), subset_size):
        subset = np.array(subset)
        nearest = subset[distances[subset] == distances[subset].min()]
        answers.append(y[nearest].mean(axis=0))
    return np.mean(answers, axis=0)


@parametrize_with_checks(
    [BaggedNeighborsRegressor(metric=metric) for metric in METRICS[1:]]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@given(n_rows=st.integers(1, 60), data=st.data())
def test_weights_are_the_ratio_of_binomials(n_rows, data):
    size = data.draw(st.integers(1, n_rows))
    expected = [
        comb(n_rows - j, size - 1) / comb(n_rows, size) for j in range(1, n_rows + 1)
    ]
    expected = np.array(expected[: n_rows - size + 1])
    np.testing.assert_allclose(
        nearest_weights(n_rows, size, tail=1e-300), expected, rtol=1e-10
    )


@pytest.mark.parametrize(
    "n_rows, size",
    [(40_000, 1000), (10**6, 25_000), (10**6, 1), (10**5, 10**5), (50, 2)],
)
def test_weights_of_many_rows_are_cut_and_sum_to_one(n_rows, size):
    weights = nearest_weights(n_rows, size)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-12)
    assert (np.diff(weights) <= 0).all()
    n_neighbors = len(weights)
    if size < n_rows:
        # The weight that was cut off is the probability that a subset has none of the
        # nearest rows.
        log_beyond = np.log1p(-size / (n_rows - np.arange(n_neighbors - 1))).sum()
        assert n_neighbors == n_rows or log_beyond >= np.log(1e-6)
        if n_neighbors < n_rows - size:
            log_of_next = np.log1p(-size / (n_rows - n_neighbors + 1))
            assert log_beyond + log_of_next < np.log(1e-6)
    if size == 1000:
        assert 500 < n_neighbors < 600


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_rows=st.integers(1, 9),
    metric=st.sampled_from(METRICS),
    discrete=st.booleans(),
    data=st.data(),
)
def test_exact_limit_is_the_mean_over_all_subsets(seed, n_rows, metric, discrete, data):
    size = data.draw(st.integers(1, n_rows))
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n_rows + 3, 2)).astype(float)
    if not discrete:
        X = rng.standard_normal((n_rows + 3, 2))
    queries = X[-3:]
    X = X[:-3]
    y = rng.standard_normal((n_rows, 2))
    model = BaggedNeighborsRegressor(subset_size=size, metric=metric).fit(X, y)
    expected = [mean_over_all_subsets(X, y, size, query, metric) for query in queries]
    np.testing.assert_allclose(model.predict(queries), expected, atol=1e-5)


def test_standard_errors_match_the_spread_over_samples():
    """The outputs are 600 draws of the outcomes of one model."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 2))
    queries = rng.random((20, 2))
    success = rng.random((600, 400)) < 0.7
    model = BaggedNeighborsRegressor(subset_size=40)
    mean, std = model.fit(X, success.T).predict(queries, return_std=True)
    assert mean.shape == std.shape == (20, 600)
    # Unbiased for the variance under equal success probabilities.
    ratio = (std**2).mean(axis=1) / mean.var(axis=1, ddof=1)
    assert 0.85 < np.median(ratio) < 1.15
    np.testing.assert_allclose(ratio, 1, atol=0.3)


def test_standard_error_formula():
    rng = np.random.default_rng(0)
    X = rng.random((30, 1))
    y = rng.standard_normal(30)
    model = BaggedNeighborsRegressor(subset_size=5).fit(X, y)
    query = np.array([[0.4]])
    order = np.argsort(np.abs(X - query)[:, 0])
    mean, std = model.predict(query, return_std=True)
    outcomes = y[order][: len(model.weights_)]
    np.testing.assert_allclose(mean[0], model.weights_ @ outcomes)
    concentration = (model.weights_**2).sum()
    variance = model.weights_ @ (outcomes - mean[0]) ** 2
    np.testing.assert_allclose(
        std[0] ** 2, variance * concentration / (1 - concentration)
    )
    # All rows tied: the standard error of a plain mean.
    model.fit(np.ones((30, 1)), y)
    mean, std = model.predict(query, return_std=True)
    np.testing.assert_allclose(mean[0], y.mean())
    np.testing.assert_allclose(std[0], y.std(ddof=1) / np.sqrt(30))


@pytest.mark.parametrize("metric", METRICS)
def test_tied_rows_share_weights_and_their_order_has_no_effect(metric):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (500, 3)).astype(float)
    y = rng.standard_normal((500, 2))
    queries = rng.integers(0, 4, (40, 3)).astype(float)
    model = BaggedNeighborsRegressor(subset_size=60, metric=metric)
    expected = model.fit(X, y).predict(queries, return_std=True)
    order = rng.permutation(500)
    in_other_order = model.fit(X[order], y[order]).predict(queries, return_std=True)
    np.testing.assert_allclose(in_other_order, expected, rtol=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_distances_are_those_of_double_precision(metric, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    n_rows = data.draw(st.integers(1, 1200))
    n_features = data.draw(st.integers(1, 70))
    scales = 10.0 ** rng.uniform(-6, 6, n_features)
    X = rng.standard_normal((n_rows + 3, n_features)) * scales
    X = X.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    queries = X[n_rows:].astype(np.float64)
    X = X[:n_rows]
    model = BaggedNeighborsRegressor(metric=metric).fit(X, np.zeros(n_rows))
    expected = [distances_to(X, query, metric) for query in queries]
    rtol = 0 if metric == "chebyshev" else 1e-12
    np.testing.assert_allclose(model._distances(queries), expected, rtol=rtol)


def test_extreme_sizes():
    X = np.arange(5.0)[:, None]
    y = np.array([1.0, 2, 3, 4, 9])
    # The one subset of all rows has the nearest neighbour: one row has no spread.
    model = BaggedNeighborsRegressor(subset_size=5).fit(X, y)
    _, std = model.predict([[3.2], [0.0]], return_std=True)
    assert np.isnan(std).all()
    model = BaggedNeighborsRegressor().fit(X[:1], y[:1])
    assert model.subset_size_ == 1
    mean, std = model.predict([[7.0]], return_std=True)
    assert mean[0] == 1
    assert np.isnan(std[0])
    message = "subset_size=6 is more than the n_samples = 5 given to fit"
    with pytest.raises(ValueError, match=re.escape(message)):
        BaggedNeighborsRegressor(subset_size=6).fit(X, y)


@pytest.mark.parametrize("metric", ["chebyshev", "manhattan", "euclidean"])
@pytest.mark.parametrize("seed", range(4))
def test_a_weight_of_2_is_a_row_twice(seed, metric):
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(20, 80))
    # Few values: many distances are equal.
    X = rng.integers(0, 5, (n_rows, 2)).astype(float)
    Y = rng.random((n_rows, 2))
    counts = rng.integers(0, 4, n_rows)
    rows = np.repeat(np.arange(n_rows), counts)
    queries = rng.integers(0, 5, (30, 2)).astype(float)
    for subset_size in (None, 1, 5):
        model = BaggedNeighborsRegressor(subset_size=subset_size, metric=metric)
        repeated = clone(model).fit(X[rows], Y[rows])
        for unit in (1.0, 1e-9, 3e5):
            weighted = clone(model).fit(X, Y, sample_weight=unit * counts)
            assert weighted.subset_size_ == repeated.subset_size_
            estimates = weighted.predict(queries, return_std=True)
            expected = repeated.predict(queries, return_std=True)
            np.testing.assert_allclose(estimates[0], expected[0], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(estimates[1], expected[1], rtol=1e-9, atol=1e-12)


def test_weights_that_count_nothing_change_nothing():
    rng = np.random.default_rng(0)
    X = rng.random((100, 3))
    y = rng.random(100)
    plain = BaggedNeighborsRegressor().fit(X, y)
    for weight in (np.ones(100), np.full(100, 1e-3)):
        weighted = BaggedNeighborsRegressor().fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(weighted.predict(X), plain.predict(X), rtol=1e-12)
    weight = rng.random(100)
    model = BaggedNeighborsRegressor()
    expected = model.fit(X, y, sample_weight=weight).predict(X)
    in_other_unit = model.fit(X, y, sample_weight=1e-5 * weight).predict(X)
    np.testing.assert_array_equal(expected, in_other_unit)
    for wrong in (-weight, 0 * weight, weight[:-1]):
        with pytest.raises(ValueError, match="(?i)sample.weight"):
            BaggedNeighborsRegressor().fit(X, y, sample_weight=wrong)
