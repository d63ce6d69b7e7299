"""Trees of XGBoost: its models and raw boosters."""

import json

import numpy as np

from skroute.forests._columns import PairedByPlace
from skroute.forests._forest import ForestBuilder
from skroute.forests._readers import labels_of, reads
from skroute.forests._trees import CATEGORICAL, MISSING_RIGHT

_ANSWERS = {
    "binary:logistic": "sigmoid",
    "reg:logistic": "sigmoid",
    "multi:softprob": "softmax",
    # Of these the library tells positions of the classes.
    "multi:softmax": "position",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
} | dict.fromkeys(
    "reg:squarederror reg:absoluteerror reg:pseudohubererror rank:ndcg rank:pairwise".split(),
    "identity",
)


@reads("xgboost", "XGBModel", "Booster")
def _xgboost_model(model):
    name = type(model).__name__
    missing = getattr(model, "missing", np.nan)
    if not np.isnan(missing):
        raise ValueError(f"{name} has missing={missing!r}; only NaN is supported: replace it.")
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    content = json.loads(booster.save_raw("json"))
    learner = content["learner"]
    objective = learner["objective"]["name"]
    if objective not in _ANSWERS:
        raise ValueError(
            f"{name} has objective={objective!r}; how its scores become answers is known for "
            f"{sorted(_ANSWERS)!r} only."
        )
    # A booster answers with all its trees.
    best = None if booster is model else booster.attr("best_iteration")
    boost = learner["gradient_booster"]
    if boost["name"] != "gbtree":
        raise ValueError(f"{name} has booster={boost['name']!r}; only 'gbtree' is supported.")
    boost = boost["model"]
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in boost["trees"]):
        raise ValueError(
            f"{name} has multi_strategy='multi_output_tree'; only 'one_output_per_tree' is "
            "supported."
        )
    n_targets = int(learner["learner_model_param"].get("num_target", 1))
    if n_targets > 1:
        raise ValueError(f"{name} was fitted to y with {n_targets} columns; one is supported.")
    bounds = boost["iteration_indptr"]
    if best is not None:
        bounds = bounds[: int(best) + 2]
    classes = labels_of(model)
    has_positions = objective == "multi:softmax" and classes is not None
    builder = ForestBuilder()
    for first, last in zip(bounds, bounds[1:]):
        for i in range(first, last):
            _add_xgboost_tree(builder, boost["trees"][i], boost["tree_info"][i])
        builder.end_member()
    n_outputs = max(1, int(learner["learner_model_param"]["num_class"]))
    n_features = int(learner["learner_model_param"]["num_feature"])
    return builder.build(
        _score_without_trees(content, n_features)[:n_outputs],
        answer=_ANSWERS[objective],
        classes=classes,
        # Positions of the classes are its labels, whole numbers of this type.
        label_dtype="int32" if has_positions else "",
        n_features=n_features,
        dtype="float32",
        finite=False,
        sums="float32",
        absent=np.nan,
        columns=PairedByPlace(_categories(boost, name)),
    )


def _score_without_trees(content, n_features):
    """The score before the first tree, by the library itself: it rounds `base_score` on the way.

    The trees are taken out of the content of its file, in place.
    """
    import xgboost

    model = content["learner"]["gradient_booster"]["model"]
    model |= {"trees": [], "tree_info": [], "iteration_indptr": [0]}
    model["gbtree_model_param"]["num_trees"] = "0"
    # Without trees it takes the average for one that is still to be found.
    content["learner"]["learner_model_param"]["boost_from_average"] = "0"
    empty = xgboost.Booster(model_file=bytearray(json.dumps(content), "utf-8"))
    row = xgboost.DMatrix(np.zeros((1, n_features), dtype=np.float32))
    score = empty.predict(row, output_margin=True, validate_features=False)
    return np.ravel(score).astype(np.float64)


def _categories(boost, name):
    """Return the lists of categories by column, which the library writes down since 3.1."""
    lists = (boost.get("cats") or {}).get("enc") or []
    categories = {}
    for column, content in enumerate(lists):
        # Columns of numbers have empty lists, and only texts have offsets.
        bounds = content.get("offsets", [])
        values = content["values"]
        if bounds:
            if min(values, default=0) < 0:
                raise ValueError(
                    f"{name} was trained on categories with letters beyond ASCII in column "
                    f"{column}, of which XGBoost keeps parts only: train on other names."
                )
            text = np.array(values, dtype=np.int64).astype(np.uint8).tobytes()
            values = [text[a:b].decode() for a, b in zip(bounds, bounds[1:])]
        if values:
            categories[column] = values
    return categories


def _add_xgboost_tree(builder, tree, output):
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    condition = np.array(tree["split_conditions"], dtype=np.float32)
    categorical = np.array(tree["split_type"]) == 1
    # This library goes left where x < condition, in single precision.
    threshold = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)
    segments = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"])
    for node, start, size in segments:
        codes = np.array(tree["categories"][start : start + size])
        words = np.zeros(codes.max() // 32 + 1, dtype=np.int64)
        np.bitwise_or.at(words, codes // 32, 1 << (codes % 32))
        threshold[node] = builder.add_set(words)
    # Its sets go right; ours go left.
    left, right = np.where(categorical, right, left), np.where(categorical, left, right)
    left_if_missing = (np.array(tree["default_left"]) != 0) ^ categorical
    flags = np.where(left_if_missing, 0, MISSING_RIGHT) | np.where(categorical, CATEGORICAL, 0)
    feature, value = np.array(tree["split_indices"]), condition[:, None]
    builder.add_tree(left, right, feature, threshold, value, flags, output)
