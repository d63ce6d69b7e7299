"""Books in Redis: several processes of several hosts."""

import json
import time
import uuid

from skroute.ledgers._records import RecordLedger, text_of
from skroute.utils._optional import import_optional

# Compare and set, field by field: writes are done where every command that read has the same
# answer still. A call whose answer was lost, and that is sent again, finds its own name noted.
_SCRIPT = """
local due, last = unpack(KEYS)
local new, reads, writes = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local now, found, done = redis.call('TIME'), {}, redis.call('GET', last) == new
if not done then
  done = true
  for i, read in ipairs(reads) do
    found[i] = redis.call(unpack(read[1]))
    done = done and cjson.encode(found[i]) == cjson.encode(read[2])
  end
  if done and #writes > 0 then
    for _, command in ipairs(writes) do redis.call(unpack(command)) end
    redis.call('SET', last, new, 'EX', 600)
  end
end
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
return cjson.encode({done, now[1], now[2], first or false, found})
"""
# How many fields one command reads at most, and how many answers are kept for the next booking.
_MANY = 1000


class RedisLedger(RecordLedger):
    """A ledger in Redis that processes on several hosts share.

    A booking is decided in the process that makes it, by the clock of Redis, and kept where
    nobody else has booked since it read; otherwise it is decided again. A process may be killed
    at any instant: what it had booked stays, what it had reserved returns at its deadline. What
    survives a failure of Redis itself is what its persistence keeps: set ``appendonly yes``.

    Parameters
    ----------
    url : str
        Where Redis is, for example ``"redis://localhost:6379/0"``; as for
        ``redis.Redis.from_url``, where its options for decoding answers have no effect. Not
        a cluster: one node keeps the books.

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
    Needs the package redis: ``pip install skroute-ml[redis]``. All purses of a prefix change
    one after the other; give tenants that share no purse prefixes of their own where one is too
    slow. A connection that breaks is made anew, and the command sent again, three times.

    Examples
    --------
    >>> from skroute.ledgers import RedisLedger
    >>> ledger = RedisLedger("redis://localhost:6379/0")  # connects at the first booking
    >>> ledger.timeout
    600.0
    """

    _state = ("url", "prefix", "timeout", "remember")

    def __init__(self, url, *, prefix="skroute", timeout=600.0, remember=86400.0):
        redis = import_optional("redis", "RedisLedger")
        self.url, self.prefix = url, prefix
        if not isinstance(url, str):
            # Without the value: it may hold a password.
            raise TypeError(
                f"url must be a text such as 'redis://localhost:6379/0', got {type(url)}."
            )
        redis.connection.parse_url(url)
        names = ("purses", "reservations", "keys", "due", "counters", "identity")
        self._names = {name: f"{prefix}:{name}" for name in names}
        super().__init__(timeout, remember)

    def _after_fork(self):
        """No connection yet, and a name of its own for what this object sends."""
        super()._after_fork()
        self._name = uuid.uuid4().hex
        self._n_calls = 0

    def _connect(self):
        redis = import_optional("redis", "RedisLedger")
        # Every command may be sent again.
        again = redis.retry.Retry(redis.backoff.ExponentialBackoff(), 3)
        options = redis.connection.parse_url(self.url)
        # Whatever the URL asks for: answers are bytes, and texts are written as UTF-8.
        options |= {
            "decode_responses": False,
            "encoding": "utf-8",
            "encoding_errors": "strict",
        }
        pool = redis.ConnectionPool(retry=again, **options)
        client = redis.Redis(connection_pool=pool, single_connection_client=True)
        client.auto_close_connection_pool = True
        client.set(self._names["identity"], uuid.uuid4().hex, nx=True)
        self._identity = client.get(self._names["identity"]).decode()
        self._script = client.register_script(_SCRIPT)
        # What Redis is known to answer to the commands that read.
        self._view = {}
        self._call({})

    def _clock(self):
        """The time of Redis, as its last answer told it."""
        return time.monotonic() + self._ahead

    def _call(self, reads, writes=()):
        """Call the script: whether all of `reads` still have these answers, and writes are done.

        Where they have others, these are known then.
        """
        self._n_calls += 1
        new = f"{self._name} {self._n_calls}"
        names = (self._names["due"], f"{self.prefix}:last:{self._name}")
        # Lua has no None.
        asked = [
            (read, False if known is None else known) for read, known in reads.items()
        ]
        told = (new, json.dumps(asked), json.dumps(writes))
        done, seconds, micros, first, found = json.loads(self._script(names, told))
        self._ahead = int(seconds) + int(micros) / 1e6 - time.monotonic()
        self._first = float(first) if first else None
        for read, answer in zip(reads, found):
            self._view[read] = None if answer is False else answer
        return done

    def _run_transaction(self, body, arguments):
        if len(self._view) > _MANY:
            self._view.clear()
        while True:
            self._reads, self._fields, self._writes = {}, {}, []
            try:
                found = self._booked(body, arguments)
            except Exception:
                # It may have read books that have changed.
                if self._call(self._reads):
                    raise
                continue
            if self._call(self._reads, self._writes):
                break
        # Fields are kept for the next booking; what else was read may have changed with them.
        for read in self._reads:
            if read[0] != "HGET":
                del self._view[read]
        self._view.update(self._fields)
        return found

    def _read(self, *read):
        """What Redis answers, as far as is known; `_run_transaction` makes sure of it."""
        if read not in self._view:
            self._call({read: None})
        return self._reads.setdefault(read, self._view[read])

    def _get(self, name, field):
        read = ("HGET", self._names[name], field)
        return self._fields[read] if read in self._fields else self._read(*read)

    def _put(self, name, field, text):
        """Write a field, or remove it where the text is None."""
        name = self._names[name]
        self._fields["HGET", name, field] = text
        change = ("HDEL", name, field) if text is None else ("HSET", name, field, text)
        self._writes.append(change)

    def _read_purse(self, name):
        return self._get("purses", name)

    def _write_purse(self, name, text):
        self._put("purses", name, text)

    def _add_reservation(self, *fields):
        purses, _, _, _, _, key = fields
        number = int(self._get("counters", "number") or 0) + 1
        self._put("counters", "number", str(number))
        made = self._reservation(number, text_of(*fields))
        self._replace_reservation(made)
        if key is not None:
            self._put("keys", text_of(purses[0], key), str(made.number))
        return made

    def _find_reservation(self, number):
        text = self._get("reservations", str(number))
        return None if text is None else self._reservation(number, text)

    def _replace_reservation(self, reservation):
        number, due = str(reservation.number), self._names["due"]
        self._put("reservations", number, text_of(*reservation[2:]))
        if reservation.deadline is None:
            self._writes.append(("ZREM", due, number))
        else:
            self._writes.append(("ZADD", due, repr(reservation.deadline), number))

    def _delete_reservation(self, reservation):
        number = str(reservation.number)
        self._put("reservations", number, None)
        self._writes.append(("ZREM", self._names["due"], number))
        if reservation.key is not None:
            self._put("keys", text_of(reservation.purses[0], reservation.key), None)

    def _find_by_key(self, purse, key):
        number = self._get("keys", text_of(purse, key))
        found = None if number is None else self._find_reservation(int(number))
        # An expired one has lost its key to a later one.
        return found if found is not None and found.key == key else None

    def _find_due(self, now):
        if self._first is None or self._first > now:
            return []
        return self._many(
            self._read("ZRANGEBYSCORE", self._names["due"], "-inf", repr(now))
        )

    def _find_of_purse(self, purse):
        numbers = self._read("HKEYS", self._names["reservations"])
        return [one for one in self._many(numbers) if one.purses[0] == purse]

    def _many(self, numbers):
        name, found = self._names["reservations"], []
        for start in range(0, len(numbers), _MANY):
            some = numbers[start : start + _MANY]
            for number, text in zip(some, self._read("HMGET", name, *some)):
                # What this transaction has changed is not written yet.
                text = self._fields.get(("HGET", name, number), text)
                if text is not None:
                    found.append(self._reservation(number, text))
        return found

    def __repr__(self):
        # Without the address, which may have a password in it.
        return f"RedisLedger(prefix={self.prefix!r})"
