"""Streams over shared ledgers: several processes, prices and choices that change, keys, periods."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skroute.assignment import choose_at_price
from skroute.ledgers import (
    AlreadyCommittedError,
    BudgetExhaustedError,
    Ledger,
    MemoryLedger,
    Offer,
    RedisLedger,
    SQLiteLedger,
)
from skroute.routing import BudgetRouter
from tests.decision_checks import fitted as fitted_once
from tests.decision_checks import rows
from tests.estimators import ROUTERS
from tests.ledgers.dict_store import DictStore
from tests.ledgers.servers import needs_redis, redis_url
from tests.routing.test_stream import COSTS, fitted

NAMES = ["choice0", "choice1", "choice2"]
ROUTER = fitted(500, budget=2.5)
VALUES = ROUTER.predict_quality(np.random.default_rng(1).uniform(size=(400, 2)))
ROW = np.array([[0.5, 0.5]])
ONE = Offer(0, "a", 1.0, 0.0, 1.0)

# Ledgers that processes share.
SHARED_KINDS = ["sqlite", pytest.param("redis", marks=needs_redis)]
KINDS = ["memory", "dict", *SHARED_KINDS]


@pytest.fixture(params=KINDS)
def ledger(request, tmp_path):
    return make_ledger(request.param, tmp_path)


def make_ledger(kind, folder):
    if kind == "memory":
        return MemoryLedger(600.0)
    if kind == "dict":
        return Ledger(DictStore(), timeout=600.0)
    if kind == "sqlite":
        return SQLiteLedger(folder / "ledger.sqlite", timeout=600.0)
    return RedisLedger(redis_url(), prefix=uuid.uuid4().hex, timeout=600.0)


@pytest.mark.parametrize("n_expected", [None, 400])
def test_every_ledger_decides_as_the_one_in_memory(ledger, n_expected):
    ledger._fresh = -1.0
    alone = ROUTER.stream(1000.0, n_expected)
    shared = ROUTER.stream(1000.0, n_expected, ledger=ledger)
    rng = np.random.default_rng(2)
    for value in VALUES:
        ticket = alone.reserve(value)
        shared_ticket = shared.reserve(value)
        assert ticket[2:] == shared_ticket[2:]
        if rng.random() < 0.1:
            alone.refund(ticket)
            shared.refund(shared_ticket)
        else:
            cost = ticket.cost * rng.integers(0, 5) / 4
            alone.commit(ticket, cost)
            shared.commit(shared_ticket, cost)
    assert alone.books() == shared.books()
    assert alone.status() == shared.status()


def test_a_purse_is_joined_and_not_opened_twice(ledger):
    first = ROUTER.stream(100.0, 20, ledger=ledger, purse="a")
    second = ROUTER.stream(100.0, 20, ledger=ledger, purse="a")
    ticket = first.route(ROW)
    # Any stream of the purse settles it.
    second.commit(ticket)
    assert first.status() == second.status() and first.status().n_committed == 1
    with pytest.raises(ValueError, match="was opened with .* Use top_up or reset"):
        ROUTER.stream(101.0, 20, ledger=ledger, purse="a")
    other = ROUTER.stream(100.0, 20, ledger=ledger, purse="b")
    with pytest.raises(ValueError, match="is not open"):
        other.commit(first.route(ROW))
    with pytest.raises(ValueError, match="There is no purse 'c' in this ledger"):
        ROUTER.stream(100.0, ledger=ledger, purse="d", within=["c"])


def test_every_purse_must_have_room(ledger):
    ledger.open("all", 6.0)
    tenants = [
        ROUTER.stream(5.0, ledger=ledger, purse=name, within=["all"])
        for name in ("one", "two")
    ]
    tickets = [tenant.reserve([1, 0, 0]) for tenant in tenants for _ in range(3)]
    # "one" has 2 left, and "all" nothing.
    with pytest.raises(
        BudgetExhaustedError, match="of 6 in all 0 is spent and 6 reserved"
    ):
        tenants[0].reserve([1, 0, 0])
    assert tenants[0].books().n_rejected == 1 and ledger.books("all").reserved == 6.0
    tenants[0].commit(tickets[0], 0.5)
    tenants[1].refund(tickets[3])
    assert ledger.books("all").spent == 0.5 and ledger.books("all").n_open == 4
    assert tenants[1].books().spent == 0.0
    # The larger choice fits the tenant, and not the whole.
    assert tenants[1].reserve([0, 0, 9]).choice == 0
    with pytest.raises(BudgetExhaustedError, match="The cap of 5 is broken by 2.5"):
        tenants[0].commit(tickets[1], 7.0)
    assert tenants[0].books().spent == 7.5


def test_a_request_that_is_sent_again(ledger):
    stream = ROUTER.stream(100.0, 20, ledger=ledger)
    ticket = stream.route(ROW, key="r1")
    assert stream.route(ROW, key="r1") == ticket == stream.reserve([0, 0, 1], key="r1")
    assert stream.status().n_open == 1 and stream.books().n_started == 1
    stream.refund(ticket)
    # A call that failed may be tried again.
    again = stream.route(ROW, key="r1")
    assert again.id != ticket.id
    stream.commit(again)
    for call in (
        lambda: stream.route(ROW, key="r1"),
        lambda: stream.reserve([0, 0, 1], key="r1"),
    ):
        with pytest.raises(AlreadyCommittedError, match="committed already") as caught:
            call()
        # A key may name a user.
        assert "r1" not in str(caught.value)
    with pytest.raises(ValueError, match="key must be a string that is not empty"):
        stream.route(ROW, key=7)
    assert stream.books().n_held == 0 and stream.status().reserved == 0


def test_money_of_a_silent_worker_returns_and_its_late_commit_is_booked(ledger):
    now = [1e9]
    ledger.store.now = lambda: now[0]
    router = fitted(500, budget=2.5, routing_cost=0.25)
    stream = router.stream(6.0, ledger=ledger)
    silent, other = stream.reserve([0, 0, 1]), None
    assert silent.reserved == 5.25
    with pytest.raises(BudgetExhaustedError):
        stream.reserve([1, 0, 0])
    now[0] += 601
    # What deciding has cost is gone.
    assert stream.books()[:4] == (6.0, 0.25, 0.0, 0.0) and stream.books().n_expired == 1
    other = stream.reserve([0, 0, 1])
    assert stream.unsettled() == [silent, other]
    stream.commit(other)
    with pytest.raises(
        BudgetExhaustedError, match="is broken by .* committed after its deadline"
    ):
        stream.commit(silent, 4.0)
    assert stream.books().spent == 5.25 + 0.25 + 4.0 and stream.books().n_expired == 0
    with pytest.raises(ValueError, match="is not open"):
        stream.commit(silent, 4.0)


def test_top_up_and_further_requests(ledger):
    stream = ROUTER.stream(2.0, 2, ledger=ledger)
    for _ in range(2):
        stream.commit(stream.reserve([0, 0, 1]))
    stream.top_up(8.0, n_more=4)
    books = stream.books()
    assert books.total == 10.0 and books.n_expected == 6
    # Four requests to come with eight: not more than what leaves one for each of the others.
    assert [stream.reserve([0, 0, 1]).choice for _ in range(4)] == [2, 0, 0, 0]
    for bad in ((-1.0, 0), (np.inf, 0), (1.0, -1), (1.0, 1.5)):
        with pytest.raises(ValueError, match="must be"):
            stream.top_up(bad[0], n_more=bad[1])


def test_a_ledger_says_where_its_books_are(ledger, tmp_path):
    ledger.open("all", 100.0)
    stream = ROUTER.stream(100.0, ledger=ledger, within=["all"])
    place = {
        MemoryLedger: "",
        Ledger: "DictStore",
        SQLiteLedger: repr(str(tmp_path / "ledger.sqlite")),
        RedisLedger: f"prefix={getattr(ledger, 'prefix', '')!r}",
    }[type(ledger)]
    assert repr(ledger) == f"{type(ledger).__name__}({place})"
    # It is no booking, which another one may be in the middle of.
    stream.ledger.reserve(("stream",), lambda *_: [repr(ledger)] and ONE, least=1)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:SECRET@host:7000/2",
        "redis://host?password=SECRET&username=USER&db=3",
        "unix://USER:SECRET@/run/redis.sock?db=1",
    ],
)
def test_a_ledger_keeps_its_password_to_itself(url):
    pytest.importorskip("redis")
    ledger = RedisLedger(url)
    assert "SECRET" not in repr(ledger)
    assert pickle.loads(pickle.dumps(ledger)).url == url


def test_calls_that_wait_for_each_other_have_their_own_answers(ledger):
    ledger.open("a", 3.0)
    deciding, go = threading.Event(), threading.Event()

    def choose(books, room, spare):
        deciding.set()
        assert go.wait(60)
        return ONE if room >= 1 else None

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ledger.reserve, ("a",), choose, least=1)
        assert deciding.wait(60)
        others = [
            pool.submit(ledger.reserve, ("a",), choose, least=1) for _ in range(4)
        ]
        failing = pool.submit(
            ledger.reserve, ("a",), lambda *_: 1 / 0, least=0, key="k"
        )
        unknown = pool.submit(ledger.hold, ("a", "none"), 1.0)
        time.sleep(0.2)
        go.set()
    assert isinstance(failing.exception(), ZeroDivisionError)
    assert "There is no purse 'none'" in str(unknown.exception())
    made = []
    n_exhausted = 0
    for future in [first, *others]:
        error = future.exception()
        if error is None:
            made.append(future.result())
        else:
            n_exhausted += isinstance(error, BudgetExhaustedError)
    made.sort(key=lambda reservation: reservation.number)
    assert len({reservation.number for reservation in made}) == 3
    assert n_exhausted == 2
    assert ledger.unsettled("a") == made
    assert ledger.books("a")[:8] == (3.0, 0.0, 3.0, 3.0, None, 3, 0, 3)


def decided(stream, n=400):
    """Return the tickets of `n` requests, each of them refunded."""
    tickets = []
    for value in VALUES[:n]:
        ticket = stream.reserve(value)
        stream.refund(ticket)
        tickets.append(ticket)
    return tickets


@pytest.mark.parametrize("factor", [0.2, 3.0, 8.0])
@pytest.mark.parametrize("which", range(3))
def test_new_prices_decide_as_a_stream_of_a_router_with_these_prices(factor, which):
    costs = list(COSTS)
    costs[which] *= factor
    router = fitted(500, budget=6.0)
    repriced = fitted(500, budget=6.0).set_params(costs=costs)
    stream = router.stream(1e6)
    ticket = stream.reserve(VALUES[0])
    stream.set_costs(costs)
    stream.refund(ticket)
    expected = [t[2:] for t in decided(repriced.stream(1e6))]
    assert [t[2:] for t in decided(stream)] == expected
    # The router that it was made of is another one.
    assert router.costs == COSTS
    np.testing.assert_array_equal(
        [e[0] for e in expected], choose_at_price(VALUES, costs, repriced.price_)
    )


def test_costs_above_their_bounds_are_refused():
    stream = ROUTER.stream(1000.0, max_costs=[2.0, 4.0, 9.0])
    with pytest.raises(
        ValueError, match="cost of 'choice0' is 2.5, above its max_costs of 2.0"
    ):
        stream.set_costs([2.5, 2.0, 5.0])
    assert [t.cost for t in decided(stream, 3)] == [
        COSTS[t.choice] for t in decided(stream, 3)
    ]
    stream.set_costs([2.5, 2.5, 5.0], max_costs=[3.0, 4.0, 9.0])
    assert {t.reserved for t in decided(stream)} <= {3.0, 4.0, 9.0}
    with pytest.raises(ValueError, match="the smallest feasible budget is 3"):
        stream.set_costs([3.0, 3.0, 5.0])
    with pytest.raises(ValueError, match="must have one number for each"):
        stream.set_costs([1.0])
    X = np.random.default_rng(0).uniform(size=(60, 2))
    per_row = BudgetRouter(Ridge(), cv=2).fit(X, X, costs=1 + X).stream(50.0)
    with pytest.raises(ValueError, match="changed between fixed and per row"):
        per_row.set_costs([1.0, 2.0])


def test_names_are_a_list_of_which_one_is_left(ledger):
    stream = ROUTER.stream(100.0, ledger=ledger)
    stream.exclude(["choice0", "choice1"])
    for names in (["choice2"], NAMES):
        with pytest.raises(ValueError, match="leaves no choice"):
            stream.exclude(names)
    with pytest.raises(ValueError, match="There is no choice 'small'"):
        stream.exclude(["small"])
    for change in (stream.exclude, stream.include):
        for bad in ("choice2", b"choice2", 2):
            with pytest.raises(
                ValueError, match="names must be a list of names of choices"
            ):
                change(bad)
    assert stream.route(ROW).name == "choice2" and stream.books().n_started == 1
    stream.include([])
    assert stream.reserve([1, 1, 0]).name == "choice2"
    stream.include(["choice0"])
    assert stream.reserve([1, 2, 0]).name == "choice0"
    stream.include()
    assert stream.reserve([0, 5, 0]).name == "choice1"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, int])
def test_amounts_of_money_may_be_of_any_type_of_number(kind, ledger):
    """A bill from a frame in single precision: there, the largest float overflows."""
    stream = ROUTER.stream(kind(100), ledger=ledger, max_costs=[kind(9)] * 3)
    stream.commit(stream.reserve([0, 0, 1]), kind(3))
    stream.top_up(kind(2))
    assert (stream.status().spent, stream.status().budget_total) == (3.0, 102.0)


@pytest.mark.parametrize("bad", [-1, np.nan, np.inf, 10**400, "1", True])
def test_amounts_of_money_are_refused_in_their_own_words(bad, ledger):
    stream = ROUTER.stream(100.0, ledger=ledger)
    ticket = stream.reserve([0, 0, 1])
    calls = {
        "cost": lambda: stream.commit(ticket, bad),
        "amount": lambda: stream.top_up(bad),
        "total": lambda: ledger.open("other", bad),
        "budget_total": lambda: ROUTER.stream(bad),
    }
    for name, call in calls.items():
        with pytest.raises(
            ValueError, match=f"^{name} must be a finite number"
        ) as caught:
            call()
        assert "per sample" not in str(caught.value) and repr(bad) in str(caught.value)
    stream.commit(ticket, 1.0)


def test_what_deciding_asks_cannot_be_excluded():
    router = fitted_once(
        next(router for router in ROUTERS if router.embedding == "tree")
    )
    stream = router.stream(1000.0)
    with pytest.raises(ValueError, match="'tree' cannot be excluded: deciding asks it"):
        stream.exclude(["tree"])
    stream.exclude(["logreg"])
    assert stream.route(rows()[0][:1]).name == "tree"


def test_a_call_of_a_key_is_paid_from_its_own_purses_until_the_key_is_forgotten(ledger):
    # That is when its reservation would have expired.
    now, ledger.remember = [1e9], ledger.timeout
    ledger.store.now = lambda: now[0]
    ledger.open("tenant", 4.0)
    ledger.open("all", 4.0)
    made = ledger.reserve(("tenant", "all"), lambda *_: ONE, least=1.0, key="a")
    for again in (
        ledger.reserve(("tenant",), lambda *_: ONE, least=1.0, key="a"),
        ledger.hold(("tenant",), 1.0, "a"),
    ):
        assert (
            again[:4]
            == made[:4]
            == (made.ledger, made.number, ("tenant", "all"), "open")
        )
    ledger.settle(made.ledger, made.number, "tenant", ONE, 0.5)
    assert ledger.books("all").spent == ledger.books("tenant").spent == 0.5
    now[0] += ledger.timeout + 1
    again = ledger.reserve(("tenant",), lambda *_: ONE, least=1.0, key="a")
    assert again.number != made.number and ledger.books("tenant").n_open == 1


def test_a_deadline_passes_in_the_period_that_runs(ledger):
    # The day ends between the booking and its deadline.
    began, later = 20_000 * 86400.0 - 1, 20_000 * 86400.0 + ledger.timeout
    now = [began]
    ledger.store.now = lambda: now[0]
    for name in ("tenant", "all", "another"):
        ledger.open(name, 8.0, period="day")
    ledger.reserve(
        ("tenant", "all"), lambda *_: Offer(0, "a", 1.0, 0.25, 1.5), least=1.5
    )
    ledger.hold(("tenant", "all"), 1.0)
    now[0] = later
    # A purse that is not there is asked for in vain: nothing has happened.
    with pytest.raises(ValueError, match="There is no purse 'none'"):
        ledger.hold(("tenant", "none"), 1.0)
    now[0] = began
    assert ledger.books("tenant")[2:8] == (2.5, 1.25, None, 2, 1, 1)
    now[0] = later
    ledger.books("another")
    now[0] = began
    for name in ("tenant", "all"):
        books = ledger.books(name)
        assert books.period == 20_000 and books[:4] == (8.0, 0.25, 0.0, 0.0)
        assert (books.n_held, books.n_open, books.n_expired) == (0, 0, 1)


def test_a_copy_of_a_shared_stream_is_the_same_purse(tmp_path):
    stream = ROUTER.stream(100.0, ledger=SQLiteLedger(tmp_path / "ledger.sqlite"))
    ticket = stream.route(ROW)
    copied = pickle.loads(pickle.dumps(stream))
    copied.commit(ticket)
    assert copied.status() == stream.status() and stream.status().n_committed == 1
    pid = os.fork() if hasattr(os, "fork") else None
    if pid == 0:
        stream.commit(stream.route(ROW))
        os._exit(0)
    if pid is not None:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert stream.status().n_committed == 2


WORKER = """
import json, pickle, sys, threading, time
import numpy as np
from skroute.ledgers import BudgetExhaustedError
folder, seed = sys.argv[1], int(sys.argv[2])
stream = pickle.load(open(f"{folder}/stream.pickle", "rb"))

def serve(thread):
    rng = np.random.default_rng([seed, thread])
    log = open(f"{folder}/provider-{seed}-{thread}.log", "a")
    while True:
        try:
            ticket = stream.reserve(rng.uniform(size=3))
        except BudgetExhaustedError:
            return
        if rng.random() < 0.05:
            stream.refund(ticket)
            continue
        cost = ticket.cost * rng.integers(2, 6) / 4
        # The provider counts the call; what happens after that is ours.
        log.write(f"{ticket.id} {cost}\\n")
        log.flush()
        stream.commit(ticket, cost)

threads = [threading.Thread(target=serve, args=(i,)) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("kind", SHARED_KINDS)
@pytest.mark.slow
def test_killed_workers_lose_no_money(kind, tmp_path):
    """All costs of providers are booked, except calls that a kill ended, which are listed."""
    total = 1300.0
    ledger = make_ledger(kind, tmp_path)
    stream = ROUTER.stream(total, max_costs=[1.5, 3.0, 7.5], ledger=ledger)
    (tmp_path / "stream.pickle").write_bytes(pickle.dumps(stream))

    def start(seed):
        command = [sys.executable, "-c", WORKER, str(tmp_path), str(seed)]
        return subprocess.Popen(command)

    rng = np.random.default_rng(0)
    workers = [start(seed) for seed in range(2)]
    n_killed = 0
    while any(worker.poll() is None for worker in workers):
        books = stream.books()
        assert books.spent + books.reserved <= total * (1 + 1e-11)
        alive = [i for i, worker in enumerate(workers) if worker.poll() is None]
        if n_killed < 2 and books.n_committed > 150 * (n_killed + 1) and alive:
            time.sleep(rng.uniform(0, 0.01))
            victim = workers[rng.choice(alive)]
            victim.kill()
            victim.wait()
            n_killed += 1
            workers.append(start(1 + n_killed))
        time.sleep(0.005)
    assert n_killed == 2
    called = {}
    for path in tmp_path.glob("provider-*.log"):
        for line in path.read_text().splitlines():
            number, cost = line.split(" ")
            assert int(number) not in called
            called[int(number)] = float(cost)
    # The crash windows, by name: what was called is committed, what was not is given back.
    for ticket in stream.unsettled():
        if ticket.id in called:
            stream.commit(ticket, called[ticket.id])
        else:
            stream.refund(ticket)
    books = stream.books()
    assert books.spent == sum(called.values()) <= total
    assert books.n_committed == len(called) and books.n_open == books.n_held == 0
    assert books.spent >= 0.98 * total


@needs_redis
@pytest.mark.parametrize("kind", ["plain", "key", "late", "two purses"])
def test_redis_answers_a_settlement_that_is_sent_again(kind, tmp_path):
    """A connection that breaks after the booking and before the answer."""
    ledger, now = make_ledger("redis", tmp_path), [1e9]
    ledger.open("all", 100.0)
    within = ["all"] if kind == "two purses" else []
    stream = ROUTER.stream(100.0, ledger=ledger, within=within)
    if kind == "late":
        ledger.store.now = lambda: now[0]
    ticket, other = (
        stream.route(ROW, key="a" if kind == "key" else None),
        stream.route(ROW),
    )
    now[0] += 601
    call, sent = ledger.store._script, []

    def twice(*told):
        sent.append(told)
        call(*told)
        return call(*told)

    ledger.store._script = twice
    stream.commit(ticket)
    ledger.store._script = call
    assert sent and stream.books().n_committed == 1
    assert stream.books().spent == ticket.cost
    # The same ticket again is another settlement, also where nothing came between.
    for again in (ticket, ticket):
        with pytest.raises(ValueError, match="is not open"):
            stream.commit(again)
    # What another thread or process has settled since does not make it unknown.
    third, elsewhere = stream.route(ROW), pickle.loads(pickle.dumps(stream))
    elsewhere.ledger.store.now = ledger.store.now
    ledger.store._script = lambda *told: [
        call(*told),
        elsewhere.commit(third),
        call(*told),
    ][2]
    stream.commit(other)
    ledger.store._script = call
    assert stream.books().n_committed == 3


@needs_redis
def test_a_deadline_without_a_reservation_is_passed_over(tmp_path):
    import redis

    ledger = make_ledger("redis", tmp_path)
    ledger.open("all", 10.0)
    ledger.hold(["all"], 1.0)
    server = redis.Redis.from_url(redis_url())
    server.zadd(ledger.store._names["due"], {"999": 0.0})
    # A new process has none of the answers that this one has kept.
    other = RedisLedger(redis_url(), prefix=ledger.prefix)
    assert other.books("all").reserved == 1.0


@needs_redis
def test_a_connection_that_breaks_is_made_anew(tmp_path):
    import redis

    stream = ROUTER.stream(100.0, ledger=make_ledger("redis", tmp_path))
    server = redis.Redis.from_url(redis_url())
    for _ in range(3):
        ticket = stream.route(ROW)
        assert server.client_kill_filter(_type="normal", skipme=True) > 0
        stream.commit(ticket)
        # The script is not known to a server that was started again.
        server.script_flush()
    books = stream.books()
    assert (books.n_started, books.n_committed, books.n_open) == (3, 3, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period": "week"}, 'period must be "day", "month", a positive number'),
        ({"period": 0}, "period must be"),
        ({"purse": ""}, "name of a purse must be a string"),
        ({"within": "all"}, "within must be a sequence of names"),
        ({"within": ["stream"]}, "within the same purse twice"),
    ],
)
def test_bad_streams(options, message):
    with pytest.raises(ValueError, match=message):
        ROUTER.stream(100.0, **options)
    with pytest.raises(TypeError, match="ledger must be one of skroute.ledgers"):
        ROUTER.stream(100.0, ledger="redis://localhost")
    with pytest.raises(
        ValueError, match="timeout must be a positive number of seconds"
    ):
        MemoryLedger(0)
