"""What `CascadeRouter.fit` is given, checked before anything is learned."""

from collections.abc import Mapping

import numpy as np

from skroute.base import check_costs
from skroute.routing._abstaining import check_abstain_name
from skroute.routing._cascade_rules import n_candidates
from skroute.routing._fit_tables import check_row_costs
from skroute.routing._values import folds_of
from skroute.utils._named import by_label

# Sets of models that are compared; each is fitted for each fold.
_MAX_SETS = 1023


def check_names(router, n_models):
    """Names of the models: the frame's, else those in `costs`, else numbered."""
    costs = by_label(router.costs)
    named = isinstance(costs, Mapping)
    names = router._frame_columns
    if names is None:
        names = list(map(str, costs if named else range(n_models)))
        names = names if named else [f"choice{name}" for name in names]
    router._named = named or router._frame_columns is not None
    if len(names) != n_models:
        raise ValueError(
            f"y has {n_models} columns but costs names {len(names)} models: {names!r}."
        )
    check_abstain_name(names, router.abstain_cost)
    return names


def check_fit_costs(router, costs, shape):
    """What each call cost, ndarray of shape (n_rows, n_models)."""
    if router.costs is not None:
        if costs is not None:
            raise ValueError(
                "costs was given both to the constructor and to fit; costs per row need "
                "CascadeRouter(costs=None)."
            )
        fixed = by_label(router.costs)
        if isinstance(fixed, Mapping):
            fixed = {str(name): cost for name, cost in fixed.items()}
        return np.tile(check_costs(fixed, router.model_names_), (shape[0], 1))
    if costs is None:
        raise ValueError(
            f"costs must say what each of {router.model_names_!r} costs, got None. Give a "
            "mapping or an array to the constructor, or one cost per row and model to fit."
        )
    return check_row_costs(costs, router._frame_columns, shape)


def check_order(order, names, max_calls):
    """Positions of the models in `order`, or None."""
    if order is None:
        n_sets = n_candidates(len(names), max_calls)
        if n_sets > _MAX_SETS:
            raise ValueError(
                f"max_calls={max_calls!r} with {len(names)} models compares {n_sets} sets "
                f"of models; at most {_MAX_SETS} are allowed. Lower max_calls, give an order, "
                "or leave models out."
            )
        return None
    given = [str(name) for name in order]
    if not given or len(set(given)) < len(given) or not set(given) <= set(names):
        raise ValueError(f"order must name some of the models {names!r}, each once, got {order!r}.")
    return [names.index(name) for name in given]


def check_folds(cv, X, quality, params):
    """Splits in which each row is tested once."""
    if len(quality) == 1:
        # One row is judged by itself: there is no other.
        return [(np.zeros(1, dtype=int), np.zeros(1, dtype=int))]
    rows = np.zeros((len(quality), 1)) if X is None else X
    folds = folds_of(cv, rows, quality, **params)
    tested = np.sort(np.concatenate([test for _, test in folds])) if folds else []
    if not np.array_equal(tested, np.arange(len(quality))):
        raise ValueError("cv must be a partition of the rows: each row is tested exactly once.")
    return folds
