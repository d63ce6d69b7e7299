"""The engine of early exit: an ensemble that is evaluated member by member."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from skroute.early_exit._algorithms import leader_and_margin
from skroute.forests import Forest
from skroute.utils._cache import NO_CACHE
from skroute.utils._typing import NDArray


class Link(NamedTuple):
    """The function from summed scores to probabilities.

    Attributes
    ----------
    kind : {"logistic", "softmax", "ova", "mean"}
        "mean" divides the score by the weight of the members that were evaluated. "ova"
        is logistic for each class, so its probabilities need not add up to one.

    slope : float
        Factor of the score. Kind "mean" does not use it.

    shift : float
        For one output only. Kind "logistic" computes
        ``expit(slope * (distance + shift))``, with the distance of the score from the
        decision. Kind "mean" computes ``0.5 + shift + mean``.
    """

    kind: str
    slope: float = 1.0
    shift: float = 0.0


class Walk(NamedTuple):
    """The result of evaluating rows with early exit.

    Attributes
    ----------
    scores : ndarray of shape (n_samples, n_outputs), dtype=float64
        Offset plus what the evaluated members add.

    n_evaluated : ndarray of shape (n_samples,), dtype=int64
        Number of members that were evaluated for each row.

    answers : ndarray of shape (n_samples,), dtype=int64
        Position of each row's answer among the classes.
    """

    scores: NDArray[np.float64]
    n_evaluated: NDArray[np.int64]
    answers: NDArray[np.int64]


class Engine(ABC):
    """An additive ensemble of two or more classes that is evaluated member by member.

    The full score of a row is `offset` plus what each member adds. For two classes
    there is one output, and the answer is the second class if the full score is above
    `beta`. For more classes there is one output for each class, and the answer is the
    class with the largest score. The first class wins ties.

    Rows are those of the ensemble: if it stands at the end of a pipeline, the steps
    before it are applied already. Members are in the order of evaluation. An engine
    does not change after it was made.

    A subclass has two properties, `n_members` and `n_outputs`, and four methods,
    :meth:`reordered`, :meth:`member_scores`, :meth:`walk` and :meth:`timed_calls`. It
    may replace all others, whose docstrings describe their defaults.
    """

    # How scores become answers --------------------------------------------------------

    @property
    @abstractmethod
    def n_members(self) -> int:
        """Number of members."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of scores of a row: one for two classes, else one for each class."""

    @property
    def offset(self) -> NDArray[np.float64]:
        """Score of a row before any member, of shape (n_outputs,). The default is 0."""
        return np.zeros(self.n_outputs)

    @property
    def beta(self) -> float:
        """Score above which the answer is the second of two classes, 0 if not set."""
        return 0.0

    @property
    def rounding(self) -> float:
        """Distance from a tie within which the ensemble itself is asked for its answer.

        The ensemble may add its members in another order or precision, so that it
        decides a tie differently. The default is 0: it is never asked.
        """
        return 0.0

    @property
    def link(self) -> Link | None:
        """Function from scores to probabilities. None, the default: there is none."""
        return None

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each member, of shape (n_members,). The default is 1.

        :meth:`member_scores` contains the weights already. A link of kind "mean"
        divides by them.
        """
        return np.ones(self.n_members)

    # Capabilities of the engine -------------------------------------------------------

    @property
    def has_fixed_order(self) -> bool:
        """True if members can be evaluated in one order only. The default is False."""
        return False

    @property
    def averages_members(self) -> bool:
        """True if the score is a mean of probabilities or votes. Default: False."""
        return False

    @property
    def accepts_unseen_categories(self) -> bool:
        """True if rows may have categories that fit did not see. Default: True."""
        return True

    def reads_unchecked(self, X: Any) -> bool:
        """Return True if :meth:`walk` checks these rows by itself. Default: False.

        Parameters
        ----------
        X : indexable
            The rows of a call.

        Returns
        -------
        bool
            If True, scikit-learn's check of the rows is left out. It takes longer than
            the evaluation of one row.
        """
        return False

    def as_forest(self) -> Forest | None:
        """Return the members as a forest, which can be exported as plain arrays.

        Returns
        -------
        Forest or None
            The default is None: the members are not trees.
        """
        return None

    # Evaluation -----------------------------------------------------------------------

    @abstractmethod
    def reordered(self, order: Any) -> "Engine":
        """Return the engine that evaluates the members in another order.

        Parameters
        ----------
        order : ndarray of shape (n_members,), dtype=int64
            A permutation. If `has_fixed_order`, it is always ``0, ..., n_members - 1``.

        Returns
        -------
        Engine
        """

    @abstractmethod
    def member_scores(self, X: Any) -> NDArray[np.floating]:
        """Return what each member adds to the score of each row.

        Parameters
        ----------
        X : indexable of length n_samples
            The rows.

        Returns
        -------
        ndarray of shape (n_members, n_samples, n_outputs), dtype=float32 or float64
        """

    @abstractmethod
    def walk(
        self, X: Any, thresholds: Any, n_jobs: int | None = None, cache: Any = NO_CACHE
    ) -> Walk:
        """Evaluate each row until the thresholds stop it.

        For one output, a row stops after a member if its score is below the lower or
        above the upper threshold of that position. It is answered with the first or the
        second class. For several outputs, a row stops if the margin between its two
        largest scores is above the upper threshold. The thresholds of the last member
        are not used. :func:`walk_in_turn` does this for members that are functions of
        rows.

        Parameters
        ----------
        X : indexable of length n_samples
            The rows.

        thresholds : ndarray of shape (2, n_members), dtype=float64
            Lower and upper thresholds by position. Infinite where no row stops.

        n_jobs : int, default=None
            Number of threads, for engines that use threads of their own.

        cache : CallCache, default=NO_CACHE
            Keeps the scores of members, for engines whose members are expensive, while
            the same rows are walked with other thresholds. The default keeps nothing.

        Returns
        -------
        Walk
        """

    @abstractmethod
    def timed_calls(self) -> dict[int, Callable[[Any], object]]:
        """Return a function of rows for each member, to measure the time that it takes.

        Returns
        -------
        dict
            Keys are ``0, ..., n_members - 1``.
        """

    # Labels and rows as the ensemble's library takes them -----------------------------

    def labels(self, classes: NDArray[Any], answers: NDArray[np.int64]) -> NDArray[Any]:
        """Return labels of the type that `predict` of the ensemble returns.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
        answers : ndarray of shape (n_samples,), dtype=int64
            Positions among the classes. An ensemble of one class has the answer 1 of
            two.

        Returns
        -------
        ndarray of shape (n_samples,)
            By default, of the type of `classes`.
        """
        return classes.take(answers, mode="clip")

    def rows_for_library(self, X: Any) -> Any:
        """Return rows that `predict` of the ensemble takes without a warning.

        Parameters
        ----------
        X : indexable
            The rows of a call.

        Returns
        -------
        indexable
            By default, `X`.
        """
        return X


# Members that are functions of rows ---------------------------------------------------


def start_walk(engine, n_rows):
    """Return the walk of rows for which no member was evaluated yet.

    Parameters
    ----------
    engine : Engine
    n_rows : int

    Returns
    -------
    Walk
        Its arrays are new. :func:`walk_in_turn` writes the results into them.
    """
    scores = np.tile(engine.offset, (n_rows, 1))
    n_evaluated = np.zeros(n_rows, dtype=np.int64)
    answers = np.zeros(n_rows, dtype=np.int64)
    return Walk(scores, n_evaluated, answers)


def walk_in_turn(evaluate, *, thresholds, beta, walk, release=None):
    """Evaluate one member after the other for the rows that have not stopped.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(position, rows, scores)`` returns the scores of some rows after the
        member at a position. `rows` are positions among the rows of `walk`. `scores`
        are the scores of these rows before the member. Scores have the shape (n_rows,
        n_outputs).

    thresholds : ndarray of shape (2, n_members)
        As in :meth:`Engine.walk`.

    beta : float
        As in :class:`Engine`.

    walk : Walk
        Made by :func:`start_walk`. The results of the rows are written into its arrays,
        which may be views of larger ones.

    release : callable, default=None
        ``release(rows)`` is called with the rows that stop after each member but the
        last. They will not be evaluated again.
    """
    lower, upper = thresholds
    last_position = len(lower) - 1
    # Positions of the rows that have not stopped.
    rows = np.arange(len(walk.scores))
    for position in range(last_position + 1):
        scores = evaluate(position, rows, walk.scores[rows])
        walk.scores[rows] = scores
        walk.n_evaluated[rows] = position + 1
        if scores.shape[1] > 1:
            walk.answers[rows], values = leader_and_margin(scores)
        else:
            values = scores[:, 0]
            # A row above the upper threshold is answered with class 1, a row below the
            # lower one with class 0. The answers to rows that go on are overwritten
            # later.
            cut = upper[position]
            if position == last_position:
                cut = beta
            walk.answers[rows] = values > cut
        if position == last_position:
            return
        stops = (values > upper[position]) | (values < lower[position])
        if release is not None:
            release(rows[stops])
        rows = rows[~stops]
        if len(rows) == 0:
            return


# Builders -----------------------------------------------------------------------------

# Functions from a fitted ensemble to its engine, by package and class name.
_BUILDERS: dict[tuple[str, str], Callable[[Any], Engine]] = {}


def builds_engine(package, *class_names):
    """Return a decorator that registers a function from an ensemble to its engine.

    Parameters
    ----------
    package : str
        Top-level package of the ensemble, which is not imported.

    *class_names : str
        Names of its classes. Subclasses are included.

    Returns
    -------
    callable
    """

    def register(build):
        for class_name in class_names:
            _BUILDERS[package, class_name] = build
        return build

    return register


def find_builder(ensemble):
    """Return the function that makes the engine of an ensemble, or None.

    Parameters
    ----------
    ensemble : object
        An ensemble, fitted or not.

    Returns
    -------
    callable or None
    """
    # The nearest registered base class, or the class itself, has the builder.
    for cls in type(ensemble).__mro__:
        top_level_package = cls.__module__.split(".")[0]
        build = _BUILDERS.get((top_level_package, cls.__name__))
        if build is not None:
            return build
    return None
