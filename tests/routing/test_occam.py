"""OccamRouterClassifier as its users use it."""

import io
import warnings
from contextlib import redirect_stdout
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.assignment import solve_assignment
from skroute.metrics import best_within_budget, mean_cost_scorer
from skroute.routing import BudgetRouter, DummyRouterClassifier, OccamRouterClassifier
from tests.router_checks import Counting

COSTS = {"cheap": 1.0, "costly": 5.0}


class Region(ClassifierMixin, BaseEstimator):
    """Right where a feature is on its side of zero, wrong elsewhere: known success."""

    def __init__(self, feature=0, always=False):
        self.feature = feature
        self.always = always

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def _truth(self, X):
        return (np.asarray(X)[:, -1] > 0).astype(int)

    def predict(self, X):
        truth = self._truth(X)
        right = np.asarray(X)[:, self.feature] > 0
        return self.classes_[np.where(right | self.always, truth, 1 - truth)]

    def predict_proba(self, X):
        return np.eye(2)[np.searchsorted(self.classes_, self.predict(X))]


def region_problem(n=600, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, np.array(["no", "yes"])[(X[:, -1] > 0).astype(int)]


def region_router(**params):
    members = [("cheap", Region(0)), ("costly", Region(always=True))]
    return OccamRouterClassifier(members, costs=COSTS, cv=3, **params)


def blobs(n=300, seed=0):
    X, y = make_classification(n, n_features=5, n_informative=3, random_state=seed)
    return X, y


def test_it_learns_where_the_cheap_model_is_enough():
    X, y = region_problem()
    X_test, y_test = region_problem(seed=1)
    router = region_router(budget=3.2, quality_estimator=RandomForestRegressor(30, random_state=0))
    router.fit(X, y)
    _, route, cost = router.predict_routed(X_test)
    # Half of the rows need the costly model: the budget of 3.2 pays for 55 %.
    assert router.score(X_test, y_test) > 0.97
    assert ((route == 1) == (X_test[:, 0] <= 0)).mean() > 0.95
    assert cost.mean() < 3.3
    estimated = router.predict_quality(X_test)
    truth = np.column_stack([X_test[:, 0] > 0, np.ones(len(X_test))])
    assert np.abs(estimated - truth).mean() < 0.05


@pytest.mark.parametrize("budget", [1.0, 1.7, 2.5, 4.0, 5.0])
def test_the_batch_budget_is_a_hard_cap(budget):
    X, y = blobs()
    router = OccamRouterClassifier(
        [("cheap", GaussianNB()), ("costly", LogisticRegression())],
        costs=COSTS,
        budget=budget,
        policy="batch",
        cv=3,
    ).fit(X, y)
    for rows in (slice(0, 1), slice(0, 7), slice(0, 300)):
        cost = router.predict_cost(X[rows])
        assert cost.mean() <= budget * (1 + 1e-12)
    # It is the exact assignment of the estimates.
    values = router.predict_quality(X)
    plan = solve_assignment(values, [1.0, 5.0], budget)
    np.testing.assert_array_equal(router.route(X), plan.choices)


def test_an_embedding_member_is_paid_once_and_asked_once():
    X, y = blobs()
    members = [("cheap", Counting(GaussianNB())), ("costly", Counting(LogisticRegression()))]
    router = OccamRouterClassifier(members, costs=COSTS, budget=3.5, embedding="cheap", cv=3)
    router.fit(X, y)
    for member in router.estimators_:
        member.rows_.clear()
    _, route, cost = router.predict_routed(X)
    cheap, costly = router.estimators_
    assert len(cheap.rows_) == len(X) and len(costly.rows_) == (route == 1).sum()
    np.testing.assert_allclose(cost, np.where(route == 0, 1.0, 6.0))
    # The router is charged for its embedding in what is feasible, too.
    router.set_params(embedding="costly", budget=4.9)
    with pytest.raises(ValueError, match="smallest feasible budget is 5"):
        router.fit(X, y)


def test_the_embedding_member_stays_when_it_is_dominated():
    X, y = blobs()
    members = [("prior", DummyClassifier(strategy="uniform", random_state=0)), *blob_members()]
    router = OccamRouterClassifier(
        members,
        costs={"prior": 2.0, **COSTS},
        embedding="prior",
        cv=3,
        quality_estimator=LinearRegression(),
    ).fit(X, y)
    assert "prior" in router.choices_ or router.predict_cost(X).min() >= 3.0
    assert router.predict(X).shape == (300,)


def blob_members():
    return [("cheap", GaussianNB()), ("costly", LogisticRegression())]


def test_transformer_embedding_and_its_cost():
    X, y = blobs()
    router = OccamRouterClassifier(
        blob_members(), costs=COSTS, budget=3.0, embedding=PCA(2), routing_cost=0.5, cv=3
    ).fit(X, y)
    cost = router.predict_cost(X)
    assert set(np.round(cost, 9)) <= {1.5, 5.5}
    assert cost.mean() < 3.2
    assert router.embedding_.n_components_ == 2
    with pytest.raises(ValueError, match="smallest feasible budget is 1.5"):
        router.predict(X, budget=1.2)


def test_reg_lambda_prefers_the_predictable_member():
    X, y = region_problem()
    members = [("cheap", Region(0)), ("costly", Region(always=True))]
    shares = []
    for reg_lambda in (0.0, 5.0):
        router = OccamRouterClassifier(
            members,
            costs={"cheap": 1.0, "costly": 1.0},
            reg_lambda=reg_lambda,
            quality_estimator=LinearRegression(),
            cv=3,
        ).fit(X, y)
        assert router.quality_std_[0] > router.quality_std_[1]
        shares.append((router.route(X) == 1).mean())
    assert shares[1] >= shares[0] and shares[1] == 1.0


def test_sigma_is_out_of_sample():
    rng = np.random.default_rng(0)
    X, quality = rng.normal(size=(200, 3)), rng.random((200, 2))
    tree = DecisionTreeRegressor(random_state=0)
    # An unlimited tree repeats its own rows exactly; out of sample its error is that of noise.
    assert np.abs(tree.fit(X, quality).predict(X) - quality).max() < 1e-12
    assert (BudgetRouter(tree, costs=[1, 2]).fit(X, quality).quality_std_ > 0.3).all()


@pytest.mark.parametrize("quality", ["accuracy", "probability"])
def test_qualities_of_success(quality):
    X, y = blobs()
    router = OccamRouterClassifier(blob_members(), costs=COSTS, quality=quality, cv=3).fit(X, y)
    expected = [m.score(X, y) for m in router.estimators_]
    assert np.abs(router.mean_quality_ - expected).max() < (0.1 if quality == "accuracy" else 0.3)


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
    router = OccamRouterClassifier(blob_members(), costs="time", cv=3).fit(X, y)
    assert (router.costs_ > 0).all() and (router.costs_ < 1).all()
    overhead = router.predict_cost(X)[0] - router.costs_[router.route(X)[0]]
    assert overhead > 0
    np.testing.assert_allclose(router.predict_cost(X), overhead + router.costs_[router.route(X)])
    assert router.min_budget_ == pytest.approx(overhead + router.costs_.min(), rel=1e-12)
    router.predict(X, budget=router.min_budget_)
    with pytest.raises(ValueError, match="smallest feasible budget"):
        router.predict(X, budget=0.99 * router.min_budget_)
    with pytest.raises(ValueError, match="smallest feasible budget"):
        router.set_params(budget=1e-12).fit(X, y)
    embedded = OccamRouterClassifier(blob_members(), costs="time", embedding="cheap", cv=3)
    assert embedded.fit(X, y).predict_cost(X).min() > embedded.costs_[0]
    own = OccamRouterClassifier(blob_members(), costs="time", routing_cost=0.0, cv=3).fit(X, y)
    np.testing.assert_array_equal(own.predict_cost(X), own.costs_[own.route(X)])


def test_grid_search_over_a_pipeline_within_a_budget():
    X, y = blobs()
    pipeline = make_pipeline(
        StandardScaler(), OccamRouterClassifier(blob_members(), costs=COSTS, budget=3, cv=2)
    )
    search = GridSearchCV(
        pipeline,
        {
            "occamrouterclassifier__reg_lambda": [0, 1],
            "occamrouterclassifier__costly__C": [0.1, 1.0],
        },
        scoring={"accuracy": "accuracy", "cost": mean_cost_scorer},
        refit=best_within_budget(3.5),
        cv=2,
    ).fit(X, y)
    assert search.cv_results_["mean_test_cost"][search.best_index_] <= 3.5
    assert search.best_estimator_.predict(X, budget=1.0).shape == (300,)
    # Even rows that are worth more than any in fit get the cheapest when it is all that fits.
    np.testing.assert_allclose(search.best_estimator_[-1].predict_cost(X, budget=1.0), 1.0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame):
    X, y = blobs()
    names = [f"x{i}" for i in range(5)]
    data = frame(dict(zip(names, X.T)))
    router = OccamRouterClassifier(blob_members(), costs=COSTS, budget=3, cv=3).fit(data, y)
    assert router.feature_names_in_.tolist() == names
    plain = OccamRouterClassifier(blob_members(), costs=COSTS, budget=3, cv=3).fit(X, y)
    np.testing.assert_array_equal(router.predict(data), plain.predict(X))
    renamed = (
        frame(X, columns=names[::-1]) if frame is pd.DataFrame else frame(X, schema=names[::-1])
    )
    with pytest.raises(ValueError, match="feature names"):
        router.predict(renamed)


def test_text_with_a_pipeline_as_member():
    texts = [f"cheap thing {i}" for i in range(40)] + [f"hard question {i}" for i in range(40)]
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
    # Of its own rows the estimator knows more than of new ones.
    assert router.validation_cost_ <= 0.7
    single = DummyRouterClassifier(members, costs=[0.0, 1.0], cv=2).fit(texts, y)
    assert single.predict(texts).shape == (80,)


def test_rows_that_the_default_estimator_cannot_read_are_refused_before_any_fit():
    X, y = blobs()
    mixed = pd.DataFrame(X).rename(columns=str).assign(colour=np.where(y == 1, "red", "blue"))
    numbers = ColumnTransformer([("numbers", "passthrough", [0, 1])])
    members = [
        (name, Counting(make_pipeline(numbers, model)))
        for name, model in [("cheap", GaussianNB()), ("costly", LogisticRegression())]
    ]
    objects = mixed.to_numpy()
    objects[:, -1] = [{"red": 1}] * len(y)
    for rows in (mixed.assign(colour=[{"red": 1}] * len(y)), objects):
        router = OccamRouterClassifier(members, costs=COSTS, cv=2)
        with patch.object(Counting, "fit", side_effect=AssertionError("fitted")):
            with pytest.raises((TypeError, ValueError), match="as embedding") as caught:
                router.fit(rows, y)
            # The row itself is not said.
            assert "red" not in str(caught.value)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
    router = OccamRouterClassifier(members, costs=COSTS, embedding=numbers, cv=2).fit(mixed, y)
    assert router.predict(mixed).shape == (len(y),)


def test_metadata_reaches_the_members_that_ask():
    X, y = blobs()
    weight = np.where(y == 1, 50.0, 0.01)
    with sklearn.config_context(enable_metadata_routing=True):
        costly = LogisticRegression().set_fit_request(sample_weight=True)
        router = OccamRouterClassifier(
            [("cheap", GaussianNB().set_fit_request(sample_weight=False)), ("costly", costly)],
            costs=COSTS,
            cv=3,
        ).set_predict_request(budget=True)
        router.fit(X, y, sample_weight=weight)
        weighted = LogisticRegression().fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(router.named_estimators_.costly.coef_, weighted.coef_)
        plain = LogisticRegression().fit(X, y)
        assert not np.allclose(router.named_estimators_.costly.coef_, plain.coef_)
        pipeline = make_pipeline(StandardScaler(), router).fit(X, y)
        pipeline.predict(X, budget=1.0)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        OccamRouterClassifier(blob_members(), costs=COSTS).fit(X, y, groups=weight)


def test_progress_is_shown_by_scikit_learns_callback():
    X, y = blobs()
    pytest.importorskip("rich")
    callback = pytest.importorskip("sklearn.callback")
    router = OccamRouterClassifier(blob_members(), costs=COSTS, cv=2).set_callbacks(
        callback.ProgressBar()
    )
    with redirect_stdout(io.StringIO()):
        router.fit(X, y)
    assert router.choices_ == ["cheap", "costly"]


def test_html_shows_every_member():
    html = OccamRouterClassifier(blob_members(), costs=COSTS)._repr_html_()
    assert "GaussianNB" in html and "LogisticRegression" in html and "costly" in html


def test_a_router_that_loses_to_one_member_warns():
    X, y = region_problem()
    members = [("cheap", Region(0)), ("costly", Region(always=True))]

    class Backwards(DummyRegressor):
        def predict(self, X):
            return np.tile([1.0, 0.0], (len(X), 1))

    router = OccamRouterClassifier(members, costs=COSTS, quality_estimator=Backwards(), cv=3)
    with pytest.warns(UserWarning, match="below the 1 of 'costly' alone"):
        router.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        region_router(quality_estimator=RandomForestRegressor(10, random_state=0)).fit(X, y)


def test_frozen_members_bring_their_own_classes():
    X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
    wide = FrozenEstimator(GaussianNB().fit(X, y))
    narrow = FrozenEstimator(GaussianNB().fit(X[y < 2], y[y < 2]))
    router = OccamRouterClassifier(
        [("narrow", narrow), ("wide", wide)], costs=[1.0, 2.0], quality="probability", cv=3
    ).fit(X, y)
    proba = router.predict_proba(X)
    assert proba.shape == (300, 3)
    rows = router.route(X) == 0
    assert (proba[rows, 2] == 0).all()
    # Labels that only a frozen member knows are classes, too.
    router.fit(X[y < 2], y[y < 2])
    assert router.classes_.tolist() == [0, 1, 2]


def test_a_splitter_and_parallel_members():
    X, y = blobs()
    serial = OccamRouterClassifier(blob_members(), costs=COSTS, budget=3, cv=KFold(3)).fit(X, y)
    parallel = OccamRouterClassifier(
        blob_members(), costs=COSTS, budget=3, cv=KFold(3), n_jobs=2
    ).fit(X, y)
    np.testing.assert_array_equal(serial.predict(X), parallel.predict(X))


def test_a_decision_tree_that_allows_missing_values():
    X, y = blobs()
    X = X.copy()
    X[::7, 0] = np.nan
    trees = [("cheap", DecisionTreeClassifier(max_depth=1)), ("costly", DecisionTreeClassifier())]
    forest = RandomForestRegressor(10, random_state=0)
    router = OccamRouterClassifier(trees, costs=COSTS, quality_estimator=forest, cv=3)
    assert router.fit(X, y).predict(X).shape == (300,)
    with pytest.raises(ValueError, match="NaN"):
        OccamRouterClassifier(blob_members(), costs=COSTS).fit(X, y)


# --- nothing is learned from what a model was fitted on ------------------------------------


class Memory(ClassifierMixin, BaseEstimator):
    """Sure about rows that it was fitted on, undecided about others: shows what is in-sample."""

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


class Spy(RegressorMixin, BaseEstimator):
    """Notes what the quality estimator is fitted on and asked about."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y):
        Spy.seen.append(("fit", np.asarray(X)))
        self.width_ = y.shape[1]
        return self

    def predict(self, X):
        Spy.seen.append(("predict", np.asarray(X)))
        return np.tile(np.asarray(X)[:, -1:], (1, self.width_))


def rows_with_names(n=60):
    X = np.random.default_rng(0).normal(size=(n, 2))
    X[:, 0] = np.arange(n)
    return X, np.arange(n) % 2


SPLITS = [
    (np.flatnonzero(np.arange(60) // 20 != k), np.flatnonzero(np.arange(60) // 20 == k))
    for k in range(3)
]


@pytest.mark.parametrize("quality", ["accuracy", "probability"])
@pytest.mark.parametrize(
    "cv",
    [3, np.int64(3), KFold(3), StratifiedKFold(3), SPLITS, "iterator"],
    ids=["int", "int64", "splitter", "stratified", "list", "iterator"],
)
def test_fit_learns_from_rows_that_were_held_out(quality, cv):
    X, y = rows_with_names()
    members = [("memory", Memory()), ("other", Memory())]
    given = iter(SPLITS) if isinstance(cv, str) else cv
    Spy.seen.clear()
    router = OccamRouterClassifier(
        members,
        costs=[1, 2],
        embedding="memory",
        quality=quality,
        cv=given,
        quality_estimator=Spy(),
    ).fit(X, y)
    # A certain row is one that the member was fitted on: the estimator is shown none.
    assert all(((part > 0.3) & (part < 0.7)).all() for _, part in Spy.seen)
    # And its own estimates are by the splits given.
    Spy.seen.clear()
    given = iter(SPLITS) if isinstance(cv, str) else cv
    router.set_params(embedding=None, cv=given).fit(X, y)
    fits = [set(part[:, 0]) for what, part in Spy.seen if what == "fit"][1:]
    asked = [part[:, 0].tolist() for what, part in Spy.seen if what == "predict"]
    assert len(fits) == len(asked) == 3
    assert not any(rows & set(own) for rows, own in zip(fits, asked))
    if cv is SPLITS or isinstance(cv, str):
        assert asked == [test.tolist() for _, test in SPLITS]


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_answer_of_the_member_that_embeds_is_its_own(threshold, frozen):
    """Its probabilities say another label than it answers: it is asked again, and paid again."""
    X, y = rows_with_names()
    memory, other = Memory(threshold, not frozen), Memory(-0.2, False)
    if frozen:
        memory = FrozenEstimator(memory.fit(X, y))
    router = OccamRouterClassifier(
        [("memory", Counting(memory)), ("other", other)],
        costs=[1.0, 3.0],
        budget=2.5,
        embedding="memory",
        quality_estimator=LinearRegression(),
        cv=3,
    ).fit(X, y)
    fresh = X + [1000.0, 0.0]
    member = router.estimators_[0]
    for response in ("predict", "predict_proba"):
        member.rows_.clear()
        answers = getattr(router, response)(fresh)
        route, cost = router.route(fresh), router.predict_cost(fresh)
        assert (route == 0).any()
        own = np.stack([getattr(each, response)(fresh) for each in router.estimators_])
        np.testing.assert_array_equal(answers, own[route, np.arange(len(fresh))])
    once = threshold < 0.1
    np.testing.assert_array_equal(cost, np.array([1.0 if once else 2.0, 4.0])[route])
    # What is charged is what is asked.
    member.rows_.clear()
    router.predict(fresh)
    assert len(member.rows_) == len(fresh) + (0 if once else (route == 0).sum())
    # A stream does not mix ties at the price of a budget.
    router.set_params(budget=None)
    stream, cost = router.stream(1e6), router.predict_cost(fresh)
    for x, label, price in zip(fresh, router.predict(fresh), cost):
        spent = stream.status().spent
        assert stream.predict(x[None]) == label
        assert stream.status().spent == pytest.approx(spent + price)


def test_prices_and_lambda_of_now_are_those_of_a_new_fit():
    X, y = blobs()
    router = OccamRouterClassifier(
        blob_members(), costs=COSTS, budget=5.0, embedding="cheap", routing_cost=0.5, cv=3
    ).fit(X, y)
    for change in (
        {"reg_lambda": 1.0},
        {"costs": {"cheap": 2.0, "costly": 3.0}},
        {"costs": [0.5, 5.0], "reg_lambda": 0.0},
        {"policy": "batch", "budget": 3.0},
    ):
        router.set_params(**change)
        new = sklearn.clone(router).fit(X, y)
        np.testing.assert_array_equal(router.route(X), new.route(X))
        np.testing.assert_allclose(router.predict_cost(X), new.predict_cost(X))
        assert router.price_ == new.price_ and router.min_budget_ == new.min_budget_
        assert router.costs_.tolist() == new.costs_.tolist()
        assert router.validation_quality_ == new.validation_quality_
    with pytest.raises(ValueError, match="smallest feasible budget is 4.5"):
        router.set_params(costs=[4.0, 5.0]).predict(X)
    with pytest.raises(ValueError, match="set after fit, which measures"):
        router.set_params(costs="time").predict(X)
