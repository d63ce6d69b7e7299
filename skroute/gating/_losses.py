"""The two divergences of Adapt as loss objects: Kullback-Leibler and least squares."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from skroute.gating._objective import (
    class_losses,
    kl_objective,
    lstsq_objective,
    lstsq_q_step,
    modelled_probabilities,
    q_step,
)


class Loss(NamedTuple):
    """How far the gate is from the assignment q.

    Attributes
    ----------
    smooth : callable
        ``smooth(scores, y, q, weight) -> (value, gradient)``: the smooth part of (OPT2).
    q_step : callable
        ``q_step(cheap_loss, full_loss, gate, p_full, weight) -> (q, beta)``: (OPT1).
    objective : callable
        ``objective(q, cheap_loss, full_loss, gate, weight)``: (OPT) without penalties.
    gate_curvature : float
        Bound of the second derivative in the gate.
    """

    smooth: Callable
    q_step: Callable
    objective: Callable
    gate_curvature: float

    def curvature(self, n_classes):
        """Bound of the Hessian in the scores: 1/4 logistic, 1/2 softmax, 2 least squares."""
        return max(self.gate_curvature, cheap_curvature(n_classes))


def cheap_curvature(n_classes):
    """Bound of the Hessian of the logistic loss in the scores of f1."""
    return 0.25 if n_classes == 2 else 0.5


def loss_kl(scores, y, q, weight):
    """Smooth part of (OPT2) for given q, and its gradient in the scores.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_outputs + 1)
        Outputs of f1, and the gate last.
    y : ndarray of shape (n_samples,), dtype=int
    q : ndarray of shape (n_samples,)
    weight : ndarray of shape (n_samples,)
        Sums to 1.

    Returns
    -------
    value : float
    gradient : ndarray of shape (n_samples, n_outputs + 1)
    """
    gate = scores[:, -1]
    value, gradient = cheap_part(scores, y, q, weight)
    value += (weight * (np.logaddexp(0, gate) - q * gate)).sum()
    gradient[:, -1] = weight * (expit(gate) - q)
    return float(value), gradient


def loss_lstsq(scores, y, q, weight):
    """The same with ``(logit(q) - g)^2``: the gate is a least-squares fit."""
    residual = scores[:, -1] - logit(q)
    value, gradient = cheap_part(scores, y, q, weight)
    gradient[:, -1] = 2 * weight * residual
    return float(value + (weight * residual**2).sum()), gradient


def cheap_part(scores, y, q, weight):
    """What f1 adds to the loss; the gate's column of the gradient is left open."""
    cheap = scores[:, :-1]
    columns = cheap.shape[1]
    kept = weight * (1 - q)
    # One output stands for the second of two classes.
    target = y[:, None] == (np.arange(1, 2) if columns == 1 else np.arange(columns))
    gradient = np.empty_like(scores)
    gradient[:, :-1] = kept[:, None] * (modelled_probabilities(cheap) - target)
    return (kept * class_losses(cheap, y)).sum(), gradient


KL = Loss(loss_kl, q_step, kl_objective, 0.25)
LEAST_SQUARES = Loss(loss_lstsq, lstsq_q_step, lstsq_objective, 2.0)
