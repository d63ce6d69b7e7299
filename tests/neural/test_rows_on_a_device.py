"""Rows that are tensors on a device, for estimators that read them on the host."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification

from skroute.feature_sets import GreedyFeatureSelector, PolyDomSelector
from skroute.gating import (
    AdaptGatingClassifier,
    SequentialFeatureClassifier,
)
from skroute.quality import FrameEncoder
from skroute.routing import OnlineBudgetRouter
from tests.estimators import ESTIMATORS

torch = pytest.importorskip("torch")
from tests.neural.test_exit_states import OnDevice  # noqa: E402

READERS = (
    AdaptGatingClassifier,
    FrameEncoder,
    GreedyFeatureSelector,
    OnlineBudgetRouter,
    PolyDomSelector,
    SequentialFeatureClassifier,
)
READING = [estimator for estimator in ESTIMATORS if isinstance(estimator, READERS)]


@pytest.mark.parametrize("estimator", READING, ids=lambda estimator: type(estimator).__name__)
def test_rows_and_labels_are_brought_to_the_host(estimator):
    X, y = make_classification(80, n_features=5, random_state=0)
    if isinstance(estimator, OnlineBudgetRouter):
        estimator, y = OnlineBudgetRouter(costs=[1, 2]), np.column_stack([y, 1.0 - y])
    rows, labels = (torch.as_tensor(part).as_subclass(OnDevice) for part in (X, y))
    expected, own = (clone(estimator).fit(*told) for told in ((X, y), (rows, labels)))
    view = "predict" if hasattr(expected, "predict") else "transform"
    answers = getattr(expected, view)(X)
    for fitted in (expected, own):
        np.testing.assert_array_equal(getattr(fitted, view)(rows), answers)
    if hasattr(own, "route"):
        for method in ("route", "predict_cost"):
            np.testing.assert_array_equal(getattr(own, method)(rows), getattr(expected, method)(X))
    if hasattr(own, "score"):
        assert own.score(rows, labels) == expected.score(X, y)
