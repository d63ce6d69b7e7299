"""Kernels of buying features one group at a time by nearest rows."""

import numpy as np
from numba import njit

from skroute.quality._kernels import kth_smallest

# Bins of a column: 0 is for missing values, the others are shares of the reference rows.
N_BINS = 17


@njit(cache=True, nogil=True)
def add_distances(ranks, query, columns, categorical, weight, distance):
    """Add to `distance` what reference rows and the query differ by in some columns.

    Ranks are in [0, 1], and -1 where the value is missing.
    """
    for j in columns:
        q = query[j]
        for i in range(len(distance)):
            r = ranks[i, j]
            if r == q:
                continue
            if r < 0 or q < 0 or categorical[j]:
                distance[i] += np.float32(0.5 * weight)
            else:
                distance[i] += np.float32(abs(r - q) * weight)


@njit(cache=True, nogil=True)
def nearest(distance, itself, n_nearest):
    """Positions of the nearest rows, `itself` left out; of many that tie, evenly spaced ones."""
    n = len(distance)
    kept, scratch = np.empty(n, np.float32), np.empty(n, np.float32)
    for i in range(n):
        kept[i] = scratch[i] = np.float32(np.inf) if i == itself else distance[i]
    limit = kth_smallest(scratch, n_nearest)
    found, n_found = np.empty(n, np.int64), 0
    for i in range(n):
        if kept[i] <= limit:
            found[n_found] = i
            n_found += 1
    most = 2 * n_nearest
    if n_found > most:
        step = n_found / most
        for i in range(most):
            found[i] = found[int(i * step)]
        n_found = most
    return found[:n_found]


@njit(cache=True, nogil=True)
def stump_gain(codes, y, rows, column, n_classes, min_leaf, counts, left):
    """Largest decrease of the Gini impurity of rows by one cut of one column."""
    counts[:] = 0
    for i in rows:
        counts[codes[i, column], y[i]] += 1
    n = len(rows)
    left[:] = 0
    total = np.zeros(n_classes)
    for b in range(N_BINS):
        for k in range(n_classes):
            total[k] += counts[b, k]
    whole = 0.0
    for k in range(n_classes):
        whole += total[k] * total[k]
    best, n_left = 0.0, 0.0
    for b in range(N_BINS - 1):
        for k in range(n_classes):
            left[k] += counts[b, k]
            n_left += counts[b, k]
        if n_left < min_leaf or n - n_left < min_leaf:
            continue
        of_left, of_right = 0.0, 0.0
        for k in range(n_classes):
            of_left += left[k] * left[k]
            of_right += (total[k] - left[k]) ** 2
        gain = of_left / n_left + of_right / (n - n_left) - whole / n
        best = max(best, gain / n)
    return best


@njit(cache=True, nogil=True)
def next_groups(distances, itself, known, order, codes, y, starts, columns, prices, options):
    """The group that nearest rows would have each query buy next; -1 where none is left.

    `starts` and `columns` list the columns of each group, `order` breaks ties and stands in
    where nothing gains; `options` are the number of nearest rows, the least rows of a side of
    a cut, the lead that another group than the next of `order` needs, and the number of classes.
    """
    n_nearest, min_leaf, margin = int(options[0]), options[1], options[2]
    n_classes = int(options[3])
    found = np.full(len(known), -1)
    counts = np.zeros((N_BINS, n_classes))
    left = np.zeros(n_classes)
    for q in range(len(known)):
        first = -1
        for g in order:
            if not known[q, g]:
                first = g
                break
        if first < 0:
            continue
        rows = nearest(distances[q], itself[q], n_nearest)
        best, most = first, -1.0
        for g in order:
            if known[q, g]:
                continue
            gain = 0.0
            for at in range(starts[g], starts[g + 1]):
                own = stump_gain(codes, y, rows, columns[at], n_classes, min_leaf, counts, left)
                gain = max(gain, own)
            if g == first:
                gain += margin
            gain /= prices[g]
            if gain > most:
                most, best = gain, g
        found[q] = best
    return found


@njit(cache=True, nogil=True)
def add_bought(distances, ranks, queries, bought, starts, columns, categorical):
    """Add the distance in the group that each query has bought; -1 bought none."""
    for q in range(len(bought)):
        g = bought[q]
        if g >= 0:
            own = columns[starts[g] : starts[g + 1]]
            weight = 1.0 / np.sqrt(len(own))
            add_distances(ranks, queries[q], own, categorical, weight, distances[q])
