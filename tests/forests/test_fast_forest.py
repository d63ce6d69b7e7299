"""FastForest answers as the library of its ensemble does, to the last bit."""

import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, QuantileTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skroute.early_exit import PortableEnsemble, QWYCEnsemble, export_ensemble
from skroute.forests import FastForest
from skroute.forests._lightgbm import LightGBMReader

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
cat = pytest.importorskip("catboost")

CATS = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
QUIET = {"n_jobs": 1, "verbose": -1}


def data(n_classes, seed, missing=False):
    X, y = make_classification(
        400,
        6,
        n_informative=5,
        n_redundant=0,
        n_classes=n_classes or 3,
        random_state=seed,
    )
    X[:, 5] = np.round(X[:, 5])
    X = X.astype(np.float32)  # Trees of single precision read it as it is.
    y = y if n_classes else X[:, 0] * 3 + np.abs(y - X[:, 1]) + 20
    if missing:
        X[np.random.default_rng(seed).random(X.shape) < 0.1] = np.nan
    return X, y


CLASSIFIERS = {
    "lightgbm": lambda n, s: lgb.LGBMClassifier(
        n_estimators=n, random_state=s, **QUIET
    ),
    "lightgbm ova": lambda n, s: lgb.LGBMClassifier(
        n_estimators=n, objective="multiclassova", **QUIET
    ),
    "lightgbm rf": lambda n, s: lgb.LGBMClassifier(
        n_estimators=n, boosting_type="rf", subsample=0.5, subsample_freq=1, **QUIET
    ),
    "lightgbm zero": lambda n, s: lgb.LGBMClassifier(
        n_estimators=n, zero_as_missing=True, sigmoid=1.7, **QUIET
    ),
    "xgboost": lambda n, s: xgb.XGBClassifier(
        n_estimators=n, n_jobs=1, base_score=None
    ),
    "xgboost rf": lambda n, s: xgb.XGBRFClassifier(
        n_estimators=n, n_jobs=1, random_state=s
    ),
    "hist": lambda n, s: HistGradientBoostingClassifier(max_iter=n, random_state=s),
    "forest": lambda n, s: RandomForestClassifier(n, max_depth=4, random_state=s),
    "deep forest": lambda n, s: RandomForestClassifier(n, random_state=s),
    "extra": lambda n, s: ExtraTreesClassifier(n, max_depth=5, random_state=s),
    "bagging": lambda n, s: BaggingClassifier(
        DecisionTreeClassifier(max_depth=3), n, max_features=0.6, random_state=s
    ),
    "gradient": lambda n, s: GradientBoostingClassifier(n_estimators=n, random_state=s),
    "adaboost": lambda n, s: AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=2), n_estimators=n, random_state=s
    ),
}
REGRESSORS = {
    "lightgbm": lambda n, s: lgb.LGBMRegressor(n_estimators=n, **QUIET),
    "lightgbm tweedie": lambda n, s: lgb.LGBMRegressor(
        n_estimators=n, objective="tweedie", **QUIET
    ),
    "xgboost": lambda n, s: xgb.XGBRegressor(n_estimators=n, n_jobs=1),
    "xgboost poisson": lambda n, s: xgb.XGBRegressor(
        n_estimators=n, objective="count:poisson", n_jobs=1
    ),
    "hist": lambda n, s: HistGradientBoostingRegressor(max_iter=n),
    "hist poisson": lambda n, s: HistGradientBoostingRegressor(
        loss="poisson", max_iter=n
    ),
    "forest": lambda n, s: RandomForestRegressor(n, random_state=s),
    "extra": lambda n, s: ExtraTreesRegressor(n, max_depth=4, random_state=s),
    "gradient": lambda n, s: GradientBoostingRegressor(n_estimators=n, random_state=s),
}
MISSING = {
    "lightgbm",
    "lightgbm zero",
    "xgboost",
    "xgboost rf",
    "hist",
    "forest",
    "deep forest",
}


def same(model, fast, rows):
    """Assert that answers to rows together and one by one are equal to the last bit."""
    names = [
        n for n in ("predict", "predict_proba", "decision_function") if hasattr(fast, n)
    ]
    for name in names:
        answers = getattr(fast, name)(rows)
        if hasattr(model, name):
            expected = getattr(model, name)(rows)
            np.testing.assert_array_equal(answers, expected)
            assert answers.dtype == expected.dtype and answers.shape == expected.shape
        for i in range(0, len(rows), 17):
            np.testing.assert_array_equal(
                getattr(fast, name)(rows[i : i + 1])[0], answers[i]
            )
        for few in (2, 47, 48):
            np.testing.assert_array_equal(
                getattr(fast, name)(rows[:few]), answers[:few]
            )


CATBOOST = {
    "classifier": lambda n, kw: cat.CatBoostClassifier(iterations=n, **kw, **CATS),
    "one against all": lambda n, kw: cat.CatBoostClassifier(
        iterations=n, loss_function="MultiClassOneVsAll", **kw, **CATS
    ),
    "regressor": lambda n, kw: cat.CatBoostRegressor(iterations=n, **kw, **CATS),
    "poisson": lambda n, kw: cat.CatBoostRegressor(
        iterations=n, loss_function="Poisson", **kw, **CATS
    ),
    "ranker": lambda n, kw: cat.CatBoostRanker(iterations=n, **kw, **CATS),
    "scores": lambda n, kw: cat.CatBoost(
        {"iterations": n, "loss_function": "Logloss", **kw, **CATS}
    ),
}


@settings(max_examples=18, deadline=None)
@given(
    kind=st.sampled_from(sorted(CATBOOST)),
    n_classes=st.integers(2, 4),
    n=st.integers(1, 12),
    depth=st.sampled_from([1, 2, 6, 9]),
    grow_policy=st.sampled_from(["SymmetricTree"] * 2 + ["Depthwise", "Lossguide"]),
    nan_mode=st.sampled_from(["Min", "Max"]),
    border_count=st.sampled_from([1, 32, 200]),
    seed=st.integers(0, 1000),
    missing=st.booleans(),
    text=st.booleans(),
    frame=st.booleans(),
)
def test_catboost_of_any_kind(
    kind,
    n_classes,
    n,
    depth,
    grow_policy,
    nan_mode,
    border_count,
    seed,
    missing,
    text,
    frame,
):
    """Sums are equal to the last bit. Probabilities have another exponential: 1e-12."""
    classifies = kind in ("classifier", "one against all")
    n_classes = n_classes if classifies else 2 if kind == "scores" else 0
    X, y = data(n_classes, seed, missing)
    y = y if n_classes or not missing else np.nan_to_num(y, nan=20.0)
    if text and classifies:
        y = np.array(["no", "yes", "maybe", "never"])[y]
    if frame:
        X = pd.DataFrame(X, columns=list("abcdef"))
    if grow_policy != "SymmetricTree" and kind == "ranker":
        grow_policy = "SymmetricTree"
    options = {"depth": depth, "nan_mode": nan_mode, "border_count": border_count}
    model = CATBOOST[kind](n, options | {"grow_policy": grow_policy})
    model.fit(X, y, **({"group_id": np.arange(400) // 20} if kind == "ranker" else {}))
    if classifies and n_classes == 2 and seed % 2:
        model.set_probability_threshold(0.1 + 0.8 * (seed % 10) / 10)
    fast = FastForest.from_ensemble(model, X)
    for rows in (X, X[:1], X[:47]):
        if classifies:
            raw = model.predict(rows, prediction_type="RawFormulaVal")
            np.testing.assert_array_equal(fast.decision_function(rows), raw)
            np.testing.assert_array_equal(
                fast.predict(rows), np.ravel(model.predict(rows))
            )
            proba = model.predict_proba(rows)
            np.testing.assert_allclose(fast.predict_proba(rows), proba, rtol=1e-12)
        else:
            np.testing.assert_allclose(
                fast.predict(rows), model.predict(rows), rtol=1e-12
            )
    again = pickle.loads(pickle.dumps(fast))
    np.testing.assert_array_equal(again.predict(X), fast.predict(X))


@settings(max_examples=6, deadline=None)
@given(
    one_hot=st.sampled_from([1, 4, 100]),
    n_classes=st.integers(2, 3),
    text=st.booleans(),
    missing=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_categories_of_xgboost(one_hot, n_classes, text, missing, seed):
    """Partitions and single categories, of frames and of codes."""
    X, y = data(n_classes, seed)
    rng = np.random.default_rng(seed)
    codes = (y * 2 + rng.integers(0, 4, 400)) % 7
    values = np.array(list("uvwxyzt") if text else np.arange(7) * 3 - 5)[codes].astype(
        object
    )
    if missing:
        values[rng.random(400) < 0.1] = None
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(c=pd.Categorical(values))
    model = xgb.XGBClassifier(
        n_estimators=6, enable_categorical=True, max_cat_to_onehot=one_hot, n_jobs=1
    ).fit(frame, y)
    fast = FastForest.from_ensemble(model, frame)
    turned = frame["c"].cat.categories.tolist()[::-1]
    reordered = frame.assign(c=frame["c"].cat.reorder_categories(turned))
    for rows in (frame, frame[:1], reordered):
        np.testing.assert_array_equal(
            fast.predict_proba(rows), model.predict_proba(rows)
        )
    strange = frame[:3].assign(c=pd.Categorical(["vine" if text else 99] * 3))
    with pytest.raises(ValueError, match="Column 2 of X has categories that"):
        fast.predict(strange)
    beyond = frame.assign(c=pd.Categorical(np.where(codes > 3, "ß", "t")))
    wrong = xgb.XGBClassifier(n_estimators=2, enable_categorical=True).fit(beyond, y)
    with pytest.raises(ValueError, match="letters beyond ASCII in column 2"):
        FastForest.from_ensemble(wrong, beyond)
    array = np.column_stack([X, codes]).astype(np.float32)
    array[::9, 6] = np.nan
    types = ["q"] * 6 + ["c"]
    model = xgb.XGBClassifier(
        n_estimators=6,
        enable_categorical=True,
        feature_types=types,
        max_cat_to_onehot=one_hot,
        n_jobs=1,
    ).fit(array, y)
    fast = FastForest.from_ensemble(model, array)
    np.testing.assert_array_equal(fast.predict_proba(array), model.predict_proba(array))


@settings(max_examples=12, deadline=None)
@given(
    objective=st.sampled_from(
        [
            "binary:logistic",
            "multi:softprob",
            "reg:squarederror",
            "count:poisson",
            "rank:ndcg",
        ]
    ),
    seed=st.integers(0, 1000),
    frame=st.booleans(),
)
def test_a_booster_of_xgboost(objective, seed, frame):
    X, y = data(3, seed)
    y = y if objective.startswith("multi") else y % 2
    rows = pd.DataFrame(X, columns=list("abcdef")) if frame else X
    options = {"objective": objective, "nthread": 1, "max_depth": 3}
    options |= {"num_class": 3} if objective.startswith("multi") else {}
    booster = xgb.train(options, xgb.DMatrix(rows, y), 7)
    fast = FastForest.from_ensemble(booster, rows)
    expected = booster.predict(xgb.DMatrix(rows))
    np.testing.assert_array_equal(fast.predict(rows), expected)
    assert not hasattr(fast, "predict_proba")


@settings(max_examples=8, deadline=None)
@example("gradient", StandardScaler(), "auto", 0, False, "decision_function", 0)
@given(
    kind=st.sampled_from(
        ["lightgbm", "xgboost", "hist", "forest", "gradient", "adaboost"]
    ),
    first=st.sampled_from(
        [StandardScaler(), QuantileTransformer(n_quantiles=20), "passthrough"]
    ),
    threshold=st.sampled_from([None, "auto", 0.2, 0.5, 0.85]),
    positive=st.sampled_from([None, 0, 1]),
    inside=st.booleans(),
    response=st.sampled_from(["auto", "predict_proba", "decision_function"]),
    seed=st.integers(0, 1000),
)
def test_pipelines_and_moved_thresholds(
    kind, first, threshold, positive, inside, response, seed
):
    X, y = data(2, seed)
    model = CLASSIFIERS[kind](6, seed)
    if kind in ("lightgbm", "xgboost", "forest") and response == "decision_function":
        response = "auto"

    def moved(model):
        if threshold is None:
            return model
        return FixedThresholdClassifier(
            model, threshold=threshold, pos_label=positive, response_method=response
        )

    model = (
        make_pipeline(first, moved(model))
        if inside
        else moved(make_pipeline(first, model))
    )
    model.fit(X.astype(np.float64), y)
    fast = FastForest.from_ensemble(model, X)
    for rows in (X, X[:1], X[:20].astype(np.float64)):
        np.testing.assert_array_equal(fast.predict(rows), model.predict(rows))
        np.testing.assert_array_equal(
            fast.predict_proba(rows), model.predict_proba(rows)
        )
    again = pickle.loads(pickle.dumps(fast))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    fitted = FastForest(clone(model)).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(X), clone(model).fit(X, y).predict(X))


def test_a_tuned_threshold_and_a_frame_of_text():
    X, y = data(2, 0)
    tuned = TunedThresholdClassifierCV(
        HistGradientBoostingClassifier(max_iter=5), scoring="f1", cv=2
    ).fit(X, 1 - y)
    fast = FastForest.from_ensemble(tuned)
    np.testing.assert_array_equal(fast.predict(X), tuned.predict(X))
    frame = pd.DataFrame({"a": np.array(list("uvw"))[y + (X[:, 0] > 1)], "b": X[:, 1]})
    model = make_pipeline(OrdinalEncoder(), RandomForestClassifier(5, random_state=0))
    model.fit(frame, y)
    fast = FastForest(FrozenEstimator(model)).fit(frame, y)
    np.testing.assert_array_equal(fast.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="prepared by a pipeline: give rows X"):
        FastForest.from_ensemble(model)
    with pytest.raises(ValueError, match="feature names should match"):
        fast.predict(frame[["b", "a"]])


@settings(max_examples=26, deadline=None)
@given(
    kind=st.sampled_from(sorted(CLASSIFIERS)),
    n_classes=st.integers(2, 4),
    n=st.integers(1, 12),
    seed=st.integers(0, 1000),
    missing=st.booleans(),
    text=st.booleans(),
)
def test_a_classifier_of_any_library(kind, n_classes, n, seed, missing, text):
    n_classes = 3 if kind == "lightgbm ova" and n_classes == 2 else n_classes
    X, y = data(n_classes, seed, missing and kind in MISSING)
    model = CLASSIFIERS[kind](n, seed)
    model.fit(
        X,
        np.array(["no", "yes", "maybe", "never"])[y]
        if text and "xgb" not in kind
        else y,
    )
    fast = FastForest.from_ensemble(model, X)
    same(model, fast, X)
    np.testing.assert_array_equal(fast.classes_, model.classes_)
    assert fast.score(X, model.predict(X)) == 1.0
    again = pickle.loads(pickle.dumps(fast))
    np.testing.assert_array_equal(again.predict_proba(X), fast.predict_proba(X))
    assert is_classifier(again) and hasattr(fast, "decision_function") == (
        fast.forest_.answer_rule.kind != "mean"
    )
    if hasattr(model, "booster_") or hasattr(model, "get_booster"):
        raw = (
            {"raw_score": True}
            if hasattr(model, "booster_")
            else {"output_margin": True}
        )
        np.testing.assert_array_equal(
            fast.decision_function(X), model.predict(X, **raw)
        )


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(REGRESSORS)),
    n=st.integers(1, 12),
    seed=st.integers(0, 1000),
    missing=st.booleans(),
)
def test_a_regressor_of_any_library(kind, n, seed, missing):
    X, y = data(0, seed, False)
    # Some losses are of numbers that are not negative.
    model = REGRESSORS[kind](n, seed).fit(X, np.abs(y))
    fast = FastForest.from_ensemble(model)
    if missing and kind in MISSING:
        X[::3, 2] = np.nan
    same(model, fast, X)
    assert is_regressor(fast) and not hasattr(fast, "predict_proba")
    assert not hasattr(fast, "decision_function")
    assert is_regressor(pickle.loads(pickle.dumps(fast)))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "longdouble", "int64"]
)
@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "forest", "hist"])
def test_any_dtype_and_memory_order(kind, dtype):
    X, y = data(2, 0)
    model = CLASSIFIERS[kind](5, 0).fit(X, y)
    fast = FastForest.from_ensemble(model)
    rows = X.astype(dtype)
    plain = rows.astype(np.float64)
    expected = model.predict_proba(plain)
    frozen = rows.copy()
    frozen.setflags(write=False)
    for some in (
        rows,
        np.asfortranarray(rows),
        rows[::-1][::-1],
        frozen,
        rows.tolist(),
    ):
        np.testing.assert_array_equal(fast.predict_proba(some), expected)
    for i in range(5):
        np.testing.assert_array_equal(
            fast.predict_proba(rows[i : i + 1]), expected[i : i + 1]
        )


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_catboost_that_asks_for_missing_values_warns_of_no_overflow():
    """Its threshold for them is the lowest number of single precision."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[::3, 0] = np.nan
    model = cat.CatBoostClassifier(iterations=5, **CATS).fit(X, np.isnan(X[:, 0]))
    fast = FastForest.from_ensemble(model, X)
    np.testing.assert_array_equal(fast.predict(X), model.predict(X))


def test_a_catboost_model_from_a_pickle():
    """Its `n_features_in_` is 0 there: seen to fail before names were counted."""
    X, y = data(2, 0)
    model = pickle.loads(
        pickle.dumps(cat.CatBoostClassifier(iterations=4, **CATS).fit(X, y))
    )
    fast = FastForest.from_ensemble(model)
    assert fast.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(fast.predict(X[:9]), model.predict(X[:9]))


def test_zeros_of_lightgbm_are_in_single_precision():
    """Values up to this bound count as zero. The test fails with 1e-35 as a double."""
    zero = float(np.float32(1e-35))
    values = [
        0.0,
        zero,
        1e-35,
        np.nextafter(zero, 1),
        -1e-35,
        -zero,
        np.nextafter(-zero, -1),
    ]
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 0.0, 1.0], (300, 3))
    for options in ({}, {"zero_as_missing": True}):
        model = lgb.LGBMClassifier(
            n_estimators=8, min_child_samples=2, **options, **QUIET
        )
        model.fit(X, X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=300) > 0)
        rows = rng.choice(values, (100, 3))
        same(model, FastForest.from_ensemble(model), rows)


@pytest.mark.parametrize("first", [2**53 - 2, 1_700_000_000_000_000_000, "text"])
@pytest.mark.parametrize("gap_in_fit", [False, True])
def test_categories_of_a_frame_and_whole_numbers_that_are_no_floats(first, gap_in_fit):
    """One missing cell makes floats of a column where it is read as an array."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 5, 300)
    kinds = np.array(list("uvwxy"))[code] if first == "text" else first + code
    X = pd.DataFrame({"c": pd.Categorical(kinds), "u": rng.normal(size=300)})
    y = ((code % 2 == 0) ^ (X["u"] > 0.8)).astype(int)
    gap = X.copy()
    gap.loc[0, "c"] = None
    for model in [
        lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1),
        xgb.XGBClassifier(n_estimators=5, enable_categorical=True, n_jobs=1),
        HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype"),
    ]:
        model.fit(gap if gap_in_fit else X, y)
        fast = FastForest.from_ensemble(model, X)
        for rows in (X, gap):
            assert np.array_equal(fast.predict_proba(rows), model.predict_proba(rows))
    if first == "text":
        with pytest.raises(ValueError, match="give rows X"):
            FastForest.from_ensemble(model)


@pytest.mark.parametrize("n", [1, 20, 300])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_the_library_refuses(value, n):
    X, y = data(2, 0)
    fast = FastForest(GradientBoostingClassifier(n_estimators=3)).fit(X, y)
    rows = X[:n].astype(np.float64)
    rows[-1, 2] = value
    with pytest.raises(ValueError, match="contains|NaN|infinity"):
        fast.predict(rows)
    with pytest.raises(ValueError, match="X has 5 features"):
        fast.predict(X[:n, :5])


def test_a_frozen_ensemble_stays_and_others_are_fitted():
    X, y = data(3, 0)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    frozen = FastForest(FrozenEstimator(model)).fit(X[:50], y[:50])
    np.testing.assert_array_equal(frozen.predict_proba(X), model.predict_proba(X))
    fresh = FastForest(RandomForestClassifier(20, random_state=0)).fit(X, y)
    np.testing.assert_array_equal(fresh.predict_proba(X), model.predict_proba(X))
    loaded = pickle.loads(pickle.dumps(fresh))
    assert loaded.estimator is None and clone(loaded) is loaded
    with pytest.raises(ValueError, match="nothing to fit"):
        loaded.fit(X, y)
    threads = FastForest.from_ensemble(model, n_jobs=2)
    many = np.vstack([X] * 8)
    np.testing.assert_array_equal(
        threads.predict_proba(many), model.predict_proba(many)
    )
    assert threads.forest_.coded is not None


def test_a_booster_answers_as_its_own_predict():
    X, y = data(3, 0)
    model = lgb.LGBMClassifier(n_estimators=5, **QUIET).fit(X, y)
    fast = FastForest.from_ensemble(model.booster_)
    np.testing.assert_array_equal(fast.predict(X), model.booster_.predict(X))
    ranker = lgb.LGBMRanker(n_estimators=5, **QUIET).fit(X, y, group=[100] * 4)
    np.testing.assert_array_equal(
        FastForest.from_ensemble(ranker).predict(X), ranker.predict(X)
    )


@pytest.mark.parametrize(
    "model, error, said",
    [
        (GaussianNB(), TypeError, "got GaussianNB"),
        (BaggingClassifier(GaussianNB(), 2), ValueError, "members of GaussianNB"),
        (
            lgb.LGBMClassifier(n_estimators=2, linear_tree=True, **QUIET),
            ValueError,
            "Linear",
        ),
        (
            lgb.LGBMRegressor(n_estimators=2, reg_sqrt=True, **QUIET),
            ValueError,
            "reg_sqrt",
        ),
        (xgb.XGBClassifier(n_estimators=2, booster="dart"), ValueError, "gbtree"),
        (
            cat.CatBoostRegressor(
                iterations=2, loss_function="RMSEWithUncertainty", **CATS
            ),
            ValueError,
            "gives each row 2 numbers",
        ),
        (make_pipeline(StandardScaler(), GaussianNB()), TypeError, "got GaussianNB"),
        (
            GradientBoostingClassifier(n_estimators=2, init=GaussianNB()),
            ValueError,
            "init",
        ),
    ],
)
def test_what_is_refused(model, error, said):
    X, y = data(2, 0)
    with pytest.raises(error, match=said):
        FastForest.from_ensemble(model.fit(X, y))
    with pytest.raises(error, match=said):
        FastForest(model).fit(X, y)


def test_a_difference_is_noticed(monkeypatch):
    X, y = data(2, 0)
    model = lgb.LGBMClassifier(n_estimators=3, **QUIET).fit(X, y)
    read = LightGBMReader.read

    def wrong(self, model):
        forest = read(self, model)
        return replace(forest, offset=forest.offset + 1e-12)

    monkeypatch.setattr(LightGBMReader, "read", wrong)
    with pytest.raises(ValueError, match=r"This LGBMClassifier answers .* \(sums"):
        FastForest.from_ensemble(model)


def test_a_pickle_needs_no_library(tmp_path):
    X, y = data(2, 0)
    made = {kind: CLASSIFIERS[kind](3, 0) for kind in ("lightgbm", "xgboost")}
    made["catboost"] = cat.CatBoostClassifier(iterations=3, **CATS)
    forests = [FastForest.from_ensemble(model.fit(X, y)) for model in made.values()]
    pickles = [(pickle.dumps(fast), X, fast.predict_proba(X)) for fast in forests]
    (tmp_path / "forests.pkl").write_bytes(pickle.dumps(pickles))
    script = """
        import pickle, sys
        for name in ("lightgbm", "xgboost", "catboost"):
            sys.modules[name] = None
        for forest, X, expected in pickle.load(open(sys.argv[1], "rb")):
            assert (pickle.loads(forest).predict_proba(X) == expected).all()
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "forests.pkl")],
        check=True,
        timeout=300,
    )


@settings(max_examples=15, deadline=None)
@given(
    kind=st.sampled_from(sorted(set(CLASSIFIERS) - {"hist"})),
    layout=st.sampled_from([sp.csr_array, sp.csr_matrix]),
    seed=st.integers(0, 1000),
)
def test_sparse_rows_as_the_library_reads_them(kind, layout, seed):
    """XGBoost takes what a row leaves out for missing, others for zero."""
    X, y = data(3, seed)
    rng = np.random.default_rng(seed)
    X[rng.random(X.shape) < 0.4] = 0
    rows = layout(X)
    rows.data[:20] = 0  # Zeros that are written down.
    model = CLASSIFIERS[kind](4, seed).fit(X, y)
    model = CLASSIFIERS[kind](4, seed).fit(rows, y) if seed % 2 else model
    fast = FastForest.from_ensemble(model, rows)
    for some in (rows, rows.tocsr()[:3]):
        np.testing.assert_array_equal(
            fast.predict_proba(some), model.predict_proba(some)
        )


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "forest", "hist"])
@pytest.mark.parametrize("order", ["fedcba", "zbcdef"])
def test_names_of_a_frozen_ensemble_are_its_own(kind, order):
    X, y = data(2, 0)
    model = CLASSIFIERS[kind](3, 0).fit(pd.DataFrame(X, columns=list("abcdef")), y)
    other, frame = (pd.DataFrame(X, columns=list(names)) for names in (order, "abcdef"))
    with pytest.raises(ValueError, match="feature.names"):
        FastForest(FrozenEstimator(model)).fit(other, y)
    named = FastForest(FrozenEstimator(model)).fit(frame, y)
    for rows in (frame, frame[:1], frame.astype("Float64")):
        expected = model.predict_proba(frame[: len(rows)])
        np.testing.assert_array_equal(named.predict_proba(rows), expected)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        named.predict(X)
    fast = FastForest(FrozenEstimator(model)).fit(X, y)
    for rows in (other, other[:1]):
        with pytest.raises(ValueError, match="feature names should match"):
            fast.predict(rows)


def test_names_with_spaces_and_numbered_columns():
    X, y = data(2, 0)
    frame = pd.DataFrame(X, columns=["my column", "b_c", *"cdef"])
    model = lgb.LGBMClassifier(n_estimators=3, **QUIET)
    model.fit(frame, y)
    fast = FastForest.from_ensemble(model, frame)
    assert list(fast.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(fast.predict(frame), model.predict(frame))
    numbered = pd.DataFrame(X)
    model.fit(numbered, y)
    for fast in (
        FastForest.from_ensemble(model),
        FastForest.from_ensemble(model, numbered),
    ):
        np.testing.assert_array_equal(fast.predict(numbered), model.predict(numbered))


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(3),
        BaggingClassifier(n_estimators=3),
        HistGradientBoostingClassifier(max_iter=3),
        lgb.LGBMClassifier(n_estimators=3, **QUIET),
        xgb.XGBClassifier(n_estimators=3),
        RandomForestClassifier(1, max_depth=1),
        lgb.LGBMClassifier(n_estimators=1, num_leaves=65, min_child_samples=1, **QUIET),
    ],
)
@pytest.mark.parametrize("n_classes", [1, 2])
def test_one_class_and_one_tree(model, n_classes):
    X, y = data(2, 0)
    model = clone(model).fit(X, y if n_classes == 2 else np.zeros_like(y))
    same(model, FastForest.from_ensemble(model), X)


def test_more_that_is_refused():
    X, y = data(2, 0)
    both = np.column_stack([y, 1 - y])
    for model in (xgb.XGBClassifier(n_estimators=2), xgb.XGBRegressor(n_estimators=2)):
        with pytest.raises(ValueError, match="y with 2 columns"):
            FastForest.from_ensemble(model.fit(X, both))
    with pytest.raises(ValueError, match="at least two classes"):
        FastForest.from_ensemble(AdaBoostClassifier(n_estimators=2).fit(X, 0 * y))
    for model in (RandomForestClassifier(), lgb.LGBMClassifier(), xgb.XGBClassifier()):
        with pytest.raises(NotFittedError):
            FastForest.from_ensemble(model)
    model = RandomForestClassifier(2).fit(X, y)
    for n_jobs in ("all", 0, 1.5):
        with pytest.raises(ValueError, match="n_jobs"):
            FastForest.from_ensemble(model, n_jobs=n_jobs)
        with pytest.raises(ValueError, match="n_jobs"):
            FastForest.from_ensemble(model).set_params(n_jobs=n_jobs).predict(X)


@pytest.mark.parametrize("n", [1, 5, 60])
@pytest.mark.parametrize("kind", ["int64", "uint64", "list", "longdouble"])
def test_numbers_beyond_single_precision_as_lightgbm_reads_them(kind, n, tmp_path):
    # It makes single precision of what is neither single nor double precision.
    rng = np.random.default_rng(0)
    X = 2**40 + rng.integers(0, 2**10, (300, 2))
    model = lgb.LGBMClassifier(
        n_estimators=5, min_child_samples=1, min_data_in_bin=1, **QUIET
    )
    model.fit(X.astype(np.float64), (X[:, 0] // 8) % 2)
    rows = X[:n].tolist() if kind == "list" else X[:n].astype(kind)
    for ensemble in (model, model.booster_):
        fast = FastForest.from_ensemble(ensemble)
        np.testing.assert_array_equal(fast.predict(rows), ensemble.predict(rows))
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.0, order="natural").optimize(X)
    np.testing.assert_array_equal(quick.predict(rows), model.predict(rows))
    export_ensemble(quick, tmp_path / "quick.npz")
    portable = PortableEnsemble.load(tmp_path / "quick.npz")
    np.testing.assert_array_equal(portable.predict(rows), model.predict(rows))
    assert (model.predict(X) != model.predict(X.astype(np.float64))).any()


def test_base_scores_of_xgboost_to_the_last_bit():
    """Scores of the user and of the library, which rounds them to single precision."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)).astype(np.float32)
    for i in range(20):
        y = (X[:, 0] + rng.normal(size=100) > rng.normal()).astype(int)
        base = {} if i % 2 else {"base_score": rng.uniform(0.01, 0.99)}
        model = xgb.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1, **base).fit(
            X, y
        )
        fast = FastForest.from_ensemble(model, X)
        np.testing.assert_array_equal(fast.predict_proba(X), model.predict_proba(X))
