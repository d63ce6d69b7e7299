"""Kinds of gate and cheap model, as parameters of :class:`AdaptGatingClassifier`.

A kind has three methods: ``ready`` what does not depend on the problem, ``fit_pair`` a cheap
model and a gate, and ``level`` above which held-out rows are sent.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skroute.gating._boosting import best_round, boost, threads_for, training_rows
from skroute.gating._levels import best_level, find_cuts, lowest_level
from skroute.gating._linear import Standardised, adapt_linear, adapt_linear_multistart
from skroute.utils._compat import Integral, Interval, Real

__all__ = ["BoostedGate", "LinearGate"]


class Rows(NamedTuple):
    """Rows to learn a pair from.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,), dtype=int
    full_loss, weight : ndarray of shape (n_rows,)
    full_quality : ndarray of shape (n_rows,)
        1 where the full model answers correctly, out of sample.
    """

    values: Any
    y: Any
    full_loss: Any
    weight: Any
    full_quality: Any

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

    def ready(self, rows, categorical=None):
        """Rows made ready for any number of fits."""
        return Standardised.of(rows, categorical)

    def fit_pair(self, rows, held_out, ready, problem, *, start=None, n_jobs=None, progress=None):
        """The pair of a problem, by alternation from `start` or from two starts."""
        solve = adapt_linear_multistart if start is None else adapt_linear
        W, intercept, objectives = solve(
            ready.values,
            rows.y,
            rows.full_loss,
            rows.weight / rows.weight.sum(),
            **ready.problem(problem)._asdict(),
            **({} if start is None else {"start": start}),
            max_iter=self.max_iter,
            tol=self.tol,
            progress=progress or nullcontext,
        )
        start = (W, intercept) if problem.p_full > 0 else None
        return FittedPair(ready.raw(W, intercept), objectives, [], len(objectives), start)

    def level(self, gate, gain, weight, p_full, sure):
        """The logistic fit puts it at 0, unless more than `p_full` is sent from there."""
        return max(0.0, lowest_level(find_cuts(gate, weight), p_full))


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

    def ready(self, rows, categorical=None):
        """Rows made ready for any number of fits."""
        return training_rows(rows.values, rows.y, rows.full_loss, rows.weight, categorical)

    def fit_pair(self, rows, held_out, ready, problem, *, start=None, n_jobs=None, progress=None):
        """The pair of a problem, of the rounds that are best on held-out rows."""
        boosted = boost(
            ready,
            **problem._asdict(),
            n_estimators=self.n_estimators,
            max_iter=min(self.max_iter, self.n_estimators),
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            l2_regularization=self.l2_regularization,
            n_threads=threads_for(len(rows.y), n_jobs),
            progress=progress or nullcontext,
        )
        if problem.p_full == 0:
            pair = boosted.pair(self.n_estimators, np.zeros(2))
            return FittedPair(pair, boosted.objectives, [], self.n_estimators)
        best = best_round(boosted, *held_out[:4], p_full=problem.p_full)
        pair = boosted.pair(best.rounds, best.doubt)
        return FittedPair(pair, boosted.objectives, best.objectives, best.rounds)

    def level(self, gate, gain, weight, p_full, sure):
        """Where sending held-out rows raises quality most, by so many standard errors."""
        return best_level(gate, gain, weight, p_full, sure)
