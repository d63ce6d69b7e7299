"""Curves that bring estimates to the outcomes of other rows, and no further than noise allows."""

import numpy as np
from numpy.polynomial.legendre import legvander

# Highest power of a curve, points that it is kept at, and how far its ends are from the extremes.
_DEGREE = 4
_POINTS = 33
_ENDS = 0.005
# What is left of a power after those below it: less is rounding.
_APART = 1e-3


def corrections(estimate, quality, own=True):
    """How far estimates are off, by their size: a curve that choices share, then one of each.

    Each curve is a polynomial. Of each power what is noise is shrunk away, judged over all
    choices together: with coefficients ``c`` and variances ``v`` by ``t / (t + v)``,
    ``t = max(mean(c ** 2 - v), 0)`` (empirical Bayes). The order of estimates of a choice stays.

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
    shared = _curves(estimate.reshape(-1, 1), quality.reshape(-1, 1))[0]
    moved = estimate + np.interp(estimate, *shared)
    # The same points for all: equal estimates of two choices stay equal where curves are shared.
    at = np.linspace(estimate.min(), estimate.max(), 2 * _POINTS)
    found = at + np.interp(at, *shared)
    ends = [found] * estimate.shape[1]
    if own:
        ends = [found + np.interp(found, *curve) for curve in _curves(moved, quality)]
    return [np.stack([at, np.maximum.accumulate(end) - at]) for end in ends]


def _shrinkage(coefs, noise):
    real = np.maximum((coefs**2 - noise).mean(axis=0), 0.0)
    sums = real + noise
    return np.divide(real, sums, where=sums > 0, out=np.zeros_like(noise))


def _curves(estimate, quality):
    """One curve for each column, as points and what to add there."""
    bases = [_Basis(column) for column in estimate.T]
    apart = (quality - estimate).T
    found = [basis.coefs(values) for basis, values in zip(bases, apart)]
    coefs, noise = (np.array(part) for part in zip(*found))
    return [
        basis.curve(coef * share)
        for basis, coef, share in zip(bases, coefs, _shrinkage(coefs, noise))
    ]


class _Basis:
    """Polynomials that are orthonormal on some values."""

    def __init__(self, values):
        self.low, self.high = np.quantile(values, [_ENDS, 1 - _ENDS])
        raw = self._raw(values)
        # Values that are few have few powers.
        self.n_powers = 1
        gram = raw.T @ raw / len(raw)
        for n_powers in range(2, _DEGREE + 2):
            part = gram[:n_powers, :n_powers]
            squares = np.linalg.eigvalsh(part)
            if squares[0] < _APART**2 * squares[-1]:
                break
            self.n_powers = n_powers
        factor = np.linalg.cholesky(gram[: self.n_powers, : self.n_powers])
        self.turn = np.linalg.inv(factor).T
        self.on_rows = raw[:, : self.n_powers] @ self.turn

    def _raw(self, values):
        width = self.high - self.low
        flat = not width > 1e-9 * max(abs(self.low), abs(self.high), 1e-300)
        inside = np.zeros_like(values) if flat else (values - self.low) / width
        return legvander(2 * np.clip(inside, 0, 1) - 1, _DEGREE)

    def coefs(self, apart):
        """Least-squares coefficients and their variances, padded with zeros."""
        products = self.on_rows * apart[:, None]
        pad = np.zeros(_DEGREE + 1 - self.n_powers)
        mean = products.mean(axis=0)
        noise = ((products - mean) ** 2).mean(axis=0) / len(apart)
        return np.concatenate([mean, pad]), np.concatenate([noise, pad])

    def curve(self, coefs):
        at = np.linspace(self.low, self.high, _POINTS)
        add = self._raw(at)[:, : self.n_powers] @ self.turn @ coefs[: self.n_powers]
        return np.stack([at, np.maximum.accumulate(at + add) - at])


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
    """About a millionth of the widest range, a power of two; None where no range has a width."""
    widest = float((high - low).max())
    return float(2.0 ** (np.ceil(np.log2(widest)) - 20)) if widest > 0 else None
