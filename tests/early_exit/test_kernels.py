"""Kernels at their edges, and one row as any array."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble
from skroute.early_exit._algorithms import lagrangian_path, qwyc_order
from skroute.forests import FastForest
from tests.early_exit.reference import leaving, qwyc_order_reference, random_scores

lgb = pytest.importorskip("lightgbm")


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("spread", [0, 3])
def test_kernel_order_search_equals_its_numpy_twin(n_outputs, sides, spread):
    if n_outputs > 1:
        sides = (False, True)
    for seed in range(4):
        scores = random_scores(seed, n_outputs=n_outputs)
        costs = np.random.RandomState(seed).randint(1, 4, len(scores)).astype(float)
        arguments = (scores, np.full(n_outputs, 0.1), 0.2, costs, 0.08, *sides, spread)
        expected = qwyc_order_reference(*arguments)
        for n_jobs in (None, 2):
            for got, twin in zip(qwyc_order(*arguments, n_jobs=n_jobs), expected):
                np.testing.assert_array_equal(got, twin)
        assert sorted(expected[0]) == list(range(len(scores)))


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
        model = lgb.LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1).fit(
            X, y
        )
    elif kind == "expit":
        model = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5).fit(X, y)
    else:
        model = RandomForestClassifier(8, random_state=0).fit(X, y)
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.2, calibration=None).optimize(
        X
    )
    fast = FastForest.from_ensemble(model)
    X = X.astype(np.float32 if single else np.float64)
    behind = np.zeros(X.itemsize * 4 + 1, np.uint8)[1:].view(X.dtype).reshape(1, 4)
    assert not behind.flags.aligned
    estimators = (quick, fast)
    expected = [(model.predict(X), model.predict_proba(X)) for model in estimators]
    for i, row in enumerate(X[:12]):
        behind[0] = row
        backwards = np.ascontiguousarray(X[i : i + 1, ::-1])[:, ::-1]
        for array in (X[i : i + 1], behind, backwards, X[:12][i :: len(X)]):
            for model, (label, proba) in zip(estimators, expected):
                assert model.predict(array) == label[i]
                np.testing.assert_allclose(
                    model.predict_proba(array),
                    proba[i : i + 1],
                    rtol=1e-14 * (model is quick),
                )
    for other in (X[0], X[:1, :3], X[None], X[:0]):
        for call in (
            quick.predict,
            quick.predict_proba,
            fast.predict,
            fast.predict_proba,
        ):
            with pytest.raises(ValueError):
                call(other)
