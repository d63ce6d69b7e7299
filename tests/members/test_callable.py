import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skroute.base import Plan
from skroute.members import CallableClassifier
from skroute.routing import DummyRouterClassifier, OccamRouterClassifier
from tests.estimators import sign_of_the_first_column

X = np.arange(10.0)[:, None] - 4.5


class Flaky:
    """Fails when its script says so, and notes the batches that it sees."""

    def __init__(self, failures):
        self.failures = list(failures)
        self.batches = []

    def __call__(self, rows):
        self.batches.append(np.asarray(rows)[:, 0].tolist())
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return sign_of_the_first_column(rows)


def test_batches_and_counts():
    service = Flaky([])
    model = CallableClassifier(service, classes=[0, 1], batch_size=4, cost=0.25)
    np.testing.assert_array_equal(model.predict(X), X[:, 0] > 0)
    assert [len(batch) for batch in service.batches] == [4, 4, 2]
    assert model.statistics() == (3, 0, 10, 2.5)
    model.set_params(cost=lambda rows: np.abs(rows[:, 0]), batch_size=3).predict(X)
    assert model.statistics().spent == pytest.approx(2.5 + np.abs(X).sum())
    texts = CallableClassifier(
        lambda rows: [text[-1] for text in rows], classes=["?", "."]
    )
    assert texts.predict(["why?", "so."]).tolist() == ["?", "."]
    with pytest.raises(ValueError, match="0 sample"):
        texts.predict([])


def test_failure():
    service = Flaky([None, ConnectionError("down")])
    model = CallableClassifier(service, classes=[0, 1], batch_size=3, cost=2.0)
    with pytest.raises(ConnectionError, match="down") as caught:
        model.predict(X)
    error = caught.value
    assert error.rows.tolist() == [3, 4, 5]
    assert error.answers.tolist() == [0, 0, 0]
    notes = "\n".join(error.__notes__)
    assert (
        "lost rows 3 to 5 of 10; the 3 before were answered, the 4 after were not"
        in notes
    )
    # A failed call spends nothing.
    assert model.statistics() == (2, 1, 3, 6.0)
    service.failures = [ConnectionError()]
    with pytest.raises(ConnectionError) as caught:
        model.predict(X)
    assert caught.value.answers.tolist() == []


def test_what_a_service_says_is_not_shown():
    secret = "the patient's name is"
    model = CallableClassifier(
        lambda rows: [secret] * len(rows), classes=["ill", "well"]
    )
    with pytest.raises(ValueError, match="a text of 21 characters for row 0") as caught:
        model.predict([secret, secret])
    assert secret not in str(caught.value) + "".join(caught.value.__notes__)


def test_probabilities():
    def service(rows):
        return np.column_stack([rows[:, 0] > 0, rows[:, 0] <= 0])

    model = CallableClassifier(service, classes=["up", "down"], returns="proba")
    with pytest.raises(ValueError, match="probabilities, of shape"):
        model.predict(X)
    model.set_params(function=lambda rows: service(rows) * 1.0)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.predict(X[[0, -1]]).tolist() == ["down", "up"]
    np.testing.assert_array_equal(model.predict_proba(X[[0, -1]]), [[1, 0], [0, 1]])
    model.set_params(function=lambda rows: service(rows) * np.nan)
    with pytest.raises(
        ValueError, match="probabilities of function must have no missing values"
    ):
        model.predict_proba(X)
    labels = CallableClassifier(sign_of_the_first_column, classes=[0, 1])
    assert not hasattr(labels, "predict_proba")


def second(rows, said):
    """Labels, of which the second is none."""
    answers = np.zeros(len(rows), dtype=object)
    answers[1] = said
    return answers


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda rows: [5] * len(rows),
            "answered 5 for row 0 of its call, which is not in classes",
        ),
        (lambda rows: [0], "one label per row, of shape (10,), got shape (1,)"),
        (
            lambda rows: np.ma.masked_less(np.arange(10) % 2, 1),
            "function returns must have no",
        ),
        (
            lambda rows: ["yes"] * len(rows),
            "function answered a text of 3 characters for row 0",
        ),
        *(
            (
                partial(second, said=said),
                "for row 1 of its call, which is not in classes",
            )
            for said in (None, np.nan, ["a"], 3, "a")
        ),
    ],
)
def test_unusable_answers(answer, message):
    model = CallableClassifier(answer, classes=[0, 1], cost=1.0)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.predict(X)
    assert model.statistics() == (1, 1, 0, 0.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"classes": [0, 0]}, "classes must be labels that do not repeat"),
        ({"cost": -1.0}, "'cost' parameter"),
        ({"function": "service"}, "'function' parameter"),
    ],
)
def test_bad_parameters(params, message):
    service = Flaky([])
    params = {"function": service, "classes": [0, 1]} | params
    for call in ("fit", "predict"):
        with pytest.raises(ValueError, match=message):
            getattr(CallableClassifier(**params), call)(X)
    # Labels that repeat were noticed once the service had been asked, and paid.
    assert not service.batches


def test_counts_survive_pickling_and_threads():
    model = CallableClassifier(
        sign_of_the_first_column, classes=[0, 1], cost=1.0, batch_size=1
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(model.predict, [X] * 8))
    assert model.statistics() == (80, 0, 80, 80.0)
    copy = pickle.loads(pickle.dumps(model))
    copy.predict(X)
    assert copy.statistics().n_rows == 90 and model.statistics().n_rows == 80
    assert clone(model).statistics().n_rows == 0
    assert pickle.loads(pickle.dumps(clone(model))).statistics().n_rows == 0


def test_in_a_router_a_service_is_asked_once_per_row_in_fit():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    y = (rows.sum(axis=1) > 0).astype(int)
    members = [
        ("bayes", GaussianNB()),
        (
            "service",
            CallableClassifier(sign_of_the_first_column, classes=[0, 1], cost=2.0),
        ),
    ]
    router = OccamRouterClassifier(members, costs=[0, 2], budget=1, cv=2).fit(rows, y)
    service = router.named_estimators_.service
    assert service.statistics() == (1, 0, 200, 400.0)
    assert members[1][1].statistics().n_calls == 0
    routed = pickle.loads(pickle.dumps(router)).predict_routed(rows)
    np.testing.assert_array_equal(routed.y_pred, router.predict(rows))
    asked = int((routed.route == 1).sum())
    assert service.statistics().n_rows == 200 + asked
    assert routed.cost.sum() == pytest.approx(2 * asked)


def test_in_a_router_lost_rows_are_those_of_the_caller():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    y = (rows[:, 1] > 0).astype(int)
    service = Flaky([])
    model = CallableClassifier(service, classes=[0, 1], batch_size=2)
    members = [
        ("linear", LogisticRegression()),
        ("service", FrozenEstimator(model.fit(rows, y))),
    ]
    router = DummyRouterClassifier(members, costs=[1, 2], strategy="oracle", cv=2).fit(
        rows, y
    )
    route = np.where(np.arange(60) % 3 == 0, 1, 0)
    router._plan = lambda X, call: Plan(route, np.ones(60))
    service.failures = [None, ConnectionError("gone")]
    with pytest.raises(ConnectionError) as caught:
        router.predict(rows)
    # Every third row is the service's: its second batch holds its third and fourth row.
    assert caught.value.rows.tolist() == [6, 9]
    assert any("'service'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    "cost",
    [
        lambda rows: np.full(len(rows), np.nan),
        lambda rows: -1.0,
        lambda rows: {}["price"],
    ],
)
def test_an_answer_whose_cost_is_not_known_was_given(cost):
    model = CallableClassifier(
        lambda rows: ["a"] * len(rows), classes=["a", "b"], cost=cost
    )
    with pytest.raises((ValueError, KeyError)):
        model.predict(np.zeros((3, 1)))
    assert model.statistics() == (1, 0, 3, 0.0)
