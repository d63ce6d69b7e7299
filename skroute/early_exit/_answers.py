"""From partial sums to answers; the library's own answers, asked for ties and compared at fit."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skroute.early_exit._algorithms import checked, leader_and_margin, never
from skroute.forests._library import compare, own_labels, own_proba, varied_rows
from skroute.forests._rows import rows_of
from skroute.forests._wrapped import prepared
from skroute.utils._cache import NO_CACHE
from skroute.utils._compat import _safe_indexing, num_samples

# What moves a score to the side of its answer.
TINY = 1e-12


class Link(NamedTuple):
    """The function from summed scores to probabilities.

    Attributes
    ----------
    kind : {"logistic", "softmax", "ova", "mean"}
        "mean" divides by the weight of the members that were evaluated; "ova" is logistic
        for each class, and its probabilities need not add up to one.

    slope : float
        Factor of the score.

    shift : float
        Of one output: what the decision's place in the score is, or that of a mean from even
        chances.
    """

    kind: str
    slope: float = 1.0
    shift: float = 0.0


def settle(engine, walked, ask):
    """Position of each row's answer among the classes, of what ``engine.walk`` returns.

    Where full scores are ties but for rounding, ``ask(rows)`` tells those of the library.
    """
    score, members, answer = walked
    # Of one row argmax takes a third of the time that a comparison does.
    if engine.rounding and members[members.argmax()] == engine.n_members:
        last = np.flatnonzero(members == engine.n_members)
        ties = last[_is_tie(engine, score[last])]
        if len(ties):
            answer[ties] = ask(ties)
    return answer


def sided(engine, score, at):
    """Scores on the side of the answer; for one output the distance from the decision."""
    if engine.n_outputs == 1:
        score = score - engine.beta
        above = at[:, None] > 0
        return np.where((score > 0) == above, score, np.where(above, TINY, -TINY))
    other = np.flatnonzero(np.argmax(score, axis=1) != at)
    if len(other):
        score = score.copy()
        score[other, at[other]] = np.nextafter(score[other].max(axis=1), np.inf)
    return score


def probabilities(engine, score, members, n_classes):
    """Probabilities of the classes from scores of :func:`sided` and the members evaluated."""
    kind, slope, shift = engine.link
    if kind == "mean":
        score = score / np.append(0.0, np.cumsum(engine.weights))[members, None]
    if score.shape[1] > 1:
        if kind == "softmax":
            return softmax(slope * score, axis=1)
        return expit(slope * score) if kind == "ova" else score
    found = 0.5 + shift + score if kind == "mean" else expit(slope * (score + shift))
    # An ensemble of one class has its column alone.
    return np.concatenate([1.0 - found, found], axis=1)[:, -n_classes:]


def own_answers(estimator, engine, classes, before, X, once, ties):
    """Positions of the library's own labels of some rows, for :func:`settle`."""

    def ask(rows):
        some = _safe_indexing(X, rows)
        # A pipeline, and a library with categories, prepares rows by itself.
        if engine.forest is not None and not (before or engine.forest.columns.keeps_categories):
            some = rows_of(engine.forest, some)
        return own_labels(estimator, some, classes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = once.get_or_compute_rows("own answers", ties, num_samples(X), ask)
    return np.argmax(labels[:, None] == classes[None, :], axis=1)


def _is_tie(engine, score):
    """Rows whose full score the library, adding up in its own way, may answer otherwise."""
    if engine.n_outputs == 1:
        return np.abs(score[:, 0] - engine.beta) <= engine.rounding
    tie = leader_and_margin(score)[1] <= engine.rounding
    if engine.link is not None and engine.link.kind == "ova":
        # Probabilities next to one are rounded to it.
        tie |= engine.link.slope * np.sort(score, axis=1)[:, -2] > 30.0
    return tie


def check_same_answers(estimator, engine, classes, X, before):
    """Compare the members as they are read with the library's own answers to varied rows of `X`.

    Parameters
    ----------
    estimator : object
        Fitted ensemble.

    engine : engine
    classes : ndarray of shape (n_classes,)
    X : indexable
    before : tuple of transformers
        Of a pipeline.

    Raises
    ------
    ValueError
        If they differ anywhere.
    """
    thresholds = checked(never(engine.n_members), engine.n_members)

    def own(rows):
        proba = None if engine.link is None else own_proba(estimator, rows)
        return {"labels": own_labels(estimator, rows, classes), "probabilities": proba}

    def ours(rows):
        walked = engine.walk(prepared(before, rows), thresholds)
        known = estimator, engine, classes, before, rows, NO_CACHE
        at = settle(engine, walked, partial(own_answers, *known))
        score, found = sided(engine, walked[0], at), {"labels": classes.take(at, mode="clip")}
        if engine.link is not None:
            found["probabilities"] = probabilities(engine, score, walked[1], len(classes))
        # Scores that are no numbers say nothing: a net may be given rows that it cannot read.
        return found | {"compared": np.isfinite(score).all(axis=1)}

    forest = engine.forest
    probes = varied_rows(X, unseen=forest is None or not forest.columns.refuses_unseen)
    compare(type(estimator).__name__, probes, own, ours, rtol=1e-4, atol=1e-5)
