"""Frames are read by value, column by column: how other rows are held changes no row."""

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from skroute.certified import CertifiedRouter
from skroute.feature_sets import PolyDomSelector
from skroute.features import CostAwarePipeline, LazyFeatures
from skroute.features._lazy import RawRows
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.metrics import accuracy_cost_curve, replay
from skroute.quality import BaggedNeighborsRegressor, FrameEncoder, QualityRegressor
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    FrugalMLClassifier,
    OccamRouterClassifier,
)
from skroute.utils._frames import dates_of, needs_encoding, texts_of

CODES = np.array([2, 1, 10, 0])
WORDS = np.array(["red", "blue", "10", "1.0"])
IDENTS = 1_700_000_000_000_000_000 + CODES  # floats do not tell them apart
DAYS = np.array(["2020-01-01", "2021-06-30", "1999-12-31"], dtype="datetime64[D]")
HOW = {
    "code": ["category", "Int64", "int64[pyarrow]", "float", "object"],
    "word": ["object", "category", "string", "string[pyarrow]"],
    "ident": ["category", "object"],
    "flag": ["bool", "boolean", "object", "category", "float"],
    "size": ["float", "Float64", "double[pyarrow]", "float32"],
    "day": ["datetime64[us]", "datetime64[ns]", "object"],
}


def log(n=120):
    """Codes that are categories, words, booleans, numbers and dates; what is right needs them."""
    rng = np.random.default_rng(0)
    code, word = rng.choice(CODES, n), rng.choice(WORDS, n)
    size = np.round(rng.normal(size=n), 1)
    flag, day = rng.random(n) < 0.5, rng.choice(DAYS, n)
    ident = rng.choice(IDENTS, n)
    y = (
        (code == 10)
        ^ (word == "red")
        ^ (size > 0.5)
        ^ flag
        ^ (day > DAYS[0])
        ^ (ident == IDENTS[2])
    )
    X = pd.DataFrame(
        {"code": pd.Series(code, dtype="category"), "word": word.astype(object)}
    )
    X = X.assign(
        ident=pd.Series(ident, dtype="category"), flag=pd.Series(flag, dtype="category")
    )
    return X.assign(size=size, day=day.astype("datetime64[us]")), y.astype(int)


@pytest.fixture(scope="module")
def fitted():
    X, y = log()
    full = FrozenEstimator(DummyClassifier().fit(X, y))
    gate = BoostedGate(n_estimators=10)
    adapt = AdaptGatingClassifier(full, gate=gate, gamma=0.0, p_full=0).fit(X, y)
    sequential = SequentialFeatureClassifier(random_state=0).fit(X, y)
    regressor = QualityRegressor(family=["linear", "trees"], cv=2).fit(
        X, np.column_stack([y, 1 - y]).astype(float)
    )
    return {
        "adapt": adapt.predict_proba,
        "sequential": sequential.predict_proba,
        "encoder": FrameEncoder().fit(X).transform,
        "regressor": regressor.predict,
    }


def held(column, dtype):
    """The same cells in another dtype; one with gaps where it can have them."""
    if dtype == "category":
        return column.astype(object).astype("category")
    if dtype in (
        "float",
        "double[pyarrow]",
        "float32",
        "Float64",
        "Int64",
        "int64[pyarrow]",
    ):
        return column.astype(object).astype("float64").astype(dtype)
    if dtype == "bool" and column.isna().any():
        return column.astype(object)
    return column.astype(dtype)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(["adapt", "sequential", "encoder", "regressor"]))
def test_a_row_means_the_same_however_the_others_are_held(fitted, data, model):
    """A gap, an unseen cell, dtypes, orders of categories, libraries and arrays."""
    X, _ = log()
    expected = fitted[model](X)
    rows = X.sample(frac=1, random_state=data.draw(st.integers(0, 99)))[:40]
    touched = data.draw(st.lists(st.integers(0, 39), max_size=3, unique=True))
    cells = dict.fromkeys(X.columns) | {"code": 77, "word": "never seen", "ident": 77}
    columns = {}
    for name in X:
        column = rows[name].astype(object)
        if touched and data.draw(st.booleans(), label=f"touch {name}"):
            unseen = data.draw(st.booleans(), label="unseen")
            column.iloc[touched] = cells[name] if unseen else None
        columns[name] = held(column, data.draw(st.sampled_from(HOW[name]), label=name))
        if hasattr(columns[name], "cat") and data.draw(st.booleans()):
            kinds = columns[name].cat.categories[::-1]
            columns[name] = columns[name].cat.set_categories(kinds)
    found = pd.DataFrame(columns)
    library = data.draw(st.sampled_from(["pandas", "polars", "array"]))
    if library == "polars":
        lists = {name: found[name].astype(object).tolist() for name in found}
        found = pl.DataFrame(
            {
                name: [None if pd.isna(v) else v for v in own]
                for name, own in lists.items()
            }
        )
    if library == "array":
        found = found.astype(object).to_numpy()
    kept = ~np.isin(np.arange(40), touched)
    assert_allclose(fitted[model](found)[kept], expected[rows.index][kept], atol=1e-9)


def test_numbers_are_no_dates_and_dates_no_numbers(fitted):
    X, _ = log()
    numpys = [np.datetime64("2026-01-01", "ns"), np.timedelta64(5, "ns")]
    among_objects = [pd.Series([date] * len(X), dtype=object) for date in numpys]
    wrong = [X.assign(size=dates) for dates in (X["day"], *among_objects)]
    for model in fitted.values():
        for other in (*wrong, X.assign(day=X["size"])):
            with pytest.raises(ValueError, match="in fit, and now something else"):
                model(other)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_cells_of_a_source_are_matched_by_value(library):
    """A pipeline makes rows of bought cells: categories by value, and dates by nothing else."""
    days = np.random.default_rng(0).choice(DAYS, 200).astype("datetime64[us]")
    codes = np.random.default_rng(1).choice(IDENTS, 200)
    X = pd.DataFrame({"day": days, "code": pd.Categorical(codes)})
    if library == "polars":
        words = [f"w{code}" for code in codes]
        X = pl.DataFrame({"day": days, "code": pl.Series(words, dtype=pl.Categorical)})
    raw = RawRows.of(X)
    bought = codes if library == "pandas" else np.array(words, dtype=object)
    for cells in (bought, bought.astype(object), [str(cell) for cell in bought]):
        found = raw.rows({0: days, 1: np.array(cells)}, 200)
        assert texts_of(found["code"]).tolist() == texts_of(X["code"]).tolist()
        assert dates_of(found["day"]).tolist() == dates_of(X["day"]).tolist()
    for wrong in (days.astype(np.int64), np.array(["2020-01-01"] * 200, dtype=object)):
        with pytest.raises(
            ValueError, match="'day' held dates in fit, and now something else"
        ):
            raw.rows({0: wrong, 1: bought}, 200)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_labels_of_a_sources_frame_put_no_cell_elsewhere(zone):
    X, _ = log()
    X["day"] = X["day"].dt.tz_localize(zone)
    lazy = LazyFeatures(lambda columns, rows: X.iloc[rows][columns], n_samples=len(X))
    cells = lazy.fetch(list(X.columns), np.array([4, 2]))
    found = RawRows.of(X).rows(dict(enumerate(cells)), 2)
    pd.testing.assert_frame_equal(found, X.iloc[[4, 2]].reset_index(drop=True))


def test_masked_cells_of_a_source_are_missing():
    table = np.ma.masked_array(
        [["red", 1], ["blue", 2]], [[True, False], [False, True]], object
    )
    lazy = LazyFeatures(lambda columns, rows: table[np.ix_(rows, columns)], n_samples=2)
    words, numbers = (
        texts_of(cells).tolist() for cells in lazy.fetch([0, 1], np.arange(2))
    )
    assert words == [None, "blue"] and numbers == ["1", None]


# Containers: one table has the decisions of the plain pandas frame, whoever holds it --------------


class OnlyAnArray:
    """Rows with NumPy's array interface and nothing else."""

    def __init__(self, rows):
        self.rows = np.asarray(rows)

    def __array__(self, dtype=None, copy=None):
        return self.rows if dtype is None else self.rows.astype(dtype)


def python_cells(frame):
    """Return the cells of each column as Python's, None where one is missing."""
    columns = {}
    for name in frame:
        cells = frame[name].astype(object).tolist()
        columns[name] = [None if pd.isna(cell) else cell for cell in cells]
    return columns


def python_rows(frame):
    """Return the rows as lists of Python's cells."""
    return [list(row) for row in zip(*python_cells(frame).values())]


def arrow_with_dictionary(frame):
    """Return an Arrow table whose texts are a dictionary column."""
    table = pa.table(python_cells(frame))
    if "code" not in table.column_names:
        return table
    at = table.column_names.index("code")
    return table.set_column(at, "code", table["code"].dictionary_encode())


def arrow_in_chunks(frame):
    """Return an Arrow table of two chunks, the first of one row."""
    table = pa.table(python_cells(frame))
    return pa.concat_tables([table.slice(0, 1), table.slice(1)])


FRAMES = {
    "polars": lambda frame: pl.DataFrame(python_cells(frame)),
    "arrow": lambda frame: pa.table(python_cells(frame)),
    "arrow batch": lambda frame: pa.RecordBatch.from_pydict(python_cells(frame)),
    "arrow chunks": arrow_in_chunks,
    "arrow dictionary": arrow_with_dictionary,
    "arrow types": lambda frame: arrow_in_chunks(frame).to_pandas(
        types_mapper=pd.ArrowDtype
    ),
    "nullable": lambda frame: frame.convert_dtypes(),
    "objects": lambda frame: frame.astype(object),
    "shuffled labels": lambda frame: frame.set_axis(np.arange(len(frame))[::-1]),
    "array of objects": lambda frame: np.array(python_rows(frame), dtype=object),
    "lists": python_rows,
    "tuples": lambda frame: tuple(map(tuple, python_rows(frame))),
}
ARRAYS = {
    "array": lambda frame: frame.to_numpy(),
    "columns in order": lambda frame: np.asfortranarray(frame.to_numpy()),
    "only an array": lambda frame: OnlyAnArray(frame.to_numpy()),
    "decimals": lambda frame: frame.map(lambda cell: Decimal(str(cell))).astype(object),
}
SPARSE = {
    kind: lambda frame, kind=kind: getattr(sparse, kind)(frame.to_numpy())
    for kind in ["csr_matrix", "csc_array", "coo_matrix", "lil_matrix", "dok_matrix"]
    + ["bsr_matrix", "dia_matrix", "dia_array"]
} | {"sparse frame": lambda frame: frame.astype(pd.SparseDtype("float64", 0.0))}


def table_of(kind, missing, rng):
    """Return a table of texts, numbers and flags, or of numbers, its missing rows, and labels."""
    n = 80
    size = rng.normal(size=n).round(1)
    count = rng.integers(0, 5, n).astype(float)
    code = rng.choice(["1_1", "11", "007", "7", "nan"], n)
    if kind == "numbers":
        y = (size > 0) ^ (count > 2)
        frame = pd.DataFrame({"size": size, "count": count})
    else:
        y = (size > 0) ^ np.isin(code, ["11", "7"])
        flag = pd.Series(rng.random(n) < 0.5, dtype=object)
        frame = pd.DataFrame({"size": size, "code": code.astype(object), "flag": flag})
    gaps = {"none": [], "first": [0], "some": [0, *rng.choice(n, 5)]}[missing]
    for row in gaps:
        frame.loc[row, "size"] = np.nan
        if kind != "numbers":
            frame.loc[row, ["code", "flag"]] = None
    return frame, y.astype(int)


class Reader(NamedTuple):
    """An estimator, what it learns from, and the method whose answers are compared."""

    estimator: Any
    method: str
    # Keyword arguments of the method.
    call: dict = {}
    # Whether it learns from the quality of two choices, not from labels.
    learns_quality: bool = False

    def answers(self, X, y, **params):
        """Return the answers to the rows that were fitted."""
        target = y
        if self.learns_quality:
            target = np.column_stack([1.0 - y, np.ones(len(y))])
        fitted = clone(self.estimator).fit(X, target, **params)
        return getattr(fitted, self.method)(X, **self.call)


ENCODED = make_pipeline(FrameEncoder(n_components=3), LogisticRegression())
TREES = make_pipeline(FrameEncoder(n_components=3), DecisionTreeClassifier(max_depth=3))
MEMBERS = {"estimators": [("a", ENCODED), ("b", TREES)], "costs": [1, 5], "cv": 2}
LINEAR = QualityRegressor(family=["linear"], cv=2)
CHOICES = {"costs": [1, 9], "budget": 4, "cv": 2}
READERS = {
    "encoder": Reader(FrameEncoder(n_components=3), "transform"),
    "regressor": Reader(LINEAR, "predict", learns_quality=True),
    "budget": Reader(BudgetRouter(LINEAR, **CHOICES), "route", learns_quality=True),
    "cascade": Reader(
        CascadeRouter(LINEAR, n_prices=3, **CHOICES), "route", learns_quality=True
    ),
    "occam": Reader(
        OccamRouterClassifier(quality_estimator=LINEAR, budget=3, **MEMBERS),
        "predict_proba",
    ),
    "frugal": Reader(FrugalMLClassifier(budget=2, **MEMBERS), "route"),
    "gate": Reader(
        AdaptGatingClassifier(
            ENCODED, gate=BoostedGate(n_estimators=3), cv=2, gamma=0.0
        ),
        "predict_proba",
    ),
    "buyer": Reader(
        SequentialFeatureClassifier(ENCODED, random_state=0), "predict_proba"
    ),
    "pipeline": Reader(
        CostAwarePipeline(
            [
                ("encoder", FrameEncoder(n_components=3)),
                ("buyer", SequentialFeatureClassifier(TREES, random_state=0)),
            ]
        ),
        "predict_proba",
    ),
    "selector": Reader(
        PolyDomSelector(ENCODED, extractors={"a": [0], "b": [1]}, costs=[1, 2], cv=2),
        "predict",
        call={"budget": 2},
    ),
}
# Gates and buyers take sparse frames but no sparse matrices, as they read columns.
DENSE_READERS = {"gate", "buyer"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reader", READERS)
def test_one_table_has_the_same_answers_in_each_container(reader, seed):
    rng = np.random.default_rng([seed, *map(ord, reader)])
    kind = rng.choice(["numbers", "mixed"])
    frame, y = table_of(kind, rng.choice(["none", "first", "some"]), rng)
    makers = dict(FRAMES)
    if kind == "numbers":
        makers |= ARRAYS | SPARSE
    read = READERS[reader].answers
    expected = read(frame, y)
    for container in rng.choice(sorted(makers), 4, replace=False):
        X = makers[container](frame)
        if reader in DENSE_READERS and sparse.issparse(X):
            with pytest.raises(TypeError, match="Use '.toarray\\(\\)'"):
                read(X, y)
            continue
        np.testing.assert_array_equal(read(X, y), expected, err_msg=container)


SERIES = {
    "tuple": tuple,
    "array": np.array,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "series": pd.Series,
    "series, other labels": lambda texts: pd.Series(
        texts, index=np.arange(len(texts))[::-1]
    ),
    "series of objects": lambda texts: pd.Series(texts, dtype=object),
    "series of pyarrow": lambda texts: pd.Series(texts, dtype="string[pyarrow]"),
    "series of categories": lambda texts: pd.Series(texts, dtype="category"),
    "polars": pl.Series,
    "polars categories": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "arrow": pa.array,
    "arrow chunks": lambda texts: pa.chunked_array(
        [texts[:1], texts[1:]], type=pa.string()
    ),
    "arrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "only an array": OnlyAnArray,
}
WORD_MODELS = {
    "estimators": [
        ("bayes", make_pipeline(CountVectorizer(), MultinomialNB())),
        ("linear", make_pipeline(CountVectorizer(), LogisticRegression())),
    ],
    "costs": [1, 5],
    "cv": 2,
}
TEXT_ESTIMATE = make_pipeline(FrameEncoder(n_components=5), Ridge())
TEXT_ROUTER = BudgetRouter(TEXT_ESTIMATE, **CHOICES)
TEXT_READERS = {
    "encoder": Reader(FrameEncoder(n_components=5), "transform"),
    "budget": READERS["budget"],
    "certified": Reader(
        CertifiedRouter(TEXT_ROUTER, max_loss=0.5, random_state=0),
        "route",
        learns_quality=True,
    ),
    "occam": Reader(
        OccamRouterClassifier(quality_estimator=TEXT_ESTIMATE, budget=3, **WORD_MODELS),
        "predict",
    ),
    "frugal": Reader(FrugalMLClassifier(budget=3, **WORD_MODELS), "route"),
    "selector": Reader(
        PolyDomSelector(
            LogisticRegression(),
            extractors=[("words", CountVectorizer())],
            costs=[1],
            cv=2,
        ),
        "predict",
        call={"budget": 1},
    ),
}
# The models of these read no missing text.
READ_MISSING_TEXTS = {"encoder", "budget", "certified"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("reader", TEXT_READERS)
def test_prompts_have_the_same_answers_in_each_container(reader, seed):
    rng = np.random.default_rng([seed, *map(ord, reader)])
    y = rng.integers(0, 2, 60)
    prompts = [
        f"{'sort a list' if hard else 'weather today'} {i}" for i, hard in enumerate(y)
    ]
    if reader in READ_MISSING_TEXTS and seed == 1:
        prompts[0] = prompts[7] = None
    read = TEXT_READERS[reader].answers
    expected = read(prompts, y)
    for container in rng.choice(sorted(SERIES), 4, replace=False):
        found = read(SERIES[container](prompts), y)
        np.testing.assert_array_equal(found, expected, err_msg=container)


@pytest.mark.parametrize("container", SERIES)
def test_prompts_have_the_same_measures_and_streams_in_each_container(container):
    prompts = [f"{'sort a list' if i % 2 else 'weather today'} {i}" for i in range(40)]
    Q = np.column_stack([np.arange(40) % 2, np.ones(40)]).astype(float)
    X = SERIES[container](prompts)
    router = clone(TEXT_ROUTER).fit(prompts, Q)
    for prompt in prompts[:2]:
        expected = router.stream(100.0).route([prompt])
        assert (
            router.stream(100.0).route(SERIES[container]([prompt])).choice
            == expected.choice
        )
    found = replay(router, X, Q, [1, 9])
    np.testing.assert_array_equal(found.route, replay(router, prompts, Q, [1, 9]).route)
    found = accuracy_cost_curve(router, X, Q, budgets=[2, 4])
    expected = accuracy_cost_curve(router, prompts, Q, budgets=[2, 4])
    np.testing.assert_array_equal(found.quality, expected.quality)
    choice = np.arange(40) % 2
    of_log = [
        clone(TEXT_ROUTER)
        .fit(rows, np.ones(40) - choice * 0.1, choice=choice)
        .route(rows)
        for rows in (X, prompts)
    ]
    np.testing.assert_array_equal(*of_log)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_prompts_may_be_missing_in_any_row(missing):
    prompts = [missing, "weather today", "sort a list"] * 20
    filled = ["", "weather today", "sort a list"] * 20
    assert needs_encoding(prompts)
    encoder = FrameEncoder(n_components=3).fit(prompts)
    np.testing.assert_array_equal(
        encoder.transform(prompts), FrameEncoder(n_components=3).fit_transform(filled)
    )
    # Also where nothing else is asked.
    np.testing.assert_array_equal(encoder.transform([missing]), encoder.transform([""]))


@pytest.mark.parametrize("container", ["array", "frame", "csr_matrix", "lists"])
def test_the_default_estimate_takes_missing_numbers(container):
    """A frame of numbers with gaps is read as next to a column of texts; so are arrays."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    y = (frame["a"] > 0).to_numpy().astype(int)
    whole = frame.copy()
    frame.loc[::7, "a"] = np.nan
    makers = {"frame": lambda frame: frame} | ARRAYS | FRAMES | SPARSE
    make = makers[container]
    members = [
        ("tree", DecisionTreeClassifier(max_depth=2)),
        ("boosted", HistGradientBoostingClassifier(max_iter=2)),
    ]
    if container != "csr_matrix":
        router = OccamRouterClassifier(members, costs=[1, 2], budget=1.5, cv=2)
        assert router.fit(make(frame), y).predict(make(frame)).shape == (80,)
    # Gaps that fit has not seen are the mean.
    model = QualityRegressor(family=["linear"], cv=2).fit(
        make(whole), np.column_stack([y, 1 - y])
    )
    filled = frame.fillna({"a": whole["a"].mean()})
    np.testing.assert_allclose(
        model.predict(make(frame)), model.predict(make(filled)), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "container", ["array of objects", "array of texts", "frame", "series"]
)
def test_texts_are_no_numbers_where_numbers_are_read(container):
    numbers = np.arange(40.0).reshape(20, 2)
    texts = np.array([["1_1", "2"]] * 20)
    X = {
        "array of objects": texts.astype(object),
        "array of texts": texts,
        "frame": pd.DataFrame(texts.astype(object)),
        "series": None,
    }[container]
    if container == "series":
        with pytest.raises(ValueError, match="y must be numbers"):
            BudgetRouter(costs=[1, 2]).fit(numbers, pd.DataFrame(texts))
        return
    y = np.arange(20) % 2
    with pytest.raises(ValueError, match="must be numbers, got texts"):
        BaggedNeighborsRegressor().fit(X, y)
    full = DecisionTreeClassifier()
    gate = AdaptGatingClassifier(full, gate=BoostedGate(n_estimators=2), cv=2).fit(
        numbers, y
    )
    with pytest.raises(ValueError, match="must be numbers, got texts"):
        gate.predict(X)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "array"])
def test_a_source_gives_no_texts_for_numbers(library):
    frame = pd.DataFrame({"size": np.arange(10.0), "count": np.arange(10)})
    makers = {"pandas": lambda frame: frame} | FRAMES | ARRAYS
    raw = RawRows.of(makers[library](frame))
    found = raw.rows({0: frame["size"], 1: frame["count"]}, 10)
    np.testing.assert_array_equal(np.asarray(found, dtype=float), frame.to_numpy())
    with pytest.raises(ValueError, match="held numbers in fit, and now something else"):
        raw.rows({0: np.array(["1_1"] * 10)}, 10)
