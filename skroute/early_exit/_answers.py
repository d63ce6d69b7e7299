"""Answers and probabilities from partial sums, and the comparison with the library."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skroute.early_exit._algorithms import checked, leader_and_margin, never
from skroute.early_exit._engine import Engine
from skroute.forests._library import compare, own_labels, own_proba, varied_rows
from skroute.forests._wrapped import prepared
from skroute.utils._cache import NO_CACHE
from skroute.utils._compat import _safe_indexing, num_samples

# A score on the wrong side of its answer is moved to this distance from the decision.
# It is not 0, so that the score has a side. Other scores are much farther away.
TINY = 1e-12
# Above this score, logistic probabilities count as equal, and the library is asked for
# its answer. In double precision they are rounded to 1 above about 36. The limit is
# lower because libraries round differently.
_SATURATED = 30.0
# Relative and absolute difference from the library's own probabilities that counts as
# rounding. The library may compute probabilities in single precision.
_RTOL = 1e-4
_ATOL = 1e-5


class ReadEnsemble(NamedTuple):
    """A fitted ensemble, and the engine that evaluates its members.

    Attributes
    ----------
    estimator : object
        The ensemble itself, with the steps of a pipeline before it.

    engine : Engine
        Reads rows behind these steps.

    classes : ndarray of shape (n_classes,)
        The classes, of which answers are positions.

    transformers : tuple
        The steps of the pipeline. Empty if there is none.
    """

    estimator: Any
    engine: Engine
    classes: np.ndarray
    transformers: tuple = ()

    def own_answers(self, X, rows, cache=NO_CACHE):
        """Return the ensemble's own predictions, as positions among the classes.

        Parameters
        ----------
        X : indexable
            The rows of a call, before the steps of the pipeline.

        rows : ndarray of int
            Positions of the rows to answer.

        cache : CallCache, default=NO_CACHE
            Keeps answers to the rows `X`. The default keeps nothing.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """

        def predict_rows(new_rows):
            # `new_rows` are positions of rows for which the cache has no answers.
            rows_of_call = _safe_indexing(X, new_rows)
            if not self.transformers:
                # A library warns of some types of rows, which a pipeline has converted.
                rows_of_call = self.engine.rows_for_library(rows_of_call)
            return own_labels(self.estimator, rows_of_call, self.classes)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = cache.get_or_compute_rows(
                "own answers", rows, num_samples(X), predict_rows
            )
        is_class = labels[:, None] == self.classes[None, :]  # (n_rows, n_classes)
        return np.argmax(is_class, axis=1)


# The result of `ties_of` if no row is a tie.
_NO_ROWS = np.empty(0, dtype=np.intp)


def ties_of(engine, walk):
    """Return the rows whose full score is a tie within rounding.

    The ensemble itself is asked for the answers to these rows.

    Parameters
    ----------
    engine : Engine
    walk : Walk
        Made by the engine.

    Returns
    -------
    ndarray of int
        Positions of the rows.
    """
    if engine.rounding == 0:
        # Sums are exact, or the ensemble cannot be asked: no row counts as a tie.
        return _NO_ROWS
    n_evaluated = walk.n_evaluated
    # Largest number of members evaluated for a row. For one row, `argmax` takes a third
    # of the time of `max`.
    most_evaluated = n_evaluated[n_evaluated.argmax()]
    if most_evaluated != engine.n_members:
        # Each row left early, so that no score is a full one.
        return _NO_ROWS
    fully_evaluated = np.flatnonzero(n_evaluated == engine.n_members)
    return fully_evaluated[_is_tie(engine, walk.scores[fully_evaluated])]


def _is_tie(engine, scores):
    """Return True for full scores that the library may decide differently.

    The library may add the members in another order, and round otherwise.

    Parameters
    ----------
    engine : Engine
    scores : ndarray of shape (n_samples, n_outputs)
        Scores of rows for which each member was evaluated.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=bool
    """
    if engine.n_outputs == 1:
        return np.abs(scores[:, 0] - engine.beta) <= engine.rounding
    _, margins = leader_and_margin(scores)
    is_tie = margins <= engine.rounding
    link = engine.link
    if link is not None and link.kind == "ova":
        # The library compares probabilities. If the second largest score is saturated,
        # so is the largest: both probabilities are rounded to 1.
        second_scores = np.sort(scores, axis=1)[:, -2]
        is_tie |= link.slope * second_scores > _SATURATED
    return is_tie


def sided(engine, scores, answers):
    """Return scores, of which each is on the side of its row's answer.

    A partial score, or the score of a tie, may be on the wrong side of the decision:
    the answer of its row is on the other side. Such a score is moved just to the side
    of the answer.

    Parameters
    ----------
    engine : Engine
    scores : ndarray of shape (n_samples, n_outputs)
        Of a walk.

    answers : ndarray of shape (n_samples,), dtype=int64
        Positions among the classes.

    Returns
    -------
    ndarray of shape (n_samples, n_outputs)
        For one output, distances from the decision at `beta` of the engine: positive
        for the second class. For several outputs, scores, of which the score of the
        answer is the largest.
    """
    if engine.n_outputs == 1:
        distances = scores - engine.beta
        is_second_class = answers[:, None] > 0
        # A score on the wrong side is moved to this distance on the answer's side.
        nearest = np.where(is_second_class, TINY, -TINY)
        is_on_its_side = (distances > 0) == is_second_class
        return np.where(is_on_its_side, distances, nearest)
    rows_to_move = np.flatnonzero(np.argmax(scores, axis=1) != answers)
    if len(rows_to_move):
        scores = scores.copy()
        largest = scores[rows_to_move].max(axis=1)
        # The score of the answer becomes the next number above the largest score.
        scores[rows_to_move, answers[rows_to_move]] = np.nextafter(largest, np.inf)
    return scores


def probabilities(engine, scores, n_evaluated, n_classes):
    """Return the probabilities of the classes, from the scores at which rows stopped.

    Parameters
    ----------
    engine : Engine
        Its `link` is not None.

    scores : ndarray of shape (n_samples, n_outputs)
        From :func:`sided`.

    n_evaluated : ndarray of shape (n_samples,), dtype=int64
        Number of members evaluated for each row, at least 1.

    n_classes : int
        1 for an ensemble of one class. It has one output, like an ensemble of two.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    kind, slope, shift = engine.link
    if kind == "mean":
        # Entry `k` is the weight of the first `k` members. (n_members + 1,)
        weight_so_far = np.append(0.0, np.cumsum(engine.weights))
        scores = scores / weight_so_far[n_evaluated, None]
    if scores.shape[1] > 1:
        if kind == "softmax":
            return softmax(slope * scores, axis=1)
        if kind == "ova":
            return expit(slope * scores)
        # Means of probabilities are probabilities.
        return scores
    if kind == "mean":
        # Members score distances from a probability of 0.5.
        second_class = 0.5 + shift + scores
    else:
        second_class = expit(slope * (scores + shift))
    both_classes = np.concatenate([1.0 - second_class, second_class], axis=1)
    # If there is only one class, its probability is that of the second column.
    return both_classes[:, -n_classes:]


def check_same_answers(ensemble, X):
    """Raise an error if an engine answers varied rows otherwise than its library.

    Parameters
    ----------
    ensemble : ReadEnsemble
    X : indexable
        Rows that are varied.

    Raises
    ------
    ValueError
        If they differ anywhere.
    """
    estimator, engine, classes, transformers = ensemble
    # With these thresholds, each member is evaluated on each row.
    thresholds = checked(never(engine.n_members), engine.n_members)

    def library_answers(rows):
        # Without a link, the engine has no probabilities. None is not compared.
        proba = None if engine.link is None else own_proba(estimator, rows)
        return {"labels": own_labels(estimator, rows, classes), "probabilities": proba}

    def engine_answers(rows):
        walk = engine.walk(prepared(transformers, rows), thresholds)
        ties = ties_of(engine, walk)
        if len(ties):
            # Rounding decides these rows. As in a call, the ensemble answers them.
            walk.answers[ties] = ensemble.own_answers(rows, ties)
        # A score on the wrong side of its answer is moved just across the decision.
        scores = sided(engine, walk.scores, walk.answers)
        # If there is only one class, the answer is 1: "clip" takes this class.
        answers = {"labels": classes.take(walk.answers, mode="clip")}
        if engine.link is not None:
            answers["probabilities"] = probabilities(
                engine, scores, walk.n_evaluated, n_classes=len(classes)
            )
        # A net may score a varied row with NaN. Such a row is not compared.
        answers["compared"] = np.isfinite(scores).all(axis=1)
        return answers

    probes = varied_rows(X, unseen=engine.accepts_unseen_categories)
    compare(
        type(estimator).__name__,
        probes,
        library_answers,
        engine_answers,
        rtol=_RTOL,
        atol=_ATOL,
    )
