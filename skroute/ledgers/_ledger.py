"""The interface of a ledger."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from skroute.ledgers._books import Books, Offer, Reservation, check_seconds


class Ledger(ABC):
    """Purses that requests reserve money in and pay from.

    Every method is atomic, whoever else uses the same purses. A subclass that keeps its
    books in a database with transactions derives from :class:`TransactionLedger` and says
    how a record is read and written; one whose database runs scripts derives from this
    class.

    Parameters
    ----------
    timeout : float, default=None
        Seconds after which the money of a reservation that nobody has settled returns to
        its purses; None is never. A later commit is still booked.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    See Also
    --------
    MemoryLedger, SQLiteLedger, RedisLedger : The ledgers that there are.

    Examples
    --------
    >>> from skroute.ledgers import Ledger, MemoryLedger
    >>> isinstance(MemoryLedger(), Ledger)
    True
    """

    def __init__(self, timeout: float | None = None, remember: float = 86400.0):
        self.timeout = check_seconds(timeout, "timeout")
        self.remember = check_seconds(remember, "remember")

    def _about(self):
        """Where the books are, as texts, and the purses that this object has met."""
        return (), ()

    def __repr__(self):
        # Without a look at the books: it may be asked for in the middle of a booking.
        place, purses = self._about()
        named = [repr(name) for name in purses]
        named[5:] = [f"and {len(named) - 5} more"] if len(named) > 5 else []
        parts = (*place, f"purses=[{', '.join(named)}]")
        return f"{type(self).__name__}({', '.join(parts)})"

    @abstractmethod
    def open(
        self,
        purse: str,
        total: float,
        n_expected: int | None = None,
        *,
        period: str | float | None = None,
    ) -> None:
        """Make a purse, or join it where it exists with the same terms.

        Parameters
        ----------
        purse : str
            Its name.

        total : float
            What may be spent from it, in each period.

        n_expected : int, default=None
            Number of requests to come, in each period; None is unknown.

        period : {"day", "month"} or float, default=None
            After what time the books begin anew: UTC days, UTC months or so many seconds.
            None is never. The latest period that any call on the purse came in is the one
            that runs: a clock that goes back, or one of another host that is late, does not
            begin an earlier one again.

        Raises
        ------
        ValueError
            For terms that are none, or a purse that was opened with others.
        """

    @abstractmethod
    def hold(self, purses: tuple[str, ...], amount: float, key: str | None = None) -> Reservation:
        """Hold an amount in every purse for a request that is to be decided.

        Returns the reservation, or the open one of the same `key`. Raises
        :class:`BudgetExhaustedError` where it has no room, :class:`AlreadyCommittedError`
        where the key was committed.
        """

    @abstractmethod
    def release(self, held: Reservation) -> None:
        """Give back what was held for a request that failed before it was decided."""

    @abstractmethod
    def reserve(
        self,
        purses: tuple[str, ...],
        choose: Callable[[Books, float, float], Offer | None],
        *,
        least: float,
        keep: float = 0.0,
        held: Reservation | None = None,
        key: str | None = None,
    ) -> Reservation:
        """Decide and reserve.

        ``choose(books, room, spare)`` is called with the books of the first purse, the
        request counted already, the room that all purses have, and what of it remains beside
        `keep` for each request that is still expected. It returns an offer that takes at most
        `least`, which is given where `room` has it; or a larger one, given where `spare` has it; or
        None where nothing fits. It may be called again with newer books, and must not take
        locks. What `held` has is given back first, also where `choose` raises. Returns and raises
        as `hold` does.
        """

    @abstractmethod
    def settle(
        self, ledger: str, number: int, purse: str, offer: Offer, cost: float | None
    ) -> tuple[float, bool]:
        """Book what the call of a reservation has cost; None refunds all but deciding.

        Raises ValueError, and books nothing, where the reservation is not open or expired
        in this ledger and purse with this offer. Returns by how much more is spent, after,
        than the total of a purse (of several, the most; below 0 where all have money left),
        and whether the reservation had expired.
        """

    @abstractmethod
    def books(self, purse: str) -> Books:
        """Where a purse stands.

        Parameters
        ----------
        purse : str
            Its name.

        Returns
        -------
        Books

        Raises
        ------
        ValueError
            If there is none of this name.
        """

    @abstractmethod
    def top_up(self, purse: str, amount: float, n_more: int = 0) -> None:
        """Add to what may be spent, in the period that is running.

        Parameters
        ----------
        purse : str
            Its name.

        amount : float
            What is added, at least 0.

        n_more : int, default=0
            Further requests to expect, where their number is known.
        """

    @abstractmethod
    def reset(self, purse: str) -> None:
        """Begin the books anew with the total that the purse was opened with.

        Open reservations stay open, and are booked where they are settled.

        Parameters
        ----------
        purse : str
            Its name.
        """

    @abstractmethod
    def unsettled(self, purse: str) -> list[Reservation]:
        """Reservations that are open or expired, oldest first.

        After a crash, compare them with what the providers have counted: settle those that
        were called, refund the others.

        Parameters
        ----------
        purse : str
            Name of the purse that they were made for.

        Returns
        -------
        list of Reservation
        """
