"""Every budget from one sort."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skroute.assignment._greedy import build_hulls
from skroute.assignment._problem import check_problem, totals
from skroute.base import affords, check_affordable, check_budget


class AssignmentPath(NamedTuple):
    """The relaxation's optimum as a function of the budget: concave, piecewise linear.

    Attributes
    ----------
    budgets : ndarray of shape (n_breaks,), dtype=float64
        Mean costs per row at which the price changes, rising. The first is the smallest
        feasible budget, the last buys the best choice of every row.

    objectives : ndarray of shape (n_breaks,), dtype=float64
        Mean value at each of these budgets, where the greedy plan is exact.

    prices : ndarray of shape (n_breaks,), dtype=float64
        ``prices[k]`` is the dual price from ``budgets[k]`` up to the next break;
        falling, the last is 0.
    """

    budgets: NDArray[np.float64]
    objectives: NDArray[np.float64]
    prices: NDArray[np.float64]

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
        segment = self._segment(budget)
        if affords(self.budgets[0], check_budget(budget)):
            return np.inf
        return float(self.prices[segment])

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
        segment = self._segment(budget)
        room = min(check_budget(budget), self.budgets[-1]) - self.budgets[segment]
        return float(self.objectives[segment] + max(room, 0.0) * self.prices[segment])

    def _segment(self, budget):
        budget = check_budget(budget)
        check_affordable(budget, self.budgets[0])
        # The budgets are sums; one that rounding put a hair above the same number fits.
        return int(affords(budget, self.budgets).sum()) - 1


def assignment_path(values: ArrayLike, costs: ArrayLike) -> AssignmentPath:
    """Objective and price of the assignment problem for every budget, from one sort.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row; not negative.

    Returns
    -------
    AssignmentPath
        Named tuple ``(budgets, objectives, prices)`` with methods ``price(budget)`` and
        ``objective(budget)``.

    Raises
    ------
    ValueError
        For NaN or infinity, wrong shapes or negative costs.

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
    """
    problem = check_problem(values, costs, None)
    n = len(problem.values)
    hulls = build_hulls(problem)
    value, cost = totals(problem, hulls.cheapest)
    by_efficiency = np.argsort(-hulls.efficiency, kind="stable")
    prices = hulls.efficiency[by_efficiency]
    extra_cost = hulls.extra_cost[by_efficiency]
    spent = np.cumsum(extra_cost)
    gained = np.cumsum(extra_cost * prices)
    # Equal efficiencies are one break: the price does not change between them.
    last = np.flatnonzero(np.r_[prices[1:] != prices[:-1], np.full(min(len(prices), 1), True)])
    return AssignmentPath(
        budgets=(cost + np.r_[0.0, spent[last]]) / n,
        objectives=(value + np.r_[0.0, gained[last]]) / n,
        prices=np.r_[prices[last], 0.0],
    )
