"""Adapt: learn when the cheap model is enough (Nan and Saligrama, 2017)."""

from collections.abc import Mapping

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, check_affordable, check_costs, dispatch, note_failure
from skroute.base._inspection import may_take_weights
from skroute.gating._boosting import BoostedGate
from skroute.gating._buyer import FeatureBuyer, quality_of
from skroute.gating._levels import Ranks, lowest_level
from skroute.gating._linear import LinearGate
from skroute.gating._objective import Problem, Rows, full_losses, log_probabilities
from skroute.gating._out_of_sample import (
    find_splits,
    fit_full,
    hold_out,
    out_of_sample_proba,
)
from skroute.metrics._objectives import objective_of_labels
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    HasMethods,
    Interval,
    Real,
    VisualBlock,
    _safe_indexing,
    num_samples,
    routing_enabled,
    will_have,
)
from skroute.utils._frames import as_rows
from skroute.utils._named import align_by_class
from skroute.utils._row_hash import feature_keys
from skroute.utils._statistics import standard_error
from skroute.utils._tensors import on_host
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import (
    check_probabilities,
    relative_weights,
    warn,
    with_sum_one,
)

__all__ = ["AdaptGatingClassifier"]


class AdaptGatingClassifier(MetaEstimatorMixin, FeatureBuyer):
    """Buy cheap features first, and the rest only for rows that need the full model.

    Learns a cheap model f1 and a gate g on few, cheap features. A row with ``g > 0`` goes
    to the full model f0, `estimator`, which pays for the features that it reads and that
    were not bought before; the others are answered by f1. The three are trained to
    minimise

    .. math::

        \\frac1N \\sum_i (1-q_i) A_i + q_i B_i - H(q_i)
        + \\gamma \\sum_a c_a [a \\text{ is used by } f_1 \\text{ or } g],
        \\qquad \\tfrac1N \\sum_i q_i \\le p_{full},

    by alternating a closed-form step for q with a step for f1 and g [1]_. Here :math:`q_i` is the
    probability that row i is sent to f0, H the entropy, :math:`c_a` the cost of feature a,
    :math:`A_i = \\mathrm{loss}(f_1(x_i), y_i) + \\log(1 + e^{g(x_i)})` and
    :math:`B_i = -\\log p_0(y_i \\mid x_i) + \\log(1 + e^{-g(x_i)})`, with :math:`p_0` the
    probabilities of f0, out of sample.

    Parameters
    ----------
    estimator : classifier with predict_proba
        The full model f0. Fitted on all rows, and by `cv` to learn how good it is on rows
        that it has not seen; out-of-bag votes are used instead where it offers them
        (``oob_score=True``). A :class:`~sklearn.frozen.FrozenEstimator` is used as it is, and
        the rows given to `fit` should then be new to it. LightGBM whose `n_jobs` is None
        learns from fewer than 20,000 rows with one thread.

    gate : BoostedGate or LinearGate, default=None
        The kind of f1 and g, with its parameters: :class:`BoostedGate` (Algorithm 2) or
        :class:`LinearGate` (Algorithm 1). None: ``BoostedGate()``. To search its
        parameters, give one: ``gate=BoostedGate()`` has ``gate__learning_rate``.

    p_full : float, default=0.3
        Upper bound of the share of rows sent to the full model: exact on the training
        rows, and on new rows but for the luck of the rows held out. It holds where the full
        model is the cheaper one too. Rows that the gate
        scores alike are sent together or not at all. Raising it raises accuracy and cost.
        With 0 the full model is never asked, and f1 alone is GreedyMiser [2]_: boosted trees
        that pay for each feature once.

    gamma : float, default=0.001
        Price of features: a feature of cost c is bought if it lowers the mean loss, in
        nats, by ``gamma * c``. Raising it leaves fewer features to f1 and g.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group if `feature_groups` is given, in any one
        unit. A mapping goes by column name (by position, if X has no names) or by name of
        the group. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns
        (names or positions). Every column is in one group. None: each column is its own.

    full_features : array-like of column names or positions, default=None
        What the full model is given, in `fit` and later. None: all columns.

    model_costs : mapping, default=None
        Cost of evaluating ``"gate"``, ``"cheap"`` and ``"full"`` for a row, in the unit of
        `feature_costs`. A :class:`BoostedGate` reads the cheap model's output, so
        that the cheap model is evaluated on every row. None: all 0.

    cv : int, cross-validation generator or iterable, default=None
        Splits for all that is learned out of sample: the probabilities of the full model,
        and the level of the gate. The test rows of the first splits, as many as make a
        tenth of the rows, are not learned from by f1 and g. None: 5-fold. A splitter that
        needs groups gets them through metadata routing; a list of splits needs none.

    quality : str, cost matrix or callable, default="accuracy"
        What an answer is worth when the level of the gate is set and in ``validation_quality_``,
        as in :class:`~skroute.routing.OccamRouterClassifier`. The default asks only for right
        answers, since probabilities of a full model that is given, such as the votes of a forest,
        may be wrong where its answers are not. With rare positives take ``"log_loss"``,
        ``"brier"`` or a cost matrix. f1 and g are trained on log loss whatever it is, as the full
        model is on its own.

    budget : float, default=None
        Mean cost per sample, in the unit of `feature_costs`. The rows with the highest gate
        are sent while it lasts, and never one with ``g <= 0``; rows that tie where it ends are
        drawn by what the gate reads, and equal rows of a call are spread evenly. None: unlimited.

    policy : {"online", "batch"}, default="online"
        ``"online"`` compares the gate with a threshold learned on held-out rows, so that the
        budget holds on average; ``"batch"`` sorts the gate and never exceeds it.

    n_jobs : int, default=None
        Jobs for the cross-validation of the full model, and threads of LightGBM (one in a
        forked process, where OpenMP would wait for ever).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    estimator_ : classifier
        The fitted full model.

    choices_ : list of str
        ``["cheap", "full"]``, what `route` indexes.

    features_used_ : dict of ndarray
        Positions of the columns that the ``"gate"``, the ``"cheap"`` and the ``"full"`` model
        read.

    cost_table_ : dict of float
        Cost of a row up to the ``"gate"``'s decision, if answered by the ``"cheap"`` model,
        and by the ``"full"`` one. Features are paid once.

    objective_ : ndarray
        The objective on the rows learned from at each alternation. Never rises for a
        :class:`LinearGate`.

    held_out_objective_ : ndarray
        For a :class:`BoostedGate`, the objective on held-out rows, without feature costs;
        its minimum decides ``n_iter_``. Empty otherwise, and without a gate.

    n_iter_ : int
        Boosting rounds kept, or alternations.

    min_budget_ : float
        The smallest feasible budget: what a row costs that is answered by the cheap model.

    validation_quality_, validation_cost_ : float
        Mean `quality` of the held-out rows at `budget`, by online decisions, and what they
        cost. Each half of them is decided at the level and the threshold of the other half.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows. None of the four is there with
        ``p_full=0``, which holds no rows out.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    SequentialFeatureClassifier : Many decisions per row, and no full model that is given.
    skroute.metrics.BudgetSearchCV : Search `p_full` and `gamma` within a budget.
    skroute.features.LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    A row of a call may also be given as :class:`~skroute.features.LazyFeatures` or a mapping.

    Every share and budget is read off gate scores of held-out rows: boosted trees look better
    on their training rows than they are, and another pair has another scale.

    The gate of a :class:`BoostedGate` is ``a * doubt(f1(x)) + b + trees(x)``: besides trees, it
    reads the log-odds that f1 gives against its own answer. The level of ``g > 0`` is set so that
    the held-out rows that are sent, at most a share `p_full`, gain the most quality; probabilities
    of a full model need not be calibrated for that. The paper leaves the level where the logistic
    fit puts it, and so does a :class:`LinearGate` (but for `p_full`, which always binds).

    References
    ----------
    .. [1] F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget",
       NeurIPS 2017, (OPT), Algorithms 1 and 2.
    .. [2] Z. Xu, K. Weinberger, O. Chapelle, "The Greedy Miser: Learning under Test-time
       Budgets", ICML 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.gating import AdaptGatingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(oob_score=True, random_state=0)
    >>> gate = AdaptGatingClassifier(forest, p_full=0.1, gamma=0.01).fit(X[::2], y[::2])
    >>> bool(gate.predict_cost(X[1::2]).mean() < X.shape[1] / 2)
    True
    >>> gate.predict_routed(X[1:10:2]).route.shape
    (5,)
    """

    _parameter_constraints: dict = {
        **FeatureBuyer._parameter_constraints,
        "gate": [BoostedGate, LinearGate, None],
        "estimator": [HasMethods(["fit", "predict", "predict_proba"])],
        "p_full": [Interval(Real, 0, 1, closed="both")],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "full_features": ["array-like", None],
        "model_costs": [Mapping, None],
        "cv": ["cv_object"],
    }

    def __init__(
        self,
        estimator,
        *,
        gate=None,
        p_full=0.3,
        gamma=1e-3,
        feature_costs=None,
        feature_groups=None,
        full_features=None,
        model_costs=None,
        cv=None,
        quality="accuracy",
        budget=None,
        policy="online",
        n_jobs=None,
    ):
        self.estimator = estimator
        self.gate = gate
        self.p_full = p_full
        self.gamma = gamma
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.full_features = full_features
        self.model_costs = model_costs
        self.cv = cv
        self.quality = quality
        self.budget = budget
        self.policy = policy
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, **params):
        """Fit the full model, then the cheap model and the gate.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows; NaN is allowed where the full model takes it. Columns may be categories, as
            texts (texts of digits are texts, too): boosted trees read them as LightGBM's
            categories, linear models one by one, with a sign for what is missing. The full model
            gets the frame as it is, so that it may be a pipeline with encoders of its own.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; passed to the full model too, if it takes them. f1 and the gate do not
            depend on their unit. Whole multiples of the smallest weight, up to 16, count rows: a
            weight of 2 equals the row twice. Other weights get the mean 1.

        **params : dict
            With metadata routing enabled: parameters for the full model's `fit`, and
            ``groups`` for `cv`.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight=sample_weight, **params)

    def _fit(self, X, y, *, task, sample_weight=None, **params):
        with task.step("fit full"):
            rows, held_out = self._prepare(X, y, sample_weight, params)
        ready = self._ready(rows, held_out)
        self._fit_pair(rows, held_out, ready, progress=lambda: task.step("alternate"))

    def _prepare(self, X, y, sample_weight, params):
        """Fit the full model; the rows of positive weight, and which of them are held out."""
        X, y = indexable(as_rows(X), on_host(y))
        values, encoded, given_weight = self._checked(X, y, sample_weight)
        # The full model gets the weights as they are given.
        weight = relative_weights(given_weight)
        y = self.classes_[encoded]
        objective = objective_of_labels(self.quality, self.classes_).bound(
            encoded, weight
        )
        self._gate._validate_params()
        fit_params, split_params = self._inner_params(
            sample_weight, given_weight, params
        )
        names = ["gate", "cheap", "full"]
        costs = (
            dict.fromkeys(names, 0.0) if self.model_costs is None else self.model_costs
        )
        self.model_costs_ = check_costs(costs, names, name="model_costs")
        self._full = columns = np.arange(self.n_features_in_)
        if self.full_features is not None:
            named = [
                self._position(column, "full_features") for column in self.full_features
            ]
            if not named:
                raise ValueError(
                    "full_features must name at least one column, got none."
                )
            self._full = columns = np.unique(named)
        splits = find_splits(self.cv, X, y, split_params)
        held_out = hold_out(splits, encoded, weight)
        if self.full_features is not None:
            X = _safe_indexing(X, columns, axis=1)
        self.estimator_ = full = fit_full(self.estimator, X, y, fit_params)
        if not np.array_equal(np.sort(full.classes_), self.classes_):
            raise ValueError(
                f"estimator must know the classes {self.classes_!r} of y, but its classes_ are "
                f"{full.classes_!r}."
            )
        p0 = out_of_sample_proba(
            self.estimator, full, X, y, splits, fit_params, self.n_jobs
        )
        own = p0[np.arange(len(y)), encoded]
        # A row of weight 0 must leave no trace, not even in the bins of LightGBM.
        kept = weight > 0
        rows = Rows(
            values,
            encoded,
            full_losses(own),
            weight,
            quality_of(objective, encoded, p0),
        )
        return rows.of(kept), held_out[kept]

    def _ready(self, rows, held_out):
        """Rows to learn a pair from, and what the gate makes of them; without a gate all rows."""
        learned = rows.of(~held_out) if self.p_full > 0 else rows
        return learned, self._gate.ready(learned, self._categorical)

    def _inner_params(self, sample_weight, given_weight, params):
        """Parameters for the full model's `fit` and for the splitter."""
        extra = {} if sample_weight is None else {"sample_weight": given_weight}
        if routing_enabled():
            routed = self._route_metadata(extra | params)
            return routed["estimator"]["fit"], routed["splitter"]["split"]
        self._route_metadata(params)
        takes_weight = may_take_weights(self.estimator)
        if (
            extra
            and not takes_weight
            and not isinstance(self.estimator, FrozenEstimator)
        ):
            raise ValueError(
                f"sample_weight was given, but the full model {self.estimator!r} does not take it. "
                "Leave it out, or enable metadata routing to weight the cheap model and the gate "
                "only."
            )
        return extra, {}

    def _fit_pair(self, rows, held_out, ready, progress):
        """Fit the cheap model and the gate, then set the level of the gate and the costs."""
        groups = self.group_of_, self.group_costs_
        problem = Problem(len(self.classes_), self.p_full, self.gamma, *groups)
        learned, values = ready
        pair, objectives, of_held_out, self.n_iter_ = self._gate.fit_pair(
            learned, rows.of(held_out), values, problem, self.n_jobs, progress
        )
        self.objective_ = np.array(objectives)
        self.held_out_objective_ = np.array(of_held_out)
        self._set_level(pair, rows, held_out)
        self._set_costs()
        budget = self._effective_budget(None)
        self._check_feasible(budget)
        if self.p_full > 0 and self._ranks is None and np.isfinite(budget):
            self._warn_of_nobody(budget)
        self.choices_ = ["cheap", "full"]

    @property
    def _gate(self):
        return BoostedGate() if self.gate is None else self.gate

    def _set_level(self, pair, rows, held_out):
        """Find the level of the gate, from rows that the pair has not seen.

        Where no level of a gate gains, the pair that is simpler is tried; where none does,
        nobody is sent.
        """
        self.pair_, self._level, self._ranks, self._held_out = pair, 0.0, None, None
        if self.p_full == 0:
            return
        out = rows.of(held_out)
        objective = objective_of_labels(self.quality, self.classes_).bound(
            rows.y, rows.weight
        )
        first = np.arange(len(out.y)) % 2 == 0
        while pair is not None:
            gate, _ = self._look(pair, rows.values)
            least, gate = lowest_level(gate, rows.weight, self.p_full), gate[held_out]
            proba = np.exp(log_probabilities(pair.cheap_scores(out.values)))
            cheap = quality_of(objective, out.y, proba)
            # A simpler gate is a second try: that it gains must not be luck.
            how = self.p_full, 0.0 if pair.simpler is not None else 1.0

            def level(
                part, gate=gate, gain=out.full_quality - cheap, least=least, how=how
            ):
                """From some of the held-out rows."""
                return max(
                    self._gate.level(gate[part], gain[part], out.weight[part], *how),
                    least,
                )

            # The share of rows sent from which each row is sent, by what the other half says.
            keys, rank = (
                feature_keys(out.values[:, pair.gate_features]),
                np.full(len(gate), np.inf),
            )
            for judged, by in ((first, ~first), (~first, first)):
                if out.weight[by].any():
                    ranks = Ranks.of(gate[by], out.weight[by])
                    of_rows = ranks.of_rows(gate[judged], keys[judged])
                    rank[judged] = np.where(gate[judged] > level(by), of_rows, np.inf)
            known = cheap, out.full_quality, out.weight
            if (chosen := level(slice(None))) < np.inf:
                self._ranks, self._held_out = (
                    Ranks.of(gate - chosen, out.weight),
                    (rank, *known),
                )
                self.pair_, self._level = pair, chosen
                return
            if self._held_out is None:
                self._held_out = np.full(len(gate), np.inf), *known
            pair = pair.simpler

    def _set_costs(self):
        """What a row costs by the choice that is made for it."""
        pair, (gate, cheap, full) = self.pair_, self.model_costs_
        gate_features = pair.gate_features
        if self._ranks is None:
            # Nobody is sent, and no gate is asked.
            gate, gate_features = 0.0, gate_features[:0]
        self.features_used_ = {
            "gate": gate_features,
            "cheap": pair.cheap_features,
            "full": self._full,
        }
        looked = gate + (cheap if pair.reads_cheap else 0.0)
        of_both = self._feature_cost(gate_features, pair.cheap_features)
        self.cost_table_ = {
            "gate": float(self._feature_cost(gate_features) + looked),
            "cheap": float(of_both + gate + cheap),
            "full": float(
                self._feature_cost(gate_features, self._full) + looked + full
            ),
        }

    def _warn_of_nobody(self, budget):
        """Say that a budget is left over, since on held-out rows nothing was to be had for it."""
        _, cheap, full, weight = self._held_out
        cheap, full = (np.average(own, weights=weight) for own in (cheap, full))
        warn(
            f"budget={budget!r} is left over: the cheap model answers every row, at a cost of "
            f"{self.cost_table_['cheap']:.6g}. On the held-out rows its quality is {cheap:.3g} and "
            f"that of the full model {full:.3g}, and no part of them that the gate could send "
            "would gain. A larger gamma makes the cheap model cheaper; a better estimator would "
            "be asked."
        )

    # Held-out rows --------------------------------------------------------------------

    def _on_held_out(self):
        """Mean quality and cost of held-out rows at the budget, each with its standard error."""
        if self._held_out is None:
            raise AttributeError(
                f"{type(self).__name__} holds no rows out where p_full=0, and has no validation "
                "figures. Use cross_val_score."
            )
        rank, cheap, full, weight = self._held_out
        sent = rank < self._share(self._effective_budget(None))
        cost = np.where(sent, self.cost_table_["full"], self.cost_table_["cheap"])
        found = np.where(sent, full, cheap), cost
        return [
            value
            for own in found
            for value in (
                float(np.average(own, weights=weight)),
                standard_error(own, weight),
            )
        ]

    @property
    def validation_quality_(self):
        """Mean quality of the held-out rows at `budget`, by online decisions."""
        return self._on_held_out()[0]

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._on_held_out()[1]

    @property
    def validation_cost_(self):
        """Mean cost of the held-out rows at `budget`, decided as in `validation_quality_`."""
        return self._on_held_out()[2]

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._on_held_out()[3]

    # Predict --------------------------------------------------------------------------

    def _smallest_budget(self):
        # `p_full` bounds the rows that the full model may answer, also where it is the cheaper one.
        return self.cost_table_["cheap"]

    def _check_feasible(self, budget):
        check_affordable(
            budget, self._smallest_budget(), advice="Raise gamma to buy fewer features."
        )

    def _plan(self, X, call):
        """Run the gate and plan what answers will need."""
        budget = call.budget
        self._check_feasible(budget)
        ledger, rows, pair = self._ledger(X), np.arange(num_samples(X)), self.pair_
        gate_cost, cheap_cost, full_cost = self.model_costs_
        scores, sent = None, np.zeros(len(rows), dtype=bool)
        if self._ranks is None:
            gate_cost = 0.0
        else:
            ledger.plan(rows, pair.gate_features)
            values = ledger.take(rows, pair.gate_features)
            gate, scores = cache_of(self).get_or_compute(
                "look", lambda: self._look(pair, values)
            )
            sent = self._send(gate, budget, values[:, pair.gate_features])
        ledger.plan(rows[~sent], pair.cheap_features)
        ledger.plan(rows[sent], self._full)
        of_sent = full_cost + (cheap_cost if pair.reads_cheap else 0.0)
        evaluation = gate_cost + np.where(sent, of_sent, cheap_cost)
        cost = ledger.planned @ self.group_costs_ + evaluation
        return Plan(sent.astype(np.int64), cost, (ledger, scores))

    def _look(self, pair, values):
        """Gate scores of rows above the level, and the cheap model's where the gate reads them."""
        scores = pair.cheap_scores(values) if pair.reads_cheap else None
        return pair.gate_scores(values, scores) - self._level, scores

    def _share(self, budget):
        """Share of rows that a budget sends; infinite where it pays for all."""
        cheap, full = self.cost_table_["cheap"], self.cost_table_["full"]
        if full <= cheap or budget >= full * (1 - ROUNDING):
            return np.inf
        return max((budget - cheap) / (full - cheap), 0.0)

    def _send(self, gate, budget, shown):
        """Rows that go to the full model: gate > 0, the highest first while the budget lasts.

        Of rows that tie as many are sent as the budget pays for, by what they have `shown`.
        """
        sent, share = gate > 0, self._share(budget)
        if share < 1 and self.policy == "batch":
            order = np.argsort(-gate, kind="stable")
            sent[order[int(share * len(gate) * (1 + ROUNDING)) :]] = False
        elif share < 1:
            sent &= self._ranks.of_rows(gate, feature_keys(shown)) < share * (
                1 + ROUNDING
            )
        return sent

    def _answer(self, plan, response):
        (ledger, scores), pair, model = plan.state, self.pair_, self.estimator_

        def ask(rows):
            read = self._input(ledger, rows, self._full, plan.X)
            with note_failure("full", len(rows), response):
                found = getattr(model, response)(read)
                if response == "predict":
                    return found
                proba = check_probabilities(np.asarray(found), "estimator", proven=True)
                return with_sum_one(proba)

        def answer(sent, rows):
            if sent:
                key = "full", response
                found = cache_of(self).get_or_compute_rows(
                    key, rows, len(plan.route), ask
                )
                if response == "predict":
                    return found
                return align_by_class(found, model.classes_, self.classes_)
            read = pair.cheap_features
            own = (
                pair.cheap_scores(ledger.take(rows, read))
                if scores is None
                else scores[rows]
            )
            return self._answers_of(np.exp(log_probabilities(own)), response)

        return dispatch(plan.route, answer)

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
        X = self._check_rows(X)
        ledger, rows = self._ledger(X), np.arange(num_samples(X))
        if self._ranks is None:
            return np.full(len(rows), -np.inf)
        return self._look(self.pair_, ledger.take(rows, self.pair_.gate_features))[0]

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
        return router.add(
            splitter=check_cv(self.cv, classifier=True), method_mapping=split
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are asked for before parameters are validated.
        if will_have(self.estimator, "predict_proba"):
            # A pipeline does not say what its transformers take; its own fit does.
            tags.input_tags.allow_nan = isinstance(self.estimator, Pipeline) or (
                get_tags(self.estimator).input_tags.allow_nan
            )
        return tags

    def _sk_visual_block_(self):
        return VisualBlock(
            "parallel", [self.estimator], names=["full"], dash_wrapped=False
        )
