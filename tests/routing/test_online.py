"""OnlineBudgetRouter: its linear algebra, its books, its threads, and choices that come and go."""

import copy
import pickle
import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from skroute.routing import BudgetRouter, OnlineBudgetRouter, _kernels, _online_pacer
from skroute.routing._online_beliefs import (
    COST,
    LEVEL_VARIANCE,
    QUALITY,
    learn_outcome,
    new_beliefs,
)

COSTS = {"small": 1.0, "middle": 3.0, "large": 10.0}


def world(n, seed=0, n_features=3):
    """Requests, noisy quality of three models of rising price, and costs that vary."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    mean = np.column_stack([0.5 + 0.15 * X[:, 0], 0.7 + 0.1 * X[:, 1], 0.85 - 0.05 * X[:, 0]])
    Q = mean + 0.1 * rng.normal(size=(n, 3))
    C = np.array(list(COSTS.values())) * rng.lognormal(-0.08, 0.4, size=(n, 3))
    return X, Q, C


def serve(router, X, Q, C):
    """Each request decided and told at once; the choices made."""
    chosen = []
    for x, q, c in zip(X, Q, C):
        decision = router.decide(x)
        k = router.choices_.index(decision.name)
        router.commit(decision, quality=q[k], cost=c[k])
        chosen.append(k)
    return np.array(chosen)


@given(st.integers(0, 10**6), st.floats(0.1, 100), st.integers(1, 6), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_beliefs_are_ridge_regression(seed, alpha, n_features, n):
    """Without drift: mean and covariance of the normal equations, in any order."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, n_features))])
    y = rng.normal(size=n)
    beliefs = new_beliefs(1, n_features + 1, alpha, 0.0)
    for i in rng.permutation(n):
        learn_outcome(beliefs, 0, QUALITY, X[i], y[i], made=i, now=n)
    penalty = np.diag([1 / LEVEL_VARIANCE] + [alpha] * n_features)
    cov = np.linalg.inv(X.T @ X + penalty)
    np.testing.assert_allclose(beliefs.cov[0, QUALITY], cov, atol=1e-8)
    np.testing.assert_allclose(beliefs.mean[0, QUALITY], cov @ X.T @ y, atol=1e-8)
    x = rng.normal(size=n_features + 1)
    estimate, variance = beliefs.look(x, n)
    np.testing.assert_allclose(estimate[0, 0], x @ cov @ X.T @ y, atol=1e-8)
    np.testing.assert_allclose(variance[0], x @ cov @ x, atol=1e-8)


@given(st.integers(0, 10**6), st.floats(1e-4, 0.05), st.integers(1, 25))
@settings(max_examples=30, deadline=None)
def test_drift_is_a_random_walk_of_the_level(seed, drift, n):
    """The Kalman steps against the joint Gaussian of all levels, solved at once."""
    rng = np.random.default_rng(seed)
    when = np.sort(rng.choice(60, n, replace=False))
    x = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = rng.normal(size=n)
    beliefs = new_beliefs(1, 2, 5.0, drift)
    # An uncertainty that the drift cannot bring to its bound.
    beliefs.cov[0, QUALITY, 0, 0] = 0.5
    with mock.patch("skroute.routing._online_beliefs.RETURN", 0.0):
        for i in range(n):
            learn_outcome(beliefs, 0, QUALITY, x[i], y[i], made=when[i], now=when[i])
    level = 0.5 + drift * np.minimum.outer(when, when)
    covariance = level + np.outer(x[:, 1], x[:, 1]) / 5.0
    weights = np.linalg.solve(covariance + np.eye(n), y)
    np.testing.assert_allclose(beliefs.mean[0, QUALITY, 0], level[-1] @ weights, atol=1e-8)
    np.testing.assert_allclose(beliefs.mean[0, QUALITY, 1], x[:, 1] @ weights / 5.0, atol=1e-8)


@given(st.integers(0, 10**6), st.floats(0.05, 20))
@settings(max_examples=40, deadline=None)
def test_the_price_is_the_least_that_keeps_the_rate(seed, rate):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(40, 3))
    costs = rng.uniform(0.1, 10, size=(40, 3))
    usable = np.array([True, rng.random() < 0.5, True])

    def spend(price):
        trade = np.where(usable, values - price * costs, -np.inf)
        return costs[np.arange(40), trade.argmax(axis=1)].mean()

    price = _online_pacer.solve_price(rate, values, costs, usable)
    if costs[:, usable].min(axis=1).mean() <= rate:
        assert spend(price) <= rate * (1 + 1e-12)
    else:
        assert spend(price) == pytest.approx(costs[:, usable].min(axis=1).mean())
    if price > 0 and spend(price) < rate:
        assert spend(price * (1 - 2e-3)) > rate
    assert _kernels.spend_at(price, values, costs, usable) == pytest.approx(spend(price))


def test_late_outcomes_in_any_order_are_one_belief():
    """Promised where nothing drifts."""
    X, Q, C = world(300)
    routers = [OnlineBudgetRouter(COSTS, drift=0.0).fit(X[:200], Q[:200], C[:200])]
    open_ = [routers[0].decide(x) for x in X[200:]]
    routers.append(copy.deepcopy(routers[0]))
    for router, order in zip(routers, (range(100), np.random.default_rng(0).permutation(100))):
        for i in order:
            k = router.choices_.index(open_[i].name)
            router.commit(open_[i], quality=Q[200 + i, k], cost=C[200 + i, k])
    beliefs = [router._serving.beliefs for router in routers]
    for part in ("mean", "cov", "n_told"):
        np.testing.assert_allclose(*[getattr(b, part) for b in beliefs], atol=1e-9)
    books = [router.status() for router in routers]
    assert books[0].mean_cost == pytest.approx(books[1].mean_cost)
    assert books[0].n_open == books[1].n_open == 0


def utilisation(seed, **params):
    """Spend over budget of 400 requests whose costs are half again what the log said."""
    X, Q, C = world(700, seed)
    router = OnlineBudgetRouter(COSTS, budget=3.0, **params).fit(X[:300], Q[:300], C[:300])
    serve(router, X[300:], Q[300:], 1.5 * C[300:])
    return router.status().mean_cost / 3.0


def test_the_ceiling_holds_on_average(monkeypatch):
    found = np.array([utilisation(seed) for seed in range(8)])
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert 0.9 < found.mean() < 1.0 + 3 * error + 0.01, found
    # The mutation: a pacer that forgets its debts and does not learn costs.
    monkeypatch.setattr("skroute.routing._online_serving.rate_of", lambda pacer, budget, n: budget)
    monkeypatch.setattr("skroute.routing._online_beliefs.COST", COST)
    monkeypatch.setattr(
        "skroute.routing._online_serving.learn_outcome",
        lambda b, k, target, *a, **o: (
            None if target == COST else learn_outcome(b, k, target, *a, **o)
        ),
    )
    broken = np.array([utilisation(seed) for seed in range(3)])
    assert broken.mean() > 1.2, broken


def test_a_horizon_is_spent():
    """What is saved is spent before the end, and the total is met."""
    found = []
    for seed in range(6):
        X, Q, C = world(700, seed)
        router = OnlineBudgetRouter(COSTS, budget=4.0, n_expected=400, drift=0.0)
        router.fit(X[:300], Q[:300], C[:300])
        serve(router, X[300:500], Q[300:500], 0.2 * C[300:500])
        serve(router, X[500:], Q[500:], C[500:])
        found.append(router.status().mean_cost / 4.0)
    assert 0.93 < np.mean(found) < 1.02, found


def test_learning_gains_on_what_was_fitted():
    """A model that fails silently is left, and found again when it is well."""
    X, Q, C = world(2000)
    router = OnlineBudgetRouter(COSTS, budget=3.2).fit(X[:300], Q[:300], C[:300])
    good = serve(router, X[300:600], Q[300:600], C[300:600])
    failed = Q.copy()
    failed[:, 1] = 0.2
    bad = serve(router, X[600:1000], failed[600:1000], C[600:1000])
    again = serve(router, X[1000:], Q[1000:], C[1000:])[600:]
    shares = [(part == 1).mean() for part in (good, bad[100:], again)]
    assert shares[1] < 0.15 < 0.5 * shares[0] < shares[2], shares


def test_prices_choices_and_outages():
    X, Q, C = world(600)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
    window = X[44:300]
    assert router.predict_cost(window).mean() == pytest.approx(3.0, rel=0.03)
    route = router.route(window)
    router.set_params(costs=COSTS | {"middle": 9.0})
    assert router.predict_cost(window).mean() == pytest.approx(3.0, rel=0.03)
    assert (router.route(window) == 1).sum() < 0.5 * (route == 1).sum()
    router.costs["middle"] = 3.0  # in place
    np.testing.assert_array_equal(router.costs_, [1, 3, 10])
    router.exclude(["middle"])
    assert 1 not in router.route(X[300:]) and router.decide(X[0]).name != "middle"
    with pytest.raises(ValueError, match="leaves no choice"):
        router.exclude(["small", "large"])
    router.include()
    assert 1 in router.route(X[300:])

    router.add_choice("new", cost=2.0, n_trials=3)
    assert router.choices_ == [*COSTS, "new"] and router.costs == COSTS | {"new": 2.0}
    tried = [router.decide(x) for x in X[300:303]]
    assert [decision.name for decision in tried] == ["new"] * 3
    for decision in tried:
        router.commit(decision, quality=0.95, cost=2.1)
    router.add_choice("scored", X[:30], Q[:30, 2], cost=1.5)
    assert router.status().n_told["scored"] == 30
    late = router.decide(X[1])
    router.drop_choice(late.name)
    assert late.name not in router.choices_
    router.commit(late, quality=0.5, cost=2.0)
    with pytest.raises(ValueError, match="is not open"):
        router.commit(late, quality=0.5)


def test_a_newcomer_is_adopted_or_refused():
    X, Q, C = world(900)
    for quality, cost, adopted in [(0.9, 2.0, True), (0.3, 2.0, False), (0.9, 200.0, False)]:
        router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
        router.add_choice("new", cost=cost)
        Qn = np.column_stack([Q, quality + 0.1 * np.random.default_rng(0).normal(size=900)])
        Cn = np.column_stack([C, np.full(900, cost)])
        chosen = serve(router, X[300:], Qn[300:], Cn[300:])
        assert ((chosen[-300:] == 3).mean() > 0.5) == adopted
        assert adopted or (chosen == 3).mean() < 0.05


@pytest.mark.parametrize("n_expected", [None, 150])
def test_a_pickle_goes_on_as_if_uninterrupted(n_expected):
    X, Q, C = world(300)
    router = OnlineBudgetRouter(COSTS, budget=3.0, n_expected=n_expected)
    router.partial_fit(X[:20], Q[:20], costs=C[:20])
    serve(router, X[20:130], Q[20:130], C[20:130])
    waiting = router.decide(X[130])
    other = pickle.loads(pickle.dumps(router))
    late = pickle.loads(pickle.dumps(waiting))
    router.commit(waiting, quality=0.4, cost=2.0)
    other.commit(late, quality=0.4, cost=2.0)
    ours = serve(router, X[131:], Q[131:], C[131:])
    theirs = serve(other, X[131:], Q[131:], C[131:])
    np.testing.assert_array_equal(ours, theirs)
    assert router.status() == other.status()


def test_threads_lose_no_request():
    X, Q, C = world(800)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:100], Q[:100], C[:100])
    failures = []

    def work(rows):
        try:
            for i in rows:
                decision = router.decide(X[i])
                k = list(COSTS).index(decision.name)
                router.commit(decision, quality=Q[i, k], cost=C[i, k])
        except Exception as error:  # reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(range(100 + t, 800, 4),)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = router.status()
    assert not failures and status.n_requests == 700 and status.n_open == 0
    assert sum(status.n_told.values()) == 300 + 700
    assert status.mean_cost < 3.1


def test_one_outcome_per_row_and_tables_are_alike():
    X, Q, C = world(80)
    choice = np.arange(80) % 3
    rows = np.arange(80)
    some = np.full(Q.shape, np.nan)
    some[rows, choice] = Q[rows, choice]
    paid = np.full(Q.shape, np.nan)
    paid[rows, choice] = C[rows, choice]
    by_table = OnlineBudgetRouter(COSTS).partial_fit(X, some, costs=paid)
    by_index = OnlineBudgetRouter(COSTS).partial_fit(
        X, Q[rows, choice], choice=choice, costs=C[rows, choice]
    )
    names = np.array(list(COSTS))[choice]
    by_name = OnlineBudgetRouter(COSTS).partial_fit(X[:50], Q[rows, choice][:50], names[:50])
    by_name.partial_fit(X[50:], Q[rows, choice][50:], names[50:])
    assert by_name.status().n_told == by_index.status().n_told
    for part in ("mean", "cov", "noise"):
        ours, theirs = (getattr(r._serving.beliefs, part) for r in (by_table, by_index))
        np.testing.assert_array_equal(ours, theirs)


def test_what_is_missing_is_not_learned():
    X, Q, C = world(100)
    router = OnlineBudgetRouter(COSTS).fit(X, Q, C)
    told = router.status().n_told
    decision = router.decide(X[0])
    router.commit(decision)
    router.refund(router.decide(X[1]))
    router.commit(router.decide(X[2]), quality=np.nan, cost=7.0)
    status = router.status()
    assert status.n_told == told and status.n_open == 0
    assert status.mean_cost == pytest.approx((decision.expected_cost + 0 + 7.0) / 3)


def test_a_fitted_router_is_a_start():
    """Its estimates are those of the first decision, and are corrected by what comes."""
    X, Q, C = world(600)
    prior = BudgetRouter(Ridge(), cost_estimator=Ridge(), budget=3.0).fit(
        X[:300], Q[:300], costs=C[:300]
    )
    router = OnlineBudgetRouter(prior=prior, budget=3.0).fit(X[:300])
    np.testing.assert_allclose(
        router.predict_routed(X[300:]).expected_quality,
        prior.predict_quality(X[300:])[np.arange(300), router.route(X[300:])],
    )
    Q[300:, 1] -= 0.5
    chosen = serve(router, X[300:], Q[300:], C[300:])
    assert (chosen[:30] == 1).mean() > 0.2 > (chosen[150:] == 1).mean()
    again = OnlineBudgetRouter(prior=prior).partial_fit(X[:5], Q[:5])
    assert again.choices_ == prior.choices_


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda r: r.decide([1.0]), "x must have 3 finite features"),
        (lambda r: r.decide(["a", "b", "c"]), "x must be numbers"),
        (lambda r: r.decide([1.0, 2.0, np.nan]), "x must have 3 finite features"),
        (lambda r: r.commit("this"), "decision must be"),
        (lambda r: r.commit(r.decide([0, 0, 0]), quality="good"), "quality must be"),
        (lambda r: r.commit(r.decide([0, 0, 0]), cost=-1), "cost must not be negative"),
        (lambda r: r.exclude("small"), "names must be a list"),
        (lambda r: r.include(["tiny"]), "There is no choice 'tiny'"),
        (lambda r: r.add_choice("small", cost=1), "name must be a new one"),
        (lambda r: r.add_choice("new", cost=-1), "cost of 'new'"),
        (lambda r: r.add_choice("new", cost=1, n_trials=-1), "n_trials must be"),
        (lambda r: r.add_choice("new", [[0, 0, 0]], cost=1), "X and y must be given together"),
        (lambda r: r.drop_choice("tiny"), "There is no choice"),
        (lambda r: r.partial_fit([[0, 0, 0]], [1.0], choice=["tiny"]), "choice must have names"),
        (lambda r: r.partial_fit([[0, 0, 0]], [1.0, 2.0]), "inconsistent numbers"),
        (lambda r: r.set_params(costs=None).decide([0, 0, 0]), "costs must stay"),
    ],
)
def test_errors_say_what_is_wrong(call, words):
    X, Q, C = world(50)
    router = OnlineBudgetRouter(COSTS, budget=5.0).fit(X, Q, C)
    status = router.status()
    with pytest.raises((ValueError, TypeError), match=words):
        call(router)
    router.set_params(drift=0.001, costs=COSTS)
    assert router.choices_ == list(COSTS)
    assert router.status().n_told == status.n_told


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_kernel_weighs_as_arrays_do(seed, n):
    rng = np.random.default_rng(seed)
    # Few values, so that there are ties.
    estimate, base = rng.integers(0, 3, (2, n, 2)) / 2
    variance, prices = rng.integers(-1, 3, n) / 4, rng.integers(1, 4, n).astype(float)
    usable = rng.random(n) < 0.7
    usable[rng.integers(n)] = True
    exploration, price = rng.integers(0, 3) / 2, rng.integers(0, 3) / 4
    both = estimate + base
    costs = np.maximum(both[:, 1], 0.1) * prices
    greedy = both[:, 0] - price * costs
    bonus = exploration * np.sqrt(np.maximum(variance, 0))
    value = np.where(usable, greedy + bonus, -np.inf)
    best = np.flatnonzero(value == value.max())
    for kernel in (_kernels.weigh, _kernels.weigh.py_func):
        own = estimate.copy()
        found = kernel(own, base, variance, prices, usable, float(exploration), float(price), 0.1)
        assert found[0] == best[costs[best].argmin()]
        assert found[1] == greedy[usable].max()
        for array, truth in zip((own, *found[2:]), (both, greedy, bonus, costs)):
            np.testing.assert_allclose(array, truth, rtol=1e-12)


def test_a_decision_is_known_where_it_was_made():
    """Numbers begin at 0 in every router and after every fit: they alone say nothing."""
    X, Q, _ = world(60)
    routers = [OnlineBudgetRouter([1, 3, 9], budget=4).fit(X, Q) for _ in range(2)]
    decision, _ = (router.decide(X[0]) for router in routers)
    copied = pickle.loads(pickle.dumps(routers[0]))
    later = routers[0].decide(X[1])
    copied.decide(X[2])
    refused = [(routers[1], decision), (copied, later)]
    for router, foreign in refused:
        before = router.status()
        with pytest.raises(ValueError, match="another router's"):
            router.commit(foreign, quality=1.0, cost=100.0)
        assert router.status() == before
    copied.commit(decision, quality=1.0)
    routers[0].fit(10 * X, Q)
    routers[0].decide(X[0])
    with pytest.raises(ValueError, match="before a fit"):
        routers[0].commit(decision, quality=1.0)


def test_a_name_that_comes_again_is_another_choice():
    X, Q, _ = world(60)
    router = OnlineBudgetRouter({"a": 1, "b": 3, "c": 9}, budget=4).fit(X, Q)
    decisions = [router.decide(x) for x in X]
    gone = decisions[0].name
    router.drop_choice(gone)
    router.add_choice(gone, cost=2)
    for decision in decisions:
        router.commit(decision, quality=1.0, cost=7.0)
    status = router.status()
    assert status.n_told[gone] == 0 and status.n_open == 0
    assert status.mean_cost == pytest.approx(7.0)


def test_a_copy_has_its_own_books():
    X, Q, _ = world(60)
    router = OnlineBudgetRouter([1, 3, 9], budget=4).fit(X, Q)
    twin = copy.copy(router)
    router.decide(X[0])
    assert (router.status().n_requests, twin.status().n_requests) == (1, 0)
