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

# If a single row is left, it goes down this many trees at the same time: their loads
# from memory overlap.
_TREES_TOGETHER = 8
# The walk by bit vectors goes on to test rows that have left, until the remaining rows
# are moved together (`_close_gaps`). This happens when it costs less than the wasted
# tests. `_MOVE` is the cost of moving the code of one row in one column, in units of
# one test.
_MOVE = 8
# Cost of a tree for one row in addition to its tests, in units of one test.
_TREE = 8
# Written in place of the number of a row in a block, after the row has left.
_GONE = -1


# In this file, fields of records are read before the loops over rows: numba counts a
# reference to the array at each access.

# A row is "bad" at a position if leaving there above the upper threshold gives it
# another answer than the full ensemble's. Leaving below the lower threshold does so for
# all other rows.


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
    """Undecided rows that go down the trees together.

    The undecided rows are the first entries of `rows` and `totals`.

    Attributes
    ----------
    rows : ndarray of shape (block_size,), dtype=int64
        Rows of `X`, by number.

    totals : ndarray of shape (block_size, n_outputs), dtype=float64
        Partial sums of the rows.

    leaves : ndarray of shape (n_leaves,), dtype=uint64
        Leaves that the rows reach in some trees: the leaves of all rows in one tree,
        then those in the next tree.

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
    block_size = min(BLOCK, stop - start)
    n_leaves = max(block_size, _TREES_TOGETHER)
    block = _RowBlock(
        rows=np.empty(block_size, dtype=np.int64),
        totals=np.empty((block_size, len(offset)), dtype=np.float64),
        leaves=np.empty(n_leaves, dtype=np.uint64),
        scratch=np.empty((2, n_leaves), dtype=np.uint64),
    )
    for begin in range(start, stop, block_size):
        n_rows = min(block_size, stop - begin)
        rows = block.rows
        totals = block.totals
        for j in range(n_rows):
            rows[j] = begin + j
            for output in range(len(offset)):
                totals[j, output] = offset[output]
        _walk_row_block(X, block, n_rows, trees, thresholds, beta, results)


@njit(cache=True, nogil=True, inline="always")
def _walk_row_block(X, block, n_rows, trees, thresholds, beta, results):
    """Evaluate the first `n_rows` rows of a block member by member, until all left.

    Parameters are those of :func:`walk_rows`, except `block`, a `_RowBlock`, and
    `results`, a `_Results` into which the results of the rows are written.
    """
    # The fields of `Trees`. `member_start` has the first tree of each member, and the
    # number of trees at its end.
    _, values, _, _, outputs, member_start, _, _, _ = trees
    n_members = len(member_start) - 1
    n_trees = len(outputs)
    # `block.leaves` has the leaves of the trees from `first_tree` to before
    # `next_tree`.
    first_tree = 0
    next_tree = 0
    for position in range(n_members):
        for tree in range(member_start[position], member_start[position + 1]):
            if tree >= next_tree:
                # A row that is alone also goes down trees that it may not need.
                n_together = 1 if n_rows > 1 else _TREES_TOGETHER
                first_tree = tree
                next_tree = min(tree + n_together, n_trees)
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
            first_leaf = (tree - first_tree) * n_rows
            _add_leaf_values(block, n_rows, first_leaf, outputs[tree], values)
        n_rows = _drop_stopped(block, n_rows, position, thresholds, beta, results)
        if n_rows == 0:
            break


@njit(cache=True, nogil=True, inline="always")
def _add_leaf_values(block, n_rows, first_leaf, output, values):
    """Add the values of one tree's leaves to the partial sums of the rows.

    Parameters
    ----------
    block : _RowBlock
        Its `totals` are changed.

    n_rows : int
        Number of rows of the block.

    first_leaf : int
        Index in ``block.leaves`` of the first row's leaf in the tree.

    output : int
        Output that the tree adds to, -1 if its leaves have a value for each output.

    values : ndarray of shape (n_leaves, n_values)
        Values of the leaves of all trees.
    """
    first_output = max(output, 0)
    n_values = 1
    if output < 0:
        n_values = block.totals.shape[1]
    tree_leaves = block.leaves
    totals = block.totals
    for j in range(n_rows):
        leaf = tree_leaves[first_leaf + j]
        for value_index in range(n_values):
            totals[j, first_output + value_index] += values[leaf, value_index]


@njit(cache=True, nogil=True, inline="always")
def _drop_stopped(block, n_rows, position, thresholds, beta, results):
    """Write results of rows that stop, and move the rows that go on to the front.

    Parameters
    ----------
    block : _RowBlock
        Its first `n_rows` rows were evaluated up to `position`. Changed.

    n_rows : int
    position : int
        Position of the last evaluated member in the order.
    thresholds, beta
        As for :func:`walk_rows`.

    results : _Results
        Changed.

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
    # The first row of `thresholds` has the lower ones, the second the upper ones.
    low = thresholds[0, position]
    high = thresholds[1, position]
    if n_outputs > 1:
        # A margin is only compared with the upper threshold.
        low = -np.inf
    elif is_last:
        # A full score is answered with the second class if it is above `beta`.
        high = beta
    n_staying = 0
    for j in range(n_rows):
        if n_outputs == 1:
            sum_or_margin = totals[j, 0]
            answer = np.int64(sum_or_margin > high)
        else:
            answer, sum_or_margin = _leader_and_margin(totals, j)
        row = rows[j]
        if is_last or sum_or_margin > high or sum_or_margin < low:
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
    """Return the leading class of row `j` and its margin; the first class wins ties.

    `totals` (n_rows, n_outputs) are partial sums. The margin is the distance from the
    largest to the second largest one.
    """
    leader = 0
    best = totals[j, 0]
    second = -np.inf
    for output in range(1, totals.shape[1]):
        total = totals[j, output]
        # The smaller one of the new sum and the best one may be the second largest.
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
    rows : ndarray of shape (n_places,), dtype=int64
        Rows of `X`, `_GONE` after a row has left.

    codes : ndarray of shape (n_columns, n_places + GAP), dtype=uint16
        The rows, binned to the columns of the stage.

    leaves : ndarray of shape (n_places,), dtype of the bit vectors
        Bit vector of each row in one tree. The lowest bit is the leaf.

    totals : ndarray of shape (n_outputs, n_places), dtype=float64
        Partial sums. After a row has left they are NaN: no comparison with a threshold
        is true.

    largest, margins : ndarray of shape (n_places,), dtype=float64
        With several outputs, the largest partial sum of each row and its margin to the
        second largest one. Unused with one output.

    places : ndarray of shape (n_places,), dtype=int32
        Memory for a list of places: of the rows that leave, or of the rows that stay.
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
    """Evaluate a range of members (a stage) by bit vectors, for undecided rows.

    The trees of a stage have their own bit vectors. At the start of a stage, the
    undecided rows are collected in full blocks, and binned to the cuts that the trees
    of the stage test.

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
        Trees of the stage's members.

    thresholds : ndarray of shape (2, n_members)
        Lower and upper thresholds by position, of all stages. A row stops if its
        partial sum is below the lower or above the upper one. With several outputs, its
        margin is compared with the upper one.

    beta : float
        Full score of one output above which the answer is the second class.

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
    block_size = min(BLOCK, n_rows)
    n_columns = len(bits.columns.limit)
    n_outputs = scores.shape[1]
    last_tree_of_column = _last_trees(bits)
    # All columns are binned.
    is_binned = np.ones(n_columns, dtype=np.bool_)
    block = _StageBlock(
        rows=np.empty(block_size, dtype=np.int64),
        codes=np.empty((n_columns, block_size + GAP), dtype=np.uint16),
        leaves=np.empty(block_size, dtype=bits.clear.dtype),
        totals=np.empty((n_outputs, block_size), dtype=np.float64),
        largest=np.empty(block_size, dtype=np.float64),
        margins=np.empty(block_size, dtype=np.float64),
        places=np.empty(block_size, dtype=np.int32),
    )
    n_staying = 0
    for begin in range(0, n_rows, block_size):
        n_places = min(block_size, n_rows - begin)
        # The rows, their partial sums and their codes are written into the block.
        _read_block(rows, begin, n_places, scores, block)
        bin_rows(X, block.rows, n_places, bits.columns, is_binned, block.codes)
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
    """Return, for each column, the number of the last tree in `bits` that reads it.

    Returns
    -------
    ndarray of shape (n_columns,), dtype=int64
        0 if no tree reads the column, as if tree 0 were the last one. No tree after
        tree 0 needs its codes.
    """
    last_tree_of_column = np.zeros(len(bits.columns.limit), dtype=np.int64)
    for tree in range(len(bits.outputs)):
        for test in range(bits.test_start[tree], bits.test_start[tree + 1]):
            last_tree_of_column[bits.column[test]] = tree
    return last_tree_of_column


@njit(cache=True, nogil=True)
def _read_block(rows, begin, n_places, scores, block):
    """Read rows and their partial sums into the first `n_places` entries of a block.

    Parameters
    ----------
    rows : ndarray of int64
        Numbers of rows. Those from `begin` to before ``begin + n_places`` are read.

    begin : int
    n_places : int
        Number of places of the block to fill.
    scores : ndarray of shape (n_samples, n_outputs)
        Partial sums of all rows.

    block : _StageBlock
        Changed.
    """
    block_rows = block.rows
    totals = block.totals
    for j in range(n_places):
        row = rows[begin + j]
        block_rows[j] = row
        for output in range(scores.shape[1]):
            totals[output, j] = scores[row, output]


@njit(cache=True, nogil=True)
def _write_undecided(block, n_places, scores, rows, n_staying):
    """Append the rows of a block that have not left to the list `rows`.

    Parameters
    ----------
    block : _StageBlock
    n_places : int
        Number of places of the block that are in use.

    scores : ndarray of shape (n_samples, n_outputs)
        The partial sums of the rows that stay are written into it.

    rows : ndarray of int64
        Its first `n_staying` entries are rows of earlier blocks. The rows of this block
        that stay are written after them.

    n_staying : int
        Number of rows of earlier blocks that stay.

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

    Parameters
    ----------
    block : _StageBlock
        Changed: rows that leave are `_GONE`.

    n_places : int
        Number of places of the block that are in use.

    first_position, bits, thresholds, beta
        As for :func:`walk_stage`.

    last_tree_of_column : ndarray of shape (n_columns,)
        From :func:`_last_trees`.

    results : _Results
        The results of rows that leave are written into it.

    Returns
    -------
    int
        Number of places in use at the end. Rows that have left may be among them.
    """
    # Number of rows that have left since the gaps of the block were closed.
    n_gone = 0
    # Number of tests of these rows that were made after they had left.
    n_wasted_tests = 0
    # Cost of moving one row, in units of one test.
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
        # Closing the gaps moves the rows that stay. It is done when it costs less than
        # what was wasted on rows that have left.
        if n_wasted_tests > (n_places - n_gone) * move_cost:
            n_places = _close_gaps(block, n_places, last_tree_of_column, last_tree)
            n_gone = 0
            n_wasted_tests = 0
    return n_places


@njit(cache=True, nogil=True, inline="always")
def _add_member(block, n_places, bits, member):
    """Add the values of one member's trees to ``block.totals``.

    Parameters
    ----------
    block : _StageBlock
        Its `leaves` are overwritten.

    n_places : int
        Number of places of the block that are in use.

    bits : BitTrees
        The trees of the stage.
    member : int
        Number of a member among those of `bits`.
    """
    for tree in range(bits.member_start[member], bits.member_start[member + 1]):
        tests_of_tree = (bits.test_start[tree], bits.test_start[tree + 1])
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
        first_leaf = bits.leaf_start[tree]
        # The output that the tree adds to, -1 if its leaves have a value for each.
        output = bits.outputs[tree]
        if output >= 0:
            totals = block.totals[output]
            # The leaves have one value, in column 0 of ``bits.values``.
            add_values(bits.values, first_leaf, 0, block.leaves, n_places, totals)
        else:
            # -1: the leaves have a value for each output.
            for output_index in range(len(block.totals)):
                totals = block.totals[output_index]
                add_values(
                    bits.values,
                    first_leaf,
                    output_index,
                    block.leaves,
                    n_places,
                    totals,
                )


@njit(cache=True, nogil=True)
def _let_leave(block, n_places, position, thresholds, beta, results):
    """Write the results of the rows that leave after the member at `position`.

    Parameters
    ----------
    block : _StageBlock
        Its first `n_places` places were evaluated up to `position`. Changed: rows that
        leave are `_GONE`, and their partial sums NaN.

    n_places : int
    position : int
        Position of the last evaluated member in the order.
    thresholds, beta
        As for :func:`walk_rows`.

    results : _Results
        Changed.

    Returns
    -------
    int
        Number of rows that leave.
    """
    is_last = position == thresholds.shape[1] - 1
    low = thresholds[0, position]
    high = thresholds[1, position]
    n_written = _find_leaving(block, n_places, low, high, is_last)
    if n_written == 0:
        return 0
    n_outputs = len(block.totals)
    # For one output, a row that leaves is answered with the second class if its score
    # is above `cut`.
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
    for k in range(n_written):
        place = places[k]
        row = rows[place]
        if row == _GONE:
            # The row has left before: at the last position, `places` contains all rows
            # of the block.
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
    """Write the indices, within the block, of the rows that leave after a member.

    Parameters
    ----------
    block : _StageBlock
        Its `places` are overwritten.

    n_places : int
        Number of places of the block that are in use.

    low, high : float
        Thresholds of the position. With several outputs, margins are compared with
        `high` only: a margin has no lower threshold.

    is_last : bool
        At the last position all places are written, also those of rows that have left
        before.

    Returns
    -------
    int
        Number of places written.
    """
    places = block.places
    if is_last:
        for j in range(n_places):
            places[j] = j
        return n_places
    if low == -np.inf and high == np.inf:
        # No row leaves at this position.
        return 0
    if len(block.totals) == 1:
        return _places_outside(block.totals[0], n_places, low, high, places)
    _compute_margins(block, n_places)
    no_low = -np.inf
    return _places_outside(block.margins, n_places, no_low, high, places)


@njit(cache=True, nogil=True)
def _places_outside(values, n_places, low, high, places):
    """Write the indices of values below `low` or above `high`; return their number.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Only the first `n_places` are read. NaN is not outside of the thresholds.

    n_places : int
    low, high : float
        Thresholds.

    places : ndarray of shape (n,), dtype=int32
        Overwritten.

    Returns
    -------
    int
    """
    # Usually no value is outside. Without a branch, this first loop becomes vector
    # instructions.
    n_outside = np.int32(0)
    for j in range(n_places):
        n_outside += (values[j] < low) | (values[j] > high)
    if n_outside == 0:
        return 0
    n_written = 0
    for j in range(n_places):
        # Each index is written, without a branch. The next index overwrites it if its
        # value is between the thresholds.
        places[n_written] = j
        n_written += (values[j] < low) | (values[j] > high)
    return n_written


@njit(cache=True, nogil=True)
def _compute_margins(block, n_places):
    """Write the margin between the two largest partial sums into `block.margins`.

    Margins of the first `n_places` places are written, and `block.largest` is
    overwritten. The inner loops run over rows, without a branch, so that they become
    vector instructions.
    """
    totals = block.totals
    largest = block.largest
    # Until the last loop, this array contains the second largest sums.
    margins = block.margins
    for j in range(n_places):
        largest[j] = totals[0, j]
        margins[j] = -np.inf
    for output in range(1, len(totals)):
        for j in range(n_places):
            total = totals[output, j]
            # The second largest sum if `total` is not the new largest one.
            second = total if total > margins[j] else margins[j]
            margins[j] = largest[j] if total > largest[j] else second
            largest[j] = total if total > largest[j] else largest[j]
    for j in range(n_places):
        margins[j] = largest[j] - margins[j]


@njit(cache=True, nogil=True)
def _answer_at(totals, place, cut):
    """Return the number of the class that answers row `place` of a block.

    `totals` (n_outputs, n_places) are the sums of the rows of the block. For one
    output, the answer is 1 if the row's sum is above `cut`, and 0 otherwise.
    For several, it is the class with the largest sum. The first class wins ties.
    """
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

    Parameters
    ----------
    block : _StageBlock
        Changed. Its `leaves`, `largest` and `margins` are computed again for each
        member, so that they are not moved.

    n_places : int
        Number of places of the block that are in use.

    last_tree_of_column : ndarray of shape (n_columns,)
        From :func:`_last_trees`.

    tree : int
        Tree that was evaluated last. Codes of a column are not moved if no later tree
        reads the column.

    Returns
    -------
    int
        Number of rows that have not left.
    """
    rows = block.rows
    codes = block.codes
    totals = block.totals
    places = block.places
    n_staying = 0
    for j in range(n_places):
        # Each index is written, without a branch. The next index overwrites it if the
        # row at this index has left.
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
    """Thresholds beyond which 0, 1, ... answers are wrong, and counts of rows beyond.

    Attributes
    ----------
    limits : ndarray of shape (n_errors + 1,)
        Entry `j` is the threshold with `j` wrong answers beyond it: above it in the
        upper tail, below it in the lower one.

    n_beyond : ndarray of shape (n_errors + 1,), dtype=int64
        Number of rows beyond each limit.
    """

    limits: Any
    n_beyond: Any


@njit(cache=True, nogil=True)
def count_decided(
    scores, candidates, undecided, fewest_errors, most_errors, use_lo, use_hi
):
    """Count the rows that each candidate member would decide next.

    A candidate is evaluated on the undecided rows. The thresholds of Algorithm 2 of the
    QWYC paper then decide as many of them as a number of wrong answers allows.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds.

    candidates : ndarray of shape (n_candidates,), dtype=int64
        Members to try.

    undecided : Undecided
        The undecided rows.

    fewest_errors, most_errors : int
        Range of the number of wrong answers that are allowed.

    use_lo, use_hi : bool
        If False, no row leaves below (above).

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=int64
        Number of rows decided, added up over the allowed numbers of wrong answers
        ``fewest_errors, ..., most_errors``.
    """
    n_rows = len(undecided.rows)
    # One limit for each number of wrong answers: 0, 1, ..., most_errors.
    n_limits = most_errors + 1
    # Both arrays are overwritten for each candidate.
    values = np.empty(n_rows, dtype=scores.dtype)
    bad = np.empty(n_rows, dtype=np.bool_)
    # Without `use_hi` the upper tail keeps these values, and without `use_lo` the lower
    # tail does: no row is above inf or below -inf.
    upper = _CandidateTail(
        limits=np.full(n_limits, np.inf, dtype=scores.dtype),
        n_beyond=np.zeros(n_limits, dtype=np.int64),
    )
    lower = _CandidateTail(
        limits=np.full(n_limits, -np.inf, dtype=scores.dtype),
        n_beyond=np.zeros(n_limits, dtype=np.int64),
    )
    n_decided = np.empty(len(candidates), dtype=np.int64)
    for index in range(len(candidates)):
        # Writes into `values` and `bad`.
        _try_candidate(scores[candidates[index]], undecided, values, bad)
        if use_hi:
            _fill_tail(values, bad, upper)
        if use_lo:
            # Leaving below the lower threshold is wrong for the rows that are right
            # above the upper one (`~bad`). The smallest values are the largest negated
            # values.
            _fill_tail(-values, ~bad, lower)
            lower.limits[:] = -lower.limits
        n_decided[index] = _most_decided(
            upper, lower, n_rows, fewest_errors, most_errors
        )
    return n_decided


@njit(cache=True, nogil=True)
def _try_candidate(added, undecided, values, bad):
    """Write sums or margins, and where leaving at the upper threshold is wrong.

    First, the scores of one more member are added to the partial sums.

    Parameters
    ----------
    added : ndarray of shape (n_samples, n_outputs)
        Scores of the member.

    undecided : Undecided
    values : ndarray of shape (n_undecided,)
        Overwritten with the partial sums of the undecided rows (one output), or with
        their margins (several outputs).

    bad : ndarray of shape (n_undecided,), dtype=bool
        Overwritten: True for bad rows, for which leaving above is wrong.
    """
    totals = undecided.totals
    n_outputs = totals.shape[1]
    for index in range(len(values)):
        row = undecided.rows[index]
        largest = totals[index, 0] + added[row, 0]
        # With one output, there is no second largest sum.
        second = added.dtype.type(-np.inf)
        leader = 0
        for output in range(1, n_outputs):
            total = totals[index, output] + added[row, output]
            if total > largest:
                second = largest
                largest = total
                leader = output
            elif total > second:
                second = total
        if n_outputs == 1:
            values[index] = largest
            # For one output, the target is True if leaving above the upper threshold is
            # wrong.
            bad[index] = undecided.target[index] != 0
        else:
            values[index] = largest - second
            # For several outputs, the target is the answer of the full ensemble.
            bad[index] = leader != undecided.target[index]


@njit(cache=True, nogil=True)
def _fill_tail(values, bad, tail):
    """Write thresholds above which 0, 1, ... answers are wrong, and count rows above.

    Parameters
    ----------
    values : ndarray of shape (n_undecided,)
    bad : ndarray of shape (n_undecided,), dtype=bool
        True for rows that are wrong if they leave above.

    tail : _CandidateTail
        Overwritten. Its limits are the largest values of bad rows, in decreasing order.
        Limits beyond the number of bad rows are -inf.
    """
    limits = tail.limits
    limits[:] = -np.inf
    for i in range(len(values)):
        if bad[i] and values[i] > limits[-1]:
            _insert_decreasing(values[i], limits)
    for j in range(len(limits)):
        tail.n_beyond[j] = _n_above(values, limits[j])


@njit(cache=True, nogil=True)
def _insert_decreasing(value, largest):
    """Insert a value into a decreasing array, in place. The last entry is dropped."""
    j = len(largest) - 1
    while j > 0 and largest[j - 1] < value:
        largest[j] = largest[j - 1]
        j -= 1
    largest[j] = value


@njit(cache=True, nogil=True)
def _n_above(values, limit):
    """Return the number of values above a limit."""
    # Without a branch, the loop becomes vector instructions.
    count = np.int32(0)
    for i in range(len(values)):
        count += values[i] > limit
    return count


@njit(cache=True, nogil=True)
def _most_decided(upper, lower, n_rows, fewest_errors, most_errors):
    """Return how many rows the best thresholds decide, summed over numbers of errors.

    Parameters
    ----------
    upper, lower : _CandidateTail
        The tails of rows that leave above and below. Each number of errors can be
        divided between the tails in several ways. The way that decides most rows is
        taken.

    n_rows : int
        Number of undecided rows.

    fewest_errors, most_errors : int
        As for :func:`count_decided`.

    Returns
    -------
    int
    """
    n_decided = np.int64(0)
    for n_errors in range(fewest_errors, most_errors + 1):
        most = np.int64(0)
        for errors_above in range(n_errors + 1):
            errors_below = n_errors - errors_above
            if upper.limits[errors_above] < lower.limits[errors_below]:
                # The tails meet: a threshold between the limits decides every row.
                n_beyond = n_rows
            else:
                n_beyond = upper.n_beyond[errors_above] + lower.n_beyond[errors_below]
            most = max(most, n_beyond)
        n_decided += most
    return n_decided


# Thresholds ---------------------------------------------------------------------------


class Cuts(NamedTuple):
    """The two thresholds of a position, as indices into the rows sorted by value.

    Attributes
    ----------
    n_below : int
        The first `n_below` rows leave below.

    first_above : int
        The rows from index `first_above` on leave above. The number of rows if none
        does.
    """

    n_below: int
    first_above: int


@njit(cache=True, nogil=True)
def best_cuts(values, rows, bad, to_go, prices, least_saving, use_lo, use_hi):
    """Return the thresholds of one position at which leaving rows save most cost.

    A row that leaves saves its cost after this position. It costs the price of its
    error.

    Parameters
    ----------
    values : ndarray of shape (n_reaching,)
        Partial sums, or margins, of the rows that reach the position, rising.

    rows : ndarray of shape (n_reaching,), dtype=int64
        Positions of these rows among the samples, in order of `values`.

    bad : ndarray of shape (n_samples,), dtype=float64
        Chance that leaving above is wrong. Leaving below is wrong otherwise.

    to_go : ndarray of shape (n_samples,), dtype=float64
        Cost of each row after this position if it stays, errors included.

    prices : ndarray of shape (2, n_samples), dtype=float64
        Price of a wrong answer to each row, in units of cost. ``prices[0]`` is for
        leaving above, ``prices[1]`` for leaving below.

    least_saving : float
        Cost that thresholds must save more than others to replace them. It is larger
        than the rounding of sums of costs.

    use_lo, use_hi : bool
        If False, no row leaves below (above).

    Returns
    -------
    Cuts
    """
    n_reaching = len(values)
    saved_above = _saved_above(rows, bad, to_go, prices[0])
    # Cost saved if the first `j` rows leave below the lower threshold.
    saved_below = 0.0
    # Largest value of `saved_below` up to `j`, and the number of rows that leave.
    most_saved_below = 0.0
    best_n_below = 0
    # Cost saved by the best pair of thresholds so far. At first, no row leaves.
    most_saved = 0.0
    n_below = 0
    first_above = n_reaching
    # The upper threshold is just before row `j`. The lower threshold is not after it.
    for j in range(n_reaching + 1):
        if j > 0:
            # Row `j - 1` is now one of the rows that may leave below the lower
            # threshold.
            sample = rows[j - 1]
            wrong_below = 1.0 - bad[sample]
            saved_below += to_go[sample] - prices[1, sample] * wrong_below
        # No threshold lies between equal values.
        if 0 < j < n_reaching and values[j - 1] == values[j]:
            continue
        if use_lo and saved_below > most_saved_below:
            most_saved_below = saved_below
            best_n_below = j
        saved = most_saved_below
        if use_hi:
            saved += saved_above[j]
        if saved > most_saved + least_saving:
            most_saved = saved
            n_below = best_n_below
            if use_hi:
                first_above = j
    return Cuts(n_below, first_above)


@njit(cache=True, nogil=True)
def _saved_above(rows, bad, to_go, prices):
    """Return, for each `j`, the cost saved if rows ``j:`` exceed the upper threshold.

    Parameters are those of :func:`best_cuts`, with the `prices` of leaving above, of
    shape (n_samples,).

    Returns
    -------
    ndarray of shape (n_reaching + 1,), dtype=float64
        The last entry is 0: no row leaves.
    """
    n_reaching = len(rows)
    saved = np.zeros(n_reaching + 1)
    for j in range(n_reaching - 1, -1, -1):
        sample = rows[j]
        saved[j] = saved[j + 1] + to_go[sample] - prices[sample] * bad[sample]
    return saved


@njit(cache=True, nogil=True)
def settle(values, bad, lo, hi, prices, to_go):
    """Set `to_go` of rows that leave at a position to the expected price of an error.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Partial sums, or margins, at the position.

    bad : ndarray of shape (n_samples,), dtype=float64
        Chance that leaving above is wrong. Leaving below is wrong otherwise.

    lo, hi : float
        Thresholds of the position.

    prices : ndarray of shape (2, n_samples), dtype=float64
        Price of a wrong answer of each row, in units of cost. ``prices[0]`` is for
        leaving above, ``prices[1]`` for leaving below.

    to_go : ndarray of shape (n_samples,), dtype=float64
        Cost of each row after the position. Changed in place for rows below `lo` or
        above `hi`. The others stay in the ensemble and keep their cost.
    """
    for i in range(len(values)):
        if values[i] > hi:
            to_go[i] = prices[0, i] * bad[i]
        elif values[i] < lo:
            to_go[i] = prices[1, i] * (1.0 - bad[i])


@njit(cache=True, nogil=True)
def leave_at(values, lo, hi):
    """Return the position at which each row leaves, and on which side.

    Parameters
    ----------
    values : ndarray of shape (n_members, n_samples)
        Partial sums, or margins, by position.

    lo, hi : ndarray of shape (n_members,)
        Thresholds by position. The thresholds of the last position are not used.

    Returns
    -------
    exit_position : ndarray of shape (n_samples,), dtype=int64
        Position of the last member evaluated.

    side : ndarray of shape (n_samples,), dtype=int8
        1 if a row leaves above, -1 below, 0 if it never leaves early.
    """
    n_members, n_samples = values.shape
    exit_position = np.full(n_samples, n_members - 1)
    side = np.zeros(n_samples, dtype=np.int8)
    # The first `n_rows` entries are the rows that have not left.
    rows = np.arange(n_samples)
    n_rows = n_samples
    # No row leaves early at the last position.
    for position in range(n_members - 1):
        n_staying = 0
        for j in range(n_rows):
            sample = rows[j]
            if values[position, sample] > hi[position]:
                exit_position[sample] = position
                side[sample] = 1
            elif values[position, sample] < lo[position]:
                exit_position[sample] = position
                side[sample] = -1
            else:
                rows[n_staying] = sample
                n_staying += 1
        n_rows = n_staying
        if n_rows == 0:
            break
    return exit_position, side
