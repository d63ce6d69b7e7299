"""Buying features when a row needs them, and paying for each once."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np
from sklearn.utils import check_array

__all__ = ["FeatureLedger", "LazyFeatures"]


class LazyFeatures:
    """Features that are fetched when they are needed, in place of a matrix.

    ``predict``, ``predict_proba``, ``predict_cost`` and the other methods of the gating
    estimators accept it as `X`. Each row is asked for the features of the gate and the
    cheap model first, and for the rest only if the gate sends it to the full model.
    Nothing is asked for twice within one call.

    Parameters
    ----------
    source : callable or mapping
        A callable ``source(columns, rows)`` returns an array-like of shape
        ``(len(rows), len(columns))``; `columns` are the names seen in fit, or positions
        if fit saw none, `rows` are positions (ndarray of int). A mapping has for each
        column an array-like of shape ``(n_samples,)`` or a callable ``f(rows)`` that
        returns the values of those rows.

    n_samples : int, default=None
        Number of rows. May be left out for a mapping that holds an array.

    Attributes
    ----------
    asked_ : list of tuple (columns, rows)
        Every request that was answered so far, in order. A request that failed is not
        among them.

    Raises
    ------
    ValueError
        If `source` is neither, or the number of rows cannot be told; in a call, if
        `source` returns what a matrix could not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.gating import LazyFeatures
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> lazy = LazyFeatures(lambda columns, rows: X[np.ix_(rows, columns)], n_samples=3)
    >>> lazy.read([1], np.array([0, 2]))
    array([[1.],
           [5.]])
    >>> lazy.asked_
    [([1], array([0, 2]))]
    """

    def __init__(self, source, n_samples=None):
        if not callable(source) and not isinstance(source, Mapping):
            raise ValueError(
                "source must be a callable (columns, rows) -> array or a mapping from column to "
                f"array or callable, got {source!r}."
            )
        if isinstance(source, Mapping):
            arrays = {name: part for name, part in source.items() if not callable(part)}
            for name, part in arrays.items():
                if np.ndim(part) == 0:
                    raise ValueError(
                        "source must have an array of shape (n_samples,) or a callable for each "
                        f"column, got {part!r} for {name!r}."
                    )
            lengths = {len(part) for part in arrays.values()}
            lengths |= set() if n_samples is None else {n_samples}
            if len(lengths) > 1:
                raise ValueError(
                    "The arrays in source must have one length, that of n_samples, "
                    f"got {sorted(lengths)}."
                )
            n_samples = lengths.pop() if lengths else None
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(
                "n_samples must be a positive integer: the number of rows that source can be "
                f"asked for, got {n_samples!r}."
            )
        self.source = source
        self.n_samples = int(n_samples)
        self.asked_ = []

    def __len__(self):
        return self.n_samples

    def read(self, columns, rows, codes=None):
        """Ask the source for columns of rows.

        Parameters
        ----------
        columns : list of str or int
        rows : ndarray of shape (n_rows,), dtype=int
        codes : ColumnCodes, default=None
            Makes codes of columns with categories.

        Returns
        -------
        ndarray of shape (n_rows, n_columns), dtype=float64
        """
        columns = list(columns)
        if isinstance(self.source, Mapping):
            if missing := [column for column in columns if column not in self.source]:
                raise ValueError(f"The feature source has no entry for {missing!r}.")
            values = np.empty((len(rows), len(columns)))
            for at, column in enumerate(columns):
                part = self.source[column]
                part = part(rows) if callable(part) else np.asanyarray(part)[rows]
                if codes is not None and column in codes.categories:
                    check_length(part, len(rows), column)
                    values[:, at] = codes.encode_column(column, part)
                else:
                    values[:, at] = _as_numbers(part, (len(rows),), [column])
        else:
            values = self.source(columns, rows)
            if hasattr(values, "columns"):
                values = _select(values, columns)
            if codes is not None and not codes.categories.keys().isdisjoint(columns):
                values = _as_codes(values, len(rows), columns, codes)
            else:
                values = _as_numbers(values, (len(rows), len(columns)), columns)
        self.asked_.append((columns, rows))
        return values


def _select(frame, columns):
    """The columns asked for, by name; a frame without names has them in the order asked for."""
    names = list(frame.columns)
    if set(columns) <= set(names):
        return frame[columns]
    if any(isinstance(column, str) for column in columns):
        missing = [column for column in columns if column not in names]
        raise ValueError(f"The feature source returned no column {missing!r}.")
    return frame


def check_length(cells, n_rows, column):
    """Refuse cells of a column that are not one for each row."""
    if np.shape(cells) != (n_rows,):
        raise ValueError(
            f"The feature source returned an array of shape {np.shape(cells)} for {n_rows} rows of "
            f"the column {column!r}; it must be {(n_rows,)}."
        )


def _as_codes(values, n_rows, columns, codes):
    """What a source returned as float64, column by column, since some have categories."""
    frame = hasattr(values, "columns")
    if not frame and np.shape(values) != (n_rows, len(columns)):
        raise ValueError(
            f"The feature source returned an array of shape {np.shape(values)} for {n_rows} rows "
            f"of the columns {columns!r}; it must be {(n_rows, len(columns))}."
        )
    table = None if frame else np.asarray(values, dtype=object)
    found = np.empty((n_rows, len(columns)))
    for at, column in enumerate(columns):
        cells = values[column] if frame else table[:, at]
        check_length(cells, n_rows, column)
        if column in codes.categories:
            found[:, at] = codes.encode_column(column, cells)
        else:
            found[:, at] = _as_numbers(cells, (n_rows,), [column])
    return found


def _as_numbers(values, shape, columns):
    """What a source returned as float64 of the shape expected; masked cells are NaN."""
    if np.ma.isMaskedArray(values):
        values = values.astype(np.float64).filled(np.nan)
    try:
        values = check_array(
            values,
            dtype=np.float64,
            ensure_2d=False,
            allow_nd=True,
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
        )
    except (TypeError, ValueError) as error:
        # The message of the conversion has the value in it.
        kind = type(error).__name__
        raise ValueError(
            f"The feature source returned values that are not real numbers ({kind}) for the "
            f"columns {columns!r}."
        ) from None
    if values.shape != shape:
        raise ValueError(
            f"The feature source returned an array of shape {values.shape} for {shape[0]} rows "
            f"of the columns {columns!r}; it must be {shape}."
        )
    return values


def check_bought(values, columns, *, allow_nan):
    """Refuse bought features that a matrix could not have.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
    columns : list of str or int
        For the message.
    allow_nan : bool

    Raises
    ------
    ValueError
    """
    for bad, what in ((np.isinf(values), "infinity"), (np.isnan(values), "NaN or nothing")):
        if bad.any() and not (allow_nan and what != "infinity"):
            names = [columns[at] for at in np.flatnonzero(bad.any(axis=0))]
            raise ValueError(
                f"The feature source returned {what} in {int(bad.any(axis=1).sum())} of "
                f"{len(values)} rows for the columns {names!r}; the models need finite numbers."
            )


class FeatureLedger:
    """Features of some rows, with what has been bought and what is planned to be.

    Parameters
    ----------
    n_samples, n_features : int
    group_of : ndarray of shape (n_features,), dtype=int
        Group of each column; a group is bought as a whole.
    n_groups : int
    read : callable, default=None
        ``read(columns, rows)`` with positions. None if `values` holds everything.
    values : ndarray of shape (n_samples, n_features), default=None
    """

    def __init__(self, n_samples, n_features, group_of, n_groups, *, read=None, values=None):
        self.group_of = group_of
        self.planned = np.zeros((n_samples, n_groups), dtype=bool)
        self._read = read
        self._values = np.full((n_samples, n_features), np.nan) if values is None else values
        self._bought = np.zeros((n_samples, n_groups), dtype=bool)

    def plan(self, rows, columns):
        """Note that these rows will need these columns."""
        groups = np.unique(self.group_of[columns])
        self.planned[np.ix_(rows, groups)] = True

    def take(self, rows, columns):
        """Values of the rows in all columns; those in `columns` are bought, others may be NaN.

        Parameters
        ----------
        rows : ndarray of shape (n_rows,), dtype=int
            Rising.
        columns : ndarray of int

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        if self._read is not None and len(rows) and len(columns):
            groups = np.unique(self.group_of[columns])
            missing = ~self._bought[np.ix_(rows, groups)]
            # Rows that lack the same groups are asked together.
            patterns, inverse = np.unique(missing, axis=0, return_inverse=True)
            for index, pattern in enumerate(patterns):
                if pattern.any():
                    asked = rows[inverse.ravel() == index]
                    bought = np.flatnonzero(np.isin(self.group_of, groups[pattern]))
                    self._values[np.ix_(asked, bought)] = self._read(bought, asked)
                    self._bought[np.ix_(asked, groups)] = True
        return self._values if len(rows) == len(self._values) else self._values[rows]
