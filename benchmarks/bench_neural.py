"""Convolutional nets on USPS under OCCAM, costs measured as time on the CPU.

Three nets of growing width are trained on 5,500 images; the router learns from the
other 2,199 (frozen members). Beside OCCAM: the best single net within the budget, and
the random mix of two nets that spends the same. Hooks count the rows that each net is
asked about.

    python benchmarks/bench_neural.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core

import argparse
import sys
import time
import warnings

import _data
import numpy as np
import torch
from _common import record, table
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from skorch import NeuralNetClassifier
from torch import nn

from skroute.metrics import accuracy_cost_curve
from skroute.routing import OccamRouterClassifier
from skroute.routing.parts._mixtures import best_mixture

SHARES = np.array([0.2, 0.3, 0.4, 0.6, 0.8, 1.0])
WIDTHS = {"small": 2, "medium": 8, "large": 40}
EPOCHS = {"small": 12, "medium": 10, "large": 8}


class Convolutions(nn.Module):
    """Two convolutions, a hidden layer, ten scores."""

    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.penultimate = nn.Sequential(nn.Linear(32 * width, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.penultimate(self.features(x)))


def fit_nets(seed, X, y, epochs):
    fitted = []
    for name, width in WIDTHS.items():
        torch.manual_seed(seed)
        net = NeuralNetClassifier(
            Convolutions,
            module__width=width,
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.Adam,
            lr=3e-3,
            batch_size=64,
            iterator_valid__batch_size=256,
            max_epochs=min(epochs, EPOCHS[name]),
            train_split=None,
            verbose=0,
        )
        fitted.append((name, FrozenEstimator(net.fit(X, y))))
    return fitted


def occam(nets, X, y, seed, embedding="small"):
    forest = RandomForestRegressor(50, min_samples_leaf=30, random_state=seed)
    router = OccamRouterClassifier(
        nets, costs="time", embedding=embedding, quality_estimator=forest, reg_lambda=1
    )
    return router.fit(X, y)


def count_rows(router, X, budget):
    """Rows that each net forwards in one routed `predict`, and rows that are routed to it."""
    counts = np.zeros(len(router.estimators_), dtype=int)

    def counting(at):
        def hook(module, inputs, output):
            counts[at] += len(output)

        return hook

    modules = [member.estimator.module_ for member in router.estimators_]
    hooks = [
        module.register_forward_hook(counting(i)) for i, module in enumerate(modules)
    ]
    route = router.predict_routed(X, budget=budget).route
    for hook in hooks:
        hook.remove()
    expected = np.bincount(route, minlength=len(counts))
    expected[router.choices_.index(router.embedding)] = len(X)
    return counts, expected


def wall_clock(router, X, budget, repeats):
    """Seconds of a routed `predict`, over what the costs measured in `fit` add up to."""
    ratios = []
    for _ in range(repeats):
        start = time.perf_counter()
        cost = router.predict_routed(X, budget=budget).cost.sum()
        ratios.append((time.perf_counter() - start) / cost)
    return np.median(ratios)


def one_seed(seed, X, y, X_test, y_test, epochs, repeats):
    order = np.random.default_rng(seed).permutation(len(X))
    train, learn = np.split(order, [int(len(X) * 5500 / 7699)])
    start = time.perf_counter()
    nets = fit_nets(seed, X[train], y[train], epochs)
    seconds = time.perf_counter() - start
    router = occam(nets, X[learn], y[learn], seed)

    def at(shares, router):
        # Measured: on a slow machine the smallest share may not pay for the cheapest
        # answer.
        return np.maximum(shares * router.costs_.max(), router.min_budget_)

    budgets = at(SHARES, router)
    curve = accuracy_cost_curve(router, X_test, y_test, budgets)
    each = np.array([net.score(X_test, y_test) for _, net in nets])
    single = [
        each[np.where(router.costs_ <= b, router.mean_quality_, 0).argmax()]
        for b in budgets
    ]
    # Matched to what OCCAM really spent: the two nets whose random mixture is best for
    # that.
    hull, kept = best_mixture(router.costs_, router.mean_quality_)
    spent = np.maximum(curve.cost, router.costs_.min())
    mixtures = [hull.share(cost) for cost in spent]
    vertex = each[kept]
    matched = [
        (1 - share) * vertex[low] + share * vertex[high]
        for low, high, share in mixtures
    ]
    budget = budgets[list(SHARES).index(0.6)]
    counts, expected = count_rows(router, X_test, budget)
    result = {
        "OCCAM": curve.quality,
        "its cost": curve.cost / router.costs_.max(),
        "single best": np.array(single),
        "random": np.array(matched),
        "largest net": np.full(len(SHARES), each[-1]),
    }
    facts = {
        "accuracy": each,
        "microseconds": 1e6 * router.costs_,
        "routing": 1e6 * (router.routing_cost_ - router.costs_[0]),
        "training": seconds,
        "counts": counts,
        "expected": expected,
        "wall": wall_clock(router, X_test, budget, repeats),
    }
    return result, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--short", action="store_true", help="one seed, 1,500 images, 2 epochs"
    )
    short = parser.parse_args().short
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "On validation rows", UserWarning)
    usps = _data.usps()
    X = (usps.data / 255).astype(np.float32).reshape(-1, 1, 16, 16)
    y = usps.target.astype(np.int64)
    train, test = np.flatnonzero(~usps.is_test), np.flatnonzero(usps.is_test)
    if short:
        train, test = train[::7], test[::7]
    seeds, epochs, repeats = (range(1), 2, 3) if short else (range(3), 99, 11)
    runs, facts = zip(
        *(
            one_seed(seed, X[train], y[train], X[test], y[test], epochs, repeats)
            for seed in seeds
        )
    )
    mean = {name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]}
    nets = [
        np.mean([fact[key] for fact in facts], axis=0)
        for key in ("accuracy", "microseconds")
    ]
    title = f"The nets on {len(test):,} test images, mean of {len(runs)} seeds"
    table(title, ["net", "accuracy", "us per image"], list(zip(WIDTHS, *nets)))
    table(
        "Budgets and costs as shares of the largest net's measured time",
        ["budget", *mean],
        [
            [share, *(values[row] for values in mean.values())]
            for row, share in enumerate(SHARES)
        ],
    )
    for seed, fact in enumerate(facts):
        rows = dict(zip(WIDTHS, fact["counts"].tolist()))
        print(f"seed {seed}: rows forwarded at 40 % less time:", rows)
    wall = float(np.median([fact["wall"] for fact in facts]))
    table(
        "Wall clock of a call at 40 % less time", ["over its measured costs"], [[wall]]
    )
    deciding = np.mean([fact["routing"] for fact in facts])
    training = np.mean([fact["training"] for fact in facts])
    print(f"deciding {deciding:.4g} us a row, training {training:.4g} s")
    if not short:
        record("neural")
    if not all(np.array_equal(fact["counts"], fact["expected"]) for fact in facts):
        sys.exit("A net forwarded rows that were not routed to it.")


if __name__ == "__main__":
    main()
