"""The default estimate of quality: its weights, its comparison, its promises."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge

from skroute.assignment import assignment_path, choose_at_price
from skroute.metrics import reference_curves
from skroute.quality import QualityRegressor
from skroute.quality import _stacking as stacking
from skroute.quality._members import (
    MEMBERS,
    SummedTrees,
    pack,
    shared_ridge,
    unpack,
    weigh_outputs,
)


def log(n=300, d=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    p = 1 / (1 + np.exp(-1.5 * X @ rng.standard_normal((d, k))))
    return X, (rng.random((n, k)) < p).astype(float), p


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 80),
    k=st.integers(1, 3),
    grid=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_walk_of_trees_is_scikit_learns(n, k, grid, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (2 * n, 3)) if grid else rng.standard_normal((2 * n, 3))
    X, Y = X.astype(np.float32), rng.standard_normal((n, k))
    peer = ExtraTreesRegressor(5, random_state=seed).fit(X[:n], Y if k > 1 else Y[:, 0])
    # New rows that stand on a threshold as well.
    X[n] = peer.estimators_[0].tree_.threshold[0].astype(np.float32)
    trees = [SummedTrees.from_tree(tree, 1 / 5) for tree in peer.estimators_]
    found = SummedTrees.sum_of(trees).predict(X)
    np.testing.assert_allclose(found, peer.predict(X).reshape(-1, k), atol=1e-6)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_weighted_in_level_and_difference(name):
    X, Q, _ = log(150)
    rows = X.astype(np.float32)
    member = MEMBERS[name](rows, Q - Q.mean(axis=0), 0)
    plain = member.predict(rows)
    assert plain.shape == Q.shape
    expected = weigh_outputs(plain, 0.3, 0.7)
    found = member.weighted(0.3, 0.7)
    np.testing.assert_allclose(found.predict(rows), expected, atol=1e-4)
    again = unpack(*pack(found))
    np.testing.assert_allclose(again.predict(rows), expected, atol=2e-3)


def test_packed_trees_that_are_damaged_are_refused():
    X, Q, _ = log(150)
    member = MEMBERS["trees"](X.astype(np.float32), Q - Q.mean(axis=0), 0)
    class_name, arrays = pack(member)
    features = np.where(arrays["feature"] < 0, -1, 99)
    with pytest.raises(ValueError, match="damaged: feature must be one of 4 columns"):
        unpack(class_name, arrays | {"feature": features})
    with pytest.raises(ValueError, match="damaged"):
        unpack(class_name, arrays | {"child": arrays["child"] + 1})


def test_ridge_is_ridge_on_the_shared_factors():
    # With one output there is one factor, and the penalty is of the grid.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = X[:, :1] + rng.standard_normal((60, 1))
    coef, offset = shared_ridge(X, y)
    found = X @ coef + offset
    squares = np.linalg.eigvalsh((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)))
    peers = [Ridge(a * squares.mean()).fit(X, y) for a in np.geomspace(1e-4, 1e3, 22)]
    assert min(np.abs(found - peer.predict(X)[:, None]).max() for peer in peers) < 1e-8


def test_choices_that_are_alike_share_what_they_have_in_common():
    # Nine copies of one choice with noise of their own: the common factor is shrunk less.
    def lost_by(X, Y, new, truth):
        coef, offset = shared_ridge(X, Y)
        return ((new @ coef + offset - truth) ** 2).mean()

    rng = np.random.default_rng(0)
    lost = []
    for _ in range(10):
        X, w = rng.standard_normal((60, 30)), rng.standard_normal((30, 1)) / 5
        Q = X @ w + rng.standard_normal((60, 9))
        new = rng.standard_normal((500, 30))
        alone = [lost_by(X, Q[:, [j]], new, new @ w) for j in range(9)]
        lost.append([lost_by(X, Q, new, new @ w), np.mean(alone)])
    together, alone = np.mean(lost, axis=0)
    assert together < 0.8 * alone


def test_weights_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((200, 3))
    E = np.stack([Q + rng.standard_normal(Q.shape), rng.standard_normal(Q.shape), -Q])
    difference, _ = stacking.stacked_weights(E, Q, [0, 1, 2])
    level = E.mean(axis=2, keepdims=True)
    parts = (E - level).reshape(3, -1), (Q - Q.mean(axis=1, keepdims=True)).ravel()
    penalty = 0.02 * (parts[0] ** 2).sum() / 3

    def loss(w):
        return ((parts[1] - w @ parts[0]) ** 2).sum() + penalty * w @ w

    peer = minimize(loss, np.ones(3), bounds=[(0, None)] * 3, tol=1e-12).x
    np.testing.assert_allclose(difference, peer, atol=1e-4)
    assert difference[2] == 0
    weights = stacking.stacked_weights(E, Q, [1])
    assert weights.used_members().tolist() == [1]


def test_the_gain_is_that_of_decisions_over_the_best_mix():
    """Decisions one by one, against the mix that `reference_curves` finds at the same spend."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        n_choices = rng.integers(1, 6)
        Q, E = rng.random((2, 50, n_choices))
        costs = rng.random(n_choices)
        hull = reference_curves(Q, costs, [costs.max()]).random[0]
        affordable = [c for c, q in zip(costs, Q.mean(axis=0)) if q >= hull - 1e-12]
        low, high = costs.min(), min(affordable)
        high = high if high > low else costs.max()
        expected = []
        for budget in low + stacking.SHARES * (high - low):
            rule = assignment_path(E, costs).rule(budget)
            assert rule.share == 0
            chosen = choose_at_price(E, costs, rule.price)
            spent = costs[chosen].mean()
            mix = reference_curves(Q, costs, [spent]).random[0]
            expected.append(Q[np.arange(50), chosen].mean() - mix)
        found = stacking.gain_over_mix(E, Q, costs).mean()
        assert found == pytest.approx(np.mean(expected), abs=1e-9)


def test_rows_that_are_tied_at_the_price_are_mixed():
    """A few kinds of rows: what the truth gains is what exact plans do."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        kinds, costs = rng.random((3, 4)), np.sort(rng.random(4))
        Q = np.repeat(kinds, 50, axis=0)
        path, best = assignment_path(Q, costs), costs[Q.mean(axis=0).argmax()]
        high = best if best > costs[0] else costs.max()
        plans = []
        for budget in costs[0] + stacking.SHARES * (high - costs[0]):
            spent = min(budget, path.budgets[-1])
            plans.append(
                path.objective(spent) - reference_curves(Q, costs, [spent]).random[0]
            )
        gain = stacking.gain_over_mix(Q, Q, costs).mean()
        assert gain == pytest.approx(np.mean(plans), abs=1e-9)


def test_decisions_gain_more_than_the_mix_and_less_than_by_the_truth():
    X, Q, p = log(1500)
    new, Q_new, p_new = log(1500)[0][750:], Q[750:], p[750:]
    model = QualityRegressor().fit(X[:750], Q[:750])
    costs = np.array([1.0, 2.0, 4.0])
    found = stacking.gain_over_mix(model.predict(new), Q_new, costs).mean()
    truth = stacking.gain_over_mix(p_new, Q_new, costs).mean()
    assert 0.6 * truth < found < 1.1 * truth


def test_noise_is_answered_by_the_means():
    # Nothing can be gained: estimates hardly leave the means, over fresh draws.
    spreads = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, Q = rng.standard_normal((200, 5)), (rng.random((200, 3)) < 0.5).astype(float)
        model = QualityRegressor(cv=3).fit(X, Q)
        spreads.append(model.predict(X).std(axis=0).mean())
    assert np.median(spreads) < 0.08


def test_estimates_of_its_own_rows_are_out_of_sample():
    # The features name the row, so that an estimate that saw its outcome would know it.
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((120, 40)), rng.standard_normal((120, 2))
    estimate = QualityRegressor(cv=3).cross_fit(X, Q)
    assert abs(np.corrcoef(estimate.ravel(), Q.ravel())[0, 1]) < 0.25
    # Of the folds given, one fits what estimates the others.
    parts = np.arange(120) % 3
    folds = [(np.flatnonzero(parts != i), np.flatnonzero(parts == i)) for i in range(3)]
    changed = np.where(parts[:, None] == 1, 1 - Q, Q)
    before, after = (
        QualityRegressor().cross_fit(X, told, folds=folds) for told in (Q, changed)
    )
    assert not np.array_equal(before[parts == 0], after[parts == 0])


@pytest.mark.parametrize("n_rows", [12, 80])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_fold_has_a_table_in_which_all_rows_are_estimated_as_its_own(
    n_rows, single, weighted
):
    X, Q, _ = log(n_rows)
    Q = Q[:, 0] if single else Q
    part = np.arange(n_rows) % 4
    folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(4)]
    weight = None
    if weighted:
        # One fold is of rows without weight.
        weight = np.where(part == 2, 0.0, 1.0 + np.arange(n_rows) % 2)
    model = QualityRegressor(family=["linear"])
    estimate, kept, by_fold = model.cross_fit(
        X, Q, folds=folds, sample_weight=weight, return_kept=True, return_by_fold=True
    )
    assert by_fold.shape == (4, *Q.shape)
    for number in range(4):
        rows = part == number
        np.testing.assert_array_equal(by_fold[number, rows], estimate[rows])
    again = model.cross_fit(
        X, Q, folds=folds, sample_weight=weight, return_by_fold=True
    )
    np.testing.assert_array_equal(again[1], by_fold)


def test_where_a_fold_chooses_means_all_rows_of_its_table_have_one_estimate():
    part = np.arange(200) % 5
    folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(5)]
    chose_means = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, Q = (
            rng.normal(size=(200, 3)),
            (rng.random((200, 3)) < [0.3, 0.5, 0.7]).astype(float),
        )
        model = QualityRegressor(family=["linear"])
        _, by_fold = model.cross_fit(X, Q, folds=folds, return_by_fold=True)
        for number, table in enumerate(by_fold):
            has_means = len(np.unique(table[part == number], axis=0)) == 1
            assert (len(np.unique(table, axis=0)) == 1) == has_means
            chose_means.append(has_means)
    assert 0 < np.mean(chose_means) < 1


@pytest.mark.slow
def test_rows_that_pick_a_member_do_not_say_how_good_it_is():
    """Members that are noise: the one that looks best is no better than the others on its rows."""
    honest, picked = np.empty(30), np.empty(30)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        estimates = 0.1 * rng.normal(size=(8, 200, 3))
        quality = (rng.random((200, 3)) < 0.5).astype(float)
        folds, means = np.array_split(np.arange(200), 5), np.empty((200, 3))
        for rows in folds:
            means[rows] = np.delete(quality, rows, axis=0).mean(axis=0)
        names, costs = list("abcdefgh"), np.array([1.0, 2.0, 3.0])
        choice = stacking.choose_weights(
            names, estimates, quality - means, quality, folds, costs
        )
        honest[seed] = stacking.gain_over_mix(choice.estimate, quality, costs).mean()
        picked[seed] = max(member.gain for member in choice.compared)
    assert honest.mean() < 2 * honest.std() / np.sqrt(30)
    lead = picked - honest
    assert lead.mean() > 3 * lead.std() / np.sqrt(30)


def test_a_copy_answers_the_same_and_holds_plain_arrays():
    X, Q, _ = log(200)
    model = QualityRegressor(cv=3).fit(X, Q)
    content = pickle.dumps(model)
    np.testing.assert_array_equal(pickle.loads(content).predict(X), model.predict(X))
    for name in (b"_members", b"_corrections", b"_uncertainty", b"Compared"):
        assert name not in content
    assert pickle.loads(content).compared_ == model.compared_


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_features_of_any_scale_are_read(scale):
    X, Q, _ = log(100)
    model = QualityRegressor(cv=2).fit(X * scale, Q)
    found = model.predict(X * scale)
    assert np.isfinite(found).all() and found.std() > 0.05
    # Estimates stay in the range seen.
    model = QualityRegressor(family=["linear"], cv=2).fit(X * scale, Q)
    found = model.predict(100 * scale * X)
    assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("n", [1, 2, 5, 19])
def test_of_few_rows_the_means_are_the_estimate(n):
    X, Q, _ = log(n)
    np.testing.assert_allclose(
        QualityRegressor().fit(X, Q).predict(X), np.tile(Q.mean(0), (n, 1))
    )
    if n > 1:
        folds = [(np.arange(1, n), [0]), ([0], np.arange(1, n))]
        found = QualityRegressor().cross_fit(X, Q, folds=folds)
        np.testing.assert_allclose(
            found, [Q[1:].mean(axis=0), *np.tile(Q[0], (n - 1, 1))]
        )


@pytest.mark.parametrize("family", [[], ["forest"], ["trees", "trees"]])
def test_an_unknown_family_is_refused(family):
    X, Q, _ = log(30)
    with pytest.raises(ValueError, match="family must be a list of different members"):
        QualityRegressor(family=family).fit(X, Q)


def test_estimates_that_hardly_vary_are_not_multiplied():
    """All that varies stands in one fold: for that fold the others know rounding alone."""
    rng = np.random.default_rng(0)
    estimates = np.zeros((3, 40, 2))
    estimates[:, :20] = 1e3 * rng.normal(size=(3, 20, 2))
    estimates[:, 20:] = 1e-7 * rng.normal()
    outcomes = estimates[0] + rng.normal(size=(40, 2))
    weights = stacking.stacked_weights(estimates[:, 20:], outcomes[20:], [0, 1, 2])
    assert np.max(weights) <= 2
