"""A machine without torch: everything but nets works, and the error names the extra."""

import subprocess
import sys

import pytest

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


def test_errors_name_the_extra_and_a_router_works_without_it():
    message = run_blocked(
        """
for call in (
    lambda: BaggedNeighborsRegressor(device="cpu").fit(X, y),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""
        + ROUTED
    )
    assert (
        message.count("needs torch, which is not installed: pip install 'skroute-ml[torch]'") == 1
    )


def test_a_router_does_not_load_torch():
    script = BLOCKED.replace("sys.meta_path.insert(0, Block())", "") + ROUTED
    script += "print([m for m in ('torch', 'skorch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_what_was_fitted_with_torch_answers_without_it(tmp_path):
    """The kernels answer for a device that is not there, and say so."""
    pytest.importorskip("torch")
    import joblib
    import numpy as np

    from skroute.quality import BaggedNeighborsRegressor

    rng = np.random.default_rng(0)
    X, y = rng.random((60, 3)), rng.random(60)
    model = BaggedNeighborsRegressor(device="cpu").fit(X, y)
    path = tmp_path / "model.joblib"
    joblib.dump((model, X, model.predict(X)), path)
    script = f"""
import joblib, warnings
model, X, expected = joblib.load({str(path)!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    np.testing.assert_allclose(model.predict(X), expected)
print(caught[0].message)
"""
    assert "needs torch" in run_blocked(script)
