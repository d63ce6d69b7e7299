"""Checks, the fit and the engine of QWYC's parameter `estimator`."""

from reprlib import repr as short_repr

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

from skroute.base import note_failure
from skroute.base._inspection import is_frozen, unfrozen
from skroute.early_exit._engine import Link, builds_engine, find_builder
from skroute.early_exit._model_engines import (
    HALF_VOTE,
    ExitEngine,
    MemberEngine,
    response_of,
)
from skroute.forests import find_reader
from skroute.forests._partial_sums import partial_sums
from skroute.forests._wrapped import take_apart
from skroute.members import ExitNet
from skroute.utils._compat import num_samples

# Bound on the rounding of a sum of members' scores, in units in the last place of the
# largest sum. If it is too large, the ensemble itself is only asked about more rows.
# `skroute.forests._forest` has the same bound for the sums of trees.
_ROUNDING_UNITS = 16
# Score of scikit-learn's AdaBoost for two classes, if each member votes for the second
# class. It is -2 if each votes for the first one.
_ADABOOST_SCORE = 2.0

# Fitting ------------------------------------------------------------------------------


def fittable_models(estimator):
    """Return the models of the parameter `estimator` by name: itself, or its members.

    Parameters
    ----------
    estimator : object, list or tuple

    Returns
    -------
    dict from str to object
    """
    if isinstance(estimator, (list, tuple)):
        return {f"member_{i}": member for i, member in enumerate(estimator)}
    return {"estimator": estimator}


def check_estimator(estimator):
    """Raise an error if `estimator` is not known to add up the scores of members."""
    if not isinstance(estimator, (list, tuple)):
        check_ensemble(unfrozen(estimator))
    elif not len(estimator):
        raise ValueError("estimator is an empty list; give at least one member.")


def fit_models(estimator, X, y, params):
    """Return the fitted ensemble, or the list of fitted members.

    Parameters
    ----------
    estimator : estimator, booster or list of members
        Frozen models are not fitted.

    X : indexable
        Training rows.

    y : array-like
        Labels.

    params : callable
        ``params(name)`` returns the metadata for the `fit` of a model of
        :func:`fittable_models`.

    Returns
    -------
    object or list
        A list of members if `estimator` is a list or a tuple.
    """
    fitted = []
    for name, model in fittable_models(estimator).items():
        if not is_frozen(model):
            model = clone(model)
            with note_failure(type(model).__name__, num_samples(X), "fit"):
                model.fit(X, y, **params(name))
        fitted.append(unfrozen(model))
    # An ensemble is one model. Members are a list.
    return fitted if isinstance(estimator, (list, tuple)) else fitted[0]


def offers_proba(estimator):
    """Return True if an ensemble that is not fitted yet will have probabilities.

    Parameters
    ----------
    estimator : estimator, booster or list of members
    """
    if isinstance(estimator, (list, tuple)):
        return all(hasattr(member, "predict_proba") for member in estimator)
    # Among the supported ensembles, only `VotingClassifier(voting="hard")` has no
    # probabilities. Other ensembles have no attribute `voting`.
    return getattr(unfrozen(estimator), "voting", "soft") != "hard"


def takes_nan(model):
    """Return True if a model reads rows with NaN.

    Parameters
    ----------
    model : object
        A pipeline, or an ensemble behind a moved threshold. For all other models the
        result is False: the tags of the model itself are used.
    """
    # `cut` is a decision threshold that the user has moved, or None.
    ensemble, transformers, cut = take_apart(model)
    if transformers:
        # The steps of the pipeline refuse NaN by themselves if they do not read it.
        return True
    if cut is None:
        return False
    return get_tags(ensemble).input_tags.allow_nan


def check_ensemble(estimator):
    """Raise an error if an ensemble is not known to add up its members' scores.

    Other ensembles (stacking, one against the rest) combine their members otherwise.

    Parameters
    ----------
    estimator : object
        An ensemble, fitted or not, perhaps behind the steps of a pipeline.

    Raises
    ------
    TypeError
    """
    # `cut` is a decision threshold that the user has moved, or None.
    ensemble, _, cut = take_apart(estimator)
    # A raw booster has neither `predict_proba` nor `fit`. Its reader checks that it
    # classifies.
    classifies = hasattr(type(ensemble), "predict_proba") or not hasattr(
        ensemble, "fit"
    )
    if classifies and find_reader(ensemble) is not None:
        return
    is_net = isinstance(unfrozen(ensemble), ExitNet)
    has_engine = is_net or find_builder(ensemble) is not None
    if has_engine and cut is None:
        return
    if has_engine:
        advice = "A moved threshold is read around ensembles of trees only."
    elif hasattr(ensemble, "fit") and is_regressor(ensemble):
        advice = "It is a regressor, whose answers are not labels: give the classifier."
    else:
        advice = ""
    raise TypeError(
        "estimator must be an ensemble of LightGBM, XGBoost, CatBoost or scikit-learn "
        "(boosting, forests, bagging, AdaBoost, voting) or a Pipeline that ends in "
        "one, a net with exits (MultiExitClassifier), or a list of members with "
        "scores, got "
        f"{short_repr(estimator)}. {advice}".rstrip()
    )


# Engines of fitted ensembles ----------------------------------------------------------


def engine_of(fitted, y=None, known_classes=None):
    """Return the engine and the classes of a fitted ensemble, or of fitted members.

    Parameters
    ----------
    fitted : object or list
        From :func:`fit_models`.

    y : array-like, default=None
        Labels. Their classes are taken if the ensemble has no classes.

    known_classes : ndarray, default=None
        Classes of an earlier fit, which are taken if there are no labels.

    Returns
    -------
    engine : Engine
    classes : ndarray of shape (n_classes,)
    """
    if isinstance(fitted, (list, tuple)):
        classes = _classes_of_members(fitted, y, known_classes)
        return _list_engine(list(fitted), classes), classes
    engine, classes = ensemble_engine(fitted)
    if classes is not None:
        return engine, classes
    # An engine of two classes has one output.
    n_classes = max(2, engine.n_outputs)
    if y is None and known_classes is None:
        # Without labels or an earlier fit, classes are numbered.
        return engine, np.arange(n_classes)
    if y is None:
        return engine, known_classes
    classes = np.unique(y)
    if len(classes) != n_classes:
        raise ValueError(
            f"The booster has {n_classes} classes, y has {len(classes)}: {classes!r}. "
            "Give rows of each class, or use optimize(X)."
        )
    return engine, classes


def _classes_of_members(members, y, known_classes):
    """Return all classes of the members, the labels and an earlier fit, sorted.

    Parameters
    ----------
    members : list
    y : array-like or None
        Labels.

    known_classes : ndarray or None
        Classes of an earlier fit.

    Returns
    -------
    ndarray of shape (n_classes,)
    """
    all_classes = []
    for member in members:
        if getattr(member, "classes_", None) is not None:
            all_classes.append(member.classes_)
    if y is not None:
        all_classes.append(np.unique(y))
    if known_classes is not None:
        all_classes.append(known_classes)
    if not all_classes:
        raise ValueError(
            "The members do not know their classes; call fit with labels, or use "
            "members with classes_."
        )
    return np.unique(np.concatenate(all_classes))


def _list_engine(members, classes):
    """Return the engine of a list of members whose scores are added.

    The ensemble has probabilities only if each member is asked for probabilities: they
    are then averaged.

    Parameters
    ----------
    members : list
        Fitted estimators or functions of rows.

    classes : ndarray of shape (n_classes,)

    Returns
    -------
    MemberEngine
    """
    methods = [response_of(member) for member in members]
    link = Link("mean") if set(methods) == {"predict_proba"} else None
    return MemberEngine(members, classes, methods=methods, link=link)


def ensemble_engine(estimator):
    """Return the engine and the classes of a fitted ensemble of a library.

    Parameters
    ----------
    estimator : object
        A fitted ensemble, perhaps behind the steps of a pipeline, which the engine
        leaves out.

    Returns
    -------
    engine : Engine
    classes : ndarray of shape (n_classes,) or None
        None if the ensemble has no labels, like a raw booster.
    """
    # `cut` is a decision threshold that the user has moved, or None.
    ensemble, _, cut = take_apart(estimator)
    # `fit` of a net sets the number of its exits.
    is_net = isinstance(unfrozen(ensemble), ExitNet)
    is_fitted_net = is_net and hasattr(ensemble, "n_exits_")
    if is_fitted_net and cut is None:
        return ExitEngine(ensemble), np.asarray(ensemble.classes_)
    reader = find_reader(ensemble)
    forest = None if reader is None else reader.read(ensemble)
    if forest is not None:
        return _forest_engine(forest, cut, type(ensemble).__name__), forest.classes
    if cut is not None:
        raise ValueError(
            "A moved threshold is read around ensembles of trees only, which is not "
            f"what {short_repr(ensemble)} is."
        )
    check_ensemble(ensemble)
    build = find_builder(ensemble)
    if build is None:
        # `check_ensemble` accepts a net that will have exits once it is fitted.
        raise NotFittedError(
            f"The {type(ensemble).__name__} is not fitted; call fit first."
        )
    return build(ensemble), np.asarray(ensemble.classes_)


def _forest_engine(forest, cut, name):
    """Return the engine of an ensemble that was read as a `Forest`.

    Parameters
    ----------
    forest : Forest
        Made by a reader.

    cut : Cut or None
        Moves the threshold of the decision. None leaves it.

    name : str
        Class of the ensemble, for errors.

    Returns
    -------
    ForestEngine
    """
    from skroute.early_exit._forest_engine import ForestEngine

    classes = forest.classes
    if classes is not None and len(classes) < 2 and forest.answer_rule.kind != "mean":
        raise ValueError(
            f"This {name} was fitted to rows of one class, which is its answer to "
            "every row: nothing is to be evaluated."
        )
    return ForestEngine(partial_sums(forest.with_cut(cut), name))


# Ensembles of scikit-learn whose members are not trees --------------------------------


@builds_engine("sklearn", "VotingClassifier")
def _voting_engine(voting):
    """Return the engine of a `VotingClassifier`, without its dropped members."""
    # Members that are dropped have a weight, but no entry in `estimators_`.
    members = list(voting.estimators_)
    weights = np.ones(len(members))
    if voting.weights is not None:
        # True for members that are not dropped.
        in_use = [member != "drop" for _, member in voting.estimators]
        weights = np.asarray(voting.weights, dtype=np.float64)[in_use]
    if voting.voting == "hard":
        method = "predict"
        link = None
    else:
        method = "predict_proba"
        link = Link("mean")
    return _averaging_engine(voting, members, weights=weights, method=method, link=link)


@builds_engine("sklearn", "BaggingClassifier", "ForestClassifier")
def _bagging_engine(bagging):
    """Return the engine of a bagging ensemble or a forest of scikit-learn.

    Probabilities of the members are averaged if each member has them. Otherwise votes
    are counted. Bagged trees that :func:`skroute.forests.find_reader` can read do not
    come here: their engine is :class:`ForestEngine`.
    """
    members = list(bagging.estimators_)
    have_proba = all(hasattr(member, "predict_proba") for member in members)
    all_features = np.arange(bagging.n_features_in_)
    # Columns of each member. A forest has none: its members read all features.
    columns = getattr(bagging, "estimators_features_", [])
    if all(np.array_equal(features, all_features) for features in columns):
        # None stands for all features. It spares a copy of the rows for each member.
        columns = None
    return _averaging_engine(
        bagging,
        members,
        weights=np.ones(len(members)),
        method="predict_proba" if have_proba else "predict",
        link=Link("mean"),
        columns=columns,
    )


def _averaging_engine(ensemble, members, *, weights, method, link, columns=None):
    """Return the engine of members whose probabilities or votes are averaged.

    Parameters
    ----------
    ensemble : estimator
        Its classes are the answers.

    members : list
        Fitted estimators, which answer with positions of the classes.

    weights : ndarray of shape (n_members,)
        Weight of each member's answer.

    method : {"predict", "predict_proba"}
        Method by which the members are asked.

    link, columns
        As for :class:`MemberEngine`.

    Returns
    -------
    MemberEngine
    """
    return MemberEngine(
        members,
        np.arange(len(ensemble.classes_)),
        weights,
        columns=columns,
        methods=[method] * len(members),
        rounding=_rounding_of(weights),
        link=link,
        averages_members=True,
    )


@builds_engine("sklearn", "AdaBoostClassifier")
def _adaboost_engine(adaboost):
    """Return the engine of AdaBoost, whose members have weighted votes.

    Its scores are those of AdaBoost's ``decision_function``.
    """
    members = list(adaboost.estimators_)
    n_classes = len(adaboost.classes_)
    # If boosting ended early, `estimator_weights_` has more entries than members.
    weights = (
        adaboost.estimator_weights_[: len(members)] / adaboost.estimator_weights_.sum()
    )
    if n_classes <= 2:
        # Members score `HALF_VOTE` for the second class, and the negative of it for the
        # first one.
        weights = weights * (_ADABOOST_SCORE / HALF_VOTE)
        link = Link("logistic")
    else:
        # `predict_proba` divides the scores by `n_classes - 1` before the softmax.
        link = Link("softmax", slope=1.0 / (n_classes - 1))
    return MemberEngine(
        members,
        adaboost.classes_,
        weights,
        methods=["predict"] * len(members),
        rounding=_rounding_of(np.ones(len(members))),
        # Score of each class that a vote is not for. The scores of a vote sum to 0.
        # `max` is for an ensemble of one class, which has no other class.
        missed_vote=-1.0 / max(1, n_classes - 1),
        link=link,
    )


def _rounding_of(weights):
    """Return a bound on the rounding difference of sums of scores in two orders.

    Parameters
    ----------
    weights : ndarray of shape (n_members,)
        Weights of the members, whose scores are at most 1 in absolute value.

    Returns
    -------
    float
    """
    # 1 more than the largest sum, so that the bound is not 0 if all weights are 0.
    largest_sum = np.abs(weights).sum() + 1.0
    return _ROUNDING_UNITS * np.finfo(np.float64).eps * largest_sum
