"""Parquet in, Parquet out."""

import joblib
import numpy as np
import pytest
from sklearn.linear_model import Ridge

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
    assert done == (1277, 3, 0, pytest.approx(parts["cost"].mean()), pytest.approx(quality.mean()))
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
