"""The bookings of a ledger, for any store."""

import os
import weakref
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from skroute.ledgers._books import (
    AlreadyCommittedError,
    Books,
    BudgetExhaustedError,
    Offer,
    Purse,
    Reservation,
    WindowFullError,
    WindowUse,
    check_amount,
    check_seconds,
    check_terms,
)
from skroute.ledgers._store import Store
from skroute.utils._compat import Integral

# Stores of the ledgers of this process, by their `id`. They get new locks and
# connections in a forked child.
_STORES: "weakref.WeakValueDictionary[int, Store]" = weakref.WeakValueDictionary()


def _after_fork():
    """Give the stores of all ledgers of a forked child new locks and connections."""
    for store in _STORES.values():
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Ledger:
    """A ledger: accounts, called purses, from which requests spend money.

    Every method is atomic, also if other processes use the same purses. The bookings
    are the same for all ledgers. The store of a ledger keeps its purses and
    reservations. For another database, write a :class:`Store`.

    Parameters
    ----------
    store : Store
        The place where the books are kept. Several ledgers may have the same store.

    timeout : float, default=None
        Seconds after which the money of an unsettled reservation returns to its purses.
        None is never. A later commit is still booked.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    See Also
    --------
    Store : The interface of stores, for other databases.
    MemoryLedger, SQLiteLedger, RedisLedger : The ledgers with a store of skroute.

    Examples
    --------
    >>> from skroute.ledgers import Ledger, MemoryLedger
    >>> ledger = MemoryLedger()
    >>> ledger.open("all tenants", 100.0)
    >>> other = Ledger(ledger.store, timeout=5.0)  # the same books, another timeout
    >>> other.books("all tenants").total
    100.0
    """

    def __init__(
        self, store: Store, *, timeout: float | None = None, remember: float = 86400.0
    ):
        if not isinstance(store, Store):
            raise TypeError(
                f"store must be a skroute.ledgers.Store, got {type(store)}. Use "
                "MemoryLedger, SQLiteLedger or RedisLedger, or write a store."
            )
        self.store = store
        self.timeout = check_seconds(timeout, "timeout")
        self.remember = check_seconds(remember, "remember")
        _STORES[id(store)] = store

    def __repr__(self):
        """Return the names of the classes of the ledger and of its store."""
        # The repr of the store is left out, since it may contain a password.
        return f"{type(self).__name__}({type(self.store).__name__})"

    def __copy__(self):
        """Return a ledger with a copy of the store.

        The copy of a store in memory has its own books.
        """
        copied = type(self).__new__(type(self))
        copied.__setstate__({**self.__dict__, "store": copy(self.store)})
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes of a copied ledger, for `pickle` and `copy`."""
        self.__dict__.update(state)
        _STORES[id(self.store)] = self.store

    def open(
        self,
        purse: str,
        total: float,
        n_expected: int | None = None,
        *,
        period: str | float | None = None,
        window: float | None = None,
    ) -> None:
        """Create a purse, or use the existing one if it has the same terms.

        Parameters
        ----------
        purse : str
            Name of the purse.

        total : float
            Money that may be spent from it, in each period.

        n_expected : int, default=None
            Number of requests to come, in each period. None is unknown.

        period : {"day", "month"} or float, default=None
            Time after which the total is available again: a UTC day, a UTC month, or a
            number of seconds. None is never. The present period is the latest one of
            all calls on the purse. If a clock goes back, or the clock of another host
            is late, no earlier period begins again.

        window : float, default=None
            Seconds after which each used amount is free again. It makes the purse a
            window: `total` is the most that may be used in any interval of this
            length, for example requests. Streams open their windows themselves, see
            the parameter `windows` of :class:`~skroute.routing.BudgetStream`. None is a
            purse of money.

        Raises
        ------
        ValueError
            For invalid terms, or if the purse exists with other terms.
        """
        terms = check_terms(total, n_expected, period, window)
        opened = self.store.transact(self._open, purse, terms)
        if opened != terms:
            raise ValueError(
                f"The purse {purse!r} was opened with {opened._asdict()!r}, and cannot "
                f"be opened with {terms._asdict()!r}. Use top_up or reset, or another "
                "name."
            )

    def _open(self, name, terms):
        """Return the terms of the purse with a name. A new purse is created.

        Parameters
        ----------
        name : str
            Name of the purse.

        terms : Terms
            Terms of a new purse.

        Returns
        -------
        Terms
            Those of an existing purse may be others.
        """
        purse = self.store.find_purse(name)
        if purse is None:
            purse = Purse.opened(name, terms, self.store.now())
            self.store.add_purse(purse)
        return purse.terms

    def hold(
        self, purses: tuple[str, ...], amount: float, key: str | None = None
    ) -> Reservation:
        """Reserve an amount in every purse for a request, before its decision.

        Parameters
        ----------
        purses : tuple of str
            Names of the purses. The first purse counts the request.

        amount : float
            The amount to reserve in each purse.

        key : str, default=None
            Identity of the request.

        Returns
        -------
        Reservation
            A new one, or the open one of the same `key`.

        Raises
        ------
        BudgetExhaustedError
            If the amount does not fit.
        AlreadyCommittedError
            If the request of the key is committed.
        """
        return _raise_if_error(self.store.transact(self._hold, purses, amount, key))

    def _hold(self, purses, amount, key):
        """Do the booking of `hold`. Return its reservation, or the error to raise.

        An error is returned, and not raised, so that the transaction is stored: it has
        booked passed deadlines and counted a rejected request.

        Parameters
        ----------
        purses : tuple of str
            Names of the purses. The first counts the request.

        amount : float
            The amount to reserve in each purse.

        key : str or None
            Identity of the request. None: it has none.

        Returns
        -------
        Reservation or Exception
        """
        now, all_purses = self._begin(purses)
        earlier = self._find_earlier(all_purses[0], key)
        if earlier is not None:
            return earlier  # the open reservation of the key, or an error
        for purse in all_purses:
            if amount > purse.room():
                all_purses[0].n_rejected += 1
                return _exhausted(purse, amount)
        all_purses[0].n_started += 1
        for purse in all_purses:
            purse.hold(amount)
        # The key is None: the reservation that `reserve` adds later has the key.
        return self.store.add_reservation(
            purses,
            "held",
            amount,
            offer=None,
            deadline=_after(self.timeout, now),
            key=None,
        )

    def release(self, held: Reservation) -> None:
        """Free the amount held for a request that failed before its decision."""
        self.store.transact(self._release, held)

    def _release(self, held):
        """Release the amount of a held reservation, for `release`."""
        now, _ = self._begin(held.purses)
        give_back(self.store, self.store.find_reservation(held.number), now)

    def reserve(
        self,
        purses: tuple[str, ...],
        choose: Callable[[Books, float, float], Offer | None],
        *,
        least: float,
        keep: float = 0.0,
        held: Reservation | None = None,
        key: str | None = None,
        uses: Mapping[int, tuple[WindowUse, ...]] | None = None,
    ) -> Reservation:
        """Decide about a request, and reserve the money for its choice, in one booking.

        Parameters
        ----------
        purses : tuple of str
            Names of the purses. The first purse counts the request.

        choose : callable
            Called as ``choose(books, room, spare)``. `books` are those of the first
            purse, and count the request. `room` is the money that is free in all
            purses. `spare` is `room` minus `keep` for each request that is still
            expected. It returns an offer of at most `least` if `room` pays for it, or a
            larger offer if `spare` pays for it. It returns None if nothing fits. It may
            be called again with newer books, and from another thread. It must not take
            locks.

        least : float
            The smallest amount that a choice takes.

        keep : float, default=0.0
            Money that is kept for each request that is still expected.

        held : Reservation, default=None
            From `hold`. Its amount is released first, also if `choose` raises an error.
            None: no amount is held for the request.

        key : str, default=None
            Identity of the request. None: it has none.

        uses : mapping from int to tuple of WindowUse, default=None
            By index of a choice with windows, the amounts that its call uses of them.
            The amounts of the offered choice are booked together with its money. With
            `uses`, `choose` is also called with the keyword `full`, the frozenset of
            the choices of which a window has no room. It must offer none of these.
            None: no choice has windows.

        Returns
        -------
        Reservation
            A new one, or the open one of the same `key`.

        Raises
        ------
        BudgetExhaustedError
            If `choose` returns None.
        WindowFullError
            If `choose` returns None, a window is full, and `room` is at least `least`.
        AlreadyCommittedError
            If the request of the key is committed.
        """
        return _raise_if_error(
            self.store.transact(
                self._reserve, purses, choose, least, keep, held, key, uses
            )
        )

    def _reserve(self, purses, choose, least, keep, held, key, uses):
        """Do the booking of `reserve`. Return its reservation, or the error to raise.

        An error is returned, and not raised, so that the transaction is stored: it has
        booked passed deadlines and released the held amount.

        Parameters
        ----------
        purses : tuple of str
            Names of the purses. The first counts the request.

        choose : callable
            ``choose(books, room, spare)`` returns an offer, or None if nothing fits.
            `room` is the money that is free in all purses. `spare` is `room` minus
            `keep` for each request that is still expected.

        least : float
            The smallest amount that a choice takes.

        keep : float
            Money that is kept for each request that is still expected.

        held : Reservation or None
            Its amount is released first. None: no amount is held for the request.

        key : str or None
            Identity of the request. None: it has none.

        uses : mapping from int to tuple of WindowUse, or None
            Amounts that the call of each choice uses of its windows. `choose` is then
            also called with the keyword `full`, the choices of which a window has no
            room. None: no choice has windows.

        Returns
        -------
        Reservation or BaseException
        """
        now, all_purses = self._begin(purses)
        if held is not None:
            held = self.store.find_reservation(held.number)
            give_back(self.store, held, now)
        first_purse = all_purses[0]
        # The open reservation of the same key, or an error if its call is paid. None:
        # the request must be decided.
        earlier = self._find_earlier(first_purse, key)
        if earlier is not None:
            return earlier
        # The purse with the least room limits the request.
        fullest = min(all_purses, key=Purse.room)
        room = fullest.room()
        if held is not None:
            # The held amount was released above. It fits, even if the room is a little
            # smaller by rounding.
            room = max(room, held.amount)
        first_purse.n_started += 1
        spare = room
        if first_purse.n_expected is not None:
            spare -= keep * max(first_purse.n_expected - first_purse.n_started, 0)
        # Choices whose call would exceed a window (a rate limit).
        full = frozenset()
        try:
            if uses is None:
                offer = choose(first_purse, room, spare)
            else:
                full = self._full_choices(uses, now)
                offer = choose(first_purse, room, spare, full=full)
        except BaseException as error:
            # The error is raised after the transaction, so that passed deadlines and
            # the released amount are stored. An interrupt is treated in the same way.
            first_purse.n_started -= 1
            return error
        if offer is None:
            # No choice fits.
            first_purse.n_started -= 1
            first_purse.n_rejected += 1
            if full and least <= room:
                return _windows_full(len(full))
            return _exhausted(fullest, least)
        for purse in all_purses:
            purse.reserve(offer)
        if uses is not None:
            self._use_windows(uses.get(offer.choice, ()), now)
        deadline = _after(self.timeout, now)
        return self.store.add_reservation(
            purses, "open", offer.reserved, offer=offer, deadline=deadline, key=key
        )

    def _full_choices(self, uses, now):
        """Return the choices whose call would exceed a window (a rate limit).

        Parameters
        ----------
        uses : dict from int to tuple of WindowUse
            Amounts that a call of each choice uses of its windows.
        now : float
            Seconds since 1970.

        Returns
        -------
        frozenset of int
            Positions of the choices.
        """
        full = set()
        for choice, uses_of_choice in uses.items():
            for use in uses_of_choice:
                # A window is stored as a purse.
                (window,) = purses_now(self.store, (use.window,), now)
                if use.amount > window.room():
                    full.add(choice)
        return frozenset(full)

    def _use_windows(self, uses_of_choice, now):
        """Count a call against the windows (rate limits) of its choice.

        A window is stored as a purse. A used amount is stored as a held reservation,
        and is free again after the deadline of the reservation. A failed call does not
        return its amounts, since its provider has counted them.

        The clock of the store may be late, and is never ahead. The deadline is
        therefore counted from the latest time that it can be now. So the amount is used
        for at least the length of the window, also if another host releases it.

        Parameters
        ----------
        uses_of_choice : tuple of WindowUse
            Empty for a choice without windows.

        now : float
            Seconds since 1970, by which the purses are read.
        """
        # The time is read again, since the store may have corrected its clock, and the
        # lag of this clock, after `now` was read.
        latest_now = self.store.now() + self.store.clock_lag()
        for use in uses_of_choice:
            # A window is stored as a purse. Its `total` is the most that may be used.
            (window,) = purses_now(self.store, (use.window,), now)
            window.n_started += 1
            window.hold(use.amount)
            self.store.add_reservation(
                (use.window,),
                "held",
                use.amount,
                offer=None,  # no money is reserved
                deadline=latest_now + window.terms.window,
                key=None,  # it is not a request
            )

    def settle(
        self, ledger: str, number: int, purse: str, offer: Offer, cost: float | None
    ) -> tuple[float, bool]:
        """Record the cost of a call.

        Parameters
        ----------
        ledger : str
            Identity of the ledger that issued the reservation.

        number : int
            Number of the reservation.

        purse : str
            Name of the first purse of the reservation.

        offer : Offer
            The offer that it was made for.

        cost : float or None
            Cost of the call. None refunds all but the cost of deciding.

        Returns
        -------
        excess : float
            Money spent beyond the total, the largest of all purses. It is negative if
            all have money left.

        expired : bool
            True if the reservation had passed its deadline.

        Raises
        ------
        ValueError
            If no open or expired reservation has this ledger, number, purse and offer.
            Nothing is booked.
        """
        settled = self.store.transact(self._settle, ledger, number, purse, offer, cost)
        if settled is None:
            raise _not_open(number, offer)
        return settled

    def _settle(self, ledger, number, purse, offer, cost):
        """Do the booking of `settle`. Return its result.

        The result is None if the reservation does not exist or is not unsettled.

        Parameters
        ----------
        ledger : str
            Identity of the ledger that issued the reservation.

        number : int
            Number of the reservation.

        purse : str
            Name of the first purse of the reservation.

        offer : Offer

        cost : float or None
            None: the call failed.

        Returns
        -------
        (excess, expired) : (float, bool), or None
            Money spent beyond the total, and True if the deadline had passed.
        """
        now, all_purses = self._begin((purse,))
        reservation = self._find_unsettled(ledger, number, purse, offer)
        if reservation is None:
            return None
        # `_begin` has read the first purse.
        if len(reservation.purses) > 1:
            all_purses = purses_now(self.store, reservation.purses, now)
        expired = reservation.state == "expired"
        for paying_purse in all_purses:
            paying_purse.settle(offer, cost, expired)
        if reservation.key is None:
            self.store.delete_reservation(reservation)
        else:
            # The key of a failed call is remembered, too: the request may come again.
            state = "failed" if cost is None else "committed"
            deadline = _after(self.remember, now)
            self.store.replace_reservation(
                reservation._replace(state=state, deadline=deadline)
            )
        # Money spent beyond the total, by purse. It is negative if money is left.
        excesses = [
            paying_purse.spent - paying_purse.total for paying_purse in all_purses
        ]
        return max(excesses), expired

    def _find_unsettled(self, ledger, number, purse, offer):
        """Return the open or expired reservation with this identity, or None.

        The identity is that of the ledger, the number, the name of the first purse, and
        the offer.
        """
        reservation = self.store.find_reservation(number)
        if reservation is None or reservation.state not in ("open", "expired"):
            return None
        identity = (reservation.ledger, reservation.purses[0], reservation.offer)
        if identity != (ledger, purse, offer):
            return None
        return reservation

    def await_bill(
        self,
        ledger: str,
        number: int,
        purse: str,
        offer: Offer,
        seconds: float | None,
    ) -> None:
        """Keep the money of a call reserved until its bill is settled.

        The same request may be sent again with the same key. It still counts once.

        Parameters
        ----------
        ledger : str
            Identity of the ledger that issued the reservation.

        number : int
            Number of the reservation.

        purse : str
            Name of the first purse of the reservation.

        offer : Offer
            The offer that it was made for.

        seconds : float or None
            Time after which the reservation expires. None is never.

        Raises
        ------
        ValueError
            If no open reservation has this ledger, number, purse and offer. Nothing is
            changed.
        """
        seconds = check_seconds(seconds, "timeout")
        is_open = self.store.transact(
            self._await_bill, ledger, number, purse, offer, seconds
        )
        if not is_open:
            raise _not_open(number, offer)

    def _await_bill(self, ledger, number, purse, offer, seconds):
        """Set the deadline of an open reservation, and free its key, for `await_bill`.

        The parameters are those of `await_bill`. The result is True if the reservation
        is open. Otherwise nothing is changed.
        """
        now, _ = self._begin((purse,))
        reservation = self._find_unsettled(ledger, number, purse, offer)
        if reservation is None or reservation.state == "expired":
            return False
        key = reservation.key
        self.store.replace_reservation(
            reservation._replace(deadline=_after(seconds, now), key=None)
        )
        if key is not None:
            # This record shows that the request with this key is counted already. The
            # state "failed" of the record allows the request to be sent again.
            self.store.add_reservation(
                reservation.purses,
                "failed",
                0.0,  # the money is reserved by the awaiting reservation
                offer=None,
                deadline=_after(self.remember, now),
                key=key,
            )
        return True

    def books(self, purse: str) -> Books:
        """Return the amounts and counts of a purse.

        Parameters
        ----------
        purse : str
            Name of the purse.

        Returns
        -------
        Books
            Amounts and counts of the purse.

        Raises
        ------
        ValueError
            If the purse does not exist.
        """
        return self.store.transact(self._books, purse)

    def _books(self, name):
        """Return the amounts and counts of the purse with a name, for `books`."""
        _, (purse,) = self._begin((name,))
        return purse.books()

    def top_up(self, purse: str, amount: float, n_more: int = 0) -> None:
        """Add money to a purse, for the current period.

        Parameters
        ----------
        purse : str
            Name of the purse.

        amount : float
            Amount to add, at least 0.

        n_more : int, default=0
            Number of further requests, if their number is known.
        """
        amount = check_amount(amount, "amount")
        if not isinstance(n_more, Integral) or isinstance(n_more, bool) or n_more < 0:
            raise ValueError(
                f"n_more must be an int that is not negative, got {n_more!r}."
            )
        self.store.transact(self._top_up, purse, amount, int(n_more))

    def _top_up(self, name, amount, n_more):
        """Add money and expected requests to the purse with a name, for `top_up`."""
        _, (purse,) = self._begin((name,))
        purse.total += amount
        if purse.n_expected is not None:
            purse.n_expected += n_more

    def reset(self, purse: str) -> None:
        """Start again with the total that the purse was opened with.

        Open reservations stay open.

        Parameters
        ----------
        purse : str
            Name of the purse.
        """
        self.store.transact(self._reset, purse)

    def _reset(self, name):
        """Begin the present period of a purse again."""
        _, (purse,) = self._begin((name,))
        purse.begin(purse.period)

    def unsettled(self, purse: str) -> list[Reservation]:
        """Return the reservations that are open or expired, oldest first.

        After a crash, compare them with the bills of the providers. Settle the calls
        that are billed, and refund the others.

        Parameters
        ----------
        purse : str
            Name of the first purse of the reservations.

        Returns
        -------
        list of Reservation
            Each of them holds money, or held it until its deadline.
        """
        return self.store.transact(self._unsettled, purse)

    def _unsettled(self, name):
        """Return the open and expired reservations of a purse, for `unsettled`."""
        self._begin((name,))
        unsettled = []
        for reservation in self.store.find_of_purse(name):
            if reservation.state in ("open", "expired"):
                unsettled.append(reservation)
        return sorted(unsettled, key=lambda reservation: reservation.number)

    def _begin(self, names):
        """Begin a transaction: apply passed deadlines, and read the purses `names`.

        Passed deadlines and new periods are stored, also if the call is refused later,
        or if the clock goes back.

        Parameters
        ----------
        names : tuple of str
            Names of the purses.

        Returns
        -------
        now : float
            Seconds since 1970.

        purses : list of Purse
            The purses of these names.
        """
        now = self.store.now()
        purses = purses_now(self.store, names, now)
        for due in self.store.find_due(now):
            if due.state == "held":
                give_back(self.store, due, now)
            elif due.state == "open":
                for purse in purses_now(self.store, due.purses, now):
                    purse.expire(due.offer)
                self.store.replace_reservation(
                    due._replace(state="expired", deadline=None)
                )
            else:
                # The state is "committed" or "failed", since an "expired" reservation
                # has no deadline. The key of the reservation is forgotten.
                self.store.delete_reservation(due)
        return now, purses

    def _find_earlier(self, purse, key):
        """Return a key's open reservation, an error if its call is paid, or None.

        If the earlier call failed, or its deadline has passed, the result is None. The
        key is then free for the reservation that is made now. The count of the earlier
        request is taken back, since the request is counted again.

        Parameters
        ----------
        purse : Purse
            The first purse of the request, which counts it. It is changed in place.
        key : str or None
            None: the request is not sent again.

        Returns
        -------
        Reservation, AlreadyCommittedError or None
            None: the request is new, or is decided again.
        """
        if key is None:
            return None
        reservation = self.store.find_by_key(purse.name, key)
        if reservation is None:
            return None
        if reservation.state in ("expired", "failed"):
            if reservation.state == "expired":
                self.store.replace_reservation(reservation._replace(key=None))
            else:
                self.store.delete_reservation(reservation)
            # The count is 0 if a new period has begun after the earlier request.
            purse.n_started = max(purse.n_started - 1, 0)
            return None
        if reservation.state == "open":
            return reservation
        # The state is "committed" (the call is paid), since held reservations have no
        # key. The error does not quote the key, which may be private.
        return AlreadyCommittedError(
            "A request with this key was committed already: its call was made and "
            f"paid. Give another request another key (this one has {len(key)} "
            "characters)."
        )


def purses_now(store, names, now):
    """Return purses by name, in their present periods. Refuse unknown names.

    If a new period of a purse has begun, the purse is changed in place: nothing is
    spent in the new period. The change is stored with the transaction.

    Parameters
    ----------
    store : Store
        The store of the purses. No other transaction runs on it now.

    names : tuple of str
        Names of purses of money, or of windows, which are stored as purses.

    now : float
        Seconds since 1970.

    Returns
    -------
    list of Purse
        In the order of `names`. Changes of them are stored with the transaction.
    """
    purses = [store.find_purse(name) for name in names]
    if None in purses:
        # The first name without a purse.
        name = names[purses.index(None)]
        raise ValueError(f"There is no purse {name!r} in this ledger: open it first.")
    for purse in purses:
        if purse.period is not None:  # the purse has periods
            purse.roll(now)  # begins the present period, if it is a new one
    return purses


def give_back(store, held, now):
    """Release the amount of a held reservation, and delete the reservation.

    Parameters
    ----------
    store : Store
        The store of the reservation. No other transaction runs on it now.

    held : Reservation or None
        Nothing is done for None, which is no reservation, and in a state other than
        ``"held"``. The amount is then free already, or the reservation is that of
        another request: a copy of a ledger may have issued the same number.

    now : float
        Seconds since 1970.
    """
    if held is None or held.state != "held":
        return
    all_purses = purses_now(store, held.purses, now)
    # The first purse counts the request.
    all_purses[0].n_started -= 1
    for purse in all_purses:
        purse.unhold(held.amount)
    store.delete_reservation(held)


def _after(seconds, now):
    """Return the time that is `seconds` after `now`, or None (never) for None."""
    return None if seconds is None else now + seconds


def _raise_if_error(result):
    """Return the result of a transaction, or raise the result if it is an error."""
    if isinstance(result, BaseException):
        raise result
    return result


def _not_open(number, offer):
    """Return the error for a reservation that is not open."""
    return ValueError(
        f"Ticket {number} for {offer.name!r} is not open: it was committed or "
        "refunded already, was changed, or belongs to another stream."
    )


def _windows_full(n_full):
    """Return the error for `n_full` choices whose windows (rate limits) are full."""
    return WindowFullError(
        f"The windows of {n_full} choices have no room for this request, and the "
        "money pays for no other choice. Wait, and send it again."
    )


def _exhausted(purse, amount):
    """Return the error for an amount that does not fit a purse.

    Parameters
    ----------
    purse : Purse

    amount : float
        The smallest amount that a choice takes.

    Returns
    -------
    BudgetExhaustedError
    """
    return BudgetExhaustedError(
        f"Not even the cheapest choice fits: it takes {amount:.6g}, and of "
        f"{purse.total:.6g} in all {purse.spent:.6g} is spent and {purse.reserved:.6g} "
        f"reserved for {purse.n_open + purse.n_held} open tickets."
    )
