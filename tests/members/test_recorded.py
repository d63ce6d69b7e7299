import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesRegressor

from skroute.members import RecordedClassifier
from skroute.routing import OccamRouterClassifier

LABELS = np.array(["cat", "dog", "cat", "eel"])
SCORES = np.array([0.9, 0.5, 0.1, 1.0])


def test_labels_with_scores():
    model = RecordedClassifier(LABELS, scores=SCORES)
    assert model.classes_.tolist() == ["cat", "dog", "eel"]
    assert model.predict([[3], [0]]).tolist() == ["eel", "cat"]
    np.testing.assert_allclose(
        model.predict_proba([[0], [1], [3]]),
        [[0.9, 0.05, 0.05], [0.25, 0.5, 0.25], [0, 0, 1]],
    )
    np.testing.assert_array_equal(
        model.predict_scores([[0], [1]]), [[0.9, 0, 0], [0, 0.5, 0]]
    )
    # 0.1 is below one third: the answered label stays on top.
    proba = model.predict_proba([[2]])
    np.testing.assert_allclose(proba, 1 / 3)
    assert proba.argmax() == 0 and proba.sum() == pytest.approx(1)
    one_class = RecordedClassifier(["a", "a"], scores=[0.2, 0.0])
    np.testing.assert_array_equal(one_class.predict_proba([[0], [1]]), [[1.0], [1.0]])
    # A label that is named with a score of 0 stays the answer.
    named = RecordedClassifier([2, 1], scores=[0.0, 0.4], classes=[0, 1, 2])
    scores = named.predict_scores([[0], [1]])
    assert scores.argmax(axis=1).tolist() == [2, 1]
    np.testing.assert_allclose(scores, [[0, 0, 0], [0, 0.4, 0]], atol=1e-300)
    model = RecordedClassifier(LABELS)
    assert not hasattr(model, "predict_proba") and not hasattr(model, "predict_scores")
    assert model.fit([[0]]).predict([2]).tolist() == ["cat"]
    assert model.set_params(predictions=LABELS[::-1]).predict([[0]]).tolist() == ["eel"]


def test_score_matrix():
    scores = [[0.2, 0.6], [3.0, 1.0], [0.0, 0.0]]
    model = RecordedClassifier(scores=scores, classes=["yes", "no"])
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict([[0], [1], [2]]).tolist() == ["no", "yes", "no"]
    np.testing.assert_allclose(
        model.predict_proba([[0], [1], [2]]), [[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]]
    )
    np.testing.assert_array_equal(model.predict_scores([[1]]), [[1, 3]])
    assert RecordedClassifier(scores=scores).classes_.tolist() == [0, 1]
    # Labels that a service chose against its own scores are kept.
    both = RecordedClassifier(["no", "no", "yes"], scores=scores, classes=["yes", "no"])
    assert both.predict([[1], [2]]).tolist() == ["no", "yes"]


def test_several_labels():
    named = np.array([[1, 0, 1], [0, 0, 0]], dtype=bool)
    scores = np.array([[0.9, 0, 0.4], [0, 0, 0]])
    model = RecordedClassifier(named, scores=scores, classes=["sky", "car", "dog"])
    assert model.classes_.tolist() == ["car", "dog", "sky"]
    np.testing.assert_array_equal(model.predict([[0], [1]]), [[0, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(model.predict_proba([[0]]), [[0, 0.4, 0.9]])
    np.testing.assert_array_equal(model.predict_scores([[0]]), [[0, 0.4, 0.9]])
    assert model.__sklearn_tags__().classifier_tags.multi_label
    model.fit([[0], [1]], named)


def test_frames():
    ids = ["x1", "x2", "x3", "x4"]
    labels = pd.Series(LABELS, index=ids)
    both = RecordedClassifier(labels, scores=pd.Series(SCORES, index=ids))
    assert both.predict_proba([["x4"]]).max() == 1
    assert RecordedClassifier(pd.DataFrame({"a": LABELS})).predict([[3]]) == ["eel"]
    with pytest.raises(ValueError, match="must have the same index"):
        RecordedClassifier(labels, scores=pd.Series(SCORES)).predict([["x1"]])
    other = RecordedClassifier(pl.Series(LABELS.tolist()), ids=pl.Series(ids))
    for library, model in ((pd, RecordedClassifier(labels)), (pl, other)):
        X = library.DataFrame({"size": [1.0, 2.0], "id": ["x4", "x2"]})
        assert model.predict(X[["id"]]).tolist() == ["eel", "dog"]
        assert clone(model).set_params(column="id").predict(X).tolist() == [
            "eel",
            "dog",
        ]
        matrix = RecordedClassifier(
            scores=library.DataFrame({"b": [0.0, 1.0], "a": [1.0, 0.0]})
        )
        assert matrix.classes_.tolist() == ["a", "b"]
        assert matrix.predict([[0], [1]]).tolist() == ["a", "b"]


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_are_read_by_the_names_of_their_columns(library):
    """In two orders, scores of one label were read as those of another."""
    scores = library.DataFrame({"cat": [0.9, 0.2], "dog": [0.1, 0.8]})
    named = library.DataFrame({"dog": [0, 1], "cat": [1, 0]})
    rows = [[0], [1]]
    for params in (
        {"predictions": named, "scores": scores},
        {"predictions": named, "scores": scores, "classes": ["dog", "cat"]},
        {"scores": scores, "classes": ["dog", "cat"]},
    ):
        model = RecordedClassifier(**params)
        assert model.classes_.tolist() == ["cat", "dog"]
        np.testing.assert_array_equal(
            model.predict_scores(rows), [[0.9, 0.1], [0.2, 0.8]]
        )
    model = RecordedClassifier(named, scores=scores, classes=["yes", "no"])
    np.testing.assert_array_equal(model.predict(rows), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(model.predict_scores(rows), [[0.1, 0.9], [0.8, 0.2]])
    model = RecordedClassifier(named, classes=["cat", "dog"])
    np.testing.assert_array_equal(model.predict(rows), [[1, 0], [0, 1]])
    # Names of columns that are not labels have no effect.
    model = RecordedClassifier(scores=scores.to_numpy(), classes=["dog", "cat"])
    scores.columns = ["x", "y"]
    other = RecordedClassifier(scores=scores, classes=["dog", "cat"])
    np.testing.assert_array_equal(model.predict(rows), other.predict(rows))


@pytest.mark.parametrize(
    ("ids", "asked"),
    [
        *((None, row) for row in (-1, 4, 0.5, np.nan, np.inf, "0")),
        *(
            ([1, 2, 3, 4], "1"),
            (["1", "2", "3", "4"], 1.0),
            (["1", "2", "3", "4"], "5"),
        ),
    ],
)
def test_what_is_not_on_record_is_never_guessed(ids, asked):
    known = "row numbers 0 to 3" if ids is None else "4 ids"
    with pytest.raises(
        KeyError, match=f"recorded are {known}. An unknown row is never guessed"
    ):
        RecordedClassifier(LABELS, ids=ids).predict([[asked]])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "predictions and scores are both None"),
        ({"scores": [0.5, 0.5]}, "scores of shape (n_rows,) belong to labels"),
        (
            {"predictions": LABELS, "scores": SCORES - 1},
            "finite and from 0 to 1, got -0.09",
        ),
        (
            {"predictions": LABELS, "scores": SCORES * 3},
            "finite and from 0 to 1, got 2.7",
        ),
        ({"predictions": LABELS, "scores": SCORES * np.nan}, "NaN"),
        ({"predictions": LABELS, "classes": ["cat", "dog"]}, "have the label 'eel'"),
        ({"predictions": LABELS, "ids": [1, 2]}, "ids must have shape (4,), got (2,)"),
        (
            {"predictions": LABELS, "ids": [1, 2, 2, 3]},
            "ids must not repeat; rows 1 and 2",
        ),
        (
            {"predictions": LABELS, "scores": np.ones((4, 2))},
            "scores must have shape (4, 3)",
        ),
        ({"predictions": [[1, 2]]}, "an indicator matrix of 0 and 1"),
        ({"predictions": [["a", "b"]]}, "predictions must be numbers, got list"),
        (
            {"predictions": [[1, 0]] * 4, "scores": SCORES},
            "scores must have shape (4, 2)",
        ),
    ],
)
def test_records_that_are_not_consistent(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RecordedClassifier(**params).fit([[0]])


def test_errors_show_no_texts():
    prompts = ["what ails me?", "who am I?", "what ails me?"]
    model = RecordedClassifier(["a", "b"], ids=prompts[:2])
    with pytest.raises(KeyError, match=r"1 of 2 rows of X \(at 1\)") as caught:
        model.predict([["who am I?"], ["a secret"]])
    assert "secret" not in str(caught.value) and "who" not in str(caught.value)
    with pytest.raises(ValueError, match="rows 0 and 2 have the same") as caught:
        RecordedClassifier(["a", "b", "a"], ids=prompts).fit([["x"]])
    assert "ails" not in str(caught.value)


def recorded_problem(n=400, seed=0):
    """Two services: a cheap one that is right for small x, a expensive one for most."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    y = rng.integers(0, 3, n)
    right = [rng.uniform(size=n) < 1 - 0.8 * x, rng.uniform(size=n) < 0.9]
    # The expensive one has a label of its own, which is never true.
    answers = [np.where(right[0], y, (y + 1) % 3), np.where(right[1], y, 9)]
    return x, y, answers


def test_a_router_routes_records():
    x, y, answers = recorded_problem()
    members = [
        (name, RecordedClassifier(answer, column=0))
        for name, answer in zip(("cheap", "expensive"), answers)
    ]
    X = np.column_stack([np.arange(len(y)), x])
    router = OccamRouterClassifier(
        members,
        costs=[1, 5],
        budget=3,
        cv=2,
        embedding=ColumnTransformer([("x", "passthrough", [1])]),
        quality_estimator=ExtraTreesRegressor(20, min_samples_leaf=10, random_state=0),
    ).fit(X[:300], y[:300])
    y_pred, route, cost = router.predict_routed(X[300:])
    assert set(router.classes_) == {0, 1, 2, 9}
    np.testing.assert_array_equal(
        y_pred, np.choose(route, [answer[300:] for answer in answers])
    )
    assert 0 < route.mean() < 1
    assert x[300:][route == 1].mean() > x[300:][route == 0].mean()
    # What the recorded member was right about is its own record, not a refit.
    np.testing.assert_allclose(router.mean_quality_[0], (answers[0] == y)[:300].mean())


def test_embedding_is_the_cheap_members_scores():
    x, y, answers = recorded_problem()
    scores = 1 - 0.6 * x
    members = [
        ("cheap", RecordedClassifier(answers[0], scores=scores)),
        ("expensive", RecordedClassifier(answers[1])),
    ]
    router = OccamRouterClassifier(
        members, costs=[1, 5], budget=4, embedding="cheap", cv=2
    )
    rows = np.arange(len(y))[:, None]
    router.fit(rows[:300], y[:300])
    y_pred, route, cost = router.predict_routed(rows[300:])
    np.testing.assert_allclose(cost, np.where(route == 0, 1, 6))
    with pytest.raises(KeyError, match="recorded") as caught:
        router.predict([[1000]])
    assert "'cheap'" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("absent", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize(
    "kind", ["list", "object", "string", "category", "numbers", "masked"]
)
def test_a_log_with_missing_answers_or_ids_is_refused_in_words(kind, absent):
    """They ended in errors of numpy and pandas, or in "nan, which is not in [0.0, nan]"."""
    if kind == "numbers" and absent is not np.nan:
        values = pd.Series([3, 1, None, 2], dtype="Int64")
    elif kind == "numbers":
        values = [1.0, 2.0, absent, 3.0]
    elif kind in ("string", "category"):
        values = pd.Series(["b", "a", absent, "c"], dtype=kind)
    elif kind == "object":
        values = np.array(["b", "a", absent, "c"], dtype=object)
    elif kind == "masked":
        values = np.ma.masked_equal([3, 1, 0, 2], 0)
    elif absent is np.nan:
        values = [0.0, 1.0, np.nan, 2.0]
    else:
        values = ["b", "a", absent, "c"]
    message = r"{} must (not be missing, as in 1 of 4 rows \(the first is row 2\)|.* 1 are masked)"
    with pytest.raises(ValueError, match=message.format("predictions")):
        RecordedClassifier(values, ids=list("wxyz")).predict([["w"]])
    with pytest.raises(ValueError, match=message.format("ids")):
        RecordedClassifier([1, 2, 3, 4], ids=values).predict([["w"]])


def test_rows_are_read_by_one_column():
    X = pd.DataFrame({"row": [1, 0], "x": [0.5, 0.1]})
    assert RecordedClassifier(["a", "b"], column="row").predict(X).tolist() == [
        "b",
        "a",
    ]
    with pytest.raises(
        ValueError, match=r"column='id' is not one of X: \['row', 'x'\]"
    ):
        RecordedClassifier(["a", "b"], column="id").predict(X)
    with pytest.raises(
        ValueError, match="X must have one column with row numbers or ids, got 2"
    ):
        RecordedClassifier(LABELS).predict([[0, 1]])
    with pytest.raises(ValueError, match="at least one row"):
        RecordedClassifier(LABELS).predict(np.empty((0, 1)))
    with pytest.raises(ValueError, match="X must have no missing values: 1 are masked"):
        RecordedClassifier(LABELS).predict(np.ma.masked_equal([[1], [0]], 0))


@settings(max_examples=60, deadline=None)
@given(
    ids=st.one_of(
        st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=8, unique=True),
        st.lists(
            st.integers(-(2**62), 2**62).map(float), min_size=2, max_size=8, unique=True
        ),
        st.lists(st.text("abc7", max_size=4), min_size=2, max_size=8, unique=True),
    ),
    kind=st.sampled_from(["plain", "objects", "frame", "floats"]),
    seed=st.integers(0, 99),
)
def test_ids_are_found_by_value_or_refused(ids, kind, seed):
    """Also in arrays of objects, and beside a column of numbers; never another row's answer."""
    answers = np.array([f"answer {k}" for k in range(len(ids))])
    model = RecordedClassifier(answers, ids=ids, column=0)
    order = np.append(0, np.random.default_rng(seed).integers(len(ids), size=9))
    asked = [ids[k] for k in order]
    if kind == "plain":
        X = np.array(asked)[:, np.newaxis]
    elif kind == "objects":
        X = np.array([[one, 0.5] for one in asked], dtype=object)
    elif kind == "frame":
        X = pd.DataFrame({"id": asked, "x": 0.5})
        model.set_params(column="id")
    elif isinstance(ids[0], str):
        return
    else:
        X = np.column_stack([np.array(asked, dtype=float), np.zeros(10)])
    floats = kind == "floats" or isinstance(ids[0], float)
    if floats and max(map(abs, ids)) > 2**53:
        # An id that was a whole number beside it could not be told from the one on record.
        with pytest.raises(ValueError, match="cannot tell whole numbers above"):
            model.predict(X)
        return
    np.testing.assert_array_equal(model.predict(X), answers[order])
    with pytest.raises(KeyError, match="No answer was recorded for"):
        model.set_params(predictions=answers[1:], ids=ids[1:]).predict(X)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["D", "h", "s", "ms", "us", "ns"]),
    st.sampled_from(["D", "h", "s", "ms", "us", "ns"]),
    st.lists(st.integers(0, 10**6), min_size=2, max_size=6, unique=True),
    st.integers(0, 10**5),
)
def test_dates_are_found_in_any_unit_and_never_rounded(unit, asked_unit, hours, later):
    """A date between two that are recorded is neither of them."""
    ids = np.unique(np.array(hours, "datetime64[h]").astype(f"datetime64[{unit}]"))
    model = RecordedClassifier(np.arange(len(ids)), ids=ids, column=0)
    asked = np.append(ids.astype(f"datetime64[{asked_unit}]"), np.datetime64("NaT"))
    asked[:-1] += later
    known = {
        moment: row for row, moment in enumerate(ids.astype("datetime64[ns]").tolist())
    }
    for moment in asked:
        row = known.get(moment.astype("datetime64[ns]").item())
        X = np.array([[moment]])
        if row is None or np.isnat(moment):
            with pytest.raises(KeyError, match="never guessed"):
                model.predict(X)
        else:
            assert model.predict(X) == [row]


@pytest.mark.parametrize("container", ["array", "lists", "pandas", "polars", "arrow"])
def test_indicator_answers_are_read_in_each_container(container):
    answers = [[1, 0], [0, 1], [1, 1]]
    columns = {"a": [1, 0, 1], "b": [0, 1, 1]}
    predictions = {
        "array": lambda: np.array(answers),
        "lists": lambda: answers,
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "arrow": lambda: pa.table(columns),
    }[container]()
    model = RecordedClassifier(predictions, classes=["a", "b"])
    model.fit([[0], [1]], np.array(answers)[:2])
    np.testing.assert_array_equal(model.predict([[2], [0]]), [[1, 1], [1, 0]])
    scored = RecordedClassifier(predictions, scores=predictions, classes=["a", "b"])
    np.testing.assert_array_equal(scored.predict_proba([[1]]), [[0, 1]])


@pytest.mark.parametrize("rows", ["lists", "array", "pandas", "polars", "arrow"])
def test_ids_of_digits_are_texts(rows):
    ids = ["1_1", "11", "007", "7"]
    model = RecordedClassifier(["a", "b", "c", "d"], ids=ids, column=0)
    table = [["007", 1.0], ["1_1", 2.0]]
    columns = {"id": ["007", "1_1"], "size": [1.0, 2.0]}
    X = {
        "lists": lambda: table,
        "array": lambda: np.array(table, dtype=object),
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "arrow": lambda: pa.table(columns),
    }[rows]()
    assert model.predict(X).tolist() == ["c", "a"]
