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
from skroute.gating._boosting import threads_for
from skroute.gating._buyer import FeatureBuyer, FeatureLedger, quality_of
from skroute.gating._set_models import SetModel, Task, fit_again, fit_judged, fit_own
from skroute.gating._sets import find_sets
from skroute.gating._stopping import STOP, Policies, spend
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
from skroute.utils._row_hash import GOLDEN, even_draws, feature_keys
from skroute.utils._statistics import standard_error
from skroute.utils._tables import Column, Table, list_names, share_column
from skroute.utils._tolerances import LIMIT_ROOM
from skroute.utils._validation import (
    check_probabilities,
    relative_weights,
    warn,
    with_sum_one,
)

__all__ = ["OperatingPoint", "SequentialFeatureClassifier"]

# Share of the rows that is held out, and rows at most.
_HELD_OUT = 1 / 3
_MOST_HELD_OUT = 5000
# Fewer rows than this leave a part without any.
_FEWEST = 6
# Limits whose policies and points are remembered.
_REMEMBERED = 8
# Factor of a limit: a sum of costs may exceed the limit by rounding.
_ROOM = 1 + LIMIT_ROOM


class OperatingPoint(NamedTuple):
    """The purchases at one budget, and their cost and quality on held-out rows.

    Attributes
    ----------
    first : list
        Names of the groups that every row buys at once.

    price : float
        Quality that a unit of cost must bring for a row to buy on from there; infinite where no
        row does.

    share : float
        Of the rows, drawn by what they have shown, that buy at the next lower price instead, so
        that the whole budget is spent.

    cost, cost_se : float
        Mean cost of the held-out rows, and its standard error.

    quality, quality_se : float
        Mean quality of the held-out rows, and its standard error. Each half of them is judged by
        what the other half says, the choice of `first` included. Of a scorer the mean of the two
        halves, and half their difference.

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
                    "share", [self.share], whole="rows at the next lower price"
                ),
                Column("cost", [self.cost], unit="per row, held-out mean"),
                Column("cost_se", [self.cost_se]),
                Column("quality", [self.quality], unit="held-out mean"),
                Column("quality_se", [self.quality_se]),
            ],
        )


class _Choice(NamedTuple):
    """A set to begin with, how the rest of the budget is spent, and what to say about it.

    `prices` are the positions of the price, and of that of the share of rows that buys at a lower
    one; `left` are the purchases behind the first set.
    """

    policies: Policies
    start: int
    prices: Any
    left: Any
    point: OperatingPoint


KNOWN = CallParameter(
    "known",
    "array-like or dataframe of bool, shape (n_samples, n_groups), default=None",
    """Groups that need not be paid for, by row. A data frame names those that it has. None: no
    group is known before.""",
)
MAX_ROUNDS = CallParameter(
    "max_rounds",
    "int, default=None",
    """Largest number of purchases per row. None takes the constructor's.""",
)
MAX_COST = CallParameter(
    "max_cost",
    "float, default=None",
    """Largest cost of a single row. None takes the constructor's; ``numpy.inf`` is unlimited.""",
)


class SequentialFeatureClassifier(FeatureBuyer):
    """Buy one set of features after another, until the next set is not worth its price.

    The field calls this active feature acquisition. `fit` looks for the best set of groups
    within each cost and fits a model of each. All rows buy one set first; behind it each row
    stops or buys up to a larger set, which one depends on its answer so far. At each budget the
    first set and the price of going on are those that were best on held-out rows. Where the best
    fixed set within the budget was better, by more than a standard error, it is bought alone.

    Parameters
    ----------
    estimator : classifier with predict_proba, default=None
        The model, of which clones are fitted twice for each of some thirty sets, each on the
        columns of its set. None: two forests of LightGBM, of which one fits closely and one has
        random thresholds; held-out rows say how much each counts. The sets are looked for by
        LightGBM in either case.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group if `feature_groups` is given. A group of cost 0
        is bought for every row. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns
        (names or positions). Every column is in one group. None: each column is its own.

    quality : str, cost matrix or callable, default="log_loss"
        What an answer is worth, as in :class:`~skroute.routing.OccamRouterClassifier`: first
        sets, what is bought next and when a row stops are chosen for it, sets and models found by
        log loss whatever it is. The default suits probabilities, rankings and money alike; where
        positives are rare, accuracy sees no difference between a good set and none. A scorer, or
        the name of one such as ``"roc_auc"``, chooses the first set only.

    max_rounds : int, default=None
        Purchases of a row, one after the other: how often a patient is called back. A set is
        bought in one. None: any number.

    max_cost : float, default=None
        Cost that no row exceeds, in the unit of `feature_costs`. None: unlimited.

    budget : float, default=None
        Mean cost per row, in the unit of `feature_costs`. None: unlimited, what `max_rounds`
        and `max_cost` allow is bought where it raised the quality of held-out rows.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone, at the price at which held-out rows spent the
        budget; it holds on average. ``"batch"`` never exceeds it on the rows of a call: where it
        ends, the rows that would buy on at the highest price are served first.

    random_state : int, RandomState instance or None, default=None
        Determines the held-out rows, a third of them and at most five thousand. Pass an int for
        the same result at every fit.

    n_jobs : int, default=None
        Threads in `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["0 groups", "1 group", ...]``: `route` is the number of groups bought.

    sets_ : list of list
        Names of the groups of each set, by cost: the free groups first, all groups last.

    set_costs_ : ndarray of shape (n_sets,)
        Cost of each set.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    min_budget_ : float
        0: without a purchase a row gets the shares of the classes, or what the free groups say.

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
    When to stop and what to buy next is learned backwards over the sets from held-out rows [1]_:
    at a price, the value of a larger set is regressed on the answer with the smaller one, by bins.
    `fit`, `predict` and the other calls warn where a budget above 0 buys nothing.

    References
    ----------
    .. [1] F. Longstaff, E. Schwartz, "Valuing American Options by Simulation: A Simple
       Least-Squares Approach", Review of Financial Studies 2001.
    .. [2] I. Covert et al., "Learning to Maximize Mutual Information for Dynamic Feature
       Selection", ICML 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skroute.gating import SequentialFeatureClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SequentialFeatureClassifier(budget=2, random_state=0).fit(X[::2], y[::2])
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
        # Larger than all the rest, and learned again where another budget is asked for.
        state = super().__getstate__()
        return state | {"_learned_within": []}

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, **params):
        """Learn what to buy, when to stop and how to answer.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows with all that can be bought; NaN where a value is missing. Columns may be
            categories, as texts (texts of digits are texts, too), and dates.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights: of the models, of what answers are worth and of what a row costs in
            the mean. Passed to the clones of `estimator` too, which must take them. skroute's own
            models do not depend on their unit. Whole multiples of the smallest weight, up to 16,
            count rows. Other weights get the mean 1.

        **params : dict
            With metadata routing enabled: parameters for the `fit` of `estimator`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If `sample_weight` is given, metadata routing is off and `estimator` does not take it.

        UnsetMetadataPassedError
            If metadata routing is on and `estimator` does not request what is given.
        """
        return super().fit(X, y, sample_weight=sample_weight, **params)

    def _fit(self, X, y, *, task, sample_weight=None, **params):
        X = as_rows(X)
        values, encoded, given_weight = self._checked(X, y, sample_weight)
        weight = relative_weights(given_weight)
        # A row of weight 0 must leave no trace.
        kept = np.flatnonzero(weight > 0)
        if len(kept) < _FEWEST:
            raise ValueError(
                f"X has {len(kept)} rows of positive weight; at least {_FEWEST} are needed, since "
                "what is learned is judged on rows held out."
            )
        if sample_weight is not None:
            params = params | {"sample_weight": given_weight}
        fit_params = self._inner_params(params)
        self._scorer = scorer_of(self.quality)
        # What a scorer says of one row is nothing.
        told = self.quality if self._scorer is None else "log_loss"
        bound = objective_of_labels(told, self.classes_).bound(
            encoded[kept], weight[kept]
        )
        self._worth_by = told, bound.share
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        columns = self.group_of_, self.group_costs_, self._categorical
        how = threads_for(len(kept), self.n_jobs), seed
        whole = Task(values, encoded, weight, len(self.classes_), *columns, *how)
        fitted, out = (kept[part] for part in held_out_part(encoded[kept], seed))
        judge = whole.of(out)
        if self._scorer is not None:
            for half in (judge.y[::2], judge.y[1::2]):
                if len(np.unique(half)) < len(self.classes_):
                    raise ValueError(
                        f"quality={self.quality!r} is a scorer, which needs rows of every class in "
                        "each half of the held-out rows. Give more rows, or quality='log_loss'."
                    )
            # A scorer that is not for these labels says so before a model is fitted.
            shares = np.tile(whole.of(kept).shares, (len(out), 1))
            self._scorer(
                _Answers(self.classes_, shares), judge.X, self.classes_[judge.y]
            )
        with task.step("search"):
            self._sets = find_sets(whole.of(fitted), np.random.default_rng(seed))
        with task.step("judge"):
            of_fitted, of_out = (_safe_indexing(X, part) for part in (fitted, out))
            self._judged = self._fit_models(
                whole.of(fitted),
                of_fitted,
                check_method_params(X, fit_params, fitted),
                judge,
            )
            bought = FeatureLedger(
                *judge.X.shape, self.group_of_, len(whole.costs), values=judge.X
            )
            every, sets = np.arange(len(out)), range(len(self._sets))
            proba = [
                self._proba(self._judged, own, of_out, bought, every) for own in sets
            ]
            key = np.array([self._key(own) for own in proba])
            said = proba
            if bound.asks == "predict":
                said = [
                    self._labels(self._judged, own, of_out, bought, every)
                    for own in sets
                ]
            quality = np.array(
                [bound.of(judge.y, answers) for answers in said], dtype=np.float64
            )
            worth = np.array([self._value(own) for own in proba])
            if bound.asks == "predict_proba":
                # What probabilities are expected to be worth believes a model that is too sure of
                # itself; what they were worth is right in the mean, but noisy. Their mean has less
                # of both. Whether a label was right is too noisy for that.
                worth = 0.5 * (worth + quality)
            self._held_out = worth, key, quality, judge.weight
            self._scored = None if self._scorer is None else (np.array(proba), judge.y)
        with task.step("fit"):
            self._models = self._fit_models(
                whole.of(kept),
                _safe_indexing(X, kept),
                check_method_params(X, fit_params, kept),
            )
        names = np.array(self.group_names_, dtype=object)
        self.sets_ = [names[groups].tolist() for groups in self._sets]
        self.set_costs_ = self._sets @ self.group_costs_
        self._learned_within, self._choices = [], []
        n_groups = len(self.group_costs_)
        self.choices_ = [
            f"{k} group{'' if k == 1 else 's'}" for k in range(n_groups + 1)
        ]
        self._choice(*self._limits(None, None, None), warns=True)

    def _inner_params(self, params):
        """Return the parameters for the `fit` of the clones of `estimator`."""
        if routing_enabled():
            routed = self._route_metadata(params)
            return {} if self.estimator is None else routed["estimator"]["fit"]
        weights = {
            name: value for name, value in params.items() if name == "sample_weight"
        }
        self._route_metadata(
            {name: params[name] for name in params if name not in weights}
        )
        if self.estimator is None:
            return {}
        if weights and not may_take_weights(self.estimator):
            raise ValueError(
                f"sample_weight was given, but estimator={self.estimator!r} does not take it. "
                "Leave it out, give a model that takes it, or enable metadata routing to weight "
                "the rest only."
            )
        return weights

    def _fit_models(self, task, X, fit_params, judge=None):
        """A model for each set; of those that `judge` rates, the others are made as they were."""
        if self.estimator is not None:
            own = self.estimator, task, X, self.classes_, fit_params
            return [fit_own(*own, groups) for groups in self._sets]
        task = task._replace(n_threads=1)
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        if judge is None:
            pairs = zip(self._sets, self._judged)
            return parallel(delayed(fit_again)(task, *pair) for pair in pairs)
        return parallel(
            delayed(fit_judged)(task, groups, judge) for groups in self._sets
        )

    @property
    def _bound(self):
        """What an answer is worth, with the weights that the rows of `fit` gave to classes."""
        told, share = self._worth_by
        return replace(objective_of_labels(told, self.classes_), share=share)

    def _value(self, proba):
        """Quality that answering by these probabilities is expected to have, if they are right."""
        bound, rows = self._bound, np.ones(len(proba), dtype=np.intp)
        every = (quality_of(bound, k * rows, proba) for k in range(proba.shape[1]))
        return sum(proba[:, k] * own for k, own in enumerate(every))

    def _key(self, proba):
        """What decides what a row buys next, as one number."""
        return proba[:, 1] if proba.shape[1] == 2 else self._value(proba)

    def get_metadata_routing(self):
        """Routing of `sample_weight` and other metadata to the clones of `estimator`.

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
        """The purchases at one budget, and their cost and quality on held-out rows.

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
        """What a call may spend: in the mean per row, in purchases of a row and in its cost."""
        max_rounds = self.max_rounds if max_rounds is None else max_rounds
        max_cost = self.max_cost if max_cost is None else max_cost
        if max_rounds is not None:
            if not isinstance(max_rounds, Integral) or max_rounds < 0:
                raise ValueError(
                    f"max_rounds must be a whole number that is not negative, got {max_rounds!r}."
                )
            # No row buys more often than there are sets.
            max_rounds = min(max_rounds, len(self._sets))
        return (
            self._effective_budget(budget),
            max_rounds,
            check_budget(max_cost, name="max_cost"),
        )

    def _learned(self, max_rounds, max_cost):
        """Policies within limits of each row, and the sets that held-out rows end at.

        By purchases that are left, from each first set and at each price: by what all of the rows
        say, and by what the other half of them says.
        """
        worth, key, _, weight = self._held_out
        allowed = self.set_costs_ <= max_cost * _ROOM

        def learn(rows):
            known = worth[:, rows], key[:, rows], self._sets, self.set_costs_, allowed
            return Policies.learn(*known, max_rounds, weight[rows])

        first = np.arange(key.shape[1]) % 2 == 0
        halves = [(own, learn(~own)) for own in (first, ~first)]
        policies, ends = learn(slice(None)), {}
        for left in {self._left(start, max_rounds) for start in range(len(self._sets))}:
            fair = np.empty((len(policies.prices), *key.shape), dtype=np.int16)
            for own, other in halves:
                fair[:, :, own] = other.ends(key[:, own], left)
            ends[left] = policies.ends(key, left), fair
        return policies, ends

    def _left(self, start, max_rounds):
        """Purchases behind the first set; None is any number."""
        if start == 0 and not self._sets[0].any():
            # Nothing is known there, by which some rows could buy on and others not.
            return 0
        # The free groups are there before the first purchase.
        return None if max_rounds is None else max(max_rounds - int(start > 0), 0)

    def _choice(self, *limits, warns=False):
        """The first set, and how the rest of a budget is spent, within `limits` of a call."""
        choice = _remembered(self._choices, limits, lambda: self._choose(*limits))
        if warns and choice.point.cost == 0 and (self.group_costs_ > 0).any():
            self._warn_of_nothing(*limits)
        return choice

    def _choose(self, budget, max_rounds, max_cost):
        within = max_rounds, max_cost
        policies, ends = _remembered(
            self._learned_within, within, lambda: self._learned(*within)
        )
        (_, _, quality, weight), costs = self._held_out, self.set_costs_
        rows = np.arange(quality.shape[1])
        found, judged, spent, answers = [], [], [], []

        def mean(values, rows=slice(None)):
            return np.average(values, axis=-1, weights=weight[rows])

        last = len(policies.prices) - 1
        # Sets that every row may buy at first; without a round only what is free.
        starts = np.flatnonzero(costs <= min(budget, max_cost) * _ROOM)
        for start in starts if max_rounds != 0 else [0]:
            left = self._left(start, max_rounds)
            own, fair = (part[:, start] for part in ends[left])
            go_on = (spend(mean(costs[part]), budget) for part in (own, fair))
            stay = (last, last, 0.0)
            for spending, (price, lower, share) in (go_on, (stay, stay)):
                found.append((start, left, spending))
                high, low = fair[price], fair[lower]
                judged.append(
                    (1 - share) * quality[high, rows] + share * quality[low, rows]
                )
                spent.append((1 - share) * costs[high] + share * costs[low])
                if self._scorer is not None:
                    ends_at = np.where(GOLDEN * rows % 1 < share, low, high)
                    answers.append(self._scored[0][ends_at, rows])
        judged, spent = np.array(judged), np.array(spent)

        def best(rows):
            """Of equal ones the cheapest; a fixed set where it leads by more than its error."""
            worth = mean(judged[:, rows], rows)
            if self._scorer is not None:
                worth = np.array([self._score(proba, rows) for proba in answers])
            worth, of_fixed = worth[::2], worth[1::2]
            within = 2 * np.flatnonzero(worth >= worth.max() - 1e-12)
            at, fixed = (
                within[np.argmin(mean(spent[within]))],
                2 * np.argmax(of_fixed) + 1,
            )
            lead = judged[fixed, rows] - judged[at, rows]
            leads = self._scorer is None and mean(lead, rows) > standard_error(
                lead, weight[rows]
            )
            return fixed if leads else at

        first = rows % 2 == 0
        # Each half is judged by what the other half says.
        halves = [(first, best(~first)), (~first, best(first))]
        at = best(rows)
        if self._scorer is None:
            fair = np.where(first, judged[halves[0][1]], judged[halves[1][1]])
            worth = float(mean(fair)), standard_error(fair, weight)
        else:
            of_half = [self._score(answers[chosen], own) for own, chosen in halves]
            worth = float(np.mean(of_half)), float(np.ptp(of_half) / 2)
        start, left, (*prices, share) = found[at]
        goes_on = (
            left != 0 and (policies.moves(start, (), left)[0][prices] != STOP).any()
        )
        point = OperatingPoint(
            list(self.sets_[start]),
            float(policies.prices[prices[0]]) if goes_on else np.inf,
            share,
            float(mean(spent[at])),
            standard_error(spent[at], weight),
            *worth,
        )
        return _Choice(policies, int(start), prices, left, point)

    def _score(self, proba, rows):
        """The scorer's value of probabilities of some of the held-out rows."""
        y, weight = self.classes_[self._scored[1][rows]], self._held_out[3][rows]
        weights = {} if np.ptp(weight) == 0 else {"sample_weight": weight}
        return self._scorer(
            _Answers(self.classes_, proba[rows]), np.empty((len(y), 0)), y, **weights
        )

    def _warn_of_nothing(self, budget, max_rounds, max_cost):
        """Say why nothing is bought, unless that is what was asked for."""
        most, limit = min((budget, "budget"), (max_cost, "max_cost"))
        if most == 0 or max_rounds == 0:
            return
        least = self.set_costs_[self.set_costs_ > 0].min()
        if least > most * _ROOM:
            why = f"the cheapest set costs {least:.6g} for each row. Raise {limit}."
        else:
            name = self._bound.name if self._scorer is None else self.quality
            why = (
                f"no set of groups within it raised quality={name!r} on the held-out "
                "rows. Another quality, more rows or other features may."
            )
        warn(f"Nothing is bought within {limit}={most!r}: {why}")

    # Decide ---------------------------------------------------------------------------

    def _plan(self, X, call):
        limits = self._limits(
            call.budget, call.option("max_rounds"), call.option("max_cost")
        )
        choice = self._choice(*limits, warns=cache_of(self) is NO_CACHE)
        known = self._known(call.option("known"), num_samples(X))
        ledger = self._ledger(X)
        at, rounds = self._walk(X, ledger, known, choice, call.budget)
        bought = rounds > 0
        route = bought.sum(axis=1).astype(np.int64)
        return Plan(route, bought @ self.group_costs_, (ledger, at, rounds))

    def _walk(self, X, ledger, known, choice, budget):
        """The set that each row ends at, and the round in which it bought each group."""
        n_rows, left, share = len(known), choice.left, choice.point.share
        first = self._sets[choice.start]
        rounds = (first & ~known).astype(np.int64)
        at = self._with_known(np.full(n_rows, choice.start), known)
        cap = budget * n_rows * _ROOM - ((rounds > 0) @ self.group_costs_).sum()
        n_round = int((self.group_costs_[first] > 0).any())
        low = np.full(n_rows, -1)
        going = np.arange(n_rows if np.isfinite(choice.point.price) else 0)
        while len(going) and left != 0:
            to, reach = np.empty((2, len(going)), dtype=np.int64)
            for own in np.unique(at[going]):
                inside = np.flatnonzero(at[going] == own)
                rows = going[inside]
                ask = partial(self._keys, X, ledger, own)
                key = cache_of(self).get_or_compute_rows(
                    ("key", int(own)), rows, n_rows, ask
                )
                table, bins = choice.policies.moves(own, key, left)
                to[inside], other = table[choice.prices][:, bins]
                if share > 0:
                    # Rows for which the two prices differ are drawn, once.
                    new, columns = (
                        rows[(to[inside] != other) & (low[rows] < 0)],
                        self._columns(own),
                    )
                    shown = ledger.take(new, columns)[:, columns]
                    low[new] = even_draws(feature_keys(shown)) < share
                    to[inside] = np.where(low[rows] == 1, other, to[inside])
                # The highest price at which rows buy on, by position.
                goes = table != STOP
                last = len(goes) - 1 - goes[::-1].argmax(axis=0)
                reach[inside] = np.where(goes.any(axis=0), last, -1)[bins]
            on = to != STOP
            going, to, reach = going[on], to[on], reach[on]
            extra = self._sets[to] & ~self._sets[at[going]] & ~known[going]
            price = extra @ self.group_costs_
            if self.policy == "batch" and np.isfinite(budget):
                # Where the budget ends, the rows that would pay most are served first.
                order = np.argsort(-reach, kind="stable")
                paid = np.sort(order[np.cumsum(price[order]) <= cap])
                going, to, extra, price = (
                    going[paid],
                    to[paid],
                    extra[paid],
                    price[paid],
                )
                cap -= price.sum()
            n_round += 1
            rounds[going] += n_round * extra
            at[going] = to
            at = self._with_known(at, known)
            left = None if left is None else left - 1
        return at, rounds

    def _keys(self, X, ledger, own, rows):
        """What rows have shown at a set, as one number each."""
        return self._key(self._proba(self._judged, own, X, ledger, rows))

    def _columns(self, own):
        """Columns of the groups of a set."""
        return np.flatnonzero(self._sets[own][self.group_of_])

    def _proba(self, models, own, X, ledger, rows):
        """Class probabilities by the model of a set, of rows as it reads them."""
        model, columns = models[own], self._columns(own)
        if isinstance(model, SetModel):
            return model.proba(ledger.take(rows, columns)[:, columns])
        read = self._input(ledger, rows, columns, X)
        with note_failure("estimator", len(rows), "predict_proba"):
            found = check_probabilities(model.predict_proba(read), "estimator")
        return align_by_class(
            np.asarray(found, dtype=np.float64), model.classes_, self.classes_
        )

    def _labels(self, models, own, X, ledger, rows):
        """Return positions of the classes that the model of a set answers rows with.

        The answer of a user's model is what it predicts, by a decision threshold of its own too.
        """
        model = models[own]
        if isinstance(model, SetModel):
            return self._proba(models, own, X, ledger, rows).argmax(axis=1)
        read = self._input(ledger, rows, self._columns(own), X)
        with note_failure("estimator", len(rows), "predict"):
            return np.searchsorted(self.classes_, model.predict(read))

    def _with_known(self, at, known):
        """The largest set that costs a row nothing more than where it stands."""
        if not known.any():
            return at
        at, here = at.copy(), self._sets[at]
        for own, groups in enumerate(self._sets):
            more = groups & ~here
            free = (here <= groups).all(axis=1) & ~(more & ~known).any(axis=1)
            at[free & (own >= at)] = own
        return at

    def _known(self, known, n_rows):
        """Groups that rows need not pay for."""
        n_groups = len(self.group_costs_)
        if known is None:
            return np.zeros((n_rows, n_groups), dtype=bool)
        if is_frame(known):
            columns = dict(zip(*names_and_columns(known)))
            if unknown := [name for name in columns if name not in self.group_names_]:
                raise ValueError(
                    f"known has columns {unknown!r}, which are not among the groups "
                    f"{self.group_names_!r}."
                )
            none = np.zeros(len(known), dtype=bool)
            known = np.column_stack(
                [np.asarray(columns.get(name, none)) for name in self.group_names_]
            )
        known = np.asarray(known)
        if known.shape != (n_rows, n_groups) or known.dtype != bool:
            raise ValueError(
                f"known must be a table of booleans of shape {(n_rows, n_groups)}, a row for each "
                f"of X and a column for each of {self.group_names_!r}, got shape {known.shape} "
                f"of {known.dtype}."
            )
        return known

    def _answer(self, plan, response):
        ledger, at, _ = plan.state

        def answer(own, rows):
            ask = self._labels if response == "predict" else self._proba
            ask = partial(ask, self._models, own, plan.X, ledger)
            key = "answer", own, response
            found = cache_of(self).get_or_compute_rows(key, rows, len(at), ask)
            return (
                self.classes_[found] if response == "predict" else with_sum_one(found)
            )

        return dispatch(at, answer)

    def bought(self, X, budget=None, *, known=None, max_rounds=None, max_cost=None):
        """Which groups are bought for each row, and in which round.

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
            The round, from 1; 0 where a group is not bought.
        """
        call = self.make_call(
            budget, known=known, max_rounds=max_rounds, max_cost=max_cost
        )
        return self.plan(X, call).state[-1]


class _Answers(ClassifierMixin, BaseEstimator):
    """Answers that are known, as a fitted classifier for a scorer."""

    def __init__(self, classes_, proba):
        self.classes_, self.proba = classes_, proba

    def predict_proba(self, X):
        return self.proba

    def predict(self, X):
        return self.classes_[self.proba.argmax(axis=1)]


def scorer_of(quality):
    """The scorer that `quality` is or names; None where it is a quality of single rows."""
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


def held_out_part(y, seed):
    """Rows to learn from and rows to judge on, stratified where the classes allow it."""
    n_out = max(min(int(len(y) * _HELD_OUT), _MOST_HELD_OUT), 1)
    classes = y if np.bincount(y).min() >= 2 and n_out > y.max() else None
    return train_test_split(
        np.arange(len(y)), test_size=n_out, random_state=seed, stratify=classes
    )


def _remembered(memory, key, compute):
    """What belongs to a key, computed once; the oldest of too many keys is forgotten."""
    for known, found in memory:
        if known == key:
            return found
    found = compute()
    memory.append((key, found))
    del memory[:-_REMEMBERED]
    return found
