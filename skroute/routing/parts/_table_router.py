"""The base of routers that learn from a log of outcomes, without members."""

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
from skroute.utils._compat import HasMethods, Integral
from skroute.utils._named import check_rows_match
from skroute.utils._validation import check_row_weights

# End of an error message about rows that the default quality estimator cannot read.
_ADVICE = (
    "Give a quality_estimator that reads such rows, for example a pipeline that begins "
    "with a vectoriser or an encoder."
)


class TableRouter(MetaEstimatorMixin, Router, BaseEstimator):
    """Base of routers without members: `predict` returns names of choices.

    A subclass sets ``_named``: True if the user has named the choices. It may replace
    ``_readers()``, which returns the estimators that read X by the names of their
    parameters.
    """

    _parameter_constraints: dict = {
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "costs": [dict, "array-like", None],
        "budget": BUDGET,
        "abstain_cost": AMOUNT,
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    def _readers(self):
        """Return the estimators that read X, by the names of their parameters."""
        return readers_of(self)

    def _answer(self, plan, response):
        """Return the name, or the column in y, of the choice of each row."""
        if self._named:
            return np.asarray(self.choices_)[plan.route]
        # The answer of a choice without a name is its column in the y of `fit`.
        columns = np.arange(len(self.choices_))
        if self.abstain_quality_ is not None:
            # Abstaining, the last choice, has no column. Its answer is -1.
            columns[-1] = -1
        return columns[plan.route]

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The routing of this estimator.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(**self._readers(), method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        # An iterable of splits takes no metadata, and it may be iterated only once.
        splitter = self.cv if hasattr(self.cv, "split") else KFold()
        return router.add(splitter=splitter, method_mapping=split)

    def __sklearn_tags__(self):
        """Return tags that follow from the estimators that read X."""
        tags = inherit_member_tags(super().__sklearn_tags__(), self._readers().values())
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def readers_of(router):
    """Return a router's unfitted estimators of quality and cost, by parameter.

    `router` is a `TableRouter`. These are its estimators that read X.
    """
    reader = router.quality_estimator
    if reader is None:
        reader = QualityRegressor()
    readers = {"quality_estimator": reader}
    if getattr(router, "cost_estimator", None) is not None:
        readers["cost_estimator"] = router.cost_estimator
    return readers


def weights_for_readers(readers, given_weight):
    """Return what each estimator's `fit` gets without metadata routing: weights.

    Parameters
    ----------
    readers : dict from str to estimator
        From `readers_of`. One whose `fit` does not take weights gets none.
    given_weight : ndarray of shape (n_rows,)
        The only metadata that there can be.

    Returns
    -------
    dict from str to Bunch
        By parameter, and ``"splitter"`` for the splitter, which gets nothing.
    """
    metadata = {"splitter": Bunch(split={})}
    for name, reader in readers.items():
        _, fit_params = with_weights(reader, given_weight)
        metadata[name] = Bunch(fit=fit_params)
    return metadata


def rows_of_fit(router, X, y, *, optional=False):
    """Validate X and y of `fit`, and return the rows. Return None if X is None.

    Parameters
    ----------
    router : TableRouter
        Its number and names of features are set.
    X : indexable or None
        The rows. None is allowed if `optional`.
    y : object
        It is only checked that `y` is not None.
    optional : bool, default=False
        True for a router that learns without rows, too.
    """
    if y is None:
        raise ValueError(
            f"{type(router).__name__} requires y to be passed, but the target y is "
            "None."
        )
    if X is None and optional:
        return None
    # Rows are checked for the default quality estimator only if it is used.
    advice = _ADVICE if router.quality_estimator is None else None
    return read_rows(router, X, advice)


def realised_quality(router, X, y, sample_weight, call, allow_nan=False):
    """Return the mean of the logged quality `y` over the choices made in a call.

    Parameters
    ----------
    router : TableRouter
        Fitted.
    X : indexable
        The rows.
    y : array-like of shape (n_samples, n_models)
        Logged quality of each model. NaN is unknown.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of the rows.
    call : Call
        Budget and other keywords.
    allow_nan : bool, default=False
        If True, rows whose choice has an unknown quality are left out.

    Returns
    -------
    float
        The quality of abstaining is that of `fit`.
    """
    check_is_fitted(router)
    check_rows_match(X=X, y=y, sample_weight=sample_weight, **call.keywords)
    models = models_of(router)
    # Without names, the columns of a data frame are read in their order.
    columns = models if router._named else None
    quality = check_matrix(y, "y", columns, allow_nan=allow_nan)
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
    is_logged = ~np.isnan(realised)
    if not weight[is_logged].sum() > 0:
        raise ValueError("y is NaN, not known, for every choice that was made.")
    return float(np.average(realised[is_logged], weights=weight[is_logged]))
