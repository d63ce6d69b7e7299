"""A router that decides from the row: it estimates which members answer a row rightly."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import (
    CostAwareMixin,
    Plan,
    RequestEstimates,
    RequestPolicy,
    check_affordable,
    check_budget,
    check_costs,
    check_rows,
    count_rows,
    dispatch,
    inherit_member_tags,
    take_rows,
)


class RidgeRouterClassifier(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Route each row to the member with the best estimated quality at the budget's price."""

    def __init__(self, estimators, *, costs, budget=None, alpha=1.0, cv=5):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.alpha = alpha
        self.cv = cv

    def _fit(self, X, y, *, task):
        X = check_rows(self, X, reset=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        names = [name for name, _ in self.estimators]
        self.costs_ = check_costs(self.costs, names)
        check_affordable(check_budget(self.budget), self._smallest_budget())
        self.classes_ = np.unique(y)

        # 1 where a member that was fitted on other rows is right: (n_rows, n_members).
        quality = np.empty((len(y), len(names)))
        self.estimators_ = []
        for k, (name, member) in enumerate(self.estimators):
            with task.step(f"fit {name}"):
                answers = cross_val_predict(member, X, y, cv=self.cv)
                quality[:, k] = answers == y
                self.estimators_.append(clone(member).fit(X, y))
        self.mean_quality_ = quality.mean(axis=0)

        # One ridge with a target for each member is one ridge per member.
        ridge = Ridge(alpha=self.alpha)
        self.estimates_ = cross_val_predict(ridge, X, quality, cv=self.cv)
        self.path_ = assignment_path(self.estimates_, self.costs_)
        self.ridge_ = ridge.fit(X, quality)
        self.choices_ = names

    def _smallest_budget(self):
        return self.costs_.min()

    def _plan(self, X, call):
        check_affordable(call.budget, self._smallest_budget())
        price = self.path_.price(call.budget)
        route = choose_at_price(self.ridge_.predict(X), self.costs_, price)
        return Plan(route, self.costs_[route])

    def request_policy(self, budget, exclude=()):
        """Return what decides the requests of a stream, without excluded members."""
        unknown = sorted(set(exclude) - set(self.choices_))
        if unknown:
            raise ValueError(
                f"exclude={unknown!r} names no member of {self.choices_!r}. Give names "
                "of members."
            )
        is_offered = [name not in exclude for name in self.choices_]
        positions = np.flatnonzero(is_offered)
        if len(positions) == 0:
            raise ValueError(f"exclude={exclude!r} leaves no member. Leave out fewer.")
        return RidgeRequests(self, positions)

    def _answer(self, plan, response):
        def ask(choice, rows):
            method = getattr(self.estimators_[choice], response)
            return method(take_rows(plan.X, rows))

        return dispatch(plan.route, ask)

    def _offers_proba(self):
        return all(hasattr(member, "predict_proba") for _, member in self.estimators)

    def _single_choices(self):
        return list(self.choices_)

    def _plan_single(self, X, name, call):
        route = np.full(count_rows(X), self.choices_.index(name))
        return Plan(route, self.costs_[route])

    def __sklearn_tags__(self):
        members = [member for _, member in self.estimators]
        return inherit_member_tags(super().__sklearn_tags__(), [*members, Ridge()])


class RidgeRequests(RequestPolicy):
    """Requests that are decided by the ridges and the price of a fitted router."""

    def __init__(self, router, positions):
        costs = router.costs_[positions]
        super().__init__(positions, costs)
        self.ridge = router.ridge_
        self.path = assignment_path(router.estimates_[:, positions], costs)

    def price_at(self, budget):
        return self.path.price(budget)

    def estimate(self, X):
        return RequestEstimates(self.ridge.predict(X)[:, self.positions])
