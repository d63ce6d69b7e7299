"""Trees of CatBoost, whose nodes of one level ask the same."""

import json
import math
import tempfile
from pathlib import Path

import numpy as np

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


def _complete(tree, n_outputs):
    """An oblivious tree as parallel arrays: the last split is asked first."""
    splits = tree.get("splits") or []
    depth = len(splits)
    n_inner = 2**depth - 1
    at = np.arange(2 * n_inner + 1)
    left = np.where(at < n_inner, 2 * at + 1, -1)
    # Nodes of level k are 2**k - 1, ..., 2**(k + 1) - 2.
    level = np.frexp((at[:n_inner] + 1).astype(np.float64))[1] - 1
    split = [splits[depth - 1 - k] for k in level]
    value = np.zeros((len(at), n_outputs))
    value[n_inner:] = np.reshape(tree["leaf_values"], (-1, n_outputs))
    return left, split, value


def _grown(tree, n_outputs):
    """A tree that is not oblivious as parallel arrays."""
    left, splits, value, todo = [], [], [], [tree]
    for node in todo:
        is_leaf = "value" in node
        left.append(-1 if is_leaf else len(todo))
        splits.append(None if is_leaf else node["split"])
        value.append(np.ravel(node["value"]) if is_leaf else np.zeros(n_outputs))
        todo += [] if is_leaf else [node["left"], node["right"]]
    return np.array(left), splits, np.array(value)


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
    return _builder_of(found, len(bias)).build(
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
    )


def _builder_of(found, n_outputs):
    columns = found["features_info"].get("float_features", [])
    builder = ForestBuilder()
    oblivious = "oblivious_trees" in found
    lay_out = _complete if oblivious else _grown
    for tree in found["oblivious_trees" if oblivious else "trees"]:
        left, splits, value = lay_out(tree, n_outputs)
        feature = np.zeros(len(left), dtype=np.int32)
        threshold = np.zeros(len(left))
        flags = np.zeros(len(left), dtype=np.int32)
        for i, split in enumerate(splits):
            if split is None:
                continue
            column = columns[split["float_feature_index"]]
            feature[i] = column["flat_feature_index"]
            threshold[i] = np.float32(split["border"])
            flags[i] = MISSING_RIGHT if column["nan_value_treatment"] == "AsTrue" else 0
        right = np.where(left < 0, -1, left + 1)
        to = -1 if n_outputs > 1 else 0
        builder.add_tree(left, right, feature, threshold, value, flags, to)
        builder.end_member()
    return builder
