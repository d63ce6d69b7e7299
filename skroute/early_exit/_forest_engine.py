"""Members that are trees: the compiled walk. Imported on first use."""

from functools import cached_property

import numpy as np

from skroute.early_exit._answers import Link
from skroute.early_exit._kernels import walk_rows, walk_stage
from skroute.forests._answers import in_parts
from skroute.forests._bitvector import bit_trees
from skroute.forests._kernels import add_leaves
from skroute.forests._rows import rows_of
from skroute.utils._validation import read_only

# With fewer rows than this a walk from the root to a leaf is faster.
_FEWEST_ROWS = 512
# Positions at which a stage ends, and rows are binned anew: few leave later on.
_STAGE_ENDS = (10, 40, 160)
# Rows that pass through all stages together, so that they are still in the cache.
_CHUNK = 16384


class ForestEngine:
    """Members are trees, or the trees of one boosting iteration.

    Parameters
    ----------
    forest : Forest
    """

    in_order = False

    def __init__(self, forest):
        self.forest = forest
        self.link = None if forest.link is None else Link(forest.link, forest.slope, forest.shift)
        self.votes = forest.link == "mean"
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
        X, trees = rows_of(self.forest, X), tuple(self.forest.trees)
        out = np.zeros((self.n_members, len(X), self.n_outputs), dtype=np.float32)
        # Some rows at a time, which stay in the cache.
        for start in range(0, len(X), _FEWEST_ROWS):
            rows = start, min(start + _FEWEST_ROWS, len(X))
            for t, added in enumerate(out):
                add_leaves(X, *rows, trees, t, t + 1, np.arange(self.n_outputs), added)
        return out

    def walk(self, X, thresholds, n_jobs=None, once=None):
        """Evaluate row by row until the thresholds stop it."""
        X = rows_of(self.forest, X)
        n = len(X)
        out = np.empty((n, self.n_outputs)), np.empty(n, np.int64), np.empty(n, np.int64)
        in_parts(lambda start, stop: self._walk(X, start, stop, thresholds, out), n, n_jobs)
        return out

    def _walk(self, X, start, stop, thresholds, out):
        forest, rules = self.forest, (tuple(map(read_only, thresholds)), self.forest.beta)
        if stop - start < _FEWEST_ROWS or not self._layouts:
            walk_rows(X, start, stop, tuple(forest.trees), forest.offset, *rules, *out)
            return
        out[0][start:stop] = forest.offset
        for begin in range(start, stop, _CHUNK):
            rows, first = np.arange(begin, min(begin + _CHUNK, stop)), 0
            n_rows = len(rows)
            for bits in self._layouts:
                if n_rows:
                    n_rows = walk_stage(X, rows, n_rows, first, bits, *rules, *out)
                first += len(bits.tests.member_start) - 1

    @cached_property
    def _layouts(self):
        """Bit vectors of the positions of each stage; None where the shape is not for them."""
        ends = [end for end in _STAGE_ENDS if end < self.n_members] + [self.n_members]
        parts = [self.forest.taken(range(first, last)) for first, last in zip([0, *ends], ends)]
        stages = [bit_trees(part.trees, self.forest.dtype) for part in parts]
        return None if any(bits is None for bits in stages) else stages

    def __getstate__(self):
        # The second layout is made again where it is asked for.
        return {name: value for name, value in self.__dict__.items() if name != "_layouts"}

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: ForestEngine(self.forest.taken([t])).scores for t in range(self.n_members)}
