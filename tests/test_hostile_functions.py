"""Hostile input for every public function: a right answer or a clear error.

Each function is called with good arguments of which one at a time is replaced by something
hostile. The functions come from the frozen API: a new one must be added here.
"""

import inspect
import numbers
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from skroute import metrics
from skroute.early_exit import QWYCEnsemble
from skroute.routing import BudgetRouter
from tests.test_hostile import HOSTILE_ARRAYS, assert_clear, each
from tests.test_package import OBJECTS

# Called by estimators with what they have validated; their users are authors of estimators.
FUNCTIONS = {
    name.removeprefix("skroute."): item
    for name, item in OBJECTS.items()
    if not inspect.isclass(item)
}
INTERNAL = {
    # Asked by estimators that say themselves what they take.
    "base.affords",
    "base.check_affordable",
    "base.count_rows",
    "base.dispatch",
    "base.inherit_member_tags",
    "base.measure_costs",
    "base.note_failure",
    "base.take_rows",
    # What engines are made of: they get what readers and estimators have checked.
    "forests.find_reader",
    "forests.leaf_sums",
    "forests.read_forest",
    "forests.read_lightgbm",
    # It takes a reader, not rows. tests/forests/test_register_reader.py has its errors.
    "forests.register_reader",
    # It runs tests.
    "testing.check_decision_estimator",
}

VALUES = np.random.default_rng(0).random((6, 3))
COSTS = np.array([1.0, 2.0, 4.0])
X, Y = make_classification(
    60, n_features=3, n_informative=2, n_redundant=0, random_state=0
)
QUALITY = [0.5, 0.7, 0.8]


def good(**arguments):
    return arguments


# Arguments that several functions have.
TABLE = good(values=VALUES, costs=COSTS)
LOG = good(Q=VALUES, costs=COSTS)
CURVE = good(cost=[1.0, 2.0, 4.0], quality=QUALITY)
ENDS = good(weak=(1.0, 0.5), strong=(4.0, 0.8))
RESAMPLED = good(confidence_level=0.9, n_resamples=3, random_state=0)
BOUNDED = good(values=QUALITY, bounds=[0.0, 1.0], method="betting")


def calls(tmp_path):
    """For each function its good arguments."""
    quick = QWYCEnsemble(RandomForestClassifier(3, random_state=0), random_state=0).fit(
        X, Y
    )
    plain = BudgetRouter(Ridge(), costs=COSTS, cv=2).fit(X[:6], VALUES)
    dask_values = pytest.importorskip("dask.array").from_array(VALUES)
    asked = good(estimator=plain, X=X[:6], y=VALUES)
    curve = metrics.accuracy_cost_curve(**asked, budgets=[1.0, 2.0])
    missing = good(data_home=tmp_path / "none", download_if_missing=False)
    found = {
        "assignment.assignment_path": TABLE,
        "assignment.choose_at_price": good(**TABLE, price=0.1, tolerance=1e-9),
        "assignment.solve_assignment": good(
            **TABLE,
            budget=2.0,
            objective="mean",
            solver="auto",
            tol=1e-9,
            solver_options=None,
            limits={"seconds": 5.0},
            amounts={"seconds": COSTS},
            capacities={0: 1.0},
            floors=None,
            segments=None,
        ),
        "base.check_budget": good(budget=1.0),
        "base.check_costs": good(costs=COSTS, names=["a", "b", "c"]),
        "base.check_rows": good(estimator=LogisticRegression(), X=X, reset=True),
        "datasets.frugal_split": good(n_samples=10, random_state=0, train_share=0.5),
        "datasets.get_data_home": good(data_home="somewhere"),
        "datasets.make_four_clusters": good(n_samples=12, noise=0.1, random_state=0),
        "datasets.make_routing_problem": good(
            n_samples=10,
            n_models=3,
            n_features=2,
            n_classes=3,
            n_regions=4,
            specialization=1.0,
            accuracy=(0.6, 0.9),
            cost_ratio=10.0,
            random_state=0,
        ),
        "datasets.tables_from_log": good(
            log=pytest.importorskip("pandas").DataFrame(
                {"prompt": list("aab"), "model": list("xyx"), "score": QUALITY}
            ),
            request="prompt",
            choice="model",
            quality="score",
            features="prompt",
            cost="score",
            cached=None,
            amounts=("score",),
            repeated="retry",
        ),
        "distributed.solve_assignment": good(
            values=dask_values, costs=COSTS, budget=2.0
        ),
        "distributed.solve_in_passes": good(
            blocks=((VALUES, COSTS),), budget=2.0, run=None
        ),
        "routing.export_policy": good(router=plain, path=tmp_path / "policy.json"),
        "early_exit.export_ensemble": good(
            estimator=quick, path=tmp_path / "again.npz"
        ),
        "guarantees.fixed_sequence_test": good(
            p_values=[0.01, 0.2, 0.03], confidence=0.9
        ),
        "guarantees.mean_lower_bound": good(**BOUNDED, confidence=0.9, n_population=9),
        "guarantees.mean_p_value": good(**BOUNDED, limit=0.9, n_population=9),
        "guarantees.mean_upper_bound": good(
            **BOUNDED, confidence=0.9, n_population=None
        ),
        "guarantees.rows_needed": good(
            limit=0.1,
            mean=0.01,
            std=0.2,
            bounds=[-1.0, 1.0],
            confidence=0.95,
            power=0.8,
        ),
        "metrics.accuracy_cost_curve": good(
            **asked,
            budgets=[1.0, 2.0],
            sample_weight=np.ones(6),
            row_quality=None,
            costs=None,
        ),
        "metrics.off_policy_curve": good(
            estimator=plain,
            X=X[:30],
            q=np.linspace(0, 1, 30),
            choice=np.arange(30) % 3,
            propensity=np.full(30, 1 / 3),
            costs=np.ones(30),
            budgets=[4.0, 4.0],
            confidence_level=0.9,
            cv=2,
        ),
        "metrics.off_policy_savings": good(
            estimator=plain,
            X=X[:30],
            q=np.linspace(0, 1, 30),
            choice=np.arange(30) % 3,
            propensity=np.full(30, 1 / 3),
            costs=np.ones(30),
            seconds=np.ones(30),
            budget=4.0,
            cost_unit="USD",
            confidence_level=0.9,
            cv=2,
        ),
        "metrics.savings": good(
            **asked,
            **RESAMPLED,
            costs=None,
            seconds=None,
            today=None,
            budget=2.0,
            row_quality=None,
            cost_unit="USD",
        ),
        "metrics.decision_report": good(
            **asked,
            **RESAMPLED,
            path=tmp_path / "report.html",
            budgets=[1.0, 2.0],
            n_budgets=3,
            costs=None,
        ),
        "metrics.replay": good(
            router=plain, X=X[:6], quality=VALUES, costs=COSTS, choices=None, delay=0
        ),
        "metrics.average_performance_gap_recovered": good(**CURVE, **ENDS),
        "metrics.best_within_budget": good(budget=1.0, quality="accuracy", cost="cost"),
        "metrics.bootstrap_interval": good(**RESAMPLED, statistic=np.max, rows=QUALITY),
        "metrics.call_performance_threshold": good(**CURVE, **ENDS, share=0.5),
        "metrics.compare_with_references": good(**LOG, **RESAMPLED, curve=curve),
        "metrics.complementarity_matrix": good(Q=VALUES),
        "metrics.cost_quality_auc": good(**CURVE, low=1.0, high=4.0),
        "metrics.cost_reduction_at": good(
            **CURVE, reference_cost=5.0, reference_quality=0.7, max_drop=0.1
        ),
        "metrics.make_budget_scorer": good(budget=1.0, scoring="accuracy"),
        "metrics.make_curve_scorer": good(
            metric=metrics.cost_quality_auc, budgets=[1.0, 2.0]
        ),
        "metrics.mean_cost_scorer": good(estimator=plain, X=X[:6]),
        "metrics.mean_quality_scorer": asked,
        "metrics.pareto_front": CURVE,
        "metrics.risk_coverage_curve": good(
            loss=QUALITY, confidence=[1.0, 2.0, 4.0], sample_weight=np.ones(3)
        ),
        "metrics.risk_coverage_scorer": asked,
        "metrics.sample_quality": good(y_true=[0, 1, 1], y_pred=[0, 1, 0]),
        "metrics.reference_curves": good(**LOG, budgets=[1.0, 2.0]),
    }
    for name in FUNCTIONS:
        if name.startswith("datasets.fetch_"):
            named = {"name": "fer" if name.endswith("ml") else "mirflickr"}
            found[name] = missing | (named if "frugal" in name else {})
    return found


def call(function, arguments):
    arguments = {**arguments}
    if "rows" in arguments:
        # *rows
        return function(arguments.pop("statistic"), arguments.pop("rows"), **arguments)
    return function(**arguments)


SCALARS = [None, np.nan, np.inf, -np.inf, -1, 0, 0.5, 1e308, 2.5, True, "text", b"text"]
SCALARS += [1j, [], {}, [[1.0, 2.0]], np.datetime64("2026-01-01"), object()]


def assert_answer(answer, name):
    """No number that came from nowhere: NaN and infinity only where they are documented."""
    if isinstance(answer, dict):
        answer = tuple(answer.values())
    if isinstance(answer, (tuple, list)):
        for part in answer:
            assert_answer(part, name)
    elif isinstance(answer, np.ndarray) and answer.dtype.kind == "f":
        assert np.isfinite(answer).all() or name in MAY_BE_NAN, f"{name}: {answer}"
    elif isinstance(answer, numbers.Real) and not isinstance(answer, bool):
        assert np.isfinite(answer) or name in MAY_BE_NAN, f"{name}: {answer}"


# Where NaN or infinity is what the documentation says.
MAY_BE_NAN = {
    "assignment.assignment_path",  # what a choice of a denormal cost is worth per unit
    "guarantees.rows_needed",  # no number of rows is enough
    "assignment.solve_assignment",  # price, where the objective has none
    "base.check_budget",  # infinite is unlimited
    "metrics.reference_curves",  # a budget that is unlimited
    "metrics.accuracy_cost_curve",
    "metrics.off_policy_curve",
    "metrics.replay",  # what is not known of a log
    "metrics.call_performance_threshold",
    "metrics.cost_reduction_at",
    "metrics.compare_with_references",
    "metrics.bootstrap_interval",
}


# What the author of an estimator passes on, checked before.
NOT_DATA = {("base.check_costs", "names"), ("base.check_rows", "estimator")}


def test_no_function_is_left_out(tmp_path):
    assert set(calls(tmp_path)) | INTERNAL == set(FUNCTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - INTERNAL))
def test_hostile_arguments(name, tmp_path, monkeypatch):
    # Where a text was taken for a path, a file is left.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("skroute.quality._logged._N_TREES", 2)
    function = FUNCTIONS[name]
    arguments = calls(tmp_path)[name]
    if not name.startswith("datasets.fetch_"):
        assert_answer(call(function, arguments), name)
    cases = {}
    for parameter, value in arguments.items():
        if (name, parameter) in NOT_DATA:
            continue
        for hostile in SCALARS:
            if hostile is True and parameter.startswith("n_"):
                continue  # An integer, to Python and to numpy not.
            cases[f"{parameter}={hostile!r}"[:80]] = {parameter: hostile}
        if isinstance(value, (np.ndarray, list)) and parameter not in ("names",):
            for kind, made in HOSTILE_ARRAYS.items():
                cases[f"{parameter}: {kind}"] = {parameter: made(np.asarray(value))}

    def check(case):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                answer = call(function, arguments | cases[case])
            except (ValueError, TypeError) as error:
                assert_clear(error)
            except AttributeError:
                # What is no estimator lacks what one has.
                assert "estimator" in cases[case]
            except OSError as error:
                # A file that is not there, or that must not be downloaded.
                assert name.startswith(("datasets.fetch_", "early_exit.")), error
            else:
                # Sums of the largest numbers overflow to infinity, as numpy's own do.
                if "largest" not in case and "1e+308" not in case:
                    assert_answer(answer, name)

    each(cases, check)
