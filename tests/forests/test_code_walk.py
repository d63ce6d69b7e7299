"""Trees of any size on binned rows: the sums of the reference, to the last bit."""

import pickle

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skroute.forests import FastForest, find_reader, leaf_sums
from skroute.forests._code_walk import FEWEST_TREES, coded_trees
from tests.early_exit.reference import member_scores_reference


def draw(rng, n, d, dtype, missing):
    """Return random rows on a grid, with missing values and zeros if `missing`."""
    X = rng.normal(size=(n, d)).round(rng.randint(1, 4)).astype(dtype)
    if missing:
        X[rng.rand(n, d) < 0.1] = np.nan
        X[rng.rand(n, d) < 0.1] = 0
    return X


def drawn(kind, rng, seed):
    """Return a forest of deep trees, its number of features, and `missing`."""
    n, d = 600, rng.randint(1, 9)
    missing = kind != "extra"
    X = draw(rng, n, d, np.float64, missing)
    y = rng.randint(0, rng.randint(2, 5), n)
    if kind == "light":
        model = lgb.LGBMClassifier(
            n_estimators=20,
            num_leaves=150,
            min_child_samples=1,
            zero_as_missing=bool(seed % 2),
            verbose=-1,
            n_jobs=1,
            random_state=seed,
        )
    elif kind == "extra":
        model = ExtraTreesClassifier(20, random_state=seed)
    elif kind == "numbers":
        model, y = RandomForestRegressor(20, random_state=seed), rng.rand(n)
    else:
        model = RandomForestClassifier(20, random_state=seed)
    return find_reader(model).read(model.fit(X, y)), d, missing


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["light", "forest", "extra", "numbers"])
def test_sums_of_the_reference(kind, seed):
    rng = np.random.RandomState(seed)
    forest, d, missing = drawn(kind, rng, seed)
    assert forest.bits is None
    for n in (48, 300, 2600):
        X = draw(rng, n, d, forest.read_rule.dtype, missing)
        # As compiled code adds: one member after the other.
        expected = np.zeros((n, forest.n_outputs))
        for scores in member_scores_reference(forest, X):
            expected += scores
        np.testing.assert_array_equal(leaf_sums(forest, X), expected)
    assert forest.coded is not None
    some = leaf_sums(forest, X, outputs=[forest.n_outputs - 1], first=2)
    expected = np.zeros(n)
    for scores in member_scores_reference(forest, X)[2:]:
        expected += scores[:, -1]
    np.testing.assert_array_equal(some[:, 0], expected)
    assert "coded" not in pickle.loads(pickle.dumps(forest)).__dict__


def test_few_trees_and_categories_are_walked_as_before():
    rng = np.random.RandomState(0)
    X = draw(rng, 900, 4, np.float64, True)
    y = rng.randint(0, 2, 900)
    few = RandomForestClassifier(FEWEST_TREES - 1, random_state=0).fit(X, y)
    fast = FastForest.from_ensemble(few, X)
    np.testing.assert_array_equal(fast.predict(X), few.predict(X))
    assert "coded" not in vars(fast.forest_)
    X[:, 0] = rng.randint(0, 40, 900)
    cats = lgb.LGBMClassifier(
        n_estimators=20,
        min_child_samples=1,
        num_leaves=150,
        cat_smooth=0,
        verbose=-1,
        n_jobs=1,
        random_state=0,
    )
    cats.fit(X, y, categorical_feature=[0])
    forest = find_reader(cats).read(cats)
    assert coded_trees(forest.trees, forest.read_rule.dtype) is None
    expected = cats.predict(X, raw_score=True)
    np.testing.assert_array_equal(
        leaf_sums(forest, X)[:, 0] + forest.offset[0], expected
    )
