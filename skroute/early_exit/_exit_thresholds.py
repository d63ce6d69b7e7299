"""Thresholds in the form that the walks take, and where rows leave under them."""

from typing import Any, NamedTuple

import numpy as np


class ExitThresholds(NamedTuple):
    """When rows leave: a lower and an upper threshold for each position.

    Attributes
    ----------
    lo, hi : ndarray of shape (n_members,), dtype=float64
        A row leaves below or above.
    """

    lo: Any
    hi: Any

    @classmethod
    def never(cls, n_members):
        """No row leaves early."""
        return cls(np.full(n_members, -np.inf), np.full(n_members, np.inf))

    def checked(self, n_members):
        """These thresholds, if there is a pair for each position: files can be damaged."""
        if any(part.dtype != np.float64 or part.shape != (n_members,) for part in self):
            raise ValueError(f"The thresholds of {n_members} members are damaged.")
        return self

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
        from skroute.early_exit._kernels import leave_at

        n_members, n_samples = values.shape
        position = np.full(n_samples, n_members - 1)
        side = np.zeros(n_samples, dtype=np.int8)
        leave_at(values, self.lo, self.hi, position, side)
        return position, side
