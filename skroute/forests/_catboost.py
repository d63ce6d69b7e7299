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
from skroute.forests._readers import reads
from skroute.forests._trees import MISSING_RIGHT

# How scores become probabilities, by the name of the loss. Every classifier of one score has the
# logistic function.
_ANSWERS_OF_SEVERAL = {
    "MultiClass": "sk_softmax",
    "MultiClassOneVsAll": "expit",
}
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")


def _contents(model):
    """The model as its own JSON file, with what is not read refused."""
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
    """The nodes of a tree, level by level."""
    if "leaf_values" in tree:
        # Oblivious: the last split is asked first.
        splits = reversed(tree.get("splits") or [])
        inner = [{"split": split} for level, split in enumerate(splits) for _ in range(2**level)]
        return inner + [{"value": v} for v in np.reshape(tree["leaf_values"], (-1, n_outputs))]
    nodes = [tree]
    for node in nodes:
        nodes += [node["left"], node["right"]] if "split" in node else []
    return nodes


def _add_tree(builder, nodes, columns, n_outputs):
    """Add a tree of nodes level by level as a member."""
    inner = np.array(["split" in node for node in nodes])
    # Level by level, the children of all inner nodes follow each other.
    left = np.where(inner, 2 * np.cumsum(inner) - 1, -1)
    feature, flags = np.zeros((2, len(nodes)), dtype=np.int32)
    threshold, value = np.zeros(len(nodes)), np.zeros((len(nodes), n_outputs))
    for i, node in enumerate(nodes):
        if inner[i]:
            column = columns[node["split"]["float_feature_index"]]
            feature[i] = column["flat_feature_index"]
            threshold[i] = np.float32(node["split"]["border"])
            flags[i] = MISSING_RIGHT if column["nan_value_treatment"] == "AsTrue" else 0
        else:
            value[i] = node["value"]
    output = -1 if n_outputs > 1 else 0
    builder.add_tree(left, left + 1, feature, threshold, value, flags, output)
    builder.end_member()


def _answer_of_classifier(name, loss, n_scores):
    """Return how a classifier makes probabilities of its scores."""
    if loss in _SEVERAL_LABELS:
        raise ValueError(
            f"{name} has loss_function={loss!r}, which gives each row any number of labels; one "
            "is supported."
        )
    if n_scores == 1:
        return "expit"
    if loss not in _ANSWERS_OF_SEVERAL:
        raise ValueError(
            f"{name} has loss_function={loss!r}; how its scores become probabilities is "
            f"known for {sorted(_ANSWERS_OF_SEVERAL)!r} only."
        )
    return _ANSWERS_OF_SEVERAL[loss]


def _answer_with_numbers(model, loss, n_scores, n_features):
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


@reads("catboost", "CatBoost")
def _catboost_model(model):
    if not model.is_fitted():
        raise NotFittedError(f"This {type(model).__name__} is not fitted yet. Call fit first.")
    content = _contents(model)
    scale, bias = content["scale_and_bias"]
    bias = np.atleast_1d(np.asarray(bias, dtype=np.float64))
    loss = _loss_of(content)
    classifies = any(cls.__name__ == "CatBoostClassifier" for cls in type(model).__mro__)
    # `n_features_in_` of a model from a pickle is 0, and a sum of models has none.
    n_features = len(model.feature_names_)
    beta = 0.0
    if classifies:
        answer = _answer_of_classifier(type(model).__name__, loss, len(bias))
        if len(bias) == 1:
            share = float(model.get_probability_threshold() or 0.5)
            beta = math.log(share / (1 - share))
    else:
        answer = _answer_with_numbers(model, loss, len(bias), n_features)
    builder = ForestBuilder()
    columns = content["features_info"].get("float_features", [])
    for tree in content.get("trees") or content.get("oblivious_trees", []):
        _add_tree(builder, _nodes(tree, len(bias)), columns, len(bias))
    return builder.build(
        bias,
        offset_last=True,
        scale=float(scale),
        answer=answer,
        classes=np.asarray(model.classes_) if classifies else None,
        beta=beta,
        by_score=classifies,
        # Its exponential is one of its own.
        blur=1e-12,
        n_features=n_features,
        dtype="float32",
        finite=False,
        columns=NumbersOnly(),
    )
