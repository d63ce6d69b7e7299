"""Every ledger under drawn orders of calls, beside books in exact fractions kept by hand."""

import copy
import pickle
import re
import sqlite3
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from skroute.ledgers import (
    AlreadyCommittedError,
    BudgetExhaustedError,
    Ledger,
    MemoryLedger,
    Offer,
    RedisLedger,
    SQLiteLedger,
)
from skroute.ledgers import _sqlite as store
from skroute.ledgers._books import Reservation, period_number
from tests.ledgers.dict_store import DictStore
from tests.ledgers.servers import needs_redis, redis_url

TIMEOUT, REMEMBER = 10.0, 100.0
# Some time on the 31st of January 2023, UTC.
START = 1675170000.0
ONE = Offer(0, "a", 1.0, 0.0, 1.0)


class Money:
    """The expected books of a purse, in exact fractions."""

    def __init__(self, total, n_expected, period):
        self.terms = Fraction(total), n_expected, period
        self.total, self.n_expected = Fraction(total), n_expected
        self.spent = Fraction(0)
        self.counts = dict.fromkeys(("started", "committed", "refunded", "rejected"), 0)
        self.number = None if period is None else START // period

    def roll(self, now):
        total, n_expected, period = self.terms
        if period is not None and self.number < now // period:
            self.again(total)
            self.number = now // period

    def again(self, total):
        held = self.counts["held_now"]()
        self.total, self.spent, self.n_expected = total, Fraction(0), self.terms[1]
        self.counts.update(started=held, committed=0, refunded=0, rejected=0)


class Machine(RuleBasedStateMachine):
    """Every amount is a multiple of 1/4, so that the floats of the ledgers are exact too."""

    purses = ("tenant", "all")

    def again(self):
        """Another object for the same books."""
        self.ledger = pickle.loads(pickle.dumps(self.ledger))
        self.set_clock()

    def set_clock(self):
        self.ledger.store.now = lambda: self.now

    @initialize(
        total=st.integers(2, 30),
        shared=st.integers(2, 40),
        n_expected=st.none() | st.integers(1, 6),
        period=st.sampled_from([None, 25.0, "day"]),
    )
    def begin(self, total, shared, n_expected, period):
        self.now = START
        self.make()
        self.set_clock()
        seconds = 86400.0 if period == "day" else period
        self.money = {
            "tenant": Money(total, n_expected, seconds),
            "all": Money(shared, None, None),
        }
        self.ledger.open("tenant", total, n_expected, period=period)
        self.ledger.open("all", shared)
        for name, money in self.money.items():
            money.counts["held_now"] = lambda name=name: len(self.of("held", name))
        self.states, self.at, self.made = {}, {}, {}

    def of(self, state, purse="tenant"):
        # Only the first purse counts requests.
        return [n for n, s in self.states.items() if s == state and purse == "tenant"]

    def reserved(self):
        return sum(
            Fraction(self.made[n].amount) for n in self.of("held") + self.of("open")
        )

    def due(self):
        for money in self.money.values():
            money.roll(self.now)
        for number, made in self.made.items():
            if (
                self.states[number] in ("held", "open")
                and self.at[number] + TIMEOUT <= self.now
            ):
                if self.states[number] == "open":
                    for money in self.money.values():
                        money.spent += Fraction(made.offer.deciding)
                    self.states[number] = "expired"
                else:
                    self.money["tenant"].counts["started"] -= 1
                    self.states[number] = "gone"

    def room(self):
        return (
            min(money.total - money.spent for money in self.money.values())
            - self.reserved()
        )

    def note(self, made, state):
        number = made.number
        self.made[number], self.states[number], self.at[number] = made, state, self.now

    def spare(self, keep):
        money = self.money["tenant"]
        if money.n_expected is None:
            return self.room()
        return self.room() - keep * max(money.n_expected - money.counts["started"], 0)

    @rule(quarters=st.integers(1, 8))
    def hold(self, quarters):
        self.due()
        amount = quarters / 4
        room, counts = self.room(), self.money["tenant"].counts
        try:
            held = self.ledger.hold(self.purses, amount)
        except BudgetExhaustedError as error:
            assert room < amount and "Not even the cheapest choice fits" in str(error)
            counts["rejected"] += 1
            return
        assert amount <= room and held.state == "held" and held.purses == self.purses
        counts["started"] += 1
        self.note(held, "held")

    @precondition(lambda self: self.of("held"))
    @rule(data=st.data())
    def release(self, data):
        number = data.draw(st.sampled_from(self.of("held")))
        self.due()
        self.ledger.release(self.made[number])
        if self.states[number] == "held":
            self.money["tenant"].counts["started"] -= 1
        self.states[number] = "gone"

    @rule(
        data=st.data(),
        sizes=st.lists(st.integers(0, 12), min_size=1, max_size=3),
        keep=st.sampled_from([0.0, 0.25, 1.0]),
        key=st.none() | st.sampled_from("abc"),
    )
    def reserve(self, data, sizes, keep, key):
        # A hold may have expired, or been given back, while its request was decided.
        holds = [n for n, made in self.made.items() if made.offer is None]
        held = data.draw(st.none() | st.sampled_from(holds)) if holds else None
        self.due()
        counts = self.money["tenant"].counts
        least, promised = min(sizes) / 4, None
        if held is not None:
            least = min(least, self.made[held].amount)
            sizes = [*sizes, int(4 * least)]
            if self.states[held] == "held":
                counts["started"] -= 1
                self.states[held] = "gone"
                promised = self.made[held].amount
        seen = []

        def choose(books, room, spare):
            seen.append((books.n_started, Fraction(room), Fraction(spare)))
            fits = [
                size / 4
                for size in sizes
                if size / 4 <= (room if size / 4 <= least else spare)
            ]
            # What deciding has cost is part of it.
            return (
                Offer(3, "a | b", max(fits) / 2, max(fits) / 4, max(fits))
                if fits
                else None
            )

        same = [n for n in self.made if key and self.made[n].key == key]
        # An expired or failed one loses its key to the request that comes now, which counts once.
        for n in same:
            if self.states[n] in ("expired", "failed"):
                self.made[n] = self.made[n]._replace(key=None)
                counts["started"] = max(counts["started"] - 1, 0)
        same = [n for n in same if self.states[n] in ("open", "committed")]
        held = None if held is None else self.made[held]
        counts["started"] += 1
        # What was held is there, also where a late commit has broken the cap since.
        more = 0 if promised is None else max(promised - self.room(), 0)
        room, spare = self.room() + more, self.spare(keep) + more
        expected = [
            s / 4 for s in sizes if s / 4 <= (room if s / 4 <= least else spare)
        ]
        arguments = {"least": least, "keep": keep, "held": held, "key": key}
        try:
            made = self.ledger.reserve(self.purses, choose, **arguments)
        except BudgetExhaustedError:
            assert not expected and not same
            counts["started"] -= 1
            counts["rejected"] += 1
            return
        except AlreadyCommittedError:
            assert [self.states[n] for n in same] == ["committed"]
            counts["started"] -= 1
            return
        if same:
            assert made.number == same[0] and made.offer == self.made[made.number].offer
            counts["started"] -= 1
            return
        assert made.amount == max(expected) and made.number not in self.made
        # A limit is the total and a hair.
        hair = 1e-11 * max(*(money.total for money in self.money.values()), 1)
        n_started, seen_room, seen_spare = seen[-1]
        assert n_started == counts["started"]
        assert abs(seen_room - room) < hair and abs(seen_spare - spare) < hair
        self.note(made, "open")

    @precondition(lambda self: self.made)
    @rule(data=st.data(), quarters=st.none() | st.integers(0, 8), wrong=st.booleans())
    def settle(self, data, quarters, wrong):
        made = self.made[data.draw(st.sampled_from(sorted(self.made)))]
        self.due()
        state = self.states[made.number]
        offer = made.offer or Offer(0, "x", 0.0, 0.0, 0.0)
        if wrong:
            offer = offer._replace(reserved=offer.reserved + 1)
        cost = None if quarters is None else quarters / 4
        if wrong or state not in ("open", "expired"):
            with pytest.raises(ValueError, match="is not open"):
                self.ledger.settle(made.ledger, made.number, "tenant", offer, cost)
            return
        for ledger, purse in ((made.ledger, "all"), ("another", "tenant")):
            with pytest.raises(ValueError, match="is not open"):
                self.ledger.settle(ledger, made.number, purse, offer, cost)
        over, late = self.ledger.settle(made.ledger, made.number, "tenant", offer, cost)
        for money in self.money.values():
            money.spent += Fraction(cost or 0)
            if state == "open":
                money.spent += Fraction(offer.deciding)
            money.counts["refunded" if cost is None else "committed"] += 1
        assert late == (state == "expired")
        assert over == max(money.spent - money.total for money in self.money.values())
        remembered = "failed" if cost is None else "committed"
        self.states[made.number] = "gone" if made.key is None else remembered

    # Whether a purse may not be looked at now: a look books what is due before the next call can.
    unseen = False

    @rule(seconds=st.sampled_from([1.0, 4.0, 9.0, 30.0, 90000.0]), unseen=st.booleans())
    def wait(self, seconds, unseen):
        self.now += seconds
        self.unseen = unseen
        for number, state in self.states.items():
            # Remembered for longer than the longest test but for a day's wait.
            if state in ("committed", "failed") and seconds > REMEMBER:
                self.states[number] = "gone"

    @rule(quarters=st.integers(0, 9), n_more=st.integers(0, 2))
    def top_up(self, quarters, n_more):
        self.due()
        self.ledger.top_up("tenant", quarters / 4, n_more)
        money = self.money["tenant"]
        money.total += Fraction(quarters, 4)
        if money.n_expected is not None:
            money.n_expected += n_more

    @rule()
    def reset(self):
        self.due()
        self.ledger.reset("tenant")
        self.money["tenant"].again(self.money["tenant"].terms[0])

    @precondition(lambda self: not self.of("held"))
    @rule()
    def come_back(self):
        self.again()

    @invariant()
    def agree(self):
        if self.unseen or not hasattr(self, "made"):
            self.unseen = False
            return
        self.due()
        for name, money in self.money.items():
            books = self.ledger.books(name)
            assert (
                Fraction(books.total) == money.total
                and Fraction(books.spent) == money.spent
            )
            assert Fraction(books.reserved) == self.reserved()
            assert books.n_open == len(self.of("open")) and books.n_held == len(
                self.of("held")
            )
            assert books.n_expired == len(self.of("expired"))
            assert books.n_committed == money.counts["committed"]
            assert books.n_refunded == money.counts["refunded"]
            pending = [self.made[n].offer for n in self.of("open")]
            expected = sum(offer.deciding + offer.cost for offer in pending)
            assert books.pending == expected
        books = self.ledger.books("tenant")
        counts = self.money["tenant"].counts
        assert (books.n_started, books.n_rejected) == (
            counts["started"],
            counts["rejected"],
        )
        assert books.n_expected == self.money["tenant"].n_expected
        unsettled = self.ledger.unsettled("tenant")
        numbers = [reservation.number for reservation in unsettled]
        assert sorted(numbers) == sorted(self.of("open") + self.of("expired"))
        for reservation in unsettled:
            made = self.made[reservation.number]
            assert reservation.state == self.states[reservation.number]
            assert reservation.offer == made.offer
            assert reservation.ledger == made.ledger
            assert reservation.purses == self.purses


class InMemory(Machine):
    def make(self):
        self.ledger = MemoryLedger(TIMEOUT, REMEMBER)

    def again(self):
        # Another ledger; what was open can be settled in it.
        self.ledger = copy.deepcopy(self.ledger)
        self.set_clock()


class InDict(Machine):
    def make(self):
        self.ledger = Ledger(DictStore(), timeout=TIMEOUT, remember=REMEMBER)

    def again(self):
        """Go on with the same object, which is the only one for its books."""


class InSQLite(Machine):
    def make(self):
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "ledger.sqlite"
        self.ledger = SQLiteLedger(path, timeout=TIMEOUT, remember=REMEMBER)

    def teardown(self):
        self.folder.cleanup()


class InRedis(Machine):
    def make(self):
        prefix = uuid.uuid4().hex
        self.ledger = RedisLedger(
            redis_url(), prefix=prefix, timeout=TIMEOUT, remember=REMEMBER
        )


EXAMPLES = {InMemory: 50, InDict: 15, InSQLite: 15, InRedis: 10}
for machine, n_examples in EXAMPLES.items():
    machine.TestCase.settings = settings(
        max_examples=n_examples, stateful_step_count=25, deadline=None
    )
TestMemory = InMemory.TestCase
TestDict = InDict.TestCase
TestSQLite = InSQLite.TestCase
TestRedis = needs_redis(InRedis.TestCase)


def outcome(function, *arguments, **more):
    """Return the result of a call, or the class and the text of its error."""
    try:
        return function(*arguments, **more)
    except (ValueError, BudgetExhaustedError) as error:
        return type(error), str(error)


# Ends of months and leap days, the hours at which clocks of Europe change, new years.
DATES = [(2024, 2, 29), (2024, 3, 1), (2023, 3, 1), (2024, 3, 31, 1), (2024, 10, 27, 1)]
DATES += [(2024, 12, 31), (2025, 1, 1), (2000, 2, 29), (2100, 3, 1)]
EDGES = sorted(datetime(*date, tzinfo=UTC).timestamp() for date in DATES)


def fits(books, room, spare):
    return ONE if room >= 1 else None


def fails(books, room, spare):
    raise ValueError("no decision")


# By how much the clock moves before a call, in seconds, to and fro over edges of periods; or to
# the next of the dates above, or to the moment before it.
MOVES = [0.0, 1.0, 12.0, 30.0, 86400.0, 31 * 86400.0]
CALLS = ["reserve", "hold", "settle", "release", "top_up", "reset", "unsettled", "fail"]
CALLS += ["no purse"]
EXPIRED = ("unsettled", 12.0, ("tenant",), None, 0, False)


@settings(max_examples=60, deadline=None)
@given(
    period=st.sampled_from(["day", "month", 25.0, 0.5, 7 * 86400.0]),
    calls=st.lists(
        st.tuples(
            st.sampled_from(CALLS),
            st.sampled_from([*MOVES, *(-move for move in MOVES[1:]), "edge", "before"]),
            st.sampled_from([("tenant",), ("tenant", "monthly")]),
            st.none() | st.sampled_from("ab"),
            st.integers(0, 20),
            st.booleans(),
        ),
        min_size=4,
        max_size=16,
    ),
)
@example(
    period="day", calls=[("reserve", 0.0, ("tenant",), None, 0, False)] + [EXPIRED]
)
def test_a_period_once_begun_stays_begun(period, calls):
    ledger, now, made, holds = MemoryLedger(TIMEOUT, REMEMBER), [START], [], []
    ledger.store.now = lambda: now[0]
    terms = {"tenant": period, "monthly": "month"}
    for name, total in (("tenant", 6.0), ("monthly", 9.0)):
        ledger.open(name, total, 4, period=terms[name])
    begun = {name: period_number(terms[name], START) for name in terms}

    def seen(*purses):
        for name in purses:
            begun[name] = max(begun[name], period_number(terms[name], now[0]))

    def check():
        for name in terms:
            seen(name)
            # A deadline that has passed may have begun a later one.
            running = ledger.books(name).period
            assert running >= begun[name]
            begun[name] = running

    for kind, move, purses, key, n, look in calls:
        if isinstance(move, str):
            edge = next(edge for edge in [*EDGES, 2 * EDGES[-1]] if edge > now[0])
            now[0] = edge if move == "edge" else float(np.nextafter(edge, 0))
        else:
            now[0] += move
        named = ("tenant",)
        if kind in ("reserve", "fail"):
            named = purses
            held = holds[n % len(holds)] if holds and n % 3 == 0 else None
            choose = fits if kind == "reserve" else fails
            found = outcome(
                ledger.reserve, purses, choose, least=1.0, key=key, held=held
            )
            made += [found] if isinstance(found, Reservation) else []
        elif kind == "hold":
            named = purses
            found = outcome(ledger.hold, purses, 1.0, key)
            holds += [found] if getattr(found, "state", "") == "held" else []
        elif kind == "settle" and made:
            one = made[n % len(made)]
            found = outcome(
                ledger.settle, *one[:2], "tenant", ONE, None if n % 3 else n / 4
            )
            seen(*(one.purses if found[0] is not ValueError else ()))
        elif kind == "release" and holds:
            named = holds[n % len(holds)].purses
            ledger.release(holds[n % len(holds)])
        elif kind == "top_up":
            ledger.top_up("tenant", n / 4, 1)
        elif kind == "no purse":
            named = ()
            assert outcome(ledger.hold, (*purses, "none"), 1.0)[0] is ValueError
        else:
            getattr(ledger, "reset" if kind == "reset" else "unsettled")("tenant")
        seen(*named)
        if look:
            check()
    # Back to before all of it.
    now[0] = START
    check()


@pytest.mark.parametrize("period", ["day", "month"])
def test_days_and_months_are_those_of_utc(period, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    if hasattr(time, "tzset"):
        time.tzset()
    for now in [*np.random.default_rng(0).uniform(-1e9, 4e9, 2000), *EDGES]:
        date = datetime.fromtimestamp(now, UTC)
        day = (date - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(days=1)
        expected = {"day": day, "month": 12 * date.year + date.month - 1}[period]
        assert period_number(period, now) == expected
    monkeypatch.undo()
    if hasattr(time, "tzset"):
        time.tzset()


def test_a_file_that_cannot_be_books_is_named(tmp_path):
    missing = tmp_path / "none" / "ledger.sqlite"
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"no folder for the ledger {str(missing)!r}")
    ):
        SQLiteLedger(missing)
    assert not missing.parent.exists()
    with pytest.raises(
        OSError, match=f"{re.escape(repr(str(tmp_path)))} cannot be opened"
    ):
        SQLiteLedger(tmp_path)
    junk = tmp_path / "junk.sqlite"
    junk.write_bytes(b"this is a note and no data base, " * 100)
    before = junk.read_bytes()
    with pytest.raises(
        ValueError, match=f"{re.escape(repr(str(junk)))} is no SQLite file"
    ):
        SQLiteLedger(junk)
    assert junk.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE purses (shoes)")
    connection.close()
    with pytest.raises(ValueError, match=f"{re.escape(repr(str(other)))} is no ledger"):
        SQLiteLedger(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "junk.sqlite",
        "other.sqlite",
    ]
    newer = tmp_path / "newer.sqlite"
    SQLiteLedger(newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE ledger SET version = 99")
    with pytest.raises(ValueError, match="has the format 99, and this skroute reads 3"):
        SQLiteLedger(newer)


# Interrupts, locks and paths ---------------------------------------------------------------


PURSES = ("tenant", "all")
# Functions of a `with` statement whose end no interrupt, but a trace, can keep from releasing.
LOCKING = ("transact",)


def interrupted(call, n_lines):
    """Call, with an interrupt before a line of the ledgers' code; True if there was one."""
    left = [n_lines]

    def trace(frame, event, _):
        code = frame.f_code
        if Path(code.co_filename).parent.name != "ledgers" or code.co_name in LOCKING:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def made_ledger(kind, folder):
    if kind == "memory":
        return MemoryLedger(timeout=10.0)
    if kind == "dict":
        return Ledger(DictStore(), timeout=10.0)
    if kind == "sqlite":
        return SQLiteLedger(folder / f"{uuid.uuid4().hex}.sqlite", timeout=10.0)
    return RedisLedger(redis_url(), prefix=uuid.uuid4().hex, timeout=10.0)


def state_of(ledger):
    """Return the books of two purses, and the unsettled reservations of one purse."""
    books = [ledger.books(name) for name in ("tenant", "all")]
    # Without ledger and number, since an interrupt may use up a number.
    unsettled = [reservation[2:] for reservation in ledger.unsettled("tenant")]
    return books, unsettled


KINDS = ["memory", "dict", "sqlite", pytest.param("redis", marks=needs_redis)]
BOOKINGS = [
    "hold",
    "reserve",
    "reserve what was held",
    "settle",
    "release",
    "top up",
    "expire",
]


def begun(kind, folder):
    """A ledger with a hold and an open reservation."""
    ledger = made_ledger(kind, folder)
    ledger.store.now = lambda: START
    ledger.open("tenant", 10.0, 5)
    ledger.open("all", 20.0)
    held = ledger.hold(PURSES, 1.0)
    made = ledger.reserve(PURSES, lambda *_: ONE, least=1.0, key="key")
    return ledger, held, made


def book(booking, ledger, held, made):
    if booking == "hold":
        ledger.hold(PURSES, 2.0)
    elif booking == "reserve":
        ledger.reserve(PURSES, lambda *_: ONE, least=1.0, key="other")
    elif booking == "reserve what was held":
        ledger.reserve(PURSES, lambda *_: ONE, least=1.0, held=held)
    elif booking == "settle":
        ledger.settle(made.ledger, made.number, "tenant", ONE, 0.5)
    elif booking == "release":
        ledger.release(held)
    elif booking == "top up":
        ledger.top_up("tenant", 3.0, 2)
    else:
        ledger.store.now = lambda: START + 11.0
        ledger.books("tenant")


@pytest.mark.parametrize("booking", BOOKINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_at_any_line_leaves_a_booking_whole_or_undone(
    kind, booking, tmp_path
):
    expected = [begun("memory", tmp_path)]
    book(booking, *expected[0])
    if booking == "reserve what was held":
        # What is held is given back also where the decision is interrupted.
        expected.append(begun("memory", tmp_path))
        book("release", *expected[1])
    expected = [state_of(ledger) for ledger, _, _ in expected]
    # Every line in memory; some of them where a booking takes longer.
    step = 1 if kind == "memory" else 13
    for n_lines in range(1, 1000, step):
        ledger, held, made = begun(kind, tmp_path)
        before = state_of(ledger)
        call = partial(book, booking, ledger, held, made)
        if not interrupted(call, n_lines):
            break
        if state_of(ledger) == before:
            call()
        assert state_of(ledger) in expected
    assert n_lines > 10


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_that_is_interrupted_counts_no_request(kind, error, tmp_path):
    ledger = made_ledger(kind, tmp_path)
    ledger.open("tenant", 10.0, 5)
    before = ledger.books("tenant")

    def choose(*_):
        raise error

    for held in (None, ledger.hold(("tenant",), 1.0)):
        with pytest.raises(error):
            ledger.reserve(("tenant",), choose, least=1.0, held=held)
    assert ledger.books("tenant") == before


def test_an_interrupt_while_a_ledger_is_made_leaves_no_half_of_one(tmp_path):
    n_interrupts = 0
    for n_lines in range(1, 200, 3):
        path = tmp_path / f"{n_lines}.sqlite"
        if not interrupted(lambda path=path: SQLiteLedger(path), n_lines):
            break
        n_interrupts += 1
        with sqlite3.connect(path, timeout=0.1, isolation_level=None) as connection:
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master")
            }
            assert not tables or {"ledger", "purses", "reservations"} <= tables
            if tables:
                assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (
                    1,
                )
            # Nobody holds the file.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        connection.close()
        SQLiteLedger(path).open("tenant", 1.0)
    assert n_interrupts > 5


def test_a_schema_that_fails_is_not_half_made(tmp_path, monkeypatch):
    monkeypatch.setattr(
        store, "_SCHEMA", store._SCHEMA + "CREATE TABLE purses (shoes);"
    )
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(OSError, match="cannot be opened"):
        SQLiteLedger(path)
    with sqlite3.connect(path) as connection:
        assert not connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    monkeypatch.undo()
    SQLiteLedger(path).open("tenant", 1.0)


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_every_call_on_a_locked_ledger_names_it(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_PATIENCE", 0.02)
    path = tmp_path / "ledger.sqlite"
    ledger = SQLiteLedger(path)
    ledger.open("tenant", 10.0)
    held = ledger.hold(("tenant",), 1.0)
    made = ledger.reserve(("tenant",), lambda *_: ONE, least=1.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(lock)
    for call in (
        lambda: ledger.open("new", 1.0),
        lambda: ledger.hold(("tenant",), 1.0),
        lambda: ledger.reserve(("tenant",), lambda *_: ONE, least=1.0),
        lambda: ledger.settle(made.ledger, made.number, "tenant", ONE, 0.5),
        lambda: ledger.release(held),
        lambda: ledger.top_up("tenant", 1.0),
        lambda: ledger.reset("tenant"),
        lambda: ledger.books("tenant"),
        lambda: ledger.unsettled("tenant"),
        lambda: SQLiteLedger(path),
    ):
        with pytest.raises(OSError, match=f"{re.escape(repr(str(path)))} cannot be"):
            call()
    other.execute("ROLLBACK")
    other.close()
    ledger.release(held)
    ledger.settle(made.ledger, made.number, "tenant", ONE, 0.5)
    assert ledger.books("tenant").spent == 0.5


@pytest.mark.parametrize(
    "name",
    [
        ":memory:",
        "",
        "file::memory:?cache=shared",
        "file:books?mode=memory",
        "file:a.db",
    ],
)
@pytest.mark.parametrize("as_type", [str, str.encode, Path])
def test_what_is_no_file_to_sqlite_is_refused(name, as_type, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = as_type(name)
    if path == Path():
        pytest.skip("to pathlib this is the working folder")
    with pytest.raises(ValueError, match="MemoryLedger"):
        SQLiteLedger(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_type", [str, str.encode, Path])
@pytest.mark.parametrize(
    "name", ["ledger.sqlite", "a b?mode=ro.db", "./x.db", "100%25.db"]
)
def test_any_path_of_a_file_is_a_ledger_wherever_the_process_goes(
    name, as_type, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ledger = SQLiteLedger(as_type(name))
    ledger.open("tenant", 10.0)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickle.dumps(ledger)).books("tenant").total == 10.0
    assert (tmp_path / name).is_file()


@needs_redis
@pytest.mark.parametrize(
    "options",
    [
        "decode_responses=True",
        "protocol=2",
        "protocol=3",
        "protocol=3&decode_responses=yes",
        "encoding=utf-16",
        "encoding=latin-1&decode_responses=True",
        "encoding_errors=replace&decode_responses=True",
        "socket_timeout=5&socket_connect_timeout=5&health_check_interval=1",
        "retry_on_timeout=True&client_name=books&max_connections=3",
        "db=3",
    ],
)
def test_books_do_not_depend_on_the_options_of_a_redis_url(options):
    prefix = uuid.uuid4().hex
    ledger = RedisLedger(f"{redis_url()}?{options}", prefix=prefix)
    # An id of a tenant need not be ASCII.
    ledger.open("Zoë", 10.0)
    ledger.release(ledger.hold(("Zoë",), 4.0))
    made = ledger.reserve(("Zoë",), lambda *_: ONE, least=1.0, key="naïve")
    assert ledger.unsettled("Zoë") == [made]
    ledger.settle(made.ledger, made.number, "Zoë", ONE, 0.5)
    assert ledger.books("Zoë").spent == 0.5
    if options != "db=3":
        plain = RedisLedger(redis_url(), prefix=prefix)
        assert plain.books("Zoë") == ledger.books("Zoë")
