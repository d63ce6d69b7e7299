"""Compiled sums of few rows, one after the other. Imported on first use.

`pack` and `values` are those of a :class:`skroute.forests._row_layout.RowLayout`. Arguments are
two arrays and the rows, whatever holds these: most of the time of a call with one row is spent
before the first instruction of a kernel.
"""

import numpy as np
from numba import njit, types

from skroute.forests._link_kernels import sigmoid

# LightGBM's kZeroThreshold: see _forest.py.
_ZERO = float(np.float32(1e-35))
PACK = types.Array(types.uint64, 1, "C", readonly=True)
VALUES = types.Array(types.float64, 2, "C", readonly=True)
DOUBLES = types.Array(types.float64, 2, "C")
# Rows of any strides, also those that cannot be written.
ROWS = [types.Array(kind, 2, "A", readonly=True) for kind in (types.float32, types.float64)]

# How a label is found: see _row_layout.py.
_BY_SCORE, _BY_SIGN, _BY_LARGEST, _BY_FAR_LARGEST = 1, 2, 3, 4
# Levels that are gone down without a look at whether all trees have ended.
_LEVELS = 6
# Nearer to a tie than this, rounding of the probability decides.
_FAR = 1e-3


@njit(cache=True, nogil=True, inline="always")
def part(pack, k):
    return pack[np.int64(pack[k]) : np.int64(pack[k + 1])]


@njit(cache=True, nogil=True)
def take_row(X, r, single, finite, row):
    """Row `r` as the library reads it, into `row`; False where the library refuses it.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    r : int
    single : bool
        Whether the library reads single precision.

    finite : int
        0 where any value is read, 1 where NaN is and infinity is not, 2 where neither is.

    row : ndarray of shape (n_features,), dtype=float64
    """
    for f in range(X.shape[1]):
        x = np.float64(np.float32(X[r, f])) if single else np.float64(X[r, f])
        if finite > 0 and x - x != 0.0 and (finite == 2 or x == x):
            return False
        row[f] = x
    return True


@njit(cache=True, nogil=True)
def bin_row(row, pack, codes):
    """Codes of the columns of one row; see :class:`skroute.forests._bitvector.Columns`."""
    columns, cuts = part(pack, 1), part(pack, 2).view(np.float64)
    sets = part(pack, 8)
    for c in range(len(codes)):
        word = columns[c]
        x = row[np.int64(word & np.uint64(0xFFFFFFFF))]
        missing = np.uint16((word >> np.uint64(32)) & np.uint64(0xFFFF))
        base = columns[len(codes) + c]
        n = columns[len(codes) + c + 1] - base
        start = base
        # By halving, without branches that depend on the row.
        while n > np.uint64(1):
            half = n >> np.uint64(1)
            base += half if x > cuts[base + half - np.uint64(1)] else np.uint64(0)
            n -= half
        code = np.uint16(base - start)
        if n:
            code += np.uint16(x > cuts[base])
        if len(sets) and sets[3 * c]:
            limit = np.int64(sets[3 * c]) - 1
            # Truncation as in C: -0.5 is category 0.
            code = np.uint16(np.int64(x) if -1 < x < limit else limit)
        # No cut is below a missing value, so that its code is 0 so far.
        if x != x or ((word >> np.uint64(48)) != np.uint64(0) and abs(x) <= _ZERO):
            code = missing
        codes[c] = code


@njit(cache=True, nogil=True, inline="always")
def _down(nodes, codes, at):
    """Child of a node: 32 bits of the left one, 16 of the column, 16 of the cut."""
    word = nodes[at]
    code = np.uint64(codes[(word >> np.uint64(16)) & np.uint64(0xFFFF)])
    return (word >> np.uint64(32)) + np.uint64(code > (word & np.uint64(0xFFFF)))


@njit(cache=True, nogil=True)
def _down_sets(nodes, codes, at, sets, words):
    """As `_down`, where columns may be categories: their cut is the number of a set."""
    word = nodes[at]
    column, cut = (word >> np.uint64(16)) & np.uint64(0xFFFF), word & np.uint64(0xFFFF)
    if sets[np.uint64(3) * column] == np.uint64(0) or cut == np.uint64(0xFFFF):
        return _down(nodes, codes, at)
    code = np.uint64(codes[column])
    first = sets[np.uint64(3) * column + np.uint64(1)]
    first += sets[np.uint64(3) * column + np.uint64(2)] * cut
    inside = (words[first + (code >> np.uint64(5))] >> (code & np.uint64(31))) & np.uint64(1)
    return (word >> np.uint64(32)) + np.uint64(1) - inside


@njit(cache=True, nogil=True, inline="always")
def _sixteen(nodes, heads, codes, h, at):
    """Leaves of sixteen trees, into `at`: their loads overlap."""
    i = np.uint64(h)
    # Heads say the largest depth for groups of eight, in which `h` may be anywhere.
    depth = np.int64(max(heads[i, 3], heads[i + np.uint64(8), 3], heads[i + np.uint64(15), 3]))
    a0, a1 = heads[i, 0], heads[i + np.uint64(1), 0]
    a2, a3 = heads[i + np.uint64(2), 0], heads[i + np.uint64(3), 0]
    a4, a5 = heads[i + np.uint64(4), 0], heads[i + np.uint64(5), 0]
    a6, a7 = heads[i + np.uint64(6), 0], heads[i + np.uint64(7), 0]
    a8, a9 = heads[i + np.uint64(8), 0], heads[i + np.uint64(9), 0]
    a10, a11 = heads[i + np.uint64(10), 0], heads[i + np.uint64(11), 0]
    a12, a13 = heads[i + np.uint64(12), 0], heads[i + np.uint64(13), 0]
    a14, a15 = heads[i + np.uint64(14), 0], heads[i + np.uint64(15), 0]
    for _ in range(min(depth, _LEVELS)):
        a0, a1 = _down(nodes, codes, a0), _down(nodes, codes, a1)
        a2, a3 = _down(nodes, codes, a2), _down(nodes, codes, a3)
        a4, a5 = _down(nodes, codes, a4), _down(nodes, codes, a5)
        a6, a7 = _down(nodes, codes, a6), _down(nodes, codes, a7)
        a8, a9 = _down(nodes, codes, a8), _down(nodes, codes, a9)
        a10, a11 = _down(nodes, codes, a10), _down(nodes, codes, a11)
        a12, a13 = _down(nodes, codes, a12), _down(nodes, codes, a13)
        a14, a15 = _down(nodes, codes, a14), _down(nodes, codes, a15)
    at[0], at[1], at[2], at[3] = a0, a1, a2, a3
    at[4], at[5], at[6], at[7] = a4, a5, a6, a7
    at[8], at[9], at[10], at[11] = a8, a9, a10, a11
    at[12], at[13], at[14], at[15] = a12, a13, a14, a15
    # Where trees are not balanced, all may be at leaves long before the largest depth.
    for _ in range(_LEVELS, depth):
        moved = np.uint64(0)
        for k in range(16):
            leaf = _down(nodes, codes, at[k])
            moved |= leaf ^ at[k]
            at[k] = leaf
        if moved == 0:
            break


@njit(cache=True, nogil=True, inline="always")
def _leaf_alone(nodes, heads, codes, t):
    leaf = heads[t, 0]
    for _ in range(np.int64(heads[t, 1])):
        leaf = _down(nodes, codes, leaf)
    return leaf


@njit(cache=True, nogil=True)
def _plain_leaves(nodes, heads, codes, t, m, at):
    """Sixteen trees at a time; the last sixteen again with those that are left over."""
    if m < 16:
        for i in range(m):
            at[i] = _leaf_alone(nodes, heads, codes, t + i)
        return
    for i in range(0, m, 16):
        first = min(i, m - 16)
        _sixteen(nodes, heads, codes, t + first, at[first : first + 16])


@njit(cache=True, nogil=True)
def _plain_sum(nodes, heads, codes, values, at, total):
    """Add all trees to a single sum: it goes on while the next leaves are looked for."""
    n, kind, g = len(heads), total.dtype.type, total[0]
    # Values of what adds up in single precision are exact in it.
    for first in range(0, n - 15, 16):
        _sixteen(nodes, heads, codes, first, at)
        for k in range(16):
            g += kind(values[at[k], 0])
    rest = n % 16
    if n > 16 and rest:
        _sixteen(nodes, heads, codes, n - 16, at)
        for k in range(16 - rest, 16):
            g += kind(values[at[k], 0])
    elif rest:
        _plain_leaves(nodes, heads, codes, 0, n, at)
        for k in range(n):
            g += kind(values[at[k], 0])
    total[0] = g


@njit(cache=True, nogil=True)
def _level_leaves(tests, heads, codes, t, m, at):
    """Leaves of oblivious trees: numbers with a bit for each test."""
    for i in range(m):
        first, leaf = heads[t + i, 0], np.uint64(0)
        for k in range(first, first + heads[t + i, 1]):
            word = tests[k]
            code = np.uint64(codes[word >> np.uint64(16)])
            leaf += leaf + np.uint64(code > (word & np.uint64(0xFFFF)))
        at[i] = heads[t + i, 3] + leaf


@njit(cache=True, nogil=True)
def _set_leaves(nodes, heads, codes, t, m, at, sets, words):
    """Leaves of trees with categories."""
    for i in range(m):
        leaf = heads[t + i, 0]
        for _ in range(np.int64(heads[t + i, 1])):
            leaf = _down_sets(nodes, codes, leaf, sets, words)
        at[i] = leaf


@njit(cache=True, nogil=True)
def some_leaves(tests, heads, codes, t, m, at, kind, sets, words):
    """Rows of `values` that hold the leaves of `m` trees, from tree `t` on.

    Parameters
    ----------
    tests, heads : ndarray
        Parts 3 and 4 of the pack.

    codes : ndarray of shape (n_columns,), dtype=uint16
    t, m : int
    at : ndarray of shape (m,), dtype=uint64
    kind : int
        Part 0, 3 of the pack: 0, 1 for oblivious trees, 2 with categories.

    sets, words : ndarray
        Parts 8 and 7 of the pack.
    """
    if kind == 0:
        _plain_leaves(tests, heads, codes, t, m, at)
    elif kind == 1:
        _level_leaves(tests, heads, codes, t, m, at)
    else:
        _set_leaves(tests, heads, codes, t, m, at, sets, words)


@njit(cache=True, nogil=True)
def _add_trees(pack, values, codes, at, total):
    """Add all trees to the sums of one row, one tree after the other, in the sums' type."""
    tests, heads, kind = part(pack, 3), part(pack, 4).reshape((-1, 4)), part(pack, 0)[3]
    n_trees = len(heads)
    if kind == 0 and len(total) == 1:
        _plain_sum(tests, heads, codes, values, at, total)
        return
    # Calls for some trees each would take longer than these.
    at = np.empty(n_trees, dtype=np.uint64)
    some_leaves(tests, heads, codes, 0, n_trees, at, kind, part(pack, 8), part(pack, 7))
    if len(total) == 1:
        g = total[0]
        for t in range(n_trees):
            # Values of what adds up in single precision are exact in it.
            g += total.dtype.type(values[at[t], 0])
        total[0] = g
        return
    for t in range(n_trees):
        output = np.int64(heads[t, 2])
        if output >= 0:
            total[output] += values[at[t], 0]
        else:
            for k in range(len(total)):
                total[k] += values[at[t], k]


@njit(cache=True, nogil=True)
def _sums_of(row, pack, values, codes, at, out):
    """Sums of one row, into `out`; `codes` and `at`, of sixteen entries, are scratch."""
    bin_row(row, pack, codes)
    offset = part(pack, 6).view(np.float64)
    for k in range(len(offset)):
        out[k] = offset[k]
    _add_trees(pack, values, codes, at, out)


@njit([types.boolean(X, PACK, VALUES, DOUBLES) for X in ROWS], cache=True, nogil=True)
def row_sums(X, pack, values, out):
    """Sums of few rows, into `out`; False with a row that the library refuses.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    pack : ndarray, dtype=uint64
    values : ndarray of shape (n_values, width), dtype=float64
    out : ndarray of shape (n, n_outputs)
        Sums in single precision, too, are written in double.
    """
    numbers = part(pack, 0)
    n_outputs, n_codes = len(part(pack, 6)), len(part(pack, 1)) // 2
    # One piece of memory for all: each piece takes as long as a dozen trees.
    ends = X.shape[1], X.shape[1] + 16, X.shape[1] + 16 + n_outputs
    scratch = np.empty(ends[2] + n_codes // 4 + 1)
    row, at = scratch[: ends[0]], scratch[ends[0] : ends[1]].view(np.uint64)
    short = scratch[ends[1] : ends[2]].view(np.float32)[:n_outputs]
    codes = scratch[ends[2] :].view(np.uint16)[:n_codes]
    for r in range(len(X)):
        if not take_row(X, r, numbers[1] != 0, np.int64(numbers[2]), row):
            return False
        if numbers[5]:
            _sums_of(row, pack, values, codes, at, short)
            for k in range(n_outputs):
                out[r, k] = short[k]
        else:
            _sums_of(row, pack, values, codes, at, out[r])
    return True


@njit([types.int64(X, PACK, VALUES) for X in ROWS], cache=True, nogil=True)
def row_label(X, pack, values):
    """Position of the label of one row, as :func:`row_sums` takes it; -1 where this is not one
    row, or where that needs a closer look."""
    how = np.int64(part(pack, 0)[4])
    floats = part(pack, 5).view(np.float64)
    slope, beta = floats[0], floats[1]
    if how == 0 or X.shape[0] != 1 or X.shape[1] != np.int64(part(pack, 0)[0]):
        return -1
    sums = np.empty((1, len(part(pack, 6))))
    if not row_sums(X, pack, values, sums):
        return -1
    score = sums[0, 0]
    if how == _BY_SCORE:
        return np.int64(score > beta)
    if how == _BY_SIGN:
        if abs(score) * abs(slope) > _FAR:
            return np.int64((score > 0) == (slope > 0))
        return -1
    best, second = 0, -np.inf
    for k in range(1, sums.shape[1]):
        if sums[0, k] > sums[0, best]:
            second, best = sums[0, best], k
        elif sums[0, k] > second:
            second = sums[0, k]
    least = 0.0 if how == _BY_LARGEST else _FAR
    # Compared in this direction, so that what is no number needs a closer look.
    return np.int64(best) if sums[0, best] - second > least else -1


@njit([types.boolean(X, PACK, VALUES, DOUBLES) for X in ROWS], cache=True, nogil=True)
def row_proba(X, pack, values, proba):
    """Probabilities of one row by a sigmoid, into `proba`; False where that is another link, or
    where :func:`row_label` is -1 for the shape or the values of the row.

    Parameters
    ----------
    X, pack, values
        As of :func:`row_sums`.

    proba : ndarray of shape (1, 2)
        Those in single precision, too, are written in double.
    """
    numbers, slope = part(pack, 0), part(pack, 5).view(np.float64)[0]
    if numbers[4] != _BY_SIGN or X.shape[0] != 1 or X.shape[1] != np.int64(numbers[0]):
        return False
    sums = np.empty((1, 1))
    if not row_sums(X, pack, values, sums):
        return False
    if numbers[5]:
        single = sigmoid(sums.astype(np.float32), np.float32(slope))[0, 0]
        proba[0, 0], proba[0, 1] = np.float32(1) - single, single
    else:
        double = sigmoid(sums, slope)[0, 0]
        proba[0, 0], proba[0, 1] = 1.0 - double, double
    return True
