"""What rules and their mixtures do on rows that did not choose them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skroute.base import CostAwareMixin, check_affordable
from skroute.routing._mixtures import Mixture


class ValidatedPart(NamedTuple):
    """Rules that the other rows have chosen, and what they do on the rows of a part.

    Attributes
    ----------
    mixture : Mixture
        By the other rows.
    sums : ndarray of shape (n_rules, 4)
        Over the rows of the part: cost, quality, and the squares of both.
    n_rows : int
    """

    mixture: Mixture
    sums: NDArray[np.float64]
    n_rows: int


class Found(NamedTuple):
    """Mean and standard error on rows that did not choose what they are told of."""

    cost: float
    quality: float
    cost_se: float
    quality_se: float


def row_sums(cost, quality):
    """Sums over rows of cost, quality and their squares: ndarray of shape (..., 4)."""
    return np.stack([table.sum(axis=-1) for table in (cost, quality, cost**2, quality**2)], axis=-1)


def validated_mixture(parts, budget):
    """What mixtures at a budget do on the rows of their parts.

    Parameters
    ----------
    parts : sequence of ValidatedPart
    budget : float

    Returns
    -------
    Found
        The standard errors are those of independent rows or, where they are larger, of the parts'
        means.
    """
    sums, sizes = [], np.array([part.n_rows for part in parts])
    for part in parts:
        low, high, share = part.mixture.share(budget)
        sums.append((1 - share) * part.sums[low] + share * part.sums[high])
    table, n = np.array(sums), sizes.sum()
    mean = table.sum(axis=0) / n
    spread = np.maximum(mean[2:] - mean[:2] ** 2, 0.0)
    error = np.sqrt(spread / (n - 1)) if n > 1 else np.full(2, np.nan)
    if len(parts) > 1:
        means = table[:, :2] / sizes[:, np.newaxis]
        error = np.maximum(error, means.std(axis=0, ddof=1) / np.sqrt(len(parts)))
    return Found(float(mean[0]), float(mean[1]), float(error[0]), float(error[1]))


class ValidatedRulesMixin(CostAwareMixin):
    """Mixin for routers that mix rules: `_validated` is a list of `ValidatedPart`."""

    def _found(self):
        check_is_fitted(self)
        budget = self._effective_budget(None)
        check_affordable(budget, self._least())
        return validated_mixture(self._validated, budget)

    @property
    def validation_quality_(self):
        """Mean quality at `budget` of rows decided by rules that the other rows have chosen."""
        return self._found().quality

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._found().quality_se

    @property
    def validation_cost_(self):
        """What these decisions cost on average."""
        return self._found().cost

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._found().cost_se
