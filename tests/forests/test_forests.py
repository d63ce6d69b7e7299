"""Walks through trees against the libraries' own answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.forests import leaf_sums, read_lightgbm

lgb = pytest.importorskip("lightgbm")


@settings(max_examples=15, deadline=None)
@given(
    n_outputs=st.integers(1, 4),
    n_rounds=st.integers(1, 8),
    missing=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_sums_of_leaves_are_the_scores_of_the_booster(n_outputs, n_rounds, missing, seed):
    """Of some rounds and of all, of a booster with an objective of its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 4)).round(1)
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    target = rng.normal(size=(120, n_outputs))
    params = {"objective": "none", "num_class": n_outputs, "verbose": -1, "num_threads": 1}
    booster = lgb.Booster(params | {"min_data_in_leaf": 3}, lgb.Dataset(X, target[:, 0]))
    for _ in range(n_rounds):

        def objective(scores, _):
            gradient = scores.reshape(120, n_outputs) - target
            # An output that is skipped has a tree without a split.
            gradient[:, rng.random(n_outputs) < 0.3] = 0.0
            flat = gradient.ravel(order="F")
            return flat, np.ones_like(flat)

        booster.update(fobj=objective)
    forest = read_lightgbm(booster, num_iteration=-1)
    assert (forest.n_outputs, forest.n_members) == (n_outputs, booster.current_iteration())
    queries = np.vstack([X, np.full((1, 4), np.nan), np.full((1, 4), np.inf)])
    for n in range(1, forest.n_members + 1):
        expected = booster.predict(queries, num_iteration=n, raw_score=True).reshape(-1, n_outputs)
        found = leaf_sums(forest, queries, last=n)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(leaf_sums(forest.taken(range(n)), queries), found)
    used = np.flatnonzero(booster.feature_importance())
    np.testing.assert_array_equal(forest.features_of(range(n_outputs)), used)
