"""How each library adds up its trees and answers, to the last bit.

Readers of :mod:`skroute.forests._readers` give the trees. Here stands what else an exact
answer takes: what the sums start from, in which precision they are added, and what is
made of them.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit
from sklearn.utils.extmath import softmax as sk_softmax

from skroute.forests._code_walk import walk_of
from skroute.forests._forest import CATEGORICAL, FEATURE_MASK, ForestBuilder
from skroute.forests._own_predict import own_predict
from skroute.forests._readers import (
    _add_sklearn_tree,
    _lightgbm_objective,
    read_adaboost,
    read_gradient_boosting,
    read_hist_gradient_boosting,
    read_lightgbm,
    reads_trees,
)
from skroute.forests._xgboost import booster_of, read_xgboost


class Reading(NamedTuple):
    """A forest, and how its library answers.

    Attributes
    ----------
    forest : Forest
        Sums start from its offset.

    answer : {"identity", "exp", "sigmoid", "softmax", "expit", "sk_exp", "sk_softmax", "mean", \
            "vote"}
        What becomes of the sums.

    classes : ndarray or None
        None for what does not classify.

    sums : {"float64", "float32"}
        Precision in which the trees are added up.

    divisor : float
        Number of trees, or sum of weights, where an average is taken.

    by_score : bool
        Whether labels are decided by the scores rather than by the probabilities.

    rounding : float
        Difference to the library's answers that its order of threads or its exponential may
        make.

    cut : Cut or None
        Where the answer changes, if it was moved.
    """

    forest: Any
    answer: str
    classes: Any = None
    sums: str = "float64"
    divisor: float = 1.0
    by_score: bool = False
    rounding: float = 0.0
    cut: Any = None


_EXACT: dict[tuple[str, str], Callable] = {}


def exactly(package, *names):
    """Register an exact reader for classes of a package, their subclasses included."""

    def register(function):
        _EXACT.update(dict.fromkeys([(package, name) for name in names], function))
        return function

    return register


def exact_reader(model):
    """The function that reads a model, fitted or not; None where no reader fits."""
    for cls in type(model).__mro__:
        reader = _EXACT.get((cls.__module__.split(".")[0], cls.__name__))
        if reader is not None:
            return reader
    return None


def averages(model):
    """Whether a model, fitted or not, averages what its trees answer."""
    return exact_reader(model) in (_bagged, _bagged_regressor)


def _without_labels(model, **given):
    """A stand-in for the readers of classifiers, which ask a model for its labels."""

    class StandIn(SimpleNamespace):
        def __getattr__(self, name):
            return getattr(model, name)

    return StandIn(classes_=getattr(model, "classes_", None), **given)


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


@exactly("lightgbm", "LGBMModel")
def _lightgbm_model(model):
    reading = _lightgbm_booster(model.booster_)
    classes = getattr(model, "_classes", None)
    if classes is None:
        return reading
    if reading.answer not in ("sigmoid", "softmax"):
        raise ValueError(
            "The classifier has an objective of its own, so that its scores have no "
            "probabilities; use its booster_."
        )
    return reading._replace(classes=np.asarray(classes))


@exactly("lightgbm", "Booster")
def _lightgbm_booster(booster):
    objective, options = _lightgbm_objective(booster)
    words = booster.model_to_string(num_iteration=1).split("objective=", 1)[-1].split("\n", 1)[0]
    if objective not in _LIGHTGBM_ANSWERS or "sqrt" in words.split():
        raise ValueError(
            f"The booster has the objective {words!r}; supported are "
            f"{sorted(_LIGHTGBM_ANSWERS)}, without reg_sqrt."
        )
    forest = read_lightgbm(booster)
    # boosting="rf" averages inside the link.
    divisor = float(forest.n_members) if forest.slope != 1.0 else 1.0
    forest.slope = float(options.get("sigmoid", 1.0))
    return Reading(forest, _LIGHTGBM_ANSWERS[objective], divisor=divisor)


_XGBOOST_ANSWERS = {
    "binary:logistic": "sigmoid",
    "reg:logistic": "sigmoid",
    "multi:softprob": "softmax",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
} | dict.fromkeys(
    "reg:squarederror reg:absoluteerror reg:pseudohubererror rank:ndcg rank:pairwise".split(),
    "identity",
)


@exactly("xgboost", "XGBModel", "Booster")
def _xgboost_model(model):
    booster = booster_of(model)
    learner = json.loads(booster.save_config())["learner"]
    objective = learner["objective"]["name"]
    if objective not in _XGBOOST_ANSWERS:
        raise ValueError(
            f"The XGBoost model has the objective {objective!r}; supported are "
            f"{sorted(_XGBOOST_ANSWERS)}."
        )
    forest = read_xgboost(model)
    classes = getattr(model, "classes_", None)
    labels = None if classes is None else np.asarray(classes)
    return Reading(forest, _XGBOOST_ANSWERS[objective], labels, sums="float32")


def _averaged(model, members, values, features=None):
    builder = ForestBuilder()
    for i, (member, value) in enumerate(zip(members, values)):
        columns = None if features is None else features[i]
        _add_sklearn_tree(builder, member.tree_, value, -1, columns)
        builder.end_member()
    return builder.build(
        np.zeros(values[0].shape[1]),
        n_features=model.n_features_in_,
        dtype="float32",
        finite="allow-nan",
    )


@exactly("sklearn", "ForestClassifier", "BaggingClassifier")
def _bagged(model):
    if not isinstance(model.n_classes_, (int, np.integer)):
        raise ValueError(
            f"FastForest takes one target, the {type(model).__name__} was fitted to y with "
            f"{len(model.n_classes_)} columns."
        )
    if not reads_trees(model):
        raise ValueError(
            f"FastForest takes {type(model).__name__} of decision trees, got members of "
            f"{type(model.estimators_[0]).__name__}."
        )
    values = []
    for member in model.estimators_:
        proba = np.zeros((member.tree_.node_count, len(model.classes_)))
        # A member that saw fewer classes has fewer columns.
        proba[:, member.classes_.astype(np.intp)] = member.tree_.value[:, 0, :]
        values.append(proba)
    features = getattr(model, "estimators_features_", None)
    forest = _averaged(model, model.estimators_, values, features)
    return Reading(forest, "mean", np.asarray(model.classes_), divisor=len(values), rounding=1e-12)


@exactly("sklearn", "ForestRegressor")
def _bagged_regressor(model):
    if model.n_outputs_ != 1:
        raise ValueError(
            f"FastForest takes one target, the {type(model).__name__} was fitted to y with "
            f"{model.n_outputs_} columns."
        )
    forest = averaged_regressor(model)
    return Reading(forest, "mean", divisor=forest.n_members, rounding=1e-12)


def averaged_regressor(model):
    """Forest of a fitted ``ForestRegressor``, of any number of outputs; sums, not means."""
    values = [member.tree_.value[:, :, 0] for member in model.estimators_]
    return _averaged(model, model.estimators_, values)


@exactly("sklearn", "BaseGradientBoosting")
def _gradient_boosting(model):
    forest, classes = read_gradient_boosting(
        _without_labels(model, decision_function=lambda X: model._raw_predict(X.astype(np.float32)))
    )
    forest.offset = np.ravel(model._raw_predict_init(np.zeros((1, forest.n_features), np.float32)))
    if classes.ndim == 0:
        return Reading(forest, "identity")
    answer = "expit" if forest.n_outputs == 1 else "sk_softmax"
    return Reading(forest, answer, classes, by_score=True)


@exactly("sklearn", "BaseHistGradientBoosting")
def _hist_gradient_boosting(model):
    forest, classes = read_hist_gradient_boosting(_without_labels(model))
    if classes.ndim == 0:
        return Reading(forest, "sk_exp" if model.loss in ("poisson", "gamma") else "identity")
    answer = "expit" if forest.n_outputs == 1 else "sk_softmax"
    return Reading(forest, answer, classes, by_score=True)


@exactly("sklearn", "AdaBoostClassifier")
def _adaboost(model):
    if len(model.classes_) < 2:
        raise ValueError("FastForest takes AdaBoostClassifier of at least two classes, got one.")
    found = read_adaboost(model) if reads_trees(model) else None
    if found is None:
        raise ValueError(
            "FastForest takes AdaBoostClassifier of decision trees, got members of "
            f"{type(model.estimators_[0]).__name__}."
        )
    forest, classes = found
    builder, n_classes = ForestBuilder(), len(classes)
    for member, weight in zip(model.estimators_, model.estimator_weights_):
        label = member.classes_[np.argmax(member.tree_.value[:, 0, :], axis=1)]
        hit = label[:, None] == classes[None, 1 if n_classes == 2 else 0 :]
        value = np.where(hit, weight, -1 / (n_classes - 1) * weight)
        _add_sklearn_tree(builder, member.tree_, value, 0 if n_classes == 2 else -1)
        builder.end_member()
    forest.trees = builder.build(np.zeros(forest.n_outputs), n_features=1).trees
    total = float(model.estimator_weights_.sum())
    return Reading(forest, "vote", classes, divisor=total, by_score=True)


def decision(reading, scores):
    """What ``decision_function`` of the library returns, of shape (n, n_outputs)."""
    if reading.answer != "vote":
        return scores
    scores = scores / reading.divisor
    return scores * 2 if scores.shape[1] == 1 else scores


def answer(reading, scores):
    """Probabilities of shape (n, n_classes), or what a regressor predicts.

    Parameters
    ----------
    reading : Reading
    scores : ndarray of shape (n, n_outputs)

    Returns
    -------
    ndarray of shape (n, n_classes) or (n,)
    """
    from skroute.forests._link_kernels import exponential, sigmoid, softmax

    kind, forest = reading.answer, reading.forest
    if kind == "vote":
        scores = decision(reading, scores)
        n_classes = len(reading.classes)
        if n_classes == 2:
            return sk_softmax(np.hstack([-scores, scores]) / 2)
        return sk_softmax(scores / (n_classes - 1))
    if reading.divisor != 1.0:
        scores = scores / reading.divisor
    if kind == "sigmoid":
        found = sigmoid(scores, scores.dtype.type(forest.slope))
    elif kind == "softmax":
        found = softmax(scores)
    elif kind == "expit":
        found = expit(scores * forest.slope)
    elif kind == "sk_softmax":
        found = sk_softmax(scores)
    elif kind == "exp":
        found = exponential(scores)
    else:
        found = np.exp(scores) if kind == "sk_exp" else scores
    if found.shape[1] > 1 or (kind == "mean" and reading.classes is not None):
        return found
    if reading.classes is None:
        return found[:, 0]
    proba = np.empty((len(found), 2), dtype=found.dtype)
    proba[:, 1:] = found
    proba[:, :1] = 1 - found
    return proba


def label_positions(reading, scores):
    """Position of each row's label among the classes."""
    if reading.cut is not None:
        asked = reading.cut.response == "predict_proba"
        found = answer(reading, scores) if asked else decision(reading, scores)[:, 0]
        return reading.cut.positions(found, reading.classes)
    if reading.by_score:
        scores = decision(reading, scores)
        if scores.shape[1] == 1:
            return (scores[:, 0] > reading.forest.beta).astype(np.intp)
        return np.argmax(scores, axis=1)
    if reading.answer == "sigmoid" and reading.divisor == 1.0 and scores.shape[1] == 1:
        # Far enough from even chances, rounding of the probability does not matter.
        if np.abs(scores).min() * abs(reading.forest.slope) > 1e-3:
            return ((scores[:, 0] > 0) == (reading.forest.slope > 0)).astype(np.intp)
    proba = answer(reading, scores)
    if proba.shape[1] == 2:
        return (proba[:, 1] > proba[:, 0]).astype(np.intp)
    return np.argmax(proba, axis=1)


def exact_sums(reading, X, n_jobs=None):
    """Scores of rows, added up as the library does.

    Parameters
    ----------
    reading : Reading
    X : ndarray of shape (n, n_features)
        As `rows_of` returns it.

    n_jobs : int, default=None
        Threads.

    Returns
    -------
    ndarray of shape (n, n_outputs)
    """
    from skroute.forests._bitvector_kernels import BLOCK

    forest, n = reading.forest, len(X)
    out = np.empty((n, forest.n_outputs), dtype=reading.sums)
    out[:] = forest.offset
    column = np.arange(forest.n_outputs)
    walk = walk_of(forest, n, (0, forest.n_members))

    def add(start, stop):
        walk(X, start, stop, column, out)

    n_threads = 1 if n <= BLOCK else min(effective_n_jobs(n_jobs), -(-n // BLOCK))
    if n_threads <= 1:
        add(0, n)
        return out
    bounds = np.linspace(0, n, n_threads + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(add, bounds[:-1], bounds[1:]))
    return out


def probe_rows(forest, random_state, n=200):
    """Rows at the thresholds of a forest and one step beside them; None where they are text."""
    nodes = forest.trees.nodes
    inner = nodes[nodes["child"] != np.arange(len(nodes))]
    X = random_state.normal(size=(n, forest.n_features)).astype(forest.dtype)
    for feature in np.unique(inner["feature"] & FEATURE_MASK):
        split = inner[(inner["feature"] & FEATURE_MASK) == feature]
        if (split["feature"] & CATEGORICAL).any():
            X[:, feature] = random_state.randint(0, 70, n)
        else:
            with np.errstate(over="ignore"):
                at = random_state.choice(split["threshold"], n).astype(forest.dtype)
                to = random_state.choice(np.array([-np.inf, np.inf]), n).astype(forest.dtype)
                at = np.where(random_state.rand(n) < 0.5, at, np.nextafter(at, to))
            X[:, feature] = np.where(np.isfinite(at), at, X[:, feature])
    for feature, values in forest.categories.items() if forest.encode_arrays else ():
        if np.asarray(values).dtype.kind not in "fiu":
            return None
        X[:, feature] = random_state.choice(np.asarray(values), n)
    if forest.finite is not True:
        X[random_state.rand(*X.shape) < 0.05] = np.nan
    return X


def library_scores(model, X):
    """The library's own sums where it tells them, else None."""
    for cls in type(model).__mro__:
        package = cls.__module__.split(".")[0]
        if package == "lightgbm":
            return model.predict(X, raw_score=True)
        if package in ("xgboost", "catboost"):
            return own_predict(model, X, raw=True)
    return model.decision_function(X) if hasattr(model, "decision_function") else None
