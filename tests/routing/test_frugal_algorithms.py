"""The pure functions behind FrugalML and FrugalMCT, against brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skroute.assignment import assignment_path, choose_at_price
from skroute.metrics import sample_quality
from skroute.routing.from_answers._combining import (
    GRID,
    JudgedAnswers,
    combine,
    named_labels,
    search_combination,
    search_combinations,
    search_threshold,
)
from skroute.routing.from_answers._frugal_mct import addon_options, search_delta
from skroute.routing.from_answers._frugal_ml import (
    label_groups,
    label_options,
    label_rules,
    thresholds_between,
)
from skroute.routing.parts._estimates import answers_forest
from skroute.routing.parts._mixtures import best_mixture, best_or_cheaper
from skroute.routing.parts._policy import Policy

seeds = st.integers(0, 2**32 - 1)


def answers(seed, n=40, m=3, n_labels=4, multilabel=False):
    """Sparse scores, as of services that name few labels, and a target."""
    rng = np.random.default_rng(seed)
    scores = [
        rng.random((n, n_labels)) * (rng.random((n, n_labels)) < 0.6) for _ in range(m)
    ]
    target = (
        rng.random((n, n_labels)) < 0.4 if multilabel else rng.integers(0, n_labels, n)
    )
    return scores, target


@pytest.mark.parametrize("multilabel", [False, True])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_combination_is_the_best_of_the_grid(multilabel, seed):
    (base, addon, _), target = answers(seed, multilabel=multilabel)
    weight, theta, per_row = search_combination(base, addon, target, sample_quality)
    means = [
        sample_quality(
            target, named_labels(combine((base, addon), (w, 1 - w)), t)
        ).mean()
        for w, t in product(GRID, GRID if multilabel else [None])
    ]
    assert per_row.mean() == pytest.approx(max(means))
    chosen = named_labels(combine((base, addon), (weight, 1 - weight)), theta)
    assert_array_equal(per_row, sample_quality(target, chosen))


def test_combination_of_services_that_agree():
    scores = np.eye(3)
    weight, theta, per_row = search_combination(
        scores, scores, np.arange(3), sample_quality
    )
    assert (weight, theta) == (0.5, None)
    assert_array_equal(per_row, 1)
    # And of services that never do: no row is left that any weight answers alike.
    other = np.roll(scores, 1, axis=1)
    weight, _, per_row = search_combination(scores, other, np.arange(3), sample_quality)
    assert weight > 0.5
    assert_array_equal(per_row, 1)


@pytest.mark.parametrize("multilabel", [False, True])
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_larger_sets_are_no_worse_than_what_they_grew_from(multilabel, seed):
    scores, target = answers(seed, multilabel=multilabel)
    judged = JudgedAnswers(scores, None, target, sample_quality)
    combination_of = search_combinations(judged, 3)
    assert len(combination_of) == 7
    for members, (weights, theta, per_row) in combination_of.items():
        assert weights.sum() == pytest.approx(1)
        assert set(np.flatnonzero(weights)) <= members
        assert_array_equal(
            per_row,
            sample_quality(target, named_labels(combine(scores, weights), theta)),
        )
        if len(members) == 1:
            continue
        for member in members:
            smaller = combination_of[members - {member}]
            assert per_row.mean() >= smaller.row_quality.mean() - 1e-12
    assert len(search_combinations(judged, 2)) == 6


def test_threshold_zero_names_what_has_a_score():
    scores = np.array([[0.0, 0.2], [0.9, 0.0]])
    theta, per_row = search_threshold(scores, scores > 0, sample_quality)
    assert theta == 0
    assert_array_equal(per_row, 1)


def test_addon_options_offer_the_addon_alone():
    scores, target = answers(0, n=200)
    judged = JudgedAnswers(scores, None, target, sample_quality)
    options = addon_options(judged, 1, GRID, GRID)
    assert options[0].service == 1 and options[0].weight == 1
    for service in (0, 2):
        assert 0 in [option.weight for option in options if option.service == service]
    options = addon_options(judged, 1, [0.5], GRID)
    assert [option.service for option in options] == [1, 0, 2]
    assert [option.weight for option in options] == [1, 0.5, 0.5]


points = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12
)


@given(points, st.integers(0, 25))
@settings(max_examples=60, deadline=None)
def test_hull_mixture_is_the_best_mixture_of_two(pairs, budget):
    cost, value = np.array(pairs, dtype=float).T
    hull, positions = best_mixture(cost, value)
    assert_array_equal(hull.cost, cost[positions])
    assert (np.diff(hull.cost) > 0).all() and (np.diff(hull.quality) > 0).all()
    budget = max(budget, cost.min())
    best = -np.inf
    for i, j in product(range(len(cost)), repeat=2):
        shares = {0.0, 1.0}
        if cost[i] != cost[j]:
            shares.add((budget - cost[i]) / (cost[j] - cost[i]))
        for share in shares:
            mixed_cost = (1 - share) * cost[i] + share * cost[j]
            if 0 <= share <= 1 and mixed_cost <= budget + 1e-9:
                best = max(best, (1 - share) * value[i] + share * value[j])
    low, high, share = hull.share(budget)
    cost, value = hull
    assert (1 - share) * cost[low] + share * cost[high] <= budget + 1e-9
    assert (1 - share) * value[low] + share * value[high] == pytest.approx(best)
    assert hull.quality_at(budget) == pytest.approx(best)


def policy_of(estimate, quality, costs, deciding):
    """A policy of estimates that are out of sample as they stand."""
    n = len(estimate)
    sigma = np.zeros(len(costs))
    fold_of_row = np.zeros(n, dtype=int)
    table = (None, estimate, estimate, quality, costs, fold_of_row, sigma)
    return Policy(*table, deciding_cost=deciding)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_delta_is_from_the_papers_grid_and_keeps_the_budget(seed):
    rng = np.random.default_rng(seed)
    n = 200
    costs = np.array([1.0, 3.0])
    estimate = rng.random((n, 2))
    realised = (rng.random((n, 2)) < estimate).astype(float)
    policy = policy_of(estimate, realised, costs, 1.0)
    halves = np.array_split(np.random.default_rng(0).permutation(n), 2)
    allowed = []
    for delta in np.arange(10, -11, -1) * np.log(n) / n:
        route = np.empty(n, dtype=int)
        for learn, check in (halves, halves[::-1]):
            path = assignment_path(estimate[learn], costs)
            price = path.price(max((1 - delta) * 2.0, 1.0))
            route[check] = choose_at_price(estimate[check], costs, price)
        if 1 + costs[route].mean() <= 3 + 1e-9:
            allowed.append((realised[np.arange(n), route].mean(), delta))
    # Which of several that are as good is a matter of rounding.
    best = [delta for quality, delta in allowed if quality >= max(allowed)[0] - 1e-9]
    assert np.isclose(search_delta(policy, 3.0), best).any()
    assert search_delta(policy, np.inf) == 0
    assert search_delta(policy_of(estimate[:3], realised[:3], costs, 1.0), 3.0) == 0


def test_delta_is_the_largest_where_none_keeps_the_budget():
    # What one half learns buys for every row of the other.
    n = 100
    budget = 0.4
    costly, _ = np.array_split(np.random.default_rng(0).permutation(n), 2)
    estimate = np.column_stack([np.zeros(n), np.linspace(0.1, 0.2, n)])
    estimate[costly, 1] += 1.0
    delta = search_delta(
        policy_of(estimate, estimate, np.array([0.0, 1.0]), 0.0), budget
    )
    assert delta == 10 * np.log(n) / n


def test_thresholds_are_between_the_scores_as_far_as_rows_are_below():
    thresholds = thresholds_between(
        np.array([0.1, 0.5, 0.9]), np.array([0.1, 0.5, 0.9, np.inf])
    )
    np.testing.assert_allclose(
        thresholds, [-np.inf, 0.1 + 0.4 / 3, 0.5 + 0.4 * 2 / 3, np.inf]
    )


@given(seeds)
@settings(max_examples=15, deadline=None)
def test_label_options_are_what_they_say(seed):
    rng = np.random.default_rng(seed)
    n = 60
    costs = np.array([1.0, 2.0, 5.0])
    groups = rng.integers(0, 3, n)
    scores = rng.random(n).round(1)
    correct = (rng.random((n, 3)) < 0.5).astype(float)
    options = label_options(groups, scores, correct, costs, 1, 4, 5)
    assert options.quality.shape == (4, 1 + 2 * 5)
    assert options.share.sum() == pytest.approx(1) and options.share[3] == 0
    for group in np.flatnonzero(options.share):
        rows = groups == group
        for option, addon in enumerate(options.addons):
            keep = scores[rows] >= options.thresholds[group, option]
            accuracy = np.where(keep, correct[rows, 1], correct[rows, addon]).mean()
            cost = costs[1] + np.where(keep, 0, costs[addon]).mean()
            assert options.quality[group, option] == pytest.approx(accuracy)
            assert options.cost[group, option] == pytest.approx(cost)
    assert np.isneginf(options.thresholds[:, 0]).all()


@pytest.mark.slow
def test_thresholds_send_as_many_later_rows():
    """Over fresh draws: a row of fit that is a threshold does not stand for later rows."""
    sent = []
    n_draws = 400
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        # Uniform: a threshold is the share of later rows below it.
        scores = rng.random(60)
        right = (rng.random((60, 2)) < 0.5).astype(float)
        options = label_options(
            np.zeros(60, int), scores, right, np.array([0.0, 1.0]), 0, 1, 20
        )
        later = np.clip(options.thresholds[0, 1:-1], 0, 1)
        sent.append((later - options.cost[0, 1:-1]).mean())
    assert abs(np.mean(sent)) < 3 * np.std(sent) / np.sqrt(n_draws) + 2e-4


@pytest.mark.slow
def test_estimates_that_set_a_price_are_spread_as_those_of_later_rows():
    """Trees of few rows differ: an out-of-bag mean of 10 trees is spread wider than of 30."""
    ratio = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.random((1200, 3)).astype(np.float32)
        right = (rng.random(1200) < 0.4 + 0.4 * X[:, 0]).astype(float)
        forest = answers_forest(200, 200).fit(X[:200], right[:200])
        ratio.append(forest.oob_prediction_.std() / forest.predict(X[200:]).std())
    assert abs(np.mean(ratio) - 1) < 0.06


@given(seeds, st.floats(1.0, 6.0))
@settings(max_examples=15, deadline=None)
def test_label_policies_are_the_best_plans(seed, budget):
    """One option per label and the mixture of two plans: no single plan of any base beats it."""
    rng = np.random.default_rng(seed)
    n = 40
    costs = np.array([1.0, 3.0])
    correct = (rng.random((n, 2)) < 0.5).astype(float)
    groups = [rng.integers(0, 2, n) for _ in range(2)]
    options = [
        label_options(groups[base], rng.random(n), correct, costs, base, 2, 3)
        for base in range(2)
    ]
    policies = label_rules(options, [0, 1])
    mixed = np.interp(budget, policies.cost, policies.quality)
    for option in options:
        for plan in product(range(len(option.addons)), repeat=2):
            cost = sum(option.share[g] * option.cost[g, o] for g, o in enumerate(plan))
            if cost <= budget:
                accuracy = sum(
                    option.share[g] * option.quality[g, o] for g, o in enumerate(plan)
                )
                assert accuracy <= mixed + 1e-9


def test_rare_labels_share_a_group():
    labels = np.repeat([0, 1, 2], [40, 3, 30])
    assert_array_equal(label_groups(labels, 4, 30), [1, 0, 3, 0])


@pytest.mark.parametrize("lead, taken", [(0.1, 0), (0.001, 1)])
def test_a_cheaper_policy_is_taken_within_the_noise_of_their_difference(lead, taken):
    """Noise that two policies have in common is no noise of the lead of one."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal(400)
    noise = 0.1 * rng.standard_normal((2, 400))
    rows = (
        common + noise - noise.mean(axis=1, keepdims=True) + np.array([[lead], [0.0]])
    )
    assert best_or_cheaper(rows.mean(axis=1), np.array([2.0, 1.0]), rows) == taken
