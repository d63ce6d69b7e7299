"""Features that are fetched when a row needs them."""

import re
from collections.abc import Mapping
from importlib import import_module
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._frames import (
    CATEGORY,
    DATE,
    cells_of,
    column_keys,
    dates_of,
    is_frame,
    is_text,
    kind_of_type,
    names_and_columns,
    numbers_of,
    texts_of,
    type_of,
)


class Purchase(NamedTuple):
    """One answered request to a source of features.

    Attributes
    ----------
    columns : list of str or int
        The columns that were asked for.

    rows : ndarray of shape (n_rows,), dtype=int
        Positions of the rows that they were asked for.
    """

    columns: list
    rows: Any


class LazyFeatures:
    """Features that are fetched from a source only when they are needed; replaces a matrix.

    ``predict``, ``predict_proba``, ``predict_cost`` and the other methods of the estimators that
    buy features accept it as `X`, and so does a :class:`CostAwarePipeline` that ends in one.
    Each row is asked for what its decision needs and for nothing twice within one call.

    Parameters
    ----------
    source : callable or mapping
        A callable ``source(columns, rows)`` returns an array-like of shape
        ``(len(rows), len(columns))`` or a data frame; `columns` are the names seen in fit, or
        positions if fit saw none, `rows` are positions (ndarray of int). A mapping has for each
        column an array-like of shape ``(n_samples,)`` or a callable ``f(rows)`` that
        returns the values of those rows.

    n_samples : int, default=None
        Number of rows. May be left out for a mapping that holds an array.

    Attributes
    ----------
    acquisition_log_ : list of Purchase
        The receipt: every request that was answered so far, in order, as named tuples
        ``(columns, rows)``. A request that failed is not among them.

    shape : tuple of int
        ``(n_samples,)``.

    Raises
    ------
    ValueError
        If `source` is neither, or the number of rows cannot be told; in a call, if
        `source` returns what a matrix could not hold.

    See Also
    --------
    CostAwarePipeline : Transformers before an estimator that buys features.

    Notes
    -----
    ``lazy[rows]`` is a part of the rows. It has the receipt of the whole, in positions of the
    whole, so that scikit-learn's validation can split it.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.features import LazyFeatures
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> lazy = LazyFeatures(lambda columns, rows: X[np.ix_(rows, columns)], n_samples=3)
    >>> lazy.read([1], np.array([0, 2]))
    array([[1.],
           [5.]])
    >>> lazy.acquisition_log_
    [Purchase(columns=[1], rows=array([0, 2]))]
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
        self.acquisition_log_ = []
        self._positions = None

    def __len__(self):
        return self.n_samples

    @property
    def shape(self):
        """One axis: the columns are the source's."""
        return (self.n_samples,)

    def __getitem__(self, rows):
        if isinstance(rows, tuple):
            rows = rows[0]
        every = (
            np.arange(self.n_samples) if self._positions is None else self._positions
        )
        positions = np.atleast_1d(every[rows])
        part = LazyFeatures.__new__(LazyFeatures)
        part.source, part.n_samples = self.source, len(positions)
        part.acquisition_log_, part._positions = self.acquisition_log_, positions
        return part

    def fetch(self, columns, rows):
        """Ask the source for columns of rows, and keep what it returns as it is.

        Parameters
        ----------
        columns : list of str or int
        rows : ndarray of shape (n_rows,), dtype=int

        Returns
        -------
        list of ndarray of shape (n_rows,)
            The cells of each column, in the order of `columns`.
        """
        cells = self._ask(columns, rows)
        self._note(columns, rows)
        return cells

    def read(self, columns, rows):
        """Ask the source for columns of rows, as numbers.

        Parameters
        ----------
        columns : list of str or int
        rows : ndarray of shape (n_rows,), dtype=int

        Returns
        -------
        ndarray of shape (n_rows, n_columns), dtype=float64
        """
        found = [numbers_of(cells) for cells in self._ask(columns, rows)]
        if wrong := [name for name, numbers in zip(columns, found) if numbers is None]:
            raise ValueError(
                "The feature source returned values that are not real numbers for the columns "
                f"{wrong!r}."
            )
        self._note(columns, rows)
        return np.column_stack(found)

    def _ask(self, columns, rows):
        """The cells of each column that the source returns."""
        columns, shape = list(columns), (len(rows), len(columns))
        rows = self._positions[rows] if self._positions is not None else rows
        if isinstance(self.source, Mapping):
            if missing := [column for column in columns if column not in self.source]:
                raise ValueError(f"The feature source has no entry for {missing!r}.")
            parts = [self.source[column] for column in columns]
            parts = [
                part(rows) if callable(part) else _as_given(part)[rows]
                for part in parts
            ]
        else:
            parts = _columns_of(self.source(columns, rows), columns, shape)
        for column, part in zip(columns, parts):
            if np.shape(part) != shape[:1]:
                raise ValueError(
                    f"The feature source returned an array of shape {np.shape(part)} for "
                    f"{shape[0]} rows of the column {column!r}; it must be {shape[:1]}."
                )
        return parts

    def _note(self, columns, rows):
        rows = self._positions[rows] if self._positions is not None else rows
        self.acquisition_log_.append(Purchase(list(columns), rows))


def _as_given(part):
    """An array that can be indexed; text stays text, and masked cells masked."""
    if isinstance(part, list) and any(is_text(cell) or cell is None for cell in part):
        return np.array(part, dtype=object)
    return np.asanyarray(part)


def _columns_of(table, columns, shape):
    """The columns of a table by name; one without names has them in the order asked for."""
    if is_frame(table):
        names = column_keys(table)
        missing = [column for column in columns if column not in names]
        if missing and any(isinstance(column, str) for column in columns):
            raise ValueError(f"The feature source returned no column {missing!r}.")
        names = names if missing else columns
        own = dict(zip(*names_and_columns(table)))
        found, parts = (len(table), len(names)), [own[name] for name in names]
    else:
        table = np.asanyarray(table, dtype=None if hasattr(table, "dtype") else object)
        found, parts = table.shape, table.T
    if found != shape:
        raise ValueError(
            f"The feature source returned an array of shape {found} for {shape[0]} rows of the "
            f"columns {columns!r}; it must be {shape}."
        )
    return list(parts)


class RawRows(NamedTuple):
    """What rows of `fit` looked like, to make others of single cells."""

    # Of the columns, or their positions.
    names: list
    # Of the frame; None of an array.
    library: str | None
    dtypes: list
    # The first cell of each column that is not missing; None if all are.
    filler: list

    @classmethod
    def of(cls, X):
        """Return what the rows of `fit` looked like."""
        names, columns = names_and_columns(X)
        library = None if names is None else type(X).__module__.split(".")[0]
        return cls(
            list(range(len(columns))) if names is None else names,
            library,
            [type_of(column) for column in columns],
            [_first_known(column) for column in columns],
        )

    def rows(self, cells, n_rows):
        """Return rows as in `fit` of the cells of some columns, by position; others are filled."""
        table = [cells.get(at, [cell] * n_rows) for at, cell in enumerate(self.filler)]
        if self.library is None:
            return self._array(table)
        library = import_module(self.library)
        make_column = _COLUMN_MAKERS.get(self.library, _other_column)
        columns = {}
        for name, own, dtype in zip(self.names, table, self.dtypes):
            if kind_of_type(dtype) == DATE and dates_of(own) is None:
                raise ValueError(
                    f"Column {name!r} held dates in fit, and now something else."
                )
            if _is_numeric(dtype) and numbers_of(own) is None:
                raise ValueError(
                    f"Column {name!r} held numbers in fit, and now something else."
                )
            columns[name] = make_column(library, own, dtype)
        return (
            library.table(columns)
            if self.library == "pyarrow"
            else library.DataFrame(columns)
        )

    def _array(self, table):
        """Return columns as an array of the dtype of `fit`, wide enough for what is missing."""
        dtype = np.result_type(self.dtypes[0], np.float16)
        if dtype.kind == "f" and any(numbers_of(own) is None for own in table):
            raise ValueError("X held numbers in fit, and now something else.")
        return np.column_stack([cells_of(own) for own in table]).astype(dtype)


def _first_known(column):
    """Return the first cell of a column that is not missing, None if all are."""
    first = cells_of(column[:1])[0]
    if first is not None:
        return first
    return next((cell for cell in cells_of(column) if cell is not None), None)


def _is_numeric(dtype):
    """Return True for the dtype of a column of numbers in any library."""
    if hasattr(dtype, "is_numeric"):
        return dtype.is_numeric()
    name = str(dtype).lower().removeprefix("sparse[")
    return re.match(r"u?int\d|float|double|halffloat|bool|decimal", name) is not None


def _pandas_column(pandas, cells, dtype):
    """Cells as a series of a dtype; whole numbers of `fit` may have gaps and fractions now."""
    if getattr(getattr(cells, "dtype", None), "kind", "") == "M":
        # Without the labels of a series, by which the columns would be put side by side.
        return pandas.Series(np.asarray(cells)).astype(dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        # By value, as `ColumnReader` finds them; a cell that is none of them is missing.
        places = {text: at for at, text in enumerate(texts_of(dtype.categories))}
        codes = [places.get(text, -1) for text in texts_of(cells)]
        return pandas.Series(pandas.Categorical.from_codes(codes, dtype=dtype))
    cells = cells_of(cells)
    cells[[cell is None for cell in cells]] = np.nan
    if isinstance(dtype, np.dtype) and dtype.kind in "iub" and not _are_whole(cells):
        dtype = np.dtype(np.float64)
    return pandas.Series(cells).astype(dtype)


def _arrow_column(pyarrow, cells, dtype):
    """Return cells as an array of an Arrow type; whole numbers of `fit` may have fractions now."""
    cells = cells_of(cells)
    if pyarrow.types.is_dictionary(dtype) and "string" in str(dtype.value_type):
        cells = texts_of(cells)
    if pyarrow.types.is_integer(dtype) and not _are_whole(cells):
        dtype = pyarrow.float64()
    return pyarrow.array(list(cells), type=dtype)


def _other_column(polars, cells, dtype):
    cells = texts_of(cells) if kind_of_type(dtype) == CATEGORY else cells_of(cells)
    if dtype.is_integer() and not _are_whole(cells):
        dtype = polars.Float64
    return polars.Series(list(cells), dtype=dtype, strict=False)


_COLUMN_MAKERS = {"pandas": _pandas_column, "pyarrow": _arrow_column}


def _are_whole(cells):
    """Return True if all numbers are whole and none is NaN; None is a gap, not a number."""
    return all(float(cell).is_integer() for cell in cells if cell is not None)
