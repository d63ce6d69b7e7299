"""Cascades of language models: area of error over cost.

Logs of nine models on MMLU and TriviaQA (../shared/data/cascades): everything is fitted and
chosen on the 285 and 300 training rows, and measured on the test rows as `published.json` says:
the mean cost of a model on the test rows is what each of its calls costs, points are joined by
straight lines, and 1 - accuracy is averaged over the published range of costs. Beside each
number: the published ones, and the models alone mixed at random.

Other sets of the same kind are run by ``--data FOLDER`` (``NAME.npz`` with the same arrays;
without `published.json` the range is from the cheapest model to the end of the fixed chain).

    python benchmarks/bench_cascades.py [--short] [--data FOLDER] [--sets mmlu,triviaqa]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import record, table

from skroute.routing import CascadeRouter
from skroute.routing._mixtures import best_mixture

# Area of error over cost that the project asks of itself, and the seconds of a chain's fit.
BARS = {
    "mmlu": {"chain": 0.2375, "five": 0.217, "nine": 0.195},
    "triviaqa": {"chain": 0.1050, "five": 0.083, "nine": 0.061},
}


class Set(NamedTuple):
    """A log: quality, cost in dollars per million queries and confidence of each model."""

    name: str
    models: list[str]
    chain: np.ndarray
    quality: np.ndarray
    costs: np.ndarray
    signals: np.ndarray
    is_test: np.ndarray
    published: dict

    def rows(self, test, models):
        """Quality, costs and signals of the training or the test rows."""
        at = self.is_test == test
        costs = self.costs[at][:, models]
        if test:
            # As published: each query is charged the model's mean.
            costs = np.tile(costs.mean(axis=0), (at.sum(), 1))
        return self.quality[at][:, models], costs, self.signals[at][:, models]


def load(folder, name):
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        quality = arrays["correctness"].astype(float)
        costs = (
            arrays["tokens_in"] * arrays["price_in"] + arrays["tokens_out"] * arrays["price_out"]
        )
        models, is_test = list(map(str, arrays["model_names"])), arrays["is_test"]
        signals = arrays["confidence"].astype(float)
        chain = np.flatnonzero(arrays["chain"] == "llama") if "chain" in arrays else None
    path = folder / "published.json"
    published = json.loads(path.read_text())["datasets"].get(name, {}) if path.exists() else {}
    chain = np.arange(min(5, len(models))) if chain is None else chain
    return Set(name, models, chain, quality, costs, signals, is_test, published)


def made_up(n_train=150, n_test=400, seed=0):
    """Five models of growing skill whose confidence says something: runs anywhere."""
    rng = np.random.default_rng(seed)
    n = n_train + n_test
    skill, hard = np.linspace(-0.5, 2.2, 5), rng.normal(size=(n, 1)) * 1.5
    chance = 1 / (1 + np.exp(hard - skill + rng.normal(size=(n, 5)) * 0.7))
    quality = (rng.uniform(size=(n, 5)) < chance).astype(float)
    signals = np.log(chance) + 0.3 * rng.normal(size=(n, 5))
    costs = np.tile(np.array([19.0, 20, 40, 170, 570]), (n, 1))
    names = [f"model{k}" for k in range(5)]
    is_test = np.arange(n) >= n_train
    return Set("made-up", names, np.arange(5), quality, costs, signals, is_test, {})


def area(cost, accuracy, bounds):
    """Mean error between two costs, points joined by straight lines."""
    order = np.argsort(cost, kind="stable")
    at, where = np.unique(np.round(cost[order], 6), return_inverse=True)
    heights = np.bincount(where, accuracy[order]) / np.bincount(where)
    grid = np.linspace(*bounds, 4001)
    return float(1 - np.trapezoid(np.interp(grid, at, heights), grid) / (bounds[1] - bounds[0]))


def curve(router, quality, costs, signals):
    """Test cost and accuracy of each rule of the router's path."""
    points = []
    for budget in router.mixture_.cost:
        _, route, cost = router.predict_routed(None, budget=budget, signals=signals, costs=costs)
        points.append((cost.mean(), quality[np.arange(len(route)), route].mean()))
    return np.array(points).T


def fitted(data, models, **options):
    """A router that has seen the training rows, and the seconds that took."""
    quality, costs, signals = data.rows(False, models)
    start = time.perf_counter()
    router = CascadeRouter(**options).fit(None, quality, costs=costs, signals=signals)
    return router, time.perf_counter() - start


def singles(data, models, bounds):
    """Area of single models mixed at random, the ones to mix chosen by the training rows."""
    quality, costs, _ = data.rows(False, models)
    _, kept = best_mixture(costs.mean(axis=0), quality.mean(axis=0))
    quality, costs, _ = data.rows(True, models)
    return area(costs.mean(axis=0)[kept], quality.mean(axis=0)[kept], bounds)


def bench_curves(data):
    """Areas of the fixed chain, of any order over its models and over all, and references."""
    chain, every = data.chain.tolist(), list(range(len(data.models)))
    order = [f"choice{k}" for k in range(len(chain))]
    cases = {"chain": (chain, {"order": order}), "five": (chain, {}), "nine": (every, {})}
    if len(every) == len(chain):
        del cases["nine"]
    records = {r["method"]: r for r in data.published.get("full_llama_chain", [])}
    # Compiled and imported once, so that the first fit is no slower than the second.
    fitted(data, chain, order=order)
    bounds, found = None, {}
    for case, (models, options) in cases.items():
        router, seconds = fitted(data, models, **options)
        if case == "chain":
            again = [fitted(data, models, **options)[1] for _ in range(4)]
            seconds = min(seconds, *again)
        cost, accuracy = curve(router, *data.rows(True, models))
        if bounds is None:
            given = next(iter(records.values()), {}).get("bounds")
            bounds = given or [float(cost.min()), float(cost.max())]
        found[case] = {
            "area": area(cost, accuracy, bounds),
            "seconds": seconds,
            "singles": singles(data, models, bounds),
            "rules": len(router.rule_names_),
        }
    table(
        f"{data.name}: area of error over cost, {bounds[0]:.0f} to {bounds[1]:.0f} $ per million "
        "(lower is better)",
        ["cascade", "area", "published", "singles mixed", "bar", "fit s", "rules"],
        [
            [
                case,
                f"{of['area']:.4f}",
                " / ".join(f"{r['auc']:.4f}" for r in records.values()) or "-",
                f"{of['singles']:.4f}",
                BARS.get(data.name, {}).get(case, "-"),
                f"{of['seconds']:.2f}",
                of["rules"],
            ]
            for case, of in found.items()
        ],
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--data", default=None)
    parser.add_argument("--sets", default=None)
    arguments = parser.parse_args()
    shared = Path(os.environ.get("SKROUTE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    folder = Path(arguments.data) if arguments.data else shared / "cascades"
    if arguments.short:
        sets = [made_up()]
    else:
        names = arguments.sets.split(",") if arguments.sets else None
        sets = [load(folder, n) for n in names or sorted(p.stem for p in folder.glob("*.npz"))]
    for data in sets:
        bench_curves(data)
    whole = not (arguments.short or arguments.data or arguments.sets)
    if whole:
        record("cascades")


if __name__ == "__main__":
    main()
