"""Intervals for numbers that rest on means over rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params

# Largest matrix of row counts held at a time, in numbers.
_CHUNK = 2_000_000


class BootstrapInterval(NamedTuple):
    """A number with what the sampling of the rows makes uncertain about it.

    Attributes
    ----------
    estimate : float
        The number on all rows.

    low : float
        Lower end of the interval.

    high : float
        Upper end of the interval.

    standard_error : float
        Standard deviation over the resamples.

    n_samples : int
        Rows that it rests on.
    """

    estimate: float
    low: float
    high: float
    standard_error: float
    n_samples: int


@validate_params(
    {
        "statistic": [callable],
        "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_resamples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def bootstrap_interval(
    statistic: Callable[..., float],
    *rows: ArrayLike,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = None,
) -> BootstrapInterval:
    """Percentile bootstrap interval of a statistic of means over rows.

    Rows are drawn with replacement, all arrays alike; the statistic is computed from the
    column means of what was drawn. Only rows are resampled: the fitted router is what it
    is, and the interval says nothing about fitting it again.

    Memory is bounded: the counts of a part of the resamples are held at a time.

    Parameters
    ----------
    statistic : callable
        Called with one argument per array, the means of its columns: an array of shape
        (n_columns,), or a float for an array with one axis. Returns a float.

    *rows : array-like of shape (n_samples,) or (n_samples, n_columns)
        At least one array of values per row, for example ``row_cost`` and ``row_quality``
        of :func:`accuracy_cost_curve`.

    confidence_level : float, default=0.95
        Nominal coverage of the interval. Higher makes it wider.

    n_resamples : int, default=1000
        Number of resamples. More of them make the ends steadier and take longer.

    random_state : int, RandomState instance or None, default=None
        Determines the resamples. Pass an int for the same output at every call.

    Returns
    -------
    BootstrapInterval
        Named tuple ``(estimate, low, high, standard_error, n_samples)``. Resamples in
        which the statistic is NaN are left out. If that is every one, or if the estimate
        itself is NaN, there is no interval: its ends and the standard error are NaN.

    Raises
    ------
    ValueError
        If there is no array, lengths differ, or a value is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import bootstrap_interval
    >>> right = np.random.RandomState(0).uniform(size=(400, 2)) < [0.8, 0.9]
    >>> result = bootstrap_interval(lambda mean: mean[1] - mean[0], right, random_state=0)
    >>> round(result.estimate, 3), round(result.low, 3), round(result.high, 3)
    (0.062, 0.015, 0.112)
    """
    if not rows:
        raise ValueError("bootstrap_interval needs at least one array of rows, got none.")
    arrays = [
        check_array(array, ensure_2d=False, dtype=np.float64, input_name="rows") for array in rows
    ]
    check_consistent_length(*arrays)
    estimate = statistic(*(array.mean(axis=0) for array in arrays))
    values = resampled_values(statistic, arrays, n_resamples, check_random_state(random_state))
    return interval(float(estimate), values, confidence_level, len(arrays[0]))


def resampled_values(statistic, arrays, n_resamples, random_state):
    """The statistic on each resample, shape (n_resamples,) or (n_resamples, n_values)."""
    n = len(arrays[0])
    values = []
    chunk = max(1, _CHUNK // n)
    for start in range(0, n_resamples, chunk):
        counts = np.empty((min(chunk, n_resamples - start), n))
        for row in counts:
            row[:] = np.bincount(random_state.randint(n, size=n), minlength=n)
        means = [counts @ array / n for array in arrays]
        values += [statistic(*row) for row in zip(*means)]
    return np.array(values, dtype=np.float64)


def interval(estimate, values, confidence_level, n_samples):
    """Percentile interval from the values of the resamples; those that are NaN do not count."""
    values = values[~np.isnan(values)]
    if np.isnan(estimate) or not len(values):
        return BootstrapInterval(estimate, np.nan, np.nan, np.nan, n_samples)
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return BootstrapInterval(estimate, float(low), float(high), float(np.std(values)), n_samples)
