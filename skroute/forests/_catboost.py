"""Trees of CatBoost, whose nodes of one level ask the same."""

import json
import math
import tempfile
from pathlib import Path

import numpy as np

from skroute.forests._columns import NumbersOnly
from skroute.forests._forest import ForestBuilder
from skroute.forests._readers import reads
from skroute.forests._trees import MISSING_RIGHT

_ANSWERS = {
    "Logloss": "expit",
    "CrossEntropy": "expit",
    "MultiClass": "sk_softmax",
    "MultiClassOneVsAll": "expit",
}
_EXPONENTS = ("Poisson", "Tweedie", "LogLinQuantile")


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
        found = json.loads(path.read_text())
    scale, bias = found["scale_and_bias"]
    if scale != 1:
        raise ValueError(
            f"{name} has scale={scale!r}, of which only 1 is supported: call "
            "set_scale_and_bias(1, bias)."
        )
    return found, np.atleast_1d(np.asarray(bias, dtype=np.float64))


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


@reads("catboost", "CatBoost")
def _catboost_model(model):
    name = type(model).__name__
    objective = str(model.get_all_params()["loss_function"]).split(":", 1)[0]
    classifies = any(cls.__name__ == "CatBoostClassifier" for cls in type(model).__mro__)
    if classifies and objective not in _ANSWERS:
        raise ValueError(
            f"{name} has loss_function={objective!r}; how its scores become probabilities is "
            f"known for {sorted(_ANSWERS)!r} only."
        )
    found, bias = _contents(model)
    if not classifies and len(bias) > 1:
        raise ValueError(
            f"{name} has loss_function={objective!r}, which gives each row {len(bias)} numbers; "
            "one is supported."
        )
    # The general class answers with scores, whatever its objective.
    answer = "sk_exp" if objective in _EXPONENTS and name != "CatBoost" else "identity"
    beta = 0.0
    if classifies:
        answer = _ANSWERS[objective]
        if len(bias) == 1:
            share = float(model.get_probability_threshold() or 0.5)
            beta = math.log(share / (1 - share))
    builder = ForestBuilder()
    columns = found["features_info"].get("float_features", [])
    for tree in found.get("trees") or found.get("oblivious_trees", []):
        _add_tree(builder, _nodes(tree, len(bias)), columns, len(bias))
    return builder.build(
        bias,
        offset_last=True,
        answer=answer,
        classes=np.asarray(model.classes_) if classifies else None,
        beta=beta,
        by_score=classifies,
        # Its exponential is one of its own.
        blur=1e-12,
        # `n_features_in_` of a model from a pickle is 0.
        n_features=len(model.feature_names_),
        dtype="float32",
        finite=False,
        columns=NumbersOnly(),
    )
