"""The loss that a promise is about: minus what the wrapped estimator calls quality."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.metrics._objectives import Objective, rated_by, worth_of
from skroute.utils._validation import check_numbers

# By the name of a quality what answers can lose, along the last axis, in any row or in each kind of
# rows, where that is known; and the unit.
_KNOWN = {
    "accuracy": (lambda worth: [-1.0, 0.0], "wrong answers per row"),
    "probability": (
        lambda worth: [-1.0, 0.0],
        "probability of the true label given up",
    ),
    "brier": (
        lambda worth: [0.0, 1.0 if len(worth.classes) == 2 else 2.0],
        "Brier score",
    ),
    # Probabilities are taken from the smallest float on.
    "log_loss": (lambda worth: [0.0, -np.log(np.finfo(np.float64).eps)], "log loss"),
    "cost matrix": (
        lambda worth: -worth.function(*np.indices((len(worth.classes),) * 2)),
        "in the unit of the cost matrix",
    ),
    "callable": (None, "by the router's own quality"),
}


@dataclass(frozen=True)
class Loss:
    """How much an answer loses: minus what it is worth.

    Attributes
    ----------
    worth : Objective
        What an answer is worth.
    range : float
        What two losses of a row can differ by at most.
    unit : str
    exact : bool
        Whether losses differ by -1, 0 or 1 by what they are, not only on some rows.
    """

    worth: Objective
    range: float
    unit: str
    exact: bool = False

    def against(self, bought, answers):
        """Loss of each answer beyond that of `bought`, the answers which are the truth."""
        own = 0.0 if self.worth.name == "loss" else self.worth.of(bought, bought)
        return own - self.worth.of(bought, answers)


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
        # A row that abstains loses the cost of abstaining.
        abstained_quality = -float(getattr(estimator, "abstain_cost", None) or 0.0)
        worth = Objective(
            "loss",
            lambda y, answers: -lost(y, answers),
            abstained_quality=abstained_quality,
        )
        return Loss(worth, float(loss_range), "by the loss given")
    if (
        is_regressor(estimator)
        and estimator.get_params(deep=False).get("quality") is None
    ):
        raise ValueError(
            f"{type(estimator).__name__} answers with numbers, of which no loss is known: give "
            "loss and loss_range, what two losses of a row can differ by at most."
        )
    worth = worth_of(estimator, y)
    if worth.by_class:
        raise ValueError(
            f"quality={worth.name!r} is no mean of losses over rows, which is what can be "
            'promised: give loss and loss_range. groups="class" promises a loss in each class.'
        )
    known, unit = _KNOWN.get(worth.name, (None, worth.name.replace("_", " ")))
    if known is None and loss_range is None:
        raise ValueError(
            f"The quality of {type(estimator).__name__}, {worth.name!r}, has no known bounds, "
            "and a promise needs them: give loss_range, what two losses of a row can differ by at "
            "most, or a loss that is bounded with its loss_range, such as "
            "loss=lambda y, y_pred: np.minimum((y - y_pred) ** 2, 10), loss_range=10."
        )
    exact = worth.name == "accuracy"
    if exact and y is not None and y.ndim == 2:
        unit, exact = "label sets not in common", False
        if not is_classifier(estimator):
            unit, exact = "quality given up per row", y.dtype.kind in "bui"
            y = check_numbers(y, "y")
            if loss_range is None and (y.min() < 0 or y.max() > 1):
                raise ValueError(
                    f"The qualities in y go from {y.min():.6g} to {y.max():.6g}, beyond 0 to 1: "
                    "give loss_range, what two qualities of a row can differ by at most, also on "
                    "rows that are in no sample."
                )
    if loss_range is None:
        losses, abstained = (
            np.asarray(known(worth)),
            getattr(estimator, "abstain_quality_", None),
        )
        if abstained is not None:
            losses = np.concatenate(
                [losses, np.full((*losses.shape[:-1], 1), -abstained)], axis=-1
            )
        loss_range = np.ptp(losses, axis=-1).max()
    return Loss(worth, float(loss_range), unit, exact)
