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
def limit_of_nearest(distance, n_nearest, scratch):
    """The `n_nearest`-th smallest distance; `scratch` has as much room."""
    n, every, bits = len(distance), 8, scratch.view(np.int32)
    if n >= 16 * n_nearest / every and n_nearest >= every:
        # A sample says which few can be among the nearest: they are fast to sort out.
        n_sample = 0
        for i in range(0, n, every):
            scratch[n_sample] = distance[i]
            n_sample += 1
        k = min(3 * n_nearest // (2 * every) + 6, n_sample)
        bound = kth_smallest(scratch[:n_sample], bits[:n_sample], k)
        n_below = 0
        for i in range(n):
            # Written always and kept where it is small: no branch to guess.
            scratch[n_below] = distance[i]
            n_below += distance[i] <= bound
        if n_below >= n_nearest:
            return kth_smallest(scratch[:n_below], bits[:n_below], n_nearest)
    scratch[:] = distance
    return kth_smallest(scratch, bits, n_nearest)


@njit(cache=True, nogil=True)
def nearest(distance, itself, n_nearest, scratch, found):
    """How many rows are nearest, `itself` left out; of many that tie, evenly spaced ones.

    Their positions are written to `found`. The distance of `itself` becomes infinite.
    """
    if itself >= 0:
        distance[itself] = np.float32(np.inf)
    limit = limit_of_nearest(distance, n_nearest, scratch)
    n_found = 0
    for i in range(len(distance)):
        found[n_found] = i
        n_found += distance[i] <= limit
    most = 2 * n_nearest
    if n_found > most:
        step = n_found / most
        for i in range(most):
            found[i] = found[int(i * step)]
        n_found = most
    return n_found


@njit(cache=True, nogil=True)
def stump_gain(counts, total, n, min_leaf, left):
    """Largest decrease of the Gini impurity of n rows by one cut of one column.

    `counts` are rows by bin of the column and class, and `total` rows by class.
    """
    n_classes = len(total)
    whole = 0.0
    for k in range(n_classes):
        whole += total[k] * total[k]
    best, n_left = 0.0, 0.0
    left[:] = 0
    for b in range(N_BINS - 1):
        here = 0.0
        for k in range(n_classes):
            left[k] += counts[b, k]
            here += counts[b, k]
        n_left += here
        # Behind an empty bin the cut is the one before.
        if here == 0 or n_left < min_leaf or n - n_left < min_leaf:
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
    counts = np.empty((codes.shape[1], N_BINS, n_classes))
    total, left = np.empty(n_classes), np.empty(n_classes)
    rows, scratch = np.empty(len(y), np.int64), np.empty(len(y), np.float32)
    for q in range(len(known)):
        first = -1
        for g in order:
            if not known[q, g]:
                first = g
                break
        if first < 0:
            continue
        n = nearest(distances[q], itself[q], n_nearest, scratch, rows)
        counts[:], total[:] = 0, 0
        for i in rows[:n]:
            total[y[i]] += 1
            # All columns of a row at once: they lie side by side.
            for j in range(codes.shape[1]):
                counts[j, codes[i, j], y[i]] += 1
        best, most = first, -1.0
        for g in order:
            if known[q, g]:
                continue
            gain = 0.0
            for at in range(starts[g], starts[g + 1]):
                gain = max(gain, stump_gain(counts[columns[at]], total, n, min_leaf, left))
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
