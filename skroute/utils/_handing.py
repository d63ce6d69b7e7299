"""Rows that a decision estimator hands over instead of answering them."""

import numpy as np


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
    # Behind a prefix where several candidates are certified.
    handing = [str(name).rpartition(": ")[2] == "abstain" for name in estimator.choices_]
    return np.array(handing)[route]


def models_of(estimator):
    """Names of the choices of a fitted estimator that answer."""
    if getattr(estimator, "abstain_quality_", None) is None:
        return list(estimator.choices_)
    return [name for name in estimator.choices_ if str(name).rpartition(": ")[2] != "abstain"]
