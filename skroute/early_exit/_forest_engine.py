"""Members that are trees: the compiled walk."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs

from skroute.early_exit._answers import Link
from skroute.forests._bitvector import bit_trees
from skroute.forests._rows import rows_of
from skroute.utils._validation import read_only

# Rows that the kernels walk together.
_BLOCK = 1024
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
        n_threads = 1 if n <= _BLOCK else min(effective_n_jobs(n_jobs), -(-n // _BLOCK))
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

    def _walk(self, X, start, stop, thresholds, *out):
        from skroute.early_exit._kernels import walk_rows

        stages = None if stop - start < _FEWEST_ROWS else self._stages()
        if stages is None:
            offset = read_only(self.offset)
            walk_rows(X, start, stop, self.forest.trees, offset, thresholds, *out)
            return
        for begin in range(start, stop, _CHUNK):
            self._walk_stages(X, np.arange(begin, min(begin + _CHUNK, stop)), thresholds, *out)

    def _walk_stages(self, X, rows, thresholds, score, members, side):
        from skroute.early_exit._bit_walks import walk_stage

        n_rows, first = len(rows), 0
        score[rows[0] : rows[-1] + 1] = self.offset
        for bits in self._stages():
            if not n_rows:
                break
            known = rows, n_rows, first, bits, thresholds
            n_rows = walk_stage(X, *known, score, members, side)
            first += len(bits.tests.member_start) - 1

    def _stages(self):
        """Bit vectors of the positions of each stage; None where the shape is not for them."""
        kept = self.__dict__.get("_layouts")
        if kept is None:
            ends = [end for end in _STAGE_ENDS if end < self.n_members] + [self.n_members]
            layouts = []
            for first, last in zip([0, *ends], ends):
                part = self.forest.taken(range(first, last))
                layouts.append(bit_trees(part.trees, self.forest.dtype))
            kept = self._layouts = layouts if all(part is not None for part in layouts) else ()
        return kept or None

    def __getstate__(self):
        # The second layout is made again where it is asked for.
        return {name: value for name, value in self.__dict__.items() if name != "_layouts"}

    def member_calls(self):
        """For each member a function of rows, to time it."""
        return {t: ForestEngine(self.forest.taken([t])).scores for t in range(self.n_members)}

    def plain(self, X):
        """Rows as the library surely takes them."""
        return X if self.forest.categories else rows_of(self.forest, X)
