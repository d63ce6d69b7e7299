"""Columns of frames as numbers, read one by one as `fit` saw them: the one way in all rooms."""

import sys
from collections.abc import Mapping
from datetime import date, datetime
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from skroute.utils._tensors import on_host

NUMBER, DATE, CATEGORY = "number", "date", "category"


# Containers ---------------------------------------------------------------------------


def is_arrow(X):
    """Return True for a table, record batch or array of pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def column_keys(X):
    """Return the keys of the columns of a data frame or Arrow table, None for anything else."""
    if not (hasattr(X, "columns") and hasattr(X, "__getitem__")):
        return None
    if is_arrow(X):
        # The `columns` of an Arrow table are what is in them.
        return list(X.schema.names)
    return list(X.columns)


def is_frame(X):
    """Return True if rows have named columns."""
    return column_keys(X) is not None


def is_mapping(X):
    """Return True for a mapping, unless it is a sparse matrix: "dok" matrices are mappings, too."""
    return isinstance(X, Mapping) and not issparse(X)


def indexable_rows(X):
    """Return rows of Arrow in a container that scikit-learn indexes and models read.

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
    """Return rows whose columns can be taken: a frame, a sparse matrix or an array on the host.

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
    if (
        hasattr(X, "shape")
        and hasattr(X, "__getitem__")
        and not isinstance(X, memoryview)
    ):
        return X
    # Lists, and objects that have an array interface alone.
    return array_of(X)


def array_of(values):
    """Return values as an array, of objects where some are texts and others are not.

    NumPy alone would make texts of the numbers, and of NaN, next to a text.
    """
    array = np.asarray(values)
    if array.dtype.kind in "US" and not hasattr(values, "dtype"):
        cells = np.array(values, dtype=object)
        if not all(map(is_text, cells.flat)):
            return cells
    return array


def _array_of_series(series):
    """Return a series as an array, without pandas' own missing values among objects."""
    array = np.asarray(series)
    return cells_of(series) if array.dtype.kind == "O" else array


# Cells --------------------------------------------------------------------------------


def with_dense_columns(X):
    """Return a frame of pandas whose sparse columns are dense; anything else as it is."""
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
    """Return whether the type of a column is pandas' sparse one, which cannot be written to."""
    return type(dtype).__name__ == "SparseDtype"


def is_missing(cell):
    """Return True if a cell is None, NaN, masked, pandas' NA or NaT."""
    if (
        cell is None
        or cell is np.ma.masked
        or type(cell).__name__ in ("NAType", "NaTType")
    ):
        return True
    kinds = (float, np.floating, np.datetime64, np.timedelta64)
    return isinstance(cell, kinds) and bool(cell != cell)


def cells_of(column):
    """A column as an array of Python's objects, None where a cell is missing."""
    cells = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return np.fromiter(map(_cell, cells), dtype=object, count=len(cells))


def _cell(cell):
    if is_missing(cell):
        return None
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        # numpy makes whole numbers of those finer than microseconds.
        cell = cell.astype(f"{cell.dtype.kind}8[us]")
    return cell.item() if isinstance(cell, np.generic) else cell


def is_text(cell):
    """Return True for a text, also one in bytes."""
    return isinstance(cell, (str, bytes))


def texts_of(column):
    """Return the cells of a column as texts that depend on their values alone, None where missing.

    The same whole number is the same text however the rows hold it: pandas makes 1.0 of
    1 as soon as a cell of the column is missing, and a file of codes gives "1" next to
    another text. True is 1, as in an array of numbers. A text is itself: "1.0" and "01"
    differ from "1". Bytes are read as UTF-8.
    """
    return np.array([_text(cell) for cell in cells_of(column)], dtype=object)


def _text(cell):
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode(errors="backslashreplace")
    whole = isinstance(cell, (bool, float)) and float(cell).is_integer()
    return str(int(cell) if whole else cell)


def numbers_of(column, lenient=False):
    """Return a column as float64, NaN where a cell is missing, or None if a cell is no number.

    A text is no number, even if it consists of digits: "007" and "7" are two article
    numbers. If `lenient`, cells that are not numbers become NaN.
    """
    if not np.ma.isMaskedArray(column):
        array = np.asarray(column)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    numbers = [_number(cell) for cell in cells_of(column)]
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    if not lenient:
        return None
    return np.array([np.nan if number is None else number for number in numbers])


def _number(cell):
    """Return a cell as a float, NaN if it is missing, or None if it is no number."""
    if cell is None:
        return np.nan
    # Python's `float` also reads texts: "1_1" would be 11, and "nan" missing.
    if is_text(cell):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def type_of(column):
    """Return the dtype of a column, None where it has none."""
    if is_arrow(column):
        return column.type
    return getattr(column, "dtype", None)


def kind_of_type(dtype):
    """Return the kind of cells that a dtype stands for, None if only the cells can show it."""
    name = str(dtype).lower()
    if name.startswith(("categor", "enum", "dictionary")):
        return CATEGORY
    return DATE if name.startswith(("date", "timestamp")) else None


def dates_of(column):
    """Seconds since 1970 of a column of dates; None where an entry is no date."""
    cells = cells_of(column)
    if not all(cell is None or isinstance(cell, date) for cell in cells):
        return None
    dates = np.array([_universal(cell) for cell in cells], dtype="datetime64[us]")
    return np.where(np.isnat(dates), np.nan, dates.astype(np.int64) / 1e6)


def _universal(moment):
    """A date without its time zone: the same moment in universal time."""
    offset = moment.utcoffset() if isinstance(moment, datetime) else None
    return moment if offset is None else (moment - offset).replace(tzinfo=None)


# Columns ------------------------------------------------------------------------------


class ColumnReader(NamedTuple):
    """How one column of `fit` is read: as numbers, dates or categories."""

    # For messages.
    name: Any
    kind: str
    # All cells were missing in `fit`: then any cell but a number stays missing.
    all_missing: bool = False
    # Of the texts of a category, sorted.
    codes: dict[str, int] | None = None

    @classmethod
    def fit(cls, column, name):
        """Return the reader for the cells that `fit` saw.

        Texts are categories, also those that consist of digits. A pandas, polars or
        Arrow category is a category, whatever its cells are.
        """
        kind = kind_of_type(type_of(column))
        if kind is None:
            cells = [cell for cell in cells_of(column) if cell is not None]
            if numbers_of(column) is not None:
                return cls(name, NUMBER, all_missing=not cells)
            kind = DATE if all(isinstance(cell, date) for cell in cells) else CATEGORY
            if kind == CATEGORY and not any(map(is_text, cells)):
                raise TypeError(
                    f"Column {name!r} must hold numbers, strings, categories or dates, got cells "
                    f"of {type(cells[0]).__name__}. Turn them into one of these first."
                )
        if kind == DATE:
            return cls(name, kind)
        texts = sorted(set(texts_of(column)) - {None})
        return cls(name, kind, codes={text: code for code, text in enumerate(texts)})

    def read(self, column):
        """Return cells as float64, NaN for a missing cell and a category that `fit` did not see."""
        if self.kind == CATEGORY:
            codes = [self.codes.get(text, np.nan) for text in texts_of(column)]
            return np.array(codes, dtype=np.float64)
        if self.kind == DATE:
            numbers = dates_of(column)
        else:
            numbers = numbers_of(column, self.all_missing)
        if numbers is None:
            # Without the cell, which may be the text of a user.
            raise ValueError(
                f"Column {self.name!r} held {self.kind}s in fit, and now something else."
                + self._advice(column)
            )
        return numbers

    def _advice(self, column):
        """Return what to do about texts in a column of numbers."""
        if self.kind == NUMBER and any(map(is_text, cells_of(column))):
            return " Texts stay texts: convert the column to numbers, for example by astype(float)."
        return ""


def names_and_columns(X):
    """Return the names of the columns, or None, and the columns as the rows hold them."""
    names = column_keys(X)
    if names is None:
        if len(getattr(X, "shape", ())) == 1:
            return None, [X]
        X = as_rows(X)
        if issparse(X):
            X = X.toarray()
        return None, list(X.T) if X.ndim == 2 else [X]
    if len({str(name) for name in names}) < len(names):
        raise ValueError(
            f"X must not have two columns of the same name, got {names!r}."
        )
    return names, _columns_of_frame(X)


def _columns_of_frame(X):
    """Return the columns of a data frame or Arrow table as it holds them."""
    if is_arrow(X):
        return list(X.columns)
    if hasattr(X, "iloc"):
        # By position: pandas allows two columns of one name.
        return [X.iloc[:, at] for at in range(X.shape[1])]
    return [X[name] for name in column_keys(X)]


def needs_encoding(X):
    """Return True if rows hold texts, categories or dates, which a regressor cannot read."""
    if hasattr(X, "tocsr"):
        return False
    if is_frame(X):
        return not all(map(_plain_numbers, _columns_of_frame(X)))
    rows = _cells_of_rows(X)
    if rows is None:
        return False
    return not all(map(_plain_numbers, names_and_columns(rows)[1]))


def _cells_of_rows(X):
    """Return rows of single cells as an array, None for rows that only their own models read."""
    try:
        X = as_rows(X)
        array = np.asarray(X)
    except Exception:
        return None
    if array.ndim not in (1, 2):
        return None
    if array.dtype.kind != "O":
        return array if array.dtype.kind in "biufUSTM" else None
    cells = (Number, str, bytes, date, np.generic)
    if all(isinstance(cell, cells) or is_missing(cell) for cell in array.flat):
        return X
    return None


def _plain_numbers(column):
    return kind_of_type(type_of(column)) is None and numbers_of(column) is not None


def holds_missing(X):
    """Return True if rows of numbers, in an array or a frame, have a missing one."""
    if hasattr(X, "tocsr"):
        return bool(np.isnan(X.tocsr().data).any())
    rows = as_rows(X)
    array = np.asarray(rows)
    if array.dtype.kind == "f":
        return bool(np.isnan(array).any())
    if array.dtype.kind != "O" or array.ndim != 2:
        return False
    numbers = [numbers_of(column) for column in names_and_columns(rows)[1]]
    return any(
        column is not None and bool(np.isnan(column).any()) for column in numbers
    )


def table_of_numbers(X):
    """Return rows of numbers as a float64 array, NaN where a cell is missing.

    Parameters
    ----------
    X : array-like or data frame of shape (n_rows, n_columns)

    Returns
    -------
    ndarray of shape (n_rows, n_columns), dtype=float64
    """
    columns = [numbers_of(column) for column in names_and_columns(X)[1]]
    if any(column is None for column in columns):
        raise ValueError("X must be numbers, got other cells. Convert them first.")
    return np.column_stack(columns)
