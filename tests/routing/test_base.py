"""What the base of routers does with members: folds, groups, classes and probabilities."""

from unittest.mock import patch

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.routing import (
    BudgetRouter,
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests.estimators import COMBINERS, ROUTERS
from tests.test_out_of_sample import OFFENCES, Spy, grouped, spied

COSTS = [1.0, 3.0]
N = 240
# Whose members, estimates and combinations are learned of folds.
ESTIMATING = [ROUTERS[0], COMBINERS[0], COMBINERS[2], BudgetRouter(costs=COSTS)]


@pytest.mark.parametrize("router", ESTIMATING, ids=lambda e: type(e).__name__)
def test_folds_make_the_estimates_out_of_sample_whatever_they_are(router):
    """A number, a splitter, and groups; lists and iterators: `tests/test_out_of_sample.py`."""
    X, y, groups = grouped()
    router = spied(router)
    if isinstance(router, BudgetRouter):
        y = np.column_stack([y == 0, y == 1]) + 0.0
    splitter = KFold(4) if isinstance(router, BudgetRouter) else StratifiedKFold(4)
    OFFENCES.clear()
    for cv in (np.int64(3), splitter):
        clone(router).set_params(cv=cv).fit(X + 1e-3 * np.arange(len(X))[:, np.newaxis], y)
    router.set_params(cv=GroupKFold(4))
    with sklearn.config_context(enable_metadata_routing=True):
        clone(router).fit(X, y, groups=groups)
    assert not OFFENCES
    # Without routing nothing is fitted, and the error says how groups are given.
    with patch.object(Spy, "_remember", side_effect=AssertionError("fitted")):
        with pytest.raises(ValueError, match="groups") as caught:
            router.fit(X, y)
        assert "enable_metadata_routing=True" in caught.value.__notes__[0]
        half = [(np.arange(len(X)), np.arange(len(X) // 2))]
        with pytest.raises(ValueError, match="test each row once, but row 60 is tested 0 times"):
            router.set_params(cv=half).fit(X, y)


class Reversed(ClassifierMixin, BaseEstimator):
    """A classifier whose classes_ are not sorted, and its probabilities with them."""

    def fit(self, X, y):
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_[::-1]
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)[:, ::-1]

    def predict(self, X):
        return self.inner_.predict(X)


def routers(members):
    params = {"costs": COSTS, "cv": 2}
    tree = {"quality_estimator": DecisionTreeRegressor(max_depth=4, random_state=0), **params}
    return [
        OccamRouterClassifier(members, quality="probability", **tree),
        DummyRouterClassifier(members, quality="probability", **params),
        DummyRouterClassifier(members, strategy="oracle", quality="probability", **params),
        FrugalMLClassifier(members, **params),
        FrugalMCTClassifier(members, **tree),
        SequentialRouterClassifier(members, n_prices=3, **tree),
    ]


@pytest.mark.parametrize("at", range(6))
def test_classes_may_be_unsorted(at):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 200)
    rows = rng.normal(size=(200, 2)) + y[:, np.newaxis]
    y = np.array(["ant", "bee", "hornet"])[y]
    tree = ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))
    ours = routers([tree, ("bayes", Reversed())])[at].fit(rows, y)
    twin = routers([tree, ("bayes", GaussianNB())])[at].fit(rows, y)
    if hasattr(ours, "mean_quality_"):
        np.testing.assert_allclose(ours.mean_quality_, twin.mean_quality_)
    budget = max(2.0, ours.min_budget_)
    for a, b in zip(ours.predict_routed(rows, budget), twin.predict_routed(rows, budget)):
        np.testing.assert_array_equal(a, b)
    assert ours.predict_proba(rows, budget).shape == (200, 3)


class Scores(GaussianNB):
    """A classifier whose predict_proba gives something else."""

    def __init__(self, kind="logits"):
        super().__init__()
        self.kind = kind

    def predict_proba(self, X):
        proba = super().predict_proba(X)
        return {
            "logits": lambda: np.log(proba + 1e-3),
            "sum": lambda: np.clip(2 * proba, 0, 1) ** 0.3,
            "missing": lambda: np.where(proba > 0.9, np.nan, proba),
            "float16": lambda: proba.astype(np.float16),
        }[self.kind]()


@pytest.mark.parametrize(
    "kind, at", [("sum", 0), ("missing", 0), *(("logits", at) for at in range(6))]
)
def test_what_is_no_probability_is_refused(kind, at):
    y = np.arange(N) % 3
    rows = np.random.default_rng(0).normal(size=(N, 2)) + 2 * y[:, np.newaxis]
    tree = ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))
    router = routers([tree, ("net", Scores(kind))])[at]
    with pytest.raises(ValueError, match="'net' must give probabilities between 0 and 1"):
        router.fit(rows, y)
    assert not hasattr(router, "choices_")
    fine = clone(router).set_params(net__kind="float16").fit(rows, y)
    # Also of a member that is fitted when it begins to give something else.
    fine.named_estimators_.net.kind = kind
    with pytest.raises(ValueError, match="softmax"):
        fine.predict_proba(rows, budget=max(3.0, fine.min_budget_))
        fine.predict_proba(rows)
