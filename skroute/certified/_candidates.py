"""The estimators that a promise is about, and what they are told about the rows of a call."""

from copy import copy

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator

from skroute.base import CostAwareMixin, note_failure
from skroute.certified._evidence import is_missing
from skroute.utils._compat import (
    check_method_params,
    num_samples,
    process_routing,
    routing_enabled,
)
from skroute.utils._named import in_order


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
                f"predict_routed, got {model!r}."
            )
        if getattr(unfrozen(model), "policy", None) == "batch":
            raise ValueError(
                f'{name!r} has policy="batch", which decides for all rows of a call together: '
                "what the evidence rows say then holds for no other number of rows. Take "
                'policy="online".'
            )
    return names, models


def is_frozen(model):
    """Whether a candidate is fitted already."""
    return isinstance(model, FrozenEstimator)


def unfrozen(model):
    """The candidate itself."""
    return model.estimator if is_frozen(model) else model


def groups_of_rows(groups, y):
    """The group of each row, checked; None where there are none."""
    if groups is None:
        return None
    if isinstance(groups, str):
        if y.ndim != 1:
            raise ValueError('groups="class" needs one label per row in y.')
        return y
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(
            f"groups must have one entry per row, shape ({len(y)},), got shape {groups.shape}."
        )
    if is_missing(groups) or len({isinstance(group, str) for group in groups}) > 1:
        raise ValueError(
            "groups must be all text or all numbers, none missing: give the rows without one a "
            "group of their own."
        )
    return groups


def is_table(y):
    """Whether y is a frame of qualities or of labels, a column each."""
    return hasattr(y, "columns") and y.shape[1] > 1


def fitted_copy(name, model, X, y, params):
    """A candidate fitted on some rows, or a copy of one that is fitted already.

    What the owner of that one changes later, also in place, was not certified.
    """
    model = clone(model)
    if not is_frozen(model):
        with note_failure(name, num_samples(X), "fit"):
            model.fit(X, np.asarray(y) if is_classifier(model) else y, **params)
    own = copy(unfrozen(model))
    for parameter in set(own._acts_at_once) & set(vars(own)):
        # Not as an attribute is set: it is no change.
        vars(own)[parameter] = copy(vars(own)[parameter])
    return own


def in_their_order(table, y, names, models):
    """Columns of a quality frame as fitted candidates count them.

    Parameters
    ----------
    table : array-like or dataframe
        As it was given.
    y : ndarray
        The same, checked.
    names : list of str
        Of the candidates.
    models : list of fitted decision estimators

    Returns
    -------
    array-like
        `y`, where `table` is no frame of more than one column.
    """
    orders = {}
    for name, model in zip(names, models):
        if getattr(model, "_named", False):
            orders[name] = list(getattr(model, "model_names_", model.choices_))
    if not is_table(table) or not orders:
        return y
    first = next(iter(orders))
    for name, order in orders.items():
        if order != orders[first]:
            raise ValueError(
                f"{name!r} has its choices in the order {order!r}, {first!r} in another: "
                "evidence is read by position. Fit them on frames with the columns in one order."
            )
    return np.asarray(in_order(table, orders[first], "y"))
