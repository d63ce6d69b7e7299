"""Greedy sequences, any-time walks and the fit of cost polynomials, as functions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skroute.datasets._poly_dom import make_feature_sets
from skroute.feature_sets._anytime import anytime_walk
from skroute.feature_sets._choices import greedy_choices, lattice_choices
from skroute.feature_sets._costs import FeatureCosts, check_feature_costs, fit_cost_polynomial
from skroute.feature_sets._index import evaluate_costs
from skroute.feature_sets._lattice import (
    Expansion,
    LatticeSearch,
    expand_all,
    members,
    popcount,
    set_coefficients,
    subset_max,
)
from skroute.feature_sets._sequences import default_trade_offs, greedy_sequence

NAMES = list("abcdefgh")


def random_problem(seed, k=5):
    rng = np.random.default_rng(seed)
    accuracy = subset_max(rng.uniform(size=1 << k))
    return rng, accuracy, rng.uniform(size=(k, 3)) * [100, 100, 1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("trade_off", [0.0, 0.003, np.inf])
def test_greedy_takes_the_largest_gain(seed, trade_off):
    _, accuracy, coef = random_problem(seed)
    cost = evaluate_costs(coef, 20.0)
    asked = set()

    def evaluate(masks):
        asked.update(masks)
        return accuracy[masks]

    sequence = greedy_sequence(evaluate, accuracy[0], cost, trade_off)
    assert_array_equal(popcount(sequence), range(6))
    for before, after in zip(sequence, sequence[1:]):
        (taken,) = members(before ^ after)
        gains = {
            j: -cost[j]
            if np.isinf(trade_off)
            else accuracy[before | 1 << j] - accuracy[before] - trade_off * cost[j]
            for j in range(5)
            if not before >> j & 1
        }
        assert gains[taken] == max(gains.values())
    assert len(asked) == (5 if np.isinf(trade_off) else 15)


def test_default_trade_offs_scale_with_cost():
    trade_offs = default_trade_offs(np.array([1.0, 3.0]))
    assert trade_offs[0] == 0.0
    assert_allclose(trade_offs[[1, -1]] * 4.0, [1e-3, 3.0])
    assert np.isfinite(default_trade_offs(np.zeros(2))).all()


@pytest.mark.parametrize("seed", range(10))
def test_greedy_retrieval_is_the_longest_affordable_prefix(seed):
    rng, accuracy, coef = random_problem(seed)
    costs = FeatureCosts(NAMES[:5], list(coef))
    choices = greedy_choices(
        lambda masks: accuracy[masks], accuracy[0], costs, 50.0, [0.0, 1e-4, 1e-2, np.inf]
    )
    index = choices.index
    size = rng.uniform(0, 200, 100)
    budget = rng.uniform(size=100) * costs(size).sum(axis=0)
    found = index.lookup(size, budget)
    reference = costs.of_sets(choices.masks)(np.array([50.0]))[:, 0]
    for n, b, position in zip(size, budget, found):
        # The sequence is that of the best set within the budget at the reference size.
        fits = reference <= b
        best = accuracy[choices.masks[fits]].max()
        followed = index.goals(b)
        if best > accuracy[0]:
            assert accuracy[choices.masks[followed]][fits[followed]].max() == best
        cost = costs.of_sets(choices.masks[followed])(np.array([n]))[:, 0]
        assert position == followed[np.flatnonzero(cost <= b)[-1]]


def test_greedy_with_nothing_but_the_empty_set_affordable():
    """At a small size, a budget that buys nothing at the median size still buys features."""
    accuracy = subset_max(np.array([0.1, 0.5, 0.6, 0.0]))
    costs = FeatureCosts(["a", "b"], [np.array([0.0, 1.0]), np.array([0.0, 2.0])])
    choices = greedy_choices(lambda m: accuracy[m], 0.1, costs, 100.0, [0.0, 1e-2])
    assert choices.masks[choices.index.lookup(1.0, 3.0)] == 3
    assert choices.masks[choices.index.lookup(1.0, 0.5)] == 0
    useless = greedy_choices(lambda m: np.full(len(m), 0.1), 0.1, costs, 100.0, [0.0])
    assert useless.masks[useless.index.lookup(1.0, 3.0)] == 3
    assert_array_equal(useless.masks[useless.index.skyline(1.0)], [0])


def test_greedy_loses_to_poly_dom_at_some_budget():
    """As published: Greedy gets stuck, Poly-Dom with alpha=0 is never below it."""
    behind = 0
    for seed in range(10):
        data = make_feature_sets(8, p_helpful=0.5, interaction=0.3, random_state=seed)
        costs = FeatureCosts(NAMES, list(data.coef))
        found = LatticeSearch(8, lambda m, a=data.accuracy: a[m], 0.0).run(0.0)
        poly = lattice_choices(found, costs)
        greedy = greedy_choices(
            lambda m, a=data.accuracy: a[m], 0.0, costs, 250.0, [0.0, 1e-6, 1e-5, 1e-4]
        )
        size = np.full(60, 400.0)
        budget = np.linspace(0, 1, 60) * costs(size[:1]).sum()
        ours = data.accuracy[poly.masks[poly.index.lookup(size, budget)]]
        theirs = data.accuracy[greedy.masks[greedy.index.lookup(size, budget)]]
        assert (ours >= theirs).all()
        behind += (theirs < ours - 0.05).any()
    assert behind >= 5


@pytest.mark.parametrize("seed", range(30))
def test_anytime_walk_with_true_estimates_starts_at_poly_dom(seed):
    rng, accuracy, coef = random_problem(seed, k=4)
    masks = np.argsort(accuracy, kind="stable")
    estimate = evaluate_costs(coef, rng.uniform(0, 100))
    budget = rng.uniform() * estimate.sum()
    position, spent = anytime_walk(masks, estimate, budget, lambda j: estimate[j])
    cost = evaluate_costs(set_coefficients(masks, np.column_stack([estimate])), 0.0)
    assert accuracy[masks[position]] >= accuracy[masks[cost <= budget]].max() - 1e-12
    assert spent <= budget + 1e-9


@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_anytime_walk_uses_only_what_was_computed(factor):
    rng = np.random.default_rng(0)
    accuracy = subset_max(rng.uniform(size=32))
    masks = np.argsort(accuracy, kind="stable")
    for _ in range(100):
        estimate = rng.uniform(1, 10, 5)
        budget = rng.uniform(0, 40)
        true, computed = factor * estimate * rng.uniform(0.8, 1.2, 5), []

        def compute(j, true=true, computed=computed):
            assert j not in computed
            computed.append(j)
            return true[j]

        position, spent = anytime_walk(masks, estimate, budget, compute)
        assert set(members(masks[position])) <= set(computed)
        assert spent == pytest.approx(true[computed].sum())
        # It never starts what it expects to overrun the budget.
        last = computed[-1] if computed else None
        if last is not None:
            assert spent - true[last] + estimate[last] <= budget + 1e-9


@pytest.mark.parametrize("percentile", [0.5, 0.9, 0.95])
def test_cost_fit_covers_the_percentile(percentile):
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 500, 600)
    seconds = (3e-4 + 2e-6 * size + 1e-8 * size**2) * rng.gamma(20, 1 / 20, 600)
    coef = fit_cost_polynomial(size, seconds, 2, percentile)
    assert (coef >= 0).all()
    below = seconds <= evaluate_costs(coef[None], size)[0]
    # At most degree + 1 points lie on the curve itself.
    assert abs(below.mean() - percentile) <= 4 / 600
    # Coverage holds for small and for large items, and on new measurements.
    assert abs(below[size < 100].mean() - percentile) < 0.1
    fresh = (3e-4 + 2e-6 * size + 1e-8 * size**2) * rng.gamma(20, 1 / 20, 600)
    assert abs((fresh <= evaluate_costs(coef[None], size)[0]).mean() - percentile) < 0.05


def test_cost_fit_recovers_a_polynomial():
    size = np.linspace(10, 1000, 50)
    truth = np.array([1e-3, 0.0, 5e-9])
    coef = fit_cost_polynomial(size, evaluate_costs(truth[None], size)[0], 2, 0.9)
    assert_allclose(
        evaluate_costs(coef[None], size)[0], evaluate_costs(truth[None], size)[0], rtol=1e-5
    )
    assert_allclose(fit_cost_polynomial(np.zeros(4), np.arange(1.0, 5.0), 0, 0.75), [3.0], atol=1.0)
    assert_array_equal(fit_cost_polynomial(size, np.zeros(50), 2, 0.9), np.zeros(3))


def test_costs_that_are_no_collection():
    with pytest.raises(ValueError, match='sequence with one cost .* or "time", got 3'):
        check_feature_costs(3, ["a"])


def test_set_costs_of_callables_and_polynomials_agree():
    coef = [np.array([1.0, 2.0]), np.array([3.0])]
    polynomial = FeatureCosts(["a", "b"], coef)
    called = FeatureCosts(["a", "b"], [lambda n: 1 + 2 * n, coef[1]])
    sizes = np.array([0.0, 1.0, 5.0])
    masks = np.arange(4)
    assert_allclose(polynomial.of_sets(masks)(sizes), called.of_sets(masks)(sizes))
    assert_allclose(called.of_sets(masks).chosen(np.array([3, 0, 1]), sizes), [4.0, 0.0, 11.0])
    assert polynomial.depends_on_size and called.depends_on_size
    assert not FeatureCosts(["b"], [coef[1]]).depends_on_size


@pytest.mark.parametrize("interaction", [0.0, 0.5, 1.0])
def test_generator(interaction):
    data = make_feature_sets(6, p_helpful=0.4, interaction=interaction, random_state=3)
    single = data.accuracy[1 << np.arange(6)]
    weights = interaction ** np.arange(6.0)
    for mask in range(1, 64):
        # Alone, a feature's accuracy is divided by all weights; undo that.
        top = np.sort(single[members(mask)])[::-1] * weights.sum()
        assert data.accuracy[mask] == pytest.approx(top @ weights[: len(top)] / weights.sum())
    assert data.accuracy[0] == 0.0
    assert (subset_max(data.accuracy) == data.accuracy).all()
    assert (data.coef >= 0).all() and (data.coef <= [100, 100, 1]).all()
    again = make_feature_sets(6, p_helpful=0.4, interaction=interaction, random_state=3)
    assert_array_equal(again.accuracy, data.accuracy)


def test_generator_shares_of_helpful_features():
    single = np.concatenate(
        [
            make_feature_sets(20, p_helpful=0.3, random_state=s).accuracy[1 << np.arange(20)]
            for s in range(4)
        ]
    )
    assert ((single >= 0.7) | (single <= 0.5)).all()
    assert 0.1 < (single >= 0.7).mean() < 0.5
    assert expand_all(2, lambda m: [0.1] * len(m), 0.0).masks.tolist() == [0, 1, 2, 3]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_tiny_sizes_are_refused_or_right(seed):
    """Costs that underflow would change places. Compared with exact arithmetic."""
    rng = np.random.default_rng(seed)
    n_features, degree = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    coef = np.where(
        rng.uniform(size=(n_features, degree + 1)) < 0.5,
        10.0 ** rng.uniform(-8, 8, (n_features, degree + 1)),
        0.0,
    )
    if seed % 3 == 0:
        coef *= 1e-290
    coef[~coef.any(axis=1), 0] = 1.0
    costs = FeatureCosts(list("abcd")[:n_features], list(coef))
    quality = np.sort(rng.uniform(size=1 << n_features))
    masks = np.arange(1 << n_features)
    choices = lattice_choices(Expansion(masks, quality, 0.0), costs)
    exact = [[Fraction(c) for c in row] for row in coef]
    sizes = np.append(10.0 ** rng.uniform(-322, 5, 30), [0.0, 5e-324])
    for size in sizes[(sizes == 0) | (sizes >= costs.smallest_size)]:
        of_feature = [sum(c * Fraction(size) ** k for k, c in enumerate(row)) for row in exact]
        of_set = [sum(of_feature[j] for j in members(mask)) for mask in masks]
        for budget in rng.choice(np.array([float(c) for c in of_set]), 3):
            found = choices.masks[choices.index.lookup(size, budget)]
            room = Fraction(1, 10**12)
            assert of_set[found] <= Fraction(budget) * (1 + room)
            affordable = [r for r in masks if of_set[r] <= Fraction(budget) * (1 - room)]
            assert quality[found] >= max(quality[affordable], default=0.0)
