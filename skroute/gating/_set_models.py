"""A model for each set of groups: LightGBM, or what the user gave."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import clone

from skroute.base import note_failure
from skroute.forests import leaf_sums, read_lightgbm
from skroute.gating._out_of_sample import in_order
from skroute.utils._validation import check_probabilities

# Rows that a leaf of a model is worth: of two equal classes, or more of unequal ones.
_ROWS_OF_A_LEAF = 100
_MOST_ROUNDS = 300
_PATIENCE = 20


class Task(NamedTuple):
    """Rows to learn from.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,), dtype=int
    n_classes : int
    group_of : ndarray of shape (n_features,), dtype=int
    costs : ndarray of shape (n_groups,)
    categorical : ndarray of shape (n_features,), dtype=bool
    n_threads, seed : int
    """

    X: Any
    y: Any
    n_classes: int
    group_of: Any
    costs: Any
    categorical: Any
    n_threads: int
    seed: int

    def of(self, rows):
        """Some of the rows."""
        return self._replace(X=self.X[rows], y=self.y[rows])

    @property
    def free(self):
        """The groups that cost nothing, as a set."""
        return self.costs == 0

    def columns(self, groups):
        """Columns of a set of groups, given as booleans."""
        return np.flatnonzero(groups[self.group_of])

    @property
    def shares(self):
        """Share of each class."""
        return np.bincount(self.y, minlength=self.n_classes) / len(self.y)

    def params(self, most_leaves, **more):
        """LightGBM's parameters for these rows: rare classes and few rows get small trees."""
        worth = 2 * len(self.y) * (1 - (self.shares**2).sum())
        binary = self.n_classes == 2
        found = {
            "objective": "binary" if binary else "multiclass",
            "metric": "binary_logloss" if binary else "multi_logloss",
            "learning_rate": 0.1,
            "num_leaves": int(np.clip(worth / _ROWS_OF_A_LEAF, 4, most_leaves)),
            "min_data_in_leaf": int(np.clip(len(self.y) // 50, 3, 20)),
            "max_bin": 63,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": self.n_threads,
            "seed": self.seed,
            "verbosity": -1,
        }
        return found | ({} if binary else {"num_class": self.n_classes}) | more

    def data(self, columns, params, reference=None):
        """LightGBM's rows of some columns."""
        import lightgbm

        return lightgbm.Dataset(
            np.ascontiguousarray(self.X[:, columns]),
            label=self.y,
            params=params,
            reference=reference,
            categorical_feature=np.flatnonzero(self.categorical[columns]).tolist(),
        )


class SetModel(NamedTuple):
    """Class probabilities from the columns of one set.

    Attributes
    ----------
    columns : ndarray of int
    forest : Forest, estimator or None
        None where the set is empty: every row gets the shares.
    shares : ndarray of shape (n_classes,)
        Of the classes.
    rounds : int
        Of boosting.
    temperature : float
        Factor of the log-odds that suits held-out rows best.
    """

    columns: Any
    forest: Any
    shares: Any
    rounds: int = 0
    temperature: float = 1.0

    def proba(self, values):
        """Class probabilities of rows of all columns."""
        if self.forest is None:
            return np.tile(self.shares, (len(values), 1))
        scores = leaf_sums(self.forest, values[:, self.columns])
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        return softmax(self.temperature * scores, axis=1)


def fit_judged(task, groups, out):
    """A model of a set, of as many rounds and of the temperature that suit held-out rows best."""
    import lightgbm

    columns = task.columns(groups)
    if not len(columns):
        return SetModel(columns, None, task.shares)
    params = task.params(63, max_bin=255 if len(columns) == 1 else 63)
    data = task.data(columns, params)
    stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
    judge = out.data(columns, params, reference=data)
    booster = lightgbm.train(params, data, _MOST_ROUNDS, valid_sets=[judge], callbacks=[stop])
    rounds = max(booster.best_iteration, 1)
    model = SetModel(columns, read_lightgbm(booster, rounds), task.shares, rounds)
    scores = np.log(np.clip(model.proba(out.X), 1e-12, 1.0))

    def loss(factor):
        return -log_softmax(factor * scores, axis=1)[np.arange(len(out.y)), out.y].mean()

    found = minimize_scalar(loss, bounds=(0.2, 3.0), method="bounded")
    return model._replace(temperature=float(found.x))


def fit_again(task, model):
    """A model like one that was judged, of all rows."""
    import lightgbm

    if model.forest is None:
        return model._replace(shares=task.shares)
    params = task.params(63, max_bin=255 if len(model.columns) == 1 else 63)
    booster = lightgbm.train(params, task.data(model.columns, params), model.rounds)
    return model._replace(forest=read_lightgbm(booster, -1), shares=task.shares)


class OwnModel(NamedTuple):
    """The user's model of the columns of one set; its rows are as the user gave them."""

    columns: Any
    estimator: Any
    classes: Any

    @classmethod
    def fit(cls, estimator, columns, rows, y, classes):
        """A clone, fitted."""
        with note_failure("estimator", len(y), "fit"):
            return cls(columns, clone(estimator).fit(rows, classes[y]), classes)

    def proba(self, rows):
        """Class probabilities."""
        with note_failure("estimator", len(rows), "predict_proba"):
            found = check_probabilities(self.estimator.predict_proba(rows), "estimator")
        return in_order(found, self.estimator.classes_, self.classes)
