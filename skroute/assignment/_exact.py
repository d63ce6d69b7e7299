"""Plans of exact solvers: a search among few choices, HiGHS, or a solver of cvxpy."""

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

# The search gives up if it makes more states (combinations of changed rows) than this.
# A state has four numbers of 8 bytes, so that all states have at most 128 MB.
_MAX_STATES = 4_000_000

# Largest number of steps between the smallest and the largest value of a grid. Averages
# of up to 10,000 outcomes have such a grid.
_MAX_STEPS = 10_000

# Number of values from which `value_grid` computes the number of steps of a grid. It
# then checks all other values.
_N_GRID_POSITIONS = 64

# Largest rounding error of a difference of two sums of values on a grid, as a share of
# the step of the grid.
_STEP_ROUNDING = 1e-6

# The worth of a state is its extra cost times the dual price, less its loss. Two states
# are worth the same if the difference is at most this share of the gap plus one of the
# two worths. Such differences are the rounding of sums.
_SAME_WORTH = 1e-14

# Absolute tolerance of constraints of HiGHS. The numbers of its programs are at most 1.
_FEASIBILITY = 1e-9

# Largest number of calls of a solver for one problem. Each call has a smaller budget
# than the one before, because plans of a solver may exceed the budget by its tolerance.
_MAX_CALLS = 20

# Options of HiGHS: an absolute tolerance, and no relative gap.
_HIGHS = {
    "mip_rel_gap": 0.0,
    "mip_feasibility_tolerance": _FEASIBILITY,
    "primal_feasibility_tolerance": _FEASIBILITY,
    "dual_feasibility_tolerance": _FEASIBILITY,
}


class Grid(NamedTuple):
    """Equally spaced numbers that contain all values.

    Attributes
    ----------
    step : float
        Distance of two neighbours.
    error : float
        The summed values of two plans differ by a multiple of `step`, up to this error.
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
        Upper bound of the value of a plan minus the value of the cheapest choices.
    """

    choices: np.ndarray
    bound: float


def value_grid(values):
    """Return the coarsest grid that contains all values, or None if none is found.

    Averages of K outcomes are multiples of 1/K. Two plans of different value then
    differ by at least 1/K, which closes a gap that the relaxation leaves open. The grid
    starts at the smallest value, so that the unit and an offset of the values have no
    effect.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    Grid or None
        None if all values are equal, or if a grid needs more than `_MAX_STEPS` steps.
    """
    lowest = values.min()
    spread = float(values.max() - lowest)
    if spread == 0:
        return None
    # From 0, the smallest value, to 1, the largest one.
    positions = (values - lowest) / spread
    # Least common denominator of the positions.
    n_steps = 1
    # A few positions determine the number of steps. All positions are checked below.
    for position in positions.ravel()[:_N_GRID_POSITIONS].tolist():
        nearest = Fraction(position).limit_denominator(_MAX_STEPS)
        n_steps = math.lcm(n_steps, nearest.denominator)
        if n_steps > _MAX_STEPS:
            return None
    step = spread / n_steps
    # The positions become distances from the grid, in steps. This is done in place,
    # because there may be many values.
    positions *= n_steps
    positions -= np.rint(positions)
    np.abs(positions, out=positions)
    # Largest distance of a value from the grid, plus the rounding of its position.
    deviation = float(positions.max()) * step
    deviation += 4 * np.finfo(np.float64).eps * spread
    # Each of two plans sums one value per row.
    return Grid(step=step, error=2 * len(values) * deviation)


def solve_exact(problem, greedy, tolerance, *, finish):
    """Improve the greedy plan by a search, and return the best plan with a bound.

    An alternative is a choice that the break plan does not make. A plan with an
    alternative whose loss at the dual price exceeds the gap is not better. The other
    alternatives are the core, which is searched by rising loss (Pisinger 1995).

    Parameters
    ----------
    problem : Problem
    greedy : GreedyPlan
    tolerance : float
        Gap that counts as closed, in the unit of summed values.
    finish : bool
        If True, HiGHS solves a core that is too hard for the search. If False, the best
        plan of the search is returned with the bound of the relaxation.

    Returns
    -------
    ProvenPlan
    """
    gap = greedy.bound - greedy.gain
    if gap <= tolerance:
        return ProvenPlan(greedy.choices, greedy.bound)
    # All values are multiples of the step of the grid, up to rounding. None: there is
    # no such step.
    grid = value_grid(problem.values)
    # The gap of a better plan is smaller by more than `margin`. 0 without a grid: plans
    # may be better by any number.
    margin = 0.0
    # Rounding error of the summed values of a plan on the grid. 0 without a grid.
    error = 0.0
    # The error of the grid is added to the bound, so that it must be within the
    # tolerance. An error that is not small against the step would hide a difference of
    # one step.
    if grid is not None and grid.error <= min(tolerance, _STEP_ROUNDING * grid.step):
        # The summed values of two plans on a grid are equal or differ by at least a
        # step.
        margin = grid.step * (1.0 - _STEP_ROUNDING) - grid.error
        error = grid.error
    if gap < margin:
        # No plan can be better by a step.
        return ProvenPlan(greedy.choices, greedy.gain + error)
    # There are two plans. `greedy.choices` is the best plan so far, and its gain
    # determines the gap. `greedy.break_choices` is the break plan, the best one at the
    # dual price. Losses and extra costs of alternatives are relative to the break plan.
    core = _core(problem, greedy, gap)
    search = _CoreSearch(
        core,
        price=greedy.price,
        slack=greedy.slack,
        gap=gap,
        margin=margin,
        tolerance=tolerance,
    )
    is_complete = search.run()
    choices = greedy.choices
    # Positions in the core of the alternatives that the best plan takes. Empty if the
    # greedy plan stays the best.
    taken = search.best
    if len(taken):
        choices = greedy.break_choices.copy()
        choices[core.row[taken]] = core.choice[taken]
    if is_complete:
        # A search to the end proves that no plan is better: the open gap is 0.
        open_gap = 0.0
        if search.gap <= tolerance:
            # The search may have ended early at this gap.
            open_gap = search.gap
        gain = total_gain(problem, choices, greedy.cheapest)
        return ProvenPlan(choices, gain + max(open_gap, error))
    if not finish:
        return ProvenPlan(choices, greedy.bound)
    return _finish_core(problem, greedy, choices, gap=search.gap, tolerance=tolerance)


class Core(NamedTuple):
    """Choices that a better plan may have, other than the best ones at the dual price.

    The best choices at the dual price are the break plan.

    All arrays have one entry for each alternative. Alternatives of a row follow each
    other, by rising loss. Rows are in the order of the search.

    Attributes
    ----------
    row, choice : ndarray of shape (n_alternatives,), dtype=int64
        Positions of the row, and of the choice that is the alternative.
    loss : ndarray of shape (n_alternatives,)
        Net value of the choice of the break plan, less the net value of the
        alternative. A net value is a value less the dual price times the cost. Not
        negative.
    extra_cost : ndarray of shape (n_alternatives,)
        Cost of the alternative, less the cost of the choice of the break plan. May be
        negative.
    """

    row: np.ndarray
    choice: np.ndarray
    loss: np.ndarray
    extra_cost: np.ndarray


def _core(problem, greedy, gap):
    """Return the choices that lose less than `gap` against the best plan at a price.

    The break plan is the best one at the dual price. Its choices are not in the core.

    Parameters
    ----------
    problem : Problem
    greedy : GreedyPlan
        Has the break plan and the dual price.
    gap : float

    Returns
    -------
    Core
    """
    values = problem.values
    break_choices = greedy.break_choices
    all_rows = np.arange(len(values))
    costs = np.broadcast_to(problem.costs, values.shape)
    break_costs = costs[all_rows, break_choices]
    # Differences of values come first, so that an offset of the values has no effect.
    # (n_rows, n_choices)
    loss = values[all_rows, break_choices][:, np.newaxis] - values
    loss -= greedy.price * (break_costs[:, np.newaxis] - problem.costs)
    # Infinity: the best choice at the dual price is no alternative to itself.
    loss[all_rows, break_choices] = np.inf
    row, choice = np.nonzero(loss < gap)
    # Losses below 0 are rounding.
    core_loss = np.maximum(loss[row, choice], 0.0)
    extra_cost = costs[row, choice] - break_costs[row]
    turn_of_row = _turn_of_rows(row, core_loss, extra_cost, n_rows=len(values))
    # By turn of the row, then by row and loss. `lexsort` sorts by its last key first.
    search_order = np.lexsort((core_loss, row, turn_of_row[row]))
    return Core(
        row=row[search_order],
        choice=choice[search_order],
        loss=core_loss[search_order],
        extra_cost=extra_cost[search_order],
    )


def _turn_of_rows(row, loss, extra_cost, *, n_rows):
    """Return a sort key for each row. The search takes the rows by rising key.

    There are two groups: rows that have a more expensive alternative, and rows that
    have none. Each group is sorted by the smallest loss of the row. A row of one group
    follows a row of the other group, so that the search finds combinations that free
    money and spend it.

    Parameters
    ----------
    row, loss, extra_cost : ndarray of shape (n_alternatives,)
        As in `Core`, in any order.
    n_rows : int

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    # Infinity: a row without alternatives.
    smallest_loss = np.full(n_rows, np.inf)
    np.minimum.at(smallest_loss, row, loss)
    can_spend = np.isin(np.arange(n_rows), row[extra_cost > 0])
    turn_of_row = np.empty(n_rows)
    # Rows that cannot spend more have the turns 0, 1, 2, ... The others have the turns
    # 0.5, 1.5, 2.5, ...
    for rows, first_turn in (
        (np.flatnonzero(~can_spend), 0.0),
        (np.flatnonzero(can_spend), 0.5),
    ):
        by_loss = rows[np.argsort(smallest_loss[rows], kind="stable")]
        turn_of_row[by_loss] = np.arange(len(rows)) + first_turn
    return turn_of_row


# Entry of `_States.alternative` for a row that keeps its best choice at the dual price.
_NO_ALTERNATIVE = -1


class _States(NamedTuple):
    """Combinations of changed rows (states) that the search has after a row.

    A state is a set of alternatives, with at most one for each row so far.

    Attributes
    ----------
    extra_cost, loss : ndarray of shape (n_states,)
        Sums over the alternatives of each state.
    previous : ndarray of shape (n_states,), dtype=int64
        Position of the state before this row, among the states after the row before.
    alternative : ndarray of shape (n_states,), dtype=int64
        Position in the core of the alternative of this row, or `_NO_ALTERNATIVE`.
    """

    extra_cost: np.ndarray
    loss: np.ndarray
    previous: np.ndarray
    alternative: np.ndarray


class _Extension(NamedTuple):
    """New states of the search: each state before a row, with each choice of this row.

    The states come in groups. Group 0 has no alternative in this row. Group 1 has the
    first alternative of the row, group 2 the second one, and so on.

    Attributes
    ----------
    extra_cost, loss : ndarray of shape (n_before * (n_alternatives + 1),)
        Sums over the alternatives of each state.
    n_before : int
        Number of states before the row.
    start : int
        Position in the core of the first alternative of the row.
    """

    extra_cost: np.ndarray
    loss: np.ndarray
    n_before: int
    start: int

    def select(self, index):
        """Return the states at the positions `index` as `_States`.

        `index` (n_selected,) has positions in `extra_cost` and `loss`.
        """
        group = index // self.n_before
        # States of group 1 have the row's first alternative, at `start`. States of
        # group 0 have no alternative, and get `_NO_ALTERNATIVE` below.
        alternative = self.start + group - 1
        return _States(
            extra_cost=self.extra_cost[index],
            loss=self.loss[index],
            previous=index % self.n_before,
            alternative=np.where(index < self.n_before, _NO_ALTERNATIVE, alternative),
        )


class _CoreSearch:
    """Search of a core for the best combination of alternatives, row after row.

    The value of a plan is the bound of the relaxation minus its gap. A combination that
    fits has a gap of ``sum(loss) + price * (slack - sum(extra_cost))``. States that
    cannot lead to a smaller gap than the best one are dropped, as are states that
    another state dominates.

    Parameters
    ----------
    core : Core
    price : float
        Dual price.
    slack : float
        What the break plan leaves of the budget, as a sum over rows.
    gap : float
        Gap of the best plan so far.
    margin : float
        A better plan has a gap that is smaller by more than this.
    tolerance : float
        Gap at which the search ends.

    Attributes
    ----------
    gap : float
        Gap of the best plan.
    best : list of int
        Positions in the core of the alternatives of the best plan. Empty if the search
        found no plan that is better than the first one.
    """

    def __init__(self, core, *, price, slack, gap, margin, tolerance):
        self.core = core
        self.price = price
        self.slack = slack
        self.gap = gap
        self.margin = margin
        self.tolerance = tolerance
        self.best = []
        # `_States` after each row whose alternatives were tried, in order.
        self._levels = []

    def run(self):
        """Search the core. Return False if there are more than `_MAX_STATES` states."""
        core = self.core
        if not len(core.row):
            return True
        # True for the first alternative of each row.
        is_first = np.r_[True, core.row[1:] != core.row[:-1]]
        # The alternatives of row `core_row` of the core are those from position
        # ``starts[core_row]`` to before ``ends[core_row]``.
        starts = np.flatnonzero(is_first)
        ends = np.append(starts[1:], len(core.row))
        # Smallest loss in a row and all rows after it. The first alternative of a row
        # loses least, because they are sorted by loss.
        smallest_loss_left = np.minimum.accumulate(core.loss[starts][::-1])[::-1]
        # Largest amounts that all later rows together can spend, and can free.
        spendable = _sum_over_later_rows(core.extra_cost, starts)
        freeable = _sum_over_later_rows(-core.extra_cost, starts)
        # The only state before the first row has no changes. `previous` is not read.
        states = _States(
            extra_cost=np.zeros(1),
            loss=np.zeros(1),
            previous=np.zeros(1, dtype=np.int64),
            alternative=np.full(1, _NO_ALTERNATIVE),
        )
        n_states = 0  # number of states that were made so far
        for core_row in range(len(starts)):
            if self.gap <= self.tolerance:
                break
            if smallest_loss_left[core_row] >= self.gap - self.margin:
                # No alternative that is left leads to a better plan.
                break
            start = starts[core_row]
            end = ends[core_row]
            if core.loss[start] >= self.gap - self.margin:
                # No alternative of this row leads to a better plan.
                continue
            # Each state is extended by each alternative, and by the best choice at the
            # dual price.
            n_states += len(states.loss) * (end - start + 1)
            if n_states > _MAX_STATES:
                return False
            extension = self._extend(states, start, end)
            self._update_best(extension)
            states = self._promising_states(
                extension, spendable[core_row], freeable[core_row]
            )
            self._levels.append(states)
            if not len(states.loss):
                # No state can lead to a better plan.
                break
        return True

    def _extend(self, states, start, end):
        """Combine each state with each alternative of a row, and with none.

        Parameters
        ----------
        states : _States
            The states after the row before.
        start, end : int
            The row's alternatives are ``start:end`` in the core.

        Returns
        -------
        _Extension
        """
        # First comes the best choice at the dual price, without extra cost and loss.
        row_costs = np.append(0.0, self.core.extra_cost[start:end])
        row_losses = np.append(0.0, self.core.loss[start:end])
        return _Extension(
            extra_cost=np.add.outer(row_costs, states.extra_cost).ravel(),
            loss=np.add.outer(row_losses, states.loss).ravel(),
            n_before=len(states.loss),
            start=start,
        )

    def _update_best(self, extension):
        """Set `gap` and `best` if a state that fits is better than the best plan.

        Parameters
        ----------
        extension : _Extension
            The states after the present row. `_levels` has the states after the rows
            before it.
        """
        room = self.slack - extension.extra_cost
        gap_if_it_fits = extension.loss + self.price * room
        fits = extension.extra_cost <= self.slack
        # Infinity: a state above the budget is no plan.
        gaps = np.where(fits, gap_if_it_fits, np.inf)
        if not gaps.min() < self.gap - self.margin:
            return
        index = int(gaps.argmin())
        self.gap = float(gaps[index])
        self.best = []
        # The loop goes back through the rows to the first one. At the last row, the
        # best state is the only one, at position 0.
        last_level = extension.select(np.array([index]))
        position = 0
        for level in [last_level, *reversed(self._levels)]:
            if level.alternative[position] != _NO_ALTERNATIVE:
                self.best.append(level.alternative[position])
            position = level.previous[position]

    def _promising_states(self, extension, spendable, freeable):
        """Return the states that may lead to a better plan, by rising cost.

        Parameters
        ----------
        extension : _Extension
        spendable, freeable : float
            The largest amounts that all later rows together can spend in addition to
            the break plan, and free from it.

        Returns
        -------
        _States
        """
        spent = extension.extra_cost
        # Least part of the budget that is left after all later rows.
        unspent = np.maximum(self.slack - spent - spendable, 0.0)
        smallest_gap = extension.loss + self.price * unspent
        may_improve = smallest_gap < self.gap - self.margin
        may_fit = spent - freeable <= self.slack
        promising = np.flatnonzero(may_improve & may_fit)
        by_cost = promising[np.argsort(spent[promising], kind="stable")]
        # A state is dominated if another one costs no more and is worth no less.
        worth = self.price * spent[by_cost] - extension.loss[by_cost]
        highest_worth_before = np.maximum.accumulate(worth)[:-1]
        rounding = _SAME_WORTH * (self.gap + np.abs(highest_worth_before))
        is_worth_more = worth[1:] > highest_worth_before + rounding
        # No state dominates the cheapest one. The slice is for the case without states.
        is_undominated = np.append(True, is_worth_more)[: len(by_cost)]
        return extension.select(by_cost[is_undominated])


def _sum_over_later_rows(amount, starts):
    """Return, for each row, the sum of the largest amounts of all later rows.

    A row whose amounts are all negative counts as 0.

    Parameters
    ----------
    amount : ndarray of shape (n_alternatives,)
    starts : ndarray of shape (n_core_rows,)
        Position of the first alternative of each row.

    Returns
    -------
    ndarray of shape (n_core_rows,)
        0 for the last row.
    """
    # 0 for a row without a positive amount: it keeps its best choice at the dual price.
    largest = np.maximum.reduceat(amount.clip(0.0), starts)
    from_row_on = np.cumsum(largest[::-1])[::-1]
    # Without the row itself: the sum from the next row on.
    return np.append(from_row_on, 0.0)[1:]


def _finish_core(problem, greedy, choices, *, gap, tolerance):
    """Improve the plan `choices` by HiGHS, on the rows that may still change.

    Parameters
    ----------
    problem : Problem
    greedy : GreedyPlan
    choices : ndarray of shape (n_rows,)
        The best plan so far.
    gap : float
        The gap of this plan.
    tolerance : float
        Gap at which HiGHS stops, in the unit of summed values.

    Returns
    -------
    ProvenPlan
    """
    values = problem.values
    break_choices = greedy.break_choices
    core = _core(problem, greedy, gap)
    # The row of each alternative is ``rows[position_of_row]``.
    rows, position_of_row = np.unique(core.row, return_inverse=True)
    core_rows = np.arange(len(rows))
    # Rows of the core may have their alternatives or their best choice at the dual
    # price. All other rows have their best choice at the dual price.
    allowed = np.zeros((len(rows), values.shape[1]), dtype=bool)
    allowed[position_of_row, core.choice] = True
    allowed[core_rows, break_choices[rows]] = True
    costs = np.ascontiguousarray(np.broadcast_to(problem.costs, values.shape)[rows])
    # `room` is the budget of the core: what the rows outside of it leave of the total.
    break_cost_inside = costs[core_rows, break_choices[rows]].sum()
    room = problem.total - total_cost(problem, break_choices) + break_cost_inside
    core_problem = Problem(values[rows], costs, total=float(room), order=problem.order)
    core_plan = solve_highs(core_problem, tolerance, allowed=allowed)
    plan = break_choices.copy()
    plan[rows] = core_plan.choices
    gain = total_gain(problem, choices, greedy.cheapest)
    plan_gain = total_gain(problem, plan, greedy.cheapest)
    # The gain of the rows outside of the core is fixed.
    core_gain = total_gain(
        core_problem, core_plan.choices, cheapest_choices(core_problem)
    )
    gain_outside = plan_gain - core_gain
    best = plan if plan_gain > gain else choices
    return ProvenPlan(best, core_plan.bound + gain_outside)


# The whole integer program, as a reference --------------------------------------------


class ScaledProgram(NamedTuple):
    """The integer program in units in which its largest numbers are about 1.

    Solvers have absolute tolerances. Values and costs are relative to the cheapest
    choice of each row, so that an offset of either has no effect.

    Attributes
    ----------
    gains : ndarray of shape (n_rows, n_choices)
        Values minus the values of the cheapest choices. 0 if a choice is not usable.
    extra_costs : ndarray of shape (n_rows, n_choices)
        Costs minus the costs of the cheapest choices. 0 if a choice is not usable.
    usable : ndarray of shape (n_rows, n_choices), dtype=bool
        Choices that a best plan may have.
    room : float
        Amount that all rows may spend in addition to the cheapest plan.
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
    """Return a problem scaled for a solver, without choices that no best plan needs.

    Parameters
    ----------
    problem : Problem
    allowed : ndarray of shape (n_rows, n_choices), dtype=bool, default=None
        Choices that a plan may have. None allows all.

    Returns
    -------
    ScaledProgram
    """
    values = problem.values
    costs = np.broadcast_to(problem.costs, values.shape)
    rows = np.arange(len(values))
    cheapest = cheapest_choices(problem)
    gains = values - values[rows, cheapest][:, np.newaxis]
    extra_costs = costs - costs[rows, cheapest][:, np.newaxis]
    room = max(problem.room_beyond(cheapest), 0.0)
    # Choices that cost more without a gain, or do not fit alone, would only affect the
    # scale.
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
    """Return the next power of two above a number that is not negative, or 1 for 0.

    Division by a power of two does not round.
    """
    if number == 0:
        return 1.0
    _, exponent = np.frexp(number)
    return float(np.ldexp(1.0, exponent))


def within_cap(problem, program, solve):
    """Call a solver until its plan is within the budget. Return the plan and a bound.

    The budget is a hard cap. If a plan exceeds it, the solver is called again with less
    room. The room shrinks by more than the excess, and by more each time.

    Parameters
    ----------
    problem : Problem
    program : ScaledProgram
    solve : callable
        ``solve(room)`` returns the choices, and an upper bound on the gain. The bound
        is None if the solver has none.

    Returns
    -------
    ProvenPlan
    """
    cap = problem.total + problem.slack_for_rounding
    room = program.room
    # Least amount by which the room shrinks from one call to the next.
    reduction = _FEASIBILITY
    # This bound is for the whole budget. Bounds for less room prove nothing about the
    # whole budget, and are not used.
    choices, bound = solve(room)
    for _ in range(_MAX_CALLS):
        excess = (total_cost(problem, choices) - cap) / program.cost_unit
        if excess <= 0:
            return ProvenPlan(choices, bound)
        # Twice the excess, because the next plan may exceed its room by as much.
        room = max(room - max(2 * excess, reduction), 0.0)
        # The factor 4 lets the reduction grow from 1e-9 to 4 in 16 calls. The largest
        # extra cost is about 1.
        reduction *= 4
        choices, _ = solve(room)
    raise RuntimeError(
        "The plans of the solver exceed the budget by "
        f"{excess * program.cost_unit:.3g} after {_MAX_CALLS} calls: its tolerance is "
        "too coarse for the scale of the costs, which differ too much within one "
        'problem. Use solver="exact".'
    )


def solve_highs(problem, tolerance, *, allowed=None, options=None):
    """Solve the integer program by HiGHS.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        Gap at which HiGHS stops, in the unit of summed values.
    allowed : ndarray of shape (n_rows, n_choices), dtype=bool, default=None
        Choices that a plan may have. None allows all.
    options : dict, default=None
        Options of HiGHS by name.

    Returns
    -------
    ProvenPlan
    """
    import highspy

    from skroute.assignment._highs import SilentHighs

    program = scaled_program(problem, allowed)
    n_rows, n_choices = program.gains.shape
    model = SilentHighs()
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
    model.passModel(_highs_program(program))

    def solve(room):
        """Return the choices of HiGHS that cost at most `room`, and its bound."""
        # The last constraint is the budget.
        model.changeRowBounds(n_rows, -np.inf, room)
        model.run()
        info = model.getInfo()
        if (
            info.primal_solution_status
            != highspy.SolutionStatus.kSolutionStatusFeasible
        ):
            status = model.modelStatusToString(model.getModelStatus())
            raise RuntimeError(f"HiGHS ended without a plan: {status}.")
        # About 1 for the choice that a row has, and about 0 for its other choices.
        taken = np.asarray(model.getSolution().col_value)
        choices = taken.reshape(n_rows, n_choices).argmax(axis=1)
        return choices, float(info.mip_dual_bound) * program.value_unit

    return within_cap(problem, program, solve)


def _highs_program(program):
    """Return the integer program as an object of HiGHS, with an unlimited budget.

    `program` is a `ScaledProgram`. The program of HiGHS has a variable for each row and
    choice, all variables of the first row first. Its constraints are one choice for
    each row, and the budget as the last one.
    """
    import highspy

    n_rows, n_choices = program.gains.shape
    n_variables = n_rows * n_choices
    lp = highspy.HighsLp()
    lp.num_col_ = n_variables
    lp.num_row_ = n_rows + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = program.gains.ravel()
    lp.col_lower_ = np.zeros(n_variables)
    lp.col_upper_ = program.usable.ravel().astype(np.float64)
    lp.row_lower_ = np.r_[np.ones(n_rows), -np.inf]
    lp.row_upper_ = np.r_[np.ones(n_rows), np.inf]
    # Each variable is in two constraints: one choice for its row, and the budget.
    row_constraint = np.repeat(np.arange(n_rows, dtype=np.int32), n_choices)
    budget_constraint = np.full_like(row_constraint, n_rows)
    constraints = np.column_stack([row_constraint, budget_constraint])
    coefficients = np.column_stack([np.ones(n_variables), program.extra_costs.ravel()])
    # The matrix has two entries for each variable. The entries of variable `i` start at
    # position ``2 * i``.
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * n_variables + 1, 2, dtype=np.int32)
    lp.a_matrix_.index_ = constraints.ravel()
    lp.a_matrix_.value_ = coefficients.ravel()
    lp.integrality_ = [highspy.HighsVarType.kInteger] * n_variables
    return lp


def solve_cvxpy(problem, tolerance, options):
    """Return the plan of a solver of cvxpy. These solvers return no bound.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        Gap at which the default solver ends, in the unit of summed values.
    options : dict or None
        Keyword arguments of ``cvxpy.Problem.solve``. None or empty takes HiGHS.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    cp = import_optional("cvxpy", 'solve_assignment(solver="cvxpy")')
    program = scaled_program(problem)
    if not options:
        mip_abs_gap = tolerance / program.value_unit
        options = {"solver": "HIGHS", **_HIGHS, "mip_abs_gap": mip_abs_gap}

    def solve(room):
        """Return the choices of the solver that cost at most `room`, and no bound."""
        is_taken = cp.Variable(program.gains.shape, boolean=True)
        constraints = [
            cp.sum(is_taken, axis=1) == 1,
            is_taken <= program.usable.astype(np.float64),
        ]
        if np.isfinite(room):
            spent = cp.sum(cp.multiply(program.extra_costs, is_taken))
            constraints.append(spent <= room)
        gain = cp.sum(cp.multiply(program.gains, is_taken))
        integer_program = cp.Problem(cp.Maximize(gain), constraints)
        integer_program.solve(**options)
        if is_taken.value is None:
            raise RuntimeError(f"cvxpy ended without a plan: {integer_program.status}.")
        return is_taken.value.argmax(axis=1), None

    return within_cap(problem, program, solve).choices
