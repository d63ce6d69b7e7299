"""Numba kernels of one pass over a block of rows.

Increments of the hulls of rows are ordered by their efficiency. The bits of a float64
that is not negative, read as an integer, have the same order. A bin of a sketch
contains the efficiencies that share their first bits, so that all blocks have the same
bins. Arguments are those of `skroute.assignment._kernels`.
"""

import numpy as np
from numba import njit

from skroute.assignment._kernels import row_hull, sort_row


@njit(cache=True, nogil=True)
def sketch_block(values, costs, order, low, shift, bins):
    """Sum costs and values of increments by bin.

    Parameters
    ----------
    values, costs, order : ndarray
    low : int
        Bits of the smallest efficiency of the first bin.
    shift : int
        Bin k has the efficiencies with bits from ``low + (k << shift)`` up to the next
        bin.
    bins : ndarray of shape (n_bins, 3)
        Number of increments, their cost and their value, in each bin. Added to in
        place.

    Returns
    -------
    sums : ndarray of shape (4,)
        Cost and value of the cheapest choices; cost and value of the increments above
        all bins.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    efficiency = np.empty(m)
    bits = efficiency.view(np.int64)
    n_bins = bins.shape[0]
    sums = np.zeros(4)
    for j in range(n):
        k = 0 if shared else j
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, k, order, hull, efficiency)
        sums[0] += costs[k, hull[0]]
        sums[1] += values[j, hull[0]]
        for t in range(1, size):
            bin_index = (bits[t] - low) >> shift
            if bin_index < 0:
                # Efficiency falls, so later increments are below the bins as well.
                break
            cost = costs[k, hull[t]] - costs[k, hull[t - 1]]
            value = values[j, hull[t]] - values[j, hull[t - 1]]
            if bin_index >= n_bins:
                sums[2] += cost
                sums[3] += value
            else:
                bins[bin_index, 0] += 1.0
                bins[bin_index, 1] += cost
                bins[bin_index, 2] += value
    return sums


@njit(cache=True, nogil=True)
def walk_block(values, costs, order, low, high, choices, core):
    """Take all increments above an interval, and mark rows with an increment in it.

    Parameters
    ----------
    values, costs, order : ndarray
    low, high : int
        The interval contains efficiencies with bits from `low` up to, but without,
        `high`.
    choices : ndarray of shape (n,), dtype=int64
        The choice of each row after these increments. Written.
    core : ndarray of shape (n,), dtype=bool
        True for rows with an increment in the interval. Written.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    efficiency = np.empty(m)
    bits = efficiency.view(np.int64)
    for j in range(n):
        k = 0 if shared else j
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, k, order, hull, efficiency)
        t = 1
        while t < size and bits[t] >= high:
            t += 1
        choices[j] = hull[t - 1]
        core[j] = t < size and bits[t] >= low
