"""Reliability of estimates, and the gain found against the gain possible."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skroute.metrics import RouterDiagnosticsDisplay, reference_curves
from skroute.routing import BudgetRouter

COSTS = np.array([1.0, 4.0, 6.0])


def drawn(n=600):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    truth = 1 / (1 + np.exp(-2 * X))
    return X, truth, (rng.random((n, 3)) < truth).astype(float)


def test_the_truth_is_reliable_and_an_oracle_finds_what_is_possible():
    _, truth, Q = drawn(4000)
    best = Q.argmax(axis=1)
    display = RouterDiagnosticsDisplay.from_predictions(Q, truth, best, COSTS, n_rows=9)
    for estimate, quality, _ in display.reliability:
        assert np.abs(estimate - quality).max() < 0.1
    assert display.found[0] == pytest.approx(display.possible[0])
    assert display.n_rows.tolist() == [9] and display.names[1] == "choice1"
    left, right = display.axes_
    assert left.figure is right.figure is display.figure_
    plt.close(display.figure_)


def test_gains_by_rows_are_those_of_routers_fitted_on_them():
    X, _, Q = drawn()
    router = BudgetRouter(Ridge(), costs=COSTS).fit(X[:300], Q[:300])
    _, axes = plt.subplots(1, 2)
    display = RouterDiagnosticsDisplay.from_estimator(
        router, X[300:], Q[300:], X_fit=X[:300], y_fit=Q[:300], ax=axes, budget=3.0
    )
    assert display.n_rows.tolist() == [37, 75, 150, 300]
    assert list(axes) == display.axes_
    new = X[300:]
    spent = router.predict_cost(new, budget=3.0).mean()
    curves = reference_curves(Q[300:], COSTS, [spent])
    realised = Q[300:][np.arange(300), router.route(new, budget=3.0)].mean()
    assert display.found[-1] == pytest.approx(realised - curves.random[0])
    assert display.possible[-1] == pytest.approx(curves.oracle[0] - curves.random[0])
    plt.close(display.figure_)


def test_a_router_alone_has_one_gain():
    X, _, Q = drawn()
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3.0).fit(X[:300], Q[:300])
    display = RouterDiagnosticsDisplay.from_estimator(router, X[300:], Q[300:])
    assert np.isnan(display.n_rows).all() and 0 < display.found[0] < display.possible[0]
    plt.close(display.figure_)


def test_rows_to_fit_must_be_there():
    X, _, Q = drawn()
    router = BudgetRouter(Ridge(), costs=COSTS).fit(X[:300], Q[:300])
    draw = RouterDiagnosticsDisplay.from_estimator
    with pytest.raises(ValueError, match="given together"):
        draw(router, X, Q, X_fit=X)
    with pytest.raises(ValueError, match="Give these as well"):
        draw(router, X, Q, n_rows=[10])
    with pytest.raises(ValueError, match="from 1 to 300"):
        draw(router, X, Q, X_fit=X[:300], y_fit=Q[:300], n_rows=[301])
