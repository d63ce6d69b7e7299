"""A walk over the budgets of an estimator on the same rows, in which nothing is asked twice."""

from copy import copy

import numpy as np


class Once:
    """What has been computed for the rows of a walk.

    The rows are the same at every budget; only what is decided of them there is not. If it does
    not keep, there is no walk: everything is computed when it is needed, and nothing counted.
    ``calls`` is how many answers each model was asked for.
    """

    def __init__(self, keeps=True):
        self.keeps = keeps
        self._whole, self._rows, self.calls = {}, {}, {}

    def count(self, name, n_rows):
        """Note that a model is asked about some rows."""
        if self.keeps:
            self.calls[name] = self.calls.get(name, 0) + n_rows

    def whole(self, key, compute, of=None):
        """What ``compute()`` gives for all rows at once, called the first time.

        Where `key` has the ``id`` of what computes it, that is `of`: it is kept, so that no other
        has this id.
        """
        if not self.keeps:
            return compute()
        if key not in self._whole:
            self._whole[key] = compute(), of
        return self._whole[key][0]

    def rows(self, key, rows, n_rows, compute):
        """What ``compute(new)`` gives row by row for `rows`, by position among all `n_rows`.

        It is called for those that it was not called for.
        """
        if not self.keeps:
            return compute(rows)
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


EVERY = Once(keeps=False)


def once_of(estimator):
    """What an estimator knows of the rows of its walk; outside of one, nothing is kept."""
    return vars(estimator).get("_once", EVERY)


def walking(estimator):
    """A shallow copy of a fitted estimator for calls about the same rows: it asks nothing twice.

    It holds the answers to these rows, and is not to be kept. Estimators that have others to
    decide for them implement ``_remember(once)``, which is called on the copy.
    """
    own = copy(estimator)
    vars(own)["_once"] = once = Once()
    if hasattr(own, "_remember"):
        own._remember(once)
    return own
