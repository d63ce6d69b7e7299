"""The linear relaxation: hulls of the rows, the dual price of a budget, and the greedy plan."""

from typing import NamedTuple

import numpy as np

from skroute.assignment._problem import total_gain

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
    """A feasible plan and the relaxation that bounds it. Amounts are sums over the rows.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,)
        The plan.
    cheapest : ndarray of shape (n_rows,)
        The cheapest choices, which all gains are relative to.
    gain : float
        What the plan adds to the value of the cheapest choices.
    bound : float
        Upper bound on the gain of any plan that fits.
    price : float
        Dual price of the budget.
    break_choices : ndarray of shape (n_rows,)
        The plan of all increments above the dual price.
    slack : float
        What `break_choices` leave of the total, the slack for rounding included.
    """

    choices: np.ndarray
    cheapest: np.ndarray
    gain: float
    bound: float
    price: float
    break_choices: np.ndarray
    slack: float


def build_hulls(problem):
    """The increments that the relaxation chooses from."""
    from skroute.assignment import _kernels

    values, costs, _, order = problem
    n, m = values.shape
    starts, cheapest = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    # Upper bounds; the operating system gives memory only to what is written.
    size = n * (m - 1)
    choice, efficiency, extra_cost = (
        np.empty(size, np.int32),
        np.empty(size),
        np.empty(size),
    )
    count = _kernels.build_hulls(
        values, costs, order, starts, choice, efficiency, extra_cost, cheapest
    )
    return Hulls(
        starts, choice[:count], efficiency[:count], extra_cost[:count], cheapest
    )


def solve_greedy(problem, tolerance):
    """Return the greedy plan, improved by single changes until its gap closes.

    `tolerance` is the gap that counts as closed, relative to the bound on the gain.
    """
    hulls = build_hulls(problem)
    bought, price = _buy(hulls, problem.room_beyond(hulls.cheapest))
    # Efficiency falls within a row: the last of its increments that are bought says its choice.
    rows = np.repeat(np.arange(len(hulls.cheapest)), np.diff(hulls.starts))
    choices = hulls.cheapest.copy()
    choices[rows[bought]] = hulls.choice[bought]
    gain = total_gain(problem, choices, hulls.cheapest)
    slack = max(problem.room_beyond(choices), 0.0)
    bound = gain
    plan = choices
    if price > 0:
        bound = gain + slack * price
        enough = tolerance * bound
        if slack * price > enough:
            filled = _fill(problem, choices, slack, enough / price)
            # Compare sums, not running differences. A plan that rounding pushed over is no plan.
            filled_gain = total_gain(problem, filled, hulls.cheapest)
            if filled_gain > gain and problem.room_beyond(filled) >= 0:
                plan = filled
                gain = filled_gain
    return GreedyPlan(
        choices=plan,
        cheapest=hulls.cheapest,
        gain=gain,
        bound=max(bound, gain),
        price=price,
        break_choices=choices,
        slack=slack,
    )


def _buy(hulls, room):
    """Which increments are bought, by falling efficiency, and the dual price, 0 if all are."""
    efficiency, cost = hulls.efficiency, hulls.extra_cost
    while len(efficiency):
        # The median halves those that may have the price.
        price = np.partition(efficiency, len(efficiency) // 2)[len(efficiency) // 2]
        above = efficiency > price
        left = room - (cost * above).sum()
        after_ties = left - (cost * (efficiency == price)).sum()
        if left >= 0 > after_ties:
            bought, tied = (
                hulls.efficiency > price,
                np.flatnonzero(hulls.efficiency == price),
            )
            bought[tied[np.cumsum(hulls.extra_cost[tied]) <= left]] = True
            return bought, float(price)
        room, some = (room, above) if left < 0 else (after_ties, efficiency < price)
        efficiency, cost = efficiency[some], cost[some]
    return np.ones(len(hulls.efficiency), dtype=bool), 0.0


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
