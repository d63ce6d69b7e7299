"""OCCAM on USPS with measured costs. ``python benchmarks/bench_occam.py``

The split that `_data.usps` marks (7,699 / 3,301), members, accuracy estimator and
reg_lambda as in examples/applied/plot_occam_usps.py. Everything is fitted on the train
rows; the test rows are only scored.
"""

import argparse

import _data
import numpy as np
from _common import record, table
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skroute.assignment import solve_assignment
from skroute.metrics import accuracy_cost_curve, reference_curves
from skroute.routing import DummyRouterClassifier, OccamRouterClassifier

SHARES = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])


def members(seed):
    return [
        ("logreg", LogisticRegression(C=0.05, max_iter=300)),
        ("mlp", MLPClassifier((64,), early_stopping=True, random_state=seed)),
        ("forest", RandomForestClassifier(100, random_state=seed)),
        ("svm30", make_pipeline(PCA(30, random_state=seed), SVC(C=10, gamma=0.02))),
        ("svm", SVC(C=10, gamma=0.02)),
    ]


def one_seed(seed, X_train, y_train, X_test, y_test):
    router = OccamRouterClassifier(
        members(seed),
        costs="time",
        embedding="logreg",
        quality_estimator=RandomForestRegressor(
            50, min_samples_leaf=30, random_state=seed
        ),
        reg_lambda=1,
        cv=3,
    ).fit(X_train, y_train)
    # Measured: on a slow machine the smallest share may not even pay for the cheapest
    # answer.
    budgets = np.maximum(SHARES * router.costs_.max(), router.min_budget_)
    curve = accuracy_cost_curve(router, X_test, y_test, budgets)
    each = np.array([model.score(X_test, y_test) for model in router.estimators_])
    single = [
        each[np.where(router.costs_ <= b, router.mean_quality_, 0).argmax()]
        for b in budgets
    ]
    frozen = [
        (name, FrozenEstimator(model))
        for name, model in router.named_estimators_.items()
    ]
    costs = dict(zip(router.choices_, router.costs_))
    # Matched to what OCCAM really spent, not to the budget.
    random = DummyRouterClassifier(
        frozen, costs=costs, strategy="random", random_state=seed
    ).fit(X_train, y_train)
    spent = np.maximum(curve.cost, router.costs_.min() * 1.001)
    matched = [random.score(X_test, y_test, budget=cost) for cost in spent]
    oracle = DummyRouterClassifier(frozen, costs=costs, strategy="oracle").fit(
        X_train, y_train
    )
    truth = oracle.member_quality(X_test, y_test)
    told = [solve_assignment(truth, router.costs_, b).objective for b in budgets]
    return {
        "OCCAM": curve.quality,
        "its cost": curve.cost / router.costs_.max(),
        "single best": single,
        "random": matched,
        "random mix": reference_curves(truth, router.costs_, spent).random,
        "oracle": told,
        "best model": np.full(len(SHARES), each.max()),
        "microseconds of the router": np.full(len(SHARES), 1e6 * router.routing_cost_),
    }


def usps(short):
    """Means over seeds, for each share of the most expensive model's cost."""
    data = _data.usps()
    X, y, is_test = data.data / 255.0, data.target, data.is_test
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if short:
        train, test = train[::16], test[::16]
    runs = [
        one_seed(i, X[train], y[train], X[test], y[test])
        for i in range(1 if short else 3)
    ]
    return {name: np.mean([one[name] for one in runs], axis=0) for name in runs[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer images and seeds")
    short = parser.parse_args().short
    mean = {name: np.array(values) for name, values in usps(short).items()}
    table(
        "USPS, mean of the seeds; budgets and costs as shares of the most expensive "
        "model's",
        ["budget", *mean],
        [[share, *(v[i] for v in mean.values())] for i, share in enumerate(SHARES)],
    )
    if not short:
        record("occam")


if __name__ == "__main__":
    main()
