"""Trees of any size for many rows: a layout of eight bytes a node, on binned rows."""

import numpy as np

from skroute.forests._bitvector import FEWEST_ROWS, find_tests
from skroute.forests._rows import rows_of
from skroute.utils._validation import read_only

# With fewer trees than this, binning the rows takes longer than it saves.
FEWEST_TREES = 16


# A node whose threshold is a code.
CODED = np.dtype(
    [("threshold", np.uint16), ("feature", np.uint16), ("child", np.uint32)]
)


def coded_trees(trees, dtype):
    """Columns to bin rows of a type to, and the trees for binned rows, as plain tuples; None for
    categories and beyond what codes say."""
    inner = trees.nodes["child"] != np.arange(len(trees.nodes))
    found = find_tests(trees.nodes[inner], trees, np.dtype(dtype))
    if found is None:
        return None
    columns, column, cut, _ = found
    if not 0 < len(columns.feature) <= 65535 or (columns.limit >= 0).any():
        return None
    # No code is above that of a leaf, which is its own child.
    nodes = np.array((0xFFFF, 0, 0), dtype=CODED).repeat(len(inner))
    nodes["child"] = trees.nodes["child"]
    nodes["threshold"][inner], nodes["feature"][inner] = cut, column
    return columns, tuple(trees._replace(nodes=read_only(nodes), special=False))


def walk_of(forest, n_rows, first, last):
    """Return the fastest walk of some rows through members ``first, ..., last - 1``.

    Parameters
    ----------
    forest : Forest
    n_rows : int
    first, last : int

    Returns
    -------
    walk : callable
        A kernel.

    layout : tuple
        The kernel's argument after the rows, which are those of `rows_of`.
    """
    # For few rows an import takes as long as a walk.
    if n_rows >= FEWEST_ROWS:
        if forest.bits is not None:
            from skroute.forests._bitvector_kernels import add_members

            return add_members, forest.bits
        starts = forest.trees.member_start
        if starts[last] - starts[first] >= FEWEST_TREES and forest.coded is not None:
            from skroute.forests._kernels import add_coded

            return add_coded, forest.coded
    from skroute.forests._kernels import add_leaves

    return add_leaves, forest.plain


def leaf_sums(forest, X, outputs=None, *, first=0, last=None):
    """Sum of the leaves that each row reaches, per output, without the offset.

    Parameters
    ----------
    forest : Forest
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows as the source library is given them.

    outputs : sequence of int, default=None
        Outputs to evaluate: only their trees are walked. None takes all.

    first : int, default=0
        The first member that is added up.

    last : int, default=None
        The member that ends the sum and is not in it; None goes to the end.

    Returns
    -------
    ndarray of shape (n_samples, len(outputs)), dtype=float64

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
    if not isinstance(X, np.ndarray) or forest.read_rule.columns.categories_of_arrays:
        X = rows_of(forest, X)
    X = read_only(X, forest.read_rule.dtype)
    last = forest.n_members if last is None else last
    if (
        X.ndim != 2
        or X.shape[1] != forest.n_features
        or not 0 <= first <= last <= forest.n_members
    ):
        raise ValueError(
            f"The forest has {forest.n_features} features and {forest.n_members} members, got X "
            f"of shape {X.shape} and the members from {first!r} to {last!r}."
        )
    column = np.full(forest.n_outputs, -1)
    chosen = np.arange(forest.n_outputs) if outputs is None else np.asarray(outputs)
    column[chosen] = np.arange(len(chosen))
    out = np.zeros((len(X), len(chosen)))
    walk, layout = walk_of(forest, len(X), first, last)
    walk(X, 0, len(X), layout, first, last, column, out)
    scale = forest.sum_rule.scale
    return out if scale == 1.0 else out * scale
