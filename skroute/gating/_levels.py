"""Levels of a gate: where its scores may be cut, and the share of rows that each cut sends."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.base import ROUNDING

# Scores that differ by less are ties: a gate is summed in another order for other batches.
TIE = 1e-9
_GOLDEN = 0.6180339887498949


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


def row_keys(values):
    """Keys that part rows whose gate scores tie: the same for equal rows, else as if drawn.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features), dtype=float64

    Returns
    -------
    ndarray of shape (n_samples,), dtype=uint64
    """
    # -0.0 is 0.0, and there is one NaN.
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = np.ascontiguousarray(plain).view(np.uint64)
    key = np.full(len(values), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in bits.T:
        # The mixing step of splitmix64.
        key = (key ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    return key


def row_draws(keys):
    """Numbers in [0, 1) that belong to keys; those of equal keys are spread evenly.

    Parameters
    ----------
    keys : ndarray of shape (n_samples,), dtype=uint64

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    order = np.argsort(keys, kind="stable")
    place = np.arange(len(keys))
    starts = np.append(True, keys[order][1:] != keys[order][:-1])[: len(keys)]
    seen = np.empty(len(keys))
    seen[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    return ((keys >> np.uint64(11)).astype(np.float64) / 2.0**53 + _GOLDEN * seen) % 1.0


class Ranks(NamedTuple):
    """At which share of rows sent a row is one of them, from the scores of held-out rows.

    Each held-out score stands for its weight of the rows. Several rows of one score say that
    the score is frequent: rows of it share that weight, and there are none beside it. The weight of
    one row alone lies half above its score and half below it, and as much of it lies beyond the
    highest and the lowest one: of n rows without ties n + 1 parts are alike.

    Attributes
    ----------
    high, low : ndarray of shape (n_scores,)
        Bounds of each score within rounding, falling.
    start, end : ndarray of shape (n_scores,)
        Shares before and with rows of each score.
    above, below : ndarray of shape (n_scores,)
        Shares at which what lies between neighbouring scores ends and starts.
    """

    high: NDArray[np.float64]
    low: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]

    @classmethod
    def of(cls, gate, weight):
        """Ranks by the scores of held-out rows."""
        order = np.argsort(-gate, kind="stable")
        falling = gate[order]
        room = TIE * np.maximum(np.abs(falling), 1.0)
        first = np.flatnonzero(np.append(True, falling[:-1] - falling[1:] > room[:-1]))
        last = np.append(first[1:], len(gate)) - 1
        mass = np.add.reduceat(weight[order], first)
        alone = 0.5 * mass * (first == last)
        end = alone[0] + np.cumsum(mass)
        whole = end[-1] + alone[-1]
        start = end - mass
        bounds = falling[first] + room[first], falling[last] - room[last]
        return cls(*bounds, *(part / whole for part in (start, end, start + alone, end - alone)))

    def between(self, gate):
        """Shares at which the first and the last of the rows of each score are sent."""
        # Scores before these are higher.
        at = np.searchsorted(-self.low, -gate, side="left")
        inside = np.minimum(at, len(self.low) - 1)
        tied = (at < len(self.low)) & (gate <= self.high[inside])
        low = np.where(tied, self.start[inside], np.append(0.0, self.below)[at])
        return low, np.where(tied, self.end[inside], np.append(self.above, 1.0)[at])

    def of_rows(self, gate, keys):
        """The share at which each row is sent; where a range is possible, drawn by its key."""
        low, high = self.between(gate)
        return low + (high - low) * row_draws(keys)


def mean_gain(gate, gain, weight, p_full):
    """What sending gains, on average over the shares sent up to `p_full`.

    Parameters
    ----------
    gate, gain, weight, p_full
        As in `most_accurate_level`; of rows that tie a part is sent.

    Returns
    -------
    float
    """
    cuts = find_cuts(gate, weight)
    rows = np.searchsorted(-cuts.level, -gate, side="right")
    total = np.cumsum(np.bincount(rows, weight * gain, len(cuts.level)))
    shares = np.append(cuts.share[cuts.share < p_full], p_full)
    return float(np.trapezoid(np.interp(shares, cuts.share, total), shares))


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
        The smallest share is sent among those that gain most; infinite where none gains.
    """
    cuts = find_cuts(gate, weight)
    rows = np.searchsorted(-cuts.level, -gate, side="right")
    total = np.cumsum(np.bincount(rows, weight * gain, len(cuts.level)))
    total[cuts.share > p_full * (1 + ROUNDING)] = -np.inf
    # A gain of a millionth of a row is rounding.
    best = np.argmax(total >= total.max() - 1e-6 * weight.max())
    return cuts.level[best] if best else np.inf
