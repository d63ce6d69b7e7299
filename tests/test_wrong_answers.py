"""Drawn checks for kinds of silently wrong answers; each failed on the code that gave them."""

import pickle
from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.early_exit import ExitDisplay, QWYCEnsemble, TradeoffDisplay
from skroute.features import CostAwarePipeline, LazyFeatures
from skroute.forests import FastForest
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.metrics import AccuracyCostDisplay, RouteShareDisplay, accuracy_cost_curve
from skroute.routing import (
    BudgetRouter,
    DaskRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)
from tests import SKLEARN

seeds = st.integers(0, 9999)

LIBRARIES = {
    "LightGBM": lambda: lgb.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1),
    "scikit-learn": lambda: HistGradientBoostingClassifier(max_iter=15),
}


@cache
def fitted_on_times(kind, library, least, dtype):
    """A frame of whole numbers, a fitted estimator, and what it should answer."""
    rng = np.random.default_rng(0)
    step = max(1, least // 2**52)
    late = step * rng.integers(0, 1000, 500)
    X = pd.DataFrame({"time": least + late, "u": rng.integers(0, 1000, 500)}).astype(
        dtype
    )
    y = (late // step % 200 > 100).astype(int)
    model = LIBRARIES[library]().fit(X, y)
    if kind == "FastForest":
        return X, FastForest.from_ensemble(model), model.predict(X)
    if kind == "QWYCEnsemble":
        quick = QWYCEnsemble(
            FrozenEstimator(model), alpha=0.0, order="natural"
        ).optimize(X)
        return X, quick, model.predict(X)
    if kind == "router":
        found = OccamRouterClassifier(
            [
                ("tree", DecisionTreeClassifier(max_depth=1)),
                ("all", LIBRARIES[library]()),
            ],
            costs=[1, 5],
            budget=3,
            cv=2,
            quality_estimator=DecisionTreeRegressor(max_depth=4),
        ).fit(X, y)
    else:
        full, gate = FrozenEstimator(model), BoostedGate(n_estimators=10)
        found = AdaptGatingClassifier(full, gate=gate, gamma=1e-4, p_full=0.5).fit(X, y)
    return X, found, pickle.loads(pickle.dumps(found)).predict(X.copy())


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["FastForest", "QWYCEnsemble", "router", "gate"]),
    st.sampled_from(sorted(LIBRARIES)),
    st.sampled_from([0, 2**20, 2**24, 1_700_000_000, 2**53, 17 * 10**17]),
    st.sampled_from(["int64", "uint64", "Int64", "float64"]),
    st.lists(st.sampled_from([1, 40, 500]), min_size=2, max_size=5),
)
def test_every_call_reads_a_frame_alike(kind, library, least, dtype, calls):
    """From the second call on whole numbers above 2**24 were rounded: 29 % of the labels."""
    X, model, expected = fitted_on_times(kind, library, least, dtype)
    for n in calls:
        assert_array_equal(model.predict(X if n == len(X) else X[:n]), expected[:n])


HOLDERS = {
    "array": lambda dates: dates,
    "series": pd.Series,
    "index": pd.DatetimeIndex,
    "function": lambda dates: lambda rows: dates[rows],
    "objects": lambda dates: np.array(list(pd.DatetimeIndex(dates)), dtype=object),
}


def month(frame):
    """The month of a column of dates."""
    return frame["t"].dt.month.to_frame().astype(float)


@cache
def dated_pipeline(unit):
    """A pipeline whose classifier needs the month, and the rows that it was fitted on."""
    rng = np.random.default_rng(0)
    t = np.datetime64("2024-01-01", "D") + rng.integers(0, 365, 400)
    X = pd.DataFrame({"a": rng.normal(size=400), "t": t.astype(f"datetime64[{unit}]")})
    columns = [("a", "passthrough", ["a"]), ("t", FunctionTransformer(month), ["t"])]
    buyer = AdaptGatingClassifier(
        DummyClassifier(), gate=BoostedGate(n_estimators=5), gamma=1e-4, p_full=0
    )
    pipeline = CostAwarePipeline(
        [("columns", ColumnTransformer(columns)), ("buyer", buyer)]
    )
    return pipeline.fit(X, (X.t.dt.month > 6).astype(int)), X


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from(sorted(HOLDERS)),
    st.lists(st.integers(0, 399), min_size=1, max_size=30),
)
def test_dates_of_a_source_are_those_of_a_frame(fitted_unit, holder, rows):
    """In nanoseconds they were read a thousand times too far from 1970."""
    pipeline, X = dated_pipeline(fitted_unit)
    expected = pipeline.predict(X)[rows]
    for unit in ("D", "h", "s", "ms", "us", "ns"):
        dates = X.t.to_numpy()[rows].astype(f"datetime64[{unit}]")
        source = LazyFeatures({"a": X.a.to_numpy()[rows], "t": HOLDERS[holder](dates)})
        assert_array_equal(pipeline.predict(source), expected)


ROUTERS = [
    OccamRouterClassifier,
    FrugalMLClassifier,
    FrugalMCTClassifier,
    SequentialRouterClassifier,
]
HELD = {
    "numbers": lambda y: y,
    "texts": lambda y: y.astype(str),
    "objects": lambda y: y.astype(str).astype(object),
    "words": lambda y: np.array(["a", "b", "c"])[y],
}
OTHERS = HELD | {
    "unknown": lambda y: y + 7,
    "truth": lambda y: y > 0,
    "floats": lambda y: y + 0.0,
}


@cache
def labelled(router, held):
    """A fitted router, new rows, their labels as numbers, and members of these labels."""
    X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
    given = HELD[held](y)
    members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=3))]
    found = router(members, costs=[1, 10], budget=5, cv=2)
    if router is not FrugalMLClassifier:
        found.set_params(quality_estimator=DecisionTreeRegressor(max_depth=3))
    found.fit(X[:200], given[:200])
    return (
        found,
        X[200:],
        y[200:],
        [(name, m.fit(X[:200], given[:200])) for name, m in members],
    )


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(ROUTERS),
    st.sampled_from(sorted(HELD)),
    st.sampled_from(sorted(OTHERS)),
)
def test_labels_of_another_type_are_refused(cls, held, other):
    """They were wrong answers all, and the quality 0; `fit` made texts of both."""
    router, X, y, members = labelled(cls, held)
    as_fit, given = HELD[held](y), OTHERS[other](y)
    if np.isin(given.astype(object), as_fit.astype(object)).all() and other != "truth":
        assert router.score(X, given) == router.score(X, as_fit) > 0.5
        expected = accuracy_cost_curve(router, X, as_fit, [5]).quality
        assert_allclose(accuracy_cost_curve(router, X, given, [5]).quality, expected)
        return
    with pytest.raises(ValueError, match="No label in y"):
        accuracy_cost_curve(router, X, given, [5])
    if (given.dtype.kind in "UO") == (held != "numbers"):
        return  # What is of the type of the labels may be new ones.
    if SKLEARN >= (1, 9):  # Older ones answer 0, as for every classifier.
        with pytest.raises(ValueError, match="Mix of label input types"):
            router.score(X, given)
    frozen = [(name, FrozenEstimator(member)) for name, member in members]
    with pytest.raises(ValueError, match="a member that comes fitted knows"):
        cls(frozen, costs=[1, 10], budget=5).fit(X, given)


@cache
def calls_on_columns():
    """Rows, and what may be asked about them."""
    X, y = make_classification(400, 5, n_informative=4, n_redundant=1, random_state=0)
    X = pd.DataFrame(X, columns=list("abcde"))
    forest = lgb.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(X, y)
    quick = QWYCEnsemble(FrozenEstimator(forest), alpha=0.02, random_state=0).optimize(
        X
    )
    members = [("bayes", GaussianNB()), ("linear", LogisticRegression())]
    occam = OccamRouterClassifier(
        members, costs=[1, 5], budget=3, cv=2, quality_estimator=Ridge()
    ).fit(X, y)
    only = BudgetRouter(Ridge(), costs=[1, 5], budget=3).fit(
        X, np.column_stack([y, 1 - y])
    )
    gate = AdaptGatingClassifier(FrozenEstimator(forest), gamma=1e-3, p_full=0.5).fit(
        X, y
    )
    tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=4, random_state=0)
    buyer = SequentialFeatureClassifier(tree, random_state=0).fit(X, y)
    at = {"budgets": [2, 4]}
    return X, [
        FastForest.from_ensemble(forest).predict,
        quick.predict,
        quick.route,
        quick.tradeoff,
        lambda X: ExitDisplay.from_estimator(quick, X).survival,
        lambda X: TradeoffDisplay.from_estimators({"own": quick}, X).curves["own"],
        occam.predict_routed,
        lambda X: accuracy_cost_curve(occam, X, y[: len(X)], [2, 4]).row_quality,
        lambda X: (
            AccuracyCostDisplay.from_estimator(occam, X, y[: len(X)], **at).quality
        ),
        lambda X: RouteShareDisplay.from_estimator(only, X, **at).route_share,
        only.route,
        gate.predict_proba,
        gate.predict_cost,
        buyer.predict_proba,
    ]


@settings(max_examples=60, deadline=None)
@given(
    # What is asked is made where it is needed: at collection each worker would fit and compile.
    st.deferred(lambda: st.sampled_from(calls_on_columns()[1])),
    st.permutations(list("abcde")),
    st.sampled_from([1, 30, 400]),
)
def test_columns_in_another_order_are_refused_or_read_by_name(call, order, n):
    """The tradeoff of early exits and its display read them by position."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    X, _ = calls_on_columns()
    expected = call(X[:n])
    try:
        found = call(X[order][:n])
    except ValueError as error:
        assert order != list("abcde") and "feature names" in str(error)
    else:
        for one, other in zip(found, expected):
            assert_array_equal(one, other)
    finally:
        pyplot.close("all")


@settings(max_examples=20, deadline=None)
@given(
    seeds,
    st.booleans(),
    # Costs that are equal but for rounding are one to a stream, whose prices are finite.
    st.lists(
        st.floats(0.1, 20).map(lambda cost: round(cost, 6)), min_size=3, max_size=5
    ),
    st.floats(0, 1),
    st.data(),
)
def test_a_stream_without_a_choice_decides_as_route(
    seed, equal_rows, costs, share, data
):
    """Its price was one of the in-sample estimates, as if every row of the log stood alone."""
    rng = np.random.default_rng(seed)
    X, k = rng.normal(size=(60, 2)), len(costs)
    X = X.round() if equal_rows else X
    Q = (
        np.arange(k) / k
        + 0.3 * X[:, [0]] * rng.normal(size=k)
        + 0.2 * rng.normal(size=(60, k))
    )
    names = [f"choice{i}" for i in range(k)]
    out = data.draw(
        st.lists(st.sampled_from(names), min_size=1, max_size=k - 1, unique=True)
    )
    left = [cost for name, cost in zip(names, costs) if name not in out]
    budget = min(left) + share * (max(costs) - min(left))
    router = BudgetRouter(Ridge(), costs=costs, budget=budget).fit(X, Q)
    new, stream = rng.normal(size=(150, 2)), router.stream(1e9)
    estimates = router.predict_quality(new)
    stream.exclude(out)
    found = [stream.reserve(row).choice for row in estimates]
    assert_array_equal(found, router.route(new, exclude=out))
    stream.include(out)
    assert_array_equal(
        [stream.reserve(row).choice for row in estimates], router.route(new)
    )


@settings(max_examples=15, deadline=None)
@given(
    seeds,
    st.lists(st.sampled_from([0, 0, 1, 7, 40]), min_size=1, max_size=6),
    st.floats(0.02, 1),
)
def test_rows_beside_empty_blocks_keep_their_routes(seed, sizes, share):
    """They got those of other rows, a block was lost, and the cap was broken."""
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    assume(sum(sizes))
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(80, 2)), rng.integers(0, 2, 80)
    members = [
        ("linear", LogisticRegression()),
        ("tree", DecisionTreeClassifier(max_depth=3)),
    ]
    router = OccamRouterClassifier(
        members, costs=[1, 5], cv=2, quality_estimator=Ridge(), policy="batch"
    ).fit(X, y)
    rows, budget = rng.normal(size=(sum(sizes), 2)), 1 + 4 * share
    expected = router.predict_routed(rows, budget=budget)
    blocks = array.from_array(rows, chunks=(tuple(sizes), 2))
    with dask.config.set(scheduler="sync"):
        lazy = DaskRouter(router).predict_routed(blocks, budget=budget)
        y_pred, route, cost = dask.compute(lazy.y_pred, lazy.route, lazy.cost)
    assert_array_equal(route, expected.route)
    assert_array_equal(y_pred, expected.y_pred)
    assert cost.mean() <= budget * (1 + 1e-12)
