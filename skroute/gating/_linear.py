"""Adapt-Lin: linear gate and cheap model with group-sparse features.

The coefficients ``W`` have one column per output of f1 and a last one for the gate g.
Rows of W that belong to features bought together form one group.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from skroute.gating._objective import class_losses, kl_objective, modelled_probabilities, q_step

# Keeps the optimum finite on separable data, and the duality gap finite at every point.
RIDGE = 1e-4


# What a column of the linear model reads of its raw column.
NUMBER, LEVEL, MISSING = range(3)
# A category of fewer rows says nothing that a linear model could learn.
RARE = 2


class LinearColumns(NamedTuple):
    """How raw columns become those of a linear model.

    Attributes
    ----------
    origin : ndarray of shape (n_columns,), dtype=int
        Raw column of each.
    kind : ndarray of shape (n_columns,), dtype=int
    level : ndarray of shape (n_columns,)
        Code of the category, where it is one.
    mean : ndarray of shape (n_features,)
        Stands for missing numbers.
    """

    origin: NDArray[np.int64]
    kind: NDArray[np.int64]
    level: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, values, weight, categorical=None):
        """From training rows with their weights, and which columns hold codes of categories."""
        found, mean = [], np.zeros(values.shape[1])
        for at, column in enumerate(values.T):
            there = ~np.isnan(column)
            if categorical is not None and categorical[at]:
                levels, counts = np.unique(column[there], return_counts=True)
                found += [(at, LEVEL, level) for level in levels[counts >= RARE]]
            else:
                found.append((at, NUMBER, 0.0))
                if there.any():
                    mean[at] = np.average(column[there], weights=weight[there])
            if not there.all():
                found.append((at, MISSING, 0.0))
        origin, kind, level = map(np.array, zip(*found))
        return cls(origin.astype(np.int64), kind.astype(np.int64), level, mean)

    def expand(self, values, columns=None):
        """The columns of the linear model, all of them or some.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_features)
        columns : ndarray of int, default=None

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        columns = np.arange(len(self.origin)) if columns is None else columns
        raw = values[:, self.origin[columns]]
        kind, there = self.kind[columns], ~np.isnan(raw)
        number = np.where(there, raw, self.mean[self.origin[columns]])
        sign = np.where(kind == LEVEL, raw == self.level[columns], ~there)
        return np.where(kind == NUMBER, number, sign)


class Standardised(NamedTuple):
    """Columns of a linear model with mean 0 and variance 1, so that one penalty suits all.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
    columns : LinearColumns
    mean, scale : ndarray of shape (n_columns,)
    """

    values: Any
    columns: LinearColumns
    mean: Any
    scale: Any

    @classmethod
    def of(cls, rows, categorical=None):
        """Standardise rows by their own weighted moments."""
        weight = rows.weight / rows.weight.sum()
        columns = LinearColumns.of(rows.values, weight, categorical)
        values = columns.expand(rows.values)
        mean = weight @ values
        scale = np.sqrt(weight @ (values - mean) ** 2)
        # A constant column carries nothing; rounding must not blow it up.
        scale[scale <= 1e-12 * np.abs(mean)] = np.inf
        return cls((values - mean) / scale, columns, mean, scale)

    def problem(self, problem):
        """The problem with the groups of these columns: those of their raw columns."""
        return problem._replace(group_of=problem.group_of[self.columns.origin])

    def raw(self, W, intercept):
        """The pair of these coefficients, for raw columns."""
        coef = W / self.scale[:, None]
        return LinearPair(self.columns, coef, intercept - self.mean @ coef)


@dataclass
class LinearPair:
    """Linear cheap model f1 and gate g.

    Attributes
    ----------
    columns : LinearColumns
        What they read of the raw columns.
    coef : ndarray of shape (n_columns, n_outputs + 1)
        The gate's are the last.
    intercept : ndarray of shape (n_outputs + 1,)
    """

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
        return self.columns.expand(values, used) @ self.coef[used, :-1] + self.intercept[:-1]

    def gate_scores(self, values, scores):
        """Scores of the gate, shape (n_rows,)."""
        used = self._gate
        return self.columns.expand(values, used) @ self.coef[used, -1] + self.intercept[-1]

    def gate_of(self, values):
        """Scores of the gate for complete rows."""
        return self.gate_scores(values, None)

    def lowered(self, level):
        """The pair with its gate lowered by a constant."""
        intercept = self.intercept.copy()
        intercept[-1] -= level
        return replace(self, intercept=intercept)


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


def group_norms(W, group_of, n_groups):
    """Frobenius norm of each group of rows, shape (n_groups,)."""
    return np.sqrt(np.bincount(group_of, weights=(W**2).sum(axis=1), minlength=n_groups))


def prox_group_norm(W, group_of, thresholds):
    """Proximal operator of ``sum_a threshold_a ||W_a||_F``: block soft-thresholding.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_columns)
    group_of : ndarray of shape (n_features,), dtype=int
        Group of each row.
    thresholds : ndarray of shape (n_groups,)

    Returns
    -------
    ndarray of shape (n_features, n_columns)
    """
    norms = group_norms(W, group_of, len(thresholds))
    shrink = np.maximum(1 - thresholds / np.where(norms > 0, norms, 1.0), 0.0)
    return W * shrink[group_of][:, None]


def penalty(W, intercept, group_of, thresholds, ridge=RIDGE):
    """The L2,1 norm weighted by feature costs, and the ridge."""
    return float(
        thresholds @ group_norms(W, group_of, len(thresholds))
        + 0.5 * ridge * ((W**2).sum() + (intercept**2).sum())
    )


def duality_gap(W, intercept, gradient, gradient_intercept, group_of, thresholds, ridge=RIDGE):
    """Gap between the penalised objective at W and the dual at the loss gradient.

    With the dual point at the gradient of the loss, the loss terms cancel (Fenchel-Young)
    and the gap is ``sum_a Omega_a(W_a) + <W_a, V_a> + Omega_a^*(-V_a)``, V being the
    gradient with respect to W and ``Omega^*(-V) = (||V|| - threshold)_+^2 / (2 ridge)``.

    Parameters
    ----------
    W, gradient : ndarray of shape (n_features, n_columns)
    intercept, gradient_intercept : ndarray of shape (n_columns,)
    group_of : ndarray of shape (n_features,), dtype=int
    thresholds : ndarray of shape (n_groups,)
    ridge : float

    Returns
    -------
    float
        Not negative; 0 exactly at the optimum.
    """
    over = np.maximum(group_norms(gradient, group_of, len(thresholds)) - thresholds, 0.0)
    return float(
        penalty(W, intercept, group_of, thresholds, ridge)
        + (W * gradient).sum()
        + intercept @ gradient_intercept
        + ((over**2).sum() + (gradient_intercept**2).sum()) / (2 * ridge)
    )


def accelerated_proximal_gradient(
    X, loss, W, intercept, group_of, thresholds, *, curvature, tol, max_iter, ridge=RIDGE
):
    """Minimise ``loss(X W + intercept) + penalty``: the linear case of (OPT2).

    FISTA with a fixed step, momentum restarted when it points uphill (O'Donoghue and
    Candes' gradient scheme), stopped by the duality gap, which is computed every tenth
    step. The objective at the result is never above that at the start.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    loss : callable
        ``loss(scores) -> (value, gradient)``.
    W : ndarray of shape (n_features, n_columns)
        Start.
    intercept : ndarray of shape (n_columns,)
        Start.
    group_of : ndarray of shape (n_features,), dtype=int
    thresholds : ndarray of shape (n_groups,)
        ``gamma * sqrt(cost)`` of each group.
    curvature : float
        Upper bound of the largest eigenvalue of the loss's Hessian in (W, intercept).
    tol : float
        Stop when the duality gap is below.
    max_iter : int
    ridge : float

    Returns
    -------
    W : ndarray of shape (n_features, n_columns)
    intercept : ndarray of shape (n_columns,)
    gap : float
        Last duality gap: a bound of the distance to the optimal objective.
    """
    step = 1.0 / (curvature + ridge)
    best = W, intercept
    best_value = loss(X @ W + intercept)[0] + penalty(W, intercept, group_of, thresholds, ridge)
    ahead, ahead_intercept, momentum, gap = W, intercept, 1.0, np.inf
    for iteration in range(1, max_iter + 1):
        _, by_score = loss(X @ ahead + ahead_intercept)
        move = ahead - step * (X.T @ by_score + ridge * ahead)
        new = prox_group_norm(move, group_of, step * thresholds)
        new_intercept = ahead_intercept - step * (by_score.sum(axis=0) + ridge * ahead_intercept)
        change, change_intercept = new - W, new_intercept - intercept
        overshoots = ((ahead - new) * change).sum() + (
            (ahead_intercept - new_intercept) * change_intercept
        ).sum()
        if overshoots > 0:
            momentum = 1.0
        next_momentum = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        pull = (momentum - 1) / next_momentum
        W, intercept, momentum = new, new_intercept, next_momentum
        ahead, ahead_intercept = W + pull * change, intercept + pull * change_intercept
        if iteration % 10 == 0 or iteration == max_iter:
            value, by_score = loss(X @ W + intercept)
            value += penalty(W, intercept, group_of, thresholds, ridge)
            if value <= best_value:
                best, best_value = (W, intercept), value
            at = W, intercept, X.T @ by_score, by_score.sum(axis=0)
            gap = duality_gap(*at, group_of, thresholds, ridge)
            if gap <= tol:
                break
    return *best, gap


def adapt_linear(
    X,
    y,
    full_loss,
    weight,
    *,
    n_classes,
    p_full,
    gamma,
    group_of,
    group_costs,
    max_iter,
    tol,
    start=None,
    solver_iter=2000,
    progress=nullcontext,
):
    """Algorithm 1 (Adapt-Lin): alternate (OPT1) for q and (OPT2) for g and f1.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Standardised features.
    y : ndarray of shape (n_samples,), dtype=int
    full_loss : ndarray of shape (n_samples,)
        ``-log p0(y_i | x_i)``, out of sample.
    weight : ndarray of shape (n_samples,)
        Sums to 1.
    n_classes : int
    p_full : float
        With 0 there is no gate: f1 alone, and minus infinity for the gate's intercept.
    gamma : float
    group_of : ndarray of shape (n_features,), dtype=int
    group_costs : ndarray of shape (n_groups,)
    max_iter : int
        Alternations.
    tol : float
        Stop when an alternation lowers the objective by less; a tenth of it bounds the
        duality gap of each (OPT2).
    start : tuple (W, intercept), default=None
        Warm start. None starts from q = p_full everywhere.
    solver_iter : int
        Largest number of proximal steps per (OPT2).
    progress : callable, default=nullcontext
        Makes the context in which each alternation runs.

    Returns
    -------
    W : ndarray of shape (n_features, n_outputs + 1)
    intercept : ndarray of shape (n_outputs + 1,)
    objectives : list of float
        (OPT) after each alternation; never rises.
    """
    columns = (1 if n_classes == 2 else n_classes) + 1
    thresholds = gamma * np.sqrt(group_costs)
    if p_full == 0:
        return _cheap_alone(X, y, weight, columns, thresholds, group_of, tol, solver_iter)
    curvature = cheap_curvature(n_classes) * squared_norm(X, weight)

    def solve(q, W, intercept):
        return accelerated_proximal_gradient(
            X,
            lambda scores: loss_kl(scores, y, q, weight),
            W,
            intercept,
            group_of,
            thresholds,
            curvature=curvature,
            tol=0.1 * tol,
            max_iter=solver_iter,
        )[:2]

    def objective(q, W, intercept):
        scores = X @ W + intercept
        cheap_loss = class_losses(scores[:, :-1], y)
        value = kl_objective(q, cheap_loss, full_loss, scores[:, -1], weight)
        return value + penalty(W, intercept, group_of, thresholds)

    if start is None:
        q = np.full(len(X), min(p_full, 0.5))
        W, intercept = solve(q, np.zeros((X.shape[1], columns)), np.zeros(columns))
    else:
        W, intercept = start
    q, objectives = None, []
    for _ in range(max_iter):
        with progress():
            scores = X @ W + intercept
            proposal, _ = q_step(
                class_losses(scores[:, :-1], y), full_loss, scores[:, -1], p_full, weight
            )
            if q is None or objective(proposal, W, intercept) <= objectives[-1]:
                q = proposal
            W, intercept = solve(q, W, intercept)
            objectives.append(objective(q, W, intercept))
        if len(objectives) > 1 and objectives[-2] - objectives[-1] < tol:
            break
    return W, intercept, objectives


def squared_norm(X, weight):
    """Squared spectral norm of the weighted rows, intercept included."""
    scaled = np.sqrt(weight)[:, None] * np.column_stack([X, np.ones(len(X))])
    return np.linalg.norm(scaled, 2) ** 2


def _cheap_alone(X, y, weight, columns, thresholds, group_of, tol, solver_iter):
    nothing = np.zeros(len(X))

    def loss(scores):
        value, gradient = cheap_part(np.column_stack([scores, nothing]), y, nothing, weight)
        return value, gradient[:, :-1]

    W, intercept, _ = accelerated_proximal_gradient(
        X,
        loss,
        np.zeros((X.shape[1], columns - 1)),
        np.zeros(columns - 1),
        group_of,
        thresholds,
        curvature=cheap_curvature(columns) * squared_norm(X, weight),
        tol=0.1 * tol,
        max_iter=solver_iter,
    )
    value = loss(X @ W + intercept)[0] + penalty(W, intercept, group_of, thresholds)
    return np.column_stack([W, np.zeros(len(W))]), np.append(intercept, -np.inf), [value]


def adapt_linear_multistart(X, y, full_loss, weight, *, group_of, group_costs, n_starts=8, **how):
    """:func:`adapt_linear` from two starts; the lower objective is kept.

    (OPT) is convex in q and in (g, f1) but not jointly: alternation that starts from the
    features that a single linear model likes best may stay with them. The other start is
    the best solution with one group of features alone, among the `n_starts` groups whose
    penalty the loss gradient exceeds by most.

    Parameters are those of :func:`adapt_linear`.

    Returns
    -------
    W, intercept, objectives
        As :func:`adapt_linear`.
    """
    groups = {"group_of": group_of, "group_costs": group_costs}
    best = adapt_linear(X, y, full_loss, weight, **groups, **how)
    n_groups = len(group_costs)
    if n_groups == 1 or how["p_full"] == 0:
        return best
    columns = best[0].shape[1]
    q = np.full(len(X), min(how["p_full"], 0.5))
    _, gradient = loss_kl(np.zeros((len(X), columns)), y, q, weight)
    promise = group_norms(X.T @ (gradient - gradient.mean(axis=0)), group_of, n_groups)
    promise -= how["gamma"] * np.sqrt(group_costs)
    alone = None
    for group in np.argsort(-promise, kind="stable")[:n_starts]:
        members = np.flatnonzero(group_of == group)
        found = adapt_linear(
            X[:, members],
            y,
            full_loss,
            weight,
            group_of=np.zeros(len(members), dtype=np.intp),
            group_costs=group_costs[[group]],
            **how,
        )
        if alone is None or found[2][-1] < alone[1][2][-1]:
            alone = members, found
    members, (coef, intercept, _) = alone
    W = np.zeros((X.shape[1], columns))
    W[members] = coef
    other = adapt_linear(X, y, full_loss, weight, **groups, **how, start=(W, intercept))
    if other[2][-1] < best[2][-1]:
        best = other
    return best
