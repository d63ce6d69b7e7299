"""A function, or a client behind an API, as a model."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if

from skroute.base import check_rows
from skroute.members._base import (
    MemberClassifier,
    check_classes,
    checked_labels,
    places_of,
)
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    StrOptions,
    _safe_indexing,
    num_samples,
)
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    check_numbers,
    check_probabilities,
    refuse_masked,
    with_sum_one,
)

# Counts are of all threads. One lock for all models: it is held for a microsecond.
_COUNTING = threading.Lock()


class CallStatistics(NamedTuple):
    """What a :class:`CallableClassifier` has asked for, read at one moment.

    Attributes
    ----------
    n_calls : int
        Calls of the function, failed ones included.

    n_failed : int
        Calls that raised or answered with something unusable.

    n_rows : int
        Rows answered.

    spent : float
        Cost of the rows answered. A failed call spends nothing.
    """

    n_calls: int
    n_failed: int
    n_rows: int
    spent: float


class CallableClassifier(MemberClassifier):
    """Classifier that gets labels from a function, such as the client of a prediction service.

    Parameters
    ----------
    function : callable
        Called with a batch of rows of X, of its type; returns one label per row or, with
        ``returns="proba"``, one row of probabilities. To be pickled it must be importable: a
        module's function or an object, no lambda.

    classes : array-like of shape (n_classes,)
        The labels that it can answer; with ``returns="proba"`` in the order of the
        columns. Any other answer is an error.

    returns : {"label", "proba"}, default="label"
        What the function returns.

    batch_size : int, default=None
        Rows per call. None asks for all rows in one call. Larger batches need fewer
        calls, and lose more rows when one fails.

    cost : float or callable, default=0.0
        Cost of a row, or a function of the rows of a call that returns that of each. It is
        counted (see `statistics`); what a router plans with are the router's `costs`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted. Known before `fit`.

    See Also
    --------
    RecordedClassifier : Looks answers up instead of asking.

    Notes
    -----
    `fit` learns nothing and calls nothing. A clone starts to count at 0; wrap the model in
    :class:`~sklearn.frozen.FrozenEstimator` to keep one count.

    Timeouts and retries are the client's business, or that of a library:
    ``tenacity.retry(stop=tenacity.stop_after_attempt(3))(function)`` is a function too.

    When a call fails, no further calls are made, and the exception gets a note and two
    attributes: ``rows``, the positions in X of the rows that the failed call lost, and
    ``answers``, what the rows before them were answered.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.members import CallableClassifier
    >>> def service(rows):
    ...     return ["long" if len(row) > 3 else "short" for row in rows]
    >>> model = CallableClassifier(service, classes=["short", "long"], batch_size=2, cost=0.5)
    >>> model.predict(["a", "abcd", "ab"])
    array(['short', 'long', 'short'], dtype='<U5')
    >>> model.statistics()
    CallStatistics(n_calls=2, n_failed=0, n_rows=3, spent=1.5)
    """

    _predicts_best_score = True
    _parameter_constraints: dict = {
        "function": [callable],
        "classes": ["array-like"],
        "returns": [StrOptions({"label", "proba"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "cost": [Interval(Real, 0, None, closed="left"), callable],
    }

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        classes: ArrayLike,
        returns: str = "label",
        batch_size: int | None = None,
        cost: float | Callable[[Any], ArrayLike] = 0.0,
    ):
        self.function = function
        self.classes = classes
        self.returns = returns
        self.batch_size = batch_size
        self.cost = cost

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels, sorted."""
        return np.sort(check_classes(self.classes))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Rows go to the function as they are; what it takes is its own affair.
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "CallableClassifier":
        """Check the parameters; nothing is learned, and the function is not called.

        Parameters
        ----------
        X : indexable of n_samples rows
            Whatever the function takes.

        y : array-like of shape (n_samples,), default=None
            Labels; checked to be some, and not used.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a parameter that is not allowed.
        """
        self._validate_params()
        _ = self.classes_
        X = check_rows(self, X, reset=True)
        if y is not None:
            checked_labels(X, y)
        self._count()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of the rows.

        Parameters
        ----------
        X : indexable of n_samples rows
            Whatever the function takes: array, frame, list of texts.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        answers = self._ask(X)
        return (
            self.classes_[answers.argmax(axis=1)]
            if self.returns == "proba"
            else answers
        )

    @available_if(lambda model: model.returns == "proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the rows.

        Parameters
        ----------
        X : indexable of n_samples rows
            Whatever the function takes: array, frame, list of texts.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._ask(X)

    def statistics(self) -> CallStatistics:
        """Calls, rows and money so far, counted over all threads.

        Returns
        -------
        CallStatistics
            Named tuple ``(n_calls, n_failed, n_rows, spent)``.
        """
        return self._count()

    def _count(self, **amounts):
        # Not begun in the constructor, which stores parameters only; changed in place, since a
        # call sets no attribute.
        with _COUNTING:
            counts = self.__dict__.setdefault(
                "_counts", CallStatistics(0, 0, 0, 0.0)._asdict()
            )
            for name, amount in amounts.items():
                counts[name] += amount
            return CallStatistics(**counts)

    def _ask(self, X):
        self._validate_params()
        X = check_rows(self, X, reset=False)
        n = num_samples(X)
        none = (
            self.classes_[:0]
            if self.returns == "label"
            else np.empty((0, len(self.classes_)))
        )
        answers = [none]
        for batch in gen_batches(n, self.batch_size or n):
            rows = np.arange(batch.start, batch.stop)
            try:
                answers.append(self._ask_once(_safe_indexing(X, rows), len(rows)))
            except Exception as error:
                error.rows, error.answers = rows, np.concatenate(answers)
                error.add_note(
                    f"The call lost rows {rows[0]} to {rows[-1]} of {n}; the {rows[0]} before were "
                    f"answered, the {n - 1 - rows[-1]} after were not asked about."
                )
                raise
        return np.concatenate(answers)

    def _ask_once(self, batch, n_rows):
        """One batch."""
        self._count(n_calls=1)
        try:
            answer = self._check(self.function(batch), n_rows)
        except Exception:
            self._count(n_failed=1)
            raise
        # The service has answered, whatever is found out of its cost.
        self._count(n_rows=n_rows)
        cost = self.cost(batch) if callable(self.cost) else self.cost
        cost = check_numbers(cost, "cost", low=0.0)
        self._count(spent=float(np.broadcast_to(cost, (n_rows,)).sum()))
        return answer

    def _check(self, answer, n_rows):
        """Labels, or probabilities in the order of ``classes_``; anything else is an error."""
        refuse_masked(**{"what function returns": answer})
        answer, known, proba = (
            np.asarray(answer),
            self.classes_,
            self.returns == "proba",
        )
        shape = (n_rows, len(known)) if proba else (n_rows,)
        if answer.shape != shape or (proba and answer.dtype.kind not in "fiu"):
            what = "probabilities" if proba else "one label per row"
            raise ValueError(
                f"function must return {what}, of shape {shape}, got shape {answer.shape} and "
                f"dtype {answer.dtype}."
            )
        if proba:
            check_numbers(answer, "probabilities of function")
            proba = answer.astype(np.float64)
            check_probabilities(proba, type(self).__name__, method="function")
            return with_sum_one(proba)[:, np.argsort(self.classes)]
        at = places_of(
            answer.tolist(), {label: k for k, label in enumerate(known.tolist())}
        )
        if (strange := at < 0).any():
            # What a service says may hold what it was asked: its words are not shown.
            first = answer[strange].tolist()[0]
            what = (
                f"a text of {len(first)} characters"
                if isinstance(first, str)
                else repr(first)
            )
            raise ValueError(
                f"function answered {what} for row {int(np.argmax(strange))} of its call, which "
                f"is not in classes: {known.tolist()!r}."
            )
        return known[at]
