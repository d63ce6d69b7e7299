"""Numba kernels of the gating room."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add_trees(
    X, trees, columns, feature, threshold, left, right, missing, leaf, nodes, leaves, out
):
    """Add the leaf values of trees to `out`, in place.

    Parameters
    ----------
    X : float64 array of shape (n_samples, n_features)
    trees : int64 array of shape (n_trees,)
        Trees to evaluate.
    columns : int64 array of shape (n_trees,)
        Column of `out` that each of them adds to.
    feature, threshold, left, right, missing : arrays of shape (n_nodes,)
        Inner nodes of all trees. A child that is negative is the leaf ``~child``. Bit 0
        of `missing`: the node knows NaN; bit 1: NaN goes left. Where a node does not know
        NaN, it counts as 0, as in LightGBM.
    leaf : float64 array of shape (n_leaves,)
        Leaf values of all trees.
    nodes, leaves : int64 array of shape (n_trees_in_all + 1,)
        Where each tree begins.
    out : float64 array of shape (n_samples, n_outputs)
    """
    n = X.shape[0]
    for begin in range(0, n, 512):
        end = min(begin + 512, n)
        for position in range(len(trees)):
            tree = trees[position]
            column = columns[position]
            root = nodes[tree]
            values = leaves[tree]
            if nodes[tree + 1] == root:
                for row in range(begin, end):
                    out[row, column] += leaf[values]
                continue
            for row in range(begin, end):
                node = 0
                while node >= 0:
                    at = root + node
                    value = X[row, feature[at]]
                    if np.isnan(value):
                        if missing[at] & 1:
                            goes_left = (missing[at] & 2) != 0
                        else:
                            goes_left = threshold[at] >= 0.0
                    else:
                        goes_left = value <= threshold[at]
                    node = left[at] if goes_left else right[at]
                out[row, column] += leaf[values + ~node]
