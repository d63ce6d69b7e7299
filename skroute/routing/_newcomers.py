"""A choice that a fitted router gets later, with few scores: what it is worth by the others."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

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
        return np.clip(self.expected(outputs) - CAUTION * self.std(outputs), self.low, self.high)


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
        They read those outputs of `base` that `columns` names.
    columns : ndarray of int
    """

    def __init__(self, base, models, columns):
        self.base = base
        self.models = models
        self.columns = columns

    def predict(self, X, return_std=False):
        """Estimates of all choices, and perhaps their standard errors."""
        if not return_std:
            return self.widened(self.base.predict(X))
        outputs, std = self.base.predict(X, return_std=True)
        own = self._own(outputs)
        std = np.column_stack([std, *(model.std(own) for model in self.models)])
        return self.widened(outputs), std

    def _own(self, outputs):
        outputs = np.asarray(outputs, dtype=np.float64)
        return outputs.reshape(len(outputs), -1)[:, self.columns]

    def widened(self, outputs):
        """Estimates of all choices, from those of the choices of `fit`."""
        own = self._own(outputs)
        return np.column_stack([outputs, *(model.predict(own) for model in self.models)])


def with_newcomer(policy, fitted, X, q, cost):
    """A policy with one more choice, solved from what is stored of the others."""
    estimator = policy.estimator
    if not isinstance(estimator, WithNewcomers):
        estimator = WithNewcomers(estimator, (), np.array(fitted))
    noise = float(np.mean(policy.sigma[fitted] ** 2))
    low = float(min(policy.quality[:, fitted].min(), q.min()))
    high = float(max(policy.quality[:, fitted].max(), q.max()))
    outputs = estimator._own(estimator.base.predict(X))
    model, noise = shrunk_regression(outputs, q, noise, low, high)
    own, as_new = policy.estimate[:, fitted], policy.as_new[:, fitted]

    def widened(table, column):
        return np.concatenate([table, np.asarray(column)[..., np.newaxis]], axis=-1)

    planned = widened(policy.planned, cost)
    paid = planned
    if policy.paid is not policy.planned:
        # Its calls cost more, or less, than the list says where those of the others do.
        factor = np.divide(
            policy.paid, policy.planned, out=np.ones_like(policy.paid), where=policy.planned > 0
        )
        paid = widened(policy.paid, cost * factor.mean(axis=1))
    sigma = np.sqrt(noise + np.mean(model.std(own) ** 2))
    return replace(
        policy,
        estimator=WithNewcomers(estimator.base, (*estimator.models, model), estimator.columns),
        estimate=widened(policy.estimate, model.predict(own)),
        as_new=widened(policy.as_new, model.predict(as_new)),
        quality=widened(policy.quality, model.expected(own)),
        planned=planned,
        paid=paid,
        sigma=widened(policy.sigma, sigma),
        _kept={},
    )
