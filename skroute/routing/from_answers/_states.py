"""Asking one after another: what has been asked, and whether the next answer is worth its price."""

from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np

from skroute.routing.parts._log import with_last
from skroute.utils._typing import NDArray


class States(NamedTuple):
    """What may have been asked, and what may be asked next; what follows comes later."""

    # (n_states, n_members)
    asked: NDArray[np.bool_]
    # The state after asking a member; -1 where it cannot be asked.
    following: NDArray[np.int64]
    # For each state the members that may answer there.
    answers: list[tuple[int, ...]]

    @property
    def n_calls(self):
        """Members that are asked at most."""
        return int(self.asked.sum(axis=1).max())


def check_sets(n_members, max_calls, most):
    """Refuse more sets of one to `max_calls` members than can be learned."""
    count = sum(
        comb(n_members, size) for size in range(1, min(max_calls, n_members) + 1)
    )
    if count > most:
        raise ValueError(
            f"max_calls={max_calls!r} with {n_members} members makes {count} sets of models; at "
            f"most {most} are allowed. Lower max_calls or leave members out."
        )


def any_order(n_members, max_calls):
    """Any member may be asked after any, and any that was asked may answer; the first is none."""
    sizes = range(min(max_calls, n_members) + 1)
    sets = [part for size in sizes for part in combinations(range(n_members), size)]
    position = {frozenset(part): at for at, part in enumerate(sets)}
    members = range(n_members)
    asked = np.array([[k in part for k in members] for part in sets])
    following = np.array(
        [
            [
                -1 if k in part else position.get(frozenset((*part, k)), -1)
                for k in members
            ]
            for part in sets
        ]
    )
    return States(asked, following, sets)


def fixed_order(n_members, chain):
    """One member after another; the last one asked answers."""
    asked = np.zeros((len(chain) + 1, n_members), dtype=bool)
    following = np.full((len(chain) + 1, n_members), -1)
    for at, k in enumerate(chain):
        asked[at + 1 :, k] = True
        following[at, k] = at + 1
    return States(asked, following, [(), *((k,) for k in chain)])


class StateValues(NamedTuple):
    """What a state estimates: the quality of each answer, and what going on is worth."""

    # A fitted regressor. Its first outputs are ways to answer; the others are what each of the
    # members that may be asked next is worth at each price.
    model: Any
    n_answers: int
    n_next: int
    n_prices: int
    # Quality of abstaining, which is one more way to end a row. None if no row can abstain.
    abstain_quality: float | None

    def split(self, outputs):
        """Quality of the ways to end a row, and of asking each next member at each price."""
        ways, going = outputs[:, : self.n_answers], outputs[:, self.n_answers :]
        if self.abstain_quality is not None:
            ways = with_last(ways, self.abstain_quality)
        return ways, going.reshape(len(outputs), self.n_next, self.n_prices)


class Move(NamedTuple):
    """What is best in a state."""

    # The way to end each row if it ends here, -1 where there is none, and what that is worth.
    way: NDArray[np.int64]
    stop: NDArray[np.float64]
    # (n_rows, n_prices): position of the member to ask next, among those that may be, -1 to end
    # the row; and what the better of the two is worth, less the price of what it costs.
    onward: NDArray[np.int64]
    worth: NDArray[np.float64]


def best_move(ways, going, costs, prices):
    """The best way to end each row, or the member that is better asked first, at each price."""
    n_rows, n_next, _ = going.shape
    shape = np.broadcast_shapes(np.shape(prices), (n_rows, 1))
    way, stop = np.full(n_rows, -1), np.full(n_rows, -np.inf)
    if ways.shape[1]:
        way = ways.argmax(axis=1)
        stop = ways[np.arange(n_rows), way]
    worth = np.broadcast_to(stop[:, np.newaxis], shape)
    if not n_next:
        return Move(way, stop, np.full(shape, -1), worth)
    prices = np.broadcast_to(prices, shape)
    net = going - costs[:, np.newaxis] * prices[:, np.newaxis]
    at = net.argmax(axis=1)
    best = np.take_along_axis(net, at[:, np.newaxis], axis=1)[:, 0]
    goes = best > worth + 1e-12
    return Move(way, stop, np.where(goes, at, -1), np.where(goes, best, worth))


def roll_back(
    states, realised, costs, prices, fit, *, only=None, abstain_quality=None, trust=0.0
):
    """Learn what going on is worth, from the states after the last call back to the first.

    `realised` has for each state the logged quality (n_rows, n_answers) of each way to answer
    there. ``fit(state, target) -> (model, estimate)`` is a regressor of the columns of `target`
    on what is known in a state, and what it makes of the same rows out of sample. `only` some
    states may be reached. `abstain_quality` is the quality of abstaining, which is possible once
    something has been asked. `trust` is the share of the next states' own estimates in the value
    of going on to them; the rest is what their decisions came to: outcomes are noisy, and of
    estimates the largest is too high.

    Returns the values of all states, None where not reached, and for each state that is reached
    the quality and the cost (n_rows, n_prices) that decisions from there on came to on the rows,
    out of sample.
    """
    n_rows = len(realised[0])
    values: list[StateValues | None] = [None] * len(states.asked)
    quality, spent, worth = {}, {}, {}
    reached = range(len(states.asked)) if only is None else only
    for state in sorted(reached, reverse=True):
        nexts = np.flatnonzero(states.following[state] >= 0)
        later = states.following[state, nexts].tolist()
        net = [
            (1 - trust) * (quality[at] - prices * spent[at])
            + (trust * worth[at] if trust else 0.0)
            for at in later
        ]
        answers = realised[state]
        ends = abstain_quality if states.asked[state].any() else None
        ways = answers if ends is None else with_last(answers, ends)
        model, estimate = fit(state, np.column_stack([answers, *net]))
        values[state] = StateValues(
            model, answers.shape[1], len(later), len(prices), ends
        )
        estimated, going = values[state].split(estimate)
        move = best_move(estimated, going, costs[nexts], prices)
        ended = ways[np.arange(n_rows), move.way] if ways.shape[1] else np.zeros(n_rows)
        quality[state] = np.repeat(ended[:, np.newaxis], len(prices), axis=1)
        spent[state] = np.zeros((n_rows, len(prices)))
        worth[state] = move.worth
        for at, after in enumerate(later):
            i, j = np.nonzero(move.onward == at)
            quality[state][i, j] = quality[after][i, j]
            spent[state][i, j] = costs[nexts[at]] + spent[after][i, j]
    return values, quality, spent
