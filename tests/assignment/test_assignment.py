"""Plans and paths against brute force, HiGHS, cvxpy, and optimality of the LP."""

import itertools
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from skroute.assignment import (
    _exact,
    assignment_path,
    choose_at_price,
    solve_assignment,
)
from skroute.assignment._problem import check_values_and_costs, problem_of, total_cost
from skroute.distributed import solve_in_passes

OCCAM_COSTS = np.array([0.15, 0.22, 0.29, 0.52, 0.53, 0.98, 1.0])


def random_problem(seed, n, m, *, per_row, degenerate):
    """Return values, costs and a feasible budget. Ties are many if `degenerate`."""
    rng = np.random.default_rng(seed)
    costs_shape = (n, m) if per_row else m
    if degenerate:
        values = rng.integers(0, 6, (n, m)) / 5
        costs = rng.integers(0, 4, costs_shape).astype(float)
    else:
        values = rng.random((n, m))
        costs = rng.random(costs_shape)
    row_costs = np.broadcast_to(costs, (n, m))
    low = row_costs.min(axis=1).mean()
    high = row_costs.max(axis=1).mean()
    return values, costs, low + rng.random() * (high - low)


def brute_force(values, costs, budget, objective="mean"):
    """Return the best objective of all plans within the budget."""
    n, m = values.shape
    full = np.broadcast_to(costs, (n, m))
    rows = np.arange(n)
    best = -np.inf
    for plan in itertools.product(range(m), repeat=n):
        if full[rows, plan].mean() <= budget * (1 + 1e-12) + 1e-12:
            taken = values[rows, plan]
            value = taken.mean() if objective == "mean" else taken.min()
            best = max(best, value)
    return best


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 5),
    m=st.integers(1, 4),
    per_row=st.booleans(),
    degenerate=st.booleans(),
)
def test_plans_against_brute_force(seed, n, m, per_row, degenerate):
    values, costs, budget = random_problem(
        seed, n, m, per_row=per_row, degenerate=degenerate
    )
    exact = solve_assignment(values, costs, budget, solver="exact")
    greedy = solve_assignment(values, costs, budget, solver="greedy")
    max_min = solve_assignment(values, costs, budget, objective="min")
    for plan in (exact, greedy, max_min):
        assert plan.spent <= budget * (1 + 1e-12) + 1e-12
    best = brute_force(values, costs, budget)
    assert exact.objective == pytest.approx(best, abs=1e-9)
    assert exact.upper_bound >= best - 1e-9
    assert exact.status == "optimal"
    assert greedy.objective <= best + 1e-9 <= greedy.upper_bound + 2e-9
    # Within one increment of the optimum.
    largest_increment = np.ptp(values, axis=1).max()
    assert greedy.upper_bound - greedy.objective <= largest_increment / n + 1e-9
    assert max_min.objective == brute_force(values, costs, budget, "min")
    assert max_min.gap == 0


@settings(max_examples=16, deadline=None)
@given(seed=st.integers(0, 10_000), per_row=st.booleans(), degenerate=st.booleans())
def test_exact_equals_highs(seed, per_row, degenerate):
    values, costs, budget = random_problem(
        seed, 200, 5, per_row=per_row, degenerate=degenerate
    )
    exact = solve_assignment(values, costs, budget, solver="exact")
    highs = solve_assignment(values, costs, budget, solver="highs")
    assert exact.objective == pytest.approx(highs.objective, rel=1e-9)
    assert highs.status == exact.status == "optimal"
    assert np.isnan(highs.price)


def test_subset_sum_is_closed_by_the_search():
    # Values equal costs: all losses are 0, and the gap is the slack.
    costs = np.random.default_rng(0).random((40, 4))
    exact = solve_assignment(costs, costs, 0.5, solver="auto", tol=1e-6)
    assert 0.5 - 1e-6 <= exact.objective <= 0.5
    assert exact.status == "optimal"


def test_highs_meets_the_cap_exactly():
    # HiGHS meets a budget up to its tolerance: its first plan may exceed it.
    costs = np.random.default_rng(0).random((10, 3))
    for budget in [0.5, 0.6]:
        highs = solve_assignment(costs, costs, budget, solver="highs")
        assert highs.spent <= budget * (1 + 1e-12)
        exact = solve_assignment(costs, costs, budget, solver="exact")
        assert exact.objective == pytest.approx(highs.objective, abs=1e-8)


def test_a_core_too_hard_for_the_search_goes_to_highs(monkeypatch):
    values, costs, budget = random_problem(3, 200, 5, per_row=True, degenerate=False)
    expected = solve_assignment(values, costs, budget, solver="highs")
    monkeypatch.setattr(_exact, "_MAX_STATES", 4)
    exact = solve_assignment(values, costs, budget, solver="exact")
    assert exact.objective == pytest.approx(expected.objective, rel=1e-9)
    assert exact.status == "optimal"
    auto = solve_assignment(values, costs, budget, solver="auto")
    assert auto.status == "feasible"
    assert auto.objective <= exact.objective <= auto.upper_bound + 1e-12


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), per_row=st.booleans(), degenerate=st.booleans())
def test_path_is_the_linear_relaxation(seed, per_row, degenerate):
    n, m = 12, 4
    values, costs, budget = random_problem(
        seed, n, m, per_row=per_row, degenerate=degenerate
    )
    path = assignment_path(values, costs)
    full = np.broadcast_to(costs, (n, m))
    lp = linprog(
        -values.ravel(),
        A_ub=full.reshape(1, -1),
        b_ub=[budget * n],
        A_eq=np.kron(np.eye(n), np.ones(m)),
        b_eq=np.ones(n),
    )
    assert path.objective(budget) == pytest.approx(-lp.fun / n, abs=1e-9)
    greedy = solve_assignment(values, costs, budget, solver="greedy", tol=0)
    price = path.price(budget)
    assert price == np.inf or price == pytest.approx(greedy.price)
    expected_bound = max(-lp.fun / n, greedy.objective)
    assert greedy.upper_bound == pytest.approx(expected_bound, abs=1e-9)
    # No single change that can be paid gains anything.
    rows = np.arange(n)
    gain = values - values[rows, greedy.choices][:, np.newaxis]
    extra = full - full[rows, greedy.choices][:, np.newaxis]
    assert not ((gain > 1e-9) & (extra < n * (budget - greedy.spent) - 1e-9)).any()
    assert (np.diff(path.budgets) > 0).all() and (np.diff(path.prices) < 0).all()
    # Optimality of the dual price: L(p) equals the primal value (strong duality).
    if 0 < price < np.inf:
        dual = (values - price * full).max(axis=1).mean() + price * budget
        assert dual == pytest.approx(path.objective(budget), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), per_row=st.booleans(), degenerate=st.booleans())
def test_the_price_meets_the_budget_row_by_row(seed, per_row, degenerate):
    values, costs, budget = random_problem(
        seed, 200, 5, per_row=per_row, degenerate=degenerate
    )
    price = assignment_path(values, costs).price(budget)
    choices = choose_at_price(values, costs, price)
    full = np.broadcast_to(costs, values.shape)
    rows = np.arange(len(values))
    assert full[rows, choices].mean() <= budget * (1 + 1e-12)
    score = values - price * full
    best = score.max(axis=1)
    np.testing.assert_allclose(score[rows, choices], best, atol=1e-7)
    # Ties go to the cheaper choice: no choice that is as good costs less.
    tied = np.where(score >= best[:, None] - 1e-12, full, np.inf).min(axis=1)
    assert (full[rows, choices] <= tied + 1e-7).all()
    # A row is decided alone.
    costs_alone = costs[7:8] if per_row else costs
    assert choose_at_price(values[7:8], costs_alone, price) == choices[7]


@pytest.mark.parametrize("per_row", [False, True])
def test_a_price_chooses_by_definition(per_row):
    """Walk each row's points by cost and keep the best score so far."""
    values, costs, _ = random_problem(2, 400, 6, per_row=per_row, degenerate=False)
    for price in [0.0, 0.1, 0.5, 2.0]:
        expected = []
        row_costs = np.broadcast_to(costs, values.shape)
        for value, cost in zip(values, row_costs, strict=True):
            order = np.lexsort((-value, cost))
            best = order[0]
            for i in order[1:]:
                needed = price * (cost[i] - cost[best]) * (1 + 1e-9) + 1e-15
                if value[i] - value[best] > needed:
                    best = i
            expected.append(best)
        np.testing.assert_array_equal(choose_at_price(values, costs, price), expected)


@pytest.mark.parametrize("solver", ["auto", "greedy", "exact", "highs"])
def test_small_and_degenerate_problems(solver):
    two = [[0.3, 0.8], [0.9, 0.1]]
    for values, costs, budget, expected in (
        (np.ones((4, 1)), [2.0], 2.0, [0, 0, 0, 0]),
        (two, [0, 0], 0, [1, 0]),
        (two, [1, 1], 1, [1, 0]),
        (two, [5, 9], None, [1, 0]),
    ):
        plan = solve_assignment(values, costs, budget, solver=solver)
        assert plan.choices.tolist() == expected and plan.gap == 0


def test_the_cheapest_budget_is_feasible_to_the_last_bit():
    n = 100_003
    values = np.random.default_rng(0).random((n, 3))
    costs = np.array([0.1, 0.3, 0.7])
    for solver in ["greedy", "exact"]:
        plan = solve_assignment(values, costs, 0.1, solver=solver)
        assert (plan.choices == 0).all() and plan.price > 0
    path = assignment_path(values, costs)
    assert path.price(0.1) == np.inf
    assert (choose_at_price(values, costs, np.inf) == 0).all()
    assert path.objective(0.1) == pytest.approx(values[:, 0].mean())


@pytest.mark.parametrize(
    ("values", "costs", "budget", "message"),
    [
        ([[1.0, 2.0]], [1, 2], 0.5, "the smallest feasible budget is 1"),
        ([[1.0, np.nan]], [1, 2], 1, "Input values contains NaN"),
        (
            [[-1.5e308, 0.0]],
            [1, 2],
            2,
            "whose sum over the 1 rows is finite, got -1.5e+308",
        ),
        ([[1.0, 2.0]], [1, -2], 1, "costs must not be negative, got -2.0"),
        ([[1.0, 2.0]], [1, 2, 3], 1, "costs must have shape (2,) to be shared"),
        ([[1.0, 2.0]] * 3, np.ones((2, 2)), 1, "(3, 2) with one cost per row"),
        ([[1.0, 2.0]], [1, 2], -1, "The 'budget' parameter"),
        (np.empty((0, 2)), [1, 2], 1, "0 sample(s)"),
    ],
)
def test_bad_input_says_what_and_what_is_allowed(values, costs, budget, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        solve_assignment(values, costs, budget)


def test_bad_price_and_bad_options(monkeypatch):
    with pytest.raises(ValueError, match="price must be a number"):
        choose_at_price([[1.0]], [1.0], np.nan)
    with pytest.raises(ValueError, match="solver_options="):
        solve_assignment([[1.0]], [1.0], 1, solver_options={"threads": 1})
    with pytest.raises(ValueError, match="HiGHS does not take"):
        solve_assignment(
            [[1.0]], [1.0], 1, solver="highs", solver_options={"no_such": 1}
        )
    with pytest.raises(ValueError, match="smallest feasible budget"):
        assignment_path([[1.0, 2.0]], [1, 2]).price(0.5)
    with pytest.raises(RuntimeError, match="HiGHS ended without a plan"):
        solve_assignment(
            np.random.default_rng(0).random((500, 9)),
            OCCAM_COSTS.tolist() + [0.3, 0.4],
            0.4,
            solver="highs",
            solver_options={"time_limit": 0.0},
        )
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=re.escape("skroute-ml[cvxpy]")):
        solve_assignment([[1.0]], [1.0], None, solver="cvxpy")


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("offset", [0.0, -0.37, 1000.0])
def test_value_grid_finds_the_step_in_any_unit_and_rejects_noise(unit, offset):
    rng = np.random.default_rng(0)
    multiples = rng.integers(0, 41, (100, 7)) / 40
    grid = _exact.value_grid(unit * (multiples + offset))
    assert grid.step == pytest.approx(unit / 40)
    assert grid.error < 1e-8 * unit
    noisy = unit * (rng.random((100, 7)) + offset)
    assert _exact.value_grid(noisy) is None
    # Tie-breakers are larger than rounding: two plans may differ by less than a step.
    with_tie_breakers = unit * (multiples + 1e-5 * rng.random((100, 7)) + offset)
    grid = _exact.value_grid(with_tie_breakers)
    assert grid is None or grid.error > 1e-6 * unit


def test_a_plan_of_highs_above_the_budget_is_asked_for_again(monkeypatch):
    """HiGHS meets constraints up to a tolerance, and a budget is a hard cap."""
    values = np.random.default_rng(5).random((40, 7))
    problem = problem_of(*check_values_and_costs(values, OCCAM_COSTS), 0.4)
    excess = [problem.slack_for_rounding + 0.05]

    def spent_more_than_it_seems(problem, choices):
        return total_cost(problem, choices) + (excess.pop() if excess else 0.0)

    expected = _exact.solve_highs(problem, 1e-9).choices
    room = problem.total - total_cost(problem, expected)
    assert room < 0.05
    monkeypatch.setattr(_exact, "total_cost", spent_more_than_it_seems)
    choices, bound = _exact.solve_highs(problem, 1e-9)
    assert not excess
    # The first choice is the cheapest one of all rows.
    gains = values - values[:, :1]
    best_gain = gains[np.arange(40), expected].sum()
    # The plan is that of a smaller budget, the bound that of the whole budget.
    assert gains[np.arange(40), choices].sum() < best_gain <= bound + 1e-9
    assert total_cost(problem, choices) <= problem.total


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), degenerate=st.booleans())
def test_plans_of_cvxpy_against_brute_force(seed, degenerate):
    """The bound holds also for a solver that stops at a gap."""
    pytest.importorskip("cvxpy")
    values, costs, budget = random_problem(
        seed, 4, 3, per_row=False, degenerate=degenerate
    )
    best = brute_force(values, costs, budget)
    loose = {"solver": "SCIPY", "scipy_options": {"mip_rel_gap": 0.9}}
    for options in (None, {"solver": "HIGHS"}, loose):
        plan = solve_assignment(
            values, costs, budget, solver="cvxpy", solver_options=options
        )
        assert plan.upper_bound >= best - 1e-9
        assert plan.objective == pytest.approx(best, rel=1e-6) or options is loose
    free = solve_assignment(values, costs, None, solver="cvxpy")
    assert free.objective == pytest.approx(values.max(axis=1).mean(), rel=1e-6)


# Units --------------------------------------------------------------------------------

UNITS = [2.0**k for k in (-40, -7, 0, 13, 40)] + [
    10.0**k for k in (-12, -9, -6, -3, 3, 6, 9, 12)
]


def small_problem(seed, kind):
    """Return a problem of six rows with values that may mislead a tolerance."""
    rng = np.random.default_rng(seed)
    shape = (6, 3)
    values = {
        "hundredths": rng.random(shape).round(2),
        "numbers": rng.random(shape),
        "mixed signs": rng.normal(size=shape).round(2),
        "losses": -rng.random(shape).round(3),
        "tie-breakers": rng.integers(0, 2, shape) + rng.random(shape) * 4e-5,
        "a large offset": rng.random(shape).round(2) + 1e4,
        "a large negative offset": rng.random(shape).round(2) - 1e4,
        "one hopeless choice": np.where(
            rng.random(shape) < 0.2, -1e6, rng.random(shape)
        ),
    }[kind]
    costs = rng.random(shape).round(2) + 0.01
    if rng.random() < 0.3:
        costs += 100.0
    cheapest = costs.min(axis=1).mean()
    budget = cheapest + rng.random() * (costs.max(axis=1).mean() - cheapest)
    return values, costs, budget


KINDS = (
    "hundredths",
    "numbers",
    "mixed signs",
    "losses",
    "tie-breakers",
    "a large offset",
    "a large negative offset",
    "one hopeless choice",
)


def gain_of(values, costs, plan):
    """Return the mean value of a plan minus that of the cheapest choices."""
    rows = np.arange(len(values))
    cheapest = np.lexsort((-values, costs), axis=1)[:, 0]
    return (values[rows, plan] - values[rows, cheapest]).mean()


def best_gain(values, costs, budget):
    rows = np.arange(len(values))
    plans = (np.array(plan) for plan in itertools.product(range(3), repeat=len(values)))
    fits = (plan for plan in plans if costs[rows, plan].mean() <= budget * (1 + 1e-12))
    return max(gain_of(values, costs, plan) for plan in fits)


SOLVERS = ["auto", "exact", "highs", "greedy", "in passes"]
SOLVERS += [pytest.param("cvxpy", marks=pytest.mark.slow)]


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    value_unit=st.sampled_from(UNITS),
    cost_unit=st.sampled_from(UNITS),
)
def test_another_unit_has_the_same_plan_and_a_true_certificate(
    solver, seed, kind, value_unit, cost_unit
):
    if solver == "cvxpy":
        pytest.importorskip("cvxpy")
    values, costs, budget = small_problem(seed, kind)
    in_unit = (values * value_unit, costs * cost_unit, budget * cost_unit)
    if solver == "in passes":
        plan = solve_in_passes([in_unit[:2]], in_unit[2])
        choices = plan.choices(0, *in_unit[:2])
    else:
        plan = solve_assignment(*in_unit, solver=solver)
        choices = plan.choices
    best = best_gain(values, costs, budget)
    gain = gain_of(values, costs, choices)
    assert costs[np.arange(6), choices].mean() <= budget * (1 + 1e-12)
    if solver != "greedy":
        assert gain == pytest.approx(best, rel=1e-9, abs=1e-11)
    # The certificate: the bound holds, and the gap is the one of the bound.
    size = np.abs(values[values > -1e5]).max()
    missed = plan.upper_bound / value_unit - plan.objective / value_unit
    assert missed >= best - gain - 1e-11 * size
    distance = plan.upper_bound - plan.objective
    assert plan.gap == pytest.approx(distance / abs(plan.upper_bound), abs=1e-12)
    if solver in ("auto", "exact"):
        assert plan.status == "optimal"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    value_unit=st.sampled_from(UNITS),
    cost_unit=st.sampled_from(UNITS),
)
def test_another_unit_has_the_same_path(seed, kind, value_unit, cost_unit):
    values, costs, budget = small_problem(seed, kind)
    path = assignment_path(values, costs)
    scaled = assignment_path(values * value_unit, costs * cost_unit)
    np.testing.assert_allclose(scaled.budgets, path.budgets * cost_unit, rtol=1e-9)
    # A price far below the others is a difference of values that lost digits.
    lost = 1e-14 * path.prices.max()
    prices = scaled.prices * cost_unit / value_unit
    np.testing.assert_allclose(prices, path.prices, rtol=1e-9, atol=lost)
    rule = path.rule(budget)
    scaled_rule = scaled.rule(budget * cost_unit)
    assert scaled_rule.share == pytest.approx(rule.share, abs=1e-6)
    np.testing.assert_array_equal(
        choose_at_price(values * value_unit, costs * cost_unit, scaled_rule.price),
        choose_at_price(values, costs, rule.price),
    )


def test_highs_ends_where_the_costs_of_one_problem_differ_beyond_its_tolerance():
    """Some costs are a billionth of others, below the tolerance of HiGHS."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        costs = rng.random((8, 3)) * 10.0 ** rng.integers(-11, 1, (8, 3))
        values = rng.random((8, 3))
        budget = float((costs.min(axis=1).mean() + costs.mean()) / 2)
        best = solve_assignment(values, costs, budget, solver="exact")
        plan = solve_assignment(values, costs, budget, solver="highs")
        assert plan.spent <= budget * (1 + 1e-12)
        assert plan.objective <= best.objective + 1e-12 <= plan.upper_bound + 1e-9
