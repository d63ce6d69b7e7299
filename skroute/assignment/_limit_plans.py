"""Integer plans within several limits, from the prices of the relaxation."""

from typing import NamedTuple

import numpy as np

from skroute.assignment._dual import ConflictError
from skroute.utils._tolerances import TINY

# Number of alternatives that the local search can change rows to. With 100, gaps of
# 1e-4 are left at 1,000 rows. Twice as many take four times as long.
_CORE_SIZE = 200

# Number of options (a row with another choice) that the local search makes the start of
# a further search, one after the other. At 1,000 rows, 60 options halve the gaps, and
# take as long as the search for the prices.
_MAX_FORCED = 60

# The local search makes no further searches if its plan is within this distance of the
# bound. The unit is the mean spread (largest less smallest number) of a row's values.
_SMALL_GAP = 1e-5

# As `_CORE_SIZE`, for a second local search if the first one finds no plan that fits.
# Four times as many.
_LARGE_CORE_SIZE = 800

# Largest number of alternatives for which solver="auto" calls HiGHS. HiGHS proves the
# optimum of a program of this size in some milliseconds.
_SMALL_CORE = 30

# Absolute tolerance of constraints of HiGHS. Its numbers are about 1.
_FEASIBILITY = 1e-9

# Largest number of calls of HiGHS for one problem. Each call has smaller limits than
# the one before, because plans of HiGHS may exceed limits by its tolerance.
_MAX_CALLS = 10


class LimitedPlan(NamedTuple):
    """A plan within all limits, with a bound.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,), dtype=int64
        The plan: position of the choice of each row.
    value : float
        Mean value of the plan.
    bound : float
        No plan within the limits has a larger mean value.
    means : ndarray of shape (n_limits,)
        Mean amounts of the plan.
    prices : ndarray of shape (n_limits,)
        Value per unit of each amount at the margin. 0 for a limit that does not bind.
    """

    choices: np.ndarray
    value: float
    bound: float
    means: np.ndarray
    prices: np.ndarray


class Core(NamedTuple):
    """The rows that a search may change, and their options.

    An option is a row with one of its choices. Scaled units are those of
    `DualFunction`: values and amounts are divided by the mean spread of a row.

    Attributes
    ----------
    rows : ndarray of shape (n_core_rows,)
        Positions of the rows, rising.
    starts : ndarray of shape (n_core_rows + 1,), dtype=int64
        The options of row ``rows[j]`` are ``starts[j]:starts[j + 1]``.
    core_row : ndarray of shape (n_options,), dtype=int64
        Position in `rows` of the row of each option.
    choice : ndarray of shape (n_options,), dtype=int64
        Position of the choice of each option.
    gain : ndarray of shape (n_options,)
        Weighted gain, in scaled units.
    use : ndarray of shape (n_options, n_limits)
        Weighted amounts, in scaled units.
    """

    rows: np.ndarray
    starts: np.ndarray
    core_row: np.ndarray
    choice: np.ndarray
    gain: np.ndarray
    use: np.ndarray


def plan_within(dual, most, *, solver="auto", tol=0.0, options=None):
    """Return the best plan that is found within the limits.

    Parameters
    ----------
    dual : DualFunction
        Without realised amounts, so that the limits are on the deciding amounts.
    most : ndarray of shape (n_limits,)
        The limits: the largest mean of each amount. A floor ``f`` is a limit ``-f``.
    solver : {"auto", "exact", "highs"}, default="auto"
        "auto" takes HiGHS only for small cores, or if the local search finds no plan.
        "exact" takes HiGHS to close the gap that the local search leaves, on the
        alternatives that may improve the plan. "highs" takes HiGHS on all alternatives,
        without a local search.
    tol : float, default=0.0
        Relative gap at which the search ends.
    options : dict, default=None
        Options of HiGHS by name.

    Returns
    -------
    LimitedPlan

    Raises
    ------
    ConflictError
        If no plan meets the limits.
    RuntimeError
        If HiGHS ends without a plan, at a limit of `options`.
    """
    limit_prices = _prices_of_whole_rows(dual, most)
    choices, bound = _find_plan(
        dual, most, limit_prices, solver=solver, tol=tol, options=options
    )
    value, means = dual.means_of(choices)
    return LimitedPlan(
        choices=choices,
        value=value,
        # By rounding, the bound may be below the value.
        bound=max(bound, value),
        means=means,
        prices=limit_prices.prices,
    )


def _prices_of_whole_rows(dual, most):
    """Round limits down to means that one choice per row allows. Return the prices.

    Parameters
    ----------
    dual : DualFunction
    most : ndarray of shape (n_limits,)
        The limits of the user, not rounded for whole rows.

    Raises
    ------
    ConflictError
        If no plan meets the limits.
    """
    try:
        return dual.prices_for(dual.whole_limits(most))
    except ConflictError:
        # If not even mixtures of plans meet the limits of the user, this raises an
        # error about these limits.
        dual.prices_for(most)
        raise ConflictError(dual, most, in_whole_rows=True) from None


def _find_plan(dual, most, limit_prices, *, solver, tol, options):
    """Return the best plan that is found, and a bound on the value of all plans.

    Parameters
    ----------
    dual, most, solver, tol, options
        As in `plan_within`.
    limit_prices : LimitPrices

    Returns
    -------
    choices : ndarray of shape (n_rows,)
    bound : float
        Upper bound on the mean value.

    Raises
    ------
    ConflictError
        If neither the local search nor HiGHS finds a plan of whole rows.
    """
    losses = dual.losses_at(limit_prices.prices)  # (n_rows, n_choices), weighted
    bases = _base_plans(dual, limit_prices)
    # Each row has its best choice at the prices: the losses of this plan are 0.
    plan_at_prices = bases[0]
    bound = limit_prices.bound
    # The best plan so far. None until a plan within the limits is found.
    best = None
    if solver != "highs":
        best = _search_near(
            dual, most, bases, losses, bound=bound, n_alternatives=_CORE_SIZE
        )
        if best is None:
            best = _search_near(
                dual, most, bases, losses, bound=bound, n_alternatives=_LARGE_CORE_SIZE
            )
    # Infinity: there is no plan yet, so that no alternative can be left out.
    open_gap = np.inf
    closed_gap = tol * max(abs(bound), TINY)
    if best is not None:
        open_gap = bound - dual.value_of(best)
        if open_gap <= closed_gap:
            return best, bound
    # Losses are for one row, and the gap is a difference of means. A plan with an
    # alternative has a mean value of at most ``bound - loss / n_rows``. It can be
    # better than the best plan so far only if ``loss / n_rows`` is within the gap.
    n_rows = len(losses)
    may_improve = losses <= open_gap * n_rows  # (n_rows, n_choices)
    may_improve[np.arange(n_rows), plan_at_prices] = True
    # The choice of a row in `plan_at_prices` is no alternative.
    n_alternatives = int(may_improve.sum()) - n_rows
    if solver == "auto" and best is not None and n_alternatives > _SMALL_CORE:
        return best, bound
    proven = _solve_core(
        dual,
        most,
        plan_at_prices,
        may_improve,
        bound=bound,
        closed_gap=closed_gap,
        options=options,
    )
    if proven is None and best is None:
        # All alternatives were in the core, and HiGHS found no plan that fits.
        raise ConflictError(dual, most, in_whole_rows=True)
    if proven is None:
        # HiGHS found no plan that could be better: the best plan so far is optimal.
        return best, dual.value_of(best)
    choices, core_bound = proven
    if best is not None and dual.value_of(best) > dual.value_of(choices):
        choices = best
    return choices, min(bound, core_bound)


def _room(dual, most, choices):
    """Return what a plan leaves of the limits, as sums over the rows.

    `most` (n_limits,) are the limits, and `choices` (n_rows,) is the plan. The result
    (n_limits,) is in scaled units, and includes the slack for rounding. A negative
    number means that the plan is above the limit.
    """
    _, means = dual.means_of(choices)
    return (most - means + dual.slack(most)) / dual.units * len(choices)


# The local search ---------------------------------------------------------------------


def _base_plans(dual, limit_prices):
    """Return the plans that the local search starts from.

    The relaxation is a mixture of plans, each with a share. The first plan of the
    result is the best one at the prices. The second plan mixes whole rows. Rows to
    which each mixed plan gives the same choice are one group, and in each group a mixed
    plan decides its share of the rows. The mixed plans themselves follow, without
    repetitions.

    Parameters
    ----------
    dual : DualFunction
    limit_prices : LimitPrices

    Returns
    -------
    ndarray of shape (n_plans, n_rows)
    """
    plan_at_prices = dual.plan_at(limit_prices.prices)
    # (n_mixed, n_rows)
    mixed = np.array([dual.plan_at(point) for point in limit_prices.points])
    # The plans differ in rows that are tied at the prices.
    is_tied = (mixed != mixed[0]).any(axis=0)
    mixture = mixed[0].copy()
    tied_rows = np.flatnonzero(is_tied)
    if len(tied_rows):
        # Tied rows are in one group if each mixed plan gives them the same choice.
        _, group = np.unique(mixed[:, tied_rows], axis=1, return_inverse=True)
        group = group.ravel()
        by_group = np.argsort(group, kind="stable")
        group_size = np.bincount(group)
        first_of_group = np.cumsum(group_size) - group_size
        sorted_group = group[by_group]
        # Number of rows of the same group that come before each row.
        rank = np.arange(len(group)) - first_of_group[sorted_group]
        # The interval from 0 to 1 is divided equally among the rows of a group. The
        # place of a row is the middle of its part.
        place = (rank + 0.5) / group_size[sorted_group]
        # The interval from 0 to 1 is also divided among the mixed plans, by their
        # shares. A row takes its choice from the plan whose part contains the row's
        # place. The last part ends at 1, up to rounding. Its end is left out.
        ends_of_intervals = np.cumsum(limit_prices.shares)[:-1]
        plan_of_row = np.searchsorted(ends_of_intervals, place, side="right")
        rows = tied_rows[by_group]
        mixture[rows] = mixed[plan_of_row, rows]
    plans = [plan_at_prices, mixture]
    for plan in mixed:
        is_new = all((plan != other).any() for other in plans)
        if is_new:
            plans.append(plan)
    return np.array(plans)


def _search_near(dual, most, bases, losses, *, bound, n_alternatives):
    """Return the best plan that is found near `bases`, or None if no such plan fits.

    Parameters
    ----------
    dual : DualFunction
    most : ndarray of shape (n_limits,)
        The limits.
    bases : ndarray of shape (n_plans, n_rows)
        The first is the plan at the prices, which loses nothing.
    losses : ndarray of shape (n_rows, n_choices)
        What each choice loses at the prices.
    bound : float
        Upper bound on the mean value.
    n_alternatives : int
        Number of alternatives that rows may change to. They have the smallest losses.

    Returns
    -------
    ndarray of shape (n_rows,), or None
        None if the searches find no plan that fits. There may be one.
    """
    n_rows = len(losses)
    loss_of_alternative = losses.copy()
    # Infinity: a choice of the plan at the prices is no alternative.
    loss_of_alternative[np.arange(n_rows), bases[0]] = np.inf
    n_alternatives = min(n_alternatives, loss_of_alternative.size)
    # Positions in the flat table, the alternatives of the smallest losses first.
    partition = np.argpartition(loss_of_alternative, n_alternatives - 1, axis=None)
    is_option = np.zeros(losses.shape, dtype=bool)
    is_option.ravel()[partition[:n_alternatives]] = True
    # Choices that are not allowed have infinite losses, too. They are not options.
    is_option &= np.isfinite(loss_of_alternative)
    rows = np.flatnonzero(is_option.any(axis=1))
    # The options of a row are its alternatives and its choices in the base plans.
    for base in bases:
        is_option[rows, base[rows]] = True
    core = _core(dual, is_option, rows)
    loss_of_option = losses[rows[core.core_row], core.choice]
    by_loss = np.argsort(loss_of_option, kind="stable")
    # To force an option is to start a search with the option as the choice of its row.
    # In the first search, no option is forced.
    no_options = by_loss[:0]
    best = _best_search(dual, most, bases, core, forced=no_options, target=bound)
    if best is None:
        # No plan fits: options are forced, one after the other, until a plan fits. The
        # target -inf is reached by any plan that fits.
        best = _best_search(dual, most, bases, core, forced=by_loss, target=-np.inf)
    if best is None:
        return None
    target = bound - _SMALL_GAP * dual.value_unit
    if dual.value_of(best) >= target:
        return best
    # The gap is large: the options of the smallest losses are forced.
    forced = by_loss[:_MAX_FORCED]
    bases = best[np.newaxis]
    return _best_search(dual, most, bases, core, forced=forced, target=target)


def _best_search(dual, most, bases, core, *, forced, target):
    """Return the best plan of local searches from `bases`, or None if none fits.

    None means that no search found a plan within the limits.

    Parameters
    ----------
    dual, most, bases
        As in `_search_near`.
    core : Core
        The options that the searches may change rows to.
    forced : ndarray of shape (n_forced,), dtype=int64
        Options of the core. Each in turn becomes the choice of its row, and the search
        is repeated.
    target : float
        A search ends at a plan of this mean value. With -inf, it ends at any plan that
        fits.
    """
    best = None
    best_value = -np.inf
    for base in bases:
        choices = _improve(dual, most, base, core, forced=forced, target=target)
        # None if the search ended above a limit.
        if choices is None:
            continue
        value = dual.value_of(choices)
        if value > best_value:
            best = choices
            best_value = value
    return best


def _core(dual, is_option, rows):
    """Return the options of some rows, with their gains and amounts (`Core`).

    Parameters
    ----------
    dual : DualFunction
    is_option : ndarray of shape (n_rows, n_choices), dtype=bool
        The alternatives, with the choices of the base plans.
    rows : ndarray of shape (n_core_rows,)
        The rows with options, rising.

    Returns
    -------
    Core
    """
    core_row, choice = np.nonzero(is_option[rows])
    option_row = rows[core_row]
    tables = dual.tables
    weight = tables.weight[option_row]
    gain = weight * tables.gains[choice, option_row]
    # The columns are means of amounts, capacities and floors, as in `DualFunction`.
    use = np.zeros((len(choice), dual.n_limits))
    amounts = tables.amounts[:, choice, option_row]  # (n_means, n_options)
    use[:, : dual.n_means] = (weight * amounts).T
    for capacity, capacity_choice in enumerate(tables.capacity_choice):
        use[:, dual.n_means + capacity] = weight * (choice == capacity_choice)
    first_floor = dual.n_means + dual.n_capacities
    segment = tables.segment[option_row]
    for floor, share in enumerate(tables.segment_share):
        # A floor is a limit on minus the mean gain of its segment. Other limits are on
        # means of all rows. The division by the segment's share makes such a mean the
        # mean of the segment.
        use[:, first_floor + floor] = -gain * (segment == floor) / share
    n_options_of_row = np.bincount(core_row, minlength=len(rows))
    return Core(
        rows=rows,
        starts=np.append(0, np.cumsum(n_options_of_row)),
        core_row=core_row,
        choice=choice,
        gain=gain / dual.value_unit,
        use=use / dual.units,
    )


def _options_of(core, choices):
    """Return the position of the option that a plan takes in each core row.

    The result has the shape (n_core_rows,). `choices` (n_rows,) is the plan. Its
    choices of the core rows must be options.
    """
    choice_in_plan = choices[core.rows][core.core_row]  # (n_options,)
    return np.flatnonzero(core.choice == choice_in_plan)


def _improve(dual, most, base, core, *, forced, target):
    """Return the plan `base` after a local search, or None if it exceeds a limit.

    Parameters
    ----------
    dual : DualFunction
    most : ndarray of shape (n_limits,)
        The limits.
    base : ndarray of shape (n_rows,)
        The choice of each row before the search.
    core : Core
        The options that the search may change rows to.
    forced : ndarray of shape (n_forced,), dtype=int64
        Positions of the options to force, the most promising first. Each in turn
        becomes the choice of its row, and the search is repeated.
    target : float
        The search ends at a plan of this mean value. With -inf, it ends at any plan
        that fits.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64, or None
    """
    from skroute.assignment import _limit_kernels

    room = _room(dual, most, base)
    current = _options_of(core, base)
    # For each option, the option of the same row that the base plan takes.
    base_option = current[core.core_row]
    # Gains and uses of the options, less the gains and uses of these base options.
    gain = core.gain - core.gain[base_option]
    extra = core.use - core.use[base_option]
    # `target` is a mean value of all rows. The kernel compares summed gains of the core
    # rows, in scaled units. All other rows keep their gains. So the core rows must gain
    # all of what the base plan misses.
    missing_gain = (target - dual.value_of(base)) * len(base) / dual.value_unit
    target_gain = core.gain[current].sum() + missing_gain
    # The kernel writes into `gain`, `extra`, `room` and `current`.
    fits = _limit_kernels.search_around(
        core.starts,
        core.core_row,
        core.gain,
        gain,
        extra,
        room,
        current,
        forced,
        target_gain,
    )
    if not fits:
        return None
    choices = base.copy()
    choices[core.rows] = core.choice[current]
    # The kernel updated its room change by change. The room is computed again from
    # sums, which have less rounding.
    if (_room(dual, most, choices) < 0).any():
        return None
    return choices


# HiGHS on the core --------------------------------------------------------------------


def _solve_core(dual, most, base, is_option, *, bound, closed_gap, options):
    """Solve the problem as an integer program in HiGHS, on a few alternatives.

    Parameters
    ----------
    dual : DualFunction
    most : ndarray of shape (n_limits,)
        The limits: the largest mean of each amount.
    base : ndarray of shape (n_rows,)
        The plan that the alternatives change. It may be above limits.
    is_option : ndarray of shape (n_rows, n_choices), dtype=bool
        The alternatives, with the choices of `base`.
    bound : float
        Upper bound on the mean value.
    closed_gap : float
        Distance of the mean value from the optimum at which HiGHS ends.
    options : dict or None
        Options of HiGHS by name.

    Returns
    -------
    None if HiGHS finds no plan of the core that fits. Otherwise a pair:

    choices : ndarray of shape (n_rows,)
    core_bound : float
        Upper bound on the mean value of the plans of the core.
    """
    import highspy

    from skroute.assignment._highs import SilentHighs

    n_rows = len(base)
    value_of_base = dual.value_of(base)
    rows = np.flatnonzero(is_option.sum(axis=1) > 1)
    if not len(rows):
        # Without alternatives, the core has one plan.
        if (_room(dual, most, base) < 0).any():
            return None
        return base, value_of_base
    core = _core(dual, is_option, rows)
    # For each option, the option of the same row that the base plan takes.
    base_option = _options_of(core, base)[core.core_row]
    # Gains and uses of the options, less the gains and uses of these base options.
    gain = core.gain - core.gain[base_option]
    extra = core.use - core.use[base_option]
    model = SilentHighs()
    settings = {
        "output_flag": False,
        "mip_rel_gap": 0.0,
        # HiGHS maximises the sum over the rows, in scaled units.
        "mip_abs_gap": closed_gap * n_rows / dual.value_unit,
        "mip_feasibility_tolerance": _FEASIBILITY,
        "primal_feasibility_tolerance": _FEASIBILITY,
        **(options or {}),
    }
    for name, setting in settings.items():
        if model.setOptionValue(name, setting) != highspy.HighsStatus.kOk:
            raise ValueError(
                f"HiGHS does not take {name}={setting!r} (solver_options)."
            )
    model.passModel(_core_program(core, gain, extra))
    room = _room(dual, most, base)
    # Least amount by which the room of an exceeded limit shrinks.
    reduction = _FEASIBILITY
    # The bound of the first call holds for all plans within the limits. Later calls
    # have less room, so that their bounds prove nothing. None until the first call.
    first_bound = None
    for _ in range(_MAX_CALLS):
        for limit in range(dual.n_limits):
            # The limits are the last constraints.
            model.changeRowBounds(len(rows) + limit, -np.inf, room[limit])
        model.run()
        info = model.getInfo()
        feasible_status = highspy.SolutionStatus.kSolutionStatusFeasible
        if info.primal_solution_status != feasible_status:
            _check_infeasible(model)
            return None
        if first_bound is None:
            # HiGHS bounds the summed gains over the base plan, in scaled units.
            dual_bound = value_of_base + info.mip_dual_bound * dual.value_unit / n_rows
            first_bound = min(bound, dual_bound)
        # About 1 for the option that a row has, and about 0 for its other options.
        taken = np.asarray(model.getSolution().col_value)
        # Options by row, and within a row by falling number. The first option of each
        # row is taken.
        by_row = np.lexsort((-taken, core.core_row))
        taken_options = by_row[core.starts[:-1]]
        choices = base.copy()
        choices[rows] = core.choice[taken_options]
        excess = -_room(dual, most, choices)
        if (excess <= 0).all():
            return choices, first_bound
        # The plan is above a limit, by the tolerance of HiGHS. The limit of the next
        # call shrinks by twice the excess, because its plan may exceed it by as much.
        is_above = excess > 0
        smaller_room = room - np.maximum(2 * excess, reduction)
        room = np.where(is_above, smaller_room, room)
        # The factor 4 lets the reduction grow from 1e-9 to 3e-4 in 10 calls.
        reduction *= 4
    raise RuntimeError(
        f"The plans of HiGHS exceed the limits after {_MAX_CALLS} calls: its tolerance "
        "is too coarse for the scale of the amounts. Give amounts that differ less."
    )


def _check_infeasible(model):
    """Raise a RuntimeError unless HiGHS has proven that there is no plan.

    HiGHS ends without a plan also at a limit of its options, such as ``time_limit``.

    Parameters
    ----------
    model : SilentHighs
        After a run without a plan.
    """
    import highspy

    status = model.getModelStatus()
    if status != highspy.HighsModelStatus.kInfeasible:
        raise RuntimeError(
            f"HiGHS ended without a plan: {model.modelStatusToString(status)}. Give it "
            "more time, or leave out solver_options."
        )


def _core_program(core, gain, extra):
    """Return the integer program of a core as an object of HiGHS.

    The program has a variable for each option. The first constraints are one option for
    each row. The last constraints are the limits, which have no bound yet.

    Parameters
    ----------
    core : Core
    gain : ndarray of shape (n_options,)
        Gains over the base plan.
    extra : ndarray of shape (n_options, n_limits)
        Amounts in addition to the amounts of the base plan.

    Returns
    -------
    highspy.HighsLp
    """
    import highspy

    n_options, n_limits = extra.shape
    n_core_rows = len(core.rows)
    lp = highspy.HighsLp()
    lp.num_col_ = n_options
    lp.num_row_ = n_core_rows + n_limits
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = gain
    lp.col_lower_ = np.zeros(n_options)
    lp.col_upper_ = np.ones(n_options)
    lp.row_lower_ = np.append(np.ones(n_core_rows), np.full(n_limits, -np.inf))
    lp.row_upper_ = np.append(np.ones(n_core_rows), np.full(n_limits, np.inf))
    # The constraints of each variable, (n_options, 1 + n_limits): first the constraint
    # of its row, then all limits.
    limit_constraints = np.tile(n_core_rows + np.arange(n_limits), (n_options, 1))
    constraints = np.column_stack((core.core_row, limit_constraints))
    coefficients = np.column_stack((np.ones(n_options), extra))
    # The matrix has no zeros: a variable is not in limits on amounts that it does not
    # use.
    is_nonzero = coefficients != 0
    n_entries_of_variable = is_nonzero.sum(axis=1)
    first_entries = np.append(0, np.cumsum(n_entries_of_variable))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = first_entries.astype(np.int32)
    lp.a_matrix_.index_ = constraints[is_nonzero].astype(np.int32)
    lp.a_matrix_.value_ = coefficients[is_nonzero]
    lp.integrality_ = [highspy.HighsVarType.kInteger] * n_options
    return lp
