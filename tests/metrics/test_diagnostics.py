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


class Oracle(BudgetRouter):
    """Knows the truth, which is in its rows, and picks the best outcome."""

    def predict_quality(self, X):
        return X[:, :3]

    def route(self, X):
        return X[:, 3:].argmax(axis=1)

    def predict_cost(self, X):
        return COSTS[self.route(X)]


def test_the_truth_is_reliable_and_an_oracle_finds_what_is_possible():
    _, truth, Q = drawn(4000)
    router = Oracle(Ridge(), costs=COSTS, cv=2).fit(np.c_[truth, Q], Q)
    display = RouterDiagnosticsDisplay.from_estimator(router, np.c_[truth, Q], Q)
    for estimate, quality, _ in display.reliability:
        assert np.abs(estimate - quality).max() < 0.1
    assert display.found == pytest.approx(display.possible)
    assert display.names[1] == "choice1" and display.ax_.figure is display.figure_
    plt.close(display.figure_)


def test_gains_are_those_of_the_router():
    X, _, Q = drawn()
    router = BudgetRouter(Ridge(), costs=COSTS).fit(X[:300], Q[:300])
    _, ax = plt.subplots()
    new = X[300:]
    display = RouterDiagnosticsDisplay.from_estimator(router, new, Q[300:], ax=ax, budget=3.0)
    assert display.ax_ is ax
    curves = reference_curves(Q[300:], COSTS, [router.predict_cost(new, budget=3.0).mean()])
    realised = Q[300:][np.arange(300), router.route(new, budget=3.0)].mean()
    assert display.found == pytest.approx(realised - curves.random[0])
    assert display.possible == pytest.approx(curves.oracle[0] - curves.random[0])
    plt.close(display.figure_)
