"""Extractors: named sources of features, of which a set is computed on demand.

Two kinds with the same methods: columns of a table that exist already, and transformers
of raw items. ``prepare`` computes the features of some extractors for some items, and
``take`` puts those of one set together.
"""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from skroute.base import note_failure
from skroute.utils._compat import num_samples


class ColumnExtractors:
    """Extractors that are columns of the input.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    columns : list of list of int
        Numbers of the columns of each.
    """

    measurable = False

    def __init__(self, names, columns):
        self.names = names
        self.columns = columns

    def fit(self, X, y):
        return self

    def prepare(self, X, members):
        return X

    def take(self, prepared, members):
        # A column that two extractors share stands in the table once.
        columns = list(dict.fromkeys(c for j in members for c in self.columns[j]))
        return _safe_indexing(prepared, columns, axis=1)


class ItemExtractors:
    """Extractors that are transformers of raw items.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    transformers : list of estimators
        One per name.
    """

    measurable = True

    def __init__(self, names, transformers):
        self.names = names
        self.transformers = transformers

    def fit(self, X, y):
        fitted = []
        for name, transformer in zip(self.names, self.transformers):
            with note_failure(name, num_samples(X), "fit"):
                fitted.append(clone(transformer).fit(X, y))
        self.transformers = fitted
        return self

    def extract(self, X, j):
        """Features of extractor `j` for all items of `X`: a table with one row per item."""
        name = self.names[j]
        with note_failure(name, num_samples(X), "transform"):
            table = self.transformers[j].transform(X)
        if not sparse.issparse(table):
            table = np.asarray(table)
        if table.ndim != 2 or table.shape[0] != num_samples(X):
            raise ValueError(
                f"Extractor {name!r} must return one row of features per item, of shape "
                f"({num_samples(X)}, n_features), got an array of shape {table.shape!r}."
            )
        return table

    def prepare(self, X, members):
        return {j: self.extract(X, j) for j in members}

    def stack(self, prepared, members):
        """As `take`, from the features of single items."""
        tables = [self.take(of_item, members) for of_item in prepared]
        stack = sparse.vstack if sparse.issparse(tables[0]) else np.vstack
        return stack(tables)

    def take(self, prepared, members):
        tables = [prepared[j] for j in members]
        if any(sparse.issparse(table) for table in tables):
            return sparse.hstack(tables, format="csr")
        return np.hstack(tables)


def _as_columns(selection, n_features, feature_names, key):
    """Columns of one extractor as a list of numbers."""
    wanted = f"extractors[{key!r}] must select at least one column"
    if isinstance(selection, slice):
        selection = range(n_features)[selection]
    selected = np.atleast_1d(np.asarray(selection))
    if selected.dtype == bool and selected.shape == (n_features,):
        selected = np.flatnonzero(selected)
    if selected.dtype.kind in "UO":
        known = [] if feature_names is None else feature_names.tolist()
        if unknown := [name for name in selected.tolist() if name not in known]:
            raise ValueError(f"{wanted}: {unknown!r} are not among the columns {known!r} of X.")
        selected = np.array([known.index(name) for name in selected.tolist()])
    if selected.ndim != 1 or len(selected) == 0 or selected.dtype.kind not in "iu":
        raise ValueError(
            f"{wanted}, by name, by number, as a slice or as a boolean mask of the "
            f"{n_features} columns, got {selection!r}."
        )
    if selected.min() < -n_features or selected.max() >= n_features:
        raise ValueError(f"{wanted} of the {n_features} columns of X, got {selection!r}.")
    return (selected % n_features).tolist()


def check_extractors(extractors, n_features, feature_names, validate_names):
    """Extractors of either kind from what the user gave.

    Parameters
    ----------
    extractors : None, mapping from str to columns, or list of (str, transformer)
        See :class:`~skroute.feature_sets.PolyDomSelector`.

    n_features : int or None
        Columns of the input, None for raw items.

    feature_names : ndarray of str or None
        Their names.

    validate_names : callable
        Raises if a list of names is not allowed.

    Returns
    -------
    ColumnExtractors or ItemExtractors
    """
    if extractors is None:
        if n_features is None:
            raise ValueError(
                "extractors=None takes each column of a two-dimensional X as an extractor, but "
                "X has no columns. Give a list of (name, transformer) tuples."
            )
        columns = range(n_features)
        names = [f"x{j}" for j in columns] if feature_names is None else feature_names.tolist()
        return ColumnExtractors(names, [[j] for j in columns])
    if isinstance(extractors, Mapping):
        if n_features is None:
            raise ValueError(
                "extractors given as a mapping selects columns of a two-dimensional X, but X has "
                "no columns. Give a list of (name, transformer) tuples."
            )
        if not extractors:
            raise ValueError(f"extractors must name at least one extractor, got {extractors!r}.")
        columns = [
            _as_columns(selection, n_features, feature_names, key)
            for key, selection in extractors.items()
        ]
        return ColumnExtractors(list(extractors), columns)
    try:
        names, transformers = zip(*extractors)
    except (TypeError, ValueError):
        raise ValueError(
            "extractors must be None, a mapping from name to columns, or a non-empty list of "
            f"(name, transformer) tuples, got {extractors!r}."
        ) from None
    validate_names(names)
    for name, transformer in zip(names, transformers):
        if not hasattr(transformer, "fit") or not hasattr(transformer, "transform"):
            raise ValueError(
                f"The extractor {name!r} must have fit and transform, got {transformer!r}. "
                "Wrap a function in sklearn.preprocessing.FunctionTransformer."
            )
    return ItemExtractors(list(names), list(transformers))
