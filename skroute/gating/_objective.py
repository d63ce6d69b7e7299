"""The Adapt objective (OPT), its terms, and the steps that do not depend on the model class.

Notation of Nan and Saligrama (2017): ``q_i`` is the probability with which row i is
sent to the full model f0, ``g`` the gate (``g > 0`` sends to f0), ``f1`` the cheap model,

    A_i = loss(f1(x_i), y_i) + log(1 + exp(g_i))
    B_i = -log p0(y_i | x_i) + log(1 + exp(-g_i)).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_softmax, softmax, xlogy

# p0 is clipped so that one row, confidently wrong out of sample, has a bounded loss.
MIN_PROBABILITY = 1e-3


class Rows(NamedTuple):
    """Rows to learn a pair from, with the full model's loss and quality on each, out of sample."""

    values: Any
    y: Any
    full_loss: Any
    weight: Any
    full_quality: Any

    def of(self, kept):
        """Some of the rows."""
        return Rows(*(part[kept] for part in self))


class Problem(NamedTuple):
    """What a pair is fitted for; `group_of` is of the columns that it reads."""

    n_classes: int
    p_full: float
    gamma: float
    group_of: Any
    group_costs: Any

    @property
    def n_outputs(self):
        """Outputs of the cheap model: one stands for the second of two classes."""
        return 1 if self.n_classes == 2 else self.n_classes


def log_probabilities(scores):
    """Log-probabilities; one output is the log-odds of the second class, more are a softmax."""
    if scores.shape[1] == 1:
        return np.column_stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])])
    return log_softmax(scores, axis=1)


def modelled_probabilities(scores):
    """Probability of the class that each output stands for: the second of two, if it is one."""
    return expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)


def of_outputs(y, n_outputs):
    """Whether each row is of the class that each output stands for."""
    return y[:, None] == (np.arange(1, 2) if n_outputs == 1 else np.arange(n_outputs))


def class_losses(scores, y):
    """Logistic loss of the cheap model, ``loss(f1(x_i), y_i)``."""
    if scores.shape[1] == 1:
        return np.logaddexp(0, np.where(y == 1, -scores[:, 0], scores[:, 0]))
    return -np.take_along_axis(log_probabilities(scores), y[:, None], axis=1)[:, 0]


def full_losses(p0):
    """Loss of the full model, ``-log p0(y_i | x_i)``, from out-of-sample probabilities."""
    return -np.log(np.clip(p0, MIN_PROBABILITY, 1.0))


def q_step(cheap_loss, full_loss, gate, p_full, weight):
    """Minimise (OPT1): the I-projection, in closed form; q, and the price of the constraint.

    ``q_i = 1 / (1 + exp(B_i - A_i + beta))`` with the smallest ``beta >= 0`` such that the mean of
    q, by weights that sum to 1, is at most `p_full`, found by bracketing (Brent's method).
    """
    # B - A; log(1 + e^-g) - log(1 + e^g) = -g, without the cancellation.
    difference = full_loss - cheap_loss - gate

    def mean_q(beta):
        return (weight * expit(-difference - beta)).sum()

    beta = smallest_price(mean_q, p_full)
    return expit(-difference - beta), beta


def smallest_price(mean_q, p_full):
    """Smallest ``beta >= 0`` with ``mean_q(beta) <= p_full``, for a falling `mean_q`."""
    if mean_q(0.0) <= p_full:
        return 0.0
    low, high = 0.0, 1.0
    while mean_q(high) > p_full:
        low, high = high, 2 * high
    beta = brentq(lambda price: mean_q(price) - p_full, low, high, xtol=1e-13)
    # The root is met from either side; the constraint is met from one.
    nudge = 1e-13
    while mean_q(beta) > p_full and beta < high:
        beta, nudge = min(beta + nudge, high), 2 * nudge
    return beta


def kl_objective(q, cheap_loss, full_loss, gate, weight):
    """The part of (OPT) that is not a penalty: mean of ``(1-q) A + q B - H(q)``."""
    # log(1 + e^-g) = log(1 + e^g) - g: one logarithm serves both.
    either = np.maximum(gate, 0.0) + np.log1p(np.exp(-np.abs(gate)))
    entropy = -xlogy(q, q) - xlogy(1 - q, 1 - q)
    value = (1 - q) * cheap_loss + q * (full_loss - gate) + either - entropy
    return float(weight @ value)


def doubt(scores):
    """What the cheap model says about being wrong: minus the log-odds of its answer."""
    if scores.shape[1] == 1:
        return -np.abs(scores[:, 0])
    log_p = log_probabilities(scores)
    top = np.argmax(log_p, axis=1)
    rows = np.arange(len(scores))
    best = log_p[rows, top]
    # log(1 - p) through the other classes: 1 - exp(best) would cancel near p = 1.
    rest = log_p.copy()
    rest[rows, top] = -np.inf
    return np.logaddexp.reduce(rest, axis=1) - best


def fit_doubt(u, q, offset, weight, start=(0.0, 0.0), max_iter=50, ridge=1e-6):
    """Logistic fit of `q` on the doubt: ``g = offset + a u + b``; the pair ``(a, b)``.

    Newton's method on the gate's part of (OPT2), a convex problem in two numbers.
    """

    def evaluate(coef):
        gate = offset + coef[0] * u + coef[1]
        tail = np.exp(-np.abs(gate))
        # q log(1 + e^-g) + (1 - q) log(1 + e^g), in one logarithm.
        loss = np.maximum(gate, 0.0) + np.log1p(tail) - q * gate
        p = np.where(gate >= 0, 1.0, tail) / (1.0 + tail)
        return weight @ loss + 0.5 * ridge * (coef @ coef), p

    coef = np.array(start, dtype=float)
    current, p = evaluate(coef)
    for _ in range(max_iter):
        slope, curve = weight * (p - q), weight * p * (1 - p)
        gradient = np.array([slope @ u, slope.sum()]) + ridge * coef
        mixed = curve @ u
        hessian = np.array(
            [[(curve * u) @ u, mixed], [mixed, curve.sum()]]
        ) + ridge * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        # Half of it is what a full step is expected to gain.
        if gradient @ step < 1e-12:
            break
        size, (proposal, p) = 1.0, evaluate(coef - step)
        while proposal > current and size > 1e-6:
            size *= 0.5
            proposal, p = evaluate(coef - size * step)
        coef, current = coef - size * step, proposal
    return coef
