"""Find the leaf that each row reaches in each tree of a small forest.

`LeafState` groups rows by these leaves.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

# In place of the left child of a leaf, which has none.
LEAF = -1


class LeafTrees(NamedTuple):
    """Several binary trees, whose nodes are numbered one after the other.

    Attributes
    ----------
    roots : ndarray of shape (n_trees,), dtype=int64
        Number of the first node of each tree.
    feature : ndarray of shape (n_nodes,), dtype=int64
        Column that a node compares. It has no meaning for a leaf.
    threshold : ndarray of shape (n_nodes,), dtype=float64
        A row goes left if its value is at most this. It has no meaning for a leaf.
    left, right : ndarray of shape (n_nodes,), dtype=int64
        Numbers of the children. Both are LEAF for a leaf.
    missing_left : ndarray of shape (n_nodes,), dtype=bool
        True if a row whose value is missing goes left.
    leaf : ndarray of shape (n_nodes,), dtype=int64
        Number of each leaf among the leaves of all trees. It has no meaning for other
        nodes.
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    leaf: np.ndarray


@njit(cache=True, nogil=True)
def leaves_of_rows(trees, columns, leaves):
    """Write the leaf of each row in each tree into `leaves`.

    Parameters
    ----------
    trees : LeafTrees
    columns : ndarray of shape (n_rows, n_columns), dtype=float32
        In C order. NaN is missing.
    leaves : ndarray of shape (n_rows, n_trees), dtype=int64
        Overwritten with numbers of leaves, as in ``trees.leaf``.
    """
    for row in range(columns.shape[0]):
        for tree in range(len(trees.roots)):
            node = trees.roots[tree]
            while trees.left[node] != LEAF:
                value = columns[row, trees.feature[node]]
                goes_left = value <= trees.threshold[node]
                if np.isnan(value):
                    goes_left = trees.missing_left[node]
                node = trees.left[node] if goes_left else trees.right[node]
            leaves[row, tree] = trees.leaf[node]
