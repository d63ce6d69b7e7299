"""The torch search against the kernels: the same rows, the same estimates."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import pairwise_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.quality import BaggedNeighborsRegressor
from skroute.quality import _torch as on_torch
from skroute.quality._kernels import k_nearest, nearest_of_subsets
from skroute.quality._search import HostRows
from tests.neural.nets import cuda, torch

METRICS = ("chebyshev", "manhattan", "euclidean")


@parametrize_with_checks([BaggedNeighborsRegressor(device="cpu")])
def test_sklearn_checks(estimator, check):
    check(estimator)


def on_kernels(X, Q, k, metric):
    index = HostRows(X, np.zeros((len(X), 1)), metric)
    return k_nearest(index.references, index.ready(Q), k)


def on_device(X, Q, k, metric, device="cpu"):
    index = on_torch.DeviceRows(X, np.zeros((len(X), 1)), metric, device)
    return index.map(lambda queries: index.k_nearest(queries, k)[:2], Q)


@st.composite
def problems(draw, grid):
    """Rows and queries: whole numbers with many ties, or any, spread over many magnitudes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_queries = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    n_features = draw(st.integers(1, 9))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = (n_rows + n_queries, n_features)
    if grid:
        both = rng.integers(0, draw(st.integers(1, 4)), shape) * 2.0 ** draw(st.integers(-60, 60))
    else:
        both = rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape[1])
        both += draw(st.sampled_from([0.0, 1e4]))
        if draw(st.booleans()):
            both = both[rng.integers(0, len(both), len(both))]
    both = both.astype(dtype)
    k = draw(st.integers(1, n_rows))
    return both[:n_rows], both[n_rows:], k


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("grid", [True, False])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_nearest_rows_are_those_of_the_kernels(metric, grid, data):
    X, Q, k = data.draw(problems(grid))
    expected, expected_rows = on_kernels(X, Q, k, metric)
    distances, rows = on_device(X, Q, k, metric)
    # Under chebyshev the distances themselves are the same; a sum is so but for rounding.
    np.testing.assert_allclose(distances, expected, rtol=0 if metric == "chebyshev" else 1e-13)
    if metric == "chebyshev" or grid:
        np.testing.assert_array_equal(rows, expected_rows)
    else:
        differ = rows != expected_rows
        np.testing.assert_allclose(distances[differ], expected[differ], rtol=1e-13)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_nearest_rows_of_subsets_are_those_of_the_kernels(metric, data):
    X, Q, _ = data.draw(problems(True))
    size = data.draw(st.integers(1, len(X)))
    starts = np.arange(0, len(X) + 1, size)
    X = X[: starts[-1]]
    index = HostRows(X, np.zeros((len(X), 1)), metric)
    _, expected = nearest_of_subsets(index.references, index.ready(Q), starts)
    device_rows = on_torch.DeviceRows(X, np.zeros((len(X), 1)), metric, "cpu")
    (found,) = device_rows.map(
        lambda queries: (device_rows.nearest_of_subsets(queries, starts),), Q
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", METRICS)
def test_values_beyond_float32(metric):
    """Codes that say nothing leave all rows to the exact distances."""
    rng = np.random.default_rng(0)
    X, Q = rng.integers(0, 4, (50, 3)) * 1.0, rng.integers(0, 4, (9, 3)) * 1.0
    for factor, of_query in [(2.0**500, 1.0), (2.0**-500, 1.0), (1.0, 2.0**300), (0.0, 1.0)]:
        expected = on_kernels(X * factor, Q * of_query, 5, metric)[1]
        np.testing.assert_array_equal(on_device(X * factor, Q * of_query, 5, metric)[1], expected)


def test_against_all_distances():
    """An independent reference: every distance, sorted."""
    rng = np.random.default_rng(0)
    X, Q = rng.random((300, 20)), rng.random((40, 20))
    for metric in METRICS:
        order = np.argsort(pairwise_distances(Q, X, metric=metric), axis=1, kind="stable")
        np.testing.assert_array_equal(on_device(X, Q, 7, metric)[1], order[:, :7])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "params",
    [{}, {"subset_size": 1}, {"subset_size": 200}, {"n_subsets": 7, "random_state": 0}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_estimates_are_those_of_the_kernels(monkeypatch, metric, params, dtype):
    """In small batches too; on whole numbers groups of ties cross the last weight."""
    monkeypatch.setattr(on_torch, "_CODE_DISTANCES", 200 * 16)
    monkeypatch.setattr(on_torch, "_DIFFERENCES", 1000)
    rng = np.random.default_rng(0)
    y = rng.random((200, 3))
    for both in (rng.integers(0, 3, (250, 4)), rng.random((250, 4))):
        X, Q = both[:200].astype(dtype), both[200:].astype(dtype)
        expected = BaggedNeighborsRegressor(metric=metric, **params).fit(X, y)
        found = clone(expected).set_params(device="cpu").fit(X, y)
        for a, b in zip(found.predict(Q, return_std=True), expected.predict(Q, return_std=True)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_memory_is_bounded_by_the_batches(monkeypatch):
    shapes = []
    cdist = torch.cdist

    def noted(a, b, **kwargs):
        shapes.append((len(a), len(b)))
        return cdist(a, b, **kwargs)

    monkeypatch.setattr(torch, "cdist", noted)
    monkeypatch.setattr(on_torch, "_CODE_DISTANCES", 1000)
    rng = np.random.default_rng(0)
    on_device(rng.random((100, 3)), rng.random((45, 3)), 4, "euclidean")
    assert shapes == [(10, 100)] * 4 + [(5, 100)]


def problem():
    rng = np.random.default_rng(0)
    return rng.random((80, 3)).astype(np.float32), rng.random((80, 2))


def test_queries_as_tensors():
    X, y = problem()
    model = BaggedNeighborsRegressor(device="cpu").fit(torch.from_numpy(X), torch.from_numpy(y))
    expected = model.predict(X)
    assert isinstance(model.predict(torch.from_numpy(X)), np.ndarray)
    np.testing.assert_array_equal(model.predict(torch.from_numpy(X)), expected)
    whole = torch.from_numpy(X > 0.5)
    np.testing.assert_array_equal(model.predict(whole), model.predict(X > 0.5))
    kernels = BaggedNeighborsRegressor().fit(torch.from_numpy(X), y)
    np.testing.assert_allclose(kernels.predict(torch.from_numpy(X)), expected)
    with pytest.raises(ValueError, match="Expected 2D rows"):
        model.predict(torch.ones(3))
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.predict(torch.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="X has 4 features"):
        model.predict(torch.ones(2, 4))


def test_array_api_dispatch_answers_with_tensors():
    X, y = problem()
    model = BaggedNeighborsRegressor(device="cpu").fit(X, y)
    try:
        sklearn.set_config(array_api_dispatch=True)
    except RuntimeError:
        pytest.skip("scipy was imported without SCIPY_ARRAY_API=1")
    try:
        mean, std = model.predict(torch.from_numpy(X), return_std=True)
        assert isinstance(model.predict(X), np.ndarray)
    finally:
        sklearn.set_config(array_api_dispatch=False)
    assert isinstance(mean, torch.Tensor) and isinstance(std, torch.Tensor)
    np.testing.assert_array_equal(mean.numpy(), model.predict(X))


def test_pickles_hold_no_tensors():
    X, y = problem()
    model = BaggedNeighborsRegressor(device="cpu").fit(X, y)
    dumped = pickle.dumps(model)
    assert b"torch" not in dumped
    loaded = pickle.loads(dumped)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert pickle.dumps(loaded) == dumped


def test_rows_that_may_not_be_written_to(tmp_path):
    """Queries of a server, and a model that is mapped into memory."""
    X, y = problem()
    X.setflags(write=False)
    model = BaggedNeighborsRegressor(device="cpu").fit(X, y)
    joblib.dump((model, X), tmp_path / "model.joblib")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.predict(X)
        loaded, mapped = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
        np.testing.assert_array_equal(loaded.predict(mapped), expected)


def test_device_may_be_torchs_own():
    X, y = problem()
    model = BaggedNeighborsRegressor(device=torch.device("cpu")).fit(X, y)
    found = clone(model).fit(X, y).predict(torch.from_numpy(X).requires_grad_())
    np.testing.assert_array_equal(model.predict(X), found)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), found)


def test_a_device_that_is_not_there():
    X, y = problem()
    for device in ("cuda:99", "abacus", "meta", "hpu"):
        with pytest.raises(ValueError, match=f"device='{device}' is not available"):
            BaggedNeighborsRegressor(device=device).fit(X, y)
    with pytest.raises(ValueError, match="The 'device' parameter"):
        BaggedNeighborsRegressor(device=0).fit(X, y)


def test_a_machine_without_the_device_answers_with_the_kernels():
    X, y = problem()
    model = BaggedNeighborsRegressor(device="cpu").fit(X, y)
    expected = BaggedNeighborsRegressor().fit(X, y).predict(X)
    model.device = "cuda:99"
    loaded = pickle.loads(pickle.dumps(model))
    with pytest.warns(UserWarning, match="The CPU kernels answer"):
        np.testing.assert_array_equal(loaded.predict(torch.from_numpy(X)), expected)
    # Once is enough.
    np.testing.assert_array_equal(loaded.predict(X), expected)
    again = pickle.loads(pickle.dumps(loaded))
    with pytest.warns(UserWarning, match="The CPU kernels answer"):
        np.testing.assert_array_equal(again.predict(X), expected)


class TestCuda:
    pytestmark = cuda

    @pytest.mark.parametrize("metric", METRICS)
    def test_rows_are_those_of_the_kernels(self, metric):
        rng = np.random.default_rng(0)
        for both in (rng.random((2200, 64)), rng.integers(0, 4, (2200, 6)) * 1.0):
            X, Q = both[:2000].astype(np.float32), both[2000:].astype(np.float32)
            expected = on_kernels(X, Q, 50, metric)[1]
            np.testing.assert_array_equal(on_device(X, Q, 50, metric, "cuda")[1], expected)

    def test_estimates(self):
        X, y = problem()
        model = BaggedNeighborsRegressor(device="cuda").fit(X, y)
        expected = BaggedNeighborsRegressor().fit(X, y).predict(X)
        np.testing.assert_allclose(model.predict(X), expected)
        np.testing.assert_allclose(model.predict(torch.from_numpy(X).cuda()), expected)
