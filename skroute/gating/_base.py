"""What the gating estimators share: features bought per row."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_X_y, validate_data

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.features._groups import FeatureGroupsMixin
from skroute.features._lazy import LazyFeatures
from skroute.features._raw_rows import RawRows
from skroute.gating._acquisition import FeatureLedger, check_bought
from skroute.gating._class_codes import name_free
from skroute.gating._columns import ColumnCodes
from skroute.utils._compat import Interval, Real, check_sample_weight, num_samples
from skroute.utils._once import once_of
from skroute.utils._tensors import on_host


class Decision(NamedTuple):
    """What was decided for some rows.

    Attributes
    ----------
    sent : ndarray of shape (n_rows,), dtype=bool
        Rows for the full model.
    scores : ndarray of shape (n_rows, n_outputs) or None
        Output of the cheap model, if deciding needed it.
    inner : Decision or None
        What the full model decided for its rows, if it is a gating estimator itself.
    evaluation : ndarray of shape (n_rows,)
        Evaluation costs of the models, in all.
    """

    sent: Any
    scores: Any
    inner: Any
    evaluation: Any

    @classmethod
    def nobody_sent(cls, n_rows, scores=None):
        """One model answers all rows."""
        return cls(np.zeros(n_rows, dtype=bool), scores, None, np.zeros(n_rows))


class FeatureBuyer(FeatureGroupsMixin, CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Base of the estimators that buy features row by row.

    A subclass sets in `_fit`, before ``choices_``: ``features_used_`` (dict with the
    positions by model) and ``cost_table_``; it implements ``_decide(ledger, rows,
    budget)``, and ``_own_proba(ledger, rows, decision)`` or ``_reply``.
    """

    _acts_at_once: tuple[str, ...] = ("budget",)
    # Whether data frames with categories are read as they are.
    _reads_categories = False
    _codes: ColumnCodes | None = None
    _raw_rows: RawRows | None = None
    _parameter_constraints: dict = {
        "feature_costs": ["array-like", Mapping, None],
        "feature_groups": [Mapping, None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _finite(self):
        # What is missing of a frame with categories is for the models to take or to refuse.
        if self._codes is not None:
            return "allow-nan"
        return "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True

    def _checked(self, X, y, sample_weight):
        """Numeric rows, codes of classes and weights; sets ``classes_`` and the groups."""
        X, y = on_host(X), on_host(y)
        self._codes = ColumnCodes.of(X) if self._reads_categories else None
        self._raw_rows = None if self._codes is None else RawRows.of(X)
        if self._codes is not None:
            validate_data(self, X, skip_check_array=True)
            values, y = check_X_y(
                self._codes.encode(X), y, dtype=np.float64, ensure_all_finite=self._finite()
            )
        else:
            values, y = validate_data(
                self, X, y, dtype=np.float64, ensure_all_finite=self._finite()
            )
        self._set_groups()
        check_classification_targets(y)
        weight = check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        self.classes_, encoded = np.unique(y, return_inverse=True)
        present = np.unique(encoded[weight > 0])
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes with positive weight, got "
                f"one class: {self.classes_[present]!r}."
            )
        encoded, self._named = name_free(encoded, values, weight)
        return values, encoded, weight

    @property
    def _categorical(self):
        """Which columns hold codes of categories; None where none does."""
        return None if self._codes is None else self._codes.categorical

    def _feature_cost(self, *columns):
        """Cost of buying all of these columns."""
        groups = np.unique(self.group_of_[np.concatenate(columns)])
        return float(self.group_costs_[groups].sum())

    def _check_X(self, X):
        if isinstance(X, LazyFeatures):
            return X
        return LazyFeatures(X) if isinstance(X, Mapping) else on_host(super()._check_X(X))

    def _least(self):
        return min(cost for name, cost in self.cost_table_.items() if name != "gate")

    def _check_feasible(self, budget):
        check_affordable(budget, self._least(), advice="Raise gamma to buy fewer features.")

    def _offers_proba(self):
        return True

    def _ledger(self, X):
        """The rows as a ledger: bought already if X is a table, else to be asked for."""
        if self._codes is not None and hasattr(X, "columns"):
            values = check_array(
                self._codes.encode(X), dtype=np.float64, ensure_all_finite=self._finite()
            )
            return self._ledger_of(values)
        if not isinstance(X, LazyFeatures):
            # Feature names were checked on X itself.
            values = validate_data(
                self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite()
            )
            return self._ledger_of(values)
        names, allow_nan = self._column_names(), self._finite() == "allow-nan"

        def read(columns, rows):
            asked = [names[column] for column in columns]
            if self._codes is None:
                values = X.read(asked, rows)
            else:
                cells = X.fetch(asked, rows)
                values = self._codes.encode_cells(asked, cells)
                ledger.keep(columns, rows, cells)
            check_bought(values, asked, allow_nan=allow_nan)
            return values

        shape = num_samples(X), self.n_features_in_
        ledger = FeatureLedger(*shape, self.group_of_, len(self.group_costs_), read=read)
        return ledger

    def _ledger_of(self, values):
        return FeatureLedger(*values.shape, self.group_of_, len(self.group_costs_), values=values)

    def _plan(self, X, budget):
        ledger = once_of(self).whole("ledger", lambda: self._ledger(X)).anew()
        decision = self._decide(ledger, np.arange(num_samples(X)), budget)
        cost = ledger.planned @ self.group_costs_ + decision.evaluation
        return Plan(decision.sent.astype(np.int64), cost, (ledger, decision))

    def _answer(self, X, plan, response):
        ledger, decision = plan.state
        return self._reply(ledger, np.arange(len(plan.route)), decision, response, X)

    def _reply(self, ledger, rows, decision, response, X):
        """Answers for rows of a ledger; X is what the user gave."""
        return self._answers_of(self._own_proba(ledger, rows, decision), response)

    def _answers_of(self, proba, response):
        """Answers of probabilities by code of class."""
        proba = proba[:, np.argsort(self._named)]
        return proba if response == "predict_proba" else self.classes_[proba.argmax(axis=1)]
