"""Lazy features: what is asked for is what `predict_cost` says, on every row."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skroute.features import LazyFeatures
from tests.gating.kinds import adapt_of

N_FEATURES = 8
COSTS = np.array([1.0, 2.0, 1.0, 4.0, 1.0, 8.0, 2.0, 1.0])


def problem(n=400):
    X, y = make_classification(
        n, n_features=N_FEATURES, n_informative=6, n_redundant=0, random_state=0, flip_y=0.05
    )
    return X[: n // 2], y[: n // 2], X[n // 2 :]


def adapt(**params):
    full = RandomForestClassifier(20, random_state=0)
    params = {"gamma": 0.03, "p_full": 0.5, "n_estimators": 10, "cv": 3} | params
    return adapt_of(params.pop("estimator", full), **params)


MODELS = {
    "gbrt": lambda: adapt(feature_costs=COSTS),
    "lin": lambda: adapt(method="lin", feature_costs=COSTS, tol=1e-3),
    "budget": lambda: adapt(feature_costs=COSTS, p_full=0.8, budget=12.0),
    "batch": lambda: adapt(feature_costs=COSTS, p_full=0.8, budget=12.0, policy="batch"),
    "never": lambda: adapt(feature_costs=COSTS, p_full=0.0),
    "part": lambda: adapt(feature_costs=COSTS, full_features=[0, 1, 2, 3, 4, 7]),
}


def paid(lazy, group_of=None, costs=COSTS):
    """Cost per row of all that was asked for; nothing may be asked for twice."""
    times = np.zeros((len(lazy), N_FEATURES), dtype=int)
    for columns, rows in lazy.acquisition_log_:
        assert len(rows) and len(columns)
        times[np.ix_(rows, columns)] += 1
    assert times.max(initial=0) <= 1
    group_of = np.arange(N_FEATURES) if group_of is None else group_of
    bought = np.array([times[:, group_of == g].any(axis=1) for g in range(len(costs))])
    return bought.T @ costs


@pytest.mark.parametrize("name", MODELS)
def test_features_asked_for_are_the_cost_on_every_row(name):
    X, y, X_new = problem()
    model = MODELS[name]().fit(X, y)
    expected = model.predict_routed(X_new)
    lazy = LazyFeatures(lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new))
    routed = model.predict_routed(lazy)
    for ours, theirs in zip(routed, expected):
        assert_array_equal(ours, theirs)
    assert_array_equal(paid(lazy), expected.cost)
    if name in ("gbrt", "lin", "batch", "budget"):
        assert len(np.unique(expected.cost)) > 1, "the test needs rows of both kinds"
    proba = model.predict_proba({i: X_new[:, i] for i in range(N_FEATURES)})
    assert_allclose(proba, model.predict_proba(X_new), rtol=1e-12)
    assert_array_equal(model.route(lazy), expected.route)


def test_groups_are_bought_whole():
    X, y, X_new = problem()
    groups = {"blood": [0, 1, 2], "scan": [3, 4], "form": [5, 6, 7]}
    costs = {"scan": 20.0, "blood": 5.0, "form": 1.0}
    model = adapt(feature_groups=groups, feature_costs=costs).fit(X, y)
    assert model.group_names_ == ["blood", "scan", "form"]
    assert_array_equal(model.group_costs_, [5, 20, 1])
    lazy = LazyFeatures(lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new))
    model.predict(lazy)
    expected = model.predict_cost(X_new)
    assert_array_equal(paid(lazy, model.group_of_, model.group_costs_), expected)
    for columns, _ in lazy.acquisition_log_:
        for group in groups.values():
            assert set(group) <= set(columns) or not set(group) & set(columns)


@pytest.mark.parametrize("library", [pd, pl])
def test_names_are_asked_for_where_fit_saw_names(library):
    X, y, X_new = problem()
    names = [f"f{i}" for i in range(N_FEATURES)]
    frame, new = library.DataFrame(dict(zip(names, X.T))), dict(zip(names, X_new.T))
    model = adapt(feature_costs=dict(zip(names, COSTS)), full_features=names[:7]).fit(frame, y)
    expected = model.predict_routed(library.DataFrame(new))
    for source in (new, {name: (lambda rows, v=values: v[rows]) for name, values in new.items()}):
        lazy = LazyFeatures(source, n_samples=len(X_new))
        routed = model.predict_routed(lazy)
        assert_array_equal(routed.y_pred, expected.y_pred)
        assert_array_equal(routed.cost, expected.cost)
        assert {name for columns, _ in lazy.acquisition_log_ for name in columns} <= set(names)


def test_gate_function_asks_for_the_gate_only():
    X, y, X_new = problem()
    model = adapt(gamma=0.03).fit(X, y)
    lazy = LazyFeatures(lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new))
    assert_array_equal(model.gate_function(lazy), model.gate_function(X_new))
    ((columns, rows),) = lazy.acquisition_log_
    assert_array_equal(columns, model.features_used_["gate"])
    assert_array_equal(rows, np.arange(len(X_new)))
    as_mapping = {i: X_new[:, i] for i in range(N_FEATURES)}
    assert_array_equal(model.gate_function(as_mapping), model.gate_function(X_new))


@pytest.mark.parametrize(
    "source, n_samples, message",
    [
        (3, 5, "source must be a callable"),
        (lambda columns, rows: None, None, "n_samples must be a positive integer"),
        (lambda columns, rows: None, 0, "got 0"),
        ({"a": [1, 2], "b": [1]}, None, r"one length, .*, got \[1, 2\]"),
        ({"a": lambda rows: rows}, None, "n_samples must be a positive integer"),
        ({"a": [1, 2], "b": 3.5}, None, r"for each column, got 3.5 for 'b'"),
    ],
)
def test_bad_sources(source, n_samples, message):
    with pytest.raises(ValueError, match=message):
        LazyFeatures(source, n_samples)


def test_bad_answers_of_a_source():
    X, y, _ = problem()
    model = adapt().fit(X, y)
    with pytest.raises(ValueError, match="returned an array of shape"):
        model.predict(LazyFeatures(lambda columns, rows: np.zeros((1, 1)), n_samples=9))
    with pytest.raises(ValueError, match="no entry for"):
        model.predict({100: np.zeros(9)})
