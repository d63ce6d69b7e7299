"""Buying labels: FrugalML, FrugalMCT and Sequential on logs of commercial APIs.

For each set: at which share of the best single API's price its accuracy is matched, and
the accuracy at that price. The authors' split (seeds 1, 5, 10, 50, 100; half trains, half
tests); everything is chosen on training rows. Run with ``--short`` for two small sets, or
``--sets FERPLUS,EXPW`` for some.
"""

import argparse
import sys
import time
import warnings
from typing import NamedTuple

import numpy as np
from _common import record, standard_error, table
from joblib import Parallel, delayed

from skroute.datasets import fetch_frugalmct, fetch_frugalml, frugal_split
from skroute.members import RecordedClassifier
from skroute.routing import (
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)

SEEDS = (1, 5, 10, 50, 100)
# Saving at matched accuracy that the best of the three is asked to reach.
BARS = {
    "AUDIOMNIST": 0.85,
    "FERPLUS": 0.58,
    "COMMAND": 0.50,
    "WAIMAI": 0.45,
    "EXPW": 0.35,
    "DIGIT": 0.25,
    "YELP": 0.15,
    "IMDB": 0.05,
}
GAIN_BARS = {"FERPLUS": 2.0, "PASCAL": 2.0}
METHODS = ("FrugalML", "FrugalMCT", "Sequential")
# The cheapest service alone comes first: a method that spends less than the others do at their
# smallest budget is compared with them between the two.
SHARES = np.r_[0.0, 0.01, 0.04, np.arange(0.08, 0.73, 0.08), 0.85, 1.0]


def load(name):
    """Services by name, target, costs and accuracy of each service on each row."""
    if name == "PASCAL":
        data = fetch_frugalmct(name)
        scores = data.scores.astype(np.float64)
        at = np.asarray(data.scores_columns)
        names = [data.model_names[k] for k in at]
        logs = [
            RecordedClassifier((scores[:, k] > 0).astype(int), scores=scores[:, k])
            for k in range(len(at))
        ]
        costs, quality = data.costs[at], data.quality[:, at].astype(np.float64)
        target = data.target.astype(np.int64)
    else:
        data = fetch_frugalml(name)
        n_labels = 1 + max(int(data.predictions.max()), int(data.target.max()))
        logs = [
            # A score of 0 still names the label.
            RecordedClassifier(labels, scores=scores, classes=range(n_labels))
            for labels, scores in zip(data.predictions.T, data.scores.T)
        ]
        names, costs, quality = data.model_names, data.costs, data.quality.astype(np.float64)
        target = data.target.astype(np.int64)
    return list(zip(names, logs)), target, dict(zip(names, map(float, costs))), quality


def routers(name, services, costs, budget):
    """The contenders; FrugalML is for one label per row."""
    made = {
        "FrugalMCT": FrugalMCTClassifier(services, costs=costs, budget=budget),
        "Sequential": SequentialRouterClassifier(services, costs=costs, budget=budget),
    }
    if name != "PASCAL":
        made["FrugalML"] = FrugalMLClassifier(services, costs=costs, budget=budget)
    return made


def voted(services, rows, target, new):
    """Answers of the majority, and of the mean score weighted by accuracy on the training rows."""
    several = target.ndim == 2
    labels = np.unique(np.concatenate([service.classes_ for service in services]))
    said = [[service.fit(rows).predict(of) for of in (rows, new)] for service in services]
    scored = [[service.predict_scores(of) for of in (rows, new)] for service in services]
    right = [row_accuracy(target, one).mean() for one, _ in said]
    weights = np.maximum(right, 1e-12) / np.sum(right)
    mixed = [sum(w * part[k] for w, part in zip(weights, scored)) for k in (0, 1)]
    if not several:
        counts = sum((one[:, np.newaxis] == labels).astype(float) for _, one in said)
        return labels[counts.argmax(axis=1)], services[0].classes_[mixed[1].argmax(axis=1)]
    # The weighted mean has a threshold of its own.
    cut = max(
        np.linspace(0, 1, 11),
        key=lambda cut: row_accuracy(target, (mixed[0] > cut).astype(int)).mean(),
    )
    majority = np.mean([one for _, one in said], axis=0) >= 0.5 - 1e-9
    return majority.astype(int), (mixed[1] > cut).astype(int)


class Split(NamedTuple):
    """One split of a set: the best service, and each method's curve and seconds of fit.

    A curve is the accuracy of each test row at each budget, and the mean cost there.
    """

    single: tuple[float, float]
    curves: dict[str, tuple[list[list[float]], list[float]]]
    votes: list[float]
    seconds: dict[str, float]


def one_split(name, seed):
    """Test accuracy and test cost at each budget, in a process of its own."""
    warnings.simplefilter("ignore")
    services, target, costs, quality = load(name)
    prices = np.array(list(costs.values()))
    train, test = frugal_split(len(target), seed)
    best = int(quality[train].mean(axis=0).argmax())
    rows, new = train[:, np.newaxis], test[:, np.newaxis]

    def curve(router):
        accuracy, cost = [], []
        for share in SHARES:
            budget = max(share * prices[best], prices.min())
            y_pred, _, spent = router.predict_routed(new, budget=budget)
            accuracy.append(np.round(row_accuracy(target[test], y_pred), 6).tolist())
            cost.append(float(spent.mean()))
        return accuracy, cost

    found, seconds = {}, {}
    for method, router in routers(name, services, costs, float(prices[best])).items():
        start = time.perf_counter()
        router.fit(rows, target[train])
        seconds[method] = time.perf_counter() - start
        found[method] = curve(router)
    votes = [
        row_accuracy(target[test], answers).mean()
        for answers in voted([service for _, service in services], rows, target[train], new)
    ]
    return Split((prices[best], quality[test, best].mean()), found, votes, seconds)


def curves(name, splits):
    """For each method a curve of each split, arrays (n_budgets, n_test) and (n_budgets,)."""
    methods = [method for method in METHODS if method in splits[0].curves]
    found = {m: [tuple(map(np.array, split.curves[m])) for split in splits] for m in methods}
    seconds = {m: [s.seconds[m] for s in splits] if m in methods else [] for m in METHODS}
    single = np.array([split.single for split in splits])
    votes = np.array([split.votes for split in splits])
    return single, found, votes, seconds, float(sum(load(name)[2].values()))


def worst_margin(curve, other, tested):
    """Points of accuracy over another curve at the cost that the first really had.

    The smallest over all budgets, one standard error allowed: of splits, and of rows that several
    splits test. Between two budgets of the other curve its rows are mixed.
    A curve has the accuracy of each row and the mean cost, for each split.
    """
    margins = []
    for b in range(len(SHARES)):
        gaps = []
        for (rows, cost), (peer, price) in zip(curve, other):
            at = np.interp(cost[b], price, np.arange(len(price)))
            low = min(int(at), len(price) - 2)
            gaps.append(rows[b] - (1 - at + low) * peer[low] - (at - low) * peer[low + 1])
        mean = np.mean([gap.mean() for gap in gaps])
        margins.append(100 * float(mean + standard_error(gaps, tested)))
    return min(margins)


def tests_of(name, seeds):
    """Test rows of each split."""
    n_rows = len(load(name)[1])
    return [frugal_split(n_rows, seed)[1] for seed in seeds]


def row_accuracy(y_true, y_pred):
    if y_true.ndim == 1:
        return (y_true == y_pred).astype(np.float64)
    common = (y_true & y_pred).sum(axis=1)
    either = (y_true | y_pred).sum(axis=1)
    return np.where(either == 0, 1.0, common / np.maximum(either, 1))


def matched_cost(accuracy, cost, level):
    """Smallest mean cost on the curve at which the accuracy is reached, between points too."""
    order = np.argsort(cost)
    accuracy, cost = accuracy[order], cost[order]
    reached = np.flatnonzero(accuracy >= level)
    if len(reached) == 0:
        return np.nan
    i = reached[0]
    if i == 0:
        return cost[0]
    share = (level - accuracy[i - 1]) / (accuracy[i] - accuracy[i - 1])
    return cost[i - 1] + share * (cost[i] - cost[i - 1])


def bench_sets(names, seeds):
    """The rows of the table."""
    rows = []
    for name in names:
        start = time.perf_counter()
        splits = Parallel(n_jobs=2)(delayed(one_split)(name, seed) for seed in seeds)
        single, found, votes, seconds, price_of_all = curves(name, splits)
        level, price = single[:, 1].mean(), single[:, 0].mean()
        saving, gain, spent = {}, {}, {}
        for method, splits_of in found.items():
            accuracy = np.array([rows_of.mean(axis=1) for rows_of, _ in splits_of])
            cost = np.array([cost for _, cost in splits_of])
            saving[method] = 1 - matched_cost(accuracy.mean(0), cost.mean(0), level) / price
            gain[method] = 100 * (accuracy[:, -1] - single[:, 1]).mean()
            spent[method] = cost[:, -1].mean() / price
        tested = tests_of(name, seeds)
        others = [curve for method, curve in found.items() if method != "Sequential"]
        worst = min(worst_margin(found["Sequential"], other, tested) for other in others)
        rows.append(
            [
                name,
                f"{price:g}",
                f"{100 * level:.2f}",
                *(f"{100 * saving[m]:.0f} %" if m in saving else "-" for m in METHODS),
                f"{100 * BARS[name]:.0f} %" if name in BARS else ">0 %",
                *(f"{gain[m]:+.2f} ({spent[m]:.2f})" if m in gain else "-" for m in METHODS),
                f"{GAIN_BARS.get(name, 0):+.0f}",
                f"{worst:+.2f}",
                *(f"{100 * (v - level):+.2f}" for v in votes.mean(axis=0)),
                f"{price_of_all / price:.1f}",
                "/".join(f"{np.median(seconds[m]):.1f}" for m in METHODS if seconds[m]),
            ]
        )
        print(f"{name}: {time.perf_counter() - start:.0f} s", rows[-1], file=sys.stderr, flush=True)
    return rows


def show(rows, seeds):
    """The table of the sets."""
    table(
        f"Buying labels, means over seeds {seeds}: saving at the best API's accuracy; points "
        "gained at its price (share of it spent)",
        [
            "set",
            "price",
            "best",
            *(f"save {m}" for m in METHODS),
            "bar",
            *(f"gain {m}" for m in METHODS),
            "bar",
            "seq-other+se",
            "vote",
            "w. vote",
            "at price",
            "fit s",
        ],
        rows,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--sets", default=",".join([*BARS, "PASCAL"]))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ["DIGIT"] if arguments.short else arguments.sets.split(",")
    seeds = SEEDS[: 2 if arguments.short else arguments.seeds]
    show(bench_sets(names, seeds), seeds)
    if names == [*BARS, "PASCAL"] and len(seeds) == len(SEEDS):
        record("frugal")


if __name__ == "__main__":
    main()
