"""Routing between language models from logs: LLMRouter, MMLU, streams and latency.

LLMRouter (nine models, 5,608 train rows, 5 folds shuffled with seed 0) and MMLU (two models,
14,037 rows, 5 folds by prompt): TF-IDF, SVD and extremely randomised trees on the prompt,
everything fitted on four folds and measured on the fifth. The settings were chosen once, by
`validation_quality_` on training rows; no test fold had a say. Beside each number: the best
single model that the budget affords and the random mix that spends the same, both picked with
the test rows in hand, and the oracle.

Streams: 16 threads, 100,000 requests, costs random below a known bound, 5 % of the calls fail,
demand above the cap. Latency: the online choice, vectorised and for one row.

    python benchmarks/bench_llm_routing.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import threading
import time
import warnings

import numpy as np
from _common import record, table
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline

from skroute.assignment import choose_at_price
from skroute.datasets import fetch_llmrouter, fetch_routellm_mmlu
from skroute.ledgers import BudgetExhaustedError
from skroute.metrics import (
    AccuracyCostCurve,
    accuracy_cost_curve,
    compare_with_references,
    reference_curves,
)
from skroute.routing import BudgetRouter


def features():
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=3), TruncatedSVD(50, random_state=0)
    )


def forest(short):
    return ExtraTreesRegressor(
        10 if short else 100, min_samples_leaf=5, max_features=0.3, random_state=0
    )


def llmrouter(short):
    log = fetch_llmrouter()
    train = ~log.is_test
    X, Q, costs = log.data[train], log.quality[train], log.costs
    best = Q.mean(axis=0).argmax()
    budgets = np.array([costs[best] / 6, costs[best] / 2, costs[best]])
    bars = [0.585, 0.6213, 0.6413]
    found = {name: [] for name in ("online", "batch", "none")}
    spent = {name: [] for name in found}
    references = []
    folds = KFold(5, shuffle=True, random_state=0).split(X)
    for _, (fit, test) in zip(range(1 if short else 5), folds):
        embed = features().fit(X[fit])
        A, B = embed.transform(X[fit]), embed.transform(X[test])
        router = BudgetRouter(forest(short), costs=costs, cv=2 if short else 5).fit(A, Q[fit])
        for policy in ("online", "batch"):
            router.set_params(policy=policy)
            curve = accuracy_cost_curve(router, B, Q[test], budgets)
            found[policy].append(curve.quality)
            spent[policy].append(curve.cost)
        # Ablation: a predictor that looks at nothing (DAP) knows each model's mean only.
        mean = Q[fit].mean(axis=0)
        choice = [np.where(costs <= b * (1 + 1e-12), mean, -1).argmax() for b in budgets]
        found["none"].append(Q[test][:, choice].mean(axis=0))
        spent["none"].append(costs[choice])
        references.append(reference_curves(Q[test], costs, budgets))
    found = {name: np.mean(values, axis=0) for name, values in found.items()}
    spent = {name: np.mean(values, axis=0) for name, values in spent.items()}
    rows = []
    for k, budget in enumerate(budgets):
        rows.append(
            [
                f"{budget:.3g}",
                bars[k],
                *(found[policy][k] for policy in ("online", "batch")),
                *(spent[policy][k] for policy in ("online", "batch")),
                found["none"][k],
                *(np.mean([getattr(r, n)[k] for r in references]) for n in ("single", "random")),
                np.mean([r.oracle[k] for r in references]),
            ]
        )
    header = ["budget", "bar", "online", "batch", "online cost", "batch cost", "no features"]
    header += ["best single", "random", "oracle"]
    table(
        f"LLMRouter: mean quality on test folds (best single model {Q.mean(axis=0)[best]:.4f} "
        f"at {costs[best]:.3g} USD per million tokens)",
        header,
        rows,
    )
    return [dict(zip(header, row)) for row in rows]


def mmlu(short):
    log = fetch_routellm_mmlu()
    keep = np.flatnonzero(~log.contaminated)
    if short:
        keep = np.random.RandomState(0).permutation(keep)[:3000]
    X, Q, costs = log.data[keep], log.quality[keep].astype(float), log.costs
    prompts = np.unique(X.astype(str), return_inverse=True)[1]
    budgets = np.linspace(costs[0], costs[1], 21)
    quality, cost = np.empty((len(X), 21)), np.empty((len(X), 21))
    done = np.zeros(len(X), dtype=bool)
    # 105 prompts occur twice: both stand in one fold.
    folds = GroupKFold(5, shuffle=True, random_state=0).split(X, groups=prompts)
    for _, (fit, test) in zip(range(1 if short else 5), folds):
        embed = features().fit(X[fit])
        router = BudgetRouter(forest(short), costs=costs, cv=2 if short else 5)
        router.fit(embed.transform(X[fit]), Q[fit])
        curve = accuracy_cost_curve(router, embed.transform(X[test]), Q[test], budgets)
        quality[test], cost[test], done[test] = curve.row_quality, curve.row_cost, True
    quality, cost, Q = quality[done], cost[done], Q[done]
    curve = AccuracyCostCurve(
        budgets, quality.mean(axis=0), cost.mean(axis=0), None, list(costs), quality, cost
    )
    numbers = compare_with_references(
        curve, Q, costs, n_resamples=200 if short else 1000, random_state=0
    )
    rows = []
    for name in ("apgr", "cpt_50", "cpt_80"):
        gain = numbers[name]["gain"]
        rows.append(
            [
                name,
                *(numbers[name][who].estimate for who in ("router", "random", "oracle")),
                gain.estimate,
                f"[{gain.low:.4f}, {gain.high:.4f}]",
                ">= 0.1" if name == "apgr" else "",
            ]
        )
    header = ["number", "router", "random", "oracle", "gain", "95 % interval", "bar"]
    table(f"MMLU, Mixtral-8x7B and GPT-4, {len(Q)} rows out of fold", header, rows)
    return [dict(zip(header, row)) for row in rows]


def toy_router(n_models=9, n_rows=5000):
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 20))
    Q = rng.random((n_rows, n_models)) + X[:, :n_models]
    costs = np.sort(rng.uniform(0.1, 1, n_models))
    return BudgetRouter(Ridge(), costs=costs, budget=0.5, cv=2).fit(X, Q), X


def streams(short):
    router, X = toy_router()
    n, n_threads = (10_000 if short else 100_000), 16
    quality = router.predict_quality(X)
    rng = np.random.default_rng(1)
    luck, fails = rng.uniform(0.3, 1.0, n), rng.random(n) < 0.05
    bound = router.costs_ * 1.5
    rows = []
    for known in (True, False):
        # What is wanted without a cap costs about 0.57 per request.
        cap = n * (0.45 if known else 0.3)
        stream = router.stream(cap, n if known else None, max_costs=bound)
        paid = [[] for _ in range(n_threads)]
        counts = np.zeros((n_threads, 3), dtype=int)
        worst = np.zeros(n_threads)

        def serve(thread, stream=stream, paid=paid, counts=counts, worst=worst):
            for k in range(thread, n, n_threads):
                try:
                    ticket = stream.reserve(quality[k % len(quality)])
                except BudgetExhaustedError:
                    counts[thread, 2] += 1
                    continue
                if fails[k]:
                    stream.refund(ticket)
                    counts[thread, 1] += 1
                else:
                    cost = luck[k] * bound[ticket.choice]
                    stream.commit(ticket, cost)
                    paid[thread].append(cost)
                    counts[thread, 0] += 1
                status = stream.status()
                worst[thread] = max(worst[thread], status.spent + status.reserved)

        threads = [threading.Thread(target=serve, args=(i,)) for i in range(n_threads)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
        status = stream.status()
        lost = n - counts.sum() + status.n_open
        wrong = abs(status.spent - sum(map(sum, paid)))
        rows.append(
            [
                "known" if known else "unknown",
                worst.max() / cap,
                status.spent / cap,
                status.n_committed,
                status.n_refunded,
                status.n_rejected,
                int(lost),
                wrong,
                seconds / n * 1e6,
            ]
        )
    header = ["requests", "peak / cap", "spent / cap", "answered", "failed", "rejected", "lost"]
    header += ["ledger error", "us per request"]
    table(
        f"Streams: {n_threads} threads, {n} requests (bars: peak <= 1, spent >= 0.95, lost 0)",
        header,
        rows,
    )
    return [dict(zip(header, row)) for row in rows]


def seconds_each(call, n):
    for _ in range(100):
        call()
    rounds = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(n):
            call()
        rounds.append((time.perf_counter() - start) / n)
    return float(np.median(rounds))


def latency(short):
    router, X = toy_router()
    values = np.tile(router.predict_quality(X), (2 if short else 20, 1))
    one = values[:1]
    stream, known = router.stream(1e9), router.stream(1e9, 10**7)
    n = 300 if short else 3000

    def whole(array):
        return choose_at_price(array, router.costs_, router.price_)

    per_cell = seconds_each(lambda: whole(values), 1) / values.size
    rows = [
        ["choose_at_price, per row and model", per_cell * 1e6, "< 1"],
        ["stream.reserve + commit, one row", 0.0, "< 60"],
        ["the same, n_expected known", 0.0, "< 60"],
        ["choose_at_price, one row (checks arrays)", seconds_each(lambda: whole(one), n) * 1e6, ""],
        ["stream.route + commit, one row (Ridge estimates it)", 0.0, ""],
        ["router.route, one row (Ridge estimates it)", 0.0, ""],
    ]
    rows[1][1] = seconds_each(lambda: stream.commit(stream.reserve(one[0])), n) * 1e6
    rows[2][1] = seconds_each(lambda: known.commit(known.reserve(one[0])), n) * 1e6
    rows[4][1] = seconds_each(lambda: stream.commit(stream.route(X[:1])), n // 10) * 1e6
    rows[5][1] = seconds_each(lambda: router.route(X[:1]), n // 10) * 1e6
    table("Online choice among nine models", ["call", "microseconds", "bar"], rows)
    return [dict(zip(["call", "microseconds", "bar"], row)) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a part of it, under 20 seconds")
    short = parser.parse_args().short
    warnings.simplefilter("ignore", UserWarning)
    for part in (latency, streams, llmrouter, mmlu):
        part(short)
    if not short:
        record("llm_routing")


if __name__ == "__main__":
    main()
