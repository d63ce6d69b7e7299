"""Routers of many labels: the features of their quality estimators stay few."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.naive_bayes import GaussianNB

from skroute.routing import FrugalMCTClassifier, SequentialRouterClassifier
from skroute.routing.from_answers import _combining
from skroute.routing.from_answers._combining import answer_features


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_largest_scores_stand_for_the_scores_of_many_labels(multilabel):
    scores = np.random.default_rng(0).uniform(size=(30, 150)).astype(np.float32)
    features = answer_features([scores], multilabel=multilabel)
    assert_array_equal(features[:, :20], -np.sort(-scores, axis=1)[:, :20])
    assert_array_equal(features[:, 20], scores.max(axis=1))
    assert features.shape == (30, 22)


def test_features_of_few_labels_are_all_scores():
    scores = np.random.default_rng(0).uniform(size=(30, 100)).astype(np.float32)
    assert_array_equal(answer_features([scores])[:, :100], scores)


@pytest.mark.parametrize(
    "router_class", [FrugalMCTClassifier, SequentialRouterClassifier]
)
def test_a_router_of_many_labels_routes_one_row_as_in_a_batch(
    router_class, monkeypatch
):
    monkeypatch.setattr(_combining, "_MOST_LABELS", 20)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 8)
    X = rng.normal(size=(30, 4))[y] + 0.5 * rng.normal(size=(240, 4))
    members = [("a", GaussianNB(var_smoothing=1.0)), ("b", GaussianNB())]
    router = router_class(members, costs=[1.0, 2.0], budget=2.0, cv=3).fit(X, y)
    request_id = np.arange(240)
    route = router.route(X, request_id=request_id)
    for row in (0, 100, 239):
        single = router.route(X[[row]], request_id=request_id[[row]])
        assert single[0] == route[row]
