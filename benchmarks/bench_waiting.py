"""Where people wait: logs of texts, single rows, searches, many classes, the first call.

Each part runs alone:

    OMP_NUM_THREADS=1 python benchmarks/bench_waiting.py --part texts

Parts print seconds, or milliseconds for single rows, next to a reference that was
measured in the same process: the time of the members alone, or scikit-learn's own
pipeline. So the ratios can be compared where the machine is busy.
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


def part_texts():
    """Print the time of fits on prompts, in units of one fit of the encoder."""
    X, quality, costs = cascades_of_texts()
    prices = costs.mean(axis=0)
    budget = prices.mean()
    choice = np.random.default_rng(0).integers(0, quality.shape[1], len(X))
    rows = np.arange(len(X))
    ridge = make_pipeline(FrameEncoder(), Ridge())
    encode = seconds(lambda: FrameEncoder().fit(X))
    print(f"one fit of FrameEncoder on {len(X)} prompts: {encode:.2f} s")

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
        print(f"{name:50} {time_of_fit:6.1f} s, {time_of_fit / encode:5.1f} encodings")


# Single rows --------------------------------------------------------------------------

# Calls whose median is taken.
N_CALLS = 300


def milliseconds(function):
    """Return the median time of a function without arguments, after a first call."""
    function()
    times = [seconds(function) for _ in range(N_CALLS)]
    return 1e3 * float(np.median(times))


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


def part_rows():
    """Print the time of one row, next to a pipeline of scikit-learn and LightGBM."""
    n_rows = 1500
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
    print(
        f"{'pipeline of scikit-learn':40} {milliseconds(lambda: pipeline.predict(row)):.2f} ms"
    )

    tables = {"frame with text": frame, "frame": without_text, "array": array}
    for name, X in tables.items():
        router = BudgetRouter(costs=[1.0, 3.0], budget=2.0).fit(X, quality)
        stream = router.stream(1e9)
        row_of_X = X.iloc[[5]] if hasattr(X, "iloc") else X[5:6]

        def route(router=router, row=row_of_X):
            router.route(row)

        def route_and_commit(stream=stream, row=row_of_X):
            stream.commit(stream.route(row))

        print(f"{'route, ' + name:40} {milliseconds(route):.2f} ms")
        print(f"{'stream, ' + name:40} {milliseconds(route_and_commit):.2f} ms")

    categories = {"tenant": "category", "language": "category"}
    rows_of_trees = without_text.astype(categories)
    boosting = LGBMClassifier(n_jobs=1, verbose=-1).fit(rows_of_trees, small > 0.4)
    forest = FastForest(boosting).fit(rows_of_trees, small > 0.4)
    row = rows_of_trees.iloc[[5]]
    print(
        f"{'LightGBM, frame':40} {milliseconds(lambda: boosting.predict(row)):.2f} ms"
    )
    print(
        f"{'FastForest, frame':40} {milliseconds(lambda: forest.predict(row)):.2f} ms"
    )


# Searches -----------------------------------------------------------------------------


def part_search():
    """Print the time of a search over budgets, in units of one fit of the members."""
    X, y = make_classification(2000, 20, n_informative=8, random_state=0)
    members = [
        ("linear", LogisticRegression()),
        ("forest", RandomForestClassifier(100, random_state=0)),
        ("boosting", HistGradientBoostingClassifier(random_state=0)),
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
    print(f"members, each fold once: {once:.1f} s")
    without = seconds(lambda: search(None))
    print(f"6 candidates, 2 folds: {without:.1f} s, {without / once:.2f} times")
    with TemporaryDirectory() as directory:
        cached = seconds(lambda: search(directory))
    print(f"the same with memory: {cached:.1f} s, {cached / once:.2f} times")


# Many classes -------------------------------------------------------------------------


def part_classes(n_classes=2000, n_rows=8000):
    """Print the time of routers of many classes, next to that of their members."""
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
    print(f"{'members and their out-of-fold answers':40} {alone:.1f} s")
    for router_class in (FrugalMCTClassifier, SequentialRouterClassifier):
        router = router_class(members, costs=[1.0, 2.0, 4.0], cv=cv)
        time_of_fit = seconds(lambda router=router: router.fit(X, y))
        ratio = time_of_fit / alone
        print(f"{router_class.__name__:40} {time_of_fit:.1f} s, {ratio:.1f} times")


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


def part_first():
    """Print the time of README's ten lines in a fresh process, compiled before."""
    runs = []
    # The first run compiles. The others are measured.
    for _ in range(4):
        result = subprocess.run(
            [sys.executable, "-c", _TEN_LINES],
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append([float(number) for number in result.stdout.split()])
    reference, imported, fit = np.median(runs[1:], axis=0)
    print(f"scikit-learn's imports {reference:.2f} s of the processor")
    print(f"skroute's import {imported:.2f} s, first fit and call {fit:.2f} s")


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
    warnings.simplefilter("ignore")
    for part in parser.parse_args().part or PARTS:
        print(f"--- {part}")
        PARTS[part]()
