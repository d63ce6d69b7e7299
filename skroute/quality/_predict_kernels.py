"""Compiled parts of a prediction. Sums in single precision have one order in any batch.

Imported on first use. Trees are walked in a layout of their own (:func:`laid_out`): a leaf is its
own child, so that some rows, or some trees, take steps together and no branch depends on the data.
"""

import numpy as np
from numba import njit

# Rows that are walked together: a tree stays in the cache for all of them.
_ROWS = 512
_FMA = {"contract"}


@njit(cache=True, nogil=True)
def laid_out(feature, threshold, child):
    """Nodes of trees as the walks take them: what a step needs lies side by side.

    Parameters
    ----------
    feature, threshold, child : ndarray of shape (n_nodes,)
        As in :class:`~skroute.quality._trees.Trees`.

    Returns
    -------
    nodes : ndarray of shape (4 * n_nodes,), dtype=uint32
        Four entries for each node: its feature, where its left child stands here (a leaf: where
        itself), and of a leaf its row of values.
    cuts : ndarray of the same shape, dtype=float32
        The same memory: the fourth entry is the threshold.
    """
    nodes = np.zeros(4 * len(feature), dtype=np.uint32)
    cuts = nodes.view(np.float32)
    for node in range(len(feature)):
        at = 4 * node
        if feature[node] < 0:
            nodes[at + 1], nodes[at + 2], cuts[at + 3] = at, child[node], np.inf
        else:
            nodes[at], nodes[at + 1] = feature[node], 4 * child[node]
            cuts[at + 3] = threshold[node]
    return nodes, cuts


# Indices are without sign: there is no test for negative ones.
@njit(cache=True, nogil=True, inline="always")
def _step(x, row, nodes, cuts, at):
    right = x[row + np.uint64(nodes[at])] > cuts[at + np.uint64(3)]
    return np.uint64(nodes[at + np.uint64(1)]) + (np.uint64(right) << np.uint64(2))


@njit(cache=True, nogil=True, inline="always")
def _row_of_leaf(nodes, at):
    return np.int64(nodes[at + np.uint64(2)])


@njit(cache=True, nogil=True)
def _leaf(x, row, nodes, cuts, at):
    while True:
        to = _step(x, row, nodes, cuts, at)
        if to == at:
            return _row_of_leaf(nodes, at)
        at = to


@njit(cache=True, nogil=True)
def _eight(x, rows, nodes, cuts, roots, leaves):
    """Leaves of eight pairs of a row and a root; their loads overlap."""
    r0, r1, r2, r3, r4, r5, r6, r7 = rows
    a0, a1, a2, a3, a4, a5, a6, a7 = roots
    while True:
        b0, b1 = _step(x, r0, nodes, cuts, a0), _step(x, r1, nodes, cuts, a1)
        b2, b3 = _step(x, r2, nodes, cuts, a2), _step(x, r3, nodes, cuts, a3)
        b4, b5 = _step(x, r4, nodes, cuts, a4), _step(x, r5, nodes, cuts, a5)
        b6, b7 = _step(x, r6, nodes, cuts, a6), _step(x, r7, nodes, cuts, a7)
        moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3)
        moved |= (a4 ^ b4) | (a5 ^ b5) | (a6 ^ b6) | (a7 ^ b7)
        if moved == 0:
            break
        a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
    leaves[0], leaves[1] = _row_of_leaf(nodes, a0), _row_of_leaf(nodes, a1)
    leaves[2], leaves[3] = _row_of_leaf(nodes, a2), _row_of_leaf(nodes, a3)
    leaves[4], leaves[5] = _row_of_leaf(nodes, a4), _row_of_leaf(nodes, a5)
    leaves[6], leaves[7] = _row_of_leaf(nodes, a6), _row_of_leaf(nodes, a7)


@njit(cache=True, nogil=True)
def add_trees(X, nodes, cuts, roots, values, out):
    """Add the leaf values of all trees to each row of `out`, tree by tree.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), dtype=float32
    nodes, cuts : ndarray of shape (4 * n_nodes,)
        From :func:`laid_out`.
    roots : ndarray of shape (n_trees,), dtype=int64
        First node of each tree.
    values : ndarray of shape (n_leaves, n_outputs), dtype=float32
    out : ndarray of shape (n_rows, n_outputs), dtype=float64
        Changed.
    """
    n, n_trees, n_outputs = len(X), len(roots), values.shape[1]
    x, d = X.ravel(), np.uint64(X.shape[1])
    leaves = np.empty(_ROWS, dtype=np.int64)
    for first in range(0, n, _ROWS):
        last = min(first + _ROWS, n)
        whole = first + (last - first) // 8 * 8
        if whole > first:
            for t in range(n_trees):
                a = np.uint64(4 * roots[t])
                for r in range(first, whole, 8):
                    r0 = np.uint64(r) * d
                    r1, r2, r3, r4 = r0 + d, r0 + d + d, r0 + d + d + d, r0 + (d << np.uint64(2))
                    eight = (r0, r1, r2, r3, r4, r1 + r4 - r0, r2 + r4 - r0, r3 + r4 - r0)
                    _eight(x, eight, nodes, cuts, (a, a, a, a, a, a, a, a), leaves[r - first :])
                # A loop of its own: walks and sums wait for the memory in different ways.
                for r in range(first, whole):
                    leaf, sums = values[leaves[r - first]], out[r]
                    for output in range(n_outputs):
                        sums[output] += leaf[output]
        # A row by itself takes eight trees at a time.
        for row in range(whole, last):
            r, sums, t = np.uint64(row) * d, out[row], 0
            while t + 8 <= n_trees:
                a0, a1 = np.uint64(4 * roots[t]), np.uint64(4 * roots[t + 1])
                a2, a3 = np.uint64(4 * roots[t + 2]), np.uint64(4 * roots[t + 3])
                a4, a5 = np.uint64(4 * roots[t + 4]), np.uint64(4 * roots[t + 5])
                a6, a7 = np.uint64(4 * roots[t + 6]), np.uint64(4 * roots[t + 7])
                eight = (a0, a1, a2, a3, a4, a5, a6, a7)
                _eight(x, (r, r, r, r, r, r, r, r), nodes, cuts, eight, leaves)
                for i in range(8):
                    leaf = values[leaves[i]]
                    for output in range(n_outputs):
                        sums[output] += leaf[output]
                t += 8
            while t < n_trees:
                leaf = values[_leaf(x, r, nodes, cuts, np.uint64(4 * roots[t]))]
                for output in range(n_outputs):
                    sums[output] += leaf[output]
                t += 1


@njit(cache=True, nogil=True)
def two_scales(X, centre, spread, unit, standard, plain):
    """Rows with each feature in its own unit, and with all in one; what is beyond 1e18 is cut.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32 or float64
    centre, spread : ndarray of shape (n_features,)
    unit : float
    standard, plain : ndarray of shape (n_rows, n_features), dtype=float32
        Changed.
    """
    for row in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = np.float64(X[row, j])
            standard[row, j] = min(max((x - centre[j]) / spread[j], -1e18), 1e18)
            plain[row, j] = min(max(x / unit, -1e18), 1e18)


@njit(cache=True, nogil=True)
def unit_lengths(X, out):
    """Rows scaled to length one; rows of zeros stay.

    Parameters
    ----------
    X, out : ndarray of shape (n_rows, n_features), dtype=float32
        `out` is changed.
    """
    for row in range(X.shape[0]):
        squares = 0.0
        for j in range(X.shape[1]):
            squares += np.float64(X[row, j]) * X[row, j]
        length = np.float32(np.sqrt(squares))
        for j in range(X.shape[1]):
            out[row, j] = X[row, j] / length if length > 0 else X[row, j]


@njit(cache=True, nogil=True, fastmath=_FMA)
def exponents(X, centres, gamma, out):
    """``-gamma * squared distance`` of rows to centres, all centres of a row together.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), dtype=float32
    centres : ndarray of shape (n_features, n_centres), dtype=float32
    gamma : float32
    out : ndarray of shape (n_rows, n_centres), dtype=float32
        Changed.
    """
    n_features, n_centres = centres.shape
    for row in range(X.shape[0]):
        x, squares = X[row], out[row]
        for c in range(n_centres):
            squares[c] = np.float32(0)
        whole = n_features // 4 * 4
        for j in range(0, whole, 4):
            x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
            c0, c1, c2, c3 = centres[j], centres[j + 1], centres[j + 2], centres[j + 3]
            for c in range(n_centres):
                d0, d1, d2, d3 = x0 - c0[c], x1 - c1[c], x2 - c2[c], x3 - c3[c]
                squares[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        for j in range(whole, n_features):
            for c in range(n_centres):
                d0 = x[j] - centres[j, c]
                squares[c] += d0 * d0
        for c in range(n_centres):
            squares[c] *= -gamma


@njit(cache=True, nogil=True, inline="always")
def _between(x, y, at):
    """As ``numpy.interp``."""
    last = len(x) - 1
    if at <= x[0]:
        return y[0]
    if at >= x[last]:
        return y[last]
    j = np.searchsorted(x, at, side="right") - 1
    return (y[j + 1] - y[j]) / (x[j + 1] - x[j]) * (at - x[j]) + y[j]


@njit(cache=True, nogil=True)
def interpolate(estimate, at, values, out):
    """Values of a curve of each output, as ``numpy.interp``.

    Parameters
    ----------
    estimate, out : ndarray of shape (n_rows, n_outputs)
    at, values : ndarray of shape (n_outputs, n_points)
        `at` rises, and may end with points that are equal.
    """
    for row in range(estimate.shape[0]):
        for output in range(estimate.shape[1]):
            out[row, output] = _between(at[output], values[output], estimate[row, output])


@njit(cache=True, nogil=True)
def finish(deviation, mean, at, add, ends, unit):
    """Deviations as estimates: in single precision, corrected, rounded and kept in range.

    Parameters
    ----------
    deviation : ndarray of shape (n_rows, n_outputs), dtype=float64
        Changed: the estimates.
    mean : ndarray of shape (n_outputs,)
    at, add : ndarray of shape (n_outputs, n_points)
        Corrections; with no points there are none.
    ends : ndarray of shape (2, n_outputs)
        Least and largest estimates.
    unit : float
        That estimates are rounded to; 0 for no rounding.
    """
    n_points = at.shape[1]
    for row in range(deviation.shape[0]):
        for output in range(deviation.shape[1]):
            e = mean[output] + np.float32(deviation[row, output])
            if n_points > 0:
                e += _between(at[output], add[output], e)
            if unit > 0:
                e = np.rint(e / unit) * unit
            deviation[row, output] = min(max(e, ends[0, output]), ends[1, output])


@njit(cache=True, nogil=True)
def lift_rows(estimate, choices, below, most, step, ends):
    """:func:`~skroute.quality._floors.lift` row by row.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_outputs)
        Changed.
    choices : ndarray of shape (n_floors,), dtype=int64
    below : ndarray of shape (n_floors, n_outputs), dtype=bool
    most : ndarray of shape (n_floors,)
    step : float
    ends : ndarray of shape (2, n_outputs)
    """
    top = ends[1].max()
    for row in range(estimate.shape[0]):
        values, above = estimate[row], 0.0
        for floor in range(len(choices)):
            choice, best = choices[floor], -np.inf
            for output in range(len(values)):
                if below[floor, output]:
                    best = max(best, values[output])
            lifted = best + step
            if lifted > values[choice] and best - values[choice] <= most[floor]:
                values[choice] = lifted
                above = max(above, lifted - top)
        if above > 0:
            for output in range(len(values)):
                values[output] = max(values[output] - above, ends[0, output])
