"""Columns of frames as numbers, read one by one as `fit` saw them: the one way in all rooms."""

from typing import Any, NamedTuple

import numpy as np

from skroute.utils._tensors import on_host

NUMBER, DATE, CATEGORY = "number", "date", "category"


def as_rows(X):
    """Rows whose columns can be taken: an array or a frame in host memory; of lists, an array."""
    X = on_host(X)
    return X if hasattr(X, "shape") else np.asarray(X)


def is_frame(X):
    """Whether rows have named columns."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__")


def is_missing(cell):
    """Whether a cell is None, NaN, pandas' NA or NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    kinds = (float, np.floating, np.datetime64, np.timedelta64)
    return isinstance(cell, kinds) and bool(cell != cell)


def cells_of(column):
    """A column as an array of objects, what is missing as None.

    numpy makes whole numbers of dates finer than microseconds; here they stay dates.
    """
    if np.ma.isMaskedArray(column):
        column = column.astype(object).filled(None)
    elif hasattr(column, "iloc") and not isinstance(column.dtype, np.dtype):
        # A gap makes floats of whole numbers otherwise, here and below.
        column = column.astype(object)
    elif hasattr(column, "null_count"):
        column = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
        column = np.fromiter(column, dtype=object, count=len(column))
    cells = np.asarray(column)
    if cells.dtype.kind in "mM":
        cells = cells.astype(f"{cells.dtype.kind}8[us]")
    cells = np.array(cells, dtype=object)
    cells[[is_missing(cell) for cell in cells]] = None
    return cells


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
    if isinstance(cell, (bool, np.bool_)):
        return str(int(cell))
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell.item() if isinstance(cell, np.generic) else cell)


def numbers_of(column):
    """A column as float64, NaN where it is missing; None where an entry is no number."""
    dtype = getattr(column, "dtype", None)
    kind = getattr(dtype, "kind", "")
    if kind not in ("O", "c") and kind_of_type(dtype) is None and not np.ma.isMaskedArray(column):
        try:
            return np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            pass
    cells = cells_of(column)
    # numpy's own dates and durations would be counts of their unit.
    if any(isinstance(cell, (np.datetime64, np.timedelta64)) for cell in cells):
        return None
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    except (TypeError, ValueError):
        return None


def _is_date(cell):
    return hasattr(cell, "isoformat") or isinstance(cell, np.datetime64)


def kind_of_type(dtype):
    """What the dtype of a column says of its cells; None where only they can say it."""
    name = str(dtype).lower()
    if name.startswith(("categor", "enum", "dictionary")):
        return CATEGORY
    if name.startswith(("date", "timestamp")):
        return DATE
    return "duration" if name.startswith(("timedelta", "duration")) else None


def dates_of(column):
    """Seconds since 1970 of a column of dates; None where an entry is no date."""
    cells = cells_of(column)
    if not all(cell is None or _is_date(cell) for cell in cells):
        return None
    dates = [None if cell is None else _plain(cell) for cell in cells]
    dates = np.array(dates, dtype="datetime64[us]")
    return np.where(np.isnat(dates), np.nan, dates.astype(np.int64) / 1e6)


def _plain(date):
    """A date without its time zone: the same moment in universal time."""
    offset = getattr(date, "utcoffset", lambda: None)()
    return date if offset is None else (date - offset).replace(tzinfo=None)


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
        cells = [cell for cell in cells_of(column) if cell is not None]
        strings = any(isinstance(cell, str) for cell in cells)
        kind = kind_of_type(getattr(column, "dtype", None))
        if kind not in (CATEGORY, DATE):
            if numbers_of(column) is not None:
                return cls(name, NUMBER, was_strings=strings or not cells)
            kind = DATE if all(map(_is_date, cells)) else CATEGORY
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
        if self.kind == DATE:
            found = dates_of(column)
        else:
            found = numbers_of(column)
            if found is None and self.was_strings:
                found = np.array([_number(cell) for cell in cells_of(column)])
        if found is None:
            # Outside of what failed, which quotes the cell.
            raise ValueError(
                f"Column {self.name!r} held {self.kind}s in fit, and now something else."
            )
        return found


def _number(cell):
    try:
        return np.nan if cell is None else float(cell)
    except (TypeError, ValueError):
        return np.nan


def columns_of(X):
    """Names of the columns, or None, and the columns as the rows hold them."""
    if is_frame(X):
        names = list(X.columns)
        if len({str(name) for name in names}) < len(names):
            raise ValueError(f"X must not have two columns of the same name, got {names!r}.")
        return names, [X[name] for name in names]
    X = np.asarray(on_host(X))
    return None, list(X.T) if X.ndim == 2 else [X]


def needs_encoding(X):
    """Whether rows hold texts, categories or dates, which a regressor of numbers does not read."""
    if is_frame(X):
        return any(not _plain_numbers(X[name]) for name in list(X.columns))
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and isinstance(X[0], str)
    try:
        found = np.asarray(X)
    except Exception:
        # Rows of a kind that only their own models read.
        return False
    if found.dtype.kind not in "OUST" or found.ndim not in (1, 2):
        return False
    columns = [found] if found.ndim == 1 else list(found.T)
    kinds = (str, int, float, bool, np.generic, type(None))
    if not all(isinstance(cell, kinds) for column in columns for cell in column):
        return False
    return any(not _plain_numbers(column) for column in columns)


def _plain_numbers(column):
    known = kind_of_type(getattr(column, "dtype", None))
    return known is None and numbers_of(column) is not None
