"""Curves of a fitted estimator: quality over cost, and risk over coverage."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget
from skroute.base._inspection import (
    ABSTAIN_NAME,
    abstained,
    can_abstain,
    takes_keyword,
)
from skroute.base._protocol import Plan, routed_of
from skroute.metrics._objectives import qualities_of, rows_of, worth_of
from skroute.utils._cache import with_cache
from skroute.utils._compat import num_samples
from skroute.utils._named import check_rows_match
from skroute.utils._tables import (
    Column,
    Table,
    choice_columns,
    note_of_unused,
    share_column,
)
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    check_known_labels,
    check_numbers,
    check_row_weights,
    check_some_known,
    refuse_missing,
)


class AccuracyCostCurve(NamedTuple):
    """Quality and cost of an estimator at each budget.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,), dtype=float64
        The budgets, in the order given. Infinity is unlimited.

    quality : ndarray of shape (n_budgets,), dtype=float64
        Mean quality: accuracy for one label per row.

    cost : ndarray of shape (n_budgets,), dtype=float64
        Mean bill per row, or its expectation, see `billed`.

    route_share : ndarray of shape (n_budgets, n_choices), dtype=float64
        Share of the rows for which each choice was made; rows sum to 1.

    choices : list
        Names of the choices, the columns of `route_share`.

    row_quality, row_cost : ndarray of shape (n_samples, n_budgets), dtype=float64
        Quality and cost of each row, for :func:`bootstrap_interval`.

    billed : bool, default=True
        True if costs are bills. False if they are expected bills: bills come after the
        call, and were not given.
    """

    budget: NDArray[np.float64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    route_share: NDArray[np.float64]
    choices: list[Any]
    row_quality: NDArray[np.float64]
    row_cost: NDArray[np.float64]
    billed: bool = True

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the curve as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each budget, with the columns ``budget``, ``cost``, ``quality``,
            and ``share_<name>`` for each choice.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the curve as a `Table`, without the values of single rows."""
        n_budgets, n_rows = len(self.budget), len(self.row_cost)
        return Table(
            f"AccuracyCostCurve: {n_budgets} budgets, {n_rows:,} rows",
            [
                Column("budget", self.budget, unit="per row"),
                Column("cost", self.cost, unit="per row"),
                Column("quality", self.quality, unit="mean"),
                *choice_columns(self.choices, self.route_share),
            ],
            notes=[
                f"Cost: {name_of_cost(self)}.",
                *note_of_unused(self.choices, self.route_share),
            ],
        )


def name_of_cost(curve):
    """Return a label of the costs of a curve: billed, expected, or by `predict_cost`.

    It begins with a small letter.
    """
    # A curve without the field `billed` has the costs of ``predict_cost``.
    billed = getattr(curve, "billed", None)
    if billed is None:
        return "mean cost per row, by predict_cost"
    if billed:
        return "mean cost per row, as billed"
    return "mean expected cost per row"


class RowOutcomes(NamedTuple):
    """Quality, choice and cost of each row, from one pass over the rows.

    Attributes
    ----------
    quality : ndarray of shape (n_rows,)
        Quality of each answer. NaN where it is unknown.

    route : ndarray of shape (n_rows,), dtype=int64
        Index of the choice made for each row.

    cost : ndarray of shape (n_rows,)
        Bill of each row, or its expectation.

    billed : bool
        True if `cost` has bills.
    """

    quality: NDArray[np.float64]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    billed: bool


class SingleChoices(NamedTuple):
    """Quality and cost of the choices that can answer every row alone.

    Attributes
    ----------
    names : list of str
        The single choices. Abstaining is the last one if rows can abstain.

    quality, cost : ndarray of shape (n_rows, n_names)
        Quality and cost of each row if one choice answers all rows.
    """

    names: list[str]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]


def check_budgets(budgets):
    """Return a list of budgets as an array. None (unlimited) becomes infinity."""
    is_sequence = np.iterable(budgets) and not isinstance(budgets, str)
    budget_list = list(budgets) if is_sequence else []
    if not budget_list:
        raise ValueError(
            "budgets must be a non-empty list of numbers (mean costs per sample), got "
            f"{budgets!r}."
        )
    checked = [check_budget(budget, name="each of budgets") for budget in budget_list]
    return np.array(checked)


def find_router(estimator, X):
    """Return the cost-aware estimator inside a search or a pipeline, and its rows.

    Parameters
    ----------
    estimator : fitted estimator
    X : array-like of shape (n_rows, n_features)
        Rows as `estimator` takes them.

    Returns
    -------
    router : fitted decision estimator
    X : array-like of shape (n_rows, n_router_features)
        The rows after the transformers of the pipeline.

    Raises
    ------
    TypeError
        If there is no cost-aware estimator.
    """
    if hasattr(estimator, "best_estimator_"):
        # The estimator is a search over parameters.
        return find_router(estimator.best_estimator_, X)
    if hasattr(estimator, "rows_for_decision"):
        # The estimator delegates its decisions to another estimator.
        return find_router(
            estimator.decision_estimator(), estimator.rows_for_decision(X)
        )
    if hasattr(estimator, "predict_routed"):
        check_is_fitted(estimator)
        return estimator, X
    if hasattr(estimator, "steps"):
        # The estimator is a pipeline, whose last step decides.
        if len(estimator.steps) > 1:
            X = estimator[:-1].transform(X)
        return find_router(estimator[-1], X)
    raise TypeError(
        "estimator must be a fitted cost-aware estimator (one with predict_routed), a "
        "pipeline that ends with one, or a search over one of these; got "
        f"{estimator!r}."
    )


def checked_targets(y, router):
    """Check that answers can be compared with targets, and return them as an array.

    Parameters
    ----------
    y : array-like
        True labels or numbers, none of them missing. For a router that only routes,
        qualities of its choices, some of which may be unknown.
    router : fitted decision estimator

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_columns)
        Unknown qualities are NaN.
    """
    predicts = is_classifier(router) or is_regressor(router)
    n_axes = getattr(y, "ndim", np.ndim(y))
    if not predicts and n_axes == 2:
        # The router only routes: `y` has a column for each choice.
        qualities = qualities_of(y, router)
        if np.isnan(qualities).all():
            raise ValueError(
                "y is NaN, not known, in all cells: no choice could be measured. Give "
                "rows of known quality."
            )
        return qualities
    refuse_missing(y=y)
    targets = rows_of(y, router)
    if targets.ndim not in (1, 2):
        raise ValueError(
            f"y must have one true answer for each row, or one column for each label "
            f"or choice, got shape {targets.shape}. Give an array of one or two axes."
        )
    if is_regressor(router):
        return check_numbers(targets, "y")
    if is_classifier(router) and targets.ndim == 1:
        check_some_known(targets, router.classes_)
    elif is_classifier(router) and targets.shape[1] != len(router.classes_):
        raise ValueError(
            f"y of shape {targets.shape} must have one label for each row, or, for "
            f"several labels in a row, one column for each of the "
            f"{len(router.classes_)} classes_. Give y as in fit."
        )
    return targets


def check_bills(router, n_rows, bills):
    """Raise an error if a router cannot read bills. No model is called.

    Parameters
    ----------
    router : fitted decision estimator
    n_rows : int
    bills : {array-like, dataframe} of shape (n_rows, n_choices)
    """
    while hasattr(getattr(router, "estimator_", None), "predict_routed"):
        # A certified router bills the plans of the estimator inside.
        router = router.estimator_
    # The plan in which the first choice answers every row. `plan_single` is not used,
    # since it may call an estimator of costs.
    first_choice = np.zeros(n_rows, dtype=np.int64)
    router.bill(Plan(first_choice, np.zeros(n_rows), decided=False), bills)


class BudgetSweep:
    """Evaluation of a fitted estimator on test rows at many budgets.

    Calls of models are cached: each model is called at most once about a row.

    Parameters
    ----------
    estimator, X, y, row_quality, sample_weight, costs
        As in :func:`accuracy_cost_curve`.

    **params : keyword arguments
        Further arguments of ``predict_routed``.

    Attributes
    ----------
    router : decision estimator
        The fitted estimator inside of `estimator`, with a cache.

    X : array-like of shape (n_rows, n_features)
        The rows that the router gets. None if it needs none.

    y : ndarray of shape (n_rows,) or (n_rows, n_columns)
        True answers, or qualities of the choices.

    n_rows : int

    weight : ndarray of shape (n_rows,)
        Weight of each row in a mean.

    objective : Objective
        The quality that answers are measured by.

    bills : {array-like, dataframe} of shape (n_rows, n_choices) or None
        What each choice is billed on each row. None if the costs that the router
        reports count.

    params : dict
        Keyword arguments of each call of the router, without the budget.
    """

    def __init__(
        self,
        estimator,
        X,
        y,
        *,
        row_quality=None,
        sample_weight=None,
        costs=None,
        **params,
    ):
        # The row labels (index) of frames are compared before `find_router`: rows that
        # a pipeline has transformed may have lost them.
        check_rows_match(X=X, y=y, sample_weight=sample_weight, costs=costs, **params)
        if y is None:
            raise ValueError(
                "y must have the true answer of each row, or the quality of each "
                "choice, got None. Give y: answers are compared with it."
            )
        if X is not None and not isinstance(X, Mapping):
            # Lengths and weights are checked before a pipeline transforms the rows.
            check_consistent_length(X, y)
        self.n_rows = num_samples(y)
        self.weight = check_row_weights(sample_weight, self.n_rows)
        router, self.X = find_router(estimator, X)
        if self.X is not None:
            # X is None for a cascade that needs no features of rows.
            check_consistent_length(self.X, y)
        if row_quality is None:
            self.y = checked_targets(y, router)
        else:
            # `row_quality` may rate the answer to a row without a label. So `y` may
            # have missing labels, and is not checked.
            self.y = rows_of(y, router)
        self.objective = worth_of(router, y, row_quality)
        if self.objective.classes is not None:
            # Such a quality has no number for a label that is not a class.
            check_known_labels(self.y, self.objective.classes)
        # The argument `costs` has the actual cost (bill) of each choice on each row.
        self.bills = costs
        if costs is not None and router.needs_costs_:
            # This router was fitted on costs of each row, which are known before the
            # call. It decides by the same numbers that it is billed.
            params = {"costs": costs, **params}
        self.params = params
        if takes_keyword(router, "y_true"):
            # The strategy "oracle" decides by the true answers.
            self.params = {"y_true": y, **params}
        self.router = with_cache(router)
        if costs is not None:
            check_bills(router, self.n_rows, costs)

    @property
    def quality_label(self):
        """Name of the quality in displays; None for accuracy and logged qualities."""
        name = self.objective.name
        if name in ("accuracy", "row_quality"):
            return None
        if name == "cost matrix":
            return "Quality (minus cost)"
        if name == "callable":
            return "Quality (given function)"
        return f"Quality ({name})"

    def outcomes(self, budget):
        """Return quality, route and cost of each row at a budget.

        Parameters
        ----------
        budget : float or None
            Infinity is unlimited. None is the estimator's own budget.

        Returns
        -------
        RowOutcomes
        """
        call = self.router.make_call(budget, **self.params)
        plan = self.router.plan(self.X, call)
        # Wrong bills are an error before a model is called.
        cost = self._cost_of(plan)
        # `asks` is the method of the models that returns what the objective rates.
        routed = routed_of(plan, self.router.answer(plan, self.objective.asks))
        quality = self.objective.of_routed(self.y, routed, self.router, self.weight)
        return self._outcomes_of(plan, quality, cost)

    def _cost_of(self, plan):
        """Return the bill of each row of a plan, or its cost without bills."""
        if self.bills is None:
            return plan.cost
        return self.router.bill(plan, self.bills)

    def _outcomes_of(self, plan, quality, cost):
        """Return the results of a plan (`RowOutcomes`), with its cost by `_cost_of`."""
        billed = self.bills is not None or plan.is_billed
        return RowOutcomes(quality, plan.route, cost, billed=billed)

    @property
    def single_names(self):
        """Names of choices that can answer all rows, abstaining included if allowed."""
        names = list(self.router.single_choices_)
        if can_abstain(self.router) and ABSTAIN_NAME not in names:
            names.append(ABSTAIN_NAME)
        return names

    def single_choices(self):
        """Return quality and cost on all rows, for each choice that can answer alone.

        Every model is called about every row.

        Returns
        -------
        SingleChoices
        """
        names = self.single_names
        quality = np.empty((self.n_rows, len(names)))
        cost = np.empty((self.n_rows, len(names)))
        for column, name in enumerate(names):
            if name == ABSTAIN_NAME:
                # Rows that abstain have a fixed quality and cost nothing.
                quality[:, column] = self.router.abstain_quality_
                cost[:, column] = 0.0
            else:
                outcomes = self._outcomes_of_single(name)
                quality[:, column] = outcomes.quality
                cost[:, column] = outcomes.cost
        return SingleChoices(names, quality, cost)

    def _outcomes_of_single(self, name):
        """Return quality, route and cost of each row if one choice answers all rows."""
        call = self.router.make_call(**self.params)
        plan = self.router.plan_single(self.X, name, call)
        # `asks` is the method of the models that returns what the objective rates.
        routed = routed_of(plan, self.router.answer(plan, self.objective.asks))
        quality = self.objective.of_single(self.y, routed, self.router, self.weight)
        return self._outcomes_of(plan, quality, self._cost_of(plan))

    def curve(self, budgets):
        """Return quality, cost and routes at each budget.

        Parameters
        ----------
        budgets : sequence of n_budgets floats
            Infinity is unlimited. ``[None]`` is the estimator's own budget alone.

        Returns
        -------
        AccuracyCostCurve
        """
        choices = list(self.router.choices_)
        quality = np.empty((self.n_rows, len(budgets)))
        cost = np.empty((self.n_rows, len(budgets)))
        # Total weight of the rows of each choice.
        route_weight = np.empty((len(budgets), len(choices)))
        # True if the costs at all budgets are actual costs (bills), not expected ones.
        billed = True
        # The smallest budget comes first: if it is not feasible, no model is called.
        for position in np.argsort(budgets, kind="stable"):
            outcomes = self.outcomes(budgets[position])
            billed = billed and outcomes.billed
            quality[:, position] = outcomes.quality
            cost[:, position] = outcomes.cost
            route_weight[position] = np.bincount(
                outcomes.route, weights=self.weight, minlength=len(choices)
            )
        mean_quality = self.means(quality)
        if np.isnan(mean_quality).any():
            # At some budget the quality of no row is known.
            raise ValueError("y is NaN, not known, for every choice that was made.")
        return AccuracyCostCurve(
            budget=budgets,
            quality=mean_quality,
            cost=self.means(cost),
            route_share=route_weight / self.weight.sum(),
            choices=choices,
            row_quality=quality,
            row_cost=cost,
            billed=billed,
        )

    def means(self, values):
        """Return the weighted mean of each column over the rows where it is not NaN.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_columns,)
            NaN for a column without values.
        """
        is_known = ~np.isnan(values)  # (n_rows, n_columns)
        totals = self.weight @ np.where(is_known, values, 0.0)
        total_weights = self.weight @ is_known
        means = np.full(len(totals), np.nan)
        # Sums are divided, not weights. So rows that all cost 1 have the exact mean 1.
        np.divide(totals, total_weights, out=means, where=total_weights > 0)
        return means


def accuracy_cost_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    budgets: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    row_quality: Any = None,
    costs: Any = None,
    **params: Any,
) -> AccuracyCostCurve:
    """Compute quality, cost and routes of a fitted estimator at several budgets.

    Answers, choices and costs come from the same pass. No model is called twice about a
    row.

    Parameters
    ----------
    estimator : estimator
        A fitted cost-aware estimator, a pipeline that ends with one, or a search over
        one of these.

    X : array-like of shape (n_samples, n_features)
        Rows that the estimator has not been fitted on.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        True labels, or an indicator matrix for multi-label predictions. For an
        estimator that only routes, the quality of each choice on each row; the columns
        of a frame are read by name. Rows on which the quality of the choice made is NaN
        do not count in the mean.

    budgets : array-like of shape (n_budgets,)
        Mean costs per sample, in the unit of the estimator's costs; None is unlimited.

    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each row in the means. None weights all alike.

    row_quality : callable, default=None
        Called as ``row_quality(y, y_pred)``. It returns the quality of each row, shape
        (n_samples,), higher is better. None takes the estimator's own `quality`. If it
        has none, this is :func:`sample_quality` for true labels, and the quality of the
        choice made for a table of qualities. A row that abstains has the estimator's
        ``abstain_quality_``.

    costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
        Bills: what each choice is billed on each row. A frame is read by name. The cost
        of the curve is then what is billed. None takes ``predict_cost``, which is an
        expectation if bills come after the call. It is required, and known before the
        call, if the router was fitted on such costs.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``quoted_costs`` of each
        row for :class:`~skroute.routing.BudgetRouter`.

    Returns
    -------
    :class:`AccuracyCostCurve`
        The curve, which prints as a table.

    Raises
    ------
    ValueError
        If a budget is not feasible (the message has the smallest feasible one), or if
        `y` and the predictions do not fit together.
    TypeError
        If `estimator` is not cost-aware.

    See Also
    --------
    AccuracyCostDisplay : Draws this curve.
    reference_curves : Oracle, random mix and best single model over the same budgets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import accuracy_cost_curve
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(600, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.5)
    >>> router = router.fit(X[:300], Q[:300])
    >>> curve = accuracy_cost_curve(router, X[300:], Q[300:], budgets=[0.1, 0.5])
    >>> curve.cost.round(2), curve.quality.round(2)
    (array([0.1, 0.5]), array([0.67, 0.77]))
    >>> curve.route_share.round(2)
    array([[1.  , 0.  ],
           [0.56, 0.44]])
    """
    checked_budgets = check_budgets(budgets)
    sweep = BudgetSweep(
        estimator,
        X,
        y,
        row_quality=row_quality,
        sample_weight=sample_weight,
        costs=costs,
        **params,
    )
    return sweep.curve(checked_budgets)


class RiskCoverageCurve(NamedTuple):
    """Mean loss (risk) by the share of rows that are answered (coverage).

    This is the result of :func:`risk_coverage_curve`, which describes the fields.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    area: float

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the curve as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each threshold, with the columns ``threshold``, ``coverage`` and
            ``risk``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the curve as the `Table` that is printed and becomes a frame."""
        return Table(
            f"RiskCoverageCurve: area {self.area:.4g} (lower is better)",
            [
                Column("threshold", self.thresholds, unit="confidence"),
                share_column("coverage", self.coverage),
                Column("risk", self.risk, unit="mean loss"),
            ],
        )


def risk_coverage_curve(
    loss: ArrayLike, confidence: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """Compute risk against coverage, if the least confident rows abstain first.

    Parameters
    ----------
    loss : array-like of shape (n_samples,)
        Loss of each answer, such as 1 for a wrong one.

    confidence : array-like of shape (n_samples,)
        Ranks the rows, such as ``predict_quality`` of a
        :class:`~skroute.routing.CascadeRouter`. Equal ones abstain together.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    RiskCoverageCurve
        Named tuple: ``coverage``, the share of the rows that are answered, in rising
        order up to 1; ``risk``, their mean loss; ``thresholds``, the smallest
        confidence that is answered; and ``area``, the mean risk over all coverages,
        lower is better.

    Raises
    ------
    ValueError
        For numbers that are not finite, negative weights, or lengths that differ.

    References
    ----------
    .. [1] Y. Geifman, R. El-Yaniv, "Selective Classification for Deep Neural Networks",
       NeurIPS 2017.

    Examples
    --------
    >>> from skroute.metrics import risk_coverage_curve
    >>> curve = risk_coverage_curve([0, 1, 0, 1], [0.9, 0.6, 0.8, 0.2])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.33, 0.5])
    """
    check_rows_match(loss=loss, confidence=confidence, sample_weight=sample_weight)
    losses = check_numbers(loss, "loss", shape=(None,))
    confidences = check_numbers(confidence, "confidence", shape=losses.shape)
    weight = check_row_weights(sample_weight, len(losses))
    # Rows of equal confidence form a level. Minus signs put the highest level first.
    minus_levels, level_of_row = np.unique(-confidences, return_inverse=True)
    # Total weight and total loss of the rows of each level, (n_levels,).
    level_weights = np.bincount(level_of_row, weight)
    level_losses = np.bincount(level_of_row, weight * losses)
    # A level whose rows all have weight 0 is left out of the curve.
    has_weight = level_weights > 0
    # Weight of the rows that are answered if this level is the lowest answered one.
    answered_weight = np.cumsum(level_weights[has_weight])
    coverage = answered_weight / answered_weight[-1]
    risk = np.cumsum(level_losses[has_weight]) / answered_weight
    # The risk at a level counts for the coverage that this level adds.
    added_coverage = np.diff(coverage, prepend=0.0)
    area = added_coverage @ risk
    return RiskCoverageCurve(
        coverage=coverage,
        risk=risk,
        thresholds=-minus_levels[has_weight],
        area=float(area),
    )


def risk_coverage_scorer(estimator: Any, X: Any, y: Any, **params: Any) -> float:
    """Return minus the area under the risk-coverage curve of a fitted estimator.

    This is a scorer for model selection. Rows are ranked by their largest probability
    in ``predict_proba``. If the estimator has no probabilities, they are ranked by
    ``predict_quality``, the estimated quality of their answer. Rows that abstain are
    left out.

    Parameters
    ----------
    estimator : estimator
        As in :func:`accuracy_cost_curve`.

    X : array-like of shape (n_samples, n_features)
        As in :func:`accuracy_cost_curve`.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        As in :func:`accuracy_cost_curve`.

    **params : keyword arguments
        ``sample_weight``, ``budget`` and further arguments of ``predict_routed``.

    Returns
    -------
    float
        Higher is better. It is at most 0 if no quality is above 1. The loss of an
        answer is ``1 - quality`` for accuracy, and minus the quality for any other
        `quality` of the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import risk_coverage_scorer
    >>> from skroute.routing import CascadeRouter
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.uniform(size=400)
    >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10})
    >>> router = router.fit(None, Q, signals={"small": sure})
    >>> cheap = risk_coverage_scorer(router, None, Q, signals={"small": sure}, budget=1)
    >>> bool(-0.35 < cheap < -0.1)
    True
    """
    budget = params.pop("budget", None)
    sweep = BudgetSweep(estimator, X, y, **params)
    outcomes = sweep.outcomes(budget)
    answered = np.flatnonzero(~abstained(sweep.router, outcomes.route))
    if not len(answered):
        # All rows abstain: there is no loss.
        return 0.0
    confidence = _confidence_of_answers(sweep, budget, outcomes.route, answered)
    # The loss is 1 - quality for accuracy, and minus the quality for other qualities.
    quality_without_loss = 1.0 if sweep.objective.name == "accuracy" else 0.0
    curve = risk_coverage_curve(
        quality_without_loss - outcomes.quality[answered],
        confidence,
        sample_weight=sweep.weight[answered],
    )
    return -curve.area


def _confidence_of_answers(sweep, budget, route, answered):
    """Return the confidence in each answer at a budget, by which rows are ranked.

    Parameters
    ----------
    sweep : BudgetSweep
    budget : float or None
        None is the estimator's own budget.
    route : ndarray of shape (n_rows,), dtype=int64
        Index of the choice made for each row.
    answered : ndarray of shape (n_answered,), dtype=int64
        Positions of the rows that are answered.

    Returns
    -------
    ndarray of shape (n_answered,)

    Raises
    ------
    TypeError
        If the estimator has neither probabilities nor estimates of quality.
    """
    router = sweep.router
    if hasattr(router, "predict_proba"):
        proba = router.predict_proba(sweep.X, budget=budget, **sweep.params)
        return proba[answered].max(axis=1)
    is_cascade = hasattr(router, "model_names_")
    if is_cascade:
        # A cascade estimates the quality of its answer at this budget, (n_rows,).
        quality = router.predict_quality(sweep.X, budget=budget, **sweep.params)
        return quality[answered]
    if hasattr(router, "predict_quality"):
        # Other routers estimate all choices, (n_rows, n_choices). Their estimates do
        # not depend on the budget.
        quality = router.predict_quality(sweep.X)
        return quality[answered, route[answered]]
    raise TypeError(
        "estimator must have predict_quality or predict_proba to rank its answers by, "
        f"which {type(router).__name__} has not."
    )
