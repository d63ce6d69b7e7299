"""Compiled evaluation by bit vectors. Imported on first use.

A block of rows is binned once, to the columns of a :class:`skroute.forests._bitvector.BitTrees`;
ranges of its trees are then evaluated on the codes, also after rows have left.
"""

import numpy as np
from llvmlite import ir
from numba import config, njit
from numba.extending import intrinsic

# LightGBM's kZeroThreshold: see _trees.py.
_ZERO = float(np.float32(1e-35))
# Rows that are worked on together.
BLOCK = 1024
# Entries more in a column of what holds a block: columns a power of two apart would share lines of
# the cache.
GAP = 32
# Up to this many bytes of cuts are counted, more are searched.
_FEW_CUTS = 1024
# Columns whose cells are read together, row by row.
_TOGETHER = 32


@intrinsic
def _lowest_bit(context, x):
    """Number of the lowest bit that is set; there is one. What is signed is a complement."""

    def build(context, builder, signature, args):
        never_zero = ir.Constant(ir.IntType(1), 1)
        return builder.not_(args[0]) if x.signed else builder.cttz(args[0], never_zero)

    return x(x), build


def _interpreted_lowest_bit(x):
    x = int(x)
    return ~x if x < 0 else (x & -x).bit_length() - 1


if getattr(config, "DISABLE_JIT", False):
    _lowest_bit = _interpreted_lowest_bit  # type: ignore[assignment]


@njit(cache=True, nogil=True)
def _count_cuts(x, m, cuts, count, code):
    """How many cuts are below each value: four cuts at a time are compared with all rows.

    Vector instructions are widest where `count` has as many bytes as a value.
    """
    one = count.dtype.type
    count[:m] = 0
    fours = len(cuts) // 4 * 4
    for k in range(0, fours, 4):
        a, b, c, d = cuts[k], cuts[k + 1], cuts[k + 2], cuts[k + 3]
        for j in range(m):
            v = x[j]
            count[j] += one(v > a) + one(v > b) + one(v > c) + one(v > d)
    for k in range(fours, len(cuts)):
        a = cuts[k]
        for j in range(m):
            count[j] += one(x[j] > a)
    for j in range(m):
        code[j] = np.uint16(count[j])


@njit(cache=True, nogil=True)
def _search_cuts(x, m, cuts, base, code):
    """As `_count_cuts`, by halving: each step is taken by all rows."""
    base[:m] = 0
    n = np.int32(len(cuts))
    while n > 1:
        half = n >> 1
        for j in range(m):
            base[j] += half if x[j] > cuts[base[j] + half - 1] else np.int32(0)
        n -= half
    for j in range(m):
        code[j] = np.uint16(base[j] + (x[j] > cuts[base[j]]))


@njit(cache=True, nogil=True)
def bin_column(x, m, columns, c, base, code):
    """Codes of the first `m` values for column `c`, into `code`; `base` is scratch."""
    cuts, limit = (
        columns.cuts[columns.start[c] : columns.start[c + 1]],
        columns.limit[c],
    )
    if limit >= 0:
        for j in range(m):
            # Truncation as in C: -0.5 is category 0.
            code[j] = np.uint16(np.int32(x[j]) if -1 < x[j] < limit else limit)
    elif len(cuts) * x.itemsize > _FEW_CUTS:
        _search_cuts(x, m, cuts, base.view(np.int32), code)
    elif x.itemsize == 4:
        _count_cuts(x, m, cuts, base.view(np.int32), code)
    else:
        _count_cuts(x, m, cuts, base, code)
    missing = columns.missing[c]
    # No cut is below a missing value: its code is 0 so far, unless it is a category.
    if missing != 0:
        for j in range(m):
            code[j] = missing if x[j] != x[j] else code[j]
    if columns.zero_missing[c]:
        for j in range(m):
            code[j] = missing if abs(np.float64(x[j])) <= _ZERO else code[j]


@njit(cache=True, nogil=True)
def bin_rows(X, rows, m, columns, used, codes):
    """Codes of the first `m` rows named, none of them negative, into `codes` of shape (n_columns,
    n); columns that are not used are left as they are."""
    feature, n_columns = columns.feature, len(columns.feature)
    base = np.empty(m, dtype=np.int64)
    cells = np.empty((min(n_columns, _TOGETHER), m + GAP), dtype=columns.cuts.dtype)
    for first in range(0, n_columns, _TOGETHER):
        last = min(first + _TOGETHER, n_columns)
        for j in range(m):
            row = X[np.uint64(rows[j])]
            for c in range(first, last):
                cells[c - first, j] = row[np.uint64(feature[c])]
        for c in range(first, last):
            if used[c]:
                bin_column(cells[c - first], m, columns, c, base, codes[c])


@njit(cache=True, nogil=True, inline="always")
def find_leaves(codes, m, span, limit, reads, cuts, clears, words, left):
    """Leaf of each of the first `m` rows in one tree: the lowest bit that is set in `left`.

    Parameters
    ----------
    codes : uint16 ndarray of shape (n_columns, n)
    m : int
    span : (int, int)
        The first test of the tree, and the one behind its last.

    limit, reads, cuts, clears, words : ndarray
        `limit` of the columns, `column`, `cut`, `clear` and `words` of the trees.

    left : ndarray of shape (n,), dtype of `clears`
    """
    every = ~clears.dtype.type(0)
    # A tree without tests has one leaf.
    begin = every if span[0] < span[1] or every < 0 else clears.dtype.type(1)
    for j in range(m):
        left[j] = begin
    k, end = span
    # Columns of categories come last.
    if len(limit) == 0 or limit[-1] < 0:
        # Four tests at a time: what is left of a row is read and written once.
        while k + 4 <= end:
            a, b, c, d = reads[k], reads[k + 1], reads[k + 2], reads[k + 3]
            p, q, r, s = clears[k], clears[k + 1], clears[k + 2], clears[k + 3]
            e, f = np.uint16(cuts[k]), np.uint16(cuts[k + 1])
            g, h = np.uint16(cuts[k + 2]), np.uint16(cuts[k + 3])
            for j in range(m):
                x = (p if codes[a, j] > e else every) & (
                    q if codes[b, j] > f else every
                )
                y = (r if codes[c, j] > g else every) & (
                    s if codes[d, j] > h else every
                )
                left[j] &= x & y
            k += 4
    while k < end:
        a, p = reads[k], clears[k]
        if limit[a] < 0:
            e = np.uint16(cuts[k])
            for j in range(m):
                left[j] &= p if codes[a, j] > e else every
        else:
            word = cuts[k]
            for j in range(m):
                code = np.int32(codes[a, j])
                inside = (
                    words[word + (code >> 5)] >> np.uint32(code & 31)
                ) & np.uint32(1)
                left[j] &= every if inside else p
        k += 1


@njit(cache=True, nogil=True, inline="always")
def add_values(values, start, k, left, m, total):
    """Add what the leaves found hold for output `k` to the sums of the first `m` rows."""
    for j in range(m):
        total[j] += values[np.uint64(start) + np.uint64(_lowest_bit(left[j])), k]


@njit(cache=True, nogil=True)
def add_members(X, start, stop, bits, first, last, column, out):
    """Add members ``first, ..., last - 1`` to rows ``start:stop`` of `out`, in place.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    bits : BitTrees
    first, last : int
    column : ndarray of shape (n_outputs,), dtype=int64
        Column of `out` that each output adds to, -1 for none.

    out : ndarray of shape (n_samples, n_columns)
        The sums are added in its type.
    """
    block = min(BLOCK, stop - start)
    # Local names: what a tuple of arrays costs at each tree would be more than the tree.
    columns, limit, reads, cuts = (
        bits.columns,
        bits.columns.limit,
        bits.column,
        bits.cut,
    )
    clears, words, values, leaf_start = (
        bits.clear,
        bits.words,
        bits.values,
        bits.leaf_start,
    )
    test_start, outputs = bits.test_start, bits.outputs
    begin_tree, end_tree = bits.member_start[first], bits.member_start[last]
    used = np.zeros(len(limit), dtype=np.bool_)
    for t in range(begin_tree, end_tree):
        if outputs[t] < 0 or column[outputs[t]] >= 0:
            for k in range(test_start[t], test_start[t + 1]):
                used[reads[k]] = True
    codes = np.empty((len(used), block + GAP), dtype=np.uint16)
    left = np.empty(block, dtype=clears.dtype)
    total = np.empty((out.shape[1], block), dtype=out.dtype)
    for begin in range(start, stop, block):
        m = min(block, stop - begin)
        bin_rows(X, np.arange(begin, begin + m), m, columns, used, codes)
        for k in range(out.shape[1]):
            for j in range(m):
                total[k, j] = out[begin + j, k]
        for t in range(begin_tree, end_tree):
            output = outputs[t]
            if output >= 0 and column[output] < 0:
                continue
            span = test_start[t], test_start[t + 1]
            find_leaves(codes, m, span, limit, reads, cuts, clears, words, left)
            if output >= 0:
                add_values(values, leaf_start[t], 0, left, m, total[column[output]])
            else:
                for k in range(len(column)):
                    if column[k] >= 0:
                        add_values(values, leaf_start[t], k, left, m, total[column[k]])
        for k in range(out.shape[1]):
            for j in range(m):
                out[begin + j, k] = total[k, j]
