"""PromiseMonitor: no false alarms over time, real ones soon, whatever the pieces it is fed in."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skroute.certified import ChoicePromise, PromiseMonitor
from skroute.certified._monitor import _COST_BETS, _LOSS_BETS


def first_alarm(values, promised, bets, threshold):
    """The mixture of fixed bets, as the formula says it; 0 is none."""
    capital = np.ones(len(bets)) / len(bets)
    for t, value in enumerate(values, 1):
        capital = capital * (1 + bets * (value - promised))
        if capital.sum() >= threshold:
            return t
    return 0


@given(seed=st.integers(0, 10**6), pieces=st.lists(st.integers(1, 60), min_size=1, max_size=30))
@settings(deadline=None, max_examples=30)
def test_alarms_are_those_of_the_formula_in_any_pieces(seed, pieces):
    rng = np.random.default_rng(seed)
    costs = rng.exponential(2.0, sum(pieces))
    monitor = PromiseMonitor(budget=1.0)
    for part in np.split(costs, np.cumsum(pieces)[:-1]):
        monitor.update(cost=part)
    one_by_one = PromiseMonitor(budget=1.0)
    for cost in costs:
        one_by_one.update(cost=float(cost))
    expected = first_alarm(np.minimum(costs, 10), 1.0, _COST_BETS, 20)
    for fed in (monitor, one_by_one):
        assert (fed.alarm_.row if fed.alarm_ else 0) == expected
    losses = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.5, 0.4], size=sum(pieces))
    watch = PromiseMonitor(max_loss=0.05)
    for loss in losses:
        watch.update(cost=1.0, loss=loss)
    expected = first_alarm(losses, 0.05, _LOSS_BETS / 1.05, 20)
    assert (watch.alarm_.row if watch.alarm_ else 0) == expected
    assert watch.n_rows_ == watch.n_audited_ == len(losses)


@given(seed=st.integers(0, 10**6), fed=st.sampled_from(["whole", "pieces", "single"]))
@settings(deadline=None, max_examples=20)
def test_an_alarm_has_the_mean_up_to_its_row(seed, fed):
    costs = np.random.default_rng(seed).exponential(2.0, 400)
    monitor = PromiseMonitor(budget=1.0)
    for part in {"whole": [costs], "pieces": np.split(costs, 8), "single": costs.tolist()}[fed]:
        monitor.update(cost=part)
    if monitor.alarm_ is not None:
        assert monitor.alarm_.mean == pytest.approx(costs[: monitor.alarm_.row].mean())


@pytest.mark.parametrize("of_all", [{}, {"budget": 4.0}, {"budget": 4.0, "max_loss": 0.1}])
@pytest.mark.parametrize("choices", [None, {"a": (0.1, None)}, {"a": (0.1, 1.0), "b": (0.1, 9.0)}])
def test_all_promises_share_the_false_alarm_rate(of_all, choices):
    """Each is broken falsely with a probability of exp(-threshold): together no more than asked."""
    if not of_all and choices is None:
        return
    named = None if choices is None else {k: ChoicePromise(*v) for k, v in choices.items()}
    monitor = PromiseMonitor(choices=named, false_alarm=0.07, **of_all)
    shares = [np.exp(-b.threshold) for some in monitor._bettors.values() for b in some]
    assert sum(shares) == pytest.approx(0.07)


def test_false_alarms_over_all_time_and_a_peeking_test_is_seen_to_fail():
    rng = np.random.default_rng(0)
    n_streams, n_rows, level = 300, 3000, 0.1
    alarms = peeking = 0
    for _ in range(n_streams):
        monitor = PromiseMonitor(budget=1.0, max_loss=0.0, false_alarm=level, max_cost=1e9)
        costs = rng.exponential(1.0, n_rows)
        losses = rng.choice([-1.0, 0, 1], p=[0.1, 0.8, 0.1], size=n_rows // 10)
        alarms += monitor.update(cost=costs, loss=losses) is not None
        # The mutation: a test at a fixed time, looked at after every row.
        times = np.arange(1, n_rows + 1)
        peeking += (costs.cumsum() / times > 1 + stats.norm.isf(level) / np.sqrt(times))[50:].any()
    assert alarms <= stats.binom.ppf(0.99, n_streams, level)
    assert peeking > stats.binom.ppf(0.99, n_streams, level)


def test_broken_promises_are_noticed_and_told_apart():
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(100):
        monitor = PromiseMonitor(budget=1.0, max_loss=0.02)
        good = rng.choice([0.0, 1.0], p=[0.99, 0.01], size=200)
        alarm = monitor.update(cost=rng.exponential(1.2, 4000), loss=good)
        assert alarm.kind == "cost" and alarm.promised == 1.0 and alarm.mean > 1
        rows.append(alarm.row)
    assert np.quantile(rows, 0.95) < 1200
    monitor = PromiseMonitor(budget=1.0, max_loss=0.02)
    alarm = monitor.update(cost=np.full(5000, 0.9), loss=rng.random(300) < 0.2)
    assert alarm.kind == "loss" and alarm.mean > 0.1


def test_losses_alone_are_rows_and_late_ones_are_not():
    alone = PromiseMonitor(max_loss=0.1)
    alarm = alone.update(loss=np.full(500, 0.5))
    assert alone.n_rows_ == 500 and 1 < alarm.row < 100
    late = PromiseMonitor(max_loss=0.1)
    late.update(cost=np.ones(1000))
    assert late.update(loss=np.full(50, 0.9)).row == late.n_rows_ == 1000


def test_audits_are_drawn_at_the_rate():
    monitor = PromiseMonitor(max_loss=0.1, audit_rate=0.02, random_state=0)
    drawn = monitor.audit(100_000)
    assert drawn.dtype == bool and abs(drawn.mean() - 0.02) < 0.002
    again = PromiseMonitor(max_loss=0.1, audit_rate=0.02, random_state=0).audit(100_000)
    np.testing.assert_array_equal(drawn, again)
    assert PromiseMonitor(max_loss=0.1, audit_rate=1.0).audit().tolist() == [True]


def test_a_monitor_pickles_and_resets():
    rng = np.random.default_rng(2)
    costs = rng.exponential(1.3, 600)
    whole = PromiseMonitor(budget=1.0)
    whole.update(cost=costs)
    first = PromiseMonitor(budget=1.0)
    first.update(cost=costs[:100])
    copied = pickle.loads(pickle.dumps(first))
    copied.update(cost=costs[100:])
    assert copied.alarm_[:2] == whole.alarm_[:2]
    np.testing.assert_allclose(copied.alarm_.mean, whole.alarm_.mean)
    before = whole.alarm_
    assert whole.update(cost=costs) is before
    whole.reset()
    assert whole.alarm_ is None and whole.n_rows_ == 0


def test_threads_lose_nothing():
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)

    def feed():
        for _ in range(300):
            monitor.update(cost=0.5, loss=0.0)

    threads = [threading.Thread(target=feed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one = PromiseMonitor(budget=1.0, max_loss=0.1)
    one.update(cost=np.full(1200, 0.5), loss=np.zeros(1200))
    assert monitor.n_rows_ == monitor.n_audited_ == 1200
    for fed, expected in zip(monitor._bettors[None], one._bettors[None]):
        np.testing.assert_allclose(fed.wealth, expected.wealth)


def test_picture_is_bounded():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = PromiseMonitor(budget=1.0)
    for _ in range(2500):
        monitor.update(cost=[1.0])
    assert len(monitor._history) <= 2000
    # The latest point is kept when every second one goes.
    at_half = PromiseMonitor(budget=1.0)
    for _ in range(2001):
        at_half.update(cost=[1.5])
    assert at_half._history[-1][0] in (2000, 2001) and len(at_half._history) == 1000
    axes = monitor.plot()
    assert len(axes.get_lines()) == 2
    bettor = monitor._bettors[None][0]
    above = (bettor.capital() - bettor.threshold) / np.log(10)
    assert axes.get_lines()[0].get_ydata()[-1] == pytest.approx(above, abs=0.01)
    pyplot.close(axes.figure)


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "nothing to watch"),
        ({"max_loss": 1.0}, "never, or always, broken"),
        ({"budget": 1.0, "max_cost": 0.5}, "must be above budget"),
        ({"budget": 0}, "budget"),
        ({"budget": 1.0, "audit_rate": 0}, "audit_rate"),
    ],
)
def test_bad_promises_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PromiseMonitor(**options)


@pytest.mark.parametrize(
    "fed, message",
    [
        ({"cost": -1}, "cost must not be negative"),
        ({"cost": np.nan}, "cost must be a finite number"),
        ({"loss": 1.5}, "loss must be within loss_range"),
        ({"cost": [[1.0]]}, "one per row"),
        ({"cost": 10**400}, "cost must be a finite number"),
        ({"cost": np.ma.masked_array([1.0, 2.0], [0, 1])}, "some are masked"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(fed, message):
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)
    with pytest.raises(ValueError, match=message):
        monitor.update(**fed)
    assert monitor.n_rows_ == 0 and monitor._bettors[None][0].capital() == pytest.approx(0)


# Which choice -----------------------------------------------------------------------------

OF_CHOICES = {"small": ChoicePromise(0.1, 1.0), "large": ChoicePromise(0.05, 10.0)}


def requests(rng, n, small=1.0, large=10.0, wrong=0.08):
    """Routes, costs and losses (NaN where not audited) as promised, unless told otherwise."""
    route = (rng.random(n) < 0.3).astype(int)
    cost = rng.exponential(np.where(route == 0, 0.9 * small, 0.9 * large))
    loss = (rng.random(n) < np.where(route == 0, wrong, 0.02)).astype(float)
    return {"route": route, "cost": cost, "loss": np.where(rng.random(n) < 0.2, loss, np.nan)}


@pytest.mark.parametrize(
    "changed, kind, choice",
    [
        ({"small": 1.6}, "cost", "small"),
        ({"large": 13}, "cost", "large"),
        ({"wrong": 0.3}, "loss", "small"),
    ],
)
def test_an_alarm_names_the_choice_that_it_is_about(changed, kind, choice):
    rng = np.random.default_rng(0)
    monitor = PromiseMonitor(budget=4.0, max_loss=0.1, choices=OF_CHOICES)
    assert monitor.update(**requests(rng, 3000)) is None
    monitor.update(**requests(rng, 6000, **changed))
    named = [alarm for alarm in monitor.alarms_ if alarm.choice is not None]
    assert {(alarm.kind, alarm.choice) for alarm in named} == {(kind, choice)}
    assert named[0].mean > named[0].promised and named[0].row > 3000
    assert monitor.alarm_ == monitor.alarms_[0]


def test_a_choice_can_break_its_promise_while_the_whole_keeps_its_own():
    rng = np.random.default_rng(1)
    monitor = PromiseMonitor(budget=9.0, choices=OF_CHOICES)
    alarm = monitor.update(**requests(rng, 4000, small=2.0))
    assert (alarm.kind, alarm.choice) == ("cost", "small") and len(monitor.alarms_) == 1


def test_false_alarms_are_shared_by_all_promises():
    rng = np.random.default_rng(2)
    level, n_streams, alarms = 0.2, 200, 0
    exact = {"small": ChoicePromise(0.1, 1.0), "large": ChoicePromise(0.1, 10.0)}
    for _ in range(n_streams):
        route = (rng.random(2000) < 0.3).astype(int)
        cost = rng.exponential(np.where(route == 0, 1.0, 10.0))
        loss = (rng.random(2000) < 0.1).astype(float)
        monitor = PromiseMonitor(
            budget=3.7, max_loss=0.1, choices=exact, false_alarm=level, max_cost=1e9
        )
        alarms += monitor.update(route=route, cost=cost, loss=loss) is not None
    assert alarms <= stats.binom.ppf(0.99, n_streams, level)


@given(seed=st.integers(0, 10**6), pieces=st.lists(st.integers(1, 40), min_size=1, max_size=20))
@settings(deadline=None, max_examples=25)
def test_pieces_pickles_and_single_rows_say_the_same(seed, pieces):
    rng = np.random.default_rng(seed)
    rows = requests(rng, sum(pieces), small=2.0, wrong=0.5)
    whole, parts, single = (
        PromiseMonitor(budget=3.0, max_loss=0.1, choices=OF_CHOICES) for _ in range(3)
    )
    whole.update(**rows)
    for cut in np.split(np.arange(sum(pieces)), np.cumsum(pieces)[:-1]):
        parts.update(**{name: values[cut] for name, values in rows.items()})
        parts = pickle.loads(pickle.dumps(parts))
    for route, cost, loss in zip(rows["route"], rows["cost"], rows["loss"]):
        if np.isnan(loss):
            single.update(cost=float(cost), route=int(route))
        else:
            single.update(cost=float(cost), route=int(route), loss=float(loss))
    for other in (parts, single):
        assert [a[:2] + a[4:] for a in other.alarms_] == [a[:2] + a[4:] for a in whole.alarms_]
        assert other.n_audited_ == whole.n_audited_ and other.n_rows_ == whole.n_rows_
        for name, bettors in whole._bettors.items():
            for mine, its in zip(bettors, other._bettors[name]):
                np.testing.assert_allclose(mine.wealth, its.wealth, rtol=1e-9, atol=1e-9)


def test_threads_pictures_and_pickles_at_once():
    """Copies and pictures that are made while others feed are of one moment."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = PromiseMonitor(budget=1.0, choices={"a": ChoicePromise(None, 1.0)})
    failures = []

    def feed():
        for _ in range(200):
            monitor.update(cost=[0.5, 0.5], route=[0, 0])

    def look():
        try:
            for _ in range(20):
                copied = pickle.loads(pickle.dumps(monitor))
                counts = {b.n for some in copied._bettors.values() for b in some}
                assert counts == {copied.n_rows_}
                monitor.audit(3)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for run in (feed, feed, look, look)]
    for thread in threads:
        thread.start()
    axes = monitor.plot()
    for thread in threads:
        thread.join()
    assert not failures and monitor.n_rows_ == 800
    labels = [line.get_label() for line in axes.get_lines()[:2]]
    assert labels == ["cost", "cost of a"]
    pyplot.close(axes.figure)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"choices": {"a": 1.0}}, "choices must be a mapping"),
        ({"choices": {0: ChoicePromise(0.1)}}, "choices must be a mapping"),
        ({"choices": {"a": ChoicePromise()}}, "nothing to watch"),
        ({"choices": {"a": ChoicePromise(1.0)}}, "max_loss of 'a'=1.0 must lie between"),
        ({"choices": {"a": ChoicePromise(None, 0.0)}}, "budget of 'a' must be above 0"),
        ({"choices": {"a": ChoicePromise(np.nan)}}, "max_loss of 'a' must be a finite number"),
        ({"choices": {"a": ChoicePromise("x")}}, "max_loss of 'a' must be a finite number"),
        ({"choices": ["a"]}, "choices"),
        ({"max_loss": np.nan}, "max_loss must be a finite number"),
        ({"budget": np.inf}, "budget"),
    ],
)
def test_bad_promises_of_choices_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PromiseMonitor(**options)


@pytest.mark.parametrize(
    "fed, message",
    [
        ({"cost": [1.0]}, "route must be given"),
        ({"cost": 1.0}, "route must be given"),
        ({"loss": [0.1]}, "route must be given"),
        ({"cost": [1.0], "route": [2]}, "one index into choices"),
        ({"cost": 1.0, "route": -1}, "one index into choices"),
        ({"cost": [1.0], "route": [0.5]}, "one index into choices"),
        ({"cost": [1.0], "route": ["small"]}, "one index into choices"),
        ({"cost": [1.0, 2.0], "route": [0]}, "one entry per row, as route"),
        ({"cost": [1.0, 2.0], "route": [0, 0], "loss": [0.0]}, "one entry per row, as route"),
        ({"cost": ["1"], "route": [0]}, "cost must be a finite number"),
        ({"cost": [1 + 1j], "route": [0]}, "cost must be a finite number"),
        ({"cost": [None], "route": [0]}, "cost must be a finite number"),
    ],
)
def test_bad_routes_are_refused_and_change_nothing(fed, message):
    monitor = PromiseMonitor(budget=1.0, choices=OF_CHOICES)
    with pytest.raises(ValueError, match=message):
        monitor.update(**fed)
    assert monitor.n_rows_ == 0
    with pytest.raises(ValueError, match="only where it has one entry per row"):
        PromiseMonitor(max_loss=0.1).update(loss=[0.0, np.nan])


@pytest.mark.parametrize("kinds", [{"max_loss"}, {"budget"}, {"max_loss", "budget"}])
def test_choices_alone_are_watched(kinds):
    """With no promise about all rows, all of the false alarm rate is for the choices."""
    promises = {"max_loss": 0.2, "budget": 1.0}
    promise = ChoicePromise(**{kind: promises[kind] for kind in kinds})
    false, n_draws = 0, 200
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        monitor = PromiseMonitor(choices={"a": promise, "b": promise})
        cost, loss = rng.exponential(1.0, 400), (rng.random(400) < 0.2).astype(float)
        route = rng.integers(0, 2, 400)
        false += monitor.update(cost=cost, loss=loss, route=route) is not None
        broken = monitor.update(cost=np.full(4000, 1.5), loss=np.full(4000, 0.9), route=[1] * 4000)
        assert broken.choice in ("a", "b")
    # 200 draws, at most .05 each: above 21 once in a thousand.
    assert false <= 21


def test_rows_are_counted_by_their_routes_where_only_losses_are_watched():
    monitor = PromiseMonitor(choices={"a": ChoicePromise(0.1), "b": ChoicePromise(0.1)})
    loss = np.full(100, np.nan)
    loss[[30, 60, 90]] = 1.0
    monitor.update(loss=loss, route=np.zeros(100, dtype=int))
    assert (monitor.n_rows_, monitor.n_audited_) == (100, 3)
    assert monitor.update(loss=[1.0] * 30, route=[0] * 30).row > 100


@pytest.mark.parametrize("seed", range(20))
def test_costs_and_losses_may_come_apart_with_their_routes(seed):
    """Losses, or routes, without costs ended in an IndexError and were half counted."""
    rng = np.random.default_rng(seed)
    kinds = {"a": ChoicePromise(0.2, 1.0), "b": ChoicePromise(0.2), "c": ChoicePromise(budget=1.0)}
    apart = PromiseMonitor(max_loss=0.3, budget=2.0, choices=kinds)
    together = PromiseMonitor(max_loss=0.3, budget=2.0, choices=kinds)
    n = int(rng.integers(1, 200))
    cost, loss = rng.exponential(1.0, n), (rng.random(n) < 0.3).astype(float)
    route = rng.integers(3, size=n)
    together.update(cost=cost, loss=loss, route=route)
    for fed in ({"loss": loss}, {"cost": cost}, {}):
        apart.update(route=route, **fed)
    assert [(a.kind, a.choice, a.mean) for a in together.alarms_] == [
        (a.kind, a.choice, a.mean) for a in sorted(apart.alarms_, key=lambda a: (a.row - 1) % n)
    ]
    assert (apart.n_rows_, apart.n_audited_) == (3 * n, n)


@pytest.mark.parametrize("max_cost", [None, 1e9])
def test_what_is_far_beyond_a_budget_is_noticed_within_rows(max_cost):
    """The largest bet is half of what may be bet: its capital grows by half with each such row."""
    monitor = PromiseMonitor(budget=1.0, max_cost=max_cost)
    assert monitor.update(cost=np.full(100, 2.0)).row <= np.ceil(np.log(8 * 20) / np.log(1.5))
