"""What a policy would have been worth and have cost, by a log that another policy wrote."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length

from skroute.metrics._curve import check_budgets, find_router
from skroute.metrics._off_policy_sums import (
    Agreement,
    OffPolicyCurve,
    Terms,
    budgets_of,
    check_overlap,
    count_fitted,
    curve_of,
    direct_method,
    three_estimates,
    warn_of_fitted,
)
from skroute.quality._logged import (
    as_numbers,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
    read_choice,
    read_propensity,
    read_values,
)
from skroute.utils._compat import Integral, Interval, Real, num_samples, validate_params


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
        The requests. Of a Dask array or data frame, with the rest of the log in the same blocks,
        sums are added up over the blocks: propensities must be given then, and the model is the
        router's own estimate, so that the rows must not be those of its fit.

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
    router, X = find_router(estimator, X)
    n = num_samples(X)
    check_consistent_length(X, q)
    value = read_values(q, "q", n, allow_nan=True)
    position, _ = read_choice(choice, [str(name) for name in router.choices_], n)
    n_choices = max(len(router.choices_), int(position.max()) + 1)
    chance = None if propensity is None else read_propensity(propensity, n)
    paid = None if costs is None else read_values(costs, "costs", n, least=0.0)
    limits = check_budgets(budgets_of(router) if budgets is None else budgets)
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
        agreement = Agreement.of(route, logged, weight, len(router.choices_))
        check_overlap(agreement, list(router.choices_), limit)
        found["quality"].append(three_estimates(quality_model, logged, value[at], route, weight))
        if paid is not None:
            found["cost"].append(three_estimates(cost_model, logged, paid[at], route, weight))
        else:
            reported = direct_method(router.predict_cost(X, budget=limit, **params)[at])
            found["cost"].append(Terms(reported, reported, reported))
        found["of"].append(agreement)
        share[k] = np.bincount(route, minlength=len(router.choices_)) / len(route)
    n_fitted = count_fitted(router, X)
    warn_of_fitted(n_fitted, n)
    return curve_of(
        router, limits, found["of"], found["quality"], found["cost"], share, confidence_level
    )._replace(n_fitted=n_fitted, estimated=propensity is None)


def _model(rows, choice, value, n_choices, folds, *, ratio=False):
    """What each choice would have given on each row, cross-fitted."""
    table = np.full((len(choice), n_choices), np.nan)
    table[np.arange(len(choice)), choice] = value
    return estimate_cells(rows, table, folds, ratio=ratio)
