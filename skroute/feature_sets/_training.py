"""Training and scoring the model of a feature set, each set once."""

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.feature_sets._lattice import members, set_name
from skroute.utils._compat import check_method_params, num_samples


def score_set(estimator, X, y, splits, scorer, fit_params, score_params, name):
    """Out-of-sample quality of one set: mean of the scorer over the folds.

    Parameters
    ----------
    estimator : estimator
        Cloned for each fold.

    X : array-like, sparse matrix or dataframe of shape (n_samples, n_set_features)
        Features of the set.

    y : ndarray of shape (n_samples,)
        Labels.

    splits : list of (ndarray, ndarray)
        Train and test rows of each fold, the same for all sets.

    scorer : callable
        Called as ``scorer(estimator, X, y, **score_params)``.

    fit_params, score_params : dict
        Metadata; arrays with a value per row are cut to the fold.

    name : str
        The set, for the note on a failure.

    Returns
    -------
    float
    """
    scores = []
    for train, test in splits:
        model = clone(estimator)
        with note_failure(name, len(train), "fit"):
            model.fit(
                _safe_indexing(X, train),
                y[train],
                **check_method_params(X, params=fit_params, indices=train),
            )
        with note_failure(name, len(test), "scoring"):
            score = scorer(
                model,
                _safe_indexing(X, test),
                y[test],
                **check_method_params(X, params=score_params, indices=test),
            )
        scores.append(score)
    return float(np.mean(scores))


def fit_set(estimator, X, y, fit_params, name):
    """Model of one set on all rows."""
    with note_failure(name, num_samples(X), "fit"):
        return clone(estimator).fit(X, y, **fit_params)


class SetTrainer:
    """Trains and scores sets, remembers every score, and reports progress.

    Parameters
    ----------
    estimator : estimator
        Model of any set but the empty one, which answers with the class frequencies.

    extractors : ColumnExtractors or ItemExtractors
        Sources of the features.

    prepared : object
        Features of the training rows, from ``extractors.prepare``.

    y : ndarray of shape (n_samples,)
        Labels.

    splits : list of (ndarray, ndarray)
        Folds.

    scorer : callable
        Scorer.

    fit_params, score_params : dict
        Metadata for the model and for the scorer.

    n_jobs : int or None
        Sets trained at the same time.

    memory : joblib.Memory
        Cache of scores.

    progress : callable
        Context manager factory around each layer.
    """

    def __init__(
        self,
        estimator,
        extractors,
        prepared,
        y,
        splits,
        scorer,
        fit_params,
        score_params,
        n_jobs,
        memory,
        progress,
    ):
        self.estimator = estimator
        self.extractors = extractors
        self.prepared = prepared
        self.y = y
        self.splits = splits
        self.scorer = scorer
        self.fit_params = fit_params
        self.score_params = score_params
        self.parallel = Parallel(n_jobs=n_jobs)
        self.score_set = memory.cache(score_set, ignore=["name"])
        self.progress = progress
        self.quality = {}
        self.quality[0] = self._score([0])[0]

    def _name(self, mask):
        return set_name(self.extractors.names, mask)

    def _model_and_table(self, mask):
        if mask == 0:
            return DummyClassifier(strategy="prior"), np.zeros((len(self.y), 1))
        chosen = members(mask)
        model = self.extractors.model_of(self.estimator, chosen)
        return model, self.extractors.take(self.prepared, chosen)

    def _fit_params(self, mask):
        """The prior takes weights, and none of what the user's model may take besides."""
        if mask:
            return self.fit_params
        return {key: self.fit_params[key] for key in ("sample_weight",) if key in self.fit_params}

    def _score(self, masks):
        scores = self.parallel(
            delayed(self.score_set)(
                *self._model_and_table(mask),
                self.y,
                self.splits,
                self.scorer,
                self._fit_params(mask),
                self.score_params,
                self._name(mask),
            )
            for mask in masks
        )
        for mask, score in zip(masks, scores):
            if not np.isfinite(score) or score < 0:
                raise ValueError(
                    "scoring must give finite scores that are not negative, higher being "
                    f"better, because alpha is a factor; got {score!r} for the set "
                    f"{self._name(mask)!r}."
                )
        return scores

    def evaluate(self, masks):
        """Qualities of sets, training those that were not trained before.

        Parameters
        ----------
        masks : list of int
            Sets.

        Returns
        -------
        list of float
        """
        if new := [mask for mask in masks if mask not in self.quality]:
            with self.progress(len(new)):
                self.quality.update(zip(new, self._score(new)))
        return [self.quality[mask] for mask in masks]

    def fit(self, masks):
        """Models of sets, trained on all rows.

        Parameters
        ----------
        masks : ndarray of int
            Sets.

        Returns
        -------
        list of estimators
        """
        masks = [int(mask) for mask in masks]
        with self.progress(len(masks)):
            return self.parallel(
                delayed(fit_set)(
                    *self._model_and_table(mask), self.y, self._fit_params(mask), self._name(mask)
                )
                for mask in masks
            )
