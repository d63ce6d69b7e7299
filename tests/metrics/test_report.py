"""decision_report: its numbers, its calls of models, and the page in a real browser."""

import json
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_regressor
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
from skroute.metrics import accuracy_cost_curve, decision_report, reference_curves
from skroute.routing import (
    BudgetRouter,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
)
from tests.router_checks import Counting

pytest.importorskip("vl_convert", reason="the report needs the extra [report]")
FEW = {"n_resamples": 10, "n_budgets": 6}
SHALLOW = Counting(DecisionTreeClassifier(max_depth=3, random_state=0))
DEEP = Counting(DecisionTreeClassifier(random_state=0))
WILD = "</script><b id='out'>large"


def spec_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="spec">(.*?)</script>', text, re.DOTALL)[1])


def shown(page):
    """Return the numbers, the shares and the single choices of a page.

    Returns
    -------
    lines : dict of str to list
        Numbers and texts at each stop of the slider, by name.
    shares : ndarray of shape (n_stops, n_choices)
    singles : dict of str to dict
        Mean cost and mean quality of each single choice.
    """
    spec = spec_of(page)
    numbers = spec["data"]["values"]
    budgets = spec["params"][1]["value"]
    lines = {"budget": budgets}
    for name in dict.fromkeys(row["what"] for row in numbers):
        line = [row for row in numbers if row["what"] == name]
        assert [row["stop"] for row in line] == list(range(len(budgets)))
        lines[name] = [row["value"] for row in line]
        lines["text of " + name] = [row["text"] for row in line]
        if name == "router":
            for key in ("cost", "low", "high"):
                lines[key] = [row[key] for row in line]
    _, bars = spec["vconcat"][0]["hconcat"]
    shares = np.array([row["share"] for row in bars["data"]["values"]])
    singles = {}
    for layer in spec["vconcat"][1]["layer"]:
        for single in layer.get("data", {}).get("values", []):
            singles[single["name"]] = single
    return lines, shares.reshape(len(budgets), -1), singles


@pytest.fixture(scope="module")
def problem():
    return make_routing_problem(600, n_models=3, n_features=3, random_state=0)


@pytest.fixture(scope="module")
def router(problem):
    costs = dict(zip(["small", "medium", WILD], problem.costs))
    fitted = BudgetRouter(Ridge(), costs=costs, budget=0.4, cv=2)
    return fitted.fit(problem.data[:300], problem.quality[:300])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400], X[400:700], y[400:700]


@pytest.mark.parametrize("per_row", [False, True])
def test_every_stop_is_what_the_router_does(router, problem, tmp_path, per_row):
    X, Q, costs = problem.data, problem.quality, problem.costs
    params = {}
    if per_row:
        costs = costs * np.linspace(0.5, 1.5, 600)[:, None]
        router = BudgetRouter(Ridge(), budget=0.4, cv=2).fit(
            X[:300], Q[:300], costs=costs[:300]
        )
        costs = costs[300:]
        params = {"costs": costs}
    X, Q, budgets = X[300:], Q[300:], [0.2, 0.4, 0.7, np.inf]
    page = decision_report(
        router,
        X,
        Q,
        path=tmp_path / "r.html",
        budgets=budgets,
        n_resamples=400,
        **params,
    )
    rows, share, singles = shown(page)
    curve = accuracy_cost_curve(router, X, Q, budgets, **params)
    assert rows["budget"] == ["unlimited" if b == np.inf else f"{b:g}" for b in budgets]
    for name, expected in {"router": curve.quality, "cost": curve.cost}.items():
        assert_allclose(rows[name], expected, atol=1e-12)
    assert_allclose(share, curve.route_share, atol=1e-12)
    references = reference_curves(Q, costs, curve.cost)
    assert_allclose(rows["random mix"], references.random, atol=1e-12)
    assert_allclose(rows["oracle"], references.oracle, atol=1e-12)
    # The best single choice may spend the budget.
    within = np.maximum(budgets, curve.cost)
    best = reference_curves(Q, costs, within).single
    assert_allclose(rows["best single choice"], best, atol=1e-12)
    assert_allclose([single["value"] for single in singles.values()], Q.mean(axis=0))
    gain = [float(text.split()[0]) for text in rows["text of above the random mix"]]
    assert_allclose(gain, curve.quality - references.random, rtol=1e-3)
    # Intervals are those of means.
    half = 1.96 * curve.row_quality[:, 1].std() / np.sqrt(300)
    assert (rows["high"][1] - rows["low"][1]) / 2 == pytest.approx(half, rel=0.15)
    assert spec_of(page)["params"][0]["value"] == budgets.index(0.4)


@pytest.mark.parametrize("embedding", ["shallow", None])
def test_members_are_asked_once_about_each_row(digits, tmp_path, embedding):
    X, y, X_test, y_test = digits
    members = [("shallow", SHALLOW), ("deep", DEEP)]
    costs = {"shallow": 1, "deep": 5}
    router = OccamRouterClassifier(
        members, costs=costs, embedding=embedding, quality_estimator=Ridge(), cv=2
    ).fit(X, y)
    for member in router.estimators_:
        member.rows_.clear()
    page = decision_report(router, X_test, y_test, path=tmp_path / "r.html", **FEW)
    for member in router.estimators_:
        assert sorted(member.rows_) == sorted(map(tuple, X_test))
    deep = router.estimators_[1].classifier_.score(X_test, y_test)
    assert shown(page)[2]["deep"]["value"] == pytest.approx(deep)


def test_a_certified_router_shows_its_certificate(digits, tmp_path):
    X, y, X_test, y_test = digits
    members = [
        ("a", DecisionTreeClassifier(max_depth=4)),
        ("b", DecisionTreeClassifier()),
    ]
    inner = OccamRouterClassifier(
        members, costs=[1, 4], quality_estimator=Ridge(), cv=2
    )
    router = CertifiedRouter(
        FrozenEstimator(inner.fit(X, y)), max_loss=0.3, n_points=2, random_state=0
    )
    page = decision_report(
        router.fit(X_test, y_test), X_test, y_test, path=tmp_path / "c.html"
    )
    assert str(router.certificate_).split(":")[0] in page.read_text(encoding="utf-8")


OTHERS = [
    make_pipeline(
        StandardScaler(),
        FrugalMLClassifier(
            [("a", DecisionTreeClassifier(max_depth=1)), ("b", LogisticRegression())],
            costs=[1, 4],
            cv=2,
        ),
    ),
    AdaptGatingClassifier(LogisticRegression(), gate=LinearGate(max_iter=2), cv=2),
    QWYCEnsemble(
        RandomForestClassifier(5, max_depth=3, random_state=0), random_state=0
    ),
    GreedyFeatureSelector(LogisticRegression(), trade_offs=[np.inf], cv=2),
    OccamRouterRegressor(
        [
            ("a", DecisionTreeRegressor(max_depth=2)),
            ("b", DecisionTreeRegressor(max_depth=9)),
        ],
        costs=[1, 4],
        quality_estimator=Ridge(),
        abstain_cost=0.2,
        cv=2,
    ),
]


@pytest.mark.parametrize(
    "estimator", OTHERS, ids=lambda estimator: type(estimator).__name__
)
def test_other_paths(estimator, tmp_path):
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    stops = {"budgets": [0.0, np.inf]} if is_regressor(estimator) else {"n_budgets": 3}
    fitted = clone(estimator).fit(X[:100], y[:100])
    page = decision_report(
        fitted, X[100:], y[100:], path=tmp_path / "o.html", n_resamples=5, **stops
    )
    rows, share, singles = shown(page)
    curve = accuracy_cost_curve(fitted, X[100:], y[100:], [np.inf])
    assert_allclose(rows["router"][-1], curve.quality[0])
    assert_allclose(share[-1], curve.route_share[0])
    abstaining = singles.pop("abstain", None)
    assert len(singles) == 2
    if is_regressor(estimator):
        assert abstaining["cost"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgets": [0.0]}, "the smallest feasible budget is 1"),
        ({"budgets": []}, "non-empty list"),
        ({"n_budgets": 1}, "n_budgets"),
        ({"confidence_level": 1.0}, "confidence_level"),
        ({"path": "/nowhere/at/all/r.html"}, "no folder"),
        ({"sample_weight": np.ones(3)}, "decision_report takes no sample_weight"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_called(
    digits, tmp_path, options, message
):
    X, y, X_test, y_test = digits
    router = OccamRouterClassifier(
        [("a", SHALLOW), ("b", DEEP)], costs=[1, 4], quality_estimator=Ridge(), cv=2
    ).fit(X[:100, :3], y[:100])
    for member in router.estimators_:
        member.rows_.clear()
    options = {"path": tmp_path / "r.html", **options}
    with pytest.raises((ValueError, TypeError, OSError), match=re.escape(message)):
        decision_report(router, X_test[:, :3], y_test, **options)
    assert not any(member.rows_ for member in router.estimators_)
    assert not (tmp_path / "r.html").exists()


def test_the_page_asks_for_nothing_and_nothing_breaks_out_of_it(
    router, problem, tmp_path
):
    page = decision_report(
        router,
        problem.data,
        problem.quality,
        path=tmp_path / "w.html",
        title=WILD,
        **FEW,
    )
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 3 and WILD not in text
    assert "default-src 'none'" in text and len(text) < 1_200_000
    assert WILD in shown(page)[2]


@contextmanager
def opened_page(path, noted, **options):
    """Open a report in a browser, and yield its page.

    `noted` is a list. Requests, messages and errors are appended to it. `options` are
    those of a new page.
    """
    driver = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser"
    )
    names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
    browsers = [shutil.which(name) for name in names if shutil.which(name)]
    if not browsers:
        pytest.skip("there is no chromium here")
    with driver.sync_playwright() as started:
        # Containers do not allow the sandbox. The page is our own.
        opened = started.chromium.launch(
            executable_path=browsers[0], args=["--no-sandbox"]
        )
        page = opened.new_page(**options)
        page.on("request", lambda request: noted.append(request.url))
        page.on("console", lambda message: noted.append(message.text))
        page.on("pageerror", lambda error: noted.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("#page svg", timeout=60_000)
        yield page
        opened.close()


def test_in_a_browser_the_slider_moves_the_numbers(router, problem, tmp_path):
    X, Q = problem.data[300:], problem.quality[300:]
    path = decision_report(
        router, X, Q, path=tmp_path / "r.html", cost_unit="USD", **FEW
    )
    rows, _, _ = shown(path)
    noted = []
    with opened_page(path, noted) as page:
        page.focus("input[type=range]")
        page.keyboard.press("Home")
        for k, budget in enumerate(rows["budget"]):
            page.wait_for_function(
                f"document.body.innerText.includes('Budget: {budget}')"
            )
            texts = page.locator("#page svg text").all_text_contents()
            shown_there = [
                values[k] for name, values in rows.items() if name[:5] == "text "
            ]
            assert set(shown_there) <= set(texts)
            page.keyboard.press("ArrowRight")
        assert page.locator("#out").count() == 0
    assert [text for text in noted if text != path.as_uri()] == []


@pytest.mark.parametrize("width", [400, 1280])
def test_a_page_fits_its_window_and_cuts_no_name(problem, tmp_path, width):
    names = [f"provider/model-{number}-32b-instruct" for number in range(3)]
    costs = dict(zip(names, problem.costs))
    router = BudgetRouter(Ridge(), costs=costs, budget=0.4, cv=2)
    router.fit(problem.data[:300], problem.quality[:300])
    X, Q = problem.data[300:], problem.quality[300:]
    unit = "USD per 1,000 requests"
    path = decision_report(
        router, X, Q, path=tmp_path / "r.html", cost_unit=unit, **FEW
    )
    noted = []
    with opened_page(path, noted, viewport={"width": width, "height": 900}) as page:
        texts = page.locator("#page svg text").all_text_contents()
        # Names are at the bars and in the legend.
        assert [texts.count(name) for name in names] == [2, 2, 2]
        # The sign of a text that Vega has cut.
        assert not [text for text in texts if "…" in text]
        charts = page.locator("#page")
        assert charts.evaluate("charts => charts.scrollWidth <= charts.clientWidth")
    assert [text for text in noted if text != path.as_uri()] == []
