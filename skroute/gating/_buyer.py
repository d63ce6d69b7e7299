"""Base of estimators that buy features row by row, and the record of what they buy."""

from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_X_y, validate_data

from skroute.base import CostAwareMixin, check_rows
from skroute.features._groups import FeatureGroupsMixin
from skroute.features._lazy import LazyFeatures, RawRows
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    StrOptions,
    _safe_indexing,
    check_sample_weight,
    num_samples,
)
from skroute.utils._frames import (
    CATEGORY,
    ColumnReader,
    as_rows,
    cells_of,
    is_frame,
    is_mapping,
    names_and_columns,
    needs_encoding,
)
from skroute.utils._tensors import on_host
from skroute.utils._validation import refuse_texts


class CheckedRows(NamedTuple):
    """Training rows after validation: numbers, encoded classes and weights.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns), dtype=float64
        Numbers and codes of categories; NaN where a cell is missing.

    encoded : ndarray of shape (n_rows,), dtype=int64
        Position in ``classes_`` of the class of each row.

    weight : ndarray of shape (n_rows,), dtype=float64
        Sample weights as the user gave them, 1 without.
    """

    values: Any
    encoded: Any
    weight: Any


class FeatureBuyer(FeatureGroupsMixin, CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Base class of the estimators that buy features row by row.

    Attributes
    ----------
    _readers : list of ColumnReader or None
        Readers that turn the columns of a frame into numbers. None if `fit` read an
        array of numbers.

    _raw : RawRows or None
        Makes rows of a frame, as `fit` read them, from single cells. None if `fit` read
        an array of numbers.

    _categorical : ndarray of shape (n_columns,), dtype=bool
        True for columns that hold codes of categories.
    """

    _parameter_constraints: dict = {
        "feature_costs": ["array-like", Mapping, None],
        "feature_groups": [Mapping, None],
        "quality": [str, Mapping, "array-like", callable, tuple],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "policy": [StrOptions({"online", "batch"})],
        "n_jobs": [Integral, None],
    }

    def _offers_proba(self):
        """Return True: all estimators that buy features have `predict_proba`."""
        return True

    def _ensure_all_finite(self):
        """Return the value of scikit-learn's `ensure_all_finite` for checks of rows."""
        # In a frame with categories, missing cells are allowed here. The models take or
        # refuse them.
        if self._categorical.any() or self.__sklearn_tags__().input_tags.allow_nan:
            return "allow-nan"
        return True

    # Checks of the rows of fit --------------------------------------------------------

    def _checked(self, X, y, sample_weight):
        """Return the training rows as numbers, and set ``classes_`` and the groups.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,)
            Labels.
        sample_weight : array-like of shape (n_rows,), or None
            None: all rows weigh 1.

        Returns
        -------
        CheckedRows
        """
        X = on_host(X)
        y = on_host(y)
        needs_readers = is_frame(X)
        if not needs_readers and X.ndim == 2:
            needs_readers = needs_encoding(X)
        if needs_readers:
            values = self._fit_readers(X)
        else:
            values = validate_data(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan"
            )
            # X is an array of numbers: no column needs a reader, and rows need not be
            # made from cells.
            self._readers = None
            self._raw = None
            self._categorical = np.zeros(self.n_features_in_, dtype=bool)
        values, y = check_X_y(
            values, y, dtype=np.float64, ensure_all_finite=self._ensure_all_finite()
        )
        self._set_groups()
        check_classification_targets(y)
        weight = check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        self.classes_, encoded = np.unique(y, return_inverse=True)
        classes_with_weight = np.unique(encoded[weight > 0])
        if len(classes_with_weight) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes with positive "
                f"weight, got one class: {self.classes_[classes_with_weight]!r}."
            )
        return CheckedRows(values, encoded=encoded, weight=weight)

    def _fit_readers(self, X):
        """Fit a `ColumnReader` for each column of a frame, and return cells as numbers.

        Sets `_readers`, `_raw` and `_categorical`.

        Parameters
        ----------
        X : data frame or ndarray of object, of shape (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_rows, n_columns), dtype=float64
            Numbers and codes of categories. NaN where a cell is missing.
        """
        validate_data(self, X, skip_check_array=True)
        names, columns = names_and_columns(X)
        if names is None:
            # An array has no names. Messages name its columns by their positions.
            names = range(len(columns))
        self._readers = [
            ColumnReader.fit(column, name) for column, name in zip(columns, names)
        ]
        self._raw = RawRows.of(X)
        is_category = [reader.kind == CATEGORY for reader in self._readers]
        self._categorical = np.array(is_category)
        return _read_columns(self._readers, columns)

    # Rows of a call, and what they buy ------------------------------------------------

    def _check_rows(self, X):
        """Return the rows of a call, checked. A mapping becomes `LazyFeatures`.

        Features of lazy rows are checked later, when they are bought.
        """
        if isinstance(X, LazyFeatures):
            return X
        if is_mapping(X):
            return LazyFeatures(X)
        return as_rows(check_rows(self, X, reset=False))

    def _ledger(self, X):
        """Return the `FeatureLedger` of a call: bought features, and no planned ones.

        A sweep decides the same rows for several budgets. The cache of the sweep has
        one ledger for them, so that each feature is bought once.

        Parameters
        ----------
        X : {array-like, data frame, LazyFeatures} of n_rows rows

        Returns
        -------
        FeatureLedger
        """
        ledger = cache_of(self).get_or_compute("ledger", lambda: self._new_ledger(X))
        return ledger.without_plans()

    def _new_ledger(self, X):
        """Return a new `FeatureLedger` of rows, which buys lazy features when needed.

        If the rows are not lazy, the ledger has all features from the beginning.

        Parameters
        ----------
        X : {array-like, data frame, LazyFeatures} of n_rows rows

        Returns
        -------
        FeatureLedger
        """
        n_groups = len(self.group_costs_)
        if isinstance(X, LazyFeatures):
            reader = LazyReader(
                lazy=X,
                names=self._column_names(),
                column_readers=self._readers,
                allow_nan=self._ensure_all_finite() == "allow-nan",
            )
            return FeatureLedger(
                n_samples=num_samples(X),
                n_features=self.n_features_in_,
                group_of=self.group_of_,
                n_groups=n_groups,
                reader=reader,
            )
        # The names of the columns were checked in `_check_rows`, the cells were not.
        if self._readers is None:
            # `fit` read an array of numbers.
            refuse_texts(X=X)
            values = X
        else:
            _, columns = names_and_columns(X)
            values = _read_columns(self._readers, columns)
        values = check_array(
            values,
            dtype=np.float64,
            ensure_all_finite=self._ensure_all_finite(),
            input_name="X",
        )
        n_samples, n_features = values.shape
        return FeatureLedger(
            n_samples=n_samples,
            n_features=n_features,
            group_of=self.group_of_,
            n_groups=n_groups,
            values=values,
        )


def model_input(buyer, ledger, rows, columns, X):
    """Return rows of some columns in the form that a user's model was fitted on.

    Parameters
    ----------
    buyer : FeatureBuyer
        Fitted.
    ledger : FeatureLedger
        Ledger of all rows of the call. It buys columns of lazy rows that are not bought
        yet.
    rows : ndarray of int
        Rising positions of rows.
    columns : ndarray of int
        Positions of the columns that the model reads.
    X : {array-like, data frame, LazyFeatures}
        All rows of the call.

    Returns
    -------
    {ndarray, data frame} of shape (n_selected_rows, n_selected_columns)
    """
    if not isinstance(X, LazyFeatures):
        selected = _safe_indexing(X, rows)
        if len(columns) == buyer.n_features_in_:
            return selected
        return _safe_indexing(selected, columns, axis=1)
    values = ledger.take(rows, columns)
    if buyer._readers is None:
        # `fit` read an array of numbers, and so does the model.
        return values[:, columns]
    # `fit` read a frame. The model gets the cells as the source returned them.
    cells = {column: ledger.cells[column][rows] for column in columns}
    raw_rows = buyer._raw.rows(cells, len(rows))
    return _safe_indexing(raw_rows, columns, axis=1)


def _read_columns(readers, columns):
    """Return columns as a table of numbers, each converted by its `ColumnReader`.

    Parameters
    ----------
    readers : list of ColumnReader
    columns : list of array-like of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_rows, n_columns), dtype=float64
    """
    return np.column_stack(
        [reader.read(column) for reader, column in zip(readers, columns)]
    )


def quality_of(objective, y, proba):
    """Return the quality of answering each row by class probabilities.

    Parameters
    ----------
    objective : objective of skroute.metrics._objectives
        Bound to training labels. It rates probabilities or labels.
    y : ndarray of int of shape (n_rows,)
        Position of the true class of each row.
    proba : ndarray of shape (n_rows, n_classes)

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    if objective.asks == "predict_proba":
        answers = proba
    else:
        answers = proba.argmax(axis=1)
    return np.asarray(objective.of(y, answers), dtype=np.float64)


# Features that are bought from a lazy source ------------------------------------------


class Bought(NamedTuple):
    """Features that a source returned for some rows.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns), dtype=float64
        The features as numbers.

    cells : list of array-like, or None
        Cells of each column as the source returned them. None if the models read arrays
        of numbers.
    """

    values: Any
    cells: Any


class LazyReader:
    """Reader that buys columns of lazy features, and returns them as numbers.

    Parameters
    ----------
    lazy : LazyFeatures
        The source of the features.

    names : list
        Name of each column.

    column_readers : list of ColumnReader or None
        Reader of each column. None: all columns are numbers.

    allow_nan : bool
        True if the models take missing cells.
    """

    def __init__(self, *, lazy, names, column_readers, allow_nan):
        self.lazy = lazy
        self.names = names
        self.column_readers = column_readers
        self.allow_nan = allow_nan

    def read(self, columns, rows):
        """Buy columns of some rows from a lazy source, and return them as numbers.

        Parameters
        ----------
        columns : ndarray of int
            Positions of the columns.
        rows : ndarray of int
            Positions of the rows.

        Returns
        -------
        Bought
        """
        names = [self.names[column] for column in columns]
        if self.column_readers is None:
            values = self.lazy.read(names, rows)
            cells = None  # models read arrays of numbers
        else:
            cells = self.lazy.fetch(names, rows)
            readers = [self.column_readers[column] for column in columns]
            try:
                values = _read_columns(readers, cells)
            except ValueError as error:
                raise ValueError(
                    f"The feature source returned other cells: {error}"
                ) from None
        check_bought(values, names, allow_nan=self.allow_nan)
        return Bought(values, cells)


def check_bought(values, names, *, allow_nan):
    """Raise an error for infinite values, and for NaN unless it is allowed.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Numbers that a source of features returned.
    names : list
        Name of each column, for the message.
    allow_nan : bool
    """
    _refuse_where(np.isinf(values), "infinity", names)
    if not allow_nan:
        _refuse_where(np.isnan(values), "NaN or nothing", names)


def _refuse_where(is_refused, what, names):
    """Raise an error if `is_refused` is True for any cell.

    The message has the number of their rows, and the names of their columns.

    Parameters
    ----------
    is_refused : ndarray of bool of shape (n_rows, n_columns)
        True for refused cells.
    what : str
        Name of the refused values, for the message.
    names : list
        Name of each column.
    """
    if not is_refused.any():
        return
    columns = np.flatnonzero(is_refused.any(axis=0))
    n_rows = int(is_refused.any(axis=1).sum())
    raise ValueError(
        f"The feature source returned {what} in {n_rows} of {len(is_refused)} rows for "
        f"the columns {[names[column] for column in columns]!r}; the models need "
        "finite numbers."
    )


class FeatureLedger:
    """Bought features of some rows, and the groups that the rows will pay for.

    A group of columns is bought as a whole.

    Parameters
    ----------
    n_samples, n_features : int

    group_of : ndarray of shape (n_features,), dtype=int
        Group of each column.

    n_groups : int

    reader : LazyReader, default=None
        Buys features. None if `values` has all of them.

    values : ndarray of shape (n_samples, n_features), default=None
        All features, if they need not be bought. None: they are bought when needed.

    Attributes
    ----------
    planned : ndarray of shape (n_samples, n_groups), dtype=bool
        Groups that each row pays for.

    cells : dict from int to ndarray of shape (n_samples,), dtype=object
        Cells of bought columns as the source returned them, where models read frames.
    """

    def __init__(
        self, n_samples, n_features, group_of, n_groups, *, reader=None, values=None
    ):
        if values is None:
            # NaN until a value is bought.
            values = np.full((n_samples, n_features), np.nan)
        self.group_of = group_of
        self.planned = np.zeros((n_samples, n_groups), dtype=bool)
        self.cells = {}
        self._reader = reader
        self._values = values
        # Not used if `values` has all features.
        self._is_bought = np.zeros((n_samples, n_groups), dtype=bool)

    def without_plans(self):
        """Return a ledger of the same rows with nothing planned.

        The two ledgers share the arrays of bought features. A feature that one of them
        buys is bought for both.
        """
        ledger = copy(self)
        ledger.planned = np.zeros_like(self.planned)
        return ledger

    def plan(self, rows, columns):
        """Record in `planned` that rows pay for the groups of the columns they need.

        Nothing is bought yet.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows.
        columns : ndarray of int
            Positions of the columns.
        """
        groups = np.unique(self.group_of[columns])
        # np.ix_ selects every pair of a row and a group.
        self.planned[np.ix_(rows, groups)] = True

    def take(self, rows, columns):
        """Buy columns of some rows that are not bought yet, and return the values.

        Parameters
        ----------
        rows : ndarray of int
            Rising positions, each once.
        columns : ndarray of int
            Positions of the columns that are needed.

        Returns
        -------
        ndarray of shape (n_selected_rows, n_features), dtype=float64
            All columns of the selected rows. Values that were never bought are NaN. If
            all rows are selected, it is the ledger's own array, which must not be
            changed.
        """
        # Without a reader, `values` has had all features from the beginning.
        if self._reader is not None and len(rows) and len(columns):
            self._buy(rows, np.unique(self.group_of[columns]))
        # `rows` are rising. If there are as many as in the ledger, they are all rows in
        # their order. The array itself is returned, not a copy.
        if len(rows) == len(self._values):
            return self._values
        return self._values[rows]

    def _buy(self, rows, groups):
        """Buy groups of columns for the rows that have not bought them.

        The bought values are written into `_values` and `cells`.

        Parameters
        ----------
        rows, groups : ndarray of int
            Positions of the rows, and of the groups that they need.
        """
        is_missing = ~self._is_bought[np.ix_(rows, groups)]
        # Features of rows that miss the same groups are bought in one request. Such
        # rows have the same pattern, which is their row of `is_missing`.
        patterns, pattern_of_row = np.unique(is_missing, axis=0, return_inverse=True)
        for index, pattern in enumerate(patterns):
            if not pattern.any():
                # These rows have bought all of the groups.
                continue
            # Some versions of NumPy return `pattern_of_row` with a second axis.
            has_pattern = pattern_of_row.ravel() == index
            pattern_rows = rows[has_pattern]
            columns = np.flatnonzero(np.isin(self.group_of, groups[pattern]))
            bought = self._reader.read(columns, pattern_rows)
            self._values[np.ix_(pattern_rows, columns)] = bought.values
            self._is_bought[np.ix_(pattern_rows, groups)] = True
            if bought.cells is not None:
                self._keep_cells(columns, pattern_rows, bought.cells)

    def _keep_cells(self, columns, rows, cells):
        """Write the cells that the source returned into `cells`.

        Parameters
        ----------
        columns, rows : ndarray of int
            Positions of the columns and of the rows.
        cells : list of array-like of shape (n_selected_rows,)
            One for each column.
        """
        for column, column_cells in zip(columns, cells):
            if column not in self.cells:
                # None where a row has not bought the column.
                self.cells[column] = np.full(len(self._values), None, dtype=object)
            self.cells[column][rows] = cells_of(column_cells)
