"""Routers of regressors: the same machinery, for numbers."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from skroute.metrics import accuracy_cost_curve, mean_quality_scorer
from skroute.routing import DummyRouterRegressor, OccamRouterRegressor

TREE = DecisionTreeRegressor(max_depth=5, min_samples_leaf=15, random_state=0)
COSTS = {"ridge": 1.0, "neighbors": 4.0}


def problem(n=900, seed=0):
    """Return rows and numbers to fit, and to test.

    The ridge is right on one side of a column, the neighbours on the other.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.where(X[:, 0] > 0, 2 * X[:, 0], 3 * np.sin(6 * X[:, 1]))
    y += 0.1 * rng.normal(size=n)
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


def members():
    return [("ridge", Ridge()), ("neighbors", KNeighborsRegressor(5))]


STRATEGIES = ("single_best", "random", "oracle")


def make(kind, **params):
    if kind == "occam":
        return OccamRouterRegressor(members(), quality_estimator=TREE, **params)
    return DummyRouterRegressor(members(), strategy=kind, **params)


@pytest.mark.parametrize("quality", ["squared_error", "absolute_error", "callable"])
def test_rows_go_where_the_loss_is_smaller(quality):
    loss = mean_absolute_error if quality == "absolute_error" else mean_squared_error
    if quality == "callable":

        def quality(true, answer):
            return -((true - answer) ** 2)

    X, y, X_test, y_test = problem()
    losses = {}
    for kind in ("occam", *STRATEGIES):
        router = make(kind, costs=COSTS, budget=2.5, quality=quality).fit(X, y)
        truth = {"y_true": y_test} if kind == "oracle" else {}
        y_pred, route, cost = router.predict_routed(X_test, **truth)
        answers = np.column_stack([m.predict(X_test) for m in router.estimators_])
        np.testing.assert_array_equal(y_pred, answers[np.arange(len(route)), route])
        assert cost.mean() <= 2.8
        losses[kind] = loss(y_test, y_pred)
        rows = router.row_quality(X_test, y_test)
        assert -rows.quality.mean() == pytest.approx(losses[kind])
        curve = accuracy_cost_curve(router, X_test, y_test, [2.5])
        assert -curve.quality[0] == pytest.approx(losses[kind])
        if kind != "oracle":
            mean_quality = mean_quality_scorer(router, X_test, y_test)
            assert mean_quality == pytest.approx(-losses[kind])
            score = router.score(X_test, y_test)
            assert score == pytest.approx(r2_score(y_test, y_pred))
        assert not hasattr(router, "predict_proba")
        assert not hasattr(router, "classes_")
    assert losses["oracle"] < losses["occam"]
    assert losses["occam"] < 0.8 * losses["random"]
    assert losses["occam"] < losses["single_best"]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "int8", "uint16", "bool", "longdouble"]
)
@pytest.mark.parametrize("kind", ["occam", *STRATEGIES])
def test_numbers_of_any_precision_are_read_without_warnings(kind, dtype):
    """numpy warned of an overflow when single precision was compared with the largest y."""
    X, y, *_ = problem()
    y = np.round(y).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        router = make(kind, costs=COSTS).fit(X, y)
        truth = {"y_true": y} if kind == "oracle" else {}
        assert np.isfinite(router.predict(X, **truth)).all()


def test_an_exchange_rate_leaves_answers_that_save_less_than_they_cost():
    X, y, X_test, y_test = problem()
    router = OccamRouterRegressor(members(), costs=COSTS, quality_estimator=TREE)
    router.fit(X, y)

    def loss_and_cost(rate):
        """Return the mean loss plus 0.1 times the cost, of decisions at another rate."""
        router.set_params(exchange_rate=rate)
        quality, _, cost = router.row_quality(X_test, y_test)
        return (0.1 * cost - quality).mean()

    assert loss_and_cost(0.1) <= min(loss_and_cost(None), loss_and_cost(10.0))
    single = DummyRouterRegressor(members(), costs=COSTS, exchange_rate=100.0).fit(X, y)
    assert (single.route(X) == 0).all()


def test_options_of_the_classifier_are_there():
    X, y, X_test, _ = problem(500)
    frozen = [(name, FrozenEstimator(member.fit(X, y))) for name, member in members()]
    router = OccamRouterRegressor(
        frozen,
        costs=COSTS,
        budget=2.5,
        quality_estimator=TREE,
        embedding=PCA(2),
        policy="batch",
    )
    router.fit(X, y)
    assert router.predict_cost(X_test).mean() <= 2.5
    assert set(router.route(X_test, exclude=["ridge"], budget=4)) == {1}
    stream = router.set_params(policy="online").stream(1e6)
    assert stream.route(X_test[:1]).choice == router.route(X_test[:1])[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quality": "accuracy"}, "'quality' parameter"),
        (
            {"estimators": [("a", LogisticRegression())], "costs": [1]},
            "should be a regressor",
        ),
        ({"embedding": "ridge"}, "'embedding' parameter"),
        ({"quality": "gamma_deviance"}, "gamma_deviance must return one finite number"),
        ({"quality": lambda true, answer: 0.0}, "one finite number for each row"),
    ],
)
def test_what_is_refused(change, message):
    X, y, _, _ = problem(200)
    router = OccamRouterRegressor(members(), costs=COSTS, quality_estimator=TREE)
    with pytest.raises(ValueError, match=message):
        router.set_params(**change).fit(X, y)
    assert not hasattr(router, "choices_")


def test_targets_are_one_number_per_row():
    X, y, _, _ = problem(200)
    with pytest.raises(ValueError, match="is for one number per row"):
        OccamRouterRegressor(members(), costs=COSTS).fit(X, np.column_stack([y, y]))
