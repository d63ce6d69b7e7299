"""Means over rows that may have weights."""

import numpy as np

from skroute.utils._statistics import standard_error

# A mean difference above this many standard errors is beyond noise: chance alone
# exceeds it about once in 40 times.
_ERRORS_OF_LEAD = 2


def mean_of(values, weight=None):
    """Return means over rows, the first axis, where each row counts by its weight.

    Parameters
    ----------
    values : ndarray of shape (n_rows, ...)
    weight : ndarray of shape (n_rows,), default=None
        None: all rows count alike.

    Returns
    -------
    ndarray of shape (...), or a number for values of one dimension
    """
    if weight is None:
        return values.mean(axis=0)
    return np.average(values, axis=0, weights=weight)


def weights_of_rows(weight, rows):
    """Return the weights of some rows, or None if `weight` is None.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,), or None
        Weights of all rows. None: all rows weigh one.
    rows : ndarray of int or bool, or slice
        Positions of the rows, or a mask of them.
    """
    return None if weight is None else weight[rows]


def beyond_noise(lead, weight=None):
    """Return True if the mean of `lead` is above two of its standard errors.

    Parameters
    ----------
    lead : ndarray of shape (n_rows,)
        Differences of two results on each row.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    bool
    """
    # The standard error of a single row is NaN: the comparison is then False.
    return mean_of(lead, weight) > _ERRORS_OF_LEAD * standard_error(lead, weight)
