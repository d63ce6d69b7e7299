"""Compiled early-exit walks by bit vectors. Imported on first use.

Positions are evaluated in stages. A stage is some positions with a layout of their own, so
that a row is binned only to the cuts that its next trees ask for. Rows that have not left
after a stage are the rows of the next one, in full blocks again.
"""

import numpy as np
from numba import njit

from skroute.forests._bitvector_kernels import BLOCK, GAP, add_values, bin_rows, find_leaves

# What moving a row together costs for each column, in tests of a row.
_MOVE = 8
# What a tree costs beside its tests, in tests of a row.
_TREE = 8


@njit(cache=True, nogil=True)
def _last_trees(tests):
    """The last tree of a stage that reads each column."""
    last = np.zeros(len(tests.limit), dtype=np.int64)
    for t in range(len(tests.outputs)):
        for k in range(tests.test_start[t], tests.test_start[t + 1]):
            last[tests.column[k]] = t
    return last


@njit(cache=True, nogil=True)
def _those_outside(x, m, low, high, at):
    """Positions of the values below `low` or above `high`, into `at`; how many there are."""
    count = np.int32(0)
    for j in range(m):
        count += (x[j] < low) | (x[j] > high)
    if count == 0:
        return 0
    n = 0
    for j in range(m):
        at[n] = j
        n += (x[j] < low) | (x[j] > high)
    return n


@njit(cache=True, nogil=True)
def _move_together(here, m, codes, needed, t, total):
    """Drop the rows that have left from a block; how many there are left."""
    at = np.empty(m, dtype=np.int32)
    kept = 0
    for j in range(m):
        at[kept] = j
        kept += here[j] >= 0
    for k in range(kept):
        here[k] = here[at[k]]
    for c in range(len(needed)):
        if needed[c] > t:
            for k in range(kept):
                codes[c, k] = codes[c, at[k]]
    for o in range(len(total)):
        for k in range(kept):
            total[o, k] = total[o, at[k]]
    return kept


@njit(cache=True, nogil=True)
def _margins(total, m, best, margin):
    """Margin between the two leading classes of each row."""
    for j in range(m):
        best[j] = total[0, j]
        margin[j] = -np.inf
    for k in range(1, len(total)):
        for j in range(m):
            x = total[k, j]
            second = x if x > margin[j] else margin[j]
            margin[j] = best[j] if x > best[j] else second
            best[j] = x if x > best[j] else best[j]
    for j in range(m):
        margin[j] = best[j] - margin[j]


@njit(cache=True, nogil=True)
def walk_stage(X, rows, n_rows, first, bits, thresholds, score, members, side):
    """Evaluate one stage for rows that have not left, and keep those that do not leave.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    rows : ndarray of shape (n_samples,), dtype=int64
        Which rows there are; those that stay come first afterwards.

    n_rows : int
        How many there are.

    first : int
        Position of the first member of the stage.

    bits : BitTrees
        Members of the stage.

    thresholds : (lo, hi)
        A pair for each position of all stages.

    score : ndarray of shape (n_samples, n_outputs)
        Partial sums; of rows that leave, what they left with.

    members, side : ndarray of shape (n_samples,)
        Written where a row leaves; see :func:`skroute.early_exit._kernels.walk_rows`.

    Returns
    -------
    int
        How many rows stay.
    """
    n_outputs, last_position = score.shape[1], len(thresholds[0]) - 1
    (columns, tests), (lo, hi) = bits, thresholds
    values, leaf_start, words = tests.values, tests.leaf_start, tests.words
    limit, reads, cuts, clears = tests.limit, tests.column, tests.cut, tests.clear
    test_start, outputs, member_start = tests.test_start, tests.outputs, tests.member_start
    needed = _last_trees(tests)
    block = min(BLOCK, n_rows)
    codes = np.empty((len(needed), block + GAP), dtype=np.uint16)
    used = np.ones(len(needed), dtype=np.bool_)
    left = np.empty(block, dtype=clears.dtype)
    total = np.empty((n_outputs, block), dtype=np.float64)
    here = np.empty(block, dtype=np.int64)
    at = np.empty(block, dtype=np.int32)
    best = np.empty(block, dtype=np.float64)
    margin = np.empty(block, dtype=np.float64)
    stay = 0
    for begin in range(0, n_rows, block):
        m = min(block, n_rows - begin)
        for j in range(m):
            here[j] = rows[begin + j]
        for j in range(m):
            for o in range(n_outputs):
                total[o, j] = score[here[j], o]
        bin_rows(X, here, m, columns, used, codes)
        gone, wasted = 0, 0
        for i in range(len(member_start) - 1):
            for t in range(member_start[i], member_start[i + 1]):
                span = test_start[t], test_start[t + 1]
                find_leaves(codes, m, span, limit, reads, cuts, clears, words, left)
                if outputs[t] >= 0:
                    add_values(values, leaf_start[t], 0, left, m, total[outputs[t]])
                else:
                    for o in range(n_outputs):
                        add_values(values, leaf_start[t], o, left, m, total[o])
            r = first + i
            low, high = lo[r], hi[r]
            if r == last_position:
                n = m
                for j in range(m):
                    at[j] = j
            elif low == -np.inf and high == np.inf:
                n = 0
            elif n_outputs == 1:
                n = _those_outside(total[0], m, low, high, at)
            else:
                _margins(total, m, best, margin)
                n = _those_outside(margin, m, -np.inf, high, at)
            for k in range(n):
                j = at[k]
                row = here[j]
                if row >= 0:
                    x = total[0, j]
                    for o in range(n_outputs):
                        score[row, o] = total[o, j]
                        # What has left does not leave again.
                        total[o, j] = np.nan
                    members[row] = r + 1
                    side[row] = 1 if n_outputs > 1 or x > high else -1
                    if r == last_position:
                        side[row] = 0
                    here[j] = -1
                    gone += 1
            if gone == m:
                break
            t = member_start[i + 1] - 1
            wasted += gone * (test_start[t + 1] - test_start[member_start[i]] + _TREE)
            if wasted > (m - gone) * _MOVE * len(needed):
                m = _move_together(here, m, codes, needed, t, total)
                gone, wasted = 0, 0
        if gone < m:
            for j in range(m):
                if here[j] >= 0:
                    for o in range(n_outputs):
                        score[here[j], o] = total[o, j]
                    rows[stay] = here[j]
                    stay += 1
    return stay
