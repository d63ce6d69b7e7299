"""What the gating estimators share: features bought per row, a gate, two models."""

import importlib
from collections.abc import Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from skroute.base import (
    ROUNDING,
    CostAwareMixin,
    Plan,
    check_affordable,
    check_costs,
    note_failure,
)
from skroute.gating._acquisition import FeatureLedger, LazyFeatures, check_bought
from skroute.gating._levels import lowest_level
from skroute.utils._compat import Interval, Real, StrOptions, check_sample_weight, num_samples


class Decision(NamedTuple):
    """What was decided for some rows.

    Attributes
    ----------
    sent : ndarray of shape (n_rows,), dtype=bool
        Rows for the full model.
    scores : ndarray of shape (n_rows, n_outputs) or None
        Output of the cheap model, if the gate needed it.
    inner : Decision or None
        What the full model decided for its rows, if it is a gating estimator itself.
    evaluation : ndarray of shape (n_rows,)
        Evaluation costs of the models, in all.
    """

    sent: Any
    scores: Any
    inner: Any
    evaluation: Any


class GatingBase(CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Base of the estimators that buy features row by row.

    A subclass sets in `fit`, before ``choices_``: ``classes_``, ``features_used_`` (dict
    with the positions for ``"gate"``, ``"cheap"`` and, with a full model, ``"full"``),
    ``group_of_``, ``group_costs_``, ``model_costs_`` (gate, cheap, full),
    ``cost_table_`` and ``cuts_`` (of the held-out gate); it implements
    ``_cheap_scores(values)`` and ``_gate_scores(values, scores)``.
    """

    _acts_at_once = ("budget", "policy")
    _parameter_constraints: dict = {
        "feature_costs": ["array-like", Mapping, None],
        "feature_groups": [Mapping, None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "policy": [StrOptions({"online", "batch"})],
    }

    # Whether the gate is a function of the cheap model's output.
    _gate_reads_cheap = False
    policy = "online"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    # Fit ------------------------------------------------------------------------------

    def _checked(self, X, y, sample_weight):
        """Numeric rows, class indices and weights; sets ``classes_``."""
        allow_nan = self.__sklearn_tags__().input_tags.allow_nan
        with naming_text(X):
            values, y = validate_data(
                self, X, y, dtype=np.float64, ensure_all_finite="allow-nan" if allow_nan else True
            )
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
        return values, encoded, weight

    def _set_groups(self):
        """``group_of_``, ``group_costs_``, ``group_names_`` from the parameters."""
        names = self._column_names()
        if self.feature_groups is None:
            group_names, group_of = names, np.arange(len(names))
        else:
            group_names = list(self.feature_groups)
            group_of = np.full(len(names), -1)
            for index, (group, columns) in enumerate(self.feature_groups.items()):
                for column in columns:
                    position = self._position(column, f"feature_groups[{group!r}]")
                    if group_of[position] >= 0:
                        raise ValueError(
                            f"feature_groups has column {column!r} in "
                            f"{group_names[group_of[position]]!r} and in {group!r}; a column "
                            "belongs to one group."
                        )
                    group_of[position] = index
            if (group_of < 0).any():
                left_out = [names[i] for i in np.flatnonzero(group_of < 0)]
                raise ValueError(
                    f"feature_groups leaves out {left_out!r}. Every column belongs to a group; a "
                    "column that is bought alone is a group of one."
                )
            if empty := [name for i, name in enumerate(group_names) if not (group_of == i).any()]:
                raise ValueError(f"feature_groups has no column in {empty!r}.")
        self.group_names_ = list(group_names)
        self.group_of_ = group_of.astype(np.intp)
        self.group_costs_ = (
            np.ones(len(group_names))
            if self.feature_costs is None
            else check_costs(self.feature_costs, group_names, name="feature_costs")
        )

    def _column_names(self):
        names = getattr(self, "feature_names_in_", None)
        return list(range(self.n_features_in_)) if names is None else names.tolist()

    def _position(self, column, where):
        """Position of a column given by name or position."""
        names = self._column_names()
        if column in names:
            return names.index(column)
        if isinstance(column, Integral) and 0 <= column < len(names):
            return int(column)
        renamed = [name for name in names if isinstance(name, str) and str(column) in name]
        hint = f" Is it encoded in {renamed!r}? Then name these." if renamed else ""
        raise ValueError(f"{where} names column {column!r}, which is not among {names!r}.{hint}")

    def _set_cost_table(self, mean_full_cost=None):
        """Cost of a row by choice: what `predict` spends if it takes that choice."""
        gate, cheap, full = self.model_costs_
        used = self.features_used_

        def feature_cost(*names):
            columns = np.concatenate([used[name] for name in names])
            return float(self.group_costs_[np.unique(self.group_of_[columns])].sum())

        table = {"gate": feature_cost("gate"), "cheap": feature_cost("gate", "cheap")}
        table["gate"] += gate + (cheap if self._gate_reads_cheap else 0.0)
        table["cheap"] += gate + cheap
        if "full" in used:
            table["full"] = (
                feature_cost("gate", "full") + full + table["gate"] - feature_cost("gate")
            )
            self.full_cost_bound_ = table["full"]
            if mean_full_cost is not None:
                table["full"] = mean_full_cost
        self.cost_table_ = {choice: float(cost) for choice, cost in table.items()}

    # Predict --------------------------------------------------------------------------

    def _check_X(self, X):
        if isinstance(X, LazyFeatures):
            return X
        return LazyFeatures(X) if isinstance(X, Mapping) else super()._check_X(X)

    def _least(self):
        return min(cost for name, cost in self.cost_table_.items() if name != "gate")

    def _offers_proba(self):
        return True

    def _ledger(self, X):
        shape = num_samples(X), self.n_features_in_
        groups = self.group_of_, len(self.group_costs_)
        allow_nan = self.__sklearn_tags__().input_tags.allow_nan
        if isinstance(X, LazyFeatures):
            names = self._column_names()

            def read(columns, rows):
                asked = [names[column] for column in columns]
                values = X.read(asked, rows)
                check_bought(values, asked, allow_nan=allow_nan)
                return values

            return FeatureLedger(*shape, *groups, read=read)
        with naming_text(X):
            values = validate_data(
                self,
                X,
                reset=False,
                dtype=np.float64,
                ensure_all_finite="allow-nan" if allow_nan else True,
            )
        return FeatureLedger(*shape, *groups, values=values)

    def _plan(self, X, budget):
        ledger = self._ledger(X)
        rows = np.arange(num_samples(X))
        decision = self._decide(ledger, rows, budget)
        cost = ledger.planned @ self.group_costs_ + decision.evaluation
        return Plan(decision.sent.astype(np.int64), cost, (ledger, decision))

    def _answer(self, X, plan, response):
        ledger, decision = plan.state
        return self._reply(ledger, np.arange(len(plan.route)), decision, response, X)

    def _decide(self, ledger, rows, budget):
        """Run the gate on rows of a ledger and plan what their answers will need."""
        used = self.features_used_
        gate_cost, cheap_cost, full_cost = self.model_costs_
        self._check_feasible(budget)
        evaluation = np.zeros(len(rows))
        scores = inner = None
        sent = np.zeros(len(rows), dtype=bool)
        if "full" in used and self.p_full > 0:
            ledger.plan(rows, used["gate"])
            values = ledger.take(rows, used["gate"])
            if self._gate_reads_cheap:
                scores = self._cheap_scores(values)
            gate = self._gate_scores(values, scores)
            sent = self._send(gate, budget)
            evaluation += gate_cost
        ledger.plan(rows[~sent], used["cheap"])
        evaluation[~sent] += cheap_cost
        if sent.any():
            if self._gate_reads_cheap:
                evaluation[sent] += cheap_cost
            evaluation[sent] += full_cost
            if hasattr(self.estimator_, "_decide"):
                inner = self.estimator_._decide(
                    ledger, rows[sent], self.estimator_._effective_budget(None)
                )
                evaluation[sent] += inner.evaluation
            else:
                ledger.plan(rows[sent], used["full"])
        return Decision(sent, scores, inner, evaluation)

    def _check_feasible(self, budget):
        check_affordable(budget, self._least(), advice="Raise gamma to buy fewer features.")

    def _send(self, gate, budget):
        """Rows that go to the full model: gate > 0, the highest first while the budget lasts."""
        sent = gate > 0
        if not np.isfinite(budget):
            return sent
        cheap, full = self.cost_table_["cheap"], self.cost_table_["full"]
        if self.policy == "batch":
            extra = self.full_cost_bound_ - cheap
            if extra > 0:
                spare = max((budget - cheap) * len(gate), 0.0)
                affordable = int(spare / extra * (1 + ROUNDING))
                order = np.argsort(-gate, kind="stable")
                sent[order[affordable:]] = False
            return sent
        if full > cheap:
            share = (budget - cheap) / (full - cheap)
            if share < self.cuts_.share[1]:
                # Not even the held-out rows with the highest score.
                return np.zeros(len(gate), dtype=bool)
            return gate > max(0.0, lowest_level(self.cuts_, share) if share < 1 else 0.0)
        return sent

    def _reply(self, ledger, rows, decision, response, X):
        """Answers for rows, calling the full model on those that were sent only."""
        sent, kept = np.flatnonzero(decision.sent), np.flatnonzero(~decision.sent)
        parts = []
        if len(kept):
            if decision.scores is None:
                values = ledger.take(rows[kept], self.features_used_["cheap"])
                scores = self._cheap_scores(values)
            else:
                scores = decision.scores[kept]
            parts.append((kept, self._cheap_answer(scores, response)))
        if len(sent):
            parts.append((sent, self._full_answer(ledger, rows[sent], decision, response, X)))
        first = parts[0][1]
        dtype = np.result_type(*(part for _, part in parts)) if len(parts) > 1 else first.dtype
        out = np.empty((len(rows), *first.shape[1:]), dtype=dtype)
        for at, part in parts:
            out[at] = part
        return out

    def _cheap_answer(self, scores, response):
        if response == "predict_proba":
            return self._cheap_proba(scores)
        return self.classes_[self._cheap_proba(scores).argmax(axis=1)]

    def _full_answer(self, ledger, rows, decision, response, X):
        model = self.estimator_
        if decision.inner is not None:
            answer = model._reply(ledger, rows, decision.inner, response, X)
        else:
            with note_failure("full", len(rows), response):
                answer = getattr(model, response)(self._full_input(ledger, rows, X))
        if response == "predict_proba":
            return answer[:, np.argsort(model.classes_)]
        return answer

    def _full_input(self, ledger, rows, X):
        columns = self.features_used_["full"]
        if not isinstance(X, LazyFeatures):
            rows = _safe_indexing(X, rows)
            return (
                _safe_indexing(rows, columns, axis=1)
                if len(columns) < self.n_features_in_
                else rows
            )
        values = ledger.take(rows, columns)[:, columns]
        if self.frame_ is None:
            return values
        # The full model was fitted on a data frame: it gets one of the same library.
        frame = importlib.import_module(self.frame_).DataFrame
        names = [self._column_names()[column] for column in columns]
        return frame(dict(zip(names, values.T)))


@contextmanager
def naming_text(X):
    """Name the columns that hold text where numbers must be, and show none of it."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        names = list(getattr(X, "columns", range(np.shape(X)[1])))
        table = np.asarray(X, dtype=object)
        text = [
            name for name, cells in zip(names, table.T) if any(isinstance(c, str) for c in cells)
        ]
        raise ValueError(
            f"X must be numeric, but there is text in column(s) {text!r}. Encode it before, for "
            "example with OrdinalEncoder or OneHotEncoder in a ColumnTransformer with "
            'set_output(transform="pandas"), which keeps the names.'
        ) from None
