"""PromiseMonitor: no false alarms over time, real ones soon, whatever the pieces it is fed in."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skroute.certified import PromiseMonitor
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
    axes = monitor.plot()
    assert len(axes.get_lines()) == 2
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
    ],
)
def test_bad_rows_are_refused_and_change_nothing(fed, message):
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)
    with pytest.raises(ValueError, match=message):
        monitor.update(**fed)
    assert monitor.n_rows_ == 0 and monitor._bettors[None][0].capital() == pytest.approx(0)
