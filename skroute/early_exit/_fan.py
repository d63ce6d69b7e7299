"""Dynamic scheduling of Fan et al. (2002): stopping by bins of the partial sum."""

import numpy as np


def fan_table(values, bin_width):
    """Mean and deviation of what is still to come, per position and bin.

    Parameters
    ----------
    values : ndarray of shape (n_members, n_samples)
        Partial sums by position; the last row is the full score.

    bin_width : float
        A row with partial sum `g` is in bin ``round(g / bin_width)``.

    Returns
    -------
    start : ndarray of shape (n_members + 1,), dtype=int64
        Bins of position `r` are ``start[r]:start[r + 1]`` of the arrays below.

    first : ndarray of shape (n_members,), dtype=int64
        Number of the first bin of each position.

    mean, deviation : ndarray of shape (n_bins,), dtype=float64
        NaN where no row fell.
    """
    full = values[-1].astype(np.float64)
    firsts, means, deviations, sizes = [], [], [], []
    for running in values:
        number = np.rint(running.astype(np.float64) * (1.0 / bin_width)).astype(np.int64)
        first = number.min()
        number -= first
        rest = full - running
        count = np.bincount(number).astype(np.float64)
        with np.errstate(invalid="ignore"):
            mean = np.bincount(number, rest) / count
            square = np.bincount(number, (rest - mean[number]) ** 2) / count
        firsts.append(first)
        means.append(mean)
        deviations.append(np.sqrt(square))
        sizes.append(len(count))
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = np.array(firsts, dtype=np.int64)
    return start, first, np.concatenate(means), np.concatenate(deviations)


def fan_thresholds(mean, deviation, beta, gamma):
    """Thresholds per bin: stop when ``g + mean -+ gamma * deviation`` clears `beta`.

    Parameters
    ----------
    mean, deviation : ndarray of shape (n_bins,)
    beta : float
    gamma : float
        Deviations of distance; larger stops later.

    Returns
    -------
    lo, hi : ndarray of shape (n_bins,)
        NaN where no row fell: such rows are evaluated to the end.
    """
    return beta - mean - gamma * deviation, beta - mean + gamma * deviation
