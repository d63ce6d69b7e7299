"""The prediction methods of an estimator whose items have sizes and budgets of their own."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from skroute.base import CostAwareMixin, Routed


def _has_predict_proba(selector):
    # Not hasattr: the model's own AttributeError says why it is absent.
    return selector.estimator.predict_proba is not None


class SizedItemsMixin(CostAwareMixin):
    """The cost protocol with a size per item, and a budget that may differ by item."""

    _call_context = ("size",)

    def predict_routed(
        self, X: Any, budget: ArrayLike | None = None, size: ArrayLike | None = None
    ) -> Routed:
        """Answers, chosen sets and costs from one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``. With ``anytime=True`` costs are the
            seconds truly spent, otherwise what the cost functions say.
        """
        return self._respond(X, "predict", budget=budget, size=size)

    def predict(
        self, X: Any, budget: ArrayLike | None = None, size: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Predict with the best feature set that each item's budget allows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        return self._respond(X, "predict", budget=budget, size=size).y_pred

    @available_if(_has_predict_proba)
    def predict_proba(
        self, X: Any, budget: ArrayLike | None = None, size: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities from the best feature set that each item's budget allows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, columns as ``classes_``.
        """
        return self._respond(X, "predict_proba", budget=budget, size=size).y_pred

    def route(
        self, X: Any, budget: ArrayLike | None = None, size: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Index of the feature set that each item's budget allows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items; only their sizes are used, unless ``anytime=True``.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
            Index into ``choices_``.
        """
        return self._respond(X, None, budget=budget, size=size).route

    def predict_cost(
        self, X: Any, budget: ArrayLike | None = None, size: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """What the features of each item's set cost.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items; only their sizes are used, unless ``anytime=True``.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Cost per item, in the unit of `costs`; never above its budget unless
            ``anytime=True``, where it is the time truly spent.
        """
        return self._respond(X, None, budget=budget, size=size).cost

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        budget: ArrayLike | None = None,
        size: ArrayLike | None = None,
    ) -> float:
        """Accuracy of `predict` at the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows or raw items.

        y : array-like of shape (n_samples,)
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float or array-like of shape (n_samples,), default=None
            What may be spent on each item. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items. None takes the constructor's column or callable.

        Returns
        -------
        float
            Share of rows answered correctly.
        """
        y_pred = self.predict(X, budget=budget, size=size)
        return accuracy_score(y, y_pred, sample_weight=sample_weight)
