"""What evaluates an ensemble member by member, and which engine is whose.

An engine has `n_members`; `n_outputs`, one for two classes, else one for each; `offset`, the
score before any member; `beta`, above which the full score of one output is the second class;
`rounding`, how close to a tie the library, which adds up in another order or precision, may
answer otherwise (0 for never); `link`, from scores to probabilities, or None; `weights` of the
members; `in_order`, whether they have one order only; `votes`, whether they are averaged or
counted.

``taken(order)`` is the engine of these members in this order, ``scores(X)`` what each member adds,
of shape (n_members, n_samples, n_outputs), and ``walk(X, thresholds, n_jobs)`` evaluates row by
row until the thresholds stop it: scores, numbers of members, and sides (1 left above, -1 below, 0
went to the end). ``member_calls()`` has for each member a function of rows, to time it;
``plain(X)`` is the rows as the library surely takes them, to ask it again.
"""

from dataclasses import replace
from reprlib import repr as short_repr
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_regressor
from sklearn.ensemble import VotingClassifier

from skroute.early_exit._answers import Link
from skroute.early_exit._forest_engine import ForestEngine
from skroute.early_exit._model_engines import (
    ExitEngine,
    MemberEngine,
    has_exits,
    may_exit,
)
from skroute.forests import find_reader
from skroute.forests._partial_sums import partial_sums
from skroute.forests._wrapped import take_apart


class PreparedEngine(NamedTuple):
    """Transforms rows whole, then evaluates.

    Attributes
    ----------
    inner : engine
    before : tuple of transformers
    """

    inner: Any
    before: tuple

    def __getattr__(self, name):
        # What the engine knows of itself: numbers, offset, link.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def forest(self):
        """None: trees alone do not say how rows are prepared."""
        return None

    def _prepared(self, X):
        for transformer in self.before:
            X = transformer.transform(X)
        return X

    def remembering(self, once):
        """The engine for a walk over the same rows, which are prepared once."""
        inner = self.inner
        if hasattr(inner, "remembering"):
            inner = inner.remembering(once)
        return PreparedEngine(inner, (_Once(self, once),))

    def taken(self, order):
        """The engine that evaluates these members in this order."""
        return self._replace(inner=self.inner.taken(order))

    def scores(self, X):
        """What each member adds."""
        return self.inner.scores(self._prepared(X))

    def walk(self, X, thresholds, n_jobs=None):
        """Evaluate row by row until the thresholds stop it."""
        return self.inner.walk(self._prepared(X), thresholds, n_jobs)

    def member_calls(self):
        """For each member a function of rows, to time it, preparation included."""
        return {
            t: (lambda X, call=call: call(self._prepared(X)))
            for t, call in self.inner.member_calls().items()
        }

    def plain(self, X):
        """Rows as the library surely takes them: the pipeline's own."""
        return X


class _Once(NamedTuple):
    """All steps before the ensemble, for the same rows."""

    engine: PreparedEngine
    once: Any

    def transform(self, X):
        return self.once.whole("prepared", lambda: self.engine._prepared(X))


def check_ensemble(estimator):
    """Before anything is fitted: an ensemble that is known to add up its members' scores.

    Others have members as well (stacking, one against the rest), and combine them otherwise.

    Parameters
    ----------
    estimator : object
        Ensemble, fitted or not.

    Raises
    ------
    TypeError
    """
    ensemble, _, cut = take_apart(estimator)
    members = isinstance(ensemble, VotingClassifier) or may_exit(ensemble)
    # Boosters say themselves, once they are read, whether they classify.
    classifies = hasattr(type(ensemble), "predict_proba") or not hasattr(ensemble, "fit")
    if (classifies and find_reader(ensemble) is not None) or (members and cut is None):
        return
    if members:
        advice = "A moved threshold is read around ensembles of trees only."
    elif hasattr(ensemble, "fit") and is_regressor(ensemble):
        advice = "It is a regressor, whose answers are not labels: give the classifier."
    else:
        advice = ""
    raise TypeError(
        "estimator must be an ensemble of LightGBM, XGBoost, CatBoost or scikit-learn (boosting, "
        "forests, bagging, AdaBoost, voting) or a Pipeline that ends in one, a net with "
        "exits (MultiExitClassifier), or a list of members with scores, got "
        f"{short_repr(estimator)}. {advice}".rstrip()
    )


def ensemble_engine(estimator):
    """Engine and classes of a fitted ensemble.

    Parameters
    ----------
    estimator : object
        Ensemble of a supported library.

    Returns
    -------
    engine : engine
    classes : ndarray or None
        None when the ensemble does not know its labels (a LightGBM booster).
    """
    ensemble, before, cut = take_apart(estimator)
    engine, classes = _engine_of(ensemble, cut)
    return (PreparedEngine(engine, before) if before else engine), classes


_ONE_CLASS = (
    "This {} was fitted to rows of one class, which is its answer to every row: nothing is to be "
    "evaluated."
)


def _engine_of(estimator, cut):
    if has_exits(estimator) and cut is None:
        return ExitEngine(estimator), np.asarray(estimator.classes_)
    reader = find_reader(estimator)
    forest = None if reader is None else reader(estimator)
    if forest is not None:
        classes, name = forest.classes, type(estimator).__name__
        if classes is not None and len(classes) < 2 and forest.answer != "mean":
            raise ValueError(_ONE_CLASS.format(name))
        return ForestEngine(partial_sums(replace(forest, cut=cut), name)), classes
    if cut is not None:
        raise ValueError(
            "A moved threshold is read around ensembles of trees only, which is not what "
            f"{short_repr(estimator)} is."
        )
    check_ensemble(estimator)
    members = list(estimator.estimators_)
    classes = np.asarray(estimator.classes_)
    weights = getattr(estimator, "weights", None)
    weights = np.ones(len(members)) if weights is None else _kept_weights(estimator, weights)
    rounding = 16 * np.finfo(np.float64).eps * (np.abs(weights).sum() + 1.0)
    columns = getattr(estimator, "estimators_features_", None)
    if columns is not None and all(
        np.array_equal(c, np.arange(estimator.n_features_in_)) for c in columns
    ):
        columns = None
    n, boosted = len(classes), hasattr(estimator, "estimator_weights_")
    hard = isinstance(estimator, VotingClassifier) and estimator.voting == "hard"
    soft = not (hard or boosted) and all(hasattr(member, "predict_proba") for member in members)
    # Members answer with positions of the classes, but for those of AdaBoost.
    labels, methods = np.arange(n), ["predict_proba" if soft else "predict"] * len(members)
    miss = 0.0
    if boosted:
        weights = estimator.estimator_weights_[: len(members)] / estimator.estimator_weights_.sum()
        weights, labels, miss = weights * (4.0 if n <= 2 else 1.0), classes, -1.0 / max(1, n - 1)
    engine = MemberEngine(members, labels, weights, columns, methods, rounding, miss)
    engine.votes, engine.link = not boosted, None if hard else Link("mean")
    if boosted:
        engine.link = Link("logistic") if n <= 2 else Link("softmax", 1.0 / (n - 1))
    return engine, classes


def _kept_weights(estimator, weights):
    kept = [w for (_, member), w in zip(estimator.estimators, weights) if member != "drop"]
    return np.asarray(kept, dtype=np.float64)
