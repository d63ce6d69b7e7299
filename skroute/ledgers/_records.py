"""Ledgers whose stores keep text: how a purse and a reservation are written."""

import json
import threading
from abc import abstractmethod

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._ledger import Ledger


class RecordLedger(Ledger):
    """What the stores of text share: purses are read and written once in a transaction.

    One thread books at a time. A subclass has beside the methods of `Ledger`:

    ``_connect()``
        Called in each process before the first transaction.
    ``_keep(body, arguments)``
        As ``_transact``, for one thread at a time, by ``_booked``.
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
        self._used = {}
        self._forked()

    def _forked(self):
        """No connection yet, in this process."""
        self._lock, self._connected = threading.Lock(), False

    @abstractmethod
    def _keep(self, body, arguments): ...

    def _transact(self, body, *arguments):
        with self._lock:
            if not self._connected:
                self._connect()
                self._connected = True
            return self._keep(body, arguments)

    def _booked(self, body, arguments):
        """What ``body(*arguments)`` returns; purses that it has changed are written."""
        self._used.clear()
        self._seen = False
        found = body(*arguments)
        for name, (before, purse) in self._used.items():
            if purse is not None:
                text = text_of(*purse.terms, *purse.books())
                if text != before:
                    self._write_purse(name, text)
        return found

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
    """The purse that `RecordLedger._booked` has written."""
    fields = json.loads(text)
    n_terms = len(Terms._fields)
    return Purse(name, Terms(*fields[:n_terms]), Books(*fields[n_terms:]))
