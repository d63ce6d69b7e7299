"""Numbers of curves, each compared with a second way to compute it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from scipy.stats import binomtest

from skroute.datasets import make_routing_problem
from skroute.metrics import (
    AccuracyCostCurve,
    average_performance_gap_recovered,
    bootstrap_interval,
    call_performance_threshold,
    compare_with_references,
    complementarity_matrix,
    cost_quality_auc,
    cost_reduction_at,
    pareto_front,
    reference_curves,
)

grid = st.integers(0, 8).map(lambda i: i / 8)
points = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        arrays(float, n, elements=grid), arrays(float, n, elements=grid)
    )
)


class TestCostReduction:
    @settings(max_examples=100, deadline=None)
    @given(points, grid, st.sampled_from([0.0, 0.125, 0.25]))
    def test_brute_force(self, curve, reference_quality, max_drop):
        cost, quality = curve
        savings = [
            (2 - c) / 2
            for c, q in zip(cost, quality)
            if q >= reference_quality - max_drop
        ]
        saving = cost_reduction_at(
            cost,
            quality,
            reference_cost=2,
            reference_quality=reference_quality,
            max_drop=max_drop,
        )
        assert_allclose(saving, max(savings) if savings else np.nan)

    def test_rounding_of_means_does_not_lose_a_point(self):
        assert (
            cost_reduction_at([1], [0.3], reference_cost=2, reference_quality=0.1 + 0.2)
            == 0.5
        )


class TestArea:
    @settings(max_examples=100, deadline=None)
    @given(points, grid, grid)
    def test_riemann_sum(self, curve, a, b):
        cost, quality = curve
        # Distinct costs, so that the curve is a function.
        cost, first = np.unique(cost, return_index=True)
        quality = quality[first]
        low, high = cost[0] + min(a, b), cost[0] + max(a, b) + 0.25
        x = np.linspace(low, high, 20_001)
        middle = (x[1:] + x[:-1]) / 2
        expected = np.interp(middle, cost, quality).mean()
        assert_allclose(
            cost_quality_auc(cost, quality, low=low, high=high), expected, atol=1e-6
        )

    def test_jump(self):
        # From 0.2 to 0.8 at cost 1: the side of the jump makes no difference.
        cost, quality = [0, 1, 1, 2], [0.2, 0.2, 0.8, 0.8]
        assert_allclose(cost_quality_auc(cost, quality), 0.5)
        assert_allclose(cost_quality_auc(cost, quality, low=1), 0.8)
        assert_allclose(cost_quality_auc(cost, quality, high=1), 0.2)


class TestGapRecovered:
    def test_is_that_of_routellm(self):
        """AUC, APGR and CPT as RouteLLM's evaluate.py computes them."""
        state = np.random.RandomState(0)
        share = np.linspace(0, 1, 11)
        accuracy = np.sort(np.r_[0.6, state.uniform(0.6, 0.8, size=9), 0.8])
        # Prices of the two models: 0.24 and 24.7.
        cost = 0.24 + share * (24.7 - 0.24)
        ends = {"weak": (0.24, 0.6), "strong": (24.7, 0.8)}
        auc = np.trapezoid(accuracy, share)
        weak = np.trapezoid(np.full(11, 0.6), share)
        strong = np.trapezoid(np.full(11, 0.8), share)
        assert_allclose(cost_quality_auc(cost, accuracy), auc)
        apgr = average_performance_gap_recovered(cost, accuracy, **ends)
        assert_allclose(apgr, (auc - weak) / (strong - weak))
        for x in (0.2, 0.5, 0.8, 1.0):
            expected = np.interp(0.6 + x * (0.8 - 0.6), accuracy, share)
            assert_allclose(
                call_performance_threshold(cost, accuracy, x, **ends), expected
            )

    def test_anchors_end_a_curve_that_does_not_reach_them(self):
        ends = {"weak": (0, 0.0), "strong": (1, 1.0)}
        assert_allclose(average_performance_gap_recovered([0.5], [0.75], **ends), 0.625)
        assert_allclose(call_performance_threshold([0.5], [0.75], 0.375, **ends), 0.25)
        assert_allclose(call_performance_threshold([0.5], [0.75], 1.0, **ends), 1.0)

    def test_points_outside_the_anchors(self):
        ends = {"weak": (1, 0.0), "strong": (2, 1.0)}
        cost, quality = [0, 2, 4], [0.0, 0.5, 0.5]
        # From 0.25 to 0.5 between the anchors.
        assert_allclose(average_performance_gap_recovered(cost, quality, **ends), 0.375)
        assert np.isnan(call_performance_threshold(cost, quality, 0.9, **ends))

    def test_threshold_at_the_first_point_and_at_a_jump(self):
        ends = {"weak": (0, 0.0), "strong": (1, 1.0)}
        assert call_performance_threshold([0, 1], [0.5, 1], 0.5, **ends) == 0.0
        jump = ([0, 0.5, 0.5, 1], [0.0, 0.0, 0.8, 1.0])
        assert call_performance_threshold(*jump, 0.5, **ends) == 0.5


ENDS = {"weak": (0, 0), "strong": (1, 1)}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: cost_quality_auc([1, 2], [1]), "quality of the curve must have shape"),
        (
            lambda: cost_quality_auc([1, np.nan], [1, 2]),
            "cost of the curve must have no missing",
        ),
        (lambda: cost_quality_auc([], []), "must have at least one point each"),
        (
            lambda: cost_quality_auc([1, 1], [1, 2]),
            "The range of costs must not be empty",
        ),
        (
            lambda: cost_quality_auc([1, 2], [1, 2], low=0.5),
            "low=0.5 is below the smallest cost",
        ),
        (
            lambda: average_performance_gap_recovered([1], [1], weak=(1,), strong=(2,)),
            r"weak and strong, each a pair \(cost, quality\), must have shape",
        ),
        (
            lambda: call_performance_threshold([1], [1], 1.01, **ENDS),
            "share must be above 0 and at",
        ),
        (
            lambda: reference_curves([[1, 0]], [1, 2], [0.5]),
            "smallest feasible budget is 1",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class TestParetoFront:
    @settings(max_examples=200, deadline=None)
    @given(points)
    def test_brute_force(self, curve):
        cost, quality = curve
        front = pareto_front(cost, quality)
        best_points = set()
        for i in range(len(cost)):
            is_better = (cost <= cost[i]) & (quality > quality[i])
            is_cheaper = (cost < cost[i]) & (quality >= quality[i])
            if not (is_better | is_cheaper).any():
                best_points.add((cost[i], quality[i]))
        assert [(cost[i], quality[i]) for i in front] == sorted(best_points)
        # The front has the first of equal points.
        for i in front:
            assert not any(
                cost[j] == cost[i] and quality[j] == quality[i] for j in range(i)
            )


class TestReferenceCurves:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_linear_programs(self, data):
        n = data.draw(st.integers(1, 5))
        m = data.draw(st.integers(1, 4))
        Q = data.draw(arrays(float, (n, m), elements=grid))
        per_row = data.draw(st.booleans())
        costs = data.draw(arrays(float, (n, m) if per_row else m, elements=grid))
        C = np.broadcast_to(costs, (n, m))
        budget = float(C.min(axis=1).mean() + data.draw(grid))
        references = reference_curves(Q, costs, [budget])

        one_each = np.kron(np.eye(n), np.ones(m))
        oracle = linprog(-Q.ravel(), C.ravel()[None], n * budget, one_each, np.ones(n))
        assert_allclose(references.oracle, -oracle.fun / n, atol=1e-7)

        cost = C.mean(axis=0)
        quality = Q.mean(axis=0)
        if cost.min() > budget + 1e-9:
            assert np.isnan(references.random).all()
            assert np.isnan(references.single).all()
        elif cost.min() <= budget:
            mix = linprog(-quality, cost[None], budget, np.ones((1, m)), [1])
            assert_allclose(references.random, -mix.fun, atol=1e-7)
            assert_allclose(
                references.single, quality[cost <= budget * (1 + 1e-12)].max()
            )
            assert references.single <= references.random + 1e-12
            assert references.random <= references.oracle + 1e-7


def test_pairs_are_compared_where_both_are_known():
    rng = np.random.default_rng(0)
    Q = rng.random((50, 4))
    Q[rng.random(Q.shape) < 0.4] = np.nan
    Q[25:, 2] = Q[:25, 3] = np.nan
    M = complementarity_matrix(Q)
    for i, j in np.ndindex(4, 4):
        both = Q[~np.isnan(Q[:, [i, j]]).any(axis=1)]
        if {i, j} == {2, 3}:
            assert not len(both) and np.isnan(M[i, j])
        else:
            assert M[i, j] == pytest.approx(
                np.maximum(both[:, i] - both[:, j], 0).mean()
            )


N = 600
BUDGETS = np.array([0.1, 0.2, 0.4, 0.6, 0.8, 1.0])


def curve_of(routes, Q, costs):
    """Return the curve of some routes, (n_budgets, n_samples)."""
    rows = np.arange(len(Q))
    row_costs = np.broadcast_to(costs, Q.shape)
    quality = np.column_stack([Q[rows, route] for route in routes])
    cost = np.column_stack([row_costs[rows, route] for route in routes])
    share = np.array(
        [np.bincount(route, minlength=Q.shape[1]) / len(Q) for route in routes]
    )
    return AccuracyCostCurve(
        BUDGETS,
        quality.mean(axis=0),
        cost.mean(axis=0),
        share,
        list("abc"),
        quality,
        cost,
    )


@pytest.fixture(scope="module", params=["shared", "per row"])
def case(request):
    problem = make_routing_problem(N, 3, random_state=0)
    costs = problem.costs
    if request.param == "per row":
        costs = costs * np.linspace(0.5, 1.5, N)[:, None]
    # The best routing by the true probabilities, at falling prices.
    prices = [3.0, 1.0, 0.6, 0.4, 0.2, 0.0]
    routes = [np.argmax(problem.success - price * costs, axis=1) for price in prices]
    return curve_of(routes, problem.quality, costs), problem.quality, costs


def test_numbers_of_the_router(case):
    curve, Q, costs = case
    numbers = compare_with_references(curve, Q, costs, n_resamples=5, random_state=0)
    model_costs = np.broadcast_to(costs, Q.shape).mean(axis=0)
    model_qualities = Q.mean(axis=0)
    weak = (model_costs[0], model_qualities[0])
    strong = (model_costs[2], model_qualities[2])
    ends = {"weak": weak, "strong": strong}
    points = (curve.cost, curve.quality)

    def of(metric, who="router"):
        return numbers[metric][who].estimate

    assert_allclose(of("apgr"), average_performance_gap_recovered(*points, **ends))
    assert_allclose(of("cpt_50"), call_performance_threshold(*points, 0.5, **ends))
    assert_allclose(of("cpt_80"), call_performance_threshold(*points, 0.8, **ends))
    assert_allclose(
        of("saving"),
        cost_reduction_at(
            *points,
            reference_cost=strong[0],
            reference_quality=strong[1],
        ),
    )
    best = [model_qualities[model_costs <= cost].max() for cost in curve.cost]
    assert_allclose(of("distance"), np.maximum(best - curve.quality, 0).mean())
    if curve.cost[0] > weak[0] and curve.cost[-1] < strong[0]:
        area = cost_quality_auc(
            np.r_[weak[0], curve.cost, strong[0]],
            np.r_[weak[1], curve.quality, strong[1]],
            low=weak[0],
            high=strong[0],
        )
        assert_allclose(of("auc"), area)
    for metric in numbers:
        assert_allclose(
            of(metric, "gain"), of(metric) - of(metric, "random"), atol=1e-15
        )


def test_references(case):
    curve, Q, costs = case
    numbers = compare_with_references(curve, Q, costs, n_resamples=5, random_state=0)
    areas = numbers["auc"]
    for who in ("random", "single", "oracle"):
        assert numbers["distance"][who].estimate == 0
    mean_cost = np.broadcast_to(costs, Q.shape).mean(axis=0)
    # Fine grids: area of the reference curves themselves.
    budgets = np.linspace(mean_cost[0], mean_cost[2], 4001)
    references = reference_curves(Q, costs, budgets)
    assert_allclose(areas["random"].estimate, references.random.mean(), atol=1e-3)
    assert_allclose(areas["single"].estimate, references.single.mean(), atol=1e-3)
    # Between its points the oracle's curve is straight, the real one concave.
    assert areas["oracle"].estimate <= references.oracle.mean() + 1e-3
    order = [areas[who].estimate for who in ("single", "random", "router", "oracle")]
    assert order == sorted(order)


def test_intervals(case):
    curve, Q, costs = case
    options = {"n_resamples": 40, "random_state": 0}
    numbers = compare_with_references(curve, Q, costs, **options)
    again = compare_with_references(curve, Q, costs, **options)
    narrow = compare_with_references(curve, Q, costs, confidence_level=0.5, **options)
    assert numbers == again
    apgr = numbers["apgr"]["router"]
    assert apgr.low < apgr.estimate < apgr.high
    assert apgr.n_samples == N
    assert apgr.low < narrow["apgr"]["router"].low
    # The two numbers are paired: the error of their difference is smaller.
    error = {who: value.standard_error for who, value in numbers["auc"].items()}
    assert error["gain"] < np.hypot(error["router"], error["random"])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_an_interval_belongs_to_a_number(seed):
    """A number that is not defined on the rows has no interval either."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    Q = (rng.uniform(size=(n, 2)) < [0.5, 0.7]).astype(float)
    Q[:2] = [0.0, 1.0]  # The second is better, but for few rows.
    if not Q[:, 1].mean() > Q[:, 0].mean():
        Q[:, 1] = 1.0
    share = rng.uniform(size=(6, 1)) * rng.choice([0.5, 1.0])
    routes = (rng.uniform(size=(6, n)) < share).astype(int)
    curve = curve_of(routes, Q, np.array([1.0, 2.0]))._replace(budget=BUDGETS + 1)
    numbers = compare_with_references(
        curve, Q, [1.0, 2.0], n_resamples=8, random_state=0
    )
    for by_contender in numbers.values():
        for value in by_contender.values():
            undefined = np.isnan(
                [value.estimate, value.low, value.high, value.standard_error]
            )
            assert undefined.all() or not undefined[0]
            assert undefined[1] == undefined[2] == undefined[3]


def test_is_the_plain_bootstrap():
    state = np.random.RandomState(0)
    a = state.normal(size=30)
    b = state.normal(size=(30, 2))

    def statistic(x, y):
        return x - y.prod()

    interval = bootstrap_interval(
        statistic, a, b, n_resamples=50, confidence_level=0.8, random_state=1
    )
    state = np.random.RandomState(1)
    values = []
    for _ in range(50):
        rows = state.randint(30, size=30)
        values.append(statistic(a[rows].mean(), b[rows].mean(axis=0)))
    assert_allclose(interval.estimate, statistic(a.mean(), b.mean(axis=0)))
    assert_allclose([interval.low, interval.high], np.quantile(values, [0.1, 0.9]))
    assert_allclose(interval.standard_error, np.std(values))
    assert interval.n_samples == 30


@pytest.mark.slow
def test_coverage():
    state = np.random.RandomState(0)
    n_trials = 300
    covered = 0
    for _ in range(n_trials):
        rows = state.uniform(size=200) < 0.7
        interval = bootstrap_interval(
            float, rows, confidence_level=0.9, n_resamples=200, random_state=state
        )
        covered += interval.low <= 0.7 <= interval.high
    # Nominal 0.9; percentile intervals of a share of 200 rows fall a little short.
    assert binomtest(covered, n_trials, 0.88).pvalue > 1e-3


def test_undefined_resamples_are_left_out():
    rows = np.r_[np.zeros(3), np.ones(3)]
    interval = bootstrap_interval(
        lambda mean: np.nan if mean > 0.5 else mean,
        rows,
        n_resamples=200,
        random_state=0,
    )
    assert 0 <= interval.low <= interval.high <= 0.5
    interval = bootstrap_interval(
        lambda mean: np.nan, rows, n_resamples=5, random_state=0
    )
    assert np.isnan(interval[:4]).all()
    assert interval.n_samples == 6


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: bootstrap_interval(float),
            "needs at least one array of rows, got none",
        ),
        (
            lambda: bootstrap_interval(float, [1, 2], [1]),
            "inconsistent numbers of samples",
        ),
        (
            lambda: bootstrap_interval(float, [1, np.inf]),
            "Input rows contains infinity",
        ),
        (
            lambda: bootstrap_interval(float, [1], confidence_level=95),
            "'confidence_level' param",
        ),
    ],
)
def test_messages_of_intervals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c, Q, costs: (c, Q, -costs), "costs must not be negative"),
        (
            lambda c, Q, costs: (c, Q, costs[::-1]),
            "strong must cost more than weak and be bet",
        ),
        (lambda c, Q, costs: (c, Q * np.nan, costs), "Q has NaN, not known"),
    ],
)
def test_messages_of_comparisons(change, message):
    problem = make_routing_problem(60, 3, random_state=0)
    curve = curve_of([np.zeros(60, dtype=int)] * 6, problem.quality, problem.costs)
    with pytest.raises(ValueError, match=message):
        compare_with_references(*change(curve, problem.quality, problem.costs))
