"""A new choice after fit: its quality is estimated from estimates of the other choices.

The quality of the new choice is known on a few rows only. A linear regression on the
estimates of the choices of `fit` extends it to all rows, with a prior that counts the
new choice as one more choice of their kind. No model is fitted again.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skroute.routing.parts._log import with_last

# The noise variance of a new choice is shrunk towards that of the choices of `fit`, as
# if this many further rows with their noise had been seen.
_NOISE_ROWS = 10
# Prior standard deviation of the intercept, as a share of the standard deviation of the
# mean qualities of the choices of `fit`.
_LEVEL = 0.25
# The noise variance, divided by this number and by the number of choices of `fit`, is
# added to the prior variance of the intercept. It matters if `fit` has few choices.
# Their mean qualities then say little about the spread of mean qualities.
_LEVEL_ROWS = 24
# The noise variance depends on the regression, and the regression on the noise
# variance. Each is computed this many times, in turn.
_N_ITERATIONS = 3
# Smallest variance of the noise, as a share of 1 plus the largest squared quality. It
# keeps the regression defined where the choices of `fit` have no noise at all.
_LEAST_VARIANCE = 1e-12
# Standard errors that are subtracted from the estimates of a new choice: the highest of
# several uncertain estimates is too high on average. Chosen by
# benchmarks/bench_lifecycle.py, on other splits than those it reports.
CAUTION = 1.25


class ShrunkRegression(NamedTuple):
    """Quality of a new choice as a linear function of the choices of `fit`.

    Attributes
    ----------
    coef : ndarray of shape (n_outputs,)
        Coefficients of the estimates of the choices of `fit`.
    intercept : float
    root : ndarray of shape (n_outputs + 1, n_outputs + 1)
        Cholesky factor of the posterior covariance of the weights. Weights are those of
        the columns of `_deviations`, so that the last one is the intercept.
    low, high : float
        Range of all known qualities. Estimates are clipped to it.
    """

    coef: np.ndarray
    intercept: float
    root: np.ndarray
    low: float
    high: float

    def expected(self, outputs):
        """Estimate the new choice's quality from `outputs`: estimates of other choices.

        `outputs` has shape (n_rows, n_outputs), and the result (n_rows,).
        """
        estimates = outputs @ self.coef + self.intercept
        return np.clip(estimates, self.low, self.high)

    def std(self, outputs):
        """Return the standard errors of `expected` for these outputs, (n_rows,)."""
        _, deviations = _deviations(outputs)
        # The variance of an estimate is d.T @ covariance @ d, with d the deviations of
        # the row and covariance = root @ root.T.
        return np.sqrt(((deviations @ self.root) ** 2).sum(axis=1))

    def predict(self, outputs):
        """Return `expected` less `CAUTION` standard errors, for decisions."""
        cautious = self.expected(outputs) - CAUTION * self.std(outputs)
        return np.clip(cautious, self.low, self.high)


def _deviations(outputs):
    """Return the mean of each row, and the deviations that `shrunk_regression` reads.

    Parameters
    ----------
    outputs : ndarray of shape (n_rows, n_outputs)

    Returns
    -------
    mean : ndarray of shape (n_rows,)
    deviations : ndarray of shape (n_rows, n_outputs + 1)
        Deviations of the outputs from the mean of their row, and a last column of ones
        for the intercept.
    """
    mean = outputs.mean(axis=1)
    ones = np.ones(len(outputs))
    return mean, np.column_stack([outputs - mean[:, np.newaxis], ones])


def shrunk_regression(outputs, q, noise, low, high):
    r"""Fit the quality of a new choice by ridge regression with a hierarchical prior.

    The quality is modelled as
    :math:`\bar q(x) + \sum_j w_j (\hat q_j(x) - \bar q(x)) + w_0`, with
    :math:`\hat q_j` the estimate of choice :math:`j` of `fit` and :math:`\bar q` their
    mean. The prior of :math:`w` describes one more draw from the population of the
    choices of `fit`. The result is the posterior mean. Without rows it is
    :math:`\bar q`. With many rows it is an ordinary regression on the
    :math:`\hat q_j`.

    Parameters
    ----------
    outputs : ndarray of shape (n_rows, n_outputs)
        Estimates of the choices of `fit`.
    q : ndarray of shape (n_rows,)
        Known quality of the new choice.
    noise : float
        Variance of the noise of the choices of `fit`.
    low, high : float
        Estimates are clipped to this range.

    Returns
    -------
    model : ShrunkRegression
    noise : float
        Variance of the noise of the new choice.
    """
    # `deviations` (n_rows, n_outputs + 1) has a last column for the intercept.
    mean, deviations = _deviations(outputs)
    n_rows, n_outputs = outputs.shape
    # Variance of the mean estimates of the choices of `fit`. A single choice has none.
    spread = outputs.mean(axis=0).var(ddof=1) if n_outputs > 1 else 0.0
    largest_square = float(np.abs(q).max()) ** 2
    prior_noise = max(noise, _LEAST_VARIANCE * (1 + largest_square))
    new_noise = prior_noise
    # Prior variances of the weights. With 1 / (n_outputs - 1), the new choice deviates
    # from the mean of a row as much as a choice of `fit` does. The last entry belongs
    # to the intercept, and is set in the loop.
    prior = np.full(n_outputs + 1, 1 / max(n_outputs - 1, 1))
    for _ in range(_N_ITERATIONS):
        prior[-1] = _LEVEL**2 * spread + new_noise / (_LEVEL_ROWS * n_outputs)
        precision = deviations.T @ deviations / new_noise + np.diag(1 / prior)
        covariance = np.linalg.inv(precision)
        weights = covariance @ (deviations.T @ (q - mean)) / new_noise
        # The new noise variance is a mean of squares over the rows and `_NOISE_ROWS`
        # added rows. Each added row has the noise variance of the choices of `fit`.
        residuals = q - mean - deviations @ weights
        squares = residuals @ residuals + _NOISE_ROWS * prior_noise
        new_noise = squares / (n_rows + _NOISE_ROWS)
    slopes = weights[:-1]
    model = ShrunkRegression(
        # The weights are those of deviations from the mean of the row. The mean is
        # linear in the outputs, which gives these coefficients of the outputs.
        coef=(1 - slopes.sum()) / n_outputs + slopes,
        intercept=float(weights[-1]),
        root=np.linalg.cholesky((covariance + covariance.T) / 2),
        low=low,
        high=high,
    )
    return model, float(new_noise)


class WithNewcomers(BaseEstimator):
    """A fitted quality estimator with one more output for each choice added after fit.

    Parameters
    ----------
    base : fitted regressor
        The estimator of `fit`. Its outputs are the first ones.
    models : tuple of ShrunkRegression
        One for each new choice. They read the outputs of `base`.
    """

    def __init__(self, base, models):
        self.base = base
        self.models = models

    def predict(self, X, return_std=False):
        """Return the estimates of all choices.

        Parameters
        ----------
        X : indexable of n_rows rows
        return_std : bool, default=False
            If True, `base` must have this parameter, too.

        Returns
        -------
        estimates : ndarray of shape (n_rows, n_choices)
        std : ndarray of shape (n_rows, n_choices)
            Standard errors. Only if `return_std`.
        """
        if return_std:
            outputs, base_std = self.base.predict(X, return_std=True)
        else:
            outputs = self.base.predict(X)
        outputs = as_table(outputs)
        new_estimates = [model.predict(outputs) for model in self.models]
        estimates = np.column_stack([outputs, *new_estimates])
        if not return_std:
            return estimates
        new_std = [model.std(outputs) for model in self.models]
        return estimates, np.column_stack([base_std, *new_std])


def as_table(outputs):
    """Return outputs of a regressor as a table (n_rows, n_outputs).

    A single output of shape (n_rows,) becomes a column.
    """
    outputs = np.asarray(outputs, dtype=np.float64)
    return outputs.reshape(len(outputs), -1)


def with_newcomer(policy, n_fitted, X, q, cost):
    """Return a policy with a new choice, estimated from the choices of `fit`.

    No model is fitted again. Only the prices are.

    Parameters
    ----------
    policy : Policy
    n_fitted : int
        Number of choices of `fit`, which come first. Others were added before.
    X : indexable of n_rows rows
        Rows on which the quality of the new choice is known.
    q : ndarray of shape (n_rows,)
        Quality of the new choice on these rows.
    cost : float
        Cost of its call.

    Returns
    -------
    Policy
    """
    estimator = policy.estimator
    if not isinstance(estimator, WithNewcomers):
        estimator = WithNewcomers(estimator, ())
    quality_of_fit = policy.quality[:, :n_fitted]
    model, noise = shrunk_regression(
        as_table(estimator.base.predict(X)),
        q,
        noise=float(np.mean(policy.sigma[:n_fitted] ** 2)),
        low=float(min(quality_of_fit.min(), q.min())),
        high=float(max(quality_of_fit.max(), q.max())),
    )
    # The model reads the estimates of the choices of `fit`: (n_rows, n_fitted)
    estimate_of_fit = policy.estimate[:, :n_fitted]
    as_new_of_fit = policy.as_new[:, :n_fitted]
    by_fold = None
    if policy.by_fold is not None:
        # For each fold, estimates of the new choice: (n_folds, n_rows)
        new_by_fold = [model.predict(table[:, :n_fitted]) for table in policy.by_fold]
        by_fold = with_last(policy.by_fold, new_by_fold)
    sigma = np.sqrt(noise + np.mean(model.std(estimate_of_fit) ** 2))
    return replace(
        policy,
        estimator=WithNewcomers(estimator.base, (*estimator.models, model)),
        estimate=with_last(policy.estimate, model.predict(estimate_of_fit)),
        as_new=with_last(policy.as_new, model.predict(as_new_of_fit)),
        by_fold=by_fold,
        quality=with_last(policy.quality, model.expected(estimate_of_fit)),
        planned=with_last(policy.planned, cost),
        realised=_realised_with_newcomer(policy, cost),
        sigma=with_last(policy.sigma, sigma),
        _cache={},
    )


def _realised_with_newcomer(policy, cost):
    """Return `policy.realised` with a column for a new choice. None stays None.

    A row on which the other choices cost more than their listed costs is expensive for
    the new choice, too: its column is `cost` times the mean ratio of the row.
    """
    realised = policy.realised  # (n_rows, n_choices)
    if realised is None:
        return None
    # Logged cost / listed cost, (n_rows, n_choices). 1 if the listed cost is 0.
    ratio = np.divide(
        realised,
        policy.planned,
        out=np.ones_like(realised),
        where=policy.planned > 0,
    )
    return with_last(realised, cost * ratio.mean(axis=1))
