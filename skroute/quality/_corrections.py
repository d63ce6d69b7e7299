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


def corrections(estimate, quality):
    """What to add to estimates, by their size; the order of estimates of a choice stays.

    For each choice a polynomial of the estimate. Of each of its powers what is noise is shrunk
    away, judged over all choices together: with coefficients ``c`` of orthonormal polynomials and
    their variances ``v`` by ``t / (t + v)``, ``t = max(mean(c ** 2 - v), 0)`` (empirical Bayes).

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.

    Returns
    -------
    ndarray of shape (n_choices, 2 + n_points)
        For each choice the lowest estimate of its curve, the width, infinite where there is none,
        and what to add at even steps; in between it is interpolated.
    """
    ends = np.quantile(estimate, [_ENDS, 1 - _ENDS], axis=0).T
    at, n_choices = np.linspace(*ends.T, _POINTS, axis=1), len(ends)
    curves = np.zeros((n_choices, _POINTS, _DEGREE + 1))
    coef, noise = np.zeros((2, n_choices, _DEGREE + 1))
    for k, (values, error) in enumerate(zip(estimate.T, (quality - estimate).T)):
        basis, triangle = np.linalg.qr(_powers(values, ends[k]))
        size = np.abs(np.diag(triangle)) / np.sqrt(len(values))
        # Few different values have few powers: what is left of the others is rounding.
        used = int(np.argmin(np.append(size > _APART, False)))
        basis, triangle = basis[:, :used], triangle[:used, :used]
        curves[k, :, :used] = np.linalg.solve(triangle.T, _powers(at[k], ends[k])[:, :used].T).T
        products = basis * error[:, None]
        coef[k, :used] = products.sum(axis=0)
        noise[k, :used] = np.maximum(
            (products**2).sum(axis=0) - coef[k, :used] ** 2 / len(values), 0
        )
    real = np.maximum((coef**2 - noise).mean(axis=0), 0.0)
    shrink = np.divide(real, real + noise, out=np.zeros_like(noise), where=real + noise > 0)
    add = np.einsum("kpj,kj->kp", curves, shrink * coef)
    add = np.maximum.accumulate(at + add, axis=1) - at
    low, high = ends.T
    return np.column_stack([low, np.where(high > low, high - low, np.inf), add])


def _powers(values, ends):
    """Legendre polynomials of the places of values between two ends."""
    low, high = ends
    width = high - low if high - low > _ROUNDING * max(abs(low), abs(high)) else np.inf
    return legvander(2 * np.clip((values - low) / width, 0, 1) - 1, _DEGREE)


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
    widest = min(float((high - low).max()), _ALIKE * narrowest(low, high))
    return low, high, float(2.0 ** (np.ceil(np.log2(widest)) - 20)) if widest > 0 else None


def narrowest(low, high):
    """The least range of a choice that is more than rounding; infinite where there is none."""
    widths = high - low
    real = widths > _ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return float(widths[real].min()) if real.any() else np.inf


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
    width, least = high - low, narrowest(low, high)
    sizes, wide = np.ones(len(low)), (width > _ALIKE * least) & (width > _TAIL * spread)
    if wide.any():
        ratio = spread[wide] / spread[width == least].max()
        sizes[wide] = 2.0 ** np.maximum(np.round(np.log2(ratio)), 0)
    return sizes
