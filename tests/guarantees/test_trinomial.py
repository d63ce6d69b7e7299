"""The trinomial test of signed losses: its level by summation, bounds, and power."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from skroute.guarantees import _trinomial as room
from skroute.guarantees import mean_lower_bound, mean_p_value, mean_upper_bound
from tests.guarantees.test_means import broken_at_most


def losses(n, lost, won):
    return np.r_[np.ones(lost), -np.ones(won), np.zeros(n - lost - won)]


def outcomes(n):
    """Return all pairs of numbers of lost and won rows."""
    return [(lost, won) for lost in range(n + 1) for won in range(n + 1 - lost)]


def level_of(n, limit, level, p_value):
    """Sum the largest probability of refusing a limit that is reached or exceeded."""
    refused = [
        (lost, won, n - lost - won)
        for lost, won in outcomes(n)
        if p_value(n, lost, won, limit) <= level
    ]
    counts = np.array(refused).reshape(-1, 3)
    worst = 0.0
    for above in (0.0, 0.03):
        for p_won in np.linspace(0, (1 - limit - above) / 2, 40):
            p = [p_won + limit + above, p_won, 1 - 2 * p_won - limit - above]
            worst = max(worst, stats.multinomial.pmf(counts, n, np.clip(p, 0, 1)).sum())
    return worst


@pytest.mark.parametrize("n", [7, 30])
@pytest.mark.parametrize("limit", [0.04, 0.15])
@pytest.mark.parametrize("level", [0.02, 0.1])
def test_the_level_is_kept_whatever_the_share_of_unequal_rows(n, limit, level):
    assert level_of(n, limit, level, room.trinomial_p_value) <= level


def test_the_normal_law_is_seen_to_fail_where_the_exact_one_holds():
    def normal(n, lost, won, limit):
        values = losses(n, lost, won)
        error = values.std(ddof=1) / np.sqrt(n)
        if error == 0:
            return values.mean() >= limit
        return stats.norm.cdf((values.mean() - limit) / error)

    assert level_of(30, 0.04, 0.02, normal) > 0.05


@given(
    n=st.integers(5, 200),
    shares=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)),
    limit=st.floats(0.005, 0.5),
)
@settings(deadline=None, max_examples=60)
def test_the_root_is_that_of_a_search(n, shares, limit):
    """The restricted estimate maximises the likelihood, found by a bounded search."""
    lost, won = (int(share * n) for share in shares)

    def minus_log(p_won):
        p = np.array([p_won + limit, p_won, 1 - 2 * p_won - limit])
        counts = np.array([lost, won, n - lost - won])
        with np.errstate(divide="ignore"):
            terms = counts * np.log(np.maximum(p, 1e-300))
            return -np.sum(np.where(counts > 0, terms, 0.0))

    largest = (1 - limit) / 2
    minimum = optimize.minimize_scalar(minus_log, bounds=(0, largest), method="bounded")
    held = min(minimum.fun, minus_log(0.0), minus_log(largest))
    counts = np.array([lost, won, n - lost - won])
    free = -np.sum(counts * np.log(np.maximum(counts / n, 1e-300)))
    root = float(room.signed_root(n, np.array(lost), np.array(won), limit))
    np.testing.assert_allclose(root**2 / 2, max(held - free, 0), atol=1e-4 * n)
    assert np.sign(root) in (0, np.sign((lost - won) / n - limit))


@given(n=st.integers(20, 400), shares=st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)))
@settings(deadline=None, max_examples=8)
def test_the_bound_is_where_the_test_begins_to_refuse(n, shares):
    lost, won = (int(share * n) for share in shares)
    values = losses(n, lost, won)
    options = {"bounds": (-1, 1), "method": "trinomial"}
    bound = mean_upper_bound(values, confidence=0.9, **options)
    wider = mean_upper_bound(values, confidence=0.99, **options)
    assert max(values.mean(), 0) <= bound <= wider + 2e-3
    for limit in np.r_[bound + np.array([1e-3, 0.01]), np.linspace(bound, 0.99, 4)[1:]]:
        assert limit >= 1 or mean_p_value(values, limit, **options) <= 0.1 * 1.05
    np.testing.assert_allclose(
        mean_lower_bound(-values, confidence=0.9, **options), -bound
    )
    scaled = mean_upper_bound(
        50 * values, bounds=(-50, 50), confidence=0.9, method="trinomial"
    )
    np.testing.assert_allclose(scaled, 50 * bound)


@given(
    n=st.integers(1, 800),
    shares=st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)),
    level=st.sampled_from([0.01, 0.05, 0.1]),
)
@settings(deadline=None, max_examples=14)
def test_all_limits_behind_the_bound_are_refused_and_not_all_before_it(
    n, shares, level
):
    lost, won = (int(share * n) for share in shares)
    bound = room.trinomial_upper_bound(n, lost, won, level)

    def refused(limits):
        return room.trinomial_p_values(n, lost, won, limits) <= level * (1 + 1e-7)

    if bound < 1:
        assert refused(np.linspace(bound, 1 - 1e-6, 40)).all()
    if bound > 0:
        near = min(0.02 * bound + 0.2 / n, 0.05) / 2
        assert not refused(np.linspace(max(bound - near, 0.0), bound, 41)[:-1]).all()


def test_a_grid_of_shares_is_fine_enough(monkeypatch):
    cases = [(495, 2, 2, 0.01), (990, 20, 25, 0.02), (60, 0, 9, 0.1), (100, 5, 30, 0.3)]
    # Few unequal rows, whose shares differ by powers of ten.
    cases += [(3, 0, 1, 1e-4), (59, 0, 1, 1e-8), (642, 0, 3, 1e-9), (964, 0, 5, 3e-5)]
    coarse = [room.trinomial_p_value.__wrapped__(*case) for case in cases]
    monkeypatch.setattr(room, "_N_GRID", 2000)
    fine = [room.trinomial_p_value.__wrapped__(*case) for case in cases]
    np.testing.assert_allclose(coarse, fine, rtol=2e-3)


@pytest.mark.parametrize("limit", [0.02, 0.1])
def test_p_values_are_hardly_above_the_largest_probability(limit):
    """By summation over all outcomes, at all shares of unequal rows."""
    n = 25
    lost, won = np.array(outcomes(n)).T
    roots = room.signed_root(n, lost, won, limit)
    p_won = np.r_[0, np.geomspace(1e-6, (1 - limit) / 2, 300)]
    p = np.column_stack([p_won + limit, p_won, np.maximum(1 - 2 * p_won - limit, 0)])
    chances = stats.multinomial.pmf(
        np.column_stack([lost, won, n - lost - won])[:, None], n, p
    )
    for a, b in [(0, 0), (0, 2), (0, 5), (1, 6), (3, 3), (2, 9), (0, 12)]:
        seen = room.signed_root(n, np.array(a), np.array(b), limit)
        largest = chances[roots <= seen + 1e-9].sum(axis=0).max()
        p_value = room.trinomial_p_value(n, a, b, limit)
        assert largest * (1 - 1e-4) <= p_value <= 1.005 * largest + 1.5e-5


def test_ends():
    sign = stats.binomtest(3, 15, alternative="less").pvalue
    np.testing.assert_allclose(room.trinomial_p_value(50, 3, 12, 0.0), sign)
    assert room.trinomial_p_value(50, 3, 12, -0.1) == 1.0
    assert room.trinomial_p_value(50, 10, 2, 0.1) == 1.0
    assert room.trinomial_p_value(50, 49, 0, 1.0) == 0.0
    assert room.trinomial_p_value(50, 50, 0, 1.0) == 1.0
    assert room.trinomial_upper_bound(3, 3, 0, 0.05) == 1.0
    assert 0 < room.trinomial_p_value(10**6, 3000, 3000, 0.001) < 1


@pytest.mark.slow
def test_it_holds_over_fresh_draws_and_needs_fewer_rows_than_betting():
    rng = np.random.default_rng(0)
    broken = exact = betting = 0
    for _ in range(400):
        values = rng.choice([-1.0, 0, 1], p=[0.05, 0.88, 0.07], size=300)
        broken += mean_p_value(values, 0.02, bounds=(-1, 1), method="trinomial") <= 0.1
        exact += mean_p_value(values, 0.07, bounds=(-1, 1), method="trinomial") <= 0.05
        betting += mean_p_value(values, 0.07, bounds=(-1, 1)) <= 0.05
    assert broken_at_most(broken, 400, 0.1) and broken > 15
    assert exact > 1.15 * betting


@pytest.mark.parametrize(
    ("counts", "level"),
    [((7, 2, 4), 0.3), ((12, 1, 3), 0.2), ((5, 2, 2), 0.2), ((11, 1, 4), 0.02)],
)
def test_the_bound_is_behind_every_step_up_of_the_p_value(counts, level):
    """With few rows the first refused limit is far before the last accepted one."""
    n, lost, won = counts
    bound = room.trinomial_upper_bound(n, lost, won, level)
    limits = np.linspace(0.0, 1 - 1e-6, 1000)
    refused = room.trinomial_p_values(n, lost, won, limits) <= level
    first_refused = limits[refused & (limits > (lost - won) / n)].min()
    assert refused[limits > bound].all()
    assert first_refused < bound - 0.02


def test_p_values_are_not_below_those_of_a_finer_grid(monkeypatch):
    """The largest probability may lie between the shares of the grid."""
    rng = np.random.default_rng(0)
    cases = []
    for _ in range(40):
        n = int(rng.integers(5, 400))
        lost, won = rng.binomial(n, rng.uniform(0.002, 0.2, 2)).tolist()
        limit = max((lost - won) / n, 0.0) + rng.uniform(0.001, 0.2)
        if lost + won <= n and limit < 1:
            cases.append((n, lost, won, np.array([limit])))
    p_values = [room._maximized_p_values(*case)[0] for case in cases]
    monkeypatch.setattr(room, "_N_GRID", 1500)
    monkeypatch.setattr(room, "_GRID_ROOM", 1.0)
    for p_value, case in zip(p_values, cases, strict=True):
        assert p_value >= room._maximized_p_values(*case)[0]
