"""Learning while serving: ParetoBandit's four experiments, by its own protocol.

Three (in the fourth: four) language models, 1,824 test prompts in the published phases,
ceilings, orders and 20 seeds; each request shows the reward and the true cost of one
model. Features: 25 components of the prompt's words and three counts, fitted on val's
texts.

- **warm**: started from the table of val, 1,785 rows of three scores. ParetoBandit starts from a
  table of 8,374 rows that is not public, and then learns from one outcome for each row
  of val.
- **cold** (experiment 1): no table; one outcome for each row of val, as in ParetoBandit's pass;
  5 seeds.

Beside it ParetoBandit's published rows, the best single model under the ceiling, the
oracle (it knows all rewards and costs of the test rows) and the offline router of the
same start that learns nothing more. Constants were chosen on val alone.

    python benchmarks/bench_online.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from typing import NamedTuple

import _data
import numpy as np
from _common import record, table
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import FunctionTransformer, make_pipeline, make_union

from skroute.assignment import assignment_path
from skroute.routing import BudgetRouter, OnlineBudgetRouter

# The pass over val takes most of the time.
COLD_SEEDS = 5
CEILINGS = {"tight": 0.0003, "moderate": 0.000662, "loose": 0.00187}
# The newcomer last.
MODELS = LLAMA, MISTRAL, PRO, FLASH = (
    "llama-3.1-8b",
    "mistral-large",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
)


class Table(NamedTuple):
    X: np.ndarray
    Q: np.ndarray
    C: np.ndarray


def counts(texts):
    digits = [sum(c.isdigit() for c in t) / (len(t) + 1) for t in texts]
    lines = np.log([t.count("\n") + 1 for t in texts])
    return np.column_stack([np.log([len(t) + 1 for t in texts]), lines, digits])


def tables():
    """val, test and the test rows of four models."""
    words = TfidfVectorizer(sublinear_tf=True, min_df=3, ngram_range=(1, 2))
    reader = make_union(
        make_pipeline(words, TruncatedSVD(25, random_state=0)),
        FunctionTransformer(counts),
    )
    found = []
    for split, n_models in (("val", 3), ("test", 3), ("test", 4)):
        log = _data.paretobandit(split, n_models)
        at = [
            [short in name for name in log.names].index(True)
            for short in MODELS[:n_models]
        ]
        X = reader.transform(log.prompt) if found else reader.fit_transform(log.prompt)
        found.append(Table(X, log.quality[:, at], log.cost[:, at]))
    return found


def started(val, budget, *, cold=None):
    """A router from the table of val, or one that learned from one outcome of each row."""
    prices = dict(zip((LLAMA, MISTRAL, PRO), val.C.mean(axis=0).tolist()))
    router = OnlineBudgetRouter(prices)
    if cold is None:
        # The lowest ceiling is the mean of the cheapest model, and estimates of it are
        # above.
        return router.fit(val.X, val.Q, val.C).set_params(budget=float(budget))
    router.set_params(budget=float(budget)).partial_fit(
        val.X[cold[:1]], np.full((1, 3), np.nan)
    )
    serve(router, val, cold)
    return router


def serve(router, log, order, *, reward=None, cost=None):
    """Requests in turn, each told at once: mean reward, mean cost, the choices."""
    Q = log.Q if reward is None else reward
    C = log.C if cost is None else cost
    at = {name: k for k, name in enumerate(MODELS)}
    chosen = np.empty(len(order), dtype=np.int64)
    for t, i in enumerate(order):
        decision = router.decide(log.X[i])
        chosen[t] = k = at[decision.name]
        router.commit(decision, quality=float(Q[i, k]), cost=float(C[i, k]))
    return float(Q[order, chosen].mean()), float(C[order, chosen].mean()), chosen


def beside(log, budget):
    """Best single model under the ceiling, and the oracle."""
    Q, C = log.Q, log.C
    fits = C.mean(axis=0) <= budget
    single = float(Q.mean(axis=0)[fits].max()) if fits.any() else np.nan
    if budget < C.min(axis=1).mean():
        return single, np.nan
    return single, assignment_path(Q, C).objective(budget)


def offline(val, log, budget):
    """BudgetRouter of the same start: reward and spend over the ceiling on the test rows."""
    router = BudgetRouter(Ridge(10.0), cost_estimator=Ridge(10.0), budget=None)
    router.fit(val.X, val.Q, costs=val.C)
    if budget < router.min_budget_:
        return np.nan, np.nan
    route = router.route(log.X, budget=budget)
    rows = np.arange(len(route))
    return float(log.Q[rows, route].mean()), float(log.C[rows, route].mean() / budget)


def stationary(val, test, seeds, published, short):
    means = val.C.mean(axis=0)
    ceilings = np.geomspace(means[0], means[2], 7)
    rows = []
    for k, ceiling in enumerate(ceilings):
        if short and k not in (1, 4):
            continue
        found = {"warm": [], "cold": []}
        for seed in range(seeds):
            rng = np.random.default_rng(3000 + seed)
            first, then = rng.permutation(len(val.X)), rng.permutation(len(test.X))
            for kind in found if seed < COLD_SEEDS else ("warm",):
                router = started(val, ceiling, cold=None if kind == "warm" else first)
                found[kind].append(serve(router, test, then)[:2])
        single, oracle = beside(test, ceiling)
        theirs = published["01_stationary"]["paced"][k]
        row = {"ceiling": ceiling}
        for kind, runs in found.items():
            quality, cost = np.mean(runs, axis=0)
            row |= {kind: quality, f"{kind} spend": cost / ceiling}
        row |= {"paretobandit": theirs["reward"], "its spend": theirs["utilisation"]}
        row["single"], row["oracle"] = single, oracle
        row["offline"], row["offline spend"] = offline(val, test, ceiling)
        rows.append(row)
    return rows


def phases(val, test, seeds, published, short, what):
    """Price drift or silent loss of quality: three phases of 608 requests."""
    order = np.random.default_rng(42).permutation(len(test.X))
    parts = [order[:608], order[608:1216], order[:608]]
    cheap, failed = test.C.copy(), test.Q.copy()
    cheap[:, 2] *= 0.20 / 11.25
    failed[:, 1] = 0.75
    base = 8000 if what == "drift" else 6000
    rows = []
    for name, ceiling in CEILINGS.items():
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng(base + seed)
            rng.permutation(len(val.X))
            router = started(val, ceiling)
            prices = dict(router.costs)
            run = []
            for phase, part in enumerate(parts):
                changes = {}
                if what == "drift":
                    factor = 0.20 / 11.25 if phase == 1 else 1.0
                    router.set_params(costs=prices | {PRO: prices[PRO] * factor})
                    changes = {"cost": cheap} if phase == 1 else {}
                elif phase == 1:
                    changes = {"reward": failed}
                reward, cost, _ = serve(router, test, rng.permutation(part), **changes)
                run += [reward, cost / ceiling]
            runs.append(run)
        means = np.mean(runs, axis=0)
        for phase, part in enumerate(parts):
            log = Table(
                test.X, failed if what == "failure" and phase == 1 else test.Q, test.C
            )
            log = log._replace(C=cheap if what == "drift" and phase == 1 else test.C)
            log = Table(*(values[part] for values in log))
            single, oracle = beside(log, ceiling)
            off, off_spend = offline(val, log, ceiling)
            at = f"phase{phase + 1}"
            if what == "drift":
                drift = published["02_price_drift"]
                theirs = drift["paretobandit"][name][at]
                spend = drift["spend_over_ceiling"][name]["paretobandit"][at]
            else:
                loss = published["03_silent_quality_loss"]["results"]
                theirs = spend = loss[name]["paretobandit"][at]
            theirs, spend = theirs["reward"], spend["spend_over_ceiling"]
            row = {"ceiling": name, "phase": phase + 1, "online": means[2 * phase]}
            row |= {
                "spend": means[2 * phase + 1],
                "paretobandit": theirs,
                "its spend": spend,
            }
            row |= {
                "single": single,
                "oracle": oracle,
                "offline": off,
                "offline spend": off_spend,
            }
            rows.append(row)
        if short:
            break
    return rows


def adopted_at(chosen):
    """First step from 121 on at which the newcomer's share of 100 is 0.1 for 50 steps."""
    share = np.convolve(chosen == 3, np.ones(100) / 100)[: len(chosen)]
    run = 0
    for step in range(120, len(chosen)):
        run = run + 1 if share[step] >= 0.10 - 1e-12 else 0
        if run == 50:
            return step - 48
    return np.nan


def onboarding(val, test, seeds, published, short):
    rows = []
    changes = {"good_cheap": (1, 1), "good_expensive": (10, 1), "bad_cheap": (1, 0.5)}
    ceilings = CEILINGS | {"unconstrained": np.inf}
    # Its price list stands beside the others' prices, as 0.30 / 2.50 beside 1.25 / 10
    # dollars.
    for what, (factor, worse) in changes.items():
        Q, C = test.Q.copy(), test.C.copy()
        Q[:, 3] *= worse
        C[:, 3] *= factor
        for name, ceiling in ceilings.items():
            runs = []
            for seed in range(seeds):
                rng = np.random.default_rng(9000 + seed)
                rng.permutation(len(val.X))
                router = started(val, ceiling)
                price = router.costs[PRO] * 0.25 * factor
                router.add_choice(FLASH, cost=price, n_trials=20)
                order = rng.permutation(len(test.X))
                reward, cost, chosen = serve(router, test, order, reward=Q, cost=C)
                last = (chosen[-200:] == 3).mean()
                runs.append(
                    [reward, cost, (chosen == 3).mean(), last, adopted_at(chosen)]
                )
            runs = np.array(runs)
            theirs = published["04_onboarding"]["results"][what][name]
            steps = runs[:, 4]
            row = {"newcomer": what, "ceiling": name, "online": runs[:, 0].mean()}
            row["spend"] = runs[:, 1].mean() / ceiling
            row["paretobandit"] = theirs["phase2_reward"]
            row["its spend"] = theirs["phase2_cost"] / ceiling
            row["share"] = runs[:, 2].mean()
            row["share, last 200"] = runs[:, 3].mean()
            row["its share, last 200"] = theirs["share_flash_last_200"]
            row["adopted"] = np.isfinite(steps).mean()
            row["by step 140"] = (steps <= 140).mean()
            rows.append(row)
            if short:
                break
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    warnings.simplefilter("ignore")
    val, test, test_k4 = tables()
    published = json.loads((_data.FOLDER / "paretobandit/published.json").read_text())
    about = (1 if short else 20), published, short
    for name, rows in {
        "stationary": stationary(val, test, *about),
        "drift": phases(val, test, *about, "drift"),
        "failure": phases(val, test, *about, "failure"),
        "onboarding": onboarding(val, test_k4, *about),
    }.items():
        table(name, list(rows[0]), [list(row.values()) for row in rows])
    if not short:
        record("online")


if __name__ == "__main__":
    main()
