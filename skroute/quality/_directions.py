"""Directions of rows: a truncated singular value decomposition that treats its own rows as new."""

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD

# Least part of a direction that other rows have: a direction of one row alone has none.
_LEAST_REST = 1e-12
# Rows that a mean over all rows is estimated by, which bounds the time.
_SAMPLED_ROWS = 50


def fit_directions(rows, n_directions, seed):
    """Return the directions in which rows are longest.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
    n_directions : int
    seed : int
        Seed of the randomised decomposition.

    Returns
    -------
    ndarray of shape (n_columns, n_directions)
        Orthonormal columns.
    """
    decomposition = TruncatedSVD(n_directions, random_state=seed)
    # Rows that are all alike have no variance, and its shares are not used.
    with np.errstate(invalid="ignore", divide="ignore"):
        decomposition.fit(rows)
    return decomposition.components_.T


def along(rows, directions):
    """Return the coordinates of rows along directions, of shape (n_rows, n_directions)."""
    coordinates = rows @ directions
    if issparse(coordinates):
        coordinates = coordinates.toarray()
    return np.asarray(coordinates, dtype=np.float64)


def along_directions_of_others(rows, directions, rows_as_new=None):
    """Return the coordinates of each row along the directions that the other rows have.

    Directions turn towards the rows that they are fitted on, and most where rows are few and
    columns are many. So the rows of a fit are longer along the directions than new rows are. A
    model that is trained on such coordinates has other estimates for new rows than for its own
    rows, held-out ones included.

    Let ``A`` be the rows, ``V`` the directions, ``a`` one row, ``z = V.T @ a``, ``r = a - V @ z``,
    ``L = V.T @ A.T @ A @ V``, which is diagonal, and ``w`` the sum of squares of the other rows
    along ``r``. In ``A.T @ A - a @ a.T``, the directions turn away from ``r``: to the first order,
    they are ``V - r @ z.T @ inv(L - w - z @ z.T)``. The row as a new one, ``b``, has the
    coordinates ``V.T @ b - D @ z * (r @ b) / (1 - z @ D @ z)`` along them, with
    ``D = inv(L - w)``.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
        The rows that the directions were fitted on.
    directions : ndarray of shape (n_columns, n_directions)
        Those of `fit_directions`.
    rows_as_new : {ndarray, sparse array} of shape (n_rows, n_columns), default=None
        The same rows as they would be if they were not among `rows`. None: as `rows`.

    Returns
    -------
    ndarray of shape (n_rows, n_directions)
    """
    if rows_as_new is None:
        rows_as_new = rows
    coordinates = along(rows, directions)
    coordinates_as_new = along(rows_as_new, directions)
    rests = _products_of_rows(rows, rows) - (coordinates**2).sum(axis=1)
    rests_as_new = _products_of_rows(rows, rows_as_new)
    rests_as_new -= (coordinates * coordinates_as_new).sum(axis=1)
    squares = (coordinates**2).sum(axis=0)
    gaps = squares - _squares_along_rests(rows, coordinates, rests)
    shares = np.divide(
        coordinates, gaps, out=np.zeros_like(coordinates), where=gaps > 0
    )
    leverage = (coordinates * shares).sum(axis=1)
    rest = rests_as_new / np.maximum(1 - leverage, _LEAST_REST)
    own_part = shares * rest[:, np.newaxis]
    # The first order may overshoot: a row takes away at most what it has.
    lowest = np.minimum(coordinates_as_new, 0)
    highest = np.maximum(coordinates_as_new, 0)
    return np.clip(coordinates_as_new - own_part, lowest, highest)


def _squares_along_rests(rows, coordinates, rests):
    """Return the sum of squares of the other rows along what directions leave out of a row.

    It is the mean over some rows, weighted by the square of what is left out.
    """
    step = -(-len(coordinates) // _SAMPLED_ROWS)
    products = rows @ rows[::step].T
    if issparse(products):
        products = products.toarray()
    squares = (coordinates**2).sum(axis=0)
    along_rows = (products**2).sum(axis=0)
    along_directions = (coordinates[::step] ** 2) @ squares
    of_others = along_rows - along_directions - rests[::step] ** 2
    total = rests[::step].sum()
    if total <= 0:
        return 0.0
    return max(float(of_others.sum() / total), 0.0)


def _products_of_rows(first, second):
    """Return the inner product of each row with the same row of another table."""
    products = first.multiply(second) if issparse(first) else first * second
    return np.asarray(products.sum(axis=1), dtype=np.float64).ravel()
