"""Columns of frames as numbers, read one by one as `fit` saw them: the one way in all rooms."""

from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._tensors import on_host

NUMBER, DATE, CATEGORY = "number", "date", "category"


def as_rows(X):
    """Return an array, a frame or a sparse matrix in host memory, of which rows can be taken.

    Lists become an array, and so do objects that have an array interface alone.
    """
    X = on_host(X)
    interface_alone = hasattr(X, "__array__") and not hasattr(X, "__getitem__")
    if interface_alone or isinstance(X, memoryview) or not hasattr(X, "shape"):
        return np.asarray(X)
    return X


def is_frame(X):
    """Whether rows have named columns."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__")


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
    """Whether a cell is None, NaN, masked, pandas' NA or NaT."""
    if cell is None or cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):
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


def texts_of(column):
    """The cells of a column as texts that depend on their values alone; None where missing.

    The same whole number is the same text however the rows hold it: pandas makes 1.0 of 1 as
    soon as a cell of the column is missing, and a file of codes gives "1" beside another text.
    True is 1, as in an array of numbers.
    """
    return np.array([_text(cell) for cell in cells_of(column)], dtype=object)


def _text(cell):
    if cell is None or isinstance(cell, str):
        return cell
    whole = isinstance(cell, (bool, float)) and float(cell).is_integer()
    return str(int(cell) if whole else cell)


def numbers_of(column, lenient=False):
    """A column as float64, NaN where it is missing; None where an entry is no number.

    To the lenient, what is no number is missing.
    """
    if not np.ma.isMaskedArray(column):
        array = np.asarray(column)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
    cells = cells_of(column)
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    except (TypeError, ValueError):
        return np.array([_number(cell) for cell in cells]) if lenient else None


def _number(cell):
    try:
        return np.nan if cell is None else float(cell)
    except (TypeError, ValueError):
        return np.nan


def kind_of_type(dtype):
    """What the dtype of a column says of its cells; None where only they can say it."""
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


class ColumnReader(NamedTuple):
    """How one column of `fit` is read: as numbers, dates or categories."""

    # For messages.
    name: Any
    kind: str
    # Whether its numbers were strings, or it had none: then another string is a missing number.
    was_strings: bool = False
    # Of the texts of a category, sorted.
    codes: dict[str, int] | None = None

    @classmethod
    def fit(cls, column, name):
        """From the cells that `fit` saw.

        Strings that all say numbers are numbers, as to scikit-learn; a pandas or polars category
        is a category, whatever its cells are.
        """
        kind = kind_of_type(getattr(column, "dtype", None))
        if kind is None:
            cells = [cell for cell in cells_of(column) if cell is not None]
            strings = any(isinstance(cell, str) for cell in cells)
            if numbers_of(column) is not None:
                return cls(name, NUMBER, was_strings=strings or not cells)
            kind = DATE if all(isinstance(cell, date) for cell in cells) else CATEGORY
            if kind == CATEGORY and not strings:
                raise TypeError(
                    f"Column {name!r} must hold numbers, strings, categories or dates, got cells "
                    f"of {type(cells[0]).__name__}. Turn them into one of these first."
                )
        if kind == DATE:
            return cls(name, kind)
        texts = sorted(set(texts_of(column)) - {None})
        return cls(name, kind, codes={text: code for code, text in enumerate(texts)})

    def read(self, column):
        """Cells as float64; what is missing, and a category that `fit` did not see, is NaN."""
        if self.kind == CATEGORY:
            found = [self.codes.get(text, np.nan) for text in texts_of(column)]
            return np.array(found, dtype=np.float64)
        found = dates_of(column) if self.kind == DATE else numbers_of(column, self.was_strings)
        if found is None:
            # Outside of what failed, which quotes the cell.
            raise ValueError(
                f"Column {self.name!r} held {self.kind}s in fit, and now something else."
            )
        return found


def columns_of(X):
    """Names of the columns, or None, and the columns as the rows hold them."""
    if is_frame(X):
        names = list(X.columns)
        if len({str(name) for name in names}) < len(names):
            raise ValueError(f"X must not have two columns of the same name, got {names!r}.")
        return names, [X[name] for name in names]
    X = as_rows(X)
    return None, list(X.T) if X.ndim == 2 else [X]


def needs_encoding(X):
    """Whether rows hold texts, categories or dates, which a regressor of numbers does not read."""
    if is_frame(X):
        return not all(map(_plain_numbers, [X[name] for name in X.columns]))
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and isinstance(X[0], str)
    try:
        X = np.asarray(X)
    except Exception:
        # Rows of a kind that only their own models read.
        return False
    kinds = (str, int, float, bool, np.generic, type(None))
    tabular = X.dtype.kind in "OUST" and X.ndim in (1, 2)
    if not tabular or not all(isinstance(cell, kinds) for cell in X.flat):
        return False
    return not all(map(_plain_numbers, columns_of(X)[1]))


def _plain_numbers(column):
    known = kind_of_type(getattr(column, "dtype", None))
    return known is None and numbers_of(column) is not None
