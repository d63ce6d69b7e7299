"""Code blocks of the pages that are no doctests run as written, after a page's setting.

Doctests of the pages run by themselves (``--doctest-glob``). What is left is python that needs
something which a page does not make: a client, a log, a net. `SETTINGS` makes a small one.
"""

import re
from pathlib import Path
from textwrap import dedent

import pytest

DOC = Path(__file__).parents[1] / "doc"
BLOCK = re.compile(
    r"^( *)\.\. code-block:: python\n(?:\1 +:.*\n)*\n((?:(?:\1   +\S.*)?\n)+)", re.MULTILINE
)

LOG = """
import numpy as np
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3)); y = (X[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(int)
"""
SETTINGS = {
    "user_guide/metrics.rst": """
from sklearn.linear_model import Ridge
from skroute.datasets import make_routing_problem
from skroute.metrics import decision_report
from skroute.routing import BudgetRouter
problem = make_routing_problem(300, n_features=2, random_state=0)
X_test, Q_test = problem.data[200:], problem.quality[200:]
router = BudgetRouter(Ridge(), costs=problem.costs).fit(problem.data[:200], problem.quality[:200])
""",
    "user_guide/budget_router.rst": """
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from skroute.routing import BudgetRouter
words = [f"w{i}" for i in range(80)]
rng = np.random.default_rng(0)
prompts = [" ".join(rng.choice(words, 12)) for _ in range(120)]
scores, prices = rng.random((120, 2)), {"small": 0.1, "large": 1.0}
""",
    "user_guide/early_exit.rst": LOG
    + """
import joblib
from sklearn.ensemble import RandomForestClassifier
from skroute.early_exit import QWYCEnsemble
from skroute.forests import FastForest
X_train = X; model = RandomForestClassifier(5, random_state=0).fit(X, y)
""",
    "user_guide/large_data.rst": """
import dask.array as da
import numpy as np
import pandas as pd
from pathlib import Path
from skroute.routing import BudgetRouter
from sklearn.linear_model import Ridge
rng = np.random.default_rng(0)
Path("quality").mkdir()
pd.DataFrame(rng.random((50, 3)), columns=list("abc")).to_parquet("quality/0.parquet")
rows, Q = rng.random((300, 4)), rng.random((300, 3))
router = BudgetRouter(Ridge(), costs=[1, 2, 5], budget=2.2)
Path("requests").mkdir()
columns = list("wxyz")
pd.DataFrame(rng.random((50, 4)), columns=columns).to_parquet("requests/0.parquet")
sample, quality_of_sample = pd.DataFrame(rows, columns=columns), Q
router.fit(sample, Q)
import joblib
joblib.dump(router, "router.joblib")
""",
    "user_guide/members.rst": """
import numpy as np
from sklearn.compose import ColumnTransformer
from skroute.members import CallableClassifier, RecordedClassifier
from skroute.routing import OccamRouterClassifier
answers = {"google": ["question", "statement"] * 5, "microsoft": ["question"] * 10}
prices = {"google": 6, "microsoft": 10}
class RateLimitError(Exception): pass
client = lambda rows: ["question"] * len(rows)
""",
    "user_guide/occam.rst": """
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from skroute.routing import OccamRouterClassifier
""",
    "user_guide/objectives.rst": """
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from skroute.routing import OccamRouterClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3)); y = np.where(X[:, 0] > 1, "fraud", "ok")
X_test, y_test = X[:50], y[:50]
members = [("rules", GaussianNB()), ("boosting", LogisticRegression())]
members.append(("review", DecisionTreeClassifier()))
""",
    "user_guide/streams.rst": """
import numpy as np
from sklearn.linear_model import Ridge
from skroute.routing import BudgetRouter
rng = np.random.default_rng(0)
rows, Q = rng.random((100, 2)), rng.random((100, 2))
router = BudgetRouter(Ridge(), costs=[1, 5], budget=3).fit(rows, Q)
stream, x, call = router.stream(budget_total=300), rows[:1], lambda name, x: ("answer", 1.0)
""",
}


def blocks_of(page):
    """The python of a page that is no doctest."""
    text = (DOC / page).read_text(encoding="utf-8")
    return [dedent(found[2]) for found in BLOCK.finditer(text)]


PAGES = sorted(
    str(path.relative_to(DOC).as_posix())
    for path in [DOC / "getting_started.rst", *(DOC / "user_guide").glob("*.rst")]
    if ".. code-block:: python" in path.read_text(encoding="utf-8")
)


def test_no_setting_is_left_over():
    assert not set(SETTINGS) - set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_as_written(page, tmp_path, monkeypatch):
    """In order, in one namespace, where files may be left."""
    if page == "user_guide/neural_nets.rst":
        pytest.importorskip("skorch")
    if page == "user_guide/large_data.rst":
        pytest.importorskip("dask.dataframe")
        pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(page)
    text = (DOC / page).read_text(encoding="utf-8")
    assert len(blocks) == text.count(".. code-block:: python")
    namespace: dict = {"__name__": "page"}
    exec(compile(SETTINGS.get(page, ""), f"setting of {page}", "exec"), namespace)
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
