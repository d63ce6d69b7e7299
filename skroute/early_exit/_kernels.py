"""Compiled kernels: the early-exit walks and the order search. Imported on first use."""

import numpy as np
from numba import njit

from skroute.forests._bitvector_kernels import (
    BLOCK,
    GAP,
    add_values,
    bin_rows,
    find_leaves,
)
from skroute.forests._kernels import leaves

# Trees that a row which is alone goes down together.
_TOGETHER = 8
# What moving a row of a block together costs for each column, in tests of a row.
_MOVE = 8
# What a tree costs beside its tests, in tests of a row.
_TREE = 8


@njit(cache=True, nogil=True, inline="always")
def _leader_and_margin(g, j):
    """Leading class of row `j`, and its margin to the second; the first class wins ties."""
    best, second, leader = g[j, 0], -np.inf, 0
    for k in range(1, g.shape[1]):
        second = max(second, min(g[j, k], best))
        if g[j, k] > best:
            best, leader = g[j, k], k
    return leader, best - second


@njit(cache=True, nogil=True)
def walk_rows(X, start, stop, trees, offset, thresholds, beta, score, members, answer):
    """Early-exit walk of rows ``start:stop``.

    A row leaves after member `r` when its partial sum is below the lower or above the upper
    threshold of that position; with one score for each class, when the margin between the two
    leading ones is above the upper. Results go into `score` (the partial sums), `members` (how
    many were evaluated) and `answer` (position of the class).

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    trees : tuple
        In evaluation order.

    offset : ndarray of shape (n_outputs,)
    thresholds : ndarray of shape (2, n_members)
    beta : float
        A full score of one output that is above is answered with the second class.

    score : ndarray of shape (n_samples, n_outputs)
    members, answer : ndarray of shape (n_samples,), dtype=int64
    """
    _, values, _, _, outputs, member_start, _, _, _ = trees
    n_members, n_outputs = len(member_start) - 1, len(offset)
    lo, hi = thresholds[0], thresholds[1]
    block = min(1024, stop - start)
    rows = np.empty(block, dtype=np.int64)
    g = np.empty((block, n_outputs), dtype=np.float64)
    scratch = np.empty((2, max(block, _TOGETHER)), dtype=np.uint64)
    leaf = np.empty(max(block, _TOGETHER), dtype=np.uint64)
    for begin in range(start, stop, block):
        m, known, next_tree = min(block, stop - begin), 0, 0
        for j in range(m):
            rows[j] = begin + j
            for k in range(n_outputs):
                g[j, k] = offset[k]
        for r in range(n_members):
            for t in range(member_start[r], member_start[r + 1]):
                if t >= next_tree:
                    # Alone, a row also goes down trees that it may not need: their loads overlap.
                    known, next_tree = (
                        t,
                        min(t + (1 if m > 1 else _TOGETHER), len(outputs)),
                    )
                    leaves(X, rows, m, trees, t, next_tree, scratch, leaf)
                first, width = max(outputs[t], 0), n_outputs if outputs[t] < 0 else 1
                for j in range(m):
                    for k in range(width):
                        g[j, first + k] += values[leaf[(t - known) * m + j], k]
            last, one, kept = r == n_members - 1, n_outputs == 1, 0
            high = beta if last and one else hi[r]
            for j in range(m):
                leader, x = (0, g[j, 0]) if one else _leader_and_margin(g, j)
                if last or x > high or (one and x < lo[r]):
                    members[rows[j]], answer[rows[j]] = (
                        r + 1,
                        x > high if one else leader,
                    )
                    for k in range(n_outputs):
                        score[rows[j], k] = g[j, k]
                else:
                    rows[kept] = rows[j]
                    for k in range(n_outputs):
                        g[kept, k] = g[j, k]
                    kept += 1
            m = kept
            if m == 0:
                break


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
def _last_trees(bits):
    """The last tree of a stage that reads each column: codes are not moved together beyond it, and
    a column that no tree reads has 0."""
    last = np.zeros(len(bits.columns.limit), dtype=np.int64)
    for t in range(len(bits.outputs)):
        for k in range(bits.test_start[t], bits.test_start[t + 1]):
            last[bits.column[k]] = t
    return last


@njit(cache=True, nogil=True)
def walk_stage(X, rows, n_rows, first, bits, thresholds, beta, score, members, answer):
    """Evaluate one stage by bit vectors for rows that have not left; keep those that do not leave.

    A stage is some positions with a layout of their own, so that a row is binned only to the cuts
    that its next trees ask for. Rows that stay are those of the next stage, in full blocks again.

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

    thresholds : ndarray of shape (2, n_members)
        Of all stages.

    beta, score, members, answer
        As for :func:`walk_rows`; of rows that stay, `score` has the partial sums so far.

    Returns
    -------
    int
        How many rows stay.
    """
    n_outputs, last_position = score.shape[1], len(thresholds[0]) - 1
    columns, lo, hi = bits.columns, thresholds[0], thresholds[1]
    values, leaf_start, words = bits.values, bits.leaf_start, bits.words
    limit, reads, cuts, clears = columns.limit, bits.column, bits.cut, bits.clear
    test_start, outputs, member_start = bits.test_start, bits.outputs, bits.member_start
    needed = _last_trees(bits)
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
            low, high, last = lo[r], hi[r], r == last_position
            if last:
                high = beta if n_outputs == 1 else high
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
                    leader = 0
                    for o in range(1, n_outputs):
                        leader = o if total[o, j] > total[leader, j] else leader
                    answer[row] = leader if n_outputs > 1 else total[0, j] > high
                    members[row] = r + 1
                    for o in range(n_outputs):
                        score[row, o] = total[o, j]
                        # What has left does not leave again.
                        total[o, j] = np.nan
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
def _tail(v, wrong, limits, beyond):
    """The largest values of the rows that are wrong, and how many rows lie above each."""
    limits[:] = -np.inf
    for i in range(len(v)):
        if wrong[i] and v[i] > limits[-1]:
            _add_largest(v[i], limits)
    for j in range(len(limits)):
        beyond[j] = _n_above(v, limits[j])


@njit(cache=True, nogil=True)
def _most_decided(above, below, top, bottom, n, first, last):
    """Rows decided with ``first, ..., last`` errors shared out best between the tails, summed."""
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
    # Tails that are not used hold no row, and never meet the other.
    top = np.full(last + 1, np.inf, dtype=scores.dtype)
    bottom = np.full(last + 1, -np.inf, dtype=scores.dtype)
    above = np.zeros(last + 1, dtype=np.int64)
    below = np.zeros(last + 1, dtype=np.int64)
    for c in range(len(candidates)):
        added = scores[candidates[c]]
        for i in range(n):
            best, second, leader = (
                g[i, 0] + added[active[i], 0],
                scores.dtype.type(-np.inf),
                0,
            )
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
            _tail(v, bad, top, above)
        if use_lo:
            # The lowest are the largest of the negated.
            _tail(-v, ~bad, bottom, below)
            bottom[:] = -bottom
        decided[c] = _most_decided(above, below, top, bottom, n, first, last)


@njit(cache=True, nogil=True)
def best_cuts(values, rows, bad, to_go, prices, use_lo, use_hi):
    """Thresholds of one position that save most: cost still to come less price of errors.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Partial sums, or margins, of the rows that reach the position, sorted.

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
    cut_lo, cut_hi : int
        The first rows leave below, and those from the second on above.
    """
    n = len(values)
    # Saved when the j lowest leave below, and when all from the j-th on leave above.
    above = np.zeros(n + 1)
    for j in range(n - 1, -1, -1):
        i = rows[j]
        above[j] = above[j + 1] + to_go[i] - prices[0, i] * bad[i]
    below = 0.0
    best_below, cut_below = 0.0, 0
    best, cut_lo, cut_hi = 0.0, 0, n
    for j in range(n + 1):
        if j > 0:
            i = rows[j - 1]
            below += to_go[i] - prices[1, i] * (1.0 - bad[i])
        if 0 < j < n and values[j - 1] == values[j]:
            continue
        if use_lo and below > best_below:
            best_below, cut_below = below, j
        gain = best_below + (above[j] if use_hi else 0.0)
        if gain > best + 1e-9:
            best, cut_lo = gain, cut_below
            cut_hi = j if use_hi else n
    return cut_lo, cut_hi


@njit(cache=True, nogil=True)
def settle(v, bad, lo, hi, prices, to_go):
    """Let the rows that the thresholds `lo` and `hi` decide leave: updates `to_go`."""
    for i in range(len(v)):
        if v[i] > hi:
            to_go[i] = prices[0, i] * bad[i]
        elif v[i] < lo:
            to_go[i] = prices[1, i] * (1.0 - bad[i])


@njit(cache=True, nogil=True)
def leave_at(v, lo, hi):
    """Where rows leave: index of the last member evaluated, and 1 above, -1 below, 0 never."""
    n_members, n_samples = v.shape
    position = np.full(n_samples, n_members - 1)
    side = np.zeros(n_samples, dtype=np.int8)
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
    return position, side
