"""Series and frames are read by their labels: in any order they say what mappings say."""

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from skroute.assignment import assignment_path, choose_at_price, solve_assignment
from skroute.base import check_costs
from skroute.certified import CertifiedRouter
from skroute.metrics import (
    RouterDiagnosticsDisplay,
    accuracy_cost_curve,
    compare_with_references,
    reference_curves,
    replay,
)
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    OccamRouterClassifier,
    OnlineBudgetRouter,
)

COSTS = {"a": 1.0, "b": 2.0, "c": 5.0}
OTHER = ["c", "a", "b"]
SERIES = pd.Series(COSTS)[OTHER]
PRICES = list(COSTS.values())


def make_log():
    """Features, qualities as a frame, and a cost of each call that varies."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    chance = np.column_stack(
        [1 / (1 + np.exp(-2 * X[:, 0])), np.full((600, 2), [0.7, 0.9])]
    )
    quality = (rng.random((600, 3)) < chance).astype(float)
    costs = rng.uniform(0.9, 1.1, (600, 1)) * PRICES
    return (
        X,
        pd.DataFrame(quality, columns=list("abc")),
        pd.DataFrame(costs, columns=list("abc")),
    )


X, Q, C = make_log()
ROUTER = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X[:300], Q[:300])
CASCADE = CascadeRouter(Ridge(), costs=COSTS, budget=3, max_calls=1, n_prices=2, cv=2)
CASCADE.fit(X, Q.to_numpy())
CURVE = accuracy_cost_curve(ROUTER, X, Q, [2, 3])


def test_a_series_of_costs():
    np.testing.assert_array_equal(check_costs(SERIES, ["a", "b", "c"]), [1, 2, 5])
    # Without names it is a list.
    np.testing.assert_array_equal(check_costs(pd.Series([1, 2]), ["a", "b"]), [1, 2])
    numbers = pd.Series([1, 2], index=[1, 0])
    np.testing.assert_array_equal(check_costs(numbers, ["a", "b"]), [1, 2])
    with pytest.raises(ValueError, match="no entry for"):
        check_costs(SERIES[["a", "b"]], ["a", "b", "c"])


@pytest.mark.parametrize("named", [True, False])
def test_a_series_of_costs_is_a_price_list(named):
    log = Q if named else Q.to_numpy()
    order = ["a", "b", "c"] if named else OTHER
    prices = [COSTS[name] for name in order]
    options = {"budget": 3.0, "costs": SERIES}
    routers = [
        BudgetRouter(Ridge(), **options),
        OnlineBudgetRouter(**options),
        CascadeRouter(Ridge(), max_calls=1, n_prices=2, cv=2, **options),
    ]
    for router in routers:
        router.fit(X, log)
        assert router.choices_ == order
        np.testing.assert_array_equal(router.costs_, prices)
    for router in routers[:2]:
        router.set_params(costs=SERIES * 2)
        np.testing.assert_array_equal(router.costs_, np.multiply(prices, 2))


def compared(Q, prices):
    found = compare_with_references(CURVE, Q, prices, n_resamples=2, random_state=0)
    return found["apgr"]["oracle"].estimate


def diagnosed(Q, prices):
    return RouterDiagnosticsDisplay.from_estimator(ROUTER, X, Q, costs=prices).found


def paid(Q, choices):
    """The price of each choice, whose name the columns of the qualities say."""
    names = np.array(getattr(Q, "columns", list(COSTS)))
    return [COSTS[name] for name in names[choices]]


# What is read of qualities, a price list, and a cost for each call.
READINGS = {
    "score": lambda Q, prices, C: ROUTER.score(X, Q),
    "score of a cascade": lambda Q, prices, C: CASCADE.score(X, Q),
    "curve": lambda Q, prices, C: accuracy_cost_curve(ROUTER, X, Q, [3]).quality,
    "diagnostics": lambda Q, prices, C: diagnosed(Q, prices),
    "references": lambda Q, prices, C: reference_curves(Q, prices, [2, 3]),
    "comparison": lambda Q, prices, C: compared(Q, prices),
    "replay": lambda Q, prices, C: replay(ROUTER, X, Q, prices).cost,
    "replay with costs": lambda Q, prices, C: replay(ROUTER, X, Q, C).cost,
    "assignment": lambda Q, prices, C: paid(
        Q, solve_assignment(Q, prices, 2.0).choices
    ),
    "assignment with costs": lambda Q, prices, C: paid(
        Q, solve_assignment(Q, C, 2.0).choices
    ),
    "at a price": lambda Q, prices, C: paid(Q, choose_at_price(Q, prices, 0.1)),
    "path": lambda Q, prices, C: assignment_path(Q, prices, C).budgets,
}


@pytest.mark.parametrize("name", READINGS)
def test_columns_in_another_order_say_the_same(name):
    read = READINGS[name]
    expected = read(Q.to_numpy(), PRICES, C.to_numpy())
    for prices in (SERIES, pd.Series(COSTS), C.assign(**COSTS)):
        np.testing.assert_allclose(read(Q, prices, C), expected)
        np.testing.assert_allclose(read(Q[OTHER], prices, C[OTHER]), expected)


def test_names_that_are_not_those_of_the_qualities():
    with pytest.raises(ValueError, match="Q has no names"):
        reference_curves(Q.to_numpy(), SERIES, [3])
    with pytest.raises(ValueError, match="no entry for"):
        solve_assignment(Q, SERIES[["a", "b"]], 2.0)
    with pytest.raises(ValueError, match="costs must have the columns"):
        solve_assignment(Q, C.rename(columns={"a": "d"}), 2.0)


def test_a_log_of_names_has_names(monkeypatch):
    monkeypatch.setattr("skroute.quality._logged._N_TREES", 3)
    made = np.arange(600) % 3
    log = {"choice": np.array(list("abc"))[made], "propensity": np.full(600, 1 / 3)}
    q = Q.to_numpy()[np.arange(600), made]
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, q, **log)
    assert (
        router.score(X, Q) == router.score(X, Q[OTHER]) == router.score(X, Q.to_numpy())
    )
    one, other = (
        BudgetRouter(Ridge(), budget=3).fit(X, q, costs=table, **log)
        for table in (C, C[OTHER])
    )
    np.testing.assert_array_equal(one.costs_, other.costs_)
    np.testing.assert_array_equal(
        one.predict(X, costs=C), one.predict(X, costs=C[OTHER])
    )


def test_features_of_one_request():
    rows = pd.DataFrame(X, columns=list("uvw"))
    online = OnlineBudgetRouter(COSTS, budget=3).fit(rows, Q)
    for x in (rows.iloc[0], rows.iloc[[0]], X[0], X[0].tolist(), pd.Series(X[0])):
        np.testing.assert_array_equal(online.decide(x).row, online.decide(X[0]).row)
    for x in (rows.iloc[0][list("wvu")], rows.iloc[[0]][list("wvu")]):
        with pytest.raises(ValueError, match="in this order"):
            online.decide(x)
    with pytest.raises(ValueError, match="feature names"):
        replay(online, rows[list("wvu")], Q, COSTS)


def test_cost_matrices():
    rows = X[:200]
    y = np.where(rows[:, 0] + rows[:, 1] ** 2 > 1, "fraud", "ok")
    members = [("s", DecisionTreeClassifier(max_depth=1)), ("l", LogisticRegression())]

    def money(quality, costs=None):
        costs = {"s": 0.01, "l": 0.2} if costs is None else costs
        router = OccamRouterClassifier(
            members, costs=costs, quality=quality, quality_estimator=Ridge(), cv=2
        )
        return router.fit(rows, y).row_quality(rows, y)

    expected = money({("ok", "fraud"): 1.0, ("fraud", "ok"): 5.0})
    table = pd.DataFrame(
        [[0, 5.0], [1.0, 0]], index=["fraud", "ok"], columns=["fraud", "ok"]
    )
    same = [
        table,
        table.loc[["ok", "fraud"], ["ok", "fraud"]],
        table.loc[["ok", "fraud"]],
        table.to_numpy(),
        table.to_numpy().tolist(),
        # Of rows, and money as well.
        ((0, 5.0), (1.0, 0)),
        pd.DataFrame(table.to_numpy()),
    ]
    for quality in same:
        found = money(quality)
        np.testing.assert_array_equal(found.quality, expected.quality)
        np.testing.assert_array_equal(found.cost, expected.cost)
    series = money(same[0], pd.Series({"l": 0.2, "s": 0.01}))
    np.testing.assert_array_equal(series.cost, expected.cost)
    for wrong in (
        table.rename(columns={"ok": "fine"}),
        table.rename(index={"ok": "fine"}),
    ):
        with pytest.raises(ValueError, match="true labels as its index"):
            money(wrong)


def test_rows_whose_labels_are_in_another_order_are_refused():
    """Stale labels, or tables that are not sorted alike: nobody can tell which."""
    rows = pd.DataFrame(X[:100], columns=list("xyz"), index=np.arange(100) + 7)
    known, paid = (table[:100].set_index(rows.index) for table in (Q, C))
    order = np.random.default_rng(0).permutation(100)
    other, spent = known.iloc[order], paid.iloc[order]
    router = BudgetRouter(Ridge(), costs=PRICES).fit(rows, known, costs=paid)
    by_row = BudgetRouter(Ridge()).fit(rows, known, costs=paid)
    online = OnlineBudgetRouter(PRICES, budget=3.0).fit(rows, known)
    cascade = CascadeRouter(Ridge(), costs=PRICES).fit(rows, known)
    shown = CascadeRouter(Ridge(), costs=PRICES).fit(rows, known, signals=known)
    members = [(name, DecisionTreeClassifier(max_depth=1)) for name in known]
    occam = OccamRouterClassifier(members, costs=PRICES, quality_estimator=Ridge())
    occam.fit(rows, np.arange(100) % 2)
    choice = pd.Series(np.arange(100) % 3, index=rows.index)
    calls = [
        lambda: BudgetRouter(Ridge(), costs=PRICES).fit(rows, other),
        lambda: BudgetRouter(Ridge(), costs=PRICES).fit(rows, known, costs=spent),
        lambda: BudgetRouter(Ridge(), costs=PRICES).fit(
            rows, known["a"], choice=choice.iloc[order]
        ),
        lambda: router.score(rows, other),
        lambda: router.route(rows, allowed=other > -1),
        lambda: by_row.route(rows, costs=spent),
        lambda: OnlineBudgetRouter(PRICES, budget=3.0).fit(rows, other),
        lambda: OnlineBudgetRouter(PRICES, budget=3.0).partial_fit(rows, other),
        lambda: online.score(rows, other),
        lambda: CascadeRouter(Ridge(), costs=PRICES).fit(rows, other),
        lambda: cascade.score(rows, other),
        lambda: cascade.route(rows, costs=spent),
        lambda: shown.route(rows, signals=other),
        lambda: shown.route(rows, signals={name: other[name] for name in other}),
        lambda: occam.route(rows, allowed=other > -1),
        lambda: solve_assignment(known, spent, 3.0),
        lambda: CertifiedRouter(FrozenEstimator(router), max_loss=0.5).fit(rows, other),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the same index, in another order"):
            call()
    # Labels of other rows say nothing: by position.
    assert router.score(rows, known.reset_index(drop=True)) == router.score(rows, known)
