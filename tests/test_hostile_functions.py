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
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from skroute import early_exit, metrics
from skroute.early_exit import QWYCEnsemble
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.routing import BudgetRouter
from tests.test_hostile import assert_clear, each
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
    "base.dispatch",
    "base.inherit_member_tags",
    "base.measure_costs",
    "base.note_failure",
    # What engines are made of: they get what readers and estimators have checked.
    "forests.find_reader",
    "forests.leaf_sums",
    "forests.read_forest",
    "forests.read_lightgbm",
}

RNG = np.random.default_rng(0)
VALUES = RNG.random((6, 3))
COSTS = np.array([1.0, 2.0, 4.0])
X, Y = make_classification(60, n_features=3, n_informative=2, n_redundant=0, random_state=0)
COST = [1.0, 2.0, 4.0]
QUALITY = [0.5, 0.7, 0.8]
CURVE = {"cost": COST, "quality": QUALITY}
BOUNDED = {"values": QUALITY, "bounds": [0.0, 1.0], "confidence": 0.9}
ENDS = {"weak": (1.0, 0.5), "strong": (4.0, 0.8)}


def calls(tmp_path):
    """For each function its good arguments."""
    quick = QWYCEnsemble(RandomForestClassifier(3, random_state=0), random_state=0).fit(X, Y)
    exported = tmp_path / "quick.npz"
    early_exit.export_ensemble(quick, exported)
    router = BudgetRouter(DummyRegressor(), costs=COSTS, cv=2).fit(X[:6], VALUES)
    dask_array = pytest.importorskip("dask.array")
    parquet = pytest.importorskip("pyarrow.parquet")
    plain = BudgetRouter(Ridge(), costs=COSTS, cv=2).fit(X[:6], VALUES)
    rows = tmp_path / "rows.parquet"
    table = {str(k): column for k, column in enumerate(X[:6].T)}
    parquet.write_table(pytest.importorskip("pyarrow").table(table), rows)
    curve = metrics.accuracy_cost_curve(router, X[:6], VALUES, [1.0, 2.0])
    missing = {"data_home": tmp_path / "none", "download_if_missing": False}
    found = {
        "assignment.assignment_path": {"values": VALUES, "costs": COSTS},
        "assignment.choose_at_price": {
            "values": VALUES,
            "costs": COSTS,
            "price": 0.1,
            "tolerance": 1e-9,
        },
        "assignment.solve_assignment": {
            "values": VALUES,
            "costs": COSTS,
            "budget": 2.0,
            "objective": "mean",
            "solver": "auto",
            "tol": 1e-9,
            "solver_options": None,
        },
        "base.check_budget": {"budget": 1.0},
        "base.check_costs": {"costs": COSTS, "names": ["a", "b", "c"]},
        "base.check_rows": {"estimator": LogisticRegression(), "X": X, "reset": True},
        "datasets.frugal_split": {"n_samples": 10, "random_state": 0, "train_share": 0.5},
        "datasets.get_data_home": {"data_home": "somewhere"},
        "datasets.make_four_clusters": {"n_samples": 12, "noise": 0.1, "random_state": 0},
        "datasets.make_routing_problem": {
            "n_samples": 10,
            "n_models": 3,
            "n_features": 2,
            "n_classes": 3,
            "n_regions": 4,
            "specialization": 1.0,
            "accuracy": (0.6, 0.9),
            "cost_ratio": 10.0,
            "random_state": 0,
        },
        "distributed.solve_assignment": {
            "values": dask_array.from_array(VALUES),
            "costs": COSTS,
            "budget": 2.0,
        },
        "distributed.solve_in_passes": {"blocks": ((VALUES, COSTS),), "budget": 2.0, "run": None},
        "routing.export_policy": {"router": plain, "path": tmp_path / "policy.json"},
        "early_exit.export_ensemble": {"estimator": quick, "path": tmp_path / "again.npz"},
        "gating.adapt_grid": {
            "estimator": AdaptGatingClassifier(
                LogisticRegression(), gate=BoostedGate(max_iter=1, n_estimators=2), cv=2
            ),
            "X": X,
            "y": Y,
            "X_val": X,
            "y_val": Y,
            "p_full": [0.2],
            "gamma": [1e-2],
            "sample_weight": np.ones(len(Y)),
            "n_jobs": None,
        },
        "guarantees.fixed_sequence_test": {"p_values": [0.01, 0.2, 0.03], "confidence": 0.9},
        "guarantees.mean_lower_bound": {**BOUNDED, "method": "betting", "n_population": 9},
        "guarantees.mean_p_value": {
            "values": QUALITY,
            "limit": 0.9,
            "bounds": (0.0, 1.0),
            "method": "betting",
            "n_population": 9,
        },
        "guarantees.mean_upper_bound": {**BOUNDED, "method": "betting", "n_population": None},
        "guarantees.rows_needed": {
            "limit": 0.1,
            "mean": 0.01,
            "std": 0.2,
            "bounds": [-1.0, 1.0],
            "confidence": 0.95,
            "power": 0.8,
        },
        "metrics.accuracy_cost_curve": {
            "estimator": router,
            "X": X[:6],
            "y": VALUES,
            "budgets": [1.0, 2.0],
            "sample_weight": np.ones(6),
            "row_quality": None,
        },
        "metrics.off_policy_curve": {
            "estimator": plain,
            "X": X[:30],
            "q": np.linspace(0, 1, 30),
            "choice": np.arange(30) % 3,
            "propensity": np.full(30, 1 / 3),
            "costs": np.ones(30),
            "budgets": [4.0, 4.0],
            "confidence_level": 0.9,
            "cv": 2,
        },
        "metrics.decision_report": {
            "estimator": plain,
            "X": X[:6],
            "y": VALUES,
            "path": tmp_path / "report.html",
            "budgets": [1.0, 2.0],
            "n_budgets": 3,
            "confidence_level": 0.9,
            "n_resamples": 3,
            "random_state": 0,
        },
        "metrics.replay": {
            "router": plain,
            "X": X[:6],
            "quality": VALUES,
            "costs": COSTS,
            "choices": None,
            "delay": 0,
        },
        "metrics.average_performance_gap_recovered": {**CURVE, **ENDS},
        "metrics.best_within_budget": {"budget": 1.0, "quality": "accuracy", "cost": "cost"},
        "metrics.bootstrap_interval": {
            "statistic": np.max,
            "rows": QUALITY,
            "confidence_level": 0.9,
            "n_resamples": 5,
            "random_state": 0,
        },
        "metrics.call_performance_threshold": {**CURVE, "share": 0.5, **ENDS},
        "metrics.compare_with_references": {
            "curve": curve,
            "Q": VALUES,
            "costs": COSTS,
            "confidence_level": 0.9,
            "n_resamples": 3,
            "random_state": 0,
        },
        "metrics.complementarity_matrix": {"Q": VALUES},
        "metrics.cost_quality_auc": {**CURVE, "low": 1.0, "high": 4.0},
        "metrics.cost_reduction_at": {
            **CURVE,
            "reference_cost": 5.0,
            "reference_quality": 0.7,
            "max_drop": 0.1,
        },
        "metrics.make_budget_scorer": {"budget": 1.0, "scoring": "accuracy"},
        "metrics.make_curve_scorer": {"metric": metrics.cost_quality_auc, "budgets": [1.0, 2.0]},
        "metrics.mean_cost_scorer": {"estimator": router, "X": X[:6]},
        "metrics.mean_quality_scorer": {"estimator": router, "X": X[:6], "y": VALUES},
        "metrics.pareto_front": CURVE,
        "metrics.risk_coverage_curve": {
            "loss": QUALITY,
            "confidence": COST,
            "sample_weight": np.ones(len(QUALITY)),
        },
        "metrics.risk_coverage_scorer": {"estimator": router, "X": X[:6], "y": VALUES},
        "metrics.sample_quality": {"y_true": [0, 1, 1], "y_pred": [0, 1, 0]},
        "metrics.reference_curves": {"Q": VALUES, "costs": COSTS, "budgets": [1.0, 2.0]},
    }
    for name in FUNCTIONS:
        if name.startswith("datasets.fetch_"):
            found[name] = missing
            if "frugal" in name:
                found[name]["name"] = "fer" if name.endswith("ml") else "mirflickr"
    return found


def call(function, arguments):
    arguments = dict(arguments)
    if "rows" in arguments:
        # *rows
        return function(arguments.pop("statistic"), arguments.pop("rows"), **arguments)
    return function(**arguments)


SCALARS = [None, np.nan, np.inf, -np.inf, -1, 0, 0.5, 1e308, 2.5, True, "text", b"text"]
SCALARS += [1j, [], {}, [[1.0, 2.0]], np.datetime64("2026-01-01"), object()]


def hostile_arrays(good):
    """Versions of an array that are wrong, or right and unusual."""
    good = np.asarray(good)
    floats = good.astype(np.float64)
    first = (0,) * good.ndim

    def put(value, dtype=np.float64):
        array = good.astype(dtype)
        array[first] = value
        return array

    read_only = good.copy()
    read_only.flags.writeable = False
    yield "read only", read_only
    yield "nan", put(np.nan)
    yield "inf", put(np.inf)
    yield "-inf", put(-np.inf)
    yield "negative", put(-1.0)
    yield "huge", floats * 1e307
    yield "tiny", floats * 1e-310
    yield "the largest numbers", np.full_like(floats, np.finfo(float).max)
    yield "zeros", np.zeros_like(floats)
    yield "constant", np.ones_like(floats)
    yield "none inside", put(None, object)
    yield "text inside", put("text", object)
    yield "objects", good.astype(object)
    yield "text", good.astype(str)
    yield "complex", good + 1j
    yield "datetimes", good.astype("int64").astype("datetime64[s]")
    yield "bool", floats > 0.5
    yield "float16", floats.astype(np.float16)
    yield "other byte order", floats.astype(">f8")
    yield "empty", good[:0]
    yield "one row", good[:1]
    yield "fewer rows", good[:-1]
    yield "more rows", np.concatenate([good, good])
    yield "one axis more", good[..., np.newaxis]
    yield "raveled", good.ravel()
    yield "reversed", good[::-1]
    yield "lists", good.tolist()
    yield "ragged", [[1.0], [1.0, 2.0]]


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
    good = calls(tmp_path)[name]
    if not name.startswith("datasets.fetch_"):
        assert_answer(call(function, good), name)
    cases = {}
    for parameter, value in good.items():
        if (name, parameter) in NOT_DATA:
            continue
        for hostile in SCALARS:
            if hostile is True and parameter.startswith("n_"):
                continue  # An integer, to Python and to numpy not.
            cases[f"{parameter}={hostile!r}"[:80]] = {parameter: hostile}
        if isinstance(value, (np.ndarray, list)) and parameter not in ("names",):
            for kind, hostile in hostile_arrays(value):
                cases[f"{parameter}: {kind}"] = {parameter: hostile}

    def check(case):
        arguments = {**good, **cases[case]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                answer = call(function, arguments)
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
