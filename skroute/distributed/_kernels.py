"""Numba kernels of one pass over a block of rows.

Increments of the rows' hulls are ordered by their efficiency. The bits of a float64 that is
not negative, read as an integer, have the same order; a bin of a sketch is the efficiencies
that share their first bits, the same bins in every block. Arguments as in
`skroute.assignment._kernels`.
"""

import numpy as np
from numba import njit

from skroute.assignment._kernels import row_hull, sort_row


@njit(cache=True, nogil=True)
def sketch_block(values, costs, order, low, shift, hist):
    """Sum costs and values of increments by bin, and those of the bins above.

    Bin k of `hist` (n_bins, 3: count, cost, value) has the efficiencies whose bits are in
    ``low + (k << shift)`` up to the next; what is above is summed apart. Returns the cost and
    value of the cheapest choices, and of the increments above all bins.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    gains = np.empty(m)
    bits = gains.view(np.int64)
    n_bins = hist.shape[0]
    out = np.zeros(4)
    for j in range(n):
        k = 0 if shared else j
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, k, order, hull, gains)
        out[0] += costs[k, hull[0]]
        out[1] += values[j, hull[0]]
        for t in range(1, size):
            at = (bits[t] - low) >> shift
            if at < 0:
                break
            cost = costs[k, hull[t]] - costs[k, hull[t - 1]]
            value = values[j, hull[t]] - values[j, hull[t - 1]]
            if at >= n_bins:
                out[2] += cost
                out[3] += value
            else:
                hist[at, 0] += 1.0
                hist[at, 1] += cost
                hist[at, 2] += value
    return out


@njit(cache=True, nogil=True)
def walk_block(values, costs, order, low, high, choices, core):
    """Take every increment whose bits are at least `high`; mark rows with one in between.

    Fills `choices` (n,) int64, and `core` (n,) bool for rows with an increment whose bits are
    in ``low`` up to ``high``.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    gains = np.empty(m)
    bits = gains.view(np.int64)
    for j in range(n):
        k = 0 if shared else j
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, k, order, hull, gains)
        t = 1
        while t < size and bits[t] >= high:
            t += 1
        choices[j] = hull[t - 1]
        core[j] = t < size and bits[t] >= low
