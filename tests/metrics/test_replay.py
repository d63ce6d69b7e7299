"""Replay: a router of each kind sees one cell of the log per request."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from skroute.ledgers import Window
from skroute.metrics import replay
from skroute.routing import (
    BudgetRouter,
    BudgetStream,
    OnlineBudgetRouter,
    SequentialRouterClassifier,
)
from tests.routing.test_online import COSTS, world

LOG = world(700)[:2]


def fitted(kind):
    X, Q = LOG[0][:300], LOG[1][:300]
    if kind == "online":
        return OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3.0).fit(X, Q)
    return router.stream(1200.0, 400) if kind == "stream" else router


@pytest.mark.parametrize("kind", ["fitted", "stream", "online"])
def test_the_router_stays_as_it_is(kind):
    X, Q = LOG[0][300:], LOG[1][300:]
    router = fitted(kind)
    happened = replay(router, X, Q, COSTS)
    again = replay(router, X, Q, COSTS)
    assert happened.choices == list(COSTS)
    rows = np.arange(400)
    np.testing.assert_array_equal(happened.quality, Q[rows, happened.route])
    np.testing.assert_array_equal(
        happened.cost, np.array([1.0, 3.0, 10.0])[happened.route]
    )
    np.testing.assert_array_equal(again.route, happened.route)
    if kind != "fitted":
        status = router.status()
        assert getattr(status, "spent", 0) == 0 == getattr(status, "n_requests", 0)


def test_a_model_that_fails_is_found_out_by_learning_alone():
    X, Q = LOG[0][300:], LOG[1][300:].copy()
    Q[50:, 1] = 0.0
    shares = {}
    for kind in ("fitted", "online"):
        route = replay(fitted(kind), X, Q, COSTS).route
        shares[kind] = (route[200:] == 1).mean()
    assert shares["online"] < 0.1
    assert shares["fitted"] > 0.4


def test_a_choice_that_the_router_does_not_know_is_not_made():
    X, Q = LOG[0][300:], np.column_stack([LOG[1], np.full(700, 0.95)])[300:]
    for kind in ("fitted", "online"):
        happened = replay(fitted(kind), X, Q, [1, 3, 10, 2], choices=[*COSTS, "new"])
        assert not (happened.route == 3).any()


def test_a_router_sees_only_the_cells_of_its_choices():
    """Other cells change nothing, and an outcome with a delay is seen later."""
    X, Q = LOG[0][300:], LOG[1][300:]
    seen = replay(fitted("online"), X, Q, COSTS)
    hidden = np.full(Q.shape, -99.0)
    rows = np.arange(400)
    hidden[rows, seen.route] = Q[rows, seen.route]
    np.testing.assert_array_equal(
        replay(fitted("online"), X, hidden, COSTS).route, seen.route
    )
    late = replay(fitted("online"), X, hidden, COSTS, delay=400)
    never = fitted("online")
    names = [never.decide(x).name for x in X]
    assert [late.choices[k] for k in late.route] == names


def test_a_prior_that_reads_columns_by_name_gets_a_frame():
    X, Q = pd.DataFrame(LOG[0], columns=["a", "b", "c"]), LOG[1]
    reads = make_pipeline(make_column_transformer(("passthrough", ["b", "a"])), Ridge())
    prior = BudgetRouter(reads, costs=COSTS, budget=3.0).fit(X[:300], Q[:300])
    online = OnlineBudgetRouter(COSTS, budget=3.0, prior=prior).fit(X[:300], Q[:300])
    happened = replay(online, X[300:], Q[300:], COSTS)
    arrow = pytest.importorskip("pyarrow").table(dict(zip(COSTS, Q[300:].T)))
    assert (replay(online, X[300:], arrow, COSTS).route == happened.route).all()


def test_an_exhausted_stream_makes_no_choice():
    X, Q = LOG[0][300:], LOG[1][300:]
    stream = fitted("fitted").set_params(budget=3.0).stream(60.0)
    happened = replay(stream, X, Q, COSTS)
    none = happened.route == -1
    assert none.any()
    assert np.isnan(happened.quality[none]).all()
    assert not happened.cost[none].any()
    assert happened.cost.sum() <= 60


def test_a_request_without_room_in_a_window_has_no_answer():
    X, Q = LOG[0][300:340], LOG[1][300:340]
    windows = {name: [Window("requests", 4, seconds=3600)] for name in COSTS}
    stream = fitted("fitted").stream(1e6, windows=windows)
    happened = replay(stream, X, Q, COSTS)
    counts = [(happened.route == position).sum() for position in range(len(COSTS))]
    assert max(counts) == 4
    assert (happened.route == -1).sum() == 40 - sum(counts)


def test_a_stream_that_pays_while_it_decides_is_charged_once():
    X, y = make_classification(
        600, n_features=6, n_informative=4, flip_y=0.1, random_state=0
    )
    forest = RandomForestClassifier(20, max_depth=6, random_state=0)
    models = [("small", LogisticRegression()), ("large", forest)]
    router = SequentialRouterClassifier(models, costs={"small": 1.0, "large": 4.0})
    router.fit(X[:300], y[:300])
    stream = BudgetStream(router, 150.0, n_expected=100, max_costs=5.0)
    # Of each choice: its costs, and a quality that does not matter here.
    quality = np.ones((100, len(router.choices_)))
    costs = router.choice_costs_
    happened = replay(stream, X[300:400], quality, costs, choices=router.choices_)
    assert 140 <= happened.cost.sum() <= 150


@pytest.mark.parametrize(
    "change, words",
    [
        ({"delay": -1}, "delay"),
        ({"costs": [1, 2]}, "one column for each"),
        ({"costs": [1, 2, -1]}, "at least 0"),
        ({"choices": ["small", "middle", "tiny"]}, "no column for"),
        ({"router": Ridge()}, "router must be"),
    ],
)
def test_errors_say_what_is_wrong(change, words):
    arguments = {"router": fitted("online"), "quality": LOG[1], "costs": COSTS} | change
    with pytest.raises((ValueError, TypeError), match=words):
        replay(arguments.pop("router"), LOG[0], arguments.pop("quality"), **arguments)
