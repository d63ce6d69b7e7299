"""A gate: a small model on few columns, and a large model for rows where it is unsure."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from skroute.base import (
    CostAwareMixin,
    Plan,
    affords,
    check_affordable,
    check_budget,
    check_costs,
)


class ConfidenceGateClassifier(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Answer by a small model on `columns`; ask a large model about the least sure rows."""

    def __init__(self, small, large, columns, *, costs, budget=None, cv=5):
        self.small = small
        self.large = large
        self.columns = columns
        self.costs = costs
        self.budget = budget
        self.cv = cv

    def _fit(self, X, y, *, task):
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.columns_ = np.asarray(self.columns)
        if self.columns_.min() < 0 or self.columns_.max() >= self.n_features_in_:
            raise ValueError(
                f"columns={self.columns!r} must be positions of columns, from 0 to below "
                f"n_features={self.n_features_in_}. Give columns that X has."
            )
        self.small_cost_, self.large_cost_ = check_costs(self.costs, ["small", "large"])
        check_affordable(check_budget(self.budget), self._smallest_budget())
        self.classes_ = np.unique(y)

        with task.step("fit small"):
            few = X[:, self.columns_]
            proba = cross_val_predict(
                self.small, few, y, cv=self.cv, method="predict_proba"
            )
            self.small_ = clone(self.small).fit(few, y)
        with task.step("fit large"):
            self.large_ = clone(self.large).fit(X, y)
        # Out of fold, since the small model is too sure about rows that it was fitted on.
        self.sorted_confidence_ = np.sort(proba.max(axis=1))
        self.choices_ = ["small", "small > large"]

    def _smallest_budget(self):
        return self.small_cost_

    def threshold_at(self, budget):
        """Return the confidence below which the large model answers."""
        if affords(budget, self.small_cost_ + self.large_cost_):
            return np.inf
        # Each row pays for the small model.
        share = (budget - self.small_cost_) / self.large_cost_
        n_large = int(share * len(self.sorted_confidence_))
        if n_large == 0:
            return -np.inf
        return self.sorted_confidence_[n_large]

    def _check_rows(self, X):
        return validate_data(self, X, reset=False)

    def _plan(self, X, call):
        check_affordable(call.budget, self._smallest_budget())
        proba = self.small_.predict_proba(X[:, self.columns_])
        is_unsure = proba.max(axis=1) < self.threshold_at(call.budget)
        cost = self.small_cost_ + self.large_cost_ * is_unsure
        # The state hands the answers of the small model to `_answer`.
        return Plan(is_unsure.astype(np.int64), cost, state=proba)

    def _answer(self, plan, response):
        proba = np.array(plan.state)
        rows = np.flatnonzero(plan.route == 1)
        if len(rows) > 0:
            proba[rows] = self.large_.predict_proba(plan.X[rows])
        if response == "predict_proba":
            return proba
        return self.classes_[proba.argmax(axis=1)]

    def _offers_proba(self):
        return True

    def _single_choices(self):
        return ["small", "large"]

    def _plan_single(self, X, name, call):
        if name == "small":
            cost = self.small_cost_
            proba = self.small_.predict_proba(X[:, self.columns_])
        else:
            cost = self.large_cost_
            proba = self.large_.predict_proba(X)
        # -1: the large model alone is not among the choices.
        return Plan(np.full(len(X), -1), np.full(len(X), cost), state=proba)
