"""The dummies; what they share with routers is in `tests/router_checks.py`."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification

from skroute.metrics import accuracy_cost_curve, mean_quality_scorer
from skroute.routing import DummyRouterClassifier
from tests.estimators import COSTS, members

X, Y = make_classification(120, n_features=4, n_informative=3, n_redundant=0, random_state=0)
ORACLE = DummyRouterClassifier(members(), strategy="oracle", costs=COSTS, budget=2.0, cv=2)


def test_an_oracle_takes_only_labels_that_fit_has_seen():
    oracle = clone(ORACLE).fit(X, Y)
    right = oracle.member_quality(X, Y)
    assert right.shape == (len(X), 2) and set(np.unique(right)) <= {0.0, 1.0}
    for unseen in (2, -1):
        with pytest.raises(ValueError, match="labels that fit has not seen: .*; known are"):
            oracle.predict_routed(X, y_true=np.where(np.arange(len(Y)) == 5, unseen, Y))


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
        ([("tree", "drop"), ("logreg", "drop")], "All of the estimators .*dropped; keep at least"),
        ([("tree", members()[0][1]), ("logreg", 3)], "'logreg' must have fit and predict, got 3"),
        ([("tree", None), ("logreg", members()[1][1])], "'tree' must have fit and predict, got No"),
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
        router = DummyRouterClassifier([*named, ("third", "drop")], costs=[1.0, 3.0], cv=2)
        assert "third" not in str(router.get_metadata_routing())
        weight = np.where(Y == 1, 9.0, 0.1)
        router = clone(router).fit(X, Y, sample_weight=weight)
    for name, member in members():
        member.fit(X, Y, sample_weight=weight)
        np.testing.assert_array_equal(
            router.named_estimators_[name].predict_proba(X), member.predict_proba(X)
        )
