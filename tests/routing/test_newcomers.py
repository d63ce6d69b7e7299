"""Choices that are added after fit."""

import copy
import pickle
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skroute.routing import BudgetRouter, PortablePolicy, export_policy
from skroute.routing.parts._newcomers import shrunk_regression
from tests.routing.test_lifecycle import COSTS, log


def fitted(budget=4.0, **params):
    X, Q = log()
    return BudgetRouter(Ridge(), costs=COSTS, budget=budget, **params).fit(X, Q)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 40))
def test_shrunk_regression_is_a_gaussian_process_over_choices(seed, k, n):
    """The dual form: its kernel is the covariance of the other choices, and a level."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(0.5, 0.3, (n, k))
    q = rng.normal(0.5, 0.4, n)
    new = rng.normal(0.5, 0.3, (7, k))
    model, noise = shrunk_regression(outputs, q, 0.2, -9.0, 9.0)

    def deviations(rows):
        return rows - rows.mean(axis=1, keepdims=True)

    expected_noise = 0.2
    spread = outputs.mean(axis=0).var(ddof=1) if k > 1 else 0.0
    for _ in range(3):
        level = spread / 16 + expected_noise / (24 * k)

        def kernel(a, b, level=level):
            return deviations(a) @ deviations(b).T / max(k - 1, 1) + level

        inverse = np.linalg.inv(kernel(outputs, outputs) + expected_noise * np.eye(n))
        centred = q - outputs.mean(axis=1)
        residuals = centred - kernel(outputs, outputs) @ inverse @ centred
        cross = kernel(new, outputs)
        mean = new.mean(axis=1) + cross @ inverse @ centred
        variance = np.diag(kernel(new, new) - cross @ inverse @ cross.T)
        expected_noise = (residuals @ residuals + 10 * 0.2) / (n + 10)
    np.testing.assert_allclose(model.expected(new), mean, atol=1e-8)
    np.testing.assert_allclose(model.std(new), np.sqrt(variance), atol=1e-7)
    assert noise == pytest.approx(expected_noise)


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_new_choice_is_decided_by_estimates_prices_and_no_fit(policy, logged):
    X, Q = log(1500, k=4)
    rng = np.random.default_rng(0)
    C = None
    if logged:
        C = rng.uniform(0.5, 1.5, (400, 1)) * np.array([1.0, 3.0, 8.0])
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0, policy=policy)
    router.fit(X[:400], Q[:400, :3], costs=C)
    before = router.predict_quality(X)
    with patch.object(Ridge, "fit", side_effect=AssertionError("fitted")):
        assert router.add_choice("new", X[400:600], Q[400:600, 3], cost=2.0) is router
    assert router.choices_ == ["small", "middle", "large", "new"]
    assert router.n_known_.tolist() == [400, 400, 400, 200]
    assert router.costs_.tolist() == [1.0, 3.0, 8.0, 2.0]
    rows = X[600:]
    quality, std = router.predict_quality(rows, return_std=True)
    np.testing.assert_array_equal(quality[:, :3], before[600:])
    assert (std > 0).all()
    routed = router.predict_routed(rows)
    assert routed.cost.mean() == pytest.approx(4.0, rel=0.06)
    if policy == "online":
        net = quality - router.price_ * router.costs_
        np.testing.assert_array_equal(routed.route, net.argmax(axis=1))
    # A choice that is better than most and cheap is used, and pays.
    assert (routed.y_pred == "new").mean() > 0.1
    assert router.score(rows, Q[600:]) > router.score(rows, Q[600:], exclude=["new"])
    assert router.validation_cost_ == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("reg_lambda", [0.0, 0.5])
def test_copies_exports_and_streams_have_the_new_choice(reg_lambda):
    X, Q = log(1000, k=4)
    router = fitted(reg_lambda=reg_lambda)
    stream = router.stream(1000)
    router.add_choice("new", X[400:500], Q[400:500, 3], cost=2.0)
    rows = X[500:]
    route = router.route(rows)
    for other in (pickle.loads(pickle.dumps(router)), copy.deepcopy(router)):
        np.testing.assert_array_equal(other.route(rows), route)
    policy = PortablePolicy(export_policy(router))
    assert policy.choices == ["small", "middle", "large", "new"]
    np.testing.assert_array_equal(
        policy.decide(router.predict_quality(rows), 4.0), route
    )
    # A stream has the router as it was; a new one decides as the router does.
    assert stream.route(X[:1]).name in COSTS
    stream = router.stream(1e6)
    assert [stream.route(row[None]).choice for row in rows[:50]] == route[:50].tolist()
    alone = np.concatenate([router.predict_quality(row[None]) for row in rows[:50]])
    np.testing.assert_allclose(alone, router.predict_quality(rows)[:50], rtol=1e-14)
    allowed = np.ones((500, 4), dtype=bool)
    allowed[:, 3] = False
    assert 3 not in router.route(rows, allowed=allowed)
    router.set_params(costs={"new": 7.0})
    assert router.costs_.tolist() == [1.0, 3.0, 8.0, 7.0]
    assert router.predict_cost(rows).mean() == pytest.approx(4.0, rel=0.06)
    assert "new" not in router.predict(rows, exclude=["new"])
    fresh = clone(router)
    assert not hasattr(fresh, "choices_") and repr(fresh) == repr(router)
    # A new fit has only the choices of its log.
    router.set_params(costs=COSTS).fit(X, Q[:, :3])
    assert router.choices_ == list(COSTS)


def test_frames_name_the_new_choice():
    X, Q = log(600, k=4)
    frame = pd.DataFrame(Q, columns=[*COSTS, "new"])
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(
        X[:400], frame[list(COSTS)][:400]
    )
    router.add_choice("new", X[400:], frame["new"][400:], cost=2.0)
    shuffled = frame[["new", "large", "small", "middle"]]
    assert router.score(X, shuffled) == router.score(X, Q)
    unnamed = BudgetRouter(Ridge(), costs=[1.0, 3.0, 8.0], budget=4.0).fit(
        X[:400], Q[:400, :3]
    )
    unnamed.add_choice("new", X[400:], Q[400:, 3], cost=2.0)
    assert set(unnamed.predict(X)) <= {0, 1, 2, 3}
    with pytest.raises(ValueError, match="y must have one column for each of"):
        unnamed.score(X, Q[:, 2:])


def test_a_log_of_one_answer_takes_a_new_choice():
    X, Q = log(900, k=4)
    choice = np.random.default_rng(0).integers(0, 3, 600)
    names = np.array(list(COSTS))[choice]
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0, cv=2)
    router.fit(X[:600], Q[np.arange(600), choice], choice=names)
    router.add_choice("new", X[600:700], Q[600:700, 3], cost=2.0)
    assert router.n_known_[3] == 100 and router.n_known_[:3].sum() == 600
    assert router.predict_cost(X[700:]).mean() < 4.6
    quality, std = router.predict_quality(X, return_std=True)
    assert quality.shape == std.shape == (900, 4) and np.isfinite(std).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"name": "small"}, "name must be a new one"),
        ({"name": 3}, "name must be a new one"),
        (
            {"X": [[0.0, 0.0, 0.0]], "q": [1.0]},
            "q must have at least two scores of 'new'",
        ),
        ({"cost": -1.0}, "cost"),
        ({"q": np.full(30, np.inf)}, "q must be finite"),
        ({"q": np.zeros(3)}, "shape"),
    ],
)
def test_refusals_leave_all_as_it_was(change, message):
    X, Q = log(k=4)
    router = fitted()
    route = router.route(X)
    with pytest.raises(ValueError, match=message):
        router.add_choice(
            **{"name": "new", "X": X[:30], "q": Q[:30, 3], "cost": 2.0} | change
        )
    assert router.choices_ == list(COSTS)
    np.testing.assert_array_equal(router.route(X), route)


@pytest.mark.slow
def test_few_scores_do_little_harm():
    """A choice that is worse than the others, with ten scores, over fresh draws."""
    X, Q = log(3000)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(X[:1000], Q[:1000])
    score_without = router.score(X[1000:], Q[1000:])
    losses = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        worse = (rng.random(3000) < 0.6).astype(float)
        other = copy.deepcopy(router).add_choice("new", X[:10], worse[:10], cost=3.0)
        quality = np.column_stack([Q[1000:], worse[1000:]])
        losses.append(score_without - other.score(X[1000:], quality))
    assert np.quantile(losses, 0.9) < 0.005


def test_scores_in_per_cent_raise_a_warning():
    """Without it, they made the new choice the best of all, for every row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Q = (rng.random((300, 2)) < [0.5, 0.8]).astype(float)
    router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
    scores = (rng.random(50) < 0.7).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.add_choice("new", X[:50], scores, cost=2)
    with pytest.warns(
        UserWarning, match="'wrong' goes from 0 to 100.*from 0 to 1. Scores in"
    ):
        router.add_choice("wrong", X[:50], 100 * scores, cost=2)
