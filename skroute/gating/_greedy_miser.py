"""GreedyMiser: boosted trees that pay for each feature once."""

from numbers import Integral

import numpy as np

from skroute.gating._base import Decision, FeatureBuyer
from skroute.gating._gates import BoostedGate, Problem, Rows
from skroute.gating._objective import log_probabilities
from skroute.utils._compat import Interval, Real

__all__ = ["GreedyMiserClassifier"]


class GreedyMiserClassifier(FeatureBuyer):
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
        Threads of LightGBM (one in a forked process, where OpenMP would wait for ever).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["cheap"]``.

    features_used_ : dict of ndarray
        Positions of the columns that the ``"cheap"`` model reads.

    cost_table_ : dict of float
        Cost of a row.

    objective_ : ndarray
        Mean training loss plus ``gamma`` times the cost of the features used, every tenth of
        the rounds.

    min_budget_ : float
        The smallest feasible budget.

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
        **FeatureBuyer._parameter_constraints,
        "gamma": [Interval(Real, 0, None, closed="left")],
        **{k: v for k, v in BoostedGate._parameter_constraints.items() if k != "max_iter"},
        "n_jobs": [Integral, None],
    }

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

    _reads_categories = True

    def fit(self, X, y, sample_weight=None):
        """Grow the trees.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows; NaN is allowed. Columns of a data frame may be categories, as texts.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self
            After a failure it is not fitted.
        """
        return super().fit(X, y, sample_weight=sample_weight)

    def _fit(self, X, y, *, task, sample_weight=None):
        values, encoded, weight = self._checked(X, y, sample_weight)
        nothing = np.zeros(len(encoded))
        rows = Rows(values, encoded, nothing, weight, nothing).of(weight > 0)
        trees = BoostedGate(
            n_estimators=self.n_estimators,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            l2_regularization=self.l2_regularization,
        )
        groups = self.group_of_, self.group_costs_
        problem = Problem(len(self.classes_), 0.0, self.gamma, *groups)
        fitted = trees._fit_pair(
            rows,
            None,
            trees._ready(rows, self._categorical),
            problem,
            n_jobs=self.n_jobs,
            progress=lambda: task.step("boost"),
        )
        self.pair_, self.objective_ = fitted.pair, np.array(fitted.objectives)
        self.features_used_ = {"cheap": self.pair_.cheap_features}
        self.cost_table_ = {"cheap": self._feature_cost(self.pair_.cheap_features)}
        self._check_feasible(self._effective_budget(None))
        self.choices_ = ["cheap"]

    def _decide(self, ledger, rows, budget):
        self._check_feasible(budget)
        ledger.plan(rows, self.pair_.cheap_features)
        return Decision.nobody_sent(len(rows))

    def _own_proba(self, ledger, rows, decision):
        values = ledger.take(rows, self.pair_.cheap_features)
        return np.exp(log_probabilities(self.pair_.cheap_scores(values)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
