"""Nets with exits as ensembles: what an exit adds is what it changes."""

import numpy as np

from skroute.early_exit._link import Link
from skroute.early_exit._member_engine import sides
from skroute.utils._compat import _safe_indexing, num_samples

# Rows whose hidden states are held at the same time, where the net does not say.
_BLOCK = 1024


def has_exits(estimator):
    """Whether an estimator is evaluated exit by exit, as MultiExitClassifier is.

    It has ``n_exits_``, ``start(X)``, which returns a run with ``logits(exit, rows)`` and
    ``release(rows)``, for rows that will not go on, and ``stage_call(exit, previous)``. Its
    ``eval_batch_size``, if it has one, is how many rows are evaluated together.
    """
    return hasattr(estimator, "n_exits_") and may_exit(estimator)


def may_exit(estimator):
    """Whether an estimator has exits once it is fitted."""
    return hasattr(estimator, "start") and hasattr(estimator, "stage_call")


class ExitEngine:
    """Members are the exits of a net, each going on from where the one before it stopped.

    The score of an exit replaces that of the exit before. As the sum that QWYC stops, the
    first member adds the scores of the first exit, and member `k` the difference between
    the scores of exits `k` and `k - 1`; so the partial sum is the score of the last exit
    evaluated, and the full sum that of the net. There is one order.

    Parameters
    ----------
    net : estimator with exits
        See :func:`has_exits`.
    """

    in_order = True
    votes = False

    def __init__(self, net):
        self.net = net
        n_classes = len(net.classes_)
        self.n_members = net.n_exits_
        self.n_outputs = 1 if n_classes == 2 else n_classes
        self.offset = np.zeros(self.n_outputs)
        self.beta = 0.0
        # The net's own answers are those of its scores, in the same order.
        self.rounding = 0.0
        self.link = Link("logistic" if self.n_outputs == 1 else "softmax")
        self.weights = np.ones(self.n_members)

    def taken(self, order):
        """The engine itself: its members have one order."""
        return self

    def _score(self, run, exit, rows=None):
        logits = run.logits(exit, rows)
        return logits[:, 1:] - logits[:, :1] if self.n_outputs == 1 else logits

    def _blocks(self, X):
        """Where a block of rows is, and a run through the net with them."""
        size = getattr(self.net, "eval_batch_size", _BLOCK)
        for start in range(0, num_samples(X), size):
            here = slice(start, start + size)
            yield here, self.net.start(_safe_indexing(X, here))

    def scores(self, X):
        """What each exit adds: ndarray (n_exits, n_samples, n_outputs), float64."""
        out = np.empty((self.n_members, num_samples(X), self.n_outputs))
        for here, run in self._blocks(X):
            before = 0.0
            for k in range(self.n_members):
                score = self._score(run, k)
                out[k, here] = score - before
                before = score
        return out

    def walk(self, X, thresholds, n_jobs=None):
        """As of any :class:`Engine`; the threads are those of the net's library."""
        n = num_samples(X)
        score = np.empty((n, self.n_outputs))
        members = np.empty(n, dtype=np.int64)
        side = np.zeros(n, dtype=np.int8)
        for here, run in self._blocks(X):
            self._walk(run, thresholds, score[here], members[here], side[here])
        return score, members, side

    def _walk(self, run, thresholds, score, members, side):
        """One block, into the arrays given."""
        rows = np.arange(len(score))
        for k in range(self.n_members):
            now = self._score(run, k, rows)
            score[rows], members[rows] = now, k + 1
            if k == self.n_members - 1:
                break
            side[rows] = sides(thresholds, k, now)
            stays = side[rows] == 0
            run.release(rows[~stays])
            rows = rows[stays]
            if len(rows) == 0:
                break

    def member_calls(self):
        """For each exit a function of rows that goes on to it from the one before."""
        return {k: self.net.stage_call(k, k - 1) for k in range(self.n_members)}

    def plain(self, X):
        """The rows themselves."""
        return X


def only_order(order, n_members):
    """The one order in which exits can be evaluated.

    Parameters
    ----------
    order : str or array-like
        The parameter `order`: "qwyc" finds the best possible order, which is the only one.

    n_members : int

    Returns
    -------
    ndarray of shape (n_members,), dtype=int64

    Raises
    ------
    ValueError
        If another order is asked for.
    """
    natural = np.arange(n_members)
    asked = ["qwyc", "natural"]
    if order not in asked if isinstance(order, str) else not np.array_equal(order, natural):
        raise ValueError(
            f"order={order!r} is not possible: each exit goes on from the one before it, so that "
            'the exits of a net have one order, which "qwyc" and "natural" are.'
        )
    return natural
