"""What a choice is worth: out-of-sample quality, and how far such estimates are off."""

from contextlib import contextmanager, nullcontext

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing, check_array, get_tags
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.features import needs_encoding
from skroute.forests._averages import average_of
from skroute.utils._compat import Integral, num_samples
from skroute.utils._tensors import holds_numbers, on_host

READABLE_INSTEAD = (
    "Give an quality_estimator that reads such rows, for example a pipeline that begins with a "
    "vectoriser or an encoder."
)


def default_quality_estimator():
    """A family of estimators, compared by the decisions that they lead to."""
    from skroute.quality import QualityRegressor

    return QualityRegressor()


def check_default_reads(X, advice=READABLE_INSTEAD):
    """Refuse rows that the default accuracy estimator cannot read; the rows stay unsaid.

    Parameters
    ----------
    X : indexable
    advice : str
        What to do about it.

    Raises
    ------
    TypeError or ValueError
    """
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) > 2:
        raise ValueError(
            "The default quality_estimator reads rows of numbers, but X has the shape "
            f"{shape}. {advice}"
        )
    # Complex numbers are refused by whoever reads them, in words of their own.
    if holds_numbers(X) or getattr(getattr(X, "dtype", None), "kind", "") == "c":
        return
    # Texts, categories and frames of them become numbers.
    if needs_encoding(X):
        return
    try:
        check_array(_safe_indexing(X, slice(0, 100)), ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
    else:
        return
    # Not what numpy said: it quotes the row.
    raise kind(
        "The default quality_estimator reads rows of numbers, and X has others: each argument "
        f"must be a number, or a string that says a number. {advice}"
    )


def folds_of(cv, X, y=None, **params):
    """The splits of the rows, as a list that serves more than once.

    Parameters
    ----------
    cv : int, splitter, iterable or None
        An int, or None for 5, means that many folds of rows shuffled with a fixed seed,
        since logs are often sorted.
    X : indexable
    y : ndarray, default=None
        What the splitter may stratify by.
    **params : dict
        What it takes beside them, such as ``groups``.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
    """
    if cv is None or isinstance(cv, Integral):
        cv = KFold(5 if cv is None else int(cv), shuffle=True, random_state=0)
    with note_groups(cv):
        return list(check_cv(cv).split(X, y, **params))


@contextmanager
def note_groups(cv):
    """Let a splitter's failure through; where it lacks groups, say how it gets them."""
    try:
        yield
    except ValueError as error:
        if "groups" in str(error):
            error.add_note(
                f"Groups reach cv={cv!r} by metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True) and fit(X, y, groups=groups). "
                "Or give cv the list of its splits."
            )
        raise


@contextmanager
def note_encoder(X, name):
    """Let a failure through; where rows hold texts or categories, say what makes them numbers.

    Parameters
    ----------
    X : indexable
    name : str
        The parameter whose estimator is fitted.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if not needs_encoding(X):
            raise
        error.add_note(
            f"X holds texts or categories. Where {name} reads numbers only, put an encoder "
            "before it: make_pipeline(skroute.features.FrameEncoder(), estimator)."
        )
        raise


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


def as_target(quality):
    """One choice is a single-output regression: not every regressor takes (n, 1)."""
    return quality[:, 0] if quality.shape[1] == 1 else quality


def predict_matrix(fitted, X, n_outputs, name):
    """Outputs of a multi-output regressor as finite numbers, one column for each.

    Parameters
    ----------
    fitted : regressor
    X : indexable
    n_outputs : int
    name : str
        The parameter that it comes from, for the messages.

    Returns
    -------
    ndarray of shape (n_samples, n_outputs), dtype=float64

    Raises
    ------
    ValueError
        For NaN or infinity: the row would silently go to whatever is compared first.
    """
    n = num_samples(X)
    with note_failure(name, n, "predict"):
        values = np.asarray(on_host(average_of(fitted, X)), dtype=np.float64)
        values = values.reshape(n, n_outputs)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must estimate finite numbers, got NaN or infinity.")
    return values


def fit_fold(step, estimator, X, target, train, test, fit_params, n_outputs, name):
    with step:
        own = {
            key: value if np.ndim(value) == 0 else _safe_indexing(value, train)
            for key, value in fit_params.items()
        }
        fitted = clone(estimator).fit(_safe_indexing(X, train), target[train], **own)
        return predict_matrix(fitted, _safe_indexing(X, test), n_outputs, name)


def check_partition(splits, n_rows):
    """Refuse folds that leave out a row, or test one twice."""
    tested = np.concatenate([test for _, test in splits]) if splits else []
    if not np.array_equal(np.sort(tested), np.arange(n_rows)):
        raise ValueError("cv must be a partition of the rows: each row is tested exactly once.")


def out_of_sample_quality(
    estimator,
    X,
    quality,
    cv,
    n_jobs=None,
    fit_params=None,
    *,
    task=None,
    name="quality_estimator",
):
    """Cross-fitted estimates of each choice's quality on the rows that fit it.

    Parameters
    ----------
    estimator : multi-output regressor
    X : indexable of n_samples rows
    quality : ndarray of shape (n_samples, n_choices)
    cv : splitter, int or list of splits
    n_jobs : int, default=None
    fit_params : dict, default=None
        Metadata for the estimator's `fit`, one entry per row.
    task : FitTask, default=None
        Told of each fold.
    name : str, default="quality_estimator"
        The parameter that the estimator comes from.

    Returns
    -------
    ndarray of shape (n_samples, n_choices)
    """
    target = as_target(quality)
    splits = list(check_cv(cv).split(X, target))
    check_partition(splits, len(quality))
    steps = [
        nullcontext() if task is None else task.step(f"{name} without fold {i}")
        for i in range(len(splits))
    ]
    with note_outputs(estimator, quality.shape[1]):
        parts = Parallel(n_jobs=n_jobs)(
            delayed(fit_fold)(
                step, estimator, X, target, train, test, fit_params or {}, quality.shape[1], name
            )
            for step, (train, test) in zip(steps, splits)
        )
    estimate = np.empty(quality.shape)
    for (_, test), part in zip(splits, parts):
        estimate[test] = part
    return estimate


def penalty(estimate, quality):
    """OCCAM's sigma: standard deviation of each choice's estimation error, out of sample."""
    error = estimate - quality
    # Scaled by powers of two, which changes no digit: the squares of large errors overflow.
    _, exponent = np.frexp(np.abs(error).max(axis=0))
    return np.ldexp(np.ldexp(error, -exponent).std(axis=0), exponent)
