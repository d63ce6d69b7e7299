"""Rows as a user gave them, made anew from the cells of some columns."""

import importlib
from typing import Any, NamedTuple

import numpy as np


class RawRows(NamedTuple):
    """What rows of `fit` looked like: library, names and dtypes, and one row to fill up with.

    Attributes
    ----------
    names : list
        Names of the columns; positions where there are none.
    library : str or None
        Of the data frame; None for an array.
    dtypes : list
        Of each column.
    filler : list
        A cell of each column, from a training row.
    """

    names: list
    library: Any
    dtypes: list
    filler: list

    @classmethod
    def of(cls, X):
        """From the rows of `fit`."""
        if hasattr(X, "columns"):
            names = list(X.columns)
            parts = [X[name] for name in names]
            dtypes = [part.dtype for part in parts]
            library = type(X).__module__.split(".")[0]
            return cls(names, library, dtypes, [part[:1].to_list()[0] for part in parts])
        X = np.asarray(X)
        names = list(range(X.shape[1]))
        return cls(names, None, [X.dtype] * len(names), list(X[0]))

    def cells(self, X):
        """The cells of each column of rows that are there already, by position."""
        if hasattr(X, "columns"):
            return {at: X[name] for at, name in enumerate(self.names)}
        return dict(enumerate(np.asarray(X).T))

    def frame(self, cells, n_rows):
        """Rows as in `fit`, of the cells of some columns; the others are filled up.

        Parameters
        ----------
        cells : dict from int to array-like of shape (n_rows,)
            By position of the column.
        n_rows : int

        Returns
        -------
        dataframe or ndarray of shape (n_rows, n_columns)
        """
        columns = [
            cells[at] if at in cells else [self.filler[at]] * n_rows
            for at in range(len(self.names))
        ]
        if self.library is None:
            table = np.empty((n_rows, len(columns)), dtype=self.dtypes[0])
            for at, column in enumerate(columns):
                own = np.asarray(column, dtype=object)
                table[:, at] = own if table.dtype.kind == "O" else _float(own)
            return table
        library = importlib.import_module(self.library)
        make = _pandas_column if self.library == "pandas" else _other_column
        made = {
            name: make(library, column, dtype)
            for name, column, dtype in zip(self.names, columns, self.dtypes)
        }
        return library.DataFrame(made)


def missing(value):
    """Whether a cell is missing: None, NaN, pandas' NA or NaT."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating)) and value != value)
    )


def _float(cells):
    return np.array([np.nan if missing(value) else value for value in cells], dtype=np.float64)


def _pandas_column(pandas, cells, dtype):
    """Cells as a series of a dtype; missing ones are as pandas has them in this dtype."""
    # From the cells themselves: as objects, dates finer than microseconds become whole numbers.
    column = pandas.Series(cells).reset_index(drop=True)
    gone = column.isna()
    if column.dtype == object:
        column = column.where(~gone, np.nan)
    if dtype.kind in "iub" and isinstance(dtype, np.dtype):
        # A column without missing values in `fit` may have some now.
        dtype = np.dtype(np.float64) if gone.any() else dtype
    return column.astype(dtype)


def _other_column(polars, cells, dtype):
    cells = [None if missing(value) else value for value in cells]
    return polars.Series(cells, dtype=dtype, strict=False)
