"""The Adapt objective and its closed-form steps against numerical minimisers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logit
from sklearn.metrics import log_loss

from skroute.gating import _objective as objective


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_q_step_is_the_numerical_minimiser(seed, p_full):
    rng = np.random.default_rng(seed)
    weight = rng.random(6) + 0.1
    weight /= weight.sum()
    cheap_loss = rng.exponential(1, 6)
    full_loss = rng.exponential(0.5, 6)
    gate = rng.normal(0, 2, 6)
    q, beta = objective.q_step(cheap_loss, full_loss, gate, p_full, weight)
    assert beta >= 0
    assert weight @ q <= p_full + 1e-12
    if beta > 0:
        assert_allclose(weight @ q, p_full, rtol=1e-9)
    optimum = minimize(
        lambda q: objective.kl_objective(q, cheap_loss, full_loss, gate, weight),
        np.full(len(q), 0.5 * p_full),
        bounds=[(1e-9, 1 - 1e-9)] * len(q),
        constraints={"type": "ineq", "fun": lambda q: p_full - weight @ q},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    value = objective.kl_objective(q, cheap_loss, full_loss, gate, weight)
    assert value <= optimum.fun + 1e-8
    assert_allclose(value, optimum.fun, atol=1e-6)


def test_smallest_price_meets_the_constraint_across_a_jump():
    beta = objective.smallest_price(lambda b: 1.0 if b < 3 else 0.2, 0.5)
    assert_allclose(beta, 3)
    assert beta >= 3


def test_losses_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    for n_outputs, n_classes in ((1, 2), (4, 4)):
        scores = rng.normal(0, 3, (50, n_outputs))
        y = rng.integers(0, n_classes, 50)
        p = np.exp(objective.log_probabilities(scores))
        assert_allclose(p.sum(axis=1), 1)
        expected_loss = log_loss(y, p, labels=range(n_classes))
        assert_allclose(objective.class_losses(scores, y).mean(), expected_loss)
        assert_allclose(objective.modelled_probabilities(scores), p[:, -n_outputs:])
        assert_allclose(objective.doubt(scores), -logit(p.max(axis=1)), rtol=1e-8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_fit_doubt_is_the_numerical_minimiser(seed):
    rng = np.random.default_rng(seed)
    u = rng.normal(0, 3, 40)
    q = rng.random(40)
    offset = rng.normal(0, 1, 40)
    weight = np.full(40, 1 / 40)
    start = (8.0, -8.0)

    def loss(coef):
        gate = offset + coef[0] * u + coef[1]
        return weight @ (np.logaddexp(0, gate) - q * gate) + 5e-7 * coef @ coef

    fitted = objective.fit_doubt(u, q, offset, weight, start=start)
    optimum = minimize(loss, np.zeros(2), tol=1e-12)
    assert_allclose(fitted, optimum.x, atol=1e-4)
    losses = []
    for max_iter in range(4):
        coef = objective.fit_doubt(u, q, offset, weight, start, max_iter=max_iter)
        losses.append(loss(coef))
    assert np.diff(losses).max() < 0
    refitted = objective.fit_doubt(u, q, offset, weight, start=fitted)
    assert_allclose(refitted, fitted, atol=1e-6)
