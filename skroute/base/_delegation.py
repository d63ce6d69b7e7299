"""The cost protocol for pipelines and searches around a decision estimator."""

from sklearn.utils.metaestimators import available_if

from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin


def inner_has(name):
    """Return a check for ``available_if`` that the estimator inside has an attribute.

    Parameters
    ----------
    name : str
        Name of the attribute.

    Returns
    -------
    callable
        ``check(estimator)`` returns True, or raises the AttributeError of the estimator
        inside.
    """

    def check(self):
        """Return True, or raise the AttributeError of the estimator inside."""
        getattr(self.decision_estimator(), name)
        return True

    return check


class DelegatedViewsMixin(VersionedPickleMixin):
    """Mixin for pipelines and searches with a decision estimator inside.

    A subclass writes

    ``decision_estimator()``
        Return the decision estimator inside, fitted or not.

    ``rows_for_decision(X)``
        Return the rows that the decision estimator gets.
    """

    def _call_inner(self, name, X, **params):
        """Call a method of the decision estimator on ``rows_for_decision(X)``.

        Parameters
        ----------
        name : str
            Name of the method.

        X : {array-like, dataframe, mapping, LazyFeatures}
            The rows, before other steps transform them.

        **params : object
            Keywords of the method.

        Returns
        -------
        object
            The result of the method.
        """
        # Row labels are compared before `rows_for_decision`, whose transformers may
        # return rows without labels.
        check_rows_match(X=X, **params)
        rows = self.rows_for_decision(X)
        return getattr(self.decision_estimator(), name)(rows, **params)

    @available_if(inner_has("predict_routed"))
    def predict_routed(self, X, budget=None, **parameters):
        """Return answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures}
            The rows, of shape (n_samples, n_features).

        budget : float, default=None
            Mean cost per sample for this call. None takes the constructor's;
            ``numpy.inf`` is unlimited.

        **parameters : keyword arguments
            Other keywords of the calls of the inner estimator.

        Returns
        -------
        Routed
            Unpacks into ``(y_pred, route, cost)``.
        """
        return self._call_inner("predict_routed", X, budget=budget, **parameters)

    @available_if(inner_has("route"))
    def route(self, X, budget=None, **parameters):
        """Return the index of the choice made for each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures}
            The rows, of shape (n_samples, n_features).

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
            Index into ``choices_``.
        """
        return self._call_inner("route", X, budget=budget, **parameters)

    @available_if(inner_has("predict_cost"))
    def predict_cost(self, X, budget=None, **parameters):
        """Return what `predict` spends on each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures}
            The rows, of shape (n_samples, n_features).

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Cost per row, in the unit of `costs`.
        """
        return self._call_inner("predict_cost", X, budget=budget, **parameters)

    @property
    def choices_(self):
        """Names of the choices that `route` indexes."""
        return self.decision_estimator().choices_

    @property
    def min_budget_(self):
        """Smallest feasible budget: the mean cost per sample of the cheapest plan."""
        return self.decision_estimator().min_budget_
