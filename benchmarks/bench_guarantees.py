"""What can be promised, and how much it costs. ``python benchmarks/bench_guarantees.py``

A. A finite batch (MMLU, 1,531 test rows): share served by the cheap model in agreement with the
   expensive one on .90 and .95 of the rows, delta .1, 150 labels, 500 seeds. The second score of
   the pair 8B to 405B adds whether GPT-4o-mini agrees, learned on the 285 train rows. Beside it
   `CertifiedRouter.certify_batch` around the cascade, with 400 operating points, 60 seeds.
B. CALM summaries: mean exit layer at a signed loss of .05, delta .1, 100 rows, 400 splits (seeds
   9000 on; the constants of betting were chosen on seeds 0 to 99, those of "exchangeable" were
   looked at on 1,000 of the summaries: the others are shown by themselves).
C. A loss budget over nine language models (llama-405b the reference, 95 %): four cascades to it
   are candidates of one `CertifiedRouter`, and the evidence chooses. Seeds 5000 on. Savings are
   over all test rows.
D. Validity of a promise of loss **and** cost: evidence drawn with replacement from the table, the
   table the truth, 500 draws each, a fifth of them may fail jointly where the promise is made at
   95 %: none may. Six cascades; routers on ParetoBandit and FER+; QWYC on Adult; Adapt on Letter.
   And the mutation that takes the cheapest point whose mean is within the limit.
E. `budget` alone: how much of it is used with 5,000 evidence rows.
F. `PromiseMonitor`: false alarms over 1,000 streams of 100,000 rows at the promise, and how soon
   it notices.

Any part can be measured alone (``--part B``): its numbers replace those that were kept, with their
date and commit. The bars are those of issue 15. The numbers of BARGAIN 0.1.3 were measured on the
same batch with 200 seeds in another run, the published ones are the papers'.
"""

import argparse
import csv
import gzip
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _harness import RESULTS, claim, provenance, save, table
from scipy.stats import beta
from sklearn.base import BaseEstimator
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.certified import CertifiedRouter, PromiseMonitor
from skroute.datasets import fetch_adult, fetch_frugalml, fetch_letter, frugal_split
from skroute.early_exit import QWYCEnsemble
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.guarantees import finite_population_test, fixed_sequence_test, mean_p_value
from skroute.members import RecordedClassifier
from skroute.routing import BudgetRouter, FrugalMCTClassifier

MODELS = {"8b": 2, "70b": 3, "405b": 4, "mini": 5, "q72": 7, "4o": 8}


# By agreement and pair: the share that BARGAIN serves, and the bar.
PEERS = {
    (0.9, "8b", "405b"): (0.436, 0.48),
    (0.9, "70b", "405b"): (0.702, 0.74),
    (0.9, "mini", "4o"): (0.602, 0.65),
    (0.95, "8b", "405b"): (0.325, 0.36),
    (0.95, "70b", "405b"): (0.510, 0.60),
    (0.95, "mini", "4o"): (0.461, 0.51),
}
# Shares to be saved at 1, 2 and 3 points.
SAVINGS = {
    ("mmlu", 500): (0.25, 0.42, 0.48),
    ("mmlu", 1000): (0.35, 0.47, 0.54),
    ("triviaqa", 500): (0.35, 0.58, 0.70),
    ("triviaqa", 1000): (0.44, 0.70, 0.80),
}


def load(data, name):
    with np.load(data / "cascades" / f"{name}.npz") as log:
        return {key: log[key] for key in log.files}


def limit99(count, n):
    """Upper 99 % limit of a share."""
    return float(beta.ppf(0.99, count + 1, n - count)) if count < n else 1.0


# A. Finite batch ------------------------------------------------------------------------


def agreement_score(log, cheap, expensive, helper):
    """P(the two agree), from the cheap model's confidence and the helper's answer."""
    conf = np.clip(log["confidence"].astype(float), -5, 0)
    same = (log["answer"][:, cheap] == log["answer"][:, helper]).astype(float)
    parts = [conf[:, cheap], np.log(1e-4 - conf[:, cheap]), np.sqrt(-conf[:, cheap])]
    parts += [same, same * np.sqrt(-conf[:, helper]), (1 - same) * np.sqrt(-conf[:, helper])]
    X, y = np.column_stack(parts), log["answer"][:, cheap] == log["answer"][:, expensive]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
    test = log["is_test"]
    return model.fit(X[~test], y[~test]).decision_function(X[test])


def finite_batch(data, n_seeds):
    log = load(data, "mmlu")
    test = log["is_test"]
    rows, figures = [], {}
    for agreement, cheap, expensive in PEERS:
        a, b = MODELS[cheap], MODELS[expensive]
        differ = log["answer"][test, a] != log["answer"][test, b]
        scores = {"confidence": log["confidence"][test, a].astype(float)}
        if agreement == 0.9 and cheap == "8b":
            scores["with 4o-mini"] = agreement_score(log, a, b, MODELS["mini"])
        cost = log["cost"][test] * 1e6
        for kind, score in scores.items():
            served, broken, dollars = [], 0, []
            for seed in range(n_seeds):
                labelled = np.random.default_rng(seed).choice(len(differ), 150, replace=False)
                found = finite_population_test(
                    score,
                    labelled,
                    differ[labelled],
                    agreement=agreement,
                    confidence=0.9,
                    random_state=seed,
                )
                served.append(found.serve.mean())
                broken += (differ & found.serve).sum() > found.allowed
                spent = cost[:, a] + np.where(found.serve, 0, cost[:, b])
                if kind != "confidence":
                    spent = spent + cost[:, MODELS["mini"]]
                dollars.append(spent.mean())
            pair, key = f"{cheap} to {expensive}", f"batch-{agreement}-{cheap}-{kind.split()[0]}"
            share, error = np.mean(served), np.std(served) / np.sqrt(n_seeds)
            rows.append([agreement, pair, kind, share, error, broken / n_seeds])
            rows[-1] += [limit99(broken, n_seeds), np.mean(dollars), cost[:, b].mean()]
            figures[key] = share
    for agreement, cheap, expensive in list(PEERS)[:3]:
        a, b = MODELS[cheap], MODELS[expensive]
        served, broken, dollars = [], 0, []
        path = FrozenEstimator(Cascade(log, a, b, labels=True).fit([[0]]))
        batch = np.flatnonzero(test)[:, None]
        for seed in range(max(n_seeds // 8, 2)):
            certified = CertifiedRouter(
                path,
                max_loss=1 - agreement,
                reference="full",
                confidence=0.9,
                n_points=400,
                random_state=seed,
            )
            found = certified.certify_batch(batch, n_labels=150)
            served.append((found.route == 0).mean())
            broken += (found.y_pred != log["answer"][test, b]).mean() > 1 - agreement + 1e-9
            dollars.append(found.cost.mean() * 1e6)
        pair, n = f"{cheap} to {expensive}", len(served)
        rows.append([agreement, pair, "certify_batch", np.mean(served), np.std(served) / n**0.5])
        rows[-1] += [broken / n, limit99(broken, n), np.mean(dollars), cost[:, b].mean()]
    header = ["agreement", "pair", "score", "share", "se", "broken", "99 % limit", "$/M", "all $/M"]
    table("A. Finite batch, 150 labels, delta .1", header, rows)
    worst = max(row[5] for row in rows if row[2] != "certify_batch")
    return figures | {"batch-broken": worst, "batch-seeds": n_seeds}


# B. CALM --------------------------------------------------------------------------------


def calm(data, n_splits):
    with np.load(data / "calm" / "cnndm.npz") as log:
        losses, layers = log["losses"].astype(float), log["layers"]
    rows = []
    every = np.arange(losses.shape[1])
    # The constants of "exchangeable" were looked at on the other ones.
    new = np.sort(np.random.default_rng(1).permutation(len(every))[1000:])
    told = [("exchangeable", every), ("exchangeable", new)]
    told += [(method, every) for method in ("betting", "hoeffding_bentkus", "normal")]
    for method, summaries in told:
        depth, broken = [], 0
        for split in range(n_splits):
            order = np.random.default_rng(9000 + split).permutation(summaries)
            p = []
            for row in losses:
                p.append(mean_p_value(row[order[:100]], 0.05, bounds=(-1, 1), method=method))
                if p[-1] > 0.1:
                    break
            k = max(fixed_sequence_test(p, confidence=0.9).sum() - 1, 0)
            depth.append(layers[k])
            broken += losses[k, order[100:]].mean() > 0.05
        name = method if summaries is every else f"{method}, 1,000 new summaries"
        error = np.std(depth) / np.sqrt(n_splits)
        rows.append([name, np.mean(depth), error, broken / n_splits, limit99(broken, n_splits)])
    table(
        "B. CALM, loss .05, 100 rows: exit layer of 14.9",
        ["bound", "layers", "se", "broken", "99 % limit"],
        rows,
    )
    keys = "layers", "new", "betting"
    figures = {f"calm-{key}": row[1] for key, row in zip(keys, rows)}
    return figures | {"calm-broken": max(rows[0][3], rows[1][3])}


# C, D, E. Cascades ----------------------------------------------------------------------


class Cascade(CostAwareMixin, BaseEstimator):
    """Ask a cheap model, and the reference where it is not confident; X holds row numbers.

    The path: thresholds on the confidence, whose costs are those of the train rows; without a
    budget the reference alone is asked. It answers whether the answer served is right or, with
    `labels`, the answer itself.
    """

    def __init__(self, log, cheap, reference, budget=None, labels=False):
        self.log = log
        self.cheap = cheap
        self.reference = reference
        self.budget = budget
        self.labels = labels

    def _fit(self, X, y, *, task):
        train = ~self.log["is_test"]
        conf = self.log["confidence"][train, self.cheap]
        self.thresholds_ = np.unique(conf[np.isfinite(conf)])
        costs = self.log["cost"][train]
        share = (conf[:, None] < self.thresholds_).T
        self.path_ = costs[:, self.cheap].mean() + share @ costs[:, self.reference] / train.sum()
        self.choices_ = ["cheap", "reference"]

    def _least(self):
        return self.path_[0]

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        rows = np.asarray(X)[:, 0].astype(int)
        cost = self.log["cost"]
        if budget == np.inf:
            return Plan(np.ones(len(rows), dtype=np.int64), cost[rows, self.reference])
        k = np.searchsorted(self.path_, budget * (1 + 1e-12), side="right") - 1
        route = (self.log["confidence"][rows, self.cheap] < self.thresholds_[k]).astype(np.int64)
        return Plan(route, cost[rows, self.cheap] + route * cost[rows, self.reference])

    def _answer(self, X, plan, response):
        rows = np.asarray(X)[:, 0].astype(int)
        model = np.where(plan.route == 0, self.cheap, self.reference)
        answers = self.log["answer" if self.labels else "correctness"]
        return answers[rows, model].astype(int)


def certify(log, rows, seed, candidates=("mini", "8b", "70b", "q72"), **options):
    paths = [
        (name, FrozenEstimator(Cascade(log, MODELS[name], MODELS["405b"]).fit([[0]])))
        for name in candidates
    ]
    router = CertifiedRouter(
        paths,
        reference="full",
        fallback="safe",
        random_state=seed,
        **options,
    )
    return router.fit(rows[:, None], np.ones(len(rows), dtype=int))


def loss_budget(data, n_draws):
    rows, figures = [], {}
    for (name, n), bar in SAVINGS.items():
        log = load(data, name)
        test = np.flatnonzero(log["is_test"])
        right, full = log["correctness"][test, 4].mean(), log["cost"][test, 4].mean()
        for points, wanted in zip((1, 2, 3), bar):
            saving, broken, paths = [], 0, []
            for draw in range(n_draws):
                drawn = np.random.default_rng(5000 + draw).permutation(test)[:n]
                router = certify(log, drawn, draw, max_loss=points / 100)
                y_pred, _, cost = router.predict_routed(test[:, None])
                saving.append(1 - cost.mean() / full)
                broken += right - y_pred.mean() > points / 100
                paths.append(router.certificate_.path)
            names, counts = np.unique(paths, return_counts=True)
            error = np.std(saving) / np.sqrt(n_draws)
            chosen = " ".join(f"{a}:{b}" for a, b in zip(names, counts))
            rows.append([name, n, points, np.mean(saving), error, wanted, broken, chosen])
            figures[f"saving-{name}-{n}-{points}"] = np.mean(saving)
    header = ["data", "rows", "points", "saved", "se", "bar", "broken", "path chosen"]
    table(f"C. Loss budget, {n_draws} draws", header, rows)
    return figures


class Seen(CostAwareMixin, BaseEstimator):
    """What a fitted estimator does on the rows of a table, asked once; X holds row numbers."""

    def __init__(self, path, X, costs=None, budget=None, n_budgets=100):
        self.path = path
        self.X = X
        self.costs = costs
        self.budget = budget
        self.n_budgets = n_budgets

    def _fit(self, X, y, *, task):
        least = self.path.min_budget_
        most = max(self.path.predict_cost(self.X, budget=np.inf).mean(), least)
        self.grid_ = np.r_[np.linspace(least, most, self.n_budgets), np.inf]
        seen = [self.path.predict_routed(self.X, budget=budget) for budget in self.grid_]
        self.y_pred_ = np.stack([one.y_pred for one in seen])
        self.route_ = np.stack([one.route for one in seen])
        self.cost_ = np.stack([one.cost for one in seen])
        if self.costs is not None:
            # What was paid, where the path knows only what it plans.
            self.cost_ = np.take_along_axis(self.costs[None], self.route_[..., None], 2)[..., 0]
        if hasattr(self.path, "classes_"):
            self.classes_ = self.path.classes_
        self.choices_ = list(self.path.choices_)

    def _least(self):
        return self.grid_[0]

    def _plan(self, X, budget):
        check_affordable(budget, self.grid_[0])
        k = np.searchsorted(self.grid_, budget * (1 + 1e-12), side="right") - 1
        rows = np.asarray(X)[:, 0]
        return Plan(self.route_[k, rows], self.cost_[k, rows], k)

    def _answer(self, X, plan, response):
        return self.y_pred_[plan.state, np.asarray(X)[:, 0]]


class Truth(NamedTuple):
    """A path on a table that is taken for the truth, and the promise that is made about it."""

    name: str
    path: Seen
    y: np.ndarray
    reference: str
    max_loss: float
    share: float
    n: int


def pareto_bandit(data, short):
    """A router by the text, learned on `val`; the table is `test`, with the dollars paid."""
    logs = {}
    for part in ("val", "test"):
        with gzip.open(data / "paretobandit" / f"{part}.csv.gz", "rt", newline="") as file:
            logs[part] = list(csv.DictReader(file))
    names = [key[7:] for key in logs["val"][0] if key.startswith("reward_")]
    quality, cost = (
        {
            k: np.array([[float(r[f"{of}_{m}"]) for m in names] for r in log])
            for k, log in logs.items()
        }
        for of in ("reward", "cost")
    )
    texts = {part: [row["prompt"] for row in log] for part, log in logs.items()}
    embed = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=3), TruncatedSVD(50, random_state=0)
    )
    A, B = embed.fit_transform(texts["val"]), embed.transform(texts["test"])
    trees = ExtraTreesRegressor(20 if short else 100, min_samples_leaf=5, random_state=0)
    prices = dict(zip(names, 1e4 * cost["val"].mean(axis=0)))
    router = BudgetRouter(trees, costs=prices).fit(A, quality["val"])
    seen = Seen(router, B, costs=1e4 * cost["test"]).fit([[0]])
    return Truth("ParetoBandit, router", seen, quality["test"], names[2], 0.01, 0.6, 1000)


def fer_plus(data, short):
    log = fetch_frugalml("FERPLUS")
    n_labels = 1 + max(int(log.predictions.max()), int(log.target.max()))
    services = [
        (name, RecordedClassifier(labels, scores=scores, classes=range(n_labels)))
        for name, labels, scores in zip(log.model_names, log.predictions.T, log.scores.T)
    ]
    target = log.target.astype(np.int64)
    train, test = frugal_split(len(target), 0)
    costs = dict(zip(log.model_names, map(float, log.costs)))
    router = FrugalMCTClassifier(services, costs=costs).fit(train[:, None], target[train])
    return Truth("FER+, FrugalMCT", Seen(router, test[:, None]).fit([[0]]), target[test], "full",
                 0.03, 0.75, 1000)  # fmt: skip


def adult(data, short):
    bunch = fetch_adult()
    X, y, test = bunch.data.astype(float), bunch.target, bunch.is_test
    forest = RandomForestClassifier(40, max_depth=10, random_state=0).fit(X[~test], y[~test])
    exits = QWYCEnsemble(FrozenEstimator(forest), alpha=0.001, random_state=0).optimize(X[~test])
    seen = Seen(exits, X[test]).fit([[0]])
    return Truth("Adult, QWYC", seen, y[test].astype(np.int64), "full", 0.005, 0.5, 2000)


def letter(data, short):
    bunch = fetch_letter()
    X, y, test = bunch.data.astype(float), (bunch.target >= "N").astype(int), bunch.is_test
    full = RandomForestClassifier(30 if short else 100, random_state=0)
    gate = AdaptGatingClassifier(full, gate=BoostedGate(n_estimators=30), gamma=5e-3)
    gate.fit(X[~test], y[~test])
    return Truth("Letter, Adapt", Seen(gate, X[test]).fit([[0]]), y[test], "full", 0.03, 0.95, 1000)


def cascades(data):
    for name in ("mmlu", "triviaqa"):
        log = load(data, name)
        test = np.flatnonzero(log["is_test"])
        for cheap in ("mini", "8b", "70b"):
            seen = Seen(Cascade(log, MODELS[cheap], 4).fit([[0]]), test[:, None]).fit([[0]])
            ones = np.ones(len(test), dtype=np.int64)
            yield Truth(f"{name}, {cheap} to 405b", seen, ones, "full", 0.03, 0.8, 500)


def true_losses(truth):
    """Loss of each budget of the table on each row, against the reference."""
    seen, y = truth.path, truth.y
    if y.ndim == 2:
        rows = np.arange(len(y))
        losses = 1 - np.stack([y[rows, route] for route in seen.route_])
        return losses - (1 - y[:, seen.choices_.index(truth.reference)])
    losses = (seen.y_pred_ != y).astype(float)
    return losses - losses[-1]


def validity(data, n_draws, short=False):
    rows = []
    made = (pareto_bandit, fer_plus, adult, letter)
    for truth in [*cascades(data), *(make(data, short) for make in made)]:
        seen, n_table = truth.path, len(truth.y)
        everything = np.arange(n_table)[:, None]
        losses, budget = true_losses(truth), truth.share * truth.path.cost_[-1].mean()
        broken = naive = refused = 0
        for draw in range(n_draws):
            drawn = np.random.default_rng(20_000 + draw).choice(n_table, truth.n)
            router = CertifiedRouter(
                FrozenEstimator(seen),
                max_loss=truth.max_loss,
                budget=budget,
                max_cost=float(seen.cost_.max()),
                reference=truth.reference,
                n_points=30,
                random_state=draw,
            )
            try:
                router.fit(drawn[:, None], truth.y[drawn])
            except ValueError as error:
                assert "promise" in str(error)
                refused += 1
            else:
                spent = router.predict_cost(everything)
                # Which budget of the table that is.
                k = int(np.argmax((seen.cost_ == spent).all(axis=1)))
                broken += losses[k].mean() > truth.max_loss or seen.cost_[k].mean() > budget
            # The mutation: the cheapest point whose mean is within the limit.
            within = losses[:, drawn].mean(axis=1) <= truth.max_loss
            naive += losses[int(np.argmax(within))].mean() > truth.max_loss
        rows.append([truth.name, truth.n, truth.max_loss, truth.share, n_draws, refused])
        rows[-1] += [broken / n_draws, limit99(broken, n_draws), naive / n_draws]
    header = ["table", "rows", "max_loss", "budget / full", "draws", "refused", "broken"]
    header += ["99 % limit", "mutation"]
    table("D. Validity of loss and cost promised jointly, 95 %", header, rows)
    return {
        "valid-broken": max(row[7] for row in rows),
        "valid-mutation": max(row[8] for row in rows),
    }


def budget_alone(data, n_draws):
    log = load(data, "mmlu")
    test = np.flatnonzero(log["is_test"])
    budget = 0.5 * log["cost"][test, 4].mean()
    most = float(log["cost"][:, [5, 4]].max(axis=0).sum())
    used, broken = [], 0
    for draw in range(n_draws):
        drawn = np.random.default_rng(40_000 + draw).choice(test, 5050)
        router = certify(log, drawn, draw, ("mini",), budget=budget, max_cost=most, n_points=300)
        used.append(router.predict_cost(test[:, None]).mean() / budget)
        broken += used[-1] > 1
    table(
        "E. Budget alone, 5,000 evidence rows",
        ["used", "se", "broken", "draws"],
        [[np.mean(used), np.std(used) / np.sqrt(n_draws), broken / n_draws, n_draws]],
    )
    return {"budget-used": np.mean(used)}


# F. Monitors ----------------------------------------------------------------------------


def first_rows(draw, n_streams, n_rows, **options):
    """Row of the first alarm of each stream; infinity where there is none."""
    found = []
    for seed in range(n_streams):
        costs, losses = draw(np.random.default_rng(60_000 + seed), n_rows)
        monitor = PromiseMonitor(**options)
        alarm = None
        # In pieces, so that a stream ends soon after its alarm.
        for start in range(0, n_rows, 5000):
            stop = start + 5000
            alarm = monitor.update(
                cost=None if costs is None else costs[start:stop],
                loss=None if losses is None else losses[start:stop],
            )
            if alarm is not None:
                break
        at = np.inf if alarm is None else (alarm.row if costs is not None else monitor.n_audited_)
        found.append(at)
    return np.array(found)


def signed(rng, size, mean, std=0.45):
    """Losses of -1, 0 and 1 with a mean and a standard deviation."""
    square = std**2 + mean**2
    p = [(square - mean) / 2, 1 - square, (square + mean) / 2]
    return rng.choice([-1.0, 0.0, 1.0], p=p, size=size)


def monitors(n_streams, n_rows):
    promise, rate, share = 0.01, 0.02, 0.5
    exact = first_rows(
        lambda rng, n: (rng.exponential(1.0, n), None), n_streams, n_rows, budget=1.0, max_cost=1e9
    )
    cost = first_rows(lambda rng, n: (rng.exponential(1.1, n), None), n_streams, 20_000, budget=1.0)
    # Fed one by one, so that the row of the alarm is that of the audit.
    delays = {}
    for name, factor in (("all rows", 1.0), ("reference's own rows known", 1 / share)):
        audited = int(120_000 * rate * factor)
        found = []
        for seed in range(n_streams):
            rng = np.random.default_rng(80_000 + seed)
            losses = signed(rng, audited, promise + 0.05)
            if factor > 1:
                # The loss is that of the half which the cheap model serves.
                served = rng.random(audited) < share
                losses = np.where(served, signed(rng, audited, (promise + 0.05) / share, 0.62), 0)
            monitor = PromiseMonitor(max_loss=promise)
            for start in range(0, audited, 20):
                if monitor.update(loss=losses[start : start + 20]) is not None:
                    break
            at = monitor.n_audited_ / (rate * factor) if monitor.alarm_ else np.inf
            found.append(at)
        delays[name] = np.quantile(found, 0.95)
    false = np.isfinite(exact).mean()
    soon = np.quantile(cost, 0.95)
    rows = [["false alarms at the promise, share of streams", false]]
    rows += [["cost 10 % above: rows until 95 % have alarmed", soon]]
    rows += [[f"loss 5 points above, 2 % bought, {k}: the same", v] for k, v in delays.items()]
    table(f"F. Monitors, {n_streams} streams of {n_rows} rows", ["what", "measured"], rows)
    return {
        "monitor-false": false,
        "monitor-cost": soon,
        "monitor-loss": delays["all rows"],
        "monitor-known": delays["reference's own rows known"],
    }


def claims(result):
    """What is said of the numbers."""
    figures = result["figures"]
    found = []

    def say(key, what, **more):
        # A run of some parts has some of the numbers.
        if key in figures:
            found.append(claim(key, what, figures[key], **more))

    for (agreement, cheap, expensive), (peer, bar) in PEERS.items():
        pair, key = f"{cheap} to {expensive}", f"batch-{agreement}-{cheap}"
        what = f"Finite batch, agreement {agreement}, {pair}"
        against = {"peer": peer, "against": "BARGAIN 0.1.3, recorded", "bar": bar}
        say(f"{key}-confidence", f"{what}, confidence: share served", **against)
        why = "BARGAIN was not run with this score"
        say(f"{key}-with", f"{what}, with 4o-mini: share served", bar=0.56, why=why)
    if "batch-broken" in figures:
        most = 0.1 + 2.33 * np.sqrt(0.09 / figures["batch-seeds"])
        what = "Finite batch: promises broken, worst case (at most .1)"
        say("batch-broken", what, better="lower", bar=most)
    against = {"peer": 7.26, "against": "published betting bound"}
    what = "CALM at loss .05, 100 rows: mean exit layer"
    say("calm-layers", f"{what}, exchangeable rows", better="lower", bar=7.0, **against)
    say("calm-new", f"{what}, 1,000 summaries that chose nothing", better="lower", bar=7.0)
    say("calm-betting", f"{what}, betting", better="lower", **against)
    say("calm-broken", "CALM: promises broken (at most .1)", better="lower", bar=0.1)
    for (name, n), bars in SAVINGS.items():
        for points, bar in zip((1, 2, 3), bars):
            what = f"{name}, loss at most {points} points, {n} rows: share saved"
            say(f"saving-{name}-{n}-{points}", what, bar=bar, why="no peer certifies it")
    what = "Joint promise of loss and cost broken, 99 % limit, worst of ten (at most .05)"
    say("valid-broken", what, better="lower", bar=0.05)
    what = "The same without a correction, worst of ten"
    say("valid-mutation", what, better="lower", why="a mutation that must fail")
    say("budget-used", "Budget alone, 5,000 rows: share of it used", bar=0.95)
    what = "Monitor: streams at the promise with a false alarm"
    say("monitor-false", what, better="lower", bar=0.05)
    what = "Monitor: cost 10 % above, rows until 95 % alarm"
    say("monitor-cost", what, better="lower", bar=2400)
    what = "Monitor: loss 5 points above, 2 % audited, rows until 95 % alarm"
    say("monitor-loss", what, better="lower", bar=75_000)
    if "monitor-loss" in figures:
        peer = {"peer": figures["monitor-loss"], "against": "all rows audited alike"}
        what = "Monitor: the same bill, the reference's own rows known to be 0"
        say("monitor-known", what, better="lower", **peer)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few draws, nothing is written")
    parser.add_argument(
        "--part", nargs="*", choices=list("ABCDEF"), help="these alone; they replace what was kept"
    )
    parser.add_argument("--draws", type=int, default=40, help="of part C")
    arguments = parser.parse_args()
    data = Path(os.environ.get("SKROUTE_DATA", ""))
    if not (data / "cascades" / "mmlu.npz").is_file():
        print("The cascades and CALM logs are absent: set SKROUTE_DATA. Nothing was measured.")
        sys.exit(0)
    short = arguments.short
    parts = {
        "A": lambda: finite_batch(data, 10 if short else 500),
        "B": lambda: calm(data, 10 if short else 400),
        "C": lambda: loss_budget(data, 1 if short else arguments.draws),
        "D": lambda: validity(data, 2 if short else 500, short),
        "E": lambda: budget_alone(data, 1 if short else 20),
        "F": lambda: monitors(10 if short else 1000, 100_000),
    }
    figures, measured = {}, {}
    for part in arguments.part or parts:
        figures |= {key: float(found) for key, found in parts[part]().items()}
        measured[part] = {key: provenance()[key] for key in ("date", "commit")}
    tables = []
    if arguments.part and not short and (RESULTS / "guarantees.json").is_file():
        record = json.loads((RESULTS / "guarantees.json").read_text())
        known = [one for one in record["tables"] if one["title"] != "Claims"]
        tables = [one for one in known if one["title"][0] not in measured]
        figures = record["result"]["figures"] | figures
        measured = record["result"]["measured"] | measured
    result = {"figures": figures, "measured": measured}
    save(
        "guarantees",
        result,
        title="Promises that hold",
        claims=claims(result),
        tables=tables,
        write=not short,
    )


if __name__ == "__main__":
    main()
