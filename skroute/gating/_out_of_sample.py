"""Out-of-sample probabilities of the full model for the rows it is trained on."""

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import note_failure
from skroute.gating._boosting import cloned
from skroute.utils._compat import _safe_indexing, check_method_params, num_samples
from skroute.utils._named import align_by_class
from skroute.utils._validation import check_probabilities


def fit_full(estimator, X, y, params):
    """A clone fitted on all rows; a frozen estimator stays as it is."""
    with note_failure("full", num_samples(X), "fit"):
        return cloned(estimator, num_samples(X)).fit(X, y, **params)


def out_of_sample_proba(estimator, fitted, X, y, splits, params, n_jobs):
    """Probabilities ``p0(. | x_i)`` without having seen row i, in the order of the sorted classes.

    From the out-of-bag votes where the fitted model offers them, from the model itself if it is
    frozen, cross-validated otherwise.
    """
    n_samples, classes = num_samples(X), np.unique(y)
    if isinstance(estimator, FrozenEstimator):
        with note_failure("full", n_samples, "predict_proba"):
            proba = check_probabilities(fitted.predict_proba(X), "estimator")
        return align_by_class(
            np.asarray(proba, dtype=np.float64), fitted.classes_, classes
        )
    votes = getattr(fitted, "oob_decision_function_", None)
    # A row that every tree has seen has no vote: its probabilities are 0, or NaN.
    if votes is not None and np.ndim(votes) == 2 and (votes.sum(axis=1) > 0).all():
        return align_by_class(
            np.asarray(votes, dtype=np.float64), fitted.classes_, classes
        )
    folds = Parallel(n_jobs=n_jobs)(
        delayed(_fold)(estimator, X, y, train, test, params) for train, test in splits
    )
    total, count = np.zeros((n_samples, len(classes))), np.zeros(n_samples)
    for (_, test), (proba, known) in zip(splits, folds):
        total[test] += align_by_class(proba, known, classes)
        count[test] += 1
    if not count.all():
        raise ValueError(
            f"cv must predict every row at least once, but left out {int((count == 0).sum())} of "
            f"{n_samples}. Use a splitter whose test sets cover all rows."
        )
    return total / count[:, None]


def _fold(estimator, X, y, train, test, params):
    params = check_method_params(X, params, indices=train)
    model = fit_full(estimator, _safe_indexing(X, train), y[train], params)
    proba = model.predict_proba(_safe_indexing(X, test))
    return np.asarray(check_probabilities(proba, "estimator")), model.classes_


def find_splits(cv, X, y, params):
    """Train and test positions of each split; no test row may be a training row of its split."""
    splitter = check_cv(cv, y, classifier=True)
    routing = getattr(splitter, "get_metadata_routing", None)
    asks = routing().split.requests if routing else {}
    if asks.get("groups") is True and params.get("groups") is None:
        raise ValueError(
            f"cv={cv!r} needs groups: give cv the list of its splits, "
            "list(cv.split(X, y, groups)), or enable scikit-learn's metadata routing and pass "
            "groups to fit."
        )
    splits = list(splitter.split(X, y, **params))
    for train, test in splits:
        if np.isin(test, train).any():
            raise ValueError(
                "cv must have no test row among the training rows of its split: what is learned "
                "from it would not be out of sample."
            )
    return splits


def hold_out(splits, y, weight):
    """Return the test rows of the first splits that make a tenth of the weight of all rows."""
    out = np.zeros(len(y), dtype=bool)
    for _, test in splits:
        out[test] = True
        if 10 * weight[out].sum() >= weight.sum():
            break
    left, there = np.unique(y[~out & (weight > 0)]), np.unique(y[weight > 0])
    if len(left) < len(there) or not weight[out].any():
        raise ValueError(
            "cv must hold out rows of positive weight in its first test set, and leave rows of "
            f"every class to learn from: it holds out {int(out.sum())} of {len(y)} rows and "
            f"leaves {len(left)} of {len(there)} classes. Use fewer or other splits."
        )
    return out
