"""Number of rows that a promise about a mean needs, before their labels are bought."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from skroute.guarantees._means import CAP, check_bounds
from skroute.utils._compat import Interval, Real, validate_params
from skroute.utils._tolerances import COUNT_ROUNDING
from skroute.utils._typing import ArrayLike

# Number of sizes of a bet that the forecast compares. Each size is 3.5 % above the one
# before. A finer grid would change the forecast by far less than its error.
_N_BETS = 800
# Smallest bet, as a share of the largest possible bet. If the mean is just below the
# limit, only very small bets gain.
_SMALLEST_BET = 1e-12
# The largest bet is `CAP`, divided by the distance from the limit to the largest value.
# A smaller distance counts as this number, so that bets are finite.
_LEAST_ROOM = 1e-12


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
    """Forecast the number of rows that a promise about a mean needs.

    The betting test multiplies its capital by a factor for each row. The result is the
    number of rows after which the capital is large enough, with probability `power`. It
    is computed for values at two points, which have the given mean and standard
    deviation, and with a normal law for the log capital.

    Parameters
    ----------
    limit : float
        The limit that the promise is about: the mean is at most this. Raising it needs
        fewer rows.

    mean : float, default=0.0
        The expected mean. If it is not below `limit`, no number of rows is enough.

    std : float
        The expected standard deviation. Raising it needs more rows. For signed losses
        of -1, 0 and 1 it is about the square root of the share of rows on which exactly
        one of the two answers is right.

    bounds : tuple of (float, float), default=(-1.0, 1.0)
        The smallest and the largest possible value.

    confidence : float, default=0.95
        Probability that the promise holds.

    power : float, default=0.8
        Probability that this number of rows is enough.

    Returns
    -------
    float
        A whole number, or infinity.

    See Also
    --------
    mean_upper_bound : The bound that must be below the limit.

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
        # No number of rows shows that the mean is below the limit.
        return np.inf
    if limit > high:
        # No row can be above the limit, so that one row is enough.
        return 1.0
    law = _two_point_law(mean, std, low=low, high=high)
    # On a row with the value `high`, a bet loses `bet * (high - limit)` of the capital.
    # The largest bet loses `CAP`, the other bets a share of that.
    shares = np.geomspace(_SMALLEST_BET, 1, _N_BETS)
    distance_to_high = max(high - limit, _LEAST_ROOM)
    bets = CAP * shares / distance_to_high
    points = np.array([law.lower, law.upper])
    # Log factor of the capital for each bet, at the lower and the upper point.
    gains = np.log1p(-bets[:, None] * (points - limit))  # (n_bets, 2)
    # Mean and standard deviation of the log factor of a row, for each bet.
    growth = gains @ [1 - law.upper_share, law.upper_share]
    gain_difference = np.abs(gains[:, 1] - gains[:, 0])  # between the two points
    spread = gain_difference * np.sqrt(law.upper_share * (1 - law.upper_share))
    log_target = np.log(1 / (1 - confidence))
    rows_of_bets = _rows_to_reach(log_target, growth=growth, spread=spread, power=power)
    # The best bet needs the fewest rows.
    return float(np.ceil(rows_of_bets.min() - COUNT_ROUNDING))


class _TwoPointLaw(NamedTuple):
    """A distribution at two points.

    Attributes
    ----------
    lower, upper : float
        The two points.
    upper_share : float
        Probability of the upper point.
    """

    lower: float
    upper: float
    upper_share: float


def _two_point_law(mean, std, *, low, high):
    """Return a two-point distribution with this mean and standard deviation.

    If `std` is too large for a distribution in [low, high], the largest possible
    standard deviation takes its place. The points are one standard deviation below and
    above the mean, if the range allows it.

    Parameters
    ----------
    mean, std : float
        The wanted mean and standard deviation.
    low, high : float
        The range. It contains the mean.

    Returns
    -------
    _TwoPointLaw
    """
    # The variance is the largest for the points `low` and `high`.
    largest_variance = (mean - low) * (high - mean)
    largest_std = np.sqrt(largest_variance)
    variance = min(float(std), largest_std) ** 2
    # The lower point is one standard deviation below the mean, but not below `low`.
    lower = max(low, mean - np.sqrt(variance))
    # The variance of two points is (mean - lower) * (upper - mean). One point and the
    # variance thus give the other point.
    upper = mean
    if mean > lower:
        upper = mean + variance / (mean - lower)
    if upper > high:
        # The upper point must be `high`, which gives the lower point.
        upper = high
        lower = mean
        if mean < high:
            lower = mean - variance / (high - mean)
    # If the variance is 0, both points are the mean, and the share has no effect.
    upper_share = 0.0
    if upper > lower:
        upper_share = (mean - lower) / (upper - lower)
    return _TwoPointLaw(lower, upper, upper_share)


def _rows_to_reach(log_target, *, growth, spread, power):
    """Compute after how many rows a log capital reaches a target.

    The log capital after n rows is normal with mean ``n * growth`` and standard
    deviation ``sqrt(n) * spread``.

    Parameters
    ----------
    log_target : float
        Log of the capital to reach, above 0.
    growth, spread : ndarray of shape (n_bets,)
        Mean and standard deviation of the log factor of a row, for each bet.
    power : float
        Probability with which the target is reached.

    Returns
    -------
    ndarray of shape (n_bets,)
        Number of rows, not rounded. Infinity for bets whose capital does not grow.
    """
    # With probability `power`, a normal variable is at least its mean less z standard
    # deviations.
    z = ndtri(power)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # sqrt(n) is the positive root of this quadratic equation:
        # growth * sqrt(n)^2 - z * spread * sqrt(n) - log_target = 0.
        discriminant = (z * spread) ** 2 + 4 * growth * log_target
        sqrt_n = (z * spread + np.sqrt(discriminant)) / (2 * growth)
        return np.where(growth > 0, sqrt_n**2, np.inf)
