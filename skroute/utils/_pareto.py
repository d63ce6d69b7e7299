"""Which choices no other beats in both cost and quality."""

import numpy as np


def undominated(cost, quality):
    """Choices that no other beats: none is as cheap and better, or cheaper and as good.

    Parameters
    ----------
    cost, quality : ndarray of shape (n_choices,)

    Returns
    -------
    ndarray of int64
        Their positions, by rising cost. Of equal choices the first.
    """
    order = np.lexsort((-quality, cost))
    best_before = np.r_[-np.inf, np.maximum.accumulate(quality[order])[:-1]]
    return order[quality[order] > best_before]
