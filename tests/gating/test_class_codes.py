"""Codes of classes depend on the rows alone, and take no sort of all rows."""

import numpy as np
import pytest

from skroute.gating import _class_codes
from skroute.gating._class_codes import name_free


def by_sorting(encoded, values, weight):
    """The twin that sorts all rows."""
    counts = np.bincount(encoded, weight)
    plain = np.where(np.isnan(values), np.inf, values + 0.0)
    rows, at = np.unique(plain, axis=0, return_inverse=True)
    table = np.zeros((len(counts), len(rows)))
    np.add.at(table, (encoded, at.ravel()), weight)
    order = np.lexsort((*table.T, -counts))
    return np.argsort(order)[encoded], order


def drawn(rng):
    """Rows with few values, many of them in several classes."""
    n_classes, each = rng.integers(2, 7), rng.integers(1, 12)
    y = np.repeat(np.arange(n_classes), each)
    shape = each, rng.integers(1, 4)
    if rng.random() < 0.5:
        # Every class has the same rows, but for one.
        X = np.tile(rng.integers(-1, 3, shape), (n_classes, 1)).astype(float)
        X[rng.integers(len(X))] += rng.integers(0, 2)
    else:
        X = rng.integers(-1, rng.choice([2, 20]), (len(y), shape[1])).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[X == 0] *= rng.choice([-1.0, 1.0], int((X == 0).sum()))
    weight = np.ones(len(y)) if rng.random() < 0.5 else rng.integers(0, 3, len(y)).astype(float)
    return y, X, weight


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_parted_as_by_sorting(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        y, X, weight = drawn(rng)
        codes, order = name_free(y, X, weight)
        expected_codes, expected_order = by_sorting(y, X, weight)
        np.testing.assert_array_equal(order, expected_order)
        np.testing.assert_array_equal(codes, expected_codes)


@pytest.mark.parametrize("duplicated", [False, True])
def test_equally_frequent_classes_take_no_sort_of_all_rows(duplicated, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    if duplicated:
        # All rows but one are in both classes.
        X[1000:] = X[:1000]
        X[np.argmin(X[:1000, 0]), 1] += 1
    sizes, unique = [], np.unique

    def watched(values, *args, axis=None, **keywords):
        if axis is not None:
            sizes.append(len(values))
        return unique(values, *args, axis=axis, **keywords)

    monkeypatch.setattr(_class_codes.np, "unique", watched)
    _, order = name_free(np.repeat([0, 1], 1000), X, np.ones(2000))
    # One row of each class and round.
    assert sizes == [2] * (1 + duplicated)
    assert sorted(order) == [0, 1]
