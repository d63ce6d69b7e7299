"""Truncated singular value decomposition, without the bias on the rows of its fit."""

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD

# Lower bound of one minus the leverage of a row. This number is 0 if only this row
# extends along some direction. The bound is above 0, because the number is a divisor.
_LEAST_REST = 1e-12
# Largest number of rows that `_squares_along_rests` samples. Bounds its time.
_SAMPLED_ROWS = 50


def fit_directions(rows, n_directions, seed):
    """Return the leading right singular vectors of a table of rows.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
    n_directions : int
        Number of singular vectors.
    seed : int
        Seed of the randomised decomposition.

    Returns
    -------
    ndarray of shape (n_columns, n_directions)
        Orthonormal columns.
    """
    decomposition = TruncatedSVD(n_directions, random_state=seed)
    # The shares of variance are NaN if all rows are equal. They are not used here.
    with np.errstate(invalid="ignore", divide="ignore"):
        decomposition.fit(rows)
    return decomposition.components_.T


def along(rows, directions):
    """Return the coordinates of rows along directions: their matrix product.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
    directions : ndarray of shape (n_columns, n_directions)

    Returns
    -------
    ndarray of shape (n_rows, n_directions), dtype=float64
    """
    coordinates = rows @ directions
    if issparse(coordinates):
        coordinates = coordinates.toarray()
    return np.asarray(coordinates, dtype=np.float64)


def along_directions_of_others(rows, directions, rows_as_new=None):
    """Return the coordinates of each row as if directions were fitted without it.

    Directions turn towards the rows that they are fitted on, most of all if rows are
    few and columns are many. So the rows of a fit are longer along the directions than
    new rows are. A model that is trained on such coordinates is biased on new rows, and
    its held-out rows do not show it.

    Let ``A`` be the rows, ``V`` the directions, ``a`` one row, ``z = V.T @ a``, ``r = a
    - V @ z``, ``L = V.T @ A.T @ A @ V``, which is diagonal, and ``w`` the sum of
    squares of the other rows along ``r``. Without the row, the matrix is ``A.T @ A - a
    @ a.T``, and its directions turn away from ``r``. To the first order, they are ``V -
    r @ z.T @ inv(L - w - z @ z.T)``. The row as a new one, ``b``, has the coordinates
    ``V.T @ b - D @ z * (r @ b) / (1 - z @ D @ z)`` along them, with ``D = inv(L - w)``.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
        The rows that the directions were fitted on.
    directions : ndarray of shape (n_columns, n_directions)
        From `fit_directions`.
    rows_as_new : {ndarray, sparse array} of shape (n_rows, n_columns), default=None
        The same rows as they would be if they were not among `rows`, the ``b`` above.
        None takes `rows`.

    Returns
    -------
    ndarray of shape (n_rows, n_directions)
    """
    if rows_as_new is None:
        rows_as_new = rows
    # The comments below name symbols that the docstring defines, such as `z`. Each row
    # has its own `a`, `b`, `r` and `z`.
    coordinates = along(rows, directions)  # z
    coordinates_as_new = along(rows_as_new, directions)  # V.T @ b
    # r @ r: the squared length of a row, less the squared length along the directions.
    squared_rests = _products_of_rows(rows, rows)
    squared_rests -= (coordinates**2).sum(axis=1)
    # r @ b: the product of a row with the same row of `rows_as_new`, less the product
    # along the directions.
    rest_products = _products_of_rows(rows, rows_as_new)
    rest_products -= (coordinates * coordinates_as_new).sum(axis=1)
    squares = (coordinates**2).sum(axis=0)  # diagonal of L, (n_directions,)
    # L - w: the sum of squares of the rows along each direction, less their sum of
    # squares along a vector orthogonal to the directions. The latter sum is a mean over
    # such vectors. (n_directions,)
    gaps = squares - _squares_along_rests(rows, coordinates, squared_rests)
    # D @ z: coordinates divided by L - w. If L - w is not positive, the rows do not
    # extend more along the direction than along an orthogonal vector. The coordinate is
    # then not corrected.
    scaled_coordinates = np.divide(
        coordinates, gaps, out=np.zeros_like(coordinates), where=gaps > 0
    )
    leverage = (coordinates * scaled_coordinates).sum(axis=1)  # z @ D @ z
    due_to_others = np.maximum(1 - leverage, _LEAST_REST)
    scaled_products = rest_products / due_to_others
    # D @ z * (r @ b) / (1 - z @ D @ z)
    due_to_row = scaled_coordinates * scaled_products[:, np.newaxis]
    # The formula of first order may overshoot. So a coordinate may shrink to 0, but
    # neither grow nor change its sign.
    lowest = np.minimum(coordinates_as_new, 0)
    highest = np.maximum(coordinates_as_new, 0)
    return np.clip(coordinates_as_new - due_to_row, lowest, highest)


def _squares_along_rests(rows, coordinates, squared_rests):
    """Return the sum of squares of rows, along a vector orthogonal to the directions.

    The vector is the rest of a row: its part orthogonal to the directions. Each other
    row has a coordinate along this rest. The squares of these coordinates are added up.
    The result is a weighted mean of such sums over a sample of rows. A sampled row is
    weighted by the squared length of its rest.

    Parameters
    ----------
    rows : {ndarray, sparse array} of shape (n_rows, n_columns)
    coordinates : ndarray of shape (n_rows, n_directions)
        Coordinates of the rows along the directions.
    squared_rests : ndarray of shape (n_rows,)
        Squared lengths of the rests of the rows.

    Returns
    -------
    float
        It is 0 if the sampled rows have no rest.
    """
    # Every `step`-th row is sampled.
    step = -(-len(coordinates) // _SAMPLED_ROWS)  # rounded up
    products = rows @ rows[::step].T  # (n_rows, n_sampled)
    if issparse(products):
        products = products.toarray()
    # A sampled row is the sum of two parts: one along the directions, and one that is
    # orthogonal to them, its rest. For the row and for each part, squared products with
    # all rows are summed. The sum for the row is the total of the sums for both parts.
    squares = (coordinates**2).sum(axis=0)  # (n_directions,)
    with_row = (products**2).sum(axis=0)  # (n_sampled,)
    with_part_along = (coordinates[::step] ** 2) @ squares
    # Squared product of the rest of a sampled row with this row itself.
    with_itself = squared_rests[::step] ** 2
    # Sum of the squared products of the rest with all other rows. It is the sum of the
    # rows' squared coordinates along the rest, times the squared length of the rest.
    of_others = with_row - with_part_along - with_itself
    total_weight = squared_rests[::step].sum()
    if total_weight <= 0:
        # The sampled rows have no part that is orthogonal to the directions. Rounding
        # may make this sum of squares negative.
        return 0.0
    # The result is a sum of squares. Below 0 it is rounding.
    return max(float(of_others.sum() / total_weight), 0.0)


def _products_of_rows(first, second):
    """Return the inner product of each row with the same row of another table.

    Parameters
    ----------
    first, second : {ndarray, sparse array} of shape (n_rows, n_columns)
        Both dense or both sparse.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    products = first.multiply(second) if issparse(first) else first * second
    # Sums of a sparse matrix have the shape (n_rows, 1).
    return np.asarray(products.sum(axis=1), dtype=np.float64).ravel()
