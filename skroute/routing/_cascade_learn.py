"""Which cascades are worth it at which price: compared out of sample, then fitted on all rows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from skroute.routing._cascade_rules import Fitted, Reader, fit_cascade, judge, price_grid
from skroute.routing._policy_choice import select_policies

# Rows that candidates are compared on: enough for differences of half a point.
_MAX_JUDGED = 5000


class CascadeRule(NamedTuple):
    """A cascade at one price.

    Attributes
    ----------
    fitted : Fitted
    price_at : int
        Position of the price.
    """

    fitted: Fitted
    price_at: int


class CascadePoint(NamedTuple):
    """A cascade that has been chosen at a price.

    Attributes
    ----------
    cascade : int
        Position among those compared.
    price_at : int
    cost, quality : ndarray of shape (n_judged,)
        On rows that did not fit it, the quality in [0, 1].
    """

    cascade: int
    price_at: int
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]


def cheapest_first(points):
    """Points by rising cost; of equally expensive ones the last, which had the lowest price."""
    by_cost = {}
    for point in points:
        by_cost[round(float(point.cost.mean()), 12)] = point
    return [by_cost[cost] for cost in sorted(by_cost)]


class CascadePath(NamedTuple):
    """Cascades from the cheapest to the most expensive.

    Attributes
    ----------
    reader : Reader
        Of signals, by all rows.
    rules : list of CascadeRule
    cost, quality : ndarray of shape (n_rules, n_judged)
        On rows that did not fit them, the quality in [0, 1].
    fold : ndarray of shape (n_judged,), dtype=int64
        Fold of each of these rows.
    """

    reader: Reader
    rules: list[CascadeRule]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]
    fold: NDArray[np.int64]

    def validated(self, low, high, share):
        """Cost and quality of each judged row, a share of which follows the rule `high`."""
        drawn = np.random.default_rng(0).uniform(size=len(self.fold)) < share
        return tuple(np.where(drawn, part[high], part[low]) for part in (self.cost, self.quality))


def learn_path(compared, log, folds, known, n_prices, n_alone, n_jobs=None):
    """Compare cascades out of sample at each price and fit the chosen ones on all rows.

    Parameters
    ----------
    compared : list of Cascade
    log : Log
    folds : list of (ndarray of int, ndarray of int)
    known : list of ndarray or None
        For each fold what is known of its training rows, without the rows tested in it.
    n_prices : int
    n_alone : int
        How many of those compared, the first ones, are each model alone.
    n_jobs : int, default=None

    Returns
    -------
    CascadePath
    """
    mean_costs = log.costs.mean(axis=0)
    prices = price_grid(mean_costs, n_prices)
    rng = np.random.default_rng(0)
    judged = min(1.0, _MAX_JUDGED / len(log.quality))
    tests = [
        test if judged == 1 else np.sort(rng.choice(test, int(judged * len(test)), False))
        for _, test in folds
    ]
    parts = Parallel(n_jobs=n_jobs)(
        delayed(judge)(compared, log, prices, train, test, own)
        for (train, _), test, own in zip(folds, tests, known)
    )
    quality, cost = (np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1))
    ends = np.cumsum([len(test) for test in tests])
    places = np.split(np.arange(ends[-1]), ends[:-1])
    n_calls = np.array([cascade.n_calls for cascade in compared])
    chosen = select_policies(quality, cost, prices, n_calls, places)
    points = [
        CascadePoint(int(which), at, chosen.row_cost[:, at], chosen.row_quality[:, at])
        for at, which in enumerate(chosen.policy)
    ]
    if n_alone:
        # The smallest budget, which no price need have chosen.
        k = int(mean_costs.argmin())
        points.insert(0, CascadePoint(k, 0, cost[k, :, 0], quality[k, :, 0]))
    path = cheapest_first(points)
    reader, bases, fitted = Reader(log), {}, {}
    scores = reader.scores(log)
    for which in dict.fromkeys(point.cascade for point in path):
        fitted[which] = fit_cascade(compared[which], log, scores, prices, bases)
    return CascadePath(
        reader,
        [CascadeRule(fitted[point.cascade], point.price_at) for point in path],
        np.array([point.cost for point in path]),
        np.array([point.quality for point in path]),
        np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
    )
