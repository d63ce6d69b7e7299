"""A budget shared by the threads of a live service: FrugalMCT's Algorithm 1 with a ledger."""

import copy
import os
import threading
import uuid
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    ROUNDING,
    Plan,
    affords,
    check_affordable,
    check_budget,
    check_costs,
    check_rows,
)
from skroute.utils._compat import Integral, num_samples

# As in choose_at_price: efficiencies that differ by rounding are a tie.
_TIE = 1e-9
# Nothing is bought at an infinite price; this one can be multiplied with a cost of 0.
_MOST = 1e15

# One lock for the books of all streams. A fork waits until no book is open, so that a child
# finds neither a half-written one nor a lock that nobody will release.
_BOOKS = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_BOOKS.acquire,
        after_in_parent=_BOOKS.release,
        after_in_child=_BOOKS._at_fork_reinit,  # type: ignore[attr-defined]
    )


class BudgetExhaustedError(RuntimeError):
    """Not even the cheapest choice fits, or a true cost has gone beyond the total."""


class Look(NamedTuple):
    """What a router knows of one row before it decides.

    Attributes
    ----------
    features : indexable of one row
        What its quality is estimated from.

    answered : dict from int to object
        Answers that this has computed already, by choice.

    state : object, default=None
        What `_answer` finds in its plan.
    """

    features: Any
    answered: dict
    state: Any = None


class Trade(NamedTuple):
    """Which choices a stream decides between, and by which policy.

    Attributes
    ----------
    policy : PricedPolicy
    first : int, default=0
        Index of the first of the choices in the router's ``choices_``.
    """

    policy: Any
    first: int = 0


class Ticket(NamedTuple):
    """A decision whose money is reserved and not settled yet.

    Attributes
    ----------
    stream : str
        Identity of the stream that issued it.

    id : int
        Number of the ticket within its stream.

    choice : int
        Index into the router's ``choices_``.

    name : str
        ``choices_[choice]``.

    cost : float
        What the call is expected to cost, at most its bound; what `commit` charges by
        default.

    deciding : float
        What deciding has cost already: `routing_cost`, a member that embeds, a base.

    reserved : float
        What is held back: `deciding` and an upper bound of the call's cost.

    answer : object, default=None
        The answer, where deciding has computed it already and the call costs nothing.
    """

    stream: str
    id: int
    choice: int
    name: str
    cost: float
    deciding: float
    reserved: float
    answer: Any = None


class StreamStatus(NamedTuple):
    """Where a stream stands, read at one moment.

    Attributes
    ----------
    budget_total : float
        The cap.

    spent : float
        Sum of what has been settled.

    reserved : float
        Sum held back for open tickets.

    n_open : int
        Tickets neither committed nor refunded.

    n_committed : int
        Tickets committed.

    n_refunded : int
        Tickets refunded.

    n_rejected : int
        Requests for which not even the cheapest choice fitted.
    """

    budget_total: float
    spent: float
    reserved: float
    n_open: int
    n_committed: int
    n_refunded: int
    n_rejected: int


def _check_n_expected(n_expected):
    if n_expected is not None and (
        not isinstance(n_expected, Integral) or isinstance(n_expected, bool) or n_expected < 1
    ):
        raise ValueError(
            f"n_expected must be a positive int or None for unknown, got {n_expected!r}."
        )


def _check_row(row, n_choices, name):
    """Finite numbers, one for each choice, as a list."""
    row = np.asarray(row, dtype=np.float64)
    if row.shape not in ((n_choices,), (1, n_choices)):
        raise ValueError(f"{name} must have shape ({n_choices},), got {row.shape}.")
    row = row.ravel().tolist()
    if not abs(sum(row)) < np.inf:
        raise ValueError(f"{name} must be finite, got {row!r}.")
    return row


def _check_told(names, costs, bounds):
    """Refuse costs above what a call can cost at most, before money moves."""
    for name, cost, bound in zip(names, costs, bounds):
        if not affords(bound, cost):
            raise ValueError(
                f"The cost of {name!r} is {cost!r}, above its max_costs of {bound!r}. Nothing "
                "was reserved. max_costs must be upper bounds: make a stream with larger ones."
            )


class BudgetStream:
    r"""Spend a total on requests that come one by one, from any number of threads.

    Made by ``router.stream(budget_total)``. A request is routed in three steps, so that
    the total holds while calls are under way, take different times and fail:

    1. :meth:`route` decides and **reserves** the most that the call can cost;
    2. the caller makes the call;
    3. :meth:`commit` settles with the true cost, or :meth:`refund` gives the money of a
       failed call back.

    Where the router has the models, :meth:`predict` does all three.

    The choice is FrugalMCT's Algorithm 1 [1]_: the best of
    :math:`\hat q_i(x) - p\,c_i` at the router's price. A choice that does not fit what is
    left is passed over for the best one that does, at last the cheapest; a request for
    which not even that fits is rejected with :class:`BudgetExhaustedError`.

    **Known number of requests.** The price is that of the mean budget left,
    money left by requests left, looked up anew for every request; and the most that the
    cheapest choice can cost is kept back for each request still to come. The first
    `n_expected` requests are therefore all answered, whatever their calls cost up to what
    is reserved for them. (With costs per row and no `max_costs`, the mean of the cheapest
    costs in the log is kept back, and more expensive requests can use it up.)

    **Unknown number.** There is no rate to keep to but the router's own `budget` per
    request: the price is that of it, and the total is a cap on top.

    Parameters
    ----------
    router : BudgetRouter, OccamRouterClassifier or FrugalMCTClassifier
        Fitted. It is not changed; one router can serve several streams.

    budget_total : float
        The cap on the sum of all costs, in the unit of the router's costs.

    n_expected : int, default=None
        Number of calls of `route` to come, retries included. None is unknown.

    max_costs : mapping from str to float or array-like of shape (n_choices,), default=None
        The most that a call of each choice can cost, which is what is reserved. None
        reserves the router's costs; where these are estimated by its `cost_estimator`,
        there is no such default. Raising them makes the cap safer and leaves more money
        unused while calls are open.

    Attributes
    ----------
    router : estimator
        The router as it was when the stream was made: fitting the original again, or
        setting its parameters, does not change the stream. Make a new one for that.

    n_expected : int or None
        As given.

    Raises
    ------
    ValueError
        For a total that does not pay for the cheapest choice of every request expected,
        or costs of the router that are above `max_costs`.

    Notes
    -----
    The sum of what is committed and reserved never exceeds `budget_total` (to a relative
    1e-12 for the rounding of sums) as long as no true cost exceeds its reservation. A cost
    above it is recorded as what it is, first out of money that nobody has reserved; if it
    breaks the cap, `commit` says so with :class:`BudgetExhaustedError`.

    A copy, by `pickle`, `copy` or a forked process, is a second purse and not a shared
    one: it has the books of that moment and a new identity. Tickets that were open then can
    be settled in each of them once; a ticket issued later can be settled only where it was
    issued. What was held for requests that were still being decided is free in the copy.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, Algorithm 1.
    .. [2] S. Jasin, S. Kumar, "A Re-Solving Heuristic with Bounded Revenue Loss for Network
       Revenue Management with Customer Choice", Mathematics of Operations Research 37,
       2012. (Why the price follows the mean budget left.)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}).fit(X, Q)
    >>> stream = router.stream(budget_total=8, n_expected=3)
    >>> for x in [[0.05], [0.95], [0.9]]:
    ...     ticket = stream.route([x])
    ...     # call the model named ticket.name here
    ...     stream.commit(ticket)
    ...     print(ticket.name)
    small
    large
    small
    >>> stream.status().spent
    7.0
    """

    def __init__(
        self,
        router: Any,
        budget_total: float,
        n_expected: int | None = None,
        *,
        max_costs: Any = None,
    ):
        check_is_fitted(router)
        router._check_unchanged()
        total = check_budget(budget_total, name="budget_total")
        if not np.isfinite(total):
            raise ValueError(f"budget_total must be a finite number, got {budget_total!r}.")
        _check_n_expected(n_expected)
        # Its own, which neither a new fit nor new parameters of the original change.
        self.router = copy.copy(router)
        self.n_expected = n_expected
        mean = router._effective_budget(None)
        if n_expected is None:
            check_affordable(mean, router.min_budget_)
        trade = self.router._trade(mean if n_expected is None else total / n_expected)
        self._trade, self._policy = trade, trade.policy
        self._mean = mean
        self._total = total
        self._limit = total * (1 + ROUNDING)
        self._penalty = self._policy.docked.tolist()
        n = len(self._penalty)
        self._names = [str(name) for name in router.choices_[trade.first : trade.first + n]]
        self._costs = None if self._policy.per_row else self._policy.planned.tolist()
        self._max_costs = self._check_max_costs(max_costs)
        # What one request takes at least; with costs per row the log's mean.
        self._floor = self._policy.least
        known = self._max_costs or self._costs
        if known is not None:
            self._floor = self._policy.deciding + min(known)
        least = self._floor * (1 if n_expected is None else n_expected)
        check_affordable(total, least, name="budget_total")
        self._spent = 0.0
        self._reserved = 0.0
        # What open tickets are expected to cost: what is left is priced by this.
        self._pending = 0.0
        self._open: dict[tuple[str, int], Ticket] = {}
        # Amounts held for requests that are being decided, each under a key of its own.
        self._held: dict[object, float] = {}
        self._n_started = 0
        self._n_issued = 0
        self._n_committed = 0
        self._n_refunded = 0
        self._n_rejected = 0
        self._begin()

    def _begin(self):
        """A purse of its own from here on."""
        self._id = uuid.uuid4().hex
        self._pid = os.getpid()
        self._n_started -= len(self._held)
        self._held = {}

    def _enter(self):
        """Called with the books open: a forked child is a copy."""
        if self._pid != os.getpid():
            self._begin()

    def _check_max_costs(self, max_costs):
        if max_costs is None:
            if getattr(self.router, "cost_estimator_", None) is not None:
                raise ValueError(
                    "max_costs must be given, got None: this router estimates its costs, and a "
                    "cap cannot rest on estimates. Say what a call of each of "
                    f"{self._names!r} can cost at most."
                )
            return None
        max_costs = check_costs(max_costs, self._names, name="max_costs").tolist()
        if self._costs is not None:
            _check_told(self._names, self._costs, max_costs)
        return max_costs

    def route(self, x: Any, *, costs: ArrayLike | None = None) -> Ticket:
        """Decide on one request and reserve what its call can cost.

        The smallest amount is held back before the router looks at the request, so that
        nothing is computed, and no member that embeds is paid, for a request that will be
        rejected. The estimates are computed outside the lock.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row of what the router was fitted on, for example a list with one text.

        costs : array-like of shape (n_choices,) or (1, n_choices), default=None
            Costs of this request, where the router was fitted on costs per row; they must
            be given unless it has a `cost_estimator`.

        Returns
        -------
        Ticket
            Named tuple ``(stream, id, choice, name, cost, deciding, reserved, answer)``.

        Raises
        ------
        ValueError
            For bad costs, costs above `max_costs`, or estimates that are no numbers;
            nothing stays reserved.
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        """
        return self._decide(x, costs)[0]

    def _decide(self, x, costs):
        """Ticket, the checked row, and what deciding leaves for answering."""
        x = check_rows(self.router, x, reset=False)
        if num_samples(x) != 1:
            raise ValueError(f"x must be one row, shape (1, n_features), got {num_samples(x)}.")
        known = self._known_costs(costs, estimated=True)
        held = object()
        try:
            self._hold(known, held)
            look = self.router._look(x, self._trade)
            values = self._policy.values(look.features)[0].tolist()
            if known is None:
                # An estimate above what a call can cost at most is not believed.
                estimated = self.router._row_costs(look.features, None)[0].tolist()
                known = [min(pair) for pair in zip(estimated, self._max_costs)]
        except BaseException:
            with _BOOKS:
                self._release(held, n_started=-1)
            raise
        return self._issue(values, known, held, look.answered), x, look.state

    def reserve(self, quality: ArrayLike, *, costs: ArrayLike | None = None) -> Ticket:
        """Decide on one request whose quality is estimated already, and reserve.

        `route` is ``reserve(router.predict_quality(x)[0])``: for services that batch the
        estimates, or have them from elsewhere. This is the online rule alone, some
        microseconds.

        Parameters
        ----------
        quality : array-like of shape (n_choices,)
            Estimated quality of each choice, before the penalty.

        costs : array-like of shape (n_choices,), default=None
            Expected cost of each choice for this request, where the router was fitted on
            costs per row; there they must be given.

        Returns
        -------
        Ticket
            Named tuple ``(stream, id, choice, name, cost, deciding, reserved, answer)``.

        Raises
        ------
        ValueError
            For quality or costs that are no finite numbers, or costs above `max_costs`;
            nothing is reserved.
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        """
        row = _check_row(quality, len(self._penalty), "quality")
        values = [value - docked for value, docked in zip(row, self._penalty)]
        known = self._known_costs(costs, estimated=False)
        held = object()
        self._hold(known, held)
        return self._issue(values, known, held, {})

    def _known_costs(self, costs, estimated):
        """Costs of a request as far as they are known before it is looked at."""
        if self._costs is not None:
            if costs is not None:
                raise ValueError(
                    "costs must be None: this router was not fitted on costs per row. For other "
                    "prices set_params(costs=...) on the router and make a new stream of it."
                )
            return self._costs
        if costs is None:
            if estimated and self.router.cost_estimator_ is not None:
                return None
            raise ValueError("costs must be given, got None: the router's costs are per row.")
        known = _check_row(costs, len(self._penalty), "costs")
        if min(known) < 0:
            raise ValueError(f"costs must not be negative, got {min(known)!r}.")
        if self._max_costs is not None:
            _check_told(self._names, known, self._max_costs)
        return known

    def _hold(self, costs, key):
        """Take the smallest amount that the request can cost, or reject it."""
        amount = self._policy.deciding + min(self._max_costs or costs)
        with _BOOKS:
            self._enter()
            if self._taken() + amount > self._limit:
                self._n_rejected += 1
                raise BudgetExhaustedError(
                    f"Not even the cheapest choice fits: it takes {amount:.6g}, and of "
                    f"{self._total:.6g} in all {self._spent:.6g} is spent and "
                    f"{self._taken() - self._spent:.6g} reserved for {len(self._open)} open "
                    "tickets."
                )
            self._held[key] = amount
            self._n_started += 1

    def _taken(self):
        return self._spent + self._reserved + sum(self._held.values())

    def _release(self, key, n_started=0):
        """Give back what was held, unless the stream has become a copy since."""
        if self._held.pop(key, None) is not None:
            self._n_started += n_started

    def _issue(self, values, costs, held, answered):
        """Algorithm 1: the best at the price among what fits; the cheapest is held already."""
        policy, first = self._policy, self._trade.first
        bounds = self._max_costs or costs
        with _BOOKS:
            self._enter()
            self._release(held)
            price = min(self._price(), _MOST) * (1 + _TIE)
            room = self._limit - self._taken() - policy.deciding
            if self.n_expected is not None:
                # Not what rounding puts a hair above: the limit has room for it.
                room -= self._floor * max(self.n_expected - self._n_started, 0)
            choice = bounds.index(min(bounds))
            best = (values[choice] - price * costs[choice], -costs[choice], values[choice])
            for i, bound in enumerate(bounds):
                if bound <= room:
                    # Ties go to the cheaper choice, and of equal costs to the better.
                    net = (values[i] - price * costs[i], -costs[i], values[i])
                    if net > best:
                        choice, best = i, net
            ticket = Ticket(
                self._id,
                self._n_issued,
                first + choice,
                self._names[choice],
                costs[choice],
                policy.deciding,
                policy.deciding + bounds[choice],
                answered.get(first + choice),
            )
            self._n_issued += 1
            self._reserved += ticket.reserved
            self._pending += ticket.deciding + ticket.cost
            self._open[ticket.stream, ticket.id] = ticket
        return ticket

    def _price(self):
        """Price for the request that `_hold` has counted already."""
        deciding = self._policy.deciding
        budget = self._mean
        if self.n_expected is not None:
            left = self._total - self._spent - self._pending
            budget = left / max(self.n_expected - self._n_started + 1, 1)
        return self._policy.price(max(budget, deciding))

    def predict(self, x: Any) -> Any:
        """Answer one request with the router's own models: `route`, the call, `commit`.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row of what the router was fitted on.

        Returns
        -------
        object
            The label, or the row of labels where there are several.

        Raises
        ------
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.

        TypeError
            If the router decides between names of models that it does not have.

        Exception
            That of a model that failed, whose call is refunded.
        """
        if not hasattr(self.router, "estimators_"):
            raise TypeError(
                f"{type(self.router).__name__} has no models to answer with. Use route, call the "
                "model that it names, and commit."
            )
        ticket, x, state = self._decide(x, None)
        try:
            plan = Plan(np.array([ticket.choice]), np.array([ticket.cost]), state)
            answer = self.router._answer(x, plan, "predict")[0]
        except BaseException:
            self.refund(ticket)
            raise
        self.commit(ticket)
        return answer

    def commit(self, ticket: Ticket, cost: float | None = None) -> None:
        """Settle a ticket: the call was made.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, not settled yet.

        cost : float, default=None
            What the call has cost, deciding not included. None takes ``ticket.cost``.

        Raises
        ------
        ValueError
            If the ticket is not open or the cost not a number that is at least 0; nothing
            is changed.
        BudgetExhaustedError
            If the cost, which is recorded, exceeds its reservation and breaks the cap.
        """
        cost = ticket.cost if cost is None else check_budget(cost, name="cost")
        if not cost < np.inf:
            raise ValueError(f"cost must be finite, got {cost!r}.")
        with _BOOKS:
            self._close(ticket, ticket.deciding + cost)
            self._n_committed += 1
            over = self._spent - self._limit
        if over > 0 and cost > ticket.reserved - ticket.deciding:
            raise BudgetExhaustedError(
                f"The cap of {self._total:.6g} is broken by {over:.6g}: the call of "
                f"{ticket.name!r} cost {cost:.6g} where "
                f"{ticket.reserved - ticket.deciding:.6g} was reserved. The cost is recorded. Give "
                "the stream max_costs that are upper bounds."
            )

    def refund(self, ticket: Ticket) -> None:
        """Give the money of a failed call back; only what deciding cost is kept.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, not settled yet.

        Raises
        ------
        ValueError
            If the ticket is not open; nothing is changed.
        """
        with _BOOKS:
            self._close(ticket, ticket.deciding)
            self._n_refunded += 1

    def _close(self, ticket, charge):
        self._enter()
        key = (ticket.stream, ticket.id)
        # All but the answer, which may be an array.
        if key not in self._open or self._open[key][:-1] != ticket[:-1]:
            raise ValueError(
                f"Ticket {ticket.id} for {ticket.name!r} is not open: it was committed or refunded "
                "already, was changed, or belongs to another stream."
            )
        del self._open[key]
        self._spent += charge
        # Where nothing is open no rounding of sums stays reserved.
        self._reserved = self._reserved - ticket.reserved if self._open else 0.0
        pending = ticket.deciding + ticket.cost
        self._pending = self._pending - pending if self._open else 0.0

    def status(self) -> StreamStatus:
        """Where the stream stands.

        Returns
        -------
        StreamStatus
            Named tuple ``(budget_total, spent, reserved, n_open, n_committed, n_refunded,
            n_rejected)``.
        """
        with _BOOKS:
            self._enter()
            return StreamStatus(
                self._total,
                self._spent,
                self._reserved + sum(self._held.values()),
                len(self._open),
                self._n_committed,
                self._n_refunded,
                self._n_rejected,
            )

    def __repr__(self):
        status = self.status()
        return (
            f"BudgetStream({type(self.router).__name__}, {status.spent:.6g} spent and "
            f"{status.reserved:.6g} reserved of {status.budget_total:.6g})"
        )

    def __getstate__(self):
        with _BOOKS:
            self._enter()
            state = self.__dict__.copy()
            state["_open"] = dict(self._open)
            state["_held"] = {}
            state["_n_started"] = self._n_started - len(self._held)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._begin()


class StreamMixin:
    """Mixin for routers that can spend a total on a stream of requests.

    A subclass implements ``_trade(budget)``, which returns a record with `policy` and
    `first` for a mean budget, and ``_look(x, trade) -> Look`` for one row.
    """

    def stream(
        self, budget_total: float, n_expected: int | None = None, *, max_costs: Any = None
    ) -> BudgetStream:
        """A thread-safe budget for requests that come one by one.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs, in the unit of `costs`.

        n_expected : int, default=None
            Number of requests to come, retries included. None is unknown: then each is
            priced at the router's `budget`, and the total is a cap on top.

        max_costs : mapping from str to float or array-like of shape (n_choices,), \
default=None
            The most that a call of each choice can cost, which is what is reserved. None
            reserves the costs themselves; required where they are estimated.

        Returns
        -------
        BudgetStream
        """
        return BudgetStream(self, budget_total, n_expected, max_costs=max_costs)
