"""The state of an online router: beliefs, spending and open decisions."""

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

# Positions of the two predicted amounts, quality and cost, on the axis of length 2 of
# the arrays of `Beliefs` and of arrays named `base`.
QUALITY = 0
COST = 1
# Position of the constant feature, whose value is 1 in every row. The weight of this
# feature, the intercept of a regression, is called the level.
_LEVEL = 0

# Values of the constants below were chosen on the validation data of
# `benchmarks/bench_online.py`: streams with drifts, failures and newcomers.

# Variance of the level (the intercept) of a choice before any outcome, divided by the
# variance of the noise. The drift adds no variance beyond it. Chosen in `bench_online`.
LEVEL_VARIANCE = 4.0
# Variance of the level (the intercept) before any outcome, divided by the variance of
# the noise, if a fitted router estimates the quality. Chosen in `bench_online`.
PRIOR_VARIANCE = 0.05
# Variance of the level (the intercept) before any outcome, divided by the variance of
# the noise, for a choice that is added later. Chosen in `bench_online`.
NEWCOMER_VARIANCE = 0.3
# The smallest ridge penalty. The inverse of a smaller one may overflow.
_MIN_ALPHA = 1e-12
# The noise of a choice is averaged with the mean noise of all choices. This mean
# counts as this number of outcomes. Chosen in `bench_online`.
_NOISE_PRIOR = 10
# Maximal number of outcomes over which the noise of a choice is averaged. Older ones
# lose weight. Chosen in `bench_online`.
_NOISE_MEMORY = 300
# Variance of the noise before any outcome. It is typical of qualities from 0 to 1.
_NOISE_UNKNOWN = 0.1
# A level (the intercept) returns to its long-run value at this multiple of the drift,
# a rate per request. Chosen in `bench_online`.
_RETURN = 4.0
# Maximal number of outcomes over which the usual level of a choice, its intercept over
# the long run, is averaged. Chosen in `bench_online`.
_USUAL_MEMORY = 1000
# The usual level (the long-run mean of a level) moves towards the present level, by
# the share 4 / (n + 4) after n outcomes. With 1 in place of 4 it would be a plain mean.
# With 4 the first levels, which few outcomes estimate, soon have little weight.
_USUAL_START = 4
# Number of latest requests from which the dual price is computed. Chosen in
# `bench_online`.
_WINDOW = 256
# Number of requests after which the dual price is computed again, since it changes
# slowly. Chosen in `bench_online`.
_PRICE_INTERVAL = 16
# Number of requests over which a debt (costs above the budget so far) is paid back.
# Chosen in `bench_online`.
_DEBT_REQUESTS = 100
# Largest unspent budget that later requests may use, in mean budgets of one request.
# Chosen in `bench_online`.
_MAX_SAVINGS = 10
# If the budget does not pay for the cheapest choices, the price is the highest gain of
# quality by extra cost among the latest requests, times this factor. Only the cheapest
# choice is then made. Infinity is not used: multiplied with a cost of 0 it is NaN.
_BEYOND_ALL = 1e15
# An estimated cost is at least this share of the listed cost of the choice. Chosen in
# `bench_online`.
_MIN_COST_SHARE = 0.1
# Number of requests that a choice without outcomes gets so that its quality is learned,
# if the budget allows them. Chosen in `bench_online`.
_FIRST_TRIES = 5
# Maximal number of decisions that wait for their outcome. It bounds the memory. If
# there are more, the oldest is dropped, and `commit` refuses its outcome.
_MAX_OPEN = 100_000


class Decision(NamedTuple):
    """A choice for one request, see `OnlineBudgetRouter.decide` for the fields."""

    id: int
    name: str
    expected_quality: float
    expected_cost: float
    explored: float
    row: np.ndarray
    base: np.ndarray
    key: int


class OnlineStatus(NamedTuple):
    """Counts and means, see `OnlineBudgetRouter.status` for the fields."""

    n_requests: int
    n_refunded: int
    n_open: int
    mean_cost: float
    price: float
    shares: dict
    n_told: dict
    explored: float


class Beliefs:
    """Bayesian linear regressions of quality and of cost, for each choice.

    Costs are relative to the price list, or absolute for a choice whose listed cost is
    0. The first feature is 1. Its weight, the level, drifts by a random walk.

    Parameters
    ----------
    listed : ndarray of shape (n_choices,)
        Price list.
    n_features : int
        Number of features, the constant one included.
    alpha : float
        Ridge penalty of the weights of features.
    drift : float
        Variance that a level gains per request, in units of the noise.
    level_variance : float
        Variance of the levels before any outcome, in units of the noise.
    now : int, default=0
        Number of past requests.

    Attributes
    ----------
    mean : ndarray of shape (n_choices, 2, n_features)
        Posterior means of the weights of quality and of cost.
    cov : ndarray of shape (n_choices, 2, n_features, n_features)
        Covariance of these weights, in units of the noise.
    start : ndarray of shape (n_features, n_features)
        Covariance of the weights before any outcome, in units of the noise.
    noise : ndarray of shape (n_choices,)
        Variance of the noise of quality. NaN before the second outcome.
    usual : ndarray of shape (n_choices,)
        Level of quality over the long run. Without outcomes a level returns to it,
        since a failure may have passed.
    n_told : ndarray of shape (n_choices,), dtype=int64
        Number of outcomes of quality.
    now : int
        Number of requests so far. It is the time in which levels drift.
    """

    def __init__(self, listed, n_features, alpha, drift, level_variance, now=0):
        n_choices = len(listed)
        self.alpha = alpha
        self.drift = drift
        self.now = now
        self.mean = np.zeros((n_choices, 2, n_features))
        # The first estimate of each cost is the listed cost: 1 as a relative cost, or 0
        # as an absolute one.
        self.mean[:, COST, _LEVEL] = listed > 0
        variance = np.full(n_features, 1.0 / max(alpha, _MIN_ALPHA))
        variance[_LEVEL] = level_variance
        self.start = np.diag(variance)
        self.cov = np.tile(self.start, (n_choices, 2, 1, 1))
        self.noise = np.full(n_choices, np.nan)
        self.usual = np.zeros(n_choices)
        self.n_told = np.zeros(n_choices, dtype=np.int64)

    def advance(self):
        """Count a request, and let the level (intercept) of each regression drift.

        The drift adds variance. Levels of quality also move towards their usual value.
        """
        self.now += 1
        if self.drift <= 0:
            return
        # Views, which are changed in place.
        level = self.mean[:, QUALITY, _LEVEL]  # (n_choices,)
        variance = self.cov[:, :, _LEVEL, _LEVEL]  # (n_choices, 2)
        # The share of the way back to the usual level per request is 1 - exp(-rate),
        # which is -expm1(-rate).
        level -= math.expm1(-_RETURN * self.drift) * (self.usual - level)
        largest_gain = np.maximum(LEVEL_VARIANCE - variance, 0.0)
        variance += np.minimum(self.drift, largest_gain)

    def estimate(self, x):
        """Return the estimates of each choice for one request.

        Parameters
        ----------
        x : ndarray of shape (n_features,)
            Features of the request.

        Returns
        -------
        quality, cost, variance : ndarray of shape (n_choices,)
            Quality, cost relative to the price list, and the variance of the estimate
            of quality.
        """
        quality, cost = (self.mean @ x).T  # (2, n_choices)
        # Variance of the estimate of quality, divided by that of the noise. Rounding
        # may make this variance negative.
        variance = self.cov[:, QUALITY] @ x @ x
        return quality, cost, np.maximum(variance, 0.0) * self._shrunk_noise()

    def learn(self, choice, target, x, value, decided_at):
        """Update one regression by one outcome: a Kalman step.

        The step is that of West and Harrison (1997, chapter 4).

        Parameters
        ----------
        choice : int
            Position of the choice.
        target : {QUALITY, COST}
            The regression that learns.
        x : ndarray of shape (n_features,)
            Features of the request.
        value : float
            The outcome.
        decided_at : int
            `now` when the request was decided. The drift since then counts as noise.
        """
        # Views, which are changed in place.
        mean = self.mean[choice, target]
        cov = self.cov[choice, target]
        gain = cov @ x
        # Variance of the outcome, in units of the noise: that of the estimate, the
        # noise itself, which is 1, and the drift.
        variance = float(gain @ x) + 1.0 + self.drift * (self.now - decided_at)
        surprise = value - float(mean @ x)
        mean += gain * (surprise / variance)
        cov -= gain[:, np.newaxis] * gain / variance
        if target == QUALITY:
            self._learn_noise(choice, surprise**2 / variance)

    def _learn_noise(self, choice, squared_surprise):
        """Update the noise variance and the long-run level of a choice's quality.

        `squared_surprise` is the square of the outcome less its estimate, divided by
        the variance of the outcome in units of the noise. Its mean is the noise.
        """
        n_before = int(self.n_told[choice])
        self.n_told[choice] = n_before + 1
        # The usual level, a mean over the long run, moves towards the present level.
        level = self.mean[choice, QUALITY, _LEVEL]
        step = max(_USUAL_START / (n_before + _USUAL_START), 1 / _USUAL_MEMORY)
        self.usual[choice] += step * (level - self.usual[choice])
        # The first outcome is compared with an estimate from no data. The difference
        # does not show the noise.
        if n_before == 0:
            return
        noise = self.noise[choice]
        if math.isnan(noise):  # this is the second outcome
            noise = squared_surprise
        # The number of outcomes in the mean, without the first one.
        n_in_mean = min(n_before, _NOISE_MEMORY)
        self.noise[choice] = noise + (squared_surprise - noise) / n_in_mean

    def _shrunk_noise(self):
        """Return the noise variance of each choice, at least the mean of all choices.

        A choice with constant outcomes is not known better than others. Its outcomes
        may be those of a failure that passes.
        """
        measured = self.noise[~np.isnan(self.noise)]
        common = _NOISE_UNKNOWN
        if len(measured):
            common = measured.sum() / len(measured)
        total = self.n_told * self.noise + _NOISE_PRIOR * common
        shrunk = total / (self.n_told + _NOISE_PRIOR)
        # `shrunk` is NaN for a choice whose noise is not yet measured. `fmax` then
        # takes the common noise.
        return np.fmax(shrunk, common)

    def add(self, cost):
        """Add a choice after the others. `cost` is its listed cost.

        Its first weights of quality are the mean weights of the choices with outcomes.
        Without such choices they are 0.
        """
        newcomer = Beliefs(
            np.array([cost]),
            n_features=len(self.start),
            alpha=self.alpha,
            drift=self.drift,
            level_variance=NEWCOMER_VARIANCE,
            now=self.now,
        )
        has_outcomes = self.n_told > 0
        if has_outcomes.any():
            mean_weights = self.mean[has_outcomes, QUALITY].mean(axis=0)
            newcomer.mean[:, QUALITY] = mean_weights
            newcomer.usual[:] = newcomer.mean[:, QUALITY, _LEVEL]
        # Append the newcomer to all arrays that have an entry for each choice.
        for name in ("mean", "cov", "noise", "usual", "n_told"):
            arrays = [getattr(self, name), getattr(newcomer, name)]
            setattr(self, name, np.concatenate(arrays))


class Pacer:
    """Spending of an online router, and the dual price that keeps its mean budget.

    Parameters
    ----------
    n_choices : int
        Number of choices.
    n_features : int
        Number of features, the constant one included.
    n_expected : int or None
        Number of requests of a horizon. None is no horizon.

    Attributes
    ----------
    rows : ndarray of shape (_WINDOW, n_features)
        Features of the latest requests. The oldest request is overwritten.
    base : ndarray of shape (_WINDOW, n_choices, 2)
        Quality and cost of each choice for these requests, by the prior.
    bonus : ndarray of shape (_WINDOW, n_choices)
        For these requests, what exploration adds to the estimated quality of a choice.
    n_rows : int
        Number of requests so far, also those that were overwritten.
    debt : float
        Sum of the costs of requests, paid or expected, minus their budgets. A negative
        debt is savings.
    n_booked : int
        Number of requests so far in the present horizon.
    spent : float
        Sum of their costs, paid or expected.
    price : float
        Quality that one unit of cost is worth.
    """

    def __init__(self, n_choices, n_features, n_expected):
        self.n_expected = _int_or_none(n_expected)
        self.rows = np.zeros((_WINDOW, n_features))
        self.base = np.zeros((_WINDOW, n_choices, 2))
        self.bonus = np.zeros((_WINDOW, n_choices))
        self.n_rows = 0
        self.n_booked = 0
        self.debt = 0.0
        self.spent = 0.0
        self.price = 0.0

    def note(self, x, base, bonus):
        """Store a request among the latest ones, from which the price is computed.

        If there are `_WINDOW` requests already, the oldest one is overwritten.

        Parameters
        ----------
        x : ndarray of shape (n_features,)
            Features of the request.
        base : ndarray of shape (n_choices, 2)
            Quality and cost of each choice, by the prior.
        bonus : ndarray of shape (n_choices,) or float
            What exploration adds to the estimated quality of each choice.
        """
        position = self.n_rows % _WINDOW
        self.rows[position] = x
        self.base[position] = base
        self.bonus[position] = bonus
        self.n_rows += 1

    def window(self, beliefs, listed):
        """Return present estimates of quality and cost for the stored latest requests.

        Both have the shape (n_rows, n_choices). `listed` is the price list.
        """
        n_rows = min(self.n_rows, _WINDOW)
        rows = self.rows[:n_rows]
        return estimates(rows, self.base[:n_rows], beliefs.mean, listed)

    def charge(self, cost, budget):
        """Book the expected cost of a new request, and return the change of the debt.

        The debt is the sum of the costs minus the sum of the budgets. `budget` is the
        mean budget per request. Infinity is no budget, and no debt.
        """
        self.n_booked += 1
        self.spent += cost
        debt_before = self.debt
        if budget == np.inf:
            self.debt = 0.0
        else:
            # Savings, unspent budget, are a negative debt. Savings beyond the largest
            # ones are lost.
            largest_savings = _MAX_SAVINGS * budget
            self.debt = max(debt_before + cost - budget, -largest_savings)
        return self.debt - debt_before

    def set_horizon(self, n_expected):
        """Change the number of requests that share one total budget, a horizon.

        None is no horizon.

        The present horizon continues if it has fewer than `n_expected` requests so far.
        Otherwise a new one begins.
        """
        n_expected = _int_or_none(n_expected)
        has_horizons = self.n_expected is not None and n_expected is not None
        if not has_horizons or self.n_booked >= n_expected:
            self.begin_horizon()
        self.n_expected = n_expected

    def begin_horizon(self):
        """Begin a new horizon: count its requests and their costs from 0."""
        self.n_booked = 0
        self.spent = 0.0

    def rate(self, budget):
        """Return the mean cost that the next requests may have.

        With a horizon, it is the money left divided by the number of requests left
        (Jasin and Kumar 2012). Without one, it is the budget minus a share of the debt.
        An infinite budget, which is no budget, has an infinite rate.
        """
        if self.n_expected is None or budget == np.inf:
            return budget - self.debt / _DEBT_REQUESTS
        money_left = budget * self.n_expected - self.spent
        return money_left / (self.n_expected - self.n_booked)

    def solve(self, budget, beliefs, listed, choices):
        """Compute the dual price from the latest requests, and store it in `price`.

        It is the smallest price at which these requests cost at most `rate` on average.

        Parameters
        ----------
        budget : float
            Mean cost per request.
        beliefs : Beliefs
        listed : ndarray of shape (n_choices,)
            Price list.
        choices : ndarray of int
            Positions of the choices that can be made.
        """
        rate = self.rate(budget)
        quality, costs = self.window(beliefs, listed)
        self.price = 0.0
        if rate == np.inf or not len(costs):
            return
        # Optimistic quality, with the bonus for exploration: (n_rows, n_choices)
        values = quality + self.bonus[: len(quality)]
        path = assignment_path(values[:, choices], costs[:, choices])
        # The most expensive plan of the path that the rate pays for, -1 if none.
        plan = np.searchsorted(path.budgets, rate, side="right") - 1
        if plan >= 0:
            self.price = float(path.prices[plan])
            return
        # Not even the cheapest plan fits. Plan 0 is the cheapest.
        highest_price = float(path.prices[0])
        if highest_price == 0:
            # All plans cost the same. The price must still be positive.
            highest_price = 1.0
        self.price = _BEYOND_ALL * highest_price


class Serving:
    """Beliefs, spending and open decisions of a router, under one lock.

    The router checks arguments before it calls these methods.

    Parameters
    ----------
    names : list of str
        Names of the choices.
    listed : ndarray of shape (n_choices,)
        Price list.
    n_features : int
        Number of features, the constant one included.
    router : OnlineBudgetRouter
        Its parameters are read. The router itself is not stored.

    Attributes
    ----------
    names : list of str
        Names of the choices, with those that were added later.
    beliefs : Beliefs
        Estimates of quality and cost.
    pacer : Pacer
        Price and spending.
    exploration : float
        Number of standard errors that are added to an estimate of quality.
    settings : tuple
        The router's `exploration`, `drift` and `n_expected` when they were last read.
    listed : ndarray of shape (n_choices,)
        Present price list.
    listed_first : ndarray of shape (n_choices,)
        Price list of `fit`, and the first prices of choices that were added later.
    units : ndarray of shape (n_choices,)
        Costs to which learned costs are relative, see `unit_of`.
    n_fitted : int
        Number of choices in `fit`.
    kept : ndarray of int
        Positions of the choices that are not excluded.
    tries : ndarray of shape (n_choices,), dtype=int64
        Number of first tries that each choice still gets.
    asked : ndarray of shape (n_choices,), dtype=bool
        True if the user has asked for the tries. Otherwise the budget must allow them.
    counts : ndarray of shape (n_choices,), dtype=int64
        Number of requests of each choice.
    n_refunded : int
        Number of refunded requests.
    total : float
        Sum of the costs of requests, paid or expected.
    explored : float
        Sum of the quality that requests gave up for exploration.
    open : dict from int to tuple of (float, float)
        By the keys of open decisions, the change of the debt and the unit of the cost.
    stale : bool
        True if the price must be computed again.
    lock : threading.Lock
        Lock of all attributes.
    """

    def __init__(self, names, listed, n_features, router):
        n_choices = len(names)
        has_prior = router.prior is not None
        level_variance = PRIOR_VARIANCE if has_prior else LEVEL_VARIANCE
        self.names = list(names)
        self.exploration = router.exploration
        self.settings = (router.exploration, router.drift, router.n_expected)
        self.beliefs = Beliefs(
            listed,
            n_features,
            router.alpha,
            router.drift,
            level_variance=level_variance,
        )
        self.pacer = Pacer(n_choices, n_features, router.n_expected)
        self.listed = listed
        self.listed_first = listed
        self.units = unit_of(listed)
        self.n_fitted = n_choices
        self.kept = np.arange(n_choices)  # no choice is excluded
        # A prior has estimates of all choices, so that no first tries are needed.
        self.tries = np.full(n_choices, 0 if has_prior else _FIRST_TRIES)
        self.asked = np.zeros(n_choices, dtype=bool)
        self.counts = np.zeros(n_choices, dtype=np.int64)
        self.n_refunded = 0
        self.total = 0.0
        self.explored = 0.0
        self.open = {}
        self.stale = True
        self.lock = threading.Lock()

    def __getstate__(self):
        """Return a deep copy of the state at one moment, without the lock."""
        # Arrays are changed in place, so that they are copied under the lock.
        with self.lock:
            state = {
                name: value for name, value in vars(self).items() if name != "lock"
            }
            return copy.deepcopy(state)

    def __setstate__(self, state):
        """Set the state, with a new lock."""
        vars(self).update(state)
        self.lock = threading.Lock()

    # Choices --------------------------------------------------------------------------

    def follow(self, router):
        """Take over the present parameters of the router.

        They are read under the lock, so that no thread can restore old values.
        """
        with self.lock:
            # `_prior` is the prior of `fit`.
            if router.alpha != self.beliefs.alpha or router.prior is not router._prior:
                # Name and value of the changed parameter, for the message.
                changed = f"alpha={router.alpha!r}"
                if router.prior is not router._prior:
                    changed = f"prior, a {type(router.prior).__name__},"
                raise ValueError(
                    f"{changed} must be as in fit: learning started from alpha and "
                    "prior. Call fit, or set it back."
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
            costs = router.costs
            if costs is None and router._prior is not None:
                # The price list is that of the prior, which does not change after
                # `fit`. An empty dict changes no cost.
                costs = {}
            self._reprice(costs)

    def _reprice(self, costs):
        """Change the price list to the router's parameter `costs`, see `costs_now`.

        If the listed cost of a choice becomes 0, or is no longer 0, its learned costs
        have a new unit. They are forgotten.
        """
        listed = costs_now(costs, self.names, self.listed_first, self.n_fitted)
        if np.array_equal(listed, self.listed):
            return
        beliefs = self.beliefs
        has_new_unit = (listed > 0) != (self.listed > 0)
        # The first estimate of each cost is again the listed cost: 1 as a relative
        # cost, or 0 as an absolute one.
        beliefs.mean[has_new_unit, COST] = 0.0
        beliefs.mean[has_new_unit, COST, _LEVEL] = listed[has_new_unit] > 0
        beliefs.cov[has_new_unit, COST] = beliefs.start
        self.listed = listed
        self.units = unit_of(listed)
        self.stale = True

    def restrict(self, without=(), again=()):
        """Exclude the choices `without`, and include the choices `again`, by name."""
        with self.lock:
            excluded = set(self.names) - {self.names[choice] for choice in self.kept}
            excluded |= set(without)
            excluded -= set(again)
            # One request, which no table of allowed choices restricts.
            self.kept, _ = kept_choices(
                self.names, n_samples=1, exclude=excluded, allowed=None
            )
            self.stale = True

    def add(self, name, cost, n_trials, rows=(), quality=()):
        """Add a new choice, and learn from its quality on some rows.

        Parameters
        ----------
        name : str
        cost : float
            Listed cost.
        n_trials : int
            Number of first tries. They are made even if the budget is too small.
        rows : ndarray of shape (n_rows, n_features), default=()
            Features of rows with a known quality.
        quality : ndarray of shape (n_rows,), default=()
            Quality of the new choice on these rows.
        """
        with self.lock:
            # Another thread may have added the same choice since the name was checked.
            cost = check_new_choice(name, cost, self.names)
            choice = len(self.names)
            self.beliefs.add(cost)
            self.pacer.base = with_zeros_for_added(self.pacer.base, choice + 1)
            # (_WINDOW, n_choices), with a last column of 0 for the new choice.
            self.pacer.bonus = np.pad(self.pacer.bonus, [(0, 0), (0, 1)])
            self.names = [*self.names, name]
            self.kept = np.append(self.kept, choice)
            self.listed = np.append(self.listed, cost)
            self.units = unit_of(self.listed)
            self.listed_first = np.append(self.listed_first, cost)
            self.tries = np.append(self.tries, n_trials)
            self.asked = np.append(self.asked, True)
            self.counts = np.append(self.counts, 0)
            # Estimates of `QUALITY` and `COST` by the prior, which does not have this
            # choice. They are 0, as in `with_zeros_for_added`.
            no_prior = np.zeros(2)
            for x, row_quality in zip(rows, quality):
                self._learn(
                    choice,
                    x,
                    quality=row_quality,
                    ratio=np.nan,  # the cost is not known
                    base=no_prior,
                    decided_at=self.beliefs.now,
                )
            self.stale = True

    # Requests -------------------------------------------------------------------------

    def decide(self, x, base, budget):
        """Decide on one request: optimistic quality minus price times cost (LinUCB).

        Parameters
        ----------
        x : ndarray of shape (n_features,)
            Features of the request.
        base : ndarray of shape (n_choices, 2)
            Quality and cost of each choice, by the prior.
        budget : float
            Mean cost per request.

        Returns
        -------
        Decision
        """
        with self.lock:
            base = with_zeros_for_added(base, len(self.names))
            pacer = self.pacer
            self._update_price(budget)
            quality, ratio, variance = self.beliefs.estimate(x)
            quality = quality + base[:, QUALITY]
            # Costs relative to the price list become absolute ones.
            costs = in_money(ratio + base[:, COST], self.listed)
            bonus = self.exploration * np.sqrt(variance)
            choice = self._first_try(costs, budget)
            if choice is None:
                optimistic = (quality + bonus).tolist()
                choice = choose_one(
                    optimistic, costs.tolist(), pacer.price, self.kept.tolist()
                )
            # Values without the bonus for exploration. `explored` is the best of them
            # minus that of the choice made.
            net_quality = quality - pacer.price * costs
            pacer.note(x, base, bonus)
            decision = Decision(
                id=self.beliefs.now,
                name=self.names[choice],
                expected_quality=float(quality[choice]),
                expected_cost=float(costs[choice]),
                explored=float(net_quality[self.kept].max() - net_quality[choice]),
                row=x,
                base=base[choice],
                # Random, so that no decision of another router has the same key.
                key=secrets.randbits(63),
            )
            change_of_debt = pacer.charge(decision.expected_cost, budget)
            self.open[decision.key] = change_of_debt, self.units[choice]
            if len(self.open) > _MAX_OPEN:
                oldest = next(iter(self.open))
                del self.open[oldest]
            self.beliefs.advance()
            self._count(choice, decision, sign=1)
            return decision

    def _update_price(self, budget):
        """Compute the dual price if something has changed, or at regular intervals.

        `budget` is the mean cost per request. The interval is `_PRICE_INTERVAL`
        requests.

        If all requests of the present horizon are booked, a new horizon begins.
        """
        pacer = self.pacer
        # Without a horizon, `n_expected` is None, and the comparison is False.
        if pacer.n_booked == pacer.n_expected:
            pacer.begin_horizon()
            self.stale = True
        if self.stale or self.beliefs.now % _PRICE_INTERVAL == 0:
            pacer.solve(budget, self.beliefs, self.listed, self.kept)
            self.stale = False

    def _first_try(self, costs, budget):
        """Return the position of a choice to try without regard to its value, or None.

        The user must have asked for the try, or its cost must keep the debt below the
        budget of `_DEBT_REQUESTS` requests. The try is counted.

        Parameters
        ----------
        costs : ndarray of shape (n_choices,)
            Expected costs of this request.
        budget : float
            Mean cost per request.
        """
        has_tries = self.tries[self.kept] > 0
        # Savings, a negative debt, are not spent on tries.
        allowed_cost = _DEBT_REQUESTS * budget - max(self.pacer.debt, 0.0)
        for choice in self.kept[has_tries]:
            if self.asked[choice] or costs[choice] <= allowed_cost:
                self.tries[choice] -= 1
                return int(choice)
        return None

    def _count(self, choice, decision, *, sign):
        """Add a decision to the counts and sums, or subtract it if `sign` is -1.

        `choice` is the position of its choice.
        """
        self.counts[choice] += sign
        self.total += sign * decision.expected_cost
        self.explored += sign * decision.explored

    def settle(self, decision, quality=np.nan, cost=np.nan, *, refund=False):
        """Close a decision and learn from its outcome.

        Parameters
        ----------
        decision : Decision
            An open decision.
        quality, cost : float, default=nan
            The outcome. NaN is unknown.
        refund : bool, default=False
            True if the call failed. The request is then not counted.
        """
        if not isinstance(decision, Decision):
            raise TypeError(
                f"decision must be what decide gave, got {type(decision).__name__}."
            )
        with self.lock:
            if decision.key not in self.open:
                raise ValueError(
                    f"Decision {decision.id} is not open: its outcome was told or "
                    "refunded before, it is another router's or of before a fit, or it "
                    "has waited too long."
                )
            change_of_debt, unit = self.open.pop(decision.key)
            choice = self.names.index(decision.name)
            pacer = self.pacer
            if refund:
                # The request did not happen: its cost and its budget are taken back.
                pacer.n_booked -= 1
                pacer.spent -= decision.expected_cost
                pacer.debt -= change_of_debt
                self._count(choice, decision, sign=-1)
                self.n_refunded += 1
                return
            if not math.isnan(cost):
                # The expected cost is charged already.
                excess = cost - decision.expected_cost
                pacer.spent += excess
                pacer.debt += excess
                self.total += excess
            self._learn(
                choice,
                decision.row,
                quality=quality,
                ratio=cost / unit,  # NaN if the cost is not known
                base=decision.base,
                decided_at=decision.id,
            )

    def learn_table(self, rows, base, quality, costs, *, rows_in_time):
        """Learn from the outcomes in a table.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Features.
        base : ndarray of shape (n_rows, n_choices, 2)
            Quality and cost of each choice, by the prior.
        quality, costs : ndarray of shape (n_rows, n_choices)
            Outcomes. NaN is unknown.
        rows_in_time : bool
            True if the rows are in the order of time, and levels drift from each row to
            the next. Otherwise all rows are of the same time.
        """
        with self.lock:
            base = with_zeros_for_added(base, len(self.names))
            # Costs divided by listed costs. The table has no column for a choice that
            # another thread has just added, so that its unit is left out.
            ratios = costs / self.units[: costs.shape[1]]
            for row, x in enumerate(rows):
                is_known = ~(np.isnan(quality[row]) & np.isnan(ratios[row]))
                for choice in np.flatnonzero(is_known):
                    self._learn(
                        choice,
                        x,
                        quality=quality[row, choice],
                        ratio=ratios[row, choice],
                        base=base[row, choice],
                        decided_at=self.beliefs.now,
                    )
                    # A choice with outcomes needs no first tries.
                    self.tries[choice] = 0
                # `decide` did not decide this row: it has no bonus for exploration.
                self.pacer.note(x, base[row], bonus=0.0)
                if rows_in_time:
                    self.beliefs.advance()
            self.stale = True

    def _learn(self, choice, x, *, quality, ratio, base, decided_at):
        """Update the regressions of a choice by one outcome, as far as it is known.

        Parameters
        ----------
        choice : int
            Position of the choice.
        x : ndarray of shape (n_features,)
            Features of the request.
        quality, ratio : float
            Quality, and cost in the unit of the choice. NaN is unknown.
        base : ndarray of shape (2,)
            Estimates of both by the prior. The beliefs are about deviations from them.
        decided_at : int
            Number of past requests when the request was decided.
        """
        if not math.isnan(quality):
            self.beliefs.learn(choice, QUALITY, x, quality - base[QUALITY], decided_at)
        if not math.isnan(ratio):
            self.beliefs.learn(choice, COST, x, ratio - base[COST], decided_at)

    # Results for the router -----------------------------------------------------------

    def mean_cheapest_cost(self):
        """Return the mean estimated cost of the cheapest choice of the latest requests.

        It is 0 before the first request.
        """
        with self.lock:
            _, costs = self.pacer.window(self.beliefs, self.listed)
            costs = costs[:, self.kept]
        if not len(costs):  # no request yet
            return 0.0
        return float(costs.min(axis=1).mean())

    def plan(self, rows, base, budget, only=None):
        """Decide rows by the present beliefs. Nothing is counted or learned.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Features.
        base : ndarray of shape (n_rows, n_choices, 2)
            Quality and cost of each choice, by the prior.
        budget : float
            Mean cost per row.
        only : int, default=None
            Position of a choice that gets all rows.

        Returns
        -------
        Plan
        """
        with self.lock:
            choices = self.kept if only is None else np.array([only])
            listed = self.listed
            mean = self.beliefs.mean.copy()
            recent_quality, recent_costs = self.pacer.window(self.beliefs, listed)
        path = assignment_path(recent_quality[:, choices], recent_costs[:, choices])
        check_affordable(budget, float(path.budgets[0]))
        base = with_zeros_for_added(base, len(listed))
        quality, costs = estimates(rows, base, mean, listed)
        price = path.price(budget)
        # Positions among `choices`, (n_rows,)
        positions = choose_at_price(quality[:, choices], costs[:, choices], price)
        route = choices[positions]
        row_positions = np.arange(len(route))
        return Plan(
            route,
            cost=costs[row_positions, route],
            quality=quality[row_positions, route],
        )

    def status(self):
        """Return counts and means at one moment (`OnlineStatus`)."""
        with self.lock:
            n_requests = int(self.counts.sum())
            # Before the first request all means are 0.
            divisor = max(n_requests, 1)
            shares = (self.counts / divisor).tolist()
            return OnlineStatus(
                n_requests=n_requests,
                n_refunded=self.n_refunded,
                n_open=len(self.open),
                mean_cost=self.total / divisor,
                price=self.pacer.price,
                shares=dict(zip(self.names, shares)),
                n_told=dict(zip(self.names, self.beliefs.n_told.tolist())),
                explored=self.explored / divisor,
            )


def _int_or_none(count):
    """Return a count as a Python int, which does not overflow, or None."""
    return None if count is None else int(count)


def estimates(rows, base, mean, listed):
    """Return estimates of quality and cost, each of shape (n_rows, n_choices).

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Features.
    base : ndarray of shape (n_rows, n_choices, 2)
        Quality and cost by the prior.
    mean : ndarray of shape (n_choices, 2, n_features)
        Means of the weights, see `Beliefs`. They are of deviations from the prior.
    listed : ndarray of shape (n_choices,)
        Price list.
    """
    quality = rows @ mean[:, QUALITY].T + base[..., QUALITY]
    ratio = rows @ mean[:, COST].T + base[..., COST]
    return quality, in_money(ratio, listed)


def with_zeros_for_added(base, n_choices):
    """Append zeros to the prior's estimates for choices without a prior.

    `base` has quality and cost by the prior of the first choices, of shape (...,
    n_with_prior, 2). Choices that were added later have no prior. The result has the
    shape (..., n_choices, 2).
    """
    n_with_prior = base.shape[-2]
    zeros = np.zeros((*base.shape[:-2], n_choices - n_with_prior, 2))
    return np.concatenate([base, zeros], axis=-2)


def unit_of(listed):
    """Return the units of learned costs: the listed costs, with 1 in place of 0."""
    return np.where(listed > 0, listed, 1.0)


def in_money(ratio, listed):
    """Return costs in money, each at least `_MIN_COST_SHARE` of the listed cost.

    Parameters
    ----------
    ratio : ndarray of shape (..., n_choices)
        Costs in the unit of each choice, ``unit_of(listed)``.
    listed : ndarray of shape (n_choices,)
        Price list.
    """
    return np.maximum(ratio * unit_of(listed), _MIN_COST_SHARE * listed)
