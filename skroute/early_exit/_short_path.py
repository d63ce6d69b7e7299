"""Calls with one row, or a plain array: what such a call does not need is left out."""

import math

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
        self.only = len(classes) == 1
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
        single, answers, array = self.single, self.answers, np.ndarray
        shape, (pack, values), kernels = single.shape, single.layout, single.kernels
        double, small = np.dtype(np.float64), np.dtype(np.float32)
        long_label, long_proba, proba_of = self._long_label, self._long_proba, self._proba

        def label(X):
            if type(X) is not array or X.shape != shape:
                return long_label(X)
            kind = X.dtype
            if not ((kind is double or kind is small) and X.flags.aligned):
                return long_label(X)
            at = kernels()[1](X, pack, values)
            return answers[at].copy() if at >= 0 else None

        def proba(X):
            if type(X) is not array:
                return long_proba(X)
            walked = single.walk(X)
            return None if walked is None else proba_of(*walked)

        return label, proba

    def _long_proba(self, X):
        """Probabilities of one row, of shape (1, n_classes); None where this path cannot say."""
        rows = None if self.single is None else self.cells(X)
        walked = None if rows is None else self.single.walk(rows)
        return None if walked is None else self._proba(*walked)

    def _long_label(self, X):
        """Label of one row, of shape (1,); None where this path cannot say."""
        if self.single is None:
            return None
        rows = X if type(X) is np.ndarray and not self.named else self.cells(X)
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
            answer = self._proba(distance, members)
        return Routed(answer, np.array([members]), self.spent[members : members + 1].copy())

    def _proba(self, distance, members):
        link = self.single.link
        if link.kind == "mean":
            positive = 0.5 + link.shift + distance / members
        else:
            # One that cannot overflow on either side.
            score = link.slope * (distance + link.shift)
            raised = math.exp(-abs(score))
            positive = (1.0 if score > 0 else raised) / (1.0 + raised)
        return np.array([[positive]] if self.only else [[1.0 - positive, positive]])


def prepared(estimator, budget, context):
    """The `ShortPath` of an estimator, where a call says nothing more and nothing was changed."""
    known = vars(estimator)
    plain = budget is None and estimator.budget is None and not context
    if not plain or known.get("_of_fit"):
        return None
    if known.get("_held"):
        estimator._check_unchanged()
    return known.get("_short")
