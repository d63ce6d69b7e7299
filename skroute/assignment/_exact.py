"""Plans that are proven: a search of the core, HiGHS, or any solver through cvxpy."""

import math
from fractions import Fraction

import numpy as np

from skroute.assignment._problem import Problem, total_cost, totals
from skroute.utils._optional import import_optional

# States that the search may look at before it gives up.
_MAX_STATES = 4_000_000
_HIGHS = {
    "output_flag": False,
    "mip_rel_gap": 0.0,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
}


def value_step(values):
    """Largest known number of which all values are multiples, 0.0 when there is none.

    Averages of K outcomes are multiples of 1/K; any two plans then differ by at least
    1/K, which closes a gap that rounding the bound down cannot see otherwise.
    """
    denominator = 1
    for value in values.ravel()[:64].tolist():
        nearest = Fraction(value).limit_denominator(10_000)
        denominator = math.lcm(denominator, nearest.denominator)
        if denominator > 10_000:
            return 0.0
    scaled = values * denominator
    scaled -= np.rint(scaled)
    # All roundings together must stay well below one step.
    return 1.0 / denominator if np.abs(scaled, out=scaled).max() * len(values) < 0.05 else 0.0


def solve_exact(problem, greedy, tolerance, *, finish):
    """Choices and bound after a search of the core for a better plan than the greedy one.

    An alternative whose loss at the dual price exceeds the gap of a known plan is in no
    better plan; what is left, the core, is searched in order of loss (Pisinger 1995). A core
    that is too hard goes to HiGHS if `finish`; else the best plan found comes with its bound.
    """
    gap = greedy.bound - greedy.value
    step = value_step(problem.values)
    if gap <= tolerance or gap < step * (1.0 - 1e-6):
        return greedy.choices, greedy.value if gap > tolerance else greedy.bound
    row, choice, loss, extra = _core(problem, greedy, gap)
    slack = greedy.slack + problem.slack_for_rounding
    # A better plan is better by at least a step.
    margin = step * (1.0 - 1e-6)
    gap, changed, complete = _search_core(
        row, loss, extra, greedy.price, slack, gap, margin, tolerance
    )
    choices = greedy.choices
    if len(changed):
        choices = greedy.break_choices.copy()
        choices[row[changed]] = choice[changed]
    if complete or not finish:
        return choices, totals(problem, choices)[0] if complete else greedy.bound
    return _finish_core(problem, greedy, choices, gap, tolerance)


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
    spends = np.isin(at, row[extra > 0])
    turn = np.empty(len(values))
    for kind in (False, True):
        rows = np.flatnonzero(spends == kind)
        turn[rows[np.argsort(smallest[rows], kind="stable")]] = np.arange(len(rows)) + kind / 2
    order = np.lexsort((loss, row, turn[row]))
    return row[order], choice[order], loss[order], extra[order]


def _search_core(row, loss, extra, price, slack, gap, margin, tolerance):
    """The best combination of core alternatives: its gap, which they are, whether it is proven.

    A plan that departs from the break plan by some alternatives is worth the bound of the
    relaxation minus ``sum(loss) + price * (slack - sum(extra))``. Row after row, a state is what
    some departures have spent and lost; states that others dominate are dropped.
    """
    levels, best, n_states = [], [], 0
    if not len(row):
        return gap, best, True
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    # What rows still to come lose at least, and what they add and free at most.
    least = np.minimum.accumulate(loss[starts][::-1])[::-1]
    add, free = (
        np.append(np.cumsum(np.maximum.reduceat(amount.clip(0.0), starts)[::-1])[::-1], 0.0)[1:]
        for amount in (extra, -extra)
    )
    spent, lost = np.zeros(1), np.zeros(1)
    for at, (start, end) in enumerate(zip(starts, np.append(starts[1:], len(row)))):
        if gap <= tolerance or least[at] >= gap - margin:
            break
        if loss[start] >= gap - margin:
            continue
        width = len(spent)
        n_states += width * (end - start + 1)
        if n_states > _MAX_STATES:
            return gap, best, False
        # First without a departure in this row, then with each.
        spent = np.add.outer(np.append(0.0, extra[start:end]), spent).ravel()
        lost = np.add.outer(np.append(0.0, loss[start:end]), lost).ravel()
        found = np.where(spent <= slack, lost + price * (slack - spent), np.inf)
        if found.min() < gap - margin:
            gap, state = float(found.min()), int(found.argmin())
            best = [start + state // width - 1] if state >= width else []
            state %= width
            for came_from, departure in reversed(levels):
                if departure[state] >= 0:
                    best.append(departure[state])
                state = came_from[state]
        reach = lost + price * np.maximum(slack - spent - add[at], 0.0)
        open_ = np.flatnonzero((reach < gap - margin) & (spent - free[at] <= slack))
        open_ = open_[np.argsort(spent[open_], kind="stable")]
        # By rising cost only rising value survives.
        worth = price * spent[open_] - lost[open_]
        highest = np.maximum.accumulate(worth)[:-1]
        rises = worth[1:] > highest + 1e-14 * (1.0 + np.abs(highest))
        kept = open_[np.append(True, rises)[: len(open_)]]
        departure = np.where(kept >= width, start + kept // width - 1, -1)
        levels.append((kept % width, departure))
        spent, lost = spent[kept], lost[kept]
        if not len(kept):
            break
    return gap, best, True


def _finish_core(problem, greedy, choices, gap, tolerance):
    """Solve the core that remains at the improved gap as an integer program in HiGHS."""
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


# The whole integer program, as a reference -------------------------------------------------


def within_cap(problem, solve):
    """Choices by a solver that meets constraints to a tolerance, and its first bound.

    The budget is a hard cap: where a plan exceeds it the solver is called again, below it.
    """
    limit = cap = problem.total + problem.slack_for_rounding
    choices, bound = solve(limit)
    while (excess := total_cost(problem, choices) - cap) > 0:
        limit -= 2 * excess
        choices, _ = solve(limit)
    return choices, bound


def solve_highs(problem, tolerance, *, allowed=None, options=None):
    """Choices by HiGHS, and its dual bound on the summed value."""
    import highspy

    values, costs, _, _ = problem
    n, m = values.shape
    size = n * m
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = size, n + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = values.ravel()
    lp.col_lower_ = np.zeros(size)
    lp.col_upper_ = np.ones(size) if allowed is None else allowed.ravel().astype(np.float64)
    lp.row_lower_ = np.r_[np.ones(n), -np.inf]
    lp.row_upper_ = np.r_[np.ones(n), np.inf]
    # Column (j, i) stands in row j (choose one) and in row n (the budget).
    row_of = np.repeat(np.arange(n, dtype=np.int32), m)
    weight = np.broadcast_to(costs, values.shape).ravel()
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * size + 1, 2, dtype=np.int32)
    lp.a_matrix_.index_ = np.column_stack([row_of, np.full_like(row_of, n)]).ravel()
    lp.a_matrix_.value_ = np.column_stack([np.ones(size), weight]).ravel()
    lp.integrality_ = [highspy.HighsVarType.kInteger] * size
    model = highspy.Highs()
    for name, setting in {**_HIGHS, "mip_abs_gap": tolerance, **(options or {})}.items():
        if model.setOptionValue(name, setting) != highspy.HighsStatus.kOk:
            raise ValueError(f"HiGHS does not take {name}={setting!r} (solver_options).")
    model.passModel(lp)

    def solve(limit):
        model.changeRowBounds(n, -np.inf, limit)
        model.run()
        info = model.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            status = model.modelStatusToString(model.getModelStatus())
            raise RuntimeError(f"HiGHS ended without a plan: {status}.")
        taken = np.asarray(model.getSolution().col_value).reshape(n, m)
        return taken.argmax(axis=1), float(info.mip_dual_bound)

    return within_cap(problem, solve)


def solve_cvxpy(problem, options):
    """Choices by any solver that the user has; cvxpy passes on no dual bound."""
    cp = import_optional("cvxpy", 'solve_assignment(solver="cvxpy")')
    values, costs, _, _ = problem

    def solve(limit):
        take = cp.Variable(values.shape, boolean=True)
        constraints = [cp.sum(take, axis=1) == 1]
        if np.isfinite(limit):
            weights = np.broadcast_to(costs, values.shape)
            constraints.append(cp.sum(cp.multiply(weights, take)) <= limit)
        program = cp.Problem(cp.Maximize(cp.sum(cp.multiply(values, take))), constraints)
        program.solve(**(options or {"solver": "HIGHS"}))
        if take.value is None:
            raise RuntimeError(f"cvxpy ended without a plan: {program.status}.")
        return take.value.argmax(axis=1), None

    return within_cap(problem, solve)[0]
