"""An engine for QWYC: a linear classifier that reads one feature after the other."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from skroute.early_exit._engine import (
    Engine,
    Link,
    builds_engine,
    start_walk,
    walk_in_turn,
)
from skroute.utils._cache import NO_CACHE


class FeatureByFeature(LogisticRegression):
    """A logistic regression of two classes whose features are read until the answer is settled."""


class LinearEngine(Engine):
    """The engine whose members are the terms of a linear score, one for each feature.

    Parameters
    ----------
    coef : ndarray of shape (n_features,)
        Coefficients of the features.

    intercept : float
        Score of a row before any feature.

    features : ndarray of shape (n_members,), default=None
        The feature of each member. None is all features in their own order.
    """

    def __init__(self, coef, intercept, features=None):
        self.coef = coef
        self.intercept = intercept
        self.features = np.arange(len(coef)) if features is None else features

    @property
    def n_members(self):
        return len(self.features)

    @property
    def n_outputs(self):
        return 1

    @property
    def offset(self):
        return np.array([self.intercept])

    @property
    def link(self):
        return Link("logistic")

    @property
    def rounding(self):
        # scikit-learn adds the terms in its own order.
        return 1e-12

    def reordered(self, order):
        return LinearEngine(self.coef, self.intercept, self.features[order])

    def _term(self, position, X):
        """Return what a member adds, of shape (n_samples, 1)."""
        feature = self.features[position]
        return np.asarray(X)[:, [feature]] * self.coef[feature]

    def member_scores(self, X):
        terms = [self._term(position, X) for position in range(self.n_members)]
        return np.array(terms, dtype=np.float32)

    def walk(self, X, thresholds, n_jobs=None, cache=NO_CACHE):
        X = np.asarray(X)

        def add(position, rows, scores):
            return scores + self._term(position, X[rows])

        walk = start_walk(self, len(X))
        walk_in_turn(add, thresholds=thresholds, beta=self.beta, walk=walk)
        return walk

    def timed_calls(self):
        calls = {}
        for position in range(self.n_members):
            calls[position] = lambda X, position=position: self._term(position, X)
        return calls


@builds_engine(__name__.split(".")[0], "FeatureByFeature")
def linear_engine(model):
    """Return the engine of a fitted FeatureByFeature."""
    return LinearEngine(model.coef_[0], float(model.intercept_[0]))
