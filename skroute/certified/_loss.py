"""The loss that a promise is about: minus what the wrapped estimator calls quality."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.base import note_failure
from skroute.metrics._objectives import Objective, rated_by, worth_of
from skroute.utils._compat import num_samples
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
    worth : Objective
        What an answer is worth.
    range : float
        What two losses of a row can differ by at most.
    unit : str
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on some rows.
    """

    worth: Objective
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
        return 1.0 if self.worth.name == "accuracy" else 0.0

    def of(self, y, answers):
        """Loss of each answer, ndarray of shape (n_rows,)."""
        return self.best - self.worth.of(y, answers)

    def of_routed(self, y, routed, estimator):
        """Loss of each row of a pass; one that is handed over counts as its estimator has it."""
        return self.best - self.worth.of_routed(y, routed, estimator)

    def against(self, bought, answers):
        """Loss of each answer beyond that of `bought`, the answers which are the truth."""
        found = self.of(bought, answers)
        return found if self.worth.name == "loss" else found - self.of(bought, bought)

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

    `y` has the targets of the evidence rows, None where another model's answers are the truth;
    `loss` and `loss_range` are parameters of :class:`CertifiedRouter`. A ValueError says where no
    bound of the loss is known and none was given, or it is no mean over rows.
    """
    if loss is not None:
        if loss_range is None:
            raise ValueError(
                "loss_range must be given beside loss: what two losses of a row can differ by at "
                "most, also on rows that are in no sample."
            )
        lost = rated_by(loss, "loss")
        # The best is not known: a row that is handed over loses what handing over costs.
        handed = -float(getattr(estimator, "abstain_cost", None) or 0.0)
        worth = Objective("loss", lambda y, answers: -lost(y, answers), handed=handed)
        return Loss(worth, float(loss_range), "by the loss given")
    if is_regressor(estimator) and estimator.get_params(deep=False).get("quality") is None:
        raise ValueError(
            f"{type(estimator).__name__} answers with numbers, of which no loss is known: give "
            "loss and loss_range, what two losses of a row can differ by at most."
        )
    worth = worth_of(estimator, y)
    # What answers can lose stands along the last axis, of one row or of several kinds.
    known, exact = None, False
    if worth.name == "accuracy" and y is not None and y.ndim == 2:
        known, unit = [0.0, 1.0], "label sets not in common"
        if not is_classifier(estimator):
            unit, exact = "quality given up per row", y.dtype.kind in "bui"
            y = check_numbers(y, "y")
            if loss_range is None and (y.min() < 0 or y.max() > 1):
                raise ValueError(
                    f"The qualities in y go from {y.min():.6g} to {y.max():.6g}, beyond 0 to 1: "
                    "give loss_range, what two qualities of a row can differ by at most, also on "
                    "rows that are in no sample."
                )
    elif worth.name == "accuracy":
        known, unit, exact = [0.0, 1.0], "wrong answers per row", True
    elif worth.by_class:
        raise ValueError(
            f"quality={worth.name!r} is no mean of losses over rows, which is what can be "
            'promised: give loss and loss_range. groups="class" promises a loss in each class.'
        )
    elif worth.name == "cost matrix":
        labels = worth.classes
        known = [-worth.of(np.full_like(labels, label), labels) for label in labels]
        unit = "in the unit of the cost matrix"
    elif worth.name in _SCORES:
        ends, unit = _SCORES[worth.name]
        known = ends(len(worth.classes))
    elif loss_range is None:
        raise ValueError(
            f"The quality of {type(estimator).__name__}, {worth.name!r}, has no known bounds, "
            "and a promise needs them: give loss_range, what two losses of a row can differ by at "
            "most, or a loss that is bounded with its loss_range, such as "
            "loss=lambda y, y_pred: np.minimum((y - y_pred) ** 2, 10), loss_range=10."
        )
    else:
        own = worth.name == "callable"
        unit = "by the router's own quality" if own else worth.name.replace("_", " ")
    if loss_range is None:
        known, abstained = np.asarray(known), getattr(estimator, "abstain_quality_", None)
        if abstained is not None:
            lost = np.full((*known.shape[:-1], 1), Loss(worth, 0.0, unit).best - abstained)
            known = np.concatenate([known, lost], axis=-1)
        loss_range = np.ptp(known, axis=-1).max()
    return Loss(worth, float(loss_range), unit, exact)
