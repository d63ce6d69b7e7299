"""Curves that bring estimates to the outcomes of other rows, and no further than noise allows."""

import numpy as np

# Highest power of a curve, points that it is kept at, and how far its ends are from the extremes.
_DEGREE = 4
_POINTS = 33
_ENDS = 0.005
# What is left of a power after those below it: less is rounding.
_APART = 1e-3
# What a polynomial cannot bend is mended in bins of so many rows at least, at most so many.
_ROWS_EACH, _MOST_BINS = 250, 20
# Of the size of outcomes: a width that is less is rounding. Choices are alike in size up to this.
_ROUNDING, _ALIKE = 1e-9, 16
# A range of more standard deviations than so many is that of a tail: 1,000 normal rows have 6.5,
# right and wrong have 2 and, of one wrong in a hundred, 10.
_TAIL = 8


def corrections(estimate, quality, own=True):
    """How far estimates are off, by their size: a curve that choices share, then one of each.

    Each curve is a polynomial. Of each power what is noise is shrunk away, judged over all
    choices together: with coefficients ``c`` and variances ``v`` by ``t / (t + v)``,
    ``t = max(mean(c ** 2 - v), 0)`` (empirical Bayes). Where rows are many, what is left over is
    mended in bins of each choice, shrunk likewise. The order of estimates of a choice stays.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    own : bool, default=True
        Whether choices have curves of their own.

    Returns
    -------
    list of ndarray of shape (2, n_points)
        For each choice, estimates and what to add there; in between it is interpolated.
    """
    return corrections_of_several(estimate[None], quality)[0 if own else 1][0]


def corrections_of_several(estimates, quality):
    """:func:`corrections` of several estimates of the same outcomes.

    Parameters
    ----------
    estimates : ndarray of shape (n_estimates, n_rows, n_choices)
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    own, shared : list of list of ndarray of shape (2, n_points)
        For each estimate and choice: with curves of their own, and with the shared one.
    """
    n_estimates, n_rows, n_choices = estimates.shape
    flat = estimates.reshape(n_estimates, -1)
    shared = _curves(flat.T, np.broadcast_to(quality.reshape(-1, 1), flat.T.shape), 1)
    # The same points for all: equal estimates of two choices stay equal where curves are shared.
    at = np.linspace(flat.min(axis=1), flat.max(axis=1), 2 * _POINTS, axis=1)
    ends = np.stack([x + np.interp(x, *curve) for x, curve in zip(at, shared)])
    moved = np.stack([e + np.interp(e, *curve) for e, curve in zip(estimates, shared)])
    columns = moved.transpose(1, 0, 2).reshape(n_rows, -1)
    outcomes = np.tile(quality, n_estimates)
    curves = _curves(columns, outcomes, n_choices)
    own = np.repeat(ends, n_choices, axis=0)
    own = np.maximum.accumulate([y + np.interp(y, *curve) for y, curve in zip(own, curves)], axis=1)
    at_own = np.repeat(at, n_choices, axis=0)
    given = estimates.transpose(1, 0, 2).reshape(n_rows, -1)
    places, more = _left_over(given, at_own, own, outcomes, n_choices)
    x = np.sort(np.concatenate([at_own, places], axis=1), axis=1)
    y = [
        np.interp(x, a, b) + np.interp(x, p, m)
        for x, a, b, p, m in zip(x, at_own, own, places, more)
    ]
    own = iter(np.stack([x, np.maximum.accumulate(y, axis=1) - x], axis=1))
    of_all = np.stack([at, np.maximum.accumulate(ends, axis=1) - at], axis=1)
    return (
        [[next(own) for _ in range(n_choices)] for _ in range(n_estimates)],
        [[curve] * n_choices for curve in of_all],
    )


def _left_over(estimate, at, ends, quality, n_together):
    """What curves leave over in bins of equal counts, as places of the bins and what to add there.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_columns)
    at, ends : ndarray of shape (n_columns, n_points)
        Estimates, and what the curve of a column makes of them.
    quality : ndarray of shape (n_rows, n_columns)
    n_together : int
        Columns that follow each other; what is noise is judged over them, bin by bin, and over
        the bins of a column, and the larger share is believed.

    Returns
    -------
    places, add : ndarray of shape (n_columns, n_bins)
    """
    n_bins = min(len(estimate) // _ROWS_EACH, _MOST_BINS)
    if n_bins < 2:
        return np.zeros((2, len(at), 1))
    first = np.arange(n_bins) * len(estimate) // n_bins
    counts = np.diff(first, append=len(estimate))
    places, add, noise = np.empty((3, len(at), n_bins))
    for c, (values, outcome) in enumerate(zip(estimate.T, quality.T)):
        order = np.argsort(values)
        values, left = values[order], outcome[order] - np.interp(values[order], at[c], ends[c])
        means = np.add.reduceat(left, first) / counts
        noise[c] = (np.add.reduceat(left**2, first) / counts - means**2) / counts
        # Rows of equal estimates, but for rounding, are parted by their order, which says nothing.
        apart = 1e-9 * max(abs(values[0]), abs(values[-1]))
        starts = np.flatnonzero(np.append(True, np.diff(values) > apart))
        alike = np.diff(starts, append=len(values))
        values = np.repeat(values[starts], alike)
        left = np.repeat(np.add.reduceat(left, starts) / alike, alike)
        places[c] = np.add.reduceat(values, first) / counts
        add[c] = np.add.reduceat(left, first) / counts
    real = add**2 - noise
    of_bins = np.repeat(real.reshape(-1, n_together, n_bins).mean(axis=1), n_together, axis=0)
    real = np.maximum(np.maximum(of_bins, real.mean(axis=1, keepdims=True)), 0.0)
    sums = real + noise
    return places, add * np.divide(real, sums, where=sums > 0, out=np.zeros_like(noise))


def _shrinkage(coefs, noise, n_together):
    real = (coefs**2 - noise).reshape(-1, n_together, coefs.shape[1]).mean(axis=1)
    real = np.repeat(np.maximum(real, 0.0), n_together, axis=0)
    sums = real + noise
    return np.divide(real, sums, where=sums > 0, out=np.zeros_like(noise))


def _curves(estimate, quality, n_together):
    """One curve for each column, as points and what to add there.

    What is noise is judged over `n_together` columns that follow each other.
    """
    low, high = _ends(estimate)
    values, ends = estimate.T, (low[:, None], high[:, None])
    raw = _legendre(values, *ends)
    gram = raw.transpose(0, 2, 1) @ raw / len(estimate)
    used = np.arange(_DEGREE + 1) < _powers(gram)[:, None]
    gram = np.where(used[:, :, None] & used[:, None, :], gram, np.eye(_DEGREE + 1))
    # Polynomials that are orthonormal on the values of a column.
    turn = np.linalg.inv(np.linalg.cholesky(gram)).transpose(0, 2, 1) * used[:, None, :]
    # Means of the products with the errors, and of their squares.
    errors = (quality.T - values)[:, :, None]
    weighted = raw * errors
    coefs = (turn.transpose(0, 2, 1) @ weighted.mean(axis=1)[:, :, None])[:, :, 0]
    products = weighted.transpose(0, 2, 1) @ weighted / len(estimate)
    squares = np.einsum("cij,cik,ckj->cj", turn, products, turn)
    noise = np.maximum(squares - coefs**2, 0.0) / len(estimate)
    coefs = coefs * _shrinkage(coefs, noise, n_together)
    at = np.linspace(low, high, _POINTS, axis=1)
    add = (_legendre(at, *ends) @ (turn @ coefs[:, :, None]))[:, :, 0]
    return np.stack([at, np.maximum.accumulate(at + add, axis=1) - at], axis=1)


def _ends(estimate):
    """Quantiles near the extremes of each column, as `numpy.quantile` has them."""
    place = np.array([_ENDS, 1 - _ENDS]) * (len(estimate) - 1)
    below = place.astype(np.intp)
    above = np.minimum(below + 1, len(estimate) - 1)
    ordered = np.partition(estimate, np.unique([below, above]), axis=0)
    return ordered[below] + (place - below)[:, None] * (ordered[above] - ordered[below])


def _legendre(values, low, high):
    """Legendre polynomials up to the highest power, of the places of values between two ends."""
    width = high - low
    flat = ~(width > 1e-9 * np.maximum(np.maximum(abs(low), abs(high)), 1e-300))
    inside = np.where(flat, 0.0, (values - low) / np.where(flat, 1.0, width))
    x = 2 * np.clip(inside, 0, 1) - 1
    found = np.empty((*values.shape, _DEGREE + 1))
    found[..., 0], found[..., 1] = 1.0, x
    for k in range(1, _DEGREE):
        found[..., k + 1] = ((2 * k + 1) * x * found[..., k] - k * found[..., k - 1]) / (k + 1)
    return found


def _powers(gram):
    """How many powers tell the values of each column apart: few values have few."""
    n_powers = np.ones(len(gram), dtype=np.intp)
    for size in range(2, _DEGREE + 2):
        squares = np.linalg.eigvalsh(gram[:, :size, :size])
        apart = squares[:, 0] >= _APART**2 * squares[:, -1]
        n_powers[apart & (n_powers == size - 1)] = size
    return n_powers


def corrected(estimate, knots):
    """Estimates with the corrections of each choice.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    knots : list of ndarray of shape (2, n_points)

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    return np.column_stack([e + np.interp(e, *knot) for e, knot in zip(estimate.T, knots)])


def finished(estimate, low, high):
    """Estimates in the range of what was seen, rounded to a millionth of it.

    Otherwise rounding would buy the more expensive of choices that are equally good.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    low, high : ndarray of shape (n_choices,)

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    unit = rounding_unit(low, high)
    if unit is not None:
        estimate = np.round(estimate / unit) * unit
    return np.clip(estimate, low, high)


def rounding_unit(low, high):
    """About a millionth of the widest range, a power of two; None where no range has a width.

    Ranges that are far wider than the narrowest do not count: the others would be rounded off.
    """
    widths = high - low
    widest = min(float(widths.max()), _ALIKE * narrowest(low, high))
    return float(2.0 ** (np.ceil(np.log2(widest)) - 20)) if widest > 0 else None


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
