"""The interface of a store, which has the purses and reservations of a ledger."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from skroute.ledgers._books import Offer, Purse, Reservation


class Store(ABC):
    """Abstract base class for the place where a ledger keeps its books.

    A :class:`Ledger` is a store with bookings. To keep the books in another database,
    write a subclass of `Ledger` that implements the methods of this class. `Ledger`
    reads and changes the books by these methods alone. It calls all of them inside
    :meth:`_transact`, except ``_transact`` and :meth:`_after_fork`.

    A store keeps two kinds of records:

    - A **purse** has a name, its terms (``purse.terms``), and its amounts and counts
      (``purse.books()``, a :class:`Books`). `Ledger` changes a purse in place. Its
      class is ``skroute.ledgers._books.Purse``, whose constructor takes the name, the
      terms and the books. ``RecordLedger`` in ``skroute/ledgers/_records.py`` writes
      purses as text.
    - A :class:`Reservation` is a tuple of values. Reservations have the identity of the
      ledger that issued them. Use one text of your own for all of them, for example a
      UUID.

    See Also
    --------
    Ledger : The bookings.
    MemoryLedger, SQLiteLedger, RedisLedger : The ledgers with a store of skroute.

    Notes
    -----
    `Ledger` takes the time from ``_clock()``, in seconds since 1970. A store whose
    server has a clock replaces it. If this clock can be behind that of the server,
    ``_clock_lag()`` returns the largest difference in seconds. Windows need it.

    Examples
    --------
    >>> from skroute.ledgers import MemoryLedger, Store
    >>> isinstance(MemoryLedger(), Store)
    True
    """

    @abstractmethod
    def _transact(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``body(*arguments)``, run as one transaction.

        No other transaction on the same books overlaps it: use a lock, or the
        transactions of the database. All changes that `body` makes are kept if it
        returns. None of them is kept if it raises, and the error is raised again. An
        interrupt is such an error.

        A store that finds out at the end that the books have changed meanwhile calls
        `body` again. The changes of the earlier call must be forgotten then.
        """

    @abstractmethod
    def _after_fork(self) -> None:
        """Make the store usable in a child process that was forked.

        Replace locks and connections: those of the parent must be neither used nor
        closed. If the fork has copied the books themselves, the child has another
        ledger. It needs a new identity. It may give back the amounts of held
        reservations, whose requests go on in the parent alone.
        """

    @abstractmethod
    def _find_purse(self, name: str) -> Purse | None:
        """Return the purse of a name, or None if there is none.

        The changes that the transaction makes to the returned object are kept with it.
        A second call in the same transaction returns the same object.
        """

    @abstractmethod
    def _add_purse(self, purse: Purse) -> None:
        """Keep a new purse, whose name no other has."""

    @abstractmethod
    def _add_reservation(
        self,
        purses: tuple[str, ...],
        state: str,
        amount: float,
        offer: Offer | None,
        deadline: float | None,
        key: str | None,
    ) -> Reservation:
        """Keep and return a new reservation.

        The arguments are fields of :class:`Reservation`. Some are passed by name. The
        field `ledger` is the identity of this ledger. The `number` was never given to
        another reservation, not even to a deleted one. No other reservation for
        ``purses[0]`` has the same `key`.
        """

    @abstractmethod
    def _find_reservation(self, number: int) -> Reservation | None:
        """Return the reservation with a number, or None if there is none."""

    @abstractmethod
    def _replace_reservation(self, reservation: Reservation) -> None:
        """Keep a changed reservation in place of the one with the same number.

        The state, the deadline and the key may have changed.
        """

    @abstractmethod
    def _delete_reservation(self, reservation: Reservation) -> None:
        """Remove a reservation. Its key is free for another one."""

    @abstractmethod
    def _find_by_key(self, purse: str, key: str) -> Reservation | None:
        """Return the reservation with a key whose first purse is `purse`, or None."""

    @abstractmethod
    def _find_due(self, now: float) -> list[Reservation]:
        """Return the reservations whose deadline is not after `now`, in any order."""

    @abstractmethod
    def _find_of_purse(self, purse: str) -> list[Reservation]:
        """Return the reservations whose first purse is `purse`, in any order."""
