"""What an answer is worth: right or wrong, money, a proper score, minus a loss."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.metrics._curve import is_pair, sample_quality

# Least probability that log loss takes a logarithm of, as scikit-learn has it.
_LEAST = np.finfo(np.float64).eps


class RowQuality(NamedTuple):
    """How good the answer to each row is, by the router's own `quality`.

    Attributes
    ----------
    quality : ndarray of shape (n_samples,), dtype=float64
        Higher is better. Their mean is the quality of all answers.

    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice made.

    cost : ndarray of shape (n_samples,), dtype=float64
        What each row cost.
    """

    quality: NDArray[np.float64]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]


class Objective:
    """One quality: from true and given answers, encoded, to one number per row.

    Parameters
    ----------
    name : str
        For displays and messages.
    function : callable
        From true and given answers, or probabilities, to one number per row.
    asks : {"predict", "predict_proba"}, default="predict"
    money : bool, default=False
        Whether it is in the unit of a cost matrix, which prices may share.
    by_class : bool, default=False
        Whether all true classes weigh the same, however many rows they have.
    """

    def __init__(self, name, function, *, asks="predict", money=False, by_class=False):
        self.name, self.function, self.asks = name, function, asks
        self.money, self.by_class = money, by_class

    def of(self, target, answers):
        """One number per row."""
        found = self.function(target, answers)
        if not self.by_class:
            return found
        share = self._share if self._share is not None else _class_weights(target, None)
        return found * share[target]

    _share = None

    def bound(self, target, weight=None):
        """The same, with what it takes from all rows: the weights of classes.

        Parameters
        ----------
        target : ndarray of shape (n_rows,)
        weight : ndarray of shape (n_rows,), default=None

        Returns
        -------
        Objective
        """
        if not self.by_class:
            return self
        other = Objective(self.name, self.function, by_class=True)
        other._share = _class_weights(target, weight)
        return other

    def table(self, target, responses):
        """Quality of each member on each row.

        Parameters
        ----------
        target : ndarray of shape (n_rows,)
        responses : sequence of ndarray
            For each member its encoded answers, or its probabilities.

        Returns
        -------
        ndarray of shape (n_rows, n_members)
        """
        return np.column_stack([self.of(target, part) for part in responses])

    def rows(self, target, answers, weight=None):
        """One number per row whose weighted mean is the quality of all answers."""
        return self.bound(target, weight).of(target, answers)


def _class_weights(target, weight):
    """For each class the number that makes the mean over rows one over classes."""
    counts = np.bincount(target, weights=weight)
    total, seen = counts.sum(), counts > 0
    weights = np.zeros(len(counts))
    weights[seen] = total / (seen.sum() * counts[seen])
    return weights


def _right(target, answers):
    return sample_quality(target, answers)


def _true_probability(target, proba):
    return proba[np.arange(len(target)), target]


def _log_probability(target, proba):
    sums = proba.sum(axis=1)
    share = _true_probability(target, proba) / np.where(sums > 0, sums, 1.0)
    return np.log(np.clip(share, _LEAST, 1.0))


def _minus_brier(target, proba):
    # Over all classes; half of it for two, which is what scikit-learn's default is.
    error = proba.copy()
    error[np.arange(len(target)), target] -= 1.0
    return -(error**2).sum(axis=1) / (2.0 if proba.shape[1] == 2 else 1.0)


OF_LABELS = {
    "accuracy": lambda: Objective("accuracy", _right),
    "balanced_accuracy": lambda: Objective("balanced_accuracy", _right, by_class=True),
    "probability": lambda: Objective("probability", _true_probability, asks="predict_proba"),
    "log_loss": lambda: Objective("log_loss", _log_probability, asks="predict_proba"),
    "brier": lambda: Objective("brier", _minus_brier, asks="predict_proba"),
}


def _positive(what, *parts):
    for part in parts:
        if (np.asarray(part) <= 0).any():
            raise ValueError(f"quality={what!r} is for numbers above 0, true and answered.")


def _squared(true, given):
    return -((true - given) ** 2)


def _absolute(true, given):
    return -np.abs(true - given)


def _squared_log(true, given):
    if (true <= -1).any() or (given <= -1).any():
        raise ValueError("quality='squared_log_error' is for numbers above -1.")
    return -((np.log1p(true) - np.log1p(given)) ** 2)


def _percentage(true, given):
    return -np.abs(true - given) / np.maximum(np.abs(true), _LEAST)


def _poisson(true, given):
    _positive("poisson_deviance", given)
    if (true < 0).any():
        raise ValueError("quality='poisson_deviance' is for true numbers from 0 up.")
    log = np.log(np.where(true > 0, true, 1.0) / given)
    return -2.0 * (np.where(true > 0, true * log, 0.0) - true + given)


def _gamma(true, given):
    _positive("gamma_deviance", true, given)
    return -2.0 * (np.log(given / true) + true / given - 1.0)


OF_NUMBERS = {
    "squared_error": lambda: Objective("squared_error", _squared),
    "absolute_error": lambda: Objective("absolute_error", _absolute),
    "squared_log_error": lambda: Objective("squared_log_error", _squared_log),
    "absolute_percentage_error": lambda: Objective("absolute_percentage_error", _percentage),
    "poisson_deviance": lambda: Objective("poisson_deviance", _poisson),
    "gamma_deviance": lambda: Objective("gamma_deviance", _gamma),
}


def asks_of(quality):
    """What members are asked for by a quality, before the labels are known."""
    if isinstance(quality, str) and quality in OF_LABELS:
        return OF_LABELS[quality]().asks
    if isinstance(quality, tuple) and quality and quality[0] == "predict_proba":
        return "predict_proba"
    return "predict"


def is_money(quality):
    """Whether a quality is a cost matrix."""
    if isinstance(quality, str) or callable(quality) or is_pair(quality):
        return False
    return quality is not None


def objective_of_labels(quality, classes, *, several=False, takes=None, who=""):
    """The objective that the parameter `quality` of a classifier stands for.

    Parameters
    ----------
    quality : str, mapping, array-like, callable or (str, callable)
    classes : ndarray of shape (n_classes,)
    several : bool, default=False
        Whether there are several labels per row: then `classes` are their positions.
    takes : collection of str, default=None
        The names that the router's method has the mathematics for; None takes all.
    who : str, default=""
        The router, for messages.

    Returns
    -------
    Objective

    Raises
    ------
    ValueError
    """
    found = _objective_of_labels(quality, classes, several)
    linear = found.asks == "predict"
    if takes is not None and not (found.name in takes or (found.name == "callable" and linear)):
        raise ValueError(
            f"{who} has no rule for quality={_told(quality)}: it keeps or replaces labels by their "
            "scores, one row at a time. It takes "
            f"{', '.join(repr(name) for name in takes if name != 'cost matrix')}, a cost matrix "
            "or a function of labels; OccamRouterClassifier takes every quality."
        )
    return found


def _told(quality):
    if isinstance(quality, str):
        return repr(quality)
    return f"a {type(quality).__name__}"


def _objective_of_labels(quality, classes, several):
    if isinstance(quality, str):
        if quality not in OF_LABELS:
            raise ValueError(
                f"quality={quality!r} is none of {list(OF_LABELS)!r}. It may also be a cost "
                "matrix, a function of true and given labels, or a pair of "
                '"predict_proba" and a function.'
            )
        if several and quality != "accuracy":
            raise ValueError(
                f"quality={quality!r} is for one label per row. With several labels it may be "
                '"accuracy", the labels in common by those in either, or a function.'
            )
        return OF_LABELS[quality]()
    if is_pair(quality):
        if len(quality) != 2 or quality[0] != "predict_proba":
            raise ValueError(
                'quality as a pair must be ("predict_proba", function), got '
                f"one that begins with {quality[0]!r} and has {len(quality)} entries."
            )
        kind, function = quality
        if not callable(function):
            raise ValueError(f"quality=({kind!r}, ...) needs a function, got {function!r}.")
        return _called(function, classes, several, kind)
    if callable(quality):
        return _called(quality, classes, several, "predict")
    if several:
        raise ValueError(
            "quality as a cost matrix is for one label per row. With several labels it may be "
            '"accuracy" or a function.'
        )
    return cost_objective(quality, classes)


def cost_objective(costs, classes):
    """Minus the cost of an error, from a cost matrix.

    Parameters
    ----------
    costs : mapping or array-like of shape (n_classes, n_classes)
        From (true label, given label) to money. A mapping names every pair of different
        labels; that of a label with itself is 0 where it is not named, negative where a right
        answer is a gain, and never above that of an error. A frame with an index
        is read by its labels.
    classes : ndarray of shape (n_classes,)

    Returns
    -------
    Objective
    """
    known = classes.tolist()
    if isinstance(costs, Mapping):
        table = np.full((len(known), len(known)), np.nan)
        np.fill_diagonal(table, 0.0)
        for pair, value in costs.items():
            named = isinstance(pair, tuple) and len(pair) == 2
            if not named or any(label not in known for label in pair):
                raise ValueError(
                    "quality as a cost matrix has an entry whose key is not a pair (true label, "
                    f"given label) of {known!r}: {pair!r}."
                )
            table[known.index(pair[0]), known.index(pair[1])] = _amount(value)
        if len(missing := np.argwhere(np.isnan(table))):
            true, given = missing[0]
            raise ValueError(
                f"quality as a cost matrix has no entry for ({known[true]!r}, {known[given]!r}): "
                "each pair of different labels (true, given) needs one, since an error that "
                "costs nothing is to be said so."
            )
    else:
        costs = _by_label(costs, known)
        try:
            table = np.asarray(costs, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.empty(0)
        if table.shape != (len(known),) * 2:
            raise ValueError(
                f"quality as a cost matrix must have the shape ({len(known)}, {len(known)}), one "
                f"row for each true label of {known!r} and one column for each given one, got "
                f"shape {table.shape}."
            )
    if not np.isfinite(table).all():
        raise ValueError("quality as a cost matrix must hold finite numbers.")
    if (cheaper := table < table.diagonal()[:, np.newaxis]).any():
        true, given = np.argwhere(cheaper)[0]
        raise ValueError(
            "quality as a cost matrix holds costs, of which less is better, and no error may cost "
            f"less than the right answer: ({known[true]!r}, {known[given]!r}) costs "
            f"{table[true, given]:g}, and {known[true]!r} itself {table[true, true]:g}. What a "
            "right answer gains is a negative cost of the label with itself."
        )
    return Objective("cost matrix", lambda target, answers: -table[target, answers], money=True)


def _by_label(costs, known):
    """A frame's rows and columns in the order of the labels; anything else as it is."""
    if not (hasattr(costs, "columns") and hasattr(costs, "index")):
        return costs
    axes = [np.asarray(axis).tolist() for axis in (costs.index, costs.columns)]
    if all(sorted(map(str, axis)) == sorted(map(str, known)) for axis in axes):
        rows, columns = ([list(map(str, axis)).index(str(k)) for k in known] for axis in axes)
        return costs.to_numpy()[np.ix_(rows, columns)]
    if any(axis != list(range(len(axis))) for axis in axes):
        raise ValueError(
            "quality as a cost matrix in a frame must have the true labels as its index and the "
            f"given ones as its columns, {known!r} both, got {axes[0]!r} and {axes[1]!r}."
        )
    return costs


def _amount(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"quality as a cost matrix must hold finite numbers, got {value!r}."
        ) from None


def objective_of_numbers(quality):
    """The objective that the parameter `quality` of a regressor stands for.

    Parameters
    ----------
    quality : str or callable

    Returns
    -------
    Objective
    """
    if isinstance(quality, str) and quality in OF_NUMBERS:
        return OF_NUMBERS[quality]()
    if callable(quality):
        return Objective("callable", lambda true, given: _checked(quality(true, given), len(true)))
    raise ValueError(
        f"quality={_told(quality)} is none of {list(OF_NUMBERS)!r}, nor a function of true and "
        "answered numbers that returns one number for each row, higher is better."
    )


def _called(function, classes, several, kind):
    def told(answers):
        if kind == "predict_proba":
            return answers
        return answers if several else classes[answers]

    def true(target):
        return target if several else classes[target]

    def of(target, answers):
        return _checked(function(true(target), told(answers)), len(target))

    return Objective("callable", of, asks=kind)


def _checked(found: Any, n_rows):
    per_row = np.asarray(found, dtype=np.float64)
    if per_row.shape != (n_rows,) or not np.isfinite(per_row).all():
        raise ValueError(
            f"quality must return one finite number for each row, shape ({n_rows},), got shape "
            f"{per_row.shape}."
        )
    return per_row
