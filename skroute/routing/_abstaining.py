"""Handing a row over instead of answering it, as one more choice with a price."""

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import CostAwareMixin
from skroute.forests._averages import average_of
from skroute.metrics._objectives import RowQuality
from skroute.routing._targets import MultiLabel
from skroute.utils._compat import Interval, Real
from skroute.utils._handing import ABSTAIN_NAME, answered, handed_over, is_handing
from skroute.utils._tensors import on_host

ABSTAIN_COST = [Interval(Real, 0, None, closed="left"), None]


def check_abstain_name(names, abstain_cost):
    """Refuse a choice that has the name of the one that is added."""
    if abstain_cost is not None and any(map(is_handing, names)):
        raise ValueError(f"With an abstain_cost no model may be named {ABSTAIN_NAME!r}; rename it.")


def with_handed(costs, handed):
    """Costs with a last entry, or column, for handing over, which costs nothing."""
    if handed is None or costs is None:
        return costs
    costs = np.asarray(costs, dtype=np.float64)
    return np.concatenate([costs, np.zeros((*costs.shape[:-1], 1))], axis=-1)


def quality_of_handing(quality, abstain_cost):
    """What a row counts as that is handed over: the best quality in the log less its cost."""
    return None if abstain_cost is None else float(np.nanmax(quality)) - abstain_cost


class Beside:
    """A fitted estimator of the models, and what is known of handing over: one output more.

    Parameters
    ----------
    estimator : fitted multi-output regressor
    handed : float
        What a row counts as that is handed over.
    at : int, default=None
        Before which output it stands; None: after the last.
    """

    def __init__(self, estimator, handed, at=None):
        self.estimator, self.handed, self.at = estimator, handed, at

    def table(self, values, handed=None):
        """A table of the models with one column more."""
        values = np.asarray(values, dtype=np.float64)
        values = values.reshape(len(values), -1)
        at = values.shape[1] if self.at is None else self.at
        return np.insert(values, at, self.handed if handed is None else handed, axis=1)

    def predict(self, X, **options):
        """Estimates of shape (n_samples, n_models + 1), with ``return_std`` a pair of them."""
        found = self.estimator.predict(X, **options) if options else average_of(self.estimator, X)
        if isinstance(found, tuple):
            return self.table(found[0]), self.table(found[1], 0.0)
        return self.table(on_host(found))


class HandingLogMixin:
    """Mixin for `BudgetRouter`: rows that nobody answers are named, and count as in `fit`."""

    def _not_plain(self):
        return None if self.abstain_quality_ is None else "an abstain_cost"

    def _answer(self, X, plan, response):
        # What nothing names is answered by its column of Q.
        columns = self.columns_
        if self.abstain_quality_ is not None:
            columns = np.r_[columns, -1]
        return (np.asarray(self.choices_) if self._named else columns)[plan.route]

    def _realised(self, quality, route, at):
        """Quality of the choices made, by a matrix in whose columns `at` the models are."""
        made = quality[:, at]
        if self.abstain_quality_ is not None:
            made = np.column_stack([made, np.full(len(made), self.abstain_quality_)])
        return made[np.arange(len(route)), route]


class AbstainingMixin(CostAwareMixin):
    """Mixin for routers of members that may hand rows over; stands before `BaseRouter`.

    A choice whose name ends with "abstain" hands over (`is_handing`); ``abstain_quality_`` is
    what a row then counts as, None where no row is.
    """

    def _check_target(self, target):
        super()._check_target(target)
        objective = self._objective_of(target)
        if self.abstain_cost is not None and (objective.ratio or objective.by_class):
            raise ValueError(
                f"abstain_cost={self.abstain_cost!r} is the cost of one row, but "
                f"quality={objective.name!r} is no plain mean over rows. Take another quality, or "
                "None."
            )

    def _check(self, X, members):
        check_abstain_name(list(members), self.abstain_cost)
        super()._check(X, members)

    def _answer(self, X, plan, response):
        handed = handed_over(self, plan.route)
        if not handed.any():
            return super()._answer(X, plan, response)
        rows = np.flatnonzero(~handed)
        found = self._answers_to(X, plan, response, rows) if len(rows) else None
        return self._marked(handed, found, response)

    def _marked(self, handed, found, response):
        """Answers to all rows: None, or NaN among numbers, where there is none."""
        if response == "predict_proba" or isinstance(self._target, MultiLabel):
            marked = np.full((len(handed), len(self.classes_)), np.nan)
        elif hasattr(self, "classes_"):
            marked = np.full(len(handed), None, dtype=object)
        else:
            marked = np.full(len(handed), np.nan)
        if found is not None:
            marked[~handed] = found
        return marked

    def row_quality(self, X, y, sample_weight=None, budget=None, **context):
        """How good the answer to each row is, by this router's `quality`, in one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True answers; a label that `fit` has not seen is an error.

        sample_weight : array-like of shape (n_samples,), default=None
            Of each row in the mean that is a ratio or a balanced accuracy.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        RowQuality
            Named tuple ``(quality, route, cost)``. Higher is better; the mean of `quality`,
            weighted by `sample_weight`, is that of all answers, also where it is a ratio. A row
            that is handed over counts as in `fit`.
        """
        check_is_fitted(self)
        if self.abstain_quality_ is None:
            return super().row_quality(X, y, sample_weight, budget, **context)
        check_consistent_length(X, y)
        objective, target = self._objective(), self._encoded(y)
        if "y_true" in self._call_context:
            context = {"y_true": y, **context}
        routed = self._respond(X, objective.asks, budget=budget, **context)
        quality = np.full(len(target), self.abstain_quality_)
        rows = np.flatnonzero(~handed_over(self, routed.route))
        if len(rows):
            answers = routed.y_pred[rows]
            if objective.asks == "predict":
                answers = self._encoded(answers.astype(self._answer_dtype()))
            quality[rows] = objective.rows(target[rows], answers)
        return RowQuality(quality, routed.route, routed.cost)

    def _answer_dtype(self):
        return self.classes_.dtype if hasattr(self, "classes_") else np.float64

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """scikit-learn's score of `predict` at the budget, over the rows that are answered.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True answers.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        float
            Accuracy of labels, the mean of labels in common by labels in either where there may
            be several, R² of numbers. Rows that are handed over are left out; NaN, with a
            warning, where all are. `row_quality` counts them.
        """
        check_is_fitted(self)
        if self.abstain_quality_ is None:
            return super().score(X, y, sample_weight, budget, **context)
        check_consistent_length(X, y)
        routed = self.predict_routed(X, budget=budget, **context)
        rows = answered(self, routed.route)
        if not len(rows):
            return np.nan
        y_pred = routed.y_pred[rows].astype(self._answer_dtype())
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        return self._score_of(y[rows], y_pred, weight)
