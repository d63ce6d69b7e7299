"""What the gating estimators share: rows whose features are bought, each paid for once."""

from collections.abc import Mapping
from copy import copy

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_X_y, validate_data

from skroute.base import CostAwareMixin
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


class FeatureBuyer(FeatureGroupsMixin, CostAwareMixin, ClassifierMixin, BaseEstimator):
    """Base of the estimators that buy features row by row."""

    _parameter_constraints: dict = {
        "feature_costs": ["array-like", Mapping, None],
        "feature_groups": [Mapping, None],
        "quality": [str, Mapping, "array-like", callable, tuple],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "policy": [StrOptions({"online", "batch"})],
        "n_jobs": [Integral, None],
    }

    def _offers_proba(self):
        return True

    def _finite(self):
        # What is missing of a frame with categories is for the models to take or to refuse.
        some = self._categorical.any() or self.__sklearn_tags__().input_tags.allow_nan
        return "allow-nan" if some else True

    def _checked(self, X, y, sample_weight):
        """Numeric rows, positions of classes and weights; sets ``classes_`` and the groups."""
        X, y = on_host(X), on_host(y)
        # How the columns of a frame are read and it is made anew; which hold codes of categories.
        self._readers = self._raw = None
        if is_frame(X) or (X.ndim == 2 and needs_encoding(X)):
            validate_data(self, X, skip_check_array=True)
            names, columns = names_and_columns(X)
            if names is None:
                names = range(len(columns))
            self._readers = [
                ColumnReader.fit(*column) for column in zip(columns, names)
            ]
            self._raw, values = RawRows.of(X), _read(self._readers, columns)
            self._categorical = np.array(
                [own.kind == CATEGORY for own in self._readers]
            )
        else:
            values = validate_data(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan"
            )
            self._categorical = np.zeros(self.n_features_in_, dtype=bool)
        values, y = check_X_y(
            values, y, dtype=np.float64, ensure_all_finite=self._finite()
        )
        self._set_groups()
        check_classification_targets(y)
        weight = check_sample_weight(
            sample_weight, values, dtype=np.float64, ensure_non_negative=True
        )
        self.classes_, encoded = np.unique(y, return_inverse=True)
        present = np.unique(encoded[weight > 0])
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes with positive weight, got "
                f"one class: {self.classes_[present]!r}."
            )
        return values, encoded, weight

    def _feature_cost(self, *columns):
        """Cost of buying all of these columns."""
        groups = np.unique(self.group_of_[np.concatenate(columns)])
        return float(self.group_costs_[groups].sum())

    def _check_rows(self, X):
        if isinstance(X, LazyFeatures):
            return X
        return LazyFeatures(X) if is_mapping(X) else as_rows(super()._check_rows(X))

    def _ledger(self, X):
        """The rows as a ledger: bought already if X is a table, else to be asked for."""
        return (
            cache_of(self).get_or_compute("ledger", lambda: self._new_ledger(X)).anew()
        )

    def _new_ledger(self, X):
        groups = self.group_of_, len(self.group_costs_)
        if not isinstance(X, LazyFeatures):
            # Feature names were checked on X itself.
            if self._readers is None:
                refuse_texts(X=X)
                values = X
            else:
                values = _read(self._readers, names_and_columns(X)[1])
            values = check_array(
                values,
                dtype=np.float64,
                ensure_all_finite=self._finite(),
                input_name="X",
            )
            return FeatureLedger(*values.shape, *groups, values=values)
        names, allow_nan = self._column_names(), self._finite() == "allow-nan"

        def read(columns, rows):
            asked = [names[column] for column in columns]
            if self._readers is None:
                values = X.read(asked, rows)
            else:
                cells = X.fetch(asked, rows)
                try:
                    values = _read([self._readers[column] for column in columns], cells)
                except ValueError as error:
                    raise ValueError(
                        f"The feature source returned other cells: {error}"
                    ) from None
                ledger.keep(columns, rows, cells)
            check_bought(values, asked, allow_nan=allow_nan)
            return values

        ledger = FeatureLedger(num_samples(X), self.n_features_in_, *groups, read=read)
        return ledger

    def _input(self, ledger, rows, columns, X):
        """Rows of some columns as a user's model was fitted on them: arrays, or frames."""
        if not isinstance(X, LazyFeatures):
            part = _safe_indexing(X, rows)
            every = len(columns) == self.n_features_in_
            return part if every else _safe_indexing(part, columns, axis=1)
        values = ledger.take(rows, columns)
        if self._readers is None:
            return values[:, columns]
        cells = {column: ledger.cells[column][rows] for column in columns}
        return _safe_indexing(self._raw.rows(cells, len(rows)), columns, axis=1)

    def _answers_of(self, proba, response):
        """Answers of probabilities."""
        return (
            proba
            if response == "predict_proba"
            else self.classes_[proba.argmax(axis=1)]
        )


def _read(readers, columns):
    """Columns as numbers, each by what its cells say, also where rows come as an array."""
    return np.column_stack([own.read(column) for own, column in zip(readers, columns)])


def quality_of(objective, y, proba):
    """Quality of answering rows by these probabilities."""
    response = proba if objective.asks == "predict_proba" else proba.argmax(axis=1)
    return np.asarray(objective.of(y, response), dtype=np.float64)


def check_bought(values, columns, *, allow_nan):
    """Refuse bought features that a matrix could not have."""
    for bad, what in (
        (np.isinf(values), "infinity"),
        (np.isnan(values), "NaN or nothing"),
    ):
        if bad.any() and not (allow_nan and what != "infinity"):
            names = [columns[at] for at in np.flatnonzero(bad.any(axis=0))]
            raise ValueError(
                f"The feature source returned {what} in {int(bad.any(axis=1).sum())} of "
                f"{len(values)} rows for the columns {names!r}; the models need finite numbers."
            )


class FeatureLedger:
    """Features of some rows, with what has been bought and what is planned to be.

    `group_of` is the group of each column; a group is bought as a whole, by ``read(columns, rows)``
    with positions. It is None if `values` holds everything.
    """

    def __init__(
        self, n_samples, n_features, group_of, n_groups, *, read=None, values=None
    ):
        self.group_of = group_of
        self.planned = np.zeros((n_samples, n_groups), dtype=bool)
        self._read = read
        self._values = (
            np.full((n_samples, n_features), np.nan) if values is None else values
        )
        self._bought = np.zeros((n_samples, n_groups), dtype=bool)
        # Cells as the source returned them, by column, where models read frames.
        self.cells = {}

    def anew(self):
        """The same rows and what was bought of them, with nothing planned."""
        other = copy(self)
        other.planned = np.zeros_like(self.planned)
        return other

    def keep(self, columns, rows, cells):
        """Remember cells as they came."""
        for column, own in zip(columns, cells):
            if column not in self.cells:
                self.cells[column] = np.full(len(self._values), None, dtype=object)
            self.cells[column][rows] = cells_of(own)

    def plan(self, rows, columns):
        """Note that these rows will need these columns."""
        groups = np.unique(self.group_of[columns])
        self.planned[np.ix_(rows, groups)] = True

    def take(self, rows, columns):
        """Values of rising rows; those in `columns` are bought, others may be NaN."""
        if self._read is not None and len(rows) and len(columns):
            groups = np.unique(self.group_of[columns])
            missing = ~self._bought[np.ix_(rows, groups)]
            # Rows that lack the same groups are asked together.
            patterns, inverse = np.unique(missing, axis=0, return_inverse=True)
            for index, pattern in enumerate(patterns):
                if pattern.any():
                    asked = rows[inverse.ravel() == index]
                    bought = np.flatnonzero(np.isin(self.group_of, groups[pattern]))
                    self._values[np.ix_(asked, bought)] = self._read(bought, asked)
                    self._bought[np.ix_(asked, groups)] = True
        return self._values if len(rows) == len(self._values) else self._values[rows]
