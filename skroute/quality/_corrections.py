"""Calibrate quality estimates: curves of corrections, limits and rounding units."""

from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import legvander

# Degree of the polynomial of a calibration curve. It allows a curve that bends twice.
# Higher degrees would mostly fit noise.
_DEGREE = 4
# Number of points at which a curve is stored. Between them it is linear. It hardly
# differs from the polynomial of degree 4.
_POINTS = 33
# Share of the estimates that are below the first point of a curve, and share above its
# last point. A polynomial is not reliable at extreme estimates.
_ENDS = 0.005
# The rest of a polynomial is what the polynomials of lower degree cannot express. A
# polynomial has a root mean square of about 1. If the root mean square of a rest is
# below this bound, the rest is rounding.
_LEAST_REST = 1e-3
# The range of a choice goes from its smallest outcome to its largest one. A range below
# this share of the largest absolute outcome is rounding. The share is far above the
# rounding of double precision, about 1e-16.
_ROUNDING = 1e-9
# Outcomes of some choices have a wider range than others. The widest range counts as at
# most this number of times the narrowest one. So the unit of estimates (see
# `_BITS_OF_RANGE`) is fine enough for the narrowest range.
_MOST_RATIO = 16
# Outcomes have a heavy tail if their range is above this number of standard deviations.
# The range of 1,000 normal values is about 6.5 standard deviations. If half of the
# outcomes are 0 and half are 1, their range is 2 standard deviations.
_TAIL = 8
# Estimates are rounded to multiples of a unit. The unit is the widest range of the
# outcomes, rounded up to a power of two, divided by 2**20: about a millionth of it. The
# widest range counts as at most 2**4 times the narrowest one, and less than 2**5 times
# after rounding up. So the narrowest range has at least 2**15 units.
_BITS_OF_RANGE = 20


class CorrectionCurves(NamedTuple):
    """Amounts to add to the estimates of each choice, as a curve over the estimate.

    Attributes
    ----------
    low : ndarray of shape (n_choices,)
        Estimate at the first point of each curve. Lower estimates have its correction.
    width : ndarray of shape (n_choices,)
        Distance from the first point to the last one; infinite if all estimates are
        equal.
    added : ndarray of shape (n_choices, n_points)
        Amount to add at evenly spaced points.
    """

    low: np.ndarray
    width: np.ndarray
    added: np.ndarray

    def apply(self, estimate):
        """Return calibrated estimates, of shape (n_rows, n_choices) as `estimate`."""
        # Position on the curve, from 0 (first point) to 1 (last point). It is 0 if the
        # width is infinite. `np.clip` would take twice the time for a single row.
        share = np.minimum(np.maximum((estimate - self.low) / self.width, 0), 1)
        # Position in numbers of points: 2.25 is a quarter of the way after point 2.
        place = (_POINTS - 1) * share
        # Number of the point before this place. If the place is the last point, the
        # last but one is taken.
        point = np.minimum(place.astype(np.intp), _POINTS - 2)
        choice = np.arange(len(self.low))
        added_before = self.added[choice, point]
        added_after = self.added[choice, point + 1]
        way_to_next = place - point  # from 0 to 1
        return estimate + added_before + way_to_next * (added_after - added_before)

    def scaled(self, factors):
        """Return the curves for estimates that are multiplied by `factors`.

        `factors` (n_choices,) has a factor for each choice.
        """
        return CorrectionCurves(
            low=self.low * factors,
            width=self.width * factors,
            added=self.added * factors[:, None],
        )


def fit_corrections(estimate, quality, weight=None):
    """Fit calibration curves that keep the order of the estimates of each choice.

    The correction of each choice is a polynomial of the estimate. Its coefficients are
    shrunk by their noise, see :func:`_fit_shrunken`.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes of the same rows.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows, in units of one row. None: each row weighs one.

    Returns
    -------
    CorrectionCurves
    """
    # Estimates at the first and at the last point of each curve.
    low, high = np.quantile(estimate, [_ENDS, 1 - _ENDS], axis=0)
    width = real_widths(low, high)
    n_rows = len(estimate)
    degree = min(_DEGREE, n_rows - 1)
    # Columns of a regression for each choice: the polynomials of its estimates.
    # (n_choices, n_rows, degree + 1)
    columns = _polynomials(estimate, low, width, degree).swapaxes(0, 1)
    residual = quality - estimate
    total_weight = n_rows
    if weight is not None:
        # Least squares with weights are least squares without weights, after each row
        # is multiplied by the root of its weight.
        root_weight = np.sqrt(weight)[:, None]
        columns = root_weight * columns
        residual = root_weight * residual
        total_weight = weight.sum()
    coef = _fit_shrunken(columns, residual, total_weight)
    points = np.linspace(low, high, _POINTS)  # (n_points, n_choices)
    added = (_polynomials(points, low, width, degree) * coef).sum(axis=2)
    # The corrected estimate must not fall where the estimate rises.
    added = np.maximum.accumulate(points + added) - points
    return CorrectionCurves(low, width, added=np.ascontiguousarray(added.T))


def _polynomials(values, low, width, degree):
    """Return Legendre polynomials of degrees 0 to `degree`, of values of each choice.

    The range of a curve is mapped to [-1, 1]. Values outside of the range are clipped.

    Parameters
    ----------
    values : ndarray of shape (n_values, n_choices)
    low, width : ndarray of shape (n_choices,)
        As in :class:`CorrectionCurves`.
    degree : int

    Returns
    -------
    ndarray of shape (n_values, n_choices, degree + 1)
    """
    share = np.clip((values - low) / width, 0, 1)
    return legvander(2 * share - 1, degree)


def _fit_shrunken(columns, residual, total_weight):
    """Fit residuals of each choice to columns, with coefficients shrunk by their noise.

    The columns are made orthonormal. Each choice has one coefficient ``c`` for each
    column, with the variance ``v``. The coefficients of one column are multiplied by
    ``t / (t + v)``, where ``t = max(mean(c**2 - v), 0)`` is a mean over the choices
    (empirical Bayes).

    Parameters
    ----------
    columns : ndarray of shape (n_choices, n_rows, n_columns)
        For each choice, a table of polynomials by rising degree.
    residual : ndarray of shape (n_rows, n_choices)
        The values that the columns of each choice are fitted to.
    total_weight : float
        Number of rows, or the sum of their weights.

    Returns
    -------
    ndarray of shape (n_choices, n_columns)
        Coefficients of `columns`.
    """
    # `basis` has orthonormal columns, and ``basis @ triangle`` are the columns. The
    # shapes are (n_choices, n_rows, n_columns) and (n_choices, n_columns, n_columns).
    basis, triangle = np.linalg.qr(columns)
    # The rest of a column is its part that is orthogonal to the columns before it. A
    # diagonal entry of the triangle is the length of a rest. (n_choices, n_columns)
    length_of_rest = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    root_mean_square = length_of_rest / np.sqrt(total_weight)
    # A column that is a linear combination of the columns before it is not used, nor
    # the columns after it. This happens if the estimates of a choice have few different
    # values. (n_choices, n_columns)
    is_used = np.logical_and.accumulate(root_mean_square > _LEAST_REST, axis=1)
    is_used = is_used[:, None]  # (n_choices, 1, n_columns): the same for all rows
    used_basis = np.where(is_used, basis, 0)
    # Each coefficient is the sum over rows of the products of a column of the basis
    # with the residuals. (n_choices, n_rows, n_columns)
    products = used_basis * residual.T[..., None]
    coef = products.sum(axis=1)  # `c` in the docstring, (n_choices, n_columns)
    # The variance of a coefficient (`v` in the docstring) is estimated from its
    # products: the sum of their squared deviations from their mean. Rounding must not
    # make this sum negative.
    variance = np.maximum((products**2).sum(axis=1) - coef**2 / total_weight, 0)
    # Estimated mean square of the true coefficients of each column, over the choices
    # (`t` in the docstring). (n_columns,)
    signal = np.maximum((coef**2 - variance).mean(axis=0), 0.0)
    # Factor of each coefficient, 0 where signal and variance are 0. The shape is
    # (n_choices, n_columns).
    shrinkage = np.divide(
        signal,
        signal + variance,
        out=np.zeros_like(variance),
        where=signal + variance > 0,
    )
    # The coefficients of the orthonormal columns become coefficients of `columns`.
    # Columns that are not used have the coefficient 0. Their part of the triangle may
    # be singular. The identity replaces it, so that the system can be solved.
    n_columns = columns.shape[2]
    triangle = np.where(is_used, triangle, np.eye(n_columns))
    shrunken_coef = shrinkage * coef
    return np.linalg.solve(triangle, shrunken_coef[..., None])[..., 0]


class OutcomeRange(NamedTuple):
    """Limits of the estimates of each choice, and unit that estimates are rounded to.

    Attributes
    ----------
    low, high : ndarray of shape (n_choices,)
        Smallest and largest estimate of each choice.
    unit : float or None
        Estimates are whole multiples of it. None: they are not rounded.
    """

    low: np.ndarray
    high: np.ndarray
    unit: float | None

    def limit(self, estimate):
        """Return estimates after rounding to the unit and clipping to the range.

        `estimate` has the shape (n_rows, n_choices).

        Without rounding, choices of equal quality would differ in the last digits, and
        the more expensive one might be taken.
        """
        if self.unit is not None:
            estimate = np.rint(estimate / self.unit) * self.unit
        # `np.clip` would take twice the time for a single row.
        return np.minimum(np.maximum(estimate, self.low), self.high)


def range_of(quality):
    """Return the range of each choice's outcomes, and the unit for rounding estimates.

    The unit is a power of two, about a millionth of the widest range. The widest range
    counts as at most 16 times the narrowest one. With a larger unit, rounding would
    remove the differences between estimates of choices with a narrow range.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    OutcomeRange
    """
    low = quality.min(axis=0)
    high = quality.max(axis=0)
    # Narrowest range of a choice whose outcomes vary. Infinite if there is none.
    narrowest = float(real_widths(low, high).min())
    widest = min(float((high - low).max()), _MOST_RATIO * narrowest)
    # None: all outcomes of each choice are equal, and nothing is rounded.
    unit = None
    if widest > 0:
        unit = float(2.0 ** (np.ceil(np.log2(widest)) - _BITS_OF_RANGE))
    return OutcomeRange(low, high, unit=unit)


def real_widths(low, high):
    """Return ``high - low``, or infinity where this difference is only rounding.

    Parameters
    ----------
    low, high : ndarray of shape (n_choices,)

    Returns
    -------
    ndarray of shape (n_choices,)
        An infinite width is never the narrowest. Numbers divided by it are 0.
    """
    width = high - low
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.where(width > _ROUNDING * largest, width, np.inf)


def outcome_divisors(quality):
    """Return a divisor for outcomes of each choice, so that none dominates the errors.

    Squared errors are added up over choices. If losses have no bound, one choice with a
    heavy tail would determine the estimates of all choices. A choice without a tail is
    not divided, even if it varies far more than others: decisions depend on this
    variation.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,)
        Powers of two. A choice with a heavy tail, and a range far wider than the
        narrowest one, is divided by about the ratio of two standard deviations: of its
        outcomes, and of the outcomes with the narrowest range. Other choices have 1.
    """
    low = quality.min(axis=0)
    high = quality.max(axis=0)
    spread = quality.std(axis=0)
    width = high - low
    narrowest = real_widths(low, high).min()
    # If no choice varies, `narrowest` is infinite, and no choice is wide.
    is_wide = width > _MOST_RATIO * narrowest
    has_tail = width > _TAIL * spread
    is_divided = is_wide & has_tail
    divisors = np.ones(len(low))
    if is_divided.any():
        # Several choices may have the narrowest range. The largest spread counts.
        spread_of_narrowest = spread[width == narrowest].max()
        exponent = np.round(np.log2(spread[is_divided] / spread_of_narrowest))
        # A divisor is at least 1: it makes a tail smaller, never larger.
        divisors[is_divided] = 2.0 ** np.maximum(exponent, 0)
    return divisors
