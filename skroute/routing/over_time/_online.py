"""OnlineBudgetRouter: decide within a budget, learn from one outcome per request."""

import threading
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skroute.base import CostAwareMixin, check_affordable, check_budget, check_costs
from skroute.quality._log_arguments import read_choice
from skroute.routing.over_time._online_state import (
    COST,
    QUALITY,
    Decision,
    OnlineStatus,
    Serving,
    unit_of,
)
from skroute.routing.parts._log import (
    check_matrix,
    check_names,
    check_new_choice,
    choice_names,
)
from skroute.routing.parts._router import BUDGET
from skroute.routing.parts._table_router import realised_quality
from skroute.utils._compat import HasMethods, Integral, Interval, Real
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_numbers, whole_rows

# Lock under which the first `partial_fit` creates the state of a router. A router has
# no lock of its own before that, so that all routers share this one.
_STARTING = threading.Lock()

# Features are standardised as if the rows had this number of further rows of mean 0 and
# scale 1, so that a few rows give no extreme scale.
_SCALE_ROWS = 10


class OnlineBudgetRouter(CostAwareMixin, BaseEstimator):
    r"""Choose a model for each request within a budget, and learn from the outcomes.

    Use it in a service whose requests come one by one, and where each request has one
    outcome: the quality and the cost of the choice that was made. The outcome may come
    late, in any order, in part or never. Qualities and prices may drift. Models may
    fail, come and go. The mean cost of a request stays within `budget`.

    1. :meth:`decide` takes the choice with the highest

       .. math:: \hat q_i(x) + w\,s_i(x) - p\,\hat c_i(x),

       with :math:`s_i` the standard error of the estimate, :math:`w` = `exploration`
       and :math:`p` the dual price of the budget.
    2. The caller makes the call.
    3. :meth:`commit` gives its quality and cost, or :meth:`refund` cancels a failed
       call.

    Quality, and cost relative to the price list, are estimated by one ridge regression
    per choice [1]_, which is conditioned on each outcome in closed form. The levels
    drift by a random walk. Old outcomes therefore lose weight, and a choice that was
    not made for a long time becomes uncertain and is tried again. Exploration is part
    of the budget. A choice that cannot be the best at the budget's price, even if its
    estimate is too low, is not tried.

    Parameters
    ----------
    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Price list: the mean cost of a call of each choice. True costs of calls are
        learned relative to it, so that the list can be changed without a new fit. None
        takes that of `prior`.

    budget : float, default=None
        Mean cost per request, in the unit of `costs`. None is unlimited.

    prior : fitted BudgetRouter, default=None
        Warm start. The router learns the deviations from the estimates of `prior`. Each
        decision then includes the time of its `predict`.

    exploration : float, default=0.5
        Number of standard errors that are added to each estimate (w). Raising it finds
        changes and new choices sooner, and costs more quality.

    drift : float, default=0.001
        Variance that the level of a choice gains per request, relative to that of an
        outcome's noise. The estimates follow a change in about ``drift ** -0.5``
        outcomes of the choice. Raising it forgets faster and makes estimates noisier. 0
        never forgets.

    alpha : float, default=10.0
        Ridge penalty of the weights of features, in outcomes.

    n_expected : int, default=None
        Number of requests in which ``budget * n_expected`` is spent. Then the next such
        horizon begins. With None, the mean is kept at all times: debts are paid back
        within about 100 requests, and savings are at most the budget of 10 requests.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices: the columns of y if it is a data frame, else the keys of
        `costs`, else ``"choice0"``, ``"choice1"``, ...

    costs_ : ndarray of shape (n_choices,)
        The price list.

    price_ : float
        Quality that one unit of cost is worth, at the last decision.

    min_budget_ : float
        Estimated cost of the cheapest choice, as a mean over recent requests.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`. Names only if X has them.

    See Also
    --------
    BudgetRouter : Learns once from a table or a log, with any estimator.
    BudgetStream : Hard cap on a total, shared by processes. It does not learn.
    skroute.metrics.replay : Replay of a log by any of them, with shifts.

    Notes
    -----
    There is no `random_state`: decisions depend only on the rows and on past outcomes.

    If `costs`, `budget`, `exploration`, `drift` or `n_expected` is set after `fit`, it
    acts at the next decision. A new `n_expected` is the length of the present horizon.
    If there was none, or if it would have ended by now, a new horizon begins. Learning
    starts from `alpha` and `prior`. After one of them is set, decisions are refused
    until the next `fit`.

    `predict`, `route` and the other views decide at the price of their budget by the
    present estimates. They do not explore, count or learn.

    All methods may be called from several threads. A pickle has the state of its
    moment. The outcome of a decision that was open then can be given once to the router
    and once to its copy.

    Without drift, the estimates do not depend on the order of the outcomes.

    The time of a request grows with the number of choices and the square of the number
    of features. Reduce embeddings to some tens of components.

    References
    ----------
    .. [1] L. Li, W. Chu, J. Langford, R. Schapire, "A Contextual-Bandit Approach to
       Personalized News Article Recommendation", WWW 2010.
    .. [2] A. Badanidiyuru, R. Kleinberg, A. Slivkins, "Bandits with Knapsacks",
       FOCS 2013.
    .. [3] A. Taberner-Miller, "ParetoBandit", Python package, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.routing import OnlineBudgetRouter
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> Q = np.column_stack([0.7 + 0.1 * X[:, 0], 0.8 - 0.1 * X[:, 0]])
    >>> router = OnlineBudgetRouter({"small": 1, "large": 5}, budget=3)
    >>> router = router.fit(X[:100], Q[:100])
    >>> for x, q in zip(X[100:], Q[100:]):
    ...     decision = router.decide(x)
    ...     # call the model named decision.name here
    ...     router.commit(decision, quality=q[router.choices_.index(decision.name)])
    >>> bool(router.status().mean_cost < 3.05)
    True
    """

    _parameter_constraints: dict = {
        "costs": [dict, "array-like", None],
        "budget": BUDGET,
        "prior": [HasMethods(["predict_quality"]), None],
        "exploration": [Interval(Real, 0, None, closed="left")],
        "drift": [Interval(Real, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "n_expected": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        costs=None,
        *,
        budget=None,
        prior=None,
        exploration=0.5,
        drift=0.001,
        alpha=10.0,
        n_expected=None,
    ):
        self.costs = costs
        self.budget = budget
        self.prior = prior
        self.exploration = exploration
        self.drift = drift
        self.alpha = alpha
        self.n_expected = n_expected

    def __copy__(self):
        """Return a copy with its own state, as a pickle would have it."""
        # The router never changes its prior, so that the copy shares the prior:
        # `deepcopy` does not copy objects in its memo, a dict by id.
        memo = {id(self.prior): self.prior}
        return deepcopy(self, memo)

    # Learning from a log --------------------------------------------------------------

    def fit(self, X, y=None, costs=None):
        """Learn from a log, whose rows have equal weights, and set all counts to 0.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of past requests, numbers. They are standardised.

        y : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            Quality of each choice on each row. NaN is unknown, for example the quality
            of choices that were not made. None is allowed with a `prior`. The columns
            of an array have the order of the prior's choices, or else of `costs`.

        costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            Cost of each choice on each row. NaN is unknown.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If values have the wrong shape or sign, or if the budget is below the
            cheapest plan.
        """
        return super().fit(X, y, costs=costs)

    def _fit(self, X, y, *, task, costs=None):
        """Create the state, and learn from the log (hook of `CostAwareMixin`)."""
        if y is None and self.prior is None:
            raise ValueError(
                "OnlineBudgetRouter requires y to be passed, but the target y is None."
            )
        with task.step("read the log"):
            names, tables = self._start(X, y, choice=None, costs=costs)
        with task.step("learn from the log"):
            self._learn(X, tables, rows_in_time=False)
        check_affordable(check_budget(self.budget), self._serving.mean_cheapest_cost())
        self.choices_ = names

    def partial_fit(self, X, y, choice=None, costs=None):
        """Learn from outcomes of requests that this router did not decide.

        The rows are in the order of time, the newest last.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of the requests. The first call also learns the scale from them.

        y : array-like of shape (n_samples, n_choices) or, with `choice`, (n_samples,)
            Quality. NaN is unknown.

        choice : array-like of shape (n_samples,), default=None
            The choice of each row, as a name or an index into ``choices_``.

        costs : array-like of the shape of `y`, default=None
            Paid costs. NaN is unknown. The estimates learn from them. They do not count
            as spending of this router, since :meth:`decide` did not decide these rows.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError
            If values have the wrong shape or sign, or for an unknown choice. Nothing is
            learned.
        """
        check_rows_match(X=X, y=y, costs=costs, choice=choice)
        if not self.__sklearn_is_fitted__():
            with _STARTING:
                # One thread creates the state. The others wait for the lock, skip this
                # block, and then learn below.
                if not self.__sklearn_is_fitted__():
                    self._validate_params()
                    names, tables = self._start(X, y, choice, costs)
                    self._learn(X, tables, rows_in_time=True)
                    self.choices_ = names
                    return self
        serving = self._current()
        n_rows = len(whole_rows(X, self, choice=choice))
        tables = _tables(n_rows, serving.names, y, choice, costs)
        self._learn(X, tables, rows_in_time=True)
        return self

    def _learn(self, X, tables, *, rows_in_time):
        """Learn from the outcomes of rows (`Outcomes`), see `Serving.learn_table`.

        `rows_in_time` is True if the rows are in the order of time.
        """
        rows, base = self._features(X)
        self._serving.learn_table(
            rows, base, tables.quality, tables.costs, rows_in_time=rows_in_time
        )

    def _start(self, X, y, choice, costs):
        """Create the state of the router, and return the log, not yet learned from.

        Parameters are those of `partial_fit`. It sets

        - ``_serving``, the state,
        - ``_prior``, the prior of this fit, and ``_prior_costs``, its price list,
        - ``_center`` and ``_scale``, with which features are standardised,
        - ``_named``, True if the user or the prior has named the choices.

        Returns
        -------
        names : list of str
            Names of the choices.

        tables : Outcomes
            The log. Only the scale of the features is learned so far.
        """
        rows = whole_rows(X, self, reset=True, choice=choice)
        n_rows, n_features = rows.shape
        prior = self.prior
        listed = self.costs
        if listed is None:
            if prior is None:
                raise ValueError(
                    "costs must be given, got None: what a call of each choice costs."
                )
            # The price list of the prior, by name.
            listed = dict(zip(prior.choices_, np.asarray(prior.costs_).tolist()))
        # With `choice`, y is one column for all choices, which has no names of choices.
        table = y if choice is None else None
        names, self._named = choice_names(table, listed)
        if prior is not None:
            if self._named and sorted(names) != sorted(prior.choices_):
                raise ValueError(
                    f"prior has the choices {prior.choices_!r}, costs or y {names!r}."
                )
            # The order of the prior. `listed` and data frames are read by name.
            names = list(prior.choices_)
            self._named = True
            self._prior_costs = np.asarray(prior.costs_, dtype=np.float64)
        listed = check_costs(listed, names)
        tables = _tables(n_rows, names, y, choice, costs)
        self._prior = prior
        # Mean and scale of each feature as if there were `_SCALE_ROWS` more rows. For
        # the mean their value is 0. For the scale their squared deviation is 1.
        self._center = rows.sum(axis=0) / (n_rows + _SCALE_ROWS)
        squared_sum = ((rows - self._center) ** 2).sum(axis=0)
        self._scale = np.sqrt((squared_sum + _SCALE_ROWS) / (n_rows + _SCALE_ROWS))
        n_scaled_features = n_features + 1  # with the constant one, see `_scaled`
        self._serving = Serving(names, listed, n_scaled_features, self)
        return names, tables

    def _features(self, X):
        """Return scaled rows (`_scaled`), and the estimates of the prior (`_base`)."""
        rows = whole_rows(X, self)
        return self._scaled(rows), self._base(X, len(rows))

    def _scaled(self, rows):
        """Return standardised rows, with a first column of ones."""
        scaled = np.ones((len(rows), len(self._center) + 1))
        np.divide(rows - self._center, self._scale, out=scaled[:, 1:])
        return scaled

    def _base(self, X, n_rows):
        """Return quality and cost by the prior, shape (n_rows, n_choices, 2).

        The costs are deviations from the price list, in the units of `unit_of`. Without
        a prior all entries are 0. With a prior, choices that were added after `fit` are
        left out, so that the result may have fewer columns than there are choices.
        """
        if self._prior is None:
            return np.zeros((n_rows, len(self._serving.names), 2))
        listed = self._prior_costs
        # The prior may have got other choices after `fit`. They come last.
        n_choices = len(listed)
        base = np.zeros((n_rows, n_choices, 2))
        base[..., QUALITY] = self._prior.predict_quality(X)[:, :n_choices]
        # Without an estimator of costs, the prior's costs are its price list. Their
        # deviations from this list, the entries at `COST`, are then 0.
        if getattr(self._prior, "cost_estimator_", None) is not None:
            estimated = self._prior._row_costs(X, None)[:, :n_choices]
            unit = unit_of(listed)
            base[..., COST] = estimated / unit - listed / unit
        return base

    # Decisions ------------------------------------------------------------------------

    def _state(self):
        """Return the state (`Serving`), at the parameters of the last decision."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        return self._serving

    def _current(self):
        """Return the state (`Serving`), after it has read the present parameters."""
        state = self._state()
        state.follow(self)
        return state

    @property
    def costs_(self):
        """The price list, ndarray of shape (n_choices,)."""
        return self._current().listed

    @property
    def price_(self):
        """Quality that one unit of cost is worth, at the last decision."""
        return self._state().pacer.price

    def _smallest_budget(self):
        """Return the smallest mean budget, see `min_budget_`."""
        return self._current().mean_cheapest_cost()

    def _plan(self, X, call):
        """Return the decisions on rows at the budget of a call (`Plan`)."""
        serving = self._current()
        rows, base = self._features(X)
        return serving.plan(rows, base, call.budget)

    def _single_choices(self):
        """Return the names of the choices that can answer all rows: all choices."""
        return list(self.choices_)

    def _plan_single(self, X, name, call):
        """Return the plan in which one choice answers every row."""
        serving = self._current()
        rows, base = self._features(X)
        only = self.choices_.index(name)
        # Infinity: no budget limits a single choice.
        return serving.plan(rows, base, budget=np.inf, only=only)

    def _answer(self, plan, response):
        """Return the choice of each row, as a name if the choices have names."""
        if not self._named:
            return plan.route
        return np.asarray(self._serving.names)[plan.route]

    def decide(self, x: Any) -> Decision:
        """Choose for one request. The expected cost is charged.

        If the budget has become too small for the cheapest choice, this choice is made.

        Parameters
        ----------
        x : {array-like, series, dataframe} of shape (n_features,) or (1, n_features)
            Features of the request.

        Returns
        -------
        Decision
            Argument of :meth:`commit`. It can be pickled. It is a named tuple of

            - ``id``: number of the request,
            - ``name``: name of the choice,
            - ``expected_quality`` and ``expected_cost``: estimates for this choice,
            - ``explored``: quality that is given up for exploration. It is the highest
              estimate of quality minus price times cost, minus that of this choice,
            - ``row``, ``base`` and ``key``: what :meth:`commit` needs to learn.

        Raises
        ------
        ValueError
            For features that are not finite numbers, for a wrong number of features, or
            if their names or the order of the names differ from those in `fit`.
        """
        serving = self._current()
        budget = check_budget(self.budget)
        row = check_numbers(x, "x")
        if row.ndim == 2 and len(row) == 1:
            row = row[0]
        if row.shape != self._center.shape:
            raise ValueError(
                f"x must have the {len(self._center)} features of one request, got "
                f"shape {row.shape}."
            )
        self._check_feature_names(x)
        row = row[np.newaxis]
        # The prior reads a data frame by the names of its columns: it gets `x` itself.
        row_for_prior = row if column_keys(x) is None else x
        base = self._base(row_for_prior, n_rows=1)
        return serving.decide(self._scaled(row)[0], base[0], budget)

    def _check_feature_names(self, x):
        """Raise an error unless a request has the names of `fit` in their order.

        A request without names is not refused.
        """
        features = by_label(x)
        if isinstance(features, dict):
            names = list(features)
        else:
            names = column_keys(x) or []
        # If `fit` saw no names, `names` itself is the default: any names are right.
        names_of_fit = list(getattr(self, "feature_names_in_", names))
        are_texts = all(isinstance(name, str) for name in names)
        if names and are_texts and names != names_of_fit:
            raise ValueError(
                f"x must have the features {names_of_fit!r} in this order, got "
                f"{names!r}."
            )

    def commit(
        self,
        decision: Decision,
        quality: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Give the outcome of a decision. It may be late, in any order, or incomplete.

        Parameters
        ----------
        decision : Decision
            From :meth:`decide`.

        quality : float, default=None
            Quality of the answer. None or NaN is unknown.

        cost : float, default=None
            Cost of the call. With None or NaN, the expected cost stays charged.

        Raises
        ------
        ValueError
            If the decision is not open, or if quality or cost is not a number.
        """
        quality = float(check_numbers(quality, "quality", shape=(), allow_nan=True))
        cost = float(check_numbers(cost, "cost", shape=(), low=0.0, allow_nan=True))
        self._state().settle(decision, quality, cost)

    def refund(self, decision: Decision) -> None:
        """Cancel a decision whose call failed and cost nothing. Nothing is learned.

        The request is not counted. Another try is a new decision. The mean cost is that
        of requests that were not refunded.

        Parameters
        ----------
        decision : Decision
            From :meth:`decide`.

        Raises
        ------
        ValueError
            If the decision is not open.
        """
        self._state().settle(decision, refund=True)

    def status(self) -> OnlineStatus:
        """Return counts, mean cost and dual price at one moment.

        Returns
        -------
        OnlineStatus
            Named tuple of

            - ``n_requests``: number of requests that were decided and not refunded,
            - ``n_refunded``: number of refunded requests,
            - ``n_open``: number of decisions without an outcome,
            - ``mean_cost``: mean cost of a request. An unknown cost counts as expected,
            - ``price``: quality that one unit of cost is worth,
            - ``shares``: dict of the share of requests of each choice,
            - ``n_told``: dict of the number of outcomes of quality of each choice,
            - ``explored``: mean quality that is given up for exploration.
        """
        return self._state().status()

    # Choices --------------------------------------------------------------------------

    def exclude(self, names: Any) -> None:
        """Exclude choices, for example while a model is down.

        The dual price is computed again, without these choices.

        Parameters
        ----------
        names : sequence of str
            Names of choices, in addition to those that are already excluded.

        Raises
        ------
        ValueError
            For an unknown name, or if no choice would be left. Nothing is changed.
        """
        serving = self._state()
        serving.restrict(without=check_names(names, serving.names))

    def include(self, names: Any = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices. None is all.

        Raises
        ------
        ValueError
            For an unknown name.
        """
        serving = self._state()
        included = serving.names
        if names is not None:
            included = check_names(names, included)
        serving.restrict(again=included)

    def add_choice(
        self,
        name: str,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        cost: float,
        n_trials: int = 0,
    ) -> None:
        """Add a new choice. Its first estimate is the mean of the other choices.

        Parameters
        ----------
        name : str
            The new name, which becomes the last of ``choices_``. `fit` and `clone`
            forget it.

        X : {array-like, dataframe} of shape (n_samples, n_features), default=None
            Requests with a known quality of the new choice, for example 30 scored ones.

        y : array-like of shape (n_samples,), default=None
            This quality.

        cost : float
            Listed cost. ``set_params(costs={name: ...})`` changes it later.

        n_trials : int, default=0
            Number of next requests that get the new choice in any case. With 0 it is
            tried only if it may pay.

        Raises
        ------
        ValueError
            For a name that exists, or a cost that is not a finite number of at least 0.
        """
        serving = self._current()
        cost = check_new_choice(name, cost, serving.names)
        if not isinstance(n_trials, Integral) or n_trials < 0:
            raise ValueError(
                f"n_trials must be a whole number of at least 0, got {n_trials!r}."
            )
        if (X is None) != (y is None):
            raise ValueError(
                "X and y must be given together: rows, and its quality on them."
            )
        # Without X, no quality is known.
        rows: Any = ()
        quality: Any = ()
        if X is not None:
            check_rows_match(X=X, y=y)
            rows = self._scaled(whole_rows(X, self))
            quality = check_numbers(y, "y", shape=(len(rows),))
        serving.add(name, cost, n_trials, rows, quality)
        with serving.lock:
            # Under the lock, so that no choice of another thread is lost.
            self.choices_ = list(serving.names)

    # scikit-learn ---------------------------------------------------------------------

    def score(self, X, y, sample_weight=None, budget=None):
        """Return the mean logged quality of the choices that `route` makes.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of requests.

        y : array-like of shape (n_samples, n_choices)
            Quality of each choice on each row.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per request for this call.

        Returns
        -------
        float
            The score. Higher is better.
        """
        return realised_quality(self, X, y, sample_weight, self.make_call(budget))

    def __sklearn_tags__(self):
        """Return the tags: a `prior` makes y optional."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.prior is None
        tags.target_tags.multi_output = True
        return tags


class Outcomes(NamedTuple):
    """Outcomes of requests as tables.

    Attributes
    ----------
    quality, costs : ndarray of shape (n_rows, n_choices)
        NaN is unknown.
    """

    quality: np.ndarray
    costs: np.ndarray


def _tables(n_rows, names, y, choice, costs):
    """Return the quality and costs of a log as tables (`Outcomes`).

    `names` are those of the choices. `y`, `choice` and `costs` are those of
    `OnlineBudgetRouter.partial_fit`, for `n_rows` rows.
    """
    # Position of the choice of each row. None: `y` and `costs` are tables already.
    position = None
    if choice is not None:
        # `names_of_log` are `names`, and then the names that only the log has.
        position, names_of_log = read_choice(choice, names, n_rows)
        if len(names_of_log) > len(names):
            raise ValueError(
                f"choice has {names_of_log[len(names)]!r}, which is not among "
                f"{names!r}."
            )
    shape = (n_rows, len(names))
    return Outcomes(
        quality=_table(y, "y", names, shape=shape, position=position, low=-np.inf),
        costs=_table(costs, "costs", names, shape=shape, position=position, low=0.0),
    )


def _table(values, argument, names, *, shape, position, low):
    """Return values as a table (n_rows, n_choices) with NaN for unknown ones.

    Parameters
    ----------
    values : array-like or None
        A table. If `position` is not None, one value per row. None: all are unknown.

    argument : str
        Name of the argument, for messages.

    names : list of str
        Names of the choices.

    shape : tuple of (int, int)
        Numbers of rows and choices.

    position : ndarray of shape (n_rows,) or None
        Position of the choice of each row. None if `values` is a table.

    low : float
        The smallest allowed value.
    """
    table = np.full(shape, np.nan)
    if values is None:
        return table
    if position is None:
        matrix = check_matrix(values, argument, names, allow_nan=True)
        return check_numbers(matrix, argument, shape=shape, low=low, allow_nan=True)
    n_rows = shape[0]
    values = check_numbers(values, argument, shape=(n_rows,), low=low, allow_nan=True)
    table[np.arange(n_rows), position] = values
    return table
