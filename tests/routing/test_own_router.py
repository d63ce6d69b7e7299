"""The router of doc/contributing/add_routing_method.rst, run as it is shown."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.decision_checks import DECISION_CHECKS
from tests.estimators import COSTS, members
from tests.router_checks import (
    check_router_takes_frozen_members,
    check_router_validates_before_any_model_is_called,
)

PAGE = Path(__file__).resolve().parents[2] / "doc" / "contributing"
spec = importlib.util.spec_from_file_location("cascade", PAGE / "cascade.py")
cascade = sys.modules["cascade"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cascade)
ROUTER = cascade.CascadeClassifier(members(), costs=COSTS, budget=2.0, cv=2)


@parametrize_with_checks([ROUTER])
def test_sklearn_checks(estimator, check):
    check(estimator)


# A class of a page cannot be imported by skops.
CHECKS = [check for check in DECISION_CHECKS if "skops" not in check.__name__]
CHECKS += [check_router_takes_frozen_members, check_router_validates_before_any_model_is_called]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_our_checks(check):
    check(ROUTER)


def test_it_spends_its_budget_on_the_rows_that_are_not_sure():
    X, y = make_classification(2000, n_informative=6, n_classes=3, random_state=0)
    router = cascade.CascadeClassifier(members(), costs=COSTS, n_thresholds=50)
    router.fit(X[:1000], y[:1000])
    for budget in (1.0, 2.0, 3.0):
        _, route, cost = router.predict_routed(X[1000:], budget=budget)
        assert abs(cost.mean() - budget) < 0.3
        np.testing.assert_array_equal(cost, np.array([1.0, 4.0])[route])
    assert router.choices_ == ["tree", "tree > logreg"]
