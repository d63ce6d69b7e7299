"""How far estimates are from the true quality: errors where the truth is known, made up."""

import numpy as np

# Errors on made-up outcomes fall short, since the made-up truth is an estimate: smoother than the
# truth. By how much was chosen on made-up tables of several kinds; to make outcomes up a second
# time, and to take the ratio of the errors (the iterated bootstrap), adds more noise than it tells.
_FALL_SHORT = 1.15
# The truth varies more than its estimate; by no more than this is believed.
_MOST_INFLATION = 2.0
# Rows of a bin at least, and bins at most.
_ROWS_EACH, _MOST_BINS = 100, 10


def made_up_outcomes(estimate, quality, rng):
    """Outcomes whose true quality is the estimate (the wild bootstrap).

    Each row keeps what it is off, with one sign for all choices, drawn at random: noise of its
    own size, alike in what choices have in common.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    rng : numpy Generator

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    return estimate + rng.choice([-1.0, 1.0], (len(estimate), 1)) * (quality - estimate)


def error_curves(estimate, error, spread):
    """Root mean square error by the size of the estimate, for each choice.

    It is more than that of the made-up errors, by what these fall short. Bins are shrunk to the
    choice's mean square as far as they differ by no more than noise.

    Parameters
    ----------
    estimate, error : ndarray of shape (n_rows, n_choices)
        Made-up estimates, and how far they are from the made-up truth.
    spread : ndarray of shape (n_choices,)
        Standard deviation of the made-up truth. The truth itself varies by what estimates
        have missed as well, and half of that in proportion is missed of the rest.

    Returns
    -------
    ndarray of shape (n_choices, 2, n_bins)
        For each choice, mean estimates of bins and the standard errors there.
    """
    squares = (_FALL_SHORT * error) ** 2
    mean = squares.mean(axis=0)
    missed = np.divide(mean, spread**2, out=np.zeros_like(mean), where=spread > 0)
    more = np.minimum(np.sqrt(1 + missed / 2), _MOST_INFLATION)
    n_bins = int(np.clip(len(estimate) // _ROWS_EACH, 1, _MOST_BINS))
    curves = np.empty((estimate.shape[1], 2, n_bins))
    for k, order in enumerate(estimate.argsort(axis=0, kind="stable").T):
        bins = np.array_split(order, n_bins)
        found = np.array([squares[rows, k].mean() for rows in bins])
        noise = np.array([squares[rows, k].var() / len(rows) for rows in bins])
        real = max(((found - mean[k]) ** 2 - noise).mean(), 0.0)
        share = np.divide(
            real, real + noise, out=np.zeros(n_bins), where=real + noise > 0
        )
        curves[k, 0] = [estimate[rows, k].mean() for rows in bins]
        curves[k, 1] = more[k] * np.sqrt(mean[k] + share * (found - mean[k]))
    return curves
