"""Algorithms 1 and 2, thresholds, calibration: against brute force and twins."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.early_exit import _algorithms as algorithms
from skroute.early_exit._algorithms import (
    doubtful,
    is_wrong,
    lagrangian_path,
    optimal_thresholds,
    qwyc_order,
    running_values,
    sweep_back,
)
from skroute.early_exit._calibration import allowed_wrong, last_accepted
from skroute.early_exit._engines import MemberEngine
from skroute.guarantees._means import share_upper_bound
from tests.early_exit.reference import leaving, most_decided, random_scores

ZERO = np.zeros(1)
FEW = settings(max_examples=60, deadline=None)


def cuts_between(values):
    distinct = np.unique(values)
    return np.concatenate([[-np.inf], (distinct[1:] + distinct[:-1]) / 2, [np.inf]])


def decided_by(values, bad, lo, hi):
    up, down = values > hi, values < lo
    wrong = np.sum(up & bad) + np.sum(down & ~bad)
    return int(np.sum(up | down)), int(wrong)


def brute_force_decided(values, bad, k, use_lo, use_hi):
    cuts, best = cuts_between(values), 0
    for lo in cuts if use_lo else [-np.inf]:
        for hi in cuts if use_hi else [np.inf]:
            if lo <= hi:
                decided, wrong = decided_by(values, bad, lo, hi)
                if wrong <= k:
                    best = max(best, decided)
    return best


@FEW
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 4),
    st.sampled_from([(True, True), (True, False), (False, True)]),
)
def test_algorithm_2_decides_as_many_rows_as_any_thresholds_can(rows, k, sides):
    values = np.array([value for value, _ in rows], dtype=np.float64)
    bad = np.array([flag for _, flag in rows])
    lo, hi = optimal_thresholds(values, bad, k, *sides)
    assert lo <= hi
    decided, wrong = decided_by(values, bad, lo, hi)
    assert wrong <= k
    assert decided == brute_force_decided(values, bad, k, *sides)
    counts = most_decided(values, bad, k, *sides)
    expected = [
        brute_force_decided(values, bad, errors, *sides) for errors in range(k + 1)
    ]
    np.testing.assert_array_equal(counts, expected)


def test_order_search_takes_free_members_first():
    costs = np.array([1.0, 0.0, 1.0, 0.0])
    order, _, _ = qwyc_order(random_scores(0, n_members=4), ZERO, 0.0, costs, 0.05)
    assert list(order[:2]) == [1, 3]


def best_cost_of_any_order(scores, beta, alpha, costs):
    """Smallest mean cost over all orders and all thresholds, by exhaustion over steps."""
    n_members, n, _ = scores.shape
    positive = scores.sum(axis=0)[:, 0] > beta
    best = np.inf
    for order in itertools.permutations(range(n_members)):
        running = np.cumsum(scores[list(order), :, 0], axis=0)
        states = {(tuple(range(n)), 0): 0.0}
        for r in range(n_members):
            following = {}
            for (rows, errors), spent in states.items():
                spent += costs[order[r]] * len(rows)
                rows = np.array(rows, dtype=int)
                if r == n_members - 1 or len(rows) == 0:
                    best = min(best, spent / n)
                    continue
                v = running[r, rows]
                for lo, hi in itertools.product(cuts_between(v), repeat=2):
                    if lo > hi:
                        continue
                    up, down = v > hi, v < lo
                    total = (
                        errors
                        + np.sum(up & ~positive[rows])
                        + np.sum(down & positive[rows])
                    )
                    if total <= alpha * n:
                        key = (tuple(rows[~(up | down)]), int(total))
                        following[key] = min(following.get(key, np.inf), spent)
            states = following
    return best


@pytest.mark.parametrize("sizes", [(4, 2, 1), (1, 2, 4), (2, 4, 1)])
@pytest.mark.parametrize("costs", [(1.0, 1.0, 1.0), (1.0, 3.0, 1.0)])
def test_greedy_equals_brute_force_in_the_special_case(sizes, costs):
    """Disjoint groups of rows, each decided by one member only (appendix A.1)."""
    scores, costs = np.zeros((3, 8, 1), dtype=np.float32), np.array(costs)
    for t, rows in enumerate(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])):
        scores[t, rows] = 1.0
    order, lo, hi = qwyc_order(scores, ZERO, 0.5, costs, 0.0, False, True)
    values, bad = running_values(scores, order, ZERO, 0.5)
    position, side = leaving(values, lo, hi)
    assert not is_wrong(position, side, bad).any()
    cost = np.cumsum(costs[order])[position].mean()
    # The last member decides nothing early that the end does not: ties among orders.
    assert cost == pytest.approx(best_cost_of_any_order(scores, 0.5, 0.0, costs))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2]))
def test_greedy_is_within_factor_four_of_brute_force(seed, alpha):
    rng = np.random.RandomState(seed)
    scores = rng.randint(-2, 3, (3, 5, 1)).astype(np.float32)
    costs = np.array([1.0, 2.0, 1.0])
    order, lo, hi = qwyc_order(scores, ZERO, 0.5, costs, alpha)
    values, bad = running_values(scores, order, ZERO, 0.5)
    position, side = leaving(values, lo, hi)
    assert is_wrong(position, side, bad).sum() <= alpha * 5
    cost = np.cumsum(costs[order])[position].mean()
    best = best_cost_of_any_order(scores, 0.5, alpha, costs)
    assert best - 1e-9 <= cost <= 4 * best


def objective(values, bad, costs, price, lo, hi):
    position, side = leaving(values, lo, hi)
    return (
        np.cumsum(costs)[position].sum() + price * is_wrong(position, side, bad).sum()
    )


@FEW
@given(st.integers(0, 10_000), st.sampled_from([1.0, 5.0, 50.0]), st.booleans())
def test_each_sweep_lowers_the_objective(seed, price, use_hi):
    values, bad = running_values(random_scores(seed, 5, 40), np.arange(5), ZERO, 0.0)
    costs = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    lo, hi = np.full(5, -np.inf), np.full(5, np.inf)
    before = objective(values, bad, costs, price, lo, hi)
    for _ in range(3):
        sweep_back(
            values, bad, costs, price, lo, hi, leaving(values, lo, hi)[0], True, use_hi
        )
        after = objective(values, bad, costs, price, lo, hi)
        assert after <= before + 1e-6
        before = after
    assert use_hi or np.all(np.isinf(hi))


def expected_objective(values, chance, costs, price, lo, hi, weights=(1.0, 1.0)):
    position, side = leaving(values, lo, hi)
    above = chance[position, np.arange(len(position))]
    left = np.where(side > 0, weights[0] * above, weights[1] * (1.0 - above))
    wrong = np.where(side == 0, 0.0, left)
    return np.cumsum(costs)[position].sum() + price * wrong.sum()


@FEW
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.5, 3.0, 20.0]),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
)
def test_two_members_reach_the_optimum_of_exhaustive_search(
    seed, price, softness, weighted
):
    values, bad = running_values(random_scores(seed, 2, 12), np.arange(2), ZERO, 0.0)
    chance = doubtful(values, bad, 0.0, softness)
    costs = np.array([1.0, 2.0])
    weights = (
        np.random.default_rng(seed).exponential(size=(2, 12)) if weighted else None
    )
    (lo, hi) = lagrangian_path(values, chance, costs, [price], weights=weights)[0]
    weights = np.ones((2, 12)) if weights is None else weights
    got = expected_objective(values, chance, costs, price, lo, hi, weights)
    best = min(
        expected_objective(
            values,
            chance,
            costs,
            price,
            np.array([a, -np.inf]),
            np.array([b, np.inf]),
            weights,
        )
        for a, b in itertools.combinations_with_replacement(cuts_between(values[0]), 2)
    )
    assert got == pytest.approx(best)


@pytest.mark.parametrize("exponent", [-40, 40])
def test_thresholds_do_not_depend_on_the_unit_of_costs(exponent):
    values, bad = running_values(random_scores(3, 5, 200), np.arange(5), ZERO, 0.0)
    costs = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    unit = 2.0**exponent  # a power of 2, by which no number is rounded
    expected = lagrangian_path(values, bad, costs, [20.0, 5.0])
    path = lagrangian_path(values, bad, costs * unit, [20.0 * unit, 5.0 * unit])
    np.testing.assert_array_equal(path, expected)
    assert np.isfinite(expected).any()


def test_doubt_is_the_chance_that_a_score_like_this_is_on_the_other_side():
    values, bad = running_values(random_scores(4), np.arange(8), ZERO, 0.3)
    assert doubtful(values, bad, 0.3, 0.0) is bad
    chance = doubtful(values, bad, 0.3, 0.2)
    assert chance.shape == values.shape
    full = values[-1].astype(np.float64)
    drawn = full + 0.2 * full.std() * np.random.RandomState(0).randn(20_000, 200)
    np.testing.assert_allclose(chance[3], np.mean(drawn <= 0.3, axis=0), atol=0.015)
    np.testing.assert_array_equal(chance[0][full != 0.3] > 0.5, bad[0][full != 0.3])
    # Scores that are all the same leave no scale to doubt on.
    same = np.ones((2, 5), dtype=np.float32)
    never = np.broadcast_to(np.zeros(5, dtype=bool), same.shape)
    assert doubtful(same, never, 0.0, 0.2) is never


def test_leave_at_equals_its_numpy_twin():
    values, _ = running_values(random_scores(2), np.arange(8), ZERO, 0.0)
    for width in (0.5, 2.0, 99.0):
        lo, hi = np.full(8, -width), np.full(8, width)
        for got, twin in zip(
            algorithms.leaving(values, lo, hi), leaving(values, lo, hi)
        ):
            np.testing.assert_array_equal(got, twin)


def test_member_engine_asks_only_undecided_rows():
    asked = []

    def member(X):
        asked.append(len(X))
        return X[:, 0]

    X = np.array([[5.0], [-5.0], [0.1], [0.2]])
    engine = MemberEngine([member] * 3, np.array([0, 1]), np.ones(3))
    policy = (np.full(3, -1.0), np.full(3, 1.0))
    members = engine.walk(X, policy).n_evaluated
    assert asked == [4, 2, 2]
    np.testing.assert_array_equal(members, [1, 1, 3, 3])
    asked.clear()
    engine.walk(X[:2], policy)
    assert asked == [2]


@pytest.mark.parametrize("n", [10, 300, 598, 2000])
@pytest.mark.parametrize("alpha", [0.0, 0.005, 0.1])
def test_allowed_wrong(n, alpha):
    k = allowed_wrong(n, alpha, 0.95, guarantee=True)
    assert k < 0 or share_upper_bound(k, n, confidence=0.95) <= alpha
    assert share_upper_bound(k + 1, n, confidence=0.95) > alpha
    k = allowed_wrong(n, alpha, 0.95, guarantee=False)
    assert (k + 1) / (n + 1) <= alpha + 1e-12 < (k + 2) / (n + 1)


@pytest.mark.parametrize(
    ("n_wrong", "allowed", "accepted"),
    [
        ([[0], [2], [5], [1]], [3], 1),
        ([[0], [2], [5], [1]], [9], 3),
        ([[4], [2]], [3], -1),
        # One limit for each answer: all must hold.
        ([[0, 0], [3, 0], [3, 1], [3, 9]], [3, 0], 1),
        ([[0, 0]], [3, -1], -1),
    ],
)
def test_policies_are_accepted_up_to_the_first_failure(n_wrong, allowed, accepted):
    assert last_accepted(np.array(n_wrong), np.array(allowed)) == accepted
