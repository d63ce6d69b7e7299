"""Bounds for the mean of bounded values that hold with a stated probability."""

import numpy as np

from skroute.guarantees._trinomial import trinomial_p_value, trinomial_upper_bound
from skroute.utils._compat import Integral, Interval, Real, StrOptions, validate_params
from skroute.utils._tolerances import COUNT_ROUNDING, LIMIT_ROOM, ROUNDING
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# How much of the capital a bet may risk, and the variance assumed before the first value (in the
# unit of a range of 1): a bolder cap and a smaller variance than in the paper, since signed losses
# have a small variance and a wide range.
CAP = 0.99
PRIOR_VARIANCE = 0.05
# The level that the bets are tuned to. One for all keeps the p-value a function of the values
# alone, so that a bound at a higher confidence is never tighter.
AIM = np.log(1 / 0.05)

# What p-values are raised to before a logarithm.
_SMALLEST = 1e-300

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
    r"""p-value of the hypothesis that the mean is at least `limit`.

    If the mean is at least `limit`, the p-value is at most :math:`\delta` with probability at
    most :math:`\delta`, for every number of rows.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        Bounded values of rows that are drawn independently, or without replacement from
        `n_population` rows. ``"betting"`` reads them in the order given, which must not
        depend on the values.

    limit : float
        The mean that is tested, in the unit of `values`. Raising it lowers the p-value.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible. A wider range needs more rows.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        - ``"betting"``: one over the largest capital of a bettor against the mean, by Ville's
          inequality; theorem 3 and eq. (26) of [1]_, without replacement theorem 4;
        - ``"binomial"``: exact, for values that are 0 or 1 (the ends of `bounds`); without
          replacement the hypergeometric law;
        - ``"trinomial"``: for independent values at the two ends of `bounds` or in their middle,
          such as signed losses of -1, 0 and 1: the largest probability, over the share of values
          that are not 0, of a likelihood ratio as extreme [2]_, found to 0.1 % of itself and
          rounded up. Where many values cancel it needs far fewer rows than betting. It knows no
          limit below the middle.

    n_population : int, default=None
        Rows in the finite population that `values` are drawn from without replacement, and
        whose mean is meant. None stands for independent rows.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a value is outside of `bounds` or does not suit the method.

    See Also
    --------
    mean_upper_bound : The smallest mean that is refused.
    fixed_sequence_test : Many such tests in one promise.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.
    .. [2] R. L. Berger, D. D. Boos, "P values maximized over a confidence set for the nuisance
       parameter", Journal of the American Statistical Association 89, 1994.

    Examples
    --------
    >>> from skroute.guarantees import mean_p_value
    >>> no_loss = [0.0] * 100
    >>> mean_p_value(no_loss, 0.05) < 0.01 < mean_p_value(no_loss, 0.02)
    True
    >>> round(mean_p_value(no_loss, 0.05, method="binomial"), 4)
    0.0059
    """
    unit, low, width = _in_unit_range(values, bounds)
    _check_method(unit, method, n_population)
    if np.isnan(limit):
        raise ValueError("limit must be a number, got nan.")
    return _p_value(unit, (float(limit) - low) / width, method, n_population)


@validate_params({**_CONSTRAINTS, **_CONFIDENCE}, prefer_skip_nested_validation=True)
def mean_upper_bound(
    values: ArrayLike,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    method: str = "betting",
    n_population: int | None = None,
) -> float:
    """Upper bound of the true mean of bounded values, with a probability of `confidence`.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it raises the bound.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        As in :func:`mean_p_value`.

    n_population : int, default=None
        As in :func:`mean_p_value`; the bound is then for the mean of the population.

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
    >>> losses = np.random.default_rng(0).choice([-1, 0, 1], p=[0.01, 0.98, 0.01], size=1000)
    >>> bound = mean_upper_bound(losses, bounds=(-1, 1))
    >>> bool(0 < bound < 0.02 < mean_upper_bound(losses, bounds=(-1, 1), confidence=0.99999))
    True
    >>> mean_upper_bound(losses, bounds=(-1, 1), method="trinomial") < bound
    True
    """
    unit, low, width = _in_unit_range(values, bounds)
    _check_method(unit, method, n_population)
    return low + width * _upper(unit, 1 - confidence, method, n_population)


@validate_params({**_CONSTRAINTS, **_CONFIDENCE}, prefer_skip_nested_validation=True)
def mean_lower_bound(
    values: ArrayLike,
    *,
    bounds: ArrayLike | tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    method: str = "betting",
    n_population: int | None = None,
) -> float:
    """Lower bound of the true mean of bounded values, with a probability of `confidence`.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it lowers the bound.

    method : {"betting", "binomial", "trinomial"}, default="betting"
        As in :func:`mean_p_value`.

    n_population : int, default=None
        As in :func:`mean_p_value`; the bound is then for the mean of the population.

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
    unit, low, width = _in_unit_range(values, bounds)
    mirrored = 1.0 - unit
    _check_method(mirrored, method, n_population)
    return low + width * (1.0 - _upper(mirrored, 1 - confidence, method, n_population))


@validate_params(
    {"p_values": ["array-like"], **_CONFIDENCE}, prefer_skip_nested_validation=True
)
def fixed_sequence_test(
    p_values: ArrayLike, *, confidence: float = 0.95
) -> NDArray[np.bool_]:
    r"""Test candidates in a fixed order, and accept all candidates before the first failure.

    Learn then Test [1]_ with fixed sequence testing (proposition 2 there): every candidate is
    tested at the full level, and none after the first that is not certified. With probability
    `confidence` no certified candidate breaks its promise, so that any of them may be chosen
    by looking at the same rows.

    Parameters
    ----------
    p_values : array-like of shape (n_candidates,)
        p-values of "the promise is broken", in an order that was fixed before the rows were
        seen, the safest candidate first. Of several promises about a candidate take the largest
        p-value (an intersection-union test), which costs no confidence.

    confidence : float, default=0.95
        Probability that no promise of a certified candidate is broken. Raising it certifies
        fewer.

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=bool
        True for a first stretch of the candidates, perhaps none.

    Raises
    ------
    ValueError
        If a p-value is not in [0, 1].

    See Also
    --------
    mean_p_value : p-values for means.

    Notes
    -----
    Several sequences, from other ends or along other paths, share the level: two of them get
    ``confidence = 1 - (1 - c) / 2`` each.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candes, M. I. Jordan, L. Lei, "Learn then Test:
       Calibrating predictive algorithms to achieve risk control", 2021, arXiv 2110.01052.

    Examples
    --------
    >>> from skroute.guarantees import fixed_sequence_test
    >>> fixed_sequence_test([0.001, 0.04, 0.2, 0.01])
    array([ True,  True, False, False])
    """
    found = check_numbers(p_values, "p_values", shape=(None,), low=0.0, high=1.0)
    # 1 - confidence is rounded: a p-value that equals the level is not lost to the last bit.
    return np.logical_and.accumulate(found <= (1 - confidence) * (1 + ROUNDING))


def share_upper_bound(n_hits: int, n_rows: int, *, confidence: float) -> float:
    """`mean_upper_bound` by the exact binomial law (Clopper and Pearson), from counts."""
    from scipy.special import betaincinv

    if n_hits >= n_rows:
        return 1.0
    return float(betaincinv(n_hits + 1, n_rows - n_hits, confidence))


def check_bounds(bounds):
    """The smallest and the largest possible value."""
    low, high = check_numbers(bounds, "bounds", shape=(2,)).tolist()
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(
            "bounds must be two finite numbers, the smaller first: the smallest and the largest "
            f"value that is possible. Got {bounds!r}."
        )
    return low, high


def _in_unit_range(values, bounds):
    """Values in the unit of a range of 1, the smallest one that is possible, and the range."""
    low, high = check_bounds(bounds)
    values = np.ascontiguousarray(check_numbers(values, "values", shape=(None,)))
    if not len(values):
        raise ValueError("values must be one number per row, at least one, got none.")
    # Differences of sums miss the ends of the range by rounding.
    room = LIMIT_ROOM * (high - low)
    if values.min() < low - room or values.max() > high + room:
        raise ValueError(
            f"values must lie in bounds={(low, high)!r}, got {values.min():.17g} to "
            f"{values.max():.17g}. A promise about a mean needs the range that no row can leave."
        )
    return np.clip((values - low) / (high - low), 0.0, 1.0), low, high - low


def _check_method(unit, method, n_population):
    """Refuse a population or values that the method is not for."""
    if n_population is not None and n_population < len(unit):
        raise ValueError(
            f"n_population={n_population!r} is smaller than the number of values, {len(unit)}."
        )
    if method == "trinomial" and n_population is not None:
        raise ValueError(
            'method="trinomial" is for independent rows. Without replacement take "betting".'
        )
    if method == "trinomial" and not np.isin(unit, (0.0, 0.5, 1.0)).all():
        raise ValueError(
            'method="trinomial" needs values that are one of the two ends of bounds, or their '
            'middle. Take "betting" for others.'
        )
    if method == "binomial" and not np.isin(unit, (0.0, 1.0)).all():
        raise ValueError(
            'method="binomial" needs values that are one of the two ends of bounds. Take '
            '"betting" for values in between.'
        )


def _p_value(unit, limit, method, n_population):
    """p-value of "the mean is at least `limit`"; all in the unit of a range of 1."""
    if limit <= 0:
        return 1.0
    if method == "trinomial":
        return trinomial_p_value(*_signs(unit), round(2 * limit - 1, 12))
    if limit > 1:
        return 0.0
    if method == "betting":
        from skroute.guarantees._kernels import log_capital

        capital = log_capital(unit, limit, n_population or 0, CAP, PRIOR_VARIANCE, AIM)
        return float(np.exp(-capital))
    from scipy import special, stats

    n, hits = len(unit), int(round(unit.sum()))
    if n_population is None:
        return float(special.bdtr(hits, n, limit))
    marked = int(np.ceil(n_population * limit - COUNT_ROUNDING))
    return float(stats.hypergeom.cdf(hits, n_population, marked, n))


def _signs(unit):
    """Number of values, of those at the upper end, and of those at the lower end."""
    return len(unit), int((unit > 0.75).sum()), int((unit < 0.25).sum())


def _upper(unit, level, method, n_population):
    """The smallest mean that is refused at the level, from above."""
    if method == "trinomial":
        return (1 + trinomial_upper_bound(*_signs(unit), level)) / 2
    if _p_value(unit, 1.0, method, n_population) > level:
        return 1.0
    from scipy.optimize import brentq

    def above(limit):
        return np.log(
            max(_p_value(unit, limit, method, n_population), _SMALLEST)
        ) - np.log(level)

    # A third of the p-values that halving an interval would take.
    found = float(brentq(above, 0.0, 1.0, xtol=1e-15, rtol=1e-15))
    step = 1e-15
    while found < 1 and _p_value(unit, found, method, n_population) > level:
        found, step = min(found + step, 1.0), 2 * step
    return found
