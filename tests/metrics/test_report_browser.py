"""The page of decision_report in a real browser: keyboard, numbers, dark, phone."""

import shutil

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skroute.datasets import make_routing_problem
from skroute.metrics import (
    accuracy_cost_curve,
    compare_with_references,
    decision_report,
    reference_curves,
)
from skroute.routing import BudgetRouter

pytest.importorskip("vl_convert", reason="the report needs the extra [report]")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
WILD = "</script><b id='out'>large"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    problem = make_routing_problem(600, n_models=3, n_features=3, random_state=0)
    X, Q = problem.data, problem.quality
    costs = dict(zip(["small", "medium with a rather long name", WILD], problem.costs))
    router = BudgetRouter(Ridge(), costs=costs, budget=0.4, cv=2).fit(X[:300], Q[:300])
    path = tmp_path_factory.mktemp("report") / "report.html"
    decision_report(
        router, X[300:], Q[300:], path=path, cost_unit="USD", n_resamples=20, n_budgets=9
    )
    return router, X[300:], Q[300:], problem.costs, path


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # Without its sandbox, which containers do not let it have; the page is our own.
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


def opened(browser, path, width=1000, scheme="light"):
    """The drawn page, and what it asked the network for or complained of."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    noted = []
    page.on("request", lambda request: noted.append(request.url))
    page.on("console", lambda message: noted.append(message.text))
    page.on("pageerror", lambda error: noted.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    return page, [text for text in noted if text != path.as_uri()]


def number(page, name):
    """A number as it is shown."""
    text = page.locator(f"#number-{name} > span").inner_text()
    return float(text.replace("−", "-").replace("USD", ""))


def test_the_slider_moves_by_keyboard_and_the_numbers_are_those_of_the_router(browser, case):
    router, X, Q, costs, path = case
    page, noted = opened(browser, path)
    assert noted == []
    budgets = page.evaluate("JSON.parse(document.getElementById('data').textContent).budgets")
    curve = accuracy_cost_curve(router, X, Q, budgets)
    beside = reference_curves(Q, costs, curve.cost)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "budget"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.get_attribute("#numbers", "aria-live") == "polite"
    page.keyboard.press("Home")
    for k, budget in enumerate(budgets):
        assert page.input_value("#budget") == str(k)
        assert float(page.inner_text("#budget-text").removesuffix(" USD")) == pytest.approx(
            budget, rel=1e-3
        )
        assert page.get_attribute("#budget", "aria-valuetext") == page.inner_text("#budget-text")
        shown = [number(page, name) for name in ("quality", "gain", "random", "single", "oracle")]
        expected = [
            curve.quality[k],
            curve.quality[k] - beside.random[k],
            beside.random[k],
            beside.single[k],
            beside.oracle[k],
        ]
        np.testing.assert_allclose(shown, expected, atol=5.1e-5)
        assert number(page, "cost") == pytest.approx(curve.cost[k], rel=1e-3)
        shares = [
            float(text.split()[0])
            for text in page.locator("#shares td:nth-child(2)").all_inner_texts()
        ]
        np.testing.assert_allclose(shares, 100 * curve.route_share[k], atol=0.051)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    assert page.input_value("#budget") == "0"
    numbers = compare_with_references(curve, Q, costs, n_resamples=20, random_state=0)
    rows = page.locator("#all tr")
    assert rows.count() == len(numbers)
    for at, metric in enumerate(numbers):
        cells = rows.nth(at).locator("td").all_inner_texts()
        for cell, who in zip(cells, numbers[metric]):
            first = cell.split()[0].replace("−", "-")
            expected = numbers[metric][who].estimate
            if np.isnan(expected):
                assert first == "not"
            else:
                assert float(first) == pytest.approx(expected, abs=5.1e-5)
    page.close()


def test_light_and_dark(browser, case):
    page, noted = opened(browser, case[-1], scheme="dark")
    assert noted == []
    assert page.get_attribute("html", "data-drawn") == "dark"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.focus("#theme")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-drawn=light]")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, dark[4:-1].split(","))) < 60 < 200 < min(map(int, light[4:-1].split(",")))
    assert page.get_attribute("#theme", "aria-pressed") == "false"
    page.close()


def test_a_phone_needs_no_scrolling_aside_and_names_stay_text(browser, case):
    page, noted = opened(browser, case[-1], width=360)
    assert noted == []
    page.click("summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#out").count() == 0
    assert WILD in page.locator("#shares th").all_inner_texts()
    assert page.locator("#chart svg").count() == 1
    page.close()


def test_paper_has_every_budget(browser, case):
    page, _ = opened(browser, case[-1])
    assert page.pdf()[:4] == b"%PDF"
    assert page.evaluate("document.getElementById('details').open")
    page.close()
