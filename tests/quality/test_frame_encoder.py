"""Encoding of texts, categories and numbers, and routers that read them."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from skroute.quality import FrameEncoder, QualityRegressor
from skroute.routing import BudgetRouter
from skroute.utils._frames import needs_encoding

WORDS = ["alpha", "beta", "gamma", "delta", "sum", "proof", "poem", "recipe"]


def frame(n_rows=80, seed=0):
    """Return a log with a column of texts, one of categories and one of numbers."""
    rng = np.random.default_rng(seed)
    prompts = [" ".join(rng.choice(WORDS, 6)) + f" {i}" for i in range(n_rows)]
    length = rng.random(n_rows)
    length[::7] = np.nan
    tenant = rng.choice(["red", "blue"], n_rows)
    return pd.DataFrame({"prompt": prompts, "tenant": tenant, "length": length})


def test_each_column_is_read_by_its_kind():
    log = frame()
    encoder = FrameEncoder(n_components=4).fit(log)
    assert encoder.kinds_ == ["text", "category", "number"]
    rows = encoder.transform(log)
    assert rows.shape == (80, 4 + 2 + 2)
    np.testing.assert_array_equal(rows[:, 4], log["tenant"] == "blue")
    np.testing.assert_array_equal(rows[:, -1], log["length"].isna())
    scaled = rows[log["length"].notna(), -2]
    assert abs(scaled.mean()) < 1e-12
    assert scaled.std() == pytest.approx(1)
    # fit_transform has other rows for texts alone: it encodes them as new ones.
    as_new = FrameEncoder(n_components=4).fit_transform(log)
    np.testing.assert_allclose(rows[:, 4:], as_new[:, 4:], atol=1e-5)
    assert np.linalg.norm(as_new[:, :4]) < np.linalg.norm(rows[:, :4])


def test_columns_are_found_by_name_and_libraries_agree():
    log = frame()
    encoder = FrameEncoder(n_components=4).fit(log)
    expected = encoder.transform(log)
    np.testing.assert_array_equal(
        encoder.transform(log[["length", "tenant", "prompt"]]), expected
    )
    other = FrameEncoder(n_components=4).fit(log).transform(pl.from_pandas(log))
    np.testing.assert_allclose(other, expected, atol=1e-5)
    other = FrameEncoder(n_components=4).fit_transform(pl.from_pandas(log))
    expected = FrameEncoder(n_components=4).fit_transform(log)
    np.testing.assert_allclose(other, expected, atol=1e-5)
    with pytest.raises(ValueError, match="must have the columns"):
        encoder.transform(log.rename(columns={"tenant": "customer"}))
    with pytest.raises(ValueError, match="2 features, but FrameEncoder is expecting 3"):
        encoder.transform(log[["prompt", "tenant"]].to_numpy())


def test_equal_texts_are_equal_rows_and_alike_ones_are_near():
    log = frame()
    log.loc[1, "prompt"] = log.loc[0, "prompt"]
    rows = FrameEncoder(n_components=10).fit_transform(log[["prompt"]])
    np.testing.assert_allclose(rows[0], rows[1])
    topics = ["red wine", "white wine", "loud music"]
    texts = []
    for number in range(20):
        texts += [f"{topic} {number}" for topic in topics]
    encoder = FrameEncoder(n_components=10).fit(texts)
    red_wine, white_wine, music = encoder.transform(topics)
    assert red_wine @ white_wine > red_wine @ music + 0.1


def test_cells_that_were_not_in_fit_are_read():
    encoder = FrameEncoder().fit(frame())
    new = pd.DataFrame(
        {"prompt": ["", None], "tenant": ["green", None], "length": [None, 3]}
    )
    assert np.isfinite(encoder.transform(new)).all()
    with pytest.raises(ValueError, match="now something else") as refused:
        encoder.transform(new.assign(length=["secret", "words"]))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("X", "needed"),
    [
        (["a b", "c d"], True),
        (frame(), True),
        (frame()[["length"]], False),
        (np.array([["1", "2"]]), True),
        ([None, "a b"], True),
        ([["red", 1.0], ["blue", 2.0]], True),
        (np.array([[1, 2.0], [None, True]], dtype=object), False),
        (np.array([[{"a": 1}, "text"]], dtype=object), False),
    ],
)
def test_what_needs_encoding(X, needed):
    assert needs_encoding(X) is needed


@pytest.mark.parametrize("library", ["pandas", "polars", "array", "list"])
def test_a_router_reads_a_log_as_it_is(library):
    log = frame(200)
    rng = np.random.default_rng(1)
    hard = log["prompt"].str.contains("proof").to_numpy()
    right = rng.random(200) < np.where(hard, 0.1, 0.95)
    Q = np.column_stack([right, np.ones(200)])
    X = {
        "pandas": log[["prompt", "tenant"]],
        "polars": pl.from_pandas(log[["prompt", "tenant"]]),
        "array": log["prompt"].to_numpy(dtype=str),
        "list": list(log["prompt"]),
    }[library]
    router = BudgetRouter(costs=[1.0, 10.0], cv=2).fit(X, Q.astype(float))
    share = hard.mean()
    route = router.route(X, budget=1 + 9 * share)
    assert route[hard].mean() > route[~hard].mean() + 0.4


CATEGORIES = ["object", "string", "string[pyarrow]", "category"]
NUMBERS = ["Int64", "Float64", "float", "boolean", "bool"]


def column_of(dtype, missing, rng):
    """Return a column of a dtype, with missing values if it can have them."""
    n_rows = 40
    if dtype in CATEGORIES:
        values = rng.choice(["red", "blue"], n_rows).astype(object)
    elif dtype.startswith("bool"):
        values = rng.integers(0, 2, n_rows).astype(bool).astype(object)
    else:
        values = rng.integers(0, 9, n_rows).astype(object)
    if missing and dtype != "bool":
        values[::5] = np.nan if dtype in ("float", "object", "category") else pd.NA
    return pd.Series(values).astype(dtype)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CATEGORIES + NUMBERS), st.booleans(), st.integers(0, 99))
def test_every_dtype_of_pandas_is_read(dtype, missing, seed):
    if dtype == "string[pyarrow]":
        pytest.importorskip("pyarrow")
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": column_of(dtype, missing, rng), "b": rng.normal(size=40)})
    encoder = FrameEncoder().fit(X)
    assert encoder.kinds_ == ["category" if dtype in CATEGORIES else "number", "number"]
    rows = encoder.transform(X)
    assert rows.dtype == np.float64
    assert np.isfinite(rows).all()
    # The same rows as plain objects, with None for a missing value.
    plain = X.astype(object).where(X.notna(), None)
    np.testing.assert_allclose(FrameEncoder().fit_transform(plain), rows)
    if dtype in CATEGORIES or not X["a"].isna().any():
        model = QualityRegressor(family=["linear"], cv=2).fit(X, rng.random((40, 2)))
        assert np.isfinite(model.predict(X)).all()


def test_dates_are_dates():
    dates = pd.to_datetime(["2020-01-01", "2021-01-01", None])
    log = pd.DataFrame({"year": [2020, 2021, 2022], "day": dates})
    encoder = FrameEncoder().fit(log)
    assert encoder.kinds_ == ["number", "date"]
    np.testing.assert_allclose(encoder.transform(log)[:, 1:], [[-1, 0], [1, 0], [0, 1]])
    with pytest.raises(TypeError, match="cells of Timedelta"):
        FrameEncoder().fit(pd.DataFrame({"wait": dates - dates[0]}))


TEXTS_OF_DIGITS = [
    "1_1",
    "11",
    "007",
    "7",
    "1e1",
    "10",
    "nan",
    "1.0",
    "1",
    "inf",
    "True",
]


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(
        st.sampled_from(TEXTS_OF_DIGITS), min_size=2, max_size=11, unique=True
    ),
    container=st.sampled_from(
        [
            "object",
            "string",
            "category",
            "array",
            "list",
            "polars",
            "arrow",
            "bytes",
            "series",
        ]
    ),
)
def test_different_texts_are_different_rows_and_none_is_missing(texts, container):
    column = texts * 4
    X = {
        "object": lambda: pd.DataFrame({"code": pd.Series(column, dtype=object)}),
        "string": lambda: pd.DataFrame({"code": pd.Series(column, dtype="string")}),
        "category": lambda: pd.DataFrame({"code": pd.Series(column, dtype="category")}),
        "array": lambda: np.array(column)[:, np.newaxis],
        "list": lambda: column,
        "polars": lambda: pl.DataFrame({"code": column}),
        "arrow": lambda: pa.table({"code": column}),
        "bytes": lambda: np.array(column).astype("S")[:, np.newaxis],
        "series": lambda: pd.Series(column),
    }[container]()
    encoder = FrameEncoder().fit(X)
    assert encoder.kinds_ == ["category"]
    rows = encoder.transform(X)
    np.testing.assert_array_equal(rows[: len(texts)].sum(axis=1), 1)
    assert len(np.unique(rows, axis=0)) == len(texts)


def test_texts_become_numbers_only_where_the_user_converts_them():
    texts = pd.DataFrame({"size": ["1", "2", "4"] * 10})
    encoder = FrameEncoder().fit(texts.astype(float))
    assert encoder.kinds_ == ["number"]
    with pytest.raises(ValueError, match=r"held numbers in fit.*astype\(float\)"):
        encoder.transform(texts)


def letters(texts):
    """Return the counts of ten letters in each text, as an encoder of a user."""
    assert len(set(texts)) == len(texts)
    counts = np.empty((len(texts), 10))
    for number, letter in enumerate("abcdefghij"):
        counts[:, number] = [text.count(letter) for text in texts]
    return counts


def by_words():
    return TfidfVectorizer(token_pattern="[a-z]+")


@pytest.mark.parametrize("text", [letters, by_words()])
def test_texts_are_read_by_an_encoder_of_ones_own(text):
    log = frame(40)
    encoder = FrameEncoder(text=text, n_components=200).fit(log)
    assert encoder.kinds_ == ["text", "category", "number"]
    rows = encoder.transform(log)
    texts = log["prompt"].tolist()
    if text is letters:
        peer = letters(texts)
    else:
        peer = by_words().fit_transform(texts).toarray()
    if peer.shape[1] <= 8:
        np.testing.assert_allclose(rows[:, : peer.shape[1]], peer)
    else:
        # A fifth of the rows bounds the number of directions.
        values = np.linalg.svd(peer, compute_uv=False)[:8]
        lengths = np.linalg.norm(rows[:, :8], axis=0)
        np.testing.assert_allclose(lengths, values, rtol=1e-3, atol=1e-9)
    # A row is the same alone, among others and after a round trip.
    np.testing.assert_allclose(encoder.transform(log[3:4]), rows[3:4], atol=1e-12)
    copied = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copied.transform(log), rows)
    assert text is letters or not hasattr(text, "vocabulary_")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (lambda texts: np.ones(len(texts)), "shape"),
        (lambda texts: np.ones((len(texts) + 1, 2)), "shape"),
        (lambda texts: np.full((len(texts), 2), np.nan), "finite"),
        ("sentences", "text"),
    ],
)
def test_an_encoder_that_gives_no_numbers_is_refused(text, match):
    encoder = FrameEncoder(text=text)
    with pytest.raises(ValueError, match=match) as caught:
        encoder.fit(frame(20))
    assert not any(word in str(caught.value) for word in frame(20)["prompt"])
    assert not hasattr(encoder, "kinds_")
    # The encoder of texts is not called for a table without texts.
    if not isinstance(text, str):
        assert encoder.fit_transform(frame()[["length"]]).shape == (80, 2)


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_column_of_missing_cells_may_have_any_cells_later(nothing):
    log = pd.DataFrame({"prompt": ["ab cd", "ab ef"] * 20, "tenant": [nothing] * 40})
    encoder = FrameEncoder(n_components=2)
    rows = encoder.fit_transform(log)
    assert encoder.kinds_ == ["category", "number"]
    later = log.assign(tenant=pd.Series(["red", 7, "7", None] * 10, dtype=object))
    later_rows = encoder.transform(later)
    assert np.isfinite(later_rows).all()
    np.testing.assert_array_equal(later_rows[::4], rows[::4])
    # Only the number is not missing.
    np.testing.assert_array_equal(later_rows[:, -1], [1, 0, 1, 1] * 10)


def test_masked_cells_are_missing():
    X = frame().to_numpy()
    encoder = FrameEncoder(n_components=2).fit(frame())
    missing = X.copy()
    missing[3] = None
    missing[5, 2] = None
    masked = np.ma.masked_array(X, mask=missing == np.array(None))
    np.testing.assert_array_equal(encoder.transform(masked), encoder.transform(missing))


OUTPUTS = {"default": np.ndarray, "pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("place", ["alone", "global", "pipeline", "columns"])
def test_names_and_types_of_outputs_are_those_of_transformers(output, place):
    log = frame()
    plain = FrameEncoder(n_components=4).fit_transform(log)
    encoder = FrameEncoder(n_components=4)
    names = [f"prompt_text{k}" for k in range(4)]
    names += ["tenant_blue", "tenant_red", "length", "missingindicator_length"]
    if place == "pipeline":
        encoder = make_pipeline(encoder, MaxAbsScaler())
        plain = MaxAbsScaler().fit_transform(plain)
    if place == "columns":
        encoder = make_column_transformer(
            (encoder, list(log.columns)), verbose_feature_names_out=False
        )
    if place == "global":
        with config_context(transform_output=output):
            rows = encoder.fit_transform(log)
            later_rows = encoder.transform(log)
    else:
        encoder.set_output(transform=output)
        rows = encoder.fit_transform(log)
        later_rows = encoder.transform(log)
    assert type(rows) is OUTPUTS[output]
    assert type(later_rows) is OUTPUTS[output]
    np.testing.assert_array_equal(np.asarray(rows), plain)
    assert list(encoder.get_feature_names_out()) == names
    if output != "default":
        assert list(rows.columns) == names
        assert list(later_rows.columns) == names


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_estimates_do_not_depend_on_the_output_of_transformers(output):
    log = frame()
    rng = np.random.default_rng(0)
    Q = rng.random((80, 2))
    expected = QualityRegressor(family=["linear"], cv=2).fit(log, Q).predict(log)
    with config_context(transform_output=output):
        model = QualityRegressor(family=["linear"], cv=2).fit(log, Q)
        np.testing.assert_array_equal(model.predict(log), expected)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array", "lil_matrix"])
def test_many_sparse_columns_are_reduced_to_directions(kind):
    texts = frame(60)["prompt"]
    wide = TfidfVectorizer(analyzer="char", ngram_range=(1, 9)).fit_transform(texts)
    assert wide.shape[1] > 1000
    X = getattr(sparse, kind)(wide)
    encoder = FrameEncoder(n_components=4).fit(X)
    rows = encoder.transform(X)
    peer = TruncatedSVD(4, random_state=0).fit_transform(wide)
    np.testing.assert_allclose(rows, peer, atol=1e-10)
    assert list(encoder.get_feature_names_out()) == [f"direction{k}" for k in range(4)]
    np.testing.assert_allclose(encoder.transform(wide.toarray()), rows, atol=1e-10)
    Q = np.eye(2)[np.arange(60) % 2]
    model = QualityRegressor(family=["linear"], cv=2).fit(X, Q)
    assert model.predict(X[:3] if kind == "csr_matrix" else X).shape[1] == 2
    missing = wide.copy()
    missing.data[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        FrameEncoder().fit(missing)


def language(n_words=2000):
    """Return different words of four to eight letters."""
    rng = np.random.default_rng(0)
    letters_of_words = rng.choice(list("abcdefghijklmnopqrstuvwxyz"), (2 * n_words, 8))
    lengths = rng.integers(4, 9, 2 * n_words)
    words = ["".join(row[:length]) for row, length in zip(letters_of_words, lengths)]
    return sorted(set(words))[:n_words]


LANGUAGE = language()


def prompts(n_texts, rng):
    """Return texts with the word frequencies of a language, and their topics."""
    n_words = len(LANGUAGE)
    share = 1 / np.arange(1, n_words + 1)
    share /= share.sum()
    topic = rng.integers(0, 4, n_texts)
    texts = []
    for number in topic:
        common = rng.choice(n_words, 20, p=share)
        of_topic = 4 * rng.integers(0, n_words // 4, 10) + number
        texts.append(" ".join(LANGUAGE[word] for word in [*common, *of_topic]))
    return texts, topic


def many_words():
    return TfidfVectorizer(use_idf=False, vocabulary=LANGUAGE)


def dense_words(texts):
    return many_words().fit_transform(texts).toarray()


@pytest.mark.parametrize("text", ["hashing", many_words(), dense_words])
def test_training_texts_are_encoded_as_new_ones(text):
    """Otherwise they would be longer: directions turn towards the texts of `fit`."""
    as_new = []
    in_sample = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        texts, _ = prompts(600, rng)
        encoder = FrameEncoder(text=text, random_state=seed)
        rows = encoder.fit_transform(texts[:300])
        rows_in_sample = encoder.transform(texts[:300])
        new_rows = encoder.transform(texts[300:])
        square_of_new = (new_rows**2).mean()
        as_new.append((rows**2).mean() / square_of_new)
        in_sample.append((rows_in_sample**2).mean() / square_of_new)
    assert np.mean(in_sample) > 1.25
    assert abs(np.mean(as_new) - 1) < 0.1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30))
def test_training_texts_have_finite_rows_that_are_hardly_longer_than_in_sample(
    seed, n_words
):
    """Some texts are equal, empty, or the only ones with a word or a direction."""
    rng = np.random.default_rng(seed)
    words = LANGUAGE[:n_words]
    texts = [" ".join(rng.choice(words, rng.integers(0, 4))) for _ in range(20)]
    texts[0] = "alone with words twice twice"
    # With fewer different texts, the column would be one of categories.
    texts += [f"text {number}" for number in range(60)]
    encoder = FrameEncoder(n_components=5, random_state=0)
    rows = encoder.fit_transform(texts)
    assert np.isfinite(rows).all()
    in_sample = encoder.transform(texts)
    # Without a text the rarity of its words changes, and with it the length of the row.
    assert np.linalg.norm(rows) <= np.linalg.norm(in_sample) * 1.05
    equal = [texts.index(text) for text in texts]
    np.testing.assert_allclose(rows, rows[equal], atol=1e-6)


@pytest.mark.slow
def test_budgets_hold_on_new_texts():
    """Routers on texts encoded as new ones are compared with in-sample ones."""
    odds = np.array([[2.0, 2.2, 2.4], [-2.0, 0.0, 2.2]])
    budget = 2.0
    missed = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        texts, topic = prompts(1400, rng)
        is_hard = (topic >= 2).astype(int)
        Q = (rng.random((1400, 3)) < 1 / (1 + np.exp(-odds[is_hard]))).astype(float)
        encoder = FrameEncoder(random_state=0)
        rows_as_new = encoder.fit_transform(texts[:500])
        rows_in_sample = encoder.transform(texts[:500])
        new_rows = encoder.transform(texts[500:])
        missed_of_draw = []
        for rows in (rows_as_new, rows_in_sample):
            router = BudgetRouter(costs=[1.0, 4.0, 12.0], budget=budget).fit(
                rows, Q[:500]
            )
            missed_of_draw.append(router.predict_cost(new_rows).mean() / budget - 1)
        missed.append(missed_of_draw)
    missed_as_new, missed_in_sample = np.array(missed).T
    standard_error = missed_as_new.std(ddof=1) / 10**0.5
    assert abs(missed_as_new.mean()) < max(0.03, 2 * standard_error)
    assert np.abs(missed_as_new).mean() < 0.08
    assert np.abs(missed_in_sample).mean() > 0.1
    lead = np.abs(missed_in_sample) - np.abs(missed_as_new)
    assert lead.mean() > 2 * lead.std(ddof=1) / 10**0.5


@pytest.mark.parametrize("with_missing", [False, True])
def test_numbers_and_categories_are_those_of_scikit_learn(with_missing):
    rng = np.random.default_rng(0)
    numbers = rng.normal(3, 2, (60, 2))
    if with_missing:
        numbers[::7, 0] = np.nan
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    frame["letter"] = rng.choice(["x", "y", "z"], 60)
    new = frame.iloc[:5].assign(a=[np.nan, 1, 2, 3, 4], letter=list("xyzxq"))
    scaled = make_union(
        make_pipeline(StandardScaler(), SimpleImputer(strategy="constant")),
        MissingIndicator(error_on_new=False),
    )
    reference = make_column_transformer(
        (scaled, ["a"]),
        (clone(scaled), ["b"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["letter"]),
    )
    encoder = FrameEncoder()
    assert_array_equal(encoder.fit_transform(frame), reference.fit_transform(frame))
    assert_array_equal(encoder.transform(new), reference.transform(new))
