"""Bounds for the mean of bounded values that hold with a stated probability."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from skroute.guarantees._trinomial import trinomial_p_value, trinomial_upper_bound
from skroute.utils._compat import Integral, Interval, Real, StrOptions, validate_params

# How much of the capital a bet may risk, and the variance assumed before the first value (in the
# unit of a range of 1). Chosen on draws 0 to 99 of the CALM summaries and on made-up losses
# (benchmarks/bench_guarantees.py reports other draws): a bolder cap and a smaller variance than in
# the paper, since signed losses have a small variance and a wide range.
CAP = 0.99
PRIOR_VARIANCE = 0.05
# The level that the bets are tuned to. One for all keeps the p-value a function of the values
# alone, so that a bound at a higher confidence is never tighter.
AIM = np.log(1 / 0.05)

# What p-values are raised to before a logarithm.
_SMALLEST = 1e-300

# Of "exchangeable": bets as shares of the largest one, and how the first capital is divided. Most
# of it is on the boldest, as `CAP` is; the others serve values that vary as much as their range
# allows. Chosen on half of the CALM summaries (1,000 rows).
SHARES_OF_CAP = CAP * 0.5 ** np.arange(7)
WEIGHTS = np.r_[0.8, np.full(6, 0.2 / 6)]

METHODS = ("betting", "exchangeable", "hoeffding_bentkus", "binomial", "trinomial", "normal")


def check_values(values, bounds, *, name="values", bounds_name="bounds"):
    """Values as float64 in the unit of a range of 1.

    Returns
    -------
    unit : ndarray of shape (n_values,)
    low, width : float
    """
    low, high = check_bounds(bounds, name=bounds_name)
    values = check_numbers(values, name)
    # Differences of sums miss the ends of the range by rounding.
    room = 1e-9 * (high - low)
    if values.min() < low - room or values.max() > high + room:
        raise ValueError(
            f"{name} must lie in {bounds_name}={(low, high)!r}, got {values.min():.17g} to "
            f"{values.max():.17g}. A promise about a mean needs the range that no row can leave."
        )
    return np.clip((values - low) / (high - low), 0.0, 1.0), low, high - low


def check_numbers(values, name, *, max_ndim=1):
    """Finite numbers, one per row, as C-contiguous float64; booleans are 0 and 1."""
    with warnings.catch_warnings():
        # numpy only warns where it drops an imaginary part or a mask.
        warnings.simplefilter("error")
        try:
            hidden = isinstance(values, np.ma.MaskedArray) and values.mask.any()
            found = np.asarray(values)
            if hidden or isinstance(values, dict):
                raise TypeError
            found = found.astype(np.float64) if found.dtype.kind in "biufO" else None
        except (TypeError, ValueError, OverflowError, Warning):
            found = None
    if found is None:
        raise ValueError(f"{name} must be real numbers, one per row.")
    if not 1 <= found.ndim <= max_ndim or found.size == 0:
        raise ValueError(
            f"{name} must be one number per row of shape (n_rows,), at least one, got shape "
            f"{found.shape}."
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite; NaN or infinity is in it.")
    return np.ascontiguousarray(found)


def check_bounds(bounds, *, name="bounds"):
    """The smallest and the largest possible value.

    Returns
    -------
    low, high : float
    """
    try:
        low, high = check_numbers(bounds, name).tolist()
    except ValueError:
        low = high = np.nan
    if not (low < high and np.isfinite(high - low)):
        raise ValueError(
            f"{name} must be two finite numbers, the smaller first: the smallest and the largest "
            f"value that is possible. Got {bounds!r}."
        )
    return low, high


def _check_method(unit, method, n_population):
    if n_population is not None and n_population < len(unit):
        raise ValueError(
            f"n_population={n_population!r} is smaller than the number of values, {len(unit)}."
        )
    if method == "hoeffding_bentkus" and n_population is not None:
        raise ValueError(
            'method="hoeffding_bentkus" is for independent rows. Without replacement take '
            '"betting", or "binomial" for two values.'
        )
    if method in ("trinomial", "exchangeable") and n_population is not None:
        raise ValueError(
            f'method="{method}" is for independent rows. Without replacement take "betting".'
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
    if method == "betting":
        from skroute.guarantees import _kernels

        if limit > 1:
            return 0.0
        capital = _kernels.log_capital(unit, limit, n_population or 0, CAP, PRIOR_VARIANCE, AIM)
        return float(np.exp(-capital))
    if limit > 1:
        return 0.0
    if method == "exchangeable":
        if limit == 1:
            return float((unit == 1).all())
        capital = log_capital_of_all(unit, limit)
        # Nothing is refused that no bet has won against, such as the mean of these values.
        return float(place_in_the_round(unit) * np.exp(-capital)) if capital > 0 else 1.0
    from scipy import special, stats

    n, mean = len(unit), unit.mean()
    if method == "normal":
        if n < 2:
            return 1.0
        left = 1.0 if n_population is None else 1.0 - n / n_population
        error = np.sqrt(unit.var(ddof=1) / n * left)
        if error == 0:
            return float(mean >= limit)
        return float(stats.norm.cdf((mean - limit) / error))
    if method == "binomial":
        hits = int(round(unit.sum()))
        if n_population is None:
            return float(special.bdtr(hits, n, limit))
        marked = int(np.ceil(n_population * limit - 1e-9))
        return float(stats.hypergeom.cdf(hits, n_population, marked, n))
    least = min(mean, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = least * np.log(least / limit) if least > 0 else 0.0
        if least < 1:
            entropy += (1 - least) * (np.log1p(-least) - np.log1p(-limit))
    bentkus = np.e * special.bdtr(np.ceil(n * mean - 1e-9), n, limit)
    return float(min(np.exp(-n * entropy), bentkus, 1.0))


def log_capital_of_all(unit, limit):
    """Log capital of a mixture of fixed bets against "the mean is at least `limit`", below 1.

    It does not depend on the order of the values.
    """
    bets = SHARES_OF_CAP / (1 - limit)
    each = np.log1p(bets[:, np.newaxis] * (limit - unit)).sum(axis=1)
    return float(np.logaddexp.reduce(each + np.log(WEIGHTS)))


def place_in_the_round(unit):
    """A number in (0, 1] that, over the order of exchangeable values, is at most u so often.

    The share of places at which the sum of the values so far, less their mean, is at most 0. Of
    the values in a circle each beginning is equally likely, and this is the rank of the sum
    where they begin among those of all places; ties count upwards.
    """
    behind = np.cumsum(unit - unit.mean())[:-1]
    return (1 + np.count_nonzero(behind <= 1e-12 * len(unit))) / len(unit)


def _signs(unit):
    """Number of values, of those at the upper end, and of those at the lower end."""
    return len(unit), int((unit > 0.75).sum()), int((unit < 0.25).sum())


def _upper(unit, level, method, n_population):
    """The smallest mean that is refused at the level, from above, to the last bit."""
    if method == "trinomial":
        return (1 + trinomial_upper_bound(*_signs(unit), level)) / 2
    if method == "binomial" and n_population is not None:
        # Populations have whole numbers of hits.
        low, high = 0, n_population + 1
        while high - low > 1:
            middle = (low + high) // 2
            refused = _p_value(unit, middle / n_population, method, n_population) <= level
            low, high = (low, middle) if refused else (middle, high)
        return low / n_population
    if _p_value(unit, 1.0, method, n_population) > level:
        return 1.0
    from scipy.optimize import brentq

    def above(limit):
        return np.log(max(_p_value(unit, limit, method, n_population), _SMALLEST)) - np.log(level)

    # A third of the p-values that halving an interval would take.
    found = float(brentq(above, 0.0, 1.0, xtol=1e-15, rtol=1e-15))
    step = 1e-15
    while found < 1 and _p_value(unit, found, method, n_population) > level:
        found, step = min(found + step, 1.0), 2 * step
    return found


_CONSTRAINTS = {
    "values": ["array-like"],
    "bounds": ["array-like"],
    "method": [StrOptions(set(METHODS))],
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
    r"""p-value of "the mean is at least `limit`": small where the mean is surely below it.

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

    method : str, default="betting"
        One of

        - ``"betting"``: one over the largest capital of a bettor against the mean, by Ville's
          inequality; theorem 3 and eq. (26) of [1]_, without replacement theorem 4;
        - ``"exchangeable"``: one over the last capital of a mixture of bets that never
          change, times a number between 0 and 1 that the order of the values makes: the
          uniformly randomised inequality of Markov [4]_, without a draw. It spends what betting
          leaves of the level where values vary little in a wide range, and refuses more at a
          hundred rows. The rows must be in random order, not only the mean of each be the same;
        - ``"hoeffding_bentkus"``: proposition 7 of [2]_;
        - ``"binomial"``: exact, for values that are 0 or 1 (the ends of `bounds`); without
          replacement the hypergeometric law;
        - ``"trinomial"``: exact, for independent values at the two ends of `bounds` or in
          their middle, such as signed losses of -1, 0 and 1: the largest probability, over the
          share of values that are not 0, of a likelihood ratio as extreme [3]_. Where many
          values cancel it needs far fewer rows than betting. It knows no limit below the
          middle;
        - ``"normal"``: the central limit theorem, with **no** guarantee; for comparison.

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
    .. [2] S. Bates et al., "Distribution-free, risk-controlling prediction sets", Journal of
       the ACM 68, 2021.
    .. [3] R. L. Berger, D. D. Boos, "P values maximized over a confidence set for the nuisance
       parameter", Journal of the American Statistical Association 89, 1994.
    .. [4] A. Ramdas, T. Manole, "Randomized and exchangeable improvements of Markov's,
       Chebyshev's and Chernoff's inequalities", 2023, arXiv 2304.02611.

    Examples
    --------
    >>> from skroute.guarantees import mean_p_value
    >>> no_loss = [0.0] * 100
    >>> mean_p_value(no_loss, 0.05) < 0.01 < mean_p_value(no_loss, 0.02)
    True
    >>> round(mean_p_value(no_loss, 0.05, method="binomial"), 4)
    0.0059
    """
    unit, low, width = check_values(values, bounds)
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
    """A number that the mean of bounded values exceeds with a probability of 1 - confidence.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it raises the bound.

    method : {"betting", "exchangeable", "hoeffding_bentkus", "binomial", "trinomial", \
"normal"}, default="betting"
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
    confidence_sequence : Bounds that hold after every row at once.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.guarantees import mean_upper_bound
    >>> losses = np.random.default_rng(0).choice([-1, 0, 1], p=[0.01, 0.98, 0.01], size=1000)
    >>> bound = mean_upper_bound(losses, bounds=(-1, 1))
    >>> bool(0 < bound < 0.02 < mean_upper_bound(losses, bounds=(-1, 1), confidence=0.99999))
    True
    >>> mean_upper_bound(losses, bounds=(-1, 1), method="hoeffding_bentkus") > 2 * bound
    True
    """
    unit, low, width = check_values(values, bounds)
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
    """A number that the mean of bounded values undercuts with a probability of 1 - confidence.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        As in :func:`mean_p_value`.

    bounds : tuple of (float, float), default=(0.0, 1.0)
        The smallest and the largest value that is possible.

    confidence : float, default=0.95
        Probability, over the rows, that the bound holds. Raising it lowers the bound.

    method : {"betting", "exchangeable", "hoeffding_bentkus", "binomial", "trinomial", \
"normal"}, default="betting"
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
    mean_upper_bound : The same from above, where the methods are explained.

    Examples
    --------
    >>> from skroute.guarantees import mean_lower_bound
    >>> 0.85 < mean_lower_bound([1.0] * 30) < 1
    True
    """
    unit, low, width = check_values(values, bounds)
    mirrored = np.ascontiguousarray(1.0 - unit)
    _check_method(mirrored, method, n_population)
    return low + width * (1.0 - _upper(mirrored, 1 - confidence, method, n_population))


def share_upper_bound(n_hits: int, n_rows: int, *, confidence: float) -> float:
    """`mean_upper_bound` by the exact binomial law (Clopper and Pearson) of hits that are counted.

    Parameters
    ----------
    n_hits, n_rows : int
    confidence : float

    Returns
    -------
    float
    """
    from scipy.special import betaincinv

    if n_hits >= n_rows:
        return 1.0
    return float(betaincinv(n_hits + 1, n_rows - n_hits, confidence))
