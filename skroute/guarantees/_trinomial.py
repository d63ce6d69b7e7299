"""The test for signed losses of 0 and 1: each row loses one, gains one, or neither.

Probabilities are exact. Their maximum over the shares of unequal rows is found on a grid, to 0.1 %
of itself, by which p-values are raised.
"""

from functools import lru_cache

import numpy as np

# Share of errors that is spent on leaving out shares of unequal rows that are out of the question
# (Berger and Boos), grid of the others, and probability of the counts that are left out.
_GAMMA, _GRID, _TAIL = 1e-5, 30, 1e-9
# Shares around the largest value on that grid: of few unequal rows they differ by powers of ten,
# and the grid alone misses a hundredth of the p-value.
_AROUND = 8
# Factor of the largest probability on these shares: what a share between them can have. In 2,000
# random cases a grid that is 50 times finer had at most 0.05 % more.
_BETWEEN = 1.001
# Numbers of unequal rows, over all limits, that are computed together.
_AT_ONCE = 20_000
# Probabilities below it are left out.
_NOTHING = 1e-16


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
    held = (
        xlogy(lost, p_won + limit)
        + xlogy(won, p_won)
        + xlogy(even, 1 - 2 * p_won - limit)
    )
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
    signed root at least as extreme as the one seen; `gamma` is added for those that are. The
    largest one is found to 0.1 %, which is added too.

    Parameters
    ----------
    n, lost, won : int
    limit : float
        Below 0 nothing is refused, at 0 it is the exact sign test.

    Returns
    -------
    float
    """
    return float(trinomial_p_values(n, lost, won, np.array([limit]))[0])


def trinomial_p_values(n, lost, won, limits):
    """`trinomial_p_value` for several limits at once.

    Parameters
    ----------
    n, lost, won : int
    limits : ndarray of shape (n_limits,)

    Returns
    -------
    ndarray of shape (n_limits,)
    """
    from scipy.special import bdtr

    found = np.where(limits < 1, 1.0, 0.0)
    found[(limits < 0) | (lost - won >= limits * n)] = 1.0
    tested = (limits >= 0) & (lost - won < limits * n) & (limits < 1)
    found[tested & (limits == 0)] = bdtr(lost, lost + won, 0.5)
    tested &= limits > 0
    if tested.any():
        found[tested] = _largest(n, lost, won, limits[tested])
    return found


def _largest(n, lost, won, limits):
    """The p-values for limits above 0 and above the difference seen, below 1."""
    from scipy.special import betaincinv
    from scipy.stats import binom

    unequal = lost + won
    least = betaincinv(unequal, n - unequal + 1, _GAMMA / 2) if unequal else 0.0
    most = betaincinv(unequal + 1, n - unequal, 1 - _GAMMA / 2) if unequal < n else 1.0
    # Fewer rows than the difference cannot differ.
    least, most = np.maximum(least, limits), np.maximum(most, limits)
    first = binom.ppf(_TAIL, n, least).astype(np.int64)
    counts = binom.isf(_TAIL, n, most).astype(np.int64) - first + 1
    if len(limits) > 1 and counts.sum() > _AT_ONCE:
        halves = np.array_split(limits, 2)
        return np.concatenate([_largest(n, lost, won, half) for half in halves])
    # The numbers of unequal rows of one limit after those of the other.
    of, start = np.repeat(np.arange(len(limits)), counts), np.cumsum(counts) - counts
    m = np.arange(len(of)) + (first - start)[of]
    extreme = most_lost(n, m, limits[of], signed_root(n, lost, won, limits)[of])
    counted = n, m, extreme, of, limits
    shares = np.geomspace(least, most, _GRID)
    sums = _probabilities(shares, *counted)
    top, each = sums.argmax(axis=0), np.arange(len(limits))
    ends = (
        shares[np.maximum(top - 1, 0), each],
        shares[np.minimum(top + 1, _GRID - 1), each],
    )
    finer = _probabilities(np.geomspace(*ends, _AROUND), *counted)
    largest = np.maximum(sums.max(axis=0), finer.max(axis=0))
    return np.minimum(_BETWEEN * largest + _GAMMA + 2 * _TAIL, 1.0)


def _probabilities(shares, n, m, extreme, of, limits):
    """Probability of what is at least as extreme, at shares of unequal rows of each limit.

    Parameters
    ----------
    shares : ndarray of shape (n_shares, n_limits)
    n : int
    m, extreme, of : ndarray of shape (n_counts,)
        Numbers of unequal rows, the most losses among them, and which limit they are for.
    limits : ndarray of shape (n_limits,)

    Returns
    -------
    ndarray of shape (n_shares, n_limits)
    """
    from scipy.special import betainc, gammaln

    with np.errstate(divide="ignore", invalid="ignore"):
        ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
        even = np.where(m < n, (n - m) * np.log1p(-shares)[:, of], 0.0)
        chance = np.exp(ways + m * np.log(shares)[:, of] + even)
    # What is not likely adds nothing; `_TAIL` has room for all of it.
    at, k = np.nonzero((chance > _NOTHING) & (extreme >= 0))
    share, limit = shares[at, of[k]], limits[of[k]]
    behind, lose = np.maximum(m - extreme, 1)[k], extreme[k] + 1.0
    below = betainc(behind, lose, np.clip((share - limit) / (2 * share), 0.0, 1.0))
    below[extreme[k] >= m[k]] = 1.0
    added = chance[at, k] * below
    return np.bincount(at * len(limits) + of[k], added, shares.size).reshape(
        shares.shape
    )


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
        kept = behind[trinomial_p_values(n, lost, won, behind) > level]
        if not len(kept):
            break
        bound = min(kept[-1] + step, high)
    return float(bound)
