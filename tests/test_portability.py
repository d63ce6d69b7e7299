"""What only some systems have, left out: Windows has no fork, no fcntl and no SIGKILL."""

import subprocess
import sys

_AS_ON_WINDOWS = """
import os, signal, sys
import numpy as np
sys.modules["fcntl"] = None
for module, name in [
    (os, "fork"), (os, "register_at_fork"), (os, "O_CLOEXEC"), (signal, "SIGKILL")
]:
    delattr(module, name)

import skroute
for name in skroute.__all__[1:]:
    getattr(skroute, name)

from sklearn.linear_model import Ridge
from skroute.ledgers import MemoryLedger, SQLiteLedger
from skroute.routing import BudgetRouter
X = np.linspace(0, 1, 100)[:, None]
Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
router = BudgetRouter(Ridge(), costs=[1, 5]).fit(X, Q)
for ledger in [MemoryLedger(), SQLiteLedger(sys.argv[1]), SQLiteLedger(sys.argv[1])]:
    stream = router.stream(budget_total=40, ledger=ledger)
    for x in X[:5]:
        stream.commit(stream.route(x[None]))
    print(type(ledger).__name__, stream.status().n_committed, os.path.exists(sys.argv[1] + "-lock"))
"""


def test_ledgers_and_all_rooms_without_what_windows_lacks(tmp_path):
    """Two ledgers of one file share their books; no file beside it is locked."""
    code = [sys.executable, "-W", "error", "-c", _AS_ON_WINDOWS, str(tmp_path / "books.db")]
    done = subprocess.run(code, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "MemoryLedger 5 False",
        "SQLiteLedger 5 False",
        "SQLiteLedger 10 False",
    ]
