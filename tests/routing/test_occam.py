"""OccamRouterClassifier as its users use it."""

import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits, make_classification
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.routing import FrugalMCTClassifier, OccamRouterClassifier
from tests.router_checks import Counting

COSTS = {"cheap": 1.0, "costly": 5.0}
TREE = DecisionTreeRegressor(max_depth=3, random_state=0)


def blobs():
    return make_classification(300, n_features=5, n_informative=3, random_state=0)


def test_it_learns_where_the_cheap_model_is_enough():
    """The cheap model is right if the first feature is above zero, and else wrong."""
    X, X_test = np.random.default_rng(0).uniform(-1, 1, (2, 600, 3))
    y = np.where(X[:, 2] > 0, "yes", "no")
    y_test = np.where(X_test[:, 2] > 0, "yes", "no")
    turned = FunctionTransformer(lambda X: X[:, [2]] * np.sign(X[:, [0]]))
    cheap = make_pipeline(turned, DecisionTreeClassifier(max_depth=1))
    is_right = X[:, 0] > 0
    members = [
        ("cheap", FrozenEstimator(cheap.fit(X[is_right], y[is_right]))),
        ("costly", DecisionTreeClassifier(max_depth=1)),
    ]
    forest = RandomForestRegressor(30, random_state=0)
    router = OccamRouterClassifier(
        members, costs=COSTS, budget=3.2, quality_estimator=forest, cv=3
    )
    router.fit(X, y)
    _, route, cost = router.predict_routed(X_test)
    # Half of the rows need the costly model: the budget of 3.2 pays for 55 %.
    assert router.score(X_test, y_test) > 0.97
    assert ((route == 1) == (X_test[:, 0] <= 0)).mean() > 0.95
    assert cost.mean() < 3.3
    truth = np.column_stack([X_test[:, 0] > 0, np.ones(len(X_test))])
    assert np.abs(router.predict_quality(X_test) - truth).mean() < 0.05


def blob_members():
    return [("cheap", GaussianNB()), ("costly", LogisticRegression())]


def test_transformer_embedding_and_its_cost():
    X, y = blobs()
    router = OccamRouterClassifier(
        blob_members(),
        costs=COSTS,
        budget=3.0,
        embedding=PCA(2),
        routing_cost=0.5,
        cv=3,
    ).fit(X, y)
    cost = router.predict_cost(X)
    assert set(np.round(cost, 9)) <= {1.5, 5.5}
    assert cost.mean() < 3.2
    assert router.embedding_.n_components_ == 2
    with pytest.raises(ValueError, match="smallest feasible budget is 1.5"):
        router.predict(X, budget=1.2)


def test_members_without_probabilities():
    X, y = blobs()
    members = [("cheap", GaussianNB()), ("costly", SVC())]
    router = OccamRouterClassifier(members, costs=COSTS, budget=3, cv=3).fit(X, y)
    assert not hasattr(router, "predict_proba")
    assert router.predict(X).shape == (300,)
    with pytest.raises(ValueError, match="needs predict_proba, which 'costly'"):
        router.set_params(quality="probability").fit(X, y)
    with pytest.raises(ValueError, match="should be a classifier, got Linear"):
        router.set_params(quality="accuracy", cheap=LinearRegression()).fit(X, y)
    router.set_params(cheap=GaussianNB())
    with pytest.raises(ValueError, match="embedding='costly' needs predict_proba"):
        router.set_params(quality="accuracy", embedding="costly", budget=None).fit(X, y)
    with pytest.raises(ValueError, match="embedding='cnn' is not the name of a member"):
        router.set_params(embedding="cnn").fit(X, y)


def test_measured_time_is_charged_with_the_routers_own():
    X, y = blobs()
    params = {"costs": "time", "cv": 2, "quality_estimator": TREE}
    router = OccamRouterClassifier(blob_members(), **params).fit(X, y)
    assert (router.costs_ > 0).all() and (router.costs_ < 1).all()
    overhead = router.predict_cost(X)[0] - router.costs_[router.route(X)[0]]
    assert overhead > 0
    np.testing.assert_allclose(
        router.predict_cost(X), overhead + router.costs_[router.route(X)]
    )
    assert router.min_budget_ == pytest.approx(
        overhead + router.costs_.min(), rel=1e-12
    )
    router.predict(X, budget=router.min_budget_)
    with pytest.raises(ValueError, match="smallest feasible budget"):
        router.predict(X, budget=0.99 * router.min_budget_)
    with pytest.raises(ValueError, match="smallest feasible budget"):
        router.set_params(budget=1e-12).fit(X, y)
    embedded = OccamRouterClassifier(blob_members(), embedding="cheap", **params)
    embedded.fit(X, y)
    assert embedded.predict_cost(X).min() > embedded.costs_[0]
    free = OccamRouterClassifier(blob_members(), routing_cost=0.0, **params).fit(X, y)
    np.testing.assert_array_equal(free.predict_cost(X), free.costs_[free.route(X)])
    priced = free.set_params(costs=COSTS).fit(X, y)
    with pytest.raises(ValueError, match="set after fit, which measures"):
        priced.set_params(costs="time").predict(X)


def test_text_with_a_pipeline_as_member():
    texts = [f"cheap thing {i}" for i in range(40)]
    texts += [f"hard question {i}" for i in range(40)]
    y = np.array(["a", "b"] * 40)
    members = [
        ("prior", DummyClassifier()),
        ("words", make_pipeline(TfidfVectorizer(), LogisticRegression())),
    ]
    router = OccamRouterClassifier(
        members,
        costs={"prior": 0.0, "words": 1.0},
        budget=0.5,
        embedding=make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0)),
        cv=2,
    ).fit(texts, y)
    assert not hasattr(router, "n_features_in_")
    assert router.predict(texts[:5]).shape == (5,)
    # Validation is out of fold: the estimator is less sure of new rows.
    assert router.validation_cost_ <= 0.7


def test_rows_that_the_default_estimator_cannot_read_are_refused_before_any_fit():
    X, y = blobs()
    mixed = pd.DataFrame(X).rename(columns=str)
    mixed["colour"] = np.where(y == 1, "red", "blue")
    numbers = ColumnTransformer([("numbers", "passthrough", [0, 1])])
    members = [
        (name, Counting(make_pipeline(numbers, member)))
        for name, member in blob_members()
    ]
    router = OccamRouterClassifier(members, costs=COSTS, cv=2)
    with patch.object(Counting, "fit", side_effect=AssertionError("fitted")):
        with pytest.raises((TypeError, ValueError), match="as embedding") as caught:
            router.fit(mixed.assign(colour=[{"red": 1}] * len(y)), y)
    # The message does not contain the row.
    assert "red" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    router = OccamRouterClassifier(members, costs=COSTS, embedding=numbers, cv=2).fit(
        mixed, y
    )
    assert router.predict(mixed).shape == (len(y),)


def test_frozen_members_bring_their_own_classes():
    X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
    wide = FrozenEstimator(GaussianNB().fit(X, y))
    narrow = FrozenEstimator(GaussianNB().fit(X[y < 2], y[y < 2]))
    router = OccamRouterClassifier(
        [("narrow", narrow), ("wide", wide)],
        costs=[1.0, 2.0],
        quality="probability",
        quality_estimator=TREE,
    ).fit(X, y)
    proba = router.predict_proba(X)
    assert proba.shape == (300, 3)
    rows = router.route(X) == 0
    assert (proba[rows, 2] == 0).all()
    # Labels that only a frozen member knows are classes, too.
    router.fit(X[y < 2], y[y < 2])
    assert router.classes_.tolist() == [0, 1, 2]


def test_a_decision_tree_that_allows_missing_values():
    X, y = blobs()
    X = X.copy()
    X[::7, 0] = np.nan
    trees = [
        ("cheap", DecisionTreeClassifier(max_depth=1)),
        ("costly", DecisionTreeClassifier()),
    ]
    forest = RandomForestRegressor(10, random_state=0)
    router = OccamRouterClassifier(trees, costs=COSTS, quality_estimator=forest, cv=3)
    assert router.fit(X, y).predict(X).shape == (300,)
    with pytest.raises(ValueError, match="NaN"):
        OccamRouterClassifier(blob_members(), costs=COSTS).fit(X, y)


class Memory(ClassifierMixin, BaseEstimator):
    """A classifier that is sure about rows of its fit, and undecided about others.

    Its probabilities show which rows were in-sample.
    """

    def __init__(self, threshold=0.0, remembers=True):
        self.threshold = threshold
        self.remembers = remembers

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.rows_ = set(np.asarray(X)[:, 0].tolist()) if self.remembers else set()
        return self

    def predict_proba(self, X):
        seen = np.array([row in self.rows_ for row in np.asarray(X)[:, 0].tolist()])
        p = np.where(seen, 1.0, 0.4 + 0.2 * (np.asarray(X)[:, 1] > 0))
        return np.column_stack([1 - p, p])

    def predict(self, X):
        proba = self.predict_proba(X)
        return self.classes_[(proba[:, 1] > 0.5 + self.threshold).astype(int)]


def test_a_stream_of_known_length_after_the_member_that_embeds_has_a_new_price():
    X, y = blobs()
    router = OccamRouterClassifier(
        blob_members(),
        costs=COSTS,
        embedding="cheap",
        quality_estimator=LinearRegression(),
        cv=3,
    ).fit(X, y)
    stream = router.set_params(costs=COSTS | {"cheap": 2.0}).stream(1000.0, 5)
    for x in X[:5]:
        ticket = stream.route([x])
        assert ticket.deciding == 2.0
        stream.commit(ticket)
    assert stream.status().n_committed == 5


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_answer_of_the_member_that_embeds_is_its_own(threshold, frozen):
    """If its answer is not its most probable label, it is asked and paid again."""
    # The first column is the number of the row.
    X = np.column_stack([np.arange(60), np.random.default_rng(0).normal(size=60)])
    y = np.arange(60) % 2
    memory = Memory(threshold, remembers=not frozen)
    other = Memory(-0.2, remembers=False)
    if frozen:
        memory = FrozenEstimator(memory.fit(X, y))
    router = OccamRouterClassifier(
        [("remembering", Counting(memory)), ("other", other)],
        costs=[1.0, 3.0],
        budget=2.5,
        embedding="remembering",
        quality_estimator=LinearRegression(),
        cv=3,
    ).fit(X, y)
    fresh = X + [1000.0, 0.0]
    member = router.estimators_[0]
    for response in ("predict", "predict_proba"):
        member.rows_.clear()
        answers = getattr(router, response)(fresh)
        route = router.route(fresh)
        cost = router.predict_cost(fresh)
        assert (route == 0).any()
        of_members = [getattr(model, response)(fresh) for model in router.estimators_]
        expected = np.stack(of_members)[route, np.arange(len(fresh))]
        np.testing.assert_array_equal(answers, expected)
    # The cost of the member that embeds, and the number of rows that it is asked about.
    n_asked = len(fresh)
    embedder_cost = 1.0
    if threshold > 0.1:
        n_asked += (route == 0).sum()
        embedder_cost = 2.0
    np.testing.assert_array_equal(cost, np.array([embedder_cost, 4.0])[route])
    member.rows_.clear()
    router.predict(fresh)
    assert len(member.rows_) == n_asked
    # A stream does not mix ties at the price of a budget.
    router.set_params(budget=None)
    stream = router.stream(1e6)
    cost = router.predict_cost(fresh)
    for x, label, price in zip(fresh, router.predict(fresh), cost):
        spent = stream.status().spent
        assert stream.predict(x[None]) == label
        assert stream.status().spent == pytest.approx(spent + price)


def test_a_member_alone_is_named_with_its_own_quality_and_cost():
    """Also if deciding pays for it, and if choices are combinations of members."""
    X, y = load_digits(return_X_y=True)
    members = [("bayes", GaussianNB()), ("logreg", LogisticRegression(C=0.01))]
    options = {"costs": [1, 5], "cv": 2, "quality_estimator": TREE}
    for router in (
        OccamRouterClassifier(members, embedding="bayes", **options),
        FrugalMCTClassifier(members, **options),
    ):
        router.fit(X[:400], y[:400])
        assert len(router.mean_quality_) == len(router.choices_)
        quality = router.mean_quality_[router.choices_.index("bayes")]
        message = f"'bayes' alone has a quality of {quality:.4g} .* costs 1 per row"
        with pytest.warns(UserWarning, match=message):
            router._warn_of_single_choice(4.0, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # The member costs as much as the router.
            router._warn_of_single_choice(1.0, 0.5)
