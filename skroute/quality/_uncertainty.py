"""How far estimates are from the true quality: errors where the truth is known, made up."""

import numpy as np

# Rows of a bin at least, and bins at most.
_ROWS_EACH, _MOST_BINS = 100, 10
# Errors on made-up outcomes fall short, since the made-up truth is an estimate: smoother than the
# truth. By how much was chosen on made-up tables of several kinds; to make outcomes up a second
# time, and to take the ratio of the errors (the iterated bootstrap), adds more noise than it tells.
_FALL_SHORT = 1.15
# The truth varies more than its estimate; by no more than this is believed.
_MOST_INFLATION = 2.0


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
    list of ndarray of shape (2, n_bins)
        For each choice, mean estimates of bins and the standard errors there.
    """
    n_bins = int(np.clip(len(estimate) // _ROWS_EACH, 1, _MOST_BINS))
    found = []
    for column, squares, varied in zip(estimate.T, (_FALL_SHORT * error.T) ** 2, spread):
        bins = np.array_split(np.argsort(column, kind="stable"), n_bins)
        # Bins of equal estimates are one: nothing is interpolated between them.
        at, first = np.unique([column[rows].mean() for rows in bins], return_index=True)
        mean = squares.mean()
        values = np.array([squares[bins[i]].mean() for i in first])
        noise = np.array([squares[bins[i]].var() / len(bins[i]) for i in first])
        real = max(((values - mean) ** 2 - noise).mean(), 0.0)
        share = np.divide(real, real + noise, where=real + noise > 0, out=np.zeros_like(noise))
        more = min(np.sqrt(1 + mean / varied**2 / 2), _MOST_INFLATION) if varied > 0 else 1.0
        found.append(np.stack([at, more * np.sqrt(mean + share * (values - mean))]))
    return found


def in_one(curves):
    """Curves of different length as one array, their last points repeated.

    Parameters
    ----------
    curves : list of ndarray of shape (2, n_bins)

    Returns
    -------
    ndarray of shape (2, n_choices, largest n_bins)
    """
    most = max(curve.shape[1] for curve in curves)
    padded = [np.pad(c, ((0, 0), (0, most - c.shape[1])), mode="edge") for c in curves]
    return np.ascontiguousarray(np.stack(padded, axis=1))


def standard_errors(estimate, curves):
    """Standard errors of estimates.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    curves : ndarray of shape (2, n_choices, n_bins)
        From :func:`in_one`.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    from skroute.quality._predict_kernels import interpolate

    out = np.empty(estimate.shape)
    interpolate(np.ascontiguousarray(estimate, dtype=np.float64), *curves, out)
    return out
