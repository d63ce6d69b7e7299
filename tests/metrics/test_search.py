"""A search within a budget: its results, its calls, and candidates that fail."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.features import CostAwarePipeline, LazyFeatures
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.metrics import BudgetSearchCV, best_within_budget, mean_cost_scorer
from skroute.routing import FrugalMLClassifier, OccamRouterClassifier

pytestmark = pytest.mark.filterwarnings(
    "ignore:One or more of the test scores are non-finite"
)

X, Y = make_classification(160, n_features=6, n_informative=4, random_state=0)
GRID = [0.0005, 0.02, 0.05]


def miser(**params):
    """Return a classifier that buys few features."""
    defaults = {"gate": BoostedGate(n_estimators=5), "p_full": 0, "cv": 2}
    return AdaptGatingClassifier(DummyClassifier(), **{**defaults, **params})


SCALED = [("scale", StandardScaler()), ("buy", miser())]


@pytest.mark.parametrize(
    "model, name",
    [
        (miser(), "gamma"),
        (make_pipeline(StandardScaler(), miser()), "adaptgatingclassifier__gamma"),
        (CostAwarePipeline(SCALED), "buy__gamma"),
    ],
    ids=["plain", "pipeline", "cost-aware pipeline"],
)
def test_it_finds_what_a_grid_search_finds_and_is_asked_like_it(model, name):
    grid = {name: GRID}
    search = BudgetSearchCV(model, grid, budget=5, quality="accuracy", cv=2).fit(X, Y)
    theirs = GridSearchCV(
        clone(model),
        grid,
        scoring={"accuracy": "accuracy", "cost": mean_cost_scorer},
        refit=best_within_budget(5),
        cv=2,
    ).fit(X, Y)
    assert search.best_params_ == theirs.best_params_
    best_accuracy = theirs.cv_results_["mean_test_accuracy"][theirs.best_index_]
    assert search.best_score_ == best_accuracy and search.best_cost_ <= 5
    routed = search.predict_routed(X)
    np.testing.assert_array_equal(routed.y_pred, theirs.predict(X))
    np.testing.assert_array_equal(routed.y_pred, search.predict(X, budget=np.inf))
    np.testing.assert_array_equal(routed.cost, search.predict_cost(X))
    np.testing.assert_array_equal(routed.route, search.route(X))
    assert search.predict_proba(X).shape == (len(X), 2)
    assert (
        search.score(X, Y)
        == (routed.y_pred == Y).mean()
        == search.score(X, Y, budget=6)
    )
    assert search.min_budget_ == routed.cost.min() and len(search.choices_) >= 1
    with pytest.raises(ValueError, match="smallest feasible budget"):
        search.predict(X, budget=0.1)
    clone(search).set_params(budget=2)
    if not hasattr(model, "steps") or isinstance(model, CostAwarePipeline):
        lazy = LazyFeatures(
            lambda columns, rows: X[np.ix_(rows, columns)], n_samples=len(X)
        )
        np.testing.assert_array_equal(search.predict(lazy), routed.y_pred)
        n_bought = sum(
            len(columns) * len(rows) for columns, rows in lazy.acquisition_log_
        )
        assert n_bought == routed.cost.sum()


def test_candidates_that_fail_say_why():
    grid = {"feature_costs": [[1.0, 2.0], None], "gamma": [0.02]}
    with pytest.warns(FitFailedWarning, match="2 fits failed"):
        search = BudgetSearchCV(miser(), grid, budget=6, cv=2).fit(X, Y)
    assert search.best_params_["feature_costs"] is None
    too_little = BudgetSearchCV(miser(), grid, budget=0, cv=2)
    with (
        # scikit-learn warns of the reason while it searches.
        pytest.warns(FitFailedWarning, match="feature_costs must have one number"),
        pytest.raises(ValueError, match="No candidate keeps"),
    ):
        too_little.fit(X, Y)
    with pytest.raises(ValueError, match="budget"):
        BudgetSearchCV(miser(), {"gamma": [1]}, budget=-1).fit(X, Y)


@pytest.mark.parametrize("kind", [OccamRouterClassifier, FrugalMLClassifier])
def test_it_fits_once_for_what_acts_at_once(kind):
    fits = []

    class Noting(DummyClassifier):
        def fit(self, X, y):
            fits.append(len(X))
            return super().fit(X, y)

    router = kind([("prior", Noting()), ("bayes", GaussianNB())], costs=[1, 5], cv=2)
    grid = {
        "router__budget": [0.5, 1.0, 2.0, 4.0],
        "router__estimators": [router.estimators],
    }
    if kind is OccamRouterClassifier:
        router.set_params(quality_estimator=Ridge())
        grid["router__reg_lambda"] = [0, 2.0]
    pipeline = Pipeline([("scale", StandardScaler()), ("router", router)])
    with pytest.warns(UserWarning, match="cannot be scored and is left out"):
        search = BudgetSearchCV(pipeline, grid, budget=3, cv=2).fit(X, Y)
    # Two folds and the best on all rows, each of them in two folds more.
    assert len(fits) == 9
    theirs = GridSearchCV(
        pipeline,
        grid | {"router__budget": [1.0, 2.0, 4.0]},
        scoring={"quality": None, "cost": mean_cost_scorer},
        refit=best_within_budget(3, "quality"),
        cv=2,
    ).fit(X, Y)
    assert search.best_params_ == theirs.best_params_
    ours = search.cv_results_
    for params, quality in zip(
        *map(theirs.cv_results_.get, ("params", "mean_test_quality"))
    ):
        assert ours["mean_test_quality"][ours["params"].index(params)] == quality
    np.testing.assert_array_equal(search.predict(X), theirs.predict(X))
    assert np.isnan(ours["mean_test_cost"]).mean() == 0.25
