"""One model for all subsets of groups: trained on copies of rows with groups hidden."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import clone

from skroute.base import note_failure
from skroute.forests import leaf_sums, read_lightgbm
from skroute.gating._boosting import safe_threads
from skroute.gating._forward import grown
from skroute.utils._validation import check_probabilities


def prefix_masks(order, sizes, n_groups):
    """Known groups of rows that have bought the first `sizes` groups of an order."""
    place = np.empty(n_groups, dtype=np.int64)
    place[order] = np.arange(n_groups)
    return place[None, :] < np.asarray(sizes)[:, None]


def draw_sizes(rng, n_rows, most):
    """Numbers of groups bought, small ones more often: the logarithm is uniform."""
    return np.minimum(np.floor(np.exp(rng.uniform(0, np.log(most + 1), n_rows))), most).astype(int)


def random_masks(rng, n_rows, order, n_free, most):
    """Subsets of groups, those early in the order more often; free groups always."""
    n_groups = len(order)
    rank = np.log1p(np.arange(n_groups)) + rng.gumbel(size=(n_rows, n_groups)) * rng.choice(
        [0.3, 1.0], (n_rows, 1)
    )
    rank[:, :n_free] = -np.inf
    place = rank.argsort(axis=1).argsort(axis=1)
    sizes = n_free + draw_sizes(rng, n_rows, most)
    masks = np.empty((n_rows, n_groups), dtype=bool)
    masks[:, order] = place < sizes[:, None]
    return masks


class Boosting(NamedTuple):
    """LightGBM as the default model, on codes.

    Attributes
    ----------
    n_classes : int
    categorical : ndarray of bool
    n_threads, seed : int
    """

    n_classes: int
    categorical: Any
    n_threads: int
    seed: int

    def params(self, n_rows, **more):
        """LightGBM's parameters."""
        binary = self.n_classes == 2
        found = {
            "objective": "binary" if binary else "multiclass",
            "min_data_in_leaf": int(np.clip(n_rows // 50, 3, 20)),
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
            "num_threads": safe_threads(self.n_threads),
            "verbosity": -1,
            "seed": self.seed,
        }
        return found | ({} if binary else {"num_class": self.n_classes}) | more

    def data(self, X, y, columns, params, reference=None):
        """LightGBM's rows."""
        import lightgbm

        return lightgbm.Dataset(
            np.ascontiguousarray(X[:, columns]),
            label=y,
            params=params,
            reference=reference,
            categorical_feature=np.flatnonzero(self.categorical[columns]).tolist(),
        )

    def fit(self, X, y, columns, trees, *, out=None, often=True, **more):
        """Trees of some columns; with rows `out`, as many as are best on them.

        Parameters
        ----------
        X, y : rows
        columns : ndarray of int
        trees : int
        out : tuple (X, y), default=None
        often : bool, default=True
            Whether so many rows will be answered that it pays to read the trees.
        **more : LightGBM's parameters

        Returns
        -------
        BoostedTrees or Booster
        """
        import lightgbm

        params = self.params(len(X), **more)
        data = self.data(X, y, columns, params)
        if out is None:
            booster = grown(params, data, trees)
        else:
            params["metric"] = "binary_logloss" if self.n_classes == 2 else "multi_logloss"
            judge = self.data(*out, columns, params, reference=data)
            stop = lightgbm.early_stopping(30, verbose=False)
            booster = lightgbm.train(
                params, data, num_boost_round=trees, valid_sets=[judge], callbacks=[stop]
            )
        if not often:
            plain = lightgbm.Booster(model_str=booster.model_to_string())
            return Booster(plain, np.asarray(columns))
        forest = read_lightgbm(booster, -1 if out is None else max(booster.best_iteration, 1))
        return BoostedTrees(forest, np.asarray(columns))


class Booster(NamedTuple):
    """A LightGBM booster of some columns as probabilities."""

    booster: Any
    columns: Any

    def proba(self, X):
        """Class probabilities of rows of all columns."""
        rows = np.ascontiguousarray(X[:, self.columns])
        found = self.booster.predict(rows, num_threads=1)
        return np.column_stack([1 - found, found]) if found.ndim == 1 else found


class BoostedTrees(NamedTuple):
    """The trees of a LightGBM booster of some columns as probabilities.

    Its own `predict` takes thirty times as long on thousands of rows that miss values.
    """

    forest: Any
    columns: Any

    def proba(self, X):
        """Class probabilities of rows of all columns."""
        scores = leaf_sums(self.forest, X[:, self.columns])
        if scores.shape[1] == 1:
            found = expit(scores)
            return np.hstack([1 - found, found])
        return softmax(scores, axis=1)


class Wrapped(NamedTuple):
    """A user's model as probabilities of all classes, in the order of their indices."""

    model: Any
    n_classes: int
    as_input: Any

    @classmethod
    def fit(cls, estimator, X, y, n_classes, as_input):
        """A clone, fitted."""
        with note_failure("estimator", len(X), "fit"):
            model = clone(estimator).fit(as_input(X), y)
        return cls(model, n_classes, as_input)

    def proba(self, X):
        """Class probabilities."""
        with note_failure("estimator", len(X), "predict_proba"):
            found = check_probabilities(self.model.predict_proba(self.as_input(X)), "estimator")
        whole = np.zeros((len(X), self.n_classes))
        whole[:, np.asarray(self.model.classes_, dtype=np.int64)] = found
        return whole


class Averaged(NamedTuple):
    """Models whose probabilities are averaged."""

    models: Any

    def proba(self, X):
        """Class probabilities."""
        return sum(model.proba(X) for model in self.models) / len(self.models)
