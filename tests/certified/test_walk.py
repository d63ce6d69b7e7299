"""Certifying calls no model twice: a path over stored answers, the same certificate."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.certified import CertifiedRouter, _router
from skroute.early_exit import QWYCEnsemble
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests.certified.toy import ASKED, QUIET, Counted, note

pytestmark = [
    *QUIET,
    pytest.mark.filterwarnings("ignore:alpha=0.1 is a share of all rows"),
]


class CountedRegressor(DecisionTreeRegressor):
    """An estimate of quality that reads each row once: texts are long."""

    def predict(self, X, check_input=True):
        note("estimator", X)
        return super().predict(X, check_input)


X, Y = make_classification(
    360, 6, n_informative=4, n_classes=3, flip_y=0.1, random_state=0
)
COSTS = {"a": 1.0, "b": 3.0, "c": 10.0}
N_FIT = 160
QUICK = {
    "quality_estimator": DecisionTreeRegressor(max_depth=3, random_state=0),
    "cv": 2,
}


def members():
    return [
        ("a", Counted(GaussianNB(), "a")),
        ("b", Counted(DecisionTreeClassifier(max_depth=4, random_state=0), "b")),
        ("c", Counted(LogisticRegression(), "c")),
    ]


def occam(**options):
    if "embedding" not in options:
        options["quality_estimator"] = CountedRegressor(max_depth=3, random_state=0)
    return OccamRouterClassifier(members(), costs=COSTS, **options)


ROUTERS = {
    "occam": lambda: occam(),
    "occam with an embedder": lambda: occam(embedding="a"),
    "occam that abstains": lambda: occam(abstain_cost=0.4),
    "occam of probabilities": lambda: occam(quality="brier"),
    "FrugalML": lambda: FrugalMLClassifier(members(), costs=COSTS, cv=2),
    "FrugalMCT": lambda: FrugalMCTClassifier(members(), costs=COSTS, **QUICK),
    "sequential": lambda: SequentialRouterClassifier(
        members(), costs=COSTS, n_prices=4, **QUICK
    ),
    "early exit": lambda: QWYCEnsemble(
        VotingClassifier(members(), voting="soft"), alpha=0.1, random_state=0
    ),
    "gate": lambda: AdaptGatingClassifier(
        Counted(DecisionTreeClassifier(max_depth=6, random_state=0), "full"),
        gate=BoostedGate(n_estimators=5),
        gamma=0.01,
    ),
}
FITTED = {}


def fitted(name):
    if name not in FITTED:
        FITTED[name] = ROUTERS[name]().fit(X[:N_FIT], Y[:N_FIT])
    return FITTED[name]


def certified(name, y=Y, **options):
    options = {"fallback": "safe", "n_points": 4, "random_state": 0, **options}
    router = CertifiedRouter(FrozenEstimator(fitted(name)), **options)
    ASKED.clear()
    return router.fit(X[N_FIT:], y[N_FIT:])


def at_most_once():
    return all(len(set(rows)) == len(rows) for rows in ASKED.values())


@pytest.mark.parametrize("name", ROUTERS)
def test_each_member_is_asked_once_about_a_row(name):
    certificate = certified(name, max_loss=0.3).certificate_
    assert ASKED and at_most_once()
    if name not in ("gate", "early exit"):
        # The best single choice is a reference, which is asked about every row.
        assert set(certificate.calls.values()) == {certificate.n_rows}
        assert len(certificate.calls) == 3
    assert json.loads(certificate.to_json())["calls"] == certificate.calls
    if name == "FrugalMCT":
        frozen = FrozenEstimator(fitted(name))
        made = CertifiedRouter(frozen, max_loss=0.9, reference="c", budget=99)
        ASKED.clear()
        made.certify_batch(X[N_FIT:])
        # Ten rows more set the scale of the budgets.
        assert max(map(len, ASKED.values())) <= 210


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_certificate_is_that_of_a_pass_for_each_point(data):
    name = data.draw(st.sampled_from(sorted(ROUTERS)))
    options = {
        "max_loss": data.draw(st.sampled_from([0.1, 0.3, None])),
        "budget": data.draw(st.sampled_from([None, 30.0])),
        "groups": data.draw(st.sampled_from([None, "class"])),
        "reference": data.draw(st.sampled_from(["best", "full"])),
    }
    if name != "occam of probabilities" and data.draw(st.booleans()):
        options |= {"loss": lambda y, y_pred: 1.0 * (y != y_pred), "loss_range": 1.0}
    if options["max_loss"] is None and options["budget"] is None:
        options["max_loss"] = 0.2

    def certificate_and_points():
        try:
            router = certified(name, **options)
        except ValueError as error:
            return [str(error)]
        return [str(router.certificate_), *router.operating_points_[:-1]]

    cached = certificate_and_points()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_router, "with_cache", lambda estimator: estimator)
        uncached = certificate_and_points()
    for value, expected in zip(cached, uncached, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_rows_are_read_once_by_what_estimates():
    is_right = np.column_stack([X[:, 1] > 0, X[:, 2] > -1, np.ones(len(X))])
    quality = is_right.astype(float)
    reader = CountedRegressor(max_depth=3, random_state=0)
    router = BudgetRouter(reader, costs=[1.0, 3.0, 10.0], cost_estimator=None)
    router.fit(X[:N_FIT], quality[:N_FIT])
    ASKED.clear()
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.3, random_state=0)
    made.fit(X[N_FIT:], quality[N_FIT:])
    assert ASKED
    assert at_most_once()
    assert made.certificate_.calls == {}


def test_the_log_of_a_cascade_costs_nothing():
    rng = np.random.default_rng(0)
    sure = np.column_stack([rng.random(360), np.ones(360)])
    is_right = np.column_stack([rng.random(360) < sure[:, 0], rng.random(360) < 0.95])
    quality = is_right.astype(float)
    router = CascadeRouter(costs=[1, 10], n_prices=8, cv=2).fit(
        X[:N_FIT], quality[:N_FIT], signals=sure[:N_FIT]
    )
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.2, n_points=8, random_state=0
    )
    made.fit(X[N_FIT:], quality[N_FIT:], signals=sure[N_FIT:])
    assert made.certificate_.calls == {} and made.certificate_.promised
    assert made.predict_cost(X, signals=sure).mean() < 10


def test_certifying_leaves_the_estimator_as_it_was():
    router = fitted("occam")
    before = set(vars(router))
    certified("occam", max_loss=0.3)
    assert set(vars(router)) == before
    ASKED.clear()
    router.predict(X[N_FIT:])
    router.predict(X[N_FIT:])
    assert not at_most_once()


def test_rows_that_abstain_are_in_the_certificate_and_not_in_the_score():
    router = certified("occam that abstains", max_loss=0.1)
    certificate = router.certificate_
    path = fitted("occam that abstains")
    routed = path.predict_routed(X[N_FIT:], budget=certificate.operating_budget)
    share = np.mean([path.choices_[k] == "abstain" for k in routed.route])
    assert 0 < share < 1
    # A few of these rows are not evidence: they set the scale of the budgets.
    assert certificate.abstained_share == pytest.approx(share, abs=0.03)
    words = f"and {certificate.abstained_share:.0%} of the rows abstained"
    assert words in str(certificate)
    assert certified("occam", max_loss=0.1).certificate_.abstained_share is None
    assert router.abstain_quality_ == path.abstain_quality_
    routed = router.predict_routed(X)
    rows = np.array([label not in (-1, "abstain") for label in routed.y_pred])
    assert 0 < rows.sum() < len(rows)
    right = routed.y_pred[rows].astype(Y.dtype) == Y[rows]
    assert router.score(X, Y) == pytest.approx(right.mean())
    weight = np.arange(len(X)) + 1.0
    expected = np.average(right, weights=weight[rows])
    assert router.score(X, Y, sample_weight=weight) == pytest.approx(expected)
    # A reference may abstain as well: the loss is then neither that of a right answer
    # nor 1.
    assert certified("occam", max_loss=0.3, reference=path).certificate_.promised
