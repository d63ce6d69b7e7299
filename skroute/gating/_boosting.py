"""Adapt-Gbrt: gate and cheap model as one LightGBM booster.

The booster has an output for each output of f1 and one more for the gate. LightGBM's
coupled feature penalty (``cegb_penalty_feature_coupled``) is charged the first time
that any tree splits on a feature, in any output and round. The penalty is ``u_alpha``
of equations (1) and (2), which f1 and g share. Penalties have the factor ``2 * sum of
weights``: LightGBM's split gain is a sum over rows of twice the decrease of the loss,
while the objective is a mean.

LightGBM has no groups of features. When a feature of a group has been bought, the
penalties of the others in the group are set to zero before the next round. Within a
round, several trees may buy features of one group. Each of them is then charged.
"""

import math
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit, logit
from sklearn.base import clone

from skroute.forests import Forest, leaf_sums, read_lightgbm
from skroute.gating._levels import best_level
from skroute.gating._objective import (
    class_losses,
    doubt,
    fit_doubt,
    kl_objective,
    modelled_probabilities,
    output_targets,
    q_step,
)
from skroute.gating._pairs import FittedPair, Gate, Pair
from skroute.utils._compat import Integral, Interval, Real
from skroute.utils._typing import NDArray

__all__ = ["BoostedGate"]

# Gradients and Hessians are rounded to multiples of this number. Their sums in double
# precision are then exact, so that ties of splits do not depend on the order of the
# rows. Gradients are at most 1, so that the rounding is about a millionth of that.
_RESOLUTION = 2.0**-20

# Number of rows from which LightGBM gets several threads. On a busy machine the threads
# wait for each other, and cost more than they gain on fewer rows.
_MIN_ROWS_FOR_THREADS = 20_000

# LightGBM's kZeroThreshold: it reads numbers of at most this size as 0.
_LIGHTGBM_ZERO = 1e-35

# Number of times that q (probabilities of sending rows) and the gate's coefficients
# (a, b) are fitted in turn on held-out rows, for each number of rounds. They need not
# converge: the objective only compares numbers of rounds.
_N_HELD_OUT_STEPS = 3

# Smallest share of a class in the constant model. Its logarithm is then finite for a
# class without weight.
_MIN_CLASS_SHARE = 1e-6

# Parameters with which LightGBM grows the same trees from the same rows, without
# messages.
REPRODUCIBLE = {
    "deterministic": True,
    "feature_pre_filter": False,
    "force_row_wise": True,
    "verbosity": -1,
}

# Process that imported this module. A child that is forked later has another id.
_IMPORTING_PROCESS = os.getpid()


def _needs_one_thread(n_rows):
    """Return True if LightGBM must use one thread: for few rows, and in a forked child.

    OpenMP's threads do not exist in a forked child process, and OpenMP would wait for
    them for ever. The process is forked if its id is not that of the import.
    """
    return n_rows < _MIN_ROWS_FOR_THREADS or os.getpid() != _IMPORTING_PROCESS


def threads_for(n_rows, n_jobs):
    """Return the number of threads that LightGBM uses for this number of rows.

    Parameters
    ----------
    n_rows : int
        Number of training rows.

    n_jobs : int or None
        As in joblib: None means one, -1 all processors.
    """
    if _needs_one_thread(n_rows):
        return 1
    return effective_n_jobs(n_jobs)


def cloned(estimator, n_rows):
    """Return a clone of an estimator, which gets one thread if LightGBM needs that.

    A LightGBM estimator whose `n_jobs` is None uses all cores. Its clone gets one
    thread if `n_rows`, the number of training rows, is small, and in a forked process.
    An `n_jobs` that the user has set stays as it is.
    """
    model = clone(estimator)
    is_lightgbm = type(model).__module__.startswith("lightgbm.")
    if is_lightgbm and model.n_jobs is None and _needs_one_thread(n_rows):
        return model.set_params(n_jobs=1)
    return model


# The fitted cheap model and gate ------------------------------------------------------


@dataclass
class BoostedPair(Pair):
    """Boosted cheap model f1, and a gate of log-odds against f1's answer and of trees.

    The gate is ``g(x) = a * doubt(f1(x)) + b + trees(x)``, see :func:`doubt`.

    Attributes
    ----------
    forest : Forest
        The outputs of the cheap model, and a last one for the gate's trees. Without a
        gate (p_full is 0) the outputs of the cheap model alone.

    base : ndarray of shape (n_outputs,)
        Scores of the cheap model before the first tree.

    doubt_coef : ndarray of shape (2,)
        The coefficients ``(a, b)`` of the gate.

    gate_has_trees : bool
        False if the gate is ``a * doubt(f1(x)) + b`` alone.
    """

    forest: Forest
    base: NDArray[np.float64]
    doubt_coef: NDArray[np.float64]
    gate_has_trees: bool = True
    # The gate reads the scores of f1: the doubt is a function of them.
    reads_cheap = True

    def __post_init__(self):
        """Set the columns that the cheap model and the gate read."""
        n_cheap = len(self.base)
        n_outputs = self.forest.n_outputs
        self.cheap_features = self.forest.features_of(range(n_cheap))
        if n_outputs == n_cheap:
            # There is no gate: no output is read for it.
            gate_outputs = range(0)
        elif self.gate_has_trees:
            # The gate reads the outputs of f1, for the doubt, and the output of its
            # own trees.
            gate_outputs = range(n_outputs)
        else:
            # The gate reads the outputs of f1, for the doubt.
            gate_outputs = range(n_cheap)
        self.gate_features = self.forest.features_of(gate_outputs)

    def cheap_scores(self, values):
        """Return the scores of the cheap model f1, shape (n_rows, n_outputs)."""
        return leaf_sums(self.forest, values, range(len(self.base))) + self.base

    def gate_scores(self, values, cheap_scores):
        """Return the scores of the gate, shape (n_rows,).

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)

        cheap_scores : ndarray of shape (n_rows, n_outputs)
            Scores of the cheap model on the same rows.
        """
        doubts = doubt(cheap_scores)
        if not self.gate_has_trees:
            return _gate_of(doubts, self.doubt_coef)
        # The output of the gate's trees comes after those of the cheap model. One
        # output is one column.
        gate_output = len(self.base)
        trees = leaf_sums(self.forest, values, [gate_output])[:, 0]
        return _gate_of(doubts, self.doubt_coef, trees)

    @property
    def simpler(self):
        """Pair whose gate is the log-odds against the answer of f1, without trees.

        None if the gate has no trees.
        """
        if not self.gate_has_trees:
            return None
        doubt_alone = np.array([1.0, 0.0])  # (a, b)
        return replace(self, doubt_coef=doubt_alone, gate_has_trees=False)

    def with_rounds(self, n_rounds, doubt_coef):
        """Return the pair of the first `n_rounds` rounds, with new gate coefficients.

        `doubt_coef` are the new coefficients ``(a, b)``.
        """
        # The members of the forest are its rounds. Boosting may have ended early.
        n_members = min(n_rounds, self.forest.n_members)
        first_rounds = self.forest.taken(range(n_members))
        return replace(self, forest=first_rounds, doubt_coef=doubt_coef)


def _gate_of(doubts, doubt_coef, trees=0.0):
    """Return the gate ``a * doubt + b + trees`` of each row, shape (n_rows,).

    Parameters
    ----------
    doubts : ndarray of shape (n_rows,)
        Doubt of the cheap model about its answer.

    doubt_coef : ndarray of shape (2,)
        ``(a, b)``.

    trees : ndarray of shape (n_rows,) or float, default=0.0
        Scores of the gate's trees. 0 for a gate without trees.
    """
    slope, intercept = doubt_coef
    return slope * doubts + intercept + trees


# Boosting: Algorithm 2 of the paper (Adapt-Gbrt) --------------------------------------


class BoostedFit(NamedTuple):
    """Result of :func:`boost`: the boosted pair and its history.

    Attributes
    ----------
    pair : BoostedPair
        The pair of all boosting rounds.

    objectives : list of float
        Objective (OPT) of the paper, on the training rows at each q-step.

    round_counts : list of int
        Number of rounds that were grown before each q-step. The last number counts all
        rounds.
    """

    pair: BoostedPair
    objectives: list
    round_counts: list


def boost(data, rows, problem, hyperparameters, *, n_threads, progress=nullcontext):
    """Alternate boosting and updates of q, each row's probability of the full model.

    This is Algorithm 2 (Adapt-Gbrt). The gate is ``a * doubt + b + trees``. The doubt
    of the cheap model f1 is a function of features that are bought already. At each
    update of q (the q-step) ``a`` and ``b`` of the gate are refitted and one gate tree
    is grown. f1 grows in every round. With ``p_full=0`` there is no gate, and the
    algorithm is GreedyMiser.

    Parameters
    ----------
    data : lightgbm.Dataset
        Result of :meth:`BoostedGate.prepare` for `rows`. Several boosters can share it.

    rows : Rows

    problem : Problem

    hyperparameters : BoostedGate

    n_threads : int
        Threads of LightGBM.

    progress : callable, default=nullcontext
        ``progress()`` returns a context manager. Each alternation runs in one.

    Returns
    -------
    BoostedFit
    """
    state = _Boosting(data, rows, problem, hyperparameters, n_threads)
    # The parameters may be unsigned integers of numpy, whose differences overflow.
    n_rounds = int(hyperparameters.n_estimators)
    n_alternations = min(int(hyperparameters.max_iter), n_rounds)
    # Rounded up, so that the last alternation may have fewer rounds.
    rounds_per_alternation = math.ceil(n_rounds / n_alternations)
    for first_round in range(0, n_rounds, rounds_per_alternation):
        if state.is_finished:
            break
        with progress():
            # The first rounds are grown for the q that the state starts with.
            if state.booster.current_iteration() > 0:
                state.step_q()
            state.grow(min(rounds_per_alternation, n_rounds - first_round))
    # The gate is refitted once more, after the last round.
    state.step_q()
    return state.result()


class _Boosting:
    """State of the boosting algorithm, and its steps :meth:`step_q` and :meth:`grow`.

    The parameters of the constructor are those of :func:`boost`.

    Attributes
    ----------
    booster : lightgbm.Booster

    n_cheap : int
        Number of outputs of the cheap model f1.

    n_outputs : int
        Number of all outputs of the booster. The gate's trees have the last one.

    has_gate : bool
        False if p_full is 0.

    share : ndarray of shape (n_rows,)
        Weights of the training rows, with sum 1.

    q : ndarray of shape (n_rows,)
        Probability with which each training row is sent to the full model.

    base : ndarray of shape (n_cheap + 1,)
        Scores before the first tree, 0 for the gate's trees.

    targets : ndarray of shape (n_rows, n_cheap)
        1 where a row has the class of an output, else 0.

    curvature : float
        Factor of the Hessian of f1.

    doubt_coef : ndarray of shape (2,)
        ``(a, b)`` of the gate.

    penalties : ndarray of shape (n_groups,)
        Penalty of each group before it is bought, on the scale of LightGBM's gain.

    is_bought : ndarray of shape (n_groups,), dtype=bool
        Groups that LightGBM charges no more.

    is_stuck : bool
        True if the last round found no split that pays for its features.

    objectives, round_counts : list
        As in :class:`BoostedFit`.
    """

    def __init__(self, data, rows, problem, hyperparameters, n_threads):
        """Start with a constant f1. The full model is equally likely for all rows."""
        import lightgbm

        self.rows = rows
        self.problem = problem
        self.has_gate = problem.p_full > 0
        self.n_cheap = problem.n_outputs
        self.n_outputs = self.n_cheap + 1 if self.has_gate else self.n_cheap
        total_weight = rows.weight.sum()
        self.share = rows.weight / total_weight
        self.base = _constant_scores(rows.y, self.share, problem)
        self.targets = output_targets(rows.y, self.n_cheap).astype(np.float64)
        # Friedman's factor for the softmax's diagonal Hessian, as in LightGBM's own
        # objective.
        self.curvature = 1.0 if self.n_cheap == 1 else self.n_cheap / (self.n_cheap - 1)
        # LightGBM's gain is twice the decrease of a loss that is a sum over rows.
        self.penalties = 2 * total_weight * problem.gamma * problem.group_costs
        # LightGBM reads penalties as texts, and cannot read subnormal numbers.
        self.penalties[self.penalties < np.finfo(np.float64).tiny] = 0.0
        self.is_bought = np.zeros(len(self.penalties), dtype=bool)
        params = _booster_params(hyperparameters, self.n_outputs, n_threads)
        self.booster = lightgbm.Booster(params | self._penalty_params(), data)
        # At first each row is sent with the same probability q. It is at most a half,
        # so that f1 learns from all rows.
        even_q = min(problem.p_full, 0.5)
        self.q = np.full(len(rows.y), even_q)
        # With this intercept, the gate sends each row with probability `even_q`. The 0
        # without a gate is not read.
        first_intercept = logit(even_q) if self.has_gate else 0.0
        self.doubt_coef = np.array([0.0, first_intercept])
        self.is_stuck = False
        self.objectives = []
        self.round_counts = []

    @property
    def is_finished(self):
        """True if the last round found no split, and no gate can change that."""
        return self.is_stuck and not self.has_gate

    def step_q(self):
        """Update q (each row's probability of the full model), and refit the gate to q.

        This is the q-step. Changes `q` and `doubt_coef`, and appends to `objectives`
        and `round_counts`.
        """
        scores = self._training_scores()
        if self.has_gate:
            gate_fit = refit_gate(
                scores,
                self.rows,
                p_full=self.problem.p_full,
                doubt_coef=self.doubt_coef,
            )
            self.q = gate_fit.q
            self.doubt_coef = gate_fit.doubt_coef
            loss = gate_fit.objective
        else:
            loss = float(self.share @ class_losses(scores, self.rows.y))
        bought_costs = self.problem.group_costs[self._bought_groups()]
        self.objectives.append(loss + self.problem.gamma * bought_costs.sum())
        self.round_counts.append(self.booster.current_iteration())

    def grow(self, n_rounds):
        """Grow `n_rounds` rounds of trees of the cheap model, and one gate tree in all.

        The gate tree is grown in the first round, if there is a gate. The rounds end
        early when no split pays for its features.
        """
        self._grow_round(with_gate_tree=self.has_gate)
        for _ in range(n_rounds - 1):
            if self.is_stuck:
                break
            self._grow_round(with_gate_tree=False)

    def result(self):
        """Return the pair of all boosting rounds and its history, as a `BoostedFit`."""
        # LightGBM's reader takes -1 for all rounds.
        forest = read_lightgbm(self.booster, -1)
        pair = BoostedPair(forest, self.base[: self.n_cheap], self.doubt_coef)
        return BoostedFit(pair, self.objectives, self.round_counts)

    def _grow_round(self, with_gate_tree):
        """Grow one round, then set the penalties of bought groups to zero.

        Parameters
        ----------
        with_gate_tree : bool
            True if the round has a tree of the gate. Else the gate stays as it is.
        """
        derivatives = partial(self._derivatives, with_gate_tree)
        # LightGBM returns True if no tree has a split.
        self.is_stuck = self.booster.update(fobj=derivatives)
        has_groups = len(self.penalties) < len(self.problem.group_of)
        if not has_groups:
            # Each feature is bought alone. LightGBM itself charges a feature once.
            return
        bought = self._bought_groups()
        has_new_group = not self.is_bought[bought].all()
        if has_new_group:
            self.is_bought[bought] = True
            self.booster.reset_parameter(self._penalty_params())

    def _derivatives(self, with_gate_tree, predictions, _data):
        """Return gradient and Hessian of the loss in the scores, for LightGBM.

        Parameters
        ----------
        with_gate_tree : bool
            If False, the gradient of the gate's output is 0. Its tree is then 0, too.

        predictions : ndarray of n_rows * n_outputs numbers, row by row
            Sums of the trees.

        _data : lightgbm.Dataset
            Not used.

        Returns
        -------
        gradient, hessian : ndarray of shape (n_outputs * n_rows,)
            One output after the other.
        """
        scores = self._as_scores(predictions)
        cheap_scores = scores[:, : self.n_cheap]
        # Probability with which f1 answers each row. (n_rows, 1)
        cheap_share = (1 - self.q)[:, None]
        p = modelled_probabilities(cheap_scores)  # of the class of each output
        # The output of the gate keeps these values if it gets no tree.
        gradient = np.zeros_like(scores)
        hessian = np.ones_like(scores)
        gradient[:, : self.n_cheap] = cheap_share * (p - self.targets)
        hessian[:, : self.n_cheap] = self.curvature * cheap_share * p * (1 - p)
        if with_gate_tree:
            gate_output = self.n_cheap  # the last one
            trees = scores[:, gate_output]
            # Probability with which the gate sends each row. (n_rows,)
            p_sent = expit(_gate_of(doubt(cheap_scores), self.doubt_coef, trees))
            gradient[:, gate_output] = p_sent - self.q
            hessian[:, gate_output] = p_sent * (1 - p_sent)
        # Both are rounded to whole multiples of a unit, and get the weights of the
        # rows. A Hessian is at least one unit, since leaves divide by its sum.
        unit = (_RESOLUTION * self.rows.weight)[:, None]  # (n_rows, 1)
        gradient = np.rint(gradient / _RESOLUTION) * unit
        hessian = np.maximum(np.rint(hessian / _RESOLUTION), 1.0) * unit
        # LightGBM reads one output after the other.
        return gradient.ravel(order="F"), hessian.ravel(order="F")

    def _training_scores(self):
        """Return the scores of the training rows, ndarray of (n_rows, n_outputs).

        The last column are the scores of the gate's trees, if there is a gate.
        """
        # LightGBM gives predictions for training rows only to objectives and metrics.
        # An evaluation is (name of the data, name of the metric, value, ...). The value
        # of this metric is the predictions.
        (evaluation,) = self.booster.eval_train(_predictions_as_metric)
        predictions = evaluation[2]
        return self._as_scores(predictions)

    def _as_scores(self, predictions):
        """Return LightGBM's predictions with the scores of the constant model added.

        Parameters
        ----------
        predictions : ndarray of n_rows * n_outputs numbers, row by row

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
        """
        table = predictions.reshape(len(self.rows.y), self.n_outputs)
        # Without a gate, `base` has one number more than there are outputs.
        return table + self.base[: self.n_outputs]

    def _bought_groups(self):
        """Return the groups of the features that trees split on, rising, as ndarray."""
        # The importance is the number of splits on a feature.
        columns = np.flatnonzero(self.booster.feature_importance())
        return np.unique(self.problem.group_of[columns])

    def _penalty_params(self):
        """Return LightGBM's parameter for the penalty of each feature, as a dict.

        Features of bought groups have the penalty 0.
        """
        penalties = np.where(self.is_bought, 0.0, self.penalties)
        by_column = penalties[self.problem.group_of]
        return {"cegb_penalty_feature_coupled": by_column.tolist()}


def _constant_scores(y, share, problem):
    """Return the scores of a constant model, which predicts the shares of the classes.

    Parameters
    ----------
    y : ndarray of int of shape (n_rows,)
        Position of the class of each row.

    share : ndarray of shape (n_rows,)
        Weights with sum 1.

    problem : Problem

    Returns
    -------
    ndarray of shape (n_cheap_outputs + 1,)
        The last number is the score of the gate's trees, 0.
    """
    class_shares = np.bincount(y, share, problem.n_classes)
    class_shares = np.clip(class_shares, _MIN_CLASS_SHARE, 1.0)
    if problem.n_outputs == 1:
        # Two classes: the log-odds of the second one, an array of one number.
        cheap_scores = np.log(class_shares[1:] / class_shares[0])
    else:
        cheap_scores = np.log(class_shares)
    gate_score = 0.0
    return np.append(cheap_scores, gate_score)


def _booster_params(hyperparameters, n_outputs, n_threads):
    """Return the parameters of the booster, without the penalties of features.

    Parameters
    ----------
    hyperparameters : BoostedGate

    n_outputs : int
        Trees per round.

    n_threads : int

    Returns
    -------
    dict
    """
    return REPRODUCIBLE | {
        # The derivatives are given to each round.
        "objective": "none",
        "num_class": n_outputs,
        "learning_rate": hyperparameters.learning_rate,
        "num_leaves": hyperparameters.max_leaf_nodes,
        "lambda_l2": hyperparameters.l2_regularization,
        # Leaves have a smallest sum of Hessians, not a smallest number of rows, so that
        # weights count.
        "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": 1.0,
        # Least number of rows of a category. LightGBM's default of 100 would leave out
        # rare categories.
        "min_data_per_group": 10,
        "boost_from_average": False,
        "num_threads": n_threads,
    }


def _predictions_as_metric(predictions, _data):
    """Return LightGBM's predictions as the value of a metric.

    A metric is (name, value, is_higher_better). The last is not used.
    """
    return "predictions", predictions, False


# Fits of the gate for fixed scores of the trees ---------------------------------------


class GateFit(NamedTuple):
    """Probabilities q of the full model, and the gate, for fixed scores of the trees.

    Attributes
    ----------
    q : ndarray of shape (n_rows,)
        Probability with which each row is sent to the full model.

    doubt_coef : ndarray of shape (2,)
        ``(a, b)`` of the gate.

    objective : float
        Objective (OPT) of the paper, without feature costs.
    """

    q: Any
    doubt_coef: Any
    objective: float


def refit_gate(scores, rows, *, p_full, doubt_coef, n_steps=1):
    """Fit q (each row's probability of the full model) and the gate's a and b in turn.

    The gate is ``a * doubt + b + trees``, with fixed scores of the trees. Each
    alternation computes q from the gate, then ``(a, b)`` from q.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_outputs + 1)
        Scores of the cheap model and, in the last column, of the gate's trees.

    rows : Rows
        The rows of these scores.

    p_full : float
        Largest mean of q.

    doubt_coef : ndarray of shape (2,)
        The first ``(a, b)``.

    n_steps : int, default=1
        Number of alternations.

    Returns
    -------
    GateFit
    """
    share = rows.weight / rows.weight.sum()
    trees = scores[:, -1]
    cheap_scores = scores[:, :-1]
    cheap_loss = class_losses(cheap_scores, rows.y)
    doubts = doubt(cheap_scores)
    gate = _gate_of(doubts, doubt_coef, trees)
    for _ in range(n_steps):
        # The dual price of the constraint on q is not used.
        q, _ = q_step(cheap_loss, rows.full_loss, gate, p_full=p_full, weight=share)
        doubt_coef = fit_doubt(doubts, q, offset=trees, weight=share, start=doubt_coef)
        gate = _gate_of(doubts, doubt_coef, trees)
    objective = kl_objective(q, cheap_loss, rows.full_loss, gate=gate, weight=share)
    return GateFit(q, doubt_coef, objective)


class RoundChoice(NamedTuple):
    """Number of boosting rounds that is best on held-out rows, with its gate.

    Attributes
    ----------
    n_rounds : int
        Number of rounds with the lowest objective.

    doubt_coef : ndarray of shape (2,)
        ``(a, b)`` of the gate, fitted on the held-out rows.

    objectives : list of float
        Objective (OPT) on the held-out rows, without feature costs, for each number of
        rounds that was tried.
    """

    n_rounds: int
    doubt_coef: Any
    objectives: list


def best_round(pair, round_counts, rows, p_full):
    """Return the number of boosting rounds with the lowest held-out objective.

    Boosted trees fit their training rows so well that f1 and the gate look better on
    these rows than on others. So ``(a, b)`` of the gate is fitted again on the held-out
    rows, for each number of rounds.

    Parameters
    ----------
    pair : BoostedPair
        The pair of all rounds.

    round_counts : list of int
        Rising numbers of rounds to choose from.

    rows : Rows
        Held-out rows.

    p_full : float
        Largest mean of q.

    Returns
    -------
    RoundChoice
    """
    # The scores of the constant model. The 0 is the score of the gate's trees.
    constant_scores = np.append(pair.base, 0.0)
    scores = np.tile(constant_scores, (len(rows.y), 1))
    gate_fits = []
    for begin, end in pairwise([0, *round_counts]):
        # The scores of the rounds from `begin` to `end` are added in place.
        scores += leaf_sums(pair.forest, rows.values, first=begin, last=end)
        gate_fit = refit_gate(
            scores,
            rows,
            p_full=p_full,
            doubt_coef=pair.doubt_coef,
            n_steps=_N_HELD_OUT_STEPS,
        )
        gate_fits.append(gate_fit)
    objectives = [gate_fit.objective for gate_fit in gate_fits]
    best = int(np.argmin(objectives))
    return RoundChoice(round_counts[best], gate_fits[best].doubt_coef, objectives)


class BoostedGate(Gate):
    """Boosted trees as cheap model and gate, grown by LightGBM: Adapt-Gbrt.

    It is a value of the parameter `gate` of :class:`AdaptGatingClassifier` (Algorithm
    2).

    Parameters
    ----------
    n_estimators : int, default=100
        Largest number of boosting rounds of f1. The number that is best on held-out
        rows is used. Raising it costs time.

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

    def prepare(self, rows, categorical):
        """Bin the rows to the form from which LightGBM grows trees.

        A column of few different values gets one bin for each value.

        Parameters
        ----------
        rows : Rows

        categorical : ndarray of bool of shape (n_columns,)
            True for columns of codes of categories.

        Returns
        -------
        lightgbm.Dataset
            Constructed. Labels are not in it.
        """
        import lightgbm

        X = rows.values
        params = REPRODUCIBLE | {
            "min_data_in_bin": 1,
            # Bins are made from all rows, and not from a sample of them. The 2 only
            # matters for a table of one row.
            "bin_construct_sample_cnt": max(len(X), 2),
            "num_threads": 1,
        }
        if not (np.abs(X) > _LIGHTGBM_ZERO).any():
            # LightGBM refuses a table of zeros. No tree splits a table of ones either.
            X = np.ones_like(X)
        dataset = lightgbm.Dataset(
            X,
            # Zeros, which are not read: the booster gets derivatives.
            label=np.zeros(len(X)),
            params=params,
            categorical_feature=np.flatnonzero(categorical).tolist(),
        )
        return dataset.construct()

    def fit_pair(self, rows, held_out, prepared, problem, n_jobs, progress):
        """Boost cheap model and gate, up to the round that is best on held-out rows.

        Without a gate the result is the pair of all rounds. The parameters are those of
        :meth:`Gate.fit_pair`.
        """
        fit = boost(
            prepared,
            rows,
            problem,
            self,
            n_threads=threads_for(len(rows.y), n_jobs),
            progress=progress,
        )
        if problem.p_full == 0:
            # Nothing was held out.
            return FittedPair(
                pair=fit.pair,
                objectives=fit.objectives,
                held_out_objectives=[],
                n_iter=self.n_estimators,
            )
        choice = best_round(fit.pair, fit.round_counts, held_out, problem.p_full)
        return FittedPair(
            pair=fit.pair.with_rounds(choice.n_rounds, choice.doubt_coef),
            objectives=fit.objectives,
            held_out_objectives=choice.objectives,
            n_iter=choice.n_rounds,
        )

    def level(self, gate, gain, weight, p_full, n_standard_errors):
        """Return the gate score above which sending held-out rows raises quality most.

        The parameters are those of :meth:`Gate.level`.
        """
        return best_level(
            gate,
            gain,
            weight=weight,
            p_full=p_full,
            n_standard_errors=n_standard_errors,
        )
