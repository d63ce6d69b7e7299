"""Levels of a gate: where its scores may be cut, and the share of rows that each cut sends."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.base import ROUNDING

# Scores that differ by less are ties: a gate is summed in another order for other batches.
TIE = 1e-9


class Cuts(NamedTuple):
    """Levels between the scores of some rows, and what they send.

    Attributes
    ----------
    level : ndarray of shape (n_cuts,)
        Falling, half-way between neighbours; the first sends no row, the last all of them.
    share : ndarray of shape (n_cuts,)
        Share of weight with a score above the level.
    """

    level: NDArray[np.float64]
    share: NDArray[np.float64]

    def lowered(self, by):
        """The cuts of the same gate less a constant."""
        return self._replace(level=self.level - by)


def find_cuts(gate, weight):
    """All cuts of gate scores; ties are never parted.

    Parameters
    ----------
    gate : ndarray of shape (n_samples,)
    weight : ndarray of shape (n_samples,)

    Returns
    -------
    Cuts
    """
    order = np.argsort(-gate, kind="stable")
    falling = gate[order]
    share = np.cumsum(weight[order])
    room = TIE * np.maximum(np.abs(falling), 1.0)
    last = np.flatnonzero(np.append(falling[:-1] - falling[1:] > room[:-1], True))
    below = np.append(falling[1:], falling[-1] - 1.0)[last]
    top = falling[0] + 1e3 * room[0]
    return Cuts(
        np.append(top, 0.5 * falling[last] + 0.5 * below),
        np.append(0.0, share[last] / share[-1]),
    )


def lowest_level(cuts, share):
    """The lowest level that sends at most a share of weight."""
    return cuts.level[np.searchsorted(cuts.share, share * (1 + ROUNDING), side="right") - 1]


def most_accurate_level(gate, gain, weight, p_full):
    """Level above which sending rows raises accuracy most.

    Parameters
    ----------
    gate : ndarray of shape (n_samples,)
        Held-out gate scores.
    gain : ndarray of shape (n_samples,)
        1 where the full model is right and the cheap one wrong, -1 the other way round.
    weight : ndarray of shape (n_samples,)
    p_full : float
        Largest share of weight above the level.

    Returns
    -------
    float
        The smallest share is sent among those that gain most.
    """
    cuts = find_cuts(gate, weight)
    rows = np.searchsorted(-cuts.level, -gate, side="right")
    total = np.cumsum(np.bincount(rows, weight * gain, len(cuts.level)))
    total[cuts.share > p_full * (1 + ROUNDING)] = -np.inf
    # A gain of a millionth of a row is rounding.
    return cuts.level[np.argmax(total >= total.max() - 1e-6 * weight.max())]
