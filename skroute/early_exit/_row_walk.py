"""The compiled early-exit walk of one row. Imported on first use.

`pack` and `values` are those of a :class:`skroute.forests._row_layout.RowLayout`. Behind its
parts are the lower and the upper thresholds; then where the answer changes, what is a tie, slope
and shift of the link, and 1 where it is a mean.
"""

import math

import numpy as np
from numba import njit, types

from skroute.early_exit._link import TINY
from skroute.forests._row_kernels import (
    DOUBLES,
    PACK,
    ROWS,
    VALUES,
    bin_row,
    part,
    some_leaves,
    take_row,
)

# Trees that are walked before the first is looked at: their loads overlap.
_TOGETHER = 16
_ENDS = types.Tuple([types.float64, types.int64, types.int64])


@njit([_ENDS(X, PACK, VALUES) for X in ROWS], cache=True, nogil=True)
def walk_row(X, pack, values):
    """Distance from the decision, members evaluated, and side: 1 or -1 where the row left, 0
    where it did not, 2 where this is not one row, or one that the library may refuse.

    Parameters
    ----------
    X : ndarray of shape (1, n_features)
    pack : ndarray, dtype=uint64
    values : ndarray of shape (n_values, 1), dtype=float64
    """
    numbers = part(pack, 0)
    if X.shape[0] != 1 or X.shape[1] != np.int64(numbers[0]):
        return 0.0, 0, 2
    tests, heads = part(pack, 3), part(pack, 4).reshape((-1, 4))
    sets, words = part(pack, 8), part(pack, 7)
    lo, hi = part(pack, 9).view(np.float64), part(pack, 10).view(np.float64)
    row = np.empty(X.shape[1])
    if not take_row(X, 0, numbers[1] != 0, np.int64(numbers[2]), row):
        return 0.0, 0, 2
    codes = np.empty(len(part(pack, 1)) // 2, dtype=np.uint16)
    bin_row(row, pack, codes)
    at = np.empty(_TOGETHER, dtype=np.uint64)
    beta = part(pack, 11).view(np.float64)[0]
    g = part(pack, 6).view(np.float64)[0]
    n_members = len(lo)
    for t in range(0, n_members, _TOGETHER):
        m = min(_TOGETHER, n_members - t)
        some_leaves(tests, heads, codes, t, m, at, numbers[3], sets, words)
        for i in range(m):
            g += values[at[i], 0]
            if t + i < n_members - 1:
                if g > hi[t + i]:
                    return g - beta, t + i + 1, 1
                if g < lo[t + i]:
                    return g - beta, t + i + 1, -1
    return g - beta, n_members, 0


@njit([types.int64(X, PACK, VALUES) for X in ROWS], cache=True, nogil=True)
def label_row(X, pack, values):
    """Position of the label of one row; -1 where that needs a closer look.

    Parameters
    ----------
    X, pack, values
        As of :func:`walk_row`.
    """
    distance, _, side = walk_row(X, pack, values)
    if side == 1 or side == -1:
        return np.int64(side > 0)
    if side == 2 or abs(distance) <= part(pack, 11).view(np.float64)[1]:
        return -1
    return np.int64(distance > 0)


@njit([types.boolean(X, PACK, VALUES, DOUBLES) for X in ROWS], cache=True, nogil=True)
def proba_row(X, pack, values, proba):
    """Probabilities of one row, into `proba`; False where that needs a closer look.

    Parameters
    ----------
    X, pack, values
        As of :func:`walk_row`.

    proba : ndarray of shape (1, n_classes)
        An ensemble of one class has one column.
    """
    distance, members, side = walk_row(X, pack, values)
    ends = part(pack, 11).view(np.float64)
    if side == 2 or (side == 0 and abs(distance) <= ends[1]):
        return False
    if side == 1:
        distance = max(distance, TINY)
    elif side == -1:
        distance = min(distance, -TINY)
    if ends[4]:
        positive = 0.5 + ends[3] + distance / members
    else:
        # One that cannot overflow on either side.
        score = ends[2] * (distance + ends[3])
        raised = math.exp(-abs(score))
        positive = (1.0 if score > 0 else raised) / (1.0 + raised)
    proba[0, 0] = 1.0 - positive
    proba[0, proba.shape[1] - 1] = positive
    return True
