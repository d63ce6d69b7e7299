"""The interface of nets with exits (answers after each stage), for early exit."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from skroute.utils._typing import NDArray


class ExitNet(ABC):
    """Interface of a classifier that can answer after each of its stages.

    :class:`~skroute.early_exit.QWYCEnsemble` stops early in a fitted classifier of a
    subclass. The subclass is a scikit-learn classifier, too: it has ``classes_``, and
    its ``predict_proba`` returns the probabilities of the last exit.

    Attributes
    ----------
    n_exits_ : int
        Number of exits. `fit` sets it.

    eval_batch_size : int
        Number of rows that are evaluated together. Their hidden states are in memory at
        the same time.

    Examples
    --------
    >>> from skroute.members import ExitNet, MultiExitClassifier
    >>> issubclass(MultiExitClassifier, ExitNet)
    True
    """

    n_exits_: int
    # Default number of rows of a batch, for a subclass that does not set it.
    eval_batch_size: int = 1024

    @abstractmethod
    def start(self, X: Any) -> Any:
        """Start a pass over rows, each of which may stop at any exit.

        Parameters
        ----------
        X : array-like or tensor of shape (n_samples, ...)
            The rows.

        Returns
        -------
        object
            A run. ``run.logits(exit, rows)`` returns the scores of an exit, an ndarray
            of shape (n_rows, n_classes). `rows` are positions in `X`, and None is all
            of them. The exits of each row must rise from call to call.
            ``run.release(rows)`` drops the hidden states of rows that go no further.
        """

    @abstractmethod
    def stage_call(
        self, exit: int, previous: int = -1
    ) -> Callable[[Any], NDArray[Any]]:
        """Return a function to time the stages after `previous` (-1: all) to `exit`.

        Parameters
        ----------
        exit : int
            Last exit, from 0.

        previous : int, default=-1
            Exit that the rows have already reached. -1 is none.

        Returns
        -------
        callable
            Function of rows. Each call does the same work.
        """
