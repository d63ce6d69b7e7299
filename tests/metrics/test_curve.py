"""accuracy_cost_curve and what it rests on."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge
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
    sample_quality,
)
from skroute.metrics._curve import find_router
from skroute.routing import (
    BudgetRouter,
    DummyRouterClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
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
    stump, tree = DecisionTreeClassifier(max_depth=1), DecisionTreeClassifier(random_state=0)
    members = [("stump", Counting(stump)), ("tree", Counting(tree))]
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
        ([], "budgets must be a non-empty list of numbers (mean costs per sample), got []."),
        (2.0, "budgets must be a non-empty list of numbers (mean costs per sample), got 2.0."),
        ("12", "budgets must be a non-empty list of numbers (mean costs per sample), got '12'."),
        ([1, -1], "each of budgets must be a non-negative number (mean cost per sample)"),
    ],
)
def test_budgets(budgets, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        accuracy_cost_curve(RankRouter().fit(X, y), X, y, budgets)


@pytest.mark.parametrize("wrap", ["pipeline", "bare pipeline", "search", "both"])
def test_finds_the_router_inside(wrap):
    def flip(X):
        return np.column_stack([1 - X[:, 0] - 1 / len(X), X[:, 1]])

    router = RankRouter()
    if wrap == "bare pipeline":
        estimator = make_pipeline(router)
    elif wrap != "search":
        estimator = make_pipeline(FunctionTransformer(flip), router)
    else:
        estimator = router
    if wrap in ("search", "both"):
        prefix = "rankrouter__" if wrap == "both" else ""
        estimator = GridSearchCV(estimator, {f"{prefix}shift": [0.0]}, cv=2)
    estimator.fit(X, y)
    route = find_router(estimator, X)[0].route(find_router(estimator, X)[1], budget=2)
    flipped = wrap in ("pipeline", "both")
    assert_array_equal(route, (X[:, 0] < 0.5) if flipped else (X[:, 0] >= 0.5))
    assert_allclose(accuracy_cost_curve(estimator, X, y, [1, 3]).quality, [0.5, 1.0])


def test_not_cost_aware():
    with pytest.raises(TypeError, match=r"must be a fitted cost-aware estimator .* DummyClass"):
        accuracy_cost_curve(DummyClassifier().fit(X, y), X, y, [1])


class TestQualityOfRows:
    def test_label_sets_as_sklearn(self):
        state = np.random.RandomState(0)
        true, named = state.randint(2, size=(2, 50, 4))
        true[:3] = named[:3] = 0
        by_row = [
            jaccard_score(t, p, zero_division=1.0) if (t | p).any() else 1.0
            for t, p in zip(true, named)
        ]
        assert_allclose(sample_quality(true, named), by_row)

    def test_shapes_that_do_not_go_together(self):
        with pytest.raises(ValueError, match=r"y_true of shape \(3,\) and y_pred of shape"):
            sample_quality(np.zeros(3), np.zeros((3, 2)))


class TestRealRouters:
    """The estimators of the routing room: the curve is that of their own score."""

    def test_occam_and_baselines(self):
        problem = make_routing_problem(400, 2, n_features=2, random_state=0)
        X, y = problem.data, (problem.data.sum(axis=1) > 1).astype(int)
        members = [("stump", DecisionTreeClassifier(max_depth=1)), ("nb", GaussianNB())]
        router = OccamRouterClassifier(
            members, costs=[1, 3], quality_estimator=Ridge(), budget=1.5
        ).fit(X, y)
        budgets = [1, 1.5, 3]
        curve = accuracy_cost_curve(router, X, y, budgets)
        assert_allclose(curve.quality, [router.score(X, y, budget=b) for b in budgets])
        assert_allclose(curve.cost, [router.predict_cost(X, budget=b).mean() for b in budgets])
        assert curve.choices == ["stump", "nb"]
        oracle = DummyRouterClassifier(members, costs=[1, 3], strategy="oracle").fit(X, y)
        curve = accuracy_cost_curve(oracle, X, y, budgets, y_true=y)
        assert_allclose(curve.quality, [oracle.score(X, y, budget=b) for b in budgets])

    @pytest.mark.parametrize("per_row", [False, True])
    def test_budget_router(self, per_row):
        problem = make_routing_problem(400, 3, n_features=2, random_state=0)
        X, Q = problem.data, problem.quality
        if per_row:
            costs = problem.costs * np.linspace(0.5, 1.5, 400)[:, None]
            router = BudgetRouter(Ridge()).fit(X, Q, costs=costs)
            params = {"costs": costs}
        else:
            router = BudgetRouter(Ridge(), costs=problem.costs).fit(X, Q)
            params = {}
        budgets = [0.2, 0.5, 1.5]
        curve = accuracy_cost_curve(router, X, Q, budgets, **params)
        assert_allclose(curve.quality, [router.score(X, Q, budget=b, **params) for b in budgets])
        scorer = make_curve_scorer(cost_quality_auc, budgets)
        assert_allclose(scorer(router, X, Q, **params), cost_quality_auc(curve.cost, curve.quality))
        for budget, value in zip(budgets, curve.quality):
            own = make_budget_scorer(budget, scoring=None)
            assert_allclose(own(router, X, Q, **params), value)
            cost = make_budget_scorer(budget, scoring=mean_cost_scorer)
            assert_allclose(
                cost(router, X, Q, **params), router.predict_cost(X, budget=budget, **params).mean()
            )
        with pytest.raises(ValueError, match=r"for each of its choices_ \(there are 3\)"):
            accuracy_cost_curve(router, X, Q[:, :2], budgets, **params)


def test_quality_that_is_not_known_does_not_count():
    problem = make_routing_problem(300, n_models=2, n_features=2, random_state=0)
    X, Q = problem.data, problem.quality.astype(float)
    router = BudgetRouter(Ridge(), costs=problem.costs).fit(X[:200], Q[:200])
    holes = Q[200:].copy()
    holes[::4] = np.nan
    curve = accuracy_cost_curve(router, X[200:], holes, [0.5])
    route = router.route(X[200:], budget=0.5)
    known = np.flatnonzero(np.arange(100) % 4)
    assert_allclose(curve.quality, Q[200:][known, route[known]].mean())
    with pytest.raises(ValueError, match="not known, for every choice"):
        accuracy_cost_curve(router, X[200:], np.full((100, 2), np.nan), [0.5])
