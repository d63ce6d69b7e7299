"""Members whose probabilities mean the same: each calibrated on its own out-of-fold answers."""

from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import StratifiedKFold

from skroute.metrics._objectives import OF_LABELS

# Qualities for which probabilities are bought: proper scores of them.
PROPER = ("log_loss", "brier")
METHODS = ("temperature", "sigmoid", "isotonic")
# Rows of each class without which a member is left as it is.
_FEWEST = 10
_LEAST = 1e-12


class Answered(ClassifierMixin, BaseEstimator):
    """Stands in for a member: its rows are its probabilities."""

    def __init__(self, n_classes=2):
        self.n_classes = n_classes

    @property
    def classes_(self):
        """Positions of the classes."""
        return np.arange(self.n_classes)

    def fit(self, X, y=None, sample_weight=None):
        """Learns nothing."""
        return self

    def __sklearn_is_fitted__(self):
        return True

    def decision_function(self, X):
        """Log-odds of two classes, else the logarithms of all."""
        logs = np.log(np.maximum(X, _LEAST))
        return logs[:, 1] - logs[:, 0] if self.n_classes == 2 else logs

    def predict_proba(self, X):
        """As they are."""
        return X

    def predict(self, X):
        """The most probable class."""
        return X.argmax(axis=1)


class Calibrated(NamedTuple):
    """What calibration makes of one member.

    Attributes
    ----------
    model : CalibratedClassifierCV or None
        From its probabilities to calibrated ones; None leaves them.
    proba : ndarray of shape (n_rows, n_classes)
        Those of the rows of `fit`, each calibrated without its fold.
    method : str or None
    """

    model: Any
    proba: np.ndarray
    method: str | None


def calibrate(proba, target, folds, weight=None):
    """Choose among scikit-learn's calibrations by cross-fitted log loss; keep what is best.

    Parameters
    ----------
    proba : ndarray of shape (n_rows, n_classes)
        Out of sample, columns in the order of the classes.
    target : ndarray of shape (n_rows,), dtype=int
        Positions of the true classes.
    folds : int or list of (ndarray, ndarray)
    weight : ndarray of shape (n_rows,), default=None

    Returns
    -------
    Calibrated
    """
    n_classes = proba.shape[1]
    rows = np.bincount(target, minlength=n_classes)
    if rows.min() < _FEWEST:
        return Calibrated(None, proba, None)
    splits = folds
    if not isinstance(folds, list):
        n_folds = min(max(folds, 2), int(rows.min()))
        splits = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(proba, target))
    score = OF_LABELS["log_loss"]().of
    found = [Calibrated(None, proba, None)]
    for method in METHODS:
        fitted = np.empty_like(proba, dtype=np.float64)
        if any(np.bincount(target[train], minlength=n_classes).min() < 2 for train, _ in splits):
            break
        for train, test in splits:
            part = None if weight is None else weight[train]
            fitted[test] = _fit(method, proba[train], target[train], part).predict_proba(
                proba[test]
            )
        found.append(Calibrated(None, fitted, method))
    means = [np.average(score(target, one.proba), weights=weight) for one in found]
    best = found[int(np.argmax(means))]
    if best.method is None:
        return best
    return best._replace(model=_fit(best.method, proba, target, weight))


def _fit(method, proba, target, weight):
    model = CalibratedClassifierCV(Answered(proba.shape[1]), method=method, cv=2, ensemble=False)
    # A weight is for this fit alone, whatever the user's members ask for.
    with config_context(enable_metadata_routing=False):
        return model.fit(proba, target, sample_weight=weight)
