"""Buy features a set at a time, and stop where the next is not worth its price."""

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

from skroute.base import CallParameter, Plan, check_budget, dispatch, note_failure
from skroute.base._inspection import may_take_weights
from skroute.gating._buyer import FeatureBuyer, FeatureLedger, quality_of
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
    STOP,
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
# Largest number of held-out rows.
_MOST_HELD_OUT = 5000
# With fewer rows a part would have none.
_FEWEST = 6
# Number of limits whose choices are cached.
_CACHED = 8
# Number of limits whose policies are cached. They take some 50 MB each.
_CACHED_POLICIES = 2
# Largest number of sets that get a model. More sets take time, and are reached by few
# rows.
_MOST_SETS = 44
# Trees, and leaves of a tree, of the rough states by which these sets are selected.
_ROUGH_TREES = 2
_ROUGH_LEAVES = 32
# Share of the rows that come to a set at some price, below which it gets no model.
_LEAST_SHARE = 0.005
# Best first sets at a price whose rows are followed to see which sets they come to.
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
        budget is spent. They are drawn by a hash of what they have shown.

    cost, cost_se : float
        Mean cost of the held-out rows, and its standard error.

    quality, quality_se : float
        Mean quality of the held-out rows, and its standard error. Each half of them is
        judged by the choice of the other half. For a scorer they are the mean of the
        two halves, and half of their difference.

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
    """Purchases of the rows of a call.

    Attributes
    ----------
    start : int
        The first set.
    n_left : int or None
        Purchases after it. None is any number.
    goes_on : bool
        True if rows may buy something after the first set.
    policy : int or None
        Position of the policies that decide. None if nothing more is bought.
    policies : Policies or None
        These policies at the price and at the lower price, in this order.
    spending : Spending or None
        Positions of the two prices among all prices of the policies.
    within : tuple
        Purchases and cost of a row, within which the policies were learned.
    point : OperatingPoint
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
    """Purchases of rows.

    Attributes
    ----------
    position : ndarray of shape (n_rows,), dtype=int64
        The set that each row ends at.
    rounds : ndarray of shape (n_rows, n_groups), dtype=int64
        Round in which a group was bought, from 1. 0: it was not bought.
    """

    position: np.ndarray
    rounds: np.ndarray


class HeldOutRows(NamedTuple):
    """Answers for held-out rows at each set, and the worth of the answers.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        All values of the rows.
    proba : list of ndarray of shape (n_rows, n_classes)
        Answers with each set.
    key : list of ndarray of shape (n_rows,)
        The same as one number, see `Shown`.
    by_answer : ndarray of shape (n_sets, n_rows)
        Value of answering with each set. Half of it is what the answer itself expects.
    by_everything : ndarray of shape (n_sets, n_rows)
        The same, with the expectation of the model of all groups.
    outcomes : HeldOut
        What answering was really worth.
    """

    values: np.ndarray
    proba: list
    key: list
    by_answer: np.ndarray
    by_everything: np.ndarray
    outcomes: HeldOut


KNOWN = CallParameter(
    "known",
    "array-like or dataframe of bool, shape (n_samples, n_groups), default=None",
    """Groups that need not be paid for, by row. A data frame has columns for some
    groups. None: no group is known before.""",
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
        closely and one has random thresholds; held-out rows give the weights. The sets
        are looked for by LightGBM in either case.

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
        Mean cost per row, in the unit of `feature_costs`. None is unlimited: what
        `max_rounds` and `max_cost` allow is bought where it raised the quality of
        held-out rows.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone, at the price at which held-out rows spent
        the budget, which holds on average. ``"batch"`` never exceeds it on the rows of
        a call: where it ends, the rows that would buy at the highest price are served
        first.

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
    course from T on. The expectation is a mean over alike rows, in which no row counts
    itself. Rows are alike by the leaves of a small forest on the values bought and the
    answer, or by the answer alone. Both policies are candidates.

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
        # Policies are larger than all the rest. They are learned again if another
        # budget is asked for.
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
        held-out rows. The models that answer new rows are fitted on all rows.

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
        # A row of weight 0 must have no effect.
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
        self._scorer = scorer_of(self.quality)
        # A scorer says nothing of a single row: rows are then judged by log loss.
        row_quality = self.quality if self._scorer is None else "log_loss"
        objective = objective_of_labels(row_quality, self.classes_)
        objective = objective.bound(checked.encoded[rows], weight[rows])
        self._row_quality = row_quality
        self._class_shares = objective.share
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
        # Positions among `rows`, then among the rows of X.
        fitted_positions, held_out_positions = split_rows(checked.encoded[rows], seed)
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
                f"{k} group{'' if k == 1 else 's'}" for k in range(n_groups + 1)
            ]
            # None: the limits of the constructor. The choice is cached for the calls to
            # come. Here it only gives its warning.
            limits = self._limits(budget=None, max_rounds=None, max_cost=None)
            self._choice(*limits, warns=True)

    def _check_scorer(self, held_out, shares):
        """Raise an error if the scorer cannot judge the halves of the held-out rows.

        Parameters
        ----------
        held_out : Task
        shares : ndarray of shape (n_classes,)
        """
        is_first = first_half(len(held_out.y))
        for half in (held_out.y[is_first], held_out.y[~is_first]):
            if len(np.unique(half)) < len(self.classes_):
                raise ValueError(
                    f"quality={self.quality!r} is a scorer, which needs rows of every "
                    "class in each half of the held-out rows. Give more rows, or "
                    "quality='log_loss'."
                )
        # A scorer that is not for these labels says so before a model is fitted.
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
        """
        limits = []
        for limit in (self.budget, self.max_cost):
            if limit is not None and np.isfinite(limit):
                limits.append(float(limit))
        best, behind_switches = self._parallel(
            [
                delayed(best_sets)(task, seed, limits),
                delayed(sets_behind_switches)(task, seed),
            ]
        )
        search, grown = behind_switches
        return select_sets(search, best, grown)

    def _parallel(self, calls):
        """Return the values of delayed calls, which run in `n_jobs` threads."""
        return Parallel(n_jobs=self.n_jobs, prefer="threads")(calls)

    def _judge_sets(self, held_out, X, objective, honest_proba):
        """Return what held-out rows show at each set, and what it is worth.

        Parameters
        ----------
        held_out : Task
        X : indexable
            The held-out rows as the user gave them.
        objective : Objective
        honest_proba : list of ndarray of shape (n_rows, n_classes), or None
            Class probabilities at each set, by models that were not tuned on the row
            that they answer. They say how good a policy is. None if no model was tuned.

        Returns
        -------
        HeldOutRows
        """
        n_rows = len(held_out.y)
        n_groups = len(held_out.costs)
        ledger = FeatureLedger(
            *held_out.X.shape, self.group_of_, n_groups, values=held_out.X
        )
        all_rows = np.arange(n_rows)
        all_proba = []
        keys = []
        quality = []
        expected = []
        for position in range(len(self._sets)):
            proba = self._proba(self._judged, position, X, ledger, all_rows)
            # Half of the memory; trees read no more digits.
            all_proba.append(proba.astype(np.float32))
            keys.append(self._key(proba))
            answers = proba
            if objective.asks == "predict":
                answers = self._labels(self._judged, position, X, ledger, all_rows)
            quality.append(objective.of(held_out.y, answers))
            expected.append(self._value(proba))
        quality = np.array(quality, dtype=np.float64)
        by_answer = np.array(expected)
        # The last set has all groups.
        of_everything = all_proba[-1]
        by_everything = np.array(
            [self._value(proba, beliefs=of_everything) for proba in all_proba]
        )
        if objective.asks == "predict_proba":
            # The value that probabilities expect of themselves is too high for a model
            # that is too sure. Their real value is right in the mean, but noisy. The
            # mean of both has less of each. A right or wrong label is too noisy.
            by_answer = 0.5 * (by_answer + quality)
            by_everything = 0.5 * (by_everything + quality)
        # Policies are judged by answers of models that were not tuned on the row.
        if honest_proba is None:
            honest_proba = all_proba
        else:
            asks_labels = objective.asks == "predict"
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
            held_out.X, all_proba, keys, by_answer, by_everything, outcomes
        )

    def _make_states(self):
        """Return what rows of a set can be told apart by, for both policies.

        Returns
        -------
        by_answer : list of AnswerState
            One for each set.
        by_leaves : list of LeafState or None
            One for each set. None where nothing is known of the rows, or nothing more
            can be bought.
        """
        held_out = self._held_out
        value = held_out.by_everything
        weight = held_out.outcomes.weight
        by_answer = []
        # Shown values and gains of each set, or None.
        leaf_inputs = []
        for position in range(len(self._sets)):
            key = held_out.key[position]
            values = held_out.values[:, self._columns(position)]
            shown = Shown(values, held_out.proba[position], key)
            by_answer.append(AnswerState(key))
            contains = (self._sets[position] <= self._sets).all(axis=1)
            dearer = self.set_costs_ > self.set_costs_[position]
            larger = np.flatnonzero(contains & dearer)
            has_columns = values.shape[1] > 0
            if not len(larger) or not has_columns:
                leaf_inputs.append(None)
                continue
            gains = (value[larger] - value[position]).T
            leaf_inputs.append((shown, gains))
        leaf_states = iter(
            self._parallel(
                delayed(LeafState)(*shown_and_gains, weight)
                for shown_and_gains in leaf_inputs
                if shown_and_gains is not None
            )
        )
        # The states come in the order of the sets that have one.
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
        # Without metadata routing these are refused.
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
        """Fit the models that answer the held-out rows.

        Parameters
        ----------
        task, X, fit_params
            As in `_fit_models`, without the held-out rows.
        held_out : Task

        Returns
        -------
        models : list
            One for each set.
        honest_proba : list of ndarray of shape (n_held_out, n_classes), or None
            As in `_judge_sets`. A user's models are not tuned on held-out rows, so that
            it is None.
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
        """Fit a model for each set.

        Parameters
        ----------
        task : Task
        X : indexable
            Its rows as the user gave them.
        fit_params : dict
            Parameters of the `fit` of the user's model. skroute's own models are those
            that were judged, fitted again.
        """
        if self.estimator is not None:
            models = []
            for groups in self._sets:
                models.append(
                    fit_own(self.estimator, task, X, self.classes_, fit_params, groups)
                )
            return models
        pairs = zip(self._sets, self._judged)
        return self._parallel(
            delayed(fit_again)(task, groups, model) for groups, model in pairs
        )

    @property
    def _objective(self):
        """The quality of single rows, with the weights of classes in `fit`."""
        objective = objective_of_labels(self._row_quality, self.classes_)
        return replace(objective, share=self._class_shares)

    def _value(self, proba, beliefs=None):
        """Return the quality that answering by probabilities is expected to have.

        Parameters
        ----------
        proba : ndarray of shape (n_rows, n_classes)
            Probabilities that answer.
        beliefs : ndarray of shape (n_rows, n_classes), default=None
            Probabilities of the classes. None takes `proba`.
        """
        beliefs = proba if beliefs is None else beliefs
        objective = self._objective
        value = np.zeros(len(proba))
        for k in range(proba.shape[1]):
            labels = np.full(len(proba), k, dtype=np.intp)
            value += beliefs[:, k] * quality_of(objective, labels, proba)
        return value

    def _key(self, proba):
        """Return answers as one number each, see `Shown`."""
        return proba[:, 1] if proba.shape[1] == 2 else self._value(proba)

    def _score(self, proba, rows, *, all_y, all_weight):
        """Return the scorer's value of probabilities of some of the held-out rows.

        Parameters
        ----------
        proba : ndarray of shape (n_scored, n_classes)
        rows : ndarray
            The scored rows, booleans or positions.
        all_y, all_weight : ndarray of shape (n_rows,)
            Of all held-out rows.
        """
        y = self.classes_[all_y[rows]]
        weight = all_weight[rows]
        weights = {} if np.ptp(weight) == 0 else {"sample_weight": weight}
        answers = FixedAnswers(self.classes_, proba)
        # The answers do not read the rows.
        no_columns = np.empty((len(y), 0))
        return self._scorer(answers, no_columns, y, **weights)

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
        """Return the limits of a call, checked: budget, purchases, and cost of a row.

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
        """Return the policies within limits of each row: by answers, and by leaves.

        Parameters
        ----------
        max_rounds : int or None
            Largest number of purchases of a row. None is any number.
        max_cost : float
            Largest cost of a row.

        Returns
        -------
        list of Policies
        """
        held_out = self._held_out
        weight = held_out.outcomes.weight
        # `ROOM` is for the rounding of summed costs.
        allowed = self.set_costs_ <= max_cost * ROOM
        by_answer, by_leaves = self._states
        # Value of each set, states and prices, for each of the two kinds of policies.
        kinds = (
            (held_out.by_answer, by_answer, ANSWER_PRICES),
            (held_out.by_everything, by_leaves, LEAF_PRICES),
        )
        # Without purchases nothing is learned, but there is a table to read.
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
        """Return the policies of `_learn`, from a cache.

        `within` is the pair of `max_rounds` and `max_cost`.
        """
        return cached_value(
            self._cached_policies,
            within,
            lambda: self._learn(*within),
            most=_CACHED_POLICIES,
        )

    def _n_left(self, start, max_rounds):
        """Return the number of purchases after the first set.

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
        if start == 0 and not self._sets[0].any():
            # No group is free. The rows have shown nothing by which some could buy more
            # than others.
            return 0
        if max_rounds is None:
            return None
        # The free groups are there before the first purchase. Any other first set is a
        # purchase.
        return max(max_rounds - int(start > 0), 0)

    def _choice(self, budget, max_rounds, max_cost, *, warns=False):
        """Return how rows buy within the limits of a call (`Choice`), from a cache.

        `budget`, `max_rounds` and `max_cost` come from `_limits`. If `warns`, a warning
        is given if nothing is bought.
        """
        limits = (budget, max_rounds, max_cost)
        choice = cached_value(
            self._cached_choices, limits, lambda: self._choose(*limits)
        )
        if warns and choice.point.cost == 0 and (self.group_costs_ > 0).any():
            self._warn_of_nothing(*limits)
        return choice

    def _choose(self, budget, max_rounds, max_cost):
        """Return the best way to spend a budget on the held-out rows.

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
            # Nothing is bought. Set 0 has the free groups only.
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
            # Most rows buy at the price, and a share of them at the lower price.
            spending = candidate.spending
            pair = [spending.price, spending.lower]
            pair_policies = policies[candidate.policy].at_prices(pair)
            price = float(pair_policies.prices[0])  # the first of the pair
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
        """Warn that nothing is bought, with the reason, unless that was asked for."""
        largest, name = min((budget, "budget"), (max_cost, "max_cost"))
        if largest == 0 or max_rounds == 0:
            return
        least = self.set_costs_[self.set_costs_ > 0].min()
        if least > largest * ROOM:
            reason = f"the cheapest set costs {least:.6g} for each row. Raise {name}."
        else:
            quality = self.quality
            if self._scorer is None:
                quality = self._objective.name
            reason = (
                f"no set of groups within it raised quality={quality!r} on the "
                "held-out rows. Another quality, more rows or other features may."
            )
        warn(f"Nothing is bought within {name}={largest!r}: {reason}")

    # Decide ---------------------------------------------------------------------------

    def _plan(self, X, call):
        limits = self._limits(
            call.budget, call.option("max_rounds"), call.option("max_cost")
        )
        choice = self._choice(*limits, warns=cache_of(self) is NO_CACHE)
        known = self._known(call.option("known"), num_samples(X))
        ledger = self._ledger(X)
        walk = self._walk(X, ledger, known, choice, call.budget)
        is_bought = walk.rounds > 0
        # The choice of a row is the number of its groups, as in `choices_`.
        route = is_bought.sum(axis=1).astype(np.int64)
        return Plan(route, is_bought @ self.group_costs_, state=(ledger, walk))

    def _walk(self, X, ledger, known, choice, budget, record=None):
        """Buy for each row, and return what was bought (`Walk`).

        Parameters
        ----------
        X : indexable of n_rows rows
        ledger : FeatureLedger
            Gets the bought features.
        known : ndarray of bool of shape (n_rows, n_groups)
            Groups that the rows need not pay for.
        choice : Choice
            The first set, the number of purchases after it, and the two prices.
        budget : float
            Hard cap on the mean cost if ``policy="batch"``.
        record : list, default=None
            Gets a `Step` for each round of the first row. None records nothing.
        """
        n_rows = len(known)
        n_left = choice.n_left
        first = self._sets[choice.start]
        # The round in which each group was bought, 0 if it was not. (n_rows, n_groups)
        rounds = (first & ~known).astype(np.int64)
        # The set of each row. Known groups that belong to a larger set move it there.
        position = np.full(n_rows, choice.start)
        position = self._with_known(position, known)
        spent = ((rounds > 0) @ self.group_costs_).sum()
        # What all rows together may spend from here on. `ROOM` is for rounding.
        room = budget * n_rows * ROOM - spent
        # Number of the last round. A first set that is free is no round of purchases.
        n_round = int((self.group_costs_[first] > 0).any())
        # A share of the rows buys at the lower of two prices. They are drawn at random.
        drawn_rows = LowerPrice(n_rows, choice.point.share)
        # Positions of the rows that may buy more.
        going = np.arange(n_rows if choice.goes_on else 0)
        is_capped = self.policy == "batch" and np.isfinite(budget)
        # `n_left` of None is any number of rounds.
        while len(going) and n_left != 0:
            step = self._next_sets(
                X, ledger, going, position, choice, n_left, drawn_rows, is_capped
            )
            if record is not None:
                record.append(step)
            buys = step.target != STOP
            going = going[buys]
            target = step.target[buys]
            # Position of the highest price that each row would pay.
            reach = step.reach[buys]
            # Groups that each row buys in this round. (n_going, n_groups)
            extra = self._sets[target] & ~self._sets[position[going]] & ~known[going]
            extra_cost = extra @ self.group_costs_
            if is_capped:
                # Where the budget ends, the rows that would pay most are served first.
                order = np.argsort(-reach, kind="stable")
                spent_so_far = np.cumsum(extra_cost[order])
                n_paid = int(np.searchsorted(spent_so_far, room, "right"))
                paid = np.sort(order[:n_paid])
                going = going[paid]
                target = target[paid]
                extra = extra[paid]
                room -= extra_cost[paid].sum()
            n_round += 1
            # The entries of these groups were 0.
            rounds[going] += n_round * extra
            position[going] = target
            position = self._with_known(position, known)
            if n_left is not None:
                n_left -= 1
        return Walk(position, rounds)

    def _next_sets(
        self, X, ledger, going, position, choice, n_left, drawn_rows, with_reach
    ):
        """Return what rows buy next (`Step`).

        Parameters
        ----------
        X, ledger
            The rows, and their ledger.
        going : ndarray of int
            Positions of the rows that may buy.
        position : ndarray of shape (n_rows,), dtype=int64
            The set of each row.
        choice : Choice
        n_left : int or None
            Purchases that are left.
        drawn_rows : LowerPrice
            The rows that buy at the lower price.
        with_reach : bool
            True if the highest price at which each row buys is needed.
        """
        # The policies at two prices: positions 0, the price, and 1, the lower price.
        policies = choice.policies
        pair = [0, 1]
        if with_reach:
            # The policies at all prices, and the positions of these two among them.
            policies = self._policies(choice.within)[choice.policy]
            pair = [choice.spending.price, choice.spending.lower]
        target = np.full(len(going), STOP, dtype=np.int64)
        # -1: the row buys at no price, or the price is not needed.
        reach = np.full(len(going), -1, dtype=np.int64)
        expectations = {}
        for start in np.unique(position[going]):
            inside = np.flatnonzero(position[going] == start)
            rows = going[inside]
            shown = self._shown(X, ledger, int(start), rows, len(position))
            expectation = policies.expect(int(start), shown, n_left)
            expectations[int(start)] = expectation
            go = expectation.go  # (n_inside, n_prices)
            high = go[:, pair[0]]
            low = go[:, pair[1]]
            target[inside] = drawn_rows.take(rows, high, low, shown.values)
            if with_reach:
                buys = go != STOP
                # Prices rise: the last one at which a row buys is the highest.
                last = buys.shape[1] - 1 - buys[:, ::-1].argmax(axis=1)
                reach[inside] = np.where(buys.any(axis=1), last, -1)
        return Step(going, target, reach, drawn_rows.is_lower(going), expectations)

    def _shown(self, X, ledger, position, rows, n_rows):
        """Return what rows have shown at a set (`Shown`). A sweep computes it once."""
        ask = partial(self._proba, self._judged, position, X, ledger)
        proba = cache_of(self).get_or_compute_rows(
            ("shown", position), rows, n_rows, ask
        )
        columns = self._columns(position)
        values = ledger.take(rows, columns)[:, columns]
        return Shown(values, proba, self._key(proba))

    def _columns(self, position):
        """Return the columns of the groups of a set."""
        return np.flatnonzero(self._sets[position][self.group_of_])

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
        """
        model = models[position]
        columns = self._columns(position)
        if isinstance(model, SetModel):
            return model.proba(ledger.take(rows, columns)[:, columns])
        read = self._input(ledger, rows, columns, X)
        with note_failure("estimator", len(rows), "predict_proba"):
            proba = check_probabilities(model.predict_proba(read), "estimator")
        return align_by_class(
            np.asarray(proba, dtype=np.float64), model.classes_, self.classes_
        )

    def _labels(self, models, position, X, ledger, rows):
        """Return positions of the classes that the model of a set answers rows with.

        The parameters are those of `_proba`. The answer of a user's model is its
        `predict`, which may have a decision threshold.
        """
        model = models[position]
        if isinstance(model, SetModel):
            return self._proba(models, position, X, ledger, rows).argmax(axis=1)
        read = self._input(ledger, rows, self._columns(position), X)
        with note_failure("estimator", len(rows), "predict"):
            return np.searchsorted(self.classes_, model.predict(read))

    def _with_known(self, position, known):
        """Return the largest sets that cost rows nothing more than their sets.

        Parameters
        ----------
        position : ndarray of shape (n_rows,), dtype=int64
            The set of each row.
        known : ndarray of bool of shape (n_rows, n_groups)
        """
        if not known.any():
            return position
        here = self._sets[position]
        larger = position.copy()
        for candidate, groups in enumerate(self._sets):
            missing = groups & ~here
            contains = (here <= groups).all(axis=1)
            is_free = contains & ~(missing & ~known).any(axis=1)
            larger[is_free & (candidate >= larger)] = candidate
        return larger

    def _known(self, known, n_rows):
        """Return the groups that rows need not pay for, bool (n_rows, n_groups)."""
        n_groups = len(self.group_costs_)
        if known is None:
            return np.zeros((n_rows, n_groups), dtype=bool)
        if is_frame(known):
            columns = dict(zip(*names_and_columns(known)))
            unknown = [name for name in columns if name not in self.group_names_]
            if unknown:
                raise ValueError(
                    f"known has columns {unknown!r}, which are not among the groups "
                    f"{self.group_names_!r}."
                )
            nothing = np.zeros(len(known), dtype=bool)
            known = np.column_stack(
                [np.asarray(columns.get(name, nothing)) for name in self.group_names_]
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
        ledger, walk = plan.state
        n_rows = len(walk.position)

        def answer(position, rows):
            ask = self._labels if response == "predict" else self._proba
            ask = partial(ask, self._models, position, plan.X, ledger)
            key = ("answer", position, response)
            answers = cache_of(self).get_or_compute_rows(key, rows, n_rows, ask)
            if response == "predict":
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

        known : array-like of shape (n_samples, n_features), default=None
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
        _, walk = self.plan(X, call).state
        return walk.rounds

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
        # A single row has no cap: its price is that of the budget.
        walk = self._walk(X, ledger, known, choice, np.inf, record=steps)
        return self._explanation(X, ledger, choice, walk, steps)

    def _explanation(self, X, ledger, choice, walk, steps):
        """Return the `Explanation` of the purchases of one row.

        Parameters
        ----------
        X, ledger
            The row, and its ledger.
        choice : Choice
        walk : Walk
        steps : list of Step
            One for each comparison after the first set.
        """
        # Round in which the row paid for each group. 0: it did not. Free groups are not
        # paid for. They are there before the first purchase, in round 0 of the
        # explanation.
        is_free = self.group_costs_ == 0
        paid_in_round = np.where(is_free, 0, walk.rounds[0])
        n_rounds = int(paid_in_round.max(initial=0))
        last_position = int(walk.position[0])
        # Set of the row before any purchase. Set 0 has the free groups only. Without a
        # purchase it is also the last set, which may have known groups.
        first_position = 0
        if n_rounds == 0:
            first_position = last_position
        # Sets of the row: the first one, that of each comparison, and the last one.
        positions = [first_position]
        for step in steps:
            # The only key: a step of one row has the expectation of one set.
            positions.append(next(iter(step.expectations)))
        if len(positions) == 1 or positions[-1] != last_position:
            positions.append(last_position)
        # The set after each round, from round 0 on. If the first set is free, the first
        # comparison comes before round 1, so that one position too many is in front.
        position_after_round = positions[-(n_rounds + 1) :]
        rounds = []
        for number in range(n_rounds + 1):
            is_bought = paid_in_round == number
            if number == 0:
                is_bought = is_free
            position = position_after_round[number]
            proba = self._proba(self._models, position, X, ledger, np.arange(1))[0]
            rounds.append(
                Round(
                    groups=self._names_of(is_bought),
                    cost=float(self.group_costs_[is_bought].sum()),
                    proba=proba,
                    following=self._next_purchase(choice, steps, position, number > 0),
                )
            )
        reason = self._reason_to_stop(choice, rounds[-1].following)
        return Explanation(rounds, self.classes_, reason)

    def _names_of(self, groups):
        """Return the names of groups that are given as booleans, a list."""
        return [str(self.group_names_[group]) for group in np.flatnonzero(groups)]

    def _next_purchase(self, choice, steps, position, was_compared):
        """Return the best next purchase at a set (`NextPurchase`), or None.

        Parameters
        ----------
        choice : Choice
        steps : list of Step
        position : int
            The set.
        was_compared : bool
            False before the first purchase, which is the same for every row.
        """
        for step in steps:
            expectation = step.expectations.get(position)
            if expectation is None or not len(expectation.larger):
                continue
            if not was_compared and choice.start != position:
                # Every row buys the first set: nothing was compared before it.
                return None
            # 0: the row buys at the price. 1: at the lower price.
            index = int(step.is_lower[0])
            leads = expectation.leads[0, :, index]
            best = int(np.argmax(leads))
            larger = int(expectation.larger[best])
            is_extra = self._sets[larger] & ~self._sets[position]
            cost = float(self.set_costs_[larger] - self.set_costs_[position])
            needed = float(choice.policies.prices[index] * cost)
            # A lead is the gain less what is needed.
            return NextPurchase(
                groups=self._names_of(is_extra),
                cost=cost,
                gain=float(leads[best]) + needed,
                needed=needed,
            )
        return None

    def _reason_to_stop(self, choice, following):
        """Return why nothing more was bought for a row, as a sentence."""
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
    """Next purchases of rows.

    Attributes
    ----------
    rows : ndarray of int
        Positions of the rows.
    target : ndarray of shape (n_going,), dtype=int64
        The set that each buys up to. STOP: it buys nothing more.
    reach : ndarray of shape (n_going,), dtype=int64
        Position of the highest price at which each would buy, -1 for none. -1 for all
        rows if it is not needed.
    is_lower : ndarray of bool of shape (n_going,)
        True for rows that buy at the lower price.
    expectations : dict from int to Expectation
        Expected leads by the set of the rows. The prices are the price and the lower
        one, or all.
    """

    rows: np.ndarray
    target: np.ndarray
    reach: np.ndarray
    is_lower: np.ndarray
    expectations: dict


# A row for which no price was drawn yet.
_NOT_DRAWN = -1


class LowerPrice:
    """Rows that buy at the lower price, drawn by a hash of what they have shown.

    A row is drawn where the two prices first differ for it.

    Parameters
    ----------
    n_rows : int
    share : float
        Share of the rows at the lower price.
    """

    def __init__(self, n_rows, share):
        self._share = share
        # For each row _NOT_DRAWN, 0 for the price, or 1 for the lower one.
        self._drawn = np.full(n_rows, _NOT_DRAWN)

    def is_lower(self, rows):
        """Return True for each row that buys at the lower price."""
        return self._drawn[rows] == 1

    def take(self, rows, high, low, values):
        """Return the targets of rows, each at its price.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows.
        high, low : ndarray of shape (n_taken,), dtype=int64
            Their targets at the price, and at the lower one.
        values : ndarray of shape (n_taken, n_columns)
            What they have shown.
        """
        if self._share == 0:
            return high
        is_new = (high != low) & (self._drawn[rows] == _NOT_DRAWN)
        draws = even_draws(feature_keys(values[is_new]))
        self._drawn[rows[is_new]] = draws < self._share
        return np.where(self.is_lower(rows), low, high)


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
    """Return the scorer that `quality` is or names, None for a quality of rows."""
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

    Returns
    -------
    fitted, held_out : ndarray of int
    """
    n_held_out = max(min(int(len(y) * _HELD_OUT), _MOST_HELD_OUT), 1)
    # Both parts need a row of each class.
    has_pairs = np.bincount(y).min() >= 2
    is_enough = n_held_out > y.max()
    # None: the split is not stratified.
    classes = y if has_pairs and is_enough else None
    return train_test_split(
        np.arange(len(y)), test_size=n_held_out, random_state=seed, stratify=classes
    )


def best_sets(task, seed, limits):
    """Return the best sets within each cost, and within each limit.

    Parameters
    ----------
    task : Task
    seed : int
    limits : list of float

    Returns
    -------
    ndarray of bool of shape (n_sets, n_groups)
    """
    return find_sets(Trials(task, np.random.default_rng(seed)), limits)


def sets_behind_switches(task, seed):
    """Return the search behind switches, and the sets that it grew.

    Parameters
    ----------
    task : Task
    seed : int

    Returns
    -------
    search : SwitchSearch
    grown : ndarray of bool of shape (n_sets, n_groups)
    """
    search = SwitchSearch(task, np.random.default_rng(seed))
    return search, grow_behind_switches(search)


def select_sets(search, best, grown):
    """Return the sets that get a model, by cost.

    The best sets within each cost are always among them. Others are those that the most
    rows come to by a rough policy.

    Parameters
    ----------
    search : SwitchSearch
    best, grown : ndarray of bool of shape (n_sets, n_groups)

    Returns
    -------
    ndarray of bool of shape (n_selected, n_groups)
    """
    task = search.judging
    sets = sorted_sets(np.vstack([best, grown]), task.costs)
    is_best = np.array([(groups == best).all(axis=1).any() for groups in sets])
    n_room = _MOST_SETS - int(is_best.sum())
    if n_room <= 0 or is_best.all():
        return sets[is_best]
    share = np.where(is_best, 0.0, shares_of_sets(search, sets))
    by_share = np.argsort(-share, kind="stable")[:n_room]
    is_reached = np.zeros(len(sets), dtype=bool)
    is_reached[by_share] = share[by_share] > _LEAST_SHARE
    return sets[is_best | is_reached]


def shares_of_sets(search, sets):
    """Return the largest share of the judging rows that comes to each set.

    The rows are followed from the best first sets at each price, by a rough policy that
    is learned from small boosters.

    Parameters
    ----------
    search : SwitchSearch
    sets : ndarray of bool of shape (n_sets, n_groups)

    Returns
    -------
    ndarray of shape (n_sets,)
    """
    task = search.judging
    costs = sets @ task.costs
    weight = task.weight
    trials = [search.trial(groups) for groups in sets]
    value = -np.array([trial.loss for trial in trials])
    states = []
    for position, groups in enumerate(sets):
        larger = np.flatnonzero(
            (groups <= sets).all(axis=1) & (costs > costs[position])
        )
        columns = task.columns(groups)
        if not len(larger) or not len(columns):
            states.append(None)
            continue
        proba = trials[position].proba
        shown = Shown(task.X[:, columns], proba, key=proba[:, 1])
        gains = (value[larger] - value[position]).T
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
    compute : callable
        Returns the value. It takes no arguments.
    most : int
    """
    for cached_key, value in cache:
        if cached_key == key:
            return value
    value = compute()
    cache.append((key, value))
    del cache[:-most]
    return value
