"""BudgetRouter: learn from outcomes which choice each row is worth."""

import warnings

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.assignment import assignment_path, choose_at_price, solve_assignment
from skroute.base import (
    CostAwareMixin,
    Plan,
    check_budget,
    check_costs,
    check_rows,
    inherit_member_tags,
    note_failure,
)
from skroute.routing._stream import StreamMixin, StreamPolicy
from skroute.routing._values import dominated, out_of_sample_quality, penalty, quality_folds
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    _fit_context,
    check_sample_weight,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)
from skroute.utils._tensors import on_host


def check_policy(policy, objective):
    """The two parameters that must agree."""
    if objective == "min" and policy != "batch":
        raise ValueError(
            f'objective="min" needs policy="batch", got policy={policy!r}: the smallest quality '
            "of a batch is not decided row by row."
        )


def default_accuracy_estimator():
    """OCCAM's estimator on an embedding scaled to [0, 1], as in the paper."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    from skroute.quality import BaggedNeighborsRegressor

    return make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor())


class BudgetRouter(StreamMixin, CostAwareMixin, MetaEstimatorMixin, BaseEstimator):
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
    accuracy_estimator : multi-output regressor, default=None
        Maps X to the quality of each choice. None takes
        :class:`~skroute.quality.BaggedNeighborsRegressor` on features scaled to [0, 1].

    costs : mapping from str to float or array-like of shape (n_choices,), default=None
        Cost per call of each choice. None when costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_choices).

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. Raising it buys
        the dearer choice for more rows.

    cost_estimator : multi-output regressor, default=None
        For costs per row that are known only after the call: learns them from X. None
        when the costs of new rows are known before and passed to `predict`.

    reg_lambda : float, default=0.0
        OCCAM's lambda: how many standard deviations of its estimation error a choice is
        docked. Raising it prefers choices whose quality is predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on their (estimated, where learned) cost.

    objective : {"mean", "min"}, default="mean"
        With ``policy="batch"``: maximise the mean estimated quality or the smallest one.

    drop_dominated : bool, default=False
        Whether to leave out choices that are dearer and on average no better than
        another.

    routing_cost : float, default=0.0
        Cost of deciding on one row, paid for every row and part of the budget, in the
        unit of `costs`.

    cv : int or splitter, default=5
        Folds that make the quality estimates out-of-sample; an int shuffles with a fixed
        seed. Where rows repeat or belong together, a splitter must keep them together.

    n_jobs : int, default=None
        Folds fitted in parallel.

    Attributes
    ----------
    choices_ : list
        Names of the choices that `route` indexes: the columns of Q where it is a data
        frame, else the keys of `costs`, else 0, 1, ...

    columns_ : ndarray of shape (n_choices,)
        Columns of Q that the choices are; fewer than Q has with `drop_dominated`.

    accuracy_estimator_ : estimator
        Fitted on all rows.

    cost_estimator_ : estimator or None
        Fitted on all rows, where costs per row are learned.

    costs_ : ndarray of shape (n_choices,)
        Cost of each choice; the mean where costs are per row.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean logged quality of each choice.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error.

    min_budget_ : float
        The smallest feasible budget: the mean of the cheapest choices, `routing_cost` included.

    path_ : AssignmentPath
        Price for every budget, `routing_cost` not included.

    price_ : float
        Price at `budget`; infinite where it is the smallest feasible one.

    validation_quality_ : float
        Mean logged quality of the cross-fitted policy at `budget`.

    validation_cost_ : float
        Its mean cost.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : The same with classifiers that it fits and calls.

    Notes
    -----
    Metadata routed to `accuracy_estimator` or `cost_estimator`, such as
    ``sample_weight``, reaches the cross-fitted estimates too, but price, penalty and
    validation numbers are plain means over the rows.

    The online policy holds the budget on average, not exactly: the final estimator has
    seen more rows than those of the cross-fits, so that its estimates spread further and
    the mean cost tends to lie somewhat above the budget; more folds lessen that. A cap is
    ``policy="batch"`` or :meth:`stream`.

    `fit` warns when the cross-fitted policy's quality is below that of the best single
    choice that the budget allows by more than 1.645 standard errors.

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

    _call_context = ("costs",)
    _acts_at_once = ("budget", "policy", "objective", "reg_lambda")

    _parameter_constraints: dict = {
        "accuracy_estimator": [HasMethods(["fit", "predict"]), None],
        "costs": [dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "cost_estimator": [HasMethods(["fit", "predict"]), None],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "objective": [StrOptions({"mean", "min"})],
        "drop_dominated": ["boolean"],
        "routing_cost": [Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        accuracy_estimator=None,
        *,
        costs=None,
        budget=None,
        cost_estimator=None,
        reg_lambda=0.0,
        policy="online",
        objective="mean",
        drop_dominated=False,
        routing_cost=0.0,
        cv=5,
        n_jobs=None,
    ):
        self.accuracy_estimator = accuracy_estimator
        self.costs = costs
        self.budget = budget
        self.cost_estimator = cost_estimator
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.objective = objective
        self.drop_dominated = drop_dominated
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, costs=None, **params):
        """Learn the quality of each choice and the price of the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests; whatever `accuracy_estimator` takes.

        y : {array-like, dataframe} of shape (n_samples, n_choices) or (n_samples,)
            Q: quality of each choice on each row, higher is better. Measured on rows that
            the models were not fitted on.

        costs : array-like of shape (n_samples, n_choices), default=None
            What each choice cost on each row. Only where the constructor's `costs` is
            None.

        **params : dict
            Metadata for `accuracy_estimator`, through metadata routing.

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
        raise_for_params(params, self, "fit")
        # From here on a failure leaves the estimator unfitted.
        vars(self).pop("choices_", None)
        check_policy(self.policy, self.objective)
        if y is None:
            raise ValueError("BudgetRouter requires y to be passed, but the target y is None.")
        X = check_rows(self, X, reset=True)
        columns = getattr(y, "columns", None)
        self._frame_columns = None if columns is None else list(columns)
        quality = _check_matrix(y, "y")
        check_consistent_length(X, quality)
        names = self._check_names(self._frame_columns, quality.shape[1])
        row_costs = self._check_fit_costs(costs, names, quality.shape)
        mean_costs = row_costs.mean(axis=0) if row_costs.ndim == 2 else row_costs

        kept = np.ones(len(names), dtype=bool)
        if self.drop_dominated:
            kept = ~dominated(quality.mean(axis=0), mean_costs)
        quality, row_costs = quality[:, kept], row_costs[..., kept]
        names = [name for name, keep in zip(names, kept) if keep]
        self._least = self._check_affordable(check_budget(self.budget), row_costs)

        estimator = self._accuracy_estimator()
        routed = process_routing(self, "fit", **params) if routing_enabled() else {}
        folds = quality_folds(self.cv)
        with note_failure("accuracy_estimator", len(quality), "the quality estimate"):
            fit_params = routed["accuracy_estimator"]["fit"] if routed else {}
            estimate = out_of_sample_quality(estimator, X, quality, folds, self.n_jobs, fit_params)
            fitted = clone(estimator).fit(X, _as_target(quality), **fit_params)
        fitted_costs = None
        planned = row_costs
        if self.cost_estimator is not None:
            with note_failure("cost_estimator", len(quality), "the cost estimate"):
                fit_params = routed["cost_estimator"]["fit"] if routed else {}
                # The price must be learned on costs as they will be known: estimated.
                planned = out_of_sample_quality(
                    self.cost_estimator, X, row_costs, folds, self.n_jobs, fit_params
                )
                planned = np.maximum(planned, 0.0)
                fitted_costs = clone(self.cost_estimator)
                fitted_costs.fit(X, _as_target(row_costs), **fit_params)

        sigma = penalty(estimate, quality)
        values = estimate - self.reg_lambda * sigma
        path = assignment_path(values, planned)
        budget = check_budget(self.budget) - self.routing_cost
        rows = np.arange(len(quality))
        self.path_ = path
        price = self._price_at(budget)
        route = choose_at_price(values, planned, price)

        self.accuracy_estimator_ = fitted
        self.cost_estimator_ = fitted_costs
        self.costs_ = mean_costs[kept]
        self.mean_quality_ = quality.mean(axis=0)
        self.quality_std_ = sigma
        self.price_ = price
        spent = np.broadcast_to(row_costs, quality.shape)[rows, route]
        self.validation_quality_ = float(quality[rows, route].mean())
        self.validation_cost_ = float(spent.mean()) + self.routing_cost
        self._per_row_costs = row_costs.ndim == 2
        self.columns_ = np.flatnonzero(kept)
        self._n_columns = len(kept)
        self.choices_ = names
        self._warn_if_a_single_choice_is_better(quality, route)
        return self

    def _check_names(self, names, n_choices):
        if names is None:
            names = list(self.costs) if isinstance(self.costs, dict) else list(range(n_choices))
        if len(names) != n_choices:
            raise ValueError(
                f"y has {n_choices} columns but costs names {len(names)} choices: {names!r}."
            )
        return names

    def _check_fit_costs(self, costs, names, shape):
        if self.costs is not None:
            if costs is not None:
                raise ValueError(
                    "costs was given both to the constructor and to fit; costs per row need "
                    "BudgetRouter(costs=None)."
                )
            if self.cost_estimator is not None:
                raise ValueError(
                    "cost_estimator learns costs per row, but the constructor has fixed "
                    f"costs={self.costs!r}. Leave one of them out."
                )
            return check_costs(self.costs, names)
        if costs is None:
            raise ValueError(
                f"costs must say what each of {names!r} costs, got None. Give a mapping or an "
                "array to the constructor, or one cost per row and choice to fit."
            )
        return _check_row_costs(costs, self._frame_columns, shape)

    @property
    def min_budget_(self):
        check_is_fitted(self)
        return self._least + self.routing_cost

    def _check_affordable(self, budget, costs):
        """The smallest mean cost of any plan, routing excluded, if the budget affords it."""
        cheapest = float(np.min(costs, axis=-1).mean())
        self._check_at_least(budget, cheapest)
        return cheapest

    def _check_at_least(self, budget, cheapest):
        """The smallest feasible budget includes what routing itself costs."""
        least = cheapest + self.routing_cost
        if budget < least * (1 - 1e-12):
            raise ValueError(
                f"budget={budget!r} is below the cheapest feasible plan: the smallest "
                f"feasible budget is {least:.17g} per sample."
            )

    def _warn_if_a_single_choice_is_better(self, quality, route):
        budget = check_budget(self.budget) - self.routing_cost
        affordable = np.flatnonzero(self.costs_ <= budget * (1 + 1e-12))
        if len(affordable) == 0 or len(quality) < 2:
            return
        single = affordable[np.argmax(self.mean_quality_[affordable])]
        loss = quality[:, single] - quality[np.arange(len(quality)), route]
        error = loss.std(ddof=1) / np.sqrt(len(loss))
        if loss.mean() > 1.645 * error and loss.mean() > 0:
            warnings.warn(
                f"On validation rows the router's quality {self.validation_quality_:.4g} is below "
                f"the {self.mean_quality_[single]:.4g} of {self.choices_[single]!r} alone, which "
                f"fits the budget. Try a larger reg_lambda, another accuracy_estimator or better "
                "features, or use that choice for all rows.",
                UserWarning,
                stacklevel=2,
            )

    def predict_quality(self, X):
        """Estimated quality of each choice, before the penalty.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
        """
        check_is_fitted(self)
        return self._quality(check_rows(self, X, reset=False))

    def _quality(self, X):
        with note_failure("accuracy_estimator", num_samples(X), "predict"):
            estimate = on_host(self.accuracy_estimator_.predict(X))
        estimate = np.asarray(estimate, dtype=np.float64)
        return estimate.reshape(num_samples(X), len(self.choices_))

    def _estimate(self, X, costs=None):
        """What each choice is worth for each row, less the penalty, and what it costs."""
        values = self._quality(X) - self.reg_lambda * self.quality_std_
        return values, self._plan_costs(X, costs, values.shape)

    def _price_at(self, budget):
        """Price at a mean budget from which `routing_cost` has been taken."""
        if budget <= self.path_.budgets[0] * (1 + 1e-12):
            # Nothing is left to buy with, however much a new row promises. (Of costs that are
            # estimated the cheapest plan may seem dearer than the budget.)
            return np.inf
        return self.path_.price(budget)

    def _look(self, x):
        return x, None, None

    def _stream_policy(self, budget):
        return StreamPolicy(
            names=self.choices_,
            first=0,
            deciding=float(self.routing_cost),
            costs=None if self._per_row_costs else self.costs_.tolist(),
            least=self._least,
            penalty=(self.reg_lambda * self.quality_std_).tolist(),
            look=self._look,
            quality=self._quality,
            price=self._price_at,
            row_costs=self._plan_costs,
            estimated_costs=self.cost_estimator_ is not None,
        )

    def _plan(self, X, budget, costs=None):
        return self._plan_by(self.policy, self.objective, X, budget, costs)

    def _plan_by(self, policy, objective, X, budget, costs=None):
        # Both may have been changed since fit.
        check_policy(policy, objective)
        values, costs = self._estimate(X, costs)
        room = budget - self.routing_cost
        if policy == "online":
            self._check_at_least(budget, self._least)
            route = choose_at_price(values, costs, self._price_at(room))
        else:
            cheapest = self._check_affordable(budget, costs)
            route = solve_assignment(
                values, costs, max(room, cheapest), objective=objective
            ).choices
        cost = np.broadcast_to(costs, values.shape)[np.arange(len(values)), route]
        return Plan(route, cost + self.routing_cost)

    def _plan_costs(self, X, costs, shape):
        if not self._per_row_costs:
            if costs is not None:
                raise ValueError("costs per row were given, but the router was fitted without.")
            return self.costs_
        if costs is not None:
            shape = (shape[0], self._n_columns)
            return _check_row_costs(costs, self._frame_columns, shape)[:, self.columns_]
        if self.cost_estimator_ is None:
            raise ValueError(
                "costs must be given for the rows to decide on, array-like of shape "
                f"{(shape[0], self._n_columns)}: the router was fitted on costs per row without a "
                "cost_estimator."
            )
        with note_failure("cost_estimator", num_samples(X), "predict"):
            estimate = np.asarray(self.cost_estimator_.predict(X), dtype=np.float64)
        return np.maximum(estimate.reshape(shape), 0.0)

    def _answer(self, X, plan, response):
        return np.asarray(self.choices_)[plan.route]

    def predict_routed(self, X, budget=None, costs=None):
        """Name, index and cost of the choice made for each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``; `y_pred` are names of choices.
        """
        return self._respond(X, "predict", budget=budget, costs=costs)

    def predict(self, X, budget=None, costs=None):
        """Name of the choice made for each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        Returns
        -------
        ndarray of shape (n_samples,)
            Entries of ``choices_``.
        """
        return self.predict_routed(X, budget=budget, costs=costs).y_pred

    def route(self, X, budget=None, costs=None):
        """Index of the choice made for each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
            Index into ``choices_``.
        """
        return self._respond(X, None, budget=budget, costs=costs).route

    def predict_cost(self, X, budget=None, costs=None):
        """Cost of the choice made for each row, `routing_cost` included.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Estimated where a `cost_estimator` learned it.
        """
        return self._respond(X, None, budget=budget, costs=costs).cost

    def score(self, X, y, sample_weight=None, budget=None, costs=None):
        """Realised mean quality of the choices made.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Features of the requests.

        y : {array-like, dataframe} of shape (n_samples, n_choices)
            Q: quality of each choice on each row, with the columns that `fit` saw.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        costs : array-like of shape (n_samples, n_choices), default=None
            Costs of these rows, where they differ from row to row and are known before.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        quality = _check_matrix(y, "y", self._frame_columns)
        check_consistent_length(X, quality)
        if quality.shape[1] != self._n_columns:
            raise ValueError(
                f"y must have the {self._n_columns} columns that fit saw, got {quality.shape[1]}."
            )
        quality = quality[:, self.columns_]
        route = self.route(X, budget=budget, costs=costs)
        realised = quality[np.arange(len(route)), route]
        weight = check_sample_weight(sample_weight, X)
        return float(np.average(realised, weights=weight))

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(accuracy_estimator=self._accuracy_estimator(), method_mapping=fit)
        if self.cost_estimator is not None:
            router.add(cost_estimator=self.cost_estimator, method_mapping=fit)
        return router

    def _accuracy_estimator(self):
        if self.accuracy_estimator is None:
            return default_accuracy_estimator()
        return self.accuracy_estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        readers = [self._accuracy_estimator()]
        if self.cost_estimator is not None:
            readers.append(self.cost_estimator)
        tags = inherit_member_tags(tags, readers)
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def _check_matrix(matrix, name, columns=None):
    """A matrix with one column per choice; a frame's columns in the order that fit saw."""
    if columns is not None and hasattr(matrix, "columns"):
        if sorted(map(str, columns)) != sorted(map(str, matrix.columns)):
            raise ValueError(
                f"{name} must have the columns {columns!r}, got {list(matrix.columns)!r}."
            )
        matrix = matrix[columns]
    matrix = check_array(matrix, dtype=np.float64, ensure_2d=False, input_name=name)
    return matrix.reshape(len(matrix), -1)


def _check_row_costs(costs, columns, shape):
    costs = _check_matrix(costs, "costs", columns)
    if costs.shape != shape:
        raise ValueError(
            f"costs must have one cost per row and choice, shape {shape}, got {costs.shape}."
        )
    if costs.min() < 0:
        raise ValueError(f"costs must not be negative, got {float(costs.min())!r}.")
    return costs


def _as_target(quality):
    """One choice is a single-output regression: not every regressor takes (n, 1)."""
    return quality[:, 0] if quality.shape[1] == 1 else quality
