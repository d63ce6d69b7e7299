"""Close the certificate: core reduction, an expanding core, and HiGHS for a core that is hard."""

import math
from fractions import Fraction

import numpy as np

from skroute.assignment._problem import Problem, totals

# Departures that the search may record before it gives up (48 MB).
_MAX_NODES = 2_000_000


def value_step(values):
    """Largest known number of which all values are multiples, 0.0 when there is none.

    Averages of K outcomes are multiples of 1/K; any two plans then differ by at least
    1/K, which closes a gap that rounding the bound down cannot see otherwise.
    """
    denominator = 1
    for value in values.ravel()[:64]:
        denominator = math.lcm(
            denominator, Fraction(float(value)).limit_denominator(10_000).denominator
        )
        if denominator > 10_000:
            return 0.0
    worst = 0.0
    for start in range(0, len(values), 65536):
        scaled = values[start : start + 65536] * denominator
        worst = max(worst, float(np.abs(scaled - np.rint(scaled)).max()))
    # All roundings together must stay well below one step.
    return 1.0 / denominator if worst * len(values) < 0.05 else 0.0


def solve_exact(problem, greedy, tolerance, *, finish):
    """Choices and bound after a search of the core for a better plan than the greedy one.

    An alternative whose loss at the dual price exceeds the gap of a known plan is in no
    better plan; what is left, the core, is searched in order of loss (Pisinger 1995). A core
    that is too hard goes to HiGHS if `finish`; else the best plan found comes with its bound.
    """
    from skroute.assignment import _kernels

    gap = greedy.bound - greedy.value
    step = value_step(problem.values)
    if gap <= tolerance or gap < step * (1.0 - 1e-6):
        return greedy.choices, greedy.value if gap > tolerance else greedy.bound
    row, choice, loss, extra = _core(problem, greedy, gap)
    starts = (
        np.flatnonzero(np.r_[True, row[1:] != row[:-1], True]) if len(row) else np.zeros(1, int)
    )
    slack = greedy.slack + problem.slack_for_rounding
    best, node, parent, item, complete = _kernels.expand_core(
        starts, loss, extra, greedy.price, slack, gap, step, tolerance, _MAX_NODES
    )
    choices = greedy.choices
    if node >= 0:
        choices = greedy.break_choices.copy()
        while node >= 0:
            choices[row[item[node]]] = choice[item[node]]
            node = parent[node]
    if complete:
        return choices, totals(problem, choices)[0]
    if not finish:
        return choices, greedy.bound
    return _finish_core(problem, greedy, choices, best, tolerance)


def _core(problem, greedy, gap):
    """Alternatives that lose less than `gap` at the price: row, choice, loss and extra cost.

    Rows that spend nothing more come between the others, each by its smallest loss.
    """
    values, costs, chosen = problem.values, problem.costs, greedy.break_choices
    at = np.arange(len(values))
    net = values - greedy.price * costs
    loss = net[at, chosen][:, np.newaxis] - net
    loss[at, chosen] = np.inf
    row, choice = np.nonzero(loss < gap)
    loss = np.maximum(loss[row, choice], 0.0)
    costs = np.broadcast_to(costs, values.shape)
    extra = costs[row, choice] - costs[row, chosen[row]]
    smallest = np.full(len(values), np.inf)
    np.minimum.at(smallest, row, loss)
    spends = np.zeros(len(values), dtype=bool)
    np.logical_or.at(spends, row, extra > 0)
    turn = np.empty(len(values))
    for kind in (False, True):
        rows = np.flatnonzero(spends == kind)
        turn[rows[np.argsort(smallest[rows], kind="stable")]] = np.arange(len(rows)) + kind / 2
    order = np.lexsort((loss, row, turn[row]))
    return row[order], choice[order], loss[order], extra[order]


def _finish_core(problem, greedy, choices, gap, tolerance):
    """Solve the core that remains at the improved gap as an integer program in HiGHS."""
    from skroute.assignment._reference import solve_highs

    values, chosen = problem.values, greedy.break_choices
    row, choice, _, _ = _core(problem, greedy, gap)
    rows, position = np.unique(row, return_inverse=True)
    allowed = np.zeros((len(rows), values.shape[1]), dtype=bool)
    allowed[position, choice] = True
    allowed[np.arange(len(rows)), chosen[rows]] = True
    costs = np.ascontiguousarray(np.broadcast_to(problem.costs, values.shape)[rows])
    value, spent = totals(problem, chosen)
    room = problem.total - spent + costs[np.arange(len(rows)), chosen[rows]].sum()
    core = Problem(values[rows], costs, float(room), problem.order)
    found, bound = solve_highs(core, tolerance, allowed=allowed)
    plan = chosen.copy()
    plan[rows] = found
    bound += value - float(values[rows, chosen[rows]].sum())
    return max((choices, plan), key=lambda one: totals(problem, one)[0]), bound
