"""OCCAM on USPS with measured costs, and on made images. ``python benchmarks/bench_occam.py``

USPS: the split that `_data.usps` marks (7,699 / 3,301), members, accuracy estimator and
reg_lambda as in examples/applied/plot_occam_usps.py. Everything is fitted on the train rows; the
test rows are only scored. Made images: `load_shape_nets`, halves drawn anew for each seed; the
net that is read is picked on rows to learn from alone, and no half was looked at before. What is
paid is counted multiplications; peers are FrugalML, the best two nets in turn, and means over
neighbours, the paper's own estimate.
"""

import argparse

import _data
import numpy as np
from _common import record, table
from _shapes import load_shape_nets
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skroute.assignment import solve_assignment
from skroute.members import RecordedClassifier
from skroute.metrics import accuracy_cost_curve, reference_curves
from skroute.quality import BaggedNeighborsRegressor
from skroute.routing import (
    DummyRouterClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
)

SHARES = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
# Halves of the made images; those of seeds below 100 were looked at while this was written.
HALVES = range(100, 110)


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
        quality_estimator=RandomForestRegressor(50, min_samples_leaf=30, random_state=seed),
        reg_lambda=1,
        cv=3,
    ).fit(X_train, y_train)
    # Measured: on a slow machine the smallest share may not even pay for the cheapest answer.
    budgets = np.maximum(SHARES * router.costs_.max(), router.min_budget_)
    curve = accuracy_cost_curve(router, X_test, y_test, budgets)
    each = np.array([model.score(X_test, y_test) for model in router.estimators_])
    single = [each[np.where(router.costs_ <= b, router.mean_quality_, 0).argmax()] for b in budgets]
    frozen = [(name, FrozenEstimator(model)) for name, model in router.named_estimators_.items()]
    costs = dict(zip(router.choices_, router.costs_))
    # Matched to what OCCAM really spent, not to the budget.
    random = DummyRouterClassifier(frozen, costs=costs, strategy="random", random_state=seed).fit(
        X_train, y_train
    )
    spent = np.maximum(curve.cost, router.costs_.min() * 1.001)
    matched = [random.score(X_test, y_test, budget=cost) for cost in spent]
    oracle = DummyRouterClassifier(frozen, costs=costs, strategy="oracle").fit(X_train, y_train)
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


def least_cost(costs, quality, level):
    """The least cost on a curve, drawn straight between its points, at which a level is reached."""
    order = np.argsort(costs)
    costs, quality = np.asarray(costs)[order], np.maximum.accumulate(np.asarray(quality)[order])
    if quality[-1] < level:
        return np.nan
    return float(np.interp(level, quality, costs))


def cascade(nets, learn, test, budgets):
    """What two nets in turn cost and get: the second where the first's largest probability is low.

    Nets and threshold are the best on the rows to learn from within each budget.
    """
    sure = nets.probabilities.max(axis=2)
    ways = []
    for first in range(len(nets.costs)):
        for second in range(first + 1, len(nets.costs)):
            levels = np.quantile(sure[learn, first], np.linspace(0, 1, 101))
            ways += [(first, second, level) for level in (*levels, np.inf)]

    def seen(way, rows):
        first, second, level = way
        asks = sure[rows, first] < level
        cost = nets.costs[first] + asks.mean() * nets.costs[second]
        return cost, nets.quality[rows, np.where(asks, second, first)].mean()

    known = np.array([seen(way, learn) for way in ways])
    chosen = [np.where(known[:, 0] <= budget, known[:, 1], -1).argmax() for budget in budgets]
    return np.array([seen(ways[one], test) for one in chosen]).T


def one_half(seed, nets, n_images, n_budgets):
    """One half of the images teaches the routers, the other is looked at once."""
    drawn = np.random.default_rng(seed).permutation(len(nets.target))[:n_images]
    learn, test = np.split(drawn, 2)
    X = np.arange(len(nets.target)).reshape(-1, 1)
    members = [
        (name, RecordedClassifier(scores=scores))
        for name, scores in zip(nets.model_names, np.moveaxis(nets.probabilities, 1, 0))
    ]
    common = {"costs": dict(zip(nets.model_names, nets.costs))}
    forest = RandomForestRegressor(20, min_samples_leaf=20, random_state=seed)

    def occam(embedding, estimator=forest):
        return OccamRouterClassifier(
            members, embedding=embedding, quality_estimator=estimator, **common
        )

    def curve_of(router, known, judged):
        router.fit(X[known], nets.target[known])
        least = max(router.min_budget_, 1.05 * nets.costs[0])
        budgets = np.geomspace(least, 1.1 * nets.costs.max(), n_budgets)
        curve = accuracy_cost_curve(router, X[judged], nets.target[judged], budgets)
        return curve.cost, curve.quality

    # The net that is read is chosen on rows to learn from: three quarters teach, one judges.
    known, judged = np.split(learn, [3 * len(learn) // 4])
    level = nets.quality[judged].mean(axis=0).max() - 0.01
    # The largest net pays for itself alone.
    needs = {
        name: least_cost(*curve_of(occam(name), known, judged), level)
        for name in list(common["costs"])[:-1]
    }
    read = min(needs, key=lambda name: np.nan_to_num(needs[name], nan=np.inf))
    routers = {
        "OCCAM": occam(read),
        "OCCAM, neighbours": occam(read, BaggedNeighborsRegressor()),
        "FrugalML": FrugalMLClassifier(members, **common),
    }
    alone = nets.quality[test].mean(axis=0)
    largest, best = nets.costs[alone.argmax()], alone.max()
    found = {"best net": 100 * best, "read": float(nets.model_names.index(read))}
    curves = {}
    for name, router in routers.items():
        curves[name] = curve_of(router, learn, test)
    budgets = np.geomspace(1.05 * nets.costs[0], nets.costs.sum(), 40)
    curves["cascade"] = cascade(nets, learn, test, budgets)
    for name, (cost, quality) in curves.items():
        # At least the cheapest net is paid in any mix.
        spent = np.maximum(cost, nets.costs.min())
        above = quality - reference_curves(nets.quality[test], nets.costs, spent).random
        found |= {
            f"{name}: saved": 100 * (1 - least_cost(cost, quality, best - 0.01) / largest),
            f"{name}: above mix": 100 * above[spent <= largest].mean(),
            f"{name}: most": 100 * (quality.max() - best),
        }
    grid = np.linspace(nets.costs.min(), largest, 200)
    references = reference_curves(nets.quality[test], nets.costs, grid)
    for name in ("random", "oracle"):
        cost = least_cost(grid, getattr(references, name), best - 0.01)
        found[f"{name}: saved"] = 100 * (1 - cost / largest)
    found["oracle: most"] = 100 * (nets.quality[test].max(axis=1).mean() - best)
    return found


def usps(short):
    """Means over seeds, for each share of the most expensive model's cost."""
    data = _data.usps()
    X, y, is_test = data.data / 255.0, data.target, data.is_test
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if short:
        train, test = train[::16], test[::16]
    runs = [one_seed(i, X[train], y[train], X[test], y[test]) for i in range(1 if short else 3)]
    return {name: np.mean([one[name] for one in runs], axis=0) for name in runs[0]}


def shapes(short):
    """Means and deviations over halves."""
    nets = load_shape_nets()
    seeds, size = (HALVES[:1], (600, 3)) if short else (HALVES, (len(nets.target), 12))
    drawn = [one_half(seed, nets, *size) for seed in seeds]
    return {name: [one[name] for one in drawn] for name in drawn[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer images and seeds")
    short = parser.parse_args().short
    mean = {name: np.array(values) for name, values in usps(short).items()}
    table(
        "USPS, mean of the seeds; budgets and costs as shares of the most expensive model's",
        ["budget", *mean],
        [[share, *(v[i] for v in mean.values())] for i, share in enumerate(SHARES)],
    )
    drawn = {name: np.array(values) for name, values in shapes(short).items()}
    reads = drawn.pop("read")
    table(
        f"Made images, {len(reads)} halves: % saved at 1 point below the best net, points "
        "above the random mix, and at most above the best net",
        ["what", "mean", "sd", "least", "most"],
        [[name, v.mean(), v.std(), v.min(), v.max()] for name, v in drawn.items()],
    )
    names = load_shape_nets().model_names
    counts = [int((reads == i).sum()) for i in range(len(names))]
    table("Which net was read, halves", names, [counts])
    if not short:
        record("occam")


if __name__ == "__main__":
    main()
