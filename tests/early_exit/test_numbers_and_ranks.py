"""Early exit of regressors and rankers: exits, kernels, libraries, and what is promised."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.datasets import make_friedman1
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.early_exit import QWYCRanker, QWYCRegressor, _early_sums
from skroute.early_exit._group_exits import GroupWalk, checkpoints, judge_groups, top_scores
from skroute.early_exit._number_exits import expected_rest, learn_number_exits
from skroute.early_exit._number_kernels import settled_cut
from skroute.forests import read_lightgbm


@pytest.fixture(scope="module")
def boosted():
    """A frozen regressor, and a function that draws rows for it."""

    def draw(n, seed):
        return make_friedman1(n, 6, noise=1.0, random_state=seed)

    model = HistGradientBoostingRegressor(
        max_iter=40, max_leaf_nodes=8, early_stopping=False, random_state=0
    ).fit(*draw(1500, 0))
    return FrozenEstimator(model), draw


def shares(quick, draw, seed):
    """Share of fresh rows that are predicted too far away."""
    rows = draw(4000, seed)[0]
    change = np.abs(quick.predict(rows) - quick.estimator_.predict(rows))
    return np.mean(change > quick.tol)


# Numbers --------------------------------------------------------------------------------


def test_early_exit_saves_members_and_keeps_its_word(boosted):
    frozen, draw = boosted
    quick = QWYCRegressor(frozen, tol=1.5, alpha=0.05, random_state=0).optimize(draw(4000, 1)[0])
    rows = draw(4000, 2)[0]
    y_pred, members, cost = quick.predict_routed(rows)
    assert cost.mean() < 30 and len(np.unique(members)) > 3
    full = frozen.predict(rows)
    assert 0.01 < np.mean(np.abs(y_pred - full) > 1.5) < 0.07
    # Of those that went to the end, the library's own.
    np.testing.assert_allclose(y_pred[members == 40], full[members == 40], rtol=1e-12)
    assert quick.disagreement_ <= 0.05 < quick.disagreement_bound_
    np.testing.assert_array_equal(np.sort(quick.order_), np.arange(40))


def test_the_walk_is_the_sum_that_its_thresholds_say(boosted):
    frozen, draw = boosted
    quick = QWYCRegressor(frozen, tol=1.5, alpha=0.05, random_state=0).optimize(draw(3000, 1)[0])
    rows = draw(700, 3)[0]
    staged = np.array(list(frozen.estimator.staged_predict(rows)))
    added = np.diff(staged, axis=0, prepend=frozen.estimator._baseline_prediction.item())
    sums = np.cumsum(added[quick.order_], axis=0) + frozen.estimator._baseline_prediction.item()
    exits = quick._exits
    for i, (y_pred, members, _) in enumerate(zip(*quick.predict_routed(rows))):
        outside = (sums[:-1, i] < quick.thresholds_[:-1, 0]) | (
            sums[:-1, i] > quick.thresholds_[:-1, 1]
        )
        r = int(np.argmax(outside)) if outside.any() else 39
        assert members == r + 1
        left = exits.shift[r] + exits.slope[r] * sums[r, i] if outside.any() else sums[r, i]
        assert y_pred == pytest.approx(left, rel=1e-9)


def test_what_is_expected_of_the_rest_is_least_squares():
    sums = np.cumsum(np.random.default_rng(0).normal(size=(6, 200)), axis=0)
    sums[0] = 2.0
    found = expected_rest(sums)
    for r in range(1, 6):
        slope, shift = np.polyfit(sums[r], sums[-1], 1)
        assert (found.slope[r], found.shift[r]) == pytest.approx((slope, shift))
    assert found.slope[0] == 1 and found.shift[0] + 2 == pytest.approx(sums[-1].mean())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10_000))
def test_the_cut_of_a_position_is_the_best_of_all(n, seed):
    rng = np.random.default_rng(seed)
    x, wrong = rng.integers(0, 5, n).astype(float), rng.random(n) * (rng.random(n) < 0.6)
    to_go, price = rng.random(n), 2.0
    lo, hi = settled_cut(x, np.argsort(x), np.arange(n), wrong, to_go, price)

    def saved(lo, hi):
        out = (x < lo) | (x > hi)
        return np.sum((to_go - price * wrong)[out])

    cuts = [-np.inf, *(np.arange(6) - 0.5), np.inf]
    best = max(saved(a, b) for a in cuts for b in cuts)
    assert saved(lo, hi) == pytest.approx(best, abs=1e-8)
    assert settled_cut.py_func(x, np.argsort(x), np.arange(n), wrong, to_go, price) == (lo, hi)


LIBRARIES = {
    "random forest": RandomForestRegressor(12, max_depth=4, random_state=0),
    "extra trees": ExtraTreesRegressor(12, max_depth=4, random_state=0),
    "gradient boosting": GradientBoostingRegressor(n_estimators=15, random_state=0),
    "histograms, poisson": HistGradientBoostingRegressor(max_iter=15, loss="poisson"),
    "pipeline": make_pipeline(
        StandardScaler(), GradientBoostingRegressor(n_estimators=15, random_state=0)
    ),
    "lightgbm": ("lightgbm", "LGBMRegressor", {"n_estimators": 15, "verbose": -1}),
    "lightgbm, tweedie": (
        "lightgbm",
        "LGBMRegressor",
        {"n_estimators": 15, "verbose": -1, "objective": "tweedie"},
    ),
    "xgboost": ("xgboost", "XGBRegressor", {"n_estimators": 15}),
    "catboost": (
        "catboost",
        "CatBoostRegressor",
        {"iterations": 15, "verbose": 0, "allow_writing_files": False},
    ),
}


def library(name):
    given_ = LIBRARIES[name]
    if not isinstance(given_, tuple):
        return given_
    return getattr(pytest.importorskip(given_[0]), given_[1])(**given_[2])


@pytest.mark.parametrize("name", LIBRARIES)
def test_libraries(name):
    X, y = make_friedman1(900, 5, random_state=0)
    model = library(name)
    quick = QWYCRegressor(model, tol=0.3 * y.std(), alpha=0.2, random_state=0).fit(X, y)
    rows = make_friedman1(500, 5, random_state=1)[0]
    full = np.ravel(quick.estimator_.predict(rows))
    whole = quick.predict_routed(rows, budget=None)
    assert whole.cost.mean() < len(quick.order_)
    assert np.mean(np.abs(whole.y_pred - full) > quick.tol) < 0.3
    # The other end of the path: every member.
    with pytest.warns(UserWarning, match="No early exit keeps alpha=0.0 on 225 calibration rows"):
        exact = QWYCRegressor(FrozenEstimator(quick.estimator_), tol=0.3, alpha=0.0).optimize(X)
    np.testing.assert_allclose(exact.predict(rows), full, rtol=1e-5)
    assert (exact.route(rows) == len(exact.order_)).all() and exact.disagreement_bound_ == 0


def test_boosters_need_no_target():
    lgb = pytest.importorskip("lightgbm")
    X, y = make_friedman1(600, 5, random_state=0)
    booster = lgb.train({"verbose": -1}, lgb.Dataset(X, y), 20)
    quick = QWYCRegressor(booster, tol=1.0, alpha=0.1, random_state=0).optimize(X)
    assert quick.predict_cost(X).mean() < 20
    assert np.mean(np.abs(quick.predict(X) - booster.predict(X)) > 1) < 0.15


def broken_bounds(quick, draw, n_draws):
    """Draws of calibration rows after which more rows change than were promised."""
    above = 0
    for seed in range(n_draws):
        quick.set_params(random_state=seed)
        quick.optimize(draw(700, 100 + seed)[0])
        above += shares(quick, draw, 1000 + seed) > quick.alpha
    return above


def test_the_guarantee_holds_over_fresh_draws_and_its_absence_is_seen(boosted, monkeypatch):
    frozen, draw = boosted
    n_draws, miss = 30, 0.2
    quick = QWYCRegressor(frozen, tol=1.5, alpha=0.08, confidence=1 - miss, guarantee=True)
    limit = binom.ppf(0.999, n_draws, miss)
    assert broken_bounds(quick, draw, n_draws) <= limit
    # Half as much again may be wrong on the calibration rows: what the exact bound is for.
    monkeypatch.setattr(_early_sums, "allowed_wrong", lambda n, alpha, *_: int(1.5 * alpha * n))
    assert broken_bounds(quick, draw, n_draws) > limit


def test_the_expected_share_meets_alpha(boosted):
    frozen, draw = boosted
    found = []
    for seed in range(12):
        quick = QWYCRegressor(frozen, tol=1.5, alpha=0.05, random_state=seed)
        found.append(shares(quick.optimize(draw(900, 300 + seed)[0]), draw, 2000 + seed))
    assert np.mean(found) <= 0.05 + 2.5 * np.std(found) / np.sqrt(12)
    assert np.mean(found) > 0.02


def test_a_budget_takes_more_hurried_thresholds(boosted):
    frozen, draw = boosted
    X = draw(3000, 1)[0]
    quick = QWYCRegressor(frozen, tol=1.5, alpha=0.05, random_state=0).optimize(X)
    half = quick.predict_routed(X, budget=0.6 * quick.predict_cost(X).mean())
    assert half.cost.mean() < 0.65 * quick.predict_cost(X).mean()
    with pytest.raises(ValueError, match="smallest feasible budget"):
        quick.predict(X, budget=0.5 * quick.min_budget_)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (HistGradientBoostingClassifier(), "use QWYCEnsemble"),
        (AdaBoostRegressor(), "estimator must be a regressor or ranker"),
        (None, "estimator must be a regressor or ranker"),
    ],
)
def test_what_is_no_sum_of_trees_is_refused(estimator, message):
    for kind in (QWYCRegressor(estimator, tol=1.0), QWYCRanker(estimator)):
        with pytest.raises(TypeError, match=message):
            kind.fit(np.zeros((20, 2)), np.arange(20.0))


def test_policies_go_from_cautious_to_hurried():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(12, 500)) * np.geomspace(1, 0.02, 12)[:, None]
    _, _, policies = learn_number_exits(scores, 0.0, lambda x: x, 0.2)
    sums = np.cumsum(scores, axis=0)
    members = [policy.leaving(sums)[0].mean() for policy in policies]
    assert members[0] == 11 and members[-1] < members[1] - 1
    assert np.mean(np.diff(members) > 0.2) < 0.1


# Ranks ----------------------------------------------------------------------------------


def queries(n_groups, seed, n_rows=(5, 60)):
    """Rows in groups of many sizes, and a relevance that depends on two columns."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(*n_rows, n_groups))
    X = rng.normal(size=(len(groups), 6))
    relevance = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * rng.normal(size=len(X))
    return X, np.clip(np.rint(relevance + 1), 0, 4).astype(int), groups


@pytest.fixture(scope="module")
def ranker():
    X, y, _ = queries(120, 0)
    model = HistGradientBoostingRegressor(
        max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=0
    )
    return FrozenEstimator(model.fit(X, y))


def tops(score, groups, k):
    """For each group its first rows, in order."""
    found = {}
    for group in np.unique(groups):
        at = np.flatnonzero(groups == group)
        found[group] = at[np.argsort(-score[at], kind="stable")][:k].tolist()
    return found


def test_the_top_stays_where_it_was(ranker):
    X, _, groups = queries(400, 1)
    quick = QWYCRanker(ranker, k=4, alpha=0.05, random_state=0).optimize(X, groups)
    X, _, groups = queries(400, 2)
    order = np.random.default_rng(0).permutation(len(X))
    X, groups = X[order], groups[order]
    y_pred, members, cost = quick.predict_routed(X, groups=groups)
    assert cost.mean() < 35 and (cost == members).all()
    mine, theirs = tops(y_pred, groups, 4), tops(ranker.predict(X), groups, 4)
    differ = np.mean([mine[group] != theirs[group] for group in mine])
    assert 0.005 < differ < 0.08
    # Full scores are the library's, and at least four of each group have one.
    full = members == 60
    np.testing.assert_allclose(y_pred[full], ranker.predict(X)[full], rtol=1e-12)
    assert min(np.bincount(groups, full)[np.bincount(groups) >= 4]) >= 4
    # Labels of groups mean nothing, and one group is the default.
    again = quick.predict(X, groups=np.array([f"query {g}" for g in groups]))
    np.testing.assert_array_equal(y_pred, again)
    one = groups == 7
    np.testing.assert_array_equal(quick.predict(X[one]), y_pred[one])


@pytest.mark.parametrize("n_leaves", [6, 100])
def test_the_walk_of_groups_is_what_its_gaps_say(n_leaves):
    lgb = pytest.importorskip("lightgbm")
    X, y, groups = queries(60, 3)
    parameters = {"verbose": -1, "num_leaves": n_leaves, "min_data_in_leaf": 2}
    booster = lgb.train(parameters, lgb.Dataset(X, y), 30)
    forest = read_lightgbm(booster)
    ends = checkpoints(30)
    gaps = np.full(len(ends), -0.4)
    score, members = GroupWalk(forest).walk(X, groups, gaps, 3)
    sums = np.stack([booster.predict(X, num_iteration=int(end)) for end in ends])
    rows, expected = np.arange(len(X)), np.full(len(X), 30)
    for total, last in zip(sums[:-1], ends):
        kth = [np.sort(total[rows[groups[rows] == g]])[-3:][0] for g in groups[rows]]
        small = np.array([np.sum(groups[rows] == g) < 3 for g in groups[rows]])
        leaves = (total[rows] - kth < -0.4) & ~small
        expected[rows[leaves]] = last
        rows = rows[~leaves]
    np.testing.assert_array_equal(members, expected)
    at = np.searchsorted(ends, members)
    np.testing.assert_allclose(score, sums[at, np.arange(len(X))], rtol=1e-9)
    cost, changed = judge_groups([gaps], sums, ends, groups, 3)
    assert cost[0] == pytest.approx(members.mean())
    kept = np.where(members == 30, sums[-1], -np.inf)
    same = np.isclose(top_scores(kept, groups, 3), top_scores(sums[-1], groups, 3))
    np.testing.assert_array_equal(changed[0], [not same[groups == g].all() for g in range(60)])


def test_threads_change_nothing(ranker, monkeypatch):
    from skroute.early_exit import _group_exits

    X, _, groups = queries(150, 4)
    quick = QWYCRanker(ranker, k=4, alpha=0.1, random_state=0).optimize(X, groups)
    monkeypatch.setattr(_group_exits, "_CHUNK", 500)
    one = quick.predict(X, groups=groups)
    np.testing.assert_array_equal(one, quick.set_params(n_jobs=2).predict(X, groups=groups))


@pytest.mark.parametrize(
    ("package", "name", "parameters"),
    [
        ("lightgbm", "LGBMRanker", {"n_estimators": 15, "verbose": -1}),
        ("xgboost", "XGBRanker", {"n_estimators": 15}),
        (
            "catboost",
            "CatBoostRanker",
            {"iterations": 15, "verbose": 0, "allow_writing_files": False},
        ),
    ],
)
def test_rankers_get_their_groups(package, name, parameters):
    cls = getattr(pytest.importorskip(package), name)
    X, y, groups = queries(200, 5)
    order = np.random.default_rng(1).permutation(len(X))
    quick = QWYCRanker(cls(**parameters), k=3, alpha=0.2, random_state=0)
    quick.fit(X[order], y[order], groups=groups[order])
    X, y, groups = queries(100, 6)
    y_pred, _, cost = quick.predict_routed(X, groups=groups)
    assert cost.mean() < 15
    mine, theirs = tops(y_pred, groups, 3), tops(quick.estimator_.predict(X), groups, 3)
    assert np.mean([mine[group] != theirs[group] for group in mine]) < 0.35
    # It learned to rank.
    assert quick.score(X, y, groups=groups) > 0.4


def test_the_guarantee_of_groups_holds_and_its_absence_is_seen(ranker, monkeypatch):
    def broken(n_draws):
        above = 0
        for seed in range(n_draws):
            X, _, groups = queries(240, 100 + seed, (10, 30))
            quick = QWYCRanker(
                ranker, k=3, alpha=0.1, confidence=0.8, guarantee=True, random_state=seed
            ).optimize(X, groups)
            X, _, groups = queries(400, 1000 + seed, (10, 30))
            mine = tops(quick.predict(X, groups=groups), groups, 3)
            theirs = tops(ranker.predict(X), groups, 3)
            above += np.mean([mine[group] != theirs[group] for group in mine]) > 0.1
        return above

    limit = binom.ppf(0.999, 15, 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert broken(15) <= limit
        monkeypatch.setattr(_early_sums, "allowed_wrong", lambda n, alpha, *_: int(2 * alpha * n))
        assert broken(15) > limit


def test_groups_of_few_rows_and_single_groups_are_evaluated_in_full(ranker):
    X, _, groups = queries(30, 8, (2, 5))
    with pytest.warns(UserWarning, match="on 8 calibration groups"):
        quick = QWYCRanker(ranker, k=10, random_state=0).optimize(X, groups)
    assert (quick.route(X, groups=groups) == 60).all()
    with pytest.warns(UserWarning, match="on 0 calibration groups"):
        quick = QWYCRanker(ranker, random_state=0).optimize(X)
    assert (quick.route(X) == 60).all()


def test_groups_must_fit_the_rows(ranker):
    X, _, groups = queries(30, 8)
    with pytest.raises(ValueError, match=f"one entry for each of the {len(X)} rows"):
        QWYCRanker(ranker).optimize(X, groups[1:])


@pytest.mark.parametrize("method", ["fit", "optimize"])
def test_missing_values_that_a_step_before_the_ensemble_reads(method):
    X, y = make_friedman1(300, random_state=0)
    X[::7, 3] = np.nan
    model = make_pipeline(SimpleImputer(), GradientBoostingRegressor(n_estimators=5))
    quick = QWYCRegressor(model if method == "fit" else FrozenEstimator(model.fit(X, y)), tol=1e-9)
    quick = quick.fit(X, y) if method == "fit" else quick.optimize(X)
    np.testing.assert_allclose(quick.predict(X), quick.estimator_.predict(X), atol=1e-8)
