"""What a gate would have gained and spent on the rows that set its level, out of sample."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.gating._levels import Ranks
from skroute.gating._objective import log_probabilities


class ValidatedRows(NamedTuple):
    """Held-out rows, each decided by what the other half of them says.

    Attributes
    ----------
    rank : ndarray of shape (n_rows,)
        Share of rows sent from which on a row is one of them.
    wanted : ndarray of shape (n_rows,), dtype=bool
        Whether the gate sends it where the budget allows it.
    cheap_right, full_right : ndarray of shape (n_rows,)
        1 where the model answers correctly, out of sample.
    weight : ndarray of shape (n_rows,)
    """

    rank: NDArray[np.float64]
    wanted: NDArray[np.bool_]
    cheap_right: NDArray[np.float64]
    full_right: NDArray[np.float64]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, level, gate, keys, rows, scores):
        """From held-out rows.

        Parameters
        ----------
        level : callable
            From positions of rows to the level that they set.
        gate : ndarray of shape (n_rows,)
        keys : ndarray of shape (n_rows,), dtype=uint64
        rows : Rows
        scores : ndarray of shape (n_rows, n_outputs)
            Of the cheap model.
        """
        n = len(gate)
        rank, wanted = np.zeros(n), np.zeros(n, dtype=bool)
        for own, other in ((np.arange(0, n, 2), np.arange(1, n, 2)),) * (n > 1):
            for judged, by in ((own, other), (other, own)):
                if rows.weight[by].any():
                    ranks = Ranks.of(gate[by], rows.weight[by])
                    rank[judged] = ranks.of_rows(gate[judged], keys[judged])
                    wanted[judged] = gate[judged] > level(by)
        right = (log_probabilities(scores).argmax(axis=1) == rows.y).astype(np.float64)
        return cls(rank, wanted, right, rows.full_right, rows.weight)


class Tried(NamedTuple):
    """A pair's gate on the held-out rows.

    Attributes
    ----------
    pair : LinearPair or BoostedPair
    gate : ndarray of shape (n_rows,)
    level, worth : callable
        From positions of rows to the level that they set, and to what they gain by the gate.
    validated : ValidatedRows
    """

    pair: Any
    gate: NDArray[np.float64]
    level: Callable
    worth: Callable
    validated: ValidatedRows


def best_of(tried, rows):
    """The gate that some rows gain most by; the first of equal ones."""
    return tried[0] if len(tried) == 1 else max(tried, key=lambda own: own.worth(rows))


def by_halves(tried):
    """Held-out rows, each half decided by the gate that the other half chooses."""
    found = tried[0].validated
    n = len(found.rank)
    if len(tried) == 1 or n < 2:
        return found
    for judged, by in ((0, 1), (1, 0)):
        other = best_of(tried, np.arange(by, n, 2)).validated
        found.rank[judged::2] = other.rank[judged::2]
        found.wanted[judged::2] = other.wanted[judged::2]
    return found


class ValidatedGate:
    """Validation figures of a fitted gate at its budget."""

    def _on_held_out(self):
        """Quality and cost of each held-out row at the budget, and weights."""
        found = self._validated
        if found is None:
            raise AttributeError(
                f"{type(self).__name__} holds no rows out where p_full=0, and has no validation "
                "figures. Use cross_val_score."
            )
        sent = found.wanted & (found.rank < self._share(self._effective_budget(None)))
        if self.cuts_ is None:
            sent = np.zeros(len(sent), dtype=bool)
        cost = np.where(sent, self.cost_table_["full"], self.cost_table_["cheap"])
        return np.where(sent, found.full_right, found.cheap_right), cost, found.weight

    @property
    def validation_quality_(self):
        """Share of the held-out rows answered correctly at `budget`, by online decisions.

        Each half of these rows is decided at the level and the threshold that the other half
        sets; answers of the full model are out of sample.
        """
        quality, _, weight = self._on_held_out()
        return float(np.average(quality, weights=weight))

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        quality, _, weight = self._on_held_out()
        return standard_error(quality, weight)

    @property
    def validation_cost_(self):
        """Mean cost of the held-out rows at `budget`, decided as in `validation_quality_`."""
        _, cost, weight = self._on_held_out()
        return float(np.average(cost, weights=weight))

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows.

        The threshold of a budget comes from as many rows: what new rows cost on average differs
        from the budget by about as much, from fit to fit. More rows in the first test sets
        of `cv` lower it.
        """
        _, cost, weight = self._on_held_out()
        return standard_error(cost, weight)


def standard_error(values, weight):
    """Standard error of a weighted mean of independent rows."""
    mean, n = np.average(values, weights=weight), max(int((weight > 0).sum()), 2)
    spread = np.sqrt(np.sum((weight * (values - mean)) ** 2)) / weight.sum()
    return float(spread * np.sqrt(n / (n - 1)))


def warn_of_nobody(found, budget, cost):
    """Say that a budget is left over, since on held-out rows nothing was to be had for it."""
    rights = found.cheap_right, found.full_right
    cheap, full = (np.average(right, weights=found.weight) for right in rights)
    warnings.warn(
        f"budget={budget!r} is left over: the cheap model answers every row, at a cost of "
        f"{cost:.6g}. It is right in {cheap:.3g} of the held-out rows and the full model in "
        f"{full:.3g}, and no part of them that the gate could send would gain. A larger gamma "
        "makes the cheap model cheaper; a better estimator would be asked.",
        UserWarning,
        stacklevel=2,
    )
