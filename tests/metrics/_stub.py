"""A router whose curve is known exactly."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skroute.base import CostAwareMixin, Plan


class RankRouter(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Router between a cheap model and a costly one that is always right.

    The rows with the largest first feature go to the costly model. The first feature
    must be uniform on [0, 1]. The cheap model always answers 0. Costs are 1 and 3.
    """

    def __init__(self, budget=None, shift=0.0):
        self.budget = budget
        self.shift = shift

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.n_features_in_ = np.shape(X)[1]
        self.n_calls_ = 0
        self.choices_ = ["cheap", "costly"]
        return self

    def _plan(self, X, call):
        budget = call.budget
        if budget < 1:
            raise ValueError(f"budget={budget!r}: the smallest feasible budget is 1.")
        share = min((budget - 1) / 2, 1.0)
        route = (np.asarray(X)[:, 0] >= 1 - share + self.shift).astype(np.int64)
        return Plan(route, np.where(route, 3.0, 1.0))

    def _answer(self, plan, response):
        self.n_calls_ += 1
        label = np.where(plan.route, np.asarray(plan.X)[:, 1], 0).astype(np.int64)
        return label if response == "predict" else np.eye(2)[label]

    def _offers_proba(self):
        return True


def problem(n=200):
    """Return rows with the label as second feature, and labels: half of them are 1."""
    rank = np.arange(n) / n
    y = np.arange(n) % 2
    return np.column_stack([rank, y]), y
