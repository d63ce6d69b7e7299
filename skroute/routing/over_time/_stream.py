"""A budget for requests that come one by one: FrugalMCT's Algorithm 1 with a ledger."""

import copy
import os
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, affords, check_affordable, check_costs, check_rows
from skroute.base._inspection import models_of
from skroute.ledgers import Books, BudgetExhaustedError, Ledger, MemoryLedger, Offer
from skroute.ledgers._books import check_amount, check_terms
from skroute.routing.parts._log import check_names
from skroute.routing.parts._policy import choose_one
from skroute.utils._compat import num_samples
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_numbers, warn

# Streams of this process, which get new locks in a forked child.
_STREAMS: "weakref.WeakSet[BudgetStream]" = weakref.WeakSet()


def _after_fork():
    for stream in _STREAMS:
        stream._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Offers:
    """The choices of a stream, their money and their policy, until prices or exclusions change."""

    def __init__(self, router, mean, max_costs, excluded):
        self.router, self.mean, self.excluded = router, mean, excluded
        self.policy, kept = router._stream_policy(mean, sorted(excluded))
        self.kept = kept.tolist()
        self.names = [router.choices_[k] for k in self.kept]
        self.penalty = self.policy.penalty.tolist()
        self.costs = None if self.policy.per_row else self.policy.planned.tolist()
        self.max_costs = None
        if max_costs is not None:
            self.max_costs = [max_costs[name] for name in self.names]
            if self.costs is not None:
                self.check_told(self.costs)
        known = self.max_costs or self.costs
        self.takes = (
            None if known is None else [self.policy.deciding + cost for cost in known]
        )
        # What one request takes at least; with costs per row the log's mean.
        self.floor = self.policy.least if known is None else min(self.takes)
        self._own_price = self.price_at(mean)

    def check_told(self, costs):
        """Refuse costs above what a call can cost at most, before money moves."""
        for name, cost, bound in zip(self.names, costs, self.max_costs):
            if not affords(bound, cost):
                raise ValueError(
                    f"The cost of {name!r} is {cost!r}, above its max_costs of {bound!r}. Nothing "
                    "was reserved. max_costs must be upper bounds: make a stream with larger ones."
                )

    def taken(self, costs):
        """What is reserved for each choice; `takes` where that is the same for all requests."""
        return self.takes or [self.policy.deciding + cost for cost in costs]

    def price_at(self, budget):
        """Price of a mean budget; ties go to the cheaper choice."""
        return self.policy.rule(max(budget, self.policy.least)).price

    def choose(self, quality, costs, takes, least, books, room, spare):
        """Algorithm 1: the best at the price among what fits, at last the cheapest."""
        if least > room:
            return None
        price = self._own_price
        if books.n_expected is not None:
            # The books have counted this request already.
            n_left = max(books.n_expected - books.n_started + 1, 1)
            price = self.price_at((books.total - books.spent - books.pending) / n_left)
        fitting = [
            k for k, amount in enumerate(takes) if amount <= spare or amount == least
        ]
        k = choose_one(quality, costs, price, fitting)
        return Offer(
            self.kept[k], self.names[k], costs[k], self.policy.deciding, takes[k]
        )


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


class BudgetStream:
    r"""Decide on requests one by one, from any number of threads, within a total budget.

    Made by ``router.stream(budget_total)``. A request is routed in three steps, so that
    the total holds while calls are under way, take different times and fail:

    1. :meth:`route` decides and **reserves** the most that the call can cost;
    2. the caller makes the call;
    3. :meth:`commit` settles with the true cost, or :meth:`refund` gives the money of a
       failed call back.

    Where the router has the models, :meth:`predict` does all three. A request has no
    `exclude`, `allowed` or `request_id` of its own here: choices are left out for all
    requests, by :meth:`exclude`, and one that is tied at the price goes to the cheaper choice.

    The choice is FrugalMCT's Algorithm 1 [1]_: the best of
    :math:`\hat q_i(x) - p\,c_i` at the router's price. A choice that does not fit what is
    left is passed over for the best one that does, at last the cheapest; a request for
    which not even that fits is rejected with :class:`~skroute.ledgers.BudgetExhaustedError`.

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

    ledger : Ledger, default=None
        Where the books are kept, one of :mod:`skroute.ledgers`. None keeps them in this
        process; with a shared one, other processes spend from the same purse.

    purse : str, default="stream"
        Name of the purse in the ledger. Streams of the same name and ledger share it.

    within : sequence of str, default=()
        Further purses of the ledger, opened before, that every request is paid from too.

    period : {"day", "month"} or float, default=None
        After what time the books begin anew: UTC days, UTC months or so many seconds. None
        is never.

    Attributes
    ----------
    router : estimator
        The router as it was when the stream was made: fitting the original again, or
        setting its parameters, does not change the stream. Make a new one for that.

    n_expected : int or None
        As given.

    ledger : Ledger
        Where the books are kept.

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
    breaks the cap, `commit` says so with :class:`~skroute.ledgers.BudgetExhaustedError`.

    Without a shared `ledger`, a copy, by `pickle`, `copy` or a forked process, is a second
    purse and not a shared one: it has the books of that moment and a new identity. Tickets
    that were open then can be settled in each of them once; a ticket issued later can be
    settled only where it was issued. What was held for requests that were still being
    decided is free in the copy.

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
        ledger: Ledger | None = None,
        purse: str = "stream",
        within: Sequence[str] = (),
        period: str | float | None = None,
    ):
        check_is_fitted(router)
        terms = check_terms(budget_total, n_expected, period, name="budget_total")
        total = terms.total
        n_expected = terms.n_expected
        self._purses = _check_purses(purse, within)
        self._changing = threading.Lock()
        _STREAMS.add(self)
        if ledger is not None and not isinstance(ledger, Ledger):
            raise TypeError(
                "ledger must be one of skroute.ledgers, or None for one in memory, got "
                f"{type(ledger).__name__}."
            )
        # Its own, which neither a new fit nor new parameters of the original change.
        self.router = copy.copy(router)
        self.n_expected = n_expected
        mean = router.make_call().budget if n_expected is None else total / n_expected
        if n_expected is None:
            check_affordable(mean, router.min_budget_)
        self._max_costs = self._check_max_costs(max_costs)
        self._offers = Offers(self.router, mean, self._max_costs, frozenset())
        least = self._offers.floor * (1 if n_expected is None else n_expected)
        check_affordable(total, least, name="budget_total")
        self._warned: set[str] = set()
        self.ledger = MemoryLedger() if ledger is None else ledger
        for name in self._purses[1:]:
            self.ledger.books(name)
        self.ledger.open(purse, total, n_expected, period=period)

    def _check_max_costs(self, max_costs):
        """Upper bounds by name; None where the router's costs are bounds themselves."""
        names = self.router.choices_
        if max_costs is None:
            if getattr(self.router, "cost_estimator_", None) is not None:
                raise ValueError(
                    "max_costs must be given, got None: this router estimates its costs, and a "
                    "cap cannot rest on estimates. Say what a call of each of "
                    f"{names!r} can cost at most."
                )
            return None
        models = models_of(self.router)
        bounds = dict(
            zip(models, check_costs(max_costs, models, name="max_costs").tolist())
        )
        # Handing over takes nothing.
        return dict.fromkeys(names, 0.0) | bounds

    def set_costs(self, costs: Any, *, max_costs: Any = None) -> None:
        """Set new prices for later decisions; open tickets keep their prices.

        The price of the budget is solved for anew from the router's estimates. In a shared
        ledger this is for the stream of this process alone: every worker must be told.

        Parameters
        ----------
        costs : mapping from str to float or array-like of shape (n_choices,)
            As the router's parameter `costs`.

        max_costs : mapping from str to float or array-like of shape (n_choices,), default=None
            New upper bounds. None keeps those that there are.

        Raises
        ------
        ValueError
            For costs above the bounds, or, where the number of requests is unknown, a `budget`
            of the router that the cheapest choice now exceeds. Nothing is changed.
        """
        with self._changing:
            router = copy.copy(self.router).set_params(costs=costs)
            if self.n_expected is None:
                check_affordable(self._offers.mean, router.min_budget_)
            bounds = (
                self._max_costs
                if max_costs is None
                else self._check_max_costs(max_costs)
            )
            self._offers = Offers(
                router, self._offers.mean, bounds, self._offers.excluded
            )
            self.router = router
            self._max_costs = bounds

    def exclude(self, names: Sequence[str]) -> None:
        """Exclude choices, for example while a model is down; the dual price is computed again.

        Parameters
        ----------
        names : sequence of str
            Names of choices, beside those that are excluded already.

        Raises
        ------
        ValueError
            For an unknown name, a choice that deciding itself asks, or where none would be left.
            Nothing is changed.
        """
        names = check_names(names, self.router._excludable())
        with self._changing:
            if asked := set(names) & set(self.router._asked_first(self._offers.kept)):
                raise ValueError(
                    f"{sorted(asked)[0]!r} cannot be excluded: deciding asks it for every "
                    "request. Make a stream of a router that decides without it."
                )
            self._exclude(self._offers.excluded | set(names))

    def include(self, names: Sequence[str] | None = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices; None means all.

        Raises
        ------
        ValueError
            For an unknown name.
        """
        again = self.router._excludable()
        again = again if names is None else check_names(names, again)
        with self._changing:
            self._exclude(self._offers.excluded - set(again))

    def _exclude(self, names):
        """Offer all choices but these; called under the lock of changes."""
        self._offers = Offers(
            self.router, self._offers.mean, self._max_costs, frozenset(names)
        )

    def top_up(self, amount: float, *, n_more: int = 0) -> None:
        """Add money to the total (of the current period, if there are periods).

        Parameters
        ----------
        amount : float
            What is added.

        n_more : int, default=0
            Further requests to expect, where their number is known.
        """
        self.ledger.top_up(self._purses[0], amount, n_more)

    def reset(self) -> None:
        """Start again with the first total, as at the end of a period; open tickets stay open."""
        self.ledger.reset(self._purses[0])

    def route(
        self, x: Any, *, costs: ArrayLike | None = None, key: str | None = None
    ) -> Ticket:
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

        key : str, default=None
            The request's own name. A request that is sent again under it while its ticket
            is open gets the same ticket, and reserves nothing.

        Returns
        -------
        Ticket
            Named tuple ``(stream, id, choice, name, cost, deciding, reserved, answer)``.

        Raises
        ------
        ValueError
            For bad costs, costs above `max_costs`, or estimates that are no numbers; nothing
            stays reserved.
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        AlreadyCommittedError
            If the request of this key was made and paid.
        """
        return self._route(x, costs, key)[0]

    def _route(self, x, costs, key=None):
        """The ticket, the checked row, and what deciding leaves for answering."""
        offers = self._offers
        x = check_rows(self.router, x, reset=False)
        if num_samples(x) != 1:
            raise ValueError(
                f"x must be one row, shape (1, n_features), got {num_samples(x)}."
            )
        known = self._known_costs(offers, costs, estimated=True)
        least = offers.floor if known is None else min(offers.taken(known))
        held = self.ledger.hold(self._purses, least, _check_key(key))
        if held.state == "open":
            return _ticket(held), x, None
        try:
            features, state, answered = offers.router._look(x, offers.kept)
            quality = offers.policy.estimates(features)[0].tolist()
            if known is None:
                known = self._estimated_costs(offers, features)
        except BaseException:
            self.ledger.release(held)
            raise
        return self._issue(offers, quality, known, held, key, answered), x, state

    def _estimated_costs(self, offers, features):
        """Estimates are no promise: one above what a call can cost at most is cut to that."""
        estimated = offers.router._row_costs(features, None)[0, offers.kept].tolist()
        for name, cost, bound in zip(offers.names, estimated, offers.max_costs):
            if cost > bound * (1 + ROUNDING) and name not in self._warned:
                self._warned.add(name)
                warn(
                    f"The cost_estimator says that a call of {name!r} costs {cost:.6g}, above "
                    f"its max_costs of {bound!r}, which is taken instead. If calls do cost "
                    "more, give the stream a larger bound. (This warning comes once.)"
                )
        return [min(pair) for pair in zip(estimated, offers.max_costs)]

    def reserve(
        self,
        quality: ArrayLike,
        *,
        costs: ArrayLike | None = None,
        key: str | None = None,
    ) -> Ticket:
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

        key : str, default=None
            As in `route`.

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
        AlreadyCommittedError
            If the request of this key was made and paid.
        """
        offers = self._offers
        n_choices = len(self.router.choices_)
        estimates = _one_row(quality, n_choices, "quality")
        estimates = [estimates[k] for k in offers.kept]
        known = self._known_costs(offers, costs, estimated=False)
        return self._issue(offers, estimates, known, None, _check_key(key), {})

    def _known_costs(self, offers, costs, estimated):
        """Costs of a request as far as they are known before it is looked at."""
        if offers.costs is not None:
            if costs is not None:
                raise ValueError(
                    "costs must be None: this router was not fitted on costs per row. For other "
                    "prices use set_costs."
                )
            return offers.costs
        if costs is None:
            if estimated and self.router.cost_estimator_ is not None:
                return None
            raise ValueError(
                "costs must be given, got None: the router's costs are per row."
            )
        models = models_of(self.router)
        known = _one_row(costs, len(models), "costs", low=0.0)
        known += [0.0] * (len(self.router.choices_) - len(models))
        known = [known[k] for k in offers.kept]
        if offers.max_costs is not None:
            offers.check_told(known)
        return known

    def _issue(self, offers, quality, costs, held, key, answered):
        values = [value - less for value, less in zip(quality, offers.penalty)]
        takes = offers.taken(costs)
        least = min(takes)
        try:
            made = self.ledger.reserve(
                self._purses,
                partial(offers.choose, values, costs, takes, least),
                least=least,
                keep=offers.floor,
                held=held,
                key=key,
            )
        except BaseException as error:
            # An interrupt may come before the ledger has given the hold back.
            if held is not None and not isinstance(error, Exception):
                self.ledger.release(held)
            raise
        return _ticket(made, answered.get(made.offer.choice))

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
        ticket, x, state = self._route(x, None)
        try:
            plan = Plan(np.array([ticket.choice]), np.array([ticket.cost]), state, X=x)
            answer = self.router.answer(plan)[0]
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
            From `route` or `reserve`, not settled yet; of any process that shares the
            purse. It may have expired.

        cost : float, default=None
            What the call has cost, deciding not included. None takes ``ticket.cost``.

        Raises
        ------
        ValueError
            If the ticket is not open or the cost not a number that is at least 0; nothing
            is changed.
        BudgetExhaustedError
            If the cost, which is recorded, exceeds its reservation, or comes after the
            reservation has expired, and breaks the cap.
        """
        cost = ticket.cost if cost is None else check_amount(cost, "cost")
        over, late = self._settle(ticket, cost)
        held = ticket.reserved - ticket.deciding
        if not (over > 0 and (late or cost > held)):
            return
        for books in map(self.ledger.books, self._purses):
            if books.spent > books.total * (1 + ROUNDING):
                raise BudgetExhaustedError(
                    f"The cap of {books.total:.6g} is broken by {over:.6g}: the call of "
                    f"{ticket.name!r} cost {cost:.6g} where {held:.6g} was reserved, "
                    "or was committed after its deadline. The cost is recorded. Give "
                    "the stream max_costs that are upper bounds, and the ledger a timeout that no "
                    "call exceeds."
                )

    def refund(self, ticket: Ticket) -> None:
        """Return the money of a failed call, except the cost of deciding.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, not settled yet.

        Raises
        ------
        ValueError
            If the ticket is not open; nothing is changed.
        """
        self._settle(ticket, None)

    def _settle(self, ticket, cost):
        # All but the answer, which may be an array.
        offer = Offer(*ticket[2:7])
        return self.ledger.settle(
            ticket.stream, ticket.id, self._purses[0], offer, cost
        )

    def unsettled(self) -> list[Ticket]:
        """Tickets of all processes that are open or have expired, oldest first.

        Returns
        -------
        list of Ticket
            After a crash, commit those that the providers have counted and refund the others.
        """
        return [_ticket(made) for made in self.ledger.unsettled(self._purses[0])]

    def books(self) -> Books:
        """All amounts and counts of the stream's purse.

        Returns
        -------
        Books
        """
        return self.ledger.books(self._purses[0])

    def status(self) -> StreamStatus:
        """The amounts and the counts of the stream.

        Returns
        -------
        StreamStatus
            Named tuple ``(budget_total, spent, reserved, n_open, n_committed, n_refunded,
            n_rejected)``.
        """
        books = self.books()._asdict()
        return StreamStatus(
            books["total"], *(books[name] for name in StreamStatus._fields[1:])
        )

    def __repr__(self):
        status = self.status()
        return (
            f"BudgetStream({type(self.router).__name__}, {status.spent:.6g} spent and "
            f"{status.reserved:.6g} reserved of {status.budget_total:.6g})"
        )

    def __getstate__(self):
        with self._changing:
            state = self.__dict__.copy()
        del state["_changing"]
        # A ledger in memory is another one in a copy; others are found again by their place.
        state["ledger"] = copy.copy(self.ledger)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._forked()
        _STREAMS.add(self)

    def _forked(self):
        """Make a lock of its own: in a forked child nobody would release the parent's."""
        self._changing = threading.Lock()


def _ticket(made, answer=None):
    """The ticket of an open reservation."""
    return Ticket(made.ledger, made.number, *made.offer, answer)


def _check_key(key):
    if key is not None and (not isinstance(key, str) or not key):
        raise ValueError(
            f"key must be a string that is not empty, or None, got a {type(key)}."
        )
    return key


def _check_purses(purse, within):
    """Names of all purses that a request is paid from, its own first."""
    if isinstance(within, str):
        raise ValueError(
            f"within must be a sequence of names of purses, got {within!r}."
        )
    names = (purse, *within)
    for name in names:
        if not isinstance(name, str) or not name or "\x1f" in name:
            raise ValueError(
                f"The name of a purse must be a string, not empty, got {name!r}."
            )
    if len(set(names)) < len(names):
        raise ValueError(
            f"A stream cannot be within the same purse twice, got {names!r}."
        )
    return names


def _one_row(row, n_choices, name, low=-np.inf):
    """A list of finite numbers, one for each choice."""
    if (
        type(row) is np.ndarray
        and row.dtype == np.float64
        and row.shape == (n_choices,)
    ):
        # Of a few numbers this takes a fifth of the time of numpy's checks.
        numbers = row.tolist()
        if all(map(isfinite, numbers)) and min(numbers) >= low:
            return numbers
    row = check_numbers(row, name, low=low)
    if row.shape not in ((n_choices,), (1, n_choices)):
        raise ValueError(f"{name} must have shape ({n_choices},), got {row.shape}.")
    return row.ravel().tolist()
