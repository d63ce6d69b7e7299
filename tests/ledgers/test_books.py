"""Every ledger under drawn orders of calls, beside books in exact fractions kept by hand."""

import copy
import pickle
import re
import sqlite3
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skroute.ledgers import (
    AlreadyCommittedError,
    BudgetExhaustedError,
    MemoryLedger,
    Offer,
    RedisLedger,
    SQLiteLedger,
)
from skroute.ledgers._books import Reservation, period_number
from tests.ledgers.servers import needs_redis, redis_url

TIMEOUT, REMEMBER = 10.0, 100.0
# Some time on the 31st of January 2023, UTC.
START = 1675170000.0
ONE = Offer(0, "a", 1.0, 0.0, 1.0)


class Money:
    """What a purse should say, in exact fractions."""

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
        self.ledger._clock = lambda: self.now

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
        self.money = {"tenant": Money(total, n_expected, seconds), "all": Money(shared, None, None)}
        self.ledger.open("tenant", total, n_expected, period=period)
        self.ledger.open("all", shared)
        for name, money in self.money.items():
            money.counts["held_now"] = lambda name=name: len(self.of("held", name))
        self.states, self.at, self.made = {}, {}, {}

    def of(self, state, purse="tenant"):
        # Only the first purse counts requests.
        return [n for n, s in self.states.items() if s == state and purse == "tenant"]

    def reserved(self):
        return sum(Fraction(self.made[n].amount) for n in self.of("held") + self.of("open"))

    def due(self):
        for money in self.money.values():
            money.roll(self.now)
        for number, made in self.made.items():
            if self.states[number] in ("held", "open") and self.at[number] + TIMEOUT <= self.now:
                if self.states[number] == "open":
                    for money in self.money.values():
                        money.spent += Fraction(made.offer.deciding)
                    self.states[number] = "expired"
                else:
                    self.money["tenant"].counts["started"] -= 1
                    self.states[number] = "gone"

    def room(self):
        return min(money.total - money.spent for money in self.money.values()) - self.reserved()

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
                size / 4 for size in sizes if size / 4 <= (room if size / 4 <= least else spare)
            ]
            # What deciding has cost is part of it.
            return Offer(3, "a | b", max(fits) / 2, max(fits) / 4, max(fits)) if fits else None

        same = [n for n in self.made if key and self.made[n].key == key]
        same = [n for n in same if self.states[n] in ("open", "committed")]
        held = None if held is None else self.made[held]
        counts["started"] += 1
        # What was held is there, also where a late commit has broken the cap since.
        more = 0 if promised is None else max(promised - self.room(), 0)
        room, spare = self.room() + more, self.spare(keep) + more
        expected = [s / 4 for s in sizes if s / 4 <= (room if s / 4 <= least else spare)]
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
        keyed = made.key is not None and cost is not None
        self.states[made.number] = "committed" if keyed else "gone"

    # Whether a purse may not be looked at now: a look books what is due before the next call can.
    unseen = False

    @rule(seconds=st.sampled_from([1.0, 4.0, 9.0, 30.0, 90000.0]), unseen=st.booleans())
    def wait(self, seconds, unseen):
        self.now += seconds
        self.unseen = unseen
        for number, state in self.states.items():
            # Remembered for longer than the longest test but for a day's wait.
            if state == "committed" and seconds > REMEMBER:
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
            assert Fraction(books.total) == money.total and Fraction(books.spent) == money.spent
            assert Fraction(books.reserved) == self.reserved()
            assert books.n_open == len(self.of("open")) and books.n_held == len(self.of("held"))
            assert books.n_expired == len(self.of("expired"))
            assert books.n_committed == money.counts["committed"]
            assert books.n_refunded == money.counts["refunded"]
            pending = [self.made[n].offer for n in self.of("open")]
            assert books.pending == sum(one.deciding + one.cost for one in pending)
        books = self.ledger.books("tenant")
        counts = self.money["tenant"].counts
        assert (books.n_started, books.n_rejected) == (counts["started"], counts["rejected"])
        assert books.n_expected == self.money["tenant"].n_expected
        found = {one.number: one for one in self.ledger.unsettled("tenant")}
        assert sorted(found) == sorted(self.of("open") + self.of("expired"))
        for number, one in found.items():
            assert one.state == self.states[number] and one.offer == self.made[number].offer
            assert one.ledger == self.made[number].ledger and one.purses == self.purses


class InMemory(Machine):
    def make(self):
        self.ledger = MemoryLedger(TIMEOUT, REMEMBER)

    def again(self):
        # Another ledger; what was open can be settled in it.
        self.ledger = copy.deepcopy(self.ledger)
        self.set_clock()


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
        self.ledger = RedisLedger(redis_url(), prefix=prefix, timeout=TIMEOUT, remember=REMEMBER)


EXAMPLES = {InMemory: 50, InSQLite: 15, InRedis: 10}
for machine, n_examples in EXAMPLES.items():
    machine.TestCase.settings = settings(
        max_examples=n_examples, stateful_step_count=25, deadline=None
    )
TestMemory = InMemory.TestCase
TestSQLite = InSQLite.TestCase
TestRedis = needs_redis(InRedis.TestCase)


def outcome(function, *arguments, **more):
    """What a call returns, or what it says."""
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
@example(period="day", calls=[("reserve", 0.0, ("tenant",), None, 0, False)] + [EXPIRED])
def test_a_period_once_begun_stays_begun(period, calls):
    ledger, now, made, holds = MemoryLedger(TIMEOUT, REMEMBER), [START], [], []
    ledger._clock = lambda: now[0]
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
            found = outcome(ledger.reserve, purses, choose, least=1.0, key=key, held=held)
            made += [found] if isinstance(found, Reservation) else []
        elif kind == "hold":
            named = purses
            found = outcome(ledger.hold, purses, 1.0, key)
            holds += [found] if getattr(found, "state", "") == "held" else []
        elif kind == "settle" and made:
            one = made[n % len(made)]
            found = outcome(ledger.settle, *one[:2], "tenant", ONE, None if n % 3 else n / 4)
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
    with pytest.raises(OSError, match=f"{re.escape(repr(str(tmp_path)))} cannot be opened"):
        SQLiteLedger(tmp_path)
    junk = tmp_path / "junk.sqlite"
    junk.write_bytes(b"this is a note and no data base, " * 100)
    before = junk.read_bytes()
    with pytest.raises(ValueError, match=f"{re.escape(repr(str(junk)))} is no SQLite file"):
        SQLiteLedger(junk)
    assert junk.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE purses (shoes)")
    connection.close()
    with pytest.raises(ValueError, match=f"{re.escape(repr(str(other)))} is no ledger"):
        SQLiteLedger(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junk.sqlite", "other.sqlite"]
    newer = tmp_path / "newer.sqlite"
    SQLiteLedger(newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE ledger SET version = 99")
    with pytest.raises(ValueError, match="has the format 99, and this skroute reads 2"):
        SQLiteLedger(newer)
