"""The base of all routers. It has their validated quality and cost."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.base._inspection import models_of
from skroute.utils._compat import Interval, Real, num_samples, routing_enabled

# Constraint of the parameter `budget`. Infinity and None are unlimited.
BUDGET = [Interval(Real, 0, None, closed="both"), None]


def metadata_of_fit(router, params, given_weight, metadata_of_weights):
    """Return the metadata that `fit` hands on to the models and to the splitter.

    Without metadata routing, weights are the only metadata, and all models get them.

    Parameters
    ----------
    router : Router
    params : dict
        Metadata that `fit` got, `sample_weight` included.
    given_weight : ndarray of shape (n_rows,), or None
        Weights as the user gave them. None: there are none.
    metadata_of_weights : callable
        ``metadata_of_weights(given_weight)`` returns the result if there are only
        weights.

    Returns
    -------
    mapping from str to Bunch
        By the names in ``router.get_metadata_routing()``.
    """
    if given_weight is None or routing_enabled():
        return router._route_metadata(params)
    others = {name: value for name, value in params.items() if name != "sample_weight"}
    # Without metadata routing, metadata other than weights are an error.
    router._route_metadata(others)
    return metadata_of_weights(given_weight)


class Router(CostAwareMixin):
    """Mixin for estimators that choose, per row, which model answers.

    A subclass writes the methods of :class:`~skroute.base.CostAwareMixin`, and

    ``_validated(budget) -> ValidationMeans``
        Return mean quality and cost on validation rows, with their standard errors. A
        router without this method has no validation figures.

    It has the attributes ``costs_``, the cost of each choice, and ``mean_quality_``,
    the mean quality of each choice on the rows of `fit`. A router that decides by the
    price of its budget is a `PricedRouter`.
    """

    def _single_choices(self):
        """Return the names of the choices that answer, a list of str."""
        return models_of(self)

    def _plan_single(self, X, name, call):
        """Return the plan in which the choice `name` answers every row (`Plan`)."""
        n_rows = num_samples(X)
        choice = self.choices_.index(name)
        cost = float(self.costs_[choice])
        return Plan(np.full(n_rows, choice), np.full(n_rows, cost))

    # Validation -----------------------------------------------------------------------

    def _validated_now(self):
        """Return means of cross-fitted decisions at `budget` (`ValidationMeans`)."""
        check_is_fitted(self)
        budget = self._effective_budget(None)
        check_affordable(budget, self._smallest_budget())
        return self._validated(budget)

    @property
    def validation_quality_(self):
        """Mean quality of the cross-fitted decisions at `budget`.

        No row is decided by a policy that was fitted on this row.
        """
        return self._validated_now().quality

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._validated_now().quality_se

    @property
    def validation_cost_(self):
        """Mean logged cost of the decisions that `validation_quality_` is about."""
        return self._validated_now().cost

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._validated_now().cost_se
