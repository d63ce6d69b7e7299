"""How scores become probabilities."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

# What moves a score to the side of its answer.
TINY = 1e-12


class Link(NamedTuple):
    """The function from summed scores to probabilities.

    Attributes
    ----------
    kind : {"logistic", "softmax", "ova", "mean"}
        "mean" divides by the weight of the members that were evaluated; "ova" is logistic
        for each class, and its probabilities need not add up to one.

    slope : float
        Factor of the score.

    shift : float
        Of one output: what the decision's place in the score is, or that of a mean from even
        chances.
    """

    kind: str
    slope: float = 1.0
    shift: float = 0.0

    def probabilities(self, score, weight):
        """Probabilities of the classes.

        Parameters
        ----------
        score : ndarray of shape (n_samples, n_outputs)
            For one output the distance from the decision.

        weight : ndarray of shape (n_samples,)
            Weights of the members evaluated, summed.

        Returns
        -------
        ndarray of shape (n_samples, max(2, n_outputs))
        """
        if score.shape[1] == 1:
            one = score[:, 0]
            mean = self.kind == "mean"
            if mean:
                positive = 0.5 + self.shift + one / weight
            else:
                positive = expit(self.slope * (one + self.shift))
            return np.column_stack([1.0 - positive, positive])
        if self.kind == "softmax":
            return softmax(self.slope * score, axis=1)
        if self.kind == "ova":
            return expit(self.slope * score)
        return score / weight[:, None]
