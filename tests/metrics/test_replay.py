"""Replay: each kind of router on a log, with shifts, sees one cell per request."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skroute.metrics import ReplayDisplay, Shift, replay
from skroute.metrics._replay_display import running_mean
from skroute.routing import BudgetRouter, OnlineBudgetRouter

COSTS = {"small": 1.0, "middle": 3.0, "large": 10.0}


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 2))
    level = np.array([0.5, 0.7, 0.85])
    Q = level + X[:, [0, 1, 0]] * [0.15, 0.1, -0.05] + 0.05 * rng.normal(size=(700, 3))
    return X, Q


def fitted(kind, log):
    X, Q = log[0][:300], log[1][:300]
    if kind == "online":
        return OnlineBudgetRouter(COSTS, budget=3.0).fit(X, Q)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3.0).fit(X, Q)
    return router.stream(1200.0, 400) if kind == "stream" else router


@pytest.mark.parametrize("kind", ["fitted", "stream", "online"])
def test_shifts_are_announced_and_the_router_stays_as_it_is(kind, log):
    X, Q = log[0][300:], log[1][300:]
    router = fitted(kind, log)
    shifts = [Shift("middle", 100, 200, down=True), Shift("large", 250, cost_factor=0.1)]
    happened = replay(router, X, Q, COSTS, shifts=shifts)
    assert happened.choices == list(COSTS) and happened.shifts == tuple(shifts)
    rows = np.arange(400)
    np.testing.assert_array_equal(happened.quality, Q[rows, happened.route])
    prices = np.where(rows[:, None] >= 250, [1.0, 3.0, 1.0], [1.0, 3.0, 10.0])
    np.testing.assert_array_equal(happened.cost, prices[rows, happened.route])
    used = happened.route == 1
    assert used[:100].any() and not used[100:200].any() and used[200:250].any()
    assert (happened.route[250:] == 2).mean() > 0.8
    again = replay(router, X, Q, COSTS, shifts=shifts)
    np.testing.assert_array_equal(again.route, happened.route)
    if kind != "fitted":
        assert (
            getattr(router.status(), "spent", 0) == 0 == getattr(router.status(), "n_requests", 0)
        )


@pytest.mark.parametrize("kind", ["fitted", "online"])
def test_what_the_log_does_not_know_is_not_told(kind, log):
    X, Q = log[0][300:], log[1][300:].copy()
    Q[::2] = np.nan
    happened = replay(fitted(kind, log), X, Q, COSTS)
    np.testing.assert_array_equal(np.isnan(happened.quality), np.arange(400) % 2 == 0)
    assert (happened.route >= 0).all() and (happened.cost > 0).all()


def test_what_is_not_announced_is_found_out_by_learning_alone(log):
    X, Q = log[0][300:], log[1][300:]
    shifts = [Shift("middle", 50, down=True, announced=False)]
    shares = {}
    for kind in ("fitted", "online"):
        happened = replay(fitted(kind, log), X, Q, COSTS, shifts=shifts)
        shares[kind] = (happened.route[200:] == 1).mean()
        failed = happened.route[50:] == 1
        assert (happened.quality[50:][failed] == 0).all() and (
            happened.cost[50:][failed] == 0
        ).all()
    assert shares["online"] < 0.1 < 0.4 < shares["fitted"]


def test_a_choice_arrives(log):
    X, Q = log[0][300:], np.column_stack([log[1], np.full(700, 0.95)])[300:]
    costs, names = [1, 3, 10, 2], [*COSTS, "new"]
    shifts = [Shift("new", 100, arrives=True)]
    online = replay(fitted("online", log), X, Q, costs, choices=names, shifts=shifts)
    assert not (online.route[:100] == 3).any() and (online.route[200:] == 3).mean() > 0.8
    offline = replay(fitted("fitted", log), X, Q, costs, choices=names, shifts=shifts)
    assert not (offline.route == 3).any()


def test_a_router_sees_only_the_cells_of_its_choices(log):
    """Other cells may hold anything; what comes late is seen late."""
    X, Q = log[0][300:], log[1][300:]
    seen = replay(fitted("online", log), X, Q, COSTS)
    hidden = np.full(Q.shape, -99.0)
    rows = np.arange(400)
    hidden[rows, seen.route] = Q[rows, seen.route]
    np.testing.assert_array_equal(replay(fitted("online", log), X, hidden, COSTS).route, seen.route)
    late = replay(fitted("online", log), X, hidden, COSTS, delay=400)
    never = fitted("online", log)
    names = [never.decide(x).name for x in X]
    assert [late.choices[k] for k in late.route] == names


def test_an_exhausted_stream_makes_no_choice(log):
    X, Q = log[0][300:], log[1][300:]
    stream = fitted("fitted", log).set_params(budget=3.0).stream(60.0)
    happened = replay(stream, X, Q, COSTS)
    none = happened.route == -1
    assert none.any() and np.isnan(happened.quality[none]).all() and not happened.cost[none].any()
    assert happened.cost.sum() <= 60


@pytest.mark.parametrize(
    "change, words",
    [
        ({"shifts": [Shift("tiny", 0)]}, "no choice 'tiny'"),
        ({"shifts": ["down"]}, "shifts must be a list of Shift"),
        ({"shifts": [Shift("small", -1)]}, "must not be negative"),
        ({"delay": -1}, "delay must be"),
        ({"costs": [1, 2]}, "one column for each"),
        ({"costs": [1, 2, -1]}, "must not be negative"),
        ({"choices": ["small", "middle", "tiny"]}, "no column for"),
        ({"router": Ridge()}, "router must be"),
    ],
)
def test_errors_say_what_is_wrong(change, words, log):
    arguments = {"router": fitted("online", log), "quality": log[1], "costs": COSTS} | change
    with pytest.raises((ValueError, TypeError), match=words):
        replay(arguments.pop("router"), log[0], arguments.pop("quality"), **arguments)


def test_prices_cannot_be_announced_to_whom_has_none(log):
    X, Q = log
    router = BudgetRouter(Ridge(), cost_estimator=Ridge()).fit(X, Q, costs=Q + 2)
    with pytest.raises(ValueError, match="cannot be announced"):
        replay(router, X, Q, [1, 2, 3], shifts=[Shift("choice0", 5, cost_factor=2)])


def test_the_picture(log):
    plt = pytest.importorskip("matplotlib.pyplot")
    X, Q = log[0][300:], log[1][300:]
    router = fitted("online", log)
    shifts = [Shift("middle", 100, 200, down=True)]
    display = ReplayDisplay.from_estimator(router, X, Q, COSTS, shifts=shifts, name="online")
    line = display.axes_[0].lines[0].get_ydata()
    np.testing.assert_allclose(line, running_mean(display.replayed.cost, 100))
    assert display.budget == 3.0
    other = ReplayDisplay.from_predictions(display.replayed, ax=display.axes_, name="again")
    assert other.figure_ is display.figure_ and len(display.axes_[1].collections) == 0
    plt.close("all")


def test_running_mean():
    values = np.array([1.0, np.nan, 3.0, 5.0])
    np.testing.assert_allclose(running_mean(values, 2), [1, 1, 3, 4])
    assert np.isnan(running_mean(np.array([np.nan, 1.0]), 1)[0])
