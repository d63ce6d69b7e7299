"""Models that come fitted, and what they hold."""

from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags


def is_frozen(model):
    """Whether `fit` has nothing to teach a model: frozen, or without a ``fit``."""
    return isinstance(model, FrozenEstimator) or not hasattr(model, "fit")


def comes_fitted(model):
    """Whether `fit` teaches an estimator nothing: frozen, or a recorded or remote model.

    Such a model has not seen the rows and knows its own labels.
    """
    return isinstance(model, FrozenEstimator) or not get_tags(model).requires_fit


def unfrozen(model):
    """What a frozen estimator holds, or the model itself."""
    return model.estimator if isinstance(model, FrozenEstimator) else model
