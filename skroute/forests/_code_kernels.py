"""Compiled walks of many rows through trees of any size. Imported on first use.

Rows are binned once; a node is then eight bytes, and a row a few. Nodes are those of
:func:`skroute.forests._code_walk.coded_trees`.
"""

import numpy as np
from numba import njit

from skroute.forests._bitvector_kernels import GAP, bin_rows

# Codes of a block of rows take about this many bytes.
_BYTES = 1 << 16
_FEWEST, _MOST = 256, 2048
# Levels that all rows go down, and then those that are not at a leaf, before that is looked at.
_FIRST, _NEXT = 8, 4


@njit(cache=True, nogil=True, inline="always")
def _down(nodes, codes, row, at):
    """Child of a node: 32 bits of the left one, 16 of the column, 16 of the cut."""
    word = nodes[at]
    code = np.uint64(codes[row + ((word >> np.uint64(16)) & np.uint64(0xFFFF))])
    return (word >> np.uint64(32)) + np.uint64(code > (word & np.uint64(0xFFFF)))


@njit(cache=True, nogil=True)
def _go_down(nodes, codes, width, rows, at, levels):
    """Some levels for the rows named. Eight at a time: their loads overlap."""
    w, eights = np.uint64(width), len(rows) // 8 * 8
    for i in range(0, eights, 8):
        j0, j1, j2, j3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        j4, j5, j6, j7 = rows[i + 4], rows[i + 5], rows[i + 6], rows[i + 7]
        r0, r1, r2, r3 = j0 * w, j1 * w, j2 * w, j3 * w
        r4, r5, r6, r7 = j4 * w, j5 * w, j6 * w, j7 * w
        a0, a1, a2, a3 = at[j0], at[j1], at[j2], at[j3]
        a4, a5, a6, a7 = at[j4], at[j5], at[j6], at[j7]
        for _ in range(levels):
            a0, a1 = _down(nodes, codes, r0, a0), _down(nodes, codes, r1, a1)
            a2, a3 = _down(nodes, codes, r2, a2), _down(nodes, codes, r3, a3)
            a4, a5 = _down(nodes, codes, r4, a4), _down(nodes, codes, r5, a5)
            a6, a7 = _down(nodes, codes, r6, a6), _down(nodes, codes, r7, a7)
        at[j0], at[j1], at[j2], at[j3] = a0, a1, a2, a3
        at[j4], at[j5], at[j6], at[j7] = a4, a5, a6, a7
    for i in range(eights, len(rows)):
        a = at[rows[i]]
        for _ in range(levels):
            a = _down(nodes, codes, rows[i] * w, a)
        at[rows[i]] = a


@njit(cache=True, nogil=True)
def _coded_leaves(nodes, head, codes, width, going, at):
    """Leaf of each row of a block in one tree, into `at`; `going` is scratch.

    `head` is the first node and the depth of the tree, and `width` how many of `codes`, row after
    row, there are of each.
    """
    n, left = len(at), head[1]
    for j in range(n):
        at[j], going[j] = np.uint64(head[0]), np.uint64(j)
    levels = _FIRST
    while n > 0 and left > 0:
        levels = min(levels, left)
        _go_down(nodes, codes, width, going[:n], at, levels)
        left -= levels
        levels = _NEXT
        if left > 0:
            # Only a leaf has this cut. No branch depends on the rows.
            still = 0
            for i in range(n):
                j = going[i]
                going[still] = j
                still += (nodes[at[j]] & np.uint64(0xFFFF)) != np.uint64(0xFFFF)
            n = still


@njit(cache=True, nogil=True)
def add_coded(X, start, stop, coded, first, last, column, out):
    """Add members ``first, ..., last - 1`` to rows ``start:stop`` of `out`, in place.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    coded : (Columns, ndarray, tuple)
    first, last : int
    column : ndarray of shape (n_outputs,), dtype=int64
        Column of `out` that each output adds to, -1 for none.

    out : ndarray of shape (n_samples, n_columns)
        The sums are added in its type.
    """
    columns, nodes, (_, values, roots, depths, outputs, member_start, _, _, _) = coded
    kind, width = out.dtype.type, len(columns.feature)
    block = min(max(_BYTES // (2 * width), _FEWEST), _MOST, max(stop - start, 1))
    used = np.ones(width, dtype=np.bool_)
    by_column = np.empty((width, block + GAP), dtype=np.uint16)
    codes = np.empty(block * width, dtype=np.uint16)
    going, at = np.empty(block, dtype=np.uint64), np.empty(block, dtype=np.uint64)
    for begin in range(start, stop, block):
        m = min(block, stop - begin)
        bin_rows(X, np.arange(begin, begin + m), m, columns, used, by_column)
        for c in range(width):
            for j in range(m):
                codes[j * width + c] = by_column[c, j]
        for t in range(member_start[first], member_start[last]):
            output = outputs[t]
            if output >= 0 and column[output] < 0:
                continue
            head = np.int64(roots[t]), np.int64(depths[t])
            _coded_leaves(nodes, head, codes, width, going[:m], at[:m])
            if output >= 0:
                for j in range(m):
                    out[begin + j, column[output]] += kind(values[at[j], 0])
            else:
                for k in range(len(column)):
                    if column[k] >= 0:
                        for j in range(m):
                            out[begin + j, column[k]] += kind(values[at[j], k])
