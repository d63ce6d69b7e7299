"""The cache of a sweep over budgets: each model is called once on each row.

A curve, a certificate or a display asks an estimator about the same rows at many
budgets. The answers of models, estimates and other inputs of a decision do not depend
on the budget. A copy of the estimator, from :func:`with_cache`, computes them once.
"""

from copy import copy

import numpy as np

# Attribute of an estimator that holds its cache during a sweep.
_ATTRIBUTE = "_call_cache"


class CallCache:
    """Values that a sweep over budgets has computed for its rows.

    All methods of one cache are called for the same rows.

    Parameters
    ----------
    row_counts : dict, default=None
        Counts of another cache, to which those of this cache are added. None starts at
        zero.

    Attributes
    ----------
    row_counts : dict of str to int
        For each model the number of rows that it was called on.
    """

    def __init__(self, row_counts=None):
        # The dict itself, not a copy: the cache that it is from and this cache add
        # their calls to the same counts.
        self.row_counts = {} if row_counts is None else row_counts
        # Dict from a key to a pair: the value, and an object that is kept alive because
        # its id is part of the key, or None.
        self._values = {}
        # Dict from a key to a pair: an array of values of all rows, and the mask of the
        # rows whose value is computed.
        self._row_values = {}

    def count_rows(self, name, n_rows):
        """Add `n_rows` to the rows that the model `name` was called on."""
        self.row_counts[name] = self.row_counts.get(name, 0) + n_rows

    def get_or_compute(self, key, compute, keep_alive=None):
        """Return the stored value of a key. It is computed at the first call.

        Parameters
        ----------
        key : hashable
        compute : callable
            ``compute()`` returns the value. It is called if the key is new.
        keep_alive : object, default=None
            Object whose ``id`` is part of the key. The cache holds a reference to it,
            so that no other object gets this id. None: the key has no id.

        Returns
        -------
        object
        """
        if key not in self._values:
            self._values[key] = compute(), keep_alive
        value, _ = self._values[key]
        return value

    def get_or_compute_rows(self, key, rows, n_rows, compute):
        """Return the values of `rows`. Only values that are not stored are computed.

        Parameters
        ----------
        key : hashable
        rows : ndarray of int
            Positions among all rows of the sweep.
        n_rows : int
            Number of all rows of the sweep.
        compute : callable
            ``compute(new_rows)`` returns an array with an entry for each row. It is
            called with the positions of the rows that have no value, if there are any.

        Returns
        -------
        ndarray of shape (n_selected_rows, ...)
            A copy, in the order of `rows`.
        """
        if key in self._row_values:
            values, is_computed = self._row_values[key]
        else:
            # None: the array of values is made when the first ones are computed. Their
            # dtype and shape are not known before.
            values = None
            is_computed = np.zeros(n_rows, dtype=bool)
        new_rows = rows[~is_computed[rows]]
        if len(new_rows):
            new_values = np.asarray(compute(new_rows))
            if values is None:
                # Entries of rows that are not computed are never read.
                values = np.empty(
                    (n_rows, *new_values.shape[1:]), dtype=new_values.dtype
                )
            elif values.dtype != new_values.dtype:
                # New texts may be longer than the stored ones.
                values = values.astype(np.result_type(values, new_values))
            values[new_rows] = new_values
            is_computed[new_rows] = True
            self._row_values[key] = values, is_computed
        return values[rows]


class _NoCache(CallCache):
    """Cache of an estimator outside of a sweep: it stores and counts nothing."""

    def count_rows(self, name, n_rows):
        """Count nothing."""

    def get_or_compute(self, key, compute, keep_alive=None):
        """Return ``compute()``."""
        return compute()

    def get_or_compute_rows(self, key, rows, n_rows, compute):
        """Return ``compute(rows)``."""
        return compute(rows)


# The cache of all estimators outside of a sweep: it computes each value again.
NO_CACHE = _NoCache()


def cache_of(estimator):
    """Return the cache of an estimator, which is `NO_CACHE` outside of a sweep."""
    return vars(estimator).get(_ATTRIBUTE, NO_CACHE)


def with_cache(estimator, row_counts=None):
    """Return a shallow copy of a fitted decision estimator with a new, empty cache.

    All calls of the copy must be about the same rows, since it stores values for them.

    Parameters
    ----------
    estimator : CostAwareMixin
        Fitted. ``_share_cache(cache)`` is called on the copy. A wrapper that calls its
        inner estimator about the same rows gives it a cache there.
    row_counts : dict, default=None
        The calls of the copy are added to these counts, see :class:`CallCache`.

    Returns
    -------
    CostAwareMixin
        It shares the fitted models with `estimator`, which is not changed.
    """
    cached = copy(estimator)
    cache = CallCache(row_counts)
    vars(cached)[_ATTRIBUTE] = cache
    cached._share_cache(cache)
    return cached
