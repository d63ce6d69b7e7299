"""A function, or a client behind an API, as a model."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if

from skroute.base import check_rows
from skroute.members._base import (
    UNKNOWN,
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

# One lock for the counts of all `CallableClassifier`. It is held for a microsecond, so
# that models do not wait for each other.
_COUNTING = threading.Lock()


class CallStatistics(NamedTuple):
    """Calls, failures, rows and money that a :class:`CallableClassifier` has counted.

    Attributes
    ----------
    n_calls : int
        Number of calls of the function, failed ones included.

    n_failed : int
        Number of calls that raised an error or returned an invalid answer.

    n_rows : int
        Number of answered rows.

    spent : float
        Cost of the answered rows. A failed call costs nothing.
    """

    n_calls: int
    n_failed: int
    n_rows: int
    spent: float


class CallableClassifier(MemberClassifier):
    """Classifier that gets its answers from a function.

    The function can be the client of a prediction service.

    Parameters
    ----------
    function : callable
        Called with a batch of rows of X, in the type of X. Returns one label per row
        or, with ``returns="proba"``, one row of probabilities. A pickle needs an
        importable function or object, not a lambda.

    classes : array-like of shape (n_classes,)
        The labels that the function can return. Any other label is an error. With
        ``returns="proba"``, the labels are in the order of the columns.

    returns : {"label", "proba"}, default="label"
        Kind of the answers.

    batch_size : int, default=None
        Rows per call. None sends all rows in one call. Larger batches need fewer calls,
        and lose more rows if one fails.

    cost : float or callable, default=0.0
        Cost of a row, or a function that gets the rows of a call and returns the cost
        of each row. The costs are summed (see `statistics`). A router plans with its
        own `costs`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted. Known before `fit`.

    See Also
    --------
    RecordedClassifier : Returns recorded answers.

    Notes
    -----
    `fit` learns nothing and does not call the function. A clone starts to count at 0.
    Wrap the model in :class:`~sklearn.frozen.FrozenEstimator` to keep one count.

    Timeouts and retries belong into the client, or a library adds them:
    ``tenacity.retry(stop=tenacity.stop_after_attempt(3))(function)`` is a function,
    too.

    If a call fails, no further calls are made. The exception gets a note and two
    attributes: ``rows``, the positions in X of the rows of the failed call, and
    ``answers``, the answers to the rows before them.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.members import CallableClassifier
    >>> def service(rows):
    ...     return ["long" if len(row) > 3 else "short" for row in rows]
    >>> model = CallableClassifier(
    ...     service, classes=["short", "long"], batch_size=2, cost=0.5
    ... )
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
        # Rows are not converted for the function. So they may be sparse or contain NaN.
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "CallableClassifier":
        """Check the parameters. Nothing is learned, and the function is not called.

        Parameters
        ----------
        X : indexable of n_samples rows
            Rows that the function takes.

        y : array-like of shape (n_samples,), default=None
            Labels. They are checked and not used.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            For a parameter that is not allowed.
        """
        self._validate_params()
        # Raises an error for invalid classes.
        _ = self.classes_
        X = check_rows(self, X, reset=True)
        if y is not None:
            checked_labels(X, y)
        # Creates the counts of calls, all of them 0.
        self._count()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each row.

        Parameters
        ----------
        X : indexable of n_samples rows
            Rows that the function takes: array, frame, list of texts.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers, one for each row.
        """
        answers = self._ask(X)
        if self.returns == "label":
            return answers
        return self.classes_[answers.argmax(axis=1)]

    @available_if(lambda model: model.returns == "proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the class probabilities of each row.

        Parameters
        ----------
        X : indexable of n_samples rows
            Rows that the function takes: array, frame, list of texts.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._ask(X)

    def statistics(self) -> CallStatistics:
        """Return the numbers of calls, failures and rows, and the cost, of all threads.

        Returns
        -------
        CallStatistics
            Named tuple ``(n_calls, n_failed, n_rows, spent)``.
        """
        return self._count()

    def _count(self, **amounts):
        """Add amounts to the counts, and return the counts.

        Parameters
        ----------
        **amounts : float
            Amounts by the names of `CallStatistics`. Without amounts, the counts do not
            change.

        Returns
        -------
        CallStatistics
        """
        # The constructor stores parameters only, so that the first call creates the
        # counts.
        no_counts = CallStatistics(n_calls=0, n_failed=0, n_rows=0, spent=0.0)
        with _COUNTING:
            counts = self.__dict__.setdefault("_counts", no_counts._asdict())
            for name, amount in amounts.items():
                counts[name] += amount
            return CallStatistics(**counts)

    def _ask(self, X):
        """Return the answers of the function to all rows, batch by batch.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            Labels, or probabilities in the order of ``classes_``.
        """
        self._validate_params()
        X = check_rows(self, X, reset=False)
        n_rows = num_samples(X)
        if self.returns == "label":
            no_answers = self.classes_[:0]  # empty
        else:
            no_answers = np.empty((0, len(self.classes_)))
        # The list starts with an empty array, so that there are answers to join even if
        # the first call fails.
        answers = [no_answers]
        for batch in gen_batches(n_rows, self.batch_size or n_rows):
            rows = np.arange(batch.start, batch.stop)
            try:
                answers.append(self._ask_once(_safe_indexing(X, rows), len(rows)))
            except Exception as error:
                # The caller reads the positions of the rows whose call failed, and the
                # answers to the rows before them.
                error.rows = rows
                error.answers = np.concatenate(answers)
                error.add_note(
                    f"The call lost rows {rows[0]} to {rows[-1]} of {n_rows}; the "
                    f"{rows[0]} before were answered, the {n_rows - 1 - rows[-1]} "
                    "after were not asked about."
                )
                raise
        return np.concatenate(answers)

    def _ask_once(self, batch, n_rows):
        """Call the function with one batch. Return its validated answers.

        Parameters
        ----------
        batch : indexable of n_rows rows

        n_rows : int

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        self._count(n_calls=1)
        try:
            answer = self._check(self.function(batch), n_rows)
        except Exception:
            self._count(n_failed=1)
            raise
        # Answered rows are counted first, since a function `cost` may raise an error.
        self._count(n_rows=n_rows)
        # One cost for all rows, or a cost for each row.
        cost = self.cost(batch) if callable(self.cost) else self.cost
        cost = check_numbers(cost, "cost", low=0.0)
        self._count(spent=float(np.broadcast_to(cost, (n_rows,)).sum()))
        return answer

    def _check(self, answer, n_rows):
        """Validate an answer of the function, and return labels or probabilities.

        Probabilities are in the order of ``classes_``. An answer that is not valid
        raises a ValueError.

        Parameters
        ----------
        answer : object
            Result of the function.

        n_rows : int
            Number of rows of the call.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        refuse_masked(**{"what function returns": answer})
        answer = np.asarray(answer)
        if self.returns == "proba":
            shape = (n_rows, len(self.classes_))
            expected = "probabilities"
            # Kinds of dtypes: f is float, i and u are whole numbers.
            is_valid = answer.shape == shape and answer.dtype.kind in "fiu"
        else:
            shape = (n_rows,)
            expected = "one label per row"
            is_valid = answer.shape == shape
        if not is_valid:
            raise ValueError(
                f"function must return {expected}, of shape {shape}, got shape "
                f"{answer.shape} and dtype {answer.dtype}."
            )
        if self.returns == "proba":
            check_numbers(answer, "probabilities of function")
            proba = answer.astype(np.float64)
            check_probabilities(proba, type(self).__name__, method="function")
            # From the order of `classes` to the order of `classes_`, which is sorted.
            return with_sum_one(proba)[:, np.argsort(self.classes)]
        return self._check_labels(answer)

    def _check_labels(self, labels):
        """Return labels in the type of ``classes_``. Refuse unknown labels.

        `labels` and the result have shape (n_rows,).
        """
        classes = self.classes_
        position_of_class = {
            label: position for position, label in enumerate(classes.tolist())
        }
        positions = places_of(labels.tolist(), position_of_class)
        is_unknown = positions == UNKNOWN
        if is_unknown.any():
            # An answer may contain the private text of the request, so it is not shown.
            first = labels[is_unknown].tolist()[0]
            shown = repr(first)
            if isinstance(first, str):
                shown = f"a text of {len(first)} characters"
            raise ValueError(
                f"function answered {shown} for row {int(np.argmax(is_unknown))} of "
                f"its call, which is not in classes: {classes.tolist()!r}."
            )
        return classes[positions]
