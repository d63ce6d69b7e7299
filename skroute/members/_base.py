"""What models share that answer without having learned anything from `fit`."""

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


class MemberClassifier(
    VersionedPickleMixin, CheckedScoreMixin, ClassifierMixin, BaseEstimator
):
    """A classifier whose answers come from elsewhere: `fit` checks and learns nothing.

    The tag ``requires_fit`` is False, ``classes_`` is known from the parameters, and a router
    asks it directly instead of cross-validating what cannot overfit.
    """

    # True if `predict` is computed from `predict_proba`. None if the rows of `fit` show it.
    _predicts_best_score: bool | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_clone__(self):
        # The default deep-copies logs and clients, once per fold and member.
        return type(self)(**self.get_params(deep=False))


def checked_labels(X, y, *, several=False):
    """Labels, one for each row; an indicator matrix where there may be `several` in a row."""
    check_rows_match(X=X, y=y)
    refuse_missing(y=y)
    y = on_host(y)
    check_consistent_length(X, y)
    if getattr(y, "ndim", 1) == 1 or not several:
        y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    return y


def check_classes(classes):
    """Labels as an array, as they come; at least one, and none twice."""
    labels = np.asarray(classes)
    if labels.ndim != 1 or not 0 < len(np.unique(labels)) == len(labels):
        raise ValueError(
            "classes must be labels that do not repeat, at least one, got "
            f"{reprlib.repr(labels.tolist())}."
        )
    return labels


def places_of(keys, place_of):
    """The place of each key; -1 of one that has none, also of what could not be a key."""
    found = (place_of.get(key, -1) if isinstance(key, Hashable) else -1 for key in keys)
    return np.fromiter(found, dtype=np.int64, count=len(keys))
