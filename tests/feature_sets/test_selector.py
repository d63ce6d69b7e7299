"""The estimator: what it promises to a user of scikit-learn, and what it computes."""

import re
import warnings
from unittest.mock import patch

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from skroute.feature_sets import GreedyFeatureSelector, MeasuredCosts, PolyDomSelector
from tests.features.test_pipeline import hospital

# Rows in each call of `transform`, by extractor.
CALLS: dict[str, list[int]] = {}


class FakeClock:
    """A clock that only extractors move."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


CLOCK = FakeClock()


class Moment(TransformerMixin, BaseEstimator):
    """One moment of an item; takes ``fixed + per_pixel * size`` of the fake clock."""

    def __init__(
        self, name, power=1, noise=1.0, fixed=0.0, per_pixel=0.0, slow_down=1.0
    ):
        self.name = name
        self.power = power
        self.noise = noise
        self.fixed = fixed
        self.per_pixel = per_pixel
        self.slow_down = slow_down

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        CALLS.setdefault(self.name, []).append(len(X))
        for item in X:
            CLOCK.now += self.slow_down * (self.fixed + self.per_pixel * np.size(item))
        return np.array(
            [[np.mean(item**self.power), np.std(item) * self.noise] for item in X]
        )


@pytest.fixture(scope="module")
def items():
    """Arrays of 4 to 60 numbers whose mean and spread tell three classes apart."""
    rng = np.random.default_rng(0)
    y, sizes = rng.integers(3, size=90), rng.integers(4, 60, size=90)
    items = [
        rng.normal(0.7 * (c == 1), 1.0 + 0.8 * (c == 2), size=n)
        for c, n in zip(y, sizes)
    ]
    return items, y


def make_extractors():
    return [
        ("mean", Moment("mean", 1, 0.0, fixed=1.0)),
        ("spread", Moment("spread", 2, 0.0, fixed=1.0, per_pixel=0.1)),
        ("both", Moment("both", 1, 1.0, fixed=2.0, per_pixel=0.3)),
    ]


POLYNOMIALS = {"mean": 1.0, "spread": [1.0, 0.1], "both": [2.0, 0.3]}


@pytest.fixture(autouse=True)
def only_extractors_take_time(monkeypatch):
    CALLS.clear()
    monkeypatch.setattr("skroute.utils._timing._clock", CLOCK)


TRADE_OFFS = {"greedy": None, "greedy_acc": [0.0], "greedy_cost": [np.inf]}


def selector(strategy="poly_dom", **params):
    params = {"costs": POLYNOMIALS, "size": np.size, "cv": 3, **params}
    if strategy in TRADE_OFFS:
        params = {"trade_offs": TRADE_OFFS[strategy], **params}
        return GreedyFeatureSelector(GaussianNB(), make_extractors(), **params)
    more = {"poly_dom": {"monotonicity_tol": 0.1}, "expand_all": {"alpha": None}}[
        strategy
    ]
    return PolyDomSelector(GaussianNB(), make_extractors(), **{**more, **params})


@pytest.fixture(scope="module")
def fitted(items):
    return selector(alpha=0.0).fit(*items)


def test_choice_is_the_best_of_all_sets(items):
    """alpha=0, with the tolerance that the scores need: as good as training every set."""
    everything = selector(strategy="expand_all", monotonicity_tol=0.0).fit(*items)
    drops = [drop for *_, drop in everything.monotonicity_violations_]
    lazy = selector(alpha=0.0, monotonicity_tol=max(drops, default=0.0)).fit(*items)
    assert lazy.n_trained_ <= everything.n_trained_ == 7
    assert lazy.alpha_ == everything.alpha_ == 0.0
    rng = np.random.default_rng(0)
    size, budget = rng.uniform(0, 60, 300), rng.uniform(0, 30, 300)
    assert_array_equal(
        lazy.quality_[lazy.select(size, budget)],
        everything.quality_[everything.select(size, budget)],
    )


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_chosen_cost_is_within_every_budget(items, alpha):
    X, y = items
    model = selector(alpha=alpha).fit(X, y)
    rng = np.random.default_rng(1)
    budget = rng.uniform(0, 30, len(X))
    cost = model.predict_cost(X, budget=budget)
    assert (cost <= budget).all()
    sizes = np.array([np.size(item) for item in X])
    expected = model.candidates_[model.route(X, budget=budget)] @ np.array(
        [np.ones(len(X)), 1 + 0.1 * sizes, 2 + 0.3 * sizes]
    )
    assert_allclose(cost, np.diag(expected))


def test_route_select_and_skyline_agree(fitted, items):
    X, _ = items
    sizes = [np.size(item) for item in X]
    assert_array_equal(fitted.route(X, budget=5.0), fitted.select(sizes, 5.0))
    # A size that is given to the call wins.
    for size in (np.zeros(len(X)), 0):
        assert_array_equal(fitted.route(X, budget=5, size=size), fitted.select(0, 5))
    with pytest.raises(NotFittedError):
        selector().select(1.0, 1.0)
    with pytest.raises(NotFittedError):
        selector().skyline(1.0)
    line = fitted.skyline(20)
    assert (np.diff(line.cost) > 0).all()
    assert (np.diff(line.quality) > 0).all()
    assert_array_equal(fitted.select(20, line.cost), line.route)
    assert fitted.choices_[line.route[0]] == "(none)"


def test_budget_zero_is_the_class_prior(fitted, items):
    X, y = items
    prior = np.bincount(y) / len(y)
    assert_allclose(fitted.predict_proba(X, budget=0), np.tile(prior, (len(X), 1)))
    assert_array_equal(fitted.predict_cost(X, budget=0), 0)
    assert_array_equal(fitted.predict(X, budget=0), np.argmax(prior))


def test_answers_come_from_the_chosen_model(fitted, items):
    X, _ = items
    budget = np.linspace(0, 25, len(X))
    answer, route, _ = fitted.predict_routed(X, budget=budget)
    assert len(np.unique(route)) > 2
    transformers = dict(make_extractors())
    for i in range(len(X)):
        if fitted.candidates_[route[i]].any():
            names = fitted.choices_[route[i]].split(" + ")
            table = np.hstack([transformers[name].transform([X[i]]) for name in names])
            assert answer[i] == fitted.estimators_[route[i]].predict(table)[0]
    proba = fitted.predict_proba(X, budget=budget)
    assert_array_equal(fitted.classes_[proba.argmax(axis=1)], answer)


def test_only_features_of_the_chosen_set_are_computed(items):
    """In `fit` each once; to decide none; to answer those of the chosen sets."""
    X, y = items
    objects = np.array(X, dtype=object)
    with joblib.parallel_config("threading"):
        model = selector(n_jobs=2).fit(objects, y)
    assert CALLS == {"mean": [len(X)], "spread": [len(X)], "both": [len(X)]}
    for budget in (0.0, 1.0, 4.0, 9.0, np.inf):
        CALLS.clear()
        route = model.route(X, budget=budget)
        model.predict_cost(X, budget=budget)
        model.select(10, budget)
        assert CALLS == {}
        model.predict(X, budget=budget)
        counted = [sum(CALLS.get(name, [])) for name in ("mean", "spread", "both")]
        assert_array_equal(counted, model.candidates_[route].sum(axis=0))
    assert_array_equal(route, np.argmax(model.quality_))
    alone = selector().fit(X, y)
    assert_array_equal(alone.expanded_, model.expanded_)
    assert_array_equal(alone.predict(X, budget=7.0), model.predict(objects, budget=7.0))


@pytest.fixture
def table():
    X, y = make_classification(120, 6, n_informative=4, random_state=0)
    return X, y


GROUPS = {"cheap": [0], "middle": slice(1, 3), "late": [False] * 3 + [True] * 3}
GROUP_COSTS = {"cheap": 1, "middle": 3.0, "late": 9.0}


def test_each_column_is_an_extractor_by_default(table):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = PolyDomSelector(GaussianNB(), alpha=0.3, monotonicity_tol=0.05, cv=2)
    unnamed = clone(model).fit(X, y)
    model.fit(frame, y)
    for fitted, names in ((model, "abcdef"), (unnamed, [f"x{j}" for j in range(6)])):
        extractors = set(" + ".join(fitted.choices_).split(" + "))
        assert extractors <= {"(none)", *names}
    assert (model.predict_cost(frame, budget=2) <= 2).all()
    n_columns = model.candidates_[np.argmax(model.quality_)].sum()
    assert_array_equal(model.predict_cost(frame), n_columns)
    assert_array_equal(unnamed.predict(X), model.predict(frame))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(table, frame):
    X, y = table
    named = frame({name: X[:, j] for j, name in enumerate("abcdef")})
    groups = {"cheap": "a", "middle": ["b", "c"], "late": ["d", "e", "f"]}
    model = PolyDomSelector(
        GaussianNB(), groups, costs=GROUP_COSTS, monotonicity_tol=0.2
    )
    assert_array_equal(model.fit(named, y).feature_names_in_, list("abcdef"))
    sized = clone(model).set_params(
        size=lambda row: abs(np.asarray(row)[0]), costs=[[0, 1], 1, 1]
    )
    sized.fit(named, y)
    assert_array_equal(sized._sizes(named, None), np.abs(X[:, 0]))
    plain = clone(model).set_params(extractors=GROUPS).fit(X, y)
    assert_array_equal(model.predict(named, budget=5), plain.predict(X, budget=5))
    # Columns that are not needed may be missing.
    used, masked = plain.candidates_[plain.route(X, budget=5)[0]], X.copy()
    for j, columns in enumerate(([0], [1, 2], [3, 4, 5])):
        masked[:, columns] = X[:, columns] if used[j] else np.nan
    assert np.isnan(masked).any()
    assert_array_equal(plain.predict(masked, budget=5), plain.predict(X, budget=5))


def test_sparse_input_lists_and_size_columns(table):
    X, y = table
    X = np.round(np.abs(X), 1)
    groups = {"cheap": 0, "middle": [1, 2], "shared": [2, 3]}
    costs = {"cheap": 1, "middle": [0, 2.0], "shared": 3.0}
    model = PolyDomSelector(
        LogisticRegression(), groups, costs=costs, size=5, monotonicity_tol=0.2
    )
    dense = model.fit(X, y).predict_routed(X, budget=4.0)
    assert_array_equal(dense.cost <= 4.0, True)
    assert_array_equal(model.predict(X.tolist(), budget=4.0), dense.y_pred)
    sizes = X[:, 5]
    thin = clone(model).set_params(size=None).fit(sparse.csr_matrix(X), y, size=sizes)
    assert_array_equal(
        thin.predict(sparse.csr_matrix(X), budget=4.0, size=sizes), dense.y_pred
    )


def test_text_through_sparse_transformers():
    texts = [
        "good fine",
        "bad poor",
        "fine good good",
        "poor bad bad",
        "good",
        "bad",
    ] * 4
    y = [1, 0] * 12
    model = PolyDomSelector(
        LogisticRegression(),
        [("words", TfidfVectorizer()), ("letters", CountVectorizer(analyzer="char"))],
        costs={"words": [0, 1.0], "letters": [0, 5.0]},
        size=len,
        cv=2,
    ).fit(texts, y)
    assert model.score(texts, y) == 1.0
    assert not hasattr(model, "n_features_in_")
    both = PolyDomSelector(
        LogisticRegression(),
        [("words", TfidfVectorizer()), ("length", FunctionTransformer(lengths))],
        costs=[1, 1],
        alpha=None,
        cv=2,
    ).fit(texts, y)
    assert any(used.all() for used in both.expanded_)


def lengths(texts):
    return np.array([[len(text)] for text in texts])


def test_measured_costs(items):
    X, y = items
    model = selector(costs="time").fit(X, y)
    sizes = np.unique([np.size(item) for item in X])
    assert_allclose(
        model.costs_(sizes), [1 + 0 * sizes, 1 + 0.1 * sizes, 2 + 0.3 * sizes]
    )
    assert model.measured_costs_.shape == (3 * len(X), 3)
    assert_array_equal(
        np.sort(model.measured_sizes_[: len(X)]), sorted(map(np.size, X))
    )
    constant = selector(costs="time", size=None).fit(X, y)
    assert (constant.costs_([0.0])[1:] > 1).all()
    assert not hasattr(
        constant.set_params(costs=[1, 1, 1]).fit(X, y), "measured_costs_"
    )


class SlowNB(GaussianNB):
    """Takes a second of the fake clock for a call."""

    def predict(self, X):
        CLOCK.now += 1.0
        return super().predict(X)


def test_the_models_own_time_can_be_part_of_the_cost(items):
    X, y = items
    model = selector(costs=MeasuredCosts(include_model=True), alpha=None)
    model.set_params(estimator=SlowNB()).fit(X, y)
    plain = clone(model).set_params(costs="time").fit(X, y)
    assert model.choices_ == plain.choices_
    for budget in (0.5, 1.503, 4.003, 9.003, np.inf):
        routed = model.predict_routed(X, budget=budget + 1.0)
        expected = plain.predict_routed(X, budget=budget)
        assert_array_equal(routed.route, expected.route)
        assert_allclose(routed.cost, expected.cost + (expected.route > 0))
        walked = model.predict_routed(X, budget=budget + 1.0, anytime=True)
        assert (walked.cost <= budget + 1.0 + 1e-9).all()
    assert_array_equal(model.predict_cost(X, budget=0.5), 0)
    assert_allclose(model.skyline(20).cost[1:], plain.skyline(20).cost[1:] + 1.0)


def test_anytime_is_poly_dom_when_estimates_are_right(items):
    X, _ = items
    model = selector(costs="time", alpha=0.0).fit(*items)
    budget = np.linspace(0.001, 25, len(X))
    planned = model.select([np.size(item) for item in X], budget)
    answer, route, cost = model.predict_routed(X, budget=budget, anytime=True)
    assert (model.quality_[route] >= model.quality_[planned] - 1e-12).all()
    assert (cost <= budget).all()
    same = route == planned
    assert same.mean() > 0.8
    assert_array_equal(answer[same], model.predict(X, budget=budget)[same])
    walked = model.predict_proba(X, budget=budget, anytime=True)
    assert_allclose(walked[same], model.predict_proba(X, budget=budget)[same])


def test_anytime_stops_early_when_features_are_expensive(items):
    X, _ = items
    model = selector(costs="time", alpha=0.0).fit(*items)
    budget = np.full(len(X), 8.0)
    before = model.route(X, budget=budget, anytime=True)
    for transformer in model.extractors_.transformers:
        transformer.slow_down = 2.5
    _, route, cost = model.predict_routed(X, budget=budget, anytime=True)
    assert model.quality_[route].mean() < model.quality_[before].mean()
    # What was paid for is what was computed, be it used by the answer or not.
    CALLS.clear()
    start = CLOCK.now
    cost = model.predict_cost(X, budget=budget, anytime=True)
    assert_allclose(cost.sum(), CLOCK.now - start)


@pytest.mark.parametrize("strategy", ["greedy", "greedy_acc", "greedy_cost"])
def test_anytime_greedy_walks_its_sequence(items, strategy):
    X, _ = items
    model = selector(strategy, costs="time").fit(*items)
    budget = np.linspace(0.001, 25, len(X))
    sizes = [np.size(item) for item in X]
    _, route, cost = model.predict_routed(X, budget=budget, anytime=True)
    assert_array_equal(route, model.select(sizes, budget))
    for transformer in model.extractors_.transformers:
        transformer.slow_down = 0.3
    faster = model.predict_routed(X, budget=budget, anytime=True)
    # Further along the sequence that the budget names.
    longer = model.candidates_[faster.route].sum(axis=1) - model.candidates_[route].sum(
        axis=1
    )
    assert (longer >= 0).all()
    assert longer.sum() > 0
    assert (model.candidates_[faster.route] >= model.candidates_[route]).all()


@pytest.mark.parametrize("strategy", ["greedy", "greedy_acc", "greedy_cost"])
def test_greedy_keeps_to_budgets(items, strategy):
    X, y = items
    model = selector(strategy=strategy).fit(X, y)
    budget = np.linspace(0, 25, len(X))
    assert (model.predict_cost(X, budget=budget) <= budget).all()
    line = model.skyline(20)
    assert (np.diff(line.quality) > 0).all()
    assert (
        model.n_trained_ <= {"greedy": 7, "greedy_acc": 6, "greedy_cost": 3}[strategy]
    )
    free = clone(model).set_params(costs=[0, 0, 0], size=None).fit(X, y)
    assert_array_equal(free.predict_cost(X, budget=0), 0)
    for params in ({"size": None}, {"trade_offs": [-1.0]}, {"trade_offs": []}):
        with pytest.raises(
            ValueError, match="grow at the median|trade_offs must be a one-dim"
        ):
            clone(model).set_params(**params).fit(X, y)


def test_training_budget(items):
    X, y = items
    model = selector(max_models=2, alpha=0.0).fit(X, y)
    assert model.n_trained_ == 2
    assert model.alpha_ > 0
    assert model.expanded_.shape == (3, 3)
    assert len(model.expanded_quality_) == 3
    assert selector(max_seconds=0.0, alpha=0.0).fit(X, y).n_trained_ == 1
    assert selector(max_models=50, alpha=0.0).fit(X, y).alpha_ == 0.0


def test_scores_are_cross_validated(items):
    X, y = items
    model = selector(strategy="expand_all", scoring="balanced_accuracy").fit(X, y)
    tables = [transformer.transform(X) for _, transformer in make_extractors()]
    for used, score in zip(model.expanded_[1:], model.expanded_quality_[1:]):
        table = np.hstack([tables[j] for j in np.flatnonzero(used)])
        expected = cross_val_score(
            GaussianNB(), table, y, cv=3, scoring="balanced_accuracy"
        )
        assert score == pytest.approx(expected.mean())
    assert model.expanded_quality_[0] == pytest.approx(1 / 3)


def test_violations_of_monotonicity_are_reported(items):
    X, y = items
    with pytest.warns(
        UserWarning, match=r"The guarantee assumes.*monotonicity_tol=0\.0.*would"
    ):
        model = selector(alpha=0.0, monotonicity_tol=0.0).fit(X, y)
    subset, superset, drop = model.monotonicity_violations_[0]
    assert subset == "(none)" or set(subset.split(" + ")) < set(superset.split(" + "))
    scores = {
        " + ".join(np.array(model.costs_.names)[used]) or "(none)": score
        for used, score in zip(model.expanded_, model.expanded_quality_)
    }
    assert drop == pytest.approx(scores[subset] - scores[superset])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = selector(alpha=0.0, monotonicity_tol=0.5).fit(X, y)
    assert quiet.monotonicity_violations_ == []


def test_memory_trains_nothing_twice(items, tmp_path):
    X, y = items
    model = selector(memory=str(tmp_path), alpha=0.0)
    with patch.object(
        GaussianNB, "fit", autospec=True, side_effect=GaussianNB.fit
    ) as fit:
        first = model.fit(X, y)
        assert fit.call_count == 3 * first.n_trained_ + len(first.choices_) - 1
        fit.reset_mock()
        again = clone(model).set_params(alpha=0.05, budget=3.0).fit(X, y)
        # Scores come from the cache; only the final models are trained.
        assert fit.call_count == len(again.choices_) - 1


def test_sample_weight_and_other_metadata(items):
    X, y = items
    weight = np.where(y == 2, 50.0, 1.0)
    model = selector().fit(X, y, sample_weight=weight)
    assert_array_equal(model.predict(X, budget=0), 2)
    assert model.expanded_quality_[0] > 0.9
    with pytest.raises(ValueError, match="metadata"):
        selector().fit(X, y, colour=weight)
    sizes = np.array([np.size(item) for item in X])
    with config_context(enable_metadata_routing=True):
        weighted = GaussianNB().set_fit_request(sample_weight=True)
        weighted.set_score_request(sample_weight=True)
        model = selector(size=None).set_params(estimator=weighted)
        model.set_fit_request(size=True).set_predict_request(size=True, budget=True)
        model.fit(X, y, size=sizes, sample_weight=weight)
        assert model.expanded_quality_[0] > 0.9
        model.set_score_request(size=True, budget=True, sample_weight=False)
        search = GridSearchCV(model, {"alpha": [0.0, 0.1]}, cv=2)
        search.fit(
            np.array(X, dtype=object), y, size=sizes, sample_weight=weight, budget=9.0
        )
        assert search.best_estimator_.quality_.shape[0] > 1
        # Nobody asked for it.
        plain = selector(size=None)
        with pytest.raises(ValueError, match="sample_weight"):
            plain.set_fit_request(size=True).fit(X, y, size=sizes, sample_weight=weight)


def test_nested_parameters():
    model = selector()
    model.set_params(both__fixed=7.0, estimator__var_smoothing=0.1, budget=3.0)
    assert dict(model.extractors)["both"].fixed == 7.0
    assert model.get_params()["both__fixed"] == 7.0
    assert "both__fixed" not in model.get_params(deep=False)
    model.set_params(both=Moment("other"))
    assert dict(model.extractors)["both"].name == "other"
    by_columns = PolyDomSelector(GaussianNB(), GROUPS, costs=GROUP_COSTS)
    assert "cheap" not in by_columns.get_params()
    assert by_columns.set_params(alpha=0.3).alpha == 0.3


def test_failure_inside_keeps_its_type_and_is_named(items):
    X, y = items
    with pytest.raises(ValueError, match="Number of priors") as error:
        selector().set_params(estimator=GaussianNB(priors=[1.0])).fit(X, y)
    assert "in fit of 'mean + spread + both' with 60 rows" in error.value.__notes__[0]
    broken = [("mean", FunctionTransformer(lambda X: 1 / 0))]
    with pytest.raises(ZeroDivisionError) as error:
        selector(costs=[1]).set_params(extractors=broken).fit(X, y)
    assert "transform of 'mean' with 90 rows" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"costs": {"mean": 1, "spread": 2}}, "costs has no entry for ['both']"),
        (
            {"costs": {**POLYNOMIALS, "x": 1}},
            "costs has entries for ['x'], which are not among",
        ),
        (
            {"costs": [1, 2, -3]},
            "costs of 'both' must be a number, a sequence of polynomial",
        ),
        (
            {"costs": {**POLYNOMIALS, "mean": [1, np.inf]}},
            "costs of 'mean' must be a number",
        ),
        ({"costs": {**POLYNOMIALS, "mean": True}}, "got True"),
        ({"costs": None}, "costs=None is allowed with extractors=None only"),
        (
            {"extractors": [("a + b", Moment("x"))], "costs": [1]},
            "'a + b' would be mistaken for",
        ),
        (
            {"extractors": [("(none)", Moment("x"))], "costs": [1]},
            "'(none)' would be mistaken",
        ),
        (
            {"costs": MeasuredCosts(1.0)},
            "percentile of MeasuredCosts must be a number above 0",
        ),
        ({"extractors": []}, "a non-empty list of (name, transformer) tuples, got []"),
        (
            {"extractors": [("a", 3)], "costs": [1]},
            "The extractor 'a' must have fit and transform",
        ),
        ({"extractors": [("a__b", Moment("x"))], "costs": [1]}, "must not contain __"),
        ({"extractors": {"a": [0]}}, "select columns of a two-dimensional X"),
        (
            {"scoring": "neg_log_loss"},
            "scoring must give finite scores that are not negative",
        ),
        ({"size": lambda item: -1.0}, "size must be finite and at least 0, got -1.0"),
        ({"size": lambda item: 1e120, "costs": [[0, 0, 1], 1, 1]}, "from 0 to 1e+100"),
    ],
)
def test_refused_in_fit(params, message):
    texts, y = ["ab", "cd", "abc", "c"] * 6, [0, 1, 1, 0] * 6
    moment_free = [
        (n, FunctionTransformer(lengths)) for n in ("mean", "spread", "both")
    ]
    model = selector(size=len).set_params(extractors=moment_free).set_params(**params)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(texts, y)


def test_errors_show_no_text_of_an_item():
    texts = ["a secret prompt", "another secret prompt"] * 6
    model = PolyDomSelector(
        LogisticRegression(),
        [("length", FunctionTransformer(lengths))],
        costs={"length": [0, 1.0]},
        size=str,
    )
    with pytest.raises(ValueError, match="size must be numbers, got list") as error:
        model.fit(texts, [0, 1] * 6)
    assert "secret" not in str(error.value)
    model.set_params(size=len).fit(texts, [0, 1] * 6)
    for call in (
        lambda: model.predict(texts, size=texts),
        lambda: model.select(size="a secret prompt", budget=1.0),
        lambda: model.predict(texts, budget=[1.0]),
    ):
        with pytest.raises(ValueError, match="size must be|budget must be") as error:
            call()
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("extractors", "message"),
    [
        ({}, "extractors must name at least one extractor, got {}"),
        ({"a": []}, "extractors['a'] must select at least one column, got []"),
        ({"a": [7]}, "all features must be in [0, 5] or [-6, 0]"),
        ({"a": "b"}, "only supported for dataframes"),
    ],
)
def test_refused_columns(table, extractors, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        PolyDomSelector(GaussianNB(), extractors, costs=[1]).fit(*table)
    said = [str(error.value), *getattr(error.value, "__notes__", ())]
    assert not extractors or "extractors['a']" in "".join(said)


def test_refused_tables_and_features(items):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match='costs="time" measures transformers'):
        PolyDomSelector(GaussianNB(), {"a": [0]}, costs="time").fit(X, y)
    wide = np.tile(X, 6)
    with pytest.raises(
        ValueError, match=r"at most 20 extractors, got 24.*GreedyFeatureSelector"
    ):
        PolyDomSelector(GaussianNB()).fit(wide, y)
    with pytest.raises(ValueError, match="at most 62 extractors, got 64"):
        GreedyFeatureSelector(GaussianNB()).fit(np.tile(X, 16), y)
    X, y = items
    flat = [("mean", FunctionTransformer(lambda X: np.zeros(len(X))))]
    with pytest.raises(
        ValueError, match=r"Extractor 'mean' must return one row.*\(90, n_features"
    ):
        selector(costs=[1]).set_params(extractors=flat).fit(X, y)
    with pytest.raises(
        ValueError, match="costs of 'mean' must be finite and at least 0"
    ):
        selector(costs={**POLYNOMIALS, "mean": lambda n: -n}).fit(X, y).predict(
            X, budget=3
        )


def test_refused_budgets_and_sizes(fitted, items):
    X, y = items
    with pytest.raises(
        ValueError, match="budget must be a non-negative number, the same for"
    ):
        fitted.predict(X, budget=-np.ones(len(X)))
    with pytest.raises(
        ValueError, match=r"one for each of the 90 items, got shape \(3,\)"
    ):
        fitted.predict(X, budget=[1.0, 2.0, 3.0])
    with pytest.raises(
        ValueError, match=r"size must have shape \(90,\), got shape \(1,\)"
    ):
        fitted.predict(X, budget=1.0, size=[1.0])
    with pytest.raises(
        ValueError, match="size must be finite and from 0 to .*, got -1.0"
    ):
        fitted.select(-1.0, 1.0)
    with pytest.raises(
        ValueError, match="size is needed because the costs depend on it"
    ):
        fitted.select(budget=1.0)
    with pytest.raises(
        ValueError, match="size is needed because the costs depend on it"
    ):
        selector(size=None).fit(X, y).predict(X, budget=1.0)
    with pytest.raises(
        ValueError, match='anytime=True watches the clock and needs costs="time"'
    ):
        fitted.predict(X, budget=1.0, anytime=True)


def test_raw_frames_behind_a_column_transformer():
    """The model of each set selects those columns of the set that have a type."""
    frame, y = hospital(150)
    frame = frame[["ward", "hb", "finding"]]
    encode = make_column_transformer(
        (SimpleImputer(), make_column_selector(dtype_include=float)),
        (
            OneHotEncoder(handle_unknown="ignore"),
            make_column_selector(dtype_exclude=float),
        ),
    )
    pipe = make_pipeline(encode, LogisticRegression())
    extractors = {"form": "ward", "blood": ["hb"], "scan": "finding"}
    model = PolyDomSelector(pipe, extractors, costs=[1, 3, 9], cv=2, alpha=None)
    model.fit(frame[:100], y[:100])
    for budget in (3.5, 9, np.inf):
        routed = model.predict_routed(frame[100:], budget=budget)
        chosen = model.candidates_[routed.route[0]]
        columns = [c for c, there in zip(["ward", "hb", "finding"], chosen) if there]
        by_hand = clone(pipe).fit(frame[:100][columns], y[:100])
        assert_array_equal(routed.y_pred, by_hand.predict(frame[100:][columns]))
        # What was not bought is not looked at.
        masked = frame[100:][columns].reindex(columns=frame.columns)
        assert_array_equal(model.predict(masked, budget=budget), routed.y_pred)
    by_name = clone(model).set_params(
        estimator=make_pipeline(
            make_column_transformer((SimpleImputer(), ["hb"])), GaussianNB()
        )
    )
    with pytest.raises(
        ValueError, match="not (a column|columns) of the dataframe"
    ) as error:
        by_name.fit(frame, y)
    assert "'form'" in error.value.__notes__[0]
