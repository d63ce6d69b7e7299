"""Bounds for the mean of bounded values that hold with a stated probability."""

from typing import NamedTuple

import numpy as np

from skroute.guarantees._trinomial import trinomial_p_value, trinomial_upper_bound
from skroute.utils._compat import Integral, Interval, Real, StrOptions, validate_params
from skroute.utils._tolerances import COUNT_ROUNDING, LIMIT_ROOM, ROUNDING
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Largest share of the capital that one bet may lose. It is larger than in the paper
# (Waudby-Smith and Ramdas, 2024), because signed losses have a small variance and a
# wide range.
CAP = 0.99
# Variance of the values, scaled to [0, 1], that bets assume before the first value. It
# is smaller than in Waudby-Smith and Ramdas (2024), because signed losses have a small
# variance.
PRIOR_VARIANCE = 0.05
# Log of one over the level for which bets are tuned. It is the same for all
# confidences. So the p-value depends on the values alone, and a bound at a higher
# confidence is never tighter.
LOG_TARGET = np.log(1 / 0.05)

# Smaller p-values count as this number where their logarithm is taken.
_SMALLEST_P_VALUE = 1e-300
# Precision of an upper bound of values that are scaled to [0, 1]: a few rounding
# errors of numbers near 1.
_BOUND_PRECISION = 1e-15

_CONSTRAINTS = {
    "values": ["array-like"],
    "bounds": ["array-like"],
    "method": [StrOptions({"betting", "binomial", "trinomial"})],
    "n_population": [Interval(Integral, 1, 2**53, closed="both"), None],
}
_CONFIDENCE = {"confidence": [Interval(Real, 0, 1, closed="neither")]}


@validate_params({**_CONSTRAINTS, "limit": [Real]}, prefer_skip_nested_validation=True)
def mean_p_value(
    values: ArrayLike,
    limit: float,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    method: str = "betting",
    n_population: int | None = None,
) -> float:
    r"""Compute the p-value of the hypothesis that the mean is at least `limit`.

    If the mean is at least `limit`, the p-value is at most :math:`\delta` with
    probability at most :math:`\delta`, for every number of rows.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        Bounded values of rows that are drawn independently, or without replacement from
        `n_population` rows. ``"betting"`` uses them in this order, which must not
        depend on the values.

    limit : float
        The tested mean, in the unit of `values`. Raising it lowers the p-value.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest possible value. A wider range needs more rows.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        - ``"betting"``: one over the largest capital of a bettor against the hypothesis
          (Ville's inequality). See theorem 3 and eq. (26) of [1]_, and theorem 4 for
          rows without replacement.
        - ``"binomial"``: exact, for values that are one of the two ends of `bounds`,
          such as 0 and 1. Without replacement, the law is hypergeometric.
        - ``"trinomial"``: for independent values at the two ends of `bounds` or in
          their middle, such as signed losses of -1, 0 and 1. The p-value is the
          probability of a likelihood ratio that is at least as extreme. It is maximized
          over the nuisance parameter [2]_: the probability of a value that is not in
          the middle. This maximum is computed to 0.1 % of itself and rounded up. If
          many values cancel, this test needs far fewer rows than betting. It refuses no
          limit below the middle.

    n_population : int, default=None
        Number of rows of the finite population that `values` are drawn from without
        replacement. The p-value is then about the mean of this population. None stands
        for independent rows.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a value is outside of `bounds` or does not suit the method.

    See Also
    --------
    mean_upper_bound : The smallest refused mean.
    fixed_sequence_test : Several tests in one promise.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.
    .. [2] R. L. Berger, D. D. Boos, "P values maximized over a confidence set for the
       nuisance parameter", Journal of the American Statistical Association 89, 1994.

    Examples
    --------
    >>> from skroute.guarantees import mean_p_value
    >>> no_loss = [0.0] * 100
    >>> mean_p_value(no_loss, 0.05) < 0.01 < mean_p_value(no_loss, 0.02)
    True
    >>> round(mean_p_value(no_loss, 0.05, method="binomial"), 4)
    0.0059
    """
    scaled = _scale_to_unit_range(values, bounds)
    _check_method(scaled.values, method, n_population)
    if np.isnan(limit):
        raise ValueError("limit must be a number, got nan.")
    scaled_limit = (float(limit) - scaled.low) / scaled.width
    return _p_value(scaled.values, scaled_limit, method, n_population)


@validate_params({**_CONSTRAINTS, **_CONFIDENCE}, prefer_skip_nested_validation=True)
def mean_upper_bound(
    values: ArrayLike,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    method: str = "betting",
    n_population: int | None = None,
) -> float:
    """Compute an upper bound of the mean that holds with probability `confidence`.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest possible value.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it raises the bound.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        As in :func:`mean_p_value`.

    n_population : int, default=None
        As in :func:`mean_p_value`. The bound is then for the mean of the population.

    Returns
    -------
    float
        Within `bounds`.

    Raises
    ------
    ValueError
        If a value is outside of `bounds` or does not suit the method.

    See Also
    --------
    mean_lower_bound : The same from below.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.guarantees import mean_upper_bound
    >>> rng = np.random.default_rng(0)
    >>> losses = rng.choice([-1, 0, 1], p=[0.01, 0.98, 0.01], size=1000)
    >>> bound = mean_upper_bound(losses, bounds=(-1, 1))
    >>> safer = mean_upper_bound(losses, bounds=(-1, 1), confidence=0.99999)
    >>> bool(0 < bound < 0.02 < safer)
    True
    >>> mean_upper_bound(losses, bounds=(-1, 1), method="trinomial") < bound
    True
    """
    scaled = _scale_to_unit_range(values, bounds)
    _check_method(scaled.values, method, n_population)
    upper = _upper_bound(scaled.values, 1 - confidence, method, n_population)
    return scaled.low + scaled.width * upper


@validate_params({**_CONSTRAINTS, **_CONFIDENCE}, prefer_skip_nested_validation=True)
def mean_lower_bound(
    values: ArrayLike,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    method: str = "betting",
    n_population: int | None = None,
) -> float:
    """Compute a lower bound of the mean that holds with probability `confidence`.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest possible value.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it lowers the bound.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        As in :func:`mean_p_value`.

    n_population : int, default=None
        As in :func:`mean_p_value`. The bound is then for the mean of the population.

    Returns
    -------
    float
        Within `bounds`.

    Raises
    ------
    ValueError
        If a value is outside of `bounds` or does not suit the method.

    See Also
    --------
    mean_upper_bound : The same from above.

    Examples
    --------
    >>> from skroute.guarantees import mean_lower_bound
    >>> 0.85 < mean_lower_bound([1.0] * 30) < 1
    True
    """
    scaled = _scale_to_unit_range(values, bounds)
    # A lower bound of the mean is 1 minus an upper bound of the mean of 1 - values.
    mirrored = 1.0 - scaled.values
    _check_method(mirrored, method, n_population)
    mirrored_upper = _upper_bound(mirrored, 1 - confidence, method, n_population)
    return scaled.low + scaled.width * (1.0 - mirrored_upper)


@validate_params(
    {"p_values": ["array-like"], **_CONFIDENCE}, prefer_skip_nested_validation=True
)
def fixed_sequence_test(
    p_values: ArrayLike, *, confidence: float = 0.95
) -> NDArray[np.bool_]:
    r"""Test candidates in a fixed order, and accept all before the first failure.

    This is Learn then Test [1]_ with fixed sequence testing (proposition 2 there).
    Every candidate is tested at the full level, until the first one that is not
    certified. With probability `confidence` no certified candidate breaks its promise.
    So any of them may be chosen by looking at the same rows.

    Parameters
    ----------
    p_values : array-like of shape (n_candidates,)
        The p-values of "the promise is broken", the safest candidate first. The order
        must be fixed before the rows are seen. For several promises about one candidate
        take the largest p-value (an intersection-union test), which costs no
        confidence.

    confidence : float, default=0.95
        Probability that no promise of a certified candidate is broken. Raising it
        certifies fewer.

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=bool
        True for all candidates before the first failure.

    Raises
    ------
    ValueError
        If a p-value is not in [0, 1].

    See Also
    --------
    mean_p_value : The p-values of means.

    Notes
    -----
    Several sequences, such as one from each end of a path, share the level. For two
    sequences and a total confidence ``c``, test each of them with
    ``confidence = 1 - (1 - c) / 2``.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candes, M. I. Jordan, L. Lei, "Learn then
       Test: Calibrating predictive algorithms to achieve risk control", 2021, arXiv
       2110.01052.

    Examples
    --------
    >>> from skroute.guarantees import fixed_sequence_test
    >>> fixed_sequence_test([0.001, 0.04, 0.2, 0.01])
    array([ True,  True, False, False])
    """
    checked = check_numbers(p_values, "p_values", shape=(None,), low=0.0, high=1.0)
    # 1 - confidence is rounded. A p-value that equals the level must still be accepted.
    level = (1 - confidence) * (1 + ROUNDING)
    return np.logical_and.accumulate(checked <= level)


def share_upper_bound(n_hits: int, n_rows: int, *, confidence: float) -> float:
    """Compute the Clopper-Pearson upper bound of the share of hits.

    `n_hits` of `n_rows` drawn rows are hits. The bound holds with probability
    `confidence`.
    """
    from scipy.special import betaincinv

    if n_hits >= n_rows:
        # All rows are hits, or there are no rows: the share may be 1.
        return 1.0
    return float(betaincinv(n_hits + 1, n_rows - n_hits, confidence))


def check_bounds(bounds):
    """Return `bounds`, the smallest and the largest possible value, as two floats.

    A ValueError is raised unless they are finite and the first is smaller.
    """
    low, high = check_numbers(bounds, "bounds", shape=(2,)).tolist()
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(
            "bounds must be two finite numbers, the smaller first: the smallest and "
            f"the largest value that is possible. Got {bounds!r}."
        )
    return low, high


class _ScaledValues(NamedTuple):
    """Values that are scaled to [0, 1].

    Attributes
    ----------
    values : ndarray of shape (n_rows,)
        C-contiguous, in [0, 1]: the original values are ``low + width * values``.
    low, width : float
        Smallest possible original value, and width of the original range.
    """

    values: NDArray[np.float64]
    low: float
    width: float


def _scale_to_unit_range(values, bounds):
    """Return values that are scaled from `bounds` to [0, 1] (`_ScaledValues`).

    A ValueError is raised if there are no values, or if a value is outside of `bounds`.
    """
    low, high = check_bounds(bounds)
    values = np.ascontiguousarray(check_numbers(values, "values", shape=(None,)))
    if not len(values):
        raise ValueError("values must be one number per row, at least one, got none.")
    # Values that are differences of sums may exceed the bounds by rounding. They are
    # clipped below.
    room = LIMIT_ROOM * (high - low)
    if values.min() < low - room or values.max() > high + room:
        raise ValueError(
            f"values must lie in bounds={(low, high)!r}, got {values.min():.17g} to "
            f"{values.max():.17g}. A promise about a mean needs the range that no row "
            "can leave."
        )
    width = high - low
    scaled = np.clip((values - low) / width, 0.0, 1.0)
    return _ScaledValues(scaled, low, width)


def _check_method(values, method, n_population):
    """Raise a ValueError if a method does not suit the population or the values.

    The values are scaled to [0, 1]. `n_population` is None for independent rows.
    """
    if n_population is not None and n_population < len(values):
        raise ValueError(
            f"n_population={n_population!r} is smaller than the number of values, "
            f"{len(values)}."
        )
    if method == "trinomial" and n_population is not None:
        raise ValueError(
            'method="trinomial" is for independent rows. Without replacement take '
            '"betting".'
        )
    if method == "trinomial" and not np.isin(values, (0.0, 0.5, 1.0)).all():
        raise ValueError(
            'method="trinomial" needs values that are one of the two ends of bounds, '
            'or their middle. Take "betting" for others.'
        )
    if method == "binomial" and not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(
            'method="binomial" needs values that are one of the two ends of bounds. '
            'Take "betting" for values in between.'
        )


def _p_value(values, limit, method, n_population):
    """Compute the p-value of "the mean is at least `limit`".

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Scaled to [0, 1].
    limit : float
        In the unit of the values.
    method, n_population
        As in :func:`mean_p_value`.
    """
    if limit <= 0:
        # Every mean is at least 0: the hypothesis is true.
        return 1.0
    if method == "trinomial":
        counts = _count_signs(values)
        # The limit on the scale of signed losses, [-1, 1]. Rounding to 12 digits
        # removes the rounding errors of scaling.
        signed_limit = round(2 * limit - 1, 12)
        return trinomial_p_value(counts.n_rows, counts.lost, counts.won, signed_limit)
    if limit > 1:
        # Each mean is at most 1: the hypothesis is false.
        return 0.0
    if method == "betting":
        return _betting_p_value(values, limit, n_population)
    return _counting_p_value(values, limit, n_population)


def _betting_p_value(values, limit, n_population):
    """Compute the p-value by betting: one over the largest capital of the bets.

    The hypothesis is that the mean is at least `limit`. `values` are in [0, 1], and
    `limit` is in (0, 1]. `n_population` is None for independent rows.
    """
    from skroute.guarantees._kernels import log_capital

    if n_population is None:
        # The kernel takes 0 for independent rows.
        n_population = 0
    log_of_largest = log_capital(
        values, limit, n_population, CAP, PRIOR_VARIANCE, LOG_TARGET
    )
    return float(np.exp(-log_of_largest))


def _counting_p_value(values, limit, n_population):
    """Compute the binomial or hypergeometric p-value of values that are 0 or 1.

    The hypothesis is that the mean is at least `limit`, which is in (0, 1].
    `n_population` is None for independent rows (binomial). Else it is the number of
    rows of the population (hypergeometric).
    """
    from scipy import special, stats

    # The p-value is the probability of at most `n_ones` ones, if the mean is `limit`.
    n_rows = len(values)
    n_ones = int(round(values.sum()))
    if n_population is None:
        return float(special.bdtr(n_ones, n_rows, limit))
    # Smallest number of ones in a population whose mean is at least `limit`. A product
    # that exceeds a whole number by rounding only is not rounded up.
    n_population_ones = int(np.ceil(n_population * limit - COUNT_ROUNDING))
    return float(stats.hypergeom.cdf(n_ones, n_population, n_population_ones, n_rows))


class _SignCounts(NamedTuple):
    """Numbers of all rows, of lost rows (loss 1) and of won rows (loss -1).

    Attributes
    ----------
    n_rows : int
        Number of all rows.
    lost, won : int
        Number of rows at the upper end of the range, and at the lower end.
    """

    n_rows: int
    lost: int
    won: int


def _count_signs(values):
    """Count the lost and the won rows among signed losses (`_SignCounts`).

    `values` are scaled to 0 (won), 0.5 (equal) and 1 (lost).
    """
    # The values are 0, 0.5 and 1, up to rounding. 0.25 and 0.75 are far from all three.
    n_lost = int((values > 0.75).sum())
    n_won = int((values < 0.25).sum())
    return _SignCounts(len(values), n_lost, n_won)


def _upper_bound(values, level, method, n_population):
    """Compute an upper bound of the mean: all larger means are refused at `level`.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Scaled to [0, 1], as the result is.
    level : float
        One minus the confidence.
    method, n_population
        As in :func:`mean_p_value`.
    """
    if method == "trinomial":
        counts = _count_signs(values)
        signed_bound = trinomial_upper_bound(
            counts.n_rows, counts.lost, counts.won, level
        )
        return (1 + signed_bound) / 2
    if _p_value(values, 1.0, method, n_population) > level:
        # No mean can be refused.
        return 1.0
    from scipy.optimize import brentq

    def log_excess(limit):
        # Above 0 if the p-value is above `level`.
        p_value = _p_value(values, limit, method, n_population)
        # The logarithm of 0 would be minus infinity.
        p_value = max(p_value, _SMALLEST_P_VALUE)
        return np.log(p_value) - np.log(level)

    # Brent's method computes about a third as many p-values as bisection.
    bound = float(
        brentq(log_excess, 0.0, 1.0, xtol=_BOUND_PRECISION, rtol=_BOUND_PRECISION)
    )
    # By rounding, the p-value at the root may be above the level. The bound then moves
    # up, in steps that double.
    step = _BOUND_PRECISION
    while bound < 1 and _p_value(values, bound, method, n_population) > level:
        bound = min(bound + step, 1.0)
        step = 2 * step
    return bound
