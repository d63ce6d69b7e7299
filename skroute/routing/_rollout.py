"""Which member to ask next, by what asking it has been worth: backward over sets.

The state of a row is the set of members asked so far and their answers. States are
positions in a table of sets; ``following[state, k]`` is the set with k added, or -1.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np


class Rollout(NamedTuple):
    """Policies at each price, fitted backward, and what they made of the training rows.

    Attributes
    ----------
    models : list
        For each state a fitted regressor, or None where there is nothing to decide. Its
        outputs are the quality of each way to answer, then for each next member and
        price the value of asking it (see `split_outputs`).

    cost, quality : list
        For each state what is bought from it on costs, and what the answer that this ends with is
        worth, if all rows are in it: ndarray of shape (n_rows, n_prices), or None where the state
        was left out.
    """

    models: list
    cost: list
    quality: list


def member_sets(n_members, max_calls, before=None):
    """All sets of up to `max_calls` members, smaller ones first, and what follows each.

    Parameters
    ----------
    n_members : int
    max_calls : int
    before : sequence of int, default=None
        For each member the one that must have been asked before it, or -1. None means
        that each can be asked at any time.

    Returns
    -------
    members : ndarray of shape (n_states, n_members), dtype=bool
    following : ndarray of shape (n_states, n_members), dtype=int64
        State with the member added; -1 where it is in already or the set is full.
    """
    sets = [
        frozenset(part)
        for size in range(1, min(max_calls, n_members) + 1)
        for part in combinations(range(n_members), size)
        if before is None or all(before[k] < 0 or before[k] in part for k in part)
    ]
    position = {part: i for i, part in enumerate(sets)}
    members = np.array([[k in part for k in range(n_members)] for part in sets])
    following = np.array(
        [
            [-1 if k in part else position.get(part | {k}, -1) for k in range(n_members)]
            for part in sets
        ]
    )
    return members, following


def split_outputs(outputs, n_ways, n_next, n_prices):
    """Quality of each way to answer, and value of each next member at each price.

    Returns
    -------
    ways : ndarray of shape (n_rows, n_ways)
    value : ndarray of shape (n_rows, n_next, n_prices)
    """
    return outputs[:, :n_ways], outputs[:, n_ways:].reshape(len(outputs), n_next, n_prices)


def next_member(stop, value, costs, price):
    """Next member to ask, or -1 to stop.

    Parameters
    ----------
    stop : ndarray of shape (n_rows,)
        Estimated quality of stopping.

    value : ndarray of shape (n_rows, n_next)
        Estimated value, net of what is bought later, of going on with each member.

    costs : ndarray of shape (n_next,)

    price : float

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
        Column of `value`. Ties go to stopping.
    """
    net = value - price * costs
    best = net.argmax(axis=1)
    return np.where(net[np.arange(len(net)), best] > stop + 1e-12, best, -1)


def roll_back(following, realised, costs, prices, fit, states=None, trust=0.0):
    """Fit when to go on, from the largest sets to single members.

    For a row in state S the value of asking k is what the policy from S + k on, fitted
    before, has made of it: its realised quality minus price times cost of what it bought.
    Rows are decided by estimates that are out of sample, so no estimate is taken for the
    truth, and the largest of several noisy ones is not taken for their value.

    Parameters
    ----------
    following : ndarray of shape (n_states, n_members), dtype=int64
        See `member_sets`; larger sets come later.

    realised : sequence of ndarray of shape (n_rows, n_ways)
        For each state the quality of each way to answer on each row.

    costs : ndarray of shape (n_members,)

    prices : ndarray of shape (n_prices,)

    fit : callable
        ``fit(state, target)`` returns a fitted regressor from the answers in `state` to
        `target`, and its out-of-sample estimates of it.

    states : sequence of int, default=None
        States that may be reached, with all that follow them; None means all. The others
        count as costing nothing and bringing nothing.

    trust : float, default=0.0
        Share that the estimates of later states have in the value of going on to them;
        the rest is what the policy has made of the rows. Estimates are less noisy than
        outcomes, which matters where rows are few, and too high where one is the largest
        of many.

    Returns
    -------
    Rollout
    """
    n_states, n_prices = len(following), len(prices)
    rows = np.arange(len(realised[0]))
    models: list = [None] * n_states
    quality: list = [None] * n_states
    spent: list = [None] * n_states
    worth: list = [None] * n_states
    for state in sorted(range(n_states) if states is None else states, reverse=True):
        ways = realised[state]
        next_members = np.flatnonzero(following[state] >= 0)
        later = [following[state, k] for k in next_members]
        if ways.shape[1] == 1 and not later and not trust:
            quality[state] = np.repeat(ways, n_prices, axis=1)
            spent[state] = np.zeros_like(quality[state])
            continue
        net = [quality[after] - prices * spent[after] for after in later]
        if trust:
            net = [(1 - trust) * of + trust * worth[at] for of, at in zip(net, later)]
        models[state], estimate = fit(state, np.column_stack([ways, *net]))
        way_values, value = split_outputs(estimate, ways.shape[1], len(later), n_prices)
        if ways.shape[1]:
            way = way_values.argmax(axis=1)
            stop_value, stop_quality = way_values[rows, way], ways[rows, way]
        else:
            # Nothing has been paid for that could answer.
            stop_value, stop_quality = np.full(len(rows), -np.inf), np.zeros(len(rows))
        quality[state] = np.repeat(stop_quality[:, np.newaxis], n_prices, axis=1)
        spent[state] = np.zeros_like(quality[state])
        if trust:
            worth[state] = np.repeat(stop_value[:, np.newaxis], n_prices, axis=1)
        if not later:
            continue
        go_costs = costs[next_members]
        qualities = np.stack([quality[after] for after in later])
        spents = np.stack([spent[after] for after in later])
        # As `next_member`, at all prices.
        net = value - go_costs[:, np.newaxis] * prices
        choice = net.argmax(axis=1)
        best = np.take_along_axis(net, choice[:, np.newaxis], axis=1)[:, 0]
        i, j = np.nonzero(best > stop_value[:, np.newaxis] + 1e-12)
        asked = choice[i, j]
        quality[state][i, j] = qualities[asked, i, j]
        spent[state][i, j] = go_costs[asked] + spents[asked, i, j]
        if trust:
            worth[state][i, j] = best[i, j]
    return Rollout(models, spent, quality)
