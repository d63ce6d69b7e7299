"""Routing between language models from logs: LLMRouter and MMLU.

LLMRouter (nine models, 5,608 train rows, 5 folds shuffled with seed 0) and MMLU (two
models, 14,037 rows, 5 folds by prompt): TF-IDF, SVD and extremely randomised trees on
the prompt, everything fitted on four folds and measured on the fifth. The settings were
chosen once, by `validation_quality_` on training rows; no test fold had a say. Beside
each number: the best single model that the budget affords and the random mix that
spends the same, both picked with the test rows in hand, and the oracle.

    python benchmarks/bench_llm_routing.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings

import numpy as np
from _common import record, table
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline

from skroute.datasets import fetch_llmrouter, fetch_routellm_mmlu
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
        router = BudgetRouter(forest(short), costs=costs, cv=2 if short else 5).fit(
            A, Q[fit]
        )
        for policy in ("online", "batch"):
            router.set_params(policy=policy)
            curve = accuracy_cost_curve(router, B, Q[test], budgets)
            found[policy].append(curve.quality)
            spent[policy].append(curve.cost)
        # Ablation: a predictor that looks at nothing (DAP) knows each model's mean
        # only.
        mean = Q[fit].mean(axis=0)
        choice = [
            np.where(costs <= b * (1 + 1e-12), mean, -1).argmax() for b in budgets
        ]
        found["none"].append(Q[test][:, choice].mean(axis=0))
        spent["none"].append(costs[choice])
        references.append(reference_curves(Q[test], costs, budgets))
    found = {name: np.mean(values, axis=0) for name, values in found.items()}
    spent = {name: np.mean(values, axis=0) for name, values in spent.items()}
    rows = []
    for k, budget in enumerate(budgets):
        beside = [
            np.mean([getattr(one, name)[k] for one in references])
            for name in ("single", "random", "oracle")
        ]
        of_both = [
            of[policy][k] for of in (found, spent) for policy in ("online", "batch")
        ]
        rows.append([f"{budget:.3g}", bars[k], *of_both, found["none"][k], *beside])
    header = [
        "budget",
        "bar",
        "online",
        "batch",
        "online cost",
        "batch cost",
        "no features",
    ]
    header += ["best single", "random", "oracle"]
    table(
        "LLMRouter: mean quality on test folds (best single model "
        f"{Q.mean(axis=0)[best]:.4f} at {costs[best]:.3g} USD per million tokens)",
        header,
        rows,
    )


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
        budgets,
        quality.mean(axis=0),
        cost.mean(axis=0),
        None,
        list(costs),
        quality,
        cost,
    )
    numbers = compare_with_references(
        curve, Q, costs, n_resamples=200 if short else 1000, random_state=0
    )
    rows = []
    for name in ("apgr", "cpt_50", "cpt_80"):
        gain = numbers[name]["gain"]
        means = [
            numbers[name][who].estimate
            for who in ("router", "random", "oracle", "gain")
        ]
        bar = ">= 0.1" if name == "apgr" else ""
        rows.append([name, *means, f"[{gain.low:.4f}, {gain.high:.4f}]", bar])
    header = ["number", "router", "random", "oracle", "gain", "95 % interval", "bar"]
    table(f"MMLU, Mixtral-8x7B and GPT-4, {len(Q)} rows out of fold", header, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--short", action="store_true", help="a part of it, under 20 seconds"
    )
    short = parser.parse_args().short
    warnings.simplefilter("ignore", UserWarning)
    llmrouter(short)
    mmlu(short)
    if not short:
        record("llm_routing")


if __name__ == "__main__":
    main()
