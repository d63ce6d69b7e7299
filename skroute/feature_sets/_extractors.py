"""Extractors: named sources of features, of which a set is computed on demand.

Two kinds with the same methods: columns of a table that exist already, and transformers
of raw items. ``prepare`` computes the features of some extractors for some items, and
``take`` puts those of one set together.
"""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from skroute.base import note_failure
from skroute.utils._compat import Integral, num_samples


class ColumnExtractors:
    """Extractors that are columns of the input.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    columns : list of list of int
        Numbers of the columns of each.

    n_features : int
        Columns of the input.

    feature_names : list of str, default=None
        Their names.
    """

    measurable = False

    def __init__(self, names, columns, n_features, feature_names=None):
        self.names = names
        self.columns = columns
        self.n_features = n_features
        self.feature_names = feature_names

    def fit(self, X, y):
        return self

    def prepare(self, X, members):
        return X

    def _of(self, members):
        # A column that two extractors share stands in the table once.
        return list(dict.fromkeys(c for j in members for c in self.columns[j]))

    def take(self, prepared, members):
        return _safe_indexing(prepared, self._of(members), axis=1)

    def model_of(self, estimator, members):
        """The model for the table of a set."""
        return of_columns(estimator, self._of(members), self.n_features, self.feature_names)


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

    def model_of(self, estimator, members):
        """The model for the table of a set."""
        return estimator

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


def of_columns(estimator, kept, n_features, feature_names):
    """An estimator whose column transformer, at its start, names no more than some columns.

    Parameters
    ----------
    estimator : estimator
        Itself where it has no such transformer.
    kept : list of int
        Columns of the table that it will be given.
    n_features : int
        Columns of the whole table.
    feature_names : list of str or None
        Their names.

    Returns
    -------
    estimator
    """
    if isinstance(estimator, Pipeline) and estimator.steps:
        (name, first), *others = estimator.steps
        own = of_columns(first, kept, n_features, feature_names)
        return estimator if own is first else clone(estimator).set_params(**{name: own})
    if not isinstance(estimator, ColumnTransformer):
        return estimator

    def chosen(columns):
        if callable(columns):
            return columns
        numbers = _positions(columns, n_features, feature_names)
        found = [number for number in numbers if number in kept]
        if feature_names is None:
            found = [kept.index(number) for number in found]
        else:
            found = [feature_names[number] for number in found]
        # One column that is not in a list is passed on without its axis.
        return found[0] if found and isinstance(columns, (str, Integral)) else found

    parts = [(name, clone(part, safe=False), chosen(c)) for name, part, c in estimator.transformers]
    return clone(estimator).set_params(transformers=parts)


def _positions(columns, n_features, feature_names):
    """Positions of the columns that a column transformer names."""
    if isinstance(columns, slice):
        start, stop = columns.start, columns.stop
        if isinstance(start, str) or isinstance(stop, str):
            start = None if start is None else feature_names.index(start)
            # By name the last one is included.
            stop = None if stop is None else feature_names.index(stop) + 1
        return list(range(n_features)[start : stop : columns.step])
    columns = np.atleast_1d(np.asarray(columns))
    if columns.dtype == bool:
        return np.flatnonzero(columns).tolist()
    if columns.dtype.kind in "UO":
        known = feature_names or []
        if unknown := [name for name in columns.tolist() if name not in known]:
            raise ValueError(
                f"The column transformer of estimator names {unknown!r}, which are not among the "
                f"columns {known!r} of X."
            )
        return [known.index(name) for name in columns.tolist()]
    return [int(column) % n_features for column in columns]


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
    known = None if feature_names is None else feature_names.tolist()
    if extractors is None:
        if n_features is None:
            raise ValueError(
                "extractors=None takes each column of a two-dimensional X as an extractor, but "
                "X has no columns. Give a list of (name, transformer) tuples."
            )
        columns = range(n_features)
        names = [f"x{j}" for j in columns] if feature_names is None else feature_names.tolist()
        return ColumnExtractors(names, [[j] for j in columns], n_features, known)
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
        return ColumnExtractors(list(extractors), columns, n_features, known)
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
