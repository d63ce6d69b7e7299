"""Machines that lack something: no torch; no fork, fcntl and SIGKILL, as on Windows."""

import subprocess
import sys

WITHOUT_TORCH = """
import sys

asked = []

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "skorch"):
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from skroute.routing import OccamRouterClassifier
X, y = make_classification(100, random_state=0)
members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier())]
OccamRouterClassifier(members, costs="time", embedding="bayes").fit(X, y).predict(X)
print(asked)
"""

AS_ON_WINDOWS = """
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


def run(script, *arguments):
    code = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_router_needs_no_torch_and_does_not_ask_for_it():
    assert run(WITHOUT_TORCH) == ["[]"]


def test_ledgers_and_all_rooms_without_what_windows_lacks(tmp_path):
    """Two ledgers of one file share their books; no file beside it is locked."""
    assert run(AS_ON_WINDOWS, tmp_path / "books.db") == [
        "MemoryLedger 5 False",
        "SQLiteLedger 5 False",
        "SQLiteLedger 10 False",
    ]
