"""Early exit against the libraries' own prediction, in microseconds and in members.

Adult with its official split, 500 LightGBM trees of depth 5; the learning rate 0.05 is
the best of 0.1, 0.05, 0.03 in 5-fold cross-validation on the training rows. Training
rows optimise, test rows report. One thread unless said. The part "speed" takes times
and wants a quiet machine; the others count, on any. That the order search is compiled
(1.1 s where numpy takes 15) was decided here.

    python benchmarks/bench_early_exit.py [--short] [--part NAME ...]

A run of some parts replaces their tables in the record.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from functools import cache

import _data
import lightgbm as lgb
import numpy as np
from _common import alternate, table
from bench_acquisition import record_parts
from bench_fast_forest import ydf_peer
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble, TradeoffDisplay


def split(bunch, target=None):
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)
    y = bunch.target if target is None else bunch.target == target
    return X[~bunch.is_test], y[~bunch.is_test], X[bunch.is_test], y[bunch.is_test]


def boosted(n_trees, **parameters):
    given = {
        "max_depth": 5,
        "learning_rate": 0.05,
        "n_jobs": 1,
        "verbose": -1,
        "random_state": 0,
    }
    return lgb.LGBMClassifier(n_estimators=n_trees, **given | parameters)


@cache
def adult(short):
    """Data and fitted ensemble."""
    data = split(_data.adult())
    if short:
        data = tuple(part[:1500] for part in data)
    return data, boosted(20 if short else 500).fit(*data[:2])


def optimised(model, X, alpha=0.005, seed=0, **parameters):
    given = {"random_state": seed} | parameters
    return QWYCEnsemble(FrozenEstimator(model), alpha=alpha, **given).optimize(X)


def counts(short):
    """Members and disagreement with the default calibration."""
    (X, _, X_test, y_test), model = adult(short)
    full, rows = model.predict(X_test), []
    for alpha, bar in ((0.005, "0.5 %, 40"), (0.01, "1 %, 25")):
        for seed in range(1 if short else 3):
            quick = optimised(model, X, alpha, seed, n_jobs=2)
            y_pred, _, cost = quick.predict_routed(X_test)
            differ, at_most = np.mean(y_pred != full), quick.disagreement_bound_
            right = np.mean(y_pred == y_test), np.mean(full == y_test)
            rows.append(
                [alpha, seed, cost.mean(), 100 * differ, 100 * at_most, *right, bar]
            )
    table(
        "Adult, LightGBM, a quarter held out (default): members and disagreement on "
        "test rows",
        [
            "alpha",
            "seed",
            "members",
            "differ %",
            "bound %",
            "accuracy",
            "full acc",
            "bar",
        ],
        rows,
    )


def early_stop_at(booster, X, full, share):
    """LightGBM's own early stop: the fastest frequency with at most this disagreement."""
    best = np.inf, None
    for frequency in (1, 2, 5, 10, 20, 50):
        options = {
            "num_threads": 1,
            "pred_early_stop": True,
            "pred_early_stop_freq": frequency,
        }
        low, high = 0.0, 20.0
        for _ in range(12):
            margin = (low + high) / 2
            answer = booster.predict(X, pred_early_stop_margin=margin, **options) > 0.5
            low, high = (
                (low, margin) if np.mean(answer != full) <= share else (margin, high)
            )
        options["pred_early_stop_margin"] = high
        start = time.perf_counter()
        booster.predict(X, **options)
        best = min(best, (time.perf_counter() - start, options), key=lambda one: one[0])
    return best[1]


def clock(name, model, X, X_test, alpha, repeats, bar, ydf=None):
    """A row of the table of times: the library, its early stop, ours with and without exits."""
    quick, whole = (
        optimised(model, X, alpha),
        optimised(model, X[:1000], 0.0, order="natural"),
    )
    full, early = model.predict(X_test), "-"
    share = np.mean(quick.predict(X_test) != full)
    calls = {
        "own": lambda: model.predict(X_test),
        "ours": lambda: quick.predict(X_test),
    }
    calls["whole"] = lambda: whole.predict(X_test)
    if hasattr(model, "booster_"):
        booster = model.booster_
        options = early_stop_at(booster, X_test, full == model.classes_[1], share)
        calls["own"] = lambda: booster.predict(X_test, num_threads=1)
        calls["early"] = lambda: booster.predict(X_test, **options)
        early = "f={pred_early_stop_freq}, m={pred_early_stop_margin:.2f}".format(
            **options
        )
    if ydf is not None:
        calls["ydf"] = ydf
    ms = {key: 1e3 * seconds for key, seconds in alternate(calls, repeats).items()}
    times = [
        ms[key] / ms["ours"] if key in ms else "-" for key in ("own", "early", "ydf")
    ]
    found = [
        name,
        100 * share,
        quick.predict_cost(X_test).mean(),
        ms["own"],
        early,
        ms["ours"],
    ]
    return [*found, *times, ms["own"] / ms["whole"], bar]


def speed(short):
    """Whole tables and single rows."""
    (X, y, X_test, _), model = adult(short)
    n_trees, repeats = (20, 1) if short else (500, 7)
    ydf = None if short else ydf_peer(short)
    rows = [
        clock("LightGBM", model, X, X_test, alpha, repeats, "60x, 2x, 6x, 12x", ydf)
        for alpha in (0.005, 0.01)
    ]
    hist = HistGradientBoostingClassifier(
        max_iter=n_trees,
        max_depth=5,
        learning_rate=0.05,
        early_stopping=False,
        random_state=0,
    ).fit(X, y)
    name = "HistGradientBoosting (rows of fit)"
    rows.append(clock(name, hist, X, X_test, 0.005, repeats, "8x"))
    # A forest knows its own rows by heart: it is optimised on rows that it has not
    # seen.
    half = len(X) // 2
    forest = RandomForestClassifier(n_trees, min_samples_leaf=5, random_state=0)
    forest.fit(X[:half], y[:half])
    name = "RandomForest (unseen rows)"
    rows.append(clock(name, forest, X[half:], X_test, 0.005, repeats, "8x"))
    table(
        "Prediction of Adult's test rows, milliseconds, one thread",
        [
            "ensemble",
            "differ %",
            "members",
            "library",
            "its early stop",
            "skroute",
            "x library",
        ]
        + ["x early stop", "x YDF", "no exits x library", "bar"],
        rows,
    )
    quick, booster = optimised(model, X), model.booster_
    lines = [X_test[i : i + 1].copy() for i in range(200)]
    calls = {
        "LightGBM": lambda: [booster.predict(line, num_threads=1) for line in lines],
        "skroute": lambda: [quick.predict(line) for line in lines],
        "predict_proba": lambda: [quick.predict_proba(line) for line in lines],
    }
    us = {name: 1e6 * s / len(lines) for name, s in alternate(calls, repeats).items()}
    us["x LightGBM"] = us["LightGBM"] / us["skroute"]
    table(
        "One row through predict, microseconds (bar: 20, 4x)",
        list(us),
        [list(map(float, us.values()))],
    )


def whole(bunch, target=None):
    X, y, X_test, y_test = split(bunch, target)
    return np.concatenate([X, X_test]), np.concatenate([y, y_test])


def made_up():
    """19,020 rows of 10 columns, made up: the shape of MAGIC's gamma telescope."""
    made = {
        "n_informative": 7,
        "n_redundant": 2,
        "n_clusters_per_class": 3,
        "weights": [0.35],
    }
    return make_classification(
        19_020, 10, flip_y=0.05, class_sep=0.8, random_state=0, **made
    )


UNSEEN = {
    "Adult": lambda: whole(_data.adult()),
    "Covertype": lambda: whole(_data.covertype(), 2),
    "Letter": lambda: whole(_data.letter()),
    "Made up": made_up,
}


def unseen(short):
    """The default calibration on rows that the ensemble was not fitted on, again and again."""
    n_seeds, n_trees, n_rows = (1, 6, 1500) if short else (20, 100, 30_000)
    rows = []
    for name, fetch in UNSEEN.items():
        X, y = (part[:n_rows] for part in fetch())
        third, shares, above = len(X) // 3, [], 0
        order = np.random.RandomState(0).permutation(len(X))
        model = boosted(
            n_trees // 3 if name == "Letter" else n_trees, learning_rate=0.1
        )
        model.fit(X[order[:third]], y[order[:third]])
        rest, full = order[third:], model.predict(X)
        for seed in range(n_seeds):
            rest = np.random.RandomState(seed).permutation(rest)
            quick, left = optimised(model, X[rest[:third]], seed=seed), rest[third:]
            shares.append(np.mean(quick.predict(X[left]) != full[left]))
            above += shares[-1] > quick.disagreement_bound_
        error, limit = (
            np.std(shares) / np.sqrt(n_seeds),
            int(binom.ppf(0.99, n_seeds, 0.05)),
        )
        rows.append([name, 100 * np.mean(shares), 100 * error, above, n_seeds, limit])
    table(
        "Default calibration, alpha 0.5 %, on rows that the ensemble has not seen "
        "(made up: 19,020 rows of 10 columns)",
        ["data", "mean differ %", "standard error", "above bound", "seeds", "allowed"],
        rows,
    )


def rare(short):
    """Adult thinned to 2 % positives: answers of the full ensemble that are lost."""
    n_seeds, n_trees, n_rows = (1, 10, 6000) if short else (10, 200, None)
    bunch = _data.adult()
    X, y = (
        np.ascontiguousarray(bunch.data, dtype=np.float64)[:n_rows],
        bunch.target[:n_rows],
    )
    labels, rows = np.unique(y), []
    settings = {
        "alpha=0.005": {"alpha": 0.005},
        "1 % of each answer": {
            "alpha": dict.fromkeys(labels, 0.01),
            "calibration": 0.7,
        },
    }
    for name, parameters in settings.items():
        found = []
        for seed in range(n_seeds):
            rng = np.random.RandomState(seed)
            common, few = (
                rng.permutation(np.flatnonzero(y == label)) for label in labels
            )
            taken = rng.permutation(
                np.append(common, few[: round(len(common) * 0.02 / 0.98)])
            )
            fit, test = np.split(taken, [2 * len(taken) // 3])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                quick = QWYCEnsemble(boosted(n_trees), random_state=seed, **parameters)
                quick.fit(X[fit], y[fit])
            full = quick.estimator_.predict(X[test])
            y_pred, members, _ = quick.predict_routed(X[test])
            lost = np.mean(y_pred[full == labels[1]] != labels[1])
            warned = any("is a share of all rows" in str(one.message) for one in caught)
            found.append(
                [100 * lost, 100 * np.mean(y_pred != full), members.mean(), warned]
            )
        error = np.std([one[0] for one in found]) / np.sqrt(n_seeds)
        rows.append([name, *np.mean(found, axis=0), error, n_seeds])
    table(
        "Adult with 2 % positives, 200 trees: what early exit loses",
        [
            "alpha",
            "positives lost %",
            "rows differ %",
            "members",
            "warned",
            "error",
            "seeds",
        ],
        rows,
    )


def tree_values(model, X):
    """What each tree adds, from LightGBM's own leaves: (n_iterations, n_rows, n_outputs)."""
    booster = model.booster_
    leaves = booster.predict(X, pred_leaf=True, num_threads=1).astype(int).T
    values = []
    for tree, own in enumerate(leaves):
        of_leaf = [booster.get_leaf_output(tree, leaf) for leaf in range(own.max() + 1)]
        values.append(np.array(of_leaf)[own])
    return (
        np.array(values)
        .reshape(booster.current_iteration(), -1, len(X))
        .transpose(0, 2, 1)
    )


def mse_order(values):
    """By the squared error of each alone against the full score, both centred (Fan et al.)."""
    centred = values - values.mean(axis=1, keepdims=True)
    full = centred.sum(axis=0)
    return np.argsort([((full - one) ** 2).mean() for one in centred], kind="stable")


def greedy_mse_order(values):
    """Each next one lowers the squared error of the running sum most, all centred."""
    centred = values - values.mean(axis=1, keepdims=True)
    gram = np.einsum("ink,jnk->ij", centred, centred, optimize=True)
    rest, left, order = gram.sum(axis=1), np.ones(len(gram), dtype=bool), []
    for _ in gram:
        order.append(int(np.argmin(np.where(left, np.diag(gram) - 2 * rest, np.inf))))
        left[order[-1]] = False
        rest = rest - gram[order[-1]]
    return np.array(order)


def fan_curve(values, values_test, order, bins=20):
    """Dynamic scheduling of Fan, Chu, Wang and Yu (AAAI 2002), two classes.

    Rows of a position whose running scores fall into one bin are alike: what they still
    miss of the full score has a mean and a deviation on the rows to learn from. A row
    stops where its running score plus that mean clears 0 by `gamma` deviations; in a
    bin that no row fell into it goes on. Returns disagreement and mean members on the
    test rows, for each `gamma`.
    """
    known, running = (
        np.cumsum(part[order, :, 0], axis=0) for part in (values, values_test)
    )
    width = known[-1].std() / bins
    centre, slack = np.full(running.shape, np.nan), np.full(running.shape, np.nan)
    for at, (learn, test) in enumerate(zip(known, running)):
        bin, bin_test = (
            np.rint(learn / width).astype(int),
            np.rint(test / width).astype(int),
        )
        first, n_bins = bin.min(), np.ptp(bin) + 1
        with np.errstate(invalid="ignore"):
            count, missing = (
                np.bincount(bin - first, minlength=n_bins),
                known[-1] - learn,
            )
            mean = np.bincount(bin - first, missing) / count
            deviation = np.sqrt(
                np.bincount(bin - first, (missing - mean[bin - first]) ** 2) / count
            )
        seen = (bin_test >= first) & (bin_test < first + n_bins)
        centre[at, seen] = test[seen] + mean[bin_test[seen] - first]
        slack[at, seen] = deviation[bin_test[seen] - first]
    full, rows, curve = running[-1] > 0, np.arange(running.shape[1]), []
    for gamma in np.geomspace(8, 0.25, 40):
        leave = np.abs(centre) > gamma * slack
        leave[-1] = True
        at = leave.argmax(axis=0)
        answer = np.where(at == len(leave) - 1, full, centre[at, rows] > 0)
        curve.append([np.mean(answer != full), at.mean() + 1])
    return np.transpose(curve)


COMPARED = {
    "Adult": (_data.adult, None),
    "Covertype": (_data.covertype, 2),
    "Letter": (_data.letter, None),
    "USPS": (_data.usps, None),
}


def orders(short):
    """Members at equal disagreement on test rows, read off the curve of all thresholds."""
    rows = []
    for name, (fetch, target) in COMPARED.items():
        X, y, X_test, _ = split(fetch(), target)
        # Several classes are optimised on rows that the ensemble was not fitted on.
        fit = learn = slice(0, 1500 if short else None)
        model = boosted(20 if short else 500)
        if name in ("Letter", "USPS") and not short:
            fit, learn = slice(0, None, 2), slice(1, None, 2)
            model = boosted(100, learning_rate=0.1)
        model.fit(X[fit], y[fit])
        values, values_test = tree_values(model, X[learn]), tree_values(model, X_test)
        drawn = [
            np.random.RandomState(seed).permutation(len(values)) for seed in range(3)
        ]
        compared = {
            "qwyc": ["qwyc"],
            "natural": ["natural"],
            "random": drawn,
            "MSE": [mse_order(values)],
            "greedy MSE": [greedy_mse_order(values)],
        }
        curves = {"thresholds": {}, "Fan": {}}
        for order, given in compared.items():
            options = {"stopping": "thresholds", "calibration": None, "n_jobs": 2}
            quick = [optimised(model, X[learn], order=one, **options) for one in given]
            curves["thresholds"][order] = [one.tradeoff(X_test) for one in quick]
            if len(model.classes_) == 2:
                curves["Fan"][order] = [
                    fan_curve(values, values_test, one.order_) for one in quick
                ]
        for stopping, of_orders in curves.items():
            for order, found in of_orders.items():
                displays = [TradeoffDisplay({"": curve}) for curve in found]
                at = [
                    [one.at("", share) for share in (0.005, 0.01)] for one in displays
                ]
                rows.append([name, stopping, order, *np.mean(at, axis=0).tolist()])
    table(
        "Members at equal disagreement on test rows (nan: not reached; random: mean of "
        "three draws); several classes: iterations, fitted on half of the training rows",
        ["data", "stopping", "order", "0.5 %", "1 %"],
        rows,
    )


PARTS = {one.__name__: one for one in (counts, speed, unseen, rare, orders)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--short", action="store_true", help="fewer trees and rows, seconds"
    )
    parser.add_argument("--part", nargs="+", choices=list(PARTS), help="these alone")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="No early exit keeps alpha")
    for part in arguments.part or PARTS:
        PARTS[part](arguments.short)
        if not arguments.short:
            record_parts("early_exit")


if __name__ == "__main__":
    main()
