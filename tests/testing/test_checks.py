"""Each check of `skroute.testing` fails for an estimator that breaks what it checks."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import validate_data

from skroute.base import CallParameter, CostAwareMixin, Plan, check_affordable
from skroute.routing import BudgetRouter
from skroute.testing import check_decision_estimator
from skroute.testing._checks import CHECKS
from skroute.testing._data import make_target


class Shallow(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """A gate between a shallow tree, at a cost of 1, and a deep one, at a cost of 3."""

    def __init__(self, budget=None):
        self.budget = budget

    def _fit(self, X, y, *, task):
        X = np.asarray(X)
        self.classes_ = np.unique(y)
        self.n_features_in_ = X.shape[1]
        self.models_ = [
            DecisionTreeClassifier(max_depth=d, random_state=0) for d in (1, 5)
        ]
        for model in self.models_:
            model.fit(X, y)
        self.first_column_ = np.sort(X[:, 0])
        check_affordable(self._effective_budget(None), 1.0)
        self.choices_ = ["shallow", "deep"]

    def _smallest_budget(self):
        return 1.0

    def _plan(self, X, call):
        check_affordable(call.budget, 1.0)
        share = min((call.budget - 1.0) / 2.0, 1.0)
        rank = np.searchsorted(self.first_column_, np.asarray(X)[:, 0]) / len(
            self.first_column_
        )
        route = (rank < share).astype(np.int64)
        if share == 1.0:
            route[:] = 1
        return Plan(route, np.where(route == 1, 3.0, 1.0))

    def _answer(self, plan, response):
        answers = [model.predict(np.asarray(plan.X)) for model in self.models_]
        return np.where(plan.route == 1, answers[1], answers[0])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_right_estimator_passes(check):
    check(Shallow())


class CostsOfAnotherPass(Shallow):
    def predict_cost(self, X, budget=None):
        return 2 * self.plan(X, self.make_call(budget)).cost


class OverSpends(Shallow):
    def _plan(self, X, call):
        plan = super()._plan(X, call)
        return plan._replace(cost=plan.cost + 1.0)


class TakesTheMeanOfTheCall(Shallow):
    def _plan(self, X, call):
        X = np.asarray(X)
        return super()._plan(X - X.mean(axis=0), call)


class Remembers(Shallow):
    def _plan(self, X, call):
        self.first_column_ = self.first_column_ + 0.2
        return super()._plan(X, call)


class NoProbabilities(Shallow):
    def _offers_proba(self):
        return True

    def _answer(self, plan, response):
        if response == "predict_proba":
            return np.full((len(plan.route), 3), 0.2)
        return super()._answer(plan, response)


class ShowsAKeywordInVain(Shallow):
    call_parameters = (CallParameter("depth", "int, default=None", "Not used."),)

    def predict(self, X, budget=None):
        return super().predict(X, budget)


class StaysFitted(Shallow):
    def fit(self, X, y):
        self.choices_ = ["shallow", "deep"]
        self._fit(X, y, task=None)
        return self


class ForgetsTheBudget(Shallow):
    def _fit(self, X, y, *, task):
        super()._fit(X, y, task=task)
        self.fitted_budget_ = self._effective_budget(None)

    def make_call(self, budget=None, **parameters):
        return super().make_call(
            self.fitted_budget_ if budget is None else budget, **parameters
        )


@pytest.mark.parametrize(
    ("estimator", "caught_by"),
    [
        (CostsOfAnotherPass(), "check_calls_are_views_of_one_pass"),
        (OverSpends(), "check_smallest_budget"),
        (TakesTheMeanOfTheCall(), "check_rows_are_decided_alone"),
        (Remembers(), "check_deciding_changes_nothing"),
        (NoProbabilities(), "check_probabilities_sum_to_one"),
        (ShowsAKeywordInVain(), "check_signatures_are_true"),
        (StaysFitted(), "check_failed_fit_leaves_nothing_fitted"),
        (ForgetsTheBudget(), "check_budget_acts_at_once"),
    ],
    ids=lambda item: item if isinstance(item, str) else type(item).__name__,
)
def test_a_wrong_estimator_is_caught(estimator, caught_by):
    failed = []
    for instance, check in check_decision_estimator(estimator):
        try:
            check(instance)
        except Exception:
            failed.append(check.__name__)
    assert caught_by in failed


def test_only_decision_estimators_are_checked():
    with pytest.raises(TypeError, match="CostAwareMixin"):
        next(check_decision_estimator(DecisionTreeClassifier()))


class AnswersInNumbers(CostAwareMixin, RegressorMixin, BaseEstimator):
    """A regressor that answers with the first column, or with the second at a cost of 1."""

    def __init__(self, budget=None):
        self.budget = budget

    def _fit(self, X, y, *, task):
        validate_data(self, X, y)
        self.choices_ = ["first", "second"]

    def _smallest_budget(self):
        return 0.0

    def _plan(self, X, call):
        route = np.full(len(X), int(call.budget >= 1))
        return Plan(route, route.astype(float))

    def _answer(self, plan, response):
        return np.asarray(plan.X)[np.arange(len(plan.X)), plan.route]


def test_score_of_a_regressor_is_r2():
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = X[:, 1] + 0.5 * X[:, 0]
    weight = np.arange(20.0)
    fitted = AnswersInNumbers().fit(X, y)
    assert fitted.score(X, y, weight) == r2_score(y, X[:, 1], sample_weight=weight)
    assert fitted.score(X, y, budget=0.5) == r2_score(y, X[:, 0])


class NamesASingleChoice(Shallow):
    def _single_choices(self):
        return ["deep"]


def test_single_choices_need_a_plan():
    X = np.random.default_rng(0).normal(size=(20, 2))
    fitted = NamesASingleChoice().fit(X, X[:, 0] > 0)
    with pytest.raises(NotImplementedError, match="NamesASingleChoice .* _plan_single"):
        fitted.plan_single(X, "deep")


class ReadsNumbers(Shallow):
    def _check_rows(self, X):
        return validate_data(self, X, reset=False)


def test_masked_rows_are_refused_before_the_rows_are_read():
    X = np.random.default_rng(0).normal(size=(20, 2))
    fitted = ReadsNumbers().fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="must have no missing values"):
        fitted.predict(np.ma.masked_array(X, X > 1))


def test_a_router_of_more_choices_than_labels_gets_a_column_for_each():
    labels = np.repeat(["ant", "bee", "hornet"], 10)
    router = BudgetRouter(DecisionTreeRegressor(), costs=[1, 2, 3, 4])
    qualities = make_target(router, labels)
    assert qualities.shape == (30, 4)
    assert (qualities.max(axis=0) > 0.5).all()
