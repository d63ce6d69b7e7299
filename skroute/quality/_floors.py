"""What estimates say against a better choice is believed where outcomes do not contradict.

Where errors are rare and expensive, few rows tell choices apart: that a cheaper choice is the
better one on some row is then often noise, and a router would buy less than the best single choice
that the budget pays for.
"""

import numpy as np

from skroute.quality._stacking import standard_error, upper_hull

# Of what a choice leads by over all rows: as much is left where estimates say that it does not.
_CONTRADICTION = 0.5


def learn_floors(estimate, quality, costs, step):
    """Choices that are not to be estimated below cheaper ones.

    For each choice of the hull of single choices, by rising cost: of the rows where a cheaper
    choice is estimated at least as good, the outcomes say whether it is. Where the more expensive
    one is better by more than a standard error, and by half of what it is better by over all rows,
    the estimates tell these rows from the others hardly better than chance. Then all rows are
    estimated so that the more expensive choice is the better one, by a hair: what money buys
    first stays as it was, and the last of it buys what is best for all.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    costs : ndarray of shape (n_choices,)
    step : float
        The hair.

    Returns
    -------
    ndarray of shape (n_choices, n_choices), dtype=bool, or None
        Which choices (columns) each choice (row) is above. None where there is none.
    """
    mean = quality.mean(axis=0)
    rows, found = np.arange(len(estimate)), np.zeros((len(costs), len(costs)), dtype=bool)
    estimate = estimate.copy()
    for k in upper_hull(costs, mean):
        cheaper = np.flatnonzero(costs < costs[k])
        if not len(cheaper):
            continue
        best = cheaper[estimate[:, cheaper].argmax(axis=1)]
        against = estimate[rows, best] >= estimate[:, k]
        lead = (quality[:, k] - quality[rows, best])[against]
        least = _CONTRADICTION * (mean[k] - mean[cheaper].max())
        # No row, or one, says nothing.
        if len(lead) > 1 and lead.mean() > max(standard_error(lead), least):
            found[k, cheaper] = True
            _lift(estimate, k, cheaper, step)
    return found if found.any() else None


def lift(estimate, floors, step):
    """Estimates, in place, with each choice above those that it is to be above.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    floors : ndarray of shape (n_choices, n_choices), dtype=bool, or None
    step : float

    Returns
    -------
    ndarray
        `estimate`.
    """
    for k, below in floors_in_order(floors):
        _lift(estimate, k, below, step)
    return estimate


def floors_in_order(floors):
    """Pairs of a choice and those that it is above, cheaper ones first: they are lifted, too.

    Parameters
    ----------
    floors : ndarray of shape (n_choices, n_choices), dtype=bool, or None

    Returns
    -------
    list of (int, list of int)
    """
    if floors is None:
        return []
    order = np.argsort(floors.sum(axis=1), kind="stable").tolist()
    return [(k, np.flatnonzero(floors[k]).tolist()) for k in order if floors[k].any()]


def _lift(estimate, k, below, step):
    estimate[:, k] = np.maximum(estimate[:, k], estimate[:, below].max(axis=1) + step)


def floors_of_folds(estimate, quality, costs, tests, step):
    """Floors of all rows, and the estimates of each fold lifted by those of the others.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    tests : list of ndarray of int
        The rows of each fold.
    step : float or None
        None, where no outcome differs from another, has no floors.

    Returns
    -------
    floors : ndarray of shape (n_choices, n_choices), dtype=bool, or None
    estimate : ndarray of shape (n_rows, n_choices)
    """
    if step is None:
        return None, estimate
    lifted = estimate.copy()
    for test in tests:
        rest = np.setdiff1d(np.arange(len(estimate)), test)
        of_others = learn_floors(estimate[rest], quality[rest], costs, step)
        lifted[test] = lift(lifted[test], of_others, step)
    return learn_floors(estimate, quality, costs, step), lifted
