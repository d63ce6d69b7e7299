"""Estimates of quality and cost: folds, cross-fitting, and checks of regressors."""

import inspect
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, check_cv, cross_val_predict
from sklearn.utils import check_array, get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_memory, has_fit_parameter

from skroute.base import check_rows, note_failure
from skroute.base._inspection import comes_fitted
from skroute.quality import FrameEncoder
from skroute.quality._frame_encoder import few_columns_dense
from skroute.utils._compat import (
    Integral,
    _safe_indexing,
    check_method_params,
    num_samples,
    routing_enabled,
)
from skroute.utils._frames import needs_encoding
from skroute.utils._tensors import holds_numbers, on_host
from skroute.utils._threads import workers_for

# Maximal number of groups into which rows are divided for validation. The decisions on
# a group are made at a price that is learned from the other groups.
MAX_PARTS = 10
# Number of rows by which it is checked that the default estimator can read X.
_N_SAMPLE_ROWS = 100
# Default number of folds, also within the training rows of a fold.
_N_FOLDS = 5

# Number of rows that all trees of `answers_forest` together read, if each tree reads
# all rows. It bounds the time of a fit.
_ROWS_OF_ALL_TREES = 300_000
# Fewest trees of `answers_forest`. Each row is out of bag in about a third of them, so
# that 30 trees give about ten estimates of each row.
_FEWEST_TREES = 30
# Most trees of `answers_forest`: more hardly change the estimates.
_MOST_TREES = 100
# A leaf of `answers_forest` has at least 1 / `_LEAVES` of the training rows, within the
# two limits below.
_LEAVES = 60
# Lower limit of the fewest rows of a leaf of `answers_forest`.
_SMALLEST_LEAF = 5
# Upper limit of the fewest rows of a leaf of `answers_forest`.
_LARGEST_LEAF = 150


class CrossFitted(NamedTuple):
    """A fitted estimator, and its out-of-fold estimates of the rows of `fit`.

    Attributes
    ----------
    estimator : fitted estimator
    estimate : ndarray of shape (n_rows, n_outputs)
        Out-of-fold estimates.
    as_new : ndarray of shape (n_rows, n_outputs)
        Estimates of the same rows, with the distribution of estimates of new rows.
    by_fold : ndarray of shape (n_folds, n_rows, n_outputs), or None
        For each fold, estimates of all rows with the distribution of the estimates of
        its rows. None if that is `estimate` for every fold.
    """

    estimator: Any
    estimate: np.ndarray
    as_new: np.ndarray
    by_fold: np.ndarray | None


def answers_forest(n_samples, most_rows, n_jobs=None):
    """Return an unfitted forest that estimates quality from the answers of members.

    It estimates its own rows out of bag.

    Parameters
    ----------
    n_samples : int
        Number of training rows.
    most_rows : int
        Largest number of training rows per tree, which bounds the time of a fit.
    n_jobs : int, default=None
        Trees that are fitted in parallel. None is one.

    Returns
    -------
    RandomForestRegressor
    """
    rows_per_tree = min(n_samples, most_rows)
    # Fewest rows of a leaf, if a tree reads all rows.
    rows_per_leaf = int(np.clip(n_samples // _LEAVES, _SMALLEST_LEAF, _LARGEST_LEAF))
    # If a tree reads half of the rows, a leaf may have half as many of them.
    rows_per_leaf_of_tree = rows_per_leaf * rows_per_tree // n_samples
    n_trees = int(np.clip(_ROWS_OF_ALL_TREES // n_samples, _FEWEST_TREES, _MOST_TREES))
    return RandomForestRegressor(
        n_estimators=n_trees,
        min_samples_leaf=max(rows_per_leaf_of_tree, _SMALLEST_LEAF),
        # None: a tree reads all rows.
        max_samples=None if rows_per_tree == n_samples else rows_per_tree,
        oob_score=True,
        random_state=0,
        n_jobs=n_jobs,
    )


# Rows, folds and weights --------------------------------------------------------------


def read_rows(router, X, advice=None):
    """Validate the rows of `fit`, also for the default estimator if it is used.

    Parameters
    ----------
    router : estimator
        Its number and names of features are set.
    X : indexable of n_rows rows
    advice : str, default=None
        Advice to the user if the default quality estimator cannot read X. None if the
        router does not use the default, so that this is not checked.

    Returns
    -------
    indexable of n_rows rows
    """
    X = check_rows(router, X, reset=True)
    if advice is None:
        return X
    if len(getattr(X, "shape", ())) > 2:
        raise ValueError(
            "The default quality_estimator reads rows of numbers, but X has the shape "
            f"{tuple(X.shape)}. {advice}"
        )
    if holds_numbers(X):
        return X
    first_rows = _safe_indexing(X, slice(0, _N_SAMPLE_ROWS))
    try:
        if needs_encoding(X):
            FrameEncoder().fit(first_rows)
        else:
            check_array(few_columns_dense(first_rows), ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        error.add_note(
            "The default quality_estimator reads numbers, texts, categories and dates. "
            f"{advice}"
        )
        raise
    return X


def folds_of(cv, X, y=None, **params):
    """Return the folds of the rows, which must test each row once.

    Parameters
    ----------
    cv : int, splitter, iterable of splits or None
        An int, and None for 5, are shuffled folds with a fixed seed.
    X : indexable of n_rows rows
    y : array-like, default=None
        The splitter gets it.
    **params : keyword arguments
        Further parameters of the splitter's `split`, such as groups.

    Returns
    -------
    list of (ndarray, ndarray)
        Training and test rows of each fold.
    """
    if cv is None:
        cv = _N_FOLDS
    if isinstance(cv, Integral):
        cv = KFold(int(cv), shuffle=True, random_state=0)
    try:
        folds = list(check_cv(cv).split(X, y, **params))
    except ValueError as error:
        if "groups" in str(error):
            error.add_note(
                f"Groups reach cv={cv!r} by metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True) and "
                "fit(X, y, groups=groups). Or give cv the list of its splits."
            )
        raise
    test_rows = np.concatenate([test for _, test in folds])
    n_tests = np.bincount(test_rows, minlength=num_samples(X))
    wrong_rows = np.flatnonzero(n_tests != 1)
    if len(wrong_rows):
        row = wrong_rows[0]
        raise ValueError(
            f"cv must test each row once, but row {row} is tested {n_tests[row]} times."
        )
    return folds


def fold_of_rows(folds, n_rows):
    """Return the number of the fold that tests each row, ndarray of shape (n_rows,)."""
    fold_of_row = np.zeros(n_rows, dtype=np.int64)
    for number, (_, test) in enumerate(folds):
        fold_of_row[test] = number
    return fold_of_row


def rows_and_others(part_of_row):
    """Yield, for each part of the rows, the positions of its rows and of all others.

    Parameters
    ----------
    part_of_row : ndarray of shape (n_rows,), dtype=int64
        Number of the part of each row: its fold, or several folds together.

    Yields
    ------
    rows : ndarray of int
        Positions of the rows of the part.
    others : ndarray of int
        Positions of all other rows. If there are none, the rows themselves.
    """
    for number in np.unique(part_of_row):
        rows = np.flatnonzero(part_of_row == number)
        others = np.flatnonzero(part_of_row != number)
        if not len(others):
            others = rows
        yield rows, others


def with_weights(estimator, sample_weight):
    """Return the estimator, and the parameters by which its `fit` gets the weights.

    Weights reach an estimator whose `fit` takes them. With metadata routing, an
    estimator that neither requests nor refuses them is replaced by a copy that requests
    them.

    Parameters
    ----------
    estimator : estimator
    sample_weight : ndarray of shape (n_rows,) or None
        Weights as the user gave them. None: there are none.

    Returns
    -------
    estimator : estimator
    fit_params : dict
        ``sample_weight``, or empty.
    """
    if sample_weight is None:
        return estimator, {}
    weights = {"sample_weight": sample_weight}
    if not routing_enabled():
        if has_fit_parameter(estimator, "sample_weight"):
            return estimator, weights
        return estimator, {}
    routing = get_routing_for_object(estimator)
    if routing.consumes("fit", weights):
        return estimator, weights
    # The routing of a meta-estimator, a `MetadataRouter`, has no attribute `fit`.
    routing_of_fit = getattr(routing, "fit", None)
    requests = getattr(routing_of_fit, "requests", {})
    # A request of None: weights are neither requested nor refused.
    is_undecided = requests.get("sample_weight") is None
    if is_undecided and has_fit_parameter(estimator, "sample_weight"):
        return clone(estimator).set_fit_request(sample_weight=True), weights
    return estimator, {}


# Cross-fitting ------------------------------------------------------------------------


def predict_matrix(fitted, X, name):
    """Return the outputs of a regressor as a matrix (n_rows, n_outputs), all finite.

    Parameters
    ----------
    fitted : fitted regressor
    X : indexable of n_rows rows
    name : str
        The parameter that error messages name.

    Returns
    -------
    ndarray of shape (n_rows, n_outputs), dtype=float64
    """
    # Forests are imported only where a fitted router predicts.
    from skroute.forests._answers import average_of

    n_rows = num_samples(X)
    with note_failure(name, n_rows, "predict"):
        values = np.asarray(on_host(average_of(fitted, X)), dtype=np.float64)
        values = values.reshape(n_rows, -1)
        # A row with NaN would get the choice that is compared first, and no error.
        _check_finite(values, name)
    return values


def _check_finite(values, name):
    """Raise an error if an estimate is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must estimate finite numbers, got NaN or infinity.")


def cross_fit(
    estimator,
    X,
    target,
    folds,
    *,
    name,
    task=None,
    costs=None,
    memory=None,
    n_jobs=None,
    fit_params=None,
):
    """Fit an estimator on all rows, and estimate the same rows out of fold or of bag.

    An estimator with a method `cross_fit`, as `QualityRegressor`, and forests with
    out-of-bag estimates are fitted once. Others are fitted again without each fold.

    Parameters
    ----------
    estimator : regressor
        Not fitted.
    X : indexable of n_rows rows
    target : ndarray of shape (n_rows, n_outputs)
    folds : list of (ndarray, ndarray)
        Training and test rows of each fold.
    name : str
        The parameter that error messages name.
    task : FitTask, default=None
        The fit of the router, of which this fit becomes a step. None makes no step.
    costs : ndarray of shape (n_outputs,) or (n_rows, n_outputs), default=None
        Costs of the choices. `QualityRegressor` compares its members at budgets of
        them.
    memory : str or joblib.Memory, default=None
        Cache of the fitted estimator and its estimates. None fits always.
    n_jobs : int, default=None
        Fits that run in parallel. None is one.
    fit_params : dict, default=None
        Parameters of `fit`.

    Returns
    -------
    CrossFitted
    """
    fit_params = fit_params or {}
    # One choice is a single-output regression: not every regressor takes (n_rows, 1).
    flat_target = target[:, 0] if target.shape[1] == 1 else target
    step = nullcontext() if task is None else task.step(name)
    with _note_advice(estimator, X, target, name), step:
        # A method `cross_fit` takes no other metadata than weights.
        has_only_weights = set(fit_params) <= {"sample_weight"}
        if hasattr(estimator, "cross_fit") and has_only_weights:
            fit = cached_unless_fitted(_cross_fit_itself, estimator, memory)
            fitted = fit(
                estimator,
                X,
                flat_target,
                folds,
                costs=costs,
                n_jobs=n_jobs,
                fit_params=fit_params,
            )
        else:
            fit = cached_unless_fitted(
                _fit_and_predict_out_of_sample, estimator, memory
            )
            fitted = fit(
                estimator, X, flat_target, folds, n_jobs=n_jobs, fit_params=fit_params
            )
        estimate = _as_target(fitted.estimate, target)
        as_new = _as_target(fitted.as_new, target)
        by_fold = fitted.by_fold
        if by_fold is not None:
            by_fold = by_fold.reshape(len(folds), *target.shape)
        _check_finite(estimate, name)
    return CrossFitted(fitted.estimator, estimate, as_new, by_fold)


def cached_unless_fitted(function, estimator, memory):
    """Return `function` with a cache of its results, unless `estimator` comes fitted.

    Parameters
    ----------
    function : callable
        Its results depend on all its arguments but `name` and `n_jobs`.
    estimator : estimator
        The estimator that it fits. If `fit` does not train it, the function is
        returned as it is: a cache would return a copy of the user's model.
    memory : str, joblib.Memory or None
        The cache, as in :class:`~sklearn.pipeline.Pipeline`. None has no cache.

    Returns
    -------
    callable
    """
    if memory is None or comes_fitted(estimator):
        return function
    ignored = []
    for argument in ("name", "n_jobs"):
        if argument in inspect.signature(function).parameters:
            ignored.append(argument)
    return check_memory(memory).cache(function, ignore=ignored)


def _as_target(estimates, target):
    """Return estimates as float64 numbers of the shape of the target."""
    return np.asarray(on_host(estimates), dtype=np.float64).reshape(target.shape)


def _cross_fit_itself(estimator, X, target, folds, *, costs, n_jobs, fit_params):
    """Fit a copy of an estimator by its method `cross_fit` (`CrossFitted`).

    `target` is a vector (n_rows,) if there is one output. Estimates have its shape. The
    other parameters are those of `cross_fit`.
    """
    fitted = clone(estimator)
    options = {
        "folds": folds,
        "costs": costs,
        "n_jobs": n_jobs,
        "return_kept": True,  # returns `as_new`
    }
    # One table for each fold would take much memory for many folds. It is not needed
    # then: the estimator of each fold learns from nearly all rows, so that the
    # estimates of all folds have nearly the same distribution.
    if len(folds) > MAX_PARTS:
        estimate, as_new = fitted.cross_fit(X, target, **options, **fit_params)
        return CrossFitted(fitted, estimate, as_new, by_fold=None)
    estimate, as_new, by_fold = fitted.cross_fit(
        X, target, return_by_fold=True, **options, **fit_params
    )
    return CrossFitted(fitted, estimate, as_new, by_fold)


def _fit_and_predict_out_of_sample(estimator, X, target, folds, *, n_jobs, fit_params):
    """Fit a copy of a regressor, and estimate its rows out of bag or out of fold.

    `target` is a vector (n_rows,) if there is one output. Estimates have its shape. The
    other parameters are those of `cross_fit`, and the result is a `CrossFitted`.
    """
    fitted = clone(estimator)
    fitted.fit(X, target, **fit_params)
    # Forests with `oob_score=True` have estimated their own rows out of bag.
    estimate = getattr(fitted, "oob_prediction_", None)
    if estimate is None:
        estimate = cross_val_predict(
            estimator,
            X,
            target,
            cv=folds,
            n_jobs=workers_for([estimator], n_jobs),
            params=fit_params,
        )
    return CrossFitted(fitted, estimate, as_new=estimate, by_fold=None)


def estimates_without_folds(
    estimator, X, target, folds, *, name, task=None, n_jobs=None, fit_params=None
):
    """Cross-fit the training rows of each fold among themselves, in inner folds.

    No row is estimated by a fit that saw this row or the test rows of the fold.

    Parameters
    ----------
    estimator, X, target, folds, name, task, n_jobs, fit_params
        As in `cross_fit`.

    Returns
    -------
    list of ndarray of shape (n_training_rows, n_outputs)
        For each fold the estimates of its training rows.
    """
    fold_of_row = fold_of_rows(folds, len(target))
    estimates = []
    for number, (train, _) in enumerate(folds):
        fitted = cross_fit(
            estimator,
            _safe_indexing(X, train),
            target[train],
            _inner_folds(fold_of_row[train]),
            task=task,
            name=f"{name} without fold {number}",
            n_jobs=n_jobs,
            fit_params=check_method_params(X, fit_params or {}, train),
        )
        estimates.append(fitted.estimate)
    return estimates


def _inner_folds(fold_of_row):
    """Return folds for cross-fitting among some rows, from the fold of each row.

    They are the folds that the rows are in, if there are two or more. Rows that belong
    together, such as a group, are in one of these folds, and so they stay together.

    Parameters
    ----------
    fold_of_row : ndarray of shape (n_rows,), dtype=int64

    Returns
    -------
    list of (ndarray, ndarray)
        Training and test rows of each inner fold. A single row is both.
    """
    n_rows = len(fold_of_row)
    numbers = np.unique(fold_of_row)
    if len(numbers) < 2:
        if n_rows < 2:
            return [([0], [0])]
        # All rows are in one fold. New folds depend on the number of rows alone, so
        # that any array of this length can stand for X.
        return folds_of(min(_N_FOLDS, n_rows), fold_of_row)
    folds = []
    for number in numbers:
        train = np.flatnonzero(fold_of_row != number)
        test = np.flatnonzero(fold_of_row == number)
        folds.append((train, test))
    return folds


@contextmanager
def _note_advice(estimator, X, target, name):
    """Add notes to the exception of a fit: the estimator that failed, and advice.

    The parameters are those of `cross_fit`. The exception is raised again.
    """
    try:
        with note_failure(name, len(target), "fit"):
            yield
    except Exception as error:
        if needs_encoding(X):
            error.add_note(
                f"X holds texts or categories. Where {name} reads numbers only, put an "
                "encoder before it: "
                f"make_pipeline(skroute.quality.FrameEncoder(), {name})."
            )
        # An estimator whose tags declare a single output is not refused before `fit`:
        # nets have these tags by default, and may have several outputs.
        if target.shape[1] > 1 and not _may_have_several_outputs(estimator):
            error.add_note(
                f"It was fitted on {target.shape[1]} outputs, one for each choice. A "
                "regressor of one output goes into "
                "sklearn.multioutput.MultiOutputRegressor first."
            )
        raise


def _may_have_several_outputs(estimator):
    """Return False if the tags of an estimator declare a single output."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return True
    tags = get_tags(estimator)
    return tags is None or tags.target_tags.multi_output


def error_deviation(estimate, quality, weight=None):
    """Return OCCAM's sigma: the standard deviation of each choice's estimation error.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_choices,)
    """
    error = estimate - quality
    # Squares of large errors overflow. Errors are therefore divided by a power of two,
    # which changes no digit: 2 ** exponent, with one exponent for each choice.
    _, exponent = np.frexp(np.abs(error).max(axis=0))
    scaled = np.ldexp(error, -exponent)
    if weight is None:
        return np.ldexp(scaled.std(axis=0), exponent)
    difference = scaled - np.average(scaled, axis=0, weights=weight)
    deviation = np.sqrt(np.average(difference**2, axis=0, weights=weight))
    return np.ldexp(deviation, exponent)
