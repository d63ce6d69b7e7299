"""routing_potential: gains by brute force, errors as statistics, forecasts, bad input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsRegressor

from skroute.assignment import assignment_path
from skroute.datasets import make_routing_problem
from skroute.metrics import reference_curves, routing_potential
from skroute.metrics._potential import (
    Learning,
    RoutingPotential,
    cross_fitted,
    forecast,
    gains_of,
    learned_gains,
    oracle_gain,
)
from skroute.quality._stacking import best_mix, gain_over_mix, judged_budgets


def some_quality(seed, n=40, m=4):
    rng = np.random.default_rng(seed)
    costs = np.cumsum(rng.random(m)) + 0.1
    return rng.random((n, m)), costs, rng


def spent_by(routes, quality, costs):
    return np.stack([costs[routes], quality[np.arange(len(quality)), routes]], axis=1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_gain_is_what_the_references_say(seed):
    quality, costs, rng = some_quality(seed)
    routes = rng.integers(0, len(costs), size=(3, len(quality)))
    expected = []
    for route in routes:
        paid = costs[route].mean()
        random = reference_curves(quality, costs, [paid]).random[0]
        expected.append(quality[np.arange(len(quality)), route].mean() - random)
    gains = gains_of(spent_by(routes, quality, costs), quality, costs)
    assert gains.mean() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("seed", range(5))
def test_gains_are_measured_as_the_default_estimate_chooses(seed):
    """Rows of three kinds are tied; they are mixed, so that no budget is left over."""
    rng = np.random.default_rng(seed)
    kind, costs = rng.integers(3, size=200), np.array([1.0, 3.0, 4.0])
    quality = (rng.random((200, 3)) < rng.random((3, 3))[kind]).astype(float)
    X, learner = np.eye(3)[kind], KNeighborsRegressor(40)
    found = learned_gains(learner, X, quality, costs, np.random.RandomState(0))
    order = np.random.RandomState(0).permutation(200)
    estimates = cross_fitted(learner, X[order], quality[order], costs)
    expected = gain_over_mix(estimates, quality[order], costs, judged_budgets(quality, costs))
    assert found[-1].mean() == pytest.approx(expected.mean(), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1.2))
def test_slope_of_the_mix_is_its_derivative(seed, share):
    quality, costs, _ = some_quality(seed)
    spent = costs.min() + share * np.ptp(costs)
    step = 1e-7
    mix, further = best_mix(quality, costs, spent), best_mix(quality, costs, spent + step)
    if mix.slope == further.slope:  # no corner of the hull between them
        moved = (further.of(quality) - mix.of(quality)).mean()
        assert moved == pytest.approx(step * mix.slope, abs=1e-12)


def test_oracle_gain_is_that_of_the_references_at_what_it_spends():
    quality, costs, _ = some_quality(3)
    # An oracle that every choice satisfies in some rows stops short of the larger budgets.
    most = assignment_path(quality, costs).budgets[-1]
    spent = np.minimum(judged_budgets(quality, costs), most)
    known = reference_curves(quality, costs, spent)
    assert oracle_gain(quality, costs) == pytest.approx(np.mean(known.oracle - known.random))
    easy = np.ones((30, 2))
    easy[0, 0] = 0
    assert oracle_gain(easy, np.array([1.0, 9.0])) == pytest.approx(
        1 - np.mean(reference_curves(easy, [1.0, 9.0], [1 + 8 / 30]).random)
    )


def test_standard_error_is_the_spread_over_fresh_rows():
    """Fixed routing rule, fresh rows: the delta method's error is the spread of the gain."""
    rng = np.random.default_rng(0)
    costs = np.array([1.0, 2.0, 5.0])
    found, errors, plain = [], [], []
    for _ in range(400):
        x = rng.random(300)
        quality = (rng.random((300, 3)) < np.column_stack([x, 0.3 + 0.5 * x, 0.9 + 0 * x])) * 1.0
        routes = np.where(x > 0.7, 0, np.where(x > 0.4, 1, 2))[np.newaxis]
        gains = gains_of(spent_by(routes, quality, costs), quality, costs)
        found.append(gains.mean())
        errors.append(gains.std(ddof=1) / np.sqrt(300))
        # The mutation: what the rows cost is not on the bill.
        rows = np.arange(300)
        mix = best_mix(quality, costs, costs[routes[0]].mean())
        plain.append((quality[rows, routes[0]] - mix.of(quality)).std(ddof=1) / np.sqrt(300))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.12)
    assert abs(np.mean(plain) / np.std(found) - 1) > 0.12


def test_forecast_knows_more_of_near_than_of_far():
    gains = np.random.default_rng(0).normal(0.02, 0.3, (3, 500))
    learning = Learning(0.03, 0.02, 1.0)
    widths, middles = [], []
    for doublings in (0.0, 1.0, 3.0, 8.0):
        middle, low, high = forecast(gains, 0.2, doublings, 1.96, learning)
        widths.append(high - low)
        middles.append(middle)
    assert np.all(np.diff(widths) > 0)
    assert middles[0] == pytest.approx(gains[-1].mean())
    assert widths[0] == pytest.approx(2 * 1.96 * gains[-1].std(ddof=1) / np.sqrt(500))


def test_features_that_tell_and_features_that_do_not():
    log = make_routing_problem(1000, n_models=3, n_features=2, random_state=0)
    near = KNeighborsRegressor(40)
    noise = np.random.default_rng(0).standard_normal(log.data.shape)
    told = routing_potential(log.data, log.quality, log.costs, quality_estimator=near)
    blind = routing_potential(noise, log.quality, log.costs, quality_estimator=near)
    assert told.low > 0 and str(told).startswith("Routing pays:")
    assert blind.low < 0
    assert told.oracle == blind.oracle > told.gain
    assert told.gain > blind.gain


def test_default_estimator_frames_and_names():
    log = make_routing_problem(80, n_models=2, n_features=2, random_state=0)
    X = pd.DataFrame(log.data, columns=["a", "b"])
    Q = pd.DataFrame(log.quality, columns=["small", "large"])
    by_name = dict(zip(Q.columns, log.costs))
    found = routing_potential(X, Q, by_name, n_rows_later=80)
    assert found == routing_potential(log.data, log.quality, log.costs, n_rows_later=80)
    assert found.n_rows == found.n_rows_later == 80
    assert found.forecast == found.gain


def test_bad_input():
    log = make_routing_problem(100, n_models=3, n_features=2, random_state=0)
    X, Q, costs = log.data, log.quality, log.costs
    with pytest.raises(ValueError, match="100 rows and Q 99"):
        routing_potential(X, Q[:99], costs)
    with pytest.raises(ValueError, match="59 rows are too few"):
        routing_potential(X[:59], Q[:59], costs)
    with pytest.raises(ValueError, match="n_rows_later must be at least"):
        routing_potential(X, Q, costs, n_rows_later=50)
    with pytest.raises(ValueError, match="costs"):
        routing_potential(X, Q, costs[:2])
    with pytest.raises(ValueError, match="NaN"):
        routing_potential(X, np.where(np.arange(3) == 1, np.nan, Q), costs)
    with pytest.raises(ValueError, match="confidence_level"):
        routing_potential(X, Q, costs, confidence_level=1.0)


def test_rows_that_gained_nothing_do_not_say_that_routing_pays():
    """The forecast leans on other tables; the verdict needs the rows at hand."""
    found = RoutingPotential(-0.006, 0.004, 0.025, 0.003, 0.047, 0.2, 200, 2000)
    assert str(found).startswith("These rows cannot say")
    assert str(found._replace(gain=0.006)).startswith("Routing pays")
