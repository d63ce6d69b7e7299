"""From partial sums to answers; the library's own answers, asked for ties and compared at fit."""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skroute.early_exit._thresholds import leader_and_margin, never
from skroute.forests._answers import is_xgboost_booster, own_predict
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


def settle(engine, walked, ask=None):
    """Which output each row's answer is: that of its threshold, or of its full score.

    Parameters
    ----------
    engine : engine
    walked : (score, members, side)
        From ``engine.walk``.

    ask : callable, default=None
        The library's own answers to some rows, where full scores are ties but for rounding.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=int
        0 or 1 for one output.
    """
    score, _, side = walked
    last = np.flatnonzero(side == 0)
    if engine.n_outputs == 1:
        at = (side > 0).view(np.int8)
        at[last] = score[last, 0] > engine.beta
    else:
        at = np.argmax(score, axis=1)
    if ask is not None and len(last):
        ties = last[_is_tie(engine, score[last])]
        if len(ties):
            at[ties] = ask(ties)
    return at


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
    weight = np.concatenate([[0.0], np.cumsum(engine.weights)])[members]
    # An ensemble of one class has its column alone.
    return engine.link.probabilities(score, weight)[:, -n_classes:]


def asking(estimator, engine, classes, X, once=EVERY):
    """What :func:`settle` asks the library: positions of its own labels of some rows."""

    def ask(rows):
        return own_answers(estimator, engine.plain(_safe_indexing(X, rows)), classes)

    def positions(rows):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = once.rows("own answers", rows, num_samples(X), ask)
        return np.argmax(labels[:, None] == classes[None, :], axis=1)

    return positions


def _is_tie(engine, score):
    """Rows whose full score the library, adding up in its own way, may answer otherwise."""
    if engine.rounding == 0.0:
        return np.zeros(len(score), dtype=bool)
    if engine.n_outputs == 1:
        return np.abs(score[:, 0] - engine.beta) <= engine.rounding
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
            at = settle(engine, walked, asking(estimator, engine, classes, rows))
        differ = classes.take(at, mode="clip") != expected
        score = sided(engine, walked[0], at)
        if expected_proba is not None:
            proba = probabilities(engine, score, walked[1], len(classes))
            differ |= ~np.isclose(proba, expected_proba, rtol=1e-4, atol=1e-5).all(axis=1)
        # Scores that are no numbers say nothing: a net may be given rows that it cannot read.
        differ &= np.isfinite(score).all(axis=1)
        if differ.any():
            raise ValueError(
                f"This {type(estimator).__name__} answers {differ.sum()} of {len(differ)} rows "
                f"({kind}) otherwise than its members do as they are read here, so that early "
                "exit would answer wrongly. One of its options is not supported; please report "
                "it with the parameters of the ensemble."
            )
