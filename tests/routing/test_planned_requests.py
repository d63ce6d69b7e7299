"""Streams of routers that call models, or buy features, while they decide."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from skroute.early_exit import QWYCEnsemble
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.ledgers import BudgetExhaustedError, SQLiteLedger, Window
from skroute.routing import BudgetStream, FrugalMLClassifier, SequentialRouterClassifier

COSTS = {"linear": 1.0, "forest": 4.0}


def members():
    forest = RandomForestClassifier(20, max_depth=6, random_state=0, n_jobs=1)
    return [("linear", LogisticRegression()), ("forest", forest)]


ROUTERS = {
    "draws": FrugalMLClassifier(members(), costs=COSTS),
    "sequential": SequentialRouterClassifier(members(), costs=COSTS, cv=2),
    "gate": AdaptGatingClassifier(
        LogisticRegression(), gate=BoostedGate(max_iter=2, n_estimators=5), cv=2
    ),
    "features": SequentialFeatureClassifier(random_state=0),
    "early exit": QWYCEnsemble(RandomForestClassifier(20, random_state=0)),
}


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(
        900, n_features=6, n_informative=4, flip_y=0.1, random_state=0
    )
    return X[:600], y[:600], X[600:]


@pytest.fixture(scope="module", params=ROUTERS)
def router(request, rows):
    X, y, _ = rows
    return ROUTERS[request.param].fit(X, y)


@pytest.fixture(scope="module")
def in_turn(rows):
    X, y, _ = rows
    return SequentialRouterClassifier(members(), costs=COSTS, cv=2).fit(X, y)


def test_requests_are_decided_and_paid_as_rows(router, rows):
    """Without a number of requests, each is decided at the budget of the router."""
    X_new = rows[2][:40]
    dear = float(router.predict_cost(X_new, budget=np.inf).max())
    budget = 0.5 * (router.min_budget_ + dear)
    router.set_params(budget=budget)
    stream = BudgetStream(router, 1000 * dear, max_costs=2 * dear)
    tickets = [stream.route(x[None]) for x in X_new]
    assert_array_equal([ticket.answer for ticket in tickets], router.predict(X_new))
    assert_array_equal([ticket.choice for ticket in tickets], router.route(X_new))
    costs = router.predict_cost(X_new)
    assert_allclose([ticket.deciding for ticket in tickets], costs)
    for ticket in tickets:
        assert ticket.cost == 0.0
        assert ticket.name == router.choices_[ticket.choice]
        stream.commit(ticket)
    assert_allclose(stream.status().spent, costs.sum())
    assert stream.status().reserved == 0.0
    router.set_params(budget=None)


def test_a_total_is_spent_over_the_expected_requests(in_turn, rows):
    X_new = rows[2]
    total = 2.0 * len(X_new)
    stream = BudgetStream(in_turn, total, n_expected=len(X_new), max_costs=5.0)
    n_answered = 0
    for x in X_new:
        try:
            stream.predict(x[None])
        except BudgetExhaustedError:
            continue
        n_answered += 1
        assert stream.status().spent <= total
    # A request is rejected if less than 5 is left: at most the last few.
    assert n_answered >= len(X_new) - 5
    assert stream.status().spent >= 0.95 * total


def test_threads_and_processes_share_a_total(in_turn, rows, tmp_path):
    total = 60.0
    path = tmp_path / "ledger.db"
    streams = [
        BudgetStream(in_turn, total, 60, max_costs=5.0, ledger=SQLiteLedger(path))
        for _ in range(2)
    ]
    X_new = rows[2]

    def answer(stream, first):
        for x in X_new[first : first + 50]:
            try:
                stream.predict(x[None])
            except BudgetExhaustedError:
                return

    threads = [
        threading.Thread(target=answer, args=(streams[number % 2], 50 * number))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = streams[0].status()
    assert status.spent <= total
    # Less than the largest cost of a request is left.
    assert status.spent > total - 5.0
    assert status.reserved == 0.0


class FailsOnNegative(LogisticRegression):
    """A model that fails for rows whose first number is negative."""

    def predict_proba(self, X):
        if len(X) == 1 and X[0, 0] < 0:
            raise ConnectionError("no answer")
        return super().predict_proba(X)


def test_a_model_that_fails_costs_nothing(rows):
    X, y, X_new = rows
    failing = [("linear", FailsOnNegative()), *members()[1:]]
    router = SequentialRouterClassifier(failing, costs=COSTS, cv=2).fit(X, y)
    stream = BudgetStream(router, 100.0, n_expected=50, max_costs=5.0)
    bad = X_new[X_new[:, 0] < 0][:1]
    with pytest.raises(ConnectionError):
        stream.predict(bad)
    status = stream.status()
    assert (status.spent, status.reserved, status.n_open) == (0.0, 0.0, 0)
    assert stream.books().n_started == 0


def test_a_key_is_decided_once(in_turn, rows):
    stream = BudgetStream(in_turn, 100.0, n_expected=50, max_costs=5.0)
    x = rows[2][:1]
    first = stream.route(x, key="a")
    again = stream.route(x, key="a")
    assert again.id == first.id
    assert stream.books().n_started == 1
    stream.commit(first)
    assert stream.status().spent == first.deciding


def test_a_cost_above_the_largest_one_is_recorded_with_a_warning(in_turn, rows):
    stream = BudgetStream(in_turn, 100.0, n_expected=2, max_costs=2.0)
    with pytest.warns(UserWarning, match="above the max_costs of 2"):
        for x in rows[2][:20]:
            stream.predict(x[None])
    assert stream.status().spent >= 5.0


def test_what_such_streams_do_not_have_is_refused(in_turn, rows):
    X_new = rows[2]
    with pytest.raises(ValueError, match="max_costs must be given"):
        BudgetStream(in_turn, 100.0)
    with pytest.raises(ValueError, match="below the smallest mean cost"):
        BudgetStream(in_turn, 100.0, max_costs=0.5)
    windows = {"linear": [Window("requests", 10, seconds=60)]}
    with pytest.raises(ValueError, match="windows must be None"):
        BudgetStream(in_turn, 100.0, max_costs=5.0, windows=windows)
    with pytest.raises(TypeError, match="must be a decision estimator"):
        BudgetStream(LogisticRegression().fit(*rows[:2]), 100.0)
    stream = BudgetStream(in_turn, 100.0, max_costs=5.0)
    with pytest.raises(TypeError, match="rank is for routers"):
        stream.rank([0.5, 0.6])
    with pytest.raises(TypeError, match="reserve is for routers"):
        stream.reserve([0.5, 0.6])
    with pytest.raises(TypeError, match="set_costs is for routers"):
        stream.set_costs(COSTS)
    with pytest.raises(TypeError, match="does not take 'exclude'"):
        stream.route(X_new[:1], exclude=["linear"])
    with pytest.raises(ValueError, match="costs and uses must be None"):
        stream.route(X_new[:1], costs=[1.0, 2.0])
    with pytest.raises(ValueError, match="x must be one row"):
        stream.route(X_new[:2])
    assert stream.status().reserved == 0.0
