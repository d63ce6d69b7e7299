"""The one standard error of a mean, with weights and with folds."""

import numpy as np


def standard_error(values, weight=None, part=None):
    """Return the standard error of a mean over rows.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. Whole numbers count rows: a row of weight 2 is two rows.
        With any other weights each row is one observation. None weights all rows alike.
    part : ndarray of shape (n_rows,), default=None
        Fold of each row, if decisions were learned fold by fold. The result is then the
        larger of the standard error of independent rows and of that of the means of the
        folds.

    Returns
    -------
    float
        NaN for fewer than two rows.
    """
    if len(values) < 2:
        return np.nan
    if weight is not None and np.array_equal(weight, np.rint(weight)):
        rows = np.repeat(np.arange(len(values)), weight.astype(np.int64))
        values = values[rows]
        part = None if part is None else part[rows]
    elif weight is not None:
        # What each row adds to the weighted mean, in the first order.
        mean = np.average(values, weights=weight)
        values = mean + (values - mean) * weight / weight.mean()
    if len(values) < 2:
        return np.nan
    error = values.std(ddof=1) / np.sqrt(len(values))
    numbers = () if part is None else np.unique(part)
    if len(numbers) > 1:
        means = np.array([values[part == number].mean() for number in numbers])
        error = max(error, means.std(ddof=1) / np.sqrt(len(numbers)))
    return float(error)
