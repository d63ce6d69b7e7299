"""Backward induction: the value of going on from a state to a later one.

In a state a row ends, with one of several answers or by abstaining, or it pays to
go on to another state. A `StateLearner` defines what is known of a row in a state: one
number, leaves of a tree or a table of features. The induction reads its estimates and
no features.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._typing import NDArray

# Entry of `Move.next_position` for a row that ends where it is.
STOP = -1
# Entry of `Move.ending` where a state has no answer to end with: nothing has been
# asked.
NO_ENDING = -1
# Difference in value, in units of quality, up to which going on and ending are tied. It
# absorbs rounding. A tied row ends.
_TIED = 1e-12


# States -------------------------------------------------------------------------------


class NextStates(NamedTuple):
    """The states to which a row can go on from one state.

    Attributes
    ----------
    states : ndarray of shape (n_next,), dtype=int64
        Their positions, all larger than that of the state.
    costs : ndarray of shape (n_next,)
        Cost of going on to each.
    """

    states: NDArray[np.int64]
    costs: NDArray[np.float64]


class StateSpace(ABC):
    """Base of graphs of states; a state comes before all that follow it."""

    @property
    @abstractmethod
    def n_states(self):
        """Number of states."""

    @abstractmethod
    def moves(self, state, costs):
        """Return the states that may follow a state, and their costs (`NextStates`).

        Parameters
        ----------
        state : int
        costs : ndarray
            The costs that `induce_backward` is called with.
        """

    def may_abstain(self, state):
        """Return True if a row may abstain in a state. By default it never may."""
        return False


# Estimates in a state -----------------------------------------------------------------


class StateFit(NamedTuple):
    """A regressor that was fitted in one state.

    Attributes
    ----------
    model : object
        What the caller later estimates new rows with. The induction only stores it.
    estimates : ndarray of shape (n_rows, n_targets)
        Estimates of the training rows, out of sample.
    """

    model: Any
    estimates: NDArray[np.float64]


class StateLearner(ABC):
    """Base of regressions on what is known of the training rows in a state."""

    @abstractmethod
    def fit(self, state, targets):
        """Fit a regressor of the targets in one state.

        Parameters
        ----------
        state : int
            Position of the state.
        targets : ndarray of shape (n_rows, n_targets)
            First the quality of each answer of the state, then, for each member that
            may be asked next, the value of asking it at each price.

        Returns
        -------
        StateFit
        """


class StateEstimates(NamedTuple):
    """Estimates for rows in one state.

    Attributes
    ----------
    endings : ndarray of shape (n_rows, n_endings)
        Quality of each way to end a row: the answers, then abstaining if that is
        possible.
    continuations : ndarray of shape (n_rows, n_next, n_prices)
        Value of going on to each next state, at each price. The price of what comes
        after that step is subtracted, that of the step itself is not.
    """

    endings: NDArray[np.float64]
    continuations: NDArray[np.float64]


class StateValues(NamedTuple):
    """A fitted regressor of one state, and the meaning of its outputs.

    Attributes
    ----------
    model : object
        Its first outputs are the quality of the answers. The others are the values of
        going on to each next state, at one price after the other.
    n_answers, n_next, n_prices : int
        Numbers of answers, of next states, and of prices.
    abstain_quality : float or None
        Quality of abstaining, which is the last ending. None if no row can abstain
        here.
    """

    model: Any
    n_answers: int
    n_next: int
    n_prices: int
    abstain_quality: float | None

    def split(self, outputs):
        """Return the outputs of the model, (n_rows, n_outputs), as `StateEstimates`."""
        endings = outputs[:, : self.n_answers]
        if self.abstain_quality is not None:
            abstaining = np.full(len(endings), self.abstain_quality)
            endings = np.column_stack([endings, abstaining])
        continuations = outputs[:, self.n_answers :]
        shape = (len(outputs), self.n_next, self.n_prices)
        return StateEstimates(endings, continuations.reshape(shape))


# The best move in a state -------------------------------------------------------------


class Move(NamedTuple):
    """The best move of each row in one state.

    Attributes
    ----------
    ending : ndarray of shape (n_rows,), dtype=int64
        Position of the best ending, `NO_ENDING` if the state has none.
    ending_quality : ndarray of shape (n_rows,)
        Estimated quality of that ending, minus infinity if there is none.
    next_position : ndarray of shape (n_rows, n_prices), dtype=int64
        Position of the state to go on to, among the next states; `STOP` if the row
        ends.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of the better of the two, price times cost subtracted.
    """

    ending: NDArray[np.int64]
    ending_quality: NDArray[np.float64]
    next_position: NDArray[np.int64]
    value: NDArray[np.float64]


def best_move(estimates, costs, prices):
    """Return where each row ends or goes on to, at each price (`Move`).

    Parameters
    ----------
    estimates : StateEstimates
    costs : ndarray of shape (n_next,)
        Cost of going on to each next state.
    prices : ndarray of shape (n_prices,) or (n_rows, n_prices)
    """
    endings = estimates.endings
    n_rows = len(endings)
    shape = np.broadcast_shapes(np.shape(prices), (n_rows, 1))
    ending = np.full(n_rows, NO_ENDING)
    ending_quality = np.full(n_rows, -np.inf)
    if endings.shape[1]:
        ending = endings.argmax(axis=1)
        ending_quality = endings[np.arange(n_rows), ending]
    value_of_ending = np.broadcast_to(ending_quality[:, np.newaxis], shape)
    if not len(costs):
        return Move(ending, ending_quality, np.full(shape, STOP), value_of_ending)

    prices = np.broadcast_to(prices, shape)
    # (n_rows, n_next, n_prices)
    net = estimates.continuations - costs[:, np.newaxis] * prices[:, np.newaxis]
    best_next = net.argmax(axis=1)
    value_of_going_on = np.take_along_axis(net, best_next[:, np.newaxis], axis=1)[:, 0]
    goes_on = value_of_going_on > value_of_ending + _TIED
    return Move(
        ending,
        ending_quality,
        next_position=np.where(goes_on, best_next, STOP),
        value=np.where(goes_on, value_of_going_on, value_of_ending),
    )


# Backward induction -------------------------------------------------------------------


class StateOutcomes(NamedTuple):
    """Results of deciding the training rows from one state on, out of sample.

    Attributes
    ----------
    quality, cost : ndarray of shape (n_rows, n_prices)
        Realised quality of the answers, and cost of going on after this state.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of the best move, as in `Move`.
    next_state : ndarray of shape (n_rows, n_prices), dtype=int32
        The state that the row goes on to; this state itself if the row ends.
    """

    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    value: NDArray[np.float64]
    next_state: NDArray[np.int32]


class InducedValues(NamedTuple):
    """Result of the backward induction.

    Attributes
    ----------
    values : list of StateValues or None
        For each state; None if it is not reached.
    outcomes : dict from int to StateOutcomes
        For each state that is reached.
    """

    values: list[StateValues | None]
    outcomes: dict[int, StateOutcomes]


def induce_backward(
    states,
    answer_quality,
    costs,
    prices,
    learner,
    *,
    reached=None,
    abstain_quality=None,
    trust=0.0,
):
    """Learn the value of going on, from the last states back to the first.

    Parameters
    ----------
    states : StateSpace
    answer_quality : list of ndarray of shape (n_rows, n_answers)
        For each state the realised quality of each answer there. The outcomes have the
        dtype of these arrays.
    costs : ndarray
        As `states` reads them.
    prices : ndarray of shape (n_prices,)
        Quality that a unit of cost must bring.
    learner : StateLearner
    reached : iterable of int, default=None
        States to learn, with all that follow them. None learns all.
    abstain_quality : float, default=None
        Quality of abstaining, in the states that allow it. None if no row can abstain.
    trust : float, default=0.0
        Share of the later states' own estimates in the value of going on. The rest is
        the outcome of the decisions. Outcomes are noisy, and the largest of several
        estimates is too high.

    Returns
    -------
    InducedValues
    """
    values = [None] * states.n_states
    outcomes = {}
    if reached is None:
        reached = range(states.n_states)
    for state in sorted(reached, reverse=True):
        moves = states.moves(state, costs)
        next_outcomes = [outcomes[after] for after in moves.states.tolist()]
        next_values = [_value_of(after, prices, trust) for after in next_outcomes]
        targets = np.column_stack([answer_quality[state], *next_values])
        fitted = learner.fit(state, targets)
        quality_of_abstaining = None
        if states.may_abstain(state):
            quality_of_abstaining = abstain_quality
        values[state] = StateValues(
            model=fitted.model,
            n_answers=answer_quality[state].shape[1],
            n_next=len(moves.states),
            n_prices=len(prices),
            abstain_quality=quality_of_abstaining,
        )
        estimates = values[state].split(fitted.estimates)
        move = best_move(estimates, moves.costs, prices)
        ending_quality = answer_quality[state]
        if quality_of_abstaining is not None:
            abstaining = np.full(len(ending_quality), quality_of_abstaining)
            ending_quality = np.column_stack([ending_quality, abstaining])
        outcomes[state] = _outcomes_of(
            move, ending_quality, state=state, moves=moves, next_outcomes=next_outcomes
        )
    return InducedValues(values, outcomes)


def _value_of(outcomes, prices, trust):
    """Return the value of a state, (n_rows, n_prices), from outcomes and estimates."""
    realised = (1 - trust) * (outcomes.quality - prices * outcomes.cost)
    if trust == 0:
        return realised
    return realised + trust * outcomes.value


def _outcomes_of(move, ending_quality, *, state, moves, next_outcomes):
    """Return the outcomes of the moves of all rows in one state (`StateOutcomes`).

    `ending_quality` (n_rows, n_endings) is the realised quality of each ending.
    `next_outcomes` are the outcomes after each of the next states, `moves`.
    """
    n_rows, n_prices = move.value.shape
    dtype = ending_quality.dtype
    if ending_quality.shape[1]:
        ended = ending_quality[np.arange(n_rows), move.ending]
    else:
        ended = np.zeros(n_rows, dtype=dtype)
    quality = np.repeat(ended[:, np.newaxis], n_prices, axis=1)
    cost = np.zeros((n_rows, n_prices), dtype=dtype)
    next_state = np.full((n_rows, n_prices), state, dtype=np.int32)
    for position, after in enumerate(next_outcomes):
        goes_on = move.next_position == position
        quality[goes_on] = after.quality[goes_on]
        cost[goes_on] = moves.costs[position] + after.cost[goes_on]
        next_state[goes_on] = moves.states[position]
    return StateOutcomes(quality, cost, move.value, next_state)
