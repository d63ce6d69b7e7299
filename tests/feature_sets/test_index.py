"""The Poly-Dom index against looking at every candidate."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.datasets._poly_dom import make_feature_sets
from skroute.feature_sets import _kernels
from skroute.feature_sets._index import (
    CandidateScan,
    PolyDomIndex,
    build_index,
    evaluate_costs,
    naive_choice,
)
from skroute.feature_sets._lattice import candidate_sets, set_coefficients
from skroute.metrics import pareto_front


def worth(choice, value):
    return np.where(choice >= 0, value[choice], -1.0)


def assert_same_answers(index, coef, accuracy, size, budget):
    """Equal accuracy and equal cost; two candidates may tie in both."""
    cost = evaluate_costs(coef, size)
    expected = naive_choice(cost, accuracy, budget)
    found = index.lookup(size, budget)
    np.testing.assert_array_equal(worth(found, accuracy), worth(expected, accuracy))
    rows = np.arange(len(size))
    np.testing.assert_array_equal(
        np.where(found >= 0, cost[found, rows], -1),
        np.where(expected >= 0, cost[expected, rows], -1),
    )


@pytest.mark.parametrize("seed", range(250))
def test_lookup_against_naive_on_random_curves(seed):
    rng = np.random.default_rng(seed)
    n, degree = int(rng.integers(1, 30)), int(rng.integers(0, 5))
    coef = rng.uniform(size=(n, degree + 1)) * rng.uniform(size=(n, 1)) ** 3
    accuracy = rng.uniform(size=n)
    low, high = [(0.0, np.inf), (2.0, 50.0)][seed % 2]
    size = rng.uniform(low, 50, 300)
    cost = evaluate_costs(coef, size)
    # Budgets equal to a cost, just around one, and anywhere.
    budget = cost[rng.integers(n, size=300), np.arange(300)] * rng.choice([1, 1.02, 0.98], 300)
    for index_all in (False, True):
        index = build_index(coef, accuracy, low=low, high=high, index_all=index_all)
        assert_same_answers(index, coef, accuracy, size, budget)
        # Without ties the very same candidate.
        np.testing.assert_array_equal(
            index.lookup(size, budget), naive_choice(cost, accuracy, budget)
        )


@pytest.mark.parametrize("seed", range(250))
def test_lookup_against_naive_on_degenerate_curves(seed):
    """Small integers: many curves through one point, tangent, equal, of equal accuracy."""
    rng = np.random.default_rng(seed)
    n, degree = int(rng.integers(1, 30)), int(rng.integers(0, 5))
    coef = rng.integers(0, 4, (n, degree + 1)).astype(float)
    accuracy = rng.integers(0, 6, n) / 8
    size = rng.integers(0, 12, 300).astype(float)
    budget = rng.integers(0, 200, 300).astype(float)
    budget[:150] = evaluate_costs(coef, size)[rng.integers(n, size=300), np.arange(300)][:150]
    for index_all in (False, True):
        index = build_index(coef, accuracy, index_all=index_all)
        assert_same_answers(index, coef, accuracy, size, budget)
        for s in size[:10]:
            # The skyline at a size, also where costs tie at that very size.
            expected = pareto_front(evaluate_costs(coef, s), accuracy)
            found = index.skyline(s)
            np.testing.assert_array_equal(accuracy[found], accuracy[expected])
            np.testing.assert_array_equal(
                evaluate_costs(coef[found], s), evaluate_costs(coef[expected], s)
            )


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 8),
    st.integers(0, 60),
)
@settings(max_examples=150, deadline=None)
def test_lookup_property(curves, size, budget):
    curves = np.array(curves, dtype=float)
    coef, accuracy = curves[:, :3], curves[:, 3] / 4
    index = build_index(coef, accuracy)
    assert_same_answers(index, coef, accuracy, np.array([float(size)]), np.array([float(budget)]))


def test_breaks_of_crossing_lines_by_hand():
    # 4 against n: cross at 4. The better one is cheaper before, then the worse enters.
    index = build_index([[4.0, 0.0], [0.0, 1.0]], [0.5, 0.9])
    assert index.n_ranges == 2
    assert index.breaks[1] == np.nextafter(4.0, 5.0)
    assert index.lookup([1.0, 4.0, 5.0, 5.0], [4.0, 4.0, 4.0, 3.0]).tolist() == [1, 1, 0, -1]
    assert index.skyline(4.0).tolist() == [1]
    assert index.skyline(5.0).tolist() == [0, 1]


def test_uninteresting_crossings_are_not_stored():
    # Two bad curves cross above one that is cheap and good: nothing changes.
    index = build_index([[1.0, 0.0], [2.0, 1.0], [3.0, 0.5]], [0.9, 0.5, 0.6])
    assert index.n_crossings == 1
    assert index.n_ranges == 1
    everything = build_index([[1.0, 0.0], [2.0, 1.0], [3.0, 0.5]], [0.9, 0.5, 0.6], index_all=True)
    assert everything.n_ranges == 2
    assert everything.nbytes > index.nbytes


def test_tangent_curves_do_not_cross():
    # (n - 2) ** 2 + 4 n = n ** 2 + 4 touches 4 n at 2.
    index = build_index([[0.0, 4.0, 0.0], [4.0, 0.0, 1.0]], [0.5, 0.9])
    assert index.n_crossings == 0
    assert index.lookup(2.0, 8.0) == 1
    assert index.lookup(2.1, 8.4) == 0


def test_many_curves_through_one_point():
    # All lines cost 10 at size 1; their order is reversed there.
    slope = np.arange(6.0)
    coef = np.column_stack([10 - slope, slope])
    accuracy = np.linspace(0.5, 0.9, 6)
    index = build_index(coef, accuracy)
    assert index.n_crossings == 15
    # As evaluated, the pairs come apart within a few units in the last place.
    np.testing.assert_allclose(index.breaks[1:], 1.0, rtol=1e-14)
    assert index.lookup(1.0, 10.0) == 5
    assert index.lookup(0.5, 10.0) == 5
    assert index.lookup(2.0, 11.9) == 1


def test_crossing_where_roots_are_hard():
    """A triple root and nearly equal leading coefficients."""
    cubic = np.array([[1.0, 3.0, 3.0, 2.0], [2.0, 0.0, 6.0, 1.0]])  # difference (n - 1) ** 3
    assert _kernels.next_crossing(cubic, 0, 1, 0.0, np.inf) == pytest.approx(1.0, abs=1e-4)
    assert _kernels.next_crossing(cubic, 1, 0, 1.5, np.inf) == np.inf
    nearly = np.array([[0.0, 0.0, 1.0 + 1e-15], [5.0, 0.0, 1.0]])
    assert _kernels.next_crossing(nearly, 0, 1, 0.0, np.inf) > 1e6
    same = np.array([[1.0, 2.0], [1.0, 2.0]])
    assert _kernels.next_crossing(same, 0, 1, 0.0, np.inf) == np.inf
    # Degree 5 with crossings at 1, 2, 3, 4 and 5; positive and negative parts as curves.
    roots = np.polynomial.polynomial.polyfromroots([1, 2, 3, 4, 5])
    pair = np.array([np.maximum(roots, 0), np.maximum(-roots, 0)])
    found, i, j, now = [], 0, 1, 0.0
    while (now := _kernels.next_crossing(pair, i, j, now, np.inf)) < np.inf:
        found.append(now)
        i, j = j, i
    np.testing.assert_allclose(found, [1, 2, 3, 4, 5], atol=1e-9)


def test_range_of_sizes_limits_the_index():
    coef = [[4.0, 0.0], [0.0, 1.0]]
    assert build_index(coef, [0.5, 0.9], high=3.0).n_ranges == 1
    assert build_index(coef, [0.5, 0.9], low=5.0).n_ranges == 1


def test_shapes_broadcast_and_scalars():
    index = build_index([[0.0], [1.0]], [0.1, 0.2])
    assert index.lookup(1.0, 5.0).shape == ()
    assert index.lookup(np.ones((3, 1)), np.ones(2)).shape == (3, 2)
    assert index.lookup([], 1.0).shape == (0,)
    # More queries than one block of the kernel.
    assert_same_answers(index, index.coef, index.quality, np.ones(1100), np.arange(1100) / 1000)
    scan = CandidateScan(lambda sizes: np.array([[0.0], [1.0]]) + 0 * sizes, np.array([0.1, 0.2]))
    assert scan.lookup(np.ones((3, 1)), np.ones(2)).tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("seed", range(10))
def test_the_scan_agrees_with_the_index(seed):
    """The scan and the index on the candidates of a real lattice."""
    data = make_feature_sets(7, p_helpful=0.5, interaction=0.7, random_state=seed)
    masks = np.arange(128)
    coef = set_coefficients(masks, data.coef)
    kept = candidate_sets(masks, data.accuracy, coef)
    coef, accuracy = coef[kept], data.accuracy[kept]
    rng = np.random.default_rng(seed)
    size = rng.uniform(1, 500, 2000)
    budget = rng.uniform(size=2000) * evaluate_costs(data.coef, size).sum(axis=0)
    expected = naive_choice(evaluate_costs(coef, size), accuracy, budget)
    for read_only in (coef, accuracy, size, budget):
        read_only.setflags(write=False)
    np.testing.assert_array_equal(
        CandidateScan(lambda n: evaluate_costs(coef, n), accuracy).lookup(size, budget), expected
    )
    np.testing.assert_array_equal(build_index(coef, accuracy).lookup(size, budget), expected)


def test_kernel_rounds_like_numpy():
    rng = np.random.default_rng(0)
    coef = rng.uniform(size=(20, 4))
    for size in rng.uniform(0, 100, 20):
        kernel = [_kernels.horner(coef, i, size) for i in range(20)]
        np.testing.assert_array_equal(kernel, evaluate_costs(coef, size))


def test_index_pickles():
    index = build_index([[4.0, 0.0], [0.0, 1.0]], [0.5, 0.9])
    again = pickle.loads(pickle.dumps(index))
    assert isinstance(again, PolyDomIndex)
    assert again.lookup(5.0, 4.0) == 0


@pytest.mark.parametrize("seed", range(6))
def test_kernels_as_plain_python(seed, monkeypatch):
    """Every kernel, run by the interpreter, gives what its compiled form gives."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        coef, accuracy = rng.uniform(size=(20, 1 + seed)), rng.uniform(size=20)
    else:
        coef, accuracy = rng.integers(0, 4, (20, 5)) * 1.0, rng.integers(0, 8, 20) / 8
    coef[3] = coef[4]
    order = np.lexsort((np.arange(20), -accuracy, coef[:, 0]))
    by_accuracy = np.argsort(-accuracy, kind="stable")
    size, budget = rng.uniform(0, 20, 50), rng.uniform(0, 2000, 50)

    def run():
        found = [
            _kernels.sweep(coef, accuracy, order.copy(), 0.0, np.inf, interesting_only)
            for interesting_only in (0, 1)
        ]
        return [
            *found[0],
            *found[1],
            _kernels.lookup(*found[1][:3], coef, size, budget),
            _kernels.undominated(coef[by_accuracy], accuracy[by_accuracy]),
        ]

    compiled = run()
    for name, kernel in vars(_kernels).copy().items():
        if hasattr(kernel, "py_func"):
            monkeypatch.setattr(_kernels, name, kernel.py_func)
    for a, b in zip(compiled, run(), strict=True):
        np.testing.assert_array_equal(a, b)
