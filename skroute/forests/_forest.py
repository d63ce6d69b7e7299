"""A forest (trees with the rules of their library) and its builder."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skroute.forests._bitvector import bit_trees
from skroute.forests._code_walk import coded_trees
from skroute.forests._rules import AnswerRule, PartialRule, ReadRule, SumRule
from skroute.forests._trees import CATEGORICAL, FEATURE_MASK, Trees, TreeTable, laid_out
from skroute.utils._validation import read_only

# Default rules: a library that reads rows without conversions, and answers with sums.
_PLAIN_READING = ReadRule()
_PLAIN_SUMS = SumRule()
_SUMS_AS_ANSWERS = AnswerRule()
# Names of the cached properties. They are not pickled, but computed again.
_CACHED = ("plain", "bits", "coded", "code_columns")
# A whole multiple of 1 / `_EXACT_UNITS` has 20 bits after the binary point. Sums of
# such numbers below `_LARGEST_EXACT_SUM` have 30 bits before the binary point. They are
# exact in double precision, which has 53 bits.
_EXACT_UNITS = 2**20
# Upper bound of the sums of whole multiples of 1 / `_EXACT_UNITS` that are exact.
_LARGEST_EXACT_SUM = 2**30
# Bound on the rounding error of a sum, in units in the last place of the largest sum. A
# bound that is too large only takes time: early exit asks the library about more rows.
_ROUNDINGS_OF_SUM = 16


@dataclass(frozen=True)
class Forest:
    """An additive ensemble of trees with the rules of its library.

    :class:`ForestBuilder` makes a forest from the arrays of trees.

    Parameters
    ----------
    trees : Trees
        The arrays, read-only.

    offset : ndarray of shape (n_outputs,), dtype=float64
        Score before any member, read-only.

    n_features : int
        Number of columns of a row.

    classes : ndarray, default=None
        Labels. None for an ensemble that does not classify, or does not store them.

    read_rule : ReadRule, optional
        The way in which the library reads rows.

    sum_rule : SumRule, optional
        The way in which the library adds up the leaves of a row.

    answer_rule : AnswerRule, optional
        The way in which the library makes answers of the sums.

    partial_rule : PartialRule, optional
        The meaning of partial sums for early exit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import read_forest
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(7, random_state=0).fit(X, y)
    >>> forest, classes = read_forest(model)
    >>> forest.n_members, forest.n_outputs, classes
    (7, 3, array([0, 1, 2]))
    """

    trees: Trees
    offset: np.ndarray
    n_features: int
    classes: np.ndarray | None = None
    read_rule: ReadRule = _PLAIN_READING
    sum_rule: SumRule = _PLAIN_SUMS
    answer_rule: AnswerRule = _SUMS_AS_ANSWERS
    partial_rule: PartialRule = PartialRule()

    def __setstate__(self, state):
        # Files can be damaged, and compiled code trusts these arrays.
        trees = state["trees"]
        offset = state["offset"]
        if offset.ndim != 1:
            raise ValueError(
                "The arrays of the forest are damaged: offset has no one dimension."
            )
        trees.check(state["n_features"], len(offset))
        # Arrays from a file are writable, and kernels are compiled for read-only ones.
        arrays = {"trees": trees.read_only(), "offset": read_only(offset)}
        self.__dict__.update(state | arrays)

    def __getstate__(self):
        return {
            name: value for name, value in self.__dict__.items() if name not in _CACHED
        }

    @property
    def rounding(self):
        """Bound on the rounding error of a score, as early exit adds it up.

        The library adds up in another order or precision than early exit does. If a
        score is nearer to a tie than this bound, the library and early exit may answer
        differently. The bound is `PartialRule.least_rounding` if all sums are exact.
        Otherwise it is at least this number.
        """
        least = self.partial_rule.least_rounding
        trees = self.trees
        # The largest absolute value of each node, (n_nodes,), and of each tree,
        # (n_trees,). Inner nodes have the value 0.
        largest_of_node = np.abs(trees.values).max(axis=1)
        largest_of_tree = np.maximum.reduceat(largest_of_node, trees.roots)
        largest_sum = float(
            np.abs(self.offset).max() + abs(self.sum_rule.scale) * largest_of_tree.sum()
        )
        if self.sum_rule.dtype == "float64" and largest_sum < _LARGEST_EXACT_SUM:
            in_units = np.append(self.offset, trees.values) * _EXACT_UNITS
            # Sums of whole multiples of 1 / `_EXACT_UNITS` are exact in any order.
            if np.array_equal(in_units, np.rint(in_units)):
                return least
        precision = np.finfo(self.sum_rule.dtype).eps
        # 1 more than the largest sum, so that the bound is never 0.
        return max(least, float(_ROUNDINGS_OF_SUM * precision * (largest_sum + 1.0)))

    @cached_property
    def code_columns(self):
        """Features that some node reads as a category."""
        feature = self.trees.nodes["feature"]
        is_categorical = (feature & CATEGORICAL) != 0
        return np.unique(feature[is_categorical] & FEATURE_MASK)

    @cached_property
    def plain(self):
        """The trees as a plain tuple, for the walk from roots to leaves."""
        return tuple(self.trees)

    @cached_property
    def bits(self):
        """The trees as bit vectors. None if they do not fit that layout."""
        return bit_trees(self.trees, self.read_rule.dtype)

    @cached_property
    def coded(self):
        """The trees for binned rows. None if they do not fit that layout."""
        return coded_trees(self.trees, self.read_rule.dtype)

    @property
    def n_members(self):
        """Number of members (boosting iterations, or trees of a bagged forest)."""
        return len(self.trees.member_start) - 1

    @property
    def n_outputs(self):
        """Number of scores per row: 1 for two classes, else the number of classes."""
        return len(self.offset)

    def taken(self, order):
        """Return a forest of only the members listed in `order`, in this order.

        Parameters
        ----------
        order : sequence of int
            Members in their new order. ``range(k)`` are the first `k`.

        Returns
        -------
        Forest
            It has these members alone.
        """
        return replace(self, trees=self.trees.taken(order))

    def with_cut(self, cut):
        """Return this forest with the decision threshold `cut`, a `Cut` or None.

        Parameters
        ----------
        cut : Cut or None
            None for the library's own threshold.

        Returns
        -------
        Forest
            It shares its trees with this one.
        """
        return replace(self, answer_rule=replace(self.answer_rule, cut=cut))

    def features_of(self, outputs):
        """Return the sorted features that the trees of some outputs split on.

        Parameters
        ----------
        outputs : sequence of int
            Indices of the outputs. Trees with a value for each output do not count,
            unless `ALL_OUTPUTS` (-1) is among them.

        Returns
        -------
        ndarray of int
            Positions of the features, rising.
        """
        trees = self.trees
        output_of_node = np.repeat(trees.outputs, trees.tree_sizes)
        is_split = ~trees.is_leaf & np.isin(output_of_node, outputs)
        features = trees.nodes["feature"][is_split] & FEATURE_MASK
        return np.unique(features).astype(np.intp)


class _TreeArrays(NamedTuple):
    """The nodes of one tree, as :meth:`ForestBuilder.add_tree` gets them."""

    left: Any
    right: Any
    feature: Any
    threshold: Any
    flags: Any
    value: Any


class ForestBuilder:
    """Builder of a forest, which collects trees as parallel arrays of nodes.

    Examples
    --------
    One tree that compares feature 0 with 0.5.

    >>> import numpy as np
    >>> from skroute.forests import ForestBuilder, leaf_sums
    >>> builder = ForestBuilder()
    >>> builder.add_tree(
    ...     left=np.array([1, -1, -1]),
    ...     right=np.array([2, -1, -1]),
    ...     feature=np.array([0, 0, 0]),
    ...     threshold=np.array([0.5, 0, 0]),
    ...     value=np.array([[0.0], [10.0], [20.0]]),
    ...     flags=np.array([0, 0, 0]),
    ... )
    >>> builder.end_member()
    >>> forest = builder.build(offset=np.zeros(1), n_features=1)
    >>> leaf_sums(forest, np.array([[0.2], [0.7]])).ravel()
    array([10., 20.])
    """

    def __init__(self):
        # The trees and their outputs, in the order in which they are added.
        self._trees = []
        self._outputs = []
        # The first tree of each member and, at the end, of the one that is being built.
        self._member_start = [0]
        # The words of all bit sets, one set after the other.
        self._cat_words = []
        # The first word of each bit set and, at the end, the number of words.
        self._cat_start = [0]

    def add_set(self, words):
        """Store a bit set of categories, and return its number.

        Parameters
        ----------
        words : sequence of int
            Words of 32 bits. Category `c` has bit ``c % 32`` of word ``c // 32``.

        Returns
        -------
        int
            The threshold of the nodes that test this set.
        """
        self._cat_words.extend(words)
        # The start of the next set, which is the end of this one.
        self._cat_start.append(len(self._cat_words))
        # `_cat_start` has one entry more than there are sets. Sets are numbered from 0.
        return len(self._cat_start) - 2

    def add_tree(self, left, right, feature, threshold, value, flags, output=0):
        """Append one tree to the member that is being built.

        Parameters
        ----------
        left, right : ndarray of shape (n,), dtype=int
            Children of each node, negative at leaves. Node 0 is the root.

        feature, threshold : ndarray of shape (n,)
            The split. A categorical node has the number of its set as the threshold.

        value : ndarray of shape (n, width)
            Values that leaves add.

        flags : ndarray of shape (n,)
            Sums of `MISSING_RIGHT`, `CATEGORICAL` and `ZERO_MISSING`.

        output : int, default=0
            Output that the leaves add to, -1 if they have one value for each.
        """
        tree = _TreeArrays(
            left=left,
            right=right,
            feature=feature,
            threshold=threshold,
            flags=flags,
            value=value,
        )
        self._trees.append(tree)
        self._outputs.append(output)

    def end_member(self):
        """End the member: trees that are added later belong to the next one."""
        self._member_start.append(len(self._trees))

    def build(
        self,
        offset,
        n_features,
        *,
        classes=None,
        read_rule=_PLAIN_READING,
        sum_rule=_PLAIN_SUMS,
        answer_rule=_SUMS_AS_ANSWERS,
    ):
        """Return the forest of all trees added.

        Parameters
        ----------
        offset : array-like of shape (n_outputs,)
            Score before any member.

        n_features : int
            Number of columns of a row.

        classes : ndarray, default=None
            Labels. None for an ensemble that does not classify, or does not store them.

        read_rule : ReadRule, optional
            The way in which the library reads rows.

        sum_rule : SumRule, optional
            The way in which the library adds up the leaves of a row.

        answer_rule : AnswerRule, optional
            The way in which the library makes answers of the sums.

        Returns
        -------
        Forest
        """
        offset = np.atleast_1d(np.asarray(offset, dtype=np.float64))
        return Forest(
            trees=laid_out(self._table()),
            offset=read_only(offset),
            n_features=n_features,
            classes=classes,
            read_rule=read_rule,
            sum_rule=sum_rule,
            answer_rule=answer_rule,
        )

    def _table(self):
        """Return all trees as one `TreeTable`.

        One table of all trees is laid out at once. Many small trees, one by one, would
        take longer than their fit.
        """
        sizes = np.array([len(tree.left) for tree in self._trees])
        roots = np.cumsum(sizes) - sizes
        root_of_node = np.repeat(roots, sizes)
        left = self._joined("left")
        return TreeTable(
            # -1 marks leaves, whose `right` is ignored.
            left=np.where(left < 0, -1, left + root_of_node),
            right=self._joined("right") + root_of_node,
            feature=self._joined("feature"),
            threshold=self._joined("threshold"),
            flags=self._joined("flags"),
            value=self._joined("value"),
            roots=roots,
            outputs=self._outputs,
            member_start=self._member_start,
            cat_words=self._cat_words,
            cat_start=self._cat_start,
        )

    def _joined(self, name):
        """Return one array of a field of `_TreeArrays`, tree after tree."""
        return np.concatenate([getattr(tree, name) for tree in self._trees])
