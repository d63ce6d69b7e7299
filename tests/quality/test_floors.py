"""Better choices are not estimated below cheaper ones where outcomes contradict."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.assignment import choose_at_price
from skroute.quality import QualityRegressor
from skroute.quality import _floors as floors
from skroute.quality._floors import floors_of_folds, learn_floors, lift

COSTS = np.array([1.0, 3.0, 10.0])


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
    floored, plain = np.empty(12), np.empty(12)
    for seed in range(12):
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
    assert (floored == 0).sum() >= 9
    assert floored.mean() > plain.mean() / 4


def test_what_outcomes_confirm_is_left_alone():
    rng = np.random.default_rng(0)
    p = rng.random((2000, 2))
    Q = (rng.random((2000, 2)) < p + [0, 0.1]).astype(float)
    assert learn_floors(p + [0, 0.1], Q, COSTS[:2], 1e-6) is None
    # Estimates of another row say nothing: the better choice is taken for all.
    found = learn_floors(rng.permutation(p), Q, COSTS[:2], 1e-6)
    assert found.tolist() == [[False, False], [True, False]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_floors_by_rows(seed, m):
    """One row after the other; the best single choice of the rows of fit is kept affordable."""
    rng = np.random.default_rng(seed)
    costs = np.sort(rng.integers(1, 6, m)).astype(float)
    estimate, quality = rng.normal(size=(2, 40, m)).round(1)
    above = learn_floors(estimate, quality, costs, 1e-3)
    lifted = lift(estimate.copy(), above, 1e-3)
    if above is None:
        np.testing.assert_array_equal(lifted, estimate)
        return
    assert (costs[np.nonzero(above)[1]] < costs[np.nonzero(above)[0]]).all()
    for row, before in zip(lifted, estimate):
        expected = before.tolist()
        for k in sorted(range(m), key=lambda k: above[k].sum()):
            for below in np.flatnonzero(above[k]):
                expected[k] = max(expected[k], expected[below] + 1e-3)
        np.testing.assert_allclose(row, expected, atol=1e-12)
    assert (lifted >= estimate).all()


def test_floors_of_a_fold_are_those_of_the_others():
    rng = np.random.default_rng(1)
    estimate, quality = rng.normal(size=(2, 60, 2))
    tests = np.array_split(np.arange(60), 3)
    _, before = floors_of_folds(estimate, quality, COSTS[:2], tests, 1e-3)
    changed = quality.copy()
    changed[tests[0]] *= -50
    _, after = floors_of_folds(estimate, changed, COSTS[:2], tests, 1e-3)
    np.testing.assert_array_equal(before[tests[0]], after[tests[0]])


def test_the_estimator_decides_by_its_floors(monkeypatch):
    """Its own rows, new rows and a copy of it."""
    X = np.random.default_rng(3).standard_normal((200, 3))
    Q = X[:, :2] + [0.0, 0.3]
    wanted = np.array([[False, False], [True, False]])
    plain = QualityRegressor(family=["trees"], cv=2).fit(X, Q)
    monkeypatch.setattr(floors, "learn_floors", lambda *args: wanted)
    router = QualityRegressor(family=["trees"], cv=2)
    estimate = router.cross_fit(X, Q, costs=COSTS[:2])
    new = np.random.default_rng(0).standard_normal((50, 3))
    step = router._ready[1][-1]
    for found in (estimate, router.predict(new), pickle.loads(pickle.dumps(router)).predict(new)):
        assert (found[:, 1] >= found[:, 0] + step).all()
    before = plain.predict(new)
    assert (before[:, 1] < before[:, 0]).any()
    np.testing.assert_array_equal(router.predict(new), lift(before, wanted, step))


def test_kept_estimates_are_made_up_as_those_of_new_rows(monkeypatch):
    """By the floors of all rows; those that judge have the floors of the other folds."""
    X = np.random.default_rng(3).standard_normal((200, 3))
    Q = X[:, :2] + [0.0, 0.3]
    wanted = np.array([[False, False], [True, False]])
    # Seen in all rows alone, and in none of the folds' others.
    monkeypatch.setattr(floors, "learn_floors", lambda e, *rest: wanted if len(e) == 200 else None)
    router = QualityRegressor(family=["trees"], cv=2)
    estimate, kept = router.cross_fit(X, Q, costs=COSTS[:2], return_kept=True)
    step = router._ready[1][-1]
    assert (estimate[:, 1] < estimate[:, 0]).any()
    assert (kept[:, 1] >= kept[:, 0] + step).all()
    np.testing.assert_array_equal(estimate, router.cross_fit(X, Q, costs=COSTS[:2]))
