"""Choices that come and go after fit."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

from skroute.metrics import accuracy_cost_curve
from skroute.routing import BudgetRouter, PortablePolicy, _changing, export_policy
from skroute.routing._newcomers import CAUTION, shrunk_regression

COSTS = {"small": 1.0, "middle": 3.0, "large": 8.0}


def log(n=400, seed=0, k=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    odds = np.column_stack([X[:, 0], 1 + 0.5 * X[:, 1], np.full(n, 2.0), 1.5 + X[:, 0]])
    return X, (rng.random((n, 4)) < 1 / (1 + np.exp(-odds))).astype(float)[:, :k]


def fitted(budget=4.0, **params):
    X, Q = log(k=3)
    return BudgetRouter(Ridge(), costs=COSTS, budget=budget, **params).fit(X, Q)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 40))
def test_shrunk_regression_is_a_gaussian_process_over_choices(seed, k, n):
    """The dual form: its kernel is the covariance of the other choices, and a level."""
    rng = np.random.default_rng(seed)
    outputs, q = rng.normal(0.5, 0.3, (n, k + 1)), rng.normal(0.5, 0.4, n)
    columns, new = np.arange(1, k + 1), rng.normal(0.5, 0.3, (7, k + 1))
    model, noise = shrunk_regression(outputs, q, columns, 0.2, -9.0, 9.0)

    def deviations(rows):
        own = rows[:, columns]
        return own - own.mean(axis=1, keepdims=True)

    found, levels = 0.2, outputs[:, columns].mean(axis=0)
    for _ in range(3):
        level = (levels.var(ddof=1) if k > 1 else 0.0) / 16 + found / (24 * k)

        def kernel(a, b, level=level):
            return deviations(a) @ deviations(b).T / max(k - 1, 1) + level

        solve = np.linalg.inv(kernel(outputs, outputs) + found * np.eye(n))
        surprise = q - outputs[:, columns].mean(axis=1)
        left = surprise - kernel(outputs, outputs) @ solve @ surprise
        cross = kernel(new, outputs)
        mean = new[:, columns].mean(axis=1) + cross @ solve @ surprise
        variance = np.diag(kernel(new, new) - cross @ solve @ cross.T)
        found = (left @ left + 10 * 0.2) / (n + 10)
    np.testing.assert_allclose(model.expected(new), mean, atol=1e-8)
    np.testing.assert_allclose(model.std(new), np.sqrt(variance), atol=1e-7)
    assert noise == pytest.approx(found)


class Fits(Ridge):
    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        Fits.n_fits += 1
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_new_choice_is_decided_by_estimates_prices_and_no_fit(policy, logged):
    X, Q = log(1500)
    rng = np.random.default_rng(0)
    C = rng.uniform(0.5, 1.5, (400, 1)) * np.array([1.0, 3.0, 8.0]) if logged else None
    router = BudgetRouter(Fits(), costs=COSTS, budget=4.0, policy=policy)
    router.fit(X[:400], Q[:400, :3], costs=C)
    before, n_fits = router.predict_quality(X), Fits.n_fits
    assert router.add_choice("new", X[400:600], Q[400:600, 3], cost=2.0) is router
    assert Fits.n_fits == n_fits
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
    record = router.newcomers_["new"]
    assert (record.n_rows, record.cost, record.adopted) == (200, 2.0, True)
    assert record.mean_quality == Q[400:600, 3].mean()
    assert abs(record.expected_quality - Q[:, 3].mean()) < 3 * record.standard_error + 0.05
    assert record.chosen == pytest.approx((routed.y_pred == "new").mean(), abs=0.1)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["fixed", "logged", "known", "learned"]),
    st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=2, unique=True),
)
def test_after_a_drop_it_decides_as_one_fitted_without_the_choice(seed, kind, drop):
    X, Q = log(120, seed, 3)
    rng, names = np.random.default_rng(seed), list(COSTS)
    prices = np.array(list(COSTS.values()))
    C = rng.uniform(0.5, 1.5, (120, 3)) * prices
    keep = [k for k in range(3) if k not in drop]
    if kind in ("known", "learned"):
        names = [f"choice{k}" for k in range(3)]

    def fit(columns):
        router = BudgetRouter(Ridge(), reg_lambda=0.1)
        if kind in ("fixed", "logged"):
            router.set_params(costs={names[k]: prices[k] for k in columns})
        if kind == "learned":
            router.set_params(cost_estimator=LinearRegression())
        logged = None if kind == "fixed" else C[:, columns]
        return router.fit(X, Q[:, columns], costs=logged)

    router, without = fit([0, 1, 2]), fit(keep)
    for k in drop:
        router.drop_choice(names[k])
    assert router.choices_ == [names[k] for k in keep]
    new, Q_new = log(80, seed + 1, 3)
    told = rng.uniform(0.5, 1.5, (80, 3)) * prices
    call, other = ({"costs": told}, {"costs": told[:, keep]}) if kind == "known" else ({}, {})
    budget = float(without.price_path_.budgets[-1]) + (1.0 if told is not None else -0.1)
    budget = max(budget, without.min_budget_)
    ours = router.predict_routed(new, budget=budget, **call)
    theirs = without.predict_routed(new, budget=budget, **other)
    np.testing.assert_array_equal(ours.route, theirs.route)
    np.testing.assert_allclose(ours.cost, theirs.cost)
    np.testing.assert_allclose(ours.expected_quality, theirs.expected_quality)
    np.testing.assert_allclose(router.predict_quality(new), without.predict_quality(new))
    assert router.score(new, Q_new, budget=budget, **call) == pytest.approx(
        without.score(new, Q_new[:, keep], budget=budget, **other)
    )


def test_rows_of_fit_are_known_again():
    """A nearest neighbour estimates its own rows by their outcomes: cross-fitted ones count."""
    X, Q = log()
    router = BudgetRouter(KNeighborsRegressor(1), costs=COSTS, budget=4.0).fit(X, Q[:, :3])
    new, Q_new = log(50, seed=1)
    rows, q = np.vstack([X[:100], new]), np.r_[Q[:100, 3], Q_new[:, 3]]
    router.add_choice("new", rows, q, cost=2.0)
    outputs = router._newcomers["new"].outputs
    np.testing.assert_array_equal(outputs[:100], router._priced.estimate[:100, :3])
    np.testing.assert_array_equal(outputs[100:], router.quality_estimator_.predict(new))
    assert (outputs[:100] != Q[:100, :3]).any(axis=1).mean() > 0.3


def test_rows_join_and_prices_change():
    X, Q = log(1000)
    whole, parts = fitted(), fitted()
    whole.add_choice("new", X[400:460], Q[400:460, 3], cost=2.0)
    missing = np.r_[Q[400:430, 3], np.nan]
    parts.add_choice("new", X[400:431], missing, cost=5.0)
    parts.add_choice("new", X[430:460], Q[430:460, 3], cost=2.0)
    assert parts.newcomers_ == whole.newcomers_
    np.testing.assert_array_equal(parts.route(X), whole.route(X))
    parts.set_params(costs=COSTS | {"new": 7.0})
    assert parts.costs_.tolist() == [1.0, 3.0, 8.0, 7.0]
    assert parts.predict_cost(X).mean() == pytest.approx(4.0, rel=0.06)
    with pytest.raises(ValueError, match=r"costs has 7\.0 for 'new'"):
        parts.add_choice("new", X[460:470], Q[460:470, 3], cost=2.0)
    # Of several newcomers one goes, and the others stay as they were.
    parts.set_params(costs=list(COSTS.values()))
    parts.add_choice("second", X[500:560], Q[500:560, 1], cost=2.5)
    quality = parts.predict_quality(X)
    parts.drop_choice("new").drop_choice("small")
    assert parts.choices_ == ["middle", "large", "second"]
    np.testing.assert_array_equal(parts.predict_quality(X), quality[:, [1, 2, 4]])
    parts.set_params(costs={"middle": 3.0, "large": 8.0, "second": 1.0})
    assert parts.costs_.tolist() == [3.0, 8.0, 1.0]
    parts.add_choice("second", X[560:600], Q[560:600, 1], cost=1.0)
    assert parts.newcomers_["second"].n_rows == 100
    assert parts.predict_quality(X).shape == (1000, 3)


@pytest.mark.parametrize("reg_lambda", [0.0, 0.5])
def test_what_is_made_of_a_router_knows_its_choices(reg_lambda):
    X, Q = log(1000)
    router = fitted(reg_lambda=reg_lambda)
    stream = router.stream(1000)
    router.add_choice("new", X[400:500], Q[400:500, 3], cost=2.0).drop_choice("middle")
    rows = X[500:]
    route = router.route(rows)
    for other in (pickle.loads(pickle.dumps(router)), copy.deepcopy(router)):
        np.testing.assert_array_equal(other.route(rows), route)
        other.add_choice("new", X[500:600], Q[500:600, 3], cost=2.0)
        assert other.newcomers_["new"].n_rows == 200
    assert router.newcomers_["new"].n_rows == 100
    policy = PortablePolicy(export_policy(router))
    assert policy.choices == ["small", "large", "new"]
    np.testing.assert_allclose(policy.quality(rows), router.predict_quality(rows), atol=1e-9)
    np.testing.assert_array_equal(policy.route(rows), route)
    # A stream has the router as it was; a new one decides as the router does.
    assert stream.route(X[:1]).name in COSTS
    stream = router.stream(1e6)
    assert [stream.route(row[None]).choice for row in rows[:50]] == route[:50].tolist()
    alone = np.concatenate([router.predict_quality(row[None]) for row in rows[:50]])
    np.testing.assert_allclose(alone, router.predict_quality(rows)[:50], rtol=1e-14)
    allowed = np.ones((500, 3), dtype=bool)
    allowed[:, 2] = False
    assert 2 not in router.route(rows, allowed=allowed)
    assert "new" not in router.predict(rows, exclude=["new"])
    fresh = clone(router)
    assert not hasattr(fresh, "choices_") and repr(fresh) == repr(router)
    # A new fit knows what it is given.
    router.fit(X, Q[:, :3])
    assert router.choices_ == list(COSTS) and router.newcomers_ == {}


def test_frames_name_the_new_choice():
    X, Q = log(600)
    frame = pd.DataFrame(Q, columns=[*COSTS, "new"])
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(X[:400], frame[list(COSTS)][:400])
    router.add_choice("new", X[400:], frame["new"][400:], cost=2.0)
    shuffled = frame[["new", "large", "small", "middle"]]
    assert router.score(X, shuffled) == router.score(X, Q)
    unnamed = BudgetRouter(Ridge(), costs=[1.0, 3.0, 8.0], budget=4.0).fit(X[:400], Q[:400, :3])
    unnamed.add_choice("new", X[400:], Q[400:, 3], cost=2.0)
    assert set(unnamed.predict(X)) <= {0, 1, 2, 3}
    assert unnamed.drop_choice("choice0").predict(X).min() >= 1
    # A dropped choice may have a column or not, as it may in curves.
    assert unnamed.score(X, Q) == unnamed.score(X, Q[:, 1:]) > 0
    router.drop_choice("small")
    assert router.score(X, shuffled) == router.score(X, shuffled.drop(columns="small"))
    curve = accuracy_cost_curve(router, X, Q[:, 1:], [4.0])
    assert curve.quality[0] == pytest.approx(router.score(X, Q, budget=4.0))
    with pytest.raises(ValueError, match="y must have the 4 columns"):
        unnamed.score(X, Q[:, 2:])


def test_a_log_of_one_answer_takes_a_new_choice():
    X, Q = log(900)
    choice = np.random.default_rng(0).integers(0, 3, 600)
    names = np.array(list(COSTS))[choice]
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0)
    router.fit(X[:600], Q[np.arange(600), choice], choice=names)
    router.add_choice("new", X[600:700], Q[600:700, 3], cost=2.0)
    assert router.n_known_[3] == 100 and router.n_known_[:3].sum() == 600
    assert router.predict_cost(X[700:]).mean() < 4.6
    quality, std = router.predict_quality(X, return_std=True)
    assert quality.shape == std.shape == (900, 4) and np.isfinite(std).all()


def test_a_regressor_of_ones_own():
    X, Q = log(1000)
    router = fitted().add_choice(
        "new", X[400:600], Q[400:600, 3], cost=2.0, estimator=BayesianRidge()
    )
    outputs = router._newcomers["new"].outputs
    own = BayesianRidge().fit(outputs, Q[400:600, 3])
    std = router.predict_quality(X, return_std=True)[1][:, 3]
    assert router.newcomers_["new"].standard_error > 0 and (std > 0).all()
    base = router.quality_estimator_.predict(X)
    ((model),) = router._priced.estimator.models
    expected = own.predict(base).clip(0, 1) - CAUTION * model.std(base)
    np.testing.assert_allclose(router.predict_quality(X)[:, 3], expected.clip(0, 1))
    with pytest.raises(TypeError, match="add it without one"):
        export_policy(router)


GOOD = {"name": "new", "rows": 30, "cost": 2.0}
REFUSED = [
    ({"name": "small"}, "name must be a new one"),
    ({"name": 3}, "name must be a new one"),
    ({"rows": 1}, "q must have 2 known scores of 'new'"),
    ({"cost": -1.0}, "cost"),
    ({"cost": np.nan}, "cost"),
    ({"min_evidence": 1.0}, "min_evidence must be a probability"),
    ({"min_evidence": True}, "min_evidence must be a probability"),
    ({"estimator": Ridge(), "rows": 9}, "q must have 10 known scores"),
    ({"q": np.full(30, np.inf)}, "q must be finite"),
    ({"q": np.zeros(3)}, "shape"),
]


@pytest.mark.parametrize("change, message", REFUSED)
def test_refusals_leave_all_as_it_was(change, message):
    X, Q = log()
    call = GOOD | change
    n = call.pop("rows")
    router = fitted()
    route = router.route(X)
    with pytest.raises(ValueError, match=message):
        router.add_choice(call.pop("name"), X[:n], call.pop("q", Q[:n, 3]), **call)
    assert router.newcomers_ == {} and router.choices_ == list(COSTS)
    np.testing.assert_array_equal(router.route(X), route)


def test_what_cannot_be_dropped_and_routers_that_take_none():
    X, Q = log()
    router = fitted(budget=2.0)
    with pytest.raises(ValueError, match="must be one of"):
        router.drop_choice("none")
    with pytest.raises(ValueError, match=r"smallest feasible budget is 3.* without 'small'"):
        router.drop_choice("small")
    assert router.choices_ == list(COSTS)
    router.set_params(budget=None).add_choice("new", X[:30], Q[:30, 3], cost=2.0)
    router.drop_choice("small").drop_choice("middle")
    with pytest.raises(ValueError, match="last choice that fit knew"):
        router.drop_choice("large")
    with pytest.raises(ValueError, match="name must be a new one"):
        router.add_choice("small", X[:30], Q[:30, 3], cost=2.0)
    per_row = BudgetRouter(Ridge()).fit(X, Q, costs=np.ones((400, 4)))
    with pytest.raises(ValueError, match="differ from row to row"):
        per_row.add_choice("new", X[:30], Q[:30, 3], cost=2.0)


def evidence(gap, n, n_draws=60):
    """Share of draws in which a choice is taken in that is `gap` better than the one it follows."""
    X, Q = log(1500, k=3)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(X, Q)
    taken = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n, 3))
        # As good as the best of the others at the price of the budget, and so much better.
        value = router.predict_quality(rows) - router.price_ * router.costs_
        chance = (value.max(axis=1) + router.price_ * 3.0 + gap).clip(0, 1)
        q = (rng.random(n) < chance).astype(float)
        other = copy.deepcopy(router).add_choice("new", rows, q, cost=3.0, min_evidence=0.9)
        assert ("new" in other.choices_) == other.newcomers_["new"].adopted
        taken.append(other.newcomers_["new"].adopted)
    return np.mean(taken)


def test_min_evidence_keeps_out_what_may_harm(monkeypatch):
    """Of choices that gain nothing one draw in ten at most; a mean above 0 as proof fails this."""
    assert evidence(0.0, 100) <= 0.05
    assert evidence(0.25, 300, 10) >= 0.8
    monkeypatch.setattr(_changing, "lowest_gain", lambda gains, bounds, confidence: gains.mean())
    assert evidence(0.0, 100) > 0.1


def test_one_that_waits_joins_with_more_rows_or_is_forgotten():
    X, Q = log(1500)
    router = fitted()
    q = np.ones(400)
    router.add_choice("new", X[400:420], q[:20], cost=0.5, min_evidence=0.999)
    assert router.choices_ == list(COSTS) and not router.newcomers_["new"].adopted
    assert router.score(X, Q[:, :3]) > 0
    waiting = pickle.loads(pickle.dumps(router))
    waiting.add_choice("new", X[420:800], q[:380], cost=0.5, min_evidence=0.999)
    assert waiting.choices_[-1] == "new" and waiting.newcomers_["new"].n_rows == 400
    router.drop_choice("new")
    assert router.newcomers_ == {}
    router.add_choice("new", X[400:420], q[:20], cost=0.5)
    assert router.choices_[-1] == "new"


def test_few_scores_do_little_harm():
    """A choice that is worse than the others, with ten scores, over fresh draws."""
    X, Q = log(3000, k=3)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=4.0).fit(X[:1000], Q[:1000])
    truth, without = Q[1000:], router.score(X[1000:], Q[1000:])
    lost = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        worse = (rng.random(3000) < 0.6).astype(float)
        other = copy.deepcopy(router).add_choice("new", X[:10], worse[:10], cost=3.0)
        lost.append(without - other.score(X[1000:], np.column_stack([truth, worse[1000:]])))
    assert np.quantile(lost, 0.9) < 0.005


def test_scores_in_per_cent_are_not_taken_in_without_a_word():
    """They made the new choice the best of all, for every row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Q = (rng.random((300, 2)) < [0.5, 0.8]).astype(float)
    router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
    scores = (rng.random(50) < 0.7).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.add_choice("new", X[:50], scores, cost=2)
    with pytest.warns(UserWarning, match="'wrong' goes from 0 to 100.*from 0 to 1. Scores in"):
        router.add_choice("wrong", X[:50], 100 * scores, cost=2)
