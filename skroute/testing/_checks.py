"""Checks that every decision estimator must pass.

Each check takes an unfitted estimator and uses public methods alone. A check raises an
AssertionError if the estimator breaks the cost protocol.
"""

import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_raises_regex
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skroute.base import CostAwareMixin, Plan, RequestPolicy, Routed
from skroute.testing._data import make_rows, make_target
from skroute.utils._compat import StrOptions

# Parameters that a fitted estimator may read when it is called. All others act at the
# next fit.
ACT_AT_ONCE = frozenset(
    {
        "budget",
        "policy",
        "reg_lambda",
        "costs",
        "exchange_rate",
        "limits",
        "capacities",
        "max_rounds",
        "max_cost",
    }
)
# Parameters that change how fast a fit is, or what it prints, and no answer.
WITHOUT_EFFECT = frozenset({"n_jobs", "verbose"})


def check_decision_estimator(
    estimator: Any,
) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Yield the checks that a decision estimator must pass.

    They are used as scikit-learn's ``estimator_checks_generator``: each pair is one
    test. An estimator that passes them can be measured, certified and put into a
    pipeline like those of skroute.

    Parameters
    ----------
    estimator : estimator
        An unfitted decision estimator, small enough to be fitted many times on 120 rows
        with six features. Classifiers are given three labels that are texts, regressors
        positive numbers, and other estimators a table of quality with a column for each
        of their `costs`. The parameters `budget`, `policy`, `reg_lambda`, `costs`,
        `exchange_rate`, `limits`, `capacities`, `max_rounds` and `max_cost` may act on
        a fitted estimator. All others must act at the next `fit`.

    Yields
    ------
    estimator : estimator
        The estimator given.

    check : callable
        Called with the estimator. Raises an AssertionError if the check fails.

    Raises
    ------
    TypeError
        If the estimator is not derived from :class:`~skroute.base.CostAwareMixin`.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from skroute.routing import BudgetRouter
    >>> from skroute.testing import check_decision_estimator
    >>> router = BudgetRouter(DecisionTreeRegressor(max_depth=3), costs=[1, 5], cv=2)
    >>> for estimator, check in check_decision_estimator(router):
    ...     check(estimator)

    In a test file:

    >>> import pytest
    >>> pairs = list(check_decision_estimator(router))
    >>> names = [check.__name__ for _, check in pairs]
    >>> @pytest.mark.parametrize("estimator, check", pairs, ids=names)
    ... def test_decisions(estimator, check):
    ...     check(estimator)
    """
    if not isinstance(estimator, CostAwareMixin):
        raise TypeError(
            "estimator must be derived from skroute.base.CostAwareMixin, got "
            f"{type(estimator).__name__}."
        )
    for check in CHECKS:
        yield estimator, check


def fit_on_rows(estimator):
    """Return a copy of an estimator that is fitted on the rows of the checks.

    Estimators with the same parameters are fitted once. Each call returns another copy
    of the fitted estimator.
    """
    return pickle.loads(_pickle_of_fitted(pickle.dumps(clone(estimator))))


# The limit bounds the memory. 64 pickles are more than one estimator has checks.
@functools.lru_cache(maxsize=64)
def _pickle_of_fitted(pickled):
    """Fit a pickled estimator on the rows of the checks, and return its pickle."""
    estimator = pickle.loads(pickled)
    X, labels, _, _ = make_rows()
    return pickle.dumps(estimator.fit(X, make_target(estimator, labels)))


def middle_budget(estimator):
    """Return a budget halfway between the cheapest plan and the unlimited one."""
    X_new = make_rows().X_new
    smallest_budget = estimator.min_budget_
    unlimited_cost = estimator.predict_cost(X_new, budget=np.inf).mean()
    # These rows may by chance cost less than the cheapest plan of the rows of `fit`.
    return float((smallest_budget + max(unlimited_cost, smallest_budget)) / 2)


def assert_same_decisions(first, second):
    """Check that two `Routed` have equal answers, choices and costs, to the last bit.

    An AssertionError is raised if they differ.
    """
    assert_array_equal(first.y_pred, second.y_pred)
    assert_array_equal(first.route, second.route)
    assert_array_equal(first.cost, second.cost)


def check_calls_are_views_of_one_pass(estimator):
    """Check that `predict`, `route` and `predict_cost` agree with `predict_routed`."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    choices = fitted.choices_
    assert isinstance(choices, list)
    assert all(isinstance(name, str) for name in choices)
    assert len(set(choices)) == len(choices)
    routed = fitted.predict_routed(X_new)
    assert isinstance(routed, Routed)
    assert routed.route.dtype == np.int64
    assert routed.cost.dtype == np.float64
    assert routed.route.shape == routed.cost.shape == (len(X_new),)
    assert routed.route.min() >= 0
    assert routed.route.max() < len(choices)
    assert np.isfinite(routed.cost).all()
    assert (routed.cost >= 0).all()
    assert_array_equal(routed.y_pred, fitted.predict(X_new))
    assert_array_equal(routed.route, fitted.route(X_new))
    assert_array_equal(routed.cost, fitted.predict_cost(X_new))


def check_probabilities_sum_to_one(estimator):
    """Check that `predict_proba` has a column per class, and rows that sum to 1."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    if hasattr(fitted, "predict_proba"):
        proba = fitted.predict_proba(X_new)
        assert proba.shape == (len(X_new), len(fitted.classes_))
        assert_allclose(proba.sum(axis=1), 1)


def check_plan_and_answer(estimator):
    """Check that a plan has routes and costs, and gives the answers of `predict`."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    plan = fitted.plan(X_new, fitted.make_call(np.inf))
    assert isinstance(plan, Plan)
    routed = fitted.predict_routed(X_new, budget=np.inf)
    assert_array_equal(plan.route, routed.route)
    assert_array_equal(plan.cost, routed.cost)
    assert_array_equal(fitted.answer(plan), routed.y_pred)


def check_single_choices(estimator):
    """Check that each entry of `single_choices_` can be used alone for all rows."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    for name in fitted.single_choices_:
        plan = fitted.plan_single(X_new, name)
        assert plan.route.shape == plan.cost.shape == (len(X_new),)
        assert (plan.cost >= 0).all()
        assert len(fitted.answer(plan)) == len(X_new)
    # No choice has the name "moon".
    with assert_raises_regex(ValueError, "is not one of the single choices"):
        fitted.plan_single(X_new, "moon")


def check_signatures_are_true(estimator):
    """Check that each method refuses keywords that its signature does not show."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    declared = [parameter.name for parameter in fitted.call_parameters]
    for name in ("predict_routed", "route", "predict_cost", "predict"):
        method = getattr(fitted, name)
        parameters = inspect.signature(method).parameters
        kinds = [parameter.kind for parameter in parameters.values()]
        takes_any_keyword = inspect.Parameter.VAR_KEYWORD in kinds
        if not takes_any_keyword:
            assert list(parameters) == ["X", "budget", *declared]
        # No parameter has the name "moon".
        with assert_raises_regex(TypeError, "'moon'"):
            method(X_new, moon=1)
    X, labels, _, _ = make_rows()
    # The message must name the method, such as "BudgetRouter.fit".
    name_of_fit = rf"{type(estimator).__name__}\.fit\b"
    with assert_raises_regex((TypeError, ValueError), name_of_fit):
        clone(estimator).fit(X, make_target(estimator, labels), moon=1)


def check_smallest_budget(estimator):
    """Check that the smallest budget is not exceeded, and a smaller one refused."""
    fitted = fit_on_rows(estimator)
    X, labels, X_new, _ = make_rows()
    smallest_budget = fitted.min_budget_
    assert isinstance(smallest_budget, float)
    assert smallest_budget >= 0
    cost = fitted.predict_cost(X_new, budget=smallest_budget)
    # If costs differ between rows, their mean on new rows has a sampling error.
    sampling_error = cost.std() / np.sqrt(len(cost))
    # Three standard errors: a right estimator fails once in about a thousand data sets,
    # and the rows here are always the same.
    assert cost.mean() <= smallest_budget * (1 + 1e-9) + 3 * sampling_error, (
        f"min_budget_ is {smallest_budget!r}, and rows routed at this budget cost "
        f"{cost.mean()!r}"
    )
    # If the smallest budget is 0, no budget is too small.
    if smallest_budget > 0:
        for method in (fitted.predict, fitted.route, fitted.predict_cost):
            with assert_raises_regex(ValueError, "smallest feasible budget is"):
                method(X_new, budget=smallest_budget * (1 - 1e-6))
        refitted = pickle.loads(pickle.dumps(fitted)).set_params(
            budget=smallest_budget * 0.5
        )
        with assert_raises_regex(ValueError, "smallest feasible budget is"):
            refitted.fit(X, make_target(refitted, labels))
        assert not hasattr(refitted, "choices_")


def check_unlimited_budget(estimator):
    """Check that None and infinity are unlimited, set before or in a call."""
    X_new = make_rows().X_new
    unlimited = fit_on_rows(clone(estimator).set_params(budget=np.inf))
    expected = unlimited.predict_routed(X_new)
    assert_same_decisions(expected, unlimited.predict_routed(X_new, budget=np.inf))
    assert_same_decisions(
        expected, unlimited.set_params(budget=None).predict_routed(X_new)
    )


def check_larger_budgets_spend_no_less(estimator):
    """Check that the mean cost never falls with the budget."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    smallest_budget = fitted.min_budget_
    # `middle_budget` is halfway between `smallest_budget` and the mean cost of the plan
    # without a budget.
    unlimited_cost = 2 * middle_budget(fitted) - smallest_budget
    costs = []
    for budget in [*np.linspace(smallest_budget, unlimited_cost, 5), np.inf]:
        costs.append(fitted.predict_cost(X_new, budget=budget).mean())
    # Up to the rounding of means.
    assert (np.diff(costs) >= -1e-9 * max(costs)).all(), costs


def check_rows_are_decided_alone(estimator):
    """Check that the other rows of a call, and their order, change no decision.

    An estimator with ``policy="batch"`` decides the rows of a call together.
    """
    if getattr(estimator, "policy", "online") != "online":
        return
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    budget = middle_budget(fitted)
    together = fitted.predict_routed(X_new, budget=budget)
    order = np.random.default_rng(0).permutation(len(X_new))
    for rows in np.array_split(order, 5):
        routed_part = fitted.predict_routed(X_new[rows], budget=budget)
        assert_array_equal(routed_part.y_pred, together.y_pred[rows])
        assert_array_equal(routed_part.route, together.route[rows])
        assert_allclose(routed_part.cost, together.cost[rows])


def check_deciding_changes_nothing(estimator):
    """Check that calls do not change a fitted estimator."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    budget = middle_budget(fitted)
    before = fitted.predict_routed(X_new, budget=budget)
    for other in (np.inf, fitted.min_budget_, None):
        fitted.predict_routed(X_new, budget=other)
    assert_same_decisions(before, fitted.predict_routed(X_new, budget=budget))


def check_parameters_act_at_the_next_fit(estimator):
    """Check that a parameter set after `fit` acts at the next `fit` or is refused."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    expected = fitted.predict_routed(X_new)
    for name, value in fitted.get_params(deep=False).items():
        constraints = fitted._parameter_constraints.get(name, [])
        if name in ACT_AT_ONCE | WITHOUT_EFFECT:
            continue
        other = another_value(value, constraints)
        if other is None:
            continue  # no other value is known
        fitted.set_params(**{name: other})
        try:
            decided = fitted.predict_routed(X_new)
        except ValueError as error:
            # The estimator refuses the change. The message names the parameter.
            assert name in str(error)
        else:
            assert_same_decisions(expected, decided)
        fitted.set_params(**{name: value})


def another_value(value, constraints):
    """Return another value of a parameter that `fit` would take, or None.

    Parameters
    ----------
    value : object
        Value of the parameter.

    constraints : list
        Its entry in ``_parameter_constraints``.

    Returns
    -------
    object or None
        None if the value is not a text with options, a boolean or a number.
    """
    if isinstance(value, str):
        options = []
        for constraint in constraints:
            if isinstance(constraint, StrOptions):
                options.extend(constraint.options)
        others = sorted(set(options) - {value})
        return others[0] if others else None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        # Shares stay between 0 and 1, and positive numbers positive.
        return value / 2 + 0.1
    return None


def check_budget_acts_at_once(estimator):
    """Check that a budget set after `fit` gives the decisions of one set before."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    budget = middle_budget(fitted)
    refitted = fit_on_rows(clone(estimator).set_params(budget=budget))
    decided = fitted.set_params(budget=budget).predict_routed(X_new)
    assert_same_decisions(decided, refitted.predict_routed(X_new))


def check_unit_of_costs(estimator):
    """Check that decisions do not depend on the unit of costs and budget."""
    costs = estimator.get_params(deep=False).get("costs")
    if costs is None or isinstance(costs, str):
        return  # the estimator has no costs, or measures them
    X_new = make_rows().X_new
    expected = fit_on_rows(estimator).predict_routed(X_new)
    # Powers of two, so that products are exact.
    for unit in (2.0**-40, 2.0**30):
        if isinstance(costs, dict):
            change = {"costs": {name: unit * cost for name, cost in costs.items()}}
        else:
            change = {"costs": unit * np.asarray(costs)}
        if estimator.budget is not None:
            change["budget"] = unit * estimator.budget
        decided = fit_on_rows(clone(estimator).set_params(**change)).predict_routed(
            X_new
        )
        assert_array_equal(expected.y_pred, decided.y_pred)
        assert_array_equal(expected.route, decided.route)
        assert_allclose(decided.cost, unit * expected.cost, rtol=1e-12)


def check_masked_entries_are_refused(estimator):
    """Check that `fit` and `predict` refuse masked entries."""
    X, labels, X_new, _ = make_rows()
    y = make_target(estimator, labels)
    is_masked = np.arange(len(X)) % 7 == 0  # some rows
    # Whole rows are masked. The target may be a table, too.
    masked_rows = np.ma.array(X, copy=True)
    masked_rows[is_masked] = np.ma.masked
    masked_target = np.ma.array(y, copy=True)
    masked_target[is_masked] = np.ma.masked
    for bad_rows, bad_target in ((masked_rows, y), (X, masked_target)):
        model = clone(estimator)
        with assert_raises_regex(ValueError, "must have no missing values"):
            model.fit(bad_rows, bad_target)
        with assert_raises_regex(NotFittedError, ""):
            model.predict(X_new)
    fitted = fit_on_rows(estimator)
    # A single cell is masked.
    mask = np.arange(X_new.size).reshape(X_new.shape) == 5
    with assert_raises_regex(ValueError, "must have no missing values"):
        fitted.predict(np.ma.masked_array(X_new, mask))


def check_failed_fit_leaves_nothing_fitted(estimator):
    """Check that a failed `fit` leaves a fitted estimator unfitted."""
    X, labels, X_new, _ = make_rows()
    fitted = fit_on_rows(estimator)
    # Ten rows, but a target for each of the 120 rows.
    with assert_raises_regex((TypeError, ValueError), ""):
        fitted.fit(X[:10], make_target(estimator, labels))
    with assert_raises_regex(NotFittedError, ""):
        fitted.predict(X_new)


def check_requests_are_decided_as_rows(estimator):
    """Check that a policy for requests is valid, and decides as `route` does.

    An estimator without a method ``request_policy`` decides requests by `plan`. It has
    no such policy, and nothing is checked.
    """
    fitted = fit_on_rows(estimator)
    if not hasattr(fitted, "request_policy"):
        return
    X_new = make_rows().X_new
    smallest_budget = fitted.min_budget_
    n_choices = len(fitted.choices_)
    # `middle_budget` is halfway between `smallest_budget` and the mean cost of the plan
    # without a budget.
    unlimited_cost = 2 * middle_budget(fitted) - smallest_budget
    requests = fitted.request_policy(unlimited_cost)
    assert isinstance(requests, RequestPolicy)
    assert (np.diff(requests.positions) > 0).all()
    assert requests.positions.min() >= 0
    assert requests.positions.max() < n_choices
    assert len(requests.penalty) == len(requests.positions)
    prices = []
    # The last of the five budgets is above the mean cost without a budget.
    for budget in np.linspace(requests.smallest_budget, 2 * middle_budget(fitted), 5):
        prices.append(requests.price_at(budget))
    # The difference of two infinite prices is NaN. It is not a rise.
    with np.errstate(invalid="ignore"):
        assert not (np.diff(prices) > 0).any(), prices
    check_estimates_of_requests(fitted, X_new)
    check_exclusions_of_requests(fitted, requests, X_new)


def check_estimates_of_requests(fitted, X_new):
    """Check that estimates for requests lead to the choices of `route`.

    They are compared without a limit on the budget.
    """
    requests = fitted.request_policy(np.inf)
    quality = requests.estimate(X_new).quality
    assert quality.shape == (len(X_new), len(requests.positions))
    if requests.costs is None:
        return  # each request has its own costs
    decides_rows_alone = getattr(fitted, "policy", "online") == "online"
    if not decides_rows_alone:
        return
    price = requests.price_at(np.inf)
    assert np.isfinite(price)
    # Value of each choice that is offered, (n_rows, n_offered).
    values = quality - requests.penalty - price * requests.costs
    route = fitted.route(X_new, budget=np.inf)
    # The column of `values` for the route of each row. `positions` are the routes of
    # the columns, sorted.
    chosen_columns = np.searchsorted(requests.positions, route)
    chosen_values = values[np.arange(len(values)), chosen_columns]
    # The choices may differ if their values are tied.
    assert_allclose(chosen_values, values.max(axis=1), atol=1e-9)


def check_exclusions_of_requests(fitted, requests, X_new):
    """Check that an excluded choice is not offered, and an unknown one is refused."""
    try:
        fitted.request_policy(np.inf, exclude=["moon"])
    except ValueError as error:
        assert "moon" in str(error), (
            "request_policy(exclude=['moon']) must name the unknown choice 'moon', and "
            f"says {str(error)!r}"
        )
    else:
        raise AssertionError(
            "request_policy(exclude=['moon']) must raise a ValueError: no choice has "
            "this name"
        )
    names = fitted.choices_ if requests.excludable is None else requests.excludable
    for name in names:
        # A model that is called before each decision cannot be excluded.
        is_always_called = name in requests.asked_first
        is_only_choice = len(requests.positions) < 2
        if is_always_called or is_only_choice:
            continue
        others = fitted.request_policy(np.inf, exclude=[name])
        offered = [fitted.choices_[position] for position in others.positions]
        assert name not in offered
        assert len(offered) > 0
        shape = np.shape(others.estimate(X_new).quality)
        expected = (len(X_new), len(offered))
        assert shape == expected, (
            f"with exclude={[name]!r}, estimate must return a table of shape "
            f"{expected}, one column for each of {offered!r}, got {shape}"
        )


def check_pickles(estimator):
    """Check that a pickle decides like the fitted estimator."""
    fitted = fit_on_rows(estimator)
    X_new = make_rows().X_new
    loaded = pickle.loads(pickle.dumps(fitted))
    assert_same_decisions(fitted.predict_routed(X_new), loaded.predict_routed(X_new))


# All checks, in the order in which they are yielded.
CHECKS = [
    check_calls_are_views_of_one_pass,
    check_probabilities_sum_to_one,
    check_plan_and_answer,
    check_single_choices,
    check_signatures_are_true,
    check_smallest_budget,
    check_unlimited_budget,
    check_larger_budgets_spend_no_less,
    check_rows_are_decided_alone,
    check_deciding_changes_nothing,
    check_parameters_act_at_the_next_fit,
    check_budget_acts_at_once,
    check_unit_of_costs,
    check_masked_entries_are_refused,
    check_failed_fit_leaves_nothing_fitted,
    check_requests_are_decided_as_rows,
    check_pickles,
]
