"""The baseline of the paper: choose features by the L1 norm, then train in turn."""

import numpy as np

from skroute.gating._gated import GatedBuyer
from skroute.gating._gates import Standardised
from skroute.gating._levels import find_cuts, lowest_level
from skroute.gating._linear import adapt_linear
from skroute.gating._objective import log_probabilities

__all__ = ["L1GatingClassifier"]


class L1GatingClassifier(GatedBuyer):
    """Baseline gate: features from an L1 penalty, then a cheap model, then a gate.

    The baseline of Nan and Saligrama [1]_, section 5: (1) a sparse logistic regression on all
    rows selects features; (2) the cheap model is a logistic regression on these; (3) the gate
    is a logistic regression on these that predicts whether the cheap model is wrong. A share
    `p_full` of the rows, those most likely wrong, goes to the full model. Nothing is trained
    jointly, which is what Adapt improves on.

    Parameters
    ----------
    estimator : classifier with predict_proba
        The full model.

    p_full : float, default=0.3
        Share of rows sent to the full model: at most this of the training rows.

    gamma : float, default=0.001
        Strength of the penalty ``gamma * sum_a sqrt(c_a) ||f1_a||`` of step 1, which is the
        L1 norm if there are two classes. Raising it leaves fewer features.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns.

    full_features : array-like of column names or positions, default=None
        What the full model is given. None: all columns.

    model_costs : mapping, default=None
        Cost of evaluating ``"gate"``, ``"cheap"`` and ``"full"`` for a row. None: all 0.

    cv : int, cross-validation generator or iterable, default=None
        See :class:`AdaptGatingClassifier`.

    budget : float, default=None
        Mean cost per sample. None: unlimited.

    policy : {"online", "batch"}, default="online"
        See :class:`AdaptGatingClassifier`.

    n_jobs : int, default=None
        Jobs for the cross-validation of the full model.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    estimator_ : classifier
        The fitted full model.

    choices_ : list of str
        ``["cheap", "full"]``.

    features_used_ : dict of ndarray
        Positions of the columns that each model reads.

    cost_table_ : dict of float
        Cost of a row by choice.

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
    AdaptGatingClassifier : Trains the three jointly.

    References
    ----------
    .. [1] F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget",
       NeurIPS 2017, section 5.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.gating import L1GatingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(oob_score=True, random_state=0)
    >>> gate = L1GatingClassifier(forest, p_full=0.2, gamma=0.1).fit(X, y)
    >>> len(gate.features_used_["cheap"]) < 10
    True
    """

    def __init__(
        self,
        estimator,
        *,
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

    def _ready(self, rows):
        return Standardised.of(rows, self._categorical)

    def _fit_pair(self, rows, held_out, ready, problem, start, progress):
        """The three steps; features are selected at `gamma`, the rest is not penalised."""
        y, problem = rows.y, ready.problem(problem)
        columns = problem.group_of
        how = {"full_loss": rows.full_loss, "weight": rows.weight / rows.weight.sum()}
        how |= {"p_full": 0.0, "max_iter": 1, "tol": 1e-5}
        alone = problem._asdict() | how
        W, _, _ = adapt_linear(ready.values, y, **alone)
        chosen = np.flatnonzero(W.any(axis=1))
        part = ready.values[:, chosen]
        free = {"gamma": 0.0, "group_of": np.zeros(len(chosen), dtype=columns.dtype)}
        free = alone | free | {"group_costs": np.zeros(1)}
        cheap, base, _ = adapt_linear(part, y, **free)
        scores = part @ cheap[:, :-1] + base[:-1]
        wrong = (log_probabilities(scores).argmax(axis=1) != y).astype(np.intp)
        gate, level, _ = adapt_linear(part, wrong, **free | {"n_classes": 2})
        W[:] = 0.0
        W[chosen, :-1], W[chosen, -1] = cheap[:, :-1], gate[:, 0]
        return ready.raw(W, np.append(base[:-1], level[0])), None

    def _level(self, pair, gate, rows):
        """The `p_full` share with the highest scores is sent."""
        return lowest_level(find_cuts(gate, rows.weight), self.p_full)
