"""Books in Redis: several processes of several hosts."""

import json
import os
import struct
import threading
import time
import uuid
from functools import lru_cache
from hashlib import sha1
from typing import Any, NamedTuple

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
_PURSE, _ROOM = struct.Struct("<19d"), struct.Struct("<d")
_PERIODS = {"day": -1.0, "month": -2.0}
# Every command may be sent again: a settlement knows its own, a reservation made twice expires.
_WAITS = (0.0, 0.05, 0.5)


class _Seen(NamedTuple):
    """Books and room as they came with an answer, not unpacked yet."""

    time: float
    books: bytes
    room: bytes


class RedisLedger(Ledger):
    """Purses that processes of several hosts share, in Redis.

    Every booking is one Lua script, which Redis runs alone, by its own clock. A process
    may be killed at any instant: what it had booked stays, what it had reserved returns at
    its deadline. What survives a failure of Redis itself is what its persistence keeps: set
    ``appendonly yes``.

    Parameters
    ----------
    url : str
        Where Redis is, for example ``"redis://localhost:6379/0"``; as for
        ``redis.Redis.from_url``. Not a cluster: one node keeps the books.

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
    total is checked where it is booked. A connection that breaks is made anew, and the
    command sent again, three times.

    Examples
    --------
    >>> from skroute.ledgers import RedisLedger
    >>> ledger = RedisLedger("redis://localhost:6379/0")  # connects at the first booking
    >>> ledger.timeout
    600.0
    """

    _clock: Any = None
    _fresh = _FRESH

    def __init__(self, url, *, prefix="skroute", timeout=600.0, remember=86400.0):
        super().__init__(timeout, remember)
        redis = import_optional("redis", "RedisLedger")
        self.url, self.prefix = url, prefix
        self._errors = redis.exceptions
        # Its connections, without the commands' own path: half of a booking's time.
        self._pool = redis.ConnectionPool.from_url(url)
        self._own = threading.local()
        self._seen = {}
        self._identity = None

    def _connection(self):
        """This thread's connection, of this process."""
        if getattr(self._own, "pid", None) != os.getpid():
            self._own.connection = self._pool.make_connection()
            self._own.pid = os.getpid()
        return self._own.connection

    def _send(self, command):
        connection = self._connection()
        connection.send_packed_command([command], check_health=False)
        return connection.read_response()

    def _sent(self, command):
        for wait in _WAITS:
            try:
                return self._send(command)
            except (self._errors.ConnectionError, self._errors.TimeoutError, OSError) as error:
                self._connection().disconnect()
                failed = error
                time.sleep(wait)
        raise failed

    def _call(self, op, purse, *arguments):
        now = "" if self._clock is None else repr(self._clock())
        arguments = ("1", self.prefix, op, now, purse, *arguments)
        try:
            return self._sent(_packed("EVALSHA", _SHA, *arguments))
        except self._errors.NoScriptError:
            return self._sent(_packed("EVAL", SCRIPT, *arguments))
        except self._errors.ResponseError as error:
            if "no purse " in str(error):
                name = str(error).split("no purse ", 1)[1].split(" script:")[0].split(",")[0]
                raise no_purse(name) from None
            raise

    def _book(self, op, purses, *arguments):
        """Call the script; note the books that come with the answer."""
        joined = purses[0] if len(purses) == 1 else _BETWEEN.join(purses)
        status, books, room, number, text = self._call(op, purses[0], joined, *arguments)
        self._seen[purses] = _Seen(time.monotonic(), books, room)
        return status.decode(), number, text

    def _own_identity(self):
        if self._identity is None:
            key = f"{self.prefix}:identity"
            self._sent(_packed("SET", key, uuid.uuid4().hex, "NX"))
            self._identity = self._sent(_packed("GET", key)).decode()
        return self._identity

    def open(self, purse, total, n_expected=None, *, period=None, rollover=False):
        terms = check_terms(total, n_expected, period, rollover)
        number = _PERIODS.get(terms.period, terms.period)
        texts = (repr(terms.total), _text(n_expected), _text(number), str(int(rollover)))
        check_same_terms(purse, _terms(self._call("open", purse, *texts)), terms)

    def hold(self, purses, amount, key=None):
        found = self._book("hold", purses, repr(amount), key or "", _text(self.timeout))
        return self._made(found, purses, amount, key)

    def _made(self, found, purses, amount, key, offer=None):
        """The reservation that the script made, or found with its text, or its refusal."""
        status, number, text = found
        if status == "full":
            raise exhausted(self.books(purses[int(number) - 1]), amount)
        if status == "committed":
            raise committed_already(key)
        if text:
            # That of its key, which may be paid from other purses than this call names.
            line, _, names = text.decode().partition("\n")
            offer, purses = Offer(*json.loads(line)), tuple(names.split(_BETWEEN))
        amount = amount if offer is None else offer.reserved
        ledger = self._own_identity()
        return Reservation(ledger, int(number), purses, status, amount, offer, None, key)

    def release(self, held):
        self._book("release", held.purses, str(held.number))

    def reserve(self, purses, choose, *, least, keep=0.0, held=None, key=None):
        fixed = (key or "", _text(self.timeout), repr(least), repr(keep))
        fresh = False
        while True:
            offer = self._chosen(purses, choose, keep, held, fresh)
            if offer is None and not fresh:
                fresh = True
                continue
            told = ("", "", "", "")
            if offer is not None:
                money = (offer.reserved, offer.deciding + offer.cost, offer.deciding)
                told = (_line(offer), *map(repr, money))
            number = "" if held is None else str(held.number)
            found = self._book("reserve", purses, number, *fixed, *told)
            if found[0] not in ("stale", "lost"):
                return self._made(found, purses, least, key, offer)
            if found[0] == "lost":
                # The hold has expired, or was given back, since the decision began.
                held = None
            # Others were quicker. The books of now have come with the answer.
            fresh = False

    def _chosen(self, purses, choose, keep, held, fresh):
        seen = self._seen.get(purses)
        if fresh or seen is None or time.monotonic() - seen.time > self._fresh:
            self._book("books", purses)
            seen = self._seen[purses]
        books, room = _books(seen.books), _ROOM.unpack(seen.room)[0]
        if held is None:
            books = books._replace(n_started=books.n_started + 1)
        else:
            room = max(room + held.amount, held.amount)
        return choose(books, room, spare_room(books, room, keep))

    def settle(self, ledger, number, purse, offer, cost):
        if ledger != self._own_identity():
            raise not_open(number, offer.name)
        cost = "" if cost is None else repr(float(cost))
        # One of its own, the same where the command is sent again.
        token = os.urandom(12).hex()
        arguments = (str(number), _line(offer), cost, token, _text(self.remember))
        status, _, text = self._book("settle", (purse,), *arguments)
        if status == "not open":
            raise not_open(number, offer.name)
        over, late = struct.unpack("<dd", text)
        return over, late == 1.0

    def books(self, purse):
        self._book("books", (purse,))
        return _books(self._seen[(purse,)].books)

    def top_up(self, purse, amount, n_more=0):
        amount, n_more = check_top_up(amount, n_more)
        self._book("top_up", (purse,), repr(amount), str(n_more))

    def reset(self, purse):
        self._book("reset", (purse,))

    def unsettled(self, purse):
        ledger, found = self._own_identity(), []
        for number, *texts, due, key in self._call("unsettled", purse, purse):
            purses, state, text = (one.decode() for one in texts)
            offer = Offer(*json.loads(text))
            deadline = None if not due or float(due) == float("inf") else float(due)
            made = (tuple(purses.split(_BETWEEN)), state, offer.reserved, offer, deadline)
            found.append(Reservation(ledger, int(number), *made, key.decode() or None))
        return sorted(found, key=lambda one: one.number)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in ("url", "prefix", "timeout", "remember")}

    def __setstate__(self, state):
        self.__init__(**state)


def _packed(*command):
    """A command in Redis's protocol; redis's own way takes ten times as long."""
    texts = [text.encode() for text in command]
    return b"*%d\r\n%b" % (len(texts), b"".join([b"$%d\r\n%b\r\n" % (len(t), t) for t in texts]))


def _text(number):
    return "" if number is None else repr(number)


@lru_cache(maxsize=1024)
def _line(offer):
    """An offer as it is kept: the same text for the same offer."""
    choice, name, *money = offer
    return json.dumps([int(choice), str(name), *map(float, money)])


def _books(packed):
    """Books from the numbers of a purse; NaN is None."""
    found = _PURSE.unpack(packed)
    n_expected, period = (int(one) if one == one else None for one in (found[4], found[12]))
    return Books(*found[:4], n_expected, *map(int, found[5:12]), period)


def _terms(packed):
    total, n_expected, period, rollover = _PURSE.unpack(packed)[13:17]
    names = {number: name for name, number in _PERIODS.items()}
    known = None if period != period else names.get(period, period)
    return Terms(total, None if n_expected != n_expected else int(n_expected), known, rollover == 1)
