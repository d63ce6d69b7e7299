"""Several limits at once: realised means on new rows, conflicts, one limit as today."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from skroute.assignment import solve_assignment
from skroute.certified import CertifiedRouter
from skroute.ledgers import MemoryLedger
from skroute.routing import (
    BudgetRouter,
    DaskRouter,
    OccamRouterClassifier,
    export_policy,
)
from skroute.routing.parts._limits import limits_now

NAMES = ["small", "medium", "large"]
LIST = {"small": 1.0, "medium": 3.0, "large": 10.0}


# What a call can cost at most: bills vary around the price list.
MAX_COSTS = {name: 4 * price for name, price in LIST.items()}


def draw_log(n_rows, seed):
    """Return rows, qualities, bills and seconds of three models."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_rows, 2))
    chance = np.column_stack([1 - X[:, 0], 0.3 + 0.5 * X[:, 1], np.full(n_rows, 0.9)])
    Q = (rng.uniform(size=chance.shape) < chance).astype(float)
    bills = np.array([1, 3, 10]) * rng.gamma(4, 0.25, chance.shape)
    seconds = np.array([1, 0.2, 0.5]) * rng.gamma(4, 0.25, chance.shape)
    return X, pd.DataFrame(Q, columns=NAMES), bills, seconds


def fit_router(**parameters):
    X, Q, bills, seconds = draw_log(3000, seed=0)
    router = BudgetRouter(Ridge(), costs=LIST, **parameters)
    return router.fit(
        X, Q, costs=bills, amounts={"seconds": seconds, "slow": seconds > 1}
    )


@pytest.fixture(scope="module")
def router():
    return fit_router(budget=5.0)


@pytest.fixture(scope="module")
def new_rows():
    return draw_log(20_000, seed=1)


CALLS = {
    "mean": {"limits": {"seconds": 0.55}},
    "share of slow rows": {"limits": {"slow": 0.12}},
    "capacity": {"capacities": {"large": 0.25}},
    "two": {"limits": {"seconds": 0.55, "slow": 0.12}},
    "three": {"limits": {"seconds": 0.5}, "capacities": {"large": 0.3, "small": 0.4}},
    "no budget": {"limits": {"seconds": 0.45}, "budget": np.inf},
}


def means_of(route, bills, seconds):
    """Return the realised means of cost, seconds and slow rows, and shares of choices."""
    rows = np.arange(len(route))
    return {
        "budget": bills[rows, route].mean(),
        "seconds": seconds[rows, route].mean(),
        "slow": (seconds > 1)[rows, route].mean(),
        **{name: (route == k).mean() for k, name in enumerate(NAMES)},
    }


@pytest.mark.parametrize("name", CALLS)
def test_limits_hold_in_realised_means_of_new_rows(router, new_rows, name):
    X, Q, bills, seconds = new_rows
    call = CALLS[name]
    route = router.route(X, **call)
    means = means_of(route, bills, seconds)
    most = {"budget": call.get("budget", 5.0)}
    most |= call.get("limits", {}) | call.get("capacities", {})
    for limit, largest in most.items():
        assert means[limit] <= largest * 1.05, (limit, means[limit])
    # At least one further limit binds, or it would not be the quality of money alone.
    ratios = [means[limit] / most[limit] for limit in most]
    assert max(ratios) > 0.95


@pytest.mark.parametrize("name", ["mean", "capacity", "three"])
def test_the_mixed_plans_are_an_optimum_of_the_linear_program(name):
    """The optimum in the estimates and tables that decide, at their planned means."""
    X, Q, bills, seconds = draw_log(300, seed=0)
    router = BudgetRouter(Ridge(), costs=LIST, budget=5.0)
    router.fit(X, Q, costs=bills, amounts={"seconds": seconds})
    call = router.make_call(**CALLS[name])
    policy = router._policy().limited(limits_now(router, router.choices_, call))
    values, planned = policy._decided_as_new
    rule = policy.limit_rule(5.0)
    planned = np.broadcast_to(planned, values.shape)
    values = values - rule.price_floor * planned
    plans = [rule.dual.means_of(rule.dual.plan_at(p)) for p in rule.prices.points]
    shares = rule.prices.shares
    value = sum(share * plan[0] for share, plan in zip(shares, plans))
    most = sum(share * plan[1] for share, plan in zip(shares, plans))
    tables = [planned]
    for position in rule.order.amount_positions:
        tables.append(np.broadcast_to(policy.amounts.planned[position], values.shape))
    for choice in rule.order.capacity_choice:
        tables.append(np.broadcast_to(np.arange(3) == choice, values.shape))
    solved = linprog(
        -values.ravel() / 300,
        A_ub=np.array([table.ravel() / 300 for table in tables]),
        b_ub=most,
        A_eq=np.kron(np.eye(300), np.ones(3)),
        b_eq=np.ones(300),
        bounds=(0, 1),
    )
    assert value == pytest.approx(-solved.fun, abs=1e-5)


def test_a_batch_is_within_all_limits_of_planned_means(router):
    X, Q, bills, seconds = draw_log(500, seed=2)
    batch = clone(router).set_params(
        policy="batch", costs=LIST, limits={"seconds": 0.5}, capacities={"large": 0.3}
    )
    X_fit, Q_fit, bills_fit, seconds_fit = draw_log(3000, seed=0)
    batch.fit(X_fit, Q_fit, amounts={"seconds": seconds_fit})
    routed = batch.predict_routed(X)
    assert routed.cost.mean() <= 5.0 * (1 + 1e-9)
    assert routed.expected_amounts["seconds"].mean() <= 0.5 * (1 + 1e-9)
    assert (routed.route == 2).mean() <= 0.3
    # A row may be decided otherwise than alone, but the quality is as good.
    alone = batch.set_params(policy="online").score(X, Q)
    assert batch.set_params(policy="batch").score(X, Q) > alone - 0.02


def test_limits_that_exclude_each_other_are_named_with_their_least_values(router):
    X = np.zeros((3, 2))
    with pytest.raises(ValueError, match="No plan has seconds <= 0.1"):
        router.predict(X, limits={"seconds": 0.1})
    with pytest.raises(ValueError, match="is that within seconds <= 0.3") as refused:
        router.predict(X, limits={"seconds": 0.3}, budget=1.2)
    least = float(
        str(refused.value).split("smallest feasible budget is ")[1].split()[0]
    )
    router.predict(X, limits={"seconds": 0.3}, budget=least * 1.001)
    with pytest.raises(ValueError, match="smallest feasible budget"):
        router.predict(X, limits={"seconds": 0.3}, budget=least * 0.999)
    shares = dict.fromkeys(NAMES, 0.3)
    with pytest.raises(ValueError, match="These limits exclude each other"):
        router.predict(X, capacities=shares)


def test_limits_of_the_constructor_act_at_once_and_those_of_a_call_replace_them(
    router, new_rows
):
    X = new_rows[0]
    limited = clone(router)
    limited.__setstate__(router.__getstate__())
    limited.set_params(limits={"seconds": 0.55})
    expected = router.route(X, limits={"seconds": 0.55})
    np.testing.assert_array_equal(limited.route(X), expected)
    other = limited.route(X, limits={"seconds": 0.5})
    np.testing.assert_array_equal(other, router.route(X, limits={"seconds": 0.5}))
    np.testing.assert_array_equal(limited.route(X, limits={}), router.route(X))
    again = fit_router(budget=5.0, limits={"seconds": 0.55})
    np.testing.assert_array_equal(again.route(X), expected)
    copied = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(copied.route(X), expected)


def test_states_of_limits_have_realised_and_cross_fitted_means():
    router = fit_router(budget=5.0, limits={"seconds": 0.55}, capacities={"large": 0.4})
    budget, seconds, share = router.limits_
    assert [state.name for state in router.limits_] == [
        "budget",
        "seconds",
        "share of large",
    ]
    assert budget.most == 5.0
    assert seconds.spent == pytest.approx(0.55, rel=0.01)
    assert seconds.price > 0
    assert share.price == 0
    assert share.spent < 0.4
    for state in router.limits_:
        distance = abs(state.validation - state.spent)
        assert distance < 3 * state.validation_se
    assert router.validation_cost_ == pytest.approx(budget.validation)
    assert router.min_budget_ > fit_router(budget=5.0).min_budget_
    assert fit_router(budget=5.0).limits_ == []


def test_a_frame_with_two_levels_of_columns_can_be_sliced_by_a_search():
    X, Q, bills, seconds = draw_log(600, seed=0)
    columns = pd.MultiIndex.from_product([["seconds"], NAMES[::-1]])
    amounts = pd.DataFrame(seconds[:, ::-1], columns=columns)
    router = BudgetRouter(Ridge(), costs=LIST, budget=5, limits={"seconds": 0.6})
    by_frame = clone(router).fit(X, Q, costs=bills, amounts=amounts)
    by_mapping = clone(router).fit(X, Q, costs=bills, amounts={"seconds": seconds})
    np.testing.assert_array_equal(by_frame.route(X), by_mapping.route(X))
    search = GridSearchCV(router, {"reg_lambda": [0.0, 1.0]}, cv=2)
    search.fit(X, Q, amounts=amounts)
    assert search.best_score_ > 0.5


def test_an_unknown_amount_counts_as_the_mean_of_its_choice():
    X, Q, bills, seconds = draw_log(2000, seed=0)
    missing = np.random.default_rng(0).random(seconds.shape) < 0.3
    holed = np.where(missing, np.nan, seconds)
    router = BudgetRouter(Ridge(), costs=LIST, budget=5, limits={"seconds": 0.55})
    router.fit(X, Q, costs=bills, amounts={"seconds": holed})
    X_new, _, bills_new, seconds_new = draw_log(20_000, seed=1)
    means = means_of(router.route(X_new), bills_new, seconds_new)
    assert means["seconds"] == pytest.approx(0.55, rel=0.05)


def test_one_number_for_each_choice_is_an_amount():
    X, Q, bills, seconds = draw_log(2000, seed=0)
    numbers = {"large": 0.5, "small": 1.0, "medium": 0.2}
    router = BudgetRouter(Ridge(), costs=LIST, budget=5, limits={"seconds": 0.5})
    router.fit(X, Q, amounts={"seconds": numbers})
    routed = router.predict_routed(X)
    expected = np.array([1.0, 0.2, 0.5])[routed.route]
    np.testing.assert_array_equal(routed.expected_amounts["seconds"], expected)
    assert expected.mean() == pytest.approx(0.5, rel=0.02)


def test_rows_without_an_allowed_choice_within_the_limits_get_an_allowed_one(router):
    X = np.random.default_rng(0).uniform(size=(200, 2))
    allowed = np.zeros((200, 3), dtype=bool)
    allowed[:, 2] = True
    allowed[:100, 1] = True
    route = router.route(X, limits={"seconds": 0.55}, allowed=allowed)
    assert allowed[np.arange(200), route].all()
    excluded = router.route(X, limits={"seconds": 0.45}, exclude=["small"])
    assert set(excluded) <= {1, 2}


def test_a_limited_router_is_certified():
    X, Q, bills, seconds = draw_log(3000, seed=3)
    router = fit_router(budget=5.0, limits={"seconds": 0.6})
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.2, reference="large", random_state=0
    )
    made.fit(X, Q, costs=bills)
    route = made.route(X)
    means = means_of(route, bills, seconds)
    assert means["seconds"] < 0.65


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"limits": {"minutes": 1}}, "limits names 'minutes'"),
        ({"limits": {"seconds": -1}}, "finite number that is not negative"),
        ({"limits": {"seconds": np.nan}}, "finite number that is not negative"),
        ({"limits": [1]}, "must be a mapping"),
        ({"capacities": {"huge": 0.1}}, "capacities names 'huge'"),
        ({"capacities": {"large": 1.1}}, "share of the rows from 0 to 1"),
    ],
)
def test_wrong_limits_are_refused(router, call, message):
    with pytest.raises(ValueError, match=message):
        router.predict(np.zeros((2, 2)), **call)


def frame_of_amount(name):
    """An amount of 50 rows as a frame with two levels of columns."""
    columns = pd.MultiIndex.from_product([[name], NAMES])
    return pd.DataFrame(np.ones((50, 3)), columns=columns)


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"budget": np.ones((50, 3))}, "must not have the name 'budget'"),
        (frame_of_amount("budget"), "must not have the name 'budget'"),
        ({"seconds": np.ones((50, 2))}, "one column for each"),
        ({"seconds": -np.ones((50, 3))}, "finite numbers that are not negative"),
        ({"seconds": np.full((50, 3), np.nan)}, "NaN, not known, on every row"),
        ({"seconds": {"small": 1}}, "must have an entry for each"),
        (np.ones((50, 3)), "must be a mapping"),
        ({}, "must be a mapping"),
    ],
)
def test_wrong_amounts_are_refused(amounts, message):
    X, Q, bills, seconds = draw_log(50, seed=0)
    with pytest.raises(ValueError, match=message):
        BudgetRouter(Ridge(), costs=LIST).fit(X, Q, amounts=amounts)


def test_a_log_of_one_answer_per_request_takes_no_amounts():
    X, Q, bills, seconds = draw_log(50, seed=0)
    choice = np.array(NAMES)[np.arange(50) % 3]
    with pytest.raises(ValueError, match="one answer per request"):
        BudgetRouter(costs=LIST).fit(
            X,
            Q["small"],
            choice=choice,
            propensity=np.full(50, 1 / 3),
            amounts={"seconds": seconds},
        )


def stream_requests(stream, rows, bills, amounts, router):
    """Route requests one by one, settle real amounts, and return the routes."""
    quality = router.predict_quality(rows)
    route = np.empty(len(rows), dtype=int)
    for row in range(len(rows)):
        ticket = stream.reserve(quality[row])
        route[row] = ticket.choice
        used = {name: float(t[row, ticket.choice]) for name, t in amounts.items()}
        stream.commit(ticket, cost=bills[row, ticket.choice], amounts=used)
    return route


@pytest.mark.parametrize("limit", [{"seconds": 0.55}, {"slow": 0.12}])
def test_a_stream_follows_what_is_left_of_each_limit(limit):
    router = fit_router(budget=5.0, limits=limit)
    X, Q, bills, seconds = draw_log(1500, seed=5)
    stream = router.stream(
        5.0 * 1500,
        n_expected=1500,
        max_costs=MAX_COSTS,
    )
    (name, most) = next(iter(limit.items()))
    table = {"seconds": seconds, "slow": (seconds > 1).astype(float)}[name]
    route = stream_requests(stream, X, bills, {name: table}, router)
    means = means_of(route, bills, seconds)
    assert means[name] == pytest.approx(most, rel=0.03)
    assert means["budget"] <= 5.0
    assert means["budget"] > 4.7
    # Without following, the mean of so few requests is farther away.
    assert Q.to_numpy()[np.arange(1500), route].mean() > 0.75


def test_a_stream_counts_failed_calls_and_repeated_keys_once():
    router = fit_router(budget=5.0, limits={"seconds": 0.55})
    stream = router.stream(5000.0, n_expected=1000, max_costs=MAX_COSTS)
    request = np.array([[0.1, 0.1]])
    first = stream.route(request, key="a")
    assert stream.route(request, key="a") == first
    assert stream._limit_use.n_requests == 1
    stream.refund(first)
    assert stream._limit_use.n_requests == 0
    assert stream._limit_use.totals["seconds"] == pytest.approx(0)
    second = stream.route(request)
    stream.commit(second, amounts={"seconds": 7.0})
    assert stream._limit_use.totals["seconds"] == pytest.approx(7.0)
    third = stream.route(request)
    with pytest.raises(ValueError, match="amounts names 'minutes'"):
        stream.commit(third, amounts={"minutes": 1.0})
    with pytest.raises(ValueError, match="amounts of 'seconds'"):
        stream.commit(third, amounts={"seconds": -1.0})
    stream.commit(third)
    copied = pickle.loads(pickle.dumps(stream))
    assert copied.route(request).name in NAMES


@pytest.mark.parametrize("n_expected", [None, 3000])
def test_the_first_of_a_ranking_is_the_choice_of_a_request(n_expected):
    """Without the charge of the limit, two rows in five have another first choice."""
    X = draw_log(200, seed=7)[0]
    router = fit_router(budget=5.0, limits={"seconds": 0.4})
    stream = router.stream(15_000.0, n_expected=n_expected, max_costs=MAX_COSTS)
    for x in X[:, np.newaxis]:
        ranked = stream.rank(router.predict_quality(x)[0])
        assert sorted(ranked) == sorted(NAMES)
        ticket = stream.route(x)
        assert ranked[0] == ticket.name
        stream.refund(ticket)


def test_a_stream_without_an_expected_number_decides_as_route_does():
    router = fit_router(budget=5.0, limits={"seconds": 0.55})
    X = draw_log(300, seed=6)[0]
    stream = router.stream(1e9, max_costs=MAX_COSTS)
    names = [stream.route(X[[row]]).name for row in range(300)]
    expected = np.array(NAMES)[router.route(X)]
    # Tied rows get the cheaper choice in a stream.
    assert np.mean(np.array(names) == expected) > 0.98


def test_members_have_limits_and_capacities():
    X, y = make_classification(1500, n_informative=6, random_state=0)
    members = [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
        ("forest", RandomForestClassifier(20, random_state=0)),
    ]
    seconds = {"bayes": 0.1, "tree": 0.05, "forest": 1.0}
    router = OccamRouterClassifier(
        members, costs=[1, 2, 10], budget=8, amounts={"seconds": seconds}
    )
    router.fit(X[:700], y[:700])
    assert router.limits_ == []
    free = router.predict_routed(X[700:])
    limited = router.predict_routed(X[700:], limits={"seconds": 0.3})
    assert free.expected_amounts["seconds"].mean() > 0.4
    assert limited.expected_amounts["seconds"].mean() == pytest.approx(0.3, abs=0.04)
    router.set_params(capacities={"forest": 0.2})
    assert (router.route(X[700:]) == 2).mean() == pytest.approx(0.2, abs=0.05)
    assert [state.name for state in router.limits_] == ["budget", "share of forest"]
    again = clone(router).fit(X[:700], y[:700])
    np.testing.assert_array_equal(again.route(X[700:]), router.route(X[700:]))
    with pytest.raises(ValueError, match="limits names 'minutes'"):
        clone(router).set_params(limits={"minutes": 1}).fit(X, y)
    with pytest.raises(ValueError, match="entry for each of"):
        clone(router).set_params(amounts={"seconds": {"bayes": 1}}).fit(X, y)


def test_what_keeps_the_budget_alone_refuses_limits(router, tmp_path):
    limited = fit_router(budget=5.0, limits={"seconds": 0.55})
    with pytest.raises(ValueError, match="cannot be exported"):
        export_policy(limited, tmp_path / "policy.json")
    X = draw_log(100, seed=1)[0]
    dask_array = pytest.importorskip("dask.array")
    blocks = dask_array.from_array(X, chunks=50)
    with pytest.raises(ValueError, match="keeps one limit"):
        DaskRouter(limited, policy="batch").route(blocks)
    online = DaskRouter(limited).route(blocks).compute()
    np.testing.assert_array_equal(online, limited.route(X))
    with pytest.raises(ValueError, match="no amounts"):
        limited.add_choice("new", X, np.ones(100), cost=2.0)


def test_solving_prints_nothing(router, new_rows, capfd):
    pickle.loads(pickle.dumps(router)).route(new_rows[0], limits={"seconds": 0.51})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def test_amounts_of_a_stream_start_anew_with_the_money():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(800, 1))
    chance = np.column_stack([1 - X[:, 0], np.full(800, 0.9)])
    Q = (rng.uniform(size=chance.shape) < chance).astype(float)
    seconds = rng.gamma(2, [0.2, 0.6], (800, 2))
    router = BudgetRouter(Ridge(), costs=[1, 5], budget=5, limits={"seconds": 0.9})
    router.fit(X, Q, amounts={"seconds": seconds})
    rows = rng.uniform(size=(60, 1))

    def serve(stream, factor):
        choices = []
        for row in rows:
            ticket = stream.route([row])
            taken = [0.4, 1.2][ticket.choice] * factor
            stream.commit(ticket, amounts={"seconds": taken})
            choices.append(ticket.choice)
        return choices

    first_day = serve(router.stream(300, n_expected=60), factor=1.0)
    stream = router.stream(300, n_expected=60)
    assert serve(stream, factor=2.0) != first_day
    stream.reset()
    assert serve(stream, factor=1.0) == first_day
    ledger = MemoryLedger()
    now = 1e9
    ledger.store.now = lambda: now
    stream = router.stream(300, n_expected=60, ledger=ledger, period="day")
    serve(stream, factor=2.0)
    now += 86400
    assert serve(stream, factor=1.0) == first_day


def test_segments_in_another_order_are_refused():
    values = pd.DataFrame({"a": [0.1, 0.9], "b": [0.5, 0.5]}, index=[3, 7])
    segments = pd.Series(["x", "y"], index=[7, 3])
    with pytest.raises(ValueError, match="same index, in another order"):
        solve_assignment(values, [1, 2], budget=2, floors={"x": 0.5}, segments=segments)


@pytest.mark.parametrize("seed", range(4))
def test_a_model_without_capacity_gets_no_row(seed):
    """At a limit of 0, all prices above some price are the best ones of the log."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(400, 3))
    chance = np.column_stack([1 - X[:, 0], 0.5 + 0.3 * X[:, 1], np.full(400, 0.9)])
    Q = (rng.uniform(size=chance.shape) < chance).astype(float)
    slow = np.tile([0.0, 0.0, 1.0], (400, 1))
    router = BudgetRouter(Ridge(), costs={"a": 1, "b": 2, "c": 5}, budget=3)
    router.fit(X, Q, amounts={"slow": slow})
    X_new = rng.uniform(size=(1000, 3))
    for limit in ({"capacities": {"c": 0}}, {"limits": {"slow": 0}}):
        assert (router.route(X_new, **limit) == 2).mean() < 0.001
    router.set_params(capacities={"c": 0})
    assert list(router.limits_)[1].spent == 0
