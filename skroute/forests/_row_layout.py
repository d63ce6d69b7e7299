"""Few rows: a third layout, of eight bytes a node, in one array.

Arguments of a compiled function cost more than a hundred trees, so that all but the values of
the leaves are packed into one array. It begins with where its parts are: part `k` is
``pack[pack[k]:pack[k + 1]]``.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.forests._bitvector import find_tests, layout_of

_BY_SCORE, _BY_SIGN, _BY_LARGEST, _BY_FAR_LARGEST = 1, 2, 3, 4


class RowLayout(NamedTuple):
    """What the kernels of `_row_kernels` take.

    Attributes
    ----------
    pack : ndarray, dtype=uint64
        Parts: numbers (features, single precision, what is refused, 1 for oblivious trees and
        2 for categories, how a label is
        found, sums in single precision); columns (feature, code of missing values from bit 32,
        zero as missing at bit 48; then where their cuts start); cuts; nodes (left child from
        bit 32, column from bit 16, cut) or tests of oblivious trees (column from bit 16, cut);
        heads (first node or test, depth, output, largest depth of eight trees or first
        leaf); slope and beta; offset; bit sets of categories, and for each column its first
        code that is in no set plus one (0 without categories), the first word of its sets
        and how many words a set has, where there are categories.

    values : ndarray of shape (n_values, width), dtype=float64
    """

    pack: Any
    values: Any


def row_layout(forest, *, sums="float64", how=0, more=()):
    """The layout of a forest.

    Parameters
    ----------
    forest : Forest
    sums : {"float64", "float32"}, default="float64"
        Precision in which trees are added up.

    how : int, default=0
        How a label is found; see `how_label_is_found`.

    more : sequence of ndarray, default=()
        Further parts of the pack, from 9 on.

    Returns
    -------
    RowLayout or None
        None beyond what codes can say.
    """
    trees = forest.trees
    bits = layout_of(forest)
    oblivious = bits is not None and bits.clear.dtype.kind == "i"
    oblivious = oblivious and not (bits.columns.limit >= 0).any()
    found = _of_levels(bits) if oblivious else nodes_on_codes(trees, forest.dtype)
    if found is None:
        return None
    columns, words, heads, values, sets = found
    if len(columns.feature) == 0:
        # Trees without a split: leaves read a column, whatever it is.
        columns = columns._replace(
            feature=np.zeros(1, np.int32),
            start=np.zeros(2, np.int32),
            missing=np.zeros(1, np.uint16),
            zero_missing=np.zeros(1, bool),
        )
    of_column = columns.feature.astype(np.uint64)
    of_column |= columns.missing.astype(np.uint64) << np.uint64(32)
    of_column |= columns.zero_missing.astype(np.uint64) << np.uint64(48)
    numbers = [
        forest.n_features,
        forest.dtype == "float32",
        {False: 0, "allow-nan": 1, True: 2}[forest.finite],
        1 if oblivious else 2 if len(sets[0]) else 0,
        how,
        sums == "float32",
    ]
    parts = [
        np.array(numbers),
        # One more word, so that each column has two.
        np.append(of_column, columns.start.astype(np.uint64)),
        columns.cuts.astype(np.float64),
        words,
        heads.ravel(),
        np.array([forest.slope, forest.beta]),
        forest.offset.astype(sums).astype(np.float64),
        *sets,
        *more,
    ]
    return RowLayout(packed(parts), values)


def packed(parts):
    """Arrays behind one another in one, which begins with where they are.

    Parameters
    ----------
    parts : list of ndarray
        Of whole numbers, which may be negative, or of floats in double precision.

    Returns
    -------
    ndarray, dtype=uint64
    """
    words = [
        part.view(np.uint64) if part.dtype == np.float64 else part.astype(np.int64).view(np.uint64)
        for part in map(np.ascontiguousarray, parts)
    ]
    bounds = len(parts) + 1 + np.cumsum([0, *map(len, words)])
    return np.concatenate([bounds.astype(np.uint64), *words])


def _of_levels(bits):
    depth = np.diff(bits.test_start)
    words = bits.column.astype(np.uint64) << np.uint64(16) | bits.cut.astype(np.uint64)
    heads = np.column_stack([bits.test_start[:-1], depth, bits.outputs, bits.leaf_start[:-1]])
    return bits.columns, words, heads, bits.values, (np.zeros(0, int), np.zeros(0, int))


def nodes_on_codes(trees, dtype):
    """Nodes that compare codes: columns, nodes, heads, values and sets of a :class:`RowLayout`.

    Parameters
    ----------
    trees : Trees
    dtype : str
        Type of the rows.

    Returns
    -------
    tuple or None
        None beyond what codes can say.
    """
    child, n_trees = trees.nodes["child"].astype(np.uint64), len(trees.roots)
    inner = np.flatnonzero(child != np.arange(len(child), dtype=np.uint64))
    found = find_tests(trees.nodes[inner], trees, np.dtype(dtype))
    if found is None:
        return None
    columns, column, cut, bit_sets = found
    categorical = columns.limit >= 0
    sets = np.zeros(0, int), np.zeros(0, int)
    if categorical.any():
        # Sets of a column follow each other.
        first = np.full(len(categorical), len(bit_sets))
        np.minimum.at(first, column, cut)
        n_words = np.maximum(columns.limit // 32 + 1, 1)
        cut = np.where(categorical[column], (cut - first[column]) // n_words[column], cut)
        limits = np.where(categorical, columns.limit + 1, 0)
        sets = bit_sets, np.column_stack([limits, first, n_words]).ravel()
    if len(columns.feature) > 65535 or (cut >= 65535).any():
        return None
    # No code is above that of a leaf, which is its own child.
    words = child << np.uint64(32) | np.uint64(0xFFFF)
    words[inner] ^= np.uint64(0xFFFF)
    words[inner] |= column.astype(np.uint64) << np.uint64(16) | cut.astype(np.uint64)
    together = np.maximum.reduceat(trees.depths, np.arange(0, n_trees, 8))
    heads = [trees.roots, trees.depths, trees.outputs, np.repeat(together, 8)[:n_trees]]
    return columns, words, np.column_stack(heads), trees.values, sets


def how_label_is_found(reading):
    """Which comparison of sums is the label; 0 where it takes more."""
    single = reading.forest.n_outputs == 1
    if reading.classes is None or reading.cut is not None or reading.answer == "vote":
        return 0
    if reading.by_score:
        return _BY_SCORE if single else _BY_LARGEST
    if reading.divisor != 1.0 or reading.answer not in ("sigmoid", "softmax"):
        return 0
    if single:
        return _BY_SIGN if reading.answer == "sigmoid" else 0
    # Probabilities of one against all may be rounded to the same.
    return _BY_FAR_LARGEST if reading.answer == "softmax" else 0
