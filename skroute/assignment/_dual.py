r"""The dual function of several limits, and its minimum by cutting planes.

A problem has values :math:`v_{jk}` and amounts :math:`a_{rjk}` whose means must not
exceed :math:`b_r`. With prices :math:`p \ge 0` the dual function

.. math::

    g(p) = \frac1n \sum_j \max_k \Bigl( v_{jk} - \sum_r p_r a_{rjk} \Bigr)
        + \sum_r p_r b_r

is an upper bound on the mean value of all plans within the limits. Its minimum is the
optimum of the linear relaxation. The dual function is convex and piecewise linear. The
plan that is best at some prices bounds the first sum from below at all other prices (a
cut). A cut does not depend on the limits. The cuts of one call of a `DualFunction`
therefore serve all later calls.

The values get a factor :math:`q`, the value price. :math:`q = 1` is for the prices of a
problem. With :math:`q = 0`, a negative minimum proves that no plan meets the limits.
With :math:`q = 0` and a fixed price of 1 of one limit, the minimum is minus the least
amount of this limit that the other limits leave possible.
"""

from typing import NamedTuple

import numpy as np

from skroute.utils._tolerances import ROUNDING, TIE

# In this file, a spread is the largest less the smallest number of a row. *Scaled*
# values are divided by the mean spread of the rows' values, and scaled amounts by the
# mean spread of the rows' amounts. So usual scaled prices are about 1.

# Upper bound of all scaled prices in the first search. Usual scaled prices are about 1.
_FIRST_CAP = 10.0

# Factor by which the upper bound of the prices grows if a price reaches this bound.
_CAP_GROWTH = 10.0

# The upper bound of the scaled prices grows at most this many times, from 10 to 1e7.
# Higher prices would only change the choices of rows whose amounts have a spread below
# 1e-7 of the mean spread.
_MAX_GROWTHS = 6

# A price above this share of its upper bound counts as being at the bound.
_NEAR_CAP = 0.99

# The search for the prices evaluates points between the minimum of its cuts (share 0)
# and the best prices so far (share 1). At 0, the search would jump far. At 1, it would
# not move. A share in between is called the "in-out" method.
_TOWARDS_BEST = 0.5

# The search ends if the dual function at the best prices is this near to its lower
# bound, the minimum of the cuts. The unit is the mean spread of a row's values. It is a
# hundredth of 1e-5, the gap that plans of 10,000 rows should have.
_TOLERANCE = 1e-7

# Largest distance of the best prices from the prices at the minimum of the cuts, both
# scaled. Prices that are farther apart may be at two different minima.
_FAR = 1e-3

# As `_TOLERANCE`, for the search for limits that exclude each other. If they do not,
# the minimum is exactly 0. An error of this size must not look like a conflict.
_CONFLICT_TOLERANCE = 1e-10

# A minimum below this proves that limits exclude each other. The unit is the mean
# spread of a row's amounts. Ten times `_CONFLICT_TOLERANCE`, with a negative sign.
_CONFLICT = -1e-9

# Largest number of plans that a search evaluates. Most searches end after 10 to 90.
_MAX_PLANS = 2000

# Plans with a smaller share in the mixture of plans are left out. Ten times
# `_FEASIBILITY`, the tolerance of HiGHS.
_LEAST_SHARE = 1e-9

# The prices of each mixed plan are moved by this share of the way from the minimum to
# the prices at which the plan was best. The move breaks ties, and changes nothing else.
_APART = 1e-6

# Largest number of corrections of limits on estimated amounts, by which the realised
# amounts come to meet the limits of the user. Three or four are usual.
_MAX_CORRECTIONS = 12

# The corrections end if each realised mean is this near to its limit, relative to the
# limit. A closer fit would be to noise: the mean of 100,000 amounts with a standard
# deviation as large as their mean has a relative standard error of 3e-3.
_CORRECTED = 2e-3

# Feasibility tolerances of HiGHS in `CutModel`, the smallest that HiGHS accepts. The
# numbers of the model are about 1.
_FEASIBILITY = 1e-10


class LimitPrices(NamedTuple):
    """Dual prices of several limits, and the mixture of plans at these prices.

    Attributes
    ----------
    prices : ndarray of shape (n_limits,)
        Value per unit of the amount at the margin. 0 for a limit that does not bind.
    bound : float
        No plan within the limits has a larger mean value.
    points : ndarray of shape (n_mixed, n_limits)
        Prices of each mixed plan. They hardly differ from `prices`: only tied rows are
        decided differently.
    shares : ndarray of shape (n_mixed,)
        Share of each plan in the mixture. Their sum is 1.
    n_plans : int
        Number of plans that the search evaluated.
    """

    prices: np.ndarray
    bound: float
    points: np.ndarray
    shares: np.ndarray
    n_plans: int


class Search(NamedTuple):
    """The limits and the range of prices of one search, in scaled units.

    Attributes
    ----------
    value_price : float
        The factor of the values, which is fixed.
    most : ndarray of shape (n_limits,)
        The limits, on gains in place of values. A gain is a value less the best value
        of its row.
    lower, upper : ndarray of shape (n_limits,)
        Bounds of the prices. A price is fixed if its bounds are equal.
    """

    value_price: float
    most: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Minimum(NamedTuple):
    """The minimum of the dual function, or of the maximum of its cuts, in scaled units.

    Attributes
    ----------
    prices : ndarray of shape (n_limits,)
        The prices at the minimum.
    height : float
        The dual function, or the maximum of its cuts, at these prices.
    cuts : ndarray of shape (n_mixed,), dtype=int64
        Positions of the cuts that are mixed at the minimum.
    shares : ndarray of shape (n_mixed,)
        Share of each mixed cut. Their sum is 1.
    n_plans : int
        Number of plans that the search evaluated. 0 for a minimum of the cuts.
    """

    prices: np.ndarray
    height: float
    cuts: np.ndarray
    shares: np.ndarray
    n_plans: int


class CutModel:
    """Lower bounds (cuts) of a dual function, and the linear program of their minimum.

    A cut is a plan of all rows, reduced to its means. So the model has no data of rows,
    and a stream can keep it. The stream uses it to compute prices of the limits that
    are left.

    Parameters
    ----------
    n_limits : int

    Attributes
    ----------
    gains : list of float
        Mean gain of each plan.
    used : list of ndarray of shape (n_limits,)
        Mean amounts of each plan.
    points : list of ndarray of shape (1 + n_limits,)
        Prices at which each plan was best: the value price, then the prices of the
        limits.
    """

    def __init__(self, n_limits):
        self.n_limits = n_limits
        self.gains = []
        self.used = []
        self.points = []
        # The program as an object of HiGHS, made at the first use. None before the
        # first use, and in an object that was unpickled.
        self._program = None

    def __getstate__(self):
        """Return the state without the object of HiGHS, which cannot be pickled."""
        return {**self.__dict__, "_program": None}

    def __len__(self):
        """Return the number of cuts."""
        return len(self.gains)

    def add(self, gain, used, value_price, prices):
        """Add the cut of a plan, from its means and the prices at which it is best.

        The cut is at most the dual function, and equal to it at these prices.

        Parameters
        ----------
        gain : float
            Mean gain of the plan.
        used : ndarray of shape (n_limits,)
            Mean amounts of the plan.
        value_price : float
            The factor of the values at which the plan is best.
        prices : ndarray of shape (n_limits,)
            The prices at which the plan is best.
        """
        self.gains.append(gain)
        self.used.append(used)
        self.points.append(np.append(value_price, prices))
        if self._program is not None:
            self._add_row(gain, used)

    def lowest(self, search):
        """Find the prices at which the maximum of all cuts is smallest.

        The program has the variables value price, prices and height, in this order. It
        minimises the sum of the prices times the limits, plus the height. Its
        constraints are the cuts, as in `_add_row`. There must be at least one cut, or
        the height would have no lower bound.

        Parameters
        ----------
        search : Search
            The value price, the limits, and the bounds of the prices.

        Returns
        -------
        Minimum

        Raises
        ------
        RuntimeError
            If HiGHS finds no minimum.
        """
        if self._program is None:
            self._start_program()
        program = self._program
        # The value price and the prices change. The last variable, the height (maximum
        # of the cuts), keeps its bounds and its cost of 1.
        columns = np.arange(self.n_limits + 1, dtype=np.int32)
        # Equal bounds fix the value price.
        lower = np.append(search.value_price, search.lower)
        upper = np.append(search.value_price, search.upper)
        program.changeColsBounds(len(columns), columns, lower, upper)
        # The cost of the value price is 0. The cost of each price is its limit.
        objective = np.append(0.0, search.most)
        program.changeColsCost(len(columns), columns, objective)
        self._run()
        solution = program.getSolution()
        # The duals of the cuts are the shares of their plans in the mixture. The duals
        # sum to 1, because the height (maximum of the cuts) has the cost 1, and the
        # coefficient 1 in each cut.
        shares = np.array(solution.row_dual)
        cuts = np.flatnonzero(shares > _LEAST_SHARE)
        # The first variable is the value price, and the last one is the height. The
        # prices of the limits are between them.
        prices = np.array(solution.col_value)[1:-1]
        return Minimum(
            prices=prices,
            height=program.getInfo().objective_function_value,
            cuts=cuts,
            shares=shares[cuts] / shares[cuts].sum(),
            n_plans=0,  # no new plan is evaluated
        )

    def _start_program(self):
        """Make the linear program that `lowest` solves, with all cuts so far.

        Its objective is the height, which is the largest cut at the prices. `lowest`
        adds the prices times the limits to the objective, and sets the bounds.
        """
        import highspy

        from skroute.assignment._highs import SilentHighs

        program = SilentHighs()
        # More threads cost more than they save on some hundred numbers. The option
        # "threads" cannot be used: all programs of a process must have the number of
        # threads of the first one.
        program.setOptionValue("parallel", "off")
        program.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
        program.setOptionValue("dual_feasibility_tolerance", _FEASIBILITY)
        # Variables: the value price, the prices of the limits, and the height, which is
        # the maximum of the cuts.
        n_columns = self.n_limits + 2
        lower = np.zeros(n_columns)
        # The height (maximum of the cuts) may have any sign.
        lower[-1] = -highspy.kHighsInf
        program.addVars(n_columns, lower, np.full(n_columns, highspy.kHighsInf))
        # The height (maximum of the cuts) has the cost 1.
        program.changeColCost(n_columns - 1, 1.0)
        self._program = program
        for gain, used in zip(self.gains, self.used):
            self._add_row(gain, used)

    def _add_row(self, gain, used):
        """Add the constraint that the maximum of all cuts is at least a plan's cut.

        It is ``height >= value_price * gain - prices @ used``. `gain` and `used`
        (n_limits,) are the mean gain and amounts of a plan, as in `add`. The other
        names are variables of the program.
        """
        n_columns = self.n_limits + 2
        columns = np.arange(n_columns, dtype=np.int32)
        # ``-gain * value_price + used @ prices + height`` has the lower bound 0, and no
        # upper bound.
        coefficients = np.concatenate(([-gain], used, [1.0]))
        self._program.addRow(0.0, np.inf, n_columns, columns, coefficients)

    def _run(self):
        """Solve the linear program from its last basis, or without one if this fails.

        A RuntimeError is raised if both fail.
        """
        import highspy

        program = self._program
        program.run()
        if program.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return
        program.clearSolver()
        program.run()
        status = program.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(
                "HiGHS found no prices of the limits: "
                f"{program.modelStatusToString(status)}. Give values and amounts in "
                "units in which they are about 1."
            )


class DualFunction:
    """Lagrangian dual function of the assignment problem with several limits.

    The function is evaluated at prices, one for each limit. The limits are in this
    order everywhere: means of amounts, shares of rows by choice (capacities), floors of
    the mean value on segments. A floor ``f`` is a limit ``-f`` on minus the mean value.
    At prices, each row gets the choice with the largest net value: its value less the
    sum of price times amount. Ties go to the cheaper choice.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
        Value of each choice. NaN or infinity if a row may not get a choice.
    amounts : ndarray of shape (n_rows, n_means, n_choices)
        Amounts that the rows are decided by. NaN or infinity as in `values`.
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
        Costs that break ties.
    capacity_choice : array-like of shape (n_capacities,), dtype=int
        The choices with a capacity.
    segment : ndarray of shape (n_rows,), dtype=int64, default=None
        Index of the floor that a row counts for, or `NO_SEGMENT`. None has no floors.
    n_floors : int, default=0
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all rows alike.
    realised : ndarray of shape (n_rows, n_means, n_choices), default=None
        Amounts whose means are limited, if `amounts` are estimates of them. None takes
        `amounts`.

    Attributes
    ----------
    tables : PricedTables
    cuts : CutModel
        The plans so far, in scaled units.
    units : ndarray of shape (n_limits,)
        Divisors of the limits, which give scaled limits: the mean spread of each amount
        within a row, 1 for a capacity, and `value_unit` for a floor.
    value_unit : float
        Divisor of values, which gives scaled values: their mean spread within a row.
    offsets : ndarray of shape (n_limits,)
        A limit on gains is a limit on values plus its offset. 0 except for floors.
    """

    def __init__(
        self,
        values,
        amounts,
        *,
        costs,
        capacity_choice=(),
        segment=None,
        n_floors=0,
        weight=None,
        realised=None,
    ):
        tables, tops = priced_tables(
            values,
            amounts,
            costs=costs,
            capacity_choice=capacity_choice,
            segment=segment,
            n_floors=n_floors,
            weight=weight,
        )
        self.tables = tables
        self.realised = realised
        n_rows = len(values)
        # `tops` (n_rows,) are the best values of the rows. The weights have mean 1.
        self._mean_top = float(tables.weight @ tops) / n_rows
        # The tables have gains in place of values: a gain is a value less the best
        # value of its row. A floor limits minus the mean value of its segment. The
        # limit on minus the mean gain is larger: the mean best value of the segment is
        # added.
        weighted_top = tables.weight * tops
        # -1 is a row without a segment (`NO_SEGMENT`).
        in_segment = tables.segment >= 0
        top_of_segment = np.bincount(
            tables.segment[in_segment],
            weights=weighted_top[in_segment],
            minlength=n_floors,
        )
        # Mean best value of the rows of each segment, (n_floors,).
        mean_tops = top_of_segment / (n_rows * tables.segment_share)
        self.n_means = len(tables.amounts)
        self.n_capacities = len(tables.capacity_choice)
        self.n_limits = self.n_means + self.n_capacities + n_floors
        n_without_offset = self.n_means + self.n_capacities
        self.offsets = np.concatenate((np.zeros(n_without_offset), mean_tops))
        self.value_unit = _mean_spread(tables.gains, tables)
        unit_of_means = [_mean_spread(amount, tables) for amount in tables.amounts]
        self.units = np.concatenate(
            (
                unit_of_means,
                np.ones(self.n_capacities),
                np.full(n_floors, self.value_unit),
            )
        )
        self.cuts = CutModel(self.n_limits)

    # Plans ----------------------------------------------------------------------------

    def plan_at(self, prices):
        """Return the choice of each row that is best at some prices, shape (n_rows,).

        `prices` (n_limits,) are in the units of values and amounts.
        """
        # Values count with the factor 1, the value price.
        choices, _ = self._decide(1.0, np.asarray(prices, dtype=np.float64))
        return choices

    def means_of(self, choices):
        """Return the mean value of the plan `choices`, and its mean use of each limit.

        `choices` (n_rows,) has the choice of each row. The uses (n_limits,) are means
        of amounts, shares of rows, and minus the mean values of segments with a floor.
        """
        gain, used = self._use(choices)
        return self._mean_top + gain, used - self.offsets

    def value_of(self, choices):
        """Return the mean value of the plan `choices`, an array of shape (n_rows,)."""
        value, _ = self.means_of(choices)
        return value

    def losses_at(self, prices):
        """Return how far each choice is below its row's best choice at the prices.

        `prices` are as in `plan_at`. A net value is a value less the sum of price times
        amount. A loss is the difference from the best net value of the row, times the
        weight of the row. The losses have the shape (n_rows, n_choices). The loss of a
        choice that is not allowed is infinite.
        """
        from skroute.assignment import _limit_kernels

        losses = np.empty(self.tables.gains.T.shape)
        # Values count with the factor 1, the value price.
        all_prices = self._prices(1.0, np.asarray(prices, np.float64))
        # The kernel writes into `losses`.
        _limit_kernels.losses_at_prices(self.tables, all_prices, losses)
        return losses

    def _prices(self, value_price, prices):
        """Return `Prices` of the kernels from the prices of the limits, (n_limits,).

        `value_price` is the factor of the values.
        """
        return kernel_prices(
            value_price,
            prices,
            n_means=self.n_means,
            capacity_choice=self.tables.capacity_choice,
            n_choices=len(self.tables.gains),
        )

    def _decide(self, value_price, prices):
        """Return the best plan at prices, and its mean gain less its priced amounts.

        Parameters
        ----------
        value_price : float
            The factor of the values.
        prices : ndarray of shape (n_limits,)
            In the units of values and amounts, not scaled.

        Returns
        -------
        choices : ndarray of shape (n_rows,), dtype=int64
        mean_net_value : float
            Mean gain of the plan times `value_price`, less its mean amounts times
            `prices`.
        """
        from skroute.assignment import _limit_kernels

        n_rows = len(self.tables.weight)
        choices = np.empty(n_rows, np.int64)
        # The kernel writes into `choices`.
        total = _limit_kernels.plan_at_prices(
            self.tables, self._prices(value_price, prices), TIE, choices
        )
        return choices, total / n_rows

    def _use(self, choices):
        """Return the mean gain of the plan `choices`, and its mean use of each limit.

        The uses have the shape (n_limits,). A gain is a value less the best value of
        its row. The use of a floor is minus the mean gain of its segment.
        """
        from skroute.assignment import _limit_kernels

        used = np.empty(self.n_limits)
        # The kernel writes into `used`.
        gain = _limit_kernels.use_of_plan(self.tables, choices, used)
        return gain / len(choices), used / len(choices)

    def whole_limits(self, most):
        """Round limits down to means that a plan with one choice per row can have.

        The sum of whole numbers is a whole number. If 5 % of 30 rows may be slow, a
        plan of whole rows has at most one slow row, and the limit is 1 / 30. Limits on
        amounts that are not whole numbers stay as they are. If rows have weights, all
        limits stay as they are.

        Parameters
        ----------
        most : ndarray of shape (n_limits,)

        Returns
        -------
        ndarray of shape (n_limits,)
        """
        if (self.tables.weight != 1.0).any():
            return most
        is_whole = np.zeros(self.n_limits, dtype=bool)
        for limit, amounts in enumerate(self.tables.amounts):
            is_whole[limit] = (amounts == np.round(amounts)).all()
        # A capacity counts rows.
        is_whole[self.n_means : self.n_means + self.n_capacities] = True
        n_rows = len(self.tables.weight)
        rounded = np.floor((most + self.slack(most)) * n_rows) / n_rows
        return np.where(is_whole, rounded, most)

    def slack(self, most):
        """Return how far a mean may be above its limit by rounding, shape (n_limits,).

        `most` (n_limits,) are the limits.
        """
        return ROUNDING * np.maximum(np.abs(most), self.units)

    # Prices ---------------------------------------------------------------------------

    def prices_for(self, most):
        """Return the prices of the limits `most`, and the mixture of plans they give.

        Parameters
        ----------
        most : array-like of shape (n_limits,)
            The largest mean of each amount. If there are realised amounts, their means
            are limited.

        Returns
        -------
        LimitPrices
            If there are realised amounts, its `bound` is for plans whose deciding
            amounts are within the corrected limits.

        Raises
        ------
        ConflictError
            If the limits exclude each other.
        """
        most = np.asarray(most, dtype=np.float64)
        limit_prices = self._prices_of_planned(most)
        if self.realised is None:
            return limit_prices
        return self._corrected_prices(most, limit_prices)

    def prices_by_cuts(self, most):
        """Return the prices of the limits `most` from earlier plans alone, the cuts.

        This takes some tens of microseconds. It is for a stream. The limits of a stream
        are what is left for the rows to come, and change with each request.

        Parameters
        ----------
        most : array-like of shape (n_limits,)
            The limits on the deciding amounts. If they exclude each other, the price of
            at least one limit is at the cap.

        Returns
        -------
        LimitPrices
        """
        scaled_limits = self._scaled(np.asarray(most, dtype=np.float64))
        minimum = self.cuts.lowest(self._search(scaled_limits, cap=_FIRST_CAP))
        return self._unscaled(minimum, minimum.prices)

    def _prices_of_planned(self, most):
        """Return the `LimitPrices` of limits on the amounts that rows are decided by.

        These amounts are planned. Realised amounts may differ from them.
        """
        scaled_limits = self._scaled(most)
        cap = _FIRST_CAP
        minimum, tied_prices = self._minimise(self._search(scaled_limits, cap))
        n_plans = minimum.n_plans
        for growth in range(_MAX_GROWTHS):
            if (minimum.prices <= _NEAR_CAP * cap).all():
                break
            # The dual function has no minimum if the limits exclude each other.
            if growth == 0 and self.are_in_conflict(most):
                raise ConflictError(self, most)
            cap *= _CAP_GROWTH
            minimum, tied_prices = self._minimise(self._search(scaled_limits, cap))
            n_plans += minimum.n_plans
        return self._unscaled(minimum._replace(n_plans=n_plans), tied_prices)

    def _corrected_prices(self, most, limit_prices):
        """Return prices at which the means of the realised amounts meet the limits.

        A choice is made partly because its amount was underestimated. So realised means
        are above the means of the amounts that the rows are decided by (deciding
        means). The limits on the deciding means are moved by the distances of the
        realised means from the limits `most`.

        Parameters
        ----------
        most : ndarray of shape (n_limits,)
        limit_prices : LimitPrices
            The prices of `most` as limits on the deciding means.

        Returns
        -------
        LimitPrices
        """
        planned = most.copy()  # limits on the deciding means
        n_plans = limit_prices.n_plans
        # If the corrections do not converge, the prices with the least excess over a
        # limit are returned.
        best = limit_prices
        least_excess = np.inf
        step = 1.0
        # A limit of 0 is compared with the mean spread of a row's amounts.
        size = np.where(most == 0, self.units, np.abs(most))
        for _ in range(_MAX_CORRECTIONS):
            # What the realised means leave of the limits, negative above a limit.
            room = most - self.realised_means(limit_prices)
            largest_excess = np.max(-room / size)
            if largest_excess < least_excess:
                least_excess = largest_excess
                best = limit_prices
            # A limit without a price is only moved if it is exceeded.
            is_moved = (limit_prices.prices > 0) | (room < 0)
            correction = np.where(is_moved, room, 0.0)
            if (np.abs(correction) <= _CORRECTED * size).all():
                best = limit_prices
                break
            try:
                moved_prices = self._prices_of_planned(planned + step * correction)
            except ConflictError:
                # No plan meets the moved limits. A shorter move may be possible.
                step /= 2
                continue
            planned = planned + step * correction
            limit_prices = moved_prices
            n_plans += limit_prices.n_plans
        return best._replace(n_plans=n_plans)

    def realised_means(self, limit_prices):
        """Return the mean use of each limit by the mixture of plans of `limit_prices`.

        The shape is (n_limits,). If there are realised amounts, their means are in the
        place of the means of the deciding amounts.
        """
        n_rows = len(self.tables.weight)
        rows = np.arange(n_rows)
        means = np.zeros(self.n_limits)
        for point, share in zip(limit_prices.points, limit_prices.shares):
            choices = self.plan_at(point)
            _, plan_means = self.means_of(choices)
            if self.realised is not None:
                amounts = self.realised[rows, :, choices]  # (n_rows, n_means)
                plan_means[: self.n_means] = self.tables.weight @ amounts / n_rows
            means += share * plan_means
        return means

    # Conflicts ------------------------------------------------------------------------

    def are_in_conflict(self, most, positions=None):
        """Return True if no mixture of plans meets the limits `most` at `positions`.

        Parameters
        ----------
        most : array-like of shape (n_limits,)
            The limits on the deciding amounts.
        positions : sequence of int, default=None
            Positions of the limits that count. None takes all.
        """
        return len(self._conflict_prices(most, positions)) > 0

    def conflict(self, most):
        """Return the positions of limits that exclude each other, or an empty list.

        `most` (n_limits,) are the limits. The list is minimal: if one limit is left
        out, a mixture of plans meets the rest.
        """
        prices = self._conflict_prices(most, None)
        # Limits without a price are not needed for the proof of the conflict.
        needed = [int(limit) for limit in np.flatnonzero(prices > 0)]
        for limit in list(needed):
            others = [other for other in needed if other != limit]
            if others and self.are_in_conflict(most, others):
                # They exclude each other also without this limit.
                needed = others
        return needed

    def least(self, limit, most):
        """Return the least mean use of one limit that the other limits leave possible.

        Parameters
        ----------
        limit : int
            Position of the limit.
        most : array-like of shape (n_limits,)
            The limits on the deciding amounts. The entry of `limit` has no effect.

        Returns
        -------
        float
            Least mean of a mixture of plans. Infinity if the other limits exclude each
            other, so that no value of this limit is enough.
        """
        most = np.asarray(most, dtype=np.float64)
        others = [other for other in range(self.n_limits) if other != limit]
        if others and self.are_in_conflict(most, others):
            return np.inf
        scaled_limits = self._scaled(most)
        # The amount itself is the objective, at the fixed price of 1.
        scaled_limits[limit] = 0.0
        cap = _FIRST_CAP
        for _ in range(_MAX_GROWTHS):
            lower = np.zeros(self.n_limits)
            upper = np.full(self.n_limits, cap)
            lower[limit] = 1.0
            upper[limit] = 1.0
            # The factor of the values is 0: they do not matter.
            search = Search(
                value_price=0.0, most=scaled_limits, lower=lower, upper=upper
            )
            minimum, _ = self._minimise(search)
            if (minimum.prices[others] <= _NEAR_CAP * cap).all():
                break
            cap *= _CAP_GROWTH
        # The minimum is minus the least amount, scaled. For a floor, the amount is
        # minus a mean gain. The offset turns it into minus a mean value.
        return float(-minimum.height * self.units[limit] - self.offsets[limit])

    def _conflict_prices(self, most, positions):
        """Return prices that prove a conflict of limits, or an empty array.

        The result is empty if the limits can be met. Otherwise it has the shape
        (n_limits,). The parameters are as in `are_in_conflict`.
        """
        # Prices up to 1 are enough: larger prices only scale the minimum.
        upper = np.ones(self.n_limits)
        if positions is not None:
            # A price of 0 leaves a limit out.
            upper[:] = 0.0
            upper[positions] = 1.0
        scaled_limits = self._scaled(np.asarray(most, dtype=np.float64))
        # The factor of the values is 0: only the limits matter.
        lower = np.zeros(self.n_limits)
        search = Search(value_price=0.0, most=scaled_limits, lower=lower, upper=upper)
        minimum, _ = self._minimise(
            search, tolerance=_CONFLICT_TOLERANCE, stop_below=_CONFLICT
        )
        if minimum.height < _CONFLICT:
            return minimum.prices
        return np.empty(0)

    # The search -----------------------------------------------------------------------

    def _scaled(self, most):
        """Return the limits `most` (n_limits,) in scaled units, as limits on gains.

        A floor is a limit on values. Its offset makes it a limit on gains, which are
        values less the best value of their row.
        """
        return (most + self.offsets) / self.units

    def _search(self, scaled_limits, cap):
        """Return a `Search` for the prices of limits, each from 0 to `cap`.

        `scaled_limits` (n_limits,) are the limits, from `_scaled`. The factor of the
        values is 1.
        """
        lower = np.zeros(self.n_limits)
        upper = np.full(self.n_limits, cap)
        return Search(value_price=1.0, most=scaled_limits, lower=lower, upper=upper)

    def _add_cut_at(self, value_price, prices):
        """Evaluate the dual function at prices, and add the best plan to the cuts.

        Parameters
        ----------
        value_price : float
            The factor of the values.
        prices : ndarray of shape (n_limits,)
            In scaled units.

        Returns
        -------
        float
            The dual function at these prices, without its summand ``prices @ limits``.
        """
        price_unit = self.value_unit / self.units
        choices, height = self._decide(value_price, prices * price_unit)
        gain, used = self._use(choices)
        self.cuts.add(gain / self.value_unit, used / self.units, value_price, prices)
        return height / self.value_unit

    def _minimise(self, search, *, tolerance=_TOLERANCE, stop_below=-np.inf):
        """Minimise the dual function by cutting planes, within the bounds of `search`.

        Parameters
        ----------
        search : Search
        tolerance : float
            Distance from the minimum at which the search ends.
        stop_below : float, default=-inf
            The search also ends if the dual function is below this number. With -inf,
            only `tolerance` ends it.

        Returns
        -------
        minimum : Minimum
            The best prices, and the mixture of cuts at the minimum of the cuts.
        tied_prices : ndarray of shape (n_limits,)
            Prices at which the mixed plans are tied, and no other plan is better.
        """
        best_height = np.inf
        best_prices = search.lower
        prices = search.lower
        if len(self.cuts):
            # The cuts of earlier searches are a better start.
            prices = self.cuts.lowest(search).prices
        n_plans = 0
        while True:
            # The dual function at these prices.
            height = self._add_cut_at(search.value_price, prices)
            height += prices @ search.most
            n_plans += 1
            if height < best_height:
                best_height = height
                best_prices = prices
            # The minimum of the cuts is a lower bound of the minimum.
            lowest = self.cuts.lowest(search)
            is_close = best_height - lowest.height <= tolerance
            is_below = best_height < stop_below
            if is_close or is_below or n_plans == _MAX_PLANS:
                break
            prices = lowest.prices + _TOWARDS_BEST * (best_prices - lowest.prices)
        minimum = lowest._replace(
            prices=best_prices, height=best_height, n_plans=n_plans
        )
        tied_prices = lowest.prices
        if np.abs(tied_prices - best_prices).max() > _FAR:
            # The minimum of the cuts may be at many prices, for example with a limit of
            # 0. At some of them, plans that have no cut yet are better.
            height = self._add_cut_at(search.value_price, tied_prices)
            height += tied_prices @ search.most
            if height - best_height > tolerance:
                tied_prices = best_prices
        return minimum, tied_prices

    def _unscaled(self, minimum, tied_prices):
        """Return a scaled `Minimum` as `LimitPrices`, in units of values and amounts.

        The parameters are as `_minimise` returns them.
        """
        # A mixed plan is best at the prices of its cut, and tied at the minimum of the
        # cuts. So it is best at all prices between the two.
        centre = np.append(1.0, tied_prices)
        plan_points = np.array([self.cuts.points[cut] for cut in minimum.cuts])
        points = centre + _APART * (plan_points - centre)
        # Column 0 is the value price, and the others are the prices of the limits. Only
        # their ratios matter for decisions, so that the value price is made 1.
        points = points[:, 1:] / points[:, :1]
        price_unit = self.value_unit / self.units
        return LimitPrices(
            prices=minimum.prices * price_unit,
            bound=self._mean_top + minimum.height * self.value_unit,
            points=points * price_unit,
            shares=minimum.shares,
            n_plans=minimum.n_plans,
        )


class ConflictError(ValueError):
    """Limits that exclude each other.

    Parameters
    ----------
    dual : DualFunction
    most : ndarray of shape (n_limits,)
        The limits.
    in_whole_rows : bool, default=False
        True if mixtures of plans meet the limits, but no plan of whole rows.
    """

    def __init__(self, dual, most, *, in_whole_rows=False):
        super().__init__("The limits exclude each other.")
        self.dual = dual
        self.most = most
        self.in_whole_rows = in_whole_rows


def priced_tables(
    values, amounts, *, costs, capacity_choice, segment, n_floors, weight
):
    """Return the arrays of a problem for the kernels, and each row's best value.

    The parameters are as in `DualFunction`.

    Returns
    -------
    tables : PricedTables
    tops : ndarray of shape (n_rows,)
        Value of the best choice of each row.

    Raises
    ------
    ValueError
        If a row has no choice that is allowed.
    """
    from skroute.assignment import _limit_kernels

    n_rows = len(values)
    # (n_rows, n_choices)
    allowed = np.isfinite(values) & np.isfinite(amounts).all(axis=1)
    if not allowed.any(axis=1).all():
        row = int(np.flatnonzero(~allowed.any(axis=1))[0])
        raise ValueError(
            f"Row {row} has no choice with a finite value and finite amounts. Each "
            "row needs one."
        )
    # -inf: a choice that is not allowed is not the best.
    tops = np.where(allowed, values, -np.inf).max(axis=1)
    gains = np.where(allowed, values - tops[:, np.newaxis], 0.0)
    # Amounts of choices that are not allowed are not read. 0 keeps them finite.
    amounts = np.where(allowed[:, np.newaxis, :], amounts, 0.0)
    if weight is None:
        weight = np.ones(n_rows)
    weight = weight / weight.mean()
    if segment is None:
        segment = np.full(n_rows, _limit_kernels.NO_SEGMENT)
    in_segment = segment != _limit_kernels.NO_SEGMENT
    segment_weight = np.bincount(
        segment[in_segment], weights=weight[in_segment], minlength=n_floors
    )
    # The kernels take the rows as the last axis.
    gains = np.ascontiguousarray(gains.T)
    amounts = np.ascontiguousarray(amounts.transpose(1, 2, 0), dtype=np.float64)
    tables = _limit_kernels.PricedTables(
        gains=gains,
        allowed=np.ascontiguousarray(allowed.T),
        costs=np.ascontiguousarray(costs.T, dtype=np.float64),
        amounts=amounts,
        capacity_choice=np.asarray(capacity_choice, dtype=np.int64),
        segment=np.ascontiguousarray(segment, dtype=np.int64),
        segment_share=segment_weight / n_rows,
        weight=weight,
        all_allowed=bool(allowed.all()),
        # No gain is above 0.
        largest_gain=float(-gains.min()),
        largest_amount=np.abs(amounts).max(axis=(1, 2)),
    )
    return tables, tops


def kernel_prices(value_price, prices, *, n_means, capacity_choice, n_choices):
    """Return the prices of all limits as `Prices`, the record that the kernels take.

    Parameters
    ----------
    value_price : float
        The factor of the values.
    prices : ndarray of shape (n_limits,)
        Prices of means, capacities and floors, in this order.
    n_means : int
    capacity_choice : ndarray of shape (n_capacities,)
    n_choices : int

    Returns
    -------
    Prices
    """
    from skroute.assignment import _limit_kernels

    first_floor = n_means + len(capacity_choice)
    choice_prices = np.zeros(n_choices)
    choice_prices[capacity_choice] = prices[n_means:first_floor]
    return _limit_kernels.Prices(
        value=float(value_price),
        means=prices[:n_means].copy(),
        choices=choice_prices,
        floors=prices[first_floor:].copy(),
    )


def _mean_spread(numbers, tables):
    """Return the mean difference of the largest and smallest number of a row.

    If all numbers of each row are equal, the mean absolute number is returned, or 1 if
    all numbers are 0.

    Parameters
    ----------
    numbers : ndarray of shape (n_choices, n_rows)
    tables : PricedTables
        Has the allowed choices, which alone count, and the weights of the rows.

    Returns
    -------
    float
    """
    # Infinities: a choice that is not allowed has neither the largest number nor the
    # smallest one.
    highest = np.where(tables.allowed, numbers, -np.inf).max(axis=0)
    lowest = np.where(tables.allowed, numbers, np.inf).min(axis=0)
    n_rows = len(highest)
    spread = float(tables.weight @ (highest - lowest)) / n_rows
    if spread > 0:
        return spread
    mean_size = float(tables.weight @ np.abs(highest)) / n_rows
    return mean_size if mean_size > 0 else 1.0


def choose_by_mixture(
    limit_prices, values, amounts, draws, *, costs, capacity_choice=()
):
    """Return the choices of new rows by the prices and mixed plans of other rows.

    Parameters
    ----------
    limit_prices : LimitPrices
        From `DualFunction.prices_for`. There must be no floors.
    values : ndarray of shape (n_rows, n_choices)
        NaN or infinity if a row may not get a choice.
    amounts : ndarray of shape (n_rows, n_means, n_choices)
    draws : ndarray of shape (n_rows,)
        A number in [0, 1) for each row. Uniform numbers divide tied rows by the shares
        of the mixture.
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
        Costs that break ties.
    capacity_choice : array-like of shape (n_capacities,), dtype=int

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
    """
    from skroute.assignment import _limit_kernels

    tables, _ = priced_tables(
        values,
        amounts,
        costs=costs,
        capacity_choice=capacity_choice,
        segment=None,
        n_floors=0,
        weight=None,
    )
    n_choices, n_rows = tables.gains.shape
    # Each plan has an interval of draws, as long as its share. The last interval ends
    # at 1. Its end is left out, so that rounding leaves no draw without a plan.
    ends_of_intervals = np.cumsum(limit_prices.shares)[:-1]
    plan_of_row = np.searchsorted(ends_of_intervals, draws, side="right")
    mixed_choices = np.empty(n_rows, np.int64)
    # Choices of all rows by one plan, overwritten for each plan.
    choices = np.empty(n_rows, np.int64)
    for plan in np.unique(plan_of_row):
        prices = kernel_prices(
            1.0,
            limit_prices.points[plan],
            n_means=len(tables.amounts),
            capacity_choice=tables.capacity_choice,
            n_choices=n_choices,
        )
        # The kernel writes into `choices`, for all rows.
        _limit_kernels.plan_at_prices(tables, prices, TIE, choices)
        is_of_plan = plan_of_row == plan
        mixed_choices[is_of_plan] = choices[is_of_plan]
    return mixed_choices
