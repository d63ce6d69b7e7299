"""Early exit of regressors, of rankers, and of random forests at 0.1 %.

Ensembles of 500 trees. A third of the rows fits them, a third optimises, a third reports.
One thread. The parts on random forests count members, on any machine; the others take times
too and want a quiet one.

    python benchmarks/bench_early_numbers.py [--short] [--part NAME ...] [--into FILE]
    python benchmarks/bench_early_numbers.py --merge FILE ...
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import warnings

import lightgbm as lgb
import numpy as np
from _harness import alternate, claim, table
from _parts import run
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.datasets import fetch_adult, fetch_covertype_sample, fetch_letter
from skroute.early_exit import QWYCEnsemble, QWYCRanker, QWYCRegressor
from skroute.forests import FastForest

HOURS = 12  # Adult's hours per week.


def column(fetch, j):
    """A table with one of its columns as the target."""
    data = np.asarray(fetch().data, dtype=np.float64)
    return np.delete(data, j, axis=1), data[:, j]


def thirds(n, seed=0):
    return np.array_split(np.random.RandomState(seed).permutation(n), 3)


def fewest_trees(model, rows, wrong, allowed, n_trees):
    """LightGBM's own prefix: the fewest of its first trees that change at most this share."""
    low, high = 0, n_trees
    while high - low > 1:
        middle = (low + high) // 2
        short = model.predict(rows, num_iteration=middle)
        low, high = (low, middle) if wrong(short) <= allowed else (middle, high)
    return high


NUMBERS = {
    "Covertype, elevation": lambda: column(fetch_covertype_sample, 0),
    "Adult, hours": lambda: column(fetch_adult, HOURS),
    "Friedman": lambda: make_friedman1(30_000, 10, noise=1.0, random_state=0),
}


def regress(name, n_trees, n_rows, repeats):
    found = []
    X, y = NUMBERS[name]()
    X, y = X[:n_rows], y[:n_rows]
    fit, learn, test = thirds(len(X))
    model = lgb.LGBMRegressor(
        n_estimators=n_trees,
        max_depth=5,
        learning_rate=0.05,
        n_jobs=1,
        verbose=-1,
        random_state=0,
    ).fit(X[fit], y[fit])
    rows, full = X[test], model.predict(X[test])
    fast = FastForest.from_ensemble(model)
    for part in (0.01, 0.1):
        tol = part * y.std()
        quick = QWYCRegressor(FrozenEstimator(model), tol=tol, random_state=0)
        quick.optimize(X[learn])
        change = np.abs(quick.predict(rows) - full)

        def beyond(other, full=full, tol=tol):
            return np.mean(np.abs(other - full) > tol)

        seconds = alternate(
            {
                "library": lambda m=model, r=rows: m.predict(r),
                "whole": lambda f=fast, r=rows: f.predict(r),
                "ours": lambda q=quick, r=rows: q.predict(r),
            },
            repeats,
        )
        found.append(
            [
                name,
                100 * part,
                quick.predict_cost(rows).mean(),
                fewest_trees(model, rows, beyond, 0.01, n_trees),
                100 * np.mean(change > tol),
                100 * quick.disagreement_bound_,
                seconds["library"] / seconds["ours"],
                seconds["whole"] / seconds["ours"],
            ]
        )
    return found


def letor(n_groups, seed, n_features=40):
    """Made-up queries of 20 to 180 documents: some columns tell, those of a query are alike."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 180, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    X = rng.normal(size=(len(groups), n_features)) + rng.normal(size=(n_groups, n_features))[groups]
    X[:, 20:] = np.exp(X[:, 20:])
    gain = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0) + 0.3 * np.log(X[:, 20])
    gain = gain + 0.8 * rng.normal(size=len(gain))
    return X, np.searchsorted([1.0, 2.0, 3.0, 4.0], gain), groups


def tops(score, groups, k):
    """The first `k` rows of each group, in order, as one tuple."""
    order = np.lexsort((-score, groups))
    place = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    return [
        tuple(part)
        for part in np.split(
            order[place < k], np.flatnonzero(np.diff(groups[order[place < k]])) + 1
        )
    ]


def rank(n_trees, n_groups, repeats, k=10):
    X, y, groups = letor(n_groups, 0)
    model = lgb.LGBMRanker(
        n_estimators=n_trees,
        num_leaves=31,
        learning_rate=0.05,
        n_jobs=1,
        verbose=-1,
        random_state=0,
    ).fit(X, y, group=np.bincount(groups))
    learn, test = letor(2 * n_groups, 1), letor(n_groups, 2)
    rows, groups = test[0], test[2]
    full = tops(model.predict(rows), groups, k)

    def differ(score):
        return np.mean([a != b for a, b in zip(full, tops(score, groups, k))])

    quick = QWYCRanker(FrozenEstimator(model), k=k, random_state=0).optimize(learn[0], learn[2])
    fast = FastForest.from_ensemble(model)
    seconds = alternate(
        {
            "library": lambda: model.predict(rows),
            "whole": lambda: fast.predict(rows),
            "ours": lambda: quick.predict(rows, groups=groups),
        },
        repeats,
    )
    found = [
        [
            k,
            quick.predict_cost(rows, groups=groups).mean(),
            fewest_trees(model, rows, differ, 0.01, n_trees),
            100 * differ(quick.predict(rows, groups=groups)),
            100 * quick.disagreement_bound_,
            seconds["library"] / seconds["ours"],
            seconds["whole"] / seconds["ours"],
        ]
    ]
    return found


VOTES = {"Adult": fetch_adult, "Letter": fetch_letter, "Covertype": fetch_covertype_sample}


def forests(name, n_trees, n_rows, n_seeds):
    """Optimal stopping of votes beside QWYC's thresholds, each calibrated on the same rows."""
    found = []
    bunch = VOTES[name]()
    X, y = np.asarray(bunch.data, dtype=np.float64)[:n_rows], bunch.target[:n_rows]
    fit, learn, test = thirds(len(X))
    model = RandomForestClassifier(n_trees, random_state=0).fit(X[fit], y[fit])
    full = model.predict(X[test])
    for stopping in ("auto", "votes", "thresholds"):
        runs = []
        for seed in range(n_seeds):
            quick = QWYCEnsemble(
                FrozenEstimator(model), alpha=0.001, stopping=stopping, random_state=seed
            )
            quick.optimize(X[learn])
            y_pred, members, _ = quick.predict_routed(X[test])
            voted = quick.stopping_ == "votes"
            runs.append([members.mean(), 100 * np.mean(y_pred != full), voted])
        members, differ, voted = np.mean(runs, axis=0)
        found.append([name, stopping, members, n_trees / members, differ, voted])
    return found


def claims(result):
    found = []
    for name, part, members, first, further, _, library, _ in result["regress"]:
        key = f"{name.split(',')[0]}-{part:g}"
        what = f"{name}, 1 % of the rows further away than {part:g} % of its deviation"
        found += [
            claim(
                f"numbers-{key}",
                f"{what}: members evaluated ({further:.2g} % are further away)",
                members,
                better="lower",
                peer=float(first),
                against="the fewest of LightGBM's own first trees, chosen on the test rows",
                digits=4,
            ),
            claim(
                f"numbers-time-{key}",
                f"{what}: predict",
                library,
                peer=1,
                against="LightGBM's own predict, one thread",
                unit="times as fast",
            ),
        ]
    for k, members, first, differ, _, library, whole in result["rank"]:
        found += [
            claim(
                "ranks",
                f"LETOR-like, top {k}: members evaluated ({differ:.2g} % of the tops differ)",
                members,
                better="lower",
                peer=float(first),
                against="the fewest of LightGBM's own first trees, chosen on the test groups",
                digits=4,
            ),
            claim(
                "ranks-differ",
                f"LETOR-like: groups whose top {k} differ, 1 % allowed",
                differ,
                better="lower",
                unit="%",
                bar=1.0,
                why="an expectation",
            ),
            claim(
                "ranks-time",
                f"LETOR-like, top {k}: predict",
                library,
                peer=1,
                against="LightGBM's own predict, one thread",
                unit="times as fast",
            ),
            claim(
                "ranks-whole",
                f"LETOR-like, top {k}: predict",
                whole,
                peer=1,
                against="FastForest, all trees",
                unit="times as fast",
            ),
        ]
    fewer = {tuple(row[:2]): row[3] for row in result["forests"]}
    for name, stopping, _, times, differ, _ in result["forests"]:
        if stopping == "auto":
            other = fewer[name, "thresholds"]
            found.append(
                claim(
                    f"forest-{name}",
                    f"{name}, random forest, 0.1 % may differ ({differ:.2g} % do): trees",
                    times,
                    peer=other,
                    within=0.05 * other,
                    against="QWYC's thresholds; published for optimal stopping: 4 on most sets",
                    bar=4,
                    unit="times fewer",
                )
            )
    return found


TABLES = {
    "regress": (
        "Regressors, 500 trees: 1 % of the rows may be predicted further away than a part of the "
        "target's deviation",
        ["data", "part %", "members", "LightGBM's first", "further %", "bound %"]
        + ["x LightGBM", "x FastForest"],
    ),
    "rank": (
        "A LETOR-like set, LGBMRanker of 500 trees: the top of 1 % of the groups may change",
        ["k", "members", "LightGBM's first", "tops that differ %", "bound %"]
        + ["x LightGBM", "x FastForest"],
    ),
    "forests": (
        "Random forests of 500 trees on rows that they have not seen, 0.1 % may differ, means of "
        "three calibrations",
        ["data", "stopping", "members", "times fewer", "differ %", "took votes"],
    ),
}


def show(parts):
    result = {
        what: [row for part, rows in parts.items() if part.split(" ")[0] == what for row in rows]
        for what in TABLES
    }
    for what, (title, header) in TABLES.items():
        if result[what]:
            table(title, header, result[what])
    return result, claims(result)


SIZES = {True: (12, 900, 1), False: (500, 30_000, 7)}
PARTS = {
    f"regress {name}": lambda short, name=name: regress(name, *SIZES[short]) for name in NUMBERS
}
PARTS["rank"] = lambda short: rank(*((12, 40, 1) if short else (500, 500, 7)))
PARTS |= {
    f"forests {name}": lambda short, name=name: forests(
        name, *((12, 600, 1) if short else (500, 30_000, 3))
    )
    for name in VOTES
}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="No early exit keeps alpha")
    warnings.filterwarnings("ignore", message="alpha=.* is a share of all rows")
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    title = "Early exit of regressors, rankers and random forests"
    run("early_numbers", __doc__, PARTS, show, title)
