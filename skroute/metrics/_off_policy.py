"""What a policy would have been worth and have cost, by a log that another policy wrote."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import sem
from scipy.stats import t as student

from skroute.metrics._curve import check_budgets, find_router
from skroute.quality._log_arguments import read_choice, read_propensity, read_values
from skroute.quality._logged import (
    as_numbers,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
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
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import warn

# Rows of new logs that may be equal to rows of the fit.
_REPEATED = 0.01
# What to do about a log that cannot say how good a policy is.
_ADVICE = (
    "Leave the budget out of budgets, or log some requests at random "
    "(with their propensities)."
)


class OffPolicyEstimate(NamedTuple):
    """Means per row at each budget, with the ends and the standard error of each."""

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    standard_error: NDArray[np.float64]


class OffPolicyEstimates(NamedTuple):
    """Three estimates of the same, side by side: see :func:`off_policy_curve`."""

    direct: OffPolicyEstimate
    snips: OffPolicyEstimate
    doubly_robust: OffPolicyEstimate


class OffPolicyCurve(NamedTuple):
    """See :func:`off_policy_curve`."""

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

    Three estimators say what the router would have made of the same requests: a model of what each
    choice would have given (direct method), the requests on which log and router agree, weighted by
    one over the probability of the logged choice (self-normalised inverse propensity score), and
    both together (doubly robust), which is right where either is. The model is a forest that reads
    a row and a choice, cross-fitted on the log: it judges no row that fitted it.

    Parameters
    ----------
    estimator : estimator
        A fitted router, a pipeline that ends with one, or a search over one of these. `n_fitted`
        says on how many of these rows it was fitted, a warning if more than one in a hundred.

    X : array-like of shape (n_samples, n_features)
        The requests.

    q : array-like of shape (n_samples,)
        Quality of the answer that was given, higher is better. Rows with NaN, not known, are
        left out, as if they lacked at random.

    choice : array-like of shape (n_samples,)
        Which choice gave it: names, or column numbers as in `fit`; a warning says which of them
        are not among ``choices_``.

    propensity : array-like of shape (n_samples,), default=None
        The probability with which it was made, above 0. None estimates it out of sample, by
        whichever of shares, logistic regression and a forest foretells choices best: then
        what made the log choose as it did must be in X, or be chance.

    costs : array-like of shape (n_samples,), default=None
        What the answer given has cost. None takes the costs that the router reports.

    budgets : array-like of shape (n_budgets,), default=None
        Mean costs per sample. None takes nine from the smallest to the largest that the
        router can use.

    confidence_level : float, default=0.95
        Of the intervals: of each estimate on its own, not of all budgets at once.

    cv : int, default=5
        Folds of the model and of estimated propensities.

    **params : keyword arguments
        Further arguments of ``route``, for example ``exclude``.

    Returns
    -------
    OffPolicyCurve
        Named tuple, one entry per budget: ``budget``; ``quality`` and ``cost``, each with
        ``direct`` (whose interval knows nothing of the model's bias), ``snips`` and
        ``doubly_robust`` (the one to report), and each of these with ``estimate``, ``low``,
        ``high`` and ``standard_error``; ``route_share`` of the ``choices``; and what says how much
        the log knows: ``matched`` rows, on which log and router agree, their
        ``effective_sample_size``, ``(sum w)^2 / sum w^2`` with ``w = 1 / propensity``,
        ``max_weight`` and ``mean_weight`` (over all rows; 1 but for noise), ``n_fitted``, rows of
        the router's own fit, and ``estimated``, whether propensities are estimates. At a budget
        for which the log cannot say how good the router is, its estimates are NaN.

    Raises
    ------
    ValueError
        If the log has no overlap with the router at any of the budgets; for values and shapes
        that are none of a log.

    Warns
    -----
    UserWarning
        For each budget without overlap: a choice that the router makes was never logged on such
        rows, agreement is too rare, or the rows that agree stand for too few of all rows. Also if
        an estimated quality is outside of the qualities in the log.

    See Also
    --------
    OffPolicyDisplay : Draws it.
    accuracy_cost_curve : Where the quality of every choice is known.

    Notes
    -----
    Intervals are of the mean of the rows' terms, with Student's quantile for as many degrees
    of freedom as the effective sample size has rows, and corrected for skewness [3]_: where a
    few rows have much weight, or costs heavy tails, they are longer on one side. They are
    about the router as it is, on new rows of this kind.

    In Open Bandit Pipeline the three are ``DirectMethod``, ``SelfNormalizedInverseProbability\
Weighting`` and ``DoublyRobust``, `choice` is ``action``, `q` is ``reward`` and `propensity`
    is ``pscore``; in contextualbandits they are ``a``, ``r`` and ``p`` of
    ``evaluateDoublyRobust``.

    References
    ----------
    .. [1] M. Dudik, J. Langford, L. Li, "Doubly Robust Policy Evaluation and Learning", ICML
       2011.
    .. [2] A. Swaminathan, T. Joachims, "The Self-Normalized Estimator for Counterfactual
       Learning", NeurIPS 2015.
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
    ...     router, X[500:], q, choice=choice, propensity=np.full(1500, 0.5), budgets=[0.5]
    ... )
    >>> found, truth = curve.quality.doubly_robust, router.score(X[500:], Q[500:], budget=0.5)
    >>> bool(found.low[0] < truth < found.high[0])
    True
    """
    check_rows_match(
        X=X, q=q, choice=choice, propensity=propensity, costs=costs, **params
    )
    router, X = find_router(estimator, X)
    n, names = num_samples(X), [str(name) for name in router.choices_]
    value = read_values(q, "q", n, allow_nan=True)
    position, every = read_choice(choice, names, n)
    if others := every[len(names) :]:
        warn(
            f"choice has {', '.join(map(repr, others[:5]))}, which the router does not have among "
            f"{names!r}: such rows agree with no decision. Check the spelling."
        )
    chance = None if propensity is None else read_propensity(propensity, n)
    paid = None if costs is None else read_values(costs, "costs", n, least=0.0)
    limits = check_budgets(_budgets_of(router) if budgets is None else budgets)
    # The router says first what is wrong with the rows.
    walked = with_cache(router)
    plans = [walked.plan(X, walked.make_call(limit, **params)) for limit in limits]
    rows, folds = as_numbers(X), folds_of_log(n, cv)
    if chance is None:
        chance = estimate_propensities(rows, position, len(every), folds)

    at = np.flatnonzero(~np.isnan(value))
    logged, routes = position[at], np.array([plan.route[at] for plan in plans])
    weights = np.where(routes == logged, 1 / chance[at], 0.0)
    n_choices = len(every)
    lacks = [
        lack_of_overlap(_agreement(route, logged, weight, n_choices), names)
        for route, weight in zip(routes, weights)
    ]
    for limit, lack in zip(limits, lacks):
        if lack is None:
            continue
        where = f"At budget={limit:.6g}" if np.isfinite(limit) else "Without a budget"
        message = f"{where} {lack} {_ADVICE}"
        if all(lacks):
            raise ValueError(message)
        warn(f"{message} Its estimates are NaN.")
    estimated = np.flatnonzero([lack is None for lack in lacks])
    size = np.array([effective_size(weight) for weight in weights])
    degrees = size[estimated] - 1

    def judged(of_rows, ratio):
        """The three estimates at each budget with overlap, with their errors and skewness."""
        table = np.full((n, len(every)), np.nan)
        table[np.arange(n), position] = of_rows
        model, every_row = (
            estimate_cells(rows, table, folds, ratio=ratio)[at],
            np.arange(len(at)),
        )
        made, own = model[every_row, routes[estimated]], model[every_row, logged]
        value, weight = of_rows[at], weights[estimated]
        terms = (
            direct_method(made),
            snips(value, weight),
            doubly_robust(made, own, value, weight),
        )
        estimates = with_intervals(terms, degrees, confidence_level)
        return _spread(estimates, estimated, len(limits))

    quality = judged(value, ratio=False)
    means = np.concatenate([estimates.estimate for estimates in quality])
    if message := beyond_range(means, value, "An estimated quality"):
        warn(message)
    if paid is None:
        # What the router reports is known without the log.
        reported = direct_method(np.array([plan.cost[at] for plan in plans]))
        cost = with_intervals((reported,) * 3, size - 1, confidence_level)
    else:
        cost = judged(paid, ratio=True)
    return OffPolicyCurve(
        budget=limits,
        quality=quality,
        cost=cost,
        route_share=np.array(
            [np.bincount(r, minlength=len(names)) / len(at) for r in routes]
        ),
        choices=names,
        matched=np.count_nonzero(weights, axis=1),
        effective_sample_size=size,
        max_weight=weights.max(axis=1),
        mean_weight=weights.mean(axis=1),
        n_fitted=count_seen(router, X, "it is judged too well for these"),
        estimated=propensity is None,
    )


def direct_method(model):
    """Means of what a model expects of the choices made, standard errors and skewness.

    Rows are along the last axis, here and below.
    """
    mean = model.mean(axis=-1)
    return mean, sem(model, axis=-1), skewness(model - mean[..., np.newaxis])


def snips(value, weight):
    """Self-normalised inverse propensity score, its standard error (delta method) and skewness."""
    total = weight.sum(axis=-1)
    found = weight @ value / total
    terms = weight * (value - found[..., np.newaxis])
    return found, np.linalg.norm(terms, axis=-1) / total, skewness(terms)


def doubly_robust(model, own, value, weight):
    """Dudik, Langford and Li (2011): ``mean[model + weight (value - own)]``.

    `model` is what is expected of the policy's choice and `own` of the logged one, `value` what
    came of that, `weight` one over its propensity where the two are the same, else 0.
    """
    return direct_method(model + weight * (value - own))


def skewness(deviations):
    """Skewness of the terms over the root of their number: that of their mean."""
    largest = np.abs(deviations).max(axis=-1, keepdims=True)
    unit = deviations / np.where(largest > 0, largest, 1.0)
    # The largest is 1, unless all are 0.
    return (unit**3).sum(axis=-1) / np.maximum((unit**2).sum(axis=-1), 1.0) ** 1.5


def with_intervals(terms, degrees, confidence_level):
    """Three estimates, each for all budgets, with Student's intervals of degrees of freedom.

    The mean of skewed terms, few of which have much weight, is skewed as well. Hall's monotone
    transformation takes that out: an interval is longer towards the rare side. It is not made
    shorter on the other, since the skewness of few rows is badly known.
    """
    width = student.ppf((1 + confidence_level) / 2, np.maximum(degrees, 1.0))
    found = []
    for estimate, error, skewed in terms:
        low = estimate - error * np.maximum(unskewed(width, skewed), width)
        high = estimate - error * np.minimum(unskewed(-width, skewed), -width)
        found.append(OffPolicyEstimate(estimate, low, high, error))
    return OffPolicyEstimates(*found)


def unskewed(quantile, skewed):
    """Hall (1992): the quantile of a studentised mean whose terms are skewed.

    The inverse of ``t + k t^2 / 3 + k^2 t^3 / 27 + k / 6`` with k the skewness of the mean.
    """
    skewed = np.where(np.abs(skewed) < 1e-6, 1e-6, skewed)
    root = np.cbrt(1 + skewed * (quantile - skewed / 6))
    return 3 / skewed * (root - 1)


def _agreement(route, logged, weight, n_choices):
    """Return where a log made the choices of a policy (`Agreement`)."""
    return Agreement(
        needed=np.bincount(route, minlength=n_choices).astype(np.float64),
        matched=np.bincount(route[route == logged], minlength=n_choices).astype(
            np.float64
        ),
        made=np.bincount(logged, minlength=n_choices),
        weight=weight,
    )


def _spread(estimates, estimated, n_budgets):
    """Return estimates with one entry for each budget, NaN where there is no estimate.

    Parameters
    ----------
    estimates : OffPolicyEstimates
        Of some of the budgets.
    estimated : ndarray of shape (n_estimated,), dtype=int64
        Positions of these budgets.
    n_budgets : int

    Returns
    -------
    OffPolicyEstimates
    """
    found = []
    for estimate in estimates:
        table = np.full((len(estimate), n_budgets), np.nan)
        table[:, estimated] = estimate
        found.append(OffPolicyEstimate(*table))
    return OffPolicyEstimates(*found)


def _budgets_of(router):
    """Nine budgets from the smallest to the largest that is of use."""
    if not hasattr(router, "price_path_"):
        raise ValueError(
            f"budgets must be given: {type(router).__name__} does not know its largest one."
        )
    own = router.price_path_.budgets
    least = router.min_budget_
    return np.linspace(least, least + max(own[-1] - own[0], 0.0), 9)


def count_seen(router, X, harm):
    """How many rows equal rows of a router's fit, with a warning where they are more than a few."""
    n, seen = num_samples(X), getattr(router, "_seen", None)
    count = 0 if seen is None else int(np.count_nonzero(seen(X)))
    # Some requests come again, and are not those of the fit.
    if count > _REPEATED * n:
        warn(
            f"{count} of {n} rows equal rows that the router was fitted on. If they are the same "
            f"requests, {harm}: give requests that it has not seen. New requests that only have "
            "equal features do no harm."
        )
    return count
