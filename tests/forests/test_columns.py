"""Columns of categories, in any container and order, are read as by the library."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import PortableEnsemble, QWYCEnsemble, export_ensemble
from skroute.forests import FastForest, leaf_sums, read_lightgbm

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
cat = pytest.importorskip("catboost")

# Rows that models are fitted on, and drawn situations of each library.
N_ROWS, N_DRAWS = 240, 12
CATEGORIES = {
    "texts": ["w", "a", "zz", "", "1"],
    "codes": [0, 1, 2, 3, 4],
    "whole numbers": [7, -3, 5, 1, 2],
    "large numbers": [2**53 + 1, 2**53 + 2, 3, 1, 2],
    "numbers": [0.5, -0.25, 1.5, 2.0, 3.0],
    "booleans": [True, False],
    "mixed": [1, "a", 2.5, "b", 3],
}
# XGBoost takes texts and whole numbers alone.
KINDS_OF_XGBOOST = ("texts", "codes", "whole numbers", "large numbers")
NUMBERS = (
    "float64",
    "float32",
    "int64",
    "int8",
    "bool",
    "Int64",
    "Float32",
    "boolean",
    "sparse",
)


def number_column(rng, kind):
    values = (
        rng.integers(0, 2, N_ROWS) if "bool" in kind else rng.integers(-3, 9, N_ROWS)
    )
    if kind == "sparse":
        return pd.arrays.SparseArray(
            np.maximum(values, 0).astype(float), fill_value=0.0
        )
    if kind.startswith("float"):
        values = values + rng.normal(size=N_ROWS)
        values[rng.random(N_ROWS) < 0.1] = np.nan
    column = pd.Series(values).astype(kind)
    if kind in ("Int64", "Float32", "boolean"):
        column[rng.random(N_ROWS) < 0.1] = pd.NA
    return column.array


def category_column(rng, kind):
    values = pd.Index(CATEGORIES[kind], dtype=object if kind == "mixed" else None)
    # XGBoost reads memory beyond the column if an index is a view of another one.
    values = values.take(rng.permutation(len(values)))
    codes = rng.integers(-1 if rng.random() < 0.5 else 0, len(values), N_ROWS)
    return pd.Categorical.from_codes(
        codes, categories=values, ordered=rng.random() < 0.3
    )


def drawn_frame(rng, kinds, numbers=NUMBERS):
    """Return a frame of some columns of categories and some of numbers, and labels."""
    columns = [
        category_column(rng, rng.choice(kinds)) for _ in range(rng.integers(1, 4))
    ]
    columns += [
        number_column(rng, rng.choice(numbers)) for _ in range(rng.integers(1, 4))
    ]
    order = rng.permutation(len(columns))
    frame = pd.DataFrame(
        {f"f{i}": columns[position] for i, position in enumerate(order)}
    )
    signal = sum(codes_of(frame[name]) % 2 for name in frame)
    return frame, (signal % 2 == 0).astype(int) ^ (rng.random(N_ROWS) < 0.1)


def codes_of(column):
    """Return whole numbers from 0, equal for equal cells."""
    codes = (
        column.cat.codes
        if hasattr(column, "cat")
        else pd.factorize(np.asarray(column))[0]
    )
    return np.asarray(codes).astype(int) + 1


def altered_frames(rng, frame):
    """Yield names and rows that a service may send, with other categories or types."""
    names = [name for name in frame if hasattr(frame[name], "cat")]
    name = rng.choice(names)
    categories = frame[name].cat.categories
    new = "never seen" if isinstance(categories[0], str) else 99
    shuffled = categories.take(rng.permutation(len(categories)))
    fewer = frame[name].cat.remove_categories(categories[:1])
    missing = frame[name].where(rng.random(len(frame)) < 0.7)
    yield "as they are", frame
    yield "one row", frame[:1]
    yield "rows of another index", frame[::-1]
    yield (
        "other order",
        frame.assign(**{name: frame[name].cat.set_categories(shuffled)}),
    )
    yield "ordered otherwise", frame.assign(**{name: frame[name].cat.as_ordered()})
    yield "fewer categories", frame.assign(**{name: fewer})
    yield "missing", frame.assign(**{name: missing})
    yield (
        "none",
        frame.assign(**{name: frame[name].where(np.zeros(len(frame), dtype=bool))}),
    )
    yield (
        "inferred categories",
        frame.assign(**{name: frame[name].astype(object).astype("category")}),
    )
    yield (
        "unseen",
        frame.assign(**{name: frame[name].cat.rename_categories({categories[0]: new})}),
    )
    yield "codes", frame.assign(**{name: frame[name].cat.codes})
    yield "values", frame.assign(**{name: frame[name].astype(object)})
    yield "texts", frame.assign(**{name: frame[name].astype(str).astype("category")})
    plain = [column for column in frame if column not in names]
    yield (
        "more categories",
        frame.assign(**{plain[0]: frame[plain[0]].astype("category")}),
    )
    yield (
        "array",
        np.column_stack([numbers_of_column(frame[column]) for column in frame]),
    )


def numbers_of_column(column):
    """Return the codes of categories, or the numbers of a column, as float64."""
    if hasattr(column, "cat"):
        codes = column.cat.codes.to_numpy(dtype=np.float64)
        return np.where(codes < 0, np.nan, codes)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def check_same(model, readers, rows, method="predict_proba", may_refuse=()):
    """Compare the answers of readers and of their model, and return their number."""
    n_compared = 0
    for name, cells in rows:
        try:
            expected = getattr(model, method)(cells)
        except Exception:
            # The library refuses such rows: there is no wrong answer.
            continue
        for reader in readers:
            try:
                answers = getattr(reader, method)(cells)
            except ValueError as error:
                assert name in may_refuse, (name, error)
                continue
            if isinstance(reader, QWYCEnsemble):
                np.testing.assert_allclose(
                    answers, expected, rtol=1e-4, atol=1e-5, err_msg=name
                )
            else:
                np.testing.assert_array_equal(answers, expected, err_msg=name)
            n_compared += 1
    return n_compared


def readers_of(model, X):
    """Return forests that were read without and with rows, and an early exit."""
    early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(X)
    return [FastForest.from_ensemble(model), FastForest.from_ensemble(model, X), early]


@pytest.mark.parametrize("seed", range(N_DRAWS))
def test_categories_that_lightgbm_was_told(seed):
    """Categories are listed by name or by number, in `fit` or in parameters."""
    rng = np.random.default_rng(seed)
    X, y = drawn_frame(rng, list(CATEGORIES))
    names = [
        name for name in X if X[name].dtype.kind in "iu" or hasattr(X[name], "cat")
    ]
    listed = [name for name in names if rng.random() < 0.5]
    # Whole numbers that are listed as categories must not be negative.
    X = X.assign(**{name: X[name] + 3 for name in names if not hasattr(X[name], "cat")})
    way = rng.choice(["auto", "names", "numbers", "params"])
    options = {"n_estimators": 8, "min_child_samples": 3, "verbose": -1, "n_jobs": 1}
    fit_params = {}
    if way == "names":
        fit_params["categorical_feature"] = listed
    elif way == "numbers":
        fit_params["categorical_feature"] = [X.columns.get_loc(name) for name in listed]
    elif way == "params" and listed:
        options["categorical_feature"] = "name:" + ",".join(listed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = lgb.LGBMClassifier(**options).fit(X, y, **fit_params)
        rows = list(altered_frames(rng, X))
        assert check_same(model, readers_of(model, X), rows) > 20
        booster = model.booster_
        fast = FastForest.from_ensemble(booster)
        assert check_same(booster, [fast], rows, "predict") > 6
        sums = leaf_sums(read_lightgbm(booster), X)[:, 0]
        np.testing.assert_allclose(sums, booster.predict(X, raw_score=True), atol=1e-12)


@pytest.mark.parametrize("seed", range(N_DRAWS))
def test_categories_that_xgboost_was_told(seed):
    """Categories by types of columns, or by `feature_types` in frames and arrays."""
    rng = np.random.default_rng(seed)
    X, y = drawn_frame(rng, KINDS_OF_XGBOOST)
    way = rng.choice(["types of columns", "codes of some", "array of codes", "numbers"])
    names = [name for name in X if hasattr(X[name], "cat")]
    options = {
        "n_estimators": 8,
        "enable_categorical": True,
        "n_jobs": 1,
        "max_cat_to_onehot": 2,
    }
    trained = X
    if way == "codes of some":
        name = rng.choice(names)
        types = ["c" if column in names else "q" for column in X]
        trained = X.assign(**{name: X[name].cat.codes.where(X[name].cat.codes >= 0)})
        options["feature_types"] = types
    elif way == "array of codes":
        trained = np.column_stack([numbers_of_column(X[column]) for column in X])
        options["feature_types"] = ["c" if column in names else "q" for column in X]
    elif way == "numbers":
        trained = np.column_stack([numbers_of_column(X[column]) for column in X])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xgb.XGBClassifier(**options).fit(trained, y)
        rows = [("trained", trained), *altered_frames(rng, X)]
        # XGBoost raises, or answers by chance, for a category that it has not seen.
        may_refuse = (
            "unseen",
            "texts",
            "inferred categories",
            "more categories",
            "values",
        )
        readers = readers_of(model, trained)
        assert check_same(model, readers, rows, may_refuse=may_refuse) > 3


@pytest.mark.parametrize("container", ["polars", "polars enum", "arrow"])
@pytest.mark.parametrize("trained_on", ["pandas", "polars", "arrow"])
def test_categories_of_polars_and_arrow_as_xgboost_reads_them(container, trained_on):
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    texts = rng.choice(["b", "a", "d", "c"], N_ROWS)
    numbers = rng.normal(size=N_ROWS)
    y = np.isin(texts, ["a", "d"]) ^ (numbers > 1)
    enum = pl.Enum(["d", "c", "b", "a"])
    frame = pl.DataFrame({"c": texts, "x": numbers})
    tables = {
        "pandas": pd.DataFrame({"c": pd.Categorical(texts), "x": numbers}),
        "polars": frame.with_columns(pl.col("c").cast(pl.Categorical)),
        "polars enum": frame.with_columns(pl.col("c").cast(enum)),
        "arrow": pa.table({"c": pa.array(texts).dictionary_encode(), "x": numbers}),
    }
    X = tables[trained_on]
    model = xgb.XGBClassifier(n_estimators=6, enable_categorical=True, n_jobs=1).fit(
        X, y
    )
    fast = FastForest.from_ensemble(model)
    rows = tables[container]
    np.testing.assert_array_equal(fast.predict_proba(rows), model.predict_proba(rows))
    codes = lgb.LGBMClassifier(n_estimators=3, verbose=-1).fit(
        np.column_stack([numbers] * 2), y
    )
    with pytest.raises(ValueError, match=r"categories in the columns \[0\]"):
        # LightGBM aborts the process at such a table.
        FastForest.from_ensemble(codes).predict(rows)


@pytest.mark.parametrize("seed", range(8))
def test_categories_of_histogram_boosting(seed):
    rng = np.random.default_rng(seed)
    kinds = ["texts", "whole numbers", "numbers"]
    X, y = drawn_frame(rng, kinds, ["float64", "float32", "int64"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HistGradientBoostingClassifier(
            max_iter=6, categorical_features="from_dtype"
        )
        model.fit(X, y)
        readers = [FastForest.from_ensemble(model, X)]
        rows = [row for row in altered_frames(rng, X) if row[0] != "array"]
        assert check_same(model, readers, rows) > 4


def told_to_catboost(rng, X, y):
    """Return a model of CatBoost with categories or texts, listed in a random way."""
    options = {
        "iterations": 3,
        "verbose": 0,
        "thread_count": 1,
        "allow_writing_files": False,
    }
    way = rng.choice(
        ["names", "numbers", "constructor", "pool", "array", "texts", "one hot"]
    )
    frame = pd.DataFrame({"x": X, "c": rng.choice(["a", "b", "c"], N_ROWS)})
    if way == "texts":
        frame["c"] = frame["c"] + " word " + frame["c"]
        return cat.CatBoostClassifier(**options).fit(frame, y, text_features=["c"])
    if way == "array":
        return cat.CatBoostClassifier(**options).fit(
            frame.to_numpy(object), y, cat_features=[1]
        )
    if way == "pool":
        return cat.CatBoostClassifier(**options).fit(
            cat.Pool(frame, y, cat_features=["c"])
        )
    if way == "constructor":
        return cat.CatBoostClassifier(**options, cat_features=["c"]).fit(frame, y)
    if way == "one hot":
        options["one_hot_max_size"] = 10
    fit_params = {"cat_features": [1] if way == "numbers" else ["c"]}
    return cat.CatBoostClassifier(**options).fit(
        frame.astype({"c": "category"}), y, **fit_params
    )


@pytest.mark.parametrize("seed", range(14))
def test_categories_and_texts_of_catboost_are_refused_by_name(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=N_ROWS)
    model = told_to_catboost(rng, X, (X > 0).astype(int))
    with pytest.raises(
        ValueError, match=r"has (categorical|text) features in the columns \[1\]"
    ):
        FastForest.from_ensemble(model)
    with pytest.raises(
        ValueError, match=r"has (categorical|text) features in the columns \[1\]"
    ):
        QWYCEnsemble(FrozenEstimator(model), random_state=0).optimize(X[:, None])


def test_categories_that_lightgbm_cannot_write_down():
    days = pd.Categorical(pd.date_range("2020", periods=4)[np.arange(N_ROWS) % 4])
    X = pd.DataFrame({"day": days, "x": np.arange(N_ROWS) % 7})
    data = lgb.Dataset(X, np.arange(N_ROWS) % 2)
    booster = lgb.train({"verbose": -1}, data, 2, keep_training_booster=True)
    with pytest.raises(ValueError, match="cannot write down .dates"):
        FastForest.from_ensemble(booster)


@pytest.mark.parametrize("kind", ["DMatrix", "Pool", "Dataset"])
def test_tables_that_libraries_hold_for_themselves_are_refused(kind):
    X = np.random.default_rng(0).normal(size=(50, 2))
    table = {"DMatrix": xgb.DMatrix, "Pool": cat.Pool, "Dataset": lgb.Dataset}[kind](X)
    fast = FastForest(RandomForestClassifier(3)).fit(X, X[:, 0] > 0)
    with pytest.raises(TypeError, match=f"X is a {kind}, of which trees read no rows"):
        fast.predict(table)
    with pytest.raises(TypeError, match=f"X is a {kind}, of which trees read no rows"):
        FastForest.from_ensemble(fast.estimator.fit(X, X[:, 0] > 0), table)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_codes_between_minus_one_and_zero_from_a_file(library, tmp_path):
    """LightGBM cuts them off to 0, and to XGBoost they are missing."""
    rng = np.random.default_rng(0)
    codes, numbers = rng.integers(0, 6, N_ROWS), rng.normal(size=N_ROWS)
    X, y = np.column_stack([codes, numbers]), (codes % 3 == 0).astype(int)
    if library == "xgboost":
        model = xgb.XGBClassifier(
            n_estimators=6, enable_categorical=True, feature_types=["c", "q"], n_jobs=1
        ).fit(X, y)
    else:
        model = lgb.LGBMClassifier(
            n_estimators=6, min_child_samples=2, verbose=-1, n_jobs=1
        )
        model.fit(X, y, categorical_feature=[0])
    early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(X)
    export_ensemble(early, tmp_path / "codes.npz")
    portable = PortableEnsemble.load(tmp_path / "codes.npz")
    X[:, 0] = rng.choice([-0.5, -0.1, -1.0, -3.0, 0.5, np.nan, 70.0], N_ROWS)
    np.testing.assert_array_equal(portable.predict(X), model.predict(X))
    frame = pd.DataFrame({"c": pd.Categorical(codes), "x": numbers})
    with pytest.raises(ValueError, match=r"with categories in the columns \[0\]"):
        portable.predict(frame)


def test_a_file_of_an_ensemble_with_lists_of_categories_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    X, y = drawn_frame(rng, list(CATEGORIES))
    model = lgb.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, y)
    early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(X)
    with pytest.raises(ValueError, match="encodes categories of its own"):
        export_ensemble(early, tmp_path / "refused.npz")
