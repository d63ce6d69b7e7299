"""The bounds once more, in plain Python and without a shortcut."""

import numpy as np


def log_capital(values, mean, n_population, cap, prior, aim):
    """`_kernels.log_capital`: every formula as the paper has it."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    weight = max(1.0, n / 100)
    capital = [0.0]
    for i in range(n):
        seen = values[:i]
        m = (
            mean
            if not n_population
            else (n_population * mean - seen.sum()) / (n_population - i)
        )
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
            total[start:] += (
                share / len(bets) * np.cumprod(1 + bet * (values[start:] - promised))
            )
    return total
