"""Members that are trees: the compiled walk."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from skroute.early_exit._link import Link
from skroute.forests._rows import rows_of

# Rows that the kernels walk together.
_BLOCK = 1024


class ForestEngine:
    """Members are trees, or the trees of one boosting iteration.

    Parameters
    ----------
    forest : Forest
    """

    in_order = False

    def __init__(self, forest):
        self.forest = forest
        self.link = None if forest.link is None else Link(forest.link, forest.slope)
        self.offset = forest.offset
        self.beta = forest.beta
        self.rounding = forest.rounding
        self.n_members = forest.n_members
        self.n_outputs = forest.n_outputs
        self.weights = np.ones(forest.n_members)

    def taken(self, order):
        """The engine that evaluates these members in this order."""
        return ForestEngine(self.forest.taken(order))

    def scores(self, X):
        """What each member adds: ndarray (n_members, n_samples, n_outputs), float32."""
        from skroute.forests._kernels import member_scores

        X = rows_of(self.forest, X)
        out = np.empty((self.n_members, len(X), self.n_outputs), dtype=np.float32)
        member_scores(X, self.forest.trees, out)
        return out

    def walk(self, X, thresholds, n_jobs=None):
        """Evaluate row by row until the thresholds stop it; see :class:`Engine`."""
        X = rows_of(self.forest, X)
        n = len(X)
        score = np.empty((n, self.n_outputs))
        members = np.empty(n, dtype=np.int64)
        side = np.empty(n, dtype=np.int8)
        n_threads = min(effective_n_jobs(n_jobs), -(-n // _BLOCK))
        if n_threads == 1:
            self._walk(X, 0, n, thresholds, score, members, side)
            return score, members, side
        # More blocks than threads: early exit makes their times unequal.
        bounds = np.linspace(0, n, 4 * n_threads + 1).astype(int)
        with ThreadPoolExecutor(n_threads) as pool:
            jobs = [
                pool.submit(self._walk, X, start, stop, thresholds, score, members, side)
                for start, stop in zip(bounds, bounds[1:])
            ]
            for job in jobs:
                job.result()
        return score, members, side

    @property
    def _is_scalar(self):
        trees = self.forest.trees
        one_tree = trees.values.shape[1] == 1 and len(trees.roots) == self.n_members
        return self.n_outputs == 1 and one_tree

    def _walk(self, X, start, stop, thresholds, *out):
        from skroute.early_exit._kernels import walk_scalar, walk_vector

        walk = walk_scalar if self._is_scalar else walk_vector
        walk(X, start, stop, self.forest.trees, self.offset, thresholds, *out)

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: ForestEngine(self.forest.taken([t])).scores for t in range(self.n_members)}

    def plain(self, X):
        """Rows as the library surely takes them."""
        return X if self.forest.categories else rows_of(self.forest, X)

    def single_row(self, thresholds):
        """The short path for one row, None where there is none.

        Returns
        -------
        SingleRow or None
        """
        forest, trees = self.forest, self.forest.trees
        encodes = forest.categories and forest.encode_arrays
        if not self._is_scalar or thresholds.bins_per_unit > 0 or encodes:
            return None
        arguments = (
            trees.nodes,
            np.ascontiguousarray(trees.values[:, 0]),
            trees.roots,
            trees.special,
            trees.cat_words,
            trees.cat_start,
            float(forest.offset[0]),
            thresholds.lo,
            thresholds.hi,
        )
        return SingleRow(
            (1, forest.n_features),
            np.dtype(forest.dtype),
            forest.finite is False,
            arguments,
            forest.beta,
            self.rounding,
        )


class SingleRow(NamedTuple):
    """What one row as an array takes: a compiled walk, and nothing made on the way.

    Attributes
    ----------
    shape, dtype
        Of an array that needs no preparation.

    takes_all : bool
        Whether the source library takes values that are not finite.

    arguments : tuple
        What the kernel takes after the row.

    beta, rounding : float
        As of the engine.
    """

    shape: tuple
    dtype: np.dtype
    takes_all: bool
    arguments: tuple
    beta: float
    rounding: float

    def answer(self, X):
        """Whether the answer is the second class; None where this path cannot say."""
        if (
            type(X) is not np.ndarray
            or X.shape != self.shape
            or X.dtype != self.dtype
            or not X.flags.c_contiguous
            # A row that the library may refuse takes the long path, which says so.
            or not (self.takes_all or np.isfinite(X).all())
        ):
            return None
        score, _, side = _walk_one()(X, *self.arguments)
        if side:
            return side > 0
        distance = score - self.beta
        return None if abs(distance) <= self.rounding else distance > 0


@cache
def _walk_one() -> Any:
    from skroute.early_exit._kernels import walk_one

    return walk_one
