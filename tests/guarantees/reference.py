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


def running_bounds(values, grid, aim, cap, prior):
    """`_kernels.running_bounds`: all points of the grid at all times."""
    values = np.asarray(values, dtype=float)
    out_low, out_high = np.zeros(len(grid), bool), np.zeros(len(grid), bool)
    below, above = np.zeros(len(grid)), np.zeros(len(grid))
    lower, upper = [], []
    for i, x in enumerate(values):
        seen = values[:i]
        means = [(0.5 + values[: j + 1].sum()) / (j + 2) for j in range(i)]
        variance = (10 * prior + sum((seen - means) ** 2)) / (i + 10)
        size = np.sqrt(2 * aim / (variance * (i + 1) * np.log(i + 2)))
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.minimum(size, cap / grid)
            down = np.minimum(size, cap / (1 - grid))
            below += np.where(grid > 0, np.log(1 + up * (x - grid)), np.inf if x > 0 else 0)
            above += np.where(grid < 1, np.log(1 - down * (x - grid)), np.inf if x < 1 else 0)
        out_low |= below >= aim
        out_high |= above >= aim
        lower.append(grid[out_low].max(initial=0.0))
        upper.append(grid[out_high].min(initial=1.0))
    return np.array(lower), np.array(upper)
