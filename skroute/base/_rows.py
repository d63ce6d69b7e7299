"""Validation of rows, calls of models on some rows, notes on failures."""

from contextlib import contextmanager

import numpy as np
from sklearn.utils import assert_all_finite, get_tags, indexable
from sklearn.utils.validation import validate_data

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import indexable_rows, is_mapping
from skroute.utils._tensors import (
    holds_numbers,
    indexable_dataset,
    is_dataset,
    on_host,
    torch_of,
)
from skroute.utils._validation import refuse_masked, refuse_source


@contextmanager
def note_failure(name, n_rows, doing):
    """Add a note to the exception of a model: its name, the step, the number of rows.

    Parameters
    ----------
    name : str
        The model that is called.

    n_rows : int
        Rows in the call.

    doing : str
        The method or the step, for example ``"fit"``.

    Examples
    --------
    >>> from skroute.base import note_failure
    >>> try:
    ...     with note_failure("large", 20, "predict"):
    ...         raise OSError("no route to host")
    ... except OSError as error:
    ...     print(error, error.__notes__)
    no route to host ["This happened in predict of 'large' with 20 rows."]
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened in {doing} of {name!r} with {n_rows} rows.")
        raise


def count_rows(X):
    """Return the number of rows of X.

    Parameters
    ----------
    X : indexable
        Rows as :func:`check_rows` returns them: array, frame, sparse matrix, list or
        tensor.

    Returns
    -------
    int
        Number of rows.

    Examples
    --------
    >>> from skroute.base import count_rows
    >>> count_rows(["one text", "another"])
    2
    """
    return num_samples(X)


def take_rows(X, rows):
    """Return some rows of X, in a container of the same type as X.

    Parameters
    ----------
    X : indexable
        Rows as :func:`check_rows` returns them: array, frame, sparse matrix, list or
        tensor.

    rows : ndarray of shape (n_taken,)
        Positions of the rows, int, or one boolean for each row.

    Returns
    -------
    indexable
        The rows, in the order of `rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import take_rows
    >>> take_rows(["one text", "another", "a third"], np.array([2, 0]))
    ['a third', 'one text']
    """
    return _safe_indexing(X, rows)


def dispatch(route, answer):
    """Call each choice once, on its rows, and return the answers in row order.

    It is the usual body of ``_answer``: a router calls
    ``models[choice].predict(take_rows(plan.X, rows))``.

    Parameters
    ----------
    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice for each row.

    answer : callable
        Called as ``answer(choice, rows)`` with the positions of the rows routed to
        `choice`, and only for a choice that has rows. Returns an array with one entry
        (a number or a row of numbers) per position.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        In the order of `route`.

    Raises
    ------
    ValueError
        If no type holds the answers of all choices as they are: numbers next to texts.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import dispatch
    >>> dispatch(np.array([1, 0, 1]), lambda choice, rows: 10 * choice + rows)
    array([10,  1, 12])
    """
    all_answers = None  # made from the first answers, which have its shape and dtype
    # `np.unique` yields the choices by rising index.
    for choice in np.unique(route):
        rows = np.flatnonzero(route == choice)
        answers = np.asarray(answer(int(choice), rows))
        if all_answers is None:
            shape = (len(route), *answers.shape[1:])
            all_answers = np.empty(shape, dtype=answers.dtype)
        elif all_answers.dtype != answers.dtype:
            # Rows of the choices with smaller indices. Other rows are not filled yet.
            is_filled = route < choice
            common_dtype = _common_dtype(all_answers[is_filled], answers)
            all_answers = all_answers.astype(common_dtype)
        all_answers[rows] = answers
    return all_answers


# Kinds of numpy types whose values are compared as numbers: int, uint, float, complex.
_NUMERIC_KINDS = "iufc"


def _common_dtype(first, second):
    """Return the dtype that holds the answers of two choices unchanged, else raise.

    Parameters
    ----------
    first, second : ndarray
        Answers of different dtypes.

    Returns
    -------
    dtype
    """
    kinds = {first.dtype.kind, second.dtype.kind}
    # Kind O: Python objects, which hold any value as it is.
    is_one_kind = len(kinds) == 1
    are_numeric = kinds <= set(_NUMERIC_KINDS)
    if is_one_kind or are_numeric or "O" in kinds:
        common = np.result_type(first, second)
        if _survives(first, common) and _survives(second, common):
            return common
    raise ValueError(
        f"One choice answers with {first.dtype} and another with {second.dtype}, which "
        "no type holds as they are. The answers of all choices must have one type: fit "
        "the models on labels of one type, or convert what they answer."
    )


def _survives(answers, dtype):
    """Return True if a conversion to a dtype and back leaves answers as they are."""
    is_equal = answers.astype(dtype).astype(answers.dtype) == answers
    # NaN, which is not equal to itself, is possible among floats and complex numbers.
    if answers.dtype.kind in "fc":
        is_equal |= np.isnan(answers)
    return bool(np.all(is_equal))


def check_rows(estimator, X, *, reset):
    """Validate rows as far as all inner models need it. The models validate the rest.

    X may be anything that the models take: arrays, frames, sparse matrices, lists of
    texts, torch tensors (which stay on their device) and data sets. Feature names and
    count are checked, and that there are rows. Numeric arrays must have columns. They
    must have no missing values, unless every model takes them, since a row may be
    routed to any model.

    Parameters
    ----------
    estimator : estimator
        The estimator that gets the rows. Its ``n_features_in_`` and
        ``feature_names_in_`` are set or compared.

    X : indexable
        The rows.

    reset : bool
        True sets feature names and count, as in `fit`. False compares them.

    Returns
    -------
    indexable
        X, converted where rows could not be indexed otherwise.

    Raises
    ------
    TypeError
        If X is not made of rows.

    ValueError
        If X has no rows, or the rows are not valid.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.base import check_rows
    >>> check_rows(LogisticRegression(), ["one text", "another"], reset=True)
    ['one text', 'another']
    """
    if not reset and _are_valid_numbers(estimator, X):
        return X
    if X is None or is_mapping(X) or isinstance(X, (str, bytes)) or np.isscalar(X):
        raise TypeError(
            "X must be an array, a data frame, a sparse matrix or a list of rows, got "
            f"{type(X).__name__}. One row is a list or an array of one."
        )
    # A source of lazy features (`LazyFeatures`) is not an array of rows.
    refuse_source(X, estimator)
    refuse_masked(X=X)
    X = indexable_rows(X)  # rows of Arrow
    X = indexable_dataset(X)  # a torch data set
    (X,) = indexable(X)
    torch = torch_of(X)  # the module, or None if X is not a tensor
    is_numeric = holds_numbers(X)
    if torch and X.is_complex():
        raise ValueError(f"Complex data not supported, got a tensor of {X.dtype}.")
    if is_numeric and X.ndim == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array of {len(X)} instead. Reshape your data "
            "using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    if num_samples(X) == 0:
        raise ValueError(
            f"Found array with 0 sample(s) while a minimum of 1 is required by "
            f"{type(estimator).__name__}."
        )
    if is_numeric and X.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is "
            f"required by {type(estimator).__name__}."
        )
    # True if `fit` saw rows of a known number of columns.
    needs_columns = not reset and hasattr(estimator, "n_features_in_")
    if needs_columns and is_dataset(X):
        raise TypeError(
            f"X is a data set, but fit saw rows of {estimator.n_features_in_} columns. "
            "Stack its rows, for example torch.stack([row for row, _ in dataset])."
        )
    if needs_columns and _is_flat(X):
        raise ValueError(
            f"X must be rows of {estimator.n_features_in_} columns, as fit saw them, "
            f"got a {type(X).__name__} of {num_samples(X)} single values. One row of a "
            "data frame is frame.iloc[[i]]."
        )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if reset and len(getattr(X, "shape", ())) > 2:
        # For images, scikit-learn has set the number of channels. A later call with a
        # list of images does not show this number, which is therefore not compared.
        del estimator.n_features_in_
    if torch:
        may_have_nan = X.is_floating_point()
    else:
        may_have_nan = is_numeric and X.dtype.kind == "f"  # of floats
    if may_have_nan:
        # A sparse matrix stores some cells. Its other cells are 0.
        cells = X.data if hasattr(X, "tocsr") else X
        isfinite = torch.isfinite if torch else np.isfinite
        has_only_finite = isfinite(cells).all()
        if not has_only_finite and not get_tags(estimator).input_tags.allow_nan:
            assert_all_finite(
                on_host(cells), input_name="X", estimator_name=type(estimator).__name__
            )
    return X


def _are_valid_numbers(estimator, X):
    """Return True for a valid array of finite numbers, which needs no other check.

    scikit-learn's checks of one row take longer than most decisions about it.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or len(X) == 0:
        return False
    if X.dtype.kind not in "iuf":  # whole numbers and floats
        return False
    if X.shape[1] != getattr(estimator, "n_features_in_", None):
        return False
    if hasattr(estimator, "feature_names_in_"):
        # The names of the columns must be compared, which scikit-learn does.
        return False
    return X.dtype.kind != "f" or bool(np.isfinite(X).all())


def _is_flat(X):
    """Return True if X has single values, such as texts, in the place of rows."""
    if hasattr(X, "shape"):
        return len(X.shape) == 1
    return isinstance(X, (list, tuple)) and any(map(np.isscalar, X))
