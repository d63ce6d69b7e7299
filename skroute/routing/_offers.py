"""What a stream decides between, at which prices: FrugalMCT's Algorithm 1 for one request."""

import copy
from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from skroute.base import ROUNDING, affords
from skroute.ledgers import Offer
from skroute.routing._validation import weighted_path

# As in choose_at_price: efficiencies that differ by rounding are a tie.
_TIE = 1e-9
# Nothing is bought at an infinite price; this one can be multiplied with a cost of 0.
_MOST = 1e15


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


def check_told(names, costs, bounds):
    """Refuse costs above what a call can cost at most, before money moves."""
    for name, cost, bound in zip(names, costs, bounds):
        if not affords(bound, cost):
            raise ValueError(
                f"The cost of {name!r} is {cost!r}, above its max_costs of {bound!r}. Nothing "
                "was reserved. max_costs must be upper bounds: make a stream with larger ones."
            )


def without(policy, allowed):
    """The policy whose price is that of some of the choices alone.

    Parameters
    ----------
    policy : PricedPolicy
    allowed : list of int

    Returns
    -------
    PricedPolicy
    """
    if len(allowed) == len(policy.docked):
        return policy
    rest = copy.copy(policy)
    values = (policy.estimate - policy.docked)[:, allowed]
    logged = None if policy.costs is policy.planned else policy.costs[..., allowed]
    rest.path = weighted_path(values, policy.planned[..., allowed], logged, policy.weight)
    least = float(np.min(policy.costs[..., allowed], axis=-1).mean())
    if policy.known is not None:
        least = float(rest.path.budgets[0])
    rest.least = least + policy.deciding
    return rest


class PriceLookup:
    """`PricedPolicy.price` of one budget after another, without arrays.

    Parameters
    ----------
    policy : PricedPolicy
    """

    def __init__(self, policy):
        path = policy.path
        self._budgets, self._prices = path.budgets.tolist(), path.prices.tolist()
        self._counts = path.counts.tolist()
        self._share, self._deciding = float(1 - policy.margin), float(policy.deciding)
        self._rates = [float(rate) for rate in policy.rates]

    def price(self, budget):
        """What `policy.price` says of a mean budget, and between which budgets it is the same."""
        first = self._budgets[0]
        room = self._share * (budget - self._deciding)
        # As `PricedPolicy.room` and `AssignmentPath.rule` have it.
        if budget <= (first + self._deciding) * (1 + ROUNDING) or room <= first * (1 + ROUNDING):
            return np.inf, budget, budget
        rate = self._rates[budget == np.inf]
        k = bisect_right(self._budgets, room * (1 + ROUNDING)) - 1
        if k == len(self._prices) - 1:
            # Only an infinite budget has another one.
            return rate, budget, max(budget, _MOST)
        low, high = self._budgets[k : k + 2]
        if self._counts[k] == 1:
            k += round((room - low) / (high - low))
            return max(self._prices[k], rate), budget, budget
        low = (low / self._share + self._deciding) * (1 + _TIE)
        high = (high / self._share + self._deciding) * (1 - _TIE)
        return max(self._prices[k], rate), min(low, budget), max(high, budget)


class Offers:
    """The choices of a stream with their costs; another one is made when these change.

    Parameters
    ----------
    router : estimator
        With ``choices_`` and ``_trade``.
    trade : Trade
    mean : float
        The budget per request where the number of requests is unknown.
    max_costs : list of float or None
    excluded : frozenset of str
        Not all of them.
    """

    def __init__(self, router, trade, mean, max_costs, excluded):
        policy = trade.policy
        self.router, self.trade, self.mean = router, trade, mean
        self.max_costs, self.excluded = max_costs, excluded
        self.docked = policy.docked.tolist()
        n = len(self.docked)
        self.names = [str(name) for name in router.choices_[trade.first : trade.first + n]]
        self.allowed = [i for i, name in enumerate(self.names) if name not in excluded]
        self.costs = None if policy.per_row else policy.planned.tolist()
        self.deciding = policy.deciding
        if self.costs is not None and max_costs is not None:
            check_told(self.names, self.costs, max_costs)
        # Made once where the costs are the same for every request.
        self._lines = None if self.costs is None else self._lines_of(self.costs)
        # What one request takes at least; with costs per row the log's mean.
        self.policy = without(policy, self.allowed)
        known = max_costs or self.costs
        self._least = None if known is None else self._least_of(known)
        self.floor = self.policy.least if known is None else self._least
        self._lookup = PriceLookup(self.policy)
        self._own_price = self.price_of(mean)
        # The price last looked up, and the budgets that it is the price of.
        self._near = (mean, mean, self._own_price)

    def least(self, costs):
        """The smallest amount that a request can take."""
        return self._least_of(costs) if self._least is None else self._least

    def _least_of(self, bounds):
        return self.deciding + min([bounds[i] for i in self.allowed])

    def _lines_of(self, costs):
        """For each choice what it takes, its offer and its penalty; the cheapest call first."""
        bounds, deciding, first = self.max_costs or costs, self.deciding, self.trade.first
        lines = []
        for i in sorted(self.allowed, key=bounds.__getitem__):
            # As ledgers sum it: what fits by another rounding would be refused for ever.
            takes = deciding + bounds[i]
            offer = Offer(first + i, self.names[i], costs[i], deciding, takes)
            lines.append((takes, i, costs[i], self.docked[i], offer))
        return lines

    def price_of(self, budget):
        """Price of a mean budget, as a number that costs can be multiplied with."""
        return self._priced(budget)[2]

    def _priced(self, budget):
        price, low, high = self._lookup.price(max(budget, self.deciding))
        return low, high, min(price, _MOST) * (1 + _TIE)

    def price(self, books):
        """Price for a request that the books have counted already."""
        n_expected = books.n_expected
        if n_expected is None:
            return self._own_price
        n_left = n_expected - books.n_started + 1
        budget = (books.total - books.spent - books.pending) / (n_left if n_left > 1 else 1)
        low, high, price = self._near
        if low <= budget <= high:
            return price
        self._near = near = self._priced(budget)
        return near[2]

    def choose(self, quality, costs, books, room, spare):
        """Algorithm 1: the best at the price among what fits, at last the cheapest.

        Parameters
        ----------
        quality : list of float
            Estimated quality of each choice, before the penalty.
        costs : list of float
        books : Books
            With this request counted as started.
        room : float
            What is neither spent nor reserved.
        spare : float
            What of it remains beside the least for each request that is still expected.

        Returns
        -------
        Offer or None
            None if not even the cheapest fits.
        """
        lines = self._lines or self._lines_of(costs)
        takes, i, cost, docked, chosen = lines[0]
        if takes > room:
            return None
        price = self._own_price if books.n_expected is None else self.price(books)
        value = quality[i] - docked
        net = value - price * cost
        best = net, -cost, value
        for takes, i, cost, docked, offer in lines:
            if takes <= spare:
                value = quality[i] - docked
                net = value - price * cost
                # Ties go to the cheaper choice, and of equal costs to the better.
                if net >= best[0] and (net, -cost, value) > best:
                    chosen, best = offer, (net, -cost, value)
        return chosen
