"""After fit: prices that change and models that are down, against a new fit.

Prices: each model's price times 0.2, 3 and 8 in turn on a fitted router (`set_params(costs=...)`,
no labels, no fit), beside a router fitted at the new prices and one that keeps the old dual
price; ridge. Outages: each model down in turn (`exclude=[...]` in the call), beside a router that
was fitted without it; a forest, whose trees are others without it. LLMRouter (nine models, prices
per token), ParetoBandit (three models; fixed costs beside a log of costs per request) and a made-up
log of nine models. One half of the rows to fit, the other to measure; spend is what the log says.
Time: 10,000 stored rows, nine models, of the processor.

    python benchmarks/bench_lifecycle.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings

import numpy as np
from _harness import claim, save, table
from bench_budgets import PARETOBANDIT, Log, forest, llmrouter, of, paretobandit
from sklearn.linear_model import Ridge

from skroute.assignment import choose_at_price
from skroute.routing import BudgetRouter

FACTORS = (0.2, 3.0, 8.0)


def made_up(n=6000, m=9):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    slope, level = np.linspace(1.5, 0.2, m), np.linspace(-0.5, 1.8, m)
    odds = X @ (rng.normal(size=(6, m)) * slope) * 0.6 + level
    Q = (rng.random((n, m)) < 1 / (1 + np.exp(-odds))).astype(float)
    return Log(X, Q, np.geomspace(1, 20, m))


def halves(log):
    order = np.random.default_rng(0).permutation(len(log.X))
    return of(log, order[::2]), of(log, order[1::2])


def fit(log, costs, logged, budget=None, estimator=None):
    estimator = Ridge() if estimator is None else estimator
    router = BudgetRouter(estimator, costs=costs, budget=budget)
    return router.fit(log.X, log.Q, costs=logged)


def logs(short):
    if not short:
        yield "LLMRouter", llmrouter()
    if short or not PARETOBANDIT.exists():
        print("ParetoBandit: left out (short run, or not in the folder of SKROUTE_DATA).")
    else:
        yield "ParetoBandit", paretobandit()
    yield "made up", made_up(*((1200, 4) if short else (6000, 9)))


def outcome(test, costs, logged, route):
    rows = np.arange(len(route))
    true = np.broadcast_to(costs if logged is None else logged, test.Q.shape)
    return test.Q[rows, route].mean(), true[rows, route].mean()


def prices(name, log):
    """For each model and factor: spend over budget, and quality against a new fit."""
    train, test = halves(log)
    router, found = fit(train, log.costs, train.logged), []
    for model in range(len(log.costs)):
        for factor in FACTORS:
            scale = np.ones(len(log.costs))
            scale[model] = factor
            new = log.costs * scale
            logged, true = (
                None if part.logged is None else part.logged * scale for part in (train, test)
            )
            again = fit(train, new, logged)
            path = again.price_path_.budgets
            budget = float(path[0] + 0.4 * (path[-1] - path[0]))
            old = router.set_params(costs=log.costs)._policy().path.rule(budget).price
            route = router.set_params(costs=new).route(test.X, budget=budget)
            ours = outcome(test, new, true, route)
            refit = outcome(test, new, true, again.route(test.X, budget=budget))
            kept = choose_at_price(router.predict_quality(test.X), new, old)
            stale = outcome(test, new, true, kept)
            found.append([ours[1] / budget - 1, ours[0] - refit[0], refit[1] / budget - 1])
            found[-1].append(stale[1] / budget - 1)
    return np.array(found)


def outages(name, log):
    """For each model that is down: spend over budget, and quality against a fit without it."""
    train, test = halves(log)
    router, found = fit(train, log.costs, train.logged, None, forest()), []
    for model in range(len(log.costs)):
        keep = np.delete(np.arange(len(log.costs)), model)
        logged = None if train.logged is None else train.logged[:, keep]
        without = BudgetRouter(forest(), costs=log.costs[keep])
        without.fit(train.X, train.Q[:, keep], costs=logged)
        path = without.price_path_.budgets
        budget = float(path[0] + 0.4 * (path[-1] - path[0]))
        ours = outcome(
            test,
            log.costs,
            test.logged,
            router.route(test.X, budget=budget, exclude=[router.choices_[model]]),
        )
        theirs = keep[without.route(test.X, budget=budget)]
        refit = outcome(test, log.costs, test.logged, theirs)
        found.append([ours[1] / budget - 1, ours[0] - refit[0], refit[1] / budget - 1])
    return np.array(found)


def milliseconds(short):
    """Processor time of a new price list and of an outage, the least of several."""
    log = made_up(1000 if short else 10_000)
    router = fit(log, log.costs, None, 6.0)
    found = {"prices": [], "outage": []}
    for repeat in range(3 if short else 15):
        for what in found:
            costs = log.costs * (1 + 0.01 * (repeat + 1)) if what == "prices" else log.costs
            router.set_params(costs=costs)
            if what == "outage":
                policy = router._policy()
            start = time.process_time()
            if what == "prices":
                router.price_  # noqa: B018
            else:
                policy.restricted(np.delete(np.arange(9), repeat % 9)).price(6.0)
            found[what].append(1e3 * (time.process_time() - start))
    return {what: min(values) for what, values in found.items()}


def claims(result):
    """What is said of the numbers."""
    found = []
    for what in ("prices", "outages"):
        for row in result[what]:
            name, key = row["set"], f"{what}_{row['set'].replace(' ', '_')}"
            found += [
                claim(
                    f"{key}_spend",
                    f"{what}, {name}: spend off the budget, mean over cases",
                    row["spend off, mean"],
                    better="lower",
                    bar=0.03,
                ),
                claim(
                    f"{key}_quality",
                    f"{what}, {name}: quality less that of a new fit, the worst case",
                    row["worst"],
                    peer=0.0,
                    against="a new fit",
                    within=0.003,
                    bar=-0.003,
                ),
            ]
    for what, value in result["milliseconds"].items():
        text = f"{what}: solved for anew, 10,000 rows, 9 models"
        found.append(claim(f"ms_{what}", text, value, unit="ms", better="lower", bar=20.0))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    warnings.simplefilter("ignore")
    payload = {}
    for what, measure in (("prices", prices), ("outages", outages)):
        rows = []
        for name, log in logs(short):
            found = measure(name, log)
            spend, quality = np.abs(found[:, 0]), found[:, 1]
            rows.append(
                [name, len(found), spend.mean(), spend.max(), quality.mean(), quality.min()]
                + [np.abs(found[:, 2]).max()]
                + ([np.abs(found[:, 3]).max()] if what == "prices" else [])
            )
        header = ["set", "cases", "spend off, mean", "spend off, worst", "quality - new fit, mean"]
        header += ["worst", "spend of new fit off, worst"]
        if what == "prices":
            header.append("spend at the old dual price off, worst")
        table(f"{what.capitalize()}: no fit and no labels", header, rows)
        payload[what] = [dict(zip(header, row)) for row in rows]
    payload["milliseconds"] = found = milliseconds(short)
    table("Milliseconds of the processor", list(found), [list(found.values())])
    save(
        "lifecycle",
        payload,
        title="After fit: prices and outages",
        claims=claims(payload),
        write=not short,
    )


if __name__ == "__main__":
    main()
