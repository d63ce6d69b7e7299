"""Bounds of means: formulas of the paper, properties, validity over fresh draws."""

import re
import time
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skroute.certified._monitor import Leaders
from skroute.guarantees import (
    _kernels,
    fixed_sequence_test,
    mean_lower_bound,
    mean_p_value,
    mean_upper_bound,
    rows_needed,
)
from skroute.guarantees._finite import (
    labels_needed,
    smallest_allowed,
    tolerated_disagreements,
)
from skroute.guarantees._means import (
    CAP,
    LOG_TARGET,
    PRIOR_VARIANCE,
    share_upper_bound,
)
from tests.guarantees import reference

shares = st.floats(0, 1)
samples = st.lists(shares, min_size=1, max_size=60)


def broken_at_most(broken, n_draws, level):
    """Return True if the level allows this count of broken promises (99 % limit)."""
    return broken <= stats.binom.ppf(0.99, n_draws, level)


@given(
    values=samples,
    mean=st.floats(0.001, 0.999),
    extra=st.integers(0, 40),
    finite=st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_capital_is_that_of_the_paper(values, mean, extra, finite):
    arguments = (
        np.array(values),
        mean,
        (len(values) + extra) * finite,
        CAP,
        PRIOR_VARIANCE,
        LOG_TARGET,
    )
    expected = reference.log_capital(*arguments)
    np.testing.assert_allclose(_kernels.log_capital(*arguments), expected, atol=1e-8)


@given(data=st.data(), method=st.sampled_from(["betting", "binomial"]))
@settings(deadline=None, max_examples=80)
def test_bounds_are_in_range_monotone_and_mirrored(data, method):
    kind = st.sampled_from([0.0, 1.0]) if method == "binomial" else shares
    values = data.draw(st.lists(kind, min_size=2, max_size=60))
    n_population = None
    if data.draw(st.booleans()):
        n_population = len(values) + data.draw(st.integers(0, 50))
    options = {"method": method, "n_population": n_population}
    low, high = data.draw(st.sampled_from([(0, 1), (-1, 1), (5, 5.5)]))
    scaled = low + (high - low) * np.array(values)
    confidences = st.tuples(st.floats(0.5, 0.999), st.floats(0.5, 0.999))
    less, more = sorted(data.draw(confidences))
    bound = mean_upper_bound(scaled, bounds=(low, high), confidence=less, **options)
    wider = mean_upper_bound(scaled, bounds=(low, high), confidence=more, **options)
    tol = 1e-9 * (high - low)
    assert low <= bound <= wider + 1e-12 <= high + 1e-12
    # The best moment of the bets counts, which may be before the last row.
    # Without replacement the sample may hold more than its share of what there is.
    assert method == "betting" or n_population or scaled.mean() - tol <= bound
    # The range does not matter, only where in it the values are.
    plain = mean_upper_bound(values, confidence=less, **options)
    np.testing.assert_allclose(bound, low + (high - low) * plain, atol=1e-6)
    mirrored = mean_lower_bound(
        -scaled, bounds=(-high, -low), confidence=less, **options
    )
    np.testing.assert_allclose(mirrored, -bound, atol=1e-6)
    # The bound is where the test begins to refuse.
    if bound < high:
        above = bound + 1e-8 * (high - low)
        p_value = mean_p_value(scaled, above, bounds=(low, high), **options)
        assert p_value <= 1 - less + 1e-9
    p_values = [
        mean_p_value(values, limit, **options) for limit in np.linspace(0, 1, 9)
    ]
    assert (np.diff(p_values) <= 1e-12).all() and 0 <= p_values[-1] <= p_values[0] <= 1


def test_exact_methods_are_those_of_scipy():
    options = {"method": "binomial", "confidence": 0.9}
    hits = np.array([1.0] * 7 + [0.0] * 93)
    # Without replacement: the largest number of marked rows that 7 of 100 do not
    # refuse.
    marked = [m for m in range(301) if stats.hypergeom.cdf(7, 300, m, 100) > 0.1][-1]
    bound = mean_upper_bound(hits, n_population=300, **options)
    np.testing.assert_allclose(bound, marked / 300, atol=1e-9)
    for n in (1, 7, 60):
        for hits in range(n + 1):
            expected = (
                stats.binomtest(hits, n, alternative="less")
                .proportion_ci(0.9, "exact")
                .high
            )
            np.testing.assert_allclose(
                share_upper_bound(hits, n, confidence=0.9), expected
            )
            values = np.roll(np.arange(n) < hits, n // 2) * 1.0
            np.testing.assert_allclose(
                mean_upper_bound(values, **options), expected, rtol=1e-9
            )


LAWS = {
    "rare hits": (lambda rng, n: (rng.random(n) < 0.03) * 1.0, 0.03),
    "signed": (
        lambda rng, n: rng.choice([0.0, 0.5, 1.0], p=[0.03, 0.92, 0.05], size=n),
        0.51,
    ),
    "skewed": (lambda rng, n: rng.beta(0.1, 0.9, n), 0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [30, 300])
def test_betting_bounds_hold_over_fresh_draws(law, n):
    """800 draws each. The plain mean, a bound without its correction, fails."""
    draw, mean = LAWS[law]
    n_draws, level = 800, 0.1
    rng = np.random.default_rng(1)
    above = below = plain = 0
    for _ in range(n_draws):
        values = draw(rng, n)
        above += mean_p_value(values, mean) <= level
        below += mean_p_value(1 - values, 1 - mean) <= level
        plain += values.mean() < mean
    assert broken_at_most(above, n_draws, level)
    assert broken_at_most(below, n_draws, level)
    assert not broken_at_most(plain, n_draws, level)


@pytest.mark.slow
def test_betting_bounds_hold_without_replacement():
    """Bets for independent rows are worse."""
    rng = np.random.default_rng(2)
    population = (rng.random(400) < 0.2) * 1.0
    mean, n_draws, level = population.mean(), 800, 0.1
    broken = tighter = 0
    for _ in range(n_draws):
        values = rng.choice(population, 200, replace=False)
        broken += mean_p_value(values, mean, n_population=400) <= level
        finite = mean_p_value(values, mean + 0.06, n_population=400)
        tighter += finite < mean_p_value(values, mean + 0.06)
    assert broken_at_most(broken, n_draws, level)
    assert tighter > 0.9 * n_draws


@pytest.mark.slow
def test_the_normal_law_is_seen_to_fail_where_the_bounds_hold():
    rng = np.random.default_rng(3)
    broken = {"normal": 0, "betting": 0, "binomial": 0}
    for _ in range(1000):
        values = (rng.random(40) < 0.03) * 1.0
        error = values.std(ddof=1) / np.sqrt(40)
        broken["normal"] += (
            not error or stats.norm.cdf((values.mean() - 0.03) / error) <= 0.05
        )
        for method in ("betting", "binomial"):
            broken[method] += mean_p_value(values, 0.03, method=method) <= 0.05
    assert not broken_at_most(broken.pop("normal"), 1000, 0.05)
    assert all(broken_at_most(count, 1000, 0.05) for count in broken.values())


@pytest.mark.slow
def test_sequences_hold_over_fresh_draws():
    """Twenty candidates of rising loss, two risks. Testing each alone fails."""
    rng = np.random.default_rng(0)
    limit, n_draws, level = 0.1, 300, 0.1
    # Many candidates just above the limit: where each is tested, one of them gets
    # through.
    rates = np.r_[np.linspace(0.02, 0.09, 5), np.full(15, 0.101)]
    broken = alone = 0
    for _ in range(n_draws):
        losses = (rng.random((150, 20, 2)) < rates[:, None]) * 1.0
        p_values = np.empty((20, 2))
        for k in range(20):
            for risk in range(2):
                p_values[k, risk] = mean_p_value(losses[:, k, risk], limit)
        certified = fixed_sequence_test(p_values.max(axis=1), confidence=1 - level)
        broken += certified[5:].any()
        alone += (p_values[5:, 0] <= level).any()
    assert broken_at_most(broken, n_draws, level)
    assert not broken_at_most(alone, n_draws, level)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 120),
    interval=st.integers(1, 40),
    bets=st.lists(st.floats(0.01, 0.9), min_size=1, max_size=4),
    cut=st.floats(0, 1),
)
@settings(deadline=None, max_examples=100)
def test_one_sum_for_each_bet_stands_for_all_bettors(seed, n, interval, bets, cut):
    """In two calls: the capital of all bettors, and the first row at a threshold."""
    values = np.random.default_rng(seed).exponential(1.5, n)
    bets = np.array(bets)
    log_capitals = np.full(len(bets), -np.inf)
    leaders = Leaders(
        growth=np.full(len(bets), -np.inf),
        since=np.zeros(len(bets), dtype=np.int64),
        total=np.zeros(len(bets)),
    )
    expected = reference.money(values, 1.0, bets, interval)
    threshold = np.log(np.median(expected)) + 1e-9
    first = _kernels.NO_ALARM
    n_first = int(cut * n)
    for start, some_values in ((0, values[:n_first]), (n_first, values[n_first:])):
        position = _kernels.restarted_bets(
            some_values,
            start,
            1.0,
            np.inf,
            bets,
            log_capitals,
            leaders,
            threshold,
            interval,
        )
        if first == _kernels.NO_ALARM and position != _kernels.NO_ALARM:
            first = start + position
    log_capital = np.logaddexp.reduce(log_capitals)
    np.testing.assert_allclose(log_capital, np.log(expected[-1]), atol=1e-9)
    is_reached = np.log(expected) >= threshold
    expected_first = int(np.argmax(is_reached)) if is_reached.any() else -1
    assert first == expected_first


def test_all_bettors_together_begin_with_less_than_one():
    k = np.arange(2, 10**7)
    shares = 1 / (k * np.log(k) ** 2) / 2.11
    # What is left of the sum is below the integral from there on.
    assert 0.9 < shares.sum() < shares.sum() + 1 / np.log(k[-1]) / 2.11 < 1


# Labels on a few rows of a batch: the hypergeometric test -----------------------------


def counted(n, k, allowed, level):
    """Compute `tolerated_disagreements` by counting draws of a batch just too bad."""

    def chance(d):
        marked = allowed + 1 + d
        ways = sum(comb(marked, i) * comb(n - marked, k - i) for i in range(d + 1))
        return ways / comb(n, k)

    tolerated = -1
    for d in range(k + 1):
        if allowed + 1 + d <= n and chance(d) > level:
            break
        tolerated = d
    return tolerated


@given(data=st.data(), level=st.sampled_from([0.0307, 0.1003, 0.2501, 0.4999]))
@settings(deadline=None, max_examples=150)
def test_tolerated_disagreements_are_those_of_counted_draws(data, level):
    """Neither more, which breaks the promise, nor fewer."""
    n = data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, n))
    allowed = data.draw(st.integers(0, n))
    expected = counted(n, k, allowed, level)
    assert tolerated_disagreements(n, k, allowed, level) == expected
    n_disagreements = data.draw(st.integers(0, k))
    accepted = [a for a in range(n + 1) if counted(n, k, a, level) >= n_disagreements]
    assert smallest_allowed(n, k, n_disagreements, level) == accepted[0]
    enough = [j for j in range(1, n + 1) if counted(n, j, allowed, level) >= 0]
    assert labels_needed(n, allowed, level) == enough[0]
    assert labels_needed(n, allowed, level, 0.2) >= enough[0]


def served_wrongly(differ, labelled, tolerated):
    """Count the unlabelled rows that differ, in the longest tolerated prefix."""
    is_seen_to_differ = np.zeros(len(differ), dtype=int)
    is_seen_to_differ[labelled] = differ[labelled]
    stop = 0
    if tolerated >= 0:
        stop = np.searchsorted(np.cumsum(is_seen_to_differ), tolerated, side="right")
    return int((differ[:stop] & ~np.isin(np.arange(stop), labelled)).sum())


@given(data=st.data(), level=st.sampled_from([0.1, 0.25, 0.5]))
@settings(deadline=None, max_examples=20)
def test_the_promise_holds_over_all_draws_of_labels_of_a_small_batch(data, level):
    n = data.draw(st.integers(4, 11))
    k = data.draw(st.integers(1, n - 1))
    allowed = data.draw(st.integers(0, n - 1))
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
    draws = [
        np.random.default_rng(seed).choice(n, k, replace=False)
        for seed in range(n_draws)
    ]
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "std, mean, limit", [(0.2, 0.0, 0.03), (0.3, 0.01, 0.1), (0.05, 0, 0.01)]
)
def test_rows_needed_are_about_enough(std, mean, limit):
    n = int(rows_needed(limit, mean=mean, std=std, power=0.8))
    rng = np.random.default_rng(5)
    square = std**2 + mean**2
    share_passed = {}
    p = [(square - mean) / 2, 1 - square, (square + mean) / 2]
    for size in (n // 3, int(1.3 * n)):
        draws = rng.choice([-1.0, 0, 1], p=p, size=(200, size))
        passed = [
            mean_p_value(values, limit, bounds=(-1, 1)) <= 0.05 for values in draws
        ]
        share_passed[size] = np.mean(passed)
    assert share_passed[n // 3] < 0.6, (n, share_passed)
    assert share_passed[int(1.3 * n)] > 0.75, (n, share_passed)


@given(gap=st.floats(1e-7, 1e-3), std=st.floats(0.05, 0.6), mean=st.floats(-0.1, 0.1))
@settings(deadline=None, max_examples=40)
def test_a_mean_just_below_the_limit_needs_many_rows_and_not_infinitely_many(
    gap, std, mean
):
    """By a normal law it is about 2 log(1 / level) (std / gap) ** 2 at half power."""
    needed = rows_needed(mean + gap, mean=mean, std=std, power=0.5)
    assert 0.5 < needed / (2 * np.log(20) * (std / gap) ** 2) < 2 or std < 30 * gap
    assert np.isfinite(needed)
    assert rows_needed(mean, mean=mean, std=std) == np.inf


def test_rows_needed_at_the_ends():
    """With losses in [0, 1] that are all 0: the smallest n of (1 - limit)^n <= 0.05."""
    n = rows_needed(0.02, std=0.0, bounds=(0, 1))
    assert np.log(0.05) / np.log(0.98) <= n <= np.log(0.05) / np.log(0.98) + 4
    enough = np.zeros(int(n) + 3)
    few = np.zeros(int(n) - 9)
    assert mean_p_value(enough, 0.02) <= 0.05 < mean_p_value(few, 0.02)
    # A mean near the upper end, where a standard deviation more would leave the range.
    with np.errstate(invalid="raise"):
        assert 20 < rows_needed(0.95, mean=0.9, std=0.25, bounds=(0, 1)) < 2000


@pytest.mark.parametrize(
    "bounds, mean", [((-1, 1), 0.1), ((0, 2), 0.5), ((-3, 1), -1.0)]
)
def test_no_values_spread_more_than_their_range_allows(bounds, mean):
    """The variance of values in [low, high] is at most (mean - low) (high - mean)."""
    most = np.sqrt((mean - bounds[0]) * (bounds[1] - mean))
    needed = rows_needed(mean + 0.1, mean=mean, std=most, bounds=bounds)
    assert rows_needed(mean + 0.1, mean=mean, std=5.0, bounds=bounds) == needed
    assert rows_needed(mean + 0.1, mean=mean, std=0.9 * most, bounds=bounds) < needed


@pytest.mark.parametrize(
    "values, options, message",
    [
        ([0.2, 1.2], {}, r"values must lie in bounds=(0.0, 1.0), got 0.2"),
        ([], {}, "at least one"),
        (["much", 0.2], {}, "values must be numbers"),
        (np.ma.masked_array([0.1, 0.9], mask=[False, True]), {}, "are masked"),
        ([0.2], {"bounds": (1, 0)}, "bounds must be two finite numbers"),
        ([0.2], {"bounds": (-1e308, 1e308)}, "bounds must be two finite numbers"),
        ([0.2], {"bounds": (0, 1, 2)}, "bounds must have shape"),
        ([0.2], {"method": "binomial"}, "one of the two ends of bounds"),
        ([0.2, 0.3], {"n_population": 1}, "smaller than the number of values"),
        ([0.5], {"method": "trinomial", "n_population": 5}, "independent rows"),
        (
            [0.2],
            {"method": "trinomial"},
            "one of the two ends of bounds, or their middle",
        ),
        ([0.2], {"confidence": 1}, "confidence"),
    ],
)
def test_bad_input_is_refused_in_words(values, options, message):
    for bound in (mean_upper_bound, mean_lower_bound):
        with pytest.raises(ValueError, match=re.escape(message)):
            bound(values, **options)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1e6)])
def test_values_may_miss_the_ends_of_their_range_by_rounding(bounds):
    size = bounds[1] - bounds[0]
    end = bounds[1]
    assert mean_upper_bound([end + 5e-10 * size] * 20, bounds=bounds) == end
    with pytest.raises(ValueError, match="values must lie in bounds"):
        mean_upper_bound([end + 1e-8 * size], bounds=bounds)


def test_bad_limits_and_p_values_are_refused():
    with pytest.raises(ValueError, match="limit must be a number"):
        mean_p_value([0.5, 0.5], np.nan)
    with pytest.raises(ValueError, match="limit must be a number"):
        rows_needed(np.nan, std=0.1)
    for p_values in ([1.5], [-0.1], [np.nan], [[[0.1]]]):
        with pytest.raises(ValueError, match="p_values must"):
            fixed_sequence_test(p_values)
