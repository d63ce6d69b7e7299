"""Better choices are not estimated below cheaper ones where outcomes contradict."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from skroute.assignment import choose_at_price
from skroute.quality import QualityRegressor
from skroute.quality import _floors as floors
from skroute.quality._floors import (
    Floor,
    contradicted,
    floors_of_folds,
    laid_out,
    learn_floors,
    lift,
)
from skroute.quality._predict_kernels import lift_rows

COSTS = np.array([1.0, 3.0, 10.0])
ALL = [Floor(1, [0], np.inf)]


def rare_errors(seed, n=1500):
    """A false alarm costs 1, a missed positive 50: what tells choices apart is mostly alarms.

    The expensive choice misses less often; where it misses is nothing that rows tell.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    alarms = rng.random((n, 2)) < 1 / (1 + np.exp(-np.column_stack([X[:, 0] - 2, X[:, 0]])))
    misses = rng.random((n, 2)) < [0.03, 0.01]
    return X, -1.0 * alarms - 50.0 * misses


def unlimited(estimate, quality):
    """Mean quality of what is best in estimate, ties to the cheaper choice."""
    route = choose_at_price(estimate, COSTS[: quality.shape[1]], 0.0)
    return quality[np.arange(len(quality)), route].mean()


def test_routing_rare_expensive_errors_is_not_worse_than_the_best_choice():
    """Over fresh draws; without floors it is, by the cheap choice's misses."""
    floored, plain = np.empty(60), np.empty(60)
    for seed in range(60):
        X, Q = rare_errors(seed)
        new, later = rare_errors(100 + seed, 20_000)
        # The alarms alone, which is what estimates of so rare misses are.
        alarm = 1 / (1 + np.exp(-np.column_stack([X[:, 0] - 2, X[:, 0]])))
        estimate = -alarm - [1.0, 0.6]
        tests = np.array_split(np.arange(len(X)), 5)
        found, _ = floors_of_folds(estimate, Q, COSTS[:2], tests, 1e-5)
        alarm = 1 / (1 + np.exp(-np.column_stack([new[:, 0] - 2, new[:, 0]])))
        single = later[:, Q.mean(axis=0).argmax()].mean()
        plain[seed] = unlimited(-alarm - [1.0, 0.6], later) - single
        floored[seed] = unlimited(lift(-alarm - [1.0, 0.6], found, 1e-5), later) - single
    assert (plain < -0.1).all()
    assert (floored >= plain).all()
    assert floored.mean() > plain.mean() / 4


def half_wrong(rng, n):
    """Leads of the cheaper choice: true where they are large, the opposite where small."""
    estimated = rng.uniform(0, 1, n)
    expected = np.where(estimated < 0.4, -0.2, 0.5)
    quality = np.column_stack([0.5 + expected / 2, 0.5 - expected / 2])
    return np.column_stack([estimated, np.zeros(n)]), quality


def test_small_leads_are_contradicted_and_large_ones_are_kept():
    """Over fresh draws, with as much as can be gained of that; all or nothing gains less."""
    gains = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        estimate, p = half_wrong(rng, 1000)
        # On average the expensive choice is better, by what other rows say.
        rest = np.column_stack([np.zeros(3000), np.ones(3000)])
        estimate, p = np.concatenate([estimate, rest]), np.concatenate([p, rest])
        Q = (rng.random(p.shape) < p).astype(float)
        # Right or wrong: it is less than half of what the expensive choice leads by.
        few = lift(estimate.copy(), learn_floors(estimate, Q, COSTS[:2], 1e-6), 1e-6)
        assert (few != estimate).any(axis=1).mean() < 0.02
        (found,) = learn_floors(estimate, p + rng.normal(0, 0.5, p.shape), COSTS[:2], 1e-6)
        assert found[:2] == (1, [0])
        assert 0.3 < found.most < 0.5
        lifted = lift(estimate.copy(), [found], 1e-6)
        wholly = lift(estimate.copy(), ALL, 1e-6)
        gains.append([unlimited(e, p) for e in (estimate, wholly, lifted)])
    plain, wholly, some = np.mean(gains, axis=0)
    assert some > max(plain, wholly) + 0.015


def test_what_outcomes_confirm_is_left_alone():
    rng = np.random.default_rng(0)
    p = rng.random((2000, 2))
    Q = (rng.random((2000, 2)) < p + [0, 0.1]).astype(float)
    estimate = p + [0, 0.1]
    lifted = lift(estimate.copy(), learn_floors(estimate, Q, COSTS[:2], 1e-6), 1e-6)
    # Leads that are hardly any, at most.
    changed = (lifted != estimate).any(axis=1)
    assert changed.mean() < 0.05
    assert abs(unlimited(lifted, estimate) - unlimited(estimate, estimate)) < 0.002
    # Estimates of another row say nothing: the better choice is taken for all.
    assert learn_floors(rng.permutation(p), Q, COSTS[:2], 1e-6) == ALL


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 12), st.sampled_from([0.0, 0.4]))
def test_where_contradiction_ends(seed, n, n_values, worth):
    """Beside brute force over all ends, and the isotonic calibration of the lead."""
    rng = np.random.default_rng(seed)
    against = rng.integers(0, n_values, n) / 4.0
    lead = rng.normal(rng.normal(), 1, n).round(1)
    most = contradicted(against, lead, worth)

    def beyond(some, errors):
        return len(some) > 1 and some.mean() > errors * some.std(ddof=1) / len(some) ** 0.5

    sums = {
        end: lead[against <= end].sum()
        for end in np.unique(against)
        if beyond(lead[against <= end], 0.5) and lead[against <= end].mean() > worth
    }
    assert (most is None) == (not sums)
    if most is None:
        return
    best = max(sums, key=sums.get)
    rest = lead[against > best]
    if against.max() in sums and (len(rest) < 2 or beyond(rest, -1.0)):
        assert most == np.inf
        return
    np.testing.assert_array_equal(against <= most, against <= best)
    # Halfway to the next estimate: rounding decides nothing.
    assert most == pytest.approx((best + against[against > best].min()) / 2)
    if not worth and sums[best] >= max(lead[against <= end].sum() for end in against) - 1e-9:
        isotonic = IsotonicRegression(increasing=False).fit(against, lead).predict(against)
        assert (isotonic[against <= best] > -1e-9).all()
        assert (isotonic[against > best] < 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_floors_by_rows(seed, m):
    """One row after the other, in the order of the hull."""
    rng = np.random.default_rng(seed)
    costs = np.sort(rng.integers(1, 6, m)).astype(float)
    estimate, quality = rng.normal(size=(2, 40, m)).round(1)
    found = learn_floors(estimate, quality, costs, 1e-3)
    lifted = lift(estimate.copy(), found, 1e-3)
    for k, below, _ in found:
        assert below == np.flatnonzero(costs < costs[k]).tolist()
    assert (np.diff([costs[floor.choice] for floor in found]) > 0).all()
    for row, before in zip(lifted, estimate):
        expected = before.tolist()
        for k, below, most in found:
            best = max(expected[j] for j in below)
            if best - expected[k] <= most:
                expected[k] = max(expected[k], best + 1e-3)
        np.testing.assert_allclose(row, expected, atol=1e-12)
    assert (lifted >= estimate).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_rows_above_all_that_was_seen_give_way_together(seed, m):
    """What lifted choices lead by stays, but for rows that are all at the least outcome."""
    rng = np.random.default_rng(seed)
    estimate = rng.integers(0, 3, (40, m)) / 2.0
    found = [Floor(k, list(range(k)), float(rng.choice([0.6, np.inf]))) for k in range(1, m)]
    free = lift(estimate.copy(), found, 1e-3)
    low, high = np.zeros(m), np.append(np.full(m - 1, 0.5), 1.0)
    lifted = lift(estimate.copy(), found, 1e-3, (low, high))
    assert lifted.min() >= 0
    assert lifted.max() <= 1 + 1e-12
    for kernel in (lift_rows, lift_rows.py_func):
        compiled = estimate.copy()
        kernel(compiled, *laid_out(found, m), 1e-3, np.stack([low, high]))
        np.testing.assert_array_equal(compiled, lifted)
    inside = free.max(axis=1) <= 1
    np.testing.assert_array_equal(lifted[inside], free[inside])
    leads = free.max(axis=1, keepdims=True) - free
    given_way = lifted.max(axis=1, keepdims=True) - lifted
    at_least = lifted == 0
    np.testing.assert_allclose(given_way[~at_least], leads[~at_least], atol=1e-12)


def test_floors_of_a_fold_are_those_of_the_others():
    rng = np.random.default_rng(1)
    estimate, quality = rng.normal(size=(2, 60, 2))
    tests = np.array_split(np.arange(60), 3)
    _, before = floors_of_folds(estimate, quality, COSTS[:2], tests, 1e-3)
    changed = quality.copy()
    changed[tests[0]] *= -50
    _, after = floors_of_folds(estimate, changed, COSTS[:2], tests, 1e-3)
    np.testing.assert_array_equal(before[tests[0]], after[tests[0]])


@pytest.mark.parametrize("most", [0.2, np.inf])
def test_the_estimator_decides_by_its_floors(monkeypatch, most):
    """Its own rows, new rows and a copy of it."""
    X = np.random.default_rng(3).standard_normal((200, 3))
    Q = X[:, :2] + [0.0, 0.3]
    wanted = [Floor(1, [0], most)]
    plain = QualityRegressor(family=["trees"], cv=2).fit(X, Q)
    monkeypatch.setattr(floors, "learn_floors", lambda *args: wanted)
    router = QualityRegressor(family=["trees"], cv=2)
    estimate = router.cross_fit(X, Q, costs=COSTS[:2])
    new = np.random.default_rng(0).standard_normal((50, 3))
    step = router._ready[1][-1]
    for found in (estimate, router.predict(new), pickle.loads(pickle.dumps(router)).predict(new)):
        behind = found[:, 0] - found[:, 1]
        assert ((behind <= -step) | (behind > most)).all()
    before = plain.predict(new)
    assert (before[:, 1] < before[:, 0]).any()
    lifted = lift(before, wanted, step, (Q.min(axis=0), Q.max(axis=0)))
    np.testing.assert_array_equal(router.predict(new), lifted)


def test_kept_estimates_are_made_up_as_those_of_new_rows(monkeypatch):
    """By the floors of all rows; those that judge have the floors of the other folds."""
    X = np.random.default_rng(3).standard_normal((200, 3))
    Q = X[:, :2] + [0.0, 0.3]
    # Seen in all rows alone, and in none of the folds' others.
    monkeypatch.setattr(floors, "learn_floors", lambda e, *rest: ALL if len(e) == 200 else [])
    router = QualityRegressor(family=["trees"], cv=2)
    estimate, kept = router.cross_fit(X, Q, costs=COSTS[:2], return_kept=True)
    step = router._ready[1][-1]
    assert (estimate[:, 1] < estimate[:, 0]).any()
    assert (kept[:, 1] >= kept[:, 0] + step).all()
    np.testing.assert_array_equal(estimate, router.cross_fit(X, Q, costs=COSTS[:2]))
