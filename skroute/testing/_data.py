"""Rows and targets on which decision estimators are checked."""

import functools

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.datasets import make_classification

# Labels that are texts, so that an answer by position is noticed.
LABELS = np.array(["ant", "bee", "hornet"])


@functools.cache
def make_rows(n_samples=240, seed=0):
    """Return rows of three classes and their labels, half to fit and half to decide.

    Features are continuous, so that no two rows are equal.
    """
    X, label = make_classification(
        n_samples,
        n_features=6,
        n_informative=4,
        n_classes=3,
        class_sep=0.7,
        random_state=seed,
    )
    y = LABELS[label]
    half = n_samples // 2
    return X[:half], y[:half], X[half:], y[half:]


def make_target(estimator, labels):
    """Return the target of an estimator: labels, numbers, or qualities of choices.

    An estimator that is neither a classifier nor a regressor routes between choices by
    a table of their quality, with one column for each of its `costs`.
    """
    if is_regressor(estimator):
        return np.searchsorted(LABELS, labels) + 0.5
    if is_classifier(estimator) or not hasattr(estimator, "costs"):
        return labels
    n_choices = 1 if estimator.costs is None else len(estimator.costs)
    size = np.random.default_rng(0).uniform(0.5, 1, (len(labels), n_choices))
    return (labels[:, np.newaxis] == LABELS[:n_choices]) * size
