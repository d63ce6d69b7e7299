"""Money and latency at once, on new rows of the cascade logs (MMLU and TriviaQA).

Random halves: a router learns on one half and decides the rows of the other one by one.
The second limit is a mean latency of .85 of what money alone takes, or at most 5 % of
the rows above the 90th percentile of the latency under money alone. The last line of
each setting leaves a margin of 1.645 standard errors, so that the limit holds in most
splits. Next to the router: the best random mix of models and the best single model that
meet both limits by the means of the training half, and money alone.

    python benchmarks/bench_limits_online.py [--splits 20] [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from typing import NamedTuple

import _data
import numpy as np
from _common import record, table
from scipy.optimize import linprog
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skroute.routing import BudgetRouter

# Money: these shares of the mean cost of the dearest model.
SPENDS = (0.15, 0.30)
# One-sided 95 % quantile of the normal distribution.
MARGIN = 1.645


class Outcome(NamedTuple):
    """Realised means of decisions: quality, and cost and amount over their limits."""

    quality: float
    cost: float
    amount: float


class CascadeLog(NamedTuple):
    """Logged answers of several models: prompts, and a column for each model.

    `cost` is in millionths of a dollar, `latency` in milliseconds.
    """

    prompts: list
    quality: np.ndarray
    cost: np.ndarray
    latency: np.ndarray


def read_cascade(name):
    """Return the log of a data set, "mmlu" or "triviaqa"."""
    log = _data.cascades(name)
    texts = _data.read_csv(f"cascades/{name}_prompts.csv.gz")
    return CascadeLog(
        prompts=list(texts["prompt"]),
        quality=log["correctness"].astype(float),
        cost=log["cost"] * 1e6,
        latency=log["latency_ms"].astype(float),
    )


def read_texts():
    """Return the estimator of quality: words, 50 directions, ridge regression."""
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2),
        TruncatedSVD(50, random_state=0),
        RidgeCV(np.logspace(-1, 3, 9)),
    )


def lengths(prompts):
    """Return the number of characters of each prompt, (n_prompts, 1)."""
    return np.array([[float(len(prompt))] for prompt in prompts])


def best_mix(quality, amounts, most):
    """Return shares of the models of the best mean quality within the limits.

    `quality` has shape (n_models,), `amounts` (n_limits, n_models).
    """
    solved = linprog(
        -quality,
        A_ub=amounts,
        b_ub=most,
        A_eq=np.ones((1, len(quality))),
        b_eq=[1.0],
        bounds=(0, 1),
    )
    return solved.x


def evaluate_split(log, seed):
    """Return the outcomes of all settings on one random half, by setting and method."""
    order = np.random.default_rng(seed).permutation(len(log.prompts))
    half = len(order) // 2
    fit_rows, new_rows = order[:half], order[half:]
    prompts = [log.prompts[row] for row in fit_rows]
    new_prompts = [log.prompts[row] for row in new_rows]
    quality = log.quality[fit_rows]
    cost = log.cost[fit_rows]
    latency = log.latency[fit_rows]
    position = np.arange(len(new_rows))
    cost_by_length = make_pipeline(FunctionTransformer(lengths), LinearRegression())
    router = BudgetRouter(read_texts(), cost_estimator=cost_by_length)
    router.fit(prompts, quality, costs=cost, amounts={"latency": latency})
    results = {}
    for spend in SPENDS:
        budget = spend * cost.mean(axis=0).max()
        typical = latency[np.arange(half), router.route(prompts, budget=budget)]
        alone = router.route(new_prompts, budget=budget)
        bar = np.quantile(typical, 0.90)
        slow = (log.latency > bar).astype(float)
        error = np.sqrt(0.05 * 0.95 / half)
        settings = [
            ("mean latency", log.latency, 0.85 * typical.mean(), 0.0),
            ("slow <= 5 %", slow, 0.05, 0.0),
            ("slow <= 5 %, margin", slow, 0.05, MARGIN * error),
        ]
        for name, amount, most, margin in settings:
            start = time.perf_counter()
            limited = BudgetRouter(read_texts(), cost_estimator=cost_by_length)
            limited.set_params(budget=budget, limits={"second": most - margin})
            limited.fit(
                prompts, quality, costs=cost, amounts={"second": amount[fit_rows]}
            )
            seconds = time.perf_counter() - start

            def outcome(route, amount=amount, most=most, budget=budget):
                rows = new_rows
                return Outcome(
                    log.quality[rows, route].mean(),
                    log.cost[rows, route].mean() / budget,
                    amount[rows, route].mean() / most,
                )

            means = np.stack([cost.mean(axis=0), amount[fit_rows].mean(axis=0)])
            mean_quality = quality.mean(axis=0)
            is_within = (means <= np.array([[budget], [most]])).all(axis=0)
            best = int(np.argmax(np.where(is_within, mean_quality, -np.inf)))
            shares = best_mix(mean_quality, means, [budget, most])
            route = limited.route(new_prompts)
            # Noise of the second limit: sampling of the log and of the new rows.
            deviation = amount[new_rows, route].std() / most
            results[spend, name] = {
                "routed": outcome(route),
                "money alone": outcome(alone),
                "single": outcome(np.full(len(position), best)),
                "mix": Outcome(
                    float(shares @ log.quality[new_rows].mean(axis=0)),
                    float(shares @ log.cost[new_rows].mean(axis=0)) / budget,
                    float(shares @ amount[new_rows].mean(axis=0)) / most,
                ),
                "noise": deviation * np.sqrt(2 / half),
                "binds": [state.price > 0 for state in limited.limits_],
                "seconds": seconds,
            }
    return results


def lines_of(splits):
    """Return the lines of the table: one for each setting."""
    lines = []
    for key in splits[0]:
        by_method = {}
        for method in ("routed", "money alone", "single", "mix"):
            by_method[method] = np.array([split[key][method] for split in splits])
        routed = by_method["routed"]
        gain = routed[:, 0] - by_method["mix"][:, 0]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        spread = routed.std(axis=0, ddof=1)
        lines.append(
            [
                f"{key[0]:.2f}",
                key[1],
                f"{routed[:, 0].mean():.4f}",
                f"{gain.mean():+.4f} ({error:.4f})",
                f"{by_method['single'][:, 0].mean():.4f}",
                f"{by_method['money alone'][:, 0].mean():.4f}",
                f"{routed[:, 1].mean():.3f}+-{spread[1]:.3f}",
                f"{routed[:, 2].mean():.3f}+-{spread[2]:.3f}",
                f"{np.mean([split[key]['noise'] for split in splits]):.3f}",
                f"{(routed[:, 2] <= 1).mean():.0%}",
                f"{by_method['money alone'][:, 2].mean():.2f}",
            ]
        )
    return lines


def main(short, n_splits):
    warnings.filterwarnings("ignore")
    header = [
        "$",
        "second limit",
        "quality",
        "less mix (s.e.)",
        "single",
        "$ alone",
        "$/budget",
        "second/limit",
        "noise",
        "kept",
        "$ alone: second/limit",
    ]
    for name in ("mmlu", "triviaqa"):
        log = read_cascade(name)
        splits = [evaluate_split(log, seed) for seed in range(n_splits)]
        table(f"{name}: {n_splits} splits", header, lines_of(splits))
    if not short:
        record("limits_online")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    main(arguments.short, 2 if arguments.short else arguments.splits)
