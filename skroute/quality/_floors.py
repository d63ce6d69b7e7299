"""What estimates say against a better choice is believed where outcomes do not contradict.

Where errors are rare and expensive, few rows tell choices apart: that a cheaper choice is the
better one on some row is then often noise, and a router would buy less than the best single choice
that the budget pays for.
"""

from typing import NamedTuple

import numpy as np

from skroute.quality._stacking import standard_error, upper_hull

# Standard errors that the outcomes' sum must be above zero by, and that what comes after its
# largest must be below for the rows there to be left as estimated.
_BEYOND, _REFUTED = 0.5, 1.0
# Where outcomes are right or wrong, of what a choice leads by over all rows.
_WORTH = 0.5


class Floor(NamedTuple):
    """A choice that is not estimated a little below cheaper ones.

    Attributes
    ----------
    choice : int
    below : list of int
        The cheaper ones.
    most : float
        Rows where the best of them is estimated to be better by at most so much are lifted.
    """

    choice: int
    below: list[int]
    most: float


def learn_floors(estimate, quality, costs, step):
    """Choices that are not to be estimated a little below cheaper ones.

    For each choice of the hull of single choices, by rising cost: of the rows where a cheaper
    choice is estimated at least as good, the outcomes say whether it is. Rows are ordered by how
    much better it is estimated, and up to where the outcomes' sum is largest the more expensive
    choice was the better one (the calibration of the lead that is isotonic is above zero up to
    there). If the sum is half a standard error above zero, the rows up to there are estimated so
    that the more expensive choice is the better one, by a hair: what money buys first stays as it
    was, and the last of it buys what outcomes say is better. It is all rows, if the sum of all is
    above zero as well, and that of the rest is not a standard error below it: of rare and
    expensive errors a few rows say little. Where outcomes are right or wrong, estimates tell rows
    apart well, and the lead must also be half of that over all rows: with less, money is better
    saved.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    costs : ndarray of shape (n_choices,)
    step : float
        The hair.

    Returns
    -------
    list of Floor
        In the order in which they are to be lifted.
    """
    rows, found, estimate = np.arange(len(estimate)), [], estimate.copy()
    mean, low, high = quality.mean(axis=0), quality.min(), quality.max()
    right_or_wrong = np.all((quality == low) | (quality == high))
    for k in upper_hull(costs, mean):
        cheaper = np.flatnonzero(costs < costs[k])
        if not len(cheaper):
            continue
        best = cheaper[estimate[:, cheaper].argmax(axis=1)]
        against = estimate[rows, best] - estimate[:, k]
        asked = np.flatnonzero(against >= 0)
        lead = (quality[:, k] - quality[rows, best])[asked]
        least = _WORTH * (mean[k] - mean[cheaper].max()) if right_or_wrong else 0.0
        most = contradicted(against[asked], lead, least)
        if most is not None:
            found.append(Floor(int(k), cheaper.tolist(), most))
            lift(estimate, found[-1:], step)
    return found


def contradicted(against, lead, least=0.0):
    """Up to which estimated disadvantage outcomes say that there is none.

    Parameters
    ----------
    against : ndarray of shape (n_rows,)
        By how much a choice is estimated to be worse.
    lead : ndarray of shape (n_rows,)
        By how much it was better.
    least : float, default=0.0
        What it must be better by on average, where outcomes contradict.

    Returns
    -------
    float or None
        Infinite where it is all rows, None where outcomes contradict nowhere beyond noise.
    """
    order = np.argsort(against, kind="stable")
    against, lead = against[order], lead[order]
    count, total = np.arange(1, len(lead) + 1), np.cumsum(lead)
    # The variance of a sum of `count` leads is that of one, times `count`.
    squares = np.maximum(np.cumsum(lead**2) - total**2 / count, 0.0)
    beyond = total > _BEYOND * np.sqrt(squares * count / np.maximum(count - 1, 1))
    beyond &= total > least * count
    # Rows of equal estimates are lifted together; no row, or one, says nothing.
    ends = np.append(np.diff(against) > 0, True)[: len(lead)] & (count > 1)
    at = np.flatnonzero(ends & beyond)
    if not len(at):
        return None
    last = at[total[at].argmax()]
    rest = lead[last + 1 :]
    if beyond[-1] and (len(rest) < 2 or rest.mean() > -_REFUTED * standard_error(rest)):
        return np.inf
    # Between two estimates: rounding decides nothing.
    return float(against[last : last + 2].mean())


def lift(estimate, floors, step, ends=None):
    """Estimates, in place, with each choice above those that it is to be above.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    floors : list of Floor
    step : float
    ends : (ndarray of shape (n_choices,), ndarray of shape (n_choices,)), default=None
        The least and the largest outcome of each choice. All choices of a row that was lifted
        above the largest of all give way by as much.

    Returns
    -------
    ndarray
        `estimate`.
    """
    for choice, below, most in floors:
        best = estimate[:, below].max(axis=1)
        lifted = (best + step > estimate[:, choice]) & (best - estimate[:, choice] <= most)
        estimate[lifted, choice] = best[lifted] + step
    if floors and ends is not None:
        low, high = ends
        estimate -= np.maximum(estimate.max(axis=1, keepdims=True) - high.max(), 0.0)
        np.maximum(estimate, low, out=estimate)
    return estimate


def laid_out(floors, n_choices):
    """Floors as arrays for the kernel.

    Parameters
    ----------
    floors : list of Floor
    n_choices : int

    Returns
    -------
    choices : ndarray of shape (n_floors,), dtype=int64
    below : ndarray of shape (n_floors, n_choices), dtype=bool
    most : ndarray of shape (n_floors,)
    """
    below = np.zeros((len(floors), n_choices), dtype=bool)
    for row, floor in zip(below, floors):
        row[floor.below] = True
    choices = np.array([floor.choice for floor in floors], dtype=np.int64)
    return choices, below, np.array([floor.most for floor in floors], dtype=np.float64)


def floors_of_folds(estimate, quality, costs, tests, step, ends=None):
    """Floors of all rows, and the estimates of each fold lifted by those of the others.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    tests : list of ndarray of int
        The rows of each fold.
    step : float or None
        None, where no outcome differs from another, has no floors.
    ends : (ndarray of shape (n_choices,), ndarray of shape (n_choices,)), default=None
        As in :func:`lift`.

    Returns
    -------
    floors : list of Floor
    estimate : ndarray of shape (n_rows, n_choices)
    """
    if step is None:
        return [], estimate
    lifted = estimate.copy()
    for test in tests:
        rest = np.setdiff1d(np.arange(len(estimate)), test)
        of_others = learn_floors(estimate[rest], quality[rest], costs, step)
        lifted[test] = lift(lifted[test], of_others, step, ends)
    return learn_floors(estimate, quality, costs, step), lifted
