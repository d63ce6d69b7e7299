"""What a promise is measured in: the loss of an answer, its range and its unit."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.base import note_failure
from skroute.guarantees._means import check_numbers
from skroute.metrics._objectives import objective_of_labels, objective_of_numbers
from skroute.utils._compat import num_samples
from skroute.utils._tensors import on_host
from skroute.utils._validation import check_probabilities

# By the name of an objective: its smallest and largest loss, for a number of classes, and its unit.
_RANGES = {
    "probability": (lambda n: (-1.0, 0.0), "probability of the true label given up"),
    "brier": (lambda n: (0.0, 1.0 if n == 2 else 2.0), "Brier score"),
    # Probabilities are taken from the smallest float on.
    "log_loss": (lambda n: (0.0, float(-np.log(np.finfo(np.float64).eps))), "log loss"),
}
_WRONG, _QUALITY = "wrong answers per row", "quality given up per row"
_SETS = "label sets not in common"


class Measure(NamedTuple):
    """How losses are counted.

    Attributes
    ----------
    range : float
        What two losses of a row can differ by at most.
    unit : str
    asks : {"predict", "predict_proba"}
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on some rows.
    loss : callable or None
        The user's.
    objective : Objective or None
        A router's own quality; None for labels, label sets and qualities of choices.
    classes : ndarray of shape (n_classes,) or None
        Of the objective; None for numbers.
    """

    range: float
    unit: str
    asks: str = "predict"
    exact: bool = False
    loss: Any = None
    objective: Any = None
    classes: Any = None

    def losses(self, y, answers, route=None, n_choices=-1):
        """Loss of each answer, ndarray of shape (n_rows,)."""
        if self.objective is None:
            return row_losses(y, answers, route, n_choices, self.loss)
        if self.classes is None:
            return -self.objective.of(_numbers(y), _numbers(answers))
        if self.objective.asks == "predict":
            answers = self._positions(answers, "An answer")
        return -self.objective.of(self._positions(y, "y"), answers)

    def of_handing(self, abstain_quality, abstain_cost):
        """Loss of a row that is handed over, which counts as the best quality less its cost.

        By a loss of the user's, whose best is not known, it is the cost alone.
        """
        if self.loss is not None:
            return float(abstain_cost)
        return (1.0 if self.objective is None else 0.0) - abstain_quality

    def excess(self, y, answers, route, n_choices):
        """Losses beyond those of `y` itself, where it is what another model answered."""
        found = self.losses(y, answers, route, n_choices)
        return found if self.objective is None else found - self.losses(y, y)

    def ask(self, name, model, X):
        """What a fitted model that is a reference answers."""
        with note_failure(name, num_samples(X), self.asks):
            answers = np.asarray(on_host(getattr(model, self.asks)(X)))
            if self.asks == "predict":
                return answers
            check_probabilities(answers, name)
            aligned = np.zeros((len(answers), len(self.classes)), dtype=answers.dtype)
            aligned[:, self._positions(model.classes_, "classes_")] = answers
            return aligned

    def _positions(self, labels, name):
        classes = self.classes
        found = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        if (wrong := classes[found] != labels).any():
            raise ValueError(
                f"{name} has a label that fit has not seen, in row {int(np.argmax(wrong))}: what "
                f"an error about it costs is not known. Known are {classes.tolist()!r}."
            )
        return found


def own_measure(model, y, loss_range):
    """What a decision estimator measures answers by.

    Parameters
    ----------
    model : decision estimator
        Fitted or not.
    y : ndarray of shape (n_rows,) or (n_rows, n_columns), or None
    loss_range : float or None
        What two losses of a row can differ by; None where it is to be known.

    Returns
    -------
    Measure

    Raises
    ------
    ValueError
        Where no bound of the loss is known, or it is no mean over rows.
    """
    quality = model.get_params(deep=False).get("quality")
    if is_regressor(model):
        return _of_numbers(model, quality, loss_range)
    if y is not None and y.ndim == 2 and not is_classifier(model):
        return _of_choices(y, loss_range)
    several = y is not None and y.ndim == 2
    if quality is None or (isinstance(quality, str) and quality == "accuracy"):
        unit = _SETS if several else _WRONG
        exact = not several
        found = Measure(1.0, unit, exact=exact)
        return _bounded(found, model, np.array([0.0, 1.0]), loss_range)
    classes = getattr(model, "classes_", None)
    if classes is None:
        classes = np.unique(y) if not several else np.arange(y.shape[1])
    objective = objective_of_labels(quality, classes, several=several)
    if objective.ratio or objective.by_class:
        raise ValueError(
            f"quality={objective.name!r} is no mean of losses over rows, which is what can be "
            'promised: give loss and loss_range. groups="class" promises a loss in each class.'
        )
    if several:
        return _asserted(model, objective, loss_range)
    if objective.money:
        grid = np.arange(len(classes))
        known = -np.array([objective.of(np.full(len(grid), i), grid) for i in grid])
        unit = "in the unit of the cost matrix"
    elif objective.name in _RANGES:
        range_of, unit = _RANGES[objective.name]
        known = np.array(range_of(len(classes)))
    else:
        return _asserted(model, objective, loss_range, classes)
    found = Measure(0.0, unit, objective.asks, False, None, objective, classes)
    return _bounded(found, model, known, loss_range)


def of_label_sets(measure):
    """The measure where answers turn out to be label sets, which overlap in part."""
    measure = measure._replace(exact=False)
    return measure._replace(unit=_SETS) if measure.unit == _WRONG else measure


def _bounded(measure, model, losses, loss_range):
    """The measure with its range: that given or, by row, what answers and handing over can lose.

    Parameters
    ----------
    measure : Measure
    model : decision estimator
        Fitted or not; what handing over loses is known of a fitted one.
    losses : ndarray of shape (..., n_answers)
        What answers can lose, for one row or several kinds of them.
    loss_range : float or None
    """
    if loss_range is not None:
        return measure._replace(range=float(loss_range))
    worth = getattr(model, "abstain_quality_", None)
    if worth is not None:
        handed = np.full((*losses.shape[:-1], 1), measure.of_handing(worth, None))
        losses = np.concatenate([losses, handed], axis=-1)
    return measure._replace(range=float(np.ptp(losses, axis=-1).max()))


def _of_numbers(model, quality, loss_range):
    if quality is None:
        raise ValueError(
            f"{type(model).__name__} answers with numbers, of which no loss is known: give loss "
            "and loss_range, what two losses of a row can differ by at most."
        )
    return _asserted(model, objective_of_numbers(quality), loss_range)


def _asserted(model, objective, loss_range, classes=None):
    """The measure of an objective that has no bound of its own."""
    if loss_range is None:
        raise ValueError(
            f"The quality of {type(model).__name__}, {objective.name!r}, has no known bounds, and "
            "a promise needs them: give loss_range, what two losses of a row can differ by at "
            "most, or a loss that is bounded with its loss_range, such as "
            "loss=lambda y, y_pred: np.minimum((y - y_pred) ** 2, 10), loss_range=10."
        )
    unit = "by the router's own quality"
    if objective.name != "callable":
        unit = objective.name.replace("_", " ")
    return Measure(float(loss_range), unit, objective.asks, False, None, objective, classes)


def _as_numbers(y):
    """The qualities as numbers; what numpy says of a text would name neither y nor a remedy."""
    if y.dtype.kind not in "OUS":
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise ValueError("y must be numbers, the quality of each choice: 1 and 0 for right and wrong.")


def _of_choices(y, loss_range):
    """One minus the quality of the choice made."""
    exact = y.dtype.kind in "bui"
    if loss_range is None:
        y = _as_numbers(y)
        if y.min() < 0 or y.max() > 1:
            raise ValueError(
                f"The qualities in y go from {y.min():.6g} to {y.max():.6g}, beyond 0 to 1: give "
                "loss_range, what two qualities of a row can differ by at most, also on rows "
                "that are in no sample."
            )
        loss_range = 1.0
    return Measure(float(loss_range), _QUALITY, exact=exact)


def key_of(measure):
    """What two measures that are the same have in common."""
    objective = measure.objective
    if objective is None:
        return measure.unit
    if not objective.money:
        return objective.name, None if objective.name != "callable" else objective.function
    grid = np.arange(len(measure.classes))
    return objective.name, tuple(
        float(value) for i in grid for value in objective.of(np.full(len(grid), i), grid)
    )


def row_losses(y, y_pred, route, n_choices, loss):
    """Loss of each answer: the user's, or by the shapes of truth and answer.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    if loss is not None:
        values = np.asarray(loss(y, y_pred))
        if values.shape != (len(y),):
            raise ValueError(
                f"loss must return one number per row, shape ({len(y)},), got {values.shape}."
            )
        return check_numbers(values, "loss")
    if y.ndim == 2 and np.ndim(y_pred) == 1 and y.shape[1] == n_choices:
        return 1.0 - y[np.arange(len(y)), route].astype(np.float64)
    if np.shape(y_pred) != y.shape:
        raise ValueError(
            f"y has shape {y.shape} and the answers to it {np.shape(y_pred)}: give y as the "
            "estimator answers, one column of quality per choice, or a loss that compares them."
        )
    if y.ndim == 2:
        both, either = (
            (y.astype(bool) & y_pred.astype(bool)),
            (y.astype(bool) | y_pred.astype(bool)),
        )
        union = either.sum(axis=1)
        return 1.0 - np.where(union > 0, both.sum(axis=1) / np.maximum(union, 1), 1.0)
    return (y != y_pred).astype(np.float64)


def _numbers(values):
    return np.asarray(values, dtype=np.float64)
