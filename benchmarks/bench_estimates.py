"""What decisions gain by the default estimate of quality, on eighteen tables.

Gain: realised quality on test rows over the best random mix of models that spends the
same (picked with the test rows in hand), mean of five budgets between the cheapest
model and the best one, in points. Five folds or the given split, fixed seeds;
everything is fitted and chosen on training rows. Peers: OCCAM's bagged neighbours on
features scaled to [0, 1], and scikit-learn's extremely randomised trees with leaves of
ten rows.

    python benchmarks/bench_estimates.py [--short] [--folds 5] [--tables WORD]

With the time of a fit, of one row and of many, and the size of the file, at 10,000 rows
of 100 features and nine models; and how often 90 % intervals hold the true quality on
made-up tables.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import pickle
import time

import numpy as np
from _common import record, table
from _estimate_tables import LOGS, load, n_splits
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._gains import gain_over_mix

PEERS = {
    "bagged": make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor()),
    "forest": ExtraTreesRegressor(60, min_samples_leaf=10, random_state=0),
}


def gains(fold):
    """Gain of each test row by each estimator; estimates of the default as `predict` has them."""
    default = QualityRegressor()
    default.cross_fit(fold.X, fold.quality, costs=fold.costs)
    peers = {name: peer.fit(fold.X, fold.quality) for name, peer in PEERS.items()}
    return {
        name: gain_over_mix(model.predict(fold.X_test), fold.quality_test, fold.costs)
        for name, model in {**peers, "default": default}.items()
    }


def tables(word, n_folds):
    rows = []
    for name in [name for name in LOGS if word in name]:
        folds = [load(name, i) for i in range(min(n_folds, n_splits(name)))]
        parts = [gains(fold) for fold in folds]
        joined = {
            who: 100 * np.concatenate([part[who] for part in parts]) for who in parts[0]
        }
        error = joined["default"].std(ddof=1) / len(joined["default"]) ** 0.5
        means = [float(joined[who].mean()) for who in (*PEERS, "default")]
        rows.append([name, len(folds[0].X), *means, float(error)])
        print(*rows[-1], flush=True)
    rows.append(
        ["mean", "", *np.mean([row[2:-1] for row in rows], axis=0).tolist(), ""]
    )
    table(
        "Gain over the best random mix, in points",
        ["table", "rows", *PEERS, "default", "se"],
        rows,
    )


def made_up(n, seed=0):
    """Rows, true quality, and outcomes."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n, 6)), rng.standard_normal((6, 4)) / 2
    truth = 1 / (1 + np.exp(-X @ W - np.sin(2 * X[:, :4])))
    return X, truth, (rng.random(truth.shape) < truth).astype(float)


def intervals(n, n_draws):
    """Share of rows whose true quality 90 % intervals hold."""
    held = []
    for seed in range(n_draws):
        X, truth, Q = made_up(n + 2000, seed)
        model = QualityRegressor(standard_errors=True).fit(X[:n], Q[:n])
        mean, std = model.predict(X[n:], return_std=True)
        held.append(float((np.abs(mean - truth[n:]) <= 1.645 * std).mean()))
    table(
        f"90 % intervals at {n} rows",
        ["share held", "least"],
        [[np.mean(held), min(held)]],
    )


def speed(n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 100))
    logits = X @ rng.standard_normal((100, 9)) / 10 + np.sin(3 * X[:, :9])
    Q = (rng.random((n, 9)) < 1 / (1 + np.exp(-logits))).astype(float)
    QualityRegressor().fit(X[:100], Q[:100]).predict(X[:1])
    start = time.process_time()
    model = QualityRegressor().fit(X, Q)
    found = [n, time.process_time() - start]
    for rows, repeats in ((X[:1], 200), (X[: n // 5], 5)):
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            model.predict(rows)
            seconds.append(time.perf_counter() - start)
        found.append(1e6 * min(seconds) / len(rows))
    header = [
        "rows",
        "fit, s of one core",
        "one row, us",
        "of many, us a row",
        "file, MB",
    ]
    table("Speed", header, [[*found, len(pickle.dumps(model)) / 1e6]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--short", action="store_true", help="one small table, in seconds"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--tables", default="", help="tables whose name has this word")
    args = parser.parse_args()
    word, n_folds = ("digits", 1) if args.short else (args.tables, args.folds)
    tables(word, n_folds)
    speed(1000 if args.short else 10_000)
    intervals(500 if args.short else 1000, 2 if args.short else 10)
    if not args.short and not word:
        record("estimates")


if __name__ == "__main__":
    main()
