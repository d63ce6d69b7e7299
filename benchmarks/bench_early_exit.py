"""Early exit against the libraries' own prediction, in microseconds and in members.

Adult with its official split, 500 LightGBM trees of depth 5; the learning rate 0.05 is the
best of 0.1, 0.05, 0.03 in 5-fold cross-validation on the training rows. Training rows
optimise, test rows report. One thread unless said. The parts "speed" and "search" take times
and want a quiet machine; the others count, on any.

    python benchmarks/bench_early_exit.py [--short] [--part NAME ...]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import _data
import lightgbm as lgb
import numpy as np
from _common import alternate, record, table
from bench_fast_forest import ydf_peer
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble, TradeoffDisplay
from skroute.early_exit._engines import ensemble_engine
from skroute.early_exit._learning import SEARCH_ERRORS, SEARCH_SPREAD
from skroute.early_exit._order import qwyc_order
from skroute.early_exit._thresholds import lagrangian_path, running_values

# The reference of the tests is a contender too.
sys.path.append(str(Path(__file__).parents[1]))
from tests.early_exit.reference import qwyc_order_reference  # noqa: E402

# The random order is the mean of these draws.
N_RANDOM = 3
ORDERS = ("qwyc", "natural", "random")


def split(bunch, target=None):
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)
    y = bunch.target if target is None else bunch.target == target
    return X[~bunch.is_test], y[~bunch.is_test], X[bunch.is_test], y[bunch.is_test]


def boosted(n_trees, **parameters):
    given = {"max_depth": 5, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1, "random_state": 0}
    return lgb.LGBMClassifier(n_estimators=n_trees, **given | parameters)


def optimised(model, X, alpha=0.005, seed=0, **parameters):
    given = {"random_state": seed} | parameters
    return QWYCEnsemble(FrozenEstimator(model), alpha=alpha, **given).optimize(X)


def headline(model, data, seeds, calibration):
    X, _, X_test, y_test = data
    full = model.predict(X_test)
    rows = []
    for alpha, bar in ((0.005, "0.5 %, 40"), (0.01, "1 %, 25")):
        for seed in seeds:
            quick = optimised(model, X, alpha, seed, calibration=calibration, n_jobs=2)
            y_pred, _, cost = quick.predict_routed(X_test)
            rows.append(
                [
                    alpha,
                    seed,
                    cost.mean(),
                    100 * np.mean(y_pred != full),
                    100 * quick.disagreement_bound_,
                    np.mean(y_pred == y_test),
                    np.mean(full == y_test),
                    bar,
                ]
            )
    return rows


def early_stop_at(booster, X, full, share):
    """LightGBM's own early stop: the fastest frequency with at most this disagreement."""
    best = None
    for frequency in (1, 2, 5, 10, 20, 50):
        low, high = 0.0, 20.0
        for _ in range(12):
            margin = (low + high) / 2
            answer = booster.predict(X, **early(frequency, margin)) > 0.5
            low, high = (low, margin) if np.mean(answer != full) <= share else (margin, high)
        start = time.perf_counter()
        booster.predict(X, **early(frequency, high))
        elapsed = time.perf_counter() - start
        if best is None or elapsed < best[0]:
            best = elapsed, frequency, high
    return best[1:]


def early(frequency, margin):
    return {
        "num_threads": 1,
        "pred_early_stop": True,
        "pred_early_stop_freq": frequency,
        "pred_early_stop_margin": margin,
    }


def clock(model, data, quicks, repeats, short):
    X, _, X_test, _ = data
    ydf = None if short else ydf_peer(short)
    peer = {} if ydf is None else {"ydf": ydf}
    booster = model.booster_
    full = booster.predict(X_test) > 0.5
    rows = []
    for quick in quicks:
        share = np.mean(quick.predict(X_test) != full)
        frequency, margin = early_stop_at(booster, X_test, full, share)
        whole = optimised(model, X[:1000], 0.0, order="natural")
        seconds = alternate(
            {
                "full": lambda: booster.predict(X_test, num_threads=1),
                "early": lambda f=frequency, m=margin: booster.predict(X_test, **early(f, m)),
                "ours": lambda q=quick: q.predict(X_test),
                "whole": lambda w=whole: w.predict(X_test),
            }
            | peer,
            repeats,
        )
        ms = {name: 1e3 * value for name, value in seconds.items()}
        rows.append(
            [
                "LightGBM",
                100 * share,
                quick.predict_cost(X_test).mean(),
                ms["full"],
                f"{ms['early']:.3g} (f={frequency}, m={margin:.2f})",
                ms["ours"],
                ms["full"] / ms["ours"],
                ms["early"] / ms["ours"],
                ms["full"] / ms["whole"],
                ms["ydf"] / ms["ours"] if peer else "-",
                "60x or 90x, 2x, 1x, 6x",
            ]
        )
    return rows


def clock_sklearn(name, model, rows_seen, X, X_test, repeats):
    quick = optimised(model, X, 0.005)
    full = model.predict(X_test)
    whole = optimised(model, X[:1000], 0.0, order="natural")
    share = np.mean(quick.predict(X_test) != full)
    seconds = alternate(
        {
            "full": lambda: model.predict(X_test),
            "ours": lambda: quick.predict(X_test),
            "whole": lambda: whole.predict(X_test),
        },
        repeats,
    )
    return [
        f"{name} ({rows_seen})",
        100 * share,
        quick.predict_cost(X_test).mean(),
        1e3 * seconds["full"],
        "-",
        1e3 * seconds["ours"],
        seconds["full"] / seconds["ours"],
        "-",
        seconds["full"] / seconds["whole"],
        "-",
        "8x",
    ]


def latency(model, data, quick, repeats):
    X_test, booster = data[2], model.booster_
    lines = [X_test[i : i + 1].copy() for i in range(200)]
    single = [line.astype(np.float32) for line in lines]
    seconds = alternate(
        {
            "LightGBM": lambda: [booster.predict(line, num_threads=1) for line in lines],
            "skroute": lambda: [quick.predict(line) for line in lines],
            "single": lambda: [quick.predict(line) for line in single],
            "proba": lambda: [quick.predict_proba(line) for line in lines],
        },
        repeats,
    )
    us = {name: 1e6 * value / len(lines) for name, value in seconds.items()}
    return us


def search(model, X):
    engine, _ = ensemble_engine(model)
    scores = engine.scores(X)
    share = min(SEARCH_ERRORS / len(X), 0.05)
    arguments = scores, engine.offset, engine.beta, np.ones(len(scores)), share
    sides = True, True, SEARCH_SPREAD
    qwyc_order(scores[:5, :100], *arguments[1:3], np.ones(5), 0.1)
    orders = {}

    def contender(name, call, *options):
        def run():
            orders[name] = call(*arguments, *sides, *options)[0]

        return run

    # All three by turns, on the problem that the estimator solves for alpha up to 0.7 %.
    seconds = alternate(
        {
            "one": contender("one", qwyc_order, 1),
            "two": contender("two", qwyc_order, 2),
            "twin": contender("twin", qwyc_order_reference),
        },
        1,
        warmup=0,
    )
    order = orders["two"]
    tracemalloc.start()
    qwyc_order(*arguments, *sides, 2)
    values, bad = running_values(scores, order, engine.offset, engine.beta)
    lagrangian_path(values, bad, np.ones(len(order)), [1e4, 1e3])
    memory = 1 + tracemalloc.get_traced_memory()[1] / scores.nbytes
    tracemalloc.stop()
    ratio = seconds["twin"] / seconds["two"]
    same = all(np.array_equal(order, found) for found in orders.values())
    return {"seconds": seconds, "ratio": ratio, "same": same, "memory": memory}


def bound(model, X, n_splits):
    """Held-out disagreement against the bound, over random calibration splits."""
    rows, n, full = [], len(X), model.predict(X)
    for guarantee in (False, True):
        above, shares = 0, []
        for seed in range(n_splits):
            order = np.random.RandomState(seed).permutation(n)
            quick = QWYCEnsemble(
                FrozenEstimator(model), alpha=0.01, order="natural", guarantee=guarantee
            ).optimize(X[order[: n // 8]], X_calibration=X[order[n // 8 : n // 2]])
            rest = order[n // 2 :]
            shares.append(np.mean(quick.predict(X[rest]) != full[rest]))
            above += shares[-1] > quick.disagreement_bound_
        limit = int(binom.ppf(0.95, n_splits, 0.05))
        rows.append(
            [
                "bound" if guarantee else "expectation",
                100 * np.mean(shares),
                100 * quick.disagreement_bound_,
                above,
                n_splits,
                limit,
            ]
        )
    return rows


def made_up():
    """19,020 rows of 10 columns, made up: the shape of MAGIC's gamma telescope."""
    made = {"n_informative": 7, "n_redundant": 2, "n_clusters_per_class": 3, "weights": [0.35]}
    return make_classification(19_020, 10, flip_y=0.05, class_sep=0.8, random_state=0, **made)


def whole(bunch, target=None):
    X, y, X_test, y_test = split(bunch, target)
    return np.concatenate([X, X_test]), np.concatenate([y, y_test])


UNSEEN = {
    "Adult": lambda: whole(_data.adult()),
    "Covertype": lambda: whole(_data.covertype(), 2),
    "Letter": lambda: whole(_data.letter()),
    "Made up": made_up,
}


def unseen(name, n_seeds, n_trees, n_rows=30_000):
    """The default calibration on rows that the ensemble was not fitted on, again and again."""
    X, y = (part[:n_rows] for part in UNSEEN[name]())
    third, shares, above = len(X) // 3, [], 0
    order = np.random.RandomState(0).permutation(len(X))
    model = boosted(n_trees // 3 if name == "Letter" else n_trees, learning_rate=0.1)
    model.fit(X[order[:third]], y[order[:third]])
    rest, full = order[third:], model.predict(X)
    for seed in range(n_seeds):
        rest = np.random.RandomState(seed).permutation(rest)
        quick = optimised(model, X[rest[:third]], seed=seed)
        left = rest[third:]
        shares.append(np.mean(quick.predict(X[left]) != full[left]))
        above += shares[-1] > quick.disagreement_bound_
    error = np.std(shares) / np.sqrt(n_seeds)
    limit = int(binom.ppf(0.99, n_seeds, 0.05))
    return [name, 100 * np.mean(shares), 100 * error, above, n_seeds, limit]


def rare(n_seeds, n_trees, n_rows=None):
    """Adult thinned to 2 % positives: answers of the full ensemble that are lost."""
    bunch = _data.adult()
    X, y = np.ascontiguousarray(bunch.data, dtype=np.float64)[:n_rows], bunch.target[:n_rows]
    labels, rows = np.unique(y), []
    settings = {
        "alpha=0.005": {"alpha": 0.005},
        "1 % of each answer": {"alpha": dict.fromkeys(labels, 0.01), "calibration": 0.7},
    }
    for name, parameters in settings.items():
        found = []
        for seed in range(n_seeds):
            rng = np.random.RandomState(seed)
            common, few = (rng.permutation(np.flatnonzero(y == label)) for label in labels)
            taken = rng.permutation(np.append(common, few[: round(len(common) * 0.02 / 0.98)]))
            fit, test = np.split(taken, [2 * len(taken) // 3])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                quick = QWYCEnsemble(boosted(n_trees), random_state=seed, **parameters)
                quick.fit(X[fit], y[fit])
            full = quick.estimator_.predict(X[test])
            y_pred, members, _ = quick.predict_routed(X[test])
            lost = np.mean(y_pred[full == labels[1]] != labels[1])
            warned = any("is a share of all rows" in str(one.message) for one in caught)
            found.append([100 * lost, 100 * np.mean(y_pred != full), members.mean(), warned])
        error = np.std([one[0] for one in found]) / np.sqrt(n_seeds)
        rows.append([name, *np.mean(found, axis=0), error, n_seeds])
    return rows


def compared(name, short):
    """The orders on one set; several classes are optimised on rows not fitted on."""
    fetch, target = COMPARED[name]
    X, y, X_test, _ = split(fetch(), target)
    n_trees = 500 if name in ("Adult", "Covertype") else 100
    if short:
        return compare(name, boosted(20).fit(X[:1500], y[:1500]), X[:1500], X_test, ORDERS[:2])
    if n_trees == 500:
        return compare(name, boosted(n_trees).fit(X, y), X, X_test, ORDERS)
    model = boosted(n_trees, learning_rate=0.1).fit(X[::2], y[::2])
    return compare(name, model, X[1::2], X_test, ORDERS)


COMPARED = {
    "Adult": (_data.adult, None),
    "Covertype": (_data.covertype, 2),
    "Letter": (_data.letter, None),
    "USPS": (_data.usps, None),
}


def compare(name, model, X, X_test, orders, shares=(0.005, 0.01)):
    """Members at equal disagreement on test rows, for each order and stopping.

    The curve of all thresholds is read off, so that no rows are needed to choose among them.
    """
    rows = []
    for stopping in ("thresholds",):
        for order in orders:
            at = []
            for seed in range(N_RANDOM if order == "random" else 1):
                quick = optimised(
                    model,
                    X,
                    seed=seed,
                    order=order,
                    stopping=stopping,
                    calibration=None,
                    n_jobs=2,
                )
                display = TradeoffDisplay({"": quick.tradeoff(X_test)})
                at.append([display.at("", share) for share in shares])
            rows.append([name, stopping, order, *np.mean(at, axis=0).tolist()])
    return rows


def adult(short):
    """Data and ensemble."""
    data = split(_data.adult())
    if short:
        data = tuple(part[:1500] for part in data)
    return data, boosted(20 if short else 500).fit(*data[:2])


def counts(short):
    """Members and disagreement, with 40 % and with a quarter of the rows held out."""
    data, model = adult(short)
    seeds = (0,) if short else (0, 1, 2)
    return {
        "headline": headline(model, data, seeds, 0.4),
        "held_out": headline(model, data, seeds, 0.25),
    }


def speed(short):
    """Whole tables and single rows."""
    data, model = adult(short)
    X, y, X_test, _ = data
    n_trees, repeats = (20, 1) if short else (500, 7)
    quicks = [optimised(model, X, alpha) for alpha in (0.005, 0.01)]
    rows = clock(model, data, quicks, repeats, short)
    hist = HistGradientBoostingClassifier(
        max_iter=n_trees, max_depth=5, learning_rate=0.05, early_stopping=False, random_state=0
    ).fit(X, y)
    rows.append(clock_sklearn("HistGradientBoosting", hist, "rows of fit", X, X_test, repeats))
    # A forest knows its own rows by heart: it is optimised on rows that it has not seen.
    half = len(X) // 2
    forest = RandomForestClassifier(n_trees, min_samples_leaf=5, random_state=0)
    forest.fit(X[:half], y[:half])
    rows.append(clock_sklearn("RandomForest", forest, "unseen rows", X[half:], X_test, repeats))
    return {"clock": rows, "latency": latency(model, data, quicks[0], repeats)}


def searched(short):
    (X, _, _, _), model = adult(short)
    return search(model, X)


def bounded(short):
    # Fewer trees, for time: the guarantee does not depend on their number.
    (X, y, X_test, _), _ = adult(short)
    return bound(boosted(4 if short else 100).fit(X, y), X_test, 2 if short else 200)


PARTS = {"counts": counts, "speed": speed, "search": searched, "bound": bounded}
PARTS |= {
    f"unseen {name}": lambda short, name=name: unseen(name, *((1, 6, 1500) if short else (20, 100)))
    for name in UNSEEN
}
PARTS["rare"] = lambda short: rare(*((1, 10, 6000) if short else (10, 200)))
PARTS |= {f"orders {name}": lambda short, name=name: compared(name, short) for name in COMPARED}


HEADLINE = ["alpha", "seed", "members", "differ %", "bound %", "accuracy", "full acc", "bar"]
TABLES = {
    "headline": ("Adult, LightGBM, 40 % held out: members and disagreement on test rows", HEADLINE),
    "held_out": ("Adult, LightGBM, a quarter held out (default): the same", HEADLINE),
    "clock": (
        "Prediction of Adult's test rows, milliseconds, one thread",
        ["ensemble", "differ %", "members", "library", "pred_early_stop", "skroute"]
        + ["x library", "x early stop", "no exits x library", "x YDF", "bar"],
    ),
    "bound": (
        "Adult test rows, 100 trees: held-out disagreement above the bound, confidence 0.95",
        ["alpha=1 % met by", "mean differ %", "bound %", "above", "splits", "allowed"],
    ),
    "unseen": (
        "Default calibration, alpha 0.5 %, on rows that the ensemble has not seen (made up: "
        "19,020 rows of 10 columns)",
        ["data", "mean differ %", "standard error", "above bound", "seeds", "allowed"],
    ),
    "rare": (
        "Adult with 2 % positives, 200 trees: what early exit loses",
        ["alpha", "positives lost %", "rows differ %", "members", "warned", "error", "seeds"],
    ),
    "orders": (
        "Members at equal disagreement on test rows (nan: not reached); several classes: "
        "iterations, fitted on half of the training rows",
        ["data", "stopping", "order", "0.5 %", "1 %"],
    ),
}


def show(parts):
    """Print the tables of the parts that were measured."""
    result = parts.get("counts", {}) | parts.get("speed", {})
    for key in ("search", "bound", "rare"):
        result[key] = parts.get(key, [])
    if not result["search"]:
        del result["search"]
    result["unseen"] = [parts[key] for key in parts if key.startswith("unseen")]
    result["orders"] = [
        row for key, rows in parts.items() if key.startswith("orders") for row in rows
    ]
    for key, (title, header) in TABLES.items():
        if result.get(key):
            table(title, header, result[key])
    if "latency" in result:
        us = result["latency"]
        table("One row through predict, microseconds", list(us), [list(us.values())])
    if "search" in result:
        one = result["search"]
        table(
            "Order search, Adult, 500 trees, seconds: one thread, two, numpy",
            ["one", "two", "numpy", "x numpy", "same order", "memory / scores", "bar"],
            [[*one["seconds"].values(), one["ratio"], one["same"], one["memory"], "15, 10x, 3"]],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer trees and rows, seconds")
    parser.add_argument("--part", nargs="+", choices=list(PARTS), help="these alone")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="No early exit keeps alpha")
    show({part: PARTS[part](arguments.short) for part in arguments.part or PARTS})
    if not (arguments.short or arguments.part):
        record("early_exit")


if __name__ == "__main__":
    main()
