"""After fit: prices that change and new models, against a new fit.

Prices: each model's price times 0.2, 3 and 8 in turn on a fitted router
(`set_params(costs=...)`, no labels, no fit), beside a router fitted at the new prices
and one that keeps the old dual price; ridge. (A model that is down is left out as by a
fit without it: tests/routing.) LLMRouter (nine models, prices per token), ParetoBandit
(three models; fixed costs beside a log of costs per request) and a made-up log of nine
models. One half of the rows to fit, the other to measure; spend is what the log says.
Each case (a model and a factor) is the mean over random halves: on one half of
ParetoBandit, whose 1,800 rows have heavy tails, the mean cost has a standard error of 5
%, which a new fit shares.

New models: each model of CARROT (18, the task is the only feature), of LLMRouter and of
the MMLU log of the cascades (nine each) is held out in turn and added (`add_choice`)
with 10, 30, 100 and 300 scored rows. Beside it: leaving it out, a router fitted with
all of its rows, and the two-level shrunk mean (means of large and of small blocks of
rows, each shrunk with 24 pseudo-counts; CARROT's task groups and tasks, else 20 and 100
clusters). Quality over five budgets at exactly equal spend on the test rows. How many
standard errors a newcomer is docked was chosen on other splits of CARROT and LLMRouter,
with test rows in view: what is said of these two is a little optimistic. MMLU was not
looked at.

    python benchmarks/bench_lifecycle.py [--short] [--part WORD] [--draws N]

A run of the parts that begin with a word, such as "new CARROT", replaces their tables.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
import warnings

import _data
import numpy as np
from _common import table
from bench_acquisition import record_parts
from bench_budgets import Log, log_of, of, paretobandit
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from skroute.assignment import assignment_path, choose_at_price
from skroute.routing import BudgetRouter

FACTORS = (0.2, 3.0, 8.0)
SCORED = (10, 30, 100, 300)
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
# Of a quality between 0 and 1: what a new model may lose against leaving it out.
HARM, PSEUDO = 0.002, 24
N_FIT, N_TEST = 3000, 4000


def made_up(n=6000, m=9):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    slope, level = np.linspace(1.5, 0.2, m), np.linspace(-0.5, 1.8, m)
    odds = X @ (rng.normal(size=(6, m)) * slope) * 0.6 + level
    Q = (rng.random((n, m)) < 1 / (1 + np.exp(-odds))).astype(float)
    return Log(X, Q, np.geomspace(1, 20, m))


def halves(log, seed):
    order = np.random.default_rng(seed).permutation(len(log.X))
    return of(log, order[::2]), of(log, order[1::2])


def fit(log, costs, logged):
    return BudgetRouter(Ridge(), costs=costs).fit(log.X, log.Q, costs=logged)


def outcome(test, costs, logged, route):
    rows = np.arange(len(route))
    true = np.broadcast_to(costs if logged is None else logged, test.Q.shape)
    return test.Q[rows, route].mean(), true[rows, route].mean()


def prices(log, seed):
    """For each model and factor: spend over budget, and quality against a new fit."""
    train, test = halves(log, seed)
    router, found = fit(train, log.costs, train.logged), []
    for model in range(len(log.costs)):
        for factor in FACTORS:
            scale = np.ones(len(log.costs))
            scale[model] = factor
            new = log.costs * scale
            logged, true = (
                None if part.logged is None else part.logged * scale
                for part in (train, test)
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
            found.append(
                [ours[1] / budget - 1, ours[0] - refit[0], refit[1] / budget - 1]
            )
            found[-1].append(stale[1] / budget - 1)
    return np.array(found)


def by_price(name):
    log = log_of(name)
    order = np.argsort(log.costs, kind="stable")
    return Log(log.X, log.Q[:, order], log.costs[order])


def blocks_of(log, fit):
    """Large and small blocks of rows, as numbers."""
    if log.X.shape[1] == 38:
        known = _data.carrot()
        large = np.unique(known.task_group, return_inverse=True)[1]
        return large[known.task_id], known.task_id
    clusters = [KMeans(k, n_init=1, random_state=0).fit(log.X[fit]) for k in (20, 100)]
    return [each.predict(log.X) for each in clusters]


def block_means(q, scored, large, small):
    """Means of large blocks shrunk to the mean, and those of small blocks to theirs."""

    def shrunk(block, towards):
        n = np.bincount(block[scored], minlength=block.max() + 1)
        total = np.bincount(block[scored], q, block.max() + 1)
        return (total[block] + PSEUDO * towards) / (n[block] + PSEUDO)

    return shrunk(small, shrunk(large, q.mean()))


def at_equal_spend(estimate, log, rows, budgets):
    """Realised quality where these estimates decide, at exactly the budgets on these rows."""
    path, out, n = assignment_path(estimate, log.costs), [], np.arange(len(rows))
    for budget in budgets:
        price, share = path.rule(budget)
        low = choose_at_price(estimate, log.costs, price)
        high = choose_at_price(estimate, log.costs, price, tolerance=-1e-9)
        quality = log.Q[rows]
        out.append(
            (quality[n, low] + share * (quality[n, high] - quality[n, low])).mean()
        )
    return np.array(out)


def new_models(log, n_draws):
    """For each number of scored rows: gains over leaving the new model out, by contender."""
    order = np.random.default_rng(0).permutation(len(log.X))
    fit = order[: min(N_FIT, len(log.X) // 2)]
    test, fresh = order[len(fit) :][:N_TEST], order[len(fit) + N_TEST :]
    X, k = log.X[test], len(log.costs)
    # Scored rows may be among those of fit; none is a test row.
    pool, blocks = np.concatenate([fit, fresh]), blocks_of(log, fit)
    one_hot = log.X.shape[1] == 38
    estimator = (
        Ridge()
        if one_hot
        else ExtraTreesRegressor(
            40, min_samples_leaf=5, max_features=0.5, random_state=0
        )
    )
    whole = fit_named(estimator, log, fit, range(k)).predict_quality(X)
    gains = {(n, what): [] for n in SCORED for what in ("ours", "shrunk mean", "spend")}
    gains[0, "all rows"] = []
    for model in range(k):
        others = np.delete(np.arange(k), model)
        now = Log(log.X, log.Q[:, [*others, model]], log.costs[[*others, model]])
        before = Log(log.X, log.Q[:, others], log.costs[others])
        low, high = before.costs.min(), before.costs.max()
        budgets = low + np.array(SHARES) * (high - low)
        router = fit_named(estimator, log, fit, others).set_params(budget=budgets[2])
        known = router.predict_quality(X)
        without = at_equal_spend(known, before, test, budgets)
        full = at_equal_spend(whole[:, [*others, model]], now, test, budgets)
        gains[0, "all rows"].append(full - without)
        for n in SCORED:
            for draw in range(n_draws):
                rng = np.random.default_rng([model, n, draw])
                scored = rng.permutation(pool)[:n]
                q, cost = log.Q[scored, model], log.costs[model]
                wider = copy.copy(router).add_choice("new", log.X[scored], q, cost=cost)
                ours = at_equal_spend(wider.predict_quality(X), now, test, budgets)
                gains[n, "ours"].append(ours - without)
                off = wider.predict_cost(X).mean() / budgets[2] - 1
                gains[n, "spend"].append(np.full(len(budgets), off))
                mean = block_means(q, scored, *blocks)[test]
                mean = at_equal_spend(
                    np.column_stack([known, mean]), now, test, budgets
                )
                gains[n, "shrunk mean"].append(mean - without)
    return {key: np.array(found) for key, found in gains.items()}


def fit_named(estimator, log, rows, columns):
    columns = list(columns)
    router = BudgetRouter(estimator, costs={f"model{k}": log.costs[k] for k in columns})
    return router.fit(log.X[rows], log.Q[np.ix_(rows, columns)])


def new_rows(log, n_draws):
    """Rows of the table of new models of a log."""
    found = new_models(log, n_draws)
    full = found[0, "all rows"].mean()
    rows = []
    for n in SCORED:
        ours, mean = found[n, "ours"], found[n, "shrunk mean"]
        lost = [(each.mean(axis=1) < -HARM).mean() for each in (ours, mean)]
        rows.append([n, len(ours), ours.mean(), mean.mean(), full, *lost])
        rows[-1] += [
            ours.mean(axis=1).min(),
            (ours < -HARM).mean(),
            found[n, "spend"].mean(),
        ]
    return rows


def price_row(log, n_splits):
    """The row of the table of prices of a log: each case is a mean over splits."""
    found = np.array([prices(log, seed) for seed in range(n_splits)])
    error = (
        found.std(axis=0, ddof=1) / n_splits**0.5 if n_splits > 1 else np.nan * found[0]
    )
    found = found.mean(axis=0)
    spend, quality = np.abs(found[:, 0]), found[:, 1]
    row = [len(found), n_splits, spend.mean(), spend.max(), error[:, 0].mean()]
    row += [quality.mean(), quality.min(), error[:, 1].mean()]
    return [*row, np.abs(found[:, 2]).max(), np.abs(found[:, 3]).max()]


NEW = [
    "scored rows",
    "draws",
    "gain over leaving it out",
    "of the shrunk mean",
    "with all rows",
]
NEW += ["share of draws below by .002", "of the shrunk mean's", "worst draw"]
NEW += ["share of draws and budgets below by .002", "spend off"]
PRICES = ["cases", "splits", "spend off, mean", "spend off, worst", "standard error"]
PRICES += ["quality - new fit, mean", "worst", "its standard error"]
PRICES += ["spend of new fit off, worst", "spend at the old dual price off, worst"]
# What is read, and on how many halves: a set of fewer rows is measured on more.
PRICED = {
    "LLMRouter": (lambda: log_of("LLMRouter"), 5),
    "ParetoBandit": (paretobandit, 20),
    "made up": (made_up, 5),
}
ADDED = {"CARROT": by_price, "LLMRouter": log_of, "cascades: MMLU": by_price}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument(
        "--draws", type=int, default=10, help="of scored rows, for each new model"
    )
    parser.add_argument("--part", default="")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.short:
        log = made_up(1200, 4)
        table("prices made up, short", PRICES, [price_row(log, 1)])
        table("new made up, short", NEW, new_rows(log, 1))
        return
    for name, (read, n_splits) in PRICED.items():
        if (title := f"prices {name}").startswith(arguments.part):
            table(
                f"{title}: no fit and no labels", PRICES, [price_row(read(), n_splits)]
            )
            record_parts("lifecycle")
    for name, read in ADDED.items():
        if (title := f"new {name}").startswith(arguments.part):
            title += ": few scored rows, quality over five budgets at equal spend"
            table(title, NEW, new_rows(read(name), arguments.draws))
            record_parts("lifecycle")


if __name__ == "__main__":
    main()
