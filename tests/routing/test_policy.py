"""The policy beside its definitions, row by row, on drawn tables full of ties."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from skroute.assignment import Rule, assignment_path
from skroute.ledgers import BudgetExhaustedError
from skroute.routing import BudgetRouter, PortablePolicy, export_policy
from skroute.routing.parts._policy import Policy, choose_one
from skroute.utils._statistics import standard_error
from tests.assignment.test_assignment import brute_force

seeds = st.integers(0, 10_000)


def draw_policy(rng, n=24, m=3):
    """Tables of few different numbers; some rows are copies, alike within a fold."""
    per_row, realised, weighted, often = rng.random(4) < 0.5
    part = np.arange(n) % 3
    kind = rng.integers(-1, 2, n) if often else None
    planned = rng.integers(0, 4, (n, m) if per_row else m) / 4
    estimate = rng.integers(0, 5, (n, m)) / 4
    for rows in [
        np.flatnonzero((part == p) & (kind == k)) for p in range(3) for k in range(2)
    ]:
        estimate[rows] = estimate[rows[:1]]
        if per_row:
            planned[rows] = planned[rows[:1]]
    by_fold = None
    planned_by_fold = None
    if rng.random() < 0.5:
        by_fold = draw_by_fold(rng, estimate, part, 5)
        if per_row:
            planned_by_fold = draw_by_fold(rng, planned, part, 4)
    return Policy(
        None,
        estimate,
        rng.integers(0, 5, (n, m)) / 4,
        rng.integers(0, 3, (n, m)) / 2,
        planned,
        part,
        rng.integers(0, 3, m) / 8,
        reg_lambda=rng.integers(0, 2),
        deciding_cost=rng.integers(0, 2) / 4,
        margin=rng.integers(0, 2) / 8,
        least_prices=(0.0, 0.3) if rng.random() < 0.5 else (0.2, 0.0),
        realised=rng.integers(0, 6, (n, m)) / 4 if realised else None,
        weight=rng.integers(1, 4, n).astype(float) if weighted else None,
        kind=kind,
        by_fold=by_fold,
        planned_by_fold=planned_by_fold,
    )


def draw_by_fold(rng, table, part, n_values):
    """Draw a table of all rows for each fold, in which the rows of the fold have their own."""
    tables = rng.integers(0, n_values, (3, *table.shape)) / 4
    for number in range(3):
        tables[number, part == number] = table[part == number]
    return tables


def decided(values, costs, rule):
    """For each row the cheapest and the dearest of the choices that are best at a price."""
    found = []
    for value, cost in zip(values, np.broadcast_to(costs, values.shape)):
        if rule.price == np.inf:
            best = np.flatnonzero(cost == cost.min())
            best = best[value[best] == value[best].max()]
        else:
            net = value - rule.price * cost
            best = np.flatnonzero(net >= net.max() - 1e-9)
        low, high = (
            best[(cost[best] == end).argmax()]
            for end in (min(cost[best]), max(cost[best]))
        )
        found.append((low, high if rule.share else low, rule.share * (high != low)))
    low, high, share = (np.array(part) for part in zip(*found))
    return low.astype(int), high.astype(int), share


def averaged(table, choices):
    low, high, share = choices
    rows = np.arange(len(low))
    return (1 - share) * table[rows, low] + share * table[rows, high]


def price_floors(policy, judges):
    """The smallest prices: no smaller one gains beyond noise on the rows that judge."""
    values = policy.estimate - policy.reg_lambda * policy.sigma
    planned, paid = (
        np.broadcast_to(table, values.shape) for table in (policy.planned, policy.paid)
    )
    weight = np.ones(len(values)) if policy.weight is None else policy.weight
    path = policy.path
    prices = [path.prices[0] * (1 + 1e-6)]
    for budget in np.linspace(path.budgets[0], path.budgets[-1], 33):
        prices.append(path.prices[np.flatnonzero(path.budgets <= budget)[-1]])
    prices = sorted(set(prices), reverse=True)
    floors = []
    for least in policy.least_prices:
        net, missing = [], []
        for price in prices:
            choices = decided(values, planned, Rule(price, 0.0))
            net.append(
                (averaged(policy.quality, choices) - least * averaged(paid, choices))[
                    judges
                ]
            )
            missing.append(averaged(policy.estimate - policy.quality, choices)[judges])
        means = [np.average(one, weights=weight[judges]) for one in net]
        best = int(np.argmax(np.round(means, 9)))
        for price, mean, one, error in zip(prices, means, net, missing):
            noise = standard_error(net[best] - one, weight[judges], policy.fold[judges])
            last = one is net[best]
            # Where cost is money the best is taken.
            if least and not last:
                continue
            if not last and means[best] - mean > 0.75 * noise:
                continue
            # Where the last price gains as much as was estimated, it is taken.
            short = missing[-1] - error
            unsure = 2 * standard_error(short, weight[judges], policy.fold[judges])
            honest = least == 0 and np.average(short, weights=weight[judges]) <= unsure
            if honest and not last:
                continue
            floors.append(max(prices[-1] if honest else price, least))
            break
    return floors


def rule_at(policy, budget, path, judges=slice(None)):
    """The price of a budget on a path, and never less than the smallest price."""
    least = price_floors(policy, judges)[int(budget == np.inf)]
    if budget == np.inf:
        return Rule(least, 0.0)
    cheapest = max(policy.path.budgets[0], path.budgets[0])
    rule = path.rule(
        max((1 - policy.margin) * (budget - policy.deciding_cost), cheapest)
    )
    return rule if rule.price >= least else Rule(least, 0.0)


def budgets_of(policy, rng):
    low, high = policy.path.budgets[[0, -1]] + policy.deciding_cost
    return [
        float(one) for one in (low, low + rng.random() * (high - low), high + 1, np.inf)
    ]


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_validation_is_by_the_rows_of_other_folds(seed):
    rng = np.random.default_rng(seed)
    policy = draw_policy(rng)
    values = policy.estimate - policy.reg_lambda * policy.sigma
    full = np.broadcast_to(policy.planned, values.shape)
    paid = np.broadcast_to(policy.paid, values.shape)
    weight = np.ones(len(values)) if policy.weight is None else policy.weight
    for budget in budgets_of(policy, rng):
        found = policy.validate(budget)
        quality, cost = np.empty((2, len(values)))
        for p in range(3):
            rows, others = (
                np.flatnonzero(policy.fold == p),
                np.flatnonzero(policy.fold != p),
            )
            seen, costs = values.copy(), full.copy()
            if policy.by_fold is not None:
                seen = policy.by_fold[p] - policy.reg_lambda * policy.sigma
            if policy.planned_by_fold is not None:
                costs = policy.planned_by_fold[p].copy()
            for j in others if policy.kind is not None else ():
                copies = rows[policy.kind[rows] == policy.kind[j]]
                if policy.kind[j] >= 0 and len(copies):
                    seen[j], costs[j] = values[copies[0]], full[copies[0]]
            realised = None if policy.realised is None else paid[others]
            path = assignment_path(
                seen[others], costs[others], realised, weight[others]
            )
            choices = decided(
                values[rows], full[rows], rule_at(policy, budget, path, others)
            )
            quality[rows] = averaged(policy.quality[rows], choices)
            cost[rows] = averaged(paid[rows], choices) + policy.deciding_cost
        np.testing.assert_allclose(found.quality, quality)
        np.testing.assert_allclose(found.cost, cost)
        means = policy.validated(budget)
        np.testing.assert_allclose(
            [means.quality, means.cost],
            np.average([quality, cost], axis=1, weights=weight),
        )


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_corrections_are_shrunk_means_over_the_rows_that_make_a_choice(seed):
    rng = np.random.default_rng(seed)
    policy = draw_policy(rng)
    shape = policy.quality.shape
    values = policy.as_new - policy.reg_lambda * policy.sigma
    planned, paid = (
        np.broadcast_to(table, shape) for table in (policy.planned, policy.paid)
    )
    weight = np.ones(shape[0]) if policy.weight is None else policy.weight
    for budget in budgets_of(policy, rng):
        low, high, share = decided(
            values, planned, rule_at(policy, budget, policy.path)
        )
        made = np.zeros(shape)
        np.add.at(made, (np.arange(shape[0]), low), weight * (1 - share))
        np.add.at(made, (np.arange(shape[0]), high), weight * share)
        error = made * (policy.quality - policy.as_new)
        beyond = (error.sum(0) + 20 * error.sum() / made.sum()) / (made.sum(0) + 20)
        plan, cost = (made * planned).sum(0), (made * paid).sum(0)
        ratio = cost.sum() / plan.sum() if plan.sum() else 1.0
        each = 20 * plan / np.maximum(made.sum(0), 1)
        factor = [
            (c + ratio * e) / (p + e) if p else ratio
            for c, p, e in zip(cost, plan, each)
        ]
        np.testing.assert_allclose(policy.correction(budget)[0], beyond, atol=1e-12)
        np.testing.assert_allclose(policy.correction(budget)[1], factor)


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_rows_of_a_call_are_decided_at_the_price_or_together(seed):
    rng = np.random.default_rng(seed)
    policy = draw_policy(rng)
    estimates = rng.integers(0, 5, (5, 3)) / 4
    values = estimates - policy.reg_lambda * policy.sigma
    costs = rng.integers(0, 4, (5, 3)) / 4 if policy.has_row_costs else policy.planned
    full, rows, uniform = np.broadcast_to(costs, (5, 3)), np.arange(5), rng.random(5)
    estimated = policy.realised is not None
    for budget in budgets_of(policy, rng):
        draws = {"draw": lambda tied: uniform[tied]}
        plan = policy.decide(estimates, costs, budget, **draws)
        low, high, share = decided(values, costs, rule_at(policy, budget, policy.path))
        route = np.where(uniform < share, high, low)
        np.testing.assert_array_equal(full[rows, plan.route], full[rows, route])
        np.testing.assert_allclose(values[rows, plan.route], values[rows, route])
        quoted = full[rows, plan.route] + policy.deciding_cost
        np.testing.assert_allclose(plan.quoted_cost, quoted)
        beyond, factor = policy.correction(budget)
        expected = full[rows, plan.route] * (factor[plan.route] if estimated else 1)
        np.testing.assert_allclose(
            plan.quality, estimates[rows, plan.route] + beyond[plan.route]
        )
        np.testing.assert_allclose(plan.cost, expected + policy.deciding_cost)
        cheapest = full.min(axis=1).mean()
        if budget == np.inf or budget - policy.deciding_cost < cheapest:
            continue
        told = policy.decide(
            estimates, costs, budget, policy="batch", costs_given=True, **draws
        )
        net = values - price_floors(policy, slice(None))[0] * full
        best = brute_force(net, full, budget - policy.deciding_cost)
        assert net[rows, told.route].mean() == pytest.approx(best, abs=1e-9)
        np.testing.assert_allclose(told.cost, told.quoted_cost)


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_one_row_and_some_choices(seed):
    rng = np.random.default_rng(seed)
    policy = draw_policy(rng)
    values, costs = rng.integers(0, 5, 3) / 4, rng.integers(0, 4, 3) / 4
    price = rng.choice([0.0, 0.5, 1.0, 0.37, np.inf])
    (low,), _, _ = decided(values[np.newaxis], costs, Rule(price, 0.0))
    assert choose_one(list(values), list(costs), price, range(3)) == low
    kept = np.array([0, 2])
    some = policy.restricted(kept).restricted(np.array([1]))
    for field in fields(Policy):
        whole, part = getattr(policy, field.name), getattr(some, field.name)
        if field.name in ("estimate", "as_new", "quality", "planned", "sigma"):
            np.testing.assert_array_equal(part, whole[..., [2]])
        elif (
            field.name in ("realised", "by_fold", "planned_by_fold")
            and whole is not None
        ):
            np.testing.assert_array_equal(part, whole[..., [2]])
        elif field.name not in ("_cache", "columns"):
            assert part is whole
    assert (
        list(some.choice_positions) == [2] and policy.restricted(np.arange(3)) is policy
    )


UNITS = [1e-12, 1e-6, 2.0**-13, 1.0, 2.0**20, 1e6, 1e12]


@given(
    seed=seeds,
    quality_unit=st.sampled_from(UNITS),
    cost_unit=st.sampled_from(UNITS),
    per_row=st.booleans(),
    reg_lambda=st.sampled_from([0.0, 1.0]),
)
@settings(max_examples=15, deadline=None)
def test_a_router_decides_alike_in_any_unit_of_quality_and_cost(
    seed, quality_unit, cost_unit, per_row, reg_lambda
):
    """Dollars, micro-dollars: the same routes, budgets and streams."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 2))
    quality = rng.integers(0, 2, (90, 3)) * 0.5 + X[:, :1] * [0.0, 0.2, -0.1]
    costs = rng.random((90, 3)) * [1, 3, 9] if per_row else np.array([1.0, 3.0, 9.0])
    budget = float(rng.uniform(1.5, 6))

    def decisions(quality_unit, cost_unit):
        own_costs = costs * cost_unit
        router = BudgetRouter(
            LinearRegression(),
            costs=None if per_row else own_costs,
            budget=budget * cost_unit,
            reg_lambda=reg_lambda,
        )
        if per_row:
            router.fit(X, quality * quality_unit, costs=own_costs)
            routes = [
                router.route(X[:40], costs=own_costs[:40], budget=budget * cost_unit)
            ]
        else:
            router.fit(X, quality * quality_unit)
            routes = [router.route(X[:40])]
            policy = PortablePolicy(export_policy(router))
            estimates = router.predict_quality(X[:40])
            routes.append(policy.decide(estimates, budget * cost_unit))
        stream = router.stream(40 * budget * cost_unit, 40)
        taken = []
        for row in range(40):
            called = {"costs": own_costs[row]} if per_row else {}
            try:
                ticket = stream.route(X[row : row + 1], **called)
            except BudgetExhaustedError:
                # What the last rows cost is not known before: nothing may be left for them.
                taken.append("exhausted")
                continue
            stream.commit(ticket)
            taken.append(ticket.choice)
        target = router.mean_quality_.mean() / quality_unit
        smallest = router.smallest_budget(target * quality_unit).budget / cost_unit
        return [*routes, taken], smallest

    expected, expected_budget = decisions(1.0, 1.0)
    found, found_budget = decisions(quality_unit, cost_unit)
    for route, expected_route in zip(found, expected):
        np.testing.assert_array_equal(route, expected_route)
    assert found_budget == pytest.approx(expected_budget, rel=1e-6, nan_ok=True)
