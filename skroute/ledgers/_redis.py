"""A ledger in Redis, for the processes of several hosts."""

import json
import time
import uuid

from skroute.ledgers._ledger import Ledger
from skroute.ledgers._records import RecordStore, text_of, text_of_reservation
from skroute.utils._optional import import_optional

# Compare and set, in Lua: the writes are done if all commands that read still have the
# same answers. The name of the last call is stored for ten minutes (600 seconds), so
# that a call that is sent again, because its answer was lost, does not write twice.
#
# Keys: `due`, the sorted set of reservations by deadline, and `last`, the name of the
# last call. Arguments: `new`, the name of this call, and two lists as JSON. `reads` are
# pairs of a command and its expected answer. `writes` are commands.
#
# The script returns a list as JSON: true if the writes are done, the time of Redis
# (seconds and microseconds), the first deadline or false, and the answers to the reads.
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
# Maximal number of fields that one command reads, and of answers that are kept for the
# next booking. It bounds the length of a command and the memory.
_MANY = 1000
# Answer of the script for a key or field that does not exist in Redis: Lua has false.
_NOTHING = False
# Seconds by which the clocks of a process and of Redis may drift apart after a call.
# NTP changes their rates by up to 0.05 %, which is 0.2 ms between calls of half a
# second. The constant is ten times as much, for the clocks of virtual machines.
_CLOCK_DRIFT = 0.002


class RedisLedger(Ledger):
    """A ledger in Redis that processes on several hosts share.

    A booking is decided in its process, by the clock of Redis. It is stored if no other
    booking has changed what it has read. Otherwise it is decided again. If a process is
    killed, its bookings stay, and the money that it had reserved returns at the
    deadline. After a failure of Redis itself, only what Redis has persisted is left:
    set ``appendonly yes``.

    Parameters
    ----------
    url : str
        Address of Redis, for example ``"redis://localhost:6379/0"``, in the form of
        ``redis.Redis.from_url``. Its options for decoding answers have no effect. A
        cluster is not supported.

    prefix : str, default="skroute"
        Prefix of the names of all keys.

    timeout : float, default=600.0
        Seconds after which the money of an unsettled reservation returns to its purses.
        It must be longer than any call. A later commit is booked, but its money may be
        spent.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    See Also
    --------
    SQLiteLedger : For processes of one host, without a server.

    Notes
    -----
    It needs the package redis (``pip install '.[redis]'``). All purses of a prefix
    change one after the other. If that is too slow, give tenants without common purses
    different prefixes. If a connection breaks, the command is sent again over a new
    one, up to three times.

    Examples
    --------
    >>> from skroute.ledgers import RedisLedger
    >>> ledger = RedisLedger("redis://localhost:6379/0")  # it connects when it books
    >>> ledger.timeout
    600.0
    """

    store: "RedisStore"

    def __init__(self, url, *, prefix="skroute", timeout=600.0, remember=86400.0):
        store = RedisStore(url, prefix)
        super().__init__(store, timeout=timeout, remember=remember)

    @property
    def url(self):
        """The address of Redis. It may contain a password."""
        return self.store.url

    @property
    def prefix(self):
        """The prefix of the names of all keys."""
        return self.store.prefix

    def __repr__(self):
        """Return the class and the prefix."""
        # The address is left out, since it may contain a password.
        return f"RedisLedger(prefix={self.prefix!r})"


class RedisStore(RecordStore):
    """A store in Redis. The first transaction connects to it.

    Parameters
    ----------
    url : str
        Address of Redis.

    prefix : str
        Prefix of the names of all keys.
    """

    _state = ("url", "prefix")

    def __init__(self, url, prefix):
        redis = import_optional("redis", "RedisLedger")
        self.url = url
        self.prefix = prefix
        if not isinstance(url, str):
            # The message has no value, since it may contain a password.
            raise TypeError(
                "url must be a text such as 'redis://localhost:6379/0', got "
                f"{type(url)}."
            )
        # Raises an error for an invalid address.
        redis.connection.parse_url(url)
        # Names of the keys in Redis, by the name of the table that they contain.
        names = ("purses", "reservations", "keys", "due", "counters", "identity")
        self._names = {name: f"{prefix}:{name}" for name in names}
        super().__init__()

    def after_fork(self):
        """Forget the connection. Calls get names that no call of the parent has."""
        super().after_fork()
        # The name of a call is this name and the number of the call.
        self._name = uuid.uuid4().hex
        self._n_calls = 0

    def _connect(self):
        """Connect to Redis, and read the identity of the ledger and the time.

        It sets what :meth:`_call` needs: ``_script`` (the compiled script) and
        ``_view`` (the last answer to each command that reads).
        """
        redis = import_optional("redis", "RedisLedger")
        # A failed command is sent again, up to three times. This is safe.
        retry = redis.retry.Retry(redis.backoff.ExponentialBackoff(), 3)
        options = redis.connection.parse_url(self.url)
        # These options of the URL have no effect: answers are bytes, texts are UTF-8.
        options |= {
            "decode_responses": False,
            "encoding": "utf-8",
            "encoding_errors": "strict",
        }
        pool = redis.ConnectionPool(retry=retry, **options)
        client = redis.Redis(connection_pool=pool, single_connection_client=True)
        client.auto_close_connection_pool = True
        # Sets the identity if there is none yet.
        client.set(self._names["identity"], uuid.uuid4().hex, nx=True)
        self._identity = client.get(self._names["identity"]).decode()
        self._script = client.register_script(_SCRIPT)
        # Last answers of Redis, by the command that reads.
        self._view = {}
        # A call without reads and writes only asks for the time and the first deadline.
        self._call({})

    def now(self):
        """Return the time of Redis in seconds since 1970, by its last answer."""
        return time.monotonic() + self._ahead

    def clock_lag(self):
        """Return the duration of the last call, plus a margin for drifting clocks.

        Redis read its clock during this call.
        """
        return self._call_seconds + _CLOCK_DRIFT

    def _call(self, reads, writes=()):
        """Send writes, which Redis executes if answers to reads are still the same.

        It also sets

        - ``_ahead``, the time of Redis minus that of the local clock, in seconds,
        - ``_first``, the first deadline of a reservation, or None,
        - ``_call_seconds``, the duration of the call,
        - the answers in ``_view``.

        Parameters
        ----------
        reads : dict from tuple of str to object
            Expected answers, by the command. If one is different, nothing is written.

        writes : sequence of tuple of str
            Commands.

        Returns
        -------
        bool
            True if the writes are done.
        """
        self._n_calls += 1
        call_name = f"{self._name} {self._n_calls}"
        names = (self._names["due"], f"{self.prefix}:last:{self._name}")
        expected = []
        for read, answer in reads.items():
            expected.append((read, _NOTHING if answer is None else answer))
        arguments = (call_name, json.dumps(expected), json.dumps(writes))
        sent = time.monotonic()
        result = json.loads(self._script(names, arguments))
        self._call_seconds = time.monotonic() - sent
        done, seconds, micros, first, answers = result
        # Redis read its clock before this line. So `now` is never ahead of Redis.
        self._ahead = int(seconds) + int(micros) / 1e6 - time.monotonic()
        self._first = float(first) if first else None
        # There are no answers if the script had done this call already.
        for read, answer in zip(reads, answers):
            self._view[read] = None if answer is _NOTHING else answer
        return done

    def _run_transaction(self, body, arguments):
        """Return ``self._booked(body, arguments)``, run until no other call interferes.

        The transaction has these attributes:

        - ``_reads``: its commands that read, with their answers,
        - ``_fields``: the texts that it has written, by the command that reads them,
        - ``_writes``: its commands that write.

        ``_view`` has answers of earlier calls. If they have changed, `_call` replaces
        them, and the next run reads the new answers.
        """
        # Answers that are kept must not fill the memory.
        if len(self._view) > _MANY:
            self._view.clear()
        while True:
            self._reads = {}
            self._fields = {}
            self._writes = []
            try:
                result = self._booked(body, arguments)
            except Exception:
                # Answers in `_view` that are out of date may have caused the error. It
                # is raised only if all of them are still right.
                if self._call(self._reads):
                    raise
                continue
            is_written = self._call(self._reads, self._writes)
            if is_written:
                break
            # Another booking has changed an answer. The body runs again.
        # Fields are kept for the next booking, as they were written. Answers to other
        # commands, such as lists of keys, may be old now. They are read again.
        for read in self._reads:
            command_name = read[0]
            if command_name != "HGET":
                del self._view[read]
        self._view.update(self._fields)
        return result

    def _read(self, *read):
        """Return a command's answer, from a cache that is checked before writing.

        `read` are the parts of the command, texts. A command without an answer in
        ``_view`` is sent.
        """
        if read not in self._view:
            # The expected answer does not matter, since nothing is written.
            self._call({read: None})
        # A command that is read again keeps its first answer in the transaction.
        return self._reads.setdefault(read, self._view[read])

    def _get(self, name, field):
        """Return a field's text with this transaction's changes, or None if absent.

        Parameters
        ----------
        name : str
            Name of a table, such as ``"purses"``.

        field : str
        """
        read = ("HGET", self._names[name], field)
        if read in self._fields:
            return self._fields[read]
        return self._read(*read)

    def _put(self, name, field, text):
        """Write a field of a table, or remove it if the text is None.

        It is written at the end of the transaction.

        Parameters
        ----------
        name : str
            Name of a table, such as ``"purses"``.

        field : str

        text : str or None
        """
        table = self._names[name]
        self._fields["HGET", table, field] = text
        if text is None:
            self._writes.append(("HDEL", table, field))
        else:
            self._writes.append(("HSET", table, field, text))

    def _read_purse(self, name):
        """Return the text of a purse, or None."""
        return self._get("purses", name)

    def _write_purse(self, name, text):
        """Write the text of a purse, at the end of the transaction."""
        self._put("purses", name, text)

    def add_reservation(self, purses, state, amount, *, offer, deadline, key):
        """Keep and return a new reservation, whose fields are the arguments."""
        # The counter is None before the first reservation.
        number = int(self._get("counters", "number") or 0) + 1
        self._put("counters", "number", str(number))
        text = text_of(purses, state, amount, offer, deadline, key)
        reservation = self._reservation(number, text)
        self.replace_reservation(reservation)
        if key is not None:
            self._put("keys", text_of(purses[0], key), str(number))
        return reservation

    def find_reservation(self, number):
        """Return the reservation with a number, or None."""
        text = self._get("reservations", str(number))
        return None if text is None else self._reservation(number, text)

    def replace_reservation(self, reservation):
        """Write a reservation with its deadline, in place of an earlier version."""
        number = str(reservation.number)
        due = self._names["due"]
        self._put("reservations", number, text_of_reservation(reservation))
        if reservation.deadline is None:
            self._writes.append(("ZREM", due, number))
        else:
            self._writes.append(("ZADD", due, repr(reservation.deadline), number))

    def delete_reservation(self, reservation):
        """Remove a reservation, its deadline and its key."""
        number = str(reservation.number)
        self._put("reservations", number, None)
        self._writes.append(("ZREM", self._names["due"], number))
        if reservation.key is not None:
            self._put("keys", text_of(reservation.purses[0], reservation.key), None)

    def find_by_key(self, purse, key):
        """Return the reservation with a key whose first purse is `purse`, or None."""
        number = self._get("keys", text_of(purse, key))
        if number is None:
            return None
        reservation = self.find_reservation(int(number))
        # The key of an expired reservation may belong to a later one.
        if reservation is None or reservation.key != key:
            return None
        return reservation

    def find_due(self, now):
        """Return the reservations whose deadline is not after `now`, as a list."""
        # The first deadline is known from the last call of Redis, without a new call.
        if self._first is None or self._first > now:
            return []
        numbers = self._read("ZRANGEBYSCORE", self._names["due"], "-inf", repr(now))
        return self._reservations_of(numbers)

    def find_of_purse(self, purse):
        """Return the reservations whose first purse is `purse`, as a list."""
        numbers = self._read("HKEYS", self._names["reservations"])
        return [
            reservation
            for reservation in self._reservations_of(numbers)
            if reservation.purses[0] == purse
        ]

    def _reservations_of(self, numbers):
        """Return the reservations of these numbers that exist.

        Parameters
        ----------
        numbers : list of str

        Returns
        -------
        list of Reservation
        """
        name = self._names["reservations"]
        reservations = []
        for start in range(0, len(numbers), _MANY):
            block = numbers[start : start + _MANY]
            # A text, or `_NOTHING` for a number that Redis does not have.
            texts = self._read("HMGET", name, *block)
            for number, text in zip(block, texts):
                # Changes of this transaction are not written yet. None stands for a
                # reservation that it has deleted.
                text = self._fields.get(("HGET", name, number), text)
                if text is not None and text is not _NOTHING:
                    reservations.append(self._reservation(number, text))
        return reservations
