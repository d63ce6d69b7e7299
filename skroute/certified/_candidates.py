"""The estimators that a promise is about, and what they are told about the rows of a call."""

from copy import copy, deepcopy

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skroute.base import CostAwareMixin
from skroute.certified._evidence import is_missing
from skroute.certified._losses import column_names, of_path
from skroute.utils._compat import check_method_params, process_routing, routing_enabled


class ContextOfCandidates:
    """``_call_context`` of a meta-estimator: whatever its candidates take about the rows."""

    def __get__(self, router, owner=None):
        # The class itself takes nothing.
        return () if router is None else tuple(context_names(router._asked()[1]))


def context_names(models):
    """Names that calls may use, in the order of the candidates; with routing, aliases as well."""
    names = []
    for model in map(unfrozen, models):
        names += model._call_context
        if routing_enabled() and hasattr(model, "_get_metadata_request"):
            aliases = model._get_metadata_request().predict.requests.values()
            names += [alias for alias in aliases if isinstance(alias, str)]
    return list(dict.fromkeys(name for name in names if name != "$UNCHANGED$"))


def route_context(router, names, models, context, caller="predict"):
    """What each candidate is told about the rows of a call.

    With metadata routing it is what the candidate requests for its `predict`; without, what it
    takes by that name.

    Returns
    -------
    dict from str to dict
    """
    if routing_enabled():
        routed = process_routing(router, caller, **context)
        return {name: dict(routed[name]["predict"]) for name in names}
    return {
        name: {key: value for key, value in context.items() if key in unfrozen(model)._call_context}
        for name, model in zip(names, models)
    }


def context_of_rows(X, context, rows):
    """What was said about all rows of X, for some of them."""
    return check_method_params(X, context, indices=rows) if context else {}


def named_candidates(estimator):
    """Names and models, each of them a decision estimator."""
    if not isinstance(estimator, list):
        names, models = ["estimator"], [estimator]
    else:
        try:
            names, models = (list(part) for part in zip(*estimator))
        except (TypeError, ValueError):
            raise ValueError(
                "estimator must be a decision estimator or a non-empty list of (name, "
                f"decision estimator) tuples, got {estimator!r}."
            ) from None
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"The names of estimator must be strings and differ, got {names!r}.")
    for name, model in zip(names, models):
        if not isinstance(unfrozen(model), CostAwareMixin):
            raise ValueError(
                f"{name!r} must be a decision estimator of skroute, which has a budget and "
                f"predict_routed, got {type(unfrozen(model)).__name__}.{_way_out(unfrozen(model))}"
            )
        check_online(name, unfrozen(model))
    return names, models


def _way_out(model):
    """What to do with what is no decision estimator but may have one inside."""
    if isinstance(model, Pipeline):
        return (
            " The steps before the last one belong into its members or its quality_estimator, "
            "each a pipeline of its own. To certify a fitted pipeline as it is: "
            "CertifiedRouter(FrozenEstimator(pipeline[-1])).fit(pipeline[:-1].transform(X), y)."
        )
    if is_search(model):
        return " A search must be one for a decision estimator, and with refit."
    return ""


def check_online(name, model):
    """Refuse decisions for all rows of a call together; a search may have chosen them."""
    if getattr(model, "policy", None) == "batch":
        raise ValueError(
            f'{name!r} has policy="batch", which decides for all rows of a call together: '
            "what the evidence rows say then holds for no other number of rows. Take "
            'policy="online".'
        )


def is_frozen(model):
    """Whether a candidate is fitted already."""
    return isinstance(model, FrozenEstimator)


def is_search(model):
    """Whether it is a search of scikit-learn, or of its kind."""
    return {"estimator", "refit", "scoring"} <= getattr(model, "__dict__", {}).keys()


def unfrozen(model):
    """The candidate itself: of a search what it has found or, before `fit`, searches for."""
    if is_frozen(model):
        model = model.estimator
    if not is_search(model):
        return model
    if not hasattr(model, "cv_results_"):
        return model.estimator if model.refit is not False else model
    return getattr(model, "best_estimator_", model)


def groups_of_rows(groups, y):
    """The group of each row, checked; None where there are none."""
    if groups is None:
        return None
    if isinstance(groups, str):
        if y.ndim != 1:
            raise ValueError('groups="class" needs one label per row in y.')
        if is_missing(y):
            raise ValueError(
                'groups="class" needs a label in every row: a row without one is of no class.'
            )
        return y
    missing = np.ma.is_masked(groups)
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(
            f"groups must have one entry per row, shape ({len(y)},), got shape {groups.shape}."
        )
    if missing or is_missing(groups) or len({isinstance(group, str) for group in groups}) > 1:
        raise ValueError(
            "groups must be all text or all numbers, none missing: give the rows without one a "
            "group of their own."
        )
    return groups


def detached(model):
    """A fitted candidate that its owner no longer changes: not its parameters, nor what it learns.

    The copy of a router that goes on learning has books of its own. Members and estimators are
    shared, since they may be large, or stand for services.
    """
    own = copy(unfrozen(model))
    for name in own._get_param_names():
        value = getattr(own, name)
        if hasattr(value, "to_dict") or _is_plain(value):
            # Not as an attribute is set: it is no change.
            vars(own)[name] = deepcopy(value)
    return own


def _is_plain(value):
    """Whether it is a container of numbers and names, and not of estimators."""
    if not isinstance(value, (dict, list, set, np.ndarray)):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype != object
    parts = value.values() if isinstance(value, dict) else value
    return all(isinstance(part, (str, float, int, np.generic, list)) for part in parts)


# Costs ------------------------------------------------------------------------------------


def takes_bills(model):
    """Whether each choice is one call, so that what a log says it cost is what it costs."""
    return getattr(unfrozen(model), "_takes_bills", False)


def is_told(model):
    """Whether a call is told the costs of its rows; else they are known only after it."""
    model = unfrozen(model)
    if hasattr(model, "_is_told"):
        return model._is_told()
    return "costs" in model._call_context


def is_billed(model):
    """Whether the budget of a fitted router is one of costs that its calls are not told."""
    return hasattr(model, "_has_bills") and model._has_bills()


def bills_of(costs, n_rows, path):
    """What each choice has cost on each row, in the order of the path's ``choices_``."""
    if np.ma.is_masked(costs):
        raise ValueError("costs must be finite and not negative: some are masked.")
    values = np.asarray(costs)
    if values.dtype.kind not in "iuf":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("costs must be numbers, one column for each choice.") from None
    found = of_path(values.astype(np.float64), column_names(costs), path, "costs")
    shape = n_rows, len(path.choices_)
    if found.shape != shape:
        raise ValueError(
            f"costs must have one cost per row and choice, shape {shape}, got {values.shape}."
        )
    if not np.isfinite(found).all() or found.min() < 0:
        raise ValueError("costs must be finite and not negative: they are what calls have cost.")
    return found


def limits_if_excluded(models, exclude):
    """Names of the limits of a call that excludes choices; refuses it where a candidate cannot."""
    deaf = [model for model in models if exclude and "exclude" not in model._call_context]
    if deaf:
        raise ValueError(
            f"exclude: {type(deaf[0]).__name__}, one of the candidates, excludes no choices."
        )
    return {"exclude"} if exclude else set()
