"""Extractors: named sources of features, which are computed on demand.

Both kinds have three methods. ``fit`` reads the training rows. ``prepare`` computes the
features of some extractors. ``take`` returns the features of a set of extractors as one
table.
"""

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.base import clone

from skroute.base import note_failure
from skroute.utils._compat import _safe_indexing, get_column_indices, num_samples
from skroute.utils._frames import column_keys
from skroute.utils._validation import check_text_names


class ColumnExtractors:
    """Extractors that are columns of the input.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    columns : list of list of int
        Positions of the columns of each extractor.
    """

    def __init__(self, names, columns):
        self.names = names
        self.columns = columns

    def fit(self, X, y):
        """Return self: columns need no training."""
        return self

    def prepare(self, X, members):
        """Return X: columns need no computation."""
        return X

    def take(self, prepared, members):
        """Return the columns of some extractors as one table.

        Parameters
        ----------
        prepared : indexable of n_rows rows
            Result of `prepare`.

        members : list of int
            Numbers of the extractors.

        Returns
        -------
        indexable
            The rows, with the columns of the extractors.
        """
        columns = []
        for member in members:
            columns.extend(self.columns[member])
        # A column that belongs to two extractors is in the table once.
        columns = list(dict.fromkeys(columns))
        return _safe_indexing(prepared, columns, axis=1)


class ItemExtractors:
    """Extractors that are transformers of raw items.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    transformers : list of transformers
        Not fitted before :meth:`fit`, which returns fitted ones.
    """

    def __init__(self, names, transformers):
        self.names = names
        self.transformers = transformers

    def fit(self, X, y):
        """Return extractors with fitted clones of the transformers."""
        fitted = []
        for name, transformer in zip(self.names, self.transformers):
            with note_failure(name, num_samples(X), "fit"):
                fitted.append(clone(transformer).fit(X, y))
        return ItemExtractors(self.names, fitted)

    def extract(self, X, number):
        """Return the features of an extractor for the items of X.

        Parameters
        ----------
        X : indexable of n_items items

        number : int
            Number of the extractor.

        Returns
        -------
        {ndarray, sparse matrix} of shape (n_items, n_features)
        """
        name = self.names[number]
        with note_failure(name, num_samples(X), "transform"):
            table = self.transformers[number].transform(X)
        if not sparse.issparse(table):
            table = np.asarray(table)
        if table.ndim != 2 or table.shape[0] != num_samples(X):
            raise ValueError(
                f"Extractor {name!r} must return one row of features per item, of "
                f"shape ({num_samples(X)}, n_features), got an array of shape "
                f"{table.shape!r}."
            )
        return table

    def prepare(self, X, members):
        """Compute the features of some extractors.

        Parameters
        ----------
        X : indexable of n_items items

        members : iterable of int
            Numbers of the extractors.

        Returns
        -------
        dict from int to table
            Features of each extractor, by its number: see :meth:`extract`.
        """
        return {number: self.extract(X, number) for number in members}

    def take(self, prepared, members):
        """Return the features of some extractors as one table, side by side.

        Parameters
        ----------
        prepared : dict from int to table
            Result of `prepare`.

        members : list of int
            Numbers of the extractors.

        Returns
        -------
        {ndarray, csr matrix} of shape (n_items, n_features)
        """
        tables = [prepared[number] for number in members]
        if any(sparse.issparse(table) for table in tables):
            return sparse.hstack(tables, format="csr")
        return np.hstack(tables)


def check_extractors(extractors, X, validate_names):
    """Return the extractors of the parameter `extractors`, or raise a ValueError.

    Parameters
    ----------
    extractors : mapping, list of (name, transformer), or None
        As the user gave it. None: each column of X is an extractor.

    X : indexable
        Rows or raw items.

    validate_names : callable
        ``validate_names(names)`` raises an error for names that scikit-learn refuses.

    Returns
    -------
    ColumnExtractors or ItemExtractors
    """
    if extractors is None or isinstance(extractors, Mapping):
        return _of_columns(extractors, X)
    try:
        names, transformers = zip(*extractors)
    except (TypeError, ValueError):
        raise ValueError(
            "extractors must be None, a mapping from name to columns, or a non-empty "
            f"list of (name, transformer) tuples, got {extractors!r}."
        ) from None
    check_text_names(names, "extractors")
    validate_names(names)
    for name, transformer in zip(names, transformers):
        if not hasattr(transformer, "fit") or not hasattr(transformer, "transform"):
            raise ValueError(
                f"The extractor {name!r} must have fit and transform, got "
                f"{transformer!r}. Wrap a function in "
                "sklearn.preprocessing.FunctionTransformer."
            )
    return ItemExtractors(list(names), list(transformers))


def _of_columns(extractors, X):
    """Return extractors that are columns of X: single ones, or groups from a mapping.

    Parameters
    ----------
    extractors : mapping from str to columns, or None
        None: each column is an extractor.

    X : indexable of shape (n_rows, n_columns)

    Returns
    -------
    ColumnExtractors
    """
    if len(getattr(X, "shape", ())) != 2:
        raise ValueError(
            "extractors=None and a mapping select columns of a two-dimensional X, but "
            "X has no columns. Give a list of (name, transformer) tuples."
        )
    if extractors is None:
        # Columns without names get scikit-learn's names: x0, x1, ...
        n_columns = X.shape[1]
        names = column_keys(X) or [f"x{j}" for j in range(n_columns)]
        columns = [[j] for j in range(n_columns)]
        return ColumnExtractors(list(map(str, names)), columns)
    if not extractors:
        raise ValueError(
            f"extractors must name at least one extractor, got {extractors!r}."
        )
    columns = []
    for name, selection in extractors.items():
        try:
            # As in ColumnTransformer, `selection` is names, numbers, a slice or a mask.
            positions = np.asarray(get_column_indices(X, selection)).tolist()
        except (ValueError, TypeError, IndexError) as error:
            error.add_note(
                f"This happened in extractors[{name!r}], which is {selection!r}."
            )
            raise
        if not positions:
            raise ValueError(
                f"extractors[{name!r}] must select at least one column, got "
                f"{selection!r}."
            )
        columns.append(positions)
    return ColumnExtractors(list(extractors), columns)
