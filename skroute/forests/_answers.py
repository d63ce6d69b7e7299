"""What the library of a forest answers, to the last bit."""

from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.utils.extmath import softmax as sk_softmax

from skroute.forests._code_walk import walk_of
from skroute.forests._readers import averaged
from skroute.forests._rows import are_plain, rows_of

# So many rows are walked by one thread: kernels work on them together.
_FEW_ROWS = 1024


def decision(forest, scores):
    """What ``decision_function`` of the library returns, of shape (n, n_outputs)."""
    if forest.answer != "vote":
        return scores
    scores = scores / forest.divisor
    return scores * 2 if scores.shape[1] == 1 else scores


def answer(forest, scores):
    """Probabilities of shape (n, n_classes), or what a regressor predicts, of shape (n,)."""
    kind = forest.answer
    if kind == "vote":
        scores = decision(forest, scores)
        n_classes = len(forest.classes)
        if n_classes == 2:
            return sk_softmax(np.hstack([-scores, scores]) / 2)
        return sk_softmax(scores / (n_classes - 1))
    if forest.divisor != 1.0:
        scores = scores / forest.divisor
    if kind in ("sigmoid", "softmax", "position", "exp"):
        found = _by_c_library(kind, scores, forest.slope)
    elif kind == "expit":
        found = expit(scores * forest.slope)
    elif kind == "sk_softmax":
        found = sk_softmax(scores)
    else:
        found = np.exp(scores) if kind == "sk_exp" else scores
    if found.shape[1] > 1 or (kind == "mean" and forest.classes is not None):
        return found
    if forest.classes is None:
        return found[:, 0]
    return np.concatenate([1 - found, found], axis=1)


def _by_c_library(kind, scores, slope):
    """Links of the boosting libraries, in the precision of the scores."""
    from skroute.forests._kernels import exponential

    if kind == "sigmoid":
        power = scores * scores.dtype.type(-slope)
        if power.itemsize == 4:
            # XGBoost stays below the overflow of single precision.
            power = np.minimum(power, 88.7)
        return 1 / (1 + exponential(power))
    if kind == "exp":
        return exponential(scores)
    found = exponential(scores - scores.max(axis=1, keepdims=True))
    # One after the other, in double precision.
    return found / found.cumsum(axis=1, dtype=np.float64)[:, -1:].astype(found.dtype)


def label_positions(forest, scores):
    """Position of each row's label among the classes."""
    if forest.cut is not None:
        asked = forest.cut.response == "predict_proba"
        found = answer(forest, scores) if asked else decision(forest, scores)[:, 0]
        return forest.cut.positions(found, forest.classes)
    if forest.by_score:
        scores = decision(forest, scores)
        if scores.shape[1] == 1:
            return (scores[:, 0] > forest.beta).astype(np.intp)
        return np.argmax(scores, axis=1)
    return np.argmax(answer(forest, scores), axis=1)


def labels_at(forest, classes, positions):
    """Return the labels at positions among the classes, of the type of the library's own labels."""
    labels = classes.take(positions, mode="clip")
    # Where a threshold was moved, it is scikit-learn that answers, with the classes themselves.
    if not forest.label_dtype or forest.cut is not None:
        return labels
    return labels.astype(forest.label_dtype)


def exact_sums(forest, X, n_jobs=None):
    """Scores of rows, added up as the library does: ndarray of shape (n, n_outputs).

    X is what :func:`~skroute.forests._rows.rows_of` returns.
    """
    n = len(X)
    out = np.empty((n, forest.n_outputs), dtype=forest.sums)
    out[:] = 0.0 if forest.offset_last else forest.offset
    column = np.arange(forest.n_outputs)
    walk, layout = walk_of(forest, n, 0, forest.n_members)

    def add(start, stop):
        walk(X, start, stop, layout, 0, forest.n_members, column, out)
        if forest.offset_last:
            out[start:stop] *= forest.scale
            out[start:stop] += forest.offset

    in_parts(add, n, n_jobs)
    return out


def in_parts(call, n, n_jobs):
    """Call ``call(start, stop)`` for parts of `n` rows, by threads where they are many."""
    most = -(-n // _FEW_ROWS)
    n_threads = min(effective_n_jobs(n_jobs), most) if most > 1 else 1
    if n_threads == 1:
        call(0, n)
        return
    # More parts than threads: where rows leave early, parts take unequal times.
    bounds = np.linspace(0, n, min(4 * n_threads, most) + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(call, bounds[:-1], bounds[1:]))


# Beside the models rather than on them: nothing of it is pickled, cloned or shown.
_READ: WeakKeyDictionary = WeakKeyDictionary()


def average_of(model, X):
    """What ``predict`` of a regressor answers, of a forest of scikit-learn many times faster.

    scikit-learn goes through checks and a call of joblib for each of the trees, which takes
    longer than the trees do. A model that is no forest, or whose class derives from one, answers by
    itself; so does one whose rows are no array of floats, or hold what is not finite.

    Parameters
    ----------
    model : fitted regressor
    X : ndarray of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The model's own numbers, to the last bit.
    """
    read = type(model) in (RandomForestRegressor, ExtraTreesRegressor)
    members = vars(model).get("estimators_") if read else None
    # One that checks names, or was given a `predict`, has to look at the rows itself.
    if members is None or vars(model).keys() & {"feature_names_in_", "predict"}:
        return model.predict(X)
    kept = _READ.get(model)
    # A second fit makes another list, and one that goes on makes it longer.
    if kept is None or kept[0] is not members or kept[1] != len(members):
        kept = _READ[model] = members, len(members), averaged(model)
    forest = kept[2]
    if not are_plain(forest, X) or not np.isfinite(X).all():
        return model.predict(X)
    return answer(forest, exact_sums(forest, rows_of(forest, X), n_jobs=1))
