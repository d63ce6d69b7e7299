"""Properties of estimators: tags, training, answers, abstaining."""

import inspect

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from skroute.utils._validation import warn

# Name of the choice that answers nothing.
ABSTAIN_NAME = "abstain"
# Packages whose classifiers were examined for `PREDICT_BEST_SCORE`. If a classifier of
# theirs is not in it, `predict` may differ from the class of largest probability.
LIBRARIES = {"catboost", "lightgbm", "sklearn", "skorch", "xgboost"}
# Classifiers whose `predict` returns the class of largest probability, the first of
# equal ones. This follows from their code. SVC, classifiers with a threshold, nearest
# neighbours with weights and others are not among them.
PREDICT_BEST_SCORE = {
    "lightgbm.LGBMClassifier",
    "sklearn.BaggingClassifier",
    "sklearn.BernoulliNB",
    "sklearn.CalibratedClassifierCV",
    "sklearn.CategoricalNB",
    "sklearn.DecisionTreeClassifier",
    "sklearn.ExtraTreeClassifier",
    "sklearn.ExtraTreesClassifier",
    "sklearn.GaussianNB",
    "sklearn.HistGradientBoostingClassifier",
    "sklearn.LinearDiscriminantAnalysis",
    "sklearn.LogisticRegression",
    "sklearn.LogisticRegressionCV",
    "sklearn.MLPClassifier",
    "sklearn.MultinomialNB",
    "sklearn.QuadraticDiscriminantAnalysis",
    "sklearn.RandomForestClassifier",
    "skorch.NeuralNetClassifier",
    "xgboost.XGBClassifier",
    "xgboost.XGBRFClassifier",
}


def may_take_missing(model):
    """Return False if a model says that it takes no missing values.

    A pipeline is judged by its first step, also inside of a search or a calibration.
    scikit-learn takes its tags from the last step, which may never see a missing value.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    bool
    """
    if get_tags(model).input_tags.allow_nan or isinstance(model, ColumnTransformer):
        return True
    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step not in (None, "passthrough")]
        return bool(steps) and may_take_missing(steps[0])
    # A search or a calibration has the model inside. None: there is no such model.
    inner = getattr(model, "estimator", None)
    return hasattr(inner, "__sklearn_tags__") and may_take_missing(inner)


def inherit_member_tags(tags, members):
    """Set input tags from the members: the estimator accepts what all members accept.

    Parameters
    ----------
    tags : sklearn.utils.Tags
        Tags of the meta-estimator, changed in place.

    members : iterable of estimators
        The models. A model without tags is left out.

    Returns
    -------
    sklearn.utils.Tags
        The argument `tags`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.utils import get_tags
    >>> from skroute.base import inherit_member_tags
    >>> tags = get_tags(LogisticRegression())
    >>> tags.input_tags.sparse
    True
    >>> tags = inherit_member_tags(tags, [LogisticRegression(), GaussianNB()])
    >>> tags.input_tags.sparse
    False
    """
    # Tags are read before parameters are validated. `fit` refuses a member without
    # tags.
    members = [member for member in members if hasattr(member, "__sklearn_tags__")]
    member_tags = [get_tags(member) for member in members]
    tags.input_tags.sparse = all(tag.input_tags.sparse for tag in member_tags)
    tags.input_tags.allow_nan = all(map(may_take_missing, members))
    tags.input_tags.string = all(tag.input_tags.string for tag in member_tags)
    return tags


def is_frozen(model):
    """Return True if `fit` cannot train a model: it is frozen, or has no ``fit``."""
    return isinstance(model, FrozenEstimator) or not hasattr(model, "fit")


def comes_fitted(model):
    """Return True if `fit` does not train a model, which is frozen or needs no fit.

    Recorded and remote models need none. Such a model has not seen the rows of `fit`,
    and its labels may differ from those of y.
    """
    return isinstance(model, FrozenEstimator) or not get_tags(model).requires_fit


def may_take_weights(model):
    """Return True unless `fit` of a model is known not to take ``sample_weight``.

    A `fit` with ``**keywords`` passes them on to other models, such as that of an
    ensemble or a search. It may take weights, and raises an error itself if not. A
    pipeline takes keywords of its steps only.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    bool
    """
    if has_fit_parameter(model, "sample_weight"):
        return True
    if isinstance(model, Pipeline):
        return False
    parameters = inspect.signature(model.fit).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def unfrozen(model):
    """Return the estimator inside a FrozenEstimator, or the model itself."""
    return model.estimator if isinstance(model, FrozenEstimator) else model


def predicts_best_score(model):
    """Return True if `predict` takes the class of largest `predict_proba`, by its code.

    The answers to some rows do not show how the model answers others. If a model is
    known to predict its best score, `predict_proba` alone needs to be called.

    Parameters
    ----------
    model : estimator
        It may be frozen, a fitted search or a pipeline.

    Returns
    -------
    bool or None
        None for a class that is not known, such as one of the user's own.
    """
    model = unfrozen(model)
    while hasattr(model, "best_estimator_") or isinstance(model, Pipeline):
        if hasattr(model, "best_estimator_"):
            inner = model.best_estimator_  # of a search
        else:
            inner = model[-1]  # last step of a pipeline
        model = unfrozen(inner)
    # Models of skroute have an attribute with the value to return.
    if hasattr(model, "_predicts_best_score"):
        return model._predicts_best_score
    # From the class itself to its bases: the first one that defines `predict` or
    # `predict_proba` decides.
    for parent in type(model).__mro__:
        package = parent.__module__.partition(".")[0]
        if f"{package}.{parent.__name__}" in PREDICT_BEST_SCORE:
            return True
        if "predict" in vars(parent) or "predict_proba" in vars(parent):
            # `PREDICT_BEST_SCORE` does not have the class. None: the class is of a
            # package that was not examined.
            return False if package in LIBRARIES else None
    return None  # no class defines the methods


def names_best_score(model, scores, labels):
    """Return True if a fitted model answers with the first class of the best score.

    Parameters
    ----------
    model : estimator
        Fitted.

    scores : ndarray of shape (n_samples, n_classes)
        Its scores of the rows of `fit`, out of fold. They decide if the class is not
        known.

    labels : ndarray of shape (n_samples,), dtype=int64
        Its encoded answers to these rows.

    Returns
    -------
    bool
    """
    by_code = predicts_best_score(model)
    if by_code is None:
        # The code of the model was not examined. On the rows of `fit`, each answer is
        # compared with the first class of the best score.
        return bool((scores.argmax(axis=1) == labels).all())
    return by_code


def takes_keyword(estimator, keyword):
    """Return True if the calls of a decision estimator take a keyword.

    Parameters
    ----------
    estimator : estimator
        Without ``call_parameters`` it takes no keyword.
    keyword : str
    """
    parameters = getattr(estimator, "call_parameters", ())
    return keyword in [parameter.name for parameter in parameters]


def is_abstaining(name):
    """Return True if a choice abstains, by its name.

    A sequence of models has a name such as "cnn > abstain". Its last part decides.
    """
    return str(name).rpartition(" > ")[2] == ABSTAIN_NAME


def can_abstain(estimator):
    """Return True if a fitted estimator has a choice that abstains."""
    return getattr(estimator, "abstain_quality_", None) is not None


def abstained(estimator, route):
    """Return a mask of the rows whose choice abstains.

    Parameters
    ----------
    estimator : decision estimator
        Fitted.
    route : ndarray of int of shape (n_rows,)
        Index of the choice of each row. -1: a model that is not among the choices.

    Returns
    -------
    ndarray of bool of shape (n_rows,)
    """
    if not can_abstain(estimator):
        return np.zeros(len(route), dtype=bool)
    abstains = np.array([is_abstaining(name) for name in estimator.choices_])
    # -1: a model that is not among the choices. It would read the last choice here.
    return abstains[route] & (route >= 0)


def answered_rows(estimator, route):
    """Return the positions of rows that do not abstain. Warn if all rows abstain.

    Parameters
    ----------
    estimator : decision estimator
        Fitted.
    route : ndarray of int of shape (n_rows,)
        Index of the choice of each row.

    Returns
    -------
    ndarray of int
    """
    rows = np.flatnonzero(~abstained(estimator, route))
    if not len(rows):
        warn("Every row abstains: there is no answer to score.", UndefinedMetricWarning)
    return rows


def models_of(estimator):
    """Return the names of a fitted estimator's choices, without those that abstain."""
    if not can_abstain(estimator):
        return list(estimator.choices_)
    return [name for name in estimator.choices_ if not is_abstaining(name)]
