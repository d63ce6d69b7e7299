"""Adapt: learn when the cheap model is enough (Nan and Saligrama, 2017)."""

from contextlib import contextmanager, nullcontext

import numpy as np
from sklearn.utils import get_tags

from skroute.gating._base import GatingBase
from skroute.gating._boosting import (
    boost,
    calibrate,
    finish,
    training_rows,
)
from skroute.gating._levels import find_cuts, lowest_level, most_accurate_level
from skroute.gating._linear import adapt_linear, adapt_linear_multistart
from skroute.gating._two_models import PairMixin, TwoModelBase
from skroute.utils._compat import Integral, Interval, Real, StrOptions, _fit_context

__all__ = ["AdaptGatingClassifier", "GreedyMiserClassifier"]


class GbrtParameters:
    """Parameter checks of the boosted trees."""

    _gbrt_constraints: dict = {
        "gamma": [Interval(Real, 0, None, closed="left")],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1, closed="right")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left")],
        "l2_regularization": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
    }

    def _boost(self, rows, *, p_full, max_iter, progress=nullcontext):
        return boost(
            rows,
            n_classes=len(self.classes_),
            p_full=p_full,
            gamma=self.gamma,
            group_of=self.group_of_,
            group_costs=self.group_costs_,
            n_estimators=self.n_estimators,
            max_iter=min(max_iter, self.n_estimators),
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            l2_regularization=self.l2_regularization,
            n_threads=self.n_jobs or 1,
            progress=progress,
        )


class AdaptGatingClassifier(GbrtParameters, TwoModelBase):
    """Buy cheap features first, and the rest only for rows that need the full model.

    Learns a cheap model f1 and a gate g on few, cheap features. A row with ``g > 0`` goes
    to the full model f0, `estimator`, which pays for the features that it reads and that
    were not bought before; the others are answered by f1. The three are trained to
    minimise

    .. math::

        \\frac1N \\sum_i (1-q_i) A_i + q_i B_i - H(q_i)
        + \\gamma \\sum_a c_a [a \\text{ is used by } f_1 \\text{ or } g],
        \\qquad \\tfrac1N \\sum_i q_i \\le p_{full},

    by alternating a closed-form step for the assignment q with a step for f1 and g [1]_.

    Parameters
    ----------
    estimator : classifier with predict_proba
        The full model f0. Fitted on all rows, and by `cv` to learn how good it is on rows
        that it has not seen; out-of-bag votes are used instead where it offers them
        (``oob_score=True``). A :class:`~sklearn.frozen.FrozenEstimator` is used as it is, and
        the rows given to `fit` should then be new to it. Another `AdaptGatingClassifier`
        makes one more stage.

    method : {"gbrt", "lin", "lstsq"}, default="gbrt"
        - ``"gbrt"``: boosted trees (Algorithm 2), grown by LightGBM;
        - ``"lin"``: linear models with a group-sparse penalty (Algorithm 1). The penalty is
          the convex relaxation ``gamma * sum_a sqrt(c_a) ||(g_a, f1_a)||``;
        - ``"lstsq"``: linear, with the squared distance of g to the log-odds of q in place
          of the Kullback-Leibler divergence.

    p_full : float, default=0.3
        Upper bound of the share of rows sent to the full model. Raising it raises accuracy
        and cost. With 0 the full model is never asked.

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
        `feature_costs`. With ``method="gbrt"`` the gate reads the cheap model's output, so
        that the cheap model is evaluated on every row. None: all 0.

    cv : int, cross-validation generator or iterable, default=None
        Splits for the out-of-sample probabilities of the full model. The test rows of the
        first split are also held out once from f1 and g, to fit the gate's level. None:
        5-fold.

    max_iter : int, default=10
        Largest number of alternations; for ``"gbrt"`` they are spread over the boosting
        rounds.

    tol : float, default=1e-5
        ``"lin"`` and ``"lstsq"`` stop when the objective falls by less.

    n_estimators : int, default=100
        Boosting rounds of f1 (``"gbrt"``).

    learning_rate : float, default=0.2
        Shrinkage of the trees (``"gbrt"``).

    max_leaf_nodes : int, default=31
        Leaves per tree (``"gbrt"``).

    l2_regularization : float, default=1.0
        L2 penalty on leaf values (``"gbrt"``).

    budget : float, default=None
        Mean cost per sample, in the unit of `feature_costs`. The rows with the highest gate
        are sent while it lasts, and never one with ``g <= 0``. None: unlimited.

    policy : {"online", "batch"}, default="online"
        ``"online"`` compares the gate with a threshold learned on held-out rows, so that the
        budget holds on average; ``"batch"`` sorts the gate and never exceeds it.

    n_jobs : int, default=None
        Jobs for the cross-validation of the full model, and threads of LightGBM.

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
        and by the ``"full"`` one (a mean over training rows if that is a gating estimator
        itself). Features are paid once.

    objective_ : ndarray
        The objective on the training rows at each alternation. Never rises for ``"lin"`` and
        ``"lstsq"``.

    held_out_objective_ : ndarray
        For ``"gbrt"``, the objective on held-out rows, without feature costs; its minimum
        decides ``n_iter_``. Empty otherwise.

    n_iter_ : int
        Boosting rounds kept (``"gbrt"``), or alternations.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    GreedyMiserClassifier : The cheap model alone.
    adapt_path : Many values of `p_full` and `gamma` with one fit of the full model.
    LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    The gate of ``"gbrt"`` is ``a * doubt(f1(x)) + b + trees(x)``: besides trees, it reads
    the log-odds that f1 gives against its own answer, which cost nothing more. Its two
    numbers are fitted on held-out rows, because boosted trees look better on their
    training rows than they are. The level of ``g > 0`` is then set so that the held-out
    rows that are sent, at most a share `p_full`, gain the most accuracy: probabilities of
    a full model need not be calibrated for that, its answers count. The paper leaves the
    level where the logistic fit puts it, and so do ``"lin"`` and ``"lstsq"`` (but for
    `p_full`, which always binds).

    References
    ----------
    .. [1] F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget",
       NeurIPS 2017, (OPT), Algorithms 1 and 2.

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
        **TwoModelBase._parameter_constraints,
        **GbrtParameters._gbrt_constraints,
        "method": [StrOptions({"gbrt", "lin", "lstsq"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        estimator,
        *,
        method="gbrt",
        p_full=0.3,
        gamma=1e-3,
        feature_costs=None,
        feature_groups=None,
        full_features=None,
        model_costs=None,
        cv=None,
        max_iter=10,
        tol=1e-5,
        n_estimators=100,
        learning_rate=0.2,
        max_leaf_nodes=31,
        l2_regularization=1.0,
        budget=None,
        policy="online",
        n_jobs=None,
    ):
        self.estimator = estimator
        self.method = method
        self.p_full = p_full
        self.gamma = gamma
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.full_features = full_features
        self.model_costs = model_costs
        self.cv = cv
        self.max_iter = max_iter
        self.tol = tol
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.l2_regularization = l2_regularization
        self.budget = budget
        self.policy = policy
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, **params):
        """Fit the full model, then the cheap model and the gate.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Numeric rows; NaN is allowed with ``method="gbrt"`` if the full model takes it.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; passed to the full model too, if it takes them.

        **params : dict
            Parameters for the full model's `fit`, with metadata routing enabled.

        Returns
        -------
        self
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        @contextmanager
        def task(name):
            child = context.subcontext(task_name=name)
            child.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield
            child.call_on_fit_task_end(estimator=self, X=X, y=y)

        with task("fit full"):
            prepared = self._prepare(X, y, sample_weight, params)
        self._fit_prepared(prepared, progress=lambda: task("alternate"))
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _prepare(self, X, y, sample_weight, params):
        prepared = super()._prepare(X, y, sample_weight, params)
        if self.method != "gbrt":
            return prepared
        return prepared._replace(boosting=training_rows(*self._split(prepared)[0][:4]))

    def _allows_nan(self):
        return self.method == "gbrt" and get_tags(self.estimator).input_tags.allow_nan

    def _fit_prepared(self, prepared, start=None, progress=nullcontext):
        """Fit f1 and g for the present `p_full` and `gamma`."""
        fit = self._fit_boosted if self.method == "gbrt" else self._fit_linear
        fit(prepared, start, progress)
        return self._conclude(prepared)

    @property
    def _gate_reads_cheap(self):
        return self.method == "gbrt"

    def _lower_gate(self, level):
        if self.method == "gbrt":
            self.pair_["doubt"] = self.pair_["doubt"] - np.array([0.0, level])
        else:
            super()._lower_gate(level)

    def _fit_boosted(self, prepared, start, progress):
        _, test = self._split(prepared)
        how = {"p_full": self.p_full, "max_iter": self.max_iter, "progress": progress}
        pair = self._boost(prepared.boosting, **how)
        found = calibrate(pair, *test[:4], n_classes=len(self.classes_), p_full=self.p_full)
        self.pair_, cheap, reads = finish(pair, found["rounds"], found["doubt"])
        self.features_used_ = {"gate": reads, "cheap": cheap}
        gain = test[4] - found["right"]
        self._set_level(prepared, lambda *at: most_accurate_level(at[0], gain, at[1], self.p_full))
        self.objective_ = np.array(pair["objectives"])
        self.held_out_objective_ = np.array(found["objectives"])
        self.n_iter_ = found["rounds"]

    def _fit_linear(self, prepared, start, progress):
        scaled, mean, scale = self._standardised(prepared)
        train, _ = self._split(scaled)
        how = {
            "n_classes": len(self.classes_),
            "p_full": self.p_full,
            "gamma": self.gamma,
            "group_of": self.group_of_,
            "group_costs": self.group_costs_,
            "least_squares": self.method == "lstsq",
            "max_iter": self.max_iter,
            "tol": self.tol,
            "progress": progress,
        }
        solve = adapt_linear_multistart if start is None else adapt_linear
        begin = {} if start is None else {"start": start}
        W, intercept, objectives = solve(*train[:3], train[3] / train[3].sum(), **how, **begin)
        self.start_ = W, intercept
        self._set_linear(W, intercept, mean, scale)
        # The logistic fit puts the level at 0, unless more than p_full is sent from there.
        self._set_level(prepared, lambda *at: max(0.0, lowest_level(find_cuts(*at), self.p_full)))
        self.objective_ = np.array(objectives)
        self.held_out_objective_ = np.empty(0)
        self.n_iter_ = len(objectives)


class GreedyMiserClassifier(GbrtParameters, PairMixin, GatingBase):
    """Boosted trees that pay for each feature once: Adapt with ``p_full=0``.

    GreedyMiser [1]_: the gain of a split is lowered by ``gamma * c`` the first time that its
    feature is used. Every row is answered by the same trees and costs the same.

    Parameters
    ----------
    gamma : float, default=0.001
        Price of features: a feature of cost c is bought if it lowers the mean loss, in
        nats, by ``gamma * c``. Raising it leaves fewer features.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns.

    n_estimators : int, default=100
        Boosting rounds.

    learning_rate : float, default=0.2
        Shrinkage of the trees.

    max_leaf_nodes : int, default=31
        Leaves per tree.

    l2_regularization : float, default=1.0
        L2 penalty on leaf values.

    budget : float, default=None
        Mean cost per sample. A budget below the cost of the features bought is an error.

    n_jobs : int, default=None
        Threads of LightGBM.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["cheap"]``.

    features_used_ : dict of ndarray
        Positions of the columns that the ``"cheap"`` model reads; ``"gate"`` is empty.

    cost_table_ : dict of float
        Cost of a row.

    objective_ : ndarray
        Mean training loss plus ``gamma`` times the cost of the features used, every tenth of
        the rounds.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    AdaptGatingClassifier : Sends hard rows to a full model.

    References
    ----------
    .. [1] Z. Xu, K. Q. Weinberger, O. Chapelle, "The Greedy Miser: Learning under Test-time
       Budgets", ICML 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skroute.gating import GreedyMiserClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> miser = GreedyMiserClassifier(gamma=0.02).fit(X[::2], y[::2])
    >>> len(miser.features_used_["cheap"]) < 15
    True
    >>> bool(miser.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    _parameter_constraints: dict = {
        **{k: v for k, v in GatingBase._parameter_constraints.items() if k != "policy"},
        **GbrtParameters._gbrt_constraints,
    }

    p_full = 0.0

    def __init__(
        self,
        *,
        gamma=1e-3,
        feature_costs=None,
        feature_groups=None,
        n_estimators=100,
        learning_rate=0.2,
        max_leaf_nodes=31,
        l2_regularization=1.0,
        budget=None,
        n_jobs=None,
    ):
        self.gamma = gamma
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.l2_regularization = l2_regularization
        self.budget = budget
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Grow the trees.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Numeric rows; NaN is allowed.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self
        """
        self._unfit()
        values, encoded, weight = self._checked(X, y, sample_weight)
        self._set_groups()
        self.model_costs_ = np.zeros(3)
        kept = weight > 0
        rows = training_rows(values[kept], encoded[kept], np.zeros(kept.sum()), weight[kept])
        pair = self._boost(rows, p_full=0.0, max_iter=10)
        self.pair_, cheap, gate = finish(pair, self.n_estimators, np.zeros(2))
        self.features_used_ = {"gate": gate, "cheap": cheap}
        self.objective_ = np.array(pair["objectives"])
        self._set_cost_table()
        self._check_feasible(self._effective_budget(None))
        self.choices_ = ["cheap"]
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
