"""A library of a stranger registers a reader of its ensembles."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from skroute.early_exit import QWYCEnsemble
from skroute.forests import (
    AnswerRule,
    FastForest,
    ForestBuilder,
    ForestReader,
    ReadRule,
    find_reader,
    register_reader,
)
from skroute.forests._readers import READERS


class Stumps(ClassifierMixin, BaseEstimator):
    """A classifier of two classes that adds one step per column."""

    def __init__(self, n_features=4):
        self.n_features = n_features

    def fit(self, X, y):
        validate_data(self, X)
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        X = validate_data(self, X, reset=False)
        return np.where(X <= 0.5, -1.0, 1.0).sum(axis=1)

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def predict_proba(self, X):
        positive = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.column_stack([1 - positive, positive])


class StumpReader(ForestReader):
    """Reader of `Stumps`, whose package is that of this test."""

    package = Stumps.__module__.split(".")[0]
    class_names = ("Stumps",)

    def read(self, estimator):
        builder = ForestBuilder()
        for column in range(estimator.n_features):
            builder.add_tree(
                left=np.array([1, -1, -1]),
                right=np.array([2, -1, -1]),
                feature=np.array([column, 0, 0]),
                threshold=np.array([0.5, 0.0, 0.0]),
                value=np.array([[0.0], [-1.0], [1.0]]),
                flags=np.zeros(3, dtype=np.int64),
            )
            builder.end_member()
        return builder.build(
            [0.0],
            estimator.n_features,
            classes=estimator.classes_,
            read_rule=ReadRule(),
            answer_rule=AnswerRule(kind="expit", by_score=True),
        )


@pytest.fixture
def registered():
    """Register the reader during one test."""
    before = list(READERS)
    reader = register_reader(StumpReader())
    yield reader
    READERS[:] = before


def test_a_registered_reader_is_found_and_answers_as_its_library(registered):
    X = np.random.default_rng(0).uniform(size=(200, 4))
    model = Stumps().fit(X, np.arange(200) % 2)
    assert find_reader(model) is registered
    forest = registered.read(model)
    assert forest.n_members == 4
    fast = FastForest(model)
    fast.fit(X, model.predict(X))
    np.testing.assert_array_equal(fast.predict(X), model.predict(X))
    np.testing.assert_allclose(
        fast.predict_proba(X), model.predict_proba(X), rtol=1e-12
    )


def test_a_registered_reader_can_exit_early(registered):
    X = np.random.default_rng(0).uniform(size=(400, 4))
    model = Stumps().fit(X, np.arange(400) % 2)
    ensemble = QWYCEnsemble(model, alpha=0.0, random_state=0)
    ensemble.fit(X, model.predict(X))
    np.testing.assert_array_equal(ensemble.predict(X), model.predict(X))


def test_a_reader_of_the_same_classes_replaces_the_registered_one(registered):
    count = len(READERS)
    second = register_reader(StumpReader())
    assert len(READERS) == count
    assert find_reader(Stumps()) is second


def test_what_is_no_reader_or_names_a_class_twice_is_refused(registered):
    with pytest.raises(TypeError, match="subclass of skroute.forests.ForestReader"):
        register_reader(StumpReader)

    class OverlappingReader(StumpReader):
        class_names = ("Stumps", "Boosted")

    with pytest.raises(ValueError, match="'Stumps' .* has a reader already"):
        register_reader(OverlappingReader())
