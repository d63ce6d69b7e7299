"""Signals of answers, and regressions of quality on them.

Logs of cascades are short (300 rows), so that all coefficients are shrunken. A model's
quality is a logistic regression on its own signals and, with a stronger ridge penalty,
on those of other models. Values of asking another model are estimated by ridge
regressions. Estimates of the training rows are leave-one-out.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from skroute.routing.from_answers._states import StateFit
from skroute.routing.parts._log import column_names
from skroute.utils._frames import column_keys
from skroute.utils._named import part_of
from skroute.utils._tolerances import TINY
from skroute.utils._typing import NDArray
from skroute.utils._validation import floats_of

# The unit of the ridge penalties below is one row: a penalty of 10 halves an effect
# that is estimated from 10 rows of unit variance.

# Ridge penalty, in rows, of a model's own signals in the logistic regression of its
# quality. It is weaker than that of other models' signals.
_OWN_SIGNALS_RIDGE = 1.0
# Ridge penalty, in rows, of the signals of other models in the logistic regression of a
# model's quality.
_OTHER_SIGNALS_RIDGE = 10.0
# Ridge penalty, in rows, of signals in the linear regressions of the value of asking
# another model.
_VALUE_RIDGE = 10.0
# Ridge penalty of the terms of the best answer's quality in the regressions of values.
# It is lower than that of signals, since these terms have the scale of the values
# already.
_BEST_QUALITY_RIDGE = 0.1 * _VALUE_RIDGE
# Penalties of intercepts. They only prevent singular matrices.
_LOGISTIC_INTERCEPT_RIDGE = 1e-3
_VALUE_INTERCEPT_RIDGE = 1e-6
# Largest absolute value of the linear predictor of a probability. A larger one could be
# rounded to the probability 0 or 1.
_MAX_LINEAR = 30.0
# Smallest variance of an outcome of 0 or 1 in a step of Newton's method. It keeps the
# Hessian from being singular.
_MIN_VARIANCE = 1e-6
# Maximal number of steps of Newton's method. It bounds the time if a fit does not
# converge.
_MAX_STEPS = 25
# Largest change of a coefficient in one step of Newton's method. A longer step is
# shortened, so that it does not go far beyond the optimum.
_MAX_CHANGE = 5.0
# Change of coefficients below which Newton's method has converged.
_CONVERGED = 1e-7
# Largest leverage (influence of a row on its own fitted value) in leave-one-out
# estimates of values. They are divided by 1 minus the leverage, which must not be close
# to 0.
_MAX_LEVERAGE = 0.95
# Smallest value of 1 minus the leverage (influence of a row on its own fit) in logistic
# fits. Residuals are divided by it, so that it must not be close to 0.
_MIN_REMAINDER = 0.05


# Signals of rows ----------------------------------------------------------------------


class RowSignals(NamedTuple):
    """Estimates and signals of rows, as the user gave them or as normal scores.

    Attributes
    ----------
    before : ndarray of shape (n_rows, n_before)
        Known before any call: out-of-sample estimates of quality.
    by_model : list of ndarray of shape (n_rows, n_signals)
        Signals of each model's answer. The numbers of signals may differ.
    """

    before: NDArray[np.float64]
    by_model: list[NDArray[np.float64]]

    def take(self, rows):
        """Return the signals of some rows."""
        return RowSignals(
            before=self.before[rows],
            by_model=[signals[rows] for signals in self.by_model],
        )

    def features(self, models):
        """Return the features of rows after asking some models, (n_rows, n_features).

        The first features are those known before any call. Then come the signals of
        each model in `models`, a sequence of positions.
        """
        return np.column_stack(
            [self.before, *(self.by_model[model] for model in models)]
        )

    def owner_masks(self, models):
        """Return a mask for each model: True for the features that are its signals.

        The shape is (n_models, n_features). The features are those of
        ``features(models)``.
        """
        # -1: what is known before any call is a signal of no model.
        owners = [np.full(self.before.shape[1], -1)]
        for model in models:
            owners.append(np.full(self.by_model[model].shape[1], model))
        owner_of_feature = np.concatenate(owners)
        return owner_of_feature == np.reshape(models, (-1, 1))


class SignalScales:
    """Transformation of signals to normal scores.

    The normal score of a value is the normal quantile of its rank among training rows.

    Parameters
    ----------
    signals : RowSignals
        Signals of the training rows.
    """

    def __init__(self, signals):
        self._before = RankScores(signals.before)
        self._by_model = [RankScores(columns) for columns in signals.by_model]

    @property
    def n_signals(self):
        """Number of signals of each model's answer, a list of int."""
        return [scores.n_columns for scores in self._by_model]

    def transform(self, signals):
        """Return the normal scores of rows (`RowSignals`)."""
        by_model = []
        for model, columns in enumerate(signals.by_model):
            by_model.append(self.transform_model(model, columns))
        return RowSignals(self._before.transform(signals.before), by_model)

    def transform_model(self, model, columns):
        """Return the normal scores of one model's signals (n_rows, n_signals)."""
        return self._by_model[model].transform(columns)


class _ColumnScale(NamedTuple):
    """Values of one training column and their normal scores.

    Attributes
    ----------
    values : ndarray of shape (n_values,)
        Distinct values, rising.
    scores : ndarray of shape (n_values,)
        Normal score of the rank of each value.
    has_missing : bool
        True if some training rows have NaN. Then missing values get a column of their
        own.
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float64]
    has_missing: bool


class RankScores:
    """Transformation of columns, in any unit, to normal quantiles of their ranks.

    Equal values get the same score. The score of a value between two training values is
    interpolated. Infinite values get the outermost scores. A missing value gets 0, the
    middle. If a training column has missing values, another column marks them.

    On training rows only ranks count: a probability, its logarithm and its logit get
    the same scores there.

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_columns)
        Training columns.
    """

    def __init__(self, columns):
        self._scales = [_scale_of(column) for column in columns.T]

    @property
    def n_columns(self):
        """Number of columns that `transform` takes. It may return more."""
        return len(self._scales)

    def transform(self, columns):
        """Return the scores of rows, ndarray of shape (n_rows, n_scores)."""
        scores = []
        for column, scale in zip(columns.T, self._scales):
            is_missing = np.isnan(column)
            column_scores = np.zeros(len(column))
            # A training column without numbers has no values: all scores are 0.
            if len(scale.values):
                column_scores[~is_missing] = np.interp(
                    _finite(column[~is_missing]), scale.values, scale.scores
                )
            scores.append(column_scores)
            if scale.has_missing:
                scores.append(is_missing.astype(np.float64))
        if not scores:
            return np.empty((len(columns), 0))
        return np.column_stack(scores)


def _scale_of(column):
    """Return the scale of one training column, which may have NaN (`_ColumnScale`)."""
    numbers = column[~np.isnan(column)]
    values, counts = np.unique(_finite(numbers), return_counts=True)
    # Equal values share the middle of their ranks.
    rank = np.cumsum(counts) - counts / 2
    # A column without numbers has the total 0 and an empty scale. 1 avoids a division
    # by 0.
    total = max(counts.sum(), 1)
    scores = ndtri(rank / total)
    return _ColumnScale(values, scores, has_missing=len(numbers) < len(column))


def _finite(values):
    """Return values with infinite ones replaced by very large numbers."""
    # A quarter of the largest float, so that differences of two values are finite.
    largest = np.finfo(np.float64).max / 4
    return np.clip(values, -largest, largest)


# Regressions in one state -------------------------------------------------------------


def _probability(linear):
    """Return the logistic function of linear predictors, never 0 or 1."""
    return expit(np.clip(linear, -_MAX_LINEAR, _MAX_LINEAR))


class _Expansion(NamedTuple):
    """Fit and second derivatives of a ridge logistic regression at some coefficients.

    Attributes
    ----------
    mean : ndarray of shape (n_rows,)
        Estimated probability of each row.
    variance : ndarray of shape (n_rows,)
        Variance of an outcome with that probability.
    hessian : ndarray of shape (n_features, n_features)
        Second derivatives of the loss.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    hessian: NDArray[np.float64]


def _expand(features, coef, ridge):
    """Return what a step of Newton's method needs at the present coefficients.

    The result is an `_Expansion`. `features` and `ridge` are those of `fit_logistic`.
    `coef` (n_features,) are the present coefficients.
    """
    mean = _probability(features @ coef)
    variance = np.maximum(mean * (1 - mean), _MIN_VARIANCE)
    hessian = (features * variance[:, np.newaxis]).T @ features + np.diag(ridge)
    return _Expansion(mean, variance, hessian)


def fit_logistic(features, target, ridge):
    """Fit a ridge logistic regression by Newton's method.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        With a column of ones for the intercept.
    target : ndarray of shape (n_rows,)
        Numbers from 0 to 1.
    ridge : ndarray of shape (n_features,)
        Penalty of each coefficient.

    Returns
    -------
    coef : ndarray of shape (n_features,)
        Coefficients on the scale of the linear predictor.
    estimate : ndarray of shape (n_rows,)
        Approximate leave-one-out estimates of the target.
    """
    coef = np.zeros(features.shape[1])
    for _ in range(_MAX_STEPS):
        current = _expand(features, coef, ridge)
        gradient = features.T @ (target - current.mean) - ridge * coef
        step = np.linalg.solve(current.hessian, gradient)
        largest_change = np.abs(step).max()
        # Below 1 if the full step is too long. `TINY` avoids a division by 0.
        step_size = min(1.0, _MAX_CHANGE / max(largest_change, TINY))
        coef = coef + step * step_size
        if largest_change < _CONVERGED:
            break
    current = _expand(features, coef, ridge)
    inverse_features = np.linalg.solve(current.hessian, features.T)
    # x' H^-1 x of each row x, with the Hessian H, (n_rows,).
    quadratic_form = np.einsum("ij,ji->i", features, inverse_features)
    leverage = quadratic_form * current.variance
    remainder = np.maximum(1 - leverage, _MIN_REMAINDER)
    residual = target - current.mean
    # Linear predictor of each row after one Newton step that leaves this row out.
    without_row = features @ coef - quadratic_form * residual / remainder
    return coef, _probability(without_row)


class StateModel(NamedTuple):
    """Fitted regressions of one state, which is a set of models that were asked.

    They estimate the quality of each answer, and the values of asking another model.

    Attributes
    ----------
    answer_coefs : ndarray of shape (1 + n_features, n_answers)
        Logistic coefficients of the quality of each answer, the intercept first.
    value_coefs : ndarray of shape (n_terms, n_values)
        Coefficients of each value of asking another model, see `_value_terms`.
    low, high : ndarray of shape (n_values,)
        Range of the values in training. No estimate is outside of it.
    """

    answer_coefs: NDArray[np.float64]
    value_coefs: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def predict(self, features):
        """Return estimates of qualities, then of values, for rows.

        `features`, of shape (n_rows, n_features), are normal scores of signals. The
        result has the shape (n_rows, n_answers + n_values).
        """
        answers = _probability(self.answer_coefs[0] + features @ self.answer_coefs[1:])
        if not self.value_coefs.shape[1]:
            # In this state no other model can be asked.
            return answers
        values = _value_terms(answers, features) @ self.value_coefs
        return np.column_stack([answers, np.clip(values, self.low, self.high)])


# Columns of `_value_terms`: the intercept, then the terms of the best answer's quality.
_INTERCEPT_TERM = 0
_BEST_QUALITY_TERMS = slice(1, 4)


def _value_terms(answers, features):
    """Return the terms that values of asking another model are linear in.

    They are an intercept, the estimated quality of the best answer, its square, its
    distance from 0.5, and the features, in this order.

    Parameters
    ----------
    answers : ndarray of shape (n_rows, n_answers)
        Estimated quality of each answer.
    features : ndarray of shape (n_rows, n_features)

    Returns
    -------
    ndarray of shape (n_rows, 4 + n_features)
    """
    if answers.shape[1]:
        best = answers.max(axis=1)
    else:
        # Nothing has been asked: the middle of the range of quality.
        best = np.full(len(features), 0.5)
    intercept = np.ones(len(features))
    return np.column_stack([intercept, best, best**2, np.abs(best - 0.5), features])


class StateBasis:
    """Regressions of quality and of values on the signals of the asked models.

    There is one object for each state, which is a set of models that were asked. The
    constructor fits the quality of the answers once. `fit` then takes the values of
    asking another model.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Normal scores of the signals of the models that were asked.
    own_signals : ndarray of shape (n_answers, n_features), dtype=bool
        True where a feature is a signal of the model that gave the answer. It is
        penalised less than the signals of other models.
    quality : ndarray of shape (n_rows, n_answers)
        Quality of each answer, from 0 to 1.
    """

    def __init__(self, features, own_signals, quality):
        n_rows, n_features = features.shape
        n_answers = len(own_signals)
        with_intercept = np.column_stack([np.ones(n_rows), features])
        self._answer_coefs = np.zeros((1 + n_features, n_answers))
        # Leave-one-out estimates of `quality`.
        self._answer_estimates = np.empty((n_rows, n_answers))
        for answer, is_own_signal in enumerate(own_signals):
            signals_ridge = np.where(
                is_own_signal, _OWN_SIGNALS_RIDGE, _OTHER_SIGNALS_RIDGE
            )
            coef, estimate = fit_logistic(
                with_intercept,
                quality[:, answer],
                ridge=np.r_[_LOGISTIC_INTERCEPT_RIDGE, signals_ridge],
            )
            self._answer_coefs[:, answer] = coef
            self._answer_estimates[:, answer] = estimate

        self._terms = _value_terms(self._answer_estimates, features)
        ridge = np.full(self._terms.shape[1], _VALUE_RIDGE)
        ridge[_INTERCEPT_TERM] = _VALUE_INTERCEPT_RIDGE
        ridge[_BEST_QUALITY_TERMS] = _BEST_QUALITY_RIDGE
        gram = self._terms.T @ self._terms + np.diag(ridge)
        # (n_terms, n_rows). Coefficients are this matrix times the values.
        self._solution = np.linalg.solve(gram, self._terms.T)
        leverage = np.einsum("ij,ji->i", self._terms, self._solution)
        # Influence of each row on its own fitted value, (n_rows, 1).
        self._leverage = np.minimum(leverage, _MAX_LEVERAGE)[:, np.newaxis]

    def fit(self, values):
        """Fit ridge regressions of the values of asking another model.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_values)
            Value of asking each next model at each price, on each row.

        Returns
        -------
        StateFit
            Its model is a `StateModel`. Its estimates are leave-one-out.
        """
        coefs = self._solution @ values
        # A fitted value is the leave-one-out estimate times 1 minus the leverage, plus
        # the row's own value times the leverage. (n_rows, n_values)
        fitted_values = self._terms @ coefs
        without_row = (fitted_values - self._leverage * values) / (1 - self._leverage)
        low = values.min(axis=0)
        high = values.max(axis=0)
        model = StateModel(self._answer_coefs, coefs, low, high)
        value_estimates = np.clip(without_row, low, high)
        estimates = np.column_stack([self._answer_estimates, value_estimates])
        return StateFit(model, estimates)


# Signals as a user gives them ---------------------------------------------------------


def as_columns(signals, name, n_rows, columns=None):
    """Return the signals of one model as floats, ndarray of shape (n_rows, n_signals).

    Parameters
    ----------
    signals : array-like, data frame or None
        As the user gave them. None: the model has no signals.
    name : str
        Name of the model, for messages.
    n_rows : int
        Rows of the call.
    columns : list of str or None, default=None
        Names of the columns in `fit`. Columns of a frame are brought into this order.
        None in `fit` itself, and if the columns had no names there.
    """
    names = column_names(signals, f"signals of {name!r}")
    if names is not None and columns is not None and names != columns:
        if sorted(names) != sorted(columns):
            raise ValueError(
                f"signals of {name!r} must have the columns {columns!r}, got {names!r}."
            )
        keys = column_keys(signals)
        ordered_keys = [keys[names.index(column)] for column in columns]
        signals = part_of(signals, ordered_keys)
    if signals is None:
        return np.empty((n_rows, 0))
    numbers = floats_of(signals)
    if numbers is None:
        # numpy's own error is left out, since its message quotes an entry of the data.
        raise ValueError(
            f"signals of {name!r} must be numbers, NaN where they are missing."
        )
    if numbers.ndim not in (1, 2) or len(numbers) != n_rows:
        raise ValueError(
            f"signals of {name!r} must have shape ({n_rows},) or ({n_rows}, "
            f"n_signals), one row for each row of the call, got {numbers.shape}."
        )
    if not numbers.size:
        # `reshape` cannot find the number of columns if there are no entries.
        return np.empty((n_rows, 0))
    return numbers.reshape(n_rows, -1)


def split_signals(signals, names):
    """Return the signals of each model that has some, a dict from its name.

    The signals are as the user gave them.

    Parameters
    ----------
    signals : mapping, data frame, array-like or None
        A frame has a column for each model. An array has the shape (n_rows, n_models)
        or (n_rows, n_models, n_signals).
    names : list of str
        Names of the models.
    """
    if signals is None:
        return {}
    columns = column_names(signals, "signals")
    if columns is not None:
        # A data frame. Its columns are named like the models.
        keys = column_keys(signals)
        signals = {name: signals[key] for name, key in zip(columns, keys)}
    if not isinstance(signals, Mapping):
        array = np.asarray(signals)
        if array.ndim not in (2, 3) or array.shape[1] != len(names):
            raise ValueError(
                "signals must be a mapping from the name of a model to its columns, or "
                f"an array of shape (n_samples, {len(names)}) or (n_samples, "
                f"{len(names)}, n_signals), got shape {array.shape}."
            )
        return {name: array[:, model] for model, name in enumerate(names)}
    unknown = [name for name in signals if name not in names]
    if unknown:
        raise ValueError(
            f"signals has entries for {unknown!r}, which are not among the models "
            f"{names!r}."
        )
    return {name: signals[name] for name in names if name in signals}
