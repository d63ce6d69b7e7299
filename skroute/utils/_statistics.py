"""The standard error of a mean, with weights and with folds."""

import numpy as np


def standard_error(values, weight=None, fold=None):
    """Return the standard error of a mean over rows.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. Whole numbers count rows: a row of weight 2 is two rows.
        With any other weights each row is one observation. None weights all rows alike.
    fold : ndarray of shape (n_rows,), default=None
        Fold of each row, if decisions were learned fold by fold. The result is then the
        larger of two errors: that of independent rows, and that of the means of folds.

    Returns
    -------
    float
        NaN for fewer than two rows.
    """
    if len(values) < 2:
        return np.nan
    if weight is not None and np.array_equal(weight, np.rint(weight)):
        # Positions of the rows, each as many times as it counts.
        rows = np.repeat(np.arange(len(values)), weight.astype(np.int64))
        values = values[rows]
        fold = None if fold is None else fold[rows]
    elif weight is not None:
        # The mean of the new values is the weighted mean. A new value is this mean plus
        # the distance of the row from it, times the relative weight of the row. To
        # first order, the new values have the error of the weighted mean.
        mean = np.average(values, weights=weight)
        values = mean + (values - mean) * weight / weight.mean()
    if len(values) < 2:
        return np.nan
    # The error if rows are independent.
    error = values.std(ddof=1) / np.sqrt(len(values))
    folds = () if fold is None else np.unique(fold)
    # A single fold has no standard error.
    if len(folds) > 1:
        fold_means = np.array([values[fold == number].mean() for number in folds])
        error_of_folds = fold_means.std(ddof=1) / np.sqrt(len(folds))
        error = max(error, error_of_folds)
    return float(error)
