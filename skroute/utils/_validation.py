"""Checks of what users give, numbers, rows, weights, probabilities, and warnings about it."""

import sys
import warnings
from numbers import Real

import numpy as np
from sklearn.utils.validation import validate_data

from skroute.utils._compat import num_samples
from skroute.utils._frames import is_missing
from skroute.utils._named import check_rows_match
from skroute.utils._tensors import on_host

# Room for the rounding of probabilities, half precision included. Logits are far outside.
_PROBABILITY_ROOM = 0.01
# Frames of these are no lines of the user's code.
_INNER = ("skroute", "sklearn", "joblib")


def read_only(array, dtype=None):
    """The array in C order, not to be written to: one type to compiled code, whoever made it."""
    array = np.ascontiguousarray(array, dtype).view()
    array.setflags(write=False)
    return array


def is_amount(value):
    """Whether a value is a finite number that is at least 0."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return False
    # To numpy the largest float is an overflow beside a smaller type, and a whole number may be
    # beyond all floats.
    return bool(0 <= value < np.inf) and int(value) <= sys.float_info.max


def check_numbers(values, name, *, shape=None, low=-np.inf, high=np.inf, allow_nan=False):
    """Numbers as a float64 array; a ValueError by the argument's name for anything else.

    Parameters
    ----------
    values : array-like or float
    name : str
        Of the argument.
    shape : tuple of (int or None), default=None
        What it must be; None stands for any length. ``()`` asks for a single number.
    low, high : float
        The range, ends included; infinity is refused at any range.
    allow_nan : bool, default=False
        Whether entries may be missing.

    Returns
    -------
    ndarray of float64
    """
    array = values
    # A stream checks a few numbers for each request: those that are right take no time.
    if type(values) is not np.ndarray or values.dtype != np.float64:
        refuse_masked(**{name: values})
        try:
            if hasattr(values, "iloc"):
                # pandas' own missing values become NaN.
                array = values.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                array = np.asarray(on_host(values), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            array = None
        if array is None:
            # Without numpy's error: nobody else should read what may be the text of a row.
            raise ValueError(f"{name} must be numbers, got {type(values).__name__}.")
    if shape is not None and (
        array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape))
    ):
        wanted = str(tuple("any" if n is None else n for n in shape)).replace("'", "")
        raise ValueError(f"{name} must have shape {wanted}, got shape {array.shape}.")
    right = np.isfinite(array)
    if low > -np.inf or high < np.inf:
        right &= (array >= low) & (array <= high)
    if right.all():
        return array
    missing = np.isnan(array)
    if missing.any() and not allow_nan:
        raise ValueError(f"{name} must have no missing values: {missing.sum()} are NaN.")
    wrong = ~missing & ~right
    if wrong.any():
        span = f"from {low:g} to {high:g}" if np.isfinite(high) else f"at least {low:g}"
        span = "" if np.isinf(low) and np.isinf(high) else f" and {span}"
        raise ValueError(f"{name} must be finite{span}, got {float(array[wrong].flat[0])!r}.")
    return array


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
    if hasattr(X, "acquisition_log_"):
        raise TypeError(
            f"{'fit' if reader is None else type(reader).__name__} reads whole rows and buys no "
            f"columns, got {type(X).__name__}. Give it a data frame or an array of rows with all "
            "that can be bought."
        )
    return X


def whole_rows(X, reader, reset=False, dtype=np.float64, **others):
    """Rows of finite numbers: no source of features, and no masked entries.

    Nor are there any in `others`, which belong to the rows.
    """
    refuse_masked(X=X, **others)
    plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype == np.float64 and len(X)
    if plain and not reset and X.shape[1] == reader.n_features_in_:
        with np.errstate(over="ignore", invalid="ignore"):
            # A sum is finite unless an entry is not, or it overflows: then look again.
            finite = np.isfinite(X.sum())
        if finite and not hasattr(reader, "feature_names_in_"):
            return X
    X = on_host(refuse_source(X, reader))
    # Compiled code reads one layout; the sums of a fit are those of the layout given.
    order = None if reset else "C"
    return validate_data(reader, X, reset=reset, dtype=dtype, order=order)


def refuse_masked(**given):
    """Refuse masked entries: what is under a mask would be read as if it were known."""
    for name, values in given.items():
        # By its type: pandas' arrays have a `_mask`, too, and so may a frame's columns.
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ValueError(
                f"{name} must have no missing values: {np.ma.count_masked(values)} are masked. "
                "Leave these rows out, or fill them."
            )


def missing_entries(values):
    """Return which entries of labels or numbers are missing, as an array of booleans.

    None, NaN, pandas' NA and NaT, polars' null and masked entries are missing.

    Parameters
    ----------
    values : array-like, series, dataframe, sparse matrix or tensor

    Returns
    -------
    ndarray of bool
        In the shape of `values`. Of a sparse matrix one entry for each cell that it stores.
    """
    if hasattr(values, "tocsr"):
        values = values.tocsr().data
    if isinstance(values, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(values)
        return masked | missing_entries(values.filled())
    if isinstance(values, (list, tuple)):
        # numpy makes a text of a NaN that stands beside texts.
        cells = np.array(values, dtype=object)
    else:
        cells = np.asarray(on_host(values))
    if cells.dtype.kind in "fcmM":
        return np.isnan(cells)
    if cells.dtype.kind not in "OT":
        return np.zeros(cells.shape, dtype=bool)
    missing = [is_missing(cell) for cell in cells.ravel().tolist()]
    return np.array(missing, dtype=bool).reshape(cells.shape)


def refuse_missing(**targets):
    """Refuse true answers that are missing: each would count as a wrong answer.

    Parameters
    ----------
    **targets : array-like
        True labels or numbers by the names of the arguments; None is left alone.

    Raises
    ------
    ValueError
    """
    refuse_masked(**targets)
    for name, values in targets.items():
        if values is None:
            continue
        missing = missing_entries(values)
        if missing.any():
            raise ValueError(
                f"{name} must have no missing values: {missing.sum()} of {missing.size} are None, "
                "NaN or NA, and an answer cannot be compared with them. Leave these rows out."
            )


def check_truth(*, y, name="y", **others):
    """Check true answers before they are compared with others.

    Parameters
    ----------
    y : array-like
        True labels or numbers.
    name : str, default="y"
        Of the argument.
    **others : array-like
        What else is given of the same rows, by the names of the arguments, such as X and
        `sample_weight`.

    Raises
    ------
    ValueError
        If a true answer is missing, or if rows have the same labels in another order.
    """
    check_rows_match(**others, **{name: y})
    refuse_missing(**{name: y})


def check_probabilities(proba, name, method="predict_proba", total=1.0):
    """Refuse numbers that are no probabilities, such as logits.

    Parameters
    ----------
    proba : ndarray of shape (n_samples, n_labels)
    name : str
        The member that gave them.
    method : str, default="predict_proba"
        Its method that gave them.
    total : float or None, default=1.0
        What each row sums to; None for scores of labels that do not exclude one another.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
        `proba`.

    Raises
    ------
    ValueError
    """
    low, high = -_PROBABILITY_ROOM, 1 + _PROBABILITY_ROOM
    wrong = ~((proba >= low) & (proba <= high)).all(axis=1)
    if total is not None:
        wrong |= ~(np.abs(proba.sum(axis=1, dtype=np.float64) - total) <= _PROBABILITY_ROOM)
    if wrong.any():
        row = [float(f"{value:.3g}") for value in proba[wrong][0][:5]]
        end = "" if total is None else " with the sum 1 in each row"
        raise ValueError(
            f"{method} of {name!r} must give probabilities between 0 and 1{end}, but it gave "
            f"{row!r} for a row. Logits need a softmax first: for a skorch net set "
            'predict_nonlinearity (the default "auto" knows the losses of torch alone); scores '
            "of another kind need sklearn.calibration.CalibratedClassifierCV."
        )
    return proba


def check_known_labels(y, classes, name="y"):
    """Refuse labels that are not among `classes`, such as numbers where the classes are text."""
    known = dict.fromkeys(np.asarray(classes).tolist())
    unknown = [label for label in np.unique(np.asarray(y)).tolist() if label not in known]
    if unknown:
        known = list(known)
        raise ValueError(
            f"{name} has labels that fit has not seen: {unknown[:5]!r} of type "
            f"{type(unknown[0]).__name__}; known are {known[:5]!r} of type "
            f"{type(known[0]).__name__}."
        )


def check_some_known(y, classes):
    """Refuse labels of another type than `classes`, which would only look like wrong answers."""
    # To numpy a truth value is 0 or 1.
    foreign = y.dtype.kind == "b" and len(classes) > 2
    if foreign or not np.isin(y.astype(object), classes.astype(object)).any():
        raise ValueError(
            f"No label in y, of dtype {y.dtype}, is one of classes_, of dtype {classes.dtype}: "
            "no answer could be right."
        )


def holds_texts(labels):
    """Whether labels are texts, by the first one that is there."""
    if labels.dtype.kind != "O":
        return labels.dtype.kind in "UST"
    return isinstance(next((label for label in labels if label is not None), ""), str)


def warn(message, category=UserWarning):
    """Warn about the first line outside of skroute, scikit-learn and joblib."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
