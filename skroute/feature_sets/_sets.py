"""Sets of extractors: their names, which of them are worth keeping, which one to choose.

A set is an integer bit mask: bit ``j`` stands for extractor ``j``.
"""

import numpy as np

from skroute.base import affords

NO_FEATURES = "(none)"


def members(mask):
    """Extractors of one set, in rising order."""
    mask = int(mask)
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def set_name(names, mask):
    """Name of a set, such as "header + content"."""
    return " + ".join(names[j] for j in members(mask)) or NO_FEATURES


def indicator(masks, n_extractors):
    """Sets as rows of a boolean matrix of shape (n_sets, n_extractors)."""
    masks = np.asarray(masks, dtype=np.int64)
    return (masks[:, None] >> np.arange(n_extractors) & 1).astype(bool)


def undominated(quality, coef):
    """Sets that some size and budget may choose (Properties 3.6 and 3.7): positions, worst first.

    A set costs ``coef @ basis(size)`` with a basis that is never negative. It is left out where a
    set at least as good has no larger coefficient: that one is at most as dear at every size.
    """
    # Among equals in quality a set that undercuts another is before it.
    order = np.lexsort((*coef.T[::-1], -quality))
    kept, n_kept = np.empty_like(coef), 0
    positions = []
    for row in order:
        if not (kept[:n_kept] <= coef[row]).all(axis=1).any():
            kept[n_kept] = coef[row]
            n_kept += 1
            positions.append(row)
    return np.array(positions[::-1])


def best_affordable(cost, quality, budget, tied=True):
    """The best set within each budget, of equally good ones the cheapest: one for each query.

    `quality` does not fall, and one set at least fits every budget; `tied` says whether some
    qualities may be equal.
    """
    fits = affords(budget[:, None], cost)
    best = len(quality) - 1 - fits[:, ::-1].argmax(axis=1)
    if tied:
        equal = fits & (quality == quality[best][:, None])
        best = np.where(equal, cost, np.inf).argmin(axis=1)
    return best
