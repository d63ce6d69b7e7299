"""Columns of frames as numbers, read in the way that `fit` read them."""

import sys
from collections.abc import Mapping
from datetime import date, datetime
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from skroute.utils._tensors import on_host

# Kinds of columns.
NUMBER = "number"
DATE = "date"
CATEGORY = "category"


# Containers of rows: frames, arrays, lists --------------------------------------------


def is_arrow(X):
    """Return True for a table, record batch or array of pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def column_keys(X):
    """Return the keys of the columns of a data frame or Arrow table, or else None.

    Parameters
    ----------
    X : object

    Returns
    -------
    list or None
        None: `X` has no named columns.
    """
    if not (hasattr(X, "columns") and hasattr(X, "__getitem__")):
        return None
    if is_arrow(X):
        # The `columns` of an Arrow table are the values.
        return list(X.schema.names)
    return list(X.columns)


def is_frame(X):
    """Return True if rows have named columns."""
    return column_keys(X) is not None


def is_mapping(X):
    """Return True for a mapping that is not a sparse matrix (of format "dok")."""
    return isinstance(X, Mapping) and not issparse(X)


def indexable_rows(X):
    """Convert rows of Arrow into a container that scikit-learn and models can read.

    A record batch becomes a table, a chunked array or array becomes a NumPy array.
    Anything else is returned as it is.
    """
    if not is_arrow(X):
        return X
    if not is_frame(X):
        return _array_of_series(X)
    arrow = sys.modules["pyarrow"]
    if isinstance(X, arrow.RecordBatch):
        return arrow.Table.from_batches([X])
    return X


def as_rows(X):
    """Return rows as a frame, sparse matrix or array, whose columns can be selected.

    Lists and series become arrays. Their texts stay texts and their numbers stay
    numbers.
    """
    X = indexable_rows(on_host(X))
    if issparse(X):
        # Not all formats can be indexed.
        return X.tocsr()
    if is_frame(X) or isinstance(X, np.ndarray):
        return X
    if hasattr(X, "to_numpy"):
        return _array_of_series(X)
    # Other containers that can be indexed by a list of rows stay as they are. A
    # memoryview cannot be.
    has_shape_and_items = hasattr(X, "shape") and hasattr(X, "__getitem__")
    if has_shape_and_items and not isinstance(X, memoryview):
        return X
    # Lists, and objects that NumPy can only convert as a whole.
    return array_of(X)


def array_of(values):
    """Return values as an array. Texts next to other values become objects.

    NumPy alone would turn numbers and NaN into texts if they stand next to a text.

    Parameters
    ----------
    values : array-like

    Returns
    -------
    ndarray
    """
    array = np.asarray(values)
    # Kinds of dtypes: U is text, S is bytes. Values with a dtype were an array before,
    # whose cells are all texts.
    if array.dtype.kind in "US" and not hasattr(values, "dtype"):
        cells = np.array(values, dtype=object)
        if not all(map(is_text, cells.flat)):
            return cells
    return array


def _array_of_series(series):
    """Return a series as an array. Missing values among objects become None."""
    array = np.asarray(series)
    # Kind O: Python objects.
    return cells_of(series) if array.dtype.kind == "O" else array


# Single cells, and columns as cells ---------------------------------------------------


def with_dense_columns(X):
    """Return a pandas frame with dense columns. Anything else is returned as it is."""
    if not hasattr(X, "iloc") or X.ndim != 2:
        return X
    sparse = [column for column, dtype in enumerate(X.dtypes) if is_sparse_type(dtype)]
    if not sparse:
        return X
    X = X.copy(deep=False)
    for column in sparse:
        X.isetitem(column, X.iloc[:, column].sparse.to_dense())
    return X


def is_sparse_type(dtype):
    """Return True for pandas' type of sparse columns, which are read-only."""
    return type(dtype).__name__ == "SparseDtype"


def is_missing(cell):
    """Return True if a cell is None, NaN, masked, pandas' NA or NaT."""
    if (
        cell is None
        or cell is np.ma.masked
        or type(cell).__name__ in ("NAType", "NaTType")
    ):
        return True
    # NaN and numpy's NaT are the only values that differ from themselves.
    kinds = (float, np.floating, np.datetime64, np.timedelta64)
    return isinstance(cell, kinds) and bool(cell != cell)


def cells_of(column):
    """Return a column as an array of Python objects. Missing cells are None.

    Parameters
    ----------
    column : series, array or sequence of n_rows cells

    Returns
    -------
    ndarray of shape (n_rows,), dtype=object
    """
    # Arrow's own cells are wrapped. `to_pylist` unwraps them.
    cells = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return np.fromiter(map(_cell, cells), dtype=object, count=len(cells))


def _cell(cell):
    """Return a cell as a Python object, None if it is missing."""
    if is_missing(cell):
        return None
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        # In microseconds: `item` turns finer units, such as nanoseconds, into a whole
        # number.
        cell = cell.astype(f"{cell.dtype.kind}8[us]")
    return cell.item() if isinstance(cell, np.generic) else cell


def is_text(cell):
    """Return True for str and bytes."""
    return isinstance(cell, (str, bytes))


def texts_of(column):
    """Return the cells of a column as texts. Missing cells are None.

    A whole number has the same text in all containers: pandas turns 1 into 1.0 if
    another cell of the column is missing, and a file of codes has "1" next to other
    texts. True is 1, as in an array of numbers. A text is itself: "1.0" and "01" differ
    from "1". Bytes are read as UTF-8.
    """
    return np.array([_text(cell) for cell in cells_of(column)], dtype=object)


def _text(cell):
    """Return one cell as a text, None if it is missing.

    True becomes "1" and 2.0 becomes "2", as whole numbers do: in an array of numbers,
    True is stored as 1, and 2 as 2.0. One category must not have two texts.

    Parameters
    ----------
    cell : object
        From `cells_of`: None if it is missing.

    Returns
    -------
    str or None
    """
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode(errors="backslashreplace")
    # Truth values, and floats that are whole numbers.
    if isinstance(cell, (bool, float)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


def numbers_of(column, lenient=False):
    """Return a column as float64, or None if a cell is not a number.

    Missing cells are NaN. A text is not a number, even if it consists of digits: "007"
    and "7" are two article numbers.

    Parameters
    ----------
    column : series, array or sequence of n_rows cells
    lenient : bool, default=False
        If True, cells that are not numbers become NaN, and None is never returned.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64, or None
    """
    # As an array without a mask, masked cells would be numbers.
    if not np.ma.isMaskedArray(column):
        array = np.asarray(column)
        # Kinds of dtypes: booleans, whole numbers with and without sign, floats.
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    numbers = [_number(cell) for cell in cells_of(column)]
    # `_number` returns None for a cell that is not a number.
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    if not lenient:
        return None
    return np.array([np.nan if number is None else number for number in numbers])


def _number(cell):
    """Return a cell as a float, NaN if it is missing, None if it is not a number."""
    if cell is None:
        return np.nan
    # Python's `float` also reads texts: "1_1" would be 11, and "nan" would be missing.
    if is_text(cell):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def type_of(column):
    """Return the dtype of a column, or None if it has none."""
    if is_arrow(column):
        return column.type
    return getattr(column, "dtype", None)


def kind_of_type(dtype):
    """Return the kind of a column by its dtype, or None if only its cells show it.

    Parameters
    ----------
    dtype : dtype of pandas, polars, Arrow or NumPy, or None

    Returns
    -------
    {CATEGORY, DATE} or None
    """
    # Names of dtypes start alike in all libraries: "category", "Categorical", ...
    name = str(dtype).lower()
    if name.startswith(("categor", "enum", "dictionary")):
        return CATEGORY
    if name.startswith(("date", "timestamp")):
        return DATE
    return None


def dates_of(column):
    """Return a column of dates as seconds since 1970, or None if a cell is not a date.

    Parameters
    ----------
    column : series, array or sequence of n_rows cells

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64, or None
        Missing cells are NaN.
    """
    cells = cells_of(column)
    if not all(cell is None or isinstance(cell, date) for cell in cells):
        return None
    dates = np.array([_universal(cell) for cell in cells], dtype="datetime64[us]")
    seconds = dates.astype(np.int64) / 1e6  # from microseconds
    return np.where(np.isnat(dates), np.nan, seconds)


def _universal(moment):
    """Return a date in UTC, without its time zone.

    A date without a time zone is returned as it is. So is None, a missing date.
    """
    offset = moment.utcoffset() if isinstance(moment, datetime) else None
    if offset is None:
        return moment
    return (moment - offset).replace(tzinfo=None)


# Columns of frames and arrays ---------------------------------------------------------


class ColumnReader(NamedTuple):
    """Reader of one column: as numbers, dates or categories, by its cells in `fit`.

    Attributes
    ----------
    name : object
        Name of the column, for messages.
    kind : {NUMBER, DATE, CATEGORY}
        Kind of the cells.
    all_missing : bool, default=False
        True if all cells were missing in `fit`. Cells that are not numbers are then
        read as missing.
    codes : dict from str to int, default=None
        Codes of the categories in the order of their texts. None for another kind.
    """

    name: Any
    kind: str
    all_missing: bool = False
    codes: dict[str, int] | None = None

    @classmethod
    def fit(cls, column, name):
        """Find the kind of a column by its cells in `fit`, and return its reader.

        Texts are categories, also those that consist of digits. A pandas, polars or
        Arrow category is a category, also if its cells are numbers.

        Parameters
        ----------
        column : series, array or sequence of n_rows cells
        name : object
            Name of the column, for messages.

        Returns
        -------
        ColumnReader

        Raises
        ------
        TypeError
            If cells are of another kind, or if numbers stand next to dates.
        """
        kind = kind_of_type(type_of(column))
        if kind is None:
            cells = [cell for cell in cells_of(column) if cell is not None]
            # If all cells are missing, the column is read as a column of numbers.
            if numbers_of(column) is not None:
                return cls(name, NUMBER, all_missing=not cells)
            if all(isinstance(cell, date) for cell in cells):
                kind = DATE
            elif any(map(is_text, cells)):
                kind = CATEGORY
            else:
                raise TypeError(
                    f"Column {name!r} must hold numbers, strings, categories or dates, "
                    f"got cells of {type(cells[0]).__name__}. Turn them into one of "
                    "these first."
                )
        if kind == DATE:
            return cls(name, kind)
        texts = sorted(set(texts_of(column)) - {None})  # None: missing cells
        return cls(name, kind, codes={text: code for code, text in enumerate(texts)})

    def read(self, column):
        """Return a column as float64. Missing cells and unknown categories are NaN.

        Parameters
        ----------
        column : series, array or sequence of n_rows cells

        Returns
        -------
        ndarray of shape (n_rows,), dtype=float64
            Numbers, seconds since 1970, or codes of categories.
        """
        if self.kind == CATEGORY:
            codes = [self.codes.get(text, np.nan) for text in texts_of(column)]
            return np.array(codes, dtype=np.float64)
        if self.kind == DATE:
            numbers = dates_of(column)
        else:
            numbers = numbers_of(column, lenient=self.all_missing)
        # None: some cell is of another kind.
        if numbers is None:
            # The message does not show the cell, which may be private.
            raise ValueError(
                f"Column {self.name!r} held {self.kind}s in fit, and now something "
                "else." + self._advice(column)
            )
        return numbers

    def _advice(self, column):
        """Return advice about texts in a column of numbers, or an empty text."""
        if self.kind == NUMBER and any(map(is_text, cells_of(column))):
            return (
                " Texts stay texts: convert the column to numbers, for example by "
                "astype(float)."
            )
        return ""


def names_and_columns(X):
    """Return the names of the columns of rows, and the columns.

    Parameters
    ----------
    X : data frame, Arrow table, array-like or sparse matrix of n_rows rows

    Returns
    -------
    names : list or None
        None for rows without named columns.
    columns : list of series or ndarray of shape (n_rows,)
        Rows of one dimension are one column.
    """
    names = column_keys(X)
    if names is None:
        if len(getattr(X, "shape", ())) == 1:
            return None, [X]
        X = as_rows(X)
        if issparse(X):
            X = X.toarray()
        return None, list(X.T) if X.ndim == 2 else [X]
    # Names are compared as texts: 1 and "1" are the same name.
    if len({str(name) for name in names}) < len(names):
        raise ValueError(
            f"X must not have two columns of the same name, got {names!r}."
        )
    return names, _columns_of_frame(X)


def _columns_of_frame(X):
    """Return a list of the columns of a data frame or Arrow table."""
    if is_arrow(X):
        return list(X.columns)
    if hasattr(X, "iloc"):
        # By position, since pandas allows two columns of one name.
        return [X.iloc[:, position] for position in range(X.shape[1])]
    return [X[name] for name in column_keys(X)]


def needs_encoding(X):
    """Return True if rows have texts, categories or dates, which regressors refuse.

    Parameters
    ----------
    X : data frame, array-like or sparse matrix of n_rows rows

    Returns
    -------
    bool
        False for rows that are not made of single cells, such as images.
    """
    if hasattr(X, "tocsr"):
        return False  # sparse matrices have numbers only
    if is_frame(X):
        return not all(map(_has_plain_numbers, _columns_of_frame(X)))
    rows = _cells_of_rows(X)
    if rows is None:
        return False  # not made of single cells
    _, columns = names_and_columns(rows)
    return not all(map(_has_plain_numbers, columns))


def _cells_of_rows(X):
    """Return rows if all their entries are single values, or None otherwise.

    Parameters
    ----------
    X : object

    Returns
    -------
    container of `as_rows` with one or two dimensions, or None
        Rows that are not made of Python objects become an array.
    """
    try:
        X = as_rows(X)
        array = np.asarray(X)
    except Exception:
        # Rows of the user's own kind, which only the user's models can read.
        return None
    if array.ndim not in (1, 2):
        return None
    # Kind O: Python objects, whose types are checked below.
    if array.dtype.kind != "O":
        # Booleans, whole numbers, floats, texts, bytes, texts of any width, dates.
        return array if array.dtype.kind in "biufUSTM" else None
    cell_types = (Number, str, bytes, date, np.generic)
    if all(isinstance(cell, cell_types) or is_missing(cell) for cell in array.flat):
        return X
    return None


def _has_plain_numbers(column):
    """Return True if a column has numbers only and is not a category."""
    return kind_of_type(type_of(column)) is None and numbers_of(column) is not None


def holds_missing(X):
    """Return True if rows of numbers, in an array or a frame, have a missing cell."""
    if hasattr(X, "tocsr"):
        return bool(np.isnan(X.tocsr().data).any())
    rows = as_rows(X)
    array = np.asarray(rows)
    # Kinds of dtypes: f are floats, O are objects. Cells of other kinds cannot be
    # missing.
    if array.dtype.kind == "f":
        return bool(np.isnan(array).any())
    if array.dtype.kind != "O" or array.ndim != 2:
        return False
    _, columns = names_and_columns(rows)
    for column in columns:
        numbers = numbers_of(column)
        # None: the column has cells that are not numbers. It is not searched, because
        # the encoder of columns reads it.
        if numbers is not None and np.isnan(numbers).any():
            return True
    return False


def table_of_numbers(X):
    """Return rows of numbers as a float64 array. Missing cells are NaN.

    Parameters
    ----------
    X : array-like or data frame of shape (n_rows, n_columns)

    Returns
    -------
    ndarray of shape (n_rows, n_columns), dtype=float64
    """
    _, columns = names_and_columns(X)
    columns_as_numbers = [numbers_of(column) for column in columns]
    # None: some cell of the column is not a number.
    if any(numbers is None for numbers in columns_as_numbers):
        raise ValueError("X must be numbers, got other cells. Convert them first.")
    return np.column_stack(columns_as_numbers)
