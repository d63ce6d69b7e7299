"""Tests of overlap: decide if a log can measure a policy that it did not follow."""

from typing import NamedTuple

import numpy as np
from scipy.stats import sem

from skroute.utils._tolerances import LIMIT_ROOM
from skroute.utils._typing import NDArray

# A choice may be missing in the log if the policy makes it on fewer rows than this
# number. Such few rows hardly change a mean.
_MOST_ROWS_WITHOUT = 10
# A choice may also be missing in the log if the policy makes it on less than this share
# of the rows. The larger of the two bounds holds.
_MOST_SHARE_WITHOUT = 0.02
# Log and policy can by chance make a choice on different rows only. If they are
# expected to agree on more rows than this, the probability of no agreement is below
# exp(-7), about one in a thousand. The log then lacks the choice.
_EXPECTED_ROWS = 7.0
# Smallest effective number of agreeing rows that an estimate needs. Means of fewer rows
# have no useful standard error.
_LEAST_EFFECTIVE_SIZE = 10
# The weight of a row is one over its propensity where log and policy agree, else 0. The
# mean weight is about 1 if the log could make all choices of the policy. A mean below 1
# by at most this amount is no lack of overlap.
_MISSING_SHARE = 0.1
# The mean weight may be below 1 by this number of its standard errors. Weights have
# long tails: two or three standard errors would often be exceeded by chance. The larger
# of this bound and `_MISSING_SHARE` holds.
_MISSING_ERRORS = 5.0


class Agreement(NamedTuple):
    """Counts and weights of rows on which a log made the choices of a policy.

    Attributes
    ----------
    needed : ndarray of shape (n_choices,), dtype=float64
        Number of rows for which the policy makes each choice.

    matched : ndarray of shape (n_choices,), dtype=float64
        Number of these rows on which the log made the same choice.

    made : ndarray of shape (n_choices,), dtype=int64
        Number of rows on which the log made each choice at all.

    weight : ndarray of shape (n_rows,), dtype=float64
        One over the propensity where log and policy agree, else 0.
    """

    needed: NDArray[np.float64]
    matched: NDArray[np.float64]
    made: NDArray[np.int64]
    weight: NDArray[np.float64]


def effective_size(weight):
    """Return how many rows of equal weight would give a mean the same variance.

    The number is ``(sum w)^2 / sum w^2``, or 0 if all weights are 0.
    """
    sum_of_squares = float(weight @ weight)
    if sum_of_squares > 0:
        return float(weight.sum()) ** 2 / sum_of_squares
    return 0.0


def never_matched(needed, matched, made, n_rows):
    """Return True if a choice of the policy is never that of the log, beyond chance.

    Parameters
    ----------
    needed : float
        Number of rows for which the policy makes the choice.
    matched : float
        Number of these rows on which the log made the same choice. May be a sum of
        weights.
    made : int
        Number of rows on which the log made the choice at all.
    n_rows : int
        Number of all rows.

    Returns
    -------
    bool
    """
    if made == 0:
        # The log never made the choice. The policy may make it on a few rows, which
        # hardly change a mean.
        return needed >= max(_MOST_SHARE_WITHOUT * n_rows, _MOST_ROWS_WITHOUT)
    # Expected number of agreeing rows, if the log made the choice with the same
    # probability on all rows.
    expected = needed * made / n_rows
    # `matched` may be a sum of weights: less than half a row counts as no row.
    return matched < 0.5 and expected > _EXPECTED_ROWS


def lack_of_overlap(agreement, names):
    """Return the reason why a log cannot measure a policy, or None if it can.

    This is the only test of overlap. Fits of logs and off-policy curves make it.

    Parameters
    ----------
    agreement : Agreement
    names : list of str
        The choices.

    Returns
    -------
    str or None
        The end of a sentence that begins with the policy's budget.
    """
    # Each test returns a message, or None if it finds no lack of overlap.
    reason = _choice_without_match(agreement, names)
    if reason is None:
        reason = _missing_weight(agreement.weight)
    if reason is None:
        reason = _few_effective_rows(agreement.weight)
    return reason


def _choice_without_match(agreement, names):
    """Return a message if the log lacks a choice that the policy makes, else None.

    `agreement` and `names` are as in `lack_of_overlap`.
    """
    n_rows = len(agreement.weight)
    counts = zip(names, agreement.needed, agreement.matched, agreement.made)
    for name, needed, matched, made in counts:
        if never_matched(needed, matched, made=made, n_rows=n_rows):
            return (
                f"the policy sends {needed / n_rows:.1%} of the rows to {name!r}, and "
                "on none of them has the log made this choice: it cannot say what that "
                "is worth."
            )
    return None


def _missing_weight(weight):
    """Return a message if the mean importance weight is too far below 1, else None.

    `weight` is an attribute of `Agreement`.
    """
    missing_share = 1 - weight.mean()
    if missing_share > max(_MISSING_SHARE, _MISSING_ERRORS * sem(weight)):
        return (
            "the rows on which log and policy agree stand for "
            f"{weight.mean():.1%} of all rows by their propensities: the log never "
            "made the policy's choice on the others (or propensities are too large), "
            "and cannot say what it is worth there."
        )
    return None


def _few_effective_rows(weight):
    """Return a message if few rows of large weight stand for all others, else None.

    `weight` is an attribute of `Agreement`.
    """
    n_rows = len(weight)
    n_agreed = np.count_nonzero(weight)
    n_effective = effective_size(weight)
    if n_agreed < (1 - _MISSING_SHARE) * n_rows:
        # A row of weight w counts for itself, and for w - 1 rows on which the log made
        # another choice. If log and policy differ on few rows, most weights are near 1.
        # The estimate for these few rows depends on the weights less 1.
        weight_of_others = np.maximum(weight - 1, 0.0)
        n_effective = min(n_effective, effective_size(weight_of_others))
    if n_effective < _LEAST_EFFECTIVE_SIZE:
        return (
            f"the log agrees with the policy on {n_agreed} of {n_rows} rows, which "
            f"stand for the others with an effective sample size of {n_effective:.1f}, "
            f"below {_LEAST_EFFECTIVE_SIZE}: too few to say what the policy is worth."
        )
    return None


def beyond_range(estimates, qualities, name):
    """Return a message if an estimate is outside of the logged qualities, else None.

    Parameters
    ----------
    estimates : float or ndarray of float
        Estimates of means, NaN where there is none.
    qualities : ndarray of float
        The qualities in the log, NaN where they are not known.
    name : str
        Name of the estimates, for the message.

    Returns
    -------
    str or None
    """
    low = np.nanmin(qualities)
    high = np.nanmax(qualities)
    # An estimate may be outside by rounding.
    room = LIMIT_ROOM * max(abs(low), abs(high))
    estimates = np.ravel(estimates)
    # An estimate of NaN is neither below nor above.
    is_outside = (estimates < low - room) | (estimates > high + room)
    outside = estimates[is_outside]
    if not len(outside):
        return None
    return (
        f"{name} of {outside[0]:.4g} is outside of the qualities in the log, "
        f"{low:.4g} to {high:.4g}: a few rows with large weights decide it. Do not "
        "rely on it. Log more requests at random, with their propensities."
    )
