"""Sweeps over p_full and gamma."""

import matplotlib.pyplot
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skroute.gating import AdaptGatingClassifier, adapt_path

matplotlib.use("Agg")


def rows():
    X, y = make_classification(
        600, n_features=8, n_informative=6, n_redundant=0, random_state=0, class_sep=0.7
    )
    return X[:300], y[:300], X[300:], y[300:]


@pytest.mark.parametrize("method", ["gbrt", "lin"])
def test_path_agrees_with_single_fits(method):
    X, y, X_val, y_val = rows()
    fits = []

    class Forest(RandomForestClassifier):
        def fit(self, X, y, sample_weight=None):
            fits.append(len(X))
            return super().fit(X, y, sample_weight)

    gate = AdaptGatingClassifier(
        Forest(20, random_state=0), method=method, n_estimators=10, cv=3, tol=1e-3
    )
    path = adapt_path(
        gate, X, y, X_val, y_val, p_full=[0.0, 0.3, 0.6], gamma=[0.01, 0.05], n_jobs=2
    )
    assert len(fits) == 4, "the full model is fitted once, and once per fold"
    assert_array_equal(path.p_full, [0.0, 0.3, 0.6] * 2)
    assert_array_equal(path.gamma, np.repeat([0.01, 0.05], 3))
    assert path.full_accuracy == path.estimators[0].estimator_.score(X_val, y_val)
    for i, model in enumerate(path.estimators):
        routed = model.predict_routed(X_val)
        assert_allclose([routed.cost.mean(), np.mean(routed.y_pred == y_val)],
                        [path.cost[i], path.accuracy[i]])  # fmt: skip
        if method == "gbrt" or model.p_full <= 0.3:
            alone = clone(gate).set_params(p_full=model.p_full, gamma=model.gamma).fit(X, y)
            assert_array_equal(alone.route(X_val), routed.route)
    assert not hasattr(gate, "choices_")


def test_choices_along_the_path():
    X, y, X_val, y_val = rows()
    gate = AdaptGatingClassifier(RandomForestClassifier(20, random_state=0), n_estimators=8, cv=3)
    path = adapt_path(gate, X, y, X_val, y_val, p_full=[0.0, 0.4], gamma=[0.01, 0.04])
    budget = np.median(path.cost)
    chosen = path.best_within(budget)
    at = path.estimators.index(chosen)
    assert path.cost[at] <= budget
    assert path.accuracy[at] == path.accuracy[path.cost <= budget].max()
    goal = np.median(path.accuracy)
    at = path.estimators.index(path.cheapest_with(goal))
    assert path.cost[at] == path.cost[path.accuracy >= goal].min()
    with pytest.raises(ValueError, match="budget must be at least"):
        path.best_within(-1.0)
    with pytest.raises(ValueError, match="accuracy must be at most"):
        path.cheapest_with(1.1)
    for bad, message in (({"p_full": []}, "p_full must have"), ({"gamma": [-1.0]}, "'gamma'")):
        with pytest.raises(ValueError, match=message):
            adapt_path(gate, X, y, X_val, y_val, **bad)
    drawn = path.plot(name="adapt")
    assert drawn is path and path.ax_.get_xlabel() == "Mean cost per sample"
    assert_array_equal(path.line_.get_xdata(), path.cost[path.frontier])
    assert path.ax_.get_legend() is not None
    assert path.plot(ax=path.ax_).figure_ is path.ax_.figure
    matplotlib.pyplot.close("all")
