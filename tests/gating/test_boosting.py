"""Adapt-Gbrt: shared feature penalties, trees as arrays, the held-out gate."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.datasets import make_classification

from skroute.forests import leaf_sums
from skroute.gating import BoostedGate
from skroute.gating._boosting import best_round, boost
from skroute.gating._levels import best_level
from skroute.gating._objective import class_losses, doubt
from skroute.gating._pairs import Problem, Rows


def make_rows(n_rows=400, n_classes=2, seed=0):
    """Return rows of eight features with weight 1, and random losses of a full model."""
    X, y = make_classification(
        n_rows,
        n_features=8,
        n_informative=6,
        n_redundant=0,
        n_classes=n_classes,
        random_state=seed,
        flip_y=0.1,
    )
    full_loss = np.random.default_rng(seed).exponential(0.2, n_rows)
    return Rows(X, y, full_loss, np.ones(n_rows), full_quality=np.zeros(n_rows))


def make_gate(**params):
    """Return a small gate, whose trees have few leaves."""
    defaults = {
        "n_estimators": 20,
        "max_iter": 5,
        "learning_rate": 0.2,
        "max_leaf_nodes": 6,
    }
    return BoostedGate(**(defaults | params))


def grow(rows, gate=None, **problem_changes):
    """Return the fit of a gate on rows; features cost 1, unless `problem_changes`."""
    gate = make_gate() if gate is None else gate
    n_features = rows.values.shape[1]
    problem = Problem(
        n_classes=len(np.unique(rows.y)),
        p_full=0.3,
        gamma=0.01,
        group_of=np.arange(n_features),
        group_costs=np.ones(n_features),
    )
    data = gate.prepare(rows, np.zeros(n_features, dtype=bool))
    return boost(data, rows, problem._replace(**problem_changes), gate, n_threads=1)


def split_features(pair):
    """Return the features of all inner nodes."""
    nodes = pair.forest.trees.nodes
    # A leaf is its own child.
    is_inner = nodes["child"] != np.arange(len(nodes))
    return nodes["feature"][is_inner]


def test_penalty_is_charged_once_over_outputs_and_rounds():
    """Free features lose to one that was bought, unless they gain more than it cost."""
    rows = make_rows(n_classes=3)
    n_bought = []
    for gamma in (0.0, 0.003, 0.01, 0.03, 0.1, 10.0):
        pair = grow(rows, gamma=gamma).pair
        n_bought.append(len(pair.forest.features_of(range(4))))
    assert n_bought[0] == 8
    assert n_bought[-1] == 0
    assert (np.diff(n_bought) <= 0).all()
    assert 0 < n_bought[3] < 8
    # A feature that is bought early is split on by many trees, of f1 and of the gate.
    pair = grow(rows, gamma=0.03).pair
    used = pair.forest.features_of(range(4))
    assert set(pair.forest.features_of([3])) <= set(used)
    assert len(split_features(pair)) > 10 * len(used)


def test_penalty_has_the_scale_of_the_mean_loss():
    """The first split is made if and only if it lowers the mean loss by gamma * cost."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1))
    y = (X[:, 0] + rng.normal(size=500) > 0).astype(int)
    rows = Rows(X, y, np.zeros(500), np.full(500, 3.0), full_quality=np.zeros(500))
    stump = make_gate(
        n_estimators=1,
        max_iter=1,
        max_leaf_nodes=2,
        l2_regularization=0.0,
        learning_rate=1.0,
    )
    pair = grow(rows, stump, p_full=0.0, gamma=0.0).pair
    is_left = X[:, 0] <= pair.forest.trees.nodes["threshold"][0]
    p = y.mean()
    gradient = p - y
    hessian = p * (1 - p)
    # Decrease of the quadratic model of the mean loss.
    decrease = 0.0
    for leaf in (is_left, ~is_left):
        decrease += gradient[leaf].sum() ** 2 / (2 * hessian * leaf.sum())
    decrease /= 500
    cost = 5.0
    for factor, is_bought in ((0.99, True), (1.01, False)):
        gamma = factor * decrease / cost
        fit = grow(rows, stump, p_full=0.0, gamma=gamma, group_costs=np.array([cost]))
        assert (len(split_features(fit.pair)) > 0) is is_bought


def test_features_of_a_group_are_free_once_one_is_bought():
    rows = make_rows()
    two_groups = {
        "group_of": np.repeat([0, 1], 4),
        "group_costs": np.array([1.0, 1e6]),
    }
    grouped = grow(rows, gamma=0.02, **two_groups).pair
    assert_array_equal(grouped.forest.features_of([0, 1]), [0, 1, 2, 3])
    alone = grow(rows, gamma=0.02, group_costs=np.repeat([1.0, 1e6], 4)).pair
    assert len(alone.forest.features_of([0, 1])) < 4


def test_weights_scale_the_penalty_and_not_the_trees():
    """Twice the weight is twice the rows: same splits, same features bought."""
    rows = make_rows()
    gate = make_gate(
        l2_regularization=0.0, max_leaf_nodes=3, n_estimators=8, max_iter=2
    )
    single = grow(rows._replace(weight=16 * rows.weight), gate)
    double = grow(rows._replace(weight=32 * rows.weight), gate)
    assert_array_equal(split_features(single.pair), split_features(double.pair))
    assert_allclose(single.objectives, double.objectives, rtol=1e-5)


def test_without_a_gate_the_objective_is_loss_plus_cost():
    rows = make_rows()
    rows = rows._replace(full_loss=np.zeros(len(rows.y)))
    fit = grow(rows, p_full=0.0)
    scores = leaf_sums(fit.pair.forest, rows.values, [0]) + fit.pair.base[0]
    n_used = len(fit.pair.forest.features_of([0]))
    expected = class_losses(scores, rows.y).mean() + 0.01 * n_used
    assert_allclose(fit.objectives[-1], expected)


def test_calibrated_gate_sends_what_it_should_on_new_rows():
    """In sample f1 looks too good to ask for help; held out it does not."""
    rows = make_rows(3000)
    is_training = np.arange(3000) < 1500
    held_out = rows.of(~is_training)
    gate = make_gate(n_estimators=60, max_leaf_nodes=31)
    fit = grow(rows.of(is_training), gate)
    choice = best_round(fit.pair, fit.round_counts, held_out, p_full=0.3)
    assert choice.n_rounds == fit.round_counts[int(np.argmin(choice.objectives))]
    pair = fit.pair.with_rounds(choice.n_rounds, choice.doubt_coef)
    scores = leaf_sums(pair.forest, held_out.values) + np.append(pair.base, 0.0)
    slope, intercept = choice.doubt_coef
    gate_scores = slope * doubt(scores[:, :1]) + intercept + scores[:, 1]
    assert_allclose(gate_scores, pair.scores(held_out.values).gate)
    assert_allclose(expit(gate_scores).mean(), 0.3, atol=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_best_level_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    gate = rng.integers(0, 6, 12).astype(float)
    gain = rng.integers(-1, 2, 12).astype(float)
    weight = rng.integers(1, 4, 12).astype(float)
    p_full = rng.random()
    level = best_level(gate, gain, weight, p_full)
    best_gain = 0.0
    for cut in np.unique(gate) - 0.5:
        is_sent = gate > cut
        if weight[is_sent].sum() <= p_full * weight.sum():
            best_gain = max(best_gain, weight[is_sent] @ gain[is_sent])
    is_sent = gate > level
    assert weight[is_sent].sum() <= p_full * weight.sum() + 1e-9
    assert_allclose(weight[is_sent] @ gain[is_sent], best_gain)
