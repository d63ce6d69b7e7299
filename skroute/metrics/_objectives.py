"""What an answer is worth: the meaning of `quality=` in every room."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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

# Least probability that log loss takes a logarithm of, as scikit-learn has it.
_LEAST = np.finfo(np.float64).eps


def sample_quality(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.float64]:
    """Quality of each answer: right (1) or wrong (0), or the Jaccard index of its label set.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
        True labels, or an indicator matrix of labels. None of them may be missing.

    y_pred : array-like of the shape of `y_true`
        The answers. A row that is not answered, None, counts as wrong.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=float64
        1 or 0 for one label per row; the Jaccard index of the label sets, 1 where both
        are empty, for several.

    Raises
    ------
    ValueError
        If the shapes differ, if a true label is missing, or if rows of both have the same labels
        in another order.

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
            f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape} do not go "
            "together: give one label per row, or two indicator matrices of the same shape."
        )
    if y_true.ndim == 1:
        if holds_texts(y_true) != holds_texts(y_pred):
            kinds = ["texts" if holds_texts(y) else "numbers" for y in (y_true, y_pred)]
            raise ValueError(
                f"y_true holds {kinds[0]} and y_pred {kinds[1]}: no answer could be right. Give "
                "labels of the type that fit saw."
            )
        return (y_true == y_pred).astype(np.float64)
    true, named = y_true != 0, y_pred != 0
    both = np.count_nonzero(true & named, axis=1)
    either = np.count_nonzero(true | named, axis=1)
    return np.where(either == 0, 1.0, both / np.maximum(either, 1))


# A quality, as a function of encoded answers -------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """One quality: from true answers and answers to one number per row.

    Attributes
    ----------
    name : str
        For displays and messages.
    function : callable
        From true answers and answers, or probabilities, to one number per row.
    asks : {"predict", "predict_proba"}
        What models are asked for.
    by_class : bool
        Whether all true classes weigh the same, however many rows they have.
    share : ndarray of shape (n_classes,) or None
        With `by_class` the weight of each class, where it is bound to rows.
    classes : ndarray of shape (n_classes,) or None
        The labels that the function is given the positions of; None where it is given answers as
        they are.
    abstained_quality : float or None
        What a row counts as that abstains; None takes the estimator's own.
    """

    name: str
    function: Callable
    asks: str = "predict"
    by_class: bool = False
    share: Any = None
    classes: Any = None
    abstained_quality: float | None = None

    def of(self, true, answers, weight=None):
        """One number per row, whose mean by `weight` is the quality of all answers."""
        if self.classes is not None:
            true = self.codes(true, "y")
            answers = (
                self.codes(answers, "y_pred") if self.asks == "predict" else answers
            )
        found = self.function(true, answers)
        return found * self.bound(true, weight).share[true] if self.by_class else found

    def codes(self, labels, name):
        """Positions of labels among the classes."""
        check_known_labels(labels, self.classes, name)
        return np.searchsorted(self.classes, np.asarray(labels))

    def bound(self, target, weight=None):
        """The same, with the weights of classes that all rows give it."""
        if not self.by_class or self.share is not None:
            return self
        counts = np.bincount(target, weights=weight)
        seen = counts > 0
        # The mean over rows is then one over classes.
        even = counts.sum() / (seen.sum() * np.where(seen, counts, 1.0))
        return replace(self, share=np.where(seen, even, 0.0))

    def table(self, target, responses):
        """Quality of each member, by its answers or probabilities, (n_rows, n_members)."""
        return np.column_stack([self.of(target, part) for part in responses])

    def of_single(self, y, routed, estimator, weight=None):
        """Quality of each row of a pass in which all are answered, by choices or another model."""
        if self._is_logged(y, routed.y_pred, estimator):
            return y[np.arange(len(y)), routed.route].astype(np.float64)
        return self.of(y, routed.y_pred, weight)

    def of_routed(self, y, routed, estimator, weight=None):
        """Quality of each row of a pass; one that abstains counts as its estimator has it."""
        rows = np.flatnonzero(~abstained(estimator, routed.route))
        if len(rows) == len(y):
            return self.of_single(y, routed, estimator, weight)
        own = (
            estimator.abstain_quality_
            if self.abstained_quality is None
            else self.abstained_quality
        )
        found = np.full(len(y), float(own))
        if len(rows):
            # Labels again, where None stood beside them.
            answers, route = np.array(routed.y_pred[rows].tolist()), routed.route[rows]
            weight = None if weight is None else weight[rows]
            part = replace(routed, y_pred=answers, route=route)
            found[rows] = self.of_single(y[rows], part, estimator, weight)
        return found

    def _is_logged(self, y, y_pred, estimator):
        """Whether y has the quality of each choice, and not true answers."""
        of_answers = (
            y.ndim != 2 or y.shape == np.shape(y_pred) or is_classifier(estimator)
        )
        if self.name != "accuracy" or of_answers:
            return False
        if y.shape[1] == len(models_of(estimator)):
            return True
        raise ValueError(
            f"y of shape {y.shape} and predictions of shape {np.shape(y_pred)} do not go "
            "together: give one label per row, an indicator matrix for predictions of the same "
            "shape, or, for an estimator that only routes, a quality matrix with one column for "
            f"each of its choices_ (there are {len(models_of(estimator))})."
        )


def _true_probability(target, proba):
    """Probability of the true class."""
    return proba[np.arange(len(target)), target]


def _log_probability(target, proba):
    """Logarithm of the probability of the true class, as scikit-learn has it."""
    sums = proba.sum(axis=1)
    share = _true_probability(target, proba) / np.where(sums > 0, sums, 1.0)
    return np.log(np.clip(share, _LEAST, 1.0))


def _minus_brier(target, proba):
    """Minus the Brier score over all classes; half of it for two, scikit-learn's default."""
    error = proba - np.eye(proba.shape[1], dtype=proba.dtype)[target]
    return -(error**2).sum(axis=1) / (2.0 if proba.shape[1] == 2 else 1.0)


OF_LABELS = {
    "accuracy": Objective("accuracy", sample_quality),
    "balanced_accuracy": Objective("balanced_accuracy", sample_quality, by_class=True),
    "probability": Objective("probability", _true_probability, "predict_proba"),
    "log_loss": Objective("log_loss", _log_probability, "predict_proba"),
    "brier": Objective("brier", _minus_brier, "predict_proba"),
}


OF_NUMBERS = {
    "squared_error": lambda true, given: -((true - given) ** 2),
    "absolute_error": lambda true, given: -np.abs(true - given),
    "squared_log_error": lambda true, given: -((np.log1p(true) - np.log1p(given)) ** 2),
    "absolute_percentage_error": lambda true, given: (
        -np.abs(true - given) / np.maximum(np.abs(true), _LEAST)
    ),
    "poisson_deviance": lambda true, given: -2.0 * kl_div(true, given),
    "gamma_deviance": lambda true, given: (
        -2.0 * (np.log(given) - np.log(true) + true / given - 1.0)
    ),
}


def is_pair(quality):
    """Whether a quality is a kind and a function; a tuple of rows is a cost matrix."""
    return isinstance(quality, tuple) and bool(quality) and isinstance(quality[0], str)


def asks_of(quality):
    """What members are asked for by a quality, before the labels are known."""
    if isinstance(quality, str) and quality in OF_LABELS:
        return OF_LABELS[quality].asks
    of_proba = is_pair(quality) and quality[0] == "predict_proba"
    return "predict_proba" if of_proba else "predict"


def is_money(quality):
    """Whether a quality is a cost matrix."""
    named = quality is None or isinstance(quality, str)
    return not (named or callable(quality) or is_pair(quality))


def objective_of_labels(quality, classes, *, several=False, takes=None, who=""):
    """The objective that the parameter `quality` of a classifier stands for.

    `several` says that a row has several labels, of which `classes` are the positions; `takes` has
    the names of the qualities that the method of the router `who` has the mathematics for.
    """
    pair, named = is_pair(quality), isinstance(quality, str)
    if pair and (
        len(quality) != 2 or quality[0] != "predict_proba" or not callable(quality[1])
    ):
        raise ValueError(
            f'quality as a pair must be ("predict_proba", function), got {quality!r}.'
        )
    if named and quality not in OF_LABELS:
        raise ValueError(
            f"quality={quality!r} is none of {list(OF_LABELS)!r}. It may also be a cost "
            "matrix, a function of true and given labels, or a pair of "
            '"predict_proba" and a function.'
        )
    told = repr(quality) if named else f"a {type(quality).__name__}"
    if several and not (pair or callable(quality) or (named and quality == "accuracy")):
        raise ValueError(
            f"quality={told} is for one label per row. With several labels it may be "
            '"accuracy", the labels in common by those in either, or a function.'
        )
    if named:
        found = OF_LABELS[quality]
    elif pair or callable(quality):
        decoded = partial(np.asarray, dtype=bool) if several else classes.take
        found = _called(quality[1] if pair else quality, decoded, asks_of(quality))
    else:
        found = cost_objective(quality, classes)
    of_answers = found.name == "callable" and found.asks == "predict"
    if takes is not None and found.name not in takes and not of_answers:
        raise ValueError(
            f"{who} has no rule for quality={told}: it keeps or replaces labels by their "
            "scores, one row at a time. It takes "
            f"{', '.join(repr(name) for name in takes if name != 'cost matrix')}, a cost matrix "
            "or a function of labels; OccamRouterClassifier takes every quality."
        )
    return found


def cost_objective(costs, classes):
    """Minus the cost of an error, from (true label, given label) to money.

    A mapping names every pair of different labels; that of a label with itself is 0 where it is
    not named, negative where a right answer is a gain, and never above that of an error. A frame
    with an index is read by its labels.
    """
    known, name = classes.tolist(), "quality as a cost matrix"
    if isinstance(costs, Mapping):
        cells = {(label, label): 0.0 for label in known} | dict(costs)
        pairs = [(true, given) for true in known for given in known]
        if unknown := [key for key in cells if key not in pairs]:
            raise ValueError(
                f"{name} has an entry whose key is not a pair (true label, given label) of "
                f"{known!r}: {unknown[0]!r}."
            )
        if missing := [pair for pair in pairs if pair not in cells]:
            raise ValueError(
                f"{name} has no entry for {missing[0]!r}: each pair of different labels (true, "
                "given) needs one, since an error that costs nothing is to be said so."
            )
        costs = [[cells[true, given] for given in known] for true in known]
    # One row for each true label, one column for each given one.
    table = check_numbers(_by_label(costs, known), name, shape=(len(known),) * 2)
    if (cheaper := table < table.diagonal()[:, np.newaxis]).any():
        true, given = np.argwhere(cheaper)[0]
        raise ValueError(
            "quality as a cost matrix holds costs, of which less is better, and no error may cost "
            f"less than the right answer: ({known[true]!r}, {known[given]!r}) costs "
            f"{table[true, given]:g}, and {known[true]!r} itself {table[true, true]:g}. What a "
            "right answer gains is a negative cost of the label with itself."
        )
    return Objective("cost matrix", lambda target, answers: -table[target, answers])


def _by_label(costs, known):
    """A frame's rows and columns in the order of the labels; anything else as it is."""
    if not (hasattr(costs, "columns") and hasattr(costs, "index")):
        return costs
    axes = [np.asarray(axis).tolist() for axis in (costs.index, costs.columns)]
    if all(sorted(map(str, axis)) == sorted(map(str, known)) for axis in axes):
        rows, columns = (
            [list(map(str, axis)).index(str(k)) for k in known] for axis in axes
        )
        return costs.to_numpy()[np.ix_(rows, columns)]
    if any(axis != list(range(len(axis))) for axis in axes):
        raise ValueError(
            "quality as a cost matrix in a frame must have the true labels as its index and the "
            f"given ones as its columns, {known!r} both, got {axes[0]!r} and {axes[1]!r}."
        )
    return costs


def objective_of_numbers(quality):
    """The objective that the parameter `quality` of a regressor stands for."""
    numbers = partial(np.asarray, dtype=np.float64)
    if not isinstance(quality, str):
        return _called(quality, numbers)
    # Losses of positive numbers have no value for others, which are refused.
    function = np.errstate(divide="ignore", invalid="ignore")(OF_NUMBERS[quality])
    return _called(function, numbers, name=quality)


def _called(function, decoded, asks="predict", name="callable"):
    """The objective of a function that is given answers as users know them."""
    rate = rated_by(function, "quality" if name == "callable" else name)

    def of(true, given):
        return rate(decoded(true), decoded(given) if asks == "predict" else given)

    return Objective(name, of, asks)


def rated_by(function, name="quality"):
    """A function of true answers and answers, held to one finite number for each row."""

    def rate(y, answers):
        found = function(y, answers)
        refuse_masked(**{f"what {name} returns": found})
        per_row = np.asarray(found, dtype=np.float64)
        if per_row.shape != (len(y),) or not np.isfinite(per_row).all():
            raise ValueError(
                f"{name} must return one finite number for each row, shape "
                f"({len(y)},), got shape {per_row.shape} with {np.isnan(per_row).sum()} NaN and "
                f"{np.isinf(per_row).sum()} infinite."
            )
        return per_row

    return rate


def worth_of(estimator, y=None, row_quality=None):
    """What answers of a decision estimator are worth: a given function, or its own `quality`.

    `y` says how many classes there are where the estimator, not fitted, does not.
    """
    if row_quality is not None:
        if not callable(row_quality):
            raise ValueError(
                "row_quality must be a function of (y, y_pred) that returns one number per row, or "
                f"None, got {row_quality!r}."
            )
        return Objective("row_quality", rated_by(row_quality, "row_quality"))
    while hasattr(getattr(estimator, "estimator_", None), "predict_routed"):
        # What is promised, or spread out, about an estimator is measured as it is.
        estimator = estimator.estimator_
    quality = estimator.get_params(deep=False).get("quality")
    if is_regressor(estimator):
        if quality is None:
            raise ValueError(
                f"{type(estimator).__name__} answers with numbers, of which no quality is known: "
                "give row_quality, a function of true and given numbers."
            )
        return objective_of_numbers(quality)
    if quality is None or not is_classifier(estimator):
        return OF_LABELS["accuracy"]
    several = y is not None and np.ndim(y) == 2
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        classes = np.arange(np.shape(y)[1]) if several else np.unique(y)
    objective = objective_of_labels(quality, classes, several=several)
    plain = several or objective.name == "accuracy"
    return objective if plain else replace(objective, classes=classes)


def qualities_of(y, estimator):
    """Return qualities of the choices of an estimator that only routes; NaN where unknown.

    Parameters
    ----------
    y : {array-like, dataframe} of shape (n_samples, n_choices)
        A frame's columns are read by name.
    estimator : fitted decision estimator

    Returns
    -------
    ndarray of shape (n_samples, n_choices), dtype=float64
    """
    y = on_host(y.toarray() if hasattr(y, "toarray") else y)
    return check_numbers(in_order(y, models_of(estimator)), "y", allow_nan=True)


def rows_of(y, estimator):
    """Targets as an array; a frame of qualities in the order of the estimator's choices."""
    if getattr(y, "ndim", 1) == 2 and not is_classifier(estimator):
        y = in_order(y, models_of(estimator))
    return np.asarray(on_host(y.toarray() if hasattr(y, "toarray") else y))
