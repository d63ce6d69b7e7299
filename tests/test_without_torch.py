"""A machine without torch: everything but nets works, and the error names the extra."""

import subprocess
import sys

# A fresh process in which torch and skorch cannot be imported.
BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "skorch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import numpy as np
from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from skroute.quality import BaggedNeighborsRegressor
from skroute.routing import OccamRouterClassifier
X, y = make_classification(100, random_state=0)
nets = [("net", GaussianNB()), ("tree", DecisionTreeClassifier())]
"""


def run_blocked(script):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ROUTED = """
router = OccamRouterClassifier(nets, costs="time", embedding="net").fit(X, y)
router.predict(X)
"""


def test_a_router_works_without_it():
    run_blocked(ROUTED)


def test_a_router_does_not_load_torch():
    script = BLOCKED.replace("sys.meta_path.insert(0, Block())", "") + ROUTED
    script += "print([m for m in ('torch', 'skorch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
