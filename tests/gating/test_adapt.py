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
    X, y = make_classification(
        n, n_features=8, n_informative=6, n_redundant=0, n_classes=n_classes, random_state=seed,
        flip_y=0.02, class_sep=0.8,
    )  # fmt: skip
    labels = np.array(["ant", "bee", "cat"])[y]
    return X[: n // 2], labels[: n // 2], X[n // 2 :], labels[n // 2 :]


def forest(**params):
    return RandomForestClassifier(random_state=0, **({"n_estimators": 10} | params))


def counted_forests():
    """Notes in a mock the fits of forests while it is entered."""
    fit = RandomForestClassifier.fit
    return patch.object(RandomForestClassifier, "fit", autospec=True, side_effect=fit)


def adapt(estimator=None, **params):
    params = {"gamma": 0.01, "p_full": 0.5, "n_estimators": 20, "cv": 3} | params
    return adapt_of(forest() if estimator is None else estimator, **params)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", ["gbrt", "lin"])
def test_rows_with_a_positive_gate_go_to_the_full_model(method, n_classes):
    # Where the full model gains something on held-out rows.
    X, y, X_new, y_new = problem(n_classes=n_classes, seed=n_classes - 2)
    model = adapt(method=method, tol=1e-3).fit(X, y)
    routed = model.predict_routed(X_new)
    assert 0 < routed.route.mean() < 1
    assert_array_equal(routed.route, model.gate_function(X_new) > 0)
    assert_array_equal(
        model.classes_[model.predict_proba(X_new).argmax(axis=1)], routed.y_pred
    )
    sent = routed.route == 1
    assert_array_equal(routed.y_pred[sent], model.estimator_.predict(X_new[sent]))
    table, used = model.cost_table_, model.features_used_
    assert_array_equal(routed.cost, np.where(sent, table["full"], table["cheap"]))
    assert (
        table["cheap"] == len(np.union1d(used["gate"], used["cheap"]))
        and table["full"] == 8
    )
    assert len(model.objective_) and model.n_iter_ >= 1


def test_full_model_is_called_on_its_rows_only():
    X, y, X_new, _ = problem()
    model = adapt(Counting(forest())).fit(X, y)
    model.estimator_.rows_.clear()
    routed = model.predict_routed(X_new)
    assert len(model.estimator_.rows_) == routed.route.sum() > 0
    model.route(X_new), model.predict_cost(X_new), model.gate_function(X_new)
    assert len(model.estimator_.rows_) == routed.route.sum()
    never = clone(model).set_params(p_full=0.0).fit(X, y)
    never.estimator_.rows_.clear()
    assert (never.route(X_new) == 0).all() and len(never.predict(X_new))
    assert not never.estimator_.rows_
    assert_array_equal(never.gate_function(X_new), np.full(len(X_new), -np.inf))


def test_out_of_sample_probabilities_are_the_ones_used():
    """An overfit full model that knows nothing must not be trusted."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(400, 4)), rng.normal(size=(400, 4))
    y = (X[:, 0] > 0) ^ (rng.random(400) < 0.1)
    tree, how = (
        DecisionTreeClassifier(random_state=0),
        {"full_features": [1, 2, 3], "gamma": 0.001},
    )
    sent = adapt(tree, **how).fit(X, y).route(new).mean()
    known = FrozenEstimator(tree.fit(X[:, 1:], y))
    assert sent < adapt(known, **how).fit(X, y).route(new).mean()


def test_out_of_bag_votes_replace_cross_validation():
    X, y, X_new, _ = problem()
    few = RandomForestClassifier(2, oob_score=True, random_state=0)
    with counted_forests() as fit:
        adapt(forest(oob_score=True, n_estimators=30)).fit(X, y)
        # With two trees some rows have no vote, and scikit-learn warns.
        with pytest.warns(UserWarning):
            adapt(few).fit(X, y)
    sizes = [len(call.args[1]) for call in fit.call_args_list]
    assert sizes[0] == 300 and sorted(sizes[1:]) == [200, 200, 200, 300]


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000))
def test_a_batch_never_exceeds_a_budget_and_leaves_less_than_a_row(seed):
    X, y, X_new, _ = problem(n=1200, seed=seed)
    model = adapt(p_full=0.9, policy="batch", n_estimators=4).fit(X, y)
    cheap, unlimited = model.cost_table_["cheap"], model.predict_cost(X_new).mean()
    for share in (0.0, 0.25, 0.5, 0.75, 1.0, 2.0):
        budget = cheap + share * (unlimited - cheap)
        cost = model.predict_cost(X_new, budget=budget).mean()
        # Another row would not fit, but for rows that the gate keeps.
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
    # Where the full model is the cheaper one, p_full still bounds who is sent there.
    odd = adapt(
        model_costs={"gate": 0, "cheap": 50, "full": 0}, method="lin", tol=1e-3
    ).fit(X, y)
    assert odd.cost_table_["full"] < odd.cost_table_["cheap"]
    for policy in ("online", "batch"):
        odd.set_params(policy=policy)
        assert odd.predict_cost(X_new, budget=odd.min_budget_).mean() <= odd.min_budget_
        with pytest.raises(ValueError, match="the smallest feasible budget"):
            odd.route(X_new, budget=30)


def test_sample_weight_and_metadata_routing():
    X, y, X_new, _ = problem()
    weight = np.random.default_rng(0).random(len(y))
    weight[:20] = 0
    model = adapt(LogisticRegression()).fit(X, y, sample_weight=weight)
    assert_allclose(
        model.estimator_.coef_,
        LogisticRegression().fit(X, y, sample_weight=weight).coef_,
    )
    with pytest.raises(ValueError, match="does not take it"):
        adapt(make_pipeline(StandardScaler(), GaussianNB())).fit(
            X, y, sample_weight=weight
        )
    with pytest.raises(ValueError, match="metadata"):
        adapt().fit(X, y, groups=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        full = LogisticRegression().set_fit_request(sample_weight=True)
        routed = adapt(full).fit(X, y, sample_weight=weight)
        assert_allclose(routed.estimator_.coef_, model.estimator_.coef_)
        full = LogisticRegression().set_fit_request(sample_weight=False)
        apart = adapt(full).fit(X, y, sample_weight=weight)
        assert_allclose(apart.estimator_.coef_, LogisticRegression().fit(X, y).coef_)


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
    assert "cv" in params or not fit.called, (
        "a model was fitted before parameters were checked"
    )


def test_columns_of_a_frame_go_by_name_or_by_position():
    X, y, X_new, _ = problem()
    names = [f"x{i}" for i in range(X.shape[1])]
    frame, new = pd.DataFrame(X, columns=names), pd.DataFrame(X_new, columns=names)
    found = [
        adapt(full_features=columns).fit(frame, y).predict_routed(new)
        for columns in (["x0", "x1", "x4"], [0, 1, 4])
    ]
    assert_array_equal(found[0].y_pred, found[1].y_pred)
    assert_array_equal(found[0].cost, found[1].cost)


def test_bad_data():
    X, y, X_new, _ = problem()
    with pytest.raises(ValueError, match="at least 2 classes"):
        adapt().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="at least 2 classes"):
        adapt().fit(X, y, sample_weight=(y == "ant").astype(float))
    frozen = FrozenEstimator(
        LogisticRegression().fit(X, np.where(y == "ant", "ape", "bee"))
    )
    with pytest.raises(ValueError, match="estimator must know the classes"):
        adapt(frozen).fit(X, y)


def test_an_integer_weight_is_a_repetition():
    """More rows than LightGBM has bins; all that is fitted, gate's level included."""
    X, y, X_new, _ = problem(800, n_classes=3, seed=1)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, len(y))
    weight[:3] = 0
    fold = rng.integers(0, 3, len(y))
    repeated = rng.permutation(np.repeat(np.arange(len(y)), weight))
    full = LogisticRegression(tol=1e-10, max_iter=1000)
    how = {"method": "lin", "tol": 1e-3}
    one = adapt(full, cv=PredefinedSplit(fold), **how).fit(X, y, sample_weight=weight)
    other = adapt(full, cv=PredefinedSplit(fold[repeated]), **how).fit(
        X[repeated], y[repeated]
    )
    assert one.cost_table_ == other.cost_table_
    # p0 of f0 itself agrees to the tolerance of its solver only.
    assert_allclose(
        one.gate_function(X_new), other.gate_function(X_new), rtol=1e-4, atol=1e-4
    )
    assert np.mean(one.route(X_new) != other.route(X_new)) <= 0.005
    assert_allclose(one.predict_proba(X_new), other.predict_proba(X_new), atol=1e-4)


def test_gate_function_asks_for_the_gate_only():
    X, y, X_new, _ = problem()
    model = adapt(gamma=0.03).fit(X, y)
    lazy = LazyFeatures(
        lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new)
    )
    assert_array_equal(model.gate_function(lazy), model.gate_function(X_new))
    ((columns, rows),) = lazy.acquisition_log_
    assert_array_equal(columns, model.features_used_["gate"])
    assert_array_equal(rows, np.arange(len(X_new)))
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
        return pd.DataFrame(
            {f"{name}?": frame[name].to_numpy()[rows] for name in columns}
        )

    named = adapt().fit(frame, y)
    with pytest.raises(ValueError, match="returned no column"):
        named.predict(LazyFeatures(renamed, n_samples=60))
    model = adapt().fit(X, y)
    with pytest.raises(ValueError, match="no entry for"):
        model.predict({100: np.zeros(9)})
