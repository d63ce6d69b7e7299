"""Ensembles of trees that answer with one number: their sums, and what is made of them."""

import warnings
from dataclasses import replace
from reprlib import repr as short_repr

import numpy as np
from sklearn.base import clone

from skroute.base import note_failure
from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._forest_engine import ForestEngine
from skroute.early_exit._own_answers import probe_rows
from skroute.early_exit._prepared_engine import PreparedEngine
from skroute.forests._exact import answer, exact_reader
from skroute.forests._own_predict import own_predict
from skroute.forests._wrapped import take_apart
from skroute.utils._compat import num_samples
from skroute.utils._frozen import is_frozen, unfrozen


class SumEnsemble:
    """The parameter `estimator` of an early exit from sums, or what was fitted of it.

    Parameters
    ----------
    estimator : object
    """

    def __init__(self, estimator):
        self.estimator = estimator

    @property
    def frozen(self):
        """Whether nothing is to be fitted."""
        return is_frozen(self.estimator)

    def check(self):
        """Refuse, before any fit, what is no sum of trees that is one number.

        Raises
        ------
        TypeError
        """
        model = take_apart(self.estimator).ensemble
        if exact_reader(model) is None or hasattr(model, "predict_proba"):
            classifies = hasattr(model, "predict_proba")
            raise TypeError(
                "estimator must be a regressor or ranker of LightGBM, XGBoost or CatBoost, a "
                "forest, GradientBoosting or HistGradientBoosting regressor of scikit-learn, or a "
                f"Pipeline that ends in one, got {short_repr(self.estimator)}."
                + (" Its answers are labels: use QWYCEnsemble." if classifies else "")
            )

    def fitted(self, X, y, params):
        """The fitted ensemble: itself where it is frozen."""
        if self.frozen:
            return unfrozen(self.estimator)
        model = clone(self.estimator)
        with note_failure(type(model).__name__, num_samples(X), "fit"):
            return model.fit(X, y, **params)

    def engine(self, X):
        """How a fitted ensemble is evaluated, compared with its own ``predict``.

        Parameters
        ----------
        X : indexable
            Rows to compare on.

        Returns
        -------
        engine : Engine
        reading : Reading
            How sums become answers.

        Raises
        ------
        ValueError
            If it gives several numbers, or is read otherwise than it answers.
        """
        model = unfrozen(self.estimator)
        parts = take_apart(model)
        reading = exact_reader(parts.ensemble)(parts.ensemble)
        if reading.forest.n_outputs > 1:
            raise ValueError(
                f"{short_repr(model)} answers with {reading.forest.n_outputs} numbers; one is "
                "supported."
            )
        engine = ForestEngine(_without_constants(reading.forest))
        engine = PreparedEngine(engine, parts.before) if parts.before else engine
        _check_same_numbers(model, engine, reading, X)
        return engine, reading


def numbers(reading, score):
    """Predictions from sums: ndarray of shape (n_samples,)."""
    return answer(reading, score[:, None])


def forest_of(engine):
    """The trees of an engine, and the steps before them."""
    inner = getattr(engine, "inner", engine)
    return inner.forest, getattr(engine, "before", ())


def _without_constants(forest):
    """The forest with members that are the same for all rows in its offset.

    CatBoost adds its constant last, as if it were a tree.
    """
    trees = forest.trees
    constant = [
        t
        for t, (first, last) in enumerate(zip(trees.member_start, trees.member_start[1:]))
        if not trees.depths[first:last].any()
    ]
    kept = np.setdiff1d(np.arange(forest.n_members), constant)
    if len(constant) == 0 or len(kept) == 0:
        return forest
    first = np.concatenate(
        [np.arange(trees.member_start[t], trees.member_start[t + 1]) for t in constant]
    )
    offset = forest.offset + trees.values[trees.roots[first]].sum(axis=0)
    return replace(forest.taken(kept), offset=offset)


def _check_same_numbers(model, engine, reading, X):
    """Compare predictions with the library's own, on rows that are varied."""
    never = ExitThresholds.never(engine.n_members)
    for kind, rows in probe_rows(X).items():
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = np.ravel(own_predict(model, rows)).astype(np.float64)
                score = engine.walk(rows, never)[0]
            except Exception:
                # One of them refuses such rows, which is not a wrong answer.
                continue
            found = numbers(reading, score[:, 0])
        size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        differ = ~np.isclose(found, expected, rtol=1e-4, atol=1e-5 * size, equal_nan=True)
        if differ.any():
            raise ValueError(
                f"This {type(model).__name__} predicts {differ.sum()} of {len(differ)} rows "
                f"({kind}) otherwise than its trees add up to as they are read here. One of its "
                "options is not supported; please report it with the parameters of the ensemble."
            )
