"""Compiled kernels: walks, order search and thresholds. Imported on first use."""

from typing import Any, NamedTuple

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

# Number of trees that a row which is alone goes down together: their loads from memory
# overlap.
_TREES_TOGETHER = 8
# Cost of moving one row in one column when gaps of a block are closed, in tests of a
# row.
_MOVE = 8
# Cost of a tree in addition to its tests, in tests of a row.
_TREE = 8
# Replaces the number of a row in a block after the row has left.
_GONE = -1
# Smallest saving in cost by which new cuts replace others. Smaller ones are rounding.
_LEAST_SAVING = 1e-9


# Fields of records are read before the loops over rows: numba counts a reference to the
# array at each access.


class _Results(NamedTuple):
    """The arrays of a :class:`~skroute.early_exit._engine.Walk`.

    Attributes
    ----------
    scores : ndarray of shape (n_samples, n_outputs), dtype=float64
    n_evaluated, answers : ndarray of shape (n_samples,), dtype=int64
    """

    scores: Any
    n_evaluated: Any
    answers: Any


# The walk from the roots to the leaves ------------------------------------------------


class _RowBlock(NamedTuple):
    """Undecided rows that go down the trees together. They are the first of each array.

    Attributes
    ----------
    rows : ndarray of shape (n,), dtype=int64
        Rows of `X`.

    totals : ndarray of shape (n, n_outputs), dtype=float64
        Partial sums.

    leaves : ndarray of shape (n_leaves,), dtype=uint64
        Leaves of the rows in some trees, tree after tree.

    scratch : ndarray of shape (2, n_leaves), dtype=uint64
        Memory of the kernel that finds the leaves.
    """

    rows: Any
    totals: Any
    leaves: Any
    scratch: Any


@njit(cache=True, nogil=True)
def walk_rows(
    X, start, stop, trees, offset, thresholds, beta, scores, n_evaluated, answers
):
    """Evaluate the rows ``start:stop``, each until the thresholds stop it.

    For one output, a row leaves after a member if its partial sum is below the lower or
    above the upper threshold of that position. For several outputs, it leaves if the
    margin between the two leading classes is above the upper threshold.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
    trees : tuple
        The fields of :class:`~skroute.forests._trees.Trees`, in evaluation order.

    offset : ndarray of shape (n_outputs,)
        Score before any member.

    thresholds : ndarray of shape (2, n_members)
        Lower and upper thresholds by position.

    beta : float
        Full score of one output above which the answer is the second class.

    scores, n_evaluated, answers : ndarray
        The arrays of a :class:`~skroute.early_exit._engine.Walk`. The results of the
        rows are written into them.
    """
    results = _Results(scores, n_evaluated, answers)
    size = min(BLOCK, stop - start)
    n_leaves = max(size, _TREES_TOGETHER)
    block = _RowBlock(
        np.empty(size, dtype=np.int64),
        np.empty((size, len(offset)), dtype=np.float64),
        np.empty(n_leaves, dtype=np.uint64),
        np.empty((2, n_leaves), dtype=np.uint64),
    )
    for begin in range(start, stop, size):
        n_rows = min(size, stop - begin)
        rows = block.rows
        totals = block.totals
        for j in range(n_rows):
            rows[j] = begin + j
            for output in range(len(offset)):
                totals[j, output] = offset[output]
        _walk_row_block(X, block, n_rows, trees, thresholds, beta, results)


@njit(cache=True, nogil=True, inline="always")
def _walk_row_block(X, block, n_rows, trees, thresholds, beta, results):
    """Evaluate the first `n_rows` rows of a block until all have left."""
    _, values, _, _, outputs, member_start, _, _, _ = trees
    n_members = len(member_start) - 1
    n_trees = len(outputs)
    # `block.leaves` has the leaves of the trees from `first_tree` to before
    # `next_tree`.
    first_tree = 0
    next_tree = 0
    for position in range(n_members):
        for t in range(member_start[position], member_start[position + 1]):
            if t >= next_tree:
                # A row that is alone also goes down trees that it may not need.
                n_together = 1 if n_rows > 1 else _TREES_TOGETHER
                first_tree = t
                next_tree = min(t + n_together, n_trees)
                leaves(
                    X,
                    block.rows,
                    n_rows,
                    trees,
                    first_tree,
                    next_tree,
                    block.scratch,
                    block.leaves,
                )
            first_leaf = (t - first_tree) * n_rows
            _add_leaf_values(block, n_rows, first_leaf, outputs[t], values)
        n_rows = _drop_stopped(block, n_rows, position, thresholds, beta, results)
        if n_rows == 0:
            break


@njit(cache=True, nogil=True, inline="always")
def _add_leaf_values(block, n_rows, first_leaf, output, values):
    """Add the values of one tree's leaves to the partial sums of the rows.

    `output` is -1 if the leaves have a value for each output.
    """
    first_output = max(output, 0)
    n_values = 1
    if output < 0:
        n_values = block.totals.shape[1]
    tree_leaves = block.leaves
    totals = block.totals
    for j in range(n_rows):
        leaf = tree_leaves[first_leaf + j]
        for k in range(n_values):
            totals[j, first_output + k] += values[leaf, k]


@njit(cache=True, nogil=True, inline="always")
def _drop_stopped(block, n_rows, position, thresholds, beta, results):
    """Write the results of the rows that stop, and move the others to the front.

    Returns
    -------
    int
        Number of rows that go on.
    """
    rows = block.rows
    totals = block.totals
    scores = results.scores
    n_evaluated = results.n_evaluated
    answers = results.answers
    n_outputs = totals.shape[1]
    is_last = position == thresholds.shape[1] - 1
    low = thresholds[0, position]
    high = thresholds[1, position]
    if n_outputs > 1:
        # A margin is only compared with the upper threshold.
        low = -np.inf
    elif is_last:
        high = beta
    n_staying = 0
    for j in range(n_rows):
        if n_outputs == 1:
            value = totals[j, 0]
            answer = np.int64(value > high)
        else:
            answer, value = _leader_and_margin(totals, j)
        row = rows[j]
        if is_last or value > high or value < low:
            n_evaluated[row] = position + 1
            answers[row] = answer
            for output in range(n_outputs):
                scores[row, output] = totals[j, output]
        else:
            rows[n_staying] = row
            for output in range(n_outputs):
                totals[n_staying, output] = totals[j, output]
            n_staying += 1
    return n_staying


@njit(cache=True, nogil=True, inline="always")
def _leader_and_margin(totals, j):
    """Return the leading class of row `j` and its margin; the first class wins ties."""
    leader = 0
    best = totals[j, 0]
    second = -np.inf
    for output in range(1, totals.shape[1]):
        total = totals[j, output]
        second = max(second, min(total, best))
        if total > best:
            best = total
            leader = output
    return leader, best - second


# The walk by bit vectors --------------------------------------------------------------


class _StageBlock(NamedTuple):
    """Rows that are evaluated together by bit vectors.

    Each row has a place, which is the same in all arrays.

    Attributes
    ----------
    rows : ndarray of shape (n,), dtype=int64
        Rows of `X`, `_GONE` after a row has left.

    codes : ndarray of shape (n_columns, n + GAP), dtype=uint16
        The rows, binned to the columns of the stage.

    leaves : ndarray of shape (n,), dtype of the bit vectors
        Bit vector of each row in one tree. The lowest bit is the leaf.

    totals : ndarray of shape (n_outputs, n), dtype=float64
        Partial sums. After a row has left they are NaN, which is beyond no threshold.

    largest, margins : ndarray of shape (n,), dtype=float64
        Largest partial sum and its margin to the second, if there are several outputs.

    places : ndarray of shape (n,), dtype=int32
        Places of the rows that leave, or of those that stay.
    """

    rows: Any
    codes: Any
    leaves: Any
    totals: Any
    largest: Any
    margins: Any
    places: Any


@njit(cache=True, nogil=True)
def walk_stage(
    X,
    rows,
    n_rows,
    first_position,
    bits,
    thresholds,
    beta,
    scores,
    n_evaluated,
    answers,
):
    """Evaluate the members of one stage for rows that have not left.

    A stage is a range of positions with a layout of its own. A row is binned only to
    the cuts that its next trees ask for, and blocks of rows are full again.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    rows : ndarray of shape (n,), dtype=int64
        The first `n_rows` are the rows to evaluate. Changed: the rows that have not
        left after the stage come first.

    n_rows : int
    first_position : int
        Position of the first member of the stage.

    bits : BitTrees
        Members of the stage.

    thresholds : ndarray of shape (2, n_members)
        Lower and upper thresholds of all stages, as for :func:`walk_rows`.

    beta : float
        As for :func:`walk_rows`.

    scores, n_evaluated, answers : ndarray
        The arrays of a :class:`~skroute.early_exit._engine.Walk`. `scores` contains the
        partial sums of the rows. The results of rows that leave, and the new partial
        sums of the others, are written into the arrays.

    Returns
    -------
    int
        Number of rows that have not left.
    """
    results = _Results(scores, n_evaluated, answers)
    size = min(BLOCK, n_rows)
    n_columns = len(bits.columns.limit)
    n_outputs = scores.shape[1]
    last_tree_of_column = _last_trees(bits)
    every_column = np.ones(n_columns, dtype=np.bool_)
    block = _StageBlock(
        np.empty(size, dtype=np.int64),
        np.empty((n_columns, size + GAP), dtype=np.uint16),
        np.empty(size, dtype=bits.clear.dtype),
        np.empty((n_outputs, size), dtype=np.float64),
        np.empty(size, dtype=np.float64),
        np.empty(size, dtype=np.float64),
        np.empty(size, dtype=np.int32),
    )
    n_staying = 0
    for begin in range(0, n_rows, size):
        n_places = min(size, n_rows - begin)
        _read_block(rows, begin, n_places, scores, block)
        bin_rows(X, block.rows, n_places, bits.columns, every_column, block.codes)
        n_places = _walk_stage_block(
            block,
            n_places,
            first_position,
            bits,
            last_tree_of_column,
            thresholds,
            beta,
            results,
        )
        n_staying = _write_undecided(block, n_places, scores, rows, n_staying)
    return n_staying


@njit(cache=True, nogil=True)
def _last_trees(bits):
    """Return the last tree that reads each column, 0 if no tree reads it.

    Returns
    -------
    ndarray of shape (n_columns,), dtype=int64
    """
    last_tree_of_column = np.zeros(len(bits.columns.limit), dtype=np.int64)
    for t in range(len(bits.outputs)):
        for k in range(bits.test_start[t], bits.test_start[t + 1]):
            last_tree_of_column[bits.column[k]] = t
    return last_tree_of_column


@njit(cache=True, nogil=True)
def _read_block(rows, begin, n_places, scores, block):
    """Read the rows ``begin, ..., begin + n_places - 1`` and their partial sums."""
    block_rows = block.rows
    totals = block.totals
    for j in range(n_places):
        row = rows[begin + j]
        block_rows[j] = row
        for output in range(scores.shape[1]):
            totals[output, j] = scores[row, output]


@njit(cache=True, nogil=True)
def _write_undecided(block, n_places, scores, rows, n_staying):
    """Append the rows of a block that have not left to the first `n_staying` of `rows`.

    Their partial sums are written into `scores`.

    Returns
    -------
    int
        The new number of rows that stay.
    """
    block_rows = block.rows
    totals = block.totals
    for j in range(n_places):
        row = block_rows[j]
        if row == _GONE:
            continue
        for output in range(scores.shape[1]):
            scores[row, output] = totals[output, j]
        rows[n_staying] = row
        n_staying += 1
    return n_staying


@njit(cache=True, nogil=True, inline="always")
def _walk_stage_block(
    block,
    n_places,
    first_position,
    bits,
    last_tree_of_column,
    thresholds,
    beta,
    results,
):
    """Evaluate the members of a stage for one block, until all of its rows have left.

    Returns
    -------
    int
        Number of places in use at the end. Rows that have left may be among them.
    """
    n_gone = 0
    # Tests of rows that had left already, since the gaps of the block were closed.
    n_wasted_tests = 0
    move_cost = _MOVE * len(last_tree_of_column)
    for member in range(len(bits.member_start) - 1):
        _add_member(block, n_places, bits, member)
        n_gone += _let_leave(
            block, n_places, first_position + member, thresholds, beta, results
        )
        if n_gone == n_places:
            break
        first_tree = bits.member_start[member]
        last_tree = bits.member_start[member + 1] - 1
        n_tests = bits.test_start[last_tree + 1] - bits.test_start[first_tree]
        n_wasted_tests += n_gone * (n_tests + _TREE)
        if n_wasted_tests > (n_places - n_gone) * move_cost:
            n_places = _close_gaps(block, n_places, last_tree_of_column, last_tree)
            n_gone = 0
            n_wasted_tests = 0
    return n_places


@njit(cache=True, nogil=True, inline="always")
def _add_member(block, n_places, bits, member):
    """Add the values of one member's trees to the partial sums of a block."""
    for t in range(bits.member_start[member], bits.member_start[member + 1]):
        tests_of_tree = (bits.test_start[t], bits.test_start[t + 1])
        find_leaves(
            block.codes,
            n_places,
            tests_of_tree,
            bits.columns.limit,
            bits.column,
            bits.cut,
            bits.clear,
            bits.words,
            block.leaves,
        )
        first_leaf = bits.leaf_start[t]
        output = bits.outputs[t]
        if output >= 0:
            totals = block.totals[output]
            add_values(bits.values, first_leaf, 0, block.leaves, n_places, totals)
        else:
            # The leaves have a value for each output.
            for k in range(len(block.totals)):
                totals = block.totals[k]
                add_values(bits.values, first_leaf, k, block.leaves, n_places, totals)


@njit(cache=True, nogil=True)
def _let_leave(block, n_places, position, thresholds, beta, results):
    """Write the results of the rows that leave a block after a position.

    Returns
    -------
    int
        Number of rows that leave.
    """
    low = thresholds[0, position]
    high = thresholds[1, position]
    is_last = position == thresholds.shape[1] - 1
    n_found = _find_leaving(block, n_places, low, high, is_last)
    if n_found == 0:
        return 0
    n_outputs = len(block.totals)
    cut = high
    if is_last and n_outputs == 1:
        cut = beta
    rows = block.rows
    totals = block.totals
    places = block.places
    scores = results.scores
    n_evaluated = results.n_evaluated
    answers = results.answers
    n_leaving = 0
    for k in range(n_found):
        place = places[k]
        row = rows[place]
        if row == _GONE:
            continue
        answers[row] = _answer_at(totals, place, cut)
        n_evaluated[row] = position + 1
        for output in range(n_outputs):
            scores[row, output] = totals[output, place]
            totals[output, place] = np.nan
        rows[place] = _GONE
        n_leaving += 1
    return n_leaving


@njit(cache=True, nogil=True)
def _find_leaving(block, n_places, low, high, is_last):
    """Write the places of the rows that leave into `block.places`; return their number.

    `low` and `high` are the thresholds. At the last position all places are written,
    also those of rows that have left before.
    """
    places = block.places
    if is_last:
        for j in range(n_places):
            places[j] = j
        return n_places
    if low == -np.inf and high == np.inf:
        return 0
    if len(block.totals) == 1:
        return _places_outside(block.totals[0], n_places, low, high, places)
    _compute_margins(block, n_places)
    return _places_outside(block.margins, n_places, -np.inf, high, places)


@njit(cache=True, nogil=True)
def _places_outside(values, n_places, low, high, places):
    """Write the places of values below `low` or above `high`; return their number."""
    # Usually no row leaves. Without a branch, this loop becomes vector instructions.
    n_outside = np.int32(0)
    for j in range(n_places):
        n_outside += (values[j] < low) | (values[j] > high)
    if n_outside == 0:
        return 0
    n_written = 0
    for j in range(n_places):
        # The next place overwrites one that is not outside.
        places[n_written] = j
        n_written += (values[j] < low) | (values[j] > high)
    return n_written


@njit(cache=True, nogil=True)
def _compute_margins(block, n_places):
    """Compute `block.margins`, between the two largest partial sums of each row.

    Every output is compared with all rows, without a branch.
    """
    totals = block.totals
    largest = block.largest
    # The second largest, until the last loop.
    margins = block.margins
    for j in range(n_places):
        largest[j] = totals[0, j]
        margins[j] = -np.inf
    for output in range(1, len(totals)):
        for j in range(n_places):
            total = totals[output, j]
            second = total if total > margins[j] else margins[j]
            margins[j] = largest[j] if total > largest[j] else second
            largest[j] = total if total > largest[j] else largest[j]
    for j in range(n_places):
        margins[j] = largest[j] - margins[j]


@njit(cache=True, nogil=True)
def _answer_at(totals, place, cut):
    """Return the leading class of a row or, for one output, 1 if it is above `cut`."""
    if len(totals) == 1:
        return np.int64(totals[0, place] > cut)
    leader = np.int64(0)
    for output in range(1, len(totals)):
        if totals[output, place] > totals[leader, place]:
            leader = output
    return leader


@njit(cache=True, nogil=True)
def _close_gaps(block, n_places, last_tree_of_column, tree):
    """Move the rows that have not left to the front of a block; return their number.

    Codes of a column are not moved if no tree after `tree` reads it.
    """
    rows = block.rows
    codes = block.codes
    totals = block.totals
    places = block.places
    n_staying = 0
    for j in range(n_places):
        # The next place overwrites that of a row that has left.
        places[n_staying] = j
        n_staying += rows[j] != _GONE
    for k in range(n_staying):
        rows[k] = rows[places[k]]
    for column in range(len(last_tree_of_column)):
        if last_tree_of_column[column] > tree:
            for k in range(n_staying):
                codes[column, k] = codes[column, places[k]]
    for output in range(len(totals)):
        for k in range(n_staying):
            totals[output, k] = totals[output, places[k]]
    return n_staying


# The order search ---------------------------------------------------------------------


class _CandidateTail(NamedTuple):
    """One end of a candidate's values, from which wrong answers are counted.

    Attributes
    ----------
    limits : ndarray of shape (n_errors + 1,)
        Entry `j` is the threshold with `j` wrong answers beyond it.

    n_beyond : ndarray of shape (n_errors + 1,), dtype=int64
        Number of rows beyond each limit.
    """

    limits: Any
    n_beyond: Any


@njit(cache=True, nogil=True)
def count_decided(
    scores, candidates, undecided, fewest_errors, most_errors, use_lo, use_hi
):
    """Count the rows that each candidate member would decide next (Algorithm 2).

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
    candidates : ndarray of shape (n_candidates,), dtype=int64
        Members to try.

    undecided : Undecided
        The undecided rows.

    fewest_errors, most_errors : int
        Numbers of wrong answers at this position. The rows decided are added up over
        ``fewest_errors, ..., most_errors``.

    use_lo, use_hi : bool
        Which thresholds there are.

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=int64
    """
    n_rows = len(undecided.rows)
    n_limits = most_errors + 1
    values = np.empty(n_rows, dtype=scores.dtype)
    bad = np.empty(n_rows, dtype=np.bool_)
    # A tail that is not used holds no row, and never meets the other.
    upper = _CandidateTail(
        np.full(n_limits, np.inf, dtype=scores.dtype),
        np.zeros(n_limits, dtype=np.int64),
    )
    lower = _CandidateTail(
        np.full(n_limits, -np.inf, dtype=scores.dtype),
        np.zeros(n_limits, dtype=np.int64),
    )
    n_decided = np.empty(len(candidates), dtype=np.int64)
    for c in range(len(candidates)):
        _try_candidate(scores[candidates[c]], undecided, values, bad)
        if use_hi:
            _fill_tail(values, bad, upper)
        if use_lo:
            # The lowest values are the largest of the negated ones.
            _fill_tail(-values, ~bad, lower)
            lower.limits[:] = -lower.limits
        n_decided[c] = _most_decided(upper, lower, n_rows, fewest_errors, most_errors)
    return n_decided


@njit(cache=True, nogil=True)
def _try_candidate(added, undecided, values, bad):
    """Write the values of the undecided rows after one more member, and which are bad.

    `added`, of shape (n_samples, n_outputs), are the scores of the member. `values` and
    `bad` are those of `running_values` at one position.
    """
    totals = undecided.totals
    n_outputs = totals.shape[1]
    for i in range(len(values)):
        row = undecided.rows[i]
        largest = totals[i, 0] + added[row, 0]
        second = added.dtype.type(-np.inf)
        leader = 0
        for output in range(1, n_outputs):
            total = totals[i, output] + added[row, output]
            if total > largest:
                second = largest
                largest = total
                leader = output
            elif total > second:
                second = total
        if n_outputs == 1:
            values[i] = largest
            bad[i] = undecided.target[i] != 0
        else:
            values[i] = largest - second
            bad[i] = leader != undecided.target[i]


@njit(cache=True, nogil=True)
def _fill_tail(values, bad, tail):
    """Write the largest values of the bad rows, and the number of rows above each."""
    limits = tail.limits
    limits[:] = -np.inf
    for i in range(len(values)):
        if bad[i] and values[i] > limits[-1]:
            _insert_decreasing(values[i], limits)
    for j in range(len(limits)):
        tail.n_beyond[j] = _n_above(values, limits[j])


@njit(cache=True, nogil=True)
def _insert_decreasing(value, largest):
    """Insert a value into a decreasing array, whose last entry is dropped."""
    j = len(largest) - 1
    while j > 0 and largest[j - 1] < value:
        largest[j] = largest[j - 1]
        j -= 1
    largest[j] = value


@njit(cache=True, nogil=True)
def _n_above(values, limit):
    """Return the number of values above a limit."""
    # One comparison and one addition per row become vector instructions.
    count = np.int32(0)
    for i in range(len(values)):
        count += values[i] > limit
    return count


@njit(cache=True, nogil=True)
def _most_decided(upper, lower, n_rows, fewest_errors, most_errors):
    """Return the rows decided by the best thresholds, summed over numbers of errors.

    For each number of errors, the best division of the errors between the two tails is
    taken.
    """
    n_decided = np.int64(0)
    for n_errors in range(fewest_errors, most_errors + 1):
        most = np.int64(0)
        for n_above in range(n_errors + 1):
            n_below = n_errors - n_above
            if upper.limits[n_above] < lower.limits[n_below]:
                # The tails meet: a threshold between the limits decides every row.
                n_beyond = n_rows
            else:
                n_beyond = upper.n_beyond[n_above] + lower.n_beyond[n_below]
            most = max(most, n_beyond)
        n_decided += most
    return n_decided


# Thresholds ---------------------------------------------------------------------------


class Cuts(NamedTuple):
    """Thresholds of one position, as numbers of rows in order of their values.

    Attributes
    ----------
    n_below : int
        The first `n_below` rows leave below.

    first_above : int
        The rows from `first_above` on leave above.
    """

    n_below: int
    first_above: int


@njit(cache=True, nogil=True)
def best_cuts(values, rows, bad, to_go, prices, use_lo, use_hi):
    """Return the thresholds of one position that save most.

    A row that leaves saves its cost from here on, less the price of its error.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Partial sums, or margins, of the rows that reach the position, sorted.

    rows : ndarray of shape (n,), dtype=int64
        These rows, in order of `values`.

    bad : ndarray of shape (n_samples,), dtype=float64
        Chance that leaving above is wrong. Leaving below is wrong otherwise.

    to_go : ndarray of shape (n_samples,), dtype=float64
        Cost of each row from here on if it stays, errors included.

    prices : ndarray of shape (2, n_samples), dtype=float64
        Price of a wrong answer above and below, in units of cost.

    use_lo, use_hi : bool
        Which thresholds there are.

    Returns
    -------
    Cuts
    """
    n = len(values)
    saved_above = _saved_above(rows, bad, to_go, prices[0])
    saved_below = 0.0
    most_saved_below = 0.0
    best_n_below = 0
    most_saved = 0.0
    n_below = 0
    first_above = n
    # The upper cut is before row `j`. The best lower cut is at or before it.
    for j in range(n + 1):
        if j > 0:
            i = rows[j - 1]
            saved_below += to_go[i] - prices[1, i] * (1.0 - bad[i])
        # No threshold lies between equal values.
        if 0 < j < n and values[j - 1] == values[j]:
            continue
        if use_lo and saved_below > most_saved_below:
            most_saved_below = saved_below
            best_n_below = j
        saved = most_saved_below
        if use_hi:
            saved += saved_above[j]
        if saved > most_saved + _LEAST_SAVING:
            most_saved = saved
            n_below = best_n_below
            if use_hi:
                first_above = j
    return Cuts(n_below, first_above)


@njit(cache=True, nogil=True)
def _saved_above(rows, bad, to_go, prices):
    """Return the cost saved if all rows from the `j`-th on leave above, for each `j`.

    Returns
    -------
    ndarray of shape (n + 1,), dtype=float64
    """
    n = len(rows)
    saved = np.zeros(n + 1)
    for j in range(n - 1, -1, -1):
        i = rows[j]
        saved[j] = saved[j + 1] + to_go[i] - prices[i] * bad[i]
    return saved


@njit(cache=True, nogil=True)
def settle(values, bad, lo, hi, prices, to_go):
    """Replace `to_go` of the rows that leave by the price of their errors."""
    for i in range(len(values)):
        if values[i] > hi:
            to_go[i] = prices[0, i] * bad[i]
        elif values[i] < lo:
            to_go[i] = prices[1, i] * (1.0 - bad[i])


@njit(cache=True, nogil=True)
def leave_at(values, lo, hi):
    """Return where rows leave.

    Parameters
    ----------
    values : ndarray of shape (n_members, n_samples)
    lo, hi : ndarray of shape (n_members,)

    Returns
    -------
    position : ndarray of shape (n_samples,), dtype=int64
        Index of the last member evaluated.

    side : ndarray of shape (n_samples,), dtype=int8
        1 if a row leaves above, -1 below, 0 if it never leaves early.
    """
    n_members, n_samples = values.shape
    position = np.full(n_samples, n_members - 1)
    side = np.zeros(n_samples, dtype=np.int8)
    # The first `n_rows` have not left.
    rows = np.arange(n_samples)
    n_rows = n_samples
    for r in range(n_members - 1):
        n_staying = 0
        for j in range(n_rows):
            i = rows[j]
            if values[r, i] > hi[r]:
                position[i] = r
                side[i] = 1
            elif values[r, i] < lo[r]:
                position[i] = r
                side[i] = -1
            else:
                rows[n_staying] = i
                n_staying += 1
        n_rows = n_staying
        if n_rows == 0:
            break
    return position, side
