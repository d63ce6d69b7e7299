"""Bounds of means: the numpy twin, properties, and validity over fresh draws."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skroute.guarantees import (
    _kernels,
    confidence_sequence,
    mean_lower_bound,
    mean_p_value,
    mean_upper_bound,
    rows_needed,
)
from skroute.guarantees._means import (
    AIM,
    CAP,
    METHODS,
    PRIOR_VARIANCE,
    log_capital_of_all,
    place_in_the_round,
    share_upper_bound,
)
from tests.guarantees import reference

shares = st.floats(0, 1)
samples = st.lists(shares, min_size=1, max_size=60)


def broken_at_most(broken, n_draws, level):
    """Whether a count of broken promises is one that the level allows: upper 99 % limit."""
    return broken <= stats.binom.ppf(0.99, n_draws, level)


@pytest.mark.parametrize("compiled", [True, False])
@given(values=samples, mean=st.floats(0.001, 0.999), extra=st.integers(0, 40), finite=st.booleans())
@settings(deadline=None, max_examples=60)
def test_capital_is_that_of_the_twin(compiled, values, mean, extra, finite):
    kernel = _kernels.log_capital if compiled else _kernels.log_capital.py_func
    arguments = (np.array(values), mean, (len(values) + extra) * finite, CAP, PRIOR_VARIANCE, AIM)
    np.testing.assert_allclose(kernel(*arguments), reference.log_capital(*arguments), atol=1e-8)


@pytest.mark.parametrize("compiled", [True, False])
@given(values=samples)
@settings(deadline=None, max_examples=30)
def test_running_bounds_are_those_of_the_twin(compiled, values):
    kernel = _kernels.running_bounds if compiled else _kernels.running_bounds.py_func
    grid, values = np.linspace(0, 1, 51), np.array(values)
    lower, upper = np.empty_like(values), np.empty_like(values)
    kernel(values, grid, np.log(40), CAP, PRIOR_VARIANCE, lower, upper)
    expected = reference.running_bounds(values, grid, np.log(40), CAP, PRIOR_VARIANCE)
    np.testing.assert_array_equal((lower, upper), expected)


def drawn(data, method):
    """Values that suit a method, and the size of a population."""
    kind = st.sampled_from([0.0, 1.0]) if method == "binomial" else shares
    values = data.draw(st.lists(kind, min_size=2, max_size=60))
    finite = method not in ("hoeffding_bentkus", "exchangeable") and data.draw(st.booleans())
    return values, len(values) + data.draw(st.integers(0, 50)) if finite else None


SMOOTH = [method for method in METHODS if method != "trinomial"]


@pytest.mark.parametrize("method", SMOOTH)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_bounds_are_in_range_monotone_and_mirrored(method, data):
    values, n_population = drawn(data, method)
    options = {"method": method, "n_population": n_population}
    low, high = data.draw(st.sampled_from([(0, 1), (-1, 1), (5, 5.5)]))
    scaled = low + (high - low) * np.array(values)
    less, more = sorted(data.draw(st.tuples(st.floats(0.5, 0.999), st.floats(0.5, 0.999))))
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
    mirrored = mean_lower_bound(-scaled, bounds=(-high, -low), confidence=less, **options)
    np.testing.assert_allclose(mirrored, -bound, atol=1e-6)
    # The bound is where the test begins to refuse.
    if bound < high:
        above = bound + 1e-8 * (high - low)
        assert mean_p_value(scaled, above, bounds=(low, high), **options) <= 1 - less + 1e-9


@pytest.mark.parametrize("method", SMOOTH)
@given(data=st.data(), limits=st.tuples(shares, shares))
@settings(deadline=None, max_examples=60)
def test_p_values_fall_with_the_limit(method, data, limits):
    values, n_population = drawn(data, method)
    lower, higher = (
        mean_p_value(values, limit, method=method, n_population=n_population)
        for limit in sorted(limits)
    )
    assert 0 <= higher <= lower + 1e-12 <= 1 + 1e-12


@pytest.mark.parametrize("method", ["binomial", "hoeffding_bentkus", "normal"])
@given(data=st.data(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_order_of_rows_matters_to_bets_alone(method, data, seed):
    values, _ = drawn(data, method)
    shuffled = np.random.default_rng(seed).permutation(values)
    expected = mean_upper_bound(values, method=method)
    np.testing.assert_allclose(mean_upper_bound(shuffled, method=method), expected, rtol=1e-9)


def test_exact_methods_are_those_of_scipy():
    hits = np.array([1.0] * 7 + [0.0] * 93)
    exact = stats.binomtest(7, 100, alternative="less").proportion_ci(0.9, "exact").high
    np.testing.assert_allclose(
        mean_upper_bound(hits, method="binomial", confidence=0.9), exact, rtol=1e-9
    )
    # Without replacement: the largest number of marked rows that 7 of 100 do not refuse.
    marked = [m for m in range(301) if stats.hypergeom.cdf(7, 300, m, 100) > 0.1][-1]
    bound = mean_upper_bound(hits, method="binomial", confidence=0.9, n_population=300)
    np.testing.assert_allclose(bound, marked / 300, atol=1e-9)


def test_a_population_that_is_known_has_no_doubt():
    values = np.random.default_rng(0).choice([0.0, 1.0], 200)
    for method in ("betting", "binomial", "normal"):
        options = {"method": method, "n_population": 200}
        np.testing.assert_allclose(mean_upper_bound(values, **options), values.mean(), atol=1e-9)
        np.testing.assert_allclose(mean_lower_bound(values, **options), values.mean(), atol=1e-9)


LAWS = {
    "rare hits": (lambda rng, n: (rng.random(n) < 0.03) * 1.0, 0.03),
    "signed": (lambda rng, n: rng.choice([0.0, 0.5, 1.0], p=[0.03, 0.92, 0.05], size=n), 0.51),
    "skewed": (lambda rng, n: rng.beta(0.1, 0.9, n), 0.1),
}


@given(values=samples)
@settings(deadline=None, max_examples=100)
def test_places_in_the_round_are_at_most_u_so_often(values):
    """Of all rows to begin with; the shares of places, counted one by one."""
    n = len(values)
    turned = [np.roll(values, k) for k in range(n)]
    found = np.array([place_in_the_round(one) for one in turned])
    for share in found:
        assert (found <= share).mean() <= share + 1e-12
    behind = [sum(values[:k]) - k * np.mean(values) for k in range(1, n)]
    at_most = round(n * found[0]) - 1
    assert sum(x <= -1e-9 for x in behind) <= at_most <= sum(x <= 1e-9 for x in behind)
    # What the bets have won is the same wherever one begins.
    capital = [log_capital_of_all(one, 0.4) for one in turned]
    np.testing.assert_allclose(capital, capital[0], atol=1e-9)


@given(values=samples, limit=st.floats(0.001, 0.999))
@settings(deadline=None, max_examples=100)
def test_capital_of_all_is_that_of_the_formula(values, limit):
    bets = [CAP / 2**j / (1 - limit) for j in range(7)]
    capital = [np.prod([1 + bet * (limit - x) for x in values]) for bet in bets]
    expected = 0.8 * capital[0] + 0.2 * np.mean(capital[1:])
    np.testing.assert_allclose(
        log_capital_of_all(np.array(values), limit), np.log(expected), atol=1e-9
    )


def rare_and_high(rng, n):
    """About two rows are at the top, the others a little below the mean, 1 / 2 + 2 / n ** 2."""
    return np.where(rng.random(n) < 2 / n, 1.0, np.clip(rng.normal(0.5 - 1 / n, 0.05, n), 0, 1))


@pytest.mark.parametrize("rare", [True, False])
@pytest.mark.parametrize("n", [12, 100])
def test_exchangeable_bounds_hold_over_fresh_draws(rare, n):
    """At the limit. Rows in their own order, or a place that is smaller, are seen to fail."""
    rng = np.random.default_rng(5)
    n_draws, level, method = 3000, 0.1, "exchangeable"
    limit = 0.5 + 2 / n**2 * rare
    broken = below = of_sorted = of_smaller = 0
    for _ in range(n_draws):
        values = rare_and_high(rng, n) if rare else np.clip(rng.normal(0.5, 0.05, n), 0, 1)
        p = mean_p_value(values, limit, method=method)
        broken += p <= level
        below += mean_p_value(1 - values, 1 - limit, method=method) <= level
        of_smaller += p * place_in_the_round(values) <= level if p < 1 else 0
        of_sorted += mean_p_value(np.sort(values)[::-1], limit, method=method) <= level
    assert broken_at_most(broken, n_draws, level) and broken > 0.02 * n_draws
    assert broken_at_most(below, n_draws, level)
    if not rare:
        assert not broken_at_most(of_smaller, n_draws, level)
        assert not broken_at_most(of_sorted, n_draws, level)


@given(n=st.integers(1, 30), method=st.sampled_from(["exchangeable", "betting", "binomial"]))
@settings(deadline=None, max_examples=20)
def test_a_mean_at_the_end_of_the_range_is_refused_by_any_other_value(n, method):
    values = np.ones(n)
    assert mean_p_value(values, 1.0, method=method) == 1
    values[n // 2] = 0.0
    assert mean_p_value(values, 1.0, method=method) == 0


@pytest.mark.parametrize("n", [1, 7, 60])
def test_the_bound_of_a_share_is_that_of_clopper_and_pearson(n):
    for hits in range(n + 1):
        expected = stats.binomtest(hits, n, alternative="less").proportion_ci(0.9, "exact").high
        np.testing.assert_allclose(share_upper_bound(hits, n, confidence=0.9), expected)


def test_exchangeable_rows_refuse_more_than_bets_where_little_varies():
    """Signed losses of a hundred rows, true mean .02, limit .05; and never below their mean."""
    rng, refused = np.random.default_rng(6), {"betting": 0, "exchangeable": 0}
    for _ in range(500):
        values = rng.normal(0.02, 0.1, 100)
        for method in refused:
            p = mean_p_value(values, 0.05, bounds=(-1, 1), method=method)
            refused[method] += p <= 0.1
        assert mean_p_value(values, values.mean(), bounds=(-1, 1), method="exchangeable") == 1
    assert refused["exchangeable"] > 1.2 * refused["betting"] > 100


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [30, 300])
def test_betting_bounds_hold_over_fresh_draws(law, n):
    """800 draws each; the bound without its correction, the plain mean, is seen to fail."""
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


def test_betting_bounds_hold_without_replacement():
    """And bets that take the rows for independent ones of a mean that they know are worse."""
    rng = np.random.default_rng(2)
    population = (rng.random(400) < 0.2) * 1.0
    mean, n_draws, level = population.mean(), 800, 0.1
    broken = tighter = 0
    for _ in range(n_draws):
        values = rng.choice(population, 200, replace=False)
        finite = mean_p_value(values, mean, n_population=400)
        broken += finite <= level
        tighter += mean_p_value(values, mean + 0.06, n_population=400) < mean_p_value(
            values, mean + 0.06
        )
    assert broken_at_most(broken, n_draws, level)
    assert tighter > 0.9 * n_draws


def test_normal_bound_is_seen_to_fail_where_it_has_no_right():
    rng = np.random.default_rng(3)
    broken = {"normal": 0, "betting": 0, "hoeffding_bentkus": 0, "binomial": 0}
    for _ in range(1000):
        values = (rng.random(40) < 0.03) * 1.0
        for method in broken:
            broken[method] += mean_p_value(values, 0.03, method=method) <= 0.05
    assert not broken_at_most(broken.pop("normal"), 1000, 0.05)
    assert all(broken_at_most(count, 1000, 0.05) for count in broken.values())


def test_sequences_hold_at_all_times():
    """A fixed-time bound that is looked at after every row, the mutation, is seen to fail."""
    rng = np.random.default_rng(4)
    n_draws, n = 400, 400
    broken = peeked = 0
    for _ in range(n_draws):
        values = (rng.random(n) < 0.3) * 1.0
        lower, upper = confidence_sequence(values, confidence=0.9, resolution=500)
        assert (np.diff(lower) >= 0).all() and (np.diff(upper) <= 0).all()
        broken += (lower > 0.3).any() or (upper < 0.3).any()
        hits, times = np.cumsum(values), np.arange(1, n + 1)
        peeked += (stats.binom.cdf(hits, times, 0.3) <= 0.05).any()
        peeked += (stats.binom.sf(hits - 1, times, 0.3) <= 0.05).any()
    assert broken_at_most(broken, n_draws, 0.1)
    assert not broken_at_most(peeked, n_draws, 0.1)


@given(values=samples, low=st.floats(-5, 5), width=st.floats(0.1, 5))
@settings(deadline=None, max_examples=30)
def test_sequences_do_not_know_the_unit(values, low, width):
    plain = confidence_sequence(np.round(values, 3), resolution=100)
    scaled = confidence_sequence(
        low + width * np.round(values, 3), bounds=(low, low + width), resolution=100
    )
    np.testing.assert_allclose(np.array(scaled), low + width * np.array(plain), atol=0.011 * width)


@pytest.mark.parametrize("std, mean, limit", [(0.2, 0.0, 0.03), (0.3, 0.01, 0.1), (0.05, 0, 0.01)])
def test_rows_needed_are_about_enough(std, mean, limit):
    n = int(rows_needed(limit, mean=mean, std=std, power=0.8))
    rng = np.random.default_rng(5)
    square = std**2 + mean**2
    p = [(square - mean) / 2, 1 - square, (square + mean) / 2]
    enough = {
        size: np.mean(
            [
                mean_p_value(rng.choice([-1.0, 0, 1], p=p, size=size), limit, bounds=(-1, 1))
                <= 0.05
                for _ in range(200)
            ]
        )
        for size in (n // 3, int(1.3 * n))
    }
    assert enough[n // 3] < 0.6 and enough[int(1.3 * n)] > 0.75, (n, enough)


@given(
    std=st.floats(0, 0.5), mean=st.floats(-0.1, 0.05), limits=st.tuples(*[st.floats(0.06, 1)] * 2)
)
@settings(deadline=None, max_examples=40)
def test_rows_needed_fall_with_the_limit_and_rise_with_the_spread(std, mean, limits):
    tight, loose = sorted(limits)
    assert rows_needed(tight, mean=mean, std=std) >= rows_needed(loose, mean=mean, std=std) >= 1
    assert rows_needed(tight, mean=mean, std=std + 0.1) >= rows_needed(tight, mean=mean, std=std)


@given(gap=st.floats(1e-7, 1e-3), std=st.floats(0.05, 0.6), mean=st.floats(-0.1, 0.1))
@settings(deadline=None, max_examples=40)
def test_a_mean_just_below_the_limit_needs_many_rows_and_not_infinitely_many(gap, std, mean):
    """About the two-sided rule of a normal law: 2 log(1 / level) (std / gap) ** 2 at half power."""
    found = rows_needed(mean + gap, mean=mean, std=std, power=0.5)
    assert 0.5 < found / (2 * np.log(20) * (std / gap) ** 2) < 2 or std < 30 * gap
    assert np.isfinite(found)
    assert rows_needed(mean, mean=mean, std=std) == np.inf


def test_rows_needed_has_the_floor_of_no_loss_at_all():
    """With losses in [0, 1] that are all 0, (1 - limit)^n <= 0.05: the smallest n there is."""
    n = rows_needed(0.02, std=0.0, bounds=(0, 1))
    assert np.log(0.05) / np.log(0.98) <= n <= np.log(0.05) / np.log(0.98) + 4
    enough, few = np.zeros(int(n) + 3), np.zeros(int(n) - 9)
    assert mean_p_value(enough, 0.02) <= 0.05 < mean_p_value(few, 0.02)


def test_rows_needed_are_for_values_within_the_bounds():
    """A mean near the upper end, where a standard deviation more would leave the range."""
    with np.errstate(invalid="raise"):
        n = rows_needed(0.95, mean=0.9, std=0.25, bounds=(0, 1))
    assert 20 < n < 2000


@pytest.mark.parametrize(
    "values, options, message",
    [
        ([0.2, 1.2], {}, r"values must lie in bounds=(0.0, 1.0), got 0.2"),
        ([0.2, np.nan], {}, "values must be finite"),
        ([], {}, "at least one"),
        ([[0.2]], {}, "of shape (n_rows,)"),
        ([0.2], {"bounds": (1, 0)}, "bounds must be two finite numbers"),
        ([0.2], {"bounds": (0, np.inf)}, "bounds must be two finite numbers"),
        ([0.2], {"method": "binomial"}, "one of the two ends of bounds"),
        ([0.2, 0.3], {"n_population": 1}, "smaller than the number of values"),
        ([0.2], {"method": "hoeffding_bentkus", "n_population": 5}, "independent rows"),
        ([0.5], {"method": "trinomial", "n_population": 5}, "independent rows"),
        ([0.2], {"method": "trinomial"}, "one of the two ends of bounds, or their middle"),
        ([0.2], {"confidence": 1}, "confidence"),
        ([0.2], {"method": "magic"}, "method"),
    ],
)
def test_bad_input_is_refused_in_words(values, options, message):
    for bound in (mean_upper_bound, mean_lower_bound):
        with pytest.raises(ValueError, match=re.escape(message)):
            bound(values, **options)


@pytest.mark.parametrize(
    "values", [[0.5 + 0.5j, 0.2], ["0.5", "0.2"], [None, 0.2], [[0.5], [1, 2]]]
)
@pytest.mark.parametrize("function", [mean_upper_bound, mean_lower_bound, confidence_sequence])
def test_what_is_no_real_number_is_refused_by_name(function, values):
    """numpy would drop an imaginary part with a warning, and read numbers in text."""
    with pytest.raises(ValueError, match="values must be (real|finite)"):
        function(values)


def test_a_masked_value_is_not_used():
    masked = np.ma.masked_array([0.1, 0.9], mask=[False, True])
    with pytest.raises(ValueError, match="values must"):
        mean_upper_bound(masked)


@pytest.mark.parametrize("bounds", [(-1e308, 1e308), (0, 10**400), {0: 1, 1: 2}, (0, 1j), "01"])
def test_bounds_without_a_width_are_refused(bounds):
    with pytest.raises((ValueError, TypeError), match="bounds"):
        mean_upper_bound([0.5, 0.5], bounds=bounds)


def test_no_limit_is_no_promise():
    with pytest.raises(ValueError, match="limit must be a number"):
        mean_p_value([0.5, 0.5], np.nan)
    with pytest.raises(ValueError, match="limit must be a number"):
        rows_needed(np.nan, std=0.1)
