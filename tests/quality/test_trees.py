"""Trees of several outputs: against their definition in plain Python, and their own promises."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.quality._trees import boosted_trees, extra_trees, first_state, grow_tree, join


def walk(trees, x):
    """The sum of the leaves that one row comes to, by the definition."""
    total = 0.0
    for root in trees.roots:
        node = root
        while trees.feature[node] >= 0:
            right = x[trees.feature[node]] > trees.threshold[node]
            node = trees.child[node] + int(right)
        total = total + trees.values[trees.child[node]].astype(np.float64)
    return total


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 60),
    d=st.integers(1, 4),
    k=st.integers(1, 3),
    leaf=st.integers(1, 8),
    depth=st.integers(1, 6),
    seed=st.integers(0, 1000),
    ties=st.booleans(),
)
def test_a_tree_is_a_partition_with_the_means_of_its_rows(n, d, k, leaf, depth, seed, ties):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, d)) if ties else rng.standard_normal((n, d))
    X, Y = X.astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
    rows = np.sort(rng.permutation(n)[: max(1, n // 2)])
    tree = grow_tree(np.ascontiguousarray(X.T), Y, Y, rows, (d, leaf, depth), first_state(seed))
    values = np.array([walk(tree, x) for x in X[rows]])
    groups = {}
    for row, value in zip(rows, values):
        groups.setdefault(tuple(value), []).append(row)
    for value, members in groups.items():
        np.testing.assert_allclose(value, Y[members].mean(axis=0), rtol=1e-4, atol=1e-5)
        assert len(members) >= min(leaf, len(rows))
    np.testing.assert_allclose(tree.predict(X), [walk(tree, x) for x in X], rtol=1e-6)


def test_a_cut_is_the_best_of_those_drawn():
    # One feature decides and all features are candidates: the first cut is on it.
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 5)).astype(np.float32)
    Y = np.column_stack([X[:, 3], 1 - X[:, 3]]).astype(np.float32)
    for seed in range(10):
        tree = grow_tree(
            np.ascontiguousarray(X.T), Y, Y, np.arange(200), (5, 1, 10), first_state(seed)
        )
        assert tree.feature[0] == 3
        np.testing.assert_array_equal(tree.predict(X), Y)


def test_joined_forests_add_up_by_their_weights():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 3)), rng.standard_normal((80, 2))
    how = {"min_leaf": 3, "n_candidates": 2, "most_rows": 50}
    one = extra_trees(X, Y, n_trees=4, seed=1, **how)
    other = boosted_trees(X, Y, n_trees=3, seed=2, max_depth=2, rate=0.5, **how)
    expected = 0.25 * one.predict(X) + 2 * other.predict(X)
    np.testing.assert_allclose(join([one, other], [0.25, 2]).predict(X), expected, atol=1e-5)


def test_boosting_comes_nearer_with_each_tree():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])
    how = {"min_leaf": 5, "n_candidates": 3, "most_rows": 1000, "max_depth": 3, "rate": 0.3}
    errors = [
        ((boosted_trees(X, Y, n_trees=t, seed=0, **how).predict(X) - Y) ** 2).mean()
        for t in (1, 5, 20)
    ]
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2]


def test_values_in_half_precision_are_near():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 3)), 1e6 * rng.standard_normal((80, 2))
    trees = extra_trees(X, Y, n_trees=4, min_leaf=2, n_candidates=2, seed=0, most_rows=100)
    np.testing.assert_allclose(trees.rounded().predict(X), trees.predict(X), atol=2e3)
    again = trees.rounded().rounded()
    np.testing.assert_array_equal(again.values, trees.rounded().values)
