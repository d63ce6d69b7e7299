"""Curves that bring estimates to the outcomes of other rows, and no further than noise allows."""

import numpy as np
from numpy.polynomial.legendre import legvander

# Highest power of a curve, points that it is kept at, and how far its ends are from the extremes.
_DEGREE = 4
_POINTS = 33
_ENDS = 0.005
# What is left of a power after those below it: less is rounding.
_APART = 1e-3
# Of the size of outcomes: a width that is less is rounding. Choices are alike in size up to this.
_ROUNDING, _ALIKE = 1e-9, 16
# A range of more standard deviations than so many is that of a tail: 1,000 normal rows have 6.5,
# right and wrong have 2 and, of one wrong in a hundred, 10.
_TAIL = 8


def corrections(estimate, quality, weight=None):
    """What to add to estimates, by their size; the order of estimates of a choice stays.

    For each choice a polynomial of the estimate. Of each of its powers what is noise is shrunk
    away, judged over all choices together: with coefficients ``c`` of orthonormal polynomials and
    their variances ``v`` by ``t / (t + v)``, ``t = max(mean(c ** 2 - v), 0)`` (empirical Bayes).

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows, in units of one row. None: each row weighs one.

    Returns
    -------
    ndarray of shape (n_choices, 2 + n_points)
        For each choice the lowest estimate of its curve, the width, infinite where there is none,
        and what to add at even steps; in between it is interpolated.
    """
    low, high = np.quantile(estimate, [_ENDS, 1 - _ENDS], axis=0)
    width, n_rows = real_widths(low, high), len(estimate)
    degree, at = min(_DEGREE, n_rows - 1), np.linspace(low, high, _POINTS)

    def powers(values):
        """Legendre polynomials of the places of values between the ends."""
        return legvander(2 * np.clip((values - low) / width, 0, 1) - 1, degree)

    of_rows, residual = powers(estimate).swapaxes(0, 1), quality - estimate
    if weight is not None:
        # Weighted least squares are those of rows times the root of their weights.
        root = np.sqrt(weight)[:, None]
        of_rows, residual, n_rows = root * of_rows, root * residual, weight.sum()
    basis, triangle = np.linalg.qr(of_rows)
    size = np.abs(np.diagonal(triangle, axis1=1, axis2=2)) / np.sqrt(n_rows)
    # Few different values have few powers: what is left of the others is rounding.
    used = np.logical_and.accumulate(size > _APART, axis=1)[:, None]
    products = np.where(used, basis, 0) * residual.T[..., None]
    coef = products.sum(axis=1)
    noise = np.maximum((products**2).sum(axis=1) - coef**2 / n_rows, 0)
    real = np.maximum((coef**2 - noise).mean(axis=0), 0.0)
    shrink = np.divide(
        real, real + noise, out=np.zeros_like(noise), where=real + noise > 0
    )
    triangle = np.where(used, triangle, np.eye(degree + 1))
    of_powers = np.linalg.solve(triangle, (shrink * coef)[..., None])[..., 0]
    add = (powers(at) * of_powers).sum(axis=2)
    add = np.maximum.accumulate(at + add) - at
    return np.column_stack([low, width, add.T])


def corrected(estimate, knots):
    """Estimates with the corrections of each choice, interpolated between even points."""
    low, width, add = knots[:, 0], knots[:, 1], knots[:, 2:]
    place = (_POINTS - 1) * np.minimum(np.maximum((estimate - low) / width, 0), 1)
    left, choice = np.minimum(place.astype(np.intp), _POINTS - 2), np.arange(len(knots))
    before, after = add[choice, left], add[choice, left + 1]
    return estimate + before + (place - left) * (after - before)


def finished(estimate, low, high, unit):
    """Estimates in the range of what was seen, rounded; the arguments are those of `range_of`.

    Otherwise rounding would buy the more expensive of choices that are equally good.
    """
    if unit is not None:
        estimate = np.rint(estimate / unit) * unit
    return np.minimum(np.maximum(estimate, low), high)


def range_of(quality):
    """The least and the largest outcome of each choice, and the unit of their estimates.

    The unit is about a millionth of the widest range, a power of two; None where no range has a
    width. Ranges far wider than the narrowest do not count: the others would be rounded off.
    """
    low, high = quality.min(axis=0), quality.max(axis=0)
    widest = min(
        float((high - low).max()), _ALIKE * float(real_widths(low, high).min())
    )
    return (
        low,
        high,
        float(2.0 ** (np.ceil(np.log2(widest)) - 20)) if widest > 0 else None,
    )


def real_widths(low, high):
    """Widths of ranges; infinite where they are rounding."""
    width = high - low
    return np.where(
        width > _ROUNDING * np.maximum(np.abs(low), np.abs(high)), width, np.inf
    )


def sizes_of(quality):
    """By what outcomes of each choice are divided, so that one does not drown the others.

    Squared errors are added up over choices. Where losses have no bound, one choice with a heavy
    tail would decide alone how all of them are estimated. One that varies far more and has no
    tail is left as it is: what it varies by is what decisions turn on.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,)
        Powers of two. Choices with a tail that range over far more than the narrowest one get
        about its standard deviation; the others are 1.
    """
    low, high, spread = quality.min(axis=0), quality.max(axis=0), quality.std(axis=0)
    width, least = high - low, real_widths(low, high).min()
    sizes, wide = np.ones(len(low)), (width > _ALIKE * least) & (width > _TAIL * spread)
    if wide.any():
        ratio = spread[wide] / spread[width == least].max()
        sizes[wide] = 2.0 ** np.maximum(np.round(np.log2(ratio)), 0)
    return sizes
