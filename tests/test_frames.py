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

from skroute.gating import AdaptGatingClassifier, BoostedGate, SequentialFeatureClassifier
from skroute.quality import FrameEncoder, QualityRegressor

CODES = np.array([2, 1, 10, 0])
WORDS = np.array(["red", "blue", "10", "1.0"])
DAYS = np.array(["2020-01-01", "2021-06-30", "1999-12-31"], dtype="datetime64[D]")
HOW = {
    "code": ["category", "Int64", "int64[pyarrow]", "float", "object"],
    "word": ["object", "category", "string", "string[pyarrow]"],
    "flag": ["bool", "boolean", "object"],
    "size": ["float", "Float64", "double[pyarrow]", "float32"],
    "day": ["datetime64[us]", "datetime64[ns]", "object"],
}


def log(n=120):
    """Codes that are categories, words, booleans, numbers and dates; what is right needs them."""
    rng = np.random.default_rng(0)
    code, word = rng.choice(CODES, n), rng.choice(WORDS, n)
    size = np.round(rng.normal(size=n), 1)
    flag, day = rng.random(n) < 0.5, rng.choice(DAYS, n)
    y = ((code == 10) ^ (word == "red") ^ (size > 0.5) ^ flag ^ (day > DAYS[0])).astype(int)
    X = pd.DataFrame({"code": pd.Series(code, dtype="category"), "word": word.astype(object)})
    return X.assign(flag=flag, size=size, day=day.astype("datetime64[us]")), y


def models():
    X, y = log()
    full = FrozenEstimator(DummyClassifier().fit(X, y))
    gate = BoostedGate(n_estimators=10)
    adapt = AdaptGatingClassifier(full, gate=gate, gamma=0.0, p_full=0).fit(X, y)
    sequential = SequentialFeatureClassifier(random_state=0).fit(X, y)
    encoder = FrameEncoder().fit(X)
    regressor = QualityRegressor(cv=2).fit(X, np.column_stack([y, 1 - y]).astype(float))
    return {
        "adapt": adapt.predict_proba,
        "sequential": sequential.predict_proba,
        "encoder": encoder.transform,
        "regressor": regressor.predict,
    }


@pytest.fixture(scope="module")
def fitted():
    return models()


def held(column, dtype):
    """The same cells in another dtype; one with gaps where it can have them."""
    if dtype == "category":
        return column.astype(object).astype("category")
    if dtype in ("float", "double[pyarrow]", "float32", "Float64", "Int64", "int64[pyarrow]"):
        return column.astype(object).astype("float64").astype(dtype)
    if dtype == "bool" and column.isna().any():
        return column.astype(object)
    return column.astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["adapt", "sequential", "encoder", "regressor"]))
def test_a_row_means_the_same_however_the_others_are_held(fitted, data, model):
    """A gap, an unseen cell, dtypes, orders of categories, libraries and arrays.

    It was seen to fail where categories were found by the text of a cell (one gap turned 1 into
    1.0 in all rows), and where an array of the rows was taken for codes.
    """
    X, _ = log()
    expected = fitted[model](X)
    rows = X.sample(frac=1, random_state=data.draw(st.integers(0, 99)))[:40]
    touched = data.draw(st.lists(st.integers(0, 39), max_size=3, unique=True))
    cells = {"code": 77, "word": "never seen", "flag": None, "size": None, "day": None}
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
    for model in fitted.values():
        for wrong in (X.assign(size=X["day"]), X.assign(day=X["size"])):
            with pytest.raises(ValueError, match="in fit, and now something else"):
                model(wrong)
