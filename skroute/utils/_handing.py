"""Rows that a decision estimator hands over instead of answering them."""

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from skroute.utils._warn import warn

ABSTAIN_NAME = "abstain"


def is_handing(name):
    """Whether a choice of that name hands over, also after members ("cnn > abstain")."""
    return str(name).rpartition(" > ")[2] == ABSTAIN_NAME


def handed_over(estimator, route):
    """Which rows a fitted estimator hands over instead of answering them.

    Parameters
    ----------
    estimator : fitted decision estimator
    route : ndarray of shape (n_samples,), dtype=int64

    Returns
    -------
    ndarray of shape (n_samples,), dtype=bool
    """
    if getattr(estimator, "abstain_quality_", None) is None:
        return np.zeros(len(route), dtype=bool)
    return np.array([is_handing(name) for name in estimator.choices_])[route]


def answered(estimator, route):
    """Positions of the rows that are answered, with a warning where there is none to score."""
    rows = np.flatnonzero(~handed_over(estimator, route))
    if not len(rows):
        warn("Every row is handed over: there is no answer to score.", UndefinedMetricWarning)
    return rows


def models_of(estimator):
    """Names of the choices of a fitted estimator that answer."""
    if getattr(estimator, "abstain_quality_", None) is None:
        return list(estimator.choices_)
    return [name for name in estimator.choices_ if not is_handing(name)]
