"""CertifiedRouter: what it takes, what it says, and what it refuses in words."""

import json
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skroute.base import CallParameter, Plan, check_affordable
from skroute.certified import CertificateDisplay, CertifiedRouter, _selection
from skroute.datasets import make_routing_problem
from skroute.guarantees import mean_upper_bound
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OnlineBudgetRouter,
)
from tests.certified.toy import FROZEN, QUIET, Table, certified, table

pytestmark = QUIET
OPTIONS = {"n_points": 4, "random_state": 0}
MEMBERS = [
    ("tree", DecisionTreeClassifier(max_depth=1, random_state=0)),
    ("logreg", LogisticRegression()),
]


def occam(**options):
    return OccamRouterClassifier(
        MEMBERS, costs=[1, 10], quality_estimator=Ridge(), cv=2, **options
    )


@pytest.fixture(scope="module")
def labelled():
    return make_classification(900, n_informative=5, random_state=0, class_sep=0.7)


@pytest.fixture(scope="module")
def logged():
    """A fitted router of qualities, and rows that it has not seen."""
    rng = np.random.default_rng(0)
    X = rng.random((1200, 1))
    is_right = np.column_stack([rng.random(1200) < X[:, 0], rng.random(1200) < 0.95])
    Q = is_right.astype(int)
    router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}, cv=3)
    return router.fit(X[:400], Q[:400]), X[400:], Q[400:]


# The promise, and its words -----------------------------------------------------------


def test_budget_alone_buys_the_best_quality_within_it():
    X = table(2500)
    router = certified(X, budget=6.0, n_points=18, max_cost=14.5)
    used = router.predict_cost(table(20_000, seed=9)).mean()
    assert 0.9 * 6 < used <= 6
    assert "mean cost is at most 6" in str(router.certificate_)
    assert router.predict_cost(X, budget=3.0).mean() <= 3
    with pytest.raises(
        ValueError, match="smallest feasible budget is.*evidence rows can promise"
    ):
        router.predict(X, budget=1.0)


def test_loss_alone_is_the_cheapest():
    X = table(2000)
    router = certified(X, max_loss=0.08)
    certificate = router.certificate_
    assert certificate.promised and certificate.budget is None
    assert certificate.saving > 0.1 and certificate.n_rows == 1980
    looser = certified(X, max_loss=0.2).certificate_
    surer = certified(X, max_loss=0.08, confidence=0.9999).certificate_
    assert looser.cost < certificate.cost <= surer.cost
    money = certified(
        X, max_loss=5.0, loss=lambda y, y_pred: 50.0 * (y != y_pred), loss_range=50
    )
    assert money.certificate_.cost >= certified(X, max_loss=0.1).certificate_.cost
    # Within each group a smaller loss is asked for, on fewer rows.
    group = np.where(np.random.default_rng(0).random(2000) < 0.1, "rare", "common")
    X[:, 1] = np.where(group == "rare", 0, X[:, 1])
    within = certified(X, max_loss=0.1, groups=group).certificate_
    assert within.cost > certified(X, max_loss=0.1).certificate_.cost
    assert within.groups == ["common", "rare"] and "in each of 2 groups" in str(within)


def test_the_certificate_in_words_and_json():
    certificate = certified(table(1000), max_loss=0.1, budget=9.0).certificate_
    sentence = (
        "With a confidence of 0.95, the mean loss against Expensive (its cost is not "
        "known) is at most 0.1 (wrong answers per row) and the mean cost is at most 9, "
        "if later rows are drawn as the 990 evidence rows were and none costs more "
        "than 14.5, the most that was seen. Measured, and not promised:"
    )
    assert str(certificate).startswith(sentence)
    record = json.loads(certificate.to_json())
    assert record["max_loss"] == 0.1 and record["sentence"] == str(certificate)
    assert record["saving"] == certificate.saving
    unlimited = certificate._replace(operating_budget=np.inf)
    assert json.loads(unlimited.to_json())["operating_budget"] is None


def test_the_bounds_that_a_certificate_names_are_those_of_its_confidence():
    X = table(800)
    router = certified(
        X, max_loss=0.2, budget=8.0, confidence=0.9, max_cost=14.5, n_points=6
    )
    certificate = router.certificate_
    budget = certificate.operating_budget
    evidence_rows = np.random.RandomState(0).permutation(800)[8:]
    rows = X[evidence_rows]
    lost = rows[:, 2] - FROZEN.estimator.predict(rows, budget=budget)
    assert certificate.loss == pytest.approx(lost.mean())
    assert certificate.loss_upper == pytest.approx(
        mean_upper_bound(lost, bounds=(-1, 1), method="trinomial", confidence=0.9)
    )
    cost = FROZEN.estimator.predict_cost(rows, budget=budget)
    bound = mean_upper_bound(cost, bounds=(0, 14.5), confidence=0.9)
    assert certificate.cost_upper == pytest.approx(bound)
    points = router.operating_points_
    assert certificate.cost == points.cost[points.certified].min()
    assert points.certified.any() and points.cost_upper[points.certified].max() <= 8
    k = int(np.flatnonzero(points.budget == budget)[0])
    assert points.cost_upper[k] == certificate.cost_upper
    assert points.loss_upper[k] == certificate.loss_upper
    # Right and wrong in a wider range that the user gives: tested by betting.
    wider = certified(X, max_loss=0.3, loss_range=2.0).certificate_
    assert wider.promised
    assert wider.loss_upper >= certified(X, max_loss=0.3).certificate_.loss


def test_a_promise_that_saves_nothing_warns(logged):
    router, X, Q = logged
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=1e-3, reference="large", **OPTIONS
    )
    with pytest.warns(
        UserWarning, match=r"saves nothing: it costs 5 per row \('large' answers"
    ):
        made.fit(X, Q)
    assert made.certificate_.promised and made.certificate_.saving == 0
    with pytest.warns(UserWarning, match="saves nothing"):
        made.recertify(X, Q)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "What is certified")
        made.set_params(max_loss=0.2).fit(X, Q)
        certified(table(300), max_loss=0.001, fallback="safe")
        certified(table(300), budget=14.0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(60, 400), max_loss=st.floats(0.0, 0.4))
def test_what_is_refused_comes_with_what_can_be_promised(seed, n, max_loss):
    """The loss in the message can be promised. More rows are asked for if they help."""
    X = table(n, seed)
    try:
        certified(X, max_loss=max_loss, n_points=2)
    except ValueError as error:
        text = str(error)
        smallest = float(re.search(r"they can promise is ([\d.e-]+);", text)[1])
        given_rows = int(re.search(r" on (\d+) evidence rows", text)[1])
        needed = re.search(r"would need about (\d+)", text)
        if needed is not None:
            assert int(needed[1]) > given_rows and "Give more rows" in text
        else:
            seen = float(re.search(r"safe end is (\S+), as seen", text)[1])
            assert seen >= max_loss - 5e-4 and "more rows" not in text
        if smallest < 0.98:
            made = certified(X, max_loss=smallest * 1.01 + 5e-3, n_points=2)
            assert made.certificate_.promised
    else:
        assert max_loss > 0


def test_no_loss_at_all_takes_no_number_of_rows():
    """The message does not ask for more rows."""
    X = table(200)
    with pytest.raises(
        ValueError, match="no number of rows would be enough"
    ) as refused:
        certified(X, max_loss=0.0)
    assert "more rows" not in str(refused.value)
    safe = certified(X, max_loss=0.001, fallback="safe")
    assert not safe.certificate_.promised
    assert safe.certificate_.operating_budget == np.inf
    assert str(safe.certificate_).startswith("Nothing is promised")
    np.testing.assert_array_equal(safe.predict(X), X[:, 2])
    with pytest.raises(
        ValueError, match='or leave out budget=9.0 and take fallback="safe"'
    ):
        certified(X, max_loss=0.001, budget=9.0, fallback="safe")
    # The estimator without a budget is its own reference.
    made = CertifiedRouter(FROZEN, max_loss=0.0, reference="full", **OPTIONS)
    assert made.fit(X, np.ones(200, dtype=int)).certificate_.promised


def test_a_refused_budget_says_what_it_takes():
    X = table(300)
    with pytest.raises(
        ValueError, match="295 evidence rows can promise together with max_loss=0.15;"
    ):
        certified(X, max_loss=0.15, budget=2.0, max_cost=14.5)
    with pytest.raises(
        ValueError, match=r"rows can promise; budget=3.0 would need about \d+"
    ):
        certified(X, budget=3.0, max_cost=1e5)
    alone = certified(X, budget=9.0, max_cost=14.5)
    with pytest.raises(
        ValueError, match="cost 1 on average there, which budget=1.0 is not above"
    ):
        alone.predict(X, budget=1.0)


def test_display(fitted):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    display = CertificateDisplay.from_estimator(fitted, color="red")
    np.testing.assert_array_equal(
        display.line_.get_ydata(), fitted.operating_points_.loss_upper
    )
    assert display.line_.get_color() == "red" and display.figure_ is display.ax_.figure
    pyplot.close(display.figure_)


# The reference, and the single choice at the safe end ---------------------------------


def test_the_best_single_choice_is_every_single_choice(labelled):
    X, y = labelled
    losses = {}
    for reference in ("best", "tree", "logreg", "full"):
        router = CertifiedRouter(occam(), max_loss=0.15, reference=reference, **OPTIONS)
        losses[reference] = router.fit(X, y).operating_points_.loss
    decides = np.maximum(losses["tree"], losses["logreg"])[1:]
    np.testing.assert_allclose(losses["best"][1:], decides)
    assert losses["full"][0] == 0
    with pytest.raises(ValueError, match=r"single choices \['tree', 'logreg'\]"):
        CertifiedRouter(occam(), max_loss=0.1, reference="moon", n_points=2).fit(X, y)


@pytest.mark.parametrize("reference", ["large", "best"])
def test_the_reference_alone_is_always_an_end_of_the_path(logged, reference):
    """The unlimited plan of a poor estimator loses. The reference alone cannot."""
    router, X, Q = logged
    poor = router
    if reference == "large":
        poor = BudgetRouter(DummyRegressor(), costs={"small": 1, "large": 5}, cv=2)
        poor.fit(X[:400] - 1, 1 - Q[:400])
    made = CertifiedRouter(
        FrozenEstimator(poor), max_loss=1e-4, reference=reference, **OPTIONS
    )
    certificate = made.fit(X, Q).certificate_
    points = made.operating_points_
    assert certificate.promised and certificate.single == points.single == "large"
    assert certificate.loss == points.loss_upper[0] == 0 and certificate.saving == 0
    assert "'large' answers every row" in str(certificate)
    routed = made.predict_routed(X[:50])
    assert set(routed.y_pred) == {"large"}
    assert set(routed.route) == {1}
    assert set(routed.cost) == {5.0}
    assert made.stream(100.0).route(X[:1]).name == "large"
    copied = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copied.route(X), made.route(X))


def test_members_alone_are_ends_as_well(labelled):
    X, y = labelled
    made = CertifiedRouter(occam(), max_loss=0.0, reference="tree", **OPTIONS).fit(X, y)
    member = made.estimator_.named_estimators_["tree"]
    assert made.certificate_.single == "tree" and set(made.predict_cost(X)) == {1.0}
    np.testing.assert_array_equal(made.predict(X), member.predict(X))
    np.testing.assert_array_equal(made.predict_proba(X), member.predict_proba(X))


# Keywords of a call about its rows ----------------------------------------------------


class Sized(Table):
    """A router with costs by the size of each row, which is right on most rows."""

    call_parameters = (CallParameter("size", "array-like", "Size of each row."),)

    def fit(self, X, y=None, size=None):
        return super().fit(X, y, size=size)

    def _fit(self, X, y, *, task, size=None):
        self.fit_size_ = size
        self.classes_ = np.array([0, 1])
        self.choices_ = ["small", "large"]

    def _plan(self, X, call):
        budget = call.budget
        size = call.option("size")
        check_affordable(budget, 1.0)
        size = np.ones(len(X)) if size is None else np.asarray(size, dtype=float)
        if size.shape != (len(X),):
            raise ValueError("size must have one entry per row.")
        route = (np.asarray(X)[:, 0] < (min(budget, 10.0) - 1) / 9).astype(np.int64)
        return Plan(route, size * (1 + 9.0 * route))

    def _answer(self, plan, response):
        return np.where(
            plan.route == 1, 1, (np.asarray(plan.X)[:, 0] > 0.2).astype(int)
        )


def sized(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 2)), np.ones(n, dtype=int), rng.choice([1.0, 3.0], n)


SIZED_OPTIONS = {
    "max_loss": 0.1,
    "reference": "full",
    "n_points": 10,
    "random_state": 0,
}


def test_what_a_call_says_about_its_rows_reaches_the_wrapped_estimator():
    X, y, size = sized(600)
    fitted = FrozenEstimator(Sized().fit(X, y))
    router = CertifiedRouter(fitted, **SIZED_OPTIONS).fit(X, y, size=size)
    # Each evidence row has its own size.
    order = np.random.RandomState(0).permutation(600)[6:]
    assert router.operating_points_.cost[0] == pytest.approx(10 * size[order].mean())
    plain = CertifiedRouter(fitted, **SIZED_OPTIONS).fit(X, y)
    assert router.certificate_.cost > 1.5 * plain.certificate_.cost
    np.testing.assert_allclose(
        router.predict_cost(X, size=size), size * router.predict_cost(X), rtol=1e-12
    )
    for view in ("predict", "route", "predict_routed"):
        getattr(router, view)(X, size=size)
    assert router.score(X, y, size=size) == (router.predict(X) == y).mean()
    again = router.recertify(X, y, size=2 * size).certificate_.cost
    assert again > 1.5 * plain.certificate_.cost
    assert router.certify_batch(X, n_labels=60, size=size).cost.mean() > 1.5
    with pytest.raises(ValueError, match="one entry per row"):
        router.predict(X, size=size[:3])
    # An estimator that is not fitted gets the sizes of the rows to fit.
    learned = CertifiedRouter(Sized(), **SIZED_OPTIONS).fit(X, y, size=size)
    assert len(learned.estimator_.fit_size_) == 420 and learned.certificate_.cost > 1.5
    for call in (
        lambda: router.predict(X, colour=size),
        lambda: router.recertify(X, y, colour=size),
        lambda: CertifiedRouter(fitted, **SIZED_OPTIONS).fit(X, y, colour=size),
    ):
        with pytest.raises(TypeError, match="colour"):
            call()
    with pytest.raises(ValueError, match="colour"):
        CertifiedRouter(Sized(), **SIZED_OPTIONS).fit(X, y, colour=size)


def test_rows_of_a_router_as_the_reference_are_counted(labelled):
    X, y = labelled
    reference = occam().fit(X[:300], y[:300])
    router = FrozenEstimator(occam(budget=5).fit(X[300:600], y[300:600]))
    made = CertifiedRouter(router, max_loss=0.5, reference=reference, **OPTIONS)
    certificate = made.fit(X[600:], y[600:]).certificate_
    assert certificate.calls["OccamRouterClassifier"] == certificate.n_rows


def test_metadata_routing_of_fit_and_calls():
    X, y, size = sized(600)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError):
            CertifiedRouter(Sized(), **SIZED_OPTIONS).fit(X, y, size=size)
        requests = Sized().set_fit_request(size=True).set_predict_request(size=True)
        router = CertifiedRouter(requests, **SIZED_OPTIONS).fit(X, y, size=size)
        # The rows to fit, and the evidence rows, each with their own sizes.
        assert len(router.estimator_.fit_size_) == 420
        assert router.certificate_.cost > 1.5
        np.testing.assert_allclose(
            router.predict_cost(X, size=size), size * router.predict_cost(X), rtol=1e-12
        )
        # `fit` of a frozen estimator gets no size. This was a KeyError.
        frozen = FrozenEstimator(clone(requests).fit(X, y, size=size))
        assert (
            CertifiedRouter(frozen, **SIZED_OPTIONS)
            .fit(X, y, size=size)
            .certificate_.cost
            > 1.5
        )
        alias = Sized().set_fit_request(size=False).set_predict_request(size="weight")
        router = CertifiedRouter(alias, **SIZED_OPTIONS).fit(X, y, weight=size)
        assert router.estimator_.fit_size_ is None and router.certificate_.cost > 1.5
        assert (
            router.predict_cost(X, weight=size).mean()
            > 1.5 * router.predict_cost(X).mean()
        )
        # Through what stands around it.
        chain = make_pipeline(
            FunctionTransformer(), CertifiedRouter(requests, **SIZED_OPTIONS)
        )
        chain.fit(X, y, size=size)
        assert chain.predict(X, size=size).shape == (600,)
        search = GridSearchCV(
            CertifiedRouter(requests, **SIZED_OPTIONS), {"max_loss": [0.1, 0.2]}, cv=2
        )
        search.fit(X, y, size=size)
        assert search.best_estimator_.certificate_.cost > 1.5


def test_costs_of_a_call_are_what_is_promised(logged):
    _, X, Q = logged
    n = len(X)
    costs = np.array([1.0, 5.0]) * np.random.default_rng(0).choice([0.5, 1.5], (n, 1))
    router = BudgetRouter(Ridge(alpha=1e-3), cv=3).fit(
        X[:300], Q[:300], costs=costs[:300]
    )
    options = {
        "max_loss": 0.2,
        "budget": 5.5,
        "reference": router.choices_[1],
        **OPTIONS,
    }
    made = CertifiedRouter(FrozenEstimator(router), **options)
    made.fit(X[300:], Q[300:], costs=costs[300:])
    route = made.route(X, costs=costs)
    cost = made.predict_cost(X, costs=costs)
    np.testing.assert_allclose(cost, costs[np.arange(n), route])
    assert abs(made.certificate_.cost / cost.mean() - 1) < 0.1
    with pytest.raises(ValueError, match="costs"):
        made.predict(X)


def test_rows_that_cost_more_than_those_of_fit_need_no_budget(logged):
    """Budgets of the path below the cheapest plan for these rows are left out."""
    _, X, Q = logged
    factors = np.random.default_rng(0).choice([0.5, 1.5], (1200, 1))[400:]
    costs = np.array([1.0, 5.0]) * factors
    router = BudgetRouter(Ridge(alpha=1e-3), cv=3)
    router.fit(X[:200], Q[:200], costs=costs[:200])
    X, Q, costs = X[200:], Q[200:], costs[200:]
    # Only the rows that set the scale cost as little as those of fit, and in a batch
    # the labelled rows.
    rng = np.random.RandomState(0)
    scale = rng.permutation(600)[:10]
    labelled = rng.permutation(600)[:100]
    higher_costs = 1.5 * costs
    higher_costs[scale] = costs[scale]
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.3, n_points=20, random_state=0
    )
    assert made.fit(X, Q, costs=higher_costs).certificate_.promised
    assert made.operating_points_.budget.min() > router.min_budget_
    assert made.recertify(X, Q, costs=9 * costs).certificate_.promised
    assert set(made.operating_points_.budget) == {np.inf}
    higher_costs[labelled] = costs[labelled]
    options = {"loss": lambda y, y_pred: 1.0 * (y != y_pred), "loss_range": 1.0}
    batch = made.set_params(reference="full", max_loss=0.9, **options)
    batch = batch.certify_batch(X, n_labels=100, costs=higher_costs)
    assert batch.certificate.promised and set(batch.labelled) == set(labelled)
    assert router.min_budget_ < batch.certificate.operating_budget < np.inf


def test_a_single_choice_that_is_certified_answers_calls_with_costs_as_well(logged):
    _, X, Q = logged
    factors = np.random.default_rng(0).choice([0.5, 1.5], (len(X), 1))
    costs = np.array([1.0, 5.0]) * factors
    poor = BudgetRouter(DummyRegressor(), cv=2).fit(X - 1, 1 - Q, costs=costs)
    frozen = FrozenEstimator(poor)
    large = poor.choices_[1]
    made = CertifiedRouter(frozen, max_loss=1e-4, reference=large, **OPTIONS)
    made.fit(X, Q, costs=costs)
    assert made.certificate_.single == large
    routed = made.predict_routed(X, costs=costs)
    assert set(routed.route) == {1}
    np.testing.assert_array_equal(routed.cost, costs[:, 1])


def test_bounds_of_operating_points_are_computed_once(fitted, monkeypatch):
    points = fitted.operating_points_
    monkeypatch.setattr(
        _selection, "mean_upper_bound", lambda *_, **__: pytest.fail("again")
    )
    for value, expected in zip(fitted.operating_points_, points, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_bills_of_the_evidence_do_not_decide():
    """A router that estimates costs decides the evidence by its estimates."""
    rng = np.random.default_rng(0)
    X = rng.random((900, 1))
    Q = np.column_stack(
        [rng.random(900) < 1 - 0.6 * X[:, 0], rng.random(900) < 0.9]
    ).astype(int)
    costs = np.column_stack(
        [rng.gamma(3, 0.3, 900), np.minimum(rng.gamma(1, 6, 900), 79)]
    )
    router = BudgetRouter(Ridge(), budget=4, cost_estimator=Ridge(), cv=2)
    frozen = FrozenEstimator(router.fit(X[:300], Q[:300], costs=costs[:300]))
    options = {"max_loss": 0.3, "reference": router.choices_[1], **OPTIONS}
    with_bills = CertifiedRouter(frozen, **options)
    with_bills.fit(X[300:], Q[300:], costs=costs[300:])
    without_bills = CertifiedRouter(frozen, **options).fit(X[300:], Q[300:])
    np.testing.assert_array_equal(with_bills.route(X), without_bills.route(X))
    point = with_bills.certificate_.operating_budget
    route = router.route(X[300:], budget=point)
    mean_bill = costs[300:][np.arange(600), route].mean()
    # A hundredth of the rows sets the range of budgets and is no evidence.
    assert with_bills.certificate_.cost == pytest.approx(mean_bill, rel=0.05)
    assert with_bills.certificate_.billed
    assert not without_bills.certificate_.billed
    for made in (with_bills, without_bills):
        with pytest.warns(UserWarning, match="costs: the evidence says nothing"):
            made.predict(X, costs=costs)


def test_costs_that_decided_the_evidence_are_needed_in_calls():
    """The router was fitted on costs of rows that are known before the call."""
    rng = np.random.default_rng(0)
    X = rng.random((900, 1))
    Q = np.column_stack(
        [rng.random(900) < 1 - 0.6 * X[:, 0], rng.random(900) < 0.9]
    ).astype(int)
    costs = np.column_stack([1 + X[:, 0], 5 + 4 * X[:, 0]])
    router = BudgetRouter(Ridge(), budget=4, cv=2)
    frozen = FrozenEstimator(router.fit(X[:300], Q[:300], costs=costs[:300]))
    options = {"max_loss": 0.3, "reference": router.choices_[1], **OPTIONS}
    certified = CertifiedRouter(frozen, **options)
    certified.fit(X[300:], Q[300:], costs=costs[300:])
    for call in (certified.predict, certified.route, certified.predict_cost):
        with pytest.raises(ValueError, match="costs are missing"):
            call(X)
    assert len(certified.predict(X, costs=costs)) == 900
    with pytest.warns(UserWarning, match="known before they are decided"):
        certified.stream(100, max_costs=[80, 80])


def test_no_budget_is_promised_where_calls_cost_something_else():
    """A router with a price list that was fitted on the real costs of calls."""
    rng = np.random.default_rng(0)
    X = rng.random((1500, 1))
    Q = np.column_stack(
        [rng.random(1500) < 1 - X[:, 0], rng.random(1500) < 0.9]
    ).astype(int)
    bills = np.array([1.0, 5.0]) * (0.4 + 1.2 * X)
    router = BudgetRouter(Ridge(), costs={"s": 1, "l": 5}, cv=2)
    frozen = FrozenEstimator(router.fit(X[:500], Q[:500], costs=bills[:500]))
    made = CertifiedRouter(frozen, max_loss=0.2, **OPTIONS).fit(X[500:], Q[500:])
    assert made.min_budget_ == np.inf
    for promise in (
        lambda: CertifiedRouter(frozen, budget=4.0, **OPTIONS).fit(X[500:], Q[500:]),
        lambda: made.predict(X, budget=4.0),
        lambda: made.set_params(budget=4.0).recertify(X[500:], Q[500:]),
    ):
        with pytest.raises(
            ValueError, match="budget=4.0 cannot be promised.*leave budget out"
        ):
            promise()
    with pytest.raises(ValueError, match="budget=4.0 cannot be held"):
        made.set_params(reference="l").certify_batch(X[500:], n_labels=200)


@pytest.mark.parametrize("quoted", [False, True])
def test_a_budget_is_promised_in_the_bills_of_the_evidence(quoted):
    """Calls are billed twice what the router expects; the promise is in bills."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 1))
    Q = np.column_stack(
        [rng.random(3000) < 1 - X[:, 0], rng.random(3000) < 0.9]
    ).astype(int)
    bills = np.array([1.0, 5.0]) * rng.uniform(1, 3, (3000, 2))
    call = {"quoted_costs": np.tile([1.0, 5.0], (3000, 1))} if quoted else {}
    fit_call = {name: values[:1000] for name, values in call.items()}
    new_call = {name: values[1000:] for name, values in call.items()}
    router = BudgetRouter(Ridge(), costs=None if quoted else {"s": 1, "l": 5}, cv=2)
    with warnings.catch_warnings():
        # The logged costs contradict the price list, as they should here.
        warnings.simplefilter("ignore")
        router.fit(X[:1000], Q[:1000], costs=bills[:1000], **fit_call)
    frozen = FrozenEstimator(router)
    options = {"max_cost": 15.0, **OPTIONS}
    made = CertifiedRouter(frozen, budget=7.0, **options)
    made.fit(X[1000:], Q[1000:], costs=bills[1000:], **new_call)
    certificate = made.certificate_
    route = made.route(X[1000:], **new_call)
    mean_bill = bills[1000:][np.arange(2000), route].mean()
    assert certificate.billed
    # A hundredth of the rows sets the range of budgets and is no evidence.
    assert certificate.cost == pytest.approx(mean_bill, rel=0.01)
    assert certificate.cost <= certificate.cost_upper <= 7.0
    expected = made.predict_cost(X[1000:], **new_call).mean()
    assert expected == pytest.approx(mean_bill, rel=0.05)


def test_bills_are_refused_where_costs_are_fixed():
    X, y = make_classification(300, random_state=0)
    members = [("dummy", DummyClassifier()), ("logreg", LogisticRegression())]
    router = FrugalMLClassifier(members, costs=[1, 5]).fit(X[:150], y[:150])
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.3, **OPTIONS)
    with pytest.raises(TypeError, match="costs is a table of bills"):
        made.fit(X[150:], y[150:], costs=np.ones((150, 2)))


def test_calls_that_the_evidence_does_not_cover_warn(logged):
    router, X, Q = logged
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.2, **OPTIONS).fit(X, Q)
    allowed = np.ones((5, 2), dtype=bool)
    with pytest.warns(UserWarning, match="exclude: the evidence says nothing"):
        made.route(X[:5], exclude=["large"])
    with pytest.warns(UserWarning, match="allowed: the evidence says nothing"):
        made.route(X[:5], allowed=allowed)
    with (
        pytest.raises(ValueError, match="smallest feasible") as refused,
        pytest.warns(UserWarning),
    ):
        made.route(X[:5], exclude=["small"])
    assert "estimator_ takes yours" in refused.value.__notes__[0]
    with (
        pytest.raises(ValueError, match=r"exclude names \['x'\]"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        made.route(X[:5], exclude=["x"])


# Uses: streams, monitors, new evidence, scores ----------------------------------------


def test_a_stream_keeps_to_the_certified_operating_point(logged):
    router, X, Q = logged
    options = {"max_loss": 0.2, "reference": "large", "n_points": 20, "random_state": 0}
    made = CertifiedRouter(FrozenEstimator(router), **options).fit(X, Q)
    route = made.route(X[:300])
    assert 0 < route.mean() < 1
    stream = made.stream(10_000, max_costs={"small": 1, "large": 5})
    for x, expected in zip(X[:300], route, strict=True):
        ticket = stream.route([x])
        stream.commit(ticket)
        assert ticket.name == made.choices_[expected]
    assert stream.status().spent == pytest.approx(made.predict_cost(X[:300]).sum())
    with pytest.raises(ValueError, match="Table has no method stream"):
        certified(table(500), max_loss=0.3).stream(10)


@pytest.mark.parametrize("max_cost", [None, 6.0])
@pytest.mark.parametrize("budget", [4.5, 6.0, 30.0])
def test_a_router_makes_its_monitor(logged, budget, max_cost):
    """Also for a budget above all costs, without a `max_cost` of the user."""
    router, X, Q = logged
    options = {
        "max_loss": 0.2,
        "reference": "large",
        "budget": budget,
        "max_cost": max_cost,
    }
    made = CertifiedRouter(FrozenEstimator(router), **options, **OPTIONS).fit(X, Q)
    monitor = made.monitor(audit_rate=0.5, random_state=0)
    assert (monitor.max_loss, monitor.budget, monitor.audit_rate) == (0.2, budget, 0.5)
    drawn = np.random.default_rng(1).integers(len(X), size=4000)
    seen = made.predict_routed(X[drawn])
    loss = (Q[drawn, 1] - Q[drawn, seen.route]).astype(float)
    loss[~monitor.audit(4000)] = np.nan
    assert monitor.update(cost=seen.cost, loss=loss) is None
    monitor.update(cost=np.full(4000, 3 * budget), loss=np.full(4000, 0.5))
    assert {alarm.kind for alarm in monitor.alarms_} == {"cost", "loss"}
    few = certified(table(200), max_loss=0.001, fallback="safe")
    with pytest.raises(ValueError, match="nothing to watch"):
        few.monitor()


def test_recertify_moves_the_operating_point_without_a_fit():
    X = table(3000)
    router = certified(X, max_loss=0.1)
    before = router.certificate_
    worse = table(3000, seed=1)
    worse[:, 1] = np.where(np.random.default_rng(0).random(3000) < 0.1, 0, worse[:, 1])
    after = router.recertify(worse, np.ones(3000, dtype=int)).certificate_
    assert after.cost > before.cost and after.n_rows == 3000
    with pytest.raises(ValueError, match="cannot be promised"):
        router.recertify(worse[:5], np.ones(5, dtype=int))
    assert router.certificate_ == after
    with pytest.raises(NotFittedError):
        CertifiedRouter(FROZEN, max_loss=0.1).recertify(X, np.ones(3000))


def test_scores_are_those_of_the_wrapped(labelled):
    X, y = labelled
    rng = np.random.default_rng(0)
    sets = np.column_stack([y, X[:, 0] > 0]).astype(int)
    Q = np.column_stack([rng.random(900) < 0.6, rng.random(900) < 0.9]).astype(float)
    numbers = X[:, 0] + 0.1 * rng.normal(size=900)
    weight = rng.integers(1, 4, 900).astype(float)
    trees = [(f"trees{k}", DecisionTreeClassifier(max_depth=k)) for k in (1, 4)]
    means = [("mean", DummyRegressor()), ("ridge", Ridge())]
    for router, target, loss in (
        (occam(), y, None),
        (FrugalMCTClassifier(trees, costs=[1, 10], cv=2), sets, None),
        (BudgetRouter(Ridge(), costs={"small": 1.0, "large": 5.0}), Q, None),
        (
            OccamRouterRegressor(means, costs=[1, 5], quality_estimator=Ridge()),
            numbers,
            lambda t, p: 1.0 * (np.abs(t - p) > 1),
        ),
    ):
        fitted = router.fit(X[:300], target[:300])
        options = {
            "max_loss": 0.5,
            "loss": loss,
            "loss_range": loss and 1.0,
            "reference": "full",
        }
        made = CertifiedRouter(FrozenEstimator(fitted), **options, **OPTIONS)
        made.fit(X[300:], target[300:])
        operating_budget = made.certificate_.operating_budget
        for sample_weight in (None, weight):
            expected = fitted.score(
                X, target, budget=operating_budget, sample_weight=sample_weight
            )
            score = made.score(X, target, sample_weight=sample_weight)
            assert score == pytest.approx(expected)
        if target is sets:
            assert made.score(X, csr_array(sets)) == made.score(X, sets)
        elif target is Q:
            frame = pd.DataFrame(Q[:, ::-1], columns=["large", "small"])
            assert made.score(X, frame) == made.score(X, Q)
            with pytest.raises(ValueError, match="with the quality of each of"):
                made.score(X, Q[:, [0, 1, 1]])
    made = CertifiedRouter(occam(), max_loss=0.5, **OPTIONS).fit(X, y)
    assert made.score(X, y[:, None]) > 0.6


# Owners -------------------------------------------------------------------------------


@pytest.mark.parametrize("as_list", [True, False])
def test_later_changes_by_its_owner_have_no_effect(labelled, as_list):
    """Parameters that act at once, a changed price list, and another fit."""
    X, y = labelled
    prices = [1.0, 10.0] if as_list else {"tree": 1.0, "logreg": 10.0}
    wrapped = occam(reg_lambda=0.0).set_params(costs=prices).fit(X[:400], y[:400])
    router = CertifiedRouter(FrozenEstimator(wrapped), max_loss=0.3, **OPTIONS)
    router.fit(X[400:], y[400:])
    before = router.predict_routed(X)
    prices[1 if as_list else "logreg"] = 50.0
    wrapped.set_params(policy="batch", reg_lambda=1e9, budget=None)
    for _ in range(2):
        after = router.predict_routed(X)
        np.testing.assert_array_equal(after.route, before.route)
        np.testing.assert_array_equal(after.cost, before.cost)
        wrapped.fit(X[:100], 1 - y[:100])


def test_a_router_that_goes_on_learning_was_certified_as_it_was():
    problem = make_routing_problem(600, n_features=3, random_state=0)
    X = problem.data
    Q = problem.quality
    names = "abcd"[: len(problem.costs)]
    prices = dict(zip(names, problem.costs, strict=True))
    online = OnlineBudgetRouter(prices).fit(X[:200], Q[:200])
    made = CertifiedRouter(
        FrozenEstimator(online), max_loss=0.3, reference="c", **OPTIONS
    )
    before = made.fit(X[200:], Q[200:]).predict_routed(X)
    online.partial_fit(X, 1 - Q)
    online.set_params(costs={name: 9 * cost for name, cost in prices.items()})
    online.route(X)
    np.testing.assert_array_equal(made.route(X), before.route)
    np.testing.assert_array_equal(made.predict_cost(X), before.cost)


# Errors -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(labelled):
    return CertifiedRouter(occam(), max_loss=0.3, **OPTIONS).fit(*labelled)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y.astype(str), "No label in y"),
        (lambda y: y + 7, "No label in y"),
        (lambda y: np.where(y == 1, np.nan, y), "y must have no missing"),
        (lambda y: np.ma.masked_array(y, mask=y == 1), "y must have no missing"),
        (lambda y: np.column_stack([y, y]), "as many axes as in fit"),
    ],
)
def test_evidence_on_which_no_answer_can_be_right_is_refused(
    fitted, labelled, change, message
):
    """All answers and references are wrong there: differences of 0 mean nothing."""
    X, y = labelled
    before = str(fitted.certificate_)
    with pytest.raises(ValueError, match=message):
        fitted.recertify(X, change(y))
    assert str(fitted.certificate_) == before
    frozen = CertifiedRouter(
        FrozenEstimator(fitted.estimator_), max_loss=0.3, n_points=4
    )
    if "axes" not in message:
        with pytest.raises(ValueError, match=message):
            frozen.fit(X, change(y))


def test_no_promise_for_a_group_without_evidence(labelled):
    X, y = labelled
    options = {"max_loss": 0.9, **OPTIONS}
    frozen = FrozenEstimator(occam().fit(X[:300], y[:300]))
    X, y = X[300:], y[300:]
    # Fifty rows or less set the scale of the budgets, this one among them.
    order = np.random.RandomState(0).permutation(600)
    group = (np.arange(600) == order[0]).astype(int)
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        CertifiedRouter(frozen, groups=group, **options).fit(X, y)
    first_class = y == 0
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        CertifiedRouter(frozen, groups="class", **options).fit(
            X[first_class], y[first_class]
        )
    router = CertifiedRouter(frozen, groups="class", **options).fit(X, y)
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        router.recertify(X[first_class], y[first_class])
    for wrong, message in (
        (np.where(group == 1, None, "a"), "none missing"),
        (np.ma.masked_array(group, mask=group == 1), "masked"),
        (group[:-1], "one entry per row"),
    ):
        with pytest.raises(ValueError, match=f"groups must.*{message}"):
            CertifiedRouter(frozen, groups=wrong, **options).fit(X, y)
    labels = y.astype(object)
    labels[3] = None
    router = CertifiedRouter(
        frozen, groups="class", loss=lambda a, b: 1.0 * (a != b), loss_range=1
    )
    with pytest.raises(ValueError, match='groups="class" needs a label in every row'):
        router.set_params(**options).fit(X, labels)
    small = (np.arange(600) < 30).astype(int)
    with pytest.raises(
        ValueError, match=r"on \d\d? evidence rows of its smallest or worst group"
    ):
        CertifiedRouter(frozen, groups=small, **{**options, "max_loss": 0.01}).fit(X, y)


def test_losses_and_costs_outside_of_their_ranges_are_refused():
    X = table(300)
    for options, message in (
        ({"loss_range": 0.5}, "more than loss_range=0.5"),
        ({"max_cost": 2}, "max_cost=2 is below what an evidence row has cost"),
        ({"max_loss": 5}, "promises nothing: losses of a row differ by at most 1 "),
        ({"max_loss": None}, "nothing to promise"),
    ):
        with pytest.raises(ValueError, match=message):
            certified(X, **{"max_loss": 0.1, **options})
    with pytest.raises(ValueError, match="target y is None"):
        CertifiedRouter(FROZEN, max_loss=0.1).fit(X)


def test_what_is_no_decision_estimator_for_single_rows_is_refused(labelled):
    X, y = labelled
    batch = occam(policy="batch")
    for model in (batch, FrozenEstimator(clone(batch).fit(X, y))):
        with pytest.raises(ValueError, match='policy="batch"'):
            CertifiedRouter(model, max_loss=0.3).fit(X, y)
    chain = make_pipeline(StandardScaler(), occam())
    certified_one = CertifiedRouter(occam(), max_loss=0.1)
    for model in (LogisticRegression(), FrozenEstimator(chain), certified_one):
        with pytest.raises(ValueError, match="must be a decision estimator of skroute"):
            CertifiedRouter(model, max_loss=0.3).fit(X, y)
    with pytest.raises(NotFittedError):
        CertifiedRouter(FrozenEstimator(occam()), max_loss=0.3).fit(X, y)


def test_logs_of_one_answer_and_weights_are_refused(logged):
    router, X, Q = logged
    with pytest.raises(
        TypeError, match="one answer for each request cannot be certified"
    ):
        CertifiedRouter(router, max_loss=0.1).fit(
            X, Q[:, 0], choice=np.zeros(len(X), dtype=int)
        )
    X, y, weight = table(300), np.ones(300, dtype=int), np.ones(300)
    made = certified(X, max_loss=0.3)
    for call in (
        lambda: CertifiedRouter(FROZEN, max_loss=0.1).fit(X, y, sample_weight=weight),
        lambda: CertifiedRouter(Table(), max_loss=0.1).fit(X, y, sample_weight=weight),
        lambda: made.recertify(X, y, sample_weight=weight),
    ):
        with pytest.raises(TypeError, match="counts every evidence row once"):
            call()


def test_rows_that_fitted_a_frozen_router_are_noticed(logged):
    _, X, Q = logged
    router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5}).fit(X[:300], Q[:300])
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.2, **OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(X[300:], Q[300:])
    for evidence in (made.fit, made.recertify):
        with pytest.warns(
            UserWarning, match="rows equal rows that the router was fitted on"
        ):
            evidence(X[:300], Q[:300])


def test_bills_of_other_rows_are_refused_before_a_model_is_called():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    Q = np.column_stack([1 - X[:, 0], np.full(400, 0.9)])
    router = BudgetRouter(Ridge(), costs=[1, 4], budget=2).fit(X[:200], Q[:200])
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.5, **OPTIONS)
    for n_rows in (3, 400):
        with pytest.raises(ValueError, match="one row for each of the 200 rows of X"):
            made.fit(X[200:], Q[200:], costs=np.ones((n_rows, 2)))


def test_a_stream_that_follows_a_total_promises_nothing():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    Q = np.column_stack([1 - X[:, 0], np.full(600, 0.9)])
    router = BudgetRouter(Ridge(), costs=[1, 4]).fit(X[:300], Q[:300])
    made = CertifiedRouter(FrozenEstimator(router), max_loss=0.3, **OPTIONS)
    made.fit(X[300:], Q[300:])
    with pytest.warns(UserWarning, match="Nothing is promised about its decisions"):
        made.stream(1000.0, n_expected=500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.stream(1000.0)
