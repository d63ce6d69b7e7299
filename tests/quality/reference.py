"""Plain NumPy versions of the kernels and enumeration of the definition."""

from itertools import combinations

import numpy as np


def distances_to(X, query, metric):
    difference = np.abs(np.asarray(X, dtype=np.float64) - query)
    if metric == "chebyshev":
        return difference.max(axis=1)
    if metric == "manhattan":
        return difference.sum(axis=1)
    return (difference**2).sum(axis=1)


def nearest_of_subsets(X, starts, Q, metric):
    rows = np.empty((len(Q), len(starts) - 1), dtype=np.int64)
    for q, query in enumerate(Q):
        distances = distances_to(X, query, metric)
        for k in range(len(starts) - 1):
            rows[q, k] = starts[k] + np.argmin(distances[starts[k] : starts[k + 1]])
    return rows


def k_nearest(X, k, Q, metric):
    distances = np.array([distances_to(X, query, metric) for query in Q])
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, rows, axis=1), rows


def sums_at_distance(X, y, at, Q, metric):
    found = [distances_to(X, query, metric) == a for query, a in zip(Q, at)]
    return (
        np.array([mask.sum() for mask in found]),
        np.array([y[mask].sum(axis=0) for mask in found]),
        np.array([(y[mask] ** 2).sum(axis=0) for mask in found]),
    )


def mean_over_all_subsets(X, y, subset_size, query, metric):
    """The exact limit by enumeration; equally near rows of a subset are averaged."""
    distances = distances_to(X, query, metric)
    answers = []
    for subset in combinations(range(len(X)), subset_size):
        subset = np.array(subset)
        nearest = subset[distances[subset] == distances[subset].min()]
        answers.append(y[nearest].mean(axis=0))
    return np.mean(answers, axis=0)
