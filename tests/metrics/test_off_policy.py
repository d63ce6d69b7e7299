"""The value of a policy from a log: estimators, coverage of intervals, refused logs."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import skew
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import skroute.quality._logged as mechanism
from skroute.metrics import OffPolicyDisplay, off_policy_curve, off_policy_savings
from skroute.metrics._off_policy import (
    direct_method,
    doubly_robust,
    skewness,
    snips,
    unskewed,
    with_interval,
)
from skroute.routing import BudgetRouter

COSTS = {"small": 1.0, "middle": 3.0, "large": 8.0}
NAMES = np.array(list(COSTS))


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(mechanism, "_N_TREES", 5)


def table(n, seed=0):
    """Return rows, chances of success, and costs that grow with difficulty."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    odds = np.column_stack([X[:, 0], 1 + 0.5 * X[:, 1], np.full(n, 2.0)])
    costs = np.outer(np.exp(0.4 * X[:, 0]), list(COSTS.values()))
    return X, 1 / (1 + np.exp(-odds)), costs


def chances(X, kind):
    """Return the probability of each choice for one of three policies, (n_rows, 3)."""
    if kind == "uniform":
        return np.full((len(X), 3), 1 / 3)
    if kind == "cheap":
        return np.tile([0.7, 0.2, 0.1], (len(X), 1))
    first = np.where(X[:, 0] > 0, 0.8, 0.1)
    return np.column_stack([first, 0.1 + 0 * first, 0.9 - first])


class DrawnLog(NamedTuple):
    """A log of one answer per request, with the true propensities."""

    X: np.ndarray
    quality: np.ndarray
    choice: np.ndarray
    propensity: np.ndarray
    cost: np.ndarray


def draw_log(kind, n, seed):
    """Draw a log that one of three policies writes, see `chances`."""
    X, chance, costs = table(n, seed)
    rng = np.random.default_rng(seed + 1)
    Q = (rng.random(chance.shape) < chance).astype(float)
    P = chances(X, kind)
    choice = (rng.random((n, 1)) > P.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    rows = np.arange(n)
    return DrawnLog(
        X=X,
        quality=Q[rows, choice],
        choice=choice,
        propensity=P[rows, choice],
        cost=costs[rows, choice],
    )


@pytest.fixture(scope="module")
def router():
    X, chance, _ = table(400, seed=99)
    Q = (np.random.default_rng(98).random(chance.shape) < chance).astype(float)
    return BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, Q)


def coverage(mutate, n_draws=300, n=600):
    """Return the share of logs in which 1.96 standard errors cover the truth.

    The model of quality is wrong. `mutate` changes the weights.
    """
    covered = np.zeros(n_draws, dtype=bool)
    X, chance, _ = table(400_000, seed=5)
    truth = chance[np.arange(len(X)), np.where(X[:, 1] > 0, 0, 2)].mean()
    for seed in range(n_draws):
        log = draw_log("depends", n, 10 * seed)
        route = np.where(log.X[:, 1] > 0, 0, 2)
        wrong_model = np.tile([0.9, 0.5, 0.95], (n, 1))
        rows = np.arange(n)
        weight = mutate(np.where(route == log.choice, 1 / log.propensity, 0.0))
        mean = doubly_robust(
            wrong_model[rows, route], wrong_model[rows, log.choice], log.quality, weight
        )
        covered[seed] = abs(mean.estimate - truth) < 1.96 * mean.standard_error
    return covered.mean()


@pytest.mark.slow
def test_doubly_robust_covers_the_truth_though_the_model_is_wrong():
    assert coverage(lambda weight: weight) > 0.925


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda weight: 0 * weight, id="no correction"),
        pytest.param(lambda weight: (weight > 0) * 1.0, id="no propensity"),
        pytest.param(lambda weight: np.minimum(weight, 2.0), id="clipped"),
    ],
)
def test_the_coverage_test_notices(mutate):
    assert coverage(mutate, n_draws=100) < 0.85


def test_estimators_by_hand():
    values = np.array([1.0, 0.0, 1.0])
    weights = np.array([2.0, 4.0, 0.0])
    weighted = snips(values, weights)
    assert weighted.estimate == pytest.approx(2 / 6)
    by_hand = np.sqrt(4 * (4 / 6) ** 2 + 16 / 9 * 1) / 6
    assert weighted.standard_error == pytest.approx(by_hand)
    of_route = np.array([0.5, 0.2, 0.6])
    of_logged = np.array([0.5, 0.1, 0.3])
    terms = of_route + weights * (values - of_logged)
    corrected = doubly_robust(of_route, of_logged, values, weights)
    assert corrected.estimate == pytest.approx(terms.mean())
    assert direct_method(of_route).estimate == pytest.approx(of_route.mean())


@pytest.mark.parametrize("kind", ["uniform", "cheap", "depends"])
@pytest.mark.slow
def test_the_whole_curve_covers_the_truth(router, kind):
    """Draw fresh logs, and compare all means with those of 100,000 rows."""
    budgets = [1.5, 3, 6]
    X, chance, costs = table(100_000, seed=7)
    rows = np.arange(len(X))
    routes = [router.route(X, budget=budget) for budget in budgets]
    true_quality = np.array([chance[rows, route].mean() for route in routes])
    true_cost = np.array([costs[rows, route].mean() for route in routes])
    covered = []
    for seed in range(8):
        log = draw_log(kind, 400, 1000 + 10 * seed)
        curve = off_policy_curve(
            router,
            log.X,
            log.quality,
            choice=NAMES[log.choice],
            propensity=log.propensity,
            costs=log.cost,
            budgets=budgets,
        )
        for estimates, truth in (
            (curve.quality, true_quality),
            (curve.cost, true_cost),
        ):
            mean = estimates.doubly_robust
            covered.append((mean.low < truth) & (truth < mean.high))
            assert np.all(np.abs(mean.estimate - truth) < 5 * mean.standard_error)
    assert np.mean(covered) > 0.88


def test_propensities_are_estimated_from_what_made_the_choice(router):
    X, q, choice, propensity, _ = draw_log("depends", 1500, 3)
    logged = {"choice": choice, "propensity": propensity}
    with_logged = off_policy_curve(router, X, q, budgets=[3], **logged)
    with_estimated = off_policy_curve(router, X, q, choice=choice, budgets=[3])
    budgets = off_policy_curve(router, X, q, **logged).budget
    np.testing.assert_allclose(budgets[[0, -1]], router.price_path_.budgets[[0, -1]])
    assert with_estimated.estimated and not with_logged.estimated
    assert abs(with_estimated.mean_weight[0] - 1) < 0.15
    mean = with_logged.quality.doubly_robust
    gap = with_estimated.quality.doubly_robust.estimate - mean.estimate
    assert abs(gap[0]) < 2 * mean.standard_error[0]


def test_overlap_in_the_fields_of_the_curve(router):
    X, q, choice, propensity, _ = draw_log("cheap", 600, 4)
    curve = off_policy_curve(
        make_pipeline(router), X, q, choice=choice, propensity=propensity
    )
    assert len(curve.budget) == 9 and curve.choices == list(COSTS)
    np.testing.assert_allclose(curve.route_share.sum(axis=1), 1)
    route = router.route(X, budget=curve.budget[4])
    weight = (route == choice) / propensity
    assert curve.matched[4] == (route == choice).sum()
    assert curve.max_weight[4] == weight.max()
    assert curve.mean_weight[4] == pytest.approx(weight.mean())
    assert curve.effective_sample_size[4] == pytest.approx(
        weight.sum() ** 2 / (weight**2).sum()
    )
    # No costs were logged, so they are those of the price list.
    reported = router.predict_cost(X, budget=curve.budget[4]).mean()
    for mean in curve.cost:
        assert mean.estimate[4] == pytest.approx(reported)
    assert curve.n_fitted == 0


def test_rows_of_the_fit_are_warned_about():
    X, q, choice, propensity, _ = draw_log("uniform", 300, 4)
    router = BudgetRouter(costs=COSTS).fit(X[:200], q[:200], choice=NAMES[choice[:200]])
    with pytest.warns(
        UserWarning, match="200 of 300 rows equal rows that the router was fitted on"
    ):
        curve = off_policy_curve(
            router, X, q, choice=choice, propensity=propensity, budgets=[4]
        )
    assert curve.n_fitted == 200


def test_a_log_without_overlap_is_refused(router):
    X, q, _, _, _ = draw_log("uniform", 400, 4)
    large = np.full(400, 2)
    with pytest.raises(
        ValueError, match="'small', and on none of them has the log made"
    ):
        off_policy_curve(
            router, X, q, choice=large, propensity=np.ones(400), budgets=[2]
        )
    # A rule wrote the log. It made every choice, but not on the router's rows.
    route = router.route(X, budget=np.inf)
    rule = np.where(X[:, 1] > 0, route, (route + 1) % 3)
    with pytest.raises(
        ValueError, match="stand for .* of all rows by their propensities"
    ):
        off_policy_curve(
            router, X, q, choice=rule, propensity=np.ones(400), budgets=[np.inf]
        )
    rare = (route + 1) % 3
    _, first = np.unique(route, return_index=True)
    rare[first] = route[first]
    with pytest.raises(
        ValueError, match="effective sample size of .*, below 10: too few"
    ):
        off_policy_curve(
            router, X, q, choice=rare, propensity=np.full(400, 0.01), budgets=[np.inf]
        )


def test_a_budget_without_overlap_leaves_the_others(router):
    """Its estimates are NaN, with a warning. It changes no other budget."""
    drawn = draw_log("uniform", 400, 4)
    is_cheap = drawn.choice < 2
    X = drawn.X[is_cheap]
    q = drawn.quality[is_cheap]
    log = {
        "choice": drawn.choice[is_cheap],
        "propensity": np.full(len(X), 0.5),
        "costs": drawn.cost[is_cheap],
    }
    low = router.min_budget_
    alone = off_policy_curve(router, X, q, budgets=[low], **log)
    with pytest.warns(
        UserWarning, match="Without a budget the policy sends .* to 'large'"
    ):
        both = off_policy_curve(router, X, q, budgets=[np.inf, low], **log)
    for estimates, alone_estimates in (
        (both.quality, alone.quality),
        (both.cost, alone.cost),
    ):
        for mean, alone_mean in zip(estimates, alone_estimates):
            for numbers, alone_numbers in zip(mean, alone_mean):
                assert np.isnan(numbers[0])
                assert numbers[1] == alone_numbers[0]
    assert np.isfinite(both.mean_weight).all() and np.isfinite(both.route_share).all()
    # The display draws the rest.
    with pytest.warns(UserWarning, match="Its estimates are NaN"):
        OffPolicyDisplay.from_estimator(router, X, q, budgets=[np.inf, low], **log)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choice": [0, 1]}, "choice must name one choice for each of the 50 rows"),
        (
            {"choice": np.full(50, 0.5)},
            "choice must be names of choices or whole numbers",
        ),
        ({"choice": np.full(50, -1)}, "choice must have numbers from 0 up, got -1"),
        ({"choice": np.full(50, 50)}, "choice has the column number 50"),
        ({"propensity": np.zeros(50)}, "propensity must have numbers above 0"),
        ({"costs": -np.ones(50)}, "costs must be finite and at least 0"),
        ({"q": np.full(50, np.nan)}, "q must have a number for some row"),
        ({"q": np.ones((50, 2))}, "q must have shape"),
    ],
)
def test_columns_that_are_not_valid_are_refused(router, change, message):
    X, q, choice, propensity, _ = draw_log("uniform", 50, 4)
    call = {"q": q, "choice": choice, "propensity": propensity, "budgets": [3]}
    call.update(change)
    with pytest.raises(ValueError, match=message):
        off_policy_curve(router, X, **call)


def test_a_choice_that_the_router_does_not_have_is_named(router):
    X, q, choice, propensity, _ = draw_log("uniform", 400, 4)
    names = NAMES[choice].astype(object)
    names[:20] = [name.capitalize() for name in names[:20]]
    with pytest.warns(
        UserWarning, match="'Large', 'Middle', 'Small', which the router does not"
    ):
        curve = off_policy_curve(
            router, X, q, choice=names, propensity=propensity, budgets=[3]
        )
    assert curve.choices == router.choices_


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_skewness_of_a_mean_is_that_of_its_terms_by_the_root_of_their_number(scale):
    terms = np.random.default_rng(0).exponential(size=500)
    of_mean = skewness(scale * (terms - terms.mean()))
    assert of_mean == pytest.approx(skew(terms) / np.sqrt(500), rel=1e-9)


def test_display(router):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    X, q, choice, propensity, _ = draw_log("uniform", 400, 4)
    display = OffPolicyDisplay.from_estimator(
        router, X, q, choice=choice, propensity=propensity, budgets=[2, 4]
    )
    labels = [line.get_label() for line in display.lines_]
    assert labels == ["doubly robust", "SNIPS", "direct method"]
    np.testing.assert_allclose(
        display.lines_[0].get_ydata(), display.curve.quality.doubly_robust.estimate
    )
    again = OffPolicyDisplay(curve=display.curve).plot(
        ax=display.ax_, estimators=("snips",)
    )
    assert again.band_ is None and again.figure_ is display.figure_
    with pytest.raises(ValueError, match="got 'ips' among them"):
        again.plot(estimators=("ips",))
    pyplot.close("all")


@pytest.mark.slow
def test_skewness_is_taken_out_of_intervals():
    """Without the correction one interval in ten fails: one row in five is heavy."""
    rng = np.random.default_rng(0)
    covered = {True: [], False: []}
    for _ in range(800):
        weight = 5.0 * (rng.random(400) < 0.2)
        value = rng.lognormal(-0.72, 1.2, size=400)
        mean = doubly_robust(np.ones((1, 400)), np.ones(400), value, weight)
        degrees = np.array([weight.sum() ** 2 / (weight @ weight) - 1])
        for is_corrected, term in (
            (True, mean),
            (False, mean._replace(skewness=np.zeros(1))),
        ):
            interval = with_interval(term, degrees=degrees, confidence_level=0.95)
            is_covered = interval.low[0] <= 1.0 <= interval.high[0]
            covered[is_corrected].append(is_covered)
    assert np.mean(covered[False]) < 0.91
    assert 0.92 < np.mean(covered[True]) < 0.97


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 3), st.floats(-0.9, 0.9))
def test_the_transformation_is_the_inverse_of_halls(quantile, k):
    t = unskewed(quantile, np.array(k))
    k = k if abs(k) >= 1e-6 else 1e-6
    assert t + k * t**2 / 3 + k**2 * t**3 / 27 + k / 6 == pytest.approx(
        quantile, abs=1e-6
    )


def test_the_router_pays_for_deciding_and_the_rule_of_the_log_does_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1600, 1))
    Q = np.column_stack([1 - X[:, 0], np.full(1600, 0.9)])
    router = BudgetRouter(Ridge(), costs=[1, 5], budget=3, routing_cost=0.5)
    router.fit(X[:800], Q[:800])
    choice = rng.integers(0, 2, 800)
    costs = np.array([1.0, 5.0])[choice]
    answers = Q[800:][np.arange(800), choice]
    log = {"choice": choice, "propensity": np.full(800, 0.5), "costs": costs}
    true_cost = router.predict_cost(X[800:]).mean()
    curve = off_policy_curve(router, X[800:], answers, budgets=[3], **log)
    # Costs of a choice are all equal: the model of costs makes no error.
    for estimate in (curve.cost.direct, curve.cost.doubly_robust):
        assert estimate.estimate[0] == pytest.approx(true_cost)
    saved = off_policy_savings(router, X[800:], answers, **log)
    assert saved.cost == pytest.approx(true_cost)
    difference = saved["rule of the log"].cost_saved.estimate
    assert difference == pytest.approx(costs.mean() - true_cost)
