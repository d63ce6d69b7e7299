"""After fit: other prices, and models that are down or that a request may not use."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.quality import BaggedNeighborsRegressor
from skroute.routing import BudgetRouter, FrugalMCTClassifier, OccamRouterClassifier
from skroute.utils._row_hash import tie_draws
from tests.estimators import members
from tests.router_checks import Counting, problem

COSTS = {"small": 1.0, "middle": 3.0, "large": 8.0}
TREE = DecisionTreeRegressor(max_depth=3, random_state=0)


def log(n=400, seed=0, k=3):
    """Return rows, and right or wrong answers of up to four models."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    odds = np.column_stack([X[:, 0], 1 + 0.5 * X[:, 1], np.full(n, 2.0), 1.5 + X[:, 0]])
    return X, (rng.random((n, 4)) < 1 / (1 + np.exp(-odds))).astype(float)[:, :k]


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["fixed", "logged", "known", "learned"]),
    st.sampled_from(["online", "batch"]),
    st.lists(st.sampled_from(sorted(COSTS)), max_size=2, unique=True),
    st.floats(0.0, 1.0),
)
def test_without_a_choice_it_decides_as_one_fitted_without_it(
    seed, kind, policy, exclude, share
):
    """Estimates of a choice do not depend on the others here, so that the two are equal."""
    X, Q = log(120, seed)
    rng = np.random.default_rng(seed)
    names = list(COSTS)
    prices = list(COSTS.values())
    if kind not in ("fixed", "logged"):
        exclude = [f"choice{names.index(name)}" for name in exclude]
        names = [f"choice{k}" for k in range(3)]
    C = rng.uniform(0.5, 1.5, (120, 3)) * prices
    positions = [k for k, name in enumerate(names) if name not in exclude]

    def fit(columns):
        costs = {names[k]: prices[k] for k in columns}
        router = BudgetRouter(Ridge(), policy=policy, reg_lambda=0.1)
        if kind in ("fixed", "logged"):
            router.set_params(costs=costs)
        if kind == "learned":
            router.set_params(cost_estimator=LinearRegression())
        logged = None if kind == "fixed" else C[:, columns]
        return router.fit(X, Q[:, columns], costs=logged)

    router = fit([0, 1, 2])
    without = fit(positions)
    X_new, _ = log(80, seed + 1)
    call = {}
    call_without = {}
    if kind == "known":
        C_new = rng.uniform(0.5, 1.5, (80, 3)) * prices
        call["costs"] = C_new
        call_without["costs"] = C_new[:, positions]
    budgets = without.price_path_.budgets
    budget = budgets[0] + share * (budgets[-1] - budgets[0]) + 1.0
    routed = router.predict_routed(X_new, budget=budget, exclude=exclude, **call)
    expected = without.predict_routed(X_new, budget=budget, **call_without)
    np.testing.assert_array_equal(routed.route, np.array(positions)[expected.route])
    np.testing.assert_allclose(routed.cost, expected.cost)
    np.testing.assert_allclose(routed.expected_quality, expected.expected_quality)
    np.testing.assert_allclose(routed.cost, expected.cost)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_rows_make_only_choices_that_they_are_allowed(seed, limited):
    """Batch: the best assignment of the choices allowed, by brute force over a few rows."""
    X, Q = log(100, seed)
    router = BudgetRouter(Ridge(), costs=COSTS).fit(X, Q)
    rng, rows = np.random.default_rng(seed), np.arange(6)
    new, allowed = log(6, seed + 1)[0], rng.random((6, 3)) < 0.5
    allowed[rows, rng.integers(0, 3, 6)] = True
    allowed |= not limited
    limits = {"allowed": allowed} if limited else {}
    costs = np.array(list(COSTS.values()))
    least = np.where(allowed, costs, np.inf).min(axis=1).mean()
    budget = least + rng.uniform(0, 3)
    values = np.where(allowed, router.predict_quality(new), -np.inf)
    online = router.predict_routed(new, budget=budget, **limits)
    price = router.set_params(budget=budget).price_
    net = (
        values - price * costs if price < np.inf else np.where(allowed, -costs, -np.inf)
    )
    np.testing.assert_allclose(net[rows, online.route], net.max(axis=1))
    batch = router.set_params(policy="batch").predict_routed(new, **limits)
    for routed in (online, batch):
        assert allowed[rows, routed.route].all()
        np.testing.assert_array_equal(routed.cost, costs[routed.route])
    plans = np.stack(np.meshgrid(*[range(3)] * 6), axis=-1).reshape(-1, 6)
    # Held-out rows show no gain from what is bought below the price of an unlimited budget.
    floor = router.set_params(budget=None).price_
    net = values - floor * costs
    worth = net[rows, plans].mean(axis=1)
    worth[costs[plans].mean(axis=1) > budget * (1 + 1e-12)] = -np.inf
    assert net[rows, batch.route].mean() == pytest.approx(worth.max())
    assert batch.cost.mean() <= budget * (1 + 1e-12)
    best = router.route(new, budget=np.inf, **limits)
    np.testing.assert_array_equal(best, net.argmax(axis=1))
    with pytest.raises(ValueError, match="smallest feasible budget is"):
        router.predict(new, budget=least * 0.99, **limits)


def test_refusals_come_before_any_call():
    X, Q = log()
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(X, Q)
    allowed = np.ones((400, 3), dtype=bool)
    allowed[7] = False
    for call, message in [
        ({"exclude": ["big"]}, r"exclude names \['big'\], which are not among"),
        ({"exclude": "large"}, "exclude must be a list of names, got 'large'"),
        ({"exclude": list(COSTS)}, "leaves no choice"),
        ({"exclude": ["small", "middle"]}, "smallest feasible budget is 8"),
        ({"allowed": allowed}, "allowed leaves row 7 and 0 others no choice"),
        ({"allowed": allowed[:3]}, r"booleans of shape \(400, 3\)"),
        ({"allowed": allowed.astype(int)}, "must be booleans"),
        ({"request_id": [1, 2]}, "request_id must have one entry for each of 400 rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            router.predict(X, **call)
    X, y, X_test, _ = problem()
    counting = [(name, Counting(member)) for name, member in members()]
    occam = OccamRouterClassifier(
        counting, costs=[1, 3], budget=4, embedding="tree"
    ).fit(X, y)
    for member in occam.estimators_:
        member.rows_.clear()
    for call in (
        {"exclude": ["tree"]},
        {"exclude": ["tree", "logreg"]},
        {"budget": 0.5},
    ):
        with pytest.raises(ValueError, match="tree|smallest feasible"):
            occam.predict(X_test, **call)
    assert not any(member.rows_ for member in occam.estimators_)
    assert (occam.route(X_test, exclude=["logreg"]) == 0).all()


def test_a_member_that_is_down_is_not_called():
    X, y, X_test, _ = problem()
    models = [*members(), ("deep", DecisionTreeClassifier(random_state=0))]
    models = [
        (name, FrozenEstimator(Counting(model).fit(X, y))) for name, model in models
    ]
    X, y, _, _ = problem(seed=1)
    for kind in (OccamRouterClassifier, FrugalMCTClassifier):
        router = kind(models, costs=[1, 2, 5], budget=6, quality_estimator=TREE)
        router.fit(X, y)
        for down, member in models:
            member.estimator.rows_.clear()
            routed = router.predict_routed(X_test, exclude=[down])
            assert not member.estimator.rows_
            assert down not in " ".join(np.array(router.choices_)[routed.route]).split()
    based_on_tree = clone(router).set_params(base="tree").fit(X, y)
    with pytest.raises(ValueError, match="leaves no base: base='tree'"):
        based_on_tree.predict(X_test, exclude=["tree"])
    with pytest.raises(ValueError, match="exclude names"):
        router.predict(X_test, exclude=["cnn"])


def test_new_prices_of_frugalmct_are_those_of_a_new_fit():
    X, y, X_test, _ = problem()
    router = FrugalMCTClassifier(
        members(), costs=[1.0, 3.0], budget=3.0, quality_estimator=TREE
    )
    router.fit(X, y)
    for costs in ([1.0, 8.0], [4.0, 1.0], [2.0, 6.0]):
        budget = min(costs) + 1.5
        router.set_params(costs=costs, budget=budget)
        again = clone(router).fit(X, y)
        np.testing.assert_array_equal(router.route(X_test), again.route(X_test))
        np.testing.assert_array_equal(
            router.predict_cost(X_test), again.predict_cost(X_test)
        )
        assert (router.base_, router.min_budget_) == (again.base_, again.min_budget_)
        assert router.validation_cost_ == pytest.approx(again.validation_cost_)
    with pytest.raises(ValueError, match="was set after fit"):
        router.set_params(costs="time").predict(X_test)


def test_equal_requests_one_by_one_are_mixed_by_their_ids():
    rng = np.random.default_rng(0)
    Q = (rng.random((500, 2)) < [0.5, 0.8]).astype(float)
    router = BudgetRouter(Ridge(), costs=[1, 5], budget=3.0).fit(np.ones((500, 1)), Q)
    alone = [router.route([[1.0]], request_id=[i])[0] for i in range(400)]
    assert 0.4 < np.mean(alone) < 0.6
    together = router.route(np.ones((400, 1)), request_id=np.arange(400))
    np.testing.assert_array_equal(alone, together)
    assert len({router.route([[1.0]])[0] for _ in range(20)}) == 1
    # Neighbouring whole numbers are different requests.
    draws = []
    for number in range(200):
        draw = tie_draws(np.ones((1, 2)), [2**60 + number])
        draws.append(draw(np.array([0]))[0])
    assert len(set(draws)) == 200
    assert abs(np.mean(draws) - 0.5) < 0.1


@settings(max_examples=8, deadline=None)
@given(st.permutations(sorted(COSTS)))
def test_frames_of_limits_and_costs_are_read_by_name(order):
    """The mapping of costs names the choices. `tests/test_labels.py` has frames of Q."""
    X, Q = log(150)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0, cv=2).fit(X, Q)
    mask = np.random.default_rng(0).random((150, 3)) < 0.5
    mask[:, 0] |= ~mask.any(axis=1)
    allowed = pd.DataFrame(mask, columns=list(COSTS))
    expected = router.route(X, allowed=mask)
    assert mask[np.arange(150), expected].all()
    route = router.route(X, allowed=allowed[list(order)])
    np.testing.assert_array_equal(route, expected)
    row_costs = np.outer(1 + np.abs(X[:, 0]), list(COSTS.values()))
    logged = pd.DataFrame(row_costs, columns=list(COSTS))
    permuted = clone(router).fit(X, Q, costs=logged[list(order)])
    in_order = clone(router).fit(X, Q, costs=logged)
    np.testing.assert_array_equal(permuted.route(X), in_order.route(X))
    for wrong in (
        allowed.rename(columns={"small": "tiny"}),
        allowed[["small", "large"]],
    ):
        with pytest.raises(
            ValueError, match=r"allowed must have the columns \['small'"
        ):
            router.predict(X, allowed=wrong)


@pytest.mark.parametrize("kind", ["fixed", "logged", "learned"])
def test_a_batch_that_may_use_only_what_is_too_expensive_is_refused(kind):
    X, Q = log(200)
    logged = np.outer(1 + 0.1 * np.abs(X[:, 0]), list(COSTS.values()))
    priced = {"cost_estimator": Ridge()} if kind == "learned" else {"costs": COSTS}
    router = BudgetRouter(Ridge(), budget=3.0, policy="batch", cv=2, **priced)
    router.fit(X, Q, costs=None if kind == "fixed" else logged)
    large = np.tile([False, False, True], (50, 1))
    with pytest.raises(ValueError, match=r"budget=3\.0 (does not pay|is below)"):
        router.predict(X[:50], allowed=large)
    small = np.tile([True, False, True], (50, 1))
    assert router.predict_routed(X[:50], allowed=small).cost.mean() < 3.3


@pytest.mark.slow
def test_equal_rows_have_no_estimate_alone():
    """The neighbours of a row are its ten copies, whose mean outcome is noise."""
    errors = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.random((30, 2)), 10, axis=0)
        Q = (rng.random((300, 2)) < 0.5).astype(float)
        router = BudgetRouter(
            BaggedNeighborsRegressor(), costs=[1, 3], budget=2, cv=3
        ).fit(X, Q)
        routed = router.predict_routed(rng.random((500, 2)))
        # The quality of every choice is 0.5 on average.
        errors.append(routed.expected_quality.mean() - 0.5)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(12) + 0.015
