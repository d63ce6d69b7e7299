"""Out-of-sample probabilities of the full model for the rows it is trained on."""

from typing import NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.gating._boosting import cloned
from skroute.utils._compat import _safe_indexing, check_method_params, num_samples
from skroute.utils._named import align_by_class
from skroute.utils._typing import NDArray
from skroute.utils._validation import check_probabilities


def fit_full(estimator, X, y, params):
    """Fit a clone of the full model. A frozen model is not fitted.

    Parameters
    ----------
    estimator : classifier
        The full model. It is cloned.

    X : indexable of n_rows rows

    y : ndarray of shape (n_rows,)

    params : dict
        Parameters of the estimator's `fit`.

    Returns
    -------
    classifier
    """
    n_samples = num_samples(X)
    with note_failure("full", n_samples, "fit"):
        return cloned(estimator, n_samples).fit(X, y, **params)


def out_of_sample_proba(estimator, fitted, X, y, *, splits, params, n_jobs):
    """Return probabilities ``p0(. | x_i)`` of a full model that has not seen row i.

    They come from the fitted model itself if it is frozen, from its out-of-bag votes if
    it offers them, and from cross-validation otherwise.

    Parameters
    ----------
    estimator : classifier
        The full model, not fitted unless it is frozen.

    fitted : classifier
        The full model fitted on all rows.

    X : indexable of n_rows rows

    y : ndarray of shape (n_rows,)

    splits : list of (train, test)
        Positions of the training and the test rows of each fold.

    params : dict
        Parameters of the full model's `fit`.

    n_jobs : int or None

    Returns
    -------
    ndarray of shape (n_rows, n_classes), dtype=float64
        Columns in the order of the sorted classes.
    """
    classes = np.unique(y)
    if isinstance(estimator, FrozenEstimator):
        with note_failure("full", num_samples(X), "predict_proba"):
            proba = check_probabilities(fitted.predict_proba(X), "estimator")
    else:
        proba = _out_of_bag_votes(fitted)
    if proba is not None:
        proba = np.asarray(proba, dtype=np.float64)
        return align_by_class(proba, fitted.classes_, classes)
    # The model is not frozen, and has no out-of-bag votes for all rows.
    folds = Parallel(n_jobs=n_jobs)(
        delayed(_predict_fold)(estimator, X, y, train=train, test=test, params=params)
        for train, test in splits
    )
    return _mean_of_folds(folds, num_samples(X), classes)


def _out_of_bag_votes(fitted):
    """Return the out-of-bag votes of a fitted model, (n_rows, n_classes), or None.

    None if the model has no such votes, or if some row has no vote.
    """
    votes = getattr(fitted, "oob_decision_function_", None)
    if votes is None or np.ndim(votes) != 2:
        # There are no votes. Or the forest has several outputs, so that its votes have
        # three dimensions.
        return None
    # A row that every tree has seen has no vote: its probabilities are 0, or NaN.
    if not (votes.sum(axis=1) > 0).all():
        return None
    return votes


class FoldProba(NamedTuple):
    """Probabilities of the test rows of a fold.

    Attributes
    ----------
    test : ndarray of int
        Positions of the rows.

    proba : ndarray of shape (n_test, n_fold_classes)
        Class probabilities of these rows.

    classes : ndarray of shape (n_fold_classes,)
        Classes that the model of the fold has seen.
    """

    test: NDArray
    proba: NDArray
    classes: NDArray


def _predict_fold(estimator, X, y, *, train, test, params):
    """Fit the full model on the training rows of a fold, and predict its test rows.

    Parameters
    ----------
    estimator : classifier
        The full model. It is cloned.

    X : indexable of n_rows rows

    y : ndarray of shape (n_rows,)

    train, test : ndarray of int
        Positions of the rows of the fold.

    params : dict
        Parameters of the estimator's `fit`, for all rows.

    Returns
    -------
    FoldProba
    """
    params = check_method_params(X, params, indices=train)
    model = fit_full(estimator, _safe_indexing(X, train), y[train], params)
    proba = model.predict_proba(_safe_indexing(X, test))
    proba = np.asarray(check_probabilities(proba, "estimator"))
    return FoldProba(test, proba, model.classes_)


def _mean_of_folds(folds, n_samples, classes):
    """Return the mean probabilities of each row over the folds that predict it.

    Parameters
    ----------
    folds : list of FoldProba

    n_samples : int

    classes : ndarray of shape (n_classes,)
        All classes, sorted.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    # Sum of the probabilities of each row, and number of folds that predict it.
    total = np.zeros((n_samples, len(classes)))
    n_predictions = np.zeros(n_samples)
    for fold in folds:
        total[fold.test] += align_by_class(fold.proba, fold.classes, classes)
        n_predictions[fold.test] += 1
    if not n_predictions.all():
        n_left_out = int((n_predictions == 0).sum())
        raise ValueError(
            f"cv must predict every row at least once, but left out {n_left_out} of "
            f"{n_samples}. Use a splitter whose test sets cover all rows."
        )
    return total / n_predictions[:, None]


def find_splits(cv, X, y, params):
    """Return the training and the test positions of each split.

    No test row may be a training row of its split.

    Parameters
    ----------
    cv : int, cross-validation generator, iterable or None
        None: 5-fold.

    X : indexable of n_rows rows

    y : ndarray of shape (n_rows,)

    params : dict
        Parameters of the splitter's `split`.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
    """
    splitter = check_cv(cv, y, classifier=True)
    _check_groups_are_given(cv, splitter, params)
    splits = list(splitter.split(X, y, **params))
    for train, test in splits:
        if np.isin(test, train).any():
            raise ValueError(
                "cv must have no test row among the training rows of its split: what "
                "is learned from it would not be out of sample."
            )
    return splits


def _check_groups_are_given(cv, splitter, params):
    """Raise an error if the splitter needs groups of rows, and `params` has none.

    Parameters
    ----------
    cv : object
        The parameter of the user, for the message.

    splitter : cross-validation generator

    params : dict
        Parameters of the splitter's `split`.
    """
    get_routing = getattr(splitter, "get_metadata_routing", None)
    if get_routing is None:
        # The splitter does not say if it needs groups.
        return
    needs_groups = get_routing().split.requests.get("groups") is True
    if needs_groups and params.get("groups") is None:
        raise ValueError(
            f"cv={cv!r} needs groups: give cv the list of its splits, list(cv.split(X, "
            "y, groups)), or enable scikit-learn's metadata routing and pass groups to "
            "fit."
        )


def hold_out(splits, y, weight):
    """Return True for the rows that are held out: those of the first test sets.

    Test sets are taken until their rows have a tenth of the weight of all rows.

    Parameters
    ----------
    splits : list of (train, test)
        Positions of the training and the test rows of each fold.

    y : ndarray of shape (n_rows,)
        Class of each row.

    weight : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of bool of shape (n_rows,)
    """
    is_held_out = np.zeros(len(y), dtype=bool)
    for _, test in splits:
        is_held_out[test] = True
        # The weight times 10 is compared, since a tenth is not a binary fraction.
        if 10 * weight[is_held_out].sum() >= weight.sum():
            break
    classes = np.unique(y[weight > 0])
    # Classes of the rows that are left to learn from.
    classes_to_learn = np.unique(y[~is_held_out & (weight > 0)])
    misses_class = len(classes_to_learn) < len(classes)
    holds_out_no_weight = not weight[is_held_out].any()
    if misses_class or holds_out_no_weight:
        raise ValueError(
            "cv must hold out rows of positive weight in its first test set, and leave "
            f"rows of every class to learn from: it holds out {int(is_held_out.sum())} "
            f"of {len(y)} rows and leaves {len(classes_to_learn)} of {len(classes)} "
            "classes. Use fewer or other splits."
        )
    return is_held_out
