"""A budget shared by the threads of a live service: FrugalMCT's Algorithm 1 with a ledger."""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, check_budget, check_costs, check_rows
from skroute.utils._compat import Integral, num_samples

# As in choose_at_price: efficiencies that differ by rounding are a tie.
_TIE = 1e-9
# Nothing is bought at an infinite price; this one can be multiplied with a cost of 0.
_MOST = 1e15
# As in the assignment: sums of many costs are exact to this.
_ROUNDING = 1e-12


class BudgetExhaustedError(RuntimeError):
    """Not even the cheapest choice fits, or a true cost has gone beyond the total."""


class StreamPolicy(NamedTuple):
    """What a stream needs of a fitted router, which makes it in ``_stream_policy(budget)``.

    Attributes
    ----------
    names : sequence
        Names of the choices that deciding leaves open.

    first : int
        Index of the first of them in the router's ``choices_``.

    deciding : float
        What every request pays before its choice is known.

    costs : list of float or None
        What each choice costs on top; None where that differs from row to row.

    least : float
        Mean of the cheapest choices.

    penalty : list of float
        Taken from the quality of each choice.

    look : callable
        From one row to what its quality is estimated from, None or a dict from choice to the
        answer that this has computed already, and the state that ``_answer`` finds in its plan.

    quality : callable
        From what `look` returned first to the quality of each choice, shape (1, n_choices).

    price : callable
        From a mean budget, `deciding` not included, to the price.

    row_costs : callable
        From features, given costs and their shape to the costs of a row.

    estimated_costs : bool
        Whether `row_costs` estimates them.
    """

    names: Any
    first: int
    deciding: float
    costs: list | None
    least: float
    penalty: list
    look: Any
    quality: Any
    price: Any
    row_costs: Any = None
    estimated_costs: bool = False


class Ticket(NamedTuple):
    """A decision whose money is reserved and not settled yet.

    Attributes
    ----------
    id : int
        Number of the ticket within its stream.

    choice : int
        Index into the router's ``choices_``.

    name : object
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

    id: int
    choice: int
    name: Any
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
    money left by requests left, looked up anew for every request; and what the cheapest
    choice is expected to cost is kept back for each request still to come, so that the
    first `n_expected` requests are all answered unless costs run above expectation.

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
        there is no such default.

    Attributes
    ----------
    router : estimator
        The router.

    n_expected : int or None
        As given.

    Notes
    -----
    The sum of what is committed and reserved never exceeds `budget_total` (to a relative
    1e-12 for the rounding of sums) as long as no true cost exceeds its reservation. A cost
    above it is recorded as what it is, first out of money that nobody has reserved; if it
    breaks the cap, `commit` says so with :class:`BudgetExhaustedError`.

    A pickled stream keeps its open tickets. A copy is a second purse, not a shared one.

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
        total = check_budget(budget_total, name="budget_total")
        if not np.isfinite(total):
            raise ValueError(f"budget_total must be a finite number, got {budget_total!r}.")
        if n_expected is not None and (
            not isinstance(n_expected, Integral) or isinstance(n_expected, bool) or n_expected < 1
        ):
            raise ValueError(
                f"n_expected must be a positive int or None for unknown, got {n_expected!r}."
            )
        mean = router._effective_budget(None)
        policy = router._stream_policy(mean if n_expected is None else total / n_expected)
        if max_costs is not None:
            max_costs = check_costs(max_costs, policy.names, name="max_costs").tolist()
        elif policy.estimated_costs:
            raise ValueError(
                "max_costs must be given, got None: this router estimates its costs, and a cap "
                "cannot rest on estimates. Say what a call of each of "
                f"{list(policy.names)!r} can cost at most."
            )
        self.router = router
        self.n_expected = n_expected
        self._policy = policy
        self._max_costs = max_costs
        self._budget = mean - policy.deciding
        # What one request is expected to take at least; with costs per row the log's mean.
        self._floor = policy.deciding + min(policy.costs or [policy.least])
        least = self._floor * (1 if n_expected is None else n_expected)
        if total < least * (1 - _ROUNDING):
            raise ValueError(
                f"budget_total={budget_total!r} is below the cheapest feasible plan: the smallest "
                f"feasible total is {least:.17g}."
            )
        self._total = total
        self._limit = total * (1 + _ROUNDING)
        self._spent = 0.0
        self._reserved = 0.0
        # What open tickets are expected to cost: what is left is priced by this.
        self._pending = 0.0
        self._open: dict[int, Ticket] = {}
        self._n_started = 0
        self._n_issued = 0
        self._n_committed = 0
        self._n_refunded = 0
        self._n_rejected = 0
        self._lock = threading.Lock()

    def route(self, x: Any, *, costs: ArrayLike | None = None) -> Ticket:
        """Decide on one request and reserve what its call can cost.

        The smallest amount is held back before the router looks at the request, so that
        nothing is computed, and no member that embeds is paid, for a request that will be
        rejected. The estimates are computed outside the lock.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row of what the router was fitted on, for example a list with one text.

        costs : array-like of shape (1, n_choices), default=None
            Costs of this row, where the router was fitted on costs per row without a
            `cost_estimator`.

        Returns
        -------
        Ticket
            Named tuple ``(id, choice, name, cost, deciding, reserved, answer)``.

        Raises
        ------
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        """
        return self._decide(x, costs)[0]

    def _decide(self, x, costs):
        """Ticket, the checked row, and what deciding leaves for answering."""
        policy = self._policy
        x = check_rows(self.router, x, reset=False)
        if num_samples(x) != 1:
            raise ValueError(f"x must be one row, shape (1, n_features), got {num_samples(x)}.")
        known, shape = policy.costs, (1, len(policy.names))
        if known is None and not policy.estimated_costs:
            known = policy.row_costs(x, costs, shape)[0].tolist()
            costs = None
        elif costs is not None:
            raise ValueError(
                "costs must be None: the router was not fitted on costs per row that are known "
                f"before the call. Got {costs!r}."
            )
        held = self._policy.deciding + min(self._bounds(known))
        self._hold(held)
        try:
            features, answers, state = policy.look(x)
            values = policy.quality(features)[0].tolist()
            if known is None:
                known = policy.row_costs(features, None, shape)[0].tolist()
        except BaseException:
            with self._lock:
                self._reserved -= held
                self._n_started -= 1
            raise
        return self._issue(values, known, held, answers), x, state

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
            Expected cost of each choice for this request; where the router's costs are
            per row it must be given, otherwise None takes the router's.

        Returns
        -------
        Ticket
            Named tuple ``(id, choice, name, cost, deciding, reserved, answer)``.

        Raises
        ------
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        """
        values = self._check_row(quality, "quality")
        if costs is not None:
            known = self._check_row(costs, "costs")
            if min(known) < 0:
                raise ValueError(f"costs must not be negative, got {min(known)!r}.")
        elif self._policy.costs is None:
            raise ValueError("costs must be given, got None: the router's costs are per row.")
        else:
            known = self._policy.costs
        held = self._policy.deciding + min(self._bounds(known))
        self._hold(held)
        return self._issue(values, known, held, None)

    def _bounds(self, costs):
        """The most that each call can cost: what is reserved."""
        return self._max_costs or costs

    def _check_row(self, row, name):
        row = np.asarray(row, dtype=np.float64)
        if row.shape != (len(self._policy.penalty),):
            raise ValueError(
                f"{name} must have shape ({len(self._policy.penalty)},), got {row.shape}."
            )
        row = row.tolist()
        if not abs(sum(row)) < np.inf:
            raise ValueError(f"{name} must be finite, got {row!r}.")
        return row

    def _hold(self, amount):
        """Take the smallest amount that the request can cost, or reject it."""
        with self._lock:
            if self._spent + self._reserved + amount > self._limit:
                self._n_rejected += 1
                raise BudgetExhaustedError(
                    f"Not even the cheapest choice fits: it takes {amount:.6g}, and of "
                    f"{self._total:.6g} in all {self._spent:.6g} is spent and "
                    f"{self._reserved:.6g} reserved for {len(self._open)} open tickets."
                )
            self._reserved += amount
            self._n_started += 1

    def _issue(self, values, costs, held, answers):
        """Algorithm 1: the best at the price among what fits; the cheapest is held already."""
        bounds = self._bounds(costs)
        with self._lock:
            self._reserved -= held
            price = min(self._price(), _MOST) * (1 + _TIE)
            room = self._limit - self._spent - self._reserved - self._policy.deciding
            if self.n_expected is not None:
                # Not what rounding puts a hair above: the limit has room for it.
                room -= self._floor * max(self.n_expected - self._n_started, 0)
            worth = [value - sigma for value, sigma in zip(values, self._policy.penalty)]
            choice = bounds.index(min(bounds))
            best = (worth[choice] - price * costs[choice], -costs[choice], worth[choice])
            for i, bound in enumerate(bounds):
                if bound <= room:
                    # Ties go to the cheaper choice, and of equal costs to the better.
                    net = (worth[i] - price * costs[i], -costs[i], worth[i])
                    if net > best:
                        choice, best = i, net
            ticket = Ticket(
                self._n_issued,
                self._policy.first + choice,
                self._policy.names[choice],
                min(costs[choice], bounds[choice]),
                self._policy.deciding,
                self._policy.deciding + bounds[choice],
                None if answers is None else answers.get(self._policy.first + choice),
            )
            self._n_issued += 1
            self._reserved += ticket.reserved
            self._pending += ticket.deciding + ticket.cost
            self._open[ticket.id] = ticket
        return ticket

    def _price(self):
        """Price for the request that `_hold` has counted already."""
        if self.n_expected is None:
            budget = self._budget
        else:
            left = self._total - self._spent - self._pending
            budget = left / max(self.n_expected - self._n_started + 1, 1) - self._policy.deciding
        return self._policy.price(max(budget, 0.0))

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
        with self._lock:
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
        with self._lock:
            self._close(ticket, ticket.deciding)
            self._n_refunded += 1

    def _close(self, ticket, charge):
        if self._open.get(ticket.id) != ticket:
            raise ValueError(
                f"{ticket!r} is not open: it was committed or refunded already, or belongs to "
                "another stream."
            )
        del self._open[ticket.id]
        self._spent += charge
        self._reserved -= ticket.reserved
        self._pending -= ticket.deciding + ticket.cost

    def status(self) -> StreamStatus:
        """Where the stream stands.

        Returns
        -------
        StreamStatus
            Named tuple ``(budget_total, spent, reserved, n_open, n_committed, n_refunded,
            n_rejected)``.
        """
        with self._lock:
            return StreamStatus(
                self._total,
                self._spent,
                self._reserved,
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
        with self._lock:
            state = self.__dict__.copy()
            state["_open"] = dict(self._open)
        del state["_lock"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._lock = threading.Lock()


class StreamMixin:
    """Mixin for routers that can spend a total on a stream of requests.

    A subclass implements ``_stream_policy(budget) -> StreamPolicy`` for a mean budget.
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
