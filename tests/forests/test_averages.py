"""Forests of routers: the numbers of scikit-learn without a call for each tree."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeRegressor

from skroute.forests._answers import average_of
from skroute.routing import FrugalMCTClassifier, SequentialRouterClassifier

SEED = 0


def rows(n, d, rng):
    # Coarse, so that rows lie on thresholds.
    return rng.rand(n, d).round(2).astype(np.float32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [RandomForestRegressor, ExtraTreesRegressor])
def test_numbers_of_scikit_learn_to_the_last_bit(kind, seed):
    rng = np.random.RandomState(seed)
    n, d, n_outputs = rng.randint(5, 300), rng.randint(1, 12), rng.randint(1, 20)
    X, y = rows(n, d, rng), rng.rand(n, n_outputs)
    model = kind(
        rng.randint(1, 40), min_samples_leaf=rng.randint(1, 20), random_state=seed
    )
    model.fit(X, y[:, 0] if n_outputs == 1 else y)
    for n_rows in (1, 47, 48, 1100):
        Z = rows(n_rows, d, rng)
        expected = model.predict(Z)
        averages = average_of(model, Z)
        assert averages.shape == expected.shape
        assert averages.dtype == expected.dtype
        np.testing.assert_array_equal(averages, expected)
        double = Z + rng.normal(scale=1e-9, size=Z.shape)
        np.testing.assert_array_equal(average_of(model, double), model.predict(double))


def test_a_second_fit_is_seen_and_nothing_is_pickled():
    rng = np.random.RandomState(SEED)
    X, y = rows(100, 3, rng), rng.rand(100, 2)
    model = RandomForestRegressor(5, random_state=SEED, warm_start=True).fit(X, y)
    before = pickle.dumps(model)
    first = average_of(model, X)
    assert pickle.dumps(model) == before
    model.set_params(n_estimators=9).fit(X, y)
    np.testing.assert_array_equal(average_of(model, X), model.predict(X))
    assert not np.array_equal(average_of(model, X), first)
    model.set_params(warm_start=False).fit(X, 1 - y)
    np.testing.assert_array_equal(average_of(model, X), model.predict(X))
    np.testing.assert_array_equal(average_of(pickle.loads(before), X), first)


class Doubled(RandomForestRegressor):
    def predict(self, X):
        return 2 * super().predict(X)


def test_what_is_no_plain_forest_answers_by_itself():
    rng = np.random.RandomState(SEED)
    X, y = rows(60, 3, rng), rng.rand(60)
    for model in (Doubled(5), Ridge()):
        model.fit(X, y)
        np.testing.assert_array_equal(average_of(model, X), model.predict(X))
    model = RandomForestRegressor(5, random_state=SEED).fit(X, y)
    np.testing.assert_array_equal(average_of(model, X.tolist()), model.predict(X))
    # So are rows refused by the forest itself.
    with pytest.raises(ValueError, match="infinity"):
        average_of(model, np.where(X > 0.5, np.inf, X).astype(np.float32))
    with pytest.raises(ValueError, match="2 features"):
        average_of(model, X[:, :2])
    with pytest.raises(ValueError, match="not fitted yet"):
        average_of(RandomForestRegressor(), X)
    model.predict = lambda X: np.full(len(X), 7.0)
    assert (average_of(model, X) == 7).all()


@pytest.mark.parametrize("abstain_cost", [None, 0.4])
@pytest.mark.parametrize("kind", [FrugalMCTClassifier, SequentialRouterClassifier])
def test_routers_do_not_call_tree_by_tree(kind, abstain_cost, monkeypatch):
    """These calls took two thirds of a call of SequentialRouterClassifier."""
    X, y = load_digits(return_X_y=True)
    members = [("bayes", GaussianNB()), ("near", KNeighborsClassifier())]
    router = kind(members, costs=[1, 5], budget=3, abstain_cost=abstain_cost, cv=2)
    router.fit(X[:300], y[:300])
    calls = []
    predict_of_tree = DecisionTreeRegressor.predict
    with monkeypatch.context() as patch:
        patch.setattr(
            DecisionTreeRegressor,
            "predict",
            lambda *a, **k: calls.append(1) or predict_of_tree(*a, **k),
        )
        answers = router.predict_routed(X[900:1300])
    assert calls == []
    name = "skroute.forests._answers.average_of"
    monkeypatch.setattr(name, lambda model, X: model.predict(X))
    for values, expected in zip(answers, router.predict_routed(X[900:1300])):
        np.testing.assert_array_equal(values, expected)
