"""The numbers of a report: what stands at each stop of its slider, with intervals."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from skroute.assignment import assignment_path
from skroute.metrics._bootstrap import interval, resampled_values
from skroute.metrics._compare import compare_with_references
from skroute.metrics._tradeoff import ReferenceCurves, reference_curves

_EXAMPLES = 2_000


class ReportNumbers(NamedTuple):
    """What a report shows at each budget and over all of them.

    Attributes
    ----------
    quality, cost, gain : list of BootstrapInterval, one for each budget
        Means over rows; gain is the quality above that of the random mix of equal spend.
    references, drawn : ReferenceCurves
        At what the router spends at each budget, and between these for the picture.
    over_all : dict or None
        Of `compare_with_references`; None where the best single choice is the cheapest.
    """

    quality: list[Any]
    cost: list[Any]
    gain: list[Any]
    references: ReferenceCurves
    drawn: ReferenceCurves
    over_all: Any


def report_numbers(table, *, confidence_level, n_resamples, random_state):
    """Numbers of a `DecisionTable` (`ReportNumbers`)."""
    curve, n = table.curve(), len(table.route)
    singles, costs = table.single_quality, table.single_costs
    row_costs = np.broadcast_to(costs, singles.shape)
    # The router's spend, but for rounding not below the cheapest plan of all.
    least = float(np.min(costs, axis=-1).mean())
    spent = np.maximum(curve.cost, least)
    # Beside even steps the corners of the random mix, which are single choices.
    low, high = spent.min(), spent.max()
    between = np.unique(np.r_[np.linspace(low, high, 60), row_costs.mean(axis=0).clip(low, high)])
    both = reference_curves(singles, costs, np.r_[spent, between])
    references, drawn = (
        ReferenceCurves(*(part[at] for part in both))
        for at in (slice(len(spent)), slice(len(spent), None))
    )

    def statistic(quality, cost, single_quality, single_cost):
        mix = assignment_path(single_quality[np.newaxis], single_cost)
        # With costs per row a router may spend less than any single choice does.
        random = np.interp(cost, mix.budgets, mix.objectives, left=np.nan)
        return np.concatenate([quality, cost, quality - random])

    arrays = [table.quality, table.cost, singles, row_costs]
    rng = check_random_state(random_state)
    values = resampled_values(statistic, arrays, n_resamples, rng)
    estimate = [curve.quality, curve.cost, curve.quality - references.random]
    found = [
        interval(float(number), column, confidence_level, n)
        for number, column in zip(np.concatenate(estimate), values.T)
    ]
    k = len(curve.budget)
    over_all = None
    if has_gap(singles, row_costs):
        over_all = compare_with_references(
            curve,
            singles,
            costs,
            confidence_level=confidence_level,
            n_resamples=n_resamples,
            random_state=random_state,
        )
    return ReportNumbers(found[:k], found[k : 2 * k], found[2 * k :], references, drawn, over_all)


def has_gap(quality, costs):
    """Whether the best single choice is better and more expensive than the cheapest."""
    mean_cost, mean_quality = costs.mean(axis=0), quality.mean(axis=0)
    weak = np.lexsort((-mean_quality, mean_cost))[0]
    strong = np.lexsort((mean_cost, -mean_quality))[0]
    return bool(mean_cost[strong] > mean_cost[weak] and mean_quality[strong] > mean_quality[weak])


def example_rows(table, n_rows):
    """Rows that show the range: evenly spaced by how early money is spent on them.

    Parameters
    ----------
    table : DecisionTable
    n_rows : int

    Returns
    -------
    ndarray of int
        Positions, first those on which money is spent at small budgets.
    """
    n = len(table.route)
    # A part of many rows is enough to choose from, and the same one each time.
    among = np.unique(np.linspace(0, n - 1, min(n, _EXAMPLES)).astype(np.int64))
    order = among[np.argsort(-table.cost[among].sum(axis=1), kind="stable")]
    at = np.unique(np.linspace(0, len(order) - 1, min(n_rows, len(order))).astype(np.int64))
    return order[at]


def stops(least, most, own, n_budgets):
    """Budgets of the slider: even steps, the router's own one among them.

    Parameters
    ----------
    least, most : float
        Range of budgets that are of use.
    own : float
        The router's, or infinity.
    n_budgets : int

    Returns
    -------
    ndarray
        Rising, each once.
    """
    found = np.linspace(least, max(least, most), n_budgets)
    if least < own < most:
        found = np.r_[found, own]
    return np.unique(found)


def nearest(budgets: NDArray[np.float64], own: float) -> int:
    """Position of the largest budget that is at most `own`; the first if there is none."""
    return max(int(np.searchsorted(budgets, own, side="right")) - 1, 0)
