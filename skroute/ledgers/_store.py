"""The interface of a store, which has the purses and reservations of a ledger."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from skroute.ledgers._books import Offer, Purse, Reservation


class Store(ABC):
    """Abstract base class for the store of a ledger.

    A :class:`Ledger` keeps its books in a store. It reads and changes them by the
    methods of this class alone. To keep the books in another database, write a
    subclass that implements the abstract methods, and give an object of it to `Ledger`.

    A store keeps two kinds of records:

    - A **purse** has a name (``purse.name``), its terms (``purse.terms``, a named
      tuple), and its amounts and counts (``purse.books()``, a :class:`Books`). `Ledger`
      changes a purse in place. A store that reads a purse from a database creates it
      by ``Purse(name, Terms(*terms), Books(*books))``. `Purse` and `Terms` are in
      ``skroute.ledgers._books``. ``RecordStore`` in ``skroute/ledgers/_records.py``
      writes purses as text.
    - A :class:`Reservation` is a tuple of values, and is never changed in place. Its
      field `ledger` is the identity of the books: a text, for example a UUID, that is
      made with the books and kept with them. All processes read the same identity.

    Numbers may be scalars of numpy. What a store returns must be equal to what it got:
    tuples stay tuples, and floats keep all their digits. The `period` of terms is a
    text, a number or None.

    `Ledger` calls the methods inside of a transaction: while :meth:`transact` runs its
    function. The exceptions are :meth:`transact` itself and :meth:`after_fork`. The
    results of the methods contain the changes that the same transaction has made
    before.

    See Also
    --------
    Ledger : The bookings, for any store.
    MemoryLedger, SQLiteLedger, RedisLedger : The ledgers with a store of skroute.

    Notes
    -----
    A ledger is copied and pickled with its store. ``copy.copy`` of a ledger also copies
    the store by ``copy.copy``. A pickle of a store should have the address of the
    database, and no connection. If a store has the books themselves, its copy is the
    store of another ledger: see :meth:`after_fork`.

    Several ledgers may have the same store.

    Examples
    --------
    >>> from skroute.ledgers import MemoryLedger, Store
    >>> isinstance(MemoryLedger().store, Store)
    True
    """

    @abstractmethod
    def transact(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``body(*arguments)``, run as one transaction.

        No other transaction on the same books overlaps it: use a lock, or the
        transactions of the database. All changes that `body` makes are kept if it
        returns. None of them is kept if it raises, and the error is raised again. An
        interrupt is such an error.

        A store without a lock may find out at the end that another process has changed
        the books meanwhile. It then forgets all changes, and calls `body` again.

        Any thread may call this method. `body` does not call it.

        Parameters
        ----------
        body : callable
            Reads and changes the books by the other methods of this store.

        *arguments : object
            Positional arguments of `body`.

        Returns
        -------
        object
            The result of `body`. It may be an error that was not raised: the changes
            are kept then, too.
        """

    @abstractmethod
    def after_fork(self) -> None:
        """Make the store usable in a child process that was forked.

        It is called in the child, outside of a transaction, if a ledger has the store.
        No other thread runs in the child then. Another thread of the parent may have
        been in the middle of a transaction.

        Replace locks of threads and connections: those of the parent must be neither
        used nor closed. A file that is locked by its descriptor is opened again.

        If the books are in a file or in a database, they and their identity stay. If
        the fork has copied the books themselves, the child has other books, and they
        need a new identity. The child may give back the amounts of held reservations,
        whose requests go on in the parent alone.
        """

    @abstractmethod
    def find_purse(self, name: str) -> Purse | None:
        """Return the purse of a name, or None if there is none.

        `Ledger` changes the returned object. At the end of the transaction, the store
        keeps its new state. A second call in the same transaction returns the same
        object.

        Parameters
        ----------
        name : str
            Any text. Windows are stored as purses, too.

        Returns
        -------
        Purse or None
            None: no purse of this name was added.
        """

    @abstractmethod
    def add_purse(self, purse: Purse) -> None:
        """Keep a new purse, whose name no other has.

        Parameters
        ----------
        purse : Purse
            The changes that the transaction makes to it later are kept, too.
        """

    @abstractmethod
    def add_reservation(
        self,
        purses: tuple[str, ...],
        state: str,
        amount: float,
        *,
        offer: Offer | None,
        deadline: float | None,
        key: str | None,
    ) -> Reservation:
        """Keep and return a new reservation.

        The arguments are the fields of :class:`Reservation` of the same names. The
        store sets the other two fields. The field `ledger` is the identity of the
        ledger. The field `number` is an int that was never given to another
        reservation of this identity, not even to a deleted one.

        Parameters
        ----------
        purses : tuple of str
            Names of the purses, at least one. All of them exist.

        state : {"held", "open", "failed"}
            State of the new reservation.

        amount : float
            Reserved amount.

        offer : Offer or None
            The choice. None: there is none, as in a held reservation.

        deadline : float or None
            Seconds since 1970, by the clock of :meth:`now`. None: it is never due.

        key : str or None
            Identity of the request. `Ledger` makes sure that no other reservation with
            the same first purse has the same key. None: it has none. Many reservations
            have none.

        Returns
        -------
        Reservation
        """

    @abstractmethod
    def find_reservation(self, number: int) -> Reservation | None:
        """Return the reservation with a number, or None if there is none.

        Parameters
        ----------
        number : int
            It may be of another ledger, or of a deleted reservation.

        Returns
        -------
        Reservation or None
            None: it was never added, or is deleted.
        """

    @abstractmethod
    def replace_reservation(self, reservation: Reservation) -> None:
        """Keep a changed reservation in place of the one with the same number.

        Parameters
        ----------
        reservation : Reservation
            Its state and its deadline may be others than before. Its key is that from
            before, or None. If it is None, the key from before is free for another
            reservation. The other fields are the same. The one with the same number
            exists.
        """

    @abstractmethod
    def delete_reservation(self, reservation: Reservation) -> None:
        """Remove a reservation. Its key is free for another one.

        Parameters
        ----------
        reservation : Reservation
            It exists, and is as the store has returned it.
        """

    @abstractmethod
    def find_by_key(self, purse: str, key: str) -> Reservation | None:
        """Return the reservation with a key whose first purse is `purse`, or None.

        Parameters
        ----------
        purse : str
            Name of a purse.

        key : str
            Identity of a request. Requests of different purses may have the same key.

        Returns
        -------
        Reservation or None
            None: no reservation has the key now.
        """

    @abstractmethod
    def find_due(self, now: float) -> list[Reservation]:
        """Return the reservations whose deadline is not after `now`, in any order.

        Most transactions begin with this call, and mostly no reservation is due. An
        index by deadline makes it fast.

        Parameters
        ----------
        now : float
            Seconds since 1970. It may be earlier than in a call before.

        Returns
        -------
        list of Reservation
            In any state. A reservation without a deadline is never due. The list stays
            as it is if reservations are changed or deleted later.
        """

    @abstractmethod
    def find_of_purse(self, purse: str) -> list[Reservation]:
        """Return the reservations whose first purse is `purse`, in any order.

        Parameters
        ----------
        purse : str
            Name of a purse.

        Returns
        -------
        list of Reservation
            In any state.
        """

    def now(self) -> float:
        """Return the time in seconds since 1970.

        It is the time of this machine. A store whose server has a clock replaces this
        method, so that all hosts have the same time. The returned time may be behind
        that of the server, and must never be ahead.
        """
        return time.time()

    def clock_lag(self) -> float:
        """Return how many seconds :meth:`now` may at most be behind the store's clock.

        It is 0 if all processes share one clock, and never negative. A store that
        replaces :meth:`now` also replaces this method if the time of its server is
        only known with an error. Windows need it: no amount is free too early.
        """
        return 0.0
