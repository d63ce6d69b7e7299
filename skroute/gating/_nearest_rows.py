"""What nearest rows would buy next: a policy for many features and few rows."""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._groups import Groups

# Reference rows: more cost time in every round and change little.
MOST_ROWS = 6000


class Borders(NamedTuple):
    """Where values stand among those of the reference rows.

    Attributes
    ----------
    values : list of ndarray
        Sorted values of each column that are not missing.
    categorical : ndarray of shape (n_features,), dtype=bool
    """

    values: list
    categorical: Any

    @classmethod
    def of(cls, X, categorical):
        """Borders of the columns of reference rows."""
        return cls([np.sort(column[~np.isnan(column)]) for column in X.T], categorical)

    def ranks(self, X):
        """Shares of the reference rows below each value; -1 where it is missing."""
        ranks = np.full(X.shape, -1.0, dtype=np.float32)
        for j, values in enumerate(self.values):
            there = ~np.isnan(X[:, j])
            if self.categorical[j]:
                ranks[there, j] = X[there, j]
            elif len(values):
                ranks[there, j] = np.searchsorted(values, X[there, j]) / len(values)
        return ranks

    def codes(self, ranks, y):
        """Bins for cuts: shares of the rows; categories in the order of their mean class."""
        codes = np.where(ranks < 0, 0, 1 + np.minimum((ranks * 16).astype(np.int64), 15))
        for j in np.flatnonzero(self.categorical):
            there = ranks[:, j] >= 0
            kinds, inverse = np.unique(ranks[there, j], return_inverse=True)
            if len(kinds):
                mean = np.bincount(inverse, y[there]) / np.bincount(inverse)
                place = np.argsort(np.argsort(mean, kind="stable"), kind="stable")
                codes[there, j] = 1 + (place[inverse] * 16) // max(len(kinds), 16)
        return np.ascontiguousarray(np.clip(codes, 0, 16).astype(np.int8))


class NearestRows(NamedTuple):
    """The policy that buys what tells the classes of the nearest rows apart best.

    Attributes
    ----------
    ranks, codes : ndarray of shape (n_reference, n_features)
    y : ndarray of shape (n_reference,), dtype=int64
    rows : ndarray of shape (n_reference,), dtype=int
        Positions of the reference rows among the training rows.
    borders : Borders
    groups : Groups
    order : ndarray of int
        The static order: its first group is bought first, it breaks ties, and it is followed
        from `horizon` groups on.
    options : ndarray of float
        Number of nearest rows, least rows of a side of a cut, lead of the static order, number
        of classes.
    horizon : int
    """

    ranks: Any
    codes: Any
    y: Any
    rows: Any
    borders: Borders
    groups: Groups
    order: Any
    options: Any
    horizon: int

    @classmethod
    def of(cls, X, y, n_classes, groups, order, horizon, rows):
        """The policy of reference rows: the first `MOST_ROWS` of `rows`."""
        rows = rows[:MOST_ROWS]
        X, y = X[rows], y[rows]
        borders = Borders.of(X, groups.categorical)
        ranks = borders.ranks(X)
        n_nearest = int(np.clip(2 * np.sqrt(len(X)), 20, 200))
        options = np.array(
            [max(min(n_nearest, len(X) - 1), 1), max(2.0, n_nearest / 12), 0.0, n_classes]
        )
        return cls(
            np.asfortranarray(ranks),
            borders.codes(ranks, y),
            y.astype(np.int64),
            rows,
            borders,
            groups,
            order,
            options,
            horizon,
        )

    def start(self, n_rows, itself=None):
        """What the policy remembers of rows: their distances to the reference rows."""
        return Distances(self, n_rows, itself)


class Distances:
    """Distances of some rows to the reference rows, in the groups that are known of them.

    Parameters
    ----------
    policy : NearestRows
    n_rows : int
    itself : ndarray of shape (n_rows,), default=None
        Position of each row among the reference rows, which it is not compared with.
    """

    def __init__(self, policy, n_rows, itself=None):
        self.policy = policy
        self.distances = np.zeros((n_rows, len(policy.y)), dtype=np.float32)
        self.itself = np.full(n_rows, -1) if itself is None else itself
        self._seen = np.zeros((n_rows, policy.groups.n_groups), dtype=bool)

    def next_groups(self, rows, values, known):
        """The next group of some rows; -1 where all are known.

        Parameters
        ----------
        rows : ndarray of int
        values : ndarray of shape (n_rows, n_features)
            What is not known may be NaN.
        known : ndarray of shape (n_rows, n_groups), dtype=bool

        Returns
        -------
        ndarray of int
        """
        from skroute.gating import _kernels

        policy, groups = self.policy, self.policy.groups
        first = groups.first_unknown(known, policy.order)
        asking = np.flatnonzero(
            (known[:, policy.order] & groups.priced[policy.order]).any(axis=1)
            & (known.sum(axis=1) < policy.horizon)
            & (first >= 0)
        )
        if not len(asking):
            return first
        at, ranks = rows[asking], policy.borders.ranks(values[asking])
        distances = self.distances[at]
        new = known[asking] & ~self._seen[at]
        while new.any():
            bought = np.where(new.any(axis=1), new.argmax(axis=1), -1)
            _kernels.add_bought(
                distances,
                policy.ranks,
                ranks,
                bought,
                groups.starts,
                groups.columns,
                groups.categorical,
            )
            new[np.arange(len(new)), bought] = False
        self.distances[at], self._seen[at] = distances, known[asking]
        first[asking] = _kernels.next_groups(
            distances,
            self.itself[at],
            known[asking],
            policy.order,
            policy.codes,
            policy.y,
            groups.starts,
            groups.columns,
            groups.prices,
            policy.options,
        )
        return first
