"""States of a cascade, and the value of asking one more member.

A state is the set of members that a row has asked. In a state the row either ends, with
one of several answers or by abstaining, or it asks one more member, which leads to
another state. `learn_values` estimates by backward induction what asking is worth. It
reads the estimates of a `StateLearner`, and never the features that these are made of.
"""

from abc import ABC, abstractmethod
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np

from skroute.assignment._induction import STOP, best_move, induce_backward, take_moves
from skroute.routing.parts._log import with_last
from skroute.utils._typing import NDArray

# Entry of `States.following` for a member that cannot be asked in a state.
NO_STATE = -1
# Entry of `Move.ending` where a state has no answer to end with: nothing has been
# asked.
NO_ENDING = -1


# States -------------------------------------------------------------------------------


class States(NamedTuple):
    """States of a cascade (sets of asked members) as a graph, earlier states first.

    The members of a state have been asked about a row. A state comes before all states
    that follow it.

    Attributes
    ----------
    asked : ndarray of shape (n_states, n_members), dtype=bool
        Members that have been asked in each state. In the first state no member has
        been asked.
    following : ndarray of shape (n_states, n_members), dtype=int64
        The state after asking a member; `NO_STATE` if it cannot be asked.
    answering : list of tuple of int
        For each state the members that may answer there.
    """

    asked: NDArray[np.bool_]
    following: NDArray[np.int64]
    answering: list[tuple[int, ...]]

    @property
    def n_calls(self):
        """Largest number of members that are asked about one row."""
        return int(self.asked.sum(axis=1).max())

    def next_members(self, state):
        """Return the positions of the members that may be asked in a state."""
        return np.flatnonzero(self.following[state] != NO_STATE)


def check_sets(n_members, max_calls, max_sets):
    """Raise an error if more than `max_sets` sets have one to `max_calls` members."""
    largest = min(max_calls, n_members)
    count = sum(comb(n_members, size) for size in range(1, largest + 1))
    if count > max_sets:
        raise ValueError(
            f"max_calls={max_calls!r} with {n_members} members makes {count} sets of "
            f"models; at most {max_sets} are allowed. Lower max_calls or leave members "
            "out."
        )


def any_order(n_members, max_calls):
    """Return the states of asking members in any order (`States`).

    There is a state for each set of up to `max_calls` members, and any member of the
    set may answer.
    """
    sets = []
    for size in range(min(max_calls, n_members) + 1):
        sets.extend(combinations(range(n_members), size))
    state_of_set = {frozenset(members): state for state, members in enumerate(sets)}
    asked = np.zeros((len(sets), n_members), dtype=bool)
    following = np.full((len(sets), n_members), NO_STATE)
    for state, members in enumerate(sets):
        asked[state, list(members)] = True
        for member in np.flatnonzero(~asked[state]).tolist():
            larger_set = frozenset((*members, member))
            # No state has more than `max_calls` members.
            following[state, member] = state_of_set.get(larger_set, NO_STATE)
    return States(asked, following, sets)


def fixed_order(n_members, order):
    """Return the states of asking members in one fixed order (`States`).

    `order` is a sequence of positions of members. In each state the member that was
    asked last may answer, and the next one may be asked.
    """
    n_states = len(order) + 1
    asked = np.zeros((n_states, n_members), dtype=bool)
    following = np.full((n_states, n_members), NO_STATE)
    answering = [()]
    for state, member in enumerate(order):
        # The member has been asked in all later states.
        asked[state + 1 :, member] = True
        following[state, member] = state + 1
        answering.append((member,))
    return States(asked, following, answering)


# Estimates in a state -----------------------------------------------------------------


class StateFit(NamedTuple):
    """A regressor that was fitted for one state of a cascade, a set of asked members.

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
    """Base of regressions on what is known in a state, after asking its members."""

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
    """Estimated quality of ending, and value of asking more, of rows in one state.

    Attributes
    ----------
    endings : ndarray of shape (n_rows, n_endings)
        Quality of each way to end a row: the answers, then abstaining if that is
        possible.
    continuations : ndarray of shape (n_rows, n_next, n_prices)
        Value of asking each member that may be asked next, at each price: quality less
        price times the cost of the calls after it. The cost of asking this member is
        not yet subtracted.
    """

    endings: NDArray[np.float64]
    continuations: NDArray[np.float64]


class StateValues(NamedTuple):
    """A fitted regressor of one state, and the meaning of its outputs.

    Attributes
    ----------
    model : object
        Its first outputs are the quality of the answers. Then come the values of asking
        the first next member at each price, then those of the second, and so on.
    n_answers, n_next, n_prices : int
        Numbers of answers, of members that may be asked next, and of prices.
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
        """Return the outputs of the model as `StateEstimates`.

        `outputs` has the shape (n_rows, n_outputs), in the order of `model`.
        """
        endings = outputs[:, : self.n_answers]
        if self.abstain_quality is not None:
            endings = with_last(endings, self.abstain_quality)
        continuations = outputs[:, self.n_answers :]
        shape = (len(outputs), self.n_next, self.n_prices)
        return StateEstimates(endings, continuations.reshape(shape))


# The best move in a state -------------------------------------------------------------


class Move(NamedTuple):
    """The best move of each row in one state: to end, or to ask another member.

    Attributes
    ----------
    ending : ndarray of shape (n_rows,), dtype=int64
        Position of the best ending, `NO_ENDING` if the state has none.
    ending_quality : ndarray of shape (n_rows,)
        Estimated quality of that ending, minus infinity if there is none.
    next_position : ndarray of shape (n_rows, n_prices), dtype=int64
        Position of the member to ask, among those that may be asked next; `STOP` if the
        row ends.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of the best move. If the row ends, it is the quality of the
        ending. Otherwise it is the value of asking, price times cost subtracted.
    """

    ending: NDArray[np.int64]
    ending_quality: NDArray[np.float64]
    next_position: NDArray[np.int64]
    value: NDArray[np.float64]


def move_of(estimates, costs, prices):
    """Return the best move of each row, to end or to ask, at each price (`Move`).

    Parameters
    ----------
    estimates : StateEstimates
    costs : ndarray of shape (n_next,)
        Cost of each member that may be asked next.
    prices : ndarray of shape (n_prices,) or (n_rows, n_prices)
    """
    endings = estimates.endings
    n_rows = len(endings)
    # Shape of the results by row and price, (n_rows, n_prices).
    shape = np.broadcast_shapes(np.shape(prices), (n_rows, 1))
    ending = np.full(n_rows, NO_ENDING)
    ending_quality = np.full(n_rows, -np.inf)
    if endings.shape[1]:
        ending = endings.argmax(axis=1)
        ending_quality = endings[np.arange(n_rows), ending]
    value_of_ending = np.broadcast_to(ending_quality[:, np.newaxis], shape)
    if not len(costs):
        # No member can be asked.
        return Move(ending, ending_quality, np.full(shape, STOP), value_of_ending)

    prices = np.broadcast_to(prices, shape)
    # Values of asking each member, less the price of its call, (n_rows, n_next,
    # n_prices).
    values = estimates.continuations - costs[:, np.newaxis] * prices[:, np.newaxis]
    best = best_move(values, value_of_ending)
    return Move(ending, ending_quality, best.position, best.value)


# Values of asking another member ------------------------------------------------------


class StateOutcomes(NamedTuple):
    """Out-of-sample quality and cost of the training rows, decided from one state on.

    Attributes
    ----------
    quality, cost : ndarray of shape (n_rows, n_prices)
        Logged quality of the answers, and cost of the calls after this state.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of the best move, as in `Move`.
    values : StateValues
        The regressor by which rows were decided in this state.
    """

    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    value: NDArray[np.float64]
    values: StateValues


def learn_values(
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
    """Learn the value of asking another member, by backward induction over states.

    Parameters
    ----------
    states : States
    answer_quality : list of ndarray of shape (n_rows, n_answers)
        For each state the logged quality of each answer there.
    costs : ndarray of shape (n_members,)
    prices : ndarray of shape (n_prices,)
        Quality that a unit of cost must bring.
    learner : StateLearner
    reached : iterable of int, default=None
        States to learn. They contain each state that follows one of them. None learns
        all states.
    abstain_quality : float, default=None
        Quality of abstaining, which is possible after the first call. None if no row
        can abstain.
    trust : float, default=0.0
        Share of the later states' own estimates in the value of asking. The rest is the
        outcome of the decisions. Outcomes are noisy, and the largest of several
        estimates is too high.

    Returns
    -------
    dict from int to StateOutcomes
        For each state that is reached.
    """
    if reached is None:
        reached = range(len(states.asked))
    following = {}
    for state in reached:
        following[int(state)] = states.following[state, states.next_members(state)]
    asking = _Asking(
        states, answer_quality, costs, prices, learner, abstain_quality, trust
    )
    return induce_backward(following, asking.decide)


class _Asking:
    """Decisions on the training rows in each state, for backward induction.

    The parameters are those of `learn_values`.
    """

    def __init__(
        self, states, answer_quality, costs, prices, learner, abstain_quality, trust
    ):
        self._states = states
        self._answer_quality = answer_quality
        self._costs = costs
        self._prices = prices
        self._learner = learner
        self._abstain_quality = abstain_quality
        self._trust = trust

    def decide(self, state, next_outcomes):
        """Fit the estimates of a state, and return the outcomes of deciding by them.

        The result is a `StateOutcomes`.

        `next_outcomes` is a list of `StateOutcomes`: for each next member those of the
        state after its answer.
        """
        answer_quality = self._answer_quality[state]
        next_costs = self._costs[self._states.next_members(state)]
        # Value of asking each next member. The price of this call is not subtracted.
        next_values = [
            _value_of(outcomes_after_call, self._prices, self._trust)
            for outcomes_after_call in next_outcomes
        ]
        targets = np.column_stack([answer_quality, *next_values])
        fitted = self._learner.fit(state, targets)
        # A row may abstain once something has been asked.
        abstain_quality = None
        if self._states.asked[state].any():
            abstain_quality = self._abstain_quality
        values = StateValues(
            model=fitted.model,
            n_answers=answer_quality.shape[1],
            n_next=len(next_costs),
            n_prices=len(self._prices),
            abstain_quality=abstain_quality,
        )
        move = move_of(values.split(fitted.estimates), next_costs, self._prices)
        ending_quality = answer_quality
        if abstain_quality is not None:
            ending_quality = with_last(ending_quality, abstain_quality)
        quality, cost = _realised(move, ending_quality, next_costs, next_outcomes)
        return StateOutcomes(quality, cost, move.value, values)


def _value_of(outcomes, prices, trust):
    """Return the value of each row from a state on, (n_rows, n_prices).

    It is a weighted mean of realised outcomes and of estimates.

    `outcomes` are the `StateOutcomes` of the state, `prices` has the shape (n_prices,),
    and `trust` is the weight of the estimates.
    """
    realised = (1 - trust) * (outcomes.quality - prices * outcomes.cost)
    if trust == 0:
        return realised
    return realised + trust * outcomes.value


def _realised(move, ending_quality, call_costs, next_outcomes):
    """Return the logged quality and cost that the moves of rows in one state lead to.

    Parameters
    ----------
    move : Move
    ending_quality : ndarray of shape (n_rows, n_endings)
        Logged quality of each ending.
    call_costs : ndarray of shape (n_next,)
        Cost of each member that may be asked next.
    next_outcomes : list of StateOutcomes
        For each next member the outcomes of the state after its answer.

    Returns
    -------
    quality, cost : ndarray of shape (n_rows, n_prices)
    """
    n_rows, n_prices = move.value.shape
    if ending_quality.shape[1]:
        quality_if_ended = ending_quality[np.arange(n_rows), move.ending]
    else:
        # No row can end in the first state, so that the zeros are not read.
        quality_if_ended = np.zeros(n_rows)
    quality = np.repeat(quality_if_ended[:, np.newaxis], n_prices, axis=1)
    cost = np.zeros((n_rows, n_prices))
    if not next_outcomes:
        return quality, cost
    position = move.next_position
    # Both have the shape (n_rows, n_next, n_prices).
    quality_after = np.stack([after.quality for after in next_outcomes], axis=1)
    cost_after = np.stack([after.cost for after in next_outcomes], axis=1)
    # A row that ends has the position `STOP`, which is -1. It reads the entries of the
    # last member here, and `asks` leaves them out.
    cost_of_asking = call_costs[position] + take_moves(cost_after, position)
    asks = position != STOP
    return (
        np.where(asks, take_moves(quality_after, position), quality),
        np.where(asks, cost_of_asking, cost),
    )
