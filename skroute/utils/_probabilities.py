"""Whether what a model gives as probabilities can be some."""

import numpy as np

# Room for the rounding of probabilities, half precision included. Logits are far outside.
_PROBABILITY_ROOM = 0.01


def check_probabilities(proba, name, method="predict_proba", total=1.0):
    """Refuse numbers that are no probabilities, such as logits.

    Parameters
    ----------
    proba : ndarray of shape (n_samples, n_labels)
    name : str
        The member that gave them.
    method : str, default="predict_proba"
        Its method that gave them.
    total : float or None, default=1.0
        What each row sums to; None for scores of labels that do not exclude one another.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
        `proba`.

    Raises
    ------
    ValueError
    """
    low, high = -_PROBABILITY_ROOM, 1 + _PROBABILITY_ROOM
    wrong = ~((proba >= low) & (proba <= high)).all(axis=1)
    if total is not None:
        wrong |= ~(np.abs(proba.sum(axis=1, dtype=np.float64) - total) <= _PROBABILITY_ROOM)
    if wrong.any():
        row = [float(f"{value:.3g}") for value in proba[wrong][0][:5]]
        end = "" if total is None else " with the sum 1 in each row"
        raise ValueError(
            f"{method} of {name!r} must give probabilities between 0 and 1{end}, but it gave "
            f"{row!r} for a row. Logits need a softmax first: for a skorch net set "
            'predict_nonlinearity (the default "auto" knows the losses of torch alone); scores '
            "of another kind need sklearn.calibration.CalibratedClassifierCV."
        )
    return proba
