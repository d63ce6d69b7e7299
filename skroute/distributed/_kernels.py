"""Numba kernels of one pass over a block of rows.

An increment is a step on the hull of a row to its next more expensive choice. Its
efficiency is the additional value per additional cost. Increments are ordered by their
efficiency. The bits of a float64 that is not negative, read as an integer, have the
same order. A bin of a sketch contains the efficiencies that share their first bits, so
that all blocks have the same bins. `values`, `costs` and `order` are as in
`skroute.assignment._kernels`.
"""

import numpy as np
from numba import njit

from skroute.assignment._kernels import row_hull, sort_row


@njit(cache=True, nogil=True)
def sketch_block(values, costs, order, low, shift, bins):
    """Add up a block's steps to more expensive choices, by bins of value per cost.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
    order : ndarray of shape (n_choices,), dtype=int64
        Choices by their cost in the first row of `costs`.
    low : int
        Bits of the smallest efficiency of the first bin.
    shift : int
        Bin k has the efficiencies with bits from ``low + (k << shift)`` up to the next
        bin.
    bins : ndarray of shape (n_bins, 3)
        Number of increments, their cost and their value, in each bin. Changed: the
        increments of the block are added.

    Returns
    -------
    sums : ndarray of shape (4,)
        Cost and value of the cheapest choices, then cost and value of the increments
        above all bins.
    """
    n_rows, n_choices = values.shape
    has_shared_costs = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(n_choices, np.int64)
    efficiency = np.empty(n_choices)
    # A view: the bits of the efficiencies that `row_hull` writes.
    bits = efficiency.view(np.int64)
    n_bins = bins.shape[0]
    # Cost and value of the cheapest choices, then cost and value of the increments
    # above all bins.
    sums = np.zeros(4)
    for row in range(n_rows):
        cost_row = 0 if has_shared_costs else row
        if not has_shared_costs:
            # Sorts `order` in place.
            sort_row(costs, row, order)
        hull_size = row_hull(values, costs, row, cost_row, order, hull, efficiency)
        # hull[0] is the cheapest choice.
        sums[0] += costs[cost_row, hull[0]]
        sums[1] += values[row, hull[0]]
        # An increment is the step from hull[position - 1] to hull[position].
        for position in range(1, hull_size):
            bin_index = (bits[position] - low) >> shift
            if bin_index < 0:
                # Efficiency falls, so later increments are below the bins as well.
                break
            cost = costs[cost_row, hull[position]] - costs[cost_row, hull[position - 1]]
            value = values[row, hull[position]] - values[row, hull[position - 1]]
            if bin_index >= n_bins:
                # The increment is above all bins.
                sums[2] += cost
                sums[3] += value
            else:
                # The columns are number, cost and value.
                bins[bin_index, 0] += 1.0
                bins[bin_index, 1] += cost
                bins[bin_index, 2] += value
    return sums


@njit(cache=True, nogil=True)
def walk_block(values, costs, order, low, high, choices, is_core):
    """Take all steps to more expensive choices whose value per cost reaches `high`.

    A step (increment) leads from a choice to the next more expensive one. Rows with a
    step in the interval from `low` to `high` are marked in `is_core`.

    Parameters
    ----------
    values, costs, order : ndarray
        As for :func:`sketch_block`.
    low, high : int
        The interval contains efficiencies with bits from `low` up to, but without,
        `high`.
    choices : ndarray of shape (n_rows,), dtype=int64
        The choice of each row after the increments above the interval. Written.
    is_core : ndarray of shape (n_rows,), dtype=bool
        True for rows with an increment in the interval. Written.
    """
    n_rows, n_choices = values.shape
    has_shared_costs = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(n_choices, np.int64)
    efficiency = np.empty(n_choices)
    # A view: the bits of the efficiencies that `row_hull` writes.
    bits = efficiency.view(np.int64)
    for row in range(n_rows):
        cost_row = 0 if has_shared_costs else row
        if not has_shared_costs:
            # Sorts `order` in place.
            sort_row(costs, row, order)
        hull_size = row_hull(values, costs, row, cost_row, order, hull, efficiency)
        # Efficiency falls along the hull: the loop ends at the first increment below
        # `high`.
        position = 1
        while position < hull_size and bits[position] >= high:
            position += 1
        choices[row] = hull[position - 1]
        # The next increment, if there is one, is below `high`.
        is_core[row] = position < hull_size and bits[position] >= low
