"""Risk over coverage against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from skroute.metrics import risk_coverage_curve, risk_coverage_scorer
from skroute.routing import BudgetRouter, CascadeRouter, OccamRouterClassifier


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.booleans())
def test_it_is_the_mean_loss_of_all_rows_above_each_threshold(seed, n, weighted):
    rng = np.random.default_rng(seed)
    loss, confidence = rng.uniform(size=n), rng.integers(0, 6, size=n) / 5
    weight = rng.integers(0, 3, size=n).astype(float) if weighted else np.ones(n)
    weight[0] = 1
    curve = risk_coverage_curve(loss, confidence, sample_weight=weight)
    for coverage, risk, threshold in zip(*curve[:3]):
        answered = confidence >= threshold
        assert coverage == pytest.approx(weight[answered].sum() / weight.sum())
        assert risk == pytest.approx(np.average(loss[answered], weights=weight[answered]))
    assert curve.coverage[-1] == 1
    assert (np.diff(curve.coverage) > 0).all() and (np.diff(curve.thresholds) < 0).all()
    repeated = np.repeat(np.arange(n), weight.astype(int))
    loss, confidence = loss[repeated], confidence[repeated]
    risks = [loss[confidence >= own].mean() for own in confidence]
    assert curve.area == pytest.approx(np.mean(risks))


def test_weights_that_are_negative_are_refused():
    with pytest.raises(ValueError, match="sample_weight must be finite and at least 0, got -1"):
        risk_coverage_curve([0, 1, 0], [0.9, 0.6, 0.2], sample_weight=[1, -1, 1])


def test_scorer_of_classifiers_of_routers_and_of_cascades_that_hand_over():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]
    router = OccamRouterClassifier(members, costs=[1, 2]).fit(X[:200], y[:200])
    proba = router.predict_proba(X[200:])
    for weight in (None, rng.integers(0, 4, 200)):
        ranked = proba.argmax(axis=1) != y[200:], proba.max(axis=1)
        by_hand = risk_coverage_curve(*ranked, sample_weight=weight).area
        found = risk_coverage_scorer(router, X[200:], y[200:], sample_weight=weight)
        assert found == pytest.approx(-by_hand)
    Q = (rng.uniform(size=(400, 2)) < 1 / (1 + np.exp(-X[:, [0, 0]]))).astype(float)
    logged = BudgetRouter(Ridge(), costs=[1, 2]).fit(X, Q)
    assert -1 < risk_coverage_scorer(logged, X, Q) < 0
    cascade = CascadeRouter(costs=[1, 2], abstain_cost=0.3).fit(None, Q, signals=X)
    quality = cascade.predict_quality(None, signals=X)
    route = cascade.route(None, signals=X)
    rows = np.flatnonzero(route < 2)
    assert 0 < len(rows) < 400
    area = risk_coverage_curve(1 - Q[rows, route[rows]], quality[rows]).area
    assert risk_coverage_scorer(cascade, None, Q, signals=X) == pytest.approx(-area)
    free = CascadeRouter(costs=[1, 2], abstain_cost=0).fit(None, Q, signals=X)
    if (free.route(None, signals=X) == 2).all():
        assert risk_coverage_scorer(free, None, Q, signals=X) == 0
