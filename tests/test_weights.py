"""Weights of rows, for every estimator whose fit takes them."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from skroute.feature_sets import GreedyFeatureSelector, PolyDomSelector
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    LinearGate,
    SequentialFeatureClassifier,
)
from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._stacking import choose_weights
from skroute.routing import (
    BudgetRouter,
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from skroute.routing.from_answers._frugal_ml import label_options
from skroute.utils._validation import relative_weights

COSTS = [1.0, 3.0, 4.0]
FACTORS = [1e-9, 1e-3, 1 / 3, 7.3, 1e9]


def problem(seed=0, n_rows=300):
    """Return rows whose label depends on two of four columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    y = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0).astype(int)
    return X, y


def drawn_weights(rng, n_rows):
    """Return weights of one of several kinds, some of them 0."""
    kind = rng.integers(4)
    if kind == 0:
        weight = rng.random(n_rows)
    elif kind == 1:
        weight = rng.integers(1, 4, n_rows).astype(float)
    elif kind == 2:
        weight = rng.exponential(size=n_rows) ** 2
    else:
        weight = np.where(rng.random(n_rows) < 0.5, 0.7, 1.9)
    weight[rng.random(n_rows) < 0.1] = 0.0
    return weight


def frozen_members():
    """Return members that learn nothing from the rows of a test, and so depend on no weights."""
    X, y = problem(99)
    models = [
        GaussianNB(),
        DecisionTreeClassifier(max_depth=3),
        KNeighborsClassifier(3),
    ]
    names = ["bayes", "tree", "near"]
    fitted = [
        FrozenEstimator(model.fit(X[:, :k], y)) for model, k in zip(models, (4, 4, 4))
    ]
    return list(zip(names, fitted))


MEMBERS = frozen_members()
FULL = FrozenEstimator(
    DecisionTreeClassifier(max_depth=5, random_state=0).fit(*problem(98))
)
# The default estimates: what they learn may not depend on the unit of weights.
OWN_ESTIMATES = {
    "occam": OccamRouterClassifier(
        MEMBERS, costs=COSTS, budget=2.0, cv=2, quality_estimator=QualityRegressor(cv=2)
    ),
    "occam regularised": OccamRouterClassifier(
        MEMBERS,
        costs=COSTS,
        budget=2.0,
        cv=2,
        quality="balanced_accuracy",
        reg_lambda=0.5,
        quality_estimator=QualityRegressor(family=["linear", "landmarks"]),
    ),
    "dummy": DummyRouterClassifier(MEMBERS, costs=COSTS, cv=2),
    "frugal ml": FrugalMLClassifier(MEMBERS, costs=COSTS, budget=2.0, cv=2),
    "frugal mct": FrugalMCTClassifier(
        MEMBERS, costs=COSTS, budget=2.0, cv=2, delta="auto"
    ),
    "sequential": SequentialRouterClassifier(
        MEMBERS, costs=COSTS, budget=2.0, cv=2, max_calls=2, n_prices=3
    ),
    "boosted gate": AdaptGatingClassifier(
        FULL, gate=BoostedGate(n_estimators=20), cv=3
    ),
    "linear gate": AdaptGatingClassifier(FULL, gate=LinearGate(tol=1e-3), cv=3),
    "no gate": AdaptGatingClassifier(FULL, p_full=0.0, cv=3),
}


def answers_of(model, X):
    """Return everything that a decision estimator says of rows."""
    routed = model.predict_routed(X)
    return [routed.y_pred, routed.route, routed.cost, model.predict_proba(X)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", OWN_ESTIMATES)
def test_decisions_do_not_depend_on_the_unit_of_weights(name, seed):
    X, y = problem(seed)
    rng = np.random.default_rng(seed)
    weight = drawn_weights(rng, len(y))
    model = OWN_ESTIMATES[name]
    expected = answers_of(clone(model).fit(X, y, sample_weight=weight), X)
    for factor in rng.choice(FACTORS, 2, replace=False):
        found = answers_of(clone(model).fit(X, y, sample_weight=factor * weight), X)
        for own, other in zip(expected, found):
            np.testing.assert_array_equal(own, other)


def test_bought_features_do_not_depend_on_the_unit_of_weights():
    X, y = problem(0, 200)
    rng = np.random.default_rng(0)
    weight = drawn_weights(rng, len(y))
    model = SequentialFeatureClassifier(budget=1.5, random_state=0)
    expected = answers_of(clone(model).fit(X, y, sample_weight=weight), X)
    found = answers_of(clone(model).fit(X, y, sample_weight=1e-7 * weight), X)
    for own, other in zip(expected, found):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("seed", range(4))
def test_estimates_of_quality_do_not_depend_on_the_unit_of_weights(seed):
    X, _ = problem(seed, 150)
    rng = np.random.default_rng(seed)
    Q = (rng.random((len(X), 2)) < 1 / (1 + np.exp(-X[:, :2]))).astype(float)
    weight = drawn_weights(rng, len(X))
    model = QualityRegressor(cv=2, standard_errors=True)
    expected = clone(model).fit(X, Q, sample_weight=weight).predict(X, return_std=True)
    found = clone(model).fit(X, Q, sample_weight=rng.choice(FACTORS) * weight)
    for own, other in zip(expected, found.predict(X, return_std=True)):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("seed", range(20))
def test_relative_weights_are_the_same_in_every_unit(seed):
    rng = np.random.default_rng(seed)
    weight = drawn_weights(rng, int(rng.integers(2, 500)))
    weight[0] = 1.0
    expected = relative_weights(weight)
    for factor in [*10.0 ** rng.uniform(-200, 200, 5), *FACTORS]:
        np.testing.assert_array_equal(relative_weights(factor * weight), expected)
    np.testing.assert_array_equal(expected > 0, weight > 0)
    np.testing.assert_allclose(
        expected / expected.sum(), weight / weight.sum(), rtol=1e-6
    )
    # Counts are counts of rows; one for each row is no weight at all.
    counts = np.r_[1.0, rng.integers(0, 9, 50)]
    np.testing.assert_array_equal(relative_weights(counts), counts)
    np.testing.assert_array_equal(relative_weights(np.full(9, 0.1)), np.ones(9))


# Rows of weight 0, and rows of weight 2 -------------------------------------------------------


def with_folds(model, fold):
    """Return a copy of an estimator whose splits are of given folds."""
    rows = np.arange(len(fold))
    numbers = np.unique(fold)
    return clone(model).set_params(
        cv=[(rows[fold != number], rows[fold == number]) for number in numbers]
    )


@pytest.mark.parametrize("name", OWN_ESTIMATES)
def test_rows_that_weigh_the_same_are_rows_without_weights(name):
    X, y = problem(13, 150)
    model = OWN_ESTIMATES[name]
    expected = answers_of(clone(model).fit(X, y), X)
    for weight in (1, 0.3):
        found = answers_of(
            clone(model).fit(X, y, sample_weight=np.full(150, weight)), X
        )
        for own, other in zip(expected, found):
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("model", [QualityRegressor(cv=2), BaggedNeighborsRegressor()])
def test_estimates_of_rows_that_weigh_the_same_are_those_without_weights(model):
    X, y = problem(14, 150)
    expected = clone(model).fit(X, y).predict(X)
    for weight in (1, 1e-4):
        found = clone(model).fit(X, y, sample_weight=np.full(150, weight)).predict(X)
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", [name for name in OWN_ESTIMATES if name != "dummy"])
def test_a_row_of_weight_0_is_absent(name):
    X, y = problem(3)
    rng = np.random.default_rng(3)
    weight = drawn_weights(rng, len(y))
    fold = rng.integers(0, 2, len(y))
    kept = np.flatnonzero(weight > 0)
    model = OWN_ESTIMATES[name]
    there = with_folds(model, fold).fit(X, y, sample_weight=weight)
    absent = with_folds(model, fold[kept]).fit(
        X[kept], y[kept], sample_weight=weight[kept]
    )
    for own, other in zip(answers_of(there, X), answers_of(absent, X)):
        np.testing.assert_array_equal(own, other)


def test_estimates_of_quality_leave_rows_of_weight_0_out():
    X, _ = problem(4)
    rng = np.random.default_rng(4)
    Q = rng.random((len(X), 2))
    weight = drawn_weights(rng, len(X))
    kept = weight > 0
    there = QualityRegressor(cv=3).fit(X, Q, sample_weight=weight)
    absent = QualityRegressor(cv=3).fit(X[kept], Q[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(there.predict(X), absent.predict(X))


EXACT_ESTIMATE = {"quality_estimator": LinearRegression()}
# Estimators that draw nothing, of which a copied row must do what a weight of 2 does.
REPEATABLE = {
    "occam": OccamRouterClassifier(
        MEMBERS, costs=COSTS, reg_lambda=0.3, **EXACT_ESTIMATE
    ),
    "occam, balanced": OccamRouterClassifier(
        MEMBERS, costs=COSTS, quality="balanced_accuracy", **EXACT_ESTIMATE
    ),
    "dummy": DummyRouterClassifier(MEMBERS, costs=COSTS),
    "frugal ml": FrugalMLClassifier(MEMBERS, costs=COSTS),
    "frugal mct": FrugalMCTClassifier(MEMBERS, costs=COSTS, **EXACT_ESTIMATE),
    "sequential": SequentialRouterClassifier(
        MEMBERS, costs=COSTS, n_prices=3, max_calls=2, **EXACT_ESTIMATE
    ),
    "linear gate": AdaptGatingClassifier(FULL, gate=LinearGate(tol=1e-6)),
    "boosted gate": AdaptGatingClassifier(
        FULL, gate=BoostedGate(n_estimators=10, max_iter=2)
    ),
}


@pytest.mark.parametrize("unit", [1.0, 0.01])
@pytest.mark.parametrize("name", REPEATABLE)
def test_a_weight_of_2_is_a_row_twice(name, unit):
    X, y = problem(5)
    # Where a bin of LightGBM has one row, its counts of rows are not those of weights.
    X = X.round(1)
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 4, len(y))
    fold = rng.integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), counts)
    model = REPEATABLE[name]
    weighted = with_folds(model, fold).fit(X, y, sample_weight=unit * counts)
    repeated = with_folds(model, fold[rows]).fit(X[rows], y[rows])
    plain = with_folds(model, fold).fit(X, y)
    low = max(weighted.min_budget_, repeated.min_budget_)
    high = repeated.predict_cost(X).max()
    for budget in low + np.array([0.2, 0.4]) * (high - low):
        own, other = (
            each.predict_routed(X, budget=budget) for each in (weighted, repeated)
        )
        assert own.cost.mean() == pytest.approx(other.cost.mean(), rel=0.05)
        if name not in ("frugal mct", "sequential"):
            assert np.mean(own.route != other.route) <= 0.01
        # Ways to answer that are worth the same to the last digits may be exchanged.
        assert np.mean(own.y_pred != other.y_pred) <= 0.03
    if hasattr(weighted, "validation_quality_") and "gate" not in name:
        own, other, without = (
            each.validation_quality_ for each in (weighted, repeated, plain)
        )
        assert own == pytest.approx(other, abs=5e-3)
        assert abs(without - other) > 0.01


@pytest.mark.parametrize("seed", range(10))
def test_rules_of_labels_count_rows_by_their_weights(seed):
    rng = np.random.default_rng(seed)
    n_rows, counts = 60, rng.integers(1, 4, 60)
    groups, scores = rng.integers(0, 3, n_rows), rng.random(n_rows).round(1)
    correct, costs = rng.random((n_rows, 3)), np.array([1.0, 2.0, 5.0])
    rows = np.repeat(np.arange(n_rows), counts)
    weighted = label_options(
        groups, scores, correct, costs, 1, 3, 6, weight=counts.astype(float)
    )
    repeated = label_options(groups[rows], scores[rows], correct[rows], costs, 1, 3, 6)
    for own, other in zip(weighted, repeated):
        np.testing.assert_allclose(own, other)


@pytest.mark.parametrize("member", ["trees", "boosted", "linear", "landmarks", None])
def test_weighted_estimates_of_quality_are_those_of_the_frequent_rows(member):
    """Two kinds of rows that look alike: the estimate is that of the kind that is frequent."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 3))
    kind = np.arange(600) % 2 == 0
    chance = 1 / (1 + np.exp(np.where(kind, 2.0, -2.0) * X[:, 0]))
    Q = (rng.random((600, 2)) < np.column_stack([chance, 1 - chance])).astype(float)
    counts = np.where(kind, 6, 1)
    model = QualityRegressor(family=None if member is None else [member], cv=3)
    weighted = clone(model).fit(X, Q, sample_weight=counts).predict(X)
    plain = clone(model).fit(X, Q).predict(X)
    often = np.exp(2.0 * X[:, 0])
    truth = 6 / 7 / (1 + often) + 1 / 7 / (1 + 1 / often)
    truth = np.column_stack([truth, 1 - truth])
    assert np.abs(weighted - truth).mean() < 0.5 * np.abs(plain - truth).mean()


@pytest.mark.parametrize("seed", range(5))
def test_stacks_count_rows_by_their_weights(seed):
    rng = np.random.default_rng(seed)
    n_rows = 80
    quality, estimates = rng.random((n_rows, 3)), rng.normal(size=(2, n_rows, 3)) / 4
    estimates += 0.5 * (quality - quality.mean(axis=0))
    counts, fold = rng.integers(1, 4, n_rows), rng.integers(0, 2, n_rows)
    rows = np.repeat(np.arange(n_rows), counts)
    outcomes = quality - 0.5

    def weights_of(rows, weight=None):
        folds = [np.flatnonzero(fold[rows] == number) for number in range(2)]
        return choose_weights(
            ["a", "b"],
            estimates[:, rows],
            outcomes[rows],
            quality[rows],
            folds,
            np.arange(3.0),
            row_weight=weight,
        ).combination.weights

    weighted = weights_of(np.arange(n_rows), counts.astype(float))
    np.testing.assert_allclose(weighted, weights_of(rows), rtol=1e-6)


# Weights of the models of a user -------------------------------------------------------------


class Watch(ClassifierMixin, BaseEstimator):
    """A model that remembers the weights that it was given."""

    given = []

    def fit(self, X, y, sample_weight=None):
        type(self).given.append(sample_weight)
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


class Deaf(Watch):
    """The same, without weights."""

    given = []

    def fit(self, X, y):
        return super().fit(X, y)


def two(model):
    """Return a model that is watched and another one."""
    return [
        ("watched", model),
        ("other", FrozenEstimator(GaussianNB().fit(*problem(97)))),
    ]


ROUTERS = ["occam", "dummy", "frugal ml", "frugal mct", "sequential"]
MAKERS = {
    "occam": lambda m: OccamRouterClassifier(
        two(m), costs=[1, 2], cv=2, **EXACT_ESTIMATE
    ),
    "dummy": lambda m: DummyRouterClassifier(two(m), costs=[1, 2], cv=2),
    "frugal ml": lambda m: FrugalMLClassifier(two(m), costs=[1, 2], cv=2),
    "frugal mct": lambda m: FrugalMCTClassifier(
        two(m), costs=[1, 2], cv=2, **EXACT_ESTIMATE
    ),
    "sequential": lambda m: SequentialRouterClassifier(
        two(m), costs=[1, 2], cv=2, n_prices=2, **EXACT_ESTIMATE
    ),
    "gate": lambda m: AdaptGatingClassifier(m, gate=LinearGate(tol=1e-2), cv=2),
    "buyer": lambda m: SequentialFeatureClassifier(m, max_rounds=1, random_state=0),
    "poly dom": lambda m: PolyDomSelector(m, max_models=2, cv=2),
    "greedy": lambda m: GreedyFeatureSelector(m, trade_offs=[np.inf], cv=2),
}


def given_to(make, model, weight, n_rows=120):
    """Return the weights that a model was given in a fit with weights."""
    type(model).given = []
    X, y = problem(7, n_rows)
    make(model).fit(X[:, :2], y, sample_weight=weight)
    return type(model).given


@pytest.fixture
def narrow(monkeypatch):
    """Rows of two columns, which the other member reads too."""
    X, y = problem(97)
    fitted = FrozenEstimator(GaussianNB().fit(X[:, :2], y))
    monkeypatch.setitem(
        globals(), "two", lambda model: [("watched", model), ("other", fitted)]
    )


@pytest.mark.parametrize("name", MAKERS)
def test_models_of_a_user_get_weights_as_they_are_given(name, narrow):
    weight = 1e-3 * np.random.default_rng(8).random(120)
    found = given_to(MAKERS[name], Watch(), weight)
    assert found
    assert all(own is not None and np.isin(own, weight).all() for own in found)
    # A set of features that is worth nothing is not fitted on all rows.
    assert name == "poly dom" or any(np.array_equal(own, weight) for own in found)


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_that_takes_no_weights_is_refused(name, narrow):
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        given_to(MAKERS[name], Deaf(), np.ones(120))
    assert not Deaf.given


ENSEMBLES = {
    "voting": lambda model: VotingClassifier([("one", model)], voting="soft"),
    "stacking": lambda model: StackingClassifier([("one", model)], model, cv=2),
    "search": lambda model: GridSearchCV(model, {}, cv=2),
    "router": lambda model: DummyRouterClassifier([("one", model)], costs=[1], cv=2),
}


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("name", ["occam", "frugal ml", "sequential", "gate", "buyer"])
def test_ensembles_of_a_user_get_weights(name, ensemble, narrow):
    X, y = problem(7, 120)
    weight = np.random.default_rng(8).random(120)
    Watch.given = []
    MAKERS[name](ENSEMBLES[ensemble](Watch())).fit(X[:, :2], y, sample_weight=weight)
    assert Watch.given
    assert all(own is not None and np.isin(own, weight).all() for own in Watch.given)


@pytest.mark.parametrize(
    "name", ["occam", "frugal ml", "gate", "buyer", "poly dom", "greedy"]
)
def test_a_pipeline_is_refused_before_a_model_is_fitted(name, narrow):
    X, y = problem(7, 120)
    Watch.given = []
    with pytest.raises(ValueError, match="sample_weight"):
        MAKERS[name](make_pipeline(Watch())).fit(
            X[:, :2], y, sample_weight=np.ones(120)
        )
    assert not Watch.given


@pytest.mark.parametrize("name", MAKERS)
def test_requests_decide_who_gets_weights(name, narrow):
    weight = np.random.default_rng(9).random(120)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            given_to(MAKERS[name], Watch(), weight)
        asks = Watch().set_fit_request(sample_weight=True)
        if "poly" in name or name == "greedy":
            asks.set_score_request(sample_weight=True)
        assert all(own is not None for own in given_to(MAKERS[name], asks, weight))
        declines = Watch().set_fit_request(sample_weight=False)
        if "poly" in name or name == "greedy":
            declines.set_score_request(sample_weight=True)
        if name in ROUTERS:
            # As by Voting, weights that nobody asks for are refused.
            with pytest.raises(TypeError, match="sample_weight"):
                given_to(MAKERS[name], declines, weight)
        else:
            assert all(own is None for own in given_to(MAKERS[name], declines, weight))
        aliased = Watch().set_fit_request(sample_weight="importance")
        if name in ("gate", "buyer"):
            X, y = problem(7, 120)
            Watch.given = []
            MAKERS[name](aliased).fit(X[:, :2], y, importance=weight)
            assert all(own is not None for own in Watch.given)


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("name", ["occam", "frugal mct", "sequential"])
def test_weights_reach_the_estimate_of_quality(name, enabled, narrow):
    seen = []

    class Estimate(LinearRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y, sample_weight=sample_weight)

    weight = np.random.default_rng(10).random(120)
    X, y = problem(7, 120)
    with sklearn.config_context(enable_metadata_routing=enabled):
        member = (
            GaussianNB().set_fit_request(sample_weight=True)
            if enabled
            else GaussianNB()
        )
        model = MAKERS[name](member)
        model.set_params(quality_estimator=Estimate()).fit(
            X[:, :2], y, sample_weight=weight
        )
        assert all(np.isin(own, weight).all() for own in seen)
        assert any(np.array_equal(own, weight) for own in seen)
        if enabled:
            seen.clear()
            silent = Estimate().set_fit_request(sample_weight=False)
            model.set_params(quality_estimator=silent).fit(
                X[:, :2], y, sample_weight=weight
            )
            assert all(own is None for own in seen)


@pytest.mark.parametrize("weight", [[-1.0], [np.nan], [np.inf], [0.0]])
@pytest.mark.parametrize("name", [*OWN_ESTIMATES, "quality"])
def test_weights_that_are_none_are_refused(name, weight):
    X, y = problem(11, 60)
    weight = np.where(np.arange(60) < 60 * (weight[0] == 0) + 1, weight[0], 1.0)
    if name == "quality":
        model, y = QualityRegressor(), np.column_stack([y, 1 - y])
    else:
        model = clone(OWN_ESTIMATES[name])
    with pytest.raises(ValueError, match="sample_weight|weight"):
        model.fit(X, y, sample_weight=weight)


def test_a_logistic_full_model_depends_on_the_unit_and_the_gate_does_not():
    X, y = problem(12)
    weight = np.random.default_rng(12).random(len(y))
    models = [
        AdaptGatingClassifier(
            LogisticRegression(), gate=LinearGate(tol=1e-3), p_full=0.0, cv=2
        )
        for _ in range(2)
    ]
    for model, factor in zip(models, (1.0, 1e-4)):
        model.fit(X, y, sample_weight=factor * weight)
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
    own, other = (model.estimator_.coef_ for model in models)
    assert np.abs(other).max() < 0.5 * np.abs(own).max()


# Logs of outcomes ----------------------------------------------------------------------------


def log_of(seed, n_rows=240):
    """Return rows and the quality of three choices on each."""
    X, _ = problem(seed, n_rows)
    rng = np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-np.column_stack([X[:, 0], 1 + X[:, 1], 2 - X[:, 0]])))
    return X, (rng.random((n_rows, 3)) < chance).astype(float)


LOGS = {
    "fixed costs": {},
    "costs per row": {"costs": "rows"},
    "missing cells": {"missing": True},
    "one answer each": {"choice": True},
}


def fitted_log(seed, kind, weight, *, estimator=None, fold=None, rows=None, **params):
    """Return a router that was fitted on a log of some kind, with weights."""
    X, Q = log_of(seed)
    rng = np.random.default_rng(seed)
    given = {}
    if kind.get("missing"):
        Q = np.where(rng.random(Q.shape) < 0.3, np.nan, Q)
    if kind.get("choice"):
        choice = rng.integers(0, 3, len(X))
        Q, given["choice"] = Q[np.arange(len(X)), choice], choice
        given["propensity"] = np.full(len(X), 1 / 3)
    if kind.get("costs"):
        given["costs"] = np.array(COSTS) * rng.uniform(0.5, 1.5, (len(X), 1))
    rows = np.arange(len(X)) if rows is None else rows
    cv = 3
    if fold is not None:
        every = np.arange(len(rows))
        cv = [(every[fold[rows] != k], every[fold[rows] == k]) for k in np.unique(fold)]
    given = {name: values[rows] for name, values in given.items()}
    router = BudgetRouter(estimator, costs=COSTS, budget=2.5, cv=cv, **params)
    weights = {} if weight is None else {"sample_weight": weight[rows]}
    return router.fit(X[rows], Q[rows], **given, **weights)


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_does_not_depend_on_the_unit_of_weights(kind):
    X, _ = log_of(1)
    weight = drawn_weights(np.random.default_rng(1), len(X))
    estimator = (
        None if "each" in kind else QualityRegressor(cv=2, family=["linear", "trees"])
    )
    expected = fitted_log(1, LOGS[kind], weight, estimator=estimator)
    for factor in (1e-9, 1 / 3):
        found = fitted_log(1, LOGS[kind], factor * weight, estimator=estimator)
        np.testing.assert_array_equal(found.route(X), expected.route(X))
        assert found.validation_quality_ == expected.validation_quality_
        assert found.price_ == expected.price_


@pytest.mark.parametrize("kind", ["fixed costs", "costs per row"])
def test_a_weight_of_2_is_a_row_of_a_log_twice(kind):
    X, _ = log_of(2)
    rng = np.random.default_rng(2)
    counts, fold = rng.integers(1, 4, len(X)), rng.integers(0, 3, len(X))
    rows = np.repeat(np.arange(len(X)), counts)
    options = {"estimator": LinearRegression(), "fold": fold, "reg_lambda": 0.2}
    weighted = fitted_log(2, LOGS[kind], counts, **options)
    repeated = fitted_log(2, LOGS[kind], None, rows=rows, **options)
    plain = fitted_log(2, LOGS[kind], None, **options)
    for figure in ("validation_quality_", "validation_cost_", "min_budget_", "price_"):
        own, other, without = (
            getattr(each, figure) for each in (weighted, repeated, plain)
        )
        assert own == pytest.approx(other, rel=1e-6), figure
        assert figure == "min_budget_" or own != pytest.approx(without, rel=1e-6), (
            figure
        )
    np.testing.assert_allclose(weighted.quality_std_, repeated.quality_std_)
    np.testing.assert_allclose(weighted.mean_quality_, repeated.mean_quality_)


def test_a_log_asks_its_estimators_whether_they_take_weights():
    X, Q = log_of(3)
    weight = np.random.default_rng(3).random(len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        own = BudgetRouter(costs=COSTS, budget=2.5, cv=3).fit(
            X, Q, sample_weight=weight
        )
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            BudgetRouter(LinearRegression(), costs=COSTS).fit(
                X, Q, sample_weight=weight
            )
    other = BudgetRouter(costs=COSTS, budget=2.5, cv=3).fit(X, Q, sample_weight=weight)
    np.testing.assert_array_equal(own.route(X), other.route(X))
