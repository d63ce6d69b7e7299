"""Do budgets hold? Realised cost over budget, and the coverage of the validation intervals.

200 random splits for each set and number of rows (--splits N for another number), three budgets
each: a quarter, a half and three quarters of the way from the cheapest to the unlimited policy.
A router is fitted on the rows drawn and spends on 3,000 others; what is counted is what the
choices cost in the log, never what was planned. Fixed costs are the price list, with the logged
costs given to `fit` where there are some; learned ones come from a `cost_estimator`.

Beside each bias that of the price that is solved for planned costs, ties to the cheaper (the rule
of Algorithm 1, and skroute's until this benchmark). Coverage: how often the 95 % intervals from
`validation_cost_se_` and `validation_quality_se_`, widened by the noise of the test rows, hold the
mean of the test rows. That noise is of rows, not of draws: ties at the price are drawn, evenly
among equal rows, so that 3,000 copies of one row spend their budget but for one or two of them.

ParetoBandit is read from the folder of SKROUTE_DATA (no licence question: Apache-2.0, but there is
no fetcher); without it the set is left out. "val to test" fits on rows of its validation file and
spends on its test file, whose requests are longer: that drift is shown beside it.
All its splits spend on that one file, whose rows alone leave a standard error of .04. One test
file is one draw: no coverage is claimed of it.

"Adapt on" a set has a cheap model of all features: where it is as good as the full one, no row is
sent, and nothing is counted ("not spendable"). "Adapt, features of" a set pays for columns, and
the cheap model reads few; its gate has few values and many ties. "Combining" are the routers that
ask members in turn, on FER+'s services.

Standard errors are those over splits: the budgets of a split are not independent.

A budget that a fit would not spend whatever its price is not counted. So it is where FrugalMCT
takes a base, the best one or one within noise of it, that needs less with every add-on that gains.

    python benchmarks/bench_budgets.py [--short] [--splits N]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import gzip
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import _data
import numpy as np
from _common import record, table
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
from skroute.datasets import fetch_frugalml, fetch_llmrouter, fetch_routellm_mmlu, get_data_home
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.members import RecordedClassifier
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)
from skroute.routing._draws import row_keys
from skroute.routing._policy import choose_by_rule

SIZES = (300, 1000, 3000)
SHARES = (0.25, 0.5, 0.75)
# Rows that each split is measured on.
N_TEST = 3000
# Of a cost: below it nothing varies.
NOTHING = 1e-9
PARETOBANDIT = Path(get_data_home()) / "paretobandit"
# Rows of its validation file.
N_VAL = 1785


class Log(NamedTuple):
    """Rows with the quality and, where it differs from row to row, the cost of each choice."""

    X: np.ndarray
    Q: np.ndarray
    costs: np.ndarray
    logged: Any = None


class Setting(NamedTuple):
    """What is fitted and where it spends. `draw(rng, n)` gives a `Log` to fit and one to test."""

    name: str
    draw: Any
    router: Any
    sizes: tuple = SIZES


def forest():
    return ExtraTreesRegressor(10, min_samples_leaf=5, max_features=0.5, random_state=0)


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


@cache
def ferplus():
    log = fetch_frugalml("FERPLUS")
    label, score = log.predictions[:, 3], log.scores[:, 3]
    X = np.column_stack([np.eye(label.max() + 1)[label], score])
    return Log(X, log.quality.astype(float), log.costs)


def embedded(texts):
    # Without labels, so that one embedding serves all splits.
    vectors = TfidfVectorizer(sublinear_tf=True, min_df=3, max_features=5000)
    return make_pipeline(vectors, TruncatedSVD(15, random_state=0)).fit_transform(texts)


@cache
def mmlu():
    log = fetch_routellm_mmlu()
    keep = np.flatnonzero(~log.contaminated)
    return Log(embedded(log.data[keep]), log.quality[keep].astype(float), log.costs)


@cache
def llmrouter():
    log = fetch_llmrouter()
    keep = np.flatnonzero(~log.is_test)
    return Log(embedded(log.data[keep]), log.quality[keep].astype(float), log.costs)


@cache
def paretobandit():
    parts = []
    for name in ("val", "test"):
        with gzip.open(PARETOBANDIT / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
            parts.append(list(csv.DictReader(file)))
    rows = parts[0] + parts[1]
    models = [key.removeprefix("reward_") for key in rows[0] if key.startswith("reward_")]
    Q = np.array([[float(row[f"reward_{model}"]) for model in models] for row in rows])
    # Dollars per thousand requests.
    C = 1e3 * np.array([[float(row[f"cost_{model}"]) for model in models] for row in rows])
    order = np.argsort(C.mean(axis=0))
    prompts = [row["prompt"] for row in rows]
    X = np.column_stack([embedded(prompts), np.log([len(prompt) for prompt in prompts])])
    C = C[:, order]
    return Log(X, Q[:, order], C[:N_VAL].mean(axis=0), C)


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


@cache
def adult():
    bunch = _data.adult()
    return bunch.data.astype(float), bunch.target


@cache
def letter():
    bunch = _data.letter()
    return bunch.data.astype(float), np.asarray(bunch.target) >= "N"


@cache
def covertype():
    bunch = _data.covertype()
    return bunch.data.astype(float), bunch.target


def labelled(read, rng, n):
    """Rows to fit, rows that say what the gate would spend, and rows to test."""
    X, y = read()
    order = rng.permutation(len(X))
    train, probe, test = np.split(order[: n + 2 * N_TEST], [n, n + N_TEST])
    # A gate is refused on a class so rare that a held-out part may hold all of it.
    names, counts = np.unique(y[train], return_counts=True)
    train = train[np.isin(y[train], names[counts >= 10])]
    return (X[train], y[train]), X[probe], X[test]


def gate(rows):
    full = RandomForestClassifier(25, min_samples_leaf=2, random_state=0)
    costs = {"gate": 0, "cheap": 1, "full": 20}
    costs = {"model_costs": costs, "feature_costs": np.zeros(rows[0].shape[1])}
    return AdaptGatingClassifier(full, gate=BoostedGate(n_estimators=30), p_full=0.5, **costs).fit(
        *rows
    )


def measure_gate(setting, n, budgets, seed):
    """Over the budgets of a split: the bias. A gate sends no more rows than gain by it."""
    found = []
    rows, probe, X = setting.draw(np.random.default_rng([seed, n]), n)
    fitted = setting.router(rows)
    low = fitted.min_budget_
    most = fitted.predict_cost(probe, budget=np.inf).mean()
    for share in SHARES if most > low else ():
        budget = float(low + share * (most - low))
        if isinstance(fitted, FrugalMCTClassifier):
            policy = fitted._policy_at(budget)
            if budget > policy.deciding + policy.path.budgets[-1]:
                continue
        found.append([fitted.predict_cost(X, budget=budget).mean() / budget - 1, seed])
    return found


def feature_gate(gamma, rows):
    """A cheap model of few features, which costs a few per cent of all of them."""
    full = RandomForestClassifier(40, min_samples_leaf=2, oob_score=True, random_state=0)
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


def settings():
    """All of them; a log is read when it is drawn from for the first time."""
    real = [
        ("FER+", ferplus, Ridge(), SIZES),
        ("MMLU", mmlu, Ridge(), SIZES),
        ("LLMRouter", llmrouter, Ridge(), SIZES),
        ("digits", digits, None, SIZES[:2]),
    ]
    for name, read, estimator, sizes in real:
        yield Setting(
            f"{name}, fixed", partial(split, read), partial(fixed, estimator), sizes=sizes
        )
    for way, fit in (("fixed", fixed), ("learned", learned)):
        if not PARETOBANDIT.exists():
            print("ParetoBandit is not in the folder of SKROUTE_DATA: left out.")
            break
        draw, fit = partial(split, paretobandit), partial(fit, Ridge())
        yield Setting(f"ParetoBandit, {way}", draw, fit, sizes=SIZES[:2])
        name, sizes = f"ParetoBandit val to test, {way}", (300, 1000, 1785)
        yield Setting(name, val_to_test, fit, sizes=sizes)
    for kind in ("log-normal", "Pareto"):
        for way, fit in (("fixed", fixed), ("learned", learned)):
            name = f"{kind}, {way}, ridge"
            yield Setting(name, partial(made_up, kind), partial(fit, Ridge()))
    for k in (1, 2, 3, 5, 14):
        name = f"{k} distinct rows, fixed"
        yield Setting(name, partial(tenants, k), partial(fixed, Ridge(1e-3)))
    for name, estimator in [
        ("full-grown tree", DecisionTreeRegressor(random_state=0)),
        ("5-NN", KNeighborsRegressor(5)),
    ]:
        draw = partial(made_up, "fixed")
        yield Setting(f"{name}, fixed", draw, partial(fixed, estimator))
    name, draw = "log-normal, learned, forest", partial(made_up, "log-normal")
    yield Setting(name, draw, partial(learned, forest()))
    for name, read in (("Adult", adult), ("Covertype", covertype)):
        yield Setting(f"Adapt on {name}", partial(labelled, read), gate, sizes=SIZES)
    features = ("Letter", letter, 0.02), ("Covertype", covertype, 0.01), ("Adult", adult, 0.01)
    for name, read, gamma in features:
        router, draw = partial(feature_gate, gamma), partial(labelled, read)
        yield Setting(f"Adapt, features of {name}", draw, router, sizes=SIZES)
    for kind in (FrugalMLClassifier, FrugalMCTClassifier, SequentialRouterClassifier):
        name, draw = kind.__name__.removesuffix("Classifier"), partial(labelled, asked)
        router = partial(combining, kind)
        yield Setting(f"Combining, {name}", draw, router, sizes=(500, 1000))


def planned_path(router):
    """The prices by planned costs."""
    policy = router._policy()
    return assignment_path(policy.estimate - policy.penalty, policy.planned)


def test_noise(choices, table, X):
    """Standard errors of a mean over test rows: by the rows, and by the draws of ties.

    Of equal rows that are tied the right number goes each way but for less than one of them.
    """
    rows = np.arange(len(table))
    apart = table[rows, choices.high] - table[rows, choices.low]
    _, code = np.unique(row_keys(X), return_inverse=True)
    often, share = np.bincount(code), choices.share
    mean = np.bincount(code, apart) / often
    # Which of them go up says nothing of what that changes in each, and how many is rounded.
    which = np.sum(share * (1 - share) * (apart - mean[code]) ** 2)
    left = np.bincount(code, share) % 1.0
    of_draws = np.sqrt(which + np.sum(mean**2 * left * (1 - left))) / len(rows)
    return choices.mean(table).std() / len(rows) ** 0.5, of_draws


def budgets_of(setting):
    """From the largest fit, so that all splits have the same."""
    log, _ = setting.draw(np.random.default_rng(10**6), max(setting.sizes))
    path = setting.router(log).price_path_
    low, high = path.budgets[0], path.budgets[-1]
    return [low + share * (high - low) for share in SHARES]


def measure(setting, n, budgets, seed):
    """Over the budgets of a split: bias, that of planned costs, and z of cost and quality."""
    found = []
    log, test = setting.draw(np.random.default_rng([seed, n]), n)
    router, rows = setting.router(log), np.arange(len(test.X))
    true = np.broadcast_to(test.costs if test.logged is None else test.logged, test.Q.shape)
    own, estimate = router.price_path_.budgets, router.predict_quality(test.X)
    planned = test.costs if router.costs is not None else router._row_costs(test.X, None)
    path = planned_path(router)
    for budget in budgets if setting.name[0] not in "12345" else own_budgets(own):
        if not own[0] <= budget <= own[-1]:
            # This fit would not spend it whatever its price.
            continue
        budget = float(budget)
        router.set_params(budget=budget)
        routed = router.predict_routed(test.X)
        cost, quality = true[rows, routed.route], test.Q[rows, routed.route]
        # Ties to the cheaper.
        price = path.price(max(budget, path.budgets[0]))
        old = true[rows, choose_at_price(estimate, planned, price)].mean()
        policy = router._policy()
        ties = choose_by_rule(estimate - policy.penalty, planned, policy.rule(budget))
        of_cost, of_quality = (test_noise(ties, each, test.X) for each in (true, test.Q))
        found.append(
            [
                cost.mean() / budget - 1,
                old / budget - 1,
                (cost.mean() - router.validation_cost_)
                / max(np.linalg.norm([router.validation_cost_se_, *of_cost]), NOTHING),
                (quality.mean() - router.validation_quality_)
                / max(np.linalg.norm([router.validation_quality_se_, *of_quality]), NOTHING),
                routed.expected_quality.mean() - quality.mean(),
                routed.expected_cost.mean() / cost.mean() - 1,
                np.hypot(router.validation_cost_se_, of_cost[0]) / budget,
                seed,
            ]
        )
    return found


def is_gated(name):
    return name.startswith(("Adapt", "Combining"))


def measured(setting, n, seeds):
    """Splits of one set, one by one: seed and what was found, (n_budgets, n_numbers)."""
    gated = is_gated(setting.name)
    budgets = None if gated or not seeds else budgets_of(setting)
    for seed in seeds:
        yield seed, (measure_gate if gated else measure)(setting, n, budgets, seed)


def error_of(values, split):
    """Standard error of the mean; the budgets of a split are not independent."""
    means = [values[split == seed].mean() for seed in np.unique(split)]
    return np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan


def own_budgets(path):
    """What tenants are worth differs from draw to draw, and so does what can be spent."""
    return [path[0] + share * (path[-1] - path[0]) for share in SHARES]


def row_of(name, n, splits):
    """A row of the table."""
    found = np.array([row for _, rows in splits for row in rows])
    row = [name, n, len(found), len(SHARES) * len(splits) - len(found)]
    if not len(found):
        return row + ["-"] * 8
    bias = found[:, 0]
    row += [f"{bias.mean():+.4f}", f"{error_of(bias, found[:, -1]):.4f}", f"{bias.std():.3f}"]
    if is_gated(name):
        return row + ["-"] * 5
    varies = found[:, 6] > NOTHING
    cost = f"{np.mean(np.abs(found[varies, 2]) < 1.96):.3f}" if varies.any() else "-"
    row += [f"{found[:, 1].mean():+.4f}", cost, f"{np.mean(np.abs(found[:, 3]) < 1.96):.3f}"]
    return row + [f"{value:+.4f}" for value in found[:, 4:6].mean(axis=0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="*", help="rows of a fit, of those there are")
    parser.add_argument("--part", default="", help="sets that begin so")
    arguments = parser.parse_args()
    n_splits = 2 if arguments.short else arguments.splits
    warnings.simplefilter("ignore")
    short_ones = ("digits", "Pareto, learned, ridge", "2 distinct", "5-NN")
    every = [setting for setting in settings() if setting.name.startswith(arguments.part)]
    if arguments.short:
        every = [
            setting._replace(sizes=setting.sizes[:1])
            for setting in every
            if setting.name.startswith(short_ones)
        ]
    rows = []
    for setting in every:
        for n in [n for n in setting.sizes if n in (arguments.rows or setting.sizes)]:
            row = row_of(setting.name, n, list(measured(setting, n, range(n_splits))))
            print(*row, flush=True)
            rows.append(row)
    table(
        "Realised cost / budget - 1 and coverage of 95 % intervals",
        ["set", "rows", "fits x budgets", "not spendable", "bias", "+-", "sd", "planned price"]
        + ["cost covered", "quality covered", "expected quality - true"]
        + ["expected cost / true - 1"],
        rows,
    )
    if not (arguments.short or arguments.part or arguments.rows):
        record("budgets")


if __name__ == "__main__":
    main()
