"""Names for LightGBM's fit, types of labels, and weights without metadata routing."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.early_exit import QWYCEnsemble
from skroute.forests import FastForest

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
cat = pytest.importorskip("catboost")

LIGHTGBM = {"n_estimators": 4, "verbose": -1, "n_jobs": 1}
CATBOOST = {
    "iterations": 4,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}
MODELS = {
    "lightgbm": lgb.LGBMClassifier(**LIGHTGBM),
    "xgboost": xgb.XGBClassifier(n_estimators=4, n_jobs=1),
    "xgboost softmax": xgb.XGBClassifier(
        n_estimators=4, objective="multi:softmax", n_jobs=1
    ),
    "xgboost softprob": xgb.XGBClassifier(
        n_estimators=4, objective="multi:softprob", n_jobs=1
    ),
    "xgboost forest": xgb.XGBRFClassifier(n_estimators=4, n_jobs=1),
    "catboost": cat.CatBoostClassifier(**CATBOOST),
    "catboost one against all": cat.CatBoostClassifier(
        loss_function="MultiClassOneVsAll", **CATBOOST
    ),
    "forest": RandomForestClassifier(4, max_depth=3, random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=4),
    "gradient boosting": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "adaboost": AdaBoostClassifier(n_estimators=4, random_state=0),
}


def drawn(seed, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(160, 4))
    return X, (X[:, 0] > 0).astype(int) + (n_classes > 2) * (X[:, 1] > 0.5), rng


@pytest.mark.parametrize("names", ["others", "spaces", "numbers"])
@pytest.mark.parametrize("rows_given", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_names_that_fit_of_lightgbm_was_given(names, rows_given, frozen):
    X, y, _ = drawn(0)
    columns = {
        "others": list("abcd"),
        "spaces": ["a b", "c", "d e", "f"],
        "numbers": range(4),
    }
    frame = pd.DataFrame(X, columns=columns[names])
    fit_params = {} if names == "spaces" else {"feature_name": ["w", "x", "y", "z"]}
    model = lgb.LGBMClassifier(**LIGHTGBM).fit(frame, y, **fit_params)
    if frozen:
        fast = FastForest(FrozenEstimator(model)).fit(frame if rows_given else X, y)
    else:
        fast = FastForest.from_ensemble(model, frame if rows_given else None)
    for rows in (frame, frame[:1]):
        np.testing.assert_array_equal(
            fast.predict_proba(rows), model.predict_proba(rows)
        )
    with pytest.raises(ValueError, match="X has 3 features|feature names should match"):
        fast.predict(frame.drop(columns=frame.columns[0]))


def test_some_of_the_names_that_fit_of_lightgbm_was_given():
    X, y, _ = drawn(0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = lgb.LGBMClassifier(**LIGHTGBM).fit(
        frame, y, feature_name=["a", "x", "y", "z"]
    )
    with pytest.raises(
        ValueError, match="(?s)feature names should match.*feature_name="
    ):
        FastForest.from_ensemble(model, frame)
    with pytest.raises(
        ValueError, match="(?s)feature names should match.*feature_name="
    ):
        FastForest.from_ensemble(model).predict(frame)
    # Names that this estimator has seen itself are compared, as in scikit-learn.
    fitted = FastForest(lgb.LGBMClassifier(**LIGHTGBM)).fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame.set_axis(list("wxyz"), axis=1))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", MODELS)
def test_labels_have_the_type_of_the_library(kind, n_classes):
    X, y, _ = drawn(1, n_classes)
    for labels in (
        y,
        y.astype("int8"),
        y.astype(float),
        np.array(["a", "b", "c"])[y],
        y == 1,
    ):
        model = clone(MODELS[kind])
        if kind == "xgboost softmax":
            model.set_params(num_class=len(np.unique(labels)))
        try:
            expected = np.ravel(model.fit(X, labels).predict(X))
        except Exception:
            # XGBoost takes whole numbers from 0.
            continue
        early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(
            X
        )
        for reader in (FastForest.from_ensemble(model), early):
            answers = reader.predict(X)
            assert answers.dtype == expected.dtype
            np.testing.assert_array_equal(answers, expected)
        np.testing.assert_array_equal(
            FastForest.from_ensemble(model).classes_, model.classes_
        )


def test_labels_behind_a_moved_threshold_are_the_classes():
    X, y, _ = drawn(1)
    softmax = clone(MODELS["xgboost softmax"]).set_params(num_class=2)
    model = FixedThresholdClassifier(softmax, threshold=0.4).fit(X, y)
    fast = FastForest.from_ensemble(model)
    assert fast.predict(X).dtype == model.predict(X).dtype
    np.testing.assert_array_equal(fast.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "kind", sorted(set(MODELS) - {"xgboost softmax", "xgboost softprob"})
)
def test_weights_are_given_to_the_one_model(kind):
    """As VotingClassifier gives them."""
    X, y, rng = drawn(2)
    weight = rng.uniform(0.1, 5, len(y))
    model = clone(MODELS[kind])
    expected = clone(model).fit(X, y, sample_weight=weight).predict_proba(X)
    voted = VotingClassifier([("one", model)], voting="soft").fit(
        X, y, sample_weight=weight
    )
    np.testing.assert_allclose(voted.predict_proba(X), expected)
    fast = FastForest(model).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(fast.predict_proba(X), expected, rtol=1e-12)
    early = QWYCEnsemble(model, alpha=0, calibration=None, random_state=0)
    early.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(early.predict_proba(X), expected, rtol=1e-4)
    with pytest.raises(
        ValueError, match="one entry per row: there are 160 rows and 159"
    ):
        FastForest(model).fit(X, y, sample_weight=weight[1:])
    with pytest.raises(
        ValueError, match="one entry per row: there are 160 rows and 159"
    ):
        QWYCEnsemble(model).fit(X, y, sample_weight=weight[1:])
    # None is no weight.
    np.testing.assert_array_equal(
        FastForest(model).fit(X, y, sample_weight=None).predict(X),
        FastForest(model).fit(X, y).predict(X),
    )


def test_weights_of_held_out_rows_stay_with_their_rows():
    X, y, rng = drawn(3)
    weight = np.where(rng.random(160) < 0.5, 1e-9, 1.0)
    early = QWYCEnsemble(RandomForestClassifier(5, random_state=0), random_state=0)
    early.fit(X, np.where(weight == 1, y, 1 - y), sample_weight=weight)
    assert (early.predict(X) == y).mean() > 0.9


def test_weights_go_to_each_member_of_a_list_that_is_fitted():
    X, y, rng = drawn(4)
    weight = rng.uniform(0.1, 5, len(y))
    members = [
        FrozenEstimator(LogisticRegression().fit(X, y)),
        LogisticRegression(C=0.1),
    ]
    early = QWYCEnsemble(members, calibration=None, random_state=0)
    early.fit(X, y, sample_weight=weight)
    expected = LogisticRegression(C=0.1).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(early.estimator_[1].coef_, expected.coef_)
    np.testing.assert_array_equal(early.estimator_[0].coef_, members[0].estimator.coef_)


@pytest.mark.parametrize("make", [FastForest, QWYCEnsemble])
def test_weights_that_no_model_takes_are_refused(make):
    X, y, _ = drawn(5)
    forest = RandomForestClassifier(3)
    weight = np.ones(len(y))
    with pytest.raises(ValueError, match="fit of the Pipeline does not take it"):
        make(make_pipeline(StandardScaler(), forest)).fit(X, y, sample_weight=weight)
    frozen = FrozenEstimator(RandomForestClassifier(3).fit(X, y))
    with pytest.raises(
        ValueError, match="RandomForestClassifier, which is fitted already"
    ):
        make(frozen).fit(X, y, sample_weight=weight)
    with pytest.raises(
        ValueError, match="only supported if enable_metadata_routing=True"
    ):
        make(forest).fit(X, y, groups=weight)


@pytest.mark.parametrize("make", [FastForest, QWYCEnsemble])
def test_with_routing_requests_decide_about_weights(make):
    X, y, rng = drawn(6)
    weight = rng.uniform(0.1, 5, len(y))
    options = {"alpha": 0, "calibration": None} if make is QWYCEnsemble else {}
    with config_context(enable_metadata_routing=True):
        forest = RandomForestClassifier(5, max_depth=3, random_state=0)
        asked = make(clone(forest).set_fit_request(sample_weight=True), **options)
        expected = clone(forest).fit(X, y, sample_weight=weight).predict_proba(X)
        proba = asked.fit(X, y, sample_weight=weight).predict_proba(X)
        np.testing.assert_allclose(proba, expected, rtol=1e-6)
        declined = make(clone(forest).set_fit_request(sample_weight=False), **options)
        with pytest.raises(TypeError, match="not routed to any object"):
            declined.fit(X, y, sample_weight=weight)
        with pytest.raises(ValueError, match="not explicitly set as requested or not"):
            make(forest, **options).fit(X, y, sample_weight=weight)


def test_weights_of_a_regressor():
    X, y, rng = drawn(7)
    weight = rng.uniform(0.1, 5, len(y))
    model = RandomForestRegressor(5, max_depth=3, random_state=0)
    fast = FastForest(model).fit(X, X[:, 0], sample_weight=weight)
    expected = clone(model).fit(X, X[:, 0], sample_weight=weight).predict(X)
    np.testing.assert_allclose(fast.predict(X), expected, rtol=1e-12)
