"""Training and scoring the model of a feature set, each set once."""

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.metrics import check_scoring
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_memory

from skroute.base import note_failure
from skroute.feature_sets._lattice import EMPTY_SET, set_name
from skroute.utils._compat import _safe_indexing, check_method_params


def score_set(estimator, X, y, fit_params, name, splits, scorer, score_params):
    """Return the out-of-fold quality of one set: the mean score of the folds.

    Parameters
    ----------
    estimator : estimator
        Model that is cloned for each fold.
    X : table of n_rows rows
        Features of the set.
    y : ndarray of shape (n_rows,)
        Labels.
    fit_params, score_params : dict
        Metadata of the model and of the scorer, for all rows.
    name : str
        Name of the set, for a note on a failure.
    splits : list of (ndarray of int, ndarray of int)
        Training and test rows of each fold.
    scorer : callable
        ``scorer(model, X, y, **params)`` returns a number.

    Returns
    -------
    float
    """
    scores = []
    for train, test in splits:
        model = _fit_model(estimator, X, y, fit_params, name, train)
        params = check_method_params(X, params=score_params, indices=test)
        with note_failure(name, len(test), "scoring"):
            score = scorer(model, _safe_indexing(X, test), y[test], **params)
        scores.append(score)
    return float(np.mean(scores))


def _fit_model(estimator, X, y, fit_params, name, rows):
    """Return a clone of a set's model that is fitted on some rows.

    Parameters
    ----------
    estimator : estimator
        Model that is cloned.
    X : table of n_rows rows
        Features of the set.
    y : ndarray of shape (n_rows,)
        Labels.
    fit_params : dict
        Metadata of the model's `fit`, for all rows.
    name : str
        Name of the set, for a note on a failure.
    rows : ndarray of int
        Positions of the rows.

    Returns
    -------
    estimator
    """
    params = check_method_params(X, params=fit_params, indices=rows)
    with note_failure(name, len(rows), "fit"):
        return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **params)


class SetTrainer:
    """Trainer of one model for each feature set, with the scores of the models.

    Parameters
    ----------
    selector : BaseFeatureSelector
        With its parameters and its fitted extractors.

    table_of : callable
        ``table_of(mask)`` returns the features of a set.

    y : ndarray of shape (n_rows,)
        Labels.

    splits : list of (ndarray of int, ndarray of int)
        Training and test rows of each fold.

    fit_params, score_params : dict
        Metadata of the model and of the scorer.

    task : FitTask
        Reports the training to callbacks.

    Attributes
    ----------
    quality : dict from int to float
        Score of each set, by its mask, in the order of training.
    """

    def __init__(self, selector, table_of, y, splits, fit_params, score_params, task):
        self.estimator = selector.estimator
        self.n_jobs = selector.n_jobs
        self.names = selector.extractors_.names
        self.table_of = table_of  # from the mask of a set to its features
        self.y = y
        self.fit_params = fit_params
        self.task = task  # reports the training to callbacks
        # The name has no effect on the score, and is not part of the cache's key.
        self.score_set = check_memory(selector.memory).cache(score_set, ignore=["name"])
        scorer = check_scoring(selector.estimator, scoring=selector.scoring)
        # The last arguments of `score_set`, the same for all sets.
        self._score_arguments = (splits, scorer, score_params)
        empty_score = self._scores([EMPTY_SET])[0]
        # From the mask of a set to its score. Sets are added when they are trained.
        self.quality = {EMPTY_SET: empty_score}

    def evaluate(self, masks):
        """Return the qualities of sets. Sets without a score are trained.

        Parameters
        ----------
        masks : list of int

        Returns
        -------
        list of float
        """
        new_masks = [mask for mask in masks if mask not in self.quality]
        if new_masks:
            with self.task.step(f"train-{len(new_masks)}-sets"):
                new_scores = self._scores(new_masks)
                self.quality.update(zip(new_masks, new_scores))
        return [self.quality[mask] for mask in masks]

    def fit(self, masks):
        """Return a list of the models of sets, trained on all rows.

        `masks` is a sequence of int, one for each set.
        """
        all_rows = np.arange(len(self.y))
        with self.task.step(f"train-{len(masks)}-sets"):
            return self._call_for_sets(_fit_model, masks, all_rows)

    def _scores(self, masks):
        """Return the scores of sets, or raise an error for an invalid score.

        Parameters
        ----------
        masks : list of int

        Returns
        -------
        list of float
            Finite and not negative.
        """
        scores = self._call_for_sets(self.score_set, masks, *self._score_arguments)
        for mask, score in zip(masks, scores):
            if not np.isfinite(score) or score < 0:
                raise ValueError(
                    "scoring must give finite scores that are not negative, higher "
                    f"being better, because alpha is a factor; got {score!r} for the "
                    f"set {set_name(self.names, mask)!r}."
                )
        return scores

    def _call_for_sets(self, function, masks, *arguments):
        """Call a function with the model and the rows of each set, in parallel.

        Parameters
        ----------
        function : callable
            :func:`score_set` or :func:`_fit_model`. Its first arguments are the model,
            the features of the set, the labels, the metadata of the model, and the name
            of the set.

        masks : sequence of int
            The sets.

        *arguments : object
            The further arguments of the function, the same for all sets.

        Returns
        -------
        list
            The result for each set.
        """
        jobs = (self._job(function, mask, arguments) for mask in masks)
        return Parallel(n_jobs=self.n_jobs)(jobs)

    def _job(self, function, mask, arguments):
        """Return the delayed call of a function with model and features of one set.

        The parameters are those of `_call_for_sets`, with one `mask`.
        """
        if mask != EMPTY_SET:
            model = self.estimator
            table = self.table_of(mask)
            params = self.fit_params
        else:
            # Without features the answer is the class prior. The model of the prior
            # takes weights, but no other metadata that the user gave for the model.
            model = DummyClassifier(strategy="prior")
            table = np.zeros((len(self.y), 1))  # not read
            params = {}
            if "sample_weight" in self.fit_params:
                params["sample_weight"] = self.fit_params["sample_weight"]
        name = set_name(self.names, mask)
        return delayed(function)(model, table, self.y, params, name, *arguments)
