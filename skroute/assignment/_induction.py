"""Backward induction: decisions in several steps, at each of some prices.

A *state* is what a row has bought so far: answers of models, or sets of features. In a
state a row stops, or it moves on to another state at a cost. Decisions are made in the
last states first. So the outcomes of a move are computed before the move is decided on.
American options are decided in the same way (Longstaff and Schwartz, 2001, section 1).
The caller estimates the values of moves, from any data. The induction does not read
the data.

The arrays below have the axes rows, moves and prices. A caller may exchange the axes
of rows and of prices. The axis of moves is the second of three.
"""

from typing import NamedTuple

import numpy as np

from skroute.utils._typing import NDArray

# Stands for a row that stops, in place of the position of its best move.
STOP = -1
# Difference in value, in units of quality, up to which moving on and stopping are tied.
# It absorbs rounding. A tied row stops.
_TIED = 1e-12


class BestMove(NamedTuple):
    """The best move of each row at each price.

    Attributes
    ----------
    position : ndarray of shape (n_rows, n_prices), dtype=int64
        Position of the move among the possible moves, or `STOP` if the row stops.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of this move, or of stopping.
    """

    position: NDArray[np.int64]
    value: NDArray[np.floating]


def best_move(values, value_of_stopping):
    """Return the best move of each row, or `STOP` if no move is better than stopping.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_moves, n_prices)
        Estimated value of each move, less the price of its cost. There is at least one
        move.
    value_of_stopping : float or ndarray of shape (n_rows, n_prices)
        Estimated value of stopping.

    Returns
    -------
    BestMove
    """
    best = values.argmax(axis=1)  # (n_rows, n_prices)
    # The entries at `best` are the largest values. ``values.max(axis=1)`` is slower.
    value_of_moving = take_moves(values, best)
    moves_on = value_of_moving > value_of_stopping + _TIED
    return BestMove(
        position=np.where(moves_on, best, STOP),
        value=np.where(moves_on, value_of_moving, value_of_stopping),
    )


def take_moves(tables, position):
    """Return the entry of `tables` for the move of each row at each price.

    Parameters
    ----------
    tables : ndarray of shape (n_rows, n_moves, n_prices)
        A table for each move.
    position : ndarray of shape (n_rows, n_prices)
        Position of the move of each row, or `STOP`.

    Returns
    -------
    ndarray of shape (n_rows, n_prices)
        A row that stops has an entry without a meaning: `STOP` reads the last move.
    """
    # (n_rows, 1, n_prices)
    taken = np.take_along_axis(tables, position[:, np.newaxis], axis=1)
    return taken[:, 0]


def induce_backward(following, decide, *, outcomes_after=None):
    """Decide in all states, the last one first. Return the outcomes of each state.

    Parameters
    ----------
    following : dict from int to ndarray of int
        For each state to decide in, the states that may come next. A state has a
        smaller number than the states that may come next.
    decide : callable
        ``decide(state, next_outcomes)`` decides what each row does in a state. It
        returns the outcomes of the state: an object of any class. `next_outcomes` is
        the list of the outcomes of the states that may come next.
    outcomes_after : dict from int to object, default=None
        Outcomes of the states that a move leads to. None takes the outcomes that this
        call returns. If the number of moves is limited, pass the outcomes of the call
        with one move less.

    Returns
    -------
    dict from int to object
        The outcomes of each state in `following`.
    """
    outcomes = {}
    if outcomes_after is None:
        # The same dict as `outcomes`: the loop below fills it, the last state first.
        outcomes_after = outcomes
    for state in sorted(following, reverse=True):
        next_states = following[state].tolist()
        next_outcomes = [outcomes_after[next_state] for next_state in next_states]
        outcomes[state] = decide(state, next_outcomes)
    return outcomes
