"""The lattice search and its guarantee, against brute force over all sets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.feature_sets._costs import given_costs
from skroute.feature_sets._lattice import (
    LatticeSearch,
    indicator,
    monotonicity_violations,
    subset_max,
    superset_min,
)
from skroute.feature_sets._poly_dom import best_affordable, undominated

seeds = st.integers(0, 2**32 - 1)


class Oracle:
    """Known qualities of all sets; records what was asked."""

    def __init__(self, quality):
        self.quality = quality
        self.asked = []

    def __call__(self, masks):
        assert len(masks) > 0
        assert 0 not in masks
        assert not set(masks) & set(self.asked), "a set was trained twice"
        assert len(set(masks)) == len(masks)
        self.asked.extend(masks)
        return self.quality[masks]


def qualities(rng, k, tol):
    """Qualities of all sets of `k` extractors, a subset being at most `tol` better."""
    kind = rng.integers(4)
    raw = rng.uniform(size=1 << k)
    if kind == 1:
        raw = np.round(raw * 5) / 5
    if kind == 2:
        raw *= np.bitwise_count(np.arange(1 << k)) / k
    if kind == 3:
        # One extractor says most of what a set says.
        single = np.where(rng.uniform(size=k) < 0.3, 0.9, 0.4) * rng.uniform(0.8, 1, k)
        raw[:] = 0.0
        raw[1 << np.arange(k)] = single
    quality = subset_max(raw)
    lowered = quality - rng.uniform(0, tol, 1 << k) * rng.integers(2, size=1 << k)
    return np.maximum(lowered, 0.0)


def coefficients(rng, k):
    if rng.integers(2):
        return rng.integers(0, 4, (k, 3)).astype(float)
    return rng.uniform(size=(k, 3)) * [100, 100, 1]


def assert_guarantee(rng, quality, coef, expansion, alpha):
    """Assert that no set within a budget is better than 1 + alpha times the chosen one."""
    k = len(coef)
    costs = given_costs(list(coef), list("abcdefgh")[:k])
    set_coef = indicator(expansion.masks, k) @ costs.coef
    front = undominated(expansion.quality, set_coef)
    masks = expansion.masks[front]
    front_quality = expansion.quality[front]
    assert (np.diff(front_quality) >= 0).all()
    sizes = np.where(
        rng.integers(2, size=10), rng.integers(30, size=10), rng.uniform(0, 500, 10)
    )
    for cost in costs(sizes).T @ indicator(np.arange(1 << k), k).T:
        budget = np.concatenate(
            [rng.choice(cost, 3), rng.uniform(0, 1.1 * cost.max(), 3)]
        )
        front_cost = np.broadcast_to(cost[masks], (6, len(masks)))
        chosen = masks[best_affordable(front_cost, front_quality, budget)]
        best = np.where(cost <= budget[:, None], quality, -1).max(axis=1)
        assert (cost[chosen] <= budget * (1 + 1e-12)).all()
        assert ((1 + alpha) * quality[chosen] >= best).all()
        if alpha == 0:
            assert (quality[chosen] >= best).all()


@settings(max_examples=120, deadline=None)
@given(seeds)
def test_guarantee_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 9))
    alpha = float(rng.choice([0.0, 0.02, 0.1, rng.uniform(0, 0.3)]))
    tol = float(rng.choice([0.0, rng.uniform(0, 0.1)]))
    quality, coef = qualities(rng, k, tol), coefficients(rng, k)
    oracle = Oracle(quality)
    found = LatticeSearch(k, oracle, quality[0], monotonicity_tol=tol).run(alpha)
    assert found.alpha <= alpha * (1 + 1e-12) + 1e-12
    assert len(found.masks) == len(oracle.asked) + 1
    assert_guarantee(rng, quality, coef, found, alpha)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_guarantee_under_a_training_budget(seed):
    """Progressive mode: never more models than allowed, and the alpha it reports holds."""
    rng = np.random.default_rng(seed)
    k, tol = int(rng.integers(1, 8)), float(rng.choice([0.0, 0.05]))
    quality, coef = 0.2 + 0.8 * qualities(rng, k, tol), coefficients(rng, k)
    oracle, most = Oracle(quality), int(rng.integers(1, 1 << k))
    found = LatticeSearch(
        k, oracle, quality[0], monotonicity_tol=tol, max_models=most
    ).run(0.0)
    assert len(oracle.asked) <= most
    assert np.isfinite(found.alpha)
    assert_guarantee(rng, quality, coef, found, found.alpha)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_nothing_sandwiched_or_covered_is_trained(seed):
    """Properties 3.3 and 3.4 as stated, against what earlier layers had shown."""
    k, alpha = 6, 0.1
    quality = subset_max(np.random.default_rng(seed).uniform(size=1 << k) ** 3)
    layers = []

    def evaluate(masks):
        layers.append(masks)
        return quality[masks]

    LatticeSearch(k, evaluate, quality[0]).run(alpha)
    earlier = [0]
    for layer in layers:
        for t in layer:
            for s in earlier:
                dominated = [
                    r
                    for r in earlier
                    if s & ~r == 0 and r != s and (1 + alpha) * quality[s] >= quality[r]
                ]
                inside = s & ~t == 0
                assert not (inside and any(t & ~r == 0 for r in dominated))
                covered = dominated and np.bitwise_or.reduce(dominated) == (1 << k) - 1
                assert not (covered and inside and (s ^ t).bit_count() == 1)
        earlier.extend(layer)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 6))
def test_subset_and_superset_sweeps_against_enumeration(seed, k):
    values = np.random.default_rng(seed).normal(size=1 << k)
    masks = np.arange(1 << k)
    for t in masks:
        assert subset_max(values)[t] == values[(masks & ~t) == 0].max()
        assert superset_min(values)[t] == values[(t & ~masks) == 0].min()


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([(10, 80), (12, 4095 // 10)]))
def test_few_sets_are_trained_where_one_feature_says_most(seed, case):
    """The paper's setting: a set is as good as its best feature, and few features are good."""
    (k, most), rng = case, np.random.default_rng(seed)
    helpful = rng.uniform(size=k) < 0.2
    single = np.where(helpful, rng.uniform(0.7, 1, k), rng.uniform(0, 0.5, k))
    quality = np.zeros(1 << k)
    quality[1 << np.arange(k)] = single
    oracle = Oracle(subset_max(quality))
    LatticeSearch(k, oracle, 0.0).run(0.1)
    assert len(oracle.asked) <= most


def test_violations_name_the_worst_subset():
    quality = np.random.default_rng(0).uniform(size=512)
    violations = monotonicity_violations(np.arange(512), quality, 0.3)
    drops = [drop for _, _, drop in violations]
    assert drops == sorted(drops, reverse=True)
    is_beaten = subset_max(quality) - quality > 0.3
    supersets = {superset for _, superset, _ in violations}
    assert supersets == set(np.flatnonzero(is_beaten).tolist())
