"""What is said about rows reaches the wrapped estimator; streams and monitors of a promise."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.certified import CertifiedRouter
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
)
from tests.certified.test_router import certified, table


class Sized(CostAwareMixin, BaseEstimator):
    """Costs as much as the call says that its rows are large; right on all but small budgets."""

    _call_context = ("size",)

    def __init__(self, budget=None):
        self.budget = budget

    def fit(self, X, y=None, size=None):
        return super().fit(X, y, size=size)

    def _fit(self, X, y, *, task, size=None):
        self.fit_size_ = size
        self.classes_ = np.array([0, 1])
        self.choices_ = ["small", "large"]

    def _least(self):
        return 1.0

    def _plan(self, X, budget, size=None):
        check_affordable(budget, 1.0)
        size = np.ones(len(X)) if size is None else np.asarray(size, dtype=float)
        if size.shape != (len(X),):
            raise ValueError("size must have one entry per row.")
        route = (np.asarray(X)[:, 0] < (min(budget, 10.0) - 1) / 9).astype(np.int64)
        return Plan(route, size * (1 + 9.0 * route))

    def _answer(self, X, plan, response):
        return np.where(plan.route == 1, 1, (np.asarray(X)[:, 0] > 0.2).astype(int))


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 2)), np.ones(n, dtype=int), rng.choice([1.0, 3.0], n)


OPTIONS = {"max_loss": 0.1, "reference": "full", "n_points": 10, "random_state": 0}


def test_what_a_call_says_about_its_rows_reaches_the_wrapped_estimator():
    X, y, size = rows(600)
    given = FrozenEstimator(Sized().fit(X, y))
    router = CertifiedRouter(given, **OPTIONS).fit(X, y, size=size)
    # Each evidence row with what was said about itself.
    order = np.random.RandomState(0).permutation(600)[6:]
    np.testing.assert_allclose(router._selection.evidence.costs[:, 0], 10 * size[order])
    plain = CertifiedRouter(given, **OPTIONS).fit(X, y)
    ratio = router.certificate_.cost / plain.certificate_.cost
    assert ratio > 1.5
    np.testing.assert_allclose(
        router.predict_cost(X, size=size), size * router.predict_cost(X), rtol=1e-12
    )
    for view in ("predict", "route", "predict_routed"):
        getattr(router, view)(X, size=size)
    router.score(X, y, size=size)
    with pytest.raises(TypeError, match="colour"):
        router.predict(X, colour=size)
    with pytest.raises(ValueError, match="one entry per row"):
        router.predict(X, size=size[:3])
    again = router.recertify(X, y, size=2 * size).certificate_.cost
    assert again > 1.5 * ratio * plain.certificate_.cost / 1.5
    batch = router.certify_batch(X, n_labels=60, size=size)
    assert batch.cost.mean() > 1.5
    with pytest.raises(TypeError, match="colour"):
        router.recertify(X, y, colour=size)
    with pytest.raises(TypeError, match="colour"):
        CertifiedRouter(given, **OPTIONS).fit(X, y, colour=size)


def test_metadata_routing_decides_who_is_told_what():
    X, y, size = rows(600)
    with sklearn.config_context(enable_metadata_routing=True):
        silent = CertifiedRouter(Sized(), **OPTIONS)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            silent.fit(X, y, size=size)
        told = Sized().set_fit_request(size=True).set_predict_request(size=True)
        router = CertifiedRouter(told, **OPTIONS).fit(X, y, size=size)
        # The rows that are learned from, and the others, each with their own.
        assert len(router.estimator_.fit_size_) == 420
        assert router.certificate_.cost > 1.5
        np.testing.assert_allclose(
            router.predict_cost(X, size=size), size * router.predict_cost(X), rtol=1e-12
        )
        alias = Sized().set_fit_request(size=False).set_predict_request(size="weight")
        router = CertifiedRouter(alias, **OPTIONS).fit(X, y, weight=size)
        assert router.estimator_.fit_size_ is None and router.certificate_.cost > 1.5
        assert router.predict_cost(X, weight=size).mean() > 1.5 * router.predict_cost(X).mean()
        # Through what stands around it.
        chain = make_pipeline(FunctionTransformer(), CertifiedRouter(told, **OPTIONS))
        chain.fit(X, y, size=size)
        assert chain.predict(X, size=size).shape == (600,)
        with pytest.raises(ValueError, match="one entry per row"):
            chain.predict(X, size=size[:3])
        search = GridSearchCV(CertifiedRouter(told, **OPTIONS), {"max_loss": [0.1, 0.2]}, cv=2)
        search.fit(X, y, size=size)
        assert search.best_estimator_.certificate_.cost > 1.5


@pytest.fixture(scope="module")
def logged():
    rng = np.random.default_rng(0)
    X = rng.random((1200, 1))
    Q = np.column_stack([rng.random(1200) < X[:, 0], rng.random(1200) < 0.95]).astype(int)
    router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}, cv=3)
    return router.fit(X[:400], Q[:400]), X[400:], Q[400:]


def test_costs_of_a_call_reach_a_budget_router():
    rng = np.random.default_rng(0)
    X = rng.random((900, 1))
    Q = np.column_stack([rng.random(900) < X[:, 0], rng.random(900) < 0.95]).astype(int)
    costs = np.array([1.0, 5.0]) * rng.choice([0.5, 1.5], (900, 1))
    router = BudgetRouter(Ridge(alpha=1e-3), cv=3).fit(X[:400], Q[:400], costs=costs[:400])
    made = CertifiedRouter(
        FrozenEstimator(router),
        max_loss=0.2,
        reference=router.choices_[1],
        n_points=10,
        random_state=0,
    ).fit(X[400:], Q[400:], costs=costs[400:])
    k, cost = made.route(X, costs=costs), made.predict_cost(X, costs=costs)
    np.testing.assert_allclose(cost, costs[np.arange(900), k])
    assert abs(made.certificate_.cost / cost.mean() - 1) < 0.1
    with pytest.raises(ValueError, match="costs"):
        made.predict(X)


def test_a_stream_keeps_to_the_certified_operating_point(logged):
    router, X, Q = logged
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.2, reference="large", n_points=20, random_state=0
    ).fit(X, Q)
    route = made.route(X[:300])
    assert 0 < route.mean() < 1
    stream = made.stream(budget_total=10_000)
    for x, expected in zip(X[:300], route):
        ticket = stream.route([x])
        stream.commit(ticket)
        assert ticket.name == made.choices_[expected]
    assert stream.status().spent == pytest.approx(made.predict_cost(X[:300]).sum())
    router.set_params(budget=1.0)
    again = made.stream(budget_total=10_000).route([X[0]])
    assert again.name == made.choices_[route[0]]
    router.set_params(budget=None)
    with pytest.raises(ValueError, match="Table has no streams"):
        certified(table(500), max_loss=0.3).stream(10)


def test_a_router_makes_its_monitor(logged):
    router, X, Q = logged
    options = {"max_loss": 0.2, "reference": "large", "n_points": 10, "random_state": 0}
    made = CertifiedRouter(FrozenEstimator(router), **options, budget=4.5, max_cost=6).fit(X, Q)
    monitor = made.monitor(audit_rate=0.5, random_state=0)
    assert (monitor.max_loss, monitor.budget) == (0.2, 4.5)
    rng = np.random.default_rng(1)
    drawn = rng.integers(len(X), size=4000)
    seen = made.predict_routed(X[drawn])
    loss = (Q[drawn, 1] - Q[drawn, seen.route]).astype(float)
    loss[~monitor.audit(4000)] = np.nan
    assert monitor.update(cost=seen.cost, loss=loss) is None
    # The small model is changed for the worse.
    worse = np.where(seen.route == 0, Q[drawn, 1], 0.0)
    assert monitor.update(cost=seen.cost, loss=worse).kind == "loss"
    few = certified(table(200), max_loss=0.001, fallback="safe")
    with pytest.raises(ValueError, match="nothing to watch"):
        few.monitor()


@pytest.mark.parametrize("max_cost", [None, 6.0])
@pytest.mark.parametrize("budget", [6.0, 12.0, 30.0])
def test_a_budget_above_all_costs_is_watched(logged, budget, max_cost):
    """The monitor was refused for a `max_cost` that nobody had given."""
    router, X, Q = logged
    options = {"budget": budget, "max_cost": max_cost, "n_points": 3, "random_state": 0}
    made = CertifiedRouter(FrozenEstimator(router), **options).fit(X, Q)
    monitor, routed = made.monitor(), made.predict_routed(X)
    assert monitor.update(cost=routed.cost) is None
    assert monitor.update(cost=np.full(len(X), 3 * budget)).kind == "cost"


def test_every_refusal_says_what_can_be_promised_and_what_it_takes():
    X = table(300)
    with pytest.raises(
        ValueError,
        match=r"smallest feasible budget is [\d.]+ per sample. That is the smallest that 295 "
        r"evidence rows can promise beside max_loss=0.15; (budget=2.0 would need about \d+|no "
        r"number of rows would be enough: they cost \S+ on average)",
    ):
        certified(X, max_loss=0.15, budget=2.0, max_cost=14.5)
    with pytest.raises(ValueError, match=r"rows can promise; budget=3.0 would need about \d+"):
        certified(X, budget=1.0 + 2.0, max_cost=1e5)
    alone = certified(X, budget=9.0, max_cost=14.5)
    with pytest.raises(
        ValueError, match="they cost 1 on average there, which budget=1.0 is not above"
    ):
        alone.predict(X, budget=1.0)


def test_scores_are_those_of_the_wrapped():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Q = (rng.random((300, 2)) < np.column_stack([X[:, 0] > 0, np.full(300, 0.9)])).astype(float)
    weight = rng.integers(1, 4, 300).astype(float)
    prices = {"small": 1.0, "large": 5.0}
    router = BudgetRouter(Ridge(), costs=prices).fit(X[:100], Q[:100])
    members = [("mean", DummyRegressor()), ("ridge", Ridge())]
    numbers = OccamRouterRegressor(members, costs=[1, 5], quality_estimator=Ridge())
    target = X[:, 0] + 0.1 * rng.normal(size=300)
    numbers.fit(X[:100], target[:100])
    for fitted, y, loss in ((router, Q, None), (numbers, target, lambda t, p: np.abs(t - p) > 1)):
        certified = CertifiedRouter(
            FrozenEstimator(fitted),
            max_loss=0.3,
            loss=loss,
            loss_range=1.0,
            n_points=3,
            random_state=0,
        )
        certified.fit(X[100:], y[100:])
        budget = certified.certificate_.operating_budget
        expected = fitted.score(X, y, sample_weight=weight, budget=budget)
        assert certified.score(X, y, sample_weight=weight) == pytest.approx(expected)
    by_name = CertifiedRouter(FrozenEstimator(router), max_loss=0.3, n_points=3).fit(X, Q)
    frame = pd.DataFrame(Q, columns=list(prices))
    assert by_name.score(X, frame[["large", "small"]]) == by_name.score(X, Q)
    with pytest.raises(ValueError, match="y must have shape"):
        by_name.score(X, Q[:, [0, 1, 1]])


def test_labels_in_a_column_and_label_sets_in_any_container_have_a_score():
    X, y = make_classification(300, n_informative=4, random_state=0)
    members = [("bayes", GaussianNB()), ("line", LogisticRegression())]
    router = OccamRouterClassifier(members, costs=[1, 10], cv=2).fit(X[:100], y[:100])
    one = CertifiedRouter(FrozenEstimator(router), max_loss=0.5, n_points=3).fit(X[100:], y[100:])
    assert one.score(X, y[:, np.newaxis]) == one.score(X, y)
    sets = np.column_stack([y, X[:, 0] > 0]).astype(int)
    forests = [(f"trees{k}", DecisionTreeClassifier(max_depth=k)) for k in (1, 4)]
    router = FrugalMCTClassifier(forests, costs=[1, 10], cv=2).fit(X[:100], sets[:100])
    several = CertifiedRouter(FrozenEstimator(router), max_loss=0.5, n_points=3)
    several.fit(X[100:], sets[100:])
    expected = router.score(X, sets, budget=several.certificate_.operating_budget)
    assert several.score(X, sets) == several.score(X, csr_array(sets)) == pytest.approx(expected)
