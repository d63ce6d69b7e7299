"""Raw columns of data frames as numbers: categories by their codes, missing values as NaN."""

import importlib
from typing import NamedTuple

import numpy as np

from skroute.features._lazy import as_numbers


class ColumnCodes(NamedTuple):
    """How the columns of a frame become numbers.

    Attributes
    ----------
    names : list of str
    categories : dict
        The sorted texts of each column that is not numeric, by its name.
    library : str
        Of the frame.
    """

    names: list
    categories: dict
    library: str

    @classmethod
    def of(cls, frame):
        """Codes of the columns of a frame; None where all are numeric, or X is no frame."""
        names = list(getattr(frame, "columns", ()))
        # Of columns with the same name numbers alone can be read, as of an array.
        if len(set(names)) < max(len(names), 1):
            return None
        categories = {}
        for name in names:
            column = frame[name]
            if not _numeric(column):
                cells = _cells(column)
                categories[name] = np.array(sorted({str(v) for v in cells if not _missing(v)}))
        return cls(names, categories, type(frame).__module__.split(".")[0]) if categories else None

    @property
    def categorical(self):
        """Which columns have categories."""
        return np.array([name in self.categories for name in self.names])

    def encode_column(self, name, cells):
        """Codes of cells; what is missing, and a category that was not there in `fit`, is NaN."""
        kinds = self.categories[name]
        cells = _cells(cells)
        missing = np.array([_missing(value) for value in cells], dtype=bool)
        texts = np.array(["" if gone else str(v) for v, gone in zip(cells, missing)], dtype=object)
        at = np.searchsorted(kinds, texts.astype(str)) if len(kinds) else np.zeros(len(texts), int)
        at = np.minimum(at, max(len(kinds) - 1, 0))
        there = ~missing & (kinds[at] == texts.astype(str)) if len(kinds) else ~missing & False
        return np.where(there, at, np.nan)

    def encode(self, frame):
        """A frame as float64."""
        values = np.empty((len(frame), len(self.names)))
        for at, name in enumerate(self.names):
            if name in self.categories:
                values[:, at] = self.encode_column(name, frame[name])
            else:
                values[:, at] = _numbers(frame[name])
        return values

    def encode_cells(self, names, cells):
        """Cells of some columns, as a source returned them, as float64."""
        values = np.empty((len(cells[0]), len(names)))
        for at, (name, own) in enumerate(zip(names, cells)):
            if name in self.categories:
                values[:, at] = self.encode_column(name, own)
            else:
                values[:, at] = as_numbers(own, (len(own),), [name])
        return values

    def decode(self, values):
        """A frame of the same library, with the categories as texts."""
        frame = importlib.import_module(self.library).DataFrame
        columns = {}
        for at, name in enumerate(self.names):
            own = values[:, at]
            if name in self.categories:
                kinds = np.append(self.categories[name].astype(object), None)
                code = np.where(np.isnan(own), len(kinds) - 1, own).astype(np.int64)
                columns[name] = kinds[code]
            else:
                columns[name] = own
        return frame(columns)


def _numeric(column):
    if hasattr(column.dtype, "is_numeric"):
        return column.dtype.is_numeric() or str(column.dtype) == "Boolean"
    kind = getattr(column.dtype, "kind", "O")
    return kind in "fiub" and not hasattr(column, "cat")


def _cells(column):
    return np.asarray(column, dtype=object)


def _missing(value):
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating)) and value != value)
    )


def _numbers(column):
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        cells = _cells(column)
        return np.array([np.nan if _missing(v) else float(v) for v in cells], dtype=np.float64)
