"""Several limits: brute force on tiny problems, HiGHS on middle ones, messages."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from skroute.assignment import solve_assignment

NAMES = ["a", "b", "c"]


def draw_problem(seed):
    """Return the keyword arguments of a tiny problem with drawn limits.

    Amounts are multiples of 1/8 or real numbers, and values may be tied.
    """
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(2, 7))
    is_coarse = rng.random() < 0.5

    def draw(shape):
        numbers = rng.random(shape)
        return np.round(numbers * 8) / 8 if is_coarse else numbers

    values = draw((n_rows, 3)) - 0.3 * (rng.random() < 0.3)
    costs = draw(3) if rng.random() < 0.5 else draw((n_rows, 3))
    problem = {"values": values, "costs": costs, "budget": None}
    if rng.random() < 0.7:
        problem["budget"] = float(draw(())) + 0.1
    problem["amounts"] = {}
    problem["limits"] = {}
    for name in ("seconds", "tokens")[: int(rng.integers(0, 3))]:
        problem["amounts"][name] = draw((n_rows, 3))
        problem["limits"][name] = float(draw(())) + 0.1
    problem["capacities"] = {}
    for choice in rng.permutation(3)[: int(rng.integers(0, 3))]:
        problem["capacities"][int(choice)] = float(rng.choice([0, 0.25, 0.4, 0.5, 1]))
    problem["floors"] = {}
    if rng.random() < 0.4:
        problem["segments"] = rng.integers(0, 2, n_rows)
        label = int(problem["segments"][0])
        problem["floors"][label] = float(rng.random() * 0.8)
    return problem


def means_of_plan(problem, choices):
    """Return the means of a plan by the name of the limit, floors as least means."""
    rows = np.arange(len(choices))
    values = problem["values"]
    means = {
        "budget": np.broadcast_to(problem["costs"], values.shape)[rows, choices].mean()
    }
    for name, table in problem["amounts"].items():
        means[name] = table[rows, choices].mean()
    for choice in problem["capacities"]:
        means[f"share of {choice}"] = np.mean(choices == choice)
    for label in problem["floors"]:
        in_segment = problem["segments"] == label
        means[f"value of {label}"] = values[rows, choices][in_segment].mean()
    return means


def most_of(problem):
    """Return the limits by name, without the floors."""
    most = dict(problem["limits"])
    if problem["budget"] is not None:
        most["budget"] = problem["budget"]
    for choice, share in problem["capacities"].items():
        most[f"share of {choice}"] = share
    return most


def fits(problem, choices):
    means = means_of_plan(problem, choices)
    for name, largest in most_of(problem).items():
        if means[name] > largest + 1e-9:
            return False
    for label, least in problem["floors"].items():
        if means[f"value of {label}"] < least - 1e-9:
            return False
    return True


def brute_force(problem):
    """Return the best mean value of all plans that fit, None if there is none."""
    n_rows = len(problem["values"])
    best = None
    for plan in itertools.product(range(3), repeat=n_rows):
        choices = np.array(plan)
        if fits(problem, choices):
            value = problem["values"][np.arange(n_rows), choices].mean()
            best = value if best is None else max(best, value)
    return best


def relaxation(problem):
    """Return the optimum of the linear relaxation, None if it has no plan."""
    values = problem["values"]
    n_rows, n_choices = values.shape
    rows = []
    most = []
    tables = dict(problem["amounts"])
    tables["budget"] = np.broadcast_to(problem["costs"], values.shape)
    for choice in problem["capacities"]:
        is_choice = np.arange(n_choices) == choice
        tables[f"share of {choice}"] = np.tile(is_choice, (n_rows, 1))
    for name, largest in most_of(problem).items():
        rows.append(tables[name].ravel() / n_rows)
        most.append(largest)
    for label, least in problem["floors"].items():
        in_segment = (problem["segments"] == label).astype(float)
        weights = in_segment / in_segment.sum()
        rows.append(-(values * weights[:, None]).ravel())
        most.append(-least)
    solved = linprog(
        -values.ravel() / n_rows,
        A_ub=np.array(rows) if rows else None,
        b_ub=most if rows else None,
        A_eq=np.kron(np.eye(n_rows), np.ones(n_choices)),
        b_eq=np.ones(n_rows),
        bounds=(0, 1),
    )
    return None if solved.status else -solved.fun


@pytest.mark.parametrize("block", range(6))
def test_tiny_problems_by_brute_force(block):
    """The exact plan is the best of all plans, and the bound that of the relaxation."""
    n_conflicts = 0
    for seed in range(50 * block, 50 * block + 50):
        problem = draw_problem(seed)
        best = brute_force(problem)
        bound = relaxation(problem)
        if best is None:
            n_conflicts += 1
            with pytest.raises(ValueError, match="limits|No plan|smallest feasible"):
                solve_assignment(**problem, solver="exact")
            continue
        for solver in ("auto", "exact"):
            plan = solve_assignment(**problem, solver=solver)
            assert fits(problem, plan.choices), seed
            value = problem["values"][np.arange(len(plan.choices)), plan.choices].mean()
            assert plan.objective == pytest.approx(value, abs=1e-12)
            assert plan.upper_bound >= best - 1e-9, seed
            assert plan.upper_bound <= max(bound, best) + 1e-6, seed
            means = means_of_plan(problem, plan.choices)
            for limit in plan.limits:
                assert limit.spent == pytest.approx(means[limit.name], abs=1e-9)
        assert plan.objective == pytest.approx(best, abs=1e-9), seed
    assert n_conflicts < 50


@pytest.mark.parametrize("block", range(3))
def test_a_named_least_value_is_exact(block):
    """A little above a named least value there is a mixture, a little below there is none."""
    n_named = 0
    for seed in range(1000 + 60 * block, 1060 + 60 * block):
        problem = draw_problem(seed)
        if not most_of(problem) or relaxation(problem) is not None:
            continue
        with pytest.raises(ValueError) as caught:
            solve_assignment(**problem)
        message = str(caught.value)
        parts = re.split("possible: |Possible is ", message)
        if len(parts) == 1:
            # Each value has to change together with others.
            continue
        possible = parts[1]
        for name, sign, number in re.findall(
            r"([a-z]+(?: of \d)?) ([<>]=) ([\d.e+-]+\d)", possible
        ):
            n_named += 1
            for factor, is_possible in ((1.001, True), (0.999, False)):
                near = float(number) * factor
                if sign == "<=":
                    near = float(number) / factor
                changed = {**problem}
                if name == "budget":
                    changed["budget"] = near
                elif name.startswith("share of "):
                    choice = int(name.split()[-1])
                    changed["capacities"] = {**problem["capacities"], choice: near}
                elif name.startswith("value of "):
                    label = int(name.split()[-1])
                    changed["floors"] = {**problem["floors"], label: near}
                else:
                    changed["limits"] = {**problem["limits"], name: near}
                if abs(float(number)) < 1e-3:
                    # A thousandth of it is the rounding of the message.
                    continue
                assert (relaxation(changed) is not None) == is_possible, (seed, message)
    assert n_named > 3


def draw_large(n_rows, seed):
    """Return a problem of several hundred rows and seven choices."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(n_rows, 1))
    values = 1 / (
        1 + np.exp(hard - np.linspace(-0.5, 2, 7) - rng.normal(size=(n_rows, 7)))
    )
    length = rng.normal(size=(n_rows, 1))
    costs = np.geomspace(0.1, 2, 7) * np.exp(0.5 * length)
    seconds = rng.permutation(np.geomspace(0.2, 1.2, 7)) * np.exp(
        0.3 * length + 0.4 * rng.normal(size=(n_rows, 7))
    )
    return {
        "values": values,
        "costs": costs,
        "budget": 0.5,
        "amounts": {"seconds": seconds, "slow": (seconds > 1).astype(float)},
        "limits": {"seconds": 0.6, "slow": 0.1},
        "capacities": {6: 0.1, 3: 0.2},
        "floors": {"t1": 0.72},
        "segments": np.array(["t0", "t1", "t2"])[np.arange(n_rows) % 3],
    }


def test_plans_are_near_the_linear_program_and_within_all_limits():
    problem = draw_large(300, seed=0)
    plan = solve_assignment(**problem)
    assert fits(problem, plan.choices)
    bound = relaxation(problem)
    # HiGHS may prove a bound below that of the relaxation.
    assert plan.objective <= plan.upper_bound <= bound + 1e-6
    assert plan.upper_bound == pytest.approx(bound, abs=1e-3)
    assert plan.gap < 3e-3
    assert any(limit.binds for limit in plan.limits)
    for limit in plan.limits:
        slack = limit.most - limit.spent
        if limit.is_floor:
            slack = -slack
        assert slack > -1e-9


def test_a_limit_on_whole_numbers_is_a_limit_on_plans_of_whole_rows():
    """Of 30 rows, a share of 0.05 is one row, and not one and a half."""
    values = np.column_stack((np.zeros(30), np.linspace(1, 2, 30)))
    slow = np.tile([0.0, 1.0], (30, 1))
    shared = {"values": values, "costs": [1.0, 1.0], "budget": 2.0}
    by_amount = solve_assignment(
        **shared, limits={"slow": 0.05}, amounts={"slow": slow}
    )
    by_capacity = solve_assignment(**shared, capacities={"1": 0.05})
    for plan in (by_amount, by_capacity):
        assert plan.choices.tolist() == [0] * 29 + [1]
        # Of the relaxation, it is (2 + 0.5 * 1.97) / 30.
        assert plan.upper_bound == pytest.approx(2 / 30, rel=1e-6)
    # A sum of whole numbers may be just below the limit by rounding.
    thirds = solve_assignment(
        **shared, limits={"slow": 0.1 * 3}, amounts={"slow": slow}
    )
    assert thirds.choices.sum() == 9
    # Each row needs a choice, and half a row has none.
    with pytest.raises(ValueError, match="not by a plan of whole rows"):
        solve_assignment(
            np.zeros((3, 2)), [0.0, 1.0], 1.0, capacities={"0": 0.5, "1": 0.5}
        )


@pytest.mark.parametrize("options", [{"time_limit": 0.0}, {"mip_max_nodes": 0}])
def test_a_solver_that_is_stopped_is_not_a_conflict(options):
    rng = np.random.default_rng(0)
    values = rng.random((300, 4))
    seconds = rng.random((300, 4))
    problem = {
        "values": values,
        "costs": rng.random((300, 4)) + np.arange(4),
        "budget": 0.9,
        "limits": {"seconds": 0.4},
        "amounts": {"seconds": seconds},
    }
    assert solve_assignment(**problem, solver="highs").status == "optimal"
    with pytest.raises(RuntimeError, match="HiGHS ended without a plan"):
        solve_assignment(**problem, solver="highs", solver_options=options)


def test_the_choices_of_a_frame_are_read_by_name():
    problem = draw_large(60, seed=1)
    names = [f"model{k}" for k in range(7)]
    expected = solve_assignment(**problem).choices
    frame = pd.DataFrame(problem["values"], columns=names)
    amounts = {}
    for name, table in problem["amounts"].items():
        amounts[name] = pd.DataFrame(table, columns=names)[names[::-1]]
    by_name = {
        **problem,
        "values": frame,
        "costs": pd.DataFrame(problem["costs"], columns=names)[names[::-1]],
        "amounts": amounts,
        "capacities": {"model6": 0.1, "model3": 0.2},
    }
    np.testing.assert_array_equal(solve_assignment(**by_name).choices, expected)


def test_one_limit_has_no_record_of_limits_and_a_slack_limit_no_price():
    problem = draw_large(200, seed=2)
    alone = solve_assignment(problem["values"], problem["costs"], 0.5)
    assert alone.limits == ()
    slack = solve_assignment(
        problem["values"],
        problem["costs"],
        0.5,
        limits={"seconds": 100.0},
        amounts={"seconds": problem["amounts"]["seconds"]},
    )
    budget, seconds = slack.limits
    assert seconds.price == pytest.approx(0, abs=1e-9)
    assert not seconds.binds
    assert budget.binds
    assert slack.objective == pytest.approx(alone.objective, abs=1e-3)
    assert slack.upper_bound == pytest.approx(alone.upper_bound, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_limits_that_bind_do_not_depend_on_the_unit_of_the_amounts(unit):
    problem = draw_large(200, seed=2)
    seconds = problem["amounts"]["seconds"]
    half = float(seconds.mean() / 2)
    tables = {"values": problem["values"], "costs": problem["costs"], "budget": None}
    tight = solve_assignment(
        **tables, limits={"seconds": half * unit}, amounts={"seconds": seconds * unit}
    )
    slack = solve_assignment(
        **tables, limits={"seconds": 100 * unit}, amounts={"seconds": seconds * unit}
    )
    assert [limit.binds for limit in tight.limits if limit.name == "seconds"] == [True]
    assert [limit.price for limit in slack.limits if limit.name == "seconds"] == [0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limits": {"watts": 1}}, "limits names 'watts'"),
        ({"limits": {"seconds": -1}}, "finite number that is not negative"),
        ({"amounts": {"seconds": -np.ones((60, 7)), "slow": np.ones(7)}}, "negative"),
        ({"amounts": {"seconds": np.ones((60, 6)), "slow": np.ones(7)}}, "shape"),
        ({"capacities": {9: 0.1}}, "capacities names '9'"),
        ({"capacities": {1: 1.5}}, "share of the rows"),
        ({"segments": None}, "segments must have the segment"),
        ({"segments": ["t1"]}, "one entry for each of 60 rows"),
        ({"floors": {"t9": 0.1}}, "segment of no row"),
        ({"floors": {"t1": np.inf}}, "finite number"),
        ({"solver": "greedy"}, "need objective='mean'"),
        ({"objective": "min"}, "need objective='mean'"),
        ({"limits": [1]}, "limits"),
    ],
)
def test_wrong_limits_are_refused(change, message):
    problem = draw_large(60, seed=1) | change
    with pytest.raises((ValueError, TypeError), match=message):
        solve_assignment(**problem)
