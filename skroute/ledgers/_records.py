"""Stores that keep text: purses and reservations as JSON."""

import json
import threading
from abc import abstractmethod

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._store import Store


class RecordStore(Store):
    """Abstract base class for stores that keep text.

    A purse is read and written once in a transaction. One thread books at a time. A
    subclass implements ``_connect``, ``_run_transaction``, ``_read_purse`` and
    ``_write_purse`` in place of `transact`, `find_purse` and `add_purse`. It sets
    ``_state``. A pickle of the store has only its parameters.
    """

    # Names of the parameters of the constructor, which are the state of a pickle.
    _state: tuple[str, ...]
    # Identity of the ledger in the store, which `_connect` sets.
    _identity: str | None

    def __init__(self):
        # Purses of the present transaction: from a name to a pair of the text in the
        # store and the `Purse`. A new purse has no text yet, None. For an unknown name
        # both are None.
        self._used = {}
        self.after_fork()

    def after_fork(self):
        """Create a new lock, and let the next transaction connect to the store.

        The constructor calls this method, too.
        """
        self._lock = threading.Lock()
        self._connected = False

    @abstractmethod
    def _connect(self):
        """Connect to the store and set ``_identity``."""

    @abstractmethod
    def _run_transaction(self, body, arguments):
        """Return ``self._booked(body, arguments)``, run as one transaction.

        The rules are those of `transact`. Only one thread is in this method at a
        time.

        Parameters
        ----------
        body : callable
            Changes the books.

        arguments : tuple
            Positional arguments of `body`.

        Returns
        -------
        object
            The result of `body`.
        """

    @abstractmethod
    def _read_purse(self, name):
        """Return the text of a purse, or None if the purse does not exist."""

    @abstractmethod
    def _write_purse(self, name, text):
        """Store the text of a purse, in place of an earlier one."""

    def connect(self):
        """Connect to the store, if this process is not connected yet."""
        if not self._connected:
            self._connect()
            self._connected = True

    def transact(self, body, *arguments):
        """Return ``body(*arguments)``, run as a transaction by one thread at a time."""
        with self._lock:
            self.connect()
            return self._run_transaction(body, arguments)

    def _booked(self, body, arguments):
        """Return ``body(*arguments)``, and write the purses that it has changed.

        `arguments` is a tuple.
        """
        self._used.clear()
        result = body(*arguments)
        for name, (text_before, purse) in self._used.items():
            # None: the body has looked for a purse that does not exist.
            if purse is not None:
                text = text_of(*purse.terms, *purse.books())
                if text != text_before:
                    self._write_purse(name, text)
        return result

    def find_purse(self, name):
        """Return the purse of a name, or None. It is read once in a transaction."""
        if name not in self._used:
            text = self._read_purse(name)
            purse = None
            if text is not None:
                # The text has the terms first, then the books.
                fields = json.loads(text)
                terms = Terms(*fields[: len(Terms._fields)])
                purse = Purse(name, terms, Books(*fields[len(terms) :]))
            self._used[name] = text, purse
        _, purse = self._used[name]
        return purse

    def add_purse(self, purse):
        """Keep a new purse, which is written at the end of the transaction."""
        # None stands for the text, which the store does not have yet.
        self._used[purse.name] = None, purse

    def _reservation(self, number, text):
        """Return a reservation from its number and its text.

        Parameters
        ----------
        number : int or str

        text : str
            From :func:`text_of_reservation`: all fields except the identity of the
            ledger and the number.

        Returns
        -------
        Reservation
        """
        purses, state, amount, offer, deadline, key = json.loads(text)
        return Reservation(
            ledger=self._identity,
            number=int(number),
            purses=tuple(purses),
            state=state,
            amount=amount,
            offer=None if offer is None else Offer(*offer),
            deadline=deadline,
            key=key,
        )

    def __getstate__(self):
        """Return the parameters of the constructor, which are the whole state."""
        return {name: self.__dict__[name] for name in self._state}

    def __setstate__(self, state):
        """Create the store again from its parameters."""
        self.__init__(**state)


def text_of_reservation(reservation):
    """Return the fields of a reservation as JSON, without its ledger and number."""
    return text_of(
        reservation.purses,
        reservation.state,
        reservation.amount,
        reservation.offer,
        reservation.deadline,
        reservation.key,
    )


def text_of(*fields):
    """Return values as a JSON list. Numbers of numpy become plain numbers."""
    return json.dumps(fields, default=lambda number: number.item())
