"""Kinds of gate and cheap model, as parameters of :class:`AdaptGatingClassifier`."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skroute.gating._boosting import best_round, boost, training_rows
from skroute.gating._levels import find_cuts, lowest_level, mean_gain, most_accurate_level
from skroute.gating._linear import adapt_linear, adapt_linear_multistart
from skroute.gating._linear_columns import LinearColumns
from skroute.gating._losses import KL, LEAST_SQUARES
from skroute.gating._pairs import LinearPair
from skroute.utils._compat import Integral, Interval, Real, StrOptions


class Rows(NamedTuple):
    """Rows to learn a pair from.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,), dtype=int
    full_loss, weight : ndarray of shape (n_rows,)
    full_right : ndarray of shape (n_rows,)
        1 where the full model answers correctly, out of sample.
    """

    values: Any
    y: Any
    full_loss: Any
    weight: Any
    full_right: Any

    def of(self, kept):
        """Some of the rows."""
        return Rows(*(part[kept] for part in self))


class Problem(NamedTuple):
    """What a pair is fitted for.

    Attributes
    ----------
    n_classes : int
    p_full, gamma : float
    group_of : ndarray of shape (n_features,), dtype=int
    group_costs : ndarray of shape (n_groups,)
    """

    n_classes: int
    p_full: float
    gamma: float
    group_of: Any
    group_costs: Any


class FittedPair(NamedTuple):
    """A pair and how it was found.

    Attributes
    ----------
    pair : LinearPair or BoostedPair
    objectives, held_out_objectives : list of float
    n_iter : int
    start : object, default=None
        Warm start for the next `p_full`.
    """

    pair: Any
    objectives: list
    held_out_objectives: list
    n_iter: int
    start: Any = None


class LinearGate(BaseEstimator):
    """Linear cheap model and gate with a group-sparse penalty: Adapt-Lin and Adapt-LstSq.

    For the parameter `gate` of :class:`AdaptGatingClassifier`. The penalty is the convex
    relaxation ``gamma * sum_a sqrt(c_a) ||(g_a, f1_a)||`` (Algorithm 1).

    Parameters
    ----------
    divergence : {"kl", "least_squares"}, default="kl"
        Distance of the gate to the assignment q: the Kullback-Leibler divergence
        (Adapt-Lin), or the squared distance of g to the log-odds of q (Adapt-LstSq).

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
        "divergence": [StrOptions({"kl", "least_squares"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, divergence="kl", max_iter=10, tol=1e-5):
        self.divergence = divergence
        self.max_iter = max_iter
        self.tol = tol

    def _ready(self, rows, categorical=None):
        return Standardised.of(rows, categorical)

    def _fit_pair(self, rows, held_out, ready, problem, *, start=None, n_jobs=None, progress=None):
        how = {
            "loss": KL if self.divergence == "kl" else LEAST_SQUARES,
            "max_iter": self.max_iter,
            "tol": self.tol,
            "progress": progress or nullcontext,
        }
        solve = adapt_linear_multistart if start is None else adapt_linear
        how |= {} if start is None else {"start": start}
        weight = rows.weight / rows.weight.sum()
        problem = ready.problem(problem)
        W, intercept, objectives = solve(
            ready.values, rows.y, rows.full_loss, weight, **problem._asdict(), **how
        )
        start = (W, intercept) if problem.p_full > 0 else None
        pair = ready.raw(W, intercept)
        return FittedPair(pair, objectives, [], len(objectives), start)

    def _level(self, pair, gate, rows, p_full):
        """The logistic fit puts it at 0, unless more than `p_full` is sent from there."""
        return max(0.0, lowest_level(find_cuts(gate, rows.weight), p_full))


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


class BoostedGate(BaseEstimator):
    """Boosted trees as cheap model and gate, grown by LightGBM: Adapt-Gbrt.

    For the parameter `gate` of :class:`AdaptGatingClassifier` (Algorithm 2).

    Parameters
    ----------
    n_estimators : int, default=100
        Boosting rounds of f1. Raising it costs time; the rounds that are best on held-out
        rows are kept.

    learning_rate : float, default=0.2
        Shrinkage of the trees.

    max_leaf_nodes : int, default=31
        Leaves per tree.

    l2_regularization : float, default=1.0
        L2 penalty on leaf values.

    max_iter : int, default=10
        Largest number of alternations, spread over the boosting rounds.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, BoostedGate
    >>> model = AdaptGatingClassifier(LogisticRegression(), gate=BoostedGate())
    >>> model.set_params(gate__learning_rate=0.1).gate
    BoostedGate(learning_rate=0.1)
    """

    _parameter_constraints: dict = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1, closed="right")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left")],
        "l2_regularization": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        n_estimators=100,
        learning_rate=0.2,
        max_leaf_nodes=31,
        l2_regularization=1.0,
        max_iter=10,
    ):
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.l2_regularization = l2_regularization
        self.max_iter = max_iter

    def _ready(self, rows, categorical=None):
        return training_rows(*rows[:4], categorical)

    def _fit_pair(self, rows, held_out, ready, problem, *, start=None, n_jobs=None, progress=None):
        boosted = boost(
            ready,
            **problem._asdict(),
            n_estimators=self.n_estimators,
            max_iter=min(self.max_iter, self.n_estimators),
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            l2_regularization=self.l2_regularization,
            n_threads=n_jobs or 1,
            progress=progress or nullcontext,
        )
        if problem.p_full == 0:
            pair = boosted.pair(self.n_estimators, np.zeros(2))
            return FittedPair(pair, boosted.objectives, [], self.n_estimators)
        best = best_round(boosted, *held_out[:4], p_full=problem.p_full)
        pair = boosted.pair(best.rounds, best.doubt)
        return FittedPair(pair, boosted.objectives, best.objectives, best.rounds)

    def _gain(self, pair, rows):
        """1 where the full model is right and the cheap one wrong, -1 the other way round."""
        scores = pair.cheap_scores(rows.values)
        answers = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return rows.full_right - (answers == rows.y)

    def _worth(self, pair, gate, rows, p_full):
        """What held-out rows gain by a gate, on average over the shares that it may send."""
        return mean_gain(gate, self._gain(pair, rows), rows.weight, p_full)

    def _level(self, pair, gate, rows, p_full):
        """Where sending held-out rows raises accuracy most."""
        return most_accurate_level(gate, self._gain(pair, rows), rows.weight, p_full)
