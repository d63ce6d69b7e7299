"""What a policy would have been worth and have cost, by a log that another policy wrote."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student
from sklearn.utils import check_consistent_length

from skroute.metrics._curve import check_budgets, find_router
from skroute.quality._logged import (
    as_numbers,
    effective_size,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
    never_matched,
    read_choice,
    read_propensity,
    read_values,
)
from skroute.utils._compat import Integral, Interval, Real, num_samples, validate_params

# Rows of equal weight that an estimate needs at least.
_LEAST_ROWS = 10
# Rows of new logs that may be equal to rows of the fit.
_REPEATED = 0.01
# Weights of the rows that agree have the mean 1; what lacks more has no overlap.
_LACKS = 0.1


class OffPolicyEstimate(NamedTuple):
    """One estimate with its interval, at each budget.

    Attributes
    ----------
    estimate : ndarray of shape (n_budgets,), dtype=float64
        The mean per row.

    low, high : ndarray of shape (n_budgets,), dtype=float64
        Ends of the interval.

    standard_error : ndarray of shape (n_budgets,), dtype=float64
        That of `estimate`.
    """

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    standard_error: NDArray[np.float64]


class OffPolicyEstimates(NamedTuple):
    """Three estimates of the same, side by side.

    Attributes
    ----------
    direct : OffPolicyEstimate
        Direct method: the mean of what a model expects of the choices. Its interval knows
        nothing of the model's bias.

    snips : OffPolicyEstimate
        Self-normalised inverse propensity score: the weighted mean of rows on which the log
        made the same choice.

    doubly_robust : OffPolicyEstimate
        The direct method, corrected by the weighted errors on these rows: right where
        either propensities or model are, and the one to report.
    """

    direct: OffPolicyEstimate
    snips: OffPolicyEstimate
    doubly_robust: OffPolicyEstimate


class OffPolicyCurve(NamedTuple):
    """Quality and cost of a whole path of policies, by a log of one answer per request.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,), dtype=float64
        The budgets; infinity where unlimited.

    quality : OffPolicyEstimates
        Mean quality per row, by three estimators.

    cost : OffPolicyEstimates
        Mean cost per row. Where no costs were logged, what the router reports: three times
        the same.

    route_share : ndarray of shape (n_budgets, n_choices), dtype=float64
        Share of the rows for which each choice is made.

    choices : list of str
        Names of the choices, the columns of `route_share`.

    matched : ndarray of shape (n_budgets,), dtype=int64
        Rows on which the log made the choice that the policy makes.

    effective_sample_size : ndarray of shape (n_budgets,), dtype=float64
        ``(sum w)^2 / sum w^2`` of these rows' weights, ``1 / propensity``.

    max_weight : ndarray of shape (n_budgets,), dtype=float64
        The largest of these weights: one row stands for so many.

    mean_weight : ndarray of shape (n_budgets,), dtype=float64
        Sum of these weights over all rows; 1 but for noise where propensities are right and
        the log has made every choice that the policy makes.

    n_fitted : int
        Rows that the router was fitted on: for these the estimates are too good.

    estimated : bool
        Whether propensities are estimates.
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


class _Terms(NamedTuple):
    """Estimate and standard error of the three estimators at one budget."""

    direct: tuple[float, float]
    snips: tuple[float, float]
    doubly_robust: tuple[float, float]


def direct_method(model):
    """Mean of what a model expects of the choices made, and its standard error."""
    return float(model.mean()), _standard_error(model)


def snips(value, weight):
    """Self-normalised inverse propensity score, and its standard error (delta method)."""
    found = float(weight @ value / weight.sum())
    return found, float(np.sqrt(weight**2 @ (value - found) ** 2) / weight.sum())


def doubly_robust(model, own, value, weight):
    """Dudik, Langford and Li (2011): ``mean[model + weight (value - own)]``.

    Parameters
    ----------
    model : ndarray of shape (n_rows,)
        What is expected of the policy's choice.
    own : ndarray of shape (n_rows,)
        What is expected of the logged choice.
    value : ndarray of shape (n_rows,)
        What came of it.
    weight : ndarray of shape (n_rows,)
        ``1 / propensity`` where the two are the same, else 0.

    Returns
    -------
    estimate, standard_error : float
    """
    terms = model + weight * (value - own)
    return float(terms.mean()), _standard_error(terms)


def _standard_error(terms):
    return float(terms.std(ddof=1) / np.sqrt(len(terms)))


def _three(table, choice, value, route, weight):
    """The three estimators for one policy and one kind of value."""
    rows = np.arange(len(route))
    model = table[rows, route]
    return _Terms(
        direct_method(model),
        snips(value, weight),
        doubly_robust(model, table[rows, choice], value, weight),
    )


def _with_intervals(terms, degrees, confidence_level):
    """Estimates of all budgets, with Student's intervals of so many degrees of freedom."""
    width = student.ppf((1 + confidence_level) / 2, np.maximum(degrees, 1.0))
    found = []
    for pairs in zip(*terms):
        estimate, error = np.array(pairs, dtype=np.float64).T
        found.append(
            OffPolicyEstimate(estimate, estimate - width * error, estimate + width * error, error)
        )
    return OffPolicyEstimates(*found)


def _check_overlap(route, logged, weight, names, budget):
    """Refuse a policy that the log says nothing of.

    Parameters
    ----------
    route, logged : ndarray of shape (n_rows,)
        Choices of the policy and of the log.
    weight : ndarray of shape (n_rows,)
        0 where the log made another choice.
    names : list of str
    budget : float
    """
    where = f"At budget={budget:.6g}" if np.isfinite(budget) else "Without a budget"
    advice = (
        "Leave the budget out of budgets, or log some requests at random (with their propensities)."
    )
    match = route == logged
    made = np.bincount(route, minlength=len(names))
    agreed = np.bincount(route[match], minlength=len(names))
    for name, n, m in zip(names, made, agreed):
        if never_matched(n, m, np.count_nonzero(logged == names.index(name)), len(route)):
            raise ValueError(
                f"{where} the policy sends {n / len(route):.1%} of the rows to {name!r}, and on "
                f"none of them has the log made this choice: it cannot say what that is worth. "
                f"{advice}"
            )
    size = effective_size(weight)
    if size < _LEAST_ROWS:
        raise ValueError(
            f"{where} the log agrees with the policy on {int(match.sum())} of {len(route)} rows, "
            f"an effective sample size of {size:.1f}, below {_LEAST_ROWS}: too few to say what the "
            f"policy is worth. {advice}"
        )
    lacks = 1 - weight.mean()
    if lacks > max(_LACKS, 5 * _standard_error(weight)):
        raise ValueError(
            f"{where} the rows on which log and policy agree stand for {1 - lacks:.1%} of all rows "
            "by their propensities: the log never made the policy's choice on the others (or "
            f"propensities are too large), and cannot say what it is worth there. {advice}"
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
    """What each budget would buy and cost, by a log of one answer per request.

    Only the answer that was given, and paid for, is known of a request. Three estimators say
    from it what the router would have made of the same requests: a model of what each choice
    would have given (direct method), the requests on which log and router agree, weighted by
    one over the probability of the logged choice (self-normalised inverse propensity score),
    and both together (doubly robust), which is right where either is. The model is a forest
    that reads a row and a choice, cross-fitted on the log: it judges no row that fitted it.

    Parameters
    ----------
    estimator : estimator
        A fitted router, a pipeline that ends with one, or a search over one of these. It
        should not have been fitted on these rows; where it was, `n_fitted` says so, and a
        warning if they are more than one in a hundred.

    X : array-like of shape (n_samples, n_features)
        The requests.

    q : array-like of shape (n_samples,)
        Quality of the answer that was given, higher is better. Rows with NaN, not known, are
        left out, as if they lacked at random.

    choice : array-like of shape (n_samples,)
        Which choice gave it: names, of ``choices_`` or others, or column numbers as in `fit`.

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

    Raises
    ------
    ValueError
        Where the log cannot say: a choice that the router makes was never logged on such
        rows, or agreement is too rare; for values and shapes that are none of a log.

    See Also
    --------
    OffPolicyDisplay : Draws it.
    accuracy_cost_curve : Where the quality of every choice is known.

    Notes
    -----
    Intervals are normal ones of the mean of the rows' terms, with Student's quantile for as
    many degrees of freedom as the effective sample size has rows. They are about the router
    as it is, on new rows of this kind.

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
    router, X = find_router(estimator, X)
    n = num_samples(X)
    check_consistent_length(X, q)
    value = read_values(q, "q", n, allow_nan=True)
    position, _ = read_choice(choice, [str(name) for name in router.choices_], n)
    position = _of_choices(router, position, choice)
    n_choices = max(len(router.choices_), int(position.max()) + 1)
    chance = None if propensity is None else read_propensity(propensity, n)
    paid = None if costs is None else read_values(costs, "costs", n, least=0.0)
    limits = check_budgets(_budgets_of(router) if budgets is None else budgets)
    # The router says first what is wrong with the rows.
    routes = [router.route(X, budget=limit, **params) for limit in limits]
    rows, folds = as_numbers(X), folds_of_log(n, cv)
    if chance is None:
        chance = estimate_propensities(rows, position, n_choices, folds)

    known = ~np.isnan(value)
    at, logged = np.flatnonzero(known), position[known]
    quality_model = _model(rows, position, value, n_choices, folds)[at]
    cost_model = None
    if paid is not None:
        cost_model = _model(rows, position, paid, n_choices, folds, ratio=True)[at]
    found: dict[str, list[Any]] = {"quality": [], "cost": [], "of": []}
    share = np.empty((len(limits), len(router.choices_)))
    for k, limit in enumerate(limits):
        route = routes[k][at]
        match = route == logged
        weight = np.where(match, 1 / chance[at], 0.0)
        _check_overlap(route, logged, weight, list(router.choices_), limit)
        found["quality"].append(_three(quality_model, logged, value[at], route, weight))
        if paid is not None:
            found["cost"].append(_three(cost_model, logged, paid[at], route, weight))
        else:
            reported = direct_method(router.predict_cost(X, budget=limit, **params)[at])
            found["cost"].append(_Terms(reported, reported, reported))
        found["of"].append([match.sum(), effective_size(weight), weight.max(), weight.mean()])
        share[k] = np.bincount(route, minlength=len(router.choices_)) / len(route)
    matched, size, most, mean = np.array(found["of"]).T
    return OffPolicyCurve(
        budget=limits,
        quality=_with_intervals(found["quality"], size - 1, confidence_level),
        cost=_with_intervals(found["cost"], size - 1, confidence_level),
        route_share=share,
        choices=[str(name) for name in router.choices_],
        matched=matched.astype(np.int64),
        effective_sample_size=size,
        max_weight=most,
        mean_weight=mean,
        n_fitted=_count_fitted(router, X),
        estimated=propensity is None,
    )


def _model(rows, choice, value, n_choices, folds, *, ratio=False):
    """What each choice would have given on each row, cross-fitted."""
    table = np.full((len(choice), n_choices), np.nan)
    table[np.arange(len(choice)), choice] = value
    return estimate_cells(rows, table, folds, ratio=ratio)


def _of_choices(router, position, choice):
    """Column numbers of `fit` as positions in ``choices_``; those left out come behind."""
    columns = getattr(router, "columns_", None)
    if columns is None or np.asarray(choice).dtype.kind not in "iu":
        return position
    found = np.full(max(int(position.max()), int(columns.max())) + 1, -1)
    found[columns] = np.arange(len(columns))
    others = np.flatnonzero(found < 0)
    found[others] = len(columns) + np.arange(len(others))
    return found[position]


def _budgets_of(router):
    """Nine budgets from the smallest to the largest that is of use."""
    if not hasattr(router, "price_path_"):
        raise ValueError(
            f"budgets must be given: {type(router).__name__} does not know its largest one."
        )
    own = router.price_path_.budgets
    least = router.min_budget_
    return np.linspace(least, least + max(own[-1] - own[0], 0.0), 9)


def _count_fitted(router, X):
    """Rows equal to some that the router has learned from; a warning where there are."""
    seen = getattr(router, "_seen", None)
    count = 0 if seen is None else int(np.count_nonzero(seen(X)))
    # Some requests come again: these are no rows of the fit.
    if count > _REPEATED * num_samples(X):
        warnings.warn(
            f"{count} of {num_samples(X)} rows equal rows that the router was fitted on. If they "
            "are the same requests, it is judged too well for these: give requests that it has "
            "not seen. New requests that only have equal features do no harm.",
            UserWarning,
            stacklevel=4,
        )
    return count
