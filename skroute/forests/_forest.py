"""A forest: its trees, its library's rules for reading rows and for answers, and its builder."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skroute.forests._bitvector import bit_trees
from skroute.forests._code_walk import coded_trees
from skroute.forests._columns import ColumnRule, ValuesAsTheyAre
from skroute.forests._trees import CATEGORICAL, FEATURE_MASK, Trees, laid_out
from skroute.utils._validation import read_only

# What a forest makes of its trees, once.
_MADE = ("bits", "coded", "code_columns")


@dataclass(frozen=True)
class Forest:
    """An additive ensemble of trees, with its library's rules for reading rows and for answers.

    Parameters
    ----------
    trees : Trees
        The arrays.

    offset : ndarray of shape (n_outputs,), dtype=float64
        Score before any member.

    n_features : int
    answer : {"identity", "exp", "sigmoid", "softmax", "position", "expit", "sk_exp", \
            "sk_softmax", "mean", "vote"}, default="identity"
        What the library makes of the sums.

    classes : ndarray, default=None
        Labels; None for what does not classify, or does not know them.

    label_dtype : str, default=""
        Type of the labels that `predict` of the library returns. Empty where it is that of
        `classes`.

    slope, divisor : float, default=1.0
        Factor of the sums inside the answer, and what they are divided by before: the number
        of trees, or the sum of weights, where an average is taken.

    beta : float, default=0.0
        Binary decision: positive where the score is above.

    by_score : bool, default=False
        Whether labels are decided by the scores rather than by the probabilities.

    offset_last : bool, default=False
        Whether the library adds the offset after the trees.

    scale : float, default=1.0
        What the library multiplies the sum of the trees by, before it adds the offset. Other than
        1 only with `offset_last`.

    blur : float, default=0.0
        Difference to the library's answers that its order of threads or its exponential may
        make.

    cut : Cut, default=None
        Where the answer changes, if it was moved.

    dtype : str, default="float64"
        What the source library casts its input to.

    finite : bool or "allow-nan", default=True
        What it accepts, as `ensure_all_finite` of scikit-learn's ``check_array``.

    columns : ColumnRule
        How the source library makes numbers of columns of categories.

    sums : {"float64", "float32"}, default="float64"
        Precision in which the library adds up.

    absent : float, default=0.0
        What the library reads where a row of a sparse matrix has no entry.

    cast : {"", "float32"}, default=""
        What the library makes first of numbers in neither single nor double precision. Empty
        for `dtype`.

    link : {"logistic", "softmax", "ova", "mean"}, default=None
        Of the view by partial sums: how scores become probabilities.

    shift, least_rounding : float, default=0.0
        Of that view: what is added to the distance from the decision before the link, or to
        the mean; at least what `rounding` is.

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
    answer: str = "identity"
    classes: np.ndarray | None = None
    label_dtype: str = ""
    slope: float = 1.0
    divisor: float = 1.0
    beta: float = 0.0
    by_score: bool = False
    offset_last: bool = False
    scale: float = 1.0
    blur: float = 0.0
    cut: Any = None
    dtype: str = "float64"
    finite: object = True
    columns: ColumnRule = ValuesAsTheyAre()
    sums: str = "float64"
    absent: float = 0.0
    cast: str = ""
    link: str | None = None
    shift: float = 0.0
    least_rounding: float = 0.0

    def __post_init__(self):
        vars(self).update(offset=read_only(self.offset), trees=self.trees.read_only())

    def __setstate__(self, state):
        # Files can be damaged, and compiled code trusts these arrays.
        vars(self).update(state)
        if self.offset.ndim != 1:
            raise ValueError("The arrays of the forest are damaged: offset has no one dimension.")
        self.trees.check(self.n_features, self.n_outputs)
        self.__post_init__()

    @property
    def rounding(self):
        """How close to a tie the library, adding up in its own way, may answer otherwise."""
        trees = self.trees
        largest = np.maximum.reduceat(np.abs(trees.values).max(axis=1), trees.roots)
        size = float(np.abs(self.offset).max() + abs(self.scale) * largest.sum())
        if self.sums == "float64" and size < 2**30:
            whole = np.append(self.offset, trees.values) * 2**20
            # Sums of these are exact in any order.
            if np.array_equal(whole, np.rint(whole)):
                return self.least_rounding
        return max(self.least_rounding, float(16 * np.finfo(self.sums).eps * (size + 1.0)))

    @cached_property
    def code_columns(self):
        """Features that some node reads as a category."""
        feature = self.trees.nodes["feature"]
        return np.unique(feature[(feature & CATEGORICAL) != 0] & FEATURE_MASK)

    @cached_property
    def bits(self):
        """The trees as bit vectors; None where their shape is not for them."""
        return bit_trees(self.trees, self.dtype)

    @cached_property
    def coded(self):
        """The trees as nodes that compare codes; None for categories and beyond what codes say."""
        return coded_trees(self.trees, self.dtype)

    def __getstate__(self):
        # What is made of the trees is made again where it is asked for.
        return {name: value for name, value in self.__dict__.items() if name not in _MADE}

    @property
    def n_members(self):
        """Number of members (boosting iterations, or trees of a bagged forest)."""
        return len(self.trees.member_start) - 1

    @property
    def n_outputs(self):
        """Number of scores per row: 1 for two classes, else the number of classes."""
        return len(self.offset)

    def taken(self, order):
        """The forest of these members in this order.

        Parameters
        ----------
        order : sequence of int
            Members; all of them for another order, ``range(k)`` for the first `k`.

        Returns
        -------
        Forest
        """
        return replace(self, trees=self.trees.taken(order))

    def features_of(self, outputs):
        """Sorted features that the trees of some outputs split on.

        Parameters
        ----------
        outputs : sequence of int

        Returns
        -------
        ndarray of int
        """
        trees = self.trees
        of_node = np.repeat(trees.outputs, np.diff(trees.roots, append=len(trees.nodes)))
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
        self._trees, self._outputs, self._starts = [], [], [0]
        self._words, self._cat_start = [], [0]

    def add_set(self, words):
        """Store a bit set of categories and return its number."""
        self._words.extend(words)
        self._cat_start.append(len(self._words))
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
        self._trees.append((left, right, feature, threshold, value, flags))
        self._outputs.append(output)

    def end_member(self):
        """Close the member: trees added from here on belong to the next one."""
        self._starts.append(len(self._trees))

    def build(self, offset, **keywords):
        """The forest of all trees added.

        Parameters
        ----------
        offset : array-like of shape (n_outputs,)
            Score before any member.

        **keywords
            The other attributes of :class:`Forest`.

        Returns
        -------
        Forest
        """
        # All trees at once: one by one, many small ones take longer to lay out than to grow.
        left, right, *others = map(np.concatenate, zip(*self._trees))
        sizes = np.array([len(tree[0]) for tree in self._trees])
        roots = np.cumsum(sizes) - sizes
        first = np.repeat(roots, sizes)
        nodes = np.where(left < 0, -1, left + first), right + first, *others
        trees = laid_out(*nodes, roots, self._outputs, self._starts, self._words, self._cat_start)
        return Forest(trees, np.atleast_1d(np.asarray(offset, dtype=np.float64)), **keywords)
