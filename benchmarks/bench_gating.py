"""Adapt against GreedyMiser, L1, BudgetPrune and LightGBM with the same feature penalties.

    python benchmarks/bench_gating.py [--short] [--seeds 5] [--only letter]

Every method is swept on training rows, chosen on validation rows and reported on test
rows. Splits are random, with the seeds as printed; settings and rules were chosen on the
training and validation rows of seeds 0 and 1, which are not reported. The rule for "saved":
the cheapest setting that is on validation rows less accurate than the full model by at
most one point less one standard error of that difference.
"""

import argparse
import time

import lightgbm
import numpy as np
from _harness import alternate, claim, save, table
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import Routed
from skroute.datasets import (
    fetch_adult,
    fetch_covertype_sample,
    fetch_letter,
    make_four_clusters,
)
from skroute.gating import (
    AdaptGatingClassifier,
    BudgetPruneClassifier,
    GreedyMiserClassifier,
    L1GatingClassifier,
    adapt_path,
)
from skroute.gating._forest import forest_scores
from skroute.gating._objective import doubt

FIRST_SEED = 10
BARS = {"letter": "bar 40", "covertype": "bar 35"}
PEERS = ("greedy miser", "L1", "lightgbm + penalties")

# Groups of Adult that one question or one register answers, with made-up prices.
ADULT_GROUPS = {
    "form": (["age", "sex", "race", "native-country"], 1.0),
    "family": (["marital-status", "relationship"], 2.0),
    "school": (["education", "education-num"], 2.0),
    "job": (["workclass", "occupation", "hours-per-week"], 4.0),
    "tax": (["capital-gain", "capital-loss"], 10.0),
    "census": (["fnlwgt"], 1.0),
}


def letter():
    data = fetch_letter()
    return {
        "X": np.asarray(data.data, dtype=float),
        "y": (np.asarray(data.target) >= "N").astype(int),
        "sizes": (12000, 4000, 4000),
        "rounds": 200,
        "p_full": (0.05, 0.1, 0.2, 0.3, 0.45, 0.65),
        "gammas": np.geomspace(2e-3, 2e-2, 7),
        "prices": np.geomspace(5e-3, 8e-2, 5),
        "budgets": (4, 5, 6, 7, 8, 9, 10, 12),
    }


def covertype():
    data = fetch_covertype_sample()
    return {
        "X": np.asarray(data.data, dtype=float),
        "y": np.asarray(data.target).astype(int),
        "sizes": (9000, 3000, 3000),
        "rounds": 60,
        "p_full": (0.1, 0.2, 0.3, 0.45),
        "gammas": np.geomspace(3e-4, 8e-3, 6),
        "prices": np.geomspace(1e-3, 3e-2, 5),
        "budgets": (5, 10, 15, 20, 25, 30, 40),
    }


def adult():
    data = fetch_adult()
    names = list(data.feature_names)
    groups = {g: [names.index(c) for c in columns] for g, (columns, _) in ADULT_GROUPS.items()}
    return {
        "X": np.asarray(data.data, dtype=float),
        "y": np.asarray(data.target).astype(int),
        "sizes": (24000, 8000, 16842),
        "rounds": 60,
        "p_full": (0.05, 0.1, 0.2, 0.3, 0.45),
        "gammas": np.geomspace(1e-4, 1e-2, 6),
        "prices": np.geomspace(1e-4, 1e-2, 5),
        "budgets": (3, 5, 8, 12, 16, 20),
        "groups": {
            "feature_groups": groups,
            "feature_costs": {g: cost for g, (_, cost) in ADULT_GROUPS.items()},
        },
        "leaf": 5,
    }


TASKS = {"letter": letter, "covertype": covertype, "adult": adult}


def split(task, seed, short):
    order = np.random.default_rng(seed).permutation(len(task["y"]))
    sizes = np.array(task["sizes"]) // (6 if short else 1)
    parts = np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])
    return [(task["X"][part], task["y"][part]) for part in parts]


class Contest:
    """Candidates of one method on one split, with what they cost and answer.

    A candidate is a row ``(cost, accuracy, lead, error of the lead)`` on validation rows and
    ``(cost, accuracy)`` on test rows; the lead is that over the full model.
    """

    def __init__(self, full, val, test, budgets):
        self.rows = val, test
        self.budgets = budgets
        self.full = [full.predict(X) for X, _ in self.rows]

    def judge(self, found):
        """Candidate from (answers, costs) on validation and on test rows."""
        (on_val, cost), (on_test, test_cost) = found
        right = on_val == self.rows[0][1]
        lead = right.astype(float) - (self.full[0] == self.rows[0][1])
        error = lead.std() / np.sqrt(len(lead))
        accuracy = accuracy_score(self.rows[1][1], on_test)
        return cost.mean(), right.mean(), lead.mean(), error, test_cost.mean(), accuracy

    def alone(self, model):
        """The one candidate that a fitted model is."""
        routed = [model.predict_routed(X) for X, _ in self.rows]
        return [self.judge([(r.y_pred, r.cost) for r in routed])]

    def gated(self, model):
        """A fitted gate as it is, without the full model, and held to each budget.

        The full model is asked once for all of them, and not by each.
        """
        costs = model.cost_table_
        cheap = [model.predict(X, budget=costs["cheap"]) for X, _ in self.rows]
        candidates = []
        for budget in (None, costs["cheap"], *self.budgets):
            if budget is not None and budget < costs["cheap"]:
                continue
            found = []
            for (X, _), full, answer in zip(self.rows, self.full, cheap):
                sent = model.route(X, budget=budget) == 1
                cost = np.where(sent, costs["full"], costs["cheap"])
                found.append((np.where(sent, full, answer), cost))
            candidates.append(self.judge(found))
            if budget is not None and candidates[-1][0] >= candidates[0][0]:
                break
        return candidates


def at_budgets(candidates, budgets):
    """Test cost and accuracy of what is best on validation rows within each budget."""
    chosen = []
    for budget in budgets:
        within = candidates[candidates[:, 0] <= budget]
        best = within[np.lexsort((within[:, 0], -within[:, 1]))[:1]]
        chosen.append(best[0, 4:] if len(best) else (np.nan, np.nan))
    return np.array(chosen)


def cheapest(candidates):
    """The cheapest within one point of the full model, by validation rows."""
    good = candidates[candidates[:, 2] - candidates[:, 3] >= -0.01]
    # If none is that good, the best.
    good = good if len(good) else candidates[[candidates[:, 1].argmax()]]
    return good[good[:, 0].argmin()]


def budget_prune(contest, train, prices, trees, steps, **params):
    """BudgetPrune over forest sizes; the price is bisected where cost falls most."""
    candidates = []
    for n_estimators in trees:
        fitted = {}
        todo = list(prices)
        for _ in range(len(prices) + steps):
            if not todo:
                order = sorted(fitted)
                falls = [fitted[a][0] - fitted[b][0] for a, b in zip(order, order[1:])]
                at = int(np.argmax(falls))
                todo.append(np.sqrt(order[at] * order[at + 1]))
            gamma = todo.pop()
            model = BudgetPruneClassifier(gamma=gamma, n_estimators=n_estimators, **params)
            (fitted[gamma],) = contest.alone(model.fit(*train))
        candidates += fitted.values()
    return candidates


class LightGBMPenalties:
    """LightGBM's own classifier with the penalties that Adapt charges: the peer."""

    def __init__(self, gamma, rounds, costs):
        self.gamma, self.rounds, self.costs = gamma, rounds, costs

    def fit(self, X, y):
        self.model = lightgbm.LGBMClassifier(
            n_estimators=self.rounds,
            learning_rate=0.2,
            num_leaves=31,
            reg_lambda=1.0,
            min_child_samples=1,
            min_child_weight=1.0,
            cegb_penalty_feature_coupled=(2 * len(X) * self.gamma * self.costs).tolist(),
            n_jobs=1,
            verbosity=-1,
        ).fit(X, y)
        return self

    def predict_routed(self, X):
        used = self.model.feature_importances_ > 0
        cost = np.full(len(X), self.costs[used].sum())
        return Routed(self.model.predict(X), np.zeros(len(X), dtype=int), cost)


def one_split(name, seed, short):
    """Candidates of all methods on one split."""
    task = TASKS[name]()
    train, val, test = split(task, seed, short)
    rounds, shared = (30 if short else task["rounds"]), task.get("groups", {})
    gammas, p_full = task["gammas"], task["p_full"]
    fine = np.geomspace(gammas[0], gammas[-1], 21)
    steps = 4
    if short:
        gammas, p_full, fine, steps = gammas[2:4], p_full[3:4], fine[::7], 0
    trees = {"n_estimators": rounds, **shared}
    forest = RandomForestClassifier(
        100, oob_score=True, random_state=seed, min_samples_leaf=task.get("leaf", 1)
    )
    start = time.perf_counter()
    path = adapt_path(
        AdaptGatingClassifier(forest, **trees), *train, *val, p_full=p_full, gamma=gammas
    )
    full = path.estimators[0].estimator_
    contest = Contest(full, val, test, task["budgets"])
    found = {"adapt": [c for model in path.estimators for c in contest.gated(model)]}
    seconds = {"adapt": time.perf_counter() - start}

    def timed(method, candidates):
        now = time.perf_counter()
        found[method] = candidates()
        seconds[method] = time.perf_counter() - now

    def sweep(models, judge):
        return [c for model in models for c in judge(model.fit(*train))]

    miser = [GreedyMiserClassifier(gamma=g, **trees) for g in fine]
    timed("greedy miser", lambda: sweep(miser, contest.alone))
    # GreedyMiser is Adapt with p_full=0.
    found["adapt"] += found["greedy miser"]
    if not shared:
        costs = np.ones(task["X"].shape[1])
        peers = [LightGBMPenalties(g, rounds, costs) for g in fine]
        timed("lightgbm + penalties", lambda: sweep(peers, contest.alone))
    # Every share of rows is a candidate: a gate that may send all is held to each budget.
    frozen = FrozenEstimator(full)
    in_turn = [
        L1GatingClassifier(frozen, p_full=1.0, gamma=g, **shared)
        for g in np.geomspace(1e-3, 0.3, 8)[:: 4 if short else 1]
    ]
    timed("L1", lambda: sweep(in_turn, contest.gated))
    sizes = (1, 3) if short else (1, 3, 10, 20)
    prices = task["prices"][:: 4 if short else 2]
    timed(
        "budget prune",
        lambda: budget_prune(contest, train, prices, sizes, steps, random_state=seed, **shared),
    )
    total = path.estimators[0].group_costs_.sum()
    result = {
        "seed": seed,
        "full": accuracy_score(test[1], contest.full[1]),
        "total": total,
        "seconds": seconds,
        "candidates": {method: np.array(rows) for method, rows in found.items()},
    }
    took = ", ".join(f"{method} {s:.0f}" for method, s in seconds.items())
    print(f"{name}: seed {seed}, seconds: {took}", flush=True)
    return result


def report(name, splits):
    """Tables of one data set."""
    budgets = TASKS[name]()["budgets"]
    saved = []
    for part in splits:
        _, _, _, _, cost, accuracy = cheapest(part["candidates"]["adapt"])
        saved.append(
            [part["seed"], part["full"], accuracy, part["full"] - accuracy, cost,
             100 * (1 - cost / part["total"])]
        )  # fmt: skip
    table(
        f"{name}: cheapest within 1 point of the full model (chosen on validation rows)",
        ["seed", "full", "adapt", "lost", "cost", "saved %"],
        saved,
    )
    mean = np.mean([row[3:6] for row in saved], axis=0)
    bar = BARS.get(name, "reported")
    print(
        f"mean: lost {100 * mean[0]:.2f} points, cost {mean[1]:.2f}, saved {mean[2]:.1f} % ({bar})"
    )
    curves, costs = {}, {}
    for method in splits[0]["candidates"]:
        chosen = np.array([at_budgets(part["candidates"][method], budgets) for part in splits])
        costs[method], curves[method] = chosen[..., 0], chosen[..., 1]
    table(
        f"{name}: test accuracy at a mean cost per sample of",
        ["method", *map(str, budgets), "mean"],
        [
            [method, *(f"{m:.4f}" for m in values.mean(axis=0)), f"{values.mean():.4f}"]
            for method, values in curves.items()
        ],
    )
    rows, worst = [], np.inf
    for method, values in curves.items():
        if method == "adapt":
            continue
        lead = curves["adapt"] - values
        mean = lead.mean(axis=0)
        cells = [f"{m:+.4f}" for m in mean]
        if len(splits) > 1:
            error = lead.std(axis=0, ddof=1) / np.sqrt(len(lead))
            cells = [f"{m:+.4f}±{e:.4f}" for m, e in zip(mean, error)]
            if method in PEERS:
                worst = min(
                    worst, np.nanmin(np.where(mean < 0, mean / np.maximum(error, 1e-12), 0))
                )
        rows.append([method, *cells, f"{np.nanmean(lead):+.4f}"])
    table(
        f"{name}: lead of adapt, paired over seeds (± one standard error)",
        ["over", *map(str, budgets), "mean (bar > 0)"],
        rows,
    )
    if np.isfinite(worst):
        print(f"deepest deficit behind {', '.join(PEERS)}: {-worst:.2f} standard errors (bar 1)")
    over = np.nanmax((costs["adapt"] - np.array(budgets)).mean(axis=0))
    print(f"mean cost of adapt on test rows exceeds no budget by more than {max(over, 0):.3f}")
    return {
        "saved": saved,
        "curves": {k: v.tolist() for k, v in curves.items()},
        "seconds": [part["seconds"] for part in splits],
    }


def synthetic():
    X, y, _ = make_four_clusters(400, random_state=0)
    full = RandomForestClassifier(50, oob_score=True, random_state=0)
    contenders = {
        "adapt-lin": [
            AdaptGatingClassifier(full, method="lin", p_full=p, gamma=g, max_iter=30)
            for p in (0.25, 0.5, 0.55, 0.6, 0.75)
            for g in (0.01, 0.02, 0.05)
        ],
        "L1": [
            L1GatingClassifier(full, p_full=p, gamma=g)
            for p in (0.25, 0.5, 0.6, 0.75, 0.76, 0.78, 0.8)
            for g in (0.01, 0.05, 0.1, 0.2, 0.25)
        ],
    }
    rows = []
    for name, models in contenders.items():
        found = [model.fit(X, y).predict_routed(X) for model in models]
        right = [routed.cost.mean() for routed in found if (routed.y_pred == y).all()]
        rows.append([name, min(right)])
    table("four clusters: least cost with accuracy 1 (bar: 1.5 against 1.75)", ["", "cost"], rows)
    return rows


def speed(short):
    task = letter()
    train, val, _ = split(task, 0, short)
    rounds = 20 if short else 100
    full = RandomForestClassifier(50, oob_score=True, random_state=0, max_depth=12).fit(*train)
    adapt = AdaptGatingClassifier(FrozenEstimator(full), gamma=5e-3, n_estimators=rounds)
    params = {"num_leaves": 31, "learning_rate": 0.2, "min_child_samples": 1, "n_jobs": 1}
    peer = lightgbm.LGBMClassifier(n_estimators=2 * rounds, verbosity=-1, **params)
    fit = alternate(
        {"adapt": lambda: adapt.fit(*train), "lightgbm, as many trees": lambda: peer.fit(*train)},
        repeats=2 if short else 5,
    )
    # What fit spends on asking the frozen full model is not training.
    asking = alternate({"f0": lambda: full.predict_proba(train[0])}, repeats=3)["f0"]
    ratio = (fit["adapt"] - asking) / fit["lightgbm, as many trees"]
    pair, X = adapt.pair_, val[0]
    base = pair["base"][:-1]
    times = alternate(
        {
            "cheap": lambda: forest_scores(pair["forest"], X, [0]) + base,
            "cheap and gate": lambda: gate_of(pair, X, base),
        },
        repeats=30,
        warmup=3,
    )
    overhead = times["cheap and gate"] / times["cheap"] - 1
    table(
        "speed on letter",
        ["what", "measured", "bar"],
        [
            ["training / lightgbm with as many trees", ratio, "3"],
            ["gate / cheap model at prediction", overhead, "0.10"],
        ],
    )
    return {"fit": fit, "asking": asking, "ratio": ratio, "overhead": overhead}


def gate_of(pair, X, base):
    scores = forest_scores(pair["forest"], X, [0]) + base
    trees = forest_scores(pair["forest"], X, [1])
    return pair["doubt"][0] * doubt(scores) + pair["doubt"][1] + trees[:, 0]


def claims(result):
    found = []
    for name, bar, published in (("letter", 40, 31), ("covertype", 35, 32), ("adult", None, None)):
        if name not in result:
            continue
        saved = np.mean([row[5] for row in result[name]["saved"]])
        lost = 100 * np.mean([row[3] for row in result[name]["saved"]])
        what = f"{name}: feature cost saved, {lost:.2f} points below the full model"
        peer = {"peer": 31, "against": "Adapt-Gbrt as published; same sizes, another split"}
        more = peer if name == "letter" else {"why": "the paper has another sample of the data"}
        more |= {"bar": bar} if bar else {"why": "the paper does not have this data"}
        more |= {"published": published} if name == "covertype" else {}
        found.append(claim(f"saved-{name}", what, saved, unit="%", **more))
        curves = {k: np.array(v) for k, v in result[name]["curves"].items()}
        ours = curves.pop("adapt")
        for method, theirs in curves.items():
            margin = 100 * (ours - theirs).mean(axis=1)
            margin = margin[np.isfinite(margin)]
            if len(margin):
                error = margin.std(ddof=1) / np.sqrt(len(margin)) if len(margin) > 1 else 0.0
                found.append(
                    claim(
                        f"{name}-{method}",
                        f"{name}: mean lead in accuracy over the budgets",
                        margin.mean(),
                        peer=0,
                        against=method,
                        unit="points",
                        within=2 * error,
                    )
                )
    if "synthetic" in result:
        (_, adapt), (_, l1) = result["synthetic"]
        what = "four clusters: least cost with accuracy 1"
        found.append(claim("clusters", what, adapt, peer=l1, against="L1", better="lower", bar=1.5))
    if rows := result.get("speed", {}).get("rows"):
        what = "training / LightGBM with as many trees"
        why = {"why": "Adapt alternates: it boosts several times"}
        peer = {"peer": 1, "against": "LightGBM", "better": "lower"}
        found.append(claim("training", what, rows[0][1], bar=3, within=0.1, **peer, **why))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=["synthetic", "speed", *TASKS])
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if args.short else args.seeds))
    parts = [args.only] if args.only else ["synthetic", "speed", *TASKS]
    if args.short and not args.only:
        parts = ["synthetic", "speed", "letter"]
    result = {}
    if "synthetic" in parts:
        result["synthetic"] = synthetic()
    if "speed" in parts:
        result["speed"] = speed(args.short)
    # The longest first, so that both cores are busy to the end.
    names = [name for name in ("covertype", "letter", "adult") if name in parts]
    jobs = [(name, seed) for name in names for seed in seeds]
    splits = Parallel(n_jobs=1 if args.short else 2)(
        delayed(one_split)(name, seed, args.short) for name, seed in jobs
    )
    for name in names:
        result[name] = report(name, [r for (n, _), r in zip(jobs, splits) if n == name])
    whole = not (args.short or args.only)
    title = "Adapt: is the cheap model enough"
    save("gating", result, title=title, claims=claims(result), write=whole)


if __name__ == "__main__":
    main()
