"""Trees of XGBoost: its models and raw boosters."""

import json

import numpy as np

from skroute.forests._columns import PairedByPlace
from skroute.forests._forest import ForestBuilder
from skroute.forests._reader import ForestReader, labels_of
from skroute.forests._rules import AnswerRule, ReadRule, SumRule
from skroute.forests._trees import CATEGORICAL, MISSING_RIGHT

_KINDS = {
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


class XGBoostReader(ForestReader):
    """Reader of the models and of the raw boosters of XGBoost."""

    package = "xgboost"
    class_names = ("XGBModel", "Booster")

    def read(self, estimator):
        """Read a fitted model or booster."""
        name = type(estimator).__name__
        missing = getattr(estimator, "missing", np.nan)
        if not np.isnan(missing):
            raise ValueError(
                f"{name} has missing={missing!r}; only NaN is supported: replace it."
            )
        is_model = hasattr(estimator, "get_booster")
        booster = estimator.get_booster() if is_model else estimator
        content = json.loads(booster.save_raw("json"))
        learner = content["learner"]
        objective = _checked_objective(learner, name)
        boost = _checked_trees(learner, name)
        bounds = boost["iteration_indptr"]
        # A booster answers with all its trees.
        best_iteration = booster.attr("best_iteration") if is_model else None
        if best_iteration is not None:
            bounds = bounds[: int(best_iteration) + 2]
        builder = ForestBuilder()
        for first, last in zip(bounds, bounds[1:]):
            for i in range(first, last):
                _add_tree(builder, boost["trees"][i], output=boost["tree_info"][i])
            builder.end_member()
        classes = labels_of(estimator)
        label_dtype = ""
        if objective == "multi:softmax" and classes is not None:
            # Positions of the classes are its labels, whole numbers of this type.
            label_dtype = "int32"
        categories = _categories_of(boost, name)
        n_outputs = max(1, int(learner["learner_model_param"]["num_class"]))
        n_features = int(learner["learner_model_param"]["num_feature"])
        return builder.build(
            _score_without_trees(content, n_features)[:n_outputs],
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
    """Return the objective of a model; a ValueError if its answers are not known."""
    objective = learner["objective"]["name"]
    if objective not in _KINDS:
        raise ValueError(
            f"{name} has objective={objective!r}; how its scores become answers is known for "
            f"{sorted(_KINDS)!r} only."
        )
    return objective


def _checked_trees(learner, name):
    """Return the part of a model with its trees; a ValueError if they are of another kind."""
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise ValueError(
            f"{name} has booster={booster['name']!r}; only 'gbtree' is supported."
        )
    boost = booster["model"]
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in boost["trees"]):
        raise ValueError(
            f"{name} has multi_strategy='multi_output_tree'; only 'one_output_per_tree' is "
            "supported."
        )
    n_targets = int(learner["learner_model_param"].get("num_target", 1))
    if n_targets > 1:
        raise ValueError(
            f"{name} was fitted to y with {n_targets} columns; one is supported."
        )
    return boost


def _score_without_trees(content, n_features):
    """Return the score before the first tree by the library itself, which rounds `base_score`.

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


def _categories_of(boost, name):
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


def _add_tree(builder, tree, output):
    """Add a tree of the model's file to the member that is being built."""
    left = np.array(tree["left_children"])
    right = np.array(tree["right_children"])
    condition = np.array(tree["split_conditions"], dtype=np.float32)
    categorical = np.array(tree["split_type"]) == 1
    # This library goes left where x < condition, in single precision.
    threshold = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)
    segments = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"]
    )
    for node, start, size in segments:
        codes = np.array(tree["categories"][start : start + size])
        words = np.zeros(codes.max() // 32 + 1, dtype=np.int64)
        np.bitwise_or.at(words, codes // 32, 1 << (codes % 32))
        threshold[node] = builder.add_set(words)
    left_if_missing = (np.array(tree["default_left"]) != 0) ^ categorical
    flags = np.where(left_if_missing, 0, MISSING_RIGHT)
    flags |= np.where(categorical, CATEGORICAL, 0)
    builder.add_tree(
        # Its sets go right; ours go left.
        left=np.where(categorical, right, left),
        right=np.where(categorical, left, right),
        feature=np.array(tree["split_indices"]),
        threshold=threshold,
        value=condition[:, None],
        flags=flags,
        output=output,
    )
