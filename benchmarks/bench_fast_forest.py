"""All trees, exact: FastForest beside each library's own prediction.

One thread, one process, in turn. Adult with its official split and 500 trees of depth 5
is the case that others report; the rest shows other shapes: 200 leaves (beyond bit
vectors), 100 features, 26 classes, other libraries. CatBoost and YDF's QuickScorer take
part where they are installed (extra ``bench``); lleaves needs an older llvmlite than
numba has, its published factor is 8.6 on Adult.

    python benchmarks/bench_fast_forest.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

import _data
import lightgbm as lgb
import numpy as np
from _common import alternate, record, table
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from skroute.forests import FastForest

GIVEN = {"learning_rate": 0.05, "n_jobs": 1, "verbose": -1, "random_state": 0}


def split(bunch):
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)
    return X[~bunch.is_test], bunch.target[~bunch.is_test], X[bunch.is_test]


def wide(n_features=100, n_rows=20_000):
    X, y = make_classification(
        n_rows, n_features, n_informative=30, n_redundant=20, random_state=0
    )
    return np.split(X, 2)[0], np.split(y, 2)[0], np.split(X, 2)[1]


def cases(short):
    """Name, fitted model and test rows of each shape."""
    n = 20 if short else 500
    adult, letter, many = split(_data.adult()), split(_data.letter()), wide()
    if short:
        adult, letter, many = (
            tuple(part[:1000] for part in one) for one in (adult, letter, many)
        )

    def light(n=n, **shape):
        return lgb.LGBMClassifier(n_estimators=n, **GIVEN, **shape)

    hist = HistGradientBoostingClassifier(
        max_iter=n, early_stopping=False, random_state=0
    )
    level = RandomForestClassifier(n // 5, max_depth=5, random_state=0)
    models = [
        ("Adult, depth 5", light(max_depth=5), adult),
        ("Adult, depth 6, 64 leaves", light(max_depth=6, num_leaves=64), adult),
        ("Adult, depth 8, 200 leaves", light(max_depth=8, num_leaves=200), adult),
        ("100 features, depth 5", light(max_depth=5), many),
        ("Letter, 26 classes", light(n // 10, max_depth=5), letter),
        ("Adult, HistGradientBoosting", hist, adult),
        ("Adult, random forest, depth 5", level, adult),
        (
            "Adult, random forest, full",
            RandomForestClassifier(n // 5, random_state=0),
            adult,
        ),
    ]
    try:
        from xgboost import XGBClassifier
    except ImportError:
        print("XGBoost is not installed (extra [test]): its row is left out.")
    else:
        gentle = XGBClassifier(
            n_estimators=n, max_depth=5, learning_rate=0.05, n_jobs=1
        )
        models.insert(5, ("Adult, XGBoost, depth 5", gentle, adult))
    try:
        from catboost import CatBoostClassifier
    except ImportError:
        print("CatBoost is not installed (extra [bench]): its rows are left out.")
    else:
        quiet = {
            "verbose": 0,
            "thread_count": 1,
            "allow_writing_files": False,
            "random_seed": 0,
        }
        models += [
            (f"Adult, CatBoost, depth {depth}",
             CatBoostClassifier(iterations=n, depth=depth, learning_rate=0.05, **quiet), adult)
            for depth in (6, 8)
        ]  # fmt: skip
    for name, model, (X, y, X_test) in models:
        target = np.unique(y, return_inverse=True)[1]
        yield name, model.fit(X, target), X_test


def ydf_peer(short):
    """Prediction of 500 trees of YDF on Adult; None where YDF is not installed."""
    try:
        import pandas as pd
        import ydf
    except ImportError:
        print("YDF is not installed: pip install ydf, or the extra [bench].")
        return None
    ydf.verbose(0)
    X, y, X_test = split(_data.adult())
    X, y, X_test = (part[: 1000 if short else None] for part in (X, y, X_test))
    names = [f"f{i}" for i in range(X.shape[1])]
    learner = ydf.GradientBoostedTreesLearner(
        label="y", num_trees=20 if short else 500, max_depth=6, shrinkage=0.05,
        early_stopping="NONE", validation_ratio=0.0, num_threads=1,
    )  # fmt: skip
    frame = pd.DataFrame(X, columns=names).assign(
        y=np.unique(y, return_inverse=True)[1]
    )
    model = learner.train(frame)
    rows = {name: X_test[:, i].astype(np.float32) for i, name in enumerate(names)}
    return lambda: model.predict(rows, num_threads=1)


def one_row(fast, model, X, repeats):
    lines = [X[i : i + 1].copy() for i in range(200)]
    calls = {
        "own": lambda: [model.predict(line) for line in lines[:20]],
        "predict": lambda: [fast.predict(line) for line in lines],
        "predict_proba": lambda: [fast.predict_proba(line) for line in lines],
    }
    seconds = alternate(calls, repeats)
    return {k: 1e6 * s / (20 if k == "own" else 200) for k, s in seconds.items()}


def main(short):
    repeats, rows = (1 if short else 9), []
    for name, model, X in cases(short):
        fast = FastForest.from_ensemble(model, X[:200])
        calls = {
            "own": lambda m=model, X=X: m.predict(X),
            "fast": lambda f=fast, X=X: f.predict(X),
        }
        if hasattr(model, "booster_"):
            calls["own"] = lambda m=model, X=X: m.booster_.predict(X, num_threads=1)
        if "CatBoost" in name:
            calls["own"] = lambda m=model, X=X: m.predict(X, thread_count=1)
        first = name == "Adult, depth 5"
        peer = ydf_peer(short) if first else None
        if peer is not None:
            calls["YDF"] = peer
        us = {key: 1e6 * s / len(X) for key, s in alternate(calls, repeats).items()}
        equal = np.mean(fast.predict(X) == model.predict(X))
        made = fast.forest_.bits is not None, fast.forest_.coded is not None, True
        layout = ("bit vectors", "codes", "walk")[made.index(True)]
        rows.append(
            [
                name,
                layout,
                us["own"],
                us["fast"],
                us["own"] / us["fast"],
                us.get("YDF", "-"),
                equal,
            ]
        )
        if first:
            single = one_row(fast, model, X, repeats)
    table(
        "All trees, microseconds a row",
        ["case", "layout", "own", "FastForest", "x own", "YDF", "same labels"],
        rows,
    )
    table(
        "One row through FastForest, microseconds",
        list(single),
        [list(single.values())],
    )
    if not short:
        record("fast_forest")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    main(parser.parse_args().short)
