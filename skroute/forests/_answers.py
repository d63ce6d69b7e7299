"""Answers of a forest from the leaves of its rows, equal to those of its library.

Numbers are equal to the last bit.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.utils.extmath import softmax as sk_softmax

from skroute.forests._code_walk import walk_of
from skroute.forests._forest import Forest
from skroute.forests._rows import are_plain, rows_of
from skroute.forests._sklearn import averaged_forest

# Least number of rows of a block. The kernels evaluate this many rows together.
_LEAST_ROWS_PER_BLOCK = 1024
# Blocks of rows for each thread. Rows may leave early, so that blocks take unequal
# times.
_BLOCKS_PER_THREAD = 4
# Kinds of an `AnswerRule` whose link needs the exponential of the C library.
_C_LINKS = ("sigmoid", "softmax", "position", "exp")
# XGBoost limits the exponent of its logistic function to this number, whose exponential
# does not overflow in single precision.
_LARGEST_EXPONENT = 88.7


def exact_sums(forest, X, n_jobs=None):
    """Return offset plus leaves of each row, to the last bit as the library adds.

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
    n_rows = len(X)
    rule = forest.sum_rule
    sums = np.empty((n_rows, forest.n_outputs), dtype=rule.dtype)
    if rule.offset_last:
        # This library adds the offset after the trees, which `_add_block` does.
        sums[:] = 0.0
    else:
        sums[:] = forest.offset
    walk, layout = walk_of(forest, n_rows, first=0, last=forest.n_members)
    # Each block adds to its rows of `sums`.
    in_parts(partial(_add_block, forest, X, walk, layout, sums), n_rows, n_jobs=n_jobs)
    return sums


def _add_block(forest, X, walk, layout, sums, start, stop):
    """Add the leaf values of all trees to ``sums[start:stop]``, by the kernel `walk`.

    Parameters
    ----------
    forest : Forest
    X : ndarray of shape (n_samples, n_features)
    walk, layout
        From :func:`~skroute.forests._code_walk.walk_of`.

    sums : ndarray of shape (n_samples, n_outputs)
        Changed: rows ``start:stop``.

    start, stop : int
        The first row of the block and the one behind its last.
    """
    # Each output has its own column of `sums`.
    column_of_output = np.arange(forest.n_outputs)
    first_member = 0
    walk(
        X,
        start,
        stop,
        layout,
        first_member,
        forest.n_members,
        column_of_output,
        sums,
    )
    rule = forest.sum_rule
    if rule.offset_last:
        # `sums` has started at 0. The library scales the trees, then adds the offset.
        sums[start:stop] *= rule.scale
        sums[start:stop] += forest.offset


def in_parts(call, n_rows, n_jobs):
    """Call ``call(start, stop)`` for each block of rows, in threads if rows are many.

    Parameters
    ----------
    call : callable
        It takes the first row of a block and the one behind its last. Its result is
        not used.

    n_rows : int
        Number of rows of all blocks together.

    n_jobs : int or None
        Number of threads, as in joblib.
    """
    # Largest number of blocks. It is rounded up: the last block may be smaller.
    most_blocks = -(-n_rows // _LEAST_ROWS_PER_BLOCK)
    n_threads = 1
    if most_blocks > 1:
        n_threads = min(effective_n_jobs(n_jobs), most_blocks)
    if n_threads == 1:
        call(0, n_rows)
        return
    n_blocks = min(_BLOCKS_PER_THREAD * n_threads, most_blocks)
    # Block `b` has the rows ``bounds[b]:bounds[b + 1]``.
    bounds = np.linspace(0, n_rows, n_blocks + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        # The list waits for all blocks, and raises an error of any of them.
        list(pool.map(call, bounds[:-1], bounds[1:]))


def decision(forest, scores):
    """Return the library's ``decision_function``, computed from the sums of leaves.

    Parameters
    ----------
    forest : Forest
    scores : ndarray of shape (n_samples, n_outputs)
        From :func:`exact_sums`.

    Returns
    -------
    ndarray of shape (n_samples, n_outputs)
    """
    rule = forest.answer_rule
    if rule.kind != "vote":
        return scores
    mean_votes = scores / rule.divisor
    if mean_votes.shape[1] == 1:
        # The one score is the mean vote for the second class. The mean vote for the
        # first class is its negative. scikit-learn answers with their difference.
        return mean_votes * 2
    return mean_votes


def answer(forest, scores):
    """Return probabilities (classifier) or predictions, from the sums of the leaves.

    Parameters
    ----------
    forest : Forest
    scores : ndarray of shape (n_samples, n_outputs)
        From :func:`exact_sums`.

    Returns
    -------
    ndarray of shape (n_samples, n_classes) or (n_samples,)
        Numbers of a model with several outputs have shape (n_samples, n_outputs).
    """
    rule = forest.answer_rule
    if rule.kind == "vote":
        return _probabilities_of_votes(forest, scores)
    if rule.divisor != 1.0:
        scores = scores / rule.divisor
    answers = _linked(rule, scores)
    has_one_column = answers.shape[1] == 1
    if forest.classes is None:
        return answers[:, 0] if has_one_column else answers
    if has_one_column and rule.kind != "mean":
        # The one column is the probability of the second class. Answers of the kind
        # "mean" have a column for each class already.
        return np.concatenate([1 - answers, answers], axis=1)
    return answers


def _probabilities_of_votes(forest, scores):
    """Return the probabilities of weighted votes, as AdaBoost computes them.

    Parameters are those of :func:`answer`. Results have shape (n_samples, n_classes).
    """
    n_classes = len(forest.classes)
    # (n_samples, 1) for two classes, else (n_samples, n_classes).
    votes = decision(forest, scores)
    # Before the softmax, AdaBoost divides the votes by 2 for two classes, and by
    # `n_classes - 1` for more.
    if n_classes == 2:
        return sk_softmax(np.hstack([-votes, votes]) / 2)
    return sk_softmax(votes / (n_classes - 1))


def _linked(rule, scores):
    """Return the answers that the link function of `rule` computes from sums of leaves.

    Parameters
    ----------
    rule : AnswerRule
        Its `kind` is the name of the link. "vote" is not among the kinds here.

    scores : ndarray of shape (n_samples, n_outputs)

    Returns
    -------
    ndarray of shape (n_samples, n_outputs)
    """
    if rule.kind in _C_LINKS:
        return _linked_by_c_library(rule.kind, scores, slope=rule.slope)
    if rule.kind == "expit":
        return expit(scores * rule.slope)
    if rule.kind == "sk_softmax":
        return sk_softmax(scores)
    if rule.kind == "sk_exp":
        return np.exp(scores)
    # "identity" and "mean" answer with the scores.
    return scores


def _linked_by_c_library(kind, scores, slope):
    """Return the link of `scores` with the exponential of C, as boosting libraries do.

    Parameters
    ----------
    kind : {"sigmoid", "exp", "softmax", "position"}
        "position" is the softmax, too.

    scores : ndarray of shape (n_samples, n_outputs)
    slope : float
        Factor of the scores inside the logistic function ("sigmoid").

    Returns
    -------
    ndarray of shape (n_samples, n_outputs)
    """
    # The import compiles the kernels, so that it is left to the first use.
    from skroute.forests._kernels import exponential

    if kind == "sigmoid":
        # The slope in the precision of the scores, so that they keep it.
        exponent = scores * scores.dtype.type(-slope)
        if exponent.dtype == np.float32:
            exponent = np.minimum(exponent, _LARGEST_EXPONENT)
        return 1 / (1 + exponential(exponent))
    if kind == "exp":
        return exponential(scores)
    # The softmax. The largest score of each row is subtracted, so that no exponential
    # overflows.
    powers = exponential(scores - scores.max(axis=1, keepdims=True))
    # The libraries add one power after the other, in double precision. The last column
    # of these running sums is the total.
    totals = powers.cumsum(axis=1, dtype=np.float64)[:, -1:]
    return powers / totals.astype(powers.dtype)


def label_positions(forest, scores):
    """Return the position of each row's label among the classes.

    Parameters
    ----------
    forest : Forest
    scores : ndarray of shape (n_samples, n_outputs)
        From :func:`exact_sums`.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=intp
    """
    rule = forest.answer_rule
    cut = rule.cut
    if cut is not None:
        if cut.response == "predict_proba":
            response = answer(forest, scores)
        else:
            # Only classifiers of two classes have a moved threshold: one score a row.
            response = decision(forest, scores)[:, 0]
        return cut.positions(response, forest.classes)
    if not rule.by_score:
        # The library compares probabilities, which rounding can make equal.
        return np.argmax(answer(forest, scores), axis=1)
    scores = decision(forest, scores)
    if scores.shape[1] == 1:
        # The second class, at position 1, has scores above `beta`.
        return (scores[:, 0] > rule.beta).astype(np.intp)
    return np.argmax(scores, axis=1)


def labels_at(forest, classes, positions):
    """Return ``classes[positions]``, in the type of the library's own labels.

    Parameters
    ----------
    forest : Forest
    classes : ndarray of shape (n_classes,)
    positions : ndarray of shape (n_samples,), dtype=int

    Returns
    -------
    ndarray of shape (n_samples,)
        Their type is that of the library's own labels.
    """
    rule = forest.answer_rule
    # If there is only one class, positions can be 1: "clip" takes this class.
    labels = classes.take(positions, mode="clip")
    # If the threshold was moved, scikit-learn's threshold classifier answers. Its
    # labels have the type of the classes.
    if rule.cut is not None or not rule.label_dtype:
        return labels
    return labels.astype(rule.label_dtype)


class _CachedForest(NamedTuple):
    """The forest of a fitted regressor, and the fit to which it belongs.

    Attributes
    ----------
    estimators : list
        The trees of the regressor. A second fit makes another list.

    n_estimators : int
        Length of this list. A fit with a warm start extends it.

    forest : Forest
    """

    estimators: list
    n_estimators: int
    forest: Forest


# Forests by regressor. They are not attributes of the regressors, so that they are
# neither pickled nor cloned nor shown.
_FORESTS: WeakKeyDictionary = WeakKeyDictionary()


def average_of(model, X):
    """Return ``model.predict(X)`` of a regressor, for a forest by compiled trees.

    For each tree of a forest, scikit-learn checks the rows and calls joblib, which
    takes longer than the tree does. Here, the trees are evaluated together. Other
    models, and subclasses of forests, use their own ``predict``. So do forests whose
    rows are not an array of finite numbers.

    Parameters
    ----------
    model : fitted regressor
    X : ndarray of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The model's own numbers, to the last bit.
    """
    if not _predicts_averages_of_trees(model):
        return model.predict(X)
    forest = _forest_of_averages(model)
    if not are_plain(forest, X) or not np.isfinite(X).all():
        return model.predict(X)
    rows = rows_of(forest, X)
    scores = exact_sums(forest, rows, n_jobs=1)
    return answer(forest, scores)


def _predicts_averages_of_trees(model):
    """Return True if the ``predict`` of a model only averages its trees.

    This is so for a forest of scikit-learn that was fitted on an array. After a fit on
    a frame, ``predict`` also compares the names of the columns.
    """
    if type(model) not in (RandomForestRegressor, ExtraTreesRegressor):
        return False
    attributes = vars(model)
    if attributes.get("estimators_") is None:
        return False
    if "feature_names_in_" in attributes:
        # After a fit on a frame, `predict` also compares the names of columns.
        return False
    # An instance may have a `predict` that replaces the one of its class.
    return "predict" not in attributes


def _forest_of_averages(model):
    """Return the forest of a fitted regressor, read again only after another fit."""
    estimators = model.estimators_
    # None: no forest of this regressor is stored.
    cached = _FORESTS.get(model)
    is_of_this_fit = (
        cached is not None
        and cached.estimators is estimators
        and cached.n_estimators == len(estimators)
    )
    if not is_of_this_fit:
        cached = _CachedForest(
            estimators, n_estimators=len(estimators), forest=averaged_forest(model)
        )
        _FORESTS[model] = cached
    return cached.forest
