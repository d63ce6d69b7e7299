"""Trees of XGBoost: its models and raw boosters."""

import json

import numpy as np

from skroute.forests._columns import PairedByPlace
from skroute.forests._forest import ForestBuilder
from skroute.forests._reader import ForestReader, labels_of
from skroute.forests._rules import AnswerRule, ReadRule, SumRule
from skroute.forests._trees import CATEGORICAL, MISSING_RIGHT

# The kind of the answer (see `AnswerRule`) by the objective.
_KINDS = {
    "binary:logistic": "sigmoid",
    "reg:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "multi:softmax": "position",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
    "reg:squarederror": "identity",
    "reg:absoluteerror": "identity",
    "reg:pseudohubererror": "identity",
    "rank:ndcg": "identity",
    "rank:pairwise": "identity",
}
# Objective with which the library predicts positions of the classes.
_OBJECTIVE_OF_POSITIONS = "multi:softmax"
# Type of the positions that "multi:softmax" predicts. The labels of a classifier with
# this objective have this type, too.
_TYPE_OF_POSITIONS = "int32"
# Value of `split_type` of a categorical node in the file of a model.
_CATEGORICAL_SPLIT = 1


class XGBoostReader(ForestReader):
    """Reader of the models and of the raw boosters of XGBoost."""

    package = "xgboost"
    class_names = ("XGBModel", "Booster")

    def read(self, estimator):
        """Read a fitted model or booster. Returns a `Forest`."""
        name = type(estimator).__name__
        missing = getattr(estimator, "missing", np.nan)
        if not np.isnan(missing):
            raise ValueError(
                f"{name} has missing={missing!r}; only NaN is supported: replace it."
            )
        booster = estimator
        # None: all trees are read. A raw booster answers with all its trees, also if it
        # stopped early.
        best_iteration = None
        if hasattr(estimator, "get_booster"):
            booster = estimator.get_booster()
            best_iteration = booster.attr("best_iteration")
        content = json.loads(booster.save_raw("json"))
        learner = content["learner"]
        objective = _checked_objective(learner, name)
        tree_content = _checked_trees(learner, name)
        builder = _builder_of(tree_content, best_iteration)
        classes = labels_of(estimator)
        # The empty string stands for labels in the type of the classes.
        label_dtype = ""
        if objective == _OBJECTIVE_OF_POSITIONS and classes is not None:
            label_dtype = _TYPE_OF_POSITIONS
        categories = _categories_of(tree_content, name)
        parameters = learner["learner_model_param"]
        # `num_class` is 0 for two classes, and for a regressor: there is one score.
        n_outputs = max(1, int(parameters["num_class"]))
        n_features = int(parameters["num_feature"])
        # This removes the trees from `content`. They are read above.
        offset = _score_without_trees(content, n_features)[:n_outputs]
        return builder.build(
            offset,
            n_features,
            classes=classes,
            read_rule=ReadRule(
                dtype="float32",
                finite=False,
                absent=np.nan,
                columns=PairedByPlace(categories),
            ),
            sum_rule=SumRule(dtype="float32"),
            answer_rule=AnswerRule(kind=_KINDS[objective], label_dtype=label_dtype),
        )


def _checked_objective(learner, name):
    """Return the objective of a model, after a check that it is supported.

    Parameters
    ----------
    learner : dict
        "learner" of the model's file.

    name : str
        Class of the model, for the error.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the kind of its answers is not in `_KINDS`.
    """
    objective = learner["objective"]["name"]
    if objective not in _KINDS:
        raise ValueError(
            f"{name} has objective={objective!r}; how its scores become answers is "
            f"known for {sorted(_KINDS)!r} only."
        )
    return objective


def _checked_trees(learner, name):
    """Return the part of a model's file that has the trees, after checks.

    Parameters
    ----------
    learner : dict
        "learner" of the model's file.

    name : str
        Class of the model, for the error.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If the members are not trees, or leaves have several values.
    """
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise ValueError(
            f"{name} has booster={booster['name']!r}; only 'gbtree' is supported."
        )
    tree_content = booster["model"]
    for tree in tree_content["trees"]:
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise ValueError(
                f"{name} has multi_strategy='multi_output_tree'; only "
                "'one_output_per_tree' is supported."
            )
    n_targets = int(learner["learner_model_param"].get("num_target", 1))
    if n_targets > 1:
        raise ValueError(
            f"{name} was fitted to y with {n_targets} columns; one is supported."
        )
    return tree_content


def _builder_of(tree_content, best_iteration):
    """Return a builder with the trees of a model.

    Parameters
    ----------
    tree_content : dict
        From :func:`_checked_trees`.

    best_iteration : str or None
        Number of the last boosting iteration to read, counted from 0. None reads all.

    Returns
    -------
    ForestBuilder
        Members are boosting iterations.
    """
    # Trees of iteration `i` are ``bounds[i]:bounds[i + 1]``.
    bounds = tree_content["iteration_indptr"]
    if best_iteration is not None:
        n_iterations = int(best_iteration) + 1
        bounds = bounds[: n_iterations + 1]
    builder = ForestBuilder()
    for first, last in zip(bounds, bounds[1:]):
        for t in range(first, last):
            output = tree_content["tree_info"][t]
            _add_tree(builder, tree_content["trees"][t], output=output)
        builder.end_member()
    return builder


def _score_without_trees(content, n_features):
    """Return the score before the first tree, as the library itself rounds it.

    Parameters
    ----------
    content : dict
        Content of the model's file. The trees are taken out of it, in place.

    n_features : int

    Returns
    -------
    ndarray of shape (n_scores,), dtype=float64
    """
    import xgboost

    tree_content = content["learner"]["gradient_booster"]["model"]
    tree_content["trees"] = []
    tree_content["tree_info"] = []
    tree_content["iteration_indptr"] = [0]
    tree_content["gbtree_model_param"]["num_trees"] = "0"
    # With "1", the library would compute the score as an average of the targets.
    content["learner"]["learner_model_param"]["boost_from_average"] = "0"
    empty = xgboost.Booster(model_file=bytearray(json.dumps(content), "utf-8"))
    row = xgboost.DMatrix(np.zeros((1, n_features), dtype=np.float32))
    score = empty.predict(row, output_margin=True, validate_features=False)
    return np.ravel(score).astype(np.float64)


def _categories_of(tree_content, name):
    """Return the lists of categories by column. Files have them since XGBoost 3.1.

    Parameters
    ----------
    tree_content : dict
    name : str
        Class of the model, for the error.

    Returns
    -------
    dict from int to list

    Raises
    ------
    ValueError
        If a category has letters beyond ASCII.
    """
    encoder = tree_content.get("cats") or {}
    categories = {}
    for column, content in enumerate(encoder.get("enc") or []):
        # Columns of numbers have empty lists of values. Only categories that are texts
        # have offsets: the bounds of each text among the letters.
        bounds = content.get("offsets", [])
        values = content["values"]
        if bounds:
            # Values are signed bytes: letters beyond ASCII have negative ones.
            if min(values, default=0) < 0:
                raise ValueError(
                    f"{name} was trained on categories with letters beyond ASCII in "
                    f"column {column}, of which XGBoost keeps parts only: train on "
                    "other names."
                )
            # The letters of all categories, one category after the other.
            text = np.array(values, dtype=np.int64).astype(np.uint8).tobytes()
            values = [
                text[start:stop].decode() for start, stop in zip(bounds, bounds[1:])
            ]
        if values:
            categories[column] = values
    return categories


def _add_tree(builder, tree, output):
    """Add a tree of the model's file to the member that is being built.

    Parameters
    ----------
    builder : ForestBuilder
    tree : dict
        A tree of the model's file.

    output : int
        Output that its leaves add to.
    """
    left = np.array(tree["left_children"])
    right = np.array(tree["right_children"])
    # The threshold of an inner node, and the value of a leaf.
    condition = np.array(tree["split_conditions"], dtype=np.float32)
    is_categorical = np.array(tree["split_type"]) == _CATEGORICAL_SPLIT
    # In XGBoost a row goes left if x < condition, in the kernels if x <= threshold. The
    # threshold is thus the next smaller number in single precision.
    threshold = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)
    # Node, first code and number of codes, for each categorical node.
    segments = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"]
    )
    for node, start, size in segments:
        codes = np.array(tree["categories"][start : start + size])
        # In place of a threshold, a categorical node has the number of its set.
        threshold[node] = builder.add_set(_words_of(codes))
    # XGBoost sends the categories in a set to the right, and kernels send them to the
    # left. The children of categorical nodes are thus exchanged, and missing values go
    # to the other side.
    goes_left_if_missing = (np.array(tree["default_left"]) != 0) ^ is_categorical
    flags = np.where(goes_left_if_missing, 0, MISSING_RIGHT)
    flags |= np.where(is_categorical, CATEGORICAL, 0)
    builder.add_tree(
        left=np.where(is_categorical, right, left),
        right=np.where(is_categorical, left, right),
        feature=np.array(tree["split_indices"]),
        threshold=threshold,
        value=condition[:, None],
        flags=flags,
        output=output,
    )


def _words_of(codes):
    """Return the bit set of some categories, in words of 32 bits.

    Category `c` has bit ``c % 32`` of word ``c // 32``.
    """
    words = np.zeros(codes.max() // 32 + 1, dtype=np.int64)
    np.bitwise_or.at(words, codes // 32, 1 << (codes % 32))
    return words
