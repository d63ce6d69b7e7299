"""Windows: what the calls of a choice use in any interval of some seconds."""

import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from skroute.ledgers import BudgetExhaustedError, Window, WindowFullError
from tests.ledgers.test_streams import (
    KINDS,
    ROUTER,
    ROW,
    SHARED_KINDS,
    make_ledger,
)

# Estimates for which the choices are taken in the order 2, 1, 0 if money is no matter.
BEST_IS_DEAREST = [0.0, 4.0, 9.0]


@pytest.fixture(params=KINDS)
def ledger(request, tmp_path):
    return make_ledger(request.param, tmp_path)


def clock_of(ledger):
    """Give the ledger a clock that a test moves, which is never behind. Return it."""
    now = [1e9]
    ledger.store.now = lambda: now[0]
    ledger.store.clock_lag = lambda: 0.0
    return now


def test_a_clock_that_may_be_behind_empties_a_window_later(ledger):
    """Another host, whose clock is right, must not take an amount as free too early."""
    now = clock_of(ledger)
    ledger.store.clock_lag = lambda: 0.5
    windows = {"choice2": [Window("requests", 1, 10.0)]}
    stream = ROUTER.stream(1000.0, ledger=ledger, windows=windows)
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"
    now[0] += 10.4
    assert stream.reserve(BEST_IS_DEAREST).name == "choice1"
    now[0] += 0.2
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"


def test_a_clock_that_is_corrected_within_a_booking_empties_no_window_early(ledger):
    """Redis tells its time with each answer, also in the middle of a booking."""
    now = clock_of(ledger)
    n_looks = [0]

    def corrected_after_the_first_look():
        n_looks[0] += 1
        return now[0] - 3.0 if n_looks[0] == 1 else now[0]

    windows = {"choice2": [Window("requests", 1, 10.0)]}
    stream = ROUTER.stream(1000.0, ledger=ledger, windows=windows)
    ledger.store.now = corrected_after_the_first_look
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"
    now[0] += 9.9
    assert stream.reserve(BEST_IS_DEAREST).name == "choice1"
    now[0] += 0.1
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"


def test_a_choice_whose_window_is_full_is_left_out(ledger):
    now = clock_of(ledger)
    windows = {"choice2": [Window("requests", 2)], "choice1": [Window("requests", 1)]}
    stream = ROUTER.stream(1000.0, ledger=ledger, windows=windows)
    names = [stream.reserve(BEST_IS_DEAREST).name for _ in range(4)]
    assert names == ["choice2", "choice2", "choice1", "choice0"]
    # It does not empty sooner, also if the calls fail.
    for ticket in stream.unsettled():
        stream.refund(ticket)
    now[0] += 59.0
    assert stream.reserve(BEST_IS_DEAREST).name == "choice0"
    now[0] += 1.0
    assert stream.reserve(BEST_IS_DEAREST).name == "choice2"


@pytest.mark.parametrize("n_expected", [None, 400])
def test_no_interval_has_more_than_the_limits(n_expected, ledger):
    """Tokens and requests, at random times, counted by hand over all intervals."""
    now = clock_of(ledger)
    limits = [Window("requests", 5, 10.0), Window("tokens", 40, 20.0)]
    windows = {"choice2": limits, "choice1": [Window("tokens", 30, 5.0)]}
    stream = ROUTER.stream(1e4, n_expected, ledger=ledger, windows=windows)
    rng = np.random.default_rng(0)
    calls = {"choice0": [], "choice1": [], "choice2": []}
    for _ in range(200):
        now[0] += float(rng.exponential(1.0))
        tokens = float(rng.integers(1, 20))
        room = {}
        for name, windows_of_name in windows.items():
            room[name] = all(
                used_since(calls[name], now[0] - window.seconds, window.resource)
                + (1 if window.resource == "requests" else tokens)
                <= window.limit
                for window in windows_of_name
            )
        ticket = stream.reserve(BEST_IS_DEAREST, uses={"tokens": tokens})
        # Neither too many, nor fewer than there may be.
        expected = "choice0"
        for name in ("choice1", "choice2"):
            if room[name]:
                expected = name
        assert ticket.name == expected
        calls[ticket.name].append((now[0], tokens))
        stream.commit(ticket)
    assert min(len(list_of_calls) for list_of_calls in calls.values()) > 10


def used_since(calls, start, resource):
    """What the calls (time, tokens) after a time have used."""
    recent = [tokens for moment, tokens in calls if moment > start]
    return len(recent) if resource == "requests" else sum(recent)


def test_a_request_without_room_in_any_window_is_sent_again_later(ledger):
    now = clock_of(ledger)
    windows = dict.fromkeys(ROUTER.choices_, [Window("requests", 1)])
    stream = ROUTER.stream(100.0, 10, ledger=ledger, windows=windows)
    for _ in range(3):
        stream.commit(stream.route(ROW, key=str(_)))
    before = stream.books()
    with pytest.raises(WindowFullError, match="windows of 3 choices have no room"):
        stream.route(ROW, key="later")
    after = stream.books()
    assert after == before._replace(n_rejected=1)
    now[0] += 60.0
    stream.commit(stream.route(ROW, key="later"))
    assert stream.books().n_started == 4


def test_without_money_the_error_is_that_of_the_money(ledger):
    windows = {"choice1": [Window("requests", 1)]}
    stream = ROUTER.stream(3.5, ledger=ledger, windows=windows)
    stream.commit(stream.reserve([0, 9, 0]))
    # 1.5 is left, and the window of choice1 is full.
    assert stream.reserve([0, 9, 0]).name == "choice0"
    with pytest.raises(BudgetExhaustedError, match="cheapest choice"):
        stream.reserve([0, 9, 0])


def test_streams_of_a_ledger_share_the_windows(ledger):
    windows = {"choice2": [Window("requests", 1)]}
    one = ROUTER.stream(100.0, ledger=ledger, purse="a", windows=windows)
    other = ROUTER.stream(100.0, ledger=ledger, purse="b", windows=windows)
    assert one.reserve(BEST_IS_DEAREST).name == "choice2"
    assert other.reserve(BEST_IS_DEAREST).name == "choice1"
    # The window has no money, and the purses have none of its requests.
    assert ledger.books("a").reserved == 5.0 and ledger.books("b").reserved == 2.0
    assert ledger.books("choice2: requests in 60 s").reserved == 1.0
    with pytest.raises(ValueError, match="Use top_up or reset, or another name"):
        ROUTER.stream(
            100.0, ledger=ledger, windows={"choice2": [Window("requests", 2)]}
        )


def test_a_request_that_is_sent_again_uses_its_window_once(ledger):
    windows = {"choice2": [Window("requests", 2)]}
    stream = ROUTER.stream(100.0, ledger=ledger, windows=windows)
    for _ in range(3):
        ticket = stream.reserve(BEST_IS_DEAREST, key="a")
    assert ledger.books("choice2: requests in 60 s").reserved == 1.0
    stream.refund(ticket)
    # Another try is another call.
    assert stream.reserve(BEST_IS_DEAREST, key="a").name == "choice2"
    assert ledger.books("choice2: requests in 60 s").reserved == 2.0


def test_without_windows_decisions_are_those_of_a_wide_window(ledger):
    plain = ROUTER.stream(700.0, 300)
    wide = ROUTER.stream(
        700.0,
        300,
        ledger=ledger,
        windows=dict.fromkeys(ROUTER.choices_, [Window("requests", 1e9)]),
    )
    for value in np.random.default_rng(1).uniform(size=(100, 3)):
        ticket, reference = wide.reserve(value), plain.reserve(value)
        assert ticket[2:] == reference[2:]
        wide.commit(ticket), plain.commit(reference)
    assert wide.books() == plain.books()


@pytest.mark.parametrize(
    ("windows", "error", "message"),
    [
        ([Window("requests", 2)], TypeError, "windows must be a mapping from names"),
        ({"choice2": Window("requests", 2)}, TypeError, "must be a list of"),
        ({"choice2": [("requests", 2)]}, TypeError, "must be a list of"),
        ({"other": [Window("requests", 2)]}, ValueError, "There is no choice 'other'"),
        ({"choice2": [Window("requests", -2)]}, ValueError, "must be a finite number"),
        ({"choice2": [Window("requests", 2, 0)]}, ValueError, "must be a positive"),
    ],
)
def test_bad_windows(windows, error, message):
    with pytest.raises(error, match=message):
        ROUTER.stream(100.0, windows=windows)


def test_bad_uses():
    stream = ROUTER.stream(100.0, windows={"choice2": [Window("tokens", 50)]})
    for call in (stream.route, stream.reserve):
        with pytest.raises(ValueError, match="uses must have the 'tokens' of this"):
            call(ROW if call == stream.route else [0, 0, 1])
    for uses, message in [
        ({"tokens": -1.0}, "must be a finite number"),
        ({"tokens": 1.0, "requests": 2.0}, "must not have 'requests'"),
    ]:
        with pytest.raises(ValueError, match=message):
            stream.reserve([0, 0, 1], uses=uses)
    assert stream.status().reserved == 0 and stream.books().n_started == 0


WORKER = """
import pickle, sys, time
import numpy as np
from skroute.ledgers import BudgetExhaustedError, WindowFullError
folder, seed = sys.argv[1], int(sys.argv[2])
stream = pickle.load(open(f"{folder}/stream.pickle", "rb"))
rng = np.random.default_rng(seed)
log = open(f"{folder}/provider-{seed}.log", "a")
while True:
    try:
        ticket = stream.reserve([0.0, 0.0, 1.0], exclude=["choice0", "choice1"])
    except BudgetExhaustedError:
        break
    except WindowFullError:
        time.sleep(0.002)
        continue
    log.write(f"{ticket.id}\\n")
    log.flush()
    stream.commit(ticket)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("kind", SHARED_KINDS)
@pytest.mark.slow
def test_killed_workers_exceed_neither_budget_nor_window(kind, tmp_path):
    """8 processes want one choice of which 20 requests fit into half a second."""
    limit, seconds, n_calls = 20, 0.5, 100
    ledger = make_ledger(kind, tmp_path)
    stream = ROUTER.stream(
        5.0 * n_calls,
        ledger=ledger,
        windows={"choice2": [Window("requests", limit, seconds)]},
    )
    (tmp_path / "stream.pickle").write_bytes(pickle.dumps(stream))

    def start(seed):
        command = [sys.executable, "-c", WORKER, str(tmp_path), str(seed)]
        return subprocess.Popen(command)

    rng = np.random.default_rng(0)
    workers = [start(seed) for seed in range(8)]
    n_killed = 0
    # The time of the ledger, and the number of decisions until then.
    counts = []
    while any(worker.poll() is None for worker in workers):
        before = time.monotonic()
        books = stream.books()
        counts.append((before, time.monotonic(), books.n_started))
        assert books.spent + books.reserved <= books.total
        window = ledger.books(f"choice2: requests in {seconds:g} s")
        assert window.reserved <= limit
        alive = [i for i, worker in enumerate(workers) if worker.poll() is None]
        if n_killed < 3 and books.n_committed > 25 * (n_killed + 1) and alive:
            victim = workers[rng.choice(alive)]
            victim.kill()
            victim.wait()
            n_killed += 1
            workers.append(start(8 + n_killed))
        time.sleep(0.005)
    assert n_killed == 3
    # By a clock of our own: in no interval of half a second more than the limit.
    for asked, _, n_first in counts:
        for _, answered, n_last in counts:
            if 0 <= answered - asked < seconds:
                assert n_last - n_first <= limit
    called = []
    for path in tmp_path.glob("provider-*.log"):
        called += [int(line) for line in path.read_text().splitlines()]
    assert len(set(called)) == len(called)
    for ticket in stream.unsettled():
        if ticket.id in called:
            stream.commit(ticket)
        else:
            stream.refund(ticket)
    assert stream.books().spent == 5.0 * len(called) <= 5.0 * n_calls
