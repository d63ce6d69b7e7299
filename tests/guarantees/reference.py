"""The bounds once more, in plain Python and without a shortcut."""

import numpy as np
from scipy.special import betainc, betaincinv
from scipy.stats import binom

from skroute.guarantees import _trinomial as room


def log_capital(values, mean, n_population, cap, prior, aim):
    """`_kernels.log_capital`: every formula as the paper has it."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    weight = max(1.0, n / 100)
    capital = [0.0]
    for i in range(n):
        seen = values[:i]
        m = mean if not n_population else (n_population * mean - seen.sum()) / (n_population - i)
        means = [(0.5 + values[: j + 1].sum()) / (j + 2) for j in range(i)]
        spread = weight * prior + sum((seen - means) ** 2)
        variance = spread / (i + weight)
        if m > 1 + 1e-9:
            return np.inf
        if m < 1:
            bet = min(np.sqrt(2 * aim / (n * variance)), cap / (1 - m))
            capital.append(capital[-1] + np.log(1 - bet * (values[i] - m)))
        elif values[i] < 1 - 1e-9:
            return np.inf
    if n_population and n_population * mean - values.sum() > n_population - n + 1e-9:
        return np.inf
    return max(capital)


def money(values, promised, bets, every):
    """All money after each value: each bettor's, for himself, on each of his bets."""
    values, total = np.asarray(values, dtype=float), np.zeros(len(values))
    sum_of_shares = 2.11
    for k, start in enumerate(range(0, len(values), every)):
        share = 1 / ((k + 2) * np.log(k + 2) ** 2) / sum_of_shares
        for bet in bets:
            total[start:] += share / len(bets) * np.cumprod(1 + bet * (values[start:] - promised))
    return total


def trinomial_p_value(n, lost, won, limit):
    """`_trinomial.trinomial_p_value`: one limit."""
    if limit < 0 or lost - won >= limit * n:
        return 1.0
    unequal = lost + won
    if limit == 0:
        return float(binom.cdf(lost, unequal, 0.5))
    if limit >= 1:
        return 0.0
    least = betaincinv(unequal, n - unequal + 1, room._GAMMA / 2) if unequal else 0.0
    most = betaincinv(unequal + 1, n - unequal, 1 - room._GAMMA / 2) if unequal < n else 1.0
    # Fewer rows than the difference cannot differ.
    least, most = max(least, limit), max(most, limit)
    m = np.arange(binom.ppf(room._TAIL, n, least), binom.isf(room._TAIL, n, most) + 1)
    extreme = room.most_lost(
        n, m.astype(np.int64), limit, float(room.signed_root(n, lost, won, limit))
    )

    def probabilities(shares):
        shares = shares[:, None]
        p_won = np.clip((shares - limit) / (2 * shares), 0.0, 1.0)
        below = betainc(np.maximum(m - extreme, 1), np.maximum(extreme + 1, 1), p_won)
        below = np.where(extreme < 0, 0.0, np.where(extreme >= m, 1.0, below))
        # `binom.pmf` overflows at the smallest shares.
        return (np.exp(binom.logpmf(m, n, shares)) * below).sum(axis=1)

    shares = np.geomspace(least, most, room._GRID)
    coarse = probabilities(shares)
    around = shares[np.clip(coarse.argmax() + np.array([-1, 1]), 0, room._GRID - 1)]
    fine = probabilities(np.geomspace(*around, room._AROUND))
    return float(min(max(coarse.max(), fine.max()) + room._GAMMA + 2 * room._TAIL, 1.0))
