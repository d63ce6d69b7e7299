"""Costs of a call must be of the kind that the price was learned from: real ones, or estimates.

A log holds real costs, which vary by chance. Estimates of new requests do not. A router that
learns the price of its budget from the former and decides by the latter overspends. Costs are
compared on a log scale, so that neither their unit nor a change of prices matters.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from skroute.quality._logged import as_numbers
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import needs_encoding

# Calls of fewer rows are not compared: their standard deviations have errors above 10 %.
_FEWEST_ROWS = 50
# Rows of `fit` that are compared. More would take time and space, and decide alike.
_MOST_ROWS = 2_000
# Chance variation (log scale) below which real costs are as good as estimates: 10 %.
_LEAST_NOISE = 0.1
# Costs of a call are of another kind if they have less than this share of the chance variation
# of those of `fit`: five standard errors at the smallest number of rows.
_MOST_SHARE = 0.5
# Size of the forest that explains costs by X: a tenth of a second, and a megabyte in a pickle.
_N_TREES = 30
_ROWS_OF_A_LEAF = 5
# A forest of fewer rows explains nothing.
_FEWEST_ROWS_OF_A_FOREST = 40


class CostSpread(NamedTuple):
    """Standard deviations of log costs.

    Attributes
    ----------
    level : float
        Of the mean of each row: the sizes of requests.

    between : float
        Of the costs of the choices, around what the level of their row explains.

    beyond : float
        Of the level, around what X explains; NaN where X was not read.
    """

    level: float
    between: float
    beyond: float


class CostsOfFit(NamedTuple):
    """What `fit` has seen of costs by row, to compare those of later calls with.

    Attributes
    ----------
    spread : CostSpread

    columns : ndarray of int
        Choices that cost something on every row.

    reader : RandomForestRegressor or None
        Explains the level by X; None where X is not a table of numbers.
    """

    spread: CostSpread
    columns: np.ndarray
    reader: Any


def costs_of_fit(X, costs):
    """Return what later costs are compared with (`CostsOfFit`).

    Parameters
    ----------
    X : indexable
        Rows of `fit`.

    costs : ndarray of shape (n_rows, n_choices)
    """
    step = -(-len(costs) // _MOST_ROWS)
    rows = np.arange(0, len(costs), step)
    costs = costs[rows]
    columns = np.flatnonzero((costs > 0).all(axis=0))
    reader = None
    explained = None
    if len(columns) and _is_table(X) and len(rows) >= _FEWEST_ROWS_OF_A_FOREST:
        level = np.log(costs[:, columns]).mean(axis=1)
        table = _table(_safe_indexing(X, rows))
        reader = RandomForestRegressor(
            _N_TREES, min_samples_leaf=_ROWS_OF_A_LEAF, oob_score=True, random_state=0
        )
        reader.fit(table, level)
        explained = reader.oob_prediction_
    return CostsOfFit(_spread(costs[:, columns], explained), columns, reader)


def _is_table(X):
    """Return True if X is a dense table of numbers."""
    has_columns = len(getattr(X, "shape", ())) == 2
    return has_columns and not sparse.issparse(X) and not needs_encoding(X)


def _table(X):
    """Return X as numbers that a tree reads, which are in single precision."""
    largest = np.finfo(np.float32).max
    return np.clip(as_numbers(X), -largest, largest)


def _spread(costs, explained):
    """Return the spread of positive costs, with the level that X explains or None."""
    if not costs.shape[1]:
        return CostSpread(0.0, 0.0, np.nan)
    logs = np.log(costs)
    level = logs.mean(axis=1)
    design = np.column_stack([np.ones(len(level)), level, level**2])
    coefficients = np.linalg.lstsq(design, logs, rcond=None)[0]
    between = np.sqrt(np.mean((logs - design @ coefficients) ** 2))
    beyond = np.nan if explained is None else np.std(level - explained)
    return CostSpread(float(np.std(level)), float(between), float(beyond))


def check_told_costs(of_fit, X, costs):
    """Refuse costs of a call that lack the chance variation of those of `fit`.

    Parameters
    ----------
    of_fit : CostsOfFit

    X : indexable
        Rows of the call.

    costs : ndarray of shape (n_rows, n_choices)
        Validated costs of the call.

    Raises
    ------
    ValueError
        If the costs of `fit` are probably real ones and these are estimates.
    """
    costs = costs[:, of_fit.columns]
    if num_samples(X) < _FEWEST_ROWS or not costs.size or not (costs > 0).all():
        return
    explained = None
    if of_fit.reader is not None and _is_table(X):
        explained = of_fit.reader.predict(_table(X))
    before = of_fit.spread
    now = _spread(costs, explained)
    if now.level < _MOST_SHARE * before.level:
        # Requests that are all alike: their costs vary less in any case.
        return
    for noise_before, noise_now in (
        (before.between, now.between),
        (before.beyond, now.beyond),
    ):
        if noise_before > _LEAST_NOISE and noise_now < _MOST_SHARE * noise_before:
            raise ValueError(
                f"costs of this call vary by {noise_now:.1%} for requests of one size, but those "
                f"of fit varied by {noise_before:.1%}. fit has probably seen real costs, known "
                "after the call, and these are estimates: at the price of the budget that fit "
                "learned, more than the budget is spent. Do one of three things. Give a "
                "cost_estimator to the constructor, and the real costs to fit. Or give fit the "
                "estimates of its rows, as in later calls. Or give a price list to the "
                "constructor, the real costs to fit, and no costs to later calls."
            )
