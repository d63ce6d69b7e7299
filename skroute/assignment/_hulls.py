"""The linear relaxation: hulls of rows, dual price of a budget, and greedy plan."""

from typing import NamedTuple

import numpy as np

from skroute.assignment._problem import total_gain

# Largest number of single changes that spend what a plan leaves of the budget. A single
# change gives one row another choice. The kernel reads all values for each change.
_MAX_CHANGES = 8


class Hulls(NamedTuple):
    """Increments of the concave hulls of all rows' choices, row after row.

    An increment is a step from a choice on the hull to the next more expensive one.

    Attributes
    ----------
    starts : ndarray of shape (n_rows + 1,), dtype=int64
        The increments of row ``j`` are ``starts[j]:starts[j + 1]``, by falling
        efficiency.
    choice : ndarray of shape (n_increments,), dtype=int32
        The choice that each increment leads to.
    efficiency : ndarray of shape (n_increments,)
        Additional value per additional cost.
    extra_cost : ndarray of shape (n_increments,)
        Additional cost.
    cheapest : ndarray of shape (n_rows,), dtype=int64
        The cheapest choice of each row, at which its increments start.
    """

    starts: np.ndarray
    choice: np.ndarray
    efficiency: np.ndarray
    extra_cost: np.ndarray
    cheapest: np.ndarray

    @property
    def row(self):
        """Row of each increment, an array of shape (n_increments,)."""
        n_rows = len(self.cheapest)
        return np.repeat(np.arange(n_rows), np.diff(self.starts))


class GreedyPlan(NamedTuple):
    """A feasible plan and the bound of the relaxation. Amounts are sums over rows.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,)
        The plan.
    cheapest : ndarray of shape (n_rows,)
        The cheapest choices. All gains are relative to their value.
    gain : float
        Value of the plan minus the value of the cheapest choices.
    bound : float
        Upper bound on the gain of any plan that fits.
    price : float
        Dual price of the budget.
    break_choices : ndarray of shape (n_rows,)
        The plan of the relaxation, without its one fractional increment.
    slack : float
        The part of the budget, as a sum over rows, that `break_choices` leave. It
        includes the tolerance for rounding.
    """

    choices: np.ndarray
    cheapest: np.ndarray
    gain: float
    bound: float
    price: float
    break_choices: np.ndarray
    slack: float


def build_hulls(problem):
    """Return the steps between choices on the concave hull of each row (`Hulls`).

    The linear relaxation chooses from these increments.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Hulls
    """
    from skroute.assignment import _kernels

    n_rows, n_choices = problem.values.shape
    starts = np.empty(n_rows + 1, np.int64)
    cheapest = np.empty(n_rows, np.int64)
    # Upper bound of the number of increments. The operating system allocates memory
    # only when the kernel writes it.
    max_increments = n_rows * (n_choices - 1)
    choice = np.empty(max_increments, np.int32)
    efficiency = np.empty(max_increments)
    extra_cost = np.empty(max_increments)
    # The kernel writes into the last five arrays.
    n_increments = _kernels.build_hulls(
        problem.values,
        problem.costs,
        problem.order,
        starts,
        choice,
        efficiency,
        extra_cost,
        cheapest,
    )
    return Hulls(
        starts=starts,
        choice=choice[:n_increments],
        efficiency=efficiency[:n_increments],
        extra_cost=extra_cost[:n_increments],
        cheapest=cheapest,
    )


def solve_greedy(problem, tolerance):
    """Return the greedy plan, improved by changes of single rows until its gap closes.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        Gap that counts as closed, relative to the bound on the gain.

    Returns
    -------
    GreedyPlan
    """
    hulls = build_hulls(problem)
    room = problem.room_beyond(hulls.cheapest)
    is_bought, price = _buy(hulls, room)
    # The choice of a row is where its last bought increment leads to. The increments of
    # a row follow each other. If an index occurs several times, numpy keeps the last
    # assignment.
    choices = hulls.cheapest.copy()
    choices[hulls.row[is_bought]] = hulls.choice[is_bought]
    gain = total_gain(problem, choices, hulls.cheapest)
    slack = max(problem.room_beyond(choices), 0.0)
    # If the price is 0, all increments are bought, and this plan is optimal.
    bound = gain
    plan = choices
    if price > 0:
        # The relaxation spends the slack on a part of an increment with this price.
        open_gap = slack * price
        bound = gain + open_gap
        # Largest gap that counts as closed.
        closed_gap = tolerance * bound
        if open_gap > closed_gap:
            filled = _fill(
                problem, choices, room=slack, room_to_leave=closed_gap / price
            )
            # `_fill` adds up differences, and rounding may have made its plan too
            # expensive. So the sums of the plan are compared.
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
    """Take steps to more expensive choices by falling value per cost, within `room`.

    Parameters
    ----------
    hulls : Hulls
    room : float
        Amount that all increments together may cost.

    Returns
    -------
    is_bought : ndarray of shape (n_increments,), dtype=bool
    price : float
        The dual price: the efficiency of the first increment that does not fit. 0 if
        all increments fit.
    """
    # Efficiency and cost of the candidates, whose efficiency may be the price. `room`
    # is the amount that is left after all more efficient increments are bought.
    efficiency = hulls.efficiency
    cost = hulls.extra_cost
    while len(efficiency):
        # The search is a bisection: the median halves the number of candidates.
        middle = len(efficiency) // 2
        price = np.partition(efficiency, middle)[middle]
        is_above = efficiency > price
        room_before_ties = room - (cost * is_above).sum()
        is_tied = efficiency == price
        room_after_ties = room_before_ties - (cost * is_tied).sum()
        if room_before_ties >= 0 > room_after_ties:
            # The more efficient increments fit, but not all tied increments: this is
            # the price. Tied increments are bought in their order.
            is_bought = hulls.efficiency > price
            tied = np.flatnonzero(hulls.efficiency == price)
            fits = np.cumsum(hulls.extra_cost[tied]) <= room_before_ties
            is_bought[tied[fits]] = True
            return is_bought, float(price)
        if room_before_ties < 0:
            # The more efficient increments do not fit: the price is higher.
            is_candidate = is_above
        else:
            # The more efficient and the tied increments fit: the price is lower.
            is_candidate = efficiency < price
            room = room_after_ties
        efficiency = efficiency[is_candidate]
        cost = cost[is_candidate]
    # All increments fit.
    return np.ones(len(hulls.efficiency), dtype=bool), 0.0


def _fill(problem, choices, *, room, room_to_leave):
    """Spend the rest of a budget on changes of single rows. Return the new plan.

    There are at most `_MAX_CHANGES` changes. There are fewer if at most `room_to_leave`
    is left before, or if no change that fits adds value.

    Parameters
    ----------
    problem : Problem
    choices : ndarray of shape (n_rows,)
        The plan.
    room : float
        Amount that all changes together may cost.
    room_to_leave : float
        Amount that is too small to be spent.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    from skroute.assignment import _kernels

    choices = choices.copy()
    for _ in range(_MAX_CHANGES):
        if room <= room_to_leave:
            break
        row, choice = _kernels.best_upgrade(
            problem.values, problem.costs, choices, room
        )
        if row == _kernels.NO_ROW:
            break
        # The costs have one row if all rows share them.
        row_costs = problem.costs[0] if len(problem.costs) == 1 else problem.costs[row]
        room -= row_costs[choice] - row_costs[choices[row]]
        choices[row] = choice
    return choices
