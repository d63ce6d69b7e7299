"""Rows and targets on which decision estimators are checked."""

import functools
from typing import NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.datasets import make_classification

# Labels that are texts, so that an answer by position is noticed.
LABELS = np.array(["ant", "bee", "hornet"])


class CheckRows(NamedTuple):
    """Rows and labels on which estimators are checked.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Rows to fit.
    labels : ndarray of str of shape (n_rows,)
    X_new : ndarray of shape (n_new_rows, n_features)
        Rows to decide.
    labels_new : ndarray of str of shape (n_new_rows,)
    """

    X: np.ndarray
    labels: np.ndarray
    X_new: np.ndarray
    labels_new: np.ndarray


@functools.cache
def make_rows(n_samples=240, seed=0):
    """Return rows of three classes and their labels, half to fit and half to decide.

    Features are continuous, so that no two rows are equal.

    Parameters
    ----------
    n_samples : int, default=240
        Number of all rows.
    seed : int, default=0

    Returns
    -------
    CheckRows
        The same arrays in each call. They must not be changed.
    """
    X, class_of_row = make_classification(
        n_samples,
        n_features=6,
        n_informative=4,
        n_classes=3,
        class_sep=0.7,
        random_state=seed,
    )
    labels = LABELS[class_of_row]  # (n_samples,)
    half = n_samples // 2
    return CheckRows(
        X=X[:half],
        labels=labels[:half],
        X_new=X[half:],
        labels_new=labels[half:],
    )


def make_target(estimator, labels):
    """Return the target of an estimator: labels, numbers, or qualities of choices.

    An estimator that is neither a classifier nor a regressor routes between choices.
    Its target is a table of their quality, with one column for each of its `costs`. If
    it has no parameter `costs`, its target are the labels.

    Parameters
    ----------
    estimator : estimator
    labels : ndarray of str of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_choices)
    """
    if is_regressor(estimator):
        # Positive numbers: 0.5, 1.5 and 2.5.
        return np.searchsorted(LABELS, labels) + 0.5
    if is_classifier(estimator) or not hasattr(estimator, "costs"):
        return labels
    n_choices = 1 if estimator.costs is None else len(estimator.costs)
    # Each choice is good for the rows of one class: its quality there is between 0.5
    # and 1. It is 0 on other rows. If there are more choices than classes, several are
    # good for one class.
    label_of_choice = LABELS[np.arange(n_choices) % len(LABELS)]
    is_own_class = labels[:, np.newaxis] == label_of_choice  # (n_rows, n_choices)
    qualities = np.random.default_rng(0).uniform(0.5, 1, (len(labels), n_choices))
    return is_own_class * qualities
