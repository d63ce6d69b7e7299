"""Parquet in, Parquet out."""

import os

import joblib
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from skroute.__main__ import main
from skroute.routing import BudgetRouter, FrugalMCTClassifier, route_batch

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

NAMES = ["a", "b", "c"]


def make(frame, **params):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    Q = np.column_stack([1 - X[:, 0], 0.5 + 0.3 * X[:, 1], np.full(300, 0.8)])
    X = pd.DataFrame(X, columns=["x", "y"]) if frame else X
    params = {"costs": dict(zip(NAMES, [1.0, 2.0, 5.0])), "budget": 2.2} | params
    return BudgetRouter(Ridge(), cv=2, routing_cost=0.25, reg_lambda=0.2, **params).fit(X, Q)


@pytest.fixture
def source(tmp_path):
    """Three files, one of them empty, with more columns than are read."""
    rng, start = np.random.default_rng(1), 0
    (tmp_path / "in").mkdir()
    for i, n in enumerate((500, 0, 777)):
        X = rng.uniform(size=(n, 2))
        ids = np.arange(start, start + n)
        table = pa.table({"id": ids, "y": X[:, 1], "other": ["t"] * n, "x": X[:, 0]})
        pq.write_table(table, tmp_path / "in" / f"{i}.parquet", row_group_size=200)
        start += n
    return tmp_path / "in"


def read(source, target):
    """Rows of the source, and of the parts in the order of their ids."""
    inputs = pq.read_table(source).to_pandas().sort_values("id")
    parts = [pq.read_table(path) for path in sorted(target.glob("part-*.parquet"))]
    return inputs[["x", "y"]], pa.concat_tables(parts).to_pandas()


@pytest.mark.parametrize("frame", [False, True])
@pytest.mark.parametrize("policy", ["online", "batch"])
@pytest.mark.parametrize("batch_rows", [64, 100_000])
def test_the_parts_are_what_the_router_decides(frame, policy, batch_rows, source, tmp_path):
    router = make(frame)
    options = {"policy": policy, "keep": ["id"], "columns": None if frame else ["x", "y"]}
    done = route_batch(router, source, tmp_path / "out", batch_rows=batch_rows, **options)
    X, parts = read(source, tmp_path / "out")
    assert parts["id"].tolist() == list(range(1277))
    route = np.array([NAMES.index(name) for name in parts["choice"]])
    rows = X if frame else X.to_numpy()
    quality = router.predict_quality(rows)[np.arange(1277), route]
    np.testing.assert_allclose(parts["quality"], quality, rtol=1e-12)
    np.testing.assert_array_equal(parts["cost"], np.array([1.25, 2.25, 5.25])[route])
    figures = [pytest.approx(parts[name].mean()) for name in ("cost", "quality", "expected_cost")]
    assert done == (1277, 3, 0, *figures)
    np.testing.assert_array_equal(parts["expected_cost"], parts["cost"])
    if policy == "online":
        np.testing.assert_array_equal(route, router.route(rows))
    else:
        # A hard cap, and as good as the assignment in memory.
        assert parts["cost"].mean() <= 2.2
        router.set_params(policy="batch")
        expected = router.predict_quality(rows)[np.arange(1277), router.route(rows)].mean()
        docked = router.reg_lambda * router.quality_std_
        assert quality.mean() == pytest.approx(expected, abs=0.01 + docked.max())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_skroute.json",
        *[f"part-{i:05d}.parquet" for i in range(3)],
    ]


@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_run_that_is_cut_off_goes_on(policy, source, tmp_path, monkeypatch):
    router = make(True)
    whole = route_batch(router, source, tmp_path / "whole", policy=policy, keep=["id"])
    _, expected = read(source, tmp_path / "whole")
    calls, predict = [], type(router).predict_quality

    def breaks(self, X):
        calls.append(len(X))
        if len(calls) in (3, 7):
            raise OSError("the disk is full")
        return predict(self, X)

    monkeypatch.setattr(type(router), "predict_quality", breaks)
    done = None
    for _ in range(4):
        try:
            options = {"policy": policy, "keep": ["id"], "batch_rows": 300}
            done = route_batch(router, source, tmp_path / "out", **options)
            break
        except OSError:
            assert not list((tmp_path / "out").glob("part-*.tmp"))
    # Under a cap nothing fails but the estimates, and these go on where they were.
    assert done is not None and (done.n_resumed >= 1 or policy == "batch")
    assert done[:2] == whole[:2] and done.cost == pytest.approx(whole.cost, rel=1e-12)
    pd.testing.assert_frame_equal(read(source, tmp_path / "out")[1], expected)
    with pytest.raises(ValueError, match=r"parts of another run: \['budget'\] differ"):
        route_batch(router, source, tmp_path / "out", policy=policy, keep=["id"], budget=3.0)


def test_the_command(source, tmp_path, capsys):
    joblib.dump(make(True), tmp_path / "router.joblib")
    words = ["route-batch", tmp_path / "router.joblib", source, tmp_path / "out", "--budget", "3"]
    assert main([*map(str, words), "--policy", "batch", "--keep", "id"]) == 0
    assert capsys.readouterr().out.startswith("1277 rows in 3 parts (0 were there): mean cost 2.9")
    assert main([*map(str, words), "--keep", "nothing"]) == 2
    assert "There is no column 'nothing' in the source" in capsys.readouterr().err


def test_what_is_refused(source, tmp_path):
    router = make(True)
    with pytest.raises(ValueError, match="is below the cheapest feasible plan"):
        route_batch(router, source, tmp_path / "a", budget=1.0)
    with pytest.raises(ValueError, match="is below the cheapest feasible plan"):
        route_batch(router, source, tmp_path / "b", budget=1.0, policy="batch")
    with pytest.raises(ValueError, match="batch_rows must be a positive int"):
        route_batch(router, source, tmp_path / "c", batch_rows=0)
    with pytest.raises(ValueError, match='policy must be "online" or "batch"'):
        route_batch(router, source, tmp_path / "c", policy="both")
    with pytest.raises(TypeError, match="got FrugalMCTClassifier"):
        route_batch(FrugalMCTClassifier([], costs={}), source, tmp_path / "c")
    per_row = BudgetRouter(Ridge(), cv=2).fit(np.eye(20), np.eye(20)[:, :2], costs=np.ones((20, 2)))
    with pytest.raises(ValueError, match="costs per row cannot route files"):
        route_batch(per_row, source, tmp_path / "c")


# --- the router's own policy ------------------------------------------------------------------


def logged_router():
    """Fixed costs with a log beside them: rows on which "c" is chosen cost three times as much."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["x", "y"])
    Q = np.column_stack([1 - X["x"], 0.5 + 0.3 * X["y"], np.full(400, 0.8)])
    costs = {"a": 1.0, "b": 2.0, "c": 5.0}
    logged = np.outer(0.5 + 2 * X["x"], list(costs.values()))
    router = BudgetRouter(Ridge(), costs=costs, budget=2.6, cv=2, routing_cost=0.25)
    return router.fit(X, Q, costs=logged)


@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_budget_in_realised_costs_is_met_in_realised_costs(policy, source, tmp_path):
    router = logged_router().set_params(policy=policy)
    done = route_batch(router, source, tmp_path / "out", keep=["id"], batch_rows=100)
    X, parts = read(source, tmp_path / "out")
    routed = router.predict_routed(X)
    assert parts["choice"].tolist() == np.array(NAMES)[router.route(X)].tolist()
    np.testing.assert_allclose(parts["cost"], router.predict_cost(X), rtol=1e-12)
    np.testing.assert_allclose(parts["expected_cost"], routed.expected_cost, rtol=1e-12)
    assert abs(parts["expected_cost"].mean() - parts["cost"].mean()) > 0.05
    assert done.expected_cost == pytest.approx(parts["expected_cost"].mean())
    assert done.cost == pytest.approx(parts["cost"].mean())


@pytest.mark.parametrize("batch_rows", [7, 64, 500, 10_000])
@pytest.mark.parametrize("cut", [False, True])
def test_tied_rows_go_where_the_router_sends_them(batch_rows, cut, source, tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.integers(0, 3, (600, 2)) / 2, columns=["x", "y"])
    Q = np.column_stack([1 - X["x"], 0.5 + 0.3 * X["y"], np.full(600, 0.8)])
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    router = BudgetRouter(tree, costs=dict(zip(NAMES, [1, 2, 5])), budget=2.2, cv=2).fit(X, Q)
    for path in source.iterdir():
        n = pq.ParquetFile(path).metadata.num_rows
        few = rng.integers(0, 3, (n, 2)) / 2
        few[: n // 2, 0] += 0.01 * rng.uniform(size=n // 2)
        pq.write_table(pa.table({"id": np.arange(n), "x": few[:, 0], "y": few[:, 1]}), path)
    table = pq.read_table(source).to_pandas()[["x", "y"]]
    share = router._policy().rule(2.2).share
    assert 0 < share < 1
    if cut:
        predict, calls = BudgetRouter.predict_quality, []

        def breaks(self, X):
            calls.append(len(X))
            if sum(calls) > 900:
                raise OSError("the disk is full")
            return predict(self, X)

        with monkeypatch.context() as patch:
            patch.setattr(BudgetRouter, "predict_quality", breaks)
            with pytest.raises(OSError, match="the disk is full"):
                route_batch(router, source, tmp_path / "out", batch_rows=batch_rows)
    done = route_batch(router, source, tmp_path / "out", batch_rows=batch_rows)
    parts = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("part-*.parquet"))]
    parts = pa.concat_tables(parts).to_pandas()
    assert done.n_resumed == (2 if cut else 0)
    assert parts["choice"].tolist() == np.array(NAMES)[router.route(table)].tolist()
    np.testing.assert_array_equal(parts["cost"], router.predict_cost(table))
    assert {path.name[:5] for path in (tmp_path / "out").iterdir()} == {"_skro", "part-"}


def test_the_worst_row_is_no_objective_for_files(source, tmp_path):
    router = make(True).set_params(policy="batch", objective="min")
    for policy in (None, "batch", "online"):
        with pytest.raises(ValueError, match='objective="min" cannot route files'):
            route_batch(router, source, tmp_path / "out", policy=policy)
    assert not (tmp_path / "out").exists()


# --- what a run leaves ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_source_that_was_written_again_is_not_resumed(policy, source, tmp_path):
    options = {"policy": policy, "keep": ["id"]}
    route_batch(make(True), source, tmp_path / "out", **options)
    path = source / "2.parquet"
    before, stat = path.read_bytes(), path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    assert path.stat().st_size == len(before)
    with pytest.raises(ValueError, match=r"parts of another run: \['sources'\] differ"):
        route_batch(make(True), source, tmp_path / "out", **options)


def test_another_router_of_the_same_settings_is_not_resumed(source, tmp_path):
    router = make(True)
    route_batch(router, source, tmp_path / "out")
    other = make(True)
    other.quality_estimator_.coef_ = other.quality_estimator_.coef_[::-1].copy()
    with pytest.raises(ValueError, match=r"parts of another run: \['router'\] differ"):
        route_batch(other, source, tmp_path / "out")
    # The same one is known, used or stored in between.
    rows = pd.DataFrame({"x": [0.1], "y": [0.2]})
    router.predict_routed(rows, exclude=["a"], budget=3)
    router.predict_routed(rows, budget=3)
    joblib.dump(router, tmp_path / "router.joblib")
    for same in (router, joblib.load(tmp_path / "router.joblib"), make(True)):
        assert route_batch(same, source, tmp_path / "out").n_resumed == 3


@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_refused_run_leaves_nothing(policy, source, tmp_path, monkeypatch):
    router, out = make(True), tmp_path / "new" / "out"
    with pytest.raises(ValueError, match="is below the cheapest feasible plan"):
        route_batch(router, source, out, policy=policy, budget=1.2)
    assert not out.exists()
    with monkeypatch.context() as patch:

        def breaks(self, X):
            raise ValueError("these rows are none")

        patch.setattr(BudgetRouter, "predict_quality", breaks)
        with pytest.raises(ValueError, match="these rows are none"):
            route_batch(router, source, out, policy=policy)
    assert not out.parent.exists()
    assert route_batch(router, source, out, policy=policy, budget=3).n_parts == 3


def test_the_parts_cannot_go_among_the_source(source, tmp_path):
    router = make(True)
    (tmp_path / "link").symlink_to(source)
    for target in (source, source / "out", tmp_path / "link" / "out", source / "0.parquet"):
        with pytest.raises(ValueError, match="target must not be the source or lie in it"):
            route_batch(router, source, target)
    with pytest.raises(ValueError, match="target must not be the source or lie in it"):
        route_batch(router, source / "0.parquet", source / "0.parquet")
    assert len(list(source.rglob("*"))) == 3


def test_the_command_says_what_it_cannot_read(source, tmp_path, capsys):
    joblib.dump(make(True), tmp_path / "router.joblib")
    (tmp_path / "junk.joblib").write_text("no pickle")
    (tmp_path / "junk.parquet").write_text("no parquet")
    empty = tmp_path / "empty.joblib"
    empty.touch()
    for router in ("none.joblib", "junk.joblib", "empty.joblib"):
        assert main(["route-batch", str(tmp_path / router), str(source), str(tmp_path / "o")]) == 2
        assert router in capsys.readouterr().err
    for name in ("none", "junk.parquet"):
        words = [str(tmp_path / "router.joblib"), str(tmp_path / name), str(tmp_path / "o")]
        assert main(["route-batch", *words]) == 2
        assert name in capsys.readouterr().err
    joblib.dump([1, 2], tmp_path / "list.joblib")
    assert main(["route-batch", str(tmp_path / "list.joblib"), str(source), "out"]) == 2
    assert "got list" in capsys.readouterr().err


# --- files that differ ----------------------------------------------------------------------


def rewrite(path, **changes):
    """The file with other columns; None takes one out."""
    table = pq.read_table(path)
    for name, column in changes.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        if column is not None:
            table = table.append_column(name, column)
    pq.write_table(table, path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


N = 777
FAULTS = {
    "lacks": (
        lambda path: rewrite(path, x=None),
        r"no column 'x' in '2.parquet' \(1 of 3 files lack it\)",
    ),
    "lacks kept": (lambda path: rewrite(path, id=None), "no column 'id' in '2.parquet'"),
    "text": (
        lambda path: rewrite(path, x=pa.array(["0.5"] * N)),
        "column 'x' is string in '2.parquet' and double in the files before it",
    ),
    "kept as float": (
        lambda path: rewrite(path, id=pa.array(np.arange(N) + 0.5)),
        "column 'id' is double in '2.parquet' and int64 in",
    ),
    "cut off": (cut, "2.parquet' of the source cannot be read, it is damaged or no Parquet"),
    "empty": (lambda path: path.write_bytes(b""), "2.parquet' of the source cannot be read"),
    "a note": (lambda path: path.write_text("see 1"), "2.parquet' of the source cannot be read"),
}


@pytest.mark.parametrize("policy", ["online", "batch"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_later_file_that_differs_is_named_before_anything_is_written(
    fault, policy, source, tmp_path, capsys
):
    spoil, message = FAULTS[fault]
    spoil(source / "2.parquet")
    with pytest.raises(ValueError, match=message):
        route_batch(make(True), source, tmp_path / "out", policy=policy, keep=["id"])
    assert not (tmp_path / "out").exists()
    if policy == "online":
        joblib.dump(make(True), tmp_path / "router.joblib")
        words = [tmp_path / "router.joblib", source, tmp_path / "out", "--keep", "id"]
        assert main(["route-batch", *map(str, words)]) == 2
        assert "2.parquet" in capsys.readouterr().err


@pytest.mark.parametrize("frame", [False, True])
def test_files_that_differ_harmlessly_are_routed_alike(frame, source, tmp_path):
    """Other types of the same values, another order of columns, columns that nobody reads."""
    options = {"keep": ["id", "other"], "columns": ["x", "y"]}
    for name, x in (("1", pa.array([], pa.null())), ("2", np.arange(N) % 2)):
        rewrite(source / f"{name}.parquet", x=pa.array(x))
    route_batch(make(frame), source, tmp_path / "plain", **options)
    plain = read(source, tmp_path / "plain")[1]
    other = pa.array(["t"] * N).dictionary_encode()
    x = pa.array((np.arange(N) % 2).astype(np.float32))
    rewrite(source / "2.parquet", other=other, x=x, id=pa.array(500 + np.arange(N, dtype="i4")))
    rewrite(source / "0.parquet", more=pa.array(range(500)), y=pq.read_table(source)["y"][:500])
    route_batch(make(frame), source, tmp_path / "out", **options)
    pd.testing.assert_frame_equal(read(source, tmp_path / "out")[1], plain)
    # All parts can be read as one table again.
    schemas = {str(pq.read_schema(path)) for path in (tmp_path / "out").glob("part-*")}
    assert len(schemas) == 1
    assert pq.read_table(tmp_path / "out").num_rows == 1277


def test_columns_by_position_must_be_those_of_all_files(source, tmp_path):
    for path in source.iterdir():
        rewrite(path, other=None)
    assert route_batch(make(False), source, tmp_path / "first", keep=["id"]).n_rows == 1277
    rewrite(source / "2.parquet", z=pa.array(np.zeros(N)))
    with pytest.raises(ValueError, match="column 'z' in '2.parquet' that '0.parquet' lacks"):
        route_batch(make(False), source, tmp_path / "out", keep=["id"])
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="has no files"):
        route_batch(make(False), tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["online", "batch"])
def test_a_file_whose_rows_the_router_refuses_is_named(policy, source, tmp_path, capsys):
    """A missing value in the last of many files is found when it is read: in which, and how."""
    table = pq.read_table(source / "2.parquet").to_pandas()
    pq.write_table(pa.Table.from_pandas(table.assign(x=np.nan)), source / "2.parquet")
    joblib.dump(make(True), tmp_path / "router.joblib")
    words = [tmp_path / "router.joblib", source, tmp_path / "out", "--policy", policy]
    assert main(["route-batch", *map(str, words)]) == 2
    told = capsys.readouterr().err
    assert "NaN" in told and "the quality estimate of '2.parquet' with 777 rows" in told
