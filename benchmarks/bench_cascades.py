"""Cascades of language models: area of error over cost.

Logs of nine models on MMLU and TriviaQA (../shared/data/cascades): everything is fitted
and chosen on the 285 and 300 training rows, and measured on the test rows as
`published.json` says: the mean cost of a model on the test rows is what each of its
calls costs, points are joined by straight lines, and 1 - accuracy is averaged over the
published range of costs. Beside each number: the published ones, and the models alone
mixed at random.

GSM8K: one model thinks for 96 tokens, and then 160, 224 and 320 more (../shared/data/
anytime). Fitted on the rows of each split's first part, measured on the other ones,
beside the published rules and oracle.

    python benchmarks/bench_cascades.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from typing import NamedTuple

import _data
import numpy as np
from _common import record, table

from skroute.routing import CascadeRouter
from skroute.routing.parts._mixtures import best_mixture

# Area of error over cost that the project asks of itself, and the seconds of a chain's
# fit.
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


def load(name):
    log = _data.cascades(name)
    costs = log.tokens_in * log.price_in + log.tokens_out * log.price_out
    published = json.loads((_data.FOLDER / "cascades/published.json").read_text())
    about = (
        log.correctness.astype(float),
        costs,
        log.confidence.astype(float),
        log.is_test,
    )
    chain = np.flatnonzero(log.chain == "llama")
    return Set(
        name,
        list(map(str, log.model_names)),
        chain,
        *about,
        published["datasets"][name],
    )


def area(cost, accuracy, bounds):
    """Mean error between two costs, points joined by straight lines."""
    order = np.argsort(cost, kind="stable")
    at, where = np.unique(np.round(cost[order], 6), return_inverse=True)
    heights = np.bincount(where, accuracy[order]) / np.bincount(where)
    grid = np.linspace(*bounds, 4001)
    return float(
        1 - np.trapezoid(np.interp(grid, at, heights), grid) / (bounds[1] - bounds[0])
    )


def curve(router, quality, costs, signals):
    """Test cost and accuracy of each rule of the router's path."""
    points = []
    for budget in router.mixture_.cost:
        _, route, cost = router.predict_routed(
            None, budget=budget, signals=signals, costs=costs
        )
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
    cases = {
        "chain": (chain, {"order": order}),
        "five": (chain, {}),
        "nine": (every, {}),
    }
    records = {r["method"]: r for r in data.published["full_llama_chain"]}
    # Compiled and imported once, so that the first fit is no slower than the second.
    fitted(data, chain, order=order)
    bounds, found = next(iter(records.values()))["bounds"], {}
    for case, (models, options) in cases.items():
        router, seconds = fitted(data, models, **options)
        if case == "chain":
            again = [fitted(data, models, **options)[1] for _ in range(4)]
            seconds = min(seconds, *again)
        cost, accuracy = curve(router, *data.rows(True, models))
        found[case] = {
            "area": area(cost, accuracy, bounds),
            "seconds": seconds,
            "singles": singles(data, models, bounds),
            "rules": len(router.rule_names_),
        }
    table(
        f"{data.name}: area of error over cost, {bounds[0]:.0f} to {bounds[1]:.0f} $ "
        "per million (lower is better)",
        ["cascade", "area", "published", "singles mixed", "bar", "fit s", "rules"],
        [
            [
                case,
                f"{of['area']:.4f}",
                " / ".join(f"{r['auc']:.4f}" for r in records.values()),
                f"{of['singles']:.4f}",
                BARS[data.name][case],
                f"{of['seconds']:.2f}",
                of["rules"],
            ]
            for case, of in found.items()
        ],
    )


# The steps of one model on GSM8K, and budgets in tokens.
STEPS = ("step 1", "step 2", "step 3", "step 4")
TOKEN_BUDGETS = (96, 130, 177, 260)


def step_signals(log, part, seed):
    """Return the signals of each step: confidence, and how the answers so far agree."""
    confidence = log[f"conf_{part}_{seed}"]
    answer = log[f"same_answer_{part}_{seed}"]
    signals = {}
    for position, step in enumerate(STEPS):
        so_far = answer[:, : position + 1]
        # Unknown for the first step.
        agrees = np.full(len(answer), np.nan)
        if position > 0:
            agrees = (answer[:, position] == answer[:, position - 1]).astype(float)
        count = (so_far == answer[:, [position]]).sum(axis=1).astype(float)
        signals[step] = np.column_stack([confidence[:, position], agrees, count])
    return signals


def bench_anytime():
    """Accuracy and mean tokens of stopping between the steps, mean of three splits."""
    log = _data.anytime()
    costs = dict(zip(STEPS, log.tokens.astype(float)))
    points = np.empty((3, len(TOKEN_BUDGETS), 2))
    for seed in range(3):
        router = CascadeRouter(costs=costs, order=list(STEPS), budget=800.0)
        fitting = log[f"correct_dev_{seed}"].astype(float)
        router.fit(None, fitting, signals=step_signals(log, "dev", seed))
        quality = log[f"correct_test_{seed}"].astype(float)
        rows = np.arange(len(quality))
        signals = step_signals(log, "test", seed)
        for position, budget in enumerate(TOKEN_BUDGETS):
            _, route, cost = router.predict_routed(
                None, budget=budget, signals=signals, request_id=rows
            )
            points[seed, position] = quality[rows, route].mean(), cost.mean()
    lines = []
    for budget, (accuracy, tokens) in zip(TOKEN_BUDGETS, points.mean(axis=0)):
        lines.append([f"skroute, budget {budget}", f"{accuracy:.4f}", f"{tokens:.0f}"])
    published = json.loads((_data.FOLDER / "anytime/published.json").read_text())
    for name in ("fixed", "confidence", "stability"):
        for accuracy, tokens in published[name]:
            lines.append([f"published: {name}", f"{accuracy:.4f}", f"{tokens:.0f}"])
    accuracy, tokens = published["oracle"]
    lines.append(["oracle", f"{accuracy:.4f}", f"{tokens:.0f}"])
    table("GSM8K: accuracy over tokens", ["rule", "accuracy", "tokens"], lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="TriviaQA alone")
    short = parser.parse_args().short
    for name in ("triviaqa",) if short else ("mmlu", "triviaqa"):
        bench_curves(load(name))
    bench_anytime()
    if not short:
        record("cascades")


if __name__ == "__main__":
    main()
