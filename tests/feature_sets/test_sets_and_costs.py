"""Functions of feature sets: undominated sets, greedy sequences, any-time walks, costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import FunctionTransformer

from skroute.feature_sets import PolyDomSelector
from skroute.feature_sets._base import anytime_walk
from skroute.feature_sets._costs import given_costs, measured_costs
from skroute.feature_sets._extractors import ItemExtractors
from skroute.feature_sets._greedy import followed_sequences, greedy_sequence
from skroute.feature_sets._lattice import indicator, members, subset_max
from skroute.feature_sets._poly_dom import best_affordable, undominated

seeds = st.integers(0, 2**32 - 1)


def drawn_curves(rng):
    """Costs of sets as polynomials; small whole numbers tie, touch and cross in one point."""
    n, degree = int(rng.integers(1, 30)), int(rng.integers(0, 5))
    if rng.integers(2):
        return rng.integers(0, 4, (n, degree + 1)) * 1.0, rng.integers(0, 6, n) / 8
    return rng.uniform(size=(n, degree + 1)) * rng.uniform(
        size=(n, 1)
    ) ** 3, rng.uniform(size=n)


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_what_is_chosen_against_looking_at_every_set(seed):
    rng = np.random.default_rng(seed)
    coef, quality = drawn_curves(rng)
    kept = undominated(quality, coef)
    sizes = rng.integers(0, 12, 200).astype(float)
    cost = sizes[:, None] ** np.arange(coef.shape[1]) @ coef.T
    # Budgets equal to a cost, just around one, and anywhere; each pays for something.
    budget = cost[np.arange(200), rng.integers(len(coef), size=200)] * rng.choice(
        [1, 1.02, 0.98], 200
    )
    budget = np.maximum(budget, cost.min(axis=1))
    found = kept[best_affordable(cost[:, kept], quality[kept], budget)]
    for i, chosen in enumerate(found):
        fits = cost[i] <= budget[i] * (1 + 1e-12)
        assert fits[chosen]
        assert quality[chosen] == quality[fits].max()
        assert cost[i, chosen] == cost[i][fits & (quality == quality[chosen])].min()


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_what_is_left_out_is_never_missed(seed):
    """For each set left out one that is kept is as good, and as cheap at every size."""
    rng = np.random.default_rng(seed)
    coef, quality = drawn_curves(rng)
    kept = undominated(quality, coef)
    assert (np.diff(quality[kept]) >= 0).all()
    for row in range(len(coef)):
        beaten = (coef[kept] <= coef[row]).all(axis=1) & (quality[kept] >= quality[row])
        assert beaten.any()
        if row in kept:
            assert kept[beaten].tolist() == [row]


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.003, np.inf]))
def test_greedy_takes_the_largest_gain(seed, trade_off):
    rng = np.random.default_rng(seed)
    quality, cost = subset_max(rng.uniform(size=32)), rng.uniform(size=5) * 100
    asked = set()

    def evaluate(masks):
        asked.update(masks)
        return quality[masks]

    sequence = greedy_sequence(evaluate, quality[0], cost, trade_off)
    assert_array_equal(np.bitwise_count(sequence), range(6))
    for before, after in zip(sequence, sequence[1:]):
        (taken,) = members(before ^ after)
        gains = {
            j: -cost[j]
            if np.isinf(trade_off)
            else quality[before | 1 << j] - quality[before] - trade_off * cost[j]
            for j in range(5)
            if not before >> j & 1
        }
        assert gains[taken] == max(gains.values())
    assert len(asked) == (5 if np.isinf(trade_off) else 15)


def test_the_sequence_that_is_followed():
    """At the budget of a set on the skyline, its sequence; below the first, the first's."""
    sequences = np.array([[0, 1, 3], [0, 2, 3]])
    cost, quality = np.array([0.0, 1.0, 5.0, 6.0]), np.array([0.1, 0.6, 0.9, 0.95])
    least, sequence = followed_sequences(sequences, cost, quality)
    assert_array_equal(least, [0, 1, 5, 6])
    assert_array_equal(sequence, [0, 0, 1, 0])


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.2, 1.0, 3.0]))
def test_an_anytime_walk_uses_only_what_was_computed(seed, factor):
    rng = np.random.default_rng(seed)
    sets = indicator(np.append(0, rng.permutation(np.arange(1, 32))[:12]), 5)
    estimate, beside = (
        rng.uniform(size=5),
        np.where(sets.any(axis=1), rng.uniform(0, 0.5), 0.0),
    )
    budget, bought = rng.uniform(0, 3), []

    def compute(j):
        bought.append(j)
        return factor * estimate[j]

    goal, spent = anytime_walk(sets, estimate, beside, budget, compute)
    assert len(set(bought)) == len(bought) and set(np.flatnonzero(sets[goal])) <= set(
        bought
    )
    assert spent == pytest.approx(factor * estimate[bought].sum())
    if factor <= 1:
        assert spent + beside[goal] <= budget * (1 + 1e-9)
        planned = np.flatnonzero(sets @ estimate + beside <= budget)[-1]
        assert goal >= planned
    if factor == 1:
        assert goal == planned or len(bought) > sets[planned].sum() - 1


def test_polynomials_and_functions_cost_the_same():
    polynomials = given_costs([[1.0, 2.0], 3], ["a", "b"])
    functions = given_costs({"b": [3.0], "a": lambda n: 1 + 2 * n}, ["a", "b"])
    for costs in (polynomials, functions):
        assert_allclose(costs([0.0, 1.0, 5.0]), [[1, 3, 11], [3, 3, 3]])
        assert costs.largest_size > 1e10
    assert given_costs([3.0], ["b"]).largest_size == 0
    X, y = make_classification(60, 2, n_informative=2, n_redundant=0, random_state=0)
    sizes, budget = (
        np.array([0.0, 1.0, 5.0]).repeat(20),
        [0.0, 1.0, 3.0, 4.5, 20.0] * 12,
    )
    for prices in ([[1.0, 2.0], 3], {"x1": [3.0], "x0": lambda n: 1 + 2 * n}):
        model = PolyDomSelector(GaussianNB(), costs=prices, alpha=None, cv=2)
        model.fit(X, y, size=np.ones(60))
        used = model.candidates_[model.select(sizes, budget)]
        expected = used[:, 0] * (1 + 2 * sizes) + 3 * used[:, 1]
        assert_allclose(model.predict_cost(X, budget=budget, size=sizes), expected)
        assert model.candidates_[model.select(5.0, 14.0)].all()


def timed_with(monkeypatch, sizes, seconds, percentile=0.95):
    """Measured costs of one extractor that takes the seconds given, in the order measured."""
    now, left = [0.0], iter([0.0, *seconds])

    def transform(items):
        now[0] += next(left)
        return np.zeros((len(items), 1))

    monkeypatch.setattr("skroute.utils._timing._clock", lambda: now[0])
    extractors = ItemExtractors(["f"], [FunctionTransformer(transform)])
    return measured_costs(extractors, [None] * len(sizes), sizes, percentile)


SHAPES = {
    "linear": lambda n: 3e-5 + 2e-7 * n,
    "power": lambda n: 1e-5 + 1e-9 * n**1.5,
    "jump": lambda n: 1e-5 + np.where(n < 10_000, 5e-8, 2e-7) * n,
}


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from(sorted(SHAPES)))
@pytest.mark.filterwarnings("ignore:The cost of 'f' is")
def test_costs_of_small_items_are_right_beside_large_ones_that_are_noisy(seed, shape):
    """The noise of large items is no cost of small ones: one polynomial for all put it there."""
    rng = np.random.default_rng(seed)
    sizes = np.sort(
        np.append(rng.uniform(500, 6_000, 10), rng.uniform(500, 60_000, 90))
    )
    of_item = np.tile(sizes, 3)
    seconds = SHAPES[shape](of_item) * np.exp(
        np.abs(rng.normal(0, np.where(of_item > 20_000, 1.0, 0.1)))
    )
    with pytest.MonkeyPatch.context() as patch:
        costs, *_ = timed_with(patch, sizes, seconds)
    small = sizes[sizes < 6_000]
    ratio = costs(small)[0] / (SHAPES[shape](small) * np.exp(0.1 * 1.96))
    assert 0.8 < np.median(ratio) < 1.6
    assert ratio.max() < 4 and ratio.min() > 0.6


@pytest.mark.parametrize("percentile", [0.5, 0.9, 0.95])
def test_costs_cover_the_percentile(percentile, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = np.sort(rng.uniform(10, 1000, 100))

    def seconds(n):
        return (3e-4 + 2e-6 * n + 1e-8 * n**2) * rng.gamma(20, 1 / 20, len(n))

    costs, of_item, _ = timed_with(
        monkeypatch, sizes, seconds(np.tile(sizes, 3)), percentile
    )
    new = np.tile(of_item, 20)
    within = seconds(new) <= costs(new)[0]
    assert abs(within.mean() - percentile) < 0.05
    assert abs(within[new < 200].mean() - percentile) < 0.12


def test_costs_beyond_and_below_what_was_measured(monkeypatch):
    sizes = np.linspace(10, 1000, 50)
    costs, *_ = timed_with(monkeypatch, sizes, np.tile(1e-6 * sizes, 3))
    assert_allclose(costs([1.0, 2000.0])[0], [1e-5, 2e-3], rtol=1e-6)
    constant, *_ = timed_with(monkeypatch, np.zeros(4), np.full(12, 2.0))
    assert_allclose(constant([0.0, 7.0])[0], 2.0)
    assert constant.largest_size == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10_000).map(float), min_size=2, max_size=40))
def test_costs_between_the_sizes_measured_are_between_their_costs(sizes):
    """Where sizes have gaps too: no straight piece ends at a size that was not measured."""
    sizes = np.sort(sizes)
    with pytest.MonkeyPatch.context() as patch:
        costs, *_ = timed_with(patch, sizes, np.tile(5e-3 + 1e-6 * sizes, 3))
    asked = np.linspace(sizes[0], sizes[-1], 50)
    assert_allclose(costs(asked)[0], 5e-3 + 1e-6 * asked, rtol=1e-6)


def test_costs_far_from_the_measurements_are_named(monkeypatch):
    """Seven straight pieces cannot follow a step within one of them."""
    sizes = np.linspace(10, 1000, 100)
    seconds = np.tile(np.where(sizes < 80, 1e-6, 1e-2), 3)
    with pytest.warns(
        UserWarning, match="The cost of 'f' is .* times what was measured for size"
    ):
        timed_with(monkeypatch, sizes, seconds)
