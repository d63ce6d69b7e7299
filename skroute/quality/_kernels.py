"""Exact nearest-neighbour kernels under the chebyshev, manhattan and euclidean metrics.

Both searches look at every reference row, in two steps. A short code of the row gives a
bound from below on its distance, and most rows are dismissed there, often after a few
blocks of features; the others get their distance in float64. The answer is therefore
that of a plain float64 search, ties included.

The codes (see :func:`skroute.quality._search.encode_references`) are one byte per feature
for chebyshev, where the error of rounding does not add up over features, and float32 for
the other two.

`metric` is 0 for chebyshev, 1 for manhattan and 2 for euclidean, whose distances are
squared everywhere in this module.
"""

import numpy as np
from numba import njit

# Sums may be reordered, which lets them be vectorised. All values are finite: the callers
# reject NaN and infinity, and the codes are clipped.
_SUMS = {"nnan", "nsz", "reassoc", "contract"}

_BYTES = 128
_FLOATS = 32
_ROWS = 128


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _code_distance(metric, a, b, limit):
    """Distance of two codes, or any value above `limit` if it exceeds that."""
    if metric == 0:
        largest = np.uint8(0)
        for start in range(0, a.shape[0], _BYTES):
            # Slices of fixed length are what the compiler vectorises without a remainder.
            x = a[start : start + _BYTES]
            y = b[start : start + _BYTES]
            for j in range(_BYTES):
                # Nested so that the whole reduction stays in bytes.
                largest = max(largest, np.uint8(max(x[j], y[j]) - min(x[j], y[j])))
            if largest > limit:
                return np.float64(largest)
        return np.float64(largest)
    total = np.float32(0)
    for start in range(0, a.shape[0], _FLOATS):
        x = a[start : start + _FLOATS]
        y = b[start : start + _FLOATS]
        if metric == 1:
            for j in range(_FLOATS):
                total += abs(np.float32(x[j]) - np.float32(y[j]))
        else:
            for j in range(_FLOATS):
                difference = np.float32(x[j]) - np.float32(y[j])
                total += difference * difference
        if total > limit:
            return np.float64(total)
    return np.float64(total)


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _distance(metric, row, query, absolute, bits):
    """Distance in float64. `absolute` is scratch, `bits` the same memory as int64."""
    if metric == 0:
        for j in range(row.shape[0]):
            absolute[j] = abs(row[j] - query[j])
        # Of floats that are not negative the bit patterns have the same order, and a
        # maximum of integers is vectorised where one of floats is not.
        largest = np.int64(0)
        at = 0
        for j in range(row.shape[0]):
            largest = max(largest, bits[j])
        bits[0] = largest
        return absolute[at]
    total = 0.0
    if metric == 1:
        for j in range(row.shape[0]):
            total += abs(row[j] - query[j])
    else:
        for j in range(row.shape[0]):
            difference = row[j] - query[j]
            total += difference * difference
    return total


@njit(cache=True, nogil=True)
def _code_limit(metric, distance, slack, factor, scale):
    """Largest distance of codes that a row within `distance` can have."""
    if distance == np.inf:
        return np.inf
    if metric == 0:
        return np.floor(distance / scale * factor + 1e-9) + 1.0
    if metric == 1:
        return (distance / scale + slack) * factor
    root = (np.sqrt(distance) / scale + slack) * factor
    return root * root


@njit(cache=True, nogil=True)
def nearest_of_subsets(metric, codes, X, starts, scale, factor, query_codes, slack, Q):
    """Nearest row of each subset to each query; of equally near rows the first.

    Parameters
    ----------
    metric : int

    codes : ndarray of shape (n_rows, n_padded), uint8 or float32
        Codes of the rows.

    X : ndarray of shape (n_rows, n_features), float32 or float64
        The rows, those of a subset contiguous.

    starts : ndarray of shape (n_subsets + 1,), dtype=int64
        Subset k is rows ``starts[k]`` to ``starts[k + 1] - 1``; none is empty.

    scale, factor : float
        Unit of the codes, and allowance for rounding as a factor.

    query_codes : ndarray of shape (n_queries, n_padded)

    slack : ndarray of shape (n_queries,), dtype=float64
        Allowance for rounding that is added, in units of `scale`.

    Q : ndarray of shape (n_queries, n_features), dtype=float64
        The queries.

    Returns
    -------
    distances : ndarray of shape (n_queries, n_subsets), dtype=float64
    rows : ndarray of shape (n_queries, n_subsets), dtype=int64
    """
    n_queries, n_subsets = Q.shape[0], starts.shape[0] - 1
    distances = np.full((n_queries, n_subsets), np.inf)
    rows = np.empty((n_queries, n_subsets), np.int64)
    absolute = np.empty(Q.shape[1])
    bits = absolute.view(np.int64)
    for k in range(n_subsets):
        rows[:, k] = starts[k]
        for first in range(starts[k], starts[k + 1], _ROWS):
            last = min(first + _ROWS, starts[k + 1])
            for q in range(n_queries):
                best = distances[q, k]
                limit = _code_limit(metric, best, slack[q], factor, scale)
                for i in range(first, last):
                    if _code_distance(metric, codes[i], query_codes[q], limit) > limit:
                        continue
                    distance = _distance(metric, X[i], Q[q], absolute, bits)
                    if distance < best:
                        best = distance
                        rows[q, k] = i
                        limit = _code_limit(metric, best, slack[q], factor, scale)
                distances[q, k] = best
    return distances, rows


@njit(cache=True, nogil=True)
def _keep_nearest(distances, rows, count, k):
    """Compact the candidates to the k nearest, stably; return the k-th distance."""
    bound = np.partition(distances[:count], k - 1)[k - 1]
    n_below = 0
    for j in range(count):
        n_below += distances[j] < bound
    n_equal = k - n_below
    kept = 0
    for j in range(count):
        take = distances[j] < bound
        if distances[j] == bound and n_equal > 0:
            n_equal -= 1
            take = True
        if take:
            distances[kept] = distances[j]
            rows[kept] = rows[j]
            kept += 1
    return bound


@njit(cache=True, nogil=True)
def k_nearest(metric, codes, X, k, scale, factor, query_codes, slack, Q):
    """The `k` nearest rows to each query, ordered by distance, then by row.

    Parameters are those of :func:`nearest_of_subsets`, and `k` of at most ``n_rows``.

    Returns
    -------
    distances : ndarray of shape (n_queries, k), dtype=float64
    rows : ndarray of shape (n_queries, k), dtype=int64
    """
    n_queries, n_rows = Q.shape[0], X.shape[0]
    capacity = min(2 * k + 64, n_rows)
    distances = np.empty((n_queries, capacity))
    rows = np.empty((n_queries, capacity), np.int64)
    counts = np.zeros(n_queries, np.int64)
    bounds = np.full(n_queries, np.inf)
    absolute = np.empty(Q.shape[1])
    bits = absolute.view(np.int64)
    for first in range(0, n_rows, _ROWS):
        last = min(first + _ROWS, n_rows)
        for q in range(n_queries):
            limit = _code_limit(metric, bounds[q], slack[q], factor, scale)
            for i in range(first, last):
                if _code_distance(metric, codes[i], query_codes[q], limit) > limit:
                    continue
                distance = _distance(metric, X[i], Q[q], absolute, bits)
                # Rows come in order, so an equal one later is not among the first k. The
                # negation lets an infinite distance (overflow) fill an empty place.
                if distance >= bounds[q] and counts[q] >= k:
                    continue
                if counts[q] == capacity:
                    bounds[q] = _keep_nearest(distances[q], rows[q], capacity, k)
                    counts[q] = k
                    limit = _code_limit(metric, bounds[q], slack[q], factor, scale)
                    if distance >= bounds[q]:
                        continue
                distances[q, counts[q]] = distance
                rows[q, counts[q]] = i
                counts[q] += 1
    out_distances = np.empty((n_queries, k))
    out_rows = np.empty((n_queries, k), np.int64)
    for q in range(n_queries):
        order = np.argsort(distances[q, : counts[q]], kind="mergesort")[:k]
        out_distances[q] = distances[q][order]
        out_rows[q] = rows[q][order]
    return out_distances, out_rows


@njit(cache=True, nogil=True)
def sums_at_distance(metric, codes, X, y, at, scale, factor, query_codes, slack, Q):
    """Sums over all rows at exactly the distance ``at[q]`` from query q.

    Parameters are those of :func:`nearest_of_subsets`, and

    y : ndarray of shape (n_rows, n_outputs), dtype=float64
        Outcomes of the rows.

    at : ndarray of shape (n_queries,), dtype=float64
        A distance for each query, as returned by :func:`k_nearest`.

    Returns
    -------
    counts : ndarray of shape (n_queries,), dtype=int64
        Number of rows at that distance.
    sums, squares : ndarray of shape (n_queries, n_outputs), dtype=float64
        Sums of their outcomes and of the squares of these.
    """
    n_queries, n_rows, n_outputs = Q.shape[0], X.shape[0], y.shape[1]
    counts = np.zeros(n_queries, np.int64)
    sums = np.zeros((n_queries, n_outputs))
    squares = np.zeros((n_queries, n_outputs))
    absolute = np.empty(Q.shape[1])
    bits = absolute.view(np.int64)
    for first in range(0, n_rows, _ROWS):
        last = min(first + _ROWS, n_rows)
        for q in range(n_queries):
            limit = _code_limit(metric, at[q], slack[q], factor, scale)
            for i in range(first, last):
                if _code_distance(metric, codes[i], query_codes[q], limit) > limit:
                    continue
                if _distance(metric, X[i], Q[q], absolute, bits) == at[q]:
                    counts[q] += 1
                    for output in range(n_outputs):
                        sums[q, output] += y[i, output]
                        squares[q, output] += y[i, output] * y[i, output]
    return counts, sums, squares
