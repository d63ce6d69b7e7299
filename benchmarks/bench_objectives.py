"""What the user cares about: costs of errors, F1, balanced accuracy, log loss, money, regression.

Three sets with rare or expensive positives (Adult, Covertype's rarest class against the rest,
made-up data with 6 % positives), three members of price 1, 3 and 10 each. A third of the training
rows fits the members; the rest chooses their thresholds and fits the routers; test rows are looked
at once. A missed positive costs 50, a false alarm 1.

    python benchmarks/bench_objectives.py [--short] [--sets "made up,Adult,Covertype,regression"]

Some sets alone replace their own entries of the last record.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from typing import NamedTuple

import numpy as np
from _harness import RESULTS, claim, save, table
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skroute.datasets import fetch_adult, fetch_covertype_sample
from skroute.routing import (
    BudgetRouter,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OracleRouterRegressor,
    RandomRouterRegressor,
    SingleBestRegressor,
)
from skroute.routing._calibrated import calibrate

COSTS = np.array([1.0, 3.0, 10.0])
BUDGETS = (1.0, 2.5, 4.0, 7.0, 10.0)
MISSED, ALARM = 50.0, 1.0
MATRIX = {(0, 1): ALARM, (1, 0): MISSED}
SETS = ("made up", "Adult", "Covertype", "regression")
CUTS = np.r_[np.geomspace(0.002, 0.2, 25), np.linspace(0.22, 0.9, 18)]


def row_cost(y, given):
    """Business cost of each answer."""
    return np.where(y == 1, MISSED, ALARM) * (y != given)


# From true and given labels to a figure of all rows, higher is better; and to rows whose mean
# moves as it does, for standard errors.
FIGURES = {
    "cost": lambda y, given: -row_cost(y, given).mean(),
    "f1": lambda y, given: f1_score(y, given, zero_division=0.0),
    "balanced_accuracy": balanced_accuracy_score,
}


class Problem(NamedTuple):
    """Rows that fit the members, rows that fit routers, and rows that test."""

    name: str
    fit: tuple
    train: tuple
    test: tuple


def problems(short):
    """The three sets."""
    n = 700 if short else 2500

    def split(name, X, y, n=n):
        rows = np.random.default_rng(0).permutation(len(y))
        parts = np.split(rows[: 4 * n], [n, 2 * n])
        return Problem(name, *((X[part], y[part]) for part in parts))

    X, y = make_classification(
        4 * n, n_features=12, n_informative=8, weights=[0.94], class_sep=0.8, random_state=0
    )
    yield split("made up", X, y)
    if short:
        return
    adult = fetch_adult()
    yield split("Adult", adult.data.astype(np.float64), adult.target.astype(int))
    cover = fetch_covertype_sample()
    # 67 of the sample's 15,000 rows: all of them are used.
    rarest = cover.target == np.argmin(np.bincount(cover.target)[1:]) + 1
    X = cover.data.astype(np.float64)
    yield split("Covertype", X, rarest.astype(int), len(X) // 4)


def members_of(problem):
    """Three members of rising price, fitted."""
    X, y = problem.fit
    models = {
        "bayes": make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-2)),
        "logreg": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=0),
    }
    return {name: model.fit(X, y) for name, model in models.items()}


def best_cut(proba, y, figure):
    """The threshold that is best on some rows."""
    return max(CUTS, key=lambda cut: FIGURES[figure](y, (proba >= cut).astype(int)))


def thresholded(models, problem, figure):
    """The members with thresholds that suit a figure, chosen on the routers' rows."""
    X, y = problem.train
    found = []
    for name, model in models.items():
        cut = best_cut(model.predict_proba(X)[:, 1], y, figure)
        fixed = FixedThresholdClassifier(
            FrozenEstimator(model), threshold=cut, response_method="predict_proba"
        ).fit(X, y)
        found.append((name, FrozenEstimator(fixed)))
    return found


class Answers(NamedTuple):
    """Given labels of the test rows at each budget."""

    name: str
    given: list


def contenders(problem, models, plain, figure):
    """skroute's router for the figure, and what there was before it."""
    X, y = problem.train
    members = thresholded(models, problem, figure)
    quality = MATRIX if figure == "cost" else figure
    router = OccamRouterClassifier(members, costs=COSTS, quality=quality, exchange_rate=0.0)
    router.fit(X, y)
    test = problem.test[0]
    yield Answers("OCCAM, its quality", [router.predict(test, budget=b) for b in BUDGETS])
    # The best thresholded member within the budget.
    known = [FIGURES[figure](y, member.predict(X)) for _, member in members]
    answers = np.column_stack([member.predict(test) for _, member in members])
    chosen = [np.where(b >= COSTS, known, -np.inf).argmax() for b in BUDGETS]
    yield Answers("best single", [answers[:, k] for k in chosen])
    # A threshold tuned on top of accuracy routing.
    given = []
    for b in BUDGETS:
        cut = best_cut(plain.predict_proba(X, budget=b)[:, 1], y, figure)
        given.append((plain.predict_proba(test, budget=b)[:, 1] >= cut).astype(int))
    yield Answers("accuracy, tuned", given)
    validated = [router.set_params(budget=b).validation_quality_ for b in BUDGETS]
    router.set_params(budget=None)
    best = [max(np.where(b >= COSTS, known, -np.inf)) for b in BUDGETS]
    sign = -1.0 if figure == "cost" else 1.0
    table(
        f"{problem.name}: {figure} on the rows of fit, the router's cross-fitted",
        ["", *(f"budget {b:g}" for b in BUDGETS)],
        [["OCCAM", *(sign * v for v in validated)], ["best single", *(sign * v for v in best)]],
    )
    if figure == "cost":
        logged = np.column_stack([-row_cost(y, member.predict(X)) for _, member in members])
        log = BudgetRouter(costs=COSTS).fit(X, logged)
        routes = [log.route(test, budget=b) for b in BUDGETS]
        rows = np.arange(len(test))
        yield Answers("minus costs logged", [answers[rows, route] for route in routes])
        yield router, members


def standard_error(y, ours, theirs, figure, n_draws=200):
    """Of the difference of two figures, by drawing rows anew (paired)."""
    rng = np.random.default_rng(0)
    if figure == "cost":
        return float(np.std(row_cost(y, ours) - row_cost(y, theirs)) / np.sqrt(len(y)))
    found = []
    for _ in range(n_draws):
        rows = rng.integers(0, len(y), len(y))
        found.append(FIGURES[figure](y[rows], ours[rows]) - FIGURES[figure](y[rows], theirs[rows]))
    return float(np.std(found))


def compare(problem, found, figure, claims):
    """One table and its claims: each budget, and the mean of all five."""
    y = problem.test[1]
    sign = -1.0 if figure == "cost" else 1.0
    means = {one.name: [FIGURES[figure](y, given) for given in one.given] for one in found}
    rows = [
        [name, *(sign * value for value in values), sign * float(np.mean(values))]
        for name, values in means.items()
    ]
    what = "cost of errors per row" if figure == "cost" else figure
    table(f"{problem.name}: {what}", ["", *(f"budget {b:g}" for b in BUDGETS), "mean"], rows)
    ours, key = found[0], problem.name.replace(" ", "_").lower()
    better = "lower" if figure == "cost" else "higher"
    leads = []
    for peer in found[1:]:
        errors = [standard_error(y, a, b, figure, 50) for a, b in zip(ours.given, peer.given)]
        lead = np.subtract(means[ours.name], means[peer.name])
        leads.append([peer.name, *(f"{d:+.4f} ({e:.4f})" for d, e in zip(lead, errors))])
        claims.append(
            claim(
                f"{key}_{figure}_{peer.name.replace(' ', '_').replace(',', '')}_worst",
                f"{problem.name}: {what}, worst budget, behind {peer.name} in standard errors",
                max(-d / max(e, 1e-12) for d, e in zip(lead, errors)),
                better="lower",
                bar=1.0,
                why="the bar is one standard error; nothing to compare with",
            )
        )
        claims.append(
            claim(
                f"{key}_{figure}_{peer.name.replace(' ', '_').replace(',', '')}",
                f"{problem.name}: {what}, mean of five budgets",
                sign * np.mean(means[ours.name]),
                peer=sign * np.mean(means[peer.name]),
                against=peer.name,
                better=better,
                within=float(np.mean(errors)),
                digits=4,
            )
        )
    header = ["ahead of (standard error)", *(f"budget {b:g}" for b in BUDGETS)]
    table(f"{problem.name}: {what}, lead", header, leads)
    worst = max(
        (means[ours.name][i] - means[ours.name][i + 1])
        / max(standard_error(y, ours.given[i], ours.given[i + 1], figure, 50), 1e-12)
        for i in range(len(BUDGETS) - 1)
    )
    claims.append(
        claim(
            f"{key}_{figure}_more_budget",
            f"{problem.name}: {what}, worst step to a larger budget in standard errors",
            max(worst, 0.0),
            better="lower",
            bar=1.0,
            why="the bar is one standard error; nothing to compare with",
        )
    )
    return {"budgets": list(BUDGETS), **{name: list(v) for name, v in means.items()}}


def log_losses(problem, models, claims):
    """Log loss of `predict_proba`, beside the best member that the budget affords."""
    X, y = problem.train
    frozen = [(name, FrozenEstimator(model)) for name, model in models.items()]
    router = OccamRouterClassifier(frozen, costs=COSTS, quality="log_loss").fit(X, y)
    test, true = problem.test
    rows = np.arange(len(true))

    def losses(proba):
        return -np.log(np.clip(proba[rows, true], 1e-15, 1.0))

    raw = [model.predict_proba(X) for model in models.values()]
    scaled = [calibrate(proba, y, 5) for proba in raw]
    known = {
        "best single": [log_loss(y, proba) for proba in raw],
        "best single, calibrated": [log_loss(y, one.proba) for one in scaled],
    }
    later = [model.predict_proba(test) for model in models.values()]
    answers = {
        "best single": later,
        "best single, calibrated": [
            proba if one.model is None else one.model.predict_proba(proba)
            for one, proba in zip(scaled, later)
        ],
    }
    ours = [losses(router.predict_proba(test, budget=b)) for b in BUDGETS]
    shown = [["OCCAM, log loss", *(own.mean() for own in ours), np.mean(ours)]]
    key = problem.name.replace(" ", "_").lower()
    for name, proba in answers.items():
        chosen = [np.where(b >= COSTS, known[name], np.inf).argmin() for b in BUDGETS]
        theirs = [losses(proba[k]) for k in chosen]
        shown.append([name, *(own.mean() for own in theirs), np.mean(theirs)])
        gaps = [a - b for a, b in zip(ours, theirs)]
        errors = [gap.std() / np.sqrt(len(rows)) for gap in gaps]
        claims.append(
            claim(
                f"{key}_log_loss_{name.replace(' ', '_').replace(',', '')}",
                f"{problem.name}: log loss of predict_proba, mean of five budgets",
                np.mean(ours),
                peer=np.mean(theirs),
                against=name,
                better="lower",
                within=float(np.mean(errors)),
                digits=4,
            )
        )
        claims.append(
            claim(
                f"{key}_log_loss_{name.replace(' ', '_').replace(',', '')}_worst",
                f"{problem.name}: log loss, worst budget, behind {name} in standard errors",
                max(gap.mean() / max(error, 1e-12) for gap, error in zip(gaps, errors)),
                better="lower",
                bar=1.0,
                why="the bar is one standard error; nothing to compare with",
            )
        )
    header = ["", *(f"budget {b:g}" for b in BUDGETS), "mean"]
    table(f"{problem.name}: log loss of predict_proba", header, shown)
    return {"calibration": router.calibration_, "rows": shown}


def totals(problem, router, members, claims):
    """Errors and prices in one unit: the sum beside the best fixed policy."""
    X, y = problem.test
    train, known = problem.train
    # One unit of price is such money that the most expensive member costs half its errors.
    alone = [row_cost(known, member.predict(train)).mean() for _, member in members]
    rate = 0.5 * min(alone) / COSTS[-1]
    router.set_params(exchange_rate=rate, budget=None)
    found = router.predict_routed(X)
    ours = row_cost(y, found.y_pred) + rate * found.cost
    best = int(np.argmin(np.array(alone) + rate * COSTS))
    theirs = row_cost(y, members[best][1].predict(X)) + rate * COSTS[best]
    se = np.std(ours - theirs) / np.sqrt(len(y))
    claims.append(
        claim(
            f"{problem.name.replace(' ', '_').lower()}_total",
            f"{problem.name}: errors and prices per row, no budget",
            ours.mean(),
            peer=theirs.mean(),
            against=f"best fixed policy ({members[best][0]})",
            better="lower",
            within=float(se),
            digits=4,
        )
    )
    return {"ours": ours.mean(), "fixed": theirs.mean(), "se": float(se)}


def regression(short, claims):
    """Three regressors, half the price of the most expensive: squared error over five seeds."""
    seeds = range(1 if short else 5)
    rows, n = [], 500 if short else 2000
    told = {"costs": COSTS, "budget": 0.5 * COSTS[-1]}
    for seed in seeds:
        X, y = make_friedman1(2 * n, noise=1.0, random_state=seed)
        members = [
            ("ridge", Ridge()),
            ("tree", DecisionTreeRegressor(min_samples_leaf=10, random_state=0)),
            ("forest", ExtraTreesRegressor(40, min_samples_leaf=2, random_state=0)),
        ]
        found = []
        for kind in (
            OccamRouterRegressor,
            SingleBestRegressor,
            RandomRouterRegressor,
            OracleRouterRegressor,
        ):
            router = kind(members, **told).fit(X[:n], y[:n])
            extra = {"y_true": y[n:]} if kind is OracleRouterRegressor else {}
            answer = router.predict_routed(X[n:], **extra)
            found += [np.mean((y[n:] - answer.y_pred) ** 2), answer.cost.mean()]
        # What random spending buys at best: a mix of two members on the hull of all.
        alone = [np.mean((y[n:] - m.predict(X[n:])) ** 2) for m in router.estimators_]
        share = (told["budget"] - COSTS[0]) / (COSTS[-1] - COSTS[0])
        found.append(min((1 - share) * alone[0] + share * alone[-1], found[2]))
        rows.append(found)
    rows = np.array(rows)
    header = ["seed", "OCCAM", "cost", "best single", "random mix", "oracle"]
    shown = rows[:, [0, 1, 2, 8, 6]]
    table(
        "Regression: squared error at half the price of the most expensive member",
        header,
        [[seed, *row] for seed, row in zip(seeds, shown)] + [["mean", *shown.mean(axis=0)]],
    )
    for name, column in (("best single", 2), ("random mix", 3), ("oracle", 4)):
        lead = shown[:, 0] - shown[:, column]
        se = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
        more = {"why": "the oracle is told the true numbers"} if name == "oracle" else {}
        claims.append(
            claim(
                f"regression_{name.replace(' ', '_')}",
                f"regression at half the price, {len(rows)} seeds: squared error",
                shown[:, 0].mean(),
                peer=shown[:, column].mean(),
                against=name,
                better="lower",
                within=float(se),
                digits=4,
                **more,
            )
        )
    return {"header": header[1:], "rows": shown.tolist()}


def earlier(sets, claims, result):
    """Tables, claims and results of the sets of the last record that are not measured now."""
    path = RESULTS / "objectives.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    others = [name for name in SETS if name not in sets]
    keys = tuple(name.replace(" ", "_").lower() for name in others)
    claims += [one for one in record["claims"] if keys and one["key"].startswith(keys)]
    result.update({name: own for name, own in record["result"].items() if name in others})
    begin = tuple(name.capitalize() if name == "regression" else name for name in others)
    return [one for one in record["tables"] if begin and one["title"].startswith(begin)]


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="made-up data alone, one seed")
    parser.add_argument("--sets", default=",".join(SETS))
    arguments = parser.parse_args()
    short, sets = arguments.short, arguments.sets.split(",")
    warnings.simplefilter("ignore", UserWarning)
    claims, result = [], {}
    for problem in problems(short):
        if problem.name not in sets:
            continue
        models = members_of(problem)
        frozen = [(name, FrozenEstimator(model)) for name, model in models.items()]
        plain = OccamRouterClassifier(frozen, costs=COSTS).fit(*problem.train)
        result[problem.name] = own = {"positives": float(problem.train[1].mean())}
        for figure in ("cost",) if short else FIGURES:
            *found, last = contenders(problem, models, plain, figure)
            if figure != "cost":
                found.append(last)
            own[figure] = compare(problem, found, figure, claims)
            if figure == "cost":
                own["total"] = totals(problem, *last, claims)
        own["log loss"] = log_losses(problem, models, claims)
    if "regression" in sets:
        result["regression"] = regression(short, claims)
    title = "What the user cares about: cost of errors, F1, balanced accuracy, log loss, regression"
    kept = [] if short else earlier(sets, claims, result)
    save("objectives", result, title=title, claims=claims, tables=kept, write=not short)


if __name__ == "__main__":
    main()
