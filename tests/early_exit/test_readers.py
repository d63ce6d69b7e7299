"""The full evaluation equals the library's own prediction."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
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
xgb = pytest.importorskip("xgboost")


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


EXTREME = np.array(
    [[np.inf] * 8, [-np.inf] * 8, [1e300] * 8, [-1e300] * 8, [0.0] * 8, [1e-36] * 8]
)


def assert_layouts_agree(engine, X):
    expected = member_scores_reference(engine.forest, rows_of(engine.forest, X))
    np.testing.assert_allclose(engine.member_scores(X), expected, rtol=1e-6, atol=1e-7)
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
    strange[:20, 0] = [
        70,
        71,
        500,
        -1,
        -0.5,
        0.7,
        1e9,
        3e9,
        -3e9,
        np.nan,
        31,
        32,
        33,
    ] + [2.9] * 7
    engine, _ = ensemble_engine(model)
    assert engine.forest.trees.special
    expected = model.predict(strange, raw_score=True).reshape(len(strange), -1)
    np.testing.assert_allclose(
        full_scores(engine, strange), expected, rtol=1e-12, atol=1e-12
    )
    assert_layouts_agree(engine, strange)


def test_models_that_stopped_early_end_at_their_best_iteration():
    X, y = data()
    model = xgb.XGBClassifier(
        n_estimators=60, learning_rate=0.5, early_stopping_rounds=3, n_jobs=1
    )
    model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], verbose=False)
    engine, _ = ensemble_engine(model)
    assert engine.n_members == model.best_iteration + 1 < 60
    expected = model.predict(X, output_margin=True)
    np.testing.assert_allclose(full_scores(engine, X)[:, 0], expected, atol=1e-5)
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
    scores = engine.member_scores(X)
    for member, call in engine.timed_calls().items():
        np.testing.assert_array_equal(call(X)[0], scores[member])


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
    np.testing.assert_allclose(
        full_scores(engine, queries), expected, rtol=1e-12, atol=1e-12
    )
    assert_layouts_agree(engine, queries)
    np.testing.assert_allclose(
        full_scores(engine, queries.tolist()), expected, atol=1e-12
    )


def test_models_that_are_refused():
    X, y = data()
    quiet = {"n_estimators": 2, "verbose": -1, "n_jobs": 1}
    forest = RandomForestClassifier(2)
    for model, message in (
        (
            lgb.LGBMRegressor(**quiet).fit(X, y).booster_,
            "with numbers .* must have a classifier",
        ),
        (forest.fit(X, np.column_stack([y, y])), "Multi-output"),
        (
            xgb.XGBClassifier(n_estimators=2, missing=0.0).fit(X, y),
            "missing=0.0; only NaN is",
        ),
        (
            xgb.XGBClassifier(n_estimators=2, booster="gblinear").fit(X, y),
            "booster='gblinear'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            ensemble_engine(model)


def test_members_by_decision_function_call_or_neither():
    X, y = data()
    ridge = RidgeClassifier().fit(X, y)
    engine = MemberEngine(
        [ridge, lambda rows: rows[:, 0]], np.array([0, 1]), np.ones(2)
    )
    expected = ridge.decision_function(X) + X[:, 0]
    np.testing.assert_allclose(full_scores(engine, X)[:, 0], expected)
    assert engine.link is None
    with pytest.raises(TypeError, match="must have decision_function or predict_proba"):
        MemberEngine([object()], np.array([0, 1]), np.ones(1))
    wide = MemberEngine([lambda rows: rows[:, :3]], np.array([0, 1]), np.ones(1))
    with pytest.raises(
        ValueError, match="gave 3 scores for each row, expected 1"
    ) as caught:
        wide.member_scores(X)
    assert caught.value.__notes__ == [
        "This happened in call of 'member 0' with 600 rows."
    ]


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
    with pytest.raises(
        ValueError, match="rows of one class, .* nothing is to be evaluated"
    ):
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
