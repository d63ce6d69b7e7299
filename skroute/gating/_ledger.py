"""Buying features when a row needs them, and paying for each once."""

from copy import copy

import numpy as np

from skroute.utils._frames import cells_of


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
        # Cells as the source returned them, by column, where models read frames.
        self.cells = {}

    def anew(self):
        """The same rows and what was bought of them, with nothing planned."""
        other = copy(self)
        other.planned = np.zeros_like(self.planned)
        return other

    def keep(self, columns, rows, cells):
        """Remember cells as they came."""
        for column, own in zip(columns, cells):
            if column not in self.cells:
                self.cells[column] = np.full(len(self._values), None, dtype=object)
            self.cells[column][rows] = cells_of(own)

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
