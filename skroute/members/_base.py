"""The base of models that `fit` does not train, and checks of their labels."""

import reprlib
from collections.abc import Hashable

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._scored import CheckedScoreMixin
from skroute.utils._tensors import on_host
from skroute.utils._validation import refuse_missing

# `places_of` returns this in place of a position for a key that is not known.
UNKNOWN = -1


class MemberClassifier(
    VersionedPickleMixin, CheckedScoreMixin, ClassifierMixin, BaseEstimator
):
    """A classifier whose answers come from elsewhere. Its `fit` only checks the rows.

    The tag ``requires_fit`` is False, and ``classes_`` follows from the parameters. A
    router uses its answers to training rows directly, without cross-validation.
    """

    # True if `predict` returns the class of largest `predict_proba`. None: not known.
    # A router then compares both on the rows of `fit`.
    _predicts_best_score: bool | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_clone__(self):
        # A clone shares the parameters. scikit-learn's own clone would copy logs and
        # clients, once for each fold.
        return type(self)(**self.get_params(deep=False))


def checked_labels(X, y, *, several=False):
    """Return validated labels, as an indicator matrix if a row may have `several`.

    Parameters
    ----------
    X : indexable of n_rows rows
        Only the number and the labels of its rows are compared with `y`.

    y : array-like of shape (n_rows,) or (n_rows, n_classes)

    several : bool, default=False
        True if `y` may be an indicator matrix. If False, a matrix is an error.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_classes)
        The second shape is that of an indicator matrix.
    """
    check_rows_match(X=X, y=y)
    refuse_missing(y=y)
    y = on_host(y)
    check_consistent_length(X, y)
    if getattr(y, "ndim", 1) == 1 or not several:
        y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    return y


def check_classes(classes):
    """Return labels as an array, in their order, or raise an error if two are equal.

    `classes` is array-like of shape (n_classes,), with at least one label.
    """
    labels = np.asarray(classes)
    # 0 is an error below: there is no label, or the array is not one-dimensional.
    n_different = len(np.unique(labels)) if labels.ndim == 1 else 0
    if n_different == 0 or n_different < len(labels):
        raise ValueError(
            "classes must be labels that do not repeat, at least one, got "
            f"{reprlib.repr(labels.tolist())}."
        )
    return labels


def places_of(keys, place_of):
    """Return the position of each key by the dict `place_of`, -1 for an unknown key.

    Parameters
    ----------
    keys : list
        Ids or labels. A value that is not hashable is unknown.

    place_of : dict from object to int
        Place of each known key: its row in a log, or its position among the classes.

    Returns
    -------
    ndarray of shape (n_keys,), dtype=int64
    """
    try:
        places = [place_of.get(key, UNKNOWN) for key in keys]
    except TypeError:
        # Some keys are not hashable.
        places = []
        for key in keys:
            if isinstance(key, Hashable):
                places.append(place_of.get(key, UNKNOWN))
            else:
                places.append(UNKNOWN)
    return np.array(places, dtype=np.int64)
