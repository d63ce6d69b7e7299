"""Models of CatBoost with any loss, scale and bias, and their sums."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import PortableEnsemble, QWYCEnsemble, export_ensemble
from skroute.forests import FastForest, leaf_sums, read_forest

cat = pytest.importorskip("catboost")

OPTIONS = {
    "iterations": 5,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}
# Losses by what the labels are, for each class that takes them.
OF_NUMBERS = (
    "RMSE MAE Quantile:alpha=0.3 LogLinQuantile MAPE Poisson Lq:q=3 Huber:delta=1 "
    "Expectile:alpha=0.3 Tweedie:variance_power=1.5 LogCosh Cox RMSPE MultiRMSE"
).split()
OF_SEVERAL_NUMBERS = ["MultiQuantile:alpha=0.1,0.5", "RMSEWithUncertainty"]
OF_CLASSES = ["Logloss", "CrossEntropy", "Focal:focal_alpha=0.5;focal_gamma=2"]
OF_SEVERAL_CLASSES = ["MultiClass", "MultiClassOneVsAll"]
OF_SEVERAL_LABELS = ["MultiLogloss", "MultiCrossEntropy"]
OF_RANKS = (
    "PairLogit PairLogitPairwise YetiRank YetiRankPairwise QueryRMSE QuerySoftMax "
    "StochasticFilter StochasticRank:metric=DCG LambdaMart GroupQuantile"
).split()


def drawn(seed):
    """Rows, numbers above zero, two classes and three, and other rows."""
    rng = np.random.default_rng(seed)
    X, new = rng.normal(size=(150, 3)), rng.normal(size=(90, 3))
    numbers = np.abs(X[:, 0]) + 0.5 + rng.random(150)
    two = (X[:, 0] > 0).astype(int)
    return X, numbers, two, two + (X[:, 1] > 0.5), new


def check(model, X, new):
    """Compare the answers of a forest and of its model to rows that are not of fit."""
    fast = FastForest.from_ensemble(model)
    expected = np.ravel(model.predict(new))
    answers = fast.predict(new)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(answers, expected, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_array_equal(answers, expected)
    forest, classes = read_forest(model)
    sums = leaf_sums(forest, new) + forest.offset
    if type(model).__name__ != "CatBoostRanker":
        raw = model.predict(new, prediction_type="RawFormulaVal")
        np.testing.assert_allclose(
            sums, np.reshape(raw, sums.shape), rtol=1e-12, atol=1e-12
        )
    if classes is not None:
        proba = model.predict_proba(new)
        np.testing.assert_allclose(fast.predict_proba(new), proba, rtol=1e-12)
        np.testing.assert_array_equal(fast.decision_function(new), raw)
        early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(
            X
        )
        np.testing.assert_array_equal(early.predict(new), expected)
        np.testing.assert_allclose(early.predict_proba(new), proba, rtol=1e-4)


@pytest.mark.parametrize("loss", OF_NUMBERS + OF_CLASSES)
def test_each_loss_of_one_number(loss):
    X, numbers, two, _, new = drawn(0)
    y = two if loss in OF_CLASSES else numbers
    check(cat.CatBoost({"loss_function": loss, **OPTIONS}).fit(X, y), X, new)
    if loss in OF_NUMBERS:
        check(cat.CatBoostRegressor(loss_function=loss, **OPTIONS).fit(X, y), X, new)


@pytest.mark.parametrize("loss", OF_CLASSES + OF_SEVERAL_CLASSES)
@pytest.mark.parametrize("labels", ["numbers", "texts"])
def test_each_loss_of_a_classifier(loss, labels):
    X, _, two, three, new = drawn(1)
    y = three if loss in OF_SEVERAL_CLASSES else two
    if labels == "texts" and loss != "CrossEntropy":
        y = np.array(["no", "yes", "maybe"])[y]
    check(cat.CatBoostClassifier(loss_function=loss, **OPTIONS).fit(X, y), X, new)


@pytest.mark.parametrize("loss", OF_RANKS)
@pytest.mark.parametrize("cls", ["CatBoost", "CatBoostRanker"])
def test_each_loss_of_ranks(loss, cls):
    X, _, two, _, new = drawn(2)
    rows = cat.Pool(X, two, group_id=np.arange(150) // 10)
    if cls == "CatBoost":
        model = cat.CatBoost({"loss_function": loss, **OPTIONS})
    else:
        model = cat.CatBoostRanker(loss_function=loss, **OPTIONS)
    check(model.fit(rows), X, new)


@pytest.mark.parametrize("loss", OF_SEVERAL_NUMBERS + OF_SEVERAL_LABELS)
def test_losses_of_several_answers_are_refused(loss):
    X, numbers, two, _, _ = drawn(3)
    if loss in OF_SEVERAL_NUMBERS:
        model = cat.CatBoostRegressor(loss_function=loss, **OPTIONS).fit(X, numbers)
    else:
        model = cat.CatBoostClassifier(loss_function=loss, **OPTIONS).fit(X, two)
    with pytest.raises(
        ValueError, match=f"has loss_function='{loss.split(':')[0]}', which gives"
    ):
        FastForest.from_ensemble(model)


class CustomLoss:
    """The logistic loss in Python."""

    def calc_ders_range(self, approxes, targets, weights):
        return [
            (y - 1 / (1 + np.exp(-score)), -0.25) for score, y in zip(approxes, targets)
        ]


def test_a_loss_of_the_user():
    X, _, two, _, new = drawn(4)
    options = OPTIONS | {"loss_function": CustomLoss()}
    check(cat.CatBoostClassifier(eval_metric="Logloss", **options).fit(X, two), X, new)
    check(cat.CatBoostRegressor(eval_metric="RMSE", **options).fit(X, two), X, new)


@pytest.mark.parametrize("seed", range(12))
def test_sums_of_models(seed):
    """Sums with weights, of models with scale and bias, and of a class for sums."""
    rng = np.random.default_rng(seed)
    X, numbers, two, three, new = drawn(seed)
    kind = ["two", "three", "numbers"][seed % 3]
    models = []
    for random_seed in range(int(rng.integers(1, 4))):
        options = OPTIONS | {"random_seed": random_seed}
        if kind == "numbers":
            options["loss_function"] = rng.choice(["RMSE", "Poisson", "MAE"])
            model = cat.CatBoostRegressor(**options).fit(X, numbers)
        else:
            model = cat.CatBoostClassifier(**options).fit(
                X, two if kind == "two" else three
            )
        if rng.random() < 0.5:
            bias = float(rng.normal()) if kind != "three" else list(rng.normal(size=3))
            model.set_scale_and_bias(rng.choice([1.0, 2.5, -0.3, 0.0]), bias)
        check(model, X, new)
        models.append(model)
    weights = None if rng.random() < 0.3 else list(rng.normal(size=len(models)))
    total = cat.sum_models(models, weights=weights)
    if kind == "three":
        with pytest.raises(
            ValueError, match="which gives each row 3 numbers; one is supported"
        ):
            FastForest.from_ensemble(total)
    else:
        check(total, X, new)
    if kind == "numbers":
        check(cat.to_regressor(total), X, new)
        check(cat.to_ranker(total), X, new)
    else:
        model = cat.to_classifier(total)
        check(model, X, new)
        frozen = FastForest(FrozenEstimator(model)).fit(X, two)
        np.testing.assert_array_equal(frozen.predict(new), np.ravel(model.predict(new)))


def test_sums_of_other_losses_and_thresholds(tmp_path):
    X, numbers, two, three, new = drawn(5)
    of_numbers = [
        cat.CatBoostRegressor(loss_function=loss, **OPTIONS) for loss in ("RMSE", "MAE")
    ]
    check(cat.sum_models([model.fit(X, numbers) for model in of_numbers]), X, new)
    of_classes = [
        cat.CatBoostClassifier(loss_function=loss, **OPTIONS)
        for loss in OF_SEVERAL_CLASSES
    ]
    total = cat.to_classifier(
        cat.sum_models([model.fit(X, three) for model in of_classes])
    )
    with pytest.raises(
        ValueError, match="has loss_function=None; how its scores become"
    ):
        FastForest.from_ensemble(total)
    moved = cat.CatBoostClassifier(**OPTIONS).fit(X, two)
    for threshold in (0.0, 1.0):
        moved.set_probability_threshold(threshold)
        with pytest.raises(ValueError, match="must be above 0 and below 1"):
            FastForest.from_ensemble(moved)
    moved.set_probability_threshold(0.3)
    moved.set_scale_and_bias(1.7, 0.2)
    check(moved, X, new)
    early = QWYCEnsemble(FrozenEstimator(moved), alpha=0, random_state=0).optimize(X)
    export_ensemble(early, tmp_path / "moved.npz")
    portable = PortableEnsemble.load(tmp_path / "moved.npz")
    np.testing.assert_array_equal(portable.predict(new), moved.predict(new))


@pytest.mark.parametrize("cls", ["CatBoost", "CatBoostRegressor"])
def test_a_model_from_a_file_answers_as_its_class_does(cls, tmp_path):
    X, numbers, _, _, new = drawn(6)
    path = str(tmp_path / "model.cbm")
    cat.CatBoostRegressor(loss_function="Poisson", **OPTIONS).fit(
        X, numbers
    ).save_model(path)
    check(getattr(cat, cls)().load_model(path), X, new)
    with pytest.raises(NotFittedError, match=f"This {cls} instance is not fitted yet"):
        FastForest.from_ensemble(getattr(cat, cls)())
