"""compare_with_references, each number of which is that of the function it names; intervals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from skroute.datasets import make_routing_problem
from skroute.metrics import (
    AccuracyCostCurve,
    average_performance_gap_recovered,
    bootstrap_interval,
    call_performance_threshold,
    compare_with_references,
    cost_quality_auc,
    cost_reduction_at,
    reference_curves,
)

N = 600
BUDGETS = np.array([0.1, 0.2, 0.4, 0.6, 0.8, 1.0])


def curve_of(routes, Q, costs):
    """The curve of given routes, (n_budgets, n_samples)."""
    rows = np.arange(len(Q))
    row_costs = np.broadcast_to(costs, Q.shape)
    quality = np.column_stack([Q[rows, route] for route in routes])
    cost = np.column_stack([row_costs[rows, route] for route in routes])
    share = np.array([np.bincount(route, minlength=Q.shape[1]) / len(Q) for route in routes])
    return AccuracyCostCurve(
        BUDGETS, quality.mean(axis=0), cost.mean(axis=0), share, list("abc"), quality, cost
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
    found = compare_with_references(curve, Q, costs, n_resamples=5, random_state=0)
    models = np.broadcast_to(costs, Q.shape).mean(axis=0), Q.mean(axis=0)
    ends = {"weak": (models[0][0], models[1][0]), "strong": (models[0][2], models[1][2])}
    points = curve.cost, curve.quality

    def of(metric, who="router"):
        return found[metric][who].estimate

    assert_allclose(of("apgr"), average_performance_gap_recovered(*points, **ends))
    assert_allclose(of("cpt_50"), call_performance_threshold(*points, 0.5, **ends))
    assert_allclose(of("cpt_80"), call_performance_threshold(*points, 0.8, **ends))
    assert_allclose(
        of("saving"),
        cost_reduction_at(
            *points, reference_cost=ends["strong"][0], reference_quality=ends["strong"][1]
        ),
    )
    best = [max(q for c, q in zip(*models) if c <= cost) for cost in curve.cost]
    assert_allclose(of("distance"), np.maximum(best - curve.quality, 0).mean())
    ended = [np.r_[ends["weak"][i], points[i], ends["strong"][i]] for i in range(2)]
    low, high = ends["weak"][0], ends["strong"][0]
    if curve.cost[0] > low and curve.cost[-1] < high:
        assert_allclose(of("auc"), cost_quality_auc(*ended, low=low, high=high))
    for metric in found:
        assert_allclose(of(metric, "gain"), of(metric) - of(metric, "random"), atol=1e-15)


def test_references(case):
    curve, Q, costs = case
    compared = compare_with_references(curve, Q, costs, n_resamples=5, random_state=0)
    found = compared["auc"]
    assert not any(compared["distance"][who].estimate for who in ("random", "single", "oracle"))
    mean_cost = np.broadcast_to(costs, Q.shape).mean(axis=0)
    # Fine grids: area of the reference curves themselves.
    budgets = np.linspace(mean_cost[0], mean_cost[2], 4001)
    references = reference_curves(Q, costs, budgets)
    assert_allclose(found["random"].estimate, references.random.mean(), atol=1e-3)
    assert_allclose(found["single"].estimate, references.single.mean(), atol=1e-3)
    # Between its points the oracle's curve is straight, the real one concave.
    assert found["oracle"].estimate <= references.oracle.mean() + 1e-3
    order = [found[who].estimate for who in ("single", "random", "router", "oracle")]
    assert order == sorted(order)


def test_intervals(case):
    curve, Q, costs = case
    told = {"n_resamples": 40, "random_state": 0}
    found, again = (compare_with_references(curve, Q, costs, **told) for _ in range(2))
    narrow = compare_with_references(curve, Q, costs, confidence_level=0.5, **told)
    assert found == again
    apgr = found["apgr"]["router"]
    assert apgr.low < apgr.estimate < apgr.high
    assert apgr.n_samples == N
    assert apgr.low < narrow["apgr"]["router"].low
    # Paired: the gain is surer than the two numbers are apart.
    error = {who: value.standard_error for who, value in found["auc"].items()}
    assert error["gain"] < np.hypot(error["router"], error["random"])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_an_interval_belongs_to_a_number(seed):
    """Where a number is not defined on the rows, neither is what resamples say of it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    Q = (rng.uniform(size=(n, 2)) < [0.5, 0.7]).astype(float)
    Q[:2] = [0.0, 1.0]  # The second is better, but for few rows.
    if not Q[:, 1].mean() > Q[:, 0].mean():
        Q[:, 1] = 1.0
    share = rng.uniform(size=(6, 1)) * rng.choice([0.5, 1.0])
    routes = (rng.uniform(size=(6, n)) < share).astype(int)
    curve = curve_of(routes, Q, np.array([1.0, 2.0]))._replace(budget=BUDGETS + 1)
    found = compare_with_references(curve, Q, [1.0, 2.0], n_resamples=8, random_state=0)
    for metric in found:
        for value in found[metric].values():
            undefined = np.isnan([value.estimate, value.low, value.high, value.standard_error])
            assert undefined.all() or not undefined[0]
            assert undefined[1] == undefined[2] == undefined[3]


def test_is_the_plain_bootstrap():
    state = np.random.RandomState(0)
    a, b = state.normal(size=30), state.normal(size=(30, 2))

    def statistic(x, y):
        return x - y.prod()

    found = bootstrap_interval(
        statistic, a, b, n_resamples=50, confidence_level=0.8, random_state=1
    )
    state = np.random.RandomState(1)
    values = []
    for _ in range(50):
        rows = state.randint(30, size=30)
        values.append(statistic(a[rows].mean(), b[rows].mean(axis=0)))
    assert_allclose(found.estimate, statistic(a.mean(), b.mean(axis=0)))
    assert_allclose([found.low, found.high], np.quantile(values, [0.1, 0.9]))
    assert_allclose(found.standard_error, np.std(values))
    assert found.n_samples == 30


@pytest.mark.slow
def test_coverage():
    state = np.random.RandomState(0)
    n_trials = 300
    covered = 0
    for _ in range(n_trials):
        rows = state.uniform(size=200) < 0.7
        found = bootstrap_interval(
            float, rows, confidence_level=0.9, n_resamples=200, random_state=state
        )
        covered += found.low <= 0.7 <= found.high
    # Nominal 0.9; percentile intervals of a share of 200 rows fall a little short.
    assert binomtest(covered, n_trials, 0.88).pvalue > 1e-3


def test_undefined_resamples_are_left_out():
    rows = np.r_[np.zeros(3), np.ones(3)]
    found = bootstrap_interval(
        lambda mean: np.nan if mean > 0.5 else mean, rows, n_resamples=200, random_state=0
    )
    assert 0 <= found.low <= found.high <= 0.5
    found = bootstrap_interval(lambda mean: np.nan, rows, n_resamples=5, random_state=0)
    assert np.isnan(found[:4]).all()
    assert found.n_samples == 6


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: bootstrap_interval(float), "needs at least one array of rows, got none"),
        (lambda: bootstrap_interval(float, [1, 2], [1]), "inconsistent numbers of samples"),
        (lambda: bootstrap_interval(float, [1, np.inf]), "Input rows contains infinity"),
        (lambda: bootstrap_interval(float, [1], confidence_level=95), "'confidence_level' param"),
    ],
)
def test_messages_of_intervals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c, Q, costs: (c, Q, -costs), "costs must not be negative"),
        (lambda c, Q, costs: (c, Q, costs[::-1]), "strong must cost more than weak and be bet"),
        (lambda c, Q, costs: (c, Q * np.nan, costs), "Q has NaN, not known"),
    ],
)
def test_messages(change, message):
    problem = make_routing_problem(60, 3, random_state=0)
    curve = curve_of([np.zeros(60, dtype=int)] * 6, problem.quality, problem.costs)
    with pytest.raises(ValueError, match=message):
        compare_with_references(*change(curve, problem.quality, problem.costs))
