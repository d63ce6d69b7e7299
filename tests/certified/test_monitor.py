"""PromiseMonitor: few false alarms over all time, real ones soon, in any pieces."""

import pickle
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skroute.certified import PromiseMonitor
from skroute.certified._monitor import _COST_BETS, _LOSS_BETS, _RESTART_INTERVAL
from tests.guarantees.reference import money


@given(
    seed=st.integers(0, 10**6),
    before=st.sampled_from([0, 300, 700]),
    pieces=st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=15)
def test_alarms_are_those_of_the_definition_in_any_pieces(seed, before, pieces):
    rng = np.random.default_rng(seed)
    n = before + sum(pieces)
    costs = np.r_[np.full(before, 0.9), rng.exponential(2.0, sum(pieces))]
    monitor = PromiseMonitor(budget=1.0)
    for piece in np.split(costs, before + np.cumsum(pieces)[:-1]):
        monitor.update(cost=piece)
    one_by_one = PromiseMonitor(budget=1.0)
    for cost in costs:
        one_by_one.update(cost=float(cost))
    over = money(np.minimum(costs, 10), 1.0, _COST_BETS, _RESTART_INTERVAL) >= 20
    for fed in (monitor, one_by_one):
        assert (fed.alarm_ is not None) == over.any()
        if fed.alarm_ is not None:
            assert fed.alarm_.row == over.argmax() + 1
            last = costs[fed.alarm_.row - fed.alarm_.n_rows : fed.alarm_.row]
            assert fed.alarm_.mean == pytest.approx(last.mean())
            assert (fed.alarm_.row - fed.alarm_.n_rows) % _RESTART_INTERVAL == 0
    losses = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.5, 0.4], size=n)
    watch = PromiseMonitor(max_loss=0.05)
    for loss in losses:
        watch.update(cost=1.0, loss=loss)
    over = money(losses, 0.05, _LOSS_BETS / 1.05, _RESTART_INTERVAL) >= 20
    assert (watch.alarm_ is not None) == over.any()
    if watch.alarm_ is not None:
        assert watch.alarm_.row == over.argmax() + 1
    assert watch.n_rows_ == watch.n_audited_ == n


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    before=st.integers(0, 4000),
    kind=st.sampled_from(["cost", "loss"]),
    size=st.sampled_from([1, 7, 100, 10**6]),
)
def test_an_alarm_has_the_mean_of_the_rows_that_it_is_about(seed, before, kind, size):
    """It is above the promise, and of the rows since the change."""
    rng = np.random.default_rng(seed)
    if kind == "cost":
        monitor = PromiseMonitor(budget=1.0)
        values = np.r_[rng.exponential(0.7, before), rng.exponential(2.5, 3000)]
    else:
        monitor = PromiseMonitor(max_loss=0.05)
        good = rng.choice([-1.0, 0.0, 1.0], p=[0.05, 0.9, 0.05], size=before)
        bad = rng.choice([-1.0, 0.0, 1.0], p=[0.03, 0.67, 0.3], size=3000)
        values = np.r_[good, bad]
    for piece in np.array_split(values, max(len(values) // size, 1)):
        monitor.update(**{kind: piece})
    alarm = monitor.alarm_
    rows = values[alarm.row - alarm.n_rows : alarm.row]
    assert alarm.mean == pytest.approx(rows.mean())
    assert alarm.mean > alarm.promised
    if alarm.row > before + _RESTART_INTERVAL:
        # A bettor has started after the change.
        assert alarm.n_rows <= alarm.row - before + 2 * _RESTART_INTERVAL


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, np.nan]), max_size=9), max_size=6))
def test_losses_alone_have_one_entry_for_each_row(pieces):
    """NaN is a row that was not audited, with costs and without."""
    alone = PromiseMonitor(max_loss=0.1)
    with_costs = PromiseMonitor(max_loss=0.1)
    for piece in pieces:
        alone.update(loss=piece)
        with_costs.update(loss=piece, cost=np.ones(len(piece)))
    assert alone.n_rows_ == with_costs.n_rows_ == sum(map(len, pieces))
    assert alone.n_audited_ == with_costs.n_audited_
    assert alone.alarm_ == with_costs.alarm_
    with pytest.raises(
        ValueError, match="loss has 3 entries, some of them NaN, and cost has 2"
    ):
        alone.update(loss=[0.0, np.nan, 0.0], cost=[1.0, 1.0])


def test_alarms_are_read_while_others_feed_and_reset():
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)
    failures = []
    done = threading.Event()

    def feed():
        for _ in range(300):
            monitor.update(cost=np.full(60, 5.0), loss=np.full(60, 0.9))
            monitor.reset()
        done.set()

    def look():
        try:
            while not done.is_set():
                # Both alarms are raised at once.
                alarms = monitor.alarms_
                assert len(alarms) in (0, 2), alarms
                assert monitor.alarm_ is None or monitor.alarm_ != []
        except Exception as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for run in (feed, look, look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


@pytest.mark.slow
def test_a_broken_promise_is_noticed_as_soon_after_many_good_rows():
    """At most four times the delay at the start. One bettor alone is blind."""
    rng = np.random.default_rng(0)
    delay = {}
    for before in (0, 1_000, 10_000, 100_000):
        delays = []
        for _ in range(20):
            monitor = PromiseMonitor(budget=1.0)
            monitor.update(cost=rng.exponential(0.9, before))
            if monitor.alarm_ is None:
                alarm = monitor.update(cost=rng.exponential(1.8, 40_000))
                delays.append(alarm.row - before)
        delay[before] = np.median(delays)
    assert delay[100_000] < 4 * max(delay[0], 60)
    # The naive rule: all money on bets that began with the first row.
    good_costs = rng.exponential(0.9, (100_000, 1)).clip(max=10)
    bad_costs = rng.exponential(1.8, (5_000, 1)).clip(max=10)
    costs = np.r_[good_costs, bad_costs]
    log_capitals = np.log1p(_COST_BETS * (costs - 1)).sum(axis=0)
    assert log_capitals.max() < np.log(20)


@pytest.mark.slow
def test_false_alarms_over_all_time_and_a_peeking_test_is_seen_to_fail():
    rng = np.random.default_rng(0)
    n_streams, n_rows, level = 300, 3000, 0.1
    alarms = peeking = 0
    for _ in range(n_streams):
        monitor = PromiseMonitor(
            budget=1.0, max_loss=0.0, false_alarm=level, max_cost=1e9
        )
        costs = rng.exponential(1.0, n_rows)
        losses = rng.choice([-1.0, 0, 1], p=[0.1, 0.8, 0.1], size=n_rows // 10)
        alarms += monitor.update(cost=costs, loss=losses) is not None
        # The mutation: a test at a fixed time, looked at after every row.
        times = np.arange(1, n_rows + 1)
        limits = 1 + stats.norm.isf(level) / np.sqrt(times)
        peeking += (costs.cumsum() / times > limits)[50:].any()
    assert alarms <= stats.binom.ppf(0.99, n_streams, level)
    assert peeking > stats.binom.ppf(0.99, n_streams, level)


@pytest.mark.slow
@pytest.mark.parametrize("n_good", [0, 1_000, 10_000])
def test_the_defaults_notice_five_times_the_promised_loss_within_3000_rows(n_good):
    """As a user tried it: a loss of .10 against a promise of .02, audits as by default."""
    n_streams = 100
    n_late = 0
    for seed in range(n_streams):
        rng = np.random.default_rng(seed)
        losses = np.r_[np.zeros(n_good), rng.random(3_000) < 0.1]
        monitor = PromiseMonitor(max_loss=0.02, random_state=seed)
        losses[~monitor.audit(len(losses))] = np.nan
        alarm = monitor.update(loss=losses)
        assert alarm is None or alarm.row > n_good
        n_late += alarm is None
    # At most 5 % in truth, and two standard errors of 100 streams more.
    assert n_late <= 9


def test_false_alarms_of_audited_losses_are_rare_at_the_promise():
    """Fresh draws at the promise itself, signed losses included: at most .05 of streams."""
    n_streams = 300
    n_alarms = 0
    for seed in range(n_streams):
        rng = np.random.default_rng(7_000 + seed)
        # Signed: right 1 %, wrong 3 % of the rows, a mean of .02.
        losses = rng.choice([-1.0, 0.0, 1.0], p=[0.01, 0.96, 0.03], size=30_000)
        monitor = PromiseMonitor(max_loss=0.02, random_state=seed)
        losses[~monitor.audit(len(losses))] = np.nan
        n_alarms += monitor.update(loss=losses) is not None
    # With a probability of .05, there are more than 26 in one of 1,000 such tests.
    assert n_alarms <= 26


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
    assert at_half._history[-1][0] == 2001 and len(at_half._history) == 1001
    axes = monitor.plot()
    assert len(axes.get_lines()) == 2
    above = np.log10(money(np.ones(2500), 1.0, _COST_BETS, _RESTART_INTERVAL)[-1] / 20)
    assert axes.get_lines()[0].get_ydata()[-1] == pytest.approx(above, abs=0.01)
    pyplot.close(axes.figure)


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "nothing to watch"),
        ({"max_loss": 1.0}, "never, or always, broken"),
        ({"budget": 1.0, "max_cost": 0.5}, "must be above budget"),
        ({"budget": 1.0, "audit_rate": 0}, "audit_rate"),
    ],
)
def test_bad_promises_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PromiseMonitor(**options)


@pytest.mark.parametrize(
    "fed, message",
    [
        ({"cost": -1}, "cost must be finite and at least 0"),
        ({"loss": 1.5}, "loss must be finite and from -1 to 1"),
        ({"cost": [[1.0]]}, "cost must have shape"),
        ({"cost": 10**400}, "cost must be numbers"),
        ({"cost": np.ma.masked_array([1.0, 2.0], [0, 1])}, "1 are masked"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(fed, message):
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)
    with pytest.raises(ValueError, match=message):
        monitor.update(**fed)
    assert monitor.n_rows_ == 0 and monitor._bettors["cost"].n_values == 0


def test_threads_pictures_and_pickles_at_once():
    """Copies and plots that are made while others feed are of one moment."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = PromiseMonitor(budget=1.0, max_loss=0.1)
    failures = []

    def feed():
        for _ in range(200):
            monitor.update(cost=[0.5, 0.5], loss=[0.0, 0.0])

    def look():
        try:
            for _ in range(20):
                copied = pickle.loads(pickle.dumps(monitor))
                counts = {bettors.n_values for bettors in copied._bettors.values()}
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
    assert labels == ["cost", "loss"]
    pyplot.close(axes.figure)
