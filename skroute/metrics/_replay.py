"""Replay: what a router would have done on a log, request after request."""

import copy
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_rows
from skroute.metrics._tradeoff import costs_by_name
from skroute.utils._compat import (
    Integral,
    Interval,
    _safe_indexing,
    num_samples,
    validate_params,
)
from skroute.utils._frames import column_keys
from skroute.utils._named import check_rows_match, in_order
from skroute.utils._validation import check_numbers


class Replay(NamedTuple):
    """See :func:`replay`."""

    route: np.ndarray
    quality: np.ndarray
    cost: np.ndarray
    choices: list


@validate_params(
    {
        "choices": ["array-like", None],
        "delay": [Interval(Integral, 0, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def replay(
    router: Any,
    X: Any,
    quality: Any,
    costs: Any,
    *,
    choices: Any = None,
    delay: int = 0,
) -> Replay:
    """Run a router over a logged table in the order of its rows.

    The router sees, of each request, its features, and of the table one cell: that of the
    choice it made. A copy of it is run; the router given stays as it is. What happens if a model
    gets worse, or more expensive, is a change of some rows of the table.

    Parameters
    ----------
    router : fitted router, BudgetStream or OnlineBudgetRouter
        A fitted router decides each request at its budget; a stream is charged the true
        costs; an online router learns from what it sees.

    X : {array-like, dataframe} of shape (n_samples, n_features)
        Features of the requests, the oldest first.

    quality : {array-like, dataframe} of shape (n_samples, n_choices)
        Quality of each choice on each request; NaN where it is not known: an online router
        then learns nothing of it.

    costs : array-like of shape (n_choices,) or (n_samples, n_choices), or mapping
        What calls cost.

    choices : sequence of str, default=None
        Names of the columns. None takes those of the frame, else the router's ``choices_``.
        There may be more than the router knows.

    delay : int, default=0
        After how many further requests an online router sees an outcome.

    Returns
    -------
    Replay
        Named tuple: ``route``, the choice made for each request (-1 where a stream had no money
        left); ``quality`` and ``cost``, what came of it (NaN where the log does not know); and
        ``choices``, the names of the columns.

    Raises
    ------
    ValueError
        For tables that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.metrics import replay
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}).fit(X, Q)
    >>> Q[40:60, 1] = 0  # the large model fails, and nobody says so
    >>> happened = replay(router, X, Q, router.costs)
    >>> happened.quality[40:60].mean() < happened.quality[:40].mean()
    np.True_
    """
    inner = getattr(router, "router", router)
    if not (hasattr(inner, "route") or hasattr(inner, "decide")):
        raise TypeError(
            "router must be a fitted router, a stream or an online router, got "
            f"{type(router).__name__}."
        )
    check_is_fitted(inner)
    if choices is None:
        choices = column_keys(quality) or inner.choices_
    check_rows_match(X=X, quality=quality, costs=costs)
    names = [str(name) for name in choices]
    if missing := [name for name in inner.choices_ if name not in names]:
        raise ValueError(
            f"quality has no column for {missing!r} of the router, only {names!r}."
        )
    shape = (num_samples(X), len(names))
    quality = check_numbers(
        in_order(quality, names), "quality", shape=shape, allow_nan=True
    )
    costs = check_numbers(costs_by_name(costs, names), "costs", low=0.0)
    if costs.shape not in (shape, shape[1:]):
        raise ValueError(
            f"costs must have one column for each of {names!r}, got shape {costs.shape}."
        )
    costs, router = np.broadcast_to(costs, shape), copy.deepcopy(router)
    if hasattr(router, "commit"):
        route = _one_by_one(
            router, check_rows(inner, X, reset=False), quality, costs, names, delay
        )
    else:
        route = np.array([names.index(name) for name in router.choices_])[
            router.route(X)
        ]
    rows = np.arange(len(quality))
    gained = np.where(route >= 0, quality[rows, route], np.nan)
    return Replay(route, gained, np.where(route >= 0, costs[rows, route], 0.0), names)


def _one_by_one(router, X, quality, costs, names, delay):
    """Choices of a router that is told what came of them; -1 where a stream has no money left."""
    # A stream learns nothing of quality, and is charged at once.
    learns = hasattr(router, "decide")
    decide, delay = (router.decide, delay) if learns else (router.route, 0)
    route, waiting = np.full(len(quality), -1, dtype=np.int64), deque()
    for i in range(len(route)):
        try:
            made = decide(_safe_indexing(X, [i]))
        except RuntimeError as error:
            # Its class is of the ledgers, of which measuring knows nothing.
            if type(error).__name__ != "BudgetExhaustedError":
                raise
            continue
        k = route[i] = names.index(made.name)
        outcome = {"cost": costs[i, k]}
        if learns:
            outcome["quality"] = quality[i, k]
        waiting.append((made, outcome))
        while len(waiting) > delay:
            decision, outcome = waiting.popleft()
            router.commit(decision, **outcome)
    return route
