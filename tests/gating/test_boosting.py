"""Adapt-Gbrt: shared feature penalties, trees as arrays, the held-out gate."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification

from skroute.forests import leaf_sums
from skroute.gating import BoostedGate
from skroute.gating import _boosting as gbrt
from skroute.gating._levels import best_level
from skroute.gating._objective import class_losses, doubt
from skroute.gating._pairs import Problem, Rows


def rows(n=400, n_classes=2, seed=0):
    X, y = make_classification(
        n, n_features=8, n_informative=6, n_redundant=0, n_classes=n_classes, random_state=seed,
        flip_y=0.1,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    return X, y, rng.exponential(0.2, n), np.ones(n)


def splits(boosted):
    """Features of all inner nodes."""
    nodes = boosted.forest.trees.nodes
    return nodes["feature"][nodes["child"] != np.arange(len(nodes))]


KIND = {"n_estimators": 20, "max_iter": 5, "learning_rate": 0.2, "max_leaf_nodes": 6}


def grow(X, y, full_loss, weight, **changes):
    kind = BoostedGate(
        **{name: changes.pop(name, value) for name, value in KIND.items()}
    )
    kind.set_params(l2_regularization=changes.pop("l2_regularization", 1.0))
    problem = Problem(
        len(np.unique(y)), 0.3, 0.01, np.arange(X.shape[1]), np.ones(X.shape[1])
    )
    given = Rows(X, y, full_loss, weight, None)
    data = kind.ready(given, np.zeros(X.shape[1], dtype=bool))
    return gbrt.boost(data, given, problem._replace(**changes), kind, n_threads=1)


def test_penalty_is_charged_once_over_outputs_and_rounds():
    """Free features lose to one that was bought, unless they gain more than it cost."""
    X, y, full_loss, weight = rows(n_classes=3)
    bought = []
    for gamma in (0.0, 0.003, 0.01, 0.03, 0.1, 10.0):
        pair, *_ = grow(X, y, full_loss, weight, gamma=gamma)
        bought.append(len(pair.forest.features_of(range(4))))
    assert bought[0] == 8 and bought[-1] == 0
    assert (np.diff(bought) <= 0).all() and 0 < bought[3] < 8
    # A feature that is bought early is split on by many trees, of f1 and of the gate.
    pair, *_ = grow(X, y, full_loss, weight, gamma=0.03)
    used = pair.forest.features_of(range(4))
    assert set(pair.forest.features_of([3])) <= set(used)
    assert len(splits(pair)) > 10 * len(used)


def test_penalty_has_the_scale_of_the_mean_loss():
    """The first split is made if and only if it lowers the mean loss by gamma * cost."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1))
    y = (X[:, 0] + rng.normal(size=500) > 0).astype(int)
    weight = np.full(500, 3.0)
    how = {
        "p_full": 0.0, "n_estimators": 1, "max_iter": 1, "max_leaf_nodes": 2,
        "l2_regularization": 0.0, "learning_rate": 1.0,
    }  # fmt: skip
    nothing = np.zeros(500)
    pair, *_ = grow(X, y, nothing, weight, gamma=0.0, **how)
    left = X[:, 0] <= pair.forest.trees.nodes["threshold"][0]
    p = y.mean()
    G, H = p - y, p * (1 - p)
    # Decrease of the quadratic model of the mean loss.
    decrease = sum(G[s].sum() ** 2 / (2 * H * s.sum()) for s in (left, ~left)) / 500
    for factor, grows in ((0.99, True), (1.01, False)):
        pair, *_ = grow(
            X,
            y,
            nothing,
            weight,
            gamma=factor * decrease / 5,
            group_costs=np.array([5.0]),
            **how,
        )
        assert (len(splits(pair)) > 0) is grows


def test_features_of_a_group_are_free_once_one_is_bought():
    X, y, full_loss, weight = rows()
    groups = {"group_of": np.repeat([0, 1], 4), "group_costs": np.array([1.0, 1e6])}
    pair, *_ = grow(X, y, full_loss, weight, gamma=0.02, **groups)
    assert_array_equal(pair.forest.features_of([0, 1]), [0, 1, 2, 3])
    alone, *_ = grow(
        X, y, full_loss, weight, gamma=0.02, group_costs=np.repeat([1.0, 1e6], 4)
    )
    assert len(alone.forest.features_of([0, 1])) < 4


def test_weights_scale_the_penalty_and_not_the_trees():
    """Ten times the weight is ten times the rows: same splits, same features bought."""
    X, y, full_loss, weight = rows()
    how = {
        "l2_regularization": 0.0,
        "max_leaf_nodes": 3,
        "n_estimators": 8,
        "max_iter": 2,
    }
    one, of_one, _ = grow(X, y, full_loss, 16 * weight, **how)
    ten, of_ten, _ = grow(X, y, full_loss, 32 * weight, **how)
    assert_array_equal(splits(one), splits(ten))
    assert_allclose(of_one, of_ten, rtol=1e-5)


def test_without_a_gate_the_objective_is_loss_plus_cost():
    X, y, _, weight = rows()
    pair, objectives, _ = grow(X, y, np.zeros(len(X)), weight, p_full=0.0)
    scores = leaf_sums(pair.forest, X, [0]) + pair.base[0]
    used = pair.forest.features_of([0])
    expected = class_losses(scores, y).mean() + 0.01 * len(used)
    assert_allclose(objectives[-1], expected)


def test_calibrated_gate_sends_what_it_should_on_new_rows():
    """In sample f1 looks too good to ask for help; held out it does not."""
    X, y, full_loss, weight = rows(3000)
    half = np.arange(3000) < 1500
    pair, _, ends = grow(
        X[half], y[half], full_loss[half], weight[half], n_estimators=60, max_leaf_nodes=31,
    )  # fmt: skip
    test = X[~half], y[~half], full_loss[~half], weight[~half]
    rounds, coef, objectives = gbrt.best_round(pair, ends, Rows(*test, None), 0.3)
    assert rounds == ends[int(np.argmin(objectives))]
    state = pair.with_rounds(rounds, coef)
    scores = leaf_sums(state.forest, test[0]) + np.append(state.base, 0.0)
    gate = coef[0] * doubt(scores[:, :1]) + coef[1] + scores[:, 1]
    assert_allclose(gate, state.gate_scores(test[0], state.cheap_scores(test[0])))
    assert_allclose((1 / (1 + np.exp(-gate))).mean(), 0.3, atol=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_best_level_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    gate = rng.integers(0, 6, 12).astype(float)
    gain, weight = (
        rng.integers(-1, 2, 12).astype(float),
        rng.integers(1, 4, 12).astype(float),
    )
    p_full = rng.random()
    level = best_level(gate, gain, weight, p_full)
    best = 0.0
    for cut in np.unique(gate) - 0.5:
        sent = gate > cut
        if weight[sent].sum() <= p_full * weight.sum():
            best = max(best, weight[sent] @ gain[sent])
    sent = gate > level
    assert weight[sent].sum() <= p_full * weight.sum() + 1e-9
    assert_allclose(weight[sent] @ gain[sent], best)
