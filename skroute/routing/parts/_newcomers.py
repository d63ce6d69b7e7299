"""A choice that a fitted router gets later, with few scores: what it is worth by the others."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skroute.routing.parts._log import with_last

# Rows that the noise of the other choices counts for beside the new one's own.
_NOISE_ROWS = 10
# The level of a choice may differ from what its slopes say by this share of the spread of levels,
# and, where few choices say how levels spread, by what so many of its own rows would tell.
_LEVEL, _LEVEL_ROWS = 0.25, 24
# Standard errors that are taken off its estimates: of few scores the estimate is easily too good.
CAUTION = 1.25


class Shrunk(NamedTuple):
    """The quality of a new choice, linear in the estimates of the choices of `fit`.

    `root` is the Cholesky factor of the coefficients' covariance; estimates stay within `low`
    and `high`.
    """

    coef: np.ndarray
    intercept: float
    root: np.ndarray
    low: float
    high: float

    def expected(self, outputs):
        """Estimates for outputs (n_rows, n_outputs) of the router's estimator."""
        return np.clip(outputs @ self.coef + self.intercept, self.low, self.high)

    def std(self, outputs):
        """Standard errors of the estimates."""
        return np.sqrt(((_deviations(outputs)[1] @ self.root) ** 2).sum(axis=1))

    def predict(self, outputs):
        """Careful estimates, which decide."""
        return np.clip(
            self.expected(outputs) - CAUTION * self.std(outputs), self.low, self.high
        )


def _deviations(outputs):
    """Mean of the choices in each row, and deviations from it with a constant behind."""
    mean = outputs.mean(axis=1)
    return mean, np.column_stack([outputs - mean[:, np.newaxis], np.ones(len(outputs))])


def shrunk_regression(outputs, q, noise, low, high):
    r"""A new choice under a hierarchical prior, and the noise of its outcomes.

    Its quality is :math:`\bar q(x) + \sum_j w_j (\hat q_j(x) - \bar q(x)) + w_0` with
    :math:`\bar q` the mean of the other choices: the posterior mean of ridge regression whose
    prior says that it is one more draw from the population of the others. With no rows it is
    their mean, with many its own regression on them.
    """
    mean, parts = _deviations(outputs)
    n, k = outputs.shape
    spread = outputs.mean(axis=0).var(ddof=1) if k > 1 else 0.0
    prior = np.full(k + 1, 1 / max(k - 1, 1))
    found = scale = max(noise, 1e-12 * (1 + float(np.abs(q).max()) ** 2))
    for _ in range(3):
        # The residuals say how noisy the outcomes are, and the noise how far to trust them.
        prior[k] = _LEVEL**2 * spread + found / (_LEVEL_ROWS * k)
        cov = np.linalg.inv(parts.T @ parts / found + np.diag(1 / prior))
        weight = cov @ (parts.T @ (q - mean)) / found
        left = q - mean - parts @ weight
        found = (left @ left + _NOISE_ROWS * scale) / (n + _NOISE_ROWS)
    coef = (1 - weight[:k].sum()) / k + weight[:k]
    root = np.linalg.cholesky((cov + cov.T) / 2)
    return Shrunk(coef, float(weight[k]), root, low, high), float(found)


class WithNewcomers(BaseEstimator):
    """A router's fitted estimator, with outputs of later choices behind those of `fit`.

    Parameters
    ----------
    base : fitted regressor
    models : tuple of Shrunk
        They read the outputs of `base`.
    """

    def __init__(self, base, models):
        self.base = base
        self.models = models

    def predict(self, X, return_std=False):
        """Estimates of all choices, and perhaps their standard errors."""
        asked = {"return_std": True} if return_std else {}
        found = self.base.predict(X, **asked)
        outputs = as_table(found[0] if return_std else found)
        estimates = np.column_stack(
            [outputs, *(one.predict(outputs) for one in self.models)]
        )
        if not return_std:
            return estimates
        return estimates, np.column_stack(
            [found[1], *(one.std(outputs) for one in self.models)]
        )


def as_table(outputs):
    """What a regressor gives for several outputs, or for one."""
    outputs = np.asarray(outputs, dtype=np.float64)
    return outputs.reshape(len(outputs), -1)


def with_newcomer(policy, n_fitted, X, q, cost):
    """A policy with one more choice, solved from what is stored of those of `fit`."""
    estimator = policy.estimator
    if not isinstance(estimator, WithNewcomers):
        estimator = WithNewcomers(estimator, ())
    noise = float(np.mean(policy.sigma[:n_fitted] ** 2))
    known = policy.quality[:, :n_fitted]
    low, high = float(min(known.min(), q.min())), float(max(known.max(), q.max()))
    model, noise = shrunk_regression(
        as_table(estimator.base.predict(X)), q, noise, low, high
    )
    own, as_new = policy.estimate[:, :n_fitted], policy.as_new[:, :n_fitted]
    by_fold = None
    if policy.by_fold is not None:
        newcomer_by_fold = [
            model.predict(table[:, :n_fitted]) for table in policy.by_fold
        ]
        by_fold = with_last(policy.by_fold, newcomer_by_fold)
    planned, realised = policy.planned, policy.realised
    if realised is not None:
        # Its calls cost more, or less, than the list says where those of the others do.
        factor = np.divide(
            realised, planned, out=np.ones_like(realised), where=planned > 0
        )
        realised = with_last(realised, cost * factor.mean(axis=1))
    return replace(
        policy,
        estimator=WithNewcomers(estimator.base, (*estimator.models, model)),
        estimate=with_last(policy.estimate, model.predict(own)),
        as_new=with_last(policy.as_new, model.predict(as_new)),
        by_fold=by_fold,
        quality=with_last(policy.quality, model.expected(own)),
        planned=with_last(planned, cost),
        realised=realised,
        sigma=with_last(policy.sigma, np.sqrt(noise + np.mean(model.std(own) ** 2))),
        _kept={},
    )
