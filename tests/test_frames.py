"""Frames are read by value, column by column: how other rows are held changes no row."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator

from skroute.features import LazyFeatures
from skroute.features._lazy import RawRows
from skroute.gating import AdaptGatingClassifier, BoostedGate, SequentialFeatureClassifier
from skroute.quality import FrameEncoder, QualityRegressor
from skroute.utils._frames import dates_of, texts_of

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
    X = pd.DataFrame({"code": pd.Series(code, dtype="category"), "word": word.astype(object)})
    X = X.assign(ident=pd.Series(ident, dtype="category"), flag=pd.Series(flag, dtype="category"))
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
    if dtype in ("float", "double[pyarrow]", "float32", "Float64", "Int64", "int64[pyarrow]"):
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
            {name: [None if pd.isna(v) else v for v in own] for name, own in lists.items()}
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
        with pytest.raises(ValueError, match="'day' held dates in fit, and now something else"):
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
    table = np.ma.masked_array([["red", 1], ["blue", 2]], [[True, False], [False, True]], object)
    lazy = LazyFeatures(lambda columns, rows: table[np.ix_(rows, columns)], n_samples=2)
    words, numbers = (texts_of(cells).tolist() for cells in lazy.fetch([0, 1], np.arange(2)))
    assert words == [None, "blue"] and numbers == ["1", None]
