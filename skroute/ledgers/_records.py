"""Ledgers whose stores keep text: how a purse and a reservation are written."""

import json
import threading
from abc import abstractmethod
from collections import deque

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._ledger import Ledger


class _Call:
    """A booking that a thread waits for, and what became of it."""

    def __init__(self, body, arguments):
        self.body, self.arguments = body, arguments
        self.done, self.found, self.error = False, None, None

    def end(self, found, error=None):
        self.done, self.found, self.error = True, found, error


class RecordLedger(Ledger):
    """What the stores of text share: bookings that wait for each other are one transaction.

    While a thread books, others queue; the next one books for all that wait, and purses are
    read once and written once for all of them. A subclass has beside the methods of `Ledger`:

    ``_connect()``
        Called in each process before the first transaction.
    ``_keep(bodies)``
        As ``_transact``, for one thread at a time: call ``bodies()``, then ``_finish()``.
    ``_read_purse(name)``, ``_write_purse(name, text)``
        The text of a purse, or None; and write it.
    ``_read_due(now)``
        As ``_due``, which sees to them once in a transaction.
    """

    # What a pickle holds: where the books are.
    _state: tuple[str, ...]
    _identity: str | None

    def __init__(self, timeout, remember):
        super().__init__(timeout, remember)
        self._met = {}
        self._used = {}
        self._forked()

    def _forked(self):
        """No connection yet, in this process."""
        self._lock, self._waiting, self._connected = threading.Lock(), deque(), False

    @abstractmethod
    def _connect(self): ...

    @abstractmethod
    def _keep(self, bodies): ...

    @abstractmethod
    def _read_purse(self, name): ...

    @abstractmethod
    def _write_purse(self, name, text): ...

    @abstractmethod
    def _read_due(self, now): ...

    def _transact(self, body, *arguments):
        call = _Call(body, arguments)
        self._waiting.append(call)
        try:
            with self._lock:
                if not call.done:
                    self._book()
        except BaseException as error:
            # Interrupted while it waited: nobody books it any more.
            call.end(None, error)
            raise
        if call.error is not None:
            raise call.error
        return call.found

    def _taken(self):
        """The calls that wait, taken from the queue."""
        some = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return [call for call in some if not call.done]

    def _book(self):
        """Book all calls that wait as one transaction, but for those whose body raises."""
        waiting = self._taken()

        def bodies():
            nonlocal failing
            self._used.clear()
            self._seen = False
            # Those that have come while this one waited for its turn.
            waiting.extend(self._taken())
            found = []
            for failing in waiting:
                found.append(failing.body(*failing.arguments))
            failing = None
            return found

        while waiting:
            failing = None
            try:
                if not self._connected:
                    self._connect()
                    self._connected = True
                for call, found in zip(waiting, self._keep(bodies)):
                    call.end(found)
                return
            except Exception as error:
                # An error of the store is one of all; what it has kept is not known.
                failed = waiting if failing is None else [failing]
                for call in failed:
                    call.end(None, error)
                waiting[:] = [call for call in waiting if not call.done]
            except BaseException:
                for call in waiting:
                    call.end(None, RuntimeError("The thread that booked was interrupted."))
                raise

    def _purse(self, name):
        if name not in self._used:
            text = self._read_purse(name)
            self._used[name] = text, None if text is None else purse_of(name, text)
        return self._used[name][1]

    def _add_purse(self, purse):
        self._used[purse.name] = None, purse

    def _due(self, now):
        if self._seen:
            return []
        self._seen = True
        return self._read_due(now)

    def _finish(self):
        """Write the purses that have changed."""
        for name, (before, purse) in self._used.items():
            if purse is not None:
                self._met[name] = None
                text = text_of(*purse.terms, *purse.books())
                if text != before:
                    self._write_purse(name, text)

    def _reservation(self, number, text):
        purses, state, amount, offer, deadline, key = json.loads(text)
        offer = None if offer is None else Offer(*offer)
        fields = (tuple(purses), state, amount, offer, deadline, key)
        return Reservation(self._identity, int(number), *fields)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in self._state}

    def __setstate__(self, state):
        self.__init__(**state)


_ENCODER = json.JSONEncoder(default=lambda number: number.item())


def text_of(*fields):
    """Fields as JSON; numbers of numpy as numbers."""
    return _ENCODER.encode(fields)


def purse_of(name, text):
    """The purse that `RecordLedger._finish` has written."""
    fields = json.loads(text)
    n_terms = len(Terms._fields)
    return Purse(name, Terms(*fields[:n_terms]), Books(*fields[n_terms:]))
