"""Compiled walks through trees. Imported on first use.

`trees` is always the fields of a :class:`skroute.forests._trees.Trees`, as a plain tuple: one with
names takes longer to hand over than a row takes to walk.
"""

import math

import numpy as np
from numba import njit

from skroute.forests._bitvector_kernels import GAP, bin_rows

# The layout of _trees.py; compiled code wants literals of its own.
_MASK = (1 << 28) - 1
_MISSING_RIGHT_BIT = 28
_CATEGORICAL = 1 << 29
_ZERO_MISSING = 1 << 30
_ZERO = float(np.float32(1e-35))
# Rows of a block take about this many bytes.
_BYTES = 1 << 16
_FEWEST, _MOST = 256, 2048
# Levels that all go down, and then those that are not at a leaf, before that is looked at.
_FIRST, _NEXT = 8, 4


@njit(cache=True, nogil=True, inline="always")
def step(X, row, nodes, at):
    """Child that a row goes to from a numerical node; a leaf returns itself."""
    node = nodes[at]
    feature = np.uint32(node["feature"])
    x = X[row, np.uint64(feature & _MASK)]
    right = (x > node["threshold"]) | ((x != x) & (feature >> _MISSING_RIGHT_BIT) & 1)
    return np.uint64(np.uint32(node["child"])) + np.uint64(right)


@njit(cache=True, nogil=True)
def step_special(X, row, nodes, at, cat_words, cat_start):
    """As `step`, for forests with categorical nodes or zero as missing."""
    node = nodes[at]
    feature = np.uint32(node["feature"])
    x = X[row, np.uint64(feature & _MASK)]
    right = x > node["threshold"]
    if x != x or ((feature & _ZERO_MISSING) != 0 and abs(x) <= _ZERO):
        right = (feature >> _MISSING_RIGHT_BIT) & 1 != 0
    elif feature & _CATEGORICAL:
        s = int(node["threshold"])
        right = True
        if -1 < x < 32 * (cat_start[s + 1] - cat_start[s]):
            code = np.int64(x)
            word = np.int64(cat_words[cat_start[s] + code // 32])
            right = (word >> (code % 32)) & 1 == 0
    return np.uint64(np.uint32(node["child"])) + np.uint64(right)


@njit(cache=True, nogil=True)
def _go_down(X, rows, at, going, nodes, levels):
    """Some levels for the pairs of a row and a node named, eight at a time: their loads overlap."""
    eights = len(going) // 8 * 8
    for i in range(0, eights, 8):
        j0, j1, j2, j3 = going[i], going[i + 1], going[i + 2], going[i + 3]
        j4, j5, j6, j7 = going[i + 4], going[i + 5], going[i + 6], going[i + 7]
        r0, r1, r2, r3 = rows[j0], rows[j1], rows[j2], rows[j3]
        r4, r5, r6, r7 = rows[j4], rows[j5], rows[j6], rows[j7]
        a0, a1, a2, a3 = at[j0], at[j1], at[j2], at[j3]
        a4, a5, a6, a7 = at[j4], at[j5], at[j6], at[j7]
        for _ in range(levels):
            a0, a1 = step(X, r0, nodes, a0), step(X, r1, nodes, a1)
            a2, a3 = step(X, r2, nodes, a2), step(X, r3, nodes, a3)
            a4, a5 = step(X, r4, nodes, a4), step(X, r5, nodes, a5)
            a6, a7 = step(X, r6, nodes, a6), step(X, r7, nodes, a7)
        at[j0], at[j1], at[j2], at[j3] = a0, a1, a2, a3
        at[j4], at[j5], at[j6], at[j7] = a4, a5, a6, a7
    for i in range(eights, len(going)):
        j = going[i]
        for _ in range(levels):
            at[j] = step(X, rows[j], nodes, at[j])


@njit(cache=True, nogil=True)
def leaves(X, rows, m, trees, first, last, scratch, out):
    """Leaf of each of the first `m` rows of `rows` in trees ``first, ..., last - 1``, into `out`,
    tree after tree; `scratch` is two rows as long as `out`."""
    nodes, _, roots, depths, _, _, cat_words, cat_start, special = trees
    pairs, going = scratch[0], scratch[1]
    n, left = 0, np.int64(0)
    for t in range(first, last):
        left = max(left, np.int64(depths[t]))
        for j in range(m):
            pairs[n], going[n], out[n] = rows[j], n, roots[t]
            n += 1
    for j in range(n if special else 0):
        below = step_special(X, pairs[j], nodes, out[j], cat_words, cat_start)
        while below != out[j]:
            out[j] = below
            below = step_special(X, pairs[j], nodes, below, cat_words, cat_start)
    levels = 0 if special else _FIRST
    while n > 0 and levels > 0:
        levels = min(levels, left)
        _go_down(X, pairs, out, going[:n], nodes, levels)
        left -= levels
        levels = min(_NEXT, left)
        if levels > 0:
            # In an unbalanced tree most are at a leaf early. No branch depends on the rows.
            still = 0
            for i in range(n):
                j = going[i]
                going[still] = j
                still += np.uint64(np.uint32(nodes[out[j]]["child"])) != out[j]
            n = still


@njit(cache=True, nogil=True)
def add_leaves(X, start, stop, trees, first, last, column, out):
    """Add members ``first, ..., last - 1`` to rows ``start:stop`` of `out`, in place.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    trees : tuple
    first, last : int
    column : ndarray of shape (n_outputs,), dtype=int64
        Column of `out` that each output adds to, -1 for none.

    out : ndarray of shape (n_samples, n_columns)
        The sums are added in its type.
    """
    _, values, _, _, outputs, member_start, _, _, _ = trees
    block = max(_BYTES // (X.itemsize * X.shape[1]), _FEWEST)
    block = max(min(block, _MOST, stop - start), 1)
    # Few rows go down many trees together, many rows down one after the other.
    together = max(512 // block, 1)
    rows = np.empty(block, dtype=np.uint64)
    scratch = np.empty((2, block * together), dtype=np.uint64)
    at = np.empty(block * together, dtype=np.uint64)
    for begin in range(start, stop, block):
        m = min(block, stop - begin)
        for j in range(m):
            rows[j] = begin + j
        for t in range(member_start[first], member_start[last], together):
            if together == 1 and outputs[t] >= 0 and column[outputs[t]] < 0:
                continue
            beyond = min(t + together, member_start[last])
            leaves(X, rows, m, trees, t, beyond, scratch, at)
            n = 0
            for i in range(t, beyond):
                to, width = (outputs[i], 1) if outputs[i] >= 0 else (0, len(column))
                for k in range(width):
                    into = column[to + k]
                    for j in range(m if into >= 0 else 0):
                        out[begin + j, into] += values[at[n + j], k]
                n += m


@njit(cache=True, nogil=True)
def add_coded(X, start, stop, coded, first, last, column, out):
    """As `add_leaves`, with rows that are binned first, as the nodes of `coded` are."""
    columns, trees = coded
    width = len(columns.feature)
    used = np.ones(width, dtype=np.bool_)
    by_column = np.empty((width, min(_MOST, stop - start) + GAP), dtype=np.uint16)
    for begin in range(start, stop, _MOST):
        m = min(_MOST, stop - begin)
        bin_rows(X, np.arange(begin, begin + m), m, columns, used, by_column)
        codes = by_column[:, :m].T.copy()
        add_leaves(codes, 0, m, trees, first, last, column, out[begin : begin + m])


@njit(cache=True, nogil=True)
def exponential(x):
    """The C library's exponential, as boosting libraries take it, in the precision of `x`."""
    out = np.empty_like(x)
    for i, value in enumerate(x.flat):
        out.flat[i] = math.exp(value)
    return out
