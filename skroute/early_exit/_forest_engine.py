"""Members that are trees: the compiled walk."""

from functools import cached_property

import numpy as np

from skroute.early_exit._answers import Link
from skroute.forests._answers import in_parts
from skroute.forests._bitvector import bit_trees
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
        from skroute.forests._kernels import member_scores

        X = rows_of(self.forest, X)
        out = np.empty((self.n_members, len(X), self.n_outputs), dtype=np.float32)
        member_scores(read_only(X), self.forest.trees, out)
        return out

    def walk(self, X, thresholds, n_jobs=None, once=None):
        """Evaluate row by row until the thresholds stop it."""
        X, thresholds = read_only(rows_of(self.forest, X)), tuple(map(read_only, thresholds))
        n = len(X)
        score = np.empty((n, self.n_outputs))
        members = np.empty(n, dtype=np.int64)
        side = np.empty(n, dtype=np.int8)

        def part(start, stop):
            self._walk(X, start, stop, thresholds, score, members, side)

        in_parts(part, n, n_jobs)
        return score, members, side

    def _walk(self, X, start, stop, thresholds, *out):
        from skroute.early_exit._kernels import walk_rows

        if stop - start < _FEWEST_ROWS or not self._layouts:
            walk_rows(X, start, stop, self.forest.trees, read_only(self.offset), thresholds, *out)
            return
        from skroute.early_exit._bit_walks import walk_stage

        out[0][start:stop] = self.offset
        for begin in range(start, stop, _CHUNK):
            rows, first = np.arange(begin, min(begin + _CHUNK, stop)), 0
            n_rows = len(rows)
            for bits in self._layouts:
                if n_rows:
                    n_rows = walk_stage(X, rows, n_rows, first, bits, thresholds, *out)
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
