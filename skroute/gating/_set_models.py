"""A model for each set of groups: LightGBM, or what the user gave."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from skroute.base import note_failure
from skroute.forests import leaf_sums, read_lightgbm
from skroute.gating._boosting import REPRODUCIBLE, cloned
from skroute.gating._objective import class_losses
from skroute.utils._compat import _safe_indexing

# Rows that a leaf of a model is worth: of two equal classes, or more of unequal ones.
_ROWS_OF_A_LEAF = 100
# Leaves of the trees with random thresholds, which are not what keeps them smooth: the default.
_SMOOTHED_LEAVES = 31
# Of the log-odds of a forest at most.
_MOST_FACTOR = 3.0
_MOST_ROUNDS = 300
_PATIENCE = 20


class Task(NamedTuple):
    """Rows to learn from, of weight above 0, with the groups of their columns."""

    X: Any
    y: Any
    weight: Any
    n_classes: int
    group_of: Any
    costs: Any
    categorical: Any
    n_threads: int
    seed: int

    def of(self, rows):
        """Some of the rows."""
        return self._replace(X=self.X[rows], y=self.y[rows], weight=self.weight[rows])

    def columns(self, groups):
        """Columns of a set of groups, given as booleans."""
        return np.flatnonzero(groups[self.group_of])

    @property
    def shares(self):
        """Share of each class."""
        count = np.bincount(self.y, self.weight, minlength=self.n_classes)
        return count / self.weight.sum()

    def log_loss(self, scores):
        """Mean log loss of scores of these rows, one for each class."""
        return np.average(class_losses(scores, self.y), weights=self.weight)

    def params(self, most_leaves, **more):
        """LightGBM's parameters for these rows: rare classes and few rows get small trees."""
        worth = 2 * len(self.y) * (1 - (self.shares**2).sum())
        binary = self.n_classes == 2
        found = REPRODUCIBLE | {
            "objective": "binary" if binary else "multiclass",
            "metric": "binary_logloss" if binary else "multi_logloss",
            "learning_rate": 0.1,
            "num_leaves": int(np.clip(worth / _ROWS_OF_A_LEAF, 4, most_leaves)),
            "min_data_in_leaf": int(np.clip(len(self.y) // 50, 3, 20)),
            "max_bin": 63,
            "num_threads": self.n_threads,
            "seed": self.seed,
        }
        return found | ({} if binary else {"num_class": self.n_classes}) | more

    def data(self, columns, params, reference=None):
        """LightGBM's rows of some columns."""
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
    """Class probabilities from the columns of one set; the class shares where it is empty.

    `rounds` are those of boosting each forest, `factors` those of the log-odds of each that suit
    held-out rows best.
    """

    shares: Any
    forests: list
    rounds: list
    factors: Any

    def proba(self, values):
        """Class probabilities of rows of the columns."""
        if not self.forests:
            return np.tile(self.shares, (len(values), 1))
        return softmax(
            np.tensordot(self.factors, _scores(self.forests, values), axes=1), axis=1
        )


def _scores(forests, values):
    """Scores of all classes by each forest, of rows of its columns."""
    return [of_classes(leaf_sums(forest, values)) for forest in forests]


def of_classes(scores):
    """Scores of all classes, where a forest has those of the second of two only."""
    return scores if scores.shape[1] > 1 else np.hstack([np.zeros_like(scores), scores])


def _kinds(task, columns):
    """LightGBM's parameters of the two forests of a model.

    One fits closely, which is best where the classes are clear. Random thresholds smooth the
    other, which is better where they are not: there the first can only stop early.
    """
    every = task.params(63, max_bin=255 if len(columns) == 1 else 63)
    return every, every | {"extra_trees": True, "num_leaves": _SMOOTHED_LEAVES}


def fit_judged(task, groups, out):
    """A model of a set, of as many rounds and with the factors that suit held-out rows best."""
    import lightgbm

    columns = task.columns(groups)
    if not len(columns):
        return SetModel(task.shares, [], [], None)
    forests, rounds = [], []
    for params in _kinds(task, columns):
        data = task.data(columns, params)
        stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
        judge = out.data(columns, params, reference=data)
        booster = lightgbm.train(
            params, data, _MOST_ROUNDS, valid_sets=[judge], callbacks=[stop]
        )
        rounds.append(max(booster.best_iteration, 1))
        forests.append(read_lightgbm(booster, rounds[-1]))
    scores = _scores(forests, out.X[:, columns])

    def loss(factors):
        return out.log_loss(np.tensordot(factors, scores, axes=1))

    start = np.full(len(forests), 1 / len(forests))
    found = minimize(
        loss, start, method="L-BFGS-B", bounds=[(0.0, _MOST_FACTOR)] * len(forests)
    )
    return SetModel(task.shares, forests, rounds, found.x)


def fit_again(task, groups, model):
    """A model like one that was judged, of all rows."""
    import lightgbm

    columns, forests = task.columns(groups), []
    for params, rounds in zip(_kinds(task, columns), model.rounds):
        booster = lightgbm.train(params, task.data(columns, params), rounds)
        forests.append(read_lightgbm(booster, -1))
    return model._replace(forests=forests, shares=task.shares)


def fit_own(estimator, task, X, classes, fit_params, groups):
    """Return a clone of the user's model that is fitted on the columns of a set.

    `fit_params` are the parameters of its `fit`, with an entry for each row of `task` where they
    belong to rows. Of a set without columns the class shares are returned.
    """
    columns = task.columns(groups)
    if not len(columns):
        return SetModel(task.shares, [], [], None)
    rows = _safe_indexing(X, columns, axis=1)
    with note_failure("estimator", len(task.y), "fit"):
        return cloned(estimator, len(task.y)).fit(rows, classes[task.y], **fit_params)
