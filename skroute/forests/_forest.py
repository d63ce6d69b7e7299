"""A forest: its trees, its library's rules for reading rows and for answers, and its builder."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skroute.forests._bitvector import bit_trees
from skroute.forests._code_walk import coded_trees
from skroute.forests._rules import AnswerRule, PartialRule, ReadRule, SumRule
from skroute.forests._trees import CATEGORICAL, FEATURE_MASK, Trees, TreeTable, laid_out
from skroute.utils._validation import read_only

# Rules of a library without conversions, which answers with sums.
_PLAIN_READING = ReadRule()
_PLAIN_SUMS = SumRule()
_SUMS_AS_ANSWERS = AnswerRule()
# Cached properties: they are computed again after a pickle is loaded.
_CACHED = ("plain", "bits", "coded", "code_columns")


@dataclass(frozen=True)
class Forest:
    """An additive ensemble of trees, with its library's rules for reading rows and for answers.

    :class:`ForestBuilder` makes one of the arrays of trees.

    Parameters
    ----------
    trees : Trees
        The arrays, read-only.

    offset : ndarray of shape (n_outputs,), dtype=float64
        Score before any member, read-only.

    n_features : int
        Number of columns of a row.

    classes : ndarray, default=None
        Labels. None for an ensemble that does not classify, or does not know its labels.

    read_rule : ReadRule, optional
        How the library reads rows.

    sum_rule : SumRule, optional
        How the library adds up the leaves of a row.

    answer_rule : AnswerRule, optional
        How the library makes probabilities, labels and numbers of the sums.

    partial_rule : PartialRule, optional
        How early exit reads partial sums.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import read_forest
    >>> model = RandomForestClassifier(7, random_state=0).fit(*load_iris(return_X_y=True))
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
        # Arrays from a file can be written to.
        arrays = {"trees": trees.read_only(), "offset": read_only(offset)}
        self.__dict__.update(state | arrays)

    @property
    def rounding(self):
        """Distance to a tie within which the library may answer otherwise, adding up in its way."""
        least = self.partial_rule.least_rounding
        trees = self.trees
        largest = np.maximum.reduceat(np.abs(trees.values).max(axis=1), trees.roots)
        size = float(
            np.abs(self.offset).max() + abs(self.sum_rule.scale) * largest.sum()
        )
        if self.sum_rule.dtype == "float64" and size < 2**30:
            whole = np.append(self.offset, trees.values) * 2**20
            # Sums of these are exact in any order.
            if np.array_equal(whole, np.rint(whole)):
                return least
        return max(least, float(16 * np.finfo(self.sum_rule.dtype).eps * (size + 1.0)))

    @cached_property
    def code_columns(self):
        """Features that some node reads as a category."""
        feature = self.trees.nodes["feature"]
        return np.unique(feature[(feature & CATEGORICAL) != 0] & FEATURE_MASK)

    @cached_property
    def plain(self):
        """The trees as a plain tuple, which kernels take."""
        return tuple(self.trees)

    @cached_property
    def bits(self):
        """The trees as bit vectors; None where their shape is not for them."""
        return bit_trees(self.trees, self.read_rule.dtype)

    @cached_property
    def coded(self):
        """The trees as nodes that compare codes; None for categories and beyond what codes say."""
        return coded_trees(self.trees, self.read_rule.dtype)

    def __getstate__(self):
        return {
            name: value for name, value in self.__dict__.items() if name not in _CACHED
        }

    @property
    def n_members(self):
        """Number of members (boosting iterations, or trees of a bagged forest)."""
        return len(self.trees.member_start) - 1

    @property
    def n_outputs(self):
        """Number of scores per row: 1 for two classes, else the number of classes."""
        return len(self.offset)

    def taken(self, order):
        """Return the forest of some members, in an order.

        Parameters
        ----------
        order : sequence of int
            Members; all of them for another order, ``range(k)`` for the first `k`.

        Returns
        -------
        Forest
        """
        return replace(self, trees=self.trees.taken(order))

    def with_cut(self, cut):
        """Return the forest whose answer changes at a moved threshold.

        Parameters
        ----------
        cut : Cut or None
            None for the library's own threshold.

        Returns
        -------
        Forest
        """
        return replace(self, answer_rule=replace(self.answer_rule, cut=cut))

    def features_of(self, outputs):
        """Return the sorted features that the trees of some outputs split on.

        Parameters
        ----------
        outputs : sequence of int

        Returns
        -------
        ndarray of int
        """
        trees = self.trees
        of_node = np.repeat(
            trees.outputs, np.diff(trees.roots, append=len(trees.nodes))
        )
        inner = trees.nodes["child"] != np.arange(len(trees.nodes))
        split = trees.nodes["feature"][inner & np.isin(of_node, outputs)] & FEATURE_MASK
        return np.unique(split).astype(np.intp)


class ForestBuilder:
    """Collects trees, given as parallel arrays, and stores them in breadth-first order.

    Examples
    --------
    One tree that asks whether feature 0 is at most 0.5.

    >>> import numpy as np
    >>> from skroute.forests import ForestBuilder, leaf_sums
    >>> builder = ForestBuilder()
    >>> leaf = np.array([0, 0, 0])
    >>> builder.add_tree(
    ...     np.array([1, -1, -1]), np.array([2, -1, -1]), leaf, np.array([0.5, 0, 0]),
    ...     np.array([[0.0], [10.0], [20.0]]), leaf,
    ... )
    >>> builder.end_member()
    >>> forest = builder.build(offset=np.zeros(1), n_features=1)
    >>> leaf_sums(forest, np.array([[0.2], [0.7]])).ravel()
    array([10., 20.])
    """

    def __init__(self):
        self._trees = []
        self._outputs = []
        self._member_start = [0]
        self._cat_words = []
        self._cat_start = [0]

    def add_set(self, words):
        """Store a bit set of categories and return its number."""
        self._cat_words.extend(words)
        self._cat_start.append(len(self._cat_words))
        return len(self._cat_start) - 2

    def add_tree(self, left, right, feature, threshold, value, flags, output=0):
        """Append one tree to the member that is being built.

        Parameters
        ----------
        left, right : ndarray of shape (n,), dtype=int
            Children, negative at leaves; node 0 is the root.

        feature, threshold, flags : ndarray of shape (n,)
            The split; `flags` holds the upper bits of ``NODE["feature"]``.

        value : ndarray of shape (n, width)
            What a leaf adds.

        output : int, default=0
            Output that a leaf adds to, -1 when it has one value for each.
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
        """Close the member: trees added from here on belong to the next one."""
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
            Labels. None for an ensemble that does not classify, or does not know its labels.

        read_rule : ReadRule, optional
            How the library reads rows.

        sum_rule : SumRule, optional
            How the library adds up the leaves of a row.

        answer_rule : AnswerRule, optional
            How the library makes probabilities, labels and numbers of the sums.

        Returns
        -------
        Forest
        """
        offset = np.atleast_1d(np.asarray(offset, dtype=np.float64))
        return Forest(
            laid_out(self._table()),
            read_only(offset),
            n_features,
            classes=classes,
            read_rule=read_rule,
            sum_rule=sum_rule,
            answer_rule=answer_rule,
        )

    def _table(self):
        """Return all trees as one table.

        Many small trees, one by one, take longer to lay out than to grow.
        """
        sizes = np.array([len(tree.left) for tree in self._trees])
        roots = np.cumsum(sizes) - sizes
        root_of_node = np.repeat(roots, sizes)
        left = self._joined("left")
        return TreeTable(
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
        """Return one array of all trees, one after the other."""
        return np.concatenate([getattr(tree, name) for tree in self._trees])


class _TreeArrays(NamedTuple):
    """The nodes of one tree, as :meth:`ForestBuilder.add_tree` is given them."""

    left: Any
    right: Any
    feature: Any
    threshold: Any
    flags: Any
    value: Any
