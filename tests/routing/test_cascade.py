"""Cascades: backward induction by hand, special cases, what is asked, live requests."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from skroute.metrics import accuracy_cost_curve
from skroute.routing import CascadeRouter
from skroute.routing._cascade_log import Reply
from skroute.routing._cascade_rules import (
    ABSTAIN,
    Log,
    Reader,
    any_order,
    candidates,
    fit_cascade,
    fixed_order,
    play,
    price_grid,
)
from skroute.routing._policy_choice import choose_simple, select_policies
from skroute.routing._signals import RankScores, StateBasis, fit_logistic

NAMES = ["small", "middle", "large"]
COSTS = {"small": 1.0, "middle": 4.0, "large": 20.0}


def log_of(n=300, seed=0, noise=0.5):
    """Quality and confidence of three models of growing skill."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(n, 1))
    chance = 1 / (1 + np.exp(1.5 * hard - np.array([0.0, 1.0, 2.5])))
    Q = (rng.uniform(size=(n, 3)) < chance).astype(float)
    return Q, np.log(chance) + noise * rng.normal(size=(n, 3)), hard


def as_log(Q, S, abstain=0.0):
    known = np.empty((len(Q), 0))
    return Log(
        Q, np.tile(list(COSTS.values()), (len(Q), 1)), [S[:, [k]] for k in range(3)], known, abstain
    )


@pytest.fixture(scope="module")
def router():
    Q, S, _ = log_of()
    return CascadeRouter(costs=COSTS, budget=8).fit(None, Q, signals=dict(zip(NAMES, S.T)))


# What is learned of signals.


def test_a_logistic_line_is_that_of_scikit_learn_and_its_estimates_leave_one_out():
    rng = np.random.default_rng(0)
    F = np.column_stack([np.ones(80), rng.normal(size=(80, 3))])
    y = (rng.uniform(size=80) < 1 / (1 + np.exp(-F[:, 1]))).astype(float)
    ridge = np.array([1e-6, 2.0, 2.0, 2.0])
    coef, estimate = fit_logistic(F, y, ridge)
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(F[:, 1:], y)
    np.testing.assert_allclose(coef, [theirs.intercept_[0], *theirs.coef_[0]], atol=1e-4)
    without = np.array(
        [
            1 / (1 + np.exp(-F[i] @ fit_logistic(np.delete(F, i, 0), np.delete(y, i), ridge)[0]))
            for i in range(80)
        ]
    )
    np.testing.assert_allclose(estimate, without, atol=0.01)
    inside = 1 / (1 + np.exp(-F @ coef))
    assert np.abs(estimate - without).max() < 0.2 * np.abs(inside - without).max()


def test_values_of_going_on_are_estimated_without_their_row():
    rng = np.random.default_rng(1)
    features, values = rng.normal(size=(60, 2)), rng.normal(size=(60, 3))
    quality = (rng.uniform(size=(60, 1)) < 0.5).astype(float)
    own = np.array([[True, False]])
    basis = StateBasis(features, own, quality)
    _, estimate = basis.fit(values)
    # A row whose own value is changed is estimated as before.
    changed = values.copy()
    changed[7] = 0.5 * values.min(axis=0) + 0.5 * values.max(axis=0)
    np.testing.assert_allclose(basis.fit(changed)[1][7], estimate[7])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_scores_of_ranks_know_no_scale(seed, missing):
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 6, size=(50, 1)).astype(float)
    if missing:
        x[rng.uniform(size=50) < 0.2] = np.nan
    scores = RankScores(x).transform(x)
    assert scores.shape == (50, 1 + np.isnan(x).any())
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(RankScores(np.exp(x)).transform(np.exp(x)), scores)
    seen = ~np.isnan(x[:, 0])
    order = np.argsort(x[seen, 0], kind="stable")
    assert (np.diff(scores[seen, 0][order]) >= 0).all()
    far = RankScores(x).transform(np.array([[-np.inf], [np.inf], [np.nan]]))[:, 0]
    assert far[0] == scores[seen, 0].min() and far[1] == scores[seen, 0].max() and far[2] == 0


# Backward induction.


@pytest.mark.parametrize("abstain", [None, "early"])
def test_where_signals_tell_all_the_best_plan_of_each_row_is_found(abstain):
    """The signals say whether the answers are right; values by brute force."""
    rng = np.random.default_rng(0)
    Q = (rng.uniform(size=(3000, 3)) < [0.3, 0.6, 0.9]).astype(float)
    log = as_log(Q, Q + 1e-3 * rng.normal(size=Q.shape), abstain=0.55)
    prices = np.array([0.2, 0.02, 0.005])
    reader = Reader(log)
    scores = reader.scores(log)
    fitted = fit_cascade(any_order(3, 3, abstain=abstain), log, scores, prices)
    quality, cost = play(fitted, log, scores)
    found = (quality - prices * cost).mean(axis=0)
    mean, costs = Q.mean(axis=0), np.array(list(COSTS.values()))

    def best(asked, price):
        """Value of a state in which all of `asked` are wrong, answers independent."""
        stop = 0.55 if abstain and asked else 0.0
        on = [
            mean[k] + (1 - mean[k]) * best((*asked, k), price) - price * costs[k]
            for k in range(3)
            if k not in asked
        ]
        return max([*([stop] if asked else []), *on])

    for price, value in zip(prices, found):
        assert value == pytest.approx(best((), price), abs=0.02)


def test_a_fixed_order_asks_in_turn_and_the_last_one_answers():
    Q, S, _ = log_of()
    log = as_log(Q, S)
    scores = Reader(log).scores(log)
    cascade = fixed_order(3, (0, 2))
    quality, cost = play(fit_cascade(cascade, log, scores, np.array([1e6, 0.01, 0.0])), log, scores)
    np.testing.assert_array_equal(quality[:, 0], Q[:, 0])
    np.testing.assert_array_equal(cost[:, 0], 1.0)
    went = cost[:, 1] > 1
    np.testing.assert_array_equal(quality[went, 1], Q[went, 2])
    np.testing.assert_array_equal(quality[~went, 1], Q[~went, 0])
    assert 0.1 < went.mean() < 0.9
    # A threshold on the own confidence, as FrugalGPT has it.
    assert S[went, 0].max() <= S[~went, 0].min() + 1e-9


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_states_of_free_orders(calls):
    cascade = any_order(3, calls, first=[0, 1])
    sets = [frozenset(np.flatnonzero(row)) for row in cascade.asked]
    assert len(set(sets)) == len(sets) and not sets[0]
    assert max(map(len, sets)) == calls
    for at, part in enumerate(sets):
        for k in range(3):
            after = cascade.following[at, k]
            if after >= 0:
                assert after > at and sets[after] == part | {k}
            else:
                assert k in part or len(part) == calls or (not part and k == 2)


def test_handing_over_counts_where_it_may():
    early, last = fixed_order(3, (0, 1), "early"), fixed_order(3, (0, 1), "last")
    assert [ABSTAIN in ways for ways in early.ways] == [False, True, True]
    assert [ABSTAIN in ways for ways in last.ways] == [False, False, True]


def test_what_is_compared():
    assert len(candidates(3, 3, [0, 1, 2], False, None)) == 3 + 4 + 2
    assert len(candidates(3, 1, [0, 1, 2], True, None)) == 3 + 1
    prices = price_grid(np.array([0.0, 2.0, 10.0]), 5)
    assert prices[0] == 1.0 and prices[-1] == 0 and (np.diff(prices) < 0).all()
    assert price_grid(np.zeros(2), 5).tolist() == [0]


# Choosing.


def test_of_equals_the_simplest_is_taken_and_a_clear_winner_always():
    rng = np.random.default_rng(0)
    base = rng.uniform(size=400)
    near = base + 0.0005 + 0.1 * rng.permutation(np.linspace(-1, 1, 400))
    clear = base + 0.2
    assert choose_simple(np.array([near, base]), np.array([2, 1]), slack=1) == 1
    assert choose_simple(np.array([near, base]), np.array([2, 1])) == 1
    assert choose_simple(np.array([near, base]), np.array([2, 1]), slack=0) == 0
    assert choose_simple(np.array([clear, base]), np.array([2, 1])) == 0
    assert choose_simple(np.array([base, base + 1e-9]), np.array([2, 1])) == 1
    assert choose_simple(np.array([base, base]), np.array([2, 1])) == 1


def test_the_rows_that_pick_do_not_judge():
    """A hundred policies of pure noise: the winner's own figure is far off, the honest is not."""
    picked, honest = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        quality = (rng.uniform(size=(100, 100, 1)) < 0.5).astype(float)
        folds = np.array_split(np.arange(100), 5)
        chosen = select_policies(quality, np.zeros_like(quality), np.zeros(1), np.zeros(100), folds)
        picked.append(quality[chosen.policy[0], :, 0].mean())
        honest.append(chosen.row_quality[:, 0].mean())
    assert np.mean(picked) > 0.6
    assert np.mean(honest) == pytest.approx(0.5, abs=4 * np.std(honest) / np.sqrt(40))


# The estimator.


def test_special_cases_are_contained(router):
    """Where answers show nothing, what is left is a coin between single models."""
    Q, _, _ = log_of(n=2000)
    noise = np.random.default_rng(1).normal(size=Q.shape)
    blind = CascadeRouter(costs=COSTS).fit(None, Q, signals=noise[:, :, None])
    new, _, _ = log_of(n=2000, seed=7)
    costs, mean = np.array(list(COSTS.values())), new.mean(axis=0)
    for budget in (2.0, 8.0, 20.0):
        found = blind.score(None, new, budget=budget, signals=noise)
        assert found >= np.interp(budget, costs, mean) - 0.03


def test_it_beats_single_models_and_keeps_the_budget():
    Q, S, _ = log_of(n=2000, noise=0.2)
    router = CascadeRouter(costs=COSTS).fit(None, Q, signals=S[:, :, None])
    Q, signals, _ = log_of(n=4000, seed=5, noise=0.2)
    costs = np.array(list(COSTS.values()))
    for budget, gain in [(3.0, -0.01), (8.0, 0.01), (12.0, 0.02)]:
        cost = router.predict_cost(None, budget=budget, signals=signals)
        assert cost.mean() == pytest.approx(budget, rel=0.1)
        quality = router.score(None, Q, budget=budget, signals=signals)
        assert quality > np.interp(cost.mean(), costs, Q.mean(axis=0)) + gain


def test_only_what_is_paid_for_is_asked(router):
    Q, S, _ = log_of(n=500, seed=3)
    seen = {name: [] for name in NAMES}

    def recorded(k):
        def ask(rows):
            seen[NAMES[k]] += rows.tolist()
            return S[rows, k]

        return ask

    X = np.arange(500)
    lazy = {name: recorded(k) for k, name in enumerate(NAMES)}
    y_pred, route, cost = router.predict_routed(X[:, None], signals=lazy)
    asked = router.models_asked(X[:, None], signals=S)
    for k, name in enumerate(NAMES):
        assert sorted(seen[name]) == np.flatnonzero(asked[:, k]).tolist()
    np.testing.assert_allclose(cost, asked @ list(COSTS.values()))
    assert asked[np.arange(500), route].all()
    np.testing.assert_array_equal(y_pred, np.array(NAMES)[route])
    told = np.random.default_rng(0).uniform(size=(500, 3))
    paid = router.predict_cost(X[:, None], signals=S, costs=told)
    np.testing.assert_allclose(paid, (told * asked).sum(axis=1))


def test_models_are_called_live_and_answer(router):
    _, S, _ = log_of(n=200, seed=4)
    X = np.arange(200)[:, None]
    calls = dict.fromkeys(NAMES, 0)

    def model(k):
        def answer(rows):
            calls[NAMES[k]] += len(rows)
            return Reply([f"{NAMES[k]} {i}" for i in rows[:, 0]], S[rows[:, 0], k])

        return answer

    models = {name: model(k) for k, name in enumerate(NAMES)}
    y_pred, route, cost = router.predict_routed(X, models=models)
    assert y_pred.tolist() == [f"{NAMES[k]} {i}" for i, k in enumerate(route)]
    np.testing.assert_array_equal(route, router.route(X, signals=S))
    np.testing.assert_allclose(cost.sum(), sum(calls[n] * COSTS[n] for n in NAMES))


def test_a_live_request_goes_the_way_of_the_batch(router):
    _, S, _ = log_of(n=150, seed=6)
    for budget in router.mixture_.cost:
        batch = router.predict_routed(None, budget=budget, signals=S)
        quality = router.predict_quality(None, budget=budget, signals=S)
        for i in range(0, 150, 5):
            run = router.start(budget=budget)
            while run.next is not None:
                run.observe(run.next, signals=S[i, NAMES.index(run.next)])
            assert run.answer == batch.y_pred[i]
            assert run.cost == pytest.approx(batch.cost[i])
            assert run.quality == pytest.approx(quality[i])


def test_a_live_request_refuses_what_cannot_be(router):
    run = router.start(budget=router.min_budget_)
    before = run.next
    with pytest.raises(ValueError, match="model must be one of"):
        run.observe("nobody", signals=0.0)
    with pytest.raises(ValueError, match="columns that fit saw"):
        run.observe(before, signals=[0.0, 1.0])
    with pytest.raises(ValueError, match="cost"):
        run.observe(before, signals=0.0, cost=-1)
    assert run.next == before and run.asked == [] and run.cost == 0 and run.answer is None
    run.observe(before, signals=0.0, cost=3.5)
    assert run.cost == 3.5
    again = pickle.loads(pickle.dumps(run))
    assert again.answer == run.answer


def test_handing_over_is_a_choice():
    Q, S, _ = log_of(n=800)
    router = CascadeRouter(costs=COSTS, abstain_cost=0.15).fit(None, Q, signals=S[:, :, None])
    assert router.choices_ == [*NAMES, "abstain"]
    new, signals, _ = log_of(n=2000, seed=9)
    y_pred, route, _ = router.predict_routed(None, signals=signals)
    handed = y_pred == "abstain"
    np.testing.assert_array_equal(handed, route == 3)
    assert 0.05 < handed.mean() < 0.9
    answered = np.flatnonzero(~handed)
    realised = new[answered, route[answered]]
    # What is answered is right more often than not handing over is worth.
    assert realised.mean() > 0.85
    expected = (realised.sum() + 0.85 * handed.sum()) / 2000
    assert router.score(None, new, signals=signals) == pytest.approx(expected)
    curve = accuracy_cost_curve(router, None, new, [np.inf], signals=signals)
    assert curve.quality[0] == pytest.approx(expected)
    models = {
        name: lambda rows, k=k: (rows[:, 0], signals[rows[:, 0], k]) for k, name in enumerate(NAMES)
    }
    answers = router.predict(np.arange(2000)[:, None], models=models)
    rules = router.route(np.arange(2000)[:, None], models=models)
    assert [a is None for a in answers] == (rules == 3).tolist()
    never = CascadeRouter(costs=COSTS, abstain_cost=5).fit(None, Q, signals=S[:, :, None])
    assert not (never.predict(None, signals=signals) == "abstain").any()
    quality = never.predict_quality(None, signals=signals)
    right = new[np.arange(2000), never.route(None, signals=signals)]
    assert right[quality > np.median(quality)].mean() > right[quality <= np.median(quality)].mean()


def test_what_is_known_before_is_used():
    Q, S, hard = log_of(n=1500, noise=50)
    router = CascadeRouter(Ridge(), costs=COSTS, budget=8).fit(hard, Q, signals=S[:, :, None])
    new, signals, hard = log_of(n=2000, seed=2, noise=50)
    found = router.score(hard, new, signals=signals)
    cost = router.predict_cost(hard, signals=signals).mean()
    assert found > np.interp(cost, list(COSTS.values()), new.mean(axis=0)) + 0.02
    run = router.start(hard[0])
    while run.next is not None:
        run.observe(run.next, signals=signals[0, NAMES.index(run.next)])
    assert run.answer in NAMES


@pytest.mark.parametrize("scale, shift", [(100.0, 0.0), (0.5, -3.0)])
def test_quality_has_any_unit(router, scale, shift):
    Q, S, _ = log_of()
    signals = dict(zip(NAMES, S.T))
    other = CascadeRouter(costs=COSTS, budget=8).fit(None, scale * Q + shift, signals=signals)
    np.testing.assert_array_equal(other.predict(None, signals=S), router.predict(None, signals=S))
    np.testing.assert_allclose(other.mixture_.quality, scale * router.mixture_.quality + shift)


def test_order_of_models_does_not_matter_but_order_given_does():
    Q, S, _ = log_of()
    at = [2, 0, 1]
    costs = [list(COSTS.values())[k] for k in at]
    one = CascadeRouter(costs=COSTS, budget=8).fit(None, Q, signals=S[:, :, None])
    other = CascadeRouter(costs=dict(zip([NAMES[k] for k in at], costs)), budget=8)
    other.fit(None, Q[:, at], signals=S[:, at, None])
    np.testing.assert_array_equal(
        one.predict(None, signals=S), other.predict(None, signals=S[:, at])
    )
    fixed = CascadeRouter(costs=COSTS, order=["middle", "large"]).fit(None, Q, signals=S)
    assert fixed.min_budget_ == 4.0
    assert set(fixed.rule_names_) == {"middle > large"}
    asked = fixed.models_asked(None, signals=S)
    assert asked[:, 1].all() and not asked[:, 0].any()


@pytest.mark.parametrize(
    "options, arguments, message",
    [
        ({"costs": None}, {}, "costs must say what each"),
        ({"order": ["small", "small"]}, {}, "order must name some of the models"),
        ({"order": ["nobody"]}, {}, "order must name some of the models"),
        ({"cv": [(np.arange(150), np.arange(150, 300))]}, {}, "partition"),
        ({"budget": 0.5}, {}, "smallest feasible"),
        ({}, {"costs": np.ones((300, 3))}, "both to the constructor and to fit"),
        ({}, {"signals": {"nobody": np.ones(300)}}, "not among the models"),
        ({}, {"signals": np.ones((300, 2))}, "signals must be a mapping"),
        ({}, {"signals": {"small": np.ones(299)}}, "must have shape"),
        ({}, {"signals": {"small": ["secret"] * 300}}, "must be numbers"),
    ],
)
def test_what_fit_refuses(options, arguments, message):
    Q, S, _ = log_of()
    router = CascadeRouter(**({"costs": COSTS} | options))
    with pytest.raises(ValueError, match=message) as refused:
        router.fit(None, Q, **({"signals": S} | arguments))
    assert "secret" not in str(refused.value)
    assert not hasattr(router, "choices_")


def test_too_many_sets_are_refused():
    names = [f"m{k}" for k in range(20)]
    router = CascadeRouter(costs=dict.fromkeys(names, 1.0))
    with pytest.raises(ValueError, match="1350 sets of models; at most 1023"):
        router.fit(None, np.ones((10, 20)), signals={})


def test_what_a_call_refuses(router):
    _, S, _ = log_of()
    X = np.zeros((300, 1))
    models = dict.fromkeys(NAMES, lambda rows: 1 / 0)
    for arguments, message in [
        ({"signals": {"small": S[:, 0]}}, "has nothing of"),
        ({"signals": S, "models": models}, "not both"),
        ({"models": {"small": len}}, "one callable for each"),
        ({"signals": S[:20]}, "must have 300 rows"),
        ({"signals": S, "costs": np.ones((300, 2))}, "one cost per row and choice"),
        ({"signals": S, "budget": 0.1}, "smallest feasible"),
    ]:
        with pytest.raises(ValueError, match=message):
            router.predict(X, **arguments)
    with pytest.raises(ValueError, match="which is None"):
        router.predict(None, models=models)
    with pytest.raises(ValueError, match="signals must say"):
        router.predict(None)
    with pytest.raises(ZeroDivisionError) as failed:
        router.predict(X, models=models)
    assert any("the call of" in note for note in failed.value.__notes__)
    with pytest.raises(TypeError, match="must return a Reply or a tuple"):
        router.predict(X, models=dict.fromkeys(NAMES, lambda rows: rows))


def test_costs_per_row_are_counted_as_they_were():
    Q, S, _ = log_of()
    costs = np.random.default_rng(0).lognormal(size=(300, 3)) * list(COSTS.values())
    router = CascadeRouter().fit(None, Q, costs=costs, signals=S)
    np.testing.assert_allclose(router.costs_, costs.mean(axis=0))
    assert router.choices_ == ["choice0", "choice1", "choice2"]
    alone = CascadeRouter(order=["choice0"]).fit(None, Q, costs=costs, signals=S)
    assert alone.validation_cost_ == pytest.approx(costs[:, 0].mean())
    assert alone.predict(None, signals=S).tolist() == [0] * 300


def test_every_subset_of_models_may_show_nothing():
    Q, S, _ = log_of(n=60)
    for size in range(4):
        for part in itertools.combinations(range(3), size):
            signals = {NAMES[k]: S[:, k] for k in part}
            router = CascadeRouter(costs=COSTS, n_prices=5, cv=2).fit(None, Q, signals=signals)
            if size:
                assert len(router.predict(None, signals=signals)) == 60
            else:
                assert len(router.predict(np.zeros((60, 1)))) == 60
