"""Buy features a set at a time, and stop where no further set is worth its price."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skroute.assignment._induction import STOP
from skroute.base import CallParameter, Plan, check_budget, dispatch, note_failure
from skroute.base._inspection import may_take_weights
from skroute.gating._buyer import (
    FeatureBuyer,
    FeatureLedger,
    model_input,
    quality_of,
)
from skroute.gating._choosing import (
    ROOM,
    HeldOut,
    buys_on,
    candidates_within,
    first_half,
    judge,
)
from skroute.gating._explanation import Explanation, NextPurchase, Round
from skroute.gating._induction import (
    ANSWER_PRICES,
    LEAF_PRICES,
    AnswerState,
    LeafState,
    Shown,
    learn_policies,
    price_grid,
)
from skroute.gating._set_models import SetModel, Task, fit_again, fit_judged, fit_own
from skroute.gating._sets import Trials, find_sets, sorted_sets
from skroute.gating._switches import SwitchSearch, grow_behind_switches
from skroute.metrics._objectives import OF_LABELS, objective_of_labels
from skroute.utils._cache import NO_CACHE, cache_of
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    _safe_indexing,
    check_method_params,
    is_scorer,
    num_samples,
    routing_enabled,
)
from skroute.utils._frames import as_rows, is_frame, names_and_columns
from skroute.utils._named import align_by_class
from skroute.utils._row_hash import even_draws, feature_keys
from skroute.utils._statistics import standard_error
from skroute.utils._tables import Column, Table, list_names, share_column
from skroute.utils._validation import (
    check_probabilities,
    relative_weights,
    warn,
    with_sum_one,
)

__all__ = ["OperatingPoint", "SequentialFeatureClassifier"]

# Share of the rows that is held out.
_HELD_OUT = 1 / 3
# Largest number of held-out rows. It bounds the time and memory of learning purchases.
_MOST_HELD_OUT = 5000
# Smallest number of rows in `fit`. With fewer, one half of the held-out rows is empty.
_FEWEST = 6
# Number of calls with different limits whose `Choice` is cached.
_CACHED = 8
# Number of pairs of `max_rounds` and `max_cost` whose policies are cached. The policies
# of a pair take some 50 MB.
_CACHED_POLICIES = 2
# Largest number of sets that get a model. More sets take time, and few rows would buy
# them.
_MOST_SETS = 44
# Number of trees in the small forests of the rough policy by which sets are selected.
_ROUGH_TREES = 2
# Largest number of leaves of a tree of the rough policy by which sets are selected.
_ROUGH_LEAVES = 32
# A set of `sets_behind_switches` gets a model only if more than this share of the rows
# has it at some dual price.
_LEAST_SHARE = 0.005
# Number of first sets, the best ones at each dual price, from which a rough policy
# makes purchases for rows, to count the rows that have each set.
_FIRST_SETS = 3


class OperatingPoint(NamedTuple):
    """The purchases at one budget, and their cost and quality on held-out rows.

    Attributes
    ----------
    first : list
        Names of the groups that every row buys at once.

    price : float
        Quality that a unit of cost must bring for a row to buy more. Infinity if no row
        buys more.

    share : float
        Share of the rows that buy at the next lower price instead, so that the whole
        budget is spent. These rows are drawn by a hash of their bought values.

    cost, cost_se : float
        Mean cost of the held-out rows, and its standard error.

    quality, quality_se : float
        Mean quality of the held-out rows, and its standard error. Each half of the rows
        buys as the other half has chosen. If `quality` of the estimator is a scorer,
        the fields are the mean of the scores of the two halves, and half of the
        difference of the scores.

    Examples
    --------
    >>> from skroute.gating import OperatingPoint
    >>> OperatingPoint(["blood"], 0.1, 0.0, 3.0, 0.2, 0.9, 0.01).first
    ['blood']
    """

    first: list
    price: float
    share: float
    cost: float
    cost_se: float
    quality: float
    quality_se: float

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the point as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row, with the fields as columns.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the point as a `Table` of one row."""
        return Table(
            "OperatingPoint",
            [
                Column("first", [self.first], texts=[list_names(self.first)]),
                Column(
                    "price",
                    [self.price],
                    unit="quality per unit of cost",
                    infinite="infinite, no row buys more",
                ),
                share_column(
                    "share",
                    [self.share],
                    whole="rows, which buy at the next lower price",
                ),
                Column("cost", [self.cost], unit="per row, held-out mean"),
                Column("cost_se", [self.cost_se]),
                Column("quality", [self.quality], unit="held-out mean"),
                Column("quality_se", [self.quality_se]),
            ],
        )


class Choice(NamedTuple):
    """Decisions within the limits of one call: first set, policies of later purchases.

    Attributes
    ----------
    start : int
        Position of the first set.
    n_left : int or None
        Largest number of purchases after the first set. None is any number.
    goes_on : bool
        True if rows may buy something after the first set.
    policy : int or None
        Position of the deciding policies in the list of `_policies`. None if nothing is
        bought after the first set.
    policies : Policies or None
        The deciding policies at two dual prices: the higher, then the lower one. None
        if `goes_on` is False.
    spending : Spending or None
        Positions of the two prices among all prices of the policies, and the share of
        the rows at the lower price. None if nothing is bought after the first set.
    within : tuple of (int or None, float)
        Largest number of purchases and largest cost of a row, for which the policies
        were learned.
    point : OperatingPoint
        The decisions as the user sees them, with their cost and quality on the held-out
        rows.
    """

    start: int
    n_left: int | None
    goes_on: bool
    policy: int | None
    policies: Any
    spending: Any
    within: tuple
    point: OperatingPoint


class Walk(NamedTuple):
    """Purchases that were made for the rows of a call.

    Attributes
    ----------
    position : ndarray of shape (n_rows,), dtype=int64
        The set that each row ends at.
    rounds : ndarray of shape (n_rows, n_groups), dtype=int64
        Round in which a group was bought, from 1. 0: it was not bought.
    """

    position: np.ndarray
    rounds: np.ndarray


class _PlanState(NamedTuple):
    """State of a plan: what was bought for the rows.

    Attributes
    ----------
    ledger : FeatureLedger
        The bought features.
    walk : Walk
        The set that each row ends at, and the rounds of the purchases.
    """

    ledger: FeatureLedger
    walk: Walk


class HeldOutRows(NamedTuple):
    """Answers to the held-out rows with each set, and the quality of these answers.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        All values of the rows.
    proba : list of ndarray of shape (n_rows, n_classes)
        Class probabilities by the model of each set.
    key : list of ndarray of shape (n_rows,)
        The class probabilities of each set as one number for each row, see `Shown`.
    value_by_set : ndarray of shape (n_sets, n_rows)
        Estimated quality of answering with each set. It is the expected quality if the
        true class has the probabilities of the set. If probabilities are rated, it is
        the mean of the expected and the real quality.
    value_by_all_groups : ndarray of shape (n_sets, n_rows)
        As `value_by_set`, but the true class has the probabilities of the set of all
        groups.
    outcomes : HeldOut
        Real quality of answering with each set.
    """

    values: np.ndarray
    proba: list
    key: list
    value_by_set: np.ndarray
    value_by_all_groups: np.ndarray
    outcomes: HeldOut


KNOWN = CallParameter(
    "known",
    "array-like or dataframe of bool, shape (n_samples, n_groups), default=None",
    """Groups that each row need not pay for. A data frame may have columns for some
    groups only. None: no group is known before.""",
)
MAX_ROUNDS = CallParameter(
    "max_rounds",
    "int, default=None",
    """Largest number of purchases per row. None takes the constructor's.""",
)
MAX_COST = CallParameter(
    "max_cost",
    "float, default=None",
    """Largest cost of a single row. None takes the constructor's; ``numpy.inf`` is
    unlimited.""",
)


class SequentialFeatureClassifier(FeatureBuyer):
    r"""Buy one set of features after another, until the next is not worth its price.

    The field calls this active feature acquisition. `fit` looks for sets of groups: the
    best one within each cost, and sets behind *switches*. A switch is a group whose
    value tells which other groups matter for a row. A model is fitted for each set. All
    rows buy one set first. After each purchase a row stops or buys up to a larger set.
    Which one depends on the values that it has shown, and on the answer so far. At each
    budget the first set and the price of going on are those that were best on held-out
    rows. The best fixed set within the budget is always a candidate. It is bought alone
    if it was better by more than a standard error.

    Parameters
    ----------
    estimator : classifier with predict_proba, default=None
        The model. Clones of it are fitted twice for each of some forty sets, each on
        the columns of its set. None takes two forests of LightGBM, of which one fits
        closely and one has random thresholds. The factors of their scores are chosen on
        held-out rows. The search for sets always uses LightGBM.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group if `feature_groups` is given. A group of
        cost 0 is bought for every row. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its
        columns (names or positions). Every column is in one group. None: each column is
        a group.

    quality : str, cost matrix or callable, default="log_loss"
        Quality of an answer, as in :class:`~skroute.routing.OccamRouterClassifier`.
        First sets, the next purchases and stops are chosen for it. Sets and models are
        found by log loss in any case. The default suits probabilities, rankings and
        money alike. If positives are rare, accuracy sees no difference between a good
        set and none. A scorer, or the name of one such as ``"roc_auc"``, chooses the
        first set only.

    max_rounds : int, default=None
        Largest number of purchases of a row, one after the other: how often a patient
        is called back. A set is bought in one purchase. None is any number.

    max_cost : float, default=None
        Cost that no row exceeds, in the unit of `feature_costs`. None is unlimited.

    budget : float, default=None
        Mean cost per row, in the unit of `feature_costs`. None is unlimited: within
        `max_rounds` and `max_cost`, a row buys all that raised the quality of held-out
        rows.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone, at the price at which held-out rows spent
        the budget. The budget then holds on average. ``"batch"`` never exceeds the
        budget on the rows of a call. If the budget does not pay for all purchases, the
        rows that would buy at the highest price are served first.

    random_state : int, RandomState instance or None, default=None
        Determines the held-out rows, a third of them and at most five thousand. Pass an
        int for the same result at every fit.

    n_jobs : int, default=None
        Threads in `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["0 groups", "1 group", ...]``: `route` is the number of groups bought.

    sets_ : list of list
        Names of the groups of each set, by cost: the free groups first, all groups
        last.

    set_costs_ : ndarray of shape (n_sets,)
        Cost of each set.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    min_budget_ : float
        0: a row without a purchase gets the shares of the classes, or the answer by the
        free groups.

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    See Also
    --------
    AdaptGatingClassifier : One decision per row: the cheap model, or the full one.
    skroute.features.LazyFeatures : Features fetched when a row needs them.

    Notes
    -----
    What to buy next is learned backwards over the sets from held-out rows [1]_. At a
    price :math:`p` of cost, going on from a set :math:`S` to a larger one :math:`T`
    leads over stopping by

    .. math:: E[V_T - v_S \mid \text{what was shown at } S] - p (c_T - c_S),

    with :math:`v_S` the quality of answering with S and :math:`V_T` that of the best
    course from T on. The expectation is a mean over similar rows. A row does not count
    in its own expectation. Rows are similar if they are in the same leaves of a small
    forest on the bought values and the answer, or if they have similar answers. The
    policies of both kinds are candidates.

    `fit`, `predict` and the other calls warn if a budget above 0 buys nothing.

    References
    ----------
    .. [1] F. Longstaff, E. Schwartz, "Valuing American Options by Simulation: A Simple
       Least-Squares Approach", Review of Financial Studies 2001.
    .. [2] I. Covert et al., "Learning to Maximize Mutual Information for Dynamic
       Feature Selection", ICML 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skroute.gating import SequentialFeatureClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SequentialFeatureClassifier(budget=2, random_state=0)
    >>> model = model.fit(X[::2], y[::2])
    >>> routed = model.predict_routed(X[1::2])
    >>> bool((routed.y_pred == y[1::2]).mean() > 0.9), bool(routed.cost.mean() < 2.5)
    (True, True)
    >>> bool(model.predict_cost(X, max_cost=3).max() <= 3)
    True
    """

    _parameter_constraints: dict = {
        **FeatureBuyer._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict_proba"]), None],
        "max_rounds": [Interval(Integral, 0, None, closed="left"), None],
        "max_cost": [Interval(Real, 0, None, closed="both"), None],
        "random_state": ["random_state"],
    }
    call_parameters = (KNOWN, MAX_ROUNDS, MAX_COST)

    def __init__(
        self,
        estimator=None,
        *,
        feature_costs=None,
        feature_groups=None,
        quality="log_loss",
        max_rounds=None,
        max_cost=None,
        budget=None,
        policy="online",
        random_state=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.quality = quality
        self.max_rounds = max_rounds
        self.max_cost = max_cost
        self.budget = budget
        self.policy = policy
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self):
        # Policies are larger than all other attributes, so that they are not pickled.
        # A call that needs them learns them again.
        return super().__getstate__() | {"_cached_policies": []}

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, **params):
        """Learn what to buy, when to stop and how to answer.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows with all features that can be bought; NaN where a value is missing.
            Columns may be categories, as texts (texts of digits are texts, too), and
            dates.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights of the models, of the quality of answers and of the cost of
            rows. They are passed to the clones of `estimator`, which must take them.
            skroute's own models do not depend on their unit. Whole multiples of the
            smallest weight, up to 16, count rows. Other weights get the mean 1.

        **params : dict
            With metadata routing enabled: parameters for the `fit` of `estimator`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If `sample_weight` is given, metadata routing is off and `estimator` does
            not take it.

        UnsetMetadataPassedError
            If metadata routing is on and `estimator` does not request what is given.
        """
        return super().fit(X, y, sample_weight=sample_weight, **params)

    def _fit(self, X, y, *, task, sample_weight=None, **params):
        """Find sets of groups, fit a model for each, and learn the purchases.

        Sets, states and policies are learned with models that were not fitted on the
        held-out rows. The models that answer new rows are fitted on all rows. The
        fitted attributes are set here or in `_checked`.

        Parameters
        ----------
        X, y, sample_weight, params
            As in :meth:`fit`.

        task : FitTask
            Reports the steps to callbacks. A `Task` is another thing: rows to learn
            from.
        """
        X = as_rows(X)
        checked = self._checked(X, y, sample_weight)
        weight = relative_weights(checked.weight)
        # Positions in X. A row of weight 0 must have no effect.
        rows = np.flatnonzero(weight > 0)
        if len(rows) < _FEWEST:
            raise ValueError(
                f"X has {len(rows)} rows of positive weight; at least {_FEWEST} are "
                "needed, since what is learned is judged on rows held out."
            )
        if sample_weight is not None:
            # The clones of `estimator` get the weights, too.
            params = params | {"sample_weight": checked.weight}
        fit_params = self._inner_params(params)
        objective = self._set_quality(checked.encoded[rows], weight[rows])
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        all_rows = Task(
            checked.values,
            checked.encoded,
            weight,
            n_classes=len(self.classes_),
            group_of=self.group_of_,
            costs=self.group_costs_,
            categorical=self._categorical,
            seed=seed,
        )
        # Positions in `rows`.
        fitted_positions, held_out_positions = split_rows(checked.encoded[rows], seed)
        # Positions in X.
        fitted_rows = rows[fitted_positions]
        held_out_rows = rows[held_out_positions]
        fitted_task = all_rows.of(fitted_rows)
        held_out_task = all_rows.of(held_out_rows)
        if self._scorer is not None:
            self._check_scorer(held_out_task, all_rows.of(rows).shares)
        with task.step("search"):
            self._sets = self._search_sets(fitted_task, seed)
        with task.step("judge"):
            self._judged, honest_proba = self._fit_judged_models(
                fitted_task,
                _safe_indexing(X, fitted_rows),
                check_method_params(X, fit_params, fitted_rows),
                held_out_task,
            )
            self._held_out = self._judge_sets(
                held_out_task,
                _safe_indexing(X, held_out_rows),
                objective,
                honest_proba,
            )
        with task.step("fit"):
            self._models = self._fit_models(
                all_rows.of(rows),
                _safe_indexing(X, rows),
                check_method_params(X, fit_params, rows),
            )
        names = np.array(self.group_names_, dtype=object)
        self.sets_ = [names[groups].tolist() for groups in self._sets]
        self.set_costs_ = self._sets @ self.group_costs_
        with task.step("learn purchases"):
            self._states = self._make_states()
            self._cached_policies = []
            self._cached_choices = []
            n_groups = len(self.group_costs_)
            self.choices_ = [
                f"{n_bought} group{'' if n_bought == 1 else 's'}"
                for n_bought in range(n_groups + 1)
            ]
            # None: the limits of the constructor. The result is not used here. The call
            # caches it for `predict`, and may warn.
            limits = self._limits(budget=None, max_rounds=None, max_cost=None)
            self._choice(*limits, warns=True)

    def _set_quality(self, encoded, weight):
        """Set how answers are judged, and return the objective of single rows.

        Sets ``_scorer``, ``_row_quality`` and ``_class_weights``.

        Parameters
        ----------
        encoded : ndarray of shape (n_rows,)
            True labels of the rows of positive weight, as positions of classes.
        weight : ndarray of shape (n_rows,)
            Weights of these rows.

        Returns
        -------
        Objective
        """
        self._scorer = scorer_of(self.quality)
        # A scorer has no value for a single row. Single rows are then judged by log
        # loss.
        self._row_quality = self.quality if self._scorer is None else "log_loss"
        objective = objective_of_labels(self._row_quality, self.classes_)
        objective = objective.bound(encoded, weight)
        self._class_weights = objective.class_weights
        return objective

    def _check_scorer(self, held_out, shares):
        """Raise an error if the scorer cannot rate each half of the held-out rows.

        Parameters
        ----------
        held_out : Task
            The held-out rows.
        shares : ndarray of shape (n_classes,)
            Class shares, with which the scorer is tried.
        """
        is_first = first_half(len(held_out.y))
        for half in (held_out.y[is_first], held_out.y[~is_first]):
            if len(np.unique(half)) < len(self.classes_):
                raise ValueError(
                    f"quality={self.quality!r} is a scorer, which needs rows of every "
                    "class in each half of the held-out rows. Give more rows, or "
                    "quality='log_loss'."
                )
        # A scorer that does not accept these labels raises its own error here, before
        # any model is fitted.
        proba = np.tile(shares, (len(held_out.y), 1))
        answers = FixedAnswers(self.classes_, proba)
        self._scorer(answers, held_out.X, self.classes_[held_out.y])

    def _search_sets(self, task, seed):
        """Return the sets that get a model, ndarray of bool (n_sets, n_groups).

        Parameters
        ----------
        task : Task
            Rows that are not held out.
        seed : int
            Seed of the draws of the search.
        """
        # Limits of cost. The best set within each of them gets a model in any case.
        limits = []
        for limit in (self.budget, self.max_cost):
            if limit is not None and np.isfinite(limit):
                limits.append(float(limit))
        # Two searches, which run side by side.
        best, search_and_grown = self._parallel(
            [
                delayed(best_sets)(task, seed, limits),
                delayed(sets_behind_switches)(task, seed),
            ]
        )
        search, grown = search_and_grown
        return select_sets(search, best, grown)

    def _parallel(self, calls):
        """Return the values of delayed calls, which run in `n_jobs` threads."""
        return Parallel(n_jobs=self.n_jobs, prefer="threads")(calls)

    def _judge_sets(self, held_out, X, objective, honest_proba):
        """Return the answers to held-out rows with each set, and the answers' quality.

        Parameters
        ----------
        held_out : Task
            The held-out rows.
        X : indexable
            The held-out rows as the user gave them.
        objective : Objective
            The quality of single rows.
        honest_proba : list of ndarray of shape (n_rows, n_classes), or None
            Class probabilities with each set, by models that were not tuned on the row
            that they answer. Policies are judged by them. None if no model was tuned.

        Returns
        -------
        HeldOutRows
        """
        n_rows = len(held_out.y)
        n_groups = len(held_out.costs)
        ledger = FeatureLedger(
            n_samples=n_rows,
            n_features=held_out.X.shape[1],
            group_of=self.group_of_,
            n_groups=n_groups,
            values=held_out.X,
        )
        all_rows = np.arange(n_rows)
        # True if labels are rated, and False if probabilities are.
        asks_labels = objective.asks == "predict"
        # Each of these lists has an entry for each set.
        # Class probabilities, (n_rows, n_classes).
        all_proba = []
        # The probabilities as one number for each row, (n_rows,).
        keys = []
        # Real quality of the answers, (n_rows,).
        quality = []
        # Expected quality, if the true class has these probabilities, (n_rows,).
        expected = []
        for position in range(len(self._sets)):
            proba = self._proba(self._judged, position, X, ledger, all_rows)
            # Single precision takes half of the memory. The trees of `LeafState` read
            # no more digits.
            all_proba.append(proba.astype(np.float32))
            keys.append(self._key(proba))
            answers = proba
            if asks_labels:
                answers = self._labels(self._judged, position, X, ledger, all_rows)
            quality.append(objective.of(held_out.y, answers))
            expected.append(self._value(proba))
        quality = np.array(quality, dtype=np.float64)
        # Expected quality of answering with each set, (n_sets, n_rows). In the first
        # table the true class has the probabilities of the set itself. In the second it
        # has the probabilities of the last set, which has all groups.
        value_by_set = np.array(expected)
        proba_of_all_groups = all_proba[-1]
        value_by_all_groups = np.array(
            [self._value(proba, beliefs=proba_of_all_groups) for proba in all_proba]
        )
        if objective.asks == "predict_proba":
            # The expected quality is too high if a model is too sure. The real quality
            # is right on average, but noisy. The mean of both has half of each error.
            # Labels get no such mean: their real quality, right or wrong, is noisier.
            value_by_set = 0.5 * (value_by_set + quality)
            value_by_all_groups = 0.5 * (value_by_all_groups + quality)
        # Policies are judged by answers of models that were not tuned on the row.
        if honest_proba is None:
            # No model was tuned: `quality` is honest, too.
            honest_proba = all_proba
        else:
            honest_quality = []
            for proba in honest_proba:
                answers = proba.argmax(axis=1) if asks_labels else proba
                honest_quality.append(objective.of(held_out.y, answers))
            quality = np.array(honest_quality, dtype=np.float64)
        outcomes = HeldOut(quality, held_out.weight)
        if self._scorer is not None:
            score = partial(self._score, all_y=held_out.y, all_weight=held_out.weight)
            outcomes = outcomes._replace(score=score, proba=np.array(honest_proba))
        return HeldOutRows(
            values=held_out.X,
            proba=all_proba,
            key=keys,
            value_by_set=value_by_set,
            value_by_all_groups=value_by_all_groups,
            outcomes=outcomes,
        )

    def _make_states(self):
        """Return a `State` for each set: a division of rows by their bought values.

        Returns
        -------
        by_answer : list of AnswerState
            The states of the policies by answers, one for each set.
        by_leaves : list of LeafState or None
            The states of the policies by leaves, one for each set. None if the set has
            no columns, or if no larger set can be bought.
        """
        held_out = self._held_out
        # Estimated quality of answering each row with each set, if the true class has
        # the probabilities of the set of all groups. (n_sets, n_rows)
        value = held_out.value_by_all_groups
        weight = held_out.outcomes.weight
        by_answer = []
        # The arguments (shown, gains) of `LeafState` for each set. None: the set has no
        # state by leaves.
        leaf_inputs = []
        for position in range(len(self._sets)):
            # The answers as one number for each row, see `Shown`. (n_rows,)
            key = held_out.key[position]
            values = held_out.values[:, self._columns(position)]
            shown = Shown(values, held_out.proba[position], key)
            by_answer.append(AnswerState(key))
            # Sets that contain this one. (n_sets,)
            contains = (self._sets[position] <= self._sets).all(axis=1)
            costs_more = self.set_costs_ > self.set_costs_[position]
            larger = np.flatnonzero(contains & costs_more)
            has_columns = values.shape[1] > 0
            if not len(larger) or not has_columns:
                leaf_inputs.append(None)
                continue
            gains = (value[larger] - value[position]).T  # (n_rows, n_larger)
            leaf_inputs.append((shown, gains))
        # The states come in the order of the sets that have one.
        leaf_states = iter(
            self._parallel(
                delayed(LeafState)(*shown_and_gains, weight)
                for shown_and_gains in leaf_inputs
                if shown_and_gains is not None
            )
        )
        by_leaves = []
        for shown_and_gains in leaf_inputs:
            if shown_and_gains is None:
                by_leaves.append(None)
            else:
                by_leaves.append(next(leaf_states))
        return by_answer, by_leaves

    def _inner_params(self, params):
        """Return the parameters for the `fit` of the clones of `estimator`, a dict.

        `params` are those of :meth:`fit`, with ``sample_weight`` among them. Without
        `estimator`, the result is empty.
        """
        if routing_enabled():
            routed = self._route_metadata(params)
            return {} if self.estimator is None else routed["estimator"]["fit"]
        weights = {}
        others = dict(params)
        if "sample_weight" in others:
            weights["sample_weight"] = others.pop("sample_weight")
        # Without metadata routing, this raises an error if there are other parameters.
        self._route_metadata(others)
        if self.estimator is None:
            return {}
        if weights and not may_take_weights(self.estimator):
            raise ValueError(
                f"sample_weight was given, but estimator={self.estimator!r} does not "
                "take it. Leave it out, give a model that takes it, or enable metadata "
                "routing to weight the rest only."
            )
        return weights

    def _fit_judged_models(self, task, X, fit_params, held_out):
        """Fit the models that answer the held-out rows, without these rows.

        Parameters
        ----------
        task, X, fit_params
            As in `_fit_models`, without the held-out rows.
        held_out : Task
            The held-out rows. skroute's own models are tuned on them.

        Returns
        -------
        models : list
            One for each set.
        honest_proba : list of ndarray of shape (n_held_out, n_classes), or None
            Class probabilities with each set, by models that were not tuned on the row
            that they answer. None for a user's models, which are not tuned.
        """
        if self.estimator is not None:
            return self._fit_models(task, X, fit_params), None
        judged_sets = self._parallel(
            delayed(fit_judged)(task, groups, held_out) for groups in self._sets
        )
        models = [judged_set.model for judged_set in judged_sets]
        honest_proba = [judged_set.honest_proba for judged_set in judged_sets]
        return models, honest_proba

    def _fit_models(self, task, X, fit_params):
        """Return a list with a fitted model for each set.

        They are clones of the user's model, or the models of `_judged` fitted again.

        Parameters
        ----------
        task : Task
            The rows to fit on.
        X : indexable
            The rows of `task` as the user gave them.
        fit_params : dict
            Parameters of the `fit` of the user's model.
        """
        if self.estimator is not None:
            models = []
            for groups in self._sets:
                models.append(
                    fit_own(self.estimator, task, X, self.classes_, fit_params, groups)
                )
            return models
        sets_and_models = zip(self._sets, self._judged)
        return self._parallel(
            delayed(fit_again)(task, groups, model) for groups, model in sets_and_models
        )

    @property
    def _objective(self):
        """The quality of single rows, with the class weights of the training rows."""
        objective = objective_of_labels(self._row_quality, self.classes_)
        return replace(objective, class_weights=self._class_weights)

    def _value(self, proba, beliefs=None):
        """Return the expected quality of answering rows by probabilities, (n_rows,).

        Parameters
        ----------
        proba : ndarray of shape (n_rows, n_classes)
            Probabilities that answer.
        beliefs : ndarray of shape (n_rows, n_classes), default=None
            Probabilities of each class to be the true one. The quality is averaged with
            these weights. None takes `proba`.
        """
        beliefs = proba if beliefs is None else beliefs
        objective = self._objective
        n_rows, n_classes = proba.shape
        expected = np.zeros(n_rows)
        for true_class in range(n_classes):
            # The quality if all rows have this class.
            labels = np.full(n_rows, true_class, dtype=np.intp)
            expected += beliefs[:, true_class] * quality_of(objective, labels, proba)
        return expected

    def _key(self, proba):
        """Return one number per row for the answer: a probability, or expected quality.

        For two classes it is the probability of the second one (see `Shown.key`).
        `proba` has shape (n_rows, n_classes), the result (n_rows,).
        """
        if proba.shape[1] == 2:
            return proba[:, 1]
        return self._value(proba)

    def _score(self, proba, rows, *, all_y, all_weight):
        """Return the value of the scorer for answers to some held-out rows.

        Parameters
        ----------
        proba : ndarray of shape (n_scored, n_classes)
            Class probabilities that answer the scored rows.
        rows : ndarray
            The scored rows, as booleans or positions among the held-out rows.
        all_y, all_weight : ndarray of shape (n_rows,)
            Encoded classes and weights of all held-out rows.
        """
        y = self.classes_[all_y[rows]]
        weight = all_weight[rows]
        # Equal weights are left out, since not every scorer takes weights.
        weight_param = {} if np.ptp(weight) == 0 else {"sample_weight": weight}
        answers = FixedAnswers(self.classes_, proba)
        # The answers are fixed: they do not read the columns of the rows.
        no_columns = np.empty((len(y), 0))
        return self._scorer(answers, no_columns, y, **weight_param)

    def get_metadata_routing(self):
        """Return the routing of metadata to the clones of `estimator`.

        Returns
        -------
        MetadataRouter
            The routing of this estimator.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        if self.estimator is None:
            return router
        fit = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self.estimator, method_mapping=fit)

    # Choose ---------------------------------------------------------------------------

    def _smallest_budget(self):
        """Return the smallest feasible budget, 0: a row need not buy anything."""
        return 0.0

    def operating_point(self, budget=None, *, max_rounds=None, max_cost=None):
        """Return the purchases at one budget, with cost and quality on held-out rows.

        Parameters
        ----------
        budget : float, default=None
            As in `predict_routed`.

        max_rounds : int, default=None
            As in `predict_routed`.

        max_cost : float, default=None
            As in `predict_routed`.

        Returns
        -------
        OperatingPoint
            Named tuple ``(first, price, share, cost, cost_se, quality, quality_se)``.
        """
        check_is_fitted(self)
        return self._choice(*self._limits(budget, max_rounds, max_cost)).point

    def _limits(self, budget, max_rounds, max_cost):
        """Return checked limits of a call: budget, number of purchases, cost of a row.

        Parameters
        ----------
        budget, max_rounds, max_cost
            As in `predict_routed`. None takes the constructor's.

        Returns
        -------
        budget : float
            Infinity is unlimited.
        max_rounds : int or None
            None is any number.
        max_cost : float
            Infinity is unlimited.
        """
        max_rounds = self.max_rounds if max_rounds is None else max_rounds
        max_cost = self.max_cost if max_cost is None else max_cost
        if max_rounds is not None:
            if not isinstance(max_rounds, Integral) or max_rounds < 0:
                raise ValueError(
                    "max_rounds must be a whole number that is not negative, got "
                    f"{max_rounds!r}."
                )
            # No row buys more often than there are sets.
            max_rounds = min(max_rounds, len(self._sets))
        return (
            self._effective_budget(budget),
            max_rounds,
            check_budget(max_cost, name="max_cost"),
        )

    def _learn(self, max_rounds, max_cost):
        """Learn policies that keep the limits of number and cost of a row's purchases.

        Parameters
        ----------
        max_rounds : int or None
            Largest number of purchases of a row. None is any number.
        max_cost : float
            Largest cost of a row.

        Returns
        -------
        list of Policies
            Two entries: the policies by answers, then the policies by leaves.
        """
        held_out = self._held_out
        weight = held_out.outcomes.weight
        # `ROOM` is for the rounding of summed costs.
        allowed = self.set_costs_ <= max_cost * ROOM
        answer_states, leaf_states = self._states
        # The values of the sets, the states and the range of the prices, for both kinds
        # of policies.
        kinds = (
            (held_out.value_by_set, answer_states, ANSWER_PRICES),
            (held_out.value_by_all_groups, leaf_states, LEAF_PRICES),
        )
        # Policies are learned for at least one purchase. If `max_rounds` is 0, no
        # caller reads them.
        n_rounds = None if max_rounds is None else max(max_rounds, 1)
        policies = []
        for value, states, price_range in kinds:
            mean_value = held_out.outcomes.mean(value)
            policies.append(
                learn_policies(
                    value,
                    states,
                    self._sets,
                    self.set_costs_,
                    prices=price_grid(mean_value, self.set_costs_, price_range),
                    allowed=allowed,
                    n_rounds=n_rounds,
                    weight=weight,
                )
            )
        return policies

    def _policies(self, within):
        """Return the policies of `_learn`, from a cache if they were learned before.

        `within` is the pair of `max_rounds` and `max_cost`.
        """
        return cached_value(
            self._cached_policies,
            within,
            lambda: self._learn(*within),
            most=_CACHED_POLICIES,
        )

    def _n_left(self, start, max_rounds):
        """Return the largest number of purchases after the first set.

        Parameters
        ----------
        start : int
            Position of the first set. 0 is the set of the free groups.
        max_rounds : int or None
            Largest number of purchases of a row. None is any number.

        Returns
        -------
        int or None
            None is any number.
        """
        has_bought_nothing = start == 0 and not self._sets[0].any()
        if has_bought_nothing:
            # Rows have no values yet, by which some of them could buy more than others.
            return 0
        if max_rounds is None:
            return None
        # Set 0 has the free groups, which are there before the first purchase. Any
        # other first set is a purchase.
        return max(max_rounds - int(start > 0), 0)

    def _choice(self, budget, max_rounds, max_cost, *, warns=False):
        """Return the `Choice` of `_choose` within the limits of a call, from a cache.

        `budget`, `max_rounds` and `max_cost` come from `_limits`. If `warns` is True
        and nothing is bought, a warning is given.
        """
        limits = (budget, max_rounds, max_cost)
        choice = cached_value(
            self._cached_choices, limits, lambda: self._choose(*limits)
        )
        if warns and choice.point.cost == 0 and (self.group_costs_ > 0).any():
            self._warn_of_nothing(*limits)
        return choice

    def _choose(self, budget, max_rounds, max_cost):
        """Return the way to spend a budget that was best on the held-out rows.

        Parameters
        ----------
        budget : float
            Largest mean cost of a row. Infinity is unlimited.
        max_rounds : int or None
            Largest number of purchases of a row. None is any number.
        max_cost : float
            Largest cost of a row. Infinity is unlimited.

        Returns
        -------
        Choice
        """
        within = (max_rounds, max_cost)
        policies = self._policies(within)
        costs = self.set_costs_
        outcomes = self._held_out.outcomes
        # Sets that every row may buy first. `ROOM` is for the rounding of summed costs.
        starts = np.flatnonzero(costs <= min(budget, max_cost) * ROOM)
        if max_rounds == 0:
            # Nothing is bought: all rows start with set 0, which has the free groups
            # only. Without policies, no row buys more.
            starts = np.array([0])
            policies = []
        fixed_sets, policy_candidates = candidates_within(
            outcomes,
            policies,
            costs,
            budget=budget,
            starts=starts,
            n_left_of=partial(self._n_left, max_rounds=max_rounds),
        )
        judgement = judge(outcomes, fixed_sets, policy_candidates)
        candidate = judgement.candidate
        goes_on = buys_on(candidate, policies)
        # At an infinite price no row buys more after the first set.
        pair_policies = None
        price = np.inf
        share = 0.0
        if goes_on:
            # A share of the rows buys at the lower of two dual prices, the others at
            # the higher one.
            spending = candidate.spending
            pair = [spending.price_index, spending.lower_index]
            pair_policies = policies[candidate.policy].at_prices(pair)
            price = float(pair_policies.prices[0])  # the first of `pair`
            share = spending.share
        point = OperatingPoint(
            first=list(self.sets_[candidate.start]),
            price=price,
            share=share,
            cost=float(outcomes.mean(candidate.cost)),
            cost_se=standard_error(candidate.cost, outcomes.weight),
            quality=judgement.quality,
            quality_se=judgement.quality_se,
        )
        return Choice(
            start=candidate.start,
            n_left=candidate.n_left,
            goes_on=goes_on,
            policy=candidate.policy,
            policies=pair_policies,
            spending=candidate.spending,
            within=within,
            point=point,
        )

    def _warn_of_nothing(self, budget, max_rounds, max_cost):
        """Warn that nothing is bought, with the reason.

        Does nothing if a limit of 0 forbids all purchases. `budget`, `max_rounds` and
        `max_cost` come from `_limits`.
        """
        # The smaller of the two limits of cost, and its name. The numbers are compared
        # first.
        limit, name = min((budget, "budget"), (max_cost, "max_cost"))
        if limit == 0 or max_rounds == 0:
            return
        lowest_cost = self.set_costs_[self.set_costs_ > 0].min()
        # `ROOM` is for the rounding of summed costs.
        if lowest_cost > limit * ROOM:
            reason = (
                f"the cheapest set costs {lowest_cost:.6g} for each row. Raise {name}."
            )
        else:
            quality = self.quality
            if self._scorer is None:
                quality = self._objective.name
            reason = (
                f"no set of groups within it raised quality={quality!r} on the "
                "held-out rows. Another quality, more rows or other features may."
            )
        warn(f"Nothing is bought within {name}={limit!r}: {reason}")

    # Decide ---------------------------------------------------------------------------

    def _plan(self, X, call):
        """Buy features for each row, and return the decisions.

        Parameters
        ----------
        X : {array-like, data frame, LazyFeatures} of n_rows rows
        call : record of the call
            Its `budget` is the mean cost per row. Its options are ``known``,
            ``max_rounds`` and ``max_cost``.

        Returns
        -------
        Plan
            Its state is a `_PlanState`.
        """
        limits = self._limits(
            call.budget, call.option("max_rounds"), call.option("max_cost")
        )
        # A sweep over budgets has a cache. Its calls give no warnings.
        choice = self._choice(*limits, warns=cache_of(self) is NO_CACHE)
        known = self._known(call.option("known"), num_samples(X))
        ledger = self._ledger(X)
        walk = self._walk(X, ledger, known, choice, call.budget)
        is_bought = walk.rounds > 0
        # `route` is the number of bought groups, which is a position in `choices_`.
        route = is_bought.sum(axis=1).astype(np.int64)
        cost = is_bought @ self.group_costs_
        return Plan(route, cost, state=_PlanState(ledger, walk))

    def _walk(self, X, ledger, known, choice, budget, record=None):
        """Buy the groups of each row, round by round (`Walk`).

        Parameters
        ----------
        X : indexable of n_rows rows
            The rows as the user gave them.
        ledger : FeatureLedger
            Changed in place: it gets the bought features.
        known : ndarray of bool of shape (n_rows, n_groups)
            Groups that the rows need not pay for.
        choice : Choice
            The first set, the number of purchases after it, and the two prices.
        budget : float
            Mean cost that is never exceeded if ``policy="batch"``. Infinity is
            unlimited. With ``policy="online"`` it is not used.
        record : list, default=None
            Gets the `Step` of each round. None: steps are not recorded.
        """
        n_rows = len(known)
        n_left = choice.n_left
        first = self._sets[choice.start]
        # The round in which each group was bought, 0 if it was not. (n_rows, n_groups)
        # The groups of the first set are bought in round 1.
        rounds = (first & ~known).astype(np.int64)
        # The set of each row: the first set, or a larger one whose other groups are
        # known.
        set_of_row = np.full(n_rows, choice.start)
        set_of_row = self._with_known(set_of_row, known)
        spent = ((rounds > 0) @ self.group_costs_).sum()
        # Rest of the budget of all rows together. `ROOM` is for rounding.
        room = budget * n_rows * ROOM - spent
        # Number of the last round so far: 1 after a first set that costs something, 0
        # after one that is free.
        last_round = int((self.group_costs_[first] > 0).any())
        # A share of the rows buys at the lower of two dual prices. They are drawn here.
        drawn_rows = LowerPrice(n_rows, choice.point.share)
        # Positions of the rows that may buy more.
        going = np.arange(n_rows if choice.goes_on else 0)
        is_capped = self.policy == "batch" and np.isfinite(budget)
        # `n_left` of None is any number of rounds.
        while len(going) and n_left != 0:
            step = self._next_sets(
                X,
                ledger,
                going=going,
                set_of_row=set_of_row,
                choice=choice,
                n_left=n_left,
                drawn_rows=drawn_rows,
                with_reach=is_capped,
            )
            if record is not None:
                record.append(step)
            # Rows that buy nothing now have stopped for good.
            buys = step.target != STOP
            going = going[buys]
            target = step.target[buys]
            # Position of the highest dual price at which each row buys. Prices rise.
            reach = step.reach[buys]
            # Groups that each row buys in this round. (n_going, n_groups)
            extra = self._sets[target] & ~self._sets[set_of_row[going]] & ~known[going]
            extra_cost = extra @ self.group_costs_
            if is_capped:
                # Where the budget ends, rows that buy at the highest dual price come
                # first.
                order = np.argsort(-reach, kind="stable")
                # Cost of each row and of all rows before it in this order.
                summed_cost = np.cumsum(extra_cost[order])
                n_paid = int(np.searchsorted(summed_cost, room, "right"))
                # Positions in `going` of the rows that the budget pays for. The others
                # have stopped.
                paid = np.sort(order[:n_paid])
                going = going[paid]
                target = target[paid]
                extra = extra[paid]
                room -= extra_cost[paid].sum()
            last_round += 1
            # Before, the entries of the groups in `extra` were 0.
            rounds[going] += last_round * extra
            set_of_row[going] = target
            set_of_row = self._with_known(set_of_row, known)
            if n_left is not None:
                n_left -= 1
        return Walk(set_of_row, rounds)

    def _next_sets(
        self, X, ledger, *, going, set_of_row, choice, n_left, drawn_rows, with_reach
    ):
        """Decide which set each row buys next, or that it stops (`Step`).

        Parameters
        ----------
        X, ledger
            The rows, and their ledger.
        going : ndarray of int
            Positions of the rows that may buy.
        set_of_row : ndarray of shape (n_rows,), dtype=int64
            The set of each row.
        choice : Choice
            It has the policies, and the two prices at which rows buy.
        n_left : int or None
            Largest number of purchases that are left. None is any number.
        drawn_rows : LowerPrice
            The rows that buy at the lower price. Changed in place: it draws rows.
        with_reach : bool
            True if the highest price at which each row buys is needed.
        """
        # These policies have two dual prices: the higher, then the lower. `at_price`
        # and `at_lower_price` are positions on the axis of prices.
        policies = choice.policies
        at_price = 0
        at_lower_price = 1
        if with_reach:
            # The policies at all prices, and the positions of the two prices in them.
            policies = self._policies(choice.within)[choice.policy]
            at_price = choice.spending.price_index
            at_lower_price = choice.spending.lower_index
        target = np.full(len(going), STOP, dtype=np.int64)
        # Position of the highest dual price at which each row buys. -1: the row buys at
        # no price, or `with_reach` is False.
        reach = np.full(len(going), -1, dtype=np.int64)
        expectations = {}
        # Rows of one set are decided together.
        for set_position in np.unique(set_of_row[going]):
            # Positions in `going` of the rows of this set.
            inside = np.flatnonzero(set_of_row[going] == set_position)
            rows = going[inside]
            shown = self._shown(X, ledger, int(set_position), rows, len(set_of_row))
            expectation = policies.expect(int(set_position), shown, n_left)
            expectations[int(set_position)] = expectation
            # The set that each row buys at each dual price, or STOP.
            # (n_inside, n_prices)
            next_sets = expectation.go
            target[inside] = drawn_rows.take(
                rows,
                target_at_price=next_sets[:, at_price],
                target_at_lower=next_sets[:, at_lower_price],
                values=shown.values,
            )
            if with_reach:
                buys = next_sets != STOP
                # Prices rise: the last price at which a row buys is the highest. It is
                # the first one in reversed order.
                n_prices = buys.shape[1]
                last_price = n_prices - 1 - buys[:, ::-1].argmax(axis=1)
                reach[inside] = np.where(buys.any(axis=1), last_price, -1)
        return Step(going, target, reach, drawn_rows.is_lower(going), expectations)

    def _shown(self, X, ledger, position, rows, n_rows):
        """Return the values of a set that rows have bought, and its model's answers.

        The result is a `Shown`.

        The probabilities of a row are computed once in a sweep over budgets.

        Parameters
        ----------
        X, ledger
            All rows, and their ledger.
        position : int
            The set.
        rows : ndarray of int
            Positions of rows that have bought it.
        n_rows : int
            Number of all rows.
        """
        ask = partial(self._proba, self._judged, position, X, ledger)
        proba = cache_of(self).get_or_compute_rows(
            ("shown", position), rows, n_rows, ask
        )
        columns = self._columns(position)
        values = ledger.take(rows, columns)[:, columns]
        return Shown(values, proba, self._key(proba))

    def _columns(self, position):
        """Return the positions of the columns of the set at `position`."""
        groups = self._sets[position]
        return np.flatnonzero(groups[self.group_of_])

    def _proba(self, models, position, X, ledger, rows):
        """Return class probabilities of rows by the model of a set.

        Parameters
        ----------
        models : list
            One for each set.
        position : int
            The set.
        X, ledger
            All rows, and their ledger.
        rows : ndarray of int
            Positions of the rows to answer.

        Returns
        -------
        ndarray of shape (n_answered_rows, n_classes)
            Columns in the order of ``classes_``.
        """
        model = models[position]
        columns = self._columns(position)
        if isinstance(model, SetModel):
            return model.proba(ledger.take(rows, columns)[:, columns])
        # This is a model of the user.
        model_rows = model_input(self, ledger, rows, columns, X)
        with note_failure("estimator", len(rows), "predict_proba"):
            proba = check_probabilities(model.predict_proba(model_rows), "estimator")
        return align_by_class(
            np.asarray(proba, dtype=np.float64), model.classes_, self.classes_
        )

    def _labels(self, models, position, X, ledger, rows):
        """Return the labels of rows by the model of a set, as positions of classes.

        A user's model answers by `predict`, which may have a decision threshold.

        Parameters
        ----------
        models : list
            One for each set.
        position : int
            The set.
        X, ledger
            All rows, and their ledger.
        rows : ndarray of int
            Positions of the rows to answer.
        """
        model = models[position]
        if isinstance(model, SetModel):
            return self._proba(models, position, X, ledger, rows).argmax(axis=1)
        model_rows = model_input(self, ledger, rows, self._columns(position), X)
        with note_failure("estimator", len(rows), "predict"):
            # `classes_` are sorted.
            return np.searchsorted(self.classes_, model.predict(model_rows))

    def _with_known(self, set_of_row, known):
        """Return the largest set of which each row has bought or knows every group.

        The result has shape (n_rows,). This set contains the set that the row has
        bought. Its other groups are known.

        Parameters
        ----------
        set_of_row : ndarray of shape (n_rows,), dtype=int64
            The set of each row.
        known : ndarray of bool of shape (n_rows, n_groups)
            Groups that the rows need not pay for.
        """
        if not known.any():
            return set_of_row
        bought = self._sets[set_of_row]  # (n_rows, n_groups)
        largest = set_of_row.copy()
        for candidate, groups in enumerate(self._sets):
            contains = (bought <= groups).all(axis=1)
            # Groups of the candidate that the row would pay for. (n_rows, n_groups)
            to_pay = groups & ~bought & ~known
            is_free = contains & ~to_pay.any(axis=1)
            # Sets are sorted by cost: a later one costs at least as much.
            largest[is_free & (candidate >= largest)] = candidate
        return largest

    def _known(self, known, n_rows):
        """Check the call parameter `known`, and return it as bool (n_rows, n_groups).

        True: the row need not pay for the group.
        """
        n_groups = len(self.group_costs_)
        if known is None:
            return np.zeros((n_rows, n_groups), dtype=bool)
        if is_frame(known):
            names, columns_of_names = names_and_columns(known)
            columns = dict(zip(names, columns_of_names))
            unknown = [name for name in columns if name not in self.group_names_]
            if unknown:
                raise ValueError(
                    f"known has columns {unknown!r}, which are not among the groups "
                    f"{self.group_names_!r}."
                )
            # A group without a column is not known for any row.
            not_known = np.zeros(len(known), dtype=bool)
            known = np.column_stack(
                [np.asarray(columns.get(name, not_known)) for name in self.group_names_]
            )
        known = np.asarray(known)
        if known.shape != (n_rows, n_groups) or known.dtype != bool:
            raise ValueError(
                f"known must be a table of booleans of shape {(n_rows, n_groups)}, a "
                "row for each of X and a column for each of "
                f"{self.group_names_!r}, got shape {known.shape} of {known.dtype}."
            )
        return known

    def _answer(self, plan, response):
        """Return the answers to rows, each by the model of the set that a row ends at.

        `plan` is the result of `_plan`, `response` the name of the called method.
        """
        ledger = plan.state.ledger
        walk = plan.state.walk
        n_rows = len(walk.position)

        def answer(position, rows):
            # All of these rows end at the set `position`.
            method = self._labels if response == "predict" else self._proba
            ask = partial(method, self._models, position, plan.X, ledger)
            key = ("answer", position, response)
            answers = cache_of(self).get_or_compute_rows(key, rows, n_rows, ask)
            if response == "predict":
                # The answers are positions of classes.
                return self.classes_[answers]
            return with_sum_one(answers)

        return dispatch(walk.position, answer)

    def bought(self, X, budget=None, *, known=None, max_rounds=None, max_cost=None):
        """Return the round in which each group is bought for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `predict_routed`.

        budget : float, default=None
            As in `predict_routed`.

        known : array-like of shape (n_samples, n_groups), default=None
            As in `predict_routed`.

        max_rounds : int, default=None
            As in `predict_routed`.

        max_cost : float, default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples, n_groups), dtype=int
            The round, from 1; 0 where a group is not bought. A free group comes with
            the first set, in its round. The columns are in the order of
            ``group_names_``.
        """
        call = self.make_call(
            budget, known=known, max_rounds=max_rounds, max_cost=max_cost
        )
        return self.plan(X, call).state.walk.rounds

    def explain(self, x, budget=None, *, known=None, max_rounds=None, max_cost=None):
        """Explain the purchases for one row.

        Parameters
        ----------
        x : {array-like, dataframe} of shape (1, n_features)
            One row.

        budget, known, max_rounds, max_cost
            As in `predict_routed`.

        Returns
        -------
        Explanation
            For each round the groups that were bought and their cost, the class
            probabilities after it, and what the next purchase was expected to bring. It
            prints as a table; ``plot()`` draws it.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from skroute.gating import SequentialFeatureClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = SequentialFeatureClassifier(budget=2, random_state=0)
        >>> model = model.fit(X[::2], y[::2])
        >>> explanation = model.explain(X[[1]])
        >>> bool(explanation.cost == model.predict_cost(X[[1]])[0])
        True
        """
        call = self.make_call(
            budget, known=known, max_rounds=max_rounds, max_cost=max_cost
        )
        X, call = self._check_call(x, call)
        if num_samples(X) != 1:
            raise ValueError(
                f"x must be one row, shape (1, n_features), got {num_samples(X)} rows."
            )
        limits = self._limits(
            call.budget, call.option("max_rounds"), call.option("max_cost")
        )
        choice = self._choice(*limits)
        known = self._known(call.option("known"), 1)
        ledger = self._ledger(X)
        steps = []
        # Infinity: the cost of a single row is not capped by the mean budget. The row
        # buys at the price of the budget.
        walk = self._walk(X, ledger, known, choice, np.inf, record=steps)
        return self._explanation(X, ledger, choice, walk, steps)

    def _explanation(self, X, ledger, choice, walk, steps):
        """Return the `Explanation` of the purchases of one row.

        Parameters
        ----------
        X, ledger
            The row, and its ledger.
        choice : Choice
            The decisions of the call.
        walk : Walk
            The purchases of the row.
        steps : list of Step
            One for each comparison after the first set.
        """
        row = 0  # the only one
        # Round in which the row paid for each group. 0: it did not. Free groups are not
        # paid for. They are there before the first purchase, in round 0 of the
        # explanation.
        is_free = self.group_costs_ == 0
        paid_in_round = np.where(is_free, 0, walk.rounds[row])
        n_rounds = int(paid_in_round.max(initial=0))
        last_position = int(walk.position[row])
        # Set of the row before any purchase. Set 0 has the free groups only. Without a
        # purchase it is also the last set, which may have known groups.
        first_position = 0
        if n_rounds == 0:
            first_position = last_position
        # Sets of the row: its first set, its set at each comparison, and its last set.
        positions = [first_position]
        for step in steps:
            # The only key: a step of one row has the expectation of one set.
            positions.append(next(iter(step.expectations)))
        if len(positions) == 1 or positions[-1] != last_position:
            positions.append(last_position)
        # The set after each round, from round 0 on: the last entries of `positions`. If
        # the first set is free, it is in `positions` twice, as first set and as the set
        # at the comparison before round 1. This leaves out the first of the two.
        position_after_round = positions[-(n_rounds + 1) :]
        rounds = []
        for round_number in range(n_rounds + 1):
            is_bought = paid_in_round == round_number
            if round_number == 0:
                is_bought = is_free
            position = position_after_round[round_number]
            proba = self._proba(self._models, position, X, ledger, np.array([row]))
            rounds.append(
                Round(
                    groups=self._names_of(is_bought),
                    cost=float(self.group_costs_[is_bought].sum()),
                    proba=proba[row],
                    following=self._next_purchase(
                        choice, steps, position, has_bought=round_number > 0
                    ),
                )
            )
        reason = self._reason_to_stop(choice, rounds[-1].following)
        return Explanation(rounds, self.classes_, reason)

    def _names_of(self, groups):
        """Return the names of groups that are given as booleans, a list."""
        return [str(self.group_names_[group]) for group in np.flatnonzero(groups)]

    def _next_purchase(self, choice, steps, position, has_bought):
        """Return the best next purchase of one row at a set.

        Parameters
        ----------
        choice : Choice
            The decisions of the call.
        steps : list of Step
            The comparisons for this row.
        position : int
            The set.
        has_bought : bool
            False before the first purchase.

        Returns
        -------
        NextPurchase or None
            None if no purchases were compared at this set.
        """
        row = 0  # the only one
        for step in steps:
            expectation = step.expectations.get(position)
            if expectation is None or not len(expectation.larger):
                continue
            if not has_bought and choice.start != position:
                # Every row buys the first set: nothing was compared before it.
                return None
            # Position of the row's dual price. 0: the higher price. 1: the lower one.
            price_index = int(step.is_lower[row])
            leads = expectation.leads[row, :, price_index]  # (n_larger,)
            best = int(np.argmax(leads))
            larger = int(expectation.larger[best])
            is_extra = self._sets[larger] & ~self._sets[position]
            cost = float(self.set_costs_[larger] - self.set_costs_[position])
            needed = float(choice.policies.prices[price_index] * cost)
            # A lead is the gain less the needed gain.
            return NextPurchase(
                groups=self._names_of(is_extra),
                cost=cost,
                gain=float(leads[best]) + needed,
                needed=needed,
            )
        return None

    def _reason_to_stop(self, choice, following):
        """Return a sentence with the reason why nothing more was bought for a row.

        `choice` has the decisions of the call. `following` is the result of
        `_next_purchase` at the last set.
        """
        if not choice.goes_on:
            return "Every row buys this set, and nothing more, at this budget."
        if following is None:
            return "Nothing more can be bought within the limits."
        return (
            f"Stopped: {', '.join(following.groups)} was expected to bring "
            f"{following.gain:.4f}, and at this budget it must bring "
            f"{following.needed:.4f}."
        )


class Step(NamedTuple):
    """Next purchases of the rows that may still buy.

    Attributes
    ----------
    rows : ndarray of shape (n_going,), dtype=int64
        Positions of the rows.
    target : ndarray of shape (n_going,), dtype=int64
        The set that each row buys up to. STOP: it buys nothing more.
    reach : ndarray of shape (n_going,), dtype=int64
        Position of the highest price at which each row would buy. -1: it buys at no
        price, or the price was not needed.
    is_lower : ndarray of bool of shape (n_going,)
        True for rows that buy at the lower price.
    expectations : dict from int to Expectation
        Expected leads of the rows of each set. Its prices are the higher and the
        lower price, or all prices if `reach` was needed.
    """

    rows: np.ndarray
    target: np.ndarray
    reach: np.ndarray
    is_lower: np.ndarray
    expectations: dict


# State of the draw between two dual prices for a row: not drawn yet, or the drawn one.
_NOT_DRAWN = -1
_AT_PRICE = 0
_AT_LOWER_PRICE = 1


class LowerPrice:
    """Draw of rows that buy at the lower of two dual prices, by hashes of their values.

    The price of a row is drawn when its purchases at the two prices first differ.

    Parameters
    ----------
    n_rows : int
    share : float
        Share of the rows that buy at the lower price.
    """

    def __init__(self, n_rows, share):
        self._share = share
        # For each row _NOT_DRAWN, _AT_PRICE or _AT_LOWER_PRICE.
        self._drawn = np.full(n_rows, _NOT_DRAWN)

    def is_lower(self, rows):
        """Return True for each of `rows` (positions) that has the lower dual price."""
        return self._drawn[rows] == _AT_LOWER_PRICE

    def take(self, rows, *, target_at_price, target_at_lower, values):
        """Return the set that each row buys at its own dual price, or STOP for none.

        Prices that are needed now are drawn, and stored for later calls.

        Parameters
        ----------
        rows : ndarray of shape (n_taken,), dtype=int64
            Positions of the rows.
        target_at_price, target_at_lower : ndarray of shape (n_taken,), dtype=int64
            The sets that rows buy at the higher and at the lower price, or STOP.
        values : ndarray of shape (n_taken, n_columns)
            Values that the rows have bought. Their hash draws the price.
        """
        if self._share == 0:
            # No row buys at the lower price.
            return target_at_price
        differs = target_at_price != target_at_lower
        is_new = differs & (self._drawn[rows] == _NOT_DRAWN)
        draws = even_draws(feature_keys(values[is_new]))
        # `_share` is the share of the rows that buy at the lower dual price.
        self._drawn[rows[is_new]] = np.where(
            draws < self._share, _AT_LOWER_PRICE, _AT_PRICE
        )
        return np.where(self.is_lower(rows), target_at_lower, target_at_price)


class FixedAnswers(ClassifierMixin, BaseEstimator):
    """Known answers, as a fitted classifier for a scorer."""

    def __init__(self, classes_, proba):
        self.classes_ = classes_
        self.proba = proba

    def predict_proba(self, X):
        """Return the known probabilities. `X` is not read."""
        return self.proba

    def predict(self, X):
        """Return the likeliest classes. `X` is not read."""
        return self.classes_[self.proba.argmax(axis=1)]


def scorer_of(quality):
    """Return the scorer of the parameter `quality`, or None.

    `quality` may be a scorer or the name of one. None: `quality` rates single rows.
    """
    if isinstance(quality, str):
        if quality in OF_LABELS:
            return None
        if quality not in get_scorer_names():
            raise ValueError(
                f"quality={quality!r} is none of {list(OF_LABELS)!r}, and no scorer of "
                'scikit-learn such as "roc_auc".'
            )
        return get_scorer(quality)
    return quality if is_scorer(quality) else None


def split_rows(y, seed):
    """Return rows to learn from and held-out rows, stratified if the classes allow it.

    Parameters
    ----------
    y : ndarray of shape (n_rows,), dtype=int64
        Positions of the classes.
    seed : int
        Seed of the random split.

    Returns
    -------
    fitted, held_out : ndarray of int
        Positions of the rows.
    """
    n_held_out = max(min(int(len(y) * _HELD_OUT), _MOST_HELD_OUT), 1)
    # A stratified split needs a row of each class in both parts.
    smallest_class = np.bincount(y).min()  # its number of rows
    n_classes = y.max() + 1
    is_possible = smallest_class >= 2 and n_held_out >= n_classes
    # None: the split is not stratified.
    classes = y if is_possible else None
    return train_test_split(
        np.arange(len(y)), test_size=n_held_out, random_state=seed, stratify=classes
    )


def best_sets(task, seed, limits):
    """Return promising sets: those of lowest loss within some cost, `limits` included.

    Parameters
    ----------
    task : Task
        The rows to learn from.
    seed : int
        Seed of the draws of the search.
    limits : list of float
        Costs within which the best set is wanted, too.

    Returns
    -------
    ndarray of bool of shape (n_sets, n_groups)
    """
    return find_sets(Trials(task, np.random.default_rng(seed)), limits)


def sets_behind_switches(task, seed):
    """Search for sets after a switch: a group whose value tells which others matter.

    Parameters
    ----------
    task : Task
        The rows to learn from.
    seed : int
        Seed of the draws of the search.

    Returns
    -------
    search : SwitchSearch
    grown : ndarray of bool of shape (n_sets, n_groups)
    """
    search = SwitchSearch(task, np.random.default_rng(seed))
    return search, grow_behind_switches(search)


def select_sets(search, best, grown):
    """Return the sets that get a model, sorted by cost.

    All sets of `best` get a model. The sets of `grown` to which most rows come by a
    rough policy get one, too, up to `_MOST_SETS` in all.

    Parameters
    ----------
    search : SwitchSearch
        The search that found `grown`. It has the judging rows.
    best, grown : ndarray of bool of shape (n_sets, n_groups)
        Results of `best_sets` and of `sets_behind_switches`.

    Returns
    -------
    ndarray of bool of shape (n_selected, n_groups)
    """
    task = search.judging
    sets = sorted_sets(np.vstack([best, grown]), task.costs)
    # True for the sets that are among `best`. (n_sets,)
    is_best = np.array([(groups == best).all(axis=1).any() for groups in sets])
    # Number of sets that may be added to the best ones.
    n_added = _MOST_SETS - int(is_best.sum())
    if n_added <= 0 or is_best.all():
        return sets[is_best]
    # 0 for the best sets, which are not added once more.
    share = np.where(is_best, 0.0, shares_of_sets(search, sets))
    most_reached = np.argsort(-share, kind="stable")[:n_added]
    is_reached = np.zeros(len(sets), dtype=bool)
    is_reached[most_reached] = share[most_reached] > _LEAST_SHARE
    return sets[is_best | is_reached]


def shares_of_sets(search, sets):
    """Return for each set the largest share of rows for which a rough policy buys it.

    The rows are followed from the best first sets at each price, by a rough policy that
    is learned from small boosters. The share is the largest over prices and first sets.

    Parameters
    ----------
    search : SwitchSearch
        It has the judging rows, and their answers by small boosters.
    sets : ndarray of bool of shape (n_sets, n_groups)
        Sorted by cost.

    Returns
    -------
    ndarray of shape (n_sets,)
    """
    task = search.judging
    costs = sets @ task.costs
    weight = task.weight
    trials = [search.trial(groups) for groups in sets]
    # Value of answering each row with each set: minus the loss. (n_sets, n_rows)
    value = -np.array([trial.loss for trial in trials])
    states = []
    for position, groups in enumerate(sets):
        contains = (groups <= sets).all(axis=1)
        costs_more = costs > costs[position]
        larger = np.flatnonzero(contains & costs_more)
        columns = task.columns(groups)
        if not len(larger) or not len(columns):
            # Rows stop at this set.
            states.append(None)
            continue
        proba = trials[position].proba
        # A state by leaves does not read `key`.
        shown = Shown(task.X[:, columns], proba, key=proba[:, 1])
        gains = (value[larger] - value[position]).T  # (n_rows, n_larger)
        states.append(
            LeafState(
                shown,
                gains,
                weight,
                n_trees=_ROUGH_TREES,
                most_leaves=_ROUGH_LEAVES,
            )
        )
    prices = price_grid(np.average(value, axis=1, weights=weight), costs, LEAF_PRICES)
    policies = learn_policies(
        value,
        states,
        sets,
        costs,
        prices=prices,
        allowed=np.ones(len(sets), dtype=bool),
        n_rounds=None,
        weight=weight,
    )
    return policies.shares(value, costs, weight, n_first=_FIRST_SETS)


def cached_value(cache, key, compute, most=_CACHED):
    """Return the value of a key from a cache, or compute and add it.

    Parameters
    ----------
    cache : list of (key, value)
        Changed in place. The oldest pairs are dropped if there are more than `most`.
    key : object
        Compared by ``==``.
    compute : callable
        Returns the value. It takes no arguments.
    most : int, default=_CACHED
        Largest number of pairs.
    """
    for cached_key, value in cache:
        if cached_key == key:
            return value
    value = compute()
    cache.append((key, value))
    del cache[:-most]
    return value
