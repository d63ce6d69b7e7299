"""BudgetRouter: learn from logged outcomes which choice each row is worth."""

from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_affordable, check_budget
from skroute.base._calls import ALLOWED, EXCLUDE, REQUEST_ID
from skroute.base._inspection import models_of
from skroute.quality import QualityRegressor
from skroute.quality._logged import KnownCellsRegressor
from skroute.quality._overlap import beyond_range, lack_of_overlap
from skroute.routing.parts._estimates import cross_fit, folds_of
from skroute.routing.parts._learn import learn_policy, predict_costs, warn_of_fit
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
from skroute.routing.parts._router import COSTS
from skroute.routing.parts._table_router import TableRouter, realised_quality
from skroute.routing.parts._told_costs import check_told_costs, costs_of_fit
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


def known_cells(reader, fit_params, *, ratio=False):
    """Return an estimator that learns from the known cells of a table by a given one."""
    regressor = KnownCellsRegressor(reader, ratio)
    if routing_enabled() and "sample_weight" in fit_params:
        regressor.set_fit_request(sample_weight=True)
    return regressor


class BudgetRouter(TableRouter):
    r"""Choose, for each row, the model that is worth its cost, learned from a log of outcomes.

    If you have a log of what several models, services or language models made of past requests
    (how good each answer was, what it cost), this learns a policy from it. The models are not
    needed: X are features of a request, Q says how good each choice was for it.

    `fit` estimates the quality :math:`\hat q_i(x)` of each choice out of sample, and from
    these estimates the price :math:`p` of the budget [2]_. A row then goes to

    .. math:: \arg\max_i \; \hat q_i(x) - \lambda \sigma_i - p\, c_i,

    with :math:`\sigma_i` the standard deviation of the estimate's error [1]_.

    Parameters
    ----------
    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each choice. None takes
        :class:`~skroute.quality.QualityRegressor`, which compares several estimators.

    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Cost per call of each choice. None when costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_choices), and later calls do,
        too: both known before the call, or estimates. Where both are given, rows are decided by
        the fixed ones, and the budget is met in the logged.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. Raising it buys the
        more expensive choice for more rows. It is spent as far as held-out rows show a gain
        beyond noise.

    cost_estimator : multi-output regressor, default=None
        For costs per row that are known only after the call: learns them from X. None
        when the costs of new rows are known before and passed to `predict`.

    reg_lambda : float, default=0.0
        OCCAM's lambda: how many standard deviations of its estimation error are taken off a
        choice's estimate. Raising it prefers choices whose quality is predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on their cost. Where that is estimated, or another than the
        logged one, the cap is lowered by what such choices have cost beyond their estimate.

    abstain_cost : float, default=None
        What it costs, in units of quality, to abstain from a row instead of having it answered:
        the row counts as the best quality in the log minus this, and costs no more than
        `routing_cost`. None never does. If it is higher, fewer rows abstain.

    routing_cost : float, default=0.0
        Cost of deciding on one row, paid for every row and part of the budget, in the
        unit of `costs`.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the quality estimates out-of-sample; an int shuffles with a fixed
        seed. Each fold is a fit. With more folds the spending on new rows is closer to the
        budget: with ``Ridge()`` on 1,000 rows of a log of language models its standard
        deviation is 9 % at 5 folds and 7 % at 20. Where rows repeat or belong together, they
        must stay together: give a list of (train, test), or a splitter such as
        :class:`~sklearn.model_selection.GroupKFold`, which gets ``groups`` through metadata
        routing.

    n_jobs : int, default=None
        Folds fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices that `route` indexes: the columns of Q where it is a data
        frame, else the keys of `costs`, else ``"choice0"``, ``"choice1"``, ...; `predict`
        then answers with the column of Q, 0, 1, ... With an `abstain_cost` the last one is
        ``"abstain"``, which `predict` gives for a row that abstains (-1 beside columns).

    n_known_ : ndarray of shape (n_choices,)
        Rows on which the quality of each choice is known: of `fit`, or of `add_choice`.

    overlap_ : Overlap
        For logs of one answer per request: how often the log made the choices of the policy.

    quality_estimator_ : estimator
        Fitted on all rows.

    cost_estimator_ : estimator or None
        Fitted on all rows, where costs per row are learned.

    costs_ : ndarray of shape (n_choices,)
        Cost of each choice; the mean where costs are per row; 0 for abstaining.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean logged quality of each choice. NaN where a log of one answer per request cannot say
        how good the choice is on all rows.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error.

    min_budget_ : float
        The smallest feasible budget: the mean of the cheapest choices, `routing_cost` included.

    price_path_ : AssignmentPath
        Price for every budget, `routing_cost` not included.

    price_ : float
        Price at `budget`; infinite where it is the smallest feasible one.

    validation_quality_, validation_cost_ : float
        Mean logged quality and cost of the cross-fitted decisions at `budget`, each at a price
        that was learned without the row's fold; with their standard errors as estimates for
        new rows, ``validation_quality_se_`` and ``validation_cost_se_``. NaN, with a warning,
        where a log of one answer per request cannot say how good the decisions are:
        ``overlap_.lack`` says why.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    OccamRouterClassifier : The same with classifiers that it fits and calls.

    Notes
    -----
    There is no `random_state`: set that of a `quality_estimator` of your own.

    `budget`, `policy`, `reg_lambda` and, where they are fixed, `costs` can be changed after
    `fit`, without a new fit: estimates and quality of the log are kept, and the dual price is
    computed again. A mapping that is set after `fit` may name single choices; the others keep
    their costs.

    The price is the one at which the cross-fitted decisions, judged by the log, have cost the
    budget: not what was planned, since a choice is made partly because its cost was
    underestimated. Rows that are worth exactly the price are divided, so that all of the budget
    is used: which way such a row goes is drawn from a hash of the row and of how often it came
    before in the call. A frequent row (20 times in `fit`, in more than one fold) is decided in
    `fit` as it will be later, by the final estimator. The budget holds on average over rows; a
    cap is ``policy="batch"`` or :meth:`stream`.

    ``fit(X, Q, sample_weight=...)`` counts rows by their weights in price, penalty and validation
    figures, whose unit does not matter, and passes the weights as they are given to a
    `quality_estimator` and a `cost_estimator` whose `fit` takes ``sample_weight``, as the default
    does; the estimates of others, such as a pipeline, are not weighted. With metadata routing
    enabled each of the two says whether it requests them. What `add_choice` learns, ``overlap_``
    and propensities that are estimated are not weighted.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025.
    .. [2] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, Algorithm 1 and Theorem 4.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}, budget=3)
    >>> router = router.fit(X, Q)
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
    }

    call_parameters = (EXCLUDE, ALLOWED, REQUEST_ID, COSTS)

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
        self.cv = cv
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------------

    def fit(self, X, y, costs=None, choice=None, propensity=None, **params):
        """Learn the quality of each choice and the price of the budget.

        From a table of what each choice made of each row or, with `choice`, from a log of one
        answer per request.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests; whatever `quality_estimator` takes.

        y : {array-like, dataframe} of shape (n_samples, n_choices) or (n_samples,)
            Q: quality of each choice on each row, higher is better, NaN where it is not
            known. Measured on rows that the models were not fitted on. With `choice`: the
            quality of the answer that was given.

        costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            What each choice cost on each row. Beside fixed costs in the constructor, by
            which rows are decided, the budget is met in these: the rows that go to an
            expensive model are its long ones. With `choice` also of shape (n_samples,): what
            the answer given has cost.

        choice : array-like of shape (n_samples,), default=None
            For a log of one answer per request: the choice that gave it, a name that `costs`
            of the constructor knows, or a column number.

        propensity : array-like of shape (n_samples,), default=None
            The probability with which that choice was made, above 0. None estimates it from
            X: then whatever made the log choose as it did must be in X, or be chance.

        **params : dict
            ``sample_weight``, array-like of shape (n_samples,): weights of the rows, see Notes.
            With metadata routing enabled also what else `quality_estimator` and `cost_estimator`
            request, and ``groups`` for the splitter in `cv`.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            For quality or costs that are missing, not finite or of the wrong shape, or a
            budget below the cheapest plan.

        Warns
        -----
        UserWarning
            If a log of one answer per request cannot say how good the policy is, by the test that
            :func:`~skroute.metrics.off_policy_curve` makes, or if the quality that it estimates
            is outside of the qualities in the log.

        Notes
        -----
        `costs` without a price list and without a `cost_estimator` are those by which rows are
        decided: later calls must be given costs of the same kind. Real costs, which are known
        after the call only, belong to a `cost_estimator` or a price list. A later call with at
        least 50 rows is refused if its costs lack the chance variation of those of `fit`.
        """
        return super().fit(
            X, y, costs=costs, choice=choice, propensity=propensity, **params
        )

    def _readers(self):
        readers = super()._readers()
        if self.quality_estimator is None and routing_enabled():
            # skroute's own estimates are weighted as the price is.
            readers["quality_estimator"].set_fit_request(sample_weight=True)
        return readers

    def _fit(self, X, y, *, task, costs=None, choice=None, propensity=None, **params):
        given_weight = given_weights(params.get("sample_weight"), X)
        routed = self._routed(params, given_weight)
        weight = None
        if given_weight is not None:
            weight = none_if_equal(relative_weights(given_weight))
        if self.costs is not None and self.cost_estimator is not None:
            raise ValueError(
                "cost_estimator learns costs per row, but the constructor has fixed "
                f"costs={self.costs!r}. Leave one of them out."
            )
        X = self._rows_of_fit(X, y)
        if choice is not None:
            learned = self.cost_estimator is not None
            log = read_answers(
                X, y, choice, propensity, costs, self.costs, estimates_costs=learned
            )
        elif propensity is not None:
            raise ValueError(
                "propensity belongs to a log of one answer per request: give choice."
            )
        else:
            log = read_table(y, costs, self.costs)
        self._named = log.named
        check_consistent_length(X, log.quality)
        self._told_costs = None
        if log.planned is None and log.paid.ndim == 2 and self.cost_estimator is None:
            self._told_costs = costs_of_fit(X, log.paid)
        budget, cheapest = check_budget(self.budget), 0.0
        if self.abstain_cost is None and log.known_costs is None:
            cheapest = np.min(log.paid, axis=-1)
            if cheapest.ndim:
                cheapest = np.average(cheapest, weights=weight)
            cheapest = float(cheapest)
        check_affordable(budget, cheapest + self.routing_cost)
        folds = folds_of(self.cv, X, log.quality, **routed["splitter"]["split"])
        self.cost_estimator_ = None
        if self.cost_estimator is not None:
            # The price must be learned on costs as they will be known: estimated.
            reader, fit_params = self.cost_estimator, routed["cost_estimator"]["fit"]
            if log.known_costs is not None:
                reader = known_cells(reader, fit_params, ratio=True)
            learned_costs = cross_fit(
                reader,
                X,
                log.paid,
                folds,
                task=task,
                name="cost_estimator",
                n_jobs=self.n_jobs,
                fit_params=fit_params,
            )
            self.cost_estimator_ = learned_costs.estimator
            planned_by_fold = learned_costs.by_fold
            if planned_by_fold is not None:
                planned_by_fold = np.maximum(planned_by_fold, 0.0)
            log = replace(
                log,
                planned=np.maximum(learned_costs.estimate, 0.0),
                planned_as_new=np.maximum(learned_costs.as_new, 0.0),
                planned_by_fold=planned_by_fold,
            )
        log = log.with_abstaining(self.abstain_cost)
        reader = self.quality_estimator
        if reader is None and log.propensity is None:
            reader = QualityRegressor()
        fit_params = routed["quality_estimator"]["fit"]
        if log.known is not None:
            reader = known_cells(reader, fit_params)
        learned = learn_policy(
            reader,
            X,
            log,
            folds,
            task=task,
            cost_estimator=self.cost_estimator_,
            weight=weight,
            n_jobs=self.n_jobs,
            fit_params=fit_params,
        )
        penalty, deciding = float(self.reg_lambda), float(self.routing_cost)
        self._learned = learned.at(reg_lambda=penalty, deciding=deciding)
        self._log, self._row_keys = log, row_keys(X)
        self.abstain_quality_ = log.abstain_quality
        known = np.isfinite(log.quality) if log.known is None else log.known.weight > 0
        self.n_known_ = known.sum(axis=0)
        check_affordable(budget, self._learned.least)
        self.choices_ = log.names
        if log.propensity is None:
            warn_of_fit(self._learned, self.choices_, budget)
            return
        # It warns if the log cannot say how good the policy is.
        if np.isfinite(self._validated(budget).quality):
            known = log.known.have_overlap_alone(log.names)
            warn_of_fit(self._learned, self.choices_, budget, known)

    def _seen(self, X):
        """Which rows equal rows of `fit`."""
        return np.isin(row_keys(X), self._row_keys)

    # Decisions ------------------------------------------------------------------------------

    def _policy(self):
        check_is_fitted(self)
        learned = self._learned
        if learned.per_row != (self.costs is None):
            raise ValueError(
                "costs was changed between fixed and per row (None) after fit: fit again, or set "
                "it back."
            )
        costs = None
        if not learned.per_row:
            names = models_of(self)
            known = learned.planned[: len(names)]
            n_fitted = min(len(names), len(self._log.names))
            costs = costs_now(self.costs, names, known, n_fitted)
        return learned.at(costs=costs, reg_lambda=check_lambda(self.reg_lambda))

    def _plan(self, X, call):
        kept, allowed = kept_choices(
            self.choices_, num_samples(X), call.exclude, call.allowed
        )
        policy = self._policy().restricted(kept)
        costs_given = call.costs is not None
        costs = policy.planned
        if policy.per_row or costs_given:
            costs = self._row_costs(X, call.costs)[:, kept]
        estimates, _ = self._estimated(X, policy)
        return policy.decide(
            estimates,
            costs,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
            told=costs_given,
            allowed=allowed,
        )

    def _row_costs(self, X, costs):
        """Costs of rows to decide on: as given, else estimated."""
        models = models_of(self)
        shape = (num_samples(X), len(models))
        if not self._learned.per_row:
            raise ValueError(
                "costs per row were given, but this router decides by the fixed costs of its "
                "constructor. The prices can be changed after fit, without a new fit: use "
                "set_params(costs=...). What calls are expected to cost by the log is "
                "predict_routed(X).expected_cost."
            )
        if costs is not None:
            costs = check_row_costs(costs, models if self._named else None, shape)
            if self._told_costs is not None:
                compare = partial(check_told_costs, self._told_costs, X, costs)
                cache_of(self).get_or_compute("told costs", compare)
        elif self.cost_estimator_ is None:
            raise ValueError(
                f"costs must be given for the rows to decide on, array-like of shape {shape}: the "
                "router was fitted on costs per row without a cost_estimator."
            )
        else:
            costs = cache_of(self).get_or_compute(
                "costs", lambda: predict_costs(self.cost_estimator_, X)
            )
        return costs if self.abstain_quality_ is None else with_last(costs, 0.0)

    def _plan_single(self, X, name, call):
        plan = super()._plan_single(X, name, call)
        if not self._learned.per_row:
            return plan
        costs = self._row_costs(X, call.costs)
        return plan._replace(cost=costs[:, self.choices_.index(name)])

    def score(self, X, y, sample_weight=None, budget=None, **parameters):
        """Return the mean quality of the choices made. A row that abstains counts as in `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : {array-like, dataframe} of shape (n_samples, n_choices)
            Quality of each choice on each row, NaN where it is not known: rows whose choice is
            not known do not count.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            What else the calls of this class take.

        Returns
        -------
        float
        """
        call = self.make_call(budget, **parameters)
        return realised_quality(self, X, y, sample_weight, call, allow_nan=True)

    # New choices ----------------------------------------------------------------------------

    def add_choice(self, name, X, q, *, cost):
        """Add a new choice, from the rows on which its quality is known.

        Its quality is learned from the estimates of the choices of `fit`, under a hierarchical
        prior that takes it for one more of their kind: few rows move it little. 1.25 standard
        errors are taken off, so that an uncertain choice is not bought too early. No estimate of
        another choice changes.

        Parameters
        ----------
        name : str
            A new name.

        X : {array-like, sparse matrix, dataframe} of shape (n_rows, n_features)
            Rows like those of `fit`; two at least.

        q : array-like of shape (n_rows,)
            Its quality on them, in the unit of `fit`.

        cost : float
            What its call costs; ``set_params(costs={name: ...})`` changes it later.

        Returns
        -------
        self
            The choice is the last of ``choices_``. `fit` forgets it, and so does a clone.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from skroute.routing import BudgetRouter
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.7)])
        >>> router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
        >>> rows = X[::5]
        >>> router.add_choice("new", rows, np.full(20, 0.9), cost=2).choices_
        ['small', 'large', 'new']
        """
        check_rows_match(X=X, q=q)
        policy = self._policy()
        if self.abstain_quality_ is not None or policy.per_row:
            raise ValueError(
                "add_choice needs fixed costs and no abstain_cost: fit again with the new choice."
            )
        cost = check_new_choice(name, cost, self.choices_)
        X = self._check_rows(X)
        q = check_numbers(q, "q", shape=(num_samples(X),))
        if len(q) < 2:
            raise ValueError(
                f"q must have at least two scores of {name!r}, got {len(q)}."
            )
        table = policy.quality
        if q.max() > table.max() + np.ptp(table) or q.min() < table.min() - np.ptp(
            table
        ):
            warn(
                f"q of {name!r} goes from {q.min():.6g} to {q.max():.6g}, and the quality of the "
                f"other choices from {table.min():.6g} to {table.max():.6g}. Scores in another "
                "unit, such as per cent, make the new choice the best or the worst of all."
            )
        learned = self._learned.at(costs=policy.planned)
        self._learned = with_newcomer(learned, len(self._log.names), X, q, cost)
        self.n_known_ = np.append(self.n_known_, len(q))
        self.choices_ = [*self.choices_, name]
        return self

    # What decisions came to -----------------------------------------------------------------

    def _policy_of_log(self):
        """Return the policy of the choices that the log of `fit` has."""
        return self._policy().restricted(np.arange(len(self._log.names)))

    def _lack_at(self, budget):
        """Return why the log cannot say how good the policy is at a budget, or None."""
        choices = self._policy_of_log().validate(budget).choices
        return lack_of_overlap(self._log.known.agreement(choices), self._log.names)

    def _validated(self, budget):
        """Quality and cost of decisions, by a log of single answers NaN where it cannot say."""
        found = super()._validated(budget)
        if self._log.propensity is None:
            return found
        where = f"At budget={budget:.6g}" if np.isfinite(budget) else "Without a budget"
        lack = self._lack_at(budget)
        if lack is not None:
            warn(
                f"{where} {lack} validation_quality_ is NaN. Log some requests at random (with "
                "their propensities), or take another budget. overlap_ has the counts."
            )
            found = found._replace(quality=np.nan, quality_se=np.nan)
            if self._log.known_costs is not None:
                found = found._replace(cost=np.nan, cost_se=np.nan)
            return found
        name = f"{where} the validation quality"
        if message := beyond_range(found.quality, self._log.known.table, name):
            warn(message)
        return found

    def _judged_curve(self):
        budgets, found = super()._judged_curve()
        if self._log.propensity is None:
            return budgets, found
        known = [
            k
            for k, budget in enumerate(budgets)
            if self._lack_at(float(budget)) is None
        ]
        return budgets[known], [found[k] for k in known]

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, ndarray of shape (n_choices,)."""
        means = super().mean_quality_
        if self._log.propensity is not None:
            known = self._log.known.have_overlap_alone(self._log.names)
            means[: len(known)][~known] = np.nan
        return means

    # Attributes -----------------------------------------------------------------------------

    @property
    def costs_(self):
        """Cost of each choice; the mean of the log where costs are per row."""
        policy = self._policy()
        if not policy.per_row:
            return policy.planned
        return np.average(policy.paid, axis=0, weights=policy.weight)

    @property
    def quality_estimator_(self):
        """The quality estimator, fitted on all rows."""
        check_is_fitted(self)
        return getattr(self._learned.estimator, "base", self._learned.estimator)

    @property
    def overlap_(self):
        """How often the log made the choices of the policy (a named tuple)."""
        check_is_fitted(self)
        if self._log.propensity is None:
            raise AttributeError(
                "overlap_ is of logs of one answer per request: fit with choice."
            )
        choices = self._policy_of_log().validate(self._effective_budget(None)).choices
        return overlap_of(self._log, choices)
