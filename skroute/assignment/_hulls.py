"""The linear relaxation: hulls of the rows, the dual price of a budget, and the greedy plan."""

from typing import NamedTuple

import numpy as np

from skroute.assignment._problem import total_cost, totals

# Single changes that spend what a plan leaves, each a scan of all values.
_MAX_CHANGES = 8


class Hulls(NamedTuple):
    """Hull increments of all rows, row after row, and each row's cheapest choice.

    The increments of row ``j`` are ``starts[j]:starts[j + 1]``, by falling efficiency.
    """

    starts: np.ndarray
    choice: np.ndarray
    efficiency: np.ndarray
    extra_cost: np.ndarray
    cheapest: np.ndarray


class GreedyPlan(NamedTuple):
    """A feasible plan beside the relaxation that bounds it (sums over the rows).

    `break_choices` is the plan of all increments above the dual price, `slack` what it leaves.
    """

    choices: np.ndarray
    value: float
    spent: float
    bound: float
    price: float
    break_choices: np.ndarray
    slack: float


def build_hulls(problem):
    """The increments that the relaxation chooses from."""
    from skroute.assignment import _kernels

    n, m = problem.values.shape
    # Upper bounds; the operating system gives memory only to what is written.
    size = n * (m - 1)
    hulls = Hulls(
        np.empty(n + 1, np.int64),
        np.empty(size, np.int32),
        np.empty(size),
        np.empty(size),
        np.empty(n, np.int64),
    )
    count = _kernels.build_hulls(problem.values, problem.costs, problem.order, *hulls)
    return hulls._replace(
        choice=hulls.choice[:count],
        efficiency=hulls.efficiency[:count],
        extra_cost=hulls.extra_cost[:count],
    )


def dual_price(problem, hulls):
    """Efficiency of the first increment that the budget does not buy; 0 if it buys all."""
    if np.isinf(problem.total):
        return 0.0
    room = problem.total - total_cost(problem, hulls.cheapest) + problem.slack_for_rounding
    by_efficiency = np.argsort(-hulls.efficiency)
    at = np.searchsorted(np.cumsum(hulls.extra_cost[by_efficiency]), room, side="right")
    return float(hulls.efficiency[by_efficiency[at]]) if at < len(by_efficiency) else 0.0


def solve_greedy(problem, tolerance):
    """Greedy plan of the relaxation, improved by single changes until its relative gap closes."""
    from skroute.assignment import _kernels

    values, costs, total, _ = problem
    hulls = build_hulls(problem)
    price = dual_price(problem, hulls)
    choices = hulls.cheapest
    _kernels.walk_hulls(hulls.starts, hulls.choice, hulls.efficiency, price, choices)
    if price == 0.0:
        value, spent = totals(problem, choices)
        return GreedyPlan(choices, value, spent, value, 0.0, choices, total - spent)
    room = max(total - total_cost(problem, choices), 0.0)
    _kernels.take_ties(
        hulls.starts, hulls.choice, hulls.efficiency, hulls.extra_cost, price, choices, room
    )
    value, spent = totals(problem, choices)
    slack = max(total - spent, 0.0)
    bound = value + slack * price
    plan = choices
    enough = tolerance * abs(bound)
    if slack * price > enough:
        filled = _fill(problem, choices, slack, enough / price)
        gained, paid = totals(problem, filled)
        # Compare sums, not running differences; what rounding pushed over is no plan.
        if gained > value and paid <= total + problem.slack_for_rounding:
            plan, value, spent = filled, gained, paid
    return GreedyPlan(plan, value, spent, max(bound, value), price, choices, slack)


def _fill(problem, choices, room, enough):
    """Spend the room on the best single changes until `enough` is left, a scan for each."""
    from skroute.assignment import _kernels

    values, costs, _, _ = problem
    choices = choices.copy()
    for _ in range(_MAX_CHANGES):
        if room <= enough:
            break
        row, choice = _kernels.best_upgrade(values, costs, choices, room)
        if row < 0:
            break
        cost = costs[0] if len(costs) == 1 else costs[row]
        room -= cost[choice] - cost[choices[row]]
        choices[row] = choice
    return choices
