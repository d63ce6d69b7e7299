"""GreedyMiser, the L1 baseline and BudgetPrune."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import OptimizeResult
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skroute.datasets._clusters import make_four_clusters, make_hard_centre
from skroute.gating import (
    BudgetPruneClassifier,
    GreedyMiserClassifier,
    L1GatingClassifier,
)
from skroute.gating import _pruning as pruning
from tests.gating.kinds import adapt_of


def problem(n=600, n_classes=2):
    X, y = make_classification(
        n, n_features=6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0
    )
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


def test_four_clusters_adapt_reaches_one_and_a_half_and_l1_does_not():
    X, y, cluster = make_four_clusters(400, random_state=0)
    full = FrozenEstimator(RandomForestClassifier(20, random_state=0).fit(X, y))
    adapt = adapt_of(full, "lin", p_full=0.55, gamma=0.02, max_iter=30)
    routed = adapt.fit(X, y).predict_routed(X)
    assert_array_equal(routed.y_pred, y)
    assert routed.cost.mean() == 1.5
    assert_array_equal(routed.route, cluster <= 2)
    costs = []
    for p_full in np.linspace(0, 1, 21):
        for gamma in (0.01, 0.05, 0.1, 0.2):
            found = L1GatingClassifier(full, p_full=p_full, gamma=gamma).fit(X, y)
            routed = found.predict_routed(X)
            if (routed.y_pred == y).all():
                costs.append(routed.cost.mean())
    assert min(costs) >= 1.75


def test_synthetic_sets_are_as_described():
    X, y, cluster = make_four_clusters(401, random_state=1)
    assert np.ptp(np.bincount(cluster)[1:]) <= 1
    again = make_four_clusters(401, random_state=1)
    assert_array_equal(X, again[0])
    assert_array_equal(y, np.array([0, 1, 0, 1])[cluster - 1])
    X, y = make_hard_centre(1001, random_state=0)
    radius = np.hypot(*X.T)
    assert abs((radius < 1).sum() - 500.5) < 1 and radius.max() <= 3
    assert_array_equal(y[radius > 1], X[radius > 1, 0] > 0)
    assert 0.3 < y[radius < 1].mean() < 0.7
    for make in (make_four_clusters, make_hard_centre):
        with pytest.raises(ValueError, match="n_samples"):
            make(3)


def test_greedy_miser_pays_less_for_a_larger_gamma():
    X, y, X_new, y_new = problem()
    costs, scores = [], []
    for gamma in (0.0, 0.01, 0.05, 10.0):
        model = GreedyMiserClassifier(gamma=gamma, n_estimators=20).fit(X, y)
        routed = model.predict_routed(X_new)
        assert (routed.route == 0).all() and len(np.unique(routed.cost)) == 1
        costs.append(routed.cost[0])
        scores.append(model.score(X_new, y_new))
    assert costs[0] == 6 and costs[-1] == 0 and (np.diff(costs) <= 0).all()
    assert scores[0] > scores[-1]
    with pytest.raises(ValueError, match="smallest feasible budget"):
        GreedyMiserClassifier(gamma=0.0, budget=1.0).fit(X, y)


def test_greedy_miser_is_adapt_without_a_gate():
    X, y, X_new, _ = problem(n_classes=3)
    how = {"gamma": 0.01, "n_estimators": 15}
    miser = GreedyMiserClassifier(**how).fit(X, y)
    full = FrozenEstimator(LogisticRegression().fit(X, y))
    adapt = adapt_of(full, p_full=0.0, **how).fit(X, y)
    assert_array_equal(miser.features_used_["cheap"], adapt.features_used_["cheap"])
    assert adapt.n_iter_ == 15
    assert_array_equal(miser.predict_proba(X_new), adapt.predict_proba(X_new))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_l1_sends_the_share_asked_for(n_classes):
    X, y, X_new, _ = problem(3000, n_classes)
    full = FrozenEstimator(RandomForestClassifier(20, random_state=0).fit(X, y))
    for p_full in (0.0, 0.2, 0.6, 1.0):
        model = L1GatingClassifier(full, p_full=p_full, gamma=0.01).fit(X, y)
        assert abs(model.route(X_new).mean() - p_full) < 0.12
    # All features gone: a constant gate sends nobody, or everybody.
    for p_full, share in ((0.5, 0), (1.0, 1)):
        empty = L1GatingClassifier(full, p_full=p_full, gamma=100.0).fit(X, y)
        assert empty.cost_table_["cheap"] == 0
        assert empty.route(X_new).mean() == share


def brute_force(gains, parent, row, group, node, costs, n_rows, gamma):
    best = np.inf
    for bits in range(2 ** len(gains)):
        kept = np.array([(bits >> i) & 1 for i in range(len(gains))], dtype=bool)
        if (kept & (parent >= 0) & ~kept[np.maximum(parent, 0)]).any():
            continue
        pays = {(r, g) for r, g, u in zip(row, group, node) if kept[u]}
        value = gains[kept].sum() + gamma / n_rows * sum(costs[g] for _, g in pays)
        best = min(best, value)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_pruning_program_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    parent = np.array([-1, 0, 0, 1, -1, 4, 4, 5, 6])
    gains = -rng.random(9) * 0.2 + 0.05
    n_rows, costs = 5, rng.random(3)
    row, node = np.divmod(np.flatnonzero(rng.random(45) < 0.6), 9)
    group = rng.integers(0, 3, 9)[node]
    for gamma in (0.05, 0.2, 1.0):
        kept, value = pruning.prune(gains, parent, row, group, node, costs, n_rows, gamma)
        expected = brute_force(gains, parent, row, group, node, costs, n_rows, gamma)
        assert_allclose(value, expected, atol=1e-9)
        # The relaxation is integral: the rounded plan has the value of the program.
        pays = {(r, g) for r, g, u in zip(row, group, node) if kept[u]}
        ours = gains[kept].sum() + gamma / n_rows * sum(costs[g] for _, g in pays)
        assert_allclose(ours, value, atol=1e-9)


def test_nothing_to_prune():
    kept, value = pruning.prune(*[np.zeros(0, dtype=int)] * 5, np.ones(2), 3, 0.1)
    assert len(kept) == 0 and value == 0


def test_failure_of_the_solver_is_an_error(monkeypatch):
    failed = OptimizeResult(status=4, message="numerical difficulties")
    monkeypatch.setattr(pruning, "linprog", lambda *args, **kwargs: failed)
    empty = np.zeros(0, dtype=int)
    with pytest.raises(RuntimeError, match="HiGHS did not solve .*: numerical difficulties"):
        pruning.prune(np.ones(1), np.array([-1]), empty, empty, empty, np.ones(1), 1, 0.1)


def test_splits_that_cannot_pay_are_cut_beforehand():
    X, y, _, _ = problem()
    tree = DecisionTreeClassifier(random_state=0).fit(X, y).tree_
    left, right = tree.children_left, tree.children_right
    error = np.random.default_rng(0).random(len(left)) / 10
    gains = pruning.split_gains(error, left, right)
    worth = pruning.worth_growing(gains, left, right)
    parent = np.full(len(left), -1)
    inner = np.flatnonzero(left >= 0)
    parent[left[inner]] = parent[right[inner]] = inner
    up = parent[inner]
    position = {node: i for i, node in enumerate(inner)}
    empty = np.zeros(0, dtype=int)
    kept, _ = pruning.prune(
        gains[inner], np.array([position.get(u, -1) for u in up]), empty, empty, empty,
        np.ones(1), 1, 0.0,
    )  # fmt: skip
    assert set(inner[kept]) <= set(np.flatnonzero(worth))
    assert_allclose(gains[inner[kept]].sum(), gains[worth].sum() if worth.any() else 0, atol=1e-9)


def test_first_uses_are_first():
    X, y, _, _ = problem(60)
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    group = np.where(tree.tree_.children_left >= 0, tree.tree_.feature % 2, -1)
    paths = tree.decision_path(X)
    rows, nodes = pruning.first_uses(paths, group)
    found = set(zip(rows.tolist(), nodes.tolist()))
    expected = set()
    for i in range(len(X)):
        seen = set()
        for node in np.sort(paths[i].indices):
            if group[node] >= 0 and group[node] not in seen:
                seen.add(group[node])
                expected.add((i, int(node)))
    assert found == expected


def test_budget_prune_without_a_price_is_not_worse_than_the_forest():
    X, y, X_new, y_new = problem(1000)
    free = BudgetPruneClassifier(gamma=0.0, n_estimators=20, random_state=0).fit(X, y)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    assert free.score(X_new, y_new) > forest.score(X_new, y_new) - 0.03
    costs = []
    for gamma in (0.0, 0.01, 0.03, 10.0):
        model = BudgetPruneClassifier(
            gamma=gamma, n_estimators=10, max_samples=100, random_state=0
        ).fit(X, y)
        costs.append(model.predict_cost(X_new).mean())
    assert (np.diff(costs) <= 1e-9).all() and costs[-1] == 0
    middle = BudgetPruneClassifier(gamma=0.01, n_estimators=10, random_state=0).fit(X, y)
    assert len(np.unique(middle.predict_cost(X_new))) > 1
    with pytest.raises(ValueError, match="smallest feasible budget"):
        middle.predict(X_new, budget=0.1)


def test_budget_prune_walks_as_the_forest_does():
    X, y, X_new, _ = problem()
    model = BudgetPruneClassifier(n_estimators=6, gamma=0.0, random_state=3).fit(X, y)
    state = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    forest = RandomForestClassifier(6, random_state=state).fit(X, y)
    ledger = model._ledger(X_new)
    leaves = model._walk(ledger, np.arange(len(X_new))) - model.roots_
    own = forest.apply(X_new)
    for tree in range(6):
        paths = forest.estimators_[tree].decision_path(X_new).toarray()
        # A pruned path ends on the way of the whole one.
        assert paths[np.arange(len(X_new)), leaves[:, tree]].all()
    assert (leaves <= own).all()


def test_budget_prune_on_rows_that_every_tree_has_seen():
    X = np.array([[0.0], [1.0]])
    model = BudgetPruneClassifier(n_estimators=30, gamma=0.0, random_state=0).fit(X, [0, 1])
    assert set(model.predict(X)) <= {0, 1}
