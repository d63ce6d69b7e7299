"""A stream and its copies: books of one moment, tickets of their own, forks. What each call does
to books stands in `tests/ledgers/test_books.py`, beside exact fractions.
"""

import copy
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from tests.routing.test_stream import fitted

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
COPIES = {
    "pickle": lambda stream: pickle.loads(pickle.dumps(stream)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def exit_code(child, seconds=10):
    """Run a function in a forked child; None if it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(seconds)
    code = process.exitcode
    process.kill()
    process.join()
    return code


@pytest.mark.parametrize("n_expected", [None, 6])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_books_of_its_moment(how, n_expected, monkeypatch):
    """One that is made while a request is being decided knows nothing of the request."""
    stream, other = (ROUTER.stream(40.0, n_expected) for _ in range(2))
    alike, opened, settled = other.route(ROW), stream.route(ROW), stream.reserve([0, 0, 4])
    stream.commit(settled, 1.0)
    before, copies = stream.books(), []
    monkeypatch.setattr(Hooked, "during", lambda: copies.append(COPIES[how](stream)))
    later = stream.route(ROW)
    monkeypatch.setattr(Hooked, "during", None)
    (copied,) = copies
    assert copied.books() == before and stream.books().n_open == 2
    own = copied.reserve(ROUTER.predict_quality(ROW)[0])
    # They look alike, and are of two streams.
    assert own[1:] == later[1:]
    for one, foreign in [(stream, own), (copied, later), (stream, alike), (copied, settled)]:
        # As from a queue: equal, not the same object.
        for settle in (one.commit, one.refund):
            with pytest.raises(ValueError, match="is not open"):
                settle(pickle.loads(pickle.dumps(foreign)))
    # What was open is settled in each of them, once.
    for one in (stream, copied):
        one.commit(pickle.loads(pickle.dumps(opened)), 0.5)
        with pytest.raises(ValueError, match="is not open"):
            one.commit(opened, 0.5)
        assert (one.status().spent, one.status().n_open) == (1.0 + 0.5 + 2 * 0.25, 1)


@pytest.mark.parametrize("kind", [ConnectionError, KeyboardInterrupt])
def test_what_fails_while_deciding_leaves_the_books_as_they_were(kind, monkeypatch):
    stream = ROUTER.stream(40.0, 6)
    before = stream.books()

    def fail():
        assert stream.books().n_held == 1
        raise kind

    monkeypatch.setattr(Hooked, "during", fail)
    with pytest.raises(kind) as caught:
        stream.route(ROW)
    if kind is ConnectionError:
        assert "predict of 'quality_estimator' with 1 rows" in caught.value.__notes__[0]
    monkeypatch.setattr(Hooked, "predict", lambda self, X: np.full((len(X), 3), np.nan))
    with pytest.raises(ValueError, match="quality_estimator must estimate finite numbers"):
        stream.route(ROW)
    assert stream.books() == before


@FORKS
def test_a_forked_child_has_a_purse_of_its_own():
    stream = ROUTER.stream(40.0, 6)
    ticket = stream.route(ROW)
    books = stream.books()

    def child():
        assert stream.books() == books
        stream.refund(ticket)
        # Its tickets are not the parent's next ones.
        assert stream.reserve([1, 1, 1]).stream != ticket.stream

    assert exit_code(child) == 0
    assert stream.books() == books


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
