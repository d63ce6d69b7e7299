"""Policies that leave Python: the reader decides as the router, with numpy alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._family import MEMBERS, NEIGHBORS
from skroute.quality._floors import Floor
from skroute.routing import (
    BudgetRouter,
    FrugalMLClassifier,
    OccamRouterClassifier,
    PortablePolicy,
    _policy_reader,
    export_policy,
)

PREDICTORS = {
    "linear": Ridge(),
    "scaled": make_pipeline(StandardScaler(), LinearRegression(fit_intercept=False)),
    "clipped": make_pipeline(MinMaxScaler(clip=True), Ridge()),
    "tree": DecisionTreeRegressor(max_depth=5, random_state=0),
    "forest": RandomForestRegressor(8, max_depth=6, random_state=0),
    "extra": make_pipeline(StandardScaler(), ExtraTreesRegressor(8, max_depth=6, random_state=0)),
    "chebyshev": make_pipeline(MinMaxScaler(), BaggedNeighborsRegressor()),
    "manhattan": BaggedNeighborsRegressor(metric="manhattan", n_subsets=7, random_state=0),
    "euclidean": BaggedNeighborsRegressor(metric="euclidean", n_subsets="exact", subset_size=20),
}
# One for each kind of part, and the default: what a router has that is given none.
SINGLE = {
    name: QualityRegressor(family=[name], cv=2) for name in [*MEMBERS, *NEIGHBORS] if " " in name
}
SINGLE |= {
    "default": None,
    "without rows": make_pipeline(StandardScaler(), QualityRegressor(keep_rows=False, cv=2)),
}
PREDICTORS |= SINGLE
METRICS = {"chebyshev", "manhattan", "euclidean"}
# Leaves and subsets have a few values each.
FEW_VALUES = {"tree", "forest", "extra"} | METRICS


def log(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    Q = np.column_stack([1 - X[:, 0], 0.5 + 0.3 * X[:, 1], X[:, 2] ** 2, np.full(n, 0.8)])
    return X, Q + 0.1 * rng.normal(size=Q.shape)


@pytest.mark.parametrize("kind", PREDICTORS)
def test_the_reader_routes_ten_thousand_rows_as_the_router(kind, tmp_path):
    X, Q = log()
    costs = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 5.0}
    router = BudgetRouter(PREDICTORS[kind], costs=costs, budget=2.5, routing_cost=0.25, cv=2)
    router.fit(X, Q)
    export_policy(router.set_params(reg_lambda=0.3), tmp_path / "policy.json")
    policy = PortablePolicy.load(tmp_path / "policy.json")
    # Sums over thousands of subsets take the reader a second for each thousand rows.
    rows, _ = log(2500 if kind in ("chebyshev", "euclidean") else 10_000, seed=1)
    quality = policy.quality(rows)
    # Of the family in single precision, whose last bit differs.
    atol = 2e-5 if kind in SINGLE else 1e-9
    np.testing.assert_allclose(quality, router.predict_quality(rows), atol=atol)
    assert policy.choices == router.choices_
    # A route of neighbors takes a second, and its estimates are compared above.
    budgets = (None, router.min_budget_, 2.0, 4.0, np.inf)
    for budget in budgets[1:3] if kind in METRICS else budgets:
        found, expected = policy.decide(quality, budget), router.route(rows, budget)
        # The router divides rows that are tied at the price; the reader sends them to the cheaper.
        price, at = min(policy.price(budget), 1e15), np.flatnonzero(found != expected)
        net = quality[at] - policy.docked - price * policy.costs
        each = np.arange(len(at))
        tied = net[each, found[at]] - net[each, expected[at]]
        if kind in SINGLE:
            # The last bit of single precision decides a handful of rows at most.
            assert len(at) <= 3 and (np.abs(tied) <= 2 * atol).all()
            continue
        assert (np.abs(tied) <= 1e-8 * max(price, 1)).all() and (
            policy.costs[found[at]] < policy.costs[expected[at]]
        ).all()
        # Estimates of a few values only can tie.
        assert kind in FEW_VALUES or not len(at)
    with pytest.raises(ValueError, match="The smallest feasible budget is 1.25"):
        policy.route(rows[:2], 1.0)


def test_a_choice_that_is_not_estimated_below_cheaper_ones():
    X, Q = log(200)
    router = BudgetRouter(QualityRegressor(family=["linear"], cv=2), costs=[1, 2, 3, 5], cv=2)
    router.fit(X, Q)
    estimator = router.quality_estimator_
    estimator._floors = []
    free = router.predict_quality(X)
    most = float(np.median((free[:, :3].max(axis=1) - free[:, 3]).clip(0.01)))
    estimator._floors = [Floor(2, [0], np.inf), Floor(3, [0, 1, 2], most)]
    estimator._lay_out()
    policy = json.loads(json.dumps(export_policy(router), allow_nan=False))
    quality = PortablePolicy(policy).quality(X)
    np.testing.assert_allclose(quality, router.predict_quality(X), atol=2e-5)
    assert (quality[:, 2] > quality[:, 0]).all()
    behind = quality[:, :3].max(axis=1) - quality[:, 3]
    assert ((behind < 0) | (behind > most)).all()
    assert (behind > most).any()
    assert (free[:, 3] < free[:, :3].max(axis=1))[behind < 0].any()
    # Above the best outcome of all there is nothing: such a row gives way as a whole.
    low, high = estimator._range
    top = int(high.argmax())
    estimator._floors = [Floor((top + 1) % 4, [top], np.inf)]
    estimator._lay_out()
    quality = PortablePolicy(export_policy(router)).quality(100 * X)
    at_top = quality[:, (top + 1) % 4] >= high[top] - 1e-9
    assert at_top.any()
    assert (quality[at_top, top] < high[top]).all()
    assert (quality <= high[top]).all()
    assert (quality >= low).all()


def test_the_smallest_budget_buys_nothing_however_large_quality_is():
    X, Q = log(100)
    router = BudgetRouter(Ridge(), costs=[1e-6, 1e-3, 1e-3, 5e-3], cv=2).fit(X, 1e12 * Q)
    policy = PortablePolicy(export_policy(router))
    for budget in (1e-6, 2e-6):
        spent = router.costs_[policy.route(X, budget)].mean()
        assert spent <= budget * 1.01
    assert (policy.route(X, 1e-6) == 0).all()
    assert set(policy.route(X, 1e-3)) > {0}


def test_means_alone_are_exported_as_they_are_predicted():
    """Rows that say nothing: no member has weight, and a curve for the means is not taken."""
    plain = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, Q = rng.standard_normal((24, 2)), rng.standard_normal((24, 2))
        estimator = QualityRegressor(family=["linear"])
        router = BudgetRouter(estimator, costs=[1, 2]).fit(X, Q)
        policy = PortablePolicy(export_policy(router))
        np.testing.assert_allclose(policy.quality(X), router.predict_quality(X), atol=2e-5)
        kept = estimator.cross_fit(X, Q, return_kept=True)[1]
        if not estimator._parts:
            plain += 1
            np.testing.assert_allclose(kept, estimator.predict(X), atol=1e-12)
    assert plain > 2


def test_an_occam_router_and_missing_values(tmp_path):
    X, _ = log(300)
    y = (X[:, 0] > 0).astype(int)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]
    predictor = RandomForestRegressor(5, max_depth=4, random_state=0)
    router = OccamRouterClassifier(
        members, costs=[1, 3], budget=2, quality_estimator=predictor, cv=2
    ).fit(X, y)
    policy = PortablePolicy(json.loads(json.dumps(export_policy(router))))
    np.testing.assert_array_equal(policy.route(X), router.route(X))
    Q = np.column_stack([X[:, 1], X[:, 2]])
    X[::7, 1] = np.nan
    router = BudgetRouter(predictor, costs=[1, 3], budget=2, cv=2).fit(X, Q)
    policy = PortablePolicy(export_policy(router))
    np.testing.assert_array_equal(policy.route(X), router.route(X))


def test_the_reader_is_one_file_of_numpy(tmp_path):
    X, Q = log()
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    export_policy(router, tmp_path / "policy.json")
    np.save(tmp_path / "X.npy", X)
    source = Path(_policy_reader.__file__).read_text()
    (tmp_path / "reader.py").write_text(source)
    script = (
        "import sys, numpy as np; from reader import PortablePolicy as P; "
        "print(P.load('policy.json').route(np.load('X.npy')).tolist()); "
        "assert not {'skroute', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == router.route(X).tolist()


def test_what_has_no_words_in_the_format_is_refused():
    X, Q = log(100)
    hist = MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=2))
    router = BudgetRouter(hist, costs=[1, 2, 3, 5], cv=2).fit(X, Q)
    with pytest.raises(TypeError, match="MultiOutputRegressor cannot be exported: only a linear"):
        export_policy(router)
    odd = make_pipeline(QuantileTransformer(n_quantiles=5), Ridge())
    with pytest.raises(TypeError, match="QuantileTransformer cannot be exported"):
        export_policy(BudgetRouter(odd, costs=[1, 2, 3, 5], cv=2).fit(X, Q))
    with pytest.raises(ValueError, match="costs per row cannot be exported"):
        export_policy(BudgetRouter(Ridge(), cv=2).fit(X, Q, costs=np.ones(Q.shape)))
    with pytest.raises(TypeError, match="got FrugalMLClassifier"):
        export_policy(FrugalMLClassifier([], costs={}))
    for bad in ({}, {"format": "skroute-policy", "version": 2}):
        with pytest.raises(ValueError, match="This reader knows version 1"):
            PortablePolicy(bad)
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], cv=2).fit(X, Q)
    with pytest.raises(ValueError, match="X must have 4 columns"):
        PortablePolicy(export_policy(router)).route([[1.0]])
    for predictor in (Ridge(), BaggedNeighborsRegressor(), None):
        router = BudgetRouter(predictor, costs=[1, 2, 3, 5], cv=2).fit(X, Q)
        with pytest.raises(ValueError, match=r"X must have 4 columns and rows: \(0, 4\)"):
            PortablePolicy(export_policy(router)).route(np.empty((0, 4)))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_a_frame_has_the_columns_of_fit_in_their_order(container):
    frames = pytest.importorskip(container)
    X, Q = log(100)
    names = ["w", "x", "y", "z"]
    frame = frames.DataFrame(dict(zip(names, X.T)))
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(frame, Q)
    policy = PortablePolicy(json.loads(json.dumps(export_policy(router))))
    np.testing.assert_array_equal(policy.route(frame), router.route(frame))
    np.testing.assert_array_equal(policy.route(X), router.route(frame))
    for wrong in (["x", "w", "y", "z"], ["w", "x", "y"], ["w", "x", "y", "z", "other"]):
        table = frames.DataFrame(dict.fromkeys(wrong, X[:, 0]))
        for call in (policy.route, policy.quality, router.route):
            with pytest.raises(ValueError, match="eature names|columns"):
                call(table)
    # A router that was fitted without names reads by position, as scikit-learn does.
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    policy = PortablePolicy(export_policy(router))
    np.testing.assert_array_equal(policy.route(frame), router.route(X))


@pytest.mark.parametrize("kind", PREDICTORS)
def test_what_is_no_number_is_refused_as_the_router_refuses_it(kind):
    X, Q = log(100)
    router = BudgetRouter(PREDICTORS[kind], costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    policy = PortablePolicy(json.loads(json.dumps(export_policy(router))))
    for bad in (np.nan, np.inf, -np.inf, 1e300):
        rows = X[:5].copy()
        rows[1, 2] = bad
        try:
            expected = router.predict_quality(rows)
        except ValueError:
            for call in (policy.quality, policy.route):
                with pytest.raises(ValueError, match="X must be (finite|numbers)"):
                    call(rows)
        else:
            single = {"rtol": 1e-5, "atol": 2e-5} if kind in SINGLE else {}
            if bad == 1e300 and "neighbors" in kind:
                continue  # All rows are equally far, to the last bit.
            np.testing.assert_allclose(policy.quality(rows), expected, **single)
            # Trees of a pipeline take none, since the router does not know of it.
            assert bad == 1e300 or (np.isnan(bad) and kind in ("tree", "forest"))
    for bad in ([["1", "2", "3", "4"]], [[1, 2, 3, "4"]], np.array([[1, 2, 3, "4"]], dtype=object)):
        with pytest.raises(ValueError, match="X must be numbers"):
            policy.route(bad)
    missing = [[1.0, None, 2.0, 3.0]]
    if kind in ("tree", "forest"):
        expected = policy.quality([[1.0, np.nan, 2.0, 3.0]])
        np.testing.assert_array_equal(policy.quality(missing), expected)
    else:
        with pytest.raises(ValueError, match="X must be finite"):
            policy.quality(missing)


class Halved(Ridge):
    def predict(self, X):
        return super().predict(X) / 2


def test_what_does_not_predict_as_the_format_says_is_refused():
    X, Q = log(100)
    labels = (Q > 0.5).astype(int)
    for estimator in (
        DecisionTreeClassifier(max_depth=2),
        RandomForestClassifier(3, max_depth=2),
        make_pipeline(StandardScaler(), ExtraTreesClassifier(3, max_depth=2)),
        RidgeClassifier(),
        Halved(),
    ):
        router = BudgetRouter(estimator, costs=[1, 2, 3, 5], cv=2).fit(X, labels)
        name = type(router.quality_estimator).__name__
        name = name if name != "Pipeline" else "ExtraTreesClassifier"
        with pytest.raises(TypeError, match=f"{name} cannot be exported"):
            export_policy(router)
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], budget=2, cv=2, policy="batch").fit(X, Q)
    with pytest.raises(ValueError, match='policy="batch" cannot be exported'):
        export_policy(router)
    # It is the same fit.
    assert export_policy(router.set_params(policy="online"))["budget"] == 2


def arrays_in(value, found=None):
    """All arrays that an object holds, however deep."""
    found = [] if found is None else found
    if isinstance(value, np.ndarray):
        found.append(value)
    elif isinstance(value, dict):
        for part in value.values():
            arrays_in(part, found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            arrays_in(part, found)
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("skroute"):
        arrays_in(vars(value), found)
    return found


@pytest.mark.parametrize("family", [["linear", "coarse trees"], ["cosine neighbors"]])
def test_a_router_without_rows_saves_none(family):
    X, Q = log(200)
    estimator = QualityRegressor(family=family, cv=2, keep_rows="cosine neighbors" in family)
    router = BudgetRouter(estimator, costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    rows = router._policy().estimator._rows(X)
    cosine = rows.plain / np.linalg.norm(rows.plain, axis=1, keepdims=True)
    # Neighbours keep them in half precision, in which leaves of trees may equal one by chance.
    kept = "cosine neighbors" in family
    entries = [cosine.astype(np.float16)] if kept else [X, *rows, cosine]
    known = np.unique(np.concatenate([np.float64(part[:, 0]) for part in entries]))
    arrays = [np.float64(a) for a in arrays_in(router) if a.dtype != object]
    held = sum(np.isin(known, a).sum() for a in arrays)
    assert held >= len(known) if kept else held <= 2
    predictor = json.dumps(export_policy(router)["predictor"])
    assert ("closest" in predictor) is kept


def test_a_path_is_loaded_not_made_a_policy():
    with pytest.raises(ValueError, match=r"got 'policy.json'"):
        PortablePolicy("policy.json")


def damaged(exported):
    """What a policy may become, by what was done to it."""
    text = json.dumps(exported)
    yield "cut off", text[: len(text) // 2]
    yield "empty", ""
    yield "a list", "[1, 2]"
    yield "a number", "3"
    for version in ("true", "1.0", "2", "null", '"1"'):
        yield f"version {version}", text.replace('"version": 1', f'"version": {version}')
    for name in set(exported) - {"router", "format", "version"}:
        yield f"no {name}", json.dumps({k: v for k, v in exported.items() if k != name})
    for name in ("choices", "costs", "docked", "budgets", "prices", "counts"):
        yield f"short {name}", json.dumps(exported | {name: exported[name][:-1]})
    for name, bad in (("costs", "nan"), ("prices", "inf"), ("docked", "nan")):
        yield f"{bad} in {name}", json.dumps(exported | {name: [*exported[name][:-1], float(bad)]})
    yield "text in costs", json.dumps(exported | {"costs": ["1", *exported["costs"][1:]]})
    predictor = exported["predictor"]
    yield "a kind of its own", json.dumps(exported | {"predictor": predictor | {"kind": "odd"}})
    for name in set(predictor) - {"kind"}:
        less = {k: v for k, v in predictor.items() if k != name}
        yield f"no {name} in the predictor", json.dumps(exported | {"predictor": less})
        more = predictor | {name: [[float("nan")]]}
        yield f"NaN as {name} of the predictor", json.dumps(exported | {"predictor": more})


@pytest.mark.parametrize("kind", ["linear", "scaled", "tree", "manhattan", "euclidean", "default"])
def test_a_damaged_file_is_said_to_be_that(kind, tmp_path):
    X, Q = log(100)
    router = BudgetRouter(PREDICTORS[kind], costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    path = tmp_path / "policy.json"
    exported = json.loads(json.dumps(export_policy(router, path)))
    assert PortablePolicy.load(path).route(X).shape == (100,)
    for what, text in damaged(exported):
        path.write_text(text)
        with pytest.raises(ValueError, match="policy.json is cut off, or holds no policy: .+"):
            print(what, PortablePolicy.load(path).choices)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is cut off, or holds no policy"):
        PortablePolicy.load(path)
    with pytest.raises(FileNotFoundError):
        PortablePolicy.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="The policy is damaged: .*budgets"):
        PortablePolicy({name: exported[name] for name in exported if name != "budgets"})
    # A tree whose children lie above it has no end.
    if kind == "tree":
        (tree,) = exported["predictor"]["trees"]
        tree["left"] = tree["right"] = [0] * len(tree["left"])
        PortablePolicy(exported).quality(X)
