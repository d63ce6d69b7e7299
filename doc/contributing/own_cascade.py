"""A router that decides from the answers: it asks members until one of them is sure."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from skroute.base import (
    CostAwareMixin,
    Plan,
    affords,
    check_affordable,
    check_budget,
    check_costs,
    check_rows,
    inherit_member_tags,
    take_rows,
)


class ConfidenceCascadeClassifier(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Ask members by rising cost until the largest probability reaches a threshold."""

    def __init__(self, estimators, *, costs, budget=None, n_thresholds=21, cv=5):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.n_thresholds = n_thresholds
        self.cv = cv

    def _fit(self, X, y, *, task):
        X = check_rows(self, X, reset=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        costs = check_costs(self.costs, [name for name, _ in self.estimators])
        order = np.argsort(costs, kind="stable")
        members = [self.estimators[k] for k in order]
        self.member_costs_ = costs[order]
        check_affordable(check_budget(self.budget), self._smallest_budget())
        self.classes_, labels = np.unique(y, return_inverse=True)

        # Out of fold, by rising cost of the members: (n_rows, n_members).
        confidence = np.empty((len(y), len(members)))
        is_right = np.empty((len(y), len(members)))
        self.estimators_ = []
        for k, (name, member) in enumerate(members):
            with task.step(f"fit {name}"):
                proba = cross_val_predict(
                    member, X, y, cv=self.cv, method="predict_proba"
                )
                confidence[:, k] = proba.max(axis=1)
                is_right[:, k] = proba.argmax(axis=1) == labels
                self.estimators_.append(clone(member).fit(X, y))
        self.choice_costs_ = np.cumsum(self.member_costs_)
        self.measure_thresholds(confidence, is_right)

        self.member_names_ = [name for name, _ in members]
        lengths = range(1, len(members) + 1)
        self.choices_ = [" > ".join(self.member_names_[:length]) for length in lengths]

    def measure_thresholds(self, confidence, is_right):
        """Compute mean cost and quality of each threshold on the out-of-fold answers."""
        rows = np.arange(len(confidence))
        self.thresholds_ = np.linspace(0, 1, self.n_thresholds)
        self.threshold_costs_ = np.empty(self.n_thresholds)
        self.threshold_quality_ = np.empty(self.n_thresholds)
        for i, threshold in enumerate(self.thresholds_):
            is_sure = confidence >= threshold
            # The last member is not followed by another one.
            is_sure[:, -1] = True
            route = is_sure.argmax(axis=1)
            self.threshold_costs_[i] = self.choice_costs_[route].mean()
            self.threshold_quality_[i] = is_right[rows, route].mean()

    def threshold_at(self, budget):
        """Return the best threshold within a budget. Ties go to the cheaper one."""
        is_within = affords(budget, self.threshold_costs_)
        # Costs rise with the threshold, and argmax takes the first of equal ones.
        best = np.where(is_within, self.threshold_quality_, -1.0).argmax()
        return self.thresholds_[best]

    def _smallest_budget(self):
        return self.member_costs_[0]

    def _plan(self, X, call):
        check_affordable(call.budget, self._smallest_budget())
        threshold = self.threshold_at(call.budget)
        proba = np.array(self.estimators_[0].predict_proba(X), dtype=np.float64)
        route = np.zeros(len(proba), dtype=np.int64)
        for k, member in enumerate(self.estimators_[1:], start=1):
            is_unsure = proba.max(axis=1) < threshold
            rows = np.flatnonzero(is_unsure & (route == k - 1))
            if len(rows) == 0:
                break
            proba[rows] = member.predict_proba(take_rows(X, rows))
            route[rows] = k
        # The state hands the answers to `_answer`, which asks no member again.
        return Plan(route, self.choice_costs_[route], state=proba)

    def _answer(self, plan, response):
        if response == "predict_proba":
            return plan.state
        return self.classes_[plan.state.argmax(axis=1)]

    def _offers_proba(self):
        return True

    def _single_choices(self):
        return list(self.member_names_)

    def _plan_single(self, X, name, call):
        k = self.member_names_.index(name)
        proba = self.estimators_[k].predict_proba(X)
        # A member alone is not among the choices, which start with the cheapest member.
        route = np.full(len(proba), -1)
        return Plan(route, np.full(len(proba), self.member_costs_[k]), state=proba)

    def __sklearn_tags__(self):
        members = [member for _, member in self.estimators]
        return inherit_member_tags(super().__sklearn_tags__(), members)
