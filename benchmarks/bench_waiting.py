"""Where people wait: logs of texts, single rows, searches, many classes, the first call.

    OMP_NUM_THREADS=1 python benchmarks/bench_waiting.py [--part texts] [--short]

Each part is a table of times next to a reference that was measured in the same process:
the time of the members alone, or scikit-learn's own pipeline. So the ratios can be
compared where the machine is busy.
"""

import argparse
import subprocess
import sys
import time
import warnings
from tempfile import TemporaryDirectory

import _data
import numpy as np
import pandas as pd
from _common import record, table
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skroute.forests import FastForest
from skroute.quality import FrameEncoder
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)


def seconds(function):
    """Return the time that a function takes, without arguments."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# Logs of texts ------------------------------------------------------------------------


def cascades_of_texts():
    """Return prompts, qualities (n_rows, 9) and costs (n_rows, 9) of MMLU."""
    table = _data.load("cascades/mmlu.npz")
    prompts = _data.read_csv("cascades/mmlu_prompts.csv.gz")
    prompt_of = dict(zip(prompts["query_id"], prompts["prompt"]))
    texts = [prompt_of[name] for name in table["query_id"]]
    qualities = table["correctness"].astype(np.float64)
    return np.array(texts, dtype=object), qualities, table["cost"]


def part_texts(short):
    """Print the time of fits on prompts, in units of one fit of the encoder."""
    n_rows = 200 if short else None
    X, quality, costs = [part[:n_rows] for part in cascades_of_texts()]
    prices = costs.mean(axis=0)
    budget = prices.mean()
    choice = np.random.default_rng(0).integers(0, quality.shape[1], len(X))
    rows = np.arange(len(X))
    ridge = make_pipeline(FrameEncoder(), Ridge())
    encode = seconds(lambda: FrameEncoder().fit(X))
    rows_of_table = [["one fit of FrameEncoder", f"{encode:.2f}", "1.0"]]

    def log_of_answers(router, **given):
        return router.fit(X, quality[rows, choice], choice=choice, **given)

    fits = {
        "one answer per request, default estimator": lambda: log_of_answers(
            BudgetRouter(costs=prices, budget=budget)
        ),
        "one answer per request, FrameEncoder and Ridge": lambda: log_of_answers(
            BudgetRouter(ridge, costs=prices, budget=budget)
        ),
        "one answer per request, cost_estimator": lambda: log_of_answers(
            BudgetRouter(cost_estimator=ridge, budget=budget),
            costs=costs[rows, choice],
        ),
        "full table, default estimator": lambda: BudgetRouter(
            costs=prices, budget=budget
        ).fit(X, quality),
        "full table, cost_estimator": lambda: BudgetRouter(
            cost_estimator=ridge, budget=budget
        ).fit(X, quality, costs=costs),
    }
    for name, fit in fits.items():
        time_of_fit = seconds(fit)
        rows_of_table.append(
            [name, f"{time_of_fit:.2f}", f"{time_of_fit / encode:.1f}"]
        )
    header = ["fit", "seconds", "encodings"]
    table(f"Texts: fits on {len(X)} prompts", header, rows_of_table)


# Single rows --------------------------------------------------------------------------


def milliseconds(function, n_calls):
    """Return the median time of calls of a function as text, after a first call."""
    function()
    times = [seconds(function) for _ in range(n_calls)]
    return f"{1e3 * float(np.median(times)):.2f}"


def mixed_frame(n_rows, rng):
    """Return a frame of texts, categories and numbers."""
    words = np.array(
        "red blue long short old new hard soft sum of prove why is".split()
    )
    prompts = []
    for row, positions in enumerate(rng.integers(0, len(words), (n_rows, 12))):
        prompts.append(" ".join(words[positions]) + f" {row}")
    return pd.DataFrame(
        {
            "prompt": prompts,
            "tenant": rng.choice(["a", "b", "c"], n_rows),
            "language": rng.choice(["en", "de"], n_rows),
            "length": rng.normal(size=n_rows),
            "age": rng.normal(size=n_rows),
            "turns": rng.integers(0, 9, n_rows),
        }
    )


def part_rows(short):
    """Print the time of one row, next to a pipeline of scikit-learn and LightGBM."""
    n_rows = 200 if short else 1500
    n_calls = 10 if short else 300
    rng = np.random.default_rng(0)
    frame = mixed_frame(n_rows, rng)
    without_text = frame.drop(columns="prompt")
    array = rng.normal(size=(n_rows, 8))
    small = 0.3 * (frame["length"] > 0) + 0.5 * rng.random(n_rows)
    quality = np.column_stack([small, 0.6 + 0.3 * rng.random(n_rows)])
    columns = make_column_transformer(
        (HashingVectorizer(), "prompt"),
        (OneHotEncoder(handle_unknown="ignore"), ["tenant", "language"]),
        (StandardScaler(), ["length", "age", "turns"]),
    )
    pipeline = make_pipeline(columns, Ridge()).fit(frame, quality)
    row = frame.iloc[[5]]
    of_pipeline = milliseconds(lambda: pipeline.predict(row), n_calls)
    rows = [["pipeline of scikit-learn", of_pipeline]]
    tables = {"frame with text": frame, "frame": without_text, "array": array}
    for name, X in tables.items():
        router = BudgetRouter(costs=[1.0, 3.0], budget=2.0).fit(X, quality)
        stream = router.stream(1e9)
        row_of_X = X.iloc[[5]] if hasattr(X, "iloc") else X[5:6]

        def route(router=router, row=row_of_X):
            router.route(row)

        def route_and_commit(stream=stream, row=row_of_X):
            stream.commit(stream.route(row))

        rows.append([f"route, {name}", milliseconds(route, n_calls)])
        rows.append([f"stream, {name}", milliseconds(route_and_commit, n_calls)])

    categories = {"tenant": "category", "language": "category"}
    rows_of_trees = without_text.astype(categories)
    boosting = LGBMClassifier(n_jobs=1, verbose=-1).fit(rows_of_trees, small > 0.4)
    forest = FastForest(boosting).fit(rows_of_trees, small > 0.4)
    row = rows_of_trees.iloc[[5]]
    of_boosting = milliseconds(lambda: boosting.predict(row), n_calls)
    of_forest = milliseconds(lambda: forest.predict(row), n_calls)
    rows.append(["LightGBM, frame", of_boosting])
    rows.append(["FastForest, frame", of_forest])
    table("One row", ["call", "milliseconds"], rows)


# Searches -----------------------------------------------------------------------------


def part_search(short):
    """Print the time of a search over budgets, in units of one fit of the members."""
    n_rows = 200 if short else 2000
    n_trees = 10 if short else 100
    X, y = make_classification(n_rows, 20, n_informative=8, random_state=0)
    members = [
        ("linear", LogisticRegression()),
        ("forest", RandomForestClassifier(n_trees, random_state=0)),
        ("boosting", HistGradientBoostingClassifier(max_iter=n_trees, random_state=0)),
    ]

    def fit_members_once():
        """Fit members as each fit of the search does: on all rows and in 5 folds."""
        folds = [train for train, _ in StratifiedKFold(2).split(X, y)]
        for rows in [*folds, np.arange(len(X))]:
            for _, member in members:
                clone(member).fit(X[rows], y[rows])
                cross_val_predict(
                    member, X[rows], y[rows], cv=5, method="predict_proba"
                )

    def search(memory):
        router = OccamRouterClassifier(
            members, costs=[1.0, 6.0, 10.0], budget=4.0, memory=memory
        )
        grid = {"budget": [3.0, 4.0, 5.0], "reg_lambda": [0.0, 0.5]}
        return GridSearchCV(router, grid, cv=2).fit(X, y)

    once = seconds(fit_members_once)
    without = seconds(lambda: search(None))
    with TemporaryDirectory() as directory:
        cached = seconds(lambda: search(directory))
    rows = []
    for name, duration in (
        ("members, each fold once", once),
        ("6 candidates, 2 folds", without),
        ("the same with memory", cached),
    ):
        rows.append([name, f"{duration:.1f}", f"{duration / once:.2f}"])
    table("Search", ["what", "seconds", "times the members"], rows)


# Many classes -------------------------------------------------------------------------


def part_classes(short):
    """Print the time of routers of many classes, next to that of their members."""
    n_classes = 120 if short else 2000
    n_rows = 4 * n_classes
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), n_rows // n_classes)
    rng.shuffle(y)
    centres = rng.normal(size=(n_classes, 20))
    X = centres[y] + 0.5 * rng.normal(size=(n_rows, 20))
    members = [
        ("smooth", GaussianNB(var_smoothing=1.0)),
        ("tree", DecisionTreeClassifier(max_features=8, random_state=0)),
        ("bayes", GaussianNB()),
    ]
    # Each class has four rows, one in each fold.
    cv = 4

    def fit_members():
        for _, member in members:
            clone(member).fit(X, y)
            cross_val_predict(member, X, y, cv=cv, method="predict_proba")

    alone = seconds(fit_members)
    rows = [["members and their out-of-fold answers", f"{alone:.1f}", "1.0"]]
    for router_class in (FrugalMCTClassifier, SequentialRouterClassifier):
        router = router_class(members, costs=[1.0, 2.0, 4.0], cv=cv)
        time_of_fit = seconds(lambda router=router: router.fit(X, y))
        ratio = time_of_fit / alone
        rows.append([router_class.__name__, f"{time_of_fit:.1f}", f"{ratio:.1f}"])
    header = ["fit", "seconds", "times the members"]
    table(f"{n_classes} classes, {n_rows} rows", header, rows)


# The first call -----------------------------------------------------------------------

# README's ten lines, in a fresh process. It prints seconds of the processor: those of
# scikit-learn's imports, of skroute's import, and of the first fit and call.
_TEN_LINES = """
from time import process_time
start = process_time()
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
imported = process_time()
from skroute.routing import OccamRouterClassifier
ready = process_time()
X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=4)
models = [("bayes", GaussianNB()), ("knn", KNeighborsClassifier())]
router = OccamRouterClassifier(models, costs={"bayes": 1, "knn": 10}, budget=4)
router.fit(X, y).predict_routed(X_test)
print(imported - start, ready - imported, process_time() - ready)
"""


def part_first(short):
    """Print the time of README's ten lines in a fresh process, compiled before."""
    runs = []
    # The first run compiles. The others are measured.
    for _ in range(2 if short else 4):
        result = subprocess.run(
            [sys.executable, "-c", _TEN_LINES],
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append([float(number) for number in result.stdout.split()])
    reference, imported, fit = np.median(runs[1:], axis=0)
    rows = [
        ["scikit-learn's imports", f"{reference:.2f}"],
        ["skroute's import", f"{imported:.2f}"],
        ["first fit and call", f"{fit:.2f}"],
    ]
    table("The first call", ["step", "seconds of the processor"], rows)


PARTS = {
    "texts": part_texts,
    "rows": part_rows,
    "search": part_search,
    "classes": part_classes,
    "first": part_first,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in arguments.part or PARTS:
        PARTS[part](arguments.short)
    if arguments.part is None and not arguments.short:
        record("waiting")
