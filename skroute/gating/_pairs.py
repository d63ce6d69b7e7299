"""A cheap model and a gate before the full model, as arrays: linear, or boosted trees."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skroute.forests import Forest, leaf_sums
from skroute.gating._linear_columns import LinearColumns
from skroute.gating._objective import doubt


@dataclass
class LinearPair:
    """Linear cheap model f1 and gate g.

    Attributes
    ----------
    columns : LinearColumns
        What they read of the raw columns.
    coef : ndarray of shape (n_columns, n_outputs + 1)
        The gate's are the last.
    intercept : ndarray of shape (n_outputs + 1,)
    """

    columns: LinearColumns
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    reads_cheap = False
    simpler = None

    def __post_init__(self):
        self._cheap = np.flatnonzero(self.coef[:, :-1].any(axis=1))
        self._gate = np.flatnonzero(self.coef[:, -1])
        self.cheap_features = np.unique(self.columns.origin[self._cheap])
        self.gate_features = np.unique(self.columns.origin[self._gate])

    def cheap_scores(self, values):
        """Scores of f1, shape (n_rows, n_outputs)."""
        used = self._cheap
        return self.columns.expand(values, used) @ self.coef[used, :-1] + self.intercept[:-1]

    def gate_scores(self, values, scores):
        """Scores of the gate, shape (n_rows,)."""
        used = self._gate
        return self.columns.expand(values, used) @ self.coef[used, -1] + self.intercept[-1]

    def lowered(self, level):
        """The pair with its gate lowered by a constant."""
        intercept = self.intercept.copy()
        intercept[-1] -= level
        return replace(self, intercept=intercept)


@dataclass
class BoostedPair:
    """Boosted cheap model f1 and gate ``g(x) = a * doubt(f1(x)) + b + trees(x)``.

    Attributes
    ----------
    forest : Forest
        One output for each of f1, and one more for the gate's trees.
    base : ndarray of shape (n_outputs,)
        Scores of f1 before the first tree.
    doubt : ndarray of shape (2,)
        ``(a, b)``.
    by_trees : bool, default=True
        Whether the gate has trees of its own; else it is the doubt alone.
    """

    forest: Forest
    base: NDArray[np.float64]
    doubt: NDArray[np.float64]
    by_trees: bool = True
    reads_cheap = True

    def __post_init__(self):
        cheap = range(len(self.base))
        self.cheap_features = self.forest.features_of(cheap)
        # The gate reads f1's doubt, so it reads all that f1 reads.
        every = range(self.forest.n_outputs) if self.by_trees else cheap
        self.gate_features = self.forest.features_of(every if self.has_gate else [])

    @property
    def has_gate(self):
        """Whether there are trees for a gate."""
        return self.forest.n_outputs > len(self.base)

    def cheap_scores(self, values):
        """Scores of f1, shape (n_rows, n_outputs)."""
        return leaf_sums(self.forest, values, range(len(self.base))) + self.base

    def gate_scores(self, values, scores):
        """Scores of the gate, shape (n_rows,)."""
        slope, offset = self.doubt
        gate = slope * doubt(scores) + offset
        if self.by_trees:
            gate += leaf_sums(self.forest, values, [len(self.base)])[:, 0]
        return gate

    @property
    def simpler(self):
        """The pair whose gate is the doubt alone, for where this gate gains nothing."""
        if not self.has_gate or not self.by_trees:
            return None
        return replace(self, doubt=np.array([1.0, 0.0]), by_trees=False)

    def lowered(self, level):
        """The pair with its gate lowered by a constant."""
        return replace(self, doubt=self.doubt - np.array([0.0, level]))


def gate_of(pair: Any, values):
    """Scores of a pair's gate for complete rows."""
    return pair.gate_scores(values, pair.cheap_scores(values) if pair.reads_cheap else None)
