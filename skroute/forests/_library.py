"""The answers of a forest's own library, and their comparison with the forest's."""

import sys
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skroute.forests._trees import CATEGORICAL, FEATURE_MASK
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import is_sparse_type
from skroute.utils._validation import NotProbabilitiesError

# The library's own answers ------------------------------------------------------------

# Arguments of `predict` that return the sums of the leaves, by package.
_ARGUMENTS_FOR_SUMS = {
    "lightgbm": {"raw_score": True},
    "xgboost": {"output_margin": True},
    "catboost": {"prediction_type": "RawFormulaVal"},
}
# Name of a class of CatBoost whose `predict` always returns sums, without an argument.
_ANSWERS_WITH_SUMS = "CatBoostRanker"


def _arguments_for_sums(model):
    """Return the arguments with which `predict` returns sums, None if it cannot."""
    for cls in type(model).__mro__:
        if cls.__name__ == _ANSWERS_WITH_SUMS:
            return {}
        package = cls.__module__.split(".")[0]
        if package in _ARGUMENTS_FOR_SUMS:
            return _ARGUMENTS_FOR_SUMS[package]
    return None


def _is_xgboost_booster(model):
    """Return True for a raw booster of XGBoost. It takes rows as a `DMatrix`."""
    # No other library has these arguments.
    is_xgboost = _arguments_for_sums(model) == _ARGUMENTS_FOR_SUMS["xgboost"]
    return is_xgboost and not hasattr(model, "get_booster")


def own_predict(model, X, raw=False):
    """Return what ``predict`` of a model returns, or with `raw` its sums of leaves.

    Parameters
    ----------
    model : object
        Fitted ensemble or booster.

    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    raw : bool, default=False
        If True, the sums are returned. The library must have an argument for them.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        A result with a single column, such as CatBoost's labels, becomes flat.
    """
    arguments = {}
    if raw:
        arguments = _arguments_for_sums(model)
    if _is_xgboost_booster(model):
        X = sys.modules["xgboost"].DMatrix(X, enable_categorical=True)
        # The names of columns are not compared: an array has none.
        arguments = arguments | {"validate_features": False}
    answers = np.asarray(model.predict(X, **arguments))
    if answers.ndim == 2 and answers.shape[1] == 1:
        return answers[:, 0]
    return answers


def own_sums(model, X):
    """Return the library's own sums of the leaves, or None if it has none.

    They have shape (n_samples,) or (n_samples, n_outputs).
    """
    if _arguments_for_sums(model) is not None:
        return own_predict(model, X, raw=True)
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    return None


def own_labels(model, X, classes):
    """Return the labels that the library's own model answers with.

    Parameters
    ----------
    model : object
        Fitted classifier or booster.

    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    classes : ndarray of shape (n_classes,)
        The classes of a booster, which does not store them.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    if hasattr(model, "classes_"):
        return own_predict(model, X)
    proba = own_proba(model, X)
    if proba is None:
        # The model predicts positions of classes (`multi:softmax` of XGBoost).
        positions = own_predict(model, X)
    else:
        positions = np.argmax(proba, axis=1)
    return classes[positions.astype(np.intp)]


def own_proba(model, X):
    """Return the probabilities of the library's own model, or None if it has none.

    They have shape (n_samples, n_classes). The `predict` of a booster returns
    probabilities. With two classes it returns those of the second class alone.
    """
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if hasattr(model, "classes_"):
        # A classifier without `predict_proba` answers with labels only.
        return None
    # Without `classes_` it is a booster, which predicts probabilities.
    proba = own_predict(model, X)
    if proba.ndim == 2:
        return proba
    if _is_xgboost_booster(model) and own_predict(model, X, raw=True).ndim == 2:
        # A row has several scores and one answer: it is the position of a class.
        return None
    return np.column_stack([1 - proba, proba])


# Test rows ----------------------------------------------------------------------------

# Number of test rows of each kind.
_N_TEST_ROWS = 100
# Values that replace some cells of test rows, by kind. The category codes are at the
# ends of the 32-bit words of a bit set, and beyond all its words.
_TEST_VALUES = {
    "missing values": (np.nan,),
    "extreme values": (0.0, -0.0, 1e-40, -1e-36, 1e-30, 1e30, -1e30, 3e38, -3e38),
    "codes that were not there": (
        -1.0,
        -0.5,
        0.5,
        31.0,
        32.0,
        300.0,
        1e6,
        2.0**31,
        -(2.0**31),
    ),
    "infinite values": (np.inf, -np.inf),
    "values beyond single precision": (1e300, -1e300),
    "categories that were not there": ("never seen",),
}
# Distance between replaced cells of a column: every third cell is replaced.
_CELLS_PER_CHANGE = 3
# The codes of categories in rows at thresholds are drawn below this number, so that
# they need three words of a bit set.
_MOST_CODES = 70
# Share of cells of rows at thresholds that are missing.
_MISSING_SHARE = 0.05


def rows_at_thresholds(forest, n_rows=200):
    """Return rows whose cells are thresholds of a forest, or the floats next to them.

    Parameters
    ----------
    forest : Forest
    n_rows : int, default=200

    Returns
    -------
    ndarray of shape (n_rows, n_features) or None
        None if there are categories of text.
    """
    rng = check_random_state(0)
    nodes = forest.trees.nodes[~forest.trees.is_leaf]
    features = nodes["feature"] & FEATURE_MASK
    X = rng.normal(size=(n_rows, forest.n_features)).astype(forest.read_rule.dtype)
    for feature in np.unique(features):
        splits = nodes[features == feature]
        if (splits["feature"] & CATEGORICAL).any():
            # Codes that stand for categories.
            X[:, feature] = rng.randint(0, _MOST_CODES, n_rows)
            continue
        cells = _cells_near(splits["threshold"], n_rows, dtype=X.dtype, rng=rng)
        # In place of an infinite threshold, the cell keeps its random number.
        X[:, feature] = np.where(np.isfinite(cells), cells, X[:, feature])
    # Columns whose cells are the categories themselves, not codes.
    for feature, values in forest.read_rule.columns.categories_of_arrays.items():
        categories = np.asarray(values)
        if categories.dtype.kind not in "fiu":
            # These categories are not numbers, as the cells of an array must be.
            return None
        X[:, feature] = rng.choice(categories, n_rows)
    # "allow-nan" allows missing values, and False allows infinity as well.
    refuses_missing = forest.read_rule.finite is True
    if not refuses_missing:
        becomes_missing = rng.rand(*X.shape) < _MISSING_SHARE
        X[becomes_missing] = np.nan
    return X


@np.errstate(over="ignore")
def _cells_near(thresholds, n_cells, dtype, rng):
    """Draw numbers that are thresholds, or next to a threshold in the type `dtype`.

    `thresholds` is an array, and `rng` a RandomState. The result has shape (n_cells,).
    """
    cells = rng.choice(thresholds, n_cells).astype(dtype)
    direction = rng.choice(np.array([-np.inf, np.inf]), n_cells).astype(dtype)
    is_at_threshold = rng.rand(n_cells) < 0.5
    return np.where(is_at_threshold, cells, np.nextafter(cells, direction))


def varied_rows(X, unseen=True):
    """Return test rows, plain and with changed cells, to compare answers on.

    Cells are changed in arrays of floats and in frames of pandas.

    Parameters
    ----------
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows of fit, of which some are taken.

    unseen : bool, default=True
        If True, some cells of text get a category that no row has.

    Returns
    -------
    dict from str to rows
        The rows by what is changed in them. Unchanged rows come first.
    """
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    n_rows = num_samples(X)
    positions = np.linspace(0, n_rows - 1, min(n_rows, _N_TEST_ROWS)).astype(int)
    rows = _safe_indexing(X, np.unique(positions))
    rows_by_kind = {"rows as they are": rows}
    columns = _changeable_columns(rows)
    if not columns:
        return rows_by_kind
    has_text = any(column.dtype.kind == "O" for column in columns.values())
    uses_texts = unseen and has_text
    for kind, values in _TEST_VALUES.items():
        # All values of a kind have one type.
        is_text = isinstance(values[0], str)
        if is_text and not uses_texts:
            continue
        rows_by_kind[kind] = _with_changed_cells(rows, columns, values=values)
    return rows_by_kind


def _changeable_columns(rows):
    """Return the columns, by position, in which test values may replace cells.

    Parameters
    ----------
    rows : {array-like, sparse matrix, dataframe}

    Returns
    -------
    dict from int to ndarray or pandas.Series
        The columns of floats and of objects. Empty if rows are neither an array of
        floats nor a frame of pandas: their cells are not changed.
    """
    if isinstance(rows, np.ndarray):
        if rows.dtype.kind != "f" or rows.ndim != 2:
            return {}
        return {j: rows[:, j] for j in range(rows.shape[1])}
    is_pandas = type(rows).__module__.startswith("pandas")
    if not is_pandas or not hasattr(rows, "dtypes"):
        return {}
    columns = {}
    for j, dtype in enumerate(rows.dtypes):
        # A type without `kind` counts as one of objects ("O"), which may be texts.
        if getattr(dtype, "kind", "O") in "fO":
            columns[j] = rows.iloc[:, j]
    return columns


# Values beyond single precision become infinite in rows of single precision.
@np.errstate(over="ignore")
def _with_changed_cells(rows, columns, values):
    """Return a copy of rows in which other values replace every third cell.

    Parameters
    ----------
    rows : ndarray or pandas.DataFrame
    columns : dict from int to array-like
        From :func:`_changeable_columns`.

    values : tuple
        All numbers, all texts, or a single NaN.

    Returns
    -------
    ndarray or pandas.DataFrame
        Numbers replace cells of columns of numbers, and texts those of others. NaN
        replaces cells of all columns.
    """
    rows = rows.copy()
    # The values are numbers, texts, or a single NaN, which is not equal to itself.
    is_missing = values[0] != values[0]
    is_text = isinstance(values[0], str)
    for j, column in columns.items():
        # Column 0 starts at row 0, column 1 at row 1, and so on: a row has changed and
        # unchanged cells.
        positions = np.arange(j % _CELLS_PER_CHANGE, len(column), _CELLS_PER_CHANGE)
        # The values take turns.
        cells = [values[k % len(values)] for k in range(len(positions))]
        if isinstance(rows, np.ndarray):
            rows[positions, j] = cells
            continue
        is_column_of_text = column.dtype.kind == "O"
        have_type_of_column = is_text == is_column_of_text
        if not (is_missing or have_type_of_column):
            continue
        changed = _changed_column(column, positions, cells=cells, is_missing=is_missing)
        rows.isetitem(j, changed)
    return rows


def _changed_column(column, positions, cells, is_missing):
    """Return a column of pandas with other cells at some positions.

    Parameters
    ----------
    column : pandas.Series
    positions : ndarray of int
    cells : list
        New values of the cells at `positions`.

    is_missing : bool
        True if the new values are missing ones.

    Returns
    -------
    pandas.Series
        Of the same type. A column of categories has the new cells among them.
    """
    # Objects, such as texts, and types of pandas itself, such as categories.
    is_of_objects = column.dtype.kind == "O"
    if is_sparse_type(column.dtype):
        changed = column.sparse.to_dense()
    elif is_of_objects:
        changed = column.astype(object)
    else:
        changed = column.copy()
    changed.iloc[positions] = cells
    if is_of_objects and not is_missing and hasattr(column, "cat"):
        # The type of the column lacks the new categories.
        return changed.astype("category")
    return changed.astype(column.dtype)


# Comparison ---------------------------------------------------------------------------

# Names of answers that must be equal. Others may differ by a tolerance.
_EXACT_ANSWERS = ("labels", "sums")
# Key of a mask in a forest's dict of answers. It is True for rows to be compared.
_COMPARED = "compared"


class _Differences(NamedTuple):
    """The answers of a forest that differ from those of its library.

    Attributes
    ----------
    answer_names : list of str
        Names of the answers that differ for some row.

    rows : ndarray of shape (n_samples,), dtype=bool
        True for rows with an answer that differs.
    """

    answer_names: list
    rows: np.ndarray


def compare(name, probes, library_answers, forest_answers, rtol, atol):
    """Raise an error if a forest and its library answer some rows differently.

    Parameters
    ----------
    name : str
        Name of the ensemble, for messages.

    probes : dict from str to indexable
        Test rows by what is in them. The library must be able to answer the first ones.

    library_answers : callable
        It takes rows, and returns the library's answers: a dict from the name of an
        answer to an array, or to None if the library has no such answer. Labels and
        sums must be equal, and others may differ by the tolerances.

    forest_answers : callable
        It takes rows, and returns the same dict for the forest. Under "compared" it may
        have a mask of the rows that can be compared.

    rtol, atol : float
        Relative and absolute tolerance.

    Raises
    ------
    ValueError
        If an answer differs.
    """
    # The first rows are not changed. A library that refuses them has failed.
    first_kind = next(iter(probes))
    for kind, rows in probes.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = library_answers(rows)
            except Exception as error:
                if kind != first_kind:
                    # The library refuses rows with such cells. No answer is wrong.
                    continue
                error.add_note(
                    f"This {name} was asked for its own answers to compare them."
                )
                raise
            try:
                answers = forest_answers(rows)
            except NotProbabilitiesError:
                if kind == first_kind:
                    raise
                # Far from the rows of fit, the probabilities of some models do not sum
                # to 1. The forest refuses such rows: there is nothing to compare.
                continue
        differences = _find_differences(
            answers, expected, n_rows=num_samples(rows), rtol=rtol, atol=atol
        )
        if differences.answer_names:
            raise ValueError(
                f"This {name} answers {differences.rows.sum()} of "
                f"{len(differences.rows)} rows ({kind}) otherwise than its members do "
                f"as skroute reads them ({', '.join(differences.answer_names)}). One "
                "of its options is not supported. Please report it with the "
                "parameters of the ensemble."
            )


def _find_differences(answers, expected, n_rows, rtol, atol):
    """Return the answers of a forest that differ from those of its library.

    Parameters
    ----------
    answers : dict from str to ndarray
        Answers of the forest to some rows, and perhaps the mask `_COMPARED`.

    expected : dict from str to ndarray or None
        Answers of the library to these rows. None is not compared.

    n_rows : int
    rtol, atol : float
        As for :func:`compare`.

    Returns
    -------
    _Differences
    """
    # Without a mask, all rows are compared: True stands for a mask of True.
    is_compared = answers.get(_COMPARED, True)
    differs = np.zeros(n_rows, dtype=bool)
    answer_names = []
    for answer_name, values in expected.items():
        if values is None:
            continue
        is_same = _is_same(
            answer_name, answers[answer_name], values, rtol=rtol, atol=atol
        )
        row_differs = ~is_same & is_compared
        if row_differs.any():
            answer_names.append(answer_name)
            differs |= row_differs
    return _Differences(answer_names, differs)


def _is_same(answer_name, values, expected, rtol, atol):
    """Return True for the rows whose answers are the same; NaN equals NaN.

    Parameters
    ----------
    answer_name : str
    values : array-like of shape (n_samples,) or (n_samples, n_outputs)
    expected : array-like
        As many numbers or labels, perhaps in another shape.

    rtol, atol : float
        Tolerances of answers that need not be equal.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=bool
    """
    expected = np.reshape(expected, np.shape(values))
    if answer_name in _EXACT_ANSWERS:
        # NaN is not equal to itself.
        are_nan = (values != values) & (expected != expected)
        is_same = (values == expected) | are_nan
    else:
        is_same = np.isclose(values, expected, rtol=rtol, atol=atol, equal_nan=True)
    # A row is the same if all its outputs are.
    return is_same.reshape(len(is_same), -1).all(axis=1)
