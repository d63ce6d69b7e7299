"""Levels of a gate: where its scores are cut, and the share of rows above each cut.

Rows whose score is above the level go to the full model. Scores that differ by rounding
are tied, and a level never lies between them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skroute.utils._row_hash import even_draws
from skroute.utils._tolerances import ROUNDING, SCORE_TIE
from skroute.utils._typing import NDArray

# Distance from the highest score to the level that sends no row, in tolerances of a
# tie. The scores of a row differ by rounding between batches of different sizes. At
# this distance they do not reach the level.
_TIES_ABOVE_ALL = 1e3

# Two summed gains are equal if they differ by less than this number times the largest
# weight of a row. Sums of the same gains in another order differ by rounding.
_GAIN_ROUNDING = 1e-6


class _FallingScores(NamedTuple):
    """Gate scores in falling order, divided into runs of tied scores.

    Attributes
    ----------
    order : ndarray of shape (n_rows,), dtype=int
        Positions of the rows. The row with the highest score is first.

    scores : ndarray of shape (n_rows,)
        The falling scores.

    tolerance : ndarray of shape (n_rows,)
        Difference up to which another score is tied with each score.

    run_starts, run_ends : ndarray of shape (n_runs,), dtype=int
        Positions in `scores` of the first and of the last score of each run.
    """

    order: NDArray[np.intp]
    scores: NDArray[np.float64]
    tolerance: NDArray[np.float64]
    run_starts: NDArray[np.intp]
    run_ends: NDArray[np.intp]


def _sort_scores(gate):
    """Sort gate scores, and find the runs of tied ones.

    Parameters
    ----------
    gate : ndarray of shape (n_rows,)

    Returns
    -------
    _FallingScores
    """
    order = np.argsort(-gate, kind="stable")
    scores = gate[order]
    tolerance = SCORE_TIE * np.maximum(np.abs(scores), 1.0)
    # Difference between each score and the next lower one.
    differences = scores[:-1] - scores[1:]
    # True for the last score, which ends the last run.
    ends_run = np.append(differences > tolerance[:-1], True)
    run_ends = np.flatnonzero(ends_run)
    run_starts = np.append(0, run_ends[:-1] + 1)
    return _FallingScores(
        order,
        scores=scores,
        tolerance=tolerance,
        run_starts=run_starts,
        run_ends=run_ends,
    )


class Cuts(NamedTuple):
    """Levels that separate gate scores, and the share of rows above each level.

    Attributes
    ----------
    levels : ndarray of shape (n_cuts,)
        Falling. The first level is above all scores, and the last below all scores. The
        others are half-way between neighbouring scores that are not tied.

    shares : ndarray of shape (n_cuts,)
        Share of the weight above each level, from 0 to 1.
    """

    levels: NDArray[np.float64]
    shares: NDArray[np.float64]


def find_cuts(gate, weight):
    """Return all levels that separate gate scores, and the share of rows above each.

    Parameters
    ----------
    gate : ndarray of shape (n_rows,)
        Gate scores.

    weight : ndarray of shape (n_rows,)

    Returns
    -------
    Cuts
    """
    falling = _sort_scores(gate)
    scores = falling.scores
    # The next lower score of each score. The lowest score has no next one: any lower
    # number serves, since the last level only has to be below all scores.
    next_scores = np.append(scores[1:], scores[-1] - 1.0)
    half_way = 0.5 * scores[falling.run_ends] + 0.5 * next_scores[falling.run_ends]
    # The level that sends no row. The highest score is the first one.
    above_all = scores[0] + _TIES_ABOVE_ALL * falling.tolerance[0]
    weight_above = np.cumsum(weight[falling.order])[falling.run_ends]
    return Cuts(
        levels=np.append(above_all, half_way),
        shares=np.append(0.0, weight_above / weight_above[-1]),
    )


def lowest_level(gate, weight, share):
    """Return the lowest gate level with at most a share of the weight above it.

    Parameters
    ----------
    gate : ndarray of shape (n_rows,)
        Gate scores.

    weight : ndarray of shape (n_rows,)

    share : float
        From 0 to 1.

    Returns
    -------
    float
        With a share of 0 it is above all scores.
    """
    cuts = find_cuts(gate, weight)
    # Number of cuts with at most this share. The first cut, with a share of 0, is one.
    n_allowed = np.searchsorted(cuts.shares, share * (1 + ROUNDING), side="right")
    return cuts.levels[n_allowed - 1]


def best_level(gate, gain, weight, p_full, n_standard_errors=0.0):
    """Return the gate score above which sending rows to the full model gains most.

    Parameters
    ----------
    gate : ndarray of shape (n_rows,)
        Gate scores.

    gain : ndarray of shape (n_rows,)
        Quality of the full model's answers less that of the cheap model's answers.

    weight : ndarray of shape (n_rows,)

    p_full : float
        Largest share of the weight above the level.

    n_standard_errors : float, default=0.0
        Number of standard errors by which the summed gain must exceed 0.

    Returns
    -------
    float
        The level that gains most. If several levels do, the one that sends the smallest
        share. Infinite if no level gains.
    """
    cuts = find_cuts(gate, weight)
    n_cuts = len(cuts.levels)
    # The first cut at which each row is sent. The row is sent at all later cuts, too.
    first_cut = np.searchsorted(-cuts.levels, -gate, side="right")
    weighted_gain = weight * gain
    # Summed gain of the rows that each cut sends. (n_cuts,)
    gain_of_cut = np.cumsum(np.bincount(first_cut, weighted_gain, n_cuts))
    # Estimated variance of this sum. (n_cuts,)
    variance = np.cumsum(np.bincount(first_cut, weighted_gain**2, n_cuts))
    is_insignificant = gain_of_cut < n_standard_errors * np.sqrt(variance)
    # The first cut sends no row, gains 0, and is always possible.
    is_insignificant[0] = False
    # A cut with a gain of minus infinity is never the best.
    gain_of_cut[is_insignificant] = -np.inf
    gain_of_cut[cuts.shares > p_full * (1 + ROUNDING)] = -np.inf
    is_best = gain_of_cut >= gain_of_cut.max() - _GAIN_ROUNDING * weight.max()
    # The first True is the best cut that sends the smallest share.
    best_cut = np.argmax(is_best)
    if best_cut == 0:
        # It is best to send no row.
        return np.inf
    return cuts.levels[best_cut]


class Ranks(NamedTuple):
    """Conformal ranks: the share of held-out scores above a score, ties at random.

    The rank of a row is the smallest share of sent rows at which it is sent. A new row
    is equally likely to have each of the n + 1 places among n held-out rows. It is
    below the ``a`` higher scores, and at one of ``t + 1`` places among the ``t`` scores
    that are tied with its own. If the place is drawn evenly from these, the rank is
    uniform, also if scores tie. A budget is then met on average over held-out rows
    (Vovk, Gammerman and Shafer, 2005, Proposition 2.8).

    Attributes
    ----------
    upper, lower : ndarray of shape (n_runs,)
        Bounds of each run of tied held-out scores, from the highest run to the lowest.
        A score between the bounds of a run is tied with its scores.

    share_above : ndarray of shape (n_runs + 1,)
        Share of the weight of the held-out scores above each run. The last entry is the
        share of all held-out scores.

    new_row_share : float
        Share of the weight of the new row itself.
    """

    upper: NDArray[np.float64]
    lower: NDArray[np.float64]
    share_above: NDArray[np.float64]
    new_row_share: float

    @classmethod
    def of(cls, gate, weight):
        """Return the `Ranks` that rank new rows among the gate scores of held-out rows.

        Parameters
        ----------
        gate : ndarray of shape (n_rows,)
            Gate scores.

        weight : ndarray of shape (n_rows,)
            Weights in units of one row.

        Returns
        -------
        Ranks
        """
        falling = _sort_scores(gate)
        starts = falling.run_starts
        ends = falling.run_ends
        run_weights = np.add.reduceat(weight[falling.order], starts)
        weight_above = np.append(0.0, np.cumsum(run_weights))
        held_out_weight = weight_above[-1]
        # Weight of the held-out rows and of the new row, which weighs 1.
        whole_weight = held_out_weight * (1 + 1 / held_out_weight)
        return cls(
            upper=falling.scores[starts] + falling.tolerance[starts],
            lower=falling.scores[ends] - falling.tolerance[ends],
            share_above=weight_above / whole_weight,
            new_row_share=float(1 - held_out_weight / whole_weight),
        )

    def bounds(self, gate):
        """Return the lowest and the highest rank that each score can have.

        Parameters
        ----------
        gate : ndarray of shape (n_rows,)
            Gate scores of new rows.

        Returns
        -------
        lowest, highest : ndarray of shape (n_rows,)
            They differ by the share of the tied scores and of the new row.
        """
        n_runs = len(self.lower)
        # Number of runs of held-out scores above each score. (n_rows,)
        n_above = np.searchsorted(-self.lower, -gate, side="left")
        # The run with which a score may be tied. A score below all runs has none, and
        # gets the last run as a valid index.
        next_run = np.minimum(n_above, n_runs - 1)
        is_tied = (n_above < n_runs) & (gate <= self.upper[next_run])
        # Runs above a score, and the run that is tied with it.
        n_above_or_tied = n_above + is_tied
        lowest = self.share_above[n_above]
        highest = self.share_above[n_above_or_tied] + self.new_row_share
        return lowest, highest

    def draw(self, gate, keys):
        """Draw the rank of each gate score between the two that :meth:`bounds` returns.

        Parameters
        ----------
        gate : ndarray of shape (n_rows,)
            Gate scores.

        keys : ndarray of shape (n_rows,), dtype=uint64
            Hashes of the rows. The draw is the same for the same keys.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        lowest, highest = self.bounds(gate)
        return lowest + (highest - lowest) * even_draws(keys)


@dataclass
class HeldOutScores:
    """Gate scores of held-out rows, by which the gate's threshold (level) is set.

    Attributes
    ----------
    gate_kind : Gate
        The estimator whose method `level` sets the level.

    scores : ndarray of shape (n_rows,)
        Gate scores.

    gain : ndarray of shape (n_rows,)
        Quality of the full model's answers less that of the cheap model's answers.

    weight : ndarray of shape (n_rows,)

    keys : ndarray of shape (n_rows,), dtype=uint64
        Hashes of the values that the gate reads.

    p_full : float
        Largest share of the weight above the level.

    n_standard_errors : float
        Number of standard errors by which the gain must exceed 0.

    lowest : float
        Lower bound of the level.
    """

    gate_kind: object
    scores: NDArray[np.float64]
    gain: NDArray[np.float64]
    weight: NDArray[np.float64]
    keys: NDArray[np.uint64]
    p_full: float
    n_standard_errors: float
    lowest: float

    def level(self, selection=slice(None)):
        """Return the gate level that is best on some rows, and at least `lowest`.

        Parameters
        ----------
        selection : ndarray of bool or slice, default=slice(None)
            The rows. The default takes all.

        Returns
        -------
        float
            Infinite if no level gains.
        """
        level = self.gate_kind.level(
            self.scores[selection],
            gain=self.gain[selection],
            weight=self.weight[selection],
            p_full=self.p_full,
            n_standard_errors=self.n_standard_errors,
        )
        return max(level, self.lowest)

    def ranks_by_other_half(self):
        """Return the rank of each row among the scores of the other half of the rows.

        It is infinite for a row that the level of the other half does not send.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        has_even_position = np.arange(len(self.scores)) % 2 == 0
        ranks = np.full(len(self.scores), np.inf)
        for half in (has_even_position, ~has_even_position):
            other_half = ~half
            if not self.weight[other_half].any():
                # There are no scores to rank by. Ranks stay infinite: no row of this
                # half is sent.
                continue
            other_ranks = Ranks.of(self.scores[other_half], self.weight[other_half])
            drawn = other_ranks.draw(self.scores[half], self.keys[half])
            is_sent = self.scores[half] > self.level(other_half)
            ranks[half] = np.where(is_sent, drawn, np.inf)
        return ranks
