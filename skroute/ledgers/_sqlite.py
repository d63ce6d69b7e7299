"""Books in a SQLite file: several processes of one host."""

import os
import sqlite3
import threading
import uuid
import weakref
from contextlib import contextmanager

from skroute.ledgers._books import Books, Offer, Purse, Reservation, Terms
from skroute.ledgers._transactions import TransactionLedger

# Where writers cannot queue by a lock of the system (Windows), SQLite's own waiting serves.
try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS ledger (version INTEGER, identity TEXT);
CREATE TABLE IF NOT EXISTS purses (
    name TEXT PRIMARY KEY, opened_total, opened_n_expected, opened_period,
    {", ".join(Purse.FIELDS)}
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reservations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, purses TEXT, state TEXT, amount REAL,
    choice INTEGER, name TEXT, cost REAL, deciding REAL, reserved REAL, deadline REAL, key TEXT,
    own TEXT
);
CREATE INDEX IF NOT EXISTS due ON reservations (deadline) WHERE deadline IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS keys ON reservations (own, key) WHERE key IS NOT NULL;
"""
_VERSION = 1
_SAVE = f"INSERT OR REPLACE INTO purses VALUES (?, ?, ?, ?, {', '.join('?' * len(Purse.FIELDS))})"
_INSERT = """INSERT INTO reservations
    (purses, state, amount, choice, name, cost, deciding, reserved, deadline, key, own)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# Names of purses are joined by a character that none of them has.
_BETWEEN = "\x1f"
# A writer holds the file for some tens of microseconds; one that waits this long waits for a
# process that was stopped.
_PATIENCE = 60.0
# 16 MB: written to the disk every 1,000 bookings or so.
_LOG_PAGES = 4000

# Threads of a child that was forked find a fresh lock, and open the file for themselves.
_ALL: "weakref.WeakSet[SQLiteLedger]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [ledger._forget() for ledger in _ALL])


def _close(connection):
    if connection is not None:
        connection.close()


class SQLiteLedger(TransactionLedger):
    """Purses that the processes of one host share, in a file.

    Each booking is a transaction of SQLite in WAL mode. A process may be killed at any
    instant: what it had booked stays, what it had reserved returns at its deadline. (After a
    power failure the file is sound, and may lack the last bookings.) The file must be on a
    local disk, since network file systems do not lock reliably.

    Parameters
    ----------
    path : str or path-like
        The file; made where there is none. Beside it stand SQLite's ``-wal`` and ``-shm`` and
        an empty ``-lock``, in which processes queue.

    timeout : float, default=600.0
        Seconds after which the money of a reservation that nobody has settled returns to
        its purses. Longer than any call takes: a later commit is booked, but may find the
        money spent.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    Raises
    ------
    OSError
        Where the file cannot be opened, for example since its folder is not there.
    ValueError
        For a file that is no ledger.

    See Also
    --------
    RedisLedger : For processes of several hosts.

    Notes
    -----
    Costs are summed as float64. A pickle holds the path, not the books.

    Examples
    --------
    >>> import os, tempfile
    >>> from skroute.ledgers import SQLiteLedger
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "ledger.sqlite")
    >>> SQLiteLedger(path).open("all tenants", 100.0, period="day")
    >>> SQLiteLedger(path).books("all tenants").total
    100.0
    >>> folder.cleanup()
    """

    def __init__(self, path, *, timeout=600.0, remember=86400.0):
        super().__init__(timeout, remember)
        self.path = os.path.abspath(os.fspath(path))
        self._met = {}
        self._forget()
        _ALL.add(self)
        with self._transaction():
            pass

    def _forget(self):
        """No connection yet, in this process. A parent's is kept from being closed here."""
        self._parents = (getattr(self, "_parents", None), getattr(self, "_connection", None))
        self._lock = threading.Lock()
        self._connection = None
        self._queue = None

    def _opened(self):
        """A connection to a file that is a ledger, or new."""
        if not os.path.isdir(os.path.dirname(self.path)):
            raise FileNotFoundError(
                f"There is no folder for the ledger {self.path!r}: make it first."
            )
        connection = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            # A ledger gets all of its tables at once.
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            if tables and ("ledger",) not in tables:
                raise ValueError(f"{self.path!r} is no ledger: it has other tables. Name another.")
        except sqlite3.OperationalError as error:
            _close(connection)
            raise OSError(f"The ledger {self.path!r} cannot be opened: {error}.") from error
        except sqlite3.DatabaseError as error:
            _close(connection)
            raise ValueError(f"{self.path!r} is no SQLite file: {error}.") from error
        except ValueError:
            _close(connection)
            raise
        return connection

    def _connect(self):
        connection = self._opened()
        if fcntl is not None:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self._queue = os.open(self.path + "-lock", flags, 0o666)
        with self._queued():
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            # Whoever books next waits while the log is written to the disk and begun anew.
            connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                found = connection.execute("SELECT version, identity FROM ledger").fetchone()
                if found is None:
                    found = (_VERSION, uuid.uuid4().hex)
                    connection.execute("INSERT INTO ledger VALUES (?, ?)", found)
            finally:
                connection.execute("COMMIT")
        if found[0] != _VERSION:
            raise ValueError(
                f"The ledger has the format {found[0]!r}, and this skroute reads {_VERSION}."
            )
        self._identity = found[1]
        self._connection = connection
        self._run = connection.execute

    @contextmanager
    def _queued(self):
        # SQLite polls for its lock, and whoever polls last may wait for ever; the kernel wakes.
        if fcntl is None or self._queue is None:
            yield
            return
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    @contextmanager
    def _transaction(self):
        with self._lock:
            if self._connection is None:
                self._connect()
            with self._queued():
                self._run("BEGIN IMMEDIATE")
                try:
                    yield
                except BaseException:
                    self._run("ROLLBACK")
                    raise
                self._run("COMMIT")

    def _load(self, name):
        row = self._run("SELECT * FROM purses WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        self._met[name] = None
        return Purse(name, Terms(*row[1:4]), row[4:])

    def _save(self, purse):
        self._met[purse.name] = None
        books = [getattr(purse, field) for field in Books._fields]
        self._run(_SAVE, (purse.name, *purse.terms, *books))

    def _insert(self, purses, state, amount, offer, deadline, key):
        money = (None,) * 5 if offer is None else offer
        row = (_BETWEEN.join(purses), state, amount, *money, deadline, key, purses[0])
        number = self._run(_INSERT, row).lastrowid
        return Reservation(self._identity, number, purses, state, amount, offer, deadline, key)

    def _made_of(self, row):
        number, purses, state, amount, *money, deadline, key, _ = row
        offer = None if money[0] is None else Offer(*money)
        purses = tuple(purses.split(_BETWEEN))
        return Reservation(self._identity, number, purses, state, amount, offer, deadline, key)

    def _find(self, number):
        row = self._run("SELECT * FROM reservations WHERE number = ?", (number,)).fetchone()
        return None if row is None else self._made_of(row)

    def _replace(self, reservation):
        self._run(
            "UPDATE reservations SET state = ?, deadline = ?, key = ? WHERE number = ?",
            (reservation.state, reservation.deadline, reservation.key, reservation.number),
        )

    def _delete(self, reservation):
        self._run("DELETE FROM reservations WHERE number = ?", (reservation.number,))

    def _find_key(self, purse, key):
        row = self._run("SELECT * FROM reservations WHERE own = ? AND key = ?", (purse, key))
        row = row.fetchone()
        return None if row is None else self._made_of(row)

    def _due(self, now):
        rows = self._run("SELECT * FROM reservations WHERE deadline <= ?", (now,)).fetchall()
        return [self._made_of(row) for row in rows]

    def _all(self, purse):
        rows = self._run("SELECT * FROM reservations WHERE own = ? ORDER BY number", (purse,))
        return [self._made_of(row) for row in rows.fetchall()]

    def _about(self):
        return (repr(self.path),), list(self._met)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in ("path", "timeout", "remember")}

    def __setstate__(self, state):
        self.__init__(state["path"], timeout=state["timeout"], remember=state["remember"])
