"""A stand-in for a net with exits, without torch: its scores are columns of the rows."""

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin


class ColumnRun:
    """A pass through a `ColumnNet` that insists on the order of the exits."""

    def __init__(self, net, X):
        self.net = net
        self.X = np.asarray(X)
        self.depth = np.zeros(len(self.X), dtype=int)

    def logits(self, exit, rows=None):
        rows = np.arange(len(self.X)) if rows is None else rows
        assert (self.depth[rows] <= exit).all(), "a stage would be computed again"
        for stage in range(exit + 1):
            self.net.rows_[stage] += int((self.depth[rows] <= stage).sum())
        self.depth[rows] = exit + 1
        width = len(self.net.classes_)
        return self.X[rows, exit * width : (exit + 1) * width]

    def release(self, rows):
        self.depth[rows] = 0

    def proba(self, exit, rows=None):
        return softmax(self.logits(exit, rows), axis=1)


class ColumnNet(ClassifierMixin, BaseEstimator):
    """The scores of exit `k` are the `k`-th block of columns; `rows_` counts rows per stage."""

    def __init__(self, n_exits=3):
        self.n_exits = n_exits

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.n_exits_ = self.n_exits
        self.rows_ = [0] * self.n_exits
        return self

    def start(self, X):
        return ColumnRun(self, X)

    def stage_call(self, exit, previous=-1):
        return ColumnCall(self, exit)

    def _exit_proba(self, X, exit):
        return self.start(X).proba(exit)

    def predict_proba(self, X):
        return self._exit_proba(X, self.n_exits_ - 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class ColumnCall:
    """Takes longer the deeper the exit."""

    def __init__(self, net, exit):
        self.net = net
        self.exit = exit

    def __call__(self, X):
        for _ in range(1 + self.exit):
            self.net.start(X).logits(self.exit)


def column_rows(n, n_classes, n_exits, rng):
    """Rows whose later exits are better: scores are the truth plus less and less noise."""
    y = rng.integers(n_classes, size=n)
    noise = rng.normal(size=(n, n_exits, n_classes))
    scores = (
        3.0 * (y[:, None] == np.arange(n_classes))[:, None, :]
        + noise * (np.geomspace(2.5, 0.5, n_exits)[None, :, None])
    )
    return scores.reshape(n, -1), y
