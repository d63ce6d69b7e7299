"""Checks of what users give, numbers, rows, weights, probabilities, and warnings about it."""

import sys
import warnings
from numbers import Real

import numpy as np
from sklearn.utils.validation import validate_data

from skroute.utils._compat import num_samples
from skroute.utils._frames import is_missing, is_text
from skroute.utils._named import check_rows_match
from skroute.utils._tensors import on_host

# Room for the rounding of probabilities, half precision included. Logits are far
# outside.
_PROBABILITY_ROOM = 0.01
# Largest weight that is read as a count of rows: a bootstrap sample repeats no row more
# often (the chance is 1e-15).
_LARGEST_COUNT = 16
# Relative room for the rounding of weights that were multiplied or divided by a number.
_WEIGHT_ROOM = 1e-9
# Significant bits of a weight that is not a count. Rounding in another unit is far
# below them.
_WEIGHT_BITS = 24
# Bytes of a number in double precision. Shorter numbers may lose the sum of a row to
# rounding.
_DOUBLE_BYTES = 8
# Share of rows that must sum to 1 before the others may count as rounded. GaussianNB on
# dates in single precision rounds up to 45 % of them; scores of another kind hardly
# ever sum to 1.
_LEAST_SUMMING = 0.25
# Sums nearer to 1 than this are left as the member gave them: single precision is this
# exact.
_SUM_ROOM = 1e-6
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
    # To numpy the largest float is an overflow beside a smaller type, and a whole
    # number may be beyond all floats.
    return bool(0 <= value < np.inf) and int(value) <= sys.float_info.max


def check_numbers(
    values, name, *, shape=None, low=-np.inf, high=np.inf, allow_nan=False
):
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
        array = floats_of(values)
        if array is None:
            # Without numpy's error: nobody else should read what may be the text of a
            # row.
            raise ValueError(f"{name} must be numbers, got {type(values).__name__}.")
    if shape is not None and (
        array.ndim != len(shape)
        or any(n not in (None, m) for n, m in zip(shape, array.shape))
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
        raise ValueError(
            f"{name} must have no missing values: {missing.sum()} are NaN."
        )
    wrong = ~missing & ~right
    if wrong.any():
        span = f"from {low:g} to {high:g}" if np.isfinite(high) else f"at least {low:g}"
        span = "" if np.isinf(low) and np.isinf(high) else f" and {span}"
        raise ValueError(
            f"{name} must be finite{span}, got {float(array[wrong].flat[0])!r}."
        )
    return array


def check_row_weights(weight, n_rows, name="sample_weight"):
    """Return weights of rows as float64, or raise an error if they are no weights of a mean.

    Parameters
    ----------
    weight : array-like of shape (n_rows,), float or None
        Finite, not negative, and not zero for all rows. A number is the weight of every
        row, None is 1.
    n_rows : int
    name : str, default="sample_weight"
        Of the argument.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64

    Raises
    ------
    ValueError
    """
    if weight is None:
        return np.ones(n_rows)
    weight = check_numbers(weight, name, low=0.0)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), got shape {weight.shape}."
        )
    # A sum that overflows has no mean; 0 has none either.
    with np.errstate(over="ignore"):
        total = np.sum(weight)
    if not 0 < total < np.inf:
        raise ValueError(
            f"{name} must have a sum that is finite and not zero, got {float(total)!r}. Rows of "
            "weight 0 count for nothing: give some row another weight."
        )
    return weight


def floats_of(values):
    """Return values as a float64 array, NaN where pandas lacks one, or None if not all are numbers.

    Texts are not numbers, also those of digits.
    """
    try:
        cells = np.asarray(on_host(values))
        if _any_text(cells):
            return None
        if hasattr(values, "iloc"):
            # pandas' own missing values become NaN.
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _any_text(cells):
    """Return True if some cell of an array is a text."""
    if cells.dtype.kind == "O":
        return any(map(is_text, cells.flat))
    return cells.dtype.kind in "UST"


def check_weights(params, n_samples):
    """Refuse a `sample_weight` that is not one per row, before some of the rows are taken.

    One that has as many entries as these would be paired with them, whoever they belong
    to.
    """
    weight = params.get("sample_weight")
    if hasattr(weight, "__len__") and (given := num_samples(weight)) != n_samples:
        raise ValueError(
            f"sample_weight must have one entry per row: there are {n_samples} rows and {given} "
            "weights."
        )


def given_weights(sample_weight, rows):
    """Return the weights of rows as numbers, checked, in the unit that they are given in.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,) or None
    rows : array-like of n_rows

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64; or None if there are none

    Raises
    ------
    ValueError
        If a weight is negative or not finite, if all of them are 0, or for another
        number of them.
    """
    if sample_weight is None:
        return None
    return check_row_weights(sample_weight, num_samples(rows))


def relative_weights(weight):
    """Return weights in units of one row, the same for `weight` times any positive number.

    What regularises depends on how many rows there are, and so on the unit of weights.
    Weights that are whole multiples of the smallest one, up to 16, are counts: the
    smallest is one row, so that a weight of 2 equals the row twice. Other weights get
    the mean 1 over the rows that have weight.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,), dtype=float64
        Finite weights of at least 0, not all of them 0.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
        0 where `weight` is 0. Weights that are no counts are rounded to single
        precision, so that not even the last bit depends on the unit.
    """
    # Sums of large weights overflow, and quotients of subnormal numbers are rounded.
    shares = weight / weight.max()
    positive = shares[shares > 0]
    multiples = shares / positive.min()
    counts = np.rint(multiples)
    off = np.abs(multiples - counts)
    if counts.max() <= _LARGEST_COUNT and (off <= _WEIGHT_ROOM * counts).all():
        return counts
    mantissa, exponent = np.frexp(shares / positive.mean())
    rounded = np.rint(np.ldexp(mantissa, _WEIGHT_BITS))
    return np.ldexp(rounded, exponent - _WEIGHT_BITS)


def none_if_equal(weight):
    """Return weights, or None if all rows weigh the same: these are rows without weights."""
    return None if np.ptp(weight) == 0 else weight


def folds_among(folds, kept, n_rows):
    """Return the folds of some rows, in positions among them; folds without any are left out.

    Parameters
    ----------
    folds : list of (ndarray of int, ndarray of int)
    kept : ndarray of int
        Positions of the rows that stay, rising.
    n_rows : int
        How many rows there were.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
    """
    position = np.full(n_rows, -1)
    position[kept] = np.arange(len(kept))
    kept_folds = []
    for train, test in folds:
        train, test = (position[rows] for rows in (train, test))
        train, test = (rows[rows >= 0] for rows in (train, test))
        if not len(test):
            continue
        if not len(train):
            raise ValueError(
                f"All of the {len(kept)} rows with a positive sample_weight are in one fold, so "
                "that nothing can be estimated out of sample. Use another cv, or more such rows."
            )
        kept_folds.append((train, test))
    return kept_folds


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
    if not hasattr(X, "tocsr"):
        refuse_texts(X=X)
    # Compiled code reads one layout; the sums of a fit are those of the layout given.
    order = None if reset else "C"
    return validate_data(reader, X, reset=reset, dtype=dtype, order=order)


def refuse_texts(**given):
    """Refuse texts where numbers are read: NumPy would read "1_1" as 11 and "nan" as missing."""
    for name, values in given.items():
        if _any_text(np.asarray(values)):
            raise ValueError(
                f"{name} must be numbers, got texts. Texts stay texts: convert them first, for "
                "example with astype(float)."
            )


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
        In the shape of `values`. Of a sparse matrix one entry for each cell that it
        stores.
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
        What else is given of the same rows, by the names of the arguments, such as X
        and `sample_weight`.

    Raises
    ------
    ValueError
        If a true answer is missing, or if rows have the same labels in another order.
    """
    check_rows_match(**others, **{name: y})
    refuse_missing(**{name: y})


def check_probabilities(
    proba, name, method="predict_proba", total=1.0, *, proven=False
):
    """Refuse numbers that are no probabilities, such as logits.

    Rows in single or half precision whose sum was lost to rounding are divided by it,
    with a warning.

    Parameters
    ----------
    proba : ndarray of shape (n_samples, n_labels)
    name : str
        The member that gave them.
    method : str, default="predict_proba"
        Its method that gave them.
    total : float or None, default=1.0
        What each row sums to; None for scores of labels that do not exclude one
        another.
    proven : bool, default=False
        True if the member gave probabilities in `fit`. Then any number of rows may be
        rounded.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
        `proba`, with rounded rows divided by their sums.

    Raises
    ------
    ValueError
        If a number is outside of 0 to 1, or the sum of a row is not `total`.
    """
    low = -_PROBABILITY_ROOM
    high = 1 + _PROBABILITY_ROOM
    outside = ~((proba >= low) & (proba <= high)).all(axis=1)
    wrong = outside
    if total is not None:
        sums = proba.sum(axis=1, dtype=np.float64)
        wrong = outside | ~(np.abs(sums - total) <= _PROBABILITY_ROOM)
    if not wrong.any():
        return proba
    is_short = proba.dtype.kind == "f" and proba.dtype.itemsize < _DOUBLE_BYTES
    if is_short and not outside.any() and (proven or np.mean(~wrong) >= _LEAST_SUMMING):
        first = [float(f"{value:.3g}") for value in proba[wrong][0][:5]]
        warn(
            f"{method} of {name!r} gave {wrong.sum()} of {len(proba)} rows that do not sum to 1, "
            f"such as {first!r}, in {proba.dtype}. They are divided by their sums. Rounding is "
            "the likely cause: give the member float64, or scale columns of large numbers such "
            "as dates."
        )
        rounded = proba.copy()
        rounded[wrong] = with_sum_one(proba[wrong])
        return rounded
    row = [float(f"{value:.3g}") for value in proba[wrong][0][:5]]
    end = "" if total is None else " with the sum 1 in each row"
    raise ValueError(
        f"{method} of {name!r} must give probabilities between 0 and 1{end}, but it gave "
        f"{row!r} for a row. Logits need a softmax first: for a skorch net set "
        'predict_nonlinearity (the default "auto" knows the losses of torch alone); scores '
        "of another kind need sklearn.calibration.CalibratedClassifierCV."
    )


def with_sum_one(proba):
    """Return probabilities divided by the sum of their row; even ones where the sum is 0.

    Rows whose sum is 1 up to the rounding of single precision stay as they are.
    """
    sums = proba.sum(axis=1, dtype=np.float64)
    off = (np.abs(sums - 1) > _SUM_ROOM) | (proba < 0).any(axis=1)
    if not off.any():
        return proba
    divided = proba.astype(np.float64)
    divided[off] = np.clip(divided[off], 0.0, None)
    sums = divided[off].sum(axis=1, keepdims=True)
    even = np.full_like(divided[off], 1 / proba.shape[1])
    divided[off] = np.divide(divided[off], sums, out=even, where=sums > 0)
    return divided


def check_text_names(names, parameter):
    """Refuse names that are not text, in a list of named estimators."""
    for name in names:
        if not isinstance(name, str):
            raise ValueError(
                f"{parameter} has the name {name!r} of type {type(name).__name__}, but names must "
                f"be text. Give {parameter} as a list of (name, estimator) tuples."
            )


def check_known_labels(y, classes, name="y"):
    """Refuse labels that are not among `classes`, such as numbers where the classes are text."""
    known = dict.fromkeys(np.asarray(classes).tolist())
    unknown = [
        label for label in np.unique(np.asarray(y)).tolist() if label not in known
    ]
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
    return isinstance(
        next((label for label in labels if not is_missing(label)), ""), str
    )


def warn(message, category=UserWarning):
    """Warn about the first line outside of skroute, scikit-learn and joblib."""
    frame, level = sys._getframe(1), 2
    while (
        frame.f_back is not None
        and frame.f_globals["__name__"].partition(".")[0] in _INNER
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
