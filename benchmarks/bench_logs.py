"""Logs of one answer per request: whether their intervals hold the truth.

Logs are drawn from full tables (LLMRouter: nine models, ParetoBandit: three with logged
costs) by three known policies: uniform, mostly cheap, and one that prefers what a ridge
on other rows finds good (with a fifth at random); propensities are given. A router
fitted on other rows is judged by 200 logs for each policy at five budgets, from the
smallest to the unlimited one; the truth is the mean over the whole table of rows that
logs are drawn from. Rows are drawn without replacement, a quarter of the table at most,
so that intervals are about 1/(1 - share / 2) too wide at most.

    python benchmarks/bench_logs.py [--short] [--logs N]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings

import numpy as np
from _common import record, table
from bench_budgets import log_of, made_up, of, paretobandit
from sklearn.linear_model import Ridge

from skroute.metrics import off_policy_curve
from skroute.routing import BudgetRouter

POLICIES = ("uniform", "cheap", "greedy")
ESTIMATES = ("doubly_robust", "snips", "direct")


def chances(log, kind, pre):
    """Probability of each choice on each row, for one of the policies."""
    n, k = log.Q.shape
    if kind == "uniform":
        return np.full((n, k), 1 / k)
    if kind == "cheap":
        share = 1 / np.arange(1, k + 1)
        return np.tile(0.9 * share / share.sum() + 0.1 / k, (n, 1))
    value = Ridge().fit(log.X[pre], log.Q[pre]).predict(log.X)
    value = 8 * (value - 0.1 * log.costs / log.costs.max())
    odds = np.exp(value - value.max(axis=1, keepdims=True))
    return 0.8 * odds / odds.sum(axis=1, keepdims=True) + 0.2 / k


def draw(log, P, rows, rng):
    """The answer that a policy asked for on some rows."""
    choice = (rng.random((len(rows), 1)) > P[rows].cumsum(axis=1)).sum(axis=1)
    choice = choice.clip(0, P.shape[1] - 1)
    paid = None if log.logged is None else log.logged[rows, choice]
    return choice, log.Q[rows, choice], P[rows, choice], paid


def coverage(name, log, n_logs):
    """For each policy the share of logs whose interval holds the truth, over the budgets."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(log.X))
    pre, train, rest = order[:300], order[300:1000], order[1000:]
    fitted = of(log, train)
    router = BudgetRouter(Ridge(), costs=log.costs).fit(
        fitted.X, fitted.Q, costs=fitted.logged
    )
    path = router.price_path_.budgets
    # At the smallest budget itself nothing is decided.
    budgets = path[0] + np.array([0.05, 0.25, 0.5, 0.75, 1.0]) * (path[-1] - path[0])
    budgets[-1] = np.inf
    judged, rows = of(log, rest), np.arange(len(rest))
    routes = [router.route(judged.X, budget=budget) for budget in budgets]
    true_cost = np.broadcast_to(
        log.costs if judged.logged is None else judged.logged, judged.Q.shape
    )
    truth = np.array(
        [[t[rows, route].mean() for route in routes] for t in (judged.Q, true_cost)]
    )
    n = min(500, len(rest) // 4)
    out = []
    for kind in POLICIES:
        P = chances(log, kind, pre)[rest]
        held, width, refused = [], [], 0
        for seed in range(n_logs):
            rng = np.random.default_rng(1000 + seed)
            some = rng.permutation(len(rest))[:n]
            choice, q, b, paid = draw(judged, P, some, rng)
            given = {
                "choice": choice,
                "propensity": b,
                "costs": paid,
                "budgets": budgets,
                "cv": 3,
            }
            try:
                curve = off_policy_curve(router, judged.X[some], q, **given)
            except ValueError:
                refused += 1
                continue
            bounds = [
                [(getattr(one, how).low, getattr(one, how).high) for how in ESTIMATES]
                for one in (curve.quality, curve.cost)
            ]
            held.append(
                [
                    (low <= true + 1e-12) & (true <= high + 1e-12)
                    for each, true in zip(bounds, truth)
                    for low, high in each
                ]
            )
            width.append([(high - low).mean() for low, high in bounds[0]])
        held = np.mean(held, axis=0)
        out.append([name, kind, n, n_logs - refused, refused])
        for k in (0, 3):
            out[-1] += [held[k].mean(), held[k].min()]
        out[-1] += [held[1].mean(), held[2].mean(), *np.mean(width, axis=0)]
        print(*out[-1][:9], flush=True)
    return out


HEADER = [
    "set",
    "policy",
    "rows",
    "logs",
    "refused",
    "quality: DR",
    "quality: DR, least",
]
HEADER += ["cost: DR", "cost: DR, least", "quality: SNIPS", "quality: direct"]
HEADER += ["width: DR", "width: SNIPS", "width: direct"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--logs", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.short:
        rows = coverage(
            "made up", made_up("log-normal", np.random.default_rng(0), 0)[1], 3
        )
    else:
        rows = coverage("ParetoBandit", paretobandit(), arguments.logs)
        rows += coverage("LLMRouter", log_of("LLMRouter"), arguments.logs)
    table(
        "Share of logs whose 95 % interval holds the truth, over the path", HEADER, rows
    )
    if not arguments.short:
        record("logs")


if __name__ == "__main__":
    main()
