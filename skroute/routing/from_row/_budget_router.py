"""BudgetRouter: learn from logged outcomes which choice is worth its cost for a row."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_affordable, check_budget
from skroute.base._calls import ALLOWED, EXCLUDE, REQUEST_ID
from skroute.base._inspection import models_of
from skroute.quality import QualityRegressor
from skroute.quality._logged import KnownCellsRegressor, leaf_size
from skroute.quality._overlap import beyond_range, lack_of_overlap
from skroute.routing.parts._call_costs import check_call_costs, summarize_costs
from skroute.routing.parts._estimates import folds_of
from skroute.routing.parts._learn import (
    learn_costs,
    learn_policy,
    predict_costs,
    warn_of_fit,
)
from skroute.routing.parts._limits import (
    CAPACITIES,
    LIMITS,
    check_limits,
    limits_now,
    read_amounts,
)
from skroute.routing.parts._log import (
    check_new_choice,
    check_row_costs,
    costs_now,
    kept_choices,
    overlap_of,
    read_answers,
    read_table,
    with_last,
)
from skroute.routing.parts._newcomers import with_newcomer
from skroute.routing.parts._policy import check_lambda
from skroute.routing.parts._priced_router import (
    COSTS,
    QUOTED_COSTS,
    LimitedRouter,
    estimate_once,
    inputs_of_rows,
)
from skroute.routing.parts._router import metadata_of_fit
from skroute.routing.parts._table_router import (
    TableRouter,
    readers_of,
    realised_quality,
    rows_of_fit,
    weights_for_readers,
)
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    HasMethods,
    Interval,
    Real,
    StrOptions,
    num_samples,
    routing_enabled,
)
from skroute.utils._named import check_rows_match
from skroute.utils._row_hash import row_keys, tie_draws
from skroute.utils._validation import (
    check_numbers,
    given_weights,
    none_if_equal,
    relative_weights,
    warn,
)


def reader_of_known_cells(reader, table, fit_params, *, ratio=False):
    """Return an estimator that fits `reader` on a table with NaN for unknown outcomes.

    Parameters
    ----------
    reader : regressor or None
        Not fitted. None: the forest that fills unknown cells is the estimate.
    table : ndarray of shape (n_rows, n_choices)
        Outcomes of all rows, also if the returned estimator is then fitted on folds. It
        sets the size of the leaves. NaN is unknown.
    fit_params : dict
        Parameters of the `fit` of the returned estimator. It requests
        ``sample_weight`` if this is one of them.
    ratio : bool, default=False
        True for costs, see `CellForest`.

    Returns
    -------
    KnownCellsRegressor
    """
    n_cells = np.count_nonzero(~np.isnan(table))
    regressor = KnownCellsRegressor(reader, ratio, leaf_size(n_cells))
    if routing_enabled() and "sample_weight" in fit_params:
        regressor.set_fit_request(sample_weight=True)
    return regressor


class BudgetRouter(LimitedRouter, TableRouter):
    r"""Choose, for each row, the model that is worth its cost, learned from a log.

    A log has the answers of several models, services or language models to past
    requests: how good each answer was, and what it cost. This router learns a policy
    from it. The models are not needed: X are the features of the requests, and Q is the
    quality of each choice on each request.

    `fit` estimates the quality :math:`\hat q_i(x)` of each choice out of sample, and
    from these estimates the price :math:`p` of the budget [2]_. A row then goes to

    .. math:: \arg\max_i \; \hat q_i(x) - \lambda \sigma_i - p\, c_i,

    with :math:`\sigma_i` the standard deviation of the estimate's error [1]_.

    Parameters
    ----------
    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each choice. None takes
        :class:`~skroute.quality.QualityRegressor`, which compares several estimators.

    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Cost per call of each choice. None if costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_choices), and so do
        later calls. The costs of `fit` and of later calls must be of one kind: known
        before the call, or estimates. If both fixed and logged costs are given, rows
        are decided by the fixed costs, and the budget is met in the logged costs.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. A larger budget
        buys the more expensive choice for more rows. It is spent as far as held-out
        rows show a gain beyond noise.

    cost_estimator : multi-output regressor, default=None
        Estimates costs per row from X, if they are known only after the call. None if
        the costs of new rows are known before the call and passed to `predict`.

    reg_lambda : float, default=0.0
        The lambda of OCCAM (one of several models for each row): the number of standard
        deviations of the estimation error that are subtracted from the estimate of a
        choice. A larger value prefers choices whose quality is predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`. The budget
        holds on average. ``"batch"`` solves the assignment for the rows of a call. The
        budget is a hard cap on their cost. If that cost is estimated, or differs from
        the logged cost, the cap is lowered by the excess of logged over planned costs.

    abstain_cost : float, default=None
        Cost of abstaining from a row, in units of quality: the row counts as the best
        quality in the log minus this, and costs only `routing_cost`. With None, no row
        abstains. With a higher cost, fewer rows abstain.

    routing_cost : float, default=0.0
        Cost of deciding on one row, in the unit of `costs`. Every row pays it, and it
        is included in the budget.

    limits : mapping from str to float, default=None
        Largest mean per row of further amounts, next to the budget, for example
        ``{"seconds": 0.8, "slow": 0.05}``. The names are those of ``amounts`` in `fit`.
        A limit on a share of slow rows bounds a quantile: with ``slow = seconds > 2``
        and 0.05, 95 % of the rows take at most 2 seconds. A smaller limit costs
        quality. As the budget, a limit holds on average over rows like those of `fit`.

    capacities : mapping from str to float, default=None
        Largest share of the rows that each choice gets, by its name. Choices that are
        left out have no capacity.

    cv : int, splitter or iterable of splits, default=5
        Folds for out-of-fold estimates of quality. An int shuffles with a fixed seed.
        Each fold is a fit. With more folds, the spending on new rows is closer to the
        budget: with ``Ridge()`` on 1,000 rows of a log of language models, its standard
        deviation is 9 % with 5 folds and 7 % with 20. Rows that repeat or belong
        together must be in one fold: give a list of (train, test), or a splitter such
        as :class:`~sklearn.model_selection.GroupKFold`, which gets ``groups`` through
        metadata routing.

    n_jobs : int, default=None
        Folds fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices that `route` indexes: the columns of Q if it is a data
        frame, else the keys of `costs`, else ``"choice0"``, ``"choice1"``, ... In the
        last case `predict` returns the column of Q: 0, 1, ... With an `abstain_cost`,
        the last choice is ``"abstain"``, which `predict` returns for a row that
        abstains (-1 if it returns columns).

    n_known_ : ndarray of shape (n_choices,)
        Number of rows of `fit`, or of `add_choice`, on which the quality of each choice
        is known.

    overlap_ : Overlap
        Overlap of the log and the policy, for logs of one answer per request.

    quality_estimator_ : estimator
        Fitted on all rows.

    cost_estimator_ : estimator or None
        Fitted on all rows. None if no costs are learned.

    costs_ : ndarray of shape (n_choices,)
        Cost of each choice. The mean of the log if costs are per row. 0 for abstaining.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean logged quality of each choice. NaN if a log of one answer per request
        cannot say how good the choice is on all rows.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error of each choice.

    min_budget_ : float
        The smallest feasible budget: the mean cost of the cheapest choice of each row,
        `routing_cost` included.

    price_path_ : AssignmentPath
        Price for every budget, `routing_cost` not included.

    price_ : float
        Price at `budget`. Infinite if that is the smallest feasible one.

    validation_quality_, validation_cost_ : float
        Mean logged quality and cost of the cross-fitted decisions at `budget`, each at
        a price that was learned without the row's fold. Their standard errors as
        estimates for new rows are ``validation_quality_se_`` and
        ``validation_cost_se_``. NaN, with a warning, if a log of one answer per request
        cannot say how good the decisions are: ``overlap_.lack`` is the reason.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    OccamRouterClassifier : The same with classifiers that it fits and calls.

    Notes
    -----
    There is no `random_state`: set that of a `quality_estimator` of your own.

    `budget`, `policy`, `reg_lambda` and fixed `costs` can be changed after `fit`,
    without a new fit: estimates and quality of the log are kept, and the dual price is
    computed again. A mapping that is set after `fit` may name single choices. The
    others keep their costs.

    At the price of a budget, the logged cost of the cross-fitted decisions is the
    budget. Their planned cost is not used, because a choice is made partly because its
    cost was underestimated. At the price, some rows are tied between two choices. They
    are divided, so that the whole budget is used: a hash of the row, and of how often
    it came before in the call, decides for each tied row. A frequent row (20 times in
    `fit`, in more than one fold) is decided in `fit` as it will be later, by the final
    estimator. The budget holds on average over rows. For a cap use ``policy="batch"``
    or :meth:`stream`.

    ``fit(X, Q, sample_weight=...)`` weights rows in price, penalty and validation
    figures. The unit of the weights does not matter there. A `quality_estimator` and a
    `cost_estimator` whose `fit` takes ``sample_weight``, as the default does, get the
    weights as they are given. The estimates of others, such as a pipeline, are not
    weighted. With metadata routing enabled, the requests of the two estimators decide.
    `add_choice`, ``overlap_`` and estimated propensities do not use the weights.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025.
    .. [2] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for
       Multi-Label Classification Tasks", ICML 2022, Algorithm 1 and Theorem 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> costs = {"small": 1, "large": 5}
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs=costs, budget=3).fit(X, Q)
    >>> router.predict([[0.05], [0.95]]).tolist()
    ['small', 'large']
    >>> bool(2.8 < router.predict_cost(X).mean() < 3.2)
    True
    """

    _parameter_constraints: dict = {
        **TableRouter._parameter_constraints,
        "cost_estimator": [HasMethods(["fit", "predict"]), None],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "routing_cost": [Interval(Real, 0, None, closed="left")],
        "limits": [Mapping, None],
        "capacities": [Mapping, None],
    }

    call_parameters = (
        EXCLUDE,
        ALLOWED,
        REQUEST_ID,
        COSTS,
        QUOTED_COSTS,
        LIMITS,
        CAPACITIES,
    )

    def __init__(
        self,
        quality_estimator=None,
        *,
        costs=None,
        budget=None,
        cost_estimator=None,
        reg_lambda=0.0,
        policy="online",
        abstain_cost=None,
        routing_cost=0.0,
        limits=None,
        capacities=None,
        cv=5,
        n_jobs=None,
    ):
        self.quality_estimator = quality_estimator
        self.costs = costs
        self.budget = budget
        self.cost_estimator = cost_estimator
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.abstain_cost = abstain_cost
        self.routing_cost = routing_cost
        self.limits = limits
        self.capacities = capacities
        self.cv = cv
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------

    def fit(
        self,
        X,
        y,
        costs=None,
        choice=None,
        propensity=None,
        quoted_costs=None,
        amounts=None,
        **params,
    ):
        """Learn the quality of each choice and the price of the budget.

        `y` is a table with the quality of each choice on each row. With `choice`, `y`
        is a log of one answer per request.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests, of any type that `quality_estimator` takes.

        y : {array-like, dataframe} of shape (n_samples, n_choices) or (n_samples,)
            Q: quality of each choice on each row, higher is better, NaN if it is not
            known. The models must not have been fitted on these rows. With `choice`:
            the quality of the answer of that choice.

        costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            The bills: what each choice costs on each row. The budget is always met in
            bills. Rows are decided by the price list, the `cost_estimator` or
            `quoted_costs`. Without these, rows are decided by the bills themselves,
            which must then be known before each call. A bill that is not known is NaN,
            if rows are decided by something else. With `choice`, the shape may also be
            (n_samples,): the bills of the answers. None takes the price list as the
            bills.

        choice : array-like of shape (n_samples,), default=None
            For a log of one answer per request: the choice that gave it, which is a
            name in `costs` of the constructor or a column number.

        propensity : array-like of shape (n_samples,), default=None
            The probability with which that choice was made, above 0. None estimates it
            from X: then the log must have chosen by features in X and by chance only.

        quoted_costs : {array-like, dataframe} of shape (n_samples, n_choices), \
default=None
            Estimate of each bill that is known before the call, such as the cost of the
            input tokens and of an expected output. Rows are decided by these quotes,
            and later calls must have ``quoted_costs``, too. `costs` must have the
            bills.

        amounts : mapping or dataframe, default=None
            Further amounts of each choice on each row that `limits` can limit, by name,
            for example ``{"seconds": S, "slow": S > 2}`` with S of shape (n_samples,
            n_choices). One number for each choice is allowed, too. NaN is unknown. A
            frame has two levels of columns, amounts and choices. An amount is known
            only after the call: rows are decided by the mean of each choice.

        **params : dict
            ``sample_weight``, array-like of shape (n_samples,): weights of the rows,
            see Notes. With metadata routing enabled also other metadata that
            `quality_estimator` and `cost_estimator` request, and ``groups`` for the
            splitter in `cv`.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            If quality or costs are missing, not finite or of the wrong shape, or if the
            budget is below the cheapest plan.

        Warns
        -----
        UserWarning
            If a log of one answer per request cannot say how good the policy is, by the
            test that :func:`~skroute.metrics.off_policy_curve` makes, or if the
            estimated quality is outside of the qualities in the log.

        Notes
        -----
        With `costs` alone, later calls must have costs of the same kind. If bills come
        after the call, give them together with a price list, a `cost_estimator` or
        `quoted_costs`. A later call with at least 50 rows is refused if its costs are
        much less noisy than those of `fit`.
        """
        return super().fit(
            X,
            y,
            costs=costs,
            choice=choice,
            propensity=propensity,
            quoted_costs=quoted_costs,
            amounts=amounts,
            **params,
        )

    def _readers(self):
        """Return the unfitted estimators of quality and cost, by parameter name."""
        readers = readers_of(self)
        if self.quality_estimator is None and routing_enabled():
            # The default estimator of quality gets `sample_weight`, with which prices
            # are learned as well.
            readers["quality_estimator"].set_fit_request(sample_weight=True)
        return readers

    def _fit(
        self,
        X,
        y,
        *,
        task,
        costs=None,
        choice=None,
        propensity=None,
        quoted_costs=None,
        amounts=None,
        **params,
    ):
        """Learn from a log: costs if they are estimated, then quality and prices.

        Sets all fitted attributes. Parameters are those of `fit`. `task` (FitTask) gets
        a step for each estimator.
        """
        # Sample weights in the user's unit, for the estimators. None: there are none.
        given_weight = given_weights(params.get("sample_weight"), X)
        # Function that returns what each estimator's `fit` gets without metadata
        # routing, where weights are the only metadata.
        metadata_of_weights = partial(weights_for_readers, self._readers())
        metadata = metadata_of_fit(self, params, given_weight, metadata_of_weights)
        # The same weights for prices and validation, where a weight of 1 counts as one
        # row. None weights all rows alike.
        weight = None
        if given_weight is not None:
            weight = none_if_equal(relative_weights(given_weight))
        if self.costs is not None and self.cost_estimator is not None:
            raise ValueError(
                "cost_estimator learns costs per row, but the constructor has fixed "
                f"costs={self.costs!r}. Leave one of them out."
            )
        if quoted_costs is not None:
            self._check_quotes_allowed(costs)
        X = rows_of_fit(self, X, y)
        log = self._read_log(
            X,
            y,
            costs=costs,
            choice=choice,
            propensity=propensity,
            quoted_costs=quoted_costs,
            row_weight=weight,
        )
        check_consistent_length(X, log.quality)
        amount_tables = self._read_amounts(amounts, log, weight)
        check_limits(
            self.limits, self.capacities, amounts=amount_tables, choices=log.names
        )
        # True if `predict` returns names of choices, False if it returns column
        # numbers.
        self._named = log.named
        self._has_quotes = quoted_costs is not None
        self._cost_summary = None  # the costs of calls are not compared with the log
        is_per_row = log.paid.ndim == 2
        are_known_before_calls = self.cost_estimator is None and log.planned is None
        if is_per_row and are_known_before_calls:
            # Later calls must be given costs, too. They are compared with the log's.
            self._cost_summary = summarize_costs(X, log.paid)
        budget = check_budget(self.budget)
        check_affordable(budget, self._cheapest_plan(log, weight))

        folds = folds_of(self.cv, X, log.quality, **metadata["splitter"]["split"])
        self.cost_estimator_ = None  # costs are not estimated
        if self.cost_estimator is not None:
            # New rows are decided by estimated costs, so that the price is learned from
            # estimated costs.
            fit_params = metadata["cost_estimator"]["fit"]
            self.cost_estimator_, log = learn_costs(
                self._cost_reader(log, fit_params),
                X,
                log,
                folds,
                task=task,
                n_jobs=self.n_jobs,
                fit_params=fit_params,
            )
        log = log.with_abstaining(self.abstain_cost)
        fit_params = metadata["quality_estimator"]["fit"]
        learned = learn_policy(
            self._quality_reader(log, fit_params),
            X,
            log,
            folds,
            task=task,
            cost_estimator=self.cost_estimator_,
            weight=weight,
            n_jobs=self.n_jobs,
            fit_params=fit_params,
        )
        if amount_tables is not None and log.abstain_quality is not None:
            amount_tables = amount_tables.with_abstaining()
        # The policy at the parameters of `fit`. `_policy` applies the present ones.
        learned = replace(learned, amounts=amount_tables)
        self._learned = learned.with_changes(
            reg_lambda=float(self.reg_lambda), deciding_cost=float(self.routing_cost)
        )
        # If rows may abstain, the last column of the log is abstaining. `add_choice`
        # does not change the log.
        self._log = log
        # Hashes of the rows of `fit`, by which `_seen` recognises them.
        self._row_keys = row_keys(X)
        self.abstain_quality_ = log.abstain_quality
        self.n_known_ = log.is_known.sum(axis=0)
        limited = self._learned.limited(limits_now(self, log.names))
        limited.check_feasible(budget)
        self.choices_ = log.names
        self._warn_after_fit(budget)

    def _read_amounts(self, amounts, log, weight):
        """Return the argument `amounts` of `fit` as `AmountTables`. None stays None.

        Parameters
        ----------
        amounts : mapping, dataframe or None
        log : Log
            Its choices do not include abstaining.
        weight : ndarray of shape (n_rows,) or None
            Weights of the rows.
        """
        if amounts is not None and log.has_single_answers:
            raise ValueError(
                "amounts need the outcome of every choice on each row, and this log "
                "has one answer per request: leave amounts out."
            )
        return read_amounts(
            amounts, log.names, n_rows=len(log.quality), named=log.named, weight=weight
        )

    def _check_quotes_allowed(self, costs):
        """Raise an error if `quoted_costs` come with other estimates, or without bills.

        `costs` are the bills of `fit`, None if there are none.
        """
        if self.costs is not None:
            raise ValueError(
                "quoted_costs are an estimate of the bill of each row, and the "
                f"price list costs={self.costs!r} of the constructor is another one. "
                "Leave one of them out."
            )
        if self.cost_estimator is not None:
            raise ValueError(
                "quoted_costs are an estimate of the bill of each row, and "
                "cost_estimator learns another one. Leave one of them out."
            )
        if costs is None:
            raise ValueError(
                "costs must have the bills of the rows that quoted_costs are the "
                "estimates of, got None. If the quotes are what is billed, give them "
                "as costs."
            )

    def _read_log(self, X, y, *, costs, choice, propensity, quoted_costs, row_weight):
        """Return the data of `fit` as a `Log`: a table, or one answer per request.

        `row_weight` are the weights of the rows (n_rows,), None weights all alike. The
        other parameters are those of `fit`.
        """
        if choice is not None:
            return read_answers(
                X,
                y,
                choice=choice,
                propensity=propensity,
                costs=costs,
                listed=self.costs,
                quoted=quoted_costs,
                estimates_costs=self.cost_estimator is not None,
                row_weight=row_weight,
            )
        if propensity is not None:
            raise ValueError(
                "propensity belongs to a log of one answer per request: give choice."
            )
        return read_table(
            y,
            costs,
            listed=self.costs,
            quoted=quoted_costs,
            estimates_costs=self.cost_estimator is not None,
            row_weight=row_weight,
        )

    def _cheapest_plan(self, log, weight):
        """Return a lower bound of the mean cost of the cheapest plan, before any fit.

        Parameters
        ----------
        log : Log
            Its choices do not include abstaining.
        weight : ndarray of shape (n_rows,) or None
            Weights of the rows.

        Returns
        -------
        float
        """
        # 0 is a bound if rows may abstain, which is free. It is also the bound if some
        # costs are unknown.
        cheapest = 0.0
        all_costs_known = log.known_costs is None
        if self.abstain_cost is None and all_costs_known:
            # A number for a price list, or (n_rows,) for costs per row.
            cheapest = np.min(log.paid, axis=-1)
            if cheapest.ndim == 1:
                cheapest = np.average(cheapest, weights=weight)
        return float(cheapest) + self.routing_cost

    def _cost_reader(self, log, fit_params):
        """Return the unfitted estimator that learns costs from a log."""
        if log.known_costs is None:
            # All costs in the log are known, so that no NaN must be filled.
            return self.cost_estimator
        return reader_of_known_cells(
            self.cost_estimator, log.paid, fit_params, ratio=True
        )

    def _quality_reader(self, log, fit_params):
        """Return the unfitted estimator that learns quality from a log."""
        reader = self.quality_estimator
        # With a log of single answers, `reader` stays None by default: the forest that
        # fills unknown qualities is then the estimator of quality.
        if reader is None and not log.has_single_answers:
            reader = QualityRegressor()
        if log.known_quality is None:
            # All qualities in the log are known, so that no NaN must be filled.
            return reader
        table = log.quality
        if log.abstain_quality is not None:
            # The last column is abstaining, which is not estimated.
            table = table[:, :-1]
        return reader_of_known_cells(reader, table, fit_params)

    def _warn_after_fit(self, budget):
        """Warn if something about the fit is probably not as the user wants it."""
        log = self._log
        if not log.has_single_answers:
            warn_of_fit(self._learned, log.names, budget)
            return
        # This warns if log and policy have no overlap. The quality is then NaN.
        validated = self._validated(budget)
        if np.isfinite(validated.quality):
            has_overlap = log.known_quality.has_overlap(log.names)
            warn_of_fit(self._learned, log.names, budget, has_overlap)

    def _seen(self, X):
        """Return True for each row that equals a row of `fit`, (n_rows,)."""
        return np.isin(row_keys(X), self._row_keys)

    # Decisions ------------------------------------------------------------------------

    def _policy(self):
        """Return the fitted policy at the present parameters (`Policy`)."""
        check_is_fitted(self)
        learned = self._learned
        is_per_row = self.costs is None
        if learned.has_row_costs != is_per_row:
            raise ValueError(
                "costs was changed between fixed and per row (None) after fit: fit "
                "again, or set it back."
            )
        costs = None  # the policy keeps the costs of each row of `fit`
        if not learned.has_row_costs:
            # Names of all models: those of `fit`, then those of `add_choice`.
            names = models_of(self)
            # The log has the models of `fit`, and abstaining if rows may abstain. If
            # rows may abstain, no model can be added: `names` are the models of `fit`.
            n_fitted = min(len(names), len(self._log.names))
            costs = costs_now(
                self.costs,
                names,
                current=learned.planned[: len(names)],
                n_fitted=n_fitted,
            )
        policy = learned.with_changes(
            costs=costs, reg_lambda=check_lambda(self.reg_lambda)
        )
        return policy.limited(limits_now(self, self.choices_))

    def _plan(self, X, call):
        """Return the choices for the rows of a call (`Plan`)."""
        # `choices` are positions of the choices that are not excluded. `allowed` has
        # True where a row may get one of them. None: each row may get all of them.
        choices, allowed = kept_choices(
            self.choices_, num_samples(X), call.exclude, call.allowed
        )
        policy = self._policy().limited(limits_now(self, self.choices_, call))
        policy = policy.restricted(choices)
        has_own_costs = call.costs is not None
        quoted_costs = call.option("quoted_costs")
        costs = policy.planned
        if policy.has_row_costs or has_own_costs or quoted_costs is not None:
            costs = self._row_costs(X, call.costs, quoted_costs)[:, choices]
        estimates, _ = estimate_once(self, policy, partial(inputs_of_rows, X))
        return policy.decide(
            estimates,
            costs,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
            costs_given=has_own_costs,
            allowed=allowed,
        )

    def request_policy(self, budget, exclude=()):
        """Return the `RequestPolicy` for requests that come one by one.

        Parameters
        ----------
        budget : float
            Mean budget per request, in the unit of `costs`. It is not read here: the
            price follows from ``price_at`` of the result.

        exclude : sequence of str, default=()
            Names of choices that are not offered.

        Returns
        -------
        RequestPolicy
            It estimates the costs of requests if the router has a `cost_estimator`.
        """
        check_is_fitted(self)
        cost_estimator = None
        if self.cost_estimator_ is not None:
            # `costs=None`: the call gives no costs, so that they are estimated.
            cost_estimator = partial(self._row_costs, costs=None)
        return self._priced_requests(
            exclude,
            asked_first=(),
            cost_estimator=cost_estimator,
            # A price list from which the logged bills differ is a quote, too.
            quotes_costs=self._has_quotes or self._has_list_and_bills(),
        )

    def _has_list_and_bills(self):
        """Return True if decisions use a price list from which logged bills differ."""
        policy = self._policy()
        return policy.realised is not None and not policy.has_row_costs

    def _row_costs(self, X, costs, quoted_costs=None):
        """Return the costs by which the rows of a call are decided.

        Parameters
        ----------
        X : indexable of n_rows rows
        costs : array-like or dataframe of shape (n_rows, n_models), or None
            Bills that the call was given. None: there are none.
        quoted_costs : array-like or dataframe of shape (n_rows, n_models), or None
            Quotes that the call was given. None: there are none. Without either,
            `cost_estimator_` estimates the bills.

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
            0 for abstaining.
        """
        models = models_of(self)
        shape = (num_samples(X), len(models))
        if not self._learned.has_row_costs:
            raise ValueError(
                "costs per row were given, but this router decides by the fixed costs "
                "of its constructor. The prices can be changed after fit, without a "
                "new fit: use set_params(costs=...). What calls are expected to be "
                "billed is predict_cost(X)."
            )
        columns = models if self._named else None
        self._check_kind_of_costs(costs, quoted_costs, shape)
        cache = cache_of(self)
        if quoted_costs is not None:
            costs = check_row_costs(quoted_costs, columns, shape, "quoted_costs")
        elif costs is not None:
            costs = check_row_costs(costs, columns, shape)
            if self._cost_summary is not None:
                # A sweep over budgets has a cache, so that it checks the costs once.
                cache.get_or_compute(
                    "checked costs",
                    lambda: check_call_costs(self._cost_summary, X, costs),
                )
        elif self.cost_estimator_ is None:
            raise ValueError(
                "costs must be given for the rows to decide on, array-like of shape "
                f"{shape}: the router was fitted on costs per row without a "
                "cost_estimator."
            )
        else:
            costs = cache.get_or_compute(
                "costs", lambda: predict_costs(self.cost_estimator_, X)
            )
        return costs if self.abstain_quality_ is None else with_last(costs, 0.0)

    def _check_kind_of_costs(self, costs, quoted_costs, shape):
        """Raise an error if a call gives bills where `fit` got quotes, or the reverse.

        Parameters
        ----------
        costs, quoted_costs : array-like or None
            As in `_row_costs`.
        shape : tuple of two ints
            Number of rows and of models.
        """
        if not self._has_quotes and quoted_costs is not None:
            raise ValueError(
                "quoted_costs were given, but the router was fitted without them. Fit "
                "it with quoted_costs next to the bills, costs."
            )
        if not self._has_quotes:
            return
        if costs is not None:
            raise ValueError(
                "costs were given, but this router decides by quoted_costs, which it "
                "was fitted with. Give quoted_costs."
            )
        if quoted_costs is None:
            raise ValueError(
                "quoted_costs must be given for the rows to decide on, array-like of "
                f"shape {shape}: the router was fitted with quoted_costs."
            )

    def _plan_single(self, X, name, call):
        """Return the plan that makes one choice, of this name, for all rows.

        If the bills are not known before the call, `Plan.cost` is the expected bill.
        `Plan.quoted_cost` is then the cost by which rows are decided.
        """
        plan = super()._plan_single(X, name, call)
        policy = self._policy()
        position = self.choices_.index(name)
        # Cost by which rows are decided: of the price list, a quote or an estimate.
        quoted_cost = plan.cost
        if policy.has_row_costs:
            row_costs = self._row_costs(X, call.costs, call.option("quoted_costs"))
            quoted_cost = row_costs[:, position]
        # These costs are the bills if bills are known before calls, or in this call.
        are_bills = policy.realised is None or call.costs is not None
        if are_bills:
            return plan._replace(cost=quoted_cost)
        # In the log, the bills of the choice were this factor times the costs by which
        # rows are decided.
        expected_bill = quoted_cost * policy.cost_factor[position]
        return plan._replace(cost=expected_bill, quoted_cost=quoted_cost)

    @property
    def needs_costs_(self):
        """True if the costs of each row are known before the call, and calls need them.

        Curves and certificates then pass ``costs`` on to the calls.
        """
        check_is_fitted(self)
        is_estimated = self.cost_estimator_ is not None or self._has_quotes
        return self._learned.has_row_costs and not is_estimated

    def bill(self, plan, costs):
        """Return the bill of each row of a plan, from the bill of each choice.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        costs : {array-like, dataframe} of shape (n_samples, n_models)
            Bill of each model on each row. A frame is read by name.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            `routing_cost` is included if rows were decided. A row that abstains pays
            nothing else.
        """
        check_is_fitted(self)
        models = models_of(self)
        columns = models if self._named else None
        n_rows = len(plan.route)
        bills = check_row_costs(costs, columns, (n_rows, len(models)))
        if self.abstain_quality_ is not None:
            bills = with_last(bills, 0.0)
        deciding = self._learned.deciding_cost if plan.decided else 0.0
        return bills[np.arange(n_rows), plan.route] + deciding

    def score(self, X, y, sample_weight=None, budget=None, **parameters):
        """Return the mean quality of the choices made.

        A row that abstains counts as in `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : {array-like, dataframe} of shape (n_samples, n_choices)
            Quality of each choice on each row, NaN if it is not known. Rows whose
            choice has a NaN do not count.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        float
        """
        call = self.make_call(budget, **parameters)
        return realised_quality(self, X, y, sample_weight, call, allow_nan=True)

    # New choices ----------------------------------------------------------------------

    def add_choice(self, name, X, q, *, cost):
        """Add a new choice, from the rows on which its quality is known.

        Its quality is estimated by a regression on the estimates of the choices of
        `fit`. The regression has a hierarchical prior, by which the new choice is one
        more choice of the kind of these. Few rows change the prior little. 1.25
        standard errors are subtracted, so that an uncertain choice is not bought too
        early. The estimates of other choices do not change.

        Parameters
        ----------
        name : str
            A new name.

        X : {array-like, sparse matrix, dataframe} of shape (n_rows, n_features)
            At least two rows, with the same features as in `fit`.

        q : array-like of shape (n_rows,)
            Quality of the new choice on these rows, in the unit of `fit`.

        cost : float
            Cost of its call. ``set_params(costs={name: ...})`` changes it later.

        Returns
        -------
        self
            The choice is the last of ``choices_``. A new fit and a clone do not have
            it.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from skroute.routing import BudgetRouter
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.7)])
        >>> costs = {"small": 1, "large": 5}
        >>> router = BudgetRouter(Ridge(), costs=costs, budget=3).fit(X, Q)
        >>> rows = X[::5]
        >>> router.add_choice("new", rows, np.full(20, 0.9), cost=2).choices_
        ['small', 'large', 'new']
        """
        check_rows_match(X=X, q=q)
        policy = self._policy()
        has_amounts = policy.amounts is not None
        if self.abstain_quality_ is not None or policy.has_row_costs or has_amounts:
            raise ValueError(
                "add_choice needs fixed costs, no abstain_cost and no amounts: fit "
                "again with the new choice."
            )
        cost = check_new_choice(name, cost, self.choices_)
        X = self._check_rows(X)
        q = check_numbers(q, "q", shape=(num_samples(X),))
        if len(q) < 2:
            raise ValueError(
                f"q must have at least two scores of {name!r}, got {len(q)}."
            )
        _warn_of_other_unit(name, q, policy.quality)
        # The newcomer joins a policy at the present price list.
        learned = self._learned.with_changes(costs=policy.planned)
        n_fitted = len(self._log.names)
        self._learned = with_newcomer(learned, n_fitted, X, q, cost)
        self.n_known_ = np.append(self.n_known_, len(q))
        self.choices_ = [*self.choices_, name]
        return self

    # Outcomes of decisions ------------------------------------------------------------

    def _policy_of_log(self):
        """Return the policy of the choices of `fit`, without those added later."""
        return self._policy().restricted(np.arange(len(self._log.names)))

    def _lack_at(self, budget):
        """Return why the quality at a budget cannot be estimated from the log, or None.

        The reason is a text: the log made the choices of the policy too seldom.
        """
        # Cross-fitted decisions on the rows of the log.
        validation = self._policy_of_log().validate(budget)
        agreement = self._log.known_quality.agreement(validation.choices)
        return lack_of_overlap(agreement, self._log.names)

    def _validated(self, budget):
        """Return mean quality and cost on validation rows (`ValidationMeans`).

        Figures are NaN, with a warning, if a log of single answers has no overlap with
        the policy.
        """
        validated = super()._validated(budget)
        log = self._log
        if not log.has_single_answers:
            return validated
        where = "Without a budget"
        if np.isfinite(budget):
            where = f"At budget={budget:.6g}"
        lack = self._lack_at(budget)
        if lack is None:
            message = beyond_range(
                validated.quality,
                log.known_quality.table,
                f"{where} the validation quality",
            )
            if message is not None:
                warn(message)
            return validated
        warn(
            f"{where} {lack} validation_quality_ is NaN. Log some requests at random "
            "(with their propensities), or take another budget. overlap_ has the "
            "counts."
        )
        validated = validated._replace(quality=np.nan, quality_se=np.nan)
        if log.known_costs is not None:
            validated = validated._replace(cost=np.nan, cost_se=np.nan)
        return validated

    def _validation_curve(self):
        """Return budgets with overlap of log and policy, and the validation at each."""
        budgets, validations = super()._validation_curve()
        if not self._log.has_single_answers:
            return budgets, validations
        has_overlap = [self._lack_at(float(budget)) is None for budget in budgets]
        positions = np.flatnonzero(has_overlap)
        return budgets[positions], [validations[position] for position in positions]

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, of shape (n_choices,)."""
        means = super().mean_quality_
        log = self._log
        if log.has_single_answers:
            has_overlap = log.known_quality.has_overlap(log.names)
            # Positions and not the mask itself, which has no entry for choices that
            # were added later.
            means[np.flatnonzero(~has_overlap)] = np.nan
        return means

    # Attributes -----------------------------------------------------------------------

    @property
    def costs_(self):
        """Cost of each choice. The mean of the log if costs are per row."""
        policy = self._policy()
        if not policy.has_row_costs:
            return policy.planned
        return np.average(policy.paid, axis=0, weights=policy.weight)

    @property
    def quality_estimator_(self):
        """The quality estimator, fitted on all rows."""
        check_is_fitted(self)
        estimator = self._learned.estimator
        # After `add_choice` the estimator of `fit` is part of a `WithNewcomers`.
        return getattr(estimator, "base", estimator)

    @property
    def overlap_(self):
        """Counts of how often the log made the choices of the policy (`Overlap`)."""
        check_is_fitted(self)
        if not self._log.has_single_answers:
            raise AttributeError(
                "overlap_ is of logs of one answer per request: fit with choice."
            )
        # Cross-fitted decisions on the rows of the log.
        budget = self._effective_budget(None)
        validation = self._policy_of_log().validate(budget)
        return overlap_of(self._log, validation.choices)


def _warn_of_other_unit(name, q, quality):
    """Warn if the qualities of a new choice are far from those of the other choices.

    Without a warning, they may be outside of the range of the other choices by at most
    the width of this range.

    Parameters
    ----------
    name : str
        The new choice.
    q : ndarray of shape (n_rows,)
        Its quality.
    quality : ndarray of shape (n_log_rows, n_choices)
        Quality of the other choices.
    """
    low = quality.min()
    high = quality.max()
    span = high - low
    if low - span <= q.min() and q.max() <= high + span:
        return
    warn(
        f"q of {name!r} goes from {q.min():.6g} to {q.max():.6g}, and the quality of "
        f"the other choices from {low:.6g} to {high:.6g}. Scores in another unit, such "
        "as per cent, make the new choice the best or the worst of all."
    )
