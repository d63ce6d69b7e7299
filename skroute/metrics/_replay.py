"""Replay of a log: the decisions of a router, request after request."""

import copy
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_rows
from skroute.ledgers import BudgetExhaustedError, WindowFullError
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
from skroute.utils._tables import Column, Table, share_column
from skroute.utils._validation import check_numbers

# Route of a request without an answer: a `BudgetStream` had no money left, or no room
# in its time windows.
_NO_CHOICE = -1


class Replay(NamedTuple):
    """Choice, quality and cost of each request in the replay of a log.

    This is the result of :func:`replay`, which describes the fields.
    """

    route: np.ndarray
    quality: np.ndarray
    cost: np.ndarray
    choices: list

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the outcomes as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each choice, with the columns ``choice``, ``rows`` (number of
            requests), ``share`` of the requests, mean ``quality`` and mean ``cost``.
            The last row has all requests.
        """
        return self._table().to_frame()

    def _table(self):
        """Return means by choice, and over all requests, as a `Table`."""
        # A mask of the requests in each line of the table, (n_requests,).
        masks = [self.route == column for column in range(len(self.choices))]
        names = [str(name) for name in self.choices]
        if (self.route == _NO_CHOICE).any():
            masks.append(self.route == _NO_CHOICE)
            names.append("no money left")
        masks.append(np.ones(len(self.route), dtype=bool))
        names.append("all requests")
        counts = [int(mask.sum()) for mask in masks]
        # The divisor 1 avoids a division by 0: without requests, all shares are 0.
        shares = np.divide(counts, max(len(self.route), 1))
        return Table(
            f"Replay of {len(self.route):,} requests",
            [
                Column("choice", names),
                Column("rows", counts),
                share_column("share", shares),
                Column(
                    "quality", _means(self.quality, masks), unit="mean", missing="none"
                ),
                Column("cost", _means(self.cost, masks), unit="mean", missing="none"),
            ],
        )


def _means(values, masks):
    """Return the mean of the known values (not NaN) of the rows in each mask.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
    masks : list of ndarray of shape (n_rows,), dtype=bool

    Returns
    -------
    list of float
        NaN for a mask without values.
    """
    is_known = ~np.isnan(values)
    means = []
    for mask in masks:
        known_values = values[mask & is_known]
        means.append(float(known_values.mean()) if len(known_values) else np.nan)
    return means


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

    For each request the router sees the features, and one cell of the table, in the
    column of its choice. A copy of the router is run. To see how a router reacts if a
    model gets worse, or more expensive, change some rows of the table.

    Parameters
    ----------
    router : fitted router, BudgetStream or OnlineBudgetRouter
        A fitted router decides each request at its budget. A stream is charged the true
        costs. An online router learns from the outcomes that it sees.

    X : {array-like, dataframe} of shape (n_samples, n_features)
        Features of the requests, the oldest first.

    quality : {array-like, dataframe} of shape (n_samples, n_choices)
        Quality of each choice on each request. An online router learns nothing from an
        unknown quality, which is NaN.

    costs : array-like of shape (n_choices,) or (n_samples, n_choices), or mapping
        Cost of each choice, for all requests or for each one.

    choices : sequence of str, default=None
        Names of the columns. None takes those of the frame, or else the router's
        ``choices_``. There may be more columns than the router has choices.

    delay : int, default=0
        Number of further requests after which an online router sees an outcome.

    Returns
    -------
    Replay
        Named tuple: ``route``, the column of the choice made for each request, -1 if a
        stream had no money left, or no room in its windows; ``quality`` of the answer,
        NaN if it is unknown or there is no answer; ``cost`` of the answer; and
        ``choices``, the names of the columns.

    Raises
    ------
    ValueError
        If the columns or rows of the tables do not fit to one another or to the router.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.metrics import replay
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5})
    >>> router = router.fit(X, Q)
    >>> Q[40:60, 1] = 0  # The large model fails for some time.
    >>> replayed = replay(router, X, Q, router.costs)
    >>> replayed.quality[40:60].mean() < replayed.quality[:40].mean()
    np.True_
    """
    fitted = _fitted_router(router)
    if choices is None:
        # `column_keys` returns None if the table has no names.
        choices = column_keys(quality) or fitted.choices_
    check_rows_match(X=X, quality=quality, costs=costs)
    names = [str(name) for name in choices]
    missing = [name for name in fitted.choices_ if name not in names]
    if missing:
        raise ValueError(
            f"quality has no column for {missing!r} of the router, only {names!r}."
        )
    shape = (num_samples(X), len(names))
    quality = check_numbers(
        in_order(quality, names), "quality", shape=shape, allow_nan=True
    )
    row_costs = _read_costs(costs, names, shape)

    router = copy.deepcopy(router)
    if hasattr(router, "commit"):
        # A `BudgetStream` or an `OnlineBudgetRouter` has a state, which changes with
        # each request.
        rows = check_rows(fitted, X, reset=False)
        route = _decide_one_by_one(
            router, rows, quality=quality, costs=row_costs, names=names, delay=delay
        )
    else:
        # Column of the table for each choice of the router, (n_choices,).
        column_of_choice = np.array([names.index(name) for name in router.choices_])
        route = column_of_choice[router.route(X)]
    row = np.arange(len(route))
    # Without an answer, the quality is unknown and the cost is 0. `_NO_CHOICE` as an
    # index is the last column, whose cell `np.where` replaces.
    is_answered = route != _NO_CHOICE
    return Replay(
        route=route,
        quality=np.where(is_answered, quality[row, route], np.nan),
        cost=np.where(is_answered, row_costs[row, route], 0.0),
        choices=names,
    )


def _fitted_router(router):
    """Return the fitted router inside a `BudgetStream`, or the router itself.

    A TypeError is raised if it is not a router.
    """
    fitted = getattr(router, "router", router)
    if not (hasattr(fitted, "route") or hasattr(fitted, "decide")):
        raise TypeError(
            "router must be a fitted router, a stream or an online router, got "
            f"{type(router).__name__}."
        )
    check_is_fitted(fitted)
    return fitted


def _read_costs(costs, names, shape):
    """Return the cost of each choice on each request.

    Parameters
    ----------
    costs : array-like or mapping
        As in :func:`replay`.
    names : list of str
        Names of the columns.
    shape : tuple of (int, int)
        Number of requests, number of columns.

    Returns
    -------
    ndarray of shape `shape`
        A read-only view, if all requests share the costs.
    """
    costs = check_numbers(costs_by_name(costs, names), "costs", low=0.0)
    # One cost for each column is the same for all requests: (n_columns,).
    shape_of_shared = shape[1:]
    if costs.shape not in (shape, shape_of_shared):
        raise ValueError(
            f"costs must have one column for each of {names!r}, got shape "
            f"{costs.shape}."
        )
    return np.broadcast_to(costs, shape)


class PendingDecision(NamedTuple):
    """A decision whose outcome the router has not seen.

    Attributes
    ----------
    decision : object
        The ticket of a stream, or the decision of an online router.

    cost, quality : float
        The outcome. An unknown quality is NaN.
    """

    decision: Any
    cost: float
    quality: float


def _decide_one_by_one(router, X, *, quality, costs, names, delay):
    """Return the choices of a router that sees outcomes of earlier requests.

    Parameters
    ----------
    router : BudgetStream or OnlineBudgetRouter
        Its state is changed.
    X : array-like of shape (n_requests, n_features)
    quality, costs : ndarray of shape (n_requests, n_columns)
    names : list of str
        Names of the columns.
    delay : int
        Number of further requests after which an online router sees an outcome.

    Returns
    -------
    ndarray of shape (n_requests,), dtype=int64
        Columns. `_NO_CHOICE` if a stream has no money left, or no room in its windows.
    """
    # An online router has the method `decide`, and learns from outcomes.
    learns = hasattr(router, "decide")
    if not learns:
        # A `BudgetStream` learns nothing from outcomes, and is charged at once.
        delay = 0
    route = np.full(len(quality), _NO_CHOICE, dtype=np.int64)
    pending = deque()
    for row in range(len(route)):
        request = _safe_indexing(X, [row])
        try:
            decision = router.decide(request) if learns else router.route(request)
        except (BudgetExhaustedError, WindowFullError):
            # The request has no answer.
            continue
        column = names.index(decision.name)
        route[row] = column
        pending.append(
            PendingDecision(
                decision, cost=costs[row, column], quality=quality[row, column]
            )
        )
        while len(pending) > delay:
            _commit(router, pending.popleft(), learns=learns)
    return route


def _commit(router, outcome, *, learns):
    """Report an outcome to a router. A `BudgetStream` gets the cost alone.

    Parameters
    ----------
    router : BudgetStream or OnlineBudgetRouter
        Its state is changed.
    outcome : PendingDecision
    learns : bool
        True for an online router, False for a stream.
    """
    if learns:
        router.commit(outcome.decision, cost=outcome.cost, quality=outcome.quality)
    elif outcome.decision.answer is not None:
        # The stream has computed the answer while it decided, and has paid for it.
        router.commit(outcome.decision, cost=0.0)
    else:
        router.commit(outcome.decision, cost=outcome.cost)
