"""Cost and budget in scikit-learn's model selection."""

import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.metrics import log_loss, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skroute.metrics import (
    BudgetSearchCV,
    average_performance_gap_recovered,
    best_within_budget,
    cost_quality_auc,
    make_budget_scorer,
    make_curve_scorer,
    mean_cost_scorer,
)
from tests.metrics._stub import RankRouter, problem

X, y = problem()
GRID = {"budget": [1.0, 1.5, 2.0, 2.5, 3.0]}
SCORING = {"accuracy": "accuracy", "cost": mean_cost_scorer}


def both_scores(estimator, X, y):
    return {"accuracy": estimator.score(X, y), "cost": mean_cost_scorer(estimator, X)}


def test_mean_cost():
    router = RankRouter(budget=2).fit(X, y)
    assert mean_cost_scorer(router, X, y) == 2.0
    pipeline = make_pipeline(FunctionTransformer(), router).fit(X, y)
    assert mean_cost_scorer(pipeline, X) == 2.0
    # The cost is known from the decision, without an answer.
    assert router.n_calls_ == 0
    with pytest.raises(TypeError, match="cost-aware"):
        mean_cost_scorer(DummyClassifier().fit(X, y), X, y)


def test_a_budget_scorer_overrides_the_budget_of_the_estimator():
    router = RankRouter(budget=1.5).fit(X, y)
    for budget, accuracy in [(1, 0.5), (2, 0.75), (None, 1.0)]:
        assert make_budget_scorer(budget)(router, X, y) == accuracy
    loss = log_loss(y, router.predict_proba(X, budget=2))
    assert_allclose(make_budget_scorer(2, "neg_log_loss")(router, X, y), -loss)
    assert make_budget_scorer(2, "roc_auc")(router, X, y) == 0.75
    assert make_budget_scorer(2, mean_cost_scorer)(router, X, y) == 2.0
    half = make_scorer(lambda y, y_pred: (y == y_pred).mean() / 2)
    assert make_budget_scorer(2, half)(router, X, y) == 0.375


def test_a_curve_scorer():
    router = RankRouter().fit(X, y)
    budgets = np.linspace(1, 3, 5)
    assert_allclose(make_curve_scorer(cost_quality_auc, budgets)(router, X, y), 0.75)
    scorer = make_curve_scorer(
        average_performance_gap_recovered, budgets, weak=(1, 0.5), strong=(3, 1.0)
    )
    assert_allclose(pickle.loads(pickle.dumps(scorer))(router, X, y), 0.5)


class TestBestWithinBudget:
    @pytest.mark.parametrize("scoring", [SCORING, both_scores])
    @pytest.mark.parametrize("routing", [False, True])
    def test_the_search_can_be_used(self, routing, scoring):
        """Scores, predictions and clones of a fitted search work with the rule."""
        with sklearn.config_context(enable_metadata_routing=routing):
            search = GridSearchCV(
                RankRouter(), GRID, scoring=scoring, refit=best_within_budget(2.2), cv=2
            )
            for copy in (search, clone(search), pickle.loads(pickle.dumps(search))):
                copy.fit(X, y)
                assert copy.score(X, y) == copy.best_estimator_.score(X, y)
                assert_array_equal(copy.predict(X), copy.best_estimator_.predict(X))
                assert copy.predict_proba(X).shape == (len(X), 2)
                quality = copy.cv_results_["mean_test_accuracy"]
                cost = copy.cv_results_["mean_test_cost"]
                assert quality[copy.best_index_] == quality[cost <= 2.2].max()
                # scikit-learn: "not available if refit is a function".
                assert not hasattr(copy, "best_score_")

    @pytest.mark.parametrize(
        "search",
        [
            GridSearchCV(
                RankRouter(),
                GRID,
                scoring=SCORING,
                refit=best_within_budget(2.2),
                cv=2,
            ),
            BudgetSearchCV(RankRouter(), GRID, budget=2.2, cv=2),
        ],
        ids=lambda search: type(search).__name__,
    )
    def test_skops_stores_the_search(self, search):
        """The rule keeps its budget, and no object refers to itself."""
        skops = pytest.importorskip("skops.io")
        search = clone(search).fit(X, y)
        data = skops.dumps(search)
        types = skops.get_untrusted_types(data=data)
        stored = skops.loads(data, trusted=types)
        assert_array_equal(stored.predict(X), search.predict(X))
        assert stored.score(X, y) == search.score(X, y)
        results = search.cv_results_
        assert stored.refit(results) == search.refit(results) == search.best_index_

    def test_ties_go_to_the_cheaper_then_the_first(self):
        results = {
            "params": list(range(5)),
            "mean_test_accuracy": [0.8, 0.9, 0.9, 0.9, 0.95],
            "mean_test_cost": [1.0, 3.0, 2.0, 2.0, 9.0],
        }
        assert best_within_budget(5)(results) == 2

    def test_failed_candidates_are_left_out(self):
        results = {
            "params": list(range(3)),
            "mean_test_accuracy": [np.nan, 0.9, 0.7],
            "mean_test_cost": [1.0, np.nan, 1.0],
        }
        assert best_within_budget(5)(results) == 2
        with pytest.raises(
            ValueError, match=r"spends 1 per sample.* 2 of 3 .* were left out"
        ):
            best_within_budget(0.5)(results)
        results["mean_test_cost"] = [np.nan] * 3
        with pytest.raises(
            ValueError, match="All 3 candidates failed in fit or in scoring"
        ):
            best_within_budget(5)(results)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make_budget_scorer(-1), "budget must be a non-negative number"),
        (
            lambda: make_budget_scorer(1, "acuracy"),
            "'acuracy' is not a valid scoring value",
        ),
        (
            lambda: make_budget_scorer(1, 3),
            "scoring must be the name of a scorer, a call",
        ),
        (lambda: make_curve_scorer("auc", [1]), "metric must be callable, got 'auc'"),
        (
            lambda: make_curve_scorer(cost_quality_auc, []),
            "budgets must be a non-empty list",
        ),
        (
            lambda: best_within_budget(1, cost="price")({"mean_test_accuracy": [1.0]}),
            "needs cv_results to have 'mean_test_price'. Give",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
