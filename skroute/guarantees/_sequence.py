"""Bounds that hold after every row at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skroute.guarantees._means import check_values
from skroute.utils._compat import Integral, Interval, Real, validate_params

# Bets that must not be ruined before the variance is known: at any time, not at one.
_CAP = 0.5
_PRIOR_VARIANCE = 0.1


class ConfidenceSequence(NamedTuple):
    """Bounds of a mean after each row.

    Attributes
    ----------
    lower : ndarray of shape (n_rows,)
        Never falls.

    upper : ndarray of shape (n_rows,)
        Never rises.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@validate_params(
    {
        "values": ["array-like"],
        "bounds": ["array-like"],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "resolution": [Interval(Integral, 2, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def confidence_sequence(
    values: ArrayLike,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    resolution: int = 10_000,
) -> ConfidenceSequence:
    """Bounds of a mean that hold after every row at once, so that one may look at any time.

    The betting confidence sequence of theorem 3 in [1]_: with probability `confidence` the
    mean lies within the bounds at all times, however one decides when to stop.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        Bounded values in the order in which they came. Given the past, each must have the
        same mean.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability that the mean never leaves the bounds. Raising it widens them.

    resolution : int, default=10000
        Steps that the range is divided into; the bounds are rounded outward to them. Raising
        it costs time.

    Returns
    -------
    ConfidenceSequence
        Named tuple ``(lower, upper)``.

    Raises
    ------
    ValueError
        If a value is outside of `bounds`.

    See Also
    --------
    mean_upper_bound : A tighter bound for a number of rows that is fixed before.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.guarantees import confidence_sequence
    >>> right = np.random.default_rng(0).random(2000) < 0.8
    >>> lower, upper = confidence_sequence(right)
    >>> bool((lower < 0.8).all() and (upper > 0.8).all() and upper[-1] - lower[-1] < 0.1)
    True
    """
    from skroute.guarantees import _kernels

    unit, low, width = check_values(values, bounds)
    lower, upper = np.empty_like(unit), np.empty_like(unit)
    grid = np.linspace(0.0, 1.0, resolution + 1)
    aim = np.log(2 / (1 - confidence))
    _kernels.running_bounds(unit, grid, aim, _CAP, _PRIOR_VARIANCE, lower, upper)
    return ConfidenceSequence(low + width * lower, low + width * upper)
