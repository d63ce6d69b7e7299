"""Interface of the gates of Adapt: the rows they learn from, and the pair they fit.

A pair is a cheap model f1 with a gate g. A :class:`Gate` is the estimator that fits a
pair: `BoostedGate` or `LinearGate`. A :class:`Pair` is the fitted result, whose methods
:class:`AdaptGatingClassifier` calls.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator

from skroute.utils._typing import NDArray


class Rows(NamedTuple):
    """Training rows of cheap model and gate, with the full model's loss and quality.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns), dtype=float64
        Numbers and codes of categories. NaN where a cell is missing.

    y : ndarray of shape (n_rows,), dtype=int64
        Position of the class of each row.

    full_loss : ndarray of shape (n_rows,)
        ``-log p0(y_i | x_i)`` with out-of-sample probabilities.

    weight : ndarray of shape (n_rows,)
        Weights in units of one row.

    full_quality : ndarray of shape (n_rows,)
        Quality of the full model's out-of-sample answers. The level of the gate depends
        on it; the pair does not.
    """

    values: Any
    y: Any
    full_loss: Any
    weight: Any
    full_quality: Any

    def of(self, selection):
        """Return the rows that `selection`, a mask or positions, selects."""
        return Rows(
            values=self.values[selection],
            y=self.y[selection],
            full_loss=self.full_loss[selection],
            weight=self.weight[selection],
            full_quality=self.full_quality[selection],
        )


class Problem(NamedTuple):
    """Parameters of the objective (OPT) that cheap model and gate are fitted for.

    Attributes
    ----------
    n_classes : int

    p_full : float
        Largest share of rows that are sent to the full model: the largest mean of q.
        With 0 there is no gate.

    gamma : float
        Price of a unit of feature cost, in nats.

    group_of : ndarray of shape (n_columns,), dtype=int
        Group of each column that the pair reads.

    group_costs : ndarray of shape (n_groups,)
        Cost of each group.
    """

    n_classes: int
    p_full: float
    gamma: float
    group_of: Any
    group_costs: Any

    @property
    def n_outputs(self):
        """Number of scores of f1: 1 for two classes, else one for each class."""
        return 1 if self.n_classes == 2 else self.n_classes


class PairScores(NamedTuple):
    """Scores of a gate, and of its cheap model, on some rows.

    Attributes
    ----------
    gate : ndarray of shape (n_rows,)

    cheap : ndarray of shape (n_rows, n_outputs) or None
        Scores of f1; None if the gate does not read them.
    """

    gate: Any
    cheap: Any


class Pair(ABC):
    """A fitted cheap model f1 and gate g.

    Attributes
    ----------
    cheap_features, gate_features : ndarray of int
        Positions of the columns that f1 and g read.

    reads_cheap : bool
        True if the gate reads the scores of f1.
    """

    cheap_features: NDArray
    gate_features: NDArray
    reads_cheap: bool

    @abstractmethod
    def cheap_scores(self, values):
        """Return the scores of the cheap model f1, shape (n_rows, n_outputs).

        `values` has shape (n_rows, n_columns). Columns that f1 does not read are not
        used.
        """

    @abstractmethod
    def gate_scores(self, values, cheap_scores):
        """Return the scores of the gate g, shape (n_rows,).

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_columns)
            Columns that g does not read are not used.

        cheap_scores : ndarray of shape (n_rows, n_outputs) or None
            Scores of f1. None if `reads_cheap` is False.
        """

    def scores(self, values):
        """Return the scores of the gate, and those of f1 if the gate reads them.

        Returns
        -------
        PairScores
        """
        cheap_scores = None
        if self.reads_cheap:
            cheap_scores = self.cheap_scores(values)
        return PairScores(self.gate_scores(values, cheap_scores), cheap_scores)

    @property
    def simpler(self):
        """Pair with the same f1 and a simpler gate. None if there is no simpler gate.

        The simpler pair is tried if the gate of this pair gains nothing.
        """
        return None


class FittedPair(NamedTuple):
    """Fitted cheap model and gate, with the history of the fit.

    Attributes
    ----------
    pair : Pair

    objectives : list of float
        Objective (OPT) of the paper on the training rows after each alternation.

    held_out_objectives : sequence of float
        The objective on the held-out rows, without feature costs. Empty for a gate that
        does not use these rows.

    n_iter : int
        Boosting rounds in the pair, or alternations.
    """

    pair: Pair
    objectives: list
    held_out_objectives: Any
    n_iter: int


class Gate(BaseEstimator, ABC):
    """Base class of the estimators that fit a cheap model and a gate."""

    @abstractmethod
    def prepare(self, rows, categorical):
        """Return the training rows in the form that `fit_pair` reads.

        The result does not depend on the problem, so that several problems can share
        it.

        Parameters
        ----------
        rows : Rows

        categorical : ndarray of shape (n_columns,), dtype=bool
            True for the columns that hold codes of categories.
        """

    @abstractmethod
    def fit_pair(self, rows, held_out, prepared, problem, n_jobs, progress):
        """Fit the cheap model and the gate.

        Parameters
        ----------
        rows : Rows
            Rows to learn from.

        held_out : Rows
            Rows that the trees or coefficients are not fitted on.

        prepared : object
            Result of :meth:`prepare` for `rows`.

        problem : Problem

        n_jobs : int or None

        progress : callable
            ``progress()`` returns a context manager. Each alternation runs in one.

        Returns
        -------
        FittedPair
        """

    @abstractmethod
    def level(self, gate, gain, weight, p_full, n_standard_errors):
        """Return the level of gate scores above which rows go to the full model.

        Parameters
        ----------
        gate : ndarray of shape (n_rows,)
            Gate scores of held-out rows.

        gain : ndarray of shape (n_rows,)
            Quality of the full model's answers less that of f1's answers.

        weight : ndarray of shape (n_rows,)

        p_full : float
            Largest share of the weight above the level.

        n_standard_errors : float
            Number of standard errors by which the gain must exceed 0.
        """
