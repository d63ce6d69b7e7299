"""Gain in quality of decisions by estimates, over a random mix of equal spend."""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.quality._row_means import mean_of
from skroute.utils._tolerances import TIE

# Budgets at which decisions are compared, on a scale from 0 to 1. 0 is the cost of the
# cheapest choice, and 1 is the cost of the choice with the best mean quality. Decisions
# are not compared at 0: all rows take the cheapest choice there, for any estimates.
SHARES = np.array([0.1, 0.25, 0.5, 0.75, 1.0])


def supposed_costs(quality):
    """Return costs for choices whose costs are not known: 1, 2, 3, ...

    The choice with the lowest mean quality costs 1. The choice with the highest one
    costs the most.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,), dtype=float64
    """
    by_quality = np.argsort(quality.mean(axis=0), kind="stable")
    costs = np.empty(quality.shape[1])
    costs[by_quality] = np.arange(1, len(costs) + 1)
    return costs


def cost_of_choices(costs, quality):
    """Return the mean cost of each choice, or 1, 2, 3, ... if costs are not known.

    Parameters
    ----------
    costs : array-like of shape (n_choices,) or (n_rows, n_choices), or None
        Costs of rows are averaged. None takes :func:`supposed_costs`.
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,)
    """
    if costs is None:
        return supposed_costs(quality)
    costs = np.asarray(costs, dtype=np.float64)
    return costs.mean(axis=0) if costs.ndim == 2 else costs


def gain_over_mix(estimate, quality, costs, weight=None):
    """Return each row's gain in quality over the best random mix of equal spend.

    Rows are decided by the estimates. The decisions do not use the outcomes of the
    rows. The gain is a mean over five budgets, see `SHARES`. Routers spend a budget at
    its dual price, and mix rows that are tied at the price. These decisions are made in
    the same way.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes of the same rows.
    costs : ndarray of shape (n_choices,)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows,)
        Gain of each row. A tied row has the mean gain of its two choices.
    """
    path = assignment_path(estimate, costs, weight=weight)
    hull = _hull_of_means(mean_of(quality, weight), costs)
    # Gain of each row, summed over the budgets. (n_rows,)
    total = np.zeros(len(quality))
    for budget in _compared_budgets(costs, hull):
        decisions = _decide(path.rule(budget), estimate, costs)
        total += decisions.quality(quality)
        spent = decisions.mean_cost(costs, weight)
        total -= _quality_of_mix(quality, hull=hull, costs=costs, spent=spent)
    return total / len(SHARES)


class _Decisions(NamedTuple):
    """Choices of all rows at a budget. Tied rows have two choices, a random mix.

    Attributes
    ----------
    cheaper : ndarray of shape (n_rows,), dtype=intp
        Choice of each row if ties take the cheaper choice.
    more_expensive : ndarray of shape (n_rows,), dtype=intp
        Choice of each row if ties take the more expensive choice.
    share : float
        Share of the tied rows that take the more expensive choice.

    Notes
    -----
    The two choices of a row differ only if the row is tied.
    """

    cheaper: np.ndarray
    more_expensive: np.ndarray
    share: float

    def quality(self, quality):
        """Return the expected quality of each row under these choices.

        `quality` has the shape (n_rows, n_choices).
        """
        rows = np.arange(len(quality))
        expected = (1 - self.share) * quality[rows, self.cheaper]
        return expected + self.share * quality[rows, self.more_expensive]

    def mean_cost(self, costs, weight):
        """Return the expected mean cost per row under these choices.

        `costs` has the shape (n_choices,). `weight` has the weights of the rows. None
        weights all alike.
        """
        expected = (1 - self.share) * mean_of(costs[self.cheaper], weight)
        return expected + self.share * mean_of(costs[self.more_expensive], weight)


def _decide(rule, estimate, costs):
    """Return the choices of rows at the dual price of a budget.

    Parameters
    ----------
    rule : skroute.assignment._path.Rule
        Dual price, and the share of tied rows that take the more expensive choice.
    estimate : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    _Decisions
    """
    cheaper = choose_at_price(estimate, costs, rule.price)
    # If `rule.share` is 0, all tied rows take the cheaper choice.
    more_expensive = cheaper
    if rule.share:
        # A negative tolerance breaks ties towards the more expensive choice.
        more_expensive = choose_at_price(estimate, costs, rule.price, tolerance=-TIE)
    return _Decisions(cheaper, more_expensive, share=rule.share)


def _compared_budgets(costs, hull):
    """Return the budgets at which decisions are compared.

    The budgets lie between the smallest cost and the cost of the best choice. This is
    the last choice of the hull. If the best choice is also the cheapest one, the
    budgets lie between the smallest and the largest cost.

    Parameters
    ----------
    costs : ndarray of shape (n_choices,)
    hull : list of int
        Positions of choices by rising cost, see :func:`_hull_of_means`.

    Returns
    -------
    ndarray of shape (n_budgets,)
    """
    low = costs.min()
    high = costs[hull[-1]]
    if high <= low:
        high = costs.max()
    return low + SHARES * (high - low)


def _hull_of_means(mean, costs):
    """Return the choices whose random mixes have the best mean quality, by rising cost.

    Parameters
    ----------
    mean : ndarray of shape (n_choices,)
        Mean quality of each choice.
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    list of int
        Positions of the choices. Their mean quality rises, too.
    """
    hull = []
    # Choices come by rising cost. Among choices of equal cost, the best comes first.
    for choice in np.lexsort((-mean, costs)):
        # The last choice of the hull leaves it, unless it is above the line between its
        # predecessor and the new choice.
        while len(hull) > 1 and not _is_above(
            hull[-1], left=hull[-2], right=choice, costs=costs, mean=mean
        ):
            hull.pop()
        # A choice that costs more must also be better.
        if not hull or mean[choice] > mean[hull[-1]]:
            hull.append(choice)
    return hull


def _is_above(middle, left, right, costs, mean):
    """Return True if `middle` is better than the mix of `left` and `right` at its cost.

    The line from `left` to `middle` is then steeper than the line from `left` to
    `right`. Both slopes are multiplied by the differences of cost of both lines, so
    that nothing is divided by zero.

    Parameters
    ----------
    middle, left, right : int
        Positions of choices, where `middle` costs neither less than `left` nor more
        than `right`.
    costs, mean : ndarray of shape (n_choices,)
        Cost and mean quality of each choice.
    """
    scaled_slope_to_right = (mean[right] - mean[left]) * (costs[middle] - costs[left])
    scaled_slope_to_middle = (mean[middle] - mean[left]) * (costs[right] - costs[left])
    return scaled_slope_to_middle > scaled_slope_to_right


def _quality_of_mix(quality, hull, costs, spent):
    """Return the expected quality of each row under the random mix that spends `spent`.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)
    hull : list of int
        Positions of choices by rising cost, see :func:`_hull_of_means`.
    costs : ndarray of shape (n_choices,)
    spent : float
        Mean cost per row of the mix. Outside of the costs of the hull, the mix is the
        first or the last choice of the hull.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    # Position along the hull: 1.25 is a quarter of the way from its second to its third
    # choice.
    place = np.interp(spent, costs[hull], np.arange(len(hull)))
    cheaper = hull[int(place)]
    more_expensive = hull[int(np.ceil(place))]
    # Share of the rows that take the more expensive choice. It is 0 if the mix is a
    # single choice.
    share = place % 1
    return (1 - share) * quality[:, cheaper] + share * quality[:, more_expensive]
