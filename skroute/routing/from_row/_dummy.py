"""Routers to compare with: the single best member, random routing, the oracle."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skroute.assignment import assignment_path, choose_at_price, solve_assignment
from skroute.base import CallParameter, Plan, affords, check_affordable
from skroute.metrics._objectives import OF_LABELS, OF_NUMBERS, asks_of
from skroute.routing.parts._log import check_row_costs
from skroute.routing.parts._member_router import (
    AMOUNT,
    MemberRouter,
    least_prices,
    objective_of,
)
from skroute.routing.parts._members import members_by_name
from skroute.routing.parts._targets import Numbers
from skroute.utils._cache import cache_of
from skroute.utils._compat import StrOptions, num_samples
from skroute.utils._named import check_rows_match
from skroute.utils._row_hash import row_uniforms

# Number of random rows from which the price of random qualities is learned. The share
# of rows that a price sends to a member then has a standard error of at most
# 0.5 / sqrt(20,000) = 0.4 %.
_N_PRICE_ROWS = 20_000
# `random_state` draws a seed below this, with which a hash gives each row its random
# qualities.
_LARGEST_SEED = 2**31

Y_TRUE = CallParameter(
    "y_true",
    "array-like of shape (n_samples,), default=None",
    """True answers, for ``strategy="oracle"``. `score` and `row_quality` give them.""",
)


class DummyRouter(MemberRouter):
    """Base of the baselines for classifiers and for regressors."""

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "strategy": [StrOptions({"single_best", "random", "oracle"})],
        "exchange_rate": AMOUNT,
        "random_state": ["random_state"],
    }
    call_parameters = (Y_TRUE,)

    def _fit(self, X, y, *, task, **params):
        """Fit and ask the members, and learn what the strategy needs.

        Parameters are those of `CostAwareMixin._fit`. `params` are `sample_weight` and
        metadata for the `fit` of members.
        """
        members = members_by_name(self.estimators, self._validate_names)
        # Random choices need no out-of-fold answers: with None, no member is asked.
        method = None if self.strategy == "random" else asks_of(self.quality)
        _, answers = self._fit_members(
            members, X, y, params=params, task=task, method=method
        )
        with task.step("learn routing"):
            self._learn(answers)

    def _learn(self, answers):
        """Learn the mean quality of each member or, for random choices, draw qualities.

        `answers` are the `OutOfFold`. Random choices set ``_seed`` and
        ``_random_values``. Other strategies set ``_mean_quality``. All of them set
        ``_strategy``, the strategy of `fit`, and ``choices_``.
        """
        if self.strategy == "random":
            rng = check_random_state(self.random_state)
            self._seed = int(rng.randint(_LARGEST_SEED))
            # (n_price_rows, n_members)
            self._random_values = rng.uniform(size=(_N_PRICE_ROWS, len(answers.names)))
        else:
            objective = objective_of(self, self._members.target)
            bound_objective = objective.bound(answers.target, answers.weight)
            responses = answers.answers_by(objective.asks)
            # (n_rows, n_members)
            quality = bound_objective.table(answers.target, responses)
            self._mean_quality = np.average(quality, axis=0, weights=answers.weight)
        # A strategy that is set after fit acts at the next fit.
        self._strategy = self.strategy
        self.choices_ = answers.names

    def _smallest_budget(self):
        """Return the cost of the cheapest member."""
        return self._members.costs_now(self.costs, self.estimators).min()

    @property
    def mean_quality_(self):
        """Mean out-of-sample quality of each member, ndarray of shape (n_members,)."""
        return self._mean_quality

    def _plan(self, X, call):
        """Return the choices for the rows of a call, by the strategy (`Plan`)."""
        check_affordable(call.budget, self._smallest_budget())
        if self._strategy == "oracle":
            return self._plan_oracle(X, call.budget, call.option("y_true"))
        if self._strategy == "random":
            return self._plan_random(X, call.budget)
        return self._plan_single_best(X, call.budget)

    def _plan_random(self, X, budget):
        """Return the plan (`Plan`) that is best for random qualities, within a budget.

        The price of the budget is that of the random rows of `fit`.
        """
        costs = self._members.costs_now(self.costs, self.estimators)
        # Random qualities, (n_rows, n_members). They are a hash of the row, so that
        # equal rows get equal choices.
        values = row_uniforms(X, len(costs), self._seed)
        # At this price the random rows of `fit` cost the budget on average.
        price = assignment_path(self._random_values, costs).price(budget)
        route = choose_at_price(values, costs, price)
        return Plan(route, costs[route])

    def _plan_oracle(self, X, budget, y_true):
        """Return the best assignment of the rows, given the true answers (`Plan`).

        It maximises quality minus the value of the cost, by the exchange rate. The
        budget limits the cost in addition.
        """
        if y_true is None:
            raise ValueError(
                "y_true is None, but the strategy 'oracle' chooses by the true "
                "answers. Give them: predict(X, y_true=y). score(X, y), row_quality(X, "
                "y) and accuracy_cost_curve do."
            )
        costs = self._members.costs_now(self.costs, self.estimators)
        quality = self.member_quality(X, y_true)
        net_quality = quality - self._least_price(budget) * costs
        route = solve_assignment(net_quality, costs, budget).choices
        return Plan(route, costs[route])

    def _plan_single_best(self, X, budget):
        """Return the plan that sends all rows to the best affordable member.

        The best member has the highest mean quality minus the value of its cost.
        """
        costs = self._members.costs_now(self.costs, self.estimators)
        net_quality = self._mean_quality - self._least_price(budget) * costs
        # -inf: the budget does not pay for the member.
        affordable_quality = np.where(affords(budget, costs), net_quality, -np.inf)
        best = int(affordable_quality.argmax())
        n_rows = num_samples(X)
        return Plan(np.full(n_rows, best), np.full(n_rows, costs[best]))

    def bill(self, plan, costs):
        """Return the bill of each row of a plan, from the bill of each member.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        costs : {array-like, dataframe} of shape (n_samples, n_members)
            Bill of each member on each row. A frame is read by name.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
        """
        check_is_fitted(self)
        n_rows = len(plan.route)
        bills = check_row_costs(costs, self.choices_, (n_rows, len(self.choices_)))
        return bills[np.arange(n_rows), plan.route]

    def _least_price(self, budget):
        """Return the quality that one unit of cost is worth, by the `exchange_rate`.

        Without an exchange rate it is 0, or 1 if quality is money and there is no
        budget. An infinite `budget` is no budget.
        """
        prices = least_prices(self.exchange_rate, self.quality)
        price_with_budget, price_without_budget = prices
        return price_without_budget if budget == np.inf else price_with_budget

    def member_quality(self, X, y_true):
        """Return the true quality of each member on each row. All members are called.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y_true : array-like of shape (n_samples,)
            True labels or numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_members)
            Quality of each member on each row.
        """
        check_rows_match(X=X, y_true=y_true)
        target = self._encoded(y_true)
        objective = objective_of(self, self._members.target)
        rows = np.arange(num_samples(X))
        sweep = cache_of(self)
        responses = []
        for member in range(len(self._members.models)):
            answers = self._members.ask(
                member, objective.asks, X, rows, counter=sweep, cache=sweep
            )
            responses.append(answers)
        return objective.bound(target).table(target, responses)

    def row_quality(self, X, y, sample_weight=None, budget=None):
        """Return the quality of the answer to each row, by this router's `quality`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in other routers.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            As in other routers.

        sample_weight : array-like of shape (n_samples,), default=None
            As in other routers.

        budget : float, default=None
            As in other routers.

        Returns
        -------
        RowQuality
            Named tuple ``(quality, route, cost)``.
        """
        return super().row_quality(X, y, sample_weight, budget, y_true=y)

    def score(self, X, y, sample_weight=None, budget=None):
        """Return scikit-learn's score of `predict`. The oracle gets `y`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True labels or numbers.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        float
            The score. Higher is better.
        """
        return super().score(X, y, sample_weight, budget, y_true=y)


class DummyRouterClassifier(DummyRouter, ClassifierMixin, BaseEstimator):
    """Baselines for routers of classifiers: single best, random and oracle.

    They choose one of several classifiers for each row. The features are not used to
    choose. They are the baselines of the paper on OCCAM.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, as in :class:`OccamRouterClassifier`.

    strategy : {"single_best", "random", "oracle"}, default="single_best"
        - ``"single_best"``: one member answers all rows. It is the best on average
          among those within the budget.
        - ``"random"``: an assignment by uniform random values, which spends the budget
          at random.
        - ``"oracle"``: the best assignment if the quality of every answer is known. It
          calls all members, and needs the true labels: `score` gives them, and a call
          gets them as ``y_true``. A call without them is an error. A scorer of
          scikit-learn that calls ``predict(X)`` has no labels to give, so leave
          ``scoring`` at None, which calls `score`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited.

    quality : str, mapping, array-like, callable or (str, callable), default="accuracy"
        Quality of an answer, as in :class:`OccamRouterClassifier`.

    exchange_rate : float, default=None
        Value of one unit of `costs` in the unit of `quality`, as in
        :class:`OccamRouterClassifier`.

    cv : int, splitter or iterable of splits, default=5
        Folds for out-of-fold answers of the members.

    random_state : int, RandomState instance or None, default=0
        Determines the choices of ``strategy="random"``. Pass an int for the same result
        at every fit.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members.

    estimators_ : list of classifiers
        The fitted members, in the order of `choices_`.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    mean_quality_ : ndarray of shape (n_members,)
        Out-of-sample quality of each member; not with ``strategy="random"``.

    Notes
    -----
    ``fit(X, y, sample_weight=...)`` fits every member with the weights, and
    ``mean_quality_`` is a weighted mean. ``strategy="random"`` learns nothing from
    rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.routing import DummyRouterClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> members = [
    ...     ("bayes", GaussianNB()),
    ...     ("logreg", LogisticRegression(max_iter=300)),
    ... ]
    >>> for strategy in ("single_best", "random", "oracle"):
    ...     router = DummyRouterClassifier(
    ...         members, strategy=strategy, costs=[1, 5], budget=3
    ...     )
    ...     router = router.fit(X[::2], y[::2])
    ...     print(strategy, round(router.score(X[1::2], y[1::2]), 1))
    single_best 0.8
    random 0.9
    oracle 1.0
    """

    _parameter_constraints: dict = {
        **DummyRouter._parameter_constraints,
        "quality": [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"],
    }

    def __init__(
        self,
        estimators,
        *,
        strategy="single_best",
        costs,
        budget=None,
        quality="accuracy",
        exchange_rate=None,
        cv=5,
        random_state=0,
        memory=None,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.strategy = strategy
        self.costs = costs
        self.budget = budget
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.cv = cv
        self.random_state = random_state
        self.memory = memory
        self.n_jobs = n_jobs


class DummyRouterRegressor(DummyRouter, RegressorMixin, BaseEstimator):
    """Baselines for routers of regressors: single best, random and oracle.

    They choose one of several regressors for each row. The features are not used to
    choose.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members, as in :class:`OccamRouterRegressor`.

    strategy : {"single_best", "random", "oracle"}, default="single_best"
        As in :class:`DummyRouterClassifier`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited.

    quality : str or callable, default="squared_error"
        Quality of an answer, as in :class:`OccamRouterRegressor`.

    exchange_rate : float, default=None
        Value of one unit of `costs` in the unit of `quality`, as in
        :class:`OccamRouterRegressor`.

    cv : int, splitter or iterable of splits, default=5
        Folds for out-of-fold answers of the members.

    random_state : int, RandomState instance or None, default=0
        Determines the choices of ``strategy="random"``. Pass an int for the same result
        at every fit.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Members fitted in parallel.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from skroute.routing import DummyRouterRegressor
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.abs(X[:, 0])
    >>> members = [
    ...     ("line", LinearRegression()),
    ...     ("tree", DecisionTreeRegressor(max_depth=3)),
    ... ]
    >>> router = DummyRouterRegressor(members, costs=[1, 5], cv=2).fit(X[::2], y[::2])
    >>> router.route(X[:3])
    array([1, 1, 1])
    """

    _target_kinds = (Numbers,)
    _parameter_constraints: dict = {
        **DummyRouter._parameter_constraints,
        "quality": [StrOptions(set(OF_NUMBERS)), callable],
    }

    def __init__(
        self,
        estimators,
        *,
        strategy="single_best",
        costs,
        budget=None,
        quality="squared_error",
        exchange_rate=None,
        cv=5,
        random_state=0,
        memory=None,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.strategy = strategy
        self.costs = costs
        self.budget = budget
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.cv = cv
        self.random_state = random_state
        self.memory = memory
        self.n_jobs = n_jobs
