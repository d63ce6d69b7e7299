"""The compiled parts of a prediction: against numpy, and the same in any batch."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.quality import QualityRegressor
from skroute.quality import _predict_kernels as kernels
from skroute.quality._corrections import corrected, finished, rounding_unit
from skroute.quality._trees import extra_trees
from tests.quality.test_trees import walk


@settings(deadline=None, max_examples=25)
@given(
    n=st.sampled_from([1, 7, 8, 9, 40, 1100]),
    n_trees=st.sampled_from([1, 7, 8, 9, 20]),
    d=st.integers(1, 5),
    k=st.integers(1, 3),
    leaf=st.sampled_from([1, 5, 100]),
    seed=st.integers(0, 1000),
)
def test_trees_are_walked_to_their_leaves(n, n_trees, d, k, leaf, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((60, d)), rng.standard_normal((60, k))
    trees = extra_trees(
        X, Y, n_trees=n_trees, min_leaf=leaf, n_candidates=d, seed=seed, most_rows=1000
    )
    new = rng.standard_normal((n, d)).astype(np.float32)
    found = trees.predict(new)
    np.testing.assert_allclose(
        found[:50], [walk(trees, x) for x in new[:50]], rtol=1e-9, atol=1e-12
    )
    # Bit for bit what a row gets by itself.
    some = rng.integers(n, size=5)
    np.testing.assert_array_equal(found[some], [trees.predict(new[[i]])[0] for i in some])


@pytest.mark.parametrize("d", [1, 3, 4, 7])
def test_exponents_are_those_of_the_definition(d):
    rng = np.random.default_rng(0)
    X, centres = rng.standard_normal((6, d)), rng.standard_normal((5, d))
    X, centres = X.astype(np.float32), centres.astype(np.float32)
    found = np.empty((6, 5), dtype=np.float32)
    kernels.exponents(X, np.ascontiguousarray(centres.T), np.float32(0.3), found)
    expected = -0.3 * ((X[:, None] - centres[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_two_scales(dtype):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((4, 3)) * [1, 1e3, 1e30]).astype(dtype)
    centre, spread, unit = np.array([0.1, 5, 2e29]), np.array([2, 1e-3, 1e8]), 1e4
    standard, plain = np.empty((2, *X.shape), dtype=np.float32)
    kernels.two_scales(X, centre, spread, unit, standard, plain)
    np.testing.assert_allclose(standard, np.clip((X - centre) / spread, -1e18, 1e18), rtol=1e-6)
    np.testing.assert_allclose(plain, np.clip(X / unit, -1e18, 1e18), rtol=1e-6)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), n_points=st.sampled_from([0, 2, 5]), ties=st.booleans())
def test_estimates_are_finished_as_in_fit(seed, n_points, ties):
    rng = np.random.default_rng(seed)
    deviation, mean = rng.standard_normal((20, 3)), rng.random(3)
    at = np.sort(rng.integers(0, 3, (3, n_points)) if ties else rng.random((3, n_points)), axis=1)
    at, add = at.astype(float), rng.standard_normal((3, n_points))
    low, high = np.sort(rng.random((2, 3)), axis=0)
    expected = mean + deviation.astype(np.float32)
    if n_points:
        expected = corrected(expected, np.stack([at, add], axis=1))
    expected = finished(expected, low, high)
    unit = rounding_unit(low, high)
    kernels.finish(deviation, mean, at, add, np.stack([low, high]), unit)
    np.testing.assert_allclose(deviation, expected, atol=1e-12)


def test_what_is_laid_out_is_made_again_and_not_saved():
    rng = np.random.default_rng(0)
    X, Q = rng.random((80, 3)), rng.random((80, 2))
    model = QualityRegressor().fit(X, Q)
    assert "_ready" not in model.__getstate__()
    expected = model.predict(X)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(X), expected)
    for n in (1, 2, 17):
        np.testing.assert_array_equal(model.predict(X[:n]), expected[:n])
