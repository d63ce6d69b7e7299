"""Labels on a few rows of a batch: the hypergeometric test, counted draw by draw."""

import time
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.guarantees._finite import labels_needed, smallest_allowed, tolerated_disagreements
from tests.guarantees.test_means import broken_at_most


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
    assert tolerated_disagreements(n, k, allowed, level) == counted(n, k, allowed, level)
    found = data.draw(st.integers(0, k))
    vouched = [a for a in range(n + 1) if counted(n, k, a, level) >= found]
    assert smallest_allowed(n, k, found, level) == vouched[0]
    enough = [j for j in range(1, n + 1) if counted(n, j, allowed, level) >= 0]
    assert labels_needed(n, allowed, level) == enough[0]
    assert labels_needed(n, allowed, level, 0.2) >= enough[0]


def served_wrongly(differ, labelled, tolerated):
    """Unlabelled rows that differ, in the longest prefix with so many labelled ones or fewer."""
    found = np.zeros(len(differ), dtype=int)
    found[labelled] = differ[labelled]
    stop = np.searchsorted(np.cumsum(found), tolerated, side="right") if tolerated >= 0 else 0
    return int((differ[:stop] & ~np.isin(np.arange(stop), labelled)).sum())


@given(data=st.data(), level=st.sampled_from([0.1, 0.25, 0.5]))
@settings(deadline=None, max_examples=20)
def test_the_promise_holds_over_all_draws_of_labels_of_a_small_batch(data, level):
    n = data.draw(st.integers(4, 11))
    k, allowed = data.draw(st.integers(1, n - 1)), data.draw(st.integers(0, n - 1))
    differ = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    tolerated = tolerated_disagreements(n, k, allowed, level)
    draws = [np.array(draw) for draw in combinations(range(n), k)]
    broken = sum(served_wrongly(differ, draw, tolerated) > allowed for draw in draws)
    assert broken <= level * len(draws) + 1e-9


@pytest.mark.slow
def test_a_batch_holds_over_fresh_draws_and_a_naive_rule_does_not():
    rng = np.random.default_rng(0)
    n, k, allowed, n_draws = 1500, 150, 150, 1000
    differ = rng.random(n) < np.arange(n) / n * 0.5
    tolerated = tolerated_disagreements(n, k, allowed, 0.1)
    draws = [np.random.default_rng(seed).choice(n, k, replace=False) for seed in range(n_draws)]
    broken = sum(served_wrongly(differ, draw, tolerated) > allowed for draw in draws)
    # The mutation: as many as the labelled share suggests, without a correction.
    naive = sum(served_wrongly(differ, draw, k // 10) > allowed for draw in draws)
    assert broken_at_most(broken, n_draws, 0.1) and broken > 0.05 * n_draws
    assert not broken_at_most(naive, n_draws, 0.1)


def test_words_about_large_batches_are_quick():
    """A share of the answers of a batch of 30,000 rows took minutes."""
    start = time.process_time()
    for share in (0.0, 0.01, 0.019):
        assert 100 < labels_needed(30_000, 600, 0.05, share) < 30_000
    assert smallest_allowed(30_000, 15_000, 8_000, 0.05) > 8_000
    # The labelled answers are used: nearly all of them are enough for any share.
    assert 28_000 < labels_needed(30_000, 600, 0.05, 0.5) < 30_000
    assert time.process_time() - start < 5
