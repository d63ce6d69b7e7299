"""States of asking one after another: sets and orders, moves, backward induction."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skroute.routing._states import any_order, best_move, fixed_order, roll_back


def test_a_move_takes_what_pays_and_stops_at_ties():
    ways = np.array([[0.5, 0.1], [0.5, 0.1], [0.5, 0.1], [0.2, 0.9]])
    going = np.array([[0.7, 0.9], [0.8, 0.8], [0.6, 0.7], [1.0, 1.0]])[:, :, np.newaxis]
    move = best_move(ways, going, np.array([1.0, 2.0]), np.array([0.1]))
    assert_array_equal(move.onward[:, 0], [1, 0, -1, -1])
    assert_array_equal(move.way, [0, 0, 0, 1])
    np.testing.assert_allclose(move.worth[:, 0], [0.7, 0.7, 0.5, 0.9])


@given(st.integers(0, 10_000), st.sampled_from([None, 0.6]))
@settings(max_examples=15, deadline=None)
def test_with_full_knowledge_each_row_ends_in_the_best_set(seed, handing):
    rng = np.random.default_rng(seed)
    n, costs, prices = 20, np.array([1.0, 2.0, 4.0]), np.array([0.3, 0.1, 0.0])
    states = any_order(3, 3)
    realised = [rng.random((n, row.sum())) for row in states.asked]
    found = roll_back(
        states, realised, costs, prices, lambda state, target: (None, target), handing=handing
    )
    _, quality, spent = found
    set_costs = states.asked @ costs
    best = [table.max(axis=1, initial=-np.inf) for table in realised]
    if handing is not None:
        best = [best[0], *(np.maximum(part, handing) for part in best[1:])]
    for state, row in enumerate(states.asked):
        reachable = [s for s, other in enumerate(states.asked) if (other >= row).all()]
        for j, price in enumerate(prices):
            net = [best[s] - price * (set_costs[s] - set_costs[state]) for s in reachable]
            worth = quality[state][:, j] - price * spent[state][:, j]
            np.testing.assert_allclose(worth, np.max(net, axis=0))


def test_what_is_not_reached_is_not_learned():
    states, asked = any_order(2, 2), []

    def fit(state, target):
        asked.append(state)
        return state, target

    realised = [np.ones((5, row.sum())) for row in states.asked]
    values, quality, _ = roll_back(states, realised, np.ones(2), np.array([0.0]), fit, only=[1, 3])
    assert asked == [3, 1] and sorted(quality) == [1, 3]
    assert values[0] is values[2] is None


def test_where_nothing_is_to_be_decided_rows_get_the_only_answer():
    states, prices = any_order(2, 1), np.array([0.5, 0.0])
    realised = [np.empty((2, 0)), np.array([[1.0], [0.0]]), np.array([[1.0], [1.0]])]
    _, quality, spent = roll_back(
        states, realised, np.ones(2), prices, lambda state, target: (None, 1 - target), only=[1, 2]
    )
    for state in (1, 2):
        assert_array_equal(quality[state], np.repeat(realised[state], 2, axis=1))
        assert not spent[state].any()


def test_trust_mixes_what_is_estimated_with_what_came_of_it():
    """Estimates of 1 for a state whose outcomes are 0: half of either, at a trust of a half."""
    states = fixed_order(2, (0, 1))
    targets = {}

    def fit(state, target):
        targets[state] = target
        return None, np.ones_like(target)

    realised = [np.empty((3, 0)), np.zeros((3, 1)), np.zeros((3, 1))]
    roll_back(states, realised, np.zeros(2), np.zeros(1), fit, trust=0.5)
    np.testing.assert_allclose(targets[1], [[0.0, 0.5]] * 3)
