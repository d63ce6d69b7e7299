"""A model for each set of groups: two forests of LightGBM, or the user's estimator."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from skroute.base import note_failure
from skroute.forests import leaf_sums, read_lightgbm
from skroute.gating._boosting import REPRODUCIBLE, cloned
from skroute.gating._choosing import first_half
from skroute.gating._objective import class_losses
from skroute.utils._compat import _safe_indexing

# A tree has one leaf for this number of rows, if two classes are equally frequent. Rows
# of unequal classes count as fewer rows.
_ROWS_OF_A_LEAF = 100
# Least number of leaves of a tree of a model.
_FEWEST_LEAVES = 4
# Largest number of leaves of a tree of a model.
_MOST_LEAVES = 63
# Largest number of leaves of a tree with random thresholds: LightGBM's default. Random
# thresholds make the forest smooth, so that its trees need not be small.
_SMOOTHED_LEAVES = 31
# The least number of rows of a leaf is the number of all rows divided by this, between
# `_LEAST_ROWS_OF_A_LEAF` and `_MOST_ROWS_OF_A_LEAF`.
_LEAF_SHARE = 50
# Lower limit of the least number of rows of a leaf, for few rows.
_LEAST_ROWS_OF_A_LEAF = 3
# Upper limit of the least number of rows of a leaf: LightGBM's default.
_MOST_ROWS_OF_A_LEAF = 20
# Largest number of bins of a column.
_BINS = 63
# Largest number of bins in a model of one column: LightGBM's default.
_BINS_OF_ONE_COLUMN = 255
# Largest factor by which the log-odds of a forest are multiplied. Larger factors fit
# noise of few rows.
_MOST_FACTOR = 3.0
# Largest number of boosting rounds of a forest.
_MOST_ROUNDS = 300
# Number of rounds without progress on held-out rows after which boosting ends.
_PATIENCE = 20


class Task(NamedTuple):
    """Rows to learn from, with the groups of their columns.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Numbers and codes of categories. NaN is missing.
    y : ndarray of shape (n_rows,), dtype=int64
        Positions of the classes.
    weight : ndarray of shape (n_rows,)
        Weights of the rows, above 0.
    n_classes : int
    group_of : ndarray of shape (n_columns,), dtype=int64
        Group of each column.
    costs : ndarray of shape (n_groups,)
        Cost of each group.
    categorical : ndarray of shape (n_columns,), dtype=bool
        True for columns of codes.
    seed : int
        Seed of LightGBM.
    """

    X: Any
    y: Any
    weight: Any
    n_classes: int
    group_of: Any
    costs: Any
    categorical: Any
    seed: int

    def of(self, rows):
        """Return the task of some of the rows, a mask or positions."""
        return self._replace(X=self.X[rows], y=self.y[rows], weight=self.weight[rows])

    def columns(self, groups):
        """Return the positions of the columns of a set of groups.

        `groups` are booleans of shape (n_groups,).
        """
        return np.flatnonzero(groups[self.group_of])

    @property
    def shares(self):
        """Share of each class, ndarray of shape (n_classes,)."""
        class_weights = np.bincount(self.y, self.weight, minlength=self.n_classes)
        return class_weights / self.weight.sum()

    def log_loss(self, scores):
        """Return the mean log loss of scores (n_rows, n_classes) of these rows."""
        return np.average(class_losses(scores, self.y), weights=self.weight)

    def params(self, most_leaves, **more):
        """Return LightGBM's parameters for these rows, a dict.

        The trees are small if there are few rows, or if nearly all rows have one class.

        Parameters
        ----------
        most_leaves : int
            Largest number of leaves of a tree.
        **more : dict
            Other parameters. They are added, or replace those of the same name.
        """
        n_rows = len(self.y)
        # Probability that two drawn rows have different classes. It is a half for two
        # equally frequent classes.
        diversity = 1 - (self.shares**2).sum()
        # Number of rows of two equally frequent classes that count as much as these
        # rows.
        n_equal_rows = 2 * n_rows * diversity
        n_leaves = np.clip(n_equal_rows / _ROWS_OF_A_LEAF, _FEWEST_LEAVES, most_leaves)
        n_rows_of_a_leaf = np.clip(
            n_rows // _LEAF_SHARE, _LEAST_ROWS_OF_A_LEAF, _MOST_ROWS_OF_A_LEAF
        )
        params = REPRODUCIBLE | {
            "learning_rate": 0.1,  # LightGBM's default
            "num_leaves": int(n_leaves),
            "min_data_in_leaf": int(n_rows_of_a_leaf),
            "max_bin": _BINS,
            # Small boosters are fitted side by side, each by one thread: more threads
            # in each take more time, not less.
            "num_threads": 1,
            "seed": self.seed,
        }
        if self.n_classes == 2:
            params |= {"objective": "binary", "metric": "binary_logloss"}
        else:
            params |= {
                "objective": "multiclass",
                "metric": "multi_logloss",
                "num_class": self.n_classes,
            }
        return params | more

    def data(self, columns, params, reference=None):
        """Return LightGBM's data set of some columns.

        Parameters
        ----------
        columns : ndarray of int
            Positions of the columns.
        params : dict
            LightGBM's parameters.
        reference : lightgbm.Dataset, default=None
            Data whose bins are used. None: bins are made from these rows.
        """
        import lightgbm

        return lightgbm.Dataset(
            np.ascontiguousarray(self.X[:, columns]),
            label=self.y,
            weight=self.weight,
            params=params,
            reference=reference,
            categorical_feature=np.flatnonzero(self.categorical[columns]).tolist(),
        )


class SetModel(NamedTuple):
    """Model of class probabilities that reads the columns of one set.

    Attributes
    ----------
    shares : ndarray of shape (n_classes,)
        Class shares. They are the answer to every row if the set has no columns.
    forests : list of Forest
        Empty for a set without columns.
    rounds : list of int
        Number of boosting rounds of each forest.
    factors : ndarray of shape (n_forests,) or None
        Factors of the scores of the forests. The products are summed. The factors have
        the lowest loss on held-out rows. None for a set without columns.
    """

    shares: Any
    forests: list
    rounds: list
    factors: Any

    def proba(self, values):
        """Return class probabilities of rows, ndarray of shape (n_rows, n_classes).

        `values` has the columns of the set.
        """
        if not self.forests:
            return np.tile(self.shares, (len(values), 1))
        scores = _scores(self.forests, values)
        # The sum over forests of factor * scores. (n_rows, n_classes)
        summed_scores = np.tensordot(self.factors, scores, axes=1)
        return softmax(summed_scores, axis=1)


def _scores(forests, values):
    """Return the scores of the classes by each forest, a list of (n_rows, n_classes).

    `values` (n_rows, n_columns) has the columns of the set.
    """
    return [of_classes(leaf_sums(forest, values)) for forest in forests]


def of_classes(scores):
    """Return the outputs of a forest as scores of the classes, (n_rows, n_classes).

    A forest of two classes has one output, the score of the second class. The first
    class then gets the score 0. `scores` has shape (n_rows, n_outputs).
    """
    n_outputs = scores.shape[1]
    if n_outputs > 1:
        return scores
    return np.hstack([np.zeros_like(scores), scores])


def _forest_params(task, columns):
    """Return LightGBM's parameters of the two forests of a model, two dicts.

    The first forest fits closely, which is best if the classes are well separated.
    Random thresholds smooth the second forest, which is better if the classes overlap.
    The first forest could then only stop early.

    Parameters
    ----------
    task : Task
        The rows to fit on.
    columns : ndarray of int
        Positions of the columns of the set.
    """
    n_bins = _BINS_OF_ONE_COLUMN if len(columns) == 1 else _BINS
    close = task.params(_MOST_LEAVES, max_bin=n_bins)
    smooth = close | {"extra_trees": True, "num_leaves": _SMOOTHED_LEAVES}
    return close, smooth


class JudgedSet(NamedTuple):
    """A model of a set, and its answers to the held-out rows.

    Attributes
    ----------
    model : SetModel
        Its rounds and factors have the lowest loss on all held-out rows.
    honest_proba : ndarray of shape (n_held_out, n_classes)
        Class probabilities of the held-out rows. For each half, rounds and factors are
        tuned on the other half, so that no row is answered by a model that was tuned on
        it.
    """

    model: SetModel
    honest_proba: Any


def fit_judged(task, groups, held_out):
    """Fit a model of a set, tune it, and answer the held-out rows (`JudgedSet`).

    Parameters
    ----------
    task : Task
        The rows to fit on.
    groups : ndarray of bool of shape (n_groups,)
        The set.
    held_out : Task
        The rows to tune on and to answer, at least two.
    """
    columns = task.columns(groups)
    if not len(columns):
        # Without forests, the model answers every row with the class shares.
        model = SetModel(task.shares, forests=[], rounds=[], factors=None)
        # The model reads no values. Labels are passed for the number of rows only.
        return JudgedSet(model, model.proba(held_out.y))
    is_first = first_half(len(held_out.y))
    first = held_out.of(is_first)
    second = held_out.of(~is_first)
    # Two boosters, each with its best number of rounds on the first half of the
    # held-out rows, on the second half, and on both.
    boosted = [
        _boost(task, columns, params, first, second)
        for params in _forest_params(task, columns)
    ]
    tuned_on_first = _tuned(task, columns, boosted, "first", first)
    tuned_on_second = _tuned(task, columns, boosted, "second", second)
    tuned_on_both = _tuned(task, columns, boosted, "both", held_out)
    honest_proba = np.empty((len(held_out.y), task.n_classes))
    honest_proba[is_first] = tuned_on_second.proba(first.X[:, columns])
    honest_proba[~is_first] = tuned_on_first.proba(second.X[:, columns])
    return JudgedSet(tuned_on_both, honest_proba)


class LossCurve:
    """Record of the losses after each boosting round, until progress ends.

    Attributes
    ----------
    n_rounds : int
        Number of rounds after which the loss was smallest. 0 before the first loss.
    has_ended : bool
        True if the loss has not fallen for `_PATIENCE` rounds. Later losses do not
        count.
    """

    def __init__(self):
        self.n_rounds = 0
        self.has_ended = False
        # Number of losses so far.
        self._n_seen = 0
        # The smallest of these losses. Infinity before the first.
        self._smallest = np.inf

    def add(self, loss):
        """Add the loss after one more round. After the end of progress, do nothing."""
        if self.has_ended:
            return
        self._n_seen += 1
        if loss < self._smallest:
            self._smallest = loss
            self.n_rounds = self._n_seen
        n_without_progress = self._n_seen - self.n_rounds
        self.has_ended = n_without_progress >= _PATIENCE


class Boosted(NamedTuple):
    """A booster, with the numbers of rounds that have the lowest loss on held-out rows.

    Attributes
    ----------
    booster : lightgbm.Booster
        It may have more rounds than these.
    n_rounds : dict from str to int
        Best number of rounds on the rows of the ``"first"`` half, of the ``"second"``
        half, and on ``"both"``.
    """

    booster: Any
    n_rounds: dict


def _boost(task, columns, params, first, second):
    """Boost until no loss on held-out rows falls any more (`Boosted`).

    The losses are those of each half of the held-out rows, and of both halves.

    Parameters
    ----------
    task : Task
        The rows to fit on.
    columns : ndarray of int
        Positions of the columns of the set.
    params : dict
        Parameters of LightGBM.
    first, second : Task
        The halves of the held-out rows.
    """
    import lightgbm

    curves = {"first": LossCurve(), "second": LossCurve(), "both": LossCurve()}
    weights = [first.weight.sum(), second.weight.sum()]

    def add_losses(env):
        # LightGBM calls this after each round, with its state `env`. There is a result
        # (data set, metric, value, ...) for each of `halves`, in their order.
        losses = [result[2] for result in env.evaluation_result_list]
        first_loss, second_loss = losses
        curves["first"].add(first_loss)
        curves["second"].add(second_loss)
        curves["both"].add(np.average(losses, weights=weights))
        if all(curve.has_ended for curve in curves.values()):
            raise lightgbm.EarlyStopException(env.iteration, env.evaluation_result_list)

    data = task.data(columns, params)
    halves = [half.data(columns, params, reference=data) for half in (first, second)]
    booster = lightgbm.train(
        params, data, _MOST_ROUNDS, valid_sets=halves, callbacks=[add_losses]
    )
    # At least one round. `n_rounds` of a curve is 0 if all losses are NaN.
    n_rounds = {name: max(curve.n_rounds, 1) for name, curve in curves.items()}
    return Boosted(booster, n_rounds)


def _tuned(task, columns, boosted, tuned_on, rows):
    """Return the model, with rounds and weights of its forests tuned on some rows.

    Parameters
    ----------
    task : Task
        The rows that the boosters were fitted on.
    columns : ndarray of int
        Positions of the columns of the set.
    boosted : list of Boosted
        The boosters of the two forests.
    tuned_on : {"first", "second", "both"}
        Halves of the held-out rows that the model is tuned on.
    rows : Task
        The rows of these halves.

    Returns
    -------
    SetModel
    """
    forests = []
    rounds = []
    for booster, n_rounds_by_rows in boosted:
        n_rounds = n_rounds_by_rows[tuned_on]
        rounds.append(n_rounds)
        forests.append(read_lightgbm(booster, n_rounds))
    scores = _scores(forests, rows.X[:, columns])

    def loss(factors):
        # The sum over forests of factor * scores. (n_rows, n_classes)
        summed_scores = np.tensordot(factors, scores, axes=1)
        return rows.log_loss(summed_scores)

    # At first, the mean of the forests.
    start = np.full(len(forests), 1 / len(forests))
    bounds = [(0.0, _MOST_FACTOR)] * len(forests)
    solution = minimize(loss, start, method="L-BFGS-B", bounds=bounds)
    return SetModel(task.shares, forests, rounds, solution.x)


def fit_again(task, groups, model):
    """Fit the forests of a model on other rows, with the tuned rounds and weights.

    Parameters
    ----------
    task : Task
        The rows to fit on.
    groups : ndarray of bool of shape (n_groups,)
        The set.
    model : SetModel
        Its rounds and factors were chosen on held-out rows.

    Returns
    -------
    SetModel
    """
    import lightgbm

    columns = task.columns(groups)
    forests = []
    for params, n_rounds in zip(_forest_params(task, columns), model.rounds):
        booster = lightgbm.train(params, task.data(columns, params), n_rounds)
        # -1: all rounds.
        forests.append(read_lightgbm(booster, -1))
    return model._replace(forests=forests, shares=task.shares)


def fit_own(estimator, task, X, classes, fit_params, groups):
    """Return a clone of the user's model, fitted on the columns of a set.

    For a set without columns, the result is the model of the class shares.

    Parameters
    ----------
    estimator : classifier
        The user's model. It is cloned.
    task : Task
        The rows to fit on.
    X : indexable of n_rows rows
        The rows of `task` as the user gave them.
    classes : ndarray of shape (n_classes,)
        Class labels.
    fit_params : dict
        Parameters of the `fit` of `estimator`. A parameter with one entry for each row
        has the entries of the rows of `task`.
    groups : ndarray of bool of shape (n_groups,)
        The set.

    Returns
    -------
    fitted classifier or SetModel
    """
    columns = task.columns(groups)
    if not len(columns):
        return SetModel(task.shares, forests=[], rounds=[], factors=None)
    rows = _safe_indexing(X, columns, axis=1)
    n_rows = len(task.y)
    with note_failure("estimator", n_rows, "fit"):
        return cloned(estimator, n_rows).fit(rows, classes[task.y], **fit_params)
