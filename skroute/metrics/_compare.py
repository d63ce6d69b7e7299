"""How sure a number is, and a router's curve beside random mix, best single choice and oracle."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, check_random_state

from skroute.assignment import solve_assignment
from skroute.metrics._curve import AccuracyCostCurve
from skroute.metrics._tradeoff import (
    average_performance_gap_recovered,
    call_performance_threshold,
    check_anchors,
    check_curve,
    cost_reduction_at,
    known_table,
    pareto_front,
    random_mix,
)
from skroute.utils._compat import Integral, Interval, Real, validate_params

# What may be said of resamples.
RESAMPLING: dict = {
    "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
    "n_resamples": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
}
METRICS = ("auc", "apgr", "cpt_50", "cpt_80", "saving", "distance")
CONTENDERS = ("router", "random", "single", "oracle", "gain")


class BootstrapInterval(NamedTuple):
    """See :func:`bootstrap_interval`."""

    estimate: float
    low: float
    high: float
    standard_error: float
    n_samples: int


@validate_params({"statistic": [callable], **RESAMPLING}, prefer_skip_nested_validation=True)
def bootstrap_interval(
    statistic: Callable[..., float],
    *rows: ArrayLike,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = None,
) -> BootstrapInterval:
    """Percentile bootstrap interval of a statistic of means over rows.

    Rows are drawn with replacement, all arrays alike; the statistic is computed from the
    column means of what was drawn. The interval says nothing about fitting a router again.

    Parameters
    ----------
    statistic : callable
        Called with one argument per array, the means of its columns: an array of shape
        (n_columns,), or a float for an array with one axis. Returns a float.

    *rows : array-like of shape (n_samples,) or (n_samples, n_columns)
        At least one array of values per row, for example ``row_cost`` and ``row_quality``
        of :func:`accuracy_cost_curve`.

    confidence_level : float, default=0.95
        Nominal coverage of the interval. Higher makes it wider.

    n_resamples : int, default=1000
        Number of resamples. More of them make the ends steadier and take longer.

    random_state : int, RandomState instance or None, default=None
        Determines the resamples. Pass an int for the same output at every call.

    Returns
    -------
    BootstrapInterval
        Named tuple ``(estimate, low, high, standard_error, n_samples)``: the number on all rows,
        the ends of the interval, the standard deviation over the resamples, and the rows that
        it rests on. Resamples in which the statistic is NaN are left out. If that is every one, or
        if the estimate is NaN, ends and standard error are NaN.

    Raises
    ------
    ValueError
        If there is no array, lengths differ, or a value is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import bootstrap_interval
    >>> right = np.random.RandomState(0).uniform(size=(400, 2)) < [0.8, 0.9]
    >>> result = bootstrap_interval(lambda mean: mean[1] - mean[0], right, random_state=0)
    >>> round(result.estimate, 3), round(result.low, 3), round(result.high, 3)
    (0.062, 0.015, 0.112)
    """
    if not rows:
        raise ValueError("bootstrap_interval needs at least one array of rows, got none.")
    arrays = [
        check_array(array, ensure_2d=False, dtype=np.float64, input_name="rows") for array in rows
    ]
    check_consistent_length(*arrays)
    return intervals(statistic, arrays, confidence_level, n_resamples, random_state)[0]


def intervals(statistic, arrays, confidence_level, n_resamples, random_state):
    """Percentile intervals of the numbers of a statistic, by the same resamples for all."""
    n, rng = len(arrays[0]), check_random_state(random_state)
    estimates = np.ravel(statistic(*(array.mean(axis=0) for array in arrays)))
    drawn, tail = np.empty((n_resamples, len(estimates))), (1 - confidence_level) / 2
    for values in drawn:
        times = np.bincount(rng.randint(n, size=n), minlength=n).astype(np.float64)
        values[:] = np.ravel(statistic(*(times @ array / n for array in arrays)))
    found = []
    for estimate, values in zip(estimates, drawn.T):
        # Resamples in which there is no such number do not count.
        known, sure = values[~np.isnan(values)], [np.nan] * 3
        if len(known) and not np.isnan(estimate):
            sure = [*np.quantile(known, [tail, 1 - tail]), np.std(known)]
        found.append(BootstrapInterval(*map(float, [estimate, *sure]), n))
    return found


def numbers_of_curve(cost, quality, models, weak, strong):
    """METRICS of one curve; `models` are (mean costs, mean qualities) of the choices."""
    weak, strong = np.transpose(models)[[weak, strong]]
    if not (weak < strong).all():
        # In a resample of few rows the better model may come out worse.
        return [np.nan] * len(METRICS)
    ends = {"weak": weak, "strong": strong}
    apgr = average_performance_gap_recovered(cost, quality, **ends)
    x, y = check_curve(cost, quality)
    # The lower end of a jump is no point that anybody would choose.
    top = np.r_[x[1:] > x[:-1], True]
    single = np.where(models[0] <= x[top, np.newaxis], models[1], -np.inf).max(axis=1)
    return [
        weak[1] + apgr * (strong - weak)[1],
        apgr,
        call_performance_threshold(cost, quality, 0.5, **ends),
        call_performance_threshold(cost, quality, 0.8, **ends),
        cost_reduction_at(cost, quality, reference_cost=strong[0], reference_quality=strong[1]),
        np.maximum(single - y[top], 0.0).mean(),
    ]


def _staircase(cost, quality):
    """Best single choice within each budget, as the corners of a step function."""
    front = pareto_front(cost, quality)
    cost, quality = cost[front], quality[front]
    return np.repeat(cost, 2)[1:], np.repeat(quality, 2)[:-1]


@validate_params({"curve": [AccuracyCostCurve], **RESAMPLING}, prefer_skip_nested_validation=True)
def compare_with_references(
    curve: AccuracyCostCurve,
    Q: ArrayLike,
    costs: ArrayLike,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = 500,
    random_state: Any = None,
) -> dict[str, dict[str, BootstrapInterval]]:
    """Compare a router's curve, in numbers, with random mix, best single choice and oracle.

    Every number is given for the router's curve and for the three references of
    :func:`reference_curves` on the same rows, with bootstrap intervals that resample these rows
    for all of them at once; what the router and the oracle chose for a row stays.

    The *weak* choice is the cheapest one and the *strong* choice the one with the best mean
    quality. The numbers are

    - ``"auc"``: mean quality over the costs from the weak to the strong choice
      (:func:`cost_quality_auc`, the curve ended by these two choices);
    - ``"apgr"``: the same as share of the gap between the two
      (:func:`average_performance_gap_recovered`);
    - ``"cpt_50"``, ``"cpt_80"``: how far towards the strong choice's cost one must go to
      recover 50 % and 80 % of the gap (:func:`call_performance_threshold`); less is better;
    - ``"saving"``: saving at the strong choice's quality (:func:`cost_reduction_at`, at
      measured points only); NaN, without an interval, where the curve does not reach it;
    - ``"distance"``: quality that the points of the curve lack, on average, to the best single
      choice that is no more expensive, 0 where none is better (the additive epsilon indicator in
      the direction of quality [1]_); less is better.

    Parameters
    ----------
    curve : AccuracyCostCurve
        From :func:`accuracy_cost_curve`, on rows that the router was not fitted on.

    Q, costs
        As in :func:`reference_curves`, of the same rows.

    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    Returns
    -------
    numbers : dict of str to dict of str to BootstrapInterval
        ``numbers[metric][who]`` with who in ``"router"``, ``"random"``, ``"single"``,
        ``"oracle"`` and ``"gain"``, which is the router's number minus the random mix's,
        resampled as a pair.

    Raises
    ------
    ValueError
        If the rows are not those of the curve, a choice that is best is also the cheapest
        (there is no gap to recover), or input is bad.

    References
    ----------
    .. [1] E. Zitzler et al. (2003). Performance assessment of multiobjective optimizers: an
       analysis and review. IEEE Transactions on Evolutionary Computation 7(2).

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import accuracy_cost_curve, compare_with_references
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(2000, n_models=3, n_features=2, random_state=0)
    >>> X, Q, costs = problem.data, problem.quality, problem.costs
    >>> forest = RandomForestRegressor(50, min_samples_leaf=50, random_state=0)
    >>> router = BudgetRouter(forest, costs=costs, cv=2).fit(X[:1000], Q[:1000])
    >>> curve = accuracy_cost_curve(router, X[1000:], Q[1000:], [0.1, 0.2, 0.4, 0.7, 1.0])
    >>> numbers = compare_with_references(
    ...     curve, Q[1000:], costs, n_resamples=50, random_state=0
    ... )
    >>> {who: round(value.estimate, 2) for who, value in numbers["apgr"].items()}
    {'router': 0.8, 'random': 0.5, 'single': 0.0, 'oracle': 2.07, 'gain': 0.3}
    """
    quality, costs = known_table(Q, costs)
    check_consistent_length(quality, curve.row_quality)
    # Validates the costs too. The greedy plan is within one row of the best.
    plans = np.column_stack(
        [solve_assignment(quality, costs, limit, solver="greedy").choices for limit in curve.budget]
    )
    singles = np.broadcast_to(np.asarray(costs, dtype=np.float64), quality.shape), quality
    oracle = [np.take_along_axis(table, plans, axis=1) for table in singles]
    means = np.array([table.mean(axis=0) for table in singles])
    # Of equals the better of the cheapest, the cheapest of the best.
    weak, strong = pareto_front(*means)[[0, -1]]
    check_anchors(*means.T[[weak, strong]])

    def statistic(cost, quality, oracle_cost, oracle_quality, *models):
        curves = [
            (cost, quality),
            random_mix(*models),
            _staircase(*models),
            (oracle_cost, oracle_quality),
        ]
        table = np.array([numbers_of_curve(*curve, models, weak, strong) for curve in curves])
        return np.vstack([table, table[0] - table[1]])

    arrays = [curve.row_cost, curve.row_quality, *oracle, *singles]
    numbers = intervals(statistic, arrays, confidence_level, n_resamples, random_state)
    found: dict[str, dict[str, BootstrapInterval]] = {metric: {} for metric in METRICS}
    for (who, metric), number in zip(product(CONTENDERS, METRICS), numbers):
        found[metric][who] = number
    return found
