"""Choices that a fitted router gets later, with few scores: what they are believed to be worth."""

import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch

from skroute.guarantees import mean_lower_bound
from skroute.routing._validation import choose_by_rule

# Rows that the noise of the other choices counts for beside the newcomer's own.
_NOISE_ROWS = 10
# The level of a choice may differ from what its slopes say by this share of the spread of levels,
# and, where few choices say how levels spread, by what so many of its own rows would tell.
_LEVEL, _LEVEL_ROWS = 0.25, 24
# Standard errors that a newcomer is docked. Without any, one draw in four loses more than .2 points
# on LLMRouter; with 1 one in twelve, and with 1.5 little is gained (benchmarks/bench_lifecycle.py).
CAUTION = 1.25
# Parts that are left out in turn: for a user's estimator, and for decisions on scored rows.
_PARTS = 10


class Newcomer(NamedTuple):
    """What is known of a choice that was added after `fit`.

    Attributes
    ----------
    name : str

    cost : float
        Its price when it was added.

    n_rows : int
        Rows with a score.

    mean_quality : float
        Mean of these scores.

    expected_quality : float
        Mean of what is expected of it on the rows of `fit`. What it is chosen by, and
        `predict_quality`, is 1.25 standard errors below.

    standard_error : float
        Root mean square of the estimates' standard errors on these rows.

    gain : float
        Mean gain per scored row at the router's budget where the newcomer would be chosen, by
        estimates that did not see the row; what its calls cost more, or less, is weighed at the
        price of the budget. 0 where it would not be chosen.

    lowest_gain : float
        A number that the gain is not below, with probability `min_evidence`; with .95 where
        none was asked for.

    chosen : float
        Share of the rows of `fit` for which it would be chosen at the budget.

    adopted : bool
        Whether it is among ``choices_``: False while `min_evidence` keeps it out.
    """

    name: str
    cost: float
    n_rows: int
    mean_quality: float
    expected_quality: float
    standard_error: float
    gain: float
    lowest_gain: float
    chosen: float
    adopted: bool


class Shrunk(NamedTuple):
    """A newcomer's quality, from the estimates of the other choices: linear, in closed form.

    Attributes
    ----------
    columns : ndarray of shape (n_read,), dtype=int64
        Outputs of the router's estimator that it reads.
    coef : ndarray of shape (n_read,)
    intercept : float
    root : ndarray of shape (n_read + 1, n_read + 1)
        A root of the posterior covariance of the slopes on deviations and of the level: the
        covariance is ``root @ root.T``.
    low, high : float
        Range of quality, to which estimates are cut.
    """

    columns: np.ndarray
    coef: np.ndarray
    intercept: float
    root: np.ndarray
    low: float
    high: float

    def expected(self, outputs):
        """Estimates for outputs (n_rows, n_outputs) of the router's estimator."""
        # Column by column: sums are alike in every batch.
        found = np.full(len(outputs), self.intercept)
        for column, slope in zip(self.columns, self.coef):
            found += slope * outputs[:, column]
        return np.clip(found, self.low, self.high)

    def std(self, outputs):
        """Standard errors of the estimates."""
        parts = _parts_of(outputs[:, self.columns])[1]
        found = np.zeros((len(self.root), len(outputs)))
        for row, part in zip(self.root, parts.T):
            found += row[:, np.newaxis] * part
        return np.sqrt((found**2).sum(axis=0))

    def predict(self, outputs):
        """Careful estimates, which decide."""
        return np.clip(self.expected(outputs) - CAUTION * self.std(outputs), self.low, self.high)


class Learned(NamedTuple):
    """The same from a user's regressor, which reads the estimates of the other choices.

    Attributes
    ----------
    columns : ndarray of shape (n_read,), dtype=int64
    estimator : regressor
        Fitted on all scored rows.
    without : list of regressor
        Fitted without a part of them each, for the standard errors.
    low, high : float
    """

    columns: np.ndarray
    estimator: Any
    without: list
    low: float
    high: float

    def expected(self, outputs):
        """Estimates for outputs (n_rows, n_outputs) of the router's estimator."""
        return self._of(self.estimator, outputs)

    def std(self, outputs):
        """Standard errors of the estimates: the jackknife's over the parts."""
        found = np.array([self._of(each, outputs) for each in self.without])
        return np.sqrt((len(found) - 1) * found.var(axis=0))

    def predict(self, outputs):
        """Careful estimates, which decide."""
        return np.clip(self.expected(outputs) - CAUTION * self.std(outputs), self.low, self.high)

    def _of(self, estimator, outputs):
        found = np.asarray(estimator.predict(outputs[:, self.columns]), dtype=np.float64)
        if found.shape not in ((len(outputs),), (len(outputs), 1)) or not np.isfinite(found).all():
            raise ValueError(
                "estimator must predict one finite number for each row, the quality of the new "
                "choice, from the estimated qualities of the others."
            )
        return np.clip(found.reshape(-1), self.low, self.high)


def _parts_of(outputs):
    """Mean of the choices in each row, and deviations from it with a constant behind."""
    outputs = np.ascontiguousarray(outputs)
    mean = outputs.mean(axis=1)
    return mean, np.column_stack([outputs - mean[:, np.newaxis], np.ones(len(outputs))])


def shrunk_regression(outputs, q, columns, noise, low, high):
    r"""A new choice as one more draw from the population that the other choices were drawn from.

    A priori its quality is :math:`m(x) + a + \sum_j w_j (\hat q_j(x) - m(x))`, with m the mean
    of the k choices' estimates and the w independent with variance 1 / (k - 1), so that it
    varies, and goes along with the others, as they do among themselves. The level a lets it
    differ from all.
    The scores update this in closed form (a Gaussian process whose kernel is the covariance of
    the choices); with none it is the mean of the others.

    Parameters
    ----------
    outputs : ndarray of shape (n_rows, n_outputs)
        Estimates of the other choices for the scored rows, none of which fitted them.
    q : ndarray of shape (n_rows,)
        Scores of the newcomer.
    columns : ndarray of shape (k,), dtype=int64
        Outputs that are read.
    noise : float
        Mean squared error of the other choices' estimates: single outcomes about estimates.
    low, high : float
        Range of quality.

    Returns
    -------
    model : Shrunk
    noise : float
        The same of this choice, shrunk towards that of the others.
    """
    own = outputs[:, columns]
    mean, parts = _parts_of(own)
    k, n = len(columns), len(q)
    spread = own.mean(axis=0).var(ddof=1) if k > 1 else 0.0
    prior, scale = np.empty(k + 1), max(noise, 1e-12 * (1 + float(np.abs(q).max()) ** 2))
    prior[:k] = 1 / max(k - 1, 1)
    surprise, found = q - mean, scale
    for _ in range(3):
        # The residuals say how noisy the outcomes are, and the noise how far to believe them.
        prior[k] = _LEVEL**2 * spread + found / (_LEVEL_ROWS * k)
        cov = np.linalg.inv(parts.T @ parts / found + np.diag(1 / prior))
        weight = cov @ (parts.T @ surprise) / found
        left = surprise - parts @ weight
        found = (left @ left + _NOISE_ROWS * scale) / (n + _NOISE_ROWS)
    slope = weight[:k]
    coef = (1 - slope.sum()) / k + slope
    root = np.linalg.cholesky((cov + cov.T) / 2)
    return Shrunk(columns, coef, float(weight[k]), root, low, high), float(found)


def fit_newcomer(outputs, q, columns, noise, low, high, estimator=None):
    """What a newcomer is believed to be worth, and the noise of its outcomes.

    Parameters
    ----------
    outputs, q, columns, noise, low, high
        As in `shrunk_regression`.
    estimator : regressor, default=None
        Of one output; it reads the columns of `outputs`. None takes the shrunk regression.

    Returns
    -------
    model : Shrunk or Learned
    noise : float
    """
    if estimator is None:
        return shrunk_regression(outputs, q, columns, noise, low, high)
    own = outputs[:, columns]
    part = _parts_at_random(len(q))
    fits = [clone(estimator).fit(own[part != p], q[part != p]) for p in np.unique(part)]
    model = Learned(columns, clone(estimator).fit(own, q), fits, low, high)
    left = q.copy()
    for p, fitted in zip(np.unique(part), fits):
        rows = part == p
        left[rows] -= model._of(fitted, outputs[rows])
    return model, float((left @ left + _NOISE_ROWS * noise) / (len(q) + _NOISE_ROWS))


def _parts_at_random(n):
    return np.random.default_rng(0).permutation(n) % min(_PARTS, n)


class WithNewcomers(BaseEstimator):
    """A router's fitted estimator, with the outputs of choices that came later behind its own.

    Parameters
    ----------
    base : estimator
        Fitted.
    models : tuple of (Shrunk or Learned)
    n_outputs : int
        Outputs of `base`.
    """

    def __init__(self, base, models, n_outputs):
        self.base = base
        self.models = models
        self.n_outputs = n_outputs

    def predict(self, X):
        """Estimates of all choices."""
        return self.widened(self.base.predict(X))

    def widened(self, outputs):
        """Estimates of all choices, from those of the first."""
        outputs = np.asarray(outputs, dtype=np.float64).reshape(-1, self.n_outputs)
        return np.column_stack([outputs, *[model.predict(outputs) for model in self.models]])


class WithNewcomersAndStd(WithNewcomers):
    """The same of an estimator that knows the standard errors of its estimates."""

    def predict(self, X, return_std=False):
        """Estimates of all choices, and perhaps their standard errors."""
        if not return_std:
            return self.widened(self.base.predict(X))
        outputs, std = (
            np.asarray(part, dtype=np.float64).reshape(-1, self.n_outputs)
            for part in self.base.predict(X, return_std=True)
        )
        own = [model.std(outputs) for model in self.models]
        return self.widened(outputs), np.column_stack([std, *own])


def with_newcomer(policy, model, cost, noise, column, offers_std):
    """A policy with one more choice, solved from what is stored of the others.

    Neither label nor fit: the newcomer's quality on the rows of the log is what is believed of
    it, and its log of costs lies at the same ratio to its price, row by row, as theirs.

    Parameters
    ----------
    policy : PricedPolicy
    model : Shrunk or Learned
    cost : float
    noise : float
    column : int or None
        Output of the newcomer where it is there already: its model is replaced.
    offers_std : bool
        Whether the base's `predict` takes ``return_std``.

    Returns
    -------
    policy : PricedPolicy
    std : ndarray of shape (n_rows,)
        Standard errors of the newcomer's estimates on the rows of the log.
    """
    other = copy.copy(policy)
    base, models, n_base = base_of(policy)
    kept = np.arange(policy._n_outputs) if policy.kept is None else policy.kept
    column = policy._n_outputs if column is None else column
    models = [*models, None] if column == policy._n_outputs else list(models)
    models[column - n_base] = model
    kind = WithNewcomersAndStd if offers_std else WithNewcomers
    other.estimator = kind(base, tuple(models), n_base)
    other._n_outputs = n_base + len(models)
    at = int(np.flatnonzero(kept == column)[0]) if column in kept else len(kept)
    other.kept = kept if at < len(kept) else np.append(kept, column)

    def put(table, own):
        """A table with the newcomer's column, new or in place of the old one."""
        if at == table.shape[-1]:
            return np.concatenate([table, np.asarray(own)[..., np.newaxis]], axis=-1)
        table = table.copy()
        table[..., at] = own
        return table

    outputs = full_outputs(policy, policy.estimate)
    own, std = model.predict(outputs), model.std(outputs)
    expected = model.expected(outputs)
    other.estimate = put(policy.estimate, own)
    same = policy.alone is policy.estimate
    alone = own if same else model.predict(full_outputs(policy, policy.alone))
    other.alone = other.estimate if same else put(policy.alone, alone)
    other.fitted = None
    other.quality = put(policy.quality, expected)
    other.sigma = put(policy.sigma, np.sqrt(noise + np.mean(std**2)))
    other.added = put(policy.added, True)
    if policy.known is not None:
        table, weight = put(policy.known.table, expected), put(policy.known.weight, 0.0 * own)
        other.known = policy.known._replace(table=table, weight=weight)
    if policy.repeats is not None:
        values = policy.repeats.values
        frequent = model.predict(full_outputs(policy, values))
        other.repeats = policy.repeats._replace(values=put(values, frequent))
    listed, logged = policy._listed, policy._logged
    other._listed = put(listed, cost)
    other._logged = other._listed
    if logged is not listed:
        ratio = np.divide(logged, listed, out=np.ones_like(logged), where=listed > 0)
        others = np.arange(len(listed)) != at
        other._logged = put(logged, cost * ratio[:, others].mean(axis=1))
    other._solve(policy.reg_lambda, other._logged, other._listed, policy.deciding)
    return other, std


def base_of(policy):
    """The estimator of `fit`, the models of later choices, and how many outputs it has."""
    if isinstance(policy.estimator, WithNewcomers):
        return policy.estimator.base, policy.estimator.models, policy.estimator.n_outputs
    return policy.estimator, (), policy._n_outputs


def full_outputs(policy, table):
    """Estimates of a policy's choices by output of its estimator; NaN of those left out."""
    if policy.kept is None:
        return table
    found = np.full((len(table), policy._n_outputs), np.nan)
    found[:, policy.kept] = table
    return found


def first_outputs(policy):
    """Outputs of the estimator of `fit` for choices that there still are."""
    n_base = base_of(policy)[2]
    kept = np.arange(policy._n_outputs) if policy.kept is None else policy.kept
    return kept[kept < n_base]


def gains_on_scored_rows(policy, at, scored, budget, learn):
    """What choosing a newcomer would have gained on its scored rows, at a budget.

    The newcomer's estimate for each row is of the other parts of the rows. Where it would be
    chosen, its score less what is expected of the best other choice, and less what it costs
    more, at the price with the newcomer. The optimum without it is at most that at any price
    (weak duality), so that a mean above 0 is a gain at equal spend.

    Parameters
    ----------
    policy : PricedPolicy
        With the newcomer.
    at : int
        Its position among the policy's choices.
    scored : Bunch
        ``outputs`` (n_rows, n_outputs) and ``q`` (n_rows,).
    budget : float
    learn : callable
        From outputs and scores to a model.

    Returns
    -------
    gains : ndarray of shape (n_rows,)
    bounds : (float, float)
        The smallest and the largest gain that a row can have.
    chosen : float
        Share of the rows of the log for which it would be chosen.
    """
    rule = policy.rule(max(budget, policy.least))
    price = min(rule.price, 1e15)
    costs = policy.planned
    values, planned = policy._decides
    choices = choose_by_rule(values, planned, rule)
    chosen = float(choices.totals(np.ones(values.shape))[at]) / len(values)
    part, n = _parts_at_random(len(scored.q)), len(scored.q)
    own = np.empty(n)
    for p in np.unique(part):
        rows, others = part == p, part != p
        if others.any():
            own[rows] = learn(scored.outputs[others], scored.q[others]).predict(
                scored.outputs[rows]
            )
    others = np.delete(np.arange(len(costs)), at)
    widened = policy.estimator.widened(scored.outputs)[:, policy.kept[others]]
    best = _best_other(widened, policy.docked[others], costs[others], price)
    there = own - policy.docked[at] - price * costs[at]
    made = (there > best.net) & (n > 1)
    # Rows of the log stand for all that may come: none of this depends on the scores.
    stored = _best_other(policy.estimate[:, others], policy.docked[others], costs[others], price)
    due = np.concatenate([best.value, stored.value]) + price * costs[at]
    low = min(float(scored.low - due.max()), 0.0)
    high = max(float(scored.high - due.min()), 0.0)
    gains = np.where(made, scored.q - best.value - price * costs[at], 0.0)
    return np.clip(gains, low, high), (low, max(high, low + 1e-12)), chosen


def _best_other(estimates, docked, costs, price):
    """Net value of the best choice, by which it is chosen, and what is expected of it."""
    net = estimates - docked - price * costs
    choice = net.argmax(axis=1)
    rows = np.arange(len(net))
    return Bunch(net=net[rows, choice], value=net[rows, choice] + docked[choice])


def lowest_gain(gains, bounds, confidence):
    """A number that the mean gain is not below, with a probability; in the order of a shuffle."""
    order = np.random.default_rng(1).permutation(len(gains))
    return float(mean_lower_bound(gains[order], bounds=bounds, confidence=confidence))
