"""Buying labels: FrugalML, FrugalMCT and Sequential on logs of commercial APIs.

For each set: at which share of the best single API's price its accuracy is matched, and
the accuracy at that price. The authors' split (seeds 1, 5, 10, 50, 100; half trains,
half tests); everything is chosen on training rows. Run with ``--short`` for one small
set, or ``--sets FERPLUS,EXPW`` for some.
"""

import argparse
import sys
import time
import warnings

import numpy as np
from _common import record, standard_error, table

from skroute.datasets import fetch_frugalmct, fetch_frugalml, frugal_split
from skroute.members import RecordedClassifier
from skroute.routing import (
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)

SEEDS = (1, 5, 10, 50, 100)
SETS = (
    "AUDIOMNIST",
    "FERPLUS",
    "COMMAND",
    "WAIMAI",
    "EXPW",
    "DIGIT",
    "YELP",
    "IMDB",
    "PASCAL",
)
METHODS = ("FrugalML", "FrugalMCT", "Sequential")
# The cheapest service alone comes first: a method that spends less than the others do
# at their smallest budget is compared with them between the two.
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
        names, costs, quality = (
            data.model_names,
            data.costs,
            data.quality.astype(np.float64),
        )
        target = data.target.astype(np.int64)
    return list(zip(names, logs)), target, dict(zip(names, map(float, costs))), quality


def voted(services, rows, target, new):
    """Answers of the majority, and of the mean score weighted by accuracy on the training rows."""
    several = target.ndim == 2
    labels = np.unique(np.concatenate([service.classes_ for service in services]))
    said = [
        [service.fit(rows).predict(of) for of in (rows, new)] for service in services
    ]
    scored = [
        [service.predict_scores(of) for of in (rows, new)] for service in services
    ]
    right = [row_accuracy(target, one).mean() for one, _ in said]
    weights = np.maximum(right, 1e-12) / np.sum(right)
    mixed = [sum(w * part[k] for w, part in zip(weights, scored)) for k in (0, 1)]
    if not several:
        counts = sum((one[:, np.newaxis] == labels).astype(float) for _, one in said)
        return labels[counts.argmax(axis=1)], services[0].classes_[
            mixed[1].argmax(axis=1)
        ]
    # The weighted mean has a threshold of its own.
    cut = max(
        np.linspace(0, 1, 11),
        key=lambda cut: row_accuracy(target, (mixed[0] > cut).astype(int)).mean(),
    )
    majority = np.mean([one for _, one in said], axis=0) >= 0.5 - 1e-9
    return majority.astype(int), (mixed[1] > cut).astype(int)


def one_split(name, seed):
    """What is measured on the test rows of a split.

    A method's curve is the accuracy of each test row at each budget, and the mean cost
    there.
    """
    services, target, costs, quality = load(name)
    prices = np.array(list(costs.values()))
    train, test = frugal_split(len(target), seed)
    best = int(quality[train].mean(axis=0).argmax())
    rows, new, price = train[:, np.newaxis], test[:, np.newaxis], float(prices[best])
    curves, seconds = {}, {}
    kinds = FrugalMLClassifier, FrugalMCTClassifier, SequentialRouterClassifier
    for method, kind in zip(METHODS, kinds):
        if kind is FrugalMLClassifier and target.ndim == 2:
            # It is for one label per row.
            continue
        router, start = kind(services, costs=costs, budget=price), time.perf_counter()
        router.fit(rows, target[train])
        seconds[method] = time.perf_counter() - start
        routed = [
            router.predict_routed(new, budget=max(s * price, prices.min()))
            for s in SHARES
        ]
        right = np.array([row_accuracy(target[test], one.y_pred) for one in routed])
        curves[method] = right, np.array([one.cost.mean() for one in routed])
    answers = voted([service for _, service in services], rows, target[train], new)
    return {
        "tested": test,
        "price": price,
        "of all": prices.sum() / price,
        "level": quality[test, best].mean(),
        "curves": curves,
        "votes": [row_accuracy(target[test], one).mean() for one in answers],
        "seconds": seconds,
    }


def worst_margin(curve, other, tested):
    """Points of accuracy over another curve at the cost that the first really had.

    The smallest over all budgets, one standard error allowed: of splits, and of rows
    that several splits test. Between two budgets of the other curve its rows are mixed.
    A curve has the accuracy of each row and the mean cost, for each split.
    """
    margins = []
    for b in range(len(SHARES)):
        gaps = []
        for (rows, cost), (peer, price) in zip(curve, other):
            at = np.interp(cost[b], price, np.arange(len(price)))
            low = min(int(at), len(price) - 2)
            gaps.append(
                rows[b] - (1 - at + low) * peer[low] - (at - low) * peer[low + 1]
            )
        mean = np.mean([gap.mean() for gap in gaps])
        margins.append(100 * float(mean + standard_error(gaps, tested)))
    return min(margins)


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


def row_of(name, seeds):
    """A row of the table."""
    start = time.perf_counter()
    splits = [one_split(name, seed) for seed in seeds]
    price, level = (np.mean([one[key] for one in splits]) for key in ("price", "level"))
    curves = {
        m: [one["curves"][m] for one in splits]
        for m in METHODS
        if m in splits[0]["curves"]
    }
    saved, gained = dict.fromkeys(METHODS, "-"), dict.fromkeys(METHODS, "-")
    for method, curve in curves.items():
        accuracy, cost = (
            np.array(part) for part in zip(*((r.mean(axis=1), c) for r, c in curve))
        )
        saving = (
            1 - matched_cost(accuracy.mean(axis=0), cost.mean(axis=0), level) / price
        )
        each = [
            1 - matched_cost(a, c, one["level"]) / one["price"]
            for a, c, one in zip(accuracy, cost, splits)
        ]
        error = np.std(each, ddof=1) / np.sqrt(len(each))
        saved[method] = f"{100 * saving:.0f} % ({100 * error:.1f})"
        gain = 100 * (accuracy[:, -1] - [one["level"] for one in splits])
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        gained[method] = (
            f"{gain.mean():+.2f} ({error:.2f}; {cost[:, -1].mean() / price:.2f})"
        )
    tested = [one["tested"] for one in splits]
    others = [curve for method, curve in curves.items() if method != "Sequential"]
    worst = min(worst_margin(curves["Sequential"], other, tested) for other in others)
    votes = 100 * (np.mean([one["votes"] for one in splits], axis=0) - level)
    seconds = [np.median([one["seconds"][m] for one in splits]) for m in curves]
    row = [name, f"{price:g}", f"{100 * level:.2f}", *saved.values(), *gained.values()]
    row += [
        f"{worst:+.2f}",
        *(f"{vote:+.2f}" for vote in votes),
        f"{splits[0]['of all']:.1f}",
    ]
    row.append("/".join(f"{second:.1f}" for second in seconds))
    print(
        f"{name}: {time.perf_counter() - start:.0f} s", row, file=sys.stderr, flush=True
    )
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--sets", default=",".join(SETS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ["DIGIT"] if arguments.short else arguments.sets.split(",")
    seeds = SEEDS[: 2 if arguments.short else len(SEEDS)]
    header = ["set", "price", "best", *(f"save {m}" for m in METHODS)]
    header += [
        *(f"gain {m}" for m in METHODS),
        "seq-other+se",
        "vote",
        "w. vote",
        "at price",
    ]
    table(
        f"Buying labels, means over seeds {seeds}: saving at the best API's accuracy "
        "(standard error); points gained at its price (standard error; share of it "
        "spent)",
        [*header, "fit s"],
        [row_of(name, seeds) for name in names],
    )
    if names == list(SETS):
        record("frugal")


if __name__ == "__main__":
    main()
