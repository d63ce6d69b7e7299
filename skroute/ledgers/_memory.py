"""A ledger in the memory of one process."""

import heapq
import os
import threading
import uuid
from copy import copy
from operator import attrgetter

from skroute.ledgers._books import Books, Reservation
from skroute.ledgers._ledger import Ledger, give_back
from skroute.ledgers._store import Store

# Lock of all stores in memory. A fork waits for it, so that a child has neither a
# half-written store nor a lock that is never released.
_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire,
        after_in_parent=_LOCK.release,
        after_in_child=_LOCK.release,
    )


# Function of a purse: its amounts and counts, in the order of `Books`.
_amounts_of = attrgetter(*Books._fields)


class MemoryLedger(Ledger):
    """A ledger for the threads of one process. It is lost when the process ends.

    It is the default of a stream. A copy (by `pickle`, `copy` or a forked process) is
    another ledger with the same amounts. Tickets that were open then can be settled
    once in the ledger and once in its copy. A later ticket can be settled only in the
    ledger that issued it.

    Parameters
    ----------
    timeout : float, default=None
        Seconds after which the money of an unsettled reservation returns to its purses.
        None is never.

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
        super().__init__(MemoryStore(), timeout=timeout, remember=remember)

    def __repr__(self):
        """Return the name of the class."""
        return f"{type(self).__name__}()"


class MemoryStore(Store):
    """A store in the memory of one process.

    A copy, also in a forked process, is the store of another ledger with the same
    books. It releases the amounts of held reservations, since their requests go on in
    the original alone.
    """

    def __init__(self):
        # From a name to a `Purse`.
        self._purses = {}
        # From a number to a `Reservation`.
        self._reservations = {}
        # From a pair, the name of the first purse and a key, to the number of a
        # reservation.
        self._keys = {}
        # Heap of pairs of a deadline and the number of its reservation, the earliest
        # first. Pairs of settled or changed reservations may be in it.
        self._deadlines = []
        # Number of the next reservation.
        self._n_issued = 0
        self._identity = uuid.uuid4().hex
        self._forget_changes()

    def _forget_changes(self):
        """Forget the old values that a transaction has noted to undo its changes."""
        # Pairs of a purse, and its amounts and counts before, in the order of `Books`.
        self._purses_before = []
        # Triples of a table (a dict), a key, and the entry before, None for no entry.
        self._entries_before = []
        # Pairs of a deadline and a number that were removed from the heap.
        self._deadlines_before = []

    def transact(self, body, *arguments):
        """Return ``body(*arguments)``. All of its changes are undone if it raises."""
        with _LOCK:
            self._forget_changes()
            try:
                return body(*arguments)
            except BaseException:
                self._undo()
                raise

    def _undo(self):
        """Undo all changes of a transaction that an error or interrupt has ended."""
        for purse, amounts in reversed(self._purses_before):
            for field, amount in zip(Books._fields, amounts):
                setattr(purse, field, amount)
        for table, key, entry in reversed(self._entries_before):
            if entry is None:  # there was none
                table.pop(key, None)
            else:
                table[key] = entry
        # Deadlines that were added stay in the heap. `find_due` ignores them.
        for deadline_and_number in self._deadlines_before:
            # An interrupt may have come after the deadline was noted, and before it was
            # removed from the heap.
            if deadline_and_number not in self._deadlines:
                heapq.heappush(self._deadlines, deadline_and_number)

    def _change(self, table, key, entry):
        """Write an entry of a table, and note the old one.

        Parameters
        ----------
        table : dict
            One of the tables of this store.

        key : hashable
            Key of the entry.

        entry : object
            None removes the entry.
        """
        self._entries_before.append((table, key, table.get(key)))
        if entry is None:
            del table[key]
        else:
            table[key] = entry

    def after_fork(self):
        """Give this copied store a new identity, and release the held amounts."""
        for reservation in list(self._reservations.values()):
            if reservation.state == "held":
                give_back(self, reservation, self.now())
        self._identity = uuid.uuid4().hex

    def find_purse(self, name):
        """Return the purse of a name, or None. Note its amounts for `_undo`."""
        purse = self._purses.get(name)
        if purse is not None:
            # The transaction may change the purse in place.
            self._purses_before.append((purse, _amounts_of(purse)))
        return purse

    def add_purse(self, purse):
        """Keep a new purse."""
        self._change(self._purses, purse.name, purse)

    def add_reservation(self, purses, state, amount, *, offer, deadline, key):
        """Keep and return a new reservation, whose fields are the arguments.

        The fields are described in :class:`Reservation`.
        """
        number = self._n_issued
        self._n_issued += 1
        reservation = Reservation(
            self._identity,
            number,
            purses,
            state=state,
            amount=amount,
            offer=offer,
            deadline=deadline,
            key=key,
        )
        self._change(self._reservations, number, reservation)
        if key is not None:
            self._change(self._keys, (purses[0], key), number)
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, number))
        return reservation

    def find_reservation(self, number):
        """Return the reservation with a number, or None."""
        return self._reservations.get(number)

    def replace_reservation(self, reservation):
        """Keep a changed reservation in place of the one with the same number."""
        before = self._reservations[reservation.number]
        self._change(self._reservations, reservation.number, reservation)
        # `Ledger` changes a key only to None: the request is not remembered any longer.
        # This removes the entry of the key, which counts for the first purse.
        if reservation.key is None and before.key is not None:
            self._change(self._keys, (before.purses[0], before.key), None)
        # A new deadline is added to the heap, unless it is None (never). The old one
        # stays in the heap, where `find_due` ignores it.
        if reservation.deadline not in (None, before.deadline):
            heapq.heappush(self._deadlines, (reservation.deadline, reservation.number))

    def delete_reservation(self, reservation):
        """Remove a reservation and its key."""
        self._change(self._reservations, reservation.number, None)
        if reservation.key is not None:
            self._change(self._keys, (reservation.purses[0], reservation.key), None)

    def find_by_key(self, purse, key):
        """Return the reservation with a key whose first purse is `purse`, or None."""
        number = self._keys.get((purse, key))
        return None if number is None else self._reservations[number]

    def find_due(self, now):
        """Return the reservations whose deadline is not after `now`, as a list."""
        due = []
        while self._deadlines:
            # The earliest deadline comes first in the heap.
            deadline, number = self._deadlines[0]
            if deadline > now:
                break
            self._deadlines_before.append((deadline, number))
            heapq.heappop(self._deadlines)
            reservation = self._reservations.get(number)
            # Deadlines of settled and changed reservations are in the heap, too.
            if reservation is not None and reservation.deadline == deadline:
                due.append(reservation)
        return due

    def find_of_purse(self, purse):
        """Return the reservations whose first purse is `purse`, as a list."""
        reservations = self._reservations.values()
        return [
            reservation
            for reservation in reservations
            if reservation.purses[0] == purse
        ]

    def __getstate__(self):
        """Return a copy of the state at one moment, for `pickle` and `copy`."""
        with _LOCK:
            # Notes of the last transaction are not part of the state.
            self._forget_changes()
            state = {name: copy(value) for name, value in self.__dict__.items()}
            # Purses are changed in place, so that they are copied, too.
            state["_purses"] = {
                name: copy(purse) for name, purse in self._purses.items()
            }
        return state

    def __setstate__(self, state):
        """Set the state of a copied store, with a new identity and no held amounts."""
        self.__dict__.update(state)
        self.after_fork()
