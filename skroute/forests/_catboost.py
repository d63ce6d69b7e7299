"""Trees of CatBoost, whose nodes of one level ask the same."""

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
from skroute.forests._trees import MISSING_RIGHT

# How scores become probabilities, by the name of the loss. Every classifier of one score has the
# logistic function.
_KINDS_OF_SEVERAL = {
    "MultiClass": "sk_softmax",
    "MultiClassOneVsAll": "expit",
}
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
# The exponential function of this library differs by less than this from that of numpy.
_BLUR_OF_EXPONENTIAL = 1e-12


def _contents(model):
    """Return the content of a model's JSON file; a ValueError if it has other than numbers."""
    name = type(model).__name__
    kinds = {
        "categorical": model.get_cat_feature_indices(),
        "text": model.get_text_feature_indices(),
        "embedding": model.get_embedding_feature_indices(),
    }
    for kind, columns in kinds.items():
        if len(columns):
            raise ValueError(
                f"{name} has {kind} features in the columns {list(columns)!r}, which are not "
                "supported: CatBoost makes numbers of them by tables of its own. Encode them "
                "as numbers before the ensemble is fitted."
            )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        return json.loads(path.read_text())


def _loss_of(content):
    """Return the name of the loss that a model was trained with; None if its file has none.

    A sum of models has one where all of them have the same.
    """
    info = content["model_info"]
    loss = info.get("params", info).get("loss_function")
    if isinstance(loss, str):
        loss = json.loads(loss)
    return None if loss is None else loss["type"]


def _nodes(tree, n_outputs):
    """Return the nodes of a tree, level by level."""
    if "leaf_values" in tree:
        # Oblivious: the last split is asked first.
        splits = reversed(tree.get("splits") or [])
        inner = [
            {"split": split}
            for level, split in enumerate(splits)
            for _ in range(2**level)
        ]
        return inner + [
            {"value": v} for v in np.reshape(tree["leaf_values"], (-1, n_outputs))
        ]
    nodes = [tree]
    for node in nodes:
        nodes += [node["left"], node["right"]] if "split" in node else []
    return nodes


def _add_tree(builder, nodes, columns, n_outputs):
    """Add a tree of nodes level by level as a member."""
    inner = np.array(["split" in node for node in nodes])
    # Level by level, the children of all inner nodes follow each other.
    left = np.where(inner, 2 * np.cumsum(inner) - 1, -1)
    feature = np.zeros(len(nodes), dtype=np.int32)
    flags = np.zeros(len(nodes), dtype=np.int32)
    threshold = np.zeros(len(nodes))
    value = np.zeros((len(nodes), n_outputs))
    for i, node in enumerate(nodes):
        if not inner[i]:
            value[i] = node["value"]
            continue
        column = columns[node["split"]["float_feature_index"]]
        feature[i] = column["flat_feature_index"]
        threshold[i] = np.float32(node["split"]["border"])
        if column["nan_value_treatment"] == "AsTrue":
            flags[i] = MISSING_RIGHT
    builder.add_tree(
        left=left,
        right=left + 1,
        feature=feature,
        threshold=threshold,
        value=value,
        flags=flags,
        # With several outputs each leaf has one number for each of them.
        output=-1 if n_outputs > 1 else 0,
    )
    builder.end_member()


def _kind_of_classifier(name, loss, n_scores):
    """Return how a classifier makes probabilities of its scores."""
    if loss in _SEVERAL_LABELS:
        raise ValueError(
            f"{name} has loss_function={loss!r}, which gives each row any number of labels; one "
            "is supported."
        )
    if n_scores == 1:
        return "expit"
    if loss not in _KINDS_OF_SEVERAL:
        raise ValueError(
            f"{name} has loss_function={loss!r}; how its scores become probabilities is "
            f"known for {sorted(_KINDS_OF_SEVERAL)!r} only."
        )
    return _KINDS_OF_SEVERAL[loss]


def _kind_of_numbers(model, loss, n_scores, n_features):
    """Return how a model that is no classifier makes its answer of its scores.

    Its class and its parameters decide, and a sum of models has none: the model itself is asked
    about one row.
    """
    if n_scores > 1:
        raise ValueError(
            f"{type(model).__name__} has loss_function={loss!r}, which gives each row {n_scores} "
            "numbers; one is supported."
        )
    row = np.zeros((1, n_features), dtype=np.float32)
    # The exponential of a number is never that number.
    is_sum = np.array_equal(own_predict(model, row), own_sums(model, row))
    return "identity" if is_sum else "sk_exp"


class CatBoostReader(ForestReader):
    """Reader of the models of CatBoost, without categories, texts and embeddings."""

    package = "catboost"
    class_names = ("CatBoost",)

    def read(self, estimator):
        """Read a fitted model, or a sum of models."""
        name = type(estimator).__name__
        if not estimator.is_fitted():
            raise NotFittedError(f"This {name} is not fitted yet. Call fit first.")
        content = _contents(estimator)
        scale, offset = content["scale_and_bias"]
        offset = np.atleast_1d(np.asarray(offset, dtype=np.float64))
        n_outputs = len(offset)
        loss = _loss_of(content)
        # `n_features_in_` of a model from a pickle is 0, and a sum of models has none.
        n_features = len(estimator.feature_names_)
        classes = None
        beta = 0.0
        if _is_classifier(estimator):
            classes = np.asarray(estimator.classes_)
            kind = _kind_of_classifier(name, loss, n_outputs)
            if n_outputs == 1:
                beta = _score_at_threshold(estimator)
        else:
            kind = _kind_of_numbers(estimator, loss, n_outputs, n_features)
        builder = ForestBuilder()
        columns = content["features_info"].get("float_features", [])
        for tree in content.get("trees") or content.get("oblivious_trees", []):
            _add_tree(builder, _nodes(tree, n_outputs), columns, n_outputs)
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


def _is_classifier(model):
    """Return True if a model is a classifier of CatBoost, or of a subclass."""
    return any(cls.__name__ == "CatBoostClassifier" for cls in type(model).__mro__)


def _score_at_threshold(model):
    """Return the score at which a classifier of two classes changes its answer."""
    probability = float(model.get_probability_threshold() or 0.5)
    return math.log(probability / (1 - probability))
