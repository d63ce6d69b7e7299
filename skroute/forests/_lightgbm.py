"""Trees of LightGBM: its models and raw boosters, from the text of the booster."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skroute.forests._columns import PairedByOrder
from skroute.forests._forest import Forest
from skroute.forests._reader import ForestReader
from skroute.forests._rules import AnswerRule, ReadRule
from skroute.forests._trees import (
    CATEGORICAL,
    MISSING_RIGHT,
    ZERO,
    ZERO_MISSING,
    TreeTable,
    laid_out,
)
from skroute.utils._validation import read_only

# Flag in a node's `decision_type` in the text of a booster: the node tests categories.
_IS_CATEGORICAL = 1
# Flag in `decision_type`: missing values go left.
_GOES_LEFT_IF_MISSING = 2
# Position in `decision_type` of the bits for the treatment of missing values.
_MISSING_TYPE_SHIFT = 2
# Treatment of missing values: NaN is read as 0.
_MISSING_IS_ZERO = 0
# Treatment of missing values: 0 is missing, and so is NaN. With the third treatment, 2,
# NaN alone is missing.
_ZERO_IS_MISSING = 1
# Entry of a leaf in the fields of a `TreeTable` that describe a split. It is negative,
# so that it marks a leaf as the left child. The other fields of a leaf are ignored.
_NO_SPLIT = -1

# The kind of the answer (see `AnswerRule`) by the objective.
_KINDS = {
    "binary": "sigmoid",
    "cross_entropy": "sigmoid",
    "multiclassova": "sigmoid",
    "multiclass": "softmax",
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "regression": "identity",
    "regression_l1": "identity",
    "huber": "identity",
    "fair": "identity",
    "quantile": "identity",
    "mape": "identity",
    "lambdarank": "identity",
    "rank_xendcg": "identity",
    "none": "identity",
}
# Kinds of the answers that are probabilities.
_KINDS_OF_CLASSIFIERS = ("sigmoid", "softmax")


class LightGBMReader(ForestReader):
    """Reader of the models and of the raw boosters of LightGBM."""

    package = "lightgbm"
    class_names = ("LGBMModel", "Booster")

    def read(self, estimator):
        """Read a fitted model or booster. Returns a `Forest`."""
        # `booster_` is looked up in the class: the property raises an error before fit.
        is_model = hasattr(type(estimator), "booster_")
        booster = estimator.booster_ if is_model else estimator
        forest = _read_booster(booster)
        classes = getattr(estimator, "_classes", None) if is_model else None
        if classes is None:
            # A raw booster, or a model that is no classifier, has no labels.
            return forest
        if forest.answer_rule.kind not in _KINDS_OF_CLASSIFIERS:
            raise ValueError(
                "The classifier has an objective of its own, so that its scores have "
                "no probabilities; use its booster_."
            )
        return replace(forest, classes=np.asarray(classes))


def read_lightgbm(booster, num_iteration=None):
    """Return the trees of a LightGBM booster. The answer of the forest is their sum.

    With ``boosting="rf"``, the answer is their mean. The objective may be of any kind.

    Parameters
    ----------
    booster : lightgbm.Booster
        Without linear trees.

    num_iteration : int, default=None
        Number of boosting iterations to read, -1 for all. None takes those up to the
        best one, if there is one, as the booster's own ``predict`` does.

    Returns
    -------
    Forest
        Members are boosting iterations, with one tree for each output.

    Raises
    ------
    ValueError
        If the booster has linear trees, or categories that its text cannot hold, such
        as dates.

    Examples
    --------
    >>> import lightgbm, numpy as np
    >>> from skroute.forests import leaf_sums, read_lightgbm
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> data = lightgbm.Dataset(X, X[:, 0] > 0.5)
    >>> booster = lightgbm.train({"objective": "binary", "verbose": -1}, data, 5)
    >>> forest = read_lightgbm(booster)
    >>> scores = booster.predict(X, raw_score=True)
    >>> bool(np.allclose(leaf_sums(forest, X)[:, 0], scores))
    True
    """
    return _forest_of_sums(booster, _blocks_of(booster, num_iteration))


def _read_booster(booster):
    """Return the forest of a booster, with the answers of its objective."""
    blocks = _blocks_of(booster)
    # The first block is the head. The objective has a name and options, such as
    # "binary sigmoid:1".
    words = _fields_of(blocks[0]).get("objective", "none").split()
    objective = words[0]
    options = words[1:]
    if objective not in _KINDS or "sqrt" in options:
        raise ValueError(
            f"The booster has the objective {' '.join(words)!r}; supported are "
            f"{sorted(_KINDS)}, without reg_sqrt."
        )
    option_values = dict(option.split(":") for option in options if ":" in option)
    forest = _forest_of_sums(booster, blocks)
    answer_rule = replace(
        forest.answer_rule,
        kind=_KINDS[objective],
        slope=float(option_values.get("sigmoid", 1.0)),
    )
    return replace(forest, answer_rule=answer_rule)


def _blocks_of(booster, num_iteration=None):
    """Return the blocks of a booster's text: first its head, then its trees.

    `num_iteration` is as in :func:`read_lightgbm`. A ValueError is raised if the text
    cannot have the booster's categories.
    """
    try:
        text = booster.model_to_string(num_iteration=num_iteration)
    except ValueError as error:
        if not booster.pandas_categorical:
            raise
        raise ValueError(
            "The booster was trained on a data frame with categories that LightGBM "
            "cannot write down (dates, for example). Make texts or numbers of these "
            "categories, and train again."
        ) from error
    return text.split("\n\n")


def _forest_of_sums(booster, blocks):
    """Return the forest of a booster without its link: answers are sums or averages.

    Parameters
    ----------
    booster : lightgbm.Booster
    blocks : list of str
        From :func:`_blocks_of`.

    Returns
    -------
    Forest
    """
    head = _fields_of(blocks[0])
    n_trees_per_iteration = int(head["num_tree_per_iteration"])
    tree_blocks = [block for block in blocks if block.lstrip().startswith("Tree=")]
    trees = [_fields_of(block) for block in tree_blocks]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise ValueError("Linear trees (linear_tree=True) are not supported.")
    divisor = 1.0
    if "average_output" in blocks[0]:
        # With boosting="rf", the sum is divided by the number of iterations before the
        # link.
        divisor = len(trees) / n_trees_per_iteration
    return Forest(
        trees=laid_out(_table_of(trees, n_trees_per_iteration)),
        offset=read_only(np.zeros(n_trees_per_iteration)),
        # Features are counted from 0.
        n_features=int(head["max_feature_idx"]) + 1,
        read_rule=ReadRule(
            finite=False,
            cast="float32",
            columns=PairedByOrder(booster.pandas_categorical),
        ),
        answer_rule=AnswerRule(divisor=divisor),
    )


def _fields_of(block):
    """Return the values of a block of text by their keys."""
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _numbers_of(trees, key, dtype=np.int64):
    """Return the numbers that all trees have under a key, one tree after the other.

    Parameters
    ----------
    trees : list of dict
        The fields of each tree's block.

    key : str
    dtype : type, default=numpy.int64

    Returns
    -------
    ndarray of shape (n_numbers,)
        A tree without the key has no numbers.
    """
    text = " ".join(tree.get(key, "") for tree in trees)
    return np.array(text.split(), dtype=dtype)


def _table_of(trees, n_trees_per_iteration):
    """Return the table of the trees of a booster.

    The numbers of all trees are converted at once. All inner nodes come first in the
    table, and then all leaves.

    Parameters
    ----------
    trees : list of dict
        The fields of each tree's block.

    n_trees_per_iteration : int

    Returns
    -------
    TreeTable
    """
    n_trees = len(trees)
    # Number of leaves of each tree, (n_trees,).
    n_leaves = _numbers_of(trees, "num_leaves")
    # A binary tree has one inner node less than it has leaves.
    n_inner = n_leaves - 1
    tree_of_inner = np.repeat(np.arange(n_trees), n_inner)
    # Positions in the table of the first inner node and of the first leaf of each tree.
    first_inner = np.cumsum(n_inner) - n_inner
    first_leaf = len(tree_of_inner) + np.cumsum(n_leaves) - n_leaves
    splits = _splits_of(trees, tree_of_inner)

    # Placeholders: for the splits that leaves lack, and the values of inner nodes.
    no_split = np.full(n_leaves.sum(), _NO_SPLIT)
    no_value = np.zeros(len(tree_of_inner))
    leaf_value = _numbers_of(trees, "leaf_value", dtype=np.float64)
    children = {}
    for key in ("left_child", "right_child"):
        child = _numbers_of(trees, key)
        # In the booster's text, a negative child ~i is leaf i of the tree.
        leaf_position = first_leaf[tree_of_inner] + ~child
        inner_position = first_inner[tree_of_inner] + child
        position = np.where(child < 0, leaf_position, inner_position)
        children[key] = np.append(position, no_split)

    # For each tree, "cat_boundaries" are the bounds of its bit sets, which begin at 0.
    # The differences of bounds are the sizes of the sets.
    bound_steps = np.diff(_numbers_of(trees, "cat_boundaries"))
    # The step from the last bound of a tree to the first bound of the next tree is
    # negative. It is no size.
    set_sizes = bound_steps[bound_steps > 0]
    return TreeTable(
        left=children["left_child"],
        right=children["right_child"],
        feature=np.append(_numbers_of(trees, "split_feature"), no_split),
        threshold=np.append(splits.threshold, no_split),
        flags=np.append(splits.flags, no_split),
        value=np.append(no_value, leaf_value)[:, None],
        # A tree with one leaf has no inner node: the leaf is its root.
        roots=np.where(n_leaves > 1, first_inner, first_leaf),
        outputs=np.arange(n_trees) % n_trees_per_iteration,
        member_start=np.arange(0, n_trees + 1, n_trees_per_iteration),
        cat_words=_numbers_of(trees, "cat_threshold"),
        cat_start=np.append(0, np.cumsum(set_sizes)),
    )


class _Splits(NamedTuple):
    """Thresholds and flags of the inner nodes of all trees.

    Attributes
    ----------
    threshold : ndarray of shape (n_inner,), dtype=float64
        For a categorical node the number of its bit set among those of all trees.

    flags : ndarray of shape (n_inner,), dtype=int
        Upper bits of ``NODE["feature"]``.
    """

    threshold: np.ndarray
    flags: np.ndarray


def _splits_of(trees, tree_of_inner):
    """Return the thresholds and the flags of all inner nodes.

    Parameters
    ----------
    trees : list of dict
        The fields of each tree's block.

    tree_of_inner : ndarray of shape (n_inner,), dtype=int
        Number of the tree of each inner node.

    Returns
    -------
    _Splits
    """
    decision_type = _numbers_of(trees, "decision_type")
    threshold = _numbers_of(trees, "threshold", dtype=np.float64)
    is_categorical = (decision_type & _IS_CATEGORICAL) != 0
    # The library reads each number from -ZERO to ZERO as 0. A threshold in this range
    # is moved to an end of it, so that the kernels send all these numbers to the side
    # to which the library sends 0.
    is_zero = ~is_categorical & (np.abs(threshold) <= ZERO)
    below_zero = np.nextafter(-ZERO, -1.0)
    threshold[is_zero] = np.where(threshold[is_zero] < 0.0, below_zero, ZERO)
    missing_type = decision_type >> _MISSING_TYPE_SHIFT
    default_left = (decision_type & _GOES_LEFT_IF_MISSING) != 0
    # If NaN is read as 0, it goes where 0 goes.
    zero_goes_left = threshold >= 0.0
    left_if_missing = np.where(
        missing_type == _MISSING_IS_ZERO, zero_goes_left, default_left
    )
    # A missing value is in no set of categories, so that it goes right.
    left_if_missing &= ~is_categorical
    zero_is_missing = (missing_type == _ZERO_IS_MISSING) & ~is_categorical
    flags = np.where(left_if_missing, 0, MISSING_RIGHT)
    flags |= np.where(zero_is_missing, ZERO_MISSING, 0)
    flags |= np.where(is_categorical, CATEGORICAL, 0)
    # The threshold of a categorical node is the number of its bit set, which the
    # booster counts from 0 in each tree. Here, the sets of all trees are counted.
    n_sets = _numbers_of(trees, "num_cat")
    first_set = np.cumsum(n_sets) - n_sets
    threshold += np.where(is_categorical, first_set[tree_of_inner], 0)
    return _Splits(threshold=threshold, flags=flags)
