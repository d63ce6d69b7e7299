"""Nearest-neighbour estimation against scikit-learn's brute force.

The bar: 40,000 reference rows of 512 features under chebyshev, at least 10 times as fast with
identical neighbours; the exact limit costs no more than one such search. Both on uniform
noise, where no bound dismisses rows early, and on random tanh features of Letter-like rows,
where the rows lie near a surface of 16 dimensions as those of an embedding do.

    python benchmarks/bench_quality.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core for every contender

import argparse

import numpy as np
from _harness import alternate, claim, save, table
from sklearn.neighbors import NearestNeighbors

from skroute.quality import BaggedNeighborsRegressor
from skroute.quality._bagging import exact_estimate, nearest_weights
from skroute.quality._search import HostRows

N_MODELS = 7


def make_rows(kind, n_rows, n_features, rng):
    if kind == "uniform":
        return rng.random((n_rows, n_features))
    X = np.tanh(
        rng.integers(0, 16, (n_rows, 16)) / 15 @ rng.standard_normal((16, n_features)) * 1.5
        + rng.standard_normal(n_features)
    )
    return (X - X.min(axis=0)) / np.ptp(X, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer rows, under 20 seconds")
    short = parser.parse_args().short
    n_rows, n_features, n_queries = (2000, 64, 32) if short else (40_000, 512, 128)
    repeats, n_subsets = (1, 40) if short else (5, 40)
    rng = np.random.default_rng(0)
    rows, payload = [], []
    for kind in ("uniform", "embedding"):
        both = make_rows(kind, n_rows + n_queries, n_features, rng)
        X, Q = both[:n_rows], both[n_rows:]
        y = rng.random((n_rows, N_MODELS))
        for metric in ("chebyshev", "manhattan", "euclidean"):
            index = HostRows(X, y, metric)
            starts = np.linspace(0, n_rows, n_subsets + 1).astype(np.int64)
            default = nearest_weights(n_rows, n_rows // 10)
            paper = nearest_weights(n_rows, n_rows // n_subsets)
            brute = NearestNeighbors(algorithm="brute", metric=metric, n_jobs=1).fit(X)

            same = brute.kneighbors(Q, len(paper), return_distance=False)
            found = index.k_nearest(index.ready(Q), len(paper)).rows
            of_subsets = index.nearest_of_subsets(index.ready(Q), starts)
            nearest = [
                brute.fit(X[a:b]).kneighbors(Q, 1, return_distance=False)[:, 0] + a
                for a, b in zip(starts[:-1], starts[1:])
            ]
            identical = np.array_equal(same, found) and np.array_equal(
                np.transpose(nearest), of_subsets
            )
            brute.fit(X)

            seconds = alternate(
                {
                    "sklearn": lambda b=brute, Q=Q: b.kneighbors(Q, 1),
                    "subsets": lambda i=index, s=starts, Q=Q: i.nearest_of_subsets(i.ready(Q), s),
                    "exact": lambda i=index, w=default, Q=Q: exact_estimate(
                        i, i.ready(Q), w, False
                    ),
                    "exact 40": lambda i=index, w=paper, Q=Q: exact_estimate(
                        i, i.ready(Q), w, False
                    ),
                },
                repeats=repeats,
            )
            ms = {name: value / n_queries * 1e3 for name, value in seconds.items()}
            ratio = {name: ms["sklearn"] / value for name, value in ms.items()}
            bar = "10x" if metric == "chebyshev" else "-"
            rows.append(
                [kind, metric, *ms.values(), *list(ratio.values())[1:], bar, str(identical)]
            )
            payload.append({"data": kind, "metric": metric, "ms": ms, "identical": identical})
    table(
        f"Nearest neighbours: {n_rows:,} rows, {n_features} features, {n_queries} queries, 1 core; "
        "ms per query and times scikit-learn's brute force",
        ["data", "metric", "sklearn 1-NN", f"{n_subsets} subsets", "exact (default)"]
        + ["exact (N/40)", "x subsets", "x exact", "x exact N/40", "bar", "identical"],
        rows,
    )
    estimates = fit_and_predict(n_rows, n_features, rng)
    table("The estimator on uniform rows, seconds", ["fit", "predict 1,000 rows"], [estimates])
    result = {"search": payload, "fit_predict_s": estimates}
    title = "Quality: nearest neighbours of OCCAM's estimator"
    save("quality", result, title=title, claims=claims(result), write=not short)


def claims(result):
    found, published = [], 8.68  # OCCAM, seconds for 10,000 queries among 40,000 rows
    for case in result["search"]:
        where, ms = f"{case['metric']}, {case['data']} rows", case["ms"]
        bar = {"bar": 10} if case["metric"] == "chebyshev" else {}
        for who, name in (("subsets", "nearest of drawn subsets"), ("exact", "exact limit")):
            found.append(
                claim(
                    f"{who}-{case['metric']}-{case['data']}",
                    f"{name}, {where}",
                    ms["sklearn"] / ms[who],
                    peer=1,
                    against="scikit-learn's brute force, same process",
                    unit="times as fast",
                    within=0.05,
                    **bar,
                )
            )
    first = result["search"][0]
    return [
        *found,
        claim(
            "identical",
            "searches with the same neighbours in the same order",
            sum(case["identical"] for case in result["search"]),
            peer=len(result["search"]),
            against="scikit-learn's brute force",
        ),
        claim(
            "seconds",
            "10,000 queries among 40,000 uniform rows of 512 features, drawn subsets",
            10 * first["ms"]["subsets"],
            better="lower",
            unit="s",
            published=published,
            why="another machine and another embedding",
        ),
    ]


def fit_and_predict(n_rows, n_features, rng):
    X, y = make_rows("uniform", n_rows, n_features, rng), rng.random((n_rows, N_MODELS))
    model = BaggedNeighborsRegressor()
    seconds = alternate(
        {"fit": lambda: model.fit(X, y), "predict": lambda: model.predict(X[:1000])}, repeats=3
    )
    return list(seconds.values())


if __name__ == "__main__":
    main()
