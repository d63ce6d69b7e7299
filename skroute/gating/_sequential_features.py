"""Buy features one group at a time, and stop where the next is not worth its price."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, check_budget
from skroute.gating._acquirer import (
    BLOCK,
    LARGE,
    Task,
    adaptive_policies,
    better_of,
    deep_sets,
    find_order,
    follow,
    joined,
    learn,
)
from skroute.gating._base import FeatureBuyer
from skroute.gating._groups import Groups
from skroute.gating._levels import row_draws, row_keys
from skroute.gating._points import ROOM, SURELY, HeldOut, HeldOutPath, Limits
from skroute.gating._stopping import at_bar
from skroute.utils._compat import HasMethods, Integral, Interval, Real, StrOptions, num_samples
from skroute.utils._once import once_of

# Most rows that are held out, and rows below which a third is.
HELD_OUT = 5000
A_THIRD = 1000
# Fewer rows than this leave a part without any.
FEWEST = 6


class Bought(NamedTuple):
    """What a call has bought.

    Attributes
    ----------
    proba : ndarray of shape (n_rows, n_classes) or None
        Of the model of all subsets; None where a static set has yet to be asked.
    rounds : ndarray of shape (n_rows, n_groups), dtype=int
        Round in which each group was bought, from 1; 0 where it was not.
    """

    proba: Any
    rounds: Any


class SequentialFeatureClassifier(FeatureBuyer):
    """Buy features one group at a time, until the next one is not worth its price.

    The field calls this active feature acquisition. After each purchase a row either stops
    and is answered, or buys one more group, which depends on what it has shown so far. Four
    ways of doing so compete on held-out rows at each budget:

    - *static sets*: the same groups for all rows, with a model of their own;
    - *static order*: one order for all rows, and each row stops by itself;
    - *nearest rows*: the next group is the one that tells the classes of the most similar
      training rows apart best; good for many features and few rows;
    - *learned gains*: the next group is the one whose gain a regression model expects to be
      the largest; for up to twenty groups.

    One model answers for all subsets of groups. It is trained on copies of the rows in which
    groups are hidden as the policies hide them. From 5,000 rows on the static order has one of
    its own.

    Parameters
    ----------
    estimator : classifier with predict_proba, default=None
        The model, which must take missing values: what is not bought is NaN. None:
        LightGBM, which needs no tuning here.

    feature_costs : array-like or mapping, default=None
        Cost of each feature, or of each group if `feature_groups` is given. A group of cost 0
        is bought for every row. None: each costs 1.

    feature_groups : mapping, default=None
        Name of each group of features that are bought together, to the list of its columns
        (names or positions). Every column is in one group. None: each column is its own.

    max_rounds : int, default=None
        Purchases of a row, one after the other: how often a patient is called back. A static
        set is bought in one. None: any number.

    max_cost : float, default=None
        Cost that no row exceeds, in the unit of `feature_costs`. None: unlimited.

    budget : float, default=None
        Mean cost per row, in the unit of `feature_costs`. None: unlimited, everything that
        `max_rounds` and `max_cost` allow is bought if that answered most held-out rows
        correctly.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone, at the price at which held-out rows spent the
        budget; it holds on average. ``"batch"`` never exceeds it on the rows of a call, which
        are looked at in blocks of two thousand.

    random_state : int, RandomState instance or None, default=None
        Draws the held-out rows and what is hidden of the copies.

    n_jobs : int, default=None
        Threads of LightGBM in `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        ``["0 groups", "1 group", ...]``: `route` is the number of groups bought.

    order_ : list
        Names of the groups in the static order, the free ones first.

    group_names_, group_of_, group_costs_ : list, ndarray, ndarray
        The groups, the group of each column and the cost of each group.

    min_budget_ : float
        0: without a purchase a row gets the most frequent class, or what the free groups say.

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
    When to stop is learned backwards from the paths of held-out rows: at a price, the value
    of going on is regressed on the step and the confidence of the answer so far [1]_. Most of
    what is saved comes from there, not from what is bought next.

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

    _acts_at_once = ("budget", "policy", "max_rounds", "max_cost")
    _reads_categories = True
    _call_context = ("known", "max_rounds", "max_cost")
    _parameter_constraints: dict = {
        **FeatureBuyer._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict_proba"]), None],
        "max_rounds": [Interval(Integral, 0, None, closed="left"), None],
        "max_cost": [Interval(Real, 0, None, closed="both"), None],
        "policy": [StrOptions({"online", "batch"})],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator=None,
        *,
        feature_costs=None,
        feature_groups=None,
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

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y):
        """Learn what to buy, when to stop and how to answer.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows with all that can be bought; NaN where there is nothing to be had.

        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self
            After a failure it is not fitted.
        """
        return super().fit(X, y)

    def _fit(self, X, y, *, task):
        values, encoded, _ = self._checked(X, y, None)
        if len(values) < FEWEST:
            raise ValueError(
                f"X has {len(values)} rows; at least {FEWEST} are needed, since what is learned is "
                "judged on rows held out."
            )
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        n_groups = len(self.group_costs_)
        categorical = np.zeros(values.shape[1], dtype=bool)
        if self._codes is not None:
            categorical = self._codes.categorical
        self._groups = Groups.of(self.group_of_, self.group_costs_, categorical)
        whole = Task(
            values,
            encoded,
            len(self.classes_),
            self._groups,
            self.estimator,
            self._as_input,
            int(rng.integers(2**31 - 1)),
            self.n_jobs or 1,
            int(self._groups.priced.sum()),
            len(values),
        )
        fitted, out = held_out_part(encoded, rng)
        with task.step("judge"):
            self._held_out, self._judged, walks = self._judge(whole, fitted, out, rng)
        self._learned = self._judged
        if not whole.large:
            with task.step("fit"):
                order = self._judged.order
                gains = self._judged.policies.get("learned gains")
                policies = adaptive_policies(whole, order, rng, gains)
                self._learned, _ = learn(whole, order, rng, policies, walks)
        order = self._learned.order
        self.order_ = [self.group_names_[g] for g in order]
        self._points = {}
        self.choices_ = [f"{k} group{'' if k == 1 else 's'}" for k in range(n_groups + 1)]

    def _judge(self, whole, fitted, out, rng):
        """Every candidate on held-out rows, what was learned, and the paths of all rows."""
        task, groups = whole.of(fitted), whole.groups
        order = find_order(task, rng)
        learned, walks = learn(task, order, rng)
        X, y = whole.X[out], whole.y[out]
        starts_alike, paths = bool(groups.priced.all()), {}
        for name in learned.policies:
            found, walked = follow(learned, name, X, y, groups, whole.most_rounds)
            paths[name] = HeldOutPath(found, starts_alike)
            if name in walks:
                walks[name] = joined(*walks[name], walked, fitted, out)
        sets = {size: model.proba(X).argmax(axis=1) == y for size, model in learned.sets.items()}
        for size, model in deep_sets(task, order):
            both = np.array([sets[size], model.proba(X).argmax(axis=1) == y])
            if both[1].sum() > both[0].sum():
                learned.sets[size] = model
            sets[size] = better_of(both)
        costs = np.append(0.0, np.cumsum(groups.costs[order]))
        lead = SURELY if whole.large else 0.0
        return HeldOut(paths, sets, costs, lead), learned, walks

    def _as_input(self, values):
        """What the user's model takes: numbers, or a frame as the one that `fit` was given."""
        return values if self._codes is None else self._codes.decode(values)

    # Decide ---------------------------------------------------------------------------

    def _least(self):
        return 0.0

    def operating_point(self, budget=None, *, max_rounds=None, max_cost=None):
        """How rows are bought for within a budget, and what that was worth on held-out rows.

        Parameters
        ----------
        budget : float, default=None
            Mean cost per row. None takes the constructor's, as the other two do.

        max_rounds : int, default=None
            Purchases of a row.

        max_cost : float, default=None
            Cost that no row exceeds.

        Returns
        -------
        OperatingPoint
            Named tuple ``(candidate, n_first, price, cost, cost_std_error, quality,
            quality_std_error, barred, share)``.
        """
        check_is_fitted(self)
        return self._point(self._limits(self._effective_budget(budget), max_rounds, max_cost))

    def _limits(self, budget, max_rounds, max_cost):
        max_rounds = self.max_rounds if max_rounds is None else max_rounds
        max_cost = self.max_cost if max_cost is None else max_cost
        if max_rounds is None:
            max_rounds = np.inf
        elif not isinstance(max_rounds, Integral) or max_rounds < 0:
            raise ValueError(
                f"max_rounds must be a whole number that is not negative, got {max_rounds!r}."
            )
        return Limits(budget, max_rounds, check_budget(max_cost, name="max_cost"))

    def _point(self, limits):
        if limits not in self._points:
            self._points[limits] = self._held_out.choose(limits)
        return self._points[limits]

    def _plan(self, X, budget, known=None, max_rounds=None, max_cost=None):
        limits = self._limits(budget, max_rounds, max_cost)
        point = self._point(limits)
        known = self._known(known, num_samples(X))
        ledger = once_of(self).whole("ledger", lambda: self._ledger(X)).anew()
        n_rows = num_samples(X)
        if point.candidate == "static sets":
            group_set = self._order[: point.n_first]
            rounds = np.zeros(known.shape, dtype=np.int64)
            rounds[:, group_set] = 1
            rounds[known] = 0
            state = Bought(None, rounds)
        else:
            parts = []
            for begin in range(0, n_rows, BLOCK):
                rows = np.arange(begin, min(begin + BLOCK, n_rows))
                parts.append(self._walk(ledger, rows, known[rows], point, limits))
            state = Bought(*(np.concatenate(column) for column in zip(*parts)))
        bought = state.rounds > 0
        cost = bought @ self.group_costs_
        return Plan(bought.sum(axis=1).astype(np.int64), cost, (ledger, point, known, state))

    @property
    def _order(self):
        return self._learned.order

    def _known(self, known, n_rows):
        """Groups that rows need not pay for."""
        n_groups = len(self.group_costs_)
        if known is None:
            return np.zeros((n_rows, n_groups), dtype=bool)
        if hasattr(known, "columns"):
            names = list(known.columns)
            if unknown := [name for name in names if name not in self.group_names_]:
                raise ValueError(
                    f"known has columns {unknown!r}, which are not among the groups "
                    f"{self.group_names_!r}."
                )
            found = np.zeros((n_rows, n_groups), dtype=bool)
            columns = [np.asarray(known[name]) for name in names]
            if all(column.shape == (n_rows,) and column.dtype == bool for column in columns):
                for name, column in zip(names, columns):
                    found[:, self.group_names_.index(name)] = column
                return found
        known = np.asarray(known)
        if known.shape != (n_rows, n_groups) or known.dtype != bool:
            raise ValueError(
                f"known must be a table of booleans of shape {(n_rows, n_groups)}, a row for each "
                f"of X and a column for each of {self.group_names_!r}, got shape {known.shape} "
                f"of {known.dtype}."
            )
        return known

    def _walk(self, ledger, rows, known, point, limits):
        """Buy for some rows until each of them stops."""
        walk = _Walk(self, ledger, rows, known, point, limits)
        if self.policy == "batch" and np.isfinite(limits.budget):
            walk.within_cap(limits.budget * len(rows))
        else:
            walk.at_price(point.price)
        return walk.proba, walk.rounds

    def _answer(self, X, plan, response):
        ledger, point, known, state = plan.state
        proba = state.proba
        if proba is None:
            columns = np.flatnonzero(np.isin(self.group_of_, self._order[: point.n_first]))
            values = ledger.take(np.arange(len(plan.route)), columns)
            proba = self._learned.sets[point.n_first].proba(values)
        return self._answers_of(proba, response)

    def bought(self, X, budget=None, **context):
        """Which groups are bought for each row, and in which round.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            ``known``, ``max_rounds`` and ``max_cost``, as in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples, n_groups), dtype=int64
            Round from 1 on; 0 for a group that is not bought. Columns as ``group_names_``.
        """
        check_is_fitted(self)
        X = self._check_X(X)
        plan = self._plan(X, self._effective_budget(budget), **context)
        return plan.state[-1].rounds


class _Walk:
    """Rows on their way along a policy.

    Parameters
    ----------
    model : SequentialFeatureClassifier
    ledger : FeatureLedger
    rows : ndarray of int
    known : ndarray of shape (n_rows, n_groups), dtype=bool
        What need not be paid for.
    point : OperatingPoint
    limits : Limits
    """

    def __init__(self, model, ledger, rows, known, point, limits):
        self.ledger, self.rows, self.point, self.limits = ledger, rows, point, limits
        self.groups = model._groups
        # The price of a budget belongs to the models that it was measured with.
        priced = np.isfinite(point.price) and point.price > 0
        self.learned = model._judged if priced else model._learned
        self.path = model._held_out.paths[point.candidate]
        self.policy = self.learned.policies[point.candidate]
        self.masked = self.learned.masked[point.candidate]
        n_rows = len(rows)
        every = np.arange(n_rows)
        self.memory = self.policy.start(n_rows)
        self.known = known.copy()
        self.rounds = np.zeros(known.shape, dtype=np.int64)
        self.n_bought = np.zeros(n_rows, dtype=np.int64)
        self.spent = np.zeros(n_rows)
        self.values = np.full((n_rows, len(self.groups.group_of)), np.nan)
        self.proba = np.empty((n_rows, len(model.classes_)))
        self.reach = np.empty(n_rows)
        self.next = np.full(n_rows, -1)
        free = ~self.groups.priced
        for group in np.flatnonzero(known.any(axis=0) | free):
            at = every if free[group] else np.flatnonzero(known[:, group])
            self._read(at, group)
            new = at[~known[at, group]]
            self.rounds[new, group] = 1
        self.known[:, free] = True
        self._look(every)

    def _read(self, at, group):
        """Take the columns of a group for some of the rows."""
        columns = self.groups.of_group(group)
        taken = self.ledger.take(self.rows[at], columns)
        self.values[np.ix_(at, columns)] = taken[:, columns]

    def _look(self, at):
        """Answer so far, next group, and the price up to which rows go on."""
        self.proba[at] = self.masked.proba(self.values[at])
        self.next[at] = self.memory.next_groups(at, self.values[at], self.known[at])
        # What is known from the start counts as a step: the table is of what is known.
        step = (self.known[at] & self.groups.priced).sum(axis=1)
        reach = self.path.reach_at(step, self.proba[at].max(axis=1))
        forced = self.n_bought[at] < self.point.n_first
        reach[forced] = np.inf
        there = self.next[at] >= 0
        price = np.where(there, self.groups.costs[self.next[at]], 0.0)
        over = self.spent[at] + price > self.limits.max_cost * ROOM
        rounds = self.n_bought[at] - max(self.point.n_first - 1, 0)
        reach[~there | over | (rounds >= self.limits.max_rounds)] = -np.inf
        self.reach[at] = reach

    def _buy(self, at):
        """Buy the next group of some rows."""
        groups = self.next[at]
        for group in np.unique(groups):
            self._read(at[groups == group], group)
        self.known[at, groups] = True
        self.n_bought[at] += 1
        self.rounds[at, groups] = np.maximum(self.n_bought[at] - max(self.point.n_first - 1, 0), 1)
        self.spent[at] += self.groups.costs[groups]
        self._look(at)

    def at_price(self, price):
        """Go on with every row that reaches beyond a price."""
        price = max(price, -1.0)
        barred, share = self.point.barred, self.point.share
        draws = np.full(len(self.rows), np.nan)
        while True:
            tied = at_bar(self.reach, (price,) if share else ())
            if len(new := np.flatnonzero(tied & np.isnan(draws))):
                # Each row is drawn once, by what it has shown.
                draws[new] = row_draws(row_keys(self.values[new]))
            beyond = np.where(tied, draws < share, self.reach > price)
            if not len(going := np.flatnonzero(beyond & ~at_bar(self.reach, barred))):
                break
            self._buy(going)

    def within_cap(self, cap):
        """Buy for the rows of the highest reach first, while the cap lasts."""
        left = cap * ROOM - (self.rounds > 0).sum(axis=0) @ self.groups.costs
        reached = self.path.reach
        levels = np.quantile(reached, np.linspace(1, 0, 40)) if reached.size else []
        for level in [*levels, -1.0]:
            while len(going := np.flatnonzero(self.reach > level)):
                going = going[np.argsort(-self.reach[going], kind="stable")]
                price = np.cumsum(self.groups.costs[self.next[going]])
                paid = going[price <= left]
                if not len(paid):
                    return
                left -= price[len(paid) - 1]
                self._buy(np.sort(paid))


def held_out_part(y, rng):
    """Rows to learn from and rows to judge on, stratified where the classes allow it.

    Parameters
    ----------
    y : ndarray of shape (n_samples,), dtype=int
    rng : Generator

    Returns
    -------
    fitted, out : ndarray of int
    """
    n, seed = len(y), int(rng.integers(2**31 - 1))
    n_out = min(n // (3 if n < A_THIRD else 4 if n < LARGE else 5), HELD_OUT)
    n_classes = int(y.max()) + 1
    stratified = np.bincount(y).min() >= 3 and n_out >= n_classes
    split = StratifiedShuffleSplit if stratified else ShuffleSplit
    return next(split(1, test_size=max(n_out, 1), random_state=seed).split(np.zeros(n), y))
