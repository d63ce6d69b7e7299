"""A ledger in a SQLite file, for the processes of one host."""

import os
import sqlite3
import uuid

from skroute.ledgers._ledger import Ledger
from skroute.ledgers._records import RecordStore, text_of, text_of_reservation

# Records are JSON, see `_records`. The column `own` has the name of a reservation's
# first purse.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (version INTEGER, identity TEXT);
CREATE TABLE IF NOT EXISTS purses (name TEXT PRIMARY KEY, record TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reservations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    record TEXT,
    own TEXT,
    key TEXT,
    deadline REAL
);
CREATE INDEX IF NOT EXISTS due ON reservations (deadline) WHERE deadline IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS keys ON reservations (own, key) WHERE key IS NOT NULL;
"""
# Version of the tables.
_VERSION = 3
# Begin of the queries of reservations. A condition follows.
_RESERVATIONS = "SELECT number, record FROM reservations WHERE "
# Seconds to wait for the lock of the file. A booking holds it for some tens of
# microseconds. Only a process that was stopped in a booking holds it for long.
_PATIENCE = 60.0
# Pages of the log (16 MB) after which it is written into the file, about every 1,000
# bookings. The next booking waits meanwhile.
_LOG_PAGES = 4000


class SQLiteLedger(Ledger):
    """A ledger in an SQLite file that the processes of one host share.

    Each booking is a transaction of SQLite in WAL mode. If a process is killed, its
    bookings stay, and the money that it had reserved returns at the deadline. (After a
    power failure the file is valid, and the last bookings may be lost.) The file must
    be on a local disk, since network file systems do not lock reliably.

    Parameters
    ----------
    path : str or path-like
        The file. It is created if it does not exist. SQLite's ``-wal`` and ``-shm`` are
        next to it. SQLite's names of other databases, ``":memory:"`` and ``"file:"``
        URIs, are refused.

    timeout : float, default=600.0
        Seconds after which the money of an unsettled reservation returns to its purses.
        It must be longer than any call. A later commit is booked, but its money may be
        spent.

    remember : float, default=86400.0
        Seconds for which the key of a committed request is remembered.

    Raises
    ------
    OSError
        If the file cannot be opened, for example because its folder does not exist.
        Each booking raises it if the file cannot be written, for example because
        another program has locked it for a minute.
    ValueError
        For a file that is not a ledger, or a `path` that is not the path of a file.

    See Also
    --------
    RedisLedger : For processes of several hosts.

    Notes
    -----
    Costs are summed as float64. A pickle has the path, not the amounts.

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

    store: "SQLiteStore"

    def __init__(self, path, *, timeout=600.0, remember=86400.0):
        super().__init__(SQLiteStore(path), timeout=timeout, remember=remember)
        # The file is opened at once, so that an invalid file is an error here.
        self.store.connect()

    @property
    def path(self):
        """The absolute path of the file."""
        return self.store.path

    def __setstate__(self, state):
        """Set the attributes of a copied ledger, and open its file at once."""
        super().__setstate__(state)
        self.store.connect()

    def __repr__(self):
        """Return the class and the path."""
        return f"SQLiteLedger({self.path!r})"


class SQLiteStore(RecordStore):
    """A store in a SQLite file. The first transaction opens the file.

    Parameters
    ----------
    path : str or path-like
        The file. It is created if it does not exist.
    """

    _state = ("path",)

    def __init__(self, path):
        self.path = os.path.abspath(_checked_path(path))
        self._connection = None
        super().__init__()

    def after_fork(self):
        """Forget the connection of the parent, which must not be closed here."""
        super().after_fork()
        # Python closes a connection that nothing refers to. So this pair keeps the
        # parent's connection, and the parent's own pair (None before the first fork).
        self._parents = (getattr(self, "_parents", None), self._connection)
        self._connection = None

    def _connect(self):
        """Open the file of a ledger, or create it.

        It sets ``_connection``, ``_execute`` and ``_identity``.
        """
        if not os.path.isdir(os.path.dirname(self.path)):
            raise FileNotFoundError(
                f"There is no folder for the ledger {self.path!r}: make it first."
            )
        connection = None
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=_PATIENCE,
                # sqlite3 begins no transactions by itself.
                isolation_level=None,
                # Threads book one after the other, by the lock of `transact`.
                check_same_thread=False,
            )
            # All tables of a ledger are created in one transaction, so that a file has
            # all of them or none. A new file has none.
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            if tables and ("ledger",) not in tables:
                raise ValueError(
                    f"{self.path!r} is no ledger: it has other tables. Name another."
                )
            self._identity = _prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(
                    f"The ledger {self.path!r} cannot be opened: {error}."
                ) from error
            if isinstance(error, sqlite3.DatabaseError):
                raise ValueError(
                    f"{self.path!r} is no SQLite file: {error}."
                ) from error
            raise
        self._connection = connection
        self._execute = connection.execute

    def _run_transaction(self, body, arguments):
        """Return ``self._booked(body, arguments)``, run as a transaction of SQLite."""
        try:
            return _in_transaction(self._connection, self._booked, body, arguments)
        except sqlite3.Error as error:
            raise OSError(
                f"The ledger {self.path!r} cannot be written: {error}."
            ) from error

    def _read_purse(self, name):
        """Return the text of a purse, or None."""
        row = self._execute(
            "SELECT record FROM purses WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else row[0]

    def _write_purse(self, name, text):
        """Write the text of a purse."""
        self._execute("INSERT OR REPLACE INTO purses VALUES (?, ?)", (name, text))

    def add_reservation(self, purses, state, amount, *, offer, deadline, key):
        """Keep and return a new reservation, whose fields are the arguments."""
        text = text_of(purses, state, amount, offer, deadline, key)
        number = self._execute(
            "INSERT INTO reservations (record, own, key, deadline) VALUES (?, ?, ?, ?)",
            (text, purses[0], key, deadline),
        ).lastrowid
        return self._reservation(number, text)

    def _where(self, condition, *values):
        """Return the reservations that meet a condition of SQL.

        Parameters
        ----------
        condition : str
            With a question mark for each value.

        *values : object

        Returns
        -------
        list of Reservation
        """
        rows = self._execute(_RESERVATIONS + condition, values).fetchall()
        return [self._reservation(*row) for row in rows]

    def find_reservation(self, number):
        """Return the reservation with a number, or None."""
        return _first_or_none(self._where("number = ?", number))

    def find_by_key(self, purse, key):
        """Return the reservation with a key whose first purse is `purse`, or None."""
        return _first_or_none(self._where("own = ? AND key = ?", purse, key))

    def find_due(self, now):
        """Return the reservations whose deadline is not after `now`, as a list."""
        return self._where("deadline <= ?", now)

    def find_of_purse(self, purse):
        """Return the reservations whose first purse is `purse`, as a list."""
        return self._where("own = ?", purse)

    def replace_reservation(self, reservation):
        """Write a changed reservation in place of the one with the same number."""
        self._execute(
            "UPDATE reservations SET record = ?, key = ?, deadline = ? "
            "WHERE number = ?",
            (
                text_of_reservation(reservation),
                reservation.key,
                reservation.deadline,
                reservation.number,
            ),
        )

    def delete_reservation(self, reservation):
        """Remove a reservation and its key."""
        self._execute(
            "DELETE FROM reservations WHERE number = ?", (reservation.number,)
        )


def _first_or_none(reservations):
    """Return the first reservation of a list, or None for an empty list."""
    return reservations[0] if reservations else None


def _prepare(connection):
    """Create the tables of a ledger if they do not exist. Return its identity."""
    # In WAL mode, those who read do not wait. With NORMAL, a commit does not wait for
    # the disk.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
    version, identity = _in_transaction(connection, _create_tables, connection)
    if version != _VERSION:
        raise ValueError(
            f"The ledger has the format {version!r}, and this skroute reads {_VERSION}."
        )
    return identity


def _create_tables(connection):
    """Create missing tables, and return the version and the identity of the ledger."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    row = connection.execute("SELECT version, identity FROM ledger").fetchone()
    if row is None:
        row = (_VERSION, uuid.uuid4().hex)
        connection.execute("INSERT INTO ledger VALUES (?, ?)", row)
    return row


def _in_transaction(connection, body, *arguments):
    """Return ``body(*arguments)``. Either all of its changes are stored, or none.

    An interrupt may come between any two lines. If it has left a transaction open, this
    transaction is undone before the next begins.

    Parameters
    ----------
    connection : sqlite3.Connection

    body : callable

    *arguments : object
        Arguments of `body`.

    Returns
    -------
    object
        The result of `body`.
    """
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        result = body(*arguments)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _checked_path(path):
    """Return a file's path as a str. Refuse ":memory:", URIs and an empty name."""
    name = os.fsdecode(path)
    if name == ":memory:":
        raise ValueError(
            "path must be that of a file, got ':memory:'. Use MemoryLedger for books "
            "that are not kept."
        )
    if not name or name.startswith("file:"):
        raise ValueError(
            f"path must be that of a file, got {name!r}. URIs and temporary databases "
            "are not taken: give the path, or use MemoryLedger for books that are not "
            "kept."
        )
    return name
