"""The estimator: contract, savings, guarantee, export, displays."""

import re
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils._param_validation import InvalidParameterError

from skroute.early_exit import (
    ExitDisplay,
    PortableEnsemble,
    QWYCEnsemble,
    TradeoffDisplay,
    export_ensemble,
)
from skroute.early_exit._calibration import hold_out
from skroute.early_exit._portable import load_exported
from skroute.forests import FastForest
from skroute.routing import OccamRouterClassifier
from tests.decision_checks import Recorder

lgb = pytest.importorskip("lightgbm")


def cheap():
    return QWYCEnsemble(
        RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0),
        random_state=0,
    )


def all_rows():
    return make_classification(8000, 10, n_informative=6, class_sep=1.5, random_state=0)


@pytest.fixture(scope="module")
def problem():
    X, y = all_rows()
    return X[2000:6000], y[2000:6000], X[6000:], y[6000:]


@pytest.fixture(scope="module")
def boosted():
    """Fitted on rows that no test optimises on."""
    X, y = all_rows()
    model = lgb.LGBMClassifier(n_estimators=40, num_leaves=15, verbose=-1, n_jobs=1)
    return model.fit(X[:2000], y[:2000])


@pytest.fixture(scope="module")
def quick(problem, boosted):
    X, y, _, _ = problem
    return QWYCEnsemble(FrozenEstimator(boosted), alpha=0.01, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def several():
    X, y = make_classification(
        4000, 10, n_informative=8, n_classes=4, class_sep=1.5, random_state=0
    )
    model = lgb.LGBMClassifier(n_estimators=30, num_leaves=15, verbose=-1, n_jobs=1)
    return QWYCEnsemble(model, alpha=0.02, random_state=0).fit(X[:3000], y[:3000]), X[
        3000:
    ]


def test_saves_most_members_and_keeps_the_answers(quick, boosted, problem):
    _, _, X, _ = problem
    routed = quick.predict_routed(X)
    assert routed.cost.mean() < 20
    assert np.mean(routed.y_pred != boosted.predict(X)) < 0.02
    np.testing.assert_array_equal(routed.cost, routed.route)
    np.testing.assert_array_equal(quick.route(X), routed.route)
    np.testing.assert_array_equal(quick.predict_cost(X), routed.cost)
    assert quick.choices_[-1] == "40"
    assert quick.thresholds_.shape == (40, 2)
    assert sorted(quick.order_) == list(range(40))
    staged, tradeoff = quick.staged_disagreement_, quick.tradeoff_
    assert np.all(np.diff(staged) >= 0)
    assert staged[-1] == pytest.approx(quick.disagreement_)
    assert (tradeoff.cost[0], tradeoff.disagreement[0]) == (40, 0)
    assert tradeoff.disagreement[tradeoff.chosen] == quick.disagreement_


def test_answers_scores_and_probabilities_agree(quick, problem, several):
    assert hasattr(clone(quick), "predict_proba")
    _, _, X, _ = problem
    y_pred, score, proba = (
        quick.predict(X),
        quick.decision_function(X),
        quick.predict_proba(X),
    )
    np.testing.assert_array_equal(y_pred, score > 0)
    np.testing.assert_array_equal(y_pred, quick.classes_[np.argmax(proba, axis=1)])
    expected = quick.estimator_.predict_proba(X)
    np.testing.assert_allclose(quick.set_params(budget=40.0).predict_proba(X), proba)
    quick.set_params(budget=None)
    whole = QWYCEnsemble(quick.estimator, alpha=0.0).optimize(X)
    np.testing.assert_allclose(whole.predict_proba(X), expected, atol=1e-9)
    assert whole.disagreement_bound_ == 0.0
    quick4, X4 = several
    np.testing.assert_allclose(quick4.predict_proba(X4).sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        quick4.predict(X4), np.argmax(quick4.decision_function(X4), axis=1)
    )
    assert quick4.predict_cost(X4).mean() < 25
    assert np.mean(quick4.predict(X4) != quick4.estimator_.predict(X4)) < 0.04


def test_what_changed_since_fit_acts(problem, boosted):
    X, y, X_test, _ = problem
    quick = QWYCEnsemble(
        FrozenEstimator(boosted), alpha=0.02, budget=np.inf, random_state=0
    )
    quick.fit(X[:1000], y[:1000])
    row = X_test[:1].copy()
    quick.predict(row)
    quick.set_params(budget=quick.min_budget_)
    assert quick.predict_cost(X_test).mean() < 40
    quick.set_params(budget=None)
    assert quick.predict(row).shape == (1,)
    other = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, y)
    quick.set_params(estimator=FrozenEstimator(other)).optimize(X[:1000])
    assert quick.estimator_ is other
    # One that is not fitted acts at the next fit.
    quick.set_params(estimator=GradientBoostingClassifier()).optimize(X)
    assert quick.estimator_ is other
    with pytest.raises(ValueError, match="optimize needs a fitted ensemble"):
        clone(quick).optimize(X)


@pytest.mark.parametrize("order", ["natural", "random", "given"])
def test_orders_keep_alpha(order, problem, boosted):
    X, y, X_test, _ = problem
    quick = QWYCEnsemble(
        FrozenEstimator(boosted),
        alpha=0.02,
        order=np.arange(40)[::-1] if order == "given" else order,
        random_state=0,
    ).fit(X, y)
    assert quick.disagreement_ <= 0.02
    assert np.mean(quick.predict(X_test) != boosted.predict(X_test)) < 0.04
    if order != "given":
        assert quick.predict_cost(X_test).mean() < 39
    if order == "natural":
        np.testing.assert_array_equal(quick.order_, np.arange(40))


def test_filter_and_score_never_leaves_early_with_the_second_class(problem, boosted):
    X, y, X_test, _ = problem
    quick = QWYCEnsemble(
        FrozenEstimator(boosted), alpha=0.02, mode="negative", random_state=0
    ).fit(X, y)
    y_pred, route, _ = quick.predict_routed(X_test)
    assert np.all(y_pred[route < 40] == 0)
    assert np.mean(route < 40) > 0.1
    positive = y_pred == 1
    np.testing.assert_allclose(
        quick.decision_function(X_test)[positive],
        boosted.predict(X_test, raw_score=True)[positive],
        atol=1e-9,
    )


def test_optimize_needs_no_labels(problem, boosted, quick):
    pytest.importorskip("sklearn.callback")
    X, y, X_test, _ = problem
    recorder = Recorder()
    unlabelled = QWYCEnsemble(FrozenEstimator(boosted), alpha=0.01, random_state=0)
    unlabelled.set_callbacks(recorder).optimize(X)
    assert recorder.begun[:3] == ["optimize", "order and thresholds", "position"]
    assert unlabelled.predict_cost(X_test).mean() < 20
    again = clone(quick).fit(X, y).optimize(X[:2000], X_calibration=X[2000:])
    assert again.estimator_ is boosted
    np.testing.assert_array_equal(again.classes_, [0, 1])
    with pytest.raises(
        ValueError, match="optimize needs a fitted ensemble: call fit first"
    ):
        QWYCEnsemble(lgb.LGBMClassifier()).optimize(X)


def test_raw_booster(problem, boosted):
    X, y, X_test, _ = problem
    booster = boosted.booster_
    for wrapped in (booster, FrozenEstimator(booster)):
        quick = QWYCEnsemble(wrapped, alpha=0.01, random_state=0).optimize(X)
        np.testing.assert_array_equal(quick.classes_, [0, 1])
        assert np.mean(quick.predict(X_test) != boosted.predict(X_test)) < 0.02
    assert "Booster" in QWYCEnsemble(booster)._repr_html_()
    with sklearn.config_context(enable_metadata_routing=True):
        QWYCEnsemble(booster, alpha=0.01, random_state=0).fit(X, y)
    named = QWYCEnsemble(booster, alpha=0.01).fit(X, np.array(["no", "yes"])[y])
    assert set(named.predict(X_test)) == {"no", "yes"}
    assert set(named.optimize(X).predict(X_test)) == {"no", "yes"}
    with pytest.raises(ValueError, match="The booster has 2 classes, y has 1"):
        QWYCEnsemble(booster).fit(X[:50], np.zeros(50, dtype=int))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "Float32", "Float64", "Int8", "boolean"]
)
@pytest.mark.parametrize("kind", [BaggingClassifier, RandomForestClassifier])
def test_frames_of_any_precision_are_read_without_warnings(problem, kind, dtype):
    """Reading is tried on rows beyond single precision: pandas warned of an overflow."""
    X, y, _, _ = problem
    frame = pd.DataFrame(X[:200] if dtype[0] in "fF" else X[:200] > 0)
    frame = frame.add_prefix("x").astype(dtype)
    ensemble = kind(n_estimators=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        quick = QWYCEnsemble(ensemble, alpha=0.2, random_state=0).fit(frame, y[:200])
        quick.predict_routed(frame)


class Counted(LogisticRegression):
    """Counts the rows that it is asked about."""

    rows = 0

    def decision_function(self, X):
        type(self).rows += len(X)
        return super().decision_function(X)


def test_list_of_members_with_costs(problem):
    X, y, X_test, _ = problem
    members = [Counted(C=1e-4), GaussianNB(), FrozenEstimator(Perceptron().fit(X, y))]
    quick = QWYCEnsemble(
        members,
        alpha=0.05,
        costs={0: 1.0, 1: 2.0, 2: 7.0},
        order="natural",
        random_state=0,
    ).fit(X, y)
    Counted.rows = 0
    route = quick.route(X_test)
    assert Counted.rows == len(X_test)
    np.testing.assert_array_equal(
        quick.predict_cost(X_test), np.array([0.0, 1.0, 3.0, 10.0])[route]
    )
    assert not hasattr(quick, "predict_proba")
    assert not hasattr(QWYCEnsemble(members), "predict_proba")
    assert "member 0" in quick._repr_html_()
    assert clone(quick).fit(X, y).predict(X_test).shape == y[:2000].shape


def test_list_of_members_with_probabilities(problem):
    X, y, X_test, _ = problem
    members = [LogisticRegression(C=c) for c in (0.001, 1.0)] + [GaussianNB()]
    quick = QWYCEnsemble(members, alpha=0.05, random_state=0)
    assert hasattr(quick, "predict_proba")

    def score(rows):
        return rows[:, 0] - rows[:, 1]

    functions = QWYCEnsemble([score, score], alpha=0.05, random_state=0).fit(X, y)
    np.testing.assert_array_equal(functions.predict(X_test), score(X_test) > 0)
    with pytest.raises(ValueError, match="The members do not know their classes"):
        QWYCEnsemble([score]).optimize(X)
    with pytest.raises(ValueError, match="estimator is an empty list"):
        QWYCEnsemble([]).fit(X, y)
    fitted = [FrozenEstimator(GaussianNB().fit(X, y)) for _ in range(2)]
    quick = QWYCEnsemble(fitted, alpha=0.05, random_state=0).optimize(X)
    np.testing.assert_allclose(
        quick.predict_proba(X_test)[quick.route(X_test) == 2],
        fitted[0].predict_proba(X_test)[quick.route(X_test) == 2],
    )

    class Logits(GaussianNB):
        def predict_proba(self, X):
            return 9.0 * super().predict_proba(X) - 4.0

    wrong = [FrozenEstimator(Logits().fit(X, y)), fitted[1]]
    with pytest.raises(ValueError, match="must give probabilities between 0 and 1"):
        QWYCEnsemble(wrong, alpha=0.1, random_state=0).optimize(X)


def test_text_reaches_the_members():
    texts = [f"word{i % 7} {'good' if i % 2 else 'bad'}" for i in range(60)]
    y = np.arange(60) % 2
    members = [make_pipeline(TfidfVectorizer(), LogisticRegression()) for _ in range(2)]
    quick = QWYCEnsemble(members, alpha=0.2, random_state=0).fit(texts, y)
    np.testing.assert_array_equal(quick.predict(texts), y)
    assert not hasattr(quick, "n_features_in_")
    voting = VotingClassifier([("a", members[0]), ("b", members[1])], voting="soft")
    quick = QWYCEnsemble(voting, alpha=0.2, random_state=0).fit(texts, y)
    np.testing.assert_array_equal(quick.predict(texts), y)


def test_measured_costs(problem, boosted):
    X, y, X_test, _ = problem
    small = lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1).fit(X, y)
    quick = QWYCEnsemble(FrozenEstimator(small), costs="time", alpha=0.05).fit(X, y)
    assert np.all(quick.costs_ > 0)
    spent = np.concatenate([[0.0], np.cumsum(quick.costs_[quick.order_])])
    np.testing.assert_allclose(quick.predict_cost(X_test), spent[quick.route(X_test)])
    members = QWYCEnsemble([GaussianNB(), GaussianNB()], costs="time", alpha=0.05).fit(
        X, y
    )
    assert members.costs_.shape == (2,)


def test_calibration_on_the_training_rows_and_what_cannot_be(problem, boosted):
    X, y, _, _ = problem
    frozen = FrozenEstimator(boosted)
    inside = QWYCEnsemble(frozen, alpha=0.01, calibration=None).fit(X, y)
    assert np.isnan(inside.disagreement_bound_)
    assert (
        inside.disagreement_ == np.mean(inside.predict(X) != boosted.predict(X)) <= 0.01
    )
    with pytest.raises(ValueError, match="'calibration' parameter"):
        QWYCEnsemble(frozen, calibration=5).optimize(X)
    with pytest.raises(ValueError, match="guarantee=True needs calibration rows"):
        QWYCEnsemble(frozen, calibration=None, guarantee=True).optimize(X)
    held_out = QWYCEnsemble(
        frozen, alpha=0.05, calibration=None, guarantee=True, order="natural"
    )
    assert (
        held_out.optimize(X[:300], X_calibration=X[300:1300]).disagreement_bound_
        <= 0.05
    )


def test_too_few_calibration_rows_warn_and_evaluate_everything(boosted, problem):
    X, y, _, _ = problem
    with pytest.warns(
        UserWarning, match="No early exit keeps alpha=0.005 on 25 calibration rows"
    ):
        quick = QWYCEnsemble(FrozenEstimator(boosted)).fit(X[:100], y[:100])
    assert quick.predict_cost(X).min() == 40
    assert quick.disagreement_bound_ == 0.0


@pytest.mark.slow
def test_the_bound_holds_over_calibration_splits():
    """The limit is exceeded in at most the share of splits that the binomial allows."""
    X, y = make_classification(6000, 8, n_informative=5, class_sep=0.8, random_state=1)
    model = lgb.LGBMClassifier(n_estimators=15, num_leaves=8, verbose=-1, n_jobs=1)
    frozen = FrozenEstimator(model.fit(X[:1000], y[:1000]))
    rows = X[1000:]
    full = frozen.estimator.predict(rows)
    for guarantee in (False, True):
        estimator = QWYCEnsemble(
            frozen, alpha=0.03, order="natural", guarantee=guarantee
        )
        above, n_splits = 0, 40
        for seed in range(n_splits):
            order = np.random.RandomState(seed).permutation(len(rows))
            estimator.optimize(rows[order[:300]], X_calibration=rows[order[300:900]])
            rest = rows[order[900:]]
            wrong = np.mean(estimator.predict(rest) != full[order[900:]])
            above += wrong > estimator.disagreement_bound_
            assert not guarantee or estimator.disagreement_bound_ <= 0.03
        # 0.1 % chance of a false alarm when each split fails with probability 0.05; a bound that
        # fails every third time is found by 98 %.
        assert above <= binom.ppf(0.999, n_splits, 0.05)


def test_more_confidence_is_a_wider_bound(quick, boosted, problem):
    X, y, _, _ = problem
    sure = QWYCEnsemble(
        FrozenEstimator(boosted), alpha=0.01, random_state=0, confidence=0.999
    )
    sure.fit(X, y)
    # Without the guarantee it changes what is said, not what is done.
    np.testing.assert_array_equal(sure.thresholds_, quick.thresholds_)
    assert quick.disagreement_ < quick.disagreement_bound_ < sure.disagreement_bound_
    sure.set_params(guarantee=True).fit(X, y)
    assert sure.disagreement_bound_ <= 0.01


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"alpha": 1.0},
            "The 'alpha' parameter of QWYCEnsemble must be a float in the range",
        ),
        ({"mode": "negative"}, "mode='negative' needs two classes"),
        ({"order": [0, 1, 1]}, "order must be a permutation of 0, ..., 2"),
        ({"costs": {0: 1.0}}, "costs has no entry for [1, 2]"),
    ],
)
def test_messages(parameters, message):
    X, y = make_classification(50, n_informative=6, n_classes=3, random_state=0)
    model = FrozenEstimator(RandomForestClassifier(3, random_state=0).fit(X, y))
    estimator = QWYCEnsemble(model, **{"alpha": 0.2} | parameters)
    with pytest.raises((ValueError, InvalidParameterError), match=re.escape(message)):
        estimator.fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_rows_that_stay_to_the_end_have_the_probabilities_of_the_library():
    X, y = make_classification(900, n_informative=8, n_classes=3, random_state=0)
    for model, labels in (
        (RandomForestClassifier(15, max_depth=3, random_state=0), y),
        (
            lgb.LGBMClassifier(
                n_estimators=8, objective="multiclassova", verbose=-1, n_jobs=1
            ),
            y,
        ),
        (GradientBoostingClassifier(n_estimators=20, loss="exponential"), y > 0),
    ):
        quick = QWYCEnsemble(model, alpha=0.02, random_state=0).fit(X, labels)
        full = quick.route(X) == len(quick.order_)
        # One-versus-all probabilities of LightGBM do not add up to one.
        expected = quick.estimator_.predict_proba(X)
        np.testing.assert_allclose(quick.predict_proba(X)[full], expected[full])
        assert 0 < full.mean() < 1


def test_grid_search_and_routing(problem):
    X, y, _, _ = problem
    search = GridSearchCV(
        cheap(), {"alpha": [0.02, 0.1], "estimator__max_depth": [2, 3]}, cv=2
    )
    search.fit(X[:600], y[:600])
    assert "alpha" in search.best_params_
    weights = np.ones(600)
    weights[:50] = 0.0
    weighted = (
        cheap().set_params(alpha=0.1).fit(X[:600], y[:600], sample_weight=weights)
    )
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = cheap().set_params(alpha=0.1)
        estimator.estimator.set_fit_request(sample_weight=True)
        estimator.fit(X[:600], y[:600], sample_weight=weights)
        members = [
            LogisticRegression().set_fit_request(sample_weight=True),
            GaussianNB(),
        ]
        members[1].set_fit_request(sample_weight=False)
        both = QWYCEnsemble(members, alpha=0.1, random_state=0)
        both.fit(X[:600], y[:600], sample_weight=weights)
    train, _ = hold_out(600, 0.25, np.random.RandomState(0), y[:600])
    alone = clone(cheap().estimator).fit(X[:600][train], y[:600][train], weights[train])
    for fitted in (weighted, estimator):
        np.testing.assert_array_equal(
            alone.predict_proba(X[:50]), fitted.estimator_.predict_proba(X[:50])
        )


def test_export_refusals(quick, problem, tmp_path):
    X, y, _, _ = problem
    with pytest.raises(ValueError, match="path must end in '.npz', got 'x.txt'"):
        export_ensemble(quick, "x.txt")
    for other in (FastForest(RandomForestClassifier(2)), GaussianNB()):
        with pytest.raises(ValueError, match=f"got {type(other).__name__}"):
            export_ensemble(other, tmp_path / "x.npz")
    members = QWYCEnsemble([GaussianNB()], alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match="is evaluated by 'MemberEngine'"):
        export_ensemble(members, tmp_path / "x.npz")
    codes = X.copy()
    codes[:, 0] = np.random.RandomState(0).randint(0, 4, len(X))
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features=[0])
    encoded = QWYCEnsemble(model, alpha=0.1).fit(codes, y)
    with pytest.raises(ValueError, match="encodes categories of its own"):
        export_ensemble(encoded, tmp_path / "x.npz")
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(
        ValueError, match="is not an exported early-exit ensemble of version 1"
    ):
        load_exported(tmp_path / "other.npz")
    export_ensemble(quick, tmp_path / "x.npz")
    exported = load_exported(tmp_path / "x.npz")
    with pytest.raises(TypeError, match=r"PortableEnsemble.load\(path\) reads a file"):
        PortableEnsemble(str(tmp_path / "x.npz"))
    del exported["lo"]
    with pytest.raises(ValueError, match=r"exported has no entry for \['lo'\]"):
        PortableEnsemble(exported)


def test_displays(quick, problem):
    plt = pytest.importorskip("matplotlib.pyplot")
    _, _, X, _ = problem
    display = ExitDisplay.from_estimator(quick, X, name="Adult")
    assert display.line_.get_label().startswith("Adult: still undecided")
    assert display.survival[-1] == 0.0
    assert sum(bar.get_height() for bar in display.bars_) == pytest.approx(1.0)
    # The bar of the last member is inside the axes.
    assert display.ax_.get_xlim() == (0, display.n_members + 0.5)
    _, ax = plt.subplots()
    again = ExitDisplay.from_predictions(
        display.members, 40, ax=ax, line_kwargs={"color": "k"}
    )
    assert again.ax_ is ax
    tradeoff = TradeoffDisplay.from_estimators({"a": quick, "b": quick}, X)
    assert len(tradeoff.lines_) == 2
    assert tradeoff.at("a", 0.0) <= 40
    assert np.isnan(tradeoff.at("a", 1.0))
    tradeoff.plot(ax=ax, line_kwargs=[{"color": "r"}, {"color": "b"}])
    assert tradeoff.lines_[0].get_color() == "r"
    with pytest.raises(ValueError, match="one dict for each of"):
        tradeoff.plot(ax=ax, line_kwargs=[{"color": "r"}])
    one = TradeoffDisplay.from_estimator(quick, X, line_kwargs={"color": "r"})
    assert one.lines_[0].get_label() == "QWYCEnsemble"
    assert one.at("QWYCEnsemble", 0.0) == tradeoff.at("a", 0.0)
    assert one.lines_[0].get_color() == "r"
    share, cost = quick.tradeoff(X)
    assert share[0] == 0.0
    assert cost[0] == 40
    plt.close("all")


@pytest.mark.parametrize(
    "estimator",
    [
        StackingClassifier(
            [("a", GaussianNB()), ("b", DecisionTreeClassifier())], cv=2
        ),
        OccamRouterClassifier(
            [("a", GaussianNB()), ("b", GaussianNB())],
            costs=[1, 2],
            quality_estimator=DecisionTreeRegressor(),
        ),
        make_pipeline(GaussianNB()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_members_that_are_not_added_up_are_refused_before_any_fit(estimator):
    X, y = make_classification(
        200,
        6,
        n_informative=5,
        n_redundant=0,
        n_classes=3,
        random_state=0,
        class_sep=0.8,
    )
    refused = pytest.raises(TypeError, match="must be an ensemble of LightGBM")
    with patch.object(GaussianNB, "fit", side_effect=AssertionError("fitted")), refused:
        QWYCEnsemble(estimator).fit(X, y)
    with pytest.raises(TypeError, match="must be an ensemble of LightGBM"):
        QWYCEnsemble(FrozenEstimator(clone(estimator).fit(X, y))).optimize(X)


def test_frames_are_read_by_the_names_of_fit(problem):
    X, y, rows, _ = problem
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    model = RandomForestClassifier(10, max_depth=4, random_state=0)
    quick = QWYCEnsemble(model, alpha=0.05, random_state=0)
    quick.fit(frame, np.where(y == 1, "yes", "no"))
    np.testing.assert_array_equal(quick.feature_names_in_, frame.columns)
    rows = pd.DataFrame(rows, columns=frame.columns)
    expected = quick.predict(rows)
    assert set(expected) == {"yes", "no"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(quick.predict(pl.from_pandas(rows)), expected)
    for i in range(5):
        assert quick.predict(rows[i : i + 1])[0] == expected[i]
    with pytest.raises(ValueError, match="feature names"):
        quick.predict(rows.rename(columns={"c0": "other"})[:1])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        quick.predict(rows.to_numpy()[:1])
    quick.fit(csr_array(X), y)
    np.testing.assert_array_equal(
        quick.predict(csr_array(rows)), quick.predict(rows.to_numpy())
    )


def test_missing_values_where_the_ensemble_behind_a_threshold_reads_them():
    """The classifier that moves the threshold does not say so; its ensemble does."""
    X, y = make_classification(600, 6, random_state=0)
    X[::7, 0] = np.nan
    moved = FixedThresholdClassifier(
        HistGradientBoostingClassifier(max_iter=20), threshold=0.3
    )
    exits = QWYCEnsemble(FrozenEstimator(moved.fit(X[:300], y[:300])), alpha=0).fit(
        X[300:], y[300:]
    )
    assert np.array_equal(exits.predict(X), moved.predict(X))
    forest = FixedThresholdClassifier(
        GradientBoostingClassifier(n_estimators=5), threshold=0.3
    )
    with pytest.raises(ValueError, match="NaN"):
        QWYCEnsemble(forest, alpha=0).fit(X, y)


@pytest.fixture(scope="module")
def fast(quick):
    return FastForest.from_ensemble(quick.estimator_)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_one_row_is_answered_or_refused_as_in_a_batch(data, quick, fast, problem):
    """The type, its memory, its values and its columns are drawn; so is the estimator."""
    estimator = data.draw(st.sampled_from([quick, fast]))
    methods, budget = ["predict", "predict_proba", "decision_function"], {}
    if estimator is quick:
        methods += ["predict_cost", "route"]
        budget = {
            "budget": data.draw(st.sampled_from([None, 1.01 * quick.min_budget_]))
        }
    method = data.draw(st.sampled_from(methods))
    rows = problem[0][-60:].copy()
    values = [np.nan, np.inf, 1e300, 0.0, -0.0, 1e-40, 1e30]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, 59)), data.draw(st.integers(0, rows.shape[1] - 1))
        rows[at] = data.draw(st.sampled_from(values))
    kinds = ["f2", "f4", "f8", "longdouble", ">f8", ">f4", "i4", "O", "list", "frame"]
    kind = data.draw(st.sampled_from(kinds))
    with np.errstate(all="ignore"):
        if kind == "i4":
            rows = np.nan_to_num(rows).astype(kind)
        elif kind not in ("list", "frame"):
            rows = rows.astype(kind)
    if data.draw(st.booleans()):
        rows = np.asfortranarray(rows)
    if data.draw(st.booleans()):
        rows = rows[:, : data.draw(st.integers(1, rows.shape[1]))]
    at = data.draw(st.integers(0, 59))
    row = rows[at : at + 1]
    row.flags.writeable = data.draw(st.booleans())
    whole = np.repeat(row, 60, axis=0)
    if kind in ("list", "frame"):
        row, whole = (
            X.tolist() if kind == "list" else pd.DataFrame(X) for X in (row, whole)
        )

    def outcome(X, i):
        try:
            return getattr(estimator, method)(X, **budget)[i]
        except (TypeError, ValueError) as error:
            return f"{type(error)}: {error}"

    expected, found = outcome(whole, 0), outcome(row, 0)
    if (
        method in ("predict", "route")
        or isinstance(expected, str)
        or isinstance(found, str)
    ):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert found.dtype == expected.dtype
