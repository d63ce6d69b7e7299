"""What the user cares about: costs of errors, F1, balanced accuracy, money in all, regression.

Three sets with rare or expensive positives (Adult, Covertype's rarest class against the rest,
made-up data with 6 % positives), three members of price 1, 3 and 10 each. A third of the training
rows fits the members; the rest chooses their thresholds and fits the routers; test rows are looked
at once. A missed positive costs 50, a false alarm 1.

    python benchmarks/bench_objectives.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from _harness import claim, save, table
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, f1_score
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

COSTS = np.array([1.0, 3.0, 10.0])
BUDGETS = (1.0, 2.5, 4.0, 7.0, 10.0)
MISSED, ALARM = 50.0, 1.0
MATRIX = {(0, 1): ALARM, (1, 0): MISSED}
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
    rng = np.random.default_rng(0)

    def split(name, X, y):
        rows = rng.permutation(len(y))
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
    rarest = cover.target == np.argmin(np.bincount(cover.target)[1:]) + 1
    # The rarest class of the sample has 67 rows; the two rarest together are what can be learned.
    second = cover.target == np.argsort(np.bincount(cover.target)[1:])[1] + 1
    yield split("Covertype", cover.data.astype(np.float64), (rarest | second).astype(int))


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
    for peer in found[1:]:
        errors = [standard_error(y, a, b, figure, 50) for a, b in zip(ours.given, peer.given)]
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


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="made-up data alone, one seed")
    short = parser.parse_args().short
    warnings.simplefilter("ignore", UserWarning)
    claims, result = [], {}
    for problem in problems(short):
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
    result["regression"] = regression(short, claims)
    title = "What the user cares about: cost of errors, F1, balanced accuracy, regression"
    save("objectives", result, title=title, claims=claims, write=not short)


if __name__ == "__main__":
    main()
