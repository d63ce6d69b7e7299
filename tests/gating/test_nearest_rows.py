"""What nearest rows buy: the kernels beside their twin in numpy."""

import numpy as np
import pytest

from skroute.gating import _kernels


def nearest_rows(distance, itself, n_nearest):
    """The nearest rows, by a full sort."""
    own = distance.copy()
    if itself >= 0:
        own[itself] = np.inf
    found = np.flatnonzero(own <= np.sort(own)[n_nearest - 1])
    most = 2 * n_nearest
    if len(found) > most:
        found = found[(np.arange(most) * (len(found) / most)).astype(int)]
    return found


def impurity(y, n_classes):
    """Gini impurity of rows, times their number."""
    counts = np.bincount(y, minlength=n_classes)
    return len(y) - (counts**2).sum() / max(len(y), 1)


def best_cut(codes, y, min_leaf, n_classes):
    """Largest decrease of the impurity by a cut of one column."""
    best = 0.0
    for cut in range(_kernels.N_BINS - 1):
        left = codes <= cut
        if min(left.sum(), (~left).sum()) >= max(min_leaf, 1):
            after = impurity(y[left], n_classes) + impurity(y[~left], n_classes)
            best = max(best, (impurity(y, n_classes) - after) / len(y))
    return best


@pytest.mark.parametrize("n_rows", [12, 90, 700])
def test_the_next_group_is_that_of_the_best_cut_among_the_nearest(n_rows):
    rng = np.random.default_rng(n_rows)
    n_classes, group_of = 3, np.array([0, 1, 1, 2, 3])
    starts = np.searchsorted(group_of, np.arange(5))
    y = rng.integers(0, n_classes, n_rows)
    codes = rng.integers(0, 17, (n_rows, 5))
    codes[:, 0] = np.where(rng.random(n_rows) < 0.7, 3 * y, codes[:, 0])
    codes[:, 3] = 4
    prices, order = np.array([2.0, 1.0, 1.0, 1.0]), np.array([2, 0, 3, 1])
    # Some distances tie.
    distances = rng.integers(0, 40, (60, n_rows)).astype(np.float32) / 8
    itself = np.where(rng.random(60) < 0.5, rng.integers(0, n_rows, 60), -1)
    known = rng.random((60, 4)) < 0.4
    n_nearest = min(2 * int(np.sqrt(n_rows)), n_rows - 1)
    options = np.array([n_nearest, 2.0, 0.01, n_classes])
    found = _kernels.next_groups(
        distances.copy(),
        itself,
        known,
        order,
        codes.astype(np.int8),
        y,
        starts,
        np.arange(5),
        prices,
        options,
    )
    for q in range(60):
        left = [g for g in order if not known[q, g]]
        if not left:
            assert found[q] == -1
            continue
        rows = nearest_rows(distances[q], itself[q], n_nearest)
        gains = {}
        for g in left:
            own = [best_cut(codes[rows, j], y[rows], 2.0, n_classes) for j in range(5)]
            gain = max(own[j] for j in np.flatnonzero(group_of == g))
            gains[g] = (gain + 0.01 * (g == left[0])) / prices[g]
        assert gains[found[q]] == pytest.approx(max(gains.values()), abs=1e-12)


@pytest.mark.parametrize("decimals", [0, 1, 7])
def test_the_nearest_are_those_of_a_full_sort(decimals):
    rng = np.random.default_rng(decimals)
    for _ in range(60):
        n_rows = rng.integers(2, 3000)
        distance = rng.gamma(0.5, size=n_rows).round(decimals).astype(np.float32)
        n_nearest = rng.integers(1, min(n_rows, 200))
        itself = rng.integers(-1, n_rows)
        rows, scratch = np.empty(n_rows, np.int64), np.empty(n_rows, np.float32)
        n_found = _kernels.nearest(distance.copy(), itself, n_nearest, scratch, rows)
        np.testing.assert_array_equal(rows[:n_found], nearest_rows(distance, itself, n_nearest))
