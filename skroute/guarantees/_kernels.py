"""Numba kernels of betting tests: for one sample, and for a stream of values."""

import numpy as np
from numba import njit

# Returned by `restarted_bets` if the capital stays below the threshold.
NO_ALARM = -1

# Values are at most 1. A mean may exceed 1 by this number, by the rounding of a sum.
_MEAN_ROUNDING = 1e-9
# The prior variance counts as one row for every 100 rows, but at least as one row.
_ROWS_PER_PRIOR_ROW = 100
# The sum of 1 / (j log(j)^2) over j = 2, 3, ... is 2.1097. The initial capitals of the
# bettors are these terms, divided by this larger number. Their sum is less than 1.
_SUM_OF_SHARES = 2.11


@njit(cache=True, nogil=True)
def log_capital(values, mean, n_population, cap, prior_variance, log_target):
    """Compute the largest log capital of bets against "the mean is at least `mean`".

    The bets are those of Waudby-Smith and Ramdas (2024), eq. (26).

    Parameters
    ----------
    values : ndarray of shape (n_rows,), dtype=float64
        C-contiguous, in [0, 1].
    mean : float
        The mean that is tested.
    n_population : int
        Number of rows that `values` are drawn from without replacement. 0 if the draws
        are independent.
    cap : float
        Largest share of the capital that one bet may lose.
    prior_variance : float
        Variance that is assumed before the first value. Its weight is that of
        ``max(1, n_rows / 100)`` rows.
    log_target : float
        ``log(1 / level)`` for the level that the bets are tuned to.

    Returns
    -------
    float
        Infinity if the rows that are left of the population cannot reach `mean`.
    """
    n_rows = values.shape[0]
    # Log of the capital, and the largest log so far. The initial capital is 1.
    log_of_capital = 0.0
    largest_log = 0.0
    # Sum of the values so far.
    total = 0.0
    # Weight of the prior variance, in rows.
    prior_weight = max(1.0, n_rows / _ROWS_PER_PRIOR_ROW)
    # Sum of squared deviations, and the variance that is estimated from it. Both use
    # the prior and the values before a bet.
    sum_of_squares = prior_weight * prior_variance
    variance = prior_variance
    # Mean of the rows that are not drawn yet, if the mean of all rows is `mean`. The
    # bet is on the next value against this mean.
    mean_left = mean
    for i in range(n_rows):
        if n_population > 0:
            mean_left = (n_population * mean - total) / (n_population - i)
        if mean_left > 1.0 + _MEAN_ROUNDING:
            # Not even values of 1 would reach this mean: the hypothesis is false.
            return np.inf
        if mean_left < 1.0:
            # The bet of Waudby-Smith and Ramdas (2024), eq. (26).
            uncapped_bet = np.sqrt(2.0 * log_target / (n_rows * variance))
            # With this bet, a value of 1 loses the share `cap` of the capital.
            largest_bet = cap / (1.0 - mean_left)
            bet = min(uncapped_bet, largest_bet)
            log_of_capital += np.log1p(-bet * (values[i] - mean_left))
            largest_log = max(largest_log, log_of_capital)
        elif values[i] < 1.0 - _MEAN_ROUNDING:
            # Each value from here on would have to be 1, and this one is not.
            return np.inf
        total += values[i]
        # The mean is estimated as if one more value, 0.5, had come first. So there are
        # i + 2 values.
        estimated_mean = (0.5 + total) / (i + 2)
        sum_of_squares += (values[i] - estimated_mean) ** 2
        variance = sum_of_squares / (i + 1 + prior_weight)
    if n_population > 0:
        # Sum of the rows that are not drawn, if the mean of all rows is `mean`.
        total_left = n_population * mean - total
        if total_left > n_population - n_rows + _MEAN_ROUNDING:
            # Not even values of 1 would reach this sum: the hypothesis is false.
            return np.inf
    return largest_log


@njit(cache=True, nogil=True)
def restarted_bets(
    values,
    n_before,
    promised,
    largest_value,
    bets,
    log_capitals,
    leaders,
    log_threshold,
    restart_interval,
):
    """Bet that the mean is above `promised`, with a new bettor at regular intervals.

    Bettors are numbered k = 0, 1, ... The initial capital of bettor k is 1 / (j
    log(j)^2), j = k + 2, divided by `_SUM_OF_SHARES`, so that all initial capitals
    together are less than 1. The bettor divides its capital equally among the fixed
    `bets`. Capital on the same bet grows by the same factor, for all bettors. So one
    number for each bet is enough: the log of the capital that all bettors have on it.

    If the promise holds, the capital of all bettors together is a supermartingale. By
    Ville's inequality it ever reaches ``exp(log_threshold)`` with a probability of at
    most ``exp(-log_threshold)``.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), dtype=float64
        Values of this call, in order.
    n_before : int
        Number of values in earlier calls.
    promised : float
        The mean that is tested.
    largest_value : float
        Larger values are replaced by it before they are bet on.
    bets : ndarray of shape (n_bets,), dtype=float64
        Factors of the differences of values from `promised`. A unit of capital on a bet
        becomes ``1 + bet * (value - promised)`` units.
    log_capitals : ndarray of shape (n_bets,), dtype=float64
        Log of the capital on each bet. Changed in place.
    leaders : Leaders
        For each bet, the bettor with the largest growth. Its arrays have the shape
        (n_bets,): `growth` is the log of the growth of the bettor's capital, `since`
        the number of values before the bettor started, and `total` the sum of the
        values since then (as observed, not limited by `largest_value`). Changed in
        place, up to the first value at which the threshold is reached.
    log_threshold : float
        Log of the capital at which an alarm is raised.
    restart_interval : int
        Number of values after which a new bettor starts.

    Returns
    -------
    int
        Position of the first value at which the threshold is reached, or `NO_ALARM`.
    """
    # Position of the first value at which the threshold is reached. NO_ALARM: not yet.
    first_alarm = NO_ALARM
    for i in range(values.shape[0]):
        n_seen = n_before + i
        if n_seen % restart_interval == 0:
            _start_bettor(n_seen // restart_interval, log_capitals)
            # After an alarm, the leading bettors stay as they were when it was raised.
            if first_alarm == NO_ALARM:
                _replace_losing_leaders(leaders, n_seen)
        bet_value = min(values[i], largest_value)
        for b in range(bets.shape[0]):
            gain = np.log1p(bets[b] * (bet_value - promised))
            log_capitals[b] += gain
            if first_alarm == NO_ALARM:
                leaders.growth[b] += gain
                leaders.total[b] += values[i]
        if first_alarm == NO_ALARM and _log_sum(log_capitals) >= log_threshold:
            first_alarm = i
    return first_alarm


@njit(cache=True, nogil=True)
def _start_bettor(k, log_capitals):
    """Divide the initial capital of bettor `k` equally among the bets.

    Parameters
    ----------
    k : int
        Number of the bettor, from 0 on.
    log_capitals : ndarray of shape (n_bets,)
        Log of the capital on each bet. Changed in place.
    """
    # The series 1 / (j log(j)^2) starts with j = 2, because log(1) is 0.
    j = k + 2.0
    n_bets = log_capitals.shape[0]
    # Log of the bettor's capital on each bet: an equal share of its initial capital.
    log_share = -np.log(_SUM_OF_SHARES * j * np.log(j) ** 2 * n_bets)
    for b in range(n_bets):
        log_capitals[b] = np.logaddexp(log_capitals[b], log_share)


@njit(cache=True, nogil=True)
def _replace_losing_leaders(leaders, n_seen):
    """Replace each bet's leading bettor, if it has not gained, by the newest bettor.

    The arrays of `leaders` (see `restarted_bets`) are changed in place. `n_seen` is the
    number of values so far.
    """
    for b in range(leaders.growth.shape[0]):
        if leaders.growth[b] <= 0.0:
            # The new bettor has not bet yet: its growth and its sum are 0.
            leaders.growth[b] = 0.0
            leaders.since[b] = n_seen
            leaders.total[b] = 0.0


@njit(cache=True, nogil=True)
def _log_sum(log_values):
    """Compute the log of a sum from the logs of its terms, an array of one axis."""
    # The largest term is factored out, so that no term overflows.
    largest = log_values.max()
    total = 0.0
    for i in range(log_values.shape[0]):
        total += np.exp(log_values[i] - largest)
    return largest + np.log(total)
