"""A budget shared by the threads of a live service: FrugalMCT's Algorithm 1 with a ledger."""

import copy
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    ROUNDING,
    Plan,
    check_affordable,
    check_costs,
    check_rows,
)
from skroute.ledgers import Books, BudgetExhaustedError, Ledger, MemoryLedger, Offer
from skroute.ledgers._books import check_amount, check_terms
from skroute.routing._offers import Look, Offers, Trade, check_told
from skroute.utils._compat import num_samples

__all__ = ["BudgetStream", "Look", "StreamMixin", "Ticket", "Trade"]

# A named tuple of values in their order, without the arguments by name.
_made = tuple.__new__
_INFINITE = float("inf")


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


def _check_row(row, n_choices, name):
    """Finite numbers, one for each choice, as a list."""
    row = np.asarray(row, np.float64)
    if row.shape != (n_choices,):
        if row.shape != (1, n_choices):
            raise ValueError(f"{name} must have shape ({n_choices},), got {row.shape}.")
        row = row[0]
    row = row.tolist()
    if not abs(sum(row)) < _INFINITE:
        raise ValueError(f"{name} must be finite, got {row!r}.")
    return row


class BudgetStream:
    r"""Spend a total on requests that come one by one, from any number of threads.

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

    rollover : bool, default=False
        Whether what a period leaves, or spends too much, is carried into the next.

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
        rollover: bool = False,
    ):
        check_is_fitted(router)
        terms = check_terms(budget_total, n_expected, period, rollover, name="budget_total")
        total = terms.total
        self._purses = _check_purses(purse, within)
        if ledger is not None and not isinstance(ledger, Ledger):
            raise TypeError(
                "ledger must be one of skroute.ledgers, or None for one in memory, got "
                f"{type(ledger).__name__}."
            )
        # Its own, which neither a new fit nor new parameters of the original change.
        self.router = copy.copy(router)
        self.n_expected = n_expected
        mean = router._effective_budget(None)
        if n_expected is None:
            check_affordable(mean, router.min_budget_)
        trade = self.router._trade(mean if n_expected is None else total / n_expected)
        self._offers = Offers(self.router, trade, mean, None, frozenset())
        self._set_offers(max_costs=self._check_max_costs(max_costs))
        least = self._offers.floor * (1 if n_expected is None else n_expected)
        check_affordable(total, least, name="budget_total")
        self._warned: set[str] = set()
        self._ledger = MemoryLedger() if ledger is None else ledger
        for name in self._purses[1:]:
            self._ledger.books(name)
        self._ledger.open(purse, total, n_expected, period=period, rollover=rollover)

    @property
    def ledger(self):
        """The ledger that keeps the books."""
        return self._ledger

    def _set_offers(self, **changes):
        """Offers that differ from those of now; decisions under way keep theirs."""
        now = self._offers
        kept = {"router": now.router, "trade": now.trade, "mean": now.mean}
        kept |= {"max_costs": now.max_costs, "excluded": now.excluded}
        self._offers = Offers(**(kept | changes))

    def _check_max_costs(self, max_costs):
        names = self._offers.names
        if max_costs is None:
            if getattr(self.router, "cost_estimator_", None) is not None:
                raise ValueError(
                    "max_costs must be given, got None: this router estimates its costs, and a "
                    "cap cannot rest on estimates. Say what a call of each of "
                    f"{names!r} can cost at most."
                )
            return None
        # Handing over takes nothing.
        handing = getattr(self.router, "abstain_quality_", None) is not None
        own = names[:-1] if handing else names
        return check_costs(max_costs, own, name="max_costs").tolist() + [0.0] * handing

    def set_costs(self, costs: Any, *, max_costs: Any = None) -> None:
        """Decide at new prices from here on; open tickets keep theirs.

        The price of the budget is solved for anew from the router's estimates. In a shared
        ledger this is for the stream of this process alone: tell it every worker.

        Parameters
        ----------
        costs : mapping from str to float or array-like of shape (n_choices,)
            As the router's parameter `costs`.

        max_costs : mapping from str to float or array-like of shape (n_choices,), default=None
            New upper bounds. None keeps those that there are.

        Raises
        ------
        ValueError
            For a router that needs a new `fit` for that, costs above the bounds, or, where
            the number of requests is unknown, a `budget` of the router that the cheapest
            choice now exceeds. Nothing is changed.
        """
        if "costs" not in self.router._acts_at_once:
            raise ValueError(
                f"The costs of a fitted {type(self.router).__name__} cannot change: fit it again "
                "and make a new stream."
            )
        router = copy.copy(self.router).set_params(costs=costs)
        trade = router._trade(self._offers.mean)
        if self.n_expected is None:
            check_affordable(self._offers.mean, router.min_budget_)
        bounds = self._offers.max_costs
        if max_costs is not None:
            bounds = self._check_max_costs(max_costs)
        self._set_offers(router=router, trade=trade, max_costs=bounds)
        self.router = router

    def exclude(self, names: Sequence[str]) -> None:
        """Do without choices, for example while a model is down; the rest is priced anew.

        Parameters
        ----------
        names : sequence of str
            Names of choices, beside those that are excluded already.

        Raises
        ------
        ValueError
            For a name that is none, a choice that deciding itself asks, or where none would
            be left. Nothing is changed.
        """
        names = self._checked_names(names)
        if asked := set(names) & set(self._asked()):
            raise ValueError(
                f"{sorted(asked)[0]!r} cannot be excluded: deciding asks it for every request. "
                "Make a stream of a router that decides without it."
            )
        excluded = self._offers.excluded | set(names)
        if excluded.issuperset(self._offers.names):
            raise ValueError(
                f"names={names!r} leaves no choice: {self._offers.names!r} are all there are, and "
                f"{sorted(self._offers.excluded)!r} are excluded already."
            )
        self._set_offers(excluded=excluded)

    def include(self, names: Sequence[str] | None = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices; None means all.

        Raises
        ------
        ValueError
            For a name that is none.
        """
        left: frozenset = frozenset()
        if names is not None:
            left = self._offers.excluded - set(self._checked_names(names))
        self._set_offers(excluded=left)

    def _checked_names(self, names):
        if isinstance(names, (str, bytes)) or not np.iterable(names):
            raise ValueError(f"names must be a list of names of choices, got {names!r}.")
        names = list(names)
        for name in names:
            if name not in self._offers.names:
                raise ValueError(f"There is no choice {name!r} among {self._offers.names!r}.")
        return names

    def _asked(self):
        """Names of what deciding asks: a base, or a member that embeds."""
        base = getattr(self._offers.trade, "base", None)
        embedder = getattr(self.router, "_embedder", None)
        asked = [] if base is None else [self.router.member_names_[base]]
        return asked + ([] if embedder is None else [embedder[0]])

    def top_up(self, amount: float, *, n_more: int = 0) -> None:
        """Add to the total, of the period that is running where there are periods.

        Parameters
        ----------
        amount : float
            What is added.

        n_more : int, default=0
            Further requests to expect, where their number is known.
        """
        self._ledger.top_up(self._purses[0], amount, n_more)

    def reset(self) -> None:
        """Begin the books anew, as at the end of a period; open tickets stay open."""
        self._ledger.reset(self._purses[0])

    def route(self, x: Any, *, costs: ArrayLike | None = None, key: str | None = None) -> Ticket:
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
        return self._decide(x, costs, key)[0]

    def _decide(self, x, costs, key=None):
        """Ticket, the checked row, and what deciding leaves for answering."""
        offers = self._offers
        x = check_rows(self.router, x, reset=False)
        if num_samples(x) != 1:
            raise ValueError(f"x must be one row, shape (1, n_features), got {num_samples(x)}.")
        known = self._known_costs(offers, costs, estimated=True)
        least = offers.least(known)
        held = self._ledger.hold(self._purses, least, _check_key(key))
        if held.state == "open":
            return _ticket(held), x, None
        try:
            look = offers.router._look(x, offers.trade)
            quality = offers.policy.estimates(look.features)[0].tolist()
            if known is None:
                known = self._estimated_costs(offers, look.features)
        except BaseException:
            self._ledger.release(held)
            raise
        ticket = self._issue(offers, quality, known, held, key, look.answered)
        return ticket, x, look.state

    def _estimated_costs(self, offers, features):
        """Estimates are no promise: one above what a call can cost at most is not believed."""
        estimated = offers.router._row_costs(features, None)[0].tolist()
        for name, cost, bound in zip(offers.names, estimated, offers.max_costs):
            if cost > bound * (1 + ROUNDING) and name not in self._warned:
                self._warned.add(name)
                warnings.warn(
                    f"The cost_estimator says that a call of {name!r} costs {cost:.6g}, above "
                    f"its max_costs of {bound!r}, which is taken instead. If calls do cost "
                    "more, give the stream a larger bound. (This is said once.)",
                    UserWarning,
                    stacklevel=4,
                )
        return [min(pair) for pair in zip(estimated, offers.max_costs)]

    def reserve(
        self, quality: ArrayLike, *, costs: ArrayLike | None = None, key: str | None = None
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
        row = _check_row(quality, len(offers.docked), "quality")
        if costs is None and offers.costs is not None:
            known = offers.costs
        else:
            known = self._known_costs(offers, costs, estimated=False)
        return self._issue(offers, row, known, None, _check_key(key), None)

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
            raise ValueError("costs must be given, got None: the router's costs are per row.")
        handing = getattr(self.router, "abstain_quality_", None) is not None
        known = _check_row(costs, len(offers.docked) - handing, "costs") + [0.0] * handing
        if min(known) < 0:
            raise ValueError(f"costs must not be negative, got {min(known)!r}.")
        if offers.max_costs is not None:
            check_told(offers.names, known, offers.max_costs)
        return known

    def _issue(self, offers, quality, costs, held, key, answered):
        made = self._ledger.reserve(
            self._purses,
            partial(offers.choose, quality, costs),
            least=offers.least(costs),
            keep=offers.floor,
            held=held,
            key=key,
        )
        return _ticket(made, answered)

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
        if over > 0 and (late or cost > held):
            self._report_over(ticket, cost, over)

    def _report_over(self, ticket, cost, over):
        held = ticket.reserved - ticket.deciding
        for books in map(self._ledger.books, self._purses):
            if books.spent > books.total * (1 + ROUNDING):
                raise BudgetExhaustedError(
                    f"The cap of {books.total:.6g} is broken by {over:.6g}: the call of "
                    f"{ticket.name!r} cost {cost:.6g} where {held:.6g} was reserved, "
                    "or was committed after its deadline. The cost is recorded. Give "
                    "the stream max_costs that are upper bounds, and the ledger a timeout that no "
                    "call exceeds."
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
        self._settle(ticket, None)

    def _settle(self, ticket, cost):
        # All but the answer, which may be an array.
        offer = _made(Offer, ticket[2:7])
        return self._ledger.settle(ticket.stream, ticket.id, self._purses[0], offer, cost)

    def unsettled(self) -> list[Ticket]:
        """Tickets that are open or have expired, of whatever process, oldest first.

        Returns
        -------
        list of Ticket
            After a crash, commit those that the providers have counted and refund the others.
        """
        return [_ticket(made) for made in self._ledger.unsettled(self._purses[0])]

    def books(self) -> Books:
        """Where the stream's purse stands, with all counts.

        Returns
        -------
        Books
        """
        return self._ledger.books(self._purses[0])

    def status(self) -> StreamStatus:
        """Where the stream stands.

        Returns
        -------
        StreamStatus
            Named tuple ``(budget_total, spent, reserved, n_open, n_committed, n_refunded,
            n_rejected)``.
        """
        books = self.books()
        return StreamStatus(
            books.total,
            books.spent,
            books.reserved,
            books.n_open,
            books.n_committed,
            books.n_refunded,
            books.n_rejected,
        )

    def __repr__(self):
        status = self.status()
        return (
            f"BudgetStream({type(self.router).__name__}, {status.spent:.6g} spent and "
            f"{status.reserved:.6g} reserved of {status.budget_total:.6g})"
        )

    def __getstate__(self):
        # A ledger in memory is another one in a copy; others are found again by their place.
        return self.__dict__ | {"_ledger": copy.copy(self._ledger)}


def _ticket(made, answered=None):
    """The ticket of an open reservation."""
    answer = answered.get(made.offer.choice) if answered else None
    return _made(Ticket, (made.ledger, made.number, *made.offer, answer))


def _check_key(key):
    if key is not None and (not isinstance(key, str) or not key):
        raise ValueError(f"key must be a string that is not empty, or None, got a {type(key)}.")
    return key


def _check_purses(purse, within):
    """Names of all purses that a request is paid from, its own first."""
    if isinstance(within, str):
        raise ValueError(f"within must be a sequence of names of purses, got {within!r}.")
    names = (purse, *within)
    for name in names:
        if not isinstance(name, str) or not name or "\x1f" in name:
            raise ValueError(f"The name of a purse must be a string, not empty, got {name!r}.")
    if len(set(names)) < len(names):
        raise ValueError(f"A stream cannot be within the same purse twice, got {names!r}.")
    return names


class StreamMixin:
    """Mixin for routers that can spend a total on a stream of requests.

    A subclass implements ``_trade(budget)``, which returns a record with `policy` and
    `first` for a mean budget, and ``_look(x, trade) -> Look`` for one row.
    """

    def stream(
        self,
        budget_total: float,
        n_expected: int | None = None,
        *,
        max_costs: Any = None,
        ledger: Ledger | None = None,
        purse: str = "stream",
        within: Sequence[str] = (),
        period: str | float | None = None,
        rollover: bool = False,
    ) -> BudgetStream:
        """A budget for requests that come one by one, safe in threads and, shared, processes.

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

        ledger : Ledger, default=None
            Where the books are kept, see :mod:`skroute.ledgers`. None keeps them in this
            process.

        purse : str, default="stream"
            Name of the purse in the ledger. Streams of the same name and ledger share it.

        within : sequence of str, default=()
            Further purses of the ledger, opened before, that every request is paid from too.

        period : {"day", "month"} or float, default=None
            After what time the books begin anew: UTC days, UTC months or so many seconds.

        rollover : bool, default=False
            Whether what a period leaves is carried into the next.

        Returns
        -------
        BudgetStream
        """
        return BudgetStream(
            self,
            budget_total,
            n_expected,
            max_costs=max_costs,
            ledger=ledger,
            purse=purse,
            within=within,
            period=period,
            rollover=rollover,
        )
