"""The loss that a promise is about: minus what the wrapped estimator calls quality."""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.base import note_failure
from skroute.metrics._objectives import Worth, worth_of
from skroute.utils._compat import num_samples
from skroute.utils._handing import handed_over
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
    """How much an answer loses: the best quality less its own.

    Attributes
    ----------
    worth : Worth
        What an answer is worth.
    range : float
        What two losses of a row can differ by at most.
    unit : str
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on some rows.
    """

    worth: Worth
    range: float
    unit: str
    exact: bool = False

    @property
    def asks(self):
        """What models are asked for, ``"predict"`` or ``"predict_proba"``."""
        return self.worth.asks

    @property
    def best(self):
        """The quality that loses nothing: 1 of labels and logged qualities, else 0."""
        return 1.0 if self.worth.objective is None and self.worth.function is None else 0.0

    def of(self, y, answers, route=None):
        """Loss of each answer, ndarray of shape (n_rows,); `route` where y has logged qualities."""
        return self.best - self.worth.of(y, answers, route)

    def of_routed(self, y, routed, estimator):
        """Loss of each row of a pass; one that is handed over counts as its estimator has it."""
        found = self.best - self.worth.of_routed(y, routed, estimator)
        handed = handed_over(estimator, routed.route)
        return np.where(handed, self.of_handing(estimator), found) if handed.any() else found

    def of_handing(self, estimator):
        """Loss of a row that is handed over: the best quality less its cost.

        By a loss of the user's, whose best is not known, it is the cost alone.
        """
        if self.worth.function is not None:
            return float(estimator.abstain_cost)
        return self.best - estimator.abstain_quality_

    def against(self, bought, answers):
        """Loss of each answer beyond that of `bought`, the answers which are the truth."""
        found = self.of(bought, answers)
        return found if self.worth.objective is None else found - self.of(bought, bought)

    def ask(self, name, model, X):
        """What a fitted model answers, with probabilities in the order of the classes."""
        with note_failure(name, num_samples(X), self.asks):
            answers = np.asarray(on_host(getattr(model, self.asks)(X)))
            if self.asks == "predict":
                return answers
            check_probabilities(answers, name)
            aligned = np.zeros((len(answers), len(self.worth.classes)), dtype=answers.dtype)
            aligned[:, self.worth.codes(model.classes_, "classes_")] = answers
            return aligned


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

        def gained(y, answers):
            return -check_numbers(loss(y, answers), "The values of loss")

        worth = Worth(function=gained, name="loss")
        return Loss(worth, float(loss_range), "by the loss given")
    several = y is not None and y.ndim == 2
    if is_regressor(estimator) and estimator.get_params(deep=False).get("quality") is None:
        raise ValueError(
            f"{type(estimator).__name__} answers with numbers, of which no loss is known: give "
            "loss and loss_range, what two losses of a row can differ by at most."
        )
    worth = worth_of(estimator, y)
    objective, classes = worth.objective, worth.classes
    if objective is None:
        if several and not is_classifier(estimator):
            return _of_logged(worth, y, loss_range)
        unit = "label sets not in common" if several else "wrong answers per row"
        return _ranged(Loss(worth, 1.0, unit, not several), estimator, [0.0, 1.0], loss_range)
    if objective.by_class:
        raise ValueError(
            f"quality={objective.name!r} is no mean of losses over rows, which is what can be "
            'promised: give loss and loss_range. groups="class" promises a loss in each class.'
        )
    if objective.money:
        codes = np.arange(len(classes))
        known = -np.array([objective.of(np.full(len(codes), i), codes) for i in codes])
        return _ranged(
            Loss(worth, 0.0, "in the unit of the cost matrix"), estimator, known, loss_range
        )
    if objective.name in _SCORES:
        ends, unit = _SCORES[objective.name]
        return _ranged(Loss(worth, 0.0, unit), estimator, ends(len(classes)), loss_range)
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
    return Loss(worth, float(loss_range), unit)


def _ranged(loss, estimator, known, loss_range):
    """The loss with its range: that given, or what answers and handing over can lose.

    `known` has what answers can lose along its last axis, of one row or of several kinds.
    """
    if loss_range is not None:
        return replace(loss, range=float(loss_range))
    known = np.asarray(known)
    if getattr(estimator, "abstain_quality_", None) is not None:
        handed = np.full((*known.shape[:-1], 1), loss.of_handing(estimator))
        known = np.concatenate([known, handed], axis=-1)
    return replace(loss, range=float(np.ptp(known, axis=-1).max()))


def _of_logged(worth, y, loss_range):
    """One minus the logged quality of the choice made."""
    exact = y.dtype.kind in "bui"
    y = check_numbers(y, "y")
    if loss_range is None and (y.min() < 0 or y.max() > 1):
        raise ValueError(
            f"The qualities in y go from {y.min():.6g} to {y.max():.6g}, beyond 0 to 1: give "
            "loss_range, what two qualities of a row can differ by at most, also on rows "
            "that are in no sample."
        )
    return Loss(worth, float(loss_range or 1.0), "quality given up per row", exact)
