"""Exact nearest-neighbour kernels under the chebyshev, manhattan and euclidean metrics.

Both searches look at every reference row, in two steps. A short code of the row gives a
bound from below on its distance, and most rows are dismissed there, often after a few
blocks of features; the others get their distance in float64. The answer is therefore
that of a plain float64 search, ties included. Under euclidean the bounds of many queries come
from one product of matrices, less what rounding may have added.

The codes (see :class:`skroute.quality._search.HostRows`) are two bytes per feature for
chebyshev, where the error of rounding does not add up over features, and float32 for the
other two. Rows and queries come as records, `References` and `Queries`.

`metric` is 0 for chebyshev, 1 for manhattan and 2 for euclidean, whose distances are
squared everywhere in this module.
"""

import numpy as np
from numba import njit

# Sums may be reordered, which lets them be vectorised. All values are finite: the callers
# reject NaN and infinity, and the codes are clipped.
_SUMS = {"nnan", "nsz", "reassoc", "contract"}

_SHORTS = 256
_FLOATS = 64
# Bytes of codes in a block of rows; with one query they fit the first-level cache.
_BLOCK = 24576
# Rows of a product of matrices, and the fewest queries that are worth one.
_PRODUCT_ROWS = 1024
_PRODUCT_QUERIES = 4


# Distances of the codes of rows `first` to `last` and of a query, into `out`; only those up to
# `limit` are complete, the others are something larger than it. The inner loops run over
# slices of fixed length, the form that is vectorised.


@njit(cache=True, nogil=True)
def _largest_differences(codes, first, last, query, limit, out):
    for i in range(first, last):
        largest = np.uint16(0)
        for block in range(codes.shape[1]):
            for j in range(_SHORTS):
                largest = max(
                    largest,
                    np.uint16(
                        max(codes[i, block, j], query[block, j])
                        - min(codes[i, block, j], query[block, j])
                    ),
                )
            if largest > limit:
                break
        out[i - first] = largest


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _sums_of_differences(codes, first, last, query, limit, out):
    for i in range(first, last):
        total = np.float32(0)
        for block in range(codes.shape[1]):
            part = np.float32(0)
            for j in range(_FLOATS):
                part += abs(np.float32(codes[i, block, j]) - np.float32(query[block, j]))
            total += part
            if total > limit:
                break
        out[i - first] = total


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _sums_of_squares(codes, first, last, query, limit, out):
    for i in range(first, last):
        total = np.float32(0)
        for block in range(codes.shape[1]):
            part = np.float32(0)
            for j in range(_FLOATS):
                difference = np.float32(codes[i, block, j]) - np.float32(query[block, j])
                part += difference * difference
            total += part
            if total > limit:
                break
        out[i - first] = total


@njit(cache=True, nogil=True)
def _code_distances(metric, codes, first, last, query, limit, out):
    if metric == 0:
        _largest_differences(codes, first, last, query, limit, out)
    elif metric == 1:
        _sums_of_differences(codes, first, last, query, limit, out)
    else:
        _sums_of_squares(codes, first, last, query, limit, out)


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _sum_distance(metric, X, i, query):
    total = 0.0
    if metric == 1:
        for j in range(X.shape[1]):
            total += abs(X[i, j] - query[j])
    else:
        for j in range(X.shape[1]):
            difference = X[i, j] - query[j]
            total += difference * difference
    return total


# Inlined: the call alone takes several times what a row of few features does.
@njit(cache=True, nogil=True, inline="always")
def _distance(metric, X, i, query, absolute, bits):
    """Distance of row `i` in float64. `absolute` is scratch, `bits` the same memory as int64."""
    if metric != 0:
        return _sum_distance(metric, X, i, query)
    for j in range(X.shape[1]):
        absolute[j] = abs(X[i, j] - query[j])
    # Of floats that are not negative the bit patterns have the same order, and a maximum of
    # integers is vectorised where one of floats is not.
    largest = np.int64(0)
    for j in range(X.shape[1]):
        largest = max(largest, bits[j])
    bits[0] = largest
    return absolute[0]


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
def _upper_bound(metric, code, slack, factor, scale):
    """Largest distance that a row can have at this distance of codes, what they lack added."""
    if metric == 0:
        return (code + 1.0) * scale * factor
    if metric == 1:
        return (code * factor + slack) * scale
    root = (np.sqrt(code) * factor + slack) * scale
    return root * root


@njit(cache=True, nogil=True)
def _block_size(references, queries):
    """Rows of a block, and whether a product of matrices bounds their distances."""
    if references.metric == 2 and len(queries.rows) >= _PRODUCT_QUERIES:
        return _PRODUCT_ROWS, True
    codes = references.codes
    return max(8, _BLOCK // (codes[0].size * codes.itemsize)), False


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _block_bounds(references, queries, block, limits, product, memory):
    """Bounds from below on the distances of codes of all queries and a block of rows.

    Of a query with a negative limit there are none, unless by a product.
    """
    first, last = block
    codes, n_queries = references.codes, len(queries.rows)
    bounds = memory[: n_queries * (last - first)].reshape(n_queries, last - first)
    if product:
        # The view is for the compiler, which reads this for codes of chebyshev as well. Zeros
        # that fill a block of features up are left out.
        n_features = queries.rows.shape[1]
        rows = codes[first:last].reshape(last - first, -1).view(np.float32)[:, :n_features]
        asked = queries.codes.reshape(n_queries, -1).view(np.float32)[:, :n_features]
        np.dot(np.ascontiguousarray(asked), np.ascontiguousarray(rows).T, bounds)
        squares = references.squares[first:last]
        for q in range(n_queries):
            own, line = queries.squares[q], bounds[q]
            for i in range(len(line)):
                line[i] = (own + squares[i]) - 2 * line[i]
        return bounds
    for q in range(n_queries):
        if limits[q] >= 0:
            _code_distances(
                references.metric, codes, first, last, queries.codes[q], limits[q], bounds[q]
            )
    return bounds


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _smallest(values):
    smallest = np.float32(np.inf)
    for i in range(len(values)):
        smallest = min(smallest, values[i])
    return smallest


@njit(cache=True, nogil=True)
def nearest_of_subsets(references, queries, starts):
    """Nearest row of each subset to each query; of equally near rows the first.

    Parameters
    ----------
    references : References
        Rows, those of a subset contiguous.

    queries : Queries

    starts : ndarray of shape (n_subsets + 1,), dtype=int64
        Subset k is rows ``starts[k]`` to ``starts[k + 1] - 1``; none is empty.

    Returns
    -------
    distances : ndarray of shape (n_queries, n_subsets), dtype=float64
    rows : ndarray of shape (n_queries, n_subsets), dtype=int64
    """
    metric, scale, factor = references.metric, references.scale, references.factor
    X, slack = references.rows, queries.slack
    n_queries, n_subsets = len(queries.rows), len(starts) - 1
    distances = np.full((n_queries, n_subsets), np.inf)
    rows = np.empty((n_queries, n_subsets), np.int64)
    absolute = np.empty(X.shape[1])
    bits = absolute.view(np.int64)
    size, product = _block_size(references, queries)
    memory, limits = np.empty(n_queries * size, np.float32), np.empty(n_queries)
    block = 0, 0
    bounds = memory[:0].reshape(0, 0)
    for k in range(n_subsets):
        rows[:, k], limits[:] = starts[k], np.inf
        first = starts[k]
        while first < starts[k + 1]:
            if first >= block[1]:
                # A product is of the rows of several subsets.
                block = first, min(first + size, len(X) if product else starts[k + 1])
                bounds = _block_bounds(references, queries, block, limits, product, memory)
            last = min(block[1], starts[k + 1])
            for q in range(n_queries):
                limit = limits[q]
                if limit < 0:
                    continue
                near, query = bounds[q, first - block[0] : last - block[0]], queries.rows[q]
                at, smallest = 0, _smallest(near)
                if smallest > limit:
                    continue
                while near[at] > smallest:
                    at += 1
                # What is nearest by the bounds comes first: few others are left then.
                best = distances[q, k]
                for j in range(-1, len(near)):
                    j = at if j < 0 else j
                    if near[j] > limit:
                        continue
                    i = first + j
                    distance = _distance(metric, X, i, query, absolute, bits)
                    if distance < best or (distance == best and i < rows[q, k]):
                        best, rows[q, k] = distance, i
                        limit = _code_limit(metric, best, slack[q], factor, scale)
                distances[q, k], limits[q] = best, limit if best > 0 else -1.0
            first = last
    return distances, rows


# np.partition does the same, and takes many seconds that `k_nearest` is compiled.
@njit(cache=True, nogil=True)
def kth_smallest(values, bits, k):
    """The k-th smallest of `values`, which are not negative and which change.

    It halves what is possible and counts: there are no branches that are guessed wrong, and the
    counts are vectorised. `bits` is the same memory as integers, which have the same order.
    """
    low = high = bits[0]
    for j in range(len(bits)):
        low, high = min(low, bits[j]), max(high, bits[j])
    while low < high:
        middle, count = low + (high - low) // 2, 0
        # The values next to the middle: where many are equal, halves are not enough.
        below, above = low, high
        for j in range(len(bits)):
            lower = bits[j] <= middle
            count += lower
            below = max(below, bits[j] if lower else low)
            above = min(above, high if lower else bits[j])
        if count < k:
            low = above
        else:
            high = below
            if count == k:
                low = below
    bits[0] = low
    return values[0]


@njit(cache=True, nogil=True)
def _keep_possible(references, queries, q, values, rows, count, k):
    """Drop candidates whose codes prove them not to be among the k nearest, stably.

    Returns how many are left and the largest distance of codes that is still possible.
    """
    metric, scale, factor = references.metric, references.scale, references.factor
    slack, upper = queries.slack[q], np.empty(count)
    for j in range(count):
        # A zero of either sign becomes a positive one, whose bits are zero.
        upper[j] = max(values[j] + references.excess[rows[j]], 0.0) + 0.0
    largest = kth_smallest(upper, upper.view(np.int64), k) + queries.excess[q]
    bound = _upper_bound(metric, largest, slack, factor, scale)
    limit = _code_limit(metric, bound, slack, factor, scale)
    kept = 0
    for j in range(count):
        # No branch, which would be guessed wrong half of the time.
        value = values[j]
        values[kept], rows[kept] = value, rows[j]
        kept += value <= limit
    return kept, limit


@njit(cache=True, nogil=True)
def _keep_nearest(metric, values, rows, count, k, X, query, absolute, bits):
    """Reduce candidates, which come in the order of rows, to the k nearest, stably.

    Returns their distances, in the same order, and the largest of them.
    """
    distances, scratch = np.empty(count), np.empty(count)
    for j in range(count):
        distances[j] = scratch[j] = _distance(metric, X, rows[j], query, absolute, bits)
    bound = kth_smallest(scratch, scratch.view(np.int64), k)
    n_equal = k
    for j in range(count):
        n_equal -= distances[j] < bound
    kept = 0
    for j in range(count):
        if distances[j] > bound:
            continue
        if distances[j] == bound:
            if n_equal == 0:
                continue
            n_equal -= 1
        distances[kept] = distances[j]
        values[kept] = values[j]
        rows[kept] = rows[j]
        kept += 1
    return distances[:k], bound


@njit(cache=True, nogil=True)
def _k_nearest(references, queries, k):
    """As `k_nearest`, in the order of rows.

    Candidates are gathered and thinned by their codes; only what is left at the end, little
    more than `k` rows, gets its distance. Where very many rows have equal codes (discrete
    features), thinning takes distances as well: from then on a row must be nearer than the
    k-th of them, since among equally near rows the first ones count.
    """
    metric, scale, factor = references.metric, references.scale, references.factor
    codes, X = references.codes, references.rows
    Q, slack = queries.rows, queries.slack
    n_queries, n_rows = Q.shape[0], X.shape[0]
    size, product = _block_size(references, queries)
    # So many candidates are left as they are.
    enough = 2 * k + 64
    values = np.empty((n_queries, min(enough + size, n_rows)))
    rows = np.empty(values.shape, np.int64)
    counts = np.zeros(n_queries, np.int64)
    limits = np.full(n_queries, np.inf)
    # Largest of k distances, for queries of which some were taken.
    bounds = np.full(n_queries, np.inf)
    absolute = np.empty(Q.shape[1])
    bits = absolute.view(np.int64)
    memory, one = np.empty(n_queries * size, np.float32), np.empty(1, np.float32)
    for first in range(0, n_rows, size):
        last = min(first + size, n_rows)
        near = _block_bounds(references, queries, (first, last), limits, product, memory)
        for q in range(n_queries):
            limit, bound, query = limits[q], bounds[q], Q[q]
            if limit < 0:
                continue
            line, count = near[q], counts[q]
            for j in range(len(line)):
                value = line[j]
                if value > limit:
                    continue
                i = first + j
                if bound < np.inf:
                    if product and codes.shape[1] > 1:
                        # Rows much nearer to each other than to zero: products say little. Of few
                        # features the distance itself takes no longer.
                        _code_distances(metric, codes, i, i + 1, queries.codes[q], limit, one)
                        if one[0] > limit:
                            continue
                    if _distance(metric, X, i, query, absolute, bits) >= bound:
                        continue
                values[q, count], rows[q, count] = value, i
                count += 1
            if count > enough:
                count, limit = _keep_possible(references, queries, q, values[q], rows[q], count, k)
                if count > enough:
                    _, bound = _keep_nearest(
                        metric, values[q], rows[q], count, k, X, query, absolute, bits
                    )
                    count, limit = (
                        k,
                        min(limit, _code_limit(metric, bound, slack[q], factor, scale)),
                    )
            counts[q] = count
            limits[q], bounds[q] = limit if bound > 0 else -1.0, bound
    distances = np.empty((n_queries, k))
    nearest_rows = np.empty((n_queries, k), np.int64)
    for q in range(n_queries):
        query = Q[q]
        count, _ = _keep_possible(references, queries, q, values[q], rows[q], counts[q], k)
        nearest, _ = _keep_nearest(metric, values[q], rows[q], count, k, X, query, absolute, bits)
        for j in range(k):
            distances[q, j] = nearest[j]
            nearest_rows[q, j] = rows[q, j]
    return distances, nearest_rows


def k_nearest(references, queries, k):
    """The `k` nearest rows to each query, ordered by distance, then by row.

    Parameters
    ----------
    references : References
    queries : Queries
    k : int
        At most the number of rows.

    Returns
    -------
    distances : ndarray of shape (n_queries, k), dtype=float64
    rows : ndarray of shape (n_queries, k), dtype=int64
    """
    distances, rows = _k_nearest(references, queries, k)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(distances, order, 1), np.take_along_axis(rows, order, 1)


@njit(cache=True, nogil=True)
def sums_at_distance(references, queries, y, at):
    """Sums over all rows at exactly the distance ``at[q]`` from query q.

    Parameters
    ----------
    references : References
    queries : Queries

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
    metric, scale, factor = references.metric, references.scale, references.factor
    X, Q = references.rows, queries.rows
    n_queries, n_rows, n_outputs = Q.shape[0], X.shape[0], y.shape[1]
    counts = np.zeros(n_queries, np.int64)
    sums = np.zeros((n_queries, n_outputs))
    squares = np.zeros((n_queries, n_outputs))
    absolute = np.empty(Q.shape[1])
    bits = absolute.view(np.int64)
    size, product = _block_size(references, queries)
    memory, limits = np.empty(n_queries * size, np.float32), np.empty(n_queries)
    for q in range(n_queries):
        limits[q] = _code_limit(metric, at[q], queries.slack[q], factor, scale)
    for first in range(0, n_rows, size):
        last = min(first + size, n_rows)
        near = _block_bounds(references, queries, (first, last), limits, product, memory)
        for q in range(n_queries):
            # Sums are rounded in another order where they are compiled into another loop.
            rounding = 0.0 if metric == 0 else 1e-14 * at[q]
            for i in range(first, last):
                if near[q, i - first] > limits[q]:
                    continue
                found = _distance(metric, X, i, Q[q], absolute, bits)
                # Infinite ones are equal, and their difference is no number.
                if found == at[q] or abs(found - at[q]) <= rounding:
                    counts[q] += 1
                    for output in range(n_outputs):
                        sums[q, output] += y[i, output]
                        squares[q, output] += y[i, output] * y[i, output]
    return counts, sums, squares
