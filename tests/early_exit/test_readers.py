"""The full evaluation equals the library's own prediction."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import RidgeClassifier

from skroute.early_exit import QWYCEnsemble
from skroute.early_exit._algorithms import checked, never
from skroute.early_exit._engines import MemberEngine, ensemble_engine
from skroute.forests._rows import rows_of
from tests.early_exit.reference import member_scores_reference

lgb = pytest.importorskip("lightgbm")


def full_scores(engine, X):
    thresholds = checked(never(engine.n_members), engine.n_members)
    score, members, _ = engine.walk(X, thresholds)
    assert np.all(members == engine.n_members)
    return score


def data(n_classes=2, n=600, seed=0):
    X, y = make_classification(
        n, 8, n_informative=6, n_redundant=0, n_classes=n_classes, random_state=seed
    )
    return X, y


def with_missing(X, seed=0):
    rng = np.random.RandomState(seed)
    X = X.copy()
    X[rng.rand(*X.shape) < 0.15] = np.nan
    return X


EXTREME = np.array([[np.inf] * 8, [-np.inf] * 8, [1e300] * 8, [-1e300] * 8, [0.0] * 8, [1e-36] * 8])


def assert_layouts_agree(engine, X):
    expected = member_scores_reference(engine.forest, rows_of(engine.forest, X))
    np.testing.assert_allclose(engine.scores(X), expected, rtol=1e-6, atol=1e-7)
    full = full_scores(engine, X)
    np.testing.assert_allclose(full, engine.offset + expected.sum(axis=0), atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbm_categories_unseen_ones_and_fractions(n_classes):
    X, y = data(n_classes)
    rng = np.random.RandomState(0)
    X[:, 0] = (y * 13 + rng.randint(0, 30, len(y))) % 71
    X[:, 1] = rng.randint(0, 4, len(y))
    model = lgb.LGBMClassifier(
        n_estimators=12, verbose=-1, n_jobs=1, min_data_per_group=2, cat_smooth=1
    ).fit(X, y, categorical_feature=[0, 1])
    strange = np.vstack([X, with_missing(X), EXTREME])
    strange[:20, 0] = [70, 71, 500, -1, -0.5, 0.7, 1e9, 3e9, -3e9, np.nan, 31, 32, 33] + [2.9] * 7
    engine, _ = ensemble_engine(model)
    assert engine.forest.trees.special
    expected = model.predict(strange, raw_score=True).reshape(len(strange), -1)
    np.testing.assert_allclose(full_scores(engine, strange), expected, rtol=1e-12, atol=1e-12)
    assert_layouts_agree(engine, strange)


def test_lightgbm_stops_at_its_best_iteration():
    X, y = data()
    booster = lgb.train(
        {"objective": "binary", "learning_rate": 0.5, "verbose": -1, "num_threads": 1},
        lgb.Dataset(X[:400], y[:400]),
        num_boost_round=200,
        valid_sets=[lgb.Dataset(X[400:], y[400:])],
        callbacks=[lgb.early_stopping(3, verbose=False)],
    )
    engine, classes = ensemble_engine(booster)
    assert classes is None
    assert engine.n_members == booster.best_iteration
    expected = booster.predict(X, raw_score=True)
    np.testing.assert_allclose(full_scores(engine, X)[:, 0], expected, atol=1e-12)
    # What is timed of a member is that member.
    scores = engine.scores(X)
    for member, call in engine.member_calls().items():
        np.testing.assert_array_equal(call(X)[0], scores[member])


def test_lightgbm_data_frame_with_a_constant_category():
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame["b"] = pd.Categorical(np.where(y + X[:, 0] > 0.7, "red", "blue"))
    frame["d"] = pd.Categorical(["same"] * len(y))
    model = lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(frame, y)
    with pytest.raises(ValueError, match="train on codes instead"):
        ensemble_engine(model)


def test_lightgbm_refuses_what_is_no_classifier():
    X, y = data()
    regressor = lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, y)
    with pytest.raises(ValueError, match="with numbers .* must have a classifier"):
        ensemble_engine(regressor.booster_)


def test_exponential_loss_has_its_own_link():
    X, y = data()
    model = GradientBoostingClassifier(n_estimators=5, loss="exponential", random_state=0)
    assert ensemble_engine(model.fit(X, y))[0].link.slope == 2.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hist_gradient_boosting_missing_categories_and_extreme_values(n_classes):
    X, y = data(n_classes)
    rng = np.random.RandomState(0)
    X[:, 2] = (y + rng.randint(0, 20, len(y))) * 3.0
    X[:, 5] = rng.randint(0, 5, len(y))
    X = with_missing(X)
    model = HistGradientBoostingClassifier(
        max_iter=15, categorical_features=[2, 5], min_samples_leaf=5, random_state=0
    ).fit(X, y)
    queries = np.vstack([X, EXTREME])
    # scikit-learn refuses infinite categories.
    queries[-6:, [2, 5]] = 3.0
    queries[:6, 2] = [-1, 1e6, np.nan, 0.5, 1, 300]
    engine, _ = ensemble_engine(model)
    expected = model.decision_function(queries).reshape(len(queries), -1)
    np.testing.assert_allclose(full_scores(engine, queries), expected, rtol=1e-12, atol=1e-12)
    assert_layouts_agree(engine, queries)
    np.testing.assert_allclose(full_scores(engine, queries.tolist()), expected, atol=1e-12)


def test_missing_values_that_fit_did_not_see():
    X, y = data()
    queries = with_missing(X)
    model = RandomForestClassifier(n_estimators=9, random_state=0).fit(X, y)
    engine, _ = ensemble_engine(model)
    expected = 9 * (model.predict_proba(queries)[:, 1] - 0.5)
    np.testing.assert_allclose(full_scores(engine, queries)[:, 0], expected)
    with pytest.raises(ValueError, match="X has 7 features, but the ensemble was trained on 8"):
        rows_of(engine.forest, X[:, :7])


def test_forests_of_several_outputs_are_refused():
    X, y = data()
    two = RandomForestClassifier(n_estimators=2).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="Multi-output"):
        ensemble_engine(two)


def test_members_by_decision_function_call_or_neither():
    X, y = data()
    ridge = RidgeClassifier().fit(X, y)
    engine = MemberEngine([ridge, lambda rows: rows[:, 0]], np.array([0, 1]), np.ones(2))
    expected = ridge.decision_function(X) + X[:, 0]
    np.testing.assert_allclose(full_scores(engine, X)[:, 0], expected)
    assert engine.link is None
    with pytest.raises(TypeError, match="must have decision_function or predict_proba"):
        MemberEngine([object()], np.array([0, 1]), np.ones(1))
    wide = MemberEngine([lambda rows: rows[:, :3]], np.array([0, 1]), np.ones(1))
    with pytest.raises(ValueError, match="gave 3 scores for each row, expected 1") as caught:
        wide.scores(X)
    assert caught.value.__notes__ == ["This happened in call of 'member 0' with 600 rows."]


def test_xgboost_categories_and_early_stopping():
    xgb = pytest.importorskip("xgboost")
    X, y = data()
    X[:, 0] = (y * 7 + np.random.RandomState(0).randint(0, 40, len(y))) % 45
    kinds = ["c"] + ["q"] * 7
    model = xgb.XGBClassifier(
        n_estimators=60,
        learning_rate=0.5,
        n_jobs=1,
        feature_types=kinds,
        enable_categorical=True,
        max_cat_to_onehot=2,
        early_stopping_rounds=3,
    ).fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], verbose=False)
    engine, _ = ensemble_engine(model)
    assert engine.n_members == model.best_iteration + 1
    assert engine.forest.trees.special
    queries = X.copy()
    queries[:3, 0] = np.nan
    expected = model.predict(queries, output_margin=True)
    np.testing.assert_allclose(full_scores(engine, queries)[:, 0], expected, atol=1e-5)


def test_xgboost_refusals():
    xgb = pytest.importorskip("xgboost")
    X, y = data()
    model = xgb.XGBClassifier(n_estimators=2, missing=0.0, n_jobs=1).fit(X, y)
    with pytest.raises(ValueError, match=re.escape("missing=0.0; only NaN is supported")):
        ensemble_engine(model)
    model = xgb.XGBClassifier(n_estimators=2, booster="gblinear", n_jobs=1).fit(X, y)
    with pytest.raises(ValueError, match="booster='gblinear'"):
        ensemble_engine(model)


@pytest.mark.parametrize(
    "model",
    [
        partial(lgb.LGBMClassifier, n_estimators=3, verbose=-1, n_jobs=1),
        partial(HistGradientBoostingClassifier, max_iter=3),
        partial(AdaBoostClassifier, n_estimators=3),
    ],
)
def test_boosting_of_one_class_says_so(model):
    X = np.random.RandomState(0).rand(60, 2)
    with pytest.raises(ValueError, match="rows of one class, .* nothing is to be evaluated"):
        ensemble_engine(model().fit(X, np.full(60, "b")))
    forest = RandomForestClassifier(3, random_state=0).fit(X, np.full(60, "b"))
    assert ensemble_engine(forest)[1].tolist() == ["b"]


def test_an_error_of_our_own_walk_is_no_refusal_of_the_library(monkeypatch):
    def fail(self, X, thresholds, n_jobs=None):
        raise ValueError("our own error")

    X, y = make_classification(200, random_state=0)
    monkeypatch.setattr("skroute.early_exit._forest_engine.ForestEngine.walk", fail)
    with pytest.raises(ValueError, match="our own error"):
        QWYCEnsemble(RandomForestClassifier(5, random_state=0)).fit(X, y)
