"""The smallest feasible budget is kept, whatever the costs are."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.gating import AdaptGatingClassifier, BoostedGate, LinearGate
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)

MEMBERS = [
    ("bayes", GaussianNB()),
    ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
    ("near", KNeighborsClassifier(5)),
]
ESTIMATE = DecisionTreeRegressor(max_depth=3, random_state=0)
OWN_ESTIMATE = {"quality_estimator": ESTIMATE}


def problem(seed, n_rows=240):
    """Return rows whose label depends on two of four columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    y = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0).astype(int)
    return X, y


def drawn_costs(rng, n_costs):
    """Return costs in an odd order: equal, zero, far apart, or without any order."""
    kind = rng.integers(5)
    if kind == 0:
        return np.full(n_costs, rng.choice([0.0, 1.0, 1e-9, 1e9]))
    if kind == 1:
        return rng.permutation(np.r_[0.0, rng.random(n_costs - 1)])
    if kind == 2:
        return rng.permutation(np.r_[np.zeros(n_costs - 1), 1.0])
    if kind == 3:
        return 10.0 ** rng.uniform(-6, 6, n_costs)
    return rng.integers(0, 4, n_costs).astype(float)


def spent_at_the_least_budget(model, X, **call):
    """Return the least budget and the mean cost of rows at it."""
    budget = model.min_budget_
    return budget, model.predict_cost(X, budget=budget, **call).mean()


GATES = [
    (LinearGate(tol=1e-3), {}),
    (BoostedGate(n_estimators=10, max_iter=2), {}),
    (LinearGate(tol=1e-3), {"p_full": 1.0}),
    (BoostedGate(n_estimators=10, max_iter=2), {"p_full": 0.0}),
    (LinearGate(tol=1e-3), {"full_features": [0, 1]}),
]


@pytest.mark.parametrize("policy", ["online", "batch"])
@pytest.mark.parametrize("gate, params", GATES, ids=lambda part: repr(part)[:12])
def test_a_gate_keeps_its_least_budget_for_all_orders_of_costs(gate, params, policy):
    X, y = problem(0)
    rng = np.random.default_rng(1)
    full = DecisionTreeClassifier(max_depth=4, random_state=0)
    orders = [(0.0, 50.0, 1.0), (100.0, 1.0, 5.0), (0.0, 0.0, 0.0)]
    orders += [tuple(drawn_costs(rng, 3)) for _ in range(3)]
    for costs in orders:
        model = AdaptGatingClassifier(
            full,
            gate=gate,
            gamma=0.01,
            model_costs=dict(zip(("gate", "cheap", "full"), costs)),
            feature_costs=drawn_costs(rng, 4),
            policy=policy,
            cv=3,
            **params,
        ).fit(X[:160], y[:160])
        budget, spent = spent_at_the_least_budget(model, X)
        assert spent <= budget * (1 + 1e-9), costs
        if budget > 0:
            with pytest.raises(ValueError, match="the smallest feasible budget is"):
                model.predict(X, budget=0.99 * budget)


ROUTERS = [
    OccamRouterClassifier(MEMBERS, costs=[1, 1, 1], cv=2, **OWN_ESTIMATE),
    OccamRouterClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, embedding="tree", **OWN_ESTIMATE
    ),
    OccamRouterClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, abstain_cost=0.2, **OWN_ESTIMATE
    ),
    OccamRouterClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, policy="batch", **OWN_ESTIMATE
    ),
    DummyRouterClassifier(MEMBERS, costs=[1, 1, 1], cv=2),
    DummyRouterClassifier(MEMBERS, costs=[1, 1, 1], cv=2, strategy="random"),
    FrugalMLClassifier(MEMBERS, costs=[1, 1, 1], cv=2),
    FrugalMLClassifier(MEMBERS, costs=[1, 1, 1], cv=2, abstain_cost=0.2),
    FrugalMCTClassifier(MEMBERS, costs=[1, 1, 1], cv=2, **OWN_ESTIMATE),
    FrugalMCTClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, base="near", delta="auto", **OWN_ESTIMATE
    ),
    SequentialRouterClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, n_prices=3, **OWN_ESTIMATE
    ),
    SequentialRouterClassifier(
        MEMBERS, costs=[1, 1, 1], cv=2, n_prices=3, abstain_cost=0.2, **OWN_ESTIMATE
    ),
]


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: type(router).__name__)
def test_a_router_keeps_its_least_budget_for_all_orders_of_costs(router):
    X, y = problem(2)
    rng = np.random.default_rng(3)
    for _ in range(4):
        costs = drawn_costs(rng, 3)
        model = router.set_params(costs=costs).fit(X[:160], y[:160])
        budget, spent = spent_at_the_least_budget(model, X)
        assert spent <= budget * (1 + 1e-9), costs


@pytest.mark.parametrize(
    "router", [ROUTERS[0], ROUTERS[4], ROUTERS[6], ROUTERS[8], ROUTERS[10]]
)
def test_a_router_keeps_a_least_budget_of_measured_time(router):
    X, y = problem(4)
    model = router.set_params(costs="time").fit(X[:160], y[:160])
    budget, spent = spent_at_the_least_budget(model, X)
    assert spent <= budget * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_tables_keep_their_least_budget_for_all_orders_of_costs(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 3))
    quality = rng.random((200, 3))
    costs = drawn_costs(rng, 3)
    for router in (
        BudgetRouter(ESTIMATE, costs=costs, cv=2),
        BudgetRouter(ESTIMATE, costs=costs, cv=2, policy="batch", routing_cost=0.5),
        BudgetRouter(ESTIMATE, costs=costs, cv=2, abstain_cost=0.2),
        CascadeRouter(ESTIMATE, costs=costs, cv=2, n_prices=4),
    ):
        model = router.fit(X, quality)
        call = {}
        if isinstance(router, CascadeRouter):
            call = {"signals": None}
        budget, spent = spent_at_the_least_budget(model, X, **call)
        assert spent <= budget * (1 + 1e-9), costs


def test_least_costs_of_a_gate_that_nobody_needs():
    """The full model knows nothing: nobody is sent, and no gate is paid."""
    X, y = problem(5)
    model = AdaptGatingClassifier(
        LogisticRegression(C=1e-9),
        gate=LinearGate(tol=1e-3),
        model_costs={"gate": 100.0, "cheap": 1.0, "full": 0.0},
        cv=3,
    ).fit(X, y)
    budget, spent = spent_at_the_least_budget(model, X)
    assert spent <= budget * (1 + 1e-9)
