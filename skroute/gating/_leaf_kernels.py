"""The walk of rows to the leaves of the trees of a state."""

from typing import NamedTuple

import numpy as np
from numba import njit

# The left child of a leaf, which has none.
LEAF = -1


class LeafTrees(NamedTuple):
    """Several binary trees, whose nodes are numbered one after the other.

    Attributes
    ----------
    roots : ndarray of shape (n_trees,), dtype=int64
    feature : ndarray of shape (n_nodes,), dtype=int64
        Column that a node compares.
    threshold : ndarray of shape (n_nodes,), dtype=float64
        A row goes left if its value is at most this.
    left, right : ndarray of shape (n_nodes,), dtype=int64
        Children. `left` is LEAF for a leaf.
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
    """Write the leaf of each row in each tree into `leaves`, (n_rows, n_trees).

    `columns` are float32 numbers of shape (n_rows, n_columns), in C order.
    """
    for row in range(columns.shape[0]):
        for position in range(len(trees.roots)):
            node = trees.roots[position]
            while trees.left[node] != LEAF:
                value = columns[row, trees.feature[node]]
                goes_left = value <= trees.threshold[node]
                if np.isnan(value):
                    goes_left = trees.missing_left[node]
                node = trees.left[node] if goes_left else trees.right[node]
            leaves[row, position] = trees.leaf[node]
