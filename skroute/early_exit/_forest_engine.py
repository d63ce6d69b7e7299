"""Members that are trees: the compiled walk. Imported on first use."""

from functools import cached_property

import numpy as np

from skroute.early_exit._answers import Link
from skroute.early_exit._kernels import walk_rows, walk_stage
from skroute.forests._answers import in_parts
from skroute.forests._bitvector import bit_trees
from skroute.forests._kernels import add_leaves
from skroute.forests._rows import rows_of

# With fewer rows than this a walk from the root to a leaf is faster.
_FEWEST_ROWS = 512
# Positions at which a stage ends, and rows are binned anew: few leave later on.
_STAGE_ENDS = (10, 40, 160)
# Rows that are scored together, and that pass through all stages together: they stay in the cache.
_BLOCK, _CHUNK = 1024, 16384


class ForestEngine:
    """Members are trees, or the trees of one boosting iteration.

    Parameters
    ----------
    forest : Forest
    """

    in_order = False

    def __init__(self, forest):
        self.forest = forest
        rule = forest.partial_rule
        self.link = None if rule.link is None else Link(rule.link, rule.slope, rule.shift)
        self.votes = rule.link == "mean"
        self.offset = forest.offset
        self.beta = rule.beta
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
        column = np.arange(self.n_outputs)
        for start in range(0, len(X), _BLOCK):
            rows = start, min(start + _BLOCK, len(X))
            for t, added in enumerate(out):
                add_leaves(X, *rows, trees, t, t + 1, column, added)
        return out

    def walk(self, X, thresholds, n_jobs=None, once=None):
        """Evaluate row by row until the thresholds, of :func:`checked`, stop it."""
        forest, X = self.forest, rows_of(self.forest, X)
        n, beta = len(X), self.beta
        out = np.empty((n, self.n_outputs)), np.empty(n, np.int64), np.empty(n, np.int64)

        def part(start, stop):
            if stop - start < _FEWEST_ROWS or not self._layouts:
                trees, offset = tuple(forest.trees), forest.offset
                walk_rows(X, start, stop, trees, offset, thresholds, beta, *out)
                return
            out[0][start:stop] = forest.offset
            for begin in range(start, stop, _CHUNK):
                rows, first = np.arange(begin, min(begin + _CHUNK, stop)), 0
                n_rows = len(rows)
                for bits in self._layouts:
                    if n_rows:
                        n_rows = walk_stage(X, rows, n_rows, first, bits, thresholds, beta, *out)
                    first += len(bits.member_start) - 1

        in_parts(part, n, n_jobs)
        return out

    @cached_property
    def _layouts(self):
        """Bit vectors of the positions of each stage; None where the shape is not for them."""
        ends = [end for end in _STAGE_ENDS if end < self.n_members] + [self.n_members]
        parts = [self.forest.taken(range(first, last)) for first, last in zip([0, *ends], ends)]
        stages = [bit_trees(part.trees, self.forest.read_rule.dtype) for part in parts]
        return None if any(bits is None for bits in stages) else stages

    def __getstate__(self):
        # The second layout is made again where it is asked for.
        return {name: value for name, value in self.__dict__.items() if name != "_layouts"}

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: ForestEngine(self.forest.taken([t])).scores for t in range(self.n_members)}
