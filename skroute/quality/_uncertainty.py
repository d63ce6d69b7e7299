"""Estimate the errors of predictions by simulating outcomes."""

from typing import NamedTuple

import numpy as np

# Errors on simulated outcomes are too small, because the simulated truth is an
# estimate, and smoother than the real truth. These errors are multiplied by this
# factor. The factor was chosen on simulated tables of several kinds. An iterated
# bootstrap would estimate the factor with much noise.
_ERROR_FACTOR = 1.15
# Upper bound of a second factor of the errors. The factor corrects for a truth that
# varies more than its estimate. Without a bound, it would be huge if the estimates
# hardly vary.
_MOST_INFLATION = 2.0
# Smallest number of rows of a bin. The mean of 100 squared errors has a relative error
# of about 15 %.
_ROWS_OF_BIN = 100
# Largest number of bins. Errors change slowly with the estimate.
_MOST_BINS = 10


class ErrorCurves(NamedTuple):
    """Standard errors of the estimates of each choice, by the size of the estimate.

    Attributes
    ----------
    estimate : ndarray of shape (n_choices, n_bins)
        Mean estimate of each bin, rising.
    error : ndarray of shape (n_choices, n_bins)
        Standard error of each bin.
    """

    estimate: np.ndarray
    error: np.ndarray

    def standard_errors(self, estimate):
        """Return the standard error of each estimate; both are (n_rows, n_choices)."""
        errors = np.empty(estimate.shape)
        for choice in range(estimate.shape[1]):
            errors[:, choice] = np.interp(
                estimate[:, choice], self.estimate[choice], self.error[choice]
            )
        return errors

    def scaled(self, factors):
        """Return the curves for estimates that are multiplied by `factors`.

        `factors` (n_choices,) has a factor for each choice.
        """
        return ErrorCurves(
            estimate=self.estimate * factors[:, None],
            error=self.error * factors[:, None],
        )


def simulate_outcomes(estimate, quality, rng):
    """Return simulated outcomes, whose true quality is the estimate (wild bootstrap).

    The residuals of a row are multiplied by a random sign. All choices of the row have
    the same sign. So the noise of the row keeps its size, and its correlation between
    choices.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes of the same rows.
    rng : numpy Generator

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    signs = rng.choice([-1.0, 1.0], (len(estimate), 1))
    return estimate + signs * (quality - estimate)


def error_curves(estimate, error, spread_of_truth):
    """Return root mean squared errors of each choice, in bins by rising estimate.

    The simulated truth is too smooth, and its errors are too small. Two factors correct
    for this. The rows of a choice are divided into bins by their estimate. The mean
    squared error of a bin is shrunk by its noise towards the mean of all rows.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Estimates that were fitted on simulated outcomes.
    error : ndarray of shape (n_rows, n_choices)
        The estimates less the simulated truth.
    spread_of_truth : ndarray of shape (n_choices,)
        Standard deviation of the simulated truth. 0 if it does not vary.

    Returns
    -------
    ErrorCurves
    """
    n_rows, n_choices = estimate.shape
    squares = (_ERROR_FACTOR * error) ** 2
    mean_squares = squares.mean(axis=0)
    # The real truth varies more than the simulated one. Its variance is larger by about
    # the mean squared error. This error divided by the simulated variance is the share
    # that the simulation misses. It is 0 if the simulated truth does not vary.
    missed = np.divide(
        mean_squares,
        spread_of_truth**2,
        out=np.zeros_like(mean_squares),
        where=spread_of_truth > 0,
    )
    # About half of the missed variance is an error of the estimates. (n_choices,)
    inflation = np.minimum(np.sqrt(1 + missed / 2), _MOST_INFLATION)
    n_bins = int(np.clip(n_rows // _ROWS_OF_BIN, 1, _MOST_BINS))
    rows_by_estimate = estimate.argsort(axis=0, kind="stable")
    bin_estimates = np.empty((n_choices, n_bins))
    bin_errors = np.empty((n_choices, n_bins))
    for choice in range(n_choices):
        bins = np.array_split(rows_by_estimate[:, choice], n_bins)
        bin_estimates[choice] = [estimate[rows, choice].mean() for rows in bins]
        bin_squares = _shrunk_means(squares[:, choice], mean_squares[choice], bins)
        bin_errors[choice] = inflation[choice] * np.sqrt(bin_squares)
    return ErrorCurves(bin_estimates, bin_errors)


def _shrunk_means(values, mean, bins):
    """Return the mean of each bin, shrunk towards the mean of all by the bin's noise.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
    mean : float
        Mean of `values`.
    bins : list of ndarray of int
        Positions of the rows of each bin.

    Returns
    -------
    ndarray of shape (n_bins,)
    """
    bin_means = np.array([values[rows].mean() for rows in bins])
    # Squared standard error of the mean of each bin.
    variance = np.array([values[rows].var() / len(rows) for rows in bins])
    # Variance between the means of bins, less the variance that is noise.
    signal = max(((bin_means - mean) ** 2 - variance).mean(), 0.0)
    # Share of its difference from `mean` that a bin keeps. 0 if all values are equal.
    share = np.divide(
        signal,
        signal + variance,
        out=np.zeros(len(bins)),
        where=signal + variance > 0,
    )
    return mean + share * (bin_means - mean)
