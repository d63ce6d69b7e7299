"""decision_report: its numbers, what it asks of models, and what may not stand in the page."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.certified import CertifiedRouter
from skroute.datasets import make_routing_problem
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import GreedyFeatureSelector
from skroute.gating import AdaptGatingClassifier, LinearGate
from skroute.metrics import (
    accuracy_cost_curve,
    compare_with_references,
    decision_report,
    reference_curves,
)
from skroute.routing import (
    BudgetRouter,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
)

pytest.importorskip("vl_convert", reason="the report needs the extra [report]")
FEW = {"n_resamples": 10, "n_budgets": 6}


def data_of(page):
    """The numbers that a page shows."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def own_text(page):
    """The page without the library, whose own texts name colours and its home page."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"<script>[^\n].{300000,}?</script>", "", text, count=1, flags=re.DOTALL)


@pytest.fixture(scope="module")
def problem():
    return make_routing_problem(600, n_models=3, n_features=3, random_state=0)


@pytest.fixture(scope="module")
def router(problem):
    costs = dict(zip(["small", "medium", "large"], problem.costs))
    fitted = BudgetRouter(Ridge(), costs=costs, budget=0.4, cv=2)
    return fitted.fit(problem.data[:300], problem.quality[:300])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400], X[400:700], y[400:700]


class Counting(ClassifierMixin, BaseEstimator):
    """A tree that notes how often it is asked about each row after `fit`."""

    def __init__(self, max_depth=None):
        self.max_depth = max_depth

    def fit(self, X, y):
        self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0).fit(X, y)
        self.classes_, self.asked_ = self.tree_.classes_, []
        return self

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X):
        self.asked_ += [row.tobytes() for row in np.asarray(X)]
        return self.tree_.predict_proba(X)


@pytest.mark.parametrize("per_row", [False, True])
def test_every_stop_is_what_the_router_does(router, problem, tmp_path, per_row):
    X, Q, costs = problem.data, problem.quality, problem.costs
    told = {}
    if per_row:
        costs = costs * np.linspace(0.5, 1.5, 600)[:, None]
        router = BudgetRouter(Ridge(), budget=0.4, cv=2).fit(X[:300], Q[:300], costs=costs[:300])
        costs = costs[300:]
        told = {"costs": costs}
    X, Q = X[300:], Q[300:]
    # Of costs that are told the cheapest plan of these rows counts.
    budgets = [0.2, 0.4, 0.7, np.inf]
    page = decision_report(
        router, X, Q, path=tmp_path / "r.html", budgets=budgets, n_resamples=20, **told
    )
    data, curve = data_of(page), accuracy_cost_curve(router, X, Q, budgets, **told)
    assert data["budgets"] == [0.2, 0.4, 0.7, None]
    np.testing.assert_allclose([one[0] for one in data["quality"]], curve.quality, atol=1e-12)
    np.testing.assert_allclose([one[0] for one in data["cost"]], curve.cost, atol=1e-12)
    np.testing.assert_allclose(data["share"], curve.route_share, atol=1e-12)
    beside = reference_curves(Q, costs, curve.cost)
    for name in ("random", "single", "oracle"):
        np.testing.assert_allclose(data[name], getattr(beside, name), atol=1e-12)
    np.testing.assert_allclose(
        [one[0] for one in data["gain"]], curve.quality - beside.random, atol=1e-12
    )
    own = {"n_resamples": 20, "random_state": 0}
    numbers = compare_with_references(curve, Q, costs, **own)
    for shown, metric in zip(data["overAll"], numbers):
        for cell, who in zip(shown["cells"], numbers[metric]):
            expected = numbers[metric][who][:3]
            np.testing.assert_allclose([np.nan if c is None else c for c in cell], expected)
    routes = np.column_stack([router.route(X, budget=budget, **told) for budget in budgets])
    for example in data["examples"]["rows"]:
        assert example["route"] == routes[example["row"]].tolist()


def test_the_slider_starts_at_the_routers_budget(router, problem, tmp_path):
    page = decision_report(
        router, problem.data, problem.quality, path=str(tmp_path / "r.html"), **FEW
    )
    data = data_of(page)
    assert data["budgets"][data["start"]] == 0.4
    assert len(data["budgets"]) == 7
    assert data["budgets"] == sorted(data["budgets"])
    assert data["budgets"][0] == pytest.approx(router.min_budget_)


def test_intervals_cover_what_resampling_says(router, problem, tmp_path):
    X, Q = problem.data[300:], problem.quality[300:]
    page = decision_report(router, X, Q, path=tmp_path / "r.html", budgets=[0.4], n_resamples=400)
    data = data_of(page)
    row_quality = accuracy_cost_curve(router, X, Q, [0.4]).row_quality[:, 0]
    estimate, low, high = data["quality"][0]
    assert (high - low) / 2 == pytest.approx(1.96 * row_quality.std() / np.sqrt(300), rel=0.15)
    assert low < estimate < high
    assert data["gain"][0][1] < data["gain"][0][0] < data["gain"][0][2]


@pytest.mark.parametrize("embedding", ["shallow", None])
def test_members_are_asked_once_about_each_row(digits, tmp_path, embedding):
    X, y, X_test, y_test = digits
    members = [("shallow", Counting(3)), ("deep", Counting())]
    router = OccamRouterClassifier(
        members,
        costs={"shallow": 1, "deep": 5},
        embedding=embedding,
        quality_estimator=Ridge(),
        cv=2,
    ).fit(X, y)
    for member in router.estimators_:
        member.asked_.clear()
    page = decision_report(router, X_test, y_test, path=tmp_path / "r.html", **FEW)
    rows = sorted(row.tobytes() for row in X_test)
    for member in router.estimators_:
        assert sorted(member.asked_) == rows
    data = data_of(page)
    finite = [np.inf if budget is None else budget for budget in data["budgets"]]
    curve = accuracy_cost_curve(router, X_test, y_test, finite)
    np.testing.assert_allclose([one[0] for one in data["quality"]], curve.quality)
    np.testing.assert_allclose([one[0] for one in data["cost"]], curve.cost)
    assert data["singles"][1]["quality"] == pytest.approx(
        router.estimators_[1].tree_.score(X_test, y_test)
    )


def test_numbers_money_and_handing_over(digits, tmp_path):
    X, y, X_test, y_test = digits
    trees = [("a", DecisionTreeRegressor(max_depth=2)), ("b", DecisionTreeRegressor(max_depth=9))]
    numbers = OccamRouterRegressor(
        trees, costs=[1, 4], quality_estimator=Ridge(), abstain_cost=9.0, cv=2
    )
    numbers.fit(X, y.astype(float))
    data = data_of(
        decision_report(numbers, X_test, y_test.astype(float), path=tmp_path / "n.html", **FEW)
    )
    budgets = [np.inf if budget is None else budget for budget in data["budgets"]]
    curve = accuracy_cost_curve(numbers, X_test, y_test.astype(float), budgets)
    np.testing.assert_allclose([one[0] for one in data["quality"]], curve.quality)
    assert data["choices"] == numbers.choices_
    assert data["singles"][-1]["cost"] == 0


def test_a_certified_router_shows_its_certificate(digits, tmp_path):
    X, y, X_test, y_test = digits
    members = [("a", DecisionTreeClassifier(max_depth=4)), ("b", DecisionTreeClassifier())]
    inner = OccamRouterClassifier(members, costs=[1, 4], quality_estimator=Ridge(), cv=2)
    inner.fit(X, y)
    router = CertifiedRouter(FrozenEstimator(inner), max_loss=0.3, n_points=2, random_state=0)
    router.fit(X_test, y_test)
    page = decision_report(router, X_test, y_test, path=tmp_path / "c.html", **FEW)
    shown = data_of(page)["certificate"]
    assert shown["sentence"] == str(router.certificate_)
    assert shown["promised"]


def test_a_pipeline_and_the_rule_of_other_estimators(digits, tmp_path):
    X, y, X_test, y_test = digits
    members = [("a", DecisionTreeClassifier(max_depth=3)), ("b", DecisionTreeClassifier())]
    pipe = make_pipeline(StandardScaler(), FrugalMLClassifier(members, costs=[1, 4], cv=2))
    pipe.fit(X, y)
    data = data_of(decision_report(pipe, X_test, y_test, path=tmp_path / "p.html", **FEW))
    curve = accuracy_cost_curve(pipe, X_test, y_test, data["budgets"])
    np.testing.assert_allclose([one[0] for one in data["quality"]], curve.quality)
    assert [one["name"] for one in data["singles"]] == ["cheapest plan", "most expensive plan"]
    # The ends of its path are plans that a coin mixes, so that it lies above their line or on it.
    np.testing.assert_allclose(data["random"][0], data["quality"][0][0])


OTHERS = [
    AdaptGatingClassifier(LogisticRegression(), gate=LinearGate(max_iter=2), cv=2),
    QWYCEnsemble(RandomForestClassifier(5, max_depth=3, random_state=0), random_state=0),
    GreedyFeatureSelector(LogisticRegression(), trade_offs=[np.inf], cv=2),
]


@pytest.mark.filterwarnings("ignore:No early exit")
@pytest.mark.parametrize("estimator", OTHERS, ids=lambda one: type(one).__name__)
def test_other_paths(estimator, tmp_path):
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    fitted = clone(estimator).fit(X[:100], y[:100])
    page = decision_report(
        fitted, X[100:], y[100:], path=tmp_path / "o.html", n_budgets=3, n_resamples=5
    )
    data = data_of(page)
    curve = accuracy_cost_curve(fitted, X[100:], y[100:], data["budgets"])
    np.testing.assert_allclose([one[0] for one in data["quality"]], curve.quality)
    np.testing.assert_allclose(data["share"], curve.route_share)
    assert data["cost"][-1][0] == pytest.approx(data["singles"][1]["cost"])


def test_nothing_breaks_out_of_the_page(problem, tmp_path):
    wild = ["</script><script>boom()</script>", "<!--<b>&amp;", "\u2028'\"`${1}{{library}}"]
    costs = dict(zip(wild, problem.costs))
    router = BudgetRouter(Ridge(), costs=costs, cv=2).fit(problem.data, problem.quality)
    page = decision_report(
        router,
        problem.data,
        problem.quality,
        path=tmp_path / "w.html",
        title=wild[0],
        cost_unit=wild[1],
        quality_label=wild[2],
        **FEW,
    )
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 3
    assert "boom()</script>" not in text
    assert text.count("<!--") == 0
    data = data_of(page)
    assert data["choices"] == wild
    assert (data["title"], data["unit"], data["qualityLabel"]) == tuple(wild)


def test_nothing_of_the_rows_but_what_is_asked_for(tmp_path):
    n = 120
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "prompt": [f"my secret question {i} of many" for i in range(n)],
            "length": rng.integers(10, 90, n) * 1.0,
            "team": ["<i>blue</i>"] * n,
        }
    )
    Q = pd.DataFrame({"small": rng.uniform(size=n) < 0.6, "large": rng.uniform(size=n) < 0.9})
    Q = Q.astype(float)

    class Lengths(Ridge):
        def fit(self, X, y):
            return super().fit(X[["length"]], y)

        def predict(self, X):
            return super().predict(X[["length"]])

    router = BudgetRouter(Lengths(), costs={"small": 1, "large": 5}, cv=2).fit(X, Q)
    page = decision_report(router, X, Q, path=tmp_path / "p.html", **FEW)
    assert "secret" not in page.read_text(encoding="utf-8")
    assert "blue" not in own_text(page)
    page = decision_report(router, X, Q, path=tmp_path / "p.html", show=["team"], **FEW)
    assert data_of(page)["examples"]["rows"][0]["shown"] == ["<i>blue</i>"]
    assert "secret" not in page.read_text(encoding="utf-8")
    assert "<i>blue" not in page.read_text(encoding="utf-8")


def test_the_page_asks_for_nothing(router, problem, tmp_path):
    page = decision_report(router, problem.data, problem.quality, path=tmp_path / "r.html", **FEW)
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    own = own_text(page)
    assert len(own) < 100_000 < len(text)
    assert "://" not in own
    assert re.search(r"<(link|img|iframe|script)[^>]+(src|href)", own) is None
    assert len(text) < 1_200_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgets": [0.0]}, "the smallest feasible budget is 1"),
        ({"budgets": []}, "non-empty list"),
        ({"show": ["length"]}, "show names 'length'"),
        ({"show": [3]}, "show names 3"),
        ({"show": "length"}, "must be an array-like"),
        ({"n_budgets": 1}, "n_budgets"),
        ({"confidence_level": 1.0}, "confidence_level"),
        ({"path": "/nowhere/at/all/r.html"}, "no folder"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_called(digits, tmp_path, options, message):
    X, y, X_test, y_test = digits
    router = OccamRouterClassifier(
        [("a", Counting(2)), ("b", Counting())], costs=[1, 4], quality_estimator=Ridge(), cv=2
    ).fit(X[:100, :3], y[:100])
    for member in router.estimators_:
        member.asked_.clear()
    options = {"path": tmp_path / "r.html", **options}
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)):
        decision_report(router, X_test[:, :3], y_test, **options)
    assert not any(member.asked_ for member in router.estimators_)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.filterwarnings("ignore:On validation rows")
def test_what_cannot_be_shown_says_so(router, problem, tmp_path):
    Q = problem.quality.copy()
    Q[3, 1] = np.nan
    with pytest.raises(ValueError, match="not known, in 1 of 600 rows"):
        decision_report(router, problem.data, Q, path=tmp_path / "r.html")
    with pytest.raises(ValueError, match="fit"):
        decision_report(clone(router), problem.data, problem.quality, path=tmp_path / "r.html")


def test_a_best_choice_that_is_the_cheapest_leaves_no_gap(tmp_path):
    X = np.linspace(0, 1, 60)[:, None]
    Q = np.column_stack([np.ones(60), (X[:, 0] > 0.5) * 1.0])
    router = BudgetRouter(Ridge(), costs=[1.0, 2.0], cv=2).fit(X, Q)
    data = data_of(decision_report(router, X, Q, path=tmp_path / "r.html", **FEW))
    assert data["overAll"] is None
    assert data["quality"][0][0] == 1
