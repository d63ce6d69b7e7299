"""Logs of one answer per request: what they teach, and whether their intervals hold the truth.

Logs are drawn from full tables (LLMRouter: nine models, ParetoBandit: three with logged costs,
CARROT: 18 models, the task is the only feature) by three known policies: uniform, mostly cheap, and
one that prefers what a ridge on other rows finds good (with a fifth at random).

Coverage: a router fitted on other rows is judged by 200 logs for each policy at five budgets, from
the smallest to the unlimited one; the truth is the mean over the whole table of rows that logs are
drawn from. Rows are drawn without replacement, a quarter of the table at most, so that intervals
are about 1/(1 - share / 2) too wide at most. Learning: one answer per request at n rows beside the
full table at n rows, at n / k rows (as many answers), and inverse propensity weighting alone (a
ridge on weighted outcomes); mean realised quality at four budgets, spent on the test rows.
Propensities are given.

Any part can be measured alone (``--part "coverage ParetoBandit uniform" "learning CARROT"``): its
rows replace those that were kept, with their commit beside them; the full run takes two hours.

    python benchmarks/bench_logs.py [--short] [--logs N] [--part NAME ...]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from functools import cache

import numpy as np
from _common import record, table
from bench_budgets import PARETOBANDIT, Log, llmrouter, made_up, of, paretobandit
from sklearn.linear_model import Ridge

from skroute.assignment import assignment_path, choose_at_price
from skroute.datasets import get_data_home
from skroute.metrics import off_policy_curve
from skroute.routing import BudgetRouter

POLICIES = ("uniform", "cheap", "greedy")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@cache
def carrot():
    path = f"{get_data_home()}/carrot/leaderboard.npz"
    with np.load(path, allow_pickle=False) as file:
        task, right = file["task_id"], file["correctness"].astype(float)
        price = file["price_per_mtoken"].astype(float)
    order = np.argsort(price, kind="stable")
    return Log(np.eye(task.max() + 1)[task], right[:, order], price[order])


def sets(short):
    if short:
        yield "made up", made_up("log-normal", np.random.default_rng(0), 0)[1]
        return
    if PARETOBANDIT.exists():
        yield "ParetoBandit", paretobandit()
    yield "LLMRouter", llmrouter()
    try:
        yield "CARROT", carrot()
    except OSError:
        print("CARROT is not in the folder of SKROUTE_DATA: left out.")


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


def coverage(name, log, n_logs, kinds):
    """Share of the logs whose interval holds the truth, at each budget, for some policies."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(log.X))
    pre, train, rest = order[:300], order[300:1000], order[1000:]
    fitted = of(log, train)
    router = BudgetRouter(Ridge(), costs=log.costs).fit(fitted.X, fitted.Q, costs=fitted.logged)
    path = router.price_path_.budgets
    # At the smallest budget itself nothing is decided.
    budgets = path[0] + np.array([0.05, 0.25, 0.5, 0.75, 1.0]) * (path[-1] - path[0])
    budgets[-1] = np.inf
    judged, rows = of(log, rest), np.arange(len(rest))
    routes = [router.route(judged.X, budget=budget) for budget in budgets]
    true_cost = np.broadcast_to(
        log.costs if judged.logged is None else judged.logged, judged.Q.shape
    )
    truth = np.array([[t[rows, route].mean() for route in routes] for t in (judged.Q, true_cost)])
    n = min(500, len(rest) // 4)
    out = []
    for kind in kinds:
        P = chances(log, kind, pre)[rest]
        held, width, refused = [], [], 0
        for seed in range(n_logs):
            rng = np.random.default_rng(1000 + seed)
            some = rng.permutation(len(rest))[:n]
            choice, q, b, paid = draw(judged, P, some, rng)
            try:
                curve = off_policy_curve(
                    router,
                    judged.X[some],
                    q,
                    choice=choice,
                    propensity=b,
                    costs=paid,
                    budgets=budgets,
                    cv=3,
                )
            except ValueError:
                refused += 1
                continue
            parts = []
            for found, true in zip((curve.quality, curve.cost), truth):
                parts += [
                    (getattr(found, how).low <= true + 1e-12)
                    & (true <= getattr(found, how).high + 1e-12)
                    for how in ("doubly_robust", "snips", "direct")
                ]
            held.append(parts)
            width.append(
                [
                    (getattr(curve.quality, how).high - getattr(curve.quality, how).low).mean()
                    for how in ("doubly_robust", "snips", "direct")
                ]
            )
        held = np.mean(held, axis=0)
        out.append([name, kind, n, n_logs - refused, refused])
        for k in (0, 3):
            out[-1] += [held[k].mean(), held[k].min()]
        out[-1] += [held[1].mean(), held[2].mean(), *np.mean(width, axis=0)]
        print(*out[-1][:9], flush=True)
    return out


def realised(estimate, log, test):
    """Mean quality over five budgets, at equal spend on the test rows."""
    path = assignment_path(estimate, log.costs)
    rows, out = np.arange(len(test)), []
    for share in SHARES[1:]:
        budget = log.costs.min() + share * (log.costs.max() - log.costs.min())
        route = choose_at_price(estimate, log.costs, path.price(budget))
        out.append(log.Q[test][rows, route].mean())
    return np.mean(out)


def learning(name, log, n, n_draws):
    """One answer per request beside the full table and beside inverse weighting alone."""
    k, found = log.Q.shape[1], {}
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(log.X))
        pre, train, test = order[:300], order[300 : 300 + n], order[300 + n : 300 + n + 2000]
        X = log.X[train]

        def add(kind, what, estimate, test=test):
            found.setdefault((kind, what), []).append(realised(estimate, log, test))

        add("-", "full table", Ridge().fit(X, log.Q[train]).predict(log.X[test]))
        few = train[: max(n // k, 20)]
        add("-", "table of n / k rows", Ridge().fit(log.X[few], log.Q[few]).predict(log.X[test]))
        for kind in POLICIES:
            P = chances(log, kind, pre)
            choice, q, b, _ = draw(log, P, train, rng)
            weighted = np.zeros((n, k))
            weighted[np.arange(n), choice] = q / b
            add(kind, "inverse weighting", Ridge().fit(X, weighted).predict(log.X[test]))
            means = np.bincount(choice, q / b, k) / np.bincount(choice, 1 / b, k)
            add(kind, "means alone", np.tile(means, (len(test), 1)))
            for what, estimator in (("one answer, ridge", Ridge()), ("one answer", None)):
                router = BudgetRouter(estimator, costs=log.costs)
                router.fit(X, q, choice=choice, propensity=b)
                add(kind, what, router.predict_quality(log.X[test]))
    return [
        [name, n, kind, what, np.mean(values), np.std(values) / np.sqrt(len(values))]
        for (kind, what), values in found.items()
    ]


def rows_of(result, what):
    """The rows of all parts of one kind."""
    parts = result["parts"]
    return [row for part in sorted(parts) if part.startswith(what) for row in parts[part]]


HEADER = ["set", "policy", "rows", "logs", "refused", "quality: DR", "quality: DR, least"]
HEADER += ["cost: DR", "cost: DR, least", "quality: SNIPS", "quality: direct"]
HEADER += ["width: DR", "width: SNIPS", "width: direct"]
NAMES = ["set", "n", "policy", "learned from", "quality", "its standard error"]


def measure(short, n_logs, asked):
    """Rows of both tables, by the part that they belong to."""
    parts = {}
    for name, log in sets(short):
        # The task alone tells nothing that a forest would be needed for: learning only.
        kinds = [kind for kind in POLICIES if name != "CARROT"]
        for kind in kinds:
            part = f"coverage {name} {kind}"
            if not asked or part in asked:
                print(part, flush=True)
                found = coverage(name, log, n_logs, [kind])
                parts[part] = [dict(zip(HEADER, row)) for row in found]
        part = f"learning {name}"
        if not asked or part in asked:
            print(part, flush=True)
            found = learning(name, log, 300 if short else 1000, 1 if short else 3)
            parts[part] = [dict(zip(NAMES, row)) for row in found]
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--part", nargs="*", help="these alone")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = measure(arguments.short, 3 if arguments.short else arguments.logs, arguments.part)
    result = {"parts": parts}
    title = "Share of logs whose 95 % interval holds the truth, over the path"
    table(title, HEADER, [list(row.values()) for row in rows_of(result, "coverage")])
    title = "Mean quality over four budgets at equal spend"
    table(title, NAMES, [list(row.values()) for row in rows_of(result, "learning")])
    if not (arguments.short or arguments.part):
        record("logs")


if __name__ == "__main__":
    main()
