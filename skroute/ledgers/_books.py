"""What stands in the books of a purse, and how one booking changes it."""

import time
from typing import NamedTuple

from skroute.utils._compat import Integral, Real
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import is_amount


class BudgetExhaustedError(RuntimeError):
    """The remaining money pays for no choice, or the real costs exceed the total."""


class AlreadyCommittedError(ValueError):
    """A request has a key that is already committed."""


class Offer(NamedTuple):
    """A choice, its expected cost, and the amount to reserve for it.

    Attributes
    ----------
    choice : int
        Index of the choice.

    name : str
        Its name.

    cost : float
        What the call is expected to cost.

    deciding : float
        What deciding has cost; kept whatever becomes of the call.

    reserved : float
        What is held back: `deciding` and an upper bound of the call's cost.
    """

    choice: int
    name: str
    cost: float
    deciding: float
    reserved: float


class Reservation(NamedTuple):
    """Money that is reserved for one request.

    Attributes
    ----------
    ledger : str
        Identity of the ledger that issued it; a copy of a ledger in memory has another.

    number : int
        Number of the reservation in its ledger.

    purses : tuple of str
        The purses that it is held in, the request's own first.

    state : {"held", "open", "expired", "committed"}
        Held while the request is being decided, open while the call is under way, expired
        once its deadline has passed, committed where its key is remembered.

    amount : float
        What is held back.

    offer : Offer or None
        The choice; None while it is being decided.

    deadline : float or None
        Unix time at which the money returns; of a committed one, until when its key is
        remembered. None is never.

    key : str or None
        The request's own key.
    """

    ledger: str
    number: int
    purses: tuple
    state: str
    amount: float
    offer: Offer | None
    deadline: float | None
    key: str | None


class Books(NamedTuple):
    """The amounts and the counts of a purse, read at one moment.

    Attributes
    ----------
    total : float
        What may be spent: the total, what was added, and what a period carried over.

    spent : float
        Sum of what has been settled.

    reserved : float
        Sum held back for open reservations and requests that are being decided.

    pending : float
        What the open reservations are expected to cost.

    n_expected : int or None
        Requests of the period, None where unknown.

    n_started : int
        Requests that were not rejected, those that are being decided included.

    n_held : int
        Requests that are being decided.

    n_open : int
        Reservations neither settled nor expired.

    n_committed : int
        Reservations committed.

    n_refunded : int
        Reservations refunded.

    n_rejected : int
        Requests for which there was no room.

    n_expired : int
        Reservations whose deadline has passed and that nobody has settled since.

    period : int or None
        Number of the period, None where there is none.
    """

    total: float
    spent: float
    reserved: float
    pending: float
    n_expected: int | None
    n_started: int
    n_held: int
    n_open: int
    n_committed: int
    n_refunded: int
    n_rejected: int
    n_expired: int
    period: int | None


class Terms(NamedTuple):
    """What a purse was opened with."""

    total: float
    n_expected: int | None
    period: str | float | None


def check_amount(amount, name):
    """An amount of money as a float, or a ValueError that says what is wrong with it."""
    if not is_amount(amount):
        raise ValueError(
            f"{name} must be a finite number that is at least 0, got {amount!r}."
        )
    return float(amount)


def check_terms(total, n_expected=None, period=None, name="total"):
    """The terms of a purse, or a ValueError that says what is wrong with them."""
    amount = check_amount(total, name)
    if n_expected is not None and (
        not isinstance(n_expected, Integral)
        or isinstance(n_expected, bool)
        or n_expected < 1
    ):
        raise ValueError(
            f"n_expected must be a positive int or None for unknown, got {n_expected!r}."
        )
    number = isinstance(period, Real) and not isinstance(period, bool) and period > 0
    if period not in (None, "day", "month") and not number:
        raise ValueError(
            f'period must be "day", "month", a positive number of seconds or None, got {period!r}.'
        )
    n_expected = None if n_expected is None else int(n_expected)
    return Terms(amount, n_expected, float(period) if number else period)


def check_seconds(seconds, name):
    """Positive seconds, or None for never."""
    number = isinstance(seconds, Real) and not isinstance(seconds, bool) and seconds > 0
    if seconds is not None and not number:
        raise ValueError(
            f"{name} must be a positive number of seconds or None, got {seconds!r}."
        )
    return None if seconds is None or seconds == float("inf") else float(seconds)


def period_number(period, now):
    """Number of the period, of UTC days, UTC months or so many seconds, that a time lies in."""
    if period is None:
        return None
    if period == "month":
        year, month = time.gmtime(now)[:2]
        return 12 * year + month - 1
    return int(now // (86400.0 if period == "day" else period))


class Purse:
    """The books of one purse inside a transaction, with the bookings as methods.

    Its attributes are those of `Books`, and the name and the terms that it was opened with.
    """

    __slots__ = ("name", "terms", *Books._fields)

    def __init__(self, name, terms, books):
        self.name = name
        self.terms = terms
        for field, value in zip(Books._fields, books):
            setattr(self, field, value)

    @classmethod
    def opened(cls, name, terms, now):
        """A new one."""
        number = period_number(terms.period, now)
        books = (
            terms.total,
            0.0,
            0.0,
            0.0,
            terms.n_expected,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            number,
        )
        return cls(name, terms, books)

    def books(self):
        """The books as a record."""
        return Books(*[getattr(self, field) for field in Books._fields])

    def room(self):
        """What is neither spent nor reserved; the rounding of sums may use a hair more."""
        return self.total * (1 + ROUNDING) - self.spent - self.reserved

    def roll(self, now):
        """Begin the period that a time lies in, if it is later than the books' own.

        One that has begun stays begun where the clock goes back.
        """
        number = period_number(self.terms.period, now)
        if number > self.period:
            self.begin(number)

    def begin(self, number):
        """Books of a new period: nothing is spent, and what is open stays reserved."""
        self.total, self.spent, self.period = self.terms.total, 0.0, number
        self.n_expected = self.terms.n_expected
        self.n_started = self.n_held
        self.n_committed = self.n_refunded = self.n_rejected = 0

    def hold(self, amount):
        """Money for a request that is being decided."""
        self.reserved += amount
        self.n_held += 1

    def unhold(self, amount):
        """The request was decided, or will not be."""
        self.n_held -= 1
        self._return(amount)

    def reserve(self, offer):
        """Money for a call."""
        self.reserved += offer.reserved
        self.pending += offer.deciding + offer.cost
        self.n_open += 1

    def expire(self, offer):
        """The deadline has passed: all but what deciding has cost returns."""
        self._close(offer)
        self.n_expired += 1

    def settle(self, offer, cost, expired):
        """The call was made and cost this, or failed and cost None."""
        if expired:
            self.n_expired -= 1
        else:
            self._close(offer)
        if cost is None:
            self.n_refunded += 1
        else:
            self.spent += cost
            self.n_committed += 1

    def _close(self, offer):
        self.n_open -= 1
        self.spent += offer.deciding
        # Where nothing is open no rounding of sums stays.
        self.pending = (
            self.pending - offer.deciding - offer.cost if self.n_open else 0.0
        )
        self._return(offer.reserved)

    def _return(self, amount):
        self.reserved = self.reserved - amount if self.n_open or self.n_held else 0.0
