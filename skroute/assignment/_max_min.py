"""Maximise the smallest value: OCCAM's alternative objective."""

import numpy as np

from skroute.assignment._problem import totals


def solve_max_min(problem):
    """Plan whose smallest value is largest, and among those the cheapest.

    Binary search over the values that occur: a threshold is feasible when the cheapest
    sufficient choice of every row, summed, fits.

    Returns
    -------
    choices : ndarray of shape (n,), dtype=int64
    smallest : float
        The smallest value in the plan.
    """
    values, costs, total, _ = problem
    room = total + problem.slack_for_rounding

    def cheapest_sufficient(threshold):
        return np.where(values >= threshold, costs, np.inf).argmin(axis=1)

    # No threshold above a row's best value can be met.
    thresholds = np.unique(values[values <= values.max(axis=1).min()])
    low, high = 0, len(thresholds) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if totals(problem, cheapest_sufficient(thresholds[middle]))[1] <= room:
            low = middle
        else:
            high = middle - 1
    choices = cheapest_sufficient(thresholds[low])
    return choices, float(values[np.arange(len(values)), choices].min())
