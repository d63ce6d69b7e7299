"""Checks that every decision estimator must pass, whatever it decides.

Each takes an unfitted instance from `tests/estimators.py`. What they draw on is the cost
protocol alone: a new estimator is checked by standing in the list.
"""

import functools
import inspect
import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_regressor
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import has_fit_parameter

from skroute.base import Plan, Routed
from skroute.certified import CertifiedRouter
from skroute.features import LazyFeatures
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    FrugalMLClassifier,
    OnlineBudgetRouter,
    SequentialRouterClassifier,
)
from skroute.utils._compat import StrOptions

LABELS = np.array(["ant", "bee", "hornet"])


@functools.cache
def rows(n=240, seed=0):
    """Training and test rows of three classes, continuous so that no two are equal."""
    X, y = make_classification(
        n, n_features=6, n_informative=4, n_classes=3, random_state=seed, class_sep=0.7
    )
    y = LABELS[y]
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


def target(estimator, y):
    """What the estimator learns from: labels, numbers, or the logged quality of each choice."""
    if is_regressor(estimator):
        return np.searchsorted(LABELS, y) + 0.5
    if not isinstance(estimator, (BudgetRouter, CascadeRouter, OnlineBudgetRouter)):
        return y
    n_choices = 1 if estimator.costs is None else len(estimator.costs)
    rng = np.random.default_rng(0)
    return (y[:, None] == LABELS[:n_choices]) * rng.uniform(0.5, 1, (len(y), n_choices))


@functools.cache
def _fitted(text, pickled):
    estimator = pickle.loads(pickled)
    X, y, _, _ = rows()
    return pickle.dumps(estimator.fit(X, target(estimator, y)))


def fitted(estimator):
    """A fitted copy, of one fit for all checks."""
    return pickle.loads(_fitted(repr(estimator), pickle.dumps(clone(estimator))))


def middle(estimator):
    """A budget halfway between the cheapest plan and unlimited."""
    most = estimator.predict_cost(rows()[2], budget=np.inf).mean()
    return float((estimator.min_budget_ + max(most, estimator.min_budget_)) / 2)


def same(ours, theirs):
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)


def check_decision_views(estimator):
    """Everything that a user calls is a view of one pass."""
    estimator, X = fitted(estimator), rows()[2]
    choices = estimator.choices_
    assert type(choices) is list and all(type(name) is str for name in choices)
    assert len(set(choices)) == len(choices)
    routed = estimator.predict_routed(X)
    assert isinstance(routed, Routed)
    assert routed.route.dtype == np.int64 and routed.cost.dtype == np.float64
    assert routed.route.shape == routed.cost.shape == (len(X),)
    assert routed.route.min() >= 0 and routed.route.max() < len(choices)
    assert np.isfinite(routed.cost).all() and (routed.cost >= 0).all()
    np.testing.assert_array_equal(routed.y_pred, estimator.predict(X))
    np.testing.assert_array_equal(routed.route, estimator.route(X))
    np.testing.assert_array_equal(routed.cost, estimator.predict_cost(X))
    if hasattr(estimator, "predict_proba"):
        proba = estimator.predict_proba(X)
        assert proba.shape == (len(X), len(estimator.classes_))
        np.testing.assert_allclose(proba.sum(axis=1), 1)


def check_decision_smallest_budget(estimator):
    """At the smallest feasible budget the mean cost is no more than it; below, an error."""
    estimator, X = fitted(estimator), rows()[2]
    least = estimator.min_budget_
    assert isinstance(least, float) and least >= 0
    cost = estimator.predict_cost(X, budget=least)
    # Where the cheapest plan itself costs more for some rows, its mean is one of a sample.
    assert cost.mean() <= least * (1 + 1e-9) + 3 * cost.std() / np.sqrt(len(cost))
    if least > 0:
        for call in (estimator.predict, estimator.route, estimator.predict_cost):
            with pytest.raises(ValueError, match="smallest feasible budget is"):
                call(X, budget=least * (1 - 1e-6))
        refitted = pickle.loads(pickle.dumps(estimator)).set_params(budget=least * 0.5)
        with pytest.raises(ValueError, match="smallest feasible budget is"):
            refitted.fit(rows()[0], target(refitted, rows()[1]))
        assert not hasattr(refitted, "choices_")


def check_decision_unlimited_budget(estimator):
    """None and infinity mean unlimited, in the constructor and per call."""
    X, y, X_test, _ = rows()
    unlimited = clone(estimator).set_params(budget=np.inf)
    unlimited.fit(X, target(estimator, y))
    expected = unlimited.predict_routed(X_test)
    same(expected, unlimited.predict_routed(X_test, budget=np.inf))
    same(expected, unlimited.set_params(budget=None).predict_routed(X_test))


def check_decision_larger_budgets_spend_no_less(estimator):
    estimator, X = fitted(estimator), rows()[2]
    low, high = estimator.min_budget_, 2 * middle(estimator) - estimator.min_budget_
    costs = [estimator.predict_cost(X, budget=b).mean() for b in np.linspace(low, high, 5)]
    costs.append(estimator.predict_cost(X, budget=np.inf).mean())
    assert (np.diff(costs) >= -1e-9 * max(costs)).all(), costs


def check_decision_rows_are_decided_alone(estimator):
    """Online, neither the other rows of a call nor their order change a decision."""
    if getattr(estimator, "policy", "online") != "online":
        return
    estimator, X = fitted(estimator), rows()[2]
    budget = middle(estimator)
    whole = estimator.predict_routed(X, budget=budget)
    order = np.random.default_rng(0).permutation(len(X))
    for part in np.array_split(order, 5):
        some = estimator.predict_routed(X[part], budget=budget)
        same((some.y_pred, some.route), (whole.y_pred[part], whole.route[part]))
        np.testing.assert_allclose(some.cost, whole.cost[part])


def check_decision_deciding_changes_nothing(estimator):
    estimator, X = fitted(estimator), rows()[2]
    before = estimator.predict_routed(X)
    for budget in (np.inf, estimator.min_budget_, middle(estimator)):
        estimator.predict_routed(X, budget=budget)
    same(before, estimator.predict_routed(X))


def check_decision_unknown_arguments(estimator):
    estimator, X = fitted(estimator), rows()[2]
    for call in (estimator.predict, estimator.predict_routed, estimator.route):
        with pytest.raises(TypeError, match="'moon'"):
            call(X, moon=1)
    X, y = rows()[:2]
    # By the name that a user knows, not that of a method behind it.
    with pytest.raises((TypeError, ValueError), match=rf"{type(estimator).__name__}\.fit\b"):
        clone(estimator).fit(X, target(estimator, y), moon=1)


def another_value(value, constraints):
    """A value of the same kind that `fit` would take; None where there is no simple one."""
    options = [option for c in constraints if isinstance(c, StrOptions) for option in c.options]
    if isinstance(value, str):
        return next((option for option in sorted(options) if option != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value / 2 + 0.1 if isinstance(value, float) else None


# Parameters that a fitted estimator reads when it is called; all others act at the next fit.
AT_ONCE = {"budget", "policy", "reg_lambda", "costs", "exchange_rate", "max_rounds", "max_cost"}
# Their rules were chosen for the costs of fit.
RULES_OF_FIT = (CascadeRouter, FrugalMLClassifier, SequentialRouterClassifier)


def check_decision_changed_parameters(estimator):
    """After fit a parameter acts at once or, as in scikit-learn, at the next fit: each of them."""
    model, X = fitted(estimator), rows()[2]
    expected = model.predict_routed(X)
    for name, value in model.get_params(deep=False).items():
        other = another_value(value, model._parameter_constraints.get(name, []))
        if name in AT_ONCE | {"n_jobs", "verbose"} or other is None:
            continue
        model.set_params(**{name: other})
        same(expected, model.predict_routed(X))
        model.set_params(**{name: value})


def check_decision_parameters_that_act_at_once(estimator):
    """What acts at once decides as if it had been there in `fit`."""
    X, y, X_test, _ = rows()
    others = {"policy": "batch", "reg_lambda": 0.7, "exchange_rate": 0.05, "max_rounds": 1}
    others["max_cost"] = 2.0
    at_once = AT_ONCE & set(estimator.get_params(deep=False))
    if isinstance(estimator, RULES_OF_FIT) or hasattr(fitted(estimator), "mixture_"):
        at_once -= {"costs"}
    if isinstance(estimator, CertifiedRouter):
        # What is promised, which is decided by evidence.
        at_once -= {"max_cost"}
    for name in sorted(at_once):
        model = fitted(estimator)
        if name == "budget":
            change = {"budget": middle(model)}
        elif name == "costs":
            names = [n for n, _ in model.estimators] if hasattr(model, "estimators") else None
            old = model.costs
            if old is None or isinstance(old, str):
                continue
            change = {"costs": {n: 2 * c for n, c in old.items()} if names else 2 * np.array(old)}
            change["budget"] = 2 * middle(model)
        else:
            change = {name: others[name]}
        refitted = clone(estimator).set_params(**change).fit(X, target(estimator, y))
        same(model.set_params(**change).predict_routed(X_test), refitted.predict_routed(X_test))


def check_decision_flat_rows(estimator):
    """A row of a frame, or a list of texts, is no table of rows: the error says so."""
    pd = pytest.importorskip("pandas")
    X, y, X_test, _ = rows()
    names = list("abcdef")
    model = clone(estimator).fit(pd.DataFrame(X, columns=names), target(estimator, y))
    row = pd.DataFrame(X_test, columns=names).astype(object).iloc[0]
    for flat in (row, ["some text"]):
        with pytest.raises(ValueError, match="rows of 6 columns|2D array|2-dim|convert"):
            model.predict(flat)


def check_decision_unit_of_costs(estimator):
    """Dollars, cents or billions: in another unit of costs and budget the same is decided."""
    costs = estimator.get_params(deep=False).get("costs")
    if costs is None or isinstance(costs, str):
        return
    X, y, X_test, _ = rows()
    expected = fitted(estimator).predict_routed(X_test)
    for unit in (2.0**-40, 2.0**30):
        named = isinstance(costs, dict)
        change = {
            "costs": {n: c * unit for n, c in costs.items()} if named else unit * np.array(costs)
        }
        if estimator.budget is not None:
            change["budget"] = unit * estimator.budget
        scaled = clone(estimator).set_params(**change).fit(X, target(estimator, y))
        found = scaled.predict_routed(X_test)
        same((expected.y_pred, expected.route), (found.y_pred, found.route))
        np.testing.assert_allclose(found.cost, unit * expected.cost, rtol=1e-12)


def check_decision_equal_weights(estimator):
    """Rows that weigh one each are rows without weights."""
    X, y, X_test, _ = rows()
    if "sample_weight" not in inspect.signature(estimator.fit).parameters:
        return
    expected = fitted(estimator).predict_routed(X_test)
    for weight in (1, 1.0):
        model = clone(estimator)
        model.fit(X, target(estimator, y), sample_weight=np.full(len(X), weight))
        same(expected, model.predict_routed(X_test))


def check_decision_weights_of_another_length(estimator):
    """Weights that are not one per row are refused, also as many as rows are learned from inside.

    A quarter is held out by early exits and half by two folds: these weights fitted what was left.
    """
    X, y, _, _ = rows()
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = clone(estimator)
        for inner in [estimator, *estimator.get_params().values()]:
            if has_fit_parameter(inner, "sample_weight") and hasattr(inner, "set_fit_request"):
                inner.set_fit_request(sample_weight=True)
        refused = (TypeError, ValueError)
        try:
            clone(estimator).fit(X, target(estimator, y), sample_weight=np.ones(len(X)))
        except refused:
            return
        for n in (len(X) // 2, *range(80, 100), len(X) + 1):
            with pytest.raises(refused, match="sample_weight"):
                clone(estimator).fit(X, target(estimator, y), sample_weight=np.ones(n))


def check_decision_masked_entries(estimator):
    """What is under a mask is not read as if it were known; a mask of nothing hides nothing."""
    X, y, X_test, _ = rows()
    given = target(estimator, y)
    some = np.arange(len(X)) % 7 == 0
    for masked in (
        (np.ma.masked_array(X, np.repeat(some[:, None], X.shape[1], axis=1)), given),
        (X, np.ma.masked_where(np.broadcast_to(some, given.T.shape).T, given)),
    ):
        model = clone(estimator)
        with pytest.raises(ValueError, match="must have no missing values"):
            model.fit(*masked)
        with pytest.raises(NotFittedError):
            model.predict(X_test)
    model = fitted(estimator)
    with pytest.raises(ValueError, match="must have no missing values"):
        model.predict(np.ma.masked_array(X_test, np.arange(X_test.size).reshape(X_test.shape) == 5))
    plain = model.predict(X_test)
    found = clone(estimator).fit(np.ma.masked_array(X), np.ma.masked_array(given)).predict(X_test)
    np.testing.assert_array_equal(found, plain)


def check_decision_sources_of_features(estimator):
    """A source of features is bought from or refused in words; `fit` reads whole rows."""
    X, y, X_test, _ = rows()
    with pytest.raises(TypeError, match="fit reads whole rows and buys no columns"):
        clone(estimator).fit(LazyFeatures(dict(enumerate(X.T))), target(estimator, y))
    model = fitted(estimator)
    try:
        found = model.predict(LazyFeatures(dict(enumerate(X_test.T))))
    except TypeError as error:
        assert "reads whole rows and buys no columns, got LazyFeatures" in str(error)
    else:
        np.testing.assert_array_equal(found, model.predict(X_test))


class Recorder:
    """A callback that remembers the tasks that began and ended."""

    def __init__(self):
        self.begun, self.ended = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **_):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, **_):
        self.ended.append(context.task_name)


def check_decision_callbacks(estimator):
    """Progress is shown: the fit begins, takes steps and ends (scikit-learn 1.9 and newer)."""
    pytest.importorskip("sklearn.callback")
    X, y, _, _ = rows()
    recorder = Recorder()
    clone(estimator).set_callbacks(recorder).fit(X, target(estimator, y))
    assert recorder.begun[0] == recorder.ended[-1] == "fit"
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert len(recorder.begun) > 1, "a fit of one step shows no progress"


def check_decision_skops_round_trip(estimator):
    sio = pytest.importorskip("skops.io")
    model, X = fitted(estimator), rows()[2]
    dumped = sio.dumps(model)
    trusted = sio.get_untrusted_types(data=dumped)
    allowed = ("skroute.", "sklearn.", "numpy.", "lightgbm.", "collections.")
    assert all(name.startswith(allowed) for name in trusted), trusted
    same(model.predict_routed(X), sio.loads(dumped, trusted=trusted).predict_routed(X))


def check_decision_plan_is_a_plan(estimator):
    """Planning calls for nothing that answering has to undo."""
    model, X = fitted(estimator), rows()[2]
    plan = model.plan(X, model.make_call(np.inf))
    assert isinstance(plan, Plan)
    _, *expected = model.predict_routed(X, budget=np.inf)
    same(plan[:2], expected)


DECISION_CHECKS = [
    item for name, item in list(globals().items()) if name.startswith("check_decision_")
]
