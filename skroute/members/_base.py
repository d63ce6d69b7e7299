"""What models share that answer without having learned anything from `fit`."""

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets

from skroute.utils._tensors import on_host


class MemberClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose answers come from elsewhere: `fit` checks and learns nothing.

    It has scikit-learn's parameters, clone, tags and display, but it is a model, not a
    learner: the tag ``requires_fit`` is False, ``classes_`` is known from the parameters,
    and a router asks it directly instead of cross-validating what cannot overfit.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        return tags

    def _check_y(self, X, y):
        """Labels are not used, but nonsense is nonsense."""
        if y is None:
            return
        y = on_host(y)
        check_consistent_length(X, y)
        if getattr(y, "ndim", 1) == 1 or not get_tags(self).classifier_tags.multi_label:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_clone__(self):
        # The default deep-copies logs and clients, once per fold and member.
        return type(self)(**self.get_params(deep=False))
