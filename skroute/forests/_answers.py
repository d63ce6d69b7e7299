"""What the library of a forest answers, to the last bit."""

from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.utils.extmath import softmax as sk_softmax

from skroute.forests._code_walk import walk_of
from skroute.forests._rows import are_plain, rows_of
from skroute.forests._sklearn import averaged_forest

# So many rows are walked by one thread: kernels work on them together.
_FEW_ROWS = 1024


def decision(forest, scores):
    """Return the library's ``decision_function``, of shape (n, n_outputs)."""
    rule = forest.answer_rule
    if rule.kind != "vote":
        return scores
    scores = scores / rule.divisor
    return scores * 2 if scores.shape[1] == 1 else scores


def answer(forest, scores):
    """Return probabilities of shape (n, n_classes), or numbers of a regressor of shape (n,)."""
    rule = forest.answer_rule
    if rule.kind == "vote":
        return _probabilities_of_votes(forest, scores)
    if rule.divisor != 1.0:
        scores = scores / rule.divisor
    answers = _linked(rule, scores)
    if answers.shape[1] > 1 or (rule.kind == "mean" and forest.classes is not None):
        return answers
    if forest.classes is None:
        return answers[:, 0]
    return np.concatenate([1 - answers, answers], axis=1)


def _probabilities_of_votes(forest, scores):
    """Return the probabilities of weighted votes."""
    scores = decision(forest, scores)
    n_classes = len(forest.classes)
    if n_classes == 2:
        return sk_softmax(np.hstack([-scores, scores]) / 2)
    return sk_softmax(scores / (n_classes - 1))


def _linked(rule, scores):
    """Return the link of scores, of the same shape."""
    if rule.kind in ("sigmoid", "softmax", "position", "exp"):
        return _by_c_library(rule.kind, scores, rule.slope)
    if rule.kind == "expit":
        return expit(scores * rule.slope)
    if rule.kind == "sk_softmax":
        return sk_softmax(scores)
    if rule.kind == "sk_exp":
        return np.exp(scores)
    return scores


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
    """Return the position of each row's label among the classes."""
    rule = forest.answer_rule
    cut = rule.cut
    if cut is not None:
        if cut.response == "predict_proba":
            response = answer(forest, scores)
        else:
            response = decision(forest, scores)[:, 0]
        return cut.positions(response, forest.classes)
    if rule.by_score:
        scores = decision(forest, scores)
        if scores.shape[1] == 1:
            return (scores[:, 0] > rule.beta).astype(np.intp)
        return np.argmax(scores, axis=1)
    return np.argmax(answer(forest, scores), axis=1)


def labels_at(forest, classes, positions):
    """Return the labels at positions among the classes, of the type of the library's own labels."""
    rule = forest.answer_rule
    labels = classes.take(positions, mode="clip")
    # Where a threshold was moved, it is scikit-learn that answers, with the classes themselves.
    if not rule.label_dtype or rule.cut is not None:
        return labels
    return labels.astype(rule.label_dtype)


def exact_sums(forest, X, n_jobs=None):
    """Return the scores of rows, added up as the library does.

    Parameters
    ----------
    forest : Forest
    X : ndarray of shape (n_samples, n_features)
        Rows from :func:`~skroute.forests._rows.rows_of`.

    n_jobs : int, default=None
        Threads for blocks of rows.

    Returns
    -------
    ndarray of shape (n_samples, n_outputs)
    """
    n = len(X)
    rule = forest.sum_rule
    out = np.empty((n, forest.n_outputs), dtype=rule.dtype)
    out[:] = 0.0 if rule.offset_last else forest.offset
    column = np.arange(forest.n_outputs)
    walk, layout = walk_of(forest, n, 0, forest.n_members)

    def add(start, stop):
        walk(X, start, stop, layout, 0, forest.n_members, column, out)
        if rule.offset_last:
            out[start:stop] *= rule.scale
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
    """Return the ``predict`` of a regressor, many times faster for a forest of scikit-learn.

    scikit-learn goes through checks and a call of joblib for each of the trees, which takes
    longer than the trees do. Other models, and subclasses of forests, use their own ``predict``.
    So do forests whose rows are not an array of finite numbers.

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
        kept = _READ[model] = members, len(members), averaged_forest(model)
    forest = kept[2]
    if not are_plain(forest, X) or not np.isfinite(X).all():
        return model.predict(X)
    return answer(forest, exact_sums(forest, rows_of(forest, X), n_jobs=1))
