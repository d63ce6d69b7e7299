"""Transformers asked for one group of columns at a time."""

from typing import Any, NamedTuple

import numpy as np

from skroute.utils._frames import RawRows, columns_of, is_frame

# Training rows on which it is verified that a transformer keeps groups apart.
_VERIFIED = 20_000


def dense(table):
    """What a transformer returned as an array."""
    return np.asarray(table.toarray() if hasattr(table, "toarray") else table)


class ByGroup(NamedTuple):
    """A fitted transformer of raw rows that keeps groups of columns apart.

    Attributes
    ----------
    transform : callable
        Of rows as in `fit`.
    raw : RawRows
    raw_group_of : ndarray of shape (n_raw_columns,), dtype=int
    group_of : ndarray of shape (n_outputs,), dtype=int
        The group that each output is made of.
    """

    transform: Any
    raw: RawRows
    raw_group_of: Any
    group_of: Any

    def outputs(self, cells, n_rows):
        """What is made of the cells of some groups; the other outputs have no meaning.

        Parameters
        ----------
        cells : dict from int to array-like
            By position of the raw column, groups as a whole.
        n_rows : int

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
        """
        return dense(self.transform(self.raw.rows(cells, n_rows)))

    def raw_columns(self, outputs):
        """Positions of the raw columns of the groups that some outputs are made of."""
        return np.flatnonzero(np.isin(self.raw_group_of, self.group_of[outputs]))


def find_groups(transform, X, raw_group_of):
    """The group that each output of a transformer is made of.

    Each group is transformed beside one training row's cells in all other columns. An output
    belongs to the group that gives, alone, what all columns gave, on all rows looked at; one
    that is constant there, to the group of which another cell moves it.

    Parameters
    ----------
    transform : callable
        Of a fitted transformer.
    X : dataframe or ndarray of shape (n_samples, n_raw_columns)
        Training rows.
    raw_group_of : ndarray of shape (n_raw_columns,), dtype=int

    Returns
    -------
    by_group : ByGroup
    mixed : ndarray of int
        Groups that an output is made of together.
    """
    raw = RawRows.of(X)
    X = X[:_VERIFIED] if is_frame(X) else np.asarray(X)[:_VERIFIED]
    columns, n_rows = columns_of(X)[1], len(X)
    whole = dense(transform(X))

    def same(groups):
        own = {at: columns[at] for at in np.flatnonzero(np.isin(raw_group_of, groups))}
        return _same(dense(transform(raw.rows(own, n_rows))), whole)

    every = np.arange(int(raw_group_of.max()) + 1)
    alone = np.array([same([group]) for group in every])
    mixed, lost = every[:0], ~alone.any(axis=0)
    if lost.any():
        mixed = every[[not same(every[every != group])[lost].all() for group in every]]
    group_of = alone.argmax(axis=0)
    if (constant := alone.sum(axis=0) > 1).any():
        moved = _moved_by(transform, raw, raw_group_of)
        group_of = np.where(constant & (moved >= 0), moved, group_of)
    return ByGroup(transform, raw, raw_group_of, group_of), mixed


def _moved_by(transform, raw, raw_group_of):
    """The group whose cells move each output of one row; -1 where none does."""
    still = dense(transform(raw.rows({}, 1)))
    found = np.full(still.shape[1], -1)
    for group in np.unique(raw_group_of):
        for other in (_moved, lambda cell: None):
            cells = {at: [other(raw.filler[at])] for at in np.flatnonzero(raw_group_of == group)}
            try:
                moved = ~_same(dense(transform(raw.rows(cells, 1))), still)
            except (ValueError, TypeError):
                # What the transformer does not take.
                continue
            found[moved & (found < 0)] = group
    return found


def _moved(cell):
    return cell if cell is None or isinstance(cell, str) else 2 * cell + 1


def _same(ours, theirs):
    """Which columns are the same but for rounding."""
    if ours.dtype.kind == "O" or theirs.dtype.kind == "O":
        texts = (np.array([[str(v) for v in row] for row in part]) for part in (ours, theirs))
        return np.equal(*texts).all(axis=0)
    return np.isclose(ours, theirs, rtol=1e-9, atol=1e-12, equal_nan=True).all(axis=0)
