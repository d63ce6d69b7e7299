"""Recorded answers as a model."""

import reprlib
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import available_if

from skroute.members._base import (
    UNKNOWN,
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

# The answered label gets a probability that exceeds an even share by at least this
# relative amount, so that it stays the most probable. It is far above the rounding of a
# float (1e-16), and too small to matter.
_TIE_BREAK = 1e-9

# Largest number of bits of a whole number that a float64 has exactly: the 52 bits of
# its mantissa, and a first bit that is not stored.
_BITS_OF_FLOAT64 = 53


def _check_present(values, name):
    """Return answers or ids as an array, or raise an error if one is missing.

    Parameters
    ----------
    values : array-like of n_rows entries

    name : str
        Name of the argument, for the message.

    Returns
    -------
    ndarray
    """
    refuse_masked(**{name: values})
    values = array_of(values)
    missing_rows = np.empty(0, dtype=np.int64)
    # Only objects (kind O) and floats (f) can be missing.
    if values.dtype.kind in "Of":
        is_absent = [is_missing(value) for value in values.flat]
        missing_rows = np.flatnonzero(is_absent)
    if len(missing_rows):
        raise ValueError(
            f"{name} must not be missing, as in {len(missing_rows)} of {len(values)} "
            f"rows (the first is row {missing_rows[0]}). Leave such rows out, and give "
            "ids for the others."
        )
    return values


def _is_indicator(predictions):
    """Return True if answers are an indicator matrix: a column for each label."""
    return np.ndim(predictions) == 2 and np.shape(predictions)[1] > 1


class _Record:
    """The validated log: answers and scores by row, and the row of each id.

    Parameters
    ----------
    predictions, scores, classes, ids : array-like or None
        Parameters of `RecordedClassifier`.

    Attributes
    ----------
    source : tuple
        The parameters. `RecordedClassifier` notices by them that one has changed.

    classes : ndarray of shape (n_classes,)
        Sorted labels.

    answers : ndarray of shape (n_rows,) or (n_rows, n_classes)
        Labels, or an indicator matrix.

    scores : ndarray of shape (n_rows,), (n_rows, n_classes) or None
        Score of the answered label, or of each class. None if there are no scores.

    is_multilabel : bool
        True if a row may have several labels.

    ids : ndarray of shape (n_rows,)
        Ids or row numbers.

    row_of : dict
        Row of each id.

    largest_id : float
        The largest absolute value of an id that is a number, or 0.

    known_ids : str
        Description of the ids, for messages.
    """

    def __init__(self, predictions, scores, classes, ids):
        self.source = (predictions, scores, classes, ids)
        if predictions is None and scores is None:
            raise ValueError(
                "predictions and scores are both None: a RecordedClassifier has "
                "nothing to answer with. Give the labels, a score matrix, or both."
            )
        if ids is None:
            # Row labels of pandas are the ids. None if there are none: then row numbers
            # are the ids.
            ids = _common_index(predictions, scores)
        self.is_multilabel = _is_indicator(predictions)
        # The answered label of each row. None if the answers are an indicator matrix,
        # or must be computed from the scores.
        labels = None
        if predictions is not None and not self.is_multilabel:
            labels = column_or_1d(_check_present(predictions, "predictions"))
        # `names` are the labels in the order of a matrix's columns. `order` sorts them.
        names = check_classes(_class_names(predictions, scores, classes, labels))
        order = np.argsort(names)
        self.classes = names[order]

        n_rows = num_samples(scores if predictions is None else predictions)
        self.scores = _read_scores(scores, names, n_rows, has_labels=labels is not None)
        if self.scores is not None and self.scores.ndim == 2:
            self.scores = self.scores[:, order]
        if self.is_multilabel:
            table = _read_indicators(predictions, scores, names)
            self.answers = table[:, order].astype(np.int64)
        elif labels is None:
            # Only scores were given.
            self.answers = self.classes[self.scores.argmax(axis=1)]
        else:
            self.answers = _read_labels(labels, self.classes)
        self._index_rows(ids, n_rows)

    def _index_rows(self, ids, n_rows):
        """Set the attributes about ids: `ids`, `known_ids`, `row_of`, `largest_id`.

        `largest_id` is an absolute value, since :meth:`_check_precision` compares it
        with the largest whole number that a float type has exactly.

        Parameters
        ----------
        ids : array-like of shape (n_rows,), or None
            None takes row numbers.

        n_rows : int
        """
        if ids is None:
            self.known_ids = f"row numbers 0 to {n_rows - 1}"
            self.ids = np.arange(n_rows)
        else:
            self.known_ids = f"{n_rows} ids"
            self.ids = _check_present(ids, "ids")
        if self.ids.shape != (n_rows,):
            raise ValueError(f"ids must have shape ({n_rows},), got {self.ids.shape}.")
        keys = self.ids.tolist()
        self.row_of = {key: row for row, key in enumerate(keys)}
        if len(self.row_of) < n_rows:
            # `row_of` has the last row of a repeated id. An earlier row of this id
            # differs from it. Ids may be private texts, so that rows are shown.
            first = next(row for row, key in enumerate(keys) if self.row_of[key] != row)
            raise ValueError(
                f"ids must not repeat; rows {first} and {self.row_of[keys[first]]} "
                "have the same."
            )
        absolute_ids = [abs(key) for key in keys if isinstance(key, Real)]
        # 0 if no id is a number.
        self.largest_id = max(absolute_ids, default=0)

    def find(self, ids):
        """Return the log's row of each id, or raise a KeyError for an unknown id.

        Parameters
        ----------
        ids : ndarray of shape (n_ids,)

        Returns
        -------
        ndarray of int of shape (n_ids,)
        """
        keys = ids.tolist()
        # Kinds of dtypes: m are differences of dates, M are dates. Units may differ.
        if self.ids.dtype.kind in "mM" and ids.dtype.kind in "mM":
            dates = ids.astype(self.ids.dtype)
            # A moment within a day is not the id of the day. Its key becomes None,
            # which is no id, so that it is unknown.
            is_exact = dates.astype(ids.dtype) == ids
            keys = np.where(is_exact, dates.astype(object), None)
        self._check_precision(ids, keys)
        rows = places_of(keys, self.row_of)
        unknown = np.flatnonzero(rows == UNKNOWN)
        if len(unknown):
            # The message has positions, since an id may be a private text.
            raise KeyError(
                f"No answer was recorded for {len(unknown)} of {len(ids)} rows of X "
                f"(at {reprlib.repr(unknown.tolist())[1:-1]}); recorded are "
                f"{self.known_ids}. An unknown row is never guessed."
            )
        return rows

    def _check_precision(self, ids, keys):
        """Raise an error if ids are floats that may be rounded.

        A float type has all whole numbers up to a power of two. Larger ids of the log
        may be rounded to the same float.

        Parameters
        ----------
        ids : ndarray of shape (n_ids,)

        keys : sequence of n_ids objects
            The ids as Python objects.
        """
        # Number of bits of a whole number that the float type of the ids has exactly.
        # Floats in an array of objects are float64.
        n_bits = _BITS_OF_FLOAT64
        if ids.dtype.kind == "f":
            n_bits = np.finfo(ids.dtype).nmant + 1
        largest_exact = 2**n_bits
        has_floats = any(isinstance(key, float) for key in keys)
        if self.largest_id > largest_exact and has_floats:
            raise ValueError(
                f"X has ids as {ids.dtype}, which cannot tell whole numbers above "
                f"{largest_exact} apart, and ids go up to {self.largest_id}. Give them "
                "as whole numbers in a column of a data frame, or as texts."
            )

    def spread(self, rows, answered, others):
        """Return a matrix with one value for the answered label, another for the rest.

        Parameters
        ----------
        rows : ndarray of int of shape (n_rows,)
            Rows of the log.

        answered : ndarray of shape (n_rows,)
            Value of the answered label of each row.

        others : ndarray of shape (n_rows,)
            Value of each other label.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        is_answer = self.answers[rows][:, np.newaxis] == self.classes
        return np.where(is_answer, answered[:, np.newaxis], others[:, np.newaxis])


def _common_index(predictions, scores):
    """Return the row labels (index) that pandas objects have in common, or None.

    Parameters
    ----------
    predictions, scores : array-like or None

    Returns
    -------
    pandas.Index or None
        None if neither is an object of pandas. Different indices are an error.
    """
    indices = []
    for table in (predictions, scores):
        if hasattr(table, "iloc"):
            indices.append(table.index)
    if not indices:
        return None
    if not indices[-1].equals(indices[0]):
        raise ValueError("predictions and scores must have the same index.")
    return indices[0]


def _class_names(predictions, scores, classes, labels):
    """Return the labels of the columns of a matrix of scores or answers, in order.

    They are `classes`, else the names of the columns of a frame, else the sorted labels
    that occur, else the column numbers.

    Parameters
    ----------
    predictions, scores, classes : array-like or None
        Parameters of `RecordedClassifier`.

    labels : ndarray of shape (n_rows,), or None
        The answers, unless they are an indicator matrix or were not given.

    Returns
    -------
    array-like of shape (n_classes,)
    """
    if classes is not None:
        return classes
    tables = []
    if np.ndim(scores) == 2:
        tables.append(scores)
    if _is_indicator(predictions):
        tables.append(predictions)
    for table in tables:
        if is_frame(table):
            return column_keys(table)
    if labels is not None:
        return np.unique(labels)
    if tables:
        return np.arange(np.shape(tables[0])[1])
    raise ValueError(
        "scores of shape (n_rows,) belong to labels: give predictions, or a score "
        "matrix with one column per class."
    )


def _read_scores(scores, names, n_rows, *, has_labels):
    """Return validated scores, one per row or one column per class, or None.

    Parameters
    ----------
    scores : array-like or None

    names : ndarray of shape (n_classes,)
        Labels in the order of the columns of a matrix.

    n_rows : int

    has_labels : bool
        True if the log has one label per row. Scores of shape (n_rows,) are those of
        these labels.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_classes), or None
    """
    if scores is None:
        return None
    if np.ndim(scores) == 1 and has_labels:
        return check_numbers(scores, "scores", shape=(n_rows,), low=0, high=1)
    table = in_order(scores, names.astype(str))
    return check_numbers(table, "scores", shape=(n_rows, len(names)), low=0)


def _read_indicators(predictions, scores, names):
    """Return answers with several labels per row as a matrix, one column per class.

    Parameters
    ----------
    predictions : array-like of shape (n_rows, n_classes)
        Indicators.

    scores : array-like or None
        Scores of the labels. The columns of a frame may have other names than the
        labels, and then the columns of `predictions` have these names, too.

    names : ndarray of shape (n_classes,)
        Labels in the order of the columns.

    Returns
    -------
    ndarray of shape (n_rows, n_classes)
    """
    columns = names.astype(str)
    names_of_scores = column_keys(scores) or columns
    # If `predictions` is a frame, its column names are the labels, or the column names
    # of `scores`. `in_order` sorts the columns of a frame with the given names. It
    # returns an array, or a frame with other names, unchanged.
    table = in_order(predictions, map(str, names_of_scores))
    table = in_order(table, columns)
    shape = (num_samples(predictions), len(names))
    table = check_numbers(table, "predictions", shape=shape)
    if not np.isin(table, (0, 1)).all():
        raise ValueError(
            "predictions of several labels must be an indicator matrix of 0 and 1."
        )
    return table


def _read_labels(labels, classes):
    """Return answered labels in the type of the classes, or raise a ValueError.

    `labels` and the result have shape (n_rows,). `classes` are sorted.
    """
    is_unknown = ~np.isin(labels, classes)
    if is_unknown.any():
        raise ValueError(
            f"predictions have the label {labels[is_unknown].tolist()[0]!r}, which is "
            f"not in classes: {classes.tolist()!r}."
        )
    return classes[np.searchsorted(classes, labels)]


_has_scores = available_if(lambda model: model.scores is not None)


class RecordedClassifier(MemberClassifier):
    """Classifier that returns answers recorded in a log, by row number or id.

    Use it if you have the answers of a model but not the model. X has the row numbers
    or ids.

    Parameters
    ----------
    predictions : array-like of shape (n_rows,) or (n_rows, n_classes), default=None
        The answered label of each row. With several labels per row, an indicator
        matrix. None takes the class with the largest score, the first of equal ones.

    scores : array-like of shape (n_rows,) or (n_rows, n_classes), default=None
        Either the score of each answered label, in [0, 1], or a matrix with one column
        per class. The scores of a matrix are at least 0. 0 is a class without a score.

    classes : array-like of shape (n_classes,), default=None
        The labels, in the order of the columns of a matrix. Columns of a frame are
        found by their names. None takes the columns of a frame, else the labels that
        occur, else the column numbers from 0. Give `classes` if the service has labels
        that it never answered.

    ids : array-like of shape (n_rows,), default=None
        Id of each row, a number or a string. None takes the index of a pandas object,
        else row numbers.

    column : int or str, default=None
        Column of X with the row number or id. The other columns are not read. None
        requires X to have one column.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted. Known before `fit`.

    See Also
    --------
    CallableClassifier : Calls a function for its answers.

    Notes
    -----
    `fit` checks that every row is recorded, and learns nothing. A log is valid only for
    rows that the recorded model was not trained on. :func:`~sklearn.base.clone` shares
    the arrays, which are read-only.

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
    KeyError: 'No answer was recorded for 1 of 1 rows of X (at 0); recorded are row...
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
        """Return the validated log of answers, a `_Record`.

        It is built again if a parameter is another object than before.
        """
        source = (self.predictions, self.scores, self.classes, self.ids)
        record = vars(self).get("_record")  # None: not built yet
        is_current = record is not None
        if is_current:
            for old, new in zip(record.source, source):
                is_current = is_current and old is new
        if not is_current:
            record = _Record(*source)
            vars(self)["_record"] = record
        return record

    def _rows(self, X):
        """Return the log's row for each row of X, found by row number or id.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or (n_samples, n_columns)
            Row numbers or ids.

        Returns
        -------
        ndarray of int of shape (n_samples,)
        """
        refuse_masked(X=X)
        (X,) = indexable(as_rows(X))
        if num_samples(X) == 0:
            raise ValueError("X must have at least one row, got 0.")
        if self.column is not None:
            # Without names, a column is found by its number, which is checked later.
            columns = column_keys(X)
            is_name = isinstance(self.column, str)
            if columns and is_name and self.column not in columns:
                raise ValueError(
                    f"column={self.column!r} is not one of X: {columns!r}."
                )
            X = _safe_indexing(X, self.column, axis=1)
        ids = np.asarray(X)
        if ids.ndim == 2 and ids.shape[1] != 1:
            raise ValueError(
                f"X must have one column with row numbers or ids, got {ids.shape[1]}. "
                "Say which it is with column."
            )
        return self._recorded().find(ids.reshape(-1))

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> "RecordedClassifier":
        """Check that every row is recorded. Nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or (n_samples, n_columns)
            Row numbers or ids, in the column `column` if there are several.

        y : array-like, default=None
            Labels. They are checked and not used.

        Returns
        -------
        self
            The fitted estimator.

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
        """Return the recorded answers.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or (n_samples, n_columns)
            Row numbers or ids, in the column `column` if there are several.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Labels, or an indicator matrix if that was recorded.
        """
        return self._recorded().answers[self._rows(X)]

    @_has_scores
    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the recorded scores as a matrix, 0 for a class without a score.

        An answered label with a score of 0 gets the smallest positive number, so that
        it stays the answer.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or (n_samples, n_columns)
            Row numbers or ids, in the column `column` if there are several.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        record = self._recorded()
        rows = self._rows(X)
        if record.scores.ndim == 2:
            return record.scores[rows]
        answered = np.maximum(record.scores[rows], np.finfo(np.float64).tiny)
        return record.spread(rows, answered, np.zeros(len(rows)))

    @_has_scores
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the recorded scores as probabilities.

        - One score per row is the probability of the answered label. The other classes
          share the rest evenly. A score below ``1 / n_classes`` is raised to slightly
          more than that, so that the answered label stays the most probable one.
        - Rows of a score matrix are divided by their sums. A row of zeros becomes even.
        - With several labels per row, the scores are the probabilities of the labels.
          Scores above 1 are an error.

        Parameters
        ----------
        X : array-like of shape (n_samples, 1) or (n_samples, n_columns)
            Row numbers or ids, in the column `column` if there are several.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        record = self._recorded()
        rows = self._rows(X)
        scores = record.scores[rows]
        n_classes = len(record.classes)
        if scores.ndim == 1:
            # Smallest probability of an answered label: slightly above an even share. A
            # single class has probability 1.
            smallest = min((1 + _TIE_BREAK) / n_classes, 1.0)
            answered = np.maximum(scores, smallest)
            n_others = max(n_classes - 1, 1)  # not 0, by which it is divided
            others = (1 - answered) / n_others
            return record.spread(rows, answered, others)
        if record.is_multilabel:
            return check_probabilities(scores, type(self).__name__, total=None)
        total = scores.sum(axis=1, keepdims=True)  # (n_rows, 1)
        # Rows of zeros keep the even share.
        even = np.full_like(scores, 1 / n_classes)
        return np.divide(scores, total, out=even, where=total > 0)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = _is_indicator(self.predictions)
        return tags
