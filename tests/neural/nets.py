"""Small nets for the tests, at module level so that they pickle."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
skorch = pytest.importorskip("skorch")

from skorch import NeuralNetBinaryClassifier, NeuralNetClassifier, NeuralNetRegressor  # noqa: E402
from torch import nn  # noqa: E402

cuda = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Conv(nn.Module):
    """A convolutional net that notes what it is given."""

    def __init__(self, width=2, n_out=3):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3, stride=4), nn.ReLU(), nn.Flatten())
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
    return NeuralNetClassifier(Conv, module__width=width, criterion=nn.CrossEntropyLoss, **params)


def dense(**params):
    return NeuralNetClassifier(Dense, criterion=nn.CrossEntropyLoss, **{**COMMON, **params})


def binary():
    return NeuralNetBinaryClassifier(Dense, module__n_out=1, criterion=FloatTarget, **COMMON)


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
    return sum(n for n, _, _ in found), {d for _, d, _ in found}, {str(d) for _, _, d in found}
