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


def solve_greedy(problem, tolerance):
    """Greedy plan of the relaxation, improved by single changes until its relative gap closes."""
    total, hulls = problem.total, build_hulls(problem)
    room = total - total_cost(problem, hulls.cheapest) + problem.slack_for_rounding
    by_efficiency = np.argsort(-hulls.efficiency, kind="stable")
    n_bought = np.searchsorted(np.cumsum(hulls.extra_cost[by_efficiency]), room, side="right")
    bought = np.zeros(len(by_efficiency), dtype=bool)
    bought[by_efficiency[:n_bought]] = True
    # Efficiency falls within a row: what it buys are its first increments.
    last = np.append(0, np.cumsum(bought))[hulls.starts]
    last = hulls.starts[:-1] + np.diff(last) - 1
    choices = np.where(last >= hulls.starts[:-1], np.append(hulls.choice, 0)[last], hulls.cheapest)
    value, spent = totals(problem, choices)
    if n_bought == len(by_efficiency):
        return GreedyPlan(choices, value, value, 0.0, choices, total - spent)
    price = float(hulls.efficiency[by_efficiency[n_bought]])
    slack = max(total - spent, 0.0)
    bound = value + slack * price
    plan, enough = choices, tolerance * abs(bound)
    if slack * price > enough:
        filled = _fill(problem, choices, slack, enough / price)
        gained, paid = totals(problem, filled)
        # Compare sums, not running differences; what rounding pushed over is no plan.
        if gained > value and paid <= total + problem.slack_for_rounding:
            plan, value = filled, gained
    return GreedyPlan(plan, value, max(bound, value), price, choices, slack)


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
