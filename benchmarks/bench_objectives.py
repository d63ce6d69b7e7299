"""What the user cares about: costs of errors, balanced accuracy, log loss, money, regression.

Three sets with rare or expensive positives (Adult, Covertype's rarest class against the rest,
made-up data with 6 % positives), three members of price 1, 3 and 10 each. A third of the training
rows fits the members; the rest chooses their thresholds and fits the routers; test rows are looked
at once. A missed positive costs 50, a false alarm 1. Each number is a mean over fresh draws of the
made-up data, or fresh splits of a real table, and each standard error that of a mean of paired
differences, over splits and over rows that several splits test.

    python benchmarks/bench_objectives.py [--short] [--splits 8]
        [--sets "made up,Adult,Covertype,regression"]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from typing import NamedTuple

import _data
import numpy as np
from _common import record, standard_error, table
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import FixedThresholdClassifier, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skroute.routing import (
    BudgetRouter,
    DummyRouterRegressor,
    OccamRouterClassifier,
    OccamRouterRegressor,
)

COSTS = np.array([1.0, 3.0, 10.0])
BUDGETS = (1.0, 2.5, 4.0, 7.0, 10.0)
MISSED, ALARM = 50.0, 1.0
MATRIX = {(0, 1): ALARM, (1, 0): MISSED}
SETS = ("made up", "Adult", "Covertype", "regression")
SPLITS = {"made up": 8, "Adult": 8, "Covertype": 8}
ADULT_ROWS = 30_000
CUTS = np.r_[np.geomspace(0.002, 0.2, 25), np.linspace(0.22, 0.9, 18)]


def row_cost(y, given):
    """Business cost of each answer."""
    return np.where(y == 1, MISSED, ALARM) * (y != given)


# From true and given labels to a figure of all rows, higher is better.
FIGURES = {
    "cost": lambda y, given: -row_cost(y, given).mean(),
    "balanced_accuracy": balanced_accuracy_score,
}


def influences(y, given, figure):
    """One number per row, whose mean is the figure and moves as the figure does with the rows."""
    if figure == "cost":
        return -row_cost(y, given)
    value = FIGURES[figure](y, given)
    found, right = np.full(len(y), value), (y == given).astype(np.float64)
    for label in np.unique(y):
        rows = y == label
        found[rows] += (right[rows] - right[rows].mean()) / (2 * rows.mean())
    return found


class Problem(NamedTuple):
    """Rows that fit the members, rows that fit routers, and rows that test."""

    name: str
    fit: tuple
    train: tuple
    test: tuple
    # Which rows of the table the test rows are: those of several splits are not independent.
    tested: np.ndarray


def problem_of(name, split, short=False):
    """A fresh draw of the made-up data, or a fresh split of a table."""
    n = 700 if short else 2500
    if name == "made up":
        kind = {"n_informative": 8, "weights": [0.94], "class_sep": 0.8}
        X, y = make_classification(4 * n, n_features=12, random_state=split, **kind)
        kept = np.arange(len(y))
    elif name == "Adult":
        adult = _data.adult()
        X, y = adult.data.astype(np.float64), adult.target.astype(int)
        # The others were looked at when rules of the package were chosen.
        kept = np.random.default_rng(0).permutation(len(y))[:ADULT_ROWS]
    else:
        cover = _data.covertype()
        # 67 of the sample's 15,000 rows: all of them are used.
        rarest = cover.target == np.argmin(np.bincount(cover.target)[1:]) + 1
        X, y = cover.data.astype(np.float64), rarest.astype(int)
        kept, n = np.arange(len(y)), len(y) // 4
    rows = np.random.default_rng(split).permutation(kept)
    parts = np.split(rows[: 4 * n], [n, 2 * n])
    # No row of a draw is one of another.
    tested = parts[-1] + split * len(y) * (name == "made up")
    return Problem(name, *((X[part], y[part]) for part in parts), tested)


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


def contenders(problem, models, plain, figure):
    """Labels of the test rows at each budget, of skroute's router and of what there was before.

    And the mean price of the router's at each budget.
    """
    X, y = problem.train
    members = thresholded(models, problem, figure)
    quality = MATRIX if figure == "cost" else figure
    router = OccamRouterClassifier(members, costs=COSTS, quality=quality, exchange_rate=0.0)
    router.fit(X, y)
    test = problem.test[0]
    routed = [router.predict_routed(test, budget=b) for b in BUDGETS]
    given = {"OCCAM, its quality": [one.y_pred for one in routed]}
    # The best thresholded member within the budget.
    known = [FIGURES[figure](y, member.predict(X)) for _, member in members]
    answers = np.column_stack([member.predict(test) for _, member in members])
    chosen = [np.where(b >= COSTS, known, -np.inf).argmax() for b in BUDGETS]
    given["best single"] = [answers[:, k] for k in chosen]
    # A threshold tuned on top of accuracy routing.
    given["accuracy, tuned"] = []
    for b in BUDGETS:
        cut = best_cut(plain.predict_proba(X, budget=b)[:, 1], y, figure)
        tuned = (plain.predict_proba(test, budget=b)[:, 1] >= cut).astype(int)
        given["accuracy, tuned"].append(tuned)
    if figure == "cost":
        logged = np.column_stack([-row_cost(y, member.predict(X)) for _, member in members])
        log, rows = BudgetRouter(costs=COSTS).fit(X, logged), np.arange(len(test))
        given["minus costs logged"] = [answers[rows, log.route(test, budget=b)] for b in BUDGETS]
    return given, [float(one.cost.mean()) for one in routed]


WORDS = {
    "cost": "cost of errors per row",
    "balanced_accuracy": "balanced accuracy",
    "log loss": "log loss of predict_proba",
}


class Measured(NamedTuple):
    """Of one split: for each contender and budget one number per test row, and the prices."""

    rows: dict
    spent: list
    tested: np.ndarray


def of_split(problem, models, plain, figure):
    """What contenders' answers are worth on the test rows."""
    given, spent = contenders(problem, models, plain, figure)
    y = problem.test[1]
    rows = {who: [influences(y, one, figure) for one in part] for who, part in given.items()}
    return Measured(rows, spent, problem.tested)


def compare(name, measured, figure):
    """Means over splits of all at each budget, and the standard errors of OCCAM's lead."""
    sign = 1.0 if figure == "balanced_accuracy" else -1.0
    tested = [one.tested for one in measured]

    def of_rows(who):
        """Of each split one number per test row at each budget, and their mean at the end."""
        return [np.vstack([one.rows[who], np.mean(one.rows[who], axis=0)]) for one in measured]

    def lead(ours, theirs):
        gaps = [a - b for a, b in zip(ours, theirs)]
        means = sign * np.mean([gap.mean(axis=1) for gap in gaps], axis=0)
        errors = [standard_error(each, tested) for each in zip(*gaps)]
        return [f"{mean:+.4f} ({error:.4f})" for mean, error in zip(means, errors)]

    values = []
    for who in measured[0].rows:
        values.append([who, *sign * np.mean([p.mean(axis=1) for p in of_rows(who)], axis=0)])
    spent = np.mean([one.spent for one in measured], axis=0)
    values.append(["OCCAM's mean price", *spent, spent.mean()])
    title = f"{name}: {WORDS[figure]}, {len(measured)} {'draws' if name == 'made up' else 'splits'}"
    header = ["", *(f"budget {b:g}" for b in BUDGETS), "mean"]
    table(title, header, values)
    first, *peers = measured[0].rows
    ours = of_rows(first)
    leads = [[f"ahead of {peer}", *lead(ours, of_rows(peer))] for peer in peers]
    steps = lead([part[1:-1] for part in ours], [part[:-2] for part in ours])
    leads.append(["ahead of the budget before", "", *steps, ""])
    table(f"{title}, lead (standard error)", header, leads)


class Said(ClassifierMixin, BaseEstimator):
    """A model whose rows are its probabilities, for scikit-learn's calibration."""

    classes_ = np.arange(2)

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def decision_function(self, X):
        logs = np.log(np.maximum(X, 1e-12))
        return logs[:, 1] - logs[:, 0]

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def calibrated(proba, y):
    """Out-of-fold probabilities and the model of the best calibration, or what they were."""
    found = [(log_loss(y, proba), proba, None)]
    for method in ("temperature", "sigmoid", "isotonic"):
        model = CalibratedClassifierCV(FrozenEstimator(Said()), method=method)
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        out = cross_val_predict(model, proba, y, cv=folds, method="predict_proba")
        found.append((log_loss(y, out), out, model))
    _, out, model = min(found, key=lambda one: one[0])
    return out, None if model is None else model.fit(proba, y)


def log_losses(problem, models):
    """Log loss of `predict_proba`, beside the best member that the budget affords."""
    X, y = problem.train
    frozen = [(name, FrozenEstimator(model)) for name, model in models.items()]
    router = OccamRouterClassifier(frozen, costs=COSTS, quality="log_loss").fit(X, y)
    test, true = problem.test
    rows = np.arange(len(true))

    def losses(proba):
        return -np.log(np.clip(proba[rows, true], 1e-15, 1.0))

    raw = [(model.predict_proba(X), model.predict_proba(test)) for model in models.values()]
    scaled = []
    for proba, later in raw:
        known, model = calibrated(proba, y)
        scaled.append((known, later if model is None else model.predict_proba(later)))
    ours = [-losses(router.predict_proba(test, budget=b)) for b in BUDGETS]
    measured = {"OCCAM, log loss": ours}
    for name, pairs in (("best single", raw), ("best single, calibrated", scaled)):
        known = [log_loss(y, proba) for proba, _ in pairs]
        chosen = [np.where(b >= COSTS, known, np.inf).argmin() for b in BUDGETS]
        measured[name] = [-losses(pairs[k][1]) for k in chosen]
    spent = [float(router.predict_cost(test, budget=b).mean()) for b in BUDGETS]
    return Measured(measured, spent, problem.tested)


def regression(short):
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
        for router in (
            OccamRouterRegressor(members, **told),
            DummyRouterRegressor(members, **told),
            DummyRouterRegressor(members, strategy="random", **told),
            DummyRouterRegressor(members, strategy="oracle", **told),
        ):
            router.fit(X[:n], y[:n])
            oracle = getattr(router, "strategy", None) == "oracle"
            answer = router.predict_routed(X[n:], **({"y_true": y[n:]} if oracle else {}))
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


def measure(problem, figures):
    """All figures of one split."""
    models, found = members_of(problem), {}
    if any(figure in figures for figure in FIGURES):
        frozen = [(who, FrozenEstimator(model)) for who, model in models.items()]
        plain = OccamRouterClassifier(frozen, costs=COSTS).fit(*problem.train)
    for figure in [one for one in FIGURES if one in figures]:
        found[figure] = of_split(problem, models, plain, figure)
    if "log loss" in figures:
        found["log loss"] = log_losses(problem, models)
    return found


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="made-up data alone, one seed")
    parser.add_argument("--splits", type=int, help="of each set")
    parser.add_argument("--sets", default=",".join(SETS))
    arguments = parser.parse_args()
    short, sets = arguments.short, arguments.sets.split(",")
    warnings.simplefilter("ignore", UserWarning)
    figures = ["cost", "log loss"] if short else list(WORDS)
    for name in ["made up"] if short else [name for name in sets if name != "regression"]:
        found = {}
        for split in range(1 if short else arguments.splits or SPLITS[name]):
            for figure, one in measure(problem_of(name, split, short), figures).items():
                found.setdefault(figure, []).append(one)
        for figure in [one for one in WORDS if one in found]:
            compare(name, found[figure], figure)
    if "regression" in sets:
        regression(short)
    if not (short or arguments.splits or sets != list(SETS)):
        record("objectives")


if __name__ == "__main__":
    main()
