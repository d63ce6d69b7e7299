"""The cost protocol of an estimator that has another one inside, which answers."""

from sklearn.utils.metaestimators import available_if


def _inner_has(name):
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

    @available_if(_inner_has("predict_routed"))
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

    @available_if(_inner_has("route"))
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

    @available_if(_inner_has("predict_cost"))
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
