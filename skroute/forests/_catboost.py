"""Trees of CatBoost, most of them oblivious: all nodes of a level have one split."""

import json
import math
import tempfile
from pathlib import Path

import numpy as np
from sklearn.exceptions import NotFittedError

from skroute.forests._columns import NumbersOnly
from skroute.forests._forest import ForestBuilder
from skroute.forests._library import own_predict, own_sums
from skroute.forests._reader import ForestReader
from skroute.forests._rules import AnswerRule, ReadRule, SumRule
from skroute.forests._trees import ALL_OUTPUTS, MISSING_RIGHT

# The kind of the answer (see `AnswerRule`) of a classifier with several scores, by its
# loss. A classifier with one score has the kind "expit" with each loss.
_KINDS_OF_SEVERAL = {
    "MultiClass": "sk_softmax",
    "MultiClassOneVsAll": "expit",
}
# Losses of classifiers that give a row several labels.
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
# The exponential function of CatBoost differs by less than this from that of numpy.
_BLUR_OF_EXPONENTIAL = 1e-12
# Probability of the second class at which a classifier changes its answer by default.
_DEFAULT_THRESHOLD = 0.5
# `nan_value_treatment` of a feature whose missing values go right.
_MISSING_GOES_RIGHT = "AsTrue"


class CatBoostReader(ForestReader):
    """Reader of the models of CatBoost, without categories, texts and embeddings."""

    package = "catboost"
    class_names = ("CatBoost",)

    def read(self, estimator):
        """Read a fitted model, or a sum of models. Returns a `Forest`."""
        name = type(estimator).__name__
        if not estimator.is_fitted():
            raise NotFittedError(f"This {name} is not fitted yet. Call fit first.")
        content = _contents(estimator)
        # A score is `scale` times the sum of the trees, plus `offset`.
        scale, offset = content["scale_and_bias"]
        offset = np.atleast_1d(np.asarray(offset, dtype=np.float64))
        n_outputs = len(offset)
        loss = _loss_of(content)
        # `n_features_in_` of a model from a pickle is 0, and a sum of models has none.
        n_features = len(estimator.feature_names_)
        # None: the model is no classifier.
        classes = None
        # Score at which the answer changes. It is read only if two classes have one
        # score.
        beta = 0.0
        if _is_classifier(estimator):
            classes = np.asarray(estimator.classes_)
            kind = _kind_of_classifier(name, loss, n_scores=n_outputs)
            if n_outputs == 1:
                beta = _score_at_threshold(estimator)
        else:
            kind = _kind_of_numbers(
                estimator, loss, n_scores=n_outputs, n_features=n_features
            )
        builder = ForestBuilder()
        columns = content["features_info"].get("float_features", [])
        # The file has "trees" if some tree is not oblivious.
        trees = content.get("trees") or content.get("oblivious_trees", [])
        for tree in trees:
            nodes = _nodes_of(tree, n_outputs)
            _add_tree(builder, nodes, columns=columns, n_outputs=n_outputs)
        return builder.build(
            offset,
            n_features,
            classes=classes,
            read_rule=ReadRule(dtype="float32", finite=False, columns=NumbersOnly()),
            sum_rule=SumRule(offset_last=True, scale=float(scale)),
            answer_rule=AnswerRule(
                kind=kind,
                beta=beta,
                by_score=classes is not None,
                blur=_BLUR_OF_EXPONENTIAL,
            ),
        )


def _contents(model):
    """Return the content of a model's JSON file.

    Parameters
    ----------
    model : catboost.CatBoost

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If a feature is not a number.
    """
    name = type(model).__name__
    columns_by_kind = {
        "categorical": model.get_cat_feature_indices(),
        "text": model.get_text_feature_indices(),
        "embedding": model.get_embedding_feature_indices(),
    }
    for kind, columns in columns_by_kind.items():
        if len(columns):
            raise ValueError(
                f"{name} has {kind} features in the columns {list(columns)!r}, which "
                "are not supported: CatBoost makes numbers of them by tables of its "
                "own. Encode them as numbers before the ensemble is fitted."
            )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        return json.loads(path.read_text())


def _loss_of(content):
    """Return the name of the loss of a model's training, None if its file has none.

    The file of a sum of models has one if it is the same for all of them.
    """
    info = content["model_info"]
    # Without "params", the parameters stand in "model_info" itself.
    loss = info.get("params", info).get("loss_function")
    if isinstance(loss, str):
        loss = json.loads(loss)
    if loss is None:
        # A sum of models with different losses has none.
        return None
    return loss["type"]


def _is_classifier(model):
    """Return True if a model is a classifier of CatBoost, or of a subclass."""
    return any(cls.__name__ == "CatBoostClassifier" for cls in type(model).__mro__)


def _score_at_threshold(model):
    """Return the score at which a classifier of two classes changes its answer."""
    probability = model.get_probability_threshold()
    if probability is None:
        # The threshold was not set.
        probability = _DEFAULT_THRESHOLD
    if not 0 < probability < 1:
        raise ValueError(
            f"The probability threshold of a {type(model).__name__} must be above 0 "
            f"and below 1, got {probability!r}: every row gets the same answer."
        )
    # The probability is the logistic function of the score: this is its inverse.
    return math.log(probability / (1 - probability))


def _kind_of_classifier(name, loss, n_scores):
    """Return `AnswerRule.kind` of a classifier, which its loss determines.

    Parameters
    ----------
    name : str
        Class of the model, for errors.

    loss : str or None
    n_scores : int
        Number of scores of a row.

    Returns
    -------
    str
        See :class:`~skroute.forests._rules.AnswerRule`.

    Raises
    ------
    ValueError
        If there is no kind for the loss.
    """
    if loss in _SEVERAL_LABELS:
        raise ValueError(
            f"{name} has loss_function={loss!r}, which gives each row any number of "
            "labels; one is supported."
        )
    if n_scores == 1:
        return "expit"
    if loss not in _KINDS_OF_SEVERAL:
        raise ValueError(
            f"{name} has loss_function={loss!r}; how its scores become probabilities "
            f"is known for {sorted(_KINDS_OF_SEVERAL)!r} only."
        )
    return _KINDS_OF_SEVERAL[loss]


def _kind_of_numbers(model, loss, n_scores, n_features):
    """Return `AnswerRule.kind` of a regressor or ranker: sums, or their exponential.

    The kind depends on the class and the parameters of the model. A sum of models has
    neither, so that the model itself predicts one row.

    Parameters
    ----------
    model : catboost.CatBoost
    loss : str or None
    n_scores : int
        Number of scores of a row.

    n_features : int

    Returns
    -------
    str
        See :class:`~skroute.forests._rules.AnswerRule`.

    Raises
    ------
    ValueError
        If the model predicts several numbers for a row.
    """
    if n_scores > 1:
        raise ValueError(
            f"{type(model).__name__} has loss_function={loss!r}, which gives each row "
            f"{n_scores} numbers; one is supported."
        )
    row = np.zeros((1, n_features), dtype=np.float32)
    # If the model predicts its sum, it has no link: exp(x) is never equal to x.
    predicts_sum = np.array_equal(own_predict(model, row), own_sums(model, row))
    return "identity" if predicts_sum else "sk_exp"


def _nodes_of(tree, n_outputs):
    """Return the nodes of a tree level by level, as dicts.

    Parameters
    ----------
    tree : dict
        A tree of the model's file, oblivious or not.

    n_outputs : int

    Returns
    -------
    list of dict
        An inner node has the key "split", and a leaf the key "value".
    """
    if "leaf_values" in tree:
        return _nodes_of_oblivious(tree, n_outputs)
    nodes = [tree]
    # The list grows during the loop: the children of a node are appended to it, behind
    # all nodes of the levels above them.
    for node in nodes:
        if "split" in node:
            nodes.append(node["left"])
            nodes.append(node["right"])
    return nodes


def _nodes_of_oblivious(tree, n_outputs):
    """Return the nodes of an oblivious tree level by level, as `_nodes_of` does.

    A tree of one leaf has no splits. Leaves have `n_outputs` values each.
    """
    nodes = []
    # The file starts with the split of the deepest level.
    splits = reversed(tree.get("splits") or [])
    for level, split in enumerate(splits):
        # Each node of the level has the same split.
        for _ in range(2**level):
            nodes.append({"split": split})
    for value in np.reshape(tree["leaf_values"], (-1, n_outputs)):
        nodes.append({"value": value})
    return nodes


def _add_tree(builder, nodes, columns, n_outputs):
    """Add a tree of the model's file to a builder, as one member.

    Parameters
    ----------
    builder : ForestBuilder
    nodes : list of dict
        From :func:`_nodes_of`.

    columns : list of dict
        The columns of numbers in the model's file.

    n_outputs : int
    """
    is_inner = np.array(["split" in node for node in nodes])
    # Nodes are in order of their levels: the children of inner node `k` (from 0) are
    # the nodes 2k + 1 and 2k + 2. -1 marks leaves.
    left = np.where(is_inner, 2 * np.cumsum(is_inner) - 1, -1)
    feature = np.zeros(len(nodes), dtype=np.int32)
    flags = np.zeros(len(nodes), dtype=np.int32)
    threshold = np.zeros(len(nodes))
    value = np.zeros((len(nodes), n_outputs))
    for i, node in enumerate(nodes):
        if not is_inner[i]:
            value[i] = node["value"]
            continue
        split = node["split"]
        column = columns[split["float_feature_index"]]
        feature[i] = column["flat_feature_index"]
        # CatBoost compares cells with thresholds in single precision.
        threshold[i] = np.float32(split["border"])
        if column["nan_value_treatment"] == _MISSING_GOES_RIGHT:
            flags[i] = MISSING_RIGHT
    builder.add_tree(
        left=left,
        right=left + 1,
        feature=feature,
        threshold=threshold,
        value=value,
        flags=flags,
        # With several outputs, leaves have a value for each.
        output=ALL_OUTPUTS if n_outputs > 1 else 0,
    )
    builder.end_member()
