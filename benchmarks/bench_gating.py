"""Adapt against GreedyMiser, L1, BudgetPrune and LightGBM with the same feature penalties.

    python benchmarks/bench_gating.py [--short] [--part letter] [--seeds 10 11]
    python benchmarks/bench_gating.py --merge FOLDER

Seeds of a part may be measured by independent processes (``--pieces FOLDER``) and put together.

Every method is swept on training rows, chosen on validation rows and reported on test
rows. Splits are random, with the seeds as printed; settings and rules were chosen on seeds
0 to 3, which are not reported. The rule for "saved": the cheapest setting that is on
validation rows less accurate than the full model by at most one point less two standard
errors of that difference. Adapt with ``p_full=0`` is GreedyMiser; a budget is spent on a gate
only where that is, on validation rows, more accurate by two standard errors. Fewer let the best
of a hundred settings win by luck.
"""

import argparse
import time

import lightgbm
import numpy as np
from _harness import alternate, claim, keep_piece, read_pieces, save, table
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score

from skroute.base import Routed
from skroute.datasets import (
    fetch_adult,
    fetch_covertype_sample,
    fetch_letter,
    make_four_clusters,
)
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    BudgetPruneClassifier,
    GreedyMiserClassifier,
    L1GatingClassifier,
    LinearGate,
    adapt_grid,
)
from skroute.gating._levels import row_keys

BARS = {"letter": "bar 40", "covertype": "bar 35"}
STANDARD_ERRORS = 2
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
        "p_full": (0.05, 0.1, 0.2),
        "gammas": np.geomspace(2e-3, 2e-2, 14),
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
        "p_full": (0.1, 0.3),
        "gammas": np.geomspace(3e-4, 1e-2, 12),
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
        "p_full": (0.1, 0.3),
        "gammas": np.geomspace(1e-4, 1e-2, 12),
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
    """What the methods cost and answer on one split.

    A candidate is a tuple: mean cost and correct rows on validation rows, mean cost and
    accuracy on test rows.
    """

    def __init__(self, full, val, test, budgets):
        self.rows = val, test
        self.budgets = budgets
        self.full = [full.predict(X) for X, _ in self.rows]

    def judge(self, found):
        """Candidate from (answers, costs) on validation and on test rows."""
        (on_val, cost), (on_test, test_cost) = found
        right = on_val == self.rows[0][1]
        return cost.mean(), right, test_cost.mean(), accuracy_score(self.rows[1][1], on_test)

    def alone(self, model):
        """The one candidate that a fitted model is."""
        routed = [model.predict_routed(X) for X, _ in self.rows]
        return [self.judge([(r.y_pred, r.cost) for r in routed])]

    def gated(self, model):
        """A fitted gate as it is, without the full model, and held to each budget.

        The gate, the cheap and the full model are asked once for all of them.
        """
        costs = model.cost_table_
        cheap = [model.predict(X, budget=costs["cheap"]) for X, _ in self.rows]
        candidates = []
        if model.cuts_ is None:
            # It gained nothing on held-out rows, and sends nobody.
            return [
                self.judge([(answer, np.full(len(answer), costs["cheap"])) for answer in cheap])
            ]
        gates = [model.gate_function(X) for X, _ in self.rows]
        for budget in (np.inf, costs["cheap"], *self.budgets):
            if budget < costs["cheap"]:
                continue
            found = []
            for (X, _), full, answer, gate in zip(self.rows, self.full, cheap, gates):
                read = X[:, model.pair_.gate_features]
                sent = model._send(gate, budget, lambda read=read: row_keys(read))
                cost = np.where(sent, costs["full"], costs["cheap"])
                found.append((np.where(sent, full, answer), cost))
            candidates.append(self.judge(found))
            if budget < np.inf and candidates[-1][0] >= candidates[0][0]:
                break
        return candidates


def best_within(candidates, budget):
    """The candidate that is right most often on validation rows; None if all cost more."""
    within = [c for c in candidates if c[0] <= budget]
    return max(within, key=lambda c: (c[1].mean(), -c[0])) if within else None


def sure_lead(right, other):
    """Mean difference of correct rows, paired, less what may be luck."""
    lead = right.astype(float) - other
    return lead.mean() - STANDARD_ERRORS * lead.std() / np.sqrt(len(lead))


def at_budgets(candidates, budgets, simple=()):
    """Test cost and accuracy of what is best on validation rows within each budget.

    A `simple` candidate is kept unless the best of the others surely leads it.
    """
    chosen = []
    for budget in budgets:
        best, plain = best_within(candidates, budget), best_within(simple, budget)
        if plain is not None and (best is None or sure_lead(best[1], plain[1]) <= 0):
            best = plain
        chosen.append(best[2:] if best is not None else (np.nan, np.nan))
    return np.array(chosen)


def cheapest(candidates, full_right):
    """The cheapest within one point of the full model, by validation rows."""
    good = [c for c in candidates if sure_lead(c[1], full_right) >= -0.01]
    # If none is that good, the best.
    return min(good, key=lambda c: c[0]) if good else best_within(candidates, np.inf)


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
    fine = np.geomspace(gammas[0], 2 * gammas[-1], 21)
    steps = 3
    if short:
        gammas, p_full, fine, steps = gammas[5:7], p_full[-1:], fine[::7], 0
    trees = {"n_estimators": rounds, **shared}
    forest = RandomForestClassifier(
        100, oob_score=True, random_state=seed, min_samples_leaf=task.get("leaf", 1)
    )
    start = time.process_time()
    adapt = AdaptGatingClassifier(forest, gate=BoostedGate(n_estimators=rounds), **shared)
    grid = adapt_grid(adapt, *train, *val, p_full=p_full, gamma=gammas)
    full = grid.estimators[0].estimator_
    contest = Contest(full, val, test, task["budgets"])
    found = {"adapt": [c for model in grid.estimators for c in contest.gated(model)]}
    seconds = {"adapt": time.process_time() - start}

    def timed(method, candidates):
        now = time.process_time()
        found[method] = candidates()
        seconds[method] = time.process_time() - now

    def sweep(models, judge):
        return [c for model in models for c in judge(model.fit(*train))]

    miser = [GreedyMiserClassifier(gamma=g, **trees) for g in fine]
    timed("greedy miser", lambda: sweep(miser, contest.alone))
    if not shared:
        costs = np.ones(task["X"].shape[1])
        peers = [LightGBMPenalties(g, rounds, costs) for g in fine]
        timed("lightgbm + penalties", lambda: sweep(peers, contest.alone))
    # Every share of rows is a candidate: a gate that may send all is held to each budget.
    frozen = FrozenEstimator(full)
    in_turn = [
        L1GatingClassifier(frozen, p_full=1.0, gamma=g, **shared)
        for g in np.geomspace(3e-3, 0.3, 6)[:: 4 if short else 1]
    ]
    timed("L1", lambda: sweep(in_turn, contest.gated))
    sizes = (1, 4) if short else (1, 4, 16)
    prices = task["prices"][:: 4 if short else 2]
    timed(
        "budget prune",
        lambda: budget_prune(contest, train, prices, sizes, steps, random_state=seed, **shared),
    )
    # GreedyMiser is Adapt with p_full=0.
    both = found["adapt"] + found["greedy miser"]
    *_, cost, accuracy = cheapest(both, contest.full[0] == val[1])
    on_full = accuracy_score(test[1], contest.full[1])
    total = grid.estimators[0].group_costs_.sum()
    saved = [seed, on_full, accuracy, on_full - accuracy, cost, 100 * (1 - cost / total)]
    simple = {"adapt": found["greedy miser"]}
    chosen = {
        method: at_budgets(own, task["budgets"], simple.get(method, ()))
        for method, own in found.items()
    }
    took = ", ".join(f"{method} {s:.0f}" for method, s in seconds.items())
    print(f"{name}: seed {seed}, CPU seconds: {took}", flush=True)
    return {"saved": saved, "chosen": chosen, "seconds": seconds}


def report(name, splits):
    """Tables of one data set."""
    budgets = TASKS[name]()["budgets"]
    saved = [part["saved"] for part in splits]
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
    for method in splits[0]["chosen"]:
        chosen = np.array([part["chosen"][method] for part in splits], dtype=float)
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
        print(f"deepest deficit behind a peer: {abs(worst):.2f} standard errors (bar 1)")
    over = np.nanmax((costs["adapt"] - np.array(budgets)).mean(axis=0))
    print(f"mean cost of adapt on test rows exceeds no budget by more than {max(over, 0):.3f}")
    return {
        "saved": saved,
        # JSON has no NaN.
        "curves": {k: np.where(np.isnan(v), None, v).tolist() for k, v in curves.items()},
        "deficit": abs(worst) if np.isfinite(worst) else None,
        "seconds": [part["seconds"] for part in splits],
    }


def synthetic(short):
    X, y, _ = make_four_clusters(400, random_state=0)
    full = RandomForestClassifier(50, oob_score=True, random_state=0)
    contenders = {
        "adapt-lin": [
            AdaptGatingClassifier(full, gate=LinearGate(max_iter=30), p_full=p, gamma=g)
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
    return rows


def speed(short):
    train, val, _ = split(letter(), 0, short)
    rounds = 20 if short else 100
    forest = RandomForestClassifier(100, oob_score=True, random_state=0)
    full = FrozenEstimator(forest.fit(*train))
    trees = BoostedGate(n_estimators=rounds)
    adapt = AdaptGatingClassifier(full, gate=trees, gamma=5e-3).fit(*train)
    pair, X = adapt.pair_, val[0]
    # Rounds without a gate tree leave an empty one, which is not counted.
    n_trees = int((pair.forest.trees.depths > 0).sum())
    params = {"num_leaves": 31, "learning_rate": 0.2, "min_child_samples": 1, "n_jobs": 1}
    peer = lightgbm.LGBMClassifier(n_estimators=n_trees, verbosity=-1, **params)
    fit = alternate(
        {
            "adapt": lambda: adapt.fit(*train),
            "lightgbm": lambda: peer.fit(*train),
            "f0": lambda: forest.predict_proba(train[0]),
        },
        repeats=2 if short else 7,
    )
    # What fit spends on asking the frozen full model is not training.
    ratio = (fit["adapt"] - fit["f0"]) / fit["lightgbm"]
    scores = pair.cheap_scores(X)
    times = alternate(
        {
            "cheap": lambda: pair.cheap_scores(X),
            # The gate starts from the cheap model's scores.
            "gate": lambda: pair.gate_scores(X, scores),
        },
        repeats=30,
        warmup=3,
    )
    overhead = times["gate"] / times["cheap"]
    rows = [
        [f"training / lightgbm with as many trees ({n_trees})", ratio, 3],
        ["gate / cheap model at prediction", overhead, 0.1],
    ]
    if not short:
        template = AdaptGatingClassifier(forest, gate=trees)
        seconds = alternate(
            {"path": lambda: adapt_grid(template, *train, *val, n_jobs=2)}, repeats=1, warmup=0
        )["path"]
        rows.append(["path of 49 settings, full model included, 2 threads [s]", seconds, 40])
    return {"fit": fit, "rows": rows}


ONCE = {"synthetic": synthetic, "speed": speed}


def show_once(part, found):
    """The table of a part that has no seeds."""
    if part == "synthetic":
        title = "four clusters: least cost with accuracy 1 (bar: 1.5 against 1.75)"
        table(title, ["", "cost"], found)
    else:
        table("speed on letter", ["what", "measured", "bar"], found["rows"])
    return found


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
        if result[name]["deficit"] is not None:
            what = f"{name}: deepest deficit at a budget behind {', '.join(PEERS)}"
            more = {"unit": "standard errors", "why": "a share of the spread between seeds"}
            more |= {"bar": 1} if bar else {}
            # One split that differs is a deficit of 1, up to rounding.
            deficit = round(result[name]["deficit"], 6)
            found.append(claim(f"{name}-deficit", what, deficit, better="lower", **more))
        curves = {k: np.array(v, dtype=float) for k, v in result[name]["curves"].items()}
        ours = curves.pop("adapt")
        for method, theirs in curves.items():
            margin = 100 * np.nanmean(ours - theirs, axis=1)
            error = margin.std(ddof=1) / np.sqrt(len(margin)) if len(margin) > 1 else 0.0
            found.append(
                claim(
                    f"{name}-{method}",
                    f"{name}: mean lead in accuracy over the budgets that both can meet",
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
        lower = {"better": "lower", "why": "the paper reports no times"}
        found.append(
            claim("gate", "gate / cheap model at prediction", rows[1][1], bar=0.1, **lower)
        )
        for what, seconds, bar in rows[2:]:
            found.append(
                claim("path", what.removesuffix(" [s]"), seconds, unit="s", bar=bar, **lower)
            )
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 15)))
    parser.add_argument("--part", choices=[*ONCE, *TASKS], nargs="+")
    parser.add_argument("--pieces", help="folder that keeps what each seed of each part gave")
    parser.add_argument("--merge", help="folder of pieces, which are put together")
    args = parser.parse_args()
    if args.merge:
        found, measured = read_pieces(args.merge)
    else:
        seeds = args.seeds[:1] if args.short else args.seeds
        parts = args.part or (["synthetic", "speed", "letter"] if args.short else [*ONCE, *TASKS])
        found, measured = {}, None
        for part in parts:
            found[part] = []
            for seed in seeds[:1] if part in ONCE else seeds:
                own = ONCE[part](args.short) if part in ONCE else one_split(part, seed, args.short)
                keep_piece(args.pieces, part, seed, own)
                found[part].append(own)
    result = {
        part: show_once(part, *own) if part in ONCE else report(part, own)
        for part, own in found.items()
    }
    whole = not args.short and {*ONCE, *TASKS} <= set(found)
    title = "Adapt: is the cheap model enough"
    save("gating", result, title=title, claims=claims(result), write=whole, measured=measured)


if __name__ == "__main__":
    main()
