"""OnlineBudgetRouter: learn from the one outcome that each request shows, within a budget."""

import threading
from copy import deepcopy
from typing import Any

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

# Held while a first `partial_fit` starts to learn. One lock for all routers: an estimator has
# none before `fit`, and it is seldom taken.
_STARTING = threading.Lock()

# Rows of a standard normal that the scale of the features is shrunk towards.
_SCALE_ROWS = 10


class OnlineBudgetRouter(CostAwareMixin, BaseEstimator):
    r"""Choose a model for each request within a budget, and learn from the outcomes.

    For a service whose requests come one by one and show one outcome each: how good the
    choice made was, and what it cost. The outcome may come late, in any order, in part or
    never. Qualities and prices may drift, models fail, arrive and go, and all along a request
    is to cost no more than `budget` on average.

    1. :meth:`decide` takes the choice of the highest

       .. math:: \hat q_i(x) + w\,s_i(x) - p\,\hat c_i(x),

       with :math:`s_i` the standard error of the estimate, :math:`w` = `exploration` and
       :math:`p` the dual price of the budget;
    2. the caller makes the call;
    3. :meth:`commit` tells what it was worth and what it cost, or :meth:`refund` that it failed.

    Quality, and cost relative to the price list, are ridge regressions per choice [1]_,
    conditioned on each outcome in closed form. Their levels drift by a random walk, so that
    old outcomes lose weight, and a choice that was not made for long becomes uncertain again
    and is tried once more. Exploration pays for itself: it is traded at the budget's price, so
    that what could not pay even at its best is never tried, and it is within the budget.

    Parameters
    ----------
    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Price list: what a call of each choice costs on average. True costs of calls, where
        they are told, are learned relative to it, so the list can be changed after fit, without
        a new fit. None takes that of `prior`.

    budget : float, default=None
        Mean cost per request, in the unit of `costs`. None is unlimited.

    prior : fitted BudgetRouter, default=None
        Warm start: its estimates are where learning starts from, and what is learned are the
        deviations. Its own `predict` is then part of every decision's time.

    exploration : float, default=0.5
        w, the standard errors that a choice is credited with. Raising it finds changes and
        newcomers sooner and pays more for it.

    drift : float, default=0.001
        Variance that the level of a choice gains per request, relative to that of an outcome's
        noise. A change is followed over about ``drift ** -0.5`` outcomes of the choice. Raising it
        forgets faster and makes estimates noisier; 0 never forgets.

    alpha : float, default=10.0
        Ridge penalty of the weights of features, in outcomes.

    n_expected : int, default=None
        Requests over which ``budget * n_expected`` is to be spent; then a next such horizon
        begins. None keeps the ceiling all along: debts are paid back within about 100 requests,
        and of what was saved no more than 10 requests' budget is spent later.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices: the columns of y where it is a data frame, else the keys of
        `costs`, else ``"choice0"``, ``"choice1"``, ...

    costs_ : ndarray of shape (n_choices,)
        The price list.

    price_ : float
        Quality that one unit of cost is worth, at the last decision.

    min_budget_ : float
        Mean of the cheapest choices' estimated cost over recent requests.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    BudgetRouter : Learns once from a table or a log; its estimates may be of any kind.
    BudgetStream : A hard cap on a total, shared by processes; learns nothing.
    skroute.metrics.replay : What any of them would have done on a log, with shifts.

    Notes
    -----
    There is no `random_state`: what it explores depends on what it was told, and on nothing else.

    `costs`, `budget`, `exploration`, `drift` and `n_expected` act from the next decision on where
    they are set after `fit`. A new `n_expected` is the length of the horizon under way, or that of
    a new one where the old one was not limited or would have ended by now. `alpha` and `prior` are
    where learning starts from: after they are set, decisions are refused until the next `fit`.

    `predict`, `route` and the other views decide at the price of their budget by what is
    believed now: without exploration, and nothing is counted or learned.

    All methods may be called from several threads. A pickle goes on where the original stood;
    decisions that were open then can be told to each of the two once.

    Without drift, what is believed after a set of outcomes does not depend on the order in
    which they are told.

    Time per request grows with the number of choices and the square of the number of features:
    reduce embeddings to some tens of components.

    References
    ----------
    .. [1] L. Li, W. Chu, J. Langford, R. Schapire, "A Contextual-Bandit Approach to
       Personalized News Article Recommendation", WWW 2010.
    .. [2] A. Badanidiyuru, R. Kleinberg, A. Slivkins, "Bandits with Knapsacks", FOCS 2013.
    .. [3] A. Taberner-Miller, "ParetoBandit", Python package, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.routing import OnlineBudgetRouter
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> Q = np.column_stack([0.7 + 0.1 * X[:, 0], 0.8 - 0.1 * X[:, 0]])
    >>> router = OnlineBudgetRouter({"small": 1, "large": 5}, budget=3).fit(X[:100], Q[:100])
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
        # Its own books and beliefs, as a pickle has them; nothing changes the prior.
        return deepcopy(self, {id(self.prior): self.prior})

    # Learning from a log ----------------------------------------------------------------------

    def fit(self, X, y=None, costs=None):
        """Learn from the rows of a log, all with the same weight, and set all counts to 0.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of past requests, numbers; they are brought to unit scale.

        y : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            Quality of each choice on each row, NaN where it is not known, such as of the
            choices that were not made. None, with a `prior` alone: its estimates are all. An
            array has the order of the prior's choices, or else of `costs`.

        costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            What the choices cost on each row, NaN where it is not known.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For values of the wrong shape or sign, or a budget below the cheapest plan.
        """
        return super().fit(X, y, costs=costs)

    def _fit(self, X, y, *, task, costs=None):
        if y is None and self.prior is None:
            raise ValueError(
                "OnlineBudgetRouter requires y to be passed, but the target y is None."
            )
        with task.step("read the log"):
            names, tables = self._start(X, y, None, costs)
        with task.step("learn from the log"):
            self._serving.learn_table(*self._features(X), *tables, apart=False)
        check_affordable(check_budget(self.budget), self._serving.least())
        self.choices_ = names

    def partial_fit(self, X, y, choice=None, costs=None):
        """Learn from outcomes that this router did not decide, in order of time, newest last.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of the requests. In the first call of all, they also give the scale.

        y : array-like of shape (n_samples, n_choices) or, with `choice`, (n_samples,)
            Quality; NaN where it is not known.

        choice : array-like of shape (n_samples,), default=None
            The choice made for each row, by name or by index into ``choices_``.

        costs : array-like of the shape of `y`, default=None
            What was paid, NaN where it is not known. It is learned from, and is not in the books
            of the budget: what :meth:`decide` did not decide was paid elsewhere.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For values of the wrong shape or sign, or a choice that is none; nothing is learned.
        """
        check_rows_match(X=X, y=y, costs=costs, choice=choice)
        if not self.__sklearn_is_fitted__():
            with _STARTING:
                # Of several threads the first one starts, and the others learn as it has ended.
                if not self.__sklearn_is_fitted__():
                    self._validate_params()
                    names, tables = self._start(X, y, choice, costs)
                    self._serving.learn_table(*self._features(X), *tables, apart=True)
                    self.choices_ = names
                    return self
        serving = self._current()
        n_rows = len(whole_rows(X, self, choice=choice))
        tables = _tables(n_rows, serving.names, y, choice, costs)
        serving.learn_table(*self._features(X), *tables, apart=True)
        return self

    def _start(self, X, y, choice, costs):
        """Names of the choices and the log as tables; nothing is learned but the scale."""
        rows = whole_rows(X, self, reset=True, choice=choice)
        n_rows, n_features = rows.shape
        prior, listed = self.prior, self.costs
        if listed is None:
            if prior is None:
                raise ValueError(
                    "costs must be given, got None: what a call of each choice costs."
                )
            listed = dict(zip(prior.choices_, np.asarray(prior.costs_).tolist()))
        names, self._named = choice_names(y if choice is None else None, listed)
        if prior is not None:
            if self._named and sorted(names) != sorted(prior.choices_):
                raise ValueError(
                    f"prior has the choices {prior.choices_!r}, costs or y {names!r}."
                )
            names, self._named = list(prior.choices_), True
            self._prior_costs = np.asarray(prior.costs_, dtype=np.float64)
        listed = check_costs(listed, names)
        tables = _tables(n_rows, names, y, choice, costs)
        self._prior = prior
        self._center = rows.sum(axis=0) / (n_rows + _SCALE_ROWS)
        squared = ((rows - self._center) ** 2).sum(axis=0)
        self._scale = np.sqrt((squared + _SCALE_ROWS) / (n_rows + _SCALE_ROWS))
        self._serving = Serving(names, listed, n_features + 1, self)
        return names, tables

    def _features(self, X):
        """Rows as they are learned from, and what the prior says of each choice."""
        rows = whole_rows(X, self)
        return self._scaled(rows), self._base(X, len(rows))

    def _scaled(self, rows):
        """Rows at unit scale with a 1 before them."""
        scaled = np.ones((len(rows), len(self._center) + 1))
        np.divide(rows - self._center, self._scale, out=scaled[:, 1:])
        return scaled

    def _base(self, X, n_rows):
        """What the prior says of quality and of cost, as (n_rows, n_choices, 2); 0 without one."""
        if self._prior is None:
            return np.zeros((n_rows, len(self._serving.names), 2))
        costs = self._prior_costs
        base = np.zeros((n_rows, len(costs), 2))
        base[..., QUALITY] = self._prior.predict_quality(X)[:, : len(costs)]
        if getattr(self._prior, "cost_estimator_", None) is not None:
            estimated = self._prior._row_costs(X, None)[:, : len(costs)]
            base[..., COST] = estimated / unit_of(costs) - (costs > 0)
        return base

    # Decisions ------------------------------------------------------------------------------

    def _state(self):
        """What is believed, spent and waited for."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        return self._serving

    def _current(self):
        """Return the state, which decides by the parameters of now."""
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
        return self._current().least()

    def _plan(self, X, call):
        return self._current().plan(*self._features(X), call.budget)

    def _single_choices(self):
        return list(self.choices_)

    def _plan_single(self, X, name, call):
        """Return the plan in which one choice answers every row, at its estimated costs."""
        only = self.choices_.index(name)
        return self._current().plan(*self._features(X), np.inf, only)

    def _answer(self, plan, response):
        return (
            np.asarray(self._serving.names)[plan.route] if self._named else plan.route
        )

    def decide(self, x: Any) -> Decision:
        """Choose for one request; the expected cost is charged.

        Where a budget has become too small for the cheapest choice, that one is taken.

        Parameters
        ----------
        x : {array-like, series, dataframe} of shape (n_features,) or (1, n_features)
            Features of the request.

        Returns
        -------
        Decision
            What :meth:`commit` needs to learn; it may be pickled and told later. A named tuple of
            ``id``, the number of the request; ``name``, the choice; ``expected_quality`` and
            ``expected_cost``, what it is believed to be worth and to cost; ``explored``, the
            quality given up so that more is known: the best of estimated quality less price times
            cost, less that of the choice made; and what is learned from: ``row``, ``base``,
            ``key``.

        Raises
        ------
        ValueError
            For features that are not finite numbers of the right count, or that are named in
            another order than in `fit`.
        """
        serving, budget = self._current(), check_budget(self.budget)
        row = check_numbers(x, "x")
        row = row[0] if row.ndim == 2 and len(row) == 1 else row
        if row.shape != self._center.shape:
            raise ValueError(
                f"x must have the {len(self._center)} features of one request, got shape "
                f"{row.shape}."
            )
        named = by_label(x)
        labels = list(named) if isinstance(named, dict) else column_keys(x) or []
        known = list(getattr(self, "feature_names_in_", labels))
        if (
            labels
            and labels != known
            and all(isinstance(label, str) for label in labels)
        ):
            raise ValueError(
                f"x must have the features {known!r} in this order, got {labels!r}."
            )
        row = row[np.newaxis]
        base = self._base(row if column_keys(x) is None else x, 1)
        return serving.decide(self._scaled(row)[0], base[0], budget)

    def commit(
        self,
        decision: Decision,
        quality: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Give the outcome of a decision: it may be late, in any order, or only a part.

        Parameters
        ----------
        decision : Decision

        quality : float, default=None
            How good it was. None or NaN is not known.

        cost : float, default=None
            What the call cost. None or NaN leaves the expected cost charged.

        Raises
        ------
        ValueError
            For a decision that is not open, or numbers that are none.
        """
        quality = float(check_numbers(quality, "quality", shape=(), allow_nan=True))
        cost = float(check_numbers(cost, "cost", shape=(), low=0.0, allow_nan=True))
        self._state().settle(decision, quality, cost)

    def refund(self, decision: Decision) -> None:
        """Take back a decision whose call failed and cost nothing; nothing is learned.

        It is no request then: trying again is another decision, and the ceiling is the mean cost
        of requests that were not refunded.

        Parameters
        ----------
        decision : Decision

        Raises
        ------
        ValueError
            For a decision that is not open.
        """
        self._state().settle(decision, refund=True)

    def status(self) -> OnlineStatus:
        """Counts, mean cost and dual price, read at one moment.

        Returns
        -------
        OnlineStatus
            Named tuple of ``n_requests``, decided and not refunded; ``n_refunded``; ``n_open``,
            those whose outcome has not come; ``mean_cost`` of a request, expected costs standing
            in for those not told; ``price``, the quality that one unit of cost is worth;
            ``shares``, a dict of the share of the requests that each choice got; ``n_told``, a
            dict of the outcomes of quality that each has learned from; ``explored``, the mean
            quality given up for exploration.
        """
        return self._state().status()

    # Choices --------------------------------------------------------------------------------

    def exclude(self, names: Any) -> None:
        """Exclude choices, for example while a model is down; the dual price is computed again.

        Parameters
        ----------
        names : sequence of str
            Names of choices, beside those that are excluded already.

        Raises
        ------
        ValueError
            For a name that is none, or where no choice would be left. Nothing is changed.
        """
        serving = self._state()
        serving.restrict(without=check_names(names, serving.names))

    def include(self, names: Any = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices; None means all.

        Raises
        ------
        ValueError
            For a name that is none.
        """
        serving = self._state()
        known = serving.names
        serving.restrict(again=known if names is None else check_names(names, known))

    def add_choice(
        self,
        name: str,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        cost: float,
        n_trials: int = 0,
    ) -> None:
        """Add a new model; its first estimate is the average of the others, and is uncertain.

        Parameters
        ----------
        name : str
            A new name, the last of ``choices_`` from here on. `fit` forgets it, and so does a
            clone.

        X : {array-like, dataframe} of shape (n_samples, n_features), default=None
            Requests for which its quality is known, such as 30 scored ones.

        y : array-like of shape (n_samples,), default=None
            That quality.

        cost : float
            Its price, which ``set_params(costs={name: ...})`` changes later.

        n_trials : int, default=0
            Requests that are sent to it first, whatever is believed of it. 0 tries it as far as
            that may pay.

        Raises
        ------
        ValueError
            For a name that there is, or a cost that is none.
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
        known: tuple = ()
        if X is not None:
            check_rows_match(X=X, y=y)
            rows = self._scaled(whole_rows(X, self))
            known = rows, check_numbers(y, "y", shape=(len(rows),))
        serving.add(name, cost, n_trials, *known)
        with serving.lock:
            # Read and written at one moment: a later choice of another thread stays.
            self.choices_ = list(serving.names)

    # scikit-learn ---------------------------------------------------------------------------

    def score(self, X, y, sample_weight=None, budget=None):
        """Realised mean quality of the choices that `route` makes.

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
        """
        return realised_quality(self, X, y, sample_weight, self.make_call(budget))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.prior is None
        tags.target_tags.multi_output = True
        return tags


def _tables(n_rows, names, y, choice, costs):
    """Quality and costs as tables (n_rows, n_choices), NaN where they are not known."""
    if choice is not None:
        position, found = read_choice(choice, names, n_rows)
        if len(found) > len(names):
            raise ValueError(
                f"choice has {found[len(names)]!r}, which is not among {names!r}."
            )
    tables = []
    for values, name, low in ((y, "y", -np.inf), (costs, "costs", 0.0)):
        table = np.full((n_rows, len(names)), np.nan)
        if values is not None and choice is not None:
            values = check_numbers(
                values, name, shape=(n_rows,), low=low, allow_nan=True
            )
            table[np.arange(n_rows), position] = values
        elif values is not None:
            values = check_matrix(values, name, names, allow_nan=True)
            table = check_numbers(
                values, name, shape=table.shape, low=low, allow_nan=True
            )
        tables.append(table)
    return tables
