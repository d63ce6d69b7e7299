"""What the user cares about: costs of errors, balanced accuracy, log loss.

Three sets with rare or expensive positives (Adult, Covertype's rarest class against the
rest, made-up data with 6 % positives), three members of price 1, 3 and 10 each. A third
of the training rows fits the members; the rest chooses their thresholds and fits the
routers; test rows are looked at once. A missed positive costs 50, a false alarm 1. Each
number is a mean over fresh draws of the made-up data, or fresh splits of a real table,
and each standard error that of a mean of paired differences, over splits and over rows
that several splits test.

    python benchmarks/bench_objectives.py [--short] [--part "made up" Adult Covertype]

A run of some sets replaces their tables in the record.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from typing import NamedTuple

import _data
import numpy as np
from _common import standard_error, table
from bench_acquisition import record_parts
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import (
    FixedThresholdClassifier,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.routing import BudgetRouter, OccamRouterClassifier

COSTS = np.array([1.0, 3.0, 10.0])
BUDGETS = (1.0, 2.5, 4.0, 7.0, 10.0)
MISSED, ALARM = 50.0, 1.0
MATRIX = {(0, 1): ALARM, (1, 0): MISSED}
SETS, SPLITS = ("made up", "Adult", "Covertype"), 8
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
    # Which rows of the table the test rows are: those of several splits are not
    # independent.
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
    router = OccamRouterClassifier(
        members, costs=COSTS, quality=quality, exchange_rate=0.0
    )
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
        logged = np.column_stack(
            [-row_cost(y, member.predict(X)) for _, member in members]
        )
        log, rows = BudgetRouter(costs=COSTS).fit(X, logged), np.arange(len(test))
        given["minus costs logged"] = [
            answers[rows, log.route(test, budget=b)] for b in BUDGETS
        ]
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
    rows = {
        who: [influences(y, one, figure) for one in part] for who, part in given.items()
    }
    return Measured(rows, spent, problem.tested)


def compare(name, measured, figure):
    """Means over splits of all at each budget, and the standard errors of OCCAM's lead."""
    sign = 1.0 if figure == "balanced_accuracy" else -1.0
    tested = [one.tested for one in measured]

    def of_rows(who):
        """Of each split one number per test row at each budget, and their mean at the end."""
        return [
            np.vstack([one.rows[who], np.mean(one.rows[who], axis=0)])
            for one in measured
        ]

    def lead(ours, theirs):
        # Higher is better in the rows: costs and losses are negative there.
        gaps = [a - b for a, b in zip(ours, theirs)]
        means = np.mean([gap.mean(axis=1) for gap in gaps], axis=0)
        errors = [standard_error(each, tested) for each in zip(*gaps)]
        return [f"{mean:+.4f} ({error:.4f})" for mean, error in zip(means, errors)]

    values = []
    for who in measured[0].rows:
        values.append(
            [who, *sign * np.mean([p.mean(axis=1) for p in of_rows(who)], axis=0)]
        )
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


def calibrated(model, X, y):
    """A model with the calibration that is best out of fold, or as it is."""
    found, folds = [(log_loss(y, model.predict_proba(X)), model)], StratifiedKFold(5)
    for method in ("temperature", "sigmoid", "isotonic"):
        scaled = CalibratedClassifierCV(FrozenEstimator(model), method=method)
        proba = cross_val_predict(scaled, X, y, cv=folds, method="predict_proba")
        found.append((log_loss(y, proba), scaled))
    loss, best = min(found, key=lambda one: one[0])
    return loss, best if best is model else best.fit(X, y)


def log_losses(problem, models):
    """Log loss of `predict_proba`, beside the best member that the budget affords."""
    X, y = problem.train
    frozen = [(name, FrozenEstimator(model)) for name, model in models.items()]
    router = OccamRouterClassifier(frozen, costs=COSTS, quality="log_loss").fit(X, y)
    test, true = problem.test
    rows = np.arange(len(true))

    def losses(proba):
        return -np.log(np.clip(proba[rows, true], 1e-15, 1.0))

    ours = [-losses(router.predict_proba(test, budget=b)) for b in BUDGETS]
    measured = {"OCCAM, log loss": ours}
    raw = [(log_loss(y, model.predict_proba(X)), model) for model in models.values()]
    scaled = [calibrated(model, X, y) for model in models.values()]
    for name, pairs in (("best single", raw), ("best single, calibrated", scaled)):
        known = [loss for loss, _ in pairs]
        chosen = [np.where(b >= COSTS, known, np.inf).argmin() for b in BUDGETS]
        measured[name] = [-losses(pairs[k][1].predict_proba(test)) for k in chosen]
    spent = [float(router.predict_cost(test, budget=b).mean()) for b in BUDGETS]
    return Measured(measured, spent, problem.tested)


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
    parser.add_argument(
        "--short", action="store_true", help="made-up data alone, one seed"
    )
    parser.add_argument("--part", nargs="+", choices=SETS, default=SETS)
    arguments = parser.parse_args()
    short = arguments.short
    warnings.simplefilter("ignore", UserWarning)
    figures = ["cost", "log loss"] if short else list(WORDS)
    for name in ["made up"] if short else arguments.part:
        found = {}
        for split in range(1 if short else SPLITS):
            for figure, one in measure(problem_of(name, split, short), figures).items():
                found.setdefault(figure, []).append(one)
        for figure in [one for one in WORDS if one in found]:
            compare(name, found[figure], figure)
        if not short:
            record_parts("objectives")


if __name__ == "__main__":
    main()
