"""Several tests in one promise, and batches of known rows."""

import re
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.guarantees import finite_population_test, fixed_sequence_test, mean_p_value
from skroute.guarantees._finite import (
    labels_needed,
    smallest_allowed,
    tolerated_disagreements,
)
from tests.guarantees.test_means import broken_at_most


@given(
    p_values=st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=20),
    confidence=st.floats(0.01, 0.99),
)
def test_a_sequence_stops_at_the_first_failure(p_values, confidence):
    certified = fixed_sequence_test(p_values, confidence=confidence)
    expected = []
    for p in p_values:
        expected.append(all(x <= (1 - confidence) * (1 + 1e-12) for x in p) and all(expected))
    np.testing.assert_array_equal(certified, expected)
    single = fixed_sequence_test(np.array(p_values)[:, 0], confidence=confidence)
    assert (single >= certified).all()


def test_a_p_value_at_the_level_is_certified():
    for confidence in (0.9, 0.95, 0.99):
        assert fixed_sequence_test([1 - confidence], confidence=confidence).all()
        assert not fixed_sequence_test([1.001 * (1 - confidence)], confidence=confidence).any()


def test_sequences_hold_over_fresh_draws():
    """Twenty candidates of rising loss, two risks. Testing each alone is seen to fail."""
    rng = np.random.default_rng(0)
    limit, n_draws, level = 0.1, 300, 0.1
    # Many candidates just above the limit: where each is tested, one of them gets through.
    rates = np.r_[np.linspace(0.02, 0.09, 5), np.full(15, 0.101)]
    broken = alone = 0
    for _ in range(n_draws):
        losses = (rng.random((150, 20, 2)) < rates[:, None]) * 1.0
        p = [[mean_p_value(losses[:, k, r], limit) for r in range(2)] for k in range(20)]
        certified = fixed_sequence_test(p, confidence=1 - level)
        broken += certified[5:].any()
        alone += (np.array(p)[5:, 0] <= level).any()
    assert broken_at_most(broken, n_draws, level)
    assert not broken_at_most(alone, n_draws, level)


@pytest.mark.parametrize(
    "p_values", [[1.5], [-0.1], [np.nan], [[[0.1]]], []], ids=["above", "below", "nan", "3d", "0"]
)
def test_p_values_are_checked(p_values):
    with pytest.raises(ValueError):
        fixed_sequence_test(p_values)


def served_wrongly(differ, found):
    return int((differ & found.serve).sum())


@given(
    differ=st.lists(st.booleans(), min_size=1, max_size=9),
    n_labelled=st.integers(1, 9),
    agreement=st.sampled_from([0.5, 0.6, 0.75, 0.8, 0.9]),
    confidence=st.sampled_from([0.5, 0.7, 0.8, 0.9]),
)
@settings(deadline=None, max_examples=150)
def test_a_batch_is_promised_exactly(differ, n_labelled, agreement, confidence):
    """Every possible draw of labels is tried: the share that breaks the promise is exact."""
    differ = np.array(differ)
    n, k = len(differ), min(n_labelled, len(differ))
    allowed = int((1 - agreement) * n + 1e-9)
    draws = [np.array(draw) for draw in combinations(range(n), k)]
    broken = 0
    for draw in draws:
        found = finite_population_test(
            -np.arange(n), draw, differ[draw], agreement=agreement, confidence=confidence
        )
        assert found.allowed == allowed
        assert not found.serve[draw].any()
        broken += served_wrongly(differ, found) > allowed
    assert broken <= (1 - confidence) * len(draws) + 1e-9


def counted(n, k, allowed, level):
    """`tolerated_disagreements` by counting draws, at the fewest rows that are too many."""

    def chance(d):
        marked = allowed + 1 + d
        ways = sum(comb(marked, i) * comb(n - marked, k - i) for i in range(d + 1))
        return ways / comb(n, k)

    found = -1
    for d in range(k + 1):
        if allowed + 1 + d <= n and chance(d) > level:
            break
        found = d
    return found


@given(data=st.data(), level=st.sampled_from([0.0307, 0.1003, 0.2501, 0.4999]))
@settings(deadline=None, max_examples=150)
def test_tolerated_disagreements_are_those_of_counted_draws(data, level):
    """Neither more, which breaks the promise, nor fewer."""
    n = data.draw(st.integers(1, 40))
    k, allowed = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    expected = counted(n, k, allowed, level)
    assert tolerated_disagreements(n, k, allowed, level) == expected
    found = data.draw(st.integers(0, k))
    vouched = [a for a in range(n + 1) if counted(n, k, a, level) >= found]
    assert smallest_allowed(n, k, found, level) == vouched[0]
    needed = labels_needed(n, allowed, level)
    enough = [j for j in range(1, n + 1) if counted(n, j, allowed, level) >= 0]
    assert needed == enough[0]
    assert labels_needed(n, allowed, level, 0.2) >= needed


@given(seed=st.integers(0, 999))
@settings(deadline=None, max_examples=20)
def test_the_highest_scores_are_served_and_equal_ones_by_chance(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 8, 120) / 8
    differ, rows = rng.random(120) < (1 - scores) * 0.6, rng.choice(120, 60, replace=False)
    sets = []
    for state in range(6):
        found = finite_population_test(
            scores, rows, differ[rows], agreement=0.8, confidence=0.8, random_state=state
        )
        unlabelled = np.setdiff1d(np.arange(120), rows)
        served, left = unlabelled[found.serve[unlabelled]], unlabelled[~found.serve[unlabelled]]
        if len(served) and len(left):
            assert scores[served].min() >= scores[left].max()
            marked = differ & np.isin(np.arange(120), rows) & (scores > scores[served].min())
            assert marked.sum() <= found.tolerated
            sets.append((scores[served].min() == scores[left].max(), tuple(served)))
    # Where the stretch ends within equal scores, which of them are served is drawn.
    if sets and all(tied for tied, _ in sets) and len(sets) == 6:
        assert len({served for _, served in sets}) > 1


def test_a_batch_holds_over_fresh_draws_and_a_naive_rule_does_not():
    rng = np.random.default_rng(0)
    n, k, allowed, n_draws = 1500, 150, 150, 1000
    scores = rng.random(n)
    differ = rng.random(n) < (1 - scores) * 0.5
    order = np.argsort(-scores)
    broken = naive = 0
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).choice(n, k, replace=False)
        found = finite_population_test(
            scores, rows, differ[rows], agreement=0.9, confidence=0.9, random_state=seed
        )
        broken += served_wrongly(differ, found) > allowed
        # The mutation: as many as the labelled share suggests, without a correction.
        marked = np.zeros(n, bool)
        marked[rows] = differ[rows]
        stop = np.searchsorted(np.cumsum(marked[order]), 0.1 * k, side="right")
        naive += (differ[order[:stop]] & ~np.isin(order[:stop], rows)).sum() > allowed
    assert broken_at_most(broken, n_draws, 0.1)
    assert not broken_at_most(naive, n_draws, 0.1)


@given(seed=st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_asking_more_serves_no_more(seed):
    rng = np.random.default_rng(seed)
    scores, rows = rng.random(200), rng.choice(200, 60, replace=False)
    differ = rng.random(200) < 0.2
    shares = [
        finite_population_test(
            scores, rows, differ[rows], agreement=agreement, confidence=confidence, random_state=0
        ).serve.sum()
        for agreement, confidence in [(0.7, 0.8), (0.8, 0.8), (0.8, 0.95), (0.95, 0.95)]
    ]
    assert (np.diff(shares) <= 0).all()


def test_ends():
    rows = np.arange(10)
    everything = finite_population_test(np.zeros(30), rows, np.ones(10, bool), agreement=0.0)
    assert everything.serve.sum() == 20
    nothing = finite_population_test(np.zeros(30), rows, np.zeros(10, bool), agreement=1.0)
    assert nothing.tolerated == -1 and not nothing.serve.any()
    known = finite_population_test(np.zeros(10), rows, np.ones(10, bool), agreement=1.0)
    assert not known.serve.any()
    assert tolerated_disagreements(30, 10, 30, 0.05) == 10


@pytest.mark.parametrize(
    "scores, labelled, disagrees, message",
    [
        ([0.1, 0.2], [0, 0], [0, 1], "labelled names a row twice"),
        ([0.1, 0.2], [2], [0], "whole numbers from 0 to 1"),
        ([0.1, 0.2], [0.5], [0], "whole numbers from 0 to 1"),
        ([0.1, 0.2], [0], [2], "disagrees must be True or False"),
        ([0.1, 0.2], [0, 1], [0], "one entry per labelled row each"),
        ([[0.1], [0.2]], [0], [0], "one number per row"),
    ],
)
def test_bad_batches_are_refused_in_words(scores, labelled, disagrees, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        finite_population_test(scores, labelled, disagrees)
