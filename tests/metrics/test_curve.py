"""accuracy_cost_curve, risk_coverage_curve, and the helpers of both."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import jaccard_score
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from skroute.datasets import make_routing_problem
from skroute.metrics import (
    accuracy_cost_curve,
    cost_quality_auc,
    make_budget_scorer,
    make_curve_scorer,
    mean_cost_scorer,
    risk_coverage_curve,
    risk_coverage_scorer,
    sample_quality,
)
from skroute.metrics._curve import find_router
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests.metrics._stub import RankRouter, problem
from tests.router_checks import Counting

X, y = problem()
BUDGETS = [1, 2, 3, None]


def test_numbers():
    curve = accuracy_cost_curve(RankRouter().fit(X, y), X, y, BUDGETS)
    assert_array_equal(curve.budget, [1, 2, 3, np.inf])
    assert_allclose(curve.quality, [0.5, 0.75, 1.0, 1.0])
    assert_allclose(curve.cost, [1, 2, 3, 3])
    assert_allclose(curve.route_share, [[1, 0], [0.5, 0.5], [0, 1], [0, 1]])
    assert curve.choices == ["cheap", "costly"]
    assert_allclose(curve.row_quality.mean(axis=0), curve.quality)
    assert_allclose(curve.row_cost.mean(axis=0), curve.cost)


@pytest.mark.parametrize("kind", [OccamRouterClassifier, FrugalMLClassifier])
def test_no_model_is_asked_twice_about_a_row(kind):
    X, y = make_classification(300, random_state=0)
    members = [
        ("stump", Counting(DecisionTreeClassifier(max_depth=1))),
        ("tree", Counting(DecisionTreeClassifier(random_state=0))),
    ]
    router = kind(members, costs=[1, 10]).fit(X[:150], y[:150])
    for member in router.estimators_:
        member.rows_.clear()
    accuracy_cost_curve(router, X[150:], y[150:], [1, 2, 4, 8, None])
    asked = [member.rows_ for member in router.estimators_]
    assert any(asked) and all(len(rows) == len(set(rows)) <= 150 for rows in asked)


def test_sample_weight_counts_rows():
    router = RankRouter().fit(X, y)
    weight = np.random.RandomState(0).randint(0, 4, size=len(X))
    weighted = accuracy_cost_curve(router, X, y, BUDGETS, sample_weight=weight)
    rows = np.repeat(np.arange(len(X)), weight)
    repeated = accuracy_cost_curve(router, X[rows], y[rows], BUDGETS)
    for field in ("quality", "cost", "route_share"):
        assert_allclose(getattr(weighted, field), getattr(repeated, field))


@pytest.mark.parametrize(
    "budgets, message",
    [
        (
            [],
            "budgets must be a non-empty list of numbers (mean costs per sample), got "
            "[].",
        ),
        (
            [1, -1],
            "each of budgets must be a non-negative number (mean cost per sample)",
        ),
    ],
)
def test_budgets(budgets, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        accuracy_cost_curve(RankRouter().fit(X, y), X, y, budgets)


TURNS = FunctionTransformer(
    lambda X: np.column_stack([1 - X[:, 0] - 1 / len(X), X[:, 1]])
)
TURNED = make_pipeline(TURNS, RankRouter())


@pytest.mark.parametrize(
    "estimator, turned",
    [
        (make_pipeline(RankRouter()), False),
        (TURNED, True),
        (GridSearchCV(RankRouter(), {"shift": [0.0]}, cv=2), False),
        (GridSearchCV(TURNED, {"rankrouter__shift": [0.0]}, cv=2), True),
    ],
)
def test_finds_the_router_inside(estimator, turned):
    router, rows, *_ = find_router(estimator.fit(X, y), X)
    expected = X[:, 0] < 0.5 if turned else X[:, 0] >= 0.5
    assert_array_equal(router.route(rows, budget=2), expected)
    assert_allclose(accuracy_cost_curve(estimator, X, y, [1, 3]).quality, [0.5, 1.0])


def test_not_cost_aware():
    with pytest.raises(
        TypeError, match=r"must be a fitted cost-aware estimator .* DummyClass"
    ):
        accuracy_cost_curve(DummyClassifier().fit(X, y), X, y, [1])


def test_label_sets_as_sklearn():
    state = np.random.RandomState(0)
    true, named = state.randint(2, size=(2, 50, 4))
    true[:3] = named[:3] = 0
    by_row = [
        jaccard_score(t, p, zero_division=1.0) if (t | p).any() else 1.0
        for t, p in zip(true, named)
    ]
    assert_allclose(sample_quality(true, named), by_row)
    with pytest.raises(ValueError, match=r"y_true of shape \(3,\) and y_pred of shape"):
        sample_quality(np.zeros(3), np.zeros((3, 2)))


@pytest.mark.parametrize("per_row", [False, True])
def test_the_curve_and_scorers_of_a_router_are_its_own_scores(per_row):
    problem = make_routing_problem(400, 3, n_features=2, random_state=0)
    X, Q, costs = problem.data, problem.quality, problem.costs
    if per_row:
        params = {"costs": costs * np.linspace(0.5, 1.5, 400)[:, None]}
        router = BudgetRouter(Ridge()).fit(X, Q, **params)
    else:
        params = {}
        router = BudgetRouter(Ridge(), costs=costs).fit(X, Q)
    budgets = [0.2, 0.5, 1.5]
    curve = accuracy_cost_curve(router, X, Q, budgets, **params)
    scorer = make_curve_scorer(cost_quality_auc, budgets)
    assert_allclose(
        scorer(router, X, Q, **params), cost_quality_auc(curve.cost, curve.quality)
    )
    for budget, quality, cost in zip(budgets, curve.quality, curve.cost):
        assert_allclose(quality, router.score(X, Q, budget=budget, **params))
        assert_allclose(cost, router.predict_cost(X, budget=budget, **params).mean())
        for scoring, value in ((None, quality), (mean_cost_scorer, cost)):
            budget_scorer = make_budget_scorer(budget, scoring=scoring)
            assert_allclose(budget_scorer(router, X, Q, **params), value)
    with pytest.raises(ValueError, match="with the quality of each of"):
        accuracy_cost_curve(router, X, Q[:, :2], budgets, **params)


def test_a_function_of_label_sets_is_given_truth_values_as_in_fit():
    X = np.random.default_rng(0).random((120, 2))
    Y = np.column_stack([X[:, 0] > 0.5, X.sum(axis=1) > 1]).astype(int)
    members = [
        ("shallow", DecisionTreeClassifier(max_depth=1)),
        ("deep", DecisionTreeClassifier()),
    ]
    router = SequentialRouterClassifier(
        members,
        costs=[1, 2],
        quality=lambda true, given: (~(true ^ given)).mean(axis=1),
        cv=2,
    ).fit(X, Y)
    curve = accuracy_cost_curve(router, X, Y, [2])
    row_quality = router.row_quality(X, Y, budget=2).quality
    assert_allclose(curve.row_quality[:, 0], row_quality)
    assert_allclose(row_quality, (router.predict(X, budget=2) == Y).mean(axis=1))


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
        assert risk == pytest.approx(
            np.average(loss[answered], weights=weight[answered])
        )
    assert curve.coverage[-1] == 1
    assert (np.diff(curve.coverage) > 0).all() and (np.diff(curve.thresholds) < 0).all()
    repeated = np.repeat(np.arange(n), weight.astype(int))
    loss, confidence = loss[repeated], confidence[repeated]
    risks = [loss[confidence >= threshold].mean() for threshold in confidence]
    assert curve.area == pytest.approx(np.mean(risks))


def test_weights_that_are_negative_are_refused():
    with pytest.raises(
        ValueError, match="sample_weight must be finite and at least 0, got -1"
    ):
        risk_coverage_curve([0, 1, 0], [0.9, 0.6, 0.2], sample_weight=[1, -1, 1])


def test_scorer_of_classifiers_of_routers_and_of_cascades_that_abstain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]
    router = OccamRouterClassifier(members, costs=[1, 2]).fit(X[:200], y[:200])
    proba = router.predict_proba(X[200:])
    for weight in (None, rng.integers(0, 4, 200)):
        ranked = proba.argmax(axis=1) != y[200:], proba.max(axis=1)
        by_hand = risk_coverage_curve(*ranked, sample_weight=weight).area
        score = risk_coverage_scorer(router, X[200:], y[200:], sample_weight=weight)
        assert score == pytest.approx(-by_hand)
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
