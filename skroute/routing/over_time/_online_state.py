"""What an online router believes, what it has spent, and what it waits for."""

import copy
import math
import secrets
import threading
from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.routing.parts._log import check_new_choice, costs_now, kept_choices
from skroute.routing.parts._policy import choose_one

QUALITY, COST = 0, 1
# Variance of the level of a choice, in units of the noise: of which nothing is known (its drift
# never makes it less certain), which a fitted router estimates, and which came later.
LEVEL_VARIANCE, PRIOR_VARIANCE, NEWCOMER_VARIANCE = 4.0, 0.05, 0.3
# The smallest ridge penalty of which the inverse is a number that can be used.
_LEAST_ALPHA = 1e-12
# Weight of what is assumed of a choice's noise before it has shown its own, in outcomes; over how
# many outcomes it is a mean; and noise before any outcome, that of qualities between 0 and 1.
_NOISE_PRIOR, _NOISE_MEMORY, _NOISE_UNKNOWN = 10, 300, 0.1
# How fast a level goes back to its usual one, in units of the drift; and over how many outcomes
# of a choice the usual level is a mean.
_RETURN, _USUAL = 4.0, 1000
# Requests that the price is solved on, and after how many it is solved anew.
_WINDOW, _EVERY = 256, 16
# Within how many requests a debt is paid back; and how many requests' budget is saved at most.
_SETTLE, _SAVINGS = 100, 10
# Where not even the cheapest plan fits, nothing dearer is bought. The price is so many times the
# highest efficiency in the window, so that it can be multiplied with a cost of 0.
_BEYOND = 1e15
# Estimated costs are at least this share of the price list's.
_LEAST_SHARE = 0.1
# Tries of a choice of which nothing is known, made while the books allow for them.
_FIRST_TRIES = 5
# Decisions whose outcome is waited for; the oldest beyond so many count as missing.
_MOST_OPEN = 100_000


class Decision(NamedTuple):
    """A choice made for one request; its fields are documented at `OnlineBudgetRouter.decide`."""

    id: int
    name: str
    expected_quality: float
    expected_cost: float
    explored: float
    row: np.ndarray
    base: np.ndarray
    key: int


class OnlineStatus(NamedTuple):
    """Where a router stands; its fields are documented at `OnlineBudgetRouter.status`."""

    n_requests: int
    n_refunded: int
    n_open: int
    mean_cost: float
    price: float
    shares: dict
    n_told: dict
    explored: float


class Beliefs:
    """Bayesian linear regressions of quality and of cost, one of each for every choice.

    Costs are in the unit of the price list's, or of money where that is 0. The first feature is 1;
    its weight, the level, drifts by a random walk.

    Attributes
    ----------
    mean, cov : ndarray of shape (n_choices, 2, n_features), (n_choices, 2, n_features, n_features)
        Weights of quality and of cost, and their covariance in units of the noise.
    noise, usual : ndarray of shape (n_choices,)
        Of quality: variance of the noise, NaN before it has shown, and level over the long run, to
        which it returns while nothing is told: a failure may have passed.
    n_told : ndarray of shape (n_choices,), dtype=int64
        Outcomes of quality.
    now : int
        Requests that were decided here or learned from elsewhere: the time in which levels drift.
    """

    def __init__(self, listed, n_features, alpha, drift, level, now=0):
        n_choices = len(listed)
        self.alpha, self.drift, self.now = alpha, drift, now
        self.mean = np.zeros((n_choices, 2, n_features))
        self.mean[:, COST, 0] = listed > 0
        variance = np.full(n_features, 1.0 / max(alpha, _LEAST_ALPHA))
        variance[0] = level
        self.start = np.diag(variance)
        self.cov = np.tile(self.start, (n_choices, 2, 1, 1))
        self.noise = np.full(n_choices, np.nan)
        self.usual = np.zeros(n_choices)
        self.n_told = np.zeros(n_choices, dtype=np.int64)

    def advance(self):
        """Count a request: levels drift, and those of quality go back towards the usual."""
        self.now += 1
        if self.drift > 0:
            level, variance = self.mean[:, QUALITY, 0], self.cov[:, :, 0, 0]
            level -= math.expm1(-_RETURN * self.drift) * (self.usual - level)
            variance += np.minimum(
                self.drift, np.maximum(LEVEL_VARIANCE - variance, 0.0)
            )

    def look(self, x):
        """For one request, each choice's quality, cost and variance of the estimate of quality."""
        quality, cost = (self.mean @ x).T
        variance = self.cov[:, QUALITY] @ x @ x
        return quality, cost, np.maximum(variance, 0.0) * self._noise_of_all()

    def learn(self, choice, target, x, value, made):
        """Condition on one outcome: a Kalman step (West and Harrison 1997, ch. 4).

        Of an outcome that comes late, the drift since its request, `made`, counts as noise.
        """
        mean, cov = self.mean[choice, target], self.cov[choice, target]
        gain = cov @ x
        spread = float(gain @ x) + 1.0 + self.drift * (self.now - made)
        surprise = value - float(mean @ x)
        mean += gain * (surprise / spread)
        cov -= gain[:, np.newaxis] * gain / spread
        if target == COST:
            return
        n, squared, noise = (
            int(self.n_told[choice]),
            surprise**2 / spread,
            self.noise[choice],
        )
        self.n_told[choice] = n + 1
        self.usual[choice] += max(4 / (n + 4), 1 / _USUAL) * (
            mean[0] - self.usual[choice]
        )
        # The first surprise is against no knowledge at all.
        if n > 0:
            noise = squared if math.isnan(noise) else noise
            self.noise[choice] = noise + (squared - noise) / min(n, _NOISE_MEMORY)

    def _noise_of_all(self):
        """Variance of the noise of each choice, at least the mean over those that showed theirs.

        A choice that happened to be constant is not known the better for it: its outcomes may be
        those of a failure that passes.
        """
        shown = self.noise[~np.isnan(self.noise)]
        common = shown.sum() / len(shown) if len(shown) else _NOISE_UNKNOWN
        total = self.n_told * self.noise + _NOISE_PRIOR * common
        return np.fmax(total / (self.n_told + _NOISE_PRIOR), common)

    def add(self, cost):
        """Take in a choice that is expected to be as the others are on average."""
        n_features = self.mean.shape[2]
        new = Beliefs(
            np.array([cost]),
            n_features,
            self.alpha,
            self.drift,
            NEWCOMER_VARIANCE,
            self.now,
        )
        told = self.n_told > 0
        if told.any():
            new.mean[:, QUALITY] = self.mean[told, QUALITY].mean(axis=0)
            new.usual[:] = new.mean[:, QUALITY, 0]
        for part in ("mean", "cov", "noise", "usual", "n_told"):
            setattr(
                self, part, np.concatenate([getattr(self, part), getattr(new, part)])
            )


class Pacer:
    """The dual price of a ceiling, from the latest requests and what was spent beyond it.

    Attributes
    ----------
    rows, base, bonus : ndarray of shape (_WINDOW, ...)
        Features of the latest requests, a ring; what the prior says of the quality and cost of
        each choice for them; and what exploring was worth.
    debt : float
        What requests have cost, or are expected to, beyond the budget of each.
    n_booked, spent : int, float
        Requests of the horizon, and what they have cost, or are expected to.
    price : float
        Quality that one unit of cost is worth.
    """

    def __init__(self, n_choices, n_features, n_expected):
        self.n_expected = _int_or_none(n_expected)
        self.rows = np.zeros((_WINDOW, n_features))
        self.base = np.zeros((_WINDOW, n_choices, 2))
        self.bonus = np.zeros((_WINDOW, n_choices))
        self.n_rows = self.n_booked = 0
        self.debt = self.spent = self.price = 0.0

    def note(self, x, base, bonus):
        """Keep a request in the window."""
        at = self.n_rows % _WINDOW
        self.rows[at], self.base[at], self.bonus[at] = x, base, bonus
        self.n_rows += 1

    def window(self, beliefs, listed):
        """Estimated quality and cost of each choice for the latest requests, as of now."""
        n = min(self.n_rows, _WINDOW)
        return estimates(self.rows[:n], self.base[:n], beliefs.mean, listed)

    def charge(self, cost, budget):
        """Enter a new request; by how much the debt has changed."""
        self.n_booked += 1
        self.spent += cost
        before = self.debt
        # What was saved beyond some requests' budget is let go; without a budget nothing is owed.
        self.debt = (
            0.0 if budget == np.inf else max(before + cost - budget, -_SAVINGS * budget)
        )
        return self.debt - before

    def set_horizon(self, n_expected):
        """Change the number of requests of a horizon.

        The horizon under way goes on where it is known and ends later than now. Else a new
        one begins.
        """
        n_expected = _int_or_none(n_expected)
        goes_on = self.n_expected is not None
        goes_on = goes_on and n_expected is not None and self.n_booked < n_expected
        if not goes_on:
            self.begin_horizon()
        self.n_expected = n_expected

    def begin_horizon(self):
        """Count requests and what they cost from 0."""
        self.n_booked = 0
        self.spent = 0.0

    def rate(self, budget):
        """What the next requests may cost on average.

        With a horizon, what is left of its total by the requests left (Jasin and Kumar 2012); else
        the budget less what pays the debt back.
        """
        if self.n_expected is None or budget == np.inf:
            return budget - self.debt / _SETTLE
        return (budget * self.n_expected - self.spent) / (
            self.n_expected - self.n_booked
        )

    def solve(self, budget, beliefs, listed, kept):
        """Find the least price at which the window spends no more than the rate."""
        rate = self.rate(budget)
        quality, costs = self.window(beliefs, listed)
        self.price = 0.0
        if rate < np.inf and len(costs):
            values = quality + self.bonus[: len(quality)]
            path = assignment_path(values[:, kept], costs[:, kept])
            segment = np.searchsorted(path.budgets, rate, side="right") - 1
            if segment >= 0:
                self.price = float(path.prices[segment])
            else:
                self.price = _BEYOND * (float(path.prices[0]) or 1.0)


class Serving:
    """Beliefs, books and open decisions under one lock; names and checks are the router's."""

    def __init__(self, names, listed, n_features, router):
        n, level = (
            len(names),
            LEVEL_VARIANCE if router.prior is None else PRIOR_VARIANCE,
        )
        self.names, self.exploration = list(names), router.exploration
        # Parameters that act at once, as they were last taken over.
        self.settings = (router.exploration, router.drift, router.n_expected)
        self.beliefs = Beliefs(listed, n_features, router.alpha, router.drift, level)
        self.pacer = Pacer(n, n_features, router.n_expected)
        # Listed costs of now, and those of `fit` and of choices when they came.
        self.listed = self.listed_first = listed
        self.units = unit_of(listed)
        self.n_fitted, self.kept = n, np.arange(n)
        # First tries of each choice that are due, and whether they were asked for.
        self.tries = np.full(n, _FIRST_TRIES if router.prior is None else 0)
        self.asked = np.zeros(n, dtype=bool)
        self.counts = np.zeros(n, dtype=np.int64)
        self.n_refunded = 0
        self.total = self.explored = 0.0
        # By the keys of open decisions, how the debt changed and what their costs are relative to.
        self.open = {}
        self.stale = True
        self.lock = threading.Lock()

    def __getstate__(self):
        # Arrays are changed in place: a copy is of one moment.
        with self.lock:
            return copy.deepcopy({k: v for k, v in vars(self).items() if k != "lock"})

    def __setstate__(self, state):
        vars(self).update(state)
        self.lock = threading.Lock()

    # Choices --------------------------------------------------------------------------------

    def follow(self, router):
        """Decide by the parameters that the router has now.

        They are read under the lock: a thread that has read old ones cannot bring them back.
        """
        with self.lock:
            # The router keeps the prior of `fit`: in a copy it is the same object as its `prior`.
            if router.alpha != self.beliefs.alpha or router.prior is not router._prior:
                changed = f"alpha={router.alpha!r}"
                if router.prior is not router._prior:
                    changed = f"prior, a {type(router.prior).__name__},"
                raise ValueError(
                    f"{changed} must be as in fit: learning started from alpha and prior. Call "
                    "fit, or set it back."
                )
            settings = (router.exploration, router.drift, router.n_expected)
            if settings != self.settings:
                router._validate_params()
                self.settings = settings
                self.exploration = router.exploration
                self.beliefs.drift = router.drift
                if router.n_expected != self.pacer.n_expected:
                    self.pacer.set_horizon(router.n_expected)
                self.stale = True
            # A prior's price list is that of `fit`.
            listed_by_prior = router.costs is None and router._prior is not None
            self._reprice({} if listed_by_prior else router.costs)

    def _reprice(self, costs):
        """Decide by this price list; costs learned relative to one of 0 say nothing of another."""
        listed = costs_now(costs, self.names, self.listed_first, self.n_fitted)
        if np.array_equal(listed, self.listed):
            return
        beliefs = self.beliefs
        other = (listed > 0) != (self.listed > 0)
        beliefs.mean[other, COST] = 0.0
        beliefs.mean[other, COST, 0] = listed[other] > 0
        beliefs.cov[other, COST] = beliefs.start
        self.listed = listed
        self.units = unit_of(listed)
        self.stale = True

    def restrict(self, without=(), again=()):
        """Do without choices, or use them again; names are known."""
        with self.lock:
            excluded = {name for k, name in enumerate(self.names) if k not in self.kept}
            excluded = (excluded | {*without}) - {*again}
            self.kept, _ = kept_choices(self.names, 1, excluded, None)
            self.stale = True

    def add(self, name, cost, n_trials, rows=(), quality=()):
        """Add a new choice and what is known of its quality."""
        with self.lock:
            # Another thread may have added the same one since its name was checked.
            cost = check_new_choice(name, cost, self.names)
            choice = len(self.names)
            self.beliefs.add(cost)
            self.pacer.base = for_all(self.pacer.base, choice + 1)
            self.pacer.bonus = np.pad(self.pacer.bonus, [(0, 0), (0, 1)])
            self.names = [*self.names, name]
            self.kept = np.append(self.kept, choice)
            self.listed = np.append(self.listed, cost)
            self.units = unit_of(self.listed)
            self.listed_first = np.append(self.listed_first, cost)
            self.tries = np.append(self.tries, n_trials)
            self.asked = np.append(self.asked, True)
            self.counts = np.append(self.counts, 0)
            for x, q in zip(rows, quality):
                self._learn(choice, x, q, np.nan, np.zeros(2), self.beliefs.now)
            self.stale = True

    # Requests -------------------------------------------------------------------------------

    def decide(self, x, base, budget):
        """One request: the best of optimistic quality less price times cost (LinUCB at a price)."""
        with self.lock:
            base = for_all(base, len(self.names))
            pacer = self.pacer
            if pacer.n_booked == pacer.n_expected:
                pacer.begin_horizon()
                self.stale = True
            if self.stale or self.beliefs.now % _EVERY == 0:
                pacer.solve(budget, self.beliefs, self.listed, self.kept)
                self.stale = False
            quality, ratio, variance = self.beliefs.look(x)
            quality = quality + base[:, QUALITY]
            costs = in_money(ratio + base[:, COST], self.listed)
            bonus = self.exploration * np.sqrt(variance)
            choice = self._due(costs, budget)
            if choice is None:
                optimistic = (quality + bonus).tolist()
                choice = choose_one(
                    optimistic, costs.tolist(), pacer.price, self.kept.tolist()
                )
            worth = quality - pacer.price * costs
            explored = float(worth[self.kept].max() - worth[choice])
            pacer.note(x, base, bonus)
            decision = Decision(
                self.beliefs.now,
                self.names[choice],
                float(quality[choice]),
                float(costs[choice]),
                explored,
                x,
                base[choice],
                secrets.randbits(63),
            )
            owed = pacer.charge(decision.expected_cost, budget)
            self.open[decision.key] = owed, self.units[choice]
            if len(self.open) > _MOST_OPEN:
                del self.open[next(iter(self.open))]
            self.beliefs.advance()
            self._count(choice, 1, decision)
            return decision

    def _due(self, costs, budget):
        """A choice whose first tries are due: asked for, or such that the books allow for it."""
        for choice in self.kept[self.tries[self.kept] > 0]:
            room = _SETTLE * budget - max(self.pacer.debt, 0.0)
            if self.asked[choice] or costs[choice] <= room:
                self.tries[choice] -= 1
                return int(choice)
        return None

    def _count(self, choice, times, decision):
        self.counts[choice] += times
        self.total += times * decision.expected_cost
        self.explored += times * decision.explored

    def settle(self, decision, quality=np.nan, cost=np.nan, *, refund=False):
        """Close a decision: books and beliefs; NaN is not known."""
        if not isinstance(decision, Decision):
            raise TypeError(
                f"decision must be what decide gave, got {type(decision).__name__}."
            )
        with self.lock:
            if decision.key not in self.open:
                raise ValueError(
                    f"Decision {decision.id} is not open: its outcome was told or refunded before, "
                    "it is another router's or of before a fit, or it has waited too long."
                )
            owed, unit = self.open.pop(decision.key)
            choice, pacer = self.names.index(decision.name), self.pacer
            if refund:
                # The allowance of a request goes with its cost.
                pacer.n_booked -= 1
                pacer.spent -= decision.expected_cost
                pacer.debt -= owed
                self._count(choice, -1, decision)
                self.n_refunded += 1
                return
            if not math.isnan(cost):
                beyond = cost - decision.expected_cost
                pacer.spent += beyond
                pacer.debt += beyond
                self.total += beyond
            self._learn(
                choice, decision.row, quality, cost / unit, decision.base, decision.id
            )

    def learn_table(self, rows, base, quality, costs, *, apart):
        """Learn what is known of a table; `apart`, each row is a request of its own."""
        with self.lock:
            base = for_all(base, len(self.names))
            # A choice that another thread has added since is not in the table.
            ratios = costs / self.units[: costs.shape[1]]
            for x, own, q, c in zip(rows, base, quality, ratios):
                for choice in np.flatnonzero(~(np.isnan(q) & np.isnan(c))):
                    self._learn(
                        choice, x, q[choice], c[choice], own[choice], self.beliefs.now
                    )
                    self.tries[choice] = 0
                self.pacer.note(x, own, 0.0)
                if apart:
                    self.beliefs.advance()
            self.stale = True

    def _learn(self, choice, x, quality, ratio, base, made):
        """Condition the beliefs on one outcome, each part of it where it is known."""
        if not math.isnan(quality):
            self.beliefs.learn(choice, QUALITY, x, quality - base[QUALITY], made)
        if not math.isnan(ratio):
            self.beliefs.learn(choice, COST, x, ratio - base[COST], made)

    # What is believed -----------------------------------------------------------------------

    def least(self):
        """Mean of the cheapest choices' estimated costs over the window."""
        with self.lock:
            costs = self.pacer.window(self.beliefs, self.listed)[1][:, self.kept]
        return float(costs.min(axis=1).mean()) if len(costs) else 0.0

    def plan(self, rows, base, budget, only=None):
        """Decide rows, or give all to `only`, by what is believed; nothing is counted."""
        with self.lock:
            kept = self.kept if only is None else np.array([only])
            listed, mean = self.listed, self.beliefs.mean.copy()
            recent, recent_costs = self.pacer.window(self.beliefs, listed)
        path = assignment_path(recent[:, kept], recent_costs[:, kept])
        check_affordable(budget, float(path.budgets[0]))
        quality, costs = estimates(rows, for_all(base, len(listed)), mean, listed)
        price = path.price(budget)
        route = kept[choose_at_price(quality[:, kept], costs[:, kept], price)]
        each = np.arange(len(route))
        return Plan(route, costs[each, route], quality=quality[each, route])

    def status(self):
        with self.lock:
            n = int(self.counts.sum())
            return OnlineStatus(
                n,
                self.n_refunded,
                len(self.open),
                self.total / max(n, 1),
                self.pacer.price,
                dict(zip(self.names, (self.counts / max(n, 1)).tolist())),
                dict(zip(self.names, self.beliefs.n_told.tolist())),
                self.explored / max(n, 1),
            )


def _int_or_none(count):
    """Return a count as an int of Python: those of numpy overflow in sums and differences."""
    return None if count is None else int(count)


def estimates(rows, base, mean, listed):
    """Quality and cost (n_rows, n_choices) of linear models `mean` beside what a prior says."""
    quality = rows @ mean[:, QUALITY].T + base[..., QUALITY]
    return quality, in_money(rows @ mean[:, COST].T + base[..., COST], listed)


def for_all(base, n_choices):
    """What a prior says, (..., n_choices, 2); of choices that came later it says nothing."""
    later = np.zeros((*base.shape[:-2], n_choices - base.shape[-2], 2))
    return np.concatenate([base, later], axis=-2)


def unit_of(listed):
    """What costs are learned relative to: the listed ones, 1 where that is 0."""
    return np.where(listed > 0, listed, 1.0)


def in_money(ratio, listed):
    """Costs of calls, from those relative to the listed ones."""
    return np.maximum(ratio * unit_of(listed), _LEAST_SHARE * listed)
