"""Transformers asked for one group of columns at a time."""

from typing import Any, NamedTuple

import numpy as np

from skroute.features._raw_rows import RawRows, missing

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
        return dense(self.transform(self.raw.frame(cells, n_rows)))

    def raw_columns(self, outputs):
        """Positions of the raw columns of the groups that some outputs are made of."""
        return np.flatnonzero(np.isin(self.raw_group_of, self.group_of[outputs]))


def find_groups(transform, X, raw_group_of, hint=None):
    """The group that each output of a transformer is made of.

    Each group is transformed beside one training row's cells in all other columns. An output
    belongs to the group that gives, alone, what all columns gave, on all rows looked at.

    Parameters
    ----------
    transform : callable
        Of a fitted transformer.
    X : dataframe or ndarray of shape (n_samples, n_raw_columns)
        Training rows.
    raw_group_of : ndarray of shape (n_raw_columns,), dtype=int
    hint : ndarray of shape (n_outputs,), dtype=int, default=None
        The group that takes an output which is constant here; -1 where none is known.

    Returns
    -------
    by_group : ByGroup
    mixed : dict from int to list of int
        For each output that is made of several groups, these groups.
    """
    raw = RawRows.of(X)
    X = X[:_VERIFIED] if hasattr(X, "columns") else np.asarray(X)[:_VERIFIED]
    cells = raw.cells(X)
    n_rows = len(X)
    whole = dense(transform(X))
    n_groups = int(raw_group_of.max()) + 1

    def of(groups):
        own = {at: cells[at] for at in np.flatnonzero(np.isin(raw_group_of, groups))}
        return dense(transform(raw.frame(own, n_rows)))

    every = np.arange(n_groups)
    alone = np.array([_same(of([g]), whole) for g in every])
    group_of = alone.argmax(axis=0)
    mixed, constant = {}, alone.sum(axis=0) > 1
    if constant.any():
        known = np.full(len(group_of), -1) if hint is None else hint
        known = np.where(known >= 0, known, _moved_by(transform, raw, raw_group_of, n_groups))
        known = np.where(constant, known, -1)
        group_of = np.where(known >= 0, known, group_of)
    if not alone.any(axis=0).all():
        at = np.flatnonzero(~alone.any(axis=0))
        acts = np.array([~_same(of(every[every != g]), whole)[at] for g in every])
        mixed = {int(o): np.flatnonzero(acts[:, i]).tolist() for i, o in enumerate(at)}
    return ByGroup(transform, raw, raw_group_of, group_of), mixed


def _moved_by(transform, raw, raw_group_of, n_groups):
    """The group whose cells move each output away from that of the filler; -1 where none does."""
    still = dense(transform(raw.frame({}, 1)))
    found = np.full(still.shape[1], -1)
    for group in range(n_groups):
        for other in (_moved, lambda cell: None):
            cells = {at: [other(raw.filler[at])] for at in np.flatnonzero(raw_group_of == group)}
            try:
                moved = ~_same(dense(transform(raw.frame(cells, 1))), still)
            except (ValueError, TypeError):
                # What the transformer does not take.
                continue
            found[moved & (found < 0)] = group
    return found


def _moved(cell):
    return cell if isinstance(cell, str) or missing(cell) else 2 * cell + 1


def _same(ours, theirs):
    """Which columns are the same but for rounding."""
    if ours.dtype.kind == "O" or theirs.dtype.kind == "O":
        texts = (np.array([[str(v) for v in row] for row in part]) for part in (ours, theirs))
        return np.equal(*texts).all(axis=0)
    return np.isclose(ours, theirs, rtol=1e-9, atol=1e-12, equal_nan=True).all(axis=0)


def structural_groups(transformer, raw, raw_group_of, n_outputs):
    """The group of each output as far as a ColumnTransformer says it; -1 where it does not."""
    found = np.full(n_outputs, -1)
    asked = getattr(transformer, "_transformer_to_input_indices", None)
    places = getattr(transformer, "output_indices_", None)
    if (
        asked is None
        or places is None
        or max((p.stop for p in places.values()), default=0) > n_outputs
    ):
        return found
    for name, place in places.items():
        groups = np.unique(raw_group_of[np.asarray(asked.get(name, []), dtype=int)])
        if len(groups) == 1:
            found[place] = groups[0]
        elif len(groups) > 1:
            _by_name(transformer, name, place, raw, raw_group_of, asked[name], found)
    return found


def _by_name(transformer, name, place, raw, raw_group_of, inputs, found):
    """Groups of outputs whose name tells their column, as those of encoders do."""
    own = transformer.named_transformers_.get(name)
    try:
        columns = [raw.names[at] for at in inputs]
        names = own.get_feature_names_out([str(column) for column in columns])
    except (AttributeError, ValueError, TypeError):
        return
    for at, output in zip(range(place.start, place.stop), names):
        fits = [
            (len(str(column)), position)
            for column, position in zip(columns, inputs)
            if str(output) == str(column)
            or str(output).startswith(f"{column}_")
            or str(output).endswith(f"_{column}")
        ]
        if fits:
            found[at] = raw_group_of[max(fits)[1]]
