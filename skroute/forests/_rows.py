"""Rows as the array that the library of a forest reads."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from skroute.utils._tensors import is_dataset
from skroute.utils._validation import read_only

# Classes in which the libraries hold rows for themselves, and do not give them back.
_TABLES_OF_LIBRARIES = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")


def refuse_tables(X):
    """Raise a TypeError for a torch data set, and for a table that a library made for itself."""
    if is_dataset(X) or type(X).__name__ in _TABLES_OF_LIBRARIES:
        raise TypeError(
            f"X is a {type(X).__name__}, of which trees read no rows: give an array, a tensor or a "
            "data frame."
        )


def are_plain(forest, X):
    """Whether rows are an array of numbers of the right width: they need no more checks."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.kind in "fiu"
        and X.shape[1] == forest.n_features
        and len(X) > 0
        and not forest.read_rule.columns.categories_of_arrays
    )


def cast_numbers(rule, X):
    """Cast numbers in neither single nor double precision to the type that the library uses."""
    if not rule.cast or X.dtype.kind == "O" or X.dtype in (np.float32, np.float64):
        return X
    return X.astype(rule.cast)


def rows_of(forest, X):
    """Return the rows as the array that the source library reads: in C order, read-only.

    Raises
    ------
    ValueError
        If the library refuses such values, or the number of columns is another one.
    """
    rule = forest.read_rule
    if are_plain(forest, X):
        # scikit-learn's check of one row takes as long as that of many.
        rows = X
        if X.dtype != rule.dtype:
            with np.errstate(over="ignore"):
                rows = cast_numbers(rule, X).astype(rule.dtype)
        if rule.finite is False or np.isfinite(rows).all():
            return read_only(_without_negative_codes(forest, rows))
    refuse_tables(X)
    if issparse(X):
        X = _dense(X, rule.absent)
    X = rule.columns.dense(X)
    if hasattr(X, "columns") or rule.columns.categories_of_arrays:
        if hasattr(X, "shape"):
            _check_width(forest, X)
        X = rule.columns.numbers(X)
    # What is beyond single precision becomes infinite, which the library takes or refuses.
    with np.errstate(over="ignore"):
        if rule.cast and isinstance(X, (np.ndarray, list)):
            X = cast_numbers(rule, np.asarray(X))
        X = check_array(
            X,
            dtype=rule.dtype,
            order="C",
            ensure_all_finite=rule.finite,
            input_name="X",
        )
    _check_width(forest, X)
    return read_only(_without_negative_codes(forest, X))


def _without_negative_codes(forest, X):
    """For XGBoost no negative number is a category, where others cut -0.5 off to 0."""
    if forest.read_rule.columns.reads_negative_codes or not forest.trees.special:
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


def _check_width(forest, X):
    if X.shape[1] != forest.n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but the ensemble was trained on {forest.n_features}."
        )
