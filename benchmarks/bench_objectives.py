"""What the user cares about: costs of errors, F1, balanced accuracy, log loss, money, regression.

Three sets with rare or expensive positives (Adult, Covertype's rarest class against the rest,
made-up data with 6 % positives), three members of price 1, 3 and 10 each. A third of the training
rows fits the members; the rest chooses their thresholds and fits the routers; test rows are looked
at once. A missed positive costs 50, a false alarm 1.

    python benchmarks/bench_objectives.py [--short] [--sets "made up,Adult,Covertype,regression"]
    python benchmarks/bench_objectives.py --merge FOLDER

Some sets alone replace their own entries of the last record. With ``--pieces FOLDER`` a process
keeps what it measured, of one set or of one figure of it (``--figures``), for ``--merge``.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from typing import NamedTuple

import numpy as np
from _harness import RESULTS, claim, keep_piece, read_pieces, save, table, tables_so_far
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
TITLE = "What the user cares about: cost of errors, F1, balanced accuracy, log loss, regression"
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
    """Given labels of the test rows at each budget, and what they cost on average if known."""

    name: str
    given: list
    spent: list | None = None


def contenders(problem, models, plain, figure):
    """skroute's router for the figure, and what there was before it."""
    X, y = problem.train
    members = thresholded(models, problem, figure)
    quality = MATRIX if figure == "cost" else figure
    router = OccamRouterClassifier(members, costs=COSTS, quality=quality, exchange_rate=0.0)
    router.fit(X, y)
    test = problem.test[0]
    found = [router.predict_routed(test, budget=b) for b in BUDGETS]
    given, spent = [one.y_pred for one in found], [float(one.cost.mean()) for one in found]
    yield Answers("OCCAM, its quality", given, spent)
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


WORDS = {
    "cost": "cost of errors per row",
    "f1": "F1",
    "balanced_accuracy": "balanced accuracy",
    "log loss": "log loss of predict_proba",
}


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


def compare(problem, found, figure):
    """Figures of all at each budget, and the standard errors of OCCAM's lead."""
    y = problem.test[1]
    sign = -1.0 if figure == "cost" else 1.0
    values = {one.name: [sign * FIGURES[figure](y, given) for given in one.given] for one in found}
    ours, *peers = found
    table(
        f"{problem.name}: {WORDS[figure]}",
        ["", *(f"budget {b:g}" for b in BUDGETS), "mean"],
        [[name, *row, float(np.mean(row))] for name, row in values.items()]
        + [["OCCAM's mean price", *ours.spent, float(np.mean(ours.spent))]],
    )
    errors = {
        peer.name: [standard_error(y, a, b, figure, 50) for a, b in zip(ours.given, peer.given)]
        for peer in peers
    }
    leads = []
    for name, error in errors.items():
        lead = sign * np.subtract(values[ours.name], values[name])
        leads.append([name, *(f"{d:+.4f} ({e:.4f})" for d, e in zip(lead, error))])
    header = ["ahead of (standard error)", *(f"budget {b:g}" for b in BUDGETS)]
    table(f"{problem.name}: {WORDS[figure]}, lead", header, leads)
    steps = [
        standard_error(y, before, after, figure, 50)
        for before, after in zip(ours.given, ours.given[1:])
    ]
    return {"values": values, "spent": ours.spent, "errors": errors, "step_errors": steps}


def key_of(*words):
    return "_".join(words).replace(" ", "_").replace(",", "").lower()


def claims_of_figure(name, figure, found):
    """Beside each peer: the mean of five budgets, and the worst budget in standard errors."""
    better = "lower" if figure in ("cost", "log loss") else "higher"
    sign = -1.0 if better == "lower" else 1.0
    (ours, own), *peers = found["values"].items()
    made, what = [], f"{name}: {WORDS[figure]}"
    bar = {"better": "lower", "bar": 1.0, "why": "the bar is one standard error"}
    for peer, values in peers:
        lead, error = sign * np.subtract(own, values), np.array(found["errors"][peer])
        made.append(
            claim(
                key_of(name, figure, peer, "worst"),
                f"{what}, worst budget, behind {peer} in standard errors",
                max(0.0, *(-lead / np.maximum(error, 1e-12))),
                **bar,
            )
        )
        made.append(
            claim(
                key_of(name, figure, peer),
                f"{what}, mean of five budgets",
                np.mean(own),
                peer=np.mean(values),
                against=peer,
                better=better,
                within=float(error.mean()),
                digits=4,
            )
        )
    if "step_errors" in found:
        step = sign * np.subtract(own[:-1], own[1:])
        worst = max(0.0, *(step / np.maximum(found["step_errors"], 1e-12)))
        text = f"{what}, worst step to a larger budget in standard errors"
        made.append(claim(key_of(name, figure, "more budget"), text, worst, **bar))
    return made


def claims(result):
    """What each number is compared with, from the results alone."""
    made = []
    for name, own in result.items():
        if name == "regression":
            made += claims_of_regression(own)
            continue
        for figure in WORDS:
            if figure in own:
                made += claims_of_figure(name, figure, own[figure])
        if total := own.get("total"):
            made.append(
                claim(
                    key_of(name, "total"),
                    f"{name}: errors and prices per row, no budget",
                    total["ours"],
                    peer=total["fixed"],
                    against=f"best fixed policy ({total['name']})",
                    better="lower",
                    within=total["se"],
                    digits=4,
                )
            )
    return made


def log_losses(problem, models):
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
    values, errors = {"OCCAM, log loss": [float(own.mean()) for own in ours]}, {}
    for name, proba in answers.items():
        chosen = [np.where(b >= COSTS, known[name], np.inf).argmin() for b in BUDGETS]
        theirs = [losses(proba[k]) for k in chosen]
        values[name] = [float(own.mean()) for own in theirs]
        gaps = [a - b for a, b in zip(ours, theirs)]
        errors[name] = [float(gap.std() / np.sqrt(len(rows))) for gap in gaps]
    table(
        f"{problem.name}: log loss of predict_proba",
        ["", *(f"budget {b:g}" for b in BUDGETS), "mean"],
        [[name, *row, float(np.mean(row))] for name, row in values.items()],
    )
    return {"calibration": router.calibration_, "values": values, "errors": errors}


def totals(problem, router, members):
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
    return {
        "ours": float(ours.mean()),
        "fixed": float(theirs.mean()),
        "name": members[best][0],
        "se": float(np.std(ours - theirs) / np.sqrt(len(y))),
    }


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
    return {"names": header[1:], "rows": shown.tolist()}


def claims_of_regression(found):
    rows, made = np.array(found["rows"]), []
    for name in ("best single", "random mix", "oracle"):
        lead = rows[:, 0] - rows[:, found["names"].index(name)]
        se = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
        more = {"why": "the oracle is told the true numbers"} if name == "oracle" else {}
        made.append(
            claim(
                key_of("regression", name),
                f"regression at half the price, {len(rows)} seeds: squared error",
                rows[:, 0].mean(),
                peer=rows[:, found["names"].index(name)].mean(),
                against=name,
                better="lower",
                within=float(se),
                digits=4,
                **more,
            )
        )
    return made


def earlier(sets, result):
    """Tables and results of the sets of the last record that are not measured now."""
    path = RESULTS / "objectives.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    others = [name for name in SETS if name not in sets]
    result.update({name: own for name, own in record["result"].items() if name in others})
    begin = tuple("Regression" if name == "regression" else name for name in others)
    return [one for one in record["tables"] if begin and one["title"].startswith(begin)]


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="made-up data alone, one seed")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--figures", default=",".join(WORDS), help="of a set, for --pieces")
    parser.add_argument("--pieces", help="folder to keep what is measured in, for --merge")
    parser.add_argument("--merge", help="folder of pieces to make the record of")
    arguments = parser.parse_args()
    short, sets = arguments.short, arguments.sets.split(",")
    figures, pieces = arguments.figures.split(","), arguments.pieces
    warnings.simplefilter("ignore", UserWarning)
    if arguments.merge:
        return merge(arguments.merge)
    result = {}
    for problem in problems(short):
        if problem.name not in sets:
            continue
        models = members_of(problem)
        frozen = [(name, FrozenEstimator(model)) for name, model in models.items()]
        plain = OccamRouterClassifier(frozen, costs=COSTS).fit(*problem.train)
        result[problem.name] = own = {"positives": float(problem.train[1].mean())}
        for figure in [name for name in (("cost",) if short else FIGURES) if name in figures]:
            *found, last = contenders(problem, models, plain, figure)
            if figure != "cost":
                found.append(last)
            own[figure] = compare(problem, found, figure)
            if figure == "cost":
                own["total"] = totals(problem, *last)
        if "log loss" in figures:
            own["log loss"] = log_losses(problem, models)
    if "regression" in sets:
        result["regression"] = regression(short)
    if pieces:
        record = {"result": result, "tables": tables_so_far()}
        return keep_piece(pieces, sets[0].replace(" ", "_"), "+".join(figures), record)
    kept = [] if short else earlier(sets, result)
    result = {name: result[name] for name in SETS if name in result}
    save("objectives", result, title=TITLE, claims=claims(result), tables=kept, write=not short)


def merge(folder):
    """The record of pieces that were measured by independent processes."""
    records, measured = read_pieces(folder)
    result, tables = {}, []
    for piece in (piece for of_set in records.values() for piece in of_set):
        tables += piece["tables"]
        for name, own in piece["result"].items():
            result.setdefault(name, {}).update(own)
    tables += earlier(list(result), result)
    result = {name: result[name] for name in SETS if name in result}
    made = claims(result)
    save("objectives", result, title=TITLE, claims=made, tables=tables, measured=measured)


if __name__ == "__main__":
    main()
