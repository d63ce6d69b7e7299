"""Numba kernels of bets: for a bound, and against a promise for as long as one likes."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def log_capital(values, mean, n_population, cap, prior, aim):
    """Largest log capital of the bets against "the mean is at least `mean`".

    Values are float64, C-contiguous and in [0, 1]. Bets of Waudby-Smith and Ramdas (2024), eq.
    (26), with the cap ``cap / (1 - mean)``, the variance `prior` before the first value, which
    weighs as much as one row in a hundred, and ``aim = log(1 / level)`` for the level that the
    bets are tuned to. `n_population` rows in all are drawn from without replacement; 0 stands for
    independent draws. Infinity: no rest of the population could reach `mean`.
    """
    n = values.shape[0]
    capital = best = total = 0.0
    weight = max(1.0, n / 100)
    spread, variance = weight * prior, prior
    rest = mean
    for i in range(n):
        if n_population > 0:
            rest = (n_population * mean - total) / (n_population - i)
        if rest > 1.0 + 1e-9:
            return np.inf
        if rest < 1.0:
            bet = min(np.sqrt(2.0 * aim / (n * variance)), cap / (1.0 - rest))
            capital += np.log1p(-bet * (values[i] - rest))
            best = max(best, capital)
        elif values[i] < 1.0 - 1e-9:
            return np.inf
        total += values[i]
        spread += (values[i] - (0.5 + total) / (i + 2)) ** 2
        variance = spread / (i + 1 + weight)
    if n_population > 0 and n_population * mean - total > n_population - n + 1e-9:
        return np.inf
    return best


@njit(cache=True, nogil=True)
def restarted_bets(values, n, promised, most, bets, money, leaders, threshold, every):
    """Bet that the mean is above `promised`, with a new bettor before every so many values.

    The k-th of them starts with a share of 1 / (j log(j)^2), j = k + 2, of one unit of money, by
    its sum over all j (2.1097), and divides it among fixed `bets`. Money on the same bet grows
    alike from then on, whoever's it is: its log, in `money`, is one number for each bet, changed
    in place. `n` values were bet on before, and those above `most` count as it. While the promise
    is kept all money together is a supermartingale: by Ville's inequality it ever reaches
    ``exp(threshold)`` with a probability of at most ``exp(-threshold)``.

    Up to this value `leaders` are changed in place as well. For each bet they have the log of the
    largest growth of one bettor's money, the number of values before this bettor started, and the
    sum of the values since then.

    Returns the position of the first value at which it does, -1 for none.
    """
    first = -1
    for i in range(values.shape[0]):
        if (n + i) % every == 0:
            j = (n + i) // every + 2.0
            share = -np.log(2.11 * j * np.log(j) ** 2 * bets.shape[0])
            for b in range(bets.shape[0]):
                money[b] = np.logaddexp(money[b], share)
                # A bettor whose money has not grown is behind the one that starts here.
                if first < 0 and leaders.growth[b] <= 0.0:
                    leaders.growth[b] = 0.0
                    leaders.since[b] = n + i
                    leaders.total[b] = 0.0
        value = min(values[i], most)
        for b in range(bets.shape[0]):
            gain = np.log1p(bets[b] * (value - promised))
            money[b] += gain
            if first < 0:
                leaders.growth[b] += gain
                leaders.total[b] += values[i]
        if first < 0:
            top = money.max()
            if top + np.log(np.exp(money - top).sum()) >= threshold:
                first = i
    return first
