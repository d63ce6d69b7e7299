"""A quality that is a ratio of sums: linear at the level that it reaches, by Dinkelbach."""

import copy

import numpy as np

from skroute.metrics._objectives import Sums
from skroute.routing._priced import PricedPolicy, fit_policy
from skroute.routing._validation import choose_by_rule

_MOST_ROUNDS = 30
_CLOSE = 1e-9
# Budgets whose levels are kept.
_MOST_KEPT = 64


def dinkelbach(sums, choose, weight=None):
    """The choices with the largest ratio of sums, one for each row.

    Of all choices that `choose` can make the ratio t is largest where the best sum of
    ``above - t * below`` is 0; from any start ``t <- ratio of the best choices at t`` rises to
    it, W. Dinkelbach, "On Nonlinear Fractional Programming", Management Science 13, 1967.

    Parameters
    ----------
    sums : Sums of ndarray of shape (n_rows, n_choices)
    choose : callable
        From values of shape (n_rows, n_choices) to the best choice for each row.
    weight : ndarray of shape (n_rows,), default=None

    Returns
    -------
    choice : ndarray of shape (n_rows,), dtype=int64
    level : float
        The ratio.
    """
    rows = np.arange(len(sums.above))
    level, found = -np.inf, None
    for _ in range(_MOST_ROUNDS):
        start = 0.0 if found is None else level
        choice = choose(sums.above - start * sums.below)
        reached = float(Sums(*(part[rows, choice] for part in sums)).ratio(weight))
        if found is not None and reached <= level + _CLOSE * abs(level):
            break
        level, found = reached, choice
    return found, level


class Blend:
    """Two fitted estimators, mixed: what is linear in a level is so between two of them.

    Parameters
    ----------
    low, high : regressor
    share : float
        Of `high`.
    level, scale : float
        The estimate is ``level + mix / scale``.
    """

    def __init__(self, low, high, share, level, scale):
        self.low, self.high, self.share = low, high, share
        self.level, self.scale = level, scale

    def mixed(self, low, high):
        """The same of two tables."""
        return self.level + ((1 - self.share) * low + self.share * high) / self.scale

    def predict(self, X):
        """Estimates of shape (n_samples, n_outputs)."""
        low, high = self.low.predict(X), self.high.predict(X)
        return self.mixed(np.asarray(low, np.float64), np.asarray(high, np.float64))


class RatioPolicy:
    """Policies for a ratio of sums: for each budget a linear one, at the ratio it reaches.

    ``above - t * below`` is estimated at two levels t, the smallest ratio of one choice for all
    rows and the largest that any routing has; between them estimates are mixed, which is
    exact in what they are fitted to. For a budget, t is the ratio of the policy at t itself:
    Dinkelbach's fixed point, on out-of-sample decisions and what they were in truth.

    Parameters
    ----------
    low, high : PricedPolicy
        Fitted at the two levels.
    levels : (float, float)
    sums : Sums of ndarray of shape (n_rows, n_choices)
    """

    def __init__(self, low, high, levels, sums):
        self.low, self.high, self.levels, self.sums = low, high, levels, sums
        self._known = {}

    def __getstate__(self):
        return {**vars(self), "_known": {}}

    def solved(self, reg_lambda, costs=None, deciding=None, rates=None):
        """The same for other costs and the like; see `PricedPolicy.solved`."""
        low = self.low.solved(reg_lambda, costs, deciding, rates)
        if low is self.low:
            return self
        other = copy.copy(self)
        other.low, other._known = low, {}
        return other

    def linear(self, level, scale):
        """The policy that is linear at a level.

        Parameters
        ----------
        level : float
        scale : float
            Mean of what is summed below, so that means of `quality` are ratios.

        Returns
        -------
        PricedPolicy
        """
        low, high = self.low, self.high
        level = float(np.clip(level, *self.levels))
        share = (level - self.levels[0]) / (self.levels[1] - self.levels[0])
        blend = Blend(low.estimator, high.estimator, share, level, scale)
        repeats = low.repeats
        if repeats is not None:
            repeats = repeats._replace(values=blend.mixed(repeats.values, high.repeats.values))
        found = PricedPolicy(
            blend,
            blend.mixed(low.estimate, high.estimate),
            self.sums.linear(level, scale),
            low.costs,
            planned=low.planned,
            reg_lambda=low.reg_lambda,
            deciding=low.deciding,
            part=low.part,
            repeats=repeats,
            alone=blend.mixed(low.alone, high.alone),
            weight=low.weight,
        )
        found.rates = low.rates
        return found

    def reached(self, policy, budget):
        """What the out-of-sample decisions of a policy sum to, as means over rows.

        Returns
        -------
        above, below : float
        """
        rule = policy.rule(max(budget, policy.least))
        choices = choose_by_rule(policy.estimate - policy.docked, policy.planned, rule)
        return tuple(
            float(np.average(choices.mean(part), weights=policy.weight)) for part in self.sums
        )

    def at_budget(self, budget):
        """The policy for a budget: linear at the ratio that it reaches (Dinkelbach).

        Where rounds go in a circle, since decisions jump, the best of them.

        Parameters
        ----------
        budget : float

        Returns
        -------
        PricedPolicy
        """
        budget = float(budget)
        if budget in self._known:
            return self._known[budget]
        level, scale = float(np.mean(self.levels)), self._scale()
        best = None
        for _ in range(_MOST_ROUNDS):
            policy = self.linear(level, scale)
            above, below = self.reached(policy, budget)
            ratio = above / below if below else 0.0
            if best is None or ratio > best[0] + _CLOSE:
                best = ratio, below
            if abs(ratio - level) <= _CLOSE:
                break
            level, scale = ratio, below if below else 1.0
        else:
            policy = self.linear(best[0], best[1] if best[1] else 1.0)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[budget] = policy
        return policy

    def _scale(self):
        return float(self.sums.below.mean()) or 1.0


def fit_ratio(estimator, X, sums, costs, *, weight=None, **options):
    """Learn the policies of a ratio of sums; arguments as those of `fit_policy`.

    Parameters
    ----------
    estimator : multi-output regressor
    X : indexable of n_rows rows
    sums : Sums of ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    weight : ndarray of shape (n_rows,), default=None
    **options : dict

    Returns
    -------
    RatioPolicy
    """
    low = float(sums.ratio(weight).min())
    _, high = dinkelbach(sums, lambda values: values.argmax(axis=1), weight)
    # Two levels that differ, so that there is something between them.
    high = max(high, low + 1e-3 * max(abs(low), 1.0))
    low_policy, high_policy = (
        fit_policy(estimator, X, sums.above - level * sums.below, costs, weight=weight, **options)
        for level in (low, high)
    )
    return RatioPolicy(low_policy, high_policy, (low, high), sums)
