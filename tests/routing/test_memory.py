"""Routers with `memory` reuse fitted members if nothing that these depend on differs."""

import numpy as np
import pandas as pd
import pytest
from joblib import Memory
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

from skroute.quality import FrameEncoder
from skroute.routing import (
    DummyRouterClassifier,
    DummyRouterRegressor,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    SequentialRouterClassifier,
)

# Folds of the routers in these tests.
N_FOLDS = 3
# Fits of a member in one fit of a router: one on all rows, one for each fold.
N_FITS = 1 + N_FOLDS


class CountedFits(LogisticRegression):
    """A logistic regression that counts the fits of all its instances."""

    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        """Fit the model, and count the fit."""
        CountedFits.n_fits += 1
        return super().fit(X, y, sample_weight=sample_weight)


class CountedTree(DecisionTreeRegressor):
    """A tree that counts the fits of all its instances."""

    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        """Fit the model, and count the fit."""
        CountedTree.n_fits += 1
        return super().fit(X, y, sample_weight=sample_weight)


def rows_and_labels(n_rows=150):
    """Return rows of three numbers and labels that follow the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    return X, (X[:, 0] + 0.3 * rng.normal(size=n_rows) > 0).astype(int)


def new_fits(fit, counted=CountedFits):
    """Return how many fits a function without arguments adds."""
    before = counted.n_fits
    fit()
    return counted.n_fits - before


def occam(memory, **params):
    """Return a router over a counted member and another one."""
    members = [("counted", CountedFits()), ("bayes", GaussianNB())]
    defaults = {"costs": [1.0, 3.0], "budget": 2.0, "cv": N_FOLDS}
    defaults["quality_estimator"] = Ridge()
    return OccamRouterClassifier(members, memory=memory, **(defaults | params))


@pytest.mark.parametrize(
    "router_class",
    [
        DummyRouterClassifier,
        FrugalMCTClassifier,
        FrugalMLClassifier,
        OccamRouterClassifier,
        SequentialRouterClassifier,
    ],
)
def test_a_second_fit_fits_no_member_and_decides_alike(router_class, tmp_path):
    X, y = rows_and_labels()
    members = [("counted", CountedFits()), ("bayes", GaussianNB())]
    router = router_class(members, costs=[1.0, 3.0], budget=4.0, cv=N_FOLDS)
    expected = router.fit(X, y).predict_routed(X)
    router = clone(router).set_params(memory=str(tmp_path))
    assert new_fits(lambda: router.fit(X, y)) >= 1
    first = router.predict_routed(X)
    assert new_fits(lambda: router.set_params(budget=2.0).fit(X, y)) == 0
    router.set_params(budget=4.0).fit(X, y)
    second = router.predict_routed(X)
    for values, values_first, values_second in zip(expected, first, second):
        assert_array_equal(values_first, values)
        assert_array_equal(values_second, values)


@pytest.mark.parametrize("router_class", [OccamRouterRegressor, DummyRouterRegressor])
def test_members_of_regressors_are_reused(router_class, tmp_path):
    X, _ = rows_and_labels()
    members = [("counted", CountedTree(max_depth=2)), ("ridge", Ridge())]
    router = router_class(members, costs=[1.0, 3.0], budget=2.0, memory=str(tmp_path))
    assert new_fits(lambda: router.fit(X, X[:, 0]), CountedTree) >= 1
    assert new_fits(lambda: router.fit(X, X[:, 0]), CountedTree) == 0


def test_without_memory_each_fit_fits_all_members():
    X, y = rows_and_labels()
    router = occam(None)
    for _ in range(2):
        assert new_fits(lambda: router.fit(X, y)) == N_FITS


def test_a_search_over_budgets_fits_members_once_for_each_set_of_rows(tmp_path):
    X, y = rows_and_labels()
    grid = {"budget": [1.5, 2.0, 2.5], "reg_lambda": [0.0, 0.5]}
    expected = GridSearchCV(occam(None), grid, cv=2).fit(X, y)
    search = GridSearchCV(occam(Memory(tmp_path, verbose=0)), grid, cv=2)
    # Two folds of the search, and the fit of the best candidate on all rows.
    assert new_fits(lambda: search.fit(X, y)) == 3 * N_FITS
    assert_array_equal(
        search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


def test_the_quality_estimator_is_reused_while_its_rows_and_qualities_are_equal(
    tmp_path,
):
    X, y = rows_and_labels()
    router = occam(str(tmp_path), quality_estimator=CountedTree(max_depth=2))
    assert new_fits(lambda: router.fit(X, y), CountedTree) > 0
    router.set_params(budget=1.5)
    assert new_fits(lambda: router.fit(X, y), CountedTree) == 0
    router.set_params(quality_estimator__max_depth=3)
    assert new_fits(lambda: router.fit(X, y), CountedTree) > 0


@pytest.mark.parametrize(
    "change", ["row", "label", "parameter", "weight", "other weight", "folds"]
)
def test_what_a_member_depends_on_is_never_reused(change, tmp_path):
    X, y = rows_and_labels()
    weight = np.ones(len(y))
    weight[:9] = 2.0
    router = occam(str(tmp_path)).fit(X, y)
    occam(str(tmp_path)).fit(X, y, sample_weight=weight)
    params = {}
    if change == "row":
        X = X.copy()
        X[-1, 2] += 1e-9
    elif change == "label":
        y = y.copy()
        y[-1] = 1 - y[-1]
    elif change == "parameter":
        router.set_params(counted__C=0.5)
    elif change == "weight":
        params["sample_weight"] = weight[::-1]
    elif change == "other weight":
        params["sample_weight"] = 3.0 * weight
    else:
        router.set_params(cv=N_FOLDS + 1)
    n_fits = N_FITS + (change == "folds")
    assert new_fits(lambda: router.fit(X, y, **params)) == n_fits
    expected = clone(router).set_params(memory=None).fit(X, y, **params)
    for values, others in zip(router.predict_routed(X), expected.predict_routed(X)):
        assert_array_equal(values, others)


def test_other_groups_are_other_folds(tmp_path):
    X, y = rows_and_labels()
    router = occam(str(tmp_path), cv=GroupKFold(N_FOLDS))
    groups = np.arange(len(y)) % 10
    other_groups = np.arange(len(y)) % 11
    # Folds of groups are made before the fit: metadata routing is off here.
    for group_of_row in (groups, other_groups):
        router.set_params(cv=list(GroupKFold(N_FOLDS).split(X, y, group_of_row)))
        assert new_fits(lambda: router.fit(X, y)) == N_FITS
        assert new_fits(lambda: router.fit(X, y)) == 0


def test_frozen_members_are_the_models_of_the_user(tmp_path):
    X, y = rows_and_labels()
    model = LogisticRegression().fit(X, y)
    members = [("frozen", FrozenEstimator(model)), ("bayes", GaussianNB())]
    router = OccamRouterClassifier(
        members, costs=[1.0, 3.0], budget=2.0, memory=str(tmp_path)
    )
    for _ in range(2):
        assert router.fit(X, y).named_estimators_["frozen"].estimator is model


def test_rows_of_frames_with_texts_are_found_again(tmp_path):
    X, y = rows_and_labels()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["text"] = [f"number {number:.1f}" for number in X[:, 1]]
    members = [
        ("counted", make_pipeline(FrameEncoder(), CountedFits())),
        ("bayes", make_pipeline(FrameEncoder(), GaussianNB())),
    ]
    router = OccamRouterClassifier(
        members, costs=[1.0, 3.0], budget=2.0, cv=N_FOLDS, memory=str(tmp_path)
    )
    # As in a search: each candidate gets a new frame of the same rows.
    rows = np.arange(0, len(frame), 2)
    assert new_fits(lambda: router.fit(frame.iloc[rows], y[rows])) == N_FITS
    assert new_fits(lambda: router.fit(frame.iloc[rows], y[rows])) == 0


def test_models_from_the_cache_are_not_shared(tmp_path):
    X, y = rows_and_labels()
    first = occam(str(tmp_path)).fit(X, y)
    second = occam(str(tmp_path)).fit(X, y)
    second.named_estimators_["counted"].coef_[:] = 0.0
    third = occam(str(tmp_path)).fit(X, y)
    for router in (first, third):
        assert np.any(router.named_estimators_["counted"].coef_)


def test_memory_must_be_a_path_or_a_cache():
    X, y = rows_and_labels()
    with pytest.raises(ValueError, match="memory"):
        occam(3).fit(X, y)
