"""The default estimate of quality: its members, weights, comparison and guarantees."""

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
from skroute.quality._gains import SHARES, gain_over_mix
from skroute.quality._members import (
    MEMBERS,
    SummedTrees,
    pack,
    shared_ridge,
    unpack,
    weigh_outputs,
)
from skroute.quality._stacking import choose_weights, stacked_weights


def log(n_rows=300, seed=0):
    """Return rows, right or wrong of three models, and the probabilities of right."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, 4))
    p = 1 / (1 + np.exp(-1.5 * X @ rng.standard_normal((4, 3))))
    return X, (rng.random((n_rows, 3)) < p).astype(float), p


def folds_of(fold_of_row, n_folds):
    """Return for each fold the rows outside of it and its rows."""
    folds = []
    for fold in range(n_folds):
        is_inside = fold_of_row == fold
        folds.append((np.flatnonzero(~is_inside), np.flatnonzero(is_inside)))
    return folds


@settings(deadline=None, max_examples=40)
@given(
    n_rows=st.integers(2, 80),
    n_outputs=st.integers(1, 3),
    is_discrete=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_walk_of_trees_is_scikit_learns(n_rows, n_outputs, is_discrete, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n_rows, 3))
    if is_discrete:
        X = rng.integers(0, 3, (2 * n_rows, 3))
    X = X.astype(np.float32)
    Y = rng.standard_normal((n_rows, n_outputs))
    target = Y[:, 0] if n_outputs == 1 else Y
    peer = ExtraTreesRegressor(5, random_state=seed).fit(X[:n_rows], target)
    # A new row that is equal to a threshold.
    X[n_rows] = peer.estimators_[0].tree_.threshold[0].astype(np.float32)
    trees = [SummedTrees.from_trees([tree], 1 / 5) for tree in peer.estimators_]
    estimates = SummedTrees.sum_of(trees).predict(X)
    expected = peer.predict(X).reshape(-1, n_outputs)
    np.testing.assert_allclose(estimates, expected, atol=1e-6)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_weighted_in_level_and_difference(name):
    X, Q, _ = log(150)
    rows = X.astype(np.float32)
    member = MEMBERS[name](rows, Q - Q.mean(axis=0), 0)
    plain = member.predict(rows)
    assert plain.shape == Q.shape
    expected = weigh_outputs(plain, 0.3, 0.7)
    weighted = member.weighted(0.3, 0.7)
    np.testing.assert_allclose(weighted.predict(rows), expected, atol=1e-4)
    unpacked = unpack(*pack(weighted))
    np.testing.assert_allclose(unpacked.predict(rows), expected, atol=2e-3)


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
    estimates = X @ coef + offset
    centred = X - X.mean(axis=0)
    squares = np.linalg.eigvalsh(centred.T @ centred)
    differences = []
    for alpha in np.geomspace(1e-4, 1e3, 22):
        peer = Ridge(alpha * squares.mean()).fit(X, y)
        differences.append(np.abs(estimates - peer.predict(X)[:, None]).max())
    assert min(differences) < 1e-8


def test_choices_that_are_alike_share_what_they_have_in_common():
    """Nine copies of one choice, with noise: the common factor is shrunk less."""

    def lost_by(X, Y, new, truth):
        coef, offset = shared_ridge(X, Y)
        return ((new @ coef + offset - truth) ** 2).mean()

    rng = np.random.default_rng(0)
    lost = []
    for _ in range(10):
        X = rng.standard_normal((60, 30))
        w = rng.standard_normal((30, 1)) / 5
        Q = X @ w + rng.standard_normal((60, 9))
        new = rng.standard_normal((500, 30))
        alone = [lost_by(X, Q[:, [j]], new, new @ w) for j in range(9)]
        lost.append([lost_by(X, Q, new, new @ w), np.mean(alone)])
    together, alone = np.mean(lost, axis=0)
    assert together < 0.8 * alone


def test_weights_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((200, 3))
    # A member with noise, one of noise alone, and one that is wrong.
    deviations = np.stack(
        [Q + rng.standard_normal(Q.shape), rng.standard_normal(Q.shape), -Q]
    )
    weights = stacked_weights(deviations, Q, [0, 1, 2])
    level = deviations.mean(axis=2, keepdims=True)
    columns = (deviations - level).reshape(3, -1)
    target = (Q - Q.mean(axis=1, keepdims=True)).ravel()
    penalty = 0.02 * (columns**2).sum() / 3

    def loss(w):
        return ((target - w @ columns) ** 2).sum() + penalty * w @ w

    peer = minimize(loss, np.ones(3), bounds=[(0, None)] * 3, tol=1e-12).x
    np.testing.assert_allclose(weights.difference, peer, atol=1e-4)
    assert weights.difference[2] == 0
    of_one_member = stacked_weights(deviations, Q, [1])
    assert of_one_member.used_members().tolist() == [1]


def test_the_gain_is_that_of_decisions_over_the_best_mix():
    """Decisions are compared with the mix of `reference_curves` at equal spend."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        n_choices = rng.integers(1, 6)
        Q, E = rng.random((2, 50, n_choices))
        costs = rng.random(n_choices)
        hull = reference_curves(Q, costs, [costs.max()]).random[0]
        costs_of_best = costs[Q.mean(axis=0) >= hull - 1e-12]
        low = costs.min()
        high = costs_of_best.min()
        if high <= low:
            high = costs.max()
        expected = []
        for budget in low + SHARES * (high - low):
            rule = assignment_path(E, costs).rule(budget)
            assert rule.share == 0
            chosen = choose_at_price(E, costs, rule.price)
            spent = costs[chosen].mean()
            mix = reference_curves(Q, costs, [spent]).random[0]
            expected.append(Q[np.arange(50), chosen].mean() - mix)
        gain = gain_over_mix(E, Q, costs).mean()
        assert gain == pytest.approx(np.mean(expected), abs=1e-9)


def test_rows_that_are_tied_at_the_price_are_mixed():
    """Few kinds of rows: decisions by the true quality gain as much as exact plans."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        kinds = rng.random((3, 4))
        costs = np.sort(rng.random(4))
        Q = np.repeat(kinds, 50, axis=0)
        path = assignment_path(Q, costs)
        high = costs[Q.mean(axis=0).argmax()]
        if high <= costs[0]:
            high = costs.max()
        plans = []
        for budget in costs[0] + SHARES * (high - costs[0]):
            spent = min(budget, path.budgets[-1])
            plans.append(
                path.objective(spent) - reference_curves(Q, costs, [spent]).random[0]
            )
        gain = gain_over_mix(Q, Q, costs).mean()
        assert gain == pytest.approx(np.mean(plans), abs=1e-9)


def test_decisions_gain_more_than_the_mix_and_less_than_by_the_truth():
    X, Q, p = log(1500)
    model = QualityRegressor().fit(X[:750], Q[:750])
    costs = np.array([1.0, 2.0, 4.0])
    gain = gain_over_mix(model.predict(X[750:]), Q[750:], costs).mean()
    gain_of_truth = gain_over_mix(p[750:], Q[750:], costs).mean()
    assert 0.6 * gain_of_truth < gain < 1.1 * gain_of_truth


def test_estimates_of_noise_are_near_the_means():
    spreads = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((200, 5))
        Q = (rng.random((200, 3)) < 0.5).astype(float)
        model = QualityRegressor(cv=3).fit(X, Q)
        spreads.append(model.predict(X).std(axis=0).mean())
    assert np.median(spreads) < 0.08


def test_estimates_of_its_own_rows_are_out_of_sample():
    """The features identify the row: in-sample estimates would be its outcomes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 40))
    Q = rng.standard_normal((120, 2))
    estimate = QualityRegressor(cv=3).cross_fit(X, Q)
    assert abs(np.corrcoef(estimate.ravel(), Q.ravel())[0, 1]) < 0.25
    # With other outcomes in one fold, the estimates of another fold change.
    fold_of_row = np.arange(120) % 3
    folds = folds_of(fold_of_row, n_folds=3)
    changed = np.where(fold_of_row[:, None] == 1, 1 - Q, Q)
    before = QualityRegressor().cross_fit(X, Q, folds=folds)
    after = QualityRegressor().cross_fit(X, changed, folds=folds)
    in_fold = fold_of_row == 0
    assert not np.array_equal(before[in_fold], after[in_fold])


@pytest.mark.parametrize("n_rows", [12, 80])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_fold_has_a_table_in_which_all_rows_are_estimated_as_its_own(
    n_rows, single, weighted
):
    X, Q, _ = log(n_rows)
    Q = Q[:, 0] if single else Q
    fold_of_row = np.arange(n_rows) % 4
    folds = folds_of(fold_of_row, n_folds=4)
    weight = None
    if weighted:
        # No row of one fold has weight.
        weight = np.where(fold_of_row == 2, 0.0, 1.0 + np.arange(n_rows) % 2)
    model = QualityRegressor(family=["linear"])
    estimate, _, by_fold = model.cross_fit(
        X, Q, folds=folds, sample_weight=weight, return_kept=True, return_by_fold=True
    )
    assert by_fold.shape == (4, *Q.shape)
    for number in range(4):
        rows = fold_of_row == number
        np.testing.assert_array_equal(by_fold[number, rows], estimate[rows])
    _, by_fold_alone = model.cross_fit(
        X, Q, folds=folds, sample_weight=weight, return_by_fold=True
    )
    np.testing.assert_array_equal(by_fold_alone, by_fold)


def test_all_rows_of_a_table_have_one_estimate_if_its_fold_selects_means():
    fold_of_row = np.arange(200) % 5
    folds = folds_of(fold_of_row, n_folds=5)
    chose_means = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 3))
        Q = (rng.random((200, 3)) < [0.3, 0.5, 0.7]).astype(float)
        model = QualityRegressor(family=["linear"])
        _, by_fold = model.cross_fit(X, Q, folds=folds, return_by_fold=True)
        for number, table in enumerate(by_fold):
            has_means = len(np.unique(table[fold_of_row == number], axis=0)) == 1
            assert (len(np.unique(table, axis=0)) == 1) == has_means
            chose_means.append(has_means)
    assert 0 < np.mean(chose_means) < 1


@pytest.mark.slow
def test_the_gain_of_a_selected_member_is_measured_on_other_rows():
    """All members are noise: the best one on some rows gains nothing on other rows."""
    honest = np.empty(30)
    picked = np.empty(30)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        deviations = 0.1 * rng.normal(size=(8, 200, 3))
        quality = (rng.random((200, 3)) < 0.5).astype(float)
        folds = np.array_split(np.arange(200), 5)
        means = np.empty((200, 3))
        for rows in folds:
            means[rows] = np.delete(quality, rows, axis=0).mean(axis=0)
        names = list("abcdefgh")
        costs = np.array([1.0, 2.0, 3.0])
        selection = choose_weights(
            names, deviations, quality - means, quality, folds, costs
        )
        gain = gain_over_mix(selection.estimate, quality, costs)
        honest[seed] = gain.mean()
        picked[seed] = max(member.gain for member in selection.compared)
    assert honest.mean() < 2 * honest.std() / np.sqrt(30)
    lead = picked - honest
    assert lead.mean() > 3 * lead.std() / np.sqrt(30)


def test_a_copy_has_the_same_estimates_and_its_pickle_has_plain_arrays():
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
    estimates = model.predict(X * scale)
    assert np.isfinite(estimates).all()
    assert estimates.std() > 0.05
    # Estimates stay in the range of the outcomes.
    model = QualityRegressor(family=["linear"], cv=2).fit(X * scale, Q)
    estimates = model.predict(100 * scale * X)
    assert 0 <= estimates.min() <= estimates.max() <= 1


@pytest.mark.parametrize("n_rows", [1, 2, 5, 19])
def test_the_estimates_of_few_rows_are_the_means(n_rows):
    X, Q, _ = log(n_rows)
    estimates = QualityRegressor().fit(X, Q).predict(X)
    np.testing.assert_allclose(estimates, np.tile(Q.mean(axis=0), (n_rows, 1)))
    if n_rows > 1:
        first = [0]
        others = np.arange(1, n_rows)
        folds = [(others, first), (first, others)]
        estimates = QualityRegressor().cross_fit(X, Q, folds=folds)
        np.testing.assert_allclose(estimates[0], Q[1:].mean(axis=0))
        np.testing.assert_allclose(estimates[1:], np.tile(Q[0], (n_rows - 1, 1)))


@pytest.mark.parametrize("family", [[], ["forest"], ["trees", "trees"]])
def test_an_unknown_family_is_refused(family):
    X, Q, _ = log(30)
    with pytest.raises(ValueError, match="family must be a list of different members"):
        QualityRegressor(family=family).fit(X, Q)


def test_estimates_that_hardly_vary_are_not_multiplied():
    """Estimates vary in the first fold only. In the other fold they are rounding."""
    rng = np.random.default_rng(0)
    deviations = np.zeros((3, 40, 2))
    deviations[:, :20] = 1e3 * rng.normal(size=(3, 20, 2))
    deviations[:, 20:] = 1e-7 * rng.normal()
    outcomes = deviations[0] + rng.normal(size=(40, 2))
    weights = stacked_weights(deviations[:, 20:], outcomes[20:], [0, 1, 2])
    assert np.max(weights) <= 2
