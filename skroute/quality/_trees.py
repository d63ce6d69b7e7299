"""Forests of extremely randomised trees with all choices in one model, kept small."""

from typing import NamedTuple

import numpy as np


class Trees(NamedTuple):
    """Trees whose leaf values are summed.

    Attributes
    ----------
    roots : ndarray of shape (n_trees,), dtype=int64
        First node of each tree.

    feature : ndarray of shape (n_nodes,), dtype=int32
        -1 for a leaf.

    threshold : ndarray of shape (n_nodes,), dtype=float32
        Rows up to it go left.

    child : ndarray of shape (n_nodes,), dtype=int32
        The left child; the right one stands behind it. Of a leaf its row of `values`.

    values : ndarray of shape (n_leaves, n_outputs), dtype=float32
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    values: np.ndarray

    def predict(self, X):
        """Sum of the values of the leaves that rows come to, float64."""
        out = np.zeros((len(X), self.values.shape[1]))
        self.ready()(np.ascontiguousarray(X, dtype=np.float32), out)
        return out

    def ready(self):
        """A function that adds the values of the leaves that float32 rows come to."""
        from skroute.quality._predict_kernels import add_trees, laid_out

        nodes, cuts = laid_out(self.feature, self.threshold, self.child)
        values = np.ascontiguousarray(self.values)
        return lambda X, out: add_trees(X, nodes, cuts, self.roots, values, out)

    def unit(self):
        """Powers of two that no value of an output is above, of shape (n_outputs,)."""
        largest = np.abs(self.values).max(axis=0, initial=0).astype(np.float64)
        return 2.0 ** np.ceil(np.log2(np.where(largest > 0, largest, 1.0)))

    def rounded(self):
        """The same with values that float16 holds, in which they are pickled."""
        unit = self.unit().astype(np.float32)
        values = (self.values / unit).astype(np.float16).astype(np.float32) * unit
        return self._replace(values=values)


def join(forests, weights=None):
    """One forest of several, their values weighted.

    Parameters
    ----------
    forests : list of Trees
    weights : sequence of float, default=None
        None weighs all by one.

    Returns
    -------
    Trees
    """
    weights = np.ones(len(forests)) if weights is None else weights
    roots, nodes, leaves, children = [], 0, 0, []
    for forest in forests:
        roots.append(forest.roots + nodes)
        moved = np.where(forest.feature >= 0, forest.child + nodes, forest.child + leaves)
        children.append(moved.astype(np.int32))
        nodes, leaves = nodes + len(forest.feature), leaves + len(forest.values)
    return Trees(
        np.concatenate(roots),
        np.concatenate([forest.feature for forest in forests]),
        np.concatenate([forest.threshold for forest in forests]),
        np.concatenate(children),
        np.concatenate([forest.values * np.float32(w) for forest, w in zip(forests, weights)]),
    )


def grow_tree(X, Z, Y, rows, shape, state):
    """One tree: cuts judged by `Z`, values the means of `Y`.

    Parameters
    ----------
    X : ndarray of shape (n_features, n_rows), dtype=float32
    Z, Y : ndarray of shape (n_rows, ...), dtype=float32
    rows : ndarray of int
        The rows used.
    shape : tuple of int
        Candidates per cut, rows per leaf at least, greatest depth.
    state : ndarray of shape (1,), dtype=uint64
        Of the generator. Changed.

    Returns
    -------
    Trees
    """
    from skroute.quality._tree_kernels import grow, mean_of_leaves

    rows = np.array(rows, dtype=np.int64)
    feature, threshold, child, bounds = grow(
        X, np.ascontiguousarray(Z[rows].T), rows, *shape, state
    )
    values = mean_of_leaves(feature, child, bounds, rows, Y)
    return Trees(np.zeros(1, dtype=np.int64), feature, threshold, child, values)


def extra_trees(X, Y, *, n_trees, min_leaf, n_candidates, seed, most_rows):
    """A forest: each tree sees all rows, the estimate is the mean over trees.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    Y : ndarray of shape (n_rows, n_outputs)
    n_trees, min_leaf, n_candidates : int
    seed : int
    most_rows : int
        Where there are more, each tree sees that many, drawn at random.

    Returns
    -------
    Trees
    """
    columns = np.ascontiguousarray(np.asarray(X, dtype=np.float32).T)
    Y = np.ascontiguousarray(Y, dtype=np.float32)
    shape = (n_candidates, min_leaf, 10**6)
    state, rng = first_state(seed), np.random.RandomState(seed)
    trees = []
    for _ in range(n_trees):
        rows = _some_rows(rng, len(Y), len(Y), most_rows)
        trees.append(grow_tree(columns, Y, Y, rows, shape, state))
    return join(trees, np.full(n_trees, 1 / n_trees))


def boosted_trees(X, Y, *, n_trees, min_leaf, n_candidates, max_depth, rate, seed, most_rows):
    """Shallow trees, each grown on what the sum of those before leaves over.

    Parameters
    ----------
    X, Y, n_trees, min_leaf, n_candidates, seed, most_rows
        As in :func:`extra_trees`; `Y` centred.
    max_depth : int
    rate : float
        Share of each tree's values that is taken.

    Returns
    -------
    Trees
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    columns = np.ascontiguousarray(X.T)
    left = np.array(Y, dtype=np.float32)
    shape = (n_candidates, min_leaf, max_depth)
    state, rng = first_state(seed), np.random.RandomState(seed)
    trees = []
    for _ in range(n_trees):
        rows = _some_rows(rng, len(X), int(np.ceil(0.7 * len(X))), most_rows)
        tree = grow_tree(columns, left, left, rows, shape, state)
        left -= rate * tree.predict(X).astype(np.float32)
        trees.append(tree)
    return join(trees, np.full(len(trees), rate))


def _some_rows(rng, n_rows, wanted, most_rows):
    wanted = min(wanted, most_rows)
    return np.arange(n_rows) if wanted == n_rows else rng.permutation(n_rows)[:wanted]


def first_state(seed):
    """State of the generator of the kernels for a seed."""
    return np.random.RandomState(seed).randint(1, 2**63 - 1, 1, dtype=np.uint64)
