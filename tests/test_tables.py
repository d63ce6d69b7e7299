"""Results print as short tables, and go to data frames."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.assignment import PlanLimit
from skroute.certified import CertifiedRouter, PromiseMonitor
from skroute.datasets import make_routing_problem
from skroute.early_exit._calibration import Tradeoff
from skroute.feature_sets._base import Skyline
from skroute.gating import OperatingPoint
from skroute.metrics import (
    accuracy_cost_curve,
    bootstrap_interval,
    compare_with_references,
    off_policy_curve,
    reference_curves,
    replay,
    risk_coverage_curve,
)
from skroute.routing import BudgetRouter, OccamRouterClassifier
from skroute.utils._tables import Column, RecordList, Table, format_value

N_CHOICES = 11
# Names whose alphabetical order is not that of the choices.
NAMES = [f"model-{number}" for number in range(N_CHOICES)]
PROBLEM = make_routing_problem(1200, n_models=N_CHOICES, random_state=0)
COSTS = dict(zip(NAMES, PROBLEM.costs))
NEW = slice(600, None)


@pytest.fixture(scope="module")
def tables():
    """Rows, qualities by name, and a fitted router."""
    X = PROBLEM.data
    Q = pd.DataFrame(PROBLEM.quality, columns=NAMES)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=0.4, cv=2)
    return X, Q, router.fit(X[:600], Q[:600])


@pytest.fixture(scope="module")
def results(tables):
    """Each result, with the number of rows that its frame has."""
    X, Q, router = tables
    budgets = [0.2, 0.5, None]
    curve = accuracy_cost_curve(router, X[NEW], Q[NEW], budgets)
    comparison = compare_with_references(
        curve, Q[NEW], COSTS, n_resamples=5, random_state=0
    )
    choice = np.random.default_rng(0).integers(0, 2, 600)
    quality = Q.to_numpy()[np.arange(600), choice]
    two = BudgetRouter(Ridge(), costs=PROBLEM.costs[:2], cv=2)
    two.fit(X[:600], quality, choice=choice)
    judged = off_policy_curve(two, X[:600], quality, choice=choice, budgets=[None])
    certified = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.2, n_points=5, random_state=0, loss_range=2
    ).fit(X[NEW], Q[NEW])
    monitor = PromiseMonitor(budget=1.0)
    alarm = monitor.update(cost=np.full(500, 3.0))
    point = OperatingPoint(["blood"], np.inf, 0.0, 3.0, 3e-18, 0.9, 0.01)
    return {
        "curve": (curve, 3),
        "references": (reference_curves(Q[NEW], COSTS, budgets), 3),
        "comparison": (comparison, 6),
        "interval": (comparison["cpt_80"]["gain"], 1),
        "undefined interval": (
            bootstrap_interval(lambda mean: np.nan, [1.0, 2.0], random_state=0),
            1,
        ),
        "overlap": (two.overlap_, 2),
        "off-policy curve": (judged, 1),
        "estimates": (judged.quality, 1),
        "estimate": (judged.quality.snips, 1),
        "smallest budget": (router.smallest_budget(), 1),
        "no smallest budget": (router.smallest_budget(2.0), 1),
        "replay": (replay(router, X[NEW], Q[NEW], COSTS), N_CHOICES + 1),
        "risks": (risk_coverage_curve([0, 1, 0], [0.9, 0.8, 0.7]), 3),
        "certificate": (certified.certificate_, 1),
        "points": (certified.operating_points_, 7),
        "alarm": (alarm, 1),
        "operating point": (point, 1),
        "tradeoff": (Tradeoff([None] * 2, np.array([9.0, 3.0]), np.zeros(2), 1), 2),
        "skyline": (Skyline(np.arange(2), np.ones(2), np.full(2, np.nan)), 2),
    }


NUMBERS_OF_ARRAYS = ("array(", "np.float64", "nan", "inf,", "=inf", "None", "e-18")


def test_results_print_short_tables_without_raw_numbers(results):
    for name, (result, _) in results.items():
        text = repr(result)
        assert not [word for word in NUMBERS_OF_ARRAYS if word in text], name
        assert len(text.splitlines()) < 25, name
        assert max(len(line) for line in text.splitlines()) <= 88, name


def test_a_frame_has_a_row_for_each_thing(results):
    for name, (result, n_rows) in results.items():
        frame = result.to_frame()
        assert isinstance(frame, pd.DataFrame) and len(frame) == n_rows, name
        assert frame.columns.is_unique, name


def test_a_frame_has_the_numbers_of_the_record(results):
    curve, _ = results["curve"]
    frame = curve.to_frame()
    np.testing.assert_array_equal(frame["quality"], curve.quality)
    np.testing.assert_array_equal(frame["budget"], curve.budget)
    shares = frame[[f"share_{name}" for name in NAMES]]
    np.testing.assert_array_equal(shares, curve.route_share)
    comparison, _ = results["comparison"]
    frame = comparison.to_frame().set_index("number")
    gain = comparison["cpt_80"]["gain"]
    assert frame.loc["cpt_80", ["gain", "gain_low"]].tolist() == [*gain[:2]]


def test_a_comparison_says_where_less_is_better(results):
    comparison, _ = results["comparison"]
    frame = comparison.to_frame().set_index("number")
    lower = frame.index[frame["better"] == "lower"].tolist()
    assert lower == ["cpt_50", "cpt_80", "distance"]


def test_words_stand_for_numbers_that_are_none(results):
    assert "unlimited" in repr(results["curve"][0])
    nothing = repr(results["no smallest budget"][0])
    assert nothing.count("not reached") == 2
    certificate = repr(results["certificate"][0])
    assert "none is guaranteed" in certificate and "no row can abstain" in certificate
    assert "infinite, no row buys more" in repr(results["operating point"][0])
    # The test that fired is the one that started with the first row.
    alarm = results["alarm"][0]
    assert f"3 on average over the last {alarm.n_rows} costs" in repr(alarm)


def test_wide_and_long_tables_are_shortened():
    columns = [Column("row", range(100))]
    for number in range(20):
        columns.append(Column(f"column_{number}", np.zeros(100), unit="seconds"))
    table = Table("wide", columns)
    lines = str(table).splitlines()
    assert max(len(line) for line in lines) <= 88
    assert "column 19" in str(table) and len(table.to_frame()) == 100
    # Three blocks of 2 lines of headings, 20 rows, and an ellipsis.
    assert len(lines) == 1 + 3 * (2 + 20 + 1)


def test_a_table_of_one_column_prints_its_heading_and_rows():
    column = Column("cost", [1.0, 2.5], unit="USD")
    assert str(Table("title", [column])) == "title\n  cost\n  USD\n  1\n  2.5"
    empty = Column("cost", [])
    assert str(Table("title", [empty])) == "title\n  cost\n  (no rows)"


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "unknown"),
        (np.nan, "unknown"),
        (np.inf, "unlimited"),
        (True, "yes"),
        (np.int64(12345), "12,345"),
        (22500.4, "22,500"),
        (0.00064123, "0.0006412"),
        (-3e-18, "0"),
        ("name", "name"),
    ],
)
def test_a_value_has_a_short_text(value, text):
    assert format_value(value) == text


class TestReprOfEstimators:
    def test_costs_stand_in_the_order_of_the_choices(self, tables):
        _, _, router = tables
        text = repr(router)
        assert "np.float64" not in text
        positions = [text.index(f"'{name}'") for name in NAMES]
        assert positions == sorted(positions)
        assert max(len(line) for line in text.splitlines()) <= 88

    def test_costs_before_fit_stand_in_their_own_order(self):
        router = BudgetRouter(costs={"z": 1 / 3, "a": 2})
        assert repr(router) == "BudgetRouter(costs={'z': 0.333333, 'a': 2})"

    def test_costs_without_names(self):
        members = [("b", LogisticRegression()), ("a", LogisticRegression())]
        router = OccamRouterClassifier(members, costs=[np.float64(1), 2.5])
        assert "costs=[1, 2.5]" in repr(router)

    def test_nested_estimators_have_lines_as_in_scikit_learn(self):
        pipeline = make_pipeline(StandardScaler(), BudgetRouter(costs=COSTS))
        text = repr(pipeline)
        assert max(len(line) for line in text.splitlines()) <= 88
        positions = [text.index(f"'{name}'") for name in NAMES]
        assert positions == sorted(positions) and "np.float64" not in text

    def test_a_repr_leaves_the_estimator_as_it_is(self):
        router = BudgetRouter(costs=COSTS)
        repr(router)
        assert router.costs is COSTS and list(COSTS) == NAMES


def test_records_print_as_a_table_and_go_to_a_frame():
    limits = RecordList(
        [PlanLimit("seconds", 0.8, 0.7, 0.0, False)],
        "Limits",
        labels={"most": "limit"},
        hidden=["is_floor"],
    )
    for records in (limits, pickle.loads(pickle.dumps(limits)), copy.copy(limits)):
        assert records == [PlanLimit("seconds", 0.8, 0.7, 0.0, False)]
        text = repr(records)
        assert text.startswith("Limits\n")
        assert "limit" in text and "is_floor" not in text
        frame = records.to_frame()
        assert list(frame) == ["name", "most", "spent", "price", "is_floor"]
        assert frame["spent"].tolist() == [0.7]
    nothing = RecordList([], "Limits")
    assert nothing == []
    assert repr(nothing) == "Limits: none"
    assert len(nothing.to_frame()) == 0
