"""A budget for requests that come one by one: FrugalMCT's Algorithm 1 with a ledger."""

import copy
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    Plan,
    RequestEstimates,
    affords,
    check_affordable,
    check_costs,
    check_rows,
)
from skroute.base._inspection import models_of
from skroute.ledgers import (
    Books,
    BudgetExhaustedError,
    Ledger,
    MemoryLedger,
    Offer,
    Window,
    WindowUse,
)
from skroute.ledgers._books import check_amount, check_terms
from skroute.routing.over_time._limit_pacer import LimitPacer, LimitUse
from skroute.routing.over_time._planned_requests import (
    PlannedRequests,
    money_per_request,
)
from skroute.routing.parts._log import check_names
from skroute.routing.parts._policy import choose_one
from skroute.routing.parts._requests import PricedRequests
from skroute.utils._compat import num_samples
from skroute.utils._named import by_label, check_entries, in_order
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_numbers, warn

# All streams of this process. `_after_fork` gives them new locks in a forked child,
# where a lock that another thread held at the fork would never be released.
_STREAMS: "weakref.WeakSet[BudgetStream]" = weakref.WeakSet()


def _after_fork():
    """Give all streams of a forked child new locks."""
    for stream in _STREAMS:
        stream._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Offers:
    """Choices that a stream offers to requests, with their costs and their policy.

    An object does not change. For new prices or exclusions, the stream makes a new one.

    Parameters
    ----------
    router : estimator
        Fitted.

    mean : float
        Mean budget per request.

    max_costs : dict from str to float or None
        Maximal cost of a call of each choice. None if the costs of the router are
        exact.

    excluded : frozenset of str
        Names of choices that are not offered.

    Attributes
    ----------
    requests : RequestPolicy
        What decides between the offered choices.

    kept : list of int
        Positions of the offered choices among those of the router. The other lists are
        in this order.

    all_positions : list of int
        All positions in `kept`, for requests that exclude nothing.

    names : list of str
        Names of the offered choices.

    penalty : list of float
        Amounts that are subtracted from the estimates.

    costs : list of float or None
        Cost of each choice. None if each request has costs of its own.

    max_costs : list of float or None
        Maximal cost of a call of each choice.

    reserved_amounts : list of float or None
        Amount that is reserved for each choice, deciding included. None if it depends
        on the request.

    floor : float
        The smallest amount of a request. If it depends on the request, it is the mean
        of the cheapest costs in the log.

    bill_factors : list of float
        Expected bill of a call of each choice, divided by the cost that decides.

    pacer : LimitPacer or None
        Prices of the limits in addition to the budget. None if the budget is the only
        limit.
    """

    def __init__(self, router, mean, max_costs, excluded):
        self.router = router
        self.mean = mean
        self.excluded = excluded
        self.requests = router.request_policy(mean, exclude=sorted(excluded))
        if self.requests.estimates_costs and max_costs is None:
            raise ValueError(
                "max_costs must be given, got None: this router estimates its costs, "
                "and a cap cannot rest on estimates. Say what a call of each of "
                f"{router.choices_!r} can cost at most."
            )
        if self.requests.quotes_costs and max_costs is None:
            raise ValueError(
                "max_costs must be given, got None: this router decides by quotes, or "
                "by prices other than the bills of its log, which are quotes, too, and "
                "a cap cannot rest on quotes. Say what a call of each of "
                f"{router.choices_!r} can cost at most."
            )
        self.kept = self.requests.positions.tolist()
        self.names = [router.choices_[index] for index in self.kept]
        self.penalty = self.requests.penalty.tolist()
        self.costs = None  # each request has costs of its own
        if self.requests.costs is not None:
            self.costs = self.requests.costs.tolist()
        self.max_costs = None  # the costs are exact
        if max_costs is not None:
            self.max_costs = [max_costs[name] for name in self.names]
            if self.costs is not None:
                self.check_below_max(self.costs)
        # Upper bounds of the costs of calls. Exact costs are their own bounds.
        bounds = self.costs if self.max_costs is None else self.max_costs
        if bounds is None:
            # The exact costs come with each request.
            self.reserved_amounts = None
            self.floor = self.requests.smallest_budget
        else:
            deciding_cost = self.requests.deciding_cost
            self.reserved_amounts = [deciding_cost + cost for cost in bounds]
            self.floor = min(self.reserved_amounts)
        # Dual price of all requests if the number of requests is not known.
        self._own_price = self.price_at(mean)
        self.pacer = None  # the budget is the only limit
        # 1: a bill is expected to be the cost by which requests are decided. Below, the
        # log may show another factor.
        self.bill_factors = [1.0] * len(self.kept)
        # `PricedRequests` have a `Policy`, from which factors and limits are read. The
        # class of `requests` may also be a user's own.
        if isinstance(self.requests, PricedRequests):
            policy = self.requests.policy
            if self.costs is not None and policy.realised is not None:
                self.bill_factors = policy.correction(mean).cost_factor.tolist()
            if policy.limits is not None:
                self.pacer = LimitPacer(policy, mean, self.names)
        self.all_positions = list(range(len(self.kept)))

    def check_below_max(self, costs):
        """Raise an error if a cost exceeds the maximal cost of its choice."""
        for name, cost, bound in zip(self.names, costs, self.max_costs):
            if not affords(bound, cost):
                raise ValueError(
                    f"The cost of {name!r} is {cost!r}, above its max_costs of "
                    f"{bound!r}. Nothing was reserved. max_costs must be upper bounds: "
                    "make a stream with larger ones."
                )

    def amounts_to_reserve(self, costs):
        """Return the amount to reserve for each choice of a request.

        Parameters
        ----------
        costs : list of float or None
            Costs of the request. None if the router estimates them, for which the
            amounts do not depend on the request.

        Returns
        -------
        list of float
        """
        if self.reserved_amounts is not None:
            # The amounts are the same for all requests.
            return self.reserved_amounts
        return [self.requests.deciding_cost + cost for cost in costs]

    def estimate(self, x):
        """Return the estimates of one request for each offered choice.

        The result is a `RequestEstimates`. Its shape is checked, since the class of
        `requests` may be a user's own. If a table had columns for choices that are not
        offered, positions would be wrong.
        """
        estimates = self.requests.estimate(x)
        if not isinstance(estimates, RequestEstimates):
            raise TypeError(
                f"{type(self.requests).__name__}.estimate must return "
                f"RequestEstimates, got {type(estimates).__name__}."
            )
        self._check_one_row(estimates.quality, "estimate")
        return estimates

    def estimate_costs(self, x):
        """Return the estimated cost of each offered choice for a request, as floats."""
        costs = self.requests.estimate_costs(x)
        self._check_one_row(costs, "estimate_costs")
        return costs[0].tolist()

    def _check_one_row(self, table, method):
        """Raise an error unless a table has one row, with a column per offered choice.

        `method` is the name of the method that returned the table, for the message.
        """
        expected = (1, len(self.kept))
        if np.shape(table) != expected:
            raise ValueError(
                f"{type(self.requests).__name__}.{method} must return a table of shape "
                f"{expected}, one column for each of {self.names!r}, got "
                f"{np.shape(table)}. Leave out the choices that are not offered."
            )

    def values(self, quality):
        """Return the estimated quality of each choice, minus a penalty for its error.

        `quality` and the result are lists of float, one for each offered choice.
        """
        return [estimate - amount for estimate, amount in zip(quality, self.penalty)]

    def price_at(self, budget):
        """Return the dual price of a mean budget.

        A budget below the smallest feasible one is raised to it.
        """
        return self.requests.price_at(max(budget, self.requests.smallest_budget))

    def price_of_next(self, books):
        """Return the dual price of a request at the mean budget that is left.

        `books` are the amounts and counts of the stream. They count this request.
        """
        if books.n_expected is None:
            return self._own_price
        # `n_started` counts this request, too.
        return self.price_at(money_per_request(books))

    def choose(
        self,
        values,
        costs,
        amounts,
        positions,
        least,
        books,
        room,
        spare,
        full=frozenset(),
        price=None,
    ):
        """Return the offer for one request by Algorithm 1 of FrugalMCT, or None.

        A ledger calls this method in a transaction.

        Parameters
        ----------
        values : list of float
            Estimated quality of each choice, minus the penalty.

        costs : list of float
            Expected cost of each choice.

        amounts : list of float
            Amount to reserve for each choice.

        positions : list of int
            Positions of the choices that this request may make.

        least : float
            The smallest amount among these choices.

        books : Books
            Amounts and counts of the stream's purse, which count this request already.

        room : float
            Money that is left for this request.

        spare : float
            `room` minus what is kept back for requests to come.

        full : frozenset of int, default=frozenset()
            Choices of which a window has no room, as indices into the router's
            ``choices_``.

        price : float, default=None
            Price of the cost. None is the price at the money that is left.

        Returns
        -------
        Offer or None
            None if the cheapest choice does not fit, or if the windows of all choices
            that fit are full.
        """
        if least > room:
            return None
        fitting = []
        for position in positions:
            amount = amounts[position]
            # The cheapest choice may use what is kept back for requests to come.
            is_affordable = amount <= spare or amount == least
            if is_affordable and self.kept[position] not in full:
                fitting.append(position)
        if not fitting:
            return None
        if price is None:
            price = self.price_of_next(books)
        position = choose_one(values, costs, price, fitting)
        return Offer(
            choice=self.kept[position],
            name=self.names[position],
            cost=costs[position] * self.bill_factors[position],
            deciding=self.requests.deciding_cost,
            reserved=amounts[position],
        )

    def excludable(self):
        """Return the names of choices that can be excluded, or are excluded already."""
        if self.requests.excludable is None:
            # All choices of the router.
            return self.router.choices_
        return self.requests.excludable

    @property
    def asked_first(self):
        """Names of models that deciding itself calls. They cannot be excluded."""
        return self.requests.asked_first


class Ticket(NamedTuple):
    """A decision whose money is reserved until it is settled.

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
        Expected cost of the call. `commit` charges it by default.

    deciding : float
        Cost of deciding, which is already spent, for example for a model that computes
        an embedding of the request.

    reserved : float
        Reserved amount: `deciding` and an upper bound of the call's cost.

    answer : object, default=None
        The answer, if deciding has computed it. The call then costs nothing. If an open
        request is sent again with its key, only the first ticket has the answer.
    """

    stream: str
    id: int
    choice: int
    name: str
    cost: float
    deciding: float
    reserved: float
    answer: Any = None


class RoutedRequest(NamedTuple):
    """A request with the decision on it.

    Attributes
    ----------
    ticket : Ticket
        The decision, for which money is reserved.

    x : indexable
        The validated row.

    state : object
        State of the plan, see `Plan`. It has the answers that deciding has paid for.
    """

    ticket: Ticket
    x: Any
    state: Any


class StreamStatus(NamedTuple):
    """The amounts and counts of a stream at one moment.

    Attributes
    ----------
    budget_total : float
        The cap.

    spent : float
        Sum of the settled costs.

    reserved : float
        Sum of the amounts that are reserved for open tickets.

    n_open : int
        Number of tickets that are neither committed nor refunded.

    n_committed : int
        Number of committed tickets.

    n_refunded : int
        Number of refunded tickets.

    n_rejected : int
        Number of requests for which not even the cheapest choice fitted.
    """

    budget_total: float
    spent: float
    reserved: float
    n_open: int
    n_committed: int
    n_refunded: int
    n_rejected: int


class BudgetStream:
    r"""Decision maker for requests that come one by one, within a total budget.

    Any number of threads can use it.

    ``router.stream(budget_total)`` returns one. A request is routed in three steps, so
    that the total holds while calls are running, and if calls fail:

    1. :meth:`route` decides and **reserves** the maximal cost of the call.
    2. The caller makes the call.
    3. :meth:`commit` settles the true cost, or :meth:`refund` returns the money of a
       failed call.

    If the router has the models, :meth:`predict` does all three. A single request has
    no `allowed` or `request_id`. :meth:`exclude` excludes choices for all requests. The
    parameter `exclude` of `route` excludes them for one request. If two choices are
    tied at the price, the request gets the cheaper one.

    **A call fails.** Refund its ticket, and route the request again with the same `key`
    and with ``exclude=[ticket.name]``. It counts once among the expected requests.
    :meth:`rank` returns the order of all choices.

    **A call times out**, and may be billed. :meth:`await_bill` keeps its maximal cost
    reserved until the bill is settled, and the request can be routed again.

    The choice is Algorithm 1 of FrugalMCT, a router for APIs [1]_: the best of
    :math:`\hat q_i(x) - p\,c_i` at the router's price. If this choice exceeds the money
    that is left, the best choice that fits is taken. If not even the cheapest choice
    fits, the request is rejected with :class:`~skroute.ledgers.BudgetExhaustedError`.

    **Known number of requests.** The price of each request is that of the mean budget
    left: the money left divided by the number of requests left. For each request to
    come, the maximal cost of the cheapest choice is kept back. The first `n_expected`
    requests are therefore all answered, if no call costs more than is reserved for it.
    (With costs per row and no `max_costs`, the mean of the cheapest costs in the log is
    kept back. More expensive requests can use it up.)

    **Unknown number.** The price is that of the router's `budget` per request, and the
    total is a cap.

    **Routers that pay while they decide**, such as gates, early exits and feature
    buyers. (A cascade that decides by signals cannot be in a stream.) The cost of a
    request is known after its decision. `route` therefore reserves `max_costs`. Then it
    decides and answers the request at the mean budget that is left. It returns a ticket
    with the answer. The whole cost of the request is the cost of deciding. A request is
    rejected if less than `max_costs` is left. If a model fails, nothing is booked.
    These streams have no `windows`, `reserve`, `rank` and `set_costs`.

    Parameters
    ----------
    router : decision estimator
        Fitted. A router with a method ``request_policy``, such as BudgetRouter,
        OccamRouterClassifier or FrugalMCTClassifier, decides by a price. All other
        routers pay while they decide. The router is not changed, and can serve several
        streams.

    budget_total : float
        The cap on the sum of all costs, in the unit of the router's costs.

    n_expected : int, default=None
        Number of requests to come. None is unknown. A request that is routed again with
        its `key` counts once. Without a key it counts each time.

    max_costs : mapping from str to float or array-like, default=None
        Maximal cost of a call of each choice. This amount is reserved. None reserves
        the router's costs. It is required if a `cost_estimator` of the router estimates
        the costs. Raising them makes the cap safer and leaves more money unused while
        calls are open. If the router pays while it decides, it is required, and is one
        number: the largest cost of a request.

    ledger : Ledger, default=None
        The ledger of the bookings, see :mod:`skroute.ledgers`. None keeps them in this
        process. With a shared ledger, other processes spend from the same purse.

    purse : str, default="stream"
        Name of the purse in the ledger. Streams of the same name and ledger share it.

    within : sequence of str, default=()
        Further open purses of the ledger. Every request is also paid from these purses.

    period : {"day", "month"} or float, default=None
        Time after which the total is available again: a UTC day, a UTC month, or a
        number of seconds. None is never.

    windows : mapping from str to sequence of Window, default=None
        Limits on the calls of choices in any interval of some seconds, such as requests
        or tokens a minute. Streams of the same ledger share the windows of a choice. A
        choice whose window is full is left out of a request. A decision uses the window
        at once, whether the call fails or not. None is no limits.

    Attributes
    ----------
    router : estimator
        A copy of the router. If the original is fitted again, or its parameters are
        set, the stream does not change.

    n_expected : int or None
        The parameter.

    ledger : Ledger
        The ledger of the bookings.

    Raises
    ------
    ValueError
        If the total does not pay for the cheapest choice of all expected requests, or
        if costs of the router exceed `max_costs`.

    Notes
    -----
    The sum of committed and reserved amounts never exceeds `budget_total` (to a
    relative 1e-12 for the rounding of sums) as long as no true cost exceeds its
    reservation. A larger cost is recorded. It is first paid from money that is not
    reserved. If it breaks the cap, `commit` raises
    :class:`~skroute.ledgers.BudgetExhaustedError`.

    Without a shared `ledger`, a copy of a stream (by `pickle`, `copy` or a forked
    process) has a second purse, with the amounts of that moment and a new identity.
    Tickets that were open then can be settled once in the stream and once in its copy.
    A later ticket can be settled only in the stream that issued it. Money that was held
    for a request without a decision is free in the copy.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for
       Multi-Label Classification Tasks", ICML 2022, Algorithm 1.
    .. [2] S. Jasin, S. Kumar, "A Re-Solving Heuristic with Bounded Revenue Loss for
       Network Revenue Management with Customer Choice", Mathematics of Operations
       Research 37, 2012. (It is the reason why the price follows the mean budget left.)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> costs = {"small": 1, "large": 5}
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs=costs).fit(X, Q)
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
        windows: Mapping[str, Sequence[Window]] | None = None,
    ):
        check_is_fitted(router)
        if not hasattr(router, "make_call"):
            raise TypeError(
                f"router must be a decision estimator, got {type(router).__name__}. "
                "Derive its class from skroute.base.CostAwareMixin."
            )
        # A router without this method asks models or buys features while it decides.
        self._decides_by_price = hasattr(router, "request_policy")
        if windows is not None and not self._decides_by_price:
            raise ValueError(
                "windows must be None: this router calls models while it decides, "
                "before a window is known to have room."
            )
        terms = check_terms(budget_total, n_expected, period, name="budget_total")
        total = terms.total
        n_expected = terms.n_expected
        self._purses = _check_purses(purse, within)
        self._changing = threading.Lock()
        if ledger is not None and not isinstance(ledger, Ledger):
            raise TypeError(
                "ledger must be one of skroute.ledgers, or None for one in memory, got "
                f"{type(ledger).__name__}."
            )
        # A copy, so that a new fit or new parameters of the original have no effect.
        self.router = copy.copy(router)
        self.n_expected = n_expected
        # `mean` is the mean budget per request. `n_to_pay` is the number of requests
        # that the total must pay for.
        if n_expected is None:
            # The router's own budget. The total is a cap, which pays for one request.
            mean = router.make_call().budget
            check_affordable(mean, router.min_budget_)
            n_to_pay = 1
        else:
            mean = total / n_expected
            n_to_pay = n_expected
        self._max_costs = self._check_max_costs(max_costs)
        self._limit_use = LimitUse()
        # Number of the period in which `_limit_use` counts. None without periods, and
        # before `_charge_limits` has read the books.
        self._period_of_use: int | None = None
        # No choice is excluded yet.
        self._offers = self._make_offers(mean, excluded=frozenset())
        advice = (
            "For each expected request, the maximal cost of the cheapest choice is "
            "kept. Raise budget_total, or lower n_expected or max_costs."
        )
        # `floor` is the smallest amount of one request.
        least_total = self._offers.floor * n_to_pay
        check_affordable(total, least_total, name="budget_total", advice=advice)
        # Warnings that were given, since each comes once: names of choices whose
        # estimated cost was above its maximum, and "max_costs" if a request cost more.
        self._warned: set[str] = set()
        self.ledger = MemoryLedger() if ledger is None else ledger
        # The first purse is the stream's own, which is opened here. The others must be
        # open: `books` raises an error for an unknown one. Its result is not needed.
        for name in self._purses[1:]:
            self.ledger.books(name)
        self.ledger.open(purse, total, n_expected, period=period)
        self._windows = _check_windows(windows, router.choices_)
        for choice, windows_of_choice in self._windows.items():
            for window in windows_of_choice:
                self.ledger.open(
                    _window_name(choice, window), window.limit, window=window.seconds
                )
        # `_after_fork` now gives the stream a new lock in a forked child.
        _STREAMS.add(self)

    def _make_offers(self, mean, excluded):
        """Return the object that decides on requests: `Offers` or `PlannedRequests`.

        `mean` is the mean budget per request. Choices in `excluded`, a frozenset of
        names, are left out.
        """
        if self._decides_by_price:
            return Offers(self.router, mean, self._max_costs, excluded)
        return PlannedRequests(self.router, mean, self._max_costs, excluded)

    def _check_max_costs(self, max_costs):
        """Check the parameter `max_costs`, and return the maximal cost of each choice.

        Returns
        -------
        dict from str to float, float or None
            By choice. If the router does not decide by a price, one number: the largest
            cost of a request. None if `max_costs` is None: the costs are then exact.
        """
        if not self._decides_by_price:
            if max_costs is None:
                raise ValueError(
                    "max_costs must be given, got None: this router calls models or "
                    "buys features while it decides. Give the largest amount that a "
                    "request can cost, a number."
                )
            return check_amount(max_costs, "max_costs")
        names = self.router.choices_
        if max_costs is None:
            return None
        models = models_of(self.router)
        costs = check_costs(max_costs, models, name="max_costs").tolist()
        # Abstaining, which is not a model, costs nothing.
        bounds = dict.fromkeys(names, 0.0)
        bounds.update(zip(models, costs))
        return bounds

    def set_costs(self, costs: Any, *, max_costs: Any = None) -> None:
        """Set the price list of later decisions. Open tickets keep their costs.

        The dual price of the budget is computed again from the router's estimates. With
        a shared ledger, each worker must call this method for its own stream.

        Parameters
        ----------
        costs : mapping from str to float or array-like of shape (n_choices,)
            The router's parameter `costs`.

        max_costs : mapping from str to float or array-like, default=None
            New maximal costs. None keeps the present ones.

        Raises
        ------
        ValueError
            If costs exceed the maximal costs. If the number of requests is unknown,
            also if the cheapest choice now costs more than the router's `budget`.
            Nothing is changed.
        """
        self._check_decides_by_price("set_costs")
        with self._changing:
            router = copy.copy(self.router).set_params(costs=costs)
            if self.n_expected is None:
                check_affordable(self._offers.mean, router.min_budget_)
            bounds = self._max_costs
            if max_costs is not None:
                bounds = self._check_max_costs(max_costs)
            self._offers = Offers(
                router, self._offers.mean, bounds, self._offers.excluded
            )
            self.router = router
            self._max_costs = bounds

    def exclude(self, names: Sequence[str]) -> None:
        """Exclude choices, for example while a model is down.

        The dual price is computed again, without these choices.

        Parameters
        ----------
        names : sequence of str
            Names of choices, in addition to those that are already excluded.

        Raises
        ------
        ValueError
            For an unknown name, for a choice that deciding itself calls, or if no
            choice would be left. Nothing is changed.
        """
        with self._changing:
            names = self._check_exclusions(self._offers, names)
            self._exclude(self._offers.excluded | names)

    def _check_decides_by_price(self, method):
        """Raise a TypeError unless the router decides by estimates and a price.

        `method` is the name of the called method, for the message.
        """
        if not self._decides_by_price:
            raise TypeError(
                f"{method} is for routers that decide by estimates and a price. "
                f"{type(self.router).__name__} calls models or buys features while it "
                "decides: use route or predict."
            )

    def _check_exclusions(self, offers, names):
        """Return names to exclude as a set, or raise a ValueError if one must stay."""
        names = check_names(names, offers.excludable())
        needed = sorted(set(names) & set(offers.asked_first))
        if needed:
            raise ValueError(
                f"{needed[0]!r} cannot be excluded: deciding asks it for every "
                "request. Make a stream of a router that decides without it."
            )
        return set(names)

    def _positions_without(self, offers, exclude):
        """Return the positions of offered choices that a request may make.

        Parameters
        ----------
        offers : Offers
        exclude : sequence of str
            Names of choices. An empty one leaves all.

        Returns
        -------
        list of int
            Not empty. It is shared by requests, and must not be changed.
        """
        if len(exclude) == 0:
            return offers.all_positions
        names = self._check_exclusions(offers, exclude)
        positions = []
        for position in offers.all_positions:
            if offers.names[position] not in names:
                positions.append(position)
        if not positions:
            raise ValueError(
                f"exclude={exclude!r} leaves no choice of {offers.names!r}: leave out "
                "fewer."
            )
        return positions

    def include(self, names: Sequence[str] | None = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices. None is all.

        Raises
        ------
        ValueError
            For an unknown name.
        """
        included = self._offers.excludable()
        if names is not None:
            included = check_names(names, included)
        with self._changing:
            self._exclude(self._offers.excluded - set(included))

    def _exclude(self, names):
        """Offer all choices except `names`. The caller holds the lock `_changing`."""
        self._offers = self._make_offers(self._offers.mean, frozenset(names))

    def top_up(self, amount: float, *, n_more: int = 0) -> None:
        """Add money to the total (of the current period, if there are periods).

        Parameters
        ----------
        amount : float
            Amount to add.

        n_more : int, default=0
            Number of further requests, if the number is known.
        """
        self.ledger.top_up(self._purses[0], amount, n_more)

    def reset(self) -> None:
        """Start again with the first total. Open tickets stay open.

        The amounts that the router limits are counted from 0, too.
        """
        self.ledger.reset(self._purses[0])
        with self._changing:
            self._limit_use = LimitUse()

    def route(
        self,
        x: Any,
        *,
        costs: ArrayLike | None = None,
        key: str | None = None,
        exclude: Sequence[str] = (),
        uses: Mapping[str, float] | None = None,
    ) -> Ticket:
        """Decide on one request and reserve what its call can cost.

        The smallest amount is held before the router reads the request. A request that
        will be rejected therefore costs no computation and no call of a member that
        embeds. The estimates are computed outside the lock.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row of what the router was fitted on, for example a list with one text.

        costs : array-like of shape (n_choices,) or (1, n_choices), default=None
            Costs of this request, if the router was fitted on costs per row. They are
            its quotes if the router was fitted with ``quoted_costs``. They are required
            unless the router has a `cost_estimator`.

        key : str, default=None
            Identity of the request. If the request is sent again while its ticket is
            open, it gets the same ticket, and nothing more is reserved. If it is sent
            again after `refund` or `await_bill`, it gets a new ticket, and counts once
            among the expected requests.

        exclude : sequence of str, default=()
            Names of choices that this request must not get, for example the model that
            has just failed. The dual price is that of all offered choices.

        uses : mapping from str to float, default=None
            Amount of each resource that the call uses of its windows, for example
            ``{"tokens": 812}``. It is required if the stream has windows of resources
            other than ``"requests"``, of which each call uses 1.

        Returns
        -------
        Ticket
            Named tuple ``(stream, id, choice, name, cost, deciding, reserved,
            answer)``.

        Raises
        ------
        ValueError
            For bad costs, costs above `max_costs`, estimates that are not numbers, or
            an `exclude` that leaves no choice. Nothing stays reserved.
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        WindowFullError
            If a choice fits what is left, but no choice that fits has room in its
            windows.
        AlreadyCommittedError
            If the request of this key is already paid.
        """
        return self._route(x, costs, key=key, exclude=exclude, uses=uses).ticket

    def _route(self, x, costs, *, key=None, exclude=(), uses=None):
        """Decide on one request and reserve its amount (`RoutedRequest`).

        The parameters are those of `route`.
        """
        if not self._decides_by_price:
            if costs is not None or uses is not None:
                raise ValueError(
                    "costs and uses must be None: this router calls models or buys "
                    "features while it decides, and says what this costs."
                )
            return self._plan_request(x, key=key, exclude=exclude)
        offers = self._offers
        x = check_rows(self.router, x, reset=False)
        _check_one_request(x)
        row_costs = self._check_request_costs(offers, costs, may_estimate=True)
        positions = self._positions_without(offers, exclude)
        window_uses = self._window_uses(uses)
        # Amount to reserve for each offered choice. If the router estimates the costs,
        # it is the maximal cost.
        amounts = offers.amounts_to_reserve(row_costs)
        least = min([amounts[position] for position in positions])
        # The ledger holds the smallest amount before any estimate is computed.
        held = self.ledger.hold(self._purses, least, _check_key(key))
        if held.state == "open":
            # A request of this key was decided before, and keeps its ticket. Answers
            # that its decision has paid for are lost: `state` is None.
            return RoutedRequest(_ticket(held), x, state=None)
        try:
            estimates = offers.estimate(x)
            quality = estimates.quality[0].tolist()
            if row_costs is None:
                row_costs = self._estimate_costs(offers, x)
        except BaseException:
            self.ledger.release(held)
            raise
        ticket = self._issue(
            offers,
            quality,
            row_costs,
            positions=positions,
            window_uses=window_uses,
            held=held,
            key=key,
            answers=estimates.answers,
        )
        return RoutedRequest(ticket, x, estimates.state)

    def _plan_request(self, x, *, key, exclude):
        """Decide on one request and answer it, by a router that pays while it decides.

        It replaces `_route` for such a router, and returns a `RoutedRequest`.

        Parameters
        ----------
        x : indexable
            One row.
        key : str or None
            Identity of the request.
        exclude : sequence of str
            Names that this request must not get.
        """
        _check_one_request(x)
        # Since this router pays while it decides, `_make_offers` has made
        # `PlannedRequests`.
        planned = self._offers
        # The ledger holds the largest amount before any model is asked.
        held = self.ledger.hold(self._purses, planned.largest_cost, _check_key(key))
        if held.state == "open":
            # A request of this key was decided before, and keeps its ticket. Answers
            # that its decision has paid for are lost: `state` is None.
            return RoutedRequest(_ticket(held), x, state=None)
        try:
            plan = planned.plan(x, self.books(), exclude)
            answer = self.router.answer(plan)[0]
        except BaseException:
            self.ledger.release(held)
            raise
        offer = planned.offer_of(plan)
        reservation = self.ledger.reserve(
            self._purses,
            partial(_take_paid, offer),
            least=offer.reserved,
            held=held,
            key=key,
        )
        is_above = not affords(planned.largest_cost, offer.deciding)
        if is_above and "max_costs" not in self._warned:
            self._warned.add("max_costs")
            warn(
                f"A request cost {offer.deciding:.6g}, above the max_costs of "
                f"{planned.largest_cost:.6g}. The cost is recorded. Give the stream "
                "the largest cost of a request: its total is not safe otherwise. (This "
                "warning comes once.)"
            )
        return RoutedRequest(_ticket(reservation, answer), x, plan.state)

    def _estimate_costs(self, offers, x):
        """Return estimated costs of offered choices, each at most its maximal cost."""
        estimated = offers.estimate_costs(x)
        for name, cost, bound in zip(offers.names, estimated, offers.max_costs):
            if cost > bound * (1 + ROUNDING) and name not in self._warned:
                self._warned.add(name)
                warn(
                    f"The cost_estimator says that a call of {name!r} costs "
                    f"{cost:.6g}, above its max_costs of {bound!r}, which is taken "
                    "instead. If calls do cost more, give the stream a larger bound. "
                    "(This warning comes once.)"
                )
        return list(map(min, estimated, offers.max_costs))

    def reserve(
        self,
        quality: ArrayLike,
        *,
        costs: ArrayLike | None = None,
        key: str | None = None,
        exclude: Sequence[str] = (),
        uses: Mapping[str, float] | None = None,
    ) -> Ticket:
        """Decide on one request with known estimates of quality, and reserve its cost.

        `route` is ``reserve(router.predict_quality(x)[0])``. Use `reserve` in services
        that estimate in batches, or by other means. It takes some microseconds.

        Parameters
        ----------
        quality : array-like of shape (n_choices,)
            Estimated quality of each choice. Its penalty is subtracted here.

        costs : array-like of shape (n_choices,), default=None
            Expected cost of each choice for this request. They are required if the
            router was fitted on costs per row, and refused otherwise.

        key : str, default=None
            Identity of the request, see `route`.

        exclude : sequence of str, default=()
            Names of choices that this request must not get, see `route`.

        uses : mapping from str to float, default=None
            Amounts that the call uses of its windows, see `route`.

        Returns
        -------
        Ticket
            Named tuple ``(stream, id, choice, name, cost, deciding, reserved,
            answer)``.

        Raises
        ------
        ValueError
            If quality or costs are not finite numbers, if costs exceed `max_costs`, or
            if `exclude` leaves no choice. Nothing is reserved.
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.
        WindowFullError
            If a choice fits what is left, but no choice that fits has room in its
            windows.
        AlreadyCommittedError
            If the request of this key is already paid.
        """
        self._check_decides_by_price("reserve")
        offers = self._offers
        row_costs = self._check_request_costs(offers, costs, may_estimate=False)
        return self._issue(
            offers,
            self._offered_estimates(offers, quality),
            row_costs,
            positions=self._positions_without(offers, exclude),
            window_uses=self._window_uses(uses),
            held=None,
            key=_check_key(key),
            answers={},
        )

    def rank(
        self,
        quality: ArrayLike,
        *,
        costs: ArrayLike | None = None,
        exclude: Sequence[str] = (),
    ) -> list[str]:
        """Rank the choices for a request by value minus dual price times cost.

        Nothing is reserved. The first name is the choice of `reserve`, if the money and
        the windows have room for it. The others are the next ones to try after
        failures.

        Parameters
        ----------
        quality : array-like of shape (n_choices,)
            Estimated quality of each choice, as in `reserve`.

        costs : array-like of shape (n_choices,), default=None
            Expected cost of each choice, as in `reserve`.

        exclude : sequence of str, default=()
            Names of choices that are left out.

        Returns
        -------
        list of str
            Names of choices, by value minus price times cost, the best first. Excluded
            choices are not in it.

        Raises
        ------
        ValueError
            As in `reserve`.
        """
        self._check_decides_by_price("rank")
        offers = self._offers
        estimates = self._offered_estimates(offers, quality)
        row_costs = self._check_request_costs(offers, costs, may_estimate=False)
        positions_left = list(self._positions_without(offers, exclude))
        books = self.books()
        # `price_of_next` expects that the books count the request already.
        books = books._replace(n_started=books.n_started + 1)
        price = offers.price_of_next(books)
        values = offers.values(estimates)
        if offers.pacer is not None:
            values, price = self._charge_limits(offers.pacer, values)
        ranked = []
        while positions_left:
            position = choose_one(values, row_costs, price, positions_left)
            ranked.append(offers.names[position])
            positions_left.remove(position)
        return ranked

    def _offered_estimates(self, offers, quality):
        """Return the estimated quality of each offered choice, a list of floats.

        `quality` is an array-like with an entry for each choice of the router.
        """
        estimates = _one_row(quality, self.router.choices_, "quality")
        return [estimates[index] for index in offers.kept]

    def _window_uses(self, uses):
        """Return what a call of each choice uses of its rate limits, such as tokens.

        Parameters
        ----------
        uses : mapping from str to float, or None
            Amounts by resource. The resource ``"requests"``, which is 1, is left out.

        Returns
        -------
        dict from int to tuple of WindowUse, or None
            By index of the choice. None if the stream has no windows.
        """
        if uses is None and not self._windows:
            return None
        amounts = {}
        for resource, amount in (uses or {}).items():
            amounts[resource] = check_amount(amount, f"uses[{resource!r}]")
        if "requests" in amounts:
            raise ValueError(
                "uses must not have 'requests', got "
                f"{amounts['requests']!r}: each call is 1. Leave it out."
            )
        if not self._windows:
            return None
        amounts["requests"] = 1.0
        uses_by_choice = {}
        for choice, windows in self._windows.items():
            uses_of_choice = []
            for window in windows:
                if window.resource not in amounts:
                    raise ValueError(
                        f"uses must have the {window.resource!r} of this request, got "
                        f"{uses!r}: {choice!r} has a window of them."
                    )
                use = WindowUse(_window_name(choice, window), amounts[window.resource])
                uses_of_choice.append(use)
            index = self.router.choices_.index(choice)
            uses_by_choice[index] = tuple(uses_of_choice)
        return uses_by_choice

    def _check_request_costs(self, offers, costs, *, may_estimate):
        """Return the costs of one request, or None if the router must estimate them.

        Parameters
        ----------
        offers : Offers
            The offered choices.

        costs : array-like of shape (n_models,), (1, n_models) or None
            Costs of the request, if the user has given any.

        may_estimate : bool
            False if the request cannot be read, so that the costs are required.

        Returns
        -------
        list of float or None
            In the order of the offered choices.
        """
        if offers.costs is not None:
            if costs is not None:
                raise ValueError(
                    "costs must be None: this router was not fitted on costs per row. "
                    "For other prices use set_costs."
                )
            return offers.costs
        if costs is None:
            if may_estimate and offers.requests.estimates_costs:
                return None
            raise ValueError(
                "costs must be given, got None: the router's costs are per row."
            )
        models = models_of(self.router)
        row_costs = _one_row(costs, models, "costs", low=0.0)
        if len(self.router.choices_) > len(models):
            # Abstaining, the last choice, costs nothing.
            row_costs.append(0.0)
        row_costs = [row_costs[index] for index in offers.kept]
        if offers.max_costs is not None:
            offers.check_below_max(row_costs)
        return row_costs

    def _issue(
        self,
        offers,
        quality,
        costs,
        *,
        positions,
        window_uses,
        held,
        key,
        answers,
    ):
        """Choose, reserve the amount of the choice, and return the `Ticket`.

        Parameters
        ----------
        offers : Offers
            The offered choices.

        quality, costs : list of float
            Estimated quality and expected cost of each offered choice.

        positions : list of int
            Positions of the offered choices that the request may make.

        window_uses : dict from int to tuple of WindowUse, or None
            What a call of each choice uses of its windows. None is no windows.

        held : skroute.ledgers.Reservation or None
            The amount that is already held for the request. None: nothing is held.

        key : str or None
            Identity of the request.

        answers : dict
            Answers that deciding has paid for, by index of the choice in ``choices_``.
        """
        values = offers.values(quality)
        amounts = offers.amounts_to_reserve(costs)
        least = min([amounts[position] for position in positions])
        price = None  # that of the money that is left, which `choose` computes
        if offers.pacer is not None:
            values, price = self._charge_limits(offers.pacer, values)
        try:
            reservation = self.ledger.reserve(
                self._purses,
                partial(
                    offers.choose,
                    values,
                    costs,
                    amounts,
                    positions,
                    least,
                    price=price,
                ),
                least=least,
                keep=offers.floor,
                held=held,
                key=key,
                uses=window_uses,
            )
        except BaseException as error:
            # After an interrupt, the ledger may not have released the held amount.
            if held is not None and not isinstance(error, Exception):
                self.ledger.release(held)
            raise
        if offers.pacer is not None:
            position = offers.kept.index(reservation.offer.choice)
            amounts_of_limits = offers.pacer.amounts_of(position)
            with self._changing:
                self._limit_use.start(reservation.number, amounts_of_limits)
        # None if deciding has not computed the answer of this choice.
        answer = answers.get(reservation.offer.choice)
        return _ticket(reservation, answer)

    def _charge_limits(self, pacer, values):
        """Return values minus limit prices times amounts, and the dual price of cost.

        Parameters
        ----------
        pacer : LimitPacer
            Its prices are computed again if `is_update_due` returns True.
        values : list of float
            Estimated quality of each offered choice, minus the penalty.

        Returns
        -------
        (values, price) : (list of float, float)
        """
        with self._changing:
            if pacer.is_update_due(self._limit_use):
                books = self.books()
                if books.period != self._period_of_use:
                    if self._period_of_use is not None:
                        # A new period has begun. Amounts are counted from 0 in each
                        # period, as the money is. (None: no period was seen before.)
                        self._limit_use = LimitUse()
                    self._period_of_use = books.period
                pacer.update_prices(books, self._limit_use)
            charges = pacer.charges
            price = pacer.budget_price
        return [value - charge for value, charge in zip(values, charges)], price

    def predict(self, x: Any) -> Any:
        """Answer one request with the models of the router.

        This is `route`, the call of the model, and `commit`.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row of what the router was fitted on.

        Returns
        -------
        object
            The label, or the row of labels if there are several.

        Raises
        ------
        BudgetExhaustedError
            If not even the cheapest choice fits what is left.

        TypeError
            If the router decides between names of models that it does not have.

        Exception
            The exception of a model that failed. Its call is refunded.
        """
        if not self._decides_by_price:
            ticket = self._route(x, None).ticket
            self.commit(ticket)
            return ticket.answer
        if not hasattr(self.router, "estimators_"):
            raise TypeError(
                f"{type(self.router).__name__} has no models to answer with. Use "
                "route, call the model that it names, and commit."
            )
        ticket, row, state = self._route(x, None)
        try:
            plan = Plan(
                np.array([ticket.choice]), np.array([ticket.cost]), state, X=row
            )
            answer = self.router.answer(plan)[0]
        except BaseException:
            self.refund(ticket)
            raise
        self.commit(ticket)
        return answer

    def commit(
        self,
        ticket: Ticket,
        cost: float | None = None,
        amounts: Mapping[str, float] | None = None,
    ) -> None:
        """Settle a ticket: the call was made.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, of any process that shares the purse. It is not
            settled, and may have expired.

        cost : float, default=None
            Cost of the call, without that of deciding. None takes ``ticket.cost``.

        amounts : mapping from str to float, default=None
            Amount that the call took under each limit of the router, such as
            ``{"seconds": 0.7}``. An amount that is left out counts with the mean of the
            choice.

        Raises
        ------
        ValueError
            If the ticket is not open, or if the cost is not a number of at least 0.
            Nothing is changed.
        BudgetExhaustedError
            If the cost breaks the cap, because it exceeds the reserved amount or
            because the reservation has expired. The cost is recorded.
        """
        cost = ticket.cost if cost is None else check_amount(cost, "cost")
        amounts = self._check_amounts(amounts)
        excess, is_expired = self._settle(ticket, cost)
        with self._changing:
            self._limit_use.settle(ticket.id, amounts)
        reserved = ticket.reserved - ticket.deciding
        # A call cannot break a cap if its whole cost was reserved until now.
        was_reserved = not is_expired and cost <= reserved
        if excess <= 0 or was_reserved:
            return
        # A total that is exceeded by the rounding of sums only is not broken.
        for books in map(self.ledger.books, self._purses):
            if books.spent > books.total * (1 + ROUNDING):
                raise BudgetExhaustedError(
                    f"The cap of {books.total:.6g} is broken by {excess:.6g}: the call "
                    f"of {ticket.name!r} cost {cost:.6g} where {reserved:.6g} was "
                    "reserved, or was committed after its deadline. The cost is "
                    "recorded. Give the stream max_costs that are upper bounds, and "
                    "the ledger a timeout that no call exceeds."
                )

    def refund(self, ticket: Ticket) -> None:
        """Free the money of a failed call, except the cost of deciding.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, not settled.

        Raises
        ------
        ValueError
            If the ticket is not open. Nothing is changed.
        """
        self._settle(ticket, None)
        with self._changing:
            self._limit_use.cancel(ticket.id)

    def _check_amounts(self, amounts):
        """Return amounts of a call as a dict of floats, or raise a ValueError.

        `amounts` is a mapping from names of limits, or None for no amounts.
        """
        pacer = self._offers.pacer
        names = [] if pacer is None else pacer.names
        checked = {}
        for name, amount in (amounts or {}).items():
            if name not in names:
                raise ValueError(
                    f"amounts names {name!r}, which is not one of the limits of this "
                    f"stream, {names!r}."
                )
            checked[name] = check_amount(amount, f"amounts of {name!r}")
        return checked

    def await_bill(self, ticket: Ticket, *, timeout: float | None = None) -> None:
        """Keep money reserved for a call that timed out and may be billed.

        The maximal cost of the call stays reserved, so that its bill cannot break the
        cap. The dual price counts its expected cost. When the provider's bill comes,
        settle the ticket with `commit` at the billed cost, or with `refund` if the call
        is not on the bill. The difference is then free. Until then, `unsettled` lists
        the ticket.

        The `key` of the request is free: `route` gives the request another ticket, for
        example with ``exclude=[ticket.name]``. The request counts once among the
        expected ones.

        Parameters
        ----------
        ticket : Ticket
            From `route` or `reserve`, open.

        timeout : float, default=None
            Seconds after which the call is taken as not billed, and its money is free
            again. Set it to the time after which the provider's bills are complete. A
            later bill is still booked, and may break the cap. None is never. The
            ledger's `timeout` no longer acts on the ticket.

        Raises
        ------
        ValueError
            If the ticket is not open, or has passed its deadline. Nothing is changed.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from skroute.routing import BudgetRouter
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
        >>> costs = {"small": 1, "large": 5}
        >>> router = BudgetRouter(Ridge(alpha=1e-3), costs=costs).fit(X, Q)
        >>> stream = router.stream(20, n_expected=2)
        >>> late = stream.route([[0.9]], key="request 1")
        >>> stream.await_bill(late)
        >>> again = stream.route([[0.9]], key="request 1", exclude=[late.name])
        >>> late.name, again.name, stream.books().n_started
        ('large', 'small', 1)
        >>> stream.commit(again)
        >>> stream.commit(late, 2.0)  # the bill
        >>> stream.status().spent
        3.0
        """
        self.ledger.await_bill(
            ticket.stream,
            ticket.id,
            self._purses[0],
            _offer_of(ticket),
            seconds=timeout,
        )

    def _settle(self, ticket, cost):
        """Book the cost of a ticket, or its refund if `cost` is None.

        Returns
        -------
        excess : float
            Money spent beyond the total, the largest of all purses. It is negative if
            all have money left.
        is_expired : bool
            True if the ticket had passed its deadline.
        """
        return self.ledger.settle(
            ticket.stream, ticket.id, self._purses[0], _offer_of(ticket), cost
        )

    def unsettled(self) -> list[Ticket]:
        """Return the open and expired tickets of all processes, oldest first.

        Returns
        -------
        list of Ticket
            Tickets that await their bills are among them. After a crash, commit the
            tickets that the providers bill, and refund the others.
        """
        reservations = self.ledger.unsettled(self._purses[0])
        return [_ticket(reservation) for reservation in reservations]

    def books(self) -> Books:
        """Return all amounts and counts of the stream's purse.

        Returns
        -------
        Books
            Named tuple. Its docstring describes the fields.
        """
        return self.ledger.books(self._purses[0])

    def status(self) -> StreamStatus:
        """Return the amounts and counts of the stream.

        Returns
        -------
        StreamStatus
            Named tuple ``(budget_total, spent, reserved, n_open, n_committed,
            n_refunded, n_rejected)``.
        """
        books = self.books()
        return StreamStatus(
            budget_total=books.total,
            spent=books.spent,
            reserved=books.reserved,
            n_open=books.n_open,
            n_committed=books.n_committed,
            n_refunded=books.n_refunded,
            n_rejected=books.n_rejected,
        )

    def __repr__(self):
        """Return the router, and the spent and reserved amounts."""
        status = self.status()
        return (
            f"BudgetStream({type(self.router).__name__}, {status.spent:.6g} spent and "
            f"{status.reserved:.6g} reserved of {status.budget_total:.6g})"
        )

    def __getstate__(self):
        """Return the state without the lock, with a copy of the ledger."""
        with self._changing:
            state = self.__dict__.copy()
        del state["_changing"]
        # A copy of a ledger in memory has its own purses. Other ledgers are found by
        # their address.
        state["ledger"] = copy.copy(self.ledger)
        return state

    def __setstate__(self, state):
        """Set the state, with a new lock."""
        self.__dict__.update(state)
        self._forked()
        _STREAMS.add(self)

    def _forked(self):
        """Create a new lock, since a forked child cannot release the parent's."""
        self._changing = threading.Lock()


def _ticket(reservation, answer=None):
    """Return the `Ticket` of an open reservation of a ledger.

    `answer` is None if deciding has not computed the answer.
    """
    # An offer has the fields of a ticket from `choice` to `reserved`, in this order.
    return Ticket(reservation.ledger, reservation.number, *reservation.offer, answer)


def _offer_of(ticket):
    """Return the `Offer` that a ticket was issued for."""
    return Offer(
        ticket.choice, ticket.name, ticket.cost, ticket.deciding, ticket.reserved
    )


def _window_name(choice, window):
    """Return the name by which the ledger counts a rate limit (`Window`) of a choice.

    All streams of the ledger share the windows of the same name.
    """
    return f"{choice}: {window.resource} in {float(window.seconds):g} s"


def _check_windows(windows, choices):
    """Return the windows of each choice, a dict from str to list of Window.

    If `windows` is None, which is no limits, the dict is empty.
    """
    if windows is None:
        return {}
    if not isinstance(windows, Mapping):
        raise TypeError(
            "windows must be a mapping from names of choices to lists of "
            f"skroute.ledgers.Window, got {type(windows).__name__}."
        )
    check_names(windows, choices)
    checked = {}
    for choice, windows_of_choice in windows.items():
        if isinstance(windows_of_choice, Window) or not all(
            isinstance(window, Window) for window in windows_of_choice
        ):
            raise TypeError(
                f"windows[{choice!r}] must be a list of skroute.ledgers.Window, got "
                f"{windows_of_choice!r}."
            )
        checked[choice] = list(windows_of_choice)
    return checked


def _check_one_request(x):
    """Raise an error unless `x` has one row: a stream decides on single requests."""
    if num_samples(x) != 1:
        raise ValueError(
            f"x must be one row, shape (1, n_features), got {num_samples(x)}."
        )


def _take_paid(offer, books, room, spare):
    """Return `offer`, whose cost is spent already, without regard to the money left.

    A ledger calls this function in place of `Offers.choose`, with the same arguments.
    """
    return offer


def _check_key(key):
    """Return the identity of a request, or raise an error if it is not allowed.

    It must be a text that is not empty, or None for no identity.
    """
    if key is not None and (not isinstance(key, str) or not key):
        raise ValueError(
            f"key must be a string that is not empty, or None, got a {type(key)}."
        )
    return key


def _check_purses(purse, within):
    """Return the names of the purses that pay a request, the stream's own first.

    Raise a ValueError if a name is not a text, or is there twice.
    """
    if isinstance(within, str):
        raise ValueError(
            f"within must be a sequence of names of purses, got {within!r}."
        )
    names = (purse, *within)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"The name of a purse must be a string, not empty, got {name!r}."
            )
    if len(set(names)) < len(names):
        raise ValueError(
            f"A stream cannot be within the same purse twice, got {names!r}."
        )
    return names


def _one_row(row, choices, name, low=-np.inf):
    """Return a row as a list of finite numbers, one for each choice.

    Parameters
    ----------
    row : array-like of shape (n_choices,) or (1, n_choices), mapping or dataframe
        A mapping, a series with names as labels and a data frame are read by name.
    choices : list of str
    name : str
        The parameter that error messages name.
    low : float, default=-inf
        The smallest number that is allowed.

    Returns
    -------
    list of float
    """
    is_float_array = type(row) is np.ndarray and row.dtype == np.float64
    n_choices = len(choices)
    if is_float_array and row.shape == (n_choices,):
        # The usual row. This takes a fifth of the time of the checks below.
        numbers = row.tolist()
        if all(map(isfinite, numbers)) and min(numbers) >= low:
            return numbers
    row = by_label(row)
    if isinstance(row, Mapping):
        check_entries(name, row, choices)
        number_of_choice = {str(choice): number for choice, number in row.items()}
        row = [number_of_choice[choice] for choice in choices]
    row = check_numbers(in_order(row, choices, name), name, low=low)
    if row.shape not in ((n_choices,), (1, n_choices)):
        raise ValueError(f"{name} must have shape ({n_choices},), got {row.shape}.")
    return row.ravel().tolist()
