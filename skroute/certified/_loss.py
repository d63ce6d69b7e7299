"""The loss that a promise is about: minus what the wrapped estimator calls quality."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.base import note_failure
from skroute.metrics import sample_quality
from skroute.metrics._objectives import objective_of_labels, objective_of_numbers
from skroute.utils._compat import num_samples
from skroute.utils._handing import handed_over, models_of
from skroute.utils._tensors import on_host
from skroute.utils._validation import check_numbers, check_probabilities

# Smallest and largest loss of a proper score for a number of classes, and its unit.
_SCORES = {
    "probability": (lambda n: (-1.0, 0.0), "probability of the true label given up"),
    "brier": (lambda n: (0.0, 1.0 if n == 2 else 2.0), "Brier score"),
    # Probabilities are taken from the smallest float on.
    "log_loss": (lambda n: (0.0, float(-np.log(np.finfo(np.float64).eps))), "log loss"),
}


@dataclass(frozen=True)
class Loss:
    """How much an answer loses.

    Attributes
    ----------
    range : float
        What two losses of a row can differ by at most.
    unit : str
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on some rows.
    function : callable or None
        The user's own loss.
    objective : Objective or None
        The estimator's own quality; None for labels, label sets and logged qualities.
    classes : ndarray of shape (n_classes,) or None
        Of the objective; None for numbers.
    """

    range: float
    unit: str
    exact: bool = False
    function: Any = None
    objective: Any = None
    classes: Any = None

    @property
    def asks(self):
        """What models are asked for, ``"predict"`` or ``"predict_proba"``."""
        return "predict" if self.objective is None else self.objective.asks

    def of(self, y, answers, route=None):
        """Loss of each answer, ndarray of shape (n_rows,); `route` where y has logged qualities."""
        if self.function is not None:
            found = check_numbers(self.function(y, answers), "The values of loss")
            if found.shape != (len(y),):
                raise ValueError(
                    f"loss must return one number per row, shape ({len(y)},), got {found.shape}."
                )
            return found
        if self.objective is None:
            if y.ndim == 2 and np.ndim(answers) == 1 and route is not None:
                return 1.0 - y[np.arange(len(y)), route].astype(np.float64)
            return 1.0 - sample_quality(y, answers)
        if self.classes is None:
            return -self.objective.of(np.asarray(y, np.float64), np.asarray(answers, np.float64))
        if self.asks == "predict":
            answers = self._codes(answers, "An answer")
        return -self.objective.of(self._codes(y, "y"), answers)

    def of_routed(self, y, routed, estimator):
        """Loss of each row of a pass; one that is handed over counts as its estimator has it."""
        handed = handed_over(estimator, routed.route)
        if not handed.any():
            return self.of(y, routed.y_pred, self._columns(y, routed.route, estimator))
        found = np.full(len(y), self.of_handing(estimator))
        if len(rows := np.flatnonzero(~handed)):
            answers = np.array(routed.y_pred[rows].tolist())
            route = self._columns(y, routed.route[rows], estimator)
            found[rows] = self.of(y[rows], answers, route)
        return found

    def _columns(self, y, route, estimator):
        """`route`, if it indexes the columns of y."""
        logged = y.ndim == 2 and y.shape[1] == len(models_of(estimator))
        return route if logged and not is_classifier(estimator) else None

    def of_handing(self, estimator):
        """Loss of a row that is handed over: the best quality less its cost.

        By a loss of the user's, whose best is not known, it is the cost alone.
        """
        if self.function is not None:
            return float(estimator.abstain_cost)
        return (1.0 if self.objective is None else 0.0) - estimator.abstain_quality_

    def against(self, bought, answers):
        """Loss of each answer beyond that of `bought`, the answers which are the truth."""
        found = self.of(bought, answers)
        return found if self.objective is None else found - self.of(bought, bought)

    def ask(self, name, model, X):
        """What a fitted model answers, with probabilities in the order of `classes`."""
        with note_failure(name, num_samples(X), self.asks):
            answers = np.asarray(on_host(getattr(model, self.asks)(X)))
            if self.asks == "predict":
                return answers
            check_probabilities(answers, name)
            aligned = np.zeros((len(answers), len(self.classes)), dtype=answers.dtype)
            aligned[:, self._codes(model.classes_, "classes_")] = answers
            return aligned

    def _codes(self, labels, name):
        """Positions of labels among the classes."""
        classes = self.classes
        found = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        if (wrong := classes[found] != labels).any():
            raise ValueError(
                f"{name} has a label that fit has not seen, in row {int(np.argmax(wrong))}: what "
                f"an error about it costs is not known. Known are {classes.tolist()!r}."
            )
        return found


def loss_of(estimator, y, loss, loss_range):
    """The loss that a promise about a decision estimator is measured in.

    Parameters
    ----------
    estimator : decision estimator
        Fitted or not.
    y : ndarray of shape (n_rows,) or (n_rows, n_columns), or None
        Of the evidence rows; None where another model's answers are the truth.
    loss : callable or None
    loss_range : float or None
        What two losses of a row can differ by; None where it is to be known.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        Where no bound of the loss is known and none was given, or it is no mean over rows.
    """
    if loss is not None:
        if loss_range is None:
            raise ValueError(
                "loss_range must be given beside loss: what two losses of a row can differ by at "
                "most, also on rows that are in no sample."
            )
        return Loss(float(loss_range), "by the loss given", function=loss)
    quality = estimator.get_params(deep=False).get("quality")
    several = y is not None and y.ndim == 2
    if is_regressor(estimator):
        if quality is None:
            raise ValueError(
                f"{type(estimator).__name__} answers with numbers, of which no loss is known: give "
                "loss and loss_range, what two losses of a row can differ by at most."
            )
        return _asserted(estimator, objective_of_numbers(quality), loss_range)
    if several and not is_classifier(estimator):
        return _of_logged(y, loss_range)
    if quality is None or (isinstance(quality, str) and quality == "accuracy"):
        unit = "label sets not in common" if several else "wrong answers per row"
        found = Loss(1.0, unit, exact=not several)
        return _ranged(found, estimator, np.array([0.0, 1.0]), loss_range)
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        classes = np.arange(y.shape[1]) if several else np.unique(y)
    objective = objective_of_labels(quality, classes, several=several)
    if objective.ratio or objective.by_class:
        raise ValueError(
            f"quality={objective.name!r} is no mean of losses over rows, which is what can be "
            'promised: give loss and loss_range. groups="class" promises a loss in each class.'
        )
    if several:
        return _asserted(estimator, objective, loss_range)
    if objective.money:
        codes = np.arange(len(classes))
        known = -np.array([objective.of(np.full(len(codes), i), codes) for i in codes])
        unit = "in the unit of the cost matrix"
    elif objective.name in _SCORES:
        ends, unit = _SCORES[objective.name]
        known = np.array(ends(len(classes)))
    else:
        return _asserted(estimator, objective, loss_range, classes)
    found = Loss(0.0, unit, objective=objective, classes=classes)
    return _ranged(found, estimator, known, loss_range)


def _ranged(loss, estimator, known, loss_range):
    """The loss with its range: that given, or what answers and handing over can lose.

    `known` has what answers can lose along its last axis, of one row or of several kinds.
    """
    if loss_range is not None:
        return replace(loss, range=float(loss_range))
    if getattr(estimator, "abstain_quality_", None) is not None:
        handed = np.full((*known.shape[:-1], 1), loss.of_handing(estimator))
        known = np.concatenate([known, handed], axis=-1)
    return replace(loss, range=float(np.ptp(known, axis=-1).max()))


def _asserted(estimator, objective, loss_range, classes=None):
    """The loss of an objective that has no bound of its own."""
    if loss_range is None:
        raise ValueError(
            f"The quality of {type(estimator).__name__}, {objective.name!r}, has no known bounds, "
            "and a promise needs them: give loss_range, what two losses of a row can differ by at "
            "most, or a loss that is bounded with its loss_range, such as "
            "loss=lambda y, y_pred: np.minimum((y - y_pred) ** 2, 10), loss_range=10."
        )
    unit = "by the router's own quality"
    if objective.name != "callable":
        unit = objective.name.replace("_", " ")
    return Loss(float(loss_range), unit, objective=objective, classes=classes)


def _of_logged(y, loss_range):
    """One minus the logged quality of the choice made."""
    exact = y.dtype.kind in "bui"
    y = check_numbers(y, "y")
    if loss_range is None and (y.min() < 0 or y.max() > 1):
        raise ValueError(
            f"The qualities in y go from {y.min():.6g} to {y.max():.6g}, beyond 0 to 1: give "
            "loss_range, what two qualities of a row can differ by at most, also on rows "
            "that are in no sample."
        )
    return Loss(float(loss_range or 1.0), "quality given up per row", exact=exact)
