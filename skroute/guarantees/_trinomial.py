"""Test of the mean of signed losses: each row is lost (1), won (-1) or equal (0).

The hypothesis is "P(lost) - P(won) is at least `limit`". The test statistic is the
signed root of the likelihood ratio. Rows that are lost or won are *unequal*. The
probability of an unequal row is the nuisance parameter. The p-value is the largest
probability of a statistic that is at least as extreme, over all values of the nuisance
parameter. Each of these probabilities is exact. The largest one is searched on a grid,
with an error of at most 0.1 %, which is added to it.

Parameters with the same meaning in all functions: `n`, number of rows; `lost` and
`won`, numbers of lost and of won rows.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from skroute.utils._typing import NDArray

# Error probability that is reserved for values of the nuisance parameter outside of its
# confidence interval (Berger and Boos). It is added to each p-value.
_OUTSIDE_LEVEL = 1e-5
# Very small numbers of unequal (lost or won) rows are left out, as long as all of them
# together have at most this probability. Very large numbers are left out in the same
# way. Twice this probability is added to each p-value.
_TAIL = 1e-9
# Number of values of the nuisance parameter (the probability of an unequal row) on the
# grid over its confidence interval.
_N_GRID = 30
# Number of values on a second grid, around the best value of the first grid. With few
# unequal rows the interval spans powers of ten, and the first grid alone misses a
# hundredth of the p-value.
_N_FINE_GRID = 8
# Factor of the largest probability on the grids: room for nuisance values between them.
# In 2,000 random cases a grid that is 50 times finer had at most 0.05 % more.
_GRID_ROOM = 1.001
# Largest number of pairs of a limit and a number of unequal rows that are computed in
# one call. It bounds the memory.
_MAX_COUNTS = 20_000
# Numbers of unequal rows with a smaller probability are left out as well. Together they
# have far less than `_TAIL`, which is added to each p-value.
_NEGLIGIBLE = 1e-16
# Signed roots of likelihood ratios that differ by less are equal. The difference is the
# rounding of sums of logarithms.
_ROOT_TIE = 1e-9
# Entry of `_RejectionRegion.max_lost` if no number of lost rows is extreme enough, not
# even 0.
_NO_LOSSES = -1

# An upper bound is searched below this limit. If this limit is not refused, the bound
# is 1.
_LARGEST_LIMIT = 1 - 1e-6
# P-values fall as the limit rises, except on short intervals, called rises. The next
# constants are for the search for rises above a limit that the test has refused.
# Distances from the refused limit at which the p-value is computed, in steps. They are
# dense near the limit, and sparse further on.
_STEPS_ABOVE = np.r_[0:25, 36:61:12]
# Number of steps in the longest interval of limits on which p-values may rise.
_STEPS_PER_RISE = 12
# The longest interval of limits on which p-values may rise has a length of two parts.
# The first part is this factor times the limit.
_RISE_PER_LIMIT = 0.02
# Second part of the length of the longest interval of limits on which p-values may
# rise, times the number of rows.
_RISE_PER_ROW = 0.2
# Upper bound of the length of an interval of limits on which p-values may rise.
_LONGEST_RISE = 0.05


class _RejectionRegion(NamedTuple):
    """Outcomes that are at least as extreme as the observed outcome, for some limits.

    An entry is a pair of a limit and a number of unequal (lost or won) rows. The
    entries of the first limit come first, then those of the second one, and so on.

    Attributes
    ----------
    n : int
        Number of rows.
    limits : ndarray of shape (n_limits,)
        The tested limits.
    limit_index : ndarray of shape (n_entries,), dtype=int64
        Index of the entry's limit.
    n_unequal : ndarray of shape (n_entries,), dtype=int64
        Number of unequal rows.
    max_lost : ndarray of shape (n_entries,), dtype=int64
        The outcome is extreme enough if at most this number of the unequal rows is
        lost. `_NO_LOSSES` if no number of lost rows is extreme enough.
    """

    n: int
    limits: NDArray[np.float64]
    limit_index: NDArray[np.int64]
    n_unequal: NDArray[np.int64]
    max_lost: NDArray[np.int64]


def signed_root(n, lost, won, limit):
    """Compute the signed root of the likelihood ratio of ``P(lost) - P(won) = limit``.

    It rises with `lost` if ``lost + won`` is fixed.

    Parameters
    ----------
    n : int
        Number of rows.
    lost, won : int or ndarray
        Numbers of lost and of won rows. The other rows are equal.
    limit : float or ndarray
        From 0 to 1.

    Returns
    -------
    float or ndarray
        Negative if the observed difference of shares, ``(lost - won) / n``, is below
        the limit.
    """
    from scipy.special import xlogy

    equal = n - lost - won
    # The estimate of P(won) if P(lost) is P(won) + limit. The derivative of the log
    # likelihood is 0 at the positive root of the quadratic equation
    # 2 n p^2 - b p - won * limit * (1 - limit) = 0.
    b = (lost + won) * (1 - limit) - 2 * limit * (won + equal)
    p_won = (b + np.sqrt(b * b + 8 * n * won * limit * (1 - limit))) / (4 * n)
    # By rounding, `p_won` may be outside of the range in which all three probabilities
    # are at least 0.
    p_won = np.clip(p_won, 0.0, (1 - limit) / 2)
    # The largest log likelihood without a restriction of the probabilities.
    free_likelihood = (
        xlogy(lost, lost / n) + xlogy(won, won / n) + xlogy(equal, equal / n)
    )
    # The largest log likelihood with P(lost) - P(won) = limit.
    restricted_likelihood = (
        xlogy(lost, p_won + limit)
        + xlogy(won, p_won)
        + xlogy(equal, 1 - 2 * p_won - limit)
    )
    sign = np.sign((lost - won) / n - limit)
    # The log of the likelihood ratio is below 0 only by rounding.
    log_ratio = np.maximum(free_likelihood - restricted_likelihood, 0.0)
    return sign * np.sqrt(2 * log_ratio)


@lru_cache(maxsize=100_000)
def trinomial_p_value(n, lost, won, limit):
    """Compute the p-value of "P(lost) - P(won) is at least `limit`".

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    limit : float
        The p-value is 1 below 0, and that of the exact sign test at 0.

    Returns
    -------
    float
    """
    return float(trinomial_p_values(n, lost, won, np.array([limit]))[0])


def trinomial_p_values(n, lost, won, limits):
    """Compute `trinomial_p_value` for several limits at once.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    limits : ndarray of shape (n_limits,)

    Returns
    -------
    ndarray of shape (n_limits,)
    """
    from scipy.special import bdtr

    # The p-value stays 1 for limits below 0, and for limits that the observed
    # difference reaches: there is no evidence against these limits.
    p_values = np.ones(limits.shape)
    is_reached = lost - won >= limits * n
    # P(lost) - P(won) is at most 1. So a limit of 1 or more is refused, unless all rows
    # are lost.
    p_values[(limits >= 1) & ~is_reached] = 0.0
    # At the limit 0, the sign test is exact: each unequal row is lost with probability
    # 0.5. The p-value is that of at most `lost` lost rows.
    p_values[(limits == 0) & ~is_reached] = bdtr(lost, lost + won, 0.5)
    is_between = (limits > 0) & (limits < 1) & ~is_reached
    if is_between.any():
        p_values[is_between] = _maximized_p_values(n, lost, won, limits[is_between])
    return p_values


def _maximized_p_values(n, lost, won, limits):
    """Compute p-values by a maximum over the nuisance parameter (Berger and Boos).

    The nuisance parameter is the probability of an unequal (lost or won) row.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    limits : ndarray of shape (n_limits,)
        In (0, 1), and above the observed difference.

    Returns
    -------
    ndarray of shape (n_limits,)
    """
    from scipy.stats import binom

    lowest, highest = _nuisance_interval(n, lost + won)
    # P(unequal) is at least P(lost) - P(won), which is at least the limit by the
    # hypothesis.
    lowest = np.maximum(lowest, limits)
    highest = np.maximum(highest, limits)
    # Smallest and largest number of unequal rows that are not left out. (n_limits,)
    first_count = binom.ppf(_TAIL, n, lowest).astype(np.int64)
    last_count = binom.isf(_TAIL, n, highest).astype(np.int64)
    n_counts = last_count - first_count + 1
    if len(limits) > 1 and n_counts.sum() > _MAX_COUNTS:
        # Half of the limits at a time needs half of the memory.
        first_half, second_half = np.array_split(limits, 2)
        return np.concatenate(
            [
                _maximized_p_values(n, lost, won, first_half),
                _maximized_p_values(n, lost, won, second_half),
            ]
        )
    region = _rejection_region(
        n, lost, won, limits=limits, first_count=first_count, n_counts=n_counts
    )
    grid = np.geomspace(lowest, highest, _N_GRID)  # (_N_GRID, n_limits)
    probabilities = _probabilities(region, grid)
    fine_grid = _grid_around_best(grid, probabilities)
    fine_probabilities = _probabilities(region, fine_grid)
    largest = np.maximum(probabilities.max(axis=0), fine_probabilities.max(axis=0))
    # Room for the grid, for the values outside of the interval, and for both tails.
    return np.minimum(_GRID_ROOM * largest + _OUTSIDE_LEVEL + 2 * _TAIL, 1.0)


def _nuisance_interval(n, n_unequal):
    """Return the Clopper-Pearson interval of the probability of an unequal row.

    The interval misses the probability with a chance of at most `_OUTSIDE_LEVEL`.

    Parameters
    ----------
    n, n_unequal : int
        Number of all rows, and of the unequal ones.

    Returns
    -------
    lowest, highest : float
    """
    from scipy.special import betaincinv

    # Each end of the interval is wrong with at most half of the probability
    # `_OUTSIDE_LEVEL`. If no row is unequal, the lower end is 0. If all rows are
    # unequal, the upper end is 1.
    lowest = 0.0
    if n_unequal > 0:
        lowest = betaincinv(n_unequal, n - n_unequal + 1, _OUTSIDE_LEVEL / 2)
    highest = 1.0
    if n_unequal < n:
        highest = betaincinv(n_unequal + 1, n - n_unequal, 1 - _OUTSIDE_LEVEL / 2)
    return lowest, highest


def _rejection_region(n, lost, won, *, limits, first_count, n_counts):
    """Return the outcomes that are at least as extreme as `lost` and `won`.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    limits : ndarray of shape (n_limits,)
    first_count, n_counts : ndarray of shape (n_limits,), dtype=int64
        For each limit, the smallest number of unequal rows that is not left out, and
        the quantity of successive numbers from there.

    Returns
    -------
    _RejectionRegion
    """
    # An entry is a pair of a limit and a number of unequal rows.
    limit_index = np.repeat(np.arange(len(limits)), n_counts)
    # Position of the first entry of each limit. (n_limits,)
    first_entry = np.cumsum(n_counts) - n_counts
    # Position of each entry among the entries of its limit: 0, 1, ...
    position_in_limit = np.arange(len(limit_index)) - first_entry[limit_index]
    n_unequal = first_count[limit_index] + position_in_limit
    observed_root = signed_root(n, lost, won, limits)
    max_lost = _max_extreme_lost(
        n, n_unequal, limits[limit_index], root=observed_root[limit_index]
    )
    return _RejectionRegion(n, limits, limit_index, n_unequal, max_lost)


def _max_extreme_lost(n, n_unequal, limits, *, root):
    """Return the largest number of lost rows whose signed root is at most `root`.

    Parameters
    ----------
    n : int
        Number of rows.
    n_unequal : ndarray of shape (n_entries,)
        Number of unequal (lost or won) rows.
    limits : ndarray of shape (n_entries,)
    root : ndarray of shape (n_entries,)
        Signed root of the observed outcome, for the same limit.

    Returns
    -------
    ndarray of shape (n_entries,)
        `_NO_LOSSES` if the signed root of 0 lost rows is larger.
    """
    # Bisection: `low` is extreme enough, and no number above `high` is. The signed root
    # rises with the number of lost rows.
    low = np.full(n_unequal.shape, _NO_LOSSES)
    high = n_unequal.copy()
    while (low < high).any():
        # Rounded up, so that `middle` is above `low` until both meet.
        middle = (low + high + 1) // 2
        middle_root = signed_root(n, middle, n_unequal - middle, limits)
        is_extreme = middle_root <= root + _ROOT_TIE
        low = np.where(is_extreme, middle, low)
        high = np.where(is_extreme, high, middle - 1)
    return low


def _grid_around_best(grid, probabilities):
    """Return for each limit a finer grid around the best value of the first grid.

    The best value has the largest probability. The finer grid spans the range between
    the two neighbours of the best value on the first grid.

    Parameters
    ----------
    grid : ndarray of shape (_N_GRID, n_limits)
        Rising nuisance values, for each limit.
    probabilities : ndarray of shape (_N_GRID, n_limits)
        Probabilities at these values.

    Returns
    -------
    ndarray of shape (_N_FINE_GRID, n_limits)
    """
    # Position on the grid with the largest probability. (n_limits,)
    best = probabilities.argmax(axis=0)
    # At an end of the grid, the end itself stands for the missing neighbour.
    position_below = np.maximum(best - 1, 0)
    position_above = np.minimum(best + 1, len(grid) - 1)
    columns = np.arange(grid.shape[1])
    lower_neighbour = grid[position_below, columns]
    upper_neighbour = grid[position_above, columns]
    return np.geomspace(lower_neighbour, upper_neighbour, _N_FINE_GRID)


def _probabilities(region, nuisance):
    """Compute the probability of the rejection region for nuisance values.

    Parameters
    ----------
    region : _RejectionRegion
        An entry is a number of unequal rows at one limit, with the largest number of
        lost rows that is extreme enough.
    nuisance : ndarray of shape (n_values, n_limits)
        Probabilities of an unequal row, for each limit.

    Returns
    -------
    ndarray of shape (n_values, n_limits)
    """
    from scipy.special import betainc, gammaln

    n = region.n
    n_unequal = region.n_unequal
    n_equal = n - n_unequal
    max_lost = region.max_lost
    limit_index = region.limit_index
    n_limits = len(region.limits)
    # Log of the binomial coefficient. (n_entries,)
    log_binomial = gammaln(n + 1) - gammaln(n_unequal + 1) - gammaln(n_equal + 1)
    # The logarithm of a probability of 0 is minus infinity.
    with np.errstate(divide="ignore", invalid="ignore"):
        log_unequal = n_unequal * np.log(nuisance)[:, limit_index]
        log_equal = n_equal * np.log1p(-nuisance)[:, limit_index]
        # Without an equal row, 0 * -inf would be NaN.
        log_equal = np.where(n_equal > 0, log_equal, 0.0)
        # Probability of the number of unequal rows, (n_values, n_entries).
        p_count = np.exp(log_binomial + log_unequal + log_equal)
    # Pairs of a nuisance value and an entry of `region`, if the probability of the
    # entry is not negligible. All arrays from here on have an element for each pair.
    # Entries without an extreme outcome add 0 and are left out.
    has_extreme = max_lost != _NO_LOSSES
    value_index, entry = np.nonzero((p_count > _NEGLIGIBLE) & has_extreme)
    limit_of_pair = limit_index[entry]
    p_unequal = nuisance[value_index, limit_of_pair]
    limit = region.limits[limit_of_pair]
    # Probability that an unequal row is won: P(won) / P(unequal), with P(lost) - P(won)
    # = limit.
    p_won = np.clip((p_unequal - limit) / (2 * p_unequal), 0.0, 1.0)
    # Probability of at most `max_lost` lost rows among the unequal ones (binomial).
    # It is 1 if all unequal rows may be lost. `betainc` needs at least 1 won row there.
    min_won = np.maximum(n_unequal - max_lost, 1)[entry]
    p_extreme = betainc(min_won, max_lost[entry] + 1.0, p_won)
    p_extreme[max_lost[entry] >= n_unequal[entry]] = 1.0
    # Sums over the entries, for each pair of a nuisance value and a limit.
    sums = np.bincount(
        value_index * n_limits + limit_of_pair,
        weights=p_count[value_index, entry] * p_extreme,
        minlength=nuisance.size,
    )
    return sums.reshape(nuisance.shape)


def trinomial_upper_bound(n, lost, won, level):
    """Compute an upper bound of P(lost) - P(won): the test refuses all larger limits.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    level : float
        A limit is refused if its p-value is at most this.

    Returns
    -------
    float
        1 if no limit can be refused.
    """

    def log_excess(limit):
        # Above 0 if the limit is not refused.
        p_value = trinomial_p_value(n, lost, won, float(limit))
        return np.log(p_value) - np.log(level)

    if log_excess(_LARGEST_LIMIT) > 0:
        return 1.0
    bound = _first_refused_limit(n, lost, won, log_excess)
    return _above_all_accepted(n, lost, won, level=level, bound=bound)


def _first_refused_limit(n, lost, won, log_excess):
    """Search for the smallest refused limit above the observed difference.

    The limit is found to a relative precision of 1e-4.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    log_excess : callable
        ``log_excess(limit)`` is at most 0 if the limit is refused. `_LARGEST_LIMIT`
        must be refused.

    Returns
    -------
    float
    """
    from scipy.optimize import brentq

    low = max((lost - won) / n, 0.0)
    # The first step is about as long as the bound by the normal law: two standard
    # deviations. Four more rows, all of them unequal, keep the step above 0.
    p_unequal = (lost + won + 4) / (n + 4)
    step = 2 * np.sqrt(p_unequal / n)
    # Steps double until a limit is refused.
    while low + step < _LARGEST_LIMIT and log_excess(low + step) > 0:
        low = low + step
        step = 2 * step
    high = min(low + step, _LARGEST_LIMIT)
    if log_excess(low) <= 0:
        # The observed difference, or 0, is refused already.
        return low
    return brentq(log_excess, low, high, xtol=1e-5, rtol=1e-4)


def _above_all_accepted(n, lost, won, *, level, bound):
    """Move a bound up until the test refuses all larger limits.

    P-values fall as the limit rises, but they have short intervals on which they rise a
    little. So limits above the first refused one may be accepted.

    Parameters
    ----------
    n, lost, won : int
        Numbers of all rows, of lost and of won rows.
    level : float
        A limit is refused if its p-value is at most this.
    bound : float
        A limit that is refused.

    Returns
    -------
    float
    """
    longest_rise = min(_RISE_PER_LIMIT * bound + _RISE_PER_ROW / n, _LONGEST_RISE)
    step = longest_rise / _STEPS_PER_RISE
    while bound < _LARGEST_LIMIT:
        limits = np.minimum(bound + step * _STEPS_ABOVE, _LARGEST_LIMIT)
        is_accepted = trinomial_p_values(n, lost, won, limits) > level
        if not is_accepted.any():
            break
        last_accepted = limits[is_accepted][-1]
        bound = min(last_accepted + step, _LARGEST_LIMIT)
    return float(bound)
