"""The checked assignment problem that all solvers take."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

from skroute.base import check_affordable, check_costs
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match, in_order
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import read_only


class Problem(NamedTuple):
    """A checked problem: one choice for each row, within a total budget.

    A *plan* is an array of shape (n_rows,) with the position of each row's choice.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
        One row if all rows share the costs.
    total : float
        The budget, as a sum over all rows. Infinity if unlimited.
    order : ndarray of shape (n_choices,), dtype=int64
        Positions of the choices, by rising cost of the first row of `costs`. The
        kernels start with this order.
    """

    values: np.ndarray
    costs: np.ndarray
    total: float
    order: np.ndarray

    @property
    def slack_for_rounding(self):
        """Amount by which the cost of a plan may exceed `total` by rounding."""
        if not np.isfinite(self.total):
            return 0.0
        return ROUNDING * self.total

    def room_beyond(self, choices):
        """Return what a plan leaves of the budget, as a sum over all rows.

        The slack for rounding is included. A negative number means that the plan is too
        expensive.
        """
        return self.total - total_cost(self, choices) + self.slack_for_rounding


def by_names(costs, values, name="costs"):
    """Return costs. If costs have names, they get the column order of `values`.

    Parameters
    ----------
    costs : array-like, dict or frame
    values : array-like or frame
    name : str, default="costs"
        Name of `costs` in messages.

    Returns
    -------
    array-like
        The argument itself if `costs` or `values` has no names.
    """
    columns = column_keys(values)
    # `columns` is None if `values` has no names. An array of costs has no names either.
    if columns is None or type(costs) is np.ndarray:
        return costs
    choice_names = [str(column) for column in columns]
    costs_by_name = by_label(costs)
    if isinstance(costs_by_name, dict):
        return check_costs(costs_by_name, choice_names, name=name)
    if np.ndim(costs) == 2:
        check_rows_match(values=values, **{name: costs})
    return in_order(costs, choice_names, name)


def check_values_and_costs(values, costs, name="costs", signed=False):
    """Check values and costs, and return them as read-only arrays of two axes.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
    name : str, default="costs"
        Name of `costs` in messages.
    signed : bool, default=False
        Allow negative costs.

    Returns
    -------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (1, n_choices) or (n_rows, n_choices)

    Raises
    ------
    ValueError
        For NaN, infinity, wrong shapes or negative costs.
    """
    costs = by_names(costs, values, name)
    values = check_array(values, dtype=np.float64, order="C", input_name="values")
    costs = check_array(
        costs, dtype=np.float64, order="C", input_name=name, ensure_2d=False
    )
    if costs.shape not in ((values.shape[1],), values.shape):
        raise ValueError(
            f"{name} must have shape ({values.shape[1]},) to be shared by all rows, or "
            f"{values.shape} with one cost per row and choice; got {costs.shape}."
        )
    costs = np.atleast_2d(costs)
    is_negative = costs < 0
    if not signed and is_negative.any():
        raise ValueError(
            f"{name} must not be negative, got {float(costs[is_negative][0])!r}."
        )
    return read_only(values), read_only(costs)


def problem_of(values, costs, budget):
    """Return the problem of checked values and costs with a feasible budget.

    Parameters
    ----------
    values, costs : ndarray
        From `check_values_and_costs`.
    budget : float
        Mean cost per row. Infinity is unlimited.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If the cheapest plan exceeds the budget, or sums over the rows may overflow.
    """
    n_rows = len(values)
    check_sums_are_finite(values, "values", n_rows)
    check_sums_are_finite(costs, "costs", n_rows)
    # The order of the first row. The kernels sort other rows, starting with this order.
    order = np.argsort(costs[0], kind="stable").astype(np.int64)
    cheapest_total = float(costs.min(axis=1).sum())
    if len(costs) == 1:
        # All rows share these costs.
        cheapest_total *= n_rows
    check_affordable(budget, cheapest_total / n_rows)
    return Problem(values, costs, total=budget * n_rows, order=order)


def check_sums_are_finite(numbers, name, n_rows):
    """Raise a ValueError if twice the sum of numbers over all rows may overflow."""
    lowest = numbers.min()
    highest = numbers.max()
    # The factor 2 is for solvers, which sum differences of two numbers.
    largest_allowed = np.finfo(np.float64).max / (2 * n_rows)
    if max(-lowest, highest) > largest_allowed:
        raise ValueError(
            f"{name} must be numbers whose sum over the {n_rows} rows is finite, got "
            f"{float(max(lowest, highest, key=abs))!r}. Give them in another unit."
        )


def cheapest_choices(problem):
    """Return the plan of the cheapest choices. Ties go to the highest value."""
    costs = np.broadcast_to(problem.costs, problem.values.shape)
    is_cheapest = costs == costs.min(axis=1, keepdims=True)
    # -inf: other choices are not taken.
    value_if_cheapest = np.where(is_cheapest, problem.values, -np.inf)
    return value_if_cheapest.argmax(axis=1)


def total_cost(problem, choices):
    """Return the cost of a plan, as a sum over all rows."""
    if len(problem.costs) == 1:
        # Counts times costs: one rounding per choice, for any number of rows.
        counts = np.bincount(choices, minlength=problem.costs.shape[1])
        return float(counts @ problem.costs[0])
    return float(problem.costs[np.arange(len(choices)), choices].sum())


def values_of(problem, choices):
    """Return the value of each row's choice in a plan, float64 of shape (n_rows,)."""
    n_choices = problem.values.shape[1]
    # Position of the first entry of each row in the flat table. Entries of a flat table
    # are read three times as fast as entries by pairs of row and choice.
    first_of_row = np.arange(0, problem.values.size, n_choices)
    return problem.values.ravel().take(first_of_row + choices)


def total_value(problem, choices):
    """Return the value of a plan, as a sum over all rows."""
    return float(values_of(problem, choices).sum())


def total_gain(problem, choices, reference):
    """Return the value of a plan minus the value of a reference plan, as sums.

    Differences of rows are summed, not totals, so that an offset of the values has no
    effect.
    """
    gains = values_of(problem, choices) - values_of(problem, reference)
    return float(gains.sum())
