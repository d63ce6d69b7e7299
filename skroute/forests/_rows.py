"""Rows as the array that the library of a forest reads."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from skroute.utils._tensors import is_dataset
from skroute.utils._validation import read_only

# Names of the classes in which libraries store rows. Forests cannot read rows from
# objects of these classes.
_TABLES_OF_LIBRARIES = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")
# Replaces a negative number in a column of categories. It is no category.
_NO_CATEGORY = -1


def refuse_tables(X):
    """Raise a TypeError for torch data sets, and for tables such as a `DMatrix`."""
    if is_dataset(X) or type(X).__name__ in _TABLES_OF_LIBRARIES:
        raise TypeError(
            f"X is a {type(X).__name__}, of which trees read no rows: give an array, a "
            "tensor or a data frame."
        )


def are_plain(forest, X):
    """Return True if rows are an array of numbers with the right number of columns.

    Parameters
    ----------
    forest : Forest
    X : object
        Rows of any kind.

    Returns
    -------
    bool
        True for an array of numbers of the right width, with at least one row.
    """
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.kind in "fiu"
        and X.shape[1] == forest.n_features
        and len(X) > 0
        and not forest.read_rule.columns.categories_of_arrays
    )


def cast_numbers(rule, X):
    """Return an array of numbers in the type to which the library first casts them.

    Arrays in single or double precision, and arrays of objects, are returned as they
    are. `rule` is a `ReadRule`.
    """
    # Numbers of these types stay as they are. Kind "O" are Python objects.
    stays = X.dtype.kind == "O" or X.dtype in (np.float32, np.float64)
    # Without `cast`, the library casts numbers directly to `dtype`.
    if stays or not rule.cast:
        return X
    return X.astype(rule.cast)


def rows_of(forest, X):
    """Return the rows as the array that the source library reads.

    Parameters
    ----------
    forest : Forest
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows as the source library is given them.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        In C order, read-only.

    Raises
    ------
    ValueError
        If the library refuses such values, or the number of columns is another one.
    """
    if are_plain(forest, X):
        # Finite numbers need no check by scikit-learn, which takes long for few rows.
        rows = _converted(forest.read_rule, X)
        if forest.read_rule.finite is False or np.isfinite(rows).all():
            return read_only(_without_negative_codes(forest, rows))
    # Other rows, and numbers that are not finite, are checked by scikit-learn, which
    # raises the errors.
    rows = _checked(forest, X)
    return read_only(_without_negative_codes(forest, rows))


def _converted(rule, X):
    """Return an array of numbers in the type in which the library reads rows."""
    if X.dtype == rule.dtype:
        return X
    # Numbers beyond single precision become infinite, which `rows_of` checks.
    with np.errstate(over="ignore"):
        return cast_numbers(rule, X).astype(rule.dtype)


def _checked(forest, X):
    """Return rows of any kind as an array in the type of the library, after all checks.

    Parameters and errors are those of :func:`rows_of`.
    """
    rule = forest.read_rule
    refuse_tables(X)
    if issparse(X):
        X = _dense_matrix(X, rule.absent)
    # Sparse columns of a frame become dense, too.
    X = rule.columns.dense(X)
    # Categories become numbers. Frames may have categories. In some libraries, arrays
    # may have them, too.
    if hasattr(X, "columns") or rule.columns.categories_of_arrays:
        # Categories are read column by column, which needs the right columns.
        if hasattr(X, "shape"):
            _check_width(forest, X)
        X = rule.columns.numbers(X)
    # Numbers beyond single precision become infinite. `check_array` refuses them if
    # `finite`, its option in the rule of the library, does not allow infinity.
    with np.errstate(over="ignore"):
        # With an empty `cast`, the library casts numbers once: to `dtype`.
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
    return X


def _without_negative_codes(forest, X):
    """Return rows for the kernels: for XGBoost, category codes below 0 become -1.

    Kernels read a number between -1 and 0 as category 0, as most libraries do. XGBoost
    reads no negative number as a category. For XGBoost, negative numbers in columns of
    categories become `_NO_CATEGORY`.
    """
    # Trees without the flag `special` have no categories.
    if forest.read_rule.columns.reads_negative_codes or not forest.trees.special:
        return X
    X = X.copy()
    for column in forest.code_columns:
        X[X[:, column] < 0, column] = _NO_CATEGORY
    return X


def _dense_matrix(X, absent):
    """Return a sparse matrix as an array, with `absent` for entries not stored in it.

    `absent` is 0 or NaN: the value that the library reads for such an entry.
    """
    if absent == 0.0:
        return X.toarray()
    # A matrix may have several entries for one cell. The conversion to CSR adds them
    # up.
    entries = X.tocsr().tocoo()
    dense = np.full(X.shape, absent, dtype=np.result_type(X.dtype, np.float32))
    dense[entries.row, entries.col] = entries.data
    return dense


def _check_width(forest, X):
    """Raise a ValueError if the number of columns differs from that seen in `fit`."""
    if X.shape[1] != forest.n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but the ensemble was trained on "
            f"{forest.n_features}."
        )
