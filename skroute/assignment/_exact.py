"""Close the certificate: core reduction, expanding core, and HiGHS for a core that is hard."""

import math
from fractions import Fraction

import numpy as np

from skroute.assignment._problem import Problem, totals

# Departures that the list DP may record before the core goes to HiGHS (48 MB).
MAX_NODES = 2_000_000


def value_step(values):
    """Largest known `q` of which all values are multiples, 0.0 when there is none.

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
    """Improve the greedy plan to optimality.

    An alternative whose loss at the dual price exceeds the gap of a known plan is in no
    better plan; what is left, the core, is searched in order of loss.

    Parameters
    ----------
    problem : Problem
    greedy : GreedyPlan
    tolerance : float
        Absolute gap of the summed value that counts as closed.
    finish : bool
        Whether a core too hard for the list DP goes to HiGHS; otherwise the best plan found
        is returned unproven.

    Returns
    -------
    choices : ndarray of shape (n,)
    bound : float
        Upper bound on the summed value; equals the plan's value when it is proven optimal.
    """
    from skroute.assignment import _kernels

    gap = greedy.bound - greedy.value
    step = value_step(problem.values)
    if gap <= tolerance or gap < step * (1.0 - 1e-6):
        return greedy.choices, greedy.value if gap > tolerance else greedy.bound
    args = (problem.values, problem.costs, greedy.break_choices, greedy.price, gap)
    size = _kernels.core_size(*args)
    row, choice = np.empty(size, np.int64), np.empty(size, np.int64)
    loss, extra = np.empty(size), np.empty(size)
    _kernels.core_alternatives(*args, row, choice, loss, extra)
    by_loss = _core_order(len(problem.values), row, loss, extra)
    row, choice, loss, extra = row[by_loss], choice[by_loss], loss[by_loss], extra[by_loss]
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1], True]) if size else np.zeros(1, int)
    slack = greedy.slack + problem.slack_for_rounding
    best, node, parent, item, complete = _kernels.expand_core(
        starts, loss, extra, greedy.price, slack, gap, step, tolerance, MAX_NODES
    )
    choices = greedy.choices
    if node >= 0:
        choices = greedy.break_choices.copy()
        while node >= 0:
            choices[row[item[node]]] = choice[item[node]]
            node = parent[node]
    value, _ = totals(problem, choices)
    if complete:
        return choices, value
    if not finish:
        return choices, greedy.bound
    return _finish_core(problem, greedy, choices, best, tolerance)


def _core_order(n, row, loss, extra):
    """Rows by their smallest loss, alternatives by loss inside a row.

    Rows that can spend more and rows that can only free money take turns, so that the
    search meets both early also where thousands of losses are equal.
    """
    smallest = np.full(n, np.inf)
    np.minimum.at(smallest, row, loss)
    spends = np.zeros(n, dtype=bool)
    np.logical_or.at(spends, row, extra > 0)
    turn = np.empty(n)
    for kind in (False, True):
        rows = np.flatnonzero(spends == kind)
        turn[rows[np.argsort(smallest[rows], kind="stable")]] = np.arange(len(rows)) + kind / 2
    return np.lexsort((loss, row, turn[row]))


def _finish_core(problem, greedy, choices, gap, tolerance):
    """Solve the core that remains at the improved gap as an integer program in HiGHS."""
    from skroute.assignment import _kernels
    from skroute.assignment._reference import solve_highs

    values, costs, _, order = problem
    args = (values, costs, greedy.break_choices, greedy.price, gap)
    size = _kernels.core_size(*args)
    row, choice = np.empty(size, np.int64), np.empty(size, np.int64)
    _kernels.core_alternatives(*args, row, choice, np.empty(size), np.empty(size))
    rows, position = np.unique(row, return_inverse=True)
    allowed = np.zeros((len(rows), values.shape[1]), dtype=bool)
    allowed[position, choice] = True
    allowed[np.arange(len(rows)), greedy.break_choices[rows]] = True
    core_costs = np.broadcast_to(costs, values.shape)[rows]
    break_value, break_spent = totals(problem, greedy.break_choices)
    at = np.arange(len(rows))
    core_total = problem.total - break_spent + core_costs[at, greedy.break_choices[rows]].sum()
    core = Problem(values[rows], np.ascontiguousarray(core_costs), float(core_total), order)
    core_choices, core_bound = solve_highs(core, tolerance, allowed=allowed)
    plan = greedy.break_choices.copy()
    plan[rows] = core_choices
    bound = core_bound + break_value - float(values[rows, greedy.break_choices[rows]].sum())
    if totals(problem, plan)[0] < totals(problem, choices)[0]:
        plan = choices
    return plan, bound
