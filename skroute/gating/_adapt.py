"""Adapt: learn when the cheap model is enough (Nan and Saligrama, 2017)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    Plan,
    check_affordable,
    check_budget,
    check_costs,
    dispatch,
    note_failure,
)
from skroute.base._inspection import may_take_weights
from skroute.gating._boosting import BoostedGate
from skroute.gating._buyer import (
    FeatureBuyer,
    FeatureLedger,
    model_input,
    quality_of,
)
from skroute.gating._levels import HeldOutScores, Ranks, lowest_level
from skroute.gating._linear import LinearGate
from skroute.gating._objective import full_losses, log_probabilities
from skroute.gating._out_of_sample import (
    find_splits,
    fit_full,
    hold_out,
    out_of_sample_proba,
)
from skroute.gating._pairs import Problem, Rows
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

# Index of the full model in `choices_`. The cheap model has index 0.
_FULL = 1

# Standard errors by which the gain of the simplest gate must exceed 0. This gate is
# tried last, when a gain by luck is more likely.
_STANDARD_ERRORS_OF_LAST_TRY = 1.0


class HeldOutFigures(NamedTuple):
    """Ranks, qualities and weights of held-out rows, for the validation figures.

    Attributes
    ----------
    ranks : ndarray of shape (n_rows,)
        Smallest share of sent rows at which each row is sent, learned from the other
        half of the held-out rows. Infinite for a row that is never sent.

    cheap_quality, full_quality : ndarray of shape (n_rows,)
        Quality of the answers of the cheap and of the full model.

    weight : ndarray of shape (n_rows,)
        Weights of the rows.
    """

    ranks: Any
    cheap_quality: Any
    full_quality: Any
    weight: Any


class Validation(NamedTuple):
    """Mean quality and cost of the held-out rows, each with its standard error."""

    quality: float
    quality_se: float
    cost: float
    cost_se: float


class _PlanState(NamedTuple):
    """Bought features and cheap scores of a plan's rows, from which rows are answered.

    Attributes
    ----------
    ledger : FeatureLedger
        Features that were bought, and that answers will need.

    cheap_scores : ndarray of shape (n_rows, n_outputs) or None
        Scores of the cheap model. None if the gate does not read them.
    """

    ledger: FeatureLedger
    cheap_scores: Any


class AdaptGatingClassifier(MetaEstimatorMixin, FeatureBuyer):
    r"""Cheap model and gate on few features, before a full model on all of them.

    Learns a cheap model f1 and a gate g on few, cheap features. A row with ``g > 0``
    goes to the full model f0, `estimator`. It pays for the features that f0 reads and
    that were not bought before. All other rows are answered by f1. f1 and g are
    trained to minimise

    .. math::

        \frac1N \sum_i (1-q_i) A_i + q_i B_i - H(q_i)
        + \gamma \sum_a c_a [a \text{ is used by } f_1 \text{ or } g],
        \qquad \tfrac1N \sum_i q_i \le p_{full},

    by alternating a closed-form step for q with a step for f1 and g [1]_. Here
    :math:`q_i` is the probability that row i is sent to f0, H the entropy, :math:`c_a`
    the cost of feature a,
    :math:`A_i = \mathrm{loss}(f_1(x_i), y_i) + \log(1 + e^{g(x_i)})` and
    :math:`B_i = -\log p_0(y_i \mid x_i) + \log(1 + e^{-g(x_i)})`,
    with :math:`p_0` the out-of-sample probabilities of f0.

    Parameters
    ----------
    estimator : classifier with predict_proba
        The full model f0. Fitted on all rows, and by `cv` to learn how good it is on
        rows that it has not seen. If it offers out-of-bag votes (``oob_score=True``),
        these are used instead of `cv`. A :class:`~sklearn.frozen.FrozenEstimator` is
        used as it is, and the rows given to `fit` should then be new to it. LightGBM
        whose `n_jobs` is None uses one thread for fewer than 20,000 rows.

    gate : BoostedGate or LinearGate, default=None
        The kind of f1 and g, with its parameters: :class:`BoostedGate` (Algorithm 2) or
        :class:`LinearGate` (Algorithm 1). None: ``BoostedGate()``. A search over its
        parameters needs a gate: ``gate=BoostedGate()`` has ``gate__learning_rate``.

    p_full : float, default=0.3
        Upper bound of the share of rows sent to the full model. On the training rows it
        is exact. On new rows it depends on the held-out rows that were drawn. It also
        holds if the full model is the cheaper one. Rows with tied gate scores are sent
        together or not at all. Raising it raises accuracy and cost. With 0 the full
        model is never asked, and f1 alone is GreedyMiser [2]_: boosted trees that pay
        for each feature once.

    gamma : float, default=0.001
        Price of features: a feature of cost c is bought if it lowers the mean loss, in
        nats, by ``gamma * c``. Raising it leaves fewer features to f1 and g.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group if `feature_groups` is given, in any
        single unit. A mapping has column names (positions, if X has no names) or names
        of groups as keys. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its
        columns (names or positions). Every column is in one group. None: each column is
        its own.

    full_features : array-like of column names or positions, default=None
        Columns that the full model gets, in `fit` and later. None: all columns.

    model_costs : mapping, default=None
        Cost of evaluating ``"gate"``, ``"cheap"`` and ``"full"`` for a row, in the unit
        of `feature_costs`. A :class:`BoostedGate` reads the cheap model's output, so
        that the cheap model is evaluated on every row. None: all 0.

    cv : int, cross-validation generator or iterable, default=None
        Splits for all that is learned out of sample: the probabilities of the full
        model, and the level of the gate. The test rows of the first splits, at least a
        tenth of the rows, are held out from f1 and g. None: 5-fold. A splitter that
        needs groups gets them through metadata routing; a list of splits needs none.

    quality : str, cost matrix or callable, default="accuracy"
        Value of an answer when the level of the gate is set and in
        ``validation_quality_``, as in :class:`~skroute.routing.OccamRouterClassifier`.
        The default counts right answers only, since the probabilities of a full model,
        such as the votes of a forest, may be wrong where its answers are right. With
        rare positives take ``"log_loss"``, ``"brier"`` or a cost matrix. f1 and g are
        always trained on log loss, and the full model on its own loss.

    budget : float, default=None
        Mean cost per sample, in the unit of `feature_costs`. The rows with the highest
        gate scores are sent until the budget is spent. A row with ``g <= 0`` is never
        sent. If rows have the same score where the budget ends, a share of them is
        sent. With ``policy="online"`` a hash of the values that the gate reads draws
        this share, and equal rows of a call are spread evenly. None: unlimited.

    policy : {"online", "batch"}, default="online"
        ``"online"`` compares the gate score of a row with a threshold learned on
        held-out rows, so that the budget holds on average. ``"batch"`` sorts the rows
        of a call by their gate scores, and never exceeds the budget.

    n_jobs : int, default=None
        Jobs for the cross-validation of the full model, and threads of LightGBM (one in
        a forked process, where OpenMP would wait for ever).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    estimator_ : classifier
        The fitted full model.

    choices_ : list of str
        ``["cheap", "full"]``, the choices that `route` indexes.

    features_used_ : dict of ndarray
        Positions of the columns that the ``"gate"``, the ``"cheap"`` and the ``"full"``
        model read.

    cost_table_ : dict of float
        Costs of a row: ``"gate"`` up to the gate's decision, ``"cheap"`` if the cheap
        model answers the row, and ``"full"`` if the full model does. Features are paid
        once.

    objective_ : ndarray
        The objective on the training rows of f1 and g at each alternation. Never rises
        for a :class:`LinearGate`.

    held_out_objective_ : ndarray
        For a :class:`BoostedGate`, the objective on held-out rows, without feature
        costs. ``n_iter_`` is the number of rounds at its minimum. Empty for a
        :class:`LinearGate`, and with ``p_full=0``.

    n_iter_ : int
        Boosting rounds in the pair, or alternations.

    min_budget_ : float
        The smallest feasible budget: the cost of a row that the cheap model answers.

    validation_quality_, validation_cost_ : float
        Mean `quality` and mean cost of the held-out rows at `budget`, by online
        decisions. Each half of them is decided at the level and the threshold of the
        other half.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of ``validation_quality_`` and of ``validation_cost_``, as
        estimates for new rows. With ``p_full=0`` no rows are held out, and these four
        attributes raise an error.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    SequentialFeatureClassifier : Many decisions per row, without a full model.
    skroute.metrics.BudgetSearchCV : Search `p_full` and `gamma` within a budget.
    skroute.features.LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    The rows of a call may also be :class:`~skroute.features.LazyFeatures` or a mapping.

    The level of the gate and the threshold of each budget are set on gate scores of
    held-out rows, because boosted trees look better on their training rows than they
    are. The bound `p_full` also holds on all rows of `fit`.

    The gate of a :class:`BoostedGate` is ``a * doubt(f1(x)) + b + trees(x)``. The doubt
    is the log-odds of f1 against its own answer. A level is subtracted from the gate,
    so that rows with ``g > 0`` are sent. The level is set so that the held-out rows
    above it, at most a share `p_full`, gain the most quality if they are sent. The
    probabilities of a full model need not be calibrated for that. The paper leaves the
    level where the logistic fit puts it. A :class:`LinearGate` does the same, unless
    more than the share `p_full` of the rows would be sent.

    References
    ----------
    .. [1] F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a
       Budget", NeurIPS 2017, (OPT), Algorithms 1 and 2.
    .. [2] Z. Xu, K. Weinberger, O. Chapelle, "The Greedy Miser: Learning under
       Test-time Budgets", ICML 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.gating import AdaptGatingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(oob_score=True, random_state=0)
    >>> model = AdaptGatingClassifier(forest, p_full=0.1, gamma=0.01)
    >>> model = model.fit(X[::2], y[::2])
    >>> bool(model.predict_cost(X[1::2]).mean() < X.shape[1] / 2)
    True
    >>> model.predict_routed(X[1:10:2]).route.shape
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

    # Fit: the full model, then the cheap model and the gate ---------------------------

    def fit(self, X, y, sample_weight=None, **params):
        """Fit the full model, then the cheap model and the gate.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows; NaN is allowed where the full model takes it. Columns may be
            categories, as texts. Texts of digits are texts, too. Boosted trees read
            them as LightGBM's categories. Linear models get one column for each
            category, and one for missing cells. The full model gets the frame as it is,
            so that it may be a pipeline with encoders of its own.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; passed to the full model too, if it takes them. f1 and the
            gate do not depend on their unit. Whole multiples of the smallest weight, up
            to 16, count rows: a weight of 2 equals the row twice. Other weights get the
            mean 1.

        **params : dict
            With metadata routing enabled: parameters for the full model's `fit`, and
            ``groups`` for `cv`.

        Returns
        -------
        self
            The fitted estimator.
        """
        return super().fit(X, y, sample_weight=sample_weight, **params)

    def _fit(self, X, y, *, task, sample_weight=None, **params):
        """Fit the full model, then the cheap model and the gate.

        All fitted attributes are set.

        Parameters
        ----------
        X, y, sample_weight, params
            As in :meth:`fit`.

        task : FitTask
            Reports the steps to callbacks.
        """
        with task.step("fit full"):
            rows, is_held_out = self._learn_from_full_model(X, y, sample_weight, params)
        pair = self._fit_pair(
            rows, is_held_out, progress=lambda: task.step("alternate")
        )
        self._set_gate(pair, rows, is_held_out)
        self._set_costs()
        budget = check_budget(self.budget)
        self._check_feasible(budget)
        # With p_full=0 the user asks for no gate, so that no warning is due.
        gate_sends_none = self.p_full > 0 and not self._sends_rows()
        if gate_sends_none and np.isfinite(budget):
            self._warn_of_unspent_budget(budget)
        self.choices_ = ["cheap", "full"]

    def _learn_from_full_model(self, X, y, sample_weight, params):
        """Check the input, fit the full model, and measure its quality on each row.

        Sets `model_costs_`, `estimator_`, `_full_features` and the attributes of
        `_checked`.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.

        params : dict
            Metadata for the full model's `fit` and for the splitter.

        Returns
        -------
        rows : Rows
            The rows of positive weight, with the out-of-sample loss and quality of the
            full model.

        is_held_out : ndarray of shape (n_rows,), dtype=bool
            Rows that the cheap model and the gate are not fitted on.
        """
        X, y = indexable(as_rows(X), on_host(y))
        checked = self._checked(X, y, sample_weight)
        # The cheap model, the gate and the validation use relative weights. The full
        # model gets `checked.weight`, as the user gave it.
        weight = relative_weights(checked.weight)
        y = self.classes_[checked.encoded]
        # Quality of an answer. Class weights, if it has any, come from these rows.
        objective = objective_of_labels(self.quality, self.classes_).bound(
            checked.encoded, weight
        )
        self._gate_kind._validate_params()
        fit_params, split_params = self._inner_params(
            sample_weight, checked.weight, params
        )
        self.model_costs_ = self._check_model_costs()
        self._full_features = self._find_full_features()
        splits = find_splits(self.cv, X, y, split_params)
        is_held_out = hold_out(splits, checked.encoded, weight)
        if self.full_features is not None:
            X = _safe_indexing(X, self._full_features, axis=1)
        # Out-of-sample probabilities of the full model. (n_rows, n_classes)
        p0 = self._fit_full_model(X, y, splits=splits, fit_params=fit_params)
        p0_of_true_class = p0[np.arange(len(y)), checked.encoded]
        rows = Rows(
            values=checked.values,
            y=checked.encoded,
            full_loss=full_losses(p0_of_true_class),
            weight=weight,
            full_quality=quality_of(objective, checked.encoded, p0),
        )
        # Rows of weight 0 are left out. They would have an effect on LightGBM's bins.
        has_weight = weight > 0
        return rows.of(has_weight), is_held_out[has_weight]

    def _fit_full_model(self, X, y, *, splits, fit_params):
        """Fit the full model, and return its out-of-sample probabilities.

        Parameters
        ----------
        X : {array-like, data frame} of n_rows rows
            With the columns that the full model reads.

        y : ndarray of shape (n_rows,)
            Labels.

        splits : list of (train, test)
            Positions of the training and the test rows of each fold.

        fit_params : dict
            Parameters of the full model's `fit`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Columns in the order of ``classes_``.
        """
        self.estimator_ = fit_full(self.estimator, X, y, fit_params)
        full_classes = self.estimator_.classes_
        if not np.array_equal(np.sort(full_classes), self.classes_):
            # Only a frozen estimator, which is not fitted here, has other classes.
            raise ValueError(
                f"estimator must know the classes {self.classes_!r} of y, but its "
                f"classes_ are {full_classes!r}."
            )
        return out_of_sample_proba(
            self.estimator,
            self.estimator_,
            X,
            y,
            splits=splits,
            params=fit_params,
            n_jobs=self.n_jobs,
        )

    def _check_model_costs(self):
        """Return the costs of evaluating the gate, the cheap and the full model.

        Returns
        -------
        ndarray of shape (3,)
            In this order.
        """
        names = ["gate", "cheap", "full"]
        costs = self.model_costs
        if costs is None:
            costs = dict.fromkeys(names, 0.0)
        return check_costs(costs, names, name="model_costs")

    def _find_full_features(self):
        """Return the positions of the columns that the full model reads."""
        if self.full_features is None:
            return np.arange(self.n_features_in_)
        positions = [
            self._position(column, "full_features") for column in self.full_features
        ]
        if not positions:
            raise ValueError("full_features must name at least one column, got none.")
        return np.unique(positions)

    def _inner_params(self, sample_weight, checked_weight, params):
        """Return the parameters for the full model's `fit` and for the splitter.

        Parameters
        ----------
        sample_weight : array-like, or None
            As the user gave it. None: the full model gets no weights.

        checked_weight : ndarray of shape (n_rows,)
            The weights after validation.

        params : dict
            Metadata of :meth:`fit`.

        Returns
        -------
        fit_params, split_params : dict
            For the full model's `fit` and for the splitter's `split`.
        """
        weight_param = {}
        if sample_weight is not None:
            weight_param = {"sample_weight": checked_weight}
        if routing_enabled():
            routed = self._route_metadata(weight_param | params)
            return routed["estimator"]["fit"], routed["splitter"]["split"]
        # Without metadata routing, this raises an error if there is any parameter.
        self._route_metadata(params)
        is_frozen = isinstance(self.estimator, FrozenEstimator)
        if weight_param and not is_frozen and not may_take_weights(self.estimator):
            raise ValueError(
                f"sample_weight was given, but the full model {self.estimator!r} does "
                "not take it. Leave it out, or enable metadata routing to weight the "
                "cheap model and the gate only."
            )
        return weight_param, {}

    @property
    def _gate_kind(self):
        """The parameter `gate`, or its default: the kind of cheap model and gate."""
        return BoostedGate() if self.gate is None else self.gate

    def _fit_pair(self, rows, is_held_out, progress):
        """Fit the cheap model and the gate, and return them as a pair.

        The level of the gate is not set here. The history of the fit becomes `n_iter_`,
        `objective_` and `held_out_objective_`.

        Parameters
        ----------
        rows : Rows
            All rows of positive weight.

        is_held_out : ndarray of bool of shape (n_rows,)
            True for rows that choose the number of rounds. Trees and coefficients are
            not fitted on them.

        progress : callable
            ``progress()`` returns a context manager. Each alternation runs in one.

        Returns
        -------
        Pair
        """
        problem = Problem(
            n_classes=len(self.classes_),
            p_full=self.p_full,
            gamma=self.gamma,
            group_of=self.group_of_,
            group_costs=self.group_costs_,
        )
        # Without a gate there is no level to set, and no row is held out.
        learned_rows = rows
        if self.p_full > 0:
            learned_rows = rows.of(~is_held_out)
        fitted = self._gate_kind.fit_pair(
            learned_rows,
            held_out=rows.of(is_held_out),
            prepared=self._gate_kind.prepare(learned_rows, self._categorical),
            problem=problem,
            n_jobs=self.n_jobs,
            progress=progress,
        )
        self.n_iter_ = fitted.n_iter
        self.objective_ = np.array(fitted.objectives)
        self.held_out_objective_ = np.array(fitted.held_out_objectives)
        return fitted.pair

    def _set_gate(self, pair, rows, is_held_out):
        """Set the pair, and the gate score (level) above which the full model answers.

        If no level raises the quality, the pair with a simpler gate is tried. If no
        gate does, no row is ever sent to the full model. Sets `pair_`, `_level`,
        `_ranks` and `_held_out`.

        Parameters
        ----------
        pair : Pair
            The fitted cheap model and gate.

        rows : Rows
            All rows of positive weight.

        is_held_out : ndarray of bool of shape (n_rows,)
            True for the rows by which the level is set.
        """
        self.pair_ = pair
        # The gate score of the pair above which rows are sent to the full model.
        self._level = 0.0
        # `Ranks` by the gate scores of held-out rows minus the level. None: no row is
        # ever sent, and the gate is not evaluated.
        self._ranks = None
        # Figures of the held-out rows. None without a gate: no rows are held out.
        self._held_out = None
        if self.p_full == 0:
            # There is no gate.
            return
        held_out = rows.of(is_held_out)
        objective = objective_of_labels(self.quality, self.classes_).bound(
            rows.y, rows.weight
        )
        cheap_scores = pair.cheap_scores(held_out.values)
        cheap_proba = np.exp(log_probabilities(cheap_scores))
        cheap_quality = quality_of(objective, held_out.y, cheap_proba)
        # Until a gate raises the quality, no row is sent: all ranks are infinite.
        self._held_out = HeldOutFigures(
            ranks=np.full(len(held_out.y), np.inf),
            cheap_quality=cheap_quality,
            full_quality=held_out.full_quality,
            weight=held_out.weight,
        )
        # After the simplest gate, `pair` is None.
        while pair is not None:
            held_out_scores = self._held_out_scores(
                pair, rows, is_held_out, cheap_quality
            )
            level = held_out_scores.level()
            # If no level raises the quality, the level is infinite and sends no row.
            if level < np.inf:
                self.pair_ = pair
                self._level = level
                self._ranks = Ranks.of(held_out_scores.scores - level, held_out.weight)
                self._held_out = self._held_out._replace(
                    ranks=held_out_scores.ranks_by_other_half()
                )
                return
            # The simpler pair has the same cheap model, and so the same
            # `cheap_quality`.
            pair = pair.simpler

    def _held_out_scores(self, pair, rows, is_held_out, cheap_quality):
        """Return gate scores of held-out rows, by which the gate's threshold is set.

        Parameters
        ----------
        pair : Pair
            The cheap model and the gate.

        rows : Rows
            All rows, of which at most a share `p_full` is above the level.

        is_held_out : ndarray of shape (n_rows,), dtype=bool
            True for the rows by which the level is set.

        cheap_quality : ndarray of shape (n_held_out,)
            Quality of the cheap model's answers on the held-out rows.

        Returns
        -------
        HeldOutScores
        """
        gate = pair.scores(rows.values).gate  # (n_rows,)
        held_out = rows.of(is_held_out)
        # The simplest gate is tried last. Its gain must be larger than a gain by luck.
        is_last_try = pair.simpler is None
        return HeldOutScores(
            gate_kind=self._gate_kind,
            scores=gate[is_held_out],
            gain=held_out.full_quality - cheap_quality,
            weight=held_out.weight,
            keys=feature_keys(held_out.values[:, pair.gate_features]),
            p_full=self.p_full,
            n_standard_errors=_STANDARD_ERRORS_OF_LAST_TRY if is_last_try else 0.0,
            lowest=lowest_level(gate, rows.weight, self.p_full),
        )

    def _sends_rows(self):
        """Return True if the gate may send rows to the full model."""
        return self._ranks is not None

    def _set_costs(self):
        """Set the columns that each model reads, and the costs of a row.

        These are `features_used_` and `cost_table_`. The table has the cost up to the
        gate's decision, and the costs if the cheap or the full model answers.
        """
        pair = self.pair_
        gate_cost, cheap_cost, full_cost = self.model_costs_
        gate_features = pair.gate_features
        if not self._sends_rows():
            # The gate is not evaluated.
            gate_cost = 0.0
            gate_features = gate_features[:0]  # empty
        self.features_used_ = {
            "gate": gate_features,
            "cheap": pair.cheap_features,
            "full": self._full_features,
        }
        # Cost of evaluating models before the decision. A gate that reads the scores of
        # the cheap model needs it on every row.
        decision_cost = gate_cost
        if pair.reads_cheap:
            decision_cost = gate_cost + cheap_cost
        # Cost of all features that are bought for each choice.
        gate_columns_cost = cost_of_columns(self, gate_features)
        cheap_columns_cost = cost_of_columns(self, gate_features, pair.cheap_features)
        full_columns_cost = cost_of_columns(self, gate_features, self._full_features)
        self.cost_table_ = {
            "gate": float(gate_columns_cost + decision_cost),
            # The cheap model is evaluated once, before or after the decision.
            "cheap": float(cheap_columns_cost + gate_cost + cheap_cost),
            "full": float(full_columns_cost + decision_cost + full_cost),
        }

    def _warn_of_unspent_budget(self, budget):
        """Warn that the gate sends no row, so that a budget is left over."""
        held_out = self._held_out
        weight = held_out.weight
        mean_cheap_quality = np.average(held_out.cheap_quality, weights=weight)
        mean_full_quality = np.average(held_out.full_quality, weights=weight)
        warn(
            f"budget={budget!r} is left over: the cheap model answers every row, at a "
            f"cost of {self.cost_table_['cheap']:.6g}. On the held-out rows its "
            f"quality is {mean_cheap_quality:.3g} and that of the full model "
            f"{mean_full_quality:.3g}, and no part of them that the gate could send "
            "would gain. A larger gamma makes the cheap model cheaper; a better "
            "estimator would be asked."
        )

    # Quality and cost of the held-out rows --------------------------------------------

    def _validate(self):
        """Return the mean quality and cost of the held-out rows at the budget.

        Returns
        -------
        Validation
        """
        held_out = self._held_out
        if held_out is None:
            # `fit` held no rows out.
            raise AttributeError(
                f"{type(self).__name__} holds no rows out where p_full=0, and has no "
                "validation figures. Use cross_val_score."
            )
        # A row is sent if its rank is below the share of rows that the budget sends.
        share = self._affordable_share(check_budget(self.budget))
        is_sent = held_out.ranks < share
        costs = self.cost_table_
        quality = np.where(is_sent, held_out.full_quality, held_out.cheap_quality)
        cost = np.where(is_sent, costs["full"], costs["cheap"])
        return Validation(
            quality=float(np.average(quality, weights=held_out.weight)),
            quality_se=standard_error(quality, held_out.weight),
            cost=float(np.average(cost, weights=held_out.weight)),
            cost_se=standard_error(cost, held_out.weight),
        )

    @property
    def validation_quality_(self):
        """Mean quality of the held-out rows at `budget`, with ``policy="online"``."""
        return self._validate().quality

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._validate().quality_se

    @property
    def validation_cost_(self):
        """Mean cost of the held-out rows at `budget`, with ``policy="online"``."""
        return self._validate().cost

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._validate().cost_se

    # Decisions and answers for new rows -----------------------------------------------

    def _smallest_budget(self):
        """Return the smallest feasible budget: the cost of the cheap model on a row.

        A cheaper full model does not lower it. Because `p_full` limits the rows of the
        full model, the cheap model may have to answer every row.
        """
        return self.cost_table_["cheap"]

    def _check_feasible(self, budget):
        """Raise an error if the cheap model on every row exceeds the budget."""
        check_affordable(
            budget, self._smallest_budget(), advice="Raise gamma to buy fewer features."
        )

    def _plan(self, X, call):
        """Decide which rows go to the full model, and plan the features they need.

        Parameters
        ----------
        X : {array-like, data frame, LazyFeatures} of n_rows rows

        call : record of the call
            Its `budget` is the mean cost per row.

        Returns
        -------
        Plan
            Its state is a :class:`_PlanState`.
        """
        self._check_feasible(call.budget)
        pair = self.pair_
        ledger = self._ledger(X)
        rows = np.arange(num_samples(X))
        cheap_scores = None  # the gate does not read them
        is_sent = np.zeros(len(rows), dtype=bool)
        if self._sends_rows():
            ledger.plan(rows, pair.gate_features)
            values = ledger.take(rows, pair.gate_features)
            # A sweep over budgets evaluates the gate once.
            scores = cache_of(self).get_or_compute(
                "scores", lambda: pair.scores(values)
            )
            cheap_scores = scores.cheap
            gate = scores.gate - self._level  # above 0: the row may be sent
            values_read = values[:, pair.gate_features]
            is_sent = self._choose_sent(gate, values_read, call.budget)
        ledger.plan(rows[~is_sent], pair.cheap_features)
        ledger.plan(rows[is_sent], self._full_features)
        feature_cost = ledger.planned @ self.group_costs_
        return Plan(
            route=is_sent.astype(np.int64),
            cost=feature_cost + self._evaluation_cost(is_sent),
            state=_PlanState(ledger, cheap_scores),
        )

    def _evaluation_cost(self, is_sent):
        """Return the cost of evaluating gate and models for each row, shape (n_rows,).

        Parameters
        ----------
        is_sent : ndarray of bool of shape (n_rows,)
            True for rows that the full model answers.
        """
        gate_cost, cheap_cost, full_cost = self.model_costs_
        if not self._sends_rows():
            # The gate is not evaluated.
            gate_cost = 0.0
        sent_cost = full_cost
        if self.pair_.reads_cheap:
            sent_cost = full_cost + cheap_cost
        return gate_cost + np.where(is_sent, sent_cost, cheap_cost)

    def _affordable_share(self, budget):
        """Return the share of rows that a budget sends to the full model.

        Parameters
        ----------
        budget : float
            Mean cost per row.

        Returns
        -------
        float
            Infinite if the budget pays for all rows. It is then above all finite ranks.
        """
        cheap_cost = self.cost_table_["cheap"]
        full_cost = self.cost_table_["full"]
        if full_cost <= cheap_cost or budget >= full_cost * (1 - ROUNDING):
            # The full model costs no more than the cheap one, or the budget pays for it
            # on every row.
            return np.inf
        # Each row costs at least `cheap_cost`. The rest of the budget pays for the rows
        # that are sent.
        return max((budget - cheap_cost) / (full_cost - cheap_cost), 0.0)

    def _choose_sent(self, gate, values_read, budget):
        """Return True for the rows of highest gate score that the budget pays to send.

        Parameters
        ----------
        gate : ndarray of shape (n_rows,)
            Gate scores minus the level. A row with 0 or less is never sent.

        values_read : ndarray of shape (n_rows, n_gate_features)
            Values that the gate reads. If ``policy="online"``, their hash decides which
            of several rows with equal gate scores are sent.

        budget : float
            Mean cost per row. Infinity is unlimited.

        Returns
        -------
        ndarray of bool of shape (n_rows,)
        """
        is_sent = gate > 0
        share = self._affordable_share(budget)
        if share >= 1:
            # The budget pays for all rows that the gate sends.
            return is_sent
        if self.policy == "batch":
            n_affordable = int(share * len(gate) * (1 + ROUNDING))
            # Positions of the rows, the highest gate score first. The budget pays for
            # the first `n_affordable`. The others are not sent.
            by_score = np.argsort(-gate, kind="stable")
            is_sent[by_score[n_affordable:]] = False
            return is_sent
        # Online, each row is decided alone. Its rank is the smallest share of sent rows
        # at which it is sent.
        ranks = self._ranks.draw(gate, feature_keys(values_read))
        return is_sent & (ranks < share * (1 + ROUNDING))

    def _answer(self, plan, response):
        """Return the answers to all rows of a plan, each by the model it is sent to.

        `response` is the name of the called method.
        """
        return dispatch(plan.route, partial(self._answer_rows, plan, response))

    def _answer_rows(self, plan, response, choice, rows):
        """Return the answers of the cheap or of the full model to some rows.

        Parameters
        ----------
        plan : Plan

        response : {"predict", "predict_proba"}
            The method that was called.

        choice : int
            Index in ``choices_``.

        rows : ndarray of int
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        if choice == _FULL:
            return self._full_answers(plan, response, rows)
        cheap_scores = plan.state.cheap_scores
        if cheap_scores is None:
            values = plan.state.ledger.take(rows, self.pair_.cheap_features)
            scores = self.pair_.cheap_scores(values)
        else:
            # The gate has read the scores of the cheap model.
            scores = cheap_scores[rows]
        proba = np.exp(log_probabilities(scores))
        if response == "predict_proba":
            return proba
        return self.classes_[proba.argmax(axis=1)]

    def _full_answers(self, plan, response, rows):
        """Return the answers of the full model, which a sweep over budgets caches.

        Parameters
        ----------
        plan : Plan

        response : {"predict", "predict_proba"}

        rows : ndarray of int
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            Probabilities have the columns of ``classes_``.
        """
        answers = cache_of(self).get_or_compute_rows(
            ("full", response),
            rows,
            n_rows=len(plan.route),
            compute=partial(self._ask_full, plan, response),
        )
        if response == "predict":
            return answers
        return align_by_class(answers, self.estimator_.classes_, self.classes_)

    def _ask_full(self, plan, response, rows):
        """Call a method of the full model, and check the probabilities that it returns.

        Parameters
        ----------
        plan : Plan

        response : {"predict", "predict_proba"}
            Name of the method.

        rows : ndarray of int
            Positions of the rows.

        Returns
        -------
        array-like of shape (n_rows,) or (n_rows, n_classes)
            Probabilities have the columns of the full model.
        """
        X = model_input(self, plan.state.ledger, rows, self._full_features, plan.X)
        with note_failure("full", len(rows), response):
            answers = getattr(self.estimator_, response)(X)
            if response == "predict":
                return answers  # labels
            # `proven`: the model returned probabilities in `fit`. The sums of any
            # number of rows may then have rounding errors.
            proba = check_probabilities(np.asarray(answers), "estimator", proven=True)
            return with_sum_one(proba)

    def gate_function(self, X):
        """Return the gate g; rows with ``g > 0`` go to the full model.

        Parameters
        ----------
        X : array-like, dataframe, mapping or LazyFeatures
            Rows, of shape (n_samples, n_features). Only lazy features that the gate
            reads are bought.

        Returns
        -------
        ndarray of shape (n_samples,)
            ``-inf`` everywhere if no row is ever sent. This is so with ``p_full=0``,
            and if no level of the gate raised the quality of the held-out rows.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        rows = np.arange(num_samples(X))
        if not self._sends_rows():
            return np.full(len(rows), -np.inf)
        values = self._ledger(X).take(rows, self.pair_.gate_features)
        return self.pair_.scores(values).gate - self._level

    def get_metadata_routing(self):
        """Return the routing of metadata to the full model and the splitter.

        Returns
        -------
        MetadataRouter
            The routing of this estimator.
        """
        fit = MethodMapping().add(caller="fit", callee="fit")
        split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=fit)
        splitter = check_cv(self.cv, classifier=True)
        return router.add(splitter=splitter, method_mapping=split)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are read before parameters are validated: the estimator may be anything.
        if will_have(self.estimator, "predict_proba"):
            # A pipeline has the tag of its first step, though a later step may replace
            # NaN. A pipeline counts as taking NaN: its `fit` raises an error if a step
            # does not.
            takes_nan = isinstance(self.estimator, Pipeline)
            if not takes_nan:
                takes_nan = get_tags(self.estimator).input_tags.allow_nan
            tags.input_tags.allow_nan = takes_nan
        return tags

    def _sk_visual_block_(self):
        return VisualBlock(
            "parallel", [self.estimator], names=["full"], dash_wrapped=False
        )


def cost_of_columns(buyer, *column_sets):
    """Return the cost of buying all columns of some sets, each group once.

    Parameters
    ----------
    buyer : FeatureBuyer
        It has the groups of columns and their costs.
    *column_sets : ndarray of int
        Positions of columns. A column may be in several sets, and is paid once.

    Returns
    -------
    float
    """
    groups = np.unique(buyer.group_of_[np.concatenate(column_sets)])
    return float(buyer.group_costs_[groups].sum())
