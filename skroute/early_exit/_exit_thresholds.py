"""Thresholds in the form that the walks take, and where rows leave under them."""

from typing import Any, NamedTuple

import numpy as np


class ExitThresholds(NamedTuple):
    """When rows leave: a lower and an upper threshold per position, or per bin of it.

    Attributes
    ----------
    lo, hi : ndarray of shape (n_thresholds,), dtype=float64
        A row leaves below or above. NaN marks a bin that was never seen: its rows are
        evaluated to the end.

    start : ndarray of shape (n_members + 1,), dtype=int64
        Thresholds of position `r` are ``start[r]:start[r + 1]``.

    first : ndarray of shape (n_members,), dtype=int64
        Number of the first bin of each position.

    bins_per_unit : float
        Bins per unit of score, 0 for one pair of thresholds per position.
    """

    lo: Any
    hi: Any
    start: Any
    first: Any
    bins_per_unit: float

    @classmethod
    def per_position(cls, lo, hi):
        """A pair of thresholds for each position."""
        n_members = len(lo)
        return cls(
            np.asarray(lo, dtype=np.float64),
            np.asarray(hi, dtype=np.float64),
            np.arange(n_members + 1, dtype=np.int64),
            np.zeros(n_members, dtype=np.int64),
            0.0,
        )

    @classmethod
    def never(cls, n_members):
        """No row leaves early."""
        return cls.per_position(np.full(n_members, -np.inf), np.full(n_members, np.inf))

    def checked(self, n_members):
        """These thresholds, if a walk finds one for each position: files can be damaged."""
        start, first = np.asarray(self.start), np.asarray(self.first)
        if (
            any(part.dtype != np.float64 or part.ndim != 1 for part in (self.lo, self.hi))
            or start.dtype != np.int64
            or first.dtype != np.int64
            or start.shape != (n_members + 1,)
            or first.shape != (n_members,)
            or start[0] != 0
            or (np.diff(start) < 1).any()
            or len(self.lo) != start[-1]
            or len(self.hi) != start[-1]
            or (self.bins_per_unit == 0 and start[-1] != n_members)
        ):
            raise ValueError(f"The thresholds of {n_members} members are damaged.")
        return self

    def of_rows(self, r, score):
        """Thresholds of each row at position `r`: NaN where its bin was never seen.

        Parameters
        ----------
        r : int
        score : ndarray of shape (n_samples,)
            Partial sums, which say the bin.

        Returns
        -------
        lo, hi : ndarray of shape (n_samples,) or float
        """
        start, stop = self.start[r], self.start[r + 1]
        if self.bins_per_unit == 0.0:
            return self.lo[start], self.hi[start]
        number = np.rint(score.astype(np.float64) * self.bins_per_unit).astype(np.int64)
        number -= self.first[r]
        inside = (number >= 0) & (number < stop - start)
        at = start + np.where(inside, number, 0)
        return np.where(inside, self.lo[at], np.nan), np.where(inside, self.hi[at], np.nan)

    def leaving(self, values):
        """Where rows leave.

        Parameters
        ----------
        values : ndarray of shape (n_members, n_samples)
            Partial sums, or margins.

        Returns
        -------
        position : ndarray of shape (n_samples,), dtype=int64
            Index of the last member evaluated.

        side : ndarray of shape (n_samples,), dtype=int8
            1 left above, -1 below, 0 never.
        """
        n_members, n_samples = values.shape
        position = np.full(n_samples, n_members - 1)
        side = np.zeros(n_samples, dtype=np.int8)
        if self.bins_per_unit == 0.0:
            from skroute.early_exit._kernels import leave_at

            leave_at(values, self.lo, self.hi, position, side)
            return position, side
        rows = np.arange(n_samples)
        for r in range(n_members - 1):
            value = values[r, rows]
            low, high = self.of_rows(r, value)
            up, down = value > high, value < low
            leave = up | down
            position[rows[leave]] = r
            side[rows[leave]] = np.where(up[leave], 1, -1)
            # An unseen bin is evaluated to the end.
            rows = rows[~leave & ~np.isnan(low)]
        return position, side
