"""Public signatures are true: a keyword that is shown is taken, and any other is refused."""

import inspect

import numpy as np
import pytest

from skroute.base import CostAwareMixin
from skroute.certified import CertifiedRouter
from skroute.routing import BudgetRouter
from skroute.testing._checks import fit_on_rows
from skroute.testing._data import make_rows, make_target
from tests.estimators import ESTIMATORS, ORACLE
from tests.test_package import OBJECTS

VIEWS = ["predict_routed", "route", "predict_cost", "predict", "predict_proba", "score"]
DECISIONS = [
    estimator
    for estimator in [*ESTIMATORS, ORACLE]
    if isinstance(estimator, CostAwareMixin)
]
EACH = pytest.mark.parametrize("estimator", DECISIONS, ids=lambda e: type(e).__name__)


def all_keywords():
    """Return every keyword that a call of some decision estimator takes."""
    names = set()
    for estimator in DECISIONS:
        names |= {parameter.name for parameter in estimator.call_parameters}
    return sorted(names)


def keyword_values(estimator, names):
    """Return a value for each keyword of a fitted estimator that changes or allows something."""
    _, _, X_new, labels = make_rows()
    n_rows = len(X_new)
    n_choices = len(estimator.choices_)
    values = {
        "allowed": np.ones((n_rows, n_choices), dtype=bool),
        "anytime": True,
        "costs": np.ones((n_rows, n_choices)),
        "exclude": [],
        "limits": {},
        "capacities": {},
        "known": np.zeros(X_new.shape, dtype=bool),
        "max_cost": 100.0,
        "max_rounds": 1,
        "quoted_costs": np.ones((n_rows, n_choices)),
        "request_id": np.arange(n_rows),
        "signals": np.zeros((n_rows, n_choices)),
        "size": np.ones(n_rows),
        "y_true": make_target(estimator, labels),
    }
    return {name: values[name] for name in names}


def views_of(estimator):
    """Yield the name of each public view, and the view."""
    for name in VIEWS:
        if hasattr(estimator, name):
            yield name, getattr(estimator, name)


def positional_arguments(name, estimator):
    """Return what a view takes before its keywords."""
    _, _, X_new, labels = make_rows()
    if name == "score":
        return X_new, make_target(estimator, labels)
    return (X_new,)


def required_keywords(estimator):
    """Return keywords without which a call has no meaning: the true answers of an oracle."""
    if getattr(estimator, "strategy", None) == "oracle":
        return keyword_values(estimator, ["y_true"])
    return {}


def shown_keywords(view):
    """Return the names of the keywords in a signature beyond X, y, sample_weight and budget."""
    parameters = inspect.signature(view).parameters
    return [
        name for name in parameters if name not in ("X", "y", "sample_weight", "budget")
    ]


def takes_any(view):
    """Return True if a signature ends in a keyword that takes all others."""
    kinds = [
        parameter.kind for parameter in inspect.signature(view).parameters.values()
    ]
    return inspect.Parameter.VAR_KEYWORD in kinds


def reason_to_refuse_value(estimator, keyword):
    """Return a part of the message by which these small instances refuse a value, or None."""
    if keyword == "costs" and isinstance(estimator, BudgetRouter):
        return "decides by the fixed costs of its constructor"
    if keyword == "quoted_costs":
        return "decides by the fixed costs of its constructor"
    if keyword == "signals":
        return "must have the 0 columns that fit saw"
    if keyword == "anytime":
        return 'needs costs="time" in fit'
    return None


def declared_keywords(estimator, view_name):
    """Return the keywords that a view takes by the declaration of its class."""
    names = [parameter.name for parameter in estimator.call_parameters]
    if view_name == "score" and "y_true" in names:
        # The score of a dummy gives y itself to the oracle.
        names.remove("y_true")
    return names


@EACH
def test_signatures_show_the_declared_keywords(estimator):
    fitted = fit_on_rows(estimator)
    for name, view in views_of(fitted):
        assert "budget" in inspect.signature(view).parameters, name
        if isinstance(estimator, CertifiedRouter):
            # Its keywords are those of the estimator inside.
            assert takes_any(view), name
        else:
            assert shown_keywords(view) == declared_keywords(fitted, name), name


# A certificate says nothing of calls that exclude choices.
@pytest.mark.filterwarnings("ignore:.*the evidence says nothing")
@EACH
def test_shown_keywords_are_taken(estimator):
    fitted = fit_on_rows(estimator)
    for name, view in views_of(fitted):
        arguments = positional_arguments(name, fitted)
        declared = declared_keywords(fitted, name)
        required = {} if name == "score" else required_keywords(fitted)
        for keyword, value in keyword_values(fitted, declared).items():
            reason = reason_to_refuse_value(fitted, keyword)
            keywords = {**required, keyword: value}
            if reason is None:
                view(*arguments, **keywords)
            else:
                with pytest.raises(ValueError, match=reason):
                    view(*arguments, **keywords)


@EACH
def test_other_keywords_are_refused(estimator):
    fitted = fit_on_rows(estimator)
    for name, view in views_of(fitted):
        arguments = positional_arguments(name, fitted)
        others = sorted(set(all_keywords()) - set(declared_keywords(fitted, name)))
        for keyword, value in keyword_values(fitted, others).items():
            with pytest.raises(TypeError, match=keyword):
                view(*arguments, **{keyword: value})


@EACH
def test_docstrings_describe_the_shown_keywords(estimator):
    for name, view in views_of(fit_on_rows(estimator)):
        section = inspect.getdoc(view).partition("Parameters\n----------\n")[2]
        for keyword in shown_keywords(view):
            assert keyword in section, (name, keyword)


def test_every_public_decision_estimator_is_compared():
    compared = {type(estimator) for estimator in DECISIONS}
    missing = []
    for name, item in OBJECTS.items():
        is_class = inspect.isclass(item) and issubclass(item, CostAwareMixin)
        if is_class and item is not CostAwareMixin and item not in compared:
            missing.append(name)
    assert missing == []


def test_fit_shows_what_it_takes():
    """A `fit` that ends in ``**params`` passes them on by metadata routing."""
    for estimator in DECISIONS:
        parameters = inspect.signature(estimator.fit).parameters
        X, labels, _, _ = make_rows()
        assert list(parameters)[:2] == ["X", "y"], type(estimator).__name__
        if not takes_any(estimator.fit):
            with pytest.raises(TypeError, match="moon"):
                estimator.fit(X, make_target(estimator, labels), moon=1)
