"""Directions of rows: a truncated singular value decomposition that treats its own rows as new."""

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD

# A leverage is at most 1 less this: a direction of one row alone has no other rows.
_LEAST_REST = 1e-12


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

    Let ``A`` be the rows, ``V`` the directions, ``a`` one row, ``z = V.T @ a`` and
    ``L = V.T @ A.T @ A @ V``, which is diagonal. Without the row, one step of subspace iteration
    from ``V`` gives ``(A.T @ A - a @ a.T) @ V = V @ L - a @ z.T``. It is made orthonormal by
    ``inv(L - z @ z.T)``, to the first order. The row as a new one, ``b``, then has the coordinates
    ``V.T @ b - inv(L) @ z * rest / (1 - leverage)``, where ``rest = a @ b - z @ V.T @ b`` is what
    the directions leave out of ``a @ b``, and ``leverage = z @ inv(L) @ z``.

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
    lengths = (coordinates**2).sum(axis=0)
    is_used = lengths > 0
    shares = np.divide(coordinates, lengths, out=np.zeros_like(coordinates), where=is_used)
    leverage = (coordinates * shares).sum(axis=1)
    rest = _products_of_rows(rows, rows_as_new) - (coordinates * coordinates_as_new).sum(axis=1)
    rest /= np.maximum(1 - leverage, _LEAST_REST)
    own_part = shares * rest[:, np.newaxis]
    # The first order may overshoot: a row takes away at most what it has.
    lowest = np.minimum(coordinates_as_new, 0)
    highest = np.maximum(coordinates_as_new, 0)
    return np.clip(coordinates_as_new - own_part, lowest, highest)


def _products_of_rows(first, second):
    """Return the inner product of each row with the same row of another table."""
    products = first.multiply(second) if issparse(first) else first * second
    return np.asarray(products.sum(axis=1), dtype=np.float64).ravel()
