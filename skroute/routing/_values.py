"""What a choice is worth: out-of-sample quality, its penalty, dominance."""

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv, cross_val_predict
from sklearn.utils import get_tags

from skroute.utils._tensors import on_host


def quality_folds(cv):
    """A splitter that can be used more than once.

    An int, or None for 5, means that many folds of rows shuffled with a fixed seed, since
    logs are often sorted.
    """
    if cv is None or isinstance(cv, Integral):
        return KFold(5 if cv is None else int(cv), shuffle=True, random_state=0)
    return check_cv(cv)


@contextmanager
def note_outputs(estimator, n_outputs):
    """Let a failure through; say what to do if the estimator may be one of a single output.

    Its tags are not proof enough to refuse it: those of nets and of a user's own regressors
    say a single output where nobody has set them.

    Parameters
    ----------
    estimator : estimator
    n_outputs : int
    """
    try:
        yield
    except Exception as error:
        tags = get_tags(estimator) if hasattr(estimator, "__sklearn_tags__") else None
        if n_outputs > 1 and tags is not None and not tags.target_tags.multi_output:
            error.add_note(
                f"It was fitted on {n_outputs} outputs, one for each choice. A regressor of one "
                "output goes into sklearn.multioutput.MultiOutputRegressor first."
            )
        raise


def out_of_sample_quality(estimator, X, quality, cv, n_jobs=None, fit_params=None):
    """Cross-fitted estimates of each choice's quality on the rows that fit it.

    Parameters
    ----------
    estimator : multi-output regressor
    X : indexable of n_samples rows
    quality : ndarray of shape (n_samples, n_choices)
    cv : splitter
    n_jobs : int, default=None
    fit_params : dict, default=None
        Metadata for the estimator's `fit`, one entry per row.

    Returns
    -------
    ndarray of shape (n_samples, n_choices)
    """
    target = quality[:, 0] if quality.shape[1] == 1 else quality
    with note_outputs(estimator, quality.shape[1]):
        estimate = cross_val_predict(
            clone(estimator), X, target, cv=cv, n_jobs=n_jobs, params=fit_params
        )
    return on_host(estimate).reshape(quality.shape)


def penalty(estimate, quality):
    """OCCAM's sigma: standard deviation of each choice's estimation error, out of sample."""
    error = estimate - quality
    # Scaled by powers of two, which changes no digit: the squares of large errors overflow.
    _, exponent = np.frexp(np.abs(error).max(axis=0))
    return np.ldexp(np.ldexp(error, -exponent).std(axis=0), exponent)


def dominated(mean_quality, costs):
    """Choices that are no better on average than another that costs no more.

    Of choices equal in both the first is kept.

    Parameters
    ----------
    mean_quality : ndarray of shape (n_choices,)
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    ndarray of shape (n_choices,), dtype=bool
    """
    # By cost, then by falling quality: a choice must beat the best before it.
    order = np.lexsort((-mean_quality, costs))
    best_before = np.maximum.accumulate(np.r_[-np.inf, mean_quality[order][:-1]])
    mask = np.empty(len(costs), dtype=bool)
    mask[order] = mean_quality[order] <= best_before
    return mask
