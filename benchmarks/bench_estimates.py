"""What decisions gain by each estimate of quality, on all tables at hand.

Gain: realised quality on test rows over the best random mix of choices that spends the same
(picked with the test rows in hand), mean of five budgets between the cheapest choice and the best
one, in points. Prices are learned on out-of-sample estimates of training rows, as a router learns
them. 5 folds or the given split, fixed seeds; everything is fitted and chosen on training rows.
Of tables with more than 12,500 rows so many are drawn first: 10,000 train.

    python benchmarks/bench_estimates.py [--short] [--part NAME] [--tables WORD] [--rows N]
                                         [--folds N] [--seconds S]

It runs in parts (`tables`, `speed`, `searches`, `made_up`), each in a process of its own if asked
for: what is there of the others, in ``benchmarks/.cache``, is merged into one file. What members
estimate of a fold is kept there too, first folds first; after S seconds no new fold is begun. The
results are of all folds that are there, and say how many. ``--rows`` draws at most so many training
rows and one and a half times as many test rows.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import pickle
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _estimate_tables import CACHE, LOGS, Fold, load
from _harness import alternate, claim, save, table
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import skroute.quality
from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._corrections import corrected, finished
from skroute.quality._family import MEMBERS, MOST_SEARCHED, NEIGHBORS, searching
from skroute.quality._quality_regressor import _OF_A_FOLD
from skroute.quality._stacking import (
    Weights,
    choose_weights,
    gain_over_mix,
    judged_budgets,
    moments,
    single_weights,
    weigh,
)

DEFAULT = "default"
BEFORE = "bagged neighbors"
KNOWN = {**MEMBERS, **NEIGHBORS}


class Evidence(NamedTuple):
    """What the members estimate of one fold of a table.

    Attributes
    ----------
    names : list of str
    estimates : ndarray of shape (n_members, n_train, n_choices)
        Deviations of training rows, out of sample.
    new : ndarray of shape (n_members, n_test, n_choices)
        Of test rows, by members that all training rows fitted.
    before, new_before : ndarray of shape (n_rows, n_choices)
        The same of the default until now.
    """

    names: list
    estimates: np.ndarray
    new: np.ndarray
    before: np.ndarray
    new_before: np.ndarray


def bagged_neighbors():
    """What routers took without choosing until now."""
    return make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor())


def inner_folds(fold):
    return list(KFold(5, shuffle=True, random_state=0).split(fold.X))


def collected(fold):
    """Fit every member as `QualityRegressor` does."""
    scales, quality, folds = QualityRegressor(), fold.quality, inner_folds(fold)
    scales._set_scales(fold.X)
    rows, new = scales._rows(fold.X), scales._rows(fold.X_test)
    names = [name for name in KNOWN if name in MEMBERS or len(quality) <= MOST_SEARCHED]
    estimates = np.empty((len(names), *quality.shape), dtype=np.float32)
    found = np.empty((len(names), *fold.quality_test.shape), dtype=np.float32)
    for i, name in enumerate(names):
        for k, (train, test) in enumerate(folds):
            deviations = quality[train] - quality[train].mean(axis=0)
            member = KNOWN[name](rows[train], deviations, k + 1, _OF_A_FOLD)
            estimates[i, test] = member.predict(rows[test])
        found[i] = KNOWN[name](rows, quality - quality.mean(axis=0), 0).predict(new)
    before, estimate = bagged_neighbors(), np.empty(quality.shape)
    for train, test in folds:
        estimate[test] = before.fit(fold.X[train], quality[train]).predict(fold.X[test])
    new_before = before.fit(fold.X, quality).predict(fold.X_test)
    return Evidence(names, estimates, found, estimate, new_before)


def gains(fold, seen):
    """Gain of each test row over the random mix, for the default and each of the others.

    Estimates of training rows are out of sample; prices are learned on them.

    Returns
    -------
    gain : dict from str to ndarray of shape (n_test,)
    estimate : ndarray of shape (n_test, n_choices)
        Of the default.
    """
    quality, mean = fold.quality, fold.quality.mean(axis=0)
    budgets = judged_budgets(quality, fold.costs)

    def gain(estimate, new):
        return gain_over_mix(estimate, quality, fold.costs, new, fold.quality_test, budgets)

    means, tests = np.empty(quality.shape), []
    for train, test in inner_folds(fold):
        means[test] = quality[train].mean(axis=0)
        tests.append(test)
    found = {BEFORE: gain(seen.before, seen.new_before)}
    estimates, members = seen.estimates.astype(float), seen.new.astype(float)
    parts = [moments(estimates[:, test], (quality - means)[test]) for test in tests]
    total = moments(estimates, quality - means)
    for i, name in enumerate(seen.names):
        # A member alone: shrunk to the means by least squares, nothing else.
        alone = means.copy()
        for test, part in zip(tests, parts):
            alone[test] += weigh(estimates[[i]][:, test], picked(total.less(part), i))
        found[name] = gain(alone, mean + weigh(members[[i]], picked(total, i)))
    new, estimate = default_estimates(fold, seen, means, tests)
    return found | {DEFAULT: gain(estimate, new)}, new


def default_estimates(fold, seen, means, tests):
    """What `QualityRegressor` makes of the members, of test rows and of training rows.

    :func:`agrees` compares it with the estimator itself.
    """
    quality, costs = fold.quality, fold.costs
    heavy = [name for name in seen.names if name in NEIGHBORS]
    estimates = seen.estimates.astype(float)
    choice = choose_weights(seen.names, estimates, quality - means, quality, tests, costs, heavy)
    new = quality.mean(axis=0) + weigh(seen.new.astype(float), choice.weights)
    if choice.knots is not None:
        new = corrected(new, choice.knots)
    return finished(new, quality.min(axis=0), quality.max(axis=0)), choice.estimate


def agrees(fold, estimate):
    """How far the estimator itself is from what was made of the evidence."""
    model = QualityRegressor()
    model.cross_fit(fold.X, fold.quality, folds=inner_folds(fold), costs=fold.costs)
    return float(np.abs(model.predict(fold.X_test) - estimate).max())


def picked(found, i):
    """The weights of one member, without the others."""
    return Weights(*(weights[[i]] for weights in single_weights(found, i)))


def file_of(name, i, rows):
    name = "".join(c if c.isalnum() else "_" for c in name)
    return CACHE / f"evidence_{rows or 'all'}_{name}_{i}.pkl"


def drawn(fold, rows):
    """At most so many training rows, and one and a half times as many test rows."""
    if not rows:
        return fold
    train = np.random.RandomState(1).permutation(len(fold.X))[:rows]
    test = np.random.RandomState(2).permutation(len(fold.X_test))[: 3 * rows // 2]
    return Fold(
        fold.X[train], fold.quality[train], fold.X_test[test], fold.quality_test[test], fold.costs
    )


def cached_gains(name, i, fold, rows):
    """:func:`gains`, computed again when the stack has changed."""
    files = sorted(Path(skroute.quality.__file__).parent.glob("_[cs]*.py"))
    code = zlib.crc32(b"".join(file.read_bytes() for file in files))
    path = file_of(name, i, rows).with_suffix(f".{code:08x}.gains")
    if not path.exists():
        seen = Evidence(*pickle.loads(file_of(name, i, rows).read_bytes()))
        path.write_bytes(pickle.dumps(gains(fold, seen)))
    return pickle.loads(path.read_bytes())


def collect(names, n_folds, seconds, rows):
    """Collect what is missing, first folds first, until the time is over."""
    start = time.monotonic()
    for i in range(n_folds):
        for name in names:
            if file_of(name, i, rows).exists():
                continue
            if time.monotonic() - start > seconds:
                return
            folds = load(name)
            if i < len(folds):
                begun = time.process_time()
                found = collected(drawn(folds[i], rows))
                file_of(name, i, rows).write_bytes(pickle.dumps(tuple(found)))
                print(f"{name}, fold {i}: {time.process_time() - begun:.0f} s", flush=True)


def calibrated_share(parts):
    """Share of ten bins per choice in which outcomes agree with the estimates.

    Bins are cut in each fold, which has a model of its own, and the folds' bins of one place are
    one. Equal estimates are cut at random: rows of a log may stand in the order of their outcomes.

    Parameters
    ----------
    parts : list of (ndarray of shape (n_test, n_choices), ndarray of the same shape)
        Estimates and outcomes of the test rows of each fold.
    """
    rng, agree = np.random.default_rng(0), []
    for column in range(parts[0][0].shape[1]):
        bins = [[] for _ in range(10)]
        for estimate, quality in parts:
            e, q = estimate[:, column], quality[:, column]
            order = np.lexsort((rng.random(len(e)), e))
            for found, rows in zip(bins, np.array_split(order, 10)):
                found.append(np.stack([e[rows], q[rows]]))
        for e, q in (np.concatenate(found, axis=1) for found in bins):
            # The spread that the estimates imply, where outcomes happen to be all alike.
            p = np.clip(e.mean(), 0, 1)
            spread = max(q.var(ddof=1), p * (1 - p))
            agree.append(abs(q.mean() - e.mean()) <= 1.96 * np.sqrt(spread / len(q)) + 1e-12)
    return float(np.mean(agree))


def all_tables(names, n_folds, most_rows):
    rows, payload = [], {}
    for name in names:
        folds = [drawn(fold, most_rows) for fold in load(name)]
        there = [i for i in range(len(folds)) if file_of(name, i, most_rows).exists()][:n_folds]
        if not there:
            continue
        parts = [cached_gains(name, i, folds[i], most_rows) for i in there]
        gain = {who: np.concatenate([part[0][who] for part in parts]) for who in parts[0][0]}
        tested = [(part[1], folds[i].quality_test) for i, part in zip(there, parts)]
        entry = table_entry(folds[0], gain, tested)
        payload[name] = {**entry, "folds": len(there), "of_folds": len(folds)}
        print(name, *(f"{who} {value:.2f}" for who, value in entry["gain"].items()), flush=True)
    everyone = [BEFORE, *KNOWN, DEFAULT]
    for name, entry in payload.items():
        # Neighbours are not searched among too many rows.
        cells = [f"{entry['gain'].get(who, np.nan):.2f}" for who in everyone]
        ends = f"{entry['se'][DEFAULT]:.2f}", f"{entry['calibrated']:.2f}"
        folds = f"{entry['folds']} of {entry['of_folds']}"
        rows.append([name, folds, entry["rows"], *cells, *ends])
    means = [
        np.nanmean([entry["gain"].get(who, np.nan) for entry in payload.values()])
        for who in everyone
    ]
    rows.append(["mean", "", "", *(f"{value:.2f}" for value in means), "", ""])
    header = ["table", "folds", "train rows", *everyone, "its se", "calibrated bins"]
    table("Gain over the best random mix at equal spend, points", header, rows)
    return payload


def table_entry(fold, gain, tested):
    return {
        "rows": len(fold.X),
        "choices": len(fold.costs),
        "gain": {who: 100 * float(values.mean()) for who, values in gain.items()},
        "se": {
            who: 100 * float(values.std(ddof=1) / np.sqrt(len(values)))
            for who, values in gain.items()
        },
        "calibrated": calibrated_share(tested),
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
        search = searching(own, metric, 60)
        seconds = alternate(
            {
                "sklearn": lambda p=peer: p.kneighbors(Q, 60),
                "family": lambda s=search: s(Q),
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


GUIDE = Path(__file__).parents[1] / "doc" / "user_guide" / "estimates_table.inc"
SHORT_NAMES = {
    BEFORE: "bagged",
    "coarse trees": "coarse",
    "plain linear": "plain",
    "landmarks": "centres",
    "cosine landmarks": "by angle",
    "cosine neighbors": "cosine",
    "euclidean neighbors": "euclid",
    "chebyshev neighbors": "cheb",
}


def guide_table(entries):
    """The table of the guide, as reStructuredText; the best of a row is in bold."""
    everyone = [BEFORE, *KNOWN, DEFAULT]
    lines = [["table", "rows", *(SHORT_NAMES.get(who, who) for who in everyone), "s.e.", "bins"]]
    for name, entry in entries.items():
        gain = [entry["gain"].get(who, np.nan) for who in everyone]
        cells = [f"**{g:.2f}**" if g == np.nanmax(gain) else f"{g:.2f}" for g in gain]
        ends = f"{entry['se'][DEFAULT]:.2f}", f"{entry['calibrated']:.2f}"
        lines.append([name, str(entry["rows"]), *cells, *ends])
    means = [
        np.nanmean([entry["gain"].get(who, np.nan) for entry in entries.values()])
        for who in everyone
    ]
    lines.append(["mean", "\\", *(f"{mean:.2f}" for mean in means), "\\", "\\"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = "  ".join("=" * width for width in widths)
    text = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines]
    return "\n".join([rule, text[0], rule, *text[1:], rule, ""])


PARTS = "tables", "speed", "searches", "made_up"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a made-up table, in seconds")
    parser.add_argument("--part", choices=PARTS, help="only this, and what is there of the others")
    parser.add_argument("--tables", default="", help="only tables whose name has this word")
    parser.add_argument("--rows", type=int, default=0, help="training rows at most; 0: all")
    parser.add_argument("--folds", type=int, default=5, help="at most so many of each table")
    parser.add_argument("--seconds", type=float, default=np.inf, help="to begin new folds in")
    options = parser.parse_args()

    def tables():
        if options.short:
            fold = made_up_fold()[0]
            gain, estimate = gains(fold, collected(fold))
            # The trees that are kept are in half precision.
            assert agrees(fold, estimate) < 2e-3
            return {"made up": table_entry(fold, gain, [(estimate, fold.quality_test)])}
        names = [name for name in LOGS if options.tables in name]
        collect(names, options.folds, options.seconds, options.rows)
        return all_tables(names, options.folds, options.rows)

    runs = {
        "tables": tables,
        "speed": lambda: sizes_and_seconds(options.short),
        "searches": lambda: searches(options.short),
        "made_up": lambda: made_up(options.short),
    }
    result = {}
    for part in PARTS:
        kept = CACHE / f"part_{part}.json"
        if options.part in (None, part):
            result[part] = runs[part]()
            if not options.short:
                CACHE.mkdir(exist_ok=True)
                kept.write_text(json.dumps(result[part]))
        elif kept.exists():
            result[part] = json.loads(kept.read_text())
    if len(result) < len(PARTS):
        print("To come:", *(part for part in PARTS if part not in result))
        return
    result["most_rows"] = options.rows
    save(
        "estimates",
        result,
        title="Quality estimates: what decisions gain",
        claims=claims(result),
        write=not options.short and not options.tables,
    )
    if not options.short and not options.tables:
        GUIDE.write_text(guide_table(result["tables"]))


if __name__ == "__main__":
    main()
