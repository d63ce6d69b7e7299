"""Choosing among policies by rows that did not fit them, without believing the winner."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Standard errors within which a simpler policy is preferred to a better one. A quarter is best on
# folds of the training rows of two cascade sets (300 rows), five and nine models: with nothing the
# best of 130 policies is taken for what it seems, with one what is learned is thrown away.
SLACK = 0.25


def choose_simple(gain, complexity, slack=SLACK):
    """The simplest policy that is not clearly worse than the best one.

    Parameters
    ----------
    gain : ndarray of shape (n_policies, n_rows)
        What each policy is worth on rows that did not fit it.

    complexity : ndarray of shape (n_policies,)

    slack : float, default=SLACK
        Standard errors, of the difference to the best policy row by row, that count as
        equal. Raising it takes simpler policies.

    Returns
    -------
    int
        The best one of the simplest.
    """
    mean = gain.mean(axis=1)
    best = int(mean.argmax())
    error = (gain - gain[best]).std(axis=1) / np.sqrt(gain.shape[1])
    near = np.flatnonzero(mean >= mean[best] - slack * error - 1e-12)
    simple = near[complexity[near] == complexity[near].min()]
    return int(simple[mean[simple].argmax()])


class Selection(NamedTuple):
    """A policy for each price, and what that kind of choosing is worth on new rows.

    Attributes
    ----------
    policy : ndarray of shape (n_prices,), dtype=int64
        Chosen by all rows.

    row_cost : ndarray of shape (n_rows, n_prices)
        Cost of the policies chosen.

    row_quality : ndarray of shape (n_rows, n_prices)
        Quality on the rows of each fold of what the rows of the other folds choose: the rows
        that pick a policy do not say how good it is.
    """

    policy: NDArray[np.int64]
    row_cost: NDArray[np.float64]
    row_quality: NDArray[np.float64]


def select_policies(quality, cost, prices, complexity, folds):
    """Choose a policy for each price.

    Parameters
    ----------
    quality, cost : ndarray of shape (n_policies, n_rows, n_prices)
        On rows that did not fit the policies.

    prices : ndarray of shape (n_prices,)

    complexity : ndarray of shape (n_policies,)

    folds : list of ndarray of int
        Parts of the rows.

    Returns
    -------
    Selection
    """
    n_rows, n_prices = quality.shape[1:]
    policy = np.empty(n_prices, dtype=np.int64)
    honest = np.empty((n_rows, n_prices))
    parts = [(np.setdiff1d(np.arange(n_rows), part), part) for part in folds]
    for j, price in enumerate(prices):
        gain = quality[:, :, j] - price * cost[:, :, j]
        policy[j] = choose_simple(gain, complexity)
        for rest, part in parts:
            by_others = choose_simple(gain[:, rest], complexity) if len(rest) else policy[j]
            honest[part, j] = quality[by_others, part, j]
    return Selection(policy, cost[policy, :, np.arange(n_prices)].T, honest)
