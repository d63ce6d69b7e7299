"""Targets: members answer with one label, several labels or a number per row.

Each kind of target is a class. It checks the true answers, encodes them, and asks
members for answers in the same encoding.
"""

from abc import ABC, abstractmethod
from contextlib import contextmanager

import numpy as np
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skroute.base import note_failure
from skroute.base._inspection import comes_fitted
from skroute.metrics import sample_quality
from skroute.utils._compat import is_fitted, num_samples
from skroute.utils._named import align_by_class
from skroute.utils._tensors import on_host
from skroute.utils._validation import check_probabilities, holds_texts, with_sum_one

# Largest absolute target of a regressor. The squared difference of two targets is then
# at most 4e300, which is finite in double precision.
_LARGEST = 1e150
# Maximal number of labels that an error message shows.
_N_SHOWN = 5


@contextmanager
def rows_of_failure(rows):
    """Change ``rows`` of an exception, counted in a call, to positions in all rows.

    A model is called on some rows of the user. `rows` are their positions, (n_called,).
    If the exception of the model has an attribute ``rows``, these are positions among
    the rows of the call. They are changed, and the exception is raised again.
    """
    try:
        yield
    except Exception as error:
        if hasattr(error, "rows"):
            rows_of_call = error.rows
            error.rows = rows[rows_of_call]
        raise


def all_classes(classes, members):
    """Return the sorted union of the labels of y and of members that come fitted.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Labels of y.
    members : iterable of estimators

    Returns
    -------
    ndarray of shape (n_all_classes,)
    """
    all_labels = [classes]
    for member in members:
        if not (comes_fitted(member) and is_fitted(member)):
            continue
        labels = np.asarray(member.classes_)
        if holds_texts(labels) != holds_texts(classes):
            raise ValueError(
                f"y has the labels {classes[:_N_SHOWN].tolist()!r}, but a member that "
                f"comes fitted knows {labels[:_N_SHOWN].tolist()!r}: give y in the "
                "type of the members' labels."
            )
        all_labels.append(labels)
    if len(all_labels) == 1:
        return classes
    return np.unique(np.concatenate(all_labels))


class Target(ABC):
    """Base of the kinds of target: how true answers and members' answers are encoded.

    Parameters
    ----------
    classes : ndarray or None
        The labels, in the order of encoded answers.
    """

    def __init__(self, classes=None):
        self.classes = classes

    @classmethod
    @abstractmethod
    def check(cls, X, y, name):
        """Return validated true answers, not encoded, and their labels (or None).

        Parameters
        ----------
        X : indexable of n_rows rows
        y : array-like of n_rows true answers
        name : str
            The class of the router, for error messages.

        Returns
        -------
        y : ndarray of shape (n_rows,) or (n_rows, n_labels)
        classes : ndarray or None
            The labels in it. None for a target of numbers.
        """

    @abstractmethod
    def encode(self, y):
        """Encode validated true answers as the members' answers are encoded."""

    @abstractmethod
    def labels(self, answers):
        """Decode encoded answers to what the user gets, such as labels."""

    def probabilities(self, answers):
        """Decode probabilities or scores to the probabilities that the user gets."""
        return answers

    @abstractmethod
    def call(self, method, name, member, X, *, proven=False):
        """Call a method of a fitted member on X, and return its encoded answers.

        Parameters
        ----------
        method : {"predict", "predict_proba", "scores"}
            ``"scores"`` are probabilities, or the scores of a recorded member.
        name : str
            The member.
        member : fitted estimator
        X : indexable of n_rows rows
        proven : bool, default=False
            As in `check_probabilities`.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """

    @abstractmethod
    def score(self, y, answers, weight):
        """Return the score of decoded answers (float).

        `y` are the true answers. `weight` (n_rows,) are weights of the rows. None
        weights all alike.
        """


class SingleLabel(Target):
    """One label per row.

    Encoded answers are positions in ``classes``, which is sorted. Probabilities and
    scores have one column for each class.
    """

    @classmethod
    def check(cls, X, y, name):
        """Return the validated y, and the sorted labels in it."""
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"{name} needs at least two classes in y, got one class: "
                f"{classes.tolist()[0]!r}."
            )
        return y, classes

    def encode(self, y):
        """Return the position of each label of `y` in `classes`, which has them all."""
        return np.searchsorted(self.classes, y)

    def labels(self, answers):
        """Return the labels of `answers`, which are positions in `classes`."""
        return self.classes[answers]

    def probabilities(self, answers):
        """Return scores of the classes divided by their sum in each row."""
        return with_sum_one(answers)

    def call(self, method, name, member, X, *, proven=False):
        """Return positions of labels, or one column of scores for each of `classes`.

        The parameters are those of `Target.call`.
        """
        if method == "predict":
            return self._predict(name, member, X)
        if method == "scores" and hasattr(member, "predict_scores"):
            with note_failure(name, num_samples(X), "predict_scores"):
                scores = np.asarray(member.predict_scores(X))
            return align_by_class(scores, member.classes_, self.classes)
        return self._predict_proba(name, member, X, proven=proven)

    def _predict_proba(self, name, member, X, *, proven):
        """Return the checked probabilities of a member, (n_rows, n_classes).

        The parameters are those of `Target.call`.
        """
        with note_failure(name, num_samples(X), "predict_proba"):
            proba = np.asarray(member.predict_proba(X))
            member_classes = member.classes_
            if proba.shape[1] != len(member_classes):
                raise ValueError(
                    f"The probabilities have {proba.shape[1]} columns, but classes_ "
                    f"names {len(member_classes)} labels: {member_classes!r}."
                )
            proba = check_probabilities(proba, name, proven=proven)
        return align_by_class(proba, member_classes, self.classes)

    def _predict(self, name, member, X):
        """Return the positions of the labels that a member predicts, (n_rows,).

        The parameters are those of `Target.call`.
        """
        classes = self.classes
        with note_failure(name, num_samples(X), "predict"):
            answers = np.asarray(member.predict(X))
            if answers.shape == (num_samples(X), 1):
                # CatBoost predicts several classes as a column.
                answers = answers[:, 0]
            # `searchsorted` returns len(classes) for an answer above all labels. The
            # minimum makes it a valid position. The comparison below refuses it.
            positions = np.minimum(np.searchsorted(classes, answers), len(classes) - 1)
            is_unknown = classes[positions] != answers
            if is_unknown.any():
                raise ValueError(
                    f"The answer {answers[is_unknown].tolist()[0]!r} is not among the "
                    f"labels {classes.tolist()!r}. "
                    "(The nets of skorch answer with positions: encode y as 0, ..., "
                    "n_classes - 1.)"
                )
            return positions

    def score(self, y, answers, weight):
        """Return the accuracy."""
        return accuracy_score(y, answers, sample_weight=weight)


class MultiLabel(Target):
    """Several labels per row.

    Encoded answers are indicator matrices with one column for each label. Scores and
    probabilities of labels are such matrices, too.
    """

    @classmethod
    def check(cls, X, y, name):
        """Return the validated indicator matrix `y`, and the numbers of its columns."""
        if hasattr(y, "todense"):
            y = y.todense()
        y = np.asarray(y).astype(np.int64)
        check_consistent_length(X, y)
        return y, np.arange(y.shape[1])

    def encode(self, y):
        """Return an indicator matrix of 0 and 1 as booleans."""
        return y.astype(bool)

    def labels(self, answers):
        """Return an indicator matrix of booleans as 0 and 1."""
        return answers.astype(np.int64)

    def call(self, method, name, member, X, *, proven=False):
        """Return predictions, probabilities or scores of each label, as float64.

        The parameters are those of `Target.call`. `proven` has no effect: rows are not
        divided by their sums.
        """
        if method == "scores":
            has_scores = hasattr(member, "predict_scores")
            method = "predict_scores" if has_scores else "predict_proba"
        with note_failure(name, num_samples(X), method):
            scores = getattr(member, method)(X)
            if isinstance(scores, list):
                # scikit-learn's forests and others return one matrix for each label.
                columns = []
                for label_scores, label_classes in zip(scores, member.classes_):
                    columns.append(_score_of_presence(label_scores, label_classes))
                scores = np.column_stack(columns)
            scores = np.asarray(scores, dtype=np.float64)
            n_labels = len(self.classes)
            if scores.ndim != 2 or scores.shape[1] != n_labels:
                raise ValueError(
                    f"{name!r} must give a score for each of {n_labels} labels, got "
                    f"shape {scores.shape}."
                )
            if method == "predict_proba":
                # Labels do not exclude each other: the sum of a row may be any number.
                check_probabilities(scores, name, total=None)
        return scores

    def score(self, y, answers, weight):
        """Return the mean of `sample_quality` over the rows, each a set of labels."""
        return float(np.average(sample_quality(y, answers), weights=weight))


def _score_of_presence(scores, values):
    """Return the score of value 1 of a label, ndarray of shape (n_rows,).

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_values)
    values : sequence of int
        The values of the label in training: 0 and 1, or one of them alone.
    """
    if len(values) == 1:
        # If the only value is 0, presence has the score 0.
        is_present = values[-1] == 1
        return scores[:, -1] * is_present
    return scores[:, 1]  # values are 0 and 1, in this order


class Numbers(Target):
    """A target with one number per row, which is not encoded."""

    @classmethod
    def check(cls, X, y, name):
        """Return the validated y, and None for the labels."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"{name} is for one number per row, but y has the shape {y.shape}. A "
                "router for each column answers several."
            )
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
        # The numbers are compared in double precision. In single precision the limit
        # would be infinite, and numpy would warn.
        if np.abs(y.astype(np.float64)).max() > _LARGEST:
            raise ValueError(
                f"y must lie within {_LARGEST:g} of 0, or the square of an error is "
                "infinite. Scale it."
            )
        # Members get the numbers as they were given.
        return y, None

    def encode(self, y):
        """Return the numbers in double precision."""
        return np.asarray(y, dtype=np.float64)

    def labels(self, answers):
        """Return the numbers as they are."""
        return answers

    def call(self, method, name, member, X, *, proven=False):
        """Return the numbers that a member predicts, ndarray of shape (n_rows,).

        `name`, `member` and `X` are those of `Target.call`. `method` and `proven` have
        no effect: numbers have no probabilities.
        """
        with note_failure(name, num_samples(X), "predict"):
            answers = np.asarray(on_host(member.predict(X)), dtype=np.float64)
            if answers.shape not in ((num_samples(X),), (num_samples(X), 1)):
                raise ValueError(
                    f"A regressor must answer one number for each of {num_samples(X)} "
                    f"rows, got shape {answers.shape}."
                )
            answers = answers.reshape(-1)
            if not np.isfinite(answers).all():
                raise ValueError(
                    "The answers must be finite numbers, got NaN or infinity."
                )
        return answers

    def score(self, y, answers, weight):
        """Return the coefficient of determination."""
        return r2_score(y, answers, sample_weight=weight)


def make_target(X, y, kinds, name):
    """Return the checked true answers of a fit, their labels, and their kind.

    Parameters
    ----------
    X : indexable of n_rows rows
    y : array-like of n_rows true answers
    kinds : tuple of subclasses of Target
        The kinds that the router takes.
    name : str
        The class of the router, for error messages.

    Returns
    -------
    y : ndarray of shape (n_rows,) or (n_rows, n_labels)
    classes : ndarray or None
        The labels in it. None for numbers.
    kind : subclass of Target
    """
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    if kinds == (Numbers,):
        kind = Numbers
    elif _is_indicator_matrix(y):
        kind = MultiLabel
    else:
        kind = SingleLabel
    if kind not in kinds:
        raise ValueError(
            f"{name} is for one label per row, but y is an indicator matrix. "
            "FrugalMCTClassifier and SequentialRouterClassifier take several labels."
        )
    y, classes = kind.check(X, y, name)
    return y, classes, kind


def _is_indicator_matrix(y):
    """Return True if y is an indicator matrix: one column of 0 and 1 for each label."""
    # Anything that numpy cannot make an array of is refused later, by `Target.check`.
    may_be_matrix = getattr(y, "ndim", None) == 2 or isinstance(y, list)
    return may_be_matrix and type_of_target(y) == "multilabel-indicator"
