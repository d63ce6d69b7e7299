"""Do budgets hold? Realised cost over budget, and the coverage of the validation intervals.

200 random splits for each set and number of rows (--splits N for another number), three
budgets each: a quarter, a half and three quarters of the way from the cheapest to the
unlimited policy. A router is fitted on the rows drawn and spends on 3,000 others; what
is counted is what the choices cost in the log, never what was planned. Fixed costs are
the price list, with the logged costs given to `fit` where there are some; learned ones
come from a `cost_estimator`.

Beside each bias that of the price that is solved for planned costs, ties to the cheaper
(the rule of Algorithm 1, and skroute's until this benchmark). Coverage: how often the
95 % intervals from `validation_cost_se_` and `validation_quality_se_`, widened by the
noise of the test rows, hold the mean of the test rows. That noise is of rows, not of
draws: ties at the price are drawn, evenly among equal rows, so that 3,000 copies of one
row spend their budget but for one or two of them.

"val to test" fits on rows of ParetoBandit's validation file and spends on its test
file, whose requests are longer: that drift is shown beside it. All splits spend on that
one file, whose rows alone leave a standard error of .04: no coverage is claimed of it.
"Adapt on" a set has a cheap model of all features; "Adapt, features of" a set pays for
columns, and the cheap model reads few. "Combining" are the routers that ask members in
turn, on FER+'s services.

Standard errors are those over splits: the budgets of a split are not independent. A
budget that a fit would not spend whatever its price is not counted ("not spendable").
Neither is one that a fit does not spend in full because its held-out rows gain nothing
from more money ("kept back"). Both are known from the fit, before any test row is seen.

    python benchmarks/bench_budgets.py [--short] [--splits N] [--part WORD]

A run of the sets that begin with a word replaces their tables in the record.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from functools import cache, partial
from typing import Any, NamedTuple

import _data
import _estimate_tables
import numpy as np
from _common import table
from bench_acquisition import TABLES, record_parts
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.assignment import assignment_path, choose_at_price
from skroute.datasets import fetch_frugalml
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.members import RecordedClassifier
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)
from skroute.routing.parts._policy import choose_by_rule
from skroute.utils._row_hash import row_keys

SIZES = (300, 1000, 3000)
SHARES = (0.25, 0.5, 0.75)
# Rows that each split is measured on.
N_TEST = 3000
# Of a cost: below it nothing varies.
NOTHING = 1e-9
# Rows of its validation file.
N_VAL = 1785


class Log(NamedTuple):
    """Rows with the quality and, where it differs from row to row, the cost of each choice."""

    X: np.ndarray
    Q: np.ndarray
    costs: np.ndarray
    logged: Any = None


def of(log, rows):
    logged = None if log.logged is None else log.logged[rows]
    return Log(log.X[rows], log.Q[rows], log.costs, logged)


def split(read, rng, n):
    log = read()
    order = rng.permutation(len(log.X))
    return of(log, order[:n]), of(log, order[n : n + N_TEST])


@cache
def digits():
    X, y = load_digits(return_X_y=True)
    members = [
        GaussianNB(),
        DecisionTreeClassifier(max_depth=8, random_state=0),
        LogisticRegression(C=0.01, max_iter=500),
        RandomForestClassifier(40, random_state=0),
    ]
    right = [cross_val_predict(member, X, y, cv=5) == y for member in members]
    return Log(X, np.column_stack(right).astype(float), np.array([1.0, 1.5, 4.0, 20.0]))


def embedded(texts):
    # Without labels, so that one embedding serves all splits.
    vectors = TfidfVectorizer(sublinear_tf=True, min_df=3, max_features=5000)
    return make_pipeline(vectors, TruncatedSVD(15, random_state=0)).fit_transform(texts)


@cache
def log_of(name):
    """A table of bench_estimates.py, its prompts embedded."""
    log = _estimate_tables.LOGS[name]()
    X = embedded(log.rows) if log.rows.ndim == 1 else log.rows
    return Log(X, log.quality.astype(float), log.costs)


@cache
def paretobandit():
    val, test = _data.paretobandit("val"), _data.paretobandit("test")
    # Dollars per thousand requests.
    C = 1e3 * np.concatenate([val.cost, test.cost])
    order, prompts = np.argsort(C.mean(axis=0)), val.prompt + test.prompt
    X = np.column_stack(
        [embedded(prompts), np.log([len(prompt) for prompt in prompts])]
    )
    Q, C = np.concatenate([val.quality, test.quality])[:, order], C[:, order]
    return Log(X, Q, C[:N_VAL].mean(axis=0), C)


def val_to_test(rng, n):
    log = paretobandit()
    return of(log, rng.permutation(N_VAL)[:n]), of(log, np.arange(N_VAL, len(log.X)))


def made_up(kind, rng, n):
    """Three choices; hard rows are long, so that cost and quality go together."""
    n_all = n + N_TEST
    X = rng.normal(size=(n_all, 5))
    hard = X[:, 0] + 0.5 * X[:, 1]
    odds = np.column_stack([1 - 1.5 * hard, 2 - 0.8 * hard, np.full(n_all, 2.4)])
    Q = (rng.random((n_all, 3)) < 1 / (1 + np.exp(-odds))).astype(float)
    prices = np.array([1.0, 4.0, 12.0])
    logged = None
    if kind != "fixed":
        if kind == "log-normal":
            length = np.exp(0.6 * hard + 0.8 * rng.normal(size=n_all) - 0.545)
        else:
            length = np.exp(0.3 * hard) * (rng.pareto(2.5, n_all) + 1) * 0.6
        logged = np.outer(length, prices)
    log = Log(X, Q, prices, logged)
    return of(log, np.arange(n)), of(log, np.arange(n, n_all))


def tenants(k, rng, n):
    """The tenant is all that is known of a request."""
    odds = np.sort(rng.uniform(0.3, 0.95, (k, 2)), axis=1)
    odds[:, 1] = np.minimum(odds[:, 1] + 0.05, 1.0)
    tenant = rng.integers(0, k, n + N_TEST)
    Q = (rng.random((len(tenant), 2)) < odds[tenant]).astype(float)
    log = Log(np.eye(k)[tenant], Q, np.array([1.0, 5.0]))
    return of(log, np.arange(n)), of(log, np.arange(n, len(tenant)))


def labelled(name, rng, n):
    """Rows to fit, rows that say what the gate would spend, and rows to test."""
    X, y = asked() if name == "FER+" else TABLES[name]()
    order = rng.permutation(len(X))
    train, probe, test = np.split(order[: n + 2 * N_TEST], [n, n + N_TEST])
    # A gate is refused on a class so rare that a held-out part may hold all of it.
    names, counts = np.unique(y[train], return_counts=True)
    train = train[np.isin(y[train], names[counts >= 10])]
    return (X[train], y[train]), X[probe], X[test]


def keeps_back(policy, budget):
    """Return True if a policy spends less than a budget, as more gained nothing in fit."""
    price_of_budget = policy.rule(budget, floors=(0.0, 0.0)).price
    return policy.rule(budget).price > price_of_budget


def gate(rows):
    full = RandomForestClassifier(25, min_samples_leaf=2, random_state=0)
    costs = {"gate": 0, "cheap": 1, "full": 20}
    costs = {"model_costs": costs, "feature_costs": np.zeros(rows[0].shape[1])}
    return AdaptGatingClassifier(
        full, gate=BoostedGate(n_estimators=30), p_full=0.5, **costs
    ).fit(*rows)


def measure_gate(draw, router, n, budgets, seed):
    """Bias at the budgets of a split, and how many budgets are kept back.

    A gate sends no more rows than gain by it.
    """
    found = []
    n_kept_back = 0
    rows, probe, X = draw(np.random.default_rng([seed, n]), n)
    fitted = router(rows)
    low, most = fitted.min_budget_, fitted.predict_cost(probe, budget=np.inf).mean()
    for share in SHARES if most > low else ():
        budget = float(low + share * (most - low))
        if isinstance(fitted, FrugalMCTClassifier):
            policy = fitted._options_at(budget).policy
            if budget > policy.deciding_cost + policy.path.budgets[-1]:
                continue
            if keeps_back(policy, budget):
                n_kept_back += 1
                continue
        found.append([fitted.predict_cost(X, budget=budget).mean() / budget - 1])
    return found, n_kept_back


def feature_gate(gamma, rows):
    """A cheap model of few features, which costs a few per cent of all of them."""
    full = RandomForestClassifier(
        40, min_samples_leaf=2, oob_score=True, random_state=0
    )
    trees = BoostedGate(n_estimators=30)
    return AdaptGatingClassifier(full, gate=trees, p_full=0.5, gamma=gamma).fit(*rows)


def fixed(estimator, log):
    router = BudgetRouter(estimator, costs=log.costs)
    return router.fit(log.X, log.Q, costs=log.logged)


def learned(estimator, log):
    router = BudgetRouter(estimator, cost_estimator=estimator)
    return router.fit(log.X, log.Q, costs=log.logged)


@cache
def recorded():
    """FER+'s services as members, and its target; rows are positions."""
    log = fetch_frugalml("FERPLUS")
    n_labels = 1 + max(int(log.predictions.max()), int(log.target.max()))
    logs = [
        RecordedClassifier(labels, scores=scores, classes=range(n_labels))
        for labels, scores in zip(log.predictions.T, log.scores.T)
    ]
    members = list(zip(log.model_names, logs))
    return members, log.costs, log.target.astype(np.int64)


def asked():
    """Rows and labels of these services."""
    target = recorded()[2]
    return np.arange(len(target))[:, np.newaxis], target


def combining(kind, rows):
    members, costs, _ = recorded()
    return kind(members, costs=costs).fit(*rows)


class Setting(NamedTuple):
    """What is fitted and where it spends. `draw(rng, n)` gives what to fit and what to test."""

    name: str
    draw: Any
    router: Any
    sizes: tuple = SIZES


def settings():
    """All of them; a log is read when it is drawn from for the first time."""
    ridge = partial(fixed, Ridge())
    for name in ("FrugalML: FERPLUS", "MMLU", "LLMRouter"):
        yield Setting(f"{name}, fixed", partial(split, partial(log_of, name)), ridge)
    yield Setting(
        "digits, fixed", partial(split, digits), partial(fixed, None), SIZES[:2]
    )
    ways = {"fixed": ridge, "learned": partial(learned, Ridge())}
    for way, fit in ways.items():
        draw = partial(split, paretobandit)
        yield Setting(f"ParetoBandit, {way}", draw, fit, SIZES[:2])
        yield Setting(
            f"ParetoBandit val to test, {way}", val_to_test, fit, (300, 1000, N_VAL)
        )
        for kind in ("log-normal", "Pareto"):
            yield Setting(f"{kind}, {way}, ridge", partial(made_up, kind), fit)
    for k in (1, 2, 3, 5, 14):
        draw = partial(tenants, k)
        yield Setting(f"{k} distinct rows, fixed", draw, partial(fixed, Ridge(1e-3)))
    tree, neighbours = DecisionTreeRegressor(random_state=0), KNeighborsRegressor(5)
    for name, estimator in (("full-grown tree", tree), ("5-NN", neighbours)):
        draw = partial(made_up, "fixed")
        yield Setting(f"{name}, fixed", draw, partial(fixed, estimator))
    forest = ExtraTreesRegressor(
        10, min_samples_leaf=5, max_features=0.5, random_state=0
    )
    draw = partial(made_up, "log-normal")
    yield Setting("log-normal, learned, forest", draw, partial(learned, forest))
    for name in ("adult", "covertype"):
        yield Setting(f"Adapt on {name}", partial(labelled, name), gate)
    for name, gamma in (("letter", 0.02), ("covertype", 0.01), ("adult", 0.01)):
        router = partial(feature_gate, gamma)
        yield Setting(f"Adapt, features of {name}", partial(labelled, name), router)
    for kind in (FrugalMLClassifier, FrugalMCTClassifier, SequentialRouterClassifier):
        name, router = (
            kind.__name__.removesuffix("Classifier"),
            partial(combining, kind),
        )
        yield Setting(
            f"Combining, {name}", partial(labelled, "FER+"), router, (500, 1000)
        )


def test_noise(choices, table, X):
    """Standard errors of a mean over test rows: by the rows, and by the draws of ties.

    Of equal rows that are tied the right number goes each way but for less than one of
    them.
    """
    rows = np.arange(len(table))
    apart = table[rows, choices.high] - table[rows, choices.low]
    _, code = np.unique(row_keys(X), return_inverse=True)
    often, share = np.bincount(code), choices.share
    mean = np.bincount(code, apart) / often
    # Which of them go up says nothing of what that changes in each, and how many is
    # rounded.
    which = np.sum(share * (1 - share) * (apart - mean[code]) ** 2)
    left = np.bincount(code, share) % 1.0
    of_draws = np.sqrt(which + np.sum(mean**2 * left * (1 - left))) / len(rows)
    return choices.mean(table).std() / len(rows) ** 0.5, of_draws


def between(path):
    """The three budgets of a path: what can be spent differs from draw to draw."""
    return [float(path[0] + share * (path[-1] - path[0])) for share in SHARES]


def measure(draw, router, n, budgets, seed):
    """Over the budgets of a split: bias, that of planned costs, and z of cost and quality.

    Also the number of budgets that are kept back.
    """
    found = []
    n_kept_back = 0
    log, test = draw(np.random.default_rng([seed, n]), n)
    router, rows = router(log), np.arange(len(test.X))
    true = np.broadcast_to(
        test.costs if test.logged is None else test.logged, test.Q.shape
    )
    own, estimate = router.price_path_.budgets, router.predict_quality(test.X)
    planned = (
        test.costs if router.costs is not None else router._row_costs(test.X, None)
    )
    policy = router._policy()
    path = assignment_path(policy.estimate - policy.penalty, policy.planned)
    for budget in budgets or between(own):
        if not own[0] <= budget <= own[-1]:
            # This fit would not spend it whatever its price.
            continue
        if keeps_back(policy, budget):
            n_kept_back += 1
            continue
        routed = router.set_params(budget=budget).predict_routed(test.X)
        cost, quality = true[rows, routed.route], test.Q[rows, routed.route]
        # Ties to the cheaper.
        price = path.price(max(budget, path.budgets[0]))
        old = true[rows, choose_at_price(estimate, planned, price)].mean()
        policy = router._policy()
        ties = choose_by_rule(estimate - policy.penalty, planned, policy.rule(budget))
        found.append([cost.mean() / budget - 1, old / budget - 1])
        for mean, known, error, each in (
            (cost.mean(), router.validation_cost_, router.validation_cost_se_, true),
            (
                quality.mean(),
                router.validation_quality_,
                router.validation_quality_se_,
                test.Q,
            ),
        ):
            of_rows, of_draws = test_noise(ties, each, test.X)
            # Where nothing varies, there is nothing to cover.
            varies = np.hypot(error, of_rows) > NOTHING * budget
            noise = np.linalg.norm([error, of_rows, of_draws])
            found[-1].append((mean - known) / noise if varies else np.nan)
    return found, n_kept_back


def row_of(setting, n, n_splits):
    """A row of the table of a setting."""
    gated, budgets = setting.name.startswith(("Adapt", "Combining")), None
    if not (gated or setting.name[0] in "12345"):
        # From the largest fit, so that all splits have the same.
        log, _ = setting.draw(np.random.default_rng(10**6), max(setting.sizes))
        budgets = between(setting.router(log).price_path_.budgets)
    about = setting.draw, setting.router, n, budgets
    splits = [
        (measure_gate if gated else measure)(*about, seed) for seed in range(n_splits)
    ]
    found = np.array([row for rows, _ in splits for row in rows])
    n_kept_back = sum(n_of_split for _, n_of_split in splits)
    n_not_spendable = len(SHARES) * n_splits - len(found) - n_kept_back
    row = [n, len(found), n_not_spendable, n_kept_back]
    if not len(found):
        return row + ["-"] * 6
    means = [np.mean([one[0] for one in rows]) for rows, _ in splits if rows]
    error = np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
    row += [f"{found[:, 0].mean():+.4f}", f"{error:.4f}", f"{found[:, 0].std():.3f}"]
    if gated:
        return row + ["-"] * 3
    z = [np.abs(each[~np.isnan(each)]) for each in found[:, 2:].T]
    covered = [f"{np.mean(each < 1.96):.3f}" if len(each) else "-" for each in z]
    return [*row, f"{found[:, 1].mean():+.4f}", *covered]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--part", default="", help="sets that begin so")
    arguments = parser.parse_args()
    n_splits = 2 if arguments.short else arguments.splits
    warnings.simplefilter("ignore")
    short_ones = ("digits", "Pareto, learned, ridge", "2 distinct", "5-NN")
    header = [
        "rows",
        "fits x budgets",
        "not spendable",
        "kept back",
        "bias",
        "+-",
        "sd",
        "planned price",
    ]
    for setting in settings():
        if not setting.name.startswith(
            short_ones if arguments.short else arguments.part
        ):
            continue
        sizes = setting.sizes[: 1 if arguments.short else None]
        table(
            f"{setting.name}: realised cost / budget - 1, coverage of 95 % intervals",
            [*header, "cost covered", "quality covered"],
            [row_of(setting, n, n_splits) for n in sizes],
        )
        if not arguments.short:
            record_parts("budgets")


if __name__ == "__main__":
    main()
