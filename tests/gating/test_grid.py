"""Sweeps over p_full and gamma."""

import matplotlib.pyplot
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from skroute.gating import adapt_grid
from tests.gating.kinds import adapt_of
from tests.gating.test_adapt import counted_forests, problem


@pytest.mark.parametrize("method", ["gbrt", "lin"])
def test_path_agrees_with_single_fits(method):
    X, y, X_val, y_val = problem()
    forest = RandomForestClassifier(8, random_state=0)
    gate = adapt_of(forest, method, n_estimators=10, cv=3, tol=1e-3)
    with counted_forests() as fit:
        grid = adapt_grid(
            gate, X, y, X_val, y_val, p_full=[0.0, 0.3, 0.6], gamma=[0.01, 0.05], n_jobs=2
        )
    assert fit.call_count == 4, "the full model is fitted once, and once per fold"
    assert_array_equal(grid.p_full, [0.0, 0.3, 0.6] * 2)
    assert_array_equal(grid.gamma, np.repeat([0.01, 0.05], 3))
    assert grid.full_accuracy == grid.estimators[0].estimator_.score(X_val, y_val)
    for i, model in enumerate(grid.estimators):
        routed = model.predict_routed(X_val)
        assert_allclose([routed.cost.mean(), np.mean(routed.y_pred == y_val)],
                        [grid.cost[i], grid.accuracy[i]])  # fmt: skip
        if method == "gbrt" or model.p_full <= 0.3:
            alone = clone(gate).set_params(p_full=model.p_full, gamma=model.gamma).fit(X, y)
            assert_array_equal(alone.route(X_val), routed.route)
    assert not hasattr(gate, "choices_")


def test_choices_along_the_path():
    X, y, X_val, y_val = problem()
    gate = adapt_of(RandomForestClassifier(8, random_state=0), n_estimators=8, cv=3)
    grid = adapt_grid(gate, X, y, X_val, y_val, p_full=[0.0, 0.4], gamma=[0.01, 0.04])
    budget = np.median(grid.cost)
    chosen = grid.best_within(budget)
    at = grid.estimators.index(chosen)
    assert grid.cost[at] <= budget
    assert grid.accuracy[at] == grid.accuracy[grid.cost <= budget].max()
    with pytest.raises(ValueError, match="smallest feasible budget"):
        grid.best_within(0.0)
    for bad, message in (({"p_full": []}, "p_full must have"), ({"gamma": [-1.0]}, "'gamma'")):
        with pytest.raises(ValueError, match=message):
            adapt_grid(gate, X, y, X_val, y_val, **bad)
    drawn = grid.plot(name="adapt")
    assert drawn.ax_.get_xlabel() == "Mean cost per sample"
    assert_array_equal(drawn.line_.get_xdata(), grid.cost[grid.frontier])
    assert drawn.ax_.get_legend() is not None
    assert grid.plot(ax=drawn.ax_, curve_kwargs={"color": "k"}).figure_ is drawn.figure_
    matplotlib.pyplot.close("all")
