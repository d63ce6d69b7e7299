"""A ledger over any store with transactions: seven methods say how records are kept."""

import time
from abc import abstractmethod

from skroute.ledgers._books import (
    Purse,
    check_amount,
    check_terms,
    chosen,
    committed_already,
    exhausted,
    not_open,
    spare_room,
)
from skroute.ledgers._ledger import Ledger
from skroute.utils._compat import Integral


class TransactionLedger(Ledger):
    """The bookings of a ledger, over a store with transactions.

    A subclass implements, all of them but the first called inside a transaction:

    ``_transaction()``
        A context manager: at its end everything is written, or nothing after an error.
    ``_load(name)``, ``_save(purse)``
        The :class:`Purse` of a name, or None; and write it back.
    ``_insert(purses, state, amount, offer, deadline, key)``
        A new `Reservation`, with a number that was never used.
    ``_find(number)``, ``_replace(reservation)``, ``_delete(reservation)``
        One reservation by its number, or None; write it back; remove it.
    ``_find_key(purse, key)``
        The reservation of this key that was made for this purse, or None.
    ``_due(now)``
        Reservations whose deadline is not after `now`.
    ``_all(purse)``
        Reservations made for this purse, by number.

    Parameters
    ----------
    timeout : float, default=None
        Seconds after which the money of a reservation that nobody has settled returns.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    Examples
    --------
    >>> from skroute.ledgers import MemoryLedger, TransactionLedger
    >>> issubclass(MemoryLedger, TransactionLedger)
    True
    """

    _clock = staticmethod(time.time)

    @abstractmethod
    def _transaction(self): ...

    @abstractmethod
    def _load(self, name): ...

    @abstractmethod
    def _save(self, purse): ...

    @abstractmethod
    def _insert(self, purses, state, amount, offer, deadline, key): ...

    @abstractmethod
    def _find(self, number): ...

    @abstractmethod
    def _replace(self, reservation): ...

    @abstractmethod
    def _delete(self, reservation): ...

    @abstractmethod
    def _find_key(self, purse, key): ...

    @abstractmethod
    def _due(self, now): ...

    @abstractmethod
    def _all(self, purse): ...

    def open(self, purse, total, n_expected=None, *, period=None):
        terms = check_terms(total, n_expected, period)
        with self._transaction():
            found = self._load(purse)
            if found is None:
                self._save(Purse.opened(purse, terms, self._clock()))
            else:
                check_same_terms(purse, found.terms, terms)

    def hold(self, purses, amount, key=None):
        with self._transaction():
            found = self._hold(purses, amount, key)
        return _outcome(found, amount)

    def _hold(self, purses, amount, key):
        now, books = self._begin(purses)
        known = None if key is None else self._known(purses[0], key)
        if known is not None:
            return known
        for purse in books:
            if amount > purse.room():
                books[0].n_rejected += 1
                self._save(books[0])
                return purse
        books[0].n_started += 1
        for purse in books:
            purse.hold(amount)
            self._save(purse)
        return self._insert(purses, "held", amount, None, self._deadline(now), None)

    def release(self, held):
        with self._transaction():
            now, _ = self._begin(held.purses)
            self._release(self._find(held.number), now)

    def _release(self, held, now):
        """Take a hold back, unless its deadline has done so or the ledger is a copy."""
        if held is None or held.state != "held":
            return
        for position, name in enumerate(held.purses):
            purse = self._rolled(name, now)
            purse.unhold(held.amount)
            if position == 0:
                purse.n_started -= 1
            self._save(purse)
        self._delete(held)

    def reserve(self, purses, choose, *, least, keep=0.0, held=None, key=None):
        with self._transaction():
            found = self._reserve(purses, choose, keep, held, key)
        return _outcome(found, least)

    def _reserve(self, purses, choose, keep, held, key):
        now, books = self._begin(purses)
        if held is not None:
            held = self._find(held.number)
            self._release(held, now)
            books = [self._rolled(name, now) for name in purses]
        known = None if key is None else self._known(purses[0], key)
        if known is not None:
            return known
        full = books[0] if len(books) == 1 else min(books, key=Purse.room)
        # What was held is there, whatever rounding makes of the sum.
        room = full.room() if held is None else max(full.room(), held.amount)
        own = books[0]
        own.n_started += 1
        try:
            offer = chosen(choose, own, room, spare_room(own, room, keep))
        except Exception as error:
            # Raised below: what time has done, and the hold that is given back, stay.
            return error
        if offer is None:
            self._save(own)
            return full
        for purse in books:
            purse.reserve(offer)
            self._save(purse)
        return self._insert(purses, "open", offer.reserved, offer, self._deadline(now), key)

    def settle(self, ledger, number, purse, offer, cost):
        with self._transaction():
            found = self._settle(ledger, number, purse, offer, cost)
        if found is None:
            raise not_open(number, offer.name)
        return found

    def _settle(self, ledger, number, purse, offer, cost):
        now, _ = self._begin((purse,))
        found = self._find(number)
        if (
            found is None
            or found.state not in ("open", "expired")
            or found.offer != offer
            or found.ledger != ledger
            or found.purses[0] != purse
        ):
            return None
        books = [self._rolled(name, now) for name in found.purses]
        for changed in books:
            changed.settle(offer, cost, found.state == "expired")
            self._save(changed)
        if found.key is None or cost is None:
            self._delete(found)
        else:
            until = None if self.remember is None else now + self.remember
            self._replace(found._replace(state="committed", deadline=until))
        return max([one.spent - one.total for one in books]), found.state == "expired"

    def books(self, purse):
        with self._transaction():
            return self._begin((purse,))[1][0].books()

    def top_up(self, purse, amount, n_more=0):
        amount, n_more = check_top_up(amount, n_more)
        with self._transaction():
            found = self._begin((purse,))[1][0]
            found.total += amount
            if found.n_expected is not None:
                found.n_expected += n_more
            self._save(found)

    def reset(self, purse):
        with self._transaction():
            found = self._begin((purse,))[1][0]
            found.begin(found.terms.total, found.period)
            self._save(found)

    def unsettled(self, purse):
        with self._transaction():
            self._begin((purse,))
            return [one for one in self._all(purse) if one.state in ("open", "expired")]

    def _deadline(self, now):
        return None if self.timeout is None else now + self.timeout

    def _begin(self, purses):
        """The time, and the books of these purses after everything that was due by then.

        What time has done, deadlines that have passed and periods that have begun, is written: it
        stays done where the call is refused, and where the clock goes back.
        """
        # One that is not there is an error before anything is written.
        books = [self._there(name) for name in purses]
        now = self._clock()
        for due in self._due(now):
            if due.state == "held":
                self._release(due, now)
            elif due.state == "open":
                for name in due.purses:
                    purse = self._rolled(name, now)
                    purse.expire(due.offer)
                    self._save(purse)
                self._replace(due._replace(state="expired", deadline=None))
            else:
                self._delete(due)
            books = None
        if books is None:
            return now, [self._rolled(name, now) for name in purses]
        return now, [self._roll(purse, now) for purse in books]

    def _there(self, name):
        purse = self._load(name)
        if purse is None:
            raise no_purse(name)
        return purse

    def _roll(self, purse, now):
        if purse.period is not None and purse.roll(now):
            self._save(purse)
        return purse

    def _rolled(self, name, now):
        return self._roll(self._there(name), now)

    def _known(self, purse, key):
        """The open or committed reservation of a key; an expired one is past."""
        found = self._find_key(purse, key)
        if found is not None and found.state == "expired":
            self._replace(found._replace(key=None))
            return None
        return found


def _outcome(found, amount):
    """A reservation, or as an error: a committed one, the purse that has no room, or its own."""
    if isinstance(found, Exception):
        raise found
    if isinstance(found, Purse):
        raise exhausted(found, amount)
    if found.state == "committed":
        raise committed_already(found.key)
    return found


def check_same_terms(purse, found, terms):
    """Refuse to open a purse that has other terms."""
    if found != terms:
        raise ValueError(
            f"The purse {purse!r} was opened with {found._asdict()!r}, and cannot be opened with "
            f"{terms._asdict()!r}. Use top_up or reset, or another name."
        )


def check_top_up(amount, n_more):
    """What a top-up may be."""
    found = check_amount(amount, "amount")
    if not isinstance(n_more, Integral) or isinstance(n_more, bool) or n_more < 0:
        raise ValueError(f"n_more must be an int that is not negative, got {n_more!r}.")
    return found, int(n_more)


def no_purse(name):
    """What to say of a purse that is not there."""
    return ValueError(f"There is no purse {name!r} in this ledger: open it first.")
