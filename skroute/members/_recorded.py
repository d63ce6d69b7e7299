"""Recorded answers as a model."""

import reprlib
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import available_if

from skroute.members._base import (
    MemberClassifier,
    check_classes,
    checked_labels,
    places_of,
)
from skroute.utils._compat import Real, _fit_context, _safe_indexing, num_samples
from skroute.utils._frames import array_of, as_rows, column_keys, is_frame, is_missing
from skroute.utils._named import in_order
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers, check_probabilities, refuse_masked


def _present(values, name):
    """Answers or ids as an array, none missing; None, NaN and pandas' NA are no labels."""
    refuse_masked(**{name: values})
    values = array_of(values)
    absent = (
        [is_missing(value) for value in values.flat]
        if values.dtype.kind in "Of"
        else []
    )
    if len(rows := np.flatnonzero(absent)):
        raise ValueError(
            f"{name} must not be missing, as in {len(rows)} of {len(values)} rows (the first is "
            f"row {rows[0]}). Leave such rows out, and give ids for the others."
        )
    return values


def _is_indicator(predictions):
    """Return True for answers of several labels per row: a table of more than one column."""
    return np.ndim(predictions) == 2 and np.shape(predictions)[1] > 1


class _Record:
    """The log as it is looked up in: answers and scores of classes in their order, rows by id."""

    def __init__(self, predictions, scores, classes, ids):
        self.source = (predictions, scores, classes, ids)
        if predictions is None and scores is None:
            raise ValueError(
                "predictions and scores are both None: a RecordedClassifier has nothing to "
                "answer with. Give the labels, a score matrix, or both."
            )
        indices = [
            part.index for part in (predictions, scores) if hasattr(part, "iloc")
        ]
        if ids is None and indices:
            ids = indices[0]
            if not indices[-1].equals(ids):
                raise ValueError("predictions and scores must have the same index.")
        self.multilabel = _is_indicator(predictions)
        named, labels = (predictions, None) if self.multilabel else (None, predictions)
        if labels is not None:
            labels = column_or_1d(_present(labels, "predictions"))
        tables = [table for table in (scores, named) if np.ndim(table) == 2]
        framed = [column_keys(table) for table in tables if is_frame(table)]
        if classes is not None:
            names = classes
        elif framed:
            names = framed[0]
        elif labels is not None:
            names = np.unique(labels)
        elif tables:
            names = np.arange(np.shape(tables[0])[1])
        else:
            raise ValueError(
                "scores of shape (n_rows,) belong to labels: give predictions, or a score matrix "
                "with one column per class."
            )
        names = check_classes(names)
        n_rows = num_samples(scores if predictions is None else predictions)
        shape, columns, order = (
            (n_rows, len(names)),
            names.astype(str),
            np.argsort(names),
        )
        self.classes, self.scores = names[order], None
        if np.ndim(scores) == 1 and labels is not None:
            self.scores = check_numbers(
                scores, "scores", shape=(n_rows,), low=0, high=1
            )
        elif scores is not None:
            table = check_numbers(
                in_order(scores, columns), "scores", shape=shape, low=0
            )
            self.scores = table[:, order]
        if self.multilabel:
            table = in_order(predictions, map(str, column_keys(scores) or columns))
            table = check_numbers(in_order(table, columns), "predictions", shape=shape)
            if not np.isin(table, (0, 1)).all():
                raise ValueError(
                    "predictions of several labels must be an indicator matrix of 0 and 1."
                )
            self.answers = table[:, order].astype(np.int64)
        elif labels is None:
            self.answers = self.classes[self.scores.argmax(axis=1)]
        else:
            if (strange := ~np.isin(labels, self.classes)).any():
                raise ValueError(
                    f"predictions have the label {labels[strange].tolist()[0]!r}, which is not in "
                    f"classes: {self.classes.tolist()!r}."
                )
            self.answers = self.classes[np.searchsorted(self.classes, labels)]
        self._index(ids, n_rows)

    def _index(self, ids, n_rows):
        """Rows by id, which are row numbers where none are given."""
        self.known = (
            f"row numbers 0 to {n_rows - 1}" if ids is None else f"{n_rows} ids"
        )
        self.ids = np.arange(n_rows) if ids is None else _present(ids, "ids")
        if self.ids.shape != (n_rows,):
            raise ValueError(f"ids must have shape ({n_rows},), got {self.ids.shape}.")
        keys = self.ids.tolist()
        self.row_of = {key: row for row, key in enumerate(keys)}
        if len(self.row_of) < n_rows:
            # Ids may be the texts that were asked about, which are not shown.
            again = next(row for row, key in enumerate(keys) if self.row_of[key] != row)
            raise ValueError(
                f"ids must not repeat; rows {again} and {self.row_of[keys[again]]} have the same."
            )
        self.largest = max(
            (abs(key) for key in keys if isinstance(key, Real)), default=0
        )

    def find(self, asked):
        """Positions of the rows asked for; an unknown one is a KeyError."""
        keys = asked.tolist()
        if self.ids.dtype.kind in "mM" and asked.dtype.kind in "mM":
            dates = asked.astype(self.ids.dtype)
            # An hour is not the day that it is cut to.
            keys = np.where(
                dates.astype(asked.dtype) == asked, dates.astype(object), None
            )
        digits = np.finfo(asked.dtype).nmant if asked.dtype.kind == "f" else 52
        if self.largest > 2 ** (digits + 1) and any(
            isinstance(key, float) for key in keys
        ):
            raise ValueError(
                f"X has ids as {asked.dtype}, which cannot tell whole numbers above "
                f"{2 ** (digits + 1)} apart, and ids go up to {self.largest}. Give them as whole "
                "numbers in a column of a data frame, or as texts."
            )
        rows = places_of(keys, self.row_of)
        if len(where := np.flatnonzero(rows < 0)):
            # By position: what X holds may be a text that nobody else should read.
            raise KeyError(
                f"No answer was recorded for {len(where)} of {len(asked)} rows of X (at "
                f"{reprlib.repr(where.tolist())[1:-1]}); recorded are {self.known}. An unknown "
                "row is never guessed."
            )
        return rows

    def around(self, rows, named, others):
        """A matrix with `named` at the label that was answered, and `others` at the others."""
        answered = self.answers[rows][:, np.newaxis] == self.classes
        return np.where(answered, named[:, np.newaxis], others[:, np.newaxis])


_has_scores = available_if(lambda model: model.scores is not None)


class RecordedClassifier(MemberClassifier):
    """Classifier that returns answers recorded in a log, by row number or id.

    For whoever has the answers of a model but not the model: X says which row is meant.

    Parameters
    ----------
    predictions : array-like of shape (n_rows,) or (n_rows, n_classes), default=None
        The label that was answered for each row; or, for several labels per row, an
        indicator matrix. None takes the class with the largest score, the first of equals.

    scores : array-like of shape (n_rows,) or (n_rows, n_classes), default=None
        The score in [0, 1] that each answered label came with; or a matrix of scores that
        are not negative, one column per class, 0 where a class was not named.

    classes : array-like of shape (n_classes,), default=None
        The labels, in the order of the columns of a matrix; those of a frame that are labels
        are found by name. None takes the columns of a frame, else the labels that occur, else
        0, 1, ... Give it where the service knows labels that it never answered.

    ids : array-like of shape (n_rows,), default=None
        What X holds to ask for each row: numbers or strings. None takes the index of a
        pandas object, else row numbers.

    column : int or str, default=None
        Column of X that holds the row number or id, the others being features for someone
        else. None requires X to have one column.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted. Known before `fit`.

    See Also
    --------
    CallableClassifier : Asks instead of looking up.

    Notes
    -----
    `fit` checks that every row is known and learns nothing. A log is trustworthy only for rows
    that the recorded model was not trained on. :func:`~sklearn.base.clone` shares the arrays,
    which are never written to.

    Examples
    --------
    >>> from skroute.members import RecordedClassifier
    >>> model = RecordedClassifier(["cat", "dog", "cat"], scores=[0.9, 0.8, 0.6])
    >>> model.predict([[2], [1]])
    array(['cat', 'dog'], dtype='<U3')
    >>> model.predict_proba([[2], [1]])
    array([[0.6, 0.4],
           [0.2, 0.8]])
    >>> model.predict([[7]])
    Traceback (most recent call last):
    ...
    KeyError: 'No answer was recorded for 1 of 1 rows of X (at 0); recorded are row numbers...
    """

    _parameter_constraints: dict = {
        "predictions": ["array-like", None],
        "scores": ["array-like", None],
        "classes": ["array-like", None],
        "ids": ["array-like", None],
        "column": [int, str, None],
    }

    def __init__(
        self,
        predictions: ArrayLike | None = None,
        *,
        scores: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        column: int | str | None = None,
    ):
        self.predictions = predictions
        self.scores = scores
        self.classes = classes
        self.ids = ids
        self.column = column

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels, sorted."""
        return self._recorded().classes

    def _recorded(self):
        """The validated log; built at first use, and again when a parameter has changed."""
        source = (self.predictions, self.scores, self.classes, self.ids)
        record = vars(self).get("_record")
        if record is None or any(a is not b for a, b in zip(record.source, source)):
            record = vars(self)["_record"] = _Record(*source)
        return record

    def _rows(self, X):
        refuse_masked(X=X)
        (X,) = indexable(as_rows(X))
        if num_samples(X) == 0:
            raise ValueError("X must have at least one row, got 0.")
        if self.column is not None:
            columns = column_keys(X) or [self.column]
            if isinstance(self.column, str) and self.column not in columns:
                raise ValueError(
                    f"column={self.column!r} is not one of X: {columns!r}."
                )
            X = _safe_indexing(X, self.column, axis=1)
        asked = np.asarray(X)
        if asked.ndim == 2 and asked.shape[1] != 1:
            raise ValueError(
                f"X must have one column with row numbers or ids, got {asked.shape[1]}. Say "
                "which it is with column."
            )
        return self._recorded().find(asked.reshape(-1))

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> "RecordedClassifier":
        """Check that every row is on record; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or, with `column`, (n_samples, n_columns)
            Row numbers or ids.

        y : array-like, default=None
            Labels; checked to be some, and not used.

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If a row is unknown.
        ValueError
            If the record is not consistent.
        """
        self._rows(X)
        if y is not None:
            checked_labels(X, y, several=get_tags(self).classifier_tags.multi_label)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The recorded answers.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or, with `column`, (n_samples, n_columns)
            Row numbers or ids.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Labels, or an indicator matrix where that was recorded.
        """
        return self._recorded().answers[self._rows(X)]

    @_has_scores
    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """The recorded scores as a matrix, 0 where a class was not named.

        A label that was named with a score of 0 keeps a hair more: it stays the answer.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or, with `column`, (n_samples, n_columns)
            Row numbers or ids.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        record, rows = self._recorded(), self._rows(X)
        if record.scores.ndim == 2:
            return record.scores[rows]
        named = np.maximum(record.scores[rows], np.finfo(np.float64).tiny)
        return record.around(rows, named, np.zeros(len(rows)))

    @_has_scores
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The recorded scores as probabilities.

        - A label with one score: that is its probability, and the rest is spread evenly over
          the other classes. A score below ``1 / n_classes`` is raised to a hair above it: the
          answered label stays the most probable one.
        - A score matrix: rows divided by their sums; even where all are 0.
        - Several labels per row: the scores as they are, one probability per label. Scores
          above 1 are an error.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or, with `column`, (n_samples, n_columns)
            Row numbers or ids.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        record, rows = self._recorded(), self._rows(X)
        scores, n_classes = record.scores[rows], len(record.classes)
        if scores.ndim == 1:
            named = np.maximum(scores, min((1 + 1e-9) / n_classes, 1.0))
            return record.around(rows, named, (1 - named) / max(n_classes - 1, 1))
        if record.multilabel:
            return check_probabilities(scores, type(self).__name__, total=None)
        total = scores.sum(axis=1, keepdims=True)
        even = np.full_like(scores, 1 / n_classes)
        return np.divide(scores, total, out=even, where=total > 0)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = _is_indicator(self.predictions)
        return tags
