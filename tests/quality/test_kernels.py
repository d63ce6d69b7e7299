"""The kernels against plain NumPy and scikit-learn's brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from skroute.quality import _kernels
from skroute.quality._search import METRICS, HostRows, read_only
from tests.quality import reference

KINDS = ["normal", "integers", "constant", "duplicates", "heavy", "offset", "wide", "tiny", "huge"]
KINDS += ["clusters"]


def make_rows(rng, kind, n_rows, n_features):
    X = rng.standard_normal((n_rows, n_features))
    if kind == "integers":
        X = rng.integers(0, 4, (n_rows, n_features)).astype(float)
    elif kind == "constant":
        X = np.ones((n_rows, n_features))
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n_rows // 4), n_rows)]
    elif kind == "heavy":
        X = rng.standard_cauchy((n_rows, n_features)) ** 3
    elif kind == "offset":
        X = 1e7 + X
    elif kind == "clusters":
        # Near each other, far from zero: the product of two lengths hides their distance.
        X = 1e-5 * X + rng.integers(-1, 2, (n_rows, 1))
    elif kind == "wide":
        X = X * 10.0 ** rng.integers(-6, 7, n_features)
    elif kind == "tiny":
        X = X * 1e-150
    elif kind == "huge":
        X = X * 1e150
    return X


def ready(X, metric, Q):
    """Rows and queries as the kernels take them."""
    index = HostRows(X, np.zeros((len(X), 1)), metric)
    return index.references, index.ready(Q)


def queries_from(rng, X, kind):
    """Rows themselves, new rows, and rows far outside the range of the references."""
    new = make_rows(rng, kind, 4, X.shape[1])
    return np.vstack([X[:3].astype(np.float64), new, new[:1] * 1e6 + 1, new[:1] * 1e25])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS),
    n_rows=st.integers(1, 400),
    n_features=st.sampled_from([1, 2, 3, 17, 64, 65, 300]),
    metric=st.sampled_from(sorted(METRICS)),
    dtype=st.sampled_from([np.float32, np.float64]),
    share=st.floats(0, 1),
    many=st.booleans(),
)
def test_kernels_equal_their_numpy_twins(
    seed, kind, n_rows, n_features, metric, dtype, share, many
):
    if kind in ("tiny", "huge"):
        dtype = np.float64
    rng = np.random.default_rng(seed)
    X = make_rows(rng, kind, n_rows, n_features).astype(dtype)
    X[~np.isfinite(X)] = 0
    Q = queries_from(rng, X, kind)
    if kind == "huge" or (kind == "integers" and metric != "chebyshev"):
        # The squares of the far ones overflow; their sums are rounded, and ties depend on it.
        Q = Q[:-2]
    if not many:
        # So few that no product of matrices bounds their distances.
        Q = Q[rng.permutation(len(Q))[:3]]
    X.setflags(write=False)
    head = ready(X, metric, Q)

    n_subsets = 1 + int(share * (n_rows - 1))
    starts = read_only(np.linspace(0, n_rows, n_subsets + 1).astype(np.int64))
    distances, rows = _kernels.nearest_of_subsets(*head, starts)
    expected = reference.nearest_of_subsets(X, starts, Q, metric)
    all_distances = np.array([reference.distances_to(X, query, metric) for query in Q])
    found = np.take_along_axis(all_distances, rows, axis=1)
    np.testing.assert_allclose(distances, found, rtol=1e-12)
    if metric == "chebyshev" or kind == "integers":
        # No sum is rounded, so ties are the same ones.
        np.testing.assert_array_equal(rows, expected)
    best = np.take_along_axis(all_distances, expected, axis=1)
    np.testing.assert_allclose(found, best, rtol=1e-12)

    k = n_subsets
    distances, rows = _kernels.k_nearest(*head, k)
    expected_distances, expected_rows = reference.k_nearest(X, k, Q, metric)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-12)
    if metric == "chebyshev" or kind == "integers":
        np.testing.assert_array_equal(rows, expected_rows)
    assert all(len(set(row)) == k for row in rows.tolist())

    y = read_only(rng.standard_normal((n_rows, 2)))
    at = read_only(distances[:, -1])
    counts, sums, squares = _kernels.sums_at_distance(*head, y, at)
    if metric == "chebyshev" or kind == "integers":
        expected = reference.sums_at_distance(X, y, at, Q, metric)
        np.testing.assert_array_equal(counts, expected[0])
        np.testing.assert_allclose(sums, expected[1], atol=1e-10)
        np.testing.assert_allclose(squares, expected[2], atol=1e-10)
    assert (counts >= 1).all()


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("kind", ["uniform", "embedding", "discrete"])
def test_same_neighbours_as_sklearn(metric, kind):
    rng = np.random.default_rng(0)
    if kind == "uniform":
        X = rng.random((3000, 200))
    elif kind == "embedding":
        X = np.tanh(rng.standard_normal((3000, 8)) @ rng.standard_normal((8, 200)))
    else:
        X = rng.integers(0, 3, (3000, 5)).astype(float)
    X, Q = X[:-50], X[-50:]
    brute = NearestNeighbors(n_neighbors=300, algorithm="brute", metric=metric).fit(X)
    expected_distances, expected = brute.kneighbors(Q)
    distances, rows = _kernels.k_nearest(*ready(X, metric, Q), 300)
    if metric == "euclidean":
        distances = np.sqrt(distances)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-7, atol=1e-7)
    if kind != "discrete":  # scikit-learn does not say which of equally near rows it returns
        np.testing.assert_array_equal(rows, expected)
    _, rows = _kernels.nearest_of_subsets(*ready(X, metric, Q), read_only([0, len(X)]))
    if kind != "discrete":
        np.testing.assert_array_equal(rows[:, 0], expected[:, 0])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS[:-3] + KINDS[-1:]),
    n_features=st.sampled_from([1, 3, 40, 200]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_products_give_what_single_queries_give(seed, kind, n_features, dtype):
    """The same neighbours, bit for bit, by products of matrices and by differences alone."""
    rng = np.random.default_rng(seed)
    X = make_rows(rng, kind, 1500, n_features).astype(dtype)
    Q = np.vstack([X[:10] * (1 + 1e-7), make_rows(rng, kind, 6, n_features)]).astype(np.float64)
    starts = read_only([0, 1, 700, 1100, 1500])
    y = read_only(rng.random((1500, 1)))
    found = _kernels.k_nearest(*ready(X, "euclidean", Q), 30)
    subsets = _kernels.nearest_of_subsets(*ready(X, "euclidean", Q), starts)
    at = read_only(found[0][:, -1])
    sums = _kernels.sums_at_distance(*ready(X, "euclidean", Q), y, at)
    for q in range(len(Q)):
        one = ready(X, "euclidean", Q[q : q + 1])
        for both in (
            (found, _kernels.k_nearest(*one, 30)),
            (subsets, _kernels.nearest_of_subsets(*one, starts)),
            (sums, _kernels.sums_at_distance(*one, y, at[q : q + 1])),
        ):
            for many, alone in zip(*both):
                np.testing.assert_array_equal(many[q], alone[0])


def test_bounds_of_products_hold():
    """Below the distance of codes, and above it with what they lack, where products cancel."""
    rng = np.random.default_rng(0)
    for kind in KINDS:
        X = make_rows(rng, kind, 200, 100)
        references, queries = ready(X, "euclidean", np.vstack([X[:20], 1e3 * X[20:40]]))
        memory, limits = np.empty(40 * 200, np.float32), np.full(40, np.inf)
        block = 0, 200
        bounds = _kernels._block_bounds(references, queries, block, limits, True, memory)
        bounds = bounds.astype(np.float64)
        codes, own = (
            part.codes.reshape(-1, 128).astype(np.float64) for part in (references, queries)
        )
        exact = ((own[:, None] - codes) ** 2).sum(axis=-1)
        assert (bounds <= exact).all()
        assert (bounds + references.excess + queries.excess[:, None] >= exact).all()


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_codes_dismiss_most_rows(metric):
    """The bound is of use: few rows need their distance, and none is lost."""
    rng = np.random.default_rng(0)
    X = np.tanh(rng.standard_normal((2000, 6)) @ rng.standard_normal((6, 100)))
    rows, (codes, slack, _, _, Q) = ready(X[:-1], metric, X[-1:])
    exact = np.sort(reference.distances_to(X[:-1], X[-1], metric))
    limit = _kernels._code_limit.py_func(rows.metric, exact[20], slack[0], rows.factor, rows.scale)
    values = np.empty(len(X) - 1)
    _kernels._code_distances(rows.metric, rows.codes, 0, len(values), codes[0], limit, values)
    assert 21 <= np.count_nonzero(values <= limit) <= 25


@pytest.mark.parametrize("metric, n_queries", [*((m, 3) for m in METRICS), ("euclidean", 16)])
def test_compiled_kernels_equal_their_python(metric, n_queries):
    """The same functions interpreted: what is compiled is what is written."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (120, 3)).astype(float)
    X[0, 0] = 50.0
    Q, y = X[:n_queries] + 1, read_only(rng.random((120, 2)))
    head = ready(X, metric, Q)
    (number, row_codes, excesses, _, X, scale, factor), (codes, slack, excess, _, Q) = head
    scratch = np.empty(3)
    bits = scratch.view(np.int64)

    starts = read_only([0, 15, 120])
    at = read_only(_kernels.k_nearest(*head, 6)[0][:, -1])
    for kernel, options in [
        (_kernels.nearest_of_subsets, (*head, starts)),
        (_kernels._k_nearest, (*head, 6)),
        (_kernels._k_nearest, (*head, 1)),
        (_kernels.sums_at_distance, (*head, y, at)),
    ]:
        for compiled, interpreted in zip(kernel(*options), kernel.py_func(*options)):
            np.testing.assert_allclose(compiled, interpreted, rtol=1e-12)

    compiled, interpreted = np.empty(120), np.empty(120)
    named = [
        _kernels._largest_differences,
        _kernels._sums_of_differences,
        _kernels._sums_of_squares,
    ][number]
    for limit in (0.5, np.inf):
        _kernels._code_distances(number, row_codes, 0, 120, codes[0], limit, compiled)
        for function, first in [(_kernels._code_distances.py_func, (number,)), (named.py_func, ())]:
            function(*first, row_codes, 0, 120, codes[0], limit, interpreted)
            np.testing.assert_allclose(compiled, interpreted, rtol=1e-5)
    for i in range(120):
        expected = reference.distances_to(X[i : i + 1], Q[0], metric)[0]
        distance = _kernels._distance.py_func(number, X, i, Q[0], scratch, bits)
        assert distance == expected == _kernels._distance(number, X, i, Q[0], scratch, bits)
        if number:
            assert distance == _kernels._sum_distance.py_func(number, X, i, Q[0])
        largest = compiled[i] + excesses[i] + excess[0]
        upper = _kernels._upper_bound.py_func(number, largest, slack[0], factor, scale)
        assert upper >= distance
        assert (
            _kernels._code_limit.py_func(number, distance, slack[0], factor, scale) >= compiled[i]
        )
    assert _kernels._code_limit.py_func(number, np.inf, slack[0], factor, scale) == np.inf
    assert _kernels._block_size.py_func(*head)[0] >= 8

    for function, start, tail in [
        (_kernels._keep_possible, (*head, 0), ()),
        (_kernels._keep_nearest, (number,), (X, Q[0], scratch, bits)),
    ]:
        results = []
        for call in (function, function.py_func):
            values, rows = compiled.copy(), np.arange(120)
            results.append(np.hstack([*call(*start, values, rows, 120, 6, *tail), rows[:6]]))
        np.testing.assert_allclose(*results)


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("kind", ["constant", "one-hot", "continuous"])
def test_rows_of_a_tie_are_thinned_once(metric, kind, monkeypatch):
    """Counts, not seconds: what comes after k rows at one distance is not gathered again."""
    rng = np.random.default_rng(0)
    X = {
        "constant": np.ones((3000, 2)),
        "one-hot": np.eye(5)[rng.integers(0, 5, 3000)],
        "continuous": rng.random((3000, 4)),
    }[kind]
    calls = []
    keep = _kernels._keep_nearest

    def counted(*args):
        calls.append(args)
        return keep(*args)

    monkeypatch.setattr(_kernels, "_keep_nearest", counted)
    expected = reference.k_nearest(X, 20, X[:1], metric)
    with monkeypatch.context() as interpreted:
        interpreted.setattr(_kernels, "_k_nearest", _kernels._k_nearest.py_func)
        found = _kernels.k_nearest(*ready(X, metric, X[:1]), 20)
    np.testing.assert_array_equal(found[1], expected[1])
    # At the end, and where the k-th distance falls: 1 and 0 of one-hot rows.
    assert len(calls) <= 3


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf]) | st.floats(0, 1e30), min_size=1),
    share=st.floats(0, 1),
    kind=st.sampled_from([(np.float32, np.int32), (np.float64, np.int64)]),
)
def test_kth_smallest_is_that_of_a_sort(values, share, kind):
    values = np.abs(np.array(values, dtype=kind[0]))
    k = max(1, round(share * len(values)))
    for kernel in (_kernels.kth_smallest, _kernels.kth_smallest.py_func):
        changed = values.copy()
        assert kernel(changed, changed.view(kind[1]), k) == np.sort(values)[k - 1]
