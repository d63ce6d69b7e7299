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


class Ties(NamedTuple):
    """Held-out rows by cut and key: how a cut is parted that is too many rows for a share.

    Attributes
    ----------
    cut : ndarray of shape (n_rows,), dtype=int
        The first cut that sends each row.
    key : ndarray of shape (n_rows,), dtype=uint64
    share : ndarray of shape (n_rows,)
        Of weight.
    """

    cut: NDArray[np.int64]
    key: NDArray[np.uint64]
    share: NDArray[np.float64]

    @classmethod
    def of(cls, cuts, gate, key, weight):
        """Ties of held-out rows."""
        return cls(np.searchsorted(-cuts.level, -gate, side="right"), key, weight / weight.sum())

    def largest_key(self, cut, share):
        """The largest key up to which rows of a cut have at most a share of weight; or None."""
        own = np.flatnonzero(self.cut == cut)
        own = own[np.argsort(self.key[own], kind="stable")]
        total = np.cumsum(self.share[own])
        # Rows of one key go together.
        last = np.append(np.diff(self.key[own]) > 0, True)[: len(own)]
        within = np.flatnonzero(last & (total <= share * (1 + ROUNDING)))
        return self.key[own[within[-1]]] if len(within) else None


def parted_by(cuts, ties, share, gate, keys):
    """Rows to send for a share: those above a cut, and of the next one as many as fit.

    Parameters
    ----------
    cuts : Cuts
    ties : Ties
    share : float
    gate : ndarray of shape (n_samples,)
    keys : callable
        Returns the keys of rows, by position.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=bool
    """
    at = int(np.searchsorted(cuts.share, share * (1 + ROUNDING), side="right")) - 1
    # Rows above all held-out ones are as the highest of these.
    sent = gate > (cuts.level[at] if at else np.inf)
    if at + 1 < len(cuts.level):
        largest = ties.largest_key(at + 1, share - cuts.share[at])
        tied = np.flatnonzero(~sent & (gate > cuts.level[at + 1]))
        if largest is not None and len(tied):
            sent[tied] = keys(tied) <= largest
    return sent


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
