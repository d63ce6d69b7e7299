"""A machine that lacks something: no torch; no fork, fcntl and SIGKILL, as on Windows."""

import subprocess
import sys

SCRIPT = """
import os, signal, sys

asked = []

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "skorch"):
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
sys.modules["fcntl"] = None
for module, name in [
    (os, "fork"), (os, "register_at_fork"), (os, "O_CLOEXEC"), (signal, "SIGKILL")
]:
    delattr(module, name)

from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from skroute.routing import OccamRouterClassifier
X, y = make_classification(100, random_state=0)
members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier())]
router = OccamRouterClassifier(members, costs="time", embedding="bayes").fit(X, y)
router.predict(X)
print(asked)

import skroute
for name in skroute.__all__[1:]:
    getattr(skroute, name)

from skroute.ledgers import MemoryLedger, SQLiteLedger
router.set_params(costs=[1, 5], routing_cost=0.0).fit(X, y)
for ledger in [MemoryLedger(), SQLiteLedger(sys.argv[1]), SQLiteLedger(sys.argv[1])]:
    stream = router.stream(budget_total=40, ledger=ledger)
    for x in X[:5]:
        stream.commit(stream.route(x[None]))
    print(type(ledger).__name__, stream.status().n_committed, os.path.exists(sys.argv[1] + "-lock"))
"""


def test_routers_ledgers_and_all_rooms_without_them(tmp_path):
    """A router asks for no torch; two ledgers of a file share books, and lock no file beside it."""
    code = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "books.db")]
    done = subprocess.run(code, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[]",
        "MemoryLedger 5 False",
        "SQLiteLedger 5 False",
        "SQLiteLedger 10 False",
    ]
