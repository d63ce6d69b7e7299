"""CascadeRouter: ask one model after another, while the next answer is worth it."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from skroute.assignment._induction import STOP
from skroute.base import (
    CallParameter,
    Plan,
    check_affordable,
    check_budget,
    check_costs,
    check_rows,
)
from skroute.base._calls import REQUEST_ID
from skroute.routing.from_answers._cascade_rules import (
    CascadeLog,
    cascades_to_compare,
    learn_rules,
)
from skroute.routing.from_answers._signals import (
    RowSignals,
    as_columns,
    split_signals,
)
from skroute.routing.from_answers._states import check_sets, fixed_order
from skroute.routing.parts._estimates import (
    cross_fit,
    estimates_without_folds,
    folds_of,
    predict_matrix,
)
from skroute.routing.parts._log import (
    check_matrix,
    check_row_costs,
    column_names,
    read_table,
)
from skroute.routing.parts._mixtures import validated_mixture
from skroute.routing.parts._table_router import (
    TableRouter,
    readers_of,
    realised_quality,
    rows_of_fit,
)
from skroute.utils._cache import cache_of
from skroute.utils._compat import Integral, Interval, num_samples
from skroute.utils._frames import is_mapping
from skroute.utils._typing import NDArray

# Maximal number of sets of models that are compared: 2**10 - 1, the sets of 10 models.
# It bounds the time of `fit`, since each set is fitted for each fold.
_MAX_SETS = 1023


class _EstimatesOfFit(NamedTuple):
    """Out-of-sample estimates of quality from X in `fit`, and the folds.

    Without X the estimates have no columns.

    Attributes
    ----------
    all_rows : ndarray of shape (n_rows, n_models)
        Estimates of each row without its fold.
    by_fold : list of ndarray of shape (n_train, n_models)
        For each fold estimates of its training rows by fits without its test rows.
    folds : list of (ndarray, ndarray)
        Training and test rows.
    """

    all_rows: NDArray[np.float64]
    by_fold: list[NDArray[np.float64]]
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]]


SIGNALS = CallParameter(
    "signals",
    "mapping, data frame or array-like, default=None",
    """Signals of the models' answers, as in `fit`, for all rows. Signals that a row
    does not pay for are not read: they may be any number, or NaN.""",
)
COUNTED_COSTS = CallParameter(
    "costs",
    "array-like or dataframe of shape (n_samples, n_models), default=None",
    """Cost of each call. It is added up and decides nothing. None takes ``costs_``.""",
)


class CascadeRouter(TableRouter):
    r"""Ask models in turn; the signals of each answer decide whether to ask the next.

    The router learns from a log of what several models answered to past requests: how
    good each answer was, what it cost, and its signals. A signal is a number that is
    seen only once the answer is paid for, such as a confidence, the length of a text or
    a judge's score. After each answer the row is answered, asks any model that it has
    not asked yet, or abstains to a person. It takes the option with the highest value:

    .. math:: \max\Bigl(\hat q_S(x, s), \;
        \max_{k \notin S} \hat V_{S \cup k}(x, s) - p\, c_k, \; \bar q - a\Bigr),

    with :math:`S` the models asked so far, :math:`s` their signals, :math:`\hat q_S`
    the estimated quality of their best answer, :math:`\hat V_{S \cup k}` the estimated
    value of going on with model k's answer, :math:`c_k` the cost of model k, :math:`p`
    the price of the budget, :math:`\bar q` the best quality in the log and :math:`a`
    the `abstain_cost`.

    `fit` compares this with its special cases on held-out rows: each model alone, one
    call that is chosen by X, and every fixed order of up to `max_calls` models with a
    threshold after each (FrugalGPT's cascade [1]_). At each price the simplest cascade
    within a quarter of a standard error of the best one is taken. Its quality is
    measured on rows that did not choose it: in a log of 300 rows, some of a hundred
    cascades look better than they are.

    Parameters
    ----------
    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each model, before any call. None takes
        :class:`~skroute.quality.QualityRegressor`. Not used if X is None. It is
        cross-fitted on all rows and, for each fold, on the rows outside of this fold.

    costs : mapping from str to float or array-like of shape (n_models,), default=None
        Cost per call of each model. None if costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_models), and decides by
        their means.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is
        unlimited. Raising it buys more answers and more expensive ones. It is spent as
        far as held-out rows show a gain beyond noise.

    order : list of str, default=None
        Models in the order in which they are asked, beginning with the first: one fixed
        cascade. None compares all orders and all sets.

    max_calls : int, default=3
        Calls per row at most, if `order` is None. Raising it compares more cascades:
        the sets of up to that many models, at most 1023.

    abstain_cost : float, default=None
        Cost, in units of quality, of abstaining from a row instead of answering it: the
        row counts as the best quality in the log minus this. None never abstains. If it
        is higher, fewer rows abstain.

    n_prices : int, default=24
        Number of prices that are fitted. Raising it follows the budget more closely.

    cv : int, splitter or iterable of splits, default=5
        Folds that compare the cascades, and make estimates from X out-of-sample; an int
        shuffles with a fixed seed. Each row is tested once. Rows that belong together
        must stay together: give a list of (train, test), or a splitter by groups, which
        gets ``groups`` through metadata routing.

    n_jobs : int, default=None
        Number of folds that are fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices that `route` indexes: the models, one of which answers, and
        ``"abstain"`` if an `abstain_cost` is given. Models are named by the columns of
        Q if it is a data frame, else the keys of `costs`, else ``"choice0"``,
        ``"choice1"``, ...

    model_names_ : list of str
        Names of the models.

    costs_ : ndarray of shape (n_models,)
        Cost of each model's call; the mean of the log if costs are per row.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    mean_quality_ : ndarray of shape (n_models,)
        Mean logged quality of each model.

    quality_estimator_ : estimator or None
        Fitted on all rows. None if `fit` got no X.

    mixture_ : Mixture
        Validated mean cost and quality of the rules at each price, by rising cost. The
        rows that chose a rule do not judge its quality.

    rule_names_ : list of str
        Names of the rules of `mixture_`: the models in the order in which they are
        asked, ``"small > large"``, or how many of them are asked in any order.

    min_budget_ : float
        The smallest feasible budget.

    validation_quality_, validation_cost_ : float
        Quality and cost of `mixture_` at `budget`.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of these as estimates for new rows.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    BudgetRouter : One call per row, chosen by X alone.
    SequentialRouterClassifier : The same with classifiers that it fits and combines.

    Notes
    -----
    There is no `random_state`: set that of a `quality_estimator` of your own.

    Signals enter as normal scores of their ranks: a probability, its logarithm and its
    logit are the same signal. Quality is scaled to [0, 1] by its range in the log.

    For a budget between two rules, the rule that a row follows is drawn from a hash of
    its ``request_id``, else of the row. If X is None, it is drawn from a hash of the
    row's position in the call. The budget holds on average over rows whose hashes
    differ. Calls of one row each without X all draw the same. They need ``request_id``,
    or :meth:`start`, which draws at random.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "FrugalGPT: How to Use Large Language Models
       While Reducing Cost and Improving Performance", TMLR 2024, section 3.
    .. [2] M. J. Zellinger, M. Thomson, "Rational Tuning of LLM Cascades via
       Probabilistic Modeling", arXiv:2501.09345, 2025; and with R. Liu,
       "Cost-Saving LLM Cascades with Early Abstention", arXiv:2502.09054, 2025.
    .. [3] J. N. Tsitsiklis, B. Van Roy, "Regression Methods for Pricing Complex
       American-Style Options", IEEE Transactions on Neural Networks 12, 2001.

    Examples
    --------
    Two models; the small one knows when it is wrong.

    >>> import numpy as np
    >>> from skroute.routing import CascadeRouter
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.uniform(size=400)
    >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10}, budget=6)
    >>> router = router.fit(None, Q, signals={"small": sure})
    >>> router.predict(None, signals={"small": [0.01, 0.99]}).tolist()
    ['large', 'small']
    >>> router.predict_cost(None, signals={"small": [0.01, 0.99]})
    array([11.,  1.])
    """

    _parameter_constraints: dict = {
        **TableRouter._parameter_constraints,
        "order": ["array-like", None],
        "max_calls": [Interval(Integral, 1, None, closed="left")],
        "n_prices": [Interval(Integral, 1, None, closed="left")],
    }
    call_parameters = (SIGNALS, COUNTED_COSTS, REQUEST_ID)

    def __init__(
        self,
        quality_estimator=None,
        *,
        costs=None,
        budget=None,
        order=None,
        max_calls=3,
        abstain_cost=None,
        n_prices=24,
        cv=5,
        n_jobs=None,
    ):
        self.quality_estimator = quality_estimator
        self.costs = costs
        self.budget = budget
        self.order = order
        self.max_calls = max_calls
        self.abstain_cost = abstain_cost
        self.n_prices = n_prices
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X, y, costs=None, signals=None, **params):
        """Learn from a log which model to ask first and when to ask another.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or \
None
            Features of the requests, known before any call. None: nothing is known.

        y : {array-like, dataframe} of shape (n_samples, n_models) or (n_samples,)
            Q: quality of each model's answer on each row, higher is better. Measured on
            rows that the models were not fitted on.

        costs : {array-like, dataframe} of shape (n_samples, n_models), default=None
            Cost of each model on each row. Only if the constructor's `costs` is None.

        signals : mapping from str to array-like, data frame, or array-like, \
default=None
            Signals of each answer. For a model they are an array of shape (n_samples,)
            or (n_samples, n_signals) of numbers, NaN where missing. For all models at
            once they are a data frame with a column for each model, found by name, or
            an array of shape (n_samples, n_models) or (n_samples, n_models, n_signals).
            A model without signals may be left out. None: no answer has signals.

        **params : dict
            Metadata through metadata routing: for `quality_estimator` and for the
            splitter in `cv`, such as ``groups``.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            If quality, costs or signals are not numbers or have the wrong shape, or if
            the budget is below the cheapest rule.
        """
        return super().fit(X, y, costs=costs, signals=signals, **params)

    def _fit(self, X, y, *, task, costs=None, signals=None, **params):
        """Check the log, learn the rules from it, and validate them.

        Sets all fitted attributes. Parameters are those of `fit`; `task` reports the
        steps to callbacks.
        """
        metadata = self._route_metadata(params)
        if X is None and signals is None:
            raise ValueError(
                "X and signals are both None: there is nothing to decide by. Give what "
                "is known of the requests, or what the models' answers show."
            )
        # True if `fit` got features. Without X, the signals of the answers are all that
        # is known of a row.
        self._has_rows = X is not None
        X = rows_of_fit(self, X, y, optional=True)
        quality = check_matrix(y, "y")
        if costs is not None:
            check_matrix(costs, "costs")
        check_consistent_length(X, quality)
        if self.costs is not None and costs is not None:
            raise ValueError(
                "costs was given both to the constructor and to fit; costs per row "
                "need CascadeRouter(costs=None)."
            )
        log = read_table(y, costs, self.costs)
        self._named = log.named  # True if the user has named the models
        self.model_names_ = log.names
        log = log.with_abstaining(self.abstain_cost)
        # Costs of the models, (n_models,) or (n_rows, n_models). If rows may abstain,
        # the last column of the log is abstaining, which is left out.
        model_costs = log.paid[..., : len(self.model_names_)]
        row_costs = np.broadcast_to(model_costs, quality.shape)
        signals_of_models = self._read_signals_of_fit(signals, len(quality))
        self.costs_ = row_costs.mean(axis=0)
        cascades = self._cascades_to_compare(signals_of_models)

        estimates = self._estimate_quality(X, quality, metadata, task)
        cascade_log = CascadeLog.scaled(
            quality,
            row_costs,
            signals=RowSignals(estimates.all_rows, signals_of_models),
            abstain_quality=log.abstain_quality,
        )
        # Position of the cascade that asks the cheapest model alone: the cascades of
        # one model come first, in the order of the models. None: with a fixed `order`
        # there is no such cascade.
        cheapest = None
        if self.order is None:
            cheapest = int(self.costs_.argmin())
        with task.step("compare cascades"):
            learned = learn_rules(
                cascades,
                cascade_log,
                folds=estimates.folds,
                estimates_by_fold=estimates.by_fold,
                n_prices=self.n_prices,
                cheapest=cheapest,
                n_jobs=self.n_jobs,
            )
        self._scales = learned.scales  # turn signals into normal scores
        self._rules = learned.rules
        # For each fold, the rules of the other folds on its rows.
        self._validated_parts = learned.validated_parts
        # Qualities were scaled to the range from 0 to 1. These numbers undo it.
        self._low = cascade_log.low
        self._span = cascade_log.span
        self._mean_quality = quality.mean(axis=0)
        self.abstain_quality_ = log.abstain_quality
        self.mixture_ = learned.mixture
        self.rule_names_ = [self._name_of(rule.cascade.states) for rule in self._rules]
        check_affordable(check_budget(self.budget), self._smallest_budget())
        self.choices_ = log.names

    def _read_signals_of_fit(self, signals, n_rows):
        """Return the signals of each model, a list of ndarray (n_rows, n_signals).

        Sets ``_signal_names``: for each model the names of its columns, or None if its
        columns have no names.
        """
        by_name = split_signals(signals, self.model_names_)
        self._signal_names = []
        signals_of_models = []
        for name in self.model_names_:
            model_signals = by_name.get(name)  # None: the model has no signals
            self._signal_names.append(
                column_names(model_signals, f"signals of {name!r}")
            )
            signals_of_models.append(as_columns(model_signals, name, n_rows))
        return signals_of_models

    def _cascades_to_compare(self, signals_of_models):
        """Return the cascades to compare by quality and cost, a list of `States`.

        `signals_of_models` has for each model an array of shape (n_rows, n_signals). If
        no model has signals, nothing can decide a second call, and each cascade has one
        call.
        """
        names = self.model_names_
        n_models = len(names)
        if self.order is not None:
            order = [str(name) for name in self.order]
            has_duplicates = len(set(order)) < len(order)
            if not order or has_duplicates or not set(order) <= set(names):
                raise ValueError(
                    f"order must name some of the models {names!r}, each once, "
                    f"got {self.order!r}."
                )
            return [fixed_order(n_models, [names.index(name) for name in order])]
        check_sets(n_models, self.max_calls, _MAX_SETS)
        has_signals = any(signals.shape[1] > 0 for signals in signals_of_models)
        max_calls = self.max_calls if has_signals else 1
        return cascades_to_compare(
            n_models,
            max_calls=max_calls,
            by_cost=np.argsort(self.costs_, kind="stable").tolist(),
            # With X, the quality of each row is estimated before the first call.
            has_estimates=self._has_rows,
        )

    def _estimate_quality(self, X, quality, metadata, task):
        """Estimate quality from X out of sample, if `fit` got X (`_EstimatesOfFit`).

        Sets ``quality_estimator_``.
        """
        # A splitter needs rows. Without X they are those of the table of quality.
        rows = X if self._has_rows else quality
        folds = folds_of(self.cv, rows, quality, **metadata["splitter"]["split"])
        self.quality_estimator_ = None
        if not self._has_rows:
            # Without X nothing can be estimated: the tables have no columns.
            no_estimates = np.empty((len(quality), 0))
            by_fold = [no_estimates[train] for train, _ in folds]
            return _EstimatesOfFit(no_estimates, by_fold, folds)
        estimator = readers_of(self)["quality_estimator"]
        options = {
            "name": "quality_estimator",
            "task": task,
            "n_jobs": self.n_jobs,
            "fit_params": metadata["quality_estimator"]["fit"],
        }
        fitted = cross_fit(estimator, X, quality, folds, **options)
        self.quality_estimator_ = fitted.estimator
        by_fold = estimates_without_folds(estimator, X, quality, folds, **options)
        return _EstimatesOfFit(fitted.estimate, by_fold, folds)

    def _name_of(self, states):
        """Return the name of a cascade (`States`), made of its models' names."""
        names = self.model_names_
        # State 0 is the first, in which nothing has been asked. If several models may
        # be asked there, the cascade has no fixed order.
        if len(states.next_members(0)) > 1:
            return f"{states.n_calls} of {', '.join(names)} in any order"
        # In a fixed order one model answers in each state but the first.
        order = [names[model] for (model,) in states.answering[1:]]
        return " > ".join(order)

    @property
    def mean_quality_(self):
        """Mean logged quality of each model, ndarray of shape (n_models,)."""
        check_is_fitted(self)
        return self._mean_quality

    def _smallest_budget(self):
        """Return the mean cost of the cheapest rule."""
        return float(self.mixture_.cost[0])

    def _validated(self, budget):
        """Return validated mean cost and quality at a budget (`ValidationMeans`)."""
        return validated_mixture(self._validated_parts, budget)

    # Decisions ------------------------------------------------------------------------

    def _check_rows(self, X):
        """Return the argument `X` of a prediction method, checked.

        If `fit` got no X, the features are not read. Rows are then only counted, and
        hashed to draw a rule.
        """
        if self._has_rows:
            return check_rows(self, X, reset=False)
        if X is None:
            return X
        if isinstance(X, (str, bytes)) or is_mapping(X) or np.isscalar(X):
            raise TypeError(f"X must be rows, or None, got {type(X).__name__}.")
        return X

    def _plan(self, X, call):
        """Draw the rule (a cascade at a price) of each row, and follow it to its end.

        The state of the plan is a mask of the asked models, (n_rows, n_models).
        """
        check_affordable(call.budget, self._smallest_budget())
        signals_of_models = self._signals_of_call(X, call.option("signals"))
        n_rows = len(signals_of_models[0])
        costs = self._costs_of_call(call.costs, n_rows)
        # The rule is drawn from a hash of the row. Without X the position of the row is
        # hashed.
        rows_to_draw = np.arange(n_rows)[:, np.newaxis] if X is None else X
        rule_of_row = self.mixture_.draw(rows_to_draw, call.budget, call.request_id)
        # The scores do not depend on the budget. A sweep over budgets has a cache, and
        # computes them once.
        scores = cache_of(self).get_or_compute(
            "scores", lambda: self._scores(X, signals_of_models)
        )
        route = np.empty(n_rows, dtype=np.int64)
        quality = np.empty(n_rows)
        asked = np.empty((n_rows, len(self.model_names_)), dtype=bool)
        for position in np.unique(rule_of_row):
            rule = self._rules[position]
            rows = np.flatnonzero(rule_of_row == position)
            price_index = np.full((len(rows), 1), rule.price_index)
            # Arrays of `ends` have a column for each price of a row: here one column.
            ends = rule.cascade.follow(scores.take(rows), price_index)
            route[rows] = ends.choice[:, 0]
            quality[rows] = ends.quality[:, 0]
            last_state = ends.state[:, 0]
            asked[rows] = rule.cascade.states.asked[last_state]
        return Plan(
            route,
            cost=(costs * asked).sum(axis=1),
            state=asked,
            # The rules' quality, from 0 to 1, becomes quality in the unit of the log.
            quality=self._low + self._span * quality,
        )

    def _costs_of_call(self, costs, n_rows):
        """Return the cost of each model for each row, (n_rows, n_models).

        Without `costs` they are the mean costs of the log.
        """
        shape = (n_rows, len(self.model_names_))
        if costs is None:
            return np.broadcast_to(self.costs_, shape)
        # Columns of a frame are found by name only if the models were named in `fit`.
        names = self.model_names_ if self._named else None
        return check_row_costs(costs, names, shape)

    def _signals_of_call(self, X, signals):
        """Return the checked signals of each model, arrays (n_rows, n_signals).

        All signals are checked, also those that no row pays for.
        """
        by_name = split_signals(signals, self.model_names_)
        if X is not None:
            n_rows = num_samples(X)
        elif by_name:
            n_rows = num_samples(next(iter(by_name.values())))
        else:
            raise ValueError(
                "Without X, signals must say what the models' answers show."
            )
        missing = []
        for name, n_signals in zip(self.model_names_, self._scales.n_signals):
            if n_signals and name not in by_name:
                missing.append(name)
        if missing:
            raise ValueError(
                f"signals has nothing of {missing!r}, whose answers showed something "
                "in fit. Give them for all rows (of a row that does not ask a model "
                "they are not read), or ask the models one by one with start()."
            )
        signals_of_models = []
        for model, name in enumerate(self.model_names_):
            model_signals = by_name.get(name)  # None: the model has no signals
            signals_of_models.append(
                self._signals_of_model(model, model_signals, n_rows)
            )
        return signals_of_models

    def _signals_of_model(self, model, signals, n_rows):
        """Return the signals of one model (a position), ndarray (n_rows, n_signals).

        Their number must be that of `fit`.
        """
        name = self.model_names_[model]
        n_signals = self._scales.n_signals[model]
        columns = as_columns(signals, name, n_rows, self._signal_names[model])
        if columns.shape[1] != n_signals:
            raise ValueError(
                f"signals of {name!r} must have the {n_signals} columns that fit saw, "
                f"got {columns.shape[1]}."
            )
        return columns

    def _scores(self, X, signals_of_models):
        """Return the normal scores of the rows' estimates and signals (`RowSignals`).

        `signals_of_models` has for each model an array of shape (n_rows, n_signals).
        """
        # Without X in `fit` there are no estimates.
        estimates = np.empty((len(signals_of_models[0]), 0))
        if self._has_rows:
            estimates = predict_matrix(self.quality_estimator_, X, "quality_estimator")
        return self._scales.transform(RowSignals(estimates, signals_of_models))

    def _plan_single(self, X, name, call):
        """Return the plan in which one model answers every row."""
        signals_of_models = self._signals_of_call(X, call.option("signals"))
        n_rows = len(signals_of_models[0])
        model = self.model_names_.index(name)
        costs = self._costs_of_call(call.costs, n_rows)
        return Plan(np.full(n_rows, model), costs[:, model])

    def bill(self, plan, costs):
        """Return the bill of each row of a plan: the sum over all asked models.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        costs : {array-like, dataframe} of shape (n_samples, n_models)
            Bill of each model on each row. A frame is read by name.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
        """
        check_is_fitted(self)
        n_rows = len(plan.route)
        bills = self._costs_of_call(costs, n_rows)
        if not plan.decided:
            # In a plan of `plan_single` each row asks only the model of its route.
            return bills[np.arange(n_rows), plan.route]
        # In other plans, `state` is True for the asked models, (n_samples, n_models).
        return (bills * plan.state).sum(axis=1)

    # Further public methods -----------------------------------------------------------

    def predict_quality(
        self, X, budget=None, *, signals=None, costs=None, request_id=None
    ):
        """Estimate the quality of each answer, for example to find rows to check.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `predict_routed`.

        budget : float, default=None
            As in `predict_routed`.

        signals : mapping from str to array-like, default=None
            As in `predict_routed`.

        costs : array-like of shape (n_samples, n_models), default=None
            As in `predict_routed`.

        request_id : array-like of shape (n_samples,), default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Quality in the unit of Q. A row that abstains has ``abstain_quality_``.
        """
        call = self.make_call(
            budget, signals=signals, costs=costs, request_id=request_id
        )
        return self.plan(X, call).quality

    def models_asked(self, X, budget=None, *, signals=None, request_id=None):
        """Return the models that each row pays for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `predict_routed`.

        budget : float, default=None
            As in `predict_routed`.

        signals : mapping from str to array-like, default=None
            As in `predict_routed`.

        request_id : array-like of shape (n_samples,), default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples, n_models), dtype=bool
            Columns in the order of ``model_names_``.
        """
        call = self.make_call(budget, signals=signals, request_id=request_id)
        return self.plan(X, call).state

    def start(self, x=None, *, budget=None, random_state=None):
        """Begin one request, whose models the caller asks.

        Parameters
        ----------
        x : row, default=None
            Features of the request: one row as in `fit`, without its outer dimension,
            or a table with one row, as streams take it. None if `fit` got no X.

        budget : float, default=None
            Mean cost per request. None takes the constructor's.

        random_state : int, RandomState instance or None, default=None
            Determines which of two rules the request follows, if the budget lies
            between them.

        Returns
        -------
        CascadeRun
            Its ``next`` is the model to ask. ``observe`` takes the answer's signals and
            cost.

        Examples
        --------
        >>> import numpy as np
        >>> from skroute.routing import CascadeRouter
        >>> rng = np.random.default_rng(0)
        >>> sure = rng.uniform(size=400)
        >>> small = sure > rng.uniform(size=400)
        >>> Q = np.column_stack([small, rng.uniform(size=400) < 0.9])
        >>> router = CascadeRouter(costs={"small": 1, "large": 10})
        >>> run = router.fit(None, Q, signals={"small": sure}).start()
        >>> while run.next is not None:
        ...     # call the model named run.next here
        ...     run.observe(run.next, signals=[0.01] if run.next == "small" else None)
        >>> run.answer
        'large'
        """
        check_is_fitted(self)
        budget = self._effective_budget(budget)
        check_affordable(budget, self._smallest_budget())
        if self._has_rows:
            x = self._check_rows(_as_table(x))
        elif x is not None:
            raise ValueError(
                "x must be None: fit got no X, so that nothing can be read of a row."
            )
        # Zeros stand for the signals of each model: they are not read before the model
        # is asked, and `observe` replaces them.
        placeholders = [
            np.zeros((1, n_signals)) for n_signals in self._scales.n_signals
        ]
        scores = self._scores(x, placeholders)
        # The budget lies between two rules. `share` is the probability of the more
        # expensive one.
        mixed = self.mixture_.share(budget)
        drawn = check_random_state(random_state).uniform()
        position = mixed.high if drawn < mixed.share else mixed.low
        rule = self._rules[position]
        return CascadeRun(self, rule.cascade, rule.price_index, scores)

    def score(
        self,
        X,
        y,
        sample_weight=None,
        budget=None,
        *,
        signals=None,
        costs=None,
        request_id=None,
    ):
        """Return the mean logged quality of the choices made, abstaining included.

        The quality of abstaining is ``abstain_quality_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `predict_routed`.

        y : {array-like, dataframe} of shape (n_samples, n_models)
            Q: quality of each model's answer on each row, with the columns that `fit`
            saw.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        signals : mapping from str to array-like, default=None
            As in `predict_routed`.

        costs : array-like of shape (n_samples, n_models), default=None
            As in `predict_routed`.

        request_id : array-like of shape (n_samples,), default=None
            As in `predict_routed`.

        Returns
        -------
        float
            The score. Higher is better.
        """
        call = self.make_call(
            budget, signals=signals, costs=costs, request_id=request_id
        )
        return realised_quality(self, X, y, sample_weight, call)


def _as_table(x):
    """Return the argument `x` of `CascadeRouter.start` as a table with one row."""
    if x is None:
        raise ValueError("x must be a row like those of fit, got None.")
    is_nested_list = False
    if isinstance(x, list | tuple) and len(x) > 0:
        is_nested_list = isinstance(x[0], list | tuple)
    is_table = is_nested_list or getattr(x, "ndim", 1) == 2
    if is_table:
        if num_samples(x) != 1:
            raise ValueError(f"x must be one row, got a table of {num_samples(x)}.")
        return x
    if hasattr(x, "to_frame"):
        # A pandas Series becomes a frame with one row.
        return x.to_frame().T
    return [x]


class CascadeRun:
    """One live request: the model to ask next, and at the end the one that answers.

    :meth:`CascadeRouter.start` makes it. The caller asks the model named ``next`` and
    passes the signals of its answer to :meth:`observe`, until ``next`` is None.

    Parameters
    ----------
    router : CascadeRouter
        Fitted.

    cascade : object
        The fitted cascade that the request follows.

    price_index : int
        Position of the price that the request is decided at.

    scores : object
        Normal scores of what is known of the request, as one row. The scores of models
        that have not been asked are placeholders, and are not read.

    Attributes
    ----------
    next : str or None
        Model to ask; None when the request is to be answered.

    answer : str or None
        Model whose answer to give, or ``"abstain"``. None before the first answer.

    quality : float or None
        Estimated quality of that answer.

    asked : list of str
        Models whose answers have been observed.

    cost : float
        Sum of the costs of these answers.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.routing import CascadeRouter
    >>> sure = np.linspace(0, 1, 400)
    >>> Q = np.column_stack([sure > 0.5, np.ones(400)])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10})
    >>> run = router.fit(None, Q, signals={"small": sure}).start()
    >>> run.asked, run.cost, run.answer
    ([], 0.0, None)
    """

    def __init__(self, router, cascade, price_index, scores):
        self._router = router
        self._cascade = cascade
        self._price_index = price_index
        self._scores = scores
        # State 0 is the first one, in which nothing has been asked.
        self._state = 0
        self.asked = []
        self.cost = 0.0
        self._set_next()

    def __repr__(self):
        return (
            f"CascadeRun(next={self.next!r}, answer={self.answer!r}, "
            f"asked={self.asked!r}, cost={self.cost:.6g})"
        )

    def _set_next(self):
        """Set ``next``, ``answer`` and ``quality`` by the best move in this state."""
        router = self._router
        # The request is one row at one price.
        price_index = np.full((1, 1), self._price_index)
        move = self._cascade.move(self._state, self._scores, price_index)
        next_model = int(move.next_model[0, 0])
        self.next = None if next_model == STOP else router.model_names_[next_model]
        self.answer = None
        self.quality = None
        if self.asked:
            self.answer = router.choices_[move.choice[0]]
            # The rules' quality, from 0 to 1, becomes quality in the unit of the log.
            self.quality = float(router._low + router._span * move.quality[0])

    def observe(self, model, signals=None, cost=None):
        """Give the signals and the cost of a model's answer.

        Parameters
        ----------
        model : str
            The model that was asked: any one that may come next, ``next`` or another.

        signals : array-like of shape (n_signals,), default=None
            Signals of the answer, as in the log.

        cost : float, default=None
            Cost of the call. None takes the mean cost of the model.

        Raises
        ------
        ValueError
            If `model` may not come next, or `signals` are not as in `fit`.
        """
        router = self._router
        names = router.model_names_
        next_models = self._cascade.states.next_members(self._state)
        allowed = [names[candidate] for candidate in next_models]
        if model not in allowed:
            raise ValueError(
                f"model must be one of {allowed!r}, which may come next, got {model!r}."
            )
        position = names.index(model)
        # A data frame has one row already. Other signals become one.
        if signals is not None and not hasattr(signals, "columns"):
            signals = np.reshape(signals, (1, -1))
        columns = router._signals_of_model(position, signals, n_rows=1)
        if cost is None:
            cost = router.costs_[position]
        else:
            cost = check_costs([cost], [model], name="cost")[0]
        # The scores of this model's signals replace their placeholder.
        self._scores.by_model[position] = router._scales.transform_model(
            position, columns
        )
        self._state = int(self._cascade.states.following[self._state, position])
        self.asked.append(model)
        self.cost += float(cost)
        self._set_next()
