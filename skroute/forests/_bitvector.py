"""Bit vectors: a second layout for trees of at most 64 leaves, made from the first one.

Lucchese et al., "QuickScorer", SIGIR 2015, and its vectorised forms. Leaves are numbered
from left to right. A test is an inner node: where a row goes right, it clears the bits of
the leaves under the left child. The lowest bit left is the leaf. No branch depends on the
data, so rows are worked on together.

A tree that asks the same at all nodes of a level (CatBoost's oblivious trees) has one test for
each level, and its leaf is a number with a bit for each answer: `clear` is signed there, and
what a test clears is its bit of the number's complement.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.forests._trees import (
    CATEGORICAL,
    FEATURE_MASK,
    MISSING_RIGHT,
    ZERO_MISSING,
)

# A missing value that goes right has this code, above all others.
MISSING_CODE = 65535
MOST_LEAVES = 64
# With fewer rows than this a walk from the root to a leaf is faster.
FEWEST_ROWS = 48


class Columns(NamedTuple):
    """What a block of rows is binned to: one code for each row and column.

    Nodes that split on the same feature and send missing values elsewhere have different
    columns, so that a code says all that a test asks.

    Attributes
    ----------
    feature : ndarray of shape (n_columns,), dtype=int32

    cuts : ndarray, dtype=float32 or float64
        Sorted thresholds of all columns, in the type of the rows; the code is the number
        of cuts below the value.

    start : ndarray of shape (n_columns + 1,), dtype=int32
        Cuts of column `c` are ``cuts[start[c]:start[c + 1]]``.

    missing : ndarray of shape (n_columns,), dtype=uint16
        Code of a missing value.

    zero_missing : ndarray of shape (n_columns,), dtype=bool

    limit : ndarray of shape (n_columns,), dtype=int32
        For a column of categories the first code that is in no set; -1 for others, which
        come first.
    """

    feature: Any
    cuts: Any
    start: Any
    missing: Any
    zero_missing: Any
    limit: Any


class BitTrees(NamedTuple):
    """Trees as tests on binned rows: what the kernels of `_bitvector_kernels` take.

    Attributes
    ----------
    columns : Columns
        What a row is binned to.

    column : ndarray of shape (n_tests,), dtype=int32
        What a test reads.

    cut : ndarray of shape (n_tests,), dtype=int32
        A row goes right where its code is above; for categories the first word of a bit
        set, and members of the set go left.

    words : ndarray, dtype=uint32
        Bit sets of categories.

    clear : ndarray of shape (n_tests,), dtype=uint32, uint64, int16 or int32
        Leaves that are left for a row that goes right; signed where all trees are oblivious.

    test_start, leaf_start : ndarray of shape (n_trees + 1,), dtype=int32
        Tests and leaves of tree `t` are ``test_start[t]:test_start[t + 1]`` and so on.

    values : ndarray of shape (n_leaves, width), dtype=float64
        What a leaf adds.

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


def bit_trees(trees, dtype):
    """The layout of some trees; None where their shape is not for it.

    Parameters
    ----------
    trees : Trees
    dtype : str
        Type of the rows: ``"float32"`` or ``"float64"``.

    Returns
    -------
    BitTrees or None
        None with a tree of more than 64 leaves, unless all trees are oblivious, with more
        than 65,534 cuts or categories of a feature, and with categories of which zero is
        missing.
    """
    nodes, roots, size = trees.nodes, trees.roots, len(trees.nodes)
    of_tree = np.repeat(np.arange(len(roots)), np.diff(roots, append=size))
    leaf = nodes["child"] == np.arange(size)
    n_leaves = np.bincount(of_tree[leaf], minlength=len(roots))
    first, n_left = _numbered_leaves(nodes["child"], roots, leaf)
    level = _levels_of_oblivious(nodes, roots, of_tree, leaf)
    if level is not None:
        # The nodes of a level follow each other.
        ask = np.flatnonzero(
            ~leaf & ((np.arange(size) - roots[of_tree] + 1) == 1 << level)
        )
        kind = np.dtype(np.int16 if trees.depths.max() < 15 else np.int32)
        clear = ~np.left_shift(1, trees.depths[of_tree[ask]] - level[ask] - 1).astype(
            kind
        )
    elif n_leaves.max() > MOST_LEAVES:
        return None
    else:
        ask = np.flatnonzero(~leaf)
        under_left = (np.left_shift(np.uint64(1), n_left[ask]) - np.uint64(1)) << first[
            ask
        ]
        clear = (~under_left).astype(np.uint32 if n_leaves.max() <= 32 else np.uint64)
    leaf_start = np.append(0, np.cumsum(n_leaves))
    test_start = np.append(
        0, np.cumsum(np.bincount(of_tree[ask], minlength=len(roots)))
    )
    at = np.flatnonzero(leaf)
    values = np.empty((len(at), trees.values.shape[1]))
    values[leaf_start[of_tree[at]] + first[at].astype(np.int64)] = trees.values[at]
    found = find_tests(nodes[ask], trees, np.dtype(dtype))
    if found is None:
        return None
    starts = test_start.astype(np.int32), leaf_start.astype(np.int32)
    return BitTrees(*found, clear, *starts, values, trees.outputs, trees.member_start)


def _levels_of_oblivious(nodes, roots, of_tree, leaf):
    """Level of each node if all nodes of a level ask the same in every tree, else None."""
    number = np.arange(len(nodes)) - roots[of_tree]
    # Complete trees are laid out level by level.
    level = np.frexp((number + 1).astype(np.float64))[1] - 1
    first = roots[of_tree] + (1 << level) - 1
    sizes = np.bincount(of_tree)
    complete = (sizes & (sizes + 1)) == 0
    if not complete.all() or sizes.max() <= 3:
        return None
    same = (nodes["feature"] == nodes["feature"][first]) & (leaf == leaf[first])
    same &= (nodes["threshold"] == nodes["threshold"][first]) | leaf
    return level if same.all() else None


def _numbered_leaves(child, roots, leaf):
    """Number of the first leaf under each node, from the left, and leaves under its left child."""
    levels, level = [], roots.astype(np.int64)
    while len(level):
        level = level[~leaf[level]]
        levels.append(level)
        level = np.concatenate([child[level], child[level] + 1])
    count = leaf.astype(np.uint64)
    for level in reversed(levels):
        count[level] = count[child[level]] + count[child[level] + 1]
    first = np.zeros(len(child), dtype=np.uint64)
    for level in levels:
        first[child[level]] = first[level]
        first[child[level] + 1] = first[level] + count[child[level]]
    return first, count[child]


def find_tests(nodes, trees, dtype):
    """Return columns, the column and cut of each inner node, and the bit sets.

    None if the trees do not fit the 16-bit codes.
    """
    flags = nodes["feature"] & (CATEGORICAL | ZERO_MISSING | MISSING_RIGHT)
    categorical = (flags & CATEGORICAL) != 0
    if (categorical & ((flags & ZERO_MISSING) != 0)).any():
        return None
    # A bit set says where missing values go, so that categories have one column a feature.
    kind = np.where(categorical, CATEGORICAL, flags).astype(np.int64)
    # Columns of one feature are neighbours, those of categories come last.
    feature = (nodes["feature"] & FEATURE_MASK) + categorical * np.int64(
        FEATURE_MASK + 1
    )
    key, column = np.unique(feature << 32 | kind, return_inverse=True)
    n_columns, order = len(key), np.argsort(column, kind="stable")
    cut = np.zeros(len(nodes), dtype=np.int32)
    cuts, words, n_words = [np.empty(0, dtype)], [np.zeros(1, np.uint32)], 1
    sets, limit = (
        np.split(trees.cat_words, trees.cat_start[1:]),
        np.full(n_columns, -1, np.int32),
    )
    splits = np.split(order, np.searchsorted(column[order], np.arange(1, n_columns)))
    for c, at in zip(range(n_columns), splits):
        if key[c] & CATEGORICAL:
            own = [sets[s] for s in nodes["threshold"][at].astype(np.int64)]
            longest = max(map(len, own))
            limit[c] = 32 * longest
            if limit[c] + 1 >= MISSING_CODE:
                return None
            table = np.zeros((len(at), longest + 1), dtype=np.uint32)
            for i, bits in enumerate(own):
                table[i, : len(bits)] = bits
            # The bit after the limit stands for missing values.
            table[:, longest] = np.where(flags[at] & MISSING_RIGHT, 0, 2)
            cut[at] = n_words + (longest + 1) * np.arange(len(at))
            words.append(table.ravel())
            n_words += table.size
            found = np.empty(0, dtype)
        else:
            found, cut[at] = np.unique(
                _below(nodes["threshold"][at], dtype), return_inverse=True
            )
            if len(found) >= MISSING_CODE:
                return None
        cuts.append(found)
    missing = np.where((key & MISSING_RIGHT) != 0, MISSING_CODE, 0)
    columns = Columns(
        (key >> 32 & FEATURE_MASK).astype(np.int32),
        np.concatenate(cuts),
        np.cumsum([len(found) for found in cuts], dtype=np.int32),
        np.where(limit >= 0, limit + 1, missing).astype(np.uint16),
        (key & ZERO_MISSING) != 0,
        limit,
    )
    return columns, column.astype(np.int32), cut, np.concatenate(words)


def _below(threshold, dtype):
    """Largest numbers of a type that are not above the thresholds: they cut the same way."""
    # Beneath the lowest number is an overflow: CatBoost's thresholds of missing values lie there.
    with np.errstate(over="ignore", under="ignore"):
        cut = threshold.astype(dtype)
        return np.where(cut > threshold, np.nextafter(cut, dtype.type(-np.inf)), cut)
