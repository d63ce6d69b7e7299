"""What answers show of themselves, and what it says of quality: ridge fits with exact folds.

Logs of cascades are short (300 rows), so everything here is shrunken: a model's quality given
its own signals is a logistic line, other signals correct it against a ridge, and the values
of going on are ridge regressions. Estimates of the rows that fitted are leave-one-out.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from skroute.routing.parts._log import column_names
from skroute.utils._frames import column_keys
from skroute.utils._named import part_of
from skroute.utils._typing import NDArray
from skroute.utils._validation import floats_of

# Penalty of a model's own signals, of those of others, and of the regressions of value, in
# rows: a ridge of 10 halves what 10 rows of unit variance would say.
_OWN, _OTHERS, _VALUES = 1.0, 10.0, 10.0
_LARGEST = 30.0
# Newton's steps of a logistic fit at most.
_MAX_STEPS = 25


class RankScores:
    """Columns (n_rows, n_columns) as normal scores of their ranks, whatever their scale.

    Equal values get one score, infinite ones the outermost; a missing value gets 0, the
    middle, and where a training column has missing ones a column of its own says so. A log
    probability, a probability and its logit are the same signal.
    """

    def __init__(self, columns):
        self.knots, self.missing = [], []
        for column in columns.T:
            seen = column[~np.isnan(column)]
            self.missing.append(bool(len(seen) < len(column)))
            values, counts = np.unique(_finite(seen), return_counts=True)
            rank = np.cumsum(counts) - counts / 2
            scores = ndtri(rank / max(counts.sum(), 1))
            self.knots.append((values, scores))

    def transform(self, columns):
        """Scores of rows, ndarray of shape (n_rows, n_scores)."""
        parts = []
        for column, (values, scores), missing in zip(
            columns.T, self.knots, self.missing
        ):
            none = np.isnan(column)
            at = np.zeros(len(column))
            if len(values):
                at[~none] = np.interp(_finite(column[~none]), values, scores)
            parts.append(at)
            if missing:
                parts.append(none.astype(np.float64))
        return np.column_stack(parts) if parts else np.empty((len(columns), 0))


def _finite(values):
    """Infinite values as the largest numbers, which have their place in an order."""
    largest = np.finfo(np.float64).max / 4
    return np.clip(values, -largest, largest)


def _probability(linear):
    """The logistic function, which is never 0 or 1."""
    return expit(np.clip(linear, -_LARGEST, _LARGEST))


def fit_logistic(features, target, ridge):
    """Ridge logistic regression on targets in [0, 1], and its leave-one-out estimates."""

    def expand(coef):
        mean = _probability(features @ coef)
        weight = np.maximum(mean * (1 - mean), 1e-6)
        return (
            mean,
            weight,
            (features * weight[:, np.newaxis]).T @ features + np.diag(ridge),
        )

    coef = np.zeros(features.shape[1])
    for _ in range(_MAX_STEPS):
        mean, _, hessian = expand(coef)
        step = np.linalg.solve(hessian, features.T @ (target - mean) - ridge * coef)
        size = np.abs(step).max()
        coef = coef + step * min(1.0, 5.0 / max(size, 1e-12))
        if size < 1e-7:
            break
    mean, weight, hessian = expand(coef)
    lever = np.einsum("ij,ji->i", features, np.linalg.solve(hessian, features.T))
    without = features @ coef - lever * (target - mean) / np.maximum(
        1 - lever * weight, 0.05
    )
    return coef, _probability(without)


class StateEstimate(NamedTuple):
    """What one state of a cascade says: quality of each way to answer, value of going on."""

    # Logistic coefficients, (1 + n_features, n_ways).
    ways: NDArray[np.float64]
    # Of the values of going on, in terms of the features and of the best way.
    values: NDArray[np.float64]
    # The range of the values that it was fitted on; no estimate goes beyond it.
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def predict(self, features):
        """Estimates for rows, ndarray of shape (n_rows, n_ways + n_values)."""
        ways = _probability(self.ways[0] + features @ self.ways[1:])
        if not self.values.shape[1]:
            return ways
        values = np.clip(_terms(ways, features) @ self.values, self.low, self.high)
        return np.column_stack([ways, values])


def _terms(ways, features):
    """What values of going on are linear in."""
    best = ways.max(axis=1) if ways.shape[1] else np.full(len(features), 0.5)
    one = np.ones(len(features))
    return np.column_stack([one, best, best**2, np.abs(best - 0.5), features])


class StateBasis:
    """What a state knows, made ready for regressions of the values of going on.

    `features` (n_rows, n_features) are normal scores of what is known in this state, `own`
    (n_ways, n_features) says which of them are the own signals of the answer that each way gives,
    and `quality` (n_rows, n_ways), in [0, 1], is that of each way.
    """

    def __init__(self, features, own, quality):
        n_rows, n_features = features.shape
        with_one = np.column_stack([np.ones(n_rows), features])
        self.coefs = np.zeros((1 + n_features, len(own)))
        self.ways = np.empty((n_rows, len(own)))
        for k, mine in enumerate(own):
            ridge = np.r_[1e-3, np.where(mine, _OWN, _OTHERS)]
            self.coefs[:, k], self.ways[:, k] = fit_logistic(
                with_one, quality[:, k], ridge
            )
        self.terms = _terms(self.ways, features)
        ridge = np.r_[1e-6, np.full(3, 0.1 * _VALUES), np.full(n_features, _VALUES)]
        gram = self.terms.T @ self.terms + np.diag(ridge)
        self.solve = np.linalg.solve(gram, self.terms.T)
        lever = np.einsum("ij,ji->i", self.terms, self.solve)
        self.lever = np.minimum(lever, 0.95)[:, np.newaxis]

    def fit(self, values):
        """Ridge regressions of values of going on, beside the ways to answer."""
        coef = self.solve @ values
        without = (self.terms @ coef - self.lever * values) / (1 - self.lever)
        low, high = values.min(axis=0), values.max(axis=0)
        fitted = StateEstimate(self.coefs, coef, low, high)
        return fitted, np.column_stack([self.ways, np.clip(without, low, high)])


# What a user gives -----------------------------------------------------------------------------


def as_columns(signals, name, n_rows, columns=None):
    """Signals of one model as columns of floats, a frame's in the order of `columns`."""
    own = column_names(signals, f"signals of {name!r}")
    if own is not None and columns is not None and own != columns:
        if sorted(own) != sorted(columns):
            raise ValueError(
                f"signals of {name!r} must have the columns {columns!r}, got {own!r}."
            )
        keys = column_keys(signals)
        signals = part_of(signals, [keys[own.index(column)] for column in columns])
    if signals is None:
        return np.empty((n_rows, 0))
    found = floats_of(signals)
    if found is None:
        # Without numpy's message, which quotes the entry.
        raise ValueError(
            f"signals of {name!r} must be numbers, NaN where they are missing."
        )
    if found.ndim not in (1, 2) or len(found) != n_rows:
        raise ValueError(
            f"signals of {name!r} must have shape ({n_rows},) or ({n_rows}, n_signals), one row "
            f"for each row of the call, got {found.shape}."
        )
    return found.reshape(n_rows, -1) if found.size else np.empty((n_rows, 0))


def split_signals(signals, names, X):
    """Signals of rows X by the names of the models that show something, however they are given."""
    if signals is None:
        return {}
    if (columns := column_names(signals, "signals")) is not None:
        signals = {
            name: signals[key] for name, key in zip(columns, column_keys(signals))
        }
    if not isinstance(signals, Mapping):
        array = np.asarray(signals)
        if array.ndim not in (2, 3) or array.shape[1] != len(names):
            raise ValueError(
                "signals must be a mapping from the name of a model to its columns, or an array of "
                f"shape (n_samples, {len(names)}) or (n_samples, {len(names)}, n_signals), got "
                f"shape {array.shape}."
            )
        return {name: array[:, k] for k, name in enumerate(names)}
    if unknown := [key for key in signals if key not in names]:
        raise ValueError(
            f"signals has entries for {unknown!r}, which are not among the models {names!r}."
        )
    return {name: signals[name] for name in names if name in signals}
