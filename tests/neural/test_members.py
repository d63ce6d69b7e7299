"""Nets of skorch as members of every decision estimator."""

import os
import subprocess
import sys

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeRegressor

from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import PolyDomSelector
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.routing import (
    BudgetRouter,
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)

torch = pytest.importorskip("torch")
skorch = pytest.importorskip("skorch")

from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor  # noqa: E402
from skorch.helper import SliceDataset  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*early exit:UserWarning"),
    pytest.mark.filterwarnings("ignore:On validation rows:UserWarning"),
]


class Conv(nn.Module):
    """A convolutional net that notes what it is given."""

    def __init__(self, width=2, n_out=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=4), nn.ReLU(), nn.Flatten()
        )
        self.penultimate = nn.Sequential(nn.Linear(16 * width, 8), nn.Tanh())
        self.head = nn.Linear(8, n_out)
        self.seen = []

    def forward(self, x):
        if not self.training:
            self.seen.append((len(x), x.dtype, x.device))
        return self.head(self.penultimate(self.features(x)))


class Dense(nn.Module):
    """A linear net whose number of outputs is that of the target."""

    def __init__(self, n_out=2):
        super().__init__()
        self.head = nn.LazyLinear(n_out)

    def forward(self, x):
        return self.head(x)


class OutputsOfTarget(skorch.callbacks.Callback):
    def on_train_begin(self, net, X=None, y=None, **kwargs):
        net.set_params(module__n_out=y.shape[1])


class FloatTarget(nn.BCEWithLogitsLoss):
    """Labels may be integers, as scikit-learn's cross-validation makes them."""

    def forward(self, output, target):
        return super().forward(output, target.to(output.dtype))


COMMON = {"train_split": None, "verbose": 0, "max_epochs": 2, "lr": 0.1}


def conv(width=2, **params):
    torch.manual_seed(width)
    params = {**COMMON, "batch_size": 32, **params}
    return NeuralNetClassifier(
        Conv, module__width=width, criterion=nn.CrossEntropyLoss, **params
    )


def dense(**params):
    return NeuralNetClassifier(
        Dense, criterion=nn.CrossEntropyLoss, **{**COMMON, **params}
    )


def binary():
    return NeuralNetBinaryClassifier(
        Dense, module__n_out=1, criterion=FloatTarget, **COMMON
    )


class Regressor(NeuralNetRegressor):
    """Its targets get the type of its answers, as torch needs before 2.13."""

    def get_loss(self, y_pred, y_true, *args, **kwargs):
        return super().get_loss(y_pred, y_true.to(y_pred.dtype), *args, **kwargs)


def regressor():
    return Regressor(Dense, callbacks=[OutputsOfTarget()], **COMMON)


def images(n=90, seed=0):
    """Channel images of three classes, one brighter band each, in float32."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    y[:3] = range(3)
    X = rng.normal(size=(n, 1, 16, 16)).astype(np.float32)
    for label in range(3):
        X[y == label, 0, 4 * label : 4 * label + 4] += 1
    return X, y


def rows(n=120, seed=0):
    """Rows of two classes in float32."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return X, (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(np.int64)


def seen(member):
    """Rows, dtypes and devices that a net has been given since the last call, emptied."""
    net = getattr(member, "estimator", member)
    found = list(net.module_.seen)
    net.module_.seen.clear()
    return (
        sum(n for n, _, _ in found),
        {d for _, d, _ in found},
        {str(d) for _, _, d in found},
    )


COSTS = {"small": 1.0, "large": 3.0}
QUICK = {
    "costs": COSTS,
    "quality_estimator": DecisionTreeRegressor(max_depth=3),
    "cv": 2,
}


def members():
    return [("small", conv(1)), ("large", conv(3))]


class Same(FunctionTransformer):
    """What a net embeds whose units are all dead: rows tie at the price."""

    def transform(self, X):
        return np.zeros((len(X), 1))


ROUTERS = {
    "occam": OccamRouterClassifier(
        members(), costs=COSTS, budget=3.0, embedding="small", cv=2
    ),
    "occam tied": OccamRouterClassifier(
        [("small", conv(1, lr=1e-6)), ("large", conv(3, max_epochs=60, lr=0.5))],
        costs=COSTS,
        budget=2.0,
        embedding=Same(),
        cv=2,
    ),
    "occam time": OccamRouterClassifier(
        members(), costs="time", embedding="small", cv=2
    ),
    "single best": DummyRouterClassifier(members(), costs=COSTS, cv=2),
    "random": DummyRouterClassifier(
        members(), costs=COSTS, budget=2.0, strategy="random", cv=2
    ),
    "oracle": DummyRouterClassifier(members(), costs=COSTS, strategy="oracle", cv=2),
    "frugal mct": FrugalMCTClassifier(members(), budget=2.0, **QUICK),
    "frugal ml": FrugalMLClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    "sequential": SequentialRouterClassifier(
        members(), budget=2.0, n_prices=3, **QUICK
    ),
    "early exit": QWYCEnsemble([conv(1), conv(3)], alpha=0.2, random_state=0),
}
# Where rows are drawn at random at the budget above.
DRAWING = {"random", "frugal ml", "sequential", "occam tied"}


def kinds(X, y):
    """Each container of rows with the labels to go with it."""
    return {
        "array": (X, y),
        "tensor": (torch.from_numpy(X), torch.from_numpy(y)),
        "data set": (
            torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),
            y,
        ),
        "slice": (SliceDataset(skorch.dataset.Dataset(X, y)), y),
    }


@pytest.mark.parametrize("name", ROUTERS)
def test_routers_take_images_in_any_container(name, tmp_path):
    """The same rows are routed and answered alike, in float32, in whatever they come."""
    X, y = images()
    router = clone(ROUTERS[name]).fit(X, y)
    assert (router.costs_ > 0).all() or name != "occam time"
    told = {"y_true": y} if name == "oracle" else {}
    expected = router.predict_routed(X, **told)
    if name == "occam tied":
        assert 0 < np.mean(expected.route) < 1
    joblib.dump(router, tmp_path / "router.joblib")
    loaded = joblib.load(tmp_path / "router.joblib")
    for part, same in zip(loaded.predict_routed(X, **told), expected):
        np.testing.assert_array_equal(part, same)
    fitted = getattr(router, "estimators_", None) or router.estimator_
    for member in fitted:
        seen(member)
    for kind, (rows_, _) in kinds(X, y).items():
        routed = router.predict_routed(rows_, **told)
        if kind == "data set" and name in DRAWING:
            # Its rows are drawn by their position, since reading them would load them twice.
            assert abs(routed.cost.mean() - expected.cost.mean()) < 0.5
            expected = routed
            order = np.arange(len(X))[::-1]
            again = router.route(SliceDataset(rows_, indices=order))
            np.testing.assert_array_equal(again, routed.route[order])
            for member in fitted:
                seen(member)
            continue
        for part, same in zip(routed, expected):
            np.testing.assert_array_equal(part, same)
        for member in fitted:
            n, dtypes, devices = seen(member)
            assert dtypes <= {torch.float32} and devices <= {"cpu"}
            # The oracle asks every member first, and then the one that it has chosen.
            assert n <= len(X) * (2 if told else 1)


@pytest.mark.parametrize("kind", ["tensor", "data set", "slice"])
@pytest.mark.parametrize(
    "name", ["occam", "random", "frugal mct", "sequential", "early exit"]
)
def test_routers_fit_on_any_container(name, kind):
    X, y = images()
    rows_, labels = kinds(X, y)[kind]
    router = clone(ROUTERS[name]).fit(rows_, labels)
    assert router.predict(rows_).shape == (len(y),)
    assert 0 <= router.score(rows_, labels) <= 1


def test_calls_and_batches_are_counted():
    """A net sees its own rows only, in batches of its own size."""
    X, y = images(100)
    fitted = [(n, FrozenEstimator(m.fit(X, y))) for n, m in members()]
    router = SequentialRouterClassifier(fitted, budget=2.0, n_prices=3, **QUICK)
    router.fit(X, y)
    for member in router.estimators_:
        seen(member)
    route = router.predict_routed(X).route
    for k, member in enumerate(router.estimators_):
        sizes = [n for n, _, _ in member.estimator.module_.seen]
        assert sum(sizes) == router.choice_members_[route, k].sum()
        assert max(sizes, default=0) <= 32


def test_images_that_cannot_be_read_are_refused_where_they_are():
    X, y = images()
    with pytest.raises(ValueError, match=r"X has the shape \(90, 1, 16, 16\)"):
        OccamRouterClassifier(members(), costs=COSTS, cv=2).fit(X, y)
    router = clone(ROUTERS["single best"]).fit(X, y)
    X[3, 0, 2, 2] = np.nan
    for bad in (X, torch.from_numpy(X)):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            router.predict(bad)
    with pytest.raises(ValueError, match="0 sample"):
        router.predict(torch.empty(0, 1, 16, 16))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        router.predict(torch.ones(5))
    # Numbers that cannot be NaN need no look.
    integers = torch.zeros(4, 1, 16, 16, dtype=torch.int64)
    with pytest.raises(RuntimeError) as caught:
        router.predict(integers)
    assert "rows" in caught.value.__notes__[-1]


def test_labels_that_a_net_cannot_name():
    """skorch answers with positions: other labels are an error, not a wrong answer."""
    X, y = rows()
    router = DummyRouterClassifier([("net", dense())], costs=[1.0], cv=2)
    with pytest.raises(ValueError, match="not among the labels") as caught:
        router.set_params(net__module__n_out=7).fit(X, y + 5).predict(X)
    assert "'net'" in caught.value.__notes__[0]
    mct = FrugalMLClassifier(
        [("net", FrozenEstimator(dense(module__n_out=3).fit(X, y)))], costs=[1.0]
    )
    with pytest.raises(ValueError, match="3 columns, but classes_ names 2"):
        mct.fit(X, y)


@pytest.mark.parametrize(
    "estimator",
    [
        OccamRouterClassifier(
            [("a", LogisticRegression()), ("b", binary())], costs=[1, 3], budget=2, cv=2
        ),
        SequentialRouterClassifier(
            [("a", dense()), ("b", binary())], costs=[1, 3], budget=2, cv=2, n_prices=2
        ),
        QWYCEnsemble([dense(), binary()], alpha=0.2, random_state=0),
        AdaptGatingClassifier(
            binary(), gate=BoostedGate(max_iter=2, n_estimators=3), p_full=0.5, cv=2
        ),
        PolyDomSelector(
            binary(),
            {"a": [0], "b": [1, 2]},
            costs={"a": 1, "b": 2},
            cv=2,
            monotonicity_tol=1.0,
        ),
    ],
    ids=lambda e: type(e).__name__,
)
def test_two_class_nets(estimator):
    X, y = rows()
    model = clone(estimator).fit(X, y)
    y_pred, _, cost = model.predict_routed(X)
    assert set(y_pred) <= {0, 1} and (cost >= 0).all()
    assert (model.predict_proba(X) if hasattr(model, "predict_proba") else X).ndim == 2


def test_a_net_estimates_quality_from_a_log():
    X, y = rows()
    quality = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(float)
    router = BudgetRouter(regressor().set_params(max_epochs=20), costs=[1.0, 1.0], cv=2)
    for features in (X, torch.from_numpy(X)):
        router.fit(features, quality)
        assert router.predict_quality(features).shape == (120, 2)
        assert router.score(features, quality) > quality.mean()


@pytest.mark.filterwarnings("ignore:Setting self.device:UserWarning")
def test_a_router_from_a_gpu_loads_without_one(tmp_path, monkeypatch):
    """What a pickle from a machine with CUDA says is made good when there is none."""
    X, y = images()
    net = conv(1).fit(X, y)
    router = DummyRouterClassifier([("net", FrozenEstimator(net))], costs=[1.0]).fit(
        X, y
    )
    expected = router.predict(X)
    # The tensors are on the CPU here, but the net says that it ran on a GPU.
    net.device = "cuda"
    joblib.dump(router, tmp_path / "router.joblib")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(skorch.exceptions.DeviceWarning, match="CUDA"):
        loaded = joblib.load(tmp_path / "router.joblib")
    assert str(loaded.estimators_[0].estimator.device) == "cpu"
    np.testing.assert_array_equal(loaded.predict(X), expected)


class TestCuda:
    pytestmark = [
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ]

    def router(self, **params):
        X, y = images(seed=1)
        nets = [
            (name, FrozenEstimator(conv(width, device="cuda").fit(X, y)))
            for name, width in (("small", 1), ("large", 3))
        ]
        return OccamRouterClassifier(
            nets, costs="time", embedding="small", cv=2, **params
        )

    def test_rows_stay_on_the_device(self):
        X, y = images()
        X_cuda = torch.from_numpy(X).cuda()
        router = self.router().fit(X_cuda, y)
        for member in router.estimators_:
            seen(member)
        y_pred = router.predict(X_cuda)
        for member in router.estimators_:
            assert seen(member)[2] <= {"cuda:0"}
        np.testing.assert_array_equal(y_pred, router.predict(X))

    def test_joblib_round_trip_to_a_host_without_a_gpu(self, tmp_path):
        X, y = images()
        router = self.router().fit(X, y)
        path = str(tmp_path / "router.joblib")
        joblib.dump((router, X), path)
        script = (
            "import joblib, sys; router, X = joblib.load(sys.argv[1]); "
            "joblib.dump((router.predict(X), router), sys.argv[1])"
        )
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(
            [sys.executable, "-c", script, path], check=True, env=environment
        )
        y_pred, back = joblib.load(path)
        np.testing.assert_array_equal(y_pred, router.predict(X))
        np.testing.assert_array_equal(back.predict(X), y_pred)
