"""Training and scoring the model of a feature set, each set once."""

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.metrics import check_scoring
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_memory

from skroute.base import note_failure
from skroute.feature_sets._lattice import set_name
from skroute.utils._compat import _safe_indexing, check_method_params


def score_set(estimator, X, y, fit_params, name, splits, scorer, score_params):
    """Out-of-sample quality of one set: mean of the scorer over the folds."""
    scores = []
    for train, test in splits:
        model = _fitted(estimator, X, y, fit_params, name, train)
        params = check_method_params(X, params=score_params, indices=test)
        with note_failure(name, len(test), "scoring"):
            scores.append(scorer(model, _safe_indexing(X, test), y[test], **params))
    return float(np.mean(scores))


def _fitted(estimator, X, y, fit_params, name, rows):
    params = check_method_params(X, params=fit_params, indices=rows)
    with note_failure(name, len(rows), "fit"):
        return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **params)


class SetTrainer:
    """Trains and scores sets for a selector, and remembers every score in `quality`.

    ``table_of(mask)`` is the table of the features of a set; `task` is told of what is
    trained.
    """

    def __init__(self, selector, table_of, y, splits, fit_params, score_params, task):
        self.estimator, self.n_jobs = selector.estimator, selector.n_jobs
        self.names, self.table_of = selector.extractors_.names, table_of
        self.y, self.fit_params, self.task = y, fit_params, task
        self.score_set = check_memory(selector.memory).cache(score_set, ignore=["name"])
        scorer = check_scoring(selector.estimator, scoring=selector.scoring)
        self.judged_by = splits, scorer, score_params
        self.quality = {0: self._scores([0])[0]}

    def evaluate(self, masks):
        """Qualities of sets, training those that were not trained before."""
        if new := [mask for mask in masks if mask not in self.quality]:
            with self.task.step(f"train-{len(new)}-sets"):
                self.quality.update(zip(new, self._scores(new)))
        return [self.quality[mask] for mask in masks]

    def fit(self, masks):
        """Models of sets, trained on all rows."""
        with self.task.step(f"train-{len(masks)}-sets"):
            return self._each(_fitted, masks, np.arange(len(self.y)))

    def _scores(self, masks):
        scores = self._each(self.score_set, masks, *self.judged_by)
        for mask, found in zip(masks, scores):
            if not np.isfinite(found) or found < 0:
                raise ValueError(
                    "scoring must give finite scores that are not negative, higher "
                    f"being better, because alpha is a factor; got {found!r} for the "
                    f"set {set_name(self.names, mask)!r}."
                )
        return scores

    def _each(self, function, masks, *more):
        """A function of the model and the rows of each set, in parallel."""

        def job(mask):
            if mask:
                model, table, params = (
                    self.estimator,
                    self.table_of(mask),
                    self.fit_params,
                )
            else:
                # The class prior takes weights, and none of what the user's model may
                # take besides.
                model, table = (
                    DummyClassifier(strategy="prior"),
                    np.zeros((len(self.y), 1)),
                )
                params = {
                    k: v for k, v in self.fit_params.items() if k == "sample_weight"
                }
            name = set_name(self.names, mask)
            return delayed(function)(model, table, self.y, params, name, *more)

        return Parallel(n_jobs=self.n_jobs)(map(job, masks))
