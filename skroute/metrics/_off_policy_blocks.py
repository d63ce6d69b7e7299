"""Off-policy curves of logs in Dask's blocks: sums of blocks, added up."""

from typing import Any, NamedTuple

import numpy as np

from skroute.distributed._blocks import sum_blocks
from skroute.metrics._curve import check_budgets, find_router, router_in
from skroute.metrics._off_policy_sums import (
    Agreement,
    Terms,
    budgets_of,
    check_overlap,
    count_fitted,
    curve_of,
    positions_of,
    standard_error_of,
    warn_of_fitted,
)
from skroute.quality._logged import read_choice, read_propensity, read_values
from skroute.utils._compat import num_samples


class _Moments(NamedTuple):
    """What the three estimators need of one value at one budget, as sums over rows.

    Attributes
    ----------
    model, corrected : ndarray of shape (3,)
        Sums of the terms of the direct and of the doubly robust estimate, of their squares and
        of their cubes.
    weighted : ndarray of shape (9,)
        Sums of ``w^p v^q``, p from 1 to 3 and q from 0 to p.
    """

    model: Any
    corrected: Any
    weighted: Any

    @classmethod
    def of(cls, model, own, value, weight):
        """Of rows: expected of the policy's choice and of the log's, what came of it, weights."""
        corrected = model + weight * (value - own)
        return cls(
            np.array([(model**p).sum() for p in (1, 2, 3)]),
            np.array([(corrected**p).sum() for p in (1, 2, 3)]),
            np.array([weight**p @ value**q for p, q in _POWERS]),
        )

    def terms(self, n):
        """Estimates, standard errors and skewness."""
        w = dict(zip(_POWERS, self.weighted))
        snips = w[1, 1] / w[1, 0]
        squares = w[2, 2] - 2 * snips * w[2, 1] + snips**2 * w[2, 0]
        cubes = w[3, 3] - 3 * snips * w[3, 2] + 3 * snips**2 * w[3, 1] - snips**3 * w[3, 0]
        error = float(np.sqrt(max(squares, 0.0)) / w[1, 0])
        own = snips, error, _skewness(squares, cubes)
        return Terms(_mean_of(n, self.model), own, _mean_of(n, self.corrected))


_POWERS = [(p, q) for p in (1, 2, 3) for q in range(p + 1)]


def _mean_of(n, sums):
    """Mean of n terms by their sums, its standard error and skewness."""
    mean = sums[0] / n
    squares = sums[1] - n * mean**2
    cubes = sums[2] - 3 * mean * sums[1] + 2 * n * mean**3
    return mean, standard_error_of(n, sums[0], sums[1]), _skewness(squares, cubes)


def _skewness(squares, cubes):
    return float(cubes / squares**1.5) if squares > 0 else 0.0


class _AtBudget(NamedTuple):
    """Of the rows of blocks at one budget."""

    agreement: Agreement
    quality: _Moments
    cost: _Moments

    def __add__(self, other):
        most = max(self.agreement.most, other.agreement.most)
        sums = [
            type(ours)(*(a + b for a, b in zip(ours, theirs))) for ours, theirs in zip(self, other)
        ]
        return _AtBudget(sums[0]._replace(most=most), *sums[1:])

    def __radd__(self, zero):
        return self


class _Of(NamedTuple):
    """Of one block: sums at each budget, its rows, and those that the router was fitted on."""

    found: Any
    n: int
    n_fitted: int

    @classmethod
    def add(cls, parts):
        """The sum of several blocks."""
        found, n, n_fitted = zip(*parts)
        return cls([sum(ones) for ones in zip(*found)], sum(n), sum(n_fitted))


def off_policy_over_blocks(estimator, X, log, budgets, confidence_level, params):
    """As `off_policy_curve`, whose docstring names the arguments, over a Dask collection.

    Parameters
    ----------
    log : dict
        ``q``, ``choice``, ``propensity`` and ``costs``.
    """
    router = router_in(estimator)
    if log["propensity"] is None:
        raise ValueError(
            "propensity must be given for a log in blocks, the probability with which each choice "
            "was made: it is estimated for rows in memory alone."
        )
    if not hasattr(router, "predict_quality"):
        raise TypeError(
            "A log in blocks is judged by the router's own estimates; "
            f"{type(router).__name__} has none: take rows in memory."
        )
    limits = check_budgets(budgets_of(router) if budgets is None else budgets)
    sums, n, n_fitted = sum_blocks(
        X,
        _of_block,
        log,
        {"estimator": estimator, "limits": limits, "params": params},
        add=_Of.add,
    )
    for one, limit in zip(sums, limits):
        check_overlap(one.agreement, list(router.choices_), limit)
    agreements = [one.agreement for one in sums]
    share = np.array([one.made / one.n for one in agreements])
    quality = [one.quality.terms(one.agreement.n) for one in sums]
    cost = [one.cost.terms(one.agreement.n) for one in sums]
    if log["costs"] is None:
        # What the router reports is known of every row: three times the same.
        cost = [Terms(one.direct, one.direct, one.direct) for one in cost]
    warn_of_fitted(n_fitted, n)
    found = curve_of(router, limits, agreements, quality, cost, share, confidence_level)
    return found._replace(n_fitted=n_fitted)


def _of_block(X, q, choice, propensity, costs, *, estimator, limits, params):
    router, X = find_router(estimator, X)
    n = num_samples(X)
    names = [str(name) for name in router.choices_]
    value = read_values(q, "q", n, allow_nan=True, may_lack=True)
    position = positions_of(router, read_choice(choice, names, n)[0], choice)
    chance = read_propensity(propensity, n)
    paid = None if costs is None else read_values(costs, "costs", n, least=0.0)
    at = np.flatnonzero(~np.isnan(value))
    # A choice that the router does not know agrees with none of its own.
    logged = np.minimum(position, len(names))[at]
    # Per cell: what is expected, and as much of choices that are not the router's.
    expected = np.column_stack([router.predict_quality(X), np.zeros(n)])[at]
    rows, found = np.arange(len(at)), []
    for limit in limits:
        routed = router.predict_cost(X, budget=limit, **params)[at]
        route = router.route(X, budget=limit, **params)[at]
        weight = np.where(route == logged, 1 / chance[at], 0.0)
        quality = _Moments.of(expected[rows, route], expected[rows, logged], value[at], weight)
        # Where the two agree the reported cost is expected of both; elsewhere the weight is 0.
        bill = routed if paid is None else paid[at]
        cost = _Moments.of(routed, routed, bill, weight)
        found.append(_AtBudget(Agreement.of(route, logged, weight, len(names)), quality, cost))
    return _Of(found, n, count_fitted(router, X))
