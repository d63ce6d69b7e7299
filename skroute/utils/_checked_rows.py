"""Rows of numbers for a fitted estimator, checked in a few microseconds where they are plain."""

import numpy as np
from sklearn.utils.validation import validate_data

from skroute.utils._compat import num_samples
from skroute.utils._tensors import on_host


def checked_rows(estimator, X):
    """Rows of finite numbers as an array, as many features as in `fit`.

    Parameters
    ----------
    estimator : estimator
        Fitted.

    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_samples, n_features), float64 or float32
    """
    plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype == np.float64
    if plain and len(X) and X.shape[1] == estimator.n_features_in_:
        with np.errstate(over="ignore", invalid="ignore"):
            # A sum is finite unless an entry is not, or it overflows: then look again.
            finite = np.isfinite(X.sum())
        if finite and not hasattr(estimator, "feature_names_in_"):
            return X
    refuse_masked(X=X)
    types = [np.float64, np.float32]
    return validate_data(estimator, on_host(X), dtype=types, order="C", reset=False)


def check_weights(params, n_samples):
    """Refuse a `sample_weight` that is not one per row, before some of the rows are taken.

    One that has as many entries as these would be paired with them, whoever they belong to.
    """
    weight = params.get("sample_weight")
    if hasattr(weight, "__len__") and (given := num_samples(weight)) != n_samples:
        raise ValueError(
            f"sample_weight must have one entry per row: there are {n_samples} rows and {given} "
            "weights."
        )


def refuse_source(X, reader=None):
    """X, unless it is a source of features: `fit`, or a fitted `reader`, reads whole rows."""
    if not hasattr(X, "acquisition_log_"):
        return X
    given = type(X).__name__
    if reader is None:
        raise TypeError(
            f"fit needs rows with all that can be bought, got {given}. Give it a data frame or an "
            "array of past rows."
        )
    raise TypeError(
        f"{type(reader).__name__} reads whole rows and buys no columns, got {given}. Give it a "
        "data frame or an array."
    )


def whole_rows(X, reader, reset=False, **others):
    """Rows of finite numbers as float64: no source of features, and no masked entries.

    Nor are there any in `others`, which belong to the rows.
    """
    refuse_masked(X=X, **others)
    return validate_data(reader, on_host(refuse_source(X, reader)), reset=reset, dtype=np.float64)


def refuse_masked(**given):
    """Refuse masked entries: what is under a mask would be read as if it were known."""
    for name, values in given.items():
        # By its type: pandas' arrays have a `_mask`, too, and so may a frame's columns.
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ValueError(
                f"{name} must have no missing values: {np.ma.count_masked(values)} are masked. "
                "Leave these rows out, or fill them."
            )
