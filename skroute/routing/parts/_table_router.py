"""What routers that learn from a log of outcomes share: who reads X, names, and the score."""

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.model_selection import KFold
from sklearn.utils import Bunch, check_consistent_length
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import inherit_member_tags
from skroute.base._inspection import models_of
from skroute.quality import QualityRegressor
from skroute.routing.parts._estimates import read_rows, with_weights
from skroute.routing.parts._log import check_matrix, with_last
from skroute.routing.parts._member_router import AMOUNT
from skroute.routing.parts._router import BUDGET, Router
from skroute.utils._compat import HasMethods, Integral, routing_enabled
from skroute.utils._named import check_rows_match
from skroute.utils._validation import check_row_weights

_ADVICE = (
    "Give a quality_estimator that reads such rows, for example a pipeline that begins with a "
    "vectoriser or an encoder."
)


class TableRouter(MetaEstimatorMixin, Router, BaseEstimator):
    """Base of routers without members: `predict` says whose answer to take."""

    _parameter_constraints: dict = {
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "costs": [dict, "array-like", None],
        "budget": BUDGET,
        "abstain_cost": AMOUNT,
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    def _readers(self):
        """The estimators that read X, by the parameters that give them."""
        reader = self.quality_estimator
        readers = {
            "quality_estimator": QualityRegressor() if reader is None else reader
        }
        if getattr(self, "cost_estimator", None) is not None:
            readers["cost_estimator"] = self.cost_estimator
        return readers

    def _routed(self, params, given_weight):
        """Return the metadata for the `fit` of the estimators that read X, and for the splitter."""
        if given_weight is None or routing_enabled():
            return self._route_metadata(params)
        self._route_metadata(
            {name: params[name] for name in params if name != "sample_weight"}
        )
        routed = {"splitter": Bunch(split={})}
        for name, reader in self._readers().items():
            _, fit_params = with_weights(reader, given_weight)
            routed[name] = Bunch(fit=fit_params)
        return routed

    def _rows_of_fit(self, X, y, *, optional=False):
        """Checked rows; None, where they are `optional`, if nothing is known of them."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if X is None and optional:
            return None
        return read_rows(self, X, _ADVICE if self.quality_estimator is None else None)

    def _answer(self, plan, response):
        if self._named:
            return np.asarray(self.choices_)[plan.route]
        # Choices without a name are answered by their column of Q.
        columns = np.arange(len(self.choices_))
        if self.abstain_quality_ is not None:
            columns[-1] = -1
        return columns[plan.route]

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(**self._readers(), method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        # An iterable of splits takes nothing, and may be read once only.
        splitter = self.cv if hasattr(self.cv, "split") else KFold()
        return router.add(splitter=splitter, method_mapping=split)

    def __sklearn_tags__(self):
        tags = inherit_member_tags(super().__sklearn_tags__(), self._readers().values())
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def realised_quality(router, X, y, sample_weight, call, allow_nan=False):
    """Return the mean logged quality of the choices made. Abstaining counts as in `fit`."""
    check_is_fitted(router)
    check_rows_match(X=X, y=y, sample_weight=sample_weight, **call.keywords())
    models = models_of(router)
    quality = check_matrix(
        y, "y", models if router._named else None, allow_nan=allow_nan
    )
    check_consistent_length(X, quality)
    if quality.shape[1] != len(models):
        raise ValueError(
            f"y must have one column for each of {models!r}, got {quality.shape[1]}."
        )
    route = router.plan(X, call).route
    if getattr(router, "abstain_quality_", None) is not None:
        quality = with_last(quality, router.abstain_quality_)
    realised = quality[np.arange(len(route)), route]
    weight = check_row_weights(sample_weight, len(quality))
    known = ~np.isnan(realised)
    if not weight[known].sum() > 0:
        raise ValueError("y is NaN, not known, for every choice that was made.")
    return float(np.average(realised[known], weights=weight[known]))
