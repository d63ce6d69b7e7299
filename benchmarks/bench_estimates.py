"""What decisions gain by each estimate of quality, on all tables at hand.

Gain: realised quality on test rows over the best random mix of choices that spends the same
(picked with the test rows in hand), mean of five budgets between the cheapest choice and the best
one, in points. Each budget is spent as routers spend it: at its price for the estimates of the test
rows, where rows that are tied at the price are mixed. 5 folds or the given split, fixed seeds;
everything is fitted and chosen on training rows.
Of tables with more than 12,500 rows so many are drawn first: 10,000 train.

    python benchmarks/bench_estimates.py [--short] [--part NAME] [--tables WORD] [--fold I]
                                         [--rows N] [--merge] [--list]

It runs in pieces, each in a process of its own if asked for: parts (`tables`, `speed`, `searches`,
`made_up`, `texts`), and single tables and folds of them. ``--list`` prints the commands of
all pieces, the longest first, and ``--merge`` makes one result of the pieces that are there, and
says how many; pieces in ``benchmarks/.cache`` are of the code as it is, those of other code are not
read. ``--rows`` draws at most so many training rows and one and a half times as many test rows.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import pickle
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _estimate_tables import LOGS, Fold, cached_file, load, n_splits, write_whole
from _harness import KEPT, RESULTS, alternate, claim, save, table
from _sentences import sentence_vectors
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import skroute.quality
from skroute.quality import BaggedNeighborsRegressor, FrameEncoder, QualityRegressor
from skroute.quality._corrections import corrected, finished, rounding_unit
from skroute.quality._family import MEMBERS, MOST_SEARCHED, NEIGHBORS, searching
from skroute.quality._floors import floors_of_folds, lift
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

# Another number for other evidence.
EVIDENCE = 2
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
    new_before : ndarray of shape (n_test, n_choices)
        The same of the default until now.
    """

    names: list
    estimates: np.ndarray
    new: np.ndarray
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
    new_before = bagged_neighbors().fit(fold.X, quality).predict(fold.X_test)
    return Evidence(names, estimates, found, new_before)


def gains(fold, seen):
    """Gain of each test row over the random mix, for the default and each of the others.

    Returns
    -------
    gain : dict from str to ndarray of shape (n_test,)
    estimate : ndarray of shape (n_test, n_choices)
        Of the default.
    """
    quality, mean = fold.quality, fold.quality.mean(axis=0)
    budgets = judged_budgets(quality, fold.costs)

    def gain(new):
        return gain_over_mix(new, fold.quality_test, fold.costs, budgets)

    means, tests = np.empty(quality.shape), []
    for train, test in inner_folds(fold):
        means[test] = quality[train].mean(axis=0)
        tests.append(test)
    estimates, members = seen.estimates.astype(float), seen.new.astype(float)
    total = moments(estimates, quality - means)
    found = {BEFORE: gain(seen.new_before)}
    for i, name in enumerate(seen.names):
        # A member alone: shrunk to the means by least squares, nothing else.
        found[name] = gain(mean + weigh(members[[i]], picked(total, i)))
    new = default_estimates(fold, seen, means, tests)
    return found | {DEFAULT: gain(new)}, new


def default_estimates(fold, seen, means, tests):
    """What `QualityRegressor` makes of the members, of test rows.

    :func:`agrees` compares it with the estimator itself.
    """
    quality, costs = fold.quality, fold.costs
    heavy = [name for name in seen.names if name in NEIGHBORS]
    estimates = seen.estimates.astype(float)
    choice = choose_weights(seen.names, estimates, quality - means, quality, tests, costs, heavy)
    new, seen_range = quality.mean(axis=0), (quality.min(axis=0), quality.max(axis=0))
    new = new + weigh(seen.new.astype(float), choice.weights)
    if choice.knots is not None:
        new = corrected(new, choice.knots)
    unit = rounding_unit(*seen_range)
    step = unit if any(weights.any() for weights in choice.weights) else None
    floors, _ = floors_of_folds(choice.estimate, quality, costs, tests, step, seen_range)
    return lift(finished(new, *seen_range), floors, unit, seen_range)


def agrees(fold, estimate):
    """How far the estimator itself is from what was made of the evidence."""
    model = QualityRegressor()
    model.cross_fit(fold.X, fold.quality, folds=inner_folds(fold), costs=fold.costs)
    return float(np.abs(model.predict(fold.X_test) - estimate).max())


def picked(found, i):
    """The weights of one member, without the others."""
    return Weights(*(weights[[i]] for weights in single_weights(found, i)))


QUALITY = Path(skroute.quality.__file__).parent
TABLES = Path(__file__).with_name("_estimate_tables.py")
# What members estimate does not depend on these.
_AFTER_MEMBERS = ("_corrections", "_floors", "_logged", "_stacking", "_torch", "_uncertainty")


def evidence_file(name, i, rows):
    files = [file for file in QUALITY.glob("_*.py") if file.stem not in _AFTER_MEMBERS]
    return cached_file(
        "evidence", EVIDENCE, name, i, rows or "all", files=[*files, TABLES], suffix=".pkl"
    )


def piece_file(part, name, i, rows):
    files = [*QUALITY.glob("_*.py"), TABLES, Path(__file__)]
    return cached_file("piece", part, name, i, rows or "all", files=files, suffix=".pkl")


def drawn(fold, rows):
    """At most so many training rows, and one and a half times as many test rows."""
    if not rows:
        return fold
    train = np.random.RandomState(1).permutation(len(fold.X))[:rows]
    test = np.random.RandomState(2).permutation(len(fold.X_test))[: 3 * rows // 2]
    return Fold(
        fold.X[train], fold.quality[train], fold.X_test[test], fold.quality_test[test], fold.costs
    )


def one_fold(name, i, rows):
    """Gains of one fold, estimates of the default, and outcomes.

    Members are fitted only where no evidence of the same code is there.
    """
    fold, path = drawn(load(name, i), rows), evidence_file(name, i, rows)
    if not path.exists():
        write_whole(path, pickle.dumps(tuple(collected(fold))))
    gain, estimate = gains(fold, Evidence(*pickle.loads(path.read_bytes())))
    return {
        "rows": len(fold.X),
        "choices": len(fold.costs),
        "gain": {who: values.astype(np.float32) for who, values in gain.items()},
        "estimate": estimate,
        "quality": fold.quality_test,
    }


def calibrated_share(parts):
    """Share of ten bins per choice in which outcomes agree with the estimates.

    Bins are cut in each fold, which has a model of its own, and the folds' bins of one place are
    one. Equal estimates are cut at random: rows of a log may stand in the order of their outcomes.
    Estimates that were lifted by a hair above the best outcome (floors) count as that outcome:
    a bin of outcomes that are all alike has no spread that forgives a hair.

    Parameters
    ----------
    parts : list of (ndarray of shape (n_test, n_choices), ndarray of the same shape)
        Estimates and outcomes of the test rows of each fold.
    """
    rng, agree = np.random.default_rng(0), []
    every = np.concatenate([quality for _, quality in parts])
    parts = [(np.clip(e, every.min(axis=0), every.max(axis=0)), q) for e, q in parts]
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


def all_tables(folds):
    """Entries of all tables, from the pieces of their folds."""
    payload = {}
    for name, parts in folds.items():
        payload[name] = {**table_entry(parts), "folds": len(parts), "of_folds": n_splits(name)}
    print_tables(payload)
    return payload


def print_tables(payload):
    rows, everyone = [], [BEFORE, *KNOWN, DEFAULT]
    for name, entry in payload.items():
        # Neighbours are not searched among too many rows.
        cells = [f"{entry['gain'].get(who, np.nan):.2f}" for who in everyone]
        ends = (
            f"{entry['se'][DEFAULT]:.2f}",
            f"{entry['behind_unseen']:.2f}",
            f"{entry['calibrated']:.2f}",
        )
        folds = f"{entry['folds']} of {entry['of_folds']}"
        rows.append([name, folds, entry["rows"], *cells, *ends])
    means = [
        np.nanmean([entry["gain"].get(who, np.nan) for entry in payload.values()])
        for who in everyone
    ]
    rows.append(["mean", "", "", *(f"{value:.2f}" for value in means), "", "", ""])
    ends = "its se", "behind the member other rows pick", "calibrated bins"
    header = ["table", "folds", "train rows", *everyone, *ends]
    table("Gain over the best random mix at equal spend, points", header, rows)


def behind_unseen(gain, draws=100):
    """How far the default is behind the member that other rows pick, in points.

    The best of ten members picked on the rows that judge it is ahead by luck alone. Here one
    half of the test rows picks, the other half judges; mean over halves that are drawn.

    Parameters
    ----------
    gain : dict from str to ndarray of shape (n_test,)
    draws : int, default=100
    """
    lead = np.stack([gain[name] - gain[DEFAULT] for name in KNOWN if name in gain])
    rng, behind = np.random.default_rng(0), []
    for _ in range(draws):
        halves = np.array_split(rng.permutation(lead.shape[1]), 2)
        for picks, judges in (halves, halves[::-1]):
            best = lead[:, picks].mean(axis=1).argmax()
            behind.append(lead[best, judges].mean())
    return 100 * float(np.mean(behind))


def table_entry(parts):
    gain = {who: np.concatenate([part["gain"][who] for part in parts]) for who in parts[0]["gain"]}
    return {
        "rows": parts[0]["rows"],
        "choices": parts[0]["choices"],
        "gain": {who: 100 * float(values.mean()) for who, values in gain.items()},
        "se": {
            who: 100 * float(values.std(ddof=1) / np.sqrt(len(values)))
            for who, values in gain.items()
        },
        "behind_unseen": behind_unseen(gain),
        "calibrated": calibrated_share([(part["estimate"], part["quality"]) for part in parts]),
    }


def sizes_and_seconds(short):
    """Fit, one row, many rows and the saved file at 10,000 rows, 9 choices, 100 features."""
    n = 500 if short else 10_000
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 100))
    logits = X @ rng.standard_normal((100, 9)) / 10 + np.sin(3 * X[:, :9])
    Q = (rng.random((n, 9)) < 1 / (1 + np.exp(-logits))).astype(float)
    QualityRegressor().fit(X[:100], Q[:100])
    start, cpu = time.perf_counter(), time.process_time()
    model = QualityRegressor(n_jobs=2).fit(X, Q)
    fit, fit_cpu = time.perf_counter() - start, time.process_time() - cpu
    one, many = X[:1], X[: n // 5]
    seconds = {"one": [], "many": [], "many_cpu": []}
    for _ in range(50 if short else 1000):
        start = time.perf_counter()
        model.predict(one)
        seconds["one"].append(time.perf_counter() - start)
    for _ in range(3 if short else 100):
        start, cpu = time.perf_counter(), time.thread_time()
        model.predict(many)
        seconds["many"].append(time.perf_counter() - start)
        seconds["many_cpu"].append(time.thread_time() - cpu)
    found = {
        "fit": fit,
        "fit_cpu": fit_cpu,
        # Minima: the machine may be shared.
        "one": min(seconds["one"]) * 1e6,
        "many": min(seconds["many"]) / len(many) * 1e6,
        # Of a machine that others load the clock says little: a call takes longer than a turn.
        "many_cpu": min(seconds["many_cpu"]) / len(many) * 1e6,
        "megabytes": len(pickle.dumps(model)) / 1e6,
    }
    show_speed(found, n)
    return found


def show_speed(found, n):
    header = {
        "fit": "fit, s",
        "fit_cpu": "of one core, s",
        "one": "one row, us",
        "many": "many rows, us each",
        "many_cpu": "of one core, us each",
        "megabytes": "saved, MB",
    }
    known = {words: found[key] for key, words in header.items() if key in found}
    title = f"The default at {n} rows, 9 choices, 100 features"
    table(title, list(known), [list(known.values())])


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
    show_searches(dict(rows), n)
    return dict(rows)


def show_searches(found, n):
    header = ["metric", "ratio"]
    table(f"Search of 60 nearest of {n}: times scikit-learn's", header, list(found.items()))


def made_up(seed, n):
    """How often 90 % intervals hold the true quality, on a made-up table that is known."""
    rng = np.random.default_rng(seed)
    X, X_test = rng.standard_normal((n, 6)), rng.standard_normal((2000, 6))
    W = rng.standard_normal((6, 4)) / 2

    def truth(X):
        return 1 / (1 + np.exp(-X @ W - np.sin(2 * X[:, :4])))

    Q = (rng.random((n, 4)) < truth(X)).astype(float)
    mean, std = QualityRegressor().fit(X, Q).predict(X_test, return_std=True)
    return float((np.abs(mean - truth(X_test)) <= 1.645 * std).mean())


def made_up_fold():
    """A small table for the short run, which needs no file."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5))
    Q = (rng.random((500, 3)) < 1 / (1 + np.exp(-X[:, :3] - [0, 0.5, 1]))).astype(float)
    return Fold(X[:250], Q[:250], X[250:], Q[250:], np.array([1.0, 2.0, 4.0]))


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
    unseen = {name: entry["behind_unseen"] for name, entry in payload.items()}
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
        *(
            claim(
                key,
                f"furthest behind {whom}: {max(lost_by, key=lost_by.get)}",
                max(lost_by.values()),
                better="lower",
                bar=0.3,
                why="the best of ten on the rows that judge it is ahead by luck, too",
                **points,
            )
            for key, whom, lost_by in (
                ("behind", "the best member of the family (picked on test rows)", behind),
                (
                    "behind-unseen",
                    "the member that one half of the test rows picks, on the other",
                    unseen,
                ),
            )
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


def texts(name, n_train=2000, n_test=1000):
    """What prompts gain read by words and by a sentence model, and the time of each.

    Of the first split, so many rows drawn.
    """
    log, found = LOGS[name](), {}
    train, test = (np.random.RandomState(0).permutation(rows) for rows in log.splits[0])
    train, test, Q = train[:n_train], test[:n_test], log.quality
    sentence_vectors(["Is it installed?"])
    for how, text in (("words", "hashing"), ("sentences", sentence_vectors)):
        encoder, model = FrameEncoder(text=text), QualityRegressor()
        start = time.process_time()
        X = encoder.fit_transform(log.rows[train])
        fit, start = time.process_time() - start, time.process_time()
        X_test = encoder.transform(log.rows[test])
        new_rows = time.process_time() - start
        model.cross_fit(X, Q[train], costs=log.costs)
        budgets = judged_budgets(Q[train], log.costs)
        gain = gain_over_mix(model.predict(X_test), Q[test], log.costs, budgets)
        found[how] = {
            "gain": 100 * float(gain.mean()),
            "se": 100 * float(gain.std(ddof=1) / np.sqrt(len(gain))),
            "fit_ms": 1e3 * fit / len(X),
            "row_ms": 1e3 * new_rows / len(X_test),
        }
    return found


def show_texts(found):
    header = ["table, texts by", "gain, points", "its se", "fit, ms a row", "ms a new row"]
    lines = [
        [f"{name}, {how}", *entry.values()]
        for name, of_table in found.items()
        for how, entry in of_table.items()
    ]
    table("Texts by words and by a sentence model", header, lines)


# Processor seconds of a fold at full size, about; of the others a few.
SECONDS = {"CARROT": 200, "MMLU": 60, "FrugalML: COMMAND": 45, "LLMRouter": 40}
MADE_UP = 12
TEXTS = "LLMRouter", "MMLU", "cascades: MMLU"


PARTS = "tables", "made_up", "speed", "searches", "texts"


class Piece(NamedTuple):
    """What one process computes.

    Attributes
    ----------
    part : str
        Of `PARTS`.
    name : str
        A table; for `made_up` the number of rows.
    fold : int
        For `made_up` the seed.
    """

    part: str
    name: str
    fold: int

    def compute(self, rows):
        if self.part == "tables":
            return one_fold(self.name, self.fold, rows)
        if self.part == "made_up":
            return made_up(self.fold, int(self.name))
        if self.part == "texts":
            return texts(self.name)
        return sizes_and_seconds(False) if self.part == "speed" else searches(False)

    def seconds(self):
        small = {"tables": 25, "made_up": 20, "speed": 120, "searches": 15, "texts": 60}[self.part]
        return SECONDS.get(self.name, small) if self.part == "tables" else small

    def command(self):
        name = f' --tables "{self.name}"' if self.name else ""
        return f"python benchmarks/bench_estimates.py --part {self.part}{name} --fold {self.fold}"


def pieces():
    found = [Piece("speed", "", 0), Piece("searches", "", 0)]
    found += [Piece("texts", name, 0) for name in TEXTS]
    found += [Piece("tables", name, i) for name in LOGS for i in range(n_splits(name))]
    # Every second table has more rows.
    return found + [Piece("made_up", ("1000", "3000")[i % 2], i) for i in range(MADE_UP)]


def short_result():
    fold = made_up_fold()
    gain, estimate = gains(fold, collected(fold))
    # The trees that are kept are in half precision.
    assert agrees(fold, estimate) < 2e-3
    part = {"gain": gain, "estimate": estimate, "quality": fold.quality_test}
    entry = table_entry([{"rows": len(fold.X), "choices": len(fold.costs), **part}])
    payload = {"made up": {**entry, "folds": 1, "of_folds": 1}}
    print_tables(payload)
    return {
        "tables": payload,
        "speed": sizes_and_seconds(True),
        "searches": searches(True),
        "made_up": [made_up(0, 500)],
    }


def merged(rows):
    """The result of the pieces that are there; None, with a word, where a part is not."""
    found = {}
    for piece in pieces():
        path = piece_file(*piece, rows)
        if path.exists():
            found[piece] = pickle.loads(path.read_bytes())
        else:
            print("missing:", piece.command())

    def of(part):
        return {piece: value for piece, value in found.items() if piece.part == part}

    folds = {}
    for piece, value in of("tables").items():
        folds.setdefault(piece.name, []).append(value)
    names = "speed", "searches", "made_up"
    if len(folds) < len(LOGS) or not all(of(name) for name in names):
        if folds:
            all_tables(folds)
        print("No result is written: a table or a part has no piece.")
        return None
    result = {
        "tables": all_tables(folds),
        "speed": next(iter(of("speed").values())),
        "searches": next(iter(of("searches").values())),
        "made_up": list(of("made_up").values()),
        "texts": {piece.name: value for piece, value in of("texts").items()},
        "most_rows": rows,
    }
    show_texts(result["texts"])
    show_speed(result["speed"], 10_000)
    show_searches(result["searches"], 10_000)
    lines = [[piece.fold, piece.name, value] for piece, value in of("made_up").items()]
    table("90 % intervals hold the true quality", ["table", "rows", "share of rows"], lines)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a made-up table, in seconds")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--tables", default="", help="this table, or all that have the word")
    parser.add_argument("--fold", type=int, help="only this fold, or made-up table")
    parser.add_argument("--rows", type=int, default=0, help="training rows at most; 0: all")
    parser.add_argument("--merge", action="store_true", help="of pieces that are there")
    parser.add_argument("--list", action="store_true", help="commands of the pieces")
    options = parser.parse_args()
    some = pieces()
    if options.list:
        more = f" --rows {options.rows}" if options.rows else ""
        for piece in sorted(some, key=Piece.seconds, reverse=True):
            print(piece.command() + more)
        return
    if options.short:
        result = short_result()
        title = "Quality estimates: what decisions gain"
        save("estimates", result, title=title, claims=claims(result), write=False)
        return
    if not options.merge:
        exact = any(piece.name == options.tables for piece in some)
        for piece in some:
            if options.part not in (None, piece.part) or options.fold not in (None, piece.fold):
                continue
            name = piece.name
            if options.tables and (name != options.tables if exact else options.tables not in name):
                continue
            path = piece_file(*piece, options.rows)
            if not path.exists():
                start = time.process_time()
                try:
                    found = piece.compute(options.rows)
                except ImportError as error:
                    print(f"{piece} is left out: {error}.")
                    continue
                write_whole(path, pickle.dumps(found))
                print(f"{piece}: {time.process_time() - start:.0f} s", flush=True)
    whole = not (options.part or options.tables or options.fold is not None)
    if options.merge or whole:
        result = merged(options.rows)
        if result is None:
            sys.exit(1)
        title = "Quality estimates: what decisions gain"
        save("estimates", result, title=title, claims=claims(result))
        if RESULTS == KEPT:
            GUIDE.write_text(guide_table(result["tables"]))


if __name__ == "__main__":
    main()
