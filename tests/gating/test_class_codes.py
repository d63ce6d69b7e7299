"""Codes of classes depend on the rows alone, whatever their order and the names of the classes."""

import numpy as np
import pytest

from skroute.gating._class_codes import checksums, name_free
from skroute.gating._levels import row_keys


def drawn(rng):
    """Rows with few values, many of them in several classes, all equally frequent."""
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


def contents(y, X, weight):
    """The rows of each class with their weights; one NaN, one zero."""
    found = [{} for _ in range(y.max() + 1)]
    for label, row, w in zip(y, np.where(np.isnan(X), np.inf, X + 0.0), weight):
        if w > 0:
            found[label][tuple(row)] = found[label].get(tuple(row), 0) + w
    return found


@pytest.mark.parametrize("seed", range(5))
def test_codes_depend_on_the_rows_alone(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        y, X, weight = drawn(rng)
        codes, order = name_free(y, X, weight)
        counts = np.bincount(y, weight)
        assert (np.diff(counts[order]) <= 0).all()
        np.testing.assert_array_equal(order[codes], y)
        rows = contents(y, X, weight)
        alike = [[a == b for b in rows] for a in rows]
        sums = checksums(y, row_keys(X), weight)
        np.testing.assert_array_equal(np.equal.outer(sums, sums), alike)
        # Other names, another order of rows: each row keeps its code, but for classes alike.
        names, shuffle = rng.permutation(len(counts)), rng.permutation(len(y))
        again, _ = name_free(names[y][shuffle], X[shuffle], weight[shuffle])
        where = np.array([rows[i] for i in order], dtype=object)
        assert all(where[a] == where[b] for a, b in zip(again, codes[shuffle]))


def test_a_weight_is_so_many_rows():
    rng = np.random.default_rng(0)
    y, X = np.repeat([0, 1, 2], 20), rng.integers(0, 3, (60, 2)).astype(float)
    weight = rng.integers(0, 4, 60)
    np.testing.assert_array_equal(
        checksums(y, row_keys(X), weight.astype(float)),
        checksums(y.repeat(weight), row_keys(X.repeat(weight, axis=0)), np.ones(weight.sum())),
    )


def test_no_sort_of_rows(monkeypatch):
    """Rows are sorted as numbers: compared column by column a million take seconds."""
    X, seen, unique = np.random.default_rng(0).normal(size=(2000, 3)), [], np.unique

    def watched(values, *args, **keywords):
        seen.append(values.ndim)
        return unique(values, *args, **keywords)

    monkeypatch.setattr(np, "unique", watched)
    name_free(np.repeat([0, 1], 1000), X, np.ones(2000))
    assert set(seen) == {1}
