"""Value of a policy, estimated from a log that another policy wrote."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import sem
from scipy.stats import t as student

from skroute.base._inspection import models_of
from skroute.metrics._curve import check_budgets, find_router
from skroute.quality._log_arguments import read_choice, read_propensity, read_values
from skroute.quality._logged import (
    as_numbers,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
    with_text_lengths,
)
from skroute.quality._overlap import (
    Agreement,
    beyond_range,
    effective_size,
    lack_of_overlap,
)
from skroute.utils._cache import with_cache
from skroute.utils._compat import Integral, Interval, Real, num_samples, validate_params
from skroute.utils._named import check_rows_match
from skroute.utils._tables import (
    Column,
    Table,
    choice_columns,
    format_interval,
    note_of_unused,
)
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import warn

# Largest share of new rows that may be equal to training rows of the router without a
# warning. Some requests are repeated.
_MAX_REPEATED_SHARE = 0.01
# Word for an estimate at a budget where log and router do not overlap.
_NO_OVERLAP = "no overlap"
# Number of budgets of a curve if the user gives none.
_N_BUDGETS = 9
# Hall's transformation divides by the skewness. This value replaces a smaller skewness.
# With this value the transformation hardly changes a quantile.
_LEAST_SKEWNESS = 1e-6
# Last sentence of a message about a budget without overlap.
_ADVICE = (
    "Leave the budget out of budgets, or log some requests at random "
    "(with their propensities)."
)


class OffPolicyEstimate(NamedTuple):
    """An estimate of the mean per row at each budget, with its interval.

    Attributes
    ----------
    estimate, low, high, standard_error : ndarray of shape (n_budgets,)
        NaN at a budget without overlap.
    """

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    standard_error: NDArray[np.float64]

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the estimate as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each budget, with the fields as columns.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the estimate as the `Table` that is printed and becomes a frame."""
        columns = []
        for name, values in self._asdict().items():
            columns.append(Column(name, values, missing=_NO_OVERLAP))
        return Table("OffPolicyEstimate: mean per row at each budget", columns)

    def texts(self):
        """Return the estimate at each budget with its interval, as a list of str."""
        texts = []
        for estimate, low, high in zip(self.estimate, self.low, self.high):
            texts.append(format_interval(estimate, low, high, missing=_NO_OVERLAP))
        return texts


class OffPolicyEstimates(NamedTuple):
    """Direct, SNIPS and doubly robust estimates of the same means at each budget.

    :func:`off_policy_curve` describes the three.
    """

    direct: OffPolicyEstimate
    snips: OffPolicyEstimate
    doubly_robust: OffPolicyEstimate

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the estimates as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each budget. For each of ``doubly_robust``, ``snips`` and
            ``direct`` there are the columns ``<name>``, ``<name>_low`` and
            ``<name>_high``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the estimates as the `Table` that is printed and becomes a frame."""
        columns = []
        for name in ("doubly_robust", "snips", "direct"):
            columns.extend(_columns_of(name, getattr(self, name)))
        return Table("OffPolicyEstimates: mean per row at each budget", columns)


def _columns_of(name, estimate):
    """Return three columns of an `OffPolicyEstimate`: estimates and ends of intervals.

    The printed table has all three in one column, `name`.
    """
    return [
        Column(name, estimate.estimate, texts=estimate.texts()),
        Column(f"{name}_low", estimate.low, in_text=False),
        Column(f"{name}_high", estimate.high, in_text=False),
    ]


class OffPolicyCurve(NamedTuple):
    """Quality and cost of a router at each budget, estimated from a log.

    This is the result of :func:`off_policy_curve`, which describes the fields.
    """

    budget: NDArray[np.float64]
    quality: OffPolicyEstimates
    cost: OffPolicyEstimates
    route_share: NDArray[np.float64]
    choices: list[str]
    matched: NDArray[np.int64]
    effective_sample_size: NDArray[np.float64]
    max_weight: NDArray[np.float64]
    mean_weight: NDArray[np.float64]
    n_fitted: int
    estimated: bool

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the curve as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each budget, with the columns ``budget``, ``quality`` and
            ``cost`` (the doubly robust estimates, with ``_low`` and ``_high``),
            ``matched``, ``mean_weight``, ``effective_sample_size``, ``max_weight``, and
            ``share_<name>`` for each choice.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the curve as a `Table`, with the doubly robust estimates."""
        propensities = "estimated" if self.estimated else "given"
        return Table(
            f"OffPolicyCurve: doubly robust estimates at {len(self.budget)} budgets, "
            f"propensities {propensities}",
            [
                Column("budget", self.budget, unit="per row"),
                *_columns_of("quality", self.quality.doubly_robust),
                *_columns_of("cost", self.cost.doubly_robust),
                Column("matched", self.matched, unit="rows"),
                Column("mean_weight", self.mean_weight, unit="1 is best"),
                Column(
                    "effective_sample_size",
                    self.effective_sample_size,
                    label="effective size",
                    unit="rows",
                ),
                Column("max_weight", self.max_weight, in_text=False),
                *choice_columns(self.choices, self.route_share),
            ],
            notes=note_of_unused(self.choices, self.route_share),
        )


@validate_params(
    {
        "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
        "cv": [Interval(Integral, 2, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def off_policy_curve(
    estimator: Any,
    X: Any,
    q: ArrayLike,
    *,
    choice: ArrayLike,
    propensity: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    budgets: ArrayLike | None = None,
    confidence_level: float = 0.95,
    cv: int = 5,
    **params: Any,
) -> OffPolicyCurve:
    """Estimate quality and cost at each budget from a log of one answer per request.

    The log was written by another policy. Three estimators compute the means that the
    router would have had on the same requests:

    - the direct method: a model of what each choice gives;
    - the self-normalised inverse propensity score (SNIPS): the requests on which log
      and router agree, weighted by one over the probability of the logged choice;
    - the doubly robust estimate: both together. It is right if the model or the
      propensities are right.

    The model is a forest that reads a row and a choice. It is cross-fitted on the log:
    no row is judged by a forest that was fitted on it.

    Parameters
    ----------
    estimator : estimator
        A fitted router, a pipeline that ends with one, or a search over one of these.
        There is a warning if it was fitted on more than one in a hundred of these rows.

    X : array-like of shape (n_samples, n_features)
        The requests.

    q : array-like of shape (n_samples,)
        Quality of the answer that was given, higher is better. Rows with NaN, an
        unknown quality, are left out, as if they were missing at random.

    choice : array-like of shape (n_samples,)
        The choice that gave this answer: names, or column numbers as in `fit`. A
        warning lists names that are not among ``choices_``.

    propensity : array-like of shape (n_samples,), default=None
        The probability of the choice that was made, above 0. None estimates it out of
        sample, by shares, logistic regression or a forest, the one with the lowest log
        loss. This is valid if the log chose by features that are in X, or by chance.

    costs : array-like of shape (n_samples,), default=None
        Cost of the answer that was given. None takes the costs that the router reports.

    budgets : array-like of shape (n_budgets,), default=None
        Mean costs per sample. None takes nine from the smallest to the largest that the
        router can use.

    confidence_level : float, default=0.95
        Confidence of each interval on its own, not of all budgets together.

    cv : int, default=5
        Folds of the model and of estimated propensities.

    **params : keyword arguments
        Further arguments of ``route``, for example ``exclude``.

    Returns
    -------
    OffPolicyCurve
        Named tuple with one entry per budget, unless stated otherwise:

        - ``budget``;
        - ``quality`` and ``cost``, each with ``direct`` (its interval ignores the bias
          of the model), ``snips`` and ``doubly_robust`` (the one to report), and each
          of these with ``estimate``, ``low``, ``high`` and ``standard_error``, NaN at a
          budget without overlap;
        - ``route_share`` of the ``choices``, whose names are in the order of its
          columns;
        - ``matched``, the number of rows on which log and router agree;
        - ``effective_sample_size`` of these rows, ``(sum w)^2 / sum w^2`` with
          ``w = 1 / propensity``;
        - ``max_weight`` and ``mean_weight`` of all rows, with ``w = 0`` where log and
          router differ: with overlap the mean is 1, up to noise;
        - ``n_fitted``, the number of these rows that equal rows of the router's fit;
        - ``estimated``, True if the propensities are estimates.

    Raises
    ------
    ValueError
        If the log has no overlap with the router at any of the budgets. Also for values
        and shapes that a log cannot have.

    Warns
    -----
    UserWarning
        For each budget without overlap: the log never has a choice that the router
        makes on such rows, they rarely agree, or the rows that agree represent too few
        of all rows. Also if an estimated quality is outside of the qualities in the
        log.

    See Also
    --------
    OffPolicyDisplay : The curve as a plot.
    accuracy_cost_curve : The curve if the quality of every choice is known.

    Notes
    -----
    An estimate is the mean of one term per row, and its interval is for this mean. It
    uses Student's quantile, with the effective sample size in place of the number of
    rows. It is corrected for skewness [3]_: if a few rows have much weight, or costs
    have heavy tails, it is longer on one side. It holds for new rows of the same
    distribution, and does not include the variation between fits of the router.

    In Open Bandit Pipeline the three are ``DirectMethod``,
    ``SelfNormalizedInverseProbabilityWeighting`` and ``DoublyRobust``. Its ``action``,
    ``reward`` and ``pscore`` are `choice`, `q` and `propensity`. In contextualbandits
    these are ``a``, ``r`` and ``p`` of ``evaluateDoublyRobust``.

    References
    ----------
    .. [1] M. Dudik, J. Langford, L. Li, "Doubly Robust Policy Evaluation and Learning",
       ICML 2011.
    .. [2] A. Swaminathan, T. Joachims, "The Self-Normalized Estimator for
       Counterfactual Learning", NeurIPS 2015.
    .. [3] P. Hall, "On the Removal of Skewness by Transformation", Journal of the Royal
       Statistical Society B 54, 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import off_policy_curve
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(2000, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(costs=problem.costs).fit(X[:500], Q[:500])
    >>> choice = np.random.default_rng(0).integers(0, 2, 1500)
    >>> q = Q[500:][np.arange(1500), choice]
    >>> curve = off_policy_curve(
    ...     router,
    ...     X[500:],
    ...     q,
    ...     choice=choice,
    ...     propensity=np.full(1500, 0.5),
    ...     budgets=[0.5],
    ... )
    >>> estimate = curve.quality.doubly_robust
    >>> true_quality = router.score(X[500:], Q[500:], budget=0.5)
    >>> bool(estimate.low[0] < true_quality < estimate.high[0])
    True
    """
    check_rows_match(
        X=X, q=q, choice=choice, propensity=propensity, costs=costs, **params
    )
    router, X = find_router(estimator, X)
    names = [str(name) for name in router.choices_]
    log = read_log(
        names, num_samples(X), q=q, choice=choice, propensity=propensity, costs=costs
    )
    if budgets is None:
        budgets = _default_budgets(router)
    checked_budgets = check_budgets(budgets)
    # The router plans before anything is estimated. So the first error about invalid
    # rows comes from the router.
    cached_router = with_cache(router)
    plans = []
    for budget in checked_budgets:
        call = cached_router.make_call(budget, **params)
        plans.append(cached_router.plan(X, call))
    evaluation = prepare_evaluation(
        X,
        log,
        routes=[plan.route for plan in plans],
        budgets=checked_budgets,
        names=names,
        cv=cv,
        confidence_level=confidence_level,
    )
    decisions = evaluation.decisions
    quality = evaluation.estimate(log.quality)
    # The estimates of all three estimators at all budgets.
    means = np.concatenate([estimate.estimate for estimate in quality])
    message = beyond_range(means, log.quality, "An estimated quality")
    if message is not None:
        warn(message)
    if log.cost is None:
        reported_costs = np.array([plan.cost[decisions.rows] for plan in plans])
        cost = evaluation.average_reported(reported_costs)
    else:
        # The costs of the log are those of calls. The router also pays for deciding:
        # one array of shape (n_known_rows,) for each budget.
        deciding_costs = [
            cost_of_deciding(router, plan)[decisions.rows] for plan in plans
        ]
        cost = evaluation.estimate(
            log.cost,
            is_ratio=True,  # costs are compared with the mean of their choice
            added=np.mean(deciding_costs, axis=1),
        )
    return OffPolicyCurve(
        budget=checked_budgets,
        quality=quality,
        cost=cost,
        route_share=_route_shares(decisions.routes, len(names)),
        choices=names,
        matched=np.count_nonzero(decisions.weights, axis=1),
        effective_sample_size=decisions.effective_sizes(),
        max_weight=decisions.weights.max(axis=1),
        mean_weight=decisions.weights.mean(axis=1),
        n_fitted=count_seen(router, X, "it is judged too well for these"),
        estimated=propensity is None,
    )


# The log and the decisions ------------------------------------------------------------


def cost_of_deciding(router, plan):
    """Return the cost of deciding on each row, in addition to the call of a model.

    Parameters
    ----------
    router : decision estimator
    plan : Plan
        Plan of the router for the rows.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    n_rows = len(plan.route)
    no_bills = np.zeros((n_rows, len(models_of(router))))
    try:
        # If no call costs anything, the bill is the cost of deciding.
        return router.bill(plan, no_bills)
    except TypeError:
        # A router raises this error if its costs do not differ from row to row. These
        # costs do not separate deciding from the call of a model.
        return np.zeros(n_rows)


class LoggedAnswers(NamedTuple):
    """A log of one answer per request, checked.

    Attributes
    ----------
    choice : ndarray of shape (n_rows,), dtype=int64
        Index of the logged choice in `names`.

    names : list of str
        The choices of the router, followed by other choices that are in the log.

    quality : ndarray of shape (n_rows,)
        Quality of the logged answer. NaN where it is unknown.

    propensity : ndarray of shape (n_rows,) or None
        Probability of the logged choice. None until it is estimated.

    cost : ndarray of shape (n_rows,) or None
        Cost of the logged answer. None if the log has no costs.
    """

    choice: NDArray[np.int64]
    names: list[str]
    quality: NDArray[np.float64]
    propensity: NDArray[np.float64] | None
    cost: NDArray[np.float64] | None


class Decisions(NamedTuple):
    """Choices of a log and of a router, on the rows whose logged quality is known.

    Attributes
    ----------
    rows : ndarray of shape (n_known_rows,), dtype=int64
        Positions of these rows in the log.

    logged : ndarray of shape (n_known_rows,), dtype=int64
        Index of the choice in the log.

    routes : ndarray of shape (n_budgets, n_known_rows), dtype=int64
        Index of the router's choice.

    weights : ndarray of shape (n_budgets, n_known_rows)
        One over the propensity where log and router agree, else 0.
    """

    rows: NDArray[np.int64]
    logged: NDArray[np.int64]
    routes: NDArray[np.int64]
    weights: NDArray[np.float64]

    def effective_sizes(self):
        """Return the effective sample size at each budget."""
        return np.array([effective_size(weight) for weight in self.weights])


def read_log(names, n_rows, *, q, choice, propensity, costs):
    """Check the columns of a log. Warn if it has choices that the router does not have.

    Parameters
    ----------
    names : list of str
        The choices of the router.
    n_rows : int
    q, choice, propensity, costs
        As in :func:`off_policy_curve`.

    Returns
    -------
    LoggedAnswers
    """
    quality = read_values(q, "q", n_rows, allow_nan=True)
    logged_choice, all_names = read_choice(choice, names, n_rows)
    foreign_names = all_names[len(names) :]
    if foreign_names:
        listed = ", ".join(repr(name) for name in foreign_names[:5])
        warn(
            f"choice has {listed}, which the router does not have among {names!r}: "
            "such rows agree with no decision. Check the spelling."
        )
    if propensity is not None:
        propensity = read_propensity(propensity, n_rows)
    if costs is not None:
        costs = read_values(costs, "costs", n_rows, least=0.0)
    return LoggedAnswers(
        choice=logged_choice,
        names=all_names,
        quality=quality,
        propensity=propensity,
        cost=costs,
    )


def _compare_decisions(log, routes):
    """Return the choices of a log and of a router, on the rows of known quality.

    Parameters
    ----------
    log : LoggedAnswers
        With propensities.
    routes : list of n_budgets ndarrays of shape (n_rows,)

    Returns
    -------
    Decisions
    """
    # Positions of the rows of known quality.
    rows = np.flatnonzero(~np.isnan(log.quality))
    logged = log.choice[rows]
    # The router's choices on these rows. (n_budgets, n_known_rows), as `weights`.
    known_routes = np.array([route[rows] for route in routes])
    weights = np.where(known_routes == logged, 1 / log.propensity[rows], 0.0)
    return Decisions(rows=rows, logged=logged, routes=known_routes, weights=weights)


def _check_overlap(budgets, decisions, *, names, n_logged_choices):
    """Return a mask of the budgets at which log and router overlap.

    At these budgets the router can be judged by the log. Warn about each other budget.

    Parameters
    ----------
    budgets : ndarray of shape (n_budgets,)
    decisions : Decisions
    names : list of str
        The choices of the router.
    n_logged_choices : int
        Number of different choices of the router or in the log.

    Returns
    -------
    ndarray of shape (n_budgets,), dtype=bool

    Raises
    ------
    ValueError
        If there is no such budget.
    """
    # For each budget the reason why there is no overlap, or None if there is overlap.
    reasons = []
    for route, weight in zip(decisions.routes, decisions.weights):
        agreement = _agreement(
            route, decisions.logged, weight=weight, n_choices=n_logged_choices
        )
        reasons.append(lack_of_overlap(agreement, names))
    has_overlap = np.array([reason is None for reason in reasons])
    for budget, reason in zip(budgets, reasons):
        if reason is None:
            continue
        place = f"At budget={budget:.6g}" if np.isfinite(budget) else "Without a budget"
        message = f"{place} {reason} {_ADVICE}"
        if not has_overlap.any():
            # No budget has overlap: the error is about the first one.
            raise ValueError(message)
        warn(f"{message} Its estimates are NaN.")
    return has_overlap


def _agreement(route, logged, *, weight, n_choices):
    """Return how often a log made the choices of a policy, at one budget.

    Parameters
    ----------
    route, logged : ndarray of shape (n_known_rows,), dtype=int64
        Index of the choice of the policy, and of the log.
    weight : ndarray of shape (n_known_rows,)
        One over the propensity where they agree, else 0.
    n_choices : int
        Number of different choices of the router or in the log.

    Returns
    -------
    Agreement
        For each choice, `needed` is the number of rows for which the policy makes it.
        `matched` is the number of rows for which policy and log make it. `made` is the
        number of rows for which the log makes it.
    """
    agreed = route[route == logged]
    return Agreement(
        needed=np.bincount(route, minlength=n_choices).astype(np.float64),
        matched=np.bincount(agreed, minlength=n_choices).astype(np.float64),
        made=np.bincount(logged, minlength=n_choices),
        weight=weight,
    )


def _route_shares(routes, n_choices):
    """Return the share of the rows for each choice, of shape (n_budgets, n_choices)."""
    shares = []
    for route in routes:
        shares.append(np.bincount(route, minlength=n_choices) / len(route))
    return np.array(shares)


def _default_budgets(router):
    """Return evenly spaced budgets, from the smallest feasible one to the largest.

    A budget above the largest changes no decision.
    """
    if not hasattr(router, "price_path_"):
        raise ValueError(
            f"budgets must be given: {type(router).__name__} does not know its largest "
            "one."
        )
    path_budgets = router.price_path_.budgets
    smallest = router.min_budget_
    # `smallest` includes the routing cost, and `path_budgets` do not. So the width of
    # the range of `path_budgets` is added to `smallest`.
    largest = smallest + max(path_budgets[-1] - path_budgets[0], 0.0)
    return np.linspace(smallest, largest, _N_BUDGETS)


def count_seen(router, X, harm):
    """Return how many rows are equal to training rows of a router. Warn if many are.

    Parameters
    ----------
    router : fitted router
    X : array-like of shape (n_rows, n_features)
    harm : str
        Clause for the warning: the harm if these rows are the same requests.

    Returns
    -------
    int
        0 if the router does not know the rows of its fit.
    """
    # A function that returns True for each row that is equal to a row of the fit.
    is_seen = getattr(router, "_seen", None)
    if is_seen is None:
        # The router does not know the rows of its fit.
        return 0
    n_rows = num_samples(X)
    n_seen = int(np.count_nonzero(is_seen(X)))
    if n_seen > _MAX_REPEATED_SHARE * n_rows:
        warn(
            f"{n_seen} of {n_rows} rows equal rows that the router was fitted on. If "
            f"they are the same requests, {harm}: give requests that it has not seen. "
            "New requests that only have equal features do no harm."
        )
    return n_seen


# Means of quality and of cost ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogEvaluation:
    """A log and the decisions of a router on it, from which means are estimated.

    Attributes
    ----------
    features : {ndarray, csr matrix} of shape (n_rows, n_features)
        The requests as numbers, for the model of quality and of cost.

    folds : list of (ndarray of int, ndarray of int)
        Folds of this model: positions of training rows and of held-out rows.

    log : LoggedAnswers
        With propensities.

    decisions : Decisions

    has_overlap : ndarray of shape (n_budgets,), dtype=bool
        True where the log can say how good the router is.

    confidence_level : float
        Confidence of the intervals.
    """

    features: Any
    folds: list
    log: LoggedAnswers
    decisions: Decisions
    has_overlap: NDArray[np.bool_]
    confidence_level: float

    def estimate(self, values, *, is_ratio=False, added=0.0):
        """Return three estimates of the mean value of the router's choices.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            Quality or cost of the logged answers.
        is_ratio : bool, default=False
            True for costs and times: their differences from the mean of a choice are
            modelled relative to this mean. It is `ratio` of `estimate_cells`.
        added : ndarray of shape (n_budgets,), default=0.0
            Known number that is added to the estimate at each budget. The intervals get
            no wider by it.

        Returns
        -------
        OffPolicyEstimates
            NaN at budgets without overlap.
        """
        decisions = self.decisions
        # Value of each choice on the rows of known quality, (n_known_rows, n_choices).
        expected = self._expected_values(values, is_ratio=is_ratio)[decisions.rows]
        known_values = values[decisions.rows]
        # Routes, weights and the values of routes at the budgets with overlap:
        # (n_budgets_with_overlap, n_known_rows).
        routes = decisions.routes[self.has_overlap]
        weights = decisions.weights[self.has_overlap]
        row = np.arange(len(decisions.rows))
        expected_of_route = expected[row, routes]
        expected_of_logged = expected[row, decisions.logged]  # (n_known_rows,)
        direct = direct_method(expected_of_route)
        weighted = snips(known_values, weights)
        corrected = doubly_robust(
            expected_of_route, expected_of_logged, known_values, weights
        )
        # Degrees of freedom of Student's distribution, (n_budgets_with_overlap,).
        degrees = decisions.effective_sizes()[self.has_overlap] - 1
        added = np.broadcast_to(added, self.has_overlap.shape)[self.has_overlap]
        direct = direct._replace(estimate=direct.estimate + added)
        weighted = weighted._replace(estimate=weighted.estimate + added)
        corrected = corrected._replace(estimate=corrected.estimate + added)
        return OffPolicyEstimates(
            direct=self._with_interval(direct, degrees),
            snips=self._with_interval(weighted, degrees),
            doubly_robust=self._with_interval(corrected, degrees),
        )

    def doubly_robust_terms(self, values, *, is_ratio=False):
        """Return terms whose mean is the doubly robust estimate at the first budget.

        Parameters
        ----------
        values, is_ratio
            As in `estimate`.

        Returns
        -------
        ndarray of shape (n_known_rows,)
            Other budgets are ignored.
        """
        decisions = self.decisions
        route = decisions.routes[0]
        weight = decisions.weights[0]
        # Value that the model predicts for each choice, (n_known_rows, n_choices).
        expected = self._expected_values(values, is_ratio=is_ratio)[decisions.rows]
        row = np.arange(len(decisions.rows))
        # Error of the model on the logged answers.
        error = values[decisions.rows] - expected[row, decisions.logged]
        return expected[row, route] + weight * error

    def average_reported(self, costs):
        """Return means of the costs that the router itself reports, without the log.

        Parameters
        ----------
        costs : ndarray of shape (n_budgets, n_known_rows)

        Returns
        -------
        OffPolicyEstimates
            The three estimates are equal. They are also known at budgets without
            overlap.
        """
        mean = with_interval(
            direct_method(costs),
            degrees=self.decisions.effective_sizes() - 1,
            confidence_level=self.confidence_level,
        )
        return OffPolicyEstimates(direct=mean, snips=mean, doubly_robust=mean)

    def _expected_values(self, values, *, is_ratio):
        """Return cross-fitted estimates of the value of each choice on each row.

        `values` and `is_ratio` are as in `estimate`. The shape is (n_rows, n_choices).
        """
        n_rows = len(values)
        # Only the cell of the logged choice is known in each row.
        table = np.full((n_rows, len(self.log.names)), np.nan)
        table[np.arange(n_rows), self.log.choice] = values
        return estimate_cells(self.features, table, self.folds, ratio=is_ratio)

    def _with_interval(self, mean_estimate, degrees):
        """Return an estimate with its interval, NaN at budgets without overlap.

        Parameters
        ----------
        mean_estimate : MeanEstimate
            At the budgets with overlap.
        degrees : ndarray of shape (n_budgets_with_overlap,)
            Degrees of freedom.

        Returns
        -------
        OffPolicyEstimate
        """
        estimate = with_interval(
            mean_estimate, degrees=degrees, confidence_level=self.confidence_level
        )
        # (n_fields, n_budgets). The fields of a budget without overlap stay NaN.
        fields = np.full((len(estimate), len(self.has_overlap)), np.nan)
        fields[:, self.has_overlap] = estimate
        return OffPolicyEstimate._make(fields)


def prepare_evaluation(X, log, *, routes, budgets, names, cv, confidence_level):
    """Compare the decisions of a router with a log, and check where they overlap.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows as the router gets them.
    log : LoggedAnswers
        Propensities are estimated if the log has none.
    routes : list of n_budgets ndarrays of shape (n_rows,)
        Index of the router's choice.
    budgets : ndarray of shape (n_budgets,)
    names : list of str
        The choices of the router.
    cv : int
        Number of folds.
    confidence_level : float

    Returns
    -------
    LogEvaluation

    Raises
    ------
    ValueError
        If the log has no overlap with the router at any budget.
    """
    features = as_numbers(X)
    folds = folds_of_log(len(log.choice), cv)
    if log.propensity is None:
        estimated_propensity = estimate_propensities(
            with_text_lengths(features, X),
            log.choice,
            n_choices=len(log.names),
            folds=folds,
        )
        log = log._replace(propensity=estimated_propensity)
    decisions = _compare_decisions(log, routes)
    has_overlap = _check_overlap(
        budgets, decisions, names=names, n_logged_choices=len(log.names)
    )
    return LogEvaluation(
        features=features,
        folds=folds,
        log=log,
        decisions=decisions,
        has_overlap=has_overlap,
        confidence_level=confidence_level,
    )


class MeanEstimate(NamedTuple):
    """An estimate of a mean over rows, at one or more budgets.

    Attributes
    ----------
    estimate : float or ndarray of shape (n_budgets,)

    standard_error : float or ndarray of shape (n_budgets,)

    skewness : float or ndarray of shape (n_budgets,)
        Skewness of the estimate, not of the terms that it is the mean of.
    """

    estimate: Any
    standard_error: Any
    skewness: Any


def direct_method(expected):
    """Return the mean of the values that a model predicts for the choices made.

    Parameters
    ----------
    expected : ndarray of shape (n_rows,) or (n_budgets, n_rows)
        Expected value of the choice made for each row.

    Returns
    -------
    MeanEstimate
    """
    mean = expected.mean(axis=-1)
    return MeanEstimate(
        estimate=mean,
        standard_error=sem(expected, axis=-1),
        skewness=skewness(expected - mean[..., np.newaxis]),
    )


def snips(values, weights):
    """Return the weighted mean of values: self-normalised inverse propensity score.

    The standard error is computed by the delta method.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Values of the logged choices.
    weights : ndarray of shape (n_rows,) or (n_budgets, n_rows)
        One over the propensity where log and policy agree, else 0.

    Returns
    -------
    MeanEstimate
    """
    total = weights.sum(axis=-1)
    mean = weights @ values / total
    terms = weights * (values - mean[..., np.newaxis])
    return MeanEstimate(
        estimate=mean,
        standard_error=np.linalg.norm(terms, axis=-1) / total,
        skewness=skewness(terms),
    )


def doubly_robust(expected_of_route, expected_of_logged, values, weights):
    """Return the mean of ``expected_of_route + weight * (value - expected_of_logged)``.

    This is the doubly robust estimate of Dudik, Langford and Li (2011).

    Parameters
    ----------
    expected_of_route : ndarray of shape (n_rows,) or (n_budgets, n_rows)
        Values that a model expects of the policy's choices.
    expected_of_logged : ndarray of shape (n_rows,)
        Values that this model expects of the logged choices.
    values, weights
        As in `snips`.

    Returns
    -------
    MeanEstimate
    """
    return direct_method(expected_of_route + weights * (values - expected_of_logged))


def skewness(deviations):
    """Return the skewness of a mean over rows, from the deviations of its terms.

    It is the skewness of the terms, divided by the root of their number.

    Parameters
    ----------
    deviations : ndarray of shape (n_rows,) or (n_budgets, n_rows)
        The terms less their mean.

    Returns
    -------
    float or ndarray of shape (n_budgets,)
    """
    # In units of the largest deviation no power overflows or underflows.
    largest = np.abs(deviations).max(axis=-1, keepdims=True)
    scaled = deviations / np.where(largest > 0, largest, 1.0)
    # The largest square is 1, so the sum is at least 1. If all deviations are 0, the
    # sum is set to 1, and the skewness is 0.
    sum_of_squares = np.maximum((scaled**2).sum(axis=-1), 1.0)
    # With means in place of sums, this ratio is the skewness of the terms. With sums it
    # is divided by the root of the number of rows.
    return (scaled**3).sum(axis=-1) / sum_of_squares**1.5


def with_interval(mean_estimate, *, degrees, confidence_level):
    """Return an estimate with Student's interval, corrected for skewness.

    The mean of skewed terms is skewed as well if few of them have much weight. Hall's
    monotone transformation corrects for it: the interval becomes longer on the side of
    the long tail. It does not become shorter on the opposite side, because the skewness
    of few rows is uncertain.

    Parameters
    ----------
    mean_estimate : MeanEstimate
    degrees : ndarray of shape (n_budgets,)
        Degrees of freedom.
    confidence_level : float

    Returns
    -------
    OffPolicyEstimate
    """
    estimate = mean_estimate.estimate
    error = mean_estimate.standard_error
    # At least one degree of freedom: the quantile is not defined for 0.
    quantile = student.ppf((1 + confidence_level) / 2, np.maximum(degrees, 1.0))
    # `maximum` and `minimum` keep Student's quantile on the side that the correction
    # would make shorter.
    upper_quantile = np.maximum(unskewed(quantile, mean_estimate.skewness), quantile)
    lower_quantile = np.minimum(unskewed(-quantile, mean_estimate.skewness), -quantile)
    return OffPolicyEstimate(
        estimate=estimate,
        low=estimate - error * upper_quantile,
        high=estimate - error * lower_quantile,
        standard_error=error,
    )


def unskewed(quantile, skewness_of_mean):
    """Return the quantile of a studentised mean whose terms are skewed, by Hall (1992).

    It is the inverse, in t, of ``t + k t^2 / 3 + k^2 t^3 / 27 + k / 6``, with k the
    skewness of the mean.

    Parameters
    ----------
    quantile : float or ndarray of float
        Quantile without skewness.
    skewness_of_mean : float or ndarray of float
        As `skewness` returns it.

    Returns
    -------
    ndarray of float
    """
    # `k` is a divisor, so a skewness near 0 is replaced.
    is_small = np.abs(skewness_of_mean) < _LEAST_SKEWNESS
    k = np.where(is_small, _LEAST_SKEWNESS, skewness_of_mean)
    root = np.cbrt(1 + k * (quantile - k / 6))
    return 3 / k * (root - 1)
