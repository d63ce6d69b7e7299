"""Trees of any size for many rows: a layout of eight bytes a node, on binned rows."""

import numpy as np

from skroute.forests._bitvector import FEWEST_ROWS, find_tests
from skroute.utils._validation import read_only

# With fewer trees than this, binning the rows takes longer than it saves.
FEWEST_TREES = 16


def coded_trees(trees, dtype):
    """The layout of some trees for rows of a type; None for categories and beyond what codes say.

    Columns; nodes as uint64, with the left child from bit 32, the column from bit 16, and the cut;
    the fields of `trees`.
    """
    child = trees.nodes["child"].astype(np.uint64)
    inner = np.flatnonzero(child != np.arange(len(child), dtype=np.uint64))
    found = find_tests(trees.nodes[inner], trees, np.dtype(dtype))
    if found is None:
        return None
    columns, column, cut, _ = found
    if not 0 < len(columns.feature) <= 65535 or (columns.limit >= 0).any():
        return None
    # No code is above that of a leaf, which is its own child.
    nodes = child << np.uint64(32) | np.uint64(0xFFFF)
    nodes[inner] ^= np.uint64(0xFFFF)
    nodes[inner] |= column.astype(np.uint64) << np.uint64(16) | cut.astype(np.uint64)
    return columns, nodes, tuple(trees)


def walk_of(forest, n_rows, members):
    """The walk of members ``(first, last)``, the second excluded, for so many rows.

    ``walk(X, start, stop, column, out)`` adds the members to rows ``start:stop`` of `out`, in
    its type. X is what :func:`~skroute.forests._rows.rows_of` returns; `column` says for each
    output which column of `out` it adds to, -1 for none.
    """
    from skroute.forests._kernels import add_leaves

    layout = None
    if n_rows >= FEWEST_ROWS:
        from skroute.forests._bitvector_kernels import add_members
        from skroute.forests._code_kernels import add_coded

        layout, add, starts = forest.bits, add_members, forest.trees.member_start
        if layout is None and starts[members[1]] - starts[members[0]] >= FEWEST_TREES:
            layout, add = forest.coded, add_coded
    if layout is None:
        layout, add = tuple(forest.trees), add_leaves
    return lambda X, start, stop, column, out: add(X, start, stop, layout, *members, column, out)


def leaf_sums(forest, X, outputs=None, *, first=0, last=None):
    """Sum of the leaves that each row reaches, per output, without the offset.

    Parameters
    ----------
    forest : Forest
    X : ndarray of shape (n_samples, n_features)
        Rows as the source library reads them.

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
    X = read_only(X, forest.dtype)
    last = forest.n_members if last is None else last
    if X.ndim != 2 or X.shape[1] != forest.n_features or not 0 <= first <= last <= forest.n_members:
        raise ValueError(
            f"The forest has {forest.n_features} features and {forest.n_members} members, got X "
            f"of shape {X.shape} and the members from {first!r} to {last!r}."
        )
    column = np.full(forest.n_outputs, -1)
    chosen = np.arange(forest.n_outputs) if outputs is None else np.asarray(outputs)
    column[chosen] = np.arange(len(chosen))
    out = np.zeros((len(X), len(chosen)))
    walk_of(forest, len(X), (first, last))(X, 0, len(X), column, out)
    return out
