"""Poly-Dom: sets trained, answers against brute force, and the time of a query.

    python benchmarks/bench_feature_sets.py [--quick]

A. Sets that are trained until the guarantee holds, beside all of them and a greedy
search that adds
   one feature at a time (made-up qualities and cost polynomials, `make_feature_sets`).
B. Queries against all affordable sets, one by one: none above its budget, none worse
than promised. C. Microseconds of a query on a fitted selector, alone and in bulk.
"""

import argparse
import time

import numpy as np
from _common import record, table
from _feature_set_data import make_feature_sets
from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB

from skroute.feature_sets import PolyDomSelector
from skroute.feature_sets._costs import given_costs
from skroute.feature_sets._lattice import LatticeSearch, indicator
from skroute.feature_sets._poly_dom import best_affordable, undominated

LARGEST = 500.0


def greedy(quality, n_features):
    """Sets that are tried when the feature that helps most is added, one after the other."""
    chosen, tried = 0, set()
    while chosen != (1 << n_features) - 1:
        more = [chosen | 1 << j for j in range(n_features) if not chosen >> j & 1]
        tried.update(more)
        chosen = max(more, key=quality.__getitem__)
    return len(tried)


def trained(sizes, seeds):
    rows = []
    for interaction, name in ((0.0, "max"), (1.0, "mean")):
        for k in sizes:
            counts = []
            for seed in seeds:
                _, quality = make_feature_sets(
                    k, interaction=interaction, random_state=seed
                )
                found = [
                    len(
                        LatticeSearch(k, quality.__getitem__, quality[0])
                        .run(alpha)
                        .masks
                    )
                    - 1
                    for alpha in (0.0, 0.1)
                ]
                counts.append([*found, greedy(quality, k)])
            rows.append(
                [
                    name,
                    k,
                    2**k - 1,
                    *np.median(counts, axis=0),
                    np.max(counts, axis=0)[1],
                ]
            )
    header = [
        "combiner",
        "features",
        "all",
        "alpha 0",
        "alpha .1",
        "greedy",
        "most at .1",
    ]
    table("A. Sets trained, median over seeds", header, rows)


def guarantee(n_instances, n_queries):
    above = worse = queries = 0
    for seed in range(n_instances):
        rng = np.random.default_rng(seed)
        k, alpha = (
            int(rng.integers(2, 9)),
            float(rng.choice([0.0, 0.1, rng.uniform(0, 0.3)])),
        )
        interaction = rng.choice([0.0, 0.5, 1.0])
        coef, accuracy = make_feature_sets(
            k, interaction=interaction, random_state=seed
        )
        found = LatticeSearch(k, accuracy.__getitem__, accuracy[0]).run(alpha)
        costs = given_costs(list(coef), list("abcdefgh")[:k])
        kept = undominated(found.quality, indicator(found.masks, k) @ costs.coef)
        masks, quality = found.masks[kept], found.quality[kept]
        cost = (
            costs(rng.uniform(0, LARGEST, n_queries)).T
            @ indicator(np.arange(1 << k), k).T
        )
        budget = rng.uniform(0, 1.1, n_queries) * cost.max(axis=1)
        chosen = masks[best_affordable(cost[:, masks], quality, budget)]
        paid = cost[np.arange(n_queries), chosen]
        best = np.where(cost <= budget[:, None], accuracy, -1.0).max(axis=1)
        above += int((paid > budget * (1 + 1e-12)).sum())
        worse += int(((1 + alpha) * accuracy[chosen] < best).sum())
        queries += n_queries
    table(
        "B. Against all affordable sets",
        ["queries", "above the budget", "worse than promised"],
        [[queries, above, worse]],
    )


def queries(n_queries):
    rows = []
    for n_features in (6, 10):
        X, y = make_classification(
            600, n_features, n_informative=4, n_redundant=0, random_state=0
        )
        coef = np.random.default_rng(0).uniform(0, 1, (n_features, 3)) * [100, 100, 1]
        selector = PolyDomSelector(
            GaussianNB(), costs=list(coef), alpha=0.02, cv=2, monotonicity_tol=0.1
        ).fit(X, y, size=np.full(600, 10.0))
        rng = np.random.default_rng(1)
        size = rng.uniform(1, LARGEST, n_queries)
        budget = rng.uniform(0, 1, n_queries) * selector.costs_(size).sum(axis=0)
        selector.select(size[:10], budget[:10])
        start = time.perf_counter()
        selector.select(size, budget)
        bulk = (time.perf_counter() - start) / n_queries
        alone = []
        for one in range(min(400, n_queries)):
            start = time.perf_counter()
            selector.select(size[one], budget[one])
            alone.append(time.perf_counter() - start)
        rows.append(
            [n_features, len(selector.choices_), 1e6 * np.median(alone), 1e6 * bulk]
        )
    table("C. Microseconds of a query", ["features", "sets", "alone", "in bulk"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--quick", "--short", action="store_true", help="small; writes no record"
    )
    quick = parser.parse_args().quick
    trained((6, 8) if quick else (10, 12), range(3 if quick else 20))
    guarantee(20 if quick else 1000, 100)
    queries(2_000 if quick else 100_000)
    if not quick:
        record("feature_sets")


if __name__ == "__main__":
    main()
