"""Loss of an answer: minus its quality, and the range of possible losses."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skroute.metrics._objectives import Objective, rated_by, worth_of
from skroute.utils._validation import check_numbers

# Name of the objective that is made of a loss function from the user.
_USER_LOSS = "loss"

# Unit of the loss in certificates and messages, by the name of a quality. Other
# qualities have their name as the unit.
_UNITS = {
    "accuracy": "wrong answers per row",
    "probability": "probability of the true label given up",
    "brier": "Brier score",
    "log_loss": "log loss",
    "cost matrix": "in the unit of the cost matrix",
    "callable": "by the router's own quality",
}
# Units of the quality "accuracy" if y has several columns: an indicator matrix of label
# sets, or the logged quality of each choice.
_UNIT_OF_LABEL_SETS = "label sets not in common"
_UNIT_OF_LOGGED_QUALITIES = "quality given up per row"


@dataclass(frozen=True)
class Loss:
    """Loss of an answer: minus its quality.

    Attributes
    ----------
    objective : Objective
        Computes the quality of answers.
    range : float
        Largest possible difference of two losses of a row.
    unit : str
        For certificates and messages.
    exact : bool
        True if two losses of a row can only differ by -1, 0 or 1. It follows from the
        kind of the loss. The rows of a sample cannot show it.
    """

    objective: Objective
    range: float
    unit: str
    exact: bool = False

    def against(self, bought, answers):
        """Return the loss of each answer, with the bought answers as the truth.

        Parameters
        ----------
        bought, answers : ndarray of shape (n_rows,) or (n_rows, n_outputs)

        Returns
        -------
        ndarray of shape (n_rows,)
            The quality of the bought answer less the quality of the answer. For a loss
            of the user it is the loss itself.
        """
        # For a loss function of the user, `objective.of` is minus the loss. Nothing is
        # subtracted from it.
        bought_quality = 0.0
        if self.objective.name != _USER_LOSS:
            bought_quality = self.objective.of(bought, bought)
        return bought_quality - self.objective.of(bought, answers)


def loss_of(estimator, y, loss, loss_range):
    """Return the loss that a promise about a decision estimator is measured by.

    Parameters
    ----------
    estimator : decision estimator
        Fitted or not.
    y : ndarray or None
        Targets of the evidence rows. None if answers of another model are the truth.
    loss, loss_range
        Parameters of :class:`CertifiedRouter`.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If the range of the loss is not known and not given, or the loss is no mean over
        rows.
    """
    if loss is not None:
        return _loss_of_user(estimator, loss, loss_range)
    quality = estimator.get_params(deep=False).get("quality")
    if is_regressor(estimator) and quality is None:
        raise ValueError(
            f"{type(estimator).__name__} answers with numbers, of which no loss is "
            "known: give loss and loss_range, what two losses of a row can differ by "
            "at most."
        )
    objective = worth_of(estimator, y)
    if objective.by_class:
        raise ValueError(
            f"quality={objective.name!r} is no mean of losses over rows, which is what "
            'can be promised: give loss and loss_range. groups="class" promises a loss '
            "in each class."
        )
    extreme_losses = _possible_losses(objective)
    if extreme_losses is None and loss_range is None:
        raise ValueError(
            f"The quality of {type(estimator).__name__}, {objective.name!r}, has no "
            "known bounds, and a promise needs them: give loss_range, what two losses "
            "of a row can differ by at most, or a loss that is bounded with its "
            "loss_range, such as loss=lambda y, y_pred: np.minimum((y - y_pred) ** 2, "
            "10), loss_range=10."
        )
    unit = _UNITS.get(objective.name, objective.name.replace("_", " "))
    # `Loss.exact`: a label is right or wrong, so that two losses differ by -1, 0 or 1.
    exact = objective.name == "accuracy"
    if exact and y is not None and y.ndim == 2:
        if is_classifier(estimator):
            unit = _UNIT_OF_LABEL_SETS
            exact = False
        else:
            unit = _UNIT_OF_LOGGED_QUALITIES
            # Booleans and whole numbers in [0, 1] are 0 or 1. The letters are the dtype
            # kinds of booleans, unsigned and signed integers.
            exact = y.dtype.kind in "bui"
            _check_logged_qualities(y, loss_range)
    if loss_range is None:
        abstain_quality = getattr(estimator, "abstain_quality_", None)
        loss_range = _range_of_losses(extreme_losses, abstain_quality)
    return Loss(objective, float(loss_range), unit, exact)


def _loss_of_user(estimator, loss, loss_range):
    """Return the `Loss` of a loss function from the user.

    Parameters are those of :func:`loss_of`. `loss` is not None.
    """
    if loss_range is None:
        raise ValueError(
            "loss_range must be given together with loss: what two losses of a row can "
            "differ by at most, also on rows that are in no sample."
        )
    row_losses = rated_by(loss, "loss")
    # The loss of a row that abstains is the cost of abstaining, 0 if no row can.
    abstain_cost = getattr(estimator, "abstain_cost", None) or 0.0
    objective = Objective(
        _USER_LOSS,
        lambda y, answers: -row_losses(y, answers),
        abstained_quality=-float(abstain_cost),
    )
    return Loss(objective, float(loss_range), "by the loss given")


def _possible_losses(objective):
    """Return the extreme losses of an answer, if they are known.

    Returns
    -------
    ndarray of shape (n_losses,) or (n_classes, n_losses), or None
        The extreme losses of all rows, or of the rows of each class. None if they are
        not known.
    """
    if objective.name in ("accuracy", "probability"):
        # These qualities are from 0 to 1, and a loss is minus the quality.
        return np.array([-1.0, 0.0])
    if objective.name == "brier":
        # The sum over several classes counts a wrong answer twice: in the class that is
        # predicted, and in the true one.
        largest = 1.0 if len(objective.classes) == 2 else 2.0
        return np.array([0.0, largest])
    if objective.name == "log_loss":
        # Probabilities are clipped to this smallest value.
        smallest_probability = np.finfo(np.float64).eps
        return np.array([0.0, -np.log(smallest_probability)])
    if objective.name == "cost matrix":
        n_classes = len(objective.classes)
        # Each pair of a true and a predicted class, by position: two arrays of shape
        # (n_classes, n_classes).
        true, predicted = np.indices((n_classes, n_classes))
        return -objective.function(true, predicted)
    # Other qualities have no known bounds.
    return None


def _range_of_losses(losses, abstain_quality):
    """Return the largest difference of two losses of a row, abstaining included.

    Parameters
    ----------
    losses : ndarray of shape (n_losses,) or (n_classes, n_losses)
    abstain_quality : float or None
        Quality of a row that abstains. None if no row does.

    Returns
    -------
    float
    """
    if abstain_quality is not None:
        abstain_loss = np.full((*losses.shape[:-1], 1), -abstain_quality)
        losses = np.concatenate([losses, abstain_loss], axis=-1)
    return np.ptp(losses, axis=-1).max()


def _check_logged_qualities(y, loss_range):
    """Raise a ValueError if qualities are outside of [0, 1] without a `loss_range`."""
    qualities = check_numbers(y, "y")
    if loss_range is None and (qualities.min() < 0 or qualities.max() > 1):
        raise ValueError(
            f"The qualities in y go from {qualities.min():.6g} to "
            f"{qualities.max():.6g}, beyond 0 to 1: give loss_range, what two "
            "qualities of a row can differ by at most, also on rows that are in no "
            "sample."
        )
