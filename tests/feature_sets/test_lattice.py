"""The lattice search and its guarantee, against brute force over all sets."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.datasets._poly_dom import make_feature_sets
from skroute.feature_sets._index import build_index, evaluate_costs
from skroute.feature_sets._lattice import (
    LatticeSearch,
    bounds,
    candidate_sets,
    certified_alpha,
    expand_all,
    indicator,
    members,
    monotonicity_violations,
    popcount,
    set_coefficients,
    subset_max,
    superset_min,
)


class Oracle:
    """Known accuracies of all sets; records what was asked."""

    def __init__(self, accuracy):
        self.quality = accuracy
        self.asked = []

    def __call__(self, masks):
        assert len(masks) > 0
        assert 0 not in masks
        assert not set(masks) & set(self.asked), "a set was trained twice"
        assert len(set(masks)) == len(masks)
        self.asked.extend(masks)
        return self.quality[masks]


def random_accuracies(rng, n_features, tol):
    """Accuracies of all sets for which a subset is better by `tol` at most."""
    kind = rng.integers(4)
    if kind == 0:
        accuracy = make_feature_sets(
            n_features, p_helpful=0.5, interaction=rng.uniform(), random_state=int(rng.integers(99))
        ).accuracy
    else:
        raw = rng.uniform(size=1 << n_features)
        if kind == 1:
            raw = np.round(raw * 5) / 5
        if kind == 2:
            raw *= popcount(np.arange(1 << n_features)) / n_features
        accuracy = subset_max(raw)
    lowered = accuracy - rng.uniform(0, tol, len(accuracy)) * rng.integers(2, size=len(accuracy))
    accuracy = np.maximum(lowered, 0.0)
    assert (subset_max(accuracy) <= accuracy + tol + 1e-15).all()
    return accuracy


def brute_force_failures(rng, accuracy, coef, chosen_sets, alpha, n_queries=60):
    """Queries at which the guarantee does not hold, all sets looked at one by one."""
    masks, of_masks = chosen_sets
    n_features = len(coef)
    index = build_index(set_coefficients(masks, coef), of_masks)
    everything = set_coefficients(np.arange(1 << n_features), coef)
    failures = 0
    for _ in range(n_queries // 6):
        size = float(rng.integers(30)) if rng.integers(2) else rng.uniform(0, 500)
        cost = evaluate_costs(everything, size)
        for budget in [*rng.choice(cost, 3), *rng.uniform(0, 1.1 * cost.max(), 3)]:
            chosen = masks[index.lookup(size, budget)]
            best = accuracy[cost <= budget].max()
            fits = cost[chosen] <= budget
            near = (1 + alpha) * accuracy[chosen] >= best
            failures += not (fits and near and (alpha > 0 or accuracy[chosen] == best))
    return failures


@pytest.mark.parametrize("seed", range(400))
def test_guarantee_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, 9))
    alpha = float(rng.choice([0.0, 0.0, 0.02, 0.1, rng.uniform(0, 0.3)]))
    tol = float(rng.choice([0.0, 0.0, rng.uniform(0, 0.1)]))
    accuracy = random_accuracies(rng, n_features, tol)
    if rng.integers(2):
        coef = rng.integers(0, 4, (n_features, 3)).astype(float)
    else:
        coef = rng.uniform(size=(n_features, 3)) * [100, 100, 1]
    oracle = Oracle(accuracy)
    found = LatticeSearch(n_features, oracle, accuracy[0], monotonicity_tol=tol).run(alpha)
    assert found.alpha <= alpha * (1 + 1e-12) + 1e-12
    assert len(found.masks) == len(oracle.asked) + 1
    kept = candidate_sets(found.masks, found.quality, set_coefficients(found.masks, coef))
    chosen = found.masks[kept], found.quality[kept]
    assert brute_force_failures(rng, accuracy, coef, chosen, alpha) == 0


@pytest.mark.parametrize("seed", range(150))
def test_guarantee_under_a_training_budget(seed):
    """Progressive mode: never more models than allowed, and the alpha it reports holds."""
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, 8))
    tol = float(rng.choice([0.0, 0.05]))
    accuracy = 0.2 + 0.8 * random_accuracies(rng, n_features, tol)
    coef = rng.uniform(size=(n_features, 3)) * [100, 100, 1]
    max_models = int(rng.integers(1, 1 << n_features))
    oracle = Oracle(accuracy)
    found = LatticeSearch(
        n_features, oracle, accuracy[0], monotonicity_tol=tol, max_models=max_models
    ).run(0.0)
    assert len(oracle.asked) <= max_models
    assert np.isfinite(found.alpha)
    kept = candidate_sets(found.masks, found.quality, set_coefficients(found.masks, coef))
    chosen = found.masks[kept], found.quality[kept]
    assert brute_force_failures(rng, accuracy, coef, chosen, found.alpha) == 0


def test_more_models_certify_a_smaller_alpha():
    data = make_feature_sets(8, p_helpful=0.5, interaction=0.5, random_state=0)
    reached = [
        LatticeSearch(8, Oracle(data.accuracy), 0.1, max_models=m).run(0.0).alpha
        for m in (1, 20, 80, 255)
    ]
    assert sorted(reached, reverse=True) == reached
    assert reached[-1] == 0.0
    assert reached[0] > reached[-1]


def test_larger_set_inside_no_single_superset_is_still_reached():
    """The warning of the covering rule: {a, b} inside no r_i is the best of its cost.

    The empty set is nearly as good as {a, c} and {b, c}, which together cover everything
    and sandwich all single features, so the walk upwards ends at once. {a, b} lies in
    neither and is as good as the full set.
    """
    a, b, c = 1, 2, 4
    accuracy = np.full(8, 0.5)
    accuracy[[a | b, a | b | c]] = 0.9
    accuracy[[a | c, b | c]] = 0.5
    oracle = Oracle(accuracy)
    found = LatticeSearch(3, oracle, accuracy[0]).run(0.0)
    assert a | b in found.masks
    assert not {a, b, c} & set(found.masks.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_nothing_sandwiched_or_covered_is_trained(seed):
    """Properties 3.3 and 3.4 as stated, against what earlier layers had shown."""
    rng = np.random.default_rng(seed)
    k, alpha = 6, 0.1
    accuracy = subset_max(rng.uniform(size=1 << k) ** 3)
    layers = []

    def evaluate(masks):
        layers.append(masks)
        return accuracy[masks]

    LatticeSearch(k, evaluate, accuracy[0]).run(alpha)
    earlier = [0]
    for layer in layers:
        for t in layer:
            for s in earlier:
                dominated = [
                    r
                    for r in earlier
                    if s & ~r == 0 and r != s and (1 + alpha) * accuracy[s] >= accuracy[r]
                ]
                inside = s & ~t == 0
                assert not (inside and any(t & ~r == 0 for r in dominated))
                covered = dominated and np.bitwise_or.reduce(dominated) == (1 << k) - 1
                assert not (covered and inside and (s ^ t).bit_count() == 1)
        earlier.extend(layer)


@given(st.integers(0, 2**31), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_subset_and_superset_sweeps_against_enumeration(seed, k):
    values = np.random.default_rng(seed).normal(size=1 << k)
    masks = np.arange(1 << k)
    for t in masks:
        assert subset_max(values)[t] == values[(masks & ~t) == 0].max()
        assert superset_min(values)[t] == values[(t & ~masks) == 0].min()


def test_bounds_and_certificate_by_hand():
    # Trained: empty 0.5, {0} 0.6, full 0.8.
    accuracy = np.array([0.5, 0.6, np.nan, 0.8])
    offered, upper = bounds(accuracy, 0.02)
    assert offered[2] == 0.5
    assert upper[2] == pytest.approx(0.82)
    assert certified_alpha(accuracy, 0.02) == pytest.approx(0.82 / 0.5 - 1)
    assert certified_alpha(np.array([0.5, 0.5]), 0.0) == 0.0
    assert certified_alpha(np.array([0.5, np.nan, np.nan, 0.5]), 0.0) == 0.0
    assert certified_alpha(np.array([0.0, np.nan, np.nan, 0.5]), 0.0) == np.inf


def test_nothing_worth_training_but_the_full_set():
    oracle = Oracle(np.full(1 << 5, 0.7))
    found = LatticeSearch(5, oracle, 0.7).run(0.0)
    assert oracle.asked == [31]
    assert found.alpha == 0.0


def test_max_seconds_stops_between_layers(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    data = make_feature_sets(6, interaction=1.0, random_state=0)
    oracle = Oracle(data.accuracy)
    found = LatticeSearch(6, oracle, 0.1, max_seconds=1.5).run(0.0)
    assert 1 <= len(oracle.asked) < 63
    assert found.alpha > 0


def test_expand_all_trains_every_set():
    data = make_feature_sets(4, random_state=0)
    oracle = Oracle(data.accuracy)
    found = expand_all(4, oracle, 0.0)
    assert sorted(oracle.asked) == list(range(1, 16))
    np.testing.assert_array_equal(found.quality, data.accuracy)
    assert found.alpha == 0.0


def test_max_combiner_needs_few_sets():
    """The paper's setting with 10 features, and 12 for the factor of ten."""
    for seed in range(5):
        for n_features, most in ((10, 80), (12, 4095 // 10)):
            data = make_feature_sets(n_features, random_state=seed)
            oracle = Oracle(data.accuracy)
            LatticeSearch(n_features, oracle, 0.0).run(0.1)
            assert len(oracle.asked) <= most


def test_violations_name_the_worst_subset():
    masks = np.array([0, 1, 2, 3])
    accuracy = np.array([0.5, 0.9, 0.7, 0.8])
    ((subset, superset, drop),) = monotonicity_violations(masks, accuracy, 0.0)
    assert (subset, superset) == (1, 3)
    assert drop == pytest.approx(0.1)
    assert monotonicity_violations(masks, accuracy, 0.11) == []
    rng = np.random.default_rng(0)
    accuracy = rng.uniform(size=512)
    found = monotonicity_violations(np.arange(512), accuracy, 0.3)
    assert [drop for *_, drop in found] == sorted((drop for *_, drop in found), reverse=True)
    best = subset_max(accuracy)
    assert {superset for _, superset, _ in found} == set(
        np.flatnonzero(best - accuracy > 0.3).tolist()
    )


@pytest.mark.parametrize("polynomial", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_candidates_lose_nothing_and_keep_nothing_dominated(seed, polynomial):
    rng = np.random.default_rng(seed)
    k = 5
    masks = rng.permutation(1 << k)[:20]
    accuracy = rng.integers(0, 8, len(masks)) / 8
    features = rng.integers(0, 3, (k, 3)).astype(float)
    coef = set_coefficients(masks, features)
    kept = candidate_sets(masks, accuracy, coef if polynomial else None)
    assert (np.diff(accuracy[kept]) >= 0).all()
    for size in [0.0, 0.5, 1.0, 3.0, 1e3]:
        cost = evaluate_costs(coef, size)
        for r in range(len(masks)):
            # For whatever was dropped, something kept is not costlier and not worse.
            assert np.any((cost[kept] <= cost[r]) & (accuracy[kept] >= accuracy[r]))
    grid = evaluate_costs(coef, np.concatenate([np.linspace(0, 10, 101), [1e3, 1e6]]))
    for r in kept:
        for s in kept:
            if s != r and accuracy[s] >= accuracy[r]:
                if polynomial:
                    assert (grid[s] > grid[r]).any() or (grid[s] == grid[r]).all() is False
                else:
                    assert masks[s] & ~masks[r]


def test_cost_of_a_set_is_never_below_that_of_a_subset():
    rng = np.random.default_rng(0)
    coef = rng.uniform(size=(7, 3)) * 10.0 ** rng.integers(-8, 8, (7, 3))
    total = set_coefficients(np.arange(128), coef)
    for t in range(128):
        for j in members(t):
            assert (total[t] >= total[t ^ 1 << j]).all()


def test_masks():
    assert members(0) == []
    assert members(0b1011) == [0, 1, 3]
    np.testing.assert_array_equal(indicator([0b01, 0b10], 2), np.eye(2, dtype=bool))
