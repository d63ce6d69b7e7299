"""Adapt-Gbrt: gate and cheap model as one LightGBM booster.

The booster has an output for each output of f1 and one more for the gate. LightGBM's coupled
feature penalty (``cegb_penalty_feature_coupled``) is charged the first time that any tree splits
on a feature, whichever output and round it belongs to: this is ``u_alpha`` of equations (1) and
(2), shared by f1 and g. LightGBM's split gain is a sum over rows of twice the decrease of the
loss, while the objective is a mean, hence the factor ``2 * sum of weights``.

LightGBM knows no groups. When a feature of a group has been bought, the penalties of the others
in the group are set to zero before the next round; within a round, features of one group bought
by different trees are charged each.
"""

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, clone

from skroute.forests import Forest, leaf_sums, read_lightgbm
from skroute.gating._levels import best_level
from skroute.gating._objective import (
    class_losses,
    doubt,
    fit_doubt,
    kl_objective,
    modelled_probabilities,
    of_outputs,
    q_step,
)
from skroute.utils._compat import Integral, Interval, Real
from skroute.utils._typing import NDArray

__all__ = ["BoostedGate"]

# Gradients are rounded to multiples of this. Sums of them in double precision are then
# exact, so that ties do not depend on row order.
_RESOLUTION = 2.0**-20
# Rows below which more than one thread costs more than it gains, on a busy machine by far.
_SMALL = 20_000
# LightGBM's kZeroThreshold.
_ZERO = 1e-35
# q-steps and refits of the gate's (a, b) on held-out rows at each point.
_HELD_OUT_STEPS = 3
# With these LightGBM grows the same trees from the same rows, and says nothing.
REPRODUCIBLE = {
    "deterministic": True,
    "feature_pre_filter": False,
    "force_row_wise": True,
    "verbosity": -1,
}
_PROCESS = os.getpid()


def _one_thread(n_rows):
    """Whether LightGBM is to use one thread: for few rows, and in a forked child.

    OpenMP's threads do not come along there, and it waits for them.
    """
    return n_rows < _SMALL or os.getpid() != _PROCESS


def threads_for(n_rows, n_jobs):
    """Threads of LightGBM for so many rows."""
    return 1 if _one_thread(n_rows) else effective_n_jobs(n_jobs)


def cloned(estimator, n_rows):
    """A clone; LightGBM whose `n_jobs` was left open gets one thread for few rows too.

    Its own default is all cores, which wait for each other on a busy machine.
    """
    model = clone(estimator)
    is_open = type(model).__module__.startswith("lightgbm.") and model.n_jobs is None
    return model.set_params(n_jobs=1) if is_open and _one_thread(n_rows) else model


@dataclass
class BoostedPair:
    """Boosted cheap model f1 and gate ``g(x) = a * doubt(f1(x)) + b + trees(x)``.

    The forest has one output for each of f1 and one more for the gate's trees, `base` are scores of
    f1 before the first tree, `doubt` is ``(a, b)``; without `by_trees` the gate is the doubt alone.
    """

    forest: Forest
    base: NDArray[np.float64]
    doubt: NDArray[np.float64]
    by_trees: bool = True
    reads_cheap = True

    def __post_init__(self):
        cheap, has_gate = range(len(self.base)), self.forest.n_outputs > len(self.base)
        self.cheap_features = self.forest.features_of(cheap)
        # The gate reads f1's doubt, so it reads all that f1 reads.
        every = range(self.forest.n_outputs) if self.by_trees else cheap
        self.gate_features = self.forest.features_of(every if has_gate else [])

    def cheap_scores(self, values):
        """Scores of f1, shape (n_rows, n_outputs)."""
        return leaf_sums(self.forest, values, range(len(self.base))) + self.base

    def gate_scores(self, values, scores):
        """Scores of the gate, shape (n_rows,)."""
        slope, offset = self.doubt
        gate = slope * doubt(scores) + offset
        if self.by_trees:
            gate += leaf_sums(self.forest, values, [len(self.base)])[:, 0]
        return gate

    @property
    def simpler(self):
        """The pair whose gate is the doubt alone, for where this gate gains nothing."""
        alone = np.array([1.0, 0.0])
        return replace(self, doubt=alone, by_trees=False) if self.by_trees else None

    def first(self, rounds, coef):
        """The pair of the first rounds, with ``(a, b)`` of the gate."""
        kept = self.forest.taken(range(min(rounds, self.forest.n_members)))
        return replace(self, forest=kept, doubt=coef)


def boost(data, rows, problem, kind, *, n_threads, progress=nullcontext):
    """Algorithm 2 (Adapt-Gbrt): alternate the q-step with rounds of boosting.

    The doubt of the cheap model is a function of features that are bought already. At each q-step
    ``a`` and ``b`` of the gate are refitted and one gate tree is grown; f1 grows in every round.
    With ``p_full=0`` there is no gate, and this is GreedyMiser.

    `data` are the rows as the gate makes them `ready`, for any number of boosters, and `kind` is a
    :class:`BoostedGate`. The result is the pair of all rounds, the objective (OPT) on the rows and
    the rounds grown at each q-step; each alternation runs in a context of `progress`.
    """
    import lightgbm

    y, weight, group_of = rows.y, rows.weight, problem.group_of
    n_samples, columns, gated = len(y), problem.n_outputs, problem.p_full > 0
    total, outputs = weight.sum(), problem.n_outputs + gated
    share = weight / total
    # Scores of the constant model, and 0 for the gate.
    prior = np.clip(np.bincount(y, share, problem.n_classes), 1e-6, 1.0)
    base = np.log(prior[1:] / prior[0]) if columns == 1 else np.log(prior)
    base = np.append(base, 0.0)
    target = of_outputs(y, columns).astype(np.float64)
    prices = 2 * total * problem.gamma * problem.group_costs
    # LightGBM reads them as text, and no text below the smallest normal number.
    prices[prices < np.finfo(np.float64).tiny] = 0.0
    params = REPRODUCIBLE | {
        "objective": "none",
        "num_class": outputs,
        "learning_rate": kind.learning_rate,
        "num_leaves": kind.max_leaf_nodes,
        "lambda_l2": kind.l2_regularization,
        # A least hessian instead of a least number of rows, so that weights count.
        "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": 1.0,
        # Of categories; 100 would leave out what is rare.
        "min_data_per_group": 10,
        "boost_from_average": False,
        "cegb_penalty_feature_coupled": prices[group_of].tolist(),
        "num_threads": n_threads,
    }
    booster = lightgbm.Booster(params, data)
    q = np.full(n_samples, min(problem.p_full, 0.5))
    coef = np.array([0.0, logit(q[0])]) if gated else np.zeros(2)
    objectives, ends = [], []
    # Friedman's factor for the softmax's diagonal Hessian, as in LightGBM's own objective.
    curvature = 1.0 if columns == 1 else columns / (columns - 1)
    unit = (_RESOLUTION * weight)[:, None]

    def bought():
        """Groups of the features that trees split on."""
        return np.unique(group_of[np.flatnonzero(booster.feature_importance())])

    def step(scores):
        """q-step, refit of (a, b), and the objective."""
        nonlocal q, coef
        if gated:
            losses = y, rows.full_loss, share
            q, coef, value = refitted(scores, *losses, problem.p_full, coef)
        else:
            value = float(share @ class_losses(scores, y))
        objectives.append(value + problem.gamma * problem.group_costs[bought()].sum())
        ends.append(booster.current_iteration())

    def derivatives(alternates, predictions, _data):
        """Gradient and Hessian at a round; the gate's tree grows at those that alternate."""
        scores = predictions.reshape(n_samples, outputs) + base[:outputs]
        if alternates and booster.current_iteration() > 0:
            step(scores)
        kept = (1 - q)[:, None]
        p = modelled_probabilities(scores[:, :columns])
        gradient, hessian = np.zeros_like(scores), np.ones_like(scores)
        gradient[:, :columns] = kept * (p - target)
        hessian[:, :columns] = curvature * kept * p * (1 - p)
        if gated and alternates:
            sent = expit(
                coef[0] * doubt(scores[:, :columns]) + coef[1] + scores[:, columns]
            )
            gradient[:, columns], hessian[:, columns] = sent - q, sent * (1 - sent)
        gradient = np.rint(gradient / _RESOLUTION) * unit
        hessian = np.maximum(np.rint(hessian / _RESOLUTION), 1.0) * unit
        return gradient.ravel(order="F"), hessian.ravel(order="F")

    def last_step(predictions, _data):
        step(predictions.reshape(n_samples, outputs) + base[:outputs])
        return "objective", objectives[-1], False

    # To an unsigned integer of numpy a negative number is a large one.
    n_estimators = int(kind.n_estimators)
    every = -(-n_estimators // min(int(kind.max_iter), n_estimators))
    stuck, free = False, np.zeros(len(prices), dtype=bool)
    for begin in range(0, n_estimators, every):
        # Where no split pays, none will until q changes.
        if stuck and not gated:
            break
        with progress():
            for round_ in range(begin, min(begin + every, n_estimators)):
                if stuck and round_ > begin:
                    break
                stuck = booster.update(fobj=partial(derivatives, round_ == begin))
                if len(prices) < len(group_of) and not free[bought()].all():
                    free[bought()] = True
                    left = np.where(free, 0.0, prices)[group_of].tolist()
                    booster.reset_parameter({"cegb_penalty_feature_coupled": left})
    booster.eval_train(last_step)
    return (
        BoostedPair(read_lightgbm(booster, -1), base[:columns], coef),
        objectives,
        ends,
    )


def refitted(scores, y, full_loss, share, p_full, coef, n_steps=1):
    """q-steps and refits of ``(a, b)`` of the gate: q, (a, b), and the objective without costs."""
    cheap, trees = scores[:, :-1], scores[:, -1]
    cheap_loss, u = class_losses(cheap, y), doubt(cheap)
    gate = coef[0] * u + coef[1] + trees
    for _ in range(n_steps):
        q, _ = q_step(cheap_loss, full_loss, gate, p_full, share)
        coef = fit_doubt(u, q, trees, share, start=coef)
        gate = coef[0] * u + coef[1] + trees
    return q, coef, kl_objective(q, cheap_loss, full_loss, gate, share)


def best_round(pair, ends, rows, p_full):
    """Of the rounds `ends` those with the lowest objective on held-out rows, and ``(a, b)`` there.

    Boosted trees fit their training rows so well that q believes them: f1 looks better, and the
    gate sharper, than either is. The two numbers of the gate that can undo this are fitted here.
    The third part of the result are the objectives, without feature costs.
    """
    share = rows.weight / rows.weight.sum()
    scores = np.tile(np.append(pair.base, 0.0), (len(rows.y), 1))
    losses, found = (rows.y, rows.full_loss, share), []
    for begin, end in pairwise([0, *ends]):
        scores += leaf_sums(pair.forest, rows.values, first=begin, last=end)
        found.append(refitted(scores, *losses, p_full, pair.doubt, _HELD_OUT_STEPS))
    _, coefs, objectives = zip(*found)
    best = int(np.argmin(objectives))
    return ends[best], coefs[best], objectives


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

    def ready(self, rows, categorical):
        """Rows as a Dataset of LightGBM, each value of few a bin of its own."""
        import lightgbm

        X = rows.values
        params = REPRODUCIBLE | {
            "min_data_in_bin": 1,
            "bin_construct_sample_cnt": max(len(X), 2),
            "num_threads": 1,
        }
        # To LightGBM a table of zeros has no features, and it refuses it; to it these are zeros.
        readable = X if (np.abs(X) > _ZERO).any() else np.ones_like(X)
        codes = np.flatnonzero(categorical).tolist()
        return lightgbm.Dataset(
            readable, label=np.zeros(len(X)), params=params, categorical_feature=codes
        ).construct()

    def fit_pair(self, rows, held_out, ready, problem, n_jobs, progress):
        """Return the pair, its objectives, those on held-out rows, and the number of rounds."""
        how = {"n_threads": threads_for(len(rows.y), n_jobs), "progress": progress}
        pair, objectives, ends = boost(ready, rows, problem, self, **how)
        if problem.p_full == 0:
            return pair, objectives, [], self.n_estimators
        rounds, coef, of_held_out = best_round(pair, ends, held_out, problem.p_full)
        return pair.first(rounds, coef), objectives, of_held_out, rounds

    def level(self, gate, gain, weight, p_full, sure):
        """Where sending held-out rows raises quality most, by so many standard errors."""
        return best_level(gate, gain, weight, p_full, sure)
