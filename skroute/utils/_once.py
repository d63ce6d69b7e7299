"""A walk over the budgets of an estimator on the same rows, in which nothing is asked twice."""

from collections.abc import Mapping
from copy import copy
from types import MappingProxyType

import numpy as np


class Once:
    """What has been computed for the rows of a walk.

    The rows are the same at every budget; only what is decided of them there is not.

    Attributes
    ----------
    calls : dict from str to int
        Answers that each model was asked for.
    """

    def __init__(self):
        self._whole, self._rows = {}, {}
        self.calls = {}

    def count(self, name, n_rows):
        """Note that a model is asked about some rows."""
        self.calls[name] = self.calls.get(name, 0) + n_rows

    def whole(self, key, compute, of=None):
        """A thing that is computed for all rows at once.

        Parameters
        ----------
        key : hashable
        compute : callable
            Called without arguments, the first time.
        of : object, default=None
            What computes it, where `key` has its ``id``: it is kept, so that no other has it.
        """
        if key not in self._whole:
            self._whole[key] = compute(), of
        return self._whole[key][0]

    def rows(self, key, rows, n_rows, compute):
        """What is computed row by row, for some rows.

        Parameters
        ----------
        key : hashable
        rows : ndarray of int
            Positions.
        n_rows : int
            All rows of the walk.
        compute : callable
            ``compute(new)`` for those of `rows` that it was not called for.

        Returns
        -------
        ndarray of shape (len(rows), ...)
        """
        known, asked = self._rows.get(key, (None, np.zeros(n_rows, dtype=bool)))
        new = rows[~asked[rows]]
        if len(new):
            part = np.asarray(compute(new))
            if known is None:
                known = np.empty((n_rows, *part.shape[1:]), dtype=part.dtype)
            elif known.dtype != part.dtype:
                known = known.astype(np.result_type(known, part))
            known[new] = part
            asked[new] = True
            self._rows[key] = known, asked
        return known[rows]


class _Every:
    """No walk: everything is computed when it is needed, and nothing counted."""

    calls: Mapping = MappingProxyType({})

    def count(self, name, n_rows):
        pass

    def whole(self, key, compute, of=None):
        return compute()

    def rows(self, key, rows, n_rows, compute):
        return compute(rows)


EVERY = _Every()


def once_of(estimator):
    """What an estimator knows of the rows of its walk; outside of one, nothing is kept."""
    return vars(estimator).get("_once", EVERY)


def walking(estimator):
    """The same fitted estimator for calls about the same rows, which asks nothing twice.

    It holds the answers to these rows, and is not to be kept. Estimators that have others to
    decide for them implement ``_remember(once)``, which is called on the copy.

    Parameters
    ----------
    estimator : fitted decision estimator

    Returns
    -------
    estimator
        A shallow copy.
    """
    own = copy(estimator)
    vars(own)["_once"] = once = Once()
    if hasattr(own, "_remember"):
        own._remember(once)
    return own
