"""Every budget from one sort."""

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
    """The dual price of a budget, and the share of tied rows that take the more expensive choice.

    Attributes
    ----------
    price : float
        The price of `choose_at_price`, where ties go to the cheaper choice.

    share : float
        Share of the rows that are tied at the price which take the more expensive choice.
    """

    price: float
    share: float


class AssignmentPath(NamedTuple):
    """The relaxation's optimum as a function of the budget: concave, piecewise linear.

    Attributes
    ----------
    budgets : ndarray of shape (n_breaks,), dtype=float64
        Mean costs per row at which the price changes, rising: the realised ones, where
        these were given. The first is the smallest feasible budget, the last buys the best
        choice of every row.

    objectives : ndarray of shape (n_breaks,), dtype=float64
        Mean value at each of these budgets, where the greedy plan is exact.

    prices : ndarray of shape (n_breaks,), dtype=float64
        ``prices[k]`` is the dual price from ``budgets[k]`` up to the next break;
        falling, the last is 0.

    planned : ndarray of shape (n_breaks,), dtype=float64
        Mean costs by which the rows are decided, at each break. `budgets`, but for
        rounding, where no realised costs were given.

    counts : ndarray of shape (n_breaks,), dtype=int64
        Choices that change at ``prices[k]``, of as many rows; 0 for the last.
    """

    budgets: NDArray[np.float64]
    objectives: NDArray[np.float64]
    prices: NDArray[np.float64]
    planned: NDArray[np.float64]
    counts: NDArray[np.int64]

    def price(self, budget: float | None) -> float:
        """Dual price at a budget: the one that `choose_at_price` takes.

        Infinite at the smallest feasible budget, which leaves nothing to buy with: a new
        row that is worth more than any seen before must not buy either.

        Parameters
        ----------
        budget : float or None
            Mean cost per row; None is unlimited.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If not even the cheapest plan fits.
        """
        budget = self._check(budget)
        if affords(self.budgets[0], budget):
            return np.inf
        return float(self.prices[self._segment(budget)])

    def rule(self, budget: float | None) -> Rule:
        """Dual price at a budget, and the share of tied rows that take the more expensive choice.

        A price at which a single row changes its choice is rounded to the nearer side:
        no new row is tied there.

        Parameters
        ----------
        budget : float or None
            Mean cost per row; None is unlimited. Below the cheapest plan, the cheapest.

        Returns
        -------
        Rule
            Named tuple ``(price, share)``.
        """
        budget = check_budget(budget)
        if affords(self.budgets[0], budget):
            return Rule(np.inf, 0.0)
        k = self._segment(budget)
        if k == len(self.prices) - 1:
            return Rule(0.0, 0.0)
        share = (budget - self.budgets[k]) / (self.budgets[k + 1] - self.budgets[k])
        if self.counts[k] == 1:
            return Rule(float(self.prices[k + round(share)]), 0.0)
        return Rule(float(self.prices[k]), float(min(max(share, 0.0), 1.0)))

    def planned_at(self, budget: float | None) -> float:
        """The mean planned cost that corresponds to a mean realised cost.

        Parameters
        ----------
        budget : float or None
            Mean realised cost per row; None is unlimited, and then so is the result.

        Returns
        -------
        float
        """
        budget = check_budget(budget)
        if not budget < self.budgets[-1]:
            # What the best choice of every row is planned to cost, and what it costs.
            return budget + max(float(self.planned[-1] - self.budgets[-1]), 0.0)
        return float(np.interp(budget, self.budgets, self.planned))

    def objective(self, budget: float | None) -> float:
        """Mean value that the relaxation reaches at a budget: an upper bound on any plan's.

        Parameters
        ----------
        budget : float or None
            Mean cost per row; None is unlimited.

        Returns
        -------
        float

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
        budget = check_budget(budget)
        check_affordable(budget, self.budgets[0])
        return budget

    def _segment(self, budget):
        # The budgets are sums; one that rounding put a hair above the same number fits.
        return int(self.budgets.searchsorted(budget * (1 + ROUNDING), side="right")) - 1


def assignment_path(
    values: ArrayLike,
    costs: ArrayLike,
    realised: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> AssignmentPath:
    """Compute the objective and the dual price of the assignment problem for every budget.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row; not negative. By these rows are
        decided.

    realised : array-like of shape (n_rows, n_choices), default=None
        What each choice has cost in truth, where `costs` are estimates or a price list: the
        budgets are then means of these. A choice is made partly because its cost was
        underestimated, so that planned spending is below what is paid. As a function of
        the price the realised mean is a step function that need not be monotone; the
        budgets are its isotonic regression. Single entries may be negative, as unbiased
        estimates are. None takes `costs`.

    weight : array-like of shape (n_rows,), default=None
        How much each row counts in all means; not negative, and not 0 for all rows. None
        counts all rows alike.

    Returns
    -------
    AssignmentPath
        Named tuple ``(budgets, objectives, prices, planned, counts)`` with methods
        ``price(budget)``, ``rule(budget)``, ``objective(budget)`` and
        ``planned_at(budget)``.

    Raises
    ------
    ValueError
        For NaN or infinity, wrong shapes, negative costs or weights, or weights that are all
        0.

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

    The first row, which is worth the larger choice most, cost more than was planned:

    >>> assignment_path([[0.6, 0.9], [0.7, 0.8]], [1, 3], [[1, 7], [1, 1]]).budgets
    array([1., 4., 4.])
    """
    names = values
    check_rows_match(values=values, costs=costs, realised=realised, weight=weight)
    values, costs = check_values_and_costs(values, costs)
    if realised is not None:
        realised = by_names(realised, names, "realised")
        _, realised = check_values_and_costs(values, realised, "realised", signed=True)
    if weight is not None:
        # A row that counts twice has twice the value and twice the cost.
        each = check_row_weights(weight, np.shape(values)[0], name="weight")[
            :, np.newaxis
        ]
        each = each / each.mean()
        values, costs = values * each, costs * each
        realised = None if realised is None else realised * each
    problem = problem_of(values, costs, np.inf)
    n = len(problem.values)
    hulls = build_hulls(problem)
    value = total_value(problem, hulls.cheapest)
    cost = total_cost(problem, hulls.cheapest)
    by_efficiency = np.argsort(-hulls.efficiency, kind="stable")
    prices = hulls.efficiency[by_efficiency]
    extra_cost = hulls.extra_cost[by_efficiency]
    spent = np.cumsum(extra_cost)
    gained = np.cumsum(extra_cost * prices)
    # Equal efficiencies are one break: the price does not change between them.
    is_last = np.ones(len(prices), dtype=bool)
    is_last[:-1] = prices[1:] < prices[:-1] * (1 - TIE)
    last = np.flatnonzero(is_last)
    planned = (cost + np.r_[0.0, spent[last]]) / n
    return AssignmentPath(
        budgets=planned
        if realised is None
        else _realised(hulls, realised, by_efficiency, last),
        objectives=(value + np.r_[0.0, gained[last]]) / n,
        prices=np.r_[prices[last], 0.0],
        planned=planned,
        counts=np.r_[np.diff(np.r_[-1, last]), 0],
    )


def _realised(hulls, realised, by_efficiency, last):
    """Mean realised cost at each break, made to rise."""
    n = len(hulls.cheapest)
    realised = np.broadcast_to(realised, (n, realised.shape[1]))
    rows = np.repeat(np.arange(n), np.diff(hulls.starts))
    before = np.r_[0, hulls.choice[:-1]]
    first = hulls.starts[:-1][np.diff(hulls.starts) > 0]
    before[first] = hulls.cheapest[rows[first]]
    extra = realised[rows, hulls.choice] - realised[rows, before]
    least = realised[np.arange(n), hulls.cheapest].sum()
    budgets = (least + np.r_[0.0, np.cumsum(extra[by_efficiency])[last]]) / n
    # Isotonic: a mean below 0 cannot be, but for the rounding of sums.
    return np.maximum(isotonic_regression(budgets), 0.0)
