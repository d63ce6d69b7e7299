"""Compiled loops of the online router: beliefs, the trade at a price, the price of a window.

Beliefs are linear models with a Gaussian posterior: of choice k, `mean[k, t]` and, in units of
the noise, `cov[k, t]`, where t = 0 is quality and t = 1 is the cost over the price list's.
The first feature is 1, and only its weight, the level, drifts.
"""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def look(x, mean, cov, usual, seen, now, drift, back, most):
    """Estimates (n_choices, 2) and the variances of those of quality, in units of the noise.

    In the requests from the last outcome of a choice, `seen`, to `now` the level of quality has
    gained variance `drift` each, up to `most`, and has gone `back` at this rate to the usual one.
    """
    n_choices, _, n_features = mean.shape
    estimate = np.zeros((n_choices, 2))
    variance = np.zeros(n_choices)
    for k in range(n_choices):
        for a in range(n_features):
            estimate[k, 0] += mean[k, 0, a] * x[a]
            estimate[k, 1] += mean[k, 1, a] * x[a]
            inner = 0.0
            for b in range(n_features):
                inner += cov[k, 0, a, b] * x[b]
            variance[k] += inner * x[a]
        since = max(now - seen[k, 0], 0)
        estimate[k, 0] -= np.expm1(-back * since) * (usual[k] - mean[k, 0, 0])
        variance[k] += min(drift * since, max(most - cov[k, 0, 0, 0], 0.0))
    return estimate, variance


@numba.njit(cache=True, nogil=True)
def weigh(estimate, base, variance, prices, usable, exploration, price, least):
    """The best of optimistic quality less price times cost, for one request.

    Parameters
    ----------
    estimate : ndarray of shape (n_choices, 2)
        From `look`; `base`, what the prior says, is added in place.
    base : ndarray of shape (n_choices, 2)
    variance : ndarray of shape (n_choices,)
        Of the estimates of quality.
    prices : ndarray of shape (n_choices,)
    usable : ndarray of shape (n_choices,), dtype=bool
    exploration, price : float
    least : float
        Costs are at least this share of the price list's.

    Returns
    -------
    choice : int
        Of equal values the cheapest.
    most : float
        The best value without optimism.
    greedy, bonus, costs : ndarray of shape (n_choices,)
    """
    n = len(prices)
    greedy, bonus, costs = np.empty(n), np.empty(n), np.empty(n)
    choice, best, most = -1, -np.inf, -np.inf
    for k in range(n):
        estimate[k, 0] += base[k, 0]
        estimate[k, 1] += base[k, 1]
        bonus[k] = exploration * np.sqrt(max(variance[k], 0.0))
        costs[k] = max(estimate[k, 1], least) * prices[k]
        greedy[k] = estimate[k, 0] - price * costs[k]
        if usable[k]:
            value = greedy[k] + bonus[k]
            most = max(most, greedy[k])
            if choice < 0 or value > best or (value == best and costs[k] < costs[choice]):
                choice, best = k, value
    return choice, most, greedy, bonus, costs


@numba.njit(cache=True, nogil=True)
def learn(x, target, weight, mean, cov):
    """Condition one belief on one outcome, in place: recursive least squares.

    Returns the surprise, target less estimate, and its variance in units of the noise.
    """
    n_features = len(x)
    gain = np.zeros(n_features)
    surprise = target
    spread = 0.0
    for a in range(n_features):
        surprise -= mean[a] * x[a]
        for b in range(n_features):
            gain[a] += cov[a, b] * x[b]
        spread += gain[a] * x[a]
    total = spread + 1.0 / weight
    for a in range(n_features):
        mean[a] += gain[a] * surprise / total
        for b in range(n_features):
            cov[a, b] -= gain[a] * gain[b] / total
    return surprise, total


@numba.njit(cache=True, nogil=True)
def common_noise(noise, n_told, prior, unknown):
    """Variance of the noise per choice, at least the mean over the choices that showed theirs."""
    n_choices = len(noise)
    common, n_known = 0.0, 0
    for k in range(n_choices):
        if not np.isnan(noise[k]):
            common += noise[k]
            n_known += 1
    common = common / n_known if n_known else unknown
    found = np.empty(n_choices)
    for k in range(n_choices):
        found[k] = common
        if not np.isnan(noise[k]):
            shrunk = (n_told[k] * noise[k] + prior * common) / (n_told[k] + prior)
            found[k] = max(shrunk, common)
    return found


@numba.njit(cache=True, nogil=True)
def spend_at(price, values, costs, open_choices):
    """Mean cost of a window's rows, each sent to its best value less price times cost."""
    n_rows, n_choices = values.shape
    total = 0.0
    for i in range(n_rows):
        best, chosen = -np.inf, -1
        for k in range(n_choices):
            if open_choices[k]:
                trade = values[i, k] - price * costs[i, k]
                if trade > best or (trade == best and costs[i, k] < costs[i, chosen]):
                    best, chosen = trade, k
        total += costs[i, chosen]
    return total / n_rows


@numba.njit(cache=True, nogil=True)
def price_of(rate, values, costs, open_choices, scale):
    """The least price, to one part in a thousand, at which a window spends at most `rate`.

    Where not even the cheapest choices cost so little, a price at which all rows take them.
    `scale` is any price above 0 of about the right size.
    """
    if spend_at(0.0, values, costs, open_choices) <= rate:
        return 0.0
    high = scale
    # 2 ** 60: beyond it prices that differ decide alike.
    for _ in range(60):
        if spend_at(high, values, costs, open_choices) <= rate:
            break
        high *= 2.0
    low = 0.5 * high
    for _ in range(60):
        if spend_at(low, values, costs, open_choices) > rate:
            break
        high = low
        low *= 0.5
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        if spend_at(middle, values, costs, open_choices) <= rate:
            high = middle
        else:
            low = middle
    return high
