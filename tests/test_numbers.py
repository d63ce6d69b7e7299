"""Numbers of all kinds, in every room: strict floating-point errors, and counts of any type."""

import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from skroute.assignment import assignment_path
from skroute.certified import CertifiedRouter, PromiseMonitor
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import GreedyFeatureSelector
from skroute.gating import AdaptGatingClassifier, LinearGate
from skroute.metrics import (
    AccuracyCostDisplay,
    accuracy_cost_curve,
    risk_coverage_curve,
)
from skroute.quality import QualityRegressor
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    DummyRouterClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OnlineBudgetRouter,
)
from tests.estimators import COSTS, ESTIMATORS, REGRESSOR_COSTS, REGRESSORS, members
from tests.test_hostile_functions import FUNCTIONS, INTERNAL, call, calls

MEMBERS = [("nb", GaussianNB()), ("lr", LogisticRegression())]
STRICT = [
    *ESTIMATORS,
    OccamRouterClassifier(MEMBERS, costs=[1, 3], budget=2),
    OccamRouterRegressor(REGRESSORS, costs=REGRESSOR_COSTS, budget=2.5),
    FrugalMLClassifier(MEMBERS, costs=[1, 3], budget=2),
    BudgetRouter(costs=[1, 2, 3], budget=2),
    CascadeRouter(costs=[1, 2, 3], budget=2, n_prices=4),
    QualityRegressor(),
    AdaptGatingClassifier(LogisticRegression(), gate=LinearGate(), cv=2),
    QWYCEnsemble(
        RandomForestClassifier(5, max_depth=3, random_state=0), random_state=0
    ),
]
METHODS = (
    "predict",
    "predict_proba",
    "route",
    "predict_cost",
    "transform",
    "predict_quality",
)


def table(estimator, n_rows, seed):
    """Rows and a target of the kind that an estimator learns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0).astype(int)
    if isinstance(estimator, (BudgetRouter, CascadeRouter)) or not (
        is_classifier(estimator)
        or is_regressor(estimator)
        or hasattr(estimator, "classes")
    ):
        quality = np.column_stack([y, 1 - y, np.ones(n_rows)]).astype(float)
        n_choices = (
            3 if getattr(estimator, "costs", None) is None else len(estimator.costs)
        )
        return X, quality[:, :n_choices]
    return X, y


def answers(estimator, X, y):
    """What a fitted copy of an estimator answers, method by method."""
    fitted = clone(estimator).fit(X, y)
    return {name: getattr(fitted, name)(X) for name in METHODS if hasattr(fitted, name)}


@pytest.mark.parametrize("n_rows", [120, 400])
@pytest.mark.parametrize("number", range(len(STRICT)))
def test_no_estimator_depends_on_how_numpy_treats_floating_point_errors(number, n_rows):
    estimator = STRICT[number]
    X, y = table(estimator, n_rows, seed=number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = answers(estimator, X, y)
    assert expected or hasattr(estimator, "fit")
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        found = answers(estimator, X, y)
    for name, answer in expected.items():
        np.testing.assert_array_equal(found[name], answer)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - INTERNAL))
def test_no_function_depends_on_how_numpy_treats_floating_point_errors(name, tmp_path):
    if name.startswith("datasets.fetch_"):
        pytest.skip("reads files that are not there")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = calls(tmp_path)[name]
        with np.errstate(all="raise"):
            warnings.simplefilter("error", RuntimeWarning)
            call(FUNCTIONS[name], arguments)


# Counts ------------------------------------------------------------------------------------

WHOLE_NUMBERS = [np.int64, np.uint8]


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool)


@pytest.mark.parametrize("whole", WHOLE_NUMBERS)
@pytest.mark.parametrize("number", range(len(STRICT)))
def test_counts_of_an_estimator_may_be_of_any_type_of_whole_number(number, whole):
    estimator = STRICT[number]
    X, y = table(estimator, 120, seed=number)
    counts = {
        name: value for name, value in estimator.get_params().items() if is_count(value)
    }
    if not counts:
        pytest.skip("has no count")
    same = clone(estimator).set_params(
        **{name: whole(value) for name, value in counts.items()}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = answers(estimator, X, y)
        found = answers(same, X, y)
    for name, answer in expected.items():
        np.testing.assert_array_equal(found[name], answer)


@pytest.mark.parametrize("whole", WHOLE_NUMBERS)
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - INTERNAL))
def test_counts_of_a_function_may_be_of_any_type_of_whole_number(name, whole, tmp_path):
    arguments = calls(tmp_path)[name]
    counts = {key: whole(value) for key, value in arguments.items() if is_count(value)}
    if name.startswith("datasets.fetch_") or not counts:
        pytest.skip("takes no count")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        expected = call(FUNCTIONS[name], arguments)
        assert_same(call(FUNCTIONS[name], arguments | counts), expected)


def assert_same(found, expected):
    if isinstance(expected, (tuple, list)):
        for part, other in zip(found, expected, strict=True):
            assert_same(part, other)
    elif isinstance(expected, (int, float, np.ndarray)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("whole", WHOLE_NUMBERS)
def test_counts_over_time_may_be_of_any_type_of_whole_number(whole):
    """More requests than an eight-bit number holds, and horizons of as many as it does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    quality = rng.random((400, 2))
    router = BudgetRouter(Ridge(), costs=[1.0, 3.0]).fit(X, quality)
    chosen = []
    for kind in (int, whole):
        stream = router.stream(1000.0, n_expected=kind(120))
        stream.top_up(10.0, n_more=kind(120))
        tickets = [stream.reserve(row) for row in quality[:300]]
        online = OnlineBudgetRouter([1.0, 3.0], budget=2.0, n_expected=kind(120))
        online.fit(X[:50], quality[:50])
        online.add_choice("new", cost=2.0, n_trials=kind(3))
        decisions = [online.decide(row) for row in X]
        monitor = PromiseMonitor(budget=1.0, random_state=kind(3))
        audited = monitor.audit(kind(120))
        chosen.append(
            [[t.choice for t in tickets], [d.name for d in decisions], audited.tolist()]
        )
    assert chosen[0] == chosen[1]


# Weights -----------------------------------------------------------------------------------

BAD_WEIGHTS = {
    "all zero": np.zeros(60),
    "negative": np.r_[-1.0, np.ones(59)],
    "balanced": np.r_[np.ones(30), -np.ones(30)],
    "not a number": np.r_[np.nan, np.ones(59)],
    "infinite": np.r_[np.inf, np.ones(59)],
    "an overflowing sum": np.full(60, 1e308),
    "of other rows": np.ones(59),
    "of two axes": np.ones((60, 2)),
    "texts": np.array(["heavy"] * 60),
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_weights_that_are_no_weights_of_a_mean_are_refused_before_a_model_is_asked(
    kind,
):
    weight = BAD_WEIGHTS[kind]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    quality = rng.random((60, 2))
    table_router = BudgetRouter(Ridge(), costs=[1.0, 3.0]).fit(X, quality)
    router = DummyRouterClassifier(members(), costs=COSTS, cv=2).fit(X, y)
    online = OnlineBudgetRouter([1.0, 3.0]).fit(X, quality)
    selector = GreedyFeatureSelector(
        LogisticRegression(), trade_offs=[np.inf], cv=2
    ).fit(X, y)
    certified = CertifiedRouter(router, max_loss=0.6, fallback="safe", n_points=3)
    certified.fit(np.repeat(X, 5, axis=0), np.repeat(y, 5))
    for call_with in (
        partial(selector.score, X, y),
        partial(certified.score, X, y),
        lambda **weights: assignment_path(
            quality, [1.0, 3.0], weight=weights["sample_weight"]
        ),
        partial(accuracy_cost_curve, router, X, y, [2.0]),
        partial(accuracy_cost_curve, table_router, X, quality, [2.0]),
        partial(risk_coverage_curve, y, quality[:, 0]),
        partial(AccuracyCostDisplay.from_predictions, y, [y, 1 - y], [1.0, 2.0]),
        partial(AccuracyCostDisplay.from_estimator, router, X, y, budgets=[2.0]),
        partial(router.score, X, y),
        partial(router.row_quality, X, y),
        partial(table_router.score, X, quality),
        partial(online.score, X, quality),
        partial(DummyRouterClassifier(members(), costs=COSTS, cv=2).fit, X, y),
    ):
        with pytest.raises(ValueError, match="weight"):
            call_with(sample_weight=weight)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_the_scale_of_weights_does_not_matter(scale):
    rng = np.random.default_rng(0)
    quality = rng.random((60, 2))
    weight = rng.integers(0, 3, 60).astype(float)
    path = assignment_path(quality, [1.0, 3.0], weight=weight)
    scaled = assignment_path(quality, [1.0, 3.0], weight=weight * scale)
    for found, expected in zip(scaled, path):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    curve = risk_coverage_curve(quality[:, 0], quality[:, 1], sample_weight=weight)
    same = risk_coverage_curve(
        quality[:, 0], quality[:, 1], sample_weight=weight * scale
    )
    assert same.area == pytest.approx(curve.area)
