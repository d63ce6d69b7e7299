"""How far to go: calibration on rows that nothing else has looked at."""

import numpy as np


def upper_bound(n_wrong, n_samples, confidence):
    """Exact binomial (Clopper-Pearson) upper confidence limit of a share.

    Parameters
    ----------
    n_wrong, n_samples : int
    confidence : float

    Returns
    -------
    float
    """
    from scipy.special import betaincinv

    if n_wrong >= n_samples:
        return 1.0
    return float(betaincinv(n_wrong + 1, n_samples - n_wrong, confidence))


def allowed_wrong(n_samples, alpha, confidence, guarantee):
    """Wrong answers on calibration rows that are compatible with `alpha`.

    Parameters
    ----------
    n_samples : int
        Calibration rows.

    alpha : float
    confidence : float
    guarantee : bool
        Whether the upper bound must meet `alpha`, or the expectation
        (``(k + 1) / (n + 1) <= alpha``, conformal risk control).

    Returns
    -------
    int
        -1 when there are too few rows for any.
    """
    if not guarantee:
        return int(np.floor(alpha * (n_samples + 1) + 1e-9)) - 1
    lowest, highest = -1, n_samples
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if upper_bound(middle, n_samples, confidence) <= alpha:
            lowest = middle
        else:
            highest = middle - 1
    return lowest


def fixed_sequence(n_wrong, allowed):
    """The last policy before the first that makes too many errors.

    Policies are tried from the most cautious on, in an order fixed beforehand. If the
    true share of the policy returned is above the limit that belongs to `allowed`, then
    so is that of some first policy in the sequence, and that one passed by chance: the
    limit of a single test holds for the whole search.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies,)
        Errors on the calibration rows.

    allowed : int

    Returns
    -------
    int
        Index of the policy, -1 when the first fails.
    """
    failed = np.flatnonzero(np.asarray(n_wrong) > allowed)
    return int(failed[0]) - 1 if len(failed) else len(n_wrong) - 1
