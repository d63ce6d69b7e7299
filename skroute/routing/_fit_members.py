"""Members fitted on all rows, and what they say of rows that they were not fitted on."""

import reprlib
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, get_tags
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _is_fitted, has_fit_parameter

from skroute.base import note_failure
from skroute.metrics._objectives import asks_of
from skroute.routing._values import note_groups
from skroute.utils._compat import Integral, check_method_params, num_samples

# For each way to ask a member the method of it that takes the time, and that it must have.
METHODS = {
    None: "predict",
    "votes": "predict",
    "predict": "predict",
    "scores": "predict_proba",
    "predict_proba": "predict_proba",
}


class MemberAnswers(NamedTuple):
    """What a router learns from.

    Attributes
    ----------
    names : list of str
        The members.

    responses : list of ndarray
        For each member what it says of the training rows, out of sample, in the order of
        ``classes_``; None where the router did not ask for it.

    folds : int or list of (ndarray, ndarray)
        How the router may cross-validate its own estimates on the same rows: by so many
        folds, or by the training and test rows of each fold.

    weight : ndarray of shape (n_samples,) or None
        How much each row counts.
    """

    names: list[str]
    responses: list
    folds: Any
    weight: np.ndarray | None = None


def comes_fitted(member):
    """Whether `fit` teaches it nothing: frozen, or a recorded or remote model.

    Such a member has not seen the rows and knows its own labels.
    """
    return isinstance(member, FrozenEstimator) or not get_tags(member).requires_fit


def all_classes(classes, members):
    """The labels of y and of members that come fitted."""
    fitted = [m.classes_ for m in members if comes_fitted(m) and _is_fitted(m)]
    return np.unique(np.concatenate([classes, *fitted])) if fitted else classes


def check_classifiers(router, members, ask):
    """Refuse members that cannot be asked as the router asks them.

    Parameters
    ----------
    router : estimator
        For messages.

    members : mapping from str to estimator

    ask : str or None
        A key of `METHODS`.

    Raises
    ------
    ValueError
    """
    for name, member in members.items():
        if is_regressor(member):
            raise ValueError(
                f"The estimator {name!r} should be a classifier, got the regressor {member!r}. "
                "BudgetRouter routes between models of any kind, from a log of their quality."
            )
        method = METHODS[ask]
        if not hasattr(member, method):
            optional = asks_of(getattr(router, "quality", None)) == "predict_proba"
            raise ValueError(
                f"{type(router).__name__} needs {method}, which {name!r} ({member!r}) does "
                "not have. Wrap it in sklearn.calibration.CalibratedClassifierCV"
                + (", or take a quality of labels." if optional else ".")
            )


def check_regressors(router, members):
    """Refuse members that answer with labels.

    Parameters
    ----------
    router : estimator
        For messages.

    members : mapping from str to estimator

    Raises
    ------
    ValueError
    """
    for name, member in members.items():
        if is_classifier(member):
            raise ValueError(
                f"The estimator {name!r} should be a regressor, got the classifier {member!r}: "
                f"{type(router).__name__} routes numbers. OccamRouterClassifier routes labels."
            )


def plain_weights(members, params):
    """``sample_weight`` for every member, where scikit-learn's metadata routing is off.

    Parameters
    ----------
    members : mapping from str to estimator
    params : mapping
        With one entry.

    Returns
    -------
    dict from str to Bunch

    Raises
    ------
    ValueError
        If a member that is fitted does not take it.
    """
    found = {"cv": Bunch(split={})}
    for name, member in members.items():
        fitted = comes_fitted(member)
        if not fitted and not has_fit_parameter(member, "sample_weight"):
            raise ValueError(
                f"sample_weight is for every member, but fit of {name!r} ({member!r}) does not "
                "take it. With sklearn.set_config(enable_metadata_routing=True) each member says "
                "by set_fit_request whether it does."
            )
        found[name] = Bunch(fit={} if fitted else dict(params))
    return found


def member_folds(cv, X, y, split_params, classifier=True):
    """How members are cross-validated, and how their router may be.

    Parameters
    ----------
    cv : int, splitter, iterable or None
    X : indexable of n_samples rows
    y : ndarray
    split_params : dict
        What was routed to the splitter, such as ``groups``.
    classifier : bool, default=True
        Whether y holds classes.

    Returns
    -------
    splits : splitter or list of (ndarray, ndarray)
        Stratified where `cv` is a number.

    folds : int or list of (ndarray, ndarray)
        See `MemberAnswers`.
    """
    if cv is None or isinstance(cv, Integral):
        # Values are not classes: what is learned from them is not stratified.
        return check_cv(cv, y, classifier=classifier), 5 if cv is None else int(cv)
    with note_groups(cv):
        splits = list(check_cv(cv, y, classifier=classifier).split(X, y, **split_params))
    times = np.bincount(np.concatenate([test for _, test in splits]), minlength=num_samples(X))
    if len(wrong := np.flatnonzero(times != 1)):
        raise ValueError(
            f"cv={reprlib.repr(cv)} must test each row once, but row {wrong[0]} is tested "
            f"{times[wrong[0]]} times."
        )
    return splits, splits


def fit_member(step, name, member, X, y, target, *, ask, splits, fit_params):
    """Fit one member on all rows and ask it about them out of fold.

    A member that comes fitted has not seen the rows: it is asked directly.

    Parameters
    ----------
    step : FitTask
    name : str
    member : estimator
    X : indexable of n_samples rows
    y : ndarray
    target : SingleLabel or MultiLabel
    ask : str or None
        How, see :meth:`SingleLabel.call`; None asks nothing.
    splits : splitter or list of (ndarray, ndarray)
    fit_params : dict
        Metadata for `fit`, one entry per row.

    Returns
    -------
    fitted : estimator
    response : ndarray or None
    """
    with step:
        fitted = clone(member)
        with note_failure(name, num_samples(X), "fit"):
            fitted.fit(X, y, **fit_params)
        if ask is None:
            return fitted, None
        if comes_fitted(fitted):
            return fitted, target.call(ask, name, fitted, X)
        with note_failure(name, num_samples(X), "cross-validation"):
            return fitted, _out_of_fold(name, member, X, y, target, ask, splits, fit_params)


def _out_of_fold(name, member, X, y, target, ask, splits, fit_params):
    """What a member says of each row when it is fitted without its fold.

    Not scikit-learn's `cross_val_predict`, which trusts the order of ``classes_``.
    """
    response = None
    for train, test in splits if isinstance(splits, list) else splits.split(X, y):
        fold = clone(member)
        fold.fit(*_safe_split(fold, X, y, train), **check_method_params(X, fit_params, train))
        rows, _ = _safe_split(fold, X, y, test, train)
        part = target.call(ask, name, fold, rows)
        if response is None:
            response = np.zeros((num_samples(X), *part.shape[1:]), dtype=part.dtype)
        response[test] = part
    return response
