"""Plans that are proven: a search of the core, HiGHS, or any solver through cvxpy."""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from skroute.assignment._problem import (
    Problem,
    cheapest_choices,
    total_cost,
    total_gain,
)
from skroute.utils._optional import import_optional

# States that the search may look at before it gives up.
_MAX_STATES = 4_000_000

# Most steps between the smallest and the largest value that count as a grid.
_MAX_STEPS = 10_000

# Share of a step by which the rounding of a sum may be less than a step.
_STEP_ROUNDING = 1e-6

# Relative to the gap and to what states are worth: states that differ by less are equal.
_SAME_WORTH = 1e-14

# HiGHS meets constraints to this. It is given programs whose numbers are at most 1.
_FEASIBILITY = 1e-9

# Calls of a solver for one problem, each with less to spend than the one before.
_MAX_CALLS = 20

_HIGHS = {
    "mip_rel_gap": 0.0,
    "mip_feasibility_tolerance": _FEASIBILITY,
    "primal_feasibility_tolerance": _FEASIBILITY,
    "dual_feasibility_tolerance": _FEASIBILITY,
}


class Grid(NamedTuple):
    """Equally spaced numbers that all values are.

    Attributes
    ----------
    step : float
        Distance of two neighbours.
    error : float
        The summed values of two plans differ by a multiple of `step`, to within this.
    """

    step: float
    error: float


class ProvenPlan(NamedTuple):
    """A plan and an upper bound on the gain of every plan.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,)
        The plan.
    bound : float
        No plan adds more to the value of the cheapest choices.
    """

    choices: np.ndarray
    bound: float


def value_grid(values):
    """Return the coarsest grid that all values are known to lie on, or None.

    Averages of K outcomes are multiples of 1/K. Any two plans then differ by at least 1/K,
    which closes a gap that the relaxation leaves open. The grid starts at the smallest
    value: neither the unit nor an offset of the values matters.
    """
    lowest = values.min()
    spread = float(values.max() - lowest)
    if spread == 0:
        return None
    positions = (values - lowest) / spread
    n_steps = 1
    for position in positions.ravel()[:64].tolist():
        nearest = Fraction(position).limit_denominator(_MAX_STEPS)
        n_steps = math.lcm(n_steps, nearest.denominator)
        if n_steps > _MAX_STEPS:
            return None
    positions *= n_steps
    positions -= np.rint(positions)
    step = spread / n_steps
    # How far a single value is from the grid, with the rounding of its position.
    deviation = float(np.abs(positions, out=positions).max()) * step
    deviation += 4 * np.finfo(np.float64).eps * spread
    return Grid(step=step, error=2 * len(values) * deviation)


def solve_exact(problem, greedy, tolerance, *, finish):
    """Search the core for a better plan than the greedy one, and return it with a bound.

    An alternative whose loss at the dual price exceeds the gap of a known plan is in no
    better plan. What is left, the core, is searched in order of loss (Pisinger 1995). A core
    that is too hard goes to HiGHS if `finish`. Else the best plan found comes with its bound.
    """
    gap = greedy.bound - greedy.gain
    if gap <= tolerance:
        return ProvenPlan(greedy.choices, greedy.bound)
    margin = 0.0
    error = 0.0
    grid = value_grid(problem.values)
    # A grid that the values miss by more than the tolerance would prove too little.
    if grid is not None and grid.error <= min(tolerance, _STEP_ROUNDING * grid.step):
        # A better plan is better by at least a step.
        margin = grid.step * (1.0 - _STEP_ROUNDING) - grid.error
        error = grid.error
    if gap < margin:
        return ProvenPlan(greedy.choices, greedy.gain + error)
    row, choice, loss, extra = _core(problem, greedy, gap)
    gap, changed, complete = _search_core(
        row,
        loss,
        extra,
        price=greedy.price,
        slack=greedy.slack,
        gap=gap,
        margin=margin,
        tolerance=tolerance,
    )
    choices = greedy.choices
    if len(changed):
        choices = greedy.break_choices.copy()
        choices[row[changed]] = choice[changed]
    if complete:
        # The search ends early at a gap within the tolerance.
        open_gap = gap if gap <= tolerance else 0.0
        gain = total_gain(problem, choices, greedy.cheapest)
        return ProvenPlan(choices, gain + max(open_gap, error))
    if not finish:
        return ProvenPlan(choices, greedy.bound)
    return _finish_core(problem, greedy, choices, gap=gap, tolerance=tolerance)


def _core(problem, greedy, gap):
    """Alternatives that lose less than `gap` at the price: row, choice, loss and extra cost.

    Rows that spend nothing more come between the others, each by its smallest loss.
    """
    values, costs, chosen = problem.values, problem.costs, greedy.break_choices
    at = np.arange(len(values))
    # Differences first: an offset of the values changes no digit of them.
    loss = values[at, chosen][:, np.newaxis] - values
    chosen_costs = np.broadcast_to(costs, values.shape)[at, chosen]
    loss -= greedy.price * (chosen_costs[:, np.newaxis] - costs)
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
        turn[rows[np.argsort(smallest[rows], kind="stable")]] = (
            np.arange(len(rows)) + kind / 2
        )
    order = np.lexsort((loss, row, turn[row]))
    return row[order], choice[order], loss[order], extra[order]


def _search_core(row, loss, extra, *, price, slack, gap, margin, tolerance):
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
        np.append(
            np.cumsum(np.maximum.reduceat(amount.clip(0.0), starts)[::-1])[::-1], 0.0
        )[1:]
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
        rises = worth[1:] > highest + _SAME_WORTH * (gap + np.abs(highest))
        kept = open_[np.append(True, rises)[: len(open_)]]
        departure = np.where(kept >= width, start + kept // width - 1, -1)
        levels.append((kept % width, departure))
        spent, lost = spent[kept], lost[kept]
        if not len(kept):
            break
    return gap, best, True


def _finish_core(problem, greedy, choices, *, gap, tolerance):
    """Solve the core that remains at the improved gap as an integer program in HiGHS."""
    values, chosen = problem.values, greedy.break_choices
    row, choice, _, _ = _core(problem, greedy, gap)
    rows, position = np.unique(row, return_inverse=True)
    core_rows = np.arange(len(rows))
    allowed = np.zeros((len(rows), values.shape[1]), dtype=bool)
    allowed[position, choice] = True
    allowed[core_rows, chosen[rows]] = True
    costs = np.ascontiguousarray(np.broadcast_to(problem.costs, values.shape)[rows])
    # What the rows outside of the core leave of the total.
    room = (
        problem.total
        - total_cost(problem, chosen)
        + costs[core_rows, chosen[rows]].sum()
    )
    core = Problem(values[rows], costs, float(room), problem.order)
    found = solve_highs(core, tolerance, allowed=allowed)
    plan = chosen.copy()
    plan[rows] = found.choices
    gain = total_gain(problem, choices, greedy.cheapest)
    plan_gain = total_gain(problem, plan, greedy.cheapest)
    # The gain of the rows outside of the core is fixed.
    gain_outside = plan_gain - total_gain(core, found.choices, cheapest_choices(core))
    best = plan if plan_gain > gain else choices
    return ProvenPlan(best, found.bound + gain_outside)


# The whole integer program, as a reference -------------------------------------------------


class ScaledProgram(NamedTuple):
    """The integer program in units in which its largest numbers are about 1.

    The tolerances of solvers are absolute. Values and costs are relative to the cheapest
    choice of each row, so that an offset of either does not count as scale.

    Attributes
    ----------
    gains : ndarray of shape (n_rows, n_choices)
        Values, less those of the cheapest choices; 0 for choices that are not usable.
    extra_costs : ndarray of shape (n_rows, n_choices)
        Costs, less those of the cheapest choices; 0 for choices that are not usable.
    usable : ndarray of shape (n_rows, n_choices), dtype=bool
        Choices that a best plan may have.
    room : float
        What all rows may spend in addition to the cheapest plan.
    value_unit : float
        Value of a gain of 1, a power of two.
    cost_unit : float
        Cost of an extra cost of 1, a power of two.
    """

    gains: np.ndarray
    extra_costs: np.ndarray
    usable: np.ndarray
    room: float
    value_unit: float
    cost_unit: float


def scaled_program(problem, allowed=None):
    """Scale a problem for a solver, and leave out what no best plan has.

    Where `allowed` is given, a plan takes only choices that are true in it.
    """
    values = problem.values
    costs = np.broadcast_to(problem.costs, values.shape)
    rows = np.arange(len(values))
    cheapest = cheapest_choices(problem)
    gains = values - values[rows, cheapest][:, np.newaxis]
    extra_costs = costs - costs[rows, cheapest][:, np.newaxis]
    room = max(problem.room_beyond(cheapest), 0.0)
    # Choices that cost more for no gain, or do not fit alone, would only spoil the scale.
    usable = (gains > 0) & (extra_costs <= room)
    usable[rows, cheapest] = True
    if allowed is not None:
        usable &= allowed
    gains = np.where(usable, gains, 0.0)
    extra_costs = np.where(usable, extra_costs, 0.0)
    value_unit = _power_of_two_near(gains.max())
    cost_unit = _power_of_two_near(extra_costs.max())
    return ScaledProgram(
        gains=gains / value_unit,
        extra_costs=extra_costs / cost_unit,
        usable=usable,
        room=room / cost_unit,
        value_unit=value_unit,
        cost_unit=cost_unit,
    )


def _power_of_two_near(number):
    """Return a power of two of about this size, 1 for 0. Dividing by it rounds nothing."""
    if number == 0:
        return 1.0
    _, exponent = np.frexp(number)
    return float(np.ldexp(1.0, exponent))


def within_cap(problem, program, solve):
    """Return a plan of a solver that meets constraints to a tolerance, and its first bound.

    The budget is a hard cap. Where a plan exceeds it the solver is called again with less
    room, by more each time than it was exceeded.
    """
    cap = problem.total + problem.slack_for_rounding
    room = program.room
    reduction = _FEASIBILITY
    choices, bound = solve(room)
    for _ in range(_MAX_CALLS):
        excess = (total_cost(problem, choices) - cap) / program.cost_unit
        if excess <= 0:
            return ProvenPlan(choices, bound)
        room = max(room - max(2 * excess, reduction), 0.0)
        reduction *= 4
        choices, _ = solve(room)
    raise RuntimeError(
        f"The plans of the solver exceed the budget by {excess * program.cost_unit:.3g} after "
        f"{_MAX_CALLS} calls: its tolerance is too coarse for the scale of the costs, which "
        'differ too much within one problem. Use solver="exact".'
    )


def solve_highs(problem, tolerance, *, allowed=None, options=None):
    """Solve the integer program by HiGHS, to a gap of `tolerance` in the unit of values."""
    import highspy

    program = scaled_program(problem, allowed)
    n, m = program.gains.shape
    size = n * m
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = size, n + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = program.gains.ravel()
    lp.col_lower_ = np.zeros(size)
    lp.col_upper_ = program.usable.ravel().astype(np.float64)
    lp.row_lower_ = np.r_[np.ones(n), -np.inf]
    lp.row_upper_ = np.r_[np.ones(n), np.inf]
    # Column (j, i) stands in row j (choose one) and in row n (the budget).
    row_of = np.repeat(np.arange(n, dtype=np.int32), m)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * size + 1, 2, dtype=np.int32)
    lp.a_matrix_.index_ = np.column_stack([row_of, np.full_like(row_of, n)]).ravel()
    lp.a_matrix_.value_ = np.column_stack(
        [np.ones(size), program.extra_costs.ravel()]
    ).ravel()
    lp.integrality_ = [highspy.HighsVarType.kInteger] * size
    model = highspy.Highs()
    # HiGHS stops at an absolute gap.
    settings = {
        **_HIGHS,
        "output_flag": False,
        "mip_abs_gap": tolerance / program.value_unit,
        **(options or {}),
    }
    for name, setting in settings.items():
        if model.setOptionValue(name, setting) != highspy.HighsStatus.kOk:
            raise ValueError(
                f"HiGHS does not take {name}={setting!r} (solver_options)."
            )
    model.passModel(lp)

    def solve(room):
        model.changeRowBounds(n, -np.inf, room)
        model.run()
        info = model.getInfo()
        if (
            info.primal_solution_status
            != highspy.SolutionStatus.kSolutionStatusFeasible
        ):
            status = model.modelStatusToString(model.getModelStatus())
            raise RuntimeError(f"HiGHS ended without a plan: {status}.")
        taken = np.asarray(model.getSolution().col_value).reshape(n, m)
        return taken.argmax(axis=1), float(info.mip_dual_bound) * program.value_unit

    return within_cap(problem, program, solve)


def solve_cvxpy(problem, tolerance, options):
    """Return the choices of any solver that the user has; cvxpy passes on no dual bound.

    `tolerance` is the gap at which the default solver ends, in the unit of values.
    """
    cp = import_optional("cvxpy", 'solve_assignment(solver="cvxpy")')
    program = scaled_program(problem)
    if not options:
        mip_abs_gap = tolerance / program.value_unit
        options = {"solver": "HIGHS", **_HIGHS, "mip_abs_gap": mip_abs_gap}

    def solve(room):
        take = cp.Variable(program.gains.shape, boolean=True)
        constraints = [
            cp.sum(take, axis=1) == 1,
            take <= program.usable.astype(np.float64),
        ]
        if np.isfinite(room):
            constraints.append(cp.sum(cp.multiply(program.extra_costs, take)) <= room)
        gain = cp.sum(cp.multiply(program.gains, take))
        integer_program = cp.Problem(cp.Maximize(gain), constraints)
        integer_program.solve(**options)
        if take.value is None:
            raise RuntimeError(f"cvxpy ended without a plan: {integer_program.status}.")
        return take.value.argmax(axis=1), None

    return within_cap(problem, program, solve).choices
