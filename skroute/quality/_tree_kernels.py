"""Extremely randomised trees of several outputs, grown.

A node draws features without replacement until `n_candidates` that vary in it are found, one
threshold for each between its least and largest value, and keeps the best cut (Geurts, Ernst,
Wehenkel 2006). The score of a cut is the sum over outputs of ``sum_left**2 / n_left +
sum_right**2 / n_right``, as for squared error. A leaf is a node with ``feature`` -1; the right
child of a node stands behind the left one.
"""

import numpy as np
from numba import njit

_SUMS = {"nnan", "nsz", "reassoc", "contract"}


@njit(cache=True, nogil=True)
def _draw(state):
    """The next number in [0, 1) of an xorshift generator."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _gather(column, rows, first, last, values):
    """Values of a node's rows, and the least and largest of them."""
    for i in range(first, last):
        values[i - first] = column[rows[i]]
    low = high = values[0]
    for i in range(1, last - first):
        low = min(low, values[i])
        high = max(high, values[i])
    return low, high


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _score_of_cut(values, Z, first, last, cut, total, is_left):
    """Score of a cut, and how many rows are left of it. Sums of contiguous products."""
    n = last - first
    n_left = 0
    for i in range(n):
        side = values[i] <= cut
        is_left[i] = np.float32(side)
        n_left += side
    if n_left == 0 or n_left == n:
        return 0.0, n_left
    score = 0.0
    for output in range(Z.shape[0]):
        of_output = Z[output, first:last]
        left = np.float32(0)
        for i in range(n):
            left += is_left[i] * of_output[i]
        right = total[output] - left
        score += np.float64(left) * left / n_left + right * right / (n - n_left)
    return score, n_left


@njit(cache=True, nogil=True)
def _best_cut(X, rows, Z, first, last, order, shape, state, total, space):
    """The best of some random cuts of a node: feature (-1 for none), threshold, rows left."""
    n_candidates, min_leaf = shape
    best, best_feature, best_cut, best_left = -1.0, -1, np.float32(0), 0
    found = 0
    for position in range(order.shape[0]):
        other = position + int(_draw(state) * (order.shape[0] - position))
        order[position], order[other] = order[other], order[position]
        low, high = _gather(X[order[position]], rows, first, last, space[0])
        if not low < high:
            continue
        found += 1
        cut = np.float32(low + _draw(state) * (np.float64(high) - low))
        if not cut < high:
            cut = low
        score, n_left = _score_of_cut(space[0], Z, first, last, cut, total, space[1])
        if min(n_left, last - first - n_left) >= min_leaf and score > best:
            best, best_feature, best_cut, best_left = score, order[position], cut, n_left
        if found == n_candidates:
            break
    return best_feature, best_cut, best_left


@njit(cache=True, nogil=True)
def _partition(column, rows, Z, first, last, cut, space):
    """Bring the rows left of a cut to the front, in their order."""
    behind = first
    n_right = 0
    right_rows = np.empty(last - first, dtype=np.int64)
    is_left = space[1]
    for i in range(first, last):
        side = column[rows[i]] <= cut
        is_left[i - first] = side
        if side:
            rows[behind] = rows[i]
            behind += 1
        else:
            right_rows[n_right] = rows[i]
            n_right += 1
    for i in range(n_right):
        rows[behind + i] = right_rows[i]
    for output in range(Z.shape[0]):
        to, n_right = first, 0
        for i in range(first, last):
            if is_left[i - first] > 0:
                Z[output, to] = Z[output, i]
                to += 1
            else:
                space[0, n_right] = Z[output, i]
                n_right += 1
        for i in range(n_right):
            Z[output, to + i] = space[0, i]


@njit(cache=True, nogil=True)
def grow(X, Z, rows, n_candidates, min_leaf, max_depth, state):
    """One tree.

    Parameters
    ----------
    X : ndarray of shape (n_features, n_rows), dtype=float32
    Z : ndarray of shape (n_outputs, n_used), dtype=float32
        What cuts are judged by, of the rows used. Changed: ordered as `rows`.
    rows : ndarray of shape (n_used,), dtype=int64
        Positions of the rows used. Changed: those of a leaf are brought together.
    n_candidates, min_leaf, max_depth : int
    state : ndarray of shape (1,), dtype=uint64
        Of the generator. Changed.

    Returns
    -------
    feature : ndarray of shape (n_nodes,), dtype=int32
        -1 for a leaf.
    threshold : ndarray of shape (n_nodes,), dtype=float32
        Rows up to it go left.
    child : ndarray of shape (n_nodes,), dtype=int32
        The left one.
    bounds : ndarray of shape (n_nodes, 2), dtype=int64
        Where the rows of a node stand in `rows`.
    """
    n_used = len(rows)
    capacity = 2 * max(1, n_used // min_leaf) + 1
    feature = np.full(capacity, -1, dtype=np.int32)
    threshold = np.zeros(capacity, dtype=np.float32)
    child = np.zeros(capacity, dtype=np.int32)
    bounds = np.zeros((capacity, 2), dtype=np.int64)
    depth = np.zeros(capacity, dtype=np.int64)
    order = np.arange(X.shape[0])
    total = np.zeros(Z.shape[0])
    space = np.empty((2, n_used), dtype=np.float32)
    bounds[0, 1] = n_used
    n_nodes, node = 1, 0
    while node < n_nodes:
        first, last = bounds[node, 0], bounds[node, 1]
        if last - first >= 2 * min_leaf and depth[node] < max_depth:
            for output in range(Z.shape[0]):
                of_output = np.float32(0)
                for i in range(first, last):
                    of_output += Z[output, i]
                total[output] = of_output
            shape = (n_candidates, min_leaf)
            f, cut, n_left = _best_cut(X, rows, Z, first, last, order, shape, state, total, space)
            if f >= 0:
                _partition(X[f], rows, Z, first, last, cut, space)
                feature[node], threshold[node], child[node] = f, cut, n_nodes
                for side in range(2):
                    depth[n_nodes + side] = depth[node] + 1
                    bounds[n_nodes + side, 0] = first + side * n_left
                    bounds[n_nodes + side, 1] = last if side else first + n_left
                n_nodes += 2
        node += 1
    return feature[:n_nodes], threshold[:n_nodes], child[:n_nodes], bounds[:n_nodes]


@njit(cache=True, nogil=True)
def mean_of_leaves(feature, child, bounds, rows, Y):
    """Number the leaves in `child`, and give the mean outcome of the rows of each."""
    n_leaves = 0
    for node in range(len(feature)):
        n_leaves += feature[node] < 0
    values = np.zeros((n_leaves, Y.shape[1]), dtype=np.float32)
    leaf = 0
    for node in range(len(feature)):
        if feature[node] >= 0:
            continue
        first, last = bounds[node, 0], bounds[node, 1]
        for i in range(first, last):
            for output in range(Y.shape[1]):
                values[leaf, output] += Y[rows[i], output]
        for output in range(Y.shape[1]):
            values[leaf, output] /= last - first
        child[node] = leaf
        leaf += 1
    return values
