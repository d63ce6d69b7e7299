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
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._family import MEMBERS, NEIGHBORS, nearest
from skroute.quality._stacking import (
    Weights,
    gain_over_mix,
    judged_budgets,
    moments,
    single_weights,
    weigh,
)

DEFAULT = "default"
BEFORE = "bagged neighbors"


def bagged_neighbors():
    """What routers took without choosing until now."""
    return make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor())


class Remembering(QualityRegressor):
    """The default; it remembers what its members estimate out of sample."""

    def _out_of_sample(self, names, rows, quality, folds):
        estimates = super()._out_of_sample(names, rows, quality, folds)
        self.seen = list(names), estimates, rows, quality
        return estimates


def gains(fold):
    """Gain of each test row over the random mix, for the default and each of the others.

    Estimates of training rows are out of sample; prices are learned on them.

    Returns
    -------
    gain : dict from str to ndarray of shape (n_test,)
    estimate : ndarray of shape (n_test, n_choices)
        Of the default.
    """
    folds = list(KFold(5, shuffle=True, random_state=0).split(fold.X))
    budgets = judged_budgets(fold.quality, fold.costs)

    def gain(estimate, new):
        new_quality = fold.quality_test
        return gain_over_mix(estimate, fold.quality, fold.costs, new, new_quality, budgets)

    before = bagged_neighbors()
    estimate, means = np.empty(fold.quality.shape), np.empty(fold.quality.shape)
    for train, test in folds:
        before.fit(fold.X[train], fold.quality[train])
        estimate[test] = before.predict(fold.X[test])
        means[test] = fold.quality[train].mean(axis=0)
    found = {BEFORE: gain(estimate, before.fit(fold.X, fold.quality).predict(fold.X_test))}

    default = Remembering()
    estimate = default.cross_fit(fold.X, fold.quality, folds=folds, costs=fold.costs)
    names, estimates, rows, quality = default.seen
    new_rows, mean = default._rows(fold.X_test), quality.mean(axis=0)
    tests = [test for _, test in folds]
    parts = [moments(estimates[:, test], (quality - means)[test]) for test in tests]
    total = moments(estimates, quality - means)
    for i, name in enumerate(names):
        # A member alone: shrunk to the means by least squares, nothing else.
        alone = means.copy()
        for test, part in zip(tests, parts):
            alone[test] += weigh(estimates[[i]][:, test], picked(total.less(part), i))
        member = {**MEMBERS, **NEIGHBORS}[name](rows, quality - mean, 0).predict(new_rows)
        found[name] = gain(alone, mean + weigh(member[None], picked(total, i)))
    new = default.predict(fold.X_test)
    return found | {DEFAULT: gain(estimate, new)}, new


def picked(found, i):
    """The weights of one member, without the others."""
    return Weights(*(weights[[i]] for weights in single_weights(found, i)))


def cached_gains(name, folds, fresh):
    """Gains of all test rows of a table, and the default's estimates of them."""
    path = CACHE / f"{''.join(c if c.isalnum() else '_' for c in name)}.pkl"
    if path.exists() and not fresh:
        return pickle.loads(path.read_bytes())
    parts = [gains(fold) for fold in folds]
    found = {who: np.concatenate([part[0][who] for part in parts]) for who in parts[0][0]}
    found = found, np.concatenate([estimate for _, estimate in parts])
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
    for name in names:
        folds = load(name)
        quality = np.concatenate([fold.quality_test for fold in folds])
        gain, estimate = cached_gains(name, folds, fresh)
        payload[name] = table_entry(folds[0], gain, estimate, quality)
        print(name, *(f"{who} {value:.2f}" for who, value in payload[name]["gain"].items()))
    everyone = [BEFORE, *MEMBERS, *NEIGHBORS, DEFAULT]
    for name, entry in payload.items():
        # Neighbours are not searched among too many rows.
        cells = [f"{entry['gain'].get(who, np.nan):.2f}" for who in everyone]
        ends = f"{entry['se'][DEFAULT]:.2f}", f"{entry['calibrated']:.2f}"
        rows.append([name, entry["rows"], *cells, *ends])
    means = [
        np.nanmean([entry["gain"].get(who, np.nan) for entry in payload.values()])
        for who in everyone
    ]
    rows.append(["mean", "", *(f"{value:.2f}" for value in means), "", ""])
    header = ["table", "train rows", *everyone, "its se", "calibrated bins"]
    table("Gain over the best random mix at equal spend, points", header, rows)
    return payload


def table_entry(fold, gain, estimate, quality):
    return {
        "rows": len(fold.X),
        "choices": len(fold.costs),
        "gain": {who: 100 * float(values.mean()) for who, values in gain.items()},
        "se": {
            who: 100 * float(values.std(ddof=1) / np.sqrt(len(values)))
            for who, values in gain.items()
        },
        "calibrated": calibrated_share(estimate, quality),
    }


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
        name: max(entry["gain"].get(who, -np.inf) for who in family) - entry["gain"][DEFAULT]
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
            "behind",
            "furthest behind the best member of the family (picked on test rows): "
            + max(behind, key=behind.get),
            max(behind.values()),
            better="lower",
            bar=0.3,
            why="the best of ten is picked with the test rows in hand",
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
    held = result["made_up"]
    found.append(
        claim(
            "held",
            f"least share of rows whose truth 90 % intervals hold, {len(held)} made-up tables",
            min(held),
            bar=0.85,
            why="asked of itself; at most .95 is asked as well",
        )
    )
    found.append(
        claim(
            "held-most",
            "the largest such share",
            max(held),
            better="lower",
            bar=0.95,
            why="asked of itself",
        )
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
        gain, estimate = gains(fold[0])
        payload = {"made up": table_entry(fold[0], gain, estimate, fold[0].quality_test)}
    else:
        names = [name for name in LOGS if options.tables in name]
        payload = all_tables(names, options.fresh)
    result = {
        "tables": payload,
        "speed": sizes_and_seconds(options.short),
        "searches": searches(options.short),
        "made_up": made_up(options.short),
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
