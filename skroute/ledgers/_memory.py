"""Books in the memory of one process."""

import copy
import heapq
import os
import threading
import uuid

from skroute.base import ROUNDING
from skroute.ledgers._books import Reservation, chosen, exhausted, spare_room
from skroute.ledgers._transactions import TransactionLedger

# One lock for the books of all ledgers in memory. A fork waits until no book is open, so that
# a child finds neither a half-written one nor a lock that nobody will release.
_BOOKS = threading.Lock()
# How many forks lie between this process and the first one: to ask for its id takes longer.
_FORKS = 0
# A named tuple of values in their order, without the arguments by name.
_made = tuple.__new__


def _new_lock():
    """A child begins with a lock of its own: what a fork makes of a taken one is not said."""
    global _BOOKS, _FORKS
    _BOOKS = threading.Lock()
    _FORKS += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _BOOKS.acquire(),
        after_in_parent=lambda: _BOOKS.release(),
        after_in_child=_new_lock,
    )


class _Transaction:
    """The lock, and what must be seen to as soon as it is taken."""

    __slots__ = ("ledger",)

    def __init__(self, ledger):
        self.ledger = ledger

    def __enter__(self):
        _BOOKS.acquire()
        if self.ledger._forks != _FORKS:
            self.ledger._become_a_copy()

    def __exit__(self, *error):
        _BOOKS.release()


class MemoryLedger(TransactionLedger):
    """Purses of the threads of one process; gone when it ends.

    What a stream has that is given no other. A copy, by `pickle`, `copy` or a forked
    process, is another ledger with the same books: tickets that were open then can be
    settled in each of them once, and a later one only where it was issued.

    Parameters
    ----------
    timeout : float, default=None
        Seconds after which the money of a reservation that nobody has settled returns to
        its purses; None is never.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    Examples
    --------
    >>> from skroute.ledgers import MemoryLedger
    >>> ledger = MemoryLedger()
    >>> ledger.open("all tenants", 100.0, period="day")
    >>> ledger.books("all tenants").total
    100.0
    """

    def __init__(self, timeout=None, remember=86400.0):
        super().__init__(timeout, remember)
        self._purses = {}
        self._reservations = {}
        self._keys = {}
        self._deadlines = []
        self._n_issued = 0
        self._begin_own()

    def _begin_own(self):
        self._identity = uuid.uuid4().hex
        self._forks = _FORKS
        self._books_open = _Transaction(self)

    def _become_a_copy(self):
        """A purse of its own from here on, without what was held for requests under way."""
        for held in [one for one in self._reservations.values() if one.state == "held"]:
            for name in held.purses:
                self._purses[name].unhold(held.amount)
            self._purses[held.purses[0]].n_started -= 1
            del self._reservations[held.number]
        self._begin_own()

    def _transaction(self):
        return self._books_open

    def _plain(self, name):
        """A purse in whose books time changes nothing now, or None."""
        purse = self._purses.get(name)
        if purse is None or purse.period is not None or self._forks != _FORKS:
            return None
        return None if self._deadlines and self._is_due(self._clock()) else purse

    # What nearly every call is, in few steps: one purse without periods, no key, nothing held, no
    # deadline due. All else is the base's, and a test takes both ways.

    def reserve(self, purses, choose, *, least, keep=0.0, held=None, key=None):
        if key is None and held is None and len(purses) == 1:
            with _BOOKS:
                purse = self._plain(purses[0])
                if purse is not None:
                    return self._reserve_plain(purse, purses, choose, least, keep)
        return super().reserve(purses, choose, least=least, keep=keep, held=held, key=key)

    def _reserve_plain(self, purse, purses, choose, least, keep):
        room = purse.total * (1 + ROUNDING) - purse.spent - purse.reserved
        purse.n_started += 1
        spare = room if purse.n_expected is None else spare_room(purse, room, keep)
        offer = chosen(choose, purse, room, spare)
        if offer is None:
            raise exhausted(purse, least)
        purse.reserve(offer)
        deadline = None if self.timeout is None else self._clock() + self.timeout
        return self._insert(purses, "open", offer.reserved, offer, deadline, None)

    def settle(self, ledger, number, purse, offer, cost):
        with _BOOKS:
            found = self._reservations.get(number)
            if found is not None and found[2:4] == ((purse,), "open") and found.key is None:
                books = self._plain(purse)
                if books is not None and found.offer == offer and found.ledger == ledger:
                    del self._reservations[number]
                    books.settle(offer, cost, False)
                    return books.spent - books.total, False
        return super().settle(ledger, number, purse, offer, cost)

    def _load(self, name):
        return self._purses.get(name)

    def _save(self, purse):
        self._purses[purse.name] = purse

    def _insert(self, purses, state, amount, offer, deadline, key):
        number = self._n_issued
        self._n_issued += 1
        fields = (self._identity, number, purses, state, amount, offer, deadline, key)
        self._reservations[number] = made = _made(Reservation, fields)
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, number))
        if key is not None:
            self._keys[purses[0], key] = number
        return made

    def _find(self, number):
        return self._reservations.get(number)

    def _replace(self, reservation):
        before = self._reservations[reservation.number]
        self._reservations[reservation.number] = reservation
        if reservation.key is None and before.key is not None:
            del self._keys[before.purses[0], before.key]
        if reservation.deadline not in (None, before.deadline):
            heapq.heappush(self._deadlines, (reservation.deadline, reservation.number))

    def _delete(self, reservation):
        del self._reservations[reservation.number]
        if reservation.key is not None:
            del self._keys[reservation.purses[0], reservation.key]

    def _find_key(self, purse, key):
        number = self._keys.get((purse, key))
        return None if number is None else self._reservations[number]

    def _is_due(self, now):
        """Whether a deadline has passed, of one that was not settled since."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            deadline, number = deadlines[0]
            found = self._reservations.get(number)
            if found is not None and found.deadline == deadline:
                return True
            heapq.heappop(deadlines)
        return False

    def _due(self, now):
        due = []
        while self._is_due(now):
            due.append(self._reservations[heapq.heappop(self._deadlines)[1]])
        return due

    def _all(self, purse):
        return [one for one in self._reservations.values() if one.purses[0] == purse]

    def _about(self):
        return (), list(self._purses)

    def __getstate__(self):
        with self._books_open:
            state = self.__dict__.copy()
            state["_purses"] = {name: one.copied() for name, one in self._purses.items()}
            for field in ("_reservations", "_keys", "_deadlines"):
                state[field] = copy.copy(state[field])
        del state["_books_open"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._become_a_copy()
