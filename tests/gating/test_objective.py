"""The Adapt objective and its closed-form steps against numerical minimisers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logit
from sklearn.metrics import log_loss

from skroute.gating import _objective as obj


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_q_step_is_the_numerical_minimiser(seed, p_full):
    rng = np.random.default_rng(seed)
    weight = rng.random(6) + 0.1
    weight /= weight.sum()
    cheap, full, gate = (
        rng.exponential(1, 6),
        rng.exponential(0.5, 6),
        rng.normal(0, 2, 6),
    )
    q, beta = obj.q_step(cheap, full, gate, p_full, weight)
    assert beta >= 0
    assert weight @ q <= p_full + 1e-12
    if beta > 0:
        assert_allclose(weight @ q, p_full, rtol=1e-9)
    found = minimize(
        lambda q: obj.kl_objective(q, cheap, full, gate, weight),
        np.full(len(q), 0.5 * p_full),
        bounds=[(1e-9, 1 - 1e-9)] * len(q),
        constraints={"type": "ineq", "fun": lambda q: p_full - weight @ q},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    ours = obj.kl_objective(q, cheap, full, gate, weight)
    assert ours <= found.fun + 1e-8
    assert_allclose(ours, found.fun, atol=1e-6)


def test_smallest_price_meets_the_constraint_across_a_jump():
    beta = obj.smallest_price(lambda b: 1.0 if b < 3 else 0.2, 0.5)
    assert_allclose(beta, 3)
    assert beta >= 3


def test_losses_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    for columns, classes in ((1, 2), (4, 4)):
        scores, y = rng.normal(0, 3, (50, columns)), rng.integers(0, classes, 50)
        p = np.exp(obj.log_probabilities(scores))
        assert_allclose(p.sum(axis=1), 1)
        assert_allclose(
            obj.class_losses(scores, y).mean(), log_loss(y, p, labels=range(classes))
        )
        assert_allclose(obj.modelled_probabilities(scores), p[:, -columns:])
        top = p.max(axis=1)
        assert_allclose(obj.doubt(scores), -logit(top), rtol=1e-8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_fit_doubt_is_the_numerical_minimiser(seed):
    rng = np.random.default_rng(seed)
    u, q, offset = rng.normal(0, 3, 40), rng.random(40), rng.normal(0, 1, 40)
    weight = np.full(40, 1 / 40)

    def loss(c):
        gate = offset + c[0] * u + c[1]
        return weight @ (np.logaddexp(0, gate) - q * gate) + 5e-7 * c @ c

    ours = obj.fit_doubt(u, q, offset, weight, start=(8.0, -8.0))
    assert_allclose(ours, minimize(loss, np.zeros(2), tol=1e-12).x, atol=1e-4)
    few = [
        loss(obj.fit_doubt(u, q, offset, weight, (8.0, -8.0), max_iter=n))
        for n in range(4)
    ]
    assert np.diff(few).max() < 0
    again = obj.fit_doubt(u, q, offset, weight, start=ours)
    assert_allclose(again, ours, atol=1e-6)
