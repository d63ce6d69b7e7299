"""What the library of a forest answers, to the last bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit
from sklearn.utils.extmath import softmax as sk_softmax

from skroute.forests._code_walk import walk_of

# So many rows are walked by one thread: kernels work on them together.
_FEW_ROWS = 1024


def decision(forest, scores):
    """What ``decision_function`` of the library returns, of shape (n, n_outputs)."""
    if forest.answer != "vote":
        return scores
    scores = scores / forest.divisor
    return scores * 2 if scores.shape[1] == 1 else scores


def answer(forest, scores):
    """Probabilities of shape (n, n_classes), or what a regressor predicts.

    Parameters
    ----------
    forest : Forest
    scores : ndarray of shape (n, n_outputs)

    Returns
    -------
    ndarray of shape (n, n_classes) or (n,)
    """
    from skroute.forests._kernels import exponential, sigmoid, softmax

    kind = forest.answer
    if kind == "vote":
        scores = decision(forest, scores)
        n_classes = len(forest.classes)
        if n_classes == 2:
            return sk_softmax(np.hstack([-scores, scores]) / 2)
        return sk_softmax(scores / (n_classes - 1))
    if forest.divisor != 1.0:
        scores = scores / forest.divisor
    if kind == "sigmoid":
        found = sigmoid(scores, scores.dtype.type(forest.slope))
    elif kind in ("softmax", "position"):
        found = softmax(scores)
    elif kind == "expit":
        found = expit(scores * forest.slope)
    elif kind == "sk_softmax":
        found = sk_softmax(scores)
    elif kind == "exp":
        found = exponential(scores)
    else:
        found = np.exp(scores) if kind == "sk_exp" else scores
    if found.shape[1] > 1 or (kind == "mean" and forest.classes is not None):
        return found
    if forest.classes is None:
        return found[:, 0]
    proba = np.empty((len(found), 2), dtype=found.dtype)
    proba[:, 1:] = found
    proba[:, :1] = 1 - found
    return proba


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
    proba = answer(forest, scores)
    if proba.shape[1] == 2:
        return (proba[:, 1] > proba[:, 0]).astype(np.intp)
    return np.argmax(proba, axis=1)


def exact_sums(forest, X, n_jobs=None):
    """Scores of rows, added up as the library does.

    Parameters
    ----------
    forest : Forest
    X : ndarray of shape (n, n_features)
        As `rows_of` returns it.

    n_jobs : int, default=None
        Threads.

    Returns
    -------
    ndarray of shape (n, n_outputs)
    """
    n = len(X)
    out = np.empty((n, forest.n_outputs), dtype=forest.sums)
    out[:] = 0.0 if forest.offset_last else forest.offset
    column = np.arange(forest.n_outputs)
    walk = walk_of(forest, n, (0, forest.n_members))

    def add(start, stop):
        walk(X, start, stop, column, out)
        if forest.offset_last:
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
