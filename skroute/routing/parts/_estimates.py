"""Estimates of quality: fitted on all rows, and of the same rows out of sample."""

from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, check_cv, cross_val_predict
from sklearn.utils import check_array, get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from skroute.base import check_rows, note_failure
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

# A price is learned without each of this many parts of the rows at most.
MAX_PARTS = 10


class CrossFitted(NamedTuple):
    """A fitted estimator and its estimates of the rows of `fit`.

    Attributes
    ----------
    estimator : fitted estimator
    estimate : ndarray of shape (n_rows, n_outputs)
        Out-of-fold estimates.
    as_new : ndarray of shape (n_rows, n_outputs)
        The same, distributed as the estimates of new rows.
    by_fold : ndarray of shape (n_folds, n_rows, n_outputs), or None
        For each fold, estimates of all rows that are distributed as those of its rows. None where
        that is `estimate` for every fold.
    """

    estimator: Any
    estimate: np.ndarray
    as_new: np.ndarray
    by_fold: np.ndarray | None


def answers_forest(n_samples, most_rows, n_jobs=None):
    """A forest on the answers so far, which knows its own rows out of bag.

    Each tree sees so many of the rows at most, which bounds the time.
    """
    n_seen = min(n_samples, most_rows)
    leaf = int(np.clip(n_samples // 60, 5, 150))
    return RandomForestRegressor(
        n_estimators=int(np.clip(300_000 // n_samples, 30, 100)),
        # The same share of what a tree sees.
        min_samples_leaf=max(leaf * n_seen // n_samples, 5),
        max_samples=n_seen if n_seen < n_samples else None,
        oob_score=True,
        random_state=0,
        n_jobs=n_jobs,
    )


def read_rows(router, X, advice=None):
    """Checked rows of a fit; `advice` is for those that the default estimator cannot read."""
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
    some = _safe_indexing(X, slice(0, 100))
    try:
        if needs_encoding(X):
            FrameEncoder().fit(some)
        else:
            check_array(few_columns_dense(some), ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        error.add_note(
            f"The default quality_estimator reads numbers, texts, categories and dates. {advice}"
        )
        raise
    return X


def folds_of(cv, X, y=None, **params):
    """The splits of the rows as a list of (train, test) that serves more than once."""
    if cv is None or isinstance(cv, Integral):
        cv = KFold(5 if cv is None else int(cv), shuffle=True, random_state=0)
    try:
        folds = list(check_cv(cv).split(X, y, **params))
    except ValueError as error:
        if "groups" in str(error):
            error.add_note(
                f"Groups reach cv={cv!r} by metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True) and fit(X, y, groups=groups). "
                "Or give cv the list of its splits."
            )
        raise
    times = np.bincount(
        np.concatenate([test for _, test in folds]), minlength=num_samples(X)
    )
    if len(wrong := np.flatnonzero(times != 1)):
        raise ValueError(
            f"cv must test each row once, but row {wrong[0]} is tested {times[wrong[0]]} times."
        )
    return folds


def part_of(folds, n_rows):
    """Number of the fold that tests each row."""
    part = np.zeros(n_rows, dtype=np.int64)
    for number, (_, test) in enumerate(folds):
        part[test] = number
    return part


def rows_and_others(part):
    """For each part of the rows their positions, and those of the rows that decide for them."""
    for number in np.unique(part):
        rows, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
        yield rows, others if len(others) else rows


def with_weights(estimator, sample_weight):
    """Return an estimator of quality, and the parameters of its `fit` that weight the rows.

    Weights reach an estimator whose `fit` takes them. With metadata routing an estimator that has
    not said whether it requests them is a copy that does.

    Parameters
    ----------
    estimator : estimator
    sample_weight : ndarray of shape (n_rows,) or None
        Weights as the user gave them. None: there are none.

    Returns
    -------
    estimator : estimator
    fit_params : dict
        ``sample_weight``, or nothing.
    """
    weights = {"sample_weight": sample_weight}
    if sample_weight is None:
        return estimator, {}
    if not routing_enabled():
        takes_weights = has_fit_parameter(estimator, "sample_weight")
        return estimator, weights if takes_weights else {}
    routing = get_routing_for_object(estimator)
    if routing.consumes("fit", weights):
        return estimator, weights
    # None: neither requested nor refused.
    request = getattr(getattr(routing, "fit", None), "requests", {}).get(
        "sample_weight"
    )
    if request is None and has_fit_parameter(estimator, "sample_weight"):
        return clone(estimator).set_fit_request(sample_weight=True), weights
    return estimator, {}


def predict_matrix(fitted, X, name):
    """Outputs of a regressor as finite numbers, one column for each."""
    from skroute.forests._answers import average_of

    n = num_samples(X)
    with note_failure(name, n, "predict"):
        values = np.asarray(on_host(average_of(fitted, X)), dtype=np.float64).reshape(
            n, -1
        )
        if not np.isfinite(values).all():
            # The row would silently go to whatever is compared first.
            raise ValueError(
                f"{name} must estimate finite numbers, got NaN or infinity."
            )
    return values


def cross_fit(
    estimator,
    X,
    target,
    folds,
    *,
    name,
    task=None,
    costs=None,
    n_jobs=None,
    fit_params=None,
):
    """Fit an estimator on all rows, and estimate the same rows out of sample (`CrossFitted`).

    `QualityRegressor`, and forests with out-of-bag estimates, know their own rows out of sample;
    others are fitted again without each fold.
    """
    fit_params = fit_params or {}
    # One choice is a single-output regression: not every regressor takes (n, 1).
    flat = target[:, 0] if target.shape[1] == 1 else target
    fitted = clone(estimator)
    by_fold = None
    # The limit bounds the memory. With more folds, each learns from nearly all rows, and its
    # estimates are like those of the others.
    with_by_fold = len(folds) <= MAX_PARTS
    with (
        _noting(estimator, X, target, name),
        task.step(name) if task else nullcontext(),
    ):
        if hasattr(fitted, "cross_fit") and set(fit_params) <= {"sample_weight"}:
            estimate, as_new, *tables = fitted.cross_fit(
                X,
                flat,
                folds=folds,
                costs=costs,
                n_jobs=n_jobs,
                return_kept=True,
                return_by_fold=with_by_fold,
                **fit_params,
            )
            if with_by_fold:
                by_fold = tables[0].reshape(len(folds), *target.shape)
        else:
            fitted.fit(X, flat, **fit_params)
            estimate = getattr(fitted, "oob_prediction_", None)
            if estimate is None:
                estimate = cross_val_predict(
                    estimator, X, flat, cv=folds, n_jobs=n_jobs, params=fit_params
                )
            as_new = estimate
        estimate, as_new = (
            np.asarray(on_host(part), dtype=np.float64).reshape(target.shape)
            for part in (estimate, as_new)
        )
        if not np.isfinite(estimate).all():
            raise ValueError(
                f"{name} must estimate finite numbers, got NaN or infinity."
            )
    return CrossFitted(fitted, estimate, as_new, by_fold)


def estimates_without_folds(
    estimator, X, target, folds, *, name, task=None, n_jobs=None, fit_params=None
):
    """For each fold, estimates of its training rows by fits that saw neither them nor the fold."""
    found, part = [], part_of(folds, len(target))
    for number, (train, _) in enumerate(folds):
        own = part[train]
        # Rows that belong together, and are in one fold, stay together.
        parts = [
            (np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in np.unique(own)
        ]
        if len(parts) < 2:
            parts = (
                folds_of(min(5, len(train)), train) if len(train) > 1 else [([0], [0])]
            )
        fitted = cross_fit(
            estimator,
            _safe_indexing(X, train),
            target[train],
            parts,
            task=task,
            name=f"{name} without fold {number}",
            n_jobs=n_jobs,
            fit_params=check_method_params(X, fit_params or {}, train),
        )
        found.append(fitted.estimate)
    return found


@contextmanager
def _noting(estimator, X, target, name):
    """Let a failure through, and say whose it was and what may help."""
    try:
        with note_failure(name, len(target), "fit"):
            yield
    except Exception as error:
        if needs_encoding(X):
            error.add_note(
                f"X holds texts or categories. Where {name} reads numbers only, put an encoder "
                f"before it: make_pipeline(skroute.quality.FrameEncoder(), {name})."
            )
        tags = get_tags(estimator) if hasattr(estimator, "__sklearn_tags__") else None
        # Not proof enough to refuse it: nets say a single output where nobody has set the tag.
        if (
            target.shape[1] > 1
            and tags is not None
            and not tags.target_tags.multi_output
        ):
            error.add_note(
                f"It was fitted on {target.shape[1]} outputs, one for each choice. A regressor of "
                "one output goes into sklearn.multioutput.MultiOutputRegressor first."
            )
        raise


def error_deviation(estimate, quality, weight=None):
    """Return OCCAM's sigma: the standard deviation of each choice's estimation error."""
    error = estimate - quality
    # Scaled by powers of two, which changes no digit: the squares of large errors overflow.
    _, exponent = np.frexp(np.abs(error).max(axis=0))
    scaled = np.ldexp(error, -exponent)
    if weight is None:
        return np.ldexp(scaled.std(axis=0), exponent)
    apart = scaled - np.average(scaled, axis=0, weights=weight)
    deviation = np.sqrt(np.average(apart**2, axis=0, weights=weight))
    return np.ldexp(deviation, exponent)
