"""Cascades: states, backward induction by hand, special cases, what is asked, live requests."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge

from skroute.assignment._induction import STOP
from skroute.metrics import accuracy_cost_curve
from skroute.routing import CascadeRouter
from skroute.routing.from_answers._cascade_rules import (
    CascadeLog,
    LogRegressions,
    choose_and_judge,
    choose_simple,
    fit_cascade,
)
from skroute.routing.from_answers._signals import (
    RankScores,
    RowSignals,
    SignalScales,
    StateBasis,
    fit_logistic,
)
from skroute.routing.from_answers._states import (
    StateEstimates,
    StateFit,
    StateLearner,
    any_order,
    fixed_order,
    learn_values,
    move_of,
)
from skroute.routing.parts._estimates import estimates_without_folds

NAMES = ["small", "middle", "large"]
COSTS = {"small": 1.0, "middle": 4.0, "large": 20.0}


def log_of(n=300, seed=0, noise=0.5):
    """Quality and confidence of three models of growing skill."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(n, 1))
    chance = 1 / (1 + np.exp(1.5 * hard - np.array([0.0, 1.0, 2.5])))
    Q = (rng.uniform(size=(n, 3)) < chance).astype(float)
    return Q, np.log(chance) + noise * rng.normal(size=(n, 3)), hard


def as_log(Q, S, abstain_quality=None):
    """Return a log in which each model has one signal, and nothing is known before."""
    nothing = np.empty((len(Q), 0))
    return CascadeLog(
        quality=Q,
        costs=np.tile(list(COSTS.values()), (len(Q), 1)),
        signals=RowSignals(nothing, [S[:, [k]] for k in range(3)]),
        abstain_quality=abstain_quality,
        low=0.0,
        span=1.0,
    )


def play(states, log, prices):
    """Quality and cost at each price of a cascade on the rows that it has learned from."""
    scores = SignalScales(log.signals).transform(log.signals)
    fitted = fit_cascade(states, log, prices, LogRegressions(log, scores))
    price_index = np.tile(np.arange(len(prices)), (len(log.quality), 1))
    ends = fitted.follow(scores, price_index)
    quality = np.take_along_axis(log.outcomes(), ends.choice, axis=1)
    return quality, states.asked[ends.state] @ np.array(list(COSTS.values()))


class Oracle(StateLearner):
    """Estimates that are the targets themselves."""

    def fit(self, state, targets):
        return StateFit(None, targets)


class Recorder(StateLearner):
    """Estimates made of the targets by a function. It keeps the targets of each state."""

    def __init__(self, estimate):
        self.estimate = estimate
        self.targets = {}

    def fit(self, state, targets):
        self.targets[state] = targets
        return StateFit(None, self.estimate(targets))


@pytest.fixture(scope="module")
def router():
    Q, S, _ = log_of()
    return CascadeRouter(costs=COSTS, budget=8).fit(
        None, Q, signals=dict(zip(NAMES, S.T))
    )


def test_a_logistic_line_is_that_of_scikit_learn_and_its_estimates_leave_one_out():
    rng = np.random.default_rng(0)
    F = np.column_stack([np.ones(80), rng.normal(size=(80, 3))])
    y = (rng.uniform(size=80) < 1 / (1 + np.exp(-F[:, 1]))).astype(float)
    ridge = np.array([1e-6, 2.0, 2.0, 2.0])
    coef, estimate = fit_logistic(F, y, ridge)
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(F[:, 1:], y)
    np.testing.assert_allclose(
        coef, [theirs.intercept_[0], *theirs.coef_[0]], atol=1e-4
    )
    without = np.empty(80)
    for row in range(80):
        others = np.arange(80) != row
        coef_of_others, _ = fit_logistic(F[others], y[others], ridge)
        without[row] = 1 / (1 + np.exp(-F[row] @ coef_of_others))
    np.testing.assert_allclose(estimate, without, atol=0.01)
    inside = 1 / (1 + np.exp(-F @ coef))
    assert np.abs(estimate - without).max() < 0.2 * np.abs(inside - without).max()


def test_values_of_going_on_are_estimated_without_their_row():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 2))
    values = rng.normal(size=(60, 3))
    quality = (rng.uniform(size=(60, 1)) < 0.5).astype(float)
    is_own_signal = np.array([[True, False]])
    basis = StateBasis(features, is_own_signal, quality)
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
    assert (
        far[0] == scores[seen, 0].min()
        and far[1] == scores[seen, 0].max()
        and far[2] == 0
    )


def test_a_move_takes_what_pays_and_stops_at_ties():
    ways = np.array([[0.5, 0.1], [0.5, 0.1], [0.5, 0.1], [0.2, 0.9]])
    going = np.array([[0.7, 0.9], [0.8, 0.8], [0.6, 0.7], [1.0, 1.0]])[:, :, np.newaxis]
    estimates = StateEstimates(ways, going)
    move = move_of(estimates, np.array([1.0, 2.0]), np.array([0.1]))
    np.testing.assert_array_equal(move.next_position[:, 0], [1, 0, STOP, STOP])
    np.testing.assert_array_equal(move.ending, [0, 0, 0, 1])
    np.testing.assert_allclose(move.value[:, 0], [0.7, 0.7, 0.5, 0.9])


@given(st.integers(0, 10_000), st.sampled_from([None, 0.6]))
@settings(max_examples=15, deadline=None)
def test_with_full_knowledge_each_row_ends_in_the_best_set(seed, abstain_quality):
    rng = np.random.default_rng(seed)
    n = 20
    costs = np.array([1.0, 2.0, 4.0])
    prices = np.array([0.3, 0.1, 0.0])
    states = any_order(3, 3)
    realised = [rng.random((n, row.sum())) for row in states.asked]
    outcomes = learn_values(
        states, realised, costs, prices, Oracle(), abstain_quality=abstain_quality
    )
    set_costs = states.asked @ costs
    best = [table.max(axis=1, initial=-np.inf) for table in realised]
    if abstain_quality is not None:
        # In the first state, in which nothing has been asked, no row may abstain.
        for state in range(1, len(best)):
            best[state] = np.maximum(best[state], abstain_quality)
    for state, asked in enumerate(states.asked):
        after = outcomes[state]
        reachable = np.flatnonzero((states.asked >= asked).all(axis=1))
        for position, price in enumerate(prices):
            net = []
            for end in reachable:
                further_cost = set_costs[end] - set_costs[state]
                net.append(best[end] - price * further_cost)
            further_cost = after.cost[:, position]
            value = after.quality[:, position] - price * further_cost
            np.testing.assert_allclose(value, np.max(net, axis=0))


def test_what_is_not_reached_is_not_learned():
    states = any_order(2, 2)
    learner = Recorder(lambda targets: targets)
    realised = [np.ones((5, row.sum())) for row in states.asked]
    outcomes = learn_values(
        states, realised, np.ones(2), np.array([0.0]), learner, reached=[1, 3]
    )
    assert list(learner.targets) == [3, 1]
    assert sorted(outcomes) == [1, 3]


def test_where_nothing_is_to_be_decided_rows_get_the_only_answer():
    states = any_order(2, 1)
    prices = np.array([0.5, 0.0])
    realised = [np.empty((2, 0)), np.array([[1.0], [0.0]]), np.array([[1.0], [1.0]])]
    learner = Recorder(lambda targets: 1 - targets)
    outcomes = learn_values(
        states, realised, np.ones(2), prices, learner, reached=[1, 2]
    )
    for state in (1, 2):
        np.testing.assert_array_equal(
            outcomes[state].quality, np.repeat(realised[state], 2, axis=1)
        )
        assert not outcomes[state].cost.any()


def test_trust_mixes_what_is_estimated_with_what_came_of_it():
    """Estimates of 1 for a state whose outcomes are 0: half of either, at a trust of a half."""
    states = fixed_order(2, (0, 1))
    learner = Recorder(np.ones_like)
    realised = [np.empty((3, 0)), np.zeros((3, 1)), np.zeros((3, 1))]
    learn_values(states, realised, np.zeros(2), np.zeros(1), learner, trust=0.5)
    np.testing.assert_allclose(learner.targets[1], [[0.0, 0.5]] * 3)


@pytest.mark.parametrize("abstain_quality", [None, 0.55])
def test_where_signals_tell_all_the_best_plan_of_each_row_is_found(abstain_quality):
    """The signals say whether the answers are right; values by brute force."""
    rng = np.random.default_rng(0)
    Q = (rng.uniform(size=(3000, 3)) < [0.3, 0.6, 0.9]).astype(float)
    log = as_log(
        Q, Q + 1e-3 * rng.normal(size=Q.shape), abstain_quality=abstain_quality
    )
    prices = np.array([0.2, 0.02, 0.005])
    quality, cost = play(any_order(3, 3), log, prices)
    gains = (quality - prices * cost).mean(axis=0)
    mean = Q.mean(axis=0)
    costs = np.array(list(COSTS.values()))

    def best(asked, price):
        """Value of a state in which all of `asked` are wrong, answers independent."""
        values = []
        if asked:
            values.append(0.0 if abstain_quality is None else abstain_quality)
        for k in range(3):
            if k not in asked:
                later = (1 - mean[k]) * best((*asked, k), price)
                values.append(mean[k] + later - price * costs[k])
        return max(values)

    for price, value in zip(prices, gains):
        assert value == pytest.approx(best((), price), abs=0.02)


def test_a_fixed_order_asks_in_turn_and_the_last_one_answers():
    Q, S, _ = log_of()
    log = as_log(Q, S)
    quality, cost = play(fixed_order(3, (0, 2)), log, np.array([1e6, 0.01, 0.0]))
    np.testing.assert_array_equal(quality[:, 0], Q[:, 0])
    np.testing.assert_array_equal(cost[:, 0], 1.0)
    went = cost[:, 1] > 1
    np.testing.assert_array_equal(quality[went, 1], Q[went, 2])
    np.testing.assert_array_equal(quality[~went, 1], Q[~went, 0])
    assert 0.1 < went.mean() < 0.9
    # A threshold on the own confidence, as FrugalGPT has it.
    assert S[went, 0].max() <= S[~went, 0].min() + 1e-9


def test_of_equals_the_simplest_is_taken_and_a_clear_winner_always():
    rng = np.random.default_rng(0)
    base = rng.uniform(size=400)
    near = base + 0.0005 + 0.1 * rng.permutation(np.linspace(-1, 1, 400))
    clear = base + 0.2
    assert choose_simple(np.array([near, base]), np.array([2, 1])) == 1
    assert choose_simple(np.array([clear, base]), np.array([2, 1])) == 0
    assert choose_simple(np.array([base, base + 1e-9]), np.array([2, 1])) == 1
    assert choose_simple(np.array([base, base]), np.array([2, 1])) == 1


def test_the_rows_that_pick_do_not_judge():
    """A hundred policies of pure noise: the winner's own figure is far off, the honest is not."""
    picked = []
    honest = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        quality = (rng.uniform(size=(100, 100)) < 0.5).astype(float)
        chosen, judged = choose_and_judge(
            quality, quality, np.zeros(100), np.arange(100) % 5
        )
        picked.append(quality[chosen].mean())
        honest.append(judged.mean())
    assert np.mean(picked) > 0.6
    assert np.mean(honest) == pytest.approx(0.5, abs=4 * np.std(honest) / np.sqrt(40))


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


def test_only_what_is_paid_for_is_read(router):
    """Signals of models that a row does not ask may be anything."""
    Q, S, _ = log_of(n=500, seed=3)
    y_pred, route, cost = router.predict_routed(None, signals=S)
    asked = router.models_asked(None, signals=S)
    hidden = np.where(
        asked, S, np.random.default_rng(0).choice([np.nan, 1e9, -np.inf], S.shape)
    )
    np.testing.assert_array_equal(router.route(None, signals=hidden), route)
    np.testing.assert_allclose(cost, asked @ list(COSTS.values()))
    assert asked[np.arange(500), route].all()
    np.testing.assert_array_equal(y_pred, np.array(NAMES)[route])
    costs = np.random.default_rng(0).uniform(size=(500, 3))
    paid = router.predict_cost(None, signals=S, costs=costs)
    np.testing.assert_allclose(paid, (costs * asked).sum(axis=1))


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
    with pytest.raises(ValueError, match="x must be None: fit got no X"):
        router.start([1.0, 2.0])
    run = router.start(budget=router.min_budget_)
    before = run.next
    with pytest.raises(ValueError, match="model must be one of"):
        run.observe("nobody", signals=0.0)
    with pytest.raises(ValueError, match="columns that fit saw"):
        run.observe(before, signals=[0.0, 1.0])
    with pytest.raises(ValueError, match="cost"):
        run.observe(before, signals=0.0, cost=-1)
    assert (
        run.next == before and run.asked == [] and run.cost == 0 and run.answer is None
    )
    run.observe(before, signals=0.0, cost=3.5)
    assert run.cost == 3.5
    again = pickle.loads(pickle.dumps(run))
    assert again.answer == run.answer


def test_abstaining_is_a_choice():
    Q, S, _ = log_of(n=800)
    router = CascadeRouter(costs=COSTS, abstain_cost=0.15).fit(
        None, Q, signals=S[:, :, None]
    )
    assert router.choices_ == [*NAMES, "abstain"]
    new, signals, _ = log_of(n=2000, seed=9)
    y_pred, route, _ = router.predict_routed(None, signals=signals)
    abstains = y_pred == "abstain"
    np.testing.assert_array_equal(abstains, route == 3)
    assert 0.05 < abstains.mean() < 0.9
    answered = np.flatnonzero(~abstains)
    realised = new[answered, route[answered]]
    # What is answered is right more often than not abstaining is worth.
    assert realised.mean() > 0.85
    expected = (realised.sum() + 0.85 * abstains.sum()) / 2000
    assert router.score(None, new, signals=signals) == pytest.approx(expected)
    curve = accuracy_cost_curve(router, None, new, [np.inf], signals=signals)
    assert curve.quality[0] == pytest.approx(expected)
    never = CascadeRouter(costs=COSTS, abstain_cost=5).fit(
        None, Q, signals=S[:, :, None]
    )
    assert not (never.predict(None, signals=signals) == "abstain").any()
    quality = never.predict_quality(None, signals=signals)
    right = new[np.arange(2000), never.route(None, signals=signals)]
    assert (
        right[quality > np.median(quality)].mean()
        > right[quality <= np.median(quality)].mean()
    )


def test_what_is_known_before_is_used():
    Q, S, hard = log_of(n=1500, noise=50)
    router = CascadeRouter(Ridge(), costs=COSTS, budget=8).fit(
        hard, Q, signals=S[:, :, None]
    )
    new, signals, hard = log_of(n=2000, seed=2, noise=50)
    score = router.score(hard, new, signals=signals)
    cost = router.predict_cost(hard, signals=signals).mean()
    assert score > np.interp(cost, list(COSTS.values()), new.mean(axis=0)) + 0.02
    run = router.start(hard[0])
    assert router.start(hard[:1]).next == run.next in NAMES
    while run.next is not None:
        run.observe(run.next, signals=signals[0, NAMES.index(run.next)])
    assert run.answer in NAMES
    with pytest.raises(ValueError, match="x must be one row, got a table of 2"):
        router.start(hard[:2])


@pytest.mark.parametrize("scale, shift", [(100.0, 0.0), (0.5, -3.0)])
def test_quality_has_any_unit(router, scale, shift):
    Q, S, _ = log_of()
    signals = dict(zip(NAMES, S.T))
    other = CascadeRouter(costs=COSTS, budget=8).fit(
        None, scale * Q + shift, signals=signals
    )
    np.testing.assert_array_equal(
        other.predict(None, signals=S), router.predict(None, signals=S)
    )
    np.testing.assert_allclose(
        other.mixture_.quality, scale * router.mixture_.quality + shift
    )
    quality, expected = (r.predict_quality(None, signals=S) for r in (other, router))
    np.testing.assert_allclose(quality, scale * expected + shift)


def test_order_of_models_does_not_matter_but_order_given_does():
    Q, S, _ = log_of()
    permutation = [2, 0, 1]
    costs = [list(COSTS.values())[k] for k in permutation]
    router = CascadeRouter(costs=COSTS, budget=8).fit(None, Q, signals=S[:, :, None])
    other = CascadeRouter(
        costs=dict(zip([NAMES[k] for k in permutation], costs)), budget=8
    )
    other.fit(None, Q[:, permutation], signals=S[:, permutation, None])
    np.testing.assert_array_equal(
        router.predict(None, signals=S), other.predict(None, signals=S[:, permutation])
    )
    fixed = CascadeRouter(costs=COSTS, order=["middle", "large"]).fit(
        None, Q, signals=S
    )
    assert fixed.min_budget_ == 4.0
    assert set(fixed.rule_names_) == {"middle > large"}
    asked = fixed.models_asked(None, signals=S)
    assert asked[:, 1].all() and not asked[:, 0].any()


@pytest.mark.parametrize(
    "options, arguments, message",
    [
        ({"costs": None}, {}, "costs must say what each"),
        ({"order": ["small", "small"]}, {}, "order must name some of the models"),
        (
            {"cv": [(np.arange(150), np.arange(150, 300))]},
            {},
            "must test each row once",
        ),
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


def test_what_calls_and_frames_may_not_say(router):
    Q, S, _ = log_of()
    X = np.zeros((300, 1))
    frame = pd.DataFrame(S, columns=NAMES)
    twice = frame.set_axis(["small", "small", "large"], axis=1)
    for arguments, message in [
        ({"signals": {"small": S[:, 0]}}, "has nothing of"),
        (
            {"signals": frame.assign(nobody=1.0)},
            r"entries for \['nobody'\], which are not among",
        ),
        ({"signals": twice}, "two columns of the same name"),
        ({"signals": S[:20]}, "must have shape \\(300,\\)"),
        (
            {"signals": S, "costs": np.ones((300, 2))},
            "one cost for each row and choice",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            router.predict(X, **arguments)
    with pytest.raises(ValueError, match="signals must say"):
        router.predict(None)
    router_of_large = CascadeRouter(costs=COSTS).fit(None, Q, signals=frame[["large"]])
    assert router_of_large.predict(None, signals=frame[["large"]]).shape == (300,)
    with pytest.raises(ValueError, match="not among the models"):
        CascadeRouter(costs=list(COSTS.values())).fit(None, Q, signals=frame)


def test_costs_per_row_are_counted_as_they_were():
    Q, S, _ = log_of()
    costs = np.random.default_rng(0).lognormal(size=(300, 3)) * list(COSTS.values())
    router = CascadeRouter().fit(None, Q, costs=costs, signals=S)
    np.testing.assert_allclose(router.costs_, costs.mean(axis=0))
    assert router.choices_ == ["choice0", "choice1", "choice2"]
    alone = CascadeRouter(order=["choice0"]).fit(None, Q, costs=costs, signals=S)
    assert alone.validation_cost_ == pytest.approx(costs[:, 0].mean())
    assert alone.predict(None, signals=S).tolist() == [0] * 300


FRAMES = {
    "pandas": pd.DataFrame,
    "strings": lambda columns: pd.DataFrame(columns, index=list(map(str, range(300)))),
    "nullable": lambda columns: pd.DataFrame(columns).astype("Float64"),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}


@settings(max_examples=10, deadline=None)
@given(st.permutations(NAMES), st.permutations(NAMES), st.sampled_from(sorted(FRAMES)))
def test_signals_of_a_frame_are_found_by_name(of_fit, of_call, library):
    Q, S, _ = log_of()
    S[::9, 1] = np.nan
    columns = dict(zip(NAMES, S.T))
    expected = CascadeRouter(costs=COSTS, budget=8, n_prices=3, max_calls=2, cv=2)
    router = clone(expected)
    router.fit(
        None, Q, signals=FRAMES[library]({name: columns[name] for name in of_fit})
    )
    answers = expected.fit(None, Q, signals=columns).predict(None, signals=columns)
    frame = FRAMES[library]({name: columns[name] for name in of_call})
    np.testing.assert_array_equal(router.predict(None, signals=frame), answers)


def test_columns_of_one_model_are_found_by_name():
    Q, S, _ = log_of()
    two = pd.DataFrame(
        {"sure": S[:, 0], "noise": np.random.default_rng(0).normal(size=300)}
    )
    router = CascadeRouter(costs=COSTS, order=["small", "large"], budget=8)
    router = router.fit(None, Q, signals={"small": two})
    turned = two[["noise", "sure"]]
    expected = router.predict(None, signals={"small": two})
    assert len(set(expected)) == 2
    np.testing.assert_array_equal(
        router.predict(None, signals={"small": turned}), expected
    )
    run = router.start(budget=np.inf)
    other = router.start(budget=np.inf)
    run.observe("small", two.iloc[[3]])
    other.observe("small", turned.iloc[[3]])
    assert run.quality == other.quality
    with pytest.raises(ValueError, match="must have the columns"):
        router.predict(None, signals={"small": two.rename(columns={"sure": "shy"})})


def test_rows_asked_one_by_one_hold_the_budget_by_their_ids(router):
    _, S, _ = log_of(n=1000, seed=8)
    # Between two rules that cost clearly different amounts.
    gap = int(np.diff(router.mixture_.cost).argmax())
    budget = router.mixture_.cost[gap : gap + 2].mean()
    ids = np.array([f"request {i}" for i in range(1000)])
    batch = router.predict_cost(None, signals=S, budget=budget, request_id=ids)
    single = [
        router.predict_cost(None, signals=S[[i]], budget=budget, request_id=ids[[i]])[0]
        for i in range(1000)
    ]
    np.testing.assert_array_equal(single, batch)
    error = 4 * np.std(single) / np.sqrt(1000)
    low, high, share = router.mixture_.share(budget)
    low_cost, high_cost = [
        router.predict_cost(None, signals=S, budget=router.mixture_.cost[rule]).mean()
        for rule in (low, high)
    ]
    assert np.mean(single) == pytest.approx(
        (1 - share) * low_cost + share * high_cost, abs=error
    )
    # Without ids the position stands for the row: a single one always has the first.
    first = {router.predict(None, signals=S[[0]], budget=budget)[0] for _ in range(3)}
    assert len(first) == 1
    with pytest.raises(
        ValueError, match="request_id must have one entry for each of 1000"
    ):
        router.predict(None, signals=S, request_id=ids[:3])


@pytest.mark.slow
def test_standard_errors_are_those_over_fresh_logs():
    """The spread of the validated numbers of a fixed rule from log to log."""
    figures = []
    prices = np.array(list(COSTS.values()))
    for seed in range(60):
        Q, S, _ = log_of(n=200, seed=seed)
        router = CascadeRouter(costs=COSTS, order=["small", "large"], n_prices=2)
        router = router.fit(None, Q, signals=S)
        costs = np.random.default_rng(seed).lognormal(size=(200, 3)) * prices
        alone = CascadeRouter(order=["choice1"], n_prices=2).fit(
            None, Q, signals=S, costs=costs
        )
        figures.append(
            [
                router.validation_quality_,
                alone.validation_cost_,
                router.validation_quality_se_,
                alone.validation_cost_se_,
            ]
        )
    quality, cost, quality_se, cost_se = np.array(figures).T
    assert quality.std(ddof=1) == pytest.approx(quality_se.mean(), rel=0.35)
    assert cost.std(ddof=1) == pytest.approx(cost_se.mean(), rel=0.35)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 14), st.integers(0, 100), st.booleans())
def test_no_model_of_a_training_row_saw_that_row_or_the_judged_fold(n_folds, seed, gap):
    n = 30
    parts = np.array_split(np.random.default_rng(seed).permutation(n), n_folds)
    folds = [(np.setdiff1d(np.arange(n), test), np.sort(test)) for test in parts]
    if gap and n_folds > 3:
        folds = [(train[:-1], test) for train, test in folds]
    X = np.arange(n)[:, None]
    Q = np.zeros((n, 2))
    within = estimates_without_folds(Seen(), X, Q, folds, name="seen")
    for (train, test), estimates in zip(folds, within):
        assert estimates.shape == (len(train), 2) and np.isfinite(estimates).all()
        for row, (number, _) in zip(train, estimates):
            seen = SEEN[int(number)]
            assert len(seen) and row not in seen and not set(seen) & set(test)
            assert set(seen) <= set(train)


SEEN: list[list[int]] = []


class Seen(RegressorMixin, BaseEstimator):
    """Predicts which fit it is; what that fit saw stands in `SEEN`."""

    def fit(self, X, y):
        SEEN.append(X[:, 0].tolist())
        self.number_ = len(SEEN) - 1
        return self

    def predict(self, X):
        return np.full((len(X), 2), float(self.number_))
