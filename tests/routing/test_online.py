"""OnlineBudgetRouter: its linear algebra, its books, its threads, and choices that come and go."""

import copy
import pickle
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skroute.routing import BudgetRouter, OnlineBudgetRouter
from skroute.routing.over_time import _online_state
from skroute.routing.over_time._online_state import LEVEL_VARIANCE, QUALITY, Beliefs

COSTS = {"small": 1.0, "middle": 3.0, "large": 10.0}


def world(n, seed=0, n_features=3):
    """Requests, noisy quality of three models of rising price, and costs that vary."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    mean = np.column_stack(
        [0.5 + 0.15 * X[:, 0], 0.7 + 0.1 * X[:, 1], 0.85 - 0.05 * X[:, 0]]
    )
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


def believed(router, X):
    """Expected quality of each choice, and the cost of those made."""
    found = []
    for name in router.choices_:
        router.exclude([other for other in router.choices_ if other != name])
        routed = router.predict_routed(X, budget=np.inf)
        found.append([routed.expected_quality, routed.cost])
        router.include()
    return np.array(found)


@given(
    st.integers(0, 10**6), st.floats(0.1, 100), st.integers(1, 6), st.integers(0, 30)
)
@settings(max_examples=20, deadline=None)
def test_beliefs_are_ridge_regression(seed, alpha, n_features, n):
    """Without drift: mean and covariance of the normal equations, in any order."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, n_features))])
    y = rng.normal(size=n)
    beliefs = Beliefs(np.ones(1), n_features + 1, alpha, 0.0, LEVEL_VARIANCE)
    for i in rng.permutation(n):
        beliefs.learn(0, QUALITY, X[i], y[i], decided_at=0)
    penalty = np.diag([1 / LEVEL_VARIANCE] + [alpha] * n_features)
    cov = np.linalg.inv(X.T @ X + penalty)
    np.testing.assert_allclose(beliefs.cov[0, QUALITY], cov, atol=1e-8)
    np.testing.assert_allclose(beliefs.mean[0, QUALITY], cov @ X.T @ y, atol=1e-8)


@given(st.integers(0, 10**6), st.floats(1e-4, 0.05), st.integers(1, 25))
@settings(max_examples=30, deadline=None)
def test_drift_is_a_random_walk_of_the_level(seed, drift, n):
    """The Kalman steps against the joint Gaussian of all levels, solved at once."""
    rng = np.random.default_rng(seed)
    when = np.sort(rng.choice(60, n, replace=False))
    x = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = rng.normal(size=n)
    # An uncertainty that the drift cannot bring to its bound.
    beliefs = Beliefs(np.ones(1), 2, 5.0, drift, level_variance=0.5)
    with mock.patch.object(_online_state, "_RETURN", 0.0):
        for i in range(n):
            while beliefs.now < when[i]:
                beliefs.advance()
            beliefs.learn(0, QUALITY, x[i], y[i], decided_at=when[i])
    level = 0.5 + drift * np.minimum.outer(when, when)
    weights = np.linalg.solve(level + np.outer(x[:, 1], x[:, 1]) / 5.0 + np.eye(n), y)
    np.testing.assert_allclose(
        beliefs.mean[0, QUALITY, 0], level[-1] @ weights, atol=1e-8
    )
    np.testing.assert_allclose(
        beliefs.mean[0, QUALITY, 1], x[:, 1] @ weights / 5.0, atol=1e-8
    )


@pytest.mark.slow
def test_the_ceiling_holds_on_average():
    """Where costs are half again what the log said; what learns nothing passes it by that."""
    found, fixed = [], []
    for seed in range(8):
        X, Q, C = world(700, seed)
        router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
        route = router.route(X[300:])
        serve(router, X[300:], Q[300:], 1.5 * C[300:])
        found.append(router.status().mean_cost / 3.0)
        fixed.append(1.5 * C[300:][np.arange(400), route].mean() / 3.0)
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert 0.9 < np.mean(found) < 1.0 + 3 * error + 0.01, found
    assert np.mean(fixed) > 1.2, fixed


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    failing=st.floats(0.0, 0.5),
    fails=st.sampled_from([["small"], ["large"], list(COSTS)]),
    delay=st.sampled_from([0, 30]),
    again=st.booleans(),
    n_expected=st.sampled_from([None, 200, 600]),
)
@settings(max_examples=10, deadline=None)
def test_the_ceiling_is_of_requests_that_are_not_refunded(
    seed, failing, fails, delay, again, n_expected
):
    """Calls that fail are refunded, later than decided, and decided anew or given up."""
    X, Q, C = world(900, seed)
    router = OnlineBudgetRouter(COSTS, budget=2.5, n_expected=n_expected)
    router.fit(X[:300], Q[:300], C[:300])
    rng, paid, n_failed = np.random.default_rng(seed), [], 0
    waiting, todo = deque(), deque(range(300, 900))
    while todo or waiting:
        if todo:
            i = todo.popleft()
            waiting.append((i, router.decide(X[i])))
        if len(waiting) > delay or not todo:
            i, decision = waiting.popleft()
            if decision.name in fails and rng.random() < failing:
                n_failed += 1
                router.refund(decision)
                todo.extend([i] * again)
            else:
                k = router.choices_.index(decision.name)
                router.commit(decision, quality=Q[i, k], cost=C[i, k])
                paid.append(C[i, k])
    status = router.status()
    assert (status.n_requests, status.n_refunded, status.n_open) == (
        len(paid),
        n_failed,
        0,
    )
    assert status.mean_cost == pytest.approx(np.mean(paid))
    # Of calls that wait at the end, it is not known that they fail.
    assert sum(paid) < 2.5 * (1.04 * len(paid) + failing * delay)
    assert sum(status.shares.values()) == pytest.approx(1.0)


def test_where_no_plan_fits_the_cheapest_choice_is_taken():
    """However well a request that is like none before speaks for another."""
    X, Q, _ = world(600)
    router = (
        OnlineBudgetRouter(COSTS, budget=3.0)
        .fit(X[:300], Q[:300])
        .set_params(budget=0.5)
    )
    assert {router.decide(20 * x).name for x in X[300:]} == {"small"}


def test_a_horizon_is_spent():
    """What is saved is spent before the end, and the total is met."""
    found = []
    for seed in range(4):
        X, Q, C = world(700, seed)
        router = OnlineBudgetRouter(COSTS, budget=4.0, n_expected=400, drift=0.0)
        router.fit(X[:300], Q[:300], C[:300])
        serve(router, X[300:500], Q[300:500], 0.2 * C[300:500])
        serve(router, X[500:], Q[500:], C[500:])
        found.append(router.status().mean_cost / 4.0)
    assert 0.93 < np.mean(found) < 1.02, found


@pytest.mark.slow
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


def test_price_lists_and_outages():
    X, Q, C = world(600)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
    window = X[44:300]
    assert router.predict_cost(window).mean() == pytest.approx(3.0, rel=0.03)
    route = router.route(window)
    # What is not named keeps its price.
    router.set_params(costs={"middle": 9.0})
    np.testing.assert_array_equal(router.costs_, [1, 9, 10])
    assert router.predict_cost(window).mean() == pytest.approx(3.0, rel=0.03)
    assert (router.route(window) == 1).sum() < 0.5 * (route == 1).sum()
    router.set_params(costs=COSTS).exclude(["middle"])
    assert 1 not in router.route(X[300:]) and router.decide(X[0]).name != "middle"
    with pytest.raises(ValueError, match="leaves no choice"):
        router.exclude(["small", "large"])
    router.include()
    assert 1 in router.route(X[300:])


@given(st.sampled_from([0.01, 0.3, 3.0, 100.0]), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_late_cost_is_learned_by_the_price_list_of_its_decision(factor, late):
    X, Q, C = world(400)
    router = OnlineBudgetRouter(COSTS, drift=0.0).fit(X[:300], Q[:300], C[:300])
    before = believed(router, X)[:, 1]
    decisions = [router.decide(x) for x in X[300:]]
    if late:
        router.set_params(costs={name: factor * cost for name, cost in COSTS.items()})
        router.decide(X[0])
    for decision in decisions:
        router.commit(decision, cost=decision.expected_cost)
    expected = before * (factor if late else 1.0)
    np.testing.assert_allclose(believed(router, X)[:, 1], expected, rtol=1e-6)


def test_the_cost_of_a_free_choice_is_learned():
    """Free by the price list, and not by the bill: the ceiling holds; and free again."""
    X, Q, C = world(900)
    prices = COSTS | {"middle": 0.0}
    router = OnlineBudgetRouter(prices, budget=2.0).fit(X[:300], Q[:300])
    assert (believed(router, X[:5])[1, 1] == 0).all()
    serve(router, X[300:], Q[300:], C[300:])
    assert router.status().mean_cost < 2.1
    assert believed(router, X[:200])[1, 1].mean() == pytest.approx(3.0, rel=0.25)
    # Relative to no price nothing was learned that another price could be multiplied with.
    for price in (7.0, 0.0):
        router.set_params(costs={"middle": price})
        np.testing.assert_allclose(believed(router, X[:5])[1, 1], price)
    logged = OnlineBudgetRouter(prices, budget=2.0).fit(X[:300], Q[:300], C[:300])
    assert believed(logged, X)[1, 1].mean() == pytest.approx(C[:, 1].mean(), rel=0.1)


def test_a_new_choice_is_the_routers_and_not_its_parameters():
    X, Q, C = world(400)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
    router.add_choice("new", cost=2.0, n_trials=3)
    assert router.choices_ == [*COSTS, "new"] and router.costs_.tolist() == [
        1,
        3,
        10,
        2,
    ]
    assert router.get_params()["costs"] == COSTS == clone(router).costs
    tried = [router.decide(x) for x in X[300:303]]
    assert [decision.name for decision in tried] == ["new"] * 3
    for decision in tried:
        router.commit(decision, quality=0.95, cost=2.1)
    router.add_choice("scored", X[:30], Q[:30, 2], cost=1.5)
    assert router.status().n_told["scored"] == 30
    router.set_params(costs={"new": 5.0})
    assert router.costs_.tolist() == [1, 3, 10, 5, 1.5]
    assert router.set_params(costs=COSTS).fit(X, Q).choices_ == list(COSTS)


@pytest.mark.slow
def test_a_newcomer_is_adopted_or_refused():
    X, Q, C = world(900)
    for quality, cost, adopted in [
        (0.9, 2.0, True),
        (0.3, 2.0, False),
        (0.9, 200.0, False),
    ]:
        router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:300], Q[:300], C[:300])
        router.add_choice("new", cost=cost)
        Qn = np.column_stack(
            [Q, quality + 0.1 * np.random.default_rng(0).normal(size=900)]
        )
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


def in_four_threads(work):
    """Run ``work(number)`` in threads; what any of them raises is raised here."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_threads_lose_no_request():
    X, Q, C = world(800)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X[:100], Q[:100], C[:100])

    def work(number):
        for i in range(100 + number, 800, 4):
            decision = router.decide(X[i])
            k = min(router.choices_.index(decision.name), 2)
            router.commit(decision, quality=Q[i, k], cost=C[i, k])
            if i % 100 == 0:
                router.add_choice(f"new {i}", cost=50.0)
                router.exclude([f"new {i}"])

    in_four_threads(work)
    status = router.status()
    assert status.n_requests == 700 and status.n_open == 0
    assert sum(status.n_told.values()) == 300 + 700
    assert status.mean_cost < 3.1
    assert router.choices_ == [
        *COSTS,
        *(name for name in router.choices_ if "new" in name),
    ]
    assert len(router.choices_) == 3 + 7


def test_threads_do_not_wait_for_one_anothers_estimates():
    """All ask the prior at the same time, or this barrier breaks."""
    X, Q, C = world(100)
    together = threading.Barrier(4, timeout=20)

    class Slow(Ridge):
        def predict(self, rows):
            if len(rows) == 1:
                together.wait()
            return super().predict(rows)

    prior = BudgetRouter(Slow(), costs=COSTS, budget=3.0).fit(X, Q)
    router = OnlineBudgetRouter(prior=prior, budget=3.0).fit(X, Q)
    in_four_threads(lambda number: router.decide(X[number]))
    assert router.status().n_requests == 4


def test_one_outcome_per_row_and_tables_are_alike():
    X, Q, C = world(80)
    choice, rows = np.arange(80) % 3, np.arange(80)
    some, paid = np.full((2, *Q.shape), np.nan)
    some[rows, choice], paid[rows, choice] = Q[rows, choice], C[rows, choice]
    q, c, names = Q[rows, choice], C[rows, choice], np.array(list(COSTS))[choice]
    routers = [OnlineBudgetRouter(COSTS) for _ in range(3)]
    routers[0].partial_fit(X, some, costs=paid)
    routers[1].partial_fit(X, q, choice=choice, costs=c)
    routers[2].partial_fit(X, np.full((80, 3), np.nan)).fit(X[:0:-1], Q[:0:-1])
    routers[2] = clone(routers[2]).partial_fit(X, q, names, c)
    for router in routers[1:]:
        assert router.status() == routers[0].status()
        np.testing.assert_array_equal(believed(router, X), believed(routers[0], X))
    # In parts, the first of which gives the scale.
    parts = OnlineBudgetRouter(COSTS).partial_fit(X[:50], q[:50], names[:50])
    parts.partial_fit(X[50:], q[50:], names[50:])
    assert parts.status().n_told == routers[0].status().n_told


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
    assert status.mean_cost == pytest.approx((decision.expected_cost + 7.0) / 2)


def test_a_fitted_router_is_a_start():
    """Its estimates are those of the first decision, and are corrected by what comes."""
    X, Q, C = world(600)
    prior = BudgetRouter(Ridge(), cost_estimator=Ridge(), budget=3.0)
    prior.fit(X[:300], Q[:300], costs=C[:300])
    router = OnlineBudgetRouter(prior=prior, budget=3.0).fit(X[:300])
    np.testing.assert_allclose(believed(router, X)[:, 0], prior.predict_quality(X).T)
    Q[300:, 1] -= 0.5
    chosen = serve(router, X[300:], Q[300:], C[300:])
    assert (chosen[:30] == 1).mean() > 0.2 > (chosen[150:] == 1).mean()
    again = OnlineBudgetRouter(prior=prior).partial_fit(X[:5], Q[:5])
    assert again.choices_ == prior.choices_
    # Of a choice that came later the prior says nothing.
    again.add_choice("new", cost=2.0)
    again.partial_fit(X[:5], Q[:5, 0], choice=["new"] * 5)
    assert again.status().n_told["new"] == 5
    with pytest.raises(ValueError, match="prior has the choices"):
        OnlineBudgetRouter(COSTS, prior=prior).fit(X)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda r: r.decide([1.0]), "x must have the 3 features"),
        (lambda r: r.decide(["a", "b", "c"]), "x must be numbers"),
        (lambda r: r.decide([1.0, 2.0, np.nan]), "x must have no missing"),
        (lambda r: r.commit("this"), "decision must be"),
        (lambda r: r.commit(r.decide([0, 0, 0]), quality="good"), "quality must be"),
        (
            lambda r: r.commit(r.decide([0, 0, 0]), cost=-1),
            "cost must be finite and at least 0",
        ),
        (lambda r: r.exclude("small"), "names must be a list"),
        (lambda r: r.include(["tiny"]), "There is no choice 'tiny'"),
        (lambda r: r.add_choice("small", cost=1), "name must be a new one"),
        (lambda r: r.add_choice("new", cost=-1), "cost of 'new'"),
        (lambda r: r.add_choice("new", cost=1, n_trials=-1), "n_trials must be"),
        (
            lambda r: r.add_choice("new", [[0, 0, 0]], cost=1),
            "X and y must be given together",
        ),
        (
            lambda r: r.partial_fit([[0, 0, 0]], [1.0], choice=["tiny"]),
            "'tiny', which is not",
        ),
        (lambda r: r.partial_fit([[0, 0, 0]], [1.0, 2.0]), "y must have shape"),
        (
            lambda r: r.set_params(costs=None).decide([0, 0, 0]),
            "costs must be a mapping",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, words):
    router = OnlineBudgetRouter(COSTS, budget=5.0).fit(*world(50))
    status = router.status()
    with pytest.raises((ValueError, TypeError), match=words):
        call(router)
    router.set_params(costs=COSTS)
    assert router.choices_ == list(COSTS)
    assert router.status().n_told == status.n_told


def test_a_choice_alone_costs_what_it_does_where_no_other_is_left():
    """A certificate compares a router with one choice for all rows."""
    X, Q, C = world(300)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q, 1.5 * C)
    expected = believed(router, X)[:, 1]
    for k, name in enumerate(COSTS):
        plan = router.plan_single(X, name)
        assert (plan.route == k).all() and (router.answer(plan) == name).all()
        np.testing.assert_array_equal(plan.cost, expected[k])
        assert plan.cost.mean() == pytest.approx(1.5 * COSTS[name], rel=0.15)


def test_a_decision_is_known_where_it_was_made():
    """Numbers begin at 0 in every router and after every fit: they alone say nothing."""
    X, Q, _ = world(60)
    routers = [OnlineBudgetRouter([1, 3, 9], budget=4).fit(X, Q) for _ in range(2)]
    decision, _ = (router.decide(X[0]) for router in routers)
    copied = copy.copy(routers[0])
    later = routers[0].decide(X[1])
    copied.decide(X[2])
    for router, foreign in [(routers[1], decision), (copied, later)]:
        before = router.status()
        with pytest.raises(ValueError, match="another router's"):
            router.commit(foreign, quality=1.0, cost=100.0)
        assert router.status() == before
    copied.commit(decision, quality=1.0)
    assert routers[0].status().n_open == 2 and copied.status().n_open == 1
    routers[0].fit(10 * X, Q)
    routers[0].decide(X[0])
    with pytest.raises(ValueError, match="before a fit"):
        routers[0].commit(decision, quality=1.0)


# Parameters that are set after fit --------------------------------------------------------


def decided(router, X):
    return [(d.name, d.expected_cost, d.explored) for d in map(router.decide, X)]


@pytest.mark.parametrize(
    ("name", "first", "then"),
    [
        ("costs", COSTS, COSTS | {"large": 2.0, "small": 3.0}),
        ("budget", 3.0, 1.2),
        ("exploration", 0.0, 5.0),
        ("n_expected", None, 100),
        ("n_expected", 100, None),
        ("n_expected", 100, 40),
        ("drift", 0.0, 0.3),
    ],
)
def test_a_parameter_that_is_set_after_fit_acts_at_once(name, first, then):
    """Between the first and the last decision of a service, without a new fit."""
    X, Q, C = world(400)
    parameters = {"costs": COSTS, "budget": 3.0, name: first}
    router = OnlineBudgetRouter(**parameters).fit(X[:100], Q[:100], costs=C[:100])
    serve(router, X[100:130], Q[100:130], C[100:130])
    same = copy.deepcopy(router).set_params(**{name: first})
    other = copy.deepcopy(router).set_params(**{name: then})
    expected = serve(router, X[130:], Q[130:], C[130:])
    np.testing.assert_array_equal(serve(same, X[130:], Q[130:], C[130:]), expected)
    assert (serve(other, X[130:], Q[130:], C[130:]) != expected).any()


def test_every_parameter_acts_at_once_or_is_refused_until_fit():
    X, Q, _ = world(100)
    prior = BudgetRouter(Ridge(), costs=COSTS).fit(X, Q)
    acts = {"costs", "budget", "exploration", "drift", "n_expected"}
    calls = (
        lambda router: router.decide(X[0]),
        lambda router: router.predict(X),
        lambda router: router.partial_fit(X, Q),
        lambda router: router.add_choice("new", cost=1.0),
        lambda router: router.min_budget_,
    )
    for name, value in [("alpha", 3.0), ("prior", prior)]:
        router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q)
        kept = getattr(router, name)
        decision = router.decide(X[0])
        router.set_params(**{name: value})
        for call in calls:
            with pytest.raises(ValueError, match="must be as in fit"):
                call(router)
        # Money that was spent is booked all the same.
        router.commit(decision, quality=0.5, cost=1.0)
        router.set_params(**{name: kept}).decide(X[0])
        router.set_params(**{name: value}).fit(X, Q).decide(X[0])
        acts.add(name)
    assert acts == set(OnlineBudgetRouter().get_params())


@pytest.mark.parametrize(
    ("name", "value"), [("exploration", -1.0), ("drift", np.nan), ("n_expected", 0)]
)
def test_a_bad_parameter_that_is_set_after_fit_is_refused(name, value):
    X, Q, _ = world(100)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q).set_params(**{name: value})
    with pytest.raises(ValueError, match=name):
        router.decide(X[0])


@pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, lambda router: pickle.loads(pickle.dumps(router))]
)
def test_a_copy_of_a_router_with_a_prior_decides_on(how):
    X, Q, _ = world(100)
    prior = BudgetRouter(Ridge(), costs=COSTS).fit(X, Q)
    router = OnlineBudgetRouter(budget=3.0, prior=prior).fit(X)
    other = how(router)
    assert decided(other, X[:5]) == decided(router, X[:5])
    with pytest.raises(ValueError, match="must be as in fit"):
        other.set_params(prior=None).decide(X[0])


def test_a_horizon_goes_on_where_it_is_made_longer():
    X, Q, C = world(400)
    router = OnlineBudgetRouter(COSTS, budget=3.0, n_expected=100).fit(X[:100], Q[:100])
    serve(router, X[100:150], Q[100:150], C[100:150])
    router.set_params(n_expected=200)
    serve(router, X[150:300], Q[150:300], C[150:300])
    assert router.status().mean_cost == pytest.approx(3.0, rel=0.1)
    assert router._serving.pacer.n_booked == 200


def restlessly(*calls):
    """Make calls in threads that start together and are switched as often as they can be."""
    before, start = sys.getswitchinterval(), threading.Barrier(len(calls))

    def call(function):
        start.wait()
        function()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            list(pool.map(call, calls))
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(8))
def test_choices_and_first_rows_of_several_threads_are_all_kept(seed):
    X, Q, _ = world(80, seed=seed)
    router = OnlineBudgetRouter(COSTS, budget=3.0)
    parts = np.array_split(np.arange(80), 4)
    restlessly(
        *[lambda part=part: router.partial_fit(X[part], Q[part]) for part in parts]
    )
    assert set(router.status().n_told.values()) == {80}
    new = [f"new{k}" for k in range(4)]
    restlessly(
        *[lambda name=name: router.add_choice(name, cost=2.0) for name in new],
        lambda: router.exclude(["large"]),
        lambda: router.exclude(["middle"]),
        lambda: router.partial_fit(X, Q[:, 0], choice=["small"] * 80),
    )
    assert sorted(router.choices_) == sorted([*COSTS, *new])
    assert router.choices_ == router._serving.names
    assert len(router._serving.kept) == len(router.choices_) - 2


def test_a_name_is_added_once_by_several_threads():
    X, Q, _ = world(80)
    router = OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q)
    refused = []

    def add():
        try:
            router.add_choice("new", cost=2.0)
        except ValueError:
            refused.append(1)

    restlessly(*[add] * 6)
    assert router.choices_ == [*COSTS, "new"] and len(refused) == 5
