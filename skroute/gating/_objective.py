"""The Adapt objective (OPT), its terms, and the steps that both gates share.

Notation of Nan and Saligrama (2017): ``q_i`` is the probability with which row i is
sent to the full model f0, ``g`` the gate (``g > 0`` sends to f0), ``f1`` the cheap
model,

    A_i = loss(f1(x_i), y_i) + log(1 + exp(g_i))
    B_i = -log p0(y_i | x_i) + log(1 + exp(-g_i)).
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit, log_softmax, softmax, xlogy

# Lower bound of p0. It bounds the loss of a row that the full model gets wrong with
# confidence: -log(0.001) is 6.9 nats.
MIN_PROBABILITY = 1e-3

# Absolute error of the dual price beta of the constraint on q, in nats. The rounding of
# sums of losses is of this size.
_PRICE_TOLERANCE = 1e-13

# The Newton steps of `fit_doubt` end if the next one would lower the loss by less than
# half of this number, in nats.
_SMALLEST_DECREASE = 1e-12

# Newton steps of `fit_doubt` are halved to no less than this factor. A smaller step
# would only follow rounding.
_SMALLEST_STEP = 1e-6


def log_probabilities(scores):
    """Return the log-probabilities of all classes, shape (n_rows, n_classes).

    `scores` has shape (n_rows, n_outputs). A single output is the log-odds of the
    second class. Several outputs are the inputs of a softmax.
    """
    n_outputs = scores.shape[1]
    if n_outputs == 1:
        log_odds = scores[:, 0]
        return np.column_stack([log_expit(-log_odds), log_expit(log_odds)])
    return log_softmax(scores, axis=1)


def modelled_probabilities(scores):
    """Return the probability of the class of each output, shape (n_rows, n_outputs).

    `scores` has the same shape. A single output stands for the second of two classes.
    """
    n_outputs = scores.shape[1]
    if n_outputs == 1:
        return expit(scores)
    return softmax(scores, axis=1)


def output_targets(y, n_outputs):
    """Return True where a row has the class of an output, shape (n_rows, n_outputs).

    Parameters
    ----------
    y : ndarray of int of shape (n_rows,)
        Position of the class of each row.

    n_outputs : int
        1 for two classes: the output then stands for the second one.
    """
    if n_outputs == 1:
        return y[:, None] == 1
    return y[:, None] == np.arange(n_outputs)


def class_losses(scores, y):
    """Return the logistic loss of the cheap model, ``loss(f1(x_i), y_i)``.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_outputs)
        Scores of the cheap model. One output for two classes.

    y : ndarray of int of shape (n_rows,)
        Position of the class of each row.

    Returns
    -------
    ndarray of shape (n_rows,)
        Losses in nats.
    """
    n_outputs = scores.shape[1]
    if n_outputs == 1:
        log_odds = scores[:, 0]  # of the second class
        log_odds_against_truth = np.where(y == 1, -log_odds, log_odds)
        # log(1 + exp(log_odds_against_truth))
        return np.logaddexp(0, log_odds_against_truth)
    log_p = log_probabilities(scores)
    log_p_of_truth = np.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    return -log_p_of_truth


def full_losses(p0):
    """Return the loss of the full model, ``-log p0(y_i | x_i)``.

    Parameters
    ----------
    p0 : ndarray of shape (n_rows,)
        Out-of-sample probability of the true class of each row.

    Returns
    -------
    ndarray of shape (n_rows,)
        Losses in nats.
    """
    return -np.log(np.clip(p0, MIN_PROBABILITY, 1.0))


def q_step(cheap_loss, full_loss, gate, p_full, weight):
    """Return the probabilities q of sending rows, at the minimum of the objective.

    This is the problem (OPT1) of Adapt, an I-projection, in closed form:
    ``q_i = 1 / (1 + exp(B_i - A_i + beta))`` with the smallest ``beta >= 0`` such that
    the mean of q is at most `p_full`.

    Parameters
    ----------
    cheap_loss, full_loss : ndarray of shape (n_rows,)
        Loss of the cheap and of the full model on each row, in nats.

    gate : ndarray of shape (n_rows,)
        Gate scores.

    p_full : float
        Largest mean of q.

    weight : ndarray of shape (n_rows,)
        Weights of the mean, with sum 1.

    Returns
    -------
    q : ndarray of shape (n_rows,)
        Probability with which each row is sent to the full model.

    beta : float
        Dual price of the constraint. 0 if the constraint does not bind.
    """
    # Objective of a sent row less that of a row that is not sent: B - A. The difference
    # of the gate's terms, log(1 + e^-g) - log(1 + e^g), is -g, without rounding error.
    difference = full_loss - cheap_loss - gate

    def mean_q(beta):
        return (weight * expit(-difference - beta)).sum()

    beta = smallest_price(mean_q, p_full)
    return expit(-difference - beta), beta


def smallest_price(mean_q, p_full):
    """Return the smallest dual price ``beta >= 0`` with ``mean_q(beta) <= p_full``.

    The root is bracketed, then found by Brent's method.

    Parameters
    ----------
    mean_q : callable
        ``mean_q(beta)`` is the mean of q at a dual price. It falls to 0 as the price
        rises.

    p_full : float
        Largest mean of q, above 0.

    Returns
    -------
    float
    """
    if mean_q(0.0) <= p_full:
        return 0.0  # the constraint does not bind
    low = 0.0
    high = 1.0
    while mean_q(high) > p_full:
        low = high
        high = 2 * high
    beta = brentq(
        lambda price: mean_q(price) - p_full, low, high, xtol=_PRICE_TOLERANCE
    )
    # By rounding, the mean of q at the root may exceed `p_full`. The price then rises
    # by steps that double, and stops at `high`, where the mean is within `p_full`.
    step = _PRICE_TOLERANCE
    while mean_q(beta) > p_full and beta < high:
        beta = min(beta + step, high)
        step = 2 * step
    return beta


def kl_objective(q, cheap_loss, full_loss, gate, weight):
    """Return the objective (OPT) of Adapt without its penalty of features.

    It is the mean of ``(1-q) A + q B - H(q)``, with the entropy H. A and B are
    the losses of the cheap and of the full model, each plus a term of the gate.

    Parameters
    ----------
    q : ndarray of shape (n_rows,)
        Probability with which each row is sent to the full model.

    cheap_loss, full_loss : ndarray of shape (n_rows,)
        Loss of the cheap and of the full model on each row, in nats.

    gate : ndarray of shape (n_rows,)
        Gate scores.

    weight : ndarray of shape (n_rows,)
        Weights of the mean, with sum 1.

    Returns
    -------
    float
    """
    # log(1 + e^g), without overflow. The other term, log(1 + e^-g), is `softplus` - g.
    softplus = np.maximum(gate, 0.0) + np.log1p(np.exp(-np.abs(gate)))
    entropy = -xlogy(q, q) - xlogy(1 - q, 1 - q)
    # Mean over sending and not sending, less the entropy. `softplus` is in both losses,
    # with factors of sum 1, so that it is added once.
    value = (1 - q) * cheap_loss + q * (full_loss - gate) + softplus - entropy
    return float(weight @ value)


def doubt(scores):
    """Return the log-odds of the cheap model against its own answer.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_outputs)
        Scores of the cheap model. One output for two classes.

    Returns
    -------
    ndarray of shape (n_rows,)
        For two classes at most 0. It is 0 if both classes have the same probability.
    """
    n_outputs = scores.shape[1]
    if n_outputs == 1:
        return -np.abs(scores[:, 0])
    log_p = log_probabilities(scores)
    rows = np.arange(len(scores))
    answers = np.argmax(log_p, axis=1)
    log_p_answer = log_p[rows, answers]
    # log(1 - p) is computed from the sum of the other classes, since 1 - p has no
    # digits left near p = 1. A logarithm of -inf leaves the answer itself out.
    log_p_others = log_p.copy()
    log_p_others[rows, answers] = -np.inf
    return np.logaddexp.reduce(log_p_others, axis=1) - log_p_answer


def fit_doubt(u, q, offset, weight, start=(0.0, 0.0), max_iter=50, ridge=1e-6):
    """Fit the gate ``offset + a * doubt + b`` to probabilities q of the full model.

    It is a logistic regression by Newton's method, for the gate's part of (OPT2), a
    convex problem in two numbers.

    Parameters
    ----------
    u : ndarray of shape (n_rows,)
        The doubt of the cheap model.

    q : ndarray of shape (n_rows,)
        Probability with which each row is sent to the full model.

    offset : ndarray of shape (n_rows,)
        The part of the gate that is not fitted: the scores of the gate's trees.

    weight : ndarray of shape (n_rows,)
        Weights with sum 1.

    start : pair of float, default=(0.0, 0.0)
        First values of ``(a, b)``.

    max_iter : int, default=50
        Largest number of Newton steps.

    ridge : float, default=1e-6
        L2 penalty of ``(a, b)``; the optimum is finite also for separable rows.

    Returns
    -------
    ndarray of shape (2,)
        ``(a, b)``.
    """
    problem = _DoubtProblem(u, q, offset=offset, weight=weight, ridge=ridge)
    coef = np.array(start, dtype=float)
    loss, p = problem.evaluate(coef)
    for _ in range(max_iter):
        gradient, hessian = problem.derivatives(coef, p)
        step = np.linalg.solve(hessian, gradient)
        # A full step is expected to lower the loss by half of this product.
        if gradient @ step < _SMALLEST_DECREASE:
            break
        # The step is halved until the loss does not rise.
        factor = 1.0
        new_loss, p = problem.evaluate(coef - step)
        while new_loss > loss and factor > _SMALLEST_STEP:
            factor *= 0.5
            new_loss, p = problem.evaluate(coef - factor * step)
        coef = coef - factor * step
        loss = new_loss
    return coef


class _DoubtProblem:
    """Penalised logistic loss of the gate's coefficients ``(a, b)``.

    The parameters are those of :func:`fit_doubt`.
    """

    def __init__(self, u, q, *, offset, weight, ridge):
        self.u = u
        self.q = q
        self.offset = offset
        self.weight = weight
        self.ridge = ridge

    def evaluate(self, coef):
        """Return the loss at ``(a, b)``, and the probability that each row is sent.

        Parameters
        ----------
        coef : ndarray of shape (2,)
            ``(a, b)``.

        Returns
        -------
        loss : float

        p : ndarray of shape (n_rows,)
            Probability with which the gate sends the row: ``1 / (1 + exp(-g))``.
        """
        slope, intercept = coef
        gate = self.offset + slope * self.u + intercept
        # e^-|g| does not overflow.
        exp_minus_abs = np.exp(-np.abs(gate))
        # q log(1 + e^-g) + (1 - q) log(1 + e^g) is log(1 + e^g) - q g. The first term
        # is max(g, 0) + log(1 + e^-|g|).
        losses = np.maximum(gate, 0.0) + np.log1p(exp_minus_abs) - self.q * gate
        p = np.where(gate >= 0, 1.0, exp_minus_abs) / (1.0 + exp_minus_abs)
        return self.weight @ losses + 0.5 * self.ridge * (coef @ coef), p

    def derivatives(self, coef, p):
        """Return the gradient and the Hessian of the loss at ``(a, b)``.

        Parameters
        ----------
        coef : ndarray of shape (2,)
            ``(a, b)``.

        p : ndarray of shape (n_rows,)
            The gate's probabilities at `coef`, from :meth:`evaluate`.

        Returns
        -------
        gradient : ndarray of shape (2,)

        hessian : ndarray of shape (2, 2)
        """
        # First and second derivative of the loss of each row in its gate score.
        # (n_rows,)
        first = self.weight * (p - self.q)
        second = self.weight * p * (1 - p)
        # The gate has the derivative u in a, and 1 in b.
        loss_gradient = np.array([first @ self.u, first.sum()])
        # Second derivatives of the loss: in a twice, in a and b, and in b twice.
        in_a_a = (second * self.u) @ self.u
        in_a_b = second @ self.u
        in_b_b = second.sum()
        loss_hessian = np.array([[in_a_a, in_a_b], [in_a_b, in_b_b]])
        gradient = loss_gradient + self.ridge * coef
        return gradient, loss_hessian + self.ridge * np.eye(2)
