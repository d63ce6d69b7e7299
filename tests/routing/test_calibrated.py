"""Probabilities of members that mean the same: calibrated on answers that they did not learn."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.metrics._objectives import OF_LABELS
from skroute.routing import OccamRouterClassifier
from skroute.routing._calibrated import METHODS, calibrate

TREE = DecisionTreeRegressor(max_depth=4, min_samples_leaf=20, random_state=0)


def problem(n_classes=2, n=900, seed=0):
    X, y = make_classification(
        n, n_features=8, n_informative=5, n_redundant=3, n_classes=n_classes, random_state=seed
    )
    return X, np.array(["ant", "bee", "hornet"])[y]


def members():
    """Naive Bayes on copies of columns is far too sure of itself, a deep tree even more so."""
    return [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(random_state=0))]


def router(quality="log_loss", **more):
    return OccamRouterClassifier(
        members(), costs=[1, 3], quality=quality, quality_estimator=TREE, **more
    )


@pytest.mark.parametrize("method", METHODS)
def test_it_is_what_scikit_learn_makes_of_the_member(method):
    """Of a fitted logistic regression, whose log-odds scikit-learn reads itself."""
    X, y = problem()
    fitted = FrozenEstimator(LogisticRegression(C=100).fit(X[:100], y[:100]))
    target = np.searchsorted(fitted.classes_, y)
    proba = fitted.predict_proba(X)
    from skroute.routing._calibrated import _fit

    ours = _fit(method, proba[:500], target[:500], None).predict_proba(proba[500:])
    theirs = CalibratedClassifierCV(fitted, method=method, ensemble=False).fit(X[:500], y[:500])
    np.testing.assert_allclose(ours, theirs.predict_proba(X[500:]), atol=2e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("quality", ["log_loss", "brier"])
def test_the_mix_is_calibrated_and_its_validation_is_out_of_sample(quality, n_classes):
    X, y = problem(n_classes)
    found = router(quality).fit(X[:600], y[:600])
    assert set(found.calibration_) == {"bayes", "tree"} and found.calibration_["tree"] in METHODS
    proba = found.predict_proba(X[600:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    raw = [member.predict_proba(X[600:]) for member in found.estimators_]
    route = found.route(X[600:])
    assert log_loss(y[600:], proba) < log_loss(y[600:], np.stack(raw, 1)[np.arange(300), route])
    # What it says of new rows is what it said of held-out ones, within noise.
    rows = found.row_quality(X[600:], y[600:]).quality
    error = np.hypot(rows.std() / np.sqrt(300), found.validation_quality_se_)
    assert abs(rows.mean() - found.validation_quality_) < 4 * error
    # Answers stay the members' own, and other qualities leave probabilities as they are.
    for choice, member in enumerate(found.estimators_):
        at = route == choice
        assert (found.predict(X[600:])[at] == member.predict(X[600:])[at]).all()
    plain = router("probability").fit(X[:600], y[:600])
    assert plain.calibration_ == {}
    at = plain.route(X[600:]) == 1
    np.testing.assert_array_equal(plain.predict_proba(X[600:])[at], raw[1][at])


def test_a_member_that_embeds_is_calibrated_too():
    X, y = problem()
    found = router(embedding="bayes").fit(X[:600], y[:600])
    rows = found.route(X[600:]) == 0
    raw = found.named_estimators_.bayes.predict_proba(X[600:])
    expected = found._calibrators["bayes"].predict_proba(raw)
    np.testing.assert_allclose(found.predict_proba(X[600:])[rows], expected[rows])
    stream = found.stream(1000)
    assert stream.predict(X[[600]]) == found.predict(X[[600]])[0]


def test_no_row_judges_a_calibration_that_it_fitted():
    """Labels that are noise: calibrated in sample they look predictable, out of sample not."""
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(8):
        target = rng.integers(0, 2, 120)
        sure = rng.uniform(0.3, 0.7, 120)
        proba = np.column_stack([1 - sure, sure])
        for folds in (5, list(StratifiedKFold(4).split(proba, target))):
            found = calibrate(proba, target, folds)
            gains.append(OF_LABELS["log_loss"]().of(target, found.proba).mean() + np.log(2))
    assert np.mean(gains) < 0.01


def test_weights_and_few_rows():
    X, y = problem()
    weight = np.random.default_rng(0).uniform(0, 2, 600)
    found = router().fit(X[:600], y[:600], sample_weight=weight)
    assert found.calibration_["tree"] in METHODS
    doubled = calibrate(*_pair(500), 5, np.ones(500)).proba
    np.testing.assert_allclose(doubled, calibrate(*_pair(500), 5).proba)
    # Nothing is learned of a class with a handful of rows.
    proba, target = _pair(100)
    target[:] = 0
    target[:5] = 1
    assert calibrate(proba, target, 5).method is None


def _pair(n):
    rng = np.random.default_rng(1)
    odds = rng.normal(size=n)
    target = (rng.uniform(size=n) < 1 / (1 + np.exp(-odds))).astype(int)
    said = 1 / (1 + np.exp(-3 * odds))
    return np.column_stack([1 - said, said]), target
