"""Rows as the array that the library of a forest reads."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import cells_of, is_missing
from skroute.utils._tensors import is_dataset
from skroute.utils._validation import read_only


def are_plain(forest, X):
    """Whether rows are an array of numbers of the right width: they need no more checks."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.kind in "fiu"
        and X.shape[1] == forest.n_features
        and len(X) > 0
        and not (forest.categories and forest.encode_arrays)
    )


def cast_numbers(forest, X):
    """Numbers in neither single nor double precision as the type that the library makes of them."""
    if not forest.cast or X.dtype.kind == "O" or X.dtype in (np.float32, np.float64):
        return X
    return X.astype(forest.cast)


def rows_of(forest, X):
    """The rows as the array that the source library reads: in C order, read-only.

    A ValueError if the library refuses such values, or the number of columns is another one.
    """
    if are_plain(forest, X):
        # scikit-learn's check of one row takes as long as that of many.
        rows = X
        if X.dtype != forest.dtype:
            with np.errstate(over="ignore"):
                rows = cast_numbers(forest, X).astype(forest.dtype)
        if forest.finite is False or np.isfinite(rows).all():
            return read_only(_without_negative_codes(forest, rows))
    if is_dataset(X):
        raise TypeError(
            f"X is a {type(X).__name__}, of which trees read no rows: give an array, a tensor or a "
            "data frame."
        )
    if issparse(X):
        X = _dense(X, forest.absent)
    if forest.categories and (forest.encode_arrays or hasattr(X, "columns")):
        X = _encoded(forest, X)
    # What is beyond single precision becomes infinite, which the library takes or refuses.
    with np.errstate(over="ignore"):
        if forest.cast and isinstance(X, (np.ndarray, list)):
            X = cast_numbers(forest, np.asarray(X))
        X = check_array(
            X, dtype=forest.dtype, order="C", ensure_all_finite=forest.finite, input_name="X"
        )
    _check_width(forest, X)
    return read_only(_without_negative_codes(forest, X))


def _without_negative_codes(forest, X):
    """For XGBoost no negative number is a category, where others cut -0.5 off to 0."""
    if not (forest.refuses_unseen and forest.trees.special):
        return X
    X = X.copy()
    for column in forest.code_columns:
        X[X[:, column] < 0, column] = -1
    return X


def _dense(X, absent):
    if absent == 0.0:
        return X.toarray()
    X = X.tocsr().tocoo()
    out = np.full(X.shape, absent, dtype=np.result_type(X.dtype, np.float32))
    out[X.row, X.col] = X.data
    return out


def _as_array(values, kind):
    """Cells as an array of a kind, of objects where some are of another kind."""
    try:
        return np.asarray(values, kind)
    except (TypeError, ValueError):
        return np.asarray(values, object)


def _encoded(forest, X):
    """Columns with categories as positions in them; NaN for a value that is not there."""
    if not hasattr(X, "columns"):
        X = check_array(X, dtype=None, ensure_all_finite=False)
    _check_width(forest, X)
    out = np.empty((num_samples(X), forest.n_features))
    for column in range(forest.n_features):
        values = _safe_indexing(X, column, axis=1)
        if column not in forest.categories:
            out[:, column] = np.asarray(values)
            continue
        known = np.asarray(forest.categories[column])
        # By value: whole numbers beyond 2**53 are no floats, also where one cell is missing. But
        # scikit-learn makes arrays first.
        kind = known.dtype if known.dtype.kind == "f" else None
        cells = _as_array(values, kind) if forest.encode_arrays else cells_of(values)
        cells = cells.tolist()
        # Missing is no category, also where the encoder lists it as the last one.
        codes = {value: i for i, value in enumerate(known.tolist()) if not is_missing(value)}
        found = out[:, column] = [codes.get(cell, np.nan) for cell in cells]
        if forest.refuses_unseen and any(
            code != code and not is_missing(cell) for code, cell in zip(found, cells)
        ):
            raise ValueError(
                f"Column {column} of X has categories that the ensemble was not fitted on; "
                "make them missing, or fit it on them."
            )
    return out


def _check_width(forest, X):
    if X.shape[1] != forest.n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but the ensemble was trained on {forest.n_features}."
        )
