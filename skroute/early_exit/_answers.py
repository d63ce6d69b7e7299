"""From partial sums to answers; the library's own answers, asked for ties and compared at fit."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skroute.early_exit._thresholds import leader_and_margin, never
from skroute.forests._own_predict import is_xgboost_booster, own_predict
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._once import EVERY

# Rows that are compared, in each of the ways in which they are varied.
N_PROBES = 100
EXTREME = (0.0, -0.0, 1e-40, -1e-36, 1e-30, 1e30, -1e30, 3e38, -3e38)
STRANGE = (-1.0, -0.5, 0.5, 31.0, 32.0, 300.0, 1e6, 2.0**31, -(2.0**31))


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

    def probabilities(self, score, weight):
        """Probabilities of the classes.

        Parameters
        ----------
        score : ndarray of shape (n_samples, n_outputs)
            For one output the distance from the decision.

        weight : ndarray of shape (n_samples,)
            Weights of the members evaluated, summed.

        Returns
        -------
        ndarray of shape (n_samples, max(2, n_outputs))
        """
        if score.shape[1] == 1:
            one = score[:, 0]
            mean = self.kind == "mean"
            if mean:
                positive = 0.5 + self.shift + one / weight
            else:
                positive = expit(self.slope * (one + self.shift))
            return np.column_stack([1.0 - positive, positive])
        if self.kind == "softmax":
            return softmax(self.slope * score, axis=1)
        if self.kind == "ova":
            return expit(self.slope * score)
        return score / weight[:, None]


class Settled(NamedTuple):
    """Answers from the members that were evaluated.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
    score : ndarray of shape (n_samples, n_outputs)
        Distance from the decision for one output; its sign, or the largest one, is the label.

    proba : ndarray of shape (n_samples, n_classes) or None
    """

    labels: Any
    score: Any
    proba: Any


def settle(estimator, engine, classes, X, score, members, side, proba=True, once=EVERY):
    """Turn what a walk found into answers; the library decides what is a tie but for rounding.

    Parameters
    ----------
    estimator : object
        The fitted ensemble.

    engine : Engine
    classes : ndarray of shape (n_classes,)
    X : indexable
    score, members, side
        From ``engine.walk``.

    proba : bool, default=True
        Whether probabilities are asked for.

    once : Once, default=EVERY
        What the library said of the rows of a walk.

    Returns
    -------
    Settled
    """

    one = engine.n_outputs == 1
    if one:
        score = _distance(engine, score, side)
    ties = np.flatnonzero((side == 0) & _is_tie(engine, score))
    if len(ties):
        at = _asked(estimator, engine, classes, X, ties, len(side), once)
        if one:
            decided = score[ties, 0]
            score[ties, 0] = np.where(at > 0, np.maximum(decided, TINY), np.minimum(decided, -TINY))
        else:
            score = score.copy()
            score[ties, at] = np.nextafter(score[ties].max(axis=1), np.inf)
    return _named(engine, classes, score, members, proba)


def settled_labels(estimator, engine, classes, X, score, members, side, once=EVERY):
    """Labels of :func:`settle` alone: a row that left has the one of its threshold.

    Parameters
    ----------
    estimator, engine, classes, X, score, members, side, once
        As there.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    if engine.n_outputs > 1:
        return settle(estimator, engine, classes, X, score, members, side, False, once).labels
    above = side > 0
    # The few rows that went to the end.
    last = np.flatnonzero(side == 0)
    if len(last):
        distance = score[last] - engine.beta
        above[last] = distance[:, 0] > 0
        ties = last[_is_tie(engine, distance)]
        if len(ties):
            above[ties] = _asked(estimator, engine, classes, X, ties, len(side), once) > 0
    return classes.take(above.view(np.int8) * (len(classes) - 1))


def _asked(estimator, engine, classes, X, rows, n_rows, once):
    """Position of the library's own label of some rows."""

    def ask(rows):
        return own_answers(estimator, engine.plain(_safe_indexing(X, rows)), classes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = once.rows("own answers", rows, n_rows, ask)
    return np.argmax(labels[:, None] == classes[None, :], axis=1)


def on_side(engine, classes, score, members, side, proba):
    """As :func:`settle`, where there is no library to ask about ties.

    Parameters
    ----------
    engine : Engine
    classes : ndarray of shape (n_classes,)
    score, members, side
        From ``engine.walk``.

    proba : bool
        Whether probabilities are asked for.

    Returns
    -------
    Settled
    """
    if engine.n_outputs == 1:
        score = _distance(engine, score, side)
    return _named(engine, classes, score, members, proba)


def _distance(engine, score, side):
    """Distance from the decision; the answer of a row that left is that of its threshold."""
    score = score - engine.beta
    score[:, 0] = np.where(side > 0, np.maximum(score[:, 0], TINY), score[:, 0])
    score[:, 0] = np.where(side < 0, np.minimum(score[:, 0], -TINY), score[:, 0])
    return score


def _named(engine, classes, score, members, proba):
    one = engine.n_outputs == 1
    at = (score[:, 0] > 0) * (len(classes) - 1) if one else np.argmax(score, axis=1)
    if not proba or engine.link is None:
        return Settled(classes[at], score, None)
    weight = np.concatenate([[0.0], np.cumsum(engine.weights)])[members]
    # An ensemble of one class has its column alone.
    return Settled(classes[at], score, engine.link.probabilities(score, weight)[:, -len(classes) :])


def _is_tie(engine, score):
    """Rows whose full score the library, adding up in its own way, may answer otherwise."""
    if engine.rounding == 0.0:
        return np.zeros(len(score), dtype=bool)
    if engine.n_outputs == 1:
        return np.abs(score[:, 0]) <= engine.rounding
    tie = leader_and_margin(score)[1] <= engine.rounding
    if engine.link is not None and engine.link.kind == "ova":
        # Probabilities next to one are rounded to it.
        tie |= engine.link.slope * np.sort(score, axis=1)[:, -2] > 30.0
    return tie


def own_answers(estimator, X, classes):
    """Labels by the ensemble's own ``predict``.

    Parameters
    ----------
    estimator : object
        Fitted ensemble.

    X : indexable
    classes : ndarray of shape (n_classes,)
        For a booster, which does not know them.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    labelled = hasattr(estimator, "classes_")
    if not labelled and is_xgboost_booster(estimator):
        # With several classes it may answer with positions; sums it always tells.
        answers = np.asarray(own_predict(estimator, X, raw=True))
        answers = answers if answers.ndim == 2 else own_predict(estimator, X)
    else:
        answers = np.asarray(own_predict(estimator, X))
    if labelled:
        return answers
    at = answers > 0.5 if answers.ndim == 1 else np.argmax(answers, axis=1)
    return classes[at.astype(np.intp)]


def _own_proba(estimator, X):
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(X))
    if hasattr(estimator, "classes_"):
        return None
    proba = np.asarray(own_predict(estimator, X))
    if proba.ndim == 1 and is_xgboost_booster(estimator):
        raw = np.asarray(own_predict(estimator, X, raw=True))
        if raw.ndim == 2:
            # The objective answers with positions.
            return None
    return np.column_stack([1 - proba, proba]) if proba.ndim == 1 else proba


def probe_rows(X):
    """Rows on which a reading of an ensemble shows that it is wrong.

    Parameters
    ----------
    X : indexable of shape (n_samples, n_features)

    Returns
    -------
    dict from str to indexable
        Some rows as they are; arrays of floats and pandas frames also with missing values,
        with categories and codes that were not there, with extreme and infinite values.
    """
    n = num_samples(X)
    rows = _safe_indexing(X, np.unique(np.linspace(0, n - 1, min(n, N_PROBES)).astype(int)))
    probes = {"rows as they are": rows}
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2:
        columns = {j: rows[:, j] for j in range(rows.shape[1])}
    elif type(rows).__module__.startswith("pandas") and hasattr(rows, "dtypes"):
        columns = {
            j: rows.iloc[:, j]
            for j, kind in enumerate(rows.dtypes)
            if getattr(kind, "kind", "O") in "fO"
        }
    else:
        return probes
    for name, values in {
        "missing values": (np.nan,),
        "extreme values": EXTREME,
        "codes that were not there": STRANGE,
        "infinite values": (np.inf, -np.inf),
        "values beyond single precision": (1e300, -1e300),
    }.items():
        probes[name] = _varied(rows, columns, values)
    if any(column.dtype.kind == "O" for column in columns.values()):
        probes["categories that were not there"] = _varied(rows, columns, ("never seen",))
    return probes


@np.errstate(over="ignore")
def _varied(rows, columns, values):
    """Every third cell of the columns that can hold them replaced by values."""
    rows = rows.copy()
    for j, column in columns.items():
        at = np.arange(j % 3, len(column), 3)
        new = [values[k % len(values)] for k in range(len(at))]
        if hasattr(rows, "iloc"):
            text = column.dtype.kind == "O"
            # Numbers in columns of numbers, texts in others, missing values in both.
            if text == isinstance(values[0], str) or values[0] != values[0]:
                changed = column.astype(object) if text else column.copy()
                changed.iloc[at] = new
                missing = text and values[0] != values[0]
                changed = changed.astype(column.dtype) if missing or not text else changed
                category = text and not missing and hasattr(column, "cat")
                rows.isetitem(j, changed.astype("category") if category else changed)
        else:
            rows[at, j] = new
    return rows


def check_same_answers(estimator, engine, classes, X):
    """Compare the members as they are read with the library's own answers.

    Parameters
    ----------
    estimator : object
        Fitted ensemble.

    engine : Engine
    classes : ndarray of shape (n_classes,)
    X : indexable
        Rows to vary.

    Raises
    ------
    ValueError
        If they differ anywhere.
    """
    thresholds = never(engine.n_members)
    for kind, rows in probe_rows(X).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = own_answers(estimator, rows, classes)
                expected_proba = None if engine.link is None else _own_proba(estimator, rows)
            except Exception:
                # It refuses such rows, to which there is no wrong answer.
                continue
            walked = engine.walk(rows, thresholds)
            found = settle(estimator, engine, classes, rows, *walked)
        differ = found.labels != expected
        if found.proba is not None and expected_proba is not None:
            close = np.isclose(found.proba, expected_proba, rtol=1e-4, atol=1e-5)
            differ |= ~close.all(axis=1)
        # Scores that are no numbers say nothing: a net may be given rows that it cannot read.
        differ &= np.isfinite(found.score).all(axis=1)
        if differ.any():
            raise ValueError(
                f"This {type(estimator).__name__} answers {differ.sum()} of {len(differ)} rows "
                f"({kind}) otherwise than its members do as they are read here, so that early "
                "exit would answer wrongly. One of its options is not supported; please report "
                "it with the parameters of the ensemble."
            )
