"""What the estimators with a cheap and a full model share."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skroute.base import check_costs
from skroute.gating._acquisition import FeatureLedger
from skroute.gating._base import GatingBase
from skroute.gating._forest import forest_scores
from skroute.gating._full import find_splits, fit_full, hold_out, out_of_sample_proba
from skroute.gating._levels import find_cuts, lowest_level
from skroute.gating._objective import doubt, full_losses, log_probabilities
from skroute.utils._compat import (
    HasMethods,
    Interval,
    Real,
    VisualBlock,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)


class Prepared(NamedTuple):
    """What a fit needs and what does not depend on `p_full` and `gamma`."""

    values: Any
    y: Any
    full_loss: Any
    weight: Any
    held_out: Any
    full_right: Any
    boosting: Any = None


class PairMixin:
    """Predictions of a cheap model and a gate held as arrays."""

    def _cheap_scores(self, values):
        if "coef" in self.pair_:
            coef, intercept = self.pair_["coef"], self.pair_["intercept"]
            return values[:, self._cheap] @ coef[self._cheap, :-1] + intercept[:-1]
        n_cheap = len(self.pair_["base"]) - 1
        scores = forest_scores(self.pair_["forest"], values, range(n_cheap))
        return scores + self.pair_["base"][:-1]

    def _gate_scores(self, values, scores):
        if "coef" in self.pair_:
            coef, intercept = self.pair_["coef"], self.pair_["intercept"]
            return values[:, self._gate] @ coef[self._gate, -1] + intercept[-1]
        slope, offset = self.pair_["doubt"]
        trees = forest_scores(self.pair_["forest"], values, [len(self.pair_["base"]) - 1])
        return slope * doubt(scores) + offset + trees[:, 0]

    @property
    def _cheap(self):
        return self.features_used_["cheap"]

    @property
    def _gate(self):
        return self.features_used_["gate"]

    def _cheap_proba(self, scores):
        return np.exp(log_probabilities(scores))


class TwoModelBase(PairMixin, MetaEstimatorMixin, GatingBase):
    """A cheap model and a gate before a full model, all of them fitted here."""

    _parameter_constraints: dict = {
        **GatingBase._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict", "predict_proba"])],
        "p_full": [Interval(Real, 0, 1, closed="both")],
        "full_features": ["array-like", None],
        "model_costs": [Mapping, None],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    def _prepare(self, X, y, sample_weight, params):
        """Everything that does not depend on `p_full` and `gamma`."""
        self._unfit()
        X, y = indexable(X, y)
        values, encoded, weight = self._checked(X, y, sample_weight)
        y = self.classes_[encoded]
        extra = {} if sample_weight is None else {"sample_weight": weight}
        fit_params, split_params = self._fit_params(extra, params)
        self._set_groups()
        self.model_costs_ = self._check_model_costs()
        full = self._full_columns()
        splits = find_splits(self.cv, X, y, split_params)
        held_out = hold_out(splits, len(y))
        self._check_held_out(held_out, encoded, weight)
        module = type(X).__module__.split(".")[0]
        self.frame_ = module if hasattr(X, "columns") else None
        if self.full_features is not None:
            X = _safe_indexing(X, full, axis=1)
        self.estimator_ = fit_full(self.estimator, X, y, fit_params)
        if not np.array_equal(np.sort(self.estimator_.classes_), self.classes_):
            raise ValueError(
                f"estimator must know the classes {self.classes_!r} of y, but its classes_ are "
                f"{self.estimator_.classes_!r}."
            )
        p0 = out_of_sample_proba(
            self.estimator, self.estimator_, X, y, splits, fit_params, self.n_jobs
        )
        if hasattr(self.estimator_, "_decide"):
            used = self.estimator_.features_used_
            full = np.unique(np.concatenate([used[name] for name in used]))
        self._full = full
        # A row of weight 0 must leave no trace, not even in the bins of LightGBM.
        kept = weight > 0
        parts = values, encoded, full_losses(p0[:, 0]), weight, held_out, p0[:, 1]
        return Prepared(*(part[kept] for part in parts))

    def _allows_nan(self):
        return False

    def _fit_params(self, extra, params):
        if routing_enabled():
            routed = process_routing(self, "fit", **extra, **params)
            return routed["estimator"]["fit"], routed["splitter"]["split"]
        raise_for_params(params, self, "fit")
        takes_weight = has_fit_parameter(self.estimator, "sample_weight") or isinstance(
            self.estimator, FrozenEstimator
        )
        if extra and not takes_weight:
            raise ValueError(
                f"sample_weight was given, but the full model {self.estimator!r} does not take it. "
                "Leave it out, or enable metadata routing to weight the cheap model and the gate "
                "only."
            )
        return extra, {}

    def _check_model_costs(self):
        names = ["gate", "cheap", "full"]
        if self.model_costs is None:
            return np.zeros(3)
        return check_costs(self.model_costs, names, name="model_costs")

    def _full_columns(self):
        if self.full_features is None:
            return np.arange(self.n_features_in_)
        if hasattr(self.estimator, "_decide"):
            raise ValueError(
                "full_features must be None where estimator is a gating estimator itself, got "
                f"{self.full_features!r}. Give it to the innermost one."
            )
        columns = [self._position(column, "full_features") for column in self.full_features]
        if not columns:
            raise ValueError("full_features must name at least one column, got none.")
        return np.unique(columns)

    def _split(self, prepared):
        """Rows to fit f1 and g on, and rows held out."""
        out = prepared.held_out
        parts = *prepared[:4], prepared.full_right
        return tuple(part[~out] for part in parts), tuple(part[out] for part in parts)

    def _standardised(self, prepared):
        """Rows with mean 0 and variance 1, so that one penalty suits all columns."""
        weight = prepared.weight / prepared.weight.sum()
        mean = weight @ prepared.values
        scale = np.sqrt(weight @ (prepared.values - mean) ** 2)
        # A constant column carries nothing; rounding must not blow it up.
        scale[scale <= 1e-12 * np.abs(mean)] = np.inf
        return prepared._replace(values=(prepared.values - mean) / scale), mean, scale

    def _check_held_out(self, held_out, y, weight):
        fitted = np.unique(y[~held_out & (weight > 0)])
        if len(fitted) < len(np.unique(y[weight > 0])) or not weight[held_out].any():
            raise ValueError(
                "cv must hold out rows of positive weight in its first test set and leave rows of "
                f"every class to learn from: it holds out {int(held_out.sum())} of {len(y)} rows "
                f"and leaves {len(fitted)} classes. Use fewer or other splits."
            )

    def _gate_of(self, values):
        scores = self._cheap_scores(values) if self._gate_reads_cheap else None
        return self._gate_scores(values, scores)

    def _set_linear(self, W, intercept, mean, scale):
        """Coefficients for raw columns."""
        coef = W / scale[:, None]
        intercept = intercept - mean @ coef
        self.pair_ = {"coef": coef, "intercept": intercept}
        self.features_used_ = {
            "gate": np.flatnonzero(coef[:, -1]),
            "cheap": np.flatnonzero(coef[:, :-1].any(axis=1)),
        }

    def _set_level(self, prepared, choose):
        """Lower the gate to the level that `choose` takes from its held-out scores.

        The level is never so low that more than `p_full` of the training rows are sent.
        """
        self.cuts_ = None
        if self.p_full == 0:
            return
        gate, out, weight = self._gate_of(prepared.values), prepared.held_out, prepared.weight
        level = max(
            choose(gate[out], weight[out]),
            lowest_level(find_cuts(gate, weight), self.p_full),
        )
        self.cuts_ = find_cuts(gate[out], weight[out]).lowered(level)
        self._lower_gate(level)

    def _lower_gate(self, level):
        self.pair_["intercept"][-1] -= level

    def _conclude(self, prepared):
        """Cost table, and at last ``choices_``."""
        self.features_used_["full"] = self._full
        self._set_cost_table()
        if hasattr(self.estimator_, "_decide"):
            self._set_cost_table(self._mean_nested_cost(prepared))
        self._check_feasible(self._effective_budget(None))
        self.choices_ = ["cheap", "full"]
        return self

    def _mean_nested_cost(self, prepared):
        """Mean cost of a row that a nested full model answers."""
        if self.p_full == 0:
            return None
        inner = self.estimator_
        rows = np.arange(len(prepared.values))
        ledger = FeatureLedger(
            *prepared.values.shape, self.group_of_, len(self.group_costs_), values=prepared.values
        )
        ledger.plan(rows, self.features_used_["gate"])
        decision = inner._decide(ledger, rows, inner._effective_budget(None))
        features = ledger.planned @ self.group_costs_
        gate_only = self.group_costs_[np.unique(self.group_of_[self.features_used_["gate"]])].sum()
        own = self.cost_table_["gate"] - gate_only + self.model_costs_[2]
        return float(np.average(features + decision.evaluation, weights=prepared.weight) + own)

    def gate_function(self, X):
        """The gate g; rows with ``g > 0`` go to the full model.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows. Of lazy features only those of the gate are asked for.

        Returns
        -------
        ndarray of shape (n_samples,)
            ``-inf`` everywhere if no row may be sent (``p_full=0``).
        """
        check_is_fitted(self)
        self._check_unchanged()
        X = self._check_X(X)
        ledger = self._ledger(X)
        rows = np.arange(num_samples(X))
        if self.p_full == 0:
            return np.full(len(rows), -np.inf)
        values = ledger.take(rows, self.features_used_["gate"])
        scores = self._cheap_scores(values) if self._gate_reads_cheap else None
        return self._gate_scores(values, scores)

    def get_metadata_routing(self):
        """Routing of `sample_weight` and other metadata to the full model.

        Returns
        -------
        MetadataRouter
        """
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self.estimator,
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
            .add(
                splitter=check_cv(self.cv, classifier=True),
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are asked for before parameters are validated.
        if hasattr(self.estimator, "predict_proba"):
            tags.input_tags.allow_nan = self._allows_nan()
        return tags

    def _sk_visual_block_(self):
        return VisualBlock("parallel", [self.estimator], names=["full"], dash_wrapped=False)
