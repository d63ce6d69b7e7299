"""The promises of the abstract engine, for all engines and that of the developers' page."""

import importlib.util
import inspect
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.early_exit import QWYCEnsemble, export_ensemble
from skroute.early_exit._algorithms import checked, full_answers, never
from skroute.early_exit._engine import Engine, Link, Walk, builds_engine, find_builder
from skroute.early_exit._engines import engine_of, ensemble_engine
from tests.early_exit.test_exits import ColumnNet, column_rows

PAGE = Path(__file__).parents[2] / "doc" / "contributing"
spec = importlib.util.spec_from_file_location(
    "additive_engine", PAGE / "additive_engine.py"
)
page = importlib.util.module_from_spec(spec)
# Pickles find the classes of the page by this name.
sys.modules[spec.name] = page
spec.loader.exec_module(page)


def three_models(n_classes, **voting):
    members = [
        ("a", LogisticRegression()),
        ("b", GaussianNB()),
        ("c", LogisticRegression(C=0.01)),
    ]
    return VotingClassifier(members, **voting)


ENSEMBLES = {
    "forest": lambda n_classes: RandomForestClassifier(7, max_depth=3, random_state=0),
    "soft vote": lambda n_classes: three_models(
        n_classes, voting="soft", weights=[1, 2, 1]
    ),
    "hard vote": lambda n_classes: three_models(n_classes, voting="hard"),
    "bagging": lambda n_classes: BaggingClassifier(
        GaussianNB(), 5, max_features=0.7, random_state=0
    ),
    "AdaBoost": lambda n_classes: AdaBoostClassifier(
        GaussianNB(), n_estimators=5, random_state=0
    ),
    "list": lambda n_classes: [LogisticRegression(), GaussianNB()],
    "net": lambda n_classes: ColumnNet(4),
    "page": lambda n_classes: page.FeatureByFeature(),
}
CASES = [(name, n_classes) for name in ENSEMBLES for n_classes in (2, 3)]
# The one of the page has two classes.
CASES.remove(("page", 3))


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}, {case[1]} classes")
def fitted(request):
    """An engine, its classes, rows, and the fitted ensemble."""
    name, n_classes = request.param
    X, y = make_classification(
        400, 8, n_informative=6, n_classes=n_classes, random_state=0
    )
    if name == "net":
        X, y = column_rows(400, n_classes, 4, np.random.default_rng(0))
    ensemble = ENSEMBLES[name](n_classes)
    if isinstance(ensemble, list):
        ensemble = [member.fit(X, y) for member in ensemble]
    else:
        ensemble.fit(X, y)
    engine, classes = engine_of(ensemble, y)
    return engine, classes, X, ensemble


def values_of(engine, X):
    """Return what thresholds look at after each member: a sum or a margin, (n_members, n_rows)."""
    scores = engine.offset + np.cumsum(
        engine.member_scores(X), axis=0, dtype=np.float64
    )
    if engine.n_outputs == 1:
        return scores[:, :, 0]
    ordered = np.sort(scores, axis=2)
    return ordered[:, :, -1] - ordered[:, :, -2]


def thresholds_of(engine, X):
    """Return thresholds beyond which about a third of the rows is after each member."""
    values = values_of(engine, X)
    lower, upper = never(engine.n_members)
    # Votes are equal for many rows: no threshold is at one of their values.
    upper[:] = np.quantile(values, 0.7, axis=1) - 0.01
    if engine.n_outputs == 1:
        lower[:] = np.quantile(values, 0.1, axis=1) - 0.01
    return checked((lower, upper), engine.n_members)


def test_an_engine_writes_six_things():
    assert Engine.__abstractmethods__ == {
        "n_members",
        "n_outputs",
        "reordered",
        "member_scores",
        "walk",
        "timed_calls",
    }
    with pytest.raises(TypeError, match="abstract"):
        Engine()


def test_each_thing_of_an_engine_has_a_docstring():
    for name, thing in vars(Engine).items():
        if not name.startswith("_"):
            assert inspect.getdoc(thing), name


def test_facts_of_an_engine_are_properties_of_the_shapes_promised(fitted):
    engine, *_ = fitted
    for name in ("offset", "beta", "rounding", "link", "weights", "averages_members"):
        assert isinstance(inspect.getattr_static(type(engine), name), property), name
    assert isinstance(engine, Engine)
    assert engine.link is None or isinstance(engine.link, Link)
    assert engine.offset.shape == (engine.n_outputs,)
    assert engine.weights.shape == (engine.n_members,)


def test_a_full_walk_is_the_sum_of_the_members(fitted):
    engine, classes, X, ensemble = fitted
    added = engine.member_scores(X)
    assert added.shape == (engine.n_members, len(X), engine.n_outputs)
    walk = engine.walk(X, checked(never(engine.n_members), engine.n_members))
    assert isinstance(walk, Walk)
    assert walk.scores.dtype == np.float64
    assert walk.n_evaluated.dtype == walk.answers.dtype == np.int64
    np.testing.assert_array_equal(walk.n_evaluated, engine.n_members)
    total = engine.offset + added.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(walk.scores, total, atol=1e-5)
    far = np.abs(total - engine.beta).min(axis=1) > 1e-4
    answers = full_answers(added, engine.offset, engine.beta)
    np.testing.assert_array_equal(walk.answers[far], answers[far])
    if not isinstance(ensemble, list):
        labels = engine.labels(classes, walk.answers)
        assert np.mean(labels == ensemble.predict(X)) > 0.99


def test_rows_stop_at_the_thresholds_and_alone_as_together(fitted):
    engine, _, X, _ = fitted
    thresholds = thresholds_of(engine, X)
    walk = engine.walk(X, thresholds)
    lower, upper = thresholds[:, :, None]
    values = values_of(engine, X)
    stops = (values > upper) | (values < lower)
    stops[-1] = True
    # Members' scores have single precision here.
    distance = np.minimum(np.abs(values - upper), np.abs(values - lower))
    clear = (distance > 1e-5).all(axis=0)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(
        walk.n_evaluated[clear], stops.argmax(axis=0)[clear] + 1
    )
    assert walk.n_evaluated.min() == 1
    scores = engine.offset + np.cumsum(
        engine.member_scores(X), axis=0, dtype=np.float64
    )
    last = walk.n_evaluated - 1
    np.testing.assert_allclose(walk.scores, scores[last, np.arange(len(X))], atol=1e-5)
    row = int(np.flatnonzero(clear)[5])
    alone = engine.walk(X[row : row + 1], thresholds)
    assert alone.n_evaluated[0] == walk.n_evaluated[row]
    assert alone.answers[0] == walk.answers[row]
    np.testing.assert_allclose(alone.scores[0], walk.scores[row])


def test_another_order_adds_the_same_members(fitted):
    engine, _, X, _ = fitted
    order = np.arange(engine.n_members)
    if not engine.has_fixed_order:
        order = order[::-1].copy()
    reordered = engine.reordered(order)
    np.testing.assert_array_equal(
        reordered.member_scores(X), engine.member_scores(X)[order]
    )
    np.testing.assert_array_equal(reordered.weights, engine.weights[order])
    assert reordered.n_members == engine.n_members


def test_members_are_timed_by_functions_of_rows(fitted):
    engine, _, X, _ = fitted
    calls = engine.timed_calls()
    assert list(calls) == list(range(engine.n_members))
    for call in calls.values():
        call(X)


def test_engines_are_pickled(fitted):
    engine, _, X, _ = fitted
    thresholds = thresholds_of(engine, X)
    walk = engine.walk(X, thresholds)
    copied = pickle.loads(pickle.dumps(engine)).walk(X, thresholds)
    for before, after in zip(walk, copied, strict=True):
        np.testing.assert_array_equal(before, after)


def test_only_trees_are_a_forest(fitted):
    engine, _, _, ensemble = fitted
    is_forest = isinstance(ensemble, RandomForestClassifier)
    assert (engine.as_forest() is not None) == is_forest


# The engine of the developers' page -----------------------------------------------------


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_the_engine_of_the_page_exits_early(in_pipeline, tmp_path):
    X, y = make_classification(4000, 12, n_informative=4, class_sep=1.5, random_state=0)
    labels = np.array(["no", "yes"])[y]
    model = page.FeatureByFeature()
    if in_pipeline:
        model = make_pipeline(StandardScaler(), model)
    quick = QWYCEnsemble(model, alpha=0.02, random_state=0).fit(X[:3000], labels[:3000])
    answers, n_features, _ = quick.predict_routed(X[3000:])
    assert n_features.mean() < 8
    assert np.mean(answers != quick.estimator_.predict(X[3000:])) < 0.04
    full = QWYCEnsemble(FrozenEstimator(quick.estimator_), alpha=0.0, random_state=0)
    full.optimize(X[:3000])
    np.testing.assert_array_equal(full.predict(X), quick.estimator_.predict(X))
    np.testing.assert_allclose(full.predict_proba(X), quick.estimator_.predict_proba(X))
    again = pickle.loads(pickle.dumps(quick))
    np.testing.assert_array_equal(again.predict(X[3000:]), answers)
    with pytest.raises(ValueError, match="Only trees"):
        export_ensemble(quick, tmp_path / "quick.npz")


def test_a_wrong_engine_is_found_by_its_own_ensemble():
    class Wrong(LogisticRegression):
        pass

    @builds_engine(Wrong.__module__.split(".")[0], "Wrong")
    def wrong_engine(model):
        return page.LinearEngine(-model.coef_[0], float(model.intercept_[0]))

    X, y = make_classification(300, random_state=0)
    assert find_builder(Wrong()) is wrong_engine
    with pytest.raises(ValueError, match="Wrong"):
        QWYCEnsemble(Wrong(), random_state=0).fit(X, y)


def test_an_ensemble_without_an_engine_is_refused():
    assert find_builder(LogisticRegression()) is None
    X, y = make_classification(100, random_state=0)
    with pytest.raises(TypeError, match="estimator must be an ensemble of"):
        ensemble_engine(LogisticRegression().fit(X, y))


def test_a_net_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match="ColumnNet is not fitted"):
        ensemble_engine(ColumnNet(3))
