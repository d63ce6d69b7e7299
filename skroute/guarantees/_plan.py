"""How many rows a promise takes, before the money for their labels is spent."""

import numpy as np
from scipy.special import ndtri

from skroute.guarantees._means import CAP, check_bounds
from skroute.utils._compat import Interval, Real, validate_params
from skroute.utils._tolerances import COUNT_ROUNDING
from skroute.utils._typing import ArrayLike


@validate_params(
    {
        "limit": [Real],
        "mean": [Real],
        "std": [Interval(Real, 0, None, closed="left")],
        "bounds": ["array-like"],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "power": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def rows_needed(
    limit: float,
    *,
    mean: float = 0.0,
    std: float,
    bounds: ArrayLike | tuple[float, float] = (-1.0, 1.0),
    confidence: float = 0.95,
    power: float = 0.8,
) -> float:
    """Approximate number of rows that are needed to guarantee that a mean is below a limit.

    The capital of the betting test grows by a factor per row; the answer is the number of rows
    after which it suffices with probability `power`, for values at two points that have the
    mean and the standard deviation given, by the normal law of the log capital.

    Parameters
    ----------
    limit : float
        What is to be promised: the mean is at most this. Raising it needs fewer rows.

    mean : float, default=0.0
        The mean that is expected. At `limit` or above no number of rows is enough.

    std : float
        The standard deviation that is expected, by which the rows needed grow. Of signed
        losses of 0 and 1 it is about the square root of the share of rows on which exactly one
        of the two is right.

    bounds : tuple of (float, float), default=(-1.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability that the promise holds.

    power : float, default=0.8
        Probability that so many rows are enough.

    Returns
    -------
    float
        A whole number, or infinity.

    See Also
    --------
    mean_upper_bound : The bound that the rows are needed for.

    Examples
    --------
    >>> from skroute.guarantees import rows_needed
    >>> rows_needed(0.02, std=0.0)
    150.0
    >>> rows_needed(0.02, std=0.2) > 3 * rows_needed(0.02, std=0.1)
    True
    >>> rows_needed(0.02, mean=0.03, std=0.1)
    inf
    """
    low, high = check_bounds(bounds)
    if np.isnan(limit):
        raise ValueError("limit must be a number, got nan.")
    if not low <= mean <= high:
        raise ValueError(f"mean={mean!r} must lie in bounds={(low, high)!r}.")
    if mean >= limit:
        return np.inf
    if limit > high:
        return 1.0
    most = (mean - low) * (high - mean)
    variance = min(float(std), np.sqrt(most)) ** 2
    # Two points: the lower one a standard deviation below, or at the end of the range.
    down = max(low, mean - np.sqrt(variance))
    up = mean + variance / (mean - down) if mean > down else mean
    if up > high:
        up, down = high, mean - variance / (high - mean) if mean < high else mean
    share = (mean - down) / (up - down) if up > down else 0.0
    # A mean just below the limit is worth only the smallest bets.
    bets = CAP * np.geomspace(1e-12, 1, 800) / max(high - limit, 1e-12)
    gains = np.log1p(-bets[:, None] * (np.array([down, up]) - limit))
    growth = gains @ [1 - share, share]
    spread = np.abs(gains[:, 1] - gains[:, 0]) * np.sqrt(share * (1 - share))
    aim, z = np.log(1 / (1 - confidence)), ndtri(power)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = (z * spread + np.sqrt((z * spread) ** 2 + 4 * growth * aim)) / (
            2 * growth
        )
        rows = np.where(growth > 0, root**2, np.inf)
    return float(np.ceil(rows.min() - COUNT_ROUNDING))
