"""Raw columns as those of a linear model: categories one by one, missing values by a sign."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What a column of the linear model reads of its raw column.
NUMBER, LEVEL, MISSING = range(3)
# A category of fewer rows says nothing that a linear model could learn.
RARE = 2


class LinearColumns(NamedTuple):
    """How raw columns become those of a linear model.

    Attributes
    ----------
    origin : ndarray of shape (n_columns,), dtype=int
        Raw column of each.
    kind : ndarray of shape (n_columns,), dtype=int
    level : ndarray of shape (n_columns,)
        Code of the category, where it is one.
    mean : ndarray of shape (n_features,)
        Stands for missing numbers.
    """

    origin: NDArray[np.int64]
    kind: NDArray[np.int64]
    level: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, values, weight, categorical=None):
        """From training rows with their weights, and which columns hold codes of categories."""
        found, mean = [], np.zeros(values.shape[1])
        for at, column in enumerate(values.T):
            there = ~np.isnan(column)
            if categorical is not None and categorical[at]:
                levels, counts = np.unique(column[there], return_counts=True)
                found += [(at, LEVEL, level) for level in levels[counts >= RARE]]
            else:
                found.append((at, NUMBER, 0.0))
                if there.any():
                    mean[at] = np.average(column[there], weights=weight[there])
            if not there.all():
                found.append((at, MISSING, 0.0))
        origin, kind, level = map(np.array, zip(*found))
        return cls(origin.astype(np.int64), kind.astype(np.int64), level, mean)

    def expand(self, values, columns=None):
        """The columns of the linear model, all of them or some.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_features)
        columns : ndarray of int, default=None

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        columns = np.arange(len(self.origin)) if columns is None else columns
        raw = values[:, self.origin[columns]]
        kind, there = self.kind[columns], ~np.isnan(raw)
        number = np.where(there, raw, self.mean[self.origin[columns]])
        sign = np.where(kind == LEVEL, raw == self.level[columns], ~there)
        return np.where(kind == NUMBER, number, sign)
