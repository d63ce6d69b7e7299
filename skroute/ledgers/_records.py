"""Ledgers whose stores keep text: how a purse and a reservation are written."""

import json
from abc import abstractmethod

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._ledger import Ledger


class RecordLedger(Ledger):
    """What the stores of text share: purses are read once in a transaction, and written once.

    A subclass calls ``_finish`` at the end of each transaction, and has beside the methods of
    `Ledger` ``_read_purse(name)``, a text or None, and ``_write_purse(name, text)``.
    """

    # What a pickle holds: where the books are.
    _state: tuple[str, ...]
    _identity: str | None

    def __init__(self, timeout, remember):
        super().__init__(timeout, remember)
        self._met = {}
        self._used = {}
        self._forked()

    @abstractmethod
    def _read_purse(self, name): ...

    @abstractmethod
    def _write_purse(self, name, text): ...

    def _purse(self, name):
        if name not in self._used:
            text = self._read_purse(name)
            self._used[name] = text, None if text is None else purse_of(name, text)
        return self._used[name][1]

    def _add_purse(self, purse):
        self._used[purse.name] = None, purse

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


def text_of(*fields):
    """Fields as JSON; numbers of numpy as numbers."""
    return json.dumps(fields, default=lambda number: number.item())


def purse_of(name, text):
    """The purse that `RecordLedger._finish` has written."""
    fields = json.loads(text)
    n_terms = len(Terms._fields)
    return Purse(name, Terms(*fields[:n_terms]), Books(*fields[n_terms:]))
