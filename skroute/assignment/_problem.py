"""The validated problem that all solvers share."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

from skroute.base import check_affordable, check_costs
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match, in_order
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import read_only


class Problem(NamedTuple):
    """Values (n, m), costs (n, m) or (1, m), total budget, and a starting order (m,)."""

    values: np.ndarray
    costs: np.ndarray
    total: float
    order: np.ndarray

    @property
    def slack_for_rounding(self):
        """How far a sum may exceed `total` and still be the rounding of one that fits."""
        return ROUNDING * self.total if np.isfinite(self.total) else 0.0

    def room_beyond(self, choices):
        """Return what a plan leaves of the total, the slack for rounding included."""
        return self.total - total_cost(self, choices) + self.slack_for_rounding


def by_names(costs, values, name="costs"):
    """Costs in the order of a frame's columns, where both have names; else as they are."""
    columns = column_keys(values)
    if columns is None or type(costs) is np.ndarray:
        return costs
    names, listed = [str(column) for column in columns], by_label(costs)
    if isinstance(listed, dict):
        return check_costs(listed, names, name=name)
    check_rows_match(values=values, **{name: costs} if np.ndim(costs) == 2 else {})
    return in_order(costs, names, name)


def check_values_and_costs(values, costs, name="costs", signed=False):
    """Validate values (n, m) and costs (m,) or (n, m); costs come back with two axes.

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
    if not signed and (negative := costs < 0).any():
        raise ValueError(
            f"{name} must not be negative, got {float(costs[negative][0])!r}."
        )
    return read_only(values), read_only(costs)


def problem_of(values, costs, budget):
    """Checked values and costs in the layout that the kernels take; the budget is feasible."""
    n = len(values)
    for name, low, high in (
        ("values", values.min(), values.max()),
        ("costs", 0.0, costs.max()),
    ):
        if max(-low, high) > np.finfo(np.float64).max / (2 * n):
            raise ValueError(
                f"{name} must be numbers whose sum over the {n} rows is finite, got "
                f"{float(max(low, high, key=abs))!r}. Give them in another unit."
            )
    # A stable sort of the shared costs; any order is right, this one is fast.
    order = np.argsort(costs[0], kind="stable").astype(np.int64)
    cheapest = float(costs.min(axis=1).sum()) * (n if len(costs) == 1 else 1)
    check_affordable(budget, cheapest / n)
    return Problem(values, costs, budget * n, order)


def cheapest_choices(problem):
    """Return the cheapest choice of each row; of several, the one with the highest value."""
    costs = np.broadcast_to(problem.costs, problem.values.shape)
    is_cheapest = costs == costs.min(axis=1, keepdims=True)
    return np.where(is_cheapest, problem.values, -np.inf).argmax(axis=1)


def total_cost(problem, choices):
    """Summed cost of a plan."""
    if len(problem.costs) == 1:
        # Counts times prices: exact to one rounding per choice, however many rows.
        counts = np.bincount(choices, minlength=problem.costs.shape[1])
        return float(counts @ problem.costs[0])
    return float(problem.costs[np.arange(len(choices)), choices].sum())


def total_value(problem, choices):
    """Summed value of a plan."""
    return float(problem.values[np.arange(len(choices)), choices].sum())


def total_gain(problem, choices, reference):
    """Return what a plan adds to the summed value of a reference plan.

    Differences are summed, not totals: an offset of the values changes no digit of a gain.
    """
    rows = np.arange(len(choices))
    gains = problem.values[rows, choices] - problem.values[rows, reference]
    return float(gains.sum())
