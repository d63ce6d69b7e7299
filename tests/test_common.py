"""scikit-learn's estimator checks and skroute's own, for every public estimator."""

import inspect
import subprocess
import sys

import joblib
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from skroute.gating import SequentialFeatureClassifier
from skroute.quality import QualityRegressor
from skroute.testing._checks import ACT_AT_ONCE
from tests.decision_checks import DECISION_CHECKS, documented_at_once, fitted, rows
from tests.estimators import ESTIMATORS, MODELS, NETS, ROUTERS, SLOW
from tests.router_checks import ROUTER_CHECKS
from tests.test_package import OBJECTS


def expected_failures(estimator):
    """Checks that a method cannot pass, with the reason."""
    if isinstance(estimator, SequentialFeatureClassifier):
        name = "check_sample_weight_equivalence_on_dense_data"
        return {
            name: "rows are held out by chance: of a repeated row one may be learned from"
        }
    if isinstance(estimator, QualityRegressor):
        reason = (
            "leaves count rows, and rows of trees and landmarks are drawn by chance"
        )
        return {
            "check_sample_weight_equivalence_on_dense_data": reason,
            "check_sample_weight_equivalence_on_sparse_data": reason,
        }
    return {}


# One of each class; what its options change is seen by our own checks.
ONE_EACH = list(
    {type(estimator): estimator for estimator in reversed(ESTIMATORS)}.values()
)
OTHERS = [estimator for estimator in ESTIMATORS if estimator not in ONE_EACH]


@parametrize_with_checks(ONE_EACH, expected_failed_checks=expected_failures)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([*OTHERS, *SLOW], expected_failed_checks=expected_failures)
def test_sklearn_checks_of_others(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", ROUTER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("estimator", ROUTERS, ids=lambda e: f"{type(e).__name__}")
def test_router_checks(estimator, check):
    check(estimator)


DECISIONS = [
    estimator for estimator in ESTIMATORS if hasattr(estimator, "predict_routed")
]
# The router that most users have, with its own estimates.
DEFAULT = pytest.param(SLOW[0], marks=pytest.mark.slow)


@pytest.mark.parametrize("check", DECISION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "estimator", [*DECISIONS, DEFAULT], ids=lambda e: f"{type(e).__name__}"
)
def test_decision_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_param_validation]
)
@pytest.mark.parametrize("estimator", DECISIONS, ids=lambda e: f"{type(e).__name__}")
def test_sklearn_checks_that_are_not_on_its_list(estimator, check):
    check(type(estimator).__name__, estimator)


ANOTHER_PROCESS = """
import joblib, sys
import numpy as np
for model, X, expected in joblib.load(sys.argv[1]):
    for found, own in zip(model.predict_routed(X), expected):
        np.testing.assert_array_equal(found, own, err_msg=type(model).__name__)
"""


def test_fitted_estimators_answer_alike_in_another_process(tmp_path):
    X = rows()[2]
    models = [fitted(estimator) for estimator in DECISIONS]
    dumped = [(model, X, tuple(model.predict_routed(X))) for model in models]
    joblib.dump(dumped, tmp_path / "models")
    subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, tmp_path / "models"], check=True
    )


def test_every_estimator_is_in_the_table_of_what_acts_at_once():
    documented = documented_at_once()
    assert set(documented) == {type(estimator).__name__ for estimator in ESTIMATORS}
    for name, at_once in documented.items():
        of_online = {"drift", "exploration", "n_expected"}
        assert at_once <= ACT_AT_ONCE | (
            of_online if name == "OnlineBudgetRouter" else set()
        )


def test_every_public_estimator_is_checked():
    """But parameter objects without `fit`, and classes that fail where scikit-learn's own do."""
    public = {
        item
        for item in OBJECTS.values()
        if inspect.isclass(item)
        and issubclass(item, BaseEstimator)
        and hasattr(item, "fit")
        and not issubclass(item, (Pipeline, GridSearchCV))
        and not item.__name__.endswith("Mixin")
    }
    assert public == {type(estimator) for estimator in [*ESTIMATORS, *NETS, *MODELS]}
