"""Regressors from the answers so far to what each way of going on is worth."""

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor

from skroute.base import note_failure
from skroute.forests._averages import average_of
from skroute.routing._combiner import combine
from skroute.routing._values import note_outputs, out_of_sample_quality


def default_predictor(n_samples):
    """Forest on the answers so far, with out-of-bag estimates.

    Its leaves hold 150 rows where there are thousands: a forest with small leaves takes
    its own noise for differences between members, and the argmax then prefers whichever
    member the noise favours. A row is out of the bag of a third of the trees: where rows are few
    and trees differ, estimates of few trees are spread wider than those of later rows, by all
    trees, and a price that they set leaves budgets unspent.
    """
    return RandomForestRegressor(
        n_estimators=int(np.clip(300_000 // n_samples, 30, 100)),
        min_samples_leaf=int(np.clip(n_samples // 60, 5, 150)),
        oob_score=True,
        random_state=0,
    )


def fit_predictor(estimator, features, target, folds, name="quality_estimator"):
    """Fit a multi-output regressor, and estimate its own training rows out of sample.

    A regressor that keeps ``oob_prediction_`` (a forest with ``oob_score=True``) is
    fitted once, any other is cross-validated.

    Parameters
    ----------
    estimator : multi-output regressor or None
        None takes the default forest.

    features : ndarray of shape (n_samples, n_features)

    target : ndarray of shape (n_samples, n_outputs)

    folds : int or list of (ndarray, ndarray)
        See `MemberAnswers`.

    Returns
    -------
    fitted : estimator
    estimate : ndarray of shape (n_samples, n_outputs)
    """
    estimator = default_predictor(len(target)) if estimator is None else estimator
    flat = target[:, 0] if target.shape[1] == 1 else target
    with note_failure(name, len(target), "fit"), note_outputs(estimator, target.shape[1]):
        fitted = clone(estimator).fit(features, flat)
        estimate = getattr(fitted, "oob_prediction_", None)
        if estimate is None:
            estimate = out_of_sample_quality(estimator, features, target, folds)
    return fitted, np.asarray(estimate, dtype=np.float64).reshape(target.shape)


def predict_values(fitted, features, n_outputs):
    """Outputs of a multi-output regressor as a matrix, whatever it makes of one output."""
    values = np.asarray(average_of(fitted, features), dtype=np.float64)
    return values.reshape(len(features), n_outputs)


def answer_features(scores, weights=None, multilabel=False):
    """What a predictor sees of the answers so far.

    Single-label: the combined scores, and for each member its best label, that label's
    score, and the lead of the best combined label. Multi-label: all scores, and for each
    member its best score and its sum of scores.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples, n_labels)
        Of the members asked so far.

    weights : sequence of float, default=None
        Combiner weights of these members; None for one member.

    multilabel : bool, default=False

    Returns
    -------
    ndarray of shape (n_samples, n_features), dtype=float32
    """
    tops = [part.max(axis=1) for part in scores]
    if multilabel:
        columns = [*scores, *tops, *(part.sum(axis=1) for part in scores)]
    elif len(scores) == 1:
        columns = [scores[0], tops[0], scores[0].argmax(axis=1)]
    else:
        combined = combine(scores, weights)
        leading = np.partition(combined, -2, axis=1)[:, -2:]
        codes = [part.argmax(axis=1) for part in scores]
        agree = [code == combined.argmax(axis=1) for code in codes]
        columns = [combined, leading[:, 1] - leading[:, 0], *tops, *codes, *agree]
    return np.column_stack(columns).astype(np.float32)
