"""A router over Dask collections answers as the router, and asks no member twice."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.datasets import make_routing_problem
from skroute.routing import (
    BudgetRouter,
    DaskRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests.router_checks import Counting

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
COSTS = {"tree": 1.0, "logreg": 3.0}


def members():
    return [
        ("tree", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("logreg", Counting(LogisticRegression())),
    ]


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        900, n_features=6, n_informative=4, n_classes=3, random_state=0
    )
    return X, np.array(["ant", "bee", "hornet"])[y]


@pytest.fixture(scope="module")
def problem():
    return make_routing_problem(1200, n_models=3, n_features=2, random_state=0)


@pytest.mark.parametrize("chunks", [(100, 2), (900, 6), (250, 6)])
def test_it_answers_as_the_estimator_and_asks_once(table, chunks):
    X, y = table
    options = {"costs": COSTS, "cv": 2}
    tree = DecisionTreeRegressor(max_depth=3)
    for router in (
        OccamRouterClassifier(
            members(), budget=2.0, quality_estimator=Ridge(), **options
        ),
        FrugalMLClassifier(members(), budget=2.0, **options),
        SequentialRouterClassifier(members(), quality_estimator=tree, **options),
    ):
        expected = router.fit(X[:300], y[:300]).predict_routed(X)
        with dask.config.set(scheduler="threads"):
            asked_rows = router.estimators_[1].rows_
            asked_rows.clear()
            router.predict(X)
            expected_rows = sorted(asked_rows)
            asked_rows.clear()
            wrapped = DaskRouter(router)
            rows = da.from_array(X, chunks=chunks)
            routed = wrapped.predict_routed(rows)
            assert not asked_rows, "a member is asked before the answers are computed"
            assert routed.y_pred.dtype == expected.y_pred.dtype
            computed = dask.compute(*routed)
            assert sorted(asked_rows) == expected_rows
            for lazy_values, values in zip(computed, expected):
                np.testing.assert_array_equal(lazy_values, values)
            np.testing.assert_array_equal(wrapped.predict(rows), expected.y_pred)
            np.testing.assert_array_equal(wrapped.route(rows), expected.route)
            np.testing.assert_array_equal(wrapped.predict_cost(rows), expected.cost)
            if hasattr(router, "predict_proba"):
                np.testing.assert_allclose(
                    wrapped.predict_proba(rows), router.predict_proba(X)
                )


@pytest.mark.parametrize("kind", [FrugalMCTClassifier, SequentialRouterClassifier])
def test_several_labels_in_a_row(kind):
    X, Y = make_multilabel_classification(
        200, n_features=6, n_classes=3, random_state=0
    )
    trees = [
        (name, DecisionTreeClassifier(max_depth=2, random_state=0)) for name in COSTS
    ]
    router = kind(trees, costs=COSTS, cv=2).fit(X, Y)
    wrapped = DaskRouter(router)
    rows = da.from_array(X, chunks=(70, -1))
    no_rows = rows[X[:, 0] > X[:, 0].max()]
    with dask.config.set(scheduler="synchronous"):
        for method in ("predict", "predict_proba"):
            lazy = getattr(wrapped, method)(rows)
            expected = getattr(router, method)(X)
            assert lazy.shape == expected.shape == Y.shape
            assert lazy.dtype == expected.dtype
            np.testing.assert_allclose(lazy.compute(), expected)
            # A block without rows has the shape of the others.
            no_answers = getattr(wrapped, method)(no_rows)
            assert no_answers.compute().shape == (0, 3)
        routed = wrapped.predict_routed(rows)
        np.testing.assert_array_equal(
            routed.y_pred[100:103, 1], router.predict(X)[100:103, 1]
        )


def test_data_frames_and_context(problem):
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(problem.data, columns=["a", "b"])
    costs = problem.costs * np.random.default_rng(0).uniform(0.5, 2, (1200, 1))
    router = BudgetRouter(Ridge(), budget=0.4).fit(
        frame[:400], problem.quality[:400], costs=costs[:400]
    )
    parts = dd.from_pandas(frame, npartitions=5)
    sizes = tuple(parts.map_partitions(len).compute())
    table = da.from_array(costs, chunks=(sizes, -1))
    with dask.config.set(scheduler="synchronous"):
        route = DaskRouter(router).route(parts, costs=table).compute()
        np.testing.assert_array_equal(route, router.route(frame, costs=costs))
        allowed = np.ones((1200, 3), bool)
        allowed[:, 2] = False
        mask = da.from_array(allowed, chunks=(sizes, -1))
        lazy = DaskRouter(router).route(parts, costs=table, allowed=mask, exclude=None)
        expected = router.route(frame, costs=costs, allowed=allowed)
        np.testing.assert_array_equal(lazy.compute(), expected)
        other_blocks = da.from_array(costs, chunks=(600, -1))
        with pytest.raises(
            ValueError, match="costs must have the rows of X in the same blocks"
        ):
            DaskRouter(router).route(parts, costs=other_blocks)


@pytest.mark.parametrize("n_blocks", [1, 7])
def test_a_cap_over_all_blocks_is_that_of_memory(problem, n_blocks):
    X, Q = problem.data, problem.quality
    router = BudgetRouter(
        Ridge(), costs=problem.costs, budget=0.4, policy="batch", reg_lambda=0.3
    ).fit(X[:400], Q[:400])
    blocks = da.from_array(X, chunks=(-(-len(X) // n_blocks), -1))
    with dask.config.set(scheduler="threads"):
        lazy = DaskRouter(router).predict_routed(blocks)
        y_pred, route, cost = dask.compute(*lazy)
    expected = router.predict_routed(X)
    assert cost.mean() <= 0.4 * (1 + 1e-12)
    np.testing.assert_array_equal(y_pred, route)
    assert y_pred.dtype == lazy.y_pred.dtype == expected.y_pred.dtype
    values = router.predict_quality(X) - router._policy().penalty
    rows = np.arange(len(X))
    assert values[rows, route].sum() == pytest.approx(
        values[rows, expected.route].sum(), rel=1e-9
    )


@pytest.mark.parametrize("routing_cost", [0.0, 0.25])
def test_a_total_over_a_file_is_the_mean_times_the_rows(
    problem, routing_cost, tmp_path
):
    """Also if Dask does not know the number of rows: the first pass counts them."""
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(problem.data, columns=["a", "b"])
    # A log of costs, so that the cap is in real costs and not in list prices.
    logged_costs = 1.3 * np.tile(problem.costs, (400, 1))
    router = BudgetRouter(
        Ridge(), costs=list(problem.costs), routing_cost=routing_cost
    ).fit(frame[:400], problem.quality[:400], costs=logged_costs)
    new = frame[400:]
    total = 0.4 * (router.min_budget_ + np.max(problem.costs)) * len(new)
    wrapped = DaskRouter(router, policy="batch")
    expected = dask.compute(
        *wrapped.predict_routed(dd.from_pandas(new, 4), budget=total / len(new))
    )
    new.to_parquet(tmp_path / "new.parquet")
    for rows in (
        dd.from_pandas(new, 4),
        dd.read_parquet(tmp_path / "new.parquet"),
    ):
        route = wrapped.route(rows, budget_total=total).compute()
        cost = wrapped.predict_cost(rows, budget_total=total).compute()
        np.testing.assert_array_equal(route, expected[1])
        np.testing.assert_array_equal(cost, expected[2])
        np.testing.assert_array_equal(
            wrapped.predict(rows, budget_total=total).compute(), expected[0]
        )


def test_a_total_is_never_exceeded_and_used(problem):
    router = BudgetRouter(Ridge(), costs=[1.0, 2.0, 5.0]).fit(
        problem.data[:400], problem.quality[:400]
    )
    rows = da.from_array(problem.data[400:], chunks=(150, 2))
    wrapped = DaskRouter(router, policy="batch")
    for total in (800.0, 1234.5, 2500.0, 3500.0):
        spent = wrapped.predict_cost(rows, budget_total=total).compute().sum()
        assert total - 5.0 < spent <= total
    with pytest.raises(ValueError, match="budget_total=799.* smallest feasible .*800"):
        wrapped.route(rows, budget_total=799.0)
    with pytest.raises(ValueError, match="exclude each other"):
        wrapped.route(rows, budget=2.0, budget_total=1000.0)
    with pytest.raises(ValueError, match='needs policy="batch"'):
        DaskRouter(router, policy="online").route(rows, budget_total=1000.0)
    with pytest.raises(ValueError, match="budget_total must be a finite number"):
        wrapped.route(rows, budget_total=np.inf)
    nothing = rows[:0]
    assert len(wrapped.route(nothing, budget_total=10.0).compute()) == 0


def test_what_is_refused(problem, table):
    X, Q = problem.data, problem.quality
    router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.4)
    with pytest.raises(TypeError, match="must be a fitted decision estimator"):
        DaskRouter(Ridge())
    with pytest.raises(NotFittedError):
        DaskRouter(router)
    router.fit(X, Q)
    with pytest.raises(
        TypeError, match="X must be a Dask array or data frame, got ndarray"
    ):
        DaskRouter(router).route(X)
    rows = da.from_array(X, chunks=(100, -1))
    with pytest.raises(ValueError, match="policy must be"):
        DaskRouter(router, policy="later")
    with pytest.raises(ValueError, match="below the cheapest feasible plan"):
        DaskRouter(router, policy="batch").route(rows, budget=0.0)
    with pytest.raises(ValueError, match="'exclude' is not taken"):
        DaskRouter(router, policy="batch").route(rows, exclude=[])
    per_row = BudgetRouter(Ridge(), budget=0.4).fit(X, Q, costs=1e-3 + Q)
    costs = da.from_array(1e-3 + Q[:-1], chunks=(100, -1))
    with pytest.raises(
        ValueError, match="costs must have the rows of X in the same blocks"
    ):
        DaskRouter(per_row).route(rows, costs=costs)
    X, y = table
    for kind in (FrugalMLClassifier, FrugalMCTClassifier):
        asks = kind(members(), costs=COSTS, cv=2).fit(X, y)
        with pytest.raises(TypeError, match="others ask a model before they decide"):
            DaskRouter(asks, policy="batch")


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_partitions_that_a_filter_empties(table, empty):
    """They change neither the dtype of answers nor the choices of rows."""
    frames = pytest.importorskip("dask.dataframe")
    X, y = table
    frame = pd.DataFrame(X[:90]).add_prefix("x")
    frame["part"] = np.repeat(np.arange(3), 30)
    names = list(frame.columns[:-1])
    collection = frames.from_pandas(frame, npartitions=3, sort=False)
    rows = frame.loc[frame.part != empty, names]
    blocks = collection[collection.part != empty][names]
    for target, abstain_cost in (
        (y, None),
        (y == "ant", None),
        ((y == "ant").astype(int), 0.3),
    ):
        router = OccamRouterClassifier(
            members(),
            costs=COSTS,
            budget=2.0,
            quality_estimator=Ridge(),
            abstain_cost=abstain_cost,
            cv=2,
        )
        router.fit(pd.DataFrame(X, columns=names), target)
        expected = router.predict_routed(rows)
        lazy = DaskRouter(router).predict_routed(blocks)
        y_pred, route = dask.compute(lazy.y_pred, lazy.route)
        assert y_pred.tolist() == expected.y_pred.tolist()
        assert y_pred.dtype == lazy.y_pred.dtype
        if abstain_cost is None:
            assert y_pred.dtype == expected.y_pred.dtype
        np.testing.assert_array_equal(route, expected.route)
        np.testing.assert_allclose(
            DaskRouter(router).predict_proba(blocks).compute(),
            router.predict_proba(rows),
        )


@pytest.mark.parametrize("has_known_sizes", [True, False])
@pytest.mark.parametrize("policy", ["online", "batch"])
def test_without_rows_there_are_no_answers(problem, policy, has_known_sizes):
    router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.4).fit(
        problem.data, problem.quality
    )
    rows = da.from_array(problem.data, chunks=(500, -1))
    rows = rows[rows[:, 0] > np.inf]
    if has_known_sizes:
        rows = rows.compute_chunk_sizes()
    routed = dask.compute(*DaskRouter(router, policy=policy).predict_routed(rows))
    assert [len(values) for values in routed] == [0, 0, 0]


def test_costs_are_expected_bills_where_the_log_has_bills():
    rng = np.random.default_rng(0)
    X = rng.random((2000, 2))
    Q = (
        rng.random((2000, 2)) < np.column_stack([1 - X[:, 0], np.full(2000, 0.9)])
    ) * 1.0
    bills = np.array([1.0, 5.0]) * rng.gamma(4, 0.5, (2000, 2))
    router = BudgetRouter(Ridge(), costs=[1, 5], budget=6.0)
    with pytest.warns(UserWarning, match="logged costs"):
        router.fit(X, Q, costs=bills)
    blocks = da.from_array(X, chunks=(500, 2))
    for policy in ("online", "batch"):
        cost = DaskRouter(router, policy=policy).predict_cost(blocks).compute()
        route = DaskRouter(router, policy=policy).route(blocks).compute()
        billed = bills[np.arange(2000), route].mean()
        assert cost.mean() == pytest.approx(billed, rel=0.05)
