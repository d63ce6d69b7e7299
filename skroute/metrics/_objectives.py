"""Meaning of the parameter `quality` of all estimators: the value of an answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import kl_div
from sklearn.base import is_classifier, is_regressor

from skroute.base._inspection import abstained, models_of
from skroute.utils._named import in_order
from skroute.utils._tensors import on_host
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    check_known_labels,
    check_numbers,
    check_truth,
    holds_texts,
    refuse_masked,
)

# Smallest probability in a log loss, and smallest divisor of a percentage error. The
# value is that of scikit-learn's metrics.
_EPSILON = np.finfo(np.float64).eps


def sample_quality(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.float64]:
    """Return the quality of each answer: 1 if it is right, else 0.

    If a row has several labels, it is the Jaccard index of the label sets.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
        True labels, or an indicator matrix of labels. None of them may be missing.

    y_pred : array-like of the shape of `y_true`
        The answers. A row without an answer has None, and counts as wrong.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=float64
        1 or 0 for one label per row. The Jaccard index of two empty label sets is 1.

    Raises
    ------
    ValueError
        If the shapes differ, if a true label is missing, or if both arguments have
        named rows, with the same names in another order.

    Examples
    --------
    >>> from skroute.metrics import sample_quality
    >>> sample_quality(["cat", "dog"], ["cat", "cat"])
    array([1., 0.])
    >>> sample_quality([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]])
    array([0.5, 1. ])
    """
    check_truth(y_pred=y_pred, y=y_true, name="y_true")
    y_true = np.asarray(y_true)
    y_pred = np.asarray(y_pred)
    if y_true.shape != y_pred.shape or y_true.ndim not in (1, 2):
        raise ValueError(
            f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape} do not "
            "go together: give one label per row, or two indicator matrices of the "
            "same shape."
        )
    if y_true.ndim == 2:
        return _jaccard_indices(y_true != 0, y_pred != 0)
    if holds_texts(y_true) != holds_texts(y_pred):
        true_kind = "texts" if holds_texts(y_true) else "numbers"
        answer_kind = "texts" if holds_texts(y_pred) else "numbers"
        raise ValueError(
            f"y_true holds {true_kind} and y_pred {answer_kind}: no answer could be "
            "right. Give labels of the type that fit saw."
        )
    return (y_true == y_pred).astype(np.float64)


def _jaccard_indices(true_labels, predicted_labels):
    """Return the Jaccard index of each row of two masks, (n_rows, n_labels)."""
    n_in_both = np.count_nonzero(true_labels & predicted_labels, axis=1)
    n_in_either = np.count_nonzero(true_labels | predicted_labels, axis=1)
    # Two empty sets are equal: their index is 1.
    return np.where(n_in_either == 0, 1.0, n_in_both / np.maximum(n_in_either, 1))


# The quality of answers as a function -------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """Quality as a function, from true answers and answers to one number per row.

    The mean over rows is the quality of all answers. Higher is better.

    Attributes
    ----------
    name : str
        Name for displays and messages. "callable" is the name of any function of a
        user.

    function : callable
        ``function(true_answers, answers)`` returns an ndarray of shape (n_rows,). The
        answers are probabilities if `asks` is ``"predict_proba"``.

    asks : {"predict", "predict_proba"}
        The method of models that answers for `function`.

    by_class : bool
        True if all classes of true answers weigh the same, with few rows or many.

    class_weights : ndarray of shape (n_classes,) or None
        Weight of a row of each true class. None if `by_class` is False, or the weights
        have yet to be computed from all rows: see `bound`.

    classes : ndarray of shape (n_classes,) or None
        Labels whose positions `function` gets. None if `function` gets the answers as
        they are.

    abstained_quality : float or None
        Quality of a row that abstains. None takes the estimator's ``abstain_quality_``.
    """

    name: str
    function: Callable
    asks: str = "predict"
    by_class: bool = False
    class_weights: Any = None
    classes: Any = None
    abstained_quality: float | None = None

    def of(self, true, answers, weight=None):
        """Return the quality of the answer to each row.

        Parameters
        ----------
        true : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            True answers.
        answers : ndarray of shape (n_rows, ...)
            Answers, or probabilities.
        weight : ndarray of shape (n_rows,), default=None
            Weights of the rows. They matter only if `by_class` is True and
            `class_weights` is None.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if self.classes is not None:
            # `function` gets positions of labels. Probabilities stay as they are.
            true = self._positions_of(true, "y")
            if self.asks == "predict":
                answers = self._positions_of(answers, "y_pred")
        quality = self.function(true, answers)
        if not self.by_class:
            return quality
        # Here `true` has positions of classes.
        class_weights = self.bound(true, weight).class_weights
        return quality * class_weights[true]

    def _positions_of(self, labels, name):
        """Return the positions of labels among the classes.

        `name` is the argument in the error message about a label of no class.
        """
        check_known_labels(labels, self.classes, name)
        return np.searchsorted(self.classes, np.asarray(labels))

    def bound(self, target, weight=None):
        """Return the objective with weights of classes, computed from all rows.

        Afterwards `of` can be called for some of the rows.

        Parameters
        ----------
        target : ndarray of shape (n_rows,), dtype=int64
            Positions of the true classes of all rows.
        weight : ndarray of shape (n_rows,), default=None
            Weights of the rows.

        Returns
        -------
        Objective
        """
        # Nothing is to be computed if classes have no weights, or have them already.
        if not self.by_class or self.class_weights is not None:
            return self
        # Number, or total weight, of the rows of each class.
        counts = np.bincount(target, weights=weight)
        is_present = counts > 0
        n_present = is_present.sum()
        # A class without rows is divided by 1 instead of 0.
        divisors = np.where(is_present, counts, 1.0)
        # With these weights the mean over rows is the mean over the present classes.
        class_weight = counts.sum() / (n_present * divisors)
        # A class without rows gets the weight 0, which is not used.
        return replace(self, class_weights=np.where(is_present, class_weight, 0.0))

    def table(self, target, responses):
        """Return the quality of each member on each row.

        Parameters
        ----------
        target : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        responses : list of ndarray
            Answers, or probabilities, of each member.

        Returns
        -------
        ndarray of shape (n_rows, n_members)
        """
        return np.column_stack([self.of(target, response) for response in responses])

    def of_single(self, y, routed, estimator, weight=None):
        """Return the quality of each row, if all rows are answered.

        Parameters
        ----------
        y : ndarray of shape (n_rows,) or (n_rows, n_columns)
            True answers, or the logged quality of each choice.
        routed : Routed
        estimator : decision estimator
            The answers are its own, or those of one of its choices.
        weight : ndarray of shape (n_rows,), default=None
            Weights of the rows.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        if self._is_logged(y, routed.y_pred, estimator):
            # The quality of the choice made is read from the table.
            return y[np.arange(len(y)), routed.route].astype(np.float64)
        return self.of(y, routed.y_pred, weight)

    def of_routed(self, y, routed, estimator, weight=None):
        """Return the quality of each row, if rows may abstain.

        Parameters
        ----------
        y, routed, estimator, weight
            As in `of_single`.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        answered = np.flatnonzero(~abstained(estimator, routed.route))
        if len(answered) == len(y):
            # No row abstains.
            return self.of_single(y, routed, estimator, weight)
        abstained_quality = self.abstained_quality
        if abstained_quality is None:
            abstained_quality = estimator.abstain_quality_
        quality = np.full(len(y), float(abstained_quality))
        if len(answered):
            # The array of answers has the dtype object: a row that abstains has the
            # answer None. Without such rows, `np.array` finds the dtype of the answers.
            answers = np.array(routed.y_pred[answered].tolist())
            routed_answered = replace(
                routed, y_pred=answers, route=routed.route[answered]
            )
            answered_weight = None if weight is None else weight[answered]
            quality[answered] = self.of_single(
                y[answered], routed_answered, estimator, answered_weight
            )
        return quality

    def _is_logged(self, y, y_pred, estimator):
        """Return True if `y` has the quality of each choice, False for true answers.

        Raise a ValueError if `y` fits neither the choices nor the predictions `y_pred`.
        """
        # An estimator that only routes has no parameter `quality`: its objective is
        # accuracy.
        if self.name != "accuracy" or is_classifier(estimator):
            return False
        if y.ndim != 2 or y.shape == np.shape(y_pred):
            return False
        n_choices = len(models_of(estimator))
        if y.shape[1] == n_choices:
            return True
        raise ValueError(
            f"y of shape {y.shape} and predictions of shape {np.shape(y_pred)} do not "
            "go together: give one label per row, an indicator matrix for predictions "
            "of the same shape, or, for an estimator that only routes, a quality "
            f"matrix with one column for each of its choices_ (there are {n_choices})."
        )


# Qualities of labels ------------------------------------------------------------------


def _true_probability(target, proba):
    """Return the probability of the true class of each row, shape (n_rows,).

    `target` are positions of classes, and `proba` has shape (n_rows, n_classes).
    """
    return proba[np.arange(len(target)), target]


def _log_probability(target, proba):
    """Return the logarithm of the probability of the true class, shape (n_rows,).

    `target` are positions of classes, and `proba` has shape (n_rows, n_classes).
    Probabilities are divided by their sum and clipped as in scikit-learn's log loss.
    """
    sums = proba.sum(axis=1)
    # A row of zeros is not divided: its share is 0.
    share = _true_probability(target, proba) / np.where(sums > 0, sums, 1.0)
    return np.log(np.clip(share, _EPSILON, 1.0))


def _minus_brier(target, proba):
    """Return minus the Brier score of each row, shape (n_rows,).

    The score is the sum of the squared errors of all classes. It is divided by 2 if
    there are two classes, as in scikit-learn. `target` are positions of classes, and
    `proba` has shape (n_rows, n_classes).
    """
    n_classes = proba.shape[1]
    indicator = np.eye(n_classes, dtype=proba.dtype)[target]  # (n_rows, n_classes)
    error = proba - indicator
    divisor = 2.0 if n_classes == 2 else 1.0
    return -(error**2).sum(axis=1) / divisor


def _minus_cost(target, answers, cost_matrix):
    """Return minus the cost of each answer, shape (n_rows,).

    `target` and `answers` are positions of classes. `cost_matrix` has a row for each
    true class, and a column for each answer.
    """
    return -cost_matrix[target, answers]


# Qualities of classifiers, by the names that the parameter `quality` takes.
OF_LABELS = {
    "accuracy": Objective("accuracy", sample_quality),
    "balanced_accuracy": Objective("balanced_accuracy", sample_quality, by_class=True),
    "probability": Objective("probability", _true_probability, asks="predict_proba"),
    "log_loss": Objective("log_loss", _log_probability, asks="predict_proba"),
    "brier": Objective("brier", _minus_brier, asks="predict_proba"),
}


def is_pair(quality):
    """Return True if a quality is a pair of a method's name and a function.

    A tuple of rows is a cost matrix.
    """
    return isinstance(quality, tuple) and bool(quality) and isinstance(quality[0], str)


def is_money(quality):
    """Return True if a quality is a cost matrix, as a table or as a mapping."""
    is_named = quality is None or isinstance(quality, str)
    return not (is_named or callable(quality) or is_pair(quality))


def asks_of(quality):
    """Return the name of the method of members whose results a quality rates."""
    if isinstance(quality, str) and quality in OF_LABELS:
        return OF_LABELS[quality].asks
    if is_pair(quality) and quality[0] == "predict_proba":
        return "predict_proba"
    return "predict"


def objective_of_labels(quality, classes, *, several=False, takes=None, who=""):
    """Return the objective for the parameter `quality` of a classifier.

    Parameters
    ----------
    quality : str, mapping, array-like, callable or tuple
    classes : ndarray of shape (n_classes,)
        The labels. If a row has several labels, the positions of the labels.
    several : bool, default=False
        True if a row has several labels.
    takes : sequence of str, default=None
        Names of the qualities that the method of the router supports. None is all of
        them.
    who : str, default=""
        Name of the router, for the message about a quality that it does not support.

    Returns
    -------
    Objective

    Raises
    ------
    ValueError
    """
    _check_quality_of_labels(quality, several)
    if isinstance(quality, str):
        objective = OF_LABELS[quality]
    elif is_pair(quality) or callable(quality):
        objective = _objective_of_function(quality, classes, several=several)
    else:
        objective = cost_objective(quality, classes)
    # Every router supports a user's function of labels, because it needs no scores.
    is_of_answers = objective.name == "callable" and objective.asks == "predict"
    is_supported = takes is None or objective.name in takes or is_of_answers
    if not is_supported:
        names = ", ".join(repr(name) for name in takes if name != "cost matrix")
        raise ValueError(
            f"{who} has no rule for quality={_describe(quality)}: it keeps or replaces "
            f"labels by their scores, one row at a time. It takes {names}, a cost "
            "matrix or a function of labels; OccamRouterClassifier takes every "
            "quality."
        )
    return objective


def _check_quality_of_labels(quality, several):
    """Raise a ValueError if a classifier cannot have this quality.

    Parameters
    ----------
    quality
        As in `objective_of_labels`.
    several : bool
        True if a row has several labels. Then only accuracy, a function and a pair are
        allowed.
    """
    if is_pair(quality):
        is_valid = len(quality) == 2 and quality[0] == "predict_proba"
        if not is_valid or not callable(quality[1]):
            raise ValueError(
                'quality as a pair must be ("predict_proba", function), got '
                f"{quality!r}."
            )
    elif isinstance(quality, str):
        if quality not in OF_LABELS:
            raise ValueError(
                f"quality={quality!r} is not one of {list(OF_LABELS)!r}. It may also "
                "be a cost matrix, a function of true and given labels, or a pair of "
                '"predict_proba" and a function.'
            )
    if not several or is_pair(quality) or callable(quality):
        return
    if not (isinstance(quality, str) and quality == "accuracy"):
        raise ValueError(
            f"quality={_describe(quality)} is for one label per row. With several "
            "labels it may be "
            '"accuracy", the labels in common by those in either, or a function.'
        )


def _describe(quality):
    """Return the parameter `quality` as text for a message: its name or its type."""
    if isinstance(quality, str):
        return repr(quality)
    return f"a {type(quality).__name__}"


def _objective_of_function(quality, classes, *, several):
    """Return the objective of a user's function of labels, or of probabilities.

    Parameters
    ----------
    quality : callable, or tuple of ("predict_proba", callable)
    classes, several
        As in `objective_of_labels`.

    Returns
    -------
    Objective
    """
    function = quality[1] if is_pair(quality) else quality
    # The function gets labels in place of their positions. With several labels per row
    # it gets a matrix of True and False.
    decode = partial(np.asarray, dtype=bool) if several else classes.take
    return _decoding_objective(function, decode, asks=asks_of(quality))


def cost_objective(costs, classes):
    """Return the objective of a cost matrix: minus the cost of each answer.

    Parameters
    ----------
    costs : mapping from (label, label) to float, or array-like
        Cost of each pair of true label and answer. A mapping has every pair of
        different labels. The cost of a right answer is 0 by default, and negative if
        the answer is a gain. It is never above the cost of an error. A frame with
        labels is read by its labels.
    classes : ndarray of shape (n_classes,)
        The labels.

    Returns
    -------
    Objective

    Raises
    ------
    ValueError
    """
    labels = classes.tolist()
    name = "quality as a cost matrix"
    if isinstance(costs, Mapping):
        costs = _table_of_pairs(costs, labels, name)
    # One row for each true label, one column for each answer.
    shape = (len(labels), len(labels))
    table = check_numbers(_by_label(costs, labels), name, shape=shape)
    cost_of_right = table.diagonal()[:, np.newaxis]  # (n_classes, 1)
    # True for an error that costs less than the right answer to its true label.
    is_too_cheap = table < cost_of_right
    if is_too_cheap.any():
        row, column = np.argwhere(is_too_cheap)[0]
        raise ValueError(
            "quality as a cost matrix holds costs: lower is better, and no error may "
            "cost less than the right answer. "
            f"({labels[row]!r}, {labels[column]!r}) costs {table[row, column]:g}, and "
            f"{labels[row]!r} itself {table[row, row]:g}. Give the gain of a right "
            "answer as a negative cost of the label with itself."
        )
    return Objective("cost matrix", partial(_minus_cost, cost_matrix=table))


def _table_of_pairs(costs, labels, name):
    """Return a mapping of costs as a table, with a line for each true label.

    Parameters
    ----------
    costs : mapping from (true label, answer) to float
    labels : list
    name : str
        Name of the argument for messages.

    Returns
    -------
    list of list of float
        Each line has one entry for each answer.
    """
    cells = {}
    for label in labels:
        # A right answer costs 0, unless `costs` has an entry for it.
        cells[label, label] = 0.0
    cells.update(costs)
    pairs = list(product(labels, labels))
    unknown = [key for key in cells if key not in pairs]
    if unknown:
        raise ValueError(
            f"{name} has an entry whose key is not a pair (true label, given label) of "
            f"{labels!r}: {unknown[0]!r}."
        )
    missing = [pair for pair in pairs if pair not in cells]
    if missing:
        raise ValueError(
            f"{name} has no entry for {missing[0]!r}: each pair of different labels "
            "(true, given) needs one. Give 0 for an error that costs nothing."
        )
    table = []
    for true_label in labels:
        table.append([cells[true_label, answer] for answer in labels])
    return table


def _by_label(costs, labels):
    """Return a frame's numbers in the order of the labels, anything else as it is.

    The frame has true labels as its index, and answers as its columns. Labels are
    compared as texts. A frame with default labels, 0, 1 and so on, is read by position.

    Parameters
    ----------
    costs : dataframe or array-like
    labels : list
    """
    if not (hasattr(costs, "columns") and hasattr(costs, "index")):
        return costs
    index = np.asarray(costs.index).tolist()
    columns = np.asarray(costs.columns).tolist()
    texts = [str(label) for label in labels]
    index_texts = [str(label) for label in index]
    column_texts = [str(label) for label in columns]
    if sorted(index_texts) == sorted(column_texts) == sorted(texts):
        row_positions = [index_texts.index(text) for text in texts]
        column_positions = [column_texts.index(text) for text in texts]
        return costs.to_numpy()[np.ix_(row_positions, column_positions)]
    has_default_index = index == list(range(len(index)))
    has_default_columns = columns == list(range(len(columns)))
    if not (has_default_index and has_default_columns):
        raise ValueError(
            "quality as a cost matrix in a frame must have the true labels as its "
            f"index and the given ones as its columns, {labels!r} both, got {index!r} "
            f"and {columns!r}."
        )
    return costs


# Qualities of numbers -----------------------------------------------------------------


def _minus_squared_error(true, answers):
    """Return minus the squared error of each answer."""
    return -((true - answers) ** 2)


def _minus_absolute_error(true, answers):
    """Return minus the absolute error of each answer."""
    return -np.abs(true - answers)


def _minus_squared_log_error(true, answers):
    """Return minus the squared error of the logarithms of one plus each number."""
    return -((np.log1p(true) - np.log1p(answers)) ** 2)


def _minus_percentage_error(true, answers):
    """Return minus the absolute error as a share of the true number."""
    return -np.abs(true - answers) / np.maximum(np.abs(true), _EPSILON)


def _minus_poisson_deviance(true, answers):
    """Return minus the deviance of a Poisson distribution, of counts."""
    return -2.0 * kl_div(true, answers)


def _minus_gamma_deviance(true, answers):
    """Return minus the deviance of a gamma distribution, of positive numbers."""
    return -2.0 * (np.log(answers) - np.log(true) + true / answers - 1.0)


# Qualities of regressors, by the names that the parameter `quality` takes.
OF_NUMBERS = {
    "squared_error": _minus_squared_error,
    "absolute_error": _minus_absolute_error,
    "squared_log_error": _minus_squared_log_error,
    "absolute_percentage_error": _minus_percentage_error,
    "poisson_deviance": _minus_poisson_deviance,
    "gamma_deviance": _minus_gamma_deviance,
}


def objective_of_numbers(quality):
    """Return the objective for the parameter `quality` of a regressor.

    Parameters
    ----------
    quality : str or callable

    Returns
    -------
    Objective
    """
    # Answers become floats before they are compared.
    decode = partial(np.asarray, dtype=np.float64)
    if not isinstance(quality, str):
        return _decoding_objective(quality, decode)
    # Some losses are for positive numbers only. They are NaN or infinite for other
    # numbers. A later check refuses these values, so no warning is needed.
    without_warnings = np.errstate(divide="ignore", invalid="ignore")
    function = without_warnings(OF_NUMBERS[quality])
    return _decoding_objective(function, decode, name=quality)


# Functions of users -------------------------------------------------------------------


def rated_by(function, name="quality"):
    """Return a user's function with a check: it must return a finite number per row.

    Parameters
    ----------
    function : callable
        ``function(y, answers)`` returns an array-like of shape (n_rows,).
    name : str, default="quality"
        Name of the argument for messages.

    Returns
    -------
    callable
        It returns an ndarray of shape (n_rows,).
    """
    return partial(_rate, function=function, name=name)


def _rate(y, answers, *, function, name):
    """Return what a user's function returns, after a check: one number for each row.

    Parameters
    ----------
    y, answers : ndarray of n_rows rows
    function : callable
        ``function(y, answers)``.
    name : str
        Name of the argument for messages.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    returned = function(y, answers)
    refuse_masked(**{f"what {name} returns": returned})
    per_row = np.asarray(returned, dtype=np.float64)
    if per_row.shape != (len(y),) or not np.isfinite(per_row).all():
        raise ValueError(
            f"{name} must return one finite number for each row, shape "
            f"({len(y)},), got shape {per_row.shape} with {np.isnan(per_row).sum()} "
            f"NaN and {np.isinf(per_row).sum()} infinite."
        )
    return per_row


def _decoding_objective(function, decode, *, asks="predict", name="callable"):
    """Return an objective that calls a function with the results of `decode`.

    Parameters
    ----------
    function : callable
        From true answers and answers to one number per row.
    decode : callable
        Turns the answers that an objective gets, such as positions of labels, into the
        answers that `function` gets. Probabilities are not decoded.
    asks : {"predict", "predict_proba"}
        As in `Objective`.
    name : str
        As in `Objective`.

    Returns
    -------
    Objective
    """
    # Messages about a user's function name the parameter `quality`.
    name_in_messages = "quality" if name == "callable" else name
    rate = rated_by(function, name_in_messages)
    if asks == "predict_proba":
        rate_decoded = partial(_rate_probabilities, rate=rate, decode=decode)
    else:
        rate_decoded = partial(_rate_answers, rate=rate, decode=decode)
    return Objective(name, rate_decoded, asks=asks)


def _rate_answers(true, answers, *, rate, decode):
    """Return the quality of each row by `rate`, after `decode` of both arguments."""
    return rate(decode(true), decode(answers))


def _rate_probabilities(true, proba, *, rate, decode):
    """Return the quality of each row by `rate`, after `decode` of the true answers."""
    return rate(decode(true), proba)


# The quality of an estimator ----------------------------------------------------------


def worth_of(estimator, y=None, row_quality=None):
    """Return the objective that the answers of a decision estimator are measured by.

    Parameters
    ----------
    estimator : decision estimator
    y : array-like of shape (n_rows,) or (n_rows, n_labels), default=None
        True answers. If the estimator is not fitted, its classes are taken from them.
    row_quality : callable, default=None
        A function ``row_quality(y, y_pred)``. None takes the estimator's own `quality`.

    Returns
    -------
    Objective

    Raises
    ------
    ValueError
        If `row_quality` is not a function, or a regressor has no quality.
    """
    if row_quality is not None:
        if not callable(row_quality):
            raise ValueError(
                "row_quality must be a function of (y, y_pred) that returns one "
                f"number per row, or None, got {row_quality!r}."
            )
        return Objective("row_quality", rated_by(row_quality, "row_quality"))
    while hasattr(getattr(estimator, "estimator_", None), "predict_routed"):
        # A certified or distributed estimator has the quality of the estimator inside.
        estimator = estimator.estimator_
    quality = estimator.get_params(deep=False).get("quality")
    if is_regressor(estimator):
        if quality is None:
            raise ValueError(
                f"{type(estimator).__name__} answers with numbers and has no quality: "
                "give row_quality, a function of true and given numbers."
            )
        return objective_of_numbers(quality)
    if quality is None or not is_classifier(estimator):
        # Accuracy is the default, also of an estimator that only routes.
        return OF_LABELS["accuracy"]
    several = y is not None and np.ndim(y) == 2
    classes = _classes_of(estimator, y, several=several)
    objective = objective_of_labels(quality, classes, several=several)
    if several or objective.name == "accuracy":
        # Answers are compared as they are.
        return objective
    # With `classes`, labels become positions before they are compared.
    return replace(objective, classes=classes)


def _classes_of(estimator, y, *, several):
    """Return the classes of a classifier. If it is not fitted, they are those in `y`.

    If a row has several labels (`several`), the classes are the columns of `y`.
    """
    classes = getattr(estimator, "classes_", None)
    if classes is not None:
        return classes
    if several:
        return np.arange(np.shape(y)[1])
    return np.unique(y)


def qualities_of(y, estimator):
    """Return qualities of the choices of an estimator that only routes, NaN if unknown.

    Parameters
    ----------
    y : {array-like, dataframe} of shape (n_samples, n_choices)
        A frame's columns are read by name.
    estimator : fitted decision estimator

    Returns
    -------
    ndarray of shape (n_samples, n_choices), dtype=float64

    Raises
    ------
    ValueError
        If there is not one column of numbers for each choice.
    """
    names = models_of(estimator)
    quality = check_numbers(in_order(_dense(y), names, "y"), "y", allow_nan=True)
    if quality.shape[1:] != (len(names),):
        raise ValueError(
            f"y of shape {quality.shape} must have one column with the quality of each "
            f"of {names!r}. Give the table of qualities of these rows."
        )
    return quality


def rows_of(y, estimator):
    """Return targets as an array; a frame of qualities in the order of the choices.

    Parameters
    ----------
    y : {array-like, sparse matrix, dataframe, tensor} with n_samples rows
    estimator : fitted decision estimator

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_columns)
    """
    if getattr(y, "ndim", 1) == 2 and not is_classifier(estimator):
        # The columns may be qualities of the choices. A frame is then put into the
        # order of the choices.
        y = in_order(y, models_of(estimator))
    return np.asarray(_dense(y))


def _dense(y):
    """Return a sparse matrix as an array, and a tensor in the memory of the host.

    Other targets are returned as they are.
    """
    if hasattr(y, "toarray"):
        y = y.toarray()
    return on_host(y)
