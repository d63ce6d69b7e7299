"""A cheap model and a gate before a full model."""

import importlib
from collections.abc import Mapping
from functools import cached_property
from numbers import Integral

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skroute.base import ROUNDING, check_costs, dispatch, note_failure
from skroute.features._lazy import LazyFeatures
from skroute.gating._base import Decision, FeatureBuyer
from skroute.gating._gates import Problem, Rows
from skroute.gating._levels import Ranks, find_cuts, lowest_level, row_keys
from skroute.gating._objective import full_losses, log_probabilities
from skroute.gating._out_of_sample import find_splits, fit_full, hold_out, out_of_sample_proba
from skroute.gating._pairs import gate_of
from skroute.gating._validated import ValidatedGate, ValidatedRows, warn_of_nobody
from skroute.utils._compat import (
    HasMethods,
    Interval,
    Real,
    StrOptions,
    VisualBlock,
    num_samples,
    routing_enabled,
)
from skroute.utils._once import once_of
from skroute.utils._tensors import on_host


class Prepared:
    """What a fit needs and what does not depend on `p_full` and `gamma`.

    Parameters
    ----------
    rows : Rows
    held_out : ndarray of shape (n_rows,), dtype=bool
        Rows that set the level of the gate. Without a gate all rows are learned from.
    ready : callable
        Makes of rows what fits to them share.
    """

    def __init__(self, rows, held_out, ready):
        self.rows = rows
        self.held_out = held_out
        self._ready = ready

    @cached_property
    def gated(self):
        """Rows to learn a cheap model and a gate from, made ready."""
        rows = self.rows.of(~self.held_out)
        return rows, self._ready(rows)

    @cached_property
    def alone(self):
        """Rows to learn a cheap model alone from, made ready."""
        return self.rows, self._ready(self.rows)


class GatedBuyer(ValidatedGate, MetaEstimatorMixin, FeatureBuyer):
    """Base of the estimators with a cheap model, a gate and a full model.

    A subclass implements ``_fit_pair(prepared, problem, start, progress)``, which calls
    ``_set_pair``, and ``_ready(rows)``.
    """

    _acts_at_once = ("budget", "policy")
    _reads_categories = True
    _parameter_constraints: dict = {
        **FeatureBuyer._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict", "predict_proba"])],
        "p_full": [Interval(Real, 0, 1, closed="both")],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "full_features": ["array-like", None],
        "model_costs": [Mapping, None],
        "cv": ["cv_object"],
        "policy": [StrOptions({"online", "batch"})],
        "n_jobs": [Integral, None],
    }

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, **params):
        """Fit the full model, then the cheap model and the gate.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows; NaN is allowed where the full model takes it. Columns of a data frame may be
            categories, as texts: boosted trees read them as LightGBM's categories, linear
            models one by one, with a sign for what is missing. The full model gets the frame as
            it is, so that it may be a pipeline with encoders of its own.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; passed to the full model too, if it takes them.

        **params : dict
            With metadata routing enabled: parameters for the full model's `fit`, and
            ``groups`` for `cv`.

        Returns
        -------
        self
            After a failure it is not fitted.
        """
        return super().fit(X, y, sample_weight=sample_weight, **params)

    def _fit(self, X, y, *, task, sample_weight=None, **params):
        with task.step("fit full"):
            prepared = self._prepare(X, y, sample_weight, params)
        self._fit_prepared(prepared, progress=lambda: task.step("alternate"))

    def _prepare(self, X, y, sample_weight, params):
        """Fit the full model, and all else that does not depend on `p_full` and `gamma`."""
        X, y = indexable(on_host(X), on_host(y))
        values, encoded, weight = self._checked(X, y, sample_weight)
        y = self.classes_[self._named[encoded]]
        fit_params, split_params = self._inner_params(sample_weight, weight, params)
        names = ["gate", "cheap", "full"]
        costs = dict.fromkeys(names, 0.0) if self.model_costs is None else self.model_costs
        self.model_costs_ = check_costs(costs, names, name="model_costs")
        columns = self._full_columns()
        splits = find_splits(self.cv, X, y, split_params)
        held_out = hold_out(splits, encoded, weight)
        self.frame_ = type(X).__module__.split(".")[0] if hasattr(X, "columns") else None
        if self.full_features is not None:
            X = _safe_indexing(X, columns, axis=1)
        self.estimator_ = full = fit_full(self.estimator, X, y, fit_params)
        if not np.array_equal(np.sort(full.classes_), self.classes_):
            raise ValueError(
                f"estimator must know the classes {self.classes_!r} of y, but its classes_ are "
                f"{full.classes_!r}."
            )
        p0 = out_of_sample_proba(self.estimator, full, X, y, splits, fit_params, self.n_jobs)
        if isinstance(full, FeatureBuyer):
            columns = np.unique(np.concatenate(list(full.features_used_.values())))
        self._full = columns
        # A row of weight 0 must leave no trace, not even in the bins of LightGBM.
        kept = weight > 0
        rows = Rows(values, encoded, full_losses(p0[:, 0]), weight, p0[:, 1]).of(kept)
        return Prepared(rows, held_out[kept], self._ready)

    def _inner_params(self, sample_weight, weight, params):
        """Parameters for the full model's `fit` and for the splitter."""
        extra = {} if sample_weight is None else {"sample_weight": weight}
        if routing_enabled():
            routed = self._route_metadata(extra | params)
            return routed["estimator"]["fit"], routed["splitter"]["split"]
        self._route_metadata(params)
        takes_weight = has_fit_parameter(self.estimator, "sample_weight")
        if extra and not takes_weight and not isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                f"sample_weight was given, but the full model {self.estimator!r} does not take it. "
                "Leave it out, or enable metadata routing to weight the cheap model and the gate "
                "only."
            )
        return extra, {}

    def _full_columns(self):
        if self.full_features is None:
            return np.arange(self.n_features_in_)
        if isinstance(self.estimator, FeatureBuyer):
            raise ValueError(
                "full_features must be None where estimator is a gating estimator itself, got "
                f"{self.full_features!r}. Give it to the innermost one."
            )
        columns = [self._position(column, "full_features") for column in self.full_features]
        if not columns:
            raise ValueError("full_features must name at least one column, got none.")
        return np.unique(columns)

    def _fit_prepared(self, prepared, start=None, progress=None):
        """Fit f1 and g for the present `p_full` and `gamma`; the start for the next `p_full`."""
        rows, ready = prepared.gated if self.p_full > 0 else prepared.alone
        problem = Problem(
            len(self.classes_), self.p_full, self.gamma, self.group_of_, self.group_costs_
        )
        held_out = prepared.rows.of(prepared.held_out)
        pair, start = self._fit_pair(rows, held_out, ready, problem, start, progress)
        self._set_level(pair, prepared.rows, prepared.held_out)
        self._set_costs(prepared.rows)
        budget = self._effective_budget(None)
        self._check_feasible(budget)
        if self.p_full > 0 and self.cuts_ is None and np.isfinite(budget):
            warn_of_nobody(self._validated, budget, self.cost_table_["cheap"])
        self.choices_ = ["cheap", "full"]
        return start

    def _set_level(self, pair, rows, held_out):
        """Lower the gate to a level that comes from rows that the pair has not seen.

        The level is never so low that more than `p_full` of the training rows are sent.
        """
        self.pair_, self.cuts_, self._validated = pair, None, None
        if self.p_full == 0:
            return
        out = rows.of(held_out)
        while pair is not None:
            gate = gate_of(pair, rows.values)
            least = lowest_level(find_cuts(gate, rows.weight), self.p_full)
            gate = gate[held_out]

            def level(part, pair=pair, gate=gate, least=least):
                """From some of the held-out rows."""
                return max(self._level(pair, gate[part], out.of(part)), least)

            keys = row_keys(out.values[:, pair.gate_features])
            validated = ValidatedRows.of(level, gate, keys, out, pair.cheap_scores(out.values))
            if self._validated is None:
                self._validated = validated
            chosen = level(np.arange(len(gate)))
            if chosen < np.inf:
                self._validated = validated
                self.cuts_ = find_cuts(gate, out.weight).lowered(chosen)
                self._ranks = Ranks.of(gate - chosen, out.weight)
                self.pair_ = pair.lowered(chosen)
                return
            pair = pair.simpler

    def _set_costs(self, rows):
        """What a row costs by the choice that is made for it."""
        pair, (gate, cheap, full) = self.pair_, self.model_costs_
        gate_features = pair.gate_features
        if self.cuts_ is None:
            # Nobody is sent, and no gate is asked.
            gate, gate_features = 0.0, gate_features[:0]
        self.features_used_ = {
            "gate": gate_features,
            "cheap": pair.cheap_features,
            "full": self._full,
        }
        looked = gate + (cheap if pair.reads_cheap else 0.0)
        of_gate = self._feature_cost(gate_features)
        of_both = self._feature_cost(gate_features, pair.cheap_features)
        of_all = self._feature_cost(gate_features, self._full)
        self.full_cost_bound_ = float(of_all + looked + full)
        self.cost_table_ = {
            "gate": float(of_gate + looked),
            "cheap": float(of_both + gate + cheap),
            "full": self.full_cost_bound_,
        }
        if isinstance(self.estimator_, FeatureBuyer) and self.cuts_ is not None:
            # A nested full model does not buy all that it may: the mean over training rows.
            ledger, every = self._ledger_of(rows.values), np.arange(len(rows.values))
            ledger.plan(every, pair.gate_features)
            inner = self.estimator_
            decision = inner._decide(ledger, every, inner._effective_budget(None))
            features = ledger.planned @ self.group_costs_
            spent = np.average(features + decision.evaluation, weights=rows.weight)
            self.cost_table_["full"] = float(spent + looked + full)

    # Predict --------------------------------------------------------------------------

    def _decide(self, ledger, rows, budget):
        """Run the gate on rows of a ledger and plan what their answers will need."""
        gate_cost, cheap_cost, full_cost = self.model_costs_
        self._check_feasible(budget)
        evaluation = np.zeros(len(rows))
        scores = inner = None
        sent = np.zeros(len(rows), dtype=bool)
        if self.cuts_ is not None:
            ledger.plan(rows, self.pair_.gate_features)
            gate, scores = once_of(self).whole("look", lambda: self._look(ledger, rows))

            def keys():
                values = ledger.take(rows, self.pair_.gate_features)
                return row_keys(values[:, self.pair_.gate_features])

            sent = self._send(gate, budget, keys)
            evaluation += gate_cost
        ledger.plan(rows[~sent], self.pair_.cheap_features)
        evaluation[~sent] += cheap_cost
        if sent.any():
            evaluation[sent] += full_cost + (cheap_cost if self.pair_.reads_cheap else 0.0)
            if isinstance(self.estimator_, FeatureBuyer):
                own = self.estimator_._effective_budget(None)
                inner = self.estimator_._decide(ledger, rows[sent], own)
                evaluation[sent] += inner.evaluation
            else:
                ledger.plan(rows[sent], self._full)
        return Decision(sent, scores, inner, evaluation)

    def _look(self, ledger, rows):
        """Gate scores of rows, and the cheap model's where the gate reads them."""
        values = ledger.take(rows, self.pair_.gate_features)
        scores = self.pair_.cheap_scores(values) if self.pair_.reads_cheap else None
        return self.pair_.gate_scores(values, scores), scores

    def _share(self, budget):
        """Share of rows that a budget sends; infinite where it pays for all."""
        cheap, full = self.cost_table_["cheap"], self.cost_table_["full"]
        if full <= cheap or budget >= full * (1 - ROUNDING):
            return np.inf
        return max((budget - cheap) / (full - cheap), 0.0)

    def _send(self, gate, budget, keys):
        """Rows that go to the full model: gate > 0, the highest first while the budget lasts.

        Of rows that tie as many are sent as the budget pays for, by their keys.
        """
        sent = gate > 0
        if self.policy == "batch" and np.isfinite(budget):
            cheap = self.cost_table_["cheap"]
            extra = self.full_cost_bound_ - cheap
            if extra > 0:
                spare = max((budget - cheap) * len(gate), 0.0)
                affordable = int(spare / extra * (1 + ROUNDING))
                order = np.argsort(-gate, kind="stable")
                sent[order[affordable:]] = False
        elif self.policy == "online" and (share := self._share(budget)) < 1:
            sent &= self._ranks.of_rows(gate, keys()) < share * (1 + ROUNDING)
        return sent

    def _reply(self, ledger, rows, decision, response, X):
        """Answers for rows, calling the full model on those that were sent only."""

        def answer(sent, at):
            if sent:
                return self._full_answer(ledger, rows[at], decision, response, X)
            if decision.scores is None:
                values = ledger.take(rows[at], self.pair_.cheap_features)
                scores = self.pair_.cheap_scores(values)
            else:
                scores = decision.scores[at]
            return self._answers_of(np.exp(log_probabilities(scores)), response)

        return dispatch(decision.sent.astype(np.intp), answer)

    def _full_answer(self, ledger, rows, decision, response, X):
        model = self.estimator_
        if decision.inner is not None:
            answer = model._reply(ledger, rows, decision.inner, response, X)
        else:

            def ask(rows):
                with note_failure("full", len(rows), response):
                    return getattr(model, response)(self._full_input(ledger, rows, X))

            answer = once_of(self).rows(("full", response), rows, len(ledger.planned), ask)
        if response == "predict_proba":
            return answer[:, np.argsort(model.classes_)]
        return answer

    def _full_input(self, ledger, rows, X):
        columns = self._full
        if not isinstance(X, LazyFeatures):
            part = _safe_indexing(X, rows)
            every = len(columns) == self.n_features_in_
            return part if every else _safe_indexing(part, columns, axis=1)
        values = ledger.take(rows, columns)[:, columns]
        if self.frame_ is None:
            return values
        if self._raw_rows is not None:
            cells = {column: ledger.cells[column][rows] for column in columns}
            part = self._raw_rows.frame(cells, len(rows))
            return _safe_indexing(part, columns, axis=1)
        # The full model was fitted on a data frame: it gets one of the same library.
        frame = importlib.import_module(self.frame_).DataFrame
        names = [self._column_names()[column] for column in columns]
        return frame(dict(zip(names, values.T)))

    def gate_function(self, X):
        """The gate g; rows with ``g > 0`` go to the full model.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows. Of lazy features only those of the gate are asked for.

        Returns
        -------
        ndarray of shape (n_samples,)
            ``-inf`` everywhere if no row is ever sent: with ``p_full=0``, and where no share of the
            held-out rows would have gained.
        """
        check_is_fitted(self)
        X = self._check_X(X)
        ledger, rows = self._ledger(X), np.arange(num_samples(X))
        if self.cuts_ is None:
            return np.full(len(rows), -np.inf)
        return self._look(ledger, rows)[0]

    def get_metadata_routing(self):
        """Routing of `sample_weight` and other metadata to the full model and the splitter.

        Returns
        -------
        MetadataRouter
        """
        fit = MethodMapping().add(caller="fit", callee="fit")
        split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=fit)
        return router.add(splitter=check_cv(self.cv, classifier=True), method_mapping=split)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are asked for before parameters are validated.
        if hasattr(self.estimator, "predict_proba"):
            # A pipeline does not say what its transformers take; its own fit does.
            tags.input_tags.allow_nan = isinstance(self.estimator, Pipeline) or (
                get_tags(self.estimator).input_tags.allow_nan
            )
        return tags

    def _sk_visual_block_(self):
        return VisualBlock("parallel", [self.estimator], names=["full"], dash_wrapped=False)
