"""Lazy features: what is asked for is what `predict_cost` says, on every row."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
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


@pytest.mark.parametrize("params", [{"p_full": 0.0}, {"full_features": [0, 1, 2, 3, 4, 7]}])
def test_features_asked_for_are_the_cost_on_every_row(params):
    """Without a gate, and with a full model of some columns; others are drawn as situations."""
    X, y, X_new = problem()
    model = adapt(feature_costs=COSTS, **params).fit(X, y)
    expected = model.predict_routed(X_new)
    lazy = LazyFeatures(lambda columns, rows: X_new[np.ix_(rows, columns)], n_samples=len(X_new))
    for ours, theirs in zip(model.predict_routed(lazy), expected):
        assert_array_equal(ours, theirs)
    times = np.zeros(X_new.shape, dtype=int)
    for columns, rows in lazy.acquisition_log_:
        times[np.ix_(rows, columns)] += 1
    assert times.max() <= 1
    assert_array_equal(times @ COSTS, expected.cost)


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
