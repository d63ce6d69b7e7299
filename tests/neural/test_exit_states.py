"""What a multi-exit net holds and copies: hidden states, rows, weights, generators."""

import pickle
import weakref
from collections import OrderedDict, namedtuple
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from skroute.early_exit import QWYCEnsemble
from skroute.members import CallableClassifier, MultiExitClassifier
from skroute.routing import OnlineBudgetRouter
from skroute.utils import _timing
from tests.estimators import ESTIMATORS

torch = pytest.importorskip("torch")
SliceDataset = pytest.importorskip("skorch.helper").SliceDataset
nn = torch.nn

Pair = namedtuple("Pair", "first second")


class Output(OrderedDict):
    """As the outputs of Hugging Face's models: a mapping with attributes."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


# How a stage wraps its tensor, and how the next part finds it again.
FORMS = {
    "tensor": (lambda t: t, lambda s: s),
    "tuple": (lambda t: (t, t), lambda s: s[0]),
    "list": (lambda t: [t], lambda s: s[0]),
    "dict": (lambda t: {"a": t, "b": (t,)}, lambda s: s["b"][0]),
    "namedtuple": (lambda t: Pair(t, None), lambda s: s.first),
    "output": (lambda t: Output(last=t), lambda s: s.last),
    "none": (lambda t: (t, None, ()), lambda s: s[0]),
}


class Stage(nn.Module):
    def __init__(self, n_in, n_out, form, inplace):
        super().__init__()
        self.linear, self.form, self.inplace = nn.Linear(n_in, n_out), form, inplace

    def forward(self, state):
        wrap, find = FORMS[self.form]
        tensor = state if isinstance(state, torch.Tensor) else find(state)
        if self.inplace:
            tensor = tensor.mul_(0.5)
        return wrap(self.linear(tensor))


class Head(Stage):
    def forward(self, state):
        tensor = FORMS[self.form][1](state)
        return self.linear(torch.relu_(tensor) if self.inplace else torch.relu(tensor))


def problem(n=400, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    centers = 1.5 * np.random.default_rng(0).normal(size=(n_classes, 6))
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = range(n_classes)
    return (centers[y] + rng.normal(size=(n, 6))).astype(np.float32), y


class Builder:
    """A net of three stages, with what is drawn about them."""

    def __init__(
        self, form="tensor", heads=(False, False, False), stages=(False, False, False)
    ):
        self.form, self.heads, self.stages = form, heads, stages

    def __call__(self, n_features, n_classes):
        widths = [n_features, 8, 6, 8]
        net = nn.Module()
        net.stages = nn.ModuleList(
            [
                Stage(widths[k], widths[k + 1], self.form, self.stages[k])
                for k in range(3)
            ]
        )
        net.heads = nn.ModuleList(
            [Head(widths[k + 1], n_classes, self.form, self.heads[k]) for k in range(3)]
        )
        return net


three = st.tuples(st.booleans(), st.booleans(), st.booleans())


@settings(max_examples=18, deadline=None)
@given(
    form=st.sampled_from(sorted(FORMS)),
    heads=three,
    stages=three,
    trained=st.booleans(),
    batch=st.sampled_from([7, 64, 1000]),
    as_tensor=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_whatever_is_asked_on_the_way_predict_is_the_answer(
    form, heads, stages, trained, batch, as_tensor, seed
):
    """Forms of states, heads and stages that work in place, batches, order of asking."""
    X, y = problem(120)
    # In training torch itself refuses a stage that changes what a head before it needs.
    builder = Builder(form, heads, stages if trained else (stages[0], False, False))
    module = builder if not trained else builder(6, 3)
    net = MultiExitClassifier(
        module, max_epochs=0 if trained else 1, eval_batch_size=batch, random_state=0
    )
    given_rows = torch.as_tensor(X) if as_tensor else X
    before = X.copy()
    net.fit(given_rows, y)
    # The whole net in torch alone.
    staged, state = [], torch.as_tensor(X).clone()
    with torch.no_grad():
        for stage, head in zip(net.module_.stages, net.module_.heads):
            state = stage(state)
            staged.append(torch.softmax(head(deepcopy(state)), dim=1).numpy())
    np.testing.assert_allclose(
        np.stack(list(net.staged_predict_proba(X))), staged, atol=1e-5
    )
    proba = net.predict_proba(given_rows)
    np.testing.assert_allclose(staged[-1], proba, atol=1e-5)
    rng = np.random.default_rng(seed)
    run = net.start(given_rows)
    for exit in range(3):
        part = rng.permutation(np.flatnonzero(run.depth <= exit))[
            : rng.integers(0, 100)
        ]
        if rng.random() < 0.3:
            run.branch().logits(exit, part)
        np.testing.assert_allclose(run.proba(exit, part), staged[exit][part], atol=1e-5)
        if rng.random() < 0.3:
            run.release(rng.permutation(120)[:40])
    with pytest.raises(ValueError, match="Exit 0 has been passed already"):
        run.logits(0)
    rest = np.flatnonzero(run.depth < 3)
    np.testing.assert_allclose(run.proba(2, rest), proba[rest], atol=1e-5)
    np.testing.assert_array_equal(np.asarray(given_rows), before)
    assert all(parameter.grad is None for parameter in net.module_.parameters())


@pytest.mark.parametrize(
    "wrap, error, message",
    [
        (
            lambda t: {"a": t, "position": torch.arange(9.0)},
            ValueError,
            r"\(9,\).* for 2 rows",
        ),
        (lambda t: t[None], ValueError, r"\(1, 2, 8\).* for 2 rows from stage 0"),
        (lambda t: (t, torch.zeros(2)), ValueError, r"\(2,\).* for 1 rows"),
        (lambda t: (t, len(t)), TypeError, "cannot hold a int"),
        (lambda t: (), ValueError, "one entry for each row"),
    ],
)
def test_states_that_rows_cannot_be_taken_from_are_refused_in_fit(
    wrap, error, message, monkeypatch
):
    monkeypatch.setitem(
        FORMS, "odd", (wrap, lambda s: s[0] if isinstance(s, tuple) else s)
    )
    X, y = problem(40)
    net = MultiExitClassifier(Builder("odd"), max_epochs=0)
    with pytest.raises(error, match=message):
        net.fit(X, y)
    assert not hasattr(net, "classes_")


def test_rows_that_have_left_are_not_held():
    X, y = problem(1500)
    net = MultiExitClassifier(Builder(), max_epochs=0, eval_batch_size=100).fit(X, y)
    order = np.random.default_rng(0).permutation(1500)
    run = net.start(X)
    run.logits(0)
    assert sum(len(rows) for rows, _ in run._held[1]) == 1500
    for start in range(0, 1400, 100):
        run.logits(1, order[start : start + 100])
        run.release(order[start : start + 100])
        assert sum(len(rows) for rows, _ in run._held[1]) <= 2 * (1500 - start - 100)
    # A released row starts again.
    np.testing.assert_allclose(
        run.proba(2, order[:9]), net.predict_proba(X[order[:9]]), atol=1e-6
    )


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "staged"])
def test_answers_hold_a_batch_at_most(ask):
    """Live hidden states are counted where they are made."""
    X, y = problem(2000)
    net = MultiExitClassifier(Builder(), max_epochs=0, eval_batch_size=50).fit(X, y)
    alive, most = weakref.WeakSet(), 0

    def note(module, args, output):
        nonlocal most
        alive.add(output)
        most = max(most, sum(len(tensor) for tensor in alive))

    for stage in net.module_.stages:
        stage.register_forward_hook(note)
    {
        "predict": lambda: net.predict(X),
        "predict_proba": lambda: net.predict_proba(X),
        "staged": lambda: list(net.staged_predict_proba(X)),
    }[ask]()
    assert 50 <= most <= 150


def test_a_failed_call_can_be_made_again():
    X, y = problem(90)
    net = MultiExitClassifier(Builder(), max_epochs=0, eval_batch_size=20).fit(X, y)
    run, expected = net.start(X), net.predict_proba(X)
    run.logits(0)
    calls = []

    def fail_once(module, args):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of memory")

    net.module_.stages[1].register_forward_pre_hook(fail_once)
    with pytest.raises(RuntimeError, match="out of memory"):
        run.logits(1)
    rest = np.flatnonzero(run.depth < 2)
    assert len(rest) == 50
    run.logits(1, rest)
    np.testing.assert_allclose(run.proba(2), expected, atol=1e-6)
    assert (
        run.logits(2, []).shape
        == net.start(X).logits(0, np.array([], dtype=int)).shape
        == (0, 3)
    )


@pytest.mark.parametrize("as_tensor", [True, False])
def test_a_trained_net_is_neither_copied_nor_are_its_rows_cast(as_tensor, monkeypatch):
    module = Builder()(6, 3)
    X, y = problem(1000)
    X = (40 * np.abs(X)).astype(np.uint8)
    cast = []
    to = torch.Tensor.to

    def noted(self, *args, **kwargs):
        if args and isinstance(args[0], torch.dtype):
            cast.append(len(self))
        return to(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", noted)
    net = MultiExitClassifier(module, max_epochs=0)
    net.fit(torch.as_tensor(X) if as_tensor else X, y)
    assert net.module_ is module and max(cast) <= 2
    cast.clear()
    MultiExitClassifier(module, max_epochs=1, batch_size=100).fit(X, y)
    assert max(cast) <= 100
    assert pickle.loads(pickle.dumps(net)).predict(X).shape == (1000,)


def normalised(n_features, n_classes):
    net = nn.Module()
    net.stages = nn.ModuleList(
        [
            nn.Sequential(
                nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5)
            )
        ]
    )
    net.heads = nn.ModuleList([nn.Linear(8, n_classes)])
    return net


def test_training_mode_is_left_to_predict_and_one_row_may_be_in_the_last_batch():
    X, y = problem(65)
    net = MultiExitClassifier(
        normalised, max_epochs=2, batch_size=32, random_state=0
    ).fit(X, y)
    expected = net.predict_proba(X)
    for _ in range(2):
        net.module_.train()
        np.testing.assert_array_equal(net.predict_proba(X), expected)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_the_clock_waits_for_every_device_in_use(kind, monkeypatch):
    """Before and after each call that is timed, and not for one that would have to be set up."""
    log = []
    fake = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 3,
        memory_reserved=lambda device: 1024 * (device != 1),
        synchronize=lambda *device: log.append(device),
    )
    monkeypatch.setattr(torch, kind, fake)
    if kind == "mps":
        monkeypatch.setattr(torch.backends, "mps", fake)
    wait = [()] if kind == "mps" else [(0,), (2,)]
    monkeypatch.setattr(_timing, "_clock", lambda: log.append("clock") or 0.0)
    _timing.seconds_per_sample(lambda rows: log.append("call"), np.ones((5, 2)))
    assert log == ["call", *5 * [*wait, "clock", "call", *wait, "clock"]]


def test_tensors_are_checked_as_arrays_are():
    X, y = problem(40)
    tensor = torch.as_tensor(X)
    nan, infinite = tensor.clone(), tensor.clone()
    nan[3, 2], infinite[39, 0] = torch.nan, -torch.inf
    for bad, words in (
        (nan, "contains NaN"),
        (infinite, "contains infinity"),
        (nan.to(torch.bfloat16), "contains NaN"),
        (tensor[:0], "0 sample"),
        (tensor[:, 0], "Expected 2D"),
        (tensor.to(torch.complex64), "Complex data"),
    ):
        net = MultiExitClassifier(Builder(), max_epochs=0).fit(X, y)
        with pytest.raises(ValueError, match=words):
            net.predict(bad)
        with pytest.raises(ValueError, match=words):
            net.fit(bad, y[: len(bad)])


def test_data_sets_are_refused_in_words():
    X, y = problem(40)
    data = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    net = MultiExitClassifier(Builder(), max_epochs=1)
    for given_rows in (data, SliceDataset(data)):
        with pytest.raises(TypeError, match="takes arrays and tensors, got a data set"):
            net.fit(given_rows, y)
    stopped = QWYCEnsemble(net, alpha=0.1).fit(X, y)
    with pytest.raises(TypeError, match="X is a data set, but fit saw rows of"):
        stopped.predict(data)


class OnDevice(torch.Tensor):
    """A tensor that, as one on CUDA, NumPy cannot read."""

    def __array__(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_rows_with_gradients_and_labels_as_tensors():
    X, y = problem(60)
    tensor = torch.as_tensor(X).requires_grad_()
    net = MultiExitClassifier(Builder(), max_epochs=2, random_state=0)
    expected = net.fit(X, y).predict_proba(X)
    net.fit(tensor, torch.as_tensor(y))
    assert tensor.grad is None and isinstance(net.classes_, np.ndarray)
    for rows in (tensor, X):
        np.testing.assert_array_equal(net.predict_proba(rows), expected)
    with pytest.raises(ValueError, match="X has 5 features, .* is expecting 6"):
        net.predict(tensor[:, :5])
    labels = torch.as_tensor(y).as_subclass(OnDevice)
    with pytest.raises(TypeError, match="can't convert cuda"):
        np.asarray(labels)
    np.testing.assert_array_equal(net.fit(X, labels).predict_proba(X), expected)
    CallableClassifier(len, classes=[0, 1, 2]).fit(X, labels)


# Estimators that read on the host whatever rows they are given.
READERS = {
    "AdaptGatingClassifier",
    "FrameEncoder",
    "GreedyFeatureSelector",
    "OnlineBudgetRouter",
    "PolyDomSelector",
    "SequentialFeatureClassifier",
}
READING = [estimator for estimator in ESTIMATORS if type(estimator).__name__ in READERS]


@pytest.mark.parametrize(
    "estimator", READING, ids=lambda estimator: type(estimator).__name__
)
def test_rows_and_labels_are_brought_to_the_host(estimator):
    X, y = problem(80, n_classes=2)
    if isinstance(estimator, OnlineBudgetRouter):
        estimator, y = OnlineBudgetRouter(costs=[1, 2]), np.column_stack([y, 1.0 - y])
    rows, labels = (torch.as_tensor(part).as_subclass(OnDevice) for part in (X, y))
    expected, own = (clone(estimator).fit(*told) for told in ((X, y), (rows, labels)))
    view = "predict" if hasattr(expected, "predict") else "transform"
    answers = getattr(expected, view)(X)
    for fitted in (expected, own):
        np.testing.assert_array_equal(getattr(fitted, view)(rows), answers)
    if hasattr(own, "route"):
        for method in ("route", "predict_cost"):
            np.testing.assert_array_equal(
                getattr(own, method)(rows), getattr(expected, method)(X)
            )
    if hasattr(own, "score"):
        assert own.score(rows, labels) == expected.score(X, y)


def test_what_net_params_may_not_set():
    for net_params, message in (
        ({"criterion": nn.NLLLoss}, "multiple values for keyword argument 'criterion'"),
        ({"module__width": 3}, "unexpected keyword argument 'width'"),
    ):
        with pytest.raises(TypeError, match=message):
            MultiExitClassifier(Builder(), net_params=net_params).fit(*problem(40))


def test_devices():
    X, y = problem(60)
    net = MultiExitClassifier(Builder(), max_epochs=1, random_state=0)
    expected = net.fit(X, y).predict_proba(X)
    net.set_params(device=torch.device("cpu"))
    np.testing.assert_array_equal(net.fit(X, y).predict_proba(X), expected)
    for device in (3, "cuda:97", "hpu", "meta"):
        with pytest.raises(
            ValueError, match=f"device='{device}' is not available here"
        ):
            net.set_params(device=device).fit(X, y)
        assert not hasattr(net, "classes_")
    module = Builder()(6, 3)
    module.stages[1].to("meta")
    with pytest.raises(ValueError, match=r"spread over the devices \['cpu', 'meta'\]"):
        MultiExitClassifier(module, max_epochs=0).fit(X, y)
