"""The linear relaxation of the assignment problem, solved for all budgets by one sort.

The increments of all rows (`Hulls`) are sorted by their efficiency. A budget buys them
in this order. So cumulative sums of their costs are the budgets, and cumulative sums of
their gains are the objectives.
"""

from typing import NamedTuple

import numpy as np
from sklearn.isotonic import isotonic_regression

from skroute.assignment._hulls import build_hulls
from skroute.assignment._problem import (
    by_names,
    check_values_and_costs,
    problem_of,
    total_cost,
    total_value,
)
from skroute.base import affords, check_affordable, check_budget
from skroute.utils._named import check_rows_match
from skroute.utils._tolerances import ROUNDING, TIE
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_row_weights


class Rule(NamedTuple):
    """A dual price, and the share of tied rows that get the more expensive choice.

    Attributes
    ----------
    price : float
        The price for `choose_at_price`, whose ties go to the cheaper choice. Infinity
        gives each row its cheapest choice.

    share : float
        Share of the rows tied at this price that take the more expensive choice
        instead.
    """

    price: float
    share: float


class AssignmentPath(NamedTuple):
    """The optimum of the linear relaxation as a function of the budget.

    The function is concave and piecewise linear.

    Attributes
    ----------
    budgets : ndarray of shape (n_breaks,), dtype=float64
        Mean costs per row at which the price changes (breakpoints), rising. If there
        are realised costs, the means are of realised costs. The first is the smallest
        feasible budget, the last buys the best choice of every row.

    objectives : ndarray of shape (n_breaks,), dtype=float64
        Mean value at each of these budgets. The greedy plan is exact there.

    prices : ndarray of shape (n_breaks,), dtype=float64
        ``prices[k]`` is the dual price from ``budgets[k]`` up to the next
        breakpoint. Prices fall, and the last one is 0.

    planned : ndarray of shape (n_breaks,), dtype=float64
        Mean costs that the rows are decided by, at each breakpoint. Without realised
        costs, they are equal to `budgets`, except for rounding.

    counts : ndarray of shape (n_breaks,), dtype=int64
        Number of increments that have the price ``prices[k]``: steps of a row to a more
        expensive choice. 0 for the last price.
    """

    budgets: NDArray[np.float64]
    objectives: NDArray[np.float64]
    prices: NDArray[np.float64]
    planned: NDArray[np.float64]
    counts: NDArray[np.int64]

    def price(self, budget: float | None) -> float:
        """Return the dual price at a budget, for `choose_at_price`.

        The price is infinite at the smallest feasible budget. No money is left there,
        not even for a new row that gains more than all rows before.

        Parameters
        ----------
        budget : float or None
            Mean cost per row. None is unlimited.

        Returns
        -------
        float
            The dual price.

        Raises
        ------
        ValueError
            If not even the cheapest plan fits.
        """
        budget = self._check(budget)
        if affords(self.budgets[0], budget):
            # The budget buys the cheapest plan only. At an infinite price, no row gets
            # a more expensive choice.
            return np.inf
        return float(self.prices[self._segment(budget)])

    def rule(self, budget: float | None) -> Rule:
        """Return the dual price at a budget, and the share of tied rows that pay more.

        If only one row changes its choice at this price, new rows hardly ever have a
        tie at this price. The share is then rounded to 0 or 1.

        Parameters
        ----------
        budget : float or None
            Mean cost per row. None is unlimited. A budget below the cost of the
            cheapest plan counts as this cost.

        Returns
        -------
        Rule
            Named tuple ``(price, share)``.
        """
        budget = check_budget(budget)
        if affords(self.budgets[0], budget):
            # The budget buys the cheapest plan only. At an infinite price, no row gets
            # a more expensive choice.
            return Rule(np.inf, 0.0)
        segment = self._segment(budget)
        if segment == len(self.prices) - 1:
            # The budget buys the best choice of every row.
            return Rule(0.0, 0.0)
        # Position of the budget between this breakpoint (0) and the next one (1).
        # Rounding may lead outside.
        width = self.budgets[segment + 1] - self.budgets[segment]
        share = (budget - self.budgets[segment]) / width
        if self.counts[segment] == 1:
            # A share of 1 means that the row takes the more expensive choice. All rows
            # then choose as at the next lower price.
            if round(share) == 1:
                segment += 1
            return Rule(float(self.prices[segment]), 0.0)
        share = min(max(share, 0.0), 1.0)
        return Rule(float(self.prices[segment]), float(share))

    def planned_at(self, budget: float | None) -> float:
        """Return the mean planned cost at which the mean realised cost is a budget.

        Parameters
        ----------
        budget : float or None
            Mean realised cost per row. None is unlimited, and so is the result.

        Returns
        -------
        float
            Mean cost of the plan.
        """
        budget = check_budget(budget)
        if not budget < self.budgets[-1]:
            # The budget is infinite, or not below the last breakpoint. From there on,
            # the difference of planned and realised costs stays the same.
            difference = float(self.planned[-1] - self.budgets[-1])
            return budget + max(difference, 0.0)
        return float(np.interp(budget, self.budgets, self.planned))

    def objective(self, budget: float | None) -> float:
        """Return the mean value of the relaxation at a budget.

        It is an upper bound of the mean value of all plans within the budget.

        Parameters
        ----------
        budget : float or None
            Mean cost per row. None is unlimited.

        Returns
        -------
        float
            Mean value of the best plan.

        Raises
        ------
        ValueError
            If not even the cheapest plan fits.
        """
        budget = self._check(budget)
        segment = self._segment(budget)
        room = min(budget, self.budgets[-1]) - self.budgets[segment]
        return float(self.objectives[segment] + max(room, 0.0) * self.prices[segment])

    def _check(self, budget):
        """Return a feasible budget as a float, or raise a ValueError."""
        budget = check_budget(budget)
        check_affordable(budget, self.budgets[0])
        return budget

    def _segment(self, budget):
        """Return the position of the largest of `budgets` that is within a budget.

        The price of this position is the dual price at the budget.
        """
        # The breakpoints are sums. By rounding, a breakpoint may be just above the
        # budget that it is equal to.
        widened_budget = budget * (1 + ROUNDING)
        return int(self.budgets.searchsorted(widened_budget, side="right")) - 1


def assignment_path(
    values: ArrayLike,
    costs: ArrayLike,
    realised: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> AssignmentPath:
    """Compute the objective and the dual price of the relaxation for every budget.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row. Not negative. The rows are
        decided by these costs.

    realised : array-like of shape (n_rows, n_choices), default=None
        Real cost of each choice, if `costs` are estimates or a price list. The budgets
        are then means of real costs. A choice is made partly because its cost was
        underestimated, so that planned costs are below real ones. The mean realised
        cost is a step function of the price that need not be monotone. The budgets are
        its isotonic regression. Single entries may be negative, as unbiased estimates
        can be. None takes `costs`.

    weight : array-like of shape (n_rows,), default=None
        Weight of each row in all means. Not negative, and not 0 for all rows. None
        gives all rows the same weight.

    Returns
    -------
    AssignmentPath
        Named tuple ``(budgets, objectives, prices, planned, counts)`` with methods
        ``price(budget)``, ``rule(budget)``, ``objective(budget)`` and
        ``planned_at(budget)``.

    Raises
    ------
    ValueError
        For NaN or infinity, wrong shapes, negative costs or weights, or weights that
        are all 0.

    Examples
    --------
    >>> from skroute.assignment import assignment_path
    >>> path = assignment_path([[0.6, 0.9], [0.7, 0.8]], costs=[1, 3])
    >>> path.budgets
    array([1., 2., 3.])
    >>> path.prices.round(3)
    array([0.15, 0.05, 0.  ])
    >>> round(path.objective(2), 3)
    0.8

    The larger choice of the first row, which gains most, cost more than planned:

    >>> assignment_path([[0.6, 0.9], [0.7, 0.8]], [1, 3], [[1, 7], [1, 1]]).budgets
    array([1., 4., 4.])
    """
    check_rows_match(values=values, costs=costs, realised=realised, weight=weight)
    checked_values, checked_costs = check_values_and_costs(values, costs)
    if realised is not None:
        realised = by_names(realised, values, "realised")
        _, realised = check_values_and_costs(
            checked_values, realised, "realised", signed=True
        )
    if weight is not None:
        # A row that counts twice has twice the value and twice the cost.
        row_weight = check_row_weights(weight, len(checked_values), name="weight")
        row_weight = row_weight[:, np.newaxis]
        row_weight = row_weight / row_weight.mean()
        checked_values = checked_values * row_weight
        checked_costs = checked_costs * row_weight
        if realised is not None:
            realised = realised * row_weight
    # An infinite budget: the increments do not depend on the budget.
    problem = problem_of(checked_values, checked_costs, np.inf)
    n_rows = len(problem.values)
    hulls = build_hulls(problem)
    by_efficiency = np.argsort(-hulls.efficiency, kind="stable")
    prices = hulls.efficiency[by_efficiency]
    extra_costs = hulls.extra_cost[by_efficiency]
    # Cost and gain of all increments up to each one, in addition to the cheapest plan.
    spent = np.cumsum(extra_costs)
    gained = np.cumsum(extra_costs * prices)
    # Each group of tied increments has one breakpoint, behind its last increment.
    last_of_group = _last_of_ties(prices)
    cheapest_cost = total_cost(problem, hulls.cheapest)
    cheapest_value = total_value(problem, hulls.cheapest)
    # The first breakpoint is before all increments: its sums of increments are 0.
    planned = (cheapest_cost + np.r_[0.0, spent[last_of_group]]) / n_rows
    budgets = planned
    if realised is not None:
        budgets = _realised_budgets(hulls, realised, by_efficiency, last_of_group)
    # A group starts behind the last increment of the group before. -1 is the position
    # before the first increment.
    sizes_of_groups = np.diff(np.r_[-1, last_of_group])
    # The last price is 0. No increment has this price.
    return AssignmentPath(
        budgets=budgets,
        objectives=(cheapest_value + np.r_[0.0, gained[last_of_group]]) / n_rows,
        prices=np.r_[prices[last_of_group], 0.0],
        planned=planned,
        counts=np.r_[sizes_of_groups, 0],
    )


def _last_of_ties(prices):
    """Return the position of the last price in each group of neighbours that are tied.

    Parameters
    ----------
    prices : ndarray of shape (n_increments,)
        Falling. Neighbours are tied if they differ by at most `TIE`, relative to the
        larger one.

    Returns
    -------
    ndarray of shape (n_groups,), dtype=intp
    """
    is_last = np.ones(len(prices), dtype=bool)
    is_last[:-1] = prices[1:] < prices[:-1] * (1 - TIE)
    return np.flatnonzero(is_last)


def _realised_budgets(hulls, realised, by_efficiency, last_of_group):
    """Return the mean realised cost at each breakpoint, made monotone.

    Parameters
    ----------
    hulls : Hulls
    realised : ndarray of shape (n_rows, n_choices) or (1, n_choices)
        What each choice has really cost.
    by_efficiency : ndarray of shape (n_increments,)
        Positions of the increments, by falling efficiency.
    last_of_group : ndarray of shape (n_breaks - 1,)
        Position in `by_efficiency` of the last increment of each group. The increments
        of a group have tied efficiencies, and one breakpoint. A further
        breakpoint, the first one, is before all groups.

    Returns
    -------
    ndarray of shape (n_breaks,)
    """
    n_rows = len(hulls.cheapest)
    realised = np.broadcast_to(realised, (n_rows, realised.shape[1]))
    increment_row = hulls.row
    # The choice that each increment starts from: the increment before it leads there.
    # The very first increment has no increment before it. Its 0 is replaced below.
    choice_before = np.r_[0, hulls.choice[:-1]]
    # The first increment of a row starts from the cheapest choice of the row, and not
    # from a choice of the row before.
    has_increments = np.diff(hulls.starts) > 0
    first_increments = hulls.starts[:-1][has_increments]
    choice_before[first_increments] = hulls.cheapest[increment_row[first_increments]]
    cost_after = realised[increment_row, hulls.choice]
    extra_costs = cost_after - realised[increment_row, choice_before]
    cheapest_cost = realised[np.arange(n_rows), hulls.cheapest].sum()
    spent = np.cumsum(extra_costs[by_efficiency])
    budgets = (cheapest_cost + np.r_[0.0, spent[last_of_group]]) / n_rows
    # A mean below 0 can only come from the rounding of sums.
    return np.maximum(isotonic_regression(budgets), 0.0)
