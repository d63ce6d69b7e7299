"""Features that are fetched when a row needs them."""

import re
from collections.abc import Mapping
from copy import copy
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

# Code of a missing cell in a categorical column of pandas.
_PANDAS_MISSING_CODE = -1


class Purchase(NamedTuple):
    """Columns and rows of one answered request to the source of lazy features.

    It is an entry of ``LazyFeatures.acquisition_log_``.

    Attributes
    ----------
    columns : list of str or int
        Names or positions of the columns that the source returned.

    rows : ndarray of shape (n_rows,), dtype=int
        Positions of the rows for which it returned them.
    """

    columns: list
    rows: Any


class LazyFeatures:
    """Features that are fetched when they are needed, in place of a matrix.

    ``predict``, ``predict_proba``, ``predict_cost`` and the other methods of the
    estimators that buy features accept it as `X`, and so does a
    :class:`CostAwarePipeline` that ends in one. For each row only the features that its
    decision needs are fetched, each once within a call.

    Parameters
    ----------
    source : callable or mapping
        A callable ``source(columns, rows)`` returns an array-like of shape
        ``(len(rows), len(columns))`` or a data frame. `columns` are the names seen in
        fit, or positions if fit saw no names. `rows` are positions (ndarray of int). A
        mapping has for each column an array-like of shape ``(n_samples,)`` or a
        callable ``f(rows)`` that returns the values of those rows.

    n_samples : int, default=None
        Number of rows. May be left out for a mapping with an array.

    Attributes
    ----------
    acquisition_log_ : list of Purchase
        All requests that were answered so far, in order, as named tuples ``(columns,
        rows)``. A request that failed is not among them.

    shape : tuple of int
        ``(n_samples,)``.

    Raises
    ------
    ValueError
        If `source` is neither a callable nor a mapping, or the number of rows is not
        clear. In a call, if `source` returns an array of another shape, or cells that a
        matrix cannot contain.

    See Also
    --------
    CostAwarePipeline : Transformers before an estimator that buys features.

    Notes
    -----
    ``lazy[rows]`` selects some of the rows, so that scikit-learn's validation can split
    lazy features. All selections share one log. Its positions are among all rows.

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
                "source must be a callable (columns, rows) -> array or a mapping from "
                f"column to array or callable, got {source!r}."
            )
        if isinstance(source, Mapping):
            n_samples = _check_n_samples(source, n_samples)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(
                "n_samples must be a positive integer: the number of rows that source "
                f"can be asked for, got {n_samples!r}."
            )
        self.source = source
        self.n_samples = int(n_samples)
        self.acquisition_log_ = []
        # Position of each row in the source, (n_samples,). None: all rows, in order.
        self._positions = None

    def __len__(self):
        return self.n_samples

    @property
    def shape(self):
        """Number of rows, as a tuple of one: the number of columns is not known."""
        return (self.n_samples,)

    def __getitem__(self, rows):
        """Return lazy features of some rows, with the `acquisition_log_` of all rows.

        `rows` are an integer, a slice, positions or a mask.
        """
        # The index ``lazy[rows, ...]`` is a tuple. Only its first axis is read.
        if isinstance(rows, tuple):
            rows = rows[0]
        # A shallow copy shares the list of answered requests, `acquisition_log_`.
        selection = copy(self)
        all_positions = self._in_source(np.arange(self.n_samples))
        # An integer selects one row: `atleast_1d` makes an array of its position.
        selection._positions = np.atleast_1d(all_positions[rows])
        selection.n_samples = len(selection._positions)
        return selection

    def fetch(self, columns, rows):
        """Fetch columns of some rows, as the source returns them.

        Parameters
        ----------
        columns : list of str or int
            Names, or positions if there are no names.

        rows : ndarray of shape (n_rows,), dtype=int
            Positions of the rows.

        Returns
        -------
        list of ndarray of shape (n_rows,)
            The cells of each column, in the order of `columns`.
        """
        cells = self._ask(columns, rows)
        self._log(columns, rows)
        return cells

    def read(self, columns, rows):
        """Fetch columns of some rows, as numbers.

        Parameters
        ----------
        columns : list of str or int
            Names, or positions if there are no names.

        rows : ndarray of shape (n_rows,), dtype=int
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_rows, n_columns), dtype=float64
            The cells.
        """
        # An array (n_rows,) for each column. None if a cell of the column is no number.
        arrays = [numbers_of(cells) for cells in self._ask(columns, rows)]
        not_numbers = [name for name, array in zip(columns, arrays) if array is None]
        if not_numbers:
            raise ValueError(
                "The feature source returned values that are not real numbers for the "
                f"columns {not_numbers!r}."
            )
        self._log(columns, rows)
        return np.column_stack(arrays)

    def _ask(self, columns, rows):
        """Request columns from the source, and check the shapes of its answer.

        The request is not yet logged.

        Parameters
        ----------
        columns : list of str or int
            Names or positions of the requested columns.

        rows : ndarray of int of shape (n_rows,)
            Positions among the rows of this object.

        Returns
        -------
        list of array-like of shape (n_rows,)
            The cells of each requested column.
        """
        columns = list(columns)
        source_rows = self._in_source(rows)
        if isinstance(self.source, Mapping):
            arrays = _ask_mapping(self.source, columns, source_rows)
        else:
            table = self.source(columns, source_rows)
            arrays = _columns_of_table(table, columns, n_rows=len(rows))
        expected_shape = (len(rows),)
        for column, array in zip(columns, arrays):
            if np.shape(array) != expected_shape:
                raise ValueError(
                    f"The feature source returned an array of shape {np.shape(array)} "
                    f"for {len(rows)} rows of the column {column!r}; it must be "
                    f"{expected_shape}."
                )
        return arrays

    def _log(self, columns, rows):
        """Add a request to ``acquisition_log_``, after the source has answered it.

        Parameters
        ----------
        columns : sequence of str or int
            Names or positions of the columns that the source has returned.

        rows : ndarray of int of shape (n_rows,)
            Positions among the rows of this object. The log has positions in the
            source.
        """
        purchase = Purchase(list(columns), self._in_source(rows))
        self.acquisition_log_.append(purchase)

    def _in_source(self, rows):
        """Turn positions among the rows of this object into positions in the source.

        `rows` and the result have shape (n_rows,).
        """
        if self._positions is None:
            # This object has all rows of the source, in order.
            return rows
        return self._positions[rows]


def _check_n_samples(source, n_samples):
    """Return the number of rows of a mapping, or raise an error if lengths differ.

    Parameters
    ----------
    source : mapping from column to array-like or callable

    n_samples : int or None
        The parameter of :class:`LazyFeatures`.

    Returns
    -------
    int or None
        None if the mapping has no array and `n_samples` is None.
    """
    lengths = set()
    for name, column in source.items():
        if callable(column):
            continue  # it has no length
        if np.ndim(column) == 0:
            raise ValueError(
                "source must have an array of shape (n_samples,) or a callable for "
                f"each column, got {column!r} for {name!r}."
            )
        lengths.add(len(column))
    if n_samples is not None:
        lengths.add(n_samples)
    if len(lengths) > 1:
        raise ValueError(
            "The arrays in source must have one length, that of n_samples, "
            f"got {sorted(lengths)}."
        )
    return lengths.pop() if lengths else None


def _ask_mapping(source, columns, rows):
    """Return the cells of each column of a mapping, as a list of arrays.

    Parameters
    ----------
    source : mapping from column to array-like or callable

    columns : list of str or int
        Keys of the mapping.

    rows : ndarray of int of shape (n_rows,)
        Positions in the source.

    Returns
    -------
    list of array-like of shape (n_rows,)
    """
    missing = [column for column in columns if column not in source]
    if missing:
        raise ValueError(f"The feature source has no entry for {missing!r}.")
    arrays = []
    for column in columns:
        entry = source[column]
        if callable(entry):
            arrays.append(entry(rows))
        else:
            arrays.append(_as_array(entry)[rows])
    return arrays


def _as_array(column):
    """Return a column as an array, and keep its texts and its mask of missing cells."""
    if isinstance(column, list):
        # NumPy would turn numbers and None into texts if the list contains a text.
        if any(is_text(cell) or cell is None for cell in column):
            return np.array(column, dtype=object)
    return np.asanyarray(column)


def _columns_of_table(table, columns, *, n_rows):
    """Return the requested columns of a table that a source returned, as a list.

    A frame is read by name. If positions were requested and they are not names of the
    frame, it is read in order, as an array is.

    Parameters
    ----------
    table : data frame or array-like of shape (n_rows, n_columns)

    columns : list of str or int
        The requested columns.

    n_rows : int
        Number of requested rows.

    Returns
    -------
    list of array-like of shape (n_rows,)
    """
    if is_frame(table):
        arrays = _columns_of_frame(table, columns)
        shape = len(table), len(arrays)
    else:
        # Cells of a list stay as they are: NumPy would turn numbers next to texts into
        # texts.
        dtype = None if hasattr(table, "dtype") else object
        table = np.asanyarray(table, dtype=dtype)
        # Each row of the transposed table is a column.
        arrays = table.T
        shape = table.shape
    expected_shape = n_rows, len(columns)
    if shape != expected_shape:
        raise ValueError(
            f"The feature source returned an array of shape {shape} for {n_rows} rows "
            f"of the columns {columns!r}; it must be {expected_shape}."
        )
    return list(arrays)


def _columns_of_frame(frame, columns):
    """Return the requested columns of a frame, by name, or by position in order.

    Parameters
    ----------
    frame : data frame

    columns : list of str or int
        The requested columns.

    Returns
    -------
    list of series
    """
    frame_keys = column_keys(frame)
    missing = [column for column in columns if column not in frame_keys]
    requests_names = any(isinstance(column, str) for column in columns)
    if missing and requests_names:
        raise ValueError(f"The feature source returned no column {missing!r}.")
    frame_names, frame_columns = names_and_columns(frame)
    if missing:
        # Positions were requested: all columns of the frame are read in order.
        return list(frame_columns)
    column_of_name = dict(zip(frame_names, frame_columns))
    return [column_of_name[name] for name in columns]


# Rows in the form of `fit`, made from single cells ------------------------------------


class RawRows(NamedTuple):
    """Form of the rows of `fit`: names, data-frame library and types of the columns.

    :meth:`rows` makes new rows of this form from the cells of some columns.

    Attributes
    ----------
    names : list
        Names of the columns, or their positions.

    library : str or None
        Library of the frame; None if the rows were an array.

    dtypes : list
        Type of each column.

    filler : list
        For each column its first cell that is not missing, or None if all are missing.
        It replaces cells that were not fetched.
    """

    names: list
    library: str | None
    dtypes: list
    filler: list

    @classmethod
    def of(cls, X):
        """Return the form of training rows: names, library, dtypes and first cells.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_columns)

        Returns
        -------
        RawRows
        """
        names, columns = names_and_columns(X)
        if names is None:
            # The rows are an array. Its columns are named by their positions.
            library = None
            names = list(range(len(columns)))
        else:
            # The name of a module begins with its library: "pandas.core.frame".
            library = type(X).__module__.split(".")[0]
        return cls(
            names=names,
            library=library,
            dtypes=[type_of(column) for column in columns],
            filler=[_first_present_cell(column) for column in columns],
        )

    def rows(self, cells, n_rows):
        """Make rows in the form of `fit` from the cells of some columns.

        Parameters
        ----------
        cells : dict from int to array-like of shape (n_rows,)
            Cells of some columns, by the position of the column. Each other column is
            filled with one training cell.

        n_rows : int

        Returns
        -------
        array or data frame of shape (n_rows, n_columns)
        """
        columns = []
        # Models and transformers read whole rows, even if they use few columns.
        for position, filler in enumerate(self.filler):
            if position in cells:
                columns.append(cells[position])
            else:
                columns.append([filler] * n_rows)
        if self.library is None:
            return self._make_array(columns)
        return self._make_frame(columns)

    def _make_frame(self, columns):
        """Return columns as a frame of the library of `fit`.

        `columns` is a list of array-like of shape (n_rows,), one for each column.
        """
        library = import_module(self.library)
        make_column = _column_maker(self.library)
        frame_columns = {}
        for name, column, dtype in zip(self.names, columns, self.dtypes):
            _check_kind(name, column, dtype)
            frame_columns[name] = make_column(library, column, dtype)
        if self.library == "pyarrow":
            return library.table(frame_columns)
        return library.DataFrame(frame_columns)

    def _make_array(self, columns):
        """Return columns as an array of the dtype of `fit`, or of floats with NaN.

        Parameters
        ----------
        columns : list of array-like of shape (n_rows,)
            One for each column of `fit`.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        # All columns of an array have one dtype.
        dtype_in_fit = self.dtypes[0]
        # Integers become floats: a cell may be missing now, and only floats can be NaN.
        # `result_type` keeps dtypes of floats and objects: float16 is the smallest.
        dtype = np.result_type(dtype_in_fit, np.float16)
        # `numbers_of` returns None if a cell is not a number.
        if dtype.kind == "f" and any(numbers_of(column) is None for column in columns):
            raise ValueError("X held numbers in fit, and now something else.")
        # (n_rows, n_columns), dtype=object
        cells = np.column_stack([cells_of(column) for column in columns])
        return cells.astype(dtype)


def _check_kind(name, column, dtype):
    """Raise an error if a column of dates or numbers in `fit` has other cells now.

    Parameters
    ----------
    name : str
        Name of the column.

    column : array-like of shape (n_rows,)
        Its cells now.

    dtype : dtype
        Its type in `fit`.
    """
    if kind_of_type(dtype) == DATE and dates_of(column) is None:
        raise ValueError(f"Column {name!r} held dates in fit, and now something else.")
    if _is_numeric(dtype) and numbers_of(column) is None:
        raise ValueError(
            f"Column {name!r} held numbers in fit, and now something else."
        )


def _first_present_cell(column):
    """Return the first cell that is not missing, or None if all are missing.

    `column` is a series or an array of shape (n_rows,).
    """
    # The first cell is nearly always present. The column is then not read as a whole.
    first_cell = cells_of(column[:1])[0]
    if first_cell is not None:
        return first_cell
    for cell in cells_of(column):
        if cell is not None:
            return cell
    return None


def _is_numeric(dtype):
    """Return True for the dtype of a column of numbers in any library."""
    if hasattr(dtype, "is_numeric"):
        return dtype.is_numeric()  # polars
    # A sparse dtype of pandas has the dtype of its cells in its name.
    name = str(dtype).lower().removeprefix("sparse[")
    # Names of numeric dtypes begin alike in numpy, pandas and Arrow.
    return re.match(r"u?int\d|float|double|halffloat|bool|decimal", name) is not None


def _column_maker(library_name):
    """Return the function that makes a column of a frame of a library.

    It is called with the library, the cells of the column, and its dtype in `fit`.
    """
    if library_name == "pandas":
        return _pandas_column
    if library_name == "pyarrow":
        return _arrow_column
    return _polars_column


def _pandas_column(pandas, cells, dtype):
    """Return cells as a pandas series of the dtype of `fit`.

    A column of whole numbers in `fit` becomes one of floats if some cells are missing
    or fractions now.

    Parameters
    ----------
    pandas : module

    cells : array-like of shape (n_rows,)

    dtype : dtype
        Type of the column in `fit`.

    Returns
    -------
    pandas.Series
    """
    cells_dtype = getattr(cells, "dtype", None)
    # M is numpy's kind of dates.
    if getattr(cells_dtype, "kind", "") == "M":
        # The cells lose their index here: pandas would align columns by their indices.
        return pandas.Series(np.asarray(cells)).astype(dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        # Categories and cells are compared as texts, as in `ColumnReader`.
        category_texts = texts_of(dtype.categories)
        code_of_text = {text: code for code, text in enumerate(category_texts)}
        # A cell that is not among the categories becomes a missing cell.
        cell_codes = [
            code_of_text.get(text, _PANDAS_MISSING_CODE) for text in texts_of(cells)
        ]
        return pandas.Series(pandas.Categorical.from_codes(cell_codes, dtype=dtype))
    # A new array, in which cells may be replaced.
    cells = cells_of(cells)
    is_missing = [cell is None for cell in cells]
    cells[is_missing] = np.nan
    # Kinds of dtypes: whole numbers with and without sign, and booleans.
    holds_whole_numbers = isinstance(dtype, np.dtype) and dtype.kind in "iub"
    if holds_whole_numbers and not _are_whole(cells):
        dtype = np.dtype(np.float64)
    return pandas.Series(cells).astype(dtype)


def _arrow_column(pyarrow, cells, dtype):
    """Return cells as an Arrow array of the type of `fit`.

    A type of whole numbers becomes one of floats if some cells are fractions. The
    parameters are those of :func:`_pandas_column`.
    """
    cells = cells_of(cells)
    # Dictionaries are Arrow's categories. Their values may be texts.
    if pyarrow.types.is_dictionary(dtype) and "string" in str(dtype.value_type):
        cells = texts_of(cells)
    if pyarrow.types.is_integer(dtype) and not _are_whole(cells):
        dtype = pyarrow.float64()
    return pyarrow.array(list(cells), type=dtype)


def _polars_column(polars, cells, dtype):
    """Return cells as a polars series of the dtype of `fit`.

    A type of whole numbers becomes one of floats if some cells are fractions. The
    parameters are those of :func:`_pandas_column`.
    """
    if kind_of_type(dtype) == CATEGORY:
        cells = texts_of(cells)
    else:
        cells = cells_of(cells)
    if dtype.is_integer() and not _are_whole(cells):
        dtype = polars.Float64
    # Not strict: a cell that cannot be cast to the dtype becomes a missing cell.
    return polars.Series(list(cells), dtype=dtype, strict=False)


def _are_whole(cells):
    """Return True if all numbers are whole and none is NaN.

    None, a missing cell, is left out: Arrow and polars have whole numbers that are
    missing.
    """
    return all(float(cell).is_integer() for cell in cells if cell is not None)
