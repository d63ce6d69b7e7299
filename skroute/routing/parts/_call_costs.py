"""Costs of a call must be of the same kind as the costs of `fit`: real, or estimated.

Real costs vary by chance, and estimates do not. A router that learns the price of its
budget from real costs, and decides by estimates, spends more than the budget. Standard
deviations are those of log costs, so that the unit and a change of prices do not
matter.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from skroute.quality._logged import as_numbers
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import needs_encoding

# Fewest rows of a call whose costs are compared with those of `fit`. The standard
# deviations of fewer rows have errors above 10 %.
_FEWEST_ROWS = 50
# Maximal number of rows of `fit` that are compared. It bounds time and memory. Standard
# deviations of 2 000 rows have errors of 2 %, far below `_MOST_SHARE`.
_MOST_ROWS = 2_000
# If the noise (standard deviation of log costs) of the costs of `fit` is at most 10 %,
# they hardly differ from estimates. The costs of a call are not compared with them.
_LEAST_NOISE = 0.1
# Costs of a call are taken for estimates, not real costs, if their noise is less than
# this share of the noise in `fit`. For real costs the share is about 1, with a standard
# error of 0.1 in a call of `_FEWEST_ROWS` rows.
_MOST_SHARE = 0.5
# Number of trees of the forest that explains costs by X: it is fitted in a tenth of a
# second, and has a megabyte in a pickle.
_N_TREES = 30
# Fewest rows of a leaf of the forest that explains costs by X: the default of R's
# randomForest for regression.
_ROWS_OF_A_LEAF = 5
# Costs of fewer rows are not explained by X: their trees would have at most 7 leaves.
_FEWEST_ROWS_OF_A_FOREST = 40


class CostSpread(NamedTuple):
    """Standard deviations of log costs: larger for real costs than for estimates.

    Attributes
    ----------
    level : float
        Standard deviation of the level: the mean log cost of a row. It is the variation
        of the sizes of requests.

    between : float
        Standard deviation of the log costs of the choices, around a function of the
        level of the row.

    beyond : float
        Standard deviation of the level, around a function of X. NaN if X was not read.
    """

    level: float
    between: float
    beyond: float


class CostSummary(NamedTuple):
    """Noise of the costs of `fit`, with which later costs are compared.

    Attributes
    ----------
    spread : CostSpread

    columns : ndarray of int
        Choices with a cost above 0 on every row.

    level_model : RandomForestRegressor or None
        Estimates the level from X. None if X is not a table of numbers.
    """

    spread: CostSpread
    columns: np.ndarray
    level_model: Any


def summarize_costs(X, costs):
    """Return the summary of the costs of `fit` (`CostSummary`).

    Parameters
    ----------
    X : indexable of n_rows rows
        Rows of `fit`.

    costs : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    CostSummary
    """
    # Every `step`-th row is compared, so that at most `_MOST_ROWS` are. `-(-a // b)` is
    # a / b, rounded up.
    step = -(-len(costs) // _MOST_ROWS)
    rows = np.arange(0, len(costs), step)
    costs = costs[rows]
    columns = np.flatnonzero((costs > 0).all(axis=0))
    level_model = None
    estimated_level = None
    has_enough_rows = len(rows) >= _FEWEST_ROWS_OF_A_FOREST
    if len(columns) and _is_table(X) and has_enough_rows:
        level = np.log(costs[:, columns]).mean(axis=1)
        table = _numbers_for_trees(_safe_indexing(X, rows))
        level_model = RandomForestRegressor(
            _N_TREES, min_samples_leaf=_ROWS_OF_A_LEAF, oob_score=True, random_state=0
        )
        level_model.fit(table, level)
        estimated_level = level_model.oob_prediction_
    spread = _spread(costs[:, columns], estimated_level)
    return CostSummary(spread, columns, level_model)


def _is_table(X):
    """Return True if X is a dense table of numbers."""
    has_columns = len(getattr(X, "shape", ())) == 2
    return has_columns and not sparse.issparse(X) and not needs_encoding(X)


def _numbers_for_trees(X):
    """Return X as numbers in the range of single precision, which trees read.

    Larger numbers become the largest number of this range.
    """
    largest = np.finfo(np.float32).max
    return np.clip(as_numbers(X), -largest, largest)


def _spread(costs, estimated_level):
    """Return standard deviations of log costs (`CostSpread`).

    Parameters
    ----------
    costs : ndarray of shape (n_rows, n_columns)
        Above 0.

    estimated_level : ndarray of shape (n_rows,) or None
        The level of each row as estimated from X. None if X was not read.

    Returns
    -------
    CostSpread
        Without columns, zeros, and NaN for `beyond`.
    """
    if not costs.shape[1]:
        return CostSpread(level=0.0, between=0.0, beyond=np.nan)
    logs = np.log(costs)
    level = logs.mean(axis=1)
    # The log cost of each choice is fitted by a parabola of the row's mean log cost.
    design = np.column_stack([np.ones(len(level)), level, level**2])
    coefficients, _, _, _ = np.linalg.lstsq(design, logs, rcond=None)
    between = np.sqrt(np.mean((logs - design @ coefficients) ** 2))
    beyond = np.nan
    if estimated_level is not None:
        beyond = np.std(level - estimated_level)
    return CostSpread(
        level=float(np.std(level)), between=float(between), beyond=float(beyond)
    )


def check_call_costs(summary, X, costs):
    """Raise an error if costs of a call have much less noise than those of `fit`.

    Parameters
    ----------
    summary : CostSummary
        Of the costs of `fit`.

    X : indexable of n_rows rows
        Rows of the call.

    costs : ndarray of shape (n_rows, n_choices)
        Validated costs of the call.

    Raises
    ------
    ValueError
        If the costs of `fit` are probably real, and those of the call estimates.
    """
    costs = costs[:, summary.columns]
    if num_samples(X) < _FEWEST_ROWS or not costs.size:
        return
    # A cost of 0 has no logarithm. Such costs are not compared.
    if not (costs > 0).all():
        return
    estimated_level = None
    if summary.level_model is not None and _is_table(X):
        estimated_level = summary.level_model.predict(_numbers_for_trees(X))
    fit_spread = summary.spread
    call_spread = _spread(costs, estimated_level)
    if call_spread.level < _MOST_SHARE * fit_spread.level:
        # The requests of the call are alike in size. Their costs vary less than those
        # of `fit` also if they are real.
        return
    _check_noise(fit_spread.between, call_spread.between)
    _check_noise(fit_spread.beyond, call_spread.beyond)


def _check_noise(noise_of_fit, noise_of_call):
    """Raise an error if costs of a call have much less noise than those of `fit`.

    Both are standard deviations of log costs. If one is NaN, no error is raised.
    """
    # Also True if the noise is NaN, so that no error is raised.
    if not noise_of_fit > _LEAST_NOISE:
        return
    if noise_of_call < _MOST_SHARE * noise_of_fit:
        raise ValueError(
            f"costs of this call vary by {noise_of_call:.1%} for requests of one size, "
            f"but those of fit varied by {noise_of_fit:.1%}. fit has probably seen "
            "real costs, known after the call, and these are estimates: at the price "
            "of the budget that fit learned, more than the budget is spent. Do one of "
            "three things. Give a cost_estimator to the constructor, and the real "
            "costs to fit. Or give fit the estimates of its rows, as in later calls. "
            "Or give a price list to the constructor, the real costs to fit, and no "
            "costs to later calls."
        )
