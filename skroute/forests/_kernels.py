"""Compiled walks through trees. Imported on first use.

`trees` is always the fields of a :class:`skroute.forests._trees.Trees`, as a plain tuple: one with
names takes longer to hand over than a row takes to walk.
"""

import math

import numpy as np
from numba import njit

# The layout of _forest.py; compiled code wants literals of its own.
_MASK = (1 << 28) - 1
_MISSING_RIGHT_BIT = 28
_CATEGORICAL = 1 << 29
_ZERO_MISSING = 1 << 30
_ZERO = float(np.float32(1e-35))


@njit(cache=True, nogil=True, inline="always")
def step(X, i, nodes, at):
    """Child that row `i` goes to from a numerical node; a leaf returns itself."""
    node = nodes[at]
    x = X[i, node["feature"] & _MASK]
    missing_right = (node["feature"] >> _MISSING_RIGHT_BIT) & 1
    return node["child"] + ((x > node["threshold"]) | ((x != x) & missing_right))


@njit(cache=True, nogil=True)
def step_special(X, i, nodes, at, cat_words, cat_start):
    """As `step`, for forests with categorical nodes or zero as missing."""
    node = nodes[at]
    x = X[i, node["feature"] & _MASK]
    missing = x != x or ((node["feature"] & _ZERO_MISSING) != 0 and abs(x) <= _ZERO)
    if missing:
        return node["child"] + ((node["feature"] >> _MISSING_RIGHT_BIT) & 1)
    if node["feature"] & _CATEGORICAL:
        s = int(node["threshold"])
        code = np.int64(-1)
        if -1 < x < 2147483648.0:
            code = np.int64(x)
        if 0 <= code < 32 * (cat_start[s + 1] - cat_start[s]):
            word = np.int64(cat_words[cat_start[s] + code // 32])
            return node["child"] + (1 - ((word >> (code % 32)) & 1))
        return node["child"] + 1
    return node["child"] + (x > node["threshold"])


@njit(cache=True, nogil=True)
def go_down(X, rows, at, m, trees, depth):
    """Take each of the first `m` rows of `rows` from its node in `at` to its leaf, in place.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    rows, at : ndarray of int64
        Many rows at the root of one tree, or one row at the roots of several.

    m : int
    trees : tuple
    depth : int
        Levels below the deepest node in `at`.
    """
    nodes, _, _, _, _, _, cat_words, cat_start, special = trees
    j = 0
    # Eight at a time: their loads overlap, no branch depends on the data.
    while j + 8 <= m and not special:
        r0, r1, r2, r3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        r4, r5, r6, r7 = rows[j + 4], rows[j + 5], rows[j + 6], rows[j + 7]
        a0, a1, a2, a3 = at[j], at[j + 1], at[j + 2], at[j + 3]
        a4, a5, a6, a7 = at[j + 4], at[j + 5], at[j + 6], at[j + 7]
        for _ in range(depth):
            b0, b1 = step(X, r0, nodes, a0), step(X, r1, nodes, a1)
            b2, b3 = step(X, r2, nodes, a2), step(X, r3, nodes, a3)
            b4, b5 = step(X, r4, nodes, a4), step(X, r5, nodes, a5)
            b6, b7 = step(X, r6, nodes, a6), step(X, r7, nodes, a7)
            moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3)
            moved |= (a4 ^ b4) | (a5 ^ b5) | (a6 ^ b6) | (a7 ^ b7)
            # In an unbalanced tree all rows may be at leaves long before its depth.
            if moved == 0:
                break
            a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
        at[j], at[j + 1], at[j + 2], at[j + 3] = a0, a1, a2, a3
        at[j + 4], at[j + 5], at[j + 6], at[j + 7] = a4, a5, a6, a7
        j += 8
    while j < m:
        here = at[j]
        while True:
            if special:
                below = step_special(X, rows[j], nodes, here, cat_words, cat_start)
            else:
                below = step(X, rows[j], nodes, here)
            if below == here:
                break
            here = below
        at[j] = here
        j += 1


@njit(cache=True, nogil=True, inline="always")
def leaves(X, rows, m, trees, first, last, pairs, out):
    """Leaf of each of the first `m` rows of `rows` in trees ``first, ..., last - 1``, into `out`,
    tree after tree; `pairs` is scratch."""
    roots, depths = trees[2], trees[3]
    n, deepest = 0, np.int64(0)
    for t in range(first, last):
        deepest = max(deepest, np.int64(depths[t]))
        for j in range(m):
            pairs[n], out[n] = rows[j], roots[t]
            n += 1
    go_down(X, pairs, out, n, trees, deepest)


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
    block = max(min(512, stop - start), 1)
    # Few rows go down many trees together, many rows down one after the other.
    together = 512 // block
    pairs = np.empty(block * together, dtype=np.int64)
    at, rows = np.empty(block * together, dtype=np.int64), np.empty(block, dtype=np.int64)
    for begin in range(start, stop, block):
        m = min(block, stop - begin)
        for j in range(m):
            rows[j] = begin + j
        for t in range(member_start[first], member_start[last], together):
            if together == 1 and outputs[t] >= 0 and column[outputs[t]] < 0:
                continue
            beyond = min(t + together, member_start[last])
            leaves(X, rows, m, trees, t, beyond, pairs, at)
            n = 0
            for i in range(t, beyond):
                to, width = (outputs[i], 1) if outputs[i] >= 0 else (0, len(column))
                for j in range(m):
                    for k in range(width):
                        if column[to + k] >= 0:
                            out[begin + j, column[to + k]] += values[at[n], k]
                    n += 1


@njit(cache=True, nogil=True)
def exponential(x):
    """The C library's exponential, as boosting libraries take it, in the precision of `x`."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[i, k] = math.exp(x[i, k])
    return out
