"""Checks of arguments: numbers, rows, weights, labels, probabilities."""

import sys
import warnings
from numbers import Real

import numpy as np
from sklearn.utils.validation import validate_data

from skroute.utils._compat import num_samples
from skroute.utils._frames import is_missing, is_text
from skroute.utils._named import check_rows_match
from skroute.utils._tensors import on_host

# Largest difference of probabilities and their sums from the allowed numbers. Rounding
# stays below it, also in half precision. Logits are far outside.
_PROBABILITY_ROOM = 0.01
# Largest weight that is read as a count of rows. A bootstrap sample hardly ever repeats
# a row more often: the probability is 1e-15 for each row (1 / (17! e)).
_LARGEST_COUNT = 16
# Relative room for the rounding of weights that were multiplied or divided by a number.
_WEIGHT_ROOM = 1e-9
# Significant bits that are kept of a weight that is not a count: those of single
# precision. Rounding errors in another unit are far below the last of these bits.
_WEIGHT_BITS = 24
# Bytes of a number in double precision. In shorter numbers, rounding may change the sum
# of a row by more than `_PROBABILITY_ROOM`.
_DOUBLE_BYTES = 8
# Least share of the rows that must sum to 1, so that the other rows count as rounded.
# GaussianNB on dates in single precision changes the sums of up to 45 % of the rows.
# Scores of another kind hardly ever sum to 1.
_LEAST_SUMMING = 0.25
# A row of probabilities is not divided by its sum if the sum differs from 1 by at most
# this: sums in single precision are not more exact.
_SUM_ROOM = 1e-6
# Packages that a warning does not point to: it points to the code that calls them.
_INNER = ("skroute", "sklearn", "joblib")


def read_only(array, dtype=None):
    """Return a read-only view in C order, so that compiled code sees one array type.

    Parameters
    ----------
    array : array-like
        Copied only if it is not in C order, or has another dtype.
    dtype : dtype, default=None
        None: the dtype stays.

    Returns
    -------
    ndarray
    """
    array = np.ascontiguousarray(array, dtype).view()
    array.setflags(write=False)
    return array


def is_amount(value):
    """Return True if a value is a finite number of at least 0."""
    # True and False are of class Real, but not meant as amounts.
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return False
    is_finite = bool(0 <= value < np.inf)
    # A whole number of Python may exceed all floats. The value is compared as such a
    # number: in a shorter type of numpy, the largest float would overflow.
    return is_finite and int(value) <= sys.float_info.max


def check_numbers(
    values, name, *, shape=None, low=-np.inf, high=np.inf, allow_nan=False
):
    """Return numbers as a float64 array, or raise a ValueError that names the argument.

    Parameters
    ----------
    values : array-like or float
    name : str
        Name of the argument.
    shape : tuple of (int or None), default=None
        Required shape. None in it is any length. ``()`` is a single number.
    low, high : float
        The range, ends included. By default it has no ends. An infinite entry is always
        refused.
    allow_nan : bool, default=False
        If True, entries may be missing.

    Returns
    -------
    ndarray of float64
    """
    array = values
    # A stream checks a few numbers for each request, so the usual case must be fast.
    if type(values) is not np.ndarray or values.dtype != np.float64:
        refuse_masked(**{name: values})
        array = floats_of(values)
        if array is None:
            # numpy's error is not shown: it could have the private text of a row.
            raise ValueError(f"{name} must be numbers, got {type(values).__name__}.")
    if shape is not None and not _has_shape(array, shape):
        lengths = ["any" if length is None else length for length in shape]
        wanted = str(tuple(lengths)).replace("'", "")
        raise ValueError(f"{name} must have shape {wanted}, got shape {array.shape}.")
    # A mask of the entries, in the shape of `array`.
    is_right = np.isfinite(array)
    # Without a range, the comparisons are left out to save time.
    if low > -np.inf or high < np.inf:
        is_right &= (array >= low) & (array <= high)
    if is_right.all():
        return array
    missing = np.isnan(array)
    if missing.any() and not allow_nan:
        raise ValueError(
            f"{name} must have no missing values: {missing.sum()} are NaN."
        )
    is_wrong = ~missing & ~is_right
    if is_wrong.any():
        if np.isfinite(high):
            range_text = f" and from {low:g} to {high:g}"
        elif np.isfinite(low):
            range_text = f" and at least {low:g}"
        else:
            range_text = ""
        first_wrong = float(array[is_wrong].flat[0])
        raise ValueError(f"{name} must be finite{range_text}, got {first_wrong!r}.")
    return array


def _has_shape(array, shape):
    """Return True if an array has a shape, in which None is any length."""
    if array.ndim != len(shape):
        return False
    for length, required in zip(array.shape, shape):
        if required is not None and length != required:
            return False
    return True


def check_row_weights(weight, n_rows, name="sample_weight"):
    """Return weights of rows as float64, or raise an error if they allow no mean.

    Parameters
    ----------
    weight : array-like of shape (n_rows,), float or None
        Finite, not negative, and not zero for all rows. A number is the weight of every
        row, None is 1.
    n_rows : int
    name : str, default="sample_weight"
        Name of the argument.

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
    # A mean is divided by this sum, which must be neither infinite nor 0.
    with np.errstate(over="ignore"):
        total = np.sum(weight)
    if not 0 < total < np.inf:
        raise ValueError(
            f"{name} must have a sum that is finite and not zero, got "
            f"{float(total)!r}. Rows of weight 0 count for nothing: give some row "
            "another weight."
        )
    return weight


def floats_of(values):
    """Return values as a float64 array, or None if one of them is not a number.

    Missing values of pandas are NaN. Texts are not numbers, also those of digits.

    Parameters
    ----------
    values : array-like, series, data frame, tensor or float

    Returns
    -------
    ndarray of float64, or None
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
    """Return True if a cell of an array is a text."""
    # Kinds of dtypes: O are objects, U texts, S bytes, T texts of any width.
    if cells.dtype.kind == "O":
        return any(map(is_text, cells.flat))
    return cells.dtype.kind in "UST"


def check_weights(params, n_samples):
    """Raise a ValueError unless `sample_weight` among metadata has one entry per row.

    This check comes before rows are left out. Later, weights of other rows could have
    the right length by chance.

    Parameters
    ----------
    params : dict
        Metadata of a fit. Without ``"sample_weight"`` nothing is checked.
    n_samples : int
        Number of rows.
    """
    weight = params.get("sample_weight")
    # A number is the weight of every row.
    if not hasattr(weight, "__len__"):
        return
    n_weights = num_samples(weight)
    if n_weights != n_samples:
        raise ValueError(
            f"sample_weight must have one entry per row: there are {n_samples} rows "
            f"and {n_weights} weights."
        )


def given_weights(sample_weight, rows):
    """Return the user's weights of rows, validated, or None if there are none.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,) or None
    rows : array-like of n_rows

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64, or None if `sample_weight` is None

    Raises
    ------
    ValueError
        If a weight is negative or not finite, if all of them are 0, or if their number
        is not that of the rows.
    """
    if sample_weight is None:
        return None
    return check_row_weights(sample_weight, num_samples(rows))


def relative_weights(weight):
    """Return weights in units of one row. A common factor of `weight` has no effect.

    A regularised model depends on the number of rows, and so on the unit of weights.
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
        0 where `weight` is 0. Weights that are not counts are rounded to single
        precision, so that not even the last bit depends on the unit.
    """
    # In units of the largest weight: sums of large weights would overflow, and
    # quotients of subnormal numbers would be rounded.
    shares = weight / weight.max()
    positive_shares = shares[shares > 0]
    # In units of the smallest positive weight.
    multiples = shares / positive_shares.min()
    counts = np.rint(multiples)
    rounding = np.abs(multiples - counts)
    if counts.max() <= _LARGEST_COUNT and (rounding <= _WEIGHT_ROOM * counts).all():
        return counts
    # Not counts: the mean of the positive weights becomes 1.
    relative = shares / positive_shares.mean()
    # A weight is a mantissa below 1 times a power of two. The mantissa is rounded to
    # `_WEIGHT_BITS` bits.
    mantissa, exponent = np.frexp(relative)
    rounded = np.rint(np.ldexp(mantissa, _WEIGHT_BITS))
    return np.ldexp(rounded, exponent - _WEIGHT_BITS)


def none_if_equal(weight):
    """Return weights, or None if all rows have the same weight.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,)
        Weights of the rows.

    Returns
    -------
    ndarray of shape (n_rows,), or None
    """
    # The difference of the largest and the smallest weight.
    weight_range = np.ptp(weight)
    return None if weight_range == 0 else weight


def folds_among(folds, rows, n_rows):
    """Return the folds of some of the rows, as positions among these rows.

    Parameters
    ----------
    folds : list of (ndarray of int, ndarray of int)
        Positions of the rows that train and of those that test, in each fold.
    rows : ndarray of int
        Positions of the rows that stay, ascending.
    n_rows : int
        Number of all rows.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
        A fold is left out if none of its test rows stays.
    """
    # -1: the row does not stay.
    new_position = np.full(n_rows, -1)
    new_position[rows] = np.arange(len(rows))
    new_folds = []
    for train, test in folds:
        new_train = new_position[train]
        new_train = new_train[new_train >= 0]
        new_test = new_position[test]
        new_test = new_test[new_test >= 0]
        if not len(new_test):
            # There is no row that this fold would test.
            continue
        if not len(new_train):
            raise ValueError(
                f"All of the {len(rows)} rows with a positive sample_weight are in one "
                "fold, so that nothing can be estimated out of sample. Use another cv, "
                "or more such rows."
            )
        new_folds.append((new_train, new_test))
    return new_folds


def refuse_source(X, reader=None):
    """Return X, or raise a TypeError if X is a source of features (`LazyFeatures`).

    Parameters
    ----------
    X : object
    reader : estimator, default=None
        The fitted estimator that the message names. None: the message names `fit`.

    Returns
    -------
    object
        `X` itself.
    """
    if hasattr(X, "acquisition_log_"):
        name = "fit" if reader is None else type(reader).__name__
        raise TypeError(
            f"{name} reads whole rows "
            f"and buys no columns, got {type(X).__name__}. Give it a data frame or an "
            "array of rows with all that can be bought."
        )
    return X


def whole_rows(X, reader, reset=False, dtype=np.float64, **others):
    """Return rows of finite numbers as an array or a sparse matrix.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_rows, n_columns)
        The rows. A source of features is refused.
    reader : estimator
        Estimator that reads the rows.
    reset : bool, default=False
        True in `fit`, which sets the number and the names of the columns. Otherwise
        they must be those of `fit`.
    dtype : dtype, default=numpy.float64
        Type of the result.
    **others : array-like
        Other arguments by their names. Like X, they must not have masked entries.

    Returns
    -------
    ndarray or sparse matrix of shape (n_rows, n_columns)
    """
    refuse_masked(X=X, **others)
    # The usual case. Such rows need no check but that of finite numbers.
    is_plain = (
        type(X) is np.ndarray and X.ndim == 2 and X.dtype == np.float64 and len(X)
    )
    if is_plain and not reset and X.shape[1] == reader.n_features_in_:
        with np.errstate(over="ignore", invalid="ignore"):
            # If the sum is finite, all entries are. A sum is faster than a check of
            # each entry.
            is_finite = np.isfinite(X.sum())
        # If there are names, scikit-learn warns about rows without them.
        if is_finite and not hasattr(reader, "feature_names_in_"):
            return X
    X = on_host(refuse_source(X, reader))
    if not hasattr(X, "tocsr"):
        refuse_texts(X=X)
    # Compiled code reads one layout. In `fit` the layout stays, since sums depend on
    # it.
    order = None if reset else "C"
    return validate_data(reader, X, reset=reset, dtype=dtype, order=order)


def refuse_texts(**arguments):
    """Refuse texts in place of numbers. NumPy would read "1_1" as 11."""
    for name, values in arguments.items():
        if _any_text(np.asarray(values)):
            raise ValueError(
                f"{name} must be numbers, got texts. Texts stay texts: convert them "
                "first, for example with astype(float)."
            )


def refuse_masked(**arguments):
    """Refuse masked entries, which would be read as if they were valid."""
    for name, values in arguments.items():
        # Checked by the type, since pandas' arrays have a `_mask`, too.
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ValueError(
                f"{name} must have no missing values: {np.ma.count_masked(values)} are "
                "masked. Leave these rows out, or fill them."
            )


def missing_entries(values):
    """Return a mask of the missing entries of labels or numbers.

    None, NaN, pandas' NA and NaT, polars' null and masked entries are missing.

    Parameters
    ----------
    values : array-like, series, dataframe, sparse matrix or tensor

    Returns
    -------
    ndarray of bool
        In the shape of `values`. For a sparse matrix, one entry for each stored cell.
    """
    if hasattr(values, "tocsr"):
        values = values.tocsr().data
    if isinstance(values, np.ma.MaskedArray):
        # Entries that are not masked may be missing, too.
        masked = np.ma.getmaskarray(values)
        return masked | missing_entries(values.filled())
    if isinstance(values, (list, tuple)):
        # numpy would turn a NaN next to texts into a text.
        cells = np.array(values, dtype=object)
    else:
        cells = np.asarray(on_host(values))
    # Kinds of dtypes: floats, complex numbers, differences of dates, and dates have NaN
    # or NaT. Only objects (O) and texts of any width (T) can be missing otherwise.
    if cells.dtype.kind in "fcmM":
        return np.isnan(cells)
    if cells.dtype.kind not in "OT":
        return np.zeros(cells.shape, dtype=bool)
    missing = [is_missing(cell) for cell in cells.ravel().tolist()]
    return np.array(missing, dtype=bool).reshape(cells.shape)


def refuse_missing(**targets):
    """Refuse missing true answers. Each would count as a wrong answer.

    Parameters
    ----------
    **targets : array-like
        True labels or numbers by the names of the arguments. None is allowed.

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
                f"{name} must have no missing values: {missing.sum()} of "
                f"{missing.size} are None, NaN or NA, and an answer cannot be compared "
                "with them. Leave these rows out."
            )


def check_truth(*, y, name="y", **others):
    """Check that true answers are complete, and in the row order of other arguments.

    Parameters
    ----------
    y : array-like
        True labels or numbers.
    name : str, default="y"
        Name of the argument.
    **others : array-like
        Other arguments about the same rows, such as X and `sample_weight`.

    Raises
    ------
    ValueError
        If a true answer is missing, or if rows have the same labels in another order.
    """
    check_rows_match(**others, **{name: y})
    refuse_missing(**{name: y})


class NotProbabilitiesError(ValueError):
    """A member returned numbers that are not probabilities."""


def check_probabilities(
    proba, name, method="predict_proba", total=1.0, *, proven=False
):
    """Refuse numbers that are not probabilities, such as logits.

    Rows in single or half precision whose sum was lost to rounding are divided by it,
    with a warning.

    Parameters
    ----------
    proba : ndarray of shape (n_samples, n_labels)
    name : str
        Name of the member that returned them.
    method : str, default="predict_proba"
        Name of its method.
    total : float or None, default=1.0
        Sum of each row. None for scores of labels that do not exclude each other.
    proven : bool, default=False
        True if the member returned probabilities in `fit`. Any number of rows may then
        be rounded. Otherwise, a quarter of the rows must have the right sum.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
        `proba`, with rounded rows divided by their sums.

    Raises
    ------
    NotProbabilitiesError
        If a number is not between 0 and 1, or the sum of a row is not `total`.
    """
    low = -_PROBABILITY_ROOM
    high = 1 + _PROBABILITY_ROOM
    # Masks of rows. A comparison with NaN is False, so that NaN is wrong.
    is_inside = ((proba >= low) & (proba <= high)).all(axis=1)
    is_wrong = ~is_inside
    if total is not None:
        sums = proba.sum(axis=1, dtype=np.float64)
        has_right_sum = np.abs(sums - total) <= _PROBABILITY_ROOM
        is_wrong = ~(is_inside & has_right_sum)
    if not is_wrong.any():
        return proba
    # The first five numbers of the first wrong row, for messages.
    first_wrong = [float(f"{value:.3g}") for value in proba[is_wrong][0][:5]]
    # True in single or half precision.
    is_short = proba.dtype.kind == "f" and proba.dtype.itemsize < _DOUBLE_BYTES
    may_be_rounded = proven or np.mean(~is_wrong) >= _LEAST_SUMMING
    if is_short and may_be_rounded and is_inside.all():
        warn(
            f"{method} of {name!r} gave {is_wrong.sum()} of {len(proba)} rows that do "
            f"not sum to 1, such as {first_wrong!r}, in {proba.dtype}. They are "
            "divided by their sums. Rounding is the likely cause: give the member "
            "float64, or scale columns of large numbers such as dates."
        )
        rounded = proba.copy()
        rounded[is_wrong] = with_sum_one(proba[is_wrong])
        return rounded
    end = "" if total is None else " with the sum 1 in each row"
    raise NotProbabilitiesError(
        f"{method} of {name!r} must give probabilities between 0 and 1{end}, but it "
        f"gave {first_wrong!r} for a row. Logits need a softmax first: for a skorch "
        'net set predict_nonlinearity (the default "auto" knows the losses of torch '
        "only). "
        "Scores of another kind need sklearn.calibration.CalibratedClassifierCV."
    )


def with_sum_one(proba):
    """Return probabilities divided by the sum of their row.

    Before the division, negative numbers become 0. A row whose sum is then 0 gets equal
    probabilities. Rows without negative numbers stay as they are if their sum is 1 up
    to the rounding of single precision.

    Parameters
    ----------
    proba : ndarray of shape (n_rows, n_classes)
        Probabilities, or other scores.

    Returns
    -------
    ndarray of shape (n_rows, n_classes)
        `proba` itself if all rows stay as they are.
    """
    sums = proba.sum(axis=1, dtype=np.float64)
    is_wrong = (np.abs(sums - 1) > _SUM_ROOM) | (proba < 0).any(axis=1)
    if not is_wrong.any():
        return proba
    divided = proba.astype(np.float64)
    wrong_rows = np.clip(divided[is_wrong], 0.0, None)
    sums_of_wrong = wrong_rows.sum(axis=1, keepdims=True)
    # Equal probabilities. They stay in the rows whose sum is 0, and are overwritten in
    # the other rows.
    new_rows = np.full_like(wrong_rows, 1 / proba.shape[1])
    np.divide(wrong_rows, sums_of_wrong, out=new_rows, where=sums_of_wrong > 0)
    divided[is_wrong] = new_rows
    return divided


def check_text_names(names, parameter):
    """Refuse names that are not text, in a list of named estimators."""
    for name in names:
        if not isinstance(name, str):
            raise ValueError(
                f"{parameter} has the name {name!r} of type {type(name).__name__}, but "
                f"names must be text. Give {parameter} as a list of (name, estimator) "
                "tuples."
            )


def check_known_labels(y, classes, name="y"):
    """Refuse labels that are not among `classes`, such as numbers among texts.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
    classes : array-like of shape (n_classes,)
        Labels that `fit` has seen.
    name : str, default="y"
        Name of the argument.

    Raises
    ------
    ValueError
    """
    # A dict for its order and its fast look-up. Its values are not used.
    class_set = dict.fromkeys(np.asarray(classes).tolist())
    labels = np.unique(np.asarray(y)).tolist()
    unknown = [label for label in labels if label not in class_set]
    if unknown:
        seen = list(class_set)
        raise ValueError(
            f"{name} has labels that fit has not seen: {unknown[:5]!r} of type "
            f"{type(unknown[0]).__name__}; known are {seen[:5]!r} of type "
            f"{type(seen[0]).__name__}."
        )


def check_some_known(y, classes):
    """Refuse true labels if none of them is among `classes`.

    All answers would be wrong. The labels then probably have another type than the
    classes, such as numbers in place of texts.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
        True labels.
    classes : ndarray of shape (n_classes,)
        Labels that the estimator can answer with.

    Raises
    ------
    ValueError
    """
    # numpy reads False and True as 0 and 1, which may be among classes that are
    # numbers. Truth values can only be labels if there are at most two classes.
    is_foreign = y.dtype.kind == "b" and len(classes) > 2
    if is_foreign or not np.isin(y.astype(object), classes.astype(object)).any():
        raise ValueError(
            f"No label in y, of dtype {y.dtype}, is one of classes_, of dtype "
            f"{classes.dtype}: no answer could be right. Give y the labels of fit."
        )


def holds_texts(labels):
    """Return True if labels are texts. The first label that is not missing decides.

    Parameters
    ----------
    labels : ndarray

    Returns
    -------
    bool
        True as well if all labels are missing.
    """
    # Kinds of dtypes: O are objects, U texts, S bytes, T texts of any width.
    if labels.dtype.kind != "O":
        return labels.dtype.kind in "UST"
    for label in labels:
        if not is_missing(label):
            return isinstance(label, str)
    # All labels are missing.
    return True


def warn(message, category=UserWarning):
    """Warn, and point to the first line outside of skroute, scikit-learn and joblib.

    Parameters
    ----------
    message : str
    category : class of warnings, default=UserWarning
    """
    frame = sys._getframe(1)  # the caller of this function
    level = 2  # the `stacklevel` of this caller in `warnings.warn`
    while frame.f_back is not None:
        package = frame.f_globals["__name__"].partition(".")[0]
        if package not in _INNER:
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
