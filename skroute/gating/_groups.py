"""Groups of columns with prices, as arrays that policies and kernels read."""

from typing import Any, NamedTuple

import numpy as np


class Groups(NamedTuple):
    """Which columns are bought together, and at what price.

    Attributes
    ----------
    group_of : ndarray of shape (n_features,), dtype=int
    costs : ndarray of shape (n_groups,)
    starts : ndarray of shape (n_groups + 1,), dtype=int
        Group g has ``columns[starts[g] : starts[g + 1]]``.
    columns : ndarray of shape (n_features,), dtype=int
    categorical : ndarray of shape (n_features,), dtype=bool
        Columns whose values are codes of categories.
    """

    group_of: Any
    costs: Any
    starts: Any
    columns: Any
    categorical: Any

    @classmethod
    def of(cls, group_of, costs, categorical):
        """Groups from the group of each column."""
        columns = np.argsort(group_of, kind="stable")
        starts = np.searchsorted(group_of[columns], np.arange(len(costs) + 1))
        return cls(group_of, costs, starts, columns, np.asarray(categorical, dtype=bool))

    @property
    def n_groups(self):
        """Number of groups."""
        return len(self.costs)

    @property
    def priced(self):
        """Groups that are not free; the free ones are bought for every row at once."""
        return self.costs > 0

    @property
    def prices(self):
        """Costs to divide gains by, 1 for what is free."""
        return np.where(self.priced, self.costs, 1.0)

    def of_group(self, group):
        """Columns of one group."""
        return self.columns[self.starts[group] : self.starts[group + 1]]

    def columns_of(self, groups):
        """Columns of some groups, rising."""
        return np.flatnonzero(np.isin(self.group_of, groups))

    def hidden(self, X, known):
        """X with NaN in what is not known."""
        return np.where(known[:, self.group_of], X, np.nan)

    def first_unknown(self, known, order):
        """For each row the first group of an order that is not known; -1 where all are."""
        unknown = ~known[:, order]
        return np.where(unknown.any(axis=1), order[unknown.argmax(axis=1)], -1)
