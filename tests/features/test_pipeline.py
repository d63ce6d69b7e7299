"""Pipelines that buy: raw columns, groups, transformers asked for what rows need."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.utils.estimator_checks import (
    check_classifier_data_not_an_array,
    check_estimators_pickle,
    check_n_features_in,
)

from skroute.features import CostAwarePipeline, LazyFeatures
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.metrics import best_within_budget, mean_cost_scorer
from skroute.routing import DummyRouterClassifier

PANELS = {
    "form": ["age", "sex", "ward"],
    "vitals": ["bp", "pulse"],
    "blood": ["hb", "crp", "group"],
    "urine": ["ph", "color"],
    "scan": ["size", "finding"],
}
COSTS = {"form": 0.5, "vitals": 1.0, "blood": 4.0, "urine": 2.0, "scan": 10.0}
COLUMNS = [column for columns in PANELS.values() for column in columns]


def hospital(n=500, seed=0, missing=0.1):
    """Return twelve raw columns in five panels, and labels.

    Some categories are rare. A tenth of the cells is missing.
    """
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    is_burnt = rng.random(n) < 0.01
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, n).astype(float),
            "sex": rng.choice(["f", "m"], n),
            "ward": np.where(
                is_burnt, "burns", rng.choice(["er", "onco", "general"], n)
            ),
            "bp": rng.normal(120, 15, n) + 8 * ill,
            "pulse": rng.normal(70, 10, n) + 6 * ill,
            "hb": rng.normal(13, 2, n) - 1.5 * ill,
            "crp": rng.exponential(5, n) + 6 * ill,
            "group": rng.choice(["0", "A", "B", "AB"], n, p=[0.45, 0.4, 0.13, 0.02]),
            "ph": rng.normal(6, 1, n) - 0.5 * ill,
            "color": rng.choice(["pale", "dark"], n),
            "size": rng.normal(0, 1, n) + 2 * ill,
            "finding": np.where(ill ^ (rng.random(n) < 0.2), "shadow", "clear"),
        }
    )
    frame = frame.mask(rng.random(frame.shape) < missing)
    return frame, np.where(ill, "ill", "well")


def encoder():
    """Return a transformer of all columns, which keeps panels apart."""
    text = ["sex", "ward", "group", "color", "finding"]
    numbers = [column for column in COLUMNS if column not in text]
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5), text),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
    )


class CountingSource:
    """Cells of a frame as a database returns them, with a count of those that were fetched."""

    def __init__(self, frame):
        self.table = frame.astype(object).where(frame.notna(), None)
        self.fetched = np.zeros(frame.shape, dtype=int)
        self.lazy = LazyFeatures(self.cells, n_samples=len(frame))

    def cells(self, columns, rows):
        """Return the cells of some columns of some rows."""
        positions = [COLUMNS.index(name) for name in columns]
        self.fetched[np.ix_(rows, positions)] += 1
        return self.table.iloc[rows, positions].to_numpy()

    def paid(self):
        """Return the cost of the fetched cells of each row.

        Panels must have been fetched whole, and once.
        """
        total = np.zeros(len(self.table))
        for panel, columns in PANELS.items():
            positions = [COLUMNS.index(name) for name in columns]
            fetched = self.fetched[:, positions]
            assert (fetched == fetched[:, :1]).all()
            assert fetched.max() <= 1
            total += COSTS[panel] * fetched[:, 0]
        return total


def adapt(**params):
    params = {"feature_groups": PANELS, "feature_costs": COSTS, "cv": 2} | params
    gate = BoostedGate(n_estimators=5)
    return AdaptGatingClassifier(
        GaussianNB(), gate=gate, p_full=0.5, gamma=0.01, **params
    )


def miser(**params):
    """Return boosted trees that pay for the features they read, without a gate."""
    gate = BoostedGate(n_estimators=2)
    return AdaptGatingClassifier(GaussianNB(), gate=gate, p_full=0, cv=2, **params)


@pytest.mark.parametrize("last", ["adapt", "sequential"])
def test_what_a_source_delivers_is_what_rows_cost(last):
    """Pipeline, GridSearchCV and a source: the provider's own count is `predict_cost`."""
    past, y = hospital(200)
    new, _ = hospital(100, seed=1)
    if last == "adapt":
        pipe = CostAwarePipeline([("encode", encoder()), ("buy", adapt())])
        model = GridSearchCV(
            pipe,
            {"buy__gamma": [0.01, 0.02]},
            scoring={"accuracy": "accuracy", "cost": mean_cost_scorer},
            refit=best_within_budget(18.0),
            cv=2,
        )
        model.fit(past, y)
        pipe = model.best_estimator_
        budget = pipe.min_budget_ + 1.5
    else:
        buy = SequentialFeatureClassifier(
            feature_groups=PANELS, feature_costs=COSTS, budget=8.0, random_state=0
        )
        pipe = CostAwarePipeline([("encode", encoder()), ("buy", buy)])
        model = pipe.fit(past, y)
        budget = 6.0
    expected = pipe.predict_routed(new)
    assert len(np.unique(expected.cost)) > 1
    for fitted in (model, FrozenEstimator(pipe)):
        source = CountingSource(new)
        np.testing.assert_array_equal(fitted.predict(source.lazy), expected.y_pred)
        np.testing.assert_allclose(source.paid(), expected.cost)
    source = CountingSource(new)
    routed = pipe.predict_routed(source.lazy, budget=budget)
    np.testing.assert_allclose(source.paid(), routed.cost)
    np.testing.assert_array_equal(pipe.predict_cost(new, budget=budget), routed.cost)


@pytest.mark.parametrize("library", ["pandas", "polars", "object"])
def test_rows_late_and_at_once_get_the_same_answers(library):
    past, y = hospital(200)
    past["age"] = past["age"].fillna(50).astype(int)
    new, _ = hospital(80, seed=2)
    # The new rows as a mapping from a column to its cells, None where one is missing.
    table = {}
    for name in COLUMNS:
        cells = [None if pd.isna(cell) else cell for cell in new[name]]
        table[name] = np.array(cells, dtype=object)
    encode = encoder()
    groups = PANELS
    if library == "polars":
        past = pl.from_pandas(past)
        new = pl.from_pandas(new)
    if library == "object":
        past = past.astype(object).where(past.notna(), None).to_numpy()
        new = new.astype(object).where(new.notna(), None).to_numpy()
        encode = encoder_of_positions()
        groups = {}
        for panel, names in PANELS.items():
            groups[panel] = [COLUMNS.index(name) for name in names]
        table = dict(enumerate(table.values()))
    buy = adapt(feature_groups=groups)
    pipe = CostAwarePipeline([("encode", encode), ("buy", buy)]).fit(past, y)
    for budget in (pipe.min_budget_ + 1.5, None):
        expected = pipe.predict_routed(new, budget=budget)
        late = pipe.predict_routed(table, budget=budget)
        np.testing.assert_array_equal(late.y_pred, expected.y_pred)
        np.testing.assert_array_equal(late.cost, expected.cost)
    np.testing.assert_allclose(pipe.predict_proba(table), pipe.predict_proba(new))
    assert pipe.choices_ == pipe[-1].choices_ == ["cheap", "full"]


def encoder_of_positions():
    """Return a transformer of an array of objects, which keeps panels apart."""
    text = [
        COLUMNS.index(name) for name in ("sex", "ward", "group", "color", "finding")
    ]
    numbers = [column for column in range(len(COLUMNS)) if column not in text]
    to_numbers = FunctionTransformer(lambda cells: np.array(cells, dtype=np.float64))
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), text),
        (make_pipeline(to_numbers, SimpleImputer()), numbers),
    )


@pytest.mark.parametrize("mixer", [PCA(2), Normalizer()])
def test_a_transformer_that_mixes_groups_is_refused(mixer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = rng.integers(0, 2, 80)
    mix = make_column_transformer((StandardScaler(), [0]), (mixer, [1, 2, 3]))
    steps = [("scale", StandardScaler()), ("mix", mix)]
    groups = {"a": [0], "b": [1, 2], "c": [3]}
    buy = miser(feature_groups=groups, feature_costs=[1, 20, 300])
    message = r"mix columns of the groups \['b', 'c'\].* cost 320 for each row"
    with pytest.raises(ValueError, match=message):
        CostAwarePipeline([*steps, ("buy", buy)]).fit(X, y)
    # Within one group it may mix as it likes.
    buy.set_params(feature_groups={"a": [0], "b": [1, 2, 3]}, feature_costs=[1, 20])
    pipe = CostAwarePipeline([*steps, ("buy", buy)]).fit(X, y)
    lazy = LazyFeatures(
        lambda columns, rows: X[np.ix_(rows, columns)], n_samples=len(X)
    )
    np.testing.assert_array_equal(pipe.predict(lazy), pipe.predict(X))


def test_what_is_constant_in_fit_has_its_group():
    """Outputs that are constant in `fit`: a column, a category, an indicator of missing."""
    rng = np.random.default_rng(0)
    past = pd.DataFrame(
        {"a": rng.normal(size=60), "b": np.ones(60), "c": rng.normal(size=60)}
    )
    y = (past["a"] > 0).to_numpy()
    costs = {"a": 1, "b": 2, "c": 4}
    imputer = SimpleImputer(add_indicator=True)
    encoders = [
        StandardScaler().set_output(transform="pandas"),
        ColumnTransformer([("all", imputer, ["a", "b", "c"])]),
        make_pipeline(
            FunctionTransformer(lambda X: X.isna().add_prefix("no_").join(X.fillna(0)))
        ),
    ]
    for encode in encoders:
        buy = miser(feature_costs=costs)
        pipe = CostAwarePipeline([("encode", encode), ("buy", buy)]).fit(past, y)
        new = past.head(10).assign(b=np.arange(10.0)).mask(rng.random((10, 3)) < 0.3)
        expected = np.asarray(pipe[:-1].transform(new), dtype=float)
        lazy = LazyFeatures({name: new[name] for name in new})
        late = pipe.rows_for_decision(lazy)
        for column, name in enumerate(buy._column_names()):
            values = late.read([name], np.arange(10))[:, 0]
            np.testing.assert_allclose(values, expected[:, column])


def test_a_router_at_the_end_of_a_pipeline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.integers(0, 2, 60)
    router = DummyRouterClassifier(
        [("a", LogisticRegression()), ("b", GaussianNB())],
        costs=[1, 3],
        strategy="random",
    )
    pipe = CostAwarePipeline([("scale", StandardScaler()), ("route", router)]).fit(X, y)
    assert pipe.predict_routed(X, budget=2).cost.mean() <= 2.6
    assert pipe.score(X, y, budget=3) > 0.3
    with pytest.raises(TypeError, match="fit reads whole rows and buys no columns"):
        pipe.fit(LazyFeatures({0: X[:, 0]}), y)
    plain = CostAwarePipeline(
        [("scale", StandardScaler()), ("model", LogisticRegression())]
    )
    assert not hasattr(plain.fit(X, y), "predict_routed")


def test_parts_of_lazy_rows_share_the_receipt():
    X = np.arange(12.0).reshape(6, 2)
    lazy = LazyFeatures(lambda columns, rows: X[np.ix_(rows, columns)], n_samples=6)
    selection = lazy[np.array([5, 1, 3])][1:]
    values = selection.read([1], np.array([1, 0]))
    np.testing.assert_array_equal(values, X[[3, 1]][:, [1]])
    (purchase,) = lazy.acquisition_log_
    assert purchase.columns == [1]
    assert purchase.rows.tolist() == [3, 1]
    assert selection.shape == (2,)
    assert len(selection) == 2


@pytest.mark.parametrize(
    "check",
    [check_classifier_data_not_an_array, check_estimators_pickle, check_n_features_in],
)
def test_checks_of_scikit_learn(check):
    """Checks that Pipeline passes: it fails those of mutated `steps`, and of NaN."""
    pipe = CostAwarePipeline([("scale", StandardScaler()), ("buy", miser())])
    check("CostAwarePipeline", pipe)


def test_a_category_that_decides_is_bought():
    """LightGBM splits categories as sets: half of twenty levels are ill, in no order."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 20, 800)
    ill = (rng.permutation(20) < 10)[level]
    frame = pd.DataFrame(
        {"noise": rng.normal(size=800), "level": [f"L{k}" for k in level]}
    )
    full = FrozenEstimator(DummyClassifier().fit(frame, ill))
    model = AdaptGatingClassifier(
        full, gate=BoostedGate(n_estimators=5), gamma=0.01, p_full=0
    )
    model.fit(frame[:500], ill[:500])
    assert model.features_used_["cheap"].tolist() == [1]
    assert model.score(frame[500:], ill[500:]) > 0.99
