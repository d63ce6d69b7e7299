"""OnlineBudgetRouter: learn from the one outcome that each request shows, within a budget."""

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.base import CostAwareMixin, Plan, Routed, check_affordable, check_budget, check_costs
from skroute.routing._online_beliefs import LEVEL_VARIANCE, PRIOR_VARIANCE, new_beliefs
from skroute.routing._online_inputs import (
    ask_prior,
    check_labels,
    check_outcomes,
    checked,
    checked_prices,
    choices_of,
    labels_of,
    number,
    numbers,
    tables,
)
from skroute.routing._online_pacer import new_pacer, note_row
from skroute.routing._online_serving import Decision, OnlineStatus, Serving
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    check_sample_weight,
    num_samples,
)
from skroute.utils._named import check_rows_match
from skroute.utils._tensors import on_host
from skroute.utils._validation import whole_rows

# Rows of a standard normal that the scale of the features is shrunk towards.
_SCALE_ROWS = 10


class OnlineBudgetRouter(CostAwareMixin, BaseEstimator):
    r"""Choose per request what is worth its cost, and learn from what comes back.

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
        they are told, are learned relative to it, so that a new list acts at once on what was
        learned. None takes that of `prior`.

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

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    BudgetRouter : Learns once from a table or a log; its estimates may be of any kind.
    BudgetStream : A hard cap on a total, shared by processes; learns nothing.
    skroute.metrics.replay : What any of them would have done on a log, with shifts.

    Notes
    -----
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

    # Each choice is one call, of which a log may say what it cost.
    _acts_at_once = ("budget", "costs")

    _parameter_constraints: dict = {
        "costs": [dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
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
        """Its own books and beliefs, as a pickle has them."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        if "_serving" in vars(self):
            other._serving = copy(self._serving)
        return other

    def fit(self, X, y=None, costs=None, **params):
        """Start from a log: learn from its rows, all of the same weight, and set the books to 0.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Features of past requests, numbers; they are brought to unit scale.

        y : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            Quality of each choice on each row, NaN where it is not known, such as of the
            choices that were not made. None, with a `prior` alone: its estimates are all.

        costs : array-like of shape (n_samples, n_choices), default=None
            What the choices cost on each row, NaN where it is not known.

        **params : dict
            None is taken.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If there are any.
        ValueError
            For values of the wrong shape or sign, or a budget below the cheapest plan.
        """
        return super().fit(X, y, costs=costs, **params)

    def _fit(self, X, y, *, task, costs=None, **params):
        self._route_metadata(params)
        if y is None and self.prior is None:
            raise ValueError(
                "OnlineBudgetRouter requires y to be passed, but the target y is None."
            )
        with task.step("read the log"):
            names, X, y, costs = self._start(X, y, costs)
        with task.step("learn from the log"):
            self._learn_rows(X, y, costs)
        check_affordable(check_budget(self.budget), self._serving.least())
        self.choices_ = names

    def _start(self, X, y, costs):
        """Nothing learned: checked arrays, names, prices, and the scale of the features."""
        check_rows_match(X=X, y=y, costs=costs)
        named = [str(column) for column in getattr(y, "columns", ())]
        rows = whole_rows(X, self, reset=True)
        prices, names, self._named = choices_of(self.costs, self.prior, named)
        y, costs = check_outcomes(len(rows), names, y, costs)
        n = len(rows)
        self._center = rows.sum(axis=0) / (n + _SCALE_ROWS)
        squared = ((rows - self._center) ** 2).sum(axis=0)
        self._scale = np.sqrt((squared + _SCALE_ROWS) / (n + _SCALE_ROWS))
        level = LEVEL_VARIANCE if self.prior is None else PRIOR_VARIANCE
        n_weights = rows.shape[1] + 1
        self._serving = Serving(
            names,
            checked_prices(prices, names),
            new_beliefs(len(names), n_weights, self.alpha, self.drift, level=level),
            new_pacer(len(names), n_weights),
            self.exploration,
        )
        if self.prior is not None:
            self._serving.tries[:] = 0
        return names, X, y, costs

    def _learn_rows(self, X, y, costs, *, apart=False):
        """Condition on the known cells of a table; `apart`, each row is a request of its own."""
        serving = self._serving
        rows, base = self._features(X)
        for i, (x, prior) in enumerate(zip(rows, base)):
            for choice in np.flatnonzero(~(np.isnan(y[i]) & np.isnan(costs[i]))):
                quality = None if np.isnan(y[i, choice]) else y[i, choice]
                cost = None if np.isnan(costs[i, choice]) else costs[i, choice]
                made = serving.pacer.n_decided
                serving.learn(choice, x, prior[choice], quality, cost, made=made)
                serving.tries[choice] = 0
            note_row(serving.pacer, x, prior, 0.0)
            if apart:
                serving.beliefs.seen -= 1
        serving.pacer.stale = True

    def partial_fit(self, X, y, choice=None, costs=None):
        """Learn from outcomes that were not decided here, in their order, the newest last.

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
        """
        first = not self.__sklearn_is_fitted__()
        if first:
            self._validate_params()
        check_rows_match(X=X, y=y, costs=costs, choice=choice)
        if first:
            names = choices_of(self.costs, self.prior)[1]
            if choice is not None:
                y, costs = tables(y, choice, costs, names)
            names, X, y, costs = self._start(X, y, costs)
        else:
            names = self._serving.names
            n_rows = len(whole_rows(X, self))
            if choice is not None:
                y, costs = tables(y, choice, costs, names)
            y, costs = check_outcomes(n_rows, names, y, costs)
        with self._serving.lock:
            self._learn_rows(X, y, costs, apart=True)
        self.choices_ = names
        return self

    def _features(self, X):
        """Rows with a 1 before them, at unit scale, and what the prior says of each choice."""
        rows = np.asarray(
            validate_data(self, on_host(X), reset=False, skip_check_array=True), np.float64
        )
        rows = (rows.reshape(-1, len(self._center)) - self._center) / self._scale
        rows = np.column_stack([np.ones(len(rows)), rows])
        serving = self._serving
        base = np.zeros((len(rows), len(serving.names), 2))
        if self.prior is not None:
            ask_prior(self.prior, serving.names, X, base)
        return rows, base

    def _check_X(self, X):
        whole_rows(X, self)
        return X

    def _current(self):
        """The state, at the price list of now."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        serving = self._serving
        if self.costs is None and self.prior is None:
            raise ValueError("costs must stay a price list, got None.")
        # Without costs the price list is that of `prior`.
        prices = serving.prices if self.costs is None else checked_prices(self.costs, serving.names)
        if not np.array_equal(prices, serving.prices):
            serving.reprice(prices)
        return serving

    @property
    def costs_(self):
        """The price list, ndarray of shape (n_choices,)."""
        return self._current().prices

    @property
    def price_(self):
        """Quality that one unit of cost is worth, at the last decision."""
        return self._current().pacer.price

    def _least(self):
        return self._current().least()

    def _plan(self, X, budget):
        serving = self._current()
        check_affordable(budget, serving.least())
        return Plan(**serving.plan(*self._features(X), budget))

    def _alone(self, X, name, response, **call):
        """Every row answered by one choice, without a decision."""
        n, at = num_samples(X), self.choices_.index(name)
        plan = Plan(np.full(n, at), np.full(n, self.costs_[at]))
        y_pred = None if response is None else self._answer(X, plan, response)
        return Routed(y_pred, plan.route, plan.cost)

    def _answer(self, X, plan, response):
        return np.asarray(self.choices_)[plan.route] if self._named else plan.route

    def decide(self, x: Any) -> Decision:
        """Choose for one request; the expected cost is charged.

        Where a budget has become too small for the cheapest choice, that one is taken.

        Parameters
        ----------
        x : array-like of shape (n_features,)
            Features of the request.

        Returns
        -------
        Decision
            What :meth:`commit` needs to learn; it may be pickled and told later.

        Raises
        ------
        ValueError
            For features that are not finite numbers of the right count, or that are named in
            another order than in `fit`; for a parameter that was changed and needs `fit`.
        """
        serving = self._current()
        if (names := labels_of(x)) is not None:
            check_labels(names, getattr(self, "feature_names_in_", None))
        row = numbers(x)
        if row.shape != self._center.shape or not np.isfinite(row.sum()):
            raise ValueError(
                f"x must have {len(self._center)} finite features of one request, got an array "
                f"of shape {np.shape(x)}."
            )
        budget = check_budget(self.budget)
        full = np.empty(len(row) + 1)
        full[0] = 1.0
        np.divide(row - self._center, self._scale, out=full[1:])
        with serving.lock:
            base = np.zeros((len(serving.names), 2))
            if self.prior is not None:
                ask_prior(self.prior, serving.names, row[None], base[None])
            return serving.decide(full, base, budget, self.n_expected)

    def commit(
        self, decision: Decision, quality: float | None = None, cost: float | None = None
    ) -> None:
        """Tell the outcome of a decision: late, in any order, in part.

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
        quality, cost = number(quality, "quality"), number(cost, "cost")
        if cost is not None and cost < 0:
            raise ValueError(f"cost must not be negative, got {cost!r}.")
        self._current().settle(checked(decision), quality, cost)

    def refund(self, decision: Decision) -> None:
        """Take back a decision whose call failed and cost nothing; nothing is learned.

        Parameters
        ----------
        decision : Decision
        """
        self._current().settle(checked(decision), None, None, refund=True)

    def exclude(self, names: Any) -> None:
        """Do without choices, for example while a model is down; the rest is priced anew.

        Parameters
        ----------
        names : sequence of str
            Names of choices, beside those that are excluded already.

        Raises
        ------
        ValueError
            For a name that is none, or where no choice would be left. Nothing is changed.
        """
        serving = self._current()
        with serving.lock:
            usable = serving.usable & ~self._mask(names)
            if not usable.any():
                raise ValueError(f"names={names!r} leaves no choice of {serving.names!r}.")
            serving.restrict(usable)

    def include(self, names: Any = None) -> None:
        """Use excluded choices again.

        Parameters
        ----------
        names : sequence of str, default=None
            Names of choices; None means all.
        """
        serving = self._current()
        with serving.lock:
            back = np.ones(len(serving.names), bool) if names is None else self._mask(names)
            serving.restrict(serving.usable | back)

    def _mask(self, names):
        if isinstance(names, (str, bytes)) or not np.iterable(names):
            raise ValueError(f"names must be a list of names of choices, got {names!r}.")
        known = self._serving.names
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"There is no choice {unknown[0]!r} among {known!r}.")
        return np.isin(known, list(names))

    def add_choice(
        self, name: str, X: Any = None, y: Any = None, *, cost: float, n_trials: int = 0
    ) -> None:
        """A new model: it is expected to be as the others are on average, and is uncertain.

        Parameters
        ----------
        name : str

        X : array-like of shape (n_samples, n_features), default=None
            Requests for which its quality is known, such as 30 scored ones.

        y : array-like of shape (n_samples,), default=None
            That quality.

        cost : float
            Its price in the list, which `costs` then holds.

        n_trials : int, default=0
            Requests that are sent to it first, whatever is believed of it. 0 tries it as far as
            that may pay.

        Raises
        ------
        ValueError
            For a name that there is, or a cost that is none.
        """
        serving = self._current()
        if not isinstance(name, str) or name in serving.names:
            raise ValueError(f"name must be a new one, beside {serving.names!r}, got {name!r}.")
        if not isinstance(n_trials, (int, np.integer)) or n_trials < 0:
            raise ValueError(f"n_trials must be a whole number of at least 0, got {n_trials!r}.")
        (cost,) = check_costs({name: cost}, [name], name="cost").tolist()
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together: rows, and its quality on them.")
        rows = None
        if X is not None:
            rows = whole_rows(X, self, y=y)
            y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
            check_consistent_length(rows, y)
        with serving.lock:
            prices = dict(zip(serving.names, serving.prices.tolist()))
            serving.add(name, cost, n_trials)
            self._list_prices(prices | {name: cost})
            if rows is not None:
                choice = len(serving.names) - 1
                for x, base, quality in zip(*self._features(X), y):
                    made = serving.pacer.n_decided
                    serving.learn(choice, x, base[choice], quality, None, made=made)

    def drop_choice(self, name: str) -> None:
        """Forget a model that is gone for good; its open decisions are then only booked.

        Parameters
        ----------
        name : str

        Raises
        ------
        ValueError
            For a name that is none, or the only one that is not excluded.
        """
        serving = self._current()
        with serving.lock:
            mask = self._mask([name])
            if not (serving.usable & ~mask).any():
                raise ValueError(f"{name!r} cannot be dropped: no choice would be left.")
            serving.drop(name)
            self._list_prices(dict(zip(serving.names, serving.prices.tolist())))

    def _list_prices(self, prices):
        """The choices and their prices are others now, by the router's own doing."""
        self.costs = prices
        self._named = True
        self.choices_ = list(prices)

    def status(self) -> OnlineStatus:
        """Where it stands: requests, mean cost, price, shares, evidence and what exploring cost.

        Returns
        -------
        OnlineStatus
        """
        return self._current().status()

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
        check_rows_match(X=X, y=y)
        route = self.route(X, budget=budget)
        y, _ = check_outcomes(len(route), self._serving.names, y, None)
        weight = check_sample_weight(sample_weight, X)
        return float(np.average(y[np.arange(len(route)), route], weights=weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.prior is None
        tags.target_tags.multi_output = True
        return tags
