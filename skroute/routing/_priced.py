"""A policy with a price: what choices are worth on a log, and what every budget can buy."""

import copy
import warnings
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from skroute.assignment import assignment_path, choose_at_price, decide
from skroute.assignment._decide import check_policy
from skroute.base import Plan, affords, check_affordable, note_failure
from skroute.routing._stream import StreamMixin
from skroute.routing._values import (
    as_target,
    check_partition,
    out_of_sample_quality,
    penalty,
    predict_matrix,
)
from skroute.utils._compat import Real


class Validation(NamedTuple):
    """What the cross-fitted policy does on the rows that it was learned from.

    Attributes
    ----------
    route : ndarray of shape (n_rows,), dtype=int64
    quality : ndarray of shape (n_rows,)
        Logged quality of the choices made.
    cost : ndarray of shape (n_rows,)
        What they cost, `deciding` included.
    """

    route: np.ndarray
    quality: np.ndarray
    cost: np.ndarray


class PricedPolicy:
    """Estimates of quality, out of sample, and the price of every budget.

    It keeps the estimates and the log, so that another lambda or other costs are solved
    for without labels or a fit.

    Parameters
    ----------
    estimator : estimator
        Fitted on all rows: from features to the quality of each choice.
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Cross-fitted estimates and what each choice was in truth worth.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        What making each choice cost.
    planned : ndarray of shape (n_rows, n_choices), default=None
        The costs as they are known when a row is decided; None takes `costs`.
    reg_lambda : float, default=0.0
        How many sigmas a choice is docked.
    deciding : float, default=0.0
        What each row pays before its choice is known.
    margin : float, default=0.0
        The share of what a budget leaves after deciding that the price does not count on.
    """

    def __init__(
        self,
        estimator,
        estimate,
        quality,
        costs,
        *,
        planned=None,
        reg_lambda=0.0,
        deciding=0.0,
        margin=0.0,
    ):
        self.estimator = estimator
        self.estimate = estimate
        self.quality = quality
        self.sigma = penalty(estimate, quality)
        self.margin = margin
        self._solve(reg_lambda, costs, costs if planned is None else planned, deciding)

    def _solve(self, reg_lambda, costs, planned, deciding):
        self.reg_lambda = float(reg_lambda)
        self.costs, self.planned, self.deciding = costs, planned, float(deciding)
        self.docked = self.reg_lambda * self.sigma
        self.path = assignment_path(self.estimate - self.docked, planned)
        self.least = float(np.min(costs, axis=-1).mean()) + self.deciding
        self._other = None

    def solved(self, reg_lambda, costs=None, deciding=None):
        """The policy for another lambda, other fixed costs or another cost of deciding.

        The last one is kept, so that asking again costs nothing. None leaves as it is.
        """
        costs = self.costs if costs is None else costs
        deciding = self.deciding if deciding is None else deciding
        for known in (self, self._other):
            if (
                known is not None
                and (known.reg_lambda, known.deciding) == (reg_lambda, deciding)
                and (known.costs is costs or np.array_equal(known.costs, costs))
            ):
                return known
        other = copy.copy(self)
        planned = self.planned if costs is self.costs else costs
        other._solve(reg_lambda, costs, planned, deciding)
        self._other = other
        return other

    @property
    def per_row(self):
        """Whether costs differ from row to row."""
        return self.costs.ndim == 2

    def estimates(self, features):
        """Quality of each choice for each row, before the penalty."""
        return predict_matrix(self.estimator, features, self.quality.shape[1], "accuracy_estimator")

    def values(self, features):
        """What each choice is worth for each row: its quality less the penalty."""
        return self.estimates(features) - self.docked

    def price(self, budget):
        """Price of a mean budget, which pays for deciding as well."""
        if budget == np.inf:
            return 0.0
        room = (1 - self.margin) * (budget - self.deciding)
        cheapest = self.path.budgets[0]
        # Nothing is left to buy with, however much a new row promises. (Of estimated costs the
        # cheapest plan may seem more expensive than the budget.)
        if affords(cheapest, room) or affords(cheapest + self.deciding, budget):
            return np.inf
        return self.path.price(room)

    def decide(self, values, costs, budget, *, policy, objective="mean", told=False):
        """Choose for each row and say what that costs, deciding included.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_choices)
        costs : ndarray of shape (n_choices,) or (n_samples, n_choices)
        budget : float
            Mean cost per row, deciding included.
        policy : {"online", "batch"}
        objective : {"mean", "min"}, default="mean"
        told : bool, default=False
            Whether `costs` are known of these rows, and not those of the log or estimates.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            For a budget below the cheapest plan for these rows.
        """
        check_policy(policy, objective)
        least = self.least
        # One row alone has no mean that a budget could hold for.
        if policy == "batch" or (told and len(values) > 1):
            least = float(np.min(costs, axis=-1).mean()) + self.deciding
        check_affordable(budget, least)
        if policy == "online":
            route = choose_at_price(values, costs, self.price(budget))
        else:
            room = max(budget - self.deciding, least - self.deciding)
            route = decide(values, costs, room, self.path, policy="batch", objective=objective)
        cost = np.broadcast_to(costs, values.shape)[np.arange(len(values)), route]
        return Plan(route, cost + self.deciding)

    def validate(self, budget):
        """The cross-fitted decisions at a mean budget, judged by the log."""
        check_affordable(budget, self.least)
        rows = np.arange(len(self.quality))
        route = choose_at_price(self.estimate - self.docked, self.planned, self.price(budget))
        cost = np.broadcast_to(self.costs, self.quality.shape)[rows, route]
        return Validation(route, self.quality[rows, route], cost + self.deciding)

    def warn_if_a_single_choice_is_better(self, names, budget):
        """Say so when one affordable choice is better on validation rows, beyond noise."""
        mean_costs = self.costs.mean(axis=0) if self.per_row else self.costs
        affordable = np.flatnonzero(affords(budget - self.deciding, mean_costs))
        if len(affordable) == 0 or len(self.quality) < 2:
            return
        alone = self.quality.mean(axis=0)
        single = affordable[np.argmax(alone[affordable])]
        found = self.validate(budget).quality
        loss = self.quality[:, single] - found
        if loss.mean() > max(1.645 * loss.std(ddof=1) / np.sqrt(len(loss)), 0):
            warnings.warn(
                f"On validation rows the router's quality {found.mean():.4g} is below the "
                f"{alone[single]:.4g} of {names[single]!r} alone, which fits the budget. Try a "
                "larger reg_lambda, another accuracy_estimator or better features, or use that "
                "choice for all rows.",
                UserWarning,
                stacklevel=2,
            )


def fit_policy(
    estimator,
    X,
    quality,
    costs,
    *,
    folds,
    task,
    planned=None,
    reg_lambda=0.0,
    deciding=0.0,
    n_jobs=None,
    fit_params=None,
):
    """Learn a policy from a log: cross-fitted estimates, and the estimator on all rows.

    Parameters
    ----------
    estimator : multi-output regressor
    X : indexable of n_rows rows
        What the estimator sees.
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
    folds : list of (ndarray of int, ndarray of int)
    task : FitTask or None
    planned, reg_lambda, deciding
        As in `PricedPolicy`.
    n_jobs : int, default=None
    fit_params : dict, default=None
        Metadata for the estimator's `fit`.

    Returns
    -------
    PricedPolicy
    """
    with note_failure("accuracy_estimator", len(quality), "the quality estimate"):
        if hasattr(estimator, "cross_fit") and not fit_params:
            fitted, estimate = cross_fit_once(
                estimator, X, quality, costs if planned is None else planned, folds, task, n_jobs
            )
        else:
            fitted, estimate = cross_fit(
                estimator, X, quality, folds, task, n_jobs, fit_params, "accuracy_estimator"
            )
    return PricedPolicy(
        fitted, estimate, quality, costs, planned=planned, reg_lambda=reg_lambda, deciding=deciding
    )


def cross_fit(estimator, X, target, folds, task, n_jobs, fit_params, name):
    """An estimator fitted on all rows, and out-of-sample estimates of the same rows."""
    fit_params = fit_params or {}
    step = nullcontext() if task is None else task.step(f"{name} on all rows")
    estimate = out_of_sample_quality(
        estimator, X, target, folds, n_jobs, fit_params, task=task, name=name
    )
    with step:
        fitted = clone(estimator).fit(X, as_target(target), **fit_params)
    return fitted, estimate


def cross_fit_once(estimator, X, quality, costs, folds, task, n_jobs):
    """The same of an estimator that gives the estimates of its own rows out of sample."""
    check_partition(folds, len(quality))
    fitted = clone(estimator)
    with nullcontext() if task is None else task.step("accuracy_estimator"):
        estimate = fitted.cross_fit(X, as_target(quality), folds=folds, costs=costs, n_jobs=n_jobs)
    return fitted, estimate.reshape(quality.shape)


def check_lambda(reg_lambda):
    """Refuse a penalty that is none: it may have been set after `fit`."""
    if not (isinstance(reg_lambda, Real) and 0 <= reg_lambda < np.inf):
        raise ValueError(f"reg_lambda must be a finite number from 0 up, got {reg_lambda!r}.")


class PricedMixin(StreamMixin):
    """Mixin for routers that decide by a `PricedPolicy`.

    A subclass implements ``_policy()``, which returns the policy by the parameters of now,
    and what streams need.
    """

    @property
    def price_path_(self):
        """Price for every budget, what deciding costs not included (AssignmentPath)."""
        return self._policy().path

    @property
    def price_(self):
        """Price at `budget`; infinite where it is the smallest feasible one."""
        return float(self._policy().price(self._effective_budget(None)))

    @property
    def validation_quality_(self):
        """Mean quality of the cross-fitted decisions at `budget` on the rows of `fit`."""
        return float(self._policy().validate(self._effective_budget(None)).quality.mean())

    @property
    def validation_cost_(self):
        """What these decisions cost on average, measured on the same rows."""
        return float(self._policy().validate(self._effective_budget(None)).cost.mean())

    def _least(self):
        return self._policy().least


class LoggedMixin(PricedMixin):
    """Mixin for routers with one `PricedPolicy` over all of their choices.

    A subclass implements ``_estimates(X)``, the quality of each choice for each row.
    """

    @property
    def accuracy_estimator_(self):
        """The accuracy estimator, fitted on all rows."""
        return self._policy().estimator

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, ndarray of shape (n_choices,)."""
        return self._policy().quality.mean(axis=0)

    @property
    def quality_std_(self):
        """Sigma, the out-of-sample standard deviation of the estimation error."""
        return self._policy().sigma

    def predict_quality(self, X):
        """Estimated quality of each choice, before the penalty.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
            Columns in the order of ``choices_``.
        """
        check_is_fitted(self)
        self._check_unchanged()
        return self._estimates(self._check_X(X))
