"""The kernels interpreted: what is compiled is what is written."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import (
    QWYCEnsemble,
    _bit_walks,
    _forest_engine,
    _kernels,
)
from skroute.early_exit._engines import ensemble_engine
from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._order import qwyc_order
from skroute.early_exit._thresholds import lagrangian_path, running_values
from skroute.forests import FastForest, _bitvector_kernels
from skroute.forests import _kernels as forest_kernels
from tests.early_exit.reference import leaving

lgb = pytest.importorskip("lightgbm")


@pytest.fixture
def interpreted(monkeypatch):
    def switch():
        modules = _kernels, forest_kernels, _bitvector_kernels, _bit_walks
        for module in modules:
            for name, item in list(vars(module).items()):
                if hasattr(item, "py_func"):
                    monkeypatch.setattr(module, name, item.py_func)
        # An instruction of the machine.
        monkeypatch.setattr(
            _bitvector_kernels, "_lowest_bit", lambda x: (int(x) & -int(x)).bit_length() - 1
        )

    yield switch


def model_and_rows(kind):
    n_classes = 3 if kind in ("iterations", "forest of three") else 2
    X, y = make_classification(
        90, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0
    )
    X[:, 0] = np.arange(90) % 8
    X[::7, 1] = np.nan
    X[::5, 2] = 0.0
    if kind.startswith("forest"):
        depth = None if kind == "forest of three" else 9
        return RandomForestClassifier(5, max_depth=depth, random_state=0).fit(X, y), X
    special = kind == "special"
    if special:
        y = (X[:, 0] % 3 == 0) ^ (X[:, 3] > 0)
    model = lgb.LGBMClassifier(
        n_estimators=6,
        num_leaves=20,
        min_child_samples=2,
        min_data_per_group=1,
        cat_smooth=1,
        cat_l2=1,
        n_jobs=1,
        zero_as_missing=special,
        verbose=-1,
    )
    model.fit(X, y, categorical_feature=[0] if special else [])
    X[0, 0] = -3.0
    return model, X


@pytest.mark.parametrize("kind", ["numbers", "special", "iterations", "forest", "forest of three"])
def test_everything_interpreted(kind, interpreted, monkeypatch):
    monkeypatch.setattr(_forest_engine, "_FEWEST_ROWS", 48)
    model, X = model_and_rows(kind)
    engine, _ = ensemble_engine(model)
    n = engine.n_members

    def run():
        scores = engine.scores(X)
        sides = (engine.n_outputs == 1, True)
        out = [scores]
        for options in (sides, (False, True), (True, False)):
            if engine.n_outputs > 1 and options != sides:
                continue
            known = scores, engine.offset, engine.beta, np.ones(n), 0.06
            found = qwyc_order(*known, *options)
            out += qwyc_order(*known, *options, 4)
            values, bad = running_values(scores, found[0], engine.offset, engine.beta)
            path = lagrangian_path(values, bad, np.ones(n), [40.0, 3.0, 0.1], *options)
            out += [*found, *np.ravel(path)]
        # A part of the rows leaves at each position.
        lo, hi = np.quantile(values, [0.2, 0.7], axis=1)
        out += engine.walk(X, ExitThresholds(lo, hi))
        return out

    compiled = run()
    interpreted()
    for one, two in zip(compiled, run()):
        np.testing.assert_allclose(one, two)


def test_thresholds_without_rows_left():
    values = np.array([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]], dtype=np.float32)
    bad = np.broadcast_to(np.array([False, True]), values.shape)
    path = lagrangian_path(values, bad, np.ones(3), [100.0, 50.0])
    position, _ = leaving(values, *path[-1])
    np.testing.assert_array_equal(position, [0, 0])


@pytest.mark.filterwarnings("ignore:alpha=")
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", ["one class", "sigmoid", "expit", "mean"])
def test_one_row_as_any_array_is_a_row_of_many(kind, single):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = np.array(["a", "b"])[(X[:, 0] > X[:, 1]).astype(int)]
    y = np.full(60, "a") if kind == "one class" else y
    if kind == "sigmoid":
        model = lgb.LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1).fit(X, y)
    elif kind == "expit":
        model = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5).fit(X, y)
    else:
        model = RandomForestClassifier(8, random_state=0).fit(X, y)
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.2, calibration=None).optimize(X)
    fast = FastForest.from_ensemble(model)
    X = X.astype(np.float32 if single else np.float64)
    behind = np.zeros(X.itemsize * 4 + 1, np.uint8)[1:].view(X.dtype).reshape(1, 4)
    assert not behind.flags.aligned
    for i, row in enumerate(X[:12]):
        behind[0] = row
        backwards = np.ascontiguousarray(X[i : i + 1, ::-1])[:, ::-1]
        for one in (X[i : i + 1], behind, backwards, X[:12][i :: len(X)]):
            assert quick.predict(one) == quick.predict(X)[i]
            found = quick.predict_proba(one)
            assert found.shape == (1, len(model.classes_))
            np.testing.assert_allclose(found[0], quick.predict_proba(X)[i], rtol=1e-14)
            assert fast.predict(one) == fast.predict(X)[i]
            np.testing.assert_array_equal(fast.predict_proba(one)[0], fast.predict_proba(X)[i])
    for other in (X[0], X[:1, :3], X[None], X[:0]):
        for call in (quick.predict, quick.predict_proba, fast.predict, fast.predict_proba):
            with pytest.raises(ValueError):
                call(other)
