"""The estimators: protocol, budgets, real savings, bad input, persistence."""

from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, ShuffleSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skroute.features import LazyFeatures
from tests.gating.kinds import adapt_of
from tests.router_checks import Counting


def problem(n=600, n_classes=2, seed=0):
    """Return training rows and labels, and as many new rows and labels."""
    X, y = make_classification(
        n,
        n_features=8,
        n_informative=6,
        n_redundant=0,
        n_classes=n_classes,
        random_state=seed,
        flip_y=0.02,
        class_sep=0.8,
    )
    labels = np.array(["ant", "bee", "cat"])[y]
    half = n // 2
    return X[:half], labels[:half], X[half:], labels[half:]


def forest(**params):
    return RandomForestClassifier(random_state=0, **({"n_estimators": 10} | params))


def counted_forests():
    """Return a context in which a mock notes the fits of forests."""
    fit = RandomForestClassifier.fit
    return patch.object(RandomForestClassifier, "fit", autospec=True, side_effect=fit)


def adapt(estimator=None, **params):
    params = {"gamma": 0.01, "p_full": 0.5, "n_estimators": 20, "cv": 3} | params
    return adapt_of(forest() if estimator is None else estimator, **params)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", ["gbrt", "lin"])
def test_rows_with_a_positive_gate_go_to_the_full_model(method, n_classes):
    # With these seeds the full model gains something on held-out rows.
    X, y, X_new, y_new = problem(n_classes=n_classes, seed=n_classes - 2)
    model = adapt(method=method, tol=1e-3).fit(X, y)
    routed = model.predict_routed(X_new)
    assert 0 < routed.route.mean() < 1
    assert_array_equal(routed.route, model.gate_function(X_new) > 0)
    assert_array_equal(
        model.classes_[model.predict_proba(X_new).argmax(axis=1)], routed.y_pred
    )
    is_sent = routed.route == 1
    assert_array_equal(routed.y_pred[is_sent], model.estimator_.predict(X_new[is_sent]))
    costs = model.cost_table_
    used = model.features_used_
    assert_array_equal(routed.cost, np.where(is_sent, costs["full"], costs["cheap"]))
    assert costs["cheap"] == len(np.union1d(used["gate"], used["cheap"]))
    assert costs["full"] == 8
    assert len(model.objective_)
    assert model.n_iter_ >= 1


def test_full_model_is_called_on_its_rows_only():
    X, y, X_new, _ = problem()
    model = adapt(Counting(forest())).fit(X, y)
    model.estimator_.rows_.clear()
    routed = model.predict_routed(X_new)
    assert len(model.estimator_.rows_) == routed.route.sum() > 0
    model.route(X_new)
    model.predict_cost(X_new)
    model.gate_function(X_new)
    assert len(model.estimator_.rows_) == routed.route.sum()
    never = clone(model).set_params(p_full=0.0).fit(X, y)
    never.estimator_.rows_.clear()
    assert (never.route(X_new) == 0).all()
    assert len(never.predict(X_new))
    assert not never.estimator_.rows_
    assert_array_equal(never.gate_function(X_new), np.full(len(X_new), -np.inf))


def test_out_of_sample_probabilities_are_the_ones_used():
    """An overfit full model that knows nothing must not be trusted."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    X_new = rng.normal(size=(400, 4))
    y = (X[:, 0] > 0) ^ (rng.random(400) < 0.1)
    tree = DecisionTreeClassifier(random_state=0)
    params = {"full_features": [1, 2, 3], "gamma": 0.001}
    share_out_of_sample = adapt(tree, **params).fit(X, y).route(X_new).mean()
    # A frozen model is believed on the rows that it was fitted on.
    frozen = FrozenEstimator(tree.fit(X[:, 1:], y))
    share_in_sample = adapt(frozen, **params).fit(X, y).route(X_new).mean()
    assert share_out_of_sample < share_in_sample


def test_out_of_bag_votes_replace_cross_validation():
    X, y, X_new, _ = problem()
    two_trees = RandomForestClassifier(2, oob_score=True, random_state=0)
    with counted_forests() as fit:
        adapt(forest(oob_score=True, n_estimators=30)).fit(X, y)
        # With two trees some rows have no vote, and scikit-learn warns.
        with pytest.warns(UserWarning):
            adapt(two_trees).fit(X, y)
    n_rows_of_fits = [len(call.args[1]) for call in fit.call_args_list]
    assert n_rows_of_fits[0] == 300
    assert sorted(n_rows_of_fits[1:]) == [200, 200, 200, 300]


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_a_batch_never_exceeds_a_budget_and_leaves_less_than_a_row(seed):
    X, y, X_new, _ = problem(n=1200, seed=seed)
    model = adapt(p_full=0.9, policy="batch", n_estimators=4).fit(X, y)
    cheap = model.cost_table_["cheap"]
    unlimited = model.predict_cost(X_new).mean()
    for share in (0.0, 0.25, 0.5, 0.75, 1.0, 2.0):
        budget = cheap + share * (unlimited - cheap)
        cost = model.predict_cost(X_new, budget=budget).mean()
        # The budget of the batch has no room for another row, unless the gate sends none.
        step = (8 - cheap) / len(X_new)
        assert min(budget, unlimited) - step <= cost <= budget + 1e-9


def test_model_costs():
    X, y, X_new, _ = problem()
    costs = {"gate": 0.25, "cheap": 0.5, "full": 100.0}
    plain = adapt().fit(X, y).predict_routed(X_new)
    boosted = adapt(model_costs=costs).fit(X, y)
    # The gate reads the cheap model's output: both run on every row.
    assert_allclose(
        boosted.predict_cost(X_new), plain.cost + 0.75 + 100.0 * plain.route
    )
    linear = adapt(method="lin", tol=1e-3).fit(X, y)
    routed = linear.predict_routed(X_new)
    expected = routed.cost + 0.25 + np.where(routed.route == 1, 100.0, 0.5)
    priced = linear.set_params(model_costs=costs).fit(X, y)
    assert_allclose(priced.predict_cost(X_new), expected)
    assert_allclose(
        priced.cost_table_["gate"], 0.25 + len(priced.features_used_["gate"])
    )
    # If the full model is the cheaper one, p_full still bounds the rows it gets.
    reversed_costs = {"gate": 0, "cheap": 50, "full": 0}
    model = adapt(model_costs=reversed_costs, method="lin", tol=1e-3).fit(X, y)
    assert model.cost_table_["full"] < model.cost_table_["cheap"]
    for policy in ("online", "batch"):
        model.set_params(policy=policy)
        least = model.min_budget_
        assert model.predict_cost(X_new, budget=least).mean() <= least
        with pytest.raises(ValueError, match="the smallest feasible budget"):
            model.route(X_new, budget=30)


def test_sample_weight_and_metadata_routing():
    X, y, X_new, _ = problem()
    weight = np.random.default_rng(0).random(len(y))
    weight[:20] = 0
    model = adapt(LogisticRegression()).fit(X, y, sample_weight=weight)
    weighted_coef = LogisticRegression().fit(X, y, sample_weight=weight).coef_
    assert_allclose(model.estimator_.coef_, weighted_coef)
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    with pytest.raises(ValueError, match="does not take it"):
        adapt(pipeline).fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="metadata"):
        adapt().fit(X, y, groups=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        full = LogisticRegression().set_fit_request(sample_weight=True)
        routed = adapt(full).fit(X, y, sample_weight=weight)
        assert_allclose(routed.estimator_.coef_, model.estimator_.coef_)
        full = LogisticRegression().set_fit_request(sample_weight=False)
        model = adapt(full).fit(X, y, sample_weight=weight)
        assert_allclose(model.estimator_.coef_, LogisticRegression().fit(X, y).coef_)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"feature_costs": {0: 1.0}}, "feature_costs has no entry for"),
        (
            {"feature_groups": {"a": [0, 1]}},
            r"feature_groups leaves out \[2, 3, 4, 5, 6, 7\]",
        ),
        ({"feature_groups": {"a": range(8), "b": [3]}}, "column 3 in 'a' and in 'b'"),
        ({"feature_groups": {"a": range(8), "b": []}}, r"no column in \['b'\]"),
        ({"feature_groups": {"a": [0, 9]}}, "names column 9"),
        ({"full_features": ["x"]}, "full_features names column 'x'"),
        ({"full_features": []}, "full_features must name at least one column"),
        ({"model_costs": {"gate": 1}}, "model_costs has no entry for"),
        (
            {"cv": ShuffleSplit(1, test_size=0.5, random_state=0)},
            "but left out 150 of 300",
        ),
        ({"gate__learning_rate": 2.0}, "'learning_rate' parameter of BoostedGate"),
        ({"estimator": SVC()}, "'estimator' parameter"),
    ],
)
def test_bad_parameters(params, message):
    X, y, _, _ = problem()
    model = adapt().set_params(**params)
    with counted_forests() as fit, pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "choices_")
    if "cv" not in params:
        assert not fit.called, "a model was fitted before parameters were checked"


def test_columns_of_a_frame_go_by_name_or_by_position():
    X, y, X_new, _ = problem()
    names = [f"x{i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    new = pd.DataFrame(X_new, columns=names)
    by_name = adapt(full_features=["x0", "x1", "x4"]).fit(frame, y).predict_routed(new)
    by_position = adapt(full_features=[0, 1, 4]).fit(frame, y).predict_routed(new)
    assert_array_equal(by_name.y_pred, by_position.y_pred)
    assert_array_equal(by_name.cost, by_position.cost)


def test_bad_data():
    X, y, X_new, _ = problem()
    with pytest.raises(ValueError, match="at least 2 classes"):
        adapt().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="at least 2 classes"):
        adapt().fit(X, y, sample_weight=(y == "ant").astype(float))
    other_labels = np.where(y == "ant", "ape", "bee")
    frozen = FrozenEstimator(LogisticRegression().fit(X, other_labels))
    with pytest.raises(ValueError, match="estimator must know the classes"):
        adapt(frozen).fit(X, y)


def test_an_integer_weight_is_a_repetition():
    """Weights act as repetitions in all that is fitted, the gate's level included."""
    # More rows than LightGBM has bins.
    X, y, X_new, _ = problem(800, n_classes=3, seed=1)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, len(y))
    weight[:3] = 0
    fold = rng.integers(0, 3, len(y))
    rows = rng.permutation(np.repeat(np.arange(len(y)), weight))
    full = LogisticRegression(tol=1e-10, max_iter=1000)
    params = {"method": "lin", "tol": 1e-3}
    weighted = adapt(full, cv=PredefinedSplit(fold), **params)
    weighted.fit(X, y, sample_weight=weight)
    repeated = adapt(full, cv=PredefinedSplit(fold[rows]), **params)
    repeated.fit(X[rows], y[rows])
    assert weighted.cost_table_ == repeated.cost_table_
    # The probabilities of the full model agree to the tolerance of its solver only.
    assert_allclose(
        weighted.gate_function(X_new),
        repeated.gate_function(X_new),
        rtol=1e-4,
        atol=1e-4,
    )
    assert np.mean(weighted.route(X_new) != repeated.route(X_new)) <= 0.005
    assert_allclose(
        weighted.predict_proba(X_new), repeated.predict_proba(X_new), atol=1e-4
    )


def test_gate_function_asks_for_the_gate_only():
    X, y, X_new, _ = problem()
    model = adapt(gamma=0.03).fit(X, y)
    lazy = LazyFeatures(
        lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new)
    )
    assert_array_equal(model.gate_function(lazy), model.gate_function(X_new))
    (purchase,) = lazy.acquisition_log_
    assert_array_equal(purchase.columns, model.features_used_["gate"])
    assert_array_equal(purchase.rows, np.arange(len(X_new)))
    as_mapping = {i: X_new[:, i] for i in range(8)}
    assert_array_equal(model.gate_function(as_mapping), model.gate_function(X_new))


@pytest.mark.parametrize(
    "source, n_samples, message",
    [
        (3, 5, "source must be a callable"),
        (lambda columns, rows: None, None, "n_samples must be a positive integer"),
        ({"a": [1, 2], "b": [1]}, None, r"one length, .*, got \[1, 2\]"),
        ({"a": [1, 2], "b": 3.5}, None, r"for each column, got 3.5 for 'b'"),
    ],
)
def test_bad_sources(source, n_samples, message):
    with pytest.raises(ValueError, match=message):
        LazyFeatures(source, n_samples)


def test_bad_answers_of_a_source():
    X, y, _, _ = problem()
    frame = pd.DataFrame(X, columns=list("abcdefgh"))

    def renamed(columns, rows):
        return frame.iloc[rows][columns].add_suffix("?")

    named = adapt().fit(frame, y)
    with pytest.raises(ValueError, match="returned no column"):
        named.predict(LazyFeatures(renamed, n_samples=60))
    model = adapt().fit(X, y)
    with pytest.raises(ValueError, match="no entry for"):
        model.predict({100: np.zeros(9)})
