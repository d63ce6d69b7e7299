"""Books in Redis: several processes of several hosts."""

import json
import os
import struct
import threading
import time
import uuid
import weakref
from functools import lru_cache
from hashlib import sha1
from typing import Any

from skroute.base import ROUNDING
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
_PURSE, _ROOM, _SETTLED = (struct.Struct(kind) for kind in ("<18d", "<d", "<dd"))
# What a reservation and a settlement tell of money and time.
_RESERVE, _SETTLE = struct.Struct("<6d"), struct.Struct("<5d")
_NEVER, _NONE = float("inf"), float("nan")
_PERIODS = {"day": -1.0, "month": -2.0}
# Every command may be sent again: a settlement knows its own, a reservation made twice expires.
_WAITS = (0.0, 0.05, 0.5)
# A named tuple of values in their order, without the arguments by name.
_made = tuple.__new__

# A child that was forked connects for itself.
_ALL: "weakref.WeakSet[RedisLedger]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [ledger._forget() for ledger in _ALL])


class _Own:
    """What a thread of this process has for itself: a connection, and a name for its calls."""

    __slots__ = ("connection", "n_calls", "name")

    def __init__(self, connection):
        self.connection = connection
        self.name = uuid.uuid4().bytes
        self.n_calls = 0


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
        self._seen = {}
        self._opened = {}
        self._identity = None
        self._forget()
        _ALL.add(self)

    def _forget(self):
        """No connections yet, in this process."""
        self._own = threading.local()

    def _mine(self):
        try:
            return self._own.own
        except AttributeError:
            own = self._own.own = _Own(self._pool.make_connection())
            return own

    def _send(self, command):
        connection = self._mine().connection
        connection.send_packed_command(command, check_health=False)
        return connection.read_response()

    def _sent(self, command):
        for wait in _WAITS:
            try:
                return self._send(command)
            except (self._errors.ConnectionError, self._errors.TimeoutError, OSError) as error:
                self._mine().connection.disconnect()
                failed = error
                time.sleep(wait)
        raise failed

    def _call(self, op, joined, *arguments):
        """Run the script; the arguments are bytes."""
        now = "" if self._clock is None else repr(self._clock())
        head = _head(self.prefix, op, now, joined, len(arguments))
        command = b"".join((head, *[b"$%d\r\n%b\r\n" % (len(one), one) for one in arguments]))
        try:
            return self._sent((command,))
        except self._errors.NoScriptError:
            return self._sent((command.replace(_BY_SHA, _BY_TEXT, 1),))
        except self._errors.ResponseError as error:
            if "no purse " in str(error):
                name = str(error).split("no purse ", 1)[1].split(" script:")[0].split(",")[0]
                raise no_purse(name) from None
            raise

    def _book(self, op, purses, *arguments):
        """Call the script; note the books that come with the answer.

        Returns the status, the number and the text that the script says; of the short path, None,
        the number and the numbers of the purse.
        """
        found = self._call(op, purses[0] if len(purses) == 1 else _BETWEEN.join(purses), *arguments)
        if type(found) is bytes:
            numbers = _PURSE.unpack(found)
            self._seen[purses] = time.monotonic(), numbers, None
            return None, numbers[-1], numbers
        status, books, room, number, text = found
        self._seen[purses] = time.monotonic(), _PURSE.unpack(books), _ROOM.unpack(room)[0]
        return status.decode(), number, text

    def _own_identity(self):
        if self._identity is None:
            key = f"{self.prefix}:identity"
            self._sent((_packed("SET", key, uuid.uuid4().hex, "NX"),))
            self._identity = self._sent((_packed("GET", key),)).decode()
        return self._identity

    def open(self, purse, total, n_expected=None, *, period=None):
        terms = check_terms(total, n_expected, period)
        number = _PERIODS.get(terms.period, terms.period)
        texts = (repr(terms.total), _text(n_expected), _text(number))
        found = self._call("open", purse, *[text.encode() for text in texts])
        check_same_terms(purse, _terms(found), terms)
        self._opened[purse] = None

    def hold(self, purses, amount, key=None):
        times = _SETTLED.pack(amount, _NEVER if self.timeout is None else self.timeout)
        found = self._book("hold", purses, times, (key or "").encode())
        return self._made(found, purses, amount, key)

    def _made(self, found, purses, amount, key, offer=None):
        """The reservation that the script made, or found with its text, or its refusal."""
        status, number, text = found
        if status == "full":
            raise exhausted(self.books(purses[int(number) - 1]), amount)
        if status == "committed":
            raise committed_already(key)
        if status is None:
            status = "open"
        elif text:
            # That of its key, which may be paid from other purses than this call names.
            line, _, names = text.decode().partition("\n")
            offer, purses = Offer(*json.loads(line)), tuple(names.split(_BETWEEN))
        amount = amount if offer is None else offer.reserved
        ledger = self._own_identity()
        # A key is that of the call, which a hold is not yet.
        key = None if status == "held" else key
        fields = (ledger, int(number), purses, status, amount, offer, None, key)
        return _made(Reservation, fields)

    def release(self, held):
        self._book("release", held.purses, b"%d" % held.number)

    def reserve(self, purses, choose, *, least, keep=0.0, held=None, key=None):
        timeout = _NEVER if self.timeout is None else self.timeout
        fresh = False
        while True:
            try:
                offer = self._chosen(purses, choose, keep, held, fresh)
            except Exception:
                if held is not None:
                    self.release(held)
                raise
            if offer is None and not fresh:
                fresh = True
                continue
            money = (0.0,) * 3 if offer is None else _money(offer)
            told = [_RESERVE.pack(timeout, least, keep, *money), b""]
            if offer is not None:
                told[1] = _line(offer)
            if held is not None or key is not None:
                told += [b"" if held is None else b"%d" % held.number, (key or "").encode()]
            found = self._book("reserve", purses, *told)
            if found[0] not in ("stale", "lost"):
                return self._made(found, purses, least, key, offer)
            if found[0] == "lost":
                # The hold has expired, or was given back, since the decision began.
                held = None
            # Others were quicker. The books of now have come with the answer.
            fresh = False

    def _chosen(self, purses, choose, keep, held, fresh):
        seen = self._seen.get(purses)
        if fresh or seen is None or time.monotonic() - seen[0] > self._fresh:
            self._book("books", purses)
            seen = self._seen[purses]
        _, numbers, room = seen
        if room is None:
            room = numbers[0] * (1 + ROUNDING) - numbers[1] - numbers[2]
        books = _books(numbers, held is None)
        if held is not None:
            room = max(room + held.amount, held.amount)
        return choose(books, room, spare_room(books, room, keep))

    def settle(self, ledger, number, purse, offer, cost):
        if ledger != self._own_identity():
            raise not_open(number, offer.name)
        remember = _NEVER if self.remember is None else self.remember
        told = _SETTLE.pack(remember, _NONE if cost is None else cost, *_money(offer))
        own = self._mine()
        # A name of its own, the same where the command is sent again.
        own.n_calls += 1
        names = (b"%d" % number, own.name, b"%d" % own.n_calls)
        status, _, text = self._book("settle", (purse,), told, _line(offer), *names)
        if status is None:
            return text[1] - text[0], False
        if status == "not open":
            raise not_open(number, offer.name)
        over, late = _SETTLED.unpack(text)
        return over, late == 1.0

    def books(self, purse):
        self._book("books", (purse,))
        return _books(self._seen[(purse,)][1])

    def top_up(self, purse, amount, n_more=0):
        amount, n_more = check_top_up(amount, n_more)
        self._book("top_up", (purse,), repr(amount).encode(), b"%d" % n_more)

    def reset(self, purse):
        self._book("reset", (purse,))

    def unsettled(self, purse):
        ledger, found = self._own_identity(), []
        for number, *texts, due, key in self._call("unsettled", purse):
            purses, state, text = (one.decode() for one in texts)
            offer = Offer(*json.loads(text))
            deadline = None if not due or float(due) == float("inf") else float(due)
            made = (tuple(purses.split(_BETWEEN)), state, offer.reserved, offer, deadline)
            found.append(Reservation(ledger, int(number), *made, key.decode() or None))
        return sorted(found, key=lambda one: one.number)

    def _about(self):
        found = self._pool.connection_kwargs
        # Neither a name nor a password, whichever part of the address they stand in.
        scheme, database = self.url.partition("://")[0], found.get("db") or 0
        place = f"{scheme}://{found.get('host', 'localhost')}:{found.get('port', 6379)}/{database}"
        if "path" in found:
            place = f"unix://{found['path']}?db={database}"
        met = dict.fromkeys(
            [*self._opened, *(name for names in list(self._seen) for name in names)]
        )
        return (repr(place), f"prefix={self.prefix!r}"), met

    def __getstate__(self):
        return {name: self.__dict__[name] for name in ("url", "prefix", "timeout", "remember")}

    def __setstate__(self, state):
        self.__init__(**state)


def _packed(*command):
    """A command in Redis's protocol; redis's own way takes ten times as long."""
    texts = [text.encode() for text in command]
    return b"*%d\r\n%b" % (len(texts), b"".join([b"$%d\r\n%b\r\n" % (len(t), t) for t in texts]))


# How the script is named in a command: by its hash, or in full where Redis does not know it yet.
_BY_SHA, _BY_TEXT = (
    _packed(*command)[4:]
    for command in (("EVALSHA", sha1(SCRIPT.encode()).hexdigest()), ("EVAL", SCRIPT))
)


@lru_cache(maxsize=1024)
def _head(prefix, op, now, joined, n_more):
    """What a call of the script begins with, before so many arguments."""
    texts = _packed("1", prefix, op, now, joined)[4:]
    return b"*%d\r\n%b%b" % (7 + n_more, _BY_SHA, texts)


def _text(number):
    return "" if number is None else repr(number)


def _money(offer):
    """What a call takes, what it is expected to take, and what deciding took of it."""
    return offer.reserved, offer.deciding + offer.cost, offer.deciding


@lru_cache(maxsize=1024)
def _line(offer):
    """An offer as it is kept: the same text for the same offer."""
    choice, name, *money = offer
    return json.dumps([int(choice), str(name), *map(float, money)]).encode()


def _books(numbers, more=0):
    """Books from the numbers of a purse, NaN is None; with so many requests more."""
    total, spent, reserved, pending, n_expected, started, held, n_open = numbers[:8]
    committed, refunded, rejected, expired, period = numbers[8:13]
    fields = (total, spent, reserved, pending)
    fields += (int(n_expected) if n_expected == n_expected else None, int(started) + more)
    fields += (int(held), int(n_open), int(committed), int(refunded), int(rejected), int(expired))
    return _made(Books, (*fields, int(period) if period == period else None))


def _terms(packed):
    total, n_expected, period = _PURSE.unpack(packed)[13:16]
    names = {number: name for name, number in _PERIODS.items()}
    known = None if period != period else names.get(period, period)
    return Terms(total, None if n_expected != n_expected else int(n_expected), known)
