"""Numba kernels of the betting bounds. Values are float64, C-contiguous and in [0, 1]."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def log_capital(values, mean, n_population, cap, prior, aim):
    """Largest log capital of the bets against "the mean is at least `mean`".

    Bets of Waudby-Smith and Ramdas (2024), eq. (26), with the cap ``cap / (1 - mean)``, the
    variance `prior` before the first value, which weighs as much as one row in a hundred, and
    ``aim = log(1 / level)`` for the level that the bets are tuned to. `n_population` rows in
    all are drawn from without replacement; 0 stands for independent draws. Infinity: no rest
    of the population could reach `mean`.
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
def running_bounds(values, grid, aim, cap, prior, lower, upper):
    """Bounds of the mean after each value, into `lower` and `upper` (n,): a betting sequence.

    Waudby-Smith and Ramdas (2024), theorem 3, on `grid` (g,), which rises from 0 to 1: a point
    is out once the capital of the bets against it has reached ``exp(aim)``, and stays out. The
    capital is monotone in the mean, so that what is left is an interval, and only its points
    are bet against.
    """
    g = grid.shape[0]
    above = np.zeros(g)
    below = np.zeros(g)
    first, last = 0, g - 1
    total = 0.0
    spread, variance = 10 * prior, prior
    for i in range(values.shape[0]):
        x = values[i]
        size = np.sqrt(2.0 * aim / (variance * (i + 1) * np.log(i + 2.0)))
        for k in range(first, last + 1):
            mean = grid[k]
            if mean > 0.0:
                below[k] += np.log1p(min(size, cap / mean) * (x - mean))
            elif x > 0.0:
                below[k] = np.inf
            if mean < 1.0:
                above[k] += np.log1p(-min(size, cap / (1.0 - mean)) * (x - mean))
            elif x < 1.0:
                above[k] = np.inf
        while first < last and below[first] >= aim:
            first += 1
        while last > first and above[last] >= aim:
            last -= 1
        # The last point that is out is still a bound; the true mean lies between two points.
        lower[i] = grid[max(first - 1, 0)]
        upper[i] = grid[min(last + 1, g - 1)]
        total += x
        spread += (x - (0.5 + total) / (i + 2)) ** 2
        variance = spread / (i + 11)
