"""Numbers that sum up a curve of cost and quality, how sure they are, and what to compare with."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array, check_consistent_length, check_random_state

from skroute.assignment import assignment_path, solve_assignment
from skroute.base import affords, check_costs
from skroute.metrics._curve import AccuracyCostCurve, check_budgets
from skroute.utils._compat import Integral, Interval, Real, validate_params
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match, in_order
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# What may be said of resamples.
RESAMPLING: dict = {
    "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
    "n_resamples": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
}
METRICS = ("auc", "apgr", "cpt_50", "cpt_80", "saving", "distance")
CONTENDERS = ("router", "random", "single", "oracle", "gain")


def check_curve(cost, quality):
    """The points of a curve, sorted by cost, then by quality."""
    check_rows_match(cost=cost, quality=quality)
    cost = check_numbers(cost, "cost of the curve", shape=(None,))
    quality = check_numbers(quality, "quality of the curve", shape=cost.shape)
    if not len(cost):
        raise ValueError(
            "cost and quality must have at least one point each, got none."
        )
    order = np.lexsort((quality, cost))
    return cost[order], quality[order]


def check_anchors(weak, strong):
    """Validate the two models, (cost, quality) each, between which a gap is measured."""
    name = "weak and strong, each a pair (cost, quality),"
    anchors = check_numbers([weak, strong], name, shape=(2, 2))
    if not (anchors[0] < anchors[1]).all():
        raise ValueError(
            "strong must cost more than weak and be better, or there is no gap to recover; got "
            f"weak={weak!r} and strong={strong!r} as (cost, quality)."
        )
    return anchors


_FINITE = [Interval(Real, None, None, closed="neither")]


@validate_params(
    {
        "reference_cost": [Interval(Real, 0, None, closed="neither")],
        "reference_quality": _FINITE,
        "max_drop": [Interval(Real, 0, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def cost_reduction_at(
    cost: ArrayLike,
    quality: ArrayLike,
    *,
    reference_cost: float,
    reference_quality: float,
    max_drop: float = 0.0,
) -> float:
    """Largest saving at which the quality drops by no more than a given amount.

    ``1 - cost / reference_cost`` of the cheapest point whose quality is at least
    ``reference_quality - max_drop``. Only points that were measured count, none between
    them. OCCAM's "40 % cost reduction with less than 1 % loss" is read this way [1]_.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    reference_cost : float
        Cost of what is compared with, for example the best single model; positive.

    reference_quality : float
        Its quality on the same rows.

    max_drop : float, default=0.0
        Quality that may be lost, in the unit of `quality`. A larger drop allows a larger saving.

    Returns
    -------
    float
        Share of `reference_cost` that is saved. Negative if the quality is only reached at a higher
        cost; NaN if it is not reached at all.

    Raises
    ------
    ValueError
        If the curve is not valid, `reference_cost` not positive or `max_drop` negative.

    References
    ----------
    .. [1] D. Ding et al. (2024). OCCAM: Towards cost-efficient and accuracy-aware
       classification inference. Table 2. arXiv:2406.04508

    Examples
    --------
    >>> from skroute.metrics import cost_reduction_at
    >>> cost, quality = [1, 2, 5, 8], [0.7, 0.84, 0.87, 0.89]
    >>> cost_reduction_at(cost, quality, reference_cost=10, reference_quality=0.88)
    0.2
    >>> cost_reduction_at(
    ...     cost, quality, reference_cost=10, reference_quality=0.88, max_drop=0.02
    ... )
    0.5
    """
    x, y = check_curve(cost, quality)
    # Room for the rounding of two means of the same rows.
    enough = y >= reference_quality - max_drop - 1e-12
    return (
        float((reference_cost - x[enough][0]) / reference_cost)
        if enough.any()
        else np.nan
    )


@validate_params(
    {"low": [*_FINITE, None], "high": [*_FINITE, None]},
    prefer_skip_nested_validation=True,
)
def cost_quality_auc(
    cost: ArrayLike,
    quality: ArrayLike,
    *,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """Area under the curve of quality over cost, divided by its width.

    That is what a budget drawn uniformly from `low` to `high` buys. Between two points the curve is
    straight, as a random mix of the two; beyond the last point it is flat.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    low : float, default=None
        Where the range of costs begins; the same for curves that are compared. None takes the
        smallest cost.

    high : float, default=None
        Where it ends. None takes the largest cost.

    Returns
    -------
    float
        Mean quality over the range.

    Raises
    ------
    ValueError
        If the curve is not valid, the range empty, or `low` below the smallest cost,
        where the curve says nothing.

    Examples
    --------
    >>> from skroute.metrics import cost_quality_auc
    >>> cost_quality_auc([0, 1], [0.5, 0.9])
    0.7
    >>> round(cost_quality_auc([0, 1], [0.5, 0.9], high=2), 3)
    0.8
    """
    x, y = check_curve(cost, quality)
    start = x[0] if low is None else low
    end = x[-1] if high is None else high
    if not affords(start, x[0]):
        raise ValueError(
            f"low={low!r} is below the smallest cost of the curve, {x[0]:.17g}; the curve says "
            "nothing about cheaper budgets."
        )
    start = max(start, x[0])
    if not start < end:
        raise ValueError(
            f"The range of costs must not be empty, got {start:.17g} to {end:.17g}. A curve needs "
            "two different costs, or low and high."
        )
    return float(_area(x, y, start, end) / (end - start))


def _area(x, y, start, end):
    """Integral of the piecewise linear curve through (x, y); flat outside its points."""
    # Where an x occurs twice the curve jumps: between equal nodes there is no area.
    inside = (x >= start) & (x <= end)
    nodes = np.r_[start, x[inside], end]
    heights = np.r_[np.interp(start, x, y), y[inside], np.interp(end, x, y)]
    return float(np.trapezoid(heights, nodes))


def _with_anchors(cost, quality, weak, strong):
    """The curve on the scale from weak to strong model, which can always be had themselves."""
    points, (weak, strong) = (
        np.transpose(check_curve(cost, quality)),
        check_anchors(weak, strong),
    )
    if points[0, 0] > weak[0]:
        points = np.vstack([weak, points])
    if points[-1, 0] < strong[0]:
        points = np.vstack([points, strong])
    return ((points - weak) / (strong - weak)).T


def average_performance_gap_recovered(
    cost: ArrayLike,
    quality: ArrayLike,
    *,
    weak: tuple[float, float],
    strong: tuple[float, float],
) -> float:
    r"""APGR: the share of the gap between two models that is recovered, averaged over cost.

    The gap recovered (PGR) at one point of the curve is

    .. math:: \frac{r - r_\text{weak}}{r_\text{strong} - r_\text{weak}},

    with :math:`r` the quality; APGR is its mean over the costs from the weak to the strong
    model [1]_. With two models of fixed cost this is RouteLLM's number (by trapezoids, as in the
    authors' code). A random mix of the two models has 0.5.

    Where the curve does not reach down to the weak model's cost, or up to the strong
    one's, these models themselves end it: they can always be had.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    weak, strong : tuple of (float, float)
        Cost and quality of the cheap and of the expensive model on the same rows; both are larger
        for `strong`.

    Returns
    -------
    float
        1 is the strong model's quality at every cost; 0 is the weak one's.

    Raises
    ------
    ValueError
        If the curve is not valid or `strong` is not both more expensive and better.

    See Also
    --------
    call_performance_threshold : The cost at which a share of the gap is recovered.

    References
    ----------
    .. [1] I. Ong et al. (2024). RouteLLM: Learning to route LLMs with preference data.
       Section on metrics. arXiv:2406.18665

    Examples
    --------
    >>> from skroute.metrics import average_performance_gap_recovered
    >>> average_performance_gap_recovered(
    ...     [0, 5, 10], [0.6, 0.75, 0.8], weak=(0, 0.6), strong=(10, 0.8)
    ... ).__round__(4)
    0.625
    """
    share, gap = _with_anchors(cost, quality, weak, strong)
    return _area(share, gap, 0.0, 1.0)


def call_performance_threshold(
    cost: ArrayLike,
    quality: ArrayLike,
    share: float,
    *,
    weak: tuple[float, float],
    strong: tuple[float, float],
) -> float:
    """CPT(x): the smallest cost, between the two models, that recovers a share x of the gap.

    On a scale where 0 is the weak and 1 the strong model's cost, and the curve is straight between
    its points. With two models of fixed cost that is RouteLLM's share of calls to the strong
    model (the source is that of :func:`average_performance_gap_recovered`). A random mix of the
    two models has ``share``.

    Parameters
    ----------
    cost, quality, weak, strong
        As in :func:`average_performance_gap_recovered`.

    share : float
        Share of the gap to recover, above 0 and at most 1: 0.8 for CPT(80 %).

    Returns
    -------
    float
        Between 0 and 1 as a rule; less is better. NaN if the curve goes beyond the strong
        model's cost and never recovers that much.

    Raises
    ------
    ValueError
        If the curve is not valid, `strong` is not both more expensive and better, or `share`
        is outside its range.

    Examples
    --------
    >>> from skroute.metrics import call_performance_threshold
    >>> curve = {"cost": [0, 5, 10], "quality": [0.6, 0.75, 0.8]}
    >>> call_performance_threshold(
    ...     **curve, share=0.5, weak=(0, 0.6), strong=(10, 0.8)
    ... ).__round__(4)
    0.3333
    """
    if not 0 < share <= 1:
        raise ValueError(
            f"share must be above 0 and at most 1 (0.8 for 80 % of the gap), got {share!r}."
        )
    position, gap = _with_anchors(cost, quality, weak, strong)
    reached = np.flatnonzero(gap >= share - ROUNDING)
    if not len(reached):
        return float("nan")
    # Between the last point that does not and the first that does.
    ends = slice(max(reached[0] - 1, 0), reached[0] + 1)
    return float(np.interp(share, gap[ends], position[ends]))


def pareto_front(cost: ArrayLike, quality: ArrayLike) -> NDArray[np.int64]:
    """Find the points that no other point dominates in cost and quality.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Of each point.

    Returns
    -------
    ndarray of shape (n_front,), dtype=int64
        Positions of the points on the front, by rising cost. Of equal points the first.

    Raises
    ------
    ValueError
        If there is no point, the lengths differ, or a number is not finite.

    Examples
    --------
    >>> from skroute.metrics import pareto_front
    >>> pareto_front(cost=[3, 1, 2, 2], quality=[0.8, 0.6, 0.9, 0.7])
    array([1, 2])
    """
    check_curve(cost, quality)
    x, y = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    order = np.lexsort((-y, x))
    best_before = np.r_[-np.inf, np.maximum.accumulate(y[order])[:-1]]
    return order[y[order] > best_before]


class ReferenceCurves(NamedTuple):
    """See :func:`reference_curves`."""

    budget: NDArray[np.float64]
    oracle: NDArray[np.float64]
    random: NDArray[np.float64]
    single: NDArray[np.float64]


def check_all_known(Q, name="Q"):
    """Quality of each choice on each row, none of it NaN: not known."""
    quality = check_array(
        Q, dtype=np.float64, input_name=name, ensure_all_finite="allow-nan"
    )
    if lacking := int(np.isnan(quality).any(axis=1).sum()):
        raise ValueError(
            f"{name} has NaN, not known, in {lacking} of {len(quality)} rows: an oracle picks by "
            f"all outcomes. Give the rows on which all are known, ~np.isnan({name}).any(axis=1)."
        )
    return quality


def costs_by_name(costs, names):
    """Costs in the order of names where they have names themselves; anything else as it is."""
    costs = in_order(by_label(costs), names)
    if not isinstance(costs, Mapping):
        return costs
    if not names:
        raise ValueError(
            f"costs has entries for {list(costs)!r}, but Q has no names: give it as a data frame, "
            "or costs in the order of its columns."
        )
    return check_costs(costs, names)


def known_table(Q, costs):
    """Qualities, none of them NaN, and costs in the order of Q's columns."""
    check_rows_match(Q=Q, costs=costs)
    names = [str(column) for column in column_keys(Q) or ()]
    return check_all_known(Q), costs_by_name(costs, names)


def random_mix(cost, quality):
    """Costs and qualities of the best mixes of choices of these mean costs and qualities."""
    # A problem of one row whose choices are the models: its relaxation mixes two of them.
    path = assignment_path(np.asarray(quality)[np.newaxis], cost)
    return path.budgets, path.objectives


def reference_curves(Q: ArrayLike, costs: Any, budgets: ArrayLike) -> ReferenceCurves:
    """Oracle, cost-matched random mix and best single choice over a range of budgets.

    - **oracle**: the largest mean quality that any assignment of the rows has within the
      budget, with the true qualities in hand. It is the optimum of the relaxation, which a
      real assignment meets up to one row.
    - **random**: every row is given to one of the best two choices by the toss of a coin, whose
      odds spend exactly the budget: the upper concave hull of the points (mean cost, mean quality)
      of the choices, flat behind the best. A router that does not beat it has learned nothing.
    - **single**: the best mean quality of one choice for all rows within the budget.

    *random* and *single* choose with these rows in hand, which favours them over a router that
    learned on others.

    Parameters
    ----------
    Q : array-like of shape (n_samples, n_choices)
        Quality of each choice on each row, higher is better; all of it known.

    costs : mapping or array-like of shape (n_choices,) or (n_samples, n_choices)
        Cost of each choice, shared by all rows or per row; not negative. What has names is
        read by those of Q's columns.

    budgets : array-like of shape (n_budgets,)
        Mean costs per row; None is unlimited.

    Returns
    -------
    ReferenceCurves
        Named tuple ``(budget, oracle, random, single)``. With costs per row, *random* and
        *single* are NaN at budgets that the oracle can meet and no single choice can.

    Raises
    ------
    ValueError
        For bad input, or a budget that not even the cheapest assignment meets.

    Examples
    --------
    >>> from skroute.metrics import reference_curves
    >>> Q = [[1, 1], [0, 1], [0, 1], [1, 0]]
    >>> curves = reference_curves(Q, costs=[0, 2], budgets=[0, 1, 2])
    >>> curves.oracle, curves.random, curves.single
    (array([0.5, 1. , 1. ]), array([0.5  , 0.625, 0.75 ]), array([0.5 , 0.5 , 0.75]))
    """
    limits = check_budgets(budgets)
    values, costs = known_table(Q, costs)
    oracle = assignment_path(values, costs)
    quality, cost = (np.atleast_2d(table).mean(axis=0) for table in (values, costs))
    fits = affords(limits[:, np.newaxis], cost)
    some = fits.any(axis=1)
    return ReferenceCurves(
        limits,
        np.array([oracle.objective(limit) for limit in limits]),
        np.where(some, np.interp(limits, *random_mix(cost, quality)), np.nan),
        np.where(some, np.where(fits, quality, -np.inf).max(axis=1), np.nan),
    )


class BootstrapInterval(NamedTuple):
    """See :func:`bootstrap_interval`."""

    estimate: float
    low: float
    high: float
    standard_error: float
    n_samples: int


@validate_params(
    {"statistic": [callable], **RESAMPLING}, prefer_skip_nested_validation=True
)
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
        raise ValueError(
            "bootstrap_interval needs at least one array of rows, got none."
        )
    check_rows_match(**{f"rows[{k}]": array for k, array in enumerate(rows)})
    arrays = [
        check_array(array, ensure_2d=False, dtype=np.float64, input_name="rows")
        for array in rows
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
        cost_reduction_at(
            cost, quality, reference_cost=strong[0], reference_quality=strong[1]
        ),
        np.maximum(single - y[top], 0.0).mean(),
    ]


def _staircase(cost, quality):
    """Best single choice within each budget, as the corners of a step function."""
    front = pareto_front(cost, quality)
    cost, quality = cost[front], quality[front]
    return np.repeat(cost, 2)[1:], np.repeat(quality, 2)[:-1]


@validate_params(
    {"curve": [AccuracyCostCurve], **RESAMPLING}, prefer_skip_nested_validation=True
)
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
        [
            solve_assignment(quality, costs, limit, solver="greedy").choices
            for limit in curve.budget
        ]
    )
    singles = (
        np.broadcast_to(np.asarray(costs, dtype=np.float64), quality.shape),
        quality,
    )
    oracle = [np.take_along_axis(table, plans, axis=1) for table in singles]
    means = np.array([table.mean(axis=0) for table in singles])
    # Of equals the better of the cheapest, the cheapest of the best.
    weak, strong = pareto_front(*means)[[0, -1]]
    check_anchors(*means.T[[weak, strong]])

    def statistic(*means):
        router, oracle, models = means[:2], means[2:4], means[4:]
        curves = [router, random_mix(*models), _staircase(*models), oracle]
        table = np.array(
            [numbers_of_curve(*curve, models, weak, strong) for curve in curves]
        )
        return np.vstack([table, table[0] - table[1]])

    arrays = [curve.row_cost, curve.row_quality, *oracle, *singles]
    numbers = intervals(statistic, arrays, confidence_level, n_resamples, random_state)
    # One metric after the other of each contender.
    return {
        metric: dict(zip(CONTENDERS, numbers[k :: len(METRICS)]))
        for k, metric in enumerate(METRICS)
    }
