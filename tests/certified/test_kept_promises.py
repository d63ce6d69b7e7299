"""What a promise is about stays true, or is said: bills, safe ends, outages, prices, owners."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_classification
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from skroute.certified import CertifiedRouter
from skroute.certified._evidence import Evidence
from skroute.certified._selection import Asked, Selection
from skroute.certified._tables import replanned
from skroute.routing import BudgetRouter, OccamRouterClassifier, OnlineBudgetRouter

PRICES = {"s": 1.0, "m": 2.0, "l": 9.0}
MEAN = np.array(list(PRICES.values()))


def log(n, seed):
    """Features, qualities, and bills: what goes to the large choice are the long rows."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    right = np.column_stack([1 - 0.9 * X[:, 0], 1 - 0.5 * X[:, 0], np.full(n, 0.97)])
    Q = (rng.random((n, 3)) < right).astype(int)
    return X, Q, MEAN * (0.4 + 1.2 * X[:, [0]]) * np.exp(rng.normal(0, 0.2, (n, 1)) - 0.02)


def fitted(n=800, costs=PRICES, bills=True):
    X, Q, C = log(n, 1)
    router = BudgetRouter(Ridge(), costs=costs, cv=2)
    return router.fit(X, Q, costs=C) if bills else router.fit(X, Q)


@pytest.fixture(scope="module")
def billed():
    return fitted()


@pytest.fixture(scope="module")
def listed():
    return fitted(bills=False)


OPTIONS = {"n_points": 12, "random_state": 0}


def certified(router, n=1500, seed=2, costs=False, **options):
    X, Q, C = log(n, seed)
    made = CertifiedRouter(FrozenEstimator(router), **{**OPTIONS, **options})
    return made.fit(X, Q, costs=C if costs else None)


# Bills --------------------------------------------------------------------------------------


def test_a_budget_of_bills_is_promised_in_bills(billed):
    """Over fresh evidence the realised mean is above the budget as rarely as promised."""
    X, _, C = log(5000, 99)
    n_draws, level, budget = 20, 0.2, 4.0
    above = listed_above = 0
    for seed in range(n_draws):
        options = {"confidence": 1 - level, "budget": budget, "n_points": 25}
        made = certified(billed, 300, 100 + seed, costs=True, max_cost=40.0, **options)
        above += C[np.arange(len(X)), made.route(X)].mean() > budget
        # The mutation: the same evidence, in list prices.
        made.set_params(budget=None)
        made._selection.asked = made._selection.asked._replace(unbilled=False)
        rows = log(300, 100 + seed)[0]
        grid = made._selection.evidence.budget
        cheap = [b for b in grid if billed.predict_cost(rows, budget=b).mean() <= budget]
        k = billed.route(X, budget=max(cheap))
        listed_above += C[np.arange(len(X)), k].mean() > budget
    assert above <= stats.binom.ppf(0.99, n_draws, level)
    assert listed_above > stats.binom.ppf(0.99, n_draws, level)


def test_bills_are_in_the_certificate_the_monitor_and_by_name(billed):
    pd = pytest.importorskip("pandas")
    made = certified(billed, costs=True, budget=5.0)
    certificate = made.certificate_
    assert "the mean cost is at most 5 (as logged)" in str(certificate)
    assert certificate.costs == "as logged"
    X, Q, C = log(1500, 2)
    frame = pd.DataFrame(C, columns=list(PRICES))[["l", "s", "m"]]
    by_name = CertifiedRouter(FrozenEstimator(billed), budget=5.0, **OPTIONS)
    assert by_name.fit(X, Q, costs=frame).certificate_ == certificate
    again = [made.recertify(X, Q, costs=costs).certificate_ for costs in (C, frame)]
    assert again[0] == again[1]
    k = made._selection.point(5.0)
    order = np.random.RandomState(0).permutation(1500)
    bills = C[np.arange(1500), made.route(X)]
    np.testing.assert_allclose(made._selection.evidence.costs[:, k], bills[order])
    # A monitor of it is fed with bills.
    alarms = 0
    for seed in range(10):
        X, _, C = log(4000, 300 + seed)
        route = made.route(X)
        alarms += made.monitor().update(cost=C[np.arange(4000), route], route=route) is not None
    assert alarms <= 2
    for wrong, message in [
        (C[:, :2], "one cost per row and choice"),
        (-C, "finite and not negative"),
        (C.astype(str) + "$", "must be numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            made.recertify(X, np.ones((4000, 3), dtype=int), costs=wrong)


def test_bills_have_what_deciding_costs_and_are_compared_with_bills():
    """One choice for all rows takes no decision; its bills, not its price, are the reference's."""
    X, Q, C = log(800, 1)
    router = BudgetRouter(Ridge(), costs=PRICES, routing_cost=0.5, cv=2).fit(X, Q, costs=C)
    made = certified(router, 600, max_loss=0.3, reference="l", costs=True)
    _, _, C = log(600, 2)
    C, evidence = C[np.random.RandomState(0).permutation(600)[6:]], made._selection.evidence
    alone, route = evidence.single >= 0, evidence.routes
    assert alone.tolist() == [True] + [False] * (len(alone) - 1)
    billed = np.take_along_axis(C, route, axis=1)
    np.testing.assert_allclose(evidence.costs, billed + np.where(alone, 0.0, 0.5))
    certificate = made.certificate_
    assert certificate.reference_cost == pytest.approx(C[:, 2].mean())
    assert certificate.saving == pytest.approx(1 - certificate.cost / C[:, 2].mean())


def test_a_budget_of_bills_needs_bills(billed, listed):
    with pytest.raises(ValueError, match="budget=5.0 cannot be promised.*Give costs"):
        certified(billed, budget=5.0)
    loss = certified(billed, max_loss=0.1)
    assert loss.certificate_.costs == "by the router's own prices"
    assert loss.min_budget_ == np.inf
    with pytest.raises(ValueError, match="budget=8.0 cannot be promised.*Give costs"):
        loss.predict(log(10, 0)[0], budget=8.0)
    X, Q, C = log(1500, 2)
    assert loss.recertify(X, Q, costs=C).predict(X, budget=8.0).shape == (1500,)
    # Of a router that knows no bills the budget is one of its prices, or of bills if given.
    assert "router's own prices" in str(certified(listed, budget=5.0).certificate_)
    assert "(as logged)" in str(certified(listed, budget=5.0, costs=True).certificate_)


def test_a_router_that_is_not_fitted_learns_bills_as_well():
    X, Q, C = log(1500, 5)
    made = CertifiedRouter(BudgetRouter(Ridge(), costs=PRICES, cv=2), budget=6.0, **OPTIONS)
    made.fit(X, Q, costs=C)
    assert made.estimators_[0]._priced._realised is not None
    assert made.certificate_.costs == "as logged"
    learned = BudgetRouter(Ridge(), cost_estimator=DummyRegressor(), cv=2)
    made = CertifiedRouter(learned, max_loss=0.3, **OPTIONS).fit(X, Q, costs=C)
    assert made.certificate_.costs == "as logged"
    occam = OccamRouterClassifier([("bayes", GaussianNB())], costs=[1])
    with pytest.raises(Exception, match="costs"):
        CertifiedRouter(occam, max_loss=0.3).fit(X, Q[:, 0], costs=C)


# The safe end -------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["l", "best"])
def test_the_reference_alone_is_always_an_end_of_the_path(listed, reference):
    """The unlimited plan of a poor estimator loses; asking the reference alone cannot."""
    X, Q, _ = log(800, 1)
    poor = BudgetRouter(DummyRegressor(), costs=PRICES, cv=2).fit(X, 1 - Q)
    if reference == "best":
        poor = listed
    made = certified(poor, max_loss=1e-4, reference=reference)
    certificate, points = made.certificate_, made.operating_points_
    assert certificate.promised and certificate.single == "l" and certificate.loss == 0
    assert certificate.saving == pytest.approx(0) and points.single[0] == 2
    assert points.loss_upper[0] == 0 and "'l' answers every row" in str(certificate)
    rows = log(50, 7)[0]
    routed = made.predict_routed(rows)
    assert set(routed.route) == {2} and set(routed.cost) == {9.0}
    assert set(routed.y_pred) == {"l"}
    assert made.stream(100.0).route(rows[:1]).name == "l"
    # The rest of the path is what it was: the reference itself takes none of the level.
    loose = certified(listed, max_loss=0.1, reference=reference)
    assert loose.certificate_.single is None and loose.certificate_.cost < 8
    copied = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copied.route(rows), routed.route)


def test_members_alone_are_ends_as_well():
    X, y = make_classification(900, n_informative=5, random_state=0)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]
    occam = OccamRouterClassifier(members, costs=[1, 10], quality_estimator=Ridge(), cv=2)
    made = CertifiedRouter(occam, max_loss=0.0, reference="bayes", **OPTIONS).fit(X, y)
    assert made.certificate_.single == "bayes"
    np.testing.assert_array_equal(
        made.predict(X), made.estimators_[0].named_estimators_["bayes"].predict(X)
    )
    assert made.predict_proba(X).shape == (900, 2) and set(made.predict_cost(X)) == {1.0}


def test_the_best_of_several_at_the_end_is_tested():
    """Two choices that are nearly as good: which one is better, the evidence has to say."""
    rng = np.random.default_rng(0)
    X, broken, n_draws, level = rng.random((4000, 1)), 0, 30, 0.2
    Q = (rng.random((4000, 2)) < [0.9, 0.93]).astype(int)
    # Fitted where the worse one looks better.
    wrong = BudgetRouter(DummyRegressor(), costs=[1, 2], cv=2).fit(X, 1 - Q)
    for _ in range(n_draws):
        rows = rng.integers(4000, size=400)
        made = CertifiedRouter(
            FrozenEstimator(wrong),
            max_loss=0.02,
            confidence=1 - level,
            n_points=3,
            fallback="safe",
        ).fit(X[rows], Q[rows])
        # A refusal, or a certificate, would say what the rows can promise: most of the time.
        if not made._selection.vouches(np.inf):
            continue
        loss = Q.mean(axis=0).max() - Q[np.arange(4000), made.route(X)].mean()
        broken += loss > 0.02
    assert broken <= stats.binom.ppf(0.99, n_draws, level)


# The level ------------------------------------------------------------------------------------


def evidence_of(rng, loss, cost, n=80):
    """Evidence of paths with points of these expected losses and costs, which are 0 or 1."""
    loss, cost = np.array(loss), np.array(cost)
    k = loss.size
    path = np.repeat(np.arange(len(loss)), loss.shape[1])
    return Evidence(
        path,
        np.full(k, 9.0),
        np.zeros((n, k), dtype=np.int32),
        (rng.random((n, k)) < loss.ravel()) * 1.0,
        (rng.random((n, k)) < cost.ravel()) * 1.0,
        np.zeros((n, 1)),
        ["full"],
        np.ones(1),
        np.zeros(n, dtype=np.int64),
        [],
        False,
        np.full(k, -1),
        np.full(k, -1),
    )


def selected(evidence, budget, level):
    """The point that is taken, or None."""
    names = [f"p{k}" for k in range(evidence.path[-1] + 1)]
    asked = Asked(0.1, 1.0, 1.0, 1 - level, "raise")
    made = Selection(evidence, names, asked, [["a"]] * len(names))
    try:
        return made.point(budget)
    except ValueError:
        return None


def test_paths_and_promises_share_the_level():
    """Eight paths, each just beyond the loss that was asked for; and the levels add up."""
    rng, n_draws, level = np.random.default_rng(0), 100, 0.2
    loss, cost = [[0.1001]] * 8, [[0.2]] * 8
    draws = [selected(evidence_of(rng, loss, cost), np.inf, level) for _ in range(n_draws)]
    assert sum(k is not None for k in draws) <= stats.binom.ppf(0.99, n_draws, level)
    evidence = evidence_of(rng, [[0.0]] * 3, [[0.2]] * 3)
    asked = Asked(0.1, 1.0, 1.0, 0.9, "raise")
    made = Selection(evidence, ["p0", "p1", "p2"], asked, [["a"]] * 3)
    assert made.level() == pytest.approx(0.1 / 3) and made.level(5.0) == pytest.approx(0.1 / 6)
    alone = Selection(evidence, made.names, asked._replace(max_loss=None), [["a"]] * 3)
    assert alone.level(5.0) == pytest.approx(0.1 / 3)


def test_a_safe_end_that_fails_keeps_its_share_of_the_level():
    """p-values between what is left of the level and all of it: only behind a certified end."""
    evidence = evidence_of(np.random.default_rng(0), [[0.0, 0.0]], [[0.2, 0.2]])
    evidence = evidence._replace(single=np.array([0, -1]))
    made = Selection(evidence, ["p"], Asked(0.1, 1.0, 1.0, 0.9, "raise"), [["a"]])
    for end, other, expected in [
        (0.5, 0.095, [False, False]),
        (0.5, 0.085, [False, True]),
        (0.0099, 0.095, [True, True]),
        (0.0101, 0.095, [False, False]),
    ]:
        made.p_loss = np.array([end, other])
        assert made.sequence(np.arange(2), made.level()).tolist() == expected


def test_costs_are_tested_from_the_cheap_end():
    """No bound counts that is below one of a cheaper point: a test in a fixed sequence."""
    evidence = evidence_of(np.random.default_rng(1), [[0.0] * 4] * 2, [[0.2] * 4] * 2)
    made = Selection(evidence, ["p", "q"], Asked(None, 1.0, 1.0, 0.9, "raise"), [["a"]] * 2)
    made.cost_bounds = {made.level(0.3): np.array([0.5, 0.2, 0.4, 0.1, 0.3, 0.2, 0.1, 0.2])}
    assert made.certified(0.3)[1].tolist() == [0.5, 0.4, 0.4, 0.1, 0.3, 0.2, 0.2, 0.2]


# Choices that are down, and prices ------------------------------------------------------------


@pytest.mark.parametrize("costs", [False, True])
def test_tables_plan_what_the_router_plans(billed, costs):
    made = certified(billed, costs=costs, max_loss=0.1)
    X, Q, C = log(1500, 2)
    evidence = made._selection.evidence
    again = replanned(evidence, made.estimators_, made._tables, frozenset())
    for name in ("path", "budget", "routes", "losses", "costs", "single", "own"):
        np.testing.assert_array_equal(getattr(evidence, name), getattr(again, name))
    left = replanned(evidence, made.estimators_, made._tables, frozenset(["m"]))
    order = np.random.RandomState(0).permutation(1500)[15:]
    for k in np.flatnonzero(left.single < 0):
        route = billed.route(X[order], budget=left.budget[k], exclude=["m"])
        np.testing.assert_array_equal(left.routes[:, k], route)
        np.testing.assert_array_equal(left.losses[:, k], 1 - Q[order, route])


def test_what_is_left_after_an_outage_is_certified_or_said(listed):
    made = certified(listed, max_loss=0.1)
    X, Q, _ = log(20_000, 99)
    rows = np.arange(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        route = made.route(X, exclude=["m"])
        made.route(X, exclude=[])
    certificate = made.certificate_for(exclude=["m"])
    assert certificate.promised and 1 not in route
    assert Q[:, 2].mean() - Q[rows, route].mean() <= 0.1
    assert certificate.cost == pytest.approx(made.predict_cost(X, exclude=["m"]).mean(), rel=0.1)
    assert made.certificate_for() == made.certificate_
    with pytest.warns(UserWarning, match=r"exclude=\['l'\]: max_loss=0.1 cannot be promised"):
        made.route(X[:5], exclude=["l"])
    assert not made.certificate_for(exclude=["l"]).promised
    with pytest.warns(UserWarning, match="allowed: the evidence says nothing of such calls"):
        made.route(X[:5], allowed=np.ones((5, 3), dtype=bool))
    with pytest.raises(ValueError, match=r"exclude names \['x'\]"):
        made.certificate_for(exclude=["x"])
    with pytest.raises(ValueError, match=r"exclude names \['x'\]"):
        made.route(X[:5], exclude=["x"])
    with pytest.raises(ValueError, match="leaves no choice"):
        made.certificate_for(exclude=["l", "m", "s"])
    with warnings.catch_warnings(), pytest.raises(ValueError, match="leaves no choice"):
        warnings.simplefilter("error")
        made.route(X[:5], exclude=["l", "m", "s"])
    paid = certified(listed, budget=4.0)
    assert paid.predict_cost(X, exclude=["m"]).mean() <= 4.0
    # Evidence of calls that exclude it already.
    E, R, _ = log(1500, 2)
    told = CertifiedRouter(FrozenEstimator(listed), max_loss=0.1, **OPTIONS)
    told.fit(E, R, exclude=["m"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 1 not in told.route(X, exclude=["m"])


def test_members_that_were_not_asked_for_evidence_are_said():
    X, y = make_classification(900, n_informative=5, random_state=0)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]
    occam = OccamRouterClassifier(members, costs=[1, 10], quality_estimator=Ridge(), cv=2)
    best = CertifiedRouter(occam, max_loss=0.3, **OPTIONS).fit(X, y)
    assert best.certificate_for(exclude=["bayes"]).promised
    assert set(best.route(X, exclude=["bayes"])) == {1}
    one = CertifiedRouter(occam, max_loss=0.3, reference="logreg", **OPTIONS).fit(X, y)
    with pytest.warns(UserWarning, match="exclude: the evidence says nothing of such calls"):
        one.route(X, exclude=["bayes"])
    with pytest.raises(ValueError, match="says nothing of what is left"):
        one.certificate_for(exclude=["bayes"])
    with pytest.raises(ValueError, match="set_costs is for routers"):
        one.set_costs([1, 2])


def test_new_prices_move_the_operating_point(listed, billed):
    made = certified(listed, budget=4.0)
    X = log(5000, 99)[0]
    new = PRICES | {"l": 20.0}
    made.set_costs(new)
    new["l"] = 0.0
    assert made.predict_cost(X).mean() <= 4.0
    assert made.estimators_[0].costs_.tolist() == [1.0, 2.0, 20.0]
    assert listed.costs_.tolist() == MEAN.tolist()
    fresh = fitted(costs=PRICES | {"l": 20.0}, bills=False)
    fresh = certified(fresh, budget=4.0).certificate_
    assert made.certificate_.cost == pytest.approx(fresh.cost, rel=0.15)
    before = made.certificate_
    with pytest.raises(ValueError, match="smallest feasible budget"):
        made.set_costs({"s": 5.0, "m": 6.0, "l": 7.0})
    with pytest.raises(ValueError, match="no entry for"):
        made.set_costs({"s": 5.0})
    assert made.certificate_ == before
    # Logged costs are scaled.
    bills = certified(billed, costs=True, max_loss=0.1)
    cost = bills.certificate_.cost
    assert bills.set_costs({k: 2 * v for k, v in PRICES.items()}).certificate_.cost == (
        pytest.approx(2 * cost, rel=0.1)
    )


# Owners -----------------------------------------------------------------------------------------


def test_a_router_that_goes_on_learning_was_certified_as_it_was():
    X, Q, C = log(200, 1)
    online = OnlineBudgetRouter(PRICES, budget=4.0).fit(X, Q, costs=C)
    made = CertifiedRouter(FrozenEstimator(online), max_loss=0.3, reference="l", **OPTIONS)
    made.fit(*log(300, 2)[:2])
    rows = log(100, 3)[0]
    route, cost = made.route(rows), made.predict_cost(rows)
    online.partial_fit(X, 1 - Q, costs=10 * C)
    online.set_params(costs={"s": 9.0, "m": 2.0, "l": 1.0}, budget=None)
    online.route(rows)
    np.testing.assert_array_equal(made.route(rows), route)
    np.testing.assert_array_equal(made.predict_cost(rows), cost)


@pytest.mark.parametrize("as_list", [True, False])
def test_a_price_list_that_is_changed_in_place_is_not_that_of_the_promise(as_list):
    costs = list(MEAN) if as_list else dict(PRICES)
    router = fitted(costs=costs, bills=False)
    made = certified(router, max_loss=0.1)
    rows = log(500, 3)[0]
    cost = made.predict_cost(rows)
    costs[2 if as_list else "l"] = 1.0
    np.testing.assert_array_equal(made.predict_cost(rows), cost)
