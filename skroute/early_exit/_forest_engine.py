"""The engine of trees: the compiled walk. Imported on first use."""

from functools import cached_property, partial

import numpy as np

from skroute.early_exit._engine import Engine, Link, Walk
from skroute.early_exit._kernels import walk_rows, walk_stage
from skroute.forests._answers import in_parts, labels_at
from skroute.forests._bitvector import bit_trees
from skroute.forests._kernels import add_leaves
from skroute.forests._rows import are_plain, rows_of
from skroute.utils._cache import NO_CACHE

# With fewer rows than this, a walk from the roots of the trees to their leaves is
# faster than bit vectors (measured).
_FEWEST_ROWS = 512
# Numbers of members after which a stage ends, and the rows that go on are binned again.
# Stages become longer because fewer and fewer rows stop.
_STAGE_ENDS = (10, 40, 160)
# Number of rows that are scored together. They stay in the cache of the processor.
_BLOCK = 1024
# Number of rows that pass through all stages before the next rows. Their scores stay in
# the cache of the processor.
_CHUNK = 16384


class ForestEngine(Engine):
    """The engine whose members are trees, or the trees of one boosting iteration.

    Parameters
    ----------
    forest : Forest
        The view of :func:`~skroute.forests._partial_sums.partial_sums`.
    """

    def __init__(self, forest):
        self.forest = forest
        # Attributes that each call reads are computed once. A row takes a few
        # microseconds.
        self._n_members = forest.n_members
        self._n_outputs = forest.n_outputs
        self._rounding = forest.rounding
        self._weights = np.ones(forest.n_members)
        self._offset = forest.offset
        rule = forest.partial_rule
        self._beta = rule.beta
        self._link = None
        if rule.link is not None:
            self._link = Link(rule.link, rule.slope, rule.shift)

    @property
    def n_members(self):
        return self._n_members

    @property
    def n_outputs(self):
        return self._n_outputs

    @property
    def offset(self):
        return self._offset

    @property
    def beta(self):
        return self._beta

    @property
    def rounding(self):
        return self._rounding

    @property
    def weights(self):
        return self._weights

    @property
    def link(self):
        return self._link

    @property
    def averages_members(self):
        return self.forest.partial_rule.link == "mean"

    @property
    def accepts_unseen_categories(self):
        return not self.forest.read_rule.columns.refuses_unseen

    def reads_unchecked(self, X):
        return are_plain(self.forest, X)

    def as_forest(self):
        return self.forest

    def reordered(self, order):
        return ForestEngine(self.forest.taken(order))

    def member_scores(self, X):
        """Return what each member adds to each row: `Engine.member_scores`."""
        X = rows_of(self.forest, X)
        scores = np.zeros((self.n_members, len(X), self.n_outputs), dtype=np.float32)
        # Each output has its own column of the scores.
        column_of_output = np.arange(self.n_outputs)
        for start in range(0, len(X), _BLOCK):
            stop = min(start + _BLOCK, len(X))
            for member in range(self.n_members):
                # The scores of member `member` are added to a view of `scores`.
                add_leaves(
                    X,
                    start,
                    stop,
                    self._trees,
                    member,
                    member + 1,
                    column_of_output,
                    scores[member],
                )
        return scores

    def walk(self, X, thresholds, n_jobs=None, cache=NO_CACHE):
        """Evaluate each row until the thresholds stop it, as in :meth:`Engine.walk`."""
        X = rows_of(self.forest, X)
        n_rows = len(X)
        scores = np.empty((n_rows, self._n_outputs))
        n_evaluated = np.empty(n_rows, np.int64)
        answers = np.empty(n_rows, np.int64)
        walk = Walk(scores, n_evaluated, answers)
        # `_walk_part` writes the results of its rows into the arrays of `walk`.
        if n_rows < _FEWEST_ROWS:
            # Few rows are not divided among threads. For one row, the division would
            # take a notable part of the time.
            self._walk_part(X, thresholds, walk, 0, n_rows)
        else:
            in_parts(partial(self._walk_part, X, thresholds, walk), n_rows, n_jobs)
        return walk

    def _walk_part(self, X, thresholds, walk, start, stop):
        """Walk the rows ``start:stop`` and write their results into `walk`.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        thresholds : ndarray of shape (2, n_members)
        walk : Walk
            Changed.

        start, stop : int
        """
        # `_layouts` is None if a tree does not fit into bit vectors.
        if stop - start < _FEWEST_ROWS or not self._layouts:
            walk_rows(
                X,
                start,
                stop,
                self._trees,
                self._offset,
                thresholds,
                self._beta,
                *walk,
            )
            return
        # The stages add the leaves of their trees to these scores.
        walk.scores[start:stop] = self._offset
        for first_row in range(start, stop, _CHUNK):
            rows = np.arange(first_row, min(first_row + _CHUNK, stop))
            # Each stage moves the rows that have not stopped to the front of `rows`.
            n_undecided = len(rows)
            # Position of the stage's first member.
            position = 0
            for bits in self._layouts:
                if n_undecided == 0:
                    break
                n_undecided = walk_stage(
                    X, rows, n_undecided, position, bits, thresholds, self._beta, *walk
                )
                n_stage_members = len(bits.member_start) - 1
                position += n_stage_members

    @cached_property
    def _trees(self):
        """The arrays of the trees, as the kernels take them."""
        return tuple(self.forest.trees)

    @cached_property
    def _layouts(self):
        """Trees of each stage as bit vectors. A stage is a range of members.

        A list of `BitTrees`, or None if a tree does not fit into bit vectors.
        """
        # Number of members up to the end of each stage.
        ends = [end for end in _STAGE_ENDS if end < self.n_members]
        ends.append(self.n_members)
        layouts = []
        first_member = 0
        for end in ends:
            stage = self.forest.taken(range(first_member, end))
            bits = bit_trees(stage.trees, self.forest.read_rule.dtype)
            if bits is None:
                return None
            layouts.append(bits)
            first_member = end
        return layouts

    def __getstate__(self):
        # Arrays that are computed from the forest are not pickled, but computed again
        # when they are needed.
        state = self.__dict__.copy()
        state.pop("_trees", None)
        state.pop("_layouts", None)
        return state

    def timed_calls(self):
        calls = {}
        for member in range(self.n_members):
            forest_of_member = self.forest.taken([member])
            calls[member] = ForestEngine(forest_of_member).member_scores
        return calls

    def labels(self, classes, answers):
        return labels_at(self.forest, classes, answers)

    def rows_for_library(self, X):
        # A library that encodes categories by itself reads the caller's rows.
        if self.forest.read_rule.columns.keeps_categories:
            return X
        return rows_of(self.forest, X)
