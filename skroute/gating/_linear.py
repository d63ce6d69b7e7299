"""Adapt-Lin: linear gate and cheap model with group-sparse features.

The coefficients ``W`` have one column per output of f1 and a last one for the gate g. Rows of W
that belong to features bought together form one group. The last feature is 1, alone in the last
group, which costs nothing: its coefficients are the intercepts.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator

from skroute.gating._levels import lowest_level
from skroute.gating._objective import (
    class_losses,
    kl_objective,
    modelled_probabilities,
    of_outputs,
    q_step,
)
from skroute.utils._compat import Integral, Interval, Real
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import NDArray

__all__ = ["LinearGate"]

# Keeps the optimum finite on separable data, and the duality gap finite at every point.
RIDGE = 1e-4
# Proximal steps at most; the duality gap ends nearly all problems before.
_MOST_STEPS = 2000
# Groups that are tried alone for a second start.
_STARTS = 8
# A category of fewer rows says nothing that a linear model could learn.
_RARE = 2


class LinearColumns(NamedTuple):
    """Columns of a linear model: the raw column of each, and what it says of its cells.

    `level` is the category that it says to be there, NaN where it says that a cell is missing, and
    infinite where it is the number itself. `mean`, of each raw column, stands for missing numbers.
    """

    origin: NDArray[np.int64]
    level: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, values, weight, categorical):
        """Return the columns for training rows; `weight` is in units of one row."""
        found, mean = [], np.zeros(values.shape[1])
        share = weight / weight.sum()
        for at, column in enumerate(values.T):
            there = ~np.isnan(column)
            if categorical[at]:
                levels, positions = np.unique(column[there], return_inverse=True)
                counts = np.bincount(positions, weight[there])
                found += [(at, level) for level in levels[counts >= _RARE]]
            else:
                found.append((at, np.inf))
                if there.any():
                    mean[at] = np.average(column[there], weights=share[there])
            if not there.all():
                found.append((at, np.nan))
        origin, level = map(np.array, zip(*found))
        return cls(origin.astype(np.int64), level.astype(np.float64), mean)

    def expand(self, values, columns=slice(None)):
        """Rows as the columns of the linear model, all of them or some."""
        origin, level = self.origin[columns], self.level[columns]
        raw = values[:, origin]
        missing = np.isnan(raw)
        said = (raw == level) | (missing & np.isnan(level))
        return np.where(
            np.isinf(level), np.where(missing, self.mean[origin], raw), said
        )


@dataclass
class LinearPair:
    """Linear cheap model f1 and gate g; of the coefficients the gate's are the last."""

    columns: LinearColumns
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    reads_cheap = False
    simpler = None

    def __post_init__(self):
        self._cheap = np.flatnonzero(self.coef[:, :-1].any(axis=1))
        self._gate = np.flatnonzero(self.coef[:, -1])
        self.cheap_features = np.unique(self.columns.origin[self._cheap])
        self.gate_features = np.unique(self.columns.origin[self._gate])

    def cheap_scores(self, values):
        """Scores of f1, shape (n_rows, n_outputs)."""
        used = self._cheap
        return (
            self.columns.expand(values, used) @ self.coef[used, :-1]
            + self.intercept[:-1]
        )

    def gate_scores(self, values, scores):
        """Scores of the gate, shape (n_rows,)."""
        used = self._gate
        return (
            self.columns.expand(values, used) @ self.coef[used, -1] + self.intercept[-1]
        )


class LinearGate(BaseEstimator):
    """Linear cheap model and gate with a group-sparse penalty: Adapt-Lin.

    For the parameter `gate` of :class:`AdaptGatingClassifier`. The penalty is the convex
    relaxation ``gamma * sum_a sqrt(c_a) ||(g_a, f1_a)||`` (Algorithm 1).

    Parameters
    ----------
    max_iter : int, default=10
        Largest number of alternations. Raising it may lower the objective.

    tol : float, default=1e-5
        Stop when the objective falls by less.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, LinearGate
    >>> AdaptGatingClassifier(LogisticRegression(), gate=LinearGate(tol=1e-3)).gate.tol
    0.001
    """

    _parameter_constraints: dict = {
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, max_iter=10, tol=1e-5):
        self.max_iter = max_iter
        self.tol = tol

    def ready(self, rows, categorical):
        """Columns of the linear model; values with mean 0 and variance 1, and ones; the moments."""
        weight = rows.weight / rows.weight.sum()
        columns = LinearColumns.of(rows.values, rows.weight, categorical)
        values = columns.expand(rows.values)
        mean = weight @ values
        scale = np.sqrt(weight @ (values - mean) ** 2)
        # A constant column carries nothing; rounding must not blow it up.
        scale[scale <= ROUNDING * np.abs(mean)] = np.inf
        return columns, with_ones((values - mean) / scale), mean, scale

    def fit_pair(self, rows, held_out, ready, problem, n_jobs, progress):
        """Return the pair, its objectives, none on held-out rows, and the alternations."""
        columns, values, mean, scale = ready
        of_columns = problem._replace(
            group_of=np.append(
                problem.group_of[columns.origin], len(problem.group_costs)
            ),
            group_costs=np.append(problem.group_costs, 0.0),
        )
        how = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
        W, objectives = adapt_linear_multistart(values, rows, of_columns, **how)
        coef = W[:-1] / scale[:, None]
        pair = LinearPair(columns, coef, W[-1] - mean @ coef)
        return pair, objectives, [], len(objectives)

    def level(self, gate, gain, weight, p_full, sure):
        """The logistic fit puts it at 0, unless more than `p_full` is sent from there."""
        return max(0.0, lowest_level(gate, weight, p_full))


def with_ones(values):
    """Features with the last one, of the intercepts."""
    return np.column_stack([values, np.ones(len(values))])


def loss_kl(scores, y, q, weight):
    """Smooth part of (OPT2) for given q, and its gradient in the scores of f1 and the gate."""
    gate = scores[:, -1]
    value, gradient = cheap_part(scores[:, :-1], y, weight * (1 - q))
    value += (weight * (np.logaddexp(0, gate) - q * gate)).sum()
    return float(value), np.column_stack([gradient, weight * (expit(gate) - q)])


def cheap_part(scores, y, kept):
    """What f1 adds to the loss, and its gradient in the scores of f1."""
    wrong = modelled_probabilities(scores) - of_outputs(y, scores.shape[1])
    return (kept * class_losses(scores, y)).sum(), kept[:, None] * wrong


def group_norms(W, group_of, n_groups):
    """Frobenius norm of each group of rows, shape (n_groups,)."""
    return np.sqrt(
        np.bincount(group_of, weights=(W**2).sum(axis=1), minlength=n_groups)
    )


def prox_group_norm(W, group_of, thresholds):
    """Proximal operator of ``sum_a threshold_a ||W_a||_F``: block soft-thresholding."""
    norms = group_norms(W, group_of, len(thresholds))
    shrink = np.maximum(1 - thresholds / np.where(norms > 0, norms, 1.0), 0.0)
    return W * shrink[group_of][:, None]


def penalty(W, group_of, thresholds):
    """The L2,1 norm weighted by feature costs, and the ridge."""
    of_groups = thresholds @ group_norms(W, group_of, len(thresholds))
    return float(of_groups + 0.5 * RIDGE * (W**2).sum())


def duality_gap(W, gradient, group_of, thresholds):
    """Gap between the penalised objective at W and the dual at the loss gradient.

    With the dual point at the gradient of the loss, the loss terms cancel (Fenchel-Young)
    and the gap is ``sum_a Omega_a(W_a) + <W_a, V_a> + Omega_a^*(-V_a)``, V being the
    gradient with respect to W and ``Omega^*(-V) = (||V|| - threshold)_+^2 / (2 ridge)``.
    """
    over = np.maximum(
        group_norms(gradient, group_of, len(thresholds)) - thresholds, 0.0
    )
    dual = (W * gradient).sum() + (over**2).sum() / (2 * RIDGE)
    return float(penalty(W, group_of, thresholds) + dual)


def accelerated_proximal_gradient(
    X, loss, W, group_of, thresholds, *, curvature, tol, max_iter=_MOST_STEPS
):
    """Minimise ``loss(X W) + penalty``: the linear case of (OPT2).

    FISTA with a fixed step, momentum restarted when it points uphill (O'Donoghue and
    Candes' gradient scheme), stopped by the duality gap, which is computed every tenth
    step. The objective at the result is never above that at the start.

    ``loss(scores)`` returns a value and its gradient; `curvature` bounds the largest eigenvalue of
    its Hessian in W. The result is W and the last duality gap, a bound of the distance to the
    optimal objective.
    """
    step = 1.0 / (curvature + RIDGE)
    best, best_value = W, loss(X @ W)[0] + penalty(W, group_of, thresholds)
    ahead, momentum, gap = W, 1.0, np.inf
    for iteration in range(1, max_iter + 1):
        move = ahead - step * (X.T @ loss(X @ ahead)[1] + RIDGE * ahead)
        new = prox_group_norm(move, group_of, step * thresholds)
        change = new - W
        if ((ahead - new) * change).sum() > 0:
            momentum = 1.0
        next_momentum = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        ahead = new + (momentum - 1) / next_momentum * change
        W, momentum = new, next_momentum
        if iteration % 10 == 0 or iteration == max_iter:
            value, by_score = loss(X @ W)
            value += penalty(W, group_of, thresholds)
            if value <= best_value:
                best, best_value = W, value
            gap = duality_gap(W, X.T @ by_score, group_of, thresholds)
            if gap <= tol:
                break
    return best, gap


def adapt_linear(X, rows, problem, *, max_iter, tol, start=None, progress=nullcontext):
    """Algorithm 1 (Adapt-Lin): alternate (OPT1) for q and (OPT2) for g and f1.

    `X` are standardised features and ones, and the groups of the problem are theirs. It ends after
    `max_iter` alternations, or where one lowers the objective by less than `tol`; a tenth of that
    bounds the duality gap of each (OPT2). Without `start`, it starts from q = p_full everywhere;
    each alternation runs in a context of `progress`.

    The result is W, of shape (n_features, n_outputs + 1), and (OPT) after each alternation, which
    never rises. With ``p_full=0`` there is no gate: f1 alone, and minus infinity for the gate's
    intercept.
    """
    y, full_loss, weight = rows.y, rows.full_loss, rows.weight / rows.weight.sum()
    n_outputs = problem.n_outputs
    priced = problem.group_of, problem.gamma * np.sqrt(problem.group_costs)
    # A bound of the Hessian of the logistic loss in the scores of f1.
    curvature = (0.25 if n_outputs == 1 else 0.5) * squared_norm(X, weight)

    def minimise(loss, W):
        how = {"curvature": curvature, "tol": 0.1 * tol}
        return accelerated_proximal_gradient(X, loss, W, *priced, **how)[0]

    def solve(q, W):
        return minimise(lambda scores: loss_kl(scores, y, q, weight), W)

    def objective(q, W):
        scores = X @ W
        cheap_loss = class_losses(scores[:, :-1], y)
        value = kl_objective(q, cheap_loss, full_loss, scores[:, -1], weight)
        return value + penalty(W, *priced)

    if problem.p_full == 0:
        zeros = np.zeros((X.shape[1], n_outputs))
        W = minimise(lambda scores: cheap_part(scores, y, weight), zeros)
        value = cheap_part(X @ W, y, weight)[0] + penalty(W, *priced)
        never = np.append(np.zeros(len(W) - 1), -np.inf)
        return np.column_stack([W, never]), [value]
    even = np.full(len(X), min(problem.p_full, 0.5))
    W = solve(even, np.zeros((X.shape[1], n_outputs + 1))) if start is None else start
    q, objectives = None, []
    for _ in range(max_iter):
        with progress():
            scores = X @ W
            cheap_loss = class_losses(scores[:, :-1], y)
            proposal, _ = q_step(
                cheap_loss, full_loss, scores[:, -1], problem.p_full, weight
            )
            if q is None or objective(proposal, W) <= objectives[-1]:
                q = proposal
            W = solve(q, W)
            objectives.append(objective(q, W))
        if len(objectives) > 1 and objectives[-2] - objectives[-1] < tol:
            break
    return W, objectives


def squared_norm(X, weight):
    """Squared spectral norm of the weighted rows."""
    return np.linalg.norm(np.sqrt(weight)[:, None] * X, 2) ** 2


def adapt_linear_multistart(X, rows, problem, **how):
    """:func:`adapt_linear` from two starts; the lower objective is kept.

    (OPT) is convex in q and in (g, f1) but not jointly: alternation that starts from the
    features that a single linear model likes best may stay with them. The other start is
    the best solution with one group of features alone, among the few groups whose
    penalty the loss gradient exceeds by most.
    """
    best = adapt_linear(X, rows, problem, **how)
    _, p_full, gamma, group_of, group_costs = problem
    if len(group_costs) == 2 or p_full == 0:
        return best
    W, weight = np.zeros_like(best[0]), rows.weight / rows.weight.sum()
    q = np.full(len(X), min(p_full, 0.5))
    _, gradient = loss_kl(np.zeros((len(X), W.shape[1])), rows.y, q, weight)
    promise = group_norms(
        X.T @ (gradient - gradient.mean(axis=0)), group_of, len(group_costs)
    )
    promise = (promise - gamma * np.sqrt(group_costs))[:-1]
    alone = []
    for group in np.argsort(-promise, kind="stable")[:_STARTS]:
        inside = np.append(np.flatnonzero(group_of == group), len(group_of) - 1)
        of_group = np.append(np.zeros(len(inside) - 1, dtype=np.intp), 1)
        own = problem._replace(group_of=of_group, group_costs=group_costs[[group, -1]])
        alone.append((inside, *adapt_linear(X[:, inside], rows, own, **how)))
    inside, coef, _ = min(alone, key=lambda one: one[-1][-1])
    W[inside] = coef
    other = adapt_linear(X, rows, problem, start=W, **how)
    return min(best, other, key=lambda one: one[-1][-1])
