"""The second layout of trees: bit vectors, for small and for oblivious trees.

See Lucchese et al., "QuickScorer", SIGIR 2015, and its vectorised forms.

A small tree has at most 64 leaves, which are numbered from left to right. A test is an
inner node. For a row that goes right, it clears the bits of the leaves under its left
child. After all tests, the lowest bit that is still set belongs to the row's leaf. No
branch depends on the data, so rows are evaluated together.

A tree is oblivious if all nodes of a level have the same split (CatBoost). It has one
test for each level. The number of a leaf has one bit for each test, which is set if the
row goes right. Evaluation starts with all bits set, and a test clears its bit: the
result is the bitwise complement of the leaf's number. The type of `clear` is then
signed.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.forests._trees import (
    CATEGORICAL,
    FEATURE_MASK,
    MISSING_RIGHT,
    ZERO_MISSING,
)

# Code of a missing value that goes right, above all other codes.
MISSING_CODE = 65535
# Largest number of leaves of a tree that is not oblivious: each leaf has one bit of a
# 64-bit number.
MOST_LEAVES = 64
# With fewer rows than this, a walk from the root of each tree to a leaf is faster than
# bit vectors (measured).
FEWEST_ROWS = 48
# Entry of `Columns.limit` for a column of numbers. The entry of a column of categories
# is a code, which is not negative.
NO_LIMIT = -1
# Depth of an oblivious tree from which the number of a leaf does not fit into 16 bits
# with a sign.
_LEAST_DEPTH_OF_32_BITS = 15
# The number 2 has bit 1 alone. In the word that is appended to a bit set of categories,
# this bit is set if missing values go left.
_MISSING_LEFT_BIT = 2
# First word of all bit sets. It is not used: compiled code gets at least one word, also
# if there are no categories.
_UNUSED_WORD = np.zeros(1, np.uint32)
# The bit sets of a column of numbers: none.
_NO_WORDS = np.empty(0, np.uint32)
# Added to the number of the feature in the key of a column of categories, so that such
# columns are sorted behind those of numbers.
_CATEGORIES_LAST = np.int64(FEATURE_MASK + 1)
# Number of bits by which the number of the feature is shifted in the key of a column.
# The bits below it contain the flags of the nodes.
_FEATURE_SHIFT = 32


class Columns(NamedTuple):
    """The columns to which rows are binned: each cell becomes a 16-bit code.

    Nodes that split on the same feature and send missing values to different sides have
    different columns. The code alone then decides a test.

    Attributes
    ----------
    feature : ndarray of shape (n_columns,), dtype=int32
        Feature of each column.

    cuts : ndarray, dtype=float32 or float64
        Sorted thresholds of all columns, in the type of the rows. The code is the
        number of cuts below the value.

    start : ndarray of shape (n_columns + 1,), dtype=int32
        Cuts of column `c` are ``cuts[start[c]:start[c + 1]]``.

    missing : ndarray of shape (n_columns,), dtype=uint16
        Code of a missing value.

    zero_missing : ndarray of shape (n_columns,), dtype=bool
        True if zero counts as missing.

    limit : ndarray of shape (n_columns,), dtype=int32
        For a column of categories, the first code that is in no set. All larger
        categories get this code, too. `NO_LIMIT` for columns of numbers, which come
        first.
    """

    feature: Any
    cuts: Any
    start: Any
    missing: Any
    zero_missing: Any
    limit: Any


class BinnedTests(NamedTuple):
    """The tests of inner nodes on binned rows.

    Attributes
    ----------
    columns : Columns
        The columns to which rows are binned.

    column : ndarray of shape (n_tests,), dtype=int32
        Column that each test reads.

    cut : ndarray of shape (n_tests,), dtype=int32
        For a column of numbers, the largest code that goes left. For a column of
        categories, the position in `words` of the test's bit set. Members of the set go
        left.

    words : ndarray, dtype=uint32
        Bit sets of categories, one after the other. The first word is not used.
    """

    columns: Columns
    column: np.ndarray
    cut: np.ndarray
    words: np.ndarray


class _ColumnTests(NamedTuple):
    """The tests of inner nodes on one column of codes.

    Attributes
    ----------
    cut : ndarray of shape (n_tests,), dtype=int
        As in :class:`BinnedTests`.

    cuts : ndarray
        Sorted thresholds, in the type of the rows. Empty for categories.

    words : ndarray, dtype=uint32
        Bit sets of the tests. Empty for numbers.

    limit : int
        As in :class:`Columns`.
    """

    cut: np.ndarray
    cuts: np.ndarray
    words: np.ndarray
    limit: int


class BitTrees(NamedTuple):
    """Trees as tests on binned rows, for the kernels of `_bitvector_kernels`.

    Attributes
    ----------
    columns, column, cut, words
        As in :class:`BinnedTests`. Tests are ordered by trees.

    clear : ndarray of shape (n_tests,), dtype=uint32, uint64, int16 or int32
        Bits of the leaves that a row which goes right can still reach. The type is
        signed if all trees are oblivious: the bits are then those of the complement of
        a leaf's number.

    test_start, leaf_start : ndarray of shape (n_trees + 1,), dtype=int32
        Tests of tree `t` are ``test_start[t]:test_start[t + 1]``, and its leaves are
        ``leaf_start[t]:leaf_start[t + 1]``.

    values : ndarray of shape (n_leaves, width), dtype=float64
        Values that leaves add.

    outputs, member_start : ndarray, dtype=int32
        As in :class:`~skroute.forests._trees.Trees`.
    """

    columns: Columns
    column: Any
    cut: Any
    words: Any
    clear: Any
    test_start: Any
    leaf_start: Any
    values: Any
    outputs: Any
    member_start: Any


class _ClearingNodes(NamedTuple):
    """Nodes that become tests, and the leaves that a row can reach after going right.

    Attributes
    ----------
    nodes : ndarray of shape (n_tests,), dtype=int
        Positions of the nodes, tree after tree.

    clear : ndarray of shape (n_tests,)
        As in :class:`BitTrees`.
    """

    nodes: np.ndarray
    clear: np.ndarray


class _LeafNumbers(NamedTuple):
    """Numbers that count the leaves of each tree from left to right.

    Attributes
    ----------
    first : ndarray of shape (n_nodes,), dtype=uint64
        Number of the first leaf under each node.

    n_left : ndarray of shape (n_nodes,), dtype=uint64
        Number of leaves under the left child of each node. Not used at leaves.
    """

    first: np.ndarray
    n_left: np.ndarray


def bit_trees(trees, dtype):
    """Return trees in the layout of bit vectors, or None if they do not fit.

    Parameters
    ----------
    trees : Trees
    dtype : str
        Type of the rows: ``"float32"`` or ``"float64"``.

    Returns
    -------
    BitTrees or None
        None if a tree has more than 64 leaves, unless all trees are oblivious. None if
        a feature has more than 65,534 cuts or categories. None if a node tests
        categories and takes zero as missing.
    """
    n_trees = len(trees.roots)
    is_leaf = trees.is_leaf
    tree_of_node = trees.tree_of_node
    # Number of leaves of each tree, (n_trees,).
    n_leaves = np.bincount(tree_of_node[is_leaf], minlength=n_trees)
    most_leaves = n_leaves.max()
    leaf_numbers = _number_leaves(trees)
    # None unless all nodes of a level have the same test in each tree (oblivious).
    level_of_node = _levels_of_oblivious(trees)
    if level_of_node is not None:
        clearing = _tests_of_levels(trees, level_of_node)
    elif most_leaves <= MOST_LEAVES:
        clearing = _tests_of_nodes(trees, leaf_numbers, most_leaves=most_leaves)
    else:
        return None
    tests = find_tests(trees.nodes[clearing.nodes], trees, dtype=np.dtype(dtype))
    if tests is None:
        return None
    n_tests = np.bincount(tree_of_node[clearing.nodes], minlength=n_trees)
    leaf_start = np.append(0, np.cumsum(n_leaves))
    test_start = np.append(0, np.cumsum(n_tests))
    leaves = np.flatnonzero(is_leaf)
    # Leaves are stored tree after tree, in the order of their numbers.
    first_of_tree = leaf_start[tree_of_node[leaves]]
    # A leaf is the first leaf under itself.
    number_in_tree = leaf_numbers.first[leaves].astype(np.int64)
    new_position = first_of_tree + number_in_tree
    values = np.empty((len(leaves), trees.values.shape[1]))
    values[new_position] = trees.values[leaves]
    return BitTrees(
        columns=tests.columns,
        column=tests.column,
        cut=tests.cut,
        words=tests.words,
        clear=clearing.clear,
        test_start=test_start.astype(np.int32),
        leaf_start=leaf_start.astype(np.int32),
        values=values,
        outputs=trees.outputs,
        member_start=trees.member_start,
    )


def _tests_of_levels(trees, level_of_node):
    """Return one test for each level of each tree, if all trees are oblivious.

    Parameters
    ----------
    trees : Trees
    level_of_node : ndarray of shape (n_nodes,), dtype=int
        From `_levels_of_oblivious`.

    Returns
    -------
    _ClearingNodes
    """
    tree_of_node = trees.tree_of_node
    number_in_tree = np.arange(len(trees.nodes)) - trees.roots[tree_of_node]
    # The nodes of a level follow each other: level `k` starts with number 2**k - 1.
    first_of_level = (1 << level_of_node) - 1
    starts_level = number_in_tree == first_of_level
    nodes = np.flatnonzero(~trees.is_leaf & starts_level)
    # The test at the root is the highest bit of the number of a leaf.
    bit = trees.depths[tree_of_node[nodes]] - level_of_node[nodes] - 1
    dtype = np.int16
    if trees.depths.max() >= _LEAST_DEPTH_OF_32_BITS:
        dtype = np.int32
    # If a row goes right, this bit of its leaf's number is set. It is cleared in the
    # complement of the number.
    test_bit = np.left_shift(1, bit).astype(dtype)
    return _ClearingNodes(nodes, clear=~test_bit)


def _tests_of_nodes(trees, leaf_numbers, most_leaves):
    """Return one test for each inner node of trees with few leaves.

    Parameters
    ----------
    trees : Trees
    leaf_numbers : _LeafNumbers
    most_leaves : int
        Number of leaves of the largest tree, at most 64.

    Returns
    -------
    _ClearingNodes
    """
    nodes = np.flatnonzero(~trees.is_leaf)
    n_left = leaf_numbers.n_left[nodes]
    # As many low bits as there are leaves under the left child. They are then moved to
    # the bits of these leaves.
    low_bits = np.left_shift(np.uint64(1), n_left) - np.uint64(1)
    bits_of_left = low_bits << leaf_numbers.first[nodes]
    dtype = np.uint32 if most_leaves <= 32 else np.uint64
    return _ClearingNodes(nodes, clear=(~bits_of_left).astype(dtype))


def _levels_of_oblivious(trees):
    """Return the level of each node, or None unless each level has a single test.

    Parameters
    ----------
    trees : Trees

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=int, or None
        0 for roots. None also if no tree has more than one split. The layout of trees
        that are not oblivious is as fast for such trees.
    """
    nodes = trees.nodes
    sizes = trees.tree_sizes
    # A complete tree has 2**k - 1 nodes: this number and the next one have no common
    # bit. Trees with one split, of 3 nodes, are as fast in the layout of trees that are
    # not oblivious.
    is_complete = (sizes & (sizes + 1)) == 0
    if not is_complete.all() or sizes.max() <= 3:
        return None
    root_of_node = trees.roots[trees.tree_of_node]
    number_in_tree = np.arange(len(nodes)) - root_of_node
    # Complete trees are laid out level by level: the level is floor(log2(number + 1)).
    # The exponents that `frexp` returns are larger by one.
    _, exponent = np.frexp((number_in_tree + 1).astype(np.float64))
    level = exponent - 1
    first_of_level = root_of_node + (1 << level) - 1
    is_leaf = trees.is_leaf
    has_same_feature = nodes["feature"] == nodes["feature"][first_of_level]
    has_same_threshold = nodes["threshold"] == nodes["threshold"][first_of_level]
    is_same_kind = is_leaf == is_leaf[first_of_level]
    # Leaves have no threshold to compare.
    is_same = has_same_feature & is_same_kind & (has_same_threshold | is_leaf)
    if not is_same.all():
        return None
    return level


def _number_leaves(trees):
    """Return numbers of the leaves of each tree, counted from left to right.

    Parameters
    ----------
    trees : Trees

    Returns
    -------
    _LeafNumbers
    """
    child = trees.nodes["child"]
    is_leaf = trees.is_leaf
    # The inner nodes of each level, of all trees together. The right child of a node
    # stands behind its left child, `child`.
    inner_levels = []
    level_nodes = trees.roots.astype(np.int64)
    while len(level_nodes):
        inner = level_nodes[~is_leaf[level_nodes]]
        inner_levels.append(inner)
        level_nodes = np.concatenate([child[inner], child[inner] + 1])
    # Number of leaves under each node, from the deepest level up. A leaf counts itself.
    n_leaves = is_leaf.astype(np.uint64)
    for inner in reversed(inner_levels):
        n_leaves[inner] = n_leaves[child[inner]] + n_leaves[child[inner] + 1]
    # Number of the first leaf under each node, from the roots down.
    first = np.zeros(len(child), dtype=np.uint64)
    for inner in inner_levels:
        first[child[inner]] = first[inner]
        first[child[inner] + 1] = first[inner] + n_leaves[child[inner]]
    return _LeafNumbers(first, n_left=n_leaves[child])


def find_tests(nodes, trees, dtype):
    """Return the tests of `nodes` on 16-bit codes of rows, or None if they do not fit.

    Parameters
    ----------
    nodes : ndarray of shape (n_tests,), dtype=NODE
        Inner nodes of `trees`.

    trees : Trees
    dtype : numpy.dtype
        Type of the rows: float32 or float64.

    Returns
    -------
    BinnedTests or None
        None if the trees do not fit the 16-bit codes, see :func:`bit_trees`.
    """
    flags = nodes["feature"] & (CATEGORICAL | ZERO_MISSING | MISSING_RIGHT)
    is_categorical = (flags & CATEGORICAL) != 0
    is_zero_missing = (flags & ZERO_MISSING) != 0
    if (is_categorical & is_zero_missing).any():
        # Columns of categories have no code for a zero that is missing.
        return None
    # `column` is the number of the column that each test reads.
    keys, column = np.unique(_column_keys(nodes, flags), return_inverse=True)
    # Entry `s` has the words of bit set `s`. One empty entry follows the last set.
    sets = np.split(trees.cat_words, trees.cat_start[1:])
    cut = np.zeros(len(nodes), dtype=np.int32)
    # The tests of each column, in the order of `keys`.
    by_column = []
    words = [_UNUSED_WORD]
    # Number of words so far: the position of the next column's first word.
    n_words = len(_UNUSED_WORD)
    # `tests` are the positions of the tests on one column.
    for key, tests in zip(keys, _tests_by_column(column, n_columns=len(keys))):
        thresholds = nodes["threshold"][tests]
        # The lower bits of a key are the flags of its nodes.
        if key & CATEGORICAL:
            # The threshold of a categorical node is the number of its bit set.
            set_numbers = thresholds.astype(np.int64)
            goes_right = (flags[tests] & MISSING_RIGHT) != 0
            column_tests = _category_tests(
                [sets[number] for number in set_numbers],
                goes_right,
                first_word=n_words,
                dtype=dtype,
            )
        else:
            column_tests = _number_tests(thresholds, dtype)
        if column_tests is None:
            # The codes of the column do not fit into 16 bits.
            return None
        cut[tests] = column_tests.cut
        words.append(column_tests.words)
        n_words += len(column_tests.words)
        by_column.append(column_tests)
    return BinnedTests(
        columns=_columns_of(keys, by_column, dtype=dtype),
        column=column.astype(np.int32),
        cut=cut,
        words=np.concatenate(words),
    )


def _column_keys(nodes, flags):
    """Return a key for each node. Nodes that test the same column of codes share it.

    Columns of one feature are neighbours in the order of the keys, and those of
    categories come last.

    Parameters
    ----------
    nodes : ndarray of shape (n_tests,), dtype=NODE
        Inner nodes.

    flags : ndarray of shape (n_tests,)
        The bits of the nodes' features that are flags.

    Returns
    -------
    ndarray of shape (n_tests,), dtype=int64
    """
    is_categorical = (flags & CATEGORICAL) != 0
    # The bit set of a categorical node has a bit for missing values. Such nodes of one
    # feature thus have one column, also if their other flags differ.
    kind = np.where(is_categorical, CATEGORICAL, flags).astype(np.int64)
    category_offset = np.where(is_categorical, _CATEGORIES_LAST, 0)
    upper_bits = (nodes["feature"] & FEATURE_MASK) + category_offset
    return (upper_bits << _FEATURE_SHIFT) | kind


def _tests_by_column(column, n_columns):
    """Return the positions of the tests of each column, as a list of arrays.

    `column` (n_tests,) has the number of the column that each test reads.
    """
    order = np.argsort(column, kind="stable")
    bounds = np.searchsorted(column[order], np.arange(1, n_columns))
    # `split` returns at least one array, also if there is no column.
    return np.split(order, bounds)[:n_columns]


def _number_tests(thresholds, dtype):
    """Return the tests of one column of numbers, or None if 16-bit codes are too few.

    Parameters
    ----------
    thresholds : ndarray of shape (n_tests,), dtype=float64
    dtype : numpy.dtype
        Type of the rows.

    Returns
    -------
    _ColumnTests or None
    """
    # `cut` is the position of each test's threshold among the sorted cuts. The code of
    # a row is the number of cuts below it: it is larger if the row is above the
    # threshold.
    cuts, cut = np.unique(_below(thresholds, dtype), return_inverse=True)
    # The largest code of a number is the number of cuts.
    if len(cuts) >= MISSING_CODE:
        return None
    return _ColumnTests(cut=cut, cuts=cuts, words=_NO_WORDS, limit=NO_LIMIT)


def _category_tests(sets, goes_right, first_word, dtype):
    """Return the tests of one column of categories, or None if sets are too long.

    Parameters
    ----------
    sets : list of ndarray of uint32
        The bit set of each test.

    goes_right : ndarray of shape (n_tests,), dtype=bool
        True for tests that send missing values to the right.

    first_word : int
        Position of the first word of this column among those of all columns.

    dtype : numpy.dtype
        Type of the rows.

    Returns
    -------
    _ColumnTests or None
    """
    longest = max(len(words) for words in sets)
    # Number of bits of the longest set, and code of the categories that are in no set.
    limit = 32 * longest
    # The next code, `limit + 1`, is that of missing values.
    if limit + 1 >= MISSING_CODE:
        return None
    # All sets become as long as the longest one, and have one more word. Its first bit
    # is for categories that are in no set, and its second bit for missing values.
    table = np.zeros((len(sets), longest + 1), dtype=np.uint32)
    for i, words in enumerate(sets):
        table[i, : len(words)] = words
    table[:, longest] = np.where(goes_right, 0, _MISSING_LEFT_BIT)
    return _ColumnTests(
        # The position of the first word of each set.
        cut=first_word + (longest + 1) * np.arange(len(sets)),
        cuts=np.empty(0, dtype),
        words=table.ravel(),
        limit=limit,
    )


def _columns_of(keys, by_column, dtype):
    """Return the record of all columns of codes, from the tests of each column.

    Parameters
    ----------
    keys : ndarray of shape (n_columns,), dtype=int64
        From :func:`_column_keys`.

    by_column : list of _ColumnTests
        One for each key.

    dtype : numpy.dtype
        Type of the rows.

    Returns
    -------
    Columns
    """
    limit = np.array([tests.limit for tests in by_column], dtype=np.int32)
    cuts = [tests.cuts for tests in by_column]
    n_cuts = [len(cuts_of_column) for cuts_of_column in cuts]
    # The lower bits of a key are flags. The upper bits have the feature, and the mask
    # drops `_CATEGORIES_LAST` from them.
    feature = (keys >> _FEATURE_SHIFT) & FEATURE_MASK
    # In a column of numbers, a missing value that goes left has code 0, as a number
    # below all thresholds has.
    missing_of_numbers = np.where((keys & MISSING_RIGHT) != 0, MISSING_CODE, 0)
    # In a column of categories, code `limit` stands for categories in no set, and the
    # next code for missing values, see `_category_tests`.
    missing = np.where(limit == NO_LIMIT, missing_of_numbers, limit + 1)
    return Columns(
        feature=feature.astype(np.int32),
        # The empty array is for trees without a test, which have no column.
        cuts=np.concatenate([np.empty(0, dtype), *cuts]),
        start=np.append(0, np.cumsum(n_cuts)).astype(np.int32),
        missing=missing.astype(np.uint16),
        zero_missing=(keys & ZERO_MISSING) != 0,
        limit=limit,
    )


def _below(thresholds, dtype):
    """Return the largest numbers of type `dtype` that are not above the thresholds.

    `thresholds` is an array in double precision. Each result separates numbers of type
    `dtype` as its threshold does.
    """
    # CatBoost separates missing values by a threshold below the lowest number of single
    # precision. In this type it becomes minus infinity, without a warning.
    with np.errstate(over="ignore", under="ignore"):
        cut = thresholds.astype(dtype)
        next_below = np.nextafter(cut, dtype.type(-np.inf))
        return np.where(cut > thresholds, next_below, cut)
