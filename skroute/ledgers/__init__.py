"""Ledgers of a total that several threads, processes or hosts spend from."""

from skroute.ledgers._books import (
    AlreadyCommittedError,
    Books,
    BudgetExhaustedError,
    Offer,
    Reservation,
    Window,
    WindowFullError,
    WindowUse,
)
from skroute.ledgers._ledger import Ledger
from skroute.ledgers._memory import MemoryLedger
from skroute.ledgers._redis import RedisLedger
from skroute.ledgers._sqlite import SQLiteLedger
from skroute.ledgers._store import Store

__all__ = [
    "AlreadyCommittedError",
    "Books",
    "BudgetExhaustedError",
    "Ledger",
    "MemoryLedger",
    "Offer",
    "RedisLedger",
    "Reservation",
    "SQLiteLedger",
    "Store",
    "Window",
    "WindowFullError",
    "WindowUse",
]
