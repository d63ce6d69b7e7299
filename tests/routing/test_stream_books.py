"""The books of streams under everything that can happen to them, beside an exact model."""

import copy
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sklearn.linear_model import Ridge

from skroute.ledgers import BudgetExhaustedError
from tests.routing.test_stream import COSTS, fitted

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Hooked(Ridge):
    """Does what a test wants while a request is being estimated."""

    during = None

    def predict(self, X):
        if Hooked.during is not None and len(X) == 1:
            Hooked.during()
        return super().predict(X)


ROUTER = fitted(200, Hooked(alpha=1e-3), budget=2.5, routing_cost=0.25)
ROW = np.array([[0.5, 0.5]])


def exit_code(child, seconds=10):
    """Run a function in a forked child; None if it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(seconds)
    code = process.exitcode
    process.kill()
    process.join()
    return code


class Books:
    """What a stream should know, in exact fractions."""

    def __init__(self, total, n_expected):
        self.total, self.n_expected = Fraction(total), n_expected
        self.spent, self.open = Fraction(0), {}
        self.n_committed = self.n_refunded = self.n_rejected = 0

    def reserved(self):
        return sum((Fraction(t.reserved) for t in self.open.values()), Fraction(0))

    def check(self, stream):
        status = stream.status()
        assert Fraction(status.spent) == self.spent
        assert Fraction(status.reserved) == self.reserved()
        assert self.spent + self.reserved() <= self.total
        counts = (len(self.open), self.n_committed, self.n_refunded, self.n_rejected)
        assert status[3:] == counts


class Streams(RuleBasedStateMachine):
    """Every cost is a multiple of 1/4, so that the floats of the stream are exact as well."""

    @initialize(total=st.integers(4, 60), n_expected=st.one_of(st.none(), st.integers(1, 3)))
    def begin(self, total, n_expected):
        total = float(total)
        self.all = [(ROUTER.stream(total, n_expected), Books(total, n_expected))]
        # A second purse of the same router, whose tickets look alike.
        self.all.append((ROUTER.stream(total, n_expected), Books(total, n_expected)))
        self.issued = []

    def pick(self, data):
        return self.all[data.draw(st.integers(0, len(self.all) - 1))]

    def note(self, books, ask):
        """Ask for a ticket and write it down."""
        room = books.total - books.spent - books.reserved()
        try:
            ticket = ask()
        except BudgetExhaustedError:
            assert room < Fraction("1.25")
            books.n_rejected += 1
            return
        assert Fraction(ticket.reserved) <= room
        assert ticket.reserved == 0.25 + ticket.cost == 0.25 + COSTS[ticket.choice]
        books.open[ticket.stream, ticket.id] = ticket
        self.issued.append(ticket)

    @rule(data=st.data(), quality=st.lists(st.integers(0, 4), min_size=3, max_size=3))
    def reserve_in_a_thread(self, data, quality):
        stream, books = self.pick(data)
        with ThreadPoolExecutor(1) as pool:
            self.note(books, pool.submit(stream.reserve, quality).result)

    @rule(data=st.data())
    def route(self, data):
        stream, books = self.pick(data)
        self.note(books, lambda: stream.route(ROW))

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), quarters=st.integers(0, 4), how=st.sampled_from("cr"))
    def settle(self, data, quarters, how):
        """Any ticket ever issued, in any stream: only where it is open."""
        stream, books = self.pick(data)
        ticket = data.draw(st.sampled_from(self.issued))
        # As from a queue: equal, not the same object.
        ticket = pickle.loads(pickle.dumps(ticket))
        cost = ticket.cost * quarters / 4
        settle = {"c": lambda: stream.commit(ticket, cost), "r": lambda: stream.refund(ticket)}[how]
        if (ticket.stream, ticket.id) not in books.open:
            with pytest.raises(ValueError, match="is not open"):
                settle()
            return
        settle()
        del books.open[ticket.stream, ticket.id]
        books.spent += Fraction(ticket.deciding) + (Fraction(cost) if how == "c" else 0)
        books.n_committed += how == "c"
        books.n_refunded += how == "r"

    @rule(data=st.data(), how=st.sampled_from(["pickle", "copy", "deepcopy"]))
    def copied(self, data, how):
        stream, books = self.pick(data)
        make = {
            "pickle": lambda s: pickle.loads(pickle.dumps(s)),
            "copy": copy.copy,
            "deepcopy": copy.deepcopy,
        }[how]
        if len(self.all) < 6:
            self.all.append((make(stream), copy.deepcopy(books)))

    @rule(data=st.data())
    def copied_while_deciding(self, data):
        stream, books = self.pick(data)
        before, copies = copy.deepcopy(books), []
        Hooked.during = lambda: copies.append(pickle.loads(pickle.dumps(stream)))
        try:
            self.note(books, lambda: stream.route(ROW))
        finally:
            Hooked.during = None
        for made in copies:
            before.check(made)
            if len(self.all) < 6:
                self.all.append((made, before))

    @rule(data=st.data(), kind=st.sampled_from([ConnectionError, KeyboardInterrupt]))
    def fails_while_deciding(self, data, kind):
        stream, books = self.pick(data)

        def fail():
            raise kind

        Hooked.during = fail
        try:
            stream.route(ROW)
        except BudgetExhaustedError:
            books.n_rejected += 1
        except kind:
            pass
        finally:
            Hooked.during = None

    @precondition(lambda self: hasattr(os, "fork"))
    @rule(data=st.data())
    def forked(self, data):
        stream, books = self.pick(data)

        def child():
            books.check(stream)
            for ticket in list(books.open.values()):
                stream.refund(ticket)
            assert stream.status().n_open == 0
            try:
                ticket = stream.reserve([1, 1, 1])
            except BudgetExhaustedError:
                return
            # A purse of its own from here on: its tickets are not the parent's next ones.
            assert ticket.stream not in {one.stream for one in self.issued}

        assert exit_code(child) == 0

    @invariant()
    def books_agree(self):
        for stream, books in getattr(self, "all", []):
            books.check(stream)


Streams.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestStreams = Streams.TestCase


@pytest.mark.slow
@FORKS
def test_a_child_forked_while_threads_use_the_stream_does_not_hang():
    stream = ROUTER.stream(1e9)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            stream.commit(stream.reserve([1, 0, 0]))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child():
        # The books are those of one moment: nothing is half written.
        status = stream.status()
        assert status.spent == 1.25 * status.n_committed
        assert status.reserved == 1.25 * status.n_open <= 1.25 * 4
        stream.commit(stream.reserve([1, 0, 0]))

    try:
        codes = [exit_code(child, seconds=5) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 20
