"""Reference versions of the kernels in plain Python, without shortcuts."""

import numpy as np


def log_capital(values, mean, n_population, cap, prior, aim):
    """Compute `_kernels.log_capital` by the formulas as they are in the paper."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    weight = max(1.0, n / 100)
    capital = [0.0]
    for i in range(n):
        before = values[:i]
        mean_left = mean
        if n_population:
            mean_left = (n_population * mean - before.sum()) / (n_population - i)
        means = [(0.5 + values[: j + 1].sum()) / (j + 2) for j in range(i)]
        spread = weight * prior + sum((before - means) ** 2)
        variance = spread / (i + weight)
        if mean_left > 1 + 1e-9:
            return np.inf
        if mean_left < 1:
            bet = min(np.sqrt(2 * aim / (n * variance)), cap / (1 - mean_left))
            capital.append(capital[-1] + np.log(1 - bet * (values[i] - mean_left)))
        elif values[i] < 1 - 1e-9:
            return np.inf
    if n_population and n_population * mean - values.sum() > n_population - n + 1e-9:
        return np.inf
    return max(capital)


def money(values, promised, bets, restart_interval):
    """Compute the whole capital after each value, from each bettor's on each bet."""
    values = np.asarray(values, dtype=float)
    total = np.zeros(len(values))
    sum_of_shares = 2.11
    for k, start in enumerate(range(0, len(values), restart_interval)):
        share = 1 / ((k + 2) * np.log(k + 2) ** 2) / sum_of_shares
        for bet in bets:
            growth = np.cumprod(1 + bet * (values[start:] - promised))
            total[start:] += share / len(bets) * growth
    return total
