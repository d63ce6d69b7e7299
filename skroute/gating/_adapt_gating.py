"""Adapt: learn when the cheap model is enough (Nan and Saligrama, 2017)."""

import numpy as np

from skroute.gating._gated import GatedBuyer
from skroute.gating._gates import BoostedGate, LinearGate

__all__ = ["AdaptGatingClassifier"]


class AdaptGatingClassifier(GatedBuyer):
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

    gate : BoostedGate or LinearGate, default=None
        The kind of f1 and g, with its parameters: :class:`BoostedGate` (Algorithm 2) or
        :class:`LinearGate` (Algorithm 1). None: ``BoostedGate()``. To search its
        parameters, give one: ``gate=BoostedGate()`` has ``gate__learning_rate``.

    p_full : float, default=0.3
        Upper bound of the share of rows sent to the full model: exact on the training
        rows, and on new rows but for the luck of the rows held out. Rows that the gate
        scores alike are sent together or not at all. Raising it raises accuracy and cost.
        With 0 the full model is never asked.

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
        and by the ``"full"`` one (a mean over training rows if that is a gating estimator
        itself). Features are paid once.

    objective_ : ndarray
        The objective on the rows learned from at each alternation. Never rises for a
        :class:`LinearGate`.

    held_out_objective_ : ndarray
        For a :class:`BoostedGate`, the objective on held-out rows, without feature costs;
        its minimum decides ``n_iter_``. Empty otherwise, and without a gate.

    n_iter_ : int
        Boosting rounds kept, or alternations.

    min_budget_ : float
        The smallest feasible budget.

    validation_quality_, validation_cost_ : float
        Share of the held-out rows answered correctly at `budget`, by online decisions, and what
        they cost. Each half of them is decided at the level and the threshold of the other half.

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
    GreedyMiserClassifier : The cheap model alone.
    adapt_grid : Many values of `p_full` and `gamma` with one fit of the full model.
    skroute.features.LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    A row of a call may also be given as :class:`~skroute.features.LazyFeatures` or a mapping.

    Every share and budget is read off gate scores of held-out rows, which the pair in use
    has not seen: boosted trees look better on their training rows than they are, and
    another pair has another scale.

    The gate of a :class:`BoostedGate` is ``a * doubt(f1(x)) + b + trees(x)``: besides
    trees, it reads the log-odds that f1 gives against its own answer, which cost nothing
    more. Where the doubt alone gains more on held-out rows, on average over the shares up to
    `p_full`, it is the gate: probabilities of a full model that are far off teach the trees to
    send the wrong rows, and few rows teach them little. The level of ``g > 0`` is set so that
    the held-out rows that are sent, at most a share `p_full`, gain the most accuracy:
    probabilities of a full model need not be calibrated for that, its answers count. The
    paper leaves the level where the logistic
    fit puts it, and so does a :class:`LinearGate` (but for `p_full`, which always binds).

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
        **GatedBuyer._parameter_constraints,
        "gate": [BoostedGate, LinearGate, None],
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
        self.budget = budget
        self.policy = policy
        self.n_jobs = n_jobs

    @property
    def _gate(self):
        return BoostedGate() if self.gate is None else self.gate

    def _prepare(self, X, y, sample_weight, params):
        self._gate._validate_params()
        return super()._prepare(X, y, sample_weight, params)

    def _ready(self, rows):
        return self._gate._ready(rows, self._categorical)

    def _fit_pair(self, rows, held_out, ready, problem, start, progress):
        fitted = self._gate._fit_pair(
            rows, held_out, ready, problem, start=start, n_jobs=self.n_jobs, progress=progress
        )
        self.objective_ = np.array(fitted.objectives)
        self.held_out_objective_ = np.array(fitted.held_out_objectives)
        self.n_iter_ = fitted.n_iter
        return fitted.pair, fitted.start

    def _level(self, pair, gate, rows):
        return self._gate._level(pair, gate, rows, self.p_full)

    def _worth(self, pair, gate, rows):
        return self._gate._worth(pair, gate, rows, self.p_full)
