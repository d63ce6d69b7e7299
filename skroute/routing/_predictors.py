"""Regressors from the answers so far to what each way of going on is worth."""

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor

from skroute.base import note_failure
from skroute.forests._averages import average_of
from skroute.routing._combiner import combine
from skroute.routing._values import note_outputs, out_of_sample_quality

# Share of the outputs' variance that directions leave out which are not fitted.
_LEFT_OUT = 1e-4


class Projected:
    """A forest of a few directions of many outputs, which depend on one another linearly.

    Means over the rows of a leaf, and over trees, are linear in the outputs: those of directions
    that span the outputs are those of the outputs. What is saved is the time of looking at each.

    Parameters
    ----------
    forest : fitted regressor
    directions : ndarray of shape (n_directions, n_outputs)
    mean : ndarray of shape (n_outputs,)
    """

    def __init__(self, forest, directions, mean):
        self.forest, self.directions, self.mean = forest, directions, mean

    @property
    def oob_prediction_(self):
        """Out-of-bag estimates of the rows of `fit`."""
        return self._outputs(self.forest.oob_prediction_)

    def predict(self, X):
        """Estimates of shape (n_samples, n_outputs)."""
        return self._outputs(average_of(self.forest, X))

    def _outputs(self, found):
        return found.reshape(len(found), -1) @ self.directions + self.mean


def fit_default(features, target):
    """The default forest, on as few directions as hold what the outputs are.

    Values of going on at neighbouring prices are nearly the same: of 27 outputs 5 are left.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
    target : ndarray of shape (n_samples, n_outputs)

    Returns
    -------
    RandomForestRegressor or Projected
    """
    forest, n_outputs = default_predictor(len(target)), target.shape[1]
    if n_outputs == 1:
        return forest.fit(features, target[:, 0])
    mean = target.mean(axis=0)
    centred = target - mean
    variance, directions = np.linalg.eigh(centred.T @ centred)
    # The smallest first.
    left = np.cumsum(np.maximum(variance, 0.0))
    directions = directions[:, left > _LEFT_OUT * left[-1]].T
    if not 0 < len(directions) <= n_outputs // 2:
        return forest.fit(features, target)
    found = centred @ directions.T
    return Projected(
        forest.fit(features, found[:, 0] if len(directions) == 1 else found), directions, mean
    )


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


def fit_predictor(estimator, features, target, folds, name="accuracy_estimator"):
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
    flat = target[:, 0] if target.shape[1] == 1 else target
    with note_failure(name, len(target), "fit"), note_outputs(estimator, target.shape[1]):
        if estimator is None:
            fitted = fit_default(features, target)
        else:
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
