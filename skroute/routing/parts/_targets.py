"""What members answer with: one label per row, or several, or a number."""

from contextlib import contextmanager

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skroute.base import note_failure
from skroute.base._inspection import comes_fitted
from skroute.utils._compat import is_fitted, num_samples
from skroute.utils._named import align_by_class
from skroute.utils._tensors import on_host
from skroute.utils._validation import check_probabilities, holds_texts, with_sum_one

# Squares of differences of larger targets are no numbers.
_LARGEST = 1e150


@contextmanager
def rows_of_failure(rows):
    """Let a failure through; its ``rows`` then count from the first row of the user's call."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "rows"):
            error.rows = rows[error.rows]
        raise


def all_classes(classes, members):
    """The labels of y and of members that come fitted."""
    fitted = [
        np.asarray(m.classes_) for m in members if comes_fitted(m) and is_fitted(m)
    ]
    for own in fitted:
        if holds_texts(own) != holds_texts(classes):
            raise ValueError(
                f"y has the labels {classes[:5].tolist()!r}, but a member that comes fitted knows "
                f"{own[:5].tolist()!r}: give y in the type of the members' labels."
            )
    return np.unique(np.concatenate([classes, *fitted])) if fitted else classes


class SingleLabel:
    """One label per row. Encoded answers are positions in ``classes``, which is sorted."""

    def __init__(self, classes):
        self.classes = classes

    @classmethod
    def encode(cls, X, y, name):
        """Validated y, and the sorted labels in it."""
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"{name} needs at least two classes in y, got one class: {classes.tolist()[0]!r}."
            )
        return y, classes

    def positions(self, y):
        """Encoded labels, all of them known."""
        return np.searchsorted(self.classes, y)

    def labels(self, answers):
        """Encoded answers as the user knows them."""
        return self.classes[answers]

    def probabilities(self, answers):
        """Return encoded probabilities as the user gets them: each row sums to 1."""
        return with_sum_one(answers)

    def call(self, method, name, member, X, *, proven=False):
        """What a fitted member says of some rows, in the order of `classes`.

        `method` is ``"predict"`` (positions), ``"predict_proba"`` or ``"scores"``
        (probabilities, or the scores of a recorded member). `proven`, see
        `check_probabilities`.
        """
        if method == "predict":
            return self._predict(name, member, X)
        if method == "scores" and hasattr(member, "predict_scores"):
            with note_failure(name, num_samples(X), "predict_scores"):
                scores = np.asarray(member.predict_scores(X))
            return align_by_class(scores, member.classes_, self.classes)
        return self._predict_proba(name, member, X, proven)

    def _predict_proba(self, name, member, X, proven):
        with note_failure(name, num_samples(X), "predict_proba"):
            proba = np.asarray(member.predict_proba(X))
            own_classes = member.classes_
            if proba.shape[1] != len(own_classes):
                raise ValueError(
                    f"The probabilities have {proba.shape[1]} columns, but classes_ names "
                    f"{len(own_classes)} labels: {own_classes!r}."
                )
            proba = check_probabilities(proba, name, proven=proven)
        return align_by_class(proba, own_classes, self.classes)

    def _predict(self, name, member, X):
        classes = self.classes
        with note_failure(name, num_samples(X), "predict"):
            answers = np.asarray(member.predict(X))
            if answers.shape == (num_samples(X), 1):
                # CatBoost answers several classes in a column.
                answers = answers[:, 0]
            positions = np.minimum(np.searchsorted(classes, answers), len(classes) - 1)
            if (unknown := classes[positions] != answers).any():
                raise ValueError(
                    f"The answer {answers[unknown].tolist()[0]!r} is not among the labels "
                    f"{classes.tolist()!r}. "
                    "(The nets of skorch answer with positions: encode y as 0, ..., "
                    "n_classes - 1.)"
                )
            return positions


class MultiLabel:
    """Several labels per row. Encoded answers are indicator matrices."""

    def __init__(self, classes):
        self.classes = classes

    @classmethod
    def encode(cls, X, y, name):
        """Validated y, and the positions of its labels."""
        y = np.asarray(y.todense() if hasattr(y, "todense") else y).astype(np.int64)
        check_consistent_length(X, y)
        return y, np.arange(y.shape[1])

    def positions(self, y):
        """The labels as truth values."""
        return y.astype(bool)

    def labels(self, answers):
        """Encoded answers as the user knows them."""
        return answers.astype(np.int64)

    def probabilities(self, answers):
        """Return probabilities as the user gets them: one for each label."""
        return answers

    def call(self, method, name, member, X, *, proven=False):
        """Scores of each label, see `SingleLabel.call`."""
        if method == "scores":
            has_scores = hasattr(member, "predict_scores")
            method = "predict_scores" if has_scores else "predict_proba"
        with note_failure(name, num_samples(X), method):
            scores = getattr(member, method)(X)
            if isinstance(scores, list):
                # One matrix for each label, the last column for its presence; in training a label
                # may have had one value alone.
                scores = np.column_stack(
                    [
                        part[:, -1] * (own[-1] == 1) if len(own) == 1 else part[:, 1]
                        for part, own in zip(scores, member.classes_)
                    ]
                )
            scores, n_labels = np.asarray(scores, dtype=np.float64), len(self.classes)
            if scores.ndim != 2 or scores.shape[1] != n_labels:
                raise ValueError(
                    f"{name!r} must give a score for each of {n_labels} labels, got shape "
                    f"{scores.shape}."
                )
            if method == "predict_proba":
                check_probabilities(scores, name, total=None)
        return scores


class Numbers:
    """One number per row, as it is."""

    def __init__(self, classes=None):
        self.classes = classes

    @classmethod
    def encode(cls, X, y, name):
        """Validated y; there are no classes."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"{name} is for one number per row, but y has the shape {y.shape}. A router for "
                "each column answers several."
            )
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
        # In double precision: in single, numpy would warn that the limit is none of its numbers.
        if np.abs(y.astype(np.float64)).max() > _LARGEST:
            raise ValueError(
                f"y must lie within {_LARGEST:g} of 0, or the square of an error is infinite. "
                "Scale it."
            )
        # Members get the numbers as they were given.
        return y, None

    def positions(self, y):
        """The numbers."""
        return np.asarray(y, dtype=np.float64)

    def labels(self, answers):
        """Answers as the user knows them."""
        return answers

    def call(self, method, name, member, X, *, proven=False):
        """What a fitted member answers, ndarray of shape (n_samples,)."""
        with note_failure(name, num_samples(X), "predict"):
            answers = np.asarray(on_host(member.predict(X)), dtype=np.float64)
            if answers.shape not in ((num_samples(X),), (num_samples(X), 1)):
                raise ValueError(
                    f"A regressor must answer one number for each of {num_samples(X)} rows, got "
                    f"shape {answers.shape}."
                )
            answers = answers.reshape(-1)
            if not np.isfinite(answers).all():
                raise ValueError(
                    "The answers must be finite numbers, got NaN or infinity."
                )
        return answers


def make_target(X, y, kinds, name):
    """Validated y, the labels in it, and which of some kinds of target it is."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    if kinds == (Numbers,):
        return *Numbers.encode(X, y, name), Numbers
    kind = SingleLabel
    # What numpy cannot make an array of is refused by the encoding.
    if getattr(y, "ndim", None) == 2 or isinstance(y, list):
        kind = (
            MultiLabel if type_of_target(y) == "multilabel-indicator" else SingleLabel
        )
    if kind not in kinds:
        raise ValueError(
            f"{name} is for one label per row, but y is an indicator matrix. FrugalMCTClassifier "
            "and SequentialRouterClassifier take several labels."
        )
    return *kind.encode(X, y, name), kind
