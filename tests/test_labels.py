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

pytestmark = pytest.mark.filterwarnings("ignore:On validation rows")

COSTS = {"a": 1.0, "b": 2.0, "c": 5.0}
OTHER = ["c", "a", "b"]
SERIES = pd.Series(COSTS)[OTHER]


@pytest.fixture(scope="module")
def log():
    """Features, qualities as a frame, and a cost of each call that varies."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    chance = np.column_stack([1 / (1 + np.exp(-2 * X[:, 0])), np.full((600, 2), [0.7, 0.9])])
    quality = (rng.random((600, 3)) < chance).astype(float)
    costs = rng.uniform(0.9, 1.1, (600, 1)) * list(COSTS.values())
    return X, pd.DataFrame(quality, columns=list("abc")), pd.DataFrame(costs, columns=list("abc"))


def test_a_series_of_costs():
    np.testing.assert_array_equal(check_costs(SERIES, ["a", "b", "c"]), [1, 2, 5])
    # Without names it is a list.
    np.testing.assert_array_equal(check_costs(pd.Series([1, 2]), ["a", "b"]), [1, 2])
    numbers = pd.Series([1, 2], index=[1, 0])
    np.testing.assert_array_equal(check_costs(numbers, ["a", "b"]), [1, 2])
    with pytest.raises(ValueError, match="no entry for"):
        check_costs(SERIES[["a", "b"]], ["a", "b", "c"])


@pytest.mark.parametrize("named", [True, False])
def test_a_series_of_costs_is_a_price_list(log, named):
    X, Q, _ = log
    Q = Q if named else Q.to_numpy()
    order = ["a", "b", "c"] if named else OTHER
    prices = [COSTS[name] for name in order]
    options = {"budget": 3.0, "costs": SERIES}
    routers = [
        BudgetRouter(Ridge(), **options),
        OnlineBudgetRouter(**options),
        CascadeRouter(Ridge(), max_calls=1, n_prices=2, cv=2, **options),
    ]
    for router in routers:
        router.fit(X, Q)
        assert router.choices_ == order
        np.testing.assert_array_equal(router.costs_, prices)
    answered = routers[0].set_params(costs=SERIES * 2)
    np.testing.assert_array_equal(answered.costs_, np.multiply(prices, 2))
    online = routers[1].set_params(costs=SERIES * 2)
    np.testing.assert_array_equal(online.costs_, np.multiply(prices, 2))


def test_a_log_of_names_has_names(log):
    X, Q, costs = (table[:90] for table in log)
    made = np.arange(90) % 3
    choice, q = np.array(list("abc"))[made], Q.to_numpy()[np.arange(90), made]
    chance = np.full(90, 1 / 3)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3)
    router.fit(X, q, choice=choice, propensity=chance)
    assert router.score(X, Q) == router.score(X, Q[OTHER]) == router.score(X, Q.to_numpy())
    one, other = (
        BudgetRouter(Ridge(), budget=3).fit(X, q, choice=choice, propensity=chance, costs=table)
        for table in (costs, costs[OTHER])
    )
    np.testing.assert_array_equal(one.costs_, other.costs_)
    np.testing.assert_array_equal(one.predict(X, costs=costs), one.predict(X, costs=costs[OTHER]))


def test_a_cascade_with_a_price_list_has_names(log):
    X, Q, _ = log
    router = CascadeRouter(Ridge(), costs=COSTS, budget=3, max_calls=1, n_prices=2, cv=2)
    router.fit(X, Q.to_numpy())
    assert router.score(X, Q) == router.score(X, Q[OTHER])


def test_curves_and_diagnostics(log):
    X, Q, _ = log
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X[:300], Q[:300])
    expected = router.score(X[300:], Q[300:])
    for table in (Q, Q[OTHER], Q.to_numpy()):
        curve = accuracy_cost_curve(router, X[300:], table[300:], [3])
        np.testing.assert_allclose(curve.quality, expected)
    shown = [
        RouterDiagnosticsDisplay.from_estimator(
            router,
            X[300:],
            Q[order][300:],
            costs=costs,
        )
        for order, costs in ((["a", "b", "c"], None), (OTHER, SERIES))
    ]
    np.testing.assert_allclose(shown[0].found, shown[1].found)


def test_references(log):
    X, Q, costs = log
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X[:300], Q[:300])
    curve = accuracy_cost_curve(router, X[300:], Q[300:], [2, 3])
    compared = []
    for table, order in ((Q, list("abc")), (Q[OTHER], OTHER)):
        table = table[300:]
        expected = reference_curves(table.to_numpy(), [COSTS[name] for name in order], [2, 3])
        for prices in (COSTS, SERIES, costs[300:].assign(**COSTS)):
            found = reference_curves(table, prices, [2, 3])
            np.testing.assert_allclose(found, expected)
        compared.append(
            compare_with_references(curve, table, SERIES, n_resamples=2, random_state=0)
        )
    gains = [found["apgr"]["oracle"].estimate for found in compared]
    assert gains[0] == pytest.approx(gains[1])
    with pytest.raises(ValueError, match="Q has no names"):
        reference_curves(Q.to_numpy(), SERIES, [3])


def test_replay(log):
    X, Q, costs = log
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, Q)
    expected = replay(router, X, Q, COSTS)
    for table in (SERIES, pd.Series(COSTS)):
        np.testing.assert_array_equal(replay(router, X, Q, table).cost, expected.cost)
    both = [replay(router, X, Q, table).cost for table in (costs, costs[OTHER])]
    np.testing.assert_array_equal(*both)
    rows = pd.DataFrame(X, columns=list("uvw"))
    online = OnlineBudgetRouter(COSTS, budget=3).fit(rows, Q)
    with pytest.raises(ValueError, match="feature names"):
        replay(online, rows[list("wvu")], Q, COSTS)


def test_features_of_one_request(log):
    X, Q, _ = log
    rows = pd.DataFrame(X, columns=list("uvw"))
    online = OnlineBudgetRouter(COSTS, budget=3).fit(rows, Q)
    for x in (rows.iloc[0], rows.iloc[[0]], X[0], X[0].tolist(), pd.Series(X[0])):
        np.testing.assert_array_equal(online.decide(x).row, online.decide(X[0]).row)
    for x in (rows.iloc[0][list("wvu")], rows.iloc[[0]][list("wvu")]):
        with pytest.raises(ValueError, match="in this order"):
            online.decide(x)


def test_cost_matrices(log):
    X = log[0][:200]
    y = np.where(X[:, 0] + X[:, 1] ** 2 > 1, "fraud", "ok")
    members = [("s", DecisionTreeClassifier(max_depth=1)), ("l", LogisticRegression())]

    def money(quality, costs=None):
        costs = {"s": 0.01, "l": 0.2} if costs is None else costs
        router = OccamRouterClassifier(
            members, costs=costs, quality=quality, quality_estimator=Ridge(), cv=2
        )
        return router.fit(X, y).row_quality(X, y)

    expected = money({("ok", "fraud"): 1.0, ("fraud", "ok"): 5.0})
    table = pd.DataFrame([[0, 5.0], [1.0, 0]], index=["fraud", "ok"], columns=["fraud", "ok"])
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
    for wrong in (table.rename(columns={"ok": "fine"}), table.rename(index={"ok": "fine"})):
        with pytest.raises(ValueError, match="true labels as its index"):
            money(wrong)


def test_rows_whose_labels_are_in_another_order_are_refused(log):
    """Stale labels, or tables that are not sorted alike: nobody can tell which."""
    X, Q, C = log
    X = pd.DataFrame(X[:100], columns=list("xyz"), index=np.arange(100) + 7)
    Q, C = (table[:100].set_index(X.index) for table in (Q, C))
    order = np.random.default_rng(0).permutation(100)
    other, spent = Q.iloc[order], C.iloc[order]
    price = list(COSTS.values())
    router = BudgetRouter(Ridge(), costs=price).fit(X, Q, costs=C)
    by_row = BudgetRouter(Ridge()).fit(X, Q, costs=C)
    online = OnlineBudgetRouter(price, budget=3.0).fit(X, Q)
    cascade = CascadeRouter(Ridge(), costs=price).fit(X, Q)
    choice = pd.Series(np.arange(100) % 3, index=X.index)
    calls = [
        lambda: BudgetRouter(Ridge(), costs=price).fit(X, other),
        lambda: BudgetRouter(Ridge(), costs=price).fit(X, Q, costs=spent),
        lambda: BudgetRouter(Ridge(), costs=price).fit(X, Q["a"], choice=choice.iloc[order]),
        lambda: router.score(X, other),
        lambda: router.route(X, allowed=other > -1),
        lambda: by_row.route(X, costs=spent),
        lambda: OnlineBudgetRouter(price, budget=3.0).fit(X, other),
        lambda: OnlineBudgetRouter(price, budget=3.0).partial_fit(X, other),
        lambda: online.score(X, other),
        lambda: CascadeRouter(Ridge(), costs=price).fit(X, other),
        lambda: cascade.score(X, other),
        lambda: solve_assignment(Q, spent, 3.0),
        lambda: CertifiedRouter(FrozenEstimator(router), max_loss=0.5).fit(X, other),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the same index, in another order"):
            call()
    # Labels of other rows say nothing: by position.
    assert router.score(X, Q.reset_index(drop=True)) == router.score(X, Q)


def test_assignments(log):
    _, Q, C = log
    values, costs = Q.to_numpy(), C.to_numpy()
    for given, same in ((SERIES, list(COSTS.values())), (C[OTHER], costs)):
        ours, theirs = solve_assignment(Q, given, 2.0), solve_assignment(values, same, 2.0)
        np.testing.assert_array_equal(ours.choices, theirs.choices)
        np.testing.assert_array_equal(
            choose_at_price(Q, given, 0.1), choose_at_price(values, same, 0.1)
        )
        np.testing.assert_array_equal(
            assignment_path(Q, given, C[OTHER]).budgets,
            assignment_path(values, same, costs).budgets,
        )
    with pytest.raises(ValueError, match="no entry for"):
        solve_assignment(Q, SERIES[["a", "b"]], 2.0)
    with pytest.raises(ValueError, match="costs must have the columns"):
        solve_assignment(Q, C.rename(columns={"a": "d"}), 2.0)
