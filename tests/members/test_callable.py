import pickle
import re
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skroute.members import CallableClassifier, _callable
from skroute.routing import OccamRouterClassifier, OracleRouterClassifier
from tests.estimators import sign_of_the_first_column

X = np.arange(10.0)[:, None] - 4.5


@pytest.fixture
def waits(monkeypatch):
    """The seconds slept, in place of sleeping."""
    seconds = []
    monkeypatch.setattr(_callable, "_sleep", seconds.append)
    return seconds


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


def test_cost_of_the_row():
    model = CallableClassifier(
        sign_of_the_first_column, classes=[0, 1], cost=lambda rows: np.abs(rows[:, 0]), batch_size=3
    )
    model.predict(X)
    assert model.statistics().spent == pytest.approx(np.abs(X).sum())


def test_retries_wait_twice_as_long_each_time(waits):
    service = Flaky([ConnectionError(), TimeoutError(), None])
    model = CallableClassifier(
        service, classes=[0, 1], backoff=4.0, max_retries=3, cost=1, random_state=0
    )
    model.predict(X)
    assert len(waits) == 2 and 2 <= waits[0] <= 4 and 4 <= waits[1] <= 8
    assert model.statistics() == (3, 2, 10, 10.0)
    again = CallableClassifier(
        Flaky([ConnectionError(), TimeoutError(), None]),
        classes=[0, 1],
        backoff=4.0,
        max_retries=3,
        random_state=0,
    )
    first = list(waits)
    waits.clear()
    again.predict(X)
    assert waits == first


def test_failure_for_good(waits):
    service = Flaky([None, ConnectionError("down"), ConnectionError("down")])
    model = CallableClassifier(service, classes=[0, 1], batch_size=3, max_retries=1, cost=2.0)
    with pytest.raises(ConnectionError, match="down") as caught:
        model.predict(X)
    error = caught.value
    assert error.rows.tolist() == [3, 4, 5]
    assert error.answers.tolist() == [0, 0, 0]
    notes = "\n".join(error.__notes__)
    assert "attempt 2 of 2" in notes
    assert "lost rows 3 to 5 of 10; the 3 before were answered, the 4 after were not" in notes
    # A failed call spends nothing.
    assert model.statistics() == (3, 2, 3, 6.0)
    service.failures = [ConnectionError()] * 2
    with pytest.raises(ConnectionError) as caught:
        model.predict(X)
    assert caught.value.answers.tolist() == []


def test_other_failures_are_not_retried(waits):
    service = Flaky([ArithmeticError("bug")])
    model = CallableClassifier(service, classes=[0, 1])
    with pytest.raises(ArithmeticError) as caught:
        model.predict(X)
    assert len(service.batches) == 1 and not waits
    assert caught.value.rows.tolist() == list(range(10))
    retried = CallableClassifier(
        Flaky([ArithmeticError()]), classes=[0, 1], retry_on=(ArithmeticError,)
    )
    retried.predict(X)
    assert len(waits) == 1


def test_timeout(waits):
    release = threading.Event()
    slow = threading.Event()

    def service(rows):
        if not slow.is_set():
            slow.set()
            release.wait(30)
        return sign_of_the_first_column(rows)

    model = CallableClassifier(service, classes=[0, 1], timeout=0.05, cost=1.0)
    np.testing.assert_array_equal(model.predict(X), X[:, 0] > 0)
    release.set()
    assert model.statistics() == (2, 1, 10, 10.0)
    blocked = CallableClassifier(
        lambda rows: time.sleep(0.2), classes=[0, 1], timeout=0.01, max_retries=0
    )
    with pytest.raises(TimeoutError, match=re.escape("within timeout=0.01 seconds")):
        blocked.predict(X)
    failing = CallableClassifier(Flaky([ValueError("inside")]), classes=[0, 1], timeout=5.0)
    with pytest.raises(ValueError, match="inside"):
        failing.predict(X)


def test_probabilities():
    def service(rows):
        return np.column_stack([rows[:, 0] > 0, rows[:, 0] <= 0])

    model = CallableClassifier(service, classes=["up", "down"], returns="proba")
    with pytest.raises(ValueError, match="probabilities of shape"):
        model.predict(X)
    model.set_params(function=lambda rows: service(rows) * 1.0)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.predict(X[[0, -1]]).tolist() == ["down", "up"]
    np.testing.assert_array_equal(model.predict_proba(X[[0, -1]]), [[1, 0], [0, 1]])
    model.set_params(function=lambda rows: service(rows) * np.nan)
    with pytest.raises(ValueError, match="not finite"):
        model.predict_proba(X)
    labels = CallableClassifier(sign_of_the_first_column, classes=[0, 1])
    assert not hasattr(labels, "predict_proba")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: [5] * len(rows), "function answered 5, which is not in classes: [0, 1]"),
        (lambda rows: [0], "one label per row, shape (10,), got (1,)"),
        (lambda rows: None, "one label per row, shape (10,), got ()"),
        (lambda rows: ["yes"] * len(rows), "function answered 'yes'"),
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
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"max_retries": -1}, "'max_retries' parameter"),
        ({"backoff": -1.0}, "'backoff' parameter"),
        ({"timeout": 0}, "'timeout' parameter"),
        ({"cost": -1.0}, "'cost' parameter"),
        ({"returns": "scores"}, "'returns' parameter"),
        ({"function": "service"}, "'function' parameter"),
    ],
)
def test_bad_parameters(params, message):
    service = Flaky([])
    params = {"function": service, "classes": [0, 1]} | params
    with pytest.raises(ValueError, match=message):
        CallableClassifier(**params).fit(X)
    assert not service.batches


def test_texts_and_empty_input():
    model = CallableClassifier(
        lambda rows: ["?" if "?" in text else "." for text in rows], classes=["?", "."]
    )
    assert model.predict(["why?", "so."]).tolist() == ["?", "."]
    with pytest.raises(ValueError, match="0 sample"):
        model.predict([])


def test_counts_survive_pickling_and_threads():
    model = CallableClassifier(sign_of_the_first_column, classes=[0, 1], cost=1.0, batch_size=1)
    threads = [threading.Thread(target=model.predict, args=(X,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
        ("service", CallableClassifier(sign_of_the_first_column, classes=[0, 1], cost=2.0)),
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
    model = CallableClassifier(service, classes=[0, 1], batch_size=2, max_retries=0)
    members = [("linear", LogisticRegression()), ("service", FrozenEstimator(model.fit(rows, y)))]
    router = OracleRouterClassifier(members, costs=[1, 2], cv=2).fit(rows, y)
    router._plan = lambda X, budget, y_true=None: _callable_plan(len(X))
    service.failures = [None, ConnectionError("gone")]
    with pytest.raises(ConnectionError) as caught:
        router.predict(rows)
    # Every third row is the service's: its second batch holds its third and fourth row.
    assert caught.value.rows.tolist() == [6, 9]
    assert any("'service'" in note for note in caught.value.__notes__)


def _callable_plan(n):
    from skroute.base import Plan

    route = np.where(np.arange(n) % 3 == 0, 1, 0)
    return Plan(route, np.ones(n))
