"""A purse (an account of money): its amounts and counts, and how they change."""

import time
from typing import NamedTuple

from skroute.utils._compat import Integral, Real
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import is_amount

_SECONDS_OF_A_DAY = 86400.0


class BudgetExhaustedError(RuntimeError):
    """The remaining money pays for no choice, or the real costs exceed the total."""


class WindowFullError(RuntimeError):
    """The rate limits (windows) of all choices that the money pays for are full.

    A window empties with time: wait, and send the request again.
    """


class AlreadyCommittedError(ValueError):
    """A request has the key of an earlier request, whose call is already paid."""


class Offer(NamedTuple):
    """A choice, its expected cost, and the amount to reserve for it.

    Attributes
    ----------
    choice : int
        Index of the choice.

    name : str
        Name of the choice.

    cost : float
        Expected cost of the call.

    deciding : float
        Cost of deciding. It is spent, also if the call fails.

    reserved : float
        Amount to reserve: `deciding` and an upper bound of the call's cost.
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
        Identity of the ledger that issued it. A copy of a ledger in memory has another
        identity.

    number : int
        Number of the reservation in its ledger.

    purses : tuple of str
        Names of the purses in which the amount is reserved. The first purse counts the
        request.

    state : {"held", "open", "expired", "committed", "failed"}
        - Held: the request is being decided. In a window, a held amount is what a call
          has used.
        - Open: the call is running, or its bill is awaited.
        - Expired: the deadline has passed.
        - Committed: the call is paid, and the key of the request is remembered.
        - Failed: the call failed or timed out, and the key of the request is
          remembered. If the request is sent again, it counts once.

    amount : float
        Reserved amount.

    offer : Offer or None
        The choice. None while it is being decided.

    deadline : float or None
        Unix time at which the money returns. For a committed reservation, the time at
        which its key is forgotten. None is never.

    key : str or None
        Identity of the request.
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
    """The amounts and counts of a purse (an account of money) at one moment.

    Attributes
    ----------
    total : float
        Money that may be spent: the total of the terms, and what was added later.

    spent : float
        Sum of the settled costs.

    reserved : float
        Sum of the amounts reserved for open reservations and for requests that are
        being decided.

    pending : float
        Expected cost of the open reservations.

    n_expected : int or None
        Number of requests of the period. None is unknown.

    n_started : int
        Number of requests that were not rejected, those that are being decided
        included. A request that is sent again with its key counts once.

    n_held : int
        Number of requests that are being decided.

    n_open : int
        Number of reservations that are neither settled nor expired.

    n_committed : int
        Number of committed reservations.

    n_refunded : int
        Number of refunded reservations.

    n_rejected : int
        Number of requests that did not fit.

    n_expired : int
        Number of reservations that have passed their deadline and are not settled.

    period : int or None
        Number of the period. None if the purse has no periods.
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
    """The fixed terms of a purse (an account): total, requests, period, window.

    Attributes
    ----------
    total : float
        Money of each period, or the largest amount that is in use in a window.

    n_expected : int or None
        Number of requests of each period. None is unknown.

    period : {"day", "month"}, float or None
        UTC days, UTC months, or seconds. None is a single period.

    window : float or None
        Seconds after which each used amount is free again. None is a purse of money.
    """

    total: float
    n_expected: int | None
    period: str | float | None
    window: float | None


class Window(NamedTuple):
    """A rate limit of a choice: the amount that its calls may use per time interval.

    Attributes
    ----------
    resource : str
        What is limited: ``"requests"``, of which each call uses 1, or another name,
        such as ``"tokens"``, of which each request says how much it uses.

    limit : float
        Largest sum of the amounts that are used in any interval of `seconds`.

    seconds : float, default=60.0
        Length of the interval.

    Examples
    --------
    >>> from skroute.ledgers import Window
    >>> Window("requests", 500)
    Window(resource='requests', limit=500, seconds=60.0)
    """

    resource: str
    limit: float
    seconds: float = 60.0


class WindowUse(NamedTuple):
    """Amount, such as tokens, that one call uses of a :class:`Window` (rate limit).

    Attributes
    ----------
    window : str
        Name of the window in the ledger.

    amount : float
        In the unit of the window, such as requests or tokens.
    """

    window: str
    amount: float


def check_amount(amount, name):
    """Return an amount as a float, or raise a ValueError.

    `name` is the name of the argument, for the message.
    """
    if not is_amount(amount):
        raise ValueError(
            f"{name} must be a finite number that is at least 0, got {amount!r}."
        )
    return float(amount)


def check_terms(total, n_expected=None, period=None, window=None, *, name="total"):
    """Return the terms of a purse or of a window, or raise a ValueError.

    Parameters
    ----------
    total : float
        Money of each period, or the most that a window allows.

    n_expected : int, default=None
        Number of requests of each period. None is unknown.

    period : {"day", "month"} or float, default=None
        UTC days, UTC months, or seconds. None is a single period.

    window : float, default=None
        Seconds of a window. None is a purse of money.

    name : str, default="total"
        Name of the argument `total`, for the message.

    Returns
    -------
    Terms
    """
    amount = check_amount(total, name)
    # True is an int of Python, and not a number here.
    is_int = isinstance(n_expected, Integral) and not isinstance(n_expected, bool)
    is_positive_int = is_int and n_expected >= 1
    if n_expected is not None and not is_positive_int:
        raise ValueError(
            "n_expected must be a positive int or None for unknown, got "
            f"{n_expected!r}."
        )
    is_seconds = _is_positive_number(period)
    if period not in (None, "day", "month") and not is_seconds:
        raise ValueError(
            'period must be "day", "month", a positive number of seconds or None, '
            f"got {period!r}."
        )
    if n_expected is not None:
        n_expected = int(n_expected)
    if is_seconds:
        period = float(period)
    window = check_seconds(window, "window")
    if window is not None and (n_expected is not None or period is not None):
        raise ValueError(
            "window must be None for a purse with n_expected or period, got "
            f"{window!r}. Open a window of its own."
        )
    return Terms(amount, n_expected, period, window)


def _is_positive_number(value):
    """Return True for a positive number. True and None are not numbers here."""
    return isinstance(value, Real) and not isinstance(value, bool) and value > 0


def check_seconds(seconds, name):
    """Return positive seconds as a float, or None (never) for None and infinity.

    `name` is the name of the argument, for the message.
    """
    if seconds is None:
        return None
    if not _is_positive_number(seconds):
        raise ValueError(
            f"{name} must be a positive number of seconds or None, got {seconds!r}."
        )
    return None if seconds == float("inf") else float(seconds)


def period_number(period, now):
    """Return the number of the period that contains `now`, or None without periods.

    Parameters
    ----------
    period : {"day", "month"}, float or None
        As in `Terms`.

    now : float
        Seconds since 1970.

    Returns
    -------
    int or None
        Later periods have larger numbers.
    """
    if period is None:
        return None
    if period == "month":
        year, month = time.gmtime(now)[:2]
        return 12 * year + month - 1  # months since the year 0
    length = _SECONDS_OF_A_DAY if period == "day" else period
    return int(now // length)


class Purse:
    """A purse (an account) inside a transaction. Its methods change its amounts.

    It has an attribute for each field of `Books`, which bookings change in place.

    Parameters
    ----------
    name : str

    terms : Terms
        The terms that the purse was opened with.

    books : Books
        First values of the attributes.
    """

    __slots__ = ("name", "terms", *Books._fields)

    def __init__(self, name, terms, books):
        self.name = name
        self.terms = terms
        for field, value in zip(Books._fields, books):
            setattr(self, field, value)

    @classmethod
    def opened(cls, name, terms, now):
        """Return a new purse, in the period of the time `now` (seconds since 1970)."""
        books = Books(
            total=terms.total,
            spent=0.0,
            reserved=0.0,
            pending=0.0,
            n_expected=terms.n_expected,
            n_started=0,
            n_held=0,
            n_open=0,
            n_committed=0,
            n_refunded=0,
            n_rejected=0,
            n_expired=0,
            period=period_number(terms.period, now),
        )
        return cls(name, terms, books)

    def books(self):
        """Return the amounts and counts of the purse as a `Books`."""
        return Books(*[getattr(self, field) for field in Books._fields])

    def room(self):
        """Return the money that is neither spent nor reserved.

        It is a little more, so that errors of rounding refuse no amount that fits.
        """
        return self.total * (1 + ROUNDING) - self.spent - self.reserved

    def roll(self, now):
        """Begin the period that contains `now`, if the present period is earlier.

        If the clock goes back, the present period goes on. The purse must have periods.
        """
        number = period_number(self.terms.period, now)
        if number > self.period:
            self.begin(number)

    def begin(self, number):
        """Begin the period `number`: set its total, and count from 0.

        Money that is reserved stays reserved, and open and expired reservations stay
        counted.
        """
        self.total = self.terms.total
        self.spent = 0.0
        self.period = number
        self.n_expected = self.terms.n_expected
        self.n_started = self.n_held  # requests that are being decided go on
        self.n_committed = 0
        self.n_refunded = 0
        self.n_rejected = 0

    def hold(self, amount):
        """Reserve money for a request that is being decided."""
        self.reserved += amount
        self.n_held += 1

    def unhold(self, amount):
        """Release the money of a request that is decided or has failed."""
        self.n_held -= 1
        self._return(amount)

    def reserve(self, offer):
        """Reserve money for a call."""
        self.reserved += offer.reserved
        self.pending += offer.deciding + offer.cost
        self.n_open += 1

    def expire(self, offer):
        """Release a call's money after its deadline, except the cost of deciding."""
        self._close(offer)
        self.n_expired += 1

    def settle(self, offer, cost, expired):
        """Book the real cost of a call, and close its reservation.

        Parameters
        ----------
        offer : Offer
            The choice of the call.

        cost : float or None
            Real cost. None: the call failed, and costs nothing. The cost of deciding is
            spent in both cases.

        expired : bool
            True if the deadline has passed. The amount was then released already.
        """
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
        """Close an open reservation. The cost of deciding is spent."""
        self.n_open -= 1
        self.spent += offer.deciding
        if self.n_open:
            # Other reservations are open.
            self.pending = self.pending - offer.deciding - offer.cost
        else:
            # No reservation is open. The sum is set to 0, without errors of rounding.
            self.pending = 0.0
        self._return(offer.reserved)

    def _return(self, amount):
        """Release a reserved amount, after its request was counted as finished."""
        if self.n_open or self.n_held:
            self.reserved = self.reserved - amount
        else:
            # Nothing is reserved now. The sum is set to 0, without errors of rounding.
            self.reserved = 0.0
