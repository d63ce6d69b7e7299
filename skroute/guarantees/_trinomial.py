"""The exact test for signed losses of 0 and 1: each row loses one, gains one, or neither."""

from functools import lru_cache

import numpy as np

# Share of errors that is spent on leaving out shares of unequal rows that are out of the question
# (Berger and Boos), grid of the others, and probability of the counts that are left out.
_GAMMA, _GRID, _TAIL = 1e-5, 30, 1e-9


def signed_root(n, lost, won, limit):
    """Signed root of the likelihood ratio of ``P(lost) - P(won) = limit``; arrays of counts.

    The restricted estimate of P(won) is the positive root of the quadratic likelihood equation.
    It rises with `lost` where ``lost + won`` is fixed.
    """
    from scipy.special import xlogy

    even = n - lost - won
    half = (lost + won) * (1 - limit) - 2 * limit * (won + even)
    p_won = (half + np.sqrt(half * half + 8 * n * won * limit * (1 - limit))) / (4 * n)
    p_won = np.clip(p_won, 0.0, (1 - limit) / 2)
    free = xlogy(lost, lost / n) + xlogy(won, won / n) + xlogy(even, even / n)
    held = xlogy(lost, p_won + limit) + xlogy(won, p_won) + xlogy(even, 1 - 2 * p_won - limit)
    return np.sign((lost - won) / n - limit) * np.sqrt(2 * np.maximum(free - held, 0.0))


def most_lost(n, m, limit, root):
    """The most losses among `m` unequal rows that are at least as extreme as `root`; -1: none."""
    low, high = np.full(m.shape, -1), m.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        extreme = signed_root(n, middle, m - middle, limit) <= root + 1e-9
        low, high = np.where(extreme, middle, low), np.where(extreme, high, middle - 1)
    return low


@lru_cache(maxsize=100_000)
def trinomial_p_value(n, lost, won, limit):
    """p-value of "P(lost) - P(won) is at least `limit`" for `n` independent rows.

    The largest probability, over the shares of unequal rows that are not out of the question, of a
    signed root at least as extreme as the one seen; `gamma` is added for those that are.

    Parameters
    ----------
    n, lost, won : int
    limit : float
        Below 0 nothing is refused, at 0 it is the exact sign test.

    Returns
    -------
    float
    """
    from scipy.special import betainc, betaincinv
    from scipy.stats import binom

    if limit < 0 or lost - won >= limit * n:
        return 1.0
    unequal = lost + won
    if limit == 0:
        return float(binom.cdf(lost, unequal, 0.5))
    if limit >= 1:
        return 0.0
    least = betaincinv(unequal, n - unequal + 1, _GAMMA / 2) if unequal else 0.0
    most = betaincinv(unequal + 1, n - unequal, 1 - _GAMMA / 2) if unequal < n else 1.0
    # Fewer rows than the difference cannot differ.
    least, most = max(least, limit), max(most, limit)
    shares = np.geomspace(least, most, _GRID)[:, None]
    m = np.arange(binom.ppf(_TAIL, n, least), binom.isf(_TAIL, n, most) + 1)
    extreme = most_lost(n, m.astype(np.int64), limit, float(signed_root(n, lost, won, limit)))
    p_won = np.clip((shares - limit) / (2 * shares), 0.0, 1.0)
    below = betainc(np.maximum(m - extreme, 1), np.maximum(extreme + 1, 1), p_won)
    below = np.where(extreme < 0, 0.0, np.where(extreme >= m, 1.0, below))
    largest = (binom.pmf(m, n, shares) * below).sum(axis=1).max()
    return float(min(largest + _GAMMA + 2 * _TAIL, 1.0))


def trinomial_upper_bound(n, lost, won, level):
    """The smallest difference from which on all are refused at the level.

    Returns
    -------
    float
    """
    from scipy.optimize import brentq

    def excess(limit):
        return np.log(trinomial_p_value(n, lost, won, float(limit))) - np.log(level)

    seen, high = max((lost - won) / n, 0.0), 1 - 1e-6
    if excess(high) > 0:
        return 1.0
    # Begin where the normal law would.
    unequal = (lost + won + 4) / (n + 4)
    low, step = seen, 2 * np.sqrt(unequal / n)
    while low + step < high and excess(low + step) > 0:
        low, step = low + step, 2 * step
    top = min(low + step, high)
    bound = low if excess(low) <= 0 else brentq(excess, low, top, xtol=1e-5, rtol=1e-4)
    # The p-value has small steps up: the bound is behind the last limit that is not refused. A
    # step is over soon, so the search is fine behind the bound and coarse further on.
    step = min(0.02 * bound + 0.2 / n, 0.05) / 12
    ahead = np.r_[0:25, 36:61:12]
    while bound < high:
        behind = np.minimum(bound + step * ahead, high)
        kept = [limit for limit in behind if excess(limit) > 0]
        if not kept:
            break
        bound = min(kept[-1] + step, high)
    return float(bound)
