"""Books in Redis: several processes of several hosts."""

import json
import time
import uuid
from hashlib import sha1
from typing import NamedTuple

from skroute.ledgers._books import (
    Books,
    Offer,
    Reservation,
    Terms,
    check_terms,
    committed_already,
    exhausted,
    not_open,
    spare_room,
)
from skroute.ledgers._ledger import Ledger
from skroute.ledgers._lua import SCRIPT
from skroute.ledgers._transactions import check_same_terms, check_top_up, no_purse
from skroute.utils._optional import import_optional

_BETWEEN = "\x1f"
# A decision reads the books that came with this process's last booking, unless these are older
# than so many seconds; whether it fits is looked up in the true ones.
_FRESH = 0.05
_SHA = sha1(SCRIPT.encode()).hexdigest()


class _Seen(NamedTuple):
    """Books and room as they came with an answer."""

    time: float
    books: Books
    room: float


class RedisLedger(Ledger):
    """Purses that processes of several hosts share, in Redis.

    Every booking is one Lua script, which Redis runs alone, by its own clock. A process
    may be killed at any instant: what it had booked stays, what it had reserved returns at
    its deadline. What survives a failure of Redis itself is what its persistence keeps: set
    ``appendonly yes``.

    Parameters
    ----------
    url : str
        Where Redis is, for example ``"redis://localhost:6379/0"``.

    prefix : str, default="skroute"
        What the names of all keys begin with.

    timeout : float, default=600.0
        Seconds after which the money of a reservation that nobody has settled returns to
        its purses. Longer than any call takes: a later commit is booked, but may find the
        money spent.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    See Also
    --------
    SQLiteLedger : For processes of one host, without a server.

    Notes
    -----
    Needs the package redis: ``pip install skroute-ml[redis]``. A decision is made from books
    that may be some milliseconds old, which moves its price by a hair; that it fits the
    total is checked where it is booked.

    Examples
    --------
    >>> from skroute.ledgers import RedisLedger
    >>> ledger = RedisLedger("redis://localhost:6379/0")  # connects at the first booking
    >>> ledger.timeout
    600.0
    """

    _clock = None
    _fresh = _FRESH

    def __init__(self, url, *, prefix="skroute", timeout=600.0, remember=86400.0):
        super().__init__(timeout, remember)
        redis = import_optional("redis", "RedisLedger")
        self.url, self.prefix = url, prefix
        self._client = redis.Redis.from_url(url, decode_responses=True)
        self._no_script = redis.exceptions.NoScriptError
        self._failed = redis.exceptions.ResponseError
        # In braces: all keys lie on one node of a cluster.
        self._root = f"{{{prefix}}}"
        self._seen = {}
        self._identity = None

    def _call(self, op, *arguments):
        now = "" if self._clock is None else repr(self._clock())
        arguments = (1, self._root, op, now, *arguments)
        try:
            return self._client.execute_command("EVALSHA", _SHA, *arguments)
        except self._no_script:
            return self._client.execute_command("EVAL", SCRIPT, *arguments)
        except self._failed as error:
            if "no purse " in str(error):
                raise no_purse(arguments[4]) from None
            raise

    def _book(self, op, purses, *arguments):
        """Call the script; note the books that come with the answer."""
        joined = _BETWEEN.join(purses)
        found = self._call(op, purses[0], joined, *arguments)
        status, books, room, number, text = found
        self._seen[purses] = _Seen(time.monotonic(), _books(books), float(room))
        return status, number, text

    def _own_identity(self):
        if self._identity is None:
            key = f"{self._root}:identity"
            self._client.set(key, uuid.uuid4().hex, nx=True)
            self._identity = self._client.get(key)
        return self._identity

    def open(self, purse, total, n_expected=None, *, period=None, rollover=False):
        terms = check_terms(total, n_expected, period, rollover)
        texts = (repr(terms.total), _text(n_expected), _text(terms.period), str(int(rollover)))
        found = self._call("open", purse, *texts)
        check_same_terms(purse, _terms(found), terms)

    def hold(self, purses, amount, key=None):
        timeout = _text(self.timeout)
        found = self._book("hold", purses, repr(amount), key or "", timeout)
        return self._made(found, purses, amount, key)

    def _made(self, found, purses, amount, key):
        """The reservation that the script made or found, or its refusal as an error."""
        status, number, text = found
        if status == "full":
            raise exhausted(self.books(purses[int(number) - 1]), amount)
        if status == "committed":
            raise committed_already(key)
        offer = Offer(*json.loads(text)) if text else None
        amount = amount if offer is None else offer.reserved
        ledger = self._own_identity()
        return Reservation(ledger, int(number), purses, status, amount, offer, None, key)

    def release(self, held):
        self._book("release", held.purses, str(held.number))

    def reserve(self, purses, choose, *, least, keep=0.0, held=None, key=None):
        fixed = ("" if held is None else str(held.number), key or "", _text(self.timeout))
        fixed += (repr(least), repr(keep))
        fresh = False
        while True:
            offer = self._chosen(purses, choose, keep, held, fresh)
            if offer is None and not fresh:
                fresh = True
                continue
            if offer is None:
                found = self._book("reserve", purses, *fixed, "", "", "", "")
            else:
                money = (offer.reserved, offer.deciding + offer.cost, offer.deciding)
                found = self._book("reserve", purses, *fixed, _line(offer), *map(repr, money))
            if found[0] != "stale":
                return self._made(found, purses, least, key)
            # Others were quicker. The books of now have come with the answer.
            fresh = False

    def _chosen(self, purses, choose, keep, held, fresh):
        seen = self._seen.get(purses)
        if fresh or seen is None or time.monotonic() - seen.time > self._fresh:
            self._book("books", purses)
            seen = self._seen[purses]
        books, room = seen.books, seen.room
        if held is None:
            books = books._replace(n_started=books.n_started + 1)
        else:
            room = max(room + held.amount, held.amount)
        return choose(books, room, spare_room(books, room, keep))

    def settle(self, ledger, number, purse, offer, cost):
        if ledger != self._own_identity():
            raise not_open(number, offer.name)
        cost = "" if cost is None else repr(float(cost))
        arguments = (str(number), _line(offer), cost, uuid.uuid4().hex, _text(self.remember))
        status, over, late = self._book("settle", (purse,), *arguments)
        if status == "not open":
            raise not_open(number, offer.name)
        return float(over), late == "1"

    def books(self, purse):
        self._book("books", (purse,))
        return self._seen[(purse,)].books

    def top_up(self, purse, amount, n_more=0):
        amount, n_more = check_top_up(amount, n_more)
        self._book("top_up", (purse,), repr(amount), str(n_more))

    def reset(self, purse):
        self._book("reset", (purse,))

    def unsettled(self, purse):
        found = []
        for number, purses, state, text, deadline, key in self._call("unsettled", purse, purse):
            offer = Offer(*json.loads(text))
            due = None if deadline in ("", "inf") or state == "expired" else float(deadline)
            found.append(
                Reservation(
                    self._own_identity(),
                    int(number),
                    tuple(purses.split(_BETWEEN)),
                    state,
                    offer.reserved,
                    offer,
                    due,
                    key or None,
                )
            )
        return sorted(found, key=lambda one: one.number)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in ("url", "prefix", "timeout", "remember")}

    def __setstate__(self, state):
        self.__init__(state.pop("url"), **state)


def _text(number):
    return "" if number is None else str(number) if isinstance(number, str) else repr(number)


def _line(offer):
    """An offer as it is kept: the same text for the same offer."""
    choice, name, *money = offer
    return json.dumps([int(choice), str(name), *map(float, money)])


def _books(text):
    """Books from the numbers of a line; an empty one is None."""
    found = text.split(" ")
    money = map(float, found[:4])
    return Books(*money, *(int(float(entry)) if entry else None for entry in found[4:]))


def _terms(found):
    total, n_expected, period, rollover = found
    if period not in ("day", "month"):
        period = float(period) if period else None
    n_expected = int(n_expected) if n_expected else None
    return Terms(float(total), n_expected, period, rollover == "1")
