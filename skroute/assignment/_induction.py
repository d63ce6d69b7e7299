"""Backward induction: decisions in several steps, at each of some prices.

A *state* is what a row has bought so far: answers of models, or sets of features. In a
state a row stops, or it moves on to another state, which has a cost. Decisions are made
in the last states first, so that what comes of a move is known when the move is decided
on: backward induction as for American options (Longstaff and Schwartz, 2001, section
1). What is known of a row in a state may be one number, the leaves of a tree or a table
of features. The induction does not read it: the caller estimates what a move is worth.

Tables of rows have their two axes in the order of the caller: rows and prices, or
prices and rows. Where they have an axis of moves too, it is the second of three.
"""

from typing import NamedTuple

import numpy as np

from skroute.utils._typing import NDArray

# The move of a row that stops.
STOP = -1
# Difference in value, in units of quality, up to which moving on and stopping are tied.
# It absorbs rounding. A tied row stops.
_TIED = 1e-12


class BestMove(NamedTuple):
    """The best move of each row at each price.

    Attributes
    ----------
    position : ndarray of shape (n_rows, n_prices), dtype=int64
        Position of the move among those that are possible; `STOP` if the row stops.
    value : ndarray of shape (n_rows, n_prices)
        Estimated value of the best move, or of stopping.
    """

    position: NDArray[np.int64]
    value: NDArray[np.floating]


def best_move(values, value_of_stopping):
    """Return whether each row moves on, and to which state (`BestMove`).

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_moves, n_prices)
        Estimated value of each move, less the price of its cost. There is at least one
        move.
    value_of_stopping : float or ndarray of shape (n_rows, n_prices)
        Estimated value of stopping.
    """
    best = values.argmax(axis=1)
    # This is faster than the maximum along this axis.
    value_of_moving = take_moves(values, best)
    moves_on = value_of_moving > value_of_stopping + _TIED
    return BestMove(
        position=np.where(moves_on, best, STOP),
        value=np.where(moves_on, value_of_moving, value_of_stopping),
    )


def take_moves(tables, position):
    """Return the entries of tables that belong to the moves of rows.

    Parameters
    ----------
    tables : ndarray of shape (n_rows, n_moves, n_prices)
        A table for each move.
    position : ndarray of shape (n_rows, n_prices)
        Position of the move of each row.

    Returns
    -------
    ndarray of shape (n_rows, n_prices)
        The entry of a row that stops has no meaning.
    """
    return np.take_along_axis(tables, position[:, np.newaxis], axis=1)[:, 0]


def induce_backward(following, decide, *, outcomes_after=None):
    """Return the outcomes of all states, the last state first.

    Parameters
    ----------
    following : dict from int to ndarray of int
        For each state to decide in, the states that may come next. Their numbers are
        larger than that of the state.
    decide : callable
        ``decide(state, next_outcomes)`` decides what each row does in a state, and
        returns the outcomes: an object that holds what comes of it.
        `next_outcomes` is the list of those of the states that may come next.
    outcomes_after : dict from int to object, default=None
        Outcomes that count after a move. None: those that are being made. If only some
        moves are left, they are those with one move less.

    Returns
    -------
    dict from int to object
        The outcomes of each state in `following`.
    """
    outcomes = {}
    if outcomes_after is None:
        outcomes_after = outcomes
    for state in sorted(following, reverse=True):
        next_outcomes = [outcomes_after[number] for number in following[state].tolist()]
        outcomes[state] = decide(state, next_outcomes)
    return outcomes
