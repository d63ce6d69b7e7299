"""Compiled kernels for numbers and ranks that are settled early. Imported on first use."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def settled_cut(x, by, rows, wrong, to_go, price):
    """Thresholds of one position that save most, where leaving on either side is as wrong.

    Parameters
    ----------
    x : ndarray of shape (n,)
        Partial sums of the rows that reach the position.

    by : ndarray of shape (n,), dtype=int64
        What sorts `x`.

    rows : ndarray of shape (n,), dtype=int64
        Which rows they are.

    wrong : ndarray of shape (n_samples,)
        How likely leaving is wrong.

    to_go : ndarray of shape (n_samples,), dtype=float64
        What each row costs from here on if it stays, errors included.

    price : float
        Of a wrong number, in units of cost.

    Returns
    -------
    lo, hi : float
    """
    n = len(x)
    above = np.zeros(n + 1)
    for j in range(n - 1, -1, -1):
        i = rows[by[j]]
        above[j] = above[j + 1] + to_go[i] - price * wrong[i]
    below, best_below, cut_below = 0.0, 0.0, 0
    best, cut_lo, cut_hi = 0.0, 0, n
    for j in range(n + 1):
        if j > 0:
            i = rows[by[j - 1]]
            below += to_go[i] - price * wrong[i]
        if 0 < j < n and x[by[j - 1]] == x[by[j]]:
            continue
        if below > best_below:
            best_below, cut_below = below, j
        gain = best_below + above[j]
        if gain > best + 1e-9:
            best, cut_lo, cut_hi = gain, cut_below, j
    lo, hi = -np.inf, np.inf
    if cut_lo == n:
        lo = np.inf
    elif cut_lo > 0:
        lo = 0.5 * (np.float64(x[by[cut_lo - 1]]) + np.float64(x[by[cut_lo]]))
    if cut_hi == 0:
        hi = -np.inf
    elif cut_hi < n:
        hi = 0.5 * (np.float64(x[by[cut_hi - 1]]) + np.float64(x[by[cut_hi]]))
    return lo, hi


@njit(cache=True, nogil=True)
def settle_numbers(x, wrong, lo, hi, price, to_go):
    """Let the rows that the thresholds `lo` and `hi` decide leave: updates `to_go`."""
    for i in range(len(x)):
        if x[i] > hi or x[i] < lo:
            to_go[i] = price * wrong[i]


@njit(cache=True, nogil=True)
def kth_largest(score, group, k):
    """The k-th largest score of each row's group, minus infinity where it has fewer.

    Parameters
    ----------
    score : ndarray of shape (n,)
    group : ndarray of shape (n,), dtype=int64
        Groups are runs of equal numbers.

    k : int

    Returns
    -------
    ndarray of shape (n,)
    """
    n = len(score)
    out = np.empty(n)
    top = np.empty(k)
    start = 0
    while start < n:
        stop = start
        top[:] = -np.inf
        while stop < n and group[stop] == group[start]:
            x = score[stop]
            if x > top[k - 1]:
                j = k - 1
                while j > 0 and top[j - 1] < x:
                    top[j] = top[j - 1]
                    j -= 1
                top[j] = x
            stop += 1
        out[start:stop] = top[k - 1]
        start = stop
    return out
