"""Readers: the trees of each library in one layout, and how the library answers with them.

One function per class of a source library. The table is keyed by names, so that no
library is imported to look a model up.
"""

from collections.abc import Callable
from dataclasses import replace
from reprlib import repr as short_repr

import numpy as np

from skroute.forests._columns import EncodedCells, PairedByOrder
from skroute.forests._forest import Forest, ForestBuilder
from skroute.forests._trees import CATEGORICAL, MISSING_RIGHT, ZERO, ZERO_MISSING, laid_out
from skroute.utils._compat import first_scores, histogram_boosting_of

_READERS: dict[tuple[str, str], Callable] = {}


def reads(package, *names):
    """Register a reader for classes of a package, their subclasses included."""

    def register(function):
        _READERS.update(dict.fromkeys([(package, name) for name in names], function))
        return function

    return register


def find_reader(estimator):
    """Find the function that reads an ensemble, which may be fitted or not.

    Parameters
    ----------
    estimator : object

    Returns
    -------
    callable or None
        Function of the fitted ensemble that returns a :class:`Forest`, or None when this
        ensemble has no trees. None when no reader fits.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.forests import find_reader
    >>> find_reader(RandomForestClassifier()) is None, find_reader(GaussianNB()) is None
    (False, True)
    """
    names = [(cls.__module__.split(".")[0], cls.__name__) for cls in type(estimator).__mro__]
    return next((_READERS[name] for name in names if name in _READERS), None)


def read_forest(estimator):
    """Read the trees and the labels of a fitted ensemble.

    Parameters
    ----------
    estimator : object
        Ensemble of LightGBM, XGBoost, CatBoost or scikit-learn, or a booster.

    Returns
    -------
    (Forest, classes) or None
        `classes` is None where the ensemble does not know its labels. None where no
        reader fits.

    Raises
    ------
    ValueError
        If the ensemble is of a kind that is read, with an option that is not.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import read_forest
    >>> X, y = load_iris(return_X_y=True)
    >>> forest, classes = read_forest(RandomForestClassifier(7, random_state=0).fit(X, y))
    >>> forest.n_members
    7
    """
    reader = find_reader(estimator)
    forest = None if reader is None else reader(estimator)
    return None if forest is None else (forest, forest.classes)


def labels_of(model):
    """The labels of a fitted model; None of what has none."""
    classes = getattr(model, "classes_", None)
    return None if classes is None else np.asarray(classes)


def reads_trees(estimator):
    """Whether each member of a bagging ensemble is a scikit-learn decision tree."""
    return all(hasattr(member, "tree_") for member in estimator.estimators_)


# LightGBM ---------------------------------------------------------------------------

_LIGHTGBM_ANSWERS = {
    "binary": "sigmoid",
    "cross_entropy": "sigmoid",
    "multiclassova": "sigmoid",
    "multiclass": "softmax",
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
} | dict.fromkeys(
    "regression regression_l1 huber fair quantile mape lambdarank rank_xendcg none".split(),
    "identity",
)


@reads("lightgbm", "LGBMModel")
def _lightgbm_model(model):
    forest = _lightgbm_booster(model.booster_)
    classes = getattr(model, "_classes", None)
    if classes is None:
        return forest
    if forest.answer not in ("sigmoid", "softmax"):
        raise ValueError(
            "The classifier has an objective of its own, so that its scores have no "
            "probabilities; use its booster_."
        )
    return replace(forest, classes=np.asarray(classes))


@reads("lightgbm", "Booster")
def _lightgbm_booster(booster):
    blocks = _lightgbm_blocks(booster)
    objective, *options = _fields(blocks[0]).get("objective", "none").split()
    if objective not in _LIGHTGBM_ANSWERS or "sqrt" in options:
        raise ValueError(
            f"The booster has the objective {' '.join([objective, *options])!r}; supported are "
            f"{sorted(_LIGHTGBM_ANSWERS)}, without reg_sqrt."
        )
    named = dict(option.split(":") for option in options if ":" in option)
    return replace(
        _lightgbm_forest(booster, blocks),
        answer=_LIGHTGBM_ANSWERS[objective],
        slope=float(named.get("sigmoid", 1.0)),
    )


def read_lightgbm(booster, num_iteration=None):
    """Read the trees of a LightGBM booster with any objective; the answer is their sum.

    Parameters
    ----------
    booster : lightgbm.Booster
        Without linear trees.

    num_iteration : int, default=None
        How many boosting iterations to read, -1 for all. None takes those up to the best
        one where there is one, as the booster's own ``predict`` does.

    Returns
    -------
    Forest
        Members are boosting iterations, with one tree for each output.

    Raises
    ------
    ValueError
        If the booster has linear trees, or categories that its text cannot hold, such as dates.

    Examples
    --------
    >>> import lightgbm, numpy as np
    >>> from skroute.forests import leaf_sums, read_lightgbm
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> data = lightgbm.Dataset(X, X[:, 0] > 0.5)
    >>> booster = lightgbm.train({"objective": "binary", "verbose": -1}, data, 5)
    >>> forest = read_lightgbm(booster)
    >>> bool(np.allclose(leaf_sums(forest, X)[:, 0], booster.predict(X, raw_score=True)))
    True
    """
    return _lightgbm_forest(booster, _lightgbm_blocks(booster, num_iteration))


def _lightgbm_blocks(booster, num_iteration=None):
    """Return the blocks of a booster's text: first its head, then its trees."""
    try:
        text = booster.model_to_string(num_iteration=num_iteration)
    except ValueError as error:
        if not booster.pandas_categorical:
            raise
        raise ValueError(
            "The booster was trained on a data frame with categories that LightGBM cannot write "
            "down (dates, for example). Make texts or numbers of these categories, and train again."
        ) from error
    return text.split("\n\n")


def _lightgbm_forest(booster, blocks):
    head = _fields(blocks[0])
    per_iteration = int(head["num_tree_per_iteration"])
    trees = [_fields(block) for block in blocks if block.lstrip().startswith("Tree=")]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise ValueError("Linear trees (linear_tree=True) are not supported.")
    return Forest(
        _lightgbm_trees(trees, per_iteration),
        np.zeros(per_iteration),
        # boosting="rf" adds its trees up and averages before the link.
        divisor=len(trees) / per_iteration if "average_output" in blocks[0] else 1.0,
        n_features=int(head["max_feature_idx"]) + 1,
        finite=False,
        cast="float32",
        columns=PairedByOrder(booster.pandas_categorical),
    )


def _fields(block):
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _lightgbm_trees(trees, per_iteration):
    """The trees of some blocks of text; the numbers of all are read at once."""

    def numbers(key, dtype=np.int64):
        return np.array(" ".join(tree.get(key, "") for tree in trees).split(), dtype=dtype)

    n_leaves, n_sets, tree = numbers("num_leaves"), numbers("num_cat"), np.arange(len(trees))
    # All inner nodes come first here, and then all leaves.
    first_inner, tree_of = np.cumsum(n_leaves) - n_leaves - tree, np.repeat(tree, n_leaves - 1)
    first_leaf = len(tree_of) + first_inner + tree
    kind, threshold = numbers("decision_type"), numbers("threshold", np.float64)
    categorical = (kind & 1) != 0
    # Rows come with zeros in place of what counts as zero.
    zero = ~categorical & (np.abs(threshold) <= ZERO)
    threshold[zero] = np.where(threshold[zero] < 0.0, np.nextafter(-ZERO, -1.0), ZERO)
    default_left = (kind & 2) != 0
    missing_type = kind >> 2
    # Missing type 0 reads a missing value as 0.0, 1 takes zero as missing, 2 is NaN.
    left_if_missing = np.where(missing_type == 0, threshold >= 0.0, default_left) & ~categorical
    flags = np.where(left_if_missing, 0, MISSING_RIGHT)
    flags |= np.where((missing_type == 1) & ~categorical, ZERO_MISSING, 0)
    flags |= np.where(categorical, CATEGORICAL, 0)
    threshold += np.where(categorical, (np.cumsum(n_sets) - n_sets)[tree_of], 0)
    # The bounds of each tree's sets begin at 0.
    n_words = np.diff(numbers("cat_boundaries"))
    leaf = np.full(n_leaves.sum(), -1)

    def children(key):
        # A negative child ~i is leaf i.
        child = numbers(key)
        at = np.where(child < 0, first_leaf[tree_of] + ~child, first_inner[tree_of] + child)
        return np.append(at, leaf)

    return laid_out(
        children("left_child"),
        children("right_child"),
        np.append(numbers("split_feature"), leaf),
        np.append(threshold, leaf),
        np.append(np.zeros(len(kind)), numbers("leaf_value", np.float64))[:, None],
        np.append(flags, leaf),
        np.where(n_leaves > 1, first_inner, first_leaf),
        tree % per_iteration,
        np.arange(0, len(trees) + 1, per_iteration),
        numbers("cat_threshold"),
        np.append(0, np.cumsum(n_words[n_words > 0])),
    )


# scikit-learn -----------------------------------------------------------------------


def _sklearn_forest(model, members, offset, **rules):
    """Forest of members: of each tree the arrays, what its nodes add, and to which output."""
    builder, columns = ForestBuilder(), getattr(model, "estimators_features_", None)
    for t, trees in enumerate(members):
        for tree, value, output in trees:
            feature = np.maximum(tree.feature, 0)
            feature = feature if columns is None else np.asarray(columns[t])[feature]
            flags = np.where(tree.missing_go_to_left, 0, MISSING_RIGHT)
            child = tree.children_left, tree.children_right
            builder.add_tree(*child, feature, tree.threshold, value, flags, output)
        builder.end_member()
    return builder.build(offset, n_features=model.n_features_in_, dtype="float32", **rules)


@reads("sklearn", "ForestClassifier", "BaggingClassifier", "ForestRegressor")
def read_averaged(model):
    """Forest of a fitted ensemble whose trees' answers are averaged; None for other members."""
    if (n_targets := getattr(model, "n_outputs_", 1)) != 1:
        raise ValueError(
            f"Multi-output forests are not supported: the {type(model).__name__} was fitted to y "
            f"with {n_targets} columns; fit it to one target."
        )
    return averaged(model) if reads_trees(model) else None


def averaged(model):
    """Forest of a fitted ensemble of averaged trees; a regressor may have any number of outputs."""
    classes, members = labels_of(model), []
    for member in model.estimators_:
        value = member.tree_.value[:, :, 0]
        if classes is not None:
            value = np.zeros((len(value), len(classes)))
            # A member that saw fewer classes has fewer columns.
            value[:, member.classes_.astype(np.intp)] = member.tree_.value[:, 0, :]
        members.append([(member.tree_, value, -1)])
    return _sklearn_forest(
        model,
        members,
        np.zeros(value.shape[1]),
        answer="mean",
        classes=classes,
        divisor=float(len(members)),
        # Threads of the library add in any order.
        blur=1e-12,
        finite="allow-nan",
    )


@reads("sklearn", "AdaBoostClassifier")
def _adaboost(model):
    classes, n_classes = model.classes_, len(model.classes_)
    if n_classes < 2:
        raise ValueError(
            "AdaBoostClassifier must have at least two classes: this one was fitted to rows of one "
            "class, which is its answer to every row: nothing is to be evaluated."
        )
    if not reads_trees(model):
        return None
    members, one = [], n_classes == 2
    for member, weight in zip(model.estimators_, model.estimator_weights_):
        label = member.classes_[np.argmax(member.tree_.value[:, 0, :], axis=1)]
        hit = label[:, None] == classes[None, 1 if one else 0 :]
        value = np.where(hit, weight, -1 / (n_classes - 1) * weight)
        members.append([(member.tree_, value, 0 if one else -1)])
    return _sklearn_forest(
        model,
        members,
        np.zeros(1 if one else n_classes),
        answer="vote",
        classes=np.asarray(classes),
        divisor=float(model.estimator_weights_.sum()),
        by_score=True,
    )


@reads("sklearn", "BaseGradientBoosting")
def _gradient_boosting(model):
    if not (model.init is None or isinstance(model.init, str)):
        raise ValueError(
            f"{type(model).__name__} has init={short_repr(model.init)}: the score before the "
            "first tree depends on the row. Use init=None or init='zero'."
        )
    rate = model.learning_rate
    return _sklearn_forest(
        model,
        [
            [(one.tree_, rate * one.tree_.value[:, 0, :], k) for k, one in enumerate(stage)]
            for stage in model.estimators_
        ],
        np.ravel(first_scores(model, np.zeros((1, model.n_features_in_), np.float32))),
        slope=2.0 if model.loss == "exponential" else 1.0,
        # This library answers positive at a score of exactly zero.
        beta=float(np.nextafter(0.0, -1.0)),
        **_boosted_answer(model, model.estimators_.shape[1], "identity"),
    )


def _boosted_answer(model, n_outputs, of_numbers):
    """How boosting of scikit-learn answers with its sums."""
    classes = labels_of(model)
    if classes is None:
        return {"answer": of_numbers}
    answer = "expit" if n_outputs == 1 else "sk_softmax"
    return {"answer": answer, "classes": classes, "by_score": True}


@reads("sklearn", "BaseHistGradientBoosting")
def _hist_gradient_boosting(model):
    parts = histogram_boosting_of(model)
    column, categories = _hist_columns(model, parts.preprocessor)
    builder = ForestBuilder()
    for stage in parts.predictors:
        for output, predictor in enumerate(stage):
            nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
            threshold, categorical = nodes["num_threshold"].copy(), nodes["is_categorical"] != 0
            for i in np.flatnonzero(categorical):
                threshold[i] = builder.add_set(sets[nodes["bitset_idx"][i]])
            flags = np.where(nodes["missing_go_to_left"], 0, MISSING_RIGHT)
            flags |= np.where(categorical, CATEGORICAL, 0)
            left = np.where(nodes["is_leaf"], -1, nodes["left"].astype(np.int64))
            right, feature = nodes["right"].astype(np.int64), column[nodes["feature_idx"]]
            value = nodes["value"][:, None]
            builder.add_tree(left, right, feature, threshold, value, flags, output)
        builder.end_member()
    of_numbers = "sk_exp" if model.loss in ("poisson", "gamma") else "identity"
    return builder.build(
        np.ravel(parts.baseline),
        n_features=model.n_features_in_,
        finite=False,
        columns=EncodedCells(categories),
        **_boosted_answer(model, model.n_trees_per_iteration_, of_numbers),
    )


def _hist_columns(model, preprocessor):
    """Input column of each internal column, and the categories that are encoded."""
    if preprocessor is None:
        return np.arange(model.n_features_in_), {}
    # Categorical columns come first inside.
    given = np.asarray(model.is_categorical_)
    column = np.concatenate([np.flatnonzero(given), np.flatnonzero(~given)])
    encoder = preprocessor.named_transformers_["encoder"]
    return column, dict(zip(np.flatnonzero(given).tolist(), encoder.categories_))
