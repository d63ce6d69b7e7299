"""Training and scoring the model of a feature set, each set once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
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


@dataclass
class SetTrainer:
    """Trains and scores sets, and remembers every score.

    ``table_of(mask)`` is the table of the features of a set, ``name_of(mask)`` its name, and
    ``step(n_sets)`` a context manager that reports the training of so many sets.
    """

    estimator: Any
    table_of: Callable
    name_of: Callable
    y: Any
    splits: list
    scorer: Callable
    fit_params: dict
    score_params: dict
    n_jobs: int | None
    memory: Any
    step: Callable

    def __post_init__(self):
        self.quality = {0: self._scores([0])[0]}

    def evaluate(self, masks):
        """Qualities of sets, training those that were not trained before."""
        if new := [mask for mask in masks if mask not in self.quality]:
            with self.step(len(new)):
                self.quality.update(zip(new, self._scores(new)))
        return [self.quality[mask] for mask in masks]

    def fit(self, masks):
        """Models of sets, trained on all rows."""
        with self.step(len(masks)):
            return self._each(_fitted, masks, np.arange(len(self.y)))

    def _scores(self, masks):
        score = self.memory.cache(score_set, ignore=["name"])
        scores = self._each(score, masks, self.splits, self.scorer, self.score_params)
        for mask, found in zip(masks, scores):
            if not np.isfinite(found) or found < 0:
                raise ValueError(
                    "scoring must give finite scores that are not negative, higher being "
                    f"better, because alpha is a factor; got {found!r} for the set "
                    f"{self.name_of(mask)!r}."
                )
        return scores

    def _each(self, function, masks, *more):
        """A function of the model and the rows of each set, in parallel."""

        def job(mask):
            if mask:
                model, table, params = self.estimator, self.table_of(mask), self.fit_params
            else:
                # The class prior takes weights, and none of what the user's model may take besides.
                model, table = DummyClassifier(strategy="prior"), np.zeros((len(self.y), 1))
                params = {k: v for k, v in self.fit_params.items() if k == "sample_weight"}
            return delayed(function)(model, table, self.y, params, self.name_of(mask), *more)

        return Parallel(n_jobs=self.n_jobs)(map(job, masks))
