"""Summaries of a curve of cost and quality, their intervals, and reference curves."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_array, check_consistent_length, check_random_state

from skroute.assignment import assignment_path, solve_assignment
from skroute.base import affords, check_costs
from skroute.metrics._curve import AccuracyCostCurve, check_budgets
from skroute.utils._compat import Integral, Interval, Real, validate_params
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match, in_order
from skroute.utils._tables import (
    Column,
    Table,
    format_interval,
    format_value,
    frame_of_record,
)
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Constraints of the parameters of a bootstrap.
RESAMPLING: dict = {
    "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
    "n_resamples": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
}
# Constraint of a finite number.
_FINITE = [Interval(Real, None, None, closed="neither")]
# Names in the result of `compare_with_references`: four curves, and the gain, which is
# the difference of the first two.
CONTENDERS = ("router", "random", "single", "oracle", "gain")


class Points(NamedTuple):
    """Mean costs and mean qualities: of the points of a curve, or of single choices.

    Attributes
    ----------
    cost, quality : ndarray of shape (n_points,)
    """

    cost: NDArray[np.float64]
    quality: NDArray[np.float64]


def check_curve(cost, quality):
    """Check a curve, and return its points sorted by cost, then by quality.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)

    Returns
    -------
    Points

    Raises
    ------
    ValueError
    """
    check_rows_match(cost=cost, quality=quality)
    cost = check_numbers(cost, "cost of the curve", shape=(None,))
    quality = check_numbers(quality, "quality of the curve", shape=cost.shape)
    if not len(cost):
        raise ValueError(
            "cost and quality must have at least one point each, got none."
        )
    order = np.lexsort((quality, cost))
    return Points(cost[order], quality[order])


def check_anchors(weak, strong):
    """Check that the strong model costs more than the weak one, and is better.

    Parameters
    ----------
    weak, strong : pair of (cost, quality)

    Returns
    -------
    ndarray of shape (2, 2)
        Rows: the weak model and the strong model. Columns: cost and quality.

    Raises
    ------
    ValueError
        If `strong` is not both more expensive and better.
    """
    name = "weak and strong, each a pair (cost, quality),"
    anchors = check_numbers([weak, strong], name, shape=(2, 2))
    weak_point, strong_point = anchors
    if not (weak_point < strong_point).all():
        raise ValueError(
            "strong must cost more than weak and be better, or there is no gap to "
            f"recover; got weak={weak!r} and strong={strong!r} as (cost, quality)."
        )
    return anchors


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
    """Compute the largest saving of cost if quality may drop by a given amount.

    It is ``1 - cost / reference_cost`` of the cheapest point whose quality is at least
    ``reference_quality - max_drop``. Only measured points count, none between them.
    OCCAM chooses one of several models for each row. Its "40 % cost reduction with less
    than 1 % loss" is such a number [1]_.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    reference_cost : float
        Cost of the reference, for example the best single model; positive.

    reference_quality : float
        Quality of the reference on the same rows.

    max_drop : float, default=0.0
        Quality that may be lost, in the unit of `quality`. A larger drop allows a
        larger saving.

    Returns
    -------
    float
        Share of `reference_cost` that is saved. It is negative if only a higher cost
        reaches the quality, and NaN if no point reaches it.

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
    points = check_curve(cost, quality)
    # Two means of the same rows may differ by rounding.
    is_enough = points.quality >= reference_quality - max_drop - ROUNDING
    if not is_enough.any():
        # No point reaches the quality.
        return np.nan
    # The points are sorted by cost.
    cheapest = points.cost[is_enough][0]
    return float((reference_cost - cheapest) / reference_cost)


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
    """Compute the area under the curve of quality over cost, divided by its width.

    This is the mean quality for a budget that is drawn uniformly from `low` to `high`.
    Between two points the curve is straight, as a random mix of the two. Beyond the
    last point it is flat.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    low : float, default=None
        Lower end of the range of costs. It must be the same for curves that are
        compared. None takes the smallest cost.

    high : float, default=None
        Upper end of the range of costs. None takes the largest cost.

    Returns
    -------
    float
        Mean quality over the range.

    Raises
    ------
    ValueError
        If the curve is not valid, the range is empty, or `low` is below the smallest
        cost, where the curve has no value.

    Examples
    --------
    >>> from skroute.metrics import cost_quality_auc
    >>> cost_quality_auc([0, 1], [0.5, 0.9])
    0.7
    >>> round(cost_quality_auc([0, 1], [0.5, 0.9], high=2), 3)
    0.8
    """
    points = check_curve(cost, quality)
    smallest = points.cost[0]
    start = smallest if low is None else low
    end = points.cost[-1] if high is None else high
    if not affords(start, smallest):
        raise ValueError(
            f"low={low!r} is below the smallest cost of the curve, {smallest:.17g}; "
            "the curve says nothing about cheaper budgets."
        )
    # `low` may be below the smallest cost by rounding.
    start = max(start, smallest)
    if not start < end:
        raise ValueError(
            f"The range of costs must not be empty, got {start:.17g} to {end:.17g}. A "
            "curve needs two different costs, or low and high."
        )
    return float(_area(points, start=start, end=end) / (end - start))


def _area(points, *, start, end):
    """Return the integral of the piecewise linear curve through sorted points.

    Parameters
    ----------
    points : Points
        Sorted by cost. The curve is flat outside of them.
    start, end : float
        The range of costs.

    Returns
    -------
    float
    """
    is_inside = (points.cost >= start) & (points.cost <= end)
    height_at_start, height_at_end = np.interp(
        [start, end], points.cost, points.quality
    )
    costs = np.r_[start, points.cost[is_inside], end]
    heights = np.r_[height_at_start, points.quality[is_inside], height_at_end]
    # At two points of the same cost the curve jumps. Their trapezoid has the width 0.
    return float(np.trapezoid(heights, costs))


def _scale_to_anchors(cost, quality, *, weak, strong):
    """Scale a curve, with the weak model at (0, 0) and the strong one at (1, 1).

    The points are (cost, quality). A curve that does not
    reach the cost of one of the two models gets this model as its end.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
    weak, strong : pair of (cost, quality)

    Returns
    -------
    Points
    """
    sorted_points = check_curve(cost, quality)
    # Each point has two numbers: cost and quality.
    weak_point, strong_point = check_anchors(weak, strong)
    weak_cost = weak_point[0]
    strong_cost = strong_point[0]
    points = np.column_stack(sorted_points)  # (n_points, 2): cost and quality
    if sorted_points.cost[0] > weak_cost:
        points = np.vstack([weak_point, points])
    if sorted_points.cost[-1] < strong_cost:
        points = np.vstack([points, strong_point])
    scaled = (points - weak_point) / (strong_point - weak_point)
    return Points(cost=scaled[:, 0], quality=scaled[:, 1])


def average_performance_gap_recovered(
    cost: ArrayLike,
    quality: ArrayLike,
    *,
    weak: tuple[float, float],
    strong: tuple[float, float],
) -> float:
    r"""Compute APGR, the recovered share of the quality gap between two models.

    The share of the gap recovered (PGR) at one point of the curve is

    .. math:: \frac{r - r_\text{weak}}{r_\text{strong} - r_\text{weak}},

    with :math:`r` the quality. APGR is the mean of PGR over the costs from the weak to
    the strong model [1]_. With two models of fixed cost this is RouteLLM's number (by
    trapezoids, as in the authors' code). It is 0.5 for a random mix of the two models.

    If the curve does not reach the cost of one of the two models, this model is the end
    of the curve: it can always be used alone.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Means at each point of the curve.

    weak, strong : tuple of (float, float)
        Cost and quality of the cheap model and of the expensive model, on the same
        rows. Both numbers are larger for `strong`.

    Returns
    -------
    float
        1 if the curve has the quality of the strong model at every cost, and 0 if it
        has the quality of the weak model.

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
    scaled = _scale_to_anchors(cost, quality, weak=weak, strong=strong)
    return _area(scaled, start=0.0, end=1.0)


def call_performance_threshold(
    cost: ArrayLike,
    quality: ArrayLike,
    share: float,
    *,
    weak: tuple[float, float],
    strong: tuple[float, float],
) -> float:
    """Compute CPT(x), the least cost for a share x of the quality gap of two models.

    The gap is the difference in quality between a weak and a strong model. The cost is
    returned on a scale: 0 is the cost of the weak model, and 1 the cost of the strong
    model. Between its points, the curve is straight.

    With two models of fixed cost, CPT is RouteLLM's share of calls to the strong model.
    The reference is in :func:`average_performance_gap_recovered`. For a random mix of
    the two models, CPT(x) is x.

    Parameters
    ----------
    cost : array-like of shape (n_points,)
        As in :func:`average_performance_gap_recovered`.

    quality : array-like of shape (n_points,)
        As in :func:`average_performance_gap_recovered`.

    share : float
        Share of the gap to recover, above 0 and at most 1: 0.8 for CPT(80 %).

    weak : tuple of (float, float)
        As in :func:`average_performance_gap_recovered`.

    strong : tuple of (float, float)
        As in :func:`average_performance_gap_recovered`.

    Returns
    -------
    float
        The cost on this scale: usually between 0 and 1, lower is better. NaN if the
        curve goes beyond the cost of the strong model and never recovers this share.

    Raises
    ------
    ValueError
        If the curve is not valid, `strong` is not both more expensive and better, or
        `share` is outside its range.

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
            "share must be above 0 and at most 1 (0.8 for 80 % of the gap), got "
            f"{share!r}."
        )
    curve = _scale_to_anchors(cost, quality, weak=weak, strong=strong)
    reaching = np.flatnonzero(curve.quality >= share - ROUNDING)
    if not len(reaching):
        # No point recovers this share of the gap in quality.
        return float("nan")
    # Positions of the first point that reaches the share, and of the point before it,
    # if any. The curve is straight between the two.
    first = reaching[0]
    segment = slice(max(first - 1, 0), first + 1)
    return float(np.interp(share, curve.quality[segment], curve.cost[segment]))


def pareto_front(cost: ArrayLike, quality: ArrayLike) -> NDArray[np.int64]:
    """Find the points that no other point dominates in cost and quality.

    Parameters
    ----------
    cost, quality : array-like of shape (n_points,)
        Cost and quality of each point.

    Returns
    -------
    ndarray of shape (n_front,), dtype=int64
        Positions of the points on the front, by rising cost. If points are equal, it
        has the first of them.

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
    costs = np.asarray(cost, dtype=np.float64)
    qualities = np.asarray(quality, dtype=np.float64)
    # By rising cost, and the best point first among points of the same cost.
    order = np.lexsort((-qualities, costs))
    sorted_qualities = qualities[order]
    # A point is on the front if it is better than all points before it.
    best_so_far = np.maximum.accumulate(sorted_qualities)
    # No point is before the first: -inf.
    best_before = np.r_[-np.inf, best_so_far[:-1]]
    return order[sorted_qualities > best_before]


# Reference curves ---------------------------------------------------------------------


class ReferenceCurves(NamedTuple):
    """Mean quality of oracle, random mix and best single choice at each budget.

    This is the result of :func:`reference_curves`, which describes the fields.
    """

    budget: NDArray[np.float64]
    oracle: NDArray[np.float64]
    random: NDArray[np.float64]
    single: NDArray[np.float64]

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the curves as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each budget, with the columns ``budget``, ``single``, ``random``
            and ``oracle``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the curves as the `Table` that is printed and becomes a frame."""
        # If costs differ by row, a budget may be enough for the oracle, which can take
        # the cheapest choice of each row, but for no single choice.
        no_single = "none affordable"
        return Table(
            f"ReferenceCurves: mean quality at {len(self.budget)} budgets",
            [
                Column("budget", self.budget, unit="per row"),
                Column("single", self.single, label="best single", missing=no_single),
                Column("random", self.random, label="random mix", missing=no_single),
                Column("oracle", self.oracle),
            ],
        )


def check_all_known(Q, name="Q"):
    """Return the quality of each choice on each row. Raise an error if one is NaN.

    Parameters
    ----------
    Q : array-like of shape (n_rows, n_choices)
    name : str, default="Q"
        Name of the argument for messages.

    Returns
    -------
    ndarray of shape (n_rows, n_choices), dtype=float64
    """
    quality = check_array(
        Q, dtype=np.float64, input_name=name, ensure_all_finite="allow-nan"
    )
    n_incomplete = int(np.isnan(quality).any(axis=1).sum())
    if n_incomplete:
        raise ValueError(
            f"{name} has NaN, not known, in {n_incomplete} of {len(quality)} rows: an "
            "oracle picks by all outcomes. Give the rows on which all are known, "
            f"~np.isnan({name}).any(axis=1)."
        )
    return quality


def check_qualities_known(sweep):
    """Raise a ValueError if a table of qualities has NaN and all choices are compared.

    Parameters
    ----------
    sweep : BudgetSweep
    """
    router = sweep.router
    only_routes = not (is_classifier(router) or is_regressor(router))
    is_logged = only_routes and sweep.y.ndim == 2
    # A function of the user may have a quality where the table has NaN.
    if is_logged and sweep.objective.name == "accuracy" and sweep.single_names:
        check_all_known(sweep.y, "y")


def costs_by_name(costs, names):
    """Return costs in the order of the choices, if the costs have names.

    Parameters
    ----------
    costs : mapping, series, dataframe or array-like
    names : list of str
        Names of the choices.

    Returns
    -------
    array-like
        Costs without names are returned as they are.
    """
    # `by_label` turns a series with names into a dict, `in_order` sorts a frame.
    costs = in_order(by_label(costs), names, "costs" if names else None)
    if not isinstance(costs, Mapping):
        return costs
    if not names:
        raise ValueError(
            f"costs has entries for {list(costs)!r}, but Q has no names: give it as a "
            "data frame, or costs in the order of its columns."
        )
    return check_costs(costs, names)


def _check_table(Q, costs):
    """Check a table of qualities without NaN, and the costs of its columns.

    Parameters
    ----------
    Q, costs
        As in :func:`reference_curves`.

    Returns
    -------
    quality : ndarray of shape (n_rows, n_choices)
    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        In the order of the columns of `Q`. The numbers are not checked.
    """
    check_rows_match(Q=Q, costs=costs)
    # A table without names of columns has no keys.
    keys = column_keys(Q) or ()
    names = [str(key) for key in keys]
    return check_all_known(Q), costs_by_name(costs, names)


def random_mix(cost, quality):
    """Return mean cost and quality at the corners of the best random mixes of choices.

    Parameters
    ----------
    cost, quality : array-like of shape (n_choices,)
        Mean cost and mean quality of each choice.

    Returns
    -------
    Points
        By rising cost. The best mix for a budget between two corners is on the straight
        line that joins them.
    """
    # A relaxed assignment may split a row between two choices. For a single row whose
    # qualities are the means, the two shares are the probabilities of the best mix.
    single_row = np.asarray(quality)[np.newaxis]  # (1, n_choices)
    path = assignment_path(single_row, cost)
    return Points(cost=path.budgets, quality=path.objectives)


def reference_curves(Q: ArrayLike, costs: Any, budgets: ArrayLike) -> ReferenceCurves:
    """Compute oracle, random mix and best single choice over a range of budgets.

    - **oracle**: the largest mean quality of an assignment of the rows within the
      budget, if the true qualities are known. It is the optimum of the relaxation. A
      real assignment reaches it up to one row.
    - **random**: the best :term:`random mix`. Each row is given to one of two choices
      by chance, with probabilities that spend exactly the budget. This is the upper
      concave hull of the points (mean cost, mean quality) of the choices, flat beyond
      the best choice. A router that is not above it has learned nothing.
    - **single**: the best mean quality within the budget if all rows get the same
      choice.

    *random* and *single* choose by the outcomes of these rows. This favours them over a
    router that learned on other rows.

    Parameters
    ----------
    Q : array-like of shape (n_samples, n_choices)
        Quality of each choice on each row, without NaN; higher is better.

    costs : mapping or array-like of shape (n_choices,) or (n_samples, n_choices)
        Cost of each choice, shared by all rows or per row; not negative. Costs with
        names are read by the names of the columns of `Q`.

    budgets : array-like of shape (n_budgets,)
        Mean costs per row; None is unlimited.

    Returns
    -------
    ReferenceCurves
        Named tuple ``(budget, oracle, random, single)``. With costs per row, *random*
        and *single* are NaN at a budget that is enough for the oracle, but for no
        single choice.

    Raises
    ------
    ValueError
        For input that is not valid, or a budget below the cheapest assignment.

    Examples
    --------
    >>> from skroute.metrics import reference_curves
    >>> Q = [[1, 1], [0, 1], [0, 1], [1, 0]]
    >>> curves = reference_curves(Q, costs=[0, 2], budgets=[0, 1, 2])
    >>> curves.oracle, curves.random, curves.single
    (array([0.5, 1. , 1. ]), array([0.5  , 0.625, 0.75 ]), array([0.5 , 0.5 , 0.75]))
    """
    checked_budgets = check_budgets(budgets)
    quality, costs = _check_table(Q, costs)
    path = assignment_path(quality, costs)
    mean_quality = quality.mean(axis=0)
    # Costs that all rows share are their own means.
    mean_cost = np.atleast_2d(costs).mean(axis=0)
    mix = random_mix(mean_cost, mean_quality)
    # True if the budget pays for the choice on all rows. (n_budgets, n_choices)
    is_affordable = affords(checked_budgets[:, np.newaxis], mean_cost)
    has_single = is_affordable.any(axis=1)
    random = np.interp(checked_budgets, mix.cost, mix.quality)
    # -inf excludes choices that cost more than the budget.
    single = np.where(is_affordable, mean_quality, -np.inf).max(axis=1)
    return ReferenceCurves(
        budget=checked_budgets,
        oracle=np.array([path.objective(budget) for budget in checked_budgets]),
        # A mix costs at least as much as the cheapest single choice.
        random=np.where(has_single, random, np.nan),
        single=np.where(has_single, single, np.nan),
    )


# Intervals ----------------------------------------------------------------------------


class BootstrapInterval(NamedTuple):
    """Estimate of a statistic, with its bootstrap interval and standard error.

    This is the result of :func:`bootstrap_interval`, which describes the fields.
    """

    estimate: float
    low: float
    high: float
    standard_error: float
    n_samples: int

    def __repr__(self) -> str:
        text = format_interval(self.estimate, self.low, self.high)
        error = format_value(self.standard_error)
        return (
            f"BootstrapInterval: {text}, standard error {error}, "
            f"{self.n_samples:,} rows"
        )

    def to_frame(self) -> Any:
        """Return the interval as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row, with the fields as columns.
        """
        return frame_of_record(self._asdict())


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
    """Compute a percentile bootstrap interval of a statistic of means over rows.

    Rows are drawn with replacement, at the same positions in all arrays. The statistic
    is computed from the column means of the drawn rows. The interval does not include
    the variation between fits of a router.

    Parameters
    ----------
    statistic : callable
        Called with one argument per array, the means of its columns: an array of shape
        (n_columns,), or a float for an array with one axis. It returns a float.

    *rows : array-like of shape (n_samples,) or (n_samples, n_columns)
        At least one array of values per row, for example ``row_cost`` and
        ``row_quality`` of :func:`accuracy_cost_curve`.

    confidence_level : float, default=0.95
        Nominal coverage of the interval. Higher makes it wider.

    n_resamples : int, default=1000
        Number of resamples. With more of them the ends vary less, and it takes longer.

    random_state : int, RandomState instance or None, default=None
        Draws the rows of each resample. Pass an int for the same output at every call.

    Returns
    -------
    BootstrapInterval
        Named tuple ``(estimate, low, high, standard_error, n_samples)``: the statistic
        of all rows, the ends of the interval, the standard deviation over the
        resamples, and the number of rows. Resamples in which the statistic is NaN are
        left out. If it is NaN in all resamples, or the estimate is NaN, then ends and
        standard error are NaN.

    Raises
    ------
    ValueError
        If there is no array, lengths differ, or a value is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import bootstrap_interval
    >>> right = np.random.RandomState(0).uniform(size=(400, 2)) < [0.8, 0.9]
    >>> result = bootstrap_interval(
    ...     lambda mean: mean[1] - mean[0], right, random_state=0
    ... )
    >>> round(result.estimate, 3), round(result.low, 3), round(result.high, 3)
    (0.062, 0.015, 0.112)
    """
    if not rows:
        raise ValueError(
            "bootstrap_interval needs at least one array of rows, got none."
        )
    # Each array has a name for messages.
    array_of_name = {f"rows[{position}]": array for position, array in enumerate(rows)}
    check_rows_match(**array_of_name)
    arrays = [
        check_array(array, ensure_2d=False, dtype=np.float64, input_name="rows")
        for array in rows
    ]
    check_consistent_length(*arrays)
    results = intervals(
        statistic,
        arrays,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    # The statistic is one number, with one interval.
    return results[0]


def intervals(statistic, arrays, *, confidence_level, n_resamples, random_state):
    """Return a percentile interval for each number that a statistic returns.

    All intervals are from the same resamples.

    Parameters
    ----------
    statistic : callable
        Called with the column means of each array. It returns an array-like of any
        shape.
    arrays : list of ndarray of shape (n_rows,) or (n_rows, n_columns)
    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    Returns
    -------
    list of BootstrapInterval
        One for each number of the statistic, in C order.
    """
    n_rows = len(arrays[0])
    rng = check_random_state(random_state)
    means_of_all_rows = [array.mean(axis=0) for array in arrays]
    estimates = np.ravel(statistic(*means_of_all_rows))  # (n_numbers,)
    resampled = np.empty((n_resamples, len(estimates)))
    for resample in range(n_resamples):
        drawn_rows = rng.randint(n_rows, size=n_rows)
        times_drawn = np.bincount(drawn_rows, minlength=n_rows).astype(np.float64)
        # A row counts in the mean as often as it was drawn.
        means = [times_drawn @ array / n_rows for array in arrays]
        resampled[resample] = np.ravel(statistic(*means))
    results = []
    for estimate, values in zip(estimates, resampled.T):
        results.append(
            _percentile_interval(
                estimate, values, confidence_level=confidence_level, n_rows=n_rows
            )
        )
    return results


def _percentile_interval(estimate, resampled, *, confidence_level, n_rows):
    """Return the percentile interval of one number (`BootstrapInterval`).

    Parameters
    ----------
    estimate : float
        The number on all rows.
    resampled : ndarray of shape (n_resamples,)
        The number in each resample, NaN where it is not defined.
    confidence_level : float
    n_rows : int
    """
    defined = resampled[~np.isnan(resampled)]
    if np.isnan(estimate) or not len(defined):
        # The number, or all its resamples, are not defined: there is no interval.
        return BootstrapInterval(
            estimate=float(estimate),
            low=np.nan,
            high=np.nan,
            standard_error=np.nan,
            n_samples=n_rows,
        )
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return BootstrapInterval(
        estimate=float(estimate),
        low=float(low),
        high=float(high),
        standard_error=float(np.std(defined)),
        n_samples=n_rows,
    )


# Comparison with the references -------------------------------------------------------


class CurveNumbers(NamedTuple):
    """Summary numbers of one curve, such as its area and its largest saving.

    :func:`compare_with_references` describes the numbers.
    """

    auc: float
    apgr: float
    cpt_50: float
    cpt_80: float
    saving: float
    distance: float


# Names of the summary numbers of a curve.
METRICS = CurveNumbers._fields
# Summary numbers of which lower is better. Of all other numbers, higher is better.
_LOWER_IS_BETTER = ("cpt_50", "cpt_80", "distance")


class Comparison(dict):
    """Summary numbers of a router and its references, by name, with intervals.

    This is the result of :func:`compare_with_references`, which describes the keys.
    """

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the numbers as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each number, with its name in ``number``, and ``"higher"`` or
            ``"lower"`` in ``better``. For each of ``router``, ``random``, ``single``,
            ``oracle`` and ``gain`` there are the columns ``<name>``, ``<name>_low`` and
            ``<name>_high``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the numbers as the `Table` that is printed and becomes a frame."""
        better = []
        for metric in self:
            better.append("lower" if metric in _LOWER_IS_BETTER else "higher")
        columns = [Column("number", list(self)), Column("better", better)]
        # The printed table may not have room for all contenders. So the gain comes
        # before the references.
        for name in ("router", "gain", "random", "single", "oracle"):
            columns.extend(self._columns_of(name))
        return Table(
            "Router and references, with intervals; gain: router less random mix",
            columns,
        )

    def _columns_of(self, name):
        """Return three columns of one curve or the gain: estimates and interval ends.

        `name` is one of `CONTENDERS`. The printed table has one column for it. Only the
        router and its gain have their intervals there.
        """
        intervals_of_metrics = [numbers[name] for numbers in self.values()]
        has_interval = name in ("router", "gain")
        texts = []
        for interval in intervals_of_metrics:
            # NaN: no interval is printed.
            low = interval.low if has_interval else np.nan
            high = interval.high if has_interval else np.nan
            texts.append(
                format_interval(interval.estimate, low, high, missing="not reached")
            )
        estimates = [interval.estimate for interval in intervals_of_metrics]
        lows = [interval.low for interval in intervals_of_metrics]
        highs = [interval.high for interval in intervals_of_metrics]
        return [
            Column(name, estimates, texts=texts),
            Column(f"{name}_low", lows, in_text=False),
            Column(f"{name}_high", highs, in_text=False),
        ]


def numbers_of_curve(curve, singles, *, weak, strong):
    """Return summary numbers of a curve, such as its area and its largest saving.

    Parameters
    ----------
    curve : Points
        Means at each budget.
    singles : Points
        Mean cost and mean quality of each choice.
    weak, strong : int
        Positions of the choices between which the gap in quality is measured.

    Returns
    -------
    CurveNumbers
        NaN if `strong` is not both more expensive and better. This can happen in a
        resample.
    """
    weak_cost = singles.cost[weak]
    weak_quality = singles.quality[weak]
    strong_cost = singles.cost[strong]
    strong_quality = singles.quality[strong]
    gap = strong_quality - weak_quality
    if not (weak_cost < strong_cost and gap > 0):
        # There is no gap in quality to recover: all numbers are NaN.
        return CurveNumbers._make([np.nan] * len(METRICS))
    weak_point = (weak_cost, weak_quality)
    strong_point = (strong_cost, strong_quality)
    apgr = average_performance_gap_recovered(
        curve.cost, curve.quality, weak=weak_point, strong=strong_point
    )
    threshold = partial(
        call_performance_threshold,
        curve.cost,
        curve.quality,
        weak=weak_point,
        strong=strong_point,
    )
    return CurveNumbers(
        # APGR is the mean quality on a scale from 0 (weak) to 1 (strong).
        auc=weak_quality + apgr * gap,
        apgr=apgr,
        cpt_50=threshold(share=0.5),
        cpt_80=threshold(share=0.8),
        saving=cost_reduction_at(
            curve.cost,
            curve.quality,
            reference_cost=strong_cost,
            reference_quality=strong_quality,
        ),
        distance=_mean_distance(curve, singles),
    )


def _mean_distance(curve, singles):
    """Return how far a curve is on average below the best affordable single choices.

    The distance of a point of the curve is a difference of qualities: the quality of
    the best choice which is not more expensive, minus the quality of the point. It is 0
    if the point is better, or cheaper than all choices.

    Parameters
    ----------
    curve : Points
    singles : Points
        Mean cost and mean quality of each choice.

    Returns
    -------
    float
        The mean over the points. Points of the same cost count as one.
    """
    points = check_curve(curve.cost, curve.quality)
    # Only the last of several points of the same cost counts. The points are sorted by
    # cost, then by quality, so the last one is the best.
    is_best = np.r_[points.cost[1:] > points.cost[:-1], True]
    best_cost = points.cost[is_best]
    best_quality = points.quality[is_best]
    # True if the choice costs no more than the point. (n_best_points, n_choices)
    is_affordable = singles.cost <= best_cost[:, np.newaxis]
    # A point that is cheaper than all choices is compared with -inf: its distance is 0.
    best_single = np.where(is_affordable, singles.quality, -np.inf).max(axis=1)
    return np.maximum(best_single - best_quality, 0.0).mean()


def _staircase(singles):
    """Return the best single choice within each budget, as corners of a step function.

    Parameters
    ----------
    singles : Points
        Mean cost and mean quality of each choice.

    Returns
    -------
    Points
        By rising cost. The first choice on the Pareto front has one point. Each later
        choice has two points at its cost: the lower one has the quality of the choice
        before, and the upper one has its own quality.
    """
    front = pareto_front(singles.cost, singles.quality)
    # The costs (c0, c1, c2) become (c0, c1, c1, c2, c2), and the qualities
    # (q0, q1, q2) become (q0, q0, q1, q1, q2).
    return Points(
        cost=np.repeat(singles.cost[front], 2)[1:],
        quality=np.repeat(singles.quality[front], 2)[:-1],
    )


def _numbers_of_contenders(
    router_cost,
    router_quality,
    oracle_cost,
    oracle_quality,
    single_cost,
    single_quality,
    *,
    weak,
    strong,
):
    """Return summary numbers of the router, its references and its gain, from means.

    Parameters
    ----------
    router_cost, router_quality : ndarray of shape (n_budgets,)
        Means of the router at each budget.
    oracle_cost, oracle_quality : ndarray of shape (n_budgets,)
        Means of the oracle at each budget.
    single_cost, single_quality : ndarray of shape (n_choices,)
        Means of each choice if it is made on all rows.
    weak, strong : int
        Positions of the choices between which the gap in quality is measured.

    Returns
    -------
    ndarray of shape (n_contenders, n_metrics)
        In the order of CONTENDERS and METRICS.
    """
    singles = Points(single_cost, single_quality)
    curves = [
        Points(router_cost, router_quality),
        random_mix(single_cost, single_quality),
        _staircase(singles),
        Points(oracle_cost, oracle_quality),
    ]
    table = []
    for curve in curves:
        table.append(numbers_of_curve(curve, singles, weak=weak, strong=strong))
    # The curves are in the order of CONTENDERS: router and random mix come first.
    router, random, *_ = table
    gain = np.subtract(router, random)
    return np.array([*table, gain])


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
) -> Comparison:
    """Compare the curve of a router with random mix, best single choice and oracle.

    Each number is computed for the router's curve and for the three references of
    :func:`reference_curves` on the same rows. The bootstrap intervals resample these
    rows, the same for all curves. The choices of the router and of the oracle for a row
    stay as they are.

    The *weak* choice is the cheapest one. The *strong* choice is the one with the best
    mean quality. The numbers are

    - ``"auc"``: mean quality over the costs from the weak to the strong choice
      (:func:`cost_quality_auc` of the curve with these two choices as its ends);
    - ``"apgr"``: the share of the gap in quality between the two choices that is
      recovered on average (:func:`average_performance_gap_recovered`);
    - ``"cpt_50"``, ``"cpt_80"``: the cost that recovers 50 % and 80 % of the gap, as a
      share of the way from the weak to the strong choice
      (:func:`call_performance_threshold`); lower is better;
    - ``"saving"``: the saving at the quality of the strong choice
      (:func:`cost_reduction_at`, at measured points only); NaN, without an interval, if
      the curve does not reach it;
    - ``"distance"``: the mean quality by which the points of the curve are below the
      best single choice that is not more expensive, 0 if none is better (the additive
      epsilon indicator in the direction of quality [1]_); lower is better.

    Parameters
    ----------
    curve : AccuracyCostCurve
        From :func:`accuracy_cost_curve`, on rows that the router was not fitted on.

    Q, costs
        As in :func:`reference_curves`, of the same rows. Costs per row are bills: give
        them to :func:`accuracy_cost_curve`, too.

    confidence_level, n_resamples, random_state
        As in :func:`bootstrap_interval`.

    Returns
    -------
    Comparison
        A dict, with ``numbers[metric][name]`` a `BootstrapInterval`. The names are
        ``"router"``, ``"random"``, ``"single"``, ``"oracle"`` and ``"gain"``. The gain
        is the number of the router minus the number of the random mix, resampled as a
        pair. If lower is better for a number, a negative gain is good. The result
        prints as a table with a column for the better direction. ``to_frame()`` returns
        this table.

    Raises
    ------
    ValueError
        If the rows are not those of the curve, if the curve has expected bills and
        `costs` has bills, if the best choice is also the cheapest (there is no gap to
        recover), or for input that is not valid.

    References
    ----------
    .. [1] E. Zitzler et al. (2003). Performance assessment of multiobjective
       optimizers: an analysis and review. IEEE Transactions on Evolutionary Computation
       7(2).

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
    >>> budgets = [0.1, 0.2, 0.4, 0.7, 1.0]
    >>> curve = accuracy_cost_curve(router, X[1000:], Q[1000:], budgets)
    >>> numbers = compare_with_references(
    ...     curve, Q[1000:], costs, n_resamples=50, random_state=0
    ... )
    >>> {who: round(value.estimate, 2) for who, value in numbers["apgr"].items()}
    {'router': 0.8, 'random': 0.5, 'single': 0.0, 'oracle': 2.07, 'gain': 0.3}
    """
    quality, costs = _check_table(Q, costs)
    check_consistent_length(quality, curve.row_quality)
    if np.ndim(costs) == 2 and not curve.billed:
        raise ValueError(
            "costs are bills of each row, but the costs of the curve are expected "
            "bills, and the two cannot be compared. Give the bills to the curve, too: "
            "accuracy_cost_curve(router, X, Q, budgets, costs=costs)."
        )
    oracle_routes = []
    for budget in curve.budget:
        # The total quality of the greedy plan is below the best one by at most the gain
        # on one row. The solver checks the costs.
        plan = solve_assignment(quality, costs, budget, solver="greedy")
        oracle_routes.append(plan.choices)
    oracle_choices = np.column_stack(oracle_routes)  # (n_rows, n_budgets)
    row_costs = np.broadcast_to(np.asarray(costs, dtype=np.float64), quality.shape)
    singles = Points(cost=row_costs.mean(axis=0), quality=quality.mean(axis=0))
    # The front begins with the best of the cheapest choices. It ends with the cheapest
    # of the best choices.
    front = pareto_front(singles.cost, singles.quality)
    weak = front[0]
    strong = front[-1]
    check_anchors(
        weak=np.array([singles.cost[weak], singles.quality[weak]]),
        strong=np.array([singles.cost[strong], singles.quality[strong]]),
    )
    results = intervals(
        partial(_numbers_of_contenders, weak=weak, strong=strong),
        [
            curve.row_cost,
            curve.row_quality,
            np.take_along_axis(row_costs, oracle_choices, axis=1),
            np.take_along_axis(quality, oracle_choices, axis=1),
            row_costs,
            quality,
        ],
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
    )
    numbers = Comparison({name: {} for name in METRICS})
    # The intervals are in C order of an array (n_contenders, n_metrics).
    for (contender, metric), interval in zip(product(CONTENDERS, METRICS), results):
        numbers[metric][contender] = interval
    return numbers
