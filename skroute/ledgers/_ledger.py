"""The bookings of a ledger. A subclass keeps the books, see `_store`."""

import os
import time
import weakref
from collections.abc import Callable

from skroute.ledgers._books import (
    AlreadyCommittedError,
    Books,
    BudgetExhaustedError,
    Offer,
    Purse,
    Reservation,
    check_amount,
    check_seconds,
    check_terms,
)
from skroute.ledgers._store import Store
from skroute.utils._compat import Integral

# A child that was forked has locks and connections of its own.
_LEDGERS: "weakref.WeakSet[Ledger]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: [ledger._after_fork() for ledger in _LEDGERS]
    )


class Ledger(Store):
    """Base class of ledgers: purses (accounts) in which requests reserve and spend money.

    Every method is atomic, whoever else uses the same purses. The bookings are the same for all
    ledgers. A subclass keeps the books: it implements the methods of :class:`Store`.

    Parameters
    ----------
    timeout : float, default=None
        Seconds after which the money of a reservation that nobody has settled returns to
        its purses; None is never. A later commit is still booked.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    See Also
    --------
    Store : What a subclass implements.
    MemoryLedger, SQLiteLedger, RedisLedger : The ledgers of skroute.

    Examples
    --------
    >>> from skroute.ledgers import Ledger, MemoryLedger
    >>> isinstance(MemoryLedger(), Ledger)
    True
    """

    def __init__(self, timeout: float | None = None, remember: float = 86400.0):
        self.timeout = check_seconds(timeout, "timeout")
        self.remember = check_seconds(remember, "remember")
        _LEDGERS.add(self)

    _clock = staticmethod(time.time)

    def __repr__(self):
        return f"{type(self).__name__}()"

    def open(
        self,
        purse: str,
        total: float,
        n_expected: int | None = None,
        *,
        period: str | float | None = None,
    ) -> None:
        """Create a purse, or use the existing one if it has the same terms.

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
        terms = check_terms(total, n_expected, period)
        found = self._transact(self._open, purse, terms)
        if found != terms:
            raise ValueError(
                f"The purse {purse!r} was opened with {found._asdict()!r}, and cannot be opened "
                f"with {terms._asdict()!r}. Use top_up or reset, or another name."
            )

    def _open(self, name, terms):
        found = self._find_purse(name)
        if found is None:
            found = Purse.opened(name, terms, self._clock())
            self._add_purse(found)
        return found.terms

    def hold(
        self, purses: tuple[str, ...], amount: float, key: str | None = None
    ) -> Reservation:
        """Reserve an amount in every purse for a request, before its decision.

        Returns the reservation, or the open one of the same `key`. Raises
        :class:`BudgetExhaustedError` where it has no room, :class:`AlreadyCommittedError`
        where the key was committed.
        """
        return _returned(self._transact(self._hold, purses, amount, key))

    def _hold(self, purses, amount, key):
        now, books = self._begin(purses)
        known = self._known(purses[0], key)
        if known is not None:
            return known
        for purse in books:
            if amount > purse.room():
                books[0].n_rejected += 1
                return _exhausted(purse, amount)
        books[0].n_started += 1
        for purse in books:
            purse.hold(amount)
        return self._add_reservation(
            purses, "held", amount, None, _after(self.timeout, now), None
        )

    def release(self, held: Reservation) -> None:
        """Return the amount reserved for a request that failed before its decision."""
        self._transact(self._release, held)

    def _release(self, held):
        now, _ = self._begin(held.purses)
        self._give_back(self._find_reservation(held.number), now)

    def _give_back(self, held, now):
        """Take a hold back, unless its deadline has done so or the ledger is a copy."""
        if held is None or held.state != "held":
            return
        books = self._at(held.purses, now)
        books[0].n_started -= 1
        for purse in books:
            purse.unhold(held.amount)
        self._delete_reservation(held)

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
        None where nothing fits. It may be called again with newer books, and from another thread,
        and must not take locks. What `held` has is given back first, also where `choose` raises.
        Returns and raises as `hold` does.
        """
        return _returned(
            self._transact(self._reserve, purses, choose, least, keep, held, key)
        )

    def _reserve(self, purses, choose, least, keep, held, key):
        now, books = self._begin(purses)
        if held is not None:
            held = self._find_reservation(held.number)
            self._give_back(held, now)
        known = self._known(purses[0], key)
        if known is not None:
            return known
        own = books[0]
        full = own if len(books) == 1 else min(books, key=Purse.room)
        # What was held is there, whatever rounding makes of the sum.
        room = full.room() if held is None else max(full.room(), held.amount)
        own.n_started += 1
        spare = room
        if own.n_expected is not None:
            spare -= keep * max(own.n_expected - own.n_started, 0)
        try:
            offer = choose(own, room, spare)
        except BaseException as error:
            # Raised after the transaction: what time has done, and the hold given back, stay.
            # An interrupt is an error like any other here.
            own.n_started -= 1
            return error
        if offer is None:
            own.n_started -= 1
            own.n_rejected += 1
            return _exhausted(full, least)
        for purse in books:
            purse.reserve(offer)
        deadline = _after(self.timeout, now)
        return self._add_reservation(
            purses, "open", offer.reserved, offer, deadline, key
        )

    def settle(
        self, ledger: str, number: int, purse: str, offer: Offer, cost: float | None
    ) -> tuple[float, bool]:
        """Record the cost of a reserved call; None refunds all except the cost of deciding.

        Raises ValueError, and books nothing, where the reservation is not open or expired
        in this ledger and purse with this offer. Returns by how much more is spent, after,
        than the total of a purse (of several, the most; below 0 where all have money left),
        and whether the reservation had expired.
        """
        found = self._transact(self._settle, ledger, number, purse, offer, cost)
        if found is None:
            raise ValueError(
                f"Ticket {number} for {offer.name!r} is not open: it was committed or refunded "
                "already, was changed, or belongs to another stream."
            )
        return found

    def _settle(self, ledger, number, purse, offer, cost):
        now, books = self._begin((purse,))
        found = self._find_reservation(number)
        if found is None or found.state not in ("open", "expired"):
            return None
        if (found.ledger, found.purses[0], found.offer) != (ledger, purse, offer):
            return None
        if len(found.purses) > 1:
            books = self._at(found.purses, now)
        for one in books:
            one.settle(offer, cost, found.state == "expired")
        if found.key is None or cost is None:
            self._delete_reservation(found)
        else:
            deadline = _after(self.remember, now)
            self._replace_reservation(
                found._replace(state="committed", deadline=deadline)
            )
        return max([one.spent - one.total for one in books]), found.state == "expired"

    def books(self, purse: str) -> Books:
        """The amounts and the counts of a purse.

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
        return self._transact(lambda: self._begin((purse,))[1][0].books())

    def top_up(self, purse: str, amount: float, n_more: int = 0) -> None:
        """Add money to a purse, for the current period.

        Parameters
        ----------
        purse : str
            Its name.

        amount : float
            What is added, at least 0.

        n_more : int, default=0
            Further requests to expect, where their number is known.
        """
        amount = check_amount(amount, "amount")
        if not isinstance(n_more, Integral) or isinstance(n_more, bool) or n_more < 0:
            raise ValueError(
                f"n_more must be an int that is not negative, got {n_more!r}."
            )
        self._transact(self._top_up, purse, amount, int(n_more))

    def _top_up(self, name, amount, n_more):
        purse = self._begin((name,))[1][0]
        purse.total += amount
        if purse.n_expected is not None:
            purse.n_expected += n_more

    def reset(self, purse: str) -> None:
        """Start again with the total that the purse was opened with.

        Open reservations stay open, and are booked where they are settled.

        Parameters
        ----------
        purse : str
            Its name.
        """
        self._transact(self._reset, purse)

    def _reset(self, name):
        purse = self._begin((name,))[1][0]
        purse.begin(purse.period)

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
        return self._transact(self._unsettled, purse)

    def _unsettled(self, name):
        self._begin((name,))
        found = [
            one for one in self._find_of_purse(name) if one.state in ("open", "expired")
        ]
        return sorted(found, key=lambda one: one.number)

    def _begin(self, purses):
        """The time, and these purses after everything that was due by then.

        What time has done, deadlines that have passed and periods that have begun, is written: it
        stays done where the call is refused, and where the clock goes back.
        """
        now = self._clock()
        books = self._at(purses, now)
        for due in self._find_due(now):
            if due.state == "held":
                self._give_back(due, now)
            elif due.state == "open":
                for purse in self._at(due.purses, now):
                    purse.expire(due.offer)
                self._replace_reservation(due._replace(state="expired", deadline=None))
            else:
                self._delete_reservation(due)
        return now, books

    def _at(self, names, now):
        """These purses, in the period of this time; an error before any is changed."""
        purses = [self._find_purse(name) for name in names]
        if None in purses:
            name = names[purses.index(None)]
            raise ValueError(
                f"There is no purse {name!r} in this ledger: open it first."
            )
        for purse in purses:
            if purse.period is not None:
                purse.roll(now)
        return purses

    def _known(self, purse, key):
        """The open reservation of a key, or the error for a committed one; expired ones are past.

        Keys may be a user's, and are not quoted.
        """
        found = None if key is None else self._find_by_key(purse, key)
        if found is None:
            return None
        if found.state == "expired":
            self._replace_reservation(found._replace(key=None))
            return None
        if found.state == "open":
            return found
        return AlreadyCommittedError(
            "A request with this key was committed already: its call was made and paid. Give "
            f"another request another key (this one has {len(key)} characters)."
        )


def _after(seconds, now):
    """The time so many seconds after now; None is never."""
    return None if seconds is None else now + seconds


def _returned(found):
    """What a transaction has found, or the error that it ends with."""
    if isinstance(found, BaseException):
        raise found
    return found


def _exhausted(purse, amount):
    return BudgetExhaustedError(
        f"Not even the cheapest choice fits: it takes {amount:.6g}, and of {purse.total:.6g} in "
        f"all {purse.spent:.6g} is spent and {purse.reserved:.6g} reserved for "
        f"{purse.n_open + purse.n_held} open tickets."
    )
