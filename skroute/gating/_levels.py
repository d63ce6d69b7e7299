"""Levels of a gate: where its scores may be cut, and the share of rows that each cut sends."""

from typing import NamedTuple

import numpy as np

from skroute.utils._row_hash import even_draws
from skroute.utils._tolerances import ROUNDING, SCORE_TIE
from skroute.utils._typing import NDArray


def _falling(gate):
    """Order of falling scores, the scores, and room for rounding; which are the last of a tie."""
    order = np.argsort(-gate, kind="stable")
    falling = gate[order]
    room = SCORE_TIE * np.maximum(np.abs(falling), 1.0)
    last = np.flatnonzero(np.append(falling[:-1] - falling[1:] > room[:-1], True))
    return order, falling, room, last


def find_cuts(gate, weight):
    """Levels at which gate scores may be cut, falling, and the share of weight above each.

    They are half-way between neighbours, so that ties are never parted; the first sends no row,
    the last all of them.
    """
    order, falling, room, last = _falling(gate)
    share = np.cumsum(weight[order])
    below = np.append(falling[1:], falling[-1] - 1.0)[last]
    level = np.append(falling[0] + 1e3 * room[0], 0.5 * falling[last] + 0.5 * below)
    return level, np.append(0.0, share[last] / share[-1])


def lowest_level(gate, weight, share):
    """The lowest level of a gate that sends at most a share of weight."""
    levels, sent = find_cuts(gate, weight)
    return levels[np.searchsorted(sent, share * (1 + ROUNDING), side="right") - 1]


class Ranks(NamedTuple):
    """At which share of rows sent a row is one of them, from the scores of held-out rows.

    A new row and n held-out ones are alike, and so are the n + 1 places that it may have among
    them: below `a` higher ones, and at one of the t + 1 places among t of its own score. Drawn
    evenly from these the share is uniform, whatever the scores are and however they tie, so that a
    budget is met on average over held-out rows (Vovk, Gammerman and Shafer, 2005, Proposition 2.8).

    `high` and `low` bound each score within rounding, falling; `before` has the shares of the
    scores above each of them, and of all; `place` is the share of the new row itself.
    """

    high: NDArray[np.float64]
    low: NDArray[np.float64]
    before: NDArray[np.float64]
    place: float

    @classmethod
    def of(cls, gate, weight):
        """Ranks by the scores of held-out rows."""
        order, falling, room, last = _falling(gate)
        first = np.append(0, last[:-1] + 1)
        before = np.append(0.0, np.cumsum(np.add.reduceat(weight[order], first)))
        # A new row weighs 1, as a row does in the mean.
        whole = before[-1] * (1 + 1 / before[-1])
        bounds = falling[first] + room[first], falling[last] - room[last]
        return cls(*bounds, before / whole, float(1 - before[-1] / whole))

    def between(self, gate):
        """Shares at which the first and the last of the rows of each score are sent."""
        # Scores before these are higher.
        at = np.searchsorted(-self.low, -gate, side="left")
        inside = np.minimum(at, len(self.low) - 1)
        tied = (at < len(self.low)) & (gate <= self.high[inside])
        return self.before[at], self.before[at + tied] + self.place

    def of_rows(self, gate, keys):
        """The share at which each row is sent; where a range is possible, drawn by its key."""
        low, high = self.between(gate)
        return low + (high - low) * even_draws(keys)


def best_level(gate, gain, weight, p_full, sure=0.0):
    """Level above which sending rows raises quality most.

    `gain` is by how much the full model's answers are better, `p_full` the largest share of weight
    above the level, `sure` by how many standard errors the gain must be above 0. The smallest share
    is sent among those that gain most; the level is infinite where none gains.
    """
    levels, share = find_cuts(gate, weight)
    rows = np.searchsorted(-levels, -gate, side="right")
    total = np.cumsum(np.bincount(rows, weight * gain, len(levels)))
    error = np.sqrt(np.cumsum(np.bincount(rows, (weight * gain) ** 2, len(levels))))
    total[1:][total[1:] < sure * error[1:]] = -np.inf
    total[share > p_full * (1 + ROUNDING)] = -np.inf
    # A gain of a millionth of a row is rounding.
    best = np.argmax(total >= total.max() - 1e-6 * weight.max())
    return levels[best] if best else np.inf
