"""Multi-exit nets in torch: stages counted, training, pickling, devices, and what is refused."""

import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.early_exit import QWYCEnsemble
from skroute.members import MultiExitClassifier
from tests.estimators import NETS
from tests.estimators import three_stages as build
from tests.neural.test_exit_states import problem as rows

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")
nn = torch.nn

from skroute.members._torch_exits import AllExits, SummedCrossEntropy  # noqa: E402


class Named(nn.Module):
    """A net as its owner wrote it: stages and heads under other names."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.blocks = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())})
        self.early = nn.Sequential(
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        )
        self.late = nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 3))


class OneVectorOfScores(nn.Module):
    """A net whose head gives one vector of scores for all rows together."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        head = nn.Linear(n_features, n_classes)
        head.register_forward_hook(lambda module, args, scores: scores.mean(dim=0))
        self.stages = nn.ModuleList([nn.Identity()])
        self.heads = nn.ModuleList([head])


NAMED = {"stages": [("conv", "relu"), "blocks.a"], "heads": ["early", "late"]}


def stage_counter(net):
    """Rows that each stage and head of a fitted net sees from now on."""
    counts = {"stages": [0] * net.n_exits_, "heads": [0] * net.n_exits_}

    def count(kind, k):
        def hook(module, args, output):
            counts[kind][k] += len(output)

        return hook

    for kind in counts:
        for k, part in enumerate(getattr(net.module_, kind)):
            part.register_forward_hook(count(kind, k))
    return counts


@pytest.fixture(scope="module")
def net():
    X, y = rows()
    return MultiExitClassifier(build, max_epochs=20, lr=0.01, random_state=0).fit(
        X[:200], y[:200]
    )


@pytest.fixture
def fresh(net):
    """A copy, so that hooks do not outlive the test."""
    return pickle.loads(pickle.dumps(net))


@parametrize_with_checks(NETS)
def test_sklearn_checks(estimator, check):
    check(estimator)


def test_exits_get_better_and_the_last_one_predicts(net):
    X, y = rows()
    staged = list(net.staged_predict_proba(X[200:]))
    assert len(staged) == net.n_exits_ == 3
    np.testing.assert_array_equal(
        net.classes_[staged[-1].argmax(axis=1)], net.predict(X[200:])
    )
    assert net.score(X[200:], y[200:]) > 0.8
    assert [set(epoch) >= {"train_loss", "dur"} for epoch in net.history_] == [
        True
    ] * 20
    assert net.history_[-1]["train_loss"] < net.history_[0]["train_loss"]


def test_the_loss_is_the_weighted_sum_of_the_exits():
    X, y = rows(50)
    module = build(6, 3)
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    scores = AllExits(module.stages, module.heads)(X)
    assert len(scores) == 3
    last = module.heads[2](module.stages[2](module.stages[1](module.stages[0](X))))
    torch.testing.assert_close(scores[0], last)
    each = [nn.functional.cross_entropy(part, y) for part in scores[::-1]]
    loss = SummedCrossEntropy([0.5, 0.0, 2.0])(scores, y)
    torch.testing.assert_close(loss, 0.5 * each[0] + 2.0 * each[2])


def test_the_module_given_is_not_changed_and_training_starts_from_it():
    X, y = rows()
    module = build(6, 3)
    before = [p.detach().clone() for p in module.parameters()]
    state = torch.random.get_rng_state()
    net = MultiExitClassifier(module, max_epochs=1, random_state=0).fit(X, y)
    assert torch.equal(state, torch.random.get_rng_state())
    for old, now, trained in zip(before, module.parameters(), net.module_.parameters()):
        assert torch.equal(old, now) and not torch.equal(old, trained)
        assert (old - trained).abs().max() < 0.1
    again = MultiExitClassifier(module, max_epochs=1, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), net.predict_proba(X))
    as_is = MultiExitClassifier(module, max_epochs=0).fit(X, np.array(list("abc"))[y])
    assert as_is.history_ == [] and as_is.predict(X[:5]).dtype.kind == "U"
    for old, now in zip(before, as_is.module_.parameters()):
        assert torch.equal(old, now)
    copied = pickle.loads(pickle.dumps(as_is))
    np.testing.assert_array_equal(copied.predict_proba(X), as_is.predict_proba(X))
    np.testing.assert_array_equal(
        copied.fit(X, y).predict_proba(X), as_is.predict_proba(X)
    )
    assert "MultiExitClassifier" in repr(as_is) and "<div" in as_is._repr_html_()


def test_images_and_names_of_submodules():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    X = rng.normal(size=(150, 1, 8, 8)) + y[:, None, None, None]
    net = MultiExitClassifier(
        Named(), **NAMED, max_epochs=5, lr=0.01, random_state=0
    ).fit(X, y)
    assert net.n_exits_ == 2 and net.score(X, y) > 0.8
    quick = QWYCEnsemble(FrozenEstimator(net), alpha=0.1, random_state=0).optimize(X)
    assert quick.predict(X).shape == (150,)


def test_two_classes_with_one_score_each():
    X, y = rows(300, n_classes=2)
    labels = np.array(["no", "yes"])[y]
    net = MultiExitClassifier(
        lambda n, _: build(n, 1), max_epochs=10, lr=0.01, random_state=0
    )
    net.fit(X[:150], labels[:150])
    assert net.score(X, labels) > 0.85
    quick = QWYCEnsemble(FrozenEstimator(net), alpha=0.05, random_state=0).optimize(
        X[150:]
    )
    assert set(quick.predict(X)) == {"no", "yes"}


def test_lazy_layers_take_their_size_from_the_rows_but_those_of_the_users_net():
    X, y = rows()
    module = nn.Module()
    module.stages = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(8))
    module.heads = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(3))
    for max_epochs in (0, 5):
        net = MultiExitClassifier(
            module, max_epochs=max_epochs, lr=0.03, random_state=0
        ).fit(X, y)
        assert all(nn.parameter.is_lazy(parameter) for parameter in module.parameters())
    assert net.score(X, y) > 0.7


def test_integers_are_looked_up_by_embeddings_and_calculated_with_elsewhere():
    rng = np.random.default_rng(0)
    X = rng.integers(20, size=(200, 5))
    y = (X[:, 0] < 10).astype(int)

    def tokens(n_features, n_classes):
        net = nn.Module()
        net.stages = nn.ModuleList(
            [nn.Sequential(nn.Embedding(20, 4), nn.Flatten()), nn.ReLU()]
        )
        net.heads = nn.ModuleList([nn.Linear(20, n_classes), nn.Linear(20, n_classes)])
        return net

    for module in (tokens, build):
        net = MultiExitClassifier(module, max_epochs=2, random_state=0).fit(X, y)
        assert net.predict(X).shape == (200,)


def test_skorch_parameters_and_search():
    X, y = rows(200)
    pipe = make_pipeline(
        StandardScaler(),
        MultiExitClassifier(
            build,
            max_epochs=2,
            random_state=0,
            net_params={"optimizer": torch.optim.SGD, "optimizer__momentum": 0.9},
        ),
    )
    search = GridSearchCV(pipe, {"multiexitclassifier__lr": [1e-4, 0.1]}, cv=2).fit(
        X, y
    )
    assert search.best_params_["multiexitclassifier__lr"] == 0.1


def test_qwyc_counts_stages(fresh):
    X, y = rows(3000, seed=0)
    quick = QWYCEnsemble(FrozenEstimator(fresh), alpha=0.03, random_state=0).optimize(
        X[400:1500]
    )
    again = pickle.loads(pickle.dumps(quick))
    counts = stage_counter(fresh)
    y_pred, route, _ = quick.predict_routed(X[1500:])
    reached = [int((route > k).sum()) for k in range(3)]
    assert counts["stages"] == counts["heads"] == reached
    assert reached[0] == 1500 > 2 * reached[2]
    assert np.mean(y_pred != fresh.predict(X[1500:])) < 0.06
    np.testing.assert_array_equal(again.predict(X), quick.predict(X))
    # The engine and the attribute are one net, and stay one.
    assert again._engine.net is again.estimator_


def test_qwyc_fits_the_net():
    X, y = rows(900)
    net = MultiExitClassifier(build, max_epochs=5, lr=0.01, random_state=0)
    quick = QWYCEnsemble(net, alpha=0.05, costs="time", random_state=0).fit(
        X[:600], y[:600]
    )
    assert (quick.costs_ > 0).all() and not hasattr(net, "classes_")
    assert quick.score(X[600:], y[600:]) > 0.85


@pytest.mark.parametrize(
    "params, error, message",
    [
        (
            {"module": 3},
            ValueError,
            "The 'module' parameter of MultiExitClassifier must be",
        ),
        ({"module": lambda n, c: "net"}, TypeError, "which returned 'net'"),
        (
            {"stages": ["stages.0"]},
            ValueError,
            "one head for each stage, got 1 stages and 3 heads",
        ),
        (
            {"heads": [("heads.0", "tail")]},
            ValueError,
            r"'tail', .* it has \['stages', 'heads'\]",
        ),
        (
            {"module": lambda n, c: nn.Linear(n, c)},
            ValueError,
            "ModuleList 'stages', got Linear",
        ),
        (
            {"module": lambda n, c: build(n, c + 1)},
            ValueError,
            r"scores of shape \(2, 4\) for 2 rows, .* must be \(2, 3\)",
        ),
        (
            {"module": lambda n, c: build(n, 1)},
            ValueError,
            r"scores of shape \(2, 2\) for 2 rows, .* A single score",
        ),
        (
            {"module": lambda n, c: OneVectorOfScores(n, c)},
            ValueError,
            r"scores of shape \(3, 2\) for 2 rows, .* must be \(2, 3\)",
        ),
        (
            {"exit_weights": [1, 2]},
            ValueError,
            re.escape("exit_weights must have shape (3,)"),
        ),
        (
            {"exit_weights": [1, -2, 1]},
            ValueError,
            "exit_weights must .* at least 0, got -2.0",
        ),
        (
            {"exit_weights": [0, 0, 0]},
            ValueError,
            "must have at least one number above 0",
        ),
        ({"lr": 0}, ValueError, "'lr'"),
    ],
)
def test_bad_parameters(params, error, message):
    X, y = rows(30)
    net = MultiExitClassifier(build, max_epochs=1).fit(X, y).set_params(**params)
    with pytest.raises(error, match=message):
        net.fit(X, y)
    for unfitted in (net.predict, net.start):
        with pytest.raises(NotFittedError):
            unfitted(X)


@pytest.mark.parametrize("missing", ["torch", "skorch"])
def test_without_torch_the_error_names_the_extra(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    X, y = rows(30)
    with pytest.raises(
        ImportError, match=rf"MultiExitClassifier needs {missing}.*\[torch\]"
    ):
        MultiExitClassifier(build).fit(X, y)
    if missing == "skorch":
        assert MultiExitClassifier(build, max_epochs=0).fit(X, y).predict(X).shape == (
            30,
        )


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda(net):
    X, y = rows(3000, seed=0)
    fitted = clone(net).set_params(device="cuda").fit(X[:200], y[:200])
    assert next(fitted.module_.parameters()).is_cuda
    quick = QWYCEnsemble(
        FrozenEstimator(fitted), alpha=0.03, costs="time", random_state=0
    )
    quick.optimize(X[400:1500])
    again = pickle.loads(pickle.dumps(quick))
    counts = stage_counter(fitted)
    y_pred, route, _ = quick.predict_routed(X[1500:])
    assert counts["stages"] == [int((route > k).sum()) for k in range(3)]
    # What is pickled needs no device, and is on none until it is moved.
    assert not next(again.estimator_.module_.parameters()).is_cuda
    assert (again.predict(X[1500:]) == y_pred).mean() > 0.999
    again.estimator_.module_.to("cuda")
    np.testing.assert_array_equal(again.predict(X[1500:]), y_pred)
    tensor = torch.as_tensor(X[1500:], dtype=torch.float32, device="cuda")
    np.testing.assert_allclose(
        fitted.predict_proba(tensor), fitted.predict_proba(X[1500:]), atol=1e-6
    )


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("max_epochs", [0, 1])
def test_the_users_net_stays_on_its_device(max_epochs):
    X, y = rows(60)
    module = build(X.shape[1], 3)
    fitted = MultiExitClassifier(module, max_epochs=max_epochs, device="cuda").fit(X, y)
    assert next(fitted.module_.parameters()).is_cuda
    assert not any(parameter.is_cuda for parameter in module.parameters())


def test_threads_and_read_only_memory_maps(tmp_path):
    """What `tests/test_hostile.py` shows of the estimators that need no torch."""
    X, y = rows()
    joblib.dump(X, tmp_path / "X")
    mapped = joblib.load(tmp_path / "X", mmap_mode="r")
    net = MultiExitClassifier(build, max_epochs=2, random_state=0).fit(mapped, y)
    parts = [mapped, mapped[:7], mapped[3:4], mapped[::-1], mapped[5:]] * 4
    expected = [net.predict_proba(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        for ours, alone in zip(pool.map(net.predict_proba, parts), expected):
            np.testing.assert_array_equal(ours, alone)
