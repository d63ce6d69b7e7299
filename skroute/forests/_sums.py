"""Sums of the leaves that rows reach, by the walk that suits the forest."""

import numpy as np

from skroute.forests._code_walk import walk_of


def leaf_sums(forest, X, outputs=None, *, first=0, last=None):
    """Sum of the leaves that rows reach, per output; the offset is not in it.

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
    X = np.ascontiguousarray(X, dtype=forest.dtype)
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
