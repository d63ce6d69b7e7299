"""The state of an online router while it serves: decisions, outcomes, choices that come and go."""

import secrets
import threading
from typing import NamedTuple

import numpy as np

from skroute.routing._online_beliefs import (
    COST,
    QUALITY,
    added,
    kept,
    learn_outcome,
    newcomer,
    noise_of,
)
from skroute.routing._online_pacer import (
    EVERY,
    LEAST_RATIO,
    SETTLE,
    book,
    correct,
    least_of,
    note_row,
    rate_of,
    solve_price,
    window_of,
)

# Decisions whose outcome is waited for; the oldest beyond so many count as missing.
_MOST_OPEN = 100_000
# Tries of a choice of which nothing is known, made while the books allow for them.
_FIRST_TRIES = 5


class Decision(NamedTuple):
    """A choice made for one request, whose outcome is not known yet.

    Attributes
    ----------
    id : int
        Number of the request.

    name : str
        The choice.

    expected_quality : float
        What the choice is believed to be worth for this request.

    expected_cost : float
        What it is believed to cost, in the unit of `costs`; charged until `commit` says better.

    explored : float
        Value, in units of quality, that the request gives up so that more is known: the best
        of estimated quality less price times cost, less that of the choice made.

    row : ndarray of shape (n_features + 1,)
        The request's features as they were learned from, a 1 before them.

    base : ndarray of shape (2,)
        What the prior said of quality and relative cost.

    key : int
        By which the router that made it knows it from those of others.
    """

    id: int
    name: str
    expected_quality: float
    expected_cost: float
    explored: float
    row: np.ndarray
    base: np.ndarray
    key: int


class OnlineStatus(NamedTuple):
    """Where an online router stands, read at one moment.

    Attributes
    ----------
    n_requests : int
        Requests decided.

    n_open : int
        Those whose outcome has not come.

    mean_cost : float
        What a request has cost on average, expected costs standing in for those not told.

    price : float
        Quality that one unit of cost is worth.

    shares : dict from str to float
        Share of the requests that each choice got.

    n_told : dict from str to int
        Outcomes of quality that each choice has learned from.

    explored : float
        Mean value given up for exploration, in units of quality.
    """

    n_requests: int
    n_open: int
    mean_cost: float
    price: float
    shares: dict
    n_told: dict
    explored: float


class Serving:
    """Beliefs, books and open decisions under one lock. Names and checks are the router's."""

    def __init__(self, names, prices, beliefs, pacer, exploration):
        self.names = list(names)
        self.prices = prices
        self.beliefs = beliefs
        self.pacer = pacer
        self.exploration = exploration
        self.usable = np.ones(len(self.names), dtype=bool)
        self.tries = np.where(beliefs.n_told[:, QUALITY] > 0, 0, _FIRST_TRIES)
        self.asked = np.zeros(len(self.names), dtype=bool)
        self.counts = np.zeros(len(self.names), dtype=np.int64)
        self.total = self.explored = 0.0
        self.open = {}
        self.noise = noise_of(beliefs)
        self.lock = threading.RLock()

    def __getstate__(self):
        with self.lock:
            state = {name: value for name, value in vars(self).items() if name != "lock"}
            # Arrays are changed in place: a copy is of one moment.
            return {name: _copied(value) for name, value in state.items()}

    def __setstate__(self, state):
        vars(self).update(state)
        self.lock = threading.RLock()

    def reprice(self, prices):
        with self.lock:
            self.prices = prices
            self.pacer.stale = True

    def restrict(self, usable):
        with self.lock:
            self.usable = usable
            self.pacer.stale = True

    def decide(self, x, base, budget, n_expected):
        """One request: the best of optimistic quality less price times cost (LinUCB at a price)."""
        from skroute.routing._kernels import weigh

        with self.lock:
            pacer, beliefs = self.pacer, self.beliefs
            if n_expected is not None and pacer.n_decided % n_expected == 0:
                pacer.spent, pacer.stale = 0.0, True
            if pacer.stale or pacer.n_decided % EVERY == 0:
                self._solve(budget, n_expected)
            estimate, variance = beliefs.look(x, pacer.n_decided)
            choice, most, greedy, bonus, costs = weigh(
                estimate,
                base,
                variance * self.noise,
                self.prices,
                self.usable,
                float(self.exploration),
                float(pacer.price),
                LEAST_RATIO,
            )
            tried = self._tried(costs, budget)
            choice = choice if tried is None else tried
            explored, cost = float(most - greedy[choice]), float(costs[choice])
            note_row(pacer, x, base, bonus)
            book(pacer, cost, budget)
            decision = Decision(
                pacer.n_decided,
                self.names[choice],
                float(estimate[choice, QUALITY]),
                cost,
                explored,
                x,
                base[choice],
                secrets.randbits(63),
            )
            pacer.n_decided += 1
            self.counts[choice] += 1
            self.total += decision.expected_cost
            self.explored += explored
            self.open[decision.id] = decision.key, decision.name
            if len(self.open) > _MOST_OPEN:
                del self.open[next(iter(self.open))]
            return decision

    def _solve(self, budget, n_expected):
        pacer = self.pacer
        values, costs = window_of(pacer, self.beliefs, self.prices)
        pacer.price = solve_price(rate_of(pacer, budget, n_expected), values, costs, self.usable)
        pacer.stale = False

    def _tried(self, costs, budget):
        """A choice whose first tries are due: asked for, or such that the books allow for it."""
        if not self.tries.any():
            return None
        for choice in np.flatnonzero((self.tries > 0) & self.usable):
            allowed = max(self.pacer.debt, 0.0) + costs[choice] <= SETTLE * budget
            if self.asked[choice] or allowed:
                self.tries[choice] -= 1
                return int(choice)
        return None

    def settle(self, decision, quality, cost, *, refund=False):
        """Close a decision: books and beliefs."""
        with self.lock:
            key, name = self.open.get(decision.id, (None, None))
            if key is None or key != decision.key:
                raise ValueError(
                    f"Decision {decision.id} is not open: its outcome was told or refunded before, "
                    "it is another router's or of before a fit, or it has waited too long."
                )
            del self.open[decision.id]
            paid = decision.expected_cost if cost is None else cost
            paid = 0.0 if refund else paid
            correct(self.pacer, paid - decision.expected_cost)
            self.total += paid - decision.expected_cost
            # The name of a choice that was dropped may have come again: it is another choice.
            if name is None or refund:
                return
            choice = self.names.index(name)
            self.learn(choice, decision.row, decision.base, quality, cost, made=decision.id)

    def learn(self, choice, x, base, quality, cost, *, made):
        """Condition the beliefs on one outcome, each part of it where it is known."""
        with self.lock:
            now = self.pacer.n_decided
            if quality is not None:
                learn_outcome(
                    self.beliefs, choice, QUALITY, x, quality - base[QUALITY], made=made, now=now
                )
                self.noise = noise_of(self.beliefs)
            price = self.prices[choice]
            if cost is not None and price > 0:
                learn_outcome(
                    self.beliefs, choice, COST, x, cost / price - base[COST], made=made, now=now
                )

    def add(self, name, price, n_trials):
        with self.lock:
            self.beliefs = added(self.beliefs, newcomer(self.beliefs, self.pacer.n_decided))
            self.names = [*self.names, name]
            self.prices = np.append(self.prices, price)
            self.usable = np.append(self.usable, True)
            self.tries = np.append(self.tries, n_trials)
            self.asked = np.append(self.asked, True)
            self.counts = np.append(self.counts, 0)
            pacer = self.pacer
            pacer.base = np.pad(pacer.base, [(0, 0), (0, 1), (0, 0)])
            pacer.bonus = np.pad(pacer.bonus, [(0, 0), (0, 1)])
            pacer.stale = True
            self.noise = noise_of(self.beliefs)

    def drop(self, name):
        with self.lock:
            left = np.flatnonzero(np.array(self.names) != name)
            self.beliefs = kept(self.beliefs, left)
            self.names = [self.names[choice] for choice in left]
            for part in ("prices", "usable", "tries", "asked", "counts", "noise"):
                setattr(self, part, getattr(self, part)[left])
            for number, (key, made) in self.open.items():
                if made == name:
                    self.open[number] = key, None
            pacer = self.pacer
            pacer.base, pacer.bonus = pacer.base[:, left], pacer.bonus[:, left]
            pacer.stale = True

    def plan(self, X, base, budget):
        """Routes of rows at the budget's price, by what is believed; nothing is counted."""
        with self.lock:
            beliefs, prices, usable = self.beliefs, self.prices, self.usable
            window = window_of(self.pacer, beliefs, prices, explore=False)
            price = solve_price(budget, *window, usable)
            quality = X @ beliefs.mean[:, QUALITY].T + base[..., QUALITY]
            costs = X @ beliefs.mean[:, COST].T + base[..., COST]
        costs = np.maximum(costs, LEAST_RATIO) * prices
        value = np.where(usable, quality - price * costs, -np.inf)
        route = np.array([_best(*row) for row in zip(value, costs)], dtype=np.int64)
        rows = np.arange(len(route))
        return {"route": route, "cost": costs[rows, route], "quality": quality[rows, route]}

    def least(self):
        with self.lock:
            return least_of(self.pacer, self.beliefs, self.prices, self.usable)

    def status(self):
        with self.lock:
            n = self.pacer.n_decided
            told = self.beliefs.n_told[:, QUALITY].tolist()
            return OnlineStatus(
                n,
                len(self.open),
                self.total / max(n, 1),
                self.pacer.price,
                dict(zip(self.names, (self.counts / max(n, 1)).tolist())),
                dict(zip(self.names, told)),
                self.explored / max(n, 1),
            )


def _best(value, costs):
    """The best value; of equal ones the cheapest."""
    choice = int(value.argmax())
    tied = np.flatnonzero(value == value[choice])
    return choice if len(tied) == 1 else int(tied[costs[tied].argmin()])


def _copied(value):
    if isinstance(value, (np.ndarray, dict, list)):
        return value.copy()
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(*[_copied(part) for part in vars(value).values()])
    return value
