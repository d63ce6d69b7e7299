"""What the base of routers does with members: folds, groups, classes and probabilities; dummies."""

from unittest.mock import patch

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.metrics import accuracy_cost_curve, mean_quality_scorer
from skroute.routing import (
    BudgetRouter,
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests.estimators import COMBINERS, ORACLE, ROUTERS, members
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
        clone(router).set_params(cv=cv).fit(
            X + 1e-3 * np.arange(len(X))[:, np.newaxis], y
        )
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
        with pytest.raises(
            ValueError, match="test each row once, but row 60 is tested 0 times"
        ):
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
    tree = {
        "quality_estimator": DecisionTreeRegressor(max_depth=4, random_state=0),
        **params,
    }
    return [
        OccamRouterClassifier(members, quality="probability", **tree),
        DummyRouterClassifier(members, quality="probability", **params),
        DummyRouterClassifier(
            members, strategy="oracle", quality="probability", **params
        ),
        FrugalMLClassifier(members, **params),
        FrugalMCTClassifier(members, **tree),
        SequentialRouterClassifier(members, n_prices=3, **tree),
    ]


def told(router, y):
    """What a call of a router needs beside the rows."""
    return {"y_true": y} if getattr(router, "strategy", None) == "oracle" else {}


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
    call = {"budget": max(2.0, ours.min_budget_), **told(ours, y)}
    for a, b in zip(
        ours.predict_routed(rows, **call), twin.predict_routed(rows, **call)
    ):
        np.testing.assert_array_equal(a, b)
    assert ours.predict_proba(rows, **call).shape == (200, 3)


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
    with pytest.raises(
        ValueError, match="'net' must give probabilities between 0 and 1"
    ):
        router.fit(rows, y)
    assert not hasattr(router, "choices_")
    fine = clone(router).set_params(net__kind="float16").fit(rows, y)
    # Also of a member that is fitted when it begins to give something else.
    fine.named_estimators_.net.kind = kind
    with pytest.raises(ValueError, match="softmax"):
        fine.predict_proba(rows, budget=max(3.0, fine.min_budget_), **told(fine, y))
        fine.predict_proba(rows, **told(fine, y))


# Dummies.
X, Y = make_classification(
    120, n_features=4, n_informative=3, n_redundant=0, random_state=0
)


def test_an_oracle_takes_only_labels_that_fit_has_seen():
    oracle = clone(ORACLE).fit(X, Y)
    right = oracle.member_quality(X, Y)
    assert right.shape == (len(X), 2) and set(np.unique(right)) <= {0.0, 1.0}
    for unseen in (2, -1):
        with pytest.raises(
            ValueError, match="labels that fit has not seen: .*; known are"
        ):
            oracle.predict_routed(X, y_true=np.where(np.arange(len(Y)) == 5, unseen, Y))


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_routed", "route"]
)
def test_an_oracle_without_the_answers_is_refused(method):
    """It answered as the single best member, so that a baseline passed for the best possible."""
    oracle = clone(ORACLE).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"y_true is None, .* Give them: predict\(X, y_true=y\)"
    ):
        getattr(oracle, method)(X)
    single = clone(ORACLE).set_params(strategy="single_best").fit(X, Y)
    assert cross_val_score(ORACLE, X, Y, cv=2).mean() > single.score(X, Y) - 0.1
    assert (
        GridSearchCV(ORACLE, {"budget": [2.0, 3.0]}, cv=2).fit(X, Y).best_score_ > 0.8
    )


@pytest.mark.parametrize("quality", ["accuracy", "balanced_accuracy"])
def test_score_curve_and_scorer_give_the_oracle_the_answers(quality):
    oracle = clone(ORACLE).set_params(quality=quality).fit(X, Y)
    best = oracle.row_quality(X, Y).quality.mean()
    assert best > oracle.score(X, Y, budget=1.0)
    curve = accuracy_cost_curve(oracle, X, Y, [2.0])
    assert mean_quality_scorer(oracle, X, Y) == pytest.approx(best) == curve.quality[0]


@pytest.mark.parametrize(
    "estimators, message",
    [
        (
            [("tree", "drop"), ("logreg", "drop")],
            "All of the estimators .*dropped; keep at least",
        ),
        (
            [("tree", members()[0][1]), ("logreg", 3)],
            "'logreg' must have fit and predict, got 3",
        ),
        (
            [("tree", None), ("logreg", members()[1][1])],
            "'tree' must have fit and predict, got No",
        ),
    ],
)
def test_members_that_are_none(estimators, message):
    router = DummyRouterClassifier(estimators, costs=COSTS)
    with pytest.raises(ValueError, match=message):
        router.fit(X, Y)
    assert not hasattr(router, "choices_")


def test_a_dropped_member_receives_no_metadata():
    with sklearn.config_context(enable_metadata_routing=True):
        named = [(n, m.set_fit_request(sample_weight=True)) for n, m in members()]
        router = DummyRouterClassifier(
            [*named, ("third", "drop")], costs=[1.0, 3.0], cv=2
        )
        assert "third" not in str(router.get_metadata_routing())
        weight = np.where(Y == 1, 9.0, 0.1)
        router = clone(router).fit(X, Y, sample_weight=weight)
    for name, member in members():
        member.fit(X, Y, sample_weight=weight)
        np.testing.assert_array_equal(
            router.named_estimators_[name].predict_proba(X), member.predict_proba(X)
        )
