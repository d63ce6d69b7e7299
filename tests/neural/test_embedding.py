"""Embeddings from a layer of a member net: the values, the passes, the messages."""

import threading

import numpy as np
import pytest
import sklearn
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

from skroute.quality import BaggedNeighborsRegressor
from skroute.routing import OccamRouterClassifier, _occam_base
from skroute.routing._embedding import call_with_layer
from tests.neural.nets import COMMON, NeuralNetClassifier, conv, images, nn, rows, seen, torch

COSTS = {"small": 1.0, "large": 3.0}


def occam(X, y, layer="penultimate", frozen=True, **params):
    nets = [("small", conv(1)), ("large", conv(3))]
    if frozen:
        nets = [(name, FrozenEstimator(net.fit(X, y))) for name, net in nets]
    params = {"costs": COSTS, "budget": 3.0, "cv": 2, **params}
    router = OccamRouterClassifier(
        nets, embedding=("small", layer), quality_estimator=Ridge(), **params
    )
    return router.fit(X, y)


def by_hand(net, X, layer):
    """The layer's output, computed without a hook."""
    module = net.module_.eval()
    with torch.no_grad():
        found = module.features(torch.from_numpy(X))
        if layer == "penultimate":
            found = module.penultimate(found)
    return found.flatten(1).numpy()


@pytest.mark.parametrize("layer", ["penultimate", "features"])
def test_the_embedding_is_the_layer(layer):
    X, y = images()
    router = occam(X, y, layer)
    embedding, proba = router._embed(X)
    net = router.estimators_[0].estimator
    np.testing.assert_allclose(embedding, by_hand(net, X, layer), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(proba, net.predict_proba(X))
    assert embedding.dtype == np.float32
    # And it is what the accuracy estimator reads.
    values = router.quality_estimator_.predict(embedding)
    np.testing.assert_allclose(router.predict_quality(X), values)


def test_a_nested_layer_by_its_path():
    X, y = images()
    router = occam(X, y, "features.0")
    embedding, _ = router._embed(X)
    net = router.estimators_[0].estimator
    with torch.no_grad():
        expected = net.module_.features[0](torch.from_numpy(X)).flatten(1).numpy()
    np.testing.assert_allclose(embedding, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("response", ["predict", "predict_proba"])
def test_one_forward_pass_per_row(response):
    """The net that embeds sees each row once, and its answer comes from that pass."""
    X, y = images(200)
    router = occam(X, y, budget=2.5)
    for member in router.estimators_:
        seen(member)
    answers = getattr(router, response)(X)
    route = router.route(X)
    counts = [seen(member)[0] for member in router.estimators_]
    # `_embed`, called by hand here, is one more pass.
    assert counts == [2 * len(X), (route == 1).sum()]
    assert 0 < counts[1] < len(X)
    kept = router.estimators_[0]
    expected = getattr(kept, response)(X)
    np.testing.assert_allclose(answers[route == 0], expected[route == 0], rtol=1e-6)


def test_its_cost_is_paid_once():
    X, y = images(200)
    _, route, cost = occam(X, y, budget=2.5).predict_routed(X)
    np.testing.assert_allclose(cost, np.where(route == 0, 1.0, 4.0))


def test_measured_time_charges_the_pass_once():
    X, y = images()
    router = occam(X, y, costs="time", budget=None)
    least = router.costs_[0]
    assert router.min_budget_ > least


def test_success_by_probability_uses_the_layer_too():
    X, y = images()
    router = occam(X, y, quality="probability")
    assert router.quality_estimator_.n_features_in_ == 8


def test_streams_take_the_answer_of_the_same_pass():
    X, y = images()
    router = occam(X, y, budget=1.0)
    stream = router.stream(budget_total=10)
    seen(router.estimators_[0])
    ticket = stream.route(X[:1])
    assert ticket.name == "small" and ticket.answer == router.estimators_[0].predict(X[:1])[0]
    assert seen(router.estimators_[0])[0] == 2


def test_a_net_at_the_end_of_a_pipeline():
    X, y = images()
    flat = X.reshape(len(X), -1)
    unflatten = FunctionTransformer(np.reshape, kw_args={"shape": (-1, 1, 16, 16)})
    net = make_pipeline(unflatten, conv(1))
    router = OccamRouterClassifier(
        [("small", FrozenEstimator(net.fit(flat, y))), ("logreg", LogisticRegression())],
        costs=[1, 1],
        embedding=("small", "penultimate"),
        cv=2,
    ).fit(flat, y)
    assert router.quality_estimator_.n_features_in_ == 8


def test_half_precision_layers_become_float32():
    X, y = images(10)
    net = conv(1).fit(X, y)

    class Half(nn.Module):
        def forward(self, x):
            return x.to(torch.bfloat16)

    net.module_.lower = Half()
    head = net.module_.head.forward
    net.module_.head.forward = lambda x: head(net.module_.lower(x).float())
    _, embedding = call_with_layer("net", net, "lower", net.predict_proba, X)
    assert embedding.dtype == np.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("as_tensor", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_the_next_layer_cannot_change_the_embedding(dtype, as_tensor, in_place):
    X, y = images(40)
    net = conv(1).fit(X, y)

    class Cast(nn.Module):
        def forward(self, x):
            return x.to(dtype)

    net.module_.features[1] = nn.Sequential(Cast(), nn.ReLU(inplace=in_place))
    net.module_.features.append(nn.Identity())
    head = net.module_.penultimate.forward
    net.module_.penultimate.forward = lambda x: head(x.float())
    expected = []

    def note(module, inputs, output):
        expected.append(output.detach().clone().flatten(1).float())

    for layer in ("features.0", "features.1.0"):
        expected.clear()
        handle = net.module_.get_submodule(layer).register_forward_hook(note)
        _, found = call_with_layer("net", net, layer, net.predict_proba, X, as_tensor=as_tensor)
        handle.remove()
        np.testing.assert_array_equal(np.asarray(found), torch.cat(expected).numpy())
        assert np.asarray(found).min() < 0


class Sequence(nn.Module):
    """Rows are steps times features; its layer has them second, as torch's own nets do."""

    def __init__(self, steps=12):
        super().__init__()
        self.steps = steps
        self.cell = nn.Linear(1, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        steps = self.cell(x.flatten(1)[:, : self.steps].T.unsqueeze(2))
        return self.head(steps.mean(axis=0))


def test_a_layer_whose_rows_are_not_the_first_axis_is_refused():
    # As many steps as rows in a batch: the number of rows comes out right, in all of them.
    X, y = images(144)
    net = NeuralNetClassifier(Sequence, criterion=nn.CrossEntropyLoss, **COMMON, batch_size=12)
    net.fit(X, y)
    _, scrambled = call_with_layer("net", net, "cell", net.predict_proba, X)
    assert scrambled.shape[0] == len(X)
    router = OccamRouterClassifier(
        [("net", FrozenEstimator(net))], costs=[1], embedding=("net", "cell")
    )
    with pytest.raises(ValueError, match="gave 12 rows for 1: .* rows must be the first axis"):
        router.fit(X, y)


def test_replicas_are_refused_in_words():
    X, y = images(20)
    net = conv(1).fit(X, y)
    net.module_ = nn.DataParallel(net.module_)
    with pytest.raises(ValueError, match="needs a net without DataParallel"):
        call_with_layer("net", net, "module.penultimate", net.predict_proba, X)


def test_layers_are_held_for_a_block_of_rows(monkeypatch):
    X, y = images(60)
    router = occam(X, y)
    expected = router.predict_routed(X)
    held = []

    def noting(*args, **kwargs):
        answer, embedding = call_with_layer(*args, **kwargs)
        held.append(len(embedding))
        return answer, embedding

    monkeypatch.setattr(_occam_base, "call_with_layer", noting)
    monkeypatch.setattr(_occam_base, "_BLOCK", 16)
    for found, whole in zip(router.predict_routed(X), expected):
        np.testing.assert_array_equal(found, whole)
    assert held == [16, 16, 16, 12]


def test_calls_from_other_threads_are_not_kept():
    X, y = images(20)
    net = conv(1).fit(X, y)

    def call(rows_):
        other = threading.Thread(target=net.predict_proba, args=(X[:7],))
        other.start()
        other.join()
        return net.predict_proba(rows_)

    _, embedding = call_with_layer("net", net, "penultimate", call, X)
    np.testing.assert_allclose(embedding, by_hand(net, X, "penultimate"), rtol=1e-5, atol=1e-6)


def test_the_hook_is_removed():
    X, y = images(20)
    net = conv(1).fit(X, y)
    call_with_layer("net", net, "penultimate", net.predict_proba, X)
    assert not net.module_.penultimate._forward_hooks

    def fail(rows_):
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError) as caught:
        call_with_layer("net", net, "penultimate", fail, X)
    assert "'net'" in caught.value.__notes__[0]
    assert not net.module_.penultimate._forward_hooks


def test_a_layer_that_is_called_twice():
    X, y = images(20)
    net = conv(1).fit(X, y)

    def twice(rows_):
        net.predict_proba(rows_)
        return net.predict_proba(rows_)

    with pytest.raises(ValueError, match="gave 40 rows for 20"):
        call_with_layer("net", net, "penultimate", twice, X)


def test_a_layer_that_gives_no_tensor():
    X, y = images(20)
    net = conv(1).fit(X, y)

    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    net.module_.pair = Pair()
    head = net.module_.head.forward
    net.module_.head.forward = lambda x: head(net.module_.pair(x)[0])
    with pytest.raises(TypeError, match="must give a tensor"):
        call_with_layer("net", net, "pair", net.predict_proba, X)


def test_messages_come_before_any_fit():
    X, y = images()
    nets = [("small", conv(1)), ("large", conv(3))]
    for wrong in [("middle", "penultimate"), ("small",), ("small", 3), "middle"]:
        router = OccamRouterClassifier(nets, costs=COSTS, embedding=wrong)
        with pytest.raises(ValueError, match=r"is not the name .* are \['small', 'large'\]"):
            router.fit(X, y)
    router = OccamRouterClassifier(
        [("logreg", LogisticRegression())],
        costs=[1],
        embedding=("logreg", "coef_"),
    )
    with pytest.raises(ValueError, match="needs a net with a module"):
        router.fit(*rows())
    with pytest.raises(ValueError, match=r"not a layer of 'small', which has \['features', "):
        occam(X, y, "penultimat")
    # A layer that is fitted on the rows that it embeds knows their labels.
    with pytest.raises(ValueError, match=r"FrozenEstimator\(net\) of a net fitted on other rows"):
        occam(X, y, frozen=False)


def test_array_api_dispatch_keeps_the_embedding_a_tensor():
    """With dispatch the scaler and the neighbours read the tensor where it is."""
    X, y = images(150)
    neighbours = BaggedNeighborsRegressor(device="cpu")
    router = OccamRouterClassifier(
        [(n, FrozenEstimator(m.fit(X, y))) for n, m in (("small", conv(1)), ("large", conv(3)))],
        costs=COSTS,
        embedding=("small", "penultimate"),
        quality_estimator=make_pipeline(MinMaxScaler(), neighbours),
        cv=2,
    )
    expected = router.fit(X, y).predict_quality(X)
    try:
        sklearn.set_config(array_api_dispatch=True)
    except RuntimeError:
        pytest.skip("scipy was imported without SCIPY_ARRAY_API=1")
    try:
        router.fit(X, y)
        assert isinstance(router._embed(X)[0], torch.Tensor)
        np.testing.assert_allclose(router.predict_quality(X), expected, atol=1e-6)
        np.testing.assert_array_equal(router.predict(torch.from_numpy(X)), router.predict(X))
    finally:
        sklearn.set_config(array_api_dispatch=False)
