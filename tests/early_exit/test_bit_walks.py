"""Early exit by bit vectors against the walk from leaf to leaf: answers and exits, bit for bit."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble, _forest_engine
from skroute.early_exit._algorithms import checked
from skroute.early_exit._forest_engine import ForestEngine
from skroute.utils._validation import read_only
from tests.forests.test_bitvector import forests


def thresholds_near(rng, engine, X, kind):
    """Pairs at partial sums, between them, or where nothing or everything leaves."""
    scores = engine.member_scores(X).astype(np.float64)
    total = engine.offset + np.cumsum(scores, axis=0)
    if engine.n_outputs > 1:
        top = np.sort(total, axis=2)
        value = top[:, :, -1] - top[:, :, -2]
    else:
        value = total[:, :, 0]
    with np.errstate(invalid="ignore"):
        low, high = np.sort(
            np.quantile(value, rng.random((2, len(value))), axis=1), axis=0
        )[:, np.arange(len(value)), np.arange(len(value))]
    low, high = np.nan_to_num(low), np.nan_to_num(high)
    none = rng.random((2, len(value))) < {"few": 0.7, "many": 0.1, "never": 1.0}[kind]
    low[none[0]], high[none[1]] = -np.inf, np.inf
    if engine.n_outputs > 1:
        low[:] = -np.inf
    if rng.random() < 0.1:
        low[-1], high[-1] = np.inf, -np.inf
    # Read-only as those of estimators: kernels would be compiled again for others.
    return checked((low, high), engine.n_members)


@pytest.fixture(autouse=True)
def early_stages(monkeypatch):
    """Stages that end after few positions, and chunks of few rows, in forests of few trees."""
    monkeypatch.setattr(_forest_engine, "_STAGE_ENDS", (1, 3))
    monkeypatch.setattr(_forest_engine, "_CHUNK", 700)
    monkeypatch.setattr(_forest_engine, "_FEWEST_ROWS", 48)


@settings(max_examples=100, deadline=None)
@given(drawn=forests(), data=st.data())
def test_scores_members_and_sides_are_those_of_the_walk(drawn, data):
    forest, X = drawn
    X = np.tile(X, (-(-60 // len(X)), 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    # What each library refuses does not matter here.
    forest = replace(
        forest,
        read_rule=replace(forest.read_rule, finite=False),
        offset=read_only(rng.normal(size=forest.n_outputs)),
    )
    engine, walk = ForestEngine(forest), ForestEngine(forest)
    walk._layouts = ()
    thresholds = thresholds_near(
        rng, walk, X, data.draw(st.sampled_from(["few", "many", "never"]))
    )
    n_jobs = data.draw(st.sampled_from([1, 2]))
    assert engine._layouts is not None
    for ours, expected in zip(
        engine.walk(X, thresholds, n_jobs), walk.walk(X, thresholds)
    ):
        np.testing.assert_array_equal(ours, expected)
        assert np.array_equal(np.signbit(ours), np.signbit(expected))


@settings(max_examples=10, deadline=None)
@given(drawn=forests(most_leaves=90))
def test_the_shape_of_the_forest_chooses_the_walk(drawn):
    forest, _ = drawn
    forest = replace(forest, read_rule=replace(forest.read_rule, finite=False))
    nodes = forest.trees.nodes
    most = np.add.reduceat(
        nodes["child"] == np.arange(len(nodes)), forest.trees.roots
    ).max()
    assert (ForestEngine(forest)._layouts is None) == (most > 64)


@pytest.mark.parametrize("missing", [False, True])
def test_rows_that_have_left_are_moved_out_and_not_binned_again(monkeypatch, missing):
    """The tests of trees that are evaluated, and the cells that are binned, are counted."""
    lgb = pytest.importorskip("lightgbm")
    X, y = make_classification(4000, class_sep=0.5, random_state=0)
    X[::9, 3] = np.nan if missing else 0.0
    model = lgb.LGBMClassifier(n_estimators=40, max_depth=4, verbose=-1, n_jobs=1).fit(
        X, y
    )
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.02, random_state=0).optimize(X)
    engine, asked = quick._engine, []

    def counted(X, rows, n_rows, first, bits, *rest):
        asked.append((n_rows, len(bits.columns.feature)))
        return inner(X, rows, n_rows, first, bits, *rest)

    inner = _forest_engine.walk_stage
    monkeypatch.setattr(_forest_engine, "walk_stage", counted)
    chosen = quick.tradeoff_.thresholds[quick.tradeoff_.chosen]
    members = engine.walk(X[:700], checked(chosen, engine.n_members)).n_evaluated
    ends = [0, 1, 3]
    assert (members > 3).any() and (members == 1).any()
    assert [n for n, _ in asked] == [int((members > end).sum()) for end in ends]
    # The first tree reads fewer features than there are.
    assert asked[0][1] <= 15 < asked[-1][1]
    assert engine._layouts and "_layouts" not in vars(
        pickle.loads(pickle.dumps(engine))
    )


def test_members_of_several_trees_with_two_classes():
    """All rows of these members once left at the first position."""
    xgb = pytest.importorskip("xgboost")
    X, y = make_classification(3000, random_state=0)
    X = X.astype(np.float32)
    model = xgb.XGBClassifier(
        n_estimators=12, num_parallel_tree=3, subsample=0.5, n_jobs=1
    )
    model.fit(X[:1000], y[:1000])
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.02, random_state=0).optimize(
        X[1000:2000]
    )
    rows = X[2000:]
    for batch in (rows, rows[:40]):
        assert np.mean(quick.predict(batch) != model.predict(batch)) <= 0.06
        assert 1 < quick.predict_cost(batch).mean() < 12
    np.testing.assert_array_equal(quick.predict(rows[:1]), quick.predict(rows)[:1])
