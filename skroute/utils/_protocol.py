"""What rooms see of an estimator that is not theirs: what it is, takes, answers and hands over."""

import inspect

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from skroute.utils._validation import warn

ABSTAIN_NAME = "abstain"


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


def takes(estimator, keyword):
    """Whether `predict`, `route` and the other calls of an estimator take a keyword."""
    return keyword in inspect.signature(estimator.route).parameters


def is_handing(name):
    """Whether a choice of that name hands over, also after members ("cnn > abstain")."""
    return str(name).rpartition(" > ")[2] == ABSTAIN_NAME


def handed_over(estimator, route):
    """Which rows, by their choices, a fitted estimator hands over instead of answering them."""
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


def inner_has(name):
    def check(self):
        getattr(self._decider(), name)
        return True

    return check


class DelegatedViewsMixin:
    """Views of a decision that an inner estimator makes.

    A subclass implements ``_decider()``, the inner estimator, fitted or not, and
    ``_seen_by_decider(X)``, the rows that it sees.
    """

    def _view(self, name, X, *args, **params):
        rows = self._seen_by_decider(X)
        return getattr(self._decider(), name)(rows, *args, **params)

    @available_if(inner_has("predict_routed"))
    def predict_routed(self, X, budget=None, **context):
        """Answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call. None takes the constructor's; ``numpy.inf`` is
            unlimited.

        **context : keyword arguments
            What else the inner estimator takes about the rows of a call.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``.
        """
        return self._view("predict_routed", X, budget=budget, **context)

    @available_if(inner_has("route"))
    def route(self, X, budget=None, **context):
        """Index of the choice made for each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
        """
        return self._view("route", X, budget=budget, **context)

    @available_if(inner_has("predict_cost"))
    def predict_cost(self, X, budget=None, **context):
        """What `predict` spends on each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
        """
        return self._view("predict_cost", X, budget=budget, **context)

    @property
    def choices_(self):
        """Names of the choices that `route` indexes."""
        return self._decider().choices_

    @property
    def min_budget_(self):
        """The smallest feasible budget: the mean cost per sample of the cheapest plan."""
        return self._decider().min_budget_
