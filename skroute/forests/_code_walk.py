"""The third layout of trees, for binned rows, and the choice of the fastest kernel."""

from typing import NamedTuple

import numpy as np

from skroute.forests._bitvector import FEWEST_ROWS, Columns, find_tests
from skroute.forests._rows import rows_of
from skroute.utils._validation import read_only

# With fewer trees than this, binning the rows takes longer than it saves (measured).
FEWEST_TREES = 16
# Largest number of columns, which nodes number with 16 bits.
_MOST_COLUMNS = 65535
# Threshold of leaves, the largest number of 16 bits. No code is above it, so that each
# row goes to the left child of a leaf: the leaf itself.
_LEAF_THRESHOLD = 0xFFFF

# A node whose threshold is a code and whose feature is a column of codes.
CODED_NODE = np.dtype(
    [("threshold", np.uint16), ("feature", np.uint16), ("child", np.uint32)]
)


class CodedTrees(NamedTuple):
    """Trees of any size, whose nodes test the codes of binned rows.

    Attributes
    ----------
    columns : Columns
        The columns of codes to which rows are binned.

    trees : tuple
        The fields of a :class:`~skroute.forests._trees.Trees` with nodes of type
        `CODED_NODE`.
    """

    columns: Columns
    trees: tuple


def coded_trees(trees, dtype):
    """Return trees whose nodes test codes of binned rows, or None if they do not fit.

    Parameters
    ----------
    trees : Trees
    dtype : str
        Type of the rows: ``"float32"`` or ``"float64"``.

    Returns
    -------
    CodedTrees or None
        None if there are categories, no inner node, or more cuts or columns than 16
        bits can number.
    """
    is_inner = ~trees.is_leaf
    tests = find_tests(trees.nodes[is_inner], trees, dtype=np.dtype(dtype))
    if tests is None:
        return None
    columns = tests.columns
    n_columns = len(columns.feature)
    # The limit of a column of numbers, `NO_LIMIT`, is negative.
    has_categories = (columns.limit >= 0).any()
    if n_columns == 0 or n_columns > _MOST_COLUMNS or has_categories:
        return None
    nodes = np.zeros(len(is_inner), dtype=CODED_NODE)
    # The thresholds of inner nodes are overwritten below.
    nodes["threshold"] = _LEAF_THRESHOLD
    nodes["child"] = trees.nodes["child"]
    nodes["threshold"][is_inner] = tests.cut
    nodes["feature"][is_inner] = tests.column
    # The columns of codes treat zeros and missing values as the nodes do. The trees
    # thus need no slower walk (`special`).
    coded = trees._replace(nodes=read_only(nodes), special=False)
    return CodedTrees(columns, tuple(coded))


def walk_of(forest, n_rows, first, last):
    """Return the fastest kernel for `n_rows` rows, and the trees in its layout.

    Parameters
    ----------
    forest : Forest
    n_rows : int
    first, last : int
        The first member to evaluate, and the one behind the last.

    Returns
    -------
    walk : callable
        A kernel with the arguments of :func:`~skroute.forests._kernels.add_leaves`.

    layout : tuple
        The trees as this kernel takes them, its fourth argument.
    """
    # The kernels are imported when they are needed. For few rows, an import takes as
    # long as a walk.
    if n_rows >= FEWEST_ROWS:
        if forest.bits is not None:
            from skroute.forests._bitvector_kernels import add_members

            return add_members, forest.bits
        starts = forest.trees.member_start
        n_trees = starts[last] - starts[first]
        if n_trees >= FEWEST_TREES and forest.coded is not None:
            from skroute.forests._kernels import add_coded

            return add_coded, forest.coded
    from skroute.forests._kernels import add_leaves

    return add_leaves, forest.plain


def leaf_sums(forest, X, outputs=None, *, first=0, last=None):
    """Return the sums of the leaves that each row reaches, without the offset.

    Parameters
    ----------
    forest : Forest
        From :func:`read_forest`.

    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows as the source library is given them.

    outputs : sequence of int, default=None
        Outputs to evaluate: only their trees are walked. None takes all.

    first : int, default=0
        The first member that is added up.

    last : int, default=None
        The member behind the last one that is added up. None goes to the end.

    Returns
    -------
    ndarray of shape (n_samples, len(outputs)), dtype=float64
        Sum of the leaf values of each row.

    Raises
    ------
    ValueError
        If the rows have another number of features, or the members do not exist.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import leaf_sums, read_forest
    >>> X, y = load_iris(return_X_y=True)
    >>> forest, _ = read_forest(RandomForestClassifier(7, random_state=0).fit(X, y))
    >>> leaf_sums(forest, X[:1]) / 7
    array([[1., 0., 0.]])
    """
    # Arrays are walked as they are, unless the library looks up categories in them.
    has_categories = bool(forest.read_rule.columns.categories_of_arrays)
    if not isinstance(X, np.ndarray) or has_categories:
        X = rows_of(forest, X)
    X = read_only(X, forest.read_rule.dtype)
    if last is None:
        last = forest.n_members
    has_width = X.ndim == 2 and X.shape[1] == forest.n_features
    has_members = 0 <= first <= last <= forest.n_members
    if not (has_width and has_members):
        raise ValueError(
            f"The forest has {forest.n_features} features and {forest.n_members} "
            f"members, got X of shape {X.shape} and the members from {first!r} to "
            f"{last!r}."
        )
    if outputs is None:
        outputs = np.arange(forest.n_outputs)
    n_columns = len(outputs)
    # The column of `sums` that each output adds to. -1: the output is not asked for.
    column_of_output = np.full(forest.n_outputs, -1)
    column_of_output[np.asarray(outputs)] = np.arange(n_columns)
    # The walk adds to these sums.
    sums = np.zeros((len(X), n_columns))
    walk, layout = walk_of(forest, len(X), first=first, last=last)
    walk(X, 0, len(X), layout, first, last, column_of_output, sums)
    scale = forest.sum_rule.scale
    if scale != 1.0:
        sums = sums * scale
    return sums
