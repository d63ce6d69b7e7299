"""Replay: what a router would have done on a log, request after request, while things change."""

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_costs
from skroute.ledgers import BudgetExhaustedError
from skroute.utils._compat import num_samples
from skroute.utils._named import by_label, in_order


class Shift(NamedTuple):
    """Something that changes in a replay.

    Attributes
    ----------
    choice : str
        Which model.

    start : int
        First request of the change.

    stop : int, default=None
        First request after it; None is for good.

    cost_factor : float, default=1.0
        What its costs are multiplied with.

    quality_factor : float, default=1.0
        What its quality is multiplied with.

    down : bool, default=False
        It does not answer. Announced, the router does without it; else its calls are worth
        nothing and cost nothing.

    arrives : bool, default=False
        It is not there before `start`. An online router is told then; one that cannot learn
        a new choice goes on with those it was fitted with.

    announced : bool, default=True
        Whether the router is told of costs and of an outage. Of quality it never is.
    """

    choice: str
    start: int
    stop: int | None = None
    cost_factor: float = 1.0
    quality_factor: float = 1.0
    down: bool = False
    arrives: bool = False
    announced: bool = True


class Replay(NamedTuple):
    """What happened in a replay.

    Attributes
    ----------
    route : ndarray of shape (n_samples,), dtype=int64
        Choice made for each request, into `choices`; -1 where a stream had no money left.

    quality : ndarray of shape (n_samples,)
        What came of it, shifts included; NaN where no choice was made, or where the log does
        not know.

    cost : ndarray of shape (n_samples,)
        What it cost.

    choices : list of str
        Names of the columns of the log.

    shifts : tuple of Shift
        As given.
    """

    route: np.ndarray
    quality: np.ndarray
    cost: np.ndarray
    choices: list
    shifts: tuple


def replay(
    router: Any,
    X: Any,
    quality: Any,
    costs: Any,
    *,
    choices: Any = None,
    shifts: Any = (),
    delay: int = 0,
) -> Replay:
    """Run a router over a logged table in the order of its rows, with shifts.

    The router sees, of each request, its features, and of the table one cell: that of the
    choice it made. A copy of it is run; the router given stays as it is.

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
        There may be more than the router knows: they can arrive.

    shifts : sequence of Shift, default=()
        What changes on the way.

    delay : int, default=0
        After how many further requests an outcome is told.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        For tables that do not fit, a shift of a choice that is none, or a change of prices
        announced to a router that has no fixed costs.

    See Also
    --------
    ReplayDisplay : The picture.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.metrics import Shift, replay
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}).fit(X, Q)
    >>> down = Shift("large", 40, 60, down=True)
    >>> happened = replay(router, X, Q, router.costs, shifts=[down])
    >>> np.bincount(happened.route[40:60]).tolist()
    [20]
    """
    names, quality, costs = _check_log(router, X, quality, costs, choices)
    shifts = _check_shifts(shifts, names)
    if isinstance(delay, bool) or not isinstance(delay, (int, np.integer)) or delay < 0:
        raise ValueError(f"delay must be a whole number of at least 0, got {delay!r}.")
    true_quality, true_costs = _shifted(quality, costs, names, shifts)
    n = len(quality)
    kind: type = _Fitted
    if hasattr(router, "decide"):
        kind = _Online
    elif hasattr(router, "top_up"):
        kind = _Stream
    runner = kind(copy.deepcopy(router), names, costs)
    route = np.full(n, -1, dtype=np.int64)
    marks = {0, n, *(shift.start for shift in shifts)}
    marks |= {shift.stop for shift in shifts if shift.stop is not None}
    ends = sorted(mark for mark in marks if 0 <= mark <= n)
    for start, stop in zip(ends, ends[1:]):
        runner.announce(start, shifts)
        rows = _safe_indexing(X, np.arange(start, stop))
        table = true_quality[start:stop], true_costs[start:stop]
        route[start:stop] = runner.run(rows, *table, delay)
    rows = np.arange(n)
    made = route >= 0
    gained = np.where(made, true_quality[rows, route], np.nan)
    paid = np.where(made, true_costs[rows, route], 0.0)
    return Replay(route, gained, paid, names, shifts)


def _check_log(router, X, quality, costs, choices):
    inner = getattr(router, "router", router)
    if not (hasattr(inner, "route") or hasattr(inner, "decide")):
        raise TypeError(
            "router must be a fitted router, a stream or an online router, got "
            f"{type(router).__name__}."
        )
    check_is_fitted(inner)
    if choices is None:
        choices = getattr(quality, "columns", inner.choices_)
    if isinstance(choices, (str, bytes)) or not np.iterable(choices):
        raise ValueError(f"choices must be a list of names of choices, got {choices!r}.")
    names = [str(name) for name in choices]
    if missing := [name for name in inner.choices_ if name not in names]:
        raise ValueError(f"quality has no column for {missing!r} of the router, only {names!r}.")
    quality = check_array(
        in_order(quality, names),
        dtype=np.float64,
        input_name="quality",
        ensure_all_finite="allow-nan",
    )
    costs = in_order(by_label(costs), names)
    if isinstance(costs, Mapping):
        costs = check_costs(costs, names)
    costs = check_array(costs, dtype=np.float64, ensure_2d=False, input_name="costs")
    if num_samples(X) != len(quality):
        raise ValueError(f"X has {num_samples(X)} rows and quality {len(quality)}.")
    if quality.shape[1] != len(names) or costs.shape not in (quality.shape, (len(names),)):
        raise ValueError(
            f"quality and costs must have one column for each of {names!r}, got shapes "
            f"{quality.shape} and {costs.shape}."
        )
    if costs.min() < 0:
        raise ValueError(f"costs must not be negative, got {float(costs.min())!r}.")
    return names, quality, np.broadcast_to(costs, quality.shape)


def _check_shifts(shifts, names):
    if not np.iterable(shifts):
        raise ValueError(f"shifts must be a list of Shift, got {shifts!r}.")
    shifts = tuple(shifts)
    for shift in shifts:
        if not isinstance(shift, Shift):
            raise ValueError(f"shifts must be a list of Shift, got {shift!r}.")
        if shift.choice not in names:
            raise ValueError(f"There is no choice {shift.choice!r} among {names!r}.")
        if min(shift.cost_factor, shift.quality_factor, shift.start) < 0:
            raise ValueError(f"The numbers of a shift must not be negative, got {shift!r}.")
    return shifts


def _lasts(shift, at):
    return shift.start <= at and (shift.stop is None or at < shift.stop)


def _shifted(quality, costs, names, shifts):
    """The tables as they are with all shifts."""
    quality, costs = quality.copy(), costs.copy()
    for shift in shifts:
        rows, column = slice(shift.start, shift.stop), names.index(shift.choice)
        fails = shift.down and not shift.announced
        quality[rows, column] *= 0.0 if fails else shift.quality_factor
        costs[rows, column] *= 0.0 if fails else shift.cost_factor
    return quality, costs


class _Runner:
    """A router under replay: told of shifts, then run over the requests up to the next one."""

    def __init__(self, router, names, costs):
        self.router = router
        self.names = names
        self.known = set(getattr(router, "router", router).choices_)
        self.factors = dict.fromkeys(names, 1.0)
        self.down = []
        self.means = dict(zip(names, costs.mean(axis=0).tolist()))

    def announce(self, at, shifts):
        factors, down = dict.fromkeys(self.names, 1.0), []
        for shift in shifts:
            if shift.arrives and shift.start == at and shift.choice not in self.known:
                self.add(shift)
            if _lasts(shift, at) and shift.announced and shift.choice in self.known:
                factors[shift.choice] *= shift.cost_factor
                if shift.down:
                    down.append(shift.choice)
        if factors != self.factors:
            self.reprice({k: factors[k] / self.factors[k] for k in factors})
        if down != self.down:
            self.exclude(down)
        self.factors, self.down = factors, down

    def add(self, shift):
        pass

    def listed(self, ratios):
        """The price list that the router has, times factors."""
        router = getattr(self.router, "router", self.router)
        costs = getattr(router, "costs", None)
        if costs is None or isinstance(costs, str) or "costs" not in router._acts_at_once:
            raise ValueError(
                "A change of prices cannot be announced to this router, which has no price list "
                "that acts at once. Give Shift(..., announced=False), or fixed costs to the router."
            )
        costs = by_label(costs)
        if isinstance(costs, Mapping):
            return {name: cost * ratios[str(name)] for name, cost in costs.items()}
        return [cost * ratios[name] for cost, name in zip(costs, router.choices_)]

    def reprice(self, ratios):
        self.router.set_params(costs=self.listed(ratios))

    def exclude(self, down):
        self.router.include()
        if down:
            self.router.exclude(down)


class _Fitted(_Runner):
    def exclude(self, down):
        pass

    def run(self, X, quality, costs, delay):
        limits = {"exclude": self.down} if self.down else {}
        route = self.router.route(X, **limits)
        return np.array([self.names.index(name) for name in self.router.choices_])[route]


class _Stream(_Runner):
    def reprice(self, ratios):
        self.router.set_costs(self.listed(ratios))

    def run(self, X, quality, costs, delay):
        route = np.full(len(quality), -1, dtype=np.int64)
        for i in range(len(route)):
            try:
                ticket = self.router.route(_safe_indexing(X, [i]))
            except BudgetExhaustedError:
                continue
            route[i] = self.names.index(ticket.name)
            self.router.commit(ticket, float(costs[i, route[i]]))
        return route


class _Online(_Runner):
    def __init__(self, router, names, costs):
        super().__init__(router, names, costs)
        self.waiting = deque()

    def add(self, shift):
        self.router.add_choice(shift.choice, cost=self.means[shift.choice] * shift.cost_factor)
        self.known.add(shift.choice)
        # It came at the price of its shift.
        self.factors[shift.choice] = shift.cost_factor if shift.announced else 1.0

    def run(self, X, quality, costs, delay):
        route = np.empty(len(quality), dtype=np.int64)
        self.router._check_X(X)
        X = np.asarray(X, dtype=np.float64)
        for i in range(len(route)):
            decision = self.router.decide(X[i])
            k = route[i] = self.names.index(decision.name)
            self.waiting.append((decision, quality[i, k], costs[i, k]))
            while len(self.waiting) > delay:
                told, worth, paid = self.waiting.popleft()
                worth = None if np.isnan(worth) else float(worth)
                self.router.commit(told, quality=worth, cost=float(paid))
        return route
