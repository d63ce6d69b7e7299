"""What decisions gain by each estimate of quality, on all tables at hand.

Gain: realised quality on test rows over the best random mix of choices that spends the same
(picked with the test rows in hand), mean of five budgets between the cheapest choice and the best
one, in points. Prices are learned on out-of-sample estimates of training rows, as a router learns
them. 5 folds or the given split, fixed seeds; everything is fitted and chosen on training rows.
Of tables with more than 12,500 rows 10,000 train.

    python benchmarks/bench_estimates.py [--short] [--tables WORD] [--fresh]

Features and gains are cached in ``benchmarks/.cache``; ``--fresh`` computes the gains anew.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import pickle
import time

import numpy as np
from _estimate_tables import CACHE, LOGS, Fold, load
from _harness import alternate, claim, save, table
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._family import MEMBERS, NEIGHBORS, nearest
from skroute.quality._stacking import gain_over_mix, judged_budgets

DEFAULT = "default"
BEFORE = "bagged neighbors"


def bagged_neighbors():
    """What routers took without choosing until now."""
    return make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor())


def contenders():
    found = {BEFORE: bagged_neighbors()}
    found["scikit-learn's trees"] = ExtraTreesRegressor(
        100, min_samples_leaf=5, max_features=0.3, random_state=0
    )
    for name in {**MEMBERS, **NEIGHBORS}:
        found[name] = QualityRegressor(family=[name])
    return found | {DEFAULT: QualityRegressor()}


def gains(estimator, fold):
    """Gain of each test row over the random mix, estimates of training rows out of sample."""
    folds = list(KFold(5, shuffle=True, random_state=0).split(fold.X))
    if hasattr(estimator, "cross_fit"):
        estimate = estimator.cross_fit(fold.X, fold.quality, folds=folds, costs=fold.costs)
    else:
        estimate = np.empty(fold.quality.shape)
        for train, test in folds:
            estimator.fit(fold.X[train], fold.quality[train])
            estimate[test] = estimator.predict(fold.X[test])
        estimator.fit(fold.X, fold.quality)
    new = estimator.predict(fold.X_test)
    budgets = judged_budgets(fold.quality, fold.costs)
    return gain_over_mix(estimate, fold.quality, fold.costs, new, fold.quality_test, budgets), new


def cached_gains(who, estimator, name, folds, fresh):
    """Gains of all test rows of a table, and the estimates."""
    key = "".join(c if c.isalnum() else "_" for c in f"{name}-{who}")
    path = CACHE / f"{key}.pkl"
    if path.exists() and not fresh:
        return pickle.loads(path.read_bytes())
    start = time.process_time()
    parts = [gains(estimator, fold) for fold in folds]
    found = np.concatenate([g for g, _ in parts]), np.concatenate([e for _, e in parts])
    found = (*found, (time.process_time() - start) / len(folds))
    path.write_bytes(pickle.dumps(found))
    return found


def calibrated_share(estimate, quality):
    """Share of ten bins per choice in which outcomes agree with the estimates."""
    agree = []
    for column in range(quality.shape[1]):
        order = np.argsort(estimate[:, column], kind="stable")
        for rows in np.array_split(order, 10):
            apart = quality[rows, column].mean() - estimate[rows, column].mean()
            # The spread that the estimates imply, where outcomes happen to be all alike.
            p = np.clip(estimate[rows, column].mean(), 0, 1)
            spread = max(quality[rows, column].var(ddof=1), p * (1 - p))
            agree.append(abs(apart) <= 1.96 * np.sqrt(spread / len(rows)))
    return float(np.mean(agree))


def all_tables(names, fresh):
    rows, payload = [], {}
    everyone = contenders()
    for name in names:
        folds = load(name)
        quality = np.concatenate([fold.quality_test for fold in folds])
        entry = {"rows": len(folds[0].X), "choices": len(folds[0].costs), "gain": {}, "se": {}}
        entry["seconds"] = {}
        for who, estimator in everyone.items():
            gain, estimate, seconds = cached_gains(who, estimator, name, folds, fresh)
            entry["gain"][who] = 100 * float(gain.mean())
            entry["se"][who] = 100 * float(gain.std(ddof=1) / np.sqrt(len(gain)))
            entry["seconds"][who] = seconds
            if who == DEFAULT:
                entry["calibrated"] = calibrated_share(estimate, quality)
        payload[name] = entry
        cells = [entry["gain"][who] for who in everyone]
        rows.append([name, entry["rows"], *(f"{value:.2f}" for value in cells)])
        rows[-1] += [f"{entry['se'][DEFAULT]:.2f}", f"{entry['calibrated']:.2f}"]
        print(*rows[-1], flush=True)
    means = [np.mean([entry["gain"][who] for entry in payload.values()]) for who in everyone]
    rows.append(["mean", "", *(f"{value:.2f}" for value in means), "", ""])
    header = ["table", "train rows", *everyone, "its se", "calibrated bins"]
    table("Gain over the best random mix at equal spend, points", header, rows)
    return payload


def sizes_and_seconds(short):
    """Fit, one row, many rows and the saved file at 10,000 rows, 9 choices, 100 features."""
    n = 1000 if short else 10_000
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 100))
    logits = X @ rng.standard_normal((100, 9)) / 10 + np.sin(3 * X[:, :9])
    Q = (rng.random((n, 9)) < 1 / (1 + np.exp(-logits))).astype(float)
    QualityRegressor().fit(X[:100], Q[:100])
    start, cpu = time.perf_counter(), time.process_time()
    model = QualityRegressor(n_jobs=2).fit(X, Q)
    fit, fit_cpu = time.perf_counter() - start, time.process_time() - cpu
    one, many = X[:1], X[: n // 5]
    seconds = {"one": [], "many": []}
    for _ in range(50 if short else 1000):
        start = time.perf_counter()
        model.predict(one)
        seconds["one"].append(time.perf_counter() - start)
    for _ in range(3 if short else 10):
        start = time.perf_counter()
        model.predict(many)
        seconds["many"].append(time.perf_counter() - start)
    found = {
        "fit": fit,
        "fit_cpu": fit_cpu,
        # Minima: the machine may be shared.
        "one": min(seconds["one"]) * 1e6,
        "many": min(seconds["many"]) / len(many) * 1e6,
        "megabytes": len(pickle.dumps(model)) / 1e6,
    }
    header = ["fit, s", "of one core, s", "one row, us", "many rows, us each", "saved, MB"]
    table(f"The default at {n} rows, 9 choices, 100 features", header, [list(found.values())])
    return found


def searches(short):
    """Nearest rows of the family against scikit-learn's own search."""
    n, d = (2000, 50) if short else (10_000, 100)
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((2, n, d)).astype(np.float32)
    Q, rows = Q[:500], []
    for metric in ("euclidean", "cosine"):
        own = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
        peer = NearestNeighbors(algorithm="brute", metric=metric).fit(X)
        estimator = BaggedNeighborsRegressor(metric="euclidean", subset_size=n // 60)
        estimator.fit(own, np.zeros(n))
        seconds = alternate(
            {
                "sklearn": lambda p=peer: p.kneighbors(Q, 60),
                "family": lambda o=own, m=metric: nearest(o, Q, m, 60),
            },
            repeats=3 if short else 9,
        )
        rows.append([metric, seconds["sklearn"] / seconds["family"]])
    table(f"Search of 60 nearest of {n}: times scikit-learn's", ["metric", "ratio"], rows)
    return dict(rows)


def made_up(short):
    """How often 90 % intervals hold the true quality, on made-up tables that are known."""
    rows = []
    for seed in range(1 if short else 6):
        rng = np.random.default_rng(seed)
        n = 500 if short else (1000, 3000)[seed % 2]
        X, X_test = rng.standard_normal((n, 6)), rng.standard_normal((2000, 6))
        W = rng.standard_normal((6, 4)) / 2

        def truth(X, W=W):
            return 1 / (1 + np.exp(-X @ W - np.sin(2 * X[:, :4])))

        Q = (rng.random((n, 4)) < truth(X)).astype(float)
        mean, std = QualityRegressor().fit(X, Q).predict(X_test, return_std=True)
        rows.append([seed, n, float((np.abs(mean - truth(X_test)) <= 1.645 * std).mean())])
    table("90 % intervals hold the true quality", ["table", "rows", "share of rows"], rows)
    return [row[-1] for row in rows]


def made_up_fold():
    """A small table for the short run, which needs no file."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5))
    Q = (rng.random((500, 3)) < 1 / (1 + np.exp(-X[:, :3] - [0, 0.5, 1]))).astype(float)
    return [Fold(X[:250], Q[:250], X[250:], Q[250:], np.array([1.0, 2.0, 4.0]))]


def claims(result):
    payload, speed = result["tables"], result["speed"]
    entries = payload.values()

    def mean(who):
        return float(np.mean([entry["gain"][who] for entry in entries]))

    family = [*MEMBERS, *NEIGHBORS]
    behind = {
        name: max(entry["gain"][who] for who in family) - entry["gain"][DEFAULT]
        for name, entry in payload.items()
    }
    lost = {name: entry["gain"][DEFAULT] / entry["se"][DEFAULT] for name, entry in payload.items()}
    points = {"unit": "points", "digits": 3}
    found = [
        claim(
            "gain",
            f"gain over the best random mix at equal spend, mean of {len(payload)} tables",
            mean(DEFAULT),
            peer=mean(BEFORE),
            against="bagged neighbors, the default until now",
            bar=mean(BEFORE) + 0.5,
            **points,
        ),
        claim(
            "gain-trees",
            "the same",
            mean(DEFAULT),
            peer=mean("scikit-learn's trees"),
            against="scikit-learn's extremely randomised trees",
            **points,
        ),
        claim(
            "behind",
            "furthest behind the best member of the family (picked on test rows): "
            + max(behind, key=behind.get),
            max(behind.values()),
            better="lower",
            bar=0.3,
            why="the best of eleven is picked with the test rows in hand",
            **points,
        ),
        claim(
            "mix",
            "least gain over the random mix, in standard errors: " + min(lost, key=lost.get),
            min(lost.values()),
            peer=-1,
            against="one standard error below the mix",
            bar=-1,
        ),
        claim(
            "calibrated",
            "least share of bins of the estimate in which outcomes agree, tables of 1,000 rows up",
            min(entry["calibrated"] for entry in entries),
            bar=0.9,
            why="asked of itself",
        ),
    ]
    for key, what, bar, unit in (
        ("fit", "fit of 10,000 rows, 9 choices, 100 features, 2 threads", 60, "s"),
        ("one", "one row", 50, "us"),
        ("many", "2,000 rows, each", 15, "us"),
        ("megabytes", "saved file", 5, "MB"),
    ):
        found.append(
            claim(key, what, speed[key], better="lower", bar=bar, unit=unit, why="asked of itself")
        )
    for metric, ratio in result["searches"].items():
        found.append(
            claim(
                f"search-{metric}",
                f"nearest rows, {metric}",
                ratio,
                peer=1,
                against="scikit-learn's brute force, same process",
                unit="times as fast",
                within=0.05,
            )
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a made-up table, in seconds")
    parser.add_argument("--tables", default="", help="only tables whose name has this word")
    parser.add_argument("--fresh", action="store_true", help="compute gains anew")
    options = parser.parse_args()
    if options.short:
        fold = made_up_fold()
        payload = {"made up": {"rows": 250, "choices": 3, "gain": {}, "se": {}, "calibrated": 1.0}}
        for who, estimator in contenders().items():
            gain, _ = gains(estimator, fold[0])
            payload["made up"]["gain"][who] = 100 * float(gain.mean())
            payload["made up"]["se"][who] = 100 * float(gain.std() / np.sqrt(len(gain)))
    else:
        names = [name for name in LOGS if options.tables in name]
        payload = all_tables(names, options.fresh)
    result = {
        "tables": payload,
        "speed": sizes_and_seconds(options.short),
        "searches": searches(options.short),
    }
    save(
        "estimates",
        result,
        title="Quality estimates: what decisions gain",
        claims=claims(result),
        write=not options.short and not options.tables,
    )


if __name__ == "__main__":
    main()
