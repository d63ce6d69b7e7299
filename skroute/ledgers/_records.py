"""Ledgers whose stores keep text: how a purse and a reservation are written."""

import json
import threading
from abc import abstractmethod

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._ledger import Ledger


class RecordLedger(Ledger):
    """Abstract base class for ledgers whose stores keep text.

    A purse is read and written once in a transaction. One thread books at a time. A subclass
    implements four methods in place of ``_transact``, ``_find_purse`` and ``_add_purse``.
    """

    # What a pickle holds: where the books are.
    _state: tuple[str, ...]
    _identity: str | None

    def __init__(self, timeout, remember):
        super().__init__(timeout, remember)
        self._used = {}
        self._after_fork()

    def _after_fork(self):
        """No connection yet, in this process."""
        self._lock, self._connected = threading.Lock(), False

    @abstractmethod
    def _connect(self):
        """Connect to the store and set ``_identity``, before the first transaction of a process."""

    @abstractmethod
    def _run_transaction(self, body, arguments):
        """Return ``self._booked(body, arguments)``, run as one transaction.

        The rules are those of ``_transact``. Only one thread is in this method at a time.
        """

    @abstractmethod
    def _read_purse(self, name):
        """Return the text of a purse, or None if there is none of this name."""

    @abstractmethod
    def _write_purse(self, name, text):
        """Keep the text of a purse, in place of that of the same name."""

    def _transact(self, body, *arguments):
        with self._lock:
            if not self._connected:
                self._connect()
                self._connected = True
            return self._run_transaction(body, arguments)

    def _booked(self, body, arguments):
        """What ``body(*arguments)`` returns; purses that it has changed are written."""
        self._used.clear()
        found = body(*arguments)
        for name, (before, purse) in self._used.items():
            if purse is not None:
                text = text_of(*purse.terms, *purse.books())
                if text != before:
                    self._write_purse(name, text)
        return found

    def _find_purse(self, name):
        if name not in self._used:
            text, purse = self._read_purse(name), None
            if text is not None:
                fields = json.loads(text)
                terms = Terms(*fields[: len(Terms._fields)])
                purse = Purse(name, terms, Books(*fields[len(terms) :]))
            self._used[name] = text, purse
        return self._used[name][1]

    def _add_purse(self, purse):
        self._used[purse.name] = None, purse

    def _reservation(self, number, text):
        purses, state, amount, offer, deadline, key = json.loads(text)
        offer = None if offer is None else Offer(*offer)
        fields = (tuple(purses), state, amount, offer, deadline, key)
        return Reservation(self._identity, int(number), *fields)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in self._state}

    def __setstate__(self, state):
        self.__init__(**state)


def text_of(*fields):
    """Fields as JSON; numbers of numpy as numbers."""
    return json.dumps(fields, default=lambda number: number.item())
