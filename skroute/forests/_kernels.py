"""Compiled walks from roots to leaves. Imported on first use.

`trees` is always the fields of a :class:`skroute.forests._trees.Trees` as a plain
tuple. For a tuple with names, the call itself takes longer than the walk of one row.

A pair is a row and a tree that it goes down. A node is special if it tests categories
or takes zero as missing.
"""

import math

import numpy as np
from numba import njit

from skroute.forests._bitvector_kernels import GAP, bin_rows
from skroute.forests._trees import (
    CATEGORICAL,
    FEATURE_MASK,
    MISSING_RIGHT,
    ZERO,
    ZERO_MISSING,
)

# Position of the bit `MISSING_RIGHT`.
_MISSING_RIGHT_BIT = MISSING_RIGHT.bit_length() - 1
# Bytes of the rows that are walked together. They stay in the processor's first cache.
_BLOCK_BYTES = 1 << 16
# Least and largest number of rows that are walked together.
_LEAST_BLOCK = 256
_LARGEST_BLOCK = 2048
# Number of pairs of a row and a tree that are walked together if there are few rows. A
# few rows go down several trees at the same time.
_FEW_PAIRS = 512
# Number of levels that all pairs go down before pairs at a leaf are dropped for the
# first time.
_FIRST_LEVELS = 8
# Number of levels after which pairs at a leaf are dropped again.
_NEXT_LEVELS = 4


@njit(cache=True, nogil=True, inline="always")
def step(X, row, nodes, node_number):
    """Return the child that a row goes to from a numerical node.

    A leaf is its own child, and each row goes left there: it stays at the leaf.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    row : int
        Row of `X`.

    nodes : ndarray of NODE
    node_number : int
        Position of a node among `nodes`.

    Returns
    -------
    uint64
        Position of the child.
    """
    node = nodes[node_number]
    feature = np.uint32(node["feature"])
    x = X[row, np.uint64(feature & FEATURE_MASK)]
    # NaN is not equal to itself.
    is_missing = x != x
    # 1 if the row goes right, else 0. The flag is a bit, which is shifted to bit 0. No
    # branch depends on the data.
    right = (x > node["threshold"]) | (is_missing & (feature >> _MISSING_RIGHT_BIT) & 1)
    # The right child stands behind the left one.
    return np.uint64(np.uint32(node["child"])) + np.uint64(right)


@njit(cache=True, nogil=True)
def step_special(X, row, nodes, node_number, cat_words, cat_start):
    """Return the child that a row goes to, as `step` does, from a node of any kind.

    At a categorical node, the threshold is the number of a bit set. A category in the
    set goes left. A number that is no category, or one that the set is too short for,
    goes right. At a node with the flag `ZERO_MISSING`, zero goes where NaN goes.

    Parameters
    ----------
    X, row, nodes, node_number
        As for :func:`step`.

    cat_words, cat_start : ndarray
        Bit sets, as in :class:`~skroute.forests._trees.Trees`.

    Returns
    -------
    uint64
        Position of the child.
    """
    node = nodes[node_number]
    feature = np.uint32(node["feature"])
    x = X[row, np.uint64(feature & FEATURE_MASK)]
    right = x > node["threshold"]
    # NaN is not equal to itself.
    if x != x or ((feature & ZERO_MISSING) != 0 and abs(x) <= ZERO):
        right = ((feature >> _MISSING_RIGHT_BIT) & 1) != 0
    elif feature & CATEGORICAL:
        set_number = int(node["threshold"])
        first_word = cat_start[set_number]
        n_codes = 32 * (cat_start[set_number + 1] - first_word)
        # A category beyond the set goes right. So does a number that is no category.
        right = True
        if -1 < x < n_codes:
            # Truncation as in C: a number between -1 and 0 is category 0. A word has
            # 32 bits.
            code = np.int64(x)
            word = np.int64(cat_words[first_word + code // 32])
            # The bit of the category is 0: it is not in the set.
            right = ((word >> (code % 32)) & 1) == 0
    # The right child stands behind the left one.
    return np.uint64(np.uint32(node["child"])) + np.uint64(right)


@njit(cache=True, nogil=True, inline="always")
def _take_eight(array, positions):
    """Return the elements of an array at eight positions, as a tuple."""
    return (
        array[positions[0]],
        array[positions[1]],
        array[positions[2]],
        array[positions[3]],
        array[positions[4]],
        array[positions[5]],
        array[positions[6]],
        array[positions[7]],
    )


@njit(cache=True, nogil=True, inline="always")
def _put_eight(array, positions, elements):
    """Write eight elements to an array at eight positions."""
    array[positions[0]] = elements[0]
    array[positions[1]] = elements[1]
    array[positions[2]] = elements[2]
    array[positions[3]] = elements[3]
    array[positions[4]] = elements[4]
    array[positions[5]] = elements[5]
    array[positions[6]] = elements[6]
    array[positions[7]] = elements[7]


@njit(cache=True, nogil=True, inline="always")
def _step_eight(X, rows, nodes, node_numbers):
    """Return the children that eight rows go to, each from its node.

    `rows` and `node_numbers` are tuples of eight numbers, and so is the result.
    """
    return (
        step(X, rows[0], nodes, node_numbers[0]),
        step(X, rows[1], nodes, node_numbers[1]),
        step(X, rows[2], nodes, node_numbers[2]),
        step(X, rows[3], nodes, node_numbers[3]),
        step(X, rows[4], nodes, node_numbers[4]),
        step(X, rows[5], nodes, node_numbers[5]),
        step(X, rows[6], nodes, node_numbers[6]),
        step(X, rows[7], nodes, node_numbers[7]),
    )


@njit(cache=True, nogil=True)
def _go_down(X, row_of_pair, node_of_pair, pairs, n_going, nodes, n_levels):
    """Move pairs of a row and a tree down some levels of the tree, in place.

    Eight pairs go down together, so that their loads from memory overlap.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    row_of_pair : ndarray of shape (n_pairs,), dtype=uint64
        Row of `X` of each pair.

    node_of_pair : ndarray of shape (n_pairs,), dtype=uint64
        Node that each pair is at. Changed.

    pairs : ndarray of uint64
        Positions of pairs in the two arrays above.

    n_going : int
        Only the first `n_going` of `pairs` go down.

    nodes : ndarray of NODE
        The nodes of all trees.

    n_levels : int
    """
    n_in_eights = n_going // 8 * 8
    for i in range(0, n_in_eights, 8):
        eight = _take_eight(pairs, (i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7))
        rows = _take_eight(row_of_pair, eight)
        node_numbers = _take_eight(node_of_pair, eight)
        for _ in range(n_levels):
            node_numbers = _step_eight(X, rows, nodes, node_numbers)
        _put_eight(node_of_pair, eight, node_numbers)
    # At most seven pairs are left.
    for i in range(n_in_eights, n_going):
        pair = pairs[i]
        for _ in range(n_levels):
            node_of_pair[pair] = step(X, row_of_pair[pair], nodes, node_of_pair[pair])


@njit(cache=True, nogil=True, inline="always")
def _drop_pairs_at_leaves(pairs, n_going, node_of_pair, nodes):
    """Move the pairs whose row is not at a leaf to the front, and return their number.

    Parameters
    ----------
    pairs : ndarray of uint64
        Numbers of pairs of a row and a tree. Changed.

    n_going : int
        Only the first `n_going` entries of `pairs` are used.

    node_of_pair : ndarray of uint64
        Node that each pair is at.

    nodes : ndarray of NODE

    Returns
    -------
    int
    """
    n_kept = 0
    for i in range(n_going):
        pair = pairs[i]
        # Each pair is written, without a branch. A pair at a leaf is overwritten by the
        # next one.
        pairs[n_kept] = pair
        node = node_of_pair[pair]
        # A leaf is its own child. Otherwise, the comparison adds 1.
        n_kept += np.uint64(np.uint32(nodes[node]["child"])) != node
    return n_kept


@njit(cache=True, nogil=True, inline="always")
def _go_to_leaves(X, row_of_pair, node_of_pair, pairs, n_pairs, nodes, depth):
    """Move all pairs of a row and a tree to a leaf, through numerical nodes only.

    No node takes zero as missing. Pairs are changed in place.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    row_of_pair : ndarray of shape (most_pairs,), dtype=uint64
        Row of `X` of each pair.

    node_of_pair : ndarray of shape (most_pairs,), dtype=uint64
        The root of each pair's tree. Changed: the leaf of the row.

    pairs : ndarray of shape (most_pairs,), dtype=uint64
        The numbers of all pairs. Overwritten.

    n_pairs : int
        Number of pairs, at most `most_pairs`.

    nodes : ndarray of NODE
    depth : int
        Depth of the deepest tree.
    """
    n_going = n_pairs
    levels_left = depth
    n_levels = min(_FIRST_LEVELS, levels_left)
    while n_going > 0 and n_levels > 0:
        _go_down(X, row_of_pair, node_of_pair, pairs, n_going, nodes, n_levels)
        levels_left -= n_levels
        n_levels = min(_NEXT_LEVELS, levels_left)
        if n_levels > 0:
            # In an unbalanced tree most rows are at a leaf early.
            n_going = _drop_pairs_at_leaves(pairs, n_going, node_of_pair, nodes)


@njit(cache=True, nogil=True, inline="always")
def _go_to_leaves_special(
    X, row_of_pair, node_of_pair, n_pairs, nodes, cat_words, cat_start
):
    """Move pairs of a row and a tree to their leaves, through nodes of any kind.

    Pairs are moved one by one.

    Parameters are those of :func:`_go_to_leaves` and :func:`step_special`.
    `node_of_pair` is changed.
    """
    for j in range(n_pairs):
        row = row_of_pair[j]
        node = node_of_pair[j]
        child = step_special(X, row, nodes, node, cat_words, cat_start)
        # A leaf is its own child.
        while child != node:
            node = child
            child = step_special(X, row, nodes, node, cat_words, cat_start)
        node_of_pair[j] = node


@njit(cache=True, nogil=True)
def leaves(X, rows, n_rows, trees, first, last, scratch, out):
    """Write the leaves of rows in the trees ``first, ..., last - 1`` into `out`.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    rows : ndarray of int64 or uint64
        Rows of `X`, at least `n_rows`.

    n_rows : int
        Only the first `n_rows` rows of `rows` are walked.

    trees : tuple
        The fields of a :class:`~skroute.forests._trees.Trees`.

    first, last : int
        The first tree, and the one behind the last.

    scratch : ndarray of shape (2, most_pairs), dtype=uint64
        Overwritten. `most_pairs` is at least ``n_rows * (last - first)``.

    out : ndarray of shape (most_pairs,), dtype=uint64
        The leaves, as positions among all nodes, are written here: those of all rows in
        the first tree, then those in the next tree, and so on.
    """
    # In the order of the fields of `Trees`.
    nodes, _, roots, depths, _, _, cat_words, cat_start, special = trees
    # `out` contains the node of each pair until the pair is at a leaf.
    row_of_pair = scratch[0]
    # Numbers of the pairs that are not at a leaf.
    pairs = scratch[1]
    n_pairs = 0
    deepest = np.int64(0)
    for t in range(first, last):
        deepest = max(deepest, np.int64(depths[t]))
        for j in range(n_rows):
            row_of_pair[n_pairs] = rows[j]
            pairs[n_pairs] = n_pairs
            out[n_pairs] = roots[t]
            n_pairs += 1
    # `special`: some node of some tree tests categories or takes zero as missing. All
    # pairs then take the slower walk.
    if special:
        _go_to_leaves_special(X, row_of_pair, out, n_pairs, nodes, cat_words, cat_start)
    else:
        _go_to_leaves(X, row_of_pair, out, pairs, n_pairs, nodes, deepest)


@njit(cache=True, nogil=True, inline="always")
def _add_values_at(
    values, leaf_of_pair, first_pair, n_rows, output, column_of_output, sums
):
    """Add the values of the leaves of one tree to the sums of `n_rows` rows.

    Parameters
    ----------
    values : ndarray of shape (n_nodes, width)
        Values of the nodes of all trees. `width` is 1, or the number of outputs.

    leaf_of_pair : ndarray of uint64
        Leaves of pairs of a row and a tree, as positions among all nodes.

    first_pair : int
        The pair of the first row and this tree. The pairs of the next rows follow.

    n_rows : int
        Number of rows of the block.

    output : int
        Output of the tree, `ALL_OUTPUTS` if its leaves have a value for each.

    column_of_output : ndarray of shape (n_outputs,), dtype=int64
        Column of `sums` that each output adds to, -1 for none.

    sums : ndarray of shape (n_rows, n_columns)
        Changed.
    """
    # One loop for trees that add to one output and for trees that add to all outputs.
    # With a loop for each kind, few rows take twice as long.
    if output >= 0:
        # Leaves have one value, in column 0 of `values`.
        first_output = output
        n_values = 1
    else:
        # The leaves have a value for each output.
        first_output = 0
        n_values = len(column_of_output)
    for k in range(n_values):
        column = column_of_output[first_output + k]
        # -1: this output has no column.
        if column >= 0:
            for j in range(n_rows):
                sums[j, column] += values[leaf_of_pair[first_pair + j], k]


@njit(cache=True, nogil=True)
def add_leaves(X, start, stop, trees, first, last, column_of_output, out):
    """Add the leaf values of the members ``first:last`` to ``out[start:stop]``.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
        The first row of `X` and of `out`, and the one behind the last.

    trees : tuple
        The fields of a :class:`~skroute.forests._trees.Trees`.

    first, last : int
        The first member, and the one behind the last.

    column_of_output : ndarray of shape (n_outputs,), dtype=int64
        Column of `out` that each output adds to, -1 for none.

    out : ndarray of shape (n_samples, n_columns)
        Sums of the rows. Changed in place: each addition is rounded to its dtype.
    """
    # In the order of the fields of `Trees`.
    _, values, _, _, outputs, member_start, _, _, _ = trees
    first_tree = member_start[first]
    last_tree = member_start[last]
    # Number of rows that are walked together.
    block = max(_BLOCK_BYTES // (X.itemsize * X.shape[1]), _LEAST_BLOCK)
    # Without rows it is 1, because the step of a loop must not be 0.
    block = max(min(block, _LARGEST_BLOCK, stop - start), 1)
    # Few rows go down many trees at the same time. Many rows go down one tree after the
    # other.
    n_together = max(_FEW_PAIRS // block, 1)
    rows = np.empty(block, dtype=np.uint64)
    scratch = np.empty((2, block * n_together), dtype=np.uint64)
    leaf_of_pair = np.empty(block * n_together, dtype=np.uint64)
    for begin in range(start, stop, block):
        n_rows = min(block, stop - begin)
        # A view: the values of leaves are added to `out`.
        sums = out[begin : begin + n_rows]
        for j in range(n_rows):
            rows[j] = begin + j
        for t in range(first_tree, last_tree, n_together):
            # A tree alone is not walked if it adds to one output (not `ALL_OUTPUTS`,
            # which is -1), and this output has no column (-1). If several trees are
            # walked together, `_add_values_at` passes over such trees.
            if n_together == 1 and outputs[t] >= 0 and column_of_output[outputs[t]] < 0:
                continue
            end = min(t + n_together, last_tree)
            leaves(X, rows, n_rows, trees, t, end, scratch, leaf_of_pair)
            for i in range(t, end):
                first_pair = (i - t) * n_rows
                _add_values_at(
                    values,
                    leaf_of_pair,
                    first_pair,
                    n_rows,
                    outputs[i],
                    column_of_output,
                    sums,
                )


@njit(cache=True, nogil=True)
def add_coded(X, start, stop, coded, first, last, column_of_output, out):
    """Bin the rows, then add the leaf values of members as `add_leaves` does.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    coded : CodedTrees
        The columns to bin to, and trees that test the codes.

    start, stop, first, last, column_of_output, out
        As for :func:`add_leaves`.
    """
    n_columns = len(coded.columns.feature)
    # All columns are binned.
    used = np.ones(n_columns, dtype=np.bool_)
    block = min(_LARGEST_BLOCK, stop - start)
    codes_by_column = np.empty((n_columns, block + GAP), dtype=np.uint16)
    for begin in range(start, stop, _LARGEST_BLOCK):
        n_rows = min(_LARGEST_BLOCK, stop - begin)
        rows = np.arange(begin, begin + n_rows)
        bin_rows(X, rows, n_rows, coded.columns, used, codes_by_column)
        # The codes of each row, one row after the other in memory.
        codes = codes_by_column[:, :n_rows].T.copy()
        # The codes are the rows of these trees, from row 0 on. The sums are added to a
        # view of `out`.
        add_leaves(
            codes,
            0,
            n_rows,
            coded.trees,
            first,
            last,
            column_of_output,
            out[begin : begin + n_rows],
        )


@njit(cache=True, nogil=True)
def exponential(x):
    """Return the exponential of each number, as the C library computes it.

    The boosting libraries use this function. That of numpy rounds differently.
    """
    out = np.empty_like(x)
    for i, value in enumerate(x.flat):
        out.flat[i] = math.exp(value)
    return out
