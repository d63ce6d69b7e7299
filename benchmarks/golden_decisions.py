"""Golden decisions: what every estimator decides on twenty-two data sets, to the last bit.

A rewriting that is to change nothing is checked by this script. Record before the first
change, compare after the last one:

    python benchmarks/golden_decisions.py record before.npz
    python benchmarks/golden_decisions.py compare before.npz

`compare` prints each array that differs, with the number of rows in which it does, and
exits with 1 if there is one. `--cases` takes words: only cases whose name contains one
of them run. Routes, costs, answers, probabilities, estimates and certificates are
compared. All models have a fixed `random_state`. Records of other versions of the
libraries, or of another processor, are not comparable.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
import traceback
import warnings

import _data

os.environ.setdefault("SKROUTE_DATA", str(_data.FOLDER))

import numpy as np
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.ensemble import (
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.assignment import assignment_path, solve_assignment
from skroute.certified import CertifiedRouter, PromiseMonitor
from skroute.datasets import (
    fetch_frugalmct,
    fetch_frugalml,
    fetch_llmrouter,
    fetch_routellm_mmlu,
    make_four_clusters,
    make_routing_problem,
)
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import GreedyFeatureSelector, PolyDomSelector
from skroute.forests import FastForest
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    LinearGate,
    SequentialFeatureClassifier,
)
from skroute.members import RecordedClassifier
from skroute.metrics import accuracy_cost_curve, off_policy_curve, reference_curves
from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    DaskRouter,
    DummyRouterClassifier,
    DummyRouterRegressor,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OnlineBudgetRouter,
    SequentialRouterClassifier,
)

# Rows that a router is fitted on, and rows that it decides: enough for folds and ties,
# and seconds.
N_FIT = 300
N_NEW = 200
# Budgets, as positions between the cheapest and the most expensive choice.
SHARES = (0.1, 0.4, 0.8)


def split(X, y, n_fit=N_FIT, n_new=N_NEW, seed=0):
    """Return rows to fit, their targets, new rows and their targets, drawn without replacement.

    A small data set is divided in the same proportion.
    """
    order = np.random.default_rng(seed).permutation(len(X))
    if len(X) < n_fit + n_new:
        n_fit = len(X) * n_fit // (n_fit + n_new)
    fit = order[:n_fit]
    new = order[n_fit : n_fit + n_new]
    return X[fit], y[fit], X[new], y[new]


# Data sets ----------------------------------------------------------------------------


def classification_sets():
    """Return a mapping from a name to rows and labels, read by functions without arguments."""

    def of_scikit_learn(load):
        return lambda: load(return_X_y=True)

    def of_a_table(load):
        def read():
            table = load()
            return np.asarray(table.data, dtype=np.float64), np.asarray(table.target)

        return read

    def made(n_classes):
        return lambda: make_classification(
            800, 8, n_informative=5, n_classes=n_classes, flip_y=0.1, random_state=0
        )

    def clusters():
        X, y, *_ = make_four_clusters(800, random_state=0)
        return X, y

    return {
        "breast cancer": of_scikit_learn(load_breast_cancer),
        "iris": of_scikit_learn(load_iris),
        "wine": of_scikit_learn(load_wine),
        "digits": of_scikit_learn(load_digits),
        "two made classes": made(2),
        "four made classes": made(4),
        "four clusters": clusters,
        "adult": of_a_table(_data.adult),
        "letter": of_a_table(_data.letter),
        "covertype": of_a_table(_data.covertype),
        "spam": of_a_table(_data.spam),
    }


def log_sets():
    """Return a mapping from a name to rows, qualities, list prices and costs of rows (or None)."""

    def made():
        problem = make_routing_problem(600, random_state=0)
        return problem.data, problem.quality, problem.costs, None

    def coco():
        log = fetch_frugalmct("COCO")
        scores = np.random.default_rng(0).normal(size=(len(log.quality), 3))
        return scores + log.quality[:, :3], log.quality, log.costs, None

    def routellm():
        log = fetch_routellm_mmlu()
        return log.data, log.quality, log.costs, None

    def llmrouter():
        log = fetch_llmrouter()
        costs = np.asarray(log.costs, dtype=np.float64)
        prices = costs.mean(axis=0) if costs.ndim == 2 else costs
        return log.data, log.quality, prices, None

    def pareto():
        log = _data.paretobandit("val")
        return (
            np.array(log.prompt, dtype=object),
            log.quality,
            log.cost.mean(axis=0),
            log.cost,
        )

    def cascade(name):
        def read():
            log = _data.cascades(name)
            costs = log.cost.astype(np.float64)
            features = log.confidence.astype(np.float64)[:, :2]
            return features, log.correctness.astype(float), costs.mean(axis=0), costs

        return read

    return {
        "made routing": made,
        "COCO": coco,
        "RouteLLM": routellm,
        "LLMRouter": llmrouter,
        "ParetoBandit": pareto,
        "MMLU cascade": cascade("mmlu"),
        "TriviaQA cascade": cascade("triviaqa"),
    }


# What is recorded ---------------------------------------------------------------------


def decisions(router, X, budgets, proba=True, **call):
    """Return routes, costs, answers, estimates and probabilities at some budgets, by name."""
    found = {}
    for position, budget in enumerate(budgets):
        routed = router.predict_routed(X, budget=budget, **call)
        found[f"{position} route"] = routed.route
        # The names are those of the first record: the cost that decided was "cost".
        found[f"{position} cost"] = routed.cost
        if routed.quoted_cost is not None:
            found[f"{position} cost"] = routed.quoted_cost
            found[f"{position} expected cost"] = routed.cost
        found[f"{position} answer"] = np.asarray(routed.y_pred)
        if routed.expected_quality is not None:
            found[f"{position} expected quality"] = routed.expected_quality
        if proba and hasattr(router, "predict_proba"):
            found[f"{position} probabilities"] = router.predict_proba(
                X, budget=budget, **call
            )
    return found


def validation(router):
    """Return the validation figures of a router that has them."""
    figures = router.validation_quality_, router.validation_quality_se_
    costs = router.validation_cost_, router.validation_cost_se_
    return {"validation": np.array([*figures, *costs])}


def budgets_of(router, most):
    """Return budgets from the smallest feasible one to `most`, and the unlimited one."""
    least = router.min_budget_
    budgets = [least]
    for share in SHARES:
        budgets.append(least + share * max(most - least, 0.0))
    return [*budgets, np.inf]


# Cases --------------------------------------------------------------------------------

TREE = DecisionTreeRegressor(max_depth=4, min_samples_leaf=5, random_state=0)


def members():
    """Return three classifiers of different price."""
    return [
        ("tree", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("bayes", GaussianNB()),
        ("forest", RandomForestClassifier(20, max_depth=6, random_state=0)),
    ]


MEMBER_COSTS = {"tree": 1.0, "bayes": 2.0, "forest": 10.0}
MOST = sum(MEMBER_COSTS.values())


def member_routers():
    """Return routers over fitted classifiers, by name."""
    common = {"estimators": members(), "costs": MEMBER_COSTS, "budget": 4.0, "cv": 3}
    return {
        "OCCAM": OccamRouterClassifier(**common),
        "OCCAM tree": OccamRouterClassifier(
            **common, quality_estimator=TREE, reg_lambda=0.5, quality="log_loss"
        ),
        "OCCAM neighbours": OccamRouterClassifier(
            **common, quality_estimator=BaggedNeighborsRegressor()
        ),
        "OCCAM batch": OccamRouterClassifier(
            **common, quality_estimator=TREE, policy="batch"
        ),
        "OCCAM embedding": OccamRouterClassifier(
            **common, quality_estimator=TREE, embedding="tree"
        ),
        "OCCAM abstain": OccamRouterClassifier(
            **common, quality_estimator=TREE, abstain_cost=0.3
        ),
        "FrugalML": FrugalMLClassifier(**common),
        "FrugalMCT": FrugalMCTClassifier(**common),
        "FrugalMCT tree": FrugalMCTClassifier(
            **common, base="tree", quality_estimator=TREE
        ),
        "sequential": SequentialRouterClassifier(**common),
        "sequential tree": SequentialRouterClassifier(
            **common, quality_estimator=TREE, n_prices=5
        ),
        "best single": DummyRouterClassifier(**common),
        "random": DummyRouterClassifier(**common, strategy="random"),
    }


def member_router_case(read, name):
    X, y, X_new, _ = split(*read())
    router = member_routers()[name]
    router.fit(X, y)
    found = decisions(router, X_new, budgets_of(router, MOST))
    if not isinstance(router, DummyRouterClassifier):
        found |= validation(router)
    if name.startswith("OCCAM"):
        routed = router.predict_routed(X_new, budget=6.0, exclude=["bayes"])
        found |= {"excluded route": routed.route, "excluded cost": routed.cost}
    return found


def weighted_case(read, router):
    X, y, X_new, _ = split(*read())
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    router.fit(X, y, sample_weight=weight)
    return decisions(router, X_new, budgets_of(router, MOST)) | validation(router)


def ensemble_case(read, ensemble):
    X, y, X_new, _ = split(*read())
    if not isinstance(ensemble.estimator, RandomForestClassifier):
        y = (y == np.unique(y)[0]).astype(int)
    ensemble.fit(X, y)
    found = {"answer": ensemble.predict(X_new)}
    if hasattr(ensemble, "predict_proba"):
        found["probabilities"] = ensemble.predict_proba(X_new)
    if isinstance(ensemble, QWYCEnsemble):
        found |= decisions(ensemble, X_new, [None], proba=False)
        found["order"] = np.asarray(ensemble.order_)
    return found


def ensembles():
    """Return early exits and compiled forests, by name."""
    forest = RandomForestClassifier(30, max_depth=5, random_state=0)
    boosted = LGBMClassifier(n_estimators=40, num_leaves=8, random_state=0, verbose=-1)
    found = {"fast forest": FastForest(forest), "fast boosted": FastForest(boosted)}
    for alpha in (0.0, 0.02):
        options = {"alpha": alpha, "random_state": 0}
        found[f"QWYC forest {alpha}"] = QWYCEnsemble(forest, **options)
        found[f"QWYC boosted {alpha}"] = QWYCEnsemble(boosted, **options)
    found["QWYC negative"] = QWYCEnsemble(
        boosted, alpha=0.02, mode="negative", random_state=0
    )
    return found


def feature_buyers(n_features):
    """Return estimators that buy features, by name."""
    costs = 1.0 + np.arange(n_features) % 3
    booster = LGBMClassifier(n_estimators=20, num_leaves=7, random_state=0, verbose=-1)
    gate = BoostedGate(max_iter=3, n_estimators=10)
    return {
        "Adapt boosted": AdaptGatingClassifier(
            booster, gate=gate, feature_costs=costs, cv=3
        ),
        "Adapt linear": AdaptGatingClassifier(
            LogisticRegression(max_iter=500),
            gate=LinearGate(),
            feature_costs=costs,
            cv=3,
        ),
        "buyer": SequentialFeatureClassifier(feature_costs=costs, random_state=0),
        "buyer tree": SequentialFeatureClassifier(
            DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0),
            feature_costs=costs,
            random_state=0,
        ),
    }


def feature_case(read, name):
    X, y, X_new, _ = split(*read())
    X = X[:, :8]
    X_new = X_new[:, :8]
    scale = StandardScaler().fit(X)
    buyer = feature_buyers(X.shape[1])[name]
    buyer.fit(scale.transform(X), y)
    most = float(np.sum(1.0 + np.arange(X.shape[1]) % 3))
    return decisions(buyer, scale.transform(X_new), budgets_of(buyer, most))


def selector_case(read, selector):
    X, y, X_new, _ = split(*read())
    X = X[:, :4]
    X_new = X_new[:, :4]
    selector.set_params(costs=[1.0, 2.0, 3.0, 4.0][: X.shape[1]])
    selector.fit(X, y)
    return decisions(selector, X_new, budgets_of(selector, 10.0))


def selectors():
    """Return selectors of feature sets, by name."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    return {
        "Poly-Dom": PolyDomSelector(tree, cv=3),
        "greedy sets": GreedyFeatureSelector(tree, cv=3),
    }


def recorded_case(name, router_class):
    """Return decisions over recorded services."""
    if name == "PASCAL":
        log = fetch_frugalmct(name)
        scores = log.scores.astype(np.float64)
        columns = np.asarray(log.scores_columns)
        names = [log.model_names[column] for column in columns]
        services = []
        for position in range(len(columns)):
            score = scores[:, position]
            services.append(RecordedClassifier((score > 0).astype(int), scores=score))
        costs = log.costs[columns]
        target = log.target.astype(np.int64)
    else:
        log = fetch_frugalml(name)
        n_labels = 1 + max(int(log.predictions.max()), int(log.target.max()))
        names = log.model_names
        services = []
        for labels, scores in zip(log.predictions.T, log.scores.T):
            services.append(
                RecordedClassifier(labels, scores=scores, classes=range(n_labels))
            )
        costs = log.costs
        target = log.target.astype(np.int64)
    rows = np.arange(len(target))[:, np.newaxis]
    X, y, X_new, _ = split(rows, target, 800, 500)
    price = float(np.max(costs))
    router = router_class(
        list(zip(names, services)),
        costs=dict(zip(names, map(float, costs))),
        budget=price,
    )
    router.fit(X, y)
    found = decisions(router, X_new, budgets_of(router, price), proba=False)
    return found | validation(router)


def regressor_case(read, router):
    X, y, X_new, _ = split(*read())
    router.fit(X, y)
    found = decisions(router, X_new, budgets_of(router, 13.0))
    if isinstance(router, OccamRouterRegressor):
        found |= validation(router)
    return found


def regressor_routers():
    """Return routers over regressors, by name."""
    regressors = [
        ("ridge", Ridge()),
        ("forest", RandomForestRegressor(20, max_depth=6, random_state=0)),
        ("boosted", LGBMRegressor(n_estimators=30, random_state=0, verbose=-1)),
    ]
    common = {
        "estimators": regressors,
        "costs": {"ridge": 1.0, "forest": 3.0, "boosted": 9.0},
        "budget": 4.0,
        "cv": 3,
    }
    return {
        "OCCAM": OccamRouterRegressor(**common),
        "OCCAM tree": OccamRouterRegressor(
            **common, quality_estimator=TREE, quality="absolute_error"
        ),
        "best single": DummyRouterRegressor(**common),
    }


def log_routers(costs):
    """Return routers from a log, by name."""
    common = {"costs": costs, "budget": float(np.median(costs))}
    deciding = float(np.min(costs)) / 10
    forest = ExtraTreesRegressor(30, min_samples_leaf=5, random_state=0)
    return {
        "default": BudgetRouter(**common),
        "forest": BudgetRouter(forest, reg_lambda=0.5, **common),
        "batch": BudgetRouter(forest, policy="batch", **common),
        "abstain": BudgetRouter(
            forest, abstain_cost=0.2, routing_cost=deciding, **common
        ),
    }


def log_case(read, name):
    X, quality, prices, costs = read()
    rows = np.arange(len(X))[:, np.newaxis]
    fit, _, new, _ = split(rows, rows[:, 0])
    fit = fit[:, 0]
    new = new[:, 0]
    router = log_routers(prices)[name]
    if name != "default" and X.dtype == object:
        # These forests read numbers only.
        X = np.column_stack(
            [[len(text) for text in X], [text.count(" ") for text in X]]
        )
    logged = None if costs is None else costs[fit]
    router.fit(X[fit], quality[fit], costs=logged)
    budgets = budgets_of(router, float(prices.max()))
    found = decisions(router, X[new], budgets) | validation(router)
    found["estimates"] = router.predict_quality(X[new])
    if name == "default":
        found |= evaluation(router, X[new], quality[new], budgets[1:-1])
        found |= one_answer_log(router, X[new], quality[new], budgets[1:-1])
        found |= streamed(router, X[new[:60]], prices)
    return found


def evaluation(router, X, quality, budgets):
    """Return curves and their references."""
    curve = accuracy_cost_curve(router, X, quality, budgets=budgets)
    references = reference_curves(quality, router.costs_, budgets=budgets)
    found = {
        "curve cost": np.asarray(curve.cost),
        "curve quality": np.asarray(curve.quality),
    }
    for name in ("oracle", "random", "single"):
        found[f"reference {name}"] = getattr(references, name)
    return found


def one_answer_log(router, X, quality, budgets):
    """Return what a log of one random answer per row says of the router."""
    rng = np.random.default_rng(0)
    n_rows, n_choices = quality.shape
    choice = rng.integers(n_choices, size=n_rows)
    logged = quality[np.arange(n_rows), choice]
    propensity = np.full(n_rows, 1 / n_choices)
    curve = off_policy_curve(
        router,
        X,
        logged,
        choice=choice,
        propensity=propensity,
        budgets=budgets[1:],
        cv=3,
    )
    estimate = curve.quality.doubly_robust
    return {"off policy": np.array([estimate.estimate, estimate.low, estimate.high])}


def streamed(router, X, prices):
    """Return the choices of a stream of requests."""
    max_costs = None
    if router.request_policy(np.inf).quotes_costs:
        # Bills differ from the price list: a stream needs upper bounds.
        max_costs = prices.copy()
    stream = router.stream(float(prices.mean() * len(X)), len(X), max_costs=max_costs)
    choices = []
    spent = []
    for position in range(len(X)):
        ticket = stream.route(X[position : position + 1])
        stream.commit(ticket)
        choices.append(ticket.name)
        spent.append(stream.status().spent)
    return {"stream choice": np.array(choices), "stream spent": np.array(spent)}


def cascade_case(read, given_order):
    """Return decisions of a cascade of four models with one signal each."""
    X, quality, prices, costs = read()
    models = np.argsort(prices)[[0, 2, 4, 6]]
    quality = quality[:, models]
    signals = quality * 0.3 + np.random.default_rng(0).uniform(size=quality.shape)
    names = [f"choice{position}" for position in range(4)]
    order = names if given_order else None
    router = CascadeRouter(order=order, n_prices=6)
    fit = np.arange(0, len(quality), 2)[:N_FIT]
    new = np.arange(1, len(quality), 2)[:N_NEW]
    router.fit(None, quality[fit], signals=signals[fit], costs=costs[fit][:, models])
    budgets = budgets_of(router, float(prices[models].sum()))
    found = {}
    for position, budget in enumerate(budgets):
        routed = router.predict_routed(
            None,
            budget=budget,
            signals=signals[new],
            costs=costs[new][:, models],
            request_id=np.arange(len(new)),
        )
        found[f"{position} route"] = routed.route
        found[f"{position} cost"] = routed.cost
    return found | validation(router)


def certified_case(read, max_loss):
    X, y, X_new, _ = split(*read(), n_fit=500)
    router = OccamRouterClassifier(
        members(), costs=MEMBER_COSTS, cv=3, quality_estimator=TREE, budget=5.0
    )
    certified = CertifiedRouter(
        router,
        max_loss=max_loss,
        calibration=0.4,
        n_points=10,
        fallback="safe",
        random_state=0,
    )
    certified.fit(X, y)
    found = decisions(certified, X_new, [None])
    found["certificate"] = np.array(str(certified.certificate_))
    return found


def monitor_case():
    rng = np.random.default_rng(0)
    monitor = PromiseMonitor(max_loss=0.05, audit_rate=1.0, random_state=0)
    alarms = []
    for block in range(40):
        loss = (rng.uniform(size=50) < 0.02 + 0.005 * block).astype(float)
        monitor.update(loss=loss)
        alarms.append(len(monitor.alarms_))
    return {"alarms": np.array(alarms)}


def assignment_case(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(200, 5)).round(rng.integers(1, 8))
    costs = rng.uniform(size=(200, 5)).round(2)
    found = {}
    for solver in ("auto", "exact", "greedy", "highs"):
        for budget in (0.3, 0.5, 0.7):
            assignment = solve_assignment(values, costs, budget, solver=solver)
            found[f"{solver} {budget}"] = assignment.choices
    path = assignment_path(values, costs)
    found["path"] = np.asarray(path.budgets)
    return found


def online_case():
    problem = make_routing_problem(400, random_state=0)
    router = OnlineBudgetRouter(problem.costs, budget=0.5)
    router.fit(problem.data[:100], problem.quality[:100])
    choices = []
    for row, quality in zip(problem.data[100:], problem.quality[100:]):
        decision = router.decide(row)
        router.commit(decision, quality=quality[router.choices_.index(decision.name)])
        choices.append(decision.name)
    return {"choices": np.array(choices), "price": np.array(router.price_)}


def dask_case():
    import dask.array

    problem = make_routing_problem(900, random_state=0)
    router = BudgetRouter(TREE, costs=problem.costs, budget=0.4)
    router.fit(problem.data[:400], problem.quality[:400])
    blocks = dask.array.from_array(problem.data[400:], chunks=(100, -1))
    found = {}
    for policy in ("online", "batch"):
        wrapped = DaskRouter(router, policy=policy)
        found[f"{policy} route"] = np.asarray(wrapped.route(blocks))
        found[f"{policy} cost"] = np.asarray(wrapped.predict_cost(blocks))
    return found


def quality_case(read):
    X, quality, _, _ = read()
    regressor = QualityRegressor(random_state=0).fit(X[:N_FIT], quality[:N_FIT])
    return {"estimates": regressor.predict(X[N_FIT : N_FIT + N_NEW])}


def cases():
    """Return functions without arguments that return arrays by name, by the name of the case."""
    found = {}

    def add(name, function, *arguments):
        found[name] = lambda: function(*arguments)

    for table, read in classification_sets().items():
        for name in member_routers():
            add(f"{table}: {name}", member_router_case, read, name)
        add(f"{table}: weighted OCCAM", weighted_case, read, member_routers()["OCCAM"])
        for name, ensemble in ensembles().items():
            add(f"{table}: {name}", ensemble_case, read, ensemble)
        for name, selector in selectors().items():
            add(f"{table}: {name}", selector_case, read, selector)
        for name in feature_buyers(8):
            add(f"{table}: {name}", feature_case, read, name)
        if table in ("digits", "two made classes", "adult"):
            add(f"{table}: certified", certified_case, read, 0.1)
    for table in ("FERPLUS", "YELP", "PASCAL"):
        routers = [FrugalMCTClassifier, SequentialRouterClassifier]
        if table != "PASCAL":
            routers.append(FrugalMLClassifier)
        for router_class in routers:
            add(f"{table}: {router_class.__name__}", recorded_case, table, router_class)
    for name, router in regressor_routers().items():
        add(
            f"diabetes: {name}",
            regressor_case,
            lambda: load_diabetes(return_X_y=True),
            router,
        )
    for table, read in log_sets().items():
        for name in log_routers(np.ones(2)):
            add(f"{table}: {name}", log_case, read, name)
        add(f"{table}: quality", quality_case, read)
        if "cascade" in table:
            for given_order in (True, False):
                add(f"{table}: order {given_order}", cascade_case, read, given_order)
    for seed in range(3):
        add(f"assignment {seed}", assignment_case, seed)
    add("monitor", monitor_case)
    add("online", online_case)
    add("dask", dask_case)
    return found


# Record and compare -------------------------------------------------------------------


def run(name):
    """Return the arrays of one case, or the text of its error, under the name of the case."""
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    try:
        arrays = cases()[name]()
    except Exception:
        arrays = {"error": np.array(traceback.format_exc())}
    seconds = time.perf_counter() - start
    return {
        f"{name} / {key}": as_plain(value) for key, value in arrays.items()
    }, seconds


def as_plain(value):
    """Return an array that a npz file holds without pickle."""
    value = np.asarray(value)
    return value.astype(str) if value.dtype == object else value


def difference(before, after):
    """Return a short description of how two arrays differ, or None."""
    if before.shape != after.shape:
        return f"shape {before.shape} became {after.shape}"
    if before.dtype.kind in "fc" and after.dtype.kind in "fc":
        same = (before == after) | (np.isnan(before) & np.isnan(after))
    else:
        same = before == after
    if np.all(same):
        return None
    same = np.atleast_1d(same)
    n_different = int((~same.reshape(len(same), -1).all(axis=1)).sum())
    text = f"{n_different} of {len(same)} rows differ"
    if before.dtype.kind == "f" and after.dtype.kind == "f":
        text += f", by at most {np.nanmax(np.abs(before - after)):.3g}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file")
    parser.add_argument("--cases", nargs="+", default=[""])
    parser.add_argument("--n-jobs", type=int, default=2)
    arguments = parser.parse_args()
    names = [name for name in cases() if any(word in name for word in arguments.cases)]
    results = Parallel(n_jobs=arguments.n_jobs)(delayed(run)(name) for name in names)
    arrays = {}
    for (found, seconds), name in zip(results, names):
        arrays |= found
        if seconds > 10:
            print(f"{name}: {seconds:.0f} s")
    errors = [name for name in arrays if name.endswith("/ error")]
    for name in errors:
        print(f"{name}:\n{arrays[name]}")
    if arguments.action == "record":
        np.savez_compressed(arguments.file, **arrays)
        print(
            f"{len(arrays)} arrays of {len(names)} cases recorded, {len(errors)} "
            "errors."
        )
        return 0
    with np.load(arguments.file, allow_pickle=False) as stored:
        before = {name: stored[name] for name in stored.files}
    wanted = [name for name in before if any(word in name for word in arguments.cases)]
    n_different = 0
    for name in sorted({*wanted, *arrays}):
        if name not in arrays or name not in before:
            text = "is new" if name in arrays else "is gone"
        else:
            text = difference(before[name], arrays[name])
        if text is not None:
            n_different += 1
            print(f"{name}: {text}")
    print(f"{len(wanted)} arrays of {len(names)} cases compared, {n_different} differ.")
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
