"""The parameter `quality` of routers: what their answers are measured by."""

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.metrics._objectives import (
    OF_LABELS,
    OF_NUMBERS,
    RowQuality,
    asks_of,
    is_money,
    objective_of_labels,
    objective_of_numbers,
)
from skroute.routing._targets import MultiLabel, Numbers, SingleLabel
from skroute.utils._compat import Interval, Real, StrOptions, check_sample_weight
from skroute.utils._tensors import on_host

QUALITY_OF_LABELS = [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"]
QUALITY_OF_NUMBERS = [StrOptions(set(OF_NUMBERS)), callable]
EXCHANGE_RATE = [Interval(Real, 0, None, closed="left"), None]
# Names that a rule of labels and thresholds has the mathematics for: means over rows.
MEANS_OF_LABELS = ("accuracy", "balanced_accuracy", "cost matrix")


class RowQualityMixin:
    """Mixin for routers that measure answers by their parameter `quality`.

    A subclass has ``_objective_of(target)``.
    """

    def _check_target(self, target):
        self._objective_of(target)

    def _objective(self):
        return self._objective_of(self._target)

    def _encoded(self, y, name="y"):
        """True answers as members' are; one that `fit` has not seen is an error."""
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        if not isinstance(self._target, SingleLabel):
            return self._target.positions(y)
        classes = self.classes_
        target = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if (wrong := classes[target] != y).any():
            raise ValueError(
                f"{name} has a label that fit has not seen, in row {int(wrong.argmax())}; known "
                f"are {classes.tolist()!r}."
            )
        return target

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
            weighted by `sample_weight`, is that of all answers, also where it is a ratio.
        """
        check_consistent_length(X, y)
        weight = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X, dtype=np.float64)
        check_is_fitted(self)
        objective, target = self._objective(), self._encoded(y)
        if "y_true" in self._call_context:
            # An oracle, which `score` tells as well.
            context = {"y_true": y, **context}
        routed = self._respond(X, objective.asks, budget=budget, **context)
        answers = routed.y_pred
        if objective.asks == "predict":
            answers = self._encoded(answers)
        return RowQuality(objective.rows(target, answers, weight), routed.route, routed.cost)


class QualityMixin(RowQualityMixin):
    """Mixin for routers whose `quality` may be anything; stands before `BaseRouter`."""

    _weighs = True

    def _asks(self):
        return asks_of(self.quality)

    def _objective_of(self, target):
        if isinstance(target, Numbers):
            return objective_of_numbers(self.quality)
        return objective_of_labels(self.quality, target.classes)

    def _rates(self):
        """What one unit of cost is worth in the unit of quality: under a budget, and without."""
        if getattr(self, "exchange_rate", None) is None:
            return 0.0, float(is_money(self.quality))
        return (float(self.exchange_rate),) * 2


class LabelQualityMixin(RowQualityMixin):
    """Mixin for routers that keep or replace labels by rules: qualities that are means of them."""

    def _objective_of(self, target):
        return objective_of_labels(
            self.quality,
            target.classes,
            several=isinstance(target, MultiLabel),
            takes=MEANS_OF_LABELS,
            who=type(self).__name__,
        )

    def _rows_quality(self, target):
        """From true and given answers, encoded, to one number per row."""
        return self._objective().bound(target).of
