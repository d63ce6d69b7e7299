"""Calls with one row, or a plain array: what such a call does not need is left out."""

import numpy as np

from skroute.base import Routed


class ShortPath:
    """What scikit-learn's checks would find out, prepared; kept out of pickles.

    Parameters
    ----------
    engine : Engine
        In the order of evaluation.

    classes : ndarray of shape (n_classes,)
    thresholds : ExitThresholds
        Those in use.

    spent : ndarray of shape (n_members + 1,)
        Cost of each number of members.

    named : bool
        Whether the columns have names, which arrays lack.

    Attributes
    ----------
    label, proba : callable
        Label of one row, of shape (1,), and probabilities; None where this path cannot say.
    """

    def __init__(self, engine, classes, thresholds, spent, named):
        self.engine, self.named = engine, named
        self.single = engine.single_row(thresholds)
        self.answers = classes[:1], classes[-1:]
        self.width = 1, len(classes)
        self.spent = spent
        self.columns = None
        self.label, self.proba = self._long_label, self._long_proba
        if self.single is not None and not named:
            self.label, self.proba = self._prepared()

    def remember(self, X):
        """Keep the columns of a frame that has been checked: the next one may have the same."""
        columns = getattr(X, "columns", None)
        forest = getattr(self.engine, "forest", None)
        if hasattr(columns, "equals") and forest is not None and not forest.categories:
            self.columns = columns

    def cells(self, X):
        """Rows as an array where they need no look at their names, else None."""
        if type(X) is np.ndarray:
            return None if self.named else X
        if self.columns is None or not hasattr(X, "to_numpy"):
            return None
        columns = getattr(X, "columns", None)
        return X.to_numpy() if columns is self.columns or self.columns.equals(columns) else None

    def _prepared(self):
        """`label` and `proba` of a float row, with nothing left to look up."""
        answers, width, array, empty = self.answers, self.width, np.ndarray, np.empty
        (pack, values), kernels = self.single.layout, self.single.kernels
        double, small = np.dtype(np.float64), np.dtype(np.float32)
        long_label, long_proba = self._long_label, self._long_proba

        def read(X):
            # The kernels look at the shape themselves.
            kind = X.dtype
            return (kind is double or kind is small) and X.ndim == 2 and X.flags.aligned

        def label(X):
            if type(X) is not array or not read(X):
                return long_label(X)
            at = kernels()[1](X, pack, values)
            return answers[at].copy() if at >= 0 else None

        def proba(X):
            if type(X) is not array or not read(X):
                return long_proba(X)
            found = empty(width)
            return found if kernels()[2](X, pack, values, found) else None

        return label, proba

    def _long_proba(self, X):
        """Probabilities of one row, of shape (1, n_classes); None where this path cannot say."""
        rows = None if self.single is None else self.cells(X)
        if rows is None:
            return None
        found = np.empty(self.width)
        return found if self.single.proba(rows, found) else None

    def _long_label(self, X):
        """Label of one row, of shape (1,); None where this path cannot say."""
        rows = None if self.single is None else self.cells(X)
        if rows is None or (at := self.single.label(rows)) < 0:
            return None
        return self.answers[at].copy()

    def one_row(self, X, response):
        """Answer, number of members and cost of one row; None where this path cannot say."""
        walked = None if self.single is None else self.single.walk(X)
        if walked is None:
            return None
        distance, members = walked
        if response is None:
            answer = None
        elif response == "predict":
            answer = self.answers[distance > 0].copy()
        elif response == "decision_function":
            answer = np.array([distance])
        else:
            answer = np.empty(self.width)
            self.single.proba(X, answer)
        return Routed(answer, np.array([members]), self.spent[members : members + 1].copy())


def prepared(estimator):
    """The `ShortPath` of an estimator, where its own budget is none and nothing was changed."""
    known = estimator.__dict__
    return None if estimator.budget is not None else known.get("_short")
