"""Compiled kernels: the early-exit walk and the order search. Imported on first use."""

import numpy as np
from numba import njit

from skroute.forests._kernels import leaves

# Trees that a row which is alone goes down together.
_TOGETHER = 8


@njit(cache=True, nogil=True, inline="always")
def _margin(g, j):
    """Margin between the two leading classes of row `j`."""
    best, second = g[j, 0], -np.inf
    for k in range(1, g.shape[1]):
        second = max(second, min(g[j, k], best))
        best = max(best, g[j, k])
    return best - second


@njit(cache=True, nogil=True)
def walk_rows(X, start, stop, trees, offset, thresholds, score, members, side):
    """Early-exit walk of rows ``start:stop``.

    A row leaves after member `r` when its partial sum is below the lower or above the upper
    threshold of that position; with one score for each class, when the margin between the two
    leading ones is above the upper. Results go into `score` (the partial sums), `members` (how
    many were evaluated) and `side` (1 left above, -1 below, 0 never).

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    trees : Trees
        In evaluation order.

    offset : ndarray of shape (n_outputs,)
    thresholds : (lo, hi)
    score : ndarray of shape (n_samples, n_outputs)
    members, side : ndarray of shape (n_samples,)
    """
    n_members, n_outputs = len(trees.member_start) - 1, len(offset)
    outputs, values, (lo, hi) = trees.outputs, trees.values, thresholds
    block = min(1024, stop - start)
    rows = np.empty(block, dtype=np.int64)
    g = np.empty((block, n_outputs), dtype=np.float64)
    pairs = np.empty(max(block, _TOGETHER), dtype=np.int64)
    leaf = np.empty(max(block, _TOGETHER), dtype=np.int64)
    for begin in range(start, stop, block):
        m, known, next_tree = min(block, stop - begin), 0, 0
        for j in range(m):
            rows[j] = begin + j
            for k in range(n_outputs):
                g[j, k] = offset[k]
        for r in range(n_members):
            for t in range(trees.member_start[r], trees.member_start[r + 1]):
                if t >= next_tree:
                    # Alone, a row also goes down trees that it may not need: their loads overlap.
                    known, next_tree = t, min(t + (1 if m > 1 else _TOGETHER), len(outputs))
                    leaves(X, rows, m, trees, t, next_tree, pairs, leaf)
                first, width = max(outputs[t], 0), n_outputs if outputs[t] < 0 else 1
                for j in range(m):
                    for k in range(width):
                        g[j, first + k] += values[leaf[(t - known) * m + j], k]
            last, kept = r == n_members - 1, 0
            for j in range(m):
                i = rows[j]
                x = g[j, 0] if n_outputs == 1 else _margin(g, j)
                above, below = x > hi[r], n_outputs == 1 and x < lo[r]
                if last or above or below:
                    members[i] = r + 1
                    side[i] = 0 if last else (1 if above else -1)
                    for k in range(n_outputs):
                        score[i, k] = g[j, k]
                else:
                    rows[kept] = i
                    for k in range(n_outputs):
                        g[kept, k] = g[j, k]
                    kept += 1
            m = kept
            if m == 0:
                break


@njit(cache=True, nogil=True)
def _add_largest(x, top):
    """Insert `x` into `top`, decreasing, whose last entry falls out."""
    j = len(top) - 1
    while j > 0 and top[j - 1] < x:
        top[j] = top[j - 1]
        j -= 1
    top[j] = x


@njit(cache=True, nogil=True)
def _n_above(v, limit):
    # One comparison and one addition per row: compiled to vector instructions.
    count = np.int32(0)
    for i in range(len(v)):
        count += v[i] > limit
    return count


@njit(cache=True, nogil=True)
def _n_below(v, limit):
    count = np.int32(0)
    for i in range(len(v)):
        count += v[i] < limit
    return count


@njit(cache=True, nogil=True)
def _one_tail(counts, first, last):
    total = np.int64(0)
    for k in range(first, last + 1):
        total += counts[k]
    return total


@njit(cache=True, nogil=True)
def _two_tails(above, below, top, bottom, n, first, last):
    total = np.int64(0)
    for k in range(first, last + 1):
        best = np.int64(0)
        for j in range(k + 1):
            # The two tails meet: a threshold between them decides every row.
            both = n if top[j] < bottom[k - j] else above[j] + below[k - j]
            if both > best:
                best = both
        total += best
    return total


@njit(cache=True, nogil=True)
def scan(scores, candidates, active, g, target, first, last, use_lo, use_hi, decided):
    """Rows that each candidate member would decide next.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
    candidates : ndarray of shape (n_candidates,), dtype=int64
    active : ndarray of shape (n_active,), dtype=int64
        Undecided rows.

    g : ndarray of shape (n_active, n_outputs)
        Their partial sums.

    target : ndarray of shape (n_active,), dtype=bool or int64
        For one score for each row, whether leaving above is wrong; leaving below is for the
        others. Else the full answer.

    first, last : int
        Wrong answers allowed at this step: the rows decided are added up over
        ``first, ..., last``.

    use_lo, use_hi : bool
        Which thresholds there are.

    decided : ndarray of shape (n_candidates,), dtype=int64
        The result.
    """
    n, n_outputs = len(active), scores.shape[2]
    v, bad = np.empty(n, dtype=scores.dtype), np.empty(n, dtype=np.bool_)
    top = np.empty(last + 1, dtype=scores.dtype)
    bottom = np.empty(last + 1, dtype=scores.dtype)
    above = np.zeros(last + 1, dtype=np.int64)
    below = np.zeros(last + 1, dtype=np.int64)
    for c in range(len(candidates)):
        added = scores[candidates[c]]
        for i in range(n):
            best, second, leader = g[i, 0] + added[active[i], 0], scores.dtype.type(-np.inf), 0
            for o in range(1, n_outputs):
                x = g[i, o] + added[active[i], o]
                if x > best:
                    best, second, leader = x, best, o
                elif x > second:
                    second = x
            if n_outputs == 1:
                v[i], bad[i] = best, target[i] != 0
            else:
                v[i], bad[i] = best - second, leader != target[i]
        if use_hi:
            top[:] = -np.inf
            for i in range(n):
                if bad[i] and v[i] > top[last]:
                    _add_largest(v[i], top)
            for j in range(len(top)):
                above[j] = _n_above(v, top[j])
        if use_lo:
            # The lowest are the largest of the negated.
            bottom[:] = -np.inf
            for i in range(n):
                if not bad[i] and -v[i] > bottom[last]:
                    _add_largest(-v[i], bottom)
            for j in range(len(bottom)):
                bottom[j] = -bottom[j]
                below[j] = _n_below(v, bottom[j])
        if not use_lo:
            decided[c] = _one_tail(above, first, last)
        elif not use_hi:
            decided[c] = _one_tail(below, first, last)
        else:
            decided[c] = _two_tails(above, below, top, bottom, n, first, last)


@njit(cache=True, nogil=True)
def best_cut(x, by, rows, bad, to_go, prices, use_lo, use_hi):
    """Thresholds of one position that save most: cost still to come less price of errors.

    Parameters
    ----------
    x : ndarray of shape (n,)
        Partial sums, or margins, of the rows that reach the position.

    by : ndarray of shape (n,), dtype=int64
        What sorts `x`.

    rows : ndarray of shape (n,), dtype=int64
        Which rows they are.

    bad : ndarray of shape (n_samples,), dtype=float64
        Whether leaving above would be wrong, or how likely that is; leaving below is wrong
        otherwise.

    to_go : ndarray of shape (n_samples,), dtype=float64
        What each row costs from here on if it stays, errors included.

    prices : ndarray of shape (2, n_samples), dtype=float64
        Price of a wrong answer above and below, in units of cost.

    use_lo, use_hi : bool

    Returns
    -------
    lo, hi : float
    """
    n = len(x)
    # Saved when the j lowest leave below, and when all from the j-th on leave above.
    above = np.zeros(n + 1)
    for j in range(n - 1, -1, -1):
        i = rows[by[j]]
        above[j] = above[j + 1] + to_go[i] - prices[0, i] * bad[i]
    below = 0.0
    best_below, cut_below = 0.0, 0
    best, cut_lo, cut_hi = 0.0, 0, n
    for j in range(n + 1):
        if j > 0:
            i = rows[by[j - 1]]
            below += to_go[i] - prices[1, i] * (1.0 - bad[i])
        if 0 < j < n and x[by[j - 1]] == x[by[j]]:
            continue
        if use_lo and below > best_below:
            best_below, cut_below = below, j
        gain = best_below + (above[j] if use_hi else 0.0)
        if gain > best + 1e-9:
            best, cut_lo = gain, cut_below
            cut_hi = j if use_hi else n
    lo, hi = -np.inf, np.inf
    if cut_lo == n:
        lo = np.inf
    elif cut_lo > 0:
        lo = 0.5 * (np.float64(x[by[cut_lo - 1]]) + np.float64(x[by[cut_lo]]))
    if cut_hi == 0:
        hi = -np.inf
    elif cut_hi < n:
        hi = 0.5 * (np.float64(x[by[cut_hi - 1]]) + np.float64(x[by[cut_hi]]))
    return lo, hi


@njit(cache=True, nogil=True)
def settle(v, bad, lo, hi, prices, to_go):
    """Let the rows that the thresholds `lo` and `hi` decide leave: updates `to_go`."""
    for i in range(len(v)):
        if v[i] > hi:
            to_go[i] = prices[0, i] * bad[i]
        elif v[i] < lo:
            to_go[i] = prices[1, i] * (1.0 - bad[i])


@njit(cache=True, nogil=True)
def leave_at(v, lo, hi, position, side):
    """Where rows leave: fills `position` (index of the last member evaluated) and `side`."""
    n_members, n_samples = v.shape
    for i in range(n_samples):
        position[i] = n_members - 1
        side[i] = 0
    rows = np.arange(n_samples)
    m = n_samples
    for r in range(n_members - 1):
        kept = 0
        for j in range(m):
            i = rows[j]
            if v[r, i] > hi[r]:
                position[i] = r
                side[i] = 1
            elif v[r, i] < lo[r]:
                position[i] = r
                side[i] = -1
            else:
                rows[kept] = i
                kept += 1
        m = kept
        if m == 0:
            break
