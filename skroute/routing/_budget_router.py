"""BudgetRouter: learn from outcomes which choice each row is worth."""

from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.model_selection import KFold
from sklearn.utils import check_consistent_length
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.assignment._decide import check_policy
from skroute.base import (
    CostAwareMixin,
    Plan,
    Routed,
    check_affordable,
    check_budget,
    check_rows,
    inherit_member_tags,
    note_failure,
)
from skroute.metrics import pareto_front
from skroute.routing._abstaining import (
    ABSTAIN_COST,
    ABSTAIN_NAME,
    HandingLogMixin,
    check_abstain_name,
    quality_of_handing,
    with_handed,
)
from skroute.routing._changing import ChangingChoicesMixin
from skroute.routing._draws import row_keys, tie_draws
from skroute.routing._fit_tables import check_fit_costs, check_matrix, check_row_costs, column_names
from skroute.routing._fit_warnings import warn_of_fit
from skroute.routing._limits import limits_of
from skroute.routing._logged import LogReportMixin, read_log, table_outcomes, warn_of_overlap
from skroute.routing._priced import cross_fit, fit_policy, predict_costs
from skroute.routing._priced_views import LoggedMixin, check_lambda
from skroute.routing._stream import Look, Trade
from skroute.routing._values import (
    check_default_reads,
    default_quality_estimator,
    folds_of,
)
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    check_sample_weight,
    num_samples,
)
from skroute.utils._named import by_label, check_rows_match
from skroute.utils._once import once_of


class BudgetRouter(
    ChangingChoicesMixin,
    HandingLogMixin,
    LogReportMixin,
    LoggedMixin,
    CostAwareMixin,
    MetaEstimatorMixin,
    BaseEstimator,
):
    r"""Choose per row what is worth its cost, learned from logged outcomes alone.

    For whoever has a log of what several models, services or language models made of past
    requests (how good each answer was, what it cost) and wants a policy. The models are
    not needed: X are features of a request, Q says how good each choice was for it.

    `fit` estimates the quality :math:`\hat q_i(x)` of each choice out of sample, and from
    these estimates the price :math:`p` of the budget. A row then goes to

    .. math:: \arg\max_i \; \hat q_i(x) - \lambda \sigma_i - p\, c_i,

    with :math:`\sigma_i` the standard deviation of the estimate's error.

    Parameters
    ----------
    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each choice. None takes
        :class:`~skroute.quality.QualityRegressor`, which compares a family of them.

    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Cost per call of each choice. None when costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_choices). Where both are
        given, rows are decided by the fixed ones, and the budget is met in the logged.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. Raising it buys
        the more expensive choice for more rows.

    cost_estimator : multi-output regressor, default=None
        For costs per row that are known only after the call: learns them from X. None
        when the costs of new rows are known before and passed to `predict`.

    reg_lambda : float, default=0.0
        OCCAM's lambda: how many standard deviations of its estimation error a choice is
        docked. Raising it prefers choices whose quality is predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on their cost. Where that is estimated, or another than the
        logged one, the cap is lowered by what such choices have cost beyond their estimate.

    objective : {"mean", "min"}, default="mean"
        With ``policy="batch"``: maximise the mean estimated quality or the smallest one.

    abstain_cost : float, default=None
        What it costs, in units of quality, to hand a row over instead of having it answered:
        the row counts as the best quality in the log minus this, and costs no more than
        `routing_cost`. None never does. Raising it hands fewer rows over.

    drop_dominated : bool, default=False
        Whether to leave out choices that are more expensive and on average no better than
        another.

    routing_cost : float, default=0.0
        Cost of deciding on one row, paid for every row and part of the budget, in the
        unit of `costs`.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the quality estimates out-of-sample; an int shuffles with a fixed
        seed. Where rows repeat or belong together, they must stay together: give a list of
        (train, test), or a splitter such as :class:`~sklearn.model_selection.GroupKFold`,
        which gets ``groups`` through metadata routing.

    n_jobs : int, default=None
        Folds fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the choices that `route` indexes: the columns of Q where it is a data
        frame, else the keys of `costs`, else ``"choice0"``, ``"choice1"``, ...; `predict`
        then answers with the column of Q, 0, 1, ... With an `abstain_cost` the last one is
        ``"abstain"``, which `predict` gives for a row that is handed over (-1 beside columns).

    n_known_ : ndarray of shape (n_choices,)
        Rows on which the quality of each choice is known: of `fit`, or of `add_choice`.

    newcomers_ : dict from str to Newcomer
        What is known of the choices added after `fit`.

    overlap_ : Overlap
        For logs of one answer per request: what the log says of the policy at `budget`.

    columns_ : ndarray of shape (n_choices,)
        Columns of Q that the choices are; fewer than Q has with `drop_dominated`.

    quality_estimator_ : estimator
        Fitted on all rows.

    cost_estimator_ : estimator or None
        Fitted on all rows, where costs per row are learned.

    costs_ : ndarray of shape (n_choices,)
        Cost of each choice; the mean where costs are per row; 0 for handing over.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean logged quality of each choice.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error.

    min_budget_ : float
        The smallest feasible budget: the mean of the cheapest choices, `routing_cost` included.

    price_path_ : AssignmentPath
        Price for every budget, `routing_cost` not included.

    price_ : float
        Price at `budget`; infinite where it is the smallest feasible one.

    validation_quality_ : float
        Mean logged quality of the cross-fitted decisions at `budget`, each at a price that was
        learned without the row's fold.

    validation_cost_ : float
        What they cost on average, by the log.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : The same with classifiers that it fits and calls.

    Notes
    -----
    `predict` and its like take ``costs``, array-like of shape (n_samples, n_choices), for
    rows whose costs differ and are known before; a router with a `cost_estimator` needs
    none. These costs decide whether the budget is feasible for the rows (of more than one
    row, whose mean it must hold for); the online price stays that of the log.

    `predict` and its like also take, by keyword,

    - ``exclude``, a list of names of ``choices_`` that are not to be chosen, such as a model
      that is down. The price is solved for anew from the stored estimates of the others, in
      milliseconds, so that the budget is used and held as after a fit without them;
    - ``allowed``, booleans of shape (n_samples, n_choices): which choices each row may make, for
      example where a context is too long for a model. The rows are decided at the price of the
      router, those that have no other choice as they must be; under ``policy="batch"`` the
      budget is a cap with them. A row for which nothing is left is an error, before any call;
    - ``request_id``, of shape (n_samples,): what the draws of ties are made of, in place of the
      row. A service that calls with one row at a time gives it where equal rows are many.

    `reg_lambda` and, where they are fixed, `costs` act at once on a fitted router, as
    `budget`, `policy` and `objective` do: estimates and quality of the log are kept, and the
    price is solved for anew. Choices left out by `drop_dominated` stay out.

    Metadata routed to `quality_estimator` or `cost_estimator`, such as
    ``sample_weight``, reaches the cross-fitted estimates too, but price, penalty and
    validation numbers are plain means over the rows.

    The price is the one at which the cross-fitted decisions, judged by the log, have cost the
    budget: not what was planned, since a choice is made partly because its cost was
    underestimated. Rows that are worth exactly the price are mixed, so that all of the budget
    is used: which way such a row goes is drawn from a hash of the row and of how often it came
    before in the call, alike in every batch and container. A frequent row (20 times in `fit`,
    in more than one fold) is decided in `fit` as it will be later, by the final estimator. The
    budget holds on average over rows; a cap is ``policy="batch"`` or :meth:`stream`.

    `fit` warns when the cross-fitted policy's quality is below that of the best single
    choice that the budget allows by more than 1.645 standard errors, when the budget is above
    what any choice costs, and when logged costs contradict fixed ones.

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

    _call_context = ("costs", "exclude", "allowed", "request_id")
    _acts_at_once = ("budget", "policy", "objective", "reg_lambda", "costs")

    _parameter_constraints: dict = {
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "costs": [dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "cost_estimator": [HasMethods(["fit", "predict"]), None],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "objective": [StrOptions({"mean", "min"})],
        "abstain_cost": ABSTAIN_COST,
        "drop_dominated": ["boolean"],
        "routing_cost": [Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
    }

    def __init__(
        self,
        quality_estimator=None,
        *,
        costs=None,
        budget=None,
        cost_estimator=None,
        reg_lambda=0.0,
        policy="online",
        objective="mean",
        abstain_cost=None,
        drop_dominated=False,
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
        self.objective = objective
        self.abstain_cost = abstain_cost
        self.drop_dominated = drop_dominated
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs

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
            Metadata through metadata routing: for `quality_estimator` and
            `cost_estimator`, such as ``sample_weight``, and for the splitter in `cv`, such
            as ``groups``.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            For quality or costs that are missing, not finite or of the wrong shape, or a
            budget below the cheapest plan.
        """
        return super().fit(X, y, costs=costs, choice=choice, propensity=propensity, **params)

    def _fit(self, X, y, *, task, costs=None, choice=None, propensity=None, **params):
        check_policy(self.policy, self.objective)
        self._newcomers, self._later, self._dropped = {}, [], []
        routed = self._route_metadata(params)
        if y is None:
            raise ValueError("BudgetRouter requires y to be passed, but the target y is None.")
        X = check_rows(self, X, reset=True)
        check_rows_match(X=X, y=y, costs=costs, choice=choice, propensity=propensity)
        if self.quality_estimator is None:
            check_default_reads(X)
        outcomes = self._read(X, y, costs, choice, propensity)
        check_abstain_name(self._names, self.abstain_cost)
        self.columns_ = np.arange(outcomes.quality.shape[1])
        if self.drop_dominated:
            self.columns_ = np.sort(pareto_front(*outcomes.means()))
        outcomes = outcomes.of(self.columns_)
        self.abstain_quality_ = quality_of_handing(outcomes.quality, self.abstain_cost)
        budget = check_budget(self.budget)
        cheapest = outcomes.cheapest() if self.abstain_quality_ is None else 0.0
        check_affordable(budget, cheapest + self.routing_cost)

        folds = folds_of(self.cv, X, outcomes.quality, **routed["splitter"]["split"])
        # The price must be learned on costs as they will be known: estimated.
        self.cost_estimator_, planned = None, None
        if self.cost_estimator is not None:
            name, fit_params = "cost_estimator", routed["cost_estimator"]["fit"]
            reader = outcomes.cost_reader(self.cost_estimator)
            with note_failure(name, len(outcomes.quality), "the cost estimate"):
                self.cost_estimator_, planned = cross_fit(
                    reader, X, outcomes.costs, folds, task, self.n_jobs, fit_params, name
                )
            planned = np.maximum(planned, 0.0)
        elif self.costs is not None:
            planned = self._fixed_costs()[self.columns_]
        costs = outcomes.judged_costs(X, planned, folds)
        self._priced = fit_policy(
            outcomes.quality_reader(self.quality_estimator) or self._quality_estimator(),
            X,
            outcomes.quality,
            costs,
            folds=folds,
            task=task,
            planned=planned if planned is not None and costs.ndim == 2 else None,
            cost_estimator=self.cost_estimator_,
            exchangeable=self.cv is None or isinstance(self.cv, Integral),
            reg_lambda=self.reg_lambda,
            deciding=self.routing_cost,
            n_jobs=self.n_jobs,
            fit_params=routed["quality_estimator"]["fit"],
            known=outcomes.known,
            handed=self.abstain_quality_,
        )
        self._log, self._row_keys = outcomes.kind, row_keys(X)
        self.choices_ = [self._names[column] for column in self.columns_]
        self.choices_ += [ABSTAIN_NAME] * (self.abstain_quality_ is not None)
        check_affordable(budget, self._priced.least)
        warn_of_fit(self._priced, self.choices_, budget)
        if self._log is not None:
            warn_of_overlap(self.overlap_)

    def _read(self, X, y, costs, choice, propensity):
        """Outcomes as tables, and the names of their columns."""
        if choice is not None:
            return read_log(self, X, y, choice, propensity, costs)
        if propensity is not None:
            raise ValueError("propensity belongs to a log of one answer per request: give choice.")
        self._frame_columns = column_names(y)
        quality = check_matrix(y, "y", allow_nan=True)
        check_consistent_length(X, quality)
        self._names = self._check_names(quality.shape[1])
        # Frames of costs and of quality are read by these names from here on.
        self._frame_columns = self._names if self._named else None
        return table_outcomes(quality, check_fit_costs(self, costs, quality.shape), self._names)

    def _check_names(self, n_choices):
        """Names of the columns of Q: the frame's, else those in `costs`, else numbered."""
        names = self._frame_columns
        costs = by_label(self.costs)
        named = isinstance(costs, Mapping)
        self._named = names is not None or named
        if names is None:
            names = list(map(str, costs if named else range(n_choices)))
            names = names if named else [f"choice{name}" for name in names]
        if len(names) != n_choices:
            raise ValueError(
                f"y has {n_choices} columns but costs names {len(names)} choices: {names!r}."
                + " For a log of one answer for each request give choice, too." * (n_choices == 1)
            )
        return names

    def _policy(self):
        check_is_fitted(self)
        fitted = self._priced
        if fitted.per_row != (self.costs is None):
            raise ValueError(
                "costs was changed between fixed and per row (None) after fit: fit again, or set "
                "it back."
            )
        costs = None if fitted.per_row else self._fixed_costs()[self.columns_]
        costs = with_handed(costs, self.abstain_quality_)
        check_lambda(self.reg_lambda)
        return fitted.solved(self.reg_lambda, costs)

    @property
    def costs_(self):
        """Cost of each choice; the mean of the log where costs are per row."""
        policy = self._policy()
        return policy.costs.mean(axis=0) if policy.per_row else policy.planned

    def _estimates_and_state(self, X, of):
        return of(X), None

    def _look(self, x, trade):
        return Look(x, {})

    def _trade(self, budget):
        return Trade(self._policy())

    def _plan(self, X, budget, costs=None, exclude=None, allowed=None, request_id=None):
        check_rows_match(X=X, costs=costs, allowed=allowed, request_id=request_id)
        limits = limits_of(self.choices_, num_samples(X), exclude, allowed)
        draw = tie_draws(X, request_id)
        policy = self._policy().restricted(limits.kept)
        told = costs is not None
        if policy.per_row or told:
            costs = self._row_costs(X, costs)[:, limits.kept]
        else:
            costs = policy.planned
        plan = policy.decide(
            self._estimated(X, policy)[0] - policy.docked,
            costs,
            budget,
            policy=self.policy,
            objective=self.objective,
            told=told,
            draw=draw,
            allowed=limits.allowed,
        )
        return plan._replace(route=limits.kept[plan.route])

    def _alone(self, X, name, response, costs=None, **call):
        """Every row answered by one choice, without a decision."""
        n, at = num_samples(X), self.choices_.index(name)
        per_row = self._policy().per_row
        cost = self._row_costs(X, costs)[:, at] if per_row else np.full(n, self.costs_[at])
        plan = Plan(np.full(n, at), cost)
        y_pred = None if response is None else self._answer(X, plan, response)
        return Routed(y_pred, plan.route, cost)

    def _row_costs(self, X, costs):
        """Costs of rows to decide on: as given, else estimated."""
        shape = (num_samples(X), len(self._names))
        if not self._priced.per_row:
            raise ValueError(
                "costs per row were given, but this router decides by the fixed costs of its "
                "constructor. For other prices use set_params(costs=...), which acts at once; what "
                "calls are expected to cost by the log is predict_routed(X).expected_cost."
            )
        if costs is not None:
            costs = check_row_costs(costs, self._frame_columns, shape)[:, self.columns_]
            return with_handed(costs, self.abstain_quality_)
        if self.cost_estimator_ is None:
            raise ValueError(
                f"costs must be given for the rows to decide on, array-like of shape {shape}: the "
                "router was fitted on costs per row without a cost_estimator."
            )
        n_outputs = self._priced._n_outputs - (self.abstain_quality_ is not None)
        estimated = once_of(self).whole(
            "costs", lambda: predict_costs(self.cost_estimator_, X, n_outputs)
        )
        return self._priced.narrowed(with_handed(estimated, self.abstain_quality_))

    def score(self, X, y, sample_weight=None, budget=None, costs=None, **context):
        """Realised mean quality of the choices made; a row handed over counts as in `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        y : {array-like, dataframe} of shape (n_samples, n_choices)
            Q: quality of each choice on each row, with the columns that `fit` saw and those of
            choices added later; dropped ones may be left out. Rows of which the choice made
            has NaN, not known, do not count.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        **context : keyword arguments
            ``exclude``, ``allowed`` and ``request_id``, as in `predict`.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        check_rows_match(X=X, y=y, costs=costs, **context)
        names, at = self._columns_in(y)
        quality = check_matrix(y, "y", names if self._named else None, allow_nan=True)
        check_consistent_length(X, quality)
        if quality.shape[1] != len(names):
            raise ValueError(
                f"y must have the {len(names)} columns that fit saw, got {quality.shape[1]}."
            )
        route = self.route(X, budget=budget, costs=costs, **context)
        realised = self._realised(quality, route, at)
        weight = check_sample_weight(sample_weight, X)
        known = ~np.isnan(realised)
        if not weight[known].sum() > 0:
            raise ValueError("y is NaN, not known, for every choice that was made.")
        return float(np.average(realised[known], weights=weight[known]))

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(quality_estimator=self._quality_estimator(), method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        # An iterable of splits takes nothing, and may be read once only.
        splitter = self.cv if hasattr(self.cv, "split") else KFold()
        router.add(splitter=splitter, method_mapping=split)
        if self.cost_estimator is not None:
            router.add(cost_estimator=self.cost_estimator, method_mapping=fit)
        return router

    def _quality_estimator(self):
        if self.quality_estimator is None:
            return default_quality_estimator()
        return self.quality_estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        readers = [self._quality_estimator()]
        if self.cost_estimator is not None:
            readers.append(self.cost_estimator)
        tags = inherit_member_tags(tags, readers)
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
